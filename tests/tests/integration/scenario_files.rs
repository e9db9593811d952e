//! Scenarios as files: what may be left out, what survives the way through a file, what is refused.

use serde_json::{Value, json};
use tidegate_core::limit::{LimitChoice, TideConfig};
use tidegate_core::pipeline::{AdaptiveRowGroups, PolicyChoice};
use tidegate_core::request::LimitConfig;
use tidegate_core::sim::scenario::{
    CallbackSpec, Change, Holder, Intervention, Model, PreBatch, Scenario, ScenarioColumn, builtin,
};
use tidegate_core::sim::world::World;
use tidegate_core::time::Duration;

/// A file with nothing in it that has a default.
fn shortest() -> Value {
    json!({
        "name": "n", "title": "t", "description": "d",
        "rows": 8, "row_group_size": 2, "row_groups": 1, "submission_limit": 4,
        "models": [{ "name": "m", "provider": {}, "max_parallel": 4 }],
        "columns": [{ "name": "c", "strategy": "cell", "model": "m" }],
    })
}

fn read(file: Value) -> Result<Scenario, serde_json::Error> {
    serde_json::from_value(file)
}

#[test]
fn what_a_file_leaves_out_has_the_default_of_the_pipeline() {
    let read = read(shortest()).unwrap();
    let default = Scenario::default();
    assert_eq!(
        Scenario {
            name: read.name.clone(),
            title: read.title.clone(),
            description: read.description.clone(),
            rows: 8,
            row_group_size: 2,
            row_groups: 1,
            submission_limit: 4,
            models: read.models.clone(),
            columns: read.columns.clone(),
            ..default
        },
        read
    );
    assert_eq!((read.columns[0].calls, read.models[0].task_limit()), (1, 8));
}

#[test]
fn every_setting_survives_the_way_through_a_file() {
    let span = Duration::from_micros(1_500);
    let mut full = read(shortest()).unwrap();
    full.policy = PolicyChoice::StrictFair;
    full.adaptive = Some(AdaptiveRowGroups::default());
    (full.advisory, full.yields) = (false, false);
    (full.shutdown_rate, full.rate_limit_patience, full.cancel_at) = (None, None, Some(span));
    full.pre_batch = Some(PreBatch { takes: span, fails_at: Some(1), leaves_out_share: 0.5 });
    full.post_batch = Some(CallbackSpec { takes: span, fails_at: None });
    full.checkpoint = CallbackSpec { takes: span, fails_at: Some(0) };
    (full.done_row_groups, full.missing_rows) = (vec![2], std::iter::once(1..2).collect());
    full.holders = vec![Holder { model: "m".to_owned(), slots: 2, from: span, until: span + span }];
    let (also_fills, tenant) = (vec!["d".to_owned()], Some("t".to_owned()));
    full.columns[0] = ScenarioColumn { also_fills, tenant, ordered: true, ..full.columns[0].clone() };
    let domain = Model { name: "n".to_owned(), domain_of: Some("m".to_owned()), ..full.models[0].clone() };
    full.models.push(domain);
    let m = || "m".to_owned();
    let request = LimitConfig { ramp: span, ..LimitConfig::default() };
    full.changes = [
        Intervention::Capacity { model: m(), slots: Some(0) },
        Intervention::Capacity { model: m(), slots: None },
        Intervention::Refuse { model: m(), span },
        Intervention::Slow { model: m(), factor: 2.5, span },
        Intervention::Algorithm { model: m(), algorithm: LimitChoice::Fixed { limit: 3 } },
        Intervention::Request { model: m(), request },
        Intervention::Policy { policy: PolicyChoice::default() },
        Intervention::Weight { column: "c".to_owned(), weight: 0.5 },
        Intervention::MaxParallel { model: m(), calls: 9 },
    ]
    .map(|what| Change { at: span, what })
    .into();
    full.validate().unwrap();
    for scenario in builtin().into_iter().chain([full]) {
        assert_eq!(read(serde_json::to_value(&scenario).unwrap()).unwrap(), scenario);
    }
}

