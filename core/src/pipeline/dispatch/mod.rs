//! The path from a ready task to a worker: the queue, the task leases, and the turns of ordered columns.
//!
//! | file | what it has |
//! | --- | --- |
//! | `queue` | the fair queue and the task resources, by column |
//! | `workers` | the workers with their leases, and which of them have yielded |
//! | `policy` | the wrapper that turns a panic of the task policy into the end of the run |
//! | `column_cursors` | which task of an ordered column has the turn |

mod column_cursors;
mod policy;
mod queue;
mod workers;

pub(crate) use column_cursors::ColumnCursors;
pub(crate) use queue::TaskQueue;
pub(crate) use workers::{EndedWorker, Workers};
