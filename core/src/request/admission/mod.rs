//! The state machine that admits requests: the public commands and queries, over the parts of each provider
//! and model.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `mod` | the commands: acquire, cancel, release, timeouts, shutdown |
//! | `register` | the commands that register resources and configure limits, budgets and groups |
//! | `health` | retries, and changes of a provider's health |
//! | `fallback` | requests that use another resource while a provider is not usable |
//! | `groups` | fairness groups by name |
//! | `waiters` | which waiters are served, denied or removed, and their timers |
//! | `yielding` | the commands of workers that return their task resources while they wait |
//! | `query`, `explain` | polling, snapshots and reasons for waiting |
//!
//! A command concerns one provider and model and serves its waiters. It also serves the waiters of every
//! other provider and model at which a timer is due. [`RequestAdmission::handle_timeout`] does only the
//! latter, and [`RequestAdmission::try_acquire`] serves no waiter.

mod explain;
mod fallback;
mod groups;
mod health;
mod query;
mod register;
mod waiters;
mod yielding;

use alloc::vec::Vec;

pub use explain::CallWait;
pub use groups::MAX_UNREGISTERED_TENANTS;

use super::config::{HealthConfig, RequestConfig};
use super::event::{EventScope, RequestEventPayload};
use super::keys::{FallbackId, Request, ResourceId};
use super::provider::{Attempt, EndedCall, HealthChange, NewWaiter, ProviderModel, Resource, TaskSide, reborrow};
use super::result::{AcquireResult, Denial, DenialReason, RequestLease, WaiterId};
use super::shared::Shared;
use super::timers::Timer;
use super::yielding::YieldingWaiter;
use crate::call::Completion;
use crate::error::ConfigError;
use crate::fair_queue::{QueueGroupId, ServiceRecord};
use crate::id::SlotKey;
use crate::lease::{LeaseId, ReleaseResult};
use crate::time::{Duration, Instant, Monotonic};
use groups::Groups;

/// Admits calls under provider caps, adaptive limits and budgets. It does no I/O: the caller passes
/// the time, carries out effects, and arms one timer. See the [module documentation](super).
///
/// Cost: O(1) for an uncontended acquire and release, and O(log groups) for one that waits or serves a
/// waiter. Neither depends on how many requests wait, or on other providers and models.
#[derive(Debug)]
pub struct RequestAdmission {
    time: Monotonic,
    /// The time for which the clock of the host has stopped so far.
    suspended: Duration,
    is_shutdown: bool,
    groups: Groups,
    providers: Vec<ProviderModel>,
    /// The address of each resource, by the resource's index.
    addresses: Vec<Address>,
    /// Providers and models at which a timer was due and whose waiters were not served since then.
    unserved: Vec<u32>,
    shared: Shared,
}

/// The address of a resource: the index of its provider and model, and its slot in that.
#[derive(Clone, Copy, Debug)]
struct Address {
    provider: u32,
    slot: u32,
}

/// A request that passed the checks of [`RequestAdmission::locate`] and may be granted or queued.
#[derive(Clone, Copy)]
struct Located {
    provider: usize,
    slot: usize,
    group: QueueGroupId,
    attempt: Attempt,
    /// The run whose worker makes the request, if it is known.
    run: Option<SlotKey>,
}

impl RequestAdmission {
    /// Creates a request admission without resources.
    ///
    /// # Errors
    ///
    /// A setting is out of range.
    pub fn new(config: RequestConfig) -> Result<Self, ConfigError> {
        config.limit.validate()?;
        config.health.as_ref().map_or(Ok(()), HealthConfig::validate)?;
        Ok(Self {
            time: Monotonic::default(),
            suspended: Duration::ZERO,
            is_shutdown: false,
            groups: Groups::new(config.controller),
            providers: Vec::new(),
            addresses: Vec::new(),
            unserved: Vec::new(),
            shared: Shared::new(config),
        })
    }
}

