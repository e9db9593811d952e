//! The outputs of request admission: effects, events, the next timeout and its state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Address, RequestAdmission};
use crate::budget::BudgetConfig;
use crate::call::Outcome;
use crate::fair_queue::QueueGroupId;
use crate::lease::ReleaseDiagnostics;
use crate::limit::{LimitChoice, LimitConfig};
use crate::request::event::{RequestEvent, RequestInterest};
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::pressure::RequestPressure;
use crate::request::provider::{Block, CallRecord, ProviderModel};
use crate::request::result::RequestEffect;
use crate::request::snapshot::{ProviderModelSnapshot, ResourceSnapshot, ResourceStats};
use crate::share;
use crate::time::{Duration, Instant};

/// Polling.
impl RequestAdmission {
    /// Returns the next effect to carry out. Poll until `None` after every command.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<RequestEffect> {
        self.shared.effects.pop_front()
    }

    /// Returns the number of effects that were not polled yet.
    #[must_use]
    pub fn pending_effects(&self) -> usize {
        self.shared.effects.len()
    }

    /// Enables these kinds of events from now on, and disables all others. It changes no decision and does
    /// not advance time.
    pub fn set_interest(&mut self, now: Instant, interest: RequestInterest) {
        let now = self.time.peek(now);
        for provider in &mut self.providers {
            for slot in 0..provider.resources.len() {
                provider.take_limit_change(now, slot);
            }
        }
        self.shared.events.set_interest(interest);
    }

    /// Returns the next event of the kinds that [`RequestAdmission::set_interest`] enabled.
    pub fn poll_event(&mut self) -> Option<RequestEvent> {
        self.shared.events.pop()
    }

    /// Returns the number of events that were dropped because they were not polled.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.shared.events.dropped()
    }

    /// Returns the next instant at which [`RequestAdmission::handle_timeout`] must be called, or `None` if
    /// time alone changes nothing. Calling it earlier is harmless.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.unserved.is_empty() { self.shared.timers.next() } else { Some(self.time.latest()) }
    }

    /// Returns whether the end of a successful call of `resource` may change anything that depends on the
    /// time. If not, the host may pass [`RequestAdmission::latest`] to `release` instead of reading the
    /// clock.
    #[inline]
    #[must_use]
    pub fn needs_clock(&self, resource: ResourceId) -> bool {
        let latest = self.latest();
        let uses_time = |provider: &ProviderModel| provider.uses_time(latest) || self.shared.yielding.is_used();
        self.shared.events.is_on()
            || self.poll_timeout().is_some()
            || self.find(resource).is_none_or(|at| uses_time(&self.providers[at.provider as usize]))
    }

    /// Returns whether `release` needs a fresh instant for a call of `resource` that ended with `outcome`:
    /// [`RequestAdmission::needs_clock`] for any outcome.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_release(&self, resource: ResourceId, outcome: Outcome) -> bool {
        let changes_health =
            || self.shared.config.health.is_some() && (outcome.is_counted_failure() || outcome.is_rejection());
        match outcome {
            Outcome::Success => self.needs_clock(resource),
            Outcome::RateLimited => true,
            _ => changes_health() || self.needs_clock(resource),
        }
    }

    /// Returns whether `acquire` and `try_acquire` need a fresh instant for `request`, as
    /// [`RequestAdmission::needs_clock`] does for a release. A request with a timeout always needs one,
    /// because the timeout starts now; a request with fallbacks does, too.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_admit(&self, request: &Request) -> bool {
        let is_timed = request.timeout.or(self.shared.config.default_timeout).is_some();
        is_timed || request.fallback.is_some() || self.needs_clock(request.resource)
    }

    /// Returns whether `acquire_yielding` needs a fresh instant for `request`. In addition to
    /// [`RequestAdmission::needs_clock_to_admit`], a request that may have to wait needs one, because the
    /// worker's task resources are used then.
    #[must_use]
    pub fn needs_clock_to_admit_yielding(&self, request: &Request) -> bool {
        let may_wait = |Address { provider, slot }: Address| {
            let provider = &self.providers[provider as usize];
            provider.has_waiters() || provider.blocked(self.latest(), slot as usize, request).is_some()
        };
        self.needs_clock_to_admit(request) || self.find(request.resource).is_none_or(may_wait)
    }

    /// Returns the latest instant that was passed to any command.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> Instant {
        self.time.latest()
    }

    /// Returns the limit of a resource as its algorithm states it at `now`, which may be 0, or `None` if this
    /// machine did not create the resource.
    pub(crate) fn room(&self, now: Instant, resource: ResourceId) -> Option<u32> {
        self.entry(resource).map(|(_, entry)| entry.controller.room(now))
    }

    /// Returns the time for which the clock of the host has stopped so far: see
    /// [`RequestAdmission::set_suspended`].
    #[inline]
    #[must_use]
    pub fn suspended(&self) -> Duration {
        self.suspended
    }

    /// Returns the state of a resource at `now`, or `None` if this machine did not create it. Changes
    /// nothing. O(leases).
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
            waiters: entry.waiters(),
            yielded: self.shared.yielding.yielded(resource),
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

    /// Returns the figures of a resource that change with each call, at `now`, or `None` if this machine
    /// did not create it. O(1).
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
            waiters: entry.waiters(),
            yielded: self.shared.yielding.yielded(resource),
            blocked_until: controller.blocked_until(now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            ramp: state.ramp,
        })
    }

    /// Returns whether a call of a resource that was granted may be sent at `now`. It is `false` only if its
    /// limit is a [share](crate::share) whose lease has lapsed since the grant. O(1).
    #[must_use]
    pub fn may_send(&self, now: Instant, resource: ResourceId) -> bool {
        self.entry(resource).is_none_or(|(_, entry)| entry.controller.may_send(self.time.peek(now)))
    }

    /// Returns the settings of the budgets of a resource, without those from response headers. It is empty if
    /// this machine did not create the resource.
    #[must_use]
    pub fn budgets(&self, resource: ResourceId) -> Vec<BudgetConfig> {
        self.entry(resource).map_or(Vec::new(), |(_, entry)| entry.budgets.configs().collect())
    }

    /// Returns the demand for a resource by fairness group: the calls in flight or waiting, for
    /// [`Member::set_demand`](crate::share::Member::set_demand). A group without demand is left out.
    ///
    /// Requests that name no group, and health calls, count as one group. It is empty if this machine did not
    /// create the resource. O(leases + groups).
    #[must_use]
    pub fn demand(&self, resource: ResourceId) -> Vec<share::GroupDemand> {
        let Some(Address { provider, slot }) = self.find(resource) else { return Vec::new() };
        let (owner, slot) = (&self.providers[provider as usize], slot as usize);
        let mut in_flight: BTreeMap<Option<usize>, u32> = BTreeMap::new();
        for held in self.shared.ledger.values().filter(|held| held.index as usize == resource.index()) {
            *in_flight.entry(held.service.group_index()).or_default() += 1;
        }
        let demand_of = |group: QueueGroupId| {
            in_flight.get(&Some(group.index())).copied().unwrap_or(0) + owner.waiting(group, slot)
        };
        let own = owner.own_group(slot);
        let health_calls = in_flight.get(&None).copied().unwrap_or(0);
        let unnamed = share::GroupDemand::new("", 1.0, demand_of(own) + health_calls);
        let named = self.groups.iter().filter_map(|(index, name, weight)| {
            let group = owner.known_group(index)?;
            Some(share::GroupDemand::new(name, weight, demand_of(group)))
        });
        named.chain([unnamed]).filter(|group| group.demand > 0).collect()
    }

    /// Returns the end of the cooldown of a resource that is in force at `now`.
    #[must_use]
    pub fn cooldown_until(&self, now: Instant, resource: ResourceId) -> Option<Instant> {
        self.entry(resource)?.1.controller.blocked_until(self.time.peek(now))
    }

    /// Returns why a call of `resource` that is requested at `now` would have to wait. Returns `None` if it
    /// would not wait, or if this machine did not create the resource. If a list of
    /// [fallbacks](Self::fallbacks) begins with `resource`, the result is that of the resource that is used
    /// instead.
    ///
    /// Budgets and stated rates are not considered, because the usage of the call is not known. Once one call
    /// waits for a budget, the result is [`RequestPressure::Waiters`]. O(lists of fallbacks).
    #[must_use]
    pub fn pressure(&self, now: Instant, resource: ResourceId) -> Option<RequestPressure> {
        let now = self.time.peek(now);
        let resource = self.fallback_for(now, resource);
        let (owner, entry) = self.entry(resource)?;
        match owner.common_block(now) {
            Some(Block::Outage) => Some(RequestPressure::Outage),
            Some(Block::Paused) => Some(RequestPressure::Paused),
            Some(_) => Some(RequestPressure::CapReached),
            None if entry.controller.blocked_until(now).is_some() => Some(RequestPressure::CoolingDown),
            None if entry.waiters() > 0 => Some(RequestPressure::Waiters),
            None if entry.controller.has_room(now) => None,
            None if entry.controller.paced_until(now).is_some() => Some(RequestPressure::Paced),
            None => Some(RequestPressure::LimitReached),
        }
    }

    /// Returns the state of a provider and model at `now`, or `None` if this machine did not register it.
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

    /// Returns the provider and model of a resource, or `None` if this machine did not create it.
    #[must_use]
    pub fn owner(&self, resource: ResourceId) -> Option<ProviderModelId> {
        self.entry(resource).map(|(owner, _)| owner.id)
    }

    /// Returns the ids of all resources, in order of registration.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + use<> {
        let controller = self.shared.config.controller;
        (0..self.addresses.len() as u32).map(move |index| ResourceId::new(controller, index))
    }

    /// Returns the limit settings of a resource, or `None` if this machine did not create it.
    #[must_use]
    pub fn settings(&self, resource: ResourceId) -> Option<&LimitConfig> {
        self.entry(resource).map(|(_, entry)| entry.controller.config())
    }

    /// Returns the choice of limit algorithm of a resource. Returns `None` for a custom algorithm, and for a
    /// resource that this machine did not create.
    #[must_use]
    pub fn limit_choice(&self, resource: ResourceId) -> Option<LimitChoice> {
        self.entry(resource)?.1.controller.choice().copied()
    }

    /// Returns the number of active leases.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.shared.ledger.active()
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiters.len()
    }

    /// Returns the counts of irregular releases: releases of a lease that was not active.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.shared.ledger.diagnostics()
    }

    /// Returns how often `now` went backwards and was replaced by the latest instant. See
    /// [`Clock`](crate::time::Clock#clocks-that-can-be-set).
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.time.regressions()
    }
}
