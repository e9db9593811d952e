//! Strict fairness: at or above its limit, a group starts a worker only while nobody else could.

use super::{PolicyDenial, PolicyView, TaskPolicy};
use crate::task::admission::DenialReason;

/// No admitted limit: allowed. Running below the limit: allowed. At or above it: allowed while no *peer pressure*
/// exists, that is while no other group's head wants one of the same resources and could be admitted now. `submission`
/// counts only for a task that asks for nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrictFair;

impl TaskPolicy for StrictFair {
    fn evaluate(&self, candidate: &PolicyView<'_>) -> Result<(), PolicyDenial> {
        if candidate.admitted_limit().is_none_or(|limit| candidate.running() < limit) {
            return Ok(());
        }
        match candidate.amounts().find(|(resource, _)| candidate.has_peers(*resource)) {
            Some((resource, _)) => Err(PolicyDenial { reason: DenialReason::GroupCap, resource: Some(resource) }),
            None => Ok(()),
        }
    }
}
