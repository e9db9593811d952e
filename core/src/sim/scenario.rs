//! Scenarios as data: providers, models, columns, rows and settings. A whole run is a function of (scenario, seed).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::latency::{Latency, millis};
use super::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, SpecError, Step};
use crate::error::ConfigError;
use crate::pipeline::{Column, PipelineConfig, PipelineError, Plan, PlanBuilder, PlanError, Strategy};
use crate::request::AimdConfig;
use crate::task::TaskGroup;
use crate::time::Duration;

/// A run to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name, as in a command line.
    pub name: String,
    /// A headline.
    pub title: String,
    /// What it shows, in a sentence or two.
    pub description: String,
    /// Rows to make.
    pub rows: u64,
    /// Rows in a row group.
    pub row_group_size: u32,
    /// Row groups in work at once.
    pub row_groups: u32,
    /// Workers at once.
    pub submission_limit: u32,
    /// Models, each with the provider that serves it.
    pub models: Vec<Model>,
    /// Columns, in any order.
    pub columns: Vec<ScenarioColumn>,
}

/// A model and the mock provider behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The provider's name, unique within the scenario.
    pub name: String,
    /// How the provider behaves.
    pub provider: ProviderSpec,
    /// The cap the model is registered with.
    pub max_parallel: u32,
    /// Settings of the adaptive limit.
    #[serde(default)]
    pub request: AimdConfig,
}

/// A column of the simulated table.
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
    /// The model it calls; `None` for local work.
    #[serde(default)]
    pub model: Option<String>,
    /// Its group's weight.
    #[serde(default = "one")]
    pub weight: f64,
    /// How long local work takes. For a model column, nothing: the provider's latency is the time it takes.
    #[serde(default, rename = "local_ms", with = "millis")]
    pub local: Duration,
    /// Tokens that a call costs at its provider.
    #[serde(default)]
    pub tokens: u32,
}

fn one() -> f64 {
    1.0
}

/// A scenario that cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A provider is described wrongly.
    #[error("model `{model}`: {error}")]
    Provider {
        /// The model's name.
        model: String,
        /// What is wrong.
        error: SpecError,
    },
    /// A model's cap or limit settings are out of range.
    #[error("model `{model}`: {error}")]
    Model {
        /// The model's name.
        model: String,
        /// What is wrong.
        error: ConfigError,
    },
    /// A column calls a model that is not there.
    #[error("column `{column}` calls the model `{model}`, which the scenario does not have")]
    UnknownModel {
        /// The column.
        column: String,
        /// The missing model.
        model: String,
    },
    /// The columns make no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run's settings are out of range.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// Something else is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Scenario {
    /// The plan of its columns.
    pub fn plan(&self) -> Result<Plan, ScenarioError> {
        let mut builder = PlanBuilder::new();
        for spec in &self.columns {
            let mut column = Column::new(&spec.name, spec.strategy).with_group(self.group(spec)?);
            for upstream in &spec.after {
                column = column.with_upstream(upstream);
            }
            builder = builder.column(column);
        }
        Ok(builder.build()?)
    }

    /// The settings of its run.
    #[must_use]
    pub fn pipeline_config(&self) -> PipelineConfig {
        PipelineConfig {
            rows: self.rows,
            row_group_size: self.row_group_size,
            row_groups: self.row_groups,
            submission_limit: self.submission_limit,
            ..PipelineConfig::default()
        }
    }

    fn group(&self, spec: &ScenarioColumn) -> Result<TaskGroup, ScenarioError> {
        let Some(name) = &spec.model else { return Ok(TaskGroup::local(&spec.name)) };
        let Some(model) = self.models.iter().find(|model| model.name == *name) else {
            return Err(ScenarioError::UnknownModel { column: spec.name.clone(), model: name.clone() });
        };
        let mut group = TaskGroup::model(name, &spec.name, spec.weight);
        group.admitted_limit = Some(model.max_parallel.saturating_mul(2).max(1));
        Ok(group)
    }
}

