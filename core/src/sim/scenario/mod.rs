//! Scenarios as data: providers, models, columns, rows, settings, and what happens around the run. A whole
//! run is a function of (scenario, seed).
//!
//! Only the fields without a default have to be written; an unknown one is refused. Durations are in
//! milliseconds, in fields that end in `_ms`. What is on by default is switched off with `"never"`.
//!
//! What is changed in the midst of a run is a list, in order of time. `set` names what, and the keys beside
//! it say how:
//!
//! ```toml
//! [[changes]]
//! at_ms = 4000
//! set = "capacity"        # model, slots = 0 to 1000000, or "schedule"
//! model = "tide"
//! slots = 3
//!
//! [[changes]]
//! at_ms = 9000
//! set = "slow"            # model, factor, for_ms
//! model = "tide"
//! factor = 4
//! for_ms = 2000
//! ```
//!
//! | `set` | keys |
//! | --- | --- |
//! | `capacity` | `model`, `slots` |
//! | `refuse` | `model`, `for_ms` |
//! | `slow` | `model`, `factor`, `for_ms` |
//! | `algorithm` | `model`, `algorithm`, as of a model |
//! | `request` | `model`, `request`, as of a model |
//! | `max_parallel` | `model`, `calls` |
//! | `policy` | `policy`, as of the scenario |
//! | `weight` | `column`, `weight` |
//!
//! | file | what it describes |
//! | --- | --- |
//! | `mod` | the run: its rows, limits and settings |
//! | `columns` | what each column does, and how its tasks end |
//! | `surroundings` | hooks, checkpoints, and somebody else who calls the same models |
//! | `change` | what is changed in its midst |
//! | `builtin` | the scenarios that come with the crate |

mod builtin;
mod change;
mod columns;
mod never;
mod surroundings;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::latency::require_span;
use super::provider::{ProviderSpec, SpecError};
use crate::error::{ConfigError, require};
use crate::limit::LimitChoice;
use crate::millis;
use crate::pipeline::{AdaptiveRowGroups, PipelineConfig, PipelineError, Plan, PlanBuilder, PlanError, PolicyChoice};
use crate::request::{AimdConfig, HealthConfig};
use crate::time::Duration;

pub use builtin::builtin;
pub use change::{Change, Intervention};
pub use columns::ScenarioColumn;
pub use surroundings::{CallbackSpec, Holder, PreBatch};

