//! One provider and model: its cap, its resources, its wait queue and its health.
//!
//! ```text
//! ProviderModel --- cap over all domains
//!      +-- Resource (one per domain): Controller (limit, cooldown, grants), budgets
//!      +-- WaitQueue: one fair queue, with a FIFO for each group and resource
//!      +-- Health: whether the provider responds
//! ```
//!
//! Providers and models are independent: a cooldown, a full cap or an outage of one delays no waiter of
//! another, even if they share groups. State that all of them need, such as leases and timers, is in
//! [`Shared`].

mod emit;
pub(super) mod health;
pub(super) mod resource;
mod serve;
mod wait_queue;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(super) use emit::EndedCall;
pub(super) use health::{Attempt, CallEnd, HealthChange, RetryStatus};
pub(super) use resource::{Block, CallRecord, Resource};
pub(super) use serve::NewWaiter;

use super::config::HealthConfig;
use super::keys::{Domain, ProviderModelId, Request, ResourceId};
use super::result::{Denial, DenialReason, Retry};
use super::shared::Shared;
use super::snapshot::{HealthState, UnavailableCause};
use super::waiter::Waiter;
use crate::budget::Usage;
use crate::call::{Completion, Outcome};
use crate::fair_queue::QueueGroupId;
use crate::id::SlotKey;
use crate::limit::LimitConfig;
use crate::time::{Duration, Instant};
use crate::yielding::TaskResources;
use health::Health;
use wait_queue::WaitQueue;

/// How many turns a group may be ahead of its share of refunds, beyond one refund for each call that was in
/// flight. About this many calls are rate limited in a row when a rate admits one call in sixteen.
const REFUNDS_AHEAD: f64 = 8.0;

/// The task resources of the caller, if it has them.
pub(super) type TaskSide<'a> = Option<&'a mut dyn TaskResources>;

/// Reborrows the task resources for one function call.
pub(super) fn reborrow<'a>(tasks: &'a mut TaskSide<'_>) -> TaskSide<'a> {
    match tasks {
        Some(tasks) => Some(&mut **tasks),
        None => None,
    }
}

#[derive(Debug)]
pub(super) struct ProviderModel {
    pub(super) id: ProviderModelId,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) aliases: Vec<(String, u32)>,
    /// The lowest cap of all aliases.
    pub(super) cap: u32,
    /// The cap in force: 0 while it is paused.
    open_cap: u32,
    is_paused: bool,
    /// The calls in flight over all domains.
    pub(super) in_flight: u32,
    /// `None` if health is not tracked: the provider is always healthy.
    health: Option<Box<Health>>,
    pub(super) resources: Vec<Resource>,
    /// The instant of the wake-up that is armed for its waiters, if there is one.
    pub(super) wake_at: Option<Instant>,
    /// The slot of the resource for which the host makes health calls, if it does.
    pub(super) health_calls: Option<usize>,
    /// The waiters whose last failure is undecided.
    undecided: Vec<SlotKey>,
    queue: WaitQueue,
}

/// Registration.
impl ProviderModel {
    pub(super) fn new(
        id: ProviderModelId,
        provider: &str,
        model: &str,
        cap: u32,
        health: Option<HealthConfig>,
    ) -> Self {
        Self {
            id,
            provider: provider.to_string(),
            model: model.to_string(),
            aliases: Vec::new(),
            cap,
            open_cap: cap,
            is_paused: false,
            in_flight: 0,
            health: health.map(|config| Box::new(Health::new(config, id, [provider, model]))),
            resources: Vec::new(),
            wake_at: None,
            health_calls: None,
            undecided: Vec::new(),
            queue: WaitQueue::default(),
        }
    }

    /// Sets the cap of one alias. The lowest cap of all aliases applies.
    pub(super) fn set_alias(&mut self, alias: &str, cap: u32) {
        match self.aliases.iter_mut().find(|(name, _)| name == alias) {
            Some((_, known)) => *known = cap,
            None => self.aliases.push((alias.to_string(), cap)),
        }
        self.cap = self.aliases.iter().map(|(_, cap)| *cap).min().unwrap_or(cap);
        self.set_paused(self.is_paused);
    }

    /// Pauses or resumes grants. The waiters of a resumed one have to be unblocked and served.
    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.open_cap = if is_paused { 0 } else { self.cap };
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Applies the cap to every resource. With `lifts`, a limit that was at its old maximum and was never cut
    /// rises with the maximum.
    pub(super) fn apply_cap(&mut self, now: Instant, lifts: bool, shared: &mut Shared) {
        for slot in 0..self.resources.len() {
            self.emit_ramp_steps(now, slot, shared);
            self.resources[slot].controller.set_cap(now, self.cap, lifts);
            self.emit_limit(now, slot, shared);
        }
        self.unblock_all();
    }

