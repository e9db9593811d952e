//! Requests of workers that return their task resources while they wait: see [`yielding`](crate::yielding).

use alloc::vec::Vec;

use super::{Located, RequestAdmission};
use crate::id::SlotKey;
use crate::request::keys::{Request, ResourceId};
use crate::request::provider::Attempt;
use crate::request::result::{AcquireResult, Denial, DenialReason};
use crate::request::yielding::{YieldClass, YieldState, YieldingWaiter};
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken, YIELD_FACTOR};

impl RequestAdmission {
    /// Requests a lease like [`RequestAdmission::acquire`], for a worker of a run. The request is denied with
    /// [`DenialReason::Cancelled`] once the run is stopping. If the request must wait and its token has a
    /// demand, the worker may release its task resources while it waits.
    ///
    /// The free resources of `tasks` may have changed when this returns, so `tasks` may be able to start more
    /// workers.
    pub fn acquire_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        let now = self.begin(now);
        let (request, at) = match self.resolve_fallback(now, request) {
            Ok(chosen) => {
                let request = chosen.unwrap_or(*request);
                (request, self.locate(now, &request))
            }
            Err(denial) => (*request, Err(denial)),
        };
        self.acquire_located(now, &request, at, token, tasks)
    }

    /// Grants, queues or denies the request of a worker. Its events carry the correlation of the worker's
    /// task.
    pub(super) fn acquire_located(
        &mut self,
        now: Instant,
        request: &Request,
        at: Result<Located, Denial>,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        let correlation = if self.shared.events.is_on() { tasks.correlation(&token) } else { None };
        self.shared.correlations.set_current(correlation);
        let result = match at {
            Ok(at) => self.acquire_for_worker(now, request, &at, token, tasks),
            Err(denial) => self.deny(now, request, denial),
        };
        self.shared.correlations.set_current(None);
        result
    }

    fn acquire_for_worker(
        &mut self,
        now: Instant,
        request: &Request,
        at: &Located,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        if tasks.is_stopping(token.run) {
            return self.deny(now, request, Denial { reason: DenialReason::Cancelled, changes_at: None });
        }
        let at = &Located { run: Some(token.run), ..*at };
        // A worker may lack its task resources here only if its previous request was denied while it had
        // yielded.
        let holds = tasks.resume(now, &token);
        let provider = &mut self.providers[at.provider];
        if holds
            && at.attempt == Attempt::default()
            && let Some(lease) = provider.grant_directly(now, at.slot, at.group, request, &mut self.shared)
        {
            return AcquireResult::Granted(lease);
        }
        self.expire(now);
        if token.demand.is_none() {
            return self.enqueue(now, request, at, None, Some(tasks));
        }
        let state = if holds { YieldState::Holding(self.shared.yielding.next_arrival()) } else { YieldState::Yielded };
        let entry = YieldingWaiter { token, class: self.yield_class(request.resource, at, &token), state };
        let result = self.enqueue(now, request, at, Some(entry), Some(tasks));
        let AcquireResult::Waiting(waiter) = &result else { return result };
        let key = waiter.key();
        let is_holding = self.shared.waiters.get(key).is_some() && !self.shared.yielding.is_yielded(key);
        if is_holding {
            let effective_max = self.providers[at.provider].resources[at.slot].controller.effective_max();
            let max_yielded = effective_max.saturating_mul(YIELD_FACTOR);
            let may_yield = self.shared.yielding.yielded(request.resource) < max_yielded
                // The bound does not apply while the provider is not healthy: its waiters must not keep task
                // resources from other work.
                || !self.providers[at.provider].is_healthy();
            if may_yield && tasks.yield_resources(now, &token) {
                self.shared.yielding.set_yielded(request.resource, key);
            }
            // Another waiter may lack exactly the task resources that this one holds or has returned.
            self.unblock_yielded(|other| other.run == token.run);
            self.serve_all(now, tasks);
        }
        result
    }

    /// Returns whether [`RequestAdmission::resume_yielded`] must be called, because a yielded waiter is next
    /// in turn or because waiters must yield after an outage began. Check it after every command of a
    /// machine with yielding requests, before its lock is released. Until `resume_yielded` is called, no
    /// waiter behind that one is served.
    #[inline]
    #[must_use]
    pub fn needs_resume(&self) -> bool {
        self.shared.yielding.needs_resume
    }

    /// Grants to waiters in order of turn. A yielded waiter gets its task resources back together with the
    /// grant. Call it also whenever task resources were released to `tasks`, before `tasks` dispatches new
    /// work with them.
    pub fn resume_yielded(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        let now = self.begin(now);
        self.expire(now);
        self.serve_all(now, tasks);
    }

    /// Denies the waiters of stopping runs with [`DenialReason::Cancelled`]. Calls in flight continue, and
    /// no new call starts. Call it once a run of `tasks` starts to stop. O(waiters).
    pub fn deny_stopping(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        let now = self.begin(now);
        self.expire(now);
        let waiters = self.shared.waiters.iter();
        let stopping = waiters.filter(|(_, waiter)| waiter.run.is_some_and(|run| tasks.is_stopping(run)));
        for key in stopping.map(|(key, _)| key).collect::<Vec<SlotKey>>() {
            self.deny_waiter(now, key, DenialReason::Cancelled);
        }
        self.serve_all(now, tasks);
        self.trim();
    }

    /// Serves every provider and model that has waiters to offer.
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

    /// Makes a waiter yield its task resources if its provider is not healthy.
    fn yield_if_down(&mut self, now: Instant, key: SlotKey, tasks: &mut dyn TaskResources) {
        let (Some(entry), Some(waiter)) = (self.shared.yielding.get(key), self.shared.waiters.get(key)) else { return };
        let resource = waiter.resource;
        let is_down = !self.providers[self.address(resource).provider as usize].is_healthy();
        if is_down && tasks.yield_resources(now, &entry.token) {
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
