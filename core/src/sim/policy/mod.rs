//! Judges a task policy by criteria with stated thresholds, from a simulated run.
//!
//! A policy that serves only one group, or that never lends a free slot, still completes its run and breaks
//! no law. A [`PolicyReport`] shows the difference:
//!
//! - [`Run`](Criterion::Run): how the run ended, and the first [law](super::check::Law) that was broken.
//!   Default threshold: completed, none.
//! - [`Progress`](Criterion::Progress): tasks started although the policy denied them, because nothing ran.
//!   Default threshold: none.
//! - [`Service`](Criterion::Service): slots received, relative to the fair share, while the group was
//!   backlogged and another group competed. Default threshold: at least 75 %.
//! - [`Starvation`](Criterion::Starvation): longest time that a group had queued tasks and no worker, while
//!   others had workers. Default threshold: two tasks and one round of turns.
//! - [`Borrowing`](Criterion::Borrowing): slots used, relative to those that the groups could borrow.
//!   Default threshold: at least 50 %.
//! - [`Repayment`](Criterion::Repayment): longest time that a group held more than its fair share, while
//!   another group waited below its own. Default threshold: two tasks.
//! - [`WallTime`](Criterion::WallTime): wall time. Default threshold: 110 % of the [lower
//!   bound](LowerBound), plus one longest path.
//!
//! A group is *backlogged* while it has queued tasks. It *competes* while it holds or needs the same
//! resource. The length of a *task* is the longest time that a worker held some of the group's resource: a
//! policy cannot interrupt a worker, so no policy reacts faster. *One round* is the time to start as many
//! tasks of the other groups as their weights allow for one task of the group.
//!
//! A group's *dominant resource* is the one of which it demands the largest fraction. Its *fair share* is the
//! weighted max-min share of that resource: the shares of all groups rise together, in proportion to their
//! weights, until a group has what it demands or a resource is used up (Ghodsi et al., "Dominant Resource
//! Fairness", 2011). Its *guaranteed share* is the part by weight among all groups that ever demand the
//! resource. Holding more than that is *borrowing*. [`GroupService`] has the figures.
//!
//! [`PolicyView::demands`](crate::task::PolicyView::demands) includes the resource `submission`, of which
//! each task needs one: a policy that bounds every resource bounds the number of workers, too.
//!
//! ```
//! use tidegate_core::sim::policy::{Criterion, PolicyReport, two_groups};
//! use tidegate_core::task::{PolicyGrant, PolicyView, PolicyDenial, StrictFair, TaskPolicy};
//!
//! /// Starts every task in order.
//! struct NoPolicy;
//!
//! impl TaskPolicy for NoPolicy {
//!     fn evaluate(&self, _view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
//!         Ok(PolicyGrant::unlimited())
//!     }
//! }
//!
//! let strict = PolicyReport::run(&two_groups(), 1, Box::new(StrictFair))?;
//! assert!(strict.is_good(), "{strict}");
//!
//! let none = PolicyReport::run(&two_groups(), 1, Box::new(NoPolicy))?;
//! assert!(none.judgement(Criterion::Repayment).is_bad(), "long tasks keep more than their share: {none}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The thresholds fit scenarios whose tasks are short relative to the run. A scenario in which tasks wait
//! for a model under pressure shows little about a policy, because [advice](Scenario::advisory) defers
//! tasks that the policy would start.

mod criteria;
mod table;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use self::criteria::CriteriaInput;
use super::scenario::{Scenario, ScenarioColumn, ScenarioError};
use super::suite::idle::LowerBound;
use super::world::World;
use crate::observe::GroupService;
use crate::pipeline::Strategy;
use crate::pipeline::event::StopKind;
use crate::task::BoxedPolicy;
use crate::time::Duration;

/// A criterion for a policy's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Criterion {
    /// The run completes and breaks no law.
    Run,
    /// The policy never denies every queued task while nothing runs.
    Progress,
    /// Each group receives its fair share while it is backlogged and others compete.
    Service,
    /// No group with queued tasks is without a worker for long while others have workers.
    Starvation,
    /// Slots that a group leaves free are lent to others.
    Borrowing,
    /// A group that holds more than its fair share gives back the excess when others wait.
    Repayment,
    /// The run takes little longer than any scheduler would need.
    WallTime,
}

/// The result of comparing a figure with its threshold.
///
/// Exhaustive on purpose: a caller decides what a criterion that the scenario does not show means to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The figure is within the threshold.
    Good,
    /// The figure is beyond the threshold.
    Bad,
    /// The scenario does not show the figure: no group could borrow, or no group competed for long.
    NotShown,
}

impl Judgement {
    /// Returns whether the figure is beyond the threshold.
    #[must_use]
    pub fn is_bad(self) -> bool {
        self == Self::Bad
    }

    fn good_if(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Bad }
    }
}

/// The result of one criterion: the figure and the threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CriterionResult {
    /// The criterion.
    pub criterion: Criterion,
    /// Whether the figure is within the threshold.
    pub judgement: Judgement,
    /// The group with the worst figure, if the criterion is about groups.
    pub group: Option<String>,
    /// The figure, with its unit.
    pub found: String,
    /// The threshold, with its unit.
    pub threshold: String,
}

