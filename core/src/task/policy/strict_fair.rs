//! Strict fairness: at or above its limit, a group starts a worker only while no other group competes.

use super::{PolicyDenial, PolicyGrant, PolicyView, TaskPolicy, Until};
use crate::task::admission::{DenialFigures, TaskDenialReason};
use crate::task::resources::TaskResourceId;

/// Limits each group to its admitted limit while another group competes for the same resources.
///
/// A group without an admitted limit, and a group that runs fewer workers than its limit, is allowed. At or
/// above its limit, a group is allowed while no other group competes: no first task of another group needs
/// one of the candidate's resources and could start now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrictFair;

impl TaskPolicy for StrictFair {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let running = view.running();
        let Some(limit) = view.admitted_limit().filter(|limit| running >= *limit) else {
            return Ok(PolicyGrant::unlimited());
        };
        let Some(resource) = view.contested_resource() else { return Ok(PolicyGrant::unlimited()) };
        Err(PolicyDenial {
            reason: TaskDenialReason::GroupCap,
            resource: Some(resource),
            figures: Some(DenialFigures { held: running, requested: 1, share: limit, debt: 0, ceiling: None }),
            until: Until::NoCompetition(resource),
        })
    }

    /// Repays the whole amount, so that debts from an earlier policy end.
    fn repaid(&self, _resource: TaskResourceId, amount: u32) -> u32 {
        amount
    }
}
