//! What a controller tells its host.

use alloc::vec::Vec;

use super::RequestAdmission;
use crate::lease::ReleaseDiagnostics;
use crate::limit::AimdConfig;
use crate::replay::{RequestCommand, Sequence, Stamped};
use crate::request::event::{Interest, RequestEvent};
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::outcome::Effect;
use crate::request::pressure::RequestPressure;
use crate::request::resource::{Held, Resource};
use crate::request::snapshot::{ProviderModelSnapshot, ResourceGauges, ResourceLoad, ResourceSnapshot};
use crate::time::{Duration, Instant};

/// Polling.
impl RequestAdmission {
    /// The next piece of news for a waiter. Drain it after every command.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front()?;
        self.recorder.polled(|digest| digest.request(&effect));
        Some(effect)
    }

    /// Takes down every command from now on, numbered by `sequence`: see [`replay`](crate::replay). To be replayed, a log
    /// has to begin before the first registration.
    pub fn record(&mut self, sequence: &Sequence) {
        self.recorder.begin(sequence);
    }

    /// The commands that were taken down since the last call.
    pub fn take_commands(&mut self) -> Vec<Stamped<RequestCommand>> {
        self.recorder.take()
    }

    /// A hash over every decision since [`RequestAdmission::record`]: answers, and effects as they were polled.
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.recorder.digest()
    }

    /// Asks for these kinds of events from now on, and no others.
    pub fn set_interest(&mut self, now: Instant, interest: Interest) {
        let now = self.begin(now);
        for resource in &mut self.resources {
            resource.told_limit = resource.limit(now);
        }
        self.log.set_interest(interest);
    }

    /// The next event that was asked for. Where nothing was, there is none.
    pub fn poll_event(&mut self) -> Option<RequestEvent> {
        self.log.pop()
    }

    /// Events that were lost because nobody drained them.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.log.dropped()
    }

    /// When to call [`RequestAdmission::handle_timeout`] next, at the latest; `None` while nothing waits for time.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether the end of a call of `resource` may change anything that depends on the time. Where it does not, `release`
    /// may be given [`RequestAdmission::latest`] instead of a fresh instant, unless the call was rate limited.
    #[inline]
    #[must_use]
    pub fn needs_clock(&self, resource: ResourceId) -> bool {
        /// Resources with waiters that are asked one by one: a look is cheaper than a clock.
        const MOST: usize = 4;
        let latest = self.latest();
        let uses_time =
            |id: &ResourceId| self.resources.get(id.index()).is_none_or(|resource| resource.uses_time(latest));
        uses_time(&resource)
            || self.log.is_on()
            || (self.ties.is_used() && !self.waited.is_empty())
            || self.timers.next().is_some()
            || self.waited.len() > MOST
            || self.waited.iter().any(uses_time)
    }

    /// The same for `acquire` and `try_acquire`: also true if the request has a timeout, which begins now.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_admit(&self, request: &Request) -> bool {
        request.timeout.or(self.config.default_timeout).is_some() || self.needs_clock(request.resource)
    }

    /// The same for `acquire_yielding`: also true if the request may have to wait, because the task stage is asked then.
    #[must_use]
    pub fn needs_clock_to_admit_yielding(&self, request: &Request) -> bool {
        self.needs_clock_to_admit(request) || !self.waited.is_empty() || self.blocked(self.latest(), request).is_some()
    }

    /// The latest instant that any command was given.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> Instant {
        self.time.latest()
    }

    /// The state of a resource at `now`; `None` for one that this controller never made. Changes nothing. O(leases).
    #[must_use]
    pub fn snapshot(&self, now: Instant, resource: ResourceId) -> Option<ResourceSnapshot> {
        let now = self.time.peek(now);
        let entry = self.resources.get(resource.index())?;
        let owner = &self.providers[entry.owner.0 as usize];
        let leases = || self.ledger.values().filter(|held| held.resource == resource);
        let blocked_until = entry.cooldown.until(now);
        let state = entry.limit_state(now);
        Some(ResourceSnapshot {
            at: now,
            sequence: self.sequence,
            provider: owner.provider.clone(),
            model: owner.model.clone(),
            domain: entry.domain.clone(),
            effective_max: entry.effective_max(),
            current_limit: entry.limit(now),
            in_flight: entry.in_flight,
            active_leases: leases().count() as u32,
            oldest_lease: leases().filter_map(Held::since).min(),
            irregular_releases: entry.irregular,
            waiters: entry.waiters,
            suspended: entry.suspended,
            blocked_until,
            cooldown_remaining: blocked_until.map_or(Duration::ZERO, |end| end - now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            consecutive_rate_limits: entry.cooldown.consecutive_rate_limits,
            success_streak: state.success_streak,
            last_outcome: entry.last_outcome,
            ramp: state.ramp,
            provider_cap: owner.cap,
            provider_in_flight: owner.in_flight,
            budgets: entry.budgets.snapshot(now),
        })
    }

    /// What changes of a resource while it is used, as of `now`; `None` for one that this controller never made. O(1).
    #[must_use]
    pub fn gauges(&self, now: Instant, resource: ResourceId) -> Option<ResourceGauges> {
        let now = self.time.peek(now);
        let entry = self.resources.get(resource.index())?;
        let state = entry.limit_state(now);
        Some(ResourceGauges {
            effective_max: entry.effective_max(),
            limit: entry.limit(now),
            in_flight: entry.in_flight,
            waiters: entry.waiters,
            suspended: entry.suspended,
            blocked_until: entry.cooldown.until(now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            ramp: state.ramp,
        })
    }

    /// The three figures of a resource that change most, without the cost of a whole snapshot.
    #[must_use]
    pub fn load(&self, now: Instant, resource: ResourceId) -> Option<ResourceLoad> {
        let entry = self.resources.get(resource.index())?;
        let limit = entry.limit(self.time.peek(now));
        Some(ResourceLoad { limit, in_flight: entry.in_flight, waiters: entry.waiters })
    }

    /// When the cooldown of a resource ends that is in force at `now`.
    #[must_use]
    pub fn cooldown_until(&self, now: Instant, resource: ResourceId) -> Option<Instant> {
        self.resources.get(resource.index())?.cooldown.until(self.time.peek(now))
    }

    /// Why a call of `resource` that asked at `now` would have to wait; `None` if it would not, or if this controller never
    /// made the resource.
    #[must_use]
    pub fn pressure(&self, now: Instant, resource: ResourceId) -> Option<RequestPressure> {
        let now = self.time.peek(now);
        let entry = self.resources.get(resource.index())?;
        let owner = &self.providers[entry.owner.0 as usize];
        if owner.in_flight >= owner.cap {
            Some(RequestPressure::CapReached)
        } else if entry.cooldown.until(now).is_some() {
            Some(RequestPressure::CoolingDown)
        } else if entry.waiters > 0 {
            Some(RequestPressure::Waiters)
        } else if !entry.has_room(now) {
            Some(RequestPressure::LimitReached)
        } else {
            None
        }
    }

    /// The state of a provider and model at `now`; `None` for one that this controller never registered.
    #[must_use]
    pub fn provider_model(&self, now: Instant, id: ProviderModelId) -> Option<ProviderModelSnapshot> {
        let entry = self.providers.get(id.0 as usize)?;
        let now = self.time.peek(now);
        let limit_of = |resource: &ResourceId| {
            let entry = &self.resources[resource.index()];
            (entry.domain.clone(), entry.limit(now))
        };
        Some(ProviderModelSnapshot {
            provider: entry.provider.clone(),
            model: entry.model.clone(),
            static_cap: entry.cap,
            in_flight: entry.in_flight,
            active_leases: self.ledger.values().filter(|held| entry.resources.contains(&held.resource)).count() as u32,
            aliases: entry.aliases.clone(),
            limits: entry.resources.iter().map(limit_of).collect(),
        })
    }

    /// The provider and model of a resource; `None` for one that this controller never made.
    #[must_use]
    pub fn owner(&self, resource: ResourceId) -> Option<ProviderModelId> {
        self.resources.get(resource.index()).map(|resource| resource.owner)
    }

    /// Every resource, in order of first mention.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + use<> {
        (0..self.resources.len() as u32).map(ResourceId)
    }

    /// The limit settings of a resource that this controller made.
    #[must_use]
    pub fn settings(&self, resource: ResourceId) -> Option<&AimdConfig> {
        self.resources.get(resource.index()).map(Resource::config)
    }

    /// Leases that are out.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.ledger.active()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }

    /// How often `now` ran backwards and was clamped.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.time.regressions()
    }
}
