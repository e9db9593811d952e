//! What is ready, what is next, what is finished, what failed?
//!
//! A [`Plan`] is a directed acyclic graph of columns. Rows come in row groups. A task makes one column for one row
//! ([`Strategy::Cell`]) or for a whole row group (the other strategies). The [`Pipeline`] machine admits row groups,
//! finds the tasks whose upstreams are complete, passes each through the queue and the lease of
//! [`task`](crate::task), and hands a row group out for its checkpoint once nothing of it is left to do.
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
//! | file | what it decides |
//! | --- | --- |
//! | `plan` | which columns there are, and in which order they can be made |
//! | `key` | the one recipe for a task's id |
//! | `frontier` | which tasks of one row group are ready, done or dropped |
//! | `row_group` | which row group is next, and when one is finished |
//! | `row_group_target` | how many row groups to have in work |
//! | `ready` | what becomes of a task that waits for nothing more |
//! | `settings` | what may be changed while the run goes on |
//! | `route` | in which group its tasks are queued, and for what |
//! | `ordered` | whose turn it is in a column that keeps an order |
//! | `salvage` | when a task that failed for now is tried again |
//! | `health` | when the run should stop by itself |
//! | `spawn` | what becomes of a worker that could not be started |
//! | `handover` | when a row group is given to its hooks and its checkpoint |
//! | `scheduler` | the commands and effects: a thin facade over the rest |
//! | `yielding` | which workers hold nothing while they wait for a provider |
//! | `event`, `tell` | what happened, for whoever wants to know |
//! | `facts` | what there is to see of a run |
//! | `report` | what is counted |
//! | `why` | what keeps a task, or a slot, for now |
//! | [`event`], `tell` | what happened, for whoever wants to know |

mod admitted;
mod config;
pub mod event;
mod facts;
mod frontier;
mod handover;
mod health;
mod key;
mod models;
mod ordered;
mod outcome;
mod plan;
mod ready;
mod report;
mod route;
mod row_group;
mod row_group_target;
mod salvage;
mod scheduler;
mod settings;
mod spawn;
mod stop;
mod tell;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_books;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_adaptive;
#[cfg(test)]
mod tests_event;
#[cfg(test)]
mod tests_hooks;
#[cfg(all(test, feature = "sim"))]
mod tests_laws;
#[cfg(test)]
mod tests_ordered;
#[cfg(test)]
mod tests_plan;
#[cfg(test)]
mod tests_skips;
#[cfg(test)]
mod tests_stop;
#[cfg(test)]
mod tests_why;
#[cfg(test)]
mod tests_yielding;
mod why;
mod yielding;

pub use config::{PipelineConfig, PipelineError, PolicyChoice};
pub use facts::{ColumnGauges, GroupGauges};
pub use outcome::{
    Batch, DropReason, DroppedRow, Effect, FailureKind, FatalError, FinishedRowGroup, Hook, HookError,
    ProviderDegraded, RetryKind, SaveError, Task, TaskOutcome, WorkerId,
};
pub use plan::{Column, ColumnId, MAX_COLUMNS, Plan, PlanBuilder, PlanError, Strategy};
pub use report::{ColumnReport, DroppedCount, Progress, RunReport, StopReason, TaskCounts};
pub use row_group::{MAX_ROW_GROUP_SIZE, MAX_ROW_GROUP_TASKS, MAX_ROW_GROUPS};
pub use row_group_target::{AdaptiveRowGroups, RowGroupBlock};
pub use scheduler::Pipeline;
pub use why::{SlotWait, TaskWait};
