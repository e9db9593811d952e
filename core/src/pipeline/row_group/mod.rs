//! Row groups: which one is next, which are admitted, and the state of each task.
//!
//! | file | what it has |
//! | --- | --- |
//! | `pending` | the row groups that are not admitted yet, as a cursor |
//! | `target` | the target number of admitted row groups |
//! | `frontier` | which tasks of one row group are ready, done or dropped |
//! | `group` | one admitted row group: its frontier, its phase, its dropped rows |
//! | `active` | the admitted row groups by number |
//! | `counts` | the number of tasks that are queued or wait to be retried |
//! | `set` | all of the above together: [`RowGroups`] |

mod active;
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