/// The greatest cap that a model can be given in the midst of a run.
const MOST_PARALLEL: u32 = 1_000_000;

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
    /// Row groups in work at once: so many, or at most so many if `adaptive`.
    pub row_groups: u32,
    /// Workers at once.
    pub submission_limit: u32,
    /// Models, each with the provider that serves it.
    #[serde(default)]
    pub models: Vec<Model>,
    /// Further resources that [tasks hold](ScenarioColumn::holds) while they run, with their limits \[none\].
    #[serde(default)]
    pub resources: BTreeMap<String, u32>,
    /// Columns, in any order.
    pub columns: Vec<ScenarioColumn>,
    /// When a fairness group may start more workers than its share \[bounded borrowing\].
    #[serde(default)]
    pub policy: PolicyChoice,
    /// Lets a control loop choose how many row groups are in work \[no\].
    #[serde(default)]
    pub adaptive: Option<AdaptiveRowGroups>,
    /// Whether tasks that would only wait for a model are passed over while others could call at once
    /// \[yes\].
    #[serde(default = "yes")]
    pub advisory: bool,
    /// Whether a worker that waits for a model gives back meanwhile what it holds \[yes\].
    #[serde(default = "yes")]
    pub yields: bool,
    /// How often a task that failed for now is tried again, after 1, 2, 4, ... s, 0 to 255 \[3\].
    #[serde(default = "retries")]
    pub retries: u32,
    /// Final outcomes that are judged together, 1 to 65536 \[10\].
    #[serde(default = "shutdown_window")]
    pub shutdown_window: u32,
    /// The share of failures in a full window at which the run stops, above 0 and at most 1; `None`, in files
    /// `"never"`: never \[0.5\].
    #[serde(default = "shutdown_rate", with = "never")]
    pub shutdown_rate: Option<f64>,
    /// How long a model may answer nothing but rate limits before the run stops without the rows that need
    /// it; `None`, in files `"never"`: for ever \[10 min\].
    #[serde(default = "rate_limit_patience", rename = "rate_limit_patience_ms", with = "never::millis")]
    pub rate_limit_patience: Option<Duration>,
    /// How long a model may be down before the run stops without the rows that need it; `None`, in files
    /// `"never"`: for ever \[10 min\].
    #[serde(default = "outage_patience", rename = "outage_patience_ms", with = "never::millis")]
    pub outage_patience: Option<Duration>,
    /// How long after it became unavailable a model is tried again, above 0 \[never\].
    #[serde(default, rename = "recheck_ms", with = "millis::option", skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Duration>,
    /// Whether somebody makes the health calls that admission asks for \[no\].
    #[serde(default, skip_serializing_if = "is_off")]
    pub health_calls: bool,
    /// Answers of one fairness group that are judged together for a warning, 1 to 65536 \[20\].
    #[serde(default = "degraded_window")]
    pub degraded_window: u32,
    /// The share of failures that may pass at which a provider counts as degraded; `None`, in files
    /// `"never"`: never \[0.5\].
    #[serde(default = "degraded_rate", with = "never")]
    pub degraded_rate: Option<f64>,
    /// The shortest pause between two such warnings about one fairness group \[60 s\].
    #[serde(default = "degraded_pause", rename = "degraded_pause_ms", with = "millis")]
    pub degraded_pause: Duration,
    /// The shortest pause before a rate-limited task is tried again, above 0 \[50 ms\].
    #[serde(default = "retry_floor", rename = "retry_floor_ms", with = "millis")]
    pub retry_floor: Duration,
    /// The longest such pause, whatever the provider asked for \[10 min\].
    #[serde(default = "retry_ceiling", rename = "retry_ceiling_ms", with = "millis")]
    pub retry_ceiling: Duration,
    /// Row groups that an earlier run has saved \[none\].
    #[serde(default)]
    pub done_row_groups: Vec<u32>,
    /// The rows to make of row groups that an earlier run has saved in part, as ascending ranges \[none\].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_rows: Vec<Range<u64>>,
    /// What the hook after the seeds does \[there is none\].
    #[serde(default)]
    pub pre_batch: Option<PreBatch>,
    /// What the hook before the checkpoint does \[there is none\].
    #[serde(default)]
    pub post_batch: Option<CallbackSpec>,
    /// How row groups are saved \[at once, and it works\].
    #[serde(default)]
    pub checkpoint: CallbackSpec,
    /// When the run is wound down: it finishes what it has admitted, and admits no more \[never\].
    #[serde(default, rename = "wind_down_at_ms", with = "millis::option")]
    pub wind_down_at: Option<Duration>,
    /// When the run is drained: calls that are out end, and none begins \[never\].
    #[serde(default, rename = "drain_at_ms", with = "millis::option")]
    pub drain_at: Option<Duration>,
    /// When the run is cancelled \[never\].
    #[serde(default, rename = "cancel_at_ms", with = "millis::option")]
    pub cancel_at: Option<Duration>,
    /// Other callers of the same models \[none\].
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// What is changed in the midst of the run, in order of time \[nothing\].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

