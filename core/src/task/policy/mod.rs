//! When a group may take more than its share.
//!
//! A policy is asked only about a task whose whole demand is available. It is a pure function of what it is
//! shown; what groups owe is kept by the dispatcher, which adds and takes away what the policy says in the
//! same step in which it leases and takes back.

pub(super) mod bounded_borrow;
pub(super) mod strict_fair;

use alloc::boxed::Box;
use core::fmt;
use core::ops::RangeInclusive;

use smallvec::SmallVec;

use super::accounts::{Accounts, GroupAccount};
use super::admission::{DenialReason, Figures, TaskGroup, TaskGroupId};
use super::resources::ResourceId;
use super::shares::{ShareRounding, share};
use crate::error::ConfigError;

/// Decides whether a group may start one more worker.
///
/// A policy that panics while it decides for a pipeline stops the run: the report's reason is
/// [`PolicyPanicked`](crate::pipeline::StopReason::PolicyPanicked), with the message of the panic. Without
/// the feature `std`, and in a [`Dispatcher`](super::Dispatcher) of one's own, the panic unwinds to the
/// caller.
pub trait TaskPolicy {
    /// Whether the candidate may start, and what it borrows; or why not, and until when. MUST depend on
    /// `view` and on settings alone.
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal>;

    /// How much of a group's debt a release of `amount` repays. Never more is taken than is owed. Nothing by
    /// default.
    fn repaid(&self, resource: ResourceId, amount: u32) -> u32 {
        let _ = (resource, amount);
        0
    }

    /// Told of each group when it is registered, and again when it is changed, so that settings by name can
    /// be kept by number. `find` knows the resources by name.
    ///
    /// # Errors
    /// Settings for this group that make no sense; it is then not registered.
    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<ResourceId>,
    ) -> Result<(), ConfigError> {
        let _ = (id, group, find);
        Ok(())
    }
}

/// A policy chosen at run time.
pub type BoxedPolicy = Box<dyn TaskPolicy + Send>;

/// Not by a supertrait: what every policy says of itself would be part of a module for browsers, where nobody
/// reads it.
impl fmt::Debug for dyn TaskPolicy + Send {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TaskPolicy")
    }
}

impl TaskPolicy for BoxedPolicy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        (**self).evaluate(view)
    }

    fn repaid(&self, resource: ResourceId, amount: u32) -> u32 {
        (**self).repaid(resource, amount)
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<ResourceId>,
    ) -> Result<(), ConfigError> {
        (**self).group_registered(id, group, find)
    }
}

/// A policy's yes, with what the group borrows by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    pub(super) debts: SmallVec<[(ResourceId, u32); 3]>,
}

impl Allowed {
    /// Nothing is borrowed.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Adds to what the group will owe.
    #[must_use]
    pub fn borrowing(mut self, resource: ResourceId, amount: u32) -> Self {
        self.debts.push((resource, amount));
        self
    }
}

/// A policy's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: DenialReason,
    /// The resource that it is about, if it is about one.
    pub resource: Option<ResourceId>,
    /// The figures that decided, for people to read.
    pub figures: Option<Figures>,
    /// What has to change before it can be another answer.
    pub until: Until,
}

/// A refusal for that reason, to be asked again after every change.
impl From<DenialReason> for Refusal {
    fn from(reason: DenialReason) -> Self {
        Self { reason, resource: None, figures: None, until: Until::AnyChange }
    }
}

/// How long a refusal holds.
///
/// Whatever it says, the group is asked again when it gives a lease back, gets another head, or is registered
/// anew. A policy that promises more than is so starves its groups; [`Until::AnyChange`] is always right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Until anything changes. Each change then costs one evaluation for every such group.
    AnyChange,
    /// Until no other group presses on the resource.
    NoPressure(ResourceId),
    /// Until no other group presses on the resource, or the group's [strict share](PolicyView::strict_share)
    /// of it leaves this range.
    ShareLeaves {
        /// The resource.
        resource: ResourceId,
        /// The shares that are refused; the present one is among them.
        shares: RangeInclusive<u32>,
        /// How they are rounded.
        rounding: ShareRounding,
    },
}

