use super::*;
use crate::limit::{CallReport, LimitAlgorithm, LimitChoice};
use crate::pipeline::{DropReason, Hook, StopReason, Strategy, TaskCounts};
use crate::request::LimitConfig;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, ProviderSpec};
use crate::sim::scenario::{CallbackSpec, Holder, Model, PreBatch, ScenarioColumn};
use alloc::string::ToString;

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A model with this many slots whose calls take 10 ms.
pub(super) fn model(name: &str, slots: u32) -> Model {
    Model {
        name: name.to_string(),
        domain_of: None,
        provider: ProviderSpec {
            capacity: Capacity::Constant { slots },
            latency: Latency::Constant { latency: millis(10) },
            ..ProviderSpec::default()
        },
        max_parallel: slots,
        request: LimitConfig::default(),
        algorithm: LimitChoice::Aimd,
        task_limit: None,
    }
}

pub(super) fn calling(name: &str, model: &str) -> ScenarioColumn {
    ScenarioColumn { model: Some(model.to_string()), ..ScenarioColumn::new(name, Strategy::Cell) }
}

pub(super) fn scenario(rows: u64, models: &[Model], columns: &[ScenarioColumn]) -> Scenario {
    Scenario { rows, row_group_size: 4, models: models.into(), columns: columns.into(), ..Scenario::default() }
}

fn run(scenario: &Scenario) -> RunReport {
    let mut world = World::watched(scenario, 7).unwrap();
    while world.step() {}
    assert_eq!(world.violation(), None);
    assert_eq!(world.outstanding(), [0; 3]);
    world.finished().expect("a world without a next step has finished").clone()
}

#[test]
fn the_draws_of_a_task_do_not_depend_on_what_happened_before() {
    let chancy = ScenarioColumn { skip_share: 0.3, fail_share: 0.2, ..calling("a", "m") };
    let then = ScenarioColumn { after: ["a".to_string()].into(), ..calling("b", "m") };
    let wide = scenario(60, &[model("m", 8)], &[chancy, then]);
    let wide = Scenario { shutdown_rate: None, ..wide };
    let narrow = Scenario { submission_limit: 1, row_groups: 1, ..wide.clone() };
    let tasks = |scenario| run(scenario).columns.into_iter().map(|column| column.tasks).collect::<Vec<TaskCounts>>();
    let (wide, narrow) = (tasks(&wide), tasks(&narrow));
    assert_eq!(wide, narrow);
    assert!(wide[0].skipped > 5 && wide[0].failed > 2, "{wide:?}");
}

#[test]
fn a_task_makes_the_calls_of_its_column_and_then_does_its_local_work() {
    for (calls, expected) in [(0, 3), (1, 13), (4, 43)] {
        let column = ScenarioColumn { calls, local: millis(3), ..calling("a", "m") };
        assert_eq!(run(&scenario(1, &[model("m", 1)], &[column])).elapsed(), millis(expected), "{calls} calls");
    }
}

#[test]
fn the_run_waits_while_a_holder_holds_the_slots_of_its_model() {
    let holder = |from, until| Holder { model: "m".to_string(), slots: 2, from: millis(from), until: millis(until) };
    let held = |holder| Scenario { holders: [holder].into(), ..scenario(2, &[model("m", 2)], &[calling("a", "m")]) };
    assert_eq!(run(&held(holder(0, 50))).elapsed(), millis(60));
    // The holder comes too late, waits behind the run, and ends with it.
    assert_eq!(run(&held(holder(5, 50))).elapsed(), millis(10));
}

/// Returns how long a run of two columns takes with one worker slot. Each column's model serves one call of
/// 10 ms at a time, and a holder occupies the first model for 50 ms.
fn beside_a_held_model(advisory: bool, yields: bool) -> Duration {
    let base = scenario(2, &[model("held", 1), model("open", 1)], &[calling("a", "held"), calling("b", "open")]);
    let holder = Holder { model: "held".to_string(), slots: 1, from: millis(0), until: millis(50) };
    run(&Scenario { advisory, yields, submission_limit: 1, holders: [holder].into(), ..base }).elapsed()
}

#[test]
fn with_advice_the_open_model_is_called_first() {
    assert_eq!(beside_a_held_model(true, false), millis(70), "the open calls are over before the held model is free");
    assert!(beside_a_held_model(false, false) > millis(70));
}

