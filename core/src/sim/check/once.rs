//! Checks that every task is completed once: attempts are numbered, one starts after the previous one has
//! ended, and none follows a success or a final failure.

use alloc::collections::BTreeMap;
use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules, TaskInRowGroup, task_of};
use super::{Check, CheckResult, Law, ensure};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{RunReport, TaskOutcome, WorkerId};

/// The state of each task of the row groups in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Once {
    groups: BTreeMap<u32, BTreeMap<TaskInRowGroup, CheckedTask>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CheckedTask {
    /// The number of started attempts.
    attempts: u32,
    state: CheckedTaskState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CheckedTaskState {
    #[default]
    Idle,
    Queued,
    /// Selected, and not started yet.
    Selected,
    Running(WorkerId),
    /// Succeeded, skipped, or failed for good.
    Ended,
}

impl CheckedTask {
    fn advance(&mut self, payload: &SchedulerEventPayload, attempt: Option<u32>) -> CheckResult {
        let Self { attempts, state } = *self;
        let expect = |expected: CheckedTaskState, what: &str| {
            ensure(state == expected, || format!("it {what} while it was {state:?}, not {expected:?}"))
        };
        match *payload {
            SchedulerEventPayload::ReadyEnqueued { .. } => {
                expect(CheckedTaskState::Idle, "was queued")?;
                self.state = CheckedTaskState::Queued;
            }
            SchedulerEventPayload::Selected { .. } => {
                expect(CheckedTaskState::Queued, "was selected")?;
                self.state = CheckedTaskState::Selected;
            }
            SchedulerEventPayload::Cancelled { queued: true } => {
                expect(CheckedTaskState::Queued, "was removed from the queue")?;
                self.state = CheckedTaskState::Idle;
            }
            SchedulerEventPayload::WorkerSpawned { worker } => {
                expect(CheckedTaskState::Selected, "was started")?;
                let next = attempts + 1;
                let actual = attempt.unwrap_or(0);
                ensure(actual == next, || format!("attempt {actual} came instead of attempt {next}"))?;
                *self = Self { attempts: next, state: CheckedTaskState::Running(worker) };
            }
            SchedulerEventPayload::WorkerSpawnFailed { worker } => {
                expect(CheckedTaskState::Running(worker), "could not be started")?;
                *self = Self { attempts: attempts - 1, state: CheckedTaskState::Idle };
            }
            SchedulerEventPayload::TaskCompleted { worker, outcome } => {
                expect(CheckedTaskState::Running(worker), "ended")?;
                let is_final =
                    matches!(outcome, Some(TaskOutcome::Success | TaskOutcome::Skipped | TaskOutcome::Failed(_)));
                self.state = if is_final { CheckedTaskState::Ended } else { CheckedTaskState::Idle };
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
                ensure(before.is_none(), || format!("row group {row_group} was admitted twice"))
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
                    if task.state == CheckedTaskState::Queued {
                        task.state = CheckedTaskState::Idle;
                    }
                }
                Ok(())
            }
            (payload, Some(task), _) => {
                let Some(group) = self.groups.get_mut(&task.row_group) else {
                    return Err(format!("{:?} of a row group that is not in progress", payload.kind()));
                };
                if let SchedulerEventPayload::WorkerSpawned { .. } = payload {
                    let is_live = open.group(task.row_group).is_some_and(|group| group.is_live(task.row));
                    ensure(is_live, || "it was started after its rows were dropped".into())?;
                }
                group.entry((task.column, task.row)).or_default().advance(payload, event.correlation.attempt)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let is_unfinished =
            |task: &&CheckedTask| !matches!(task.state, CheckedTaskState::Idle | CheckedTaskState::Ended);
        let unfinished = self.groups.values().flat_map(BTreeMap::values).find(is_unfinished);
        unfinished.map_or(Ok(()), |task| Err(format!("a task is still {:?} at the end", task.state)))
    }
}
