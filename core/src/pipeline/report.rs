//! The counters of a run: the live [`Progress`] and the final [`RunReport`].
//!
//! ```text
//! rows    = rows_resumed + rows_in + rows_not_started
//! rows_in = rows_out + rows_dropped + rows_unmade          once the run has ended
//! spawned = succeeded + skipped + retryable + failed + fatal + cancelled + ignored
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::pipeline::outcome::{DropReason, Hook, RetryableCount};
use crate::pipeline::plan::ColumnId;
use crate::pipeline::row_group::RowGroupBlock;
use crate::time::{Duration, Instant};

/// Why a run ended.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "reason", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StopReason {
    /// Every row group was saved. A run that claims its row groups has saved all that it has claimed, and the
    /// others belong to other runs.
    Completed,
    /// [`Pipeline::wind_down`](crate::pipeline::Pipeline::wind_down) was called: the admitted row groups were
    /// finished, and no other one was admitted.
    WoundDown,
    /// [`Pipeline::drain`](crate::pipeline::Pipeline::drain) was called: no further call was started, and the
    /// calls in flight ended.
    Drained,
    /// [`Pipeline::cancel`](crate::pipeline::Pipeline::cancel) was called: the workers were aborted.
    Cancelled,
    /// Too many of the latest final outcomes were failures.
    EarlyShutdown {
        /// The number of failures in the window.
        failures: u32,
        /// The number of outcomes that were judged.
        window: u32,
    },
    /// A provider or model could no longer be used, or responded with rate limits only for too long, and all
    /// remaining work depended on it. No row is dropped for this reason: a resumed run computes the missing
    /// rows.
    ProviderUnavailable {
        /// The identity of the first fairness group that was affected.
        group: Vec<String>,
    },
    /// A row group could not be saved.
    CheckpointFailed {
        /// The first row group whose checkpoint failed.
        row_group: u32,
        /// The error message from the host.
        why: String,
    },
    /// A row group could not be claimed.
    ClaimFailed {
        /// The error message from the host.
        why: String,
    },
    /// A hook failed.
    HookFailed {
        /// The first row group whose hook failed.
        row_group: u32,
        /// The hook that failed.
        hook: Hook,
        /// The error message from the host.
        why: String,
    },
    /// A worker met a bug in the host or in user code.
    Fatal {
        /// The column that the worker computed.
        column: ColumnId,
        /// The row group of the task.
        row_group: u32,
        /// The message of the panic, or the error message from the host.
        cause: String,
    },
    /// The [`TaskPolicy`](crate::task::TaskPolicy) panicked. Only with the feature `std`: without it, the
    /// panic unwinds to the host.
    PolicyPanicked {
        /// A message that names the method that panicked, with the message of the panic.
        cause: String,
    },
    /// An internal error: work remained, and no worker, timer, hook or checkpoint was left that could
    /// continue it.
    Stuck {
        /// The remaining work, and what blocked it.
        why: String,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::WoundDown => f.write_str("wound down"),
            Self::Drained => f.write_str("drained"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::EarlyShutdown { failures, window } => {
                write!(f, "shut down early: {failures} of the last {window} final outcomes were failures")
            }
            Self::ProviderUnavailable { group } => write!(f, "`{}` cannot be used any more", group.join("/")),
            Self::CheckpointFailed { row_group, why } => write!(f, "row group {row_group} could not be saved: {why}"),
            Self::ClaimFailed { why } => write!(f, "no row group could be claimed: {why}"),
            Self::HookFailed { row_group, hook, why } => write!(f, "{hook} of row group {row_group} failed: {why}"),
            Self::Fatal { column, row_group, cause } => {
                write!(f, "fatal error in column number {} of row group {row_group}: {cause}", column.index())
            }
            Self::PolicyPanicked { cause } => f.write_str(cause),
            Self::Stuck { why } => write!(f, "internal error, stuck: {why}"),
        }
    }
}