#[test]
fn a_worker_that_yields_while_it_waits_lets_the_open_model_be_called_too() {
    assert_eq!(beside_a_held_model(false, true), millis(70));
    assert_eq!(beside_a_held_model(true, true), millis(70));
}

#[test]
fn hooks_and_checkpoints_take_the_configured_time_and_fail_where_the_scenario_says() {
    let hooks = PreBatch { takes: millis(5), leaves_out_share: 1.0, fails_at: None };
    let left_out = Scenario { pre_batch: Some(hooks), ..scenario(4, &[], &[ScenarioColumn::new("a", Strategy::Cell)]) };
    let report = run(&left_out);
    assert_eq!((report.elapsed(), report.rows_out, report.dropped[0].reason), (millis(5), 0, DropReason::PreBatch));

    let slow = |fails_at| Some(CallbackSpec { takes: millis(5), fails_at });
    let base = scenario(8, &[], &[ScenarioColumn::new("a", Strategy::Cell)]);
    let base = Scenario { row_groups: 1, post_batch: slow(None), checkpoint: slow(None).unwrap(), ..base };
    assert_eq!(run(&base).elapsed(), millis(20));
    let stop = run(&Scenario { post_batch: slow(Some(1)), ..base.clone() }).stop;
    assert!(matches!(stop, StopReason::HookFailed { row_group: 1, hook: Hook::PostBatch, .. }), "{stop}");
    let stop = run(&Scenario { checkpoint: slow(Some(0)).unwrap(), ..base }).stop;
    assert!(matches!(stop, StopReason::CheckpointFailed { row_group: 0, .. }), "{stop}");
}

#[test]
fn a_drained_run_saves_row_groups_partly_and_a_run_of_missing_rows_makes_only_those() {
    let then = ScenarioColumn { after: ["a".to_string()].into(), ..calling("b", "m") };
    let base = scenario(40, &[model("m", 3)], &[calling("a", "m"), then]);
    let mut parts = (1..60).map(|ms| run(&Scenario { drain_at: Some(millis(ms)), ..base.clone() }));
    let part = parts.rfind(|report| report.stop == StopReason::Drained && report.rows_out % 4 > 0);
    let report = part.expect("one of them stops in a row group");
    assert!(report.rows_unmade > 0 && report.rows_dropped == 0, "{report:?}");
    let report = run(&Scenario { missing_rows: [2..3, 5..7].into(), done_row_groups: [3].into(), ..base });
    assert_eq!((report.rows_resumed, report.rows_in, report.rows_out), (3 + 2 + 4, 31, 31));
    assert_eq!((report.columns[0].tasks.succeeded, report.stop), (31, StopReason::Completed));
}

#[test]
fn a_run_is_wound_down_where_the_scenario_says() {
    let base = scenario(40, &[model("m", 2)], &[calling("a", "m")]);
    let report = run(&Scenario { wind_down_at: Some(millis(15)), ..base });
    assert_eq!(report.stop, StopReason::WoundDown);
    assert!(report.rows_out > 0 && report.rows_not_started > 0 && report.rows_dropped == 0, "{report:?}");
}

#[test]
fn a_drained_run_ends_with_its_last_call_in_flight() {
    let base = scenario(40, &[model("m", 2)], &[calling("a", "m")]);
    for yields in [true, false] {
        let report = run(&Scenario { drain_at: Some(millis(15)), yields, ..base.clone() });
        assert_eq!((&report.stop, report.elapsed()), (&StopReason::Drained, millis(20)));
    }
}

#[test]
fn a_run_is_cancelled_or_panics_where_the_scenario_says() {
    let base = scenario(8, &[model("m", 2)], &[calling("a", "m")]);
    let cancelled = run(&Scenario { cancel_at: Some(millis(15)), ..base.clone() });
    assert_eq!((cancelled.stop, cancelled.ended), (StopReason::Cancelled, Instant::ZERO + millis(15)));
    let buggy = ScenarioColumn { fatal_at: Some(5), ..calling("a", "m") };
    let stop = run(&Scenario { columns: [buggy].into(), ..base }).stop;
    assert!(matches!(stop, StopReason::Fatal { row_group: 1, .. }), "{stop}");
}

