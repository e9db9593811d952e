//! Workers that hold nothing while they wait for a request lease.
//!
//! The pipeline is the [`TaskResources`] of tied requests: it gives a [`YieldToken`] to the workers of columns that yield, takes back
//! what they hold when request admission says so, and gives it again when it is their turn.
//!
//! Suspended workers go before new ones. While one of them could have what it needs, the pipeline starts nothing and
//! says so with [`Pipeline::is_waiting_for_suspended`]. Whoever drives both machines calls [`Pipeline::settle_with`] after
//! each command of either, before anything else happens; it joins the two decisions into one.

use alloc::string::String;
use alloc::vec::Vec;

use crate::id::SlotKey;
use crate::lease::ReleaseAnswer;
use crate::pipeline::dispatch::route::Route;
use crate::pipeline::event::SchedulerFact;
use crate::pipeline::machine::{Pipeline, Worker};
use crate::pipeline::outcome::WorkerId;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::replay::RunCommand;
use crate::request::{RequestAdmission, RequestPressure, ResourceId};
use crate::task::{DemandId, GroupKind};
use crate::time::Instant;
use crate::yielding::{TaskResources, YieldToken};

/// Which columns yield, and who has.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Yielding {
    /// By column.
    columns: Vec<bool>,
    /// Suspended workers, by demand.
    suspended: Vec<u32>,
    /// The same by column.
    pub(in crate::pipeline) suspended_in: Vec<u32>,
    /// The number of this run among those of one controller. Without one nobody yields.
    run: Option<SlotKey>,
    /// Which request resources stand behind resources of the task stage.
    calls: Vec<(String, ResourceId)>,
    /// Something was left undone until the suspended workers have had their chance.
    owes: bool,
    yields: u64,
}

impl Yielding {
    pub(in crate::pipeline) fn of(plan: &Plan, routes: &[Route], is_on: bool) -> Self {
        let columns = plan.columns().iter();
        let yields = |kind| kind != GroupKind::Local;
        let columns: Vec<bool> =
            columns.map(|column| is_on && column.yields.unwrap_or(yields(column.group.kind))).collect();
        let demands = routes.iter().map(|route| route.demand.0 + 1).max().unwrap_or(0);
        Self {
            suspended: alloc::vec![0; demands as usize],
            suspended_in: alloc::vec![0; columns.len()],
            columns,
            run: None,
            calls: Vec::new(),
            owes: false,
            yields: 0,
        }
    }

    /// What a new worker may ask for request leases with.
    pub(in crate::pipeline) fn token(
        &self,
        worker: WorkerId,
        column: ColumnId,
        routes: &[Route],
    ) -> Option<YieldToken> {
        let run = self.run.filter(|_| self.columns[column.index()])?;
        Some(YieldToken { run, worker: worker.key(), vector: routes[column.index()].demand.0 })
    }
}

/// Yielding while waiting.
impl Pipeline {
    /// Lets the tasks make their calls through a controller of requests: say so before the run starts. `run` is its number among those that share
    /// the controller; `calls` names the resources of the task stage that stand for a request resource, each with that.
    ///
    /// From now on its tasks come with a [`YieldToken`], and [`Pipeline::look_at`] has something to look at.
    pub fn call_through(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        let calls: Vec<_> = calls.iter().map(|(name, resource)| (String::from(*name), *resource)).collect();
        self.recorder.note(self.effects.len(), || RunCommand::CallThrough { run, calls: calls.clone() });
        self.yielding.run = Some(run);
        self.yielding.calls = calls;
    }

    /// Takes note of which calls would have to wait. Call it before every command: tasks that would only wait are then
    /// passed over while others could call at once. O(request resources), nothing where there is only one.
    pub fn look_at(&mut self, now: Instant, admission: &RequestAdmission) {
        // Who has no choice needs no advice.
        if self.yielding.calls.len() > 1 {
            for at in 0..self.yielding.calls.len() {
                self.see(now, at, admission.pressure(now, self.yielding.calls[at].1));
            }
        }
    }

    /// What [`Pipeline::look_at`] saw.
    pub(crate) fn see_again(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        if let Some(at) = self.yielding.calls.iter().position(|(name, _)| name == resource) {
            self.see(now, at, pressure);
        }
    }

    /// Notes the pressure on one of its calls; takes it down if it is news.
    fn see(&mut self, now: Instant, call: usize, pressure: Option<RequestPressure>) {
        let Self { yielding, dispatcher, recorder, effects, .. } = self;
        let name = &yielding.calls[call].0;
        if dispatcher.set_request_pressure(name, pressure) {
            let seen = || RunCommand::SetRequestPressure { now, resource: name.clone(), pressure, looked: true };
            recorder.note(effects.len(), seen);
        }
    }

