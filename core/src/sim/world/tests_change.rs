use super::tests::{calling, millis, model, scenario};
use super::*;
use crate::limit::LimitChoice;
use crate::pipeline::{PolicyChoice, Strategy};
use crate::replay::Replay;
use crate::request::LimitConfig;
use crate::sim::provider::Overload;
use crate::sim::scenario::{Change, Intervention, Model, Scenario, ScenarioColumn};
use crate::task::{BorrowCeiling, BoundedBorrowConfig};
use alloc::format;
use alloc::string::ToString;

fn m() -> String {
    "m".to_string()
}

/// A scenario of 400 rows that call a model with four slots for 10 ms each: one second in total.
fn four_slots() -> Scenario {
    let model = Model { task_limit: Some(64), ..model("m", 4) };
    let base = scenario(400, &[model], &[calling("a", "m")]);
    Scenario { row_group_size: 400, ..base }
}

fn world(scenario: &Scenario) -> World {
    World::watched(scenario, 3).unwrap()
}

/// Runs to an instant, and returns the first provider's figures at that instant.
fn at(world: &mut World, instant: u64) -> ProviderSample {
    world.advance_to(Instant::ZERO + millis(instant));
    assert_eq!(world.violation(), None);
    world.sample().providers.remove(0)
}

fn finish(mut world: World) -> RunReport {
    while world.step() {}
    assert_eq!(world.violation(), None);
    world.finished().expect("a world without a next step has finished").clone()
}

#[test]
fn a_capacity_that_was_set_applies_until_it_is_restored() {
    let mut world = world(&four_slots());
    at(&mut world, 15);
    world.change(Intervention::Capacity { model: m(), slots: Some(1) }).unwrap();
    let set = at(&mut world, 25);
    assert_eq!((set.capacity, set.changed), (1, true));
    assert!(at(&mut world, 60).refused > 0);
    world.change(Intervention::Capacity { model: m(), slots: None }).unwrap();
    let restored = at(&mut world, 61);
    assert_eq!((restored.capacity, restored.changed), (4, false));
}

#[test]
fn a_burst_of_refusals_refuses_every_call_with_the_retry_after_of_an_overload_and_ends() {
    let mut scenario = four_slots();
    scenario.models[0].provider.overload = Overload::Refuse { retry_after: Some(millis(70)) };
    let mut world = world(&scenario);
    at(&mut world, 15);
    world.change(Intervention::Refuse { model: m(), span: millis(30) }).unwrap();
    let during = at(&mut world, 35);
    assert_eq!(during.refusing_until.map(Instant::as_nanos), Some(45_000_001));
    assert_eq!((during.refused, during.accepted), (4, 8), "four were in flight, and the next four were refused");
    assert_eq!(during.cooldown_until.map(Instant::as_nanos), Some(95_000_000), "as long as their Retry-After");
    assert_eq!(at(&mut world, 46).refusing_until, None);
    let report = finish(world);
    assert_eq!((report.rows_out, report.stop.to_string()), (400, "completed".to_string()));
}

#[test]
fn calls_that_arrive_in_a_slow_patch_take_longer_and_other_calls_do_not() {
    let mut world = world(&four_slots());
    at(&mut world, 15);
    world.change(Intervention::Slow { model: m(), factor: 3.0, span: millis(10) }).unwrap();
    let patch = at(&mut world, 16);
    assert_eq!((patch.slow_factor, patch.slow_until.map(Instant::as_nanos)), (3.0, Some(25_000_001)));
    // 100 rounds of four calls, and one round takes 30 ms instead of 10.
    assert_eq!(finish(world).elapsed(), millis(1_020));
}

#[test]
fn a_changed_cap_applies_at_once_and_calls_in_flight_stay() {
    let mut world = world(&four_slots());
    at(&mut world, 15);
    world.change(Intervention::MaxParallel { model: m(), calls: 1 }).unwrap();
    let lowered = at(&mut world, 16);
    assert_eq!((lowered.limit, lowered.effective_max, lowered.in_flight), (1, 1, 4));
    assert_eq!(at(&mut world, 25).in_flight, 1);
    world.change(Intervention::MaxParallel { model: m(), calls: 4 }).unwrap();
    let raised = at(&mut world, 26);
    assert_eq!((raised.limit, raised.in_flight), (4, 4), "a limit that was never cut follows its cap up");
}

