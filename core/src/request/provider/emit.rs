//! Emits the events of one provider and model.

use super::health::Health;
use super::{CallRecord, HealthChange, ProviderModel};
use crate::call::{Completion, Outcome};
use crate::event::Correlation;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::request::event::{EventScope, RequestEventPayload};
use crate::request::result::{Denial, DenialReason, RequestLease, WaiterId};
use crate::request::shared::Shared;
use crate::request::waiter::Waiter;
use crate::time::{Duration, Instant};

/// The correlation of the task whose call an event concerns, if it is known.
type TaskCorrelation = Option<Correlation>;

/// The state of a limit before the outcome of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct LimitBefore {
    limit: u32,
    was_ramping: bool,
}

/// A call that has ended, with the changes that it caused.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct EndedCall {
    pub(in crate::request) held: CallRecord,
    pub(in crate::request) lease: LeaseId,
    pub(in crate::request) done: Completion,
    pub(in crate::request) before: LimitBefore,
    pub(in crate::request) change: HealthChange,
}

/// Limits.
impl ProviderModel {
    /// Emits the steps of a ramp since the last limit event.
    #[inline]
    pub(in crate::request) fn emit_ramp_steps(&mut self, now: Instant, slot: usize, shared: &mut Shared) {
        if shared.events.is_on() {
            let (from, to) = self.take_limit_change(now, slot);
            if to > from {
                self.emit(now, slot, RequestEventPayload::RampStep { from, to }, shared);
            }
        }
    }

    /// Emits a change of the limit by a cap or a setting.
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

    /// Returns the limit that was emitted last and the limit in force, and marks the latter as emitted.
    #[cold]
    pub(in crate::request) fn take_limit_change(&mut self, now: Instant, slot: usize) -> (u32, u32) {
        let resource = &mut self.resources[slot];
        let to = resource.controller.limit(now);
        (core::mem::replace(&mut resource.last_emitted_limit, to), to)
    }

    fn emit(&self, now: Instant, slot: usize, payload: RequestEventPayload, shared: &mut Shared) {
        shared.emit(now, self.resources[slot].id, payload);
    }

    /// Emits an event that concerns a call of the task `correlation`.
    fn emit_for(
        &self,
        now: Instant,
        slot: usize,
        correlation: TaskCorrelation,
        payload: RequestEventPayload,
        shared: &mut Shared,
    ) {
        shared.events.push_correlated(now, EventScope::Resource(self.resources[slot].id), correlation, payload);
    }
}

/// Waiters.
impl ProviderModel {
    #[cold]
    pub(in crate::request) fn emit_try(
        &self,
        now: Instant,
        slot: usize,
        result: &Result<RequestLease, Denial>,
        shared: &mut Shared,
    ) {
        match result {
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
        let correlation = shared.correlations.current();
        self.emit_for(now, slot, correlation, RequestEventPayload::WaitStarted { waiter: None }, shared);
        let completed = RequestEventPayload::WaitCompleted { waiter: None, waited: Duration::ZERO };
        self.emit_for(now, slot, correlation, completed, shared);
        self.emit_granted(now, slot, correlation, lease, shared);
    }

    /// Emits that a waiter joins the queue. Call it before the waiter is added to the queue.
    #[cold]
    pub(super) fn emit_queued(&self, now: Instant, slot: usize, key: SlotKey, shared: &mut Shared) {
        if !self.has_waiters() {
            self.emit(now, slot, RequestEventPayload::QueueFormed, shared);
        }
        let id = shared.waiter_id(key);
        let correlation = shared.correlations.set_waiter(id);
        self.emit_for(now, slot, correlation, RequestEventPayload::WaitStarted { waiter: Some(id) }, shared);
    }

    /// Emits that a waiter has left the queue with a grant.
    #[cold]
    pub(super) fn emit_served(&self, now: Instant, id: WaiterId, left: &Waiter, lease: LeaseId, shared: &mut Shared) {
        let correlation = shared.correlations.take_waiter(id);
        let completed = RequestEventPayload::WaitCompleted { waiter: Some(id), waited: left.since.elapsed(now) };
        self.emit_for(now, left.slot(), correlation, completed, shared);
        self.emit_granted(now, left.slot(), correlation, lease, shared);
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
        let correlation = shared.correlations.take_waiter(id);
        self.emit_for(now, left.slot(), correlation, payload, shared);
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
        correlation: TaskCorrelation,
        lease: LeaseId,
        shared: &mut Shared,
    ) {
        let controller = &self.resources[slot].controller;
        let (limit, in_flight) = (controller.limit(now), controller.in_flight());
        shared.correlations.set_lease(lease, correlation);
        if self.health.as_deref().is_some_and(Health::is_probed) {
            let probed = RequestEventPayload::ProviderProbed { lease };
            shared.events.push_correlated(now, EventScope::Model(self.id), correlation, probed);
        }
        self.emit_for(now, slot, correlation, RequestEventPayload::LeaseAcquired { lease, limit, in_flight }, shared);
        self.emit_for(now, slot, correlation, RequestEventPayload::CallStarted { lease }, shared);
    }
}

/// Outcomes.
impl ProviderModel {
    #[cold]
    pub(in crate::request) fn before_outcome(&mut self, now: Instant, slot: usize, shared: &mut Shared) -> LimitBefore {
        self.emit_ramp_steps(now, slot, shared);
        let controller = &self.resources[slot].controller;
        LimitBefore { limit: controller.limit(now), was_ramping: controller.limit_state(now).ramp.is_some() }
    }

