//! The service bound of the fair queue over every interval, whoever comes and goes, and orders that must break it.

mod orders;

use std::cell::Cell;

use self::orders::{Order, Real, Rule, Simple};
use crate::cases;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_tests::check::fairness::{FairnessCheck, Unfair, stated_bound};

/// Where virtual time is rebased.
const REBASE_AT: f64 = 1_048_576.0;

#[derive(Clone, Debug)]
enum Step {
    /// A group gets work, or loses all it has.
    Toggle(usize),
    /// The resource of a group runs out, or comes back.
    Block(usize),
    Serve(u32),
}

#[derive(Clone, Debug)]
struct Scenario {
    weights: Vec<f64>,
    /// Virtual time at the start.
    start: f64,
    /// Items of a group cost from 1 to this.
    largest_costs: Vec<f64>,
    steps: Vec<Step>,
    seed: u64,
}

/// Weights from the whole range, in scenarios where they lie close and in scenarios where they lie far apart.
fn weights() -> impl Strategy<Value = Vec<f64>> {
    (-20..=20_i32, prop_oneof![Just(1), Just(4), Just(40)]).prop_flat_map(|(middle, spread)| {
        let weight = (middle - spread..=middle + spread, 1.0..2.0_f64)
            .prop_map(|(power, factor)| (2_f64.powi(power) * factor).clamp(MIN_WEIGHT, MAX_WEIGHT));
        let weight = prop_oneof![12 => weight, 1 => Just(MIN_WEIGHT), 1 => Just(MAX_WEIGHT), 1 => Just(1.0)];
        prop::collection::vec(weight, 2..7)
    })
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let step = |groups: usize| {
        prop_oneof![
            2 => (0..groups).prop_map(Step::Toggle),
            1 => (0..groups).prop_map(Step::Block),
            4 => (1..80_u32).prop_map(Step::Serve),
        ]
    };
    let start = prop_oneof![Just(0.0), 0.0..REBASE_AT, (-20..20).prop_map(|power| REBASE_AT - 2_f64.powi(power))];
    weights().prop_flat_map(move |weights| {
        let groups = weights.len();
        let cost = prop_oneof![Just(1.0), Just(8.0), Just(1_000.0)];
        let costs = prop::collection::vec(cost, groups);
        let steps = prop::collection::vec(step(groups), 1..80);
        (Just(weights), start.clone(), costs, steps, any::<u64>()).prop_map(
            |(weights, start, largest_costs, steps, seed)| Scenario { weights, start, largest_costs, steps, seed },
        )
    })
}

/// Carries the steps out on `order`, under the eyes of the checker.
fn play(scenario: &Scenario, order: &mut impl Order) -> Result<(), Unfair> {
    let groups = scenario.weights.len();
    let mut check = FairnessCheck::new(&scenario.weights);
    let mut has_work = vec![false; groups];
    let mut is_blocked = vec![false; groups];
    let mut random = scenario.seed | 1;
    let mut cost = |group: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (random >> 48) as f64 / 65_536.0;
        // Eighths add up without rounding.
        1.0 + ((scenario.largest_costs[group] - 1.0) * part * 8.0).floor() / 8.0
    };
    let all = (0..groups).map(Step::Toggle);
    for step in all.chain(scenario.steps.iter().cloned()) {
        match step {
            Step::Toggle(group) => {
                has_work[group] = !has_work[group];
                if has_work[group] {
                    // Two at a time, so that the group never runs dry between a service and the next arrival.
                    order.put(group, cost(group));
                    order.put(group, cost(group));
                } else {
                    order.clear(group);
                }
            }
            Step::Block(group) => {
                is_blocked[group] = !is_blocked[group];
                order.set_blocked(group, is_blocked[group]);
            }
            Step::Serve(services) => {
                for _ in 0..services {
                    let Some((group, paid)) = order.next() else { break };
                    order.put(group, cost(group));
                    check.on_service(group, paid)?;
                }
            }
        }
        for group in 0..groups {
            check.set_eligible(group, has_work[group] && !is_blocked[group]);
        }
    }
    Ok(())
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(cases::config(cases))
}