#[test]
fn changed_settings_keep_the_limit_and_a_changed_ramp_restarts() {
    let mut scenario = four_slots();
    scenario.models[0].request.initial_limit = Some(2);
    let mut world = world(&scenario);
    at(&mut world, 15);
    let request = LimitConfig { successes_until_increase: 1, ..LimitConfig::default() };
    world.change(Intervention::Request { model: m(), request: request.clone() }).unwrap();
    assert_eq!(at(&mut world, 16).limit, 2, "the limit stays although the initial limit changed");
    assert_eq!(at(&mut world, 31).limit, 4, "and rises by the new rule");
    let request = LimitConfig { ramp: millis(90), ..request };
    world.change(Intervention::Request { model: m(), request: request.clone() }).unwrap();
    let ramped = at(&mut world, 32);
    assert_eq!((ramped.limit, ramped.ramp.map(|ramp| ramp.target)), (1, Some(4)));
    world.change(Intervention::Request { model: m(), request: LimitConfig { max_limit: Some(3), ..request } }).unwrap();
    let clamped = at(&mut world, 150);
    assert_eq!((clamped.limit, clamped.effective_max), (3, 3));
}

#[test]
fn a_changed_algorithm_sets_the_limit_from_then_on() {
    let mut world = world(&four_slots());
    assert_eq!(at(&mut world, 15).algorithm, "aimd");
    let algorithm = LimitChoice::Fixed { limit: 2 };
    world.change(Intervention::Algorithm { model: m(), algorithm }).unwrap();
    let other = at(&mut world, 35);
    assert_eq!((other.algorithm, other.limit, other.in_flight), ("fixed", 2, 2));
    // Other settings do not change the algorithm.
    world.change(Intervention::Request { model: m(), request: LimitConfig::default() }).unwrap();
    assert_eq!(at(&mut world, 36).algorithm, "fixed");
    assert_eq!(at(&mut world, 36).limit, 2);
}

#[test]
fn a_fixed_limit_without_a_number_follows_the_cap() {
    let mut scenario = four_slots();
    scenario.models[0].algorithm = LimitChoice::AT_CAP;
    let mut world = world(&scenario);
    assert_eq!(at(&mut world, 15).limit, 4);
    world.change(Intervention::MaxParallel { model: m(), calls: 6 }).unwrap();
    assert_eq!(at(&mut world, 16).limit, 6);
    world.change(Intervention::MaxParallel { model: m(), calls: 2 }).unwrap();
    assert_eq!(at(&mut world, 17).limit, 2);
}

