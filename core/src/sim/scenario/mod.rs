//! Scenarios: the complete description of a simulated run, as data.
//!
//! A [`Scenario`] has the models with their mock providers, the columns, the rows, the settings of the run,
//! and its surroundings. A run is a function of its scenario and a seed.
//!
//! In a file, fields with a default may be left out, and unknown fields are an error. `"never"` switches off
//! a setting that is on by default.
//!
//! Durations are numbers of milliseconds, in fields whose names end in `_ms`. The same fields are the JSON of
//! the JavaScript interface, of links to the playground and of recorded changes, where programs compute with
//! them. The pipeline and proxy files of the hosts are written by people and have text such as `"1.5s"`.
//!
//! Some keys of a model have other names than in those files: `algorithm` is their `limit`, and `request` has
//! their `aimd`, `cooldown`, `max_cooldown` and `ramp`. They stay as they are, so that recorded scenarios and
//! links to the playground can still be read.
//!
//! A scenario can also list changes that happen during the run, in order of time. `set` selects what changes,
//! and the other keys give the new value:
//!
//! ```toml
//! [[changes]]
//! at_ms = 4000
//! set = "capacity"        # model, slots = 0 to 1000000, or "schedule"
//! model = "silent"
//! slots = 3
//!
//! [[changes]]
//! at_ms = 9000
//! set = "slow"            # model, factor, for_ms
//! model = "silent"
//! factor = 4
//! for_ms = 2000
//! ```
//!
//! | `set` | keys |
//! | --- | --- |
//! | `capacity` | `model`, `slots` |
//! | `refuse` | `model`, `for_ms` |
//! | `slow` | `model`, `factor`, `for_ms` |
//! | `algorithm` | `model`, and `algorithm` as in [`Model::algorithm`] |
//! | `request` | `model`, and `request` as in [`Model::request`] |
//! | `max_parallel` | `model`, `calls` |
//! | `policy` | `policy` as in [`Scenario::policy`] |
//! | `weight` | `column`, `weight` |
//!
//! | item | describes |
//! | --- | --- |
//! | [`Scenario`] | the run: its rows, limits and settings |
//! | [`Model`] | a model and its provider |
//! | [`ScenarioColumn`] | a column, and how its tasks end |
//! | [`CallbackSpec`], [`PreBatch`] | hooks and checkpoints |
//! | [`Holder`] | another client of the same models |
//! | [`Change`], [`Intervention`] | a change during the run |
//! | [`builtin()`] | the scenarios that come with the crate |

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
use crate::millis::{Millis, OptionalMillis};
use crate::pipeline::{AdaptiveRowGroups, PipelineConfig, PipelineError, Plan, PlanBuilder, PlanError, PolicyChoice};
use crate::request::{HealthConfig, LimitConfig};
use crate::time::Duration;

pub use builtin::builtin;
pub use change::{Change, Intervention};
pub use columns::ScenarioColumn;
use never::{MillisOrNever, NumberOrNever};
pub use surroundings::{CallbackSpec, Holder, PreBatch};

/// The highest cap that a model can get during a run.
const MAX_PARALLEL: u32 = 1_000_000;

