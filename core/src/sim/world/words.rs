//! Waits in the words of people: no numbers of tasks or workers, and times as `4.2 s`.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::pipeline::{RowGroupBlock, SlotWait, TaskWait};
use crate::request::CallWait;
use crate::task::{Denial, DenialReason, Figures};
use crate::time::Instant;

/// An instant as people read it: `4.2 s`.
pub(super) struct At(pub(super) Instant);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_nanos() / 100_000_000;
        write!(f, "{}.{} s", tenths / 10, tenths % 10)
    }
}

/// So many of something.
pub(super) fn many(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What keeps a task.
pub(super) fn of_task(wait: &TaskWait) -> String {
    match wait {
        TaskWait::NotStarted => "the run has not begun".to_string(),
        TaskWait::Stopping => "the run is stopping".to_string(),
        TaskWait::RowGroup { reason } => format!("the row group is not begun: {}", of_block(*reason)),
        TaskWait::PreBatchHook => "the hook after the seeds has not answered".to_string(),
        TaskWait::Upstream { column, .. } => format!("waits for `{column}`"),
        TaskWait::Turn { row_group, row: None } => format!("made in order: it is the turn of row group {row_group}"),
        TaskWait::Turn { row_group, row: Some(row) } => {
            format!("made in order: it is the turn of row {row} of row group {row_group}")
        }
        TaskWait::Round => "failed, and is tried again once nothing else is left of its row group".to_string(),
        TaskWait::Pause { until } => format!("failed, and is tried again at {}", At(*until)),
        TaskWait::Denied { denial } => of_denial(denial),
        TaskWait::Behind { .. } => "another task of its group is before it".to_string(),
        TaskWait::Queue => "could start: others are first".to_string(),
        TaskWait::ProviderUnavailable => "its provider cannot be used, and it is kept for another run".to_string(),
        TaskWait::Yielded { .. } => "its worker waits for a call, and holds nothing meanwhile".to_string(),
    }
}

/// What keeps a call.
pub(super) fn of_call(wait: &CallWait) -> String {
    match wait {
        CallWait::Outage { since, probe_at: Some(at) } => {
            format!("the provider is down since {}; the next probe is due at {}", At(*since), At(*at))
        }
        CallWait::Outage { since, probe_at: None } => {
            format!("the provider is down since {}; a probe is out", At(*since))
        }
        CallWait::Unavailable { since, cause, .. } => {
            format!("the provider is unavailable since {}: {cause}", At(*since))
        }
        CallWait::Undecided => "it failed, and other calls will show whether the provider is down".to_string(),
        CallWait::Cooldown { until } => format!("the provider asked to be left alone until {}", At(*until)),
        CallWait::ProviderCap { cap } => format!("all {cap} calls that the cap allows are out"),
        CallWait::Limit { limit, in_flight, changes_at } => {
            let out = if in_flight > limit { format!(" ({in_flight} are)") } else { String::new() };
            let change = changes_at.map(|at| format!("; it changes at {}", At(at))).unwrap_or_default();
            format!("all {limit} calls that the limit allows are out{out}{change}")
        }
        CallWait::Paced { until } => format!("calls are spaced in time; the next goes out at {}", At(*until)),
        CallWait::Budget { until } => format!("a budget is spent until {}", At(*until)),
        CallWait::StatedRate { rate, until } => format!("the provider's own limit of {rate}: next at {}", At(*until)),
        CallWait::TaskSlots => "its worker gave its slot back, and waits for it".to_string(),
        CallWait::Turn => "it is another's turn".to_string(),
        CallWait::NobodyAsks => "no worker asks for one".to_string(),
    }
}

/// What keeps slots of the task stage empty.
pub(super) fn of_slots(wait: &SlotWait) -> String {
    match wait {
        SlotWait::NotRunning => "the run has nothing to start".to_string(),
        SlotWait::Denied { denial } => format!("the next task may not start: {}", of_denial(denial)),
        SlotWait::Queue => "others are first".to_string(),
        SlotWait::HandedOut { row_group } => format!("row group {row_group} is with its hook or its checkpoint"),
        SlotWait::Pause { until } => format!("failed tasks are paused until {}", At(*until)),
        SlotWait::RowGroups { reason } => {
            format!("no queued task wants one, and no row group is begun: {}", of_block(*reason))
        }
        SlotWait::Upstreams { running } => format!("the next tasks wait for {running} that run"),
    }
}

/// Why no further row group is begun.
pub(super) fn of_block(block: RowGroupBlock) -> &'static str {
    match block {
        RowGroupBlock::NoPendingRowGroups => "none is left",
        RowGroupBlock::MaxAdmittedRows => "it would be too many rows at once",
        RowGroupBlock::DeferredTasks => "failed tasks come first",
        RowGroupBlock::QueuedTasks => "enough tasks are queued",
        RowGroupBlock::NoModelResource => "no column calls a model",
        RowGroupBlock::ModelSaturated => "the models have all they can do",
        RowGroupBlock::QueuedModelDemand => "what is queued suffices for what is free",
        RowGroupBlock::QueuedWork => "what is queued goes first",
        RowGroupBlock::AtCap => "as many as there may be are in work",
    }
}

/// Slots of a resource of the task stage.
pub(super) fn slots_of(resource: &str) -> String {
    match resource.strip_prefix("request:") {
        Some(model) => format!("worker slots of `{model}`"),
        None if resource == "submission" => "workers".to_string(),
        None => format!("slots of `{resource}`"),
    }
}

fn of_denial(denial: &Denial) -> String {
    let slots = denial.resource.as_deref().map_or_else(|| "slots".to_string(), slots_of);
    match (denial.reason, denial.figures) {
        (DenialReason::NoCapacity, _) => format!("all {slots} are taken"),
        (DenialReason::GroupCap, Some(Figures { held, share, .. })) => {
            format!("its group has {held} {slots}, its share is {share}, and another group could start")
        }
        (DenialReason::GroupCap, None) => "its group has its share, and another group could start".to_string(),
        (DenialReason::BorrowDebt, Some(Figures { debt, ceiling: Some(most), .. })) => {
            format!("its group has borrowed {debt} {slots}, and may borrow {most}")
        }
        (DenialReason::BorrowDebt, Some(Figures { debt, .. })) => {
            format!("its group has borrowed {debt} {slots}, and another group could start")
        }
        (DenialReason::BorrowDebt, None) => "its group has borrowed, and another group could start".to_string(),
        (DenialReason::Shutdown, _) => "the run is stopping".to_string(),
        (DenialReason::Policy, _) => "the policy says no".to_string(),
    }
}
