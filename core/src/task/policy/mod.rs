//! Policies decide when a group may take more than its share.
//!
//! A policy is evaluated only for a task whose whole demand is available, the *candidate*. Its decision is a
//! pure function of a [`PolicyView`]. The dispatcher stores the debts of groups. It applies the changes of
//! debt that a policy returns in the same step as the lease or release.

pub(super) mod bounded_borrow;
pub(super) mod strict_fair;

use alloc::boxed::Box;
use core::fmt;
use core::ops::RangeInclusive;

use smallvec::SmallVec;

use super::accounts::{Accounts, GroupAccount};
use super::admission::{DenialFigures, TaskDenialReason, TaskGroup, TaskGroupId};
use super::resources::TaskResourceId;
use super::shares::{ShareRounding, share};
use crate::error::ConfigError;

/// Decides whether a group may start one more worker.
///
/// A policy of your own is passed to [`Pipeline::with_policy`](crate::pipeline::Pipeline::with_policy) or to
/// [`Dispatcher::with_policy`](super::Dispatcher::with_policy). To try it in virtual time first, use
/// `sim::policy::PolicyReport::run` (feature `sim`).
///
/// A policy that panics while it decides for a pipeline stops the run. The report's reason is
/// [`PolicyPanicked`](crate::pipeline::StopReason::PolicyPanicked), with the message of the panic. If
/// `group_registered` panics, the call that registers or changes the group fails with the message, and a run
/// under this policy stops at its next event. Without the feature `std`, and in a stand-alone
/// [`Dispatcher`](super::Dispatcher), a panic unwinds to the caller.
pub trait TaskPolicy {
    /// Decides whether the candidate of `view` may start. Returns what it borrows, or why it may not start
    /// and until when.
    ///
    /// The result must depend on `view` and on the policy's settings alone.
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial>;

    /// Returns how much of a group's debt a release of `amount` repays. The debt never falls below 0. The
    /// default is 0.
    fn repaid(&self, resource: TaskResourceId, amount: u32) -> u32 {
        let _ = (resource, amount);
        0
    }

    /// Prepares the policy for a group. It is called when a group is registered and when it is changed, so
    /// that settings by name can be stored by id. `find` returns a resource by its name. The default does
    /// nothing.
    ///
    /// # Errors
    /// Fails if the settings for this group are invalid. The group is then not registered.
    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        let _ = (id, group, find);
        Ok(())
    }
}

/// A boxed policy, chosen at run time.
pub type BoxedPolicy = Box<dyn TaskPolicy + Send>;

// `Debug` is not a supertrait: the `Debug` code of every policy would then be part of the WebAssembly module,
// which does not use it.
impl fmt::Debug for dyn TaskPolicy + Send {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TaskPolicy")
    }
}

impl TaskPolicy for BoxedPolicy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        (**self).evaluate(view)
    }

    fn repaid(&self, resource: TaskResourceId, amount: u32) -> u32 {
        (**self).repaid(resource, amount)
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        (**self).group_registered(id, group, find)
    }
}

/// The decision that the candidate may start, with what its group borrows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyGrant {
    pub(super) debts: SmallVec<[(TaskResourceId, u32); 3]>,
}

impl PolicyGrant {
    /// Returns the decision to start the candidate without borrowing.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Adds `amount` to the debt of the group in one resource.
    #[must_use]
    pub fn borrowing(mut self, resource: TaskResourceId, amount: u32) -> Self {
        self.debts.push((resource, amount));
        self
    }
}

/// The decision that the candidate may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDenial {
    /// The reason.
    pub reason: TaskDenialReason,
    /// The resource that the denial is about, if it is about one.
    pub resource: Option<TaskResourceId>,
    /// The compared figures, for messages.
    pub figures: Option<DenialFigures>,
    /// The change that may end the denial.
    pub until: Until,
}

/// Creates a denial that is evaluated again after every change.
impl From<TaskDenialReason> for PolicyDenial {
    fn from(reason: TaskDenialReason) -> Self {
        Self { reason, resource: None, figures: None, until: Until::AnyChange }
    }
}

