//! The service of each fairness group: the task resources that it held, compared to its fair share.
//!
//! A group's demand at an instant is the sum of what its running tasks hold and its queued tasks need. Its
//! *dominant resource* is the resource of which it demands the largest fraction. The *fair share* is the
//! weighted max-min share, counted in slots of the dominant resource:
//!
//! ```text
//! the shares of all groups rise together, each at a rate proportional to its weight,
//! until the group has its demand or a resource that it demands is used up
//! ```
//!
//! Source: Ghodsi et al., "Dominant Resource Fairness", 2011. A group is thus entitled to its part by
//! weight, and to what the others leave. The *guaranteed share* is the part by weight among all groups that
//! ever demand the resource, whether they need it now or not; holding more than that is borrowing. A fair
//! share counts in whole slots. It is rounded down where it is compared as a minimum, and rounded up where
//! it is compared as a maximum. A minimum below one slot is not rounded.

use alloc::string::String;
use alloc::vec::Vec;

use super::columns::ColumnCounts;
use super::slots::Slots;
use crate::pipeline::Plan;
use crate::task::GroupKind;

/// The smallest difference between two shares that counts.
const EPSILON: f64 = 1e-9;

/// The service of the fairness groups of a run. See
/// [`RunAccount::with_service`](super::RunAccount::with_service).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ServiceFigures {
    /// The groups, in the order of the plan.
    pub groups: Vec<GroupService>,
}

/// The service of one fairness group. Slots are those of its dominant resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupService {
    /// The identity of the group, its parts joined by `/`.
    pub group: String,
    /// The kind of work of its tasks.
    pub kind: GroupKind,
    /// The weight in thousandths, rounded down.
    pub weight_permille: u64,
    /// The dominant resource at the last time the group had queued tasks.
    pub resource: String,
    /// The longest time that a worker of any group held some of that resource.
    pub longest_hold_ns: u64,
    /// How long the group was backlogged: it had queued tasks.
    pub backlogged_ns: u64,
    /// The part of that time during which another group held or needed the same resource.
    pub contended_ns: u64,
    /// What the group held during the contended time, in slot-nanoseconds.
    pub received_slot_ns: u128,
    /// The group's fair share during the contended time, in slot-nanoseconds.
    pub entitled_slot_ns: u128,
    /// The longest uninterrupted time during which the group was backlogged and had no worker, while another
    /// group had one.
    pub longest_starved_ns: u64,
    /// What the group could borrow, in slot-nanoseconds: its fair share above its guaranteed share.
    pub borrowable_slot_ns: u128,
    /// What the group used of that, in slot-nanoseconds.
    pub borrowed_slot_ns: u128,
    /// How long the group held more than its guaranteed share.
    pub borrowed_ns: u64,
    /// The most slots that the group held above its guaranteed share.
    pub max_borrowed: u32,
    /// What the group held above its fair share while a backlogged group was below its own, in
    /// slot-nanoseconds.
    pub overdrawn_slot_ns: u128,
    /// The longest uninterrupted time during which it did so.
    pub longest_overdrawn_ns: u64,
}

/// Integrates the service of all groups.
#[derive(Clone, Debug)]
pub(super) struct Service {
    groups: Vec<Group>,
    /// By resource: the sum of the weights of the groups that ever demand it.
    weights: Vec<f64>,
    /// By resource: the longest time that a worker held some of it.
    longest_holds: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Group {
    figures: GroupService,
    weight: f64,
    /// By resource: whether one of its columns demands it.
    demands: Vec<bool>,
    starving_ns: u64,
    overdrawing_ns: u64,
    dominant: usize,
    /// The state at the present instant.
    now: GroupState,
}

/// The state of a group at one instant.
#[derive(Clone, Debug, Default)]
struct GroupState {
    queued: u32,
    workers: u32,
    /// Held and needed amounts, by resource.
    demand: Vec<f64>,
    held: Vec<u32>,
    /// The fraction of the dominant resource that it demands.
    wanted_share: f64,
    /// The fair share, as a fraction of the dominant resource.
    share: f64,
    is_satisfied: bool,
}

impl Service {
    /// Creates the service of a run that has not started. `columns` are the counts of the columns of `plan`.
    pub(super) fn new(plan: &Plan, columns: &[ColumnCounts], resources: usize) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for (column, counts) in plan.columns().iter().zip(columns) {
            if counts.group == groups.len() {
                groups.push(Group::new(column.group.kind, column.group.identity.join("/"), resources));
            }
            let group = &mut groups[counts.group];
            // Where columns share a group, the weight of the last column applies.
            group.set_weight(column.group.weight);
            counts.demand.iter().for_each(|(resource, _)| group.demands[*resource] = true);
        }
        let mut service =
            Self { groups, weights: alloc::vec![0.0; resources], longest_holds: alloc::vec![0; resources] };
        service.sum_weights();
        service
    }

