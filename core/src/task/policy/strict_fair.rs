//! Strict fairness: at or above its limit, a group starts a worker only while nobody else could.

use super::{GroupView, TaskPolicy};
use crate::task::admission::DenialReason;

/// No admitted limit: allowed. Running below the limit: allowed. At or above it: allowed while no *peer pressure*
/// exists, that is while no other group's head wants one of the same resources and could be admitted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrictFair;

impl TaskPolicy for StrictFair {
    fn evaluate(&self, group: &GroupView, has_peer_pressure: &mut dyn FnMut() -> bool) -> Result<(), DenialReason> {
        let is_below = group.admitted_limit.is_none_or(|limit| group.running < limit);
        if is_below || !has_peer_pressure() { Ok(()) } else { Err(DenialReason::GroupCap) }
    }
}