/// Counts of the tasks of one column. A task counts once for each time a worker ran it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TaskCounts {
    /// Workers that were started.
    pub spawned: u64,
    /// Workers that computed the column.
    pub succeeded: u64,
    /// Workers that skipped the task.
    pub skipped: u64,
    /// Workers that ended with a retryable failure, or because their provider was unavailable.
    pub retryable: u64,
    /// Workers that ended with a permanent failure.
    pub failed: u64,
    /// Workers that ended with a bug.
    pub fatal: u64,
    /// Workers that were aborted or lost.
    pub cancelled: u64,
    /// Workers that ended after their row was dropped, with any outcome except a bug.
    pub ignored: u64,
    /// Tasks that were skipped with an upstream, without a worker.
    pub skipped_with_upstream: u64,
}

impl TaskCounts {
    /// Returns the number of workers that have ended.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.succeeded + self.skipped + self.retryable + self.failed + self.fatal + self.cancelled + self.ignored
    }
}

/// The counts of one column, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ColumnReport {
    /// The column.
    pub column: ColumnId,
    /// The name of the column.
    pub name: String,
    /// The counts of its tasks.
    pub tasks: TaskCounts,
}

/// The number of rows dropped for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct DroppedCount {
    /// The column that failed, or that was missing when a hook left the rows out.
    pub column: ColumnId,
    /// Why the rows were dropped.
    pub reason: DropReason,
    /// The number of rows.
    pub rows: u64,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Progress {
    /// The rows of the whole run.
    pub rows_total: u64,
    /// The complete rows, including those of earlier runs and those that are not saved yet.
    pub rows_done: u64,
    /// The rows that this run has dropped.
    pub rows_dropped: u64,
    /// The rows that the run left incomplete in its row groups because it stops. A resumed run computes them.
    pub rows_unmade: u64,
    /// The row groups of the whole run.
    pub row_groups_total: u32,
    /// The row groups saved with every row completed or dropped, including those saved by earlier runs.
    pub row_groups_done: u32,
    /// The row groups admitted and not yet saved, including those whose hook or checkpoint failed.
    pub row_groups_active: u32,
    /// The target number of admitted row groups.
    pub row_group_target: u32,
    /// Why the target does not grow, if a control loop sets it.
    pub row_group_block: Option<RowGroupBlock>,
    /// The workers that have not ended.
    pub running: usize,
    /// Workers among `running` that hold no task resources while they wait for a request lease.
    pub yielded: usize,
    /// The tasks that are ready and wait for a task lease.
    pub queued: usize,
    /// The tasks that failed and wait for an instant before they are retried.
    pub delayed: usize,
    /// The task counts of each column, in the order of definition.
    pub columns: Vec<TaskCounts>,
    /// Whether the run has ended.
    pub finished: bool,
}

/// The result of a run.
///
/// ```text
/// rows    = rows_resumed + rows_in + rows_not_started
/// rows_in = rows_out + rows_dropped + rows_unmade
/// spawned = succeeded + skipped + retryable + failed + fatal + cancelled + ignored   for each column
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct RunReport {
    /// Why the run ended.
    pub stop: StopReason,
    /// The rows of the whole run.
    pub rows: u64,
    /// The rows that earlier runs completed or dropped.
    pub rows_resumed: u64,
    /// The rows that this run had to compute in the row groups that it admitted.
    pub rows_in: u64,
    /// The complete rows that this run saved.
    pub rows_out: u64,
    /// The rows that this run dropped.
    pub rows_dropped: u64,
    /// The rows of admitted row groups that were neither saved nor dropped because the run stopped. A resumed
    /// run computes them.
    pub rows_unmade: u64,
    /// The rows still to compute of row groups that were never admitted.
    pub rows_not_started: u64,
    /// The dropped rows by column and reason, ascending. The sum is `rows_dropped`.
    pub dropped: Vec<DroppedCount>,
    /// The retryable failures by kind and HTTP status, ascending.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retryable: Vec<RetryableCount>,
    /// The row groups of the whole run.
    pub row_groups: u32,
    /// The row groups saved with every row completed or dropped, including those saved by earlier runs.
    pub row_groups_done: u32,
    /// The columns in the order of definition.
    pub columns: Vec<ColumnReport>,
    /// When the run began.
    pub started: Instant,
    /// When the run ended.
    pub ended: Instant,
}