/// Commands.
impl RequestAdmission {
    /// Grants a call now or returns the reason why it cannot start. It never overtakes a waiter that could be
    /// granted, and serves no waiter.
    pub fn try_acquire(&mut self, now: Instant, request: &Request) -> Result<RequestLease, Denial> {
        let now = self.begin(now);
        let chosen;
        let request = match request.fallback {
            None => request,
            Some(fallback) => {
                chosen = self.choose_fallback(now, request, fallback)?;
                &chosen
            }
        };
        let result = self.locate(now, request).and_then(|at| self.try_grant(now, request, &at));
        if self.shared.events.is_on() {
            self.emit_try(now, request, &result);
        }
        result
    }

    /// Grants a call now, or queues it in its group until it is granted, its deadline passes or it is
    /// cancelled.
    ///
    /// A request that can never be granted, or whose provider is unavailable, is denied at once. A request
    /// whose timeout is zero is granted now or denied, and in
    /// [compatibility](crate::request::RequestConfig::compatibility) mode always denied.
    pub fn acquire(&mut self, now: Instant, request: &Request) -> AcquireResult {
        let now = self.begin(now);
        match request.fallback {
            None => self.acquire_resource(now, request),
            Some(fallback) => self.acquire_with_fallbacks(now, request, fallback),
        }
    }

