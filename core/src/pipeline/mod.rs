//! Runs a plan of columns over row groups: what is ready, what is next, what is finished, what failed?
//!
//! A [`Plan`] is a directed acyclic graph of columns. Rows come in row groups. A task makes one column for
//! one row ([`Strategy::Cell`]) or for a whole row group (the other strategies). The [`Pipeline`] machine
//! admits row groups, finds the tasks whose upstreams are complete, passes each through the queue and the
//! lease of [`task`](crate::task), and requests the checkpoint of a row group once all its tasks are done.
//!
//! ```text
//! row group:  pending --admit--> open --last worker done--> saving --saved--> gone
//!                                                             \--failed--> unsaved (kept; the run stops)
//!             hooks, if asked for: one after its seeds and before the rest, one before it is saved
//!
//! task:       waiting --upstreams complete--> queued --lease--> running --success, skipped--> done
//!                                               ^                  |---failed------> dropped, with its row or group
//!                                               |--round---- deferred <---retryable
//!                                               |--due------ delayed <----rate limit, admission timeout
//! ```
//!
//! | module | what it decides |
//! | --- | --- |
//! | `plan` | which columns there are, in which order they can be made, and what a task's id is |
//! | `row_group` | which row group is next, which of its tasks are ready, done or dropped, and how many are in work |
//! | `retry` | when a failed task is tried again, and when the run should stop by itself |
//! | `dispatch` | in which fairness group tasks are queued, which workers run, whose turn it is in an ordered column |
//! | `lifecycle` | how a run begins, stops and ends |
//! | `machine` | the commands and effects of a run: the facade [`Pipeline`] over the parts above |
//! | `command` | the commands as values, to be recorded and applied again |
//! | [`event`] | what happened |
//! | `report`, `stats`, `explain` | what is counted, what there is to watch, and why a task waits |
//! | `config`, `outcome` | the settings of a run, and the values that go in and out |

mod command;
mod config;
mod dispatch;
pub mod event;
mod explain;
mod lifecycle;
mod machine;
mod outcome;
mod plan;
mod report;
mod retry;
mod row_group;
mod stats;
#[cfg(test)]
mod tests;

pub use command::PipelineCommand;
pub use config::{PipelineConfig, PipelineError, PolicyChoice};
pub use explain::{SlotWait, TaskWait};
pub use machine::Pipeline;
pub use outcome::{
    Batch, DiscardReason, DropReason, DroppedRow, Effect, FailureKind, FatalError, FinishedRowGroup, Hook, HookError,
    ProviderDegraded, RetryKind, RetryableCount, SaveError, Task, TaskOutcome, WorkerId,
};
pub use plan::{Column, ColumnId, MAX_COLUMNS, Plan, PlanBuilder, PlanError, Strategy};
pub use report::{ColumnReport, DroppedCount, Progress, RunReport, StopReason, TaskCounts};
pub use row_group::{AdaptiveRowGroups, MAX_ROW_GROUP_SIZE, MAX_ROW_GROUP_TASKS, MAX_ROW_GROUPS, RowGroupBlock};
pub use stats::{ColumnStats, GroupStats};