#[test]
fn service_stays_within_the_bound_over_every_interval() {
    let rebases = Cell::new(0);
    let outcome = runner(1_500).run(&scenario(), |scenario| {
        let mut queue = Real::new(&scenario.weights, scenario.start);
        play(&scenario, &mut queue).map_err(|unfair| TestCaseError::fail(unfair.to_string()))?;
        rebases.set(rebases.get() + queue.rebases);
        Ok(())
    });
    outcome.expect("the queue is fair");
    assert!(rebases.get() > 1_000, "virtual time is rebased in many of the cases, not in {} only", rebases.get());
}

#[test]
fn the_checker_accepts_tags_done_right_and_catches_every_unfair_order() {
    let caught = |rule| {
        let caught = Cell::new(0);
        let outcome = runner(400).run(&scenario(), |scenario| {
            let mut order = Simple::new(rule, &scenario.weights);
            caught.set(caught.get() + i32::from(play(&scenario, &mut order).is_err()));
            Ok(())
        });
        outcome.expect("no case fails, it is only counted");
        caught.get()
    };
    assert_eq!(caught(Rule::Tags), 0);
    for rule in [Rule::TagsBlindToCost, Rule::TagsWithCredit, Rule::RoundRobin, Rule::Fifo] {
        assert!(caught(rule) >= 40, "{rule:?} is unfair in many of 400 cases");
    }
}

/// Two groups that are never idle, `services` long; answers how much each got.
fn run_long(weights: [f64; 2], start: f64, services: u32) -> (Real, [f64; 2]) {
    let mut queue = Real::new(&weights, start);
    let mut check = FairnessCheck::new(&weights);
    let mut served = [0.0; 2];
    for group in [0, 1] {
        queue.put(group, 1.0);
        queue.put(group, 1.0);
        check.set_eligible(group, true);
    }
    for _ in 0..services {
        let (group, cost) = queue.next().expect("both groups have work");
        queue.put(group, cost);
        served[group] += cost;
        check.on_service(group, cost).unwrap_or_else(|unfair| panic!("{unfair}"));
    }
    (queue, served)
}

/// Rounding is worst just below the rebase, where doubles lie furthest apart, and for the heaviest groups, whose steps
/// are the smallest. Virtual time never gets past that place, so no run of any length rounds worse per service than
/// this one, and a thousand times its drift is more than 10^9 services can make.
#[test]
fn what_rounding_adds_in_a_billion_services_is_below_an_eighth_of_an_item_per_weight_unit() {
    let services = 1_000_000;
    for weights in [[MAX_WEIGHT, 700_001.0], [999_983.0, 600_011.0], [MAX_WEIGHT, MAX_WEIGHT - 1.0]] {
        let start = REBASE_AT - 4.0;
        let (queue, served) = run_long(weights, start, services);
        assert_eq!(queue.rebases, 0, "the whole run lies in the worst place");
        let virtual_time = queue.virtual_time() - start;
        for (served, weight) in served.iter().zip(weights) {
            let off = (served / weight - virtual_time).abs();
            assert!(off <= stated_bound(1.0 / weight, *served), "{off} from the ideal share");
            let drift = (off - 1.0 / weight).max(0.0) / f64::from(services);
            assert!(drift * 1e9 < 0.125, "{drift} for each service");
        }
    }
}

/// Each service of the lightest weight advances virtual time by 2^20: as far as 2^20 services of weight 1. These 200 000
/// cross as much of it as 10^10 services of weight 1, and more.
#[test]
fn the_bound_holds_across_tens_of_thousands_of_rebases() {
    for weights in [[MIN_WEIGHT, MIN_WEIGHT * 3.3], [MIN_WEIGHT * 1.1, MIN_WEIGHT * 1.7]] {
        let (queue, _) = run_long(weights, 0.0, 200_000);
        assert!(queue.rebases > 20_000, "{}", queue.rebases);
    }
}