    /// Chooses the resource of a request with fallbacks, then acquires it.
    #[cold]
    fn acquire_with_fallbacks(&mut self, now: Instant, request: &Request, fallback: FallbackId) -> AcquireResult {
        match self.choose_fallback(now, request, fallback) {
            Ok(chosen) => self.acquire_resource(now, &chosen),
            Err(denial) => self.deny(now, request, denial),
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    fn acquire_resource(&mut self, now: Instant, request: &Request) -> AcquireResult {
        let at = match self.locate(now, request) {
            Ok(at) => at,
            Err(denial) => return self.deny(now, request, denial),
        };
        // In compatibility mode, a timeout of zero is denied even if there is capacity.
        let is_denied = self.shared.config.compatibility && request.timeout == Some(Duration::ZERO);
        let provider = &mut self.providers[at.provider];
        if !is_denied && let Some(lease) = provider.grant_directly(now, at.slot, at.group, request, &mut self.shared) {
            return AcquireResult::Granted(lease);
        }
        self.wait(now, request, &at)
    }

    /// Queues a request. A request whose timeout is zero is granted now or denied.
    #[inline(never)]
    fn wait(&mut self, now: Instant, request: &Request, at: &Located) -> AcquireResult {
        self.expire(now);
        if self.shared.config.compatibility && self.timeout(request) == Some(Duration::ZERO) {
            let payload = RequestEventPayload::WaitTimeout { waiter: None, waited: Duration::ZERO };
            self.shared.emit(now, request.resource, payload);
            self.serve_unserved(now, None);
            return self.timed_out(now, at);
        }
        self.enqueue(now, request, at, None, None)
    }

    /// Returns how long a request may wait. `None` if it waits without a timeout.
    #[inline]
    #[must_use]
    pub fn timeout(&self, request: &Request) -> Option<Duration> {
        request.timeout.or(self.shared.config.default_timeout)
    }

    /// Returns when a request that begins to wait at `now` is denied. `None` if it waits without a timeout.
    #[inline]
    pub(crate) fn deadline(&self, now: Instant, request: &Request) -> Option<Instant> {
        self.timeout(request).map(|span| now + span)
    }

    /// Queues a request and serves the waiters that can be granted now. Denies it at once if its provider is
    /// unavailable.
    #[inline]
    fn enqueue(
        &mut self,
        now: Instant,
        request: &Request,
        at: &Located,
        yielding: Option<YieldingWaiter>,
        mut tasks: TaskSide<'_>,
    ) -> AcquireResult {
        let provider = &self.providers[at.provider];
        if provider.is_unavailable(now) {
            let denial = Denial { reason: DenialReason::Unavailable, changes_at: provider.opens_at() };
            return self.deny(now, request, denial);
        }
        let deadline = self.deadline(now, request);
        let Located { slot, group, attempt, run, .. } = *at;
        let new_waiter = NewWaiter { slot, group, attempt, run, yielding, deadline };
        let key = self.providers[at.provider].enqueue(now, request, &new_waiter, &mut self.shared);
        let granted = self.serve(now, at.provider, Some(key), reborrow(&mut tasks));
        self.serve_unserved(now, tasks);
        if let Some(lease) = granted {
            return AcquireResult::Granted(lease);
        }
        self.move_fallback_waiters(now);
        self.finish_enqueue(now, at, key, deadline)
    }

    /// Returns the result for a request that was queued and not granted. Denies it if its deadline is now.
    #[inline]
    fn finish_enqueue(&mut self, now: Instant, at: &Located, key: SlotKey, deadline: Option<Instant>) -> AcquireResult {
        let id = self.shared.waiter_id(key);
        if deadline == Some(now) {
            self.remove(now, key, DenialReason::QueueTimeout);
            self.arm_wake(now, at.provider);
            self.trim();
            return self.timed_out(now, at);
        }
        if let Some(end) = deadline {
            self.arm(end, Timer::Deadline(key));
        }
        AcquireResult::Waiting(id)
    }

    /// Cancels a waiter. Returns whether it was still waiting.
    ///
    /// If it was not, its [`RequestEffect`](super::RequestEffect) was polled already or is pending. The owner
    /// must release a lease that was granted.
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId) -> bool {
        let now = self.begin(now);
        if waiter.controller != self.shared.config.controller {
            return false;
        }
        let Some(removed) = self.remove(now, waiter.key(), DenialReason::Cancelled) else { return false };
        self.expire(now);
        self.serve(now, self.address(removed.resource).provider as usize, None, None);
        self.serve_unserved(now, None);
        true
    }

    /// Ends a call and releases its lease. It never panics. A lease that is not active only changes the
    /// counts of [`Self::release_diagnostics`].
    #[expect(clippy::needless_pass_by_value, reason = "a release consumes the lease")]
    pub fn release(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> ReleaseResult {
        match self.end_call(now, lease.id, done) {
            Ok(_) => ReleaseResult::Released,
            Err(result) => result,
        }
    }

    /// Ends a call. Returns the index of its provider and model, and whether [`ProviderModel::last_end`]
    /// describes this call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    fn end_call(&mut self, now: Instant, lease: LeaseId, done: &Completion) -> Result<(usize, bool), ReleaseResult> {
        let now = self.begin(now);
        let held = match self.shared.ledger.release(lease) {
            Ok(held) => held,
            Err(result) => return Err(self.record_irregular(now, lease, result)),
        };
        let Address { provider: at, slot } = self.addresses[held.index as usize];
        let (at, slot) = (at as usize, slot as usize);
        let provider = &mut self.providers[at];
        let emits_events = self.shared.events.is_on();
        let before = if emits_events { Some(provider.before_outcome(now, slot, &mut self.shared)) } else { None };
        let has_call_end = provider.end(now, slot, &held, done);
        if !self.shared.config.compatibility {
            provider.settle_service(slot, &held, done.outcome);
        }
        if let Some(before) = before {
            let change = if has_call_end { provider.last_end().change } else { HealthChange::None };
            let ended = EndedCall { held, lease, done: *done, before, change };
            provider.emit_outcome(now, slot, &ended, &mut self.shared);
        }
        let mut provider = provider;
        if has_call_end {
            self.apply_last_end(now, at);
            provider = &mut self.providers[at];
        }
        // Without waiters, every blocked set is empty and no wake-up is armed.
        if provider.has_waiters() {
            provider.unblock_all();
            self.expire(now);
            self.serve(now, at, None, None);
            self.serve_unserved(now, None);
        }
        Ok((at, has_call_end))
    }

    #[cold]
    fn record_irregular(&mut self, now: Instant, lease: LeaseId, result: ReleaseResult) -> ReleaseResult {
        // The index in a lease of another machine identifies no resource of this one.
        let is_own = result != ReleaseResult::WrongController;
        if let Some(Address { provider, slot }) = self.addresses.get(lease.item as usize).filter(|_| is_own).copied() {
            self.providers[provider as usize].resources[slot as usize].irregular.count(result);
        }
        let payload = RequestEventPayload::ReleaseDiagnostic { lease, result };
        self.shared.events.push(now, EventScope::Controller, payload);
        result
    }

    /// Does what is due by `now`: denies waiters whose deadline passed, and serves waiters after cooldowns,
    /// ramp steps, budget refills and pauses of an outage. Extra calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.begin(now);
        self.expire(now);
        self.serve_unserved(now, None);
        self.trim();
    }

