//! What the tasks of each column call: the unit in which failures that may pass are judged.
//!
//! It is the request resource (provider, model and domain) behind a task resource that the tasks hold, as
//! [`Pipeline::call_through`](crate::pipeline::Pipeline::call_through) names it, the same that advice on
//! request pressure goes by: columns of different fairness groups that call one resource are judged together,
//! and two domains of one model apart. A column that holds several is judged by all of them together, since
//! an outcome does not say which of them failed. One that holds none is judged with its fairness group.

use alloc::string::String;
use alloc::vec::Vec;

use crate::pipeline::dispatch::TaskQueue;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::request::ResourceId;

/// What the tasks of each column call.
#[derive(Clone, Debug)]
pub(crate) struct CallTargets {
    targets: Vec<CallTarget>,
    /// By column, the place among `targets`.
    by_column: Vec<usize>,
}

/// One thing that tasks call.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    key: TargetKey,
    /// The identity of the first column's fairness group.
    pub(crate) group: Vec<String>,
    /// The first task resource that stands for it, by place among those of the run and by name.
    pub(crate) resource: Option<(u32, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetKey {
    /// These request resources, ascending.
    Requests(Vec<ResourceId>),
    /// A fairness group, by its place among the distinct groups.
    Group(usize),
}

impl CallTargets {
    /// `calls`: the task resources that stand for request resources.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    /// What a column's tasks call, by number.
    pub(crate) fn of(&self, column: ColumnId) -> usize {
        self.by_column[column.index()]
    }

    /// The target of that number.
    pub(crate) fn get(&self, target: usize) -> &CallTarget {
        &self.targets[target]
    }
}
