//! Explanations of why a task waits, or why a slot of a resource is free.

use alloc::string::String;
use core::fmt;

use super::outcome::WorkerId;
use super::row_group::RowGroupBlock;
use crate::task::TaskDenial;
use crate::time::Instant;

/// The one condition that prevents a task from running.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskWait {
    /// The run has not started.
    NotStarted,
    /// The run is stopping, or has ended.
    Stopping,
    /// The row group of the task is not admitted.
    RowGroup {
        /// Why no further row group is admitted.
        reason: RowGroupBlock,
    },
    /// The pre-batch hook of the row group has not ended.
    PreBatchHook,
    /// The task is ready. It starts with other tasks of its column, when their batch is full or no further
    /// one can become ready.
    Batch,
    /// An upstream is not complete.
    Upstream {
        /// The first such column.
        column: String,
        /// The first row in which it is not complete, or `None` for a column of whole row groups.
        row: Option<u32>,
    },
    /// The column is ordered, and another task of it comes first.
    #[cfg_attr(feature = "serde", serde(rename = "turn"))]
    ColumnOrder {
        /// The row group of that task.
        row_group: u32,
        /// The row of that task, or `None` for a task of a whole row group.
        row: Option<u32>,
    },
    /// The provider or model can no longer be used. The task is left for a resumed run.
    ProviderUnavailable,
    /// The task failed and waits for the next salvage round of its row group.
    Round,
    /// The task failed and waits for an instant before it is retried.
    #[cfg_attr(feature = "serde", serde(rename = "pause"))]
    Delayed {
        /// The earliest instant of the retry.
        until: Instant,
    },
    /// The task is queued, but may not start. The [`TaskDenial`] names the resource, share or debt that
    /// limits it.
    Denied {
        /// Why it may not start.
        denial: TaskDenial,
    },
    /// The task is queued behind another task of its group.
    Behind {
        /// The first task of the group, numbered as in [events](crate::pipeline::event::Correlation::task).
        task: u64,
    },
    /// The task is queued and could start, but other tasks are dispatched first.
    Queue,
    /// The task runs, but holds no task resources while its worker waits for a request lease.
    Yielded {
        /// The worker of the task.
        worker: WorkerId,
    },
}

impl fmt::Display for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the run has not started"),
            Self::Stopping => f.write_str("the run is stopping"),
            Self::RowGroup { reason } => write!(f, "its row group is not admitted: {reason:?}"),
            Self::Batch => f.write_str("it starts together with other rows, which are not ready"),
            Self::PreBatchHook => f.write_str("the pre-batch hook is to be answered first"),
            Self::Upstream { column, row: None } => write!(f, "its upstream `{column}` is not complete"),
            Self::Upstream { column, row: Some(row) } => {
                write!(f, "its upstream `{column}` is not complete in row {row}")
            }
            Self::ColumnOrder { row_group, row: None } => write!(f, "it is the turn of row group {row_group}"),
            Self::ColumnOrder { row_group, row: Some(row) } => {
                write!(f, "it is the turn of row {row} of row group {row_group}")
            }
            Self::ProviderUnavailable => {
                f.write_str("its provider or model cannot be used, and it is kept for another run")
            }
            Self::Round => f.write_str("it waits for the next salvage round"),
            Self::Delayed { until } => write!(f, "it failed, and is delayed until {until}"),
            Self::Denied { denial } => denial.fmt(f),
            Self::Behind { task } => write!(f, "task {task:016x} of its group is before it"),
            Self::Queue => f.write_str("other tasks are first"),
            Self::Yielded { worker } => write!(f, "worker {:x} has yielded and waits for a call", worker.to_bits()),
        }
    }
}

/// The one condition that leaves slots of a task resource free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SlotWait {
    /// The run has not started, is stopping, has ended, or has nothing left to do.
    NotRunning,
    /// A queued task needs the resource, but may not start.
    Denied {
        /// Why it may not start.
        denial: TaskDenial,
    },
    /// A queued task needs the resource and could start, but other tasks are dispatched first.
    Queue,
    /// No worker runs, and the hook or checkpoint of a row group has not ended.
    #[cfg_attr(feature = "serde", serde(rename = "handed_out"))]
    HookOrCheckpoint {
        /// The first such row group.
        row_group: u32,
    },
    /// No worker runs, and failed tasks wait for an instant before they are retried.
    #[cfg_attr(feature = "serde", serde(rename = "pause"))]
    Delayed {
        /// The earliest instant of a retry.
        until: Instant,
    },
    /// No queued task needs the resource, and no further row group is admitted.
    RowGroups {
        /// Why no further row group is admitted.
        reason: RowGroupBlock,
    },
    /// The next tasks wait for running ones.
    Upstreams {
        /// The number of workers that run.
        running: usize,
    },
}

impl fmt::Display for SlotWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning => f.write_str("the run has nothing to start"),
            Self::Denied { denial } => write!(f, "the next task may not start: {denial}"),
            Self::Queue => f.write_str("other tasks are first"),
            Self::HookOrCheckpoint { row_group } => {
                write!(f, "row group {row_group} is with its hook or its checkpoint")
            }
            Self::Delayed { until } => write!(f, "failed tasks are delayed until {until}"),
            Self::RowGroups { reason } => write!(f, "no further row group is admitted: {reason:?}"),
            Self::Upstreams { running } => write!(f, "the next tasks wait for {running} that run"),
        }
    }
}
