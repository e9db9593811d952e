//! Figures of a run in progress, by column and by fairness group.

use super::plan::ColumnId;
use super::report::TaskCounts;

/// The state of the tasks of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnStats {
    /// The column.
    pub column: ColumnId,
    /// Tasks in the queue: ready, and without a worker.
    pub queued: u32,
    /// Tasks with a worker.
    pub running: u32,
    /// Tasks among `running` whose worker holds no task resources while it waits for a request lease.
    pub yielded: u32,
    /// Counts of the tasks since the run began.
    pub tasks: TaskCounts,
    /// Rows that were dropped because of this column: it failed, or was missing when a hook left the row out.
    pub rows_dropped: u64,
}

/// The state of one fairness group.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupStats {
    /// The first column of the group.
    pub column: ColumnId,
    /// The weight of the group.
    pub weight: f64,
    /// The leases that the group may hold while other groups compete for the same resources. `None` means no
    /// bound.
    pub admitted_limit: Option<u32>,
    /// Tasks of the group in the queue: ready, and without a worker.
    pub queued: u32,
    /// Tasks of the group with a worker that holds task resources.
    pub running: u32,
    /// The largest debt of the group in any one resource.
    pub debt: u32,
}
