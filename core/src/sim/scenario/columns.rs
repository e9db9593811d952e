//! The columns of the simulated table, and how their tasks end.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Model, require_share};
use crate::error::{ConfigError, require};
use crate::millis::Millis;
use crate::pipeline::{Column, Strategy};
use crate::sim::latency::require_span;
use crate::task::{GroupKind, TaskGroup};
use crate::time::Duration;

/// The highest number of calls of one task.
const MAX_CALLS: u32 = 10_000;

/// A column of the simulated table.
///
/// Each share is a probability, 0 to 1, that is drawn from the run's seed, the row group, the row and the
/// column. The draws of `fail_share` and `lose_share` also depend on the number of the attempt. No draw
/// depends on earlier events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScenarioColumn {
    /// The column's name.
    pub name: String,
    /// How the column is filled.
    pub strategy: Strategy,
    /// The columns that this one needs. Default none.
    #[serde(default)]
    pub after: Vec<String>,
    /// Further columns that the same generator fills. Default none.
    #[serde(default)]
    pub also_fills: Vec<String>,
    /// The model that the tasks call. `None` (the default) means local work only.
    #[serde(default)]
    pub model: Option<String>,
    /// The models to call instead, in order, while all models before are down, unavailable, or have responded
    /// only with rate limits for 30 s. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The number of calls that each task makes, one after another, 0 to 10000. Ignored without a model. A
    /// retry after a failed call continues with that call. Default 1.
    #[serde(default = "one_call")]
    pub calls: u32,
    /// The tenant of the calls. All columns with the same tenant share one fairness group of calls, whatever
    /// model they call. Default none, which is the group of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The number of tokens that a call costs at its provider. Default 0.
    #[serde(default)]
    pub tokens: u32,
    /// The [resources of the scenario](super::Scenario::resources) that each task holds while it runs, and
    /// how much of each, in addition to one unit of its model's task resource. Default none.
    #[serde(default)]
    pub holds: BTreeMap<String, u32>,
    /// The fairness group. Columns of the same kind with the same name here share one group. Default a group
    /// of its own.
    #[serde(default)]
    pub group: Option<String>,
    /// The kind of the tasks. The control loop over row groups keeps the resources of model columns busy.
    /// Default `model` if the column calls one, else `local`.
    #[serde(default)]
    pub kind: Option<GroupKind>,
    /// The weight of the group. If columns share a group, the last one's applies. Default 1.
    #[serde(default = "one")]
    pub weight: f64,
    /// The number of leases that the group may hold while other groups wait, at least 1. If columns share a
    /// group, the last one's applies. Default the task limit of the model, or unbounded without a model.
    #[serde(default)]
    pub admitted_limit: Option<u32>,
    /// How long the local work of a task takes, after its calls. The duration of the calls is up to the
    /// provider. Default 0.
    #[serde(default, rename = "local_ms", with = "Millis")]
    pub local: Duration,
    /// Whether the tasks run one at a time, in the order of the rows. Default no.
    #[serde(default)]
    pub ordered: bool,
    /// Whether a cell is skipped if an upstream cell is skipped. Default no.
    #[serde(default)]
    pub skips_with_upstream: bool,
    /// The share of tasks that are skipped by their condition, in every attempt. Default 0.
    #[serde(default)]
    pub skip_share: f64,
    /// The share of attempts that fail permanently after their work is done. Default 0.
    #[serde(default)]
    pub fail_share: f64,
    /// The share of attempts whose worker is lost after its work is done, as if it was dropped. Default 0.
    #[serde(default)]
    pub lose_share: f64,
    /// The share of tasks with a poison request: one of their calls always fails, whatever the provider does.
    /// Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub poison_share: f64,
    /// The row of the run, counted from 0, whose task panics. The run then stops. Default none.
    #[serde(default)]
    pub fatal_at: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

fn one() -> f64 {
    1.0
}

fn one_call() -> u32 {
    1
}

impl ScenarioColumn {
    /// Creates a column that needs nothing, takes no time and never fails.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        Self {
            name: name.to_string(),
            strategy,
            after: Vec::new(),
            also_fills: Vec::new(),
            model: None,
            fallbacks: Vec::new(),
            calls: one_call(),
            tenant: None,
            tokens: 0,
            holds: BTreeMap::new(),
            group: None,
            kind: None,
            weight: one(),
            admitted_limit: None,
            local: Duration::ZERO,
            ordered: false,
            skips_with_upstream: false,
            skip_share: 0.0,
            fail_share: 0.0,
            lose_share: 0.0,
            poison_share: 0.0,
            fatal_at: None,
        }
    }

    /// Returns whether the outcome of a task depends on random draws.
    pub(in crate::sim) fn has_random_outcomes(&self) -> bool {
        self.skip_share > 0.0 || self.fail_share > 0.0 || self.lose_share > 0.0 || self.poison_share > 0.0
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require_share("skip_share", self.skip_share)?;
        require_share("fail_share", self.fail_share)?;
        require_share("lose_share", self.lose_share)?;
        require_share("poison_share", self.poison_share)?;
        require(self.calls <= MAX_CALLS, "calls", self.calls, "0 to 10000")?;
        require_span("local_ms", self.local)
    }

    /// Returns the column for the plan. `model` is the model that this column calls.
    pub(super) fn column(&self, model: Option<&Model>) -> Column {
        let mut column = Column::new(&self.name, self.strategy).skip_with_upstream(self.skips_with_upstream);
        column.ordered = self.ordered;
        column.upstreams.clone_from(&self.after);
        column.also_fills.clone_from(&self.also_fills);
        column.demand = self.holds.clone().into_iter().collect();
        let group = self.group.as_ref().unwrap_or(&self.name);
        column.group = match model {
            Some(model) => TaskGroup::model(&model.name, group, self.weight),
            None => TaskGroup { weight: self.weight, ..TaskGroup::local(group) },
        };
        column.group.kind = self.kind.unwrap_or(column.group.kind);
        column.group.admitted_limit = self.admitted_limit.or(model.map(Model::task_limit));
        match model {
            Some(model) => column.with_demand(&model.task_resource(), 1),
            None => column,
        }
    }
}
