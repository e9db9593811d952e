//! Compares every decision with a model that scans all heads each time, on commands drawn from a seed.

use std::collections::VecDeque;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::sim::rng::Rng;

const WEIGHTS: [f64; 6] = [0.25, 0.5, 1.0, 1.0, 3.0, 64.0];
const RESOURCES: usize = 4;

/// The settings, queue, holdings and debts of a group.
#[derive(Debug, Default)]
struct Group {
    weight: f64,
    limit: Option<u32>,
    /// The ids and demands of its tasks.
    queue: VecDeque<(u64, usize)>,
    finish: Option<f64>,
    tag: f64,
    sequence: u64,
    running: u32,
    held: [u32; RESOURCES],
    debt: [u32; RESOURCES],
}

/// The documented rules, with a scan of all heads for every decision.
#[derive(Debug)]
struct Model {
    /// `None` for strict fairness.
    bounded: Option<BoundedBorrowConfig>,
    compatibility: bool,
    limits: [u32; RESOURCES],
    leased: [u32; RESOURCES],
    demands: Vec<[u32; RESOURCES]>,
    groups: Vec<Group>,
    now: f64,
    sequence: u64,
}

impl Model {
    fn enqueue(&mut self, group: usize, id: u64, demand: usize) {
        let now = self.now;
        let entry = &mut self.groups[group];
        if entry.queue.is_empty() {
            entry.tag = entry.finish.unwrap_or(now);
            entry.sequence = self.sequence;
            self.sequence += 1;
        }
        entry.queue.push_back((id, demand));
    }

    fn fits(&self, demand: usize) -> bool {
        (0..RESOURCES).all(|at| self.leased[at] + self.demands[demand][at] <= self.limits[at])
    }

    /// Returns the other groups whose head needs the resource and could start now.
    fn peers(&self, group: usize, resource: usize) -> Vec<usize> {
        let needs = |other: usize| {
            let head = self.groups[other].queue.front();
            other != group && head.is_some_and(|(_, demand)| self.demands[*demand][resource] > 0 && self.fits(*demand))
        };
        (0..self.groups.len()).filter(|other| needs(*other)).collect()
    }

    fn has_competition(&self, group: usize, demand: usize, resource: usize) -> bool {
        let amounts = &self.demands[demand];
        let is_typed = amounts[1..].iter().any(|amount| *amount > 0);
        amounts[resource] > 0 && (resource > 0 || !is_typed) && !self.peers(group, resource).is_empty()
    }

    fn share(&self, group: usize, resource: usize, rounding: ShareRounding) -> u32 {
        let Group { weight, limit, .. } = self.groups[group];
        let most = self.limits[resource];
        let peers = self.peers(group, resource);
        let others: f64 = peers.iter().map(|peer| self.groups[*peer].weight).sum();
        let others = if peers.is_empty() { weight } else { others };
        let share = f64::from(most) * weight / (weight + others);
        let share = if rounding == ShareRounding::Up { share.ceil() } else { share.floor() } as u32;
        share.max(1).min(limit.unwrap_or(most)).min(most)
    }

    /// Returns what is borrowed of each resource, or the reason of the refusal.
    fn evaluate(&self, group: usize, demand: usize) -> Result<[u32; RESOURCES], TaskDenialReason> {
        let mut borrowed = [0; RESOURCES];
        if !self.fits(demand) {
            return Err(TaskDenialReason::NoCapacity);
        }
        let Group { limit: Some(limit), running, .. } = self.groups[group] else { return Ok(borrowed) };
        let Some(config) = &self.bounded else {
            let has_competition = (0..RESOURCES).any(|at| self.has_competition(group, demand, at));
            return if running >= limit && has_competition { Err(TaskDenialReason::GroupCap) } else { Ok(borrowed) };
        };
        for (at, borrowed) in borrowed.iter_mut().enumerate() {
            let amount = self.demands[demand][at];
            if amount == 0 {
                continue;
            }
            let share = self.share(group, at, config.share_rounding);
            let (held, debt) = (self.groups[group].held[at], self.groups[group].debt[at]);
            let has_competitors = self.has_competition(group, demand, at);
            if has_competitors && debt > 0 {
                return Err(TaskDenialReason::BorrowDebt);
            }
            if has_competitors && held + amount > share {
                return Err(TaskDenialReason::GroupCap);
            }
            if has_competitors || held + amount <= share {
                continue;
            }
            *borrowed = amount.min(held + amount - share);
            let own = config
                .ceilings
                .iter()
                .find(|ceiling| ceiling.identity == [group.to_string()] && ceiling.resource == name(at));
            let reserved = (f64::from(self.limits[at]) * config.reserve_fraction).ceil() as u32;
            let dynamic = self.limits[at].saturating_sub(reserved.min(config.max_reserved)).saturating_sub(share);
            let ceiling = own.map(|ceiling| ceiling.ceiling).or(config.default_ceiling).unwrap_or(dynamic);
            if debt + *borrowed > ceiling {
                return Err(TaskDenialReason::BorrowDebt);
            }
        }
        Ok(borrowed)
    }

