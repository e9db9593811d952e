//! The idle suite: is capacity ever idle although it could be used?
//!
//! Each [`IdleCase`] is a scenario, the resource whose use is measured, and the [targets](Target) that its
//! run must meet.
//!
//! - [`cases`] returns all cases.
//! - [`measure`] runs a case in virtual time, with a [checker](crate::sim::check) of every law and an
//!   [account](crate::observe::RunAccount) of all idle time. It returns the [figures](CaseFigures), which are
//!   integers and a function of the scenario alone.
//! - [`judge`] compares the figures of a set of cases with their targets.
//!
//! The figures include a [lower bound](LowerBound) of the wall time that no scheduler can beat.
//!
//! ```
//! use tidegate_core::sim::suite::idle;
//!
//! let is_adaptive = |case: &idle::IdleCase| case.sweep == "adaptive-row-groups";
//! let adaptive: Vec<_> = idle::cases().into_iter().filter(is_adaptive).collect();
//! let figures: Vec<_> = adaptive.iter().map(|case| idle::measure(case)).collect::<Result<_, _>>()?;
//! assert!(idle::judge(&adaptive, &figures).iter().all(|check| check.holds));
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! | item | what it is |
//! | --- | --- |
//! | [`IdleCase`], [`Target`] | a scenario, and what its run must meet |
//! | [`CaseFigures`], [`ResourceUse`] | the result of a run |
//! | [`LowerBound`] | the least time that a scenario can take |
//! | [`TargetCheck`] | a requirement, and whether a run meets it |

mod bound;
mod figures;
mod more;
mod pressure;
mod sweeps;
mod target_check;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::sim::scenario::Scenario;

pub use bound::LowerBound;
pub use figures::{CaseFigures, ResourceUse, measure, measure_with};
pub use target_check::{TargetCheck, judge};

/// A scenario of the suite, and the requirements on its run.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleCase {
    /// The sweep that the case belongs to: a series of cases of which each changes one property.
    pub sweep: &'static str,
    /// The scenario. Its name is `sweep/case`.
    pub scenario: Scenario,
    /// The resource whose use is measured: a task resource, or the name of a model for its calls.
    pub about: String,
    /// The targets of this case. [`judge`] also checks requirements that are common to all cases.
    pub targets: Vec<Target>,
    /// Whether the case belongs to the [quick set](quick_cases).
    pub is_quick: bool,
}

impl IdleCase {
    fn new(sweep: &'static str, name: &str, title: &str, scenario: Scenario) -> Self {
        let name = format!("{sweep}/{name}");
        let (title, description) = (title.to_string(), format!("A case of the idle suite, in its sweep `{sweep}`."));
        let about = "submission".to_string();
        let scenario = Scenario { name, title, description, ..scenario };
        Self { sweep, scenario, about, targets: Vec::new(), is_quick: false }
    }

    fn about(self, resource: &str) -> Self {
        Self { about: resource.to_string(), ..self }
    }

    fn described(mut self, description: &str) -> Self {
        self.scenario.description = description.to_string();
        self
    }

    /// Returns the name of the case: `sweep/case`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.scenario.name
    }
}

/// A requirement on the run of a case. Shares are in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The utilisation of the resource is at least `at_least_ppm`.
    Utilisation {
        /// The lowest utilisation.
        at_least_ppm: u32,
    },
    /// The utilisation of the resource is at least that of another case, less a tolerance.
    AsBusyAs {
        /// The other case.
        case: &'static str,
        /// The tolerance.
        within_ppm: u32,
    },
    /// The wall time is shorter than that of another case.
    FasterThan {
        /// The other case.
        case: &'static str,
    },
    /// The wall time is at most that of another case.
    NoSlowerThan {
        /// The other case.
        case: &'static str,
    },
    /// The wall time is close to the lower bound.
    NearBound {
        /// How far it may exceed the lower bound, relative to the bound.
        within_ppm: u32,
    },
    /// The wall time is at most the lower bound plus the time of one row.
    ///
    /// If one resource is the bottleneck, every schedule that never leaves a slot idle while a task could use
    /// it meets this (Graham, 1969). Only a schedule that knows the durations of tasks in advance can do
    /// better.
    Greedy,
    /// The 95th percentile of the time from the end of a task's last upstream to its own start is shorter
    /// than in another case.
    ShorterGap {
        /// The other case.
        case: &'static str,
    },
}

/// Returns all cases, in display order.
#[must_use]
pub fn cases() -> Vec<IdleCase> {
    sweeps::cases().into_iter().chain(pressure::cases()).chain(more::cases()).collect()
}

/// Returns the cases of the quick set, in display order. Every case that a target of the set refers to is in
/// the set.
#[must_use]
pub fn quick_cases() -> Vec<IdleCase> {
    cases().into_iter().filter(|case| case.is_quick).collect()
}
