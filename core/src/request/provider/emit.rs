//! The events of one provider and model, in the order in which things happen.

use super::health::Health;
use super::{CallRecord, Change, ProviderModel};
use crate::call::{Completion, Outcome};
use crate::event::Correlation;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::request::answer::{Denial, DenialReason, RequestLease, WaiterId};
use crate::request::event::{EventPlace, RequestEventPayload};
use crate::request::shared::{Shared, Waiter};
use crate::time::{Duration, Instant};

/// The task whose call an event concerns, if it is known.
type TaskCorrelation = Option<Correlation>;

/// The state of a limit before the outcome of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Before {
    limit: u32,
    was_ramping: bool,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Ended {
    pub(in crate::request) held: CallRecord,
    pub(in crate::request) lease: LeaseId,
    pub(in crate::request) done: Completion,
    pub(in crate::request) before: Before,
    pub(in crate::request) change: Change,
}

/// Limits.
impl ProviderModel {
    /// Emits the steps of a ramp since the limit was last emitted.
    #[inline]
    pub(in crate::request) fn emit_ramp_steps(&mut self, now: Instant, slot: usize, shared: &mut Shared) {
        if shared.events.is_on() {
            let (from, to) = self.take_limit_change(now, slot);
            if to > from {
                self.emit(now, slot, RequestEventPayload::RampStep { from, to }, shared);
            }
        }
    }

    /// Emits a limit that a cap or a setting moved.
    pub(in crate::request) fn emit_limit(&mut self, now: Instant, slot: usize, shared: &mut Shared) {
        if shared.events.is_on() {
            let (from, to) = self.take_limit_change(now, slot);
            if to < from {
                self.emit(now, slot, RequestEventPayload::LimitDecreased { from, to }, shared);
            } else if to > from {
                self.emit(now, slot, RequestEventPayload::LimitIncreased { from, to }, shared);
            }
        }
    }

    /// The limit that was emitted last, and the one in force, which counts as emitted from now on.
    #[cold]
    pub(in crate::request) fn take_limit_change(&mut self, now: Instant, slot: usize) -> (u32, u32) {
        let resource = &mut self.resources[slot];
        let to = resource.controller.limit(now);
        (core::mem::replace(&mut resource.last_emitted_limit, to), to)
    }

    fn emit(&self, now: Instant, slot: usize, payload: RequestEventPayload, shared: &mut Shared) {
        shared.emit(now, self.resources[slot].id, payload);
    }

    /// Emits what concerns a call of the task `about`.
    fn emit_for(
        &self,
        now: Instant,
        slot: usize,
        about: TaskCorrelation,
        payload: RequestEventPayload,
        shared: &mut Shared,
    ) {
        shared.events.push_about(now, EventPlace::Resource(self.resources[slot].id), about, payload);
    }
}

/// Waiters.
impl ProviderModel {
    #[cold]
    pub(in crate::request) fn emit_try(
        &self,
        now: Instant,
        slot: usize,
        answer: &Result<RequestLease, Denial>,
        shared: &mut Shared,
    ) {
        match answer {
            Ok(lease) => self.emit_direct(now, slot, lease.id, shared),
            Err(denial) => {
                self.emit(now, slot, RequestEventPayload::WaitStarted { waiter: None }, shared);
                self.emit(now, slot, RequestEventPayload::from(*denial), shared);
            }
        }
    }

    /// Emits an immediate grant.
    #[cold]
    pub(super) fn emit_direct(&self, now: Instant, slot: usize, lease: LeaseId, shared: &mut Shared) {
        let about = shared.correlations.current();
        self.emit_for(now, slot, about, RequestEventPayload::WaitStarted { waiter: None }, shared);
        let completed = RequestEventPayload::WaitCompleted { waiter: None, waited: Duration::ZERO };
        self.emit_for(now, slot, about, completed, shared);
        self.emit_granted(now, slot, about, lease, shared);
    }

    /// Emits that a waiter is about to join the queue.
    #[cold]
    pub(super) fn emit_queued(&self, now: Instant, slot: usize, key: SlotKey, shared: &mut Shared) {
        if !self.has_waiters() {
            self.emit(now, slot, RequestEventPayload::QueueFormed, shared);
        }
        let id = shared.waiter_id(key);
        let about = shared.correlations.queue_asking(id);
        self.emit_for(now, slot, about, RequestEventPayload::WaitStarted { waiter: Some(id) }, shared);
    }

    /// Emits that a waiter has left the queue with a grant.
    #[cold]
    pub(super) fn emit_served(&self, now: Instant, id: WaiterId, left: &Waiter, lease: LeaseId, shared: &mut Shared) {
        let about = shared.correlations.take_waiter(id);
        let completed = RequestEventPayload::WaitCompleted { waiter: Some(id), waited: left.since.elapsed(now) };
        self.emit_for(now, left.slot(), about, completed, shared);
        self.emit_granted(now, left.slot(), about, lease, shared);
        self.emit_drained(now, left.slot(), shared);
    }

    /// Emits that a waiter has left the queue without a grant.
    #[cold]
    pub(in crate::request) fn emit_withdrawn(
        &self,
        now: Instant,
        id: WaiterId,
        left: &Waiter,
        reason: DenialReason,
        shared: &mut Shared,
    ) {
        let waited = left.since.elapsed(now);
        let payload = match reason {
            DenialReason::QueueTimeout => RequestEventPayload::WaitTimeout { waiter: Some(id), waited },
            _ => RequestEventPayload::WaitCancelled { waiter: id, waited, reason },
        };
        let about = shared.correlations.take_waiter(id);
        self.emit_for(now, left.slot(), about, payload, shared);
        self.emit_drained(now, left.slot(), shared);
    }

