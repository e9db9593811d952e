//! The workers of a run: the lease of each worker, and which workers have yielded.
//!
//! A yielded worker holds no task resources while it waits for a request lease.

use alloc::string::String;
use alloc::vec::Vec;

use super::queue::TaskQueue;
use crate::id::{KeyState, SlotKey, Slots};
use crate::lease::{LeaseId, ReleaseResult};
use crate::pipeline::outcome::WorkerId;
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::request::ResourceId;
use crate::task::{DemandId, GroupKind, TaskLease};
use crate::yielding::TaskToken;

/// The workers that have not ended.
#[derive(Debug)]
pub(crate) struct Workers {
    live: Slots<Worker>,
    /// By column: whether its workers yield.
    yields: Vec<bool>,
    /// Yielded workers, by demand.
    yielded_by_demand: Vec<u32>,
    /// Yielded workers, by column.
    yielded_by_column: Vec<u32>,
    /// The number of this run in its `RequestAdmission`. `None` without one; then no worker yields.
    run: Option<SlotKey>,
    /// The task resources that represent request resources.
    calls: Vec<(String, ResourceId)>,
    /// Whether tasks could be dispatched after the yielded workers have had the chance to resume.
    is_dispatch_pending: bool,
    /// Whether the run has begun to stop, and its waiting requests are not denied yet.
    is_denial_pending: bool,
    yield_count: u64,
}

#[derive(Debug)]
struct Worker {
    key: TaskKey,
    /// `None` for a worker that follows the lead of its batch.
    lease: Option<TaskLease>,
    is_aborted: bool,
}

impl Worker {
    fn has_yielded(&self, tasks: &TaskQueue) -> bool {
        self.lease.as_ref().is_some_and(|lease| tasks.tasks().has_yielded(lease))
    }
}

/// A worker that has ended, and whose lease was released if it held one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedWorker {
    pub(crate) key: TaskKey,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) result: ReleaseResult,
}