/// The scenarios that come with the crate, in the order in which to show them.
#[must_use]
pub fn builtin() -> Vec<Scenario> {
    [
        base("tide", "AIMD finds the tide")
            .says("A provider bears 12 calls and the cap allows 32. Each refusal cuts the limit once, successes raise it.")
            .model("tide", 32, constant(12, 300)),
        base("falling-tide", "The tide falls and rises")
            .says("The provider's capacity drops from 24 to 6 and comes back. The limit follows without a storm.")
            .rows(1_600)
            .model("tide", 32, steps(24, &[(4_000, 6), (12_000, 24)])),
        base("cold-storm", "A cold server, without a ramp")
            .says("The server opens one slot after another over ten seconds. Starting at the full limit storms it.")
            .model("cold", 24, warm_up(24, 10_000)),
        base("cold-ramp", "A cold server, with a matching ramp")
            .says("The same server, and a start-up ramp of the same ten seconds: not a single refusal.")
            .ramped("cold", 24, warm_up(24, 10_000), 10_000),
        base("cold-ramp-too-fast", "A cold server, with a ramp too fast")
            .says("The ramp outruns the server; the first refusal ends it and AIMD takes over.")
            .ramped("cold", 24, warm_up(24, 10_000), 2_500),
        base("two-harbours", "A cooled-down provider beside an open one")
            .says("Each row goes to both. The narrow one pushes back and sets the pace; the wide one works whenever a row is ready.")
            .model("narrow", 16, constant(4, 60))
            .model("wide", 16, constant(16, 60)),
        base("noisy-neighbour", "A noisy neighbour")
            .says("Somebody else takes a varying share of the provider's 24 slots.")
            .rows(1_200)
            .model("shared", 24, neighbour(24)),
        base("outage", "An outage and a recovery")
            .says("The provider fails for two seconds, hangs for two, and recovers. Failed calls get two more rounds; rows that still fail are dropped and counted.")
            .rows(1_200)
            .model("shaky", 16, outage(16)),
    ]
    .map(|draft| draft.0)
    .into()
}

/// A scenario under construction.
struct Draft(Scenario);

fn base(name: &str, title: &str) -> Draft {
    let seeds = ScenarioColumn {
        name: "seed".to_string(),
        strategy: Strategy::FromScratch,
        after: Vec::new(),
        model: None,
        weight: 1.0,
        local: Duration::ZERO,
        tokens: 0,
    };
    Draft(Scenario {
        name: name.to_string(),
        title: title.to_string(),
        description: String::new(),
        rows: 800,
        row_group_size: 50,
        row_groups: 4,
        submission_limit: 256,
        models: Vec::new(),
        columns: [seeds].into(),
    })
}

impl Draft {
    fn says(mut self, description: &str) -> Self {
        self.0.description = description.to_string();
        self
    }

    fn rows(mut self, rows: u64) -> Self {
        self.0.rows = rows;
        self
    }

    fn model(self, name: &str, max_parallel: u32, provider: ProviderSpec) -> Self {
        self.ramped(name, max_parallel, provider, 0)
    }

    /// Adds a model with two columns: one that drafts a cell, one that judges it.
    fn ramped(mut self, name: &str, max_parallel: u32, provider: ProviderSpec, ramp_ms: u64) -> Self {
        let request = AimdConfig { ramp: Duration::from_millis(ramp_ms), ..AimdConfig::default() };
        self.0.models.push(Model { name: name.to_string(), provider, max_parallel, request });
        let draft = alloc::format!("{name}_draft");
        for (column, after) in [(draft.clone(), "seed".to_string()), (alloc::format!("{name}_judge"), draft)] {
            self.0.columns.push(ScenarioColumn {
                name: column,
                strategy: Strategy::Cell,
                after: [after].into(),
                model: Some(name.to_string()),
                weight: 1.0,
                local: Duration::ZERO,
                tokens: 300,
            });
        }
        self
    }
}

fn spec(capacity: Capacity, median_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity,
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(500)) },
        latency: Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None },
        ..ProviderSpec::default()
    }
}

fn constant(slots: u32, median_ms: u64) -> ProviderSpec {
    spec(Capacity::Constant { slots }, median_ms)
}

fn warm_up(slots: u32, warm_up_ms: u64) -> ProviderSpec {
    spec(Capacity::WarmUp { slots, warm_up: Duration::from_millis(warm_up_ms) }, 120)
}

fn steps(slots: u32, steps: &[(u64, u32)]) -> ProviderSpec {
    let steps = steps.iter().map(|(at_ms, slots)| Step { at: Duration::from_millis(*at_ms), slots: *slots }).collect();
    spec(Capacity::Steps { slots, steps }, 120)
}

fn neighbour(slots: u32) -> ProviderSpec {
    let neighbour = Neighbour { low_share: 0.1, high_share: 0.6, period: Duration::from_secs(3) };
    ProviderSpec { neighbour: Some(neighbour), ..constant(slots, 120) }
}

fn outage(slots: u32) -> ProviderSpec {
    let outage = Outage {
        timeouts: Duration::from_secs(2),
        recovery: Duration::from_secs(3),
        ..Outage::of_errors(Duration::from_secs(4), Duration::from_secs(2))
    };
    ProviderSpec { outages: [outage].into(), ..constant(slots, 80) }
}
