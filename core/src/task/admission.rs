//! Groups, leases and denials of task admission.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::event::GroupKind;
use crate::fair_queue::QueueGroupId;
use crate::lease::LeaseId;

/// A group of tasks that take turns with the tasks of other groups. Groups with equal kind and identity are
/// the same group.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskGroup {
    /// The kind of work of its tasks.
    pub kind: GroupKind,
    /// The identity, such as provider and model.
    pub identity: Vec<String>,
    /// The weight relative to other groups, from 2^-20 to 2^20. While two groups have queued tasks, the one
    /// with twice the weight starts twice as many.
    pub weight: f64,
    /// The number of leases it may hold while other groups compete, or `None` for no limit. At least 1.
    #[cfg_attr(feature = "serde", serde(default))]
    pub admitted_limit: Option<u32>,
}

impl TaskGroup {
    /// Creates a group of local work with weight 1 and without a limit.
    #[must_use]
    pub fn local(name: &str) -> Self {
        Self { kind: GroupKind::Local, identity: [name.to_string()].into(), weight: 1.0, admitted_limit: None }
    }

    /// Creates the group of a model's tasks. Its admitted limit is twice the weight, rounded down, at least
    /// 1.
    #[must_use]
    pub fn model(provider: &str, model: &str, weight: f64) -> Self {
        // Weights are at most 2^20, so twice a weight fits.
        let admitted_limit = Some(((2.0 * weight) as u32).max(1));
        let identity = [provider.to_string(), model.to_string()].into();
        Self { kind: GroupKind::Model, identity, weight, admitted_limit }
    }
}

/// The kind and identity of a group.
pub(super) type GroupKey = (GroupKind, Vec<String>);

/// The id of a group of one [`Dispatcher`](super::Dispatcher), by order of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskGroupId(pub(crate) QueueGroupId);

/// Why a ready task may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskDenialReason {
    /// Less of a resource is available than it needs.
    NoCapacity,
    /// Its group is at its limit or share while another group could start.
    GroupCap,
    /// Its group has debt while another group could start, or has reached its borrowing ceiling.
    BorrowDebt,
    /// Admission is shut down.
    Shutdown,
    /// A custom policy denies the task for a reason of its own.
    Policy,
}

/// The figures that a policy compared for a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DenialFigures {
    /// What the group holds of the resource, or its number of leases if its limit on leases decided.
    pub held: u32,
    /// What one more worker would add.
    #[cfg_attr(feature = "serde", serde(rename = "asked"))]
    pub requested: u32,
    /// What the group may hold while other groups compete.
    pub share: u32,
    /// The group's debt in the resource.
    pub debt: u32,
    /// The largest debt it may have. `None` unless that decided.
    pub ceiling: Option<u32>,
}

impl fmt::Display for DenialFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, requested, share, debt, ceiling } = self;
        write!(f, "holds {held}, requests {requested}, share {share}, debt {debt}")?;
        ceiling.map_or(Ok(()), |ceiling| write!(f, ", debt at most {ceiling}"))
    }
}

/// The reason why a task may not start, with the resource and the figures if there are any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TaskDenial {
    /// The reason.
    pub reason: TaskDenialReason,
    /// The resource that is short or for which the policy denies the task.
    pub resource: Option<String>,
    /// The figures that the policy compared.
    pub figures: Option<DenialFigures>,
}

impl fmt::Display for TaskDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may_not_borrow = self.figures.is_some_and(|figures| figures.ceiling.is_some());
        let what = match self.reason {
            TaskDenialReason::NoCapacity => "a resource is fully leased",
            TaskDenialReason::GroupCap => "the group is at its limit while another group could start",
            TaskDenialReason::BorrowDebt if may_not_borrow => "the group may borrow no more",
            TaskDenialReason::BorrowDebt => "the group has to repay a debt while another group could start",
            TaskDenialReason::Shutdown => "task admission is shut down",
            TaskDenialReason::Policy => "the policy denies it",
        };
        f.write_str(what)?;
        if let Some(resource) = &self.resource {
            write!(f, ": `{resource}`")?;
        }
        self.figures.map_or(Ok(()), |figures| write!(f, " ({figures})"))
    }
}

/// The right to run one worker. Release it once, with [`Dispatcher::release`](super::Dispatcher::release).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is dropped is capacity lost for ever: release it"]
pub struct TaskLease {
    pub(super) id: LeaseId,
}

impl TaskLease {
    /// Returns the id of the lease, a plain value that can cross a language boundary.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// Creates the lease that `id` names. Whether it is live is checked when it is released.
    pub const fn from_id(id: LeaseId) -> Self {
        Self { id }
    }
}