    /// Returns the task that starts, its group and demand, and whether it starts against the policy.
    fn dispatch(&mut self) -> Option<(u64, usize, usize, bool)> {
        let mut order: Vec<usize> = (0..self.groups.len()).filter(|at| !self.groups[*at].queue.is_empty()).collect();
        order.sort_by(|a, b| {
            let turn = |at: usize| (self.groups[at].tag, self.groups[at].sequence);
            turn(*a).partial_cmp(&turn(*b)).expect("tags are numbers")
        });
        let head = |model: &Self, at: usize| model.groups[at].queue[0].1;
        let allowed =
            order.iter().find_map(|at| self.evaluate(*at, head(self, *at)).ok().map(|debts| (*at, debts, false)));
        let is_idle = !self.compatibility && self.groups.iter().all(|group| group.running == 0);
        let fitting = order.iter().find(|at| is_idle && self.fits(head(self, **at)));
        let (at, debts, is_override) = allowed.or(fitting.map(|at| (*at, [0; RESOURCES], true)))?;
        let group = &mut self.groups[at];
        let (id, demand) = group.queue.pop_front().expect("the group has a queued task");
        group.running += 1;
        self.now = self.now.max(group.tag);
        group.tag = self.now + 1.0 / group.weight;
        group.finish = Some(group.tag);
        group.sequence = self.sequence;
        self.sequence += 1;
        for (resource, debt) in debts.iter().enumerate() {
            group.held[resource] += self.demands[demand][resource];
            group.debt[resource] += debt;
            self.leased[resource] += self.demands[demand][resource];
        }
        Some((id, at, demand, is_override))
    }

    fn release(&mut self, group: usize, demand: usize) {
        let repays = self.bounded.as_ref().is_some_and(|config| config.repays_on_release);
        let entry = &mut self.groups[group];
        entry.running -= 1;
        for resource in 0..RESOURCES {
            let amount = self.demands[demand][resource];
            entry.held[resource] -= amount;
            self.leased[resource] -= amount;
            entry.debt[resource] = entry.debt[resource].saturating_sub(if repays { amount } else { 0 });
        }
    }
}

fn name(resource: usize) -> &'static str {
    ["submission", "llm", "gpu", "pool"][resource]
}

/// The dispatcher and the model, side by side.
struct Lockstep<P> {
    tasks: Dispatcher<P>,
    model: Model,
    groups: Vec<TaskGroupId>,
    demands: Vec<DemandId>,
    running: Vec<(TaskLease, usize, usize)>,
    next: u64,
    overrides: u64,
}

impl<P: TaskPolicy> Lockstep<P> {
    fn new(rng: &mut Rng, policy: P, bounded: Option<BoundedBorrowConfig>) -> Self {
        let scale = [2, 8, 40][rng.below(3) as usize];
        let limits: [u32; RESOURCES] = core::array::from_fn(|_| 1 + rng.below(scale) as u32);
        let config = TaskConfig {
            submission_limit: limits[0],
            resources: (1..RESOURCES).map(|at| (name(at).to_string(), limits[at])).collect(),
            compatibility: rng.below(4) == 0,
        };
        let compatibility = config.compatibility;
        let mut tasks = Dispatcher::with_policy(config, policy).expect("limits above 0");
        let mut vectors = vec![];
        let mut demands = vec![];
        for _ in 0..=rng.below(4) {
            let mut vector = [1; RESOURCES];
            for at in 1..RESOURCES {
                vector[at] = if rng.below(2) == 0 { 0 } else { (1 + rng.below(3) as u32).min(limits[at]) };
            }
            let asked = (0..RESOURCES).filter(|at| vector[*at] > 0).map(|at| (name(at), vector[at]));
            demands.push(tasks.demand(&asked.collect::<Vec<_>>()).expect("a demand that fits"));
            vectors.push(vector);
        }
        let leased = [0; RESOURCES];
        let (groups, now, sequence) = (vec![], 0.0, 0);
        let model = Model { bounded, compatibility, limits, leased, demands: vectors, groups, now, sequence };
        let mut lockstep = Self { tasks, model, groups: vec![], demands, running: vec![], next: 0, overrides: 0 };
        for group in 0..2 + rng.below(5) as usize {
            lockstep.register(rng, group);
        }
        lockstep
    }

    /// Registers a group, or changes the weight and limit of a known one.
    fn register(&mut self, rng: &mut Rng, group: usize) {
        let weight = WEIGHTS[rng.below(WEIGHTS.len() as u64) as usize];
        let admitted_limit = (rng.below(5) > 0).then(|| 1 + rng.below(6) as u32);
        let spec = TaskGroup { weight, admitted_limit, ..TaskGroup::local(&group.to_string()) };
        let id = self.tasks.group(&spec).expect("a weight in range");
        if group == self.groups.len() {
            self.groups.push(id);
            self.model.groups.push(Group::default());
        }
        self.model.groups[group].weight = weight;
        self.model.groups[group].limit = admitted_limit;
    }

