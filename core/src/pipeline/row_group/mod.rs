//! Row groups: which one is next, which are admitted, and the state of each task.
//!
//! A *row group* is a range of consecutive rows of the run. It is admitted, passed to hooks, and saved as a
//! whole, unless the run stops before. It has one *task* for each row of a cell column, a *cell*, and one
//! task for each other column, a *whole-group* task. This is its life:
//!
//! ```text
//!                      +--the run stops, and no part is saved-------------------------------+
//!                      |                                                                    v
//! pending --admit--> computing --all tasks done--> post-batch --ok--> saving --ok-------> removed
//!                    |  ^                              |                |
//!         seeds done |  | hook ok                      +----failed------+--> unsaved
//!                    v  |                                                    (kept; the run stops)
//!                  pre-batch
//!
//! |-- no memory --|  |----------------------- admitted and active -------------------|
//! ```
//!
//! The two batch phases exist only if the run has such a hook. A run that stops and saves row groups in part
//! leaves the phase *computing* before all tasks are done.
//!
//! - A row group is *admitted* when the states of its tasks are created and its first tasks become ready. It
//!   is *active* from then on until it is removed, also if it is unsaved.
//! - The *target* is the number of row groups that may be active at once.
//! - The *frontier* of a row group is the state of its tasks: the border between those that are done and
//!   those whose upstreams are not complete. A task on the border is *ready*. The methods add each task that
//!   becomes ready to a list `ready`, and the caller then queues it.
//! - A task is *open* if it is neither done nor dropped. In the phase *computing*, the open tasks of a row
//!   group become ready, run and end.
//! - A *deferred* task has failed and can be retried. It waits for the next *salvage round* of its row group,
//!   which begins when the row group has no running or queued task. A *delayed* task waits only for an
//!   instant.
//! - A *gathered* cell is ready, and waits for a batch of its column to start.
//! - A *live* row is computed by this run and was not dropped. A live row is *complete* when all its cells
//!   and all whole-group tasks are done.
//! - A *seed* is a whole-group column that depends on no cell. While a row group *awaits its
//!   hook*, all other columns wait for the pre-batch hook.
//! - The *checkpoint* is the request to the host to save the complete and the dropped rows of a row group.
//!
//! | file | what it has |
//! | --- | --- |
//! | `pending` | the row groups that are not admitted yet, as a cursor |
//! | `target` | the target number of active row groups |
//! | `frontier` | which tasks of one row group are ready, done or dropped |
//! | `batches` | which ready cells of a batched column start together |
//! | `group` | one active row group: its frontier, its phase, its dropped rows |
//! | `active` | the active row groups by number |
//! | `counts` | the number of tasks that are queued or wait to be retried |
//! | `set` | all of the above together: [`RowGroups`] |

mod active;
mod batches;
mod counts;
mod frontier;
mod group;
mod pending;
mod set;
mod target;

pub(crate) use counts::StateCounts;
pub(crate) use frontier::{Frontier, TaskEntry, TaskState};
pub(crate) use group::{RowGroup, RowGroupPhase};
pub use pending::{MAX_ROW_GROUP_SIZE, MAX_ROW_GROUP_TASKS, MAX_ROW_GROUPS};
pub(crate) use pending::{Pending, Span, row_groups_of};
pub(crate) use set::{RoundTask, RowGroups, StartedTask};
pub use target::{AdaptiveRowGroups, RowGroupBlock};
pub(crate) use target::{ModelLoad, RowGroupTarget, Sample};
