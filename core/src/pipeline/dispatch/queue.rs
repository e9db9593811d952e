//! The fair queue of ready tasks and the task resources, by column.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use super::policy::GuardedPolicy;
use crate::error::ConfigError;
use crate::lease::ReleaseResult;
use crate::pipeline::config::{PipelineConfig, PipelineError};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::ModelLoad;
use crate::request::RequestPressure;
use crate::task::{
    BoxedPolicy, DemandId, Denied, Dispatched, Dispatcher, GroupKind, TaskConfig, TaskGroupId, TaskLease,
};

/// Queues tasks by column, and starts them under the task policy.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    dispatcher: Dispatcher<GuardedPolicy>,
    /// By column.
    routes: Vec<Route>,
    worker_cap: u32,
    /// The resources that tasks of models hold, as indices among the resources of the dispatcher.
    model_resources: Vec<usize>,
    /// Scratch buffer of [`TaskQueue::model_loads`].
    loads: Vec<ModelLoad>,
    /// Scratch buffer of [`TaskQueue::take_denials`].
    denied: Vec<Denied>,
}

/// The fairness group and demand with which the tasks of a column are queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) group: TaskGroupId,
    pub(crate) demand: DemandId,
    /// The index of `group` among the distinct groups of the plan, in the order in which columns mention
    /// them.
    pub(crate) group_index: usize,
}

/// Construction and queries.
impl TaskQueue {
    /// Creates a queue, and registers the fairness group and the demand of every column.
    pub(crate) fn new(plan: &Plan, config: &PipelineConfig, policy: BoxedPolicy) -> Result<Self, PipelineError> {
        let (submission_limit, resources) = (config.submission_limit, config.resources.clone());
        let task_config = TaskConfig { submission_limit, resources, ..TaskConfig::default() };
        let mut dispatcher = Dispatcher::with_policy(task_config, GuardedPolicy::new(policy))?;
        let mut distinct: Vec<TaskGroupId> = Vec::new();
        let mut routes = Vec::with_capacity(plan.columns().len());
        for column in plan.columns() {
            let name = || column.name.clone();
            let group =
                dispatcher.group(&column.group).map_err(|source| PipelineError::Group { column: name(), source })?;
            let demand =
                dispatcher.demand(&column.demand).map_err(|source| PipelineError::Demand { column: name(), source })?;
            let known = distinct.iter().position(|other| *other == group);
            let group_index = known.unwrap_or_else(|| {
                distinct.push(group);
                distinct.len() - 1
            });
            routes.push(Route { group, demand, group_index });
        }
        let model_resources = model_resources(plan, &dispatcher);
        Ok(Self {
            dispatcher,
            routes,
            worker_cap: submission_limit,
            model_resources,
            loads: Vec::new(),
            denied: Vec::new(),
        })
    }

    /// Returns the dispatcher.
    pub(crate) fn tasks(&self) -> &Dispatcher<GuardedPolicy> {
        &self.dispatcher
    }

    /// Returns the routes of all columns, in the order of definition.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns the route of a column of the plan.
    pub(crate) fn route(&self, column: ColumnId) -> Route {
        self.routes[column.index()]
    }

    /// Returns the index of a resource among the resources of the run.
    pub(crate) fn resource(&self, name: &str) -> Option<u32> {
        let index = self.dispatcher.usage().position(|(known, ..)| known == name)?;
        Some(index as u32)
    }

    /// Returns the largest number of concurrent workers.
    pub(crate) fn worker_cap(&self) -> u32 {
        self.worker_cap
    }

    /// Returns the current load of each model resource. O(resources x demands).
    pub(crate) fn model_loads(&mut self) -> &[ModelLoad] {
        let Self { dispatcher, model_resources, loads, .. } = self;
        loads.clear();
        for ((_, leased, limit), at) in dispatcher.usage().zip(0..) {
            if model_resources.binary_search(&at).is_ok() {
                loads.push(ModelLoad { limit, leased, queued: dispatcher.queued_demand(at) });
            }
        }
        loads
    }
}