/// What a policy sees: a candidate whose whole demand is available, its group, and who else could start now.
///
/// Every answer is read from a figure that is kept up to date: O(1), but for the few resources of one demand.
#[derive(Clone, Copy, Debug)]
pub struct PolicyView<'a> {
    accounts: &'a Accounts,
    group: u32,
    demand: u32,
}

impl<'a> PolicyView<'a> {
    pub(super) fn new(accounts: &'a Accounts, group: u32, demand: u32) -> Self {
        Self { accounts, group, demand }
    }

    fn account(&self) -> &'a GroupAccount {
        self.accounts.group(self.group)
    }

    /// The candidate's group.
    #[must_use]
    pub fn group(&self) -> TaskGroupId {
        TaskGroupId(crate::fair_queue::GroupId(self.group))
    }

    /// The group's bound on leases, if it has one.
    #[must_use]
    pub fn admitted_limit(&self) -> Option<u32> {
        self.account().admitted_limit
    }

    /// The group's weight.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.account().weight
    }

    /// Leases the group has.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.account().running
    }

    /// What the candidate asks for: resources, `submission` first, and amounts.
    pub fn demands(&self) -> impl Iterator<Item = (ResourceId, u32)> + use<'a> {
        let amounts = self.accounts.resources.amounts(self.demand);
        amounts.iter().map(|(resource, amount)| (ResourceId(*resource), *amount))
    }

    /// How much of a resource the group holds.
    #[must_use]
    pub fn held(&self, resource: ResourceId) -> u32 {
        self.account().held(resource.0)
    }

    /// How much of a resource the group owes.
    #[must_use]
    pub fn debt(&self, resource: ResourceId) -> u32 {
        self.account().debt(resource.0)
    }

    /// How much of a resource there is.
    #[must_use]
    pub fn limit(&self, resource: ResourceId) -> u32 {
        self.accounts.resources.limit(resource.0)
    }

    /// How much of a resource all groups hold.
    #[must_use]
    pub fn leased(&self, resource: ResourceId) -> u32 {
        self.accounts.resources.leased(resource.0)
    }

    /// The name of a resource.
    #[must_use]
    pub fn resource_name(&self, resource: ResourceId) -> &'a str {
        self.accounts.resources.name(resource.0)
    }

    /// Other groups whose head wants the resource and could start now.
    #[must_use]
    pub fn competing_groups(&self, resource: ResourceId) -> u32 {
        self.accounts.peers(self.group, resource.0).count
    }

    /// Whether another group presses on the resource: its head wants it and could start now. `submission` is
    /// pressed on only for a candidate that asks for nothing else.
    #[must_use]
    pub fn has_pressure_on(&self, resource: ResourceId) -> bool {
        let counts = resource.0 != 0 || self.accounts.resources.amounts(self.demand).len() == 1;
        counts && self.competing_groups(resource) > 0
    }

    /// The first of the candidate's resources that another group presses on.
    #[must_use]
    pub fn pressed_resource(&self) -> Option<ResourceId> {
        self.demands().map(|(resource, _)| resource).find(|resource| self.has_pressure_on(*resource))
    }

    /// The group's part of a resource by weight, among the groups whose head wants it and could start now:
    /// `limit x weight / sum of weights`, rounded, at least 1, at most the admitted limit and the limit.
    ///
    /// A group that is alone is measured against one of equal weight that may yet come. A limit of 1 gives 1.
    #[must_use]
    pub fn strict_share(&self, resource: ResourceId, rounding: ShareRounding) -> u32 {
        let GroupAccount { units, admitted_limit, .. } = *self.account();
        let limit = self.limit(resource);
        let peers = self.accounts.peers(self.group, resource.0);
        let others = if peers.count == 0 { units } else { peers.weight };
        let most = admitted_limit.unwrap_or(limit).min(limit);
        share(limit, units, units + others, rounding).max(1).min(most)
    }
}
