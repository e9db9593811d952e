//! Every capacity value that applied to a run, its source, and how much of it was used.
//!
//! A [`CapacityPlan`] is created before a run from its settings and from the [`RequestAdmission`] of its
//! calls. The code that read the settings records the source of each value with [`CapacityPlan::attribute`].
//! [`CapacityPlan::close`] adds the state at the end of the run. A plan serialises, and its `Display` is a
//! table.
//!
//! ```
//! use tidegate_core::observe::{CapacityPlan, Source};
//! use tidegate_core::pipeline::PipelineConfig;
//!
//! let config = PipelineConfig { rows: 1000, row_groups: 8, ..PipelineConfig::default() };
//! let mut plan = CapacityPlan::of(&config);
//! plan.attribute("row_groups", Source::File, None);
//! let row_groups = plan.value("row_groups").map(|value| (value.value, value.source));
//! assert_eq!(row_groups, Some((Some(8), Source::File)));
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
use crate::request::{HealthConfig, LimitConfig, RequestAdmission, ResourceBaseline};
use crate::time::Instant;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Source {
    /// No setting was given: the default of the core, or of a host that has its own default.
    Default,
    /// The settings that the run was created with.
    Settings,
    /// A pipeline file.
    File,
    /// The command line.
    CommandLine,
    /// The host, such as its connection pool.
    Host,
    /// Computed from other values.
    Derived,
    /// The headers of a provider's responses.
    Headers,
}

impl Source {
    /// Returns the name of the source in JSON and in tables.
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

/// How the number of row groups in flight is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RowGroupMode {
    /// It is the configured number.
    Fixed,
    /// It is a target that moves with the work. The configured number is its upper bound.
    Adaptive,
}

impl RowGroupMode {
    /// Returns the name of the mode in JSON and in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Adaptive => "adaptive",
        }
    }
}

/// One capacity value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityValue {
    /// The name: `rows`, `row_group_size`, `row_groups`, `row_group_target.initial`,
    /// `row_group_target.max_admitted_rows`, `submission`, `resource:` or `rate:` followed by a name, or the
    /// host's name for it.
    pub name: String,
    /// The value, or `None` if it is unbounded.
    pub value: Option<u64>,
    /// Where it came from.
    pub source: Source,
    /// The requested value, if it was not available and this value replaces it.
    pub fallback: Option<String>,
}

/// How several caps of one provider and model are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MergeRule {
    /// The lowest cap of all aliases applies.
    LowestAlias,
}

/// The capacity of one request resource.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CallCapacity {
    /// Provider, model and domain, joined by `/`.
    pub name: String,
    /// The aliases of the provider and model, and the cap that each of them set.
    pub aliases: Vec<(String, u32)>,
    /// How the caps of the aliases are merged.
    pub merge: MergeRule,
    /// The merged cap. It applies to all domains together.
    pub cap: u32,
    /// The most calls that this domain's own settings allow, or `None` if only the cap applies.
    pub clamp: Option<u32>,
    /// The lower of `cap` and `clamp`.
    pub effective_max: u32,
    /// The algorithm of its limit: the name of a [`LimitChoice`], or `custom`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub algorithm: String,
    /// Where the algorithm came from.
    #[cfg_attr(feature = "serde", serde(default = "default_source"))]
    pub algorithm_source: Source,
    /// The configured initial limit of AIMD, or `None` for the effective maximum.
    pub initial_limit: Option<u32>,
    /// The limit in force when the plan was created.
    pub limit: u32,
    /// The settings of the adaptive limit.
    pub settings: LimitConfig,
}

/// The state at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityEnd {
    /// The request resources at the end.
    pub calls: Vec<ResourceBaseline>,
    /// The maximum of each layer.
    pub maxima: Maxima,
    /// The most of each resource that was in use, and the most that waited for it.
    pub resources: Vec<ResourceMaximum>,
}

