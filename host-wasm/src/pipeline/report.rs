//! The figures of a run, as JavaScript reads them: columns by name, spans in milliseconds.

use indexmap::IndexMap;
use serde::Serialize;
use tidegate_core::pipeline as core;
use tidegate_core::pipeline::{FailureKind, Hook, RetryKind, RowGroupBlock, StopReason};
use tidegate_core::time::Duration;
use tsify::Tsify;

/// The counts of the tasks of one column. A task counts once for each time a worker had it.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskCounts {
    /// Tasks started.
    spawned: u64,
    /// Those that filled their column.
    succeeded: u64,
    /// Those whose `when` returned false.
    skipped: u64,
    /// Retryable failures.
    retryable: u64,
    /// Final failures.
    failed: u64,
    /// Bugs reported.
    fatal: u64,
    /// Tasks that were stopped.
    cancelled: u64,
    /// Tasks that ended after their row was dropped, with any outcome.
    ignored: u64,
    /// Tasks skipped with an upstream; they were not started.
    skipped_with_upstream: u64,
}

/// Why a row was dropped.
#[derive(Clone, Copy, Serialize, Tsify)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(super) enum DropReason {
    /// A task failed for good.
    Failed { kind: FailureKind },
    /// A task failed in its first try and in every retry.
    RetriesExhausted { kind: RetryKind },
    /// The worker of a task was lost in its first try and in every retry.
    WorkerLost,
    /// The pre-batch hook left the row out.
    PreBatch,
    /// Another reason, of a later version.
    Unknown,
}

/// Rows that were dropped, by cause. `column` failed, or was still missing when the hook left the rows out.
// Written out, because an interface cannot extend a union.
#[derive(Serialize, Tsify)]
#[tsify(type = "{ column: string; rows: number } & DropReason")]
pub(super) struct DroppedCount {
    column: String,
    #[serde(flatten)]
    reason: DropReason,
    rows: u64,
}

/// Why a run ended.
#[derive(Serialize, Tsify)]
#[serde(tag = "reason", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Stop {
    Completed,
    WoundDown,
    Drained,
    Cancelled,
    /// Too many of the latest final outcomes were failures.
    EarlyShutdown {
        failures: u32,
        window: u32,
    },
    CheckpointFailed {
        row_group: u32,
        why: String,
    },
    HookFailed {
        row_group: u32,
        hook: Hook,
        why: String,
    },
    Fatal {
        row_group: u32,
        column: String,
        why: String,
    },
    Stuck {
        why: String,
    },
    /// A provider or model was unavailable, or rate limited every call for too long. No row is dropped
    /// because of it.
    ProviderUnavailable {
        group: String,
    },
}

/// The results of a run. `rows = rowsResumed + rowsIn + rowsNotStarted`, and
/// `rowsIn = rowsOut + rowsDropped + rowsUnmade`.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunReport {
    /// Why it ended.
    stop: Stop,
    /// The rows of the whole run.
    rows: u64,
    /// The rows that earlier runs made or dropped.
    rows_resumed: u64,
    /// The rows of the row groups that this run began.
    rows_in: u64,
    /// The complete rows that this run saved.
    rows_out: u64,
    /// The rows that this run dropped.
    rows_dropped: u64,
    /// The rows that this run started and neither saved nor dropped, because it stopped.
    rows_unmade: u64,
    /// The rows of row groups that were never started.
    rows_not_started: u64,
    /// `rowsDropped` by column and reason.
    dropped: Vec<DroppedCount>,
    /// The row groups of the whole run.
    row_groups: u32,
    /// The row groups saved with every row made or dropped, by earlier runs too.
    row_groups_done: u32,
    /// The tasks of each column, by its name, in the order of definition.
    #[tsify(type = "Record<string, TaskCounts>")]
    columns: IndexMap<String, TaskCounts>,
    /// The duration of the run in milliseconds.
    elapsed_ms: f64,
}

/// The progress of a run.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// The rows of the whole run.
    rows_total: u64,
    /// The complete rows, those of earlier runs and those not yet saved included.
    rows_done: u64,
    /// The rows that were dropped.
    rows_dropped: u64,
    /// The rows of row groups that have left without them, because the run stops.
    rows_unmade: u64,
    /// The row groups of the whole run.
    row_groups_total: u32,
    /// The row groups saved, by earlier runs too.
    row_groups_done: u32,
    /// The row groups started and not yet saved.
    row_groups_active: u32,
    /// The target number of row groups in work.
    row_group_target: u32,
    /// Why the target does not grow, if a control loop chooses it.
    row_group_block: Option<RowGroupBlock>,
    /// The running tasks.
    running: usize,
    /// The running tasks that hold no resources while they wait for a call.
    yielded: usize,
    /// The tasks that are ready and wait for a worker slot.
    queued: usize,
    /// The tasks that wait for a retry, because a provider asked for a pause.
    delayed: usize,
    /// The tasks of each column, by its name, in the order of definition.
    #[tsify(type = "Record<string, TaskCounts>")]
    columns: IndexMap<String, TaskCounts>,
    /// Whether the run is over.
    finished: bool,
}

/// A row that was dropped, counted from 0 within its row group.
#[derive(Serialize, Tsify)]
#[tsify(type = "{ row: number; column: string } & DropReason")]
pub(super) struct DroppedRow {
    row: u32,
    column: String,
    #[serde(flatten)]
    reason: DropReason,
}