/// A run without a row, a model or a column, with the settings of [`PipelineConfig::default`].
impl Default for Scenario {
    fn default() -> Self {
        let config = PipelineConfig::default();
        Self {
            name: String::new(),
            title: String::new(),
            description: String::new(),
            rows: config.rows,
            row_group_size: config.row_group_size,
            row_groups: config.row_groups,
            submission_limit: config.submission_limit,
            models: Vec::new(),
            resources: BTreeMap::new(),
            columns: Vec::new(),
            policy: config.policy,
            adaptive: config.adaptive,
            advisory: true,
            yields: true,
            retries: config.retries,
            shutdown_window: config.shutdown_window,
            shutdown_rate: config.shutdown_rate,
            rate_limit_patience: config.rate_limit_patience,
            outage_patience: outage_patience(),
            recheck: None,
            health_calls: false,
            degraded_window: config.degraded_window,
            degraded_rate: config.degraded_rate,
            degraded_pause: config.degraded_pause,
            retry_floor: config.retry_floor,
            retry_ceiling: config.retry_ceiling,
            done_row_groups: config.done_row_groups,
            missing_rows: config.missing_rows,
            pre_batch: None,
            post_batch: None,
            checkpoint: CallbackSpec::default(),
            wind_down_at: None,
            drain_at: None,
            cancel_at: None,
            holders: Vec::new(),
            changes: Vec::new(),
        }
    }
}

fn yes() -> bool {
    true
}

fn shutdown_rate() -> Option<f64> {
    PipelineConfig::default().shutdown_rate
}

fn degraded_rate() -> Option<f64> {
    PipelineConfig::default().degraded_rate
}

fn retries() -> u32 {
    PipelineConfig::default().retries
}

fn shutdown_window() -> u32 {
    PipelineConfig::default().shutdown_window
}

fn rate_limit_patience() -> Option<Duration> {
    PipelineConfig::default().rate_limit_patience
}

fn outage_patience() -> Option<Duration> {
    HealthConfig::default().patience
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that the derive calls")]
fn is_off(setting: &bool) -> bool {
    !setting
}

fn degraded_window() -> u32 {
    PipelineConfig::default().degraded_window
}

fn degraded_pause() -> Duration {
    PipelineConfig::default().degraded_pause
}

fn retry_floor() -> Duration {
    PipelineConfig::default().retry_floor
}

fn retry_ceiling() -> Duration {
    PipelineConfig::default().retry_ceiling
}

/// A model and the mock provider behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The provider's name, unique within the scenario.
    pub name: String,
    /// The model that this is another domain of: calls of both share the lower of their caps, and each has a
    /// limit and a provider of its own. One that is no domain of another itself \[none: a model of its own\].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_of: Option<String>,
    /// How the provider behaves.
    pub provider: ProviderSpec,
    /// The cap the model is registered with.
    pub max_parallel: u32,
    /// Settings of the adaptive limit: all of them for AIMD, the ramp, cooldowns and `max_limit` for any.
    #[serde(default)]
    pub request: AimdConfig,
    /// What decides the limit \[AIMD, by `request`\].
    #[serde(default, skip_serializing_if = "LimitChoice::is_aimd")]
    pub algorithm: LimitChoice,
    /// Workers at once whose columns call it, those that wait for it included, at least 1 \[twice
    /// `max_parallel`\].
    #[serde(default)]
    pub task_limit: Option<u32>,
}

impl Model {
    /// The most calls that may be out.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.request.max_limit.map_or(self.max_parallel, |max| max.min(self.max_parallel)).max(1)
    }

    /// The task resource that a worker of its columns holds one of: `request:` and the name.
    #[must_use]
    pub fn task_resource(&self) -> String {
        alloc::format!("request:{}", self.name)
    }

    /// The limit of that resource.
    #[must_use]
    pub fn task_limit(&self) -> u32 {
        self.task_limit.unwrap_or_else(|| self.max_parallel.saturating_mul(2).max(1))
    }
}

