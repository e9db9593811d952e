//! Row groups: which is next, which are in work, and how far each task of them is.
//!
//! | file | what it has |
//! | --- | --- |
//! | `pending` | the row groups that are not admitted, as a cursor |
//! | `target` | how many row groups to have in work |
//! | `frontier` | which tasks of one row group are ready, done or dropped |
//! | `group` | one admitted row group: its frontier, its phase, its dropped rows |
//! | `active` | the admitted row groups by number |
//! | `counts` | how many tasks are queued or wait to be tried again |
//! | `set` | all of it together: [`RowGroups`] |

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
