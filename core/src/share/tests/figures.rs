//! What sharing costs without faults: several members beside one process that shares nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::oracle::Oracle;
use crate::call::Completion;
use crate::limit::LimitChoice;
use crate::limit::controller::{Controller, Grant};
use crate::sim::rng::Rng;
use crate::sim::sharing::{CallEnd, SharingConfig, SharingWorld, SlotProvider};
use crate::time::{Duration, Instant};

/// How long each run lasts.
const SPAN: Duration = Duration::from_secs(120);

fn config(capacity: u32, interval: Option<Duration>, longest_call: Duration) -> SharingConfig {
    SharingConfig { capacity, interval, longest_call, weights: alloc::vec![1, 1], ..SharingConfig::default() }
}

/// Returns the provider after a time in which one process calls it, with this demand.
fn one_process(config: &SharingConfig, demand: u32, seed: u64) -> SlotProvider {
    let (choice, mut rng) = (config.choice, Rng::new(seed));
    let mut now = Instant::from_nanos(1_000_000_000);
    let end = now + SPAN;
    let mut controller = Controller::new(SharingConfig::aimd(), config.cap);
    controller.set_algorithm(now, choice.make().expect("valid"), Some(choice));
    let mut provider = SlotProvider::default();
    let mut calls: BTreeMap<(Instant, u64), (Grant, CallEnd)> = BTreeMap::new();
    while now < end {
        controller.on_time(now);
        while provider.in_flight < demand && controller.blocked_until(now).is_none() && controller.has_room(now) {
            controller.on_attempt(now);
            let grant = controller.grant(now, true);
            let ends = provider.start(now, config, &mut rng);
            calls.insert((ends.at, grant.number), (grant, ends));
        }
        let changes = [controller.blocked_until(now), controller.next_limit_change(now)];
        let next = changes.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(end);
        match calls.first_entry().filter(|call| call.key().0 <= next) {
            None => now = next,
            Some(call) => {
                let (grant, ends) = call.remove();
                now = ends.at;
                provider.in_flight -= 1;
                let done = Completion { outcome: ends.outcome, retry_after: ends.retry_after, usage: None };
                controller.end(now, &grant, &done, false);
            }
        }
    }
    provider
}

/// Returns the world after the same time, in which `members` together have that demand.
fn members(config: &SharingConfig, members: u32, demand: u32, seed: u64) -> SharingWorld<Oracle> {
    let mut world = SharingWorld::new(config.clone(), Rng::new(seed), Oracle::new(config)).expect("valid");
    for _ in 0..members {
        world.start_process(demand / members);
    }
    world.advance_to(world.now + SPAN);
    world
}

/// Returns Jain's index of the calls of the processes after the first five seconds, in permille.
fn fairness(world: &SharingWorld<Oracle>) -> u64 {
    let began = world.now.as_nanos() - SPAN.as_nanos() + 5_000_000_000;
    let starts = |p| world.observer.starts.iter().filter(move |(id, at)| *id == world.id(p) && at.as_nanos() >= began);
    let calls: Vec<u64> = (0..world.started()).map(|p| starts(p).count() as u64).collect();
    let (sum, squares) = (calls.iter().sum::<u64>(), calls.iter().map(|calls| calls * calls).sum::<u64>());
    sum * sum * 1_000 / (calls.len() as u64 * squares)
}

/// The refused calls of each 1000 that were answered.
fn refused(provider: &SlotProvider) -> u64 {
    provider.refused * 1_000 / provider.answered.max(1)
}

fn mean(of: &[u64]) -> u64 {
    of.iter().sum::<u64>() / of.len() as u64
}

#[test]
fn members_that_share_a_limit_find_the_capacity_with_few_refusals() {
    for (capacity, longest) in [(12, 300), (24, 2_000)] {
        let config = config(capacity, None, Duration::from_millis(longest));
        for count in [1, 2, 4] {
            for seed in 0..4 {
                let alone = one_process(&config, 60, seed);
                let world = members(&config, count, 60, seed);
                let (few, some) = (refused(&alone), refused(&world.provider));
                let part = world.provider.answered * 1_000 / alone.answered;
                std::println!(
                    "{capacity} slots, {longest} ms, {count} members, seed {seed}: {some} of 1000 refused beside {few}, \
                     goodput {part}, fairness {}",
                    fairness(&world)
                );
                assert!(some <= 25 && part >= 940, "{count} members, seed {seed}: {some} beside {few}, {part}");
            }
        }
    }
}

#[test]
fn shares_follow_a_demand_that_moves_every_three_seconds() {
    let config = config(12, None, Duration::from_millis(300));
    let mut parts = Vec::new();
    for seed in 0..8 {
        let alone = one_process(&config, 36, seed);
        let mut world = SharingWorld::new(config.clone(), Rng::new(seed), Oracle::new(&config)).expect("valid");
        for _ in 0..4 {
            world.start_process(2);
        }
        for turn in 0..SPAN.as_nanos() / 3_000_000_000 {
            for p in 0..4 {
                world.set_demand(p, if p as u64 == turn % 4 { 30 } else { 2 });
            }
            world.advance_to(world.now + Duration::from_secs(3));
        }
        let (few, some) = (refused(&alone), refused(&world.provider));
        let part = world.provider.answered * 1_000 / alone.answered;
        std::println!("moving demand, seed {seed}: {some} of 1000 refused beside {few}, goodput {part}");
        assert!(some <= 20 && part >= 940, "seed {seed}: {some} beside {few}, {part}");
        parts.push(part);
    }
    assert!(mean(&parts) >= 970, "{parts:?}");
}

