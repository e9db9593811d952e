//! Workers that hold nothing while they wait for a request lease.
//!
//! The pipeline is the [`TaskResources`] of yielding requests: it gives a [`TaskToken`] to the workers of
//! columns that yield, takes back what they hold when request admission says so, and gives it again when it
//! is their turn.
//!
//! Suspended workers go before new ones. While one of them could have what it needs, the pipeline starts
//! nothing, and [`Pipeline::is_waiting_for_suspended`] returns so. A driver of both machines calls
//! [`Pipeline::settle_with`] after each command of either, before anything else happens; it joins the two
//! decisions into one.

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

/// Yielding while waiting.
impl Pipeline {
    /// Lets the tasks make their calls through a controller of requests. Call it before the run starts. `run`
    /// is its number among those that share the controller; `calls` names the resources of the task stage
    /// that stand for a request resource, each with that resource.
    ///
    /// From now on its tasks come with a [`TaskToken`], [`Pipeline::update_pressure`] has calls to
    /// sample, and failures that may pass are judged by request resource instead of by fairness group.
    pub fn call_through(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        self.workers.call_through(run, calls);
        self.targets = CallTargets::new(&self.plan, &self.tasks, self.workers.calls());
        self.deferral = Deferral::new(&self.plan, &self.targets);
        self.retryable.watch(self.targets.len());
        self.health.watch(self.targets.len());
    }

    /// The request resources that stand behind resources of the task stage, as given to
    /// [`Pipeline::call_through`].
    #[must_use]
    pub fn calls(&self) -> &[(String, ResourceId)] {
        self.workers.calls()
    }

    /// Samples which calls would have to wait. Call it before every command: tasks that would only wait are
    /// then passed over while others could call at once. O(request resources), nothing where there is only
    /// one.
    pub fn update_pressure(&mut self, now: Instant, admission: &RequestAdmission) {
        for call in 0..self.calls_to_sample() {
            let pressure = admission.pressure(now, self.workers.calls()[call].1);
            self.update_call_pressure(call, pressure);
        }
    }

    /// The calls that [`Pipeline::update_pressure`] samples: none if a task has no other call to prefer.
    pub(crate) fn calls_to_sample(&self) -> usize {
        let calls = self.workers.calls().len();
        if calls > 1 { calls } else { 0 }
    }

    /// Takes the pressure on one of its calls into account from the next command on. Returns whether it
    /// changed.
    pub(crate) fn update_call_pressure(&mut self, call: usize, pressure: Option<RequestPressure>) -> bool {
        let Self { workers, tasks, .. } = self;
        let call = workers.calls().get(call);
        call.is_some_and(|(resource, _)| tasks.set_request_pressure(resource, pressure))
    }

    /// Lets those suspended workers resume whose turn it is, then does what the pipeline has left undone for
    /// their sake.
    ///
    /// For the one run of a controller. Where several share one, call
    /// [`resume_yielded`](RequestAdmission::resume_yielded) with task resources that tell the runs apart,
    /// after [`reject_stopping`](RequestAdmission::reject_stopping) where [`Pipeline::take_stop`] says so,
    /// and then [`Pipeline::resume_dispatch`] of each run. Call it after every command of either machine; it
    /// does nothing unless one of them has something to do.
    pub fn settle_with(&mut self, now: Instant, admission: &mut RequestAdmission) {
        if self.take_stop() {
            admission.reject_stopping(now, self);
        }
        if self.is_waiting_for_suspended() || admission.needs_resume() {
            admission.resume_yielded(now, self);
            self.resume_dispatch(now);
        }
    }

    /// Whether the run has begun to stop since this was last asked: then
    /// [`reject_stopping`](RequestAdmission::reject_stopping) is due, so that none of its workers begins a
    /// call.
    pub fn take_stop(&mut self) -> bool {
        self.workers.take_stop()
    }

    /// Whether the pipeline has left its own work undone because a suspended worker could have what it needs.
    #[must_use]
    pub fn is_waiting_for_suspended(&self) -> bool {
        self.workers.is_dispatch_pending()
    }

    /// Does what was left undone, with what the suspended workers did not take.
    pub fn resume_dispatch(&mut self, now: Instant) {
        if self.workers.take_pending_dispatch() {
            let now = self.clock.observe(now);
            self.pump_now(now);
        }
    }

    /// Whether a worker holds nothing while it waits for a request lease.
    #[must_use]
    pub fn is_suspended(&self, worker: WorkerId) -> bool {
        self.workers.is_suspended(worker.key(), &self.tasks)
    }

    /// How often a worker gave back what it held.
    #[must_use]
    pub fn yields(&self) -> u64 {
        self.workers.yield_count()
    }
}

/// The tokens are taken to be of this run: a driver of several runs tells them apart.
impl TaskResources for Pipeline {
    fn suspend(&mut self, now: Instant, token: &TaskToken) -> bool {
        let now = self.clock.observe(now);
        match self.workers.suspend(token.worker, &mut self.tasks) {
            Ok(key) => {
                self.emit_worker(now, key, SchedulerEventPayload::TaskYielded { worker: WorkerId(token.worker) });
                true
            }
            Err(is_suspended) => is_suspended,
        }
    }

    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool {
        match self.workers.resume(token.worker, &mut self.tasks) {
            Ok(key) => {
                let now = self.clock.observe(now);
                self.emit_worker(now, key, SchedulerEventPayload::TaskResumed { worker: WorkerId(token.worker) });
                true
            }
            Err(holds_it) => holds_it,
        }
    }

    fn can_resume(&self, token: &TaskToken) -> bool {
        let Some(demand) = self.workers.demand_of(token.worker, &self.tasks) else { return true };
        !self.workers.is_suspended(token.worker, &self.tasks) || self.tasks.tasks().is_available(demand)
    }

    fn correlation(&self, token: &TaskToken) -> Option<Correlation> {
        let key = self.workers.task_of(token.worker)?;
        Some(self.emitter.correlation(key, self.row_groups.attempts(&self.plan, key)))
    }

    fn is_stopping(&self, _: SlotKey) -> bool {
        // A worker that is aborted withdraws its request by itself, and hears of no rejection.
        matches!(self.lifecycle.state(), RunState::Stopping(mode) if mode != StopMode::Abort)
    }

    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool {
        let demand_of = |token: &TaskToken| self.workers.demand_of(token.worker, &self.tasks);
        let (Some(demand), Some(held)) = (demand_of(token), demand_of(holder)) else { return false };
        self.tasks.tasks().shares_shortage(demand, held)
    }
}
