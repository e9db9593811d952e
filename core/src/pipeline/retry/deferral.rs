//! Decides whether failures block the admission of new row groups.
//!
//! A new row group is not useful while all its first work would wait behind tasks that are to be retried. The
//! decision is made per [call target](super::CallTargets), so a failing provider does not block work for
//! another provider. If the models of the row groups wait, local work alone is not a reason to admit one: it
//! would only use memory earlier.

use alloc::vec::Vec;

use super::CallTargets;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::StateCounts;
use crate::task::GroupKind;

/// The columns that share a call target with the first work of a new row group.
#[derive(Clone, Debug)]
pub(crate) struct Deferral {
    /// For each call target that a new row group calls first, the columns that call it. The first targets are
    /// those of model columns without another model column upstream. If no column calls a model, they are the
    /// targets of the columns without upstreams.
    first: Vec<Vec<ColumnId>>,
}

impl Deferral {
    pub(crate) fn new(plan: &Plan, targets: &CallTargets) -> Self {
        let is_model = |id: ColumnId| plan.columns()[id.index()].group.kind != GroupKind::Local;
        // Whether a column calls a model or is downstream of one that does.
        let mut is_model_or_later = alloc::vec![false; plan.columns().len()];
        let (mut first, mut roots) = (Vec::new(), Vec::new());
        for id in plan.order().iter().copied() {
            let comes_after = plan.upstreams(id).iter().any(|upstream| is_model_or_later[upstream.index()]);
            is_model_or_later[id.index()] = comes_after || is_model(id);
            let target = targets.of(id);
            if plan.upstreams(id).is_empty() {
                roots.push(target);
            }
            if is_model(id) && !comes_after {
                first.push(target);
            }
        }
        let first = if first.is_empty() { roots } else { first };
        let columns_of = |target: usize| {
            let columns = plan.order().iter().copied();
            columns.filter(|column| targets.of(*column) == target).collect()
        };
        Self { first: first.into_iter().map(columns_of).collect() }
    }

    /// Returns whether every call target that a new row group calls first has a task waiting to be retried.
    pub(crate) fn blocks_row_groups(&self, counts: &StateCounts) -> bool {
        self.first.iter().all(|columns| columns.iter().any(|column| counts.is_retrying(*column)))
    }
}