#[test]
fn a_task_whose_worker_is_lost_is_retried_and_then_dropped() {
    let lost = ScenarioColumn { lose_share: 1.0, ..calling("a", "m") };
    let report = run(&scenario(1, &[model("m", 1)], &[lost]));
    assert_eq!((report.columns[0].tasks.cancelled, report.dropped[0].reason), (4, DropReason::WorkerLost));
}

#[test]
fn settings_out_of_range_are_rejected_with_the_field_name() {
    let base = || scenario(1, &[model("m", 1)], &[calling("a", "m")]);
    let message = |scenario: Scenario| World::new(&scenario, 1).expect_err("the scenario is rejected").to_string();
    let holder =
        |model: &str, until| Holder { model: model.to_string(), slots: 1, from: millis(1), until: millis(until) };
    let unlikely = ScenarioColumn { fail_share: 1.5, ..calling("a", "m") };
    assert!(message(Scenario { columns: [unlikely].into(), ..base() }).contains("`fail_share` is 1.5"));
    assert!(message(Scenario { holders: [holder("n", 2)].into(), ..base() }).contains("`n`"));
    assert!(message(Scenario { holders: [holder("m", 1)].into(), ..base() }).contains("holders.until_ms"));
    let request = LimitConfig { max_cooldown: millis(10), ..LimitConfig::default() };
    let hasty = Model { request, ..model("m", 1) };
    let words = message(Scenario { models: [hasty].into(), ..base() });
    assert!(words.contains("`max_cooldown_ms` is 10.000ms; expected at least `cooldown_ms`"), "{words}");
    let own = Model { domain_of: Some("m".to_string()), ..model("m", 1) };
    assert!(message(Scenario { models: [own].into(), ..base() }).contains("`models.domain_of` is m"));
    let none = Model { task_limit: Some(0), ..model("m", 1) };
    assert!(message(Scenario { models: [none].into(), ..base() }).contains("request:m"));
}