/// The description of a run to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The short name, as on a command line.
    pub name: String,
    /// The title.
    pub title: String,
    /// What the scenario shows, in one or two sentences.
    pub description: String,
    /// The number of rows to make.
    pub rows: u64,
    /// The number of rows in a row group.
    pub row_group_size: u32,
    /// The number of row groups in progress at once, or its maximum if `adaptive`.
    pub row_groups: u32,
    /// The maximum number of workers at once.
    pub submission_limit: u32,
    /// The models, each with the provider that serves it. Default none.
    #[serde(default)]
    pub models: Vec<Model>,
    /// Further resources that [tasks hold](ScenarioColumn::holds) while they run, with their limits. Default
    /// none.
    #[serde(default)]
    pub resources: BTreeMap<String, u32>,
    /// The columns, in any order.
    pub columns: Vec<ScenarioColumn>,
    /// The task policy, which decides when a fairness group may start more workers than its share. Default
    /// bounded borrowing.
    #[serde(default)]
    pub policy: PolicyChoice,
    /// The control loop that chooses how many row groups are in progress. Default none.
    #[serde(default)]
    pub adaptive: Option<AdaptiveRowGroups>,
    /// Whether tasks that would only wait for a model are skipped while other tasks could call at once.
    /// Default yes.
    #[serde(default = "yes")]
    pub advisory: bool,
    /// Whether a worker that waits for a call yields: it releases its task resources meanwhile. Default yes.
    #[serde(default = "yes")]
    pub yields: bool,
    /// How often a task is retried after temporary failures, 0 to 255. The delays before the retries are 1,
    /// 2, 4, ... s. Default 3.
    #[serde(default = "retries")]
    pub retries: u32,
    /// The number of final outcomes in a window of `shutdown_rate`, 1 to 65536. Default 10.
    #[serde(default = "shutdown_window")]
    pub shutdown_window: u32,
    /// The share of failures in a full window at which the run stops, above 0 and at most 1. `None` (in files
    /// `"never"`) never stops it. Default 0.5.
    #[serde(default = "shutdown_rate", with = "NumberOrNever")]
    pub shutdown_rate: Option<f64>,
    /// How long a model may respond only with rate limits before the run ends without the rows that need it.
    /// `None` (in files `"never"`) waits for ever. Default 10 min.
    #[serde(default = "rate_limit_patience", rename = "rate_limit_patience_ms", with = "MillisOrNever")]
    pub rate_limit_patience: Option<Duration>,
    /// How long a model may be down before the run ends without the rows that need it. `None` (in files
    /// `"never"`) waits for ever. Default 10 min.
    #[serde(default = "outage_patience", rename = "outage_patience_ms", with = "MillisOrNever")]
    pub outage_patience: Option<Duration>,
    /// How long after it became unavailable a model is probed again, above 0. Default never.
    #[serde(default, rename = "recheck_ms", with = "OptionalMillis", skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Duration>,
    /// Whether health calls are made: small calls that show whether a provider responds, made when admission
    /// requests them. Default no.
    #[serde(default, skip_serializing_if = "is_off")]
    pub health_calls: bool,
    /// The number of responses in a window of `degraded_rate`, 1 to 65536. Each model has a window, or
    /// each fairness group if `advisory` is off. Default 20.
    #[serde(default = "degraded_window")]
    pub degraded_window: u32,
    /// The share of temporary failures in a window at which a warning reports the provider as degraded.
    /// `None` (in files `"never"`) never warns. Default 0.5.
    #[serde(default = "degraded_rate", with = "NumberOrNever")]
    pub degraded_rate: Option<f64>,
    /// The shortest time between two such warnings about one model or fairness group. Default 60 s.
    #[serde(default = "degraded_pause", rename = "degraded_pause_ms", with = "Millis")]
    pub degraded_pause: Duration,
    /// The shortest delay before a rate-limited task is retried, above 0. Default 50 ms.
    #[serde(default = "retry_floor", rename = "retry_floor_ms", with = "Millis")]
    pub retry_floor: Duration,
    /// The longest such delay, whatever the provider's Retry-After. Default 10 min.
    #[serde(default = "retry_ceiling", rename = "retry_ceiling_ms", with = "Millis")]
    pub retry_ceiling: Duration,
    /// The row groups that an earlier run has saved. Default none.
    #[serde(default)]
    pub done_row_groups: Vec<u32>,
    /// The missing rows of row groups that an earlier run has saved in part, as ascending ranges. Default
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemars", schemars(with = "Vec<RowRange>"))]
    pub missing_rows: Vec<Range<u64>>,
    /// The hook after the seed columns. Default none.
    #[serde(default)]
    pub pre_batch: Option<PreBatch>,
    /// The hook before the checkpoint. Default none.
    #[serde(default)]
    pub post_batch: Option<CallbackSpec>,
    /// How checkpoints behave. By default they succeed at once.
    #[serde(default)]
    pub checkpoint: CallbackSpec,
    /// When the run is wound down: it finishes the admitted row groups and admits no more. Default never.
    #[serde(default, rename = "wind_down_at_ms", with = "OptionalMillis")]
    pub wind_down_at: Option<Duration>,
    /// When the run is drained: calls in flight end, and no call starts. Default never.
    #[serde(default, rename = "drain_at_ms", with = "OptionalMillis")]
    pub drain_at: Option<Duration>,
    /// When the run is cancelled. Default never.
    #[serde(default, rename = "cancel_at_ms", with = "OptionalMillis")]
    pub cancel_at: Option<Duration>,
    /// Other clients that hold request slots of the same models for some time. Default none.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// The changes during the run, in order of time. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

/// The schema of a range of rows. The one of the standard library's type accepts unknown keys.
#[cfg(feature = "schemars")]
#[derive(schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct RowRange {
    /// The first row.
    start: u64,
    /// The row after the last one.
    end: u64,
}

impl Default for Scenario {
    /// Returns a run without rows, models and columns, with the settings of [`PipelineConfig::default`].
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

/// A model and its mock provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The model's name, unique within the scenario.
    pub name: String,
    /// The model of which this one is another request domain, such as its embeddings beside its chat. Default
    /// none: a separate model.
    ///
    /// The calls of both share the lower of their caps. Each has its own limit and its own provider. The
    /// named model must not be a domain of another model itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_of: Option<String>,
    /// The model's mock provider.
    pub provider: ProviderSpec,
    /// The cap: the most calls that may be in flight at once, at least 1.
    pub max_parallel: u32,
    /// The settings of the adaptive limit. AIMD uses all of them. Other algorithms use the ramp, the
    /// cooldowns and `max_limit`.
    #[serde(default)]
    pub request: LimitConfig,
    /// The algorithm that decides the limit. Default AIMD, with the settings in `request`.
    #[serde(default, skip_serializing_if = "LimitChoice::is_aimd")]
    pub algorithm: LimitChoice,
    /// The maximum number of workers at once whose columns call the model, at least 1. Workers that wait for
    /// the model count. Default twice `max_parallel`.
    #[serde(default)]
    pub task_limit: Option<u32>,
}