    fn command(&mut self, rng: &mut Rng) {
        let group = rng.below(self.groups.len() as u64) as usize;
        match rng.below(20) {
            0..7 => {
                let demand = rng.below(self.demands.len() as u64) as usize;
                assert!(self.tasks.enqueue(self.next, self.groups[group], self.demands[demand]));
                self.model.enqueue(group, self.next, demand);
                self.next += 1;
            }
            7..10 => self.dispatch(),
            10..12 => while self.tasks.queued() > 0 && self.dispatch_both() {},
            12..17 if !self.running.is_empty() => {
                let (lease, group, demand) = self.running.swap_remove(rng.below(self.running.len() as u64) as usize);
                let _ = self.tasks.release(lease);
                self.model.release(group, demand);
            }
            17 => {
                let id = rng.below(self.next + 1);
                let queue = self.model.groups.iter_mut().map(|group| &mut group.queue);
                let found = queue
                    .into_iter()
                    .find_map(|queue| queue.iter().position(|(known, _)| *known == id).and_then(|at| queue.remove(at)));
                assert_eq!(self.tasks.discard(id), found.is_some());
            }
            18 if rng.below(4) == 0 => {
                let of = 2 + rng.below(3);
                for group in &mut self.model.groups {
                    group.queue.retain(|(id, _)| id % of != 0);
                }
                self.tasks.discard_where(|id| id % of == 0);
            }
            19 if rng.below(4) == 0 => self.register(rng, group),
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        self.dispatch_both();
    }

    /// Dispatches once in both. They must agree on the task that starts, on all debts, and on all denials.
    fn dispatch_both(&mut self) -> bool {
        let started = self.tasks.dispatch();
        let expected = self.model.dispatch();
        assert_eq!(started.as_ref().map(|one| one.task), expected.map(|(id, ..)| id));
        let (Some(started), Some((_, group, demand, is_override))) = (started, expected) else {
            self.compare();
            return false;
        };
        self.running.push((started.lease, group, demand));
        self.overrides += u64::from(is_override);
        self.compare();
        true
    }

    fn compare(&self) {
        assert_eq!(self.tasks.liveness_overrides(), self.overrides);
        let leased: Vec<u32> = self.tasks.usage().map(|(_, leased, _)| leased).collect();
        assert_eq!(leased, self.model.leased);
        for (at, group) in self.model.groups.iter().enumerate() {
            let mut actual_debts: Vec<(&str, u32)> = self.tasks.debts_of(self.groups[at]).collect();
            actual_debts.sort_by_key(|(resource, _)| (0..RESOURCES).find(|at| name(*at) == *resource));
            let debts = (0..RESOURCES).map(|of| (name(of), group.debt[of])).filter(|(_, debt)| *debt > 0);
            assert_eq!(actual_debts, debts.collect::<Vec<_>>());
            for (demand, id) in self.demands.iter().enumerate() {
                let decision = self.tasks.evaluate(self.groups[at], *id).map_err(|denial| denial.reason);
                assert_eq!(decision, self.model.evaluate(at, demand).map(|_| ()), "group {at}, demand {demand}");
            }
        }
    }

    fn run(mut self, rng: &mut Rng) {
        for _ in 0..150 {
            self.command(rng);
        }
    }
}

fn random_bounds(rng: &mut Rng) -> BoundedBorrowConfig {
    let ceiling = |rng: &mut Rng, group: u64| BorrowCeiling {
        kind: GroupKind::Local,
        identity: vec![group.to_string()],
        resource: name(rng.below(RESOURCES as u64) as usize).to_string(),
        ceiling: rng.below(4) as u32,
    };
    BoundedBorrowConfig {
        ceilings: (0..rng.below(4)).map(|group| ceiling(rng, group)).collect(),
        default_ceiling: (rng.below(2) == 0).then(|| rng.below(5) as u32),
        reserve_fraction: [0.0, 0.1, 0.5, 1.0][rng.below(4) as usize],
        max_reserved: 1 + rng.below(8) as u32,
        share_rounding: if rng.below(2) == 0 { ShareRounding::Up } else { ShareRounding::Down },
        repays_on_release: rng.below(3) > 0,
    }
}

/// Runs `case` for many seeds. If it panics, the seed is printed.
fn for_seeds(case: impl Fn(u64)) {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::eprintln!("{}", format!("the seed is {}", self.0) as String);
            }
        }
    }
    for seed in 0..1_500 {
        let named = Named(seed);
        case(named.0);
    }
}

#[test]
fn strict_fairness_starts_the_task_that_a_scan_of_all_heads_selects() {
    for_seeds(|seed| {
        let mut rng = Rng::new(seed);
        Lockstep::new(&mut rng, StrictFair, None).run(&mut rng);
    });
}

#[test]
fn bounded_borrowing_starts_the_task_that_a_scan_of_all_heads_selects() {
    for_seeds(|seed| {
        let mut rng = Rng::new(seed);
        let config = random_bounds(&mut rng);
        let policy = BoundedBorrow::new(config.clone()).expect("settings in range");
        Lockstep::new(&mut rng, policy, Some(config)).run(&mut rng);
    });
}