    /// Emits the end of a call, its effects on health, limit and cooldown, and the release of its lease.
    #[cold]
    pub(in crate::request) fn emit_outcome(
        &mut self,
        now: Instant,
        slot: usize,
        ended: &EndedCall,
        shared: &mut Shared,
    ) {
        let EndedCall { held, lease, done, before, change } = *ended;
        let outcome = done.outcome;
        let took = held.grant.since().map_or(Duration::ZERO, |since| now - since);
        let correlation = shared.correlations.take_lease(lease);
        self.emit_for(now, slot, correlation, RequestEventPayload::CallCompleted { lease, outcome, took }, shared);
        self.emit_health_change(now, change, correlation, shared);
        self.emit_limit_after_outcome(now, slot, before, correlation, shared);
        if done.outcome == Outcome::RateLimited {
            self.emit_rate_limited(now, slot, &done, before, correlation, shared);
        }
        let in_flight = self.resources[slot].controller.in_flight();
        let released = RequestEventPayload::LeaseReleased { lease, outcome, held: took, in_flight };
        self.emit_for(now, slot, correlation, released, shared);
    }

    /// Emits a change of health that was not caused by the end of a call.
    pub(in crate::request) fn emit_health(&self, now: Instant, change: HealthChange, shared: &mut Shared) {
        self.emit_health_change(now, change, None, shared);
    }

    fn emit_health_change(
        &self,
        now: Instant,
        change: HealthChange,
        correlation: TaskCorrelation,
        shared: &mut Shared,
    ) {
        let payload = match change {
            HealthChange::None | HealthChange::StreakEnded | HealthChange::Cleared | HealthChange::ProbeDue => return,
            HealthChange::Unavailable { cause, probe_at } => {
                RequestEventPayload::ProviderUnavailable { cause, probe_at }
            }
            HealthChange::Down { since, probe_at } => RequestEventPayload::ProviderDown { since, probe_at },
            HealthChange::Recovered { since } => {
                let span = self.health.as_deref().map_or(Duration::ZERO, Health::recovery);
                RequestEventPayload::ProviderRecovered { since, full_at: now + span }
            }
        };
        if shared.events.is_on() {
            shared.events.push_correlated(now, EventScope::Model(self.id), correlation, payload);
        }
    }

    fn emit_limit_after_outcome(
        &mut self,
        now: Instant,
        slot: usize,
        before: LimitBefore,
        correlation: TaskCorrelation,
        shared: &mut Shared,
    ) {
        let (_, to) = self.take_limit_change(now, slot);
        let from = before.limit;
        let controller = &self.resources[slot].controller;
        let ceiling = controller.limit_state(now).rate_limit_ceiling;
        let is_full = to == controller.effective_max() && controller.blocked_until(now).is_none();
        if to < from {
            self.emit_for(now, slot, correlation, RequestEventPayload::LimitDecreased { from, to }, shared);
        } else if to > from {
            self.emit_for(now, slot, correlation, RequestEventPayload::LimitIncreased { from, to }, shared);
            if ceiling > 0 && from <= ceiling && to > ceiling {
                self.emit_for(now, slot, correlation, RequestEventPayload::SoftCeilingRecovered { limit: to }, shared);
            }
            if is_full {
                self.emit_for(now, slot, correlation, RequestEventPayload::FullyRecovered { limit: to }, shared);
            }
        }
    }

    fn emit_rate_limited(
        &self,
        now: Instant,
        slot: usize,
        done: &Completion,
        before: LimitBefore,
        correlation: TaskCorrelation,
        shared: &mut Shared,
    ) {
        let controller = &self.resources[slot].controller;
        let (blocked_until, consecutive) = (controller.blocked_until(now), controller.consecutive_rate_limits());
        let applied = controller.config().max_cooldown;
        let ramp_ended = before.was_ramping && controller.limit_state(now).ramp.is_none();
        self.emit_for(now, slot, correlation, RequestEventPayload::RateLimited { blocked_until, consecutive }, shared);
        if let Some(requested) = done.retry_after.filter(|requested| *requested > applied) {
            self.emit_for(now, slot, correlation, RequestEventPayload::CooldownCapped { requested, applied }, shared);
        }
        if ramp_ended {
            self.emit_for(now, slot, correlation, RequestEventPayload::RampAborted { limit: before.limit }, shared);
        }
    }
}
