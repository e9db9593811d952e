//! Keeps books of a run from its events alone, and compares them with what the run says of itself.

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::lease::LeaseId;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};
use crate::pipeline::tests::harness::Rig;

/// Where a task stands, as its last event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ready,
    Queued,
    Selected,
    Leased(LeaseId),
    Running(WorkerId, LeaseId),
    /// It waits for a request lease and holds nothing.
    Yielded(WorkerId, LeaseId),
    /// The worker ended; its lease is not back.
    Ended(LeaseId),
    /// Done, or about to be kept or dropped.
    Released,
    Kept,
    /// Not tried again.
    Gone,
}

/// What the events of one run add up to.
#[derive(Debug, Default)]
pub(crate) struct Books {
    next: u64,
    last: Option<SchedulerEvent>,
    tasks: BTreeMap<u64, Step>,
    workers: BTreeSet<WorkerId>,
    leases: BTreeSet<LeaseId>,
    /// Row groups that were admitted, and neither saved nor discarded.
    row_groups: BTreeSet<u32>,
    pub(crate) queued: usize,
}

impl Books {
    /// Workers that hold nothing while they wait for a request lease.
    pub(crate) fn yielded(&self) -> usize {
        self.tasks.values().filter(|step| matches!(step, Step::Yielded(..))).count()
    }

    /// Reads what was told since the last call, and compares.
    pub(crate) fn look(&mut self, rig: &mut Rig) {
        for event in rig.events() {
            self.enter(&event);
        }
        assert_eq!(rig.pipeline.dropped_events(), 0);
        let progress = rig.pipeline.progress();
        assert_eq!((self.workers.len(), self.queued), (progress.running, progress.queued), "{:?}", self.last);
        assert_eq!(self.leases.len(), rig.pipeline.active_leases());
        let running: BTreeSet<WorkerId> = rig.running.iter().map(|task| task.worker).collect();
        assert_eq!(self.workers, running);
    }

    pub(crate) fn enter(&mut self, event: &SchedulerEvent) {
        assert_eq!(event.sequence, self.next, "no gap");
        assert!(self.last.is_none_or(|last| last.at <= event.at), "time goes on");
        assert_eq!(event.sequence == 0, matches!(event.fact, SchedulerFact::JobStarted { .. }), "{event:?}");
        let is_over = self.last.is_some_and(|last| matches!(last.fact, SchedulerFact::JobCompleted { .. }));
        assert!(!is_over, "{event:?} after the end");
        if let Some(task) = event.correlation.task {
            self.step(task, event);
        }
        match event.fact {
            SchedulerFact::QueueDrained { discarded } => {
                assert!(discarded == 0 || self.queued == discarded as usize, "{event:?} of {}", self.queued);
                self.queued -= discarded as usize;
                assert_eq!(self.queued, 0);
            }
            SchedulerFact::QueueEmpty => assert_eq!(self.queued, 0),
            SchedulerFact::StaleSelection => panic!("selecting and leasing are one step"),
            SchedulerFact::RowGroupAdmitted { .. } => {
                assert!(event.correlation.row_group.is_some_and(|row_group| self.row_groups.insert(row_group)));
            }
            SchedulerFact::RowGroupCheckpointed { .. } | SchedulerFact::RowGroupDiscarded { .. } => {
                assert!(event.correlation.row_group.is_some_and(|row_group| self.row_groups.remove(&row_group)));
            }
            SchedulerFact::JobCompleted { .. } => {
                assert!(self.leases.is_empty() && self.workers.is_empty() && self.row_groups.is_empty());
            }
            _ => {}
        }
        self.next += 1;
        self.last = Some(*event);
    }

    fn step(&mut self, task: u64, event: &SchedulerEvent) {
        use SchedulerFact as Fact;
        let before = self.tasks.get(&task).copied();
        let step = match (before, event.fact) {
            (None, Fact::DependencyReady) | (Some(Step::Kept), Fact::SalvageRedispatched) => Step::Ready,
            (Some(Step::Ready), Fact::ReadyEnqueued { queued }) => {
                self.queued += 1;
                assert_eq!(queued as usize, self.queued);
                Step::Queued
            }
            (Some(Step::Queued), Fact::Selected { queued }) => {
                self.queued -= 1;
                assert_eq!(queued as usize, self.queued);
                Step::Selected
            }
            (Some(Step::Selected), Fact::TaskLeaseAcquired { lease, active }) => {
                assert!(self.leases.insert(lease));
                assert_eq!(active as usize, self.leases.len());
                Step::Leased(lease)
            }
            (Some(Step::Leased(lease)), Fact::WorkerSpawned { worker }) => {
                assert!(self.workers.insert(worker));
                Step::Running(worker, lease)
            }
            (Some(Step::Running(worker, lease)), Fact::TaskYielded { worker: yielded }) => {
                assert_eq!(yielded, worker);
                Step::Yielded(worker, lease)
            }
            (Some(Step::Yielded(worker, lease)), Fact::TaskResumed { worker: resumed }) => {
                assert_eq!(resumed, worker);
                Step::Running(worker, lease)
            }
            (
                Some(Step::Running(worker, lease) | Step::Yielded(worker, lease)),
                Fact::TaskCompleted { worker: ended, .. } | Fact::WorkerSpawnFailed { worker: ended },
            ) => {
                assert!(ended == worker && self.workers.remove(&worker));
                Step::Ended(lease)
            }
            (Some(Step::Ended(held)), Fact::TaskLeaseReleased { lease, active }) => {
                assert!(held == lease && self.leases.remove(&lease));
                assert_eq!(active as usize, self.leases.len());
                Step::Released
            }
            (Some(Step::Released), Fact::RetryDeferred { .. }) => Step::Kept,
            (Some(Step::Queued), Fact::Cancelled { queued: true }) => {
                self.queued -= 1;
                Step::Gone
            }
            (Some(Step::Released | Step::Kept), Fact::Cancelled { queued: false })
            | (Some(Step::Released), Fact::NonRetryableDropped { .. }) => Step::Gone,
            // Of the task that waits, and no change to it.
            (
                Some(step @ Step::Queued),
                Fact::AdmissionBlocked { .. }
                | Fact::AdmissionDenied { .. }
                | Fact::GroupCapped { .. }
                | Fact::PressureAdvisorySkipped { .. }
                | Fact::LivenessOverride,
            ) => step,
            _ => panic!("{event:?} of a task that was {before:?}"),
        };
        self.tasks.insert(task, step);
    }
}
