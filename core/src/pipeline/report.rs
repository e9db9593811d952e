//! What is counted: the live [`Progress`] and the final [`RunReport`].
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
#[cfg_attr(feature = "serde", serde(tag = "reason", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StopReason {
    /// Every row group was saved.
    Completed,
    /// It was asked to finish what was in work and to begin no more.
    WoundDown,
    /// It was asked to begin no call, and those that were out ended.
    Drained,
    /// It was asked to stop at once.
    Cancelled,
    /// Too many of the latest final outcomes were failures.
    EarlyShutdown {
        /// Failures among them.
        failures: u32,
        /// How many outcomes were judged.
        window: u32,
    },
    /// A provider or model could not be used any more, or answered nothing but rate limits for too long, and
    /// nothing was left to do without it. No row is dropped for it: a resumed run makes those that are
    /// missing.
    ProviderUnavailable {
        /// The identity of the first fairness group that met it.
        group: Vec<String>,
    },
    /// A row group could not be saved.
    CheckpointFailed {
        /// The first one.
        row_group: u32,
        /// The cause, in the host's words.
        why: String,
    },
    /// A hook failed.
    HookFailed {
        /// The first row group for which one did.
        row_group: u32,
        /// Which one.
        hook: Hook,
        /// The cause, in the host's words.
        why: String,
    },
    /// A worker met a bug in the host or in user code.
    Fatal {
        /// The column it was making.
        column: ColumnId,
        /// For which row group.
        row_group: u32,
        /// The cause: the message of the panic, or the host's words.
        cause: String,
    },
    /// The [`TaskPolicy`](crate::task::TaskPolicy) panicked. Only with the feature `std`: without, the panic
    /// unwinds to the host.
    PolicyPanicked {
        /// That it panicked, in which method, and the message of the panic.
        cause: String,
    },
    /// An internal error: work was left, and nothing was going on that could have moved it.
    Stuck {
        /// What was left, and what held it.
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
            Self::HookFailed { row_group, hook, why } => write!(f, "{hook} of row group {row_group} failed: {why}"),
            Self::Fatal { column, row_group, cause } => {
                write!(f, "fatal error in column number {} of row group {row_group}: {cause}", column.index())
            }
            Self::PolicyPanicked { cause } => f.write_str(cause),
            Self::Stuck { why } => write!(f, "internal error, stuck: {why}"),
        }
    }
}

/// What became of the tasks of one column. A task counts once for each time a worker had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TaskCounts {
    /// Workers started.
    pub spawned: u64,
    /// Workers that made their column.
    pub succeeded: u64,
    /// Workers that found nothing to make.
    pub skipped: u64,
    /// Failures that may pass.
    pub retryable: u64,
    /// Failures for good.
    pub failed: u64,
    /// Bugs reported.
    pub fatal: u64,
    /// Workers aborted or lost.
    pub cancelled: u64,
    /// Workers that answered after their row was dropped, whatever they said.
    pub ignored: u64,
    /// Tasks skipped with an upstream. No worker had them.
    pub skipped_with_upstream: u64,
}

impl TaskCounts {
    /// Workers that have answered.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.succeeded + self.skipped + self.retryable + self.failed + self.fatal + self.cancelled + self.ignored
    }
}

/// The tasks of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ColumnReport {
    /// The column.
    pub column: ColumnId,
    /// Its name.
    pub name: String,
    /// What became of its tasks.
    pub tasks: TaskCounts,
}

/// Rows that were given up, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DroppedCount {
    /// The column that failed, or was still missing when a hook left the rows out.
    pub column: ColumnId,
    /// Why.
    pub reason: DropReason,
    /// How many rows.
    pub rows: u64,
}

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Progress {
    /// Rows of the whole run.
    pub rows_total: u64,
    /// Complete rows, those of earlier runs and those not yet saved included.
    pub rows_done: u64,
    /// Rows given up.
    pub rows_dropped: u64,
    /// Rows of row groups that were admitted and have left without them, because the run stops: a resumed run
    /// makes them.
    pub rows_unmade: u64,
    /// Row groups of the whole run.
    pub row_groups_total: u32,
    /// Row groups saved with every row made or dropped, by earlier runs too.
    pub row_groups_done: u32,
    /// Row groups admitted and not yet saved.
    pub row_groups_active: u32,
    /// Row groups it wants to have in work.
    pub row_group_target: u32,
    /// Why it does not want more, if a control loop chooses.
    pub row_group_block: Option<RowGroupBlock>,
    /// Workers.
    pub running: usize,
    /// Those of them that hold nothing while they wait for a request lease.
    pub suspended: usize,
    /// Tasks ready and waiting for a lease.
    pub queued: usize,
    /// Tasks paused because a provider asked for it.
    pub delayed: usize,
    /// Tasks per column, in the order of definition.
    pub columns: Vec<TaskCounts>,
    /// Whether the run has ended.
    pub finished: bool,
}