/// How long a denial holds.
///
/// In every case the group is evaluated again when it releases a lease, gets another first task, or is
/// registered again. A policy that names a change that comes too late starves its groups.
/// [`Until::AnyChange`] is always correct.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Until anything changes. Each change then costs one evaluation for every group with such a denial.
    AnyChange,
    /// Until no other group competes for the resource.
    NoCompetition(TaskResourceId),
    /// Until no other group competes for the resource, or the group's [strict
    /// share](PolicyView::strict_share) of it leaves this range.
    ShareLeaves {
        /// The resource.
        resource: TaskResourceId,
        /// The shares at which the denial holds. The present share is among them.
        shares: RangeInclusive<u32>,
        /// How the shares are rounded.
        rounding: ShareRounding,
    },
}

/// The input of a policy: a candidate whose whole demand is available, its group, and the competing groups.
///
/// Another group *competes* for a resource if its first task needs the resource and could start now. All
/// figures are kept up to date, so each method is O(1), apart from the few resources of one demand.
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

    /// Returns the candidate's group.
    #[must_use]
    pub fn group(&self) -> TaskGroupId {
        TaskGroupId(crate::fair_queue::QueueGroupId(self.group))
    }

    /// Returns the group's limit on leases, if it has one.
    #[must_use]
    pub fn admitted_limit(&self) -> Option<u32> {
        self.account().admitted_limit
    }

    /// Returns the group's weight.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.account().weight
    }

    /// Returns the number of leases of the group, without those of yielded workers.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.account().running
    }

    /// Returns the resources and amounts that the candidate needs, `submission` first.
    pub fn demands(&self) -> impl Iterator<Item = (TaskResourceId, u32)> + use<'a> {
        let amounts = self.accounts.resources.amounts(self.demand);
        amounts.iter().map(|(resource, amount)| (TaskResourceId(*resource), *amount))
    }

    /// Returns how much of a resource the group holds.
    #[must_use]
    pub fn held(&self, resource: TaskResourceId) -> u32 {
        self.account().held(resource.0)
    }

    /// Returns the group's debt in a resource.
    #[must_use]
    pub fn debt(&self, resource: TaskResourceId) -> u32 {
        self.account().debt(resource.0)
    }

    /// Returns the limit of a resource.
    #[must_use]
    pub fn limit(&self, resource: TaskResourceId) -> u32 {
        self.accounts.resources.limit(resource.0)
    }

    /// Returns how much of a resource all groups hold.
    #[must_use]
    pub fn leased(&self, resource: TaskResourceId) -> u32 {
        self.accounts.resources.leased(resource.0)
    }

    /// Returns the name of a resource.
    #[must_use]
    pub fn resource_name(&self, resource: TaskResourceId) -> &'a str {
        self.accounts.resources.name(resource.0)
    }

    /// Returns the number of other groups that compete for a resource.
    #[must_use]
    pub fn competing_groups(&self, resource: TaskResourceId) -> u32 {
        self.accounts.peers(self.group, resource.0).count
    }

    /// Returns whether another group competes for a resource. For `submission` this is always `false` if the
    /// candidate needs any other resource: every task needs `submission`, so all groups would compete.
    #[must_use]
    pub fn has_competition_for(&self, resource: TaskResourceId) -> bool {
        let counts = resource.0 != 0 || self.accounts.resources.amounts(self.demand).len() == 1;
        counts && self.competing_groups(resource) > 0
    }

    /// Returns the first of the candidate's resources for which another group competes.
    #[must_use]
    pub fn contested_resource(&self) -> Option<TaskResourceId> {
        self.demands().map(|(resource, _)| resource).find(|resource| self.has_competition_for(*resource))
    }

    /// Returns the group's share of a resource by weight: `limit x weight / (weight + sum of the competing
    /// groups' weights)`, rounded, at least 1, and at most the admitted limit and the resource's limit.
    ///
    /// Without competing groups, the share is computed as if one other group of equal weight competed. With
    /// a limit of 1 the share is 1.
    #[must_use]
    pub fn strict_share(&self, resource: TaskResourceId, rounding: ShareRounding) -> u32 {
        let GroupAccount { units, admitted_limit, .. } = *self.account();
        let limit = self.limit(resource);
        let peers = self.accounts.peers(self.group, resource.0);
        let others = if peers.count == 0 { units } else { peers.weight };
        let most = admitted_limit.unwrap_or(limit).min(limit);
        share(limit, units, units + others, rounding).max(1).min(most)
    }
}
