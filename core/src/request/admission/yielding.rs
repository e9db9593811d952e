//! Requests of workers that hold nothing while they wait: see [`yielding`](crate::yielding).

use alloc::vec::Vec;

use super::{Located, RequestAdmission};
use crate::id::SlotKey;
use crate::request::answer::{Acquire, Denial, DenialReason};
use crate::request::keys::{Request, ResourceId};
use crate::request::provider::Attempt;
use crate::request::yielding::{YieldClass, YieldState, YieldingWaiter};
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken, YIELD_FACTOR};

impl RequestAdmission {
    /// [`RequestAdmission::acquire`] for a worker of a run. Rejected as cancelled once its run stops. Gives
    /// the worker's task resources back if it has to wait and its token says so.
    ///
    /// `tasks` may have dispatches pending when this returns: more or less of its resources are free.
    pub fn acquire_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> Acquire {
        let now = self.begin(now);
        let (request, at) = match self.chosen(now, request) {
            Ok(chosen) => {
                let request = chosen.unwrap_or(*request);
                (request, self.locate(now, &request))
            }
            Err(denial) => (*request, Err(denial)),
        };
        self.request_resume(now, &request, at, token, tasks)
    }

    /// Lets the call of a worker out, queues it, or denies it. Its events name the worker's task.
    pub(super) fn request_resume(
        &mut self,
        now: Instant,
        request: &Request,
        at: Result<Located, Denial>,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> Acquire {
        let about = if self.shared.events.is_on() { tasks.correlation(&token) } else { None };
        self.shared.correlations.set_current(about);
        let answer = match at {
            Ok(at) => self.acquire_for_worker(now, request, &at, token, tasks),
            Err(denial) => self.deny(now, request, denial),
        };
        self.shared.correlations.set_current(None);
        answer
    }

    fn acquire_for_worker(
        &mut self,
        now: Instant,
        request: &Request,
        at: &Located,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> Acquire {
        if tasks.is_stopping(token.run) {
            return self.deny(now, request, Denial { reason: DenialReason::Cancelled, changes_at: None });
        }
        let at = &Located { run: Some(token.run), ..*at };
        // Only a worker whose last request was rejected may hold nothing here.
        let holds = tasks.resume(now, &token);
        let provider = &mut self.providers[at.provider];
        if holds
            && at.attempt == Attempt::default()
            && let Some(lease) = provider.grant_directly(now, at.slot, at.group, request, &mut self.shared)
        {
            return Acquire::Granted(lease);
        }
        self.expire(now);
        if token.vector.is_none() {
            return self.enqueue(now, request, at, None, Some(tasks));
        }
        let state = if holds { YieldState::Holding(self.shared.yielding.arrival()) } else { YieldState::Yielded };
        let entry = YieldingWaiter { token, class: self.yield_class(request.resource, at, &token), state };
        let answer = self.enqueue(now, request, at, Some(entry), Some(tasks));
        let Acquire::Waiting(waiter) = &answer else { return answer };
        let key = waiter.key();
        let is_holding = self.shared.waiters.get(key).is_some() && !self.shared.yielding.is_yielded(key);
        if is_holding {
            let effective_max = self.providers[at.provider].resources[at.slot].controller.effective_max();
            let most = effective_max.saturating_mul(YIELD_FACTOR);
            let may_yield = self.shared.yielding.yielded(request.resource) < most
                // However many wait for a provider that does not answer, they keep no other work from its
                // resources.
                || !self.providers[at.provider].is_healthy();
            if may_yield && tasks.suspend(now, &token) {
                self.shared.yielding.set_yielded(request.resource, key);
            }
            // What it holds, or has given back, may be just what another waiter lacks.
            self.unblock_yielded(|other| other.run == token.run);
            self.serve_all(now, tasks);
        }
        answer
    }

    /// Whether the first in turn is a yielded waiter that only [`RequestAdmission::resume_yielded`] can
    /// serve. To be read after every command of a controller with yielding requests, and before its lock is
    /// released: until then it serves nothing that stands behind that waiter.
    #[inline]
    #[must_use]
    pub fn needs_resume(&self) -> bool {
        self.shared.yielding.needs_resume
    }

    /// Grants to waiters in order of turn, yielded ones together with what they gave back. To be called too
    /// whenever `tasks` got resources back, before it starts anything new with them.
    pub fn resume_yielded(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        let now = self.begin(now);
        self.expire(now);
        self.serve_all(now, tasks);
    }

    /// Rejects the waiting requests of runs that stop, as cancelled: a call that is out ends, and none
    /// begins. To be called once `tasks` begin to stop. O(waiters).
    pub fn reject_stopping(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        let now = self.begin(now);
        self.expire(now);
        let waiters = self.shared.waiters.iter();
        let stopping = waiters.filter(|(_, waiter)| waiter.run.is_some_and(|run| tasks.is_stopping(run)));
        for key in stopping.map(|(key, _)| key).collect::<Vec<SlotKey>>() {
            self.reject(now, key, DenialReason::Cancelled);
        }
        self.serve_all(now, tasks);
        self.trim();
    }

    /// Serves every provider and model that has something to offer.
    fn serve_all(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        self.shared.yielding.needs_resume = false;
        for key in self.shared.yielding.holders_after_outage() {
            self.yield_if_down(now, key, tasks);
        }
        self.unblock_yielded(|token| tasks.can_resume(token));
        let (first, count) = (self.shared.yielding.last_resumed + 1, self.providers.len());
        for at in (first..first + count).map(|at| at % count) {
            if self.providers[at].has_offers() {
                self.serve(now, at, None, Some(tasks));
            }
        }
        self.unserved.clear();
    }

    /// Lets a waiter give back what it holds if its provider does not answer.
    fn yield_if_down(&mut self, now: Instant, key: SlotKey, tasks: &mut dyn TaskResources) {
        let (Some(entry), Some(waiter)) = (self.shared.yielding.get(key), self.shared.waiters.get(key)) else { return };
        let resource = waiter.resource;
        let is_down = !self.providers[self.address(resource).provider as usize].is_healthy();
        if is_down && tasks.suspend(now, &entry.token) {
            self.shared.yielding.set_yielded(resource, key);
        }
    }

    fn unblock_yielded(&mut self, is_open: impl FnMut(&TaskToken) -> bool) {
        let Self { shared, providers, .. } = self;
        shared.yielding.unblock(is_open, |provider, set| providers[provider.index()].unblock_yielded(set));
    }

    fn yield_class(&mut self, resource: ResourceId, at: &Located, token: &TaskToken) -> YieldClass {
        let is_undecided = at.attempt.is_undecided;
        self.shared.yielding.class(resource, token, is_undecided).unwrap_or_else(|| {
            let class = self.providers[at.provider].add_yield_class();
            self.shared.yielding.add_class(resource, token, is_undecided, class);
            class
        })
    }
}
