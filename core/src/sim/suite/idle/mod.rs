//! The idle suite: is capacity ever idle without need?
//!
//! Each [`Case`] is a scenario, the resource to look at, and the [targets](Target) that its run has to meet.
//! [`cases`] are all of them; [`measure`] runs one in virtual time, beside a checker of every law and an
//! [account](crate::observe::RunAccount) of all idle time, and answers its [figures](CaseFigures), which are
//! integers and a function of the scenario alone; [`judge`] holds the figures of a set of cases against their
//! targets.
//!
//! Beside each wall time stands a [lower bound](LowerBound) that no scheduler could beat.
//!
//! ```
//! use tidegate_core::sim::suite::idle;
//!
//! let adaptive: Vec<_> = idle::cases().into_iter().filter(|case| case.sweep == "adaptive-row-groups").collect();
//! let figures: Vec<_> = adaptive.iter().map(|case| idle::measure(case)).collect::<Result<_, _>>()?;
//! assert!(idle::judge(&adaptive, &figures).iter().all(|check| check.holds));
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `sweeps` | one shape of pipeline, varied in one respect at a time |
//! | `pressure` | a provider that somebody else holds |
//! | `more` | late peers, cooldowns, dynamic calls, fan-in and fan-out, bottlenecks, and very many groups |
//! | `bound` | the least time that a scenario can take |
//! | `figures` | a run, and what it came to |
//! | `verdict` | what must hold |

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

use super::super::scenario::Scenario;

pub use bound::LowerBound;
pub use figures::{CaseFigures, ResourceUse, measure, measure_with};
pub use target_check::{TargetCheck, judge};

/// A scenario of the suite, and what has to come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The sweep it belongs to.
    pub sweep: &'static str,
    /// Its scenario. The name is `sweep/case`.
    pub scenario: Scenario,
    /// The resource whose use is looked at: a task resource, or a model by its name.
    pub about: String,
    /// What has to come of it, besides what every case must keep.
    pub targets: Vec<Target>,
    /// Whether it belongs to the quick set.
    pub is_quick: bool,
}

impl Case {
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

    /// What its figures show, in a sentence or two.
    fn showing(mut self, what: &str) -> Self {
        self.scenario.description = what.to_string();
        self
    }

    /// Its name: `sweep/case`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.scenario.name
    }
}

/// What has to come of a case. Shares are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The resource is used at least so much.
    Utilisation {
        /// The least utilisation.
        at_least_ppm: u32,
    },
    /// The resource is used as much as in another case.
    AsBusyAs {
        /// The other case.
        case: &'static str,
        /// How far below it may be.
        within_ppm: u32,
    },
    /// The run is over before that of another case.
    FasterThan {
        /// The other case.
        case: &'static str,
    },
    /// The run is over no later than that of another case.
    NoSlowerThan {
        /// The other case.
        case: &'static str,
    },
    /// The wall time is close to the lower bound.
    NearBound {
        /// How far above it, relative to it.
        within_ppm: u32,
    },
    /// The wall time is at most the lower bound and what one row takes: where one resource binds, every
    /// schedule that never leaves a slot idle while a task could use it keeps that (Graham, 1969), and only
    /// one that knows how long tasks take could do better.
    Greedy,
    /// Tasks whose upstreams are complete start sooner than in another case: 95 of 100 of them.
    ShorterGap {
        /// The other case.
        case: &'static str,
    },
}

/// All cases, in the order in which to show them.
#[must_use]
pub fn cases() -> Vec<Case> {
    sweeps::cases().into_iter().chain(pressure::cases()).chain(more::cases()).collect()
}

/// The cases of the quick set, in the same order: every case that another one's target refers to is among
/// them.
#[must_use]
pub fn quick_cases() -> Vec<Case> {
    cases().into_iter().filter(|case| case.is_quick).collect()
}