    fn emit_drained(&self, now: Instant, slot: usize, shared: &mut Shared) {
        if !self.has_waiters() {
            self.emit(now, slot, RequestEventPayload::QueueDrained, shared);
        }
    }

    pub(super) fn emit_granted(
        &self,
        now: Instant,
        slot: usize,
        about: TaskCorrelation,
        lease: LeaseId,
        shared: &mut Shared,
    ) {
        let controller = &self.resources[slot].controller;
        let (limit, in_flight) = (controller.limit(now), controller.in_flight());
        shared.correlations.set_lease(lease, about);
        if self.health.as_deref().is_some_and(Health::is_probed) {
            let probed = RequestEventPayload::ProviderProbed { lease };
            shared.events.push_about(now, EventPlace::Model(self.id), about, probed);
        }
        self.emit_for(now, slot, about, RequestEventPayload::LeaseAcquired { lease, limit, in_flight }, shared);
        self.emit_for(now, slot, about, RequestEventPayload::CallStarted { lease }, shared);
    }
}

/// Outcomes.
impl ProviderModel {
    #[cold]
    pub(in crate::request) fn before_outcome(&mut self, now: Instant, slot: usize, shared: &mut Shared) -> Before {
        self.emit_ramp_steps(now, slot, shared);
        let controller = &self.resources[slot].controller;
        Before { limit: controller.limit(now), was_ramping: controller.limit_state(now).ramp.is_some() }
    }

    /// Emits what an outcome did to the limit and the cooldown, and the released lease.
    #[cold]
    pub(in crate::request) fn emit_outcome(&mut self, now: Instant, slot: usize, ended: &Ended, shared: &mut Shared) {
        let Ended { held, lease, done, before, change } = *ended;
        let outcome = done.outcome;
        let took = held.grant.since().map_or(Duration::ZERO, |since| now - since);
        let about = shared.correlations.take_lease(lease);
        self.emit_for(now, slot, about, RequestEventPayload::CallCompleted { lease, outcome, took }, shared);
        self.emit_change(now, change, about, shared);
        self.emit_moved_limit(now, slot, before, about, shared);
        if done.outcome == Outcome::RateLimited {
            self.emit_rate_limited(now, slot, &done, before, about, shared);
        }
        let in_flight = self.resources[slot].controller.in_flight();
        let released = RequestEventPayload::LeaseReleased { lease, outcome, held: took, in_flight };
        self.emit_for(now, slot, about, released, shared);
    }

    /// Emits a change of health that no call made.
    pub(in crate::request) fn emit_health(&self, now: Instant, change: Change, shared: &mut Shared) {
        self.emit_change(now, change, None, shared);
    }

    fn emit_change(&self, now: Instant, change: Change, about: TaskCorrelation, shared: &mut Shared) {
        let payload = match change {
            Change::None | Change::StreakEnded | Change::Cleared | Change::ProbeDue => return,
            Change::Unavailable { cause, probe_at } => RequestEventPayload::ProviderUnavailable { cause, probe_at },
            Change::Down { since, probe_at } => RequestEventPayload::ProviderDown { since, probe_at },
            Change::Recovered { since } => {
                let span = self.health.as_deref().map_or(Duration::ZERO, Health::recovery);
                RequestEventPayload::ProviderRecovered { since, full_at: now + span }
            }
        };
        if shared.events.is_on() {
            shared.events.push_about(now, EventPlace::Model(self.id), about, payload);
        }
    }

    fn emit_moved_limit(
        &mut self,
        now: Instant,
        slot: usize,
        before: Before,
        about: TaskCorrelation,
        shared: &mut Shared,
    ) {
        let (_, to) = self.take_limit_change(now, slot);
        let from = before.limit;
        let controller = &self.resources[slot].controller;
        let ceiling = controller.limit_state(now).rate_limit_ceiling;
        let is_full = to == controller.effective_max() && controller.blocked_until(now).is_none();
        if to < from {
            self.emit_for(now, slot, about, RequestEventPayload::LimitDecreased { from, to }, shared);
        } else if to > from {
            self.emit_for(now, slot, about, RequestEventPayload::LimitIncreased { from, to }, shared);
            if ceiling > 0 && from <= ceiling && to > ceiling {
                self.emit_for(now, slot, about, RequestEventPayload::SoftCeilingRecovered { limit: to }, shared);
            }
            if is_full {
                self.emit_for(now, slot, about, RequestEventPayload::FullyRecovered { limit: to }, shared);
            }
        }
    }

    fn emit_rate_limited(
        &self,
        now: Instant,
        slot: usize,
        done: &Completion,
        before: Before,
        about: TaskCorrelation,
        shared: &mut Shared,
    ) {
        let controller = &self.resources[slot].controller;
        let (blocked_until, consecutive) = (controller.blocked_until(now), controller.consecutive_rate_limits());
        let applied = controller.config().max_cooldown;
        let ramp_ended = before.was_ramping && controller.limit_state(now).ramp.is_none();
        self.emit_for(now, slot, about, RequestEventPayload::RateLimited { blocked_until, consecutive }, shared);
        if let Some(requested) = done.retry_after.filter(|requested| *requested > applied) {
            self.emit_for(now, slot, about, RequestEventPayload::CooldownCapped { requested, applied }, shared);
        }
        if ramp_ended {
            self.emit_for(now, slot, about, RequestEventPayload::RampAborted { limit: before.limit }, shared);
        }
    }
}
