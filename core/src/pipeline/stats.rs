//! What a person watches of a run.

use super::plan::ColumnId;
use super::report::TaskCounts;

/// How the tasks of one column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnStats {
    /// The column.
    pub column: ColumnId,
    /// Ready, and without a worker.
    pub queued: u32,
    /// With a worker.
    pub running: u32,
    /// Those of them that hold nothing while they wait for a request lease.
    pub suspended: u32,
    /// What became of those before.
    pub tasks: TaskCounts,
    /// Rows that were dropped because this column failed or was missing.
    pub rows_dropped: u64,
}

/// How one fairness group stands.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupStats {
    /// The first column of the group.
    pub column: ColumnId,
    /// Its weight.
    pub weight: f64,
    /// Leases it may hold while others press; `None`: no bound.
    pub admitted_limit: Option<u32>,
    /// Its tasks that are ready, and without a worker.
    pub queued: u32,
    /// Its tasks with a worker that holds something.
    pub running: u32,
    /// What it owes of the resource of which it owes most.
    pub debt: u32,
}
