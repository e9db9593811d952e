//! Task admission: may this ready task become a running worker?
//!
//! It knows resources, groups and a policy. It knows nothing of the plan, of providers or of adaptive limits.
//!
//! A [`Dispatcher`] joins the [fair queue](crate::fair_queue) and the admission in one transaction: select, acquire,
//! commit. A worker is never spawned before its lease exists, so no worker ever waits for a task resource.
//!
//! ```
//! use tidegate_core::task::{Dispatcher, TaskConfig, TaskGroup};
//!
//! let mut tasks = Dispatcher::new(TaskConfig { submission_limit: 1, ..TaskConfig::default() })?;
//! let group = tasks.group(&TaskGroup::local("render"))?;
//! let one_slot = tasks.demand::<&str>(&[])?;
//! assert!(tasks.enqueue(7, group, one_slot) && tasks.enqueue(8, group, one_slot));
//!
//! let first = tasks.dispatch().expect("one worker may start");
//! assert_eq!(first.task, 7);
//! assert!(tasks.dispatch().is_none(), "and no more");
//! let _ = tasks.release(first.lease);
//! assert_eq!(tasks.dispatch().map(|second| second.task), Some(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod dispatch;
mod policy;
mod resources;

#[cfg(test)]
mod tests;

pub use admission::{Denial, DenialReason, GroupKind, TaskGroup, TaskGroupId, TaskLease};
pub use dispatch::{Blocked, Dispatched, Dispatcher};
pub use policy::strict_fair::StrictFair;
pub use policy::{GroupView, TaskPolicy};
pub use resources::{DemandError, DemandId, TaskConfig};
