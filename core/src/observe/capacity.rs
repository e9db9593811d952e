//! Every capacity value that applied to a run, where it came from, and how far it was used.
//!
//! A [`CapacityPlan`] is made before a run, of its settings and of the controller that its calls go through;
//! whoever read the settings says where each came from with [`CapacityPlan::attribute`].
//! [`CapacityPlan::close`] adds how things stood at the end. It serialises, and its `Display` is a table.
//!
//! ```
//! use tidegate_core::observe::{CapacityPlan, Source};
//! use tidegate_core::pipeline::PipelineConfig;
//!
//! let config = PipelineConfig { rows: 1000, row_groups: 8, ..PipelineConfig::default() };
//! let mut plan = CapacityPlan::of(&config);
//! plan.attribute("row_groups", Source::File, None);
//! assert_eq!(plan.value("row_groups").map(|value| (value.value, value.source)), Some((Some(8), Source::File)));
//! assert_eq!(plan.value("submission").map(|value| value.source), Some(Source::Default));
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::account::{Maxima, RunFigures};
use super::sink::SCHEMA;
use crate::budget::{BudgetSource, StatedRate};
use crate::limit::LimitChoice;
use crate::pipeline::PipelineConfig;
use crate::request::{AimdConfig, HealthConfig, RequestAdmission, ResourceBaseline};
use crate::time::Instant;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Source {
    /// Nobody said anything: the value of the core, or of the host that has one of its own.
    Default,
    /// The settings that the run was made with.
    Settings,
    /// A pipeline file.
    File,
    /// The command line.
    CommandLine,
    /// The host, such as its connection pool.
    Host,
    /// It follows from other values.
    Derived,
    /// The headers of a provider's answers.
    Headers,
}

impl Source {
    /// Its name in JSON and in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Settings => "settings",
            Self::File => "file",
            Self::CommandLine => "command_line",
            Self::Host => "host",
            Self::Derived => "derived",
            Self::Headers => "headers",
        }
    }
}

/// One capacity value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityValue {
    /// Its name: a setting of [`PipelineConfig`], `resource:` and a resource's name, or what a host calls it.
    pub name: String,
    /// The value; `None`: without a bound.
    pub value: Option<u64>,
    /// Where it came from.
    pub source: Source,
    /// What was asked for and could not be had, if anything.
    pub fallback: Option<String>,
}

/// How several caps of one provider and model become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MergeRule {
    /// The lowest of all aliases holds.
    LowestAlias,
}

/// The capacity of one request resource.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CallCapacity {
    /// Provider, model and domain.
    pub name: String,
    /// The aliases of the provider and model, and the cap that each asked for.
    pub aliases: Vec<(String, u32)>,
    /// How they become one cap.
    pub merge: MergeRule,
    /// The cap in force over all domains.
    pub cap: u32,
    /// The most that this domain's own settings allow; `None`: as many as the cap.
    pub clamp: Option<u32>,
    /// The lower of both.
    pub effective_max: u32,
    /// What decides its limit: the name of a [`LimitChoice`], or `custom`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub algorithm: String,
    /// Where that came from.
    #[cfg_attr(feature = "serde", serde(default = "unsaid"))]
    pub algorithm_source: Source,
    /// The limit that AIMD starts at, as asked for; `None`: the effective maximum.
    pub initial_limit: Option<u32>,
    /// The limit in force when the plan was made.
    pub limit: u32,
    /// The settings of the adaptive limit.
    pub settings: AimdConfig,
}

/// How a run left things.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityEnd {
    /// The request resources as they stood.
    pub calls: Vec<ResourceBaseline>,
    /// The most there ever was, layer by layer.
    pub maxima: Maxima,
    /// The most that was in use, and that waited, of each resource.
    pub resources: Vec<ResourceMaximum>,
}

/// The most of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ResourceMaximum {
    /// Its name.
    pub name: String,
    /// Its limit at the end.
    pub limit: u32,
    /// The most in use.
    pub leased: u32,
    /// The most that waited for it.
    pub demand: u64,
}