    pub(super) fn set_weight(&mut self, group: usize, weight: f64) {
        self.groups[group].set_weight(weight);
        self.sum_weights();
    }

    fn sum_weights(&mut self) {
        for (resource, sum) in self.weights.iter_mut().enumerate() {
            *sum = self.groups.iter().filter(|group| group.demands[resource]).map(|group| group.weight).sum();
        }
    }

    /// Records that a worker released resources that it had held for `span_ns`.
    pub(super) fn record_hold(&mut self, span_ns: u64, demand: &[(usize, u32)]) {
        for (resource, _) in demand {
            self.longest_holds[*resource] = self.longest_holds[*resource].max(span_ns);
        }
    }

    /// Accounts for `span_ns` without a change. O(groups x resources) for each group whose demand is met and
    /// each resource that is used up.
    pub(super) fn pass(&mut self, span_ns: u64, columns: &[ColumnCounts], resources: &[Slots]) {
        for group in &mut self.groups {
            group.now.clear(resources.len());
        }
        for counts in columns {
            self.groups[counts.group].now.add(counts);
        }
        self.compute_fair_shares(resources);
        let workers: u32 = self.groups.iter().map(|group| group.now.workers).sum();
        for place in 0..self.groups.len() {
            let dominant = self.groups[place].now.dominant(resources);
            let others = || {
                let groups = self.groups.iter().enumerate().filter(|(at, _)| *at != place);
                groups.map(|(_, group)| group).filter(|group| group.now.demand[dominant] > 0.0)
            };
            let interval = Interval {
                span_ns,
                dominant,
                limit: resources[dominant].limit,
                guaranteed: self.groups[place].weight / self.weights[dominant] * f64::from(resources[dominant].limit),
                workers,
                is_contended: others().next().is_some(),
                others_short: others().any(|other| other.is_short(resources)),
            };
            self.groups[place].pass(&interval);
        }
    }

    /// Computes each group's fair share.
    fn compute_fair_shares(&mut self, resources: &[Slots]) {
        let mut free: Vec<f64> = resources.iter().map(|slots| f64::from(slots.limit)).collect();
        for group in &mut self.groups {
            let dominant = group.now.dominant(resources);
            group.now.wanted_share = group.now.demand[dominant] / f64::from(resources[dominant].limit.max(1));
            group.now.is_satisfied = group.now.wanted_share <= 0.0;
        }
        loop {
            let mut rates = alloc::vec![0.0; free.len()];
            let mut step = f64::INFINITY;
            for group in self.groups.iter().filter(|group| !group.now.is_satisfied) {
                let now = &group.now;
                step = step.min((now.wanted_share - now.share) / group.weight);
                for (rate, demand) in rates.iter_mut().zip(&now.demand) {
                    *rate += group.weight * demand / now.wanted_share;
                }
            }
            if step.is_infinite() {
                return;
            }
            for (free, rate) in free.iter().zip(&rates).filter(|(_, rate)| **rate > 0.0) {
                step = step.min(free / rate);
            }
            for (free, rate) in free.iter_mut().zip(&rates) {
                *free -= step * rate;
            }
            for group in self.groups.iter_mut().filter(|group| !group.now.is_satisfied) {
                let now = &mut group.now;
                now.share += group.weight * step;
                let is_used_up = |(demand, free): (&f64, &f64)| *demand > 0.0 && *free < EPSILON;
                now.is_satisfied =
                    now.share > now.wanted_share - EPSILON || now.demand.iter().zip(&free).any(is_used_up);
            }
        }
    }