/// A row group to save: its initial and its remaining rows.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct FinishedRowGroup {
    /// Counted from 0 over the whole run.
    row_group: u32,
    /// The run's number of its first row.
    first_row: u64,
    /// The number of its rows.
    rows: u32,
    /// The complete rows, counted from 0 within the row group: one for each row that is passed.
    #[tsify(type = "readonly number[]")]
    live: Vec<u32>,
    /// The rows that were dropped.
    #[tsify(type = "readonly DroppedRow[]")]
    dropped: Vec<DroppedRow>,
    /// The rows that were not complete when the run stopped; usually none. A row group that has some is not
    /// done.
    #[tsify(type = "readonly number[]")]
    unmade: Vec<u32>,
}

/// Why slots of a resource are idle.
#[derive(Serialize, Tsify)]
pub(super) struct SlotsWhy {
    /// The resource: `submission` are the workers, then come the pipeline's `resources` and those behind
    /// `calls`.
    pub(super) name: String,
    pub(super) used: u32,
    pub(super) limit: u32,
    /// In words; `null` if every slot is used.
    pub(super) why: Option<String>,
}

impl From<&core::TaskCounts> for TaskCounts {
    fn from(from: &core::TaskCounts) -> Self {
        Self {
            spawned: from.spawned,
            succeeded: from.succeeded,
            skipped: from.skipped,
            retryable: from.retryable,
            failed: from.failed,
            fatal: from.fatal,
            cancelled: from.cancelled,
            ignored: from.ignored,
            skipped_with_upstream: from.skipped_with_upstream,
        }
    }
}

impl From<core::DropReason> for DropReason {
    fn from(from: core::DropReason) -> Self {
        match from {
            core::DropReason::Failed(kind) => Self::Failed { kind },
            core::DropReason::RetriesExhausted(kind) => Self::RetriesExhausted { kind },
            core::DropReason::WorkerLost => Self::WorkerLost,
            core::DropReason::PreBatch => Self::PreBatch,
            _ => Self::Unknown,
        }
    }
}

impl Stop {
    fn of(from: &StopReason, names: &[String]) -> Self {
        match from.clone() {
            StopReason::Completed => Self::Completed,
            StopReason::WoundDown => Self::WoundDown,
            StopReason::Drained => Self::Drained,
            StopReason::Cancelled => Self::Cancelled,
            StopReason::EarlyShutdown { failures, window } => Self::EarlyShutdown { failures, window },
            StopReason::CheckpointFailed { row_group, why } => Self::CheckpointFailed { row_group, why },
            StopReason::HookFailed { row_group, hook, why } => Self::HookFailed { row_group, hook, why },
            StopReason::Fatal { row_group, column, cause } => {
                Self::Fatal { row_group, column: name(names, column.index()), why: cause }
            }
            StopReason::ProviderUnavailable { group } => Self::ProviderUnavailable { group: group.join("/") },
            StopReason::Stuck { why } | StopReason::PolicyPanicked { cause: why } => Self::Stuck { why },
            other => Self::Stuck { why: other.to_string() },
        }
    }
}

impl RunReport {
    pub(super) fn of(from: &core::RunReport) -> Self {
        let names: Vec<String> = from.columns.iter().map(|column| column.name.clone()).collect();
        let dropped = |dropped: &core::DroppedCount| DroppedCount {
            column: name(&names, dropped.column.index()),
            reason: dropped.reason.into(),
            rows: dropped.rows,
        };
        Self {
            stop: Stop::of(&from.stop, &names),
            rows: from.rows,
            rows_resumed: from.rows_resumed,
            rows_in: from.rows_in,
            rows_out: from.rows_out,
            rows_dropped: from.rows_dropped,
            rows_unmade: from.rows_unmade,
            rows_not_started: from.rows_not_started,
            dropped: from.dropped.iter().map(dropped).collect(),
            row_groups: from.row_groups,
            row_groups_done: from.row_groups_done,
            columns: from.columns.iter().map(|column| (column.name.clone(), (&column.tasks).into())).collect(),
            elapsed_ms: millis(from.elapsed()),
        }
    }
}

impl Progress {
    pub(super) fn of(from: &core::Progress, names: &[String]) -> Self {
        Self {
            rows_total: from.rows_total,
            rows_done: from.rows_done,
            rows_dropped: from.rows_dropped,
            rows_unmade: from.rows_unmade,
            row_groups_total: from.row_groups_total,
            row_groups_done: from.row_groups_done,
            row_groups_active: from.row_groups_active,
            row_group_target: from.row_group_target,
            row_group_block: from.row_group_block,
            running: from.running,
            yielded: from.yielded,
            queued: from.queued,
            delayed: from.delayed,
            columns: names.iter().cloned().zip(from.columns.iter().map(TaskCounts::from)).collect(),
            finished: from.finished,
        }
    }
}

impl FinishedRowGroup {
    pub(super) fn of(from: &core::FinishedRowGroup, names: &[String]) -> Self {
        let dropped = |dropped: &core::DroppedRow| DroppedRow {
            row: dropped.row,
            column: name(names, dropped.column.index()),
            reason: dropped.reason.into(),
        };
        Self {
            row_group: from.row_group,
            first_row: from.first_row,
            rows: from.rows,
            live: from.live.clone(),
            dropped: from.dropped.iter().map(dropped).collect(),
            unmade: from.unmade.clone(),
        }
    }
}

fn name(names: &[String], column: usize) -> String {
    names.get(column).cloned().unwrap_or_default()
}

fn millis(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}
