//! Descriptions of waits in words, for people. They name columns and models, but no ids of tasks or workers.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::pipeline::{RowGroupBlock, SlotWait, TaskWait};
use crate::request::CallWait;
use crate::task::{DenialFigures, TaskDenial, TaskDenialReason};
use crate::time::Instant;

/// Formats an instant in seconds with one decimal: `4.2 s`.
pub(super) struct At(pub(super) Instant);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_nanos() / 100_000_000;
        write!(f, "{}.{} s", tenths / 10, tenths % 10)
    }
}

/// Returns a count with its noun, in the plural unless the count is 1.
pub(super) fn count(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Describes why a task waits.
pub(super) fn task_wait(wait: &TaskWait) -> String {
    match wait {
        TaskWait::NotStarted => "the run has not begun".to_string(),
        TaskWait::Stopping => "the run is stopping".to_string(),
        TaskWait::RowGroup { reason } => format!("the row group is not started: {}", row_group_block(*reason)),
        TaskWait::Batch => "ready, and starts together with other rows".to_string(),
        TaskWait::PreBatchHook => "the pre-batch hook has not ended".to_string(),
        TaskWait::Upstream { column, .. } => format!("waits for `{column}`"),
        TaskWait::ColumnOrder { row_group, row: None } => {
            format!("the column is ordered: it is the turn of row group {row_group}")
        }
        TaskWait::ColumnOrder { row_group, row: Some(row) } => {
            format!("the column is ordered: it is the turn of row {row} of row group {row_group}")
        }
        TaskWait::Round => "failed, and is retried when nothing else of its row group is left".to_string(),
        TaskWait::Delayed { until } => format!("failed, and is retried at {}", At(*until)),
        TaskWait::Denied { denial } => task_denial(denial),
        TaskWait::Behind { .. } => "another task of its group is first".to_string(),
        TaskWait::Queue => "could start, but other tasks are first".to_string(),
        TaskWait::ProviderUnavailable => "its provider is unavailable, and the task is left to a later run".to_string(),
        TaskWait::Yielded { .. } => "its worker waits for a call, and holds no slots meanwhile".to_string(),
    }
}

/// Describes why a call waits.
pub(super) fn call_wait(wait: &CallWait) -> String {
    match wait {
        CallWait::Outage { since, probe_at: Some(at) } => {
            format!("the provider is down since {}; the next probe is due at {}", At(*since), At(*at))
        }
        CallWait::Outage { since, probe_at: None } => {
            format!("the provider is down since {}; a probe is in flight", At(*since))
        }
        CallWait::Unavailable { since, cause, .. } => {
            format!("the provider is unavailable since {}: {cause}", At(*since))
        }
        CallWait::Undecided => "it failed, and other calls will show whether the provider is down".to_string(),
        CallWait::Paused => "it is paused".to_string(),
        CallWait::Cooldown { until } => format!("a cooldown is in force until {}", At(*until)),
        CallWait::ProviderCap { cap } => format!("the cap of {} is reached", count(*cap, "concurrent call")),
        CallWait::Limit { limit, in_flight, changes_at } => {
            let out = if in_flight > limit { format!(" ({in_flight} are in flight)") } else { String::new() };
            let change = changes_at.map(|at| format!("; it changes at {}", At(at))).unwrap_or_default();
            format!("the limit of {} is reached{out}{change}", count(*limit, "concurrent call"))
        }
        CallWait::Paced { until } => format!("calls are spaced in time; the next one may start at {}", At(*until)),
        CallWait::Share { .. } | CallWait::SharedBudget { .. } => wait.to_string(),
        CallWait::Budget { until } => format!("a budget is spent until {}", At(*until)),
        CallWait::StatedRate { rate, until } => {
            format!("the provider states a rate of {rate}; next call at {}", At(*until))
        }
        CallWait::TaskSlots => "its worker gave its slots back, and waits for them".to_string(),
        CallWait::Turn => "another waiter is first".to_string(),
        CallWait::NoRequests => "no worker requests a call".to_string(),
    }
}

/// Describes why slots of a task resource are free.
pub(super) fn slot_wait(wait: &SlotWait) -> String {
    match wait {
        SlotWait::NotRunning => "the run has nothing to start".to_string(),
        SlotWait::Denied { denial } => format!("the next task may not start: {}", task_denial(denial)),
        SlotWait::Queue => "other tasks are first".to_string(),
        SlotWait::HookOrCheckpoint { row_group } => format!("row group {row_group} waits for its hook or checkpoint"),
        SlotWait::Delayed { until } => format!("failed tasks are delayed until {}", At(*until)),
        SlotWait::RowGroups { reason } => {
            format!("no queued task needs one, and no row group is started: {}", row_group_block(*reason))
        }
        SlotWait::Upstreams { running } => format!("the next tasks wait for {running} running ones"),
    }
}

/// Describes why no further row group is started.
pub(super) fn row_group_block(block: RowGroupBlock) -> &'static str {
    match block {
        RowGroupBlock::NoPendingRowGroups => "none is left",
        RowGroupBlock::MaxAdmittedRows => "too many rows would be in progress",
        RowGroupBlock::DeferredTasks => "failed tasks come first",
        RowGroupBlock::QueuedTasks => "enough tasks are queued",
        RowGroupBlock::NoModelResource => "no column calls a model",
        RowGroupBlock::ModelSaturated => "the models are saturated",
        RowGroupBlock::QueuedModelDemand => "queued tasks already need all free call slots",
        RowGroupBlock::QueuedWork => "queued tasks come first",
        RowGroupBlock::Claim => "one is being claimed",
        RowGroupBlock::AtCap => "the maximum of row groups is in progress",
    }
}

/// Returns the name of the slots of a task resource.
pub(super) fn slots(resource: &str) -> String {
    match resource.strip_prefix("request:") {
        Some(model) => format!("worker slots of `{model}`"),
        None if resource == "submission" => "workers".to_string(),
        None => format!("slots of `{resource}`"),
    }
}

fn task_denial(denial: &TaskDenial) -> String {
    let slots = denial.resource.as_deref().map_or_else(|| "slots".to_string(), slots);
    match (denial.reason, denial.figures) {
        (TaskDenialReason::NoCapacity, _) => format!("all {slots} are in use"),
        (TaskDenialReason::GroupCap, Some(DenialFigures { held, share, .. })) => {
            format!("its group has {held} {slots}, its share is {share}, and another group could start")
        }
        (TaskDenialReason::GroupCap, None) => "its group has its share, and another group could start".to_string(),
        (TaskDenialReason::BorrowDebt, Some(DenialFigures { debt, ceiling: Some(most), .. })) => {
            format!("its group has borrowed {debt} {slots}, and may borrow {most}")
        }
        (TaskDenialReason::BorrowDebt, Some(DenialFigures { debt, .. })) => {
            format!("its group has borrowed {debt} {slots}, and another group could start")
        }
        (TaskDenialReason::BorrowDebt, None) => "its group has borrowed, and another group could start".to_string(),
        (TaskDenialReason::Shutdown, _) => "the run is stopping".to_string(),
        (TaskDenialReason::Policy, _) => "the policy denies it".to_string(),
    }
}