/// The thresholds between good and bad. `..Thresholds::default()` fills in the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Thresholds {
    /// The least share that a group receives of its fair share while it is backlogged and others compete, in
    /// percent. Default: 75.
    pub service_percent: u32,
    /// How long a group must have been backlogged while others competed, to be judged by its service, in task
    /// lengths. Default: 4.
    pub service_after_tasks: u32,
    /// The longest starvation, in task lengths, in addition to one round of turns. Default: 2.
    pub starvation_tasks: u32,
    /// The least share that is used of what groups could borrow, in percent. Default: 50.
    pub borrowing_percent: u32,
    /// The longest time above the fair share while others wait, in task lengths. Default: 2.
    pub repayment_tasks: u32,
    /// The longest wall time, in percent of the lower bound, in addition to one longest path. Default: 110.
    pub wall_percent: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            service_percent: 75,
            service_after_tasks: 4,
            starvation_tasks: 2,
            borrowing_percent: 50,
            repayment_tasks: 2,
            wall_percent: 110,
        }
    }
}

/// The results of a task policy in a scenario. [`Display`](core::fmt::Display) prints them as two tables.
///
/// See the [module documentation](self) for the criteria.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PolicyReport {
    /// The name of the scenario.
    pub scenario: String,
    /// How the run ended.
    pub stop: StopKind,
    /// The first law that was broken, if any.
    pub violation: Option<String>,
    /// The time from the start of the run to its end.
    pub wall_ns: u64,
    /// The least time that any scheduler needs.
    pub lower_bound_ns: u64,
    /// The constraint that sets the lower bound, in words.
    pub lower_bound_set_by: String,
    /// The time of the longest path through the columns, for one row that waits for nothing.
    pub path_ns: u64,
    /// The number of tasks that were started although the policy denied them, because nothing ran.
    pub liveness_overrides: u64,
    /// The groups, in the order of the plan.
    pub groups: Vec<GroupService>,
    /// The thresholds.
    pub thresholds: Thresholds,
    /// One result for each criterion.
    pub results: Vec<CriterionResult>,
}

/// The reason why a run cannot be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyReportError {
    /// The run has not ended.
    #[error("the run has not ended; call `World::step` until it returns `false`")]
    Running,
    /// The world has no account of the service of its groups.
    #[error("the world has no account of its groups; make it with `World::with_policy` or `World::judged`")]
    NoAccount,
    /// The scenario cannot run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl PolicyReport {
    /// Runs a scenario under `policy` to its end, and judges the policy by the default thresholds.
    pub fn run(scenario: &Scenario, seed: u64, policy: BoxedPolicy) -> Result<Self, PolicyReportError> {
        let mut world = World::with_policy(scenario, seed, policy)?;
        while world.step() {}
        Self::of(scenario, &world, Thresholds::default())
    }

    /// Judges the policy of a world of `scenario` that has ended. The world is created with
    /// [`World::with_policy`] or [`World::judged`].
    pub fn of(scenario: &Scenario, world: &World, thresholds: Thresholds) -> Result<Self, PolicyReportError> {
        let bound = LowerBound::of(scenario)?;
        let service = world.service().ok_or(PolicyReportError::NoAccount)?;
        let figures = world.figures().ok_or(PolicyReportError::NoAccount)?;
        let report = world.finished().ok_or(PolicyReportError::Running)?;
        let mut this = Self {
            scenario: scenario.name.clone(),
            stop: StopKind::from(&report.stop),
            violation: world.violation().map(ToString::to_string),
            wall_ns: figures.span_ns,
            lower_bound_ns: bound.at_least.as_nanos(),
            lower_bound_set_by: bound.set_by,
            path_ns: bound.path.as_nanos(),
            liveness_overrides: figures.liveness_overrides,
            groups: service.groups,
            thresholds,
            results: Vec::new(),
        };
        this.results = CriteriaInput { report: &this, most_workers: figures.maxima.workers }.results();
        Ok(this)
    }

    /// Returns whether no criterion is judged bad.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.results.iter().any(|result| result.judgement.is_bad())
    }

    /// Returns the judgement of a criterion.
    #[must_use]
    pub fn judgement(&self, criterion: Criterion) -> Judgement {
        let result = self.results.iter().find(|result| result.criterion == criterion);
        result.map_or(Judgement::NotShown, |result| result.judgement)
    }
}

/// Returns a scenario for comparing task policies. Two groups of equal weight share eight slots of `gpu`,
/// and each may hold four while the other one competes.
///
/// `long` has 96 tasks of 60 ms, which are ready at once. `short` has 384 tasks of 20 ms, which are ready
/// after 240 ms, when the one task of `late`, which needs no slot, is done. At first one group could borrow
/// what the other one leaves. Then both compete, and at the end one could borrow again.
#[must_use]
pub fn two_groups() -> Scenario {
    let rows = 96;
    let column = |name: &str, group: &str, ms| ScenarioColumn {
        group: Some(group.to_string()),
        holds: BTreeMap::from([("gpu".to_string(), 1)]),
        admitted_limit: Some(4),
        local: Duration::from_millis(ms),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    let late =
        ScenarioColumn { local: Duration::from_millis(240), ..ScenarioColumn::new("late", Strategy::FullColumn) };
    let short = (0..4).map(|number| ScenarioColumn {
        after: ["late".to_string()].into(),
        ..column(&alloc::format!("short_{number}"), "short", 20)
    });
    Scenario {
        name: "two-groups".to_string(),
        title: "Two groups share eight slots".to_string(),
        description: "One group has tasks from the start. The other has tasks after 240 ms, and they are shorter."
            .to_string(),
        rows,
        row_group_size: rows as u32,
        row_groups: 1,
        resources: BTreeMap::from([("gpu".to_string(), 8)]),
        columns: [column("long", "long", 60), late].into_iter().chain(short).collect(),
        ..Scenario::default()
    }
}
