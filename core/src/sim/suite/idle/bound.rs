//! The least time that any scheduler needs for a scenario, computed from the scenario alone.
//!
//! The lower bound is the highest of these:
//!
//! ```text
//! work        for each task resource: sum over its tasks of (amount x time held) / limit
//! calls       for each model: the time of all calls, on the slots that holders leave free
//! row groups  the number of row groups / `row_groups`, each for the longest path
//! path        the longest path through the columns
//! order       for each ordered column: its tasks one after another
//! ```
//!
//! The bound does not depend on queues, policies or leases. No run takes less time, so a run that takes
//! exactly the bound cannot be improved.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::pipeline::Strategy;
use crate::sim::latency::{Latency, scaled};
use crate::sim::provider::{Capacity, Overload};
use crate::sim::scenario::{Change, Holder, Intervention, Model, Scenario, ScenarioColumn, ScenarioError};
use crate::time::Duration;

/// A lower bound of the wall time of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LowerBound {
    /// The bound.
    pub at_least: Duration,
    /// The constraint that sets the bound, in words, such as ``work of `model` ``.
    pub set_by: String,
    /// The longest path through the columns, which is the time of one row that never waits.
    pub path: Duration,
}

/// The number of tasks of a column, and the least time of each.
struct Cost<'a> {
    column: &'a ScenarioColumn,
    /// The number of tasks.
    tasks: u64,
    /// The duration of all calls of a task.
    calls_ns: u64,
    /// The duration of a task.
    task_ns: u64,
}

impl LowerBound {
    /// Computes the bound of a scenario in which only latencies are random.
    ///
    /// Of each latency distribution, the shortest latency counts. Of the changes during the run, the one that
    /// favours a short run most counts for the whole run. Returns an error if the columns do not form a valid
    /// plan. O(columns + edges + changes x models).
    pub fn of(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let best = BestCase::of(scenario);
        let costs: Vec<Cost<'_>> = scenario.columns.iter().map(|column| best.cost(column)).collect();
        let mut bounds = Vec::new();
        let path = longest_path(scenario, &costs)?;
        bounds.push(("the longest path".to_string(), path));
        let groups = u128::from(row_groups(scenario));
        bounds.push(("row groups".to_string(), divided(groups * u128::from(path), scenario.row_groups)));
        let submission = costs.iter().map(|cost| u128::from(cost.tasks) * u128::from(cost.task_ns)).sum();
        bounds.push(("work of `submission`".to_string(), divided(submission, scenario.submission_limit)));
        for (name, limit) in &scenario.resources {
            bounds.push((format!("work of `{name}`"), divided(held(&costs, name), *limit)));
        }
        for model in &best.models {
            bounds.extend(best.of_model(&costs, model));
        }
        for cost in costs.iter().filter(|cost| cost.column.ordered) {
            bounds.push((format!("order of `{}`", cost.column.name), cost.tasks.saturating_mul(cost.task_ns)));
        }
        // The first of equal bounds names the constraint.
        let most = bounds.into_iter().reduce(|most, next| if next.1 > most.1 { next } else { most });
        let (set_by, nanos) = most.unwrap_or_default();
        Ok(Self { at_least: Duration::from_nanos(nanos), set_by, path: Duration::from_nanos(path) })
    }
}

/// A scenario with the best setting that any change during the run gives, from the start.
struct BestCase<'a> {
    scenario: &'a Scenario,
    models: Vec<Model>,
    holders: Vec<&'a Holder>,
}