/// The maxima of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ResourceMaximum {
    /// The name of the resource.
    pub name: String,
    /// The limit at the end.
    pub limit: u32,
    /// The most slots in use.
    pub leased: u32,
    /// The most that waited for the resource.
    pub demand: u64,
}

/// The capacity values of one run. See the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CapacityPlan {
    /// The schema version: [`SCHEMA`].
    pub schema: u32,
    /// The id of the run.
    pub run: u32,
    /// How the number of row groups in flight is chosen.
    pub row_group_mode: RowGroupMode,
    /// The values of the run and its host.
    pub values: Vec<CapacityValue>,
    /// The request resources.
    pub calls: Vec<CallCapacity>,
    /// When a provider counts as down, and what happens then. `None` if providers never count as down.
    #[cfg_attr(feature = "serde", serde(default))]
    pub health: Option<HealthConfig>,
    /// The state at the end, or `None` if the run has not ended.
    pub end: Option<CapacityEnd>,
}

impl CapacityPlan {
    /// Creates the plan of a run under `config`. A value that differs from its default has the source
    /// [`Source::Settings`].
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
        let row_group_mode = if config.adaptive.is_some() { RowGroupMode::Adaptive } else { RowGroupMode::Fixed };
        Self { schema: SCHEMA, run: config.run, row_group_mode, values, calls: Vec::new(), health: None, end: None }
    }

    /// Adds every request resource of `admission` in its state at `now`, and its health
    /// settings.
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

    /// Adds the rates that providers stated in headers up to `now`.
    pub fn add_stated_rates(&mut self, now: Instant, admission: &RequestAdmission) {
        for state in admission.resources().filter_map(|resource| admission.snapshot(now, resource)) {
            for budget in state.budgets.iter().filter(|budget| budget.source == BudgetSource::Headers) {
                let rate = StatedRate::of(budget);
                let name = format!("rate:{}/{}/{}:{}", state.provider, state.model, state.domain, rate.name());
                self.add(&name, Some(rate.limit), Source::Headers);
            }
        }
    }

    /// Adds a value from outside the core, such as the size of a connection pool.
    pub fn add(&mut self, name: &str, value: Option<u64>, source: Source) {
        self.values.push(CapacityValue { name: name.to_string(), value, source, fallback: None });
    }

    /// Records the source of a value, and the requested value if that was not available. Returns `false` if
    /// there is no value of this name.
    pub fn attribute(&mut self, name: &str, source: Source, fallback: Option<&str>) -> bool {
        let Some(value) = self.values.iter_mut().find(|value| value.name == name) else { return false };
        value.source = source;
        value.fallback = fallback.map(ToString::to_string);
        true
    }

    /// Records the source of a request resource's algorithm. Returns `false` if there is no such resource.
    pub fn attribute_algorithm(&mut self, name: &str, source: Source) -> bool {
        let Some(call) = self.calls.iter_mut().find(|call| call.name == name) else { return false };
        call.algorithm_source = source;
        true
    }

    /// Returns the value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&CapacityValue> {
        self.values.iter().find(|value| value.name == name)
    }

    /// Adds the state at the end of the run: request admission at `now`, the rates that providers stated, and
    /// the figures of the run's account.
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

/// The source in plans that were written before the field existed.
#[cfg(feature = "serde")]
fn default_source() -> Source {
    Source::Default
}

impl fmt::Display for CapacityPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>10}  {:<12}", "capacity", "value", "source")?;
        writeln!(f, "{:<32} {:>10}", "row_group_mode", self.row_group_mode.as_str())?;
        for CapacityValue { name, value, source, fallback } in &self.values {
            let value = value.map_or_else(|| "unbounded".to_string(), |value| value.to_string());
            write!(f, "{name:<32} {value:>10}  {}", source.as_str())?;
            match fallback {
                Some(requested) => writeln!(f, ", in place of {requested}")?,
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
        writeln!(f, "{:<32} {:>10}  {:>10}  {:>10}", "at the end", "limit", "most used", "most waiting")?;
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
