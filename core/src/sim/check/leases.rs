//! Checks that no worker starts without a lease, that none ends twice, and that all leases are released.

use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, TaskName, ensure};
use crate::lease::LeaseId;
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{RunReport, WorkerId};

/// The leases and workers of the tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    held: Map<TaskName, LeaseId>,
    workers: Map<TaskName, Worker>,
    /// The task of each worker, so that it is found without a search.
    task_of_worker: Map<WorkerId, TaskName>,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    id: WorkerId,
    /// Whether it gave its lease back while it waits for a call.
    has_yielded: bool,
}

impl Leases {
    fn acquired(&mut self, task: TaskName, lease: LeaseId, active: u32) -> CheckResult {
        let before = self.held.insert(task, lease);
        ensure(before.is_none(), || format!("it already holds {before:?}"))?;
        let held = self.held.len();
        ensure(active as usize == held, || format!("the event counts {active} active leases instead of {held}"))
    }

    fn released(&mut self, task: TaskName, lease: LeaseId, active: u32) -> CheckResult {
        let before = self.held.remove(&task);
        ensure(before == Some(lease), || format!("it released {lease:?}, but held {before:?}"))?;
        let is_running = self.workers.get(&task).is_some_and(|worker| !worker.has_yielded);
        ensure(!is_running, || "its lease was released while its worker was running".into())?;
        let held = self.held.len();
        ensure(active as usize == held, || format!("the event counts {active} active leases instead of {held}"))
    }

    fn spawned(&mut self, task: TaskName, id: WorkerId) -> CheckResult {
        ensure(self.held.contains_key(&task), || "its worker was started without a lease".into())?;
        let other = self.task_of_worker.insert(id, task);
        ensure(other.is_none(), || format!("{id:?} is already running another task"))?;
        let before = self.workers.insert(task, Worker { id, has_yielded: false });
        ensure(before.is_none(), || format!("{before:?} is already running it"))
    }

    fn ended(&mut self, task: TaskName, id: WorkerId) -> CheckResult {
        let before = self.workers.remove(&task);
        self.task_of_worker.remove(&id);
        ensure(before.is_some_and(|worker| worker.id == id), || format!("{id:?} ended, but {before:?} was running it"))
    }

    fn yielded(&mut self, task: TaskName, id: WorkerId, has_yielded: bool) -> CheckResult {
        let is_leased = self.held.contains_key(&task);
        let worker = self.workers.get_mut(&task).filter(|worker| worker.id == id && worker.has_yielded != has_yielded);
        let Some(worker) = worker else { return Err(format!("{id:?} is not running, or yielded or resumed twice")) };
        worker.has_yielded = has_yielded;
        ensure(has_yielded || is_leased, || "it resumed without a lease".into())
    }
}

impl Check for Leases {
    const LAW: Law = Law::Leases;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        let Some(task) = task_of(event) else {
            let is_irregular = matches!(event.payload, SchedulerEventPayload::ReleaseDiagnostic { .. });
            return ensure(!is_irregular, || format!("{:?}", event.payload));
        };
        match event.payload {
            SchedulerEventPayload::TaskLeaseAcquired { lease, active } => self.acquired(task, lease, active),
            SchedulerEventPayload::TaskLeaseReleased { lease, active } => self.released(task, lease, active),
            SchedulerEventPayload::WorkerSpawned { worker } => self.spawned(task, worker),
            SchedulerEventPayload::TaskCompleted { worker, .. }
            | SchedulerEventPayload::WorkerSpawnFailed { worker } => self.ended(task, worker),
            SchedulerEventPayload::TaskYielded { worker } => self.yielded(task, worker, true),
            SchedulerEventPayload::TaskResumed { worker } => self.yielded(task, worker, false),
            SchedulerEventPayload::StaleSelection => Err("it was selected after it had left the queue".into()),
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let (held, workers) = (self.held.len(), self.workers.len());
        ensure(held == 0 && workers == 0, || format!("{held} leases and {workers} workers are left at the end"))
    }
}