impl<'a> BestCase<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let mut best = Self { scenario, models: scenario.models.clone(), holders: scenario.holders.iter().collect() };
        for Change { what, .. } in &scenario.changes {
            best.change(what);
        }
        best
    }

    /// Applies a change if it makes a shorter run possible.
    fn change(&mut self, what: &Intervention) {
        let Some(model) = self.models.iter_mut().find(|model| what.model() == Some(&model.name)) else { return };
        match what {
            Intervention::Capacity { slots: Some(slots), .. } if *slots > most_slots(&model.provider.capacity) => {
                model.provider.capacity = Capacity::Constant { slots: *slots };
            }
            Intervention::Slow { factor, .. } if *factor < 1.0 => {
                // Slow phases replace each other, so their factors do not multiply.
                let (models, latency) = (self.scenario.models.iter(), &mut model.provider.latency);
                let original =
                    models.filter(|other| other.name == model.name).map(|other| shortest(&other.provider.latency));
                let least = original.map(|latency| scaled(latency, *factor)).min().unwrap_or(Duration::ZERO);
                *latency = Latency::Constant { latency: least.min(shortest(latency)) };
            }
            Intervention::Request { request, .. } => {
                let most = model.request.max_limit.zip(request.max_limit).map(|(one, other)| one.max(other));
                model.request.max_limit = most;
            }
            Intervention::MaxParallel { calls, .. } => model.max_parallel = model.max_parallel.max(*calls),
            _ => {}
        }
        // After a change of the model, admission decides how many slots its holders get.
        self.holders.retain(|holder| what.model() != Some(&holder.model));
    }

    fn cost(&self, column: &'a ScenarioColumn) -> Cost<'a> {
        let tasks = if column.strategy == Strategy::Cell { self.scenario.rows } else { row_groups(self.scenario) };
        let model = self.models.iter().find(|model| column.model.as_ref() == Some(&model.name));
        let one = model.map_or(0, |model| shortest(&model.provider.latency).as_nanos());
        let calls_ns = one.saturating_mul(u64::from(column.calls));
        Cost { column, tasks, calls_ns, task_ns: calls_ns.saturating_add(column.local.as_nanos()) }
    }

    /// Returns the bounds by a model's task resource and by its provider's slots.
    fn of_model(&self, costs: &[Cost<'_>], model: &Model) -> [(String, u64); 2] {
        let its = || costs.iter().filter(|cost| cost.column.model.as_ref() == Some(&model.name));
        let tasks = its().map(|cost| u128::from(cost.tasks) * u128::from(cost.task_ns)).sum();
        let calls: u128 = its().map(|cost| u128::from(cost.tasks) * u128::from(cost.calls_ns)).sum();
        // A provider that slows down serves all calls that it gets.
        let served = match model.provider.overload {
            Overload::Refuse { .. } => most_slots(&model.provider.capacity),
            Overload::SlowDown { .. } => model.cap(),
        };
        let holders = self.certain_holders(model);
        [
            (format!("workers of `{}`", model.name), divided(tasks, model.task_limit())),
            (format!("calls of `{}`", model.name), time_beside(&holders, calls, model.cap(), served)),
        ]
    }

    /// Returns the holders that certainly get slots of a model before the run's own first call: until when,
    /// in nanoseconds, and how many. Returns none if the limit does not start at the cap, because admission
    /// then decides which client gets a slot.
    fn certain_holders(&self, model: &Model) -> Vec<(u64, u32)> {
        let starts_low = model.request.initial_limit.is_some_and(|limit| limit < model.cap());
        if starts_low || !model.request.ramp.is_zero() || !model.algorithm.is_aimd() {
            return Vec::new();
        }
        let mut free = model.cap();
        let from_the_start = self.holders.iter().filter(|holder| holder.model == model.name && holder.from.is_zero());
        let take = |holder: &&Holder| {
            let taken = holder.slots.min(free);
            free -= taken;
            (holder.until.as_nanos(), taken)
        };
        from_the_start.map(take).collect()
    }
}

fn row_groups(scenario: &Scenario) -> u64 {
    scenario.rows.div_ceil(u64::from(scenario.row_group_size.max(1)))
}

/// Returns the shortest latency of a distribution.
fn shortest(law: &Latency) -> Duration {
    match law {
        Latency::Constant { latency } => *latency,
        Latency::Uniform { low, .. } => *low,
        Latency::LogNormal { .. } => Duration::ZERO,
    }
}

/// Returns how much of a scenario resource all tasks hold, in slot-nanoseconds.
fn held(costs: &[Cost<'_>], name: &str) -> u128 {
    let of_one = |cost: &Cost<'_>| {
        let amount = cost.column.holds.get(name).copied().unwrap_or(0);
        u128::from(amount) * u128::from(cost.tasks) * u128::from(cost.task_ns)
    };
    costs.iter().map(of_one).sum()
}

/// Returns the highest capacity at any time.
fn most_slots(capacity: &Capacity) -> u32 {
    match capacity {
        Capacity::Constant { slots } | Capacity::WarmUp { slots, .. } => *slots,
        Capacity::Steps { slots, steps } => steps.iter().map(|step| step.slots).max().unwrap_or(0).max(*slots),
        Capacity::Drift { from, to, .. } => *from.max(to),
    }
}

/// Returns when `work` slot-nanoseconds are done on the slots of `cap` that are not held, with at most
/// `served` in use at once. `holders` are the ends and the numbers of held slots.
fn time_beside(holders: &[(u64, u32)], work: u128, cap: u32, served: u32) -> u64 {
    if work == 0 {
        return 0;
    }
    let free_from = |since: u64| {
        let kept: u32 = holders.iter().filter(|(until, _)| *until > since).map(|(_, slots)| *slots).sum();
        cap.saturating_sub(kept).min(served)
    };
    let mut ends: Vec<u64> = holders.iter().map(|(until, _)| *until).collect();
    ends.sort_unstable();
    let (mut left, mut since) = (work, 0);
    for end in ends {
        let done = u128::from(free_from(since)) * u128::from(end - since);
        if done >= left {
            break;
        }
        (left, since) = (left - done, end);
    }
    since.saturating_add(divided(left, free_from(since)))
}

/// Returns the time of the longest path through the columns, in nanoseconds.
fn longest_path(scenario: &Scenario, costs: &[Cost<'_>]) -> Result<u64, ScenarioError> {
    let plan = scenario.plan()?;
    let mut ends = alloc::vec![0_u64; scenario.columns.len()];
    for id in plan.order() {
        let starts = plan.upstreams(*id).iter().map(|upstream| ends[upstream.index()]).max();
        ends[id.index()] = starts.unwrap_or(0).saturating_add(costs[id.index()].task_ns);
    }
    Ok(if scenario.rows == 0 { 0 } else { ends.into_iter().max().unwrap_or(0) })
}

/// Returns the time in which `slots` slots do work of `slot_nanos`, rounded up.
fn divided(slot_nanos: u128, slots: u32) -> u64 {
    slot_nanos.div_ceil(u128::from(slots.max(1))).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[(&str, &[&str], u64)]) -> Scenario {
        let column = |(name, after, ms): &(&str, &[&str], u64)| ScenarioColumn {
            after: after.iter().map(ToString::to_string).collect(),
            local: Duration::from_millis(*ms),
            ..ScenarioColumn::new(name, Strategy::Cell)
        };
        Scenario { rows: 10, columns: columns.iter().map(column).collect(), ..Scenario::default() }
    }

    fn bound(scenario: &Scenario) -> (u64, String) {
        let LowerBound { at_least, set_by, .. } = LowerBound::of(scenario).unwrap();
        (at_least.as_nanos() / 1_000_000, set_by)
    }

    #[test]
    fn the_longest_path_sets_the_bound_with_enough_workers_and_the_work_otherwise() {
        let diamond = columns(&[("a", &[], 3), ("b", &["a"], 5), ("c", &["a"], 7), ("d", &["b", "c"], 1)]);
        assert_eq!(bound(&diamond), (11, "the longest path".to_string()));
        let narrow = Scenario { submission_limit: 4, ..diamond.clone() };
        assert_eq!(bound(&narrow), (40, "work of `submission`".to_string()));
        let one_by_one = Scenario { row_group_size: 1, row_groups: 2, ..diamond.clone() };
        assert_eq!(bound(&one_by_one), (55, "row groups".to_string()));
        let mut ordered = diamond;
        ordered.columns[2].ordered = true;
        assert_eq!(bound(&ordered), (70, "order of `c`".to_string()));
    }

    #[test]
    fn a_resource_counts_the_amount_that_each_task_holds() {
        let mut scenario = columns(&[("a", &[], 3), ("b", &[], 3)]);
        scenario.resources.insert("gpu".to_string(), 4);
        scenario.columns[0].holds.insert("gpu".to_string(), 3);
        assert_eq!(LowerBound::of(&scenario).unwrap().at_least, Duration::from_micros(22_500));
    }

    #[test]
    fn calls_use_the_slots_that_holders_leave_and_all_slots_after_them() {
        assert_eq!(time_beside(&[], 12, 4, 9), 3);
        assert_eq!(time_beside(&[(50, 4)], 12, 4, 9), 53);
        assert_eq!(time_beside(&[(50, 3)], 12, 4, 9), 12);
        assert_eq!(time_beside(&[(50, 3), (20, 1)], 34, 4, 9), 51);
        assert_eq!(time_beside(&[(50, 4)], 0, 4, 9), 0);
        // The provider serves one call at a time. Held slots do not count against that.
        assert_eq!(time_beside(&[(50, 3)], 12, 4, 1), 12);
        assert_eq!(time_beside(&[], 12, 4, 1), 12);
    }
}
