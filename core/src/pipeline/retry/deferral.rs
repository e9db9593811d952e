//! Whether failures keep new row groups from being of use.
//!
//! A new row group is of no use while all that it could do first would wait behind tasks that are to be tried
//! again. This is judged by what tasks [call](super::CallTargets), so that a provider that fails does not
//! hold back work for another one. Local work is no reason to admit a row group while its models wait: it
//! would only take memory earlier.

use alloc::vec::Vec;

use super::CallTargets;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::StateCounts;
use crate::task::GroupKind;

/// The columns behind the first work of a row group.
#[derive(Clone, Debug)]
pub(crate) struct Deferral {
    /// For each target that a new row group calls first, its columns. Those are the targets of model columns
    /// that come after no other model column, or of the root columns if no column calls a model.
    first: Vec<Vec<ColumnId>>,
}

impl Deferral {
    pub(crate) fn new(plan: &Plan, targets: &CallTargets) -> Self {
        let is_model = |id: ColumnId| plan.columns()[id.index()].group.kind != GroupKind::Local;
        // Whether a column is a model's or comes after one.
        let mut is_late = alloc::vec![false; plan.columns().len()];
        let (mut first, mut roots) = (Vec::new(), Vec::new());
        for id in plan.order().iter().copied() {
            let comes_after = plan.upstreams(id).iter().any(|upstream| is_late[upstream.index()]);
            is_late[id.index()] = comes_after || is_model(id);
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

    /// Whether every target that a new row group calls first has a task that is to be tried again.
    pub(crate) fn blocks_row_groups(&self, counts: &StateCounts) -> bool {
        self.first.iter().all(|columns| columns.iter().any(|column| counts.is_retrying(*column)))
    }
}