/// The capacity values of one run. See the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityPlan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The run.
    pub run: u32,
    /// `fixed`, or `adaptive`: what `row_groups` bounds then is the target.
    pub row_group_mode: String,
    /// The values of the run and its host.
    pub values: Vec<CapacityValue>,
    /// The request resources.
    pub calls: Vec<CallCapacity>,
    /// When their providers count as down, and what happens then; `None`: they never do.
    #[cfg_attr(feature = "serde", serde(default))]
    pub health: Option<HealthConfig>,
    /// How it ended; `None`: it has not.
    pub end: Option<CapacityEnd>,
}

impl CapacityPlan {
    /// What a run under `config` may use. Values that differ from the defaults are taken for settings.
    #[must_use]
    pub fn of(config: &PipelineConfig) -> Self {
        let default = PipelineConfig::default();
        let mut values = Vec::new();
        let mut add = |name: &str, value: u64, default: Option<u64>| {
            let source = if default == Some(value) { Source::Default } else { Source::Settings };
            values.push(CapacityValue { name: name.to_string(), value: Some(value), source, fallback: None });
        };
        add("rows", config.rows, None);
        let sizes = [
            ("row_group_size", config.row_group_size, default.row_group_size),
            ("row_groups", config.row_groups, default.row_groups),
        ];
        for (name, value, default) in sizes {
            add(name, u64::from(value), Some(u64::from(default)));
        }
        if let Some(adaptive) = &config.adaptive {
            add("row_group_target.initial", u64::from(adaptive.initial), Some(1));
            let guard = (u64::from(config.row_group_size) * 3).max(8_192).min(config.rows);
            add("row_group_target.max_admitted_rows", adaptive.max_admitted_rows.unwrap_or(guard), Some(guard));
        }
        add("submission", u64::from(config.submission_limit), Some(u64::from(default.submission_limit)));
        for (name, limit) in &config.resources {
            add(&format!("resource:{name}"), u64::from(*limit), None);
        }
        let row_group_mode = if config.adaptive.is_some() { "adaptive" } else { "fixed" };
        let (row_group_mode, calls) = (row_group_mode.to_string(), Vec::new());
        Self { schema: SCHEMA, run: config.run, row_group_mode, values, calls, health: None, end: None }
    }

    /// Adds every request resource of a controller, as it stands at `now`, and what it does in an outage.
    pub fn add_calls(&mut self, now: Instant, admission: &RequestAdmission) {
        self.health = admission.health_config().copied();
        let capacity = |resource| {
            let (state, settings) = (admission.snapshot(now, resource)?, admission.settings(resource)?);
            let owner = admission.provider_model(now, admission.owner(resource)?)?;
            let choice = admission.limit_choice(resource);
            Some(CallCapacity {
                name: format!("{}/{}/{}", state.provider, state.model, state.domain),
                aliases: owner.aliases,
                merge: MergeRule::LowestAlias,
                cap: state.provider_cap,
                clamp: settings.max_limit,
                effective_max: state.effective_max,
                algorithm: choice.map_or("custom", |choice| choice.name()).to_string(),
                algorithm_source: if choice == Some(LimitChoice::default()) {
                    Source::Default
                } else {
                    Source::Settings
                },
                initial_limit: settings.initial_limit,
                limit: state.current_limit,
                settings: settings.clone(),
            })
        };
        self.calls.extend(admission.resources().filter_map(capacity));
    }

    /// Adds the rates that providers have stated in headers by `now`.
    pub fn add_stated_rates(&mut self, now: Instant, admission: &RequestAdmission) {
        for state in admission.resources().filter_map(|resource| admission.snapshot(now, resource)) {
            for budget in state.budgets.iter().filter(|budget| budget.source == BudgetSource::Headers) {
                let rate = StatedRate::of(budget);
                let name = format!("rate:{}/{}/{}:{}", state.provider, state.model, state.domain, rate.name());
                self.add(&name, Some(rate.limit), Source::Headers);
            }
        }
    }

