//! When a group may take more than its share.
//!
//! A policy is asked only about a task whose whole demand is available, and only by the controller that owns it. Its
//! answer is a pure function of its own state and of the [`PolicyView`] it is shown; the controller tells it what was
//! leased and released in the same transaction, and that is when its state may change.

pub(super) mod bounded_borrow;
pub(super) mod strict_fair;

use alloc::string::String;
use core::fmt;

use super::admission::{DenialReason, TaskGroupId};
use super::peers::Peers;
use super::resources::Resources;

/// A resource of one task admission, by its place in [`Dispatcher::usage`](super::Dispatcher::usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskResource(pub(super) u32);

impl TaskResource {
    /// The resource of which every task takes one.
    pub const SUBMISSION: Self = Self(0);

    /// Its place among the resources.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a policy refuses, and over which resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyDenial {
    /// Why.
    pub reason: DenialReason,
    /// The resource whose share, debt or cap binds, where it is one.
    pub resource: Option<TaskResource>,
}

impl From<DenialReason> for PolicyDenial {
    fn from(reason: DenialReason) -> Self {
        Self { reason, resource: None }
    }
}

/// Decides whether a group may start one more worker.
pub trait TaskPolicy {
    /// `Ok`, or why not. MUST depend on the policy's state and its argument alone.
    fn evaluate(&self, candidate: &PolicyView<'_>) -> Result<(), PolicyDenial>;

    /// A group was registered, or registered again. `resources` are the names of all resources in order.
    fn on_group(&mut self, _group: TaskGroupId, _identity: &[String], _resources: &mut dyn Iterator<Item = &str>) {}

    /// The candidate was admitted, by this policy's leave or by the liveness rule. The view is the one that was judged:
    /// its demand is not leased yet.
    fn on_acquire(&mut self, _candidate: &PolicyView<'_>) {}

    /// A worker of `group` gave these amounts back.
    fn on_release(&mut self, _group: TaskGroupId, _amounts: &mut dyn Iterator<Item = (TaskResource, u32)>) {}

    /// What a group owes of a resource, for those who look.
    fn debt(&self, _group: TaskGroupId, _resource: TaskResource) -> u32 {
        0
    }
}

/// A candidate as a policy sees it: its group, what it asks for, and who else wants the same.
///
/// *Peers* for a resource are the other groups whose head wants it and could be admitted now. Reading them costs
/// O(distinct demands), whatever the number of groups.
#[derive(Clone, Copy)]
pub struct PolicyView<'a> {
    pub(super) group: TaskGroupId,
    pub(super) weight: f64,
    pub(super) admitted_limit: Option<u32>,
    pub(super) running: u32,
    /// What the group holds, by resource.
    pub(super) held: &'a [(u32, u32)],
    pub(super) demand: u32,
    pub(super) resources: &'a Resources,
    pub(super) peers: Peers<'a>,
}

impl PolicyView<'_> {
    /// The candidate's group.
    #[must_use]
    pub const fn group(&self) -> TaskGroupId {
        self.group
    }

    /// The group's weight.
    #[must_use]
    pub const fn weight(&self) -> f64 {
        self.weight
    }

    /// Leases the group may hold while others press; `None` for no bound.
    #[must_use]
    pub const fn admitted_limit(&self) -> Option<u32> {
        self.admitted_limit
    }

    /// Leases the group holds.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// What the candidate asks for, `submission` included, by ascending resource.
    pub fn amounts(&self) -> impl Iterator<Item = (TaskResource, u32)> {
        self.resources.amounts(self.demand).iter().map(|(resource, amount)| (TaskResource(*resource), *amount))
    }

    /// How much there is of a resource, free or not.
    #[must_use]
    pub fn limit(&self, resource: TaskResource) -> u32 {
        self.resources.limit(resource.0)
    }

    /// How much of a resource the group holds.
    #[must_use]
    pub fn held(&self, resource: TaskResource) -> u32 {
        self.held.iter().find(|(known, _)| *known == resource.0).map_or(0, |(_, amount)| *amount)
    }

    /// Whether there are peers for a resource. For `submission`, which everybody wants, only if the candidate asks for
    /// nothing else.
    #[must_use]
    pub fn has_peers(&self, resource: TaskResource) -> bool {
        let counts = resource != TaskResource::SUBMISSION || self.resources.amounts(self.demand).len() == 1;
        counts && self.peers.any(self.resources, resource.0)
    }

    /// The sum of the peers' weights; 0 where [`PolicyView::has_peers`] is false.
    #[must_use]
    pub fn peer_weight(&self, resource: TaskResource) -> f64 {
        if self.has_peers(resource) { self.peers.weight(self.resources, resource.0) } else { 0.0 }
    }
}

impl fmt::Debug for PolicyView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyView")
            .field("group", &self.group)
            .field("running", &self.running)
            .field("amounts", &self.resources.amounts(self.demand))
            .finish_non_exhaustive()
    }
}