/// A scenario that cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
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
    /// A column's settings are out of range.
    #[error("column `{column}`: {error}")]
    Column {
        /// The column.
        column: String,
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
    /// Somebody holds slots of a model that is not there.
    #[error("a holder holds slots of the model `{model}`, which the scenario does not have")]
    UnknownHeldModel {
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
            builder = builder.column(spec.column(self.model_of(spec)?));
        }
        Ok(builder.build()?)
    }

    /// The resources that its tasks hold, besides `submission`: those of the models first, then its own.
    #[must_use]
    pub fn task_resources(&self) -> Vec<(String, u32)> {
        let of_models = self.models.iter().map(|model| (model.task_resource(), model.task_limit()));
        of_models.chain(self.resources.clone()).collect()
    }

    /// The settings of its run.
    #[must_use]
    pub fn pipeline_config(&self) -> PipelineConfig {
        PipelineConfig {
            rows: self.rows,
            row_group_size: self.row_group_size,
            row_groups: self.row_groups,
            adaptive: self.adaptive,
            submission_limit: self.submission_limit,
            policy: self.policy.clone(),
            yield_while_waiting: self.yields,
            resources: self.task_resources(),
            retries: self.retries,
            shutdown_window: self.shutdown_window,
            shutdown_rate: self.shutdown_rate,
            // The models have it.
            rate_limit_patience: None,
            degraded_window: self.degraded_window,
            degraded_rate: self.degraded_rate,
            degraded_pause: self.degraded_pause,
            retry_floor: self.retry_floor,
            retry_ceiling: self.retry_ceiling,
            pre_batch_hook: self.pre_batch.is_some(),
            post_batch_hook: self.post_batch.is_some(),
            done_row_groups: self.done_row_groups.clone(),
            missing_rows: self.missing_rows.clone(),
            ..PipelineConfig::default()
        }
    }

    /// Refuses what neither the plan nor the machines check: shares, calls, spans and holders.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        for column in &self.columns {
            column.validate().map_err(|error| ScenarioError::Column { column: column.name.clone(), error })?;
            let unknown = column.fallbacks.iter().find(|name| !self.models.iter().any(|model| model.name == **name));
            if let Some(model) = unknown {
                return Err(ScenarioError::UnknownModel { column: column.name.clone(), model: model.clone() });
            }
        }
        for model in &self.models {
            let Some(name) = &model.domain_of else { continue };
            let owner = self.models.iter().find(|owner| owner.name == *name && owner.domain_of.is_none());
            require(owner.is_some(), "models.domain_of", name, "a model that is no domain of another")?;
        }
        for holder in &self.holders {
            let is_known = self.models.iter().any(|model| model.name == holder.model);
            if !is_known {
                return Err(ScenarioError::UnknownHeldModel { model: holder.model.clone() });
            }
            holder.validate()?;
        }
        if let Some(hook) = &self.pre_batch {
            hook.validate()?;
        }
        if let Some(hook) = &self.post_batch {
            hook.validate("post_batch.takes_ms")?;
        }
        self.checkpoint.validate("checkpoint.takes_ms")?;
        self.wind_down_at.map_or(Ok(()), |at| require_span("wind_down_at_ms", at))?;
        self.drain_at.map_or(Ok(()), |at| require_span("drain_at_ms", at))?;
        self.cancel_at.map_or(Ok(()), |at| require_span("cancel_at_ms", at))?;
        let known = KnownNames {
            models: &|name| self.models.iter().any(|model| model.name == name),
            columns: &|name| self.columns.iter().any(|column| column.name == name),
            resources: &|name| {
                let of_models = self.models.iter().any(|model| model.task_resource() == name);
                of_models || name == "submission" || self.resources.contains_key(name)
            },
        };
        Ok(change::validate_all(&self.changes, &known)?)
    }

    /// The model that a column calls, if it calls one.
    fn model_of(&self, spec: &ScenarioColumn) -> Result<Option<&Model>, ScenarioError> {
        let Some(name) = &spec.model else { return Ok(None) };
        let found = self.models.iter().find(|model| model.name == *name);
        found.map(Some).ok_or_else(|| ScenarioError::UnknownModel { column: spec.name.clone(), model: name.clone() })
    }
}

/// The names that a change may be about.
pub(in crate::sim) struct KnownNames<'a> {
    pub(in crate::sim) models: &'a dyn Fn(&str) -> bool,
    pub(in crate::sim) columns: &'a dyn Fn(&str) -> bool,
    pub(in crate::sim) resources: &'a dyn Fn(&str) -> bool,
}

/// Refuses a share that is none.
fn require_share(field: &str, share: f64) -> Result<(), ConfigError> {
    require((0.0..=1.0).contains(&share), field, share, "a number from 0 to 1")
}
