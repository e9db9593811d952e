//! Every task is made once: tries are numbered, one follows another, and none follows a success or a failure
//! for good.

use alloc::collections::BTreeMap;
use alloc::format;

use super::books::{Books, Place, Rules, task_of};
use super::{Check, Law, Verdict, hold};
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};
use crate::pipeline::{RunReport, TaskOutcome, WorkerId};

/// Where each task of the row groups in work stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Once {
    groups: BTreeMap<u32, BTreeMap<Place, Task>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    tries: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Queued,
    /// Chosen, and not yet started.
    Chosen,
    Running(WorkerId),
    /// Made, skipped, or failed for good.
    Ended,
}

impl Task {
    fn advance(&mut self, fact: &SchedulerFact, attempt: Option<u32>) -> Verdict {
        let Self { tries, stage } = *self;
        let expect = |expected: Stage, what: &str| {
            hold(stage == expected, || format!("it {what} while it was {stage:?}, not {expected:?}"))
        };
        match *fact {
            SchedulerFact::ReadyEnqueued { .. } => {
                expect(Stage::Idle, "was queued")?;
                self.stage = Stage::Queued;
            }
            SchedulerFact::Selected { .. } => {
                expect(Stage::Queued, "was selected")?;
                self.stage = Stage::Chosen;
            }
            SchedulerFact::Cancelled { queued: true } => {
                expect(Stage::Queued, "was taken out of the queue")?;
                self.stage = Stage::Idle;
            }
            SchedulerFact::WorkerSpawned { worker } => {
                expect(Stage::Chosen, "was started")?;
                let next = tries + 1;
                let told = attempt.unwrap_or(0);
                hold(told == next, || format!("try {told} came where try {next} was due"))?;
                *self = Self { tries: next, stage: Stage::Running(worker) };
            }
            SchedulerFact::WorkerSpawnFailed { worker } => {
                expect(Stage::Running(worker), "could not be started")?;
                *self = Self { tries: tries - 1, stage: Stage::Idle };
            }
            SchedulerFact::TaskCompleted { worker, outcome } => {
                expect(Stage::Running(worker), "ended")?;
                let is_final =
                    matches!(outcome, Some(TaskOutcome::Success | TaskOutcome::Skipped | TaskOutcome::Failed(_)));
                self.stage = if is_final { Stage::Ended } else { Stage::Idle };
            }
            _ => {}
        }
        Ok(())
    }
}

impl Check for Once {
    const LAW: Law = Law::Once;

    fn on_event(&mut self, _: &Rules, books: &Books, event: &SchedulerEvent) -> Verdict {
        match (&event.fact, task_of(event), event.correlation.row_group) {
            (SchedulerFact::RowGroupAdmitted { .. }, _, Some(row_group)) => {
                let before = self.groups.insert(row_group, BTreeMap::default());
                hold(before.is_none(), || format!("row group {row_group} was admitted twice"))
            }
            (
                SchedulerFact::RowGroupCheckpointed { .. } | SchedulerFact::RowGroupDiscarded { .. },
                _,
                Some(row_group),
            ) => {
                self.groups.remove(&row_group);
                Ok(())
            }
            (SchedulerFact::QueueDrained { discarded: 1.. }, ..) => {
                for task in self.groups.values_mut().flat_map(BTreeMap::values_mut) {
                    if task.stage == Stage::Queued {
                        task.stage = Stage::Idle;
                    }
                }
                Ok(())
            }
            (fact, Some(task), _) => {
                let Some(group) = self.groups.get_mut(&task.row_group) else {
                    return Err(format!("{:?} of a row group that is not in work", fact.kind()));
                };
                if let SchedulerFact::WorkerSpawned { .. } = fact {
                    let is_live = books.group(task.row_group).is_some_and(|group| group.is_live(task.row));
                    hold(is_live, || "it was started after its rows were dropped".into())?;
                }
                group.entry((task.column, task.row)).or_default().advance(fact, event.correlation.attempt)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> Verdict {
        let open = |task: &&Task| !matches!(task.stage, Stage::Idle | Stage::Ended);
        let open = self.groups.values().flat_map(BTreeMap::values).find(open);
        open.map_or(Ok(()), |task| Err(format!("a task is still {:?} at the end", task.stage)))
    }
}
