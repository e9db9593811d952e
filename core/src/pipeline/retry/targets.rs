//! The call target of each column: the unit for which retryable failures are judged.
//!
//! A call target is the set of request resources (provider, model and domain) that the tasks of a column
//! call. [`Pipeline::set_request_resources`](crate::pipeline::Pipeline::set_request_resources) assigns a
//! request resource to each task resource, and request pressure uses the same assignment. Columns of
//! different fairness groups that call the same resource are judged together. Two domains of one model are
//! judged separately. A column that calls several resources has one target for all of them, because an
//! outcome does not contain which resource failed. The target of a column that calls none is its fairness
//! group.

use alloc::string::String;
use alloc::vec::Vec;

use crate::pipeline::dispatch::TaskQueue;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::request::ResourceId;

/// The call targets of all columns.
#[derive(Clone, Debug)]
pub(crate) struct CallTargets {
    targets: Vec<CallTarget>,
    /// By column, an index into `targets`.
    by_column: Vec<usize>,
}

/// One call target.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    key: TargetKey,
    /// The identity of the fairness group of the first column.
    pub(crate) group: Vec<String>,
    /// The first task resource that represents the target: its index among the resources of the run, and its
    /// name.
    pub(crate) resource: Option<(u32, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetKey {
    /// These request resources, ascending.
    Requests(Vec<ResourceId>),
    /// A fairness group, as its index among the distinct groups.
    Group(usize),
}

impl CallTargets {
    /// Creates the call targets of a plan. `calls` are the task resources that represent request resources.
    pub(crate) fn new(plan: &Plan, tasks: &TaskQueue, calls: &[(String, ResourceId)]) -> Self {
        let mut targets: Vec<CallTarget> = Vec::new();
        let by_column = plan.columns().iter().zip(tasks.routes()).map(|(column, route)| {
            let request_of = |name: &String| calls.iter().find(|(call, _)| call == name).map(|(_, request)| *request);
            let held = || column.demand.iter().filter_map(|(name, _)| Some((name, request_of(name)?)));
            let mut requests: Vec<ResourceId> = held().map(|(_, request)| request).collect();
            requests.sort_unstable();
            requests.dedup();
            let key =
                if requests.is_empty() { TargetKey::Group(route.group_index) } else { TargetKey::Requests(requests) };
            let known = targets.iter().position(|target| target.key == key);
            known.unwrap_or_else(|| {
                let resource = held().next().and_then(|(name, _)| Some((tasks.resource(name)?, name.clone())));
                targets.push(CallTarget { key, group: column.group.identity.clone(), resource });
                targets.len() - 1
            })
        });
        let by_column = by_column.collect();
        Self { targets, by_column }
    }

    /// Returns the number of targets.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    /// Returns the index of the target that a column's tasks call.
    pub(crate) fn of(&self, column: ColumnId) -> usize {
        self.by_column[column.index()]
    }

    /// Returns the target with this index.
    pub(crate) fn get(&self, target: usize) -> &CallTarget {
        &self.targets[target]
    }
}