#[test]
fn tasks_hold_resources_of_the_scenario_while_they_work() {
    let part = |name: &str, amount| ScenarioColumn {
        holds: [("gpu".to_string(), amount)].into(),
        local: millis(10),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    let base = scenario(4, &[], &[part("a", 2), part("b", 1)]);
    // 4 x 2 and 4 x 1 slots for 10 ms each, on 3 slots.
    assert_eq!(run(&Scenario { resources: [("gpu".to_string(), 3)].into(), ..base.clone() }).elapsed(), millis(40));
    let error = World::new(&base, 1).expect_err("there is no such resource").to_string();
    assert!(error.contains("`gpu`") && error.contains("column `a`"), "{error}");
}

#[test]
fn columns_that_name_the_same_group_share_its_turns() {
    let column = |name: &str, group: Option<&str>| ScenarioColumn {
        group: group.map(ToString::to_string),
        local: millis(10),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    // One row group of four rows and one worker: three columns take turns, or two of them share one turn.
    let ended_first = |group: Option<&str>| {
        let columns = [column("a", group), column("b", group), column("c", None)];
        let mut world = World::new(&Scenario { submission_limit: 1, ..scenario(4, &[], &columns) }, 1).unwrap();
        world.advance_to(Instant::ZERO + millis(80));
        let ended = world.pipeline.progress().columns.iter().map(|column| column.succeeded).collect::<Vec<_>>();
        ended[2]
    };
    assert_eq!((ended_first(None), ended_first(Some("pair"))), (2, 4));
}

#[test]
fn a_model_may_have_another_limit_algorithm() {
    let refusing = Capacity::Constant { slots: 4 };
    let mut narrow = Model { max_parallel: 8, ..model("m", 4) };
    narrow.provider.capacity = refusing;
    let limit_after = |algorithm| {
        let base = scenario(64, &[Model { algorithm, ..narrow.clone() }], &[calling("a", "m")]);
        let mut world = World::watched(&base, 7).unwrap();
        world.advance_to(Instant::ZERO + millis(8));
        world.sample().providers[0].limit
    };
    assert_eq!((limit_after(LimitChoice::Aimd), limit_after(LimitChoice::Fixed { limit: 8 })), (6, 8));
}

#[test]
fn a_run_under_a_custom_policy_is_checked_and_accounted_for() {
    use crate::task::{PolicyDenial, PolicyGrant, PolicyView, TaskDenialReason, TaskPolicy};

    /// A policy that allows each group one worker at a time.
    #[derive(Debug)]
    struct OneEach;

    impl TaskPolicy for OneEach {
        fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
            if view.running() == 0 { Ok(PolicyGrant::unlimited()) } else { Err(TaskDenialReason::Policy.into()) }
        }
    }

    let base = scenario(8, &[model("m", 4)], &[calling("a", "m"), calling("b", "m")]);
    let mut world = World::with_policy(&base, 7, Box::new(OneEach)).unwrap();
    while world.step() {}
    assert_eq!(world.violation(), None);
    assert_eq!(world.finished().map(RunReport::elapsed), Some(millis(80)));
    let figures = world.figures().expect("the world has an account");
    assert_eq!((figures.maxima.workers, figures.dispatched, figures.hidden_waiters), (2, 16, 0));
    let plain = World::new(&base, 7).map(|mut world| {
        while world.step() {}
        world.finished().map(RunReport::elapsed)
    });
    assert_eq!(plain, Ok(Some(millis(40))));
}

/// A limit that rises by one call every 10 ms, and that may or may not announce it.
struct RisingLimit {
    most: u32,
    is_announced: bool,
}

impl LimitAlgorithm for RisingLimit {
    fn limit(&self, now: Instant) -> u32 {
        let tenths = u32::try_from(now.as_nanos() / 10_000_000).unwrap_or(u32::MAX);
        tenths.saturating_add(1).min(self.most)
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        let next = Instant::ZERO + millis((now.as_nanos() / 10_000_000 + 1) * 10);
        (self.is_announced && self.limit(now) < self.most).then_some(next)
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {}

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.most = max;
    }
}

#[test]
fn a_custom_limit_applies_to_its_model_only_and_is_accounted_for() {
    let columns = [calling("a", "own"), calling("b", "named")];
    let base = scenario(32, &[model("own", 4), model("named", 4)], &columns);
    let base = Scenario { row_group_size: 32, ..base };
    let own = |model: &Model| -> Option<Box<dyn LimitAlgorithm>> {
        (model.name == "own")
            .then(|| -> Box<dyn LimitAlgorithm> { Box::new(RisingLimit { most: 0, is_announced: true }) })
    };
    let mut world = World::with_limit(&base, 7, own).unwrap();
    let mut limits = Vec::new();
    for at in [5, 15, 25, 35, 45] {
        world.advance_to(Instant::ZERO + millis(at));
        let sample = world.sample();
        limits.push(sample.providers.iter().map(|provider| provider.limit).collect::<Vec<_>>());
        assert_eq!(sample.providers.iter().map(|provider| provider.algorithm).collect::<Vec<_>>(), ["custom", "aimd"]);
    }
    assert_eq!(limits, [[1, 4], [2, 4], [3, 4], [4, 4], [4, 4]]);
    while world.step() {}
    assert_eq!(world.violation(), None);
    // 1 + 2 + 3 calls in the first 30 ms, and four at a time afterwards.
    assert_eq!(world.finished().map(RunReport::elapsed), Some(millis(100)));
    let figures = world.figures().expect("the world has an account");
    assert_eq!((figures.requests[0].max_leased, figures.requests[0].limit), (4, 4));
}

#[test]
fn a_limit_that_opens_a_slot_without_announcing_it_breaks_a_law() {
    let slow = Model {
        provider: ProviderSpec { latency: Latency::Constant { latency: millis(25) }, ..model("m", 4).provider },
        ..model("m", 4)
    };
    // A waiter whose worker has yielded also waits for its task resources, and is not checked.
    let base = Scenario { yields: false, ..scenario(16, &[slow], &[calling("a", "m")]) };
    let violation = |is_announced| {
        let mut world = World::with_limit(&base, 7, |_| Some(Box::new(RisingLimit { most: 0, is_announced }))).unwrap();
        while world.step() {}
        world.violation().map(|violation| violation.law)
    };
    assert_eq!(violation(true), None);
    assert_eq!(violation(false), Some(crate::sim::check::Law::Room));
}