/// Commands.
impl TaskQueue {
    /// Queues a ready task. Returns the number of queued tasks.
    pub(crate) fn enqueue(&mut self, key: TaskKey) -> u32 {
        let Route { group, demand, .. } = self.route(key.column);
        let is_accepted = self.dispatcher.enqueue(key.to_bits(), group, demand);
        debug_assert!(is_accepted, "a task becomes ready once");
        self.dispatcher.queued() as u32
    }

    /// Removes a queued task.
    pub(crate) fn discard(&mut self, key: TaskKey) {
        let is_found = self.dispatcher.discard(key.to_bits());
        debug_assert!(is_found, "a queued task is in the queue");
    }

    /// Selects and leases the next task that may start.
    pub(crate) fn dispatch(&mut self) -> Option<Dispatched> {
        self.dispatcher.dispatch()
    }

    pub(crate) fn release(&mut self, lease: TaskLease) -> ReleaseResult {
        self.dispatcher.release(lease)
    }

    /// Releases the resources of a worker until [`TaskQueue::resume`]. Returns false if they were not held.
    pub(crate) fn yield_resources(&mut self, lease: &TaskLease) -> bool {
        self.dispatcher.yield_resources(lease)
    }

    /// Acquires the resources of a yielded worker again. Returns false if they are not available.
    pub(crate) fn resume(&mut self, lease: &TaskLease) -> bool {
        self.dispatcher.resume(lease)
    }

    /// Stops dispatching permanently and empties the queue. Returns the number of tasks that were queued.
    pub(crate) fn shut_down(&mut self) -> u32 {
        self.dispatcher.shutdown();
        self.dispatcher.discard_where(|_| true) as u32
    }

    #[cfg(test)]
    pub(crate) fn stop_starting(&mut self) {
        self.dispatcher.shutdown();
    }

    pub(crate) fn set_request_pressure(&mut self, resource: &str, pressure: Option<RequestPressure>) -> bool {
        self.dispatcher.set_request_pressure(resource, pressure)
    }

    pub(crate) fn set_policy(&mut self, policy: BoxedPolicy) -> Result<(), ConfigError> {
        self.dispatcher.set_policy(GuardedPolicy::new(policy))
    }

    /// Returns the cause of the stop if the policy has panicked since the last call.
    pub(crate) fn take_policy_panic(&self) -> Option<String> {
        self.dispatcher.policy().take_panic()
    }

    /// Sets the weight of a column's fairness group.
    pub(crate) fn set_weight(&mut self, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        let route = self.routes.get(column.index());
        let route = route.ok_or_else(|| ConfigError::new("column", column.index(), "a column of the plan"))?;
        self.dispatcher.set_weight(route.group, weight)
    }

    /// Sets whether denials are recorded, for events.
    pub(crate) fn watch_denials(&mut self, is_on: bool) {
        self.dispatcher.watch_denials(is_on);
    }

    /// Returns the denials since the last call. Pass the list to [`TaskQueue::return_denials`] after use.
    pub(crate) fn take_denials(&mut self) -> Vec<Denied> {
        let mut denied = core::mem::take(&mut self.denied);
        self.dispatcher.take_denials(&mut denied);
        denied
    }

    /// Stores an emptied list, so that the next call of [`TaskQueue::take_denials`] reuses its allocation.
    pub(crate) fn return_denials(&mut self, emptied: Vec<Denied>) {
        self.denied = emptied;
    }

    /// Ends a round of dispatching. In the next round, a denial of each group is recorded again.
    pub(crate) fn end_round(&mut self) {
        self.dispatcher.end_round();
    }
}

/// Returns the resources, other than `submission`, that tasks of models hold. The result is ascending, and
/// contains indices among the resources of the dispatcher.
fn model_resources(plan: &Plan, dispatcher: &Dispatcher<GuardedPolicy>) -> Vec<usize> {
    let names: Vec<&str> = dispatcher.usage().map(|(name, ..)| name).collect();
    let mut resources = BTreeSet::new();
    for column in plan.columns().iter().filter(|column| column.group.kind != GroupKind::Local) {
        for (resource, _) in &column.demand {
            let at = names.iter().position(|name| name == resource);
            if let Some(at) = at.filter(|at| *at > 0) {
                resources.insert(at);
            }
        }
    }
    resources.into_iter().collect()
}