/// What a run did. The module's equations hold for it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RunReport {
    /// Why it ended.
    pub stop: StopReason,
    /// Rows of the whole run.
    pub rows: u64,
    /// Rows that earlier runs saw to.
    pub rows_resumed: u64,
    /// Rows that this run was to make of the row groups it admitted.
    pub rows_in: u64,
    /// Complete rows this run saved.
    pub rows_out: u64,
    /// Rows this run gave up.
    pub rows_dropped: u64,
    /// Rows that were admitted, and neither saved nor given up, because the run stopped: a resumed run makes
    /// them.
    pub rows_unmade: u64,
    /// Rows to be made of row groups that were never admitted.
    pub rows_not_started: u64,
    /// `rows_dropped` by column and reason, ascending.
    pub dropped: Vec<DroppedCount>,
    /// Failures that may pass by kind and HTTP status, ascending.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retryable: Vec<RetryableCount>,
    /// Row groups of the whole run.
    pub row_groups: u32,
    /// Row groups saved with every row made or dropped, by earlier runs too.
    pub row_groups_done: u32,
    /// The columns in the order of definition.
    pub columns: Vec<ColumnReport>,
    /// When the run began.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl RunReport {
    /// How long the run took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.ended - self.started
    }

    /// Whether every row group was saved.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stop == StopReason::Completed
    }
}

/// The counters behind both.
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

    /// The tasks of a column of the plan.
    pub(crate) fn tasks(&self, column: ColumnId) -> &TaskCounts {
        &self.tasks[column.index()]
    }

    pub(crate) fn tasks_mut(&mut self, column: ColumnId) -> &mut TaskCounts {
        &mut self.tasks[column.index()]
    }

    /// The tasks of every column, in the order of definition.
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

    /// Row groups saved by this run with every row made or dropped.
    pub(crate) fn row_groups_saved(&self) -> u32 {
        self.row_groups_saved
    }

    /// Dropped rows, ascending by column and reason.
    pub(crate) fn dropped(&self) -> &[DroppedCount] {
        &self.dropped
    }

    pub(crate) fn dropped_for(&self, column: ColumnId) -> u64 {
        self.dropped.iter().filter(|known| known.column == column).map(|known| known.rows).sum()
    }

    pub(crate) fn row_group_admitted(&mut self, rows: u32) {
        self.rows_in += u64::from(rows);
    }

    /// `is_done`: no row of it is left to be made.
    pub(crate) fn row_group_saved(&mut self, complete_rows: u32, is_done: bool) {
        self.rows_out += u64::from(complete_rows);
        self.row_groups_saved += u32::from(is_done);
    }

    /// Rows of a row group that leaves without them.
    pub(crate) fn leave_unmade(&mut self, rows: u32) {
        self.rows_unmade += u64::from(rows);
    }

    pub(crate) fn drop_rows(&mut self, column: ColumnId, reason: DropReason, rows: u64) {
        if rows > 0 {
            let place = self.dropped.binary_search_by(|known| (known.column, known.reason).cmp(&(column, reason)));
            match place {
                Ok(place) => self.dropped[place].rows += rows,
                Err(place) => self.dropped.insert(place, DroppedCount { column, reason, rows }),
            }
            self.rows_dropped += rows;
        }
    }

    /// Checks the equations of the module at the end of a run, in debug builds.
    pub(crate) fn check(&self) {
        let accounted = self.rows_out + self.rows_dropped + self.rows_unmade;
        debug_assert_eq!(self.rows_in, accounted, "every row is out, dropped or unmade");
        let is_answered = |tasks: &TaskCounts| tasks.spawned == tasks.ended();
        debug_assert!(self.tasks.iter().all(is_answered), "every worker answered once");
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
