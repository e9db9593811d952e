//! Workers that hold no task resources while they wait for a request lease.
//!
//! The pipeline is the [`TaskResources`] of requests that yield. It gives a [`TaskToken`] to each worker. If
//! the column of the worker yields, request admission can release the task resources of the worker, and
//! acquire them again together with the request lease.
//!
//! Yielded workers have priority over new ones. While the resources of a yielded worker are available,
//! the pipeline dispatches nothing, and [`Pipeline::is_waiting_for_yielded`] returns true. A driver that
//! owns both machines calls [`Pipeline::settle_with`] after each command of either one, before any other
//! command. This call lets yielded workers resume, and then resumes dispatching.

use alloc::string::String;

use super::Pipeline;
use crate::event::Correlation;
use crate::id::SlotKey;
use crate::pipeline::event::SchedulerEventPayload;
use crate::pipeline::lifecycle::{RunState, StopMode};
use crate::pipeline::outcome::WorkerId;
use crate::pipeline::retry::{CallTargets, Deferral};
use crate::request::{RequestAdmission, RequestPressure, ResourceId};
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken};

/// Yielding.
impl Pipeline {
    /// Lets the tasks make their calls through a `RequestAdmission`. Call it before the run starts.
    ///
    /// `run` is the number of this run among those that share the `RequestAdmission`. `calls` contains the
    /// name of each task resource that represents a request resource, with that request resource.
    ///
    /// After this call, tasks have a [`TaskToken`], [`Pipeline::update_pressure`] samples the given calls,
    /// and retryable failures are judged by request resource instead of by fairness group.
    pub fn set_request_resources(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        self.workers.set_request_resources(run, calls);
        self.targets = CallTargets::new(&self.plan, &self.tasks, self.workers.calls());
        self.deferral = Deferral::new(&self.plan, &self.targets);
        self.retryable.watch(self.targets.len());
        self.health.watch(self.targets.len());
    }

    /// Returns the task resources that represent request resources, as passed to
    /// [`Pipeline::set_request_resources`].
    #[must_use]
    pub fn calls(&self) -> &[(String, ResourceId)] {
        self.workers.calls()
    }

    /// Samples which calls would have to wait. Call it before every command.
    ///
    /// Tasks whose call would have to wait are then passed over while other tasks could make their calls at
    /// once. O(request resources). It does nothing if there is only one request resource.
    pub fn update_pressure(&mut self, now: Instant, admission: &RequestAdmission) {
        for call in 0..self.calls_to_sample() {
            let pressure = admission.pressure(now, self.workers.calls()[call].1);
            self.update_call_pressure(call, pressure);
        }
    }

    /// Returns how many calls [`Pipeline::update_pressure`] samples: none if there is only one call.
    pub(crate) fn calls_to_sample(&self) -> usize {
        let calls = self.workers.calls().len();
        if calls > 1 { calls } else { 0 }
    }

    /// Sets the pressure on one call, which applies from the next command on. Returns whether it changed.
    pub(crate) fn update_call_pressure(&mut self, call: usize, pressure: Option<RequestPressure>) -> bool {
        let Self { workers, tasks, .. } = self;
        let call = workers.calls().get(call);
        call.is_some_and(|(resource, _)| tasks.set_request_pressure(resource, pressure))
    }

    /// Lets yielded workers resume in their order, and then resumes the dispatching that waited for them.
    ///
    /// Call it after every command of either machine. It does nothing if neither machine has pending work. It
    /// is for a `RequestAdmission` with one run. If several runs share it, do these steps instead:
    ///
    /// 1. For each run, if [`Pipeline::take_stop`] returns true, call
    ///    [`deny_stopping`](RequestAdmission::deny_stopping).
    /// 2. Call [`resume_yielded`](RequestAdmission::resume_yielded). As in step 1, pass task resources that
    ///    distinguish the runs.
    /// 3. Call [`Pipeline::resume_dispatch`] of each run.
    pub fn settle_with(&mut self, now: Instant, admission: &mut RequestAdmission) {
        if self.take_stop() {
            admission.deny_stopping(now, self);
        }
        if self.is_waiting_for_yielded() || admission.needs_resume() {
            admission.resume_yielded(now, self);
            self.resume_dispatch(now);
        }
    }

    /// Returns whether the run has begun to stop since the last call, and lets its workers finish.
    ///
    /// If it returns true, call [`deny_stopping`](RequestAdmission::deny_stopping), so that no worker of
    /// the run starts a call. A stop that aborts the workers gives false: they withdraw their requests.
    pub fn take_stop(&mut self) -> bool {
        self.workers.take_stop()
    }

    /// Returns whether dispatching is pending because the resources of a yielded worker may be available.
    #[must_use]
    pub fn is_waiting_for_yielded(&self) -> bool {
        self.workers.is_dispatch_pending()
    }

    /// Resumes pending dispatching, with the resources that the yielded workers did not acquire.
    pub fn resume_dispatch(&mut self, now: Instant) {
        if self.workers.take_pending_dispatch() {
            let now = self.clock.observe(now);
            self.pump_now(now);
        }
    }

    /// Returns whether a worker holds no task resources while it waits for a request lease.
    #[must_use]
    pub fn has_yielded(&self, worker: WorkerId) -> bool {
        self.workers.has_yielded(worker.key(), &self.tasks)
    }

    /// Returns how often a worker has yielded.
    #[must_use]
    pub fn yields(&self) -> u64 {
        self.workers.yield_count()
    }
}

/// The tokens must belong to this run. A driver of several runs passes each token to the right run.
impl TaskResources for Pipeline {
    fn yield_resources(&mut self, now: Instant, token: &TaskToken) -> bool {
        let now = self.clock.observe(now);
        match self.workers.yield_resources(token.worker, &mut self.tasks) {
            Ok(key) => {
                self.emit_worker(now, key, SchedulerEventPayload::TaskYielded { worker: WorkerId(token.worker) });
                true
            }
            Err(has_yielded) => has_yielded,
        }
    }

    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool {
        match self.workers.resume(token.worker, &mut self.tasks) {
            Ok(key) => {
                let now = self.clock.observe(now);
                self.emit_worker(now, key, SchedulerEventPayload::TaskResumed { worker: WorkerId(token.worker) });
                true
            }
            Err(is_held) => is_held,
        }
    }

    fn can_resume(&self, token: &TaskToken) -> bool {
        let Some(demand) = self.workers.demand_of(token.worker, &self.tasks) else { return true };
        !self.workers.has_yielded(token.worker, &self.tasks) || self.tasks.tasks().is_available(demand)
    }

    fn correlation(&self, token: &TaskToken) -> Option<Correlation> {
        let key = self.workers.task_of(token.worker)?;
        Some(self.emitter.correlation(key, self.row_groups.attempts(&self.plan, key)))
    }

    fn is_stopping(&self, _: SlotKey) -> bool {
        // An aborted worker withdraws its request itself, so its requests are not denied.
        matches!(self.lifecycle.state(), RunState::Stopping(mode) if mode != StopMode::Abort)
    }

    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool {
        let demand_of = |token: &TaskToken| self.workers.demand_of(token.worker, &self.tasks);
        let (Some(demand), Some(held)) = (demand_of(token), demand_of(holder)) else { return false };
        self.tasks.tasks().shares_shortage(demand, held)
    }
}