    pub(super) fn figures(&self, name_of: impl Fn(u32) -> String) -> ServiceFigures {
        let figures = |group: &Group| GroupService {
            resource: name_of(group.dominant as u32),
            longest_hold_ns: self.longest_holds[group.dominant],
            ..group.figures.clone()
        };
        ServiceFigures { groups: self.groups.iter().map(figures).collect() }
    }
}

/// The surroundings of one group during an interval.
struct Interval {
    span_ns: u64,
    /// The index of its dominant resource; `limit` is that resource's limit.
    dominant: usize,
    limit: u32,
    /// The group's guaranteed share of the dominant resource, in slots.
    guaranteed: f64,
    /// The workers of all groups.
    workers: u32,
    /// Whether another group holds or needs the dominant resource.
    is_contended: bool,
    /// Whether such a group is backlogged and below its fair share.
    others_short: bool,
}

impl Group {
    fn new(kind: GroupKind, name: String, resources: usize) -> Self {
        Self {
            figures: GroupService { group: name, kind, ..GroupService::default() },
            weight: 1.0,
            demands: alloc::vec![false; resources],
            starving_ns: 0,
            overdrawing_ns: 0,
            dominant: 0,
            now: GroupState::default(),
        }
    }

    fn set_weight(&mut self, weight: f64) {
        self.weight = weight;
        self.figures.weight_permille = (weight * 1_000.0) as u64;
    }

    /// Returns whether the group is backlogged and below its fair share.
    fn is_short(&self, resources: &[Slots]) -> bool {
        let dominant = self.now.dominant(resources);
        let fair = self.now.share * f64::from(resources[dominant].limit);
        self.now.queued > 0 && f64::from(self.now.held[dominant]) + EPSILON < at_least(fair)
    }

    fn pass(&mut self, interval: &Interval) {
        let Interval { span_ns, dominant, workers, .. } = *interval;
        let Self { figures, now, .. } = self;
        let held = now.held[dominant];
        let fair = now.share * f64::from(interval.limit);
        let most = at_most(interval.guaranteed);
        let borrowable = (at_least(fair) - f64::from(most)).max(0.0);
        let borrowed = held.saturating_sub(most);
        figures.borrowable_slot_ns += slot_ns(borrowable, span_ns);
        figures.borrowed_slot_ns += slot_ns(borrowable.min(f64::from(borrowed)), span_ns);
        figures.max_borrowed = figures.max_borrowed.max(borrowed);
        figures.borrowed_ns += if borrowed > 0 { span_ns } else { 0 };
        if now.queued > 0 {
            self.dominant = dominant;
            figures.backlogged_ns += span_ns;
            if interval.is_contended {
                figures.contended_ns += span_ns;
                figures.received_slot_ns += slot_ns(f64::from(held), span_ns);
                figures.entitled_slot_ns += slot_ns(at_least(fair), span_ns);
            }
        }
        let is_starving = now.queued > 0 && now.workers == 0 && workers > 0;
        self.starving_ns = if is_starving { self.starving_ns + span_ns } else { 0 };
        figures.longest_starved_ns = figures.longest_starved_ns.max(self.starving_ns);
        let above = if interval.others_short { held.saturating_sub(at_most(fair)) } else { 0 };
        figures.overdrawn_slot_ns += slot_ns(f64::from(above), span_ns);
        self.overdrawing_ns = if above > 0 { self.overdrawing_ns + span_ns } else { 0 };
        figures.longest_overdrawn_ns = figures.longest_overdrawn_ns.max(self.overdrawing_ns);
    }
}

impl GroupState {
    fn clear(&mut self, resources: usize) {
        let Self { mut demand, mut held, .. } = core::mem::take(self);
        demand.clear();
        demand.resize(resources, 0.0);
        held.clear();
        held.resize(resources, 0);
        *self = Self { demand, held, ..Self::default() };
    }

    fn add(&mut self, counts: &ColumnCounts) {
        self.queued += counts.queued;
        self.workers += counts.running + counts.yielded;
        for (resource, amount) in &counts.demand {
            let tasks = f64::from(counts.queued) + f64::from(counts.running);
            self.demand[*resource] += tasks * f64::from(*amount);
            self.held[*resource] = self.held[*resource].saturating_add(counts.running.saturating_mul(*amount));
        }
    }

