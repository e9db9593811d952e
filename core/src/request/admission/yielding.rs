//! Waiters that hold nothing while they wait.

use super::{RequestAdmission, Waiter};
use crate::error::ConfigError;
use crate::id::Slots;
use crate::replay::RequestCommand;
use crate::request::event::RequestFact;
use crate::request::keys::{GroupId, Request, ResourceId};
use crate::request::outcome::Acquire;
use crate::request::resource::Resource;
use crate::request::yielding::{YieldClass, YieldState, YieldingWaiter, YieldingWaiters};
use crate::time::Instant;
use crate::yielding::{TaskResources, YIELD_FACTOR, YieldToken};

/// YieldingWaiter requests: see [`tie`](crate::yielding).
impl RequestAdmission {
    /// [`RequestAdmission::acquire`] for a worker that gives back what it holds of `stage` if it has to wait.
    ///
    /// `stage` may owe work when this returns: it has less to give, or more.
    pub fn acquire_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        tie: YieldToken,
        stage: &mut dyn TaskResources,
    ) -> Acquire {
        self.recorder.note(self.effects.len(), || RequestCommand::AcquireYielding { now, request: *request, tie });
        let answer = self.ask_tied(now, request, tie, stage);
        self.recorder.answered(|digest| digest.acquired(&answer));
        answer
    }

    fn ask_tied(&mut self, now: Instant, request: &Request, tie: YieldToken, stage: &mut dyn TaskResources) -> Acquire {
        let now = self.begin(now);
        if let Err(denial) = self.attempt(now, request) {
            self.tell(now, request.resource, RequestFact::AcquireDenied { reason: denial.reason });
            return Acquire::Denied(denial);
        }
        // Only a worker that was refused before may hold nothing here.
        let holds = stage.resume(now, &tie);
        let group = request.group.unwrap_or(self.resources[request.resource.index()].place.group);
        if holds && let Some(lease) = self.grant_directly(now, request, group) {
            return Acquire::Granted(lease);
        }
        self.expire(now);
        let deadline = request.timeout.or(self.config.default_timeout).map(|span| now + span);
        let how = if holds { YieldState::Holding(self.ties.arrival()) } else { YieldState::Suspended };
        let tied = YieldingWaiter { tie, place: self.tie_place(request.resource, &tie), state: how };
        let group = self.tie_group(group, &tie);
        let key = self.enqueue(now, request, group, deadline, Some(tied));
        if let Some(lease) = self.serve_for(now, Some(key), Some(stage)) {
            return Acquire::Granted(lease);
        }
        let answer = self.stay(now, request, key, deadline);
        if self.waiters.get(key).is_some() && !self.ties.is_suspended(key) {
            let entry = &mut self.resources[request.resource.index()];
            if entry.suspended < entry.effective_max().saturating_mul(YIELD_FACTOR) && stage.suspend(now, &tie) {
                entry.suspended += 1;
                self.ties.suspend(request.resource, key);
            }
            // What it holds, or has given back, may be just what another lacks.
            let Self { ties, queue, .. } = self;
            ties.reopen(|other| other.run == tie.run, |set| queue.unblock(set));
            self.serve_all(now, stage);
        }
        answer
    }

    /// Whether the first in turn is a suspended waiter that only [`RequestAdmission::resume_yielded`] can serve. Ask after
    /// every command of a controller with tied requests, and before its lock is opened: until then it serves nobody who
    /// stands behind that one.
    #[inline]
    #[must_use]
    pub fn needs_resume(&self) -> bool {
        self.ties.needs_resume
    }

    /// Grants to waiters in order of turn, the suspended ones together with what they gave back. Call it too whenever
    /// `stage` got something back, before it starts anything new with that.
    pub fn resume_yielded(&mut self, now: Instant, stage: &mut dyn TaskResources) {
        self.recorder.note(self.effects.len(), || RequestCommand::ResumeYielded { now });
        let now = self.begin(now);
        self.serve_all(now, stage);
    }

    fn serve_all(&mut self, now: Instant, stage: &mut dyn TaskResources) {
        self.ties.needs_resume = false;
        let Self { ties, queue, .. } = self;
        ties.reopen(|tie| stage.can_resume(tie), |set| queue.unblock(set));
        self.serve_for(now, None, Some(stage));
    }

    fn tie_group(&mut self, beside: GroupId, tie: &YieldToken) -> GroupId {
        self.ties.group(beside, tie).unwrap_or_else(|| {
            let weight = self.queue.weight(beside);
            let group = self.queue.add_unit_group();
            // The weight of a group is one that a group can have.
            let _ = self.queue.set_weight(group, weight);
            self.ties.add_group(beside, tie, group);
            group
        })
    }

    /// Sets the weight of a request group, for the tied waiters of every run too.
    pub(super) fn set_group_weight(&mut self, group: GroupId, weight: f64) -> Result<(), ConfigError> {
        self.queue.set_weight(group, weight)?;
        self.ties.groups_beside(group).try_for_each(|beside| self.queue.set_weight(beside, weight))
    }

    fn tie_place(&mut self, resource: ResourceId, tie: &YieldToken) -> YieldClass {
        self.ties.place(resource, tie).unwrap_or_else(|| {
            let place = YieldClass { class: self.queue.add_class(), set: self.queue.add_blocked_set() };
            self.ties.add_place(resource, tie, place);
            place
        })
    }
}

/// Whether a suspended worker holds again what it gave back. Those who wait with it make room for it.
pub(super) fn resume(
    now: Instant,
    stage: &mut dyn TaskResources,
    tie: &YieldToken,
    resource: ResourceId,
    waiters: &Slots<Waiter>,
    resources: &mut [Resource],
    ties: &mut YieldingWaiters,
) -> bool {
    while !stage.resume(now, tie) {
        let Some(key) = ties.in_the_way(resource, tie, stage) else { return false };
        let (Some(other), Some(at)) = (ties.get(key), waiters.get(key).map(|waiter| waiter.resource)) else {
            return false;
        };
        if stage.suspend(now, &other.tie) {
            resources[at.index()].suspended += 1;
            ties.suspend(at, key);
        } else {
            // It may not yield: nobody asks it again.
            ties.forget(at, &other);
        }
    }
    true
}