    pub(super) fn find(&self, domain: &Domain) -> Option<ResourceId> {
        self.resources.iter().find(|resource| resource.domain == *domain).map(|resource| resource.id)
    }

    /// Adds a resource and returns its slot.
    pub(super) fn add_resource(&mut self, id: ResourceId, domain: Domain, config: LimitConfig) -> u32 {
        let placement = self.queue.add_resource();
        self.resources.push(Resource::new(id, domain, placement, config, self.cap));
        self.resources.len() as u32 - 1
    }
}

/// Groups.
impl ProviderModel {
    /// Returns the queue group of a request: that of its fairness group, or the resource's own group.
    #[inline]
    pub(super) fn group(&mut self, slot: usize, named: Option<(u32, f64)>) -> QueueGroupId {
        match named {
            None => self.resources[slot].placement.own_group,
            Some((index, weight)) => self.queue.group(index, weight),
        }
    }

    /// Returns the queue group of a resource's own group.
    pub(super) fn own_group(&self, slot: usize) -> QueueGroupId {
        self.resources[slot].placement.own_group
    }

    /// Returns the queue group of a fairness group, if a request of it was made here.
    pub(super) fn known_group(&self, index: u32) -> Option<QueueGroupId> {
        self.queue.known_group(index)
    }

    /// Returns the number of waiters of a group for the resource in `slot`. O(FIFOs of the group).
    pub(super) fn waiting(&self, group: QueueGroupId, slot: usize) -> u32 {
        self.queue.waiting(group, slot as u32)
    }

    /// Applies a changed weight of a fairness group.
    pub(super) fn set_group_weight(&mut self, index: u32, weight: f64) {
        self.queue.set_weight(index, weight);
    }

    /// Sets the weight of a resource's own group. The weight must be valid.
    pub(super) fn set_own_weight(&mut self, slot: usize, weight: f64) {
        let _ = self.queue.fair.set_weight(self.resources[slot].placement.own_group, weight);
    }
}

/// Capacity.
impl ProviderModel {
    /// Returns what blocks the calls of all domains at `now`.
    #[inline]
    pub(super) fn common_block(&self, now: Instant) -> Option<Block> {
        if self.is_closed(now) {
            return Some(Block::Outage);
        }
        (self.in_flight >= self.open_cap).then_some(if self.is_paused { Block::Paused } else { Block::Cap })
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.queue.fair.is_empty()
    }

    /// Returns why a request is blocked at `now`, apart from waiters.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(super) fn blocked(&self, now: Instant, slot: usize, request: &Request) -> Option<Denial> {
        let resource = &self.resources[slot];
        let block = resource.block(now, self.common_block(now), request.estimate)?;
        Some(self.denial(now, slot, block))
    }

    /// Returns why a request that does not wait is denied at `now`, apart from waiters.
    #[inline]
    pub(super) fn deny_try(&mut self, now: Instant, slot: usize, request: &Request) -> Option<Denial> {
        let common = self.common_block(now);
        let block = self.resources[slot].block(now, common, request.estimate)?;
        self.resources[slot].note_denied(now, block, request.estimate);
        Some(self.denial(now, slot, block))
    }

    /// Returns the denial of a call that `block` blocks.
    #[cold]
    pub(super) fn denial(&self, now: Instant, slot: usize, block: Block) -> Denial {
        let changes_at = match block {
            Block::Outage => self.opens_at(),
            Block::Paced(at) | Block::Budget(at) => Some(at).filter(|at| *at < Instant::MAX),
            Block::Paused => None,
            Block::Cooldown | Block::Cap | Block::Limit => self.next_change(now, slot),
        };
        let reason = if self.is_unavailable(now) { DenialReason::Unavailable } else { block.reason() };
        Denial { reason, changes_at }
    }

    /// Returns when the capacity of a resource next changes by time alone, if it is known.
    pub(super) fn next_change(&self, now: Instant, slot: usize) -> Option<Instant> {
        if self.is_closed(now) { self.opens_at() } else { self.resources[slot].next_change(now) }
    }

    /// Returns whether serving waiters, a grant or the end of a call may depend on the time, at `latest` or
    /// later.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        !self.is_healthy()
            || !self.undecided.is_empty()
            || self.resources.iter().any(|resource| resource.uses_time(latest))
    }

    /// Returns when the waiters must be checked again because of the time alone.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        if !self.has_waiters() {
            return None;
        }
        let health = self.health.as_deref();
        let patience = health.and_then(|health| health.patience_ends(self.in_flight));
        if self.is_closed(now) {
            return self.opens_at().into_iter().chain(patience).min();
        }
        let health = health.filter(|_| !self.undecided.is_empty());
        let undecided = health.and_then(|health| health.undecided_open_at(self.in_flight));
        let waited = self.resources.iter().filter(|resource| resource.waiters() > 0);
        waited
            .filter_map(|resource| resource.next_change(now))
            .chain(undecided.filter(|at| *at > now))
            .chain(patience)
            .min()
    }

    /// Unblocks the waiters of all resources, so that they are offered again.
    pub(super) fn unblock_all(&mut self) {
        for resource in &self.resources {
            self.queue.unblock(resource.placement.blocked_set);
        }
        self.unblock_undecided();
    }

    /// Unblocks the undecided waiters of all resources.
    fn unblock_undecided(&mut self) {
        if !self.undecided.is_empty() {
            for resource in &self.resources {
                self.queue.unblock(resource.placement.undecided.1);
            }
        }
    }

    /// Unblocks the waiters of one resource.
    pub(super) fn unblock(&mut self, slot: usize) {
        self.queue.unblock(self.resources[slot].placement.blocked_set);
    }

    /// Unblocks waiters that were blocked because their workers' task resources were not free.
    pub(super) fn unblock_yielded(&mut self, set: crate::fair_queue::BlockedSetId) {
        self.queue.unblock(set);
    }
}

