//! Why a task or a slot waits, as values that a person can read.

use alloc::string::String;
use core::fmt;

use super::outcome::WorkerId;
use super::row_group::RowGroupBlock;
use crate::task::Denial;
use crate::time::Instant;

/// The one thing that keeps a task from running.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskWait {
    /// The run has not started.
    NotStarted,
    /// The run is stopping, or over.
    Stopping,
    /// Its row group is not admitted.
    RowGroup {
        /// Why no further one is.
        reason: RowGroupBlock,
    },
    /// Its row group's pre-batch hook is to be answered first.
    PreBatchHook,
    /// An upstream is not complete.
    Upstream {
        /// The first such column.
        column: String,
        /// The first row that lacks it; `None` for a column of whole row groups.
        row: Option<u32>,
    },
    /// Its column keeps an order, and another task has the turn.
    Turn {
        /// That task's row group.
        row_group: u32,
        /// And its row.
        row: Option<u32>,
    },
    /// Its provider or model cannot be used any more: it is kept for another run.
    ProviderUnavailable,
    /// It failed for now, and waits for its row group's next salvage round.
    Round,
    /// It failed for now, and is tried again at an instant.
    Pause {
        /// Not before this.
        until: Instant,
    },
    /// It is queued, and may not start: see [`Denial`] for the resource, the share or the debt that binds.
    Denied {
        /// By what.
        denial: Denial,
    },
    /// It is queued, and another task of its group is before it.
    Behind {
        /// That task, as in [events](crate::pipeline::event::Correlation::task).
        task: u64,
    },
    /// It is queued and could start: others are first.
    Queue,
    /// It runs, and holds nothing while it waits for a call.
    Yielded {
        /// Its worker.
        worker: WorkerId,
    },
}

impl fmt::Display for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the run has not started"),
            Self::Stopping => f.write_str("the run is stopping"),
            Self::RowGroup { reason } => write!(f, "its row group is not admitted: {reason:?}"),
            Self::PreBatchHook => f.write_str("the pre-batch hook is to be answered first"),
            Self::Upstream { column, row: None } => write!(f, "its upstream `{column}` is not complete"),
            Self::Upstream { column, row: Some(row) } => {
                write!(f, "its upstream `{column}` is not complete in row {row}")
            }
            Self::Turn { row_group, row: None } => write!(f, "it is the turn of row group {row_group}"),
            Self::Turn { row_group, row: Some(row) } => {
                write!(f, "it is the turn of row {row} of row group {row_group}")
            }
            Self::ProviderUnavailable => {
                f.write_str("its provider or model cannot be used, and it is kept for another run")
            }
            Self::Round => f.write_str("it waits for the next salvage round"),
            Self::Pause { until } => write!(f, "it failed, and is paused until {until}"),
            Self::Denied { denial } => denial.fmt(f),
            Self::Behind { task } => write!(f, "task {task:016x} of its group is before it"),
            Self::Queue => f.write_str("others are first"),
            Self::Yielded { worker } => write!(f, "worker {:x} has yielded and waits for a call", worker.to_bits()),
        }
    }
}

/// The one thing that keeps slots of a resource of the task stage empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SlotWait {
    /// The run has not started, is stopping, or has nothing left to do.
    NotRunning,
    /// A queued task wants the resource, and may not start.
    Denied {
        /// By what.
        denial: Denial,
    },
    /// A queued task wants the resource and could start: others are first.
    Queue,
    /// No worker runs: a row group is with its hook or its checkpoint.
    HandedOut {
        /// The first such row group.
        row_group: u32,
    },
    /// No worker runs: failed tasks are paused.
    Pause {
        /// Until then.
        until: Instant,
    },
    /// No queued task wants it, and no further row group is admitted.
    RowGroups {
        /// Why.
        reason: RowGroupBlock,
    },
    /// The next tasks wait for running ones.
    Upstreams {
        /// How many run.
        running: usize,
    },
}

impl fmt::Display for SlotWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning => f.write_str("the run has nothing to start"),
            Self::Denied { denial } => write!(f, "the next task may not start: {denial}"),
            Self::Queue => f.write_str("others are first"),
            Self::HandedOut { row_group } => write!(f, "row group {row_group} is with its hook or its checkpoint"),
            Self::Pause { until } => write!(f, "failed tasks are paused until {until}"),
            Self::RowGroups { reason } => write!(f, "no further row group is admitted: {reason:?}"),
            Self::Upstreams { running } => write!(f, "the next tasks wait for {running} that run"),
        }
    }
}
