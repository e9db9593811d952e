//! What a controller shows: effects, events, timers and state.

use super::{Address, RequestAdmission};
use crate::call::Outcome;
use crate::lease::ReleaseDiagnostics;
use crate::limit::{AimdConfig, LimitChoice};
use crate::request::answer::Effect;
use crate::request::event::{Interest, RequestEvent};
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::pressure::RequestPressure;
use crate::request::provider::{Block, CallRecord, ProviderModel};
use crate::request::snapshot::{ProviderModelSnapshot, ResourceSnapshot, ResourceStats};
use crate::time::{Duration, Instant};

/// Polling.
impl RequestAdmission {
    /// The next piece of news for a waiter. Drain it after every command.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.shared.effects.pop_front()
    }

    /// Effects that were not polled yet.
    #[must_use]
    pub fn pending_effects(&self) -> usize {
        self.shared.effects.len()
    }

    /// Makes these kinds of events from now on, and no others. Decides nothing, and does not advance time.
    pub fn set_interest(&mut self, now: Instant, interest: Interest) {
        let now = self.time.peek(now);
        for provider in &mut self.providers {
            for slot in 0..provider.resources.len() {
                provider.take_limit_change(now, slot);
            }
        }
        self.shared.events.set_interest(interest);
    }

    /// The next event of a kind that [`RequestAdmission::set_interest`] named.
    pub fn poll_event(&mut self) -> Option<RequestEvent> {
        self.shared.events.pop()
    }

    /// Events that were lost because nothing drained them.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.shared.events.dropped()
    }

    /// When to call [`RequestAdmission::handle_timeout`] next, at the latest; `None` while nothing waits for
    /// time.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.unserved.is_empty() { self.shared.timers.next() } else { Some(self.time.latest()) }
    }

    /// Whether the end of a call of `resource` may change anything that depends on the time. Where it does
    /// not, `release` may be given [`RequestAdmission::latest`] instead of a fresh instant, if the call
    /// succeeded.
    #[inline]
    #[must_use]
    pub fn needs_clock(&self, resource: ResourceId) -> bool {
        let latest = self.latest();
        let uses_time = |provider: &ProviderModel| provider.uses_time(latest) || self.shared.yielding.is_used();
        self.shared.events.is_on()
            || self.poll_timeout().is_some()
            || self.find(resource).is_none_or(|at| uses_time(&self.providers[at.provider as usize]))
    }

    /// The same for the release of a call that ended so.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_release(&self, resource: ResourceId, outcome: Outcome) -> bool {
        let changes_health =
            || self.shared.config.health.is_some() && (outcome.is_counted_failure() || outcome.is_refusal());
        match outcome {
            Outcome::Success => self.needs_clock(resource),
            Outcome::RateLimited => true,
            _ => changes_health() || self.needs_clock(resource),
        }
    }

    /// The same for `acquire` and `try_acquire`: also true if the request has a timeout, which begins now.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_admit(&self, request: &Request) -> bool {
        let is_timed = request.timeout.or(self.shared.config.default_timeout).is_some();
        is_timed || request.fallback.is_some() || self.needs_clock(request.resource)
    }

    /// The same for `acquire_yielding`: also true if the request may have to wait, because the worker's task
    /// resources are asked for then.
    #[must_use]
    pub fn needs_clock_to_admit_yielding(&self, request: &Request) -> bool {
        let may_wait = |Address { provider, slot }: Address| {
            let provider = &self.providers[provider as usize];
            provider.has_waiters() || provider.blocked(self.latest(), slot as usize, request).is_some()
        };
        self.needs_clock_to_admit(request) || self.find(request.resource).is_none_or(may_wait)
    }

    /// The latest instant that any command was given.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> Instant {
        self.time.latest()
    }

    /// The state of a resource at `now`; `None` for one that this controller never made. Changes nothing.
    /// O(leases).
    #[must_use]
    pub fn snapshot(&self, now: Instant, resource: ResourceId) -> Option<ResourceSnapshot> {
        let now = self.time.peek(now);
        let (owner, entry) = self.entry(resource)?;
        let controller = &entry.controller;
        let leases = || self.shared.ledger.values().filter(|held| held.index as usize == resource.index());
        let blocked_until = controller.blocked_until(now);
        let state = controller.limit_state(now);
        Some(ResourceSnapshot {
            at: now,
            sequence: self.shared.sequence,
            provider: owner.provider.clone(),
            model: owner.model.clone(),
            domain: entry.domain.clone(),
            effective_max: controller.effective_max(),
            current_limit: controller.limit(now),
            in_flight: controller.in_flight(),
            active_leases: leases().count() as u32,
            oldest_lease: leases().filter_map(|held: &CallRecord| held.grant.since()).min(),
            irregular_releases: entry.irregular,
            waiters: entry.waiters,
            suspended: self.shared.yielding.yielded(resource),
            health: owner.health_state(),
            blocked_until,
            cooldown_remaining: blocked_until.map_or(Duration::ZERO, |end| end - now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            consecutive_rate_limits: controller.consecutive_rate_limits(),
            success_streak: state.success_streak,
            last_outcome: entry.last_outcome,
            ramp: state.ramp,
            provider_cap: owner.cap,
            provider_in_flight: owner.in_flight,
            budgets: entry.budgets.snapshot(now),
        })
    }

    /// Returns the figures of a resource that change with each call, as of `now`; `None` for a resource that
    /// this controller never made. O(1).
    #[must_use]
    pub fn stats(&self, now: Instant, resource: ResourceId) -> Option<ResourceStats> {
        let now = self.time.peek(now);
        let (owner, entry) = self.entry(resource)?;
        let controller = &entry.controller;
        let state = controller.limit_state(now);
        Some(ResourceStats {
            health: owner.health_state(),
            undecided: owner.undecided(),
            effective_max: controller.effective_max(),
            limit: controller.limit(now),
            in_flight: controller.in_flight(),
            waiters: entry.waiters,
            suspended: self.shared.yielding.yielded(resource),
            blocked_until: controller.blocked_until(now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            ramp: state.ramp,
        })
    }

    /// When the cooldown of a resource ends that is in force at `now`.
    #[must_use]
    pub fn cooldown_until(&self, now: Instant, resource: ResourceId) -> Option<Instant> {
        self.entry(resource)?.1.controller.blocked_until(self.time.peek(now))
    }

    /// Why a call of `resource` that was requested at `now` would have to wait; `None` if it would not, or if
    /// this controller never made the resource. If [fallbacks](Self::fallbacks) begin with it, of the one
    /// that is called instead.
    #[must_use]
    pub fn pressure(&self, now: Instant, resource: ResourceId) -> Option<RequestPressure> {
        let now = self.time.peek(now);
        let resource = self.fallback_for(now, resource);
        let (owner, entry) = self.entry(resource)?;
        match owner.common_block(now) {
            Some(Block::Outage) => Some(RequestPressure::Outage),
            Some(_) => Some(RequestPressure::CapReached),
            None if entry.controller.blocked_until(now).is_some() => Some(RequestPressure::CoolingDown),
            None if entry.waiters > 0 => Some(RequestPressure::Waiters),
            None if entry.controller.has_room(now) => None,
            None if entry.controller.paced_until(now).is_some() => Some(RequestPressure::Paced),
            None => Some(RequestPressure::LimitReached),
        }
    }

    /// The state of a provider and model at `now`; `None` for one that this controller never registered.
    #[must_use]
    pub fn provider_model(&self, now: Instant, id: ProviderModelId) -> Option<ProviderModelSnapshot> {
        let is_own = id.controller() == self.shared.config.controller;
        let entry = self.providers.get(id.index()).filter(|_| is_own)?;
        let now = self.time.peek(now);
        let is_here = |held: &&CallRecord| self.addresses[held.index as usize].provider as usize == id.index();
        let limits = entry.resources.iter().map(|resource| (resource.domain.clone(), resource.controller.limit(now)));
        Some(ProviderModelSnapshot {
            provider: entry.provider.clone(),
            model: entry.model.clone(),
            static_cap: entry.cap,
            in_flight: entry.in_flight,
            health: entry.health_state(),
            active_leases: self.shared.ledger.values().filter(is_here).count() as u32,
            aliases: entry.aliases.clone(),
            limits: limits.collect(),
        })
    }

    /// The provider and model of a resource; `None` for one that this controller never made.
    #[must_use]
    pub fn owner(&self, resource: ResourceId) -> Option<ProviderModelId> {
        self.entry(resource).map(|(owner, _)| owner.id)
    }

    /// Every resource, in order of first mention.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + use<> {
        let controller = self.shared.config.controller;
        (0..self.addresses.len() as u32).map(move |index| ResourceId::new(controller, index))
    }

    /// The limit settings of a resource that this controller made.
    #[must_use]
    pub fn settings(&self, resource: ResourceId) -> Option<&AimdConfig> {
        self.entry(resource).map(|(_, entry)| entry.controller.config())
    }

    /// What decides the limit of a resource; `None` for an algorithm that does not come with the crate, and
    /// for a resource that this controller never made.
    #[must_use]
    pub fn limit_choice(&self, resource: ResourceId) -> Option<LimitChoice> {
        self.entry(resource)?.1.controller.choice().copied()
    }

    /// Leases that are out.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.shared.ledger.active()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiters.len()
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.shared.ledger.diagnostics()
    }

    /// How often `now` ran backwards and was clamped.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.time.regressions()
    }
}