/// Calls.
impl ProviderModel {
    /// Records an attempt: a request that is granted, queued or denied next.
    #[inline]
    pub(super) fn on_attempt(&mut self, now: Instant, slot: usize, shared: &mut Shared) {
        self.resources[slot].controller.on_attempt(now);
        self.emit_ramp_steps(now, slot, shared);
    }

    /// Handles a due wake-up: unblocks the waiters, because some may be eligible now.
    pub(super) fn wake(&mut self, now: Instant, shared: &mut Shared) {
        for slot in 0..self.resources.len() {
            if self.resources[slot].waiters() > 0 {
                self.resources[slot].controller.on_time(now);
                self.emit_ramp_steps(now, slot, shared);
                self.unblock(slot);
            }
        }
        self.unblock_undecided();
    }

    /// Ends a call. Returns whether [`Self::last_end`] describes this call; otherwise its end had no effect
    /// on health.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "it runs once for each call that ends, and would copy its arguments otherwise"
    )]
    pub(super) fn end(&mut self, now: Instant, slot: usize, held: &CallRecord, done: &Completion) -> bool {
        let has_call_end = match &mut self.health {
            None => false,
            Some(health) => health.end(now, held.health_at_grant, done.outcome, done.retry_after),
        };
        let is_hidden = has_call_end && self.last_end().is_hidden;
        self.resources[slot].end(now, held, done, is_hidden);
        self.in_flight -= 1;
        if has_call_end && let HealthChange::Recovered { .. } = self.last_end().change {
            self.begin_recovery(now);
        }
        has_call_end
    }

    /// Settles the fair-queue turn of a call that has ended. A rate-limited call gives its turn back to its
    /// group, so that groups share the calls that are answered and not the calls that are sent.
    #[inline]
    pub(super) fn settle_service(&mut self, slot: usize, held: &CallRecord, outcome: Outcome) {
        match outcome {
            Outcome::RateLimited => self.refund(slot, held),
            Outcome::Success => self.queue.fair.answered(held.service, 1.0),
            _ => {}
        }
    }

    /// Refunds the turn of a rate-limited call. A group is never ahead of its share of all refunds by more
    /// than the calls in flight plus [`REFUNDS_AHEAD`]. The larger of the calls in flight at the grant and at
    /// the end counts: the first call of a cascade starts while few calls are in flight, and mostly ends
    /// while many are.
    #[cold]
    fn refund(&mut self, slot: usize, held: &CallRecord) {
        let concurrent = held.grant.in_flight().max(self.resources[slot].controller.in_flight() + 1);
        self.queue.fair.refund(held.service, 1.0, f64::from(concurrent) + REFUNDS_AHEAD);
    }

    /// Returns the result of the last call for which [`Self::end`] returned `true`.
    #[cold]
    pub(super) fn last_end(&self) -> CallEnd {
        self.health.as_deref().map_or(CallEnd::PLAIN, Health::last_end)
    }

    #[cold]
    fn begin_recovery(&mut self, now: Instant) {
        let span = self.health.as_deref().map_or(Duration::ZERO, Health::recovery);
        for resource in &mut self.resources {
            resource.controller.begin_recovery(now, span);
        }
    }
}

/// Health.
impl ProviderModel {
    #[inline]
    pub(super) fn is_healthy(&self) -> bool {
        self.health.as_deref().is_none_or(Health::is_healthy)
    }

    #[inline]
    pub(super) fn is_unavailable(&self, now: Instant) -> bool {
        self.health.as_deref().is_some_and(|health| health.is_unavailable(now))
    }

    /// Returns whether requests with fallbacks use this provider and model at `now`.
    pub(super) fn serves(&self, now: Instant) -> bool {
        self.health.as_deref().is_none_or(|health| health.serves(now))
    }

