//! What the control loop over row groups knows of the models that columns call.

use alloc::vec::Vec;

use crate::order::insert_distinct;
use crate::pipeline::dispatch::route::Route;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::target::ModelLoad;
use crate::task::{BoxedPolicy, Dispatcher, GroupKind};

/// The resources that model columns hold while they run, and the fairness groups that have something held back.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Models {
    /// By place among the dispatcher's resources.
    resources: Vec<usize>,
    loads: Vec<ModelLoad>,
    /// Tasks of each fairness group that are deferred or delayed.
    held_back: Vec<u32>,
    /// The fairness groups that a new row group needs first: those of its model columns that come after no other model
    /// column, or of its first columns if it calls no model.
    first: Vec<usize>,
}

impl Models {
    pub(in crate::pipeline) fn of(
        plan: &Plan,
        routes: &[Route],
        dispatcher: &Dispatcher<BoxedPolicy>,
        groups: usize,
    ) -> Self {
        let is_model = |id: ColumnId| plan.columns()[id.index()].group.kind != GroupKind::Local;
        let names: Vec<&str> = dispatcher.usage().map(|(name, ..)| name).collect();
        let mut resources = Vec::new();
        // Whether a column is a model's or comes after one.
        let mut is_late = alloc::vec![false; plan.columns().len()];
        let (mut first, mut roots) = (Vec::new(), Vec::new());
        for id in plan.order().iter().copied() {
            let comes_after = plan.upstreams(id).iter().any(|upstream| is_late[upstream.index()]);
            is_late[id.index()] = comes_after || is_model(id);
            let group = routes[id.index()].patience;
            if plan.upstreams(id).is_empty() {
                roots.push(group);
            }
            if !is_model(id) {
                continue;
            }
            if !comes_after {
                first.push(group);
            }
            for (resource, _) in &plan.columns()[id.index()].demand {
                let at = names.iter().position(|name| name == resource);
                if let Some(at) = at.filter(|at| *at > 0) {
                    insert_distinct(&mut resources, at);
                }
            }
        }
        let first = if first.is_empty() { roots } else { first };
        Self { resources, loads: Vec::new(), held_back: alloc::vec![0; groups], first }
    }

    /// A task of this fairness group waits to be tried again.
    pub(in crate::pipeline) fn hold_back(&mut self, group: usize) {
        self.held_back[group] += 1;
    }

    /// It waits no longer.
    pub(in crate::pipeline) fn let_go(&mut self, group: usize) {
        debug_assert!(self.held_back[group] > 0, "a task is let go once for each time it was held back");
        self.held_back[group] -= 1;
    }

    /// Whether all that a new row group could do first stands behind tasks that were held back.
    pub(in crate::pipeline) fn is_held_back(&self) -> bool {
        self.first.iter().all(|group| self.held_back[*group] > 0)
    }

    /// How loaded the model resources are. O(resources x demands).
    pub(in crate::pipeline) fn loads(&mut self, dispatcher: &Dispatcher<BoxedPolicy>) -> &[ModelLoad] {
        self.loads.clear();
        for ((_, leased, limit), at) in dispatcher.usage().zip(0..) {
            if self.resources.binary_search(&at).is_ok() {
                self.loads.push(ModelLoad { limit, leased, queued: dispatcher.queued_demand(at) });
            }
        }
        &self.loads
    }
}
