//! Checks that each hook is called once and at the right time, and that no row group is saved without its
//! hooks.

use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, LifecycleStep, ensure};
use crate::map::Map;
use crate::pipeline::FinishedRowGroup;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};

/// The hook calls of each row group in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Hooks {
    groups: Map<u32, HookCalls>,
}

/// The states of the two hooks of one row group.
#[derive(Clone, Copy, Debug, Default)]
struct HookCalls {
    pre_batch: HookState,
    post_batch: HookState,
}

/// The state of one hook of one row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HookState {
    #[default]
    NotYet,
    Called,
    Passed,
    Failed,
}

impl HookState {
    fn call(&mut self) -> CheckResult {
        ensure(*self == Self::NotYet, || format!("a hook was called in the state {self:?}"))?;
        *self = Self::Called;
        Ok(())
    }

    fn end(&mut self, succeeded: bool) -> CheckResult {
        ensure(*self == Self::Called, || format!("a hook ended in the state {self:?}"))?;
        *self = if succeeded { Self::Passed } else { Self::Failed };
        Ok(())
    }
}

impl Hooks {
    fn calls_of(&mut self, row_group: u32) -> &mut HookCalls {
        self.groups.entry(row_group).or_default()
    }

    fn pre_batch(&mut self, rules: &Rules, open: &OpenRowGroups, row_group: u32) -> CheckResult {
        ensure(rules.config.pre_batch_hook, || "the run has no pre-batch hook".into())?;
        let Some(group) = open.group(row_group).filter(|group| group.running + group.queued == 0) else {
            return Err(format!("the hook of row group {row_group} was called while tasks were queued or running"));
        };
        for column in rules.plan.order().iter().copied().filter(|column| rules.seeds[column.index()]) {
            let is_made = group.is_done(&rules.plan, (column, None));
            ensure(is_made, || {
                format!("the hook was called before its seed, column {}, was complete", column.index())
            })?;
        }
        self.calls_of(row_group).pre_batch.call()
    }

    fn post_batch(&mut self, rules: &Rules, open: &OpenRowGroups, row_group: u32) -> CheckResult {
        ensure(rules.config.post_batch_hook, || "the run has no post-batch hook".into())?;
        let is_quiet = open.group(row_group).is_some_and(|group| group.running + group.queued == 0);
        ensure(is_quiet, || {
            format!("the hook of row group {row_group} was called while tasks were queued or running")
        })?;
        self.calls_of(row_group).post_batch.call()
    }

    fn checkpoint(&mut self, rules: &Rules, group: &FinishedRowGroup) -> CheckResult {
        let called = *self.calls_of(group.row_group);
        let is_missing = rules.config.post_batch_hook && called.post_batch != HookState::Passed;
        ensure(!is_missing, || format!("row group {} is saved without its post-batch hook", group.row_group))?;
        let is_missing = rules.config.pre_batch_hook && called.pre_batch != HookState::Passed && !group.live.is_empty();
        ensure(!is_missing, || format!("row group {} is saved without its pre-batch hook", group.row_group))
    }
}

impl Check for Hooks {
    const LAW: Law = Law::Hooks;

    fn on_event(&mut self, rules: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match (event.payload, task_of(event), event.correlation.row_group) {
            (SchedulerEventPayload::WorkerSpawned { .. }, Some(task), _) => {
                let HookCalls { pre_batch, post_batch } = *self.calls_of(task.row_group);
                ensure(post_batch == HookState::NotYet, || {
                    "it was started after its row group's post-batch hook".into()
                })?;
                let is_before = pre_batch == HookState::NotYet;
                let is_seed = rules.seeds[task.column.index()];
                let is_in_order = !rules.config.pre_batch_hook || is_seed == is_before;
                ensure(is_in_order && pre_batch != HookState::Called, || {
                    format!("it was started on the wrong side of its row group's pre-batch hook ({pre_batch:?})")
                })
            }
            (
                SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. },
                _,
                Some(row_group),
            ) => {
                self.groups.remove(&row_group);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_lifecycle_step(&mut self, rules: &Rules, open: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match *what {
            LifecycleStep::PreBatch(batch) => self.pre_batch(rules, open, batch.row_group),
            LifecycleStep::PreBatchEnded { row_group, left_out } => {
                self.calls_of(row_group).pre_batch.end(left_out.is_some())
            }
            LifecycleStep::PostBatch(group) => self.post_batch(rules, open, group.row_group),
            LifecycleStep::PostBatchEnded { row_group, succeeded } => {
                self.calls_of(row_group).post_batch.end(succeeded)
            }
            LifecycleStep::Checkpoint(group) => self.checkpoint(rules, group),
            LifecycleStep::CheckpointEnded { .. } | LifecycleStep::Cancel => Ok(()),
        }
    }
}
