//! The events of a controller, in the order in which things happen.

use super::{RequestAdmission, Waiter};
use crate::call::{Completion, Outcome};
use crate::lease::{LeaseId, ReleaseAnswer};
use crate::request::event::{EventPlace, RequestFact};
use crate::request::keys::ResourceId;
use crate::request::outcome::{Denial, DenialReason, RequestLease, WaiterId};
use crate::request::resource::Held;
use crate::time::{Duration, Instant};

/// A limit before a call's outcome was taken into account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    limit: u32,
    was_ramping: bool,
}

impl RequestAdmission {
    #[inline]
    pub(super) fn tell(&mut self, now: Instant, resource: ResourceId, fact: RequestFact) {
        self.log.push(now, EventPlace::Resource(resource), fact);
    }

    /// Steps that a ramp has made since the limit was last told.
    #[inline]
    pub(super) fn tell_ramp(&mut self, now: Instant, resource: ResourceId) {
        if self.log.is_on() {
            self.tell_steps(now, resource);
        }
    }

    #[cold]
    fn tell_steps(&mut self, now: Instant, resource: ResourceId) {
        let entry = &mut self.resources[resource.index()];
        let (from, to) = (entry.told_limit, entry.limit(now));
        entry.told_limit = to;
        if to > from {
            self.tell(now, resource, RequestFact::RampStep { from, to });
        }
    }

    /// A limit that a cap moved.
    pub(super) fn tell_limit(&mut self, now: Instant, resource: ResourceId) {
        if !self.log.is_on() {
            return;
        }
        let entry = &mut self.resources[resource.index()];
        let (from, to) = (entry.told_limit, entry.limit(now));
        entry.told_limit = to;
        if to < from {
            self.tell(now, resource, RequestFact::LimitDecreased { from, to });
        } else if to > from {
            self.tell(now, resource, RequestFact::LimitIncreased { from, to });
        }
    }

    #[cold]
    pub(super) fn tell_try(&mut self, now: Instant, resource: ResourceId, answer: &Result<RequestLease, Denial>) {
        match answer {
            Ok(lease) => self.tell_direct(now, resource, lease.id),
            Err(denial) => {
                self.tell(now, resource, RequestFact::WaitStarted { waiter: None });
                self.tell(now, resource, RequestFact::AcquireDenied { reason: denial.reason });
            }
        }
    }

    /// A grant that nobody had to wait for.
    #[cold]
    pub(super) fn tell_direct(&mut self, now: Instant, resource: ResourceId, lease: LeaseId) {
        self.tell(now, resource, RequestFact::WaitStarted { waiter: None });
        self.tell(now, resource, RequestFact::WaitCompleted { waiter: None, waited: Duration::ZERO });
        self.tell_granted(now, resource, lease);
    }

    /// A waiter is about to join the queue.
    pub(super) fn tell_queued(&mut self, now: Instant, resource: ResourceId, waiter: WaiterId) {
        if self.queue.is_empty() {
            self.tell(now, resource, RequestFact::QueueFormed);
        }
        self.tell(now, resource, RequestFact::WaitStarted { waiter: Some(waiter) });
    }

    /// A waiter has left the queue with a grant.
    pub(super) fn tell_served(&mut self, now: Instant, id: WaiterId, left: &Waiter, lease: LeaseId) {
        let waited = left.since.elapsed(now);
        self.tell(now, left.resource, RequestFact::WaitCompleted { waiter: Some(id), waited });
        self.tell_granted(now, left.resource, lease);
        self.tell_drained(now, left.resource);
    }

    /// A waiter has left the queue without one.
    pub(super) fn tell_withdrawn(&mut self, now: Instant, id: WaiterId, left: &Waiter, reason: DenialReason) {
        let waited = left.since.elapsed(now);
        let fact = match reason {
            DenialReason::QueueTimeout => RequestFact::WaitTimeout { waiter: Some(id), waited },
            _ => RequestFact::WaitCancelled { waiter: id, waited, reason },
        };
        self.tell(now, left.resource, fact);
        self.tell_drained(now, left.resource);
    }

    fn tell_drained(&mut self, now: Instant, resource: ResourceId) {
        if self.queue.is_empty() {
            self.tell(now, resource, RequestFact::QueueDrained);
        }
    }

    fn tell_granted(&mut self, now: Instant, resource: ResourceId, lease: LeaseId) {
        let entry = &self.resources[resource.index()];
        let (limit, in_flight) = (entry.limit(now), entry.in_flight);
        self.tell(now, resource, RequestFact::LeaseAcquired { lease, limit, in_flight });
        self.tell(now, resource, RequestFact::CallStarted { lease });
    }

    #[cold]
    pub(super) fn tell_irregular(&mut self, now: Instant, lease: LeaseId, answer: ReleaseAnswer) {
        self.log.push(now, EventPlace::Controller, RequestFact::ReleaseDiagnostic { lease, answer });
    }

    #[cold]
    pub(super) fn before_outcome(&mut self, now: Instant, resource: ResourceId) -> Before {
        self.tell_ramp(now, resource);
        let entry = &self.resources[resource.index()];
        Before { limit: entry.limit(now), was_ramping: entry.limit_state(now).ramp.is_some() }
    }

    /// What an outcome did to the limit and the cooldown, and the lease that is gone.
    #[cold]
    pub(super) fn tell_outcome(
        &mut self,
        now: Instant,
        held: &Held,
        lease: LeaseId,
        done: &Completion,
        before: Before,
    ) {
        let resource = held.resource;
        let outcome = done.outcome;
        let took = held.since().map_or(Duration::ZERO, |since| now - since);
        self.tell(now, resource, RequestFact::CallCompleted { lease, outcome, took });
        self.tell_moved(now, resource, before);
        if done.outcome == Outcome::RateLimited {
            self.tell_refused(now, resource, done, before);
        }
        let in_flight = self.resources[resource.index()].in_flight;
        self.tell(now, resource, RequestFact::LeaseReleased { lease, outcome, held: took, in_flight });
    }

    fn tell_moved(&mut self, now: Instant, resource: ResourceId, before: Before) {
        let entry = &mut self.resources[resource.index()];
        let (from, to) = (before.limit, entry.limit(now));
        entry.told_limit = to;
        let ceiling = entry.limit_state(now).rate_limit_ceiling;
        let is_full = to == entry.effective_max() && entry.cooldown.until(now).is_none();
        if to < from {
            self.tell(now, resource, RequestFact::LimitDecreased { from, to });
        } else if to > from {
            self.tell(now, resource, RequestFact::LimitIncreased { from, to });
            if ceiling > 0 && from <= ceiling && to > ceiling {
                self.tell(now, resource, RequestFact::SoftCeilingRecovered { limit: to });
            }
            if is_full {
                self.tell(now, resource, RequestFact::FullyRecovered { limit: to });
            }
        }
    }

    fn tell_refused(&mut self, now: Instant, resource: ResourceId, done: &Completion, before: Before) {
        let entry = &self.resources[resource.index()];
        let blocked_until = entry.cooldown.until(now);
        let consecutive = entry.cooldown.consecutive_rate_limits;
        let taken = entry.config().max_cooldown;
        let ramp_ended = before.was_ramping && entry.limit_state(now).ramp.is_none();
        self.tell(now, resource, RequestFact::RateLimited { blocked_until, consecutive });
        if let Some(asked) = done.retry_after.filter(|asked| *asked > taken) {
            self.tell(now, resource, RequestFact::CooldownCapped { asked, taken });
        }
        if ramp_ended {
            self.tell(now, resource, RequestFact::RampAborted { limit: before.limit });
        }
    }
}
