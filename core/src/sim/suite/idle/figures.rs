//! The run of a case, and its figures.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::IdleCase;
use super::bound::LowerBound;
use crate::observe::{ResourceFigures, RunFigures};
use crate::sim::scenario::ScenarioError;
use crate::sim::world::World;

/// The seed of every run of the suite. No case depends on it.
const SEED: u64 = 1;
/// The number of steps between two calls of a watcher.
const STEPS_PER_WATCH: u32 = 1 << 14;

/// The figures of a case's run. All are integers and a function of the scenario alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFigures {
    /// The name of the case.
    pub name: String,
    /// The virtual time from the start of the run to its end.
    pub wall_ns: u64,
    /// The [lower bound](LowerBound) of the wall time.
    pub bound_ns: u64,
    /// The constraint that sets the bound, in words.
    pub bound_set_by: String,
    /// The time of one row that never waits.
    pub path_ns: u64,
    /// The number of rows saved.
    pub rows_out: u64,
    /// The number of rows dropped.
    pub rows_dropped: u64,
    /// The number of tasks started. Each attempt counts.
    pub dispatched: u64,
    /// All resources: first the task resources, then the models.
    pub resources: Vec<ResourceUse>,
    /// The index in `resources` of the resource that the case measures. `None` if the run does not have it.
    pub about: Option<usize>,
    /// The median time of a task in the queue until it gets its leases.
    pub queue_age_p50_ns: u64,
    /// The 95th percentile of the time of a task in the queue until it gets its leases.
    pub queue_age_p95_ns: u64,
    /// The longest time of a task in the queue until it gets its leases.
    pub queue_age_max_ns: u64,
    /// The 95th percentile of the time from the end of a task's last upstream to its own start.
    pub gap_p95_ns: u64,
    /// The time that workers waited for a call while they held task resources, summed over all workers.
    pub request_wait_while_leased_ns: u64,
    /// The time from the start of the run to the first worker of a model column.
    pub first_model_dispatch_ns: Option<u64>,
    /// The column of that worker.
    pub first_model_column: Option<String>,
    /// The number of times that a task was skipped because its call would only wait.
    pub advisory_skips: u64,
    /// The number of times that a worker yielded: it released its task resources while it waited for a call.
    pub yields: u64,
    /// The highest number of row groups in progress at once.
    pub max_row_groups: u32,
    /// The number of workers started without a lease. Always 0.
    pub hidden_waiters: u64,
    /// The number of task leases, request leases and waiters left at the end. Always 0.
    pub left_over: u64,
    /// A hash of every decision, as 16 hexadecimal digits.
    pub digest: String,
    /// The first [law](crate::sim::check::Law) that was broken, in words.
    pub violation: Option<String>,
    /// Whether the idle time of every resource is the sum of starved and frontier idle time, and the sum of
    /// its causes.
    pub is_partitioned: bool,
}

/// How the slots of a resource were used, in slot-nanoseconds: the number of slots multiplied by the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResourceUse {
    /// The name of the resource. For the calls of a model, `calls of ` and the model's name.
    pub name: String,
    /// The time in use.
    pub busy_slot_ns: u64,
    /// The time free while a queued task or waiter needed the resource.
    pub starved_slot_ns: u64,
    /// The time free while nothing queued needed the resource.
    pub frontier_slot_ns: u64,
    /// The time in use above the limit.
    pub overhang_slot_ns: u64,
    /// The highest number of slots in use at once.
    pub max_leased: u32,
    /// The number of slots.
    pub limit: u32,
}

impl ResourceUse {
    /// Returns `busy / (busy + starved + frontier)` in parts per million, rounded down. Returns 0 if all
    /// three are 0.
    #[must_use]
    pub fn utilisation_ppm(&self) -> u32 {
        self.ppm(self.busy_slot_ns)
    }

    /// Returns the starved share of all slot time in parts per million, rounded down.
    #[must_use]
    pub fn starved_ppm(&self) -> u32 {
        self.ppm(self.starved_slot_ns)
    }

    /// Returns the frontier share of all slot time in parts per million, rounded down.
    #[must_use]
    pub fn frontier_ppm(&self) -> u32 {
        self.ppm(self.frontier_slot_ns)
    }

    fn ppm(&self, part: u64) -> u32 {
        let whole =
            u128::from(self.busy_slot_ns) + u128::from(self.starved_slot_ns) + u128::from(self.frontier_slot_ns);
        (u128::from(part) * 1_000_000).checked_div(whole).unwrap_or(0) as u32
    }

