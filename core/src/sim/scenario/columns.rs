//! What a column of the simulated table does, and how its tasks end.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Model, require_share};
use crate::error::{ConfigError, require};
use crate::millis;
use crate::pipeline::{Column, Strategy};
use crate::sim::latency::require_span;
use crate::task::{GroupKind, TaskGroup};
use crate::time::Duration;

/// The most calls of one task.
const MOST_CALLS: u32 = 10_000;

/// A column of the simulated table.
///
/// Each share is the chance of one task, drawn from the run's seed, the row group, the row and the column,
/// and (but for `skip_share`) the number of the try: the same in every run, whatever else happens before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioColumn {
    /// Its name.
    pub name: String,
    /// How it is filled.
    pub strategy: Strategy,
    /// The columns it needs.
    #[serde(default)]
    pub after: Vec<String>,
    /// Further columns that the same generator fills.
    #[serde(default)]
    pub also_fills: Vec<String>,
    /// The model it calls; `None` for local work.
    #[serde(default)]
    pub model: Option<String>,
    /// The models that it calls instead while the ones before are down, unavailable, or have answered nothing
    /// but rate limits for 30 s \[none\].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Calls that each task makes, one after another, 0 to 10000; without a model, nothing \[1\]. A try after
    /// a call that failed goes on with that call.
    #[serde(default = "one_call")]
    pub calls: u32,
    /// The tenant that its calls wait as, in one fairness group with the calls of every column that names the
    /// same one, whatever model they call \[none: the group of its model\].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Tokens that a call costs at its provider.
    #[serde(default)]
    pub tokens: u32,
    /// What each task holds while it runs, besides a place of its model:
    /// [resources of the scenario](super::Scenario::resources) and how much of each \[nothing\].
    #[serde(default)]
    pub holds: BTreeMap<String, u32>,
    /// Its fairness group, which it shares with every column of the same kind that names the same one \[its
    /// own\].
    #[serde(default)]
    pub group: Option<String>,
    /// What its tasks count as. The control loop over row groups keeps busy what model columns hold
    /// \[`model` if it calls one, else `local`\].
    #[serde(default)]
    pub kind: Option<GroupKind>,
    /// Its group's weight. Where columns share a group, the last one's holds.
    #[serde(default = "one")]
    pub weight: f64,
    /// Leases its group may hold while others press, at least 1; of a shared group likewise the last one's
    /// \[the task limit of its model; unbounded without one\].
    #[serde(default)]
    pub admitted_limit: Option<u32>,
    /// How long local work takes. It comes after the calls; a call takes what its provider takes.
    #[serde(default, rename = "local_ms", with = "millis")]
    pub local: Duration,
    /// Whether its tasks run one at a time, in the order of the rows.
    #[serde(default)]
    pub ordered: bool,
    /// Whether it is skipped where an upstream is.
    #[serde(default)]
    pub skips_with_upstream: bool,
    /// The share of tasks that its condition skips, in every try.
    #[serde(default)]
    pub skip_share: f64,
    /// The share of tries that fail for good once their work is done.
    #[serde(default)]
    pub fail_share: f64,
    /// The share of tries whose worker is lost once its work is done.
    #[serde(default)]
    pub lose_share: f64,
    /// The share of tasks one of whose calls fails whenever it is made, whatever the provider does: a poison
    /// request.
    #[serde(default, skip_serializing_if = "is_none")]
    pub poison_share: f64,
    /// The row of the run, counted from 0, whose task meets a bug.
    #[serde(default)]
    pub fatal_at: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that the derive calls")]
fn is_none(share: &f64) -> bool {
    *share == 0.0
}

fn one() -> f64 {
    1.0
}

fn one_call() -> u32 {
    1
}

impl ScenarioColumn {
    /// A column that needs nothing, takes no time and never fails.
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

    /// Whether anything about its tasks is left to chance.
    pub(in crate::sim) fn is_by_chance(&self) -> bool {
        self.skip_share > 0.0 || self.fail_share > 0.0 || self.lose_share > 0.0 || self.poison_share > 0.0
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require_share("skip_share", self.skip_share)?;
        require_share("fail_share", self.fail_share)?;
        require_share("lose_share", self.lose_share)?;
        require_share("poison_share", self.poison_share)?;
        require(self.calls <= MOST_CALLS, "calls", self.calls, "0 to 10000")?;
        require_span("local_ms", self.local)
    }

    /// The column of the plan. `model` is the one it names.
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