impl Model {
    /// Returns the highest limit: the lower of `max_parallel` and the `max_limit` in `request`, at least 1.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.request.max_limit.map_or(self.max_parallel, |max| max.min(self.max_parallel)).max(1)
    }

    /// Returns the name of the task resource that each worker of the model's columns holds one unit of:
    /// `request:` and the model's name.
    #[must_use]
    pub fn task_resource(&self) -> String {
        alloc::format!("request:{}", self.name)
    }

    /// Returns the limit of the model's [task resource](Model::task_resource).
    #[must_use]
    pub fn task_limit(&self) -> u32 {
        self.task_limit.unwrap_or_else(|| self.max_parallel.saturating_mul(2).max(1))
    }
}

/// The error for a scenario that cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// A provider's spec is invalid.
    #[error("model `{model}`: {error}")]
    Provider {
        /// The model's name.
        model: String,
        /// The invalid setting.
        error: SpecError,
    },
    /// A model's cap or limit settings are out of range.
    #[error("model `{model}`: {error}")]
    Model {
        /// The model's name.
        model: String,
        /// The invalid setting.
        error: ConfigError,
    },
    /// A column's settings are out of range.
    #[error("column `{column}`: {error}")]
    Column {
        /// The column's name.
        column: String,
        /// The invalid setting.
        error: ConfigError,
    },
    /// A column calls a model that the scenario does not have.
    #[error("column `{column}` calls the model `{model}`, which the scenario does not have")]
    UnknownModel {
        /// The column's name.
        column: String,
        /// The name of the missing model.
        model: String,
    },
    /// A holder holds slots of a model that the scenario does not have.
    #[error("a holder holds slots of the model `{model}`, which the scenario does not have")]
    UnknownHeldModel {
        /// The name of the missing model.
        model: String,
    },
    /// The columns do not form a valid plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run's settings are out of range.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// Another setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Scenario {
    /// Builds the plan of the columns. Returns an error if a column calls an unknown model or the columns do
    /// not form a valid plan.
    pub fn plan(&self) -> Result<Plan, ScenarioError> {
        let mut builder = PlanBuilder::new();
        for spec in &self.columns {
            builder = builder.column(spec.column(self.model_of(spec)?));
        }
        Ok(builder.build()?)
    }

    /// Returns the task resources other than `submission` with their limits: those of the models first, then
    /// the scenario's own.
    #[must_use]
    pub fn task_resources(&self) -> Vec<(String, u32)> {
        let of_models = self.models.iter().map(|model| (model.task_resource(), model.task_limit()));
        of_models.chain(self.resources.clone()).collect()
    }

    /// Returns the settings of the run's pipeline.
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
            // The patience is set on the models, in request admission.
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

    /// Checks the settings that neither the plan nor the state machines check: shares, calls, durations,
    /// fallbacks, domains, holders and changes. Returns an error for the first invalid one.
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

    /// Returns the model that a column calls, if any.
    fn model_of(&self, spec: &ScenarioColumn) -> Result<Option<&Model>, ScenarioError> {
        let Some(name) = &spec.model else { return Ok(None) };
        let found = self.models.iter().find(|model| model.name == *name);
        found.map(Some).ok_or_else(|| ScenarioError::UnknownModel { column: spec.name.clone(), model: name.clone() })
    }
}

/// The names that a change may refer to.
pub(in crate::sim) struct KnownNames<'a> {
    pub(in crate::sim) models: &'a dyn Fn(&str) -> bool,
    pub(in crate::sim) columns: &'a dyn Fn(&str) -> bool,
    pub(in crate::sim) resources: &'a dyn Fn(&str) -> bool,
}

/// Returns an error for a share outside 0 to 1.
fn require_share(field: &str, share: f64) -> Result<(), ConfigError> {
    require((0.0..=1.0).contains(&share), field, share, "a number from 0 to 1")
}

/// The durations among the settings of a limit. Errors about them name the field without the unit suffix that
/// it has in a file.
const LIMIT_DURATIONS: [&str; 3] = ["cooldown", "max_cooldown", "longest_pause"];

/// Changes the field of an error about a limit's settings to its name in a file.
pub(in crate::sim) fn with_file_field(error: ConfigError) -> ConfigError {
    if !LIMIT_DURATIONS.contains(&error.field.as_str()) {
        return error;
    }
    let expected = if error.field == "max_cooldown" { "at least `cooldown_ms`" } else { error.expected };
    ConfigError { field: error.field + "_ms", expected, ..error }
}