    /// Adds a value that the core does not know of, such as the size of a connection pool.
    pub fn add(&mut self, name: &str, value: Option<u64>, source: Source) {
        self.values.push(CapacityValue { name: name.to_string(), value, source, fallback: None });
    }

    /// Says where a value came from, and what was asked for instead if that could not be had. Answers whether
    /// there is such a value.
    pub fn attribute(&mut self, name: &str, source: Source, fallback: Option<&str>) -> bool {
        let Some(value) = self.values.iter_mut().find(|value| value.name == name) else { return false };
        value.source = source;
        value.fallback = fallback.map(ToString::to_string);
        true
    }

    /// Says where the algorithm of a request resource came from. Answers whether there is such a resource.
    pub fn attribute_algorithm(&mut self, name: &str, source: Source) -> bool {
        let Some(call) = self.calls.iter_mut().find(|call| call.name == name) else { return false };
        call.algorithm_source = source;
        true
    }

    /// The value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&CapacityValue> {
        self.values.iter().find(|value| value.name == name)
    }

    /// Adds how the run left things: the controller at `now`, the rates that providers stated, and what the
    /// run's account came to.
    pub fn close(&mut self, now: Instant, admission: &RequestAdmission, figures: &RunFigures) {
        self.add_stated_rates(now, admission);
        let calls = admission.resources().filter_map(|resource| admission.baseline(now, resource)).collect();
        let resources = figures.tasks.iter().chain(&figures.requests).map(|resource| ResourceMaximum {
            name: resource.name.clone(),
            limit: resource.limit,
            leased: resource.max_leased,
            demand: resource.max_demand,
        });
        self.end = Some(CapacityEnd { calls, maxima: figures.maxima, resources: resources.collect() });
    }
}

/// Plans written before there was a source of it.
#[cfg(feature = "serde")]
fn unsaid() -> Source {
    Source::Default
}

impl fmt::Display for CapacityPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>10}  {:<12}", "capacity", "value", "source")?;
        writeln!(f, "{:<32} {:>10}", "row_group_mode", self.row_group_mode)?;
        for CapacityValue { name, value, source, fallback } in &self.values {
            let value = value.map_or_else(|| "unbounded".to_string(), |value| value.to_string());
            write!(f, "{name:<32} {value:>10}  {}", source.as_str())?;
            match fallback {
                Some(asked) => writeln!(f, ", in place of {asked}")?,
                None => writeln!(f)?,
            }
        }
        for call in &self.calls {
            let CallCapacity { name, cap, effective_max, limit, algorithm, .. } = call;
            let source = call.algorithm_source.as_str();
            write!(f, "{name:<32} {effective_max:>10}  limit {limit} now, by {algorithm} ({source}), cap {cap}")?;
            let aliases = call.aliases.iter().map(|(alias, cap)| format!("{alias} {cap}")).collect::<Vec<_>>();
            write!(f, " = lowest of: {}", aliases.join(", "))?;
            match call.clamp {
                Some(clamp) => writeln!(f, "; at most {clamp} by its own settings")?,
                None => writeln!(f)?,
            }
        }
        if let Some(HealthConfig { failures, quiet, first_pause, longest_pause, recovery, .. }) = self.health {
            let what = "a provider is down after";
            write!(f, "{what:<32} {failures:>10}  failures in a row and {quiet} without a success; ")?;
            writeln!(f, "pauses of {first_pause} to {longest_pause}; back at its limit within {recovery}")?;
        }
        let Some(end) = &self.end else { return Ok(()) };
        writeln!(f, "{:<32} {:>10}  {:>10}  {:>10}", "at the end", "limit", "most used", "most asked")?;
        for ResourceMaximum { name, limit, leased, demand } in &end.resources {
            writeln!(f, "{name:<32} {limit:>10}  {leased:>10}  {demand:>10}")?;
        }
        let Maxima { row_groups, queued, workers, yielded, in_flight, waiters } = end.maxima;
        writeln!(
            f,
            "at most {row_groups} row groups, {queued} tasks queued, {workers} workers ({yielded} yielded), {in_flight} \
             calls out, {waiters} waiting"
        )
    }
}