    /// Returns when requests with fallbacks use another resource, if it responds only with rate limits until
    /// then.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.health.as_deref().and_then(Health::gives_up_at)
    }

    /// Returns whether one request with fallbacks may use this provider and model at `now`: it
    /// [serves](Self::serves) all of them, or this request can be its trial call. `waits_here` is whether the
    /// request waits here already, and `is_repeated` whether its call was made before.
    pub(super) fn is_usable(&self, now: Instant, slot: usize, waits_here: bool, is_repeated: bool) -> bool {
        let may_be_trial = || self.may_be_trial(now, waits_here, is_repeated);
        self.serves(now) || may_be_trial() && self.trial_block(now, slot).is_none()
    }

    /// Returns whether a request can be the trial call of this provider and model, if nothing blocks it.
    fn may_be_trial(&self, now: Instant, waits_here: bool, is_repeated: bool) -> bool {
        let Some(health) = self.health.as_deref() else { return false };
        let has_priority = waits_here || !self.has_waiters();
        let is_trial_due = !is_repeated && health.next_trial_at().is_none_or(|at| at <= now);
        has_priority && (health.is_probed() || self.in_flight == 0 && is_trial_due)
    }

    fn trial_block(&self, now: Instant, slot: usize) -> Option<Block> {
        self.resources[slot].block(now, self.common_block(now), Usage::default())
    }

    /// Records that a request with fallbacks uses another resource than that in `slot`, which is earlier in
    /// its list. If only a shared budget keeps it from being the trial call, the next reports ask for an
    /// amount.
    pub(super) fn note_passed_over(&mut self, now: Instant, slot: usize, is_repeated: bool) {
        if self.may_be_trial(now, false, is_repeated)
            && let Some(block) = self.trial_block(now, slot)
        {
            self.resources[slot].note_denied(now, block, Usage::default());
        }
    }

    /// Returns when requests with fallbacks may use this provider and model, which does not serve them at
    /// `now`, if it is known.
    pub(super) fn next_trial(&self, now: Instant, slot: usize) -> Option<Instant> {
        let spaced = self.health.as_deref().and_then(Health::next_trial_at);
        self.next_change(now, slot).into_iter().chain(spaced).max()
    }

    /// Returns whether its health blocks all calls at `now`.
    #[inline]
    fn is_closed(&self, now: Instant) -> bool {
        self.health.as_deref().is_some_and(|health| health.is_closed(now))
    }

    /// Returns when its health allows calls again, or `None` if that does not depend on the time alone.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.health.as_deref().and_then(Health::opens_at)
    }

    /// Returns the health for snapshots.
    pub(super) fn health_state(&self) -> HealthState {
        self.health.as_deref().map_or(HealthState::Healthy, Health::state)
    }

    /// Returns the status of a retry.
    pub(super) fn retry_status(&self, retry: Retry) -> RetryStatus {
        self.health.as_deref().map_or(RetryStatus::RequestAtFault, |health| health.retry_status(retry))
    }

    /// Makes it unavailable, for `pause` if it is given.
    pub(super) fn close(&mut self, now: Instant, cause: UnavailableCause, pause: Option<Duration>) -> HealthChange {
        self.health.as_deref_mut().map_or(HealthChange::None, |health| health.close(now, cause, pause))
    }

    /// Makes it unavailable if its patience has ended.
    pub(super) fn end_patience(&mut self, now: Instant) -> HealthChange {
        let in_flight = self.in_flight;
        self.health.as_deref_mut().map_or(HealthChange::None, |health| health.end_patience(now, in_flight))
    }

    /// Makes it healthy, whatever its state was.
    pub(super) fn reopen(&mut self, now: Instant) -> HealthChange {
        let change = self.health.as_deref_mut().map_or(HealthChange::None, Health::reopen);
        if change != HealthChange::None {
            self.begin_recovery(now);
        }
        change
    }

    /// Returns the number of waiters whose last failure is undecided.
    pub(super) fn undecided(&self) -> u32 {
        self.undecided.len() as u32
    }

    /// Returns the undecided waiters and marks them as decided.
    pub(super) fn take_undecided(&mut self, shared: &mut Shared) -> Vec<SlotKey> {
        self.unblock_undecided();
        let decided = core::mem::take(&mut self.undecided);
        for key in &decided {
            if let Some(waiter) = shared.waiters.get_mut(*key) {
                waiter.is_undecided = false;
            }
        }
        decided
    }

    /// Returns whether the failures of a waiter as a probe are its own, now that the provider is back.
    pub(super) fn is_poison(&self, waiter: &Waiter) -> bool {
        self.health.as_deref().is_some_and(|health| health.is_poison(waiter.failed_probes))
    }
}
