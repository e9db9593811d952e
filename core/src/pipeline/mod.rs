//! The pipeline scheduler: runs a plan of columns over row groups.
//!
//! A [`Plan`] is a directed acyclic graph of columns. Rows are processed in row groups. A task computes one
//! column for one row ([`Strategy::Cell`]) or for a whole row group (the other strategies). The [`Pipeline`]
//! machine admits row groups, finds the tasks whose upstreams are complete, and passes each task through the
//! queue and the lease of [`task`](crate::task). It requests the checkpoint of a row group once all tasks of
//! the row group are done.
//!
//! ```text
//! row group:  pending --admit--> open --last worker done--> saving --saved--> removed
//!                                                             \--failed--> unsaved (kept; the run stops)
//!             optional hooks: one after the seed columns and before all others, one before the checkpoint
//!
//! task:       waiting --upstreams complete--> queued --lease--> running --success, skipped--> done
//!                                               ^                  |---failed------> dropped, with its rows
//!                                               |--round---- deferred <---retryable
//!                                               |--due------ delayed <----rate limit, admission timeout
//!
//! batch:      waiting --upstreams complete--> gathered --batch due--> queued (the lead) --lease--> running
//!                                                 |------------------- with its lead ------------> running
//! ```
//!
//! Terms:
//!
//! - A *seed* is a column that is computed for whole row groups and depends on no cell.
//! - A *deferred* task waits for a *salvage round*, which retries the deferred tasks of a row group once it
//!   has no running or queued task. A *delayed* task is queued again when its delay is over.
//! - A *live* row is computed by this run and was not dropped.
//! - An *unmade* row was neither saved nor dropped, because the run stopped. A resumed run computes it.
//! - A *batch* is up to [`Column::batched`] ready cells of one row group and column that start together. A
//!   cell that is ready is *gathered* until its batch is due; then one of them, the *lead*, is queued for
//!   all. The pre-batch hook runs when the seed columns of a row group are done, and the post-batch hook when
//!   all its tasks are.
//! - A *parked* task is left for a resumed run, because its provider is unavailable.
//!
//! | item | what it is for |
//! | --- | --- |
//! | [`Plan`], [`PlanBuilder`], [`Column`] | the columns of a run, and their topological order |
//! | [`PipelineConfig`], [`PolicyChoice`], [`AdaptiveRowGroups`] | the settings of a run |
//! | [`Pipeline`] | the state machine, with one method for each command |
//! | [`PipelineCommand`] | the commands as values, which can be recorded and applied again |
//! | [`PipelineEffect`], [`Task`], [`TaskOutcome`] | what a driver carries out, and what it reports |
//! | [`event`] | a log of what happened |
//! | [`Progress`], [`ColumnStats`], [`GroupStats`] | figures of a run in progress |
//! | [`RunReport`], [`StopReason`] | the result of a run, and why it ended |
//! | [`TaskWait`], [`SlotWait`] | why a task waits, and why slots are free |

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
    ClaimedRowGroup, DiscardReason, DropReason, DroppedRow, FailureKind, FatalError, FinishedRowGroup, Hook, HookError,
    PipelineEffect, ProviderDegraded, RetryKind, RetryableCount, SaveError, SeededRowGroup, Task, TaskBatch,
    TaskOutcome, WorkerId,
};
pub use plan::{Column, ColumnId, MAX_COLUMNS, Plan, PlanBuilder, PlanError, Strategy};
pub use report::{ColumnReport, DroppedCount, Progress, RunReport, StopReason, TaskCounts};
pub use row_group::{AdaptiveRowGroups, MAX_ROW_GROUP_SIZE, MAX_ROW_GROUP_TASKS, MAX_ROW_GROUPS, RowGroupBlock};
pub use stats::{ColumnStats, GroupStats};
