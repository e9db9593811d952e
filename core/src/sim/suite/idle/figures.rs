//! A run of a case, and what it came to.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Case;
use super::bound::LowerBound;
use crate::observe::{ResourceFigures, RunFigures};
use crate::sim::scenario::ScenarioError;
use crate::sim::world::World;

/// The seed of every run of the suite. No case leaves anything to chance.
const SEED: u64 = 1;
/// Steps between two calls of a watcher.
const WATCHED_EVERY: u32 = 1 << 14;

/// What the run of a case came to. Integers, and a function of the scenario alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFigures {
    /// The case.
    pub name: String,
    /// From the start of the run to its end, in virtual time.
    pub wall_ns: u64,
    /// The [lower bound](LowerBound) of that.
    pub bound_ns: u64,
    /// What the bound is set by.
    pub bound_set_by: String,
    /// What one row takes if it waits for nothing.
    pub path_ns: u64,
    /// Rows saved.
    pub rows_out: u64,
    /// Rows given up.
    pub rows_dropped: u64,
    /// Tasks started, each try by itself.
    pub dispatched: u64,
    /// Every resource: those of the task stage first, then the models.
    pub resources: Vec<ResourceUse>,
    /// The resource that the case is about, by its place among them; `None`: it is not there.
    pub about: Option<usize>,
    /// From the queue to a lease: the median.
    pub queue_age_p50_ns: u64,
    /// The same: 95 of 100 are not older.
    pub queue_age_p95_ns: u64,
    /// The same: the oldest.
    pub queue_age_max_ns: u64,
    /// From the end of a task's last upstream to its own start: 95 of 100 are not longer.
    pub gap_p95_ns: u64,
    /// How long workers waited for a call while they held what their task demands, summed over them.
    pub request_wait_while_leased_ns: u64,
    /// From the start of the run to the first worker of a model column.
    pub first_model_dispatch_ns: Option<u64>,
    /// That column.
    pub first_model_column: Option<String>,
    /// Tasks passed over because their call would only wait.
    pub advisory_skips: u64,
    /// Workers that gave back what they held while they waited for a call.
    pub yields: u64,
    /// The most row groups that were in work at once.
    pub max_row_groups: u32,
    /// Workers that were started without a lease. Always 0.
    pub hidden_waiters: u64,
    /// Leases of both stages and waiters that were left at the end. Always 0.
    pub left_over: u64,
    /// A hash over every decision, in 16 hexadecimal digits.
    pub digest: String,
    /// The first law that was broken, in words.
    pub violation: Option<String>,
    /// Whether starved and frontier idle time make up all idle time, cause by cause, of every resource.
    pub is_partitioned: bool,
}

/// What became of a resource's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResourceUse {
    /// Its name; of a model, with `calls of ` before it.
    pub name: String,
    /// Slot-nanoseconds in use.
    pub busy_slot_ns: u64,
    /// Slot-nanoseconds free while something queued wanted the resource.
    pub starved_slot_ns: u64,
    /// Slot-nanoseconds free while nothing did.
    pub frontier_slot_ns: u64,
    /// Slot-nanoseconds in use above the limit.
    pub overhang_slot_ns: u64,
    /// The most slots in use at once.
    pub max_leased: u32,
    /// The slots there are.
    pub limit: u32,
}

impl ResourceUse {
    /// `busy / (busy + starved + frontier)` in millionths, rounded down; 0 where there never was a slot.
    #[must_use]
    pub fn utilisation_ppm(&self) -> u32 {
        self.ppm(self.busy_slot_ns)
    }

    /// The part that was idle while something wanted the resource, in millionths, rounded down.
    #[must_use]
    pub fn starved_ppm(&self) -> u32 {
        self.ppm(self.starved_slot_ns)
    }

    /// The part that was idle while nothing wanted the resource, in millionths, rounded down.
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
    /// The resource that the case is about.
    #[must_use]
    pub fn main(&self) -> ResourceUse {
        self.about.and_then(|place| self.resources.get(place)).cloned().unwrap_or_default()
    }

    /// `wall / bound` in millionths, rounded down; 0 where the bound is 0.
    #[must_use]
    pub fn ratio_ppm(&self) -> u64 {
        let ratio = (u128::from(self.wall_ns) * 1_000_000).checked_div(u128::from(self.bound_ns));
        ratio.map_or(0, narrow)
    }
}

/// Runs a case to its end.
pub fn measure(case: &Case) -> Result<CaseFigures, ScenarioError> {
    measure_with(case, |_| {})
}

/// The same, calling `watcher` now and then.
pub fn measure_with(case: &Case, mut watcher: impl FnMut(&World)) -> Result<CaseFigures, ScenarioError> {
    let bound = LowerBound::of(&case.scenario)?;
    let mut world = World::accounted(&case.scenario, SEED)?;
    let mut steps = 0_u32;
    while world.step() {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(WATCHED_EVERY) {
            watcher(&world);
        }
    }
    Ok(figures(case, &world, bound))
}

fn figures(case: &Case, world: &World, bound: LowerBound) -> CaseFigures {
    let told = world.figures().unwrap_or_default();
    let report = world.finished();
    let tasks = told.tasks.iter().map(|resource| ResourceUse::of(resource, resource.name.clone()));
    // Each model has one request resource, and they were registered in the order of the models.
    let calls = told.requests.iter().zip(&case.scenario.models);
    let calls = calls.map(|(resource, model)| ResourceUse::of(resource, calls_of(&model.name)));
    let resources: Vec<ResourceUse> = tasks.chain(calls).collect();
    let is_about = |resource: &ResourceUse| resource.name == case.about || resource.name == calls_of(&case.about);
    CaseFigures {
        name: case.name().to_string(),
        wall_ns: told.span_ns,
        bound_ns: bound.at_least.as_nanos(),
        bound_set_by: bound.set_by,
        path_ns: bound.path.as_nanos(),
        rows_out: report.map_or(0, |report| report.rows_out),
        rows_dropped: report.map_or(0, |report| report.dropped.iter().map(|dropped| dropped.rows).sum()),
        dispatched: told.dispatched,
        about: resources.iter().position(is_about),
        resources,
        queue_age_p50_ns: told.queue_age.p50_ns,
        queue_age_p95_ns: told.queue_age.p95_ns,
        queue_age_max_ns: told.queue_age.max_ns,
        gap_p95_ns: told.downstream_ready_gap.p95_ns,
        request_wait_while_leased_ns: narrow(told.request_wait_while_leased_ns),
        first_model_dispatch_ns: told.first_model_dispatch_ns,
        first_model_column: told
            .first_model_column
            .and_then(|column| case.scenario.columns.get(column.index()))
            .map(|column| column.name.clone()),
        advisory_skips: told.advisory_skips,
        yields: told.yields,
        max_row_groups: told.maxima.row_groups,
        hidden_waiters: told.hidden_waiters,
        left_over: world.outstanding().iter().map(|count| *count as u64).sum(),
        digest: alloc::format!("{:016x}", world.digest()),
        violation: world.violation().map(ToString::to_string),
        is_partitioned: is_partitioned(&told),
    }
}

fn calls_of(model: &str) -> String {
    alloc::format!("calls of {model}")
}

/// Whether each resource's idle time is starved and frontier idle time, and the sum over its causes.
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