    /// Returns the resource of which the group demands the largest fraction. The last of equal ones wins,
    /// because the first resource is `submission`.
    fn dominant(&self, resources: &[Slots]) -> usize {
        let part = |resource: usize| self.demand[resource] / f64::from(resources[resource].limit.max(1));
        (0..self.demand.len()).reduce(|most, next| if part(next) >= part(most) { next } else { most }).unwrap_or(0)
    }
}

/// Returns the whole slots of a share that is compared as a minimum. A share below one is not rounded.
fn at_least(share: f64) -> f64 {
    let whole = f64::from((share + EPSILON) as u32);
    if whole >= 1.0 { whole } else { share }
}

/// Returns the whole slots of a share that is compared as a maximum: rounded up.
fn at_most(share: f64) -> u32 {
    let whole = share as u32;
    whole + u32::from(share - f64::from(whole) > EPSILON)
}

fn slot_ns(slots: f64, span_ns: u64) -> u128 {
    // Slots are below 2^32 and a thousandth of one is exact enough.
    u128::from((slots * 1_000.0) as u64) * u128::from(span_ns) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Column, PlanBuilder, Strategy};
    use crate::task::TaskGroup;

    /// Returns the fair shares in slots of the dominant resource. A group is its weight, its queued tasks,
    /// and the demand of one task for each resource.
    fn fair_shares(limits: &[u32], groups: &[(f64, u32, &[u32])]) -> Vec<f64> {
        let resources: Vec<Slots> = limits.iter().map(|limit| Slots::new("", *limit)).collect();
        let mut plan = PlanBuilder::new();
        let mut columns = Vec::new();
        for (place, (weight, queued, demand)) in groups.iter().enumerate() {
            let name = alloc::format!("g{place}");
            let mut column = Column::new(&name, Strategy::Cell);
            column.group = TaskGroup { weight: *weight, ..TaskGroup::local(&name) };
            plan = plan.column(column);
            let demand = demand.iter().copied().enumerate().filter(|(_, amount)| *amount > 0).collect();
            columns.push(ColumnCounts { demand, queued: *queued, running: 0, yielded: 0, group: place });
        }
        let mut service = Service::new(&plan.build().expect("a valid plan"), &columns, limits.len());
        service.pass(0, &columns, &resources);
        let fair = |group: &Group| group.now.share * f64::from(limits[group.now.dominant(&resources)]);
        let rounded = |share: f64| f64::from((share * 1_000.0 + 0.5) as u32) / 1_000.0;
        service.groups.iter().map(|group| rounded(fair(group))).collect()
    }

    #[test]
    fn groups_share_a_resource_by_weight_and_take_what_others_leave() {
        assert_eq!(fair_shares(&[8], &[(1.0, 99, &[1]), (3.0, 99, &[1])]), [2.0, 6.0]);
        assert_eq!(fair_shares(&[8], &[(1.0, 99, &[1]), (3.0, 1, &[1])]), [7.0, 1.0]);
        assert_eq!(fair_shares(&[8], &[(1.0, 99, &[1]), (3.0, 0, &[1])]), [8.0, 0.0]);
        assert_eq!(fair_shares(&[9], &[(1.0, 2, &[1]), (1.0, 99, &[1]), (1.0, 99, &[1])]), [2.0, 3.5, 3.5]);
    }

    #[test]
    fn equal_groups_have_equal_parts_of_their_dominant_resources() {
        // The example of the paper: 9 processors and 18 GB. A task of one group needs 1 and 4, a task of the
        // other 3 and 1. The groups get three tasks and two tasks.
        assert_eq!(fair_shares(&[9, 18], &[(1.0, 99, &[1, 4]), (1.0, 99, &[3, 1])]), [12.0, 6.0]);
        // A wide resource that every group demands does not hide the narrow one.
        assert_eq!(fair_shares(&[1_024, 8], &[(1.0, 500, &[1, 1]), (1.0, 500, &[1, 1])]), [4.0, 4.0]);
    }
}
