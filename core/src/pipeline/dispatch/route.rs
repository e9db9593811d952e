//! How the tasks of each column are queued: in which fairness group, and what each holds while it runs.

use alloc::vec::Vec;

use crate::pipeline::config::PipelineError;
use crate::pipeline::event::SchedulerFact;
use crate::pipeline::event::emitter::Teller;
use crate::pipeline::plan::Plan;
use crate::pipeline::row_group::RowGroup;
use crate::pipeline::row_group::frontier::{Place, Stage};
use crate::task::{BoxedPolicy, DemandId, Dispatcher, TaskGroupId};
use crate::time::Instant;

/// How the tasks of a column are queued.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Route {
    pub(in crate::pipeline) group: TaskGroupId,
    pub(in crate::pipeline) demand: DemandId,
    /// The group's place among the distinct groups of the plan.
    pub(in crate::pipeline) patience: usize,
}

impl Route {
    pub(in crate::pipeline) fn queue(
        self,
        plan: &Plan,
        group: &mut RowGroup,
        place: Place,
        dispatcher: &mut Dispatcher<BoxedPolicy>,
        teller: &mut Teller,
        now: Instant,
    ) {
        let entry = group.frontier.entry_mut(plan, place);
        entry.stage = Stage::Queued;
        let attempts = entry.attempts;
        group.queued += 1;
        let key = group.key(place);
        let accepted = dispatcher.enqueue(key.to_bits(), self.group, self.demand);
        debug_assert!(accepted, "a task becomes ready once");
        if teller.is_on() {
            let queued = dispatcher.queued() as u32;
            teller.task(now, key, attempts, SchedulerFact::ReadyEnqueued { queued });
        }
    }
}

/// Registers every column's group and demand; answers the routes, and how many distinct groups there are.
pub(in crate::pipeline) fn routes(
    plan: &Plan,
    dispatcher: &mut Dispatcher<BoxedPolicy>,
) -> Result<(Vec<Route>, usize), PipelineError> {
    let mut distinct: Vec<TaskGroupId> = Vec::new();
    let mut routes = Vec::with_capacity(plan.columns().len());
    for column in plan.columns() {
        let name = || column.name.clone();
        let group =
            dispatcher.group(&column.group).map_err(|source| PipelineError::Group { column: name(), source })?;
        let demand =
            dispatcher.demand(&column.demand).map_err(|source| PipelineError::Demand { column: name(), source })?;
        let known = distinct.iter().position(|other| *other == group);
        let patience = known.unwrap_or_else(|| {
            distinct.push(group);
            distinct.len() - 1
        });
        routes.push(Route { group, demand, patience });
    }
    Ok((routes, distinct.len()))
}
