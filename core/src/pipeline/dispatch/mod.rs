//! From a ready task to a worker: how tasks are queued, what each holds while it runs, and whose turn it is.
//!
//! | file | what it has |
//! | --- | --- |
//! | `queue` | the fair queue and the resources of the task stage, by column |
//! | `workers` | the workers with their leases, and which of them have yielded |
//! | `policy` | the task policy, whose panics end the run |
//! | `column_cursors` | whose turn it is in a column that keeps an order |

mod column_cursors;
mod policy;
mod queue;
mod workers;

pub(crate) use column_cursors::ColumnCursors;
pub(crate) use queue::TaskQueue;
pub(crate) use workers::{EndedWorker, Workers};