impl RunReport {
    /// Returns the duration of the run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.ended - self.started
    }

    /// Returns whether every row group was saved.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stop == StopReason::Completed
    }
}

/// The counters from which [`Progress`] and [`RunReport`] are built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    rows_in: u64,
    rows_out: u64,
    row_groups_saved: u32,
    /// By column.
    tasks: Vec<TaskCounts>,
    /// Ascending by column and reason.
    dropped: Vec<DroppedCount>,
    rows_dropped: u64,
    rows_unmade: u64,
}

impl Tally {
    pub(crate) fn new(columns: usize) -> Self {
        Self { tasks: alloc::vec![TaskCounts::default(); columns], ..Self::default() }
    }

    /// Returns the task counts of a column of the plan.
    pub(crate) fn tasks(&self, column: ColumnId) -> &TaskCounts {
        &self.tasks[column.index()]
    }

    pub(crate) fn tasks_mut(&mut self, column: ColumnId) -> &mut TaskCounts {
        &mut self.tasks[column.index()]
    }

    /// Returns the task counts of every column, in the order of definition.
    pub(crate) fn columns(&self) -> &[TaskCounts] {
        &self.tasks
    }

    pub(crate) fn rows_in(&self) -> u64 {
        self.rows_in
    }

    pub(crate) fn rows_out(&self) -> u64 {
        self.rows_out
    }

    pub(crate) fn rows_dropped(&self) -> u64 {
        self.rows_dropped
    }

    pub(crate) fn rows_unmade(&self) -> u64 {
        self.rows_unmade
    }

    /// Returns the row groups that this run saved with every row completed or dropped.
    pub(crate) fn row_groups_saved(&self) -> u32 {
        self.row_groups_saved
    }

    /// Returns the dropped rows, ascending by column and reason.
    pub(crate) fn dropped(&self) -> &[DroppedCount] {
        &self.dropped
    }

    pub(crate) fn dropped_for(&self, column: ColumnId) -> u64 {
        self.dropped.iter().filter(|known| known.column == column).map(|known| known.rows).sum()
    }

    pub(crate) fn row_group_admitted(&mut self, rows: u32) {
        self.rows_in += u64::from(rows);
    }

    /// Counts a saved row group. `is_done` is true if the row group has no unmade row.
    pub(crate) fn row_group_saved(&mut self, complete_rows: u32, is_done: bool) {
        self.rows_out += u64::from(complete_rows);
        self.row_groups_saved += u32::from(is_done);
    }

    /// Counts rows of a row group that are left incomplete because the run stops.
    pub(crate) fn leave_unmade(&mut self, rows: u32) {
        self.rows_unmade += u64::from(rows);
    }

    pub(crate) fn drop_rows(&mut self, column: ColumnId, reason: DropReason, rows: u64) {
        if rows > 0 {
            let index = self.dropped.binary_search_by(|known| (known.column, known.reason).cmp(&(column, reason)));
            match index {
                Ok(index) => self.dropped[index].rows += rows,
                Err(index) => self.dropped.insert(index, DroppedCount { column, reason, rows }),
            }
            self.rows_dropped += rows;
        }
    }

    /// Asserts the equations of the module at the end of a run, in debug builds.
    pub(crate) fn check(&self) {
        let accounted = self.rows_out + self.rows_dropped + self.rows_unmade;
        debug_assert_eq!(self.rows_in, accounted, "every row is saved, dropped or unmade");
        let has_ended = |tasks: &TaskCounts| tasks.spawned == tasks.ended();
        debug_assert!(self.tasks.iter().all(has_ended), "every worker ended once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_rows_are_counted_by_column_and_reason() {
        let mut tally = Tally::new(2);
        tally.row_group_admitted(4);
        for (column, rows) in [(1, 1), (0, 2), (1, 1), (0, 0)] {
            tally.drop_rows(ColumnId(column), DropReason::WorkerLost, rows);
        }
        let counted: Vec<_> = tally.dropped().iter().map(|known| (known.column, known.rows)).collect();
        assert_eq!(counted, [(ColumnId(0), 2), (ColumnId(1), 2)]);
        assert_eq!((tally.rows_dropped(), tally.dropped_for(ColumnId(1))), (4, 2));
        tally.check();
    }
}