    /// Denies every waiter and every later request. Active leases stay valid until they are released.
    pub fn shutdown(&mut self, now: Instant) {
        let now = self.begin(now);
        self.is_shutdown = true;
        let waiting: Vec<SlotKey> = self.shared.waiters.iter().map(|(key, _)| key).collect();
        for key in waiting {
            self.deny_waiter(now, key, DenialReason::Shutdown);
        }
        self.unserved.clear();
        self.trim();
    }
}

/// Shared steps of the commands.
impl RequestAdmission {
    #[inline]
    fn begin(&mut self, now: Instant) -> Instant {
        self.shared.sequence += 1;
        self.time.observe(now)
    }

    #[inline]
    fn address(&self, resource: ResourceId) -> Address {
        self.addresses[resource.index()]
    }

    /// Returns the address of a resource, or `None` if this machine did not create it.
    fn find(&self, resource: ResourceId) -> Option<Address> {
        let is_own = resource.controller() == self.shared.config.controller;
        self.addresses.get(resource.index()).filter(|_| is_own).copied()
    }

    fn entry(&self, resource: ResourceId) -> Option<(&ProviderModel, &Resource)> {
        let Address { provider, slot } = self.find(resource)?;
        let provider = &self.providers[provider as usize];
        Some((provider, &provider.resources[slot as usize]))
    }

    /// Finds the resource and the group of a request. Denies a request that can never be granted, and
    /// reports the attempt to the limit algorithm.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    fn locate(&mut self, now: Instant, request: &Request) -> Result<Located, Denial> {
        let deny = |reason| Err(Denial { reason, changes_at: None });
        let Some(Address { provider, slot }) = self.find(request.resource) else {
            return deny(DenialReason::Unregistered);
        };
        let named = match request.group {
            None => None,
            Some(group) => match self.groups.get(group) {
                None => return deny(DenialReason::Unregistered),
                named => named,
            },
        };
        if self.is_shutdown {
            return deny(DenialReason::Shutdown);
        }
        let (provider, slot) = (provider as usize, slot as usize);
        let entry = &mut self.providers[provider];
        entry.on_attempt(now, slot, &mut self.shared);
        Ok(Located { provider, slot, group: entry.group(slot, named), attempt: Attempt::default(), run: None })
    }

    #[cold]
    fn deny(&mut self, now: Instant, request: &Request, denial: Denial) -> AcquireResult {
        self.shared.emit_denied(now, request.resource, denial);
        AcquireResult::Denied(denial)
    }

    #[inline]
    fn try_grant(&mut self, now: Instant, request: &Request, at: &Located) -> Result<RequestLease, Denial> {
        self.expire(now);
        self.prune_unserved(now);
        let provider = &mut self.providers[at.provider];
        if provider.has_eligible_waiter(now, &mut self.shared) {
            return Err(provider.overtaking_denial(now, at.slot));
        }
        if let Some(denial) = provider.deny_try(now, at.slot, request) {
            return Err(denial);
        }
        if provider.has_budget_waiters(at.slot) {
            return Err(provider.overtaking_denial(now, at.slot));
        }
        Ok(provider.grant(now, at.slot, ServiceRecord::NONE, request.estimate, Attempt::default(), &mut self.shared))
    }

    #[cold]
    fn emit_try(&mut self, now: Instant, request: &Request, result: &Result<RequestLease, Denial>) {
        match (self.find(request.resource), result) {
            (Some(Address { provider, slot }), _) => {
                self.providers[provider as usize].emit_try(now, slot as usize, result, &mut self.shared);
            }
            (None, Err(denial)) => drop(self.deny(now, request, *denial)),
            (None, Ok(_)) => {}
        }
    }

    /// Returns the denial of a request whose timeout is zero.
    fn timed_out(&self, now: Instant, at: &Located) -> AcquireResult {
        let changes_at = self.providers[at.provider].next_change(now, at.slot);
        AcquireResult::Denied(Denial { reason: DenialReason::QueueTimeout, changes_at })
    }
}