impl Workers {
    pub(crate) fn new(plan: &Plan, tasks: &TaskQueue, yield_while_waiting: bool) -> Self {
        let columns = plan.columns().iter();
        let yields =
            columns.map(|column| yield_while_waiting && column.yields.unwrap_or(column.group.kind != GroupKind::Local));
        let demands = tasks.routes().iter().map(|route| route.demand.0 + 1).max().unwrap_or(0);
        Self {
            live: Slots::default(),
            yields: yields.collect(),
            yielded_by_demand: alloc::vec![0; demands as usize],
            yielded_by_column: alloc::vec![0; plan.columns().len()],
            run: None,
            calls: Vec::new(),
            is_dispatch_pending: false,
            is_denial_pending: false,
            yield_count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Adds a worker for a task, with the task lease that it holds. A worker that follows the lead of its
    /// batch holds none.
    pub(crate) fn start(&mut self, key: TaskKey, lease: Option<TaskLease>) -> WorkerId {
        WorkerId(self.live.insert(Worker { key, lease, is_aborted: false }))
    }

    /// Removes a worker and releases its lease. Returns an error if no worker with this id runs.
    pub(crate) fn end(&mut self, worker: WorkerId, tasks: &mut TaskQueue) -> Result<EndedWorker, ReleaseResult> {
        let Some(Worker { key, lease, .. }) = self.live.remove(worker.key()) else {
            return Err(match self.live.state(worker.key()) {
                KeyState::Spent => ReleaseResult::Duplicate,
                _ => ReleaseResult::UnknownLease,
            });
        };
        let Some(lease) = lease else { return Ok(EndedWorker { key, lease: None, result: ReleaseResult::Released }) };
        if tasks.tasks().has_yielded(&lease) {
            self.yielded_by_demand[tasks.route(key.column).demand.0 as usize] -= 1;
            self.yielded_by_column[key.column.index()] -= 1;
        }
        let id = lease.id();
        let result = tasks.release(lease);
        debug_assert_eq!(result, ReleaseResult::Released, "the lease of a worker is live until the worker ends");
        Ok(EndedWorker { key, lease: Some(id), result })
    }

    /// Marks every worker as aborted. Returns the workers that were not aborted before.
    pub(crate) fn abort_all(&mut self) -> Vec<WorkerId> {
        let keys: Vec<SlotKey> =
            self.live.iter().filter(|(_, worker)| !worker.is_aborted).map(|(key, _)| key).collect();
        for key in &keys {
            if let Some(worker) = self.live.get_mut(*key) {
                worker.is_aborted = true;
            }
        }
        keys.into_iter().map(WorkerId).collect()
    }
}

/// Yielding.
impl Workers {
    /// Lets the workers make calls through a `RequestAdmission`, in which the run has the number `run`.
    pub(crate) fn set_request_resources(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        self.run = Some(run);
        self.calls = calls.iter().map(|(name, resource)| (String::from(*name), *resource)).collect();
    }

    /// Returns the task resources that represent request resources.
    pub(crate) fn calls(&self) -> &[(String, ResourceId)] {
        &self.calls
    }

    /// Returns the token with which a worker requests leases for calls, or `None` without a
    /// `RequestAdmission`.
    pub(crate) fn token(&self, worker: WorkerId, column: ColumnId, tasks: &TaskQueue) -> Option<TaskToken> {
        let demand = self.yields[column.index()].then(|| tasks.route(column).demand.0);
        Some(TaskToken { run: self.run?, worker: worker.key(), demand })
    }

    /// Releases the task resources of a worker, if its column yields. Returns the task of the worker. If
    /// nothing was released, returns as an error whether the worker had yielded before.
    pub(crate) fn yield_resources(&mut self, worker: SlotKey, tasks: &mut TaskQueue) -> Result<TaskKey, bool> {
        let Some(Worker { key, lease: Some(lease), .. }) = self.live.get(worker) else { return Err(false) };
        let column = key.column.index();
        let has_yielded = tasks.tasks().has_yielded(lease);
        if has_yielded || !self.yields[column] || !tasks.yield_resources(lease) {
            return Err(has_yielded);
        }
        self.yielded_by_demand[tasks.route(key.column).demand.0 as usize] += 1;
        self.yielded_by_column[column] += 1;
        self.yield_count += 1;
        // The released resources are for other tasks, but only after it is known whether a yielded worker
        // resumes.
        self.is_dispatch_pending = true;
        Ok(*key)
    }

    /// Acquires the task resources of a yielded worker again. Returns the task of the worker. If nothing
    /// was acquired, returns an error: true if the worker has not yielded or has ended, false if the
    /// resources are not available.
    pub(crate) fn resume(&mut self, worker: SlotKey, tasks: &mut TaskQueue) -> Result<TaskKey, bool> {
        let Some(Worker { key, lease: Some(lease), .. }) = self.live.get(worker) else { return Err(true) };
        if !tasks.tasks().has_yielded(lease) {
            return Err(true);
        }
        if !tasks.resume(lease) {
            return Err(false);
        }
        self.yielded_by_demand[tasks.route(key.column).demand.0 as usize] -= 1;
        self.yielded_by_column[key.column.index()] -= 1;
        Ok(*key)
    }

    /// Returns whether a worker has yielded.
    pub(crate) fn has_yielded(&self, worker: SlotKey, tasks: &TaskQueue) -> bool {
        self.live.get(worker).is_some_and(|worker| worker.has_yielded(tasks))
    }

    /// Returns the demand of a worker that has not ended.
    pub(crate) fn demand_of(&self, worker: SlotKey, tasks: &TaskQueue) -> Option<DemandId> {
        self.live.get(worker).map(|worker| tasks.route(worker.key.column).demand)
    }

    /// Returns the task of a worker that has not ended.
    pub(crate) fn task_of(&self, worker: SlotKey) -> Option<TaskKey> {
        self.live.get(worker).map(|worker| worker.key)
    }

    /// Returns the worker that has a task, if the worker has yielded. O(workers).
    pub(crate) fn yielded_worker_of(&self, task: TaskKey, tasks: &TaskQueue) -> Option<WorkerId> {
        let mut workers = self.live.iter();
        let found = workers.find(|(_, worker)| worker.key == task && worker.has_yielded(tasks));
        found.map(|(key, _)| WorkerId(key))
    }

    /// Returns the number of yielded workers of each column.
    pub(crate) fn yielded_by_column(&self) -> &[u32] {
        &self.yielded_by_column
    }

    /// Returns how often a worker has yielded.
    pub(crate) fn yield_count(&self) -> u64 {
        self.yield_count
    }

    /// Returns whether yielded workers resume before anything is dispatched. Dispatching is then pending.
    pub(crate) fn defer_dispatch(&mut self, tasks: &TaskQueue) -> bool {
        if tasks.tasks().yielded_leases() == 0 {
            return false;
        }
        let is_free = |(demand, count): (u32, &u32)| *count > 0 && tasks.tasks().is_available(DemandId(demand));
        self.is_dispatch_pending = self.is_dispatch_pending || (0..).zip(&self.yielded_by_demand).any(is_free);
        self.is_dispatch_pending
    }

    pub(crate) fn is_dispatch_pending(&self) -> bool {
        self.is_dispatch_pending
    }

    /// Marks the run as stopping, so that its waiting requests are denied.
    pub(crate) fn mark_stopping(&mut self) {
        self.is_denial_pending = self.run.is_some();
    }

    /// Returns whether the waiting requests of the run must be denied, and clears the flag.
    pub(crate) fn take_stop(&mut self) -> bool {
        core::mem::take(&mut self.is_denial_pending)
    }

    /// Returns whether dispatching is pending, and clears the flag.
    pub(crate) fn take_pending_dispatch(&mut self) -> bool {
        core::mem::take(&mut self.is_dispatch_pending)
    }
}
