//! Strict fairness: at or above its limit, a group starts a worker only while nobody else could.

use super::{Allowed, PolicyView, Refusal, TaskPolicy, Until};
use crate::task::admission::{DenialReason, Figures};
use crate::task::resources::ResourceId;

/// No admitted limit: allowed. Running below the limit: allowed. At or above it: allowed while no *peer
/// pressure* exists, that is while no other group's head wants one of the same resources and could be
/// admitted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrictFair;

impl TaskPolicy for StrictFair {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        let running = view.running();
        let Some(limit) = view.admitted_limit().filter(|limit| running >= *limit) else {
            return Ok(Allowed::unlimited());
        };
        let Some(resource) = view.pressed_resource() else { return Ok(Allowed::unlimited()) };
        Err(Refusal {
            reason: DenialReason::GroupCap,
            resource: Some(resource),
            figures: Some(Figures { held: running, asked: 1, share: limit, debt: 0, ceiling: None }),
            until: Until::NoPressure(resource),
        })
    }

    /// What was lent under another policy comes back.
    fn repaid(&self, _resource: ResourceId, amount: u32) -> u32 {
        amount
    }
}
