//! Task admission: decides which ready tasks become running workers.
//!
//! A *resource* is a named counter with a limit, such as the number of workers. A task's *demand* is the
//! amount of each resource that it needs while it runs. Tasks belong to *groups*, which take turns in the
//! [fair queue](crate::fair_queue) by weight. A *policy* decides when a group may hold more than its share.
//! Task admission does not depend on the plan, on providers or on adaptive limits. Its one input about calls
//! is advice: the caller sets whether a call would have to wait, as a
//! [`RequestPressure`](crate::request::RequestPressure).
//!
//! A [`Dispatcher`] joins the queue and the admission in one transaction: it selects a task, leases its whole
//! demand, and removes it from the queue. A task gets its lease before its worker is spawned, so no worker
//! ever waits for a task resource.
//!
//! | item | what it is |
//! | --- | --- |
//! | [`Dispatcher`] | the queue, the resources and the policy |
//! | [`TaskConfig`], [`TaskGroup`], [`DemandId`] | resources, groups and demands |
//! | [`TaskPolicy`], [`PolicyView`] | a policy and its input; [`StrictFair`] and [`BoundedBorrow`] are two |
//! | [`TaskLease`], [`TaskDenial`] | the right to run, and why a task may not |
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

mod accounts;
mod admission;
mod advisory;
mod denials;
mod dispatch;
mod explain;
mod parking;
mod policy;
mod resources;
mod shares;
mod yielding;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_advisory;
#[cfg(test)]
mod tests_borrow;
#[cfg(test)]
mod tests_cost;
#[cfg(all(test, feature = "sim"))]
mod tests_model;

pub use crate::event::GroupKind;
pub use admission::{DenialFigures, TaskDenial, TaskDenialReason, TaskGroup, TaskGroupId, TaskLease};
pub use advisory::AdvisorySkip;
pub(crate) use denials::Denied;
pub use dispatch::{Dispatched, Dispatcher};
pub use explain::Blocked;
pub use policy::bounded_borrow::{BorrowCeiling, BoundedBorrow, BoundedBorrowConfig};
pub use policy::strict_fair::StrictFair;
pub use policy::{BoxedPolicy, PolicyDenial, PolicyGrant, PolicyView, TaskPolicy, Until};
pub use resources::{DemandError, DemandId, TaskConfig, TaskResourceId};
pub use shares::ShareRounding;
