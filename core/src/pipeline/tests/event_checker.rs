//! Computes the state of a run from its events alone, and compares it with what the pipeline reports.

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::lease::LeaseId;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::tests::harness::Rig;

/// The state of a task according to its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskStatus {
    Ready,
    Queued,
    Selected,
    Leased(LeaseId),
    Running(WorkerId, LeaseId),
    /// The worker waits for a request lease and holds no task resources.
    Yielded(WorkerId, LeaseId),
    /// The worker follows the lead of its batch, and holds no lease.
    Following(WorkerId),
    /// The worker ended, and its lease is not released yet.
    Ended(LeaseId),
    /// The lease was released. The task is done, or is about to be deferred or dropped.
    Released,
    Deferred,
    /// The task is not retried.
    Discarded,
}

/// The state of one run, computed from its events.
#[derive(Debug, Default)]
pub(crate) struct EventTotals {
    next: u64,
    last: Option<SchedulerEvent>,
    tasks: BTreeMap<u64, TaskStatus>,
    workers: BTreeSet<WorkerId>,
    leases: BTreeSet<LeaseId>,
    /// The row groups that were admitted, and neither saved nor discarded.
    row_groups: BTreeSet<u32>,
    pub(crate) queued: usize,
}

impl EventTotals {
    /// Returns the number of workers that hold no task resources while they wait for a request lease.
    pub(crate) fn yielded(&self) -> usize {
        self.tasks.values().filter(|step| matches!(step, TaskStatus::Yielded(..))).count()
    }

    /// Applies the events since the last call, and compares the state with the pipeline.
    pub(crate) fn check(&mut self, rig: &mut Rig) {
        for event in rig.events() {
            self.apply(&event);
        }
        assert_eq!(rig.pipeline.dropped_events(), 0);
        let progress = rig.pipeline.progress();
        assert_eq!((self.workers.len(), self.queued), (progress.running, progress.queued), "{:?}", self.last);
        assert_eq!(self.leases.len(), rig.pipeline.active_leases());
        let running: BTreeSet<WorkerId> = rig.running.iter().map(|task| task.worker).collect();
        assert_eq!(self.workers, running);
    }

    pub(crate) fn apply(&mut self, event: &SchedulerEvent) {
        assert_eq!(event.sequence, self.next, "no gap");
        assert!(self.last.is_none_or(|last| last.at <= event.at), "time does not go backwards");
        assert_eq!(event.sequence == 0, matches!(event.payload, SchedulerEventPayload::JobStarted { .. }), "{event:?}");
        let is_over = self.last.is_some_and(|last| matches!(last.payload, SchedulerEventPayload::JobCompleted { .. }));
        assert!(!is_over, "{event:?} after the end");
        if let Some(task) = event.correlation.task {
            self.step(task, event);
        }
        match event.payload {
            SchedulerEventPayload::QueueDrained { discarded } => {
                assert!(discarded == 0 || self.queued == discarded as usize, "{event:?} of {}", self.queued);
                self.queued -= discarded as usize;
                assert_eq!(self.queued, 0);
            }
            SchedulerEventPayload::QueueEmpty => assert_eq!(self.queued, 0),
            SchedulerEventPayload::StaleSelection => panic!("selecting and leasing are one step"),
            SchedulerEventPayload::RowGroupAdmitted { .. } => {
                assert!(event.correlation.row_group.is_some_and(|row_group| self.row_groups.insert(row_group)));
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                assert!(event.correlation.row_group.is_some_and(|row_group| self.row_groups.remove(&row_group)));
            }
            SchedulerEventPayload::JobCompleted { .. } => {
                assert!(self.leases.is_empty() && self.workers.is_empty() && self.row_groups.is_empty());
            }
            _ => {}
        }
        self.next += 1;
        self.last = Some(*event);
    }

    fn step(&mut self, task: u64, event: &SchedulerEvent) {
        use SchedulerEventPayload as Payload;
        let before = self.tasks.get(&task).copied();
        let step = match (before, event.payload) {
            (None, Payload::DependencyReady) | (Some(TaskStatus::Deferred), Payload::SalvageRedispatched) => {
                TaskStatus::Ready
            }
            (Some(TaskStatus::Ready), Payload::ReadyEnqueued { queued }) => {
                self.queued += 1;
                assert_eq!(queued as usize, self.queued);
                TaskStatus::Queued
            }
            (Some(TaskStatus::Queued), Payload::Selected { queued }) => {
                self.queued -= 1;
                assert_eq!(queued as usize, self.queued);
                TaskStatus::Selected
            }
            (Some(TaskStatus::Selected), Payload::TaskLeaseAcquired { lease, active }) => {
                assert!(self.leases.insert(lease));
                assert_eq!(active as usize, self.leases.len());
                TaskStatus::Leased(lease)
            }
            (Some(TaskStatus::Leased(lease)), Payload::WorkerSpawned { worker }) => {
                assert!(self.workers.insert(worker));
                TaskStatus::Running(worker, lease)
            }
            (Some(TaskStatus::Running(worker, lease)), Payload::TaskYielded { worker: yielded }) => {
                assert_eq!(yielded, worker);
                TaskStatus::Yielded(worker, lease)
            }
            (Some(TaskStatus::Yielded(worker, lease)), Payload::TaskResumed { worker: resumed }) => {
                assert_eq!(resumed, worker);
                TaskStatus::Running(worker, lease)
            }
            (
                Some(TaskStatus::Running(worker, lease) | TaskStatus::Yielded(worker, lease)),
                Payload::TaskCompleted { worker: ended, .. } | Payload::WorkerSpawnFailed { worker: ended },
            ) => {
                assert!(ended == worker && self.workers.remove(&worker));
                TaskStatus::Ended(lease)
            }
            (Some(TaskStatus::Ready), Payload::WorkerSpawned { worker }) => {
                assert!(self.workers.insert(worker));
                TaskStatus::Following(worker)
            }
            (
                Some(TaskStatus::Following(worker)),
                Payload::TaskCompleted { worker: ended, .. } | Payload::WorkerSpawnFailed { worker: ended },
            ) => {
                assert!(ended == worker && self.workers.remove(&worker));
                TaskStatus::Released
            }
            (Some(TaskStatus::Ended(held)), Payload::TaskLeaseReleased { lease, active }) => {
                assert!(held == lease && self.leases.remove(&lease));
                assert_eq!(active as usize, self.leases.len());
                TaskStatus::Released
            }
            (Some(TaskStatus::Released), Payload::RetryDeferred { .. }) => TaskStatus::Deferred,
            (Some(TaskStatus::Queued), Payload::Cancelled { queued: true }) => {
                self.queued -= 1;
                TaskStatus::Discarded
            }
            (Some(TaskStatus::Released | TaskStatus::Deferred), Payload::Cancelled { queued: false })
            | (Some(TaskStatus::Released), Payload::NonRetryableDropped { .. }) => TaskStatus::Discarded,
            // These events concern a queued task and do not change its state.
            (
                Some(step @ TaskStatus::Queued),
                Payload::AdmissionBlocked { .. }
                | Payload::AdmissionDenied { .. }
                | Payload::GroupCapped { .. }
                | Payload::PressureAdvisorySkipped { .. }
                | Payload::LivenessOverride,
            ) => step,
            _ => panic!("{event:?} of a task that was {before:?}"),
        };
        self.tasks.insert(task, step);
    }
}