    /// Lets those suspended workers resume whose turn it is, then does what the pipeline has left undone for their sake.
    /// For the one run of a controller; where several share one, [`resume_yielded`](RequestAdmission::resume_yielded) with a stage
    /// that tells them apart, then [`Pipeline::go_on`] for each of them, do the same.
    ///
    /// Call it after every command of either machine; it does nothing unless one of them has something to do.
    pub fn settle_with(&mut self, now: Instant, admission: &mut RequestAdmission) {
        if self.yielding.owes || admission.needs_resume() {
            admission.resume_yielded(now, self);
            self.go_on(now);
        }
    }

    /// Whether the pipeline has left its own work undone because a suspended worker could have what it needs.
    #[must_use]
    pub fn is_waiting_for_suspended(&self) -> bool {
        self.yielding.owes
    }

    /// Does what was left undone, with what the suspended workers did not take.
    pub fn go_on(&mut self, now: Instant) {
        if core::mem::take(&mut self.yielding.owes) {
            self.recorder.note(self.effects.len(), || RunCommand::GoOn { now });
            let now = self.clock.observe(now);
            self.pump_on(now);
        }
    }

    /// Whether a worker holds nothing while it waits for a request lease.
    #[must_use]
    pub fn is_suspended(&self, worker: WorkerId) -> bool {
        self.workers.get(worker.key()).is_some_and(|worker| self.dispatcher.is_suspended(&worker.lease))
    }

    /// How often a worker gave back what it held.
    #[must_use]
    pub fn yields(&self) -> u64 {
        self.yielding.yields
    }

    /// Whether suspended workers go first now; notes that the pump is owed.
    pub(in crate::pipeline) fn defers_to_suspended(&mut self) -> bool {
        let Self { yielding, dispatcher, .. } = self;
        if dispatcher.suspended_leases() == 0 {
            return false;
        }
        let is_free = |(demand, count): (u32, &u32)| *count > 0 && dispatcher.is_available(DemandId(demand));
        yielding.owes = yielding.owes || (0..).zip(&yielding.suspended).any(is_free);
        yielding.owes
    }

    /// What a worker held is free again, if it was not before.
    pub(in crate::pipeline) fn release(&mut self, ended: Worker) -> ReleaseAnswer {
        if self.dispatcher.is_suspended(&ended.lease) {
            self.yielding.suspended[self.routes[ended.key.column.index()].demand.0 as usize] -= 1;
            self.yielding.suspended_in[ended.key.column.index()] -= 1;
        }
        let answer = self.dispatcher.release(ended.lease);
        debug_assert_eq!(answer, ReleaseAnswer::Released, "a worker's lease is live until it answers");
        answer
    }

    fn worker_of(&self, tie: &YieldToken) -> Option<&Worker> {
        self.workers.get(tie.worker)
    }
}

/// `run` is taken for granted: several runs are told apart by whoever drives them.
impl TaskResources for Pipeline {
    fn suspend(&mut self, now: Instant, tie: &YieldToken) -> bool {
        let now = self.clock.observe(now);
        let Self { workers, dispatcher, yielding, routes, .. } = self;
        let Some(Worker { key, lease, .. }) = workers.get(tie.worker) else { return false };
        let (key, column) = (*key, key.column.index());
        let is_suspended = dispatcher.is_suspended(lease);
        if is_suspended || !yielding.columns[column] || !dispatcher.suspend(lease) {
            return is_suspended;
        }
        yielding.suspended[routes[column].demand.0 as usize] += 1;
        yielding.suspended_in[column] += 1;
        yielding.yields += 1;
        // What came back is for others; who goes first is not known yet.
        yielding.owes = true;
        self.tell_worker(now, key, SchedulerFact::TaskYielded { worker: WorkerId(tie.worker) });
        true
    }

    fn resume(&mut self, now: Instant, tie: &YieldToken) -> bool {
        let Self { workers, dispatcher, yielding, routes, .. } = self;
        let Some(Worker { key, lease, .. }) = workers.get(tie.worker) else { return true };
        if !dispatcher.is_suspended(lease) {
            return true;
        }
        if !dispatcher.resume(lease) {
            return false;
        }
        let key = *key;
        yielding.suspended[routes[key.column.index()].demand.0 as usize] -= 1;
        yielding.suspended_in[key.column.index()] -= 1;
        let now = self.clock.observe(now);
        self.tell_worker(now, key, SchedulerFact::TaskResumed { worker: WorkerId(tie.worker) });
        true
    }

    fn can_resume(&self, tie: &YieldToken) -> bool {
        let Some(worker) = self.worker_of(tie) else { return true };
        !self.dispatcher.is_suspended(&worker.lease)
            || self.dispatcher.is_available(self.routes[worker.key.column.index()].demand)
    }

    fn blocks(&self, holder: &YieldToken, token: &YieldToken) -> bool {
        let demand_of = |token| self.worker_of(token).map(|worker| self.routes[worker.key.column.index()].demand);
        let (Some(demand), Some(held)) = (demand_of(token), demand_of(holder)) else { return false };
        self.dispatcher.shares_shortage(demand, held)
    }
}
