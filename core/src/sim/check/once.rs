//! Every task is made once: tries are numbered, one follows another, and none follows a success or a failure
//! for good.

use alloc::collections::BTreeMap;
use alloc::format;

use super::open_row_groups::{CellKey, OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, hold};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{RunReport, TaskOutcome, WorkerId};

/// Where each task of the row groups in work stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Once {
    groups: BTreeMap<u32, BTreeMap<CellKey, CheckedTask>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CheckedTask {
    tries: u32,
    stage: CheckedTaskState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CheckedTaskState {
    #[default]
    Idle,
    Queued,
    /// Chosen, and not yet started.
    Selected,
    Running(WorkerId),
    /// Made, skipped, or failed for good.
    Ended,
}

impl CheckedTask {
    fn advance(&mut self, payload: &SchedulerEventPayload, attempt: Option<u32>) -> CheckResult {
        let Self { tries, stage } = *self;
        let expect = |expected: CheckedTaskState, what: &str| {
            hold(stage == expected, || format!("it {what} while it was {stage:?}, not {expected:?}"))
        };
        match *payload {
            SchedulerEventPayload::ReadyEnqueued { .. } => {
                expect(CheckedTaskState::Idle, "was queued")?;
                self.stage = CheckedTaskState::Queued;
            }
            SchedulerEventPayload::Selected { .. } => {
                expect(CheckedTaskState::Queued, "was selected")?;
                self.stage = CheckedTaskState::Selected;
            }
            SchedulerEventPayload::Cancelled { queued: true } => {
                expect(CheckedTaskState::Queued, "was taken out of the queue")?;
                self.stage = CheckedTaskState::Idle;
            }
            SchedulerEventPayload::WorkerSpawned { worker } => {
                expect(CheckedTaskState::Selected, "was started")?;
                let next = tries + 1;
                let told = attempt.unwrap_or(0);
                hold(told == next, || format!("try {told} came where try {next} was due"))?;
                *self = Self { tries: next, stage: CheckedTaskState::Running(worker) };
            }
            SchedulerEventPayload::WorkerSpawnFailed { worker } => {
                expect(CheckedTaskState::Running(worker), "could not be started")?;
                *self = Self { tries: tries - 1, stage: CheckedTaskState::Idle };
            }
            SchedulerEventPayload::TaskCompleted { worker, outcome } => {
                expect(CheckedTaskState::Running(worker), "ended")?;
                let is_final =
                    matches!(outcome, Some(TaskOutcome::Success | TaskOutcome::Skipped | TaskOutcome::Failed(_)));
                self.stage = if is_final { CheckedTaskState::Ended } else { CheckedTaskState::Idle };
            }
            _ => {}
        }
        Ok(())
    }
}

impl Check for Once {
    const LAW: Law = Law::Once;

    fn on_event(&mut self, _: &Rules, open: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match (&event.payload, task_of(event), event.correlation.row_group) {
            (SchedulerEventPayload::RowGroupAdmitted { .. }, _, Some(row_group)) => {
                let before = self.groups.insert(row_group, BTreeMap::default());
                hold(before.is_none(), || format!("row group {row_group} was admitted twice"))
            }
            (
                SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. },
                _,
                Some(row_group),
            ) => {
                self.groups.remove(&row_group);
                Ok(())
            }
            (SchedulerEventPayload::QueueDrained { discarded: 1.. }, ..) => {
                for task in self.groups.values_mut().flat_map(BTreeMap::values_mut) {
                    if task.stage == CheckedTaskState::Queued {
                        task.stage = CheckedTaskState::Idle;
                    }
                }
                Ok(())
            }
            (payload, Some(task), _) => {
                let Some(group) = self.groups.get_mut(&task.row_group) else {
                    return Err(format!("{:?} of a row group that is not in work", payload.kind()));
                };
                if let SchedulerEventPayload::WorkerSpawned { .. } = payload {
                    let is_live = open.group(task.row_group).is_some_and(|group| group.is_live(task.row));
                    hold(is_live, || "it was started after its rows were dropped".into())?;
                }
                group.entry((task.column, task.row)).or_default().advance(payload, event.correlation.attempt)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let open = |task: &&CheckedTask| !matches!(task.stage, CheckedTaskState::Idle | CheckedTaskState::Ended);
        let open = self.groups.values().flat_map(BTreeMap::values).find(open);
        open.map_or(Ok(()), |task| Err(format!("a task is still {:?} at the end", task.stage)))
    }
}