#[test]
fn members_that_share_a_rate_use_nearly_all_of_it() {
    for interval in [20, 100, 500] {
        let config = config(64, Some(Duration::from_millis(interval)), Duration::from_millis(300));
        for count in [1, 2, 4] {
            let mut parts = Vec::new();
            for seed in 0..4 {
                let alone = one_process(&config, 24, seed);
                let world = members(&config, count, 24, seed);
                let (few, some) = (refused(&alone), refused(&world.provider));
                let part = world.provider.answered * 1_000 / alone.answered;
                std::println!(
                    "one call in {interval} ms, {count} members, seed {seed}: {some} of 1000 refused beside {few}, \
                     goodput {part} ({} answered), fairness {}, paces {:?}",
                    world.provider.answered,
                    fairness(&world),
                    world.paces()
                );
                assert!(part >= 750, "{count} members, seed {seed}: {part}");
                parts.push(part);
            }
            assert!(mean(&parts) >= 900, "{count} members: {parts:?}");
        }
    }
}

#[test]
fn members_start_no_more_calls_than_the_rate_that_is_divided_between_them() {
    let interval = Duration::from_millis(50);
    let mut world = members(&config(64, Some(interval), Duration::from_millis(300)), 4, 24, 1);
    world.observer.starts.clear();
    let mut paces = Vec::new();
    for _ in 0..300 {
        world.advance_to(world.now + Duration::from_millis(100));
        paces.push(world.paces());
    }
    // In each second, the members start at most one call for each of their intervals, and one more each at
    // its begin. A decision reaches a member in two beats at most.
    for (second, window) in paces.windows(13).enumerate() {
        let from = world.now.as_nanos() - 30_000_000_000 + second as u64 * 100_000_000;
        let from = from + 200_000_000;
        let starts = world
            .observer
            .starts
            .iter()
            .filter(|(_, at)| (from..from + 1_000_000_000).contains(&at.as_nanos()))
            .count();
        let rate = |paces: &Vec<u64>| paces.iter().map(|pace| 1e9 / (*pace as f64)).sum::<f64>();
        let most = window.iter().map(rate).fold(0.0, f64::max);
        // A pace is quickened by a quarter at most.
        assert!(most <= 20.0 / 0.74, "{most} calls a second of 20: {window:?}");
        assert!(starts as f64 <= most + 4.0, "{starts} calls in second {second}, {most} at most: {window:?}");
    }
}

/// Returns the weighted max-min fair parts of a limit, which need not be whole.
fn fair_parts(limit: f64, claims: &[(f64, f64)]) -> Vec<f64> {
    let mut parts = alloc::vec![0.0; claims.len()];
    // Water rises in all claims alike, for each unit of weight, until the limit is used or all have enough.
    let level = |filled: f64| claims.iter().map(|(weight, demand)| demand.min(weight * filled)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if level(middle) < limit { low = middle } else { high = middle }
    }
    for (part, (weight, demand)) in parts.iter_mut().zip(claims) {
        *part = demand.min(weight * low);
    }
    parts
}

#[test]
fn groups_get_the_shared_limit_by_their_weights_up_to_one_slot() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let limit = 4 + rng.below(30) as u32;
        let weights: Vec<u32> = (0..2 + rng.below(2)).map(|_| 1 + rng.below(6) as u32).collect();
        let fixed = SharingConfig {
            choice: LimitChoice::Fixed { limit },
            cap: limit,
            weights: weights.clone(),
            ..config(2 * limit, None, Duration::from_millis(300))
        };
        let mut world = SharingWorld::new(fixed.clone(), Rng::new(seed), Oracle::new(&fixed)).expect("valid");
        let mut demands = alloc::vec![0; weights.len()];
        for p in 0..weights.len() + rng.below(3) as usize {
            let demand = 1 + rng.below(u64::from(limit)) as u32;
            world.start_process(demand);
            demands[p % weights.len()] += demand;
        }
        world.advance_to(world.now + Duration::from_secs(2));
        world.observer.starts.clear();
        world.advance_to(world.now + Duration::from_secs(30));
        let mut starts = alloc::vec![0.0; weights.len()];
        for (id, _) in &world.observer.starts {
            let p = (0..world.started()).find(|p| world.id(*p) == *id).expect("it is one");
            starts[p % weights.len()] += 1.0;
        }
        let claims: Vec<(f64, f64)> =
            weights.iter().zip(&demands).map(|(weight, demand)| (f64::from(*weight), f64::from(*demand))).collect();
        let fair = fair_parts(f64::from(limit), &claims);
        let (all_fair, all_starts) = (fair.iter().sum::<f64>(), starts.iter().sum::<f64>());
        let got: Vec<f64> = starts.iter().map(|starts| starts / all_starts * all_fair).collect();
        let is_fair = got.iter().zip(&fair).all(|(got, fair)| (got - fair).abs() <= 1.0 + 0.05 * fair);
        // A call takes 155 ms on average.
        let busy = all_starts * 0.155 / 30.0;
        assert!(busy >= 0.9 * all_fair, "seed {seed}: {busy} of {all_fair} slots are busy");
        assert!(is_fair, "seed {seed}, limit {limit}: {got:?} slots on average of {fair:?}, {claims:?}");
    }
}