/// A scenario of two columns with local work of 10 ms per task and eight workers in total.
fn two_groups() -> Scenario {
    let work = |name| ScenarioColumn {
        local: millis(10),
        admitted_limit: Some(8),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    let base = scenario(400, &[], &[work("a"), work("b")]);
    Scenario { row_group_size: 400, submission_limit: 8, ..base }
}

fn running(world: &World) -> Vec<u32> {
    world.sample().groups.iter().map(|group| group.running).collect()
}

#[test]
fn a_group_with_a_raised_weight_gets_its_new_share_from_then_on() {
    let mut world = world(&two_groups());
    world.advance_to(Instant::ZERO + millis(15));
    assert_eq!(running(&world), [4, 4]);
    world.change(Intervention::Weight { column: "a".to_string(), weight: 3.0 }).unwrap();
    world.advance_to(Instant::ZERO + millis(55));
    assert_eq!(running(&world), [6, 2]);
    assert!(world.sample().groups[0].weight > 2.5);
    finish(world);
}

#[test]
fn a_changed_policy_applies_to_earlier_debts_from_then_on() {
    // `b` starts at 100 ms. Until then `a` may borrow without a ceiling.
    let mut scenario = two_groups();
    let late = ScenarioColumn { local: millis(100), ..ScenarioColumn::new("s", Strategy::FromScratch) };
    scenario.columns[1].after = ["s".to_string()].into();
    scenario.columns.push(late);
    let config = BoundedBorrowConfig { default_ceiling: Some(2), ..BoundedBorrowConfig::default() };
    let mut world = world(&scenario);
    world.advance_to(Instant::ZERO + millis(15));
    let debts = |world: &World| world.sample().groups.iter().map(|group| group.debt).collect::<Vec<_>>();
    assert_eq!((running(&world), debts(&world)), ([7, 0, 1].into(), [3, 0, 0].into()));
    world.change(Intervention::Policy { policy: PolicyChoice::BoundedBorrow(config) }).unwrap();
    world.advance_to(Instant::ZERO + millis(35));
    assert_eq!(
        (running(&world), debts(&world)),
        ([6, 0, 1].into(), [2, 0, 0].into()),
        "its share of four, and two borrowed"
    );
    world.change(Intervention::Policy { policy: PolicyChoice::StrictFair }).unwrap();
    world.advance_to(Instant::ZERO + millis(55));
    assert_eq!(
        (running(&world), debts(&world)),
        ([7, 0, 1].into(), [0, 0, 0].into()),
        "no group has debt under strict fairness"
    );
    finish(world);
}

#[test]
fn changes_are_applied_in_order_and_before_all_other_events_of_their_instant() {
    let change = |at, slots| Change { at: millis(at), what: Intervention::Capacity { model: m(), slots: Some(slots) } };
    let changes = [change(0, 3), change(10, 1), change(10, 2)].into();
    let mut world = world(&Scenario { changes, ..four_slots() });
    assert_eq!(world.sample().providers[0].capacity, 3, "a change at time zero is applied before the run starts");
    assert_eq!(world.sample().providers[0].refused, 1);
    world.advance_to(Instant::ZERO + millis(9));
    for capacity in [1, 2] {
        assert!(world.step());
        let sample = world.sample();
        assert_eq!((sample.providers[0].capacity, sample.at.as_nanos()), (capacity, 10_000_000));
        assert_eq!(sample.providers[0].accepted, 3, "and no other event has happened");
    }
}

#[test]
fn a_branch_replaces_the_changes_up_to_its_end() {
    let capacity = |slots| Intervention::Capacity { model: m(), slots: Some(slots) };
    let change = |at, slots| Change { at: millis(at), what: capacity(slots) };
    let base = Scenario { changes: [change(10, 1), change(20, 2), change(90, 3)].into(), ..four_slots() };
    let mut world = world(&base);
    world.advance_to(Instant::ZERO + millis(15));
    let rejected = Intervention::Capacity { model: "unknown".to_string(), slots: None };
    world.branch(rejected, Instant::ZERO + millis(50)).unwrap_err();
    assert_eq!(world.changes(), base.changes, "a rejected change drops nothing");
    world.branch(capacity(4), Instant::ZERO + millis(50)).unwrap();
    let kept: Vec<_> = world.changes().iter().map(|change| change.at.as_nanos()).collect();
    assert_eq!(kept, [10_000_000, 15_000_001, 90_000_000], "a change after the branch stays");
    finish(world);
}

#[test]
fn an_invalid_change_is_rejected_with_its_field_name_and_changes_nothing() {
    let mut world = world(&four_slots());
    let ceiling = BorrowCeiling {
        kind: crate::task::GroupKind::Model,
        identity: [m()].into(),
        resource: "gpu".to_string(),
        ceiling: 1,
    };
    let policy = BoundedBorrowConfig { ceilings: [ceiling].into(), ..BoundedBorrowConfig::default() };
    let request = LimitConfig { decrease_factor: 2.0, ..LimitConfig::default() };
    for (what, field) in [
        (Intervention::Capacity { model: "n".to_string(), slots: None }, "model"),
        (Intervention::Capacity { model: m(), slots: Some(2_000_000) }, "slots"),
        (Intervention::Refuse { model: m(), span: Duration::MAX }, "for_ms"),
        (Intervention::Slow { model: m(), factor: f64::NAN, span: millis(1) }, "factor"),
        (Intervention::Algorithm { model: m(), algorithm: LimitChoice::Fixed { limit: 0 } }, "algorithm.limit"),
        (Intervention::Request { model: m(), request }, "request.decrease_factor"),
        (Intervention::Policy { policy: PolicyChoice::BoundedBorrow(policy) }, "policy.ceilings"),
        (Intervention::Weight { column: "b".to_string(), weight: 1.0 }, "column"),
        (Intervention::Weight { column: "a".to_string(), weight: 0.0 }, "weight"),
        (Intervention::MaxParallel { model: m(), calls: 0 }, "calls"),
    ] {
        let error = world.change(what.clone()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{field}` is ")), "{error}");
        let changes = [Change { at: millis(1), what: Intervention::Refuse { model: m(), span: millis(1) } }];
        let changes = changes.into_iter().chain([Change { at: millis(1), what }]).collect();
        let error = Scenario { changes, ..four_slots() }.validate().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`changes[1].{field}` is ")), "{error}");
    }
    assert!(world.changes().is_empty());
    let change = |at| Change { at: millis(at), what: Intervention::Capacity { model: m(), slots: None } };
    let error = Scenario { changes: [change(2), change(1)].into(), ..four_slots() }.validate().unwrap_err().to_string();
    assert!(error.starts_with("`changes[1].at_ms` is 1; expected a time not before"), "{error}");
}

#[test]
fn a_run_with_changes_is_replayed_to_the_same_digests() {
    let (header, mut world) = World::recorded(&two_groups(), 3).unwrap();
    let mut entries = Vec::new();
    for (instant, policy) in [(15, PolicyChoice::StrictFair), (35, PolicyChoice::default())] {
        world.advance_to(Instant::ZERO + millis(instant));
        world.change(Intervention::Policy { policy }).unwrap();
        world.change(Intervention::Weight { column: "b".to_string(), weight: 5.0 }).unwrap();
        entries.extend(world.take_commands());
    }
    while world.step() {}
    entries.extend(world.take_commands());
    let mut replay = Replay::new(&header).unwrap();
    for entry in &entries {
        replay.apply(entry).unwrap();
    }
    assert_eq!(replay.digest(), world.decision_digests());
}
