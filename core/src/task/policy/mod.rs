//! When a group may take more than its share.
//!
//! A policy is asked only about a task whose whole demand is available. It is a pure function of what it is shown.

pub(super) mod strict_fair;

use super::admission::DenialReason;

/// What a policy sees of the candidate's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Leases the group may hold while others press; `None` for no bound.
    pub admitted_limit: Option<u32>,
    /// Leases the group holds.
    pub running: u32,
}

/// Decides whether a group may start one more worker.
pub trait TaskPolicy {
    /// `Ok`, or why not. `has_peer_pressure` tells whether another group's head wants one of the candidate's resources
    /// and could be admitted now; it is computed only when called. MUST depend on its arguments alone.
    fn evaluate(&self, group: &GroupView, has_peer_pressure: &mut dyn FnMut() -> bool) -> Result<(), DenialReason>;
}