    fn of(figures: &ResourceFigures, name: String) -> Self {
        Self {
            name,
            busy_slot_ns: narrow(figures.busy_slot_ns),
            starved_slot_ns: narrow(figures.starved_slot_ns),
            frontier_slot_ns: narrow(figures.frontier_slot_ns),
            overhang_slot_ns: narrow(figures.overhang_slot_ns),
            max_leased: figures.max_leased,
            limit: figures.limit,
        }
    }
}

impl CaseFigures {
    /// Returns the use of the resource that the case measures, or an empty value if the run does not have it.
    #[must_use]
    pub fn main(&self) -> ResourceUse {
        self.about.and_then(|index| self.resources.get(index)).cloned().unwrap_or_default()
    }

    /// Returns `wall / bound` in parts per million, rounded down, or 0 if the bound is 0.
    #[must_use]
    pub fn ratio_ppm(&self) -> u64 {
        let ratio = (u128::from(self.wall_ns) * 1_000_000).checked_div(u128::from(self.bound_ns));
        ratio.map_or(0, narrow)
    }
}

/// Runs a case to its end and returns its figures.
pub fn measure(case: &IdleCase) -> Result<CaseFigures, ScenarioError> {
    measure_with(case, |_| {})
}

/// Runs a case like [`measure`], and calls `watcher` every 16384 steps.
pub fn measure_with(case: &IdleCase, mut watcher: impl FnMut(&World)) -> Result<CaseFigures, ScenarioError> {
    let bound = LowerBound::of(&case.scenario)?;
    let mut world = World::accounted(&case.scenario, SEED)?;
    let mut steps = 0_u32;
    while world.step() {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_PER_WATCH) {
            watcher(&world);
        }
    }
    Ok(figures(case, &world, bound))
}

fn figures(case: &IdleCase, world: &World, bound: LowerBound) -> CaseFigures {
    let run = world.figures().unwrap_or_default();
    let report = world.finished();
    let tasks = run.tasks.iter().map(|resource| ResourceUse::of(resource, resource.name.clone()));
    // Each model has one request resource. They are registered in the order of the models.
    let calls = run.requests.iter().zip(&case.scenario.models);
    let calls = calls.map(|(resource, model)| ResourceUse::of(resource, calls_of(&model.name)));
    let resources: Vec<ResourceUse> = tasks.chain(calls).collect();
    let is_about = |resource: &ResourceUse| resource.name == case.about || resource.name == calls_of(&case.about);
    CaseFigures {
        name: case.name().to_string(),
        wall_ns: run.span_ns,
        bound_ns: bound.at_least.as_nanos(),
        bound_set_by: bound.set_by,
        path_ns: bound.path.as_nanos(),
        rows_out: report.map_or(0, |report| report.rows_out),
        rows_dropped: report.map_or(0, |report| report.dropped.iter().map(|dropped| dropped.rows).sum()),
        dispatched: run.dispatched,
        about: resources.iter().position(is_about),
        resources,
        queue_age_p50_ns: run.queue_age.p50_ns,
        queue_age_p95_ns: run.queue_age.p95_ns,
        queue_age_max_ns: run.queue_age.max_ns,
        gap_p95_ns: run.downstream_ready_gap.p95_ns,
        request_wait_while_leased_ns: narrow(run.request_wait_while_leased_ns),
        first_model_dispatch_ns: run.first_model_dispatch_ns,
        first_model_column: run
            .first_model_column
            .and_then(|column| case.scenario.columns.get(column.index()))
            .map(|column| column.name.clone()),
        advisory_skips: run.advisory_skips,
        yields: run.yields,
        max_row_groups: run.maxima.row_groups,
        hidden_waiters: run.hidden_waiters,
        left_over: world.outstanding().iter().map(|count| *count as u64).sum(),
        digest: alloc::format!("{:016x}", world.digest()),
        violation: world.violation().map(ToString::to_string),
        is_partitioned: is_partitioned(&run),
    }
}

fn calls_of(model: &str) -> String {
    alloc::format!("calls of {model}")
}

/// Returns whether the idle time of each resource is the sum of starved and frontier idle time, and the sum
/// over its causes.
pub(crate) fn is_partitioned(figures: &RunFigures) -> bool {
    let is_whole = |resource: &ResourceFigures| {
        let by_cause: u128 = resource.why_idle.iter().map(|share| share.slot_ns).sum();
        resource.starved_slot_ns + resource.frontier_slot_ns == resource.idle_slot_ns
            && by_cause == resource.idle_slot_ns
    };
    figures.missing_events == 0 && figures.tasks.iter().chain(&figures.requests).all(is_whole)
}

fn narrow(slot_ns: u128) -> u64 {
    slot_ns.try_into().unwrap_or(u64::MAX)
}