#[test]
fn a_change_is_read_as_it_is_written_and_strictly() {
    let read_change = |change: Value| serde_json::from_value::<Change>(change).map_err(|error| error.to_string());
    let capacity =
        |slots| Change { at: Duration::from_millis(4), what: Intervention::Capacity { model: "m".to_owned(), slots } };
    let written = json!({ "at_ms": 4, "set": "capacity", "model": "m", "slots": 0 });
    assert_eq!(serde_json::to_value(capacity(Some(0))).unwrap(), written);
    assert_eq!(read_change(written), Ok(capacity(Some(0))));
    let as_scheduled = json!({ "at_ms": 4, "set": "capacity", "model": "m", "slots": "schedule" });
    assert_eq!(serde_json::to_value(capacity(None)).unwrap(), as_scheduled);
    for slots in [json!("schedule"), Value::Null] {
        let read = read_change(json!({ "at_ms": 4, "set": "capacity", "model": "m", "slots": slots }));
        assert_eq!(read, Ok(capacity(None)));
    }
    assert_eq!(read_change(json!({ "at_ms": 4, "set": "capacity", "model": "m" })), Ok(capacity(None)));
    for (change, told) in [
        (json!({ "set": "capacity", "model": "m" }), "missing field `at_ms`"),
        (json!({ "at_ms": 4, "set": "capacity" }), "missing field `model`"),
        (json!({ "at_ms": 4, "set": "slow", "model": "m", "for_ms": 2 }), "missing field `factor`"),
        (json!({ "at_ms": 4, "set": "refuse", "model": "m", "for_ms": 2, "slots": 1 }), "unknown field `slots`"),
        (json!({ "at_ms": 4, "set": "capacity", "model": "m", "slots": 1.5 }), "a whole number from 0"),
        (json!({ "at_ms": 4, "set": "capacity", "model": "m", "slot": 1 }), "unknown field `slot`"),
        (json!({ "at_ms": 4, "set": "capacities", "model": "m" }), "unknown variant `capacities`"),
        (json!({ "at_ms": 4, "set": "request", "model": "m", "request": { "ramps": 1 } }), "unknown field `ramps`"),
    ] {
        let error = read_change(change.clone()).unwrap_err();
        assert!(error.contains(told), "{change}: {error}");
    }
    // What is done to a world that runs has no instant of its own.
    let now = json!({ "set": "max_parallel", "model": "m", "calls": 3 });
    let read: Intervention = serde_json::from_value(now.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), now);
    let late = json!({ "at_ms": 4, "set": "max_parallel", "model": "m", "calls": 3 });
    assert!(serde_json::from_value::<Intervention>(late).is_err());
}

#[test]
fn what_is_on_by_default_is_switched_off_by_never_and_by_null() {
    for off in [json!("never"), Value::Null] {
        let mut file = shortest();
        for key in ["shutdown_rate", "rate_limit_patience_ms", "degraded_rate"] {
            file[key] = off.clone();
        }
        let read = read(file).unwrap();
        assert_eq!((read.shutdown_rate, read.rate_limit_patience, read.degraded_rate), (None, None, None));
        assert_eq!(serde_json::to_value(&read).unwrap()["shutdown_rate"], "never");
    }
    let mut file = shortest();
    (file["shutdown_rate"], file["rate_limit_patience_ms"]) = (json!(1), json!(2.5));
    let read = read(file).unwrap();
    assert_eq!((read.shutdown_rate, read.rate_limit_patience), (Some(1.0), Some(Duration::from_micros(2_500))));
}

#[test]
fn an_unknown_setting_is_refused_wherever_it_stands() {
    for place in ["", "/models/0", "/columns/0"] {
        let mut file = shortest();
        file.pointer_mut(place).unwrap()["cancel_ms"] = json!(3);
        let error = read(file).unwrap_err().to_string();
        assert!(error.contains("unknown field `cancel_ms`"), "{place}: {error}");
    }
}

#[test]
fn a_model_is_limited_by_the_algorithm_that_its_file_names() {
    let mut file = shortest();
    file["models"][0]["algorithm"] = json!({ "name": "tide", "probe_after": 8 });
    let chosen = read(file.clone()).unwrap();
    let tide = LimitChoice::Tide(TideConfig { probe_after: 8, ..TideConfig::default() });
    assert_eq!(chosen.models[0].algorithm, tide);
    assert_eq!(read(serde_json::to_value(&chosen).unwrap()).unwrap(), chosen);

    file["models"][0]["algorithm"] = json!({ "name": "tide", "probe_afterwards": 8 });
    assert!(read(file.clone()).unwrap_err().to_string().contains("probe_afterwards"));
    file["models"][0]["algorithm"] = json!({ "name": "tide", "probe_after": 0 });
    let error = World::new(&read(file).unwrap(), 1).expect_err("it cannot run");
    assert_eq!(error.to_string(), "model `m`: `probe_after` is 0; expected at least 1");
}

#[test]
fn under_tide_a_run_ends_sooner_and_is_refused_less() {
    let mut scenario = builtin().remove(0);
    let run = |scenario: &Scenario| {
        let mut world = World::watched(scenario, 7).unwrap();
        while world.step() {}
        assert_eq!(world.violation(), None);
        (world.now(), world.sample().providers[0].refused)
    };
    let (aimd_end, aimd_refused) = run(&scenario);
    scenario.models[0].algorithm = LimitChoice::Tide(TideConfig::default());
    let (tide_end, tide_refused) = run(&scenario);
    assert!(tide_end < aimd_end && tide_refused < aimd_refused, "{tide_end} {tide_refused} {aimd_end} {aimd_refused}");
}
