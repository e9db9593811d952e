use tidegate_core::limit::{LimitChoice, VegasConfig};
use tidegate_core::pipeline::AdaptiveRowGroups;
use tidegate_core::sim::scenario::{Holder, PreBatch, ScenarioColumn};
use tidegate_core::time::Duration;

use super::args::LimitName;
use super::*;
use crate::app::config::pipeline::SourceText;

/// A file with nothing in it that has a default.
const SHORTEST: &str = r#"name = "n"
title = "t"
description = "d"
rows = 8
row_group_size = 2
row_groups = 1
submission_limit = 4

[[models]]
name = "m"
provider = {}
max_parallel = 4

[[columns]]
name = "c"
strategy = "cell"
model = "m"
"#;

fn refusal(from: &str, to: &str) -> String {
    assert!(SHORTEST.contains(from), "{from:?} is not in the file");
    let text = SHORTEST.replacen(from, to, 1);
    parse(&SourceText::new("s.toml", text)).expect_err(to).to_string()
}

#[test]
fn every_built_in_scenario_is_read_back_equal_from_what_is_dumped_of_it() {
    for scenario in builtins() {
        let text = dump(&scenario).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        let read = parse(&SourceText::new(&scenario.name, text)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, scenario);
    }
}

#[test]
fn settings_of_every_kind_survive_the_way_through_a_file() {
    let mut full = parse(&SourceText::new("s.toml", SHORTEST)).unwrap();
    let span = Duration::from_nanos(300_001);
    full.adaptive = Some(AdaptiveRowGroups::default());
    full.policy = PolicyChoice::StrictFair;
    full.pre_batch = Some(PreBatch { takes: span, fails_at: Some(1), leaves_out_share: 0.25 });
    full.holders = vec![Holder { model: "m".to_string(), slots: 2, from: span, until: span + span }];
    full.resources.insert("gpu".to_string(), 3);
    full.models[0].algorithm = LimitChoice::Vegas(VegasConfig::default());
    full.cancel_at = Some(span);
    let holds = [("gpu".to_string(), 2)].into();
    let local =
        ScenarioColumn { holds, group: Some("g".to_string()), local: span, model: None, ..full.columns[0].clone() };
    full.columns.push(ScenarioColumn { name: "l".to_string(), after: vec!["c".to_string()], ..local });
    assert_eq!(parse(&SourceText::new("s.toml", dump(&full).unwrap())).unwrap(), full);
}

#[test]
fn what_is_switched_off_is_dumped_as_never_and_read_back_as_such() {
    let off = parse(&SourceText::new("s.toml", SHORTEST)).unwrap();
    let off = Scenario { shutdown_rate: None, rate_limit_patience: None, degraded_rate: None, ..off };
    let text = dump(&off).unwrap();
    for line in ["shutdown_rate = \"never\"", "rate_limit_patience_ms = \"never\"", "degraded_rate = \"never\""] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert_eq!(parse(&SourceText::new("s.toml", text)).unwrap(), off);
    let told = refusal("rows = 8", "rows = 8\nshutdown_rate = \"nevr\"");
    assert!(told.contains("a number, or \"never\""), "{told}");
}

#[test]
fn what_a_file_cannot_hold_is_not_dumped_as_something_else() {
    let cancel_at = Some(Duration::from_nanos((1 << 60) + 1));
    let late = Scenario { cancel_at, ..builtins().swap_remove(0) };
    assert!(dump(&late).unwrap_err().to_string().contains("no file can hold"));
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_known_one() {
    let told = refusal("max_parallel", "max_paralel");
    assert!(told.starts_with("s.toml:12:1: unknown field `max_paralel`"), "{told}");
    assert!(told.contains("did you mean `max_parallel`?"), "{told}");
    let told = refusal("rows = 8", "rows = 8\nseed = 3");
    assert!(told.starts_with("s.toml:5:1: unknown field `seed`"), "{told}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_key_and_what_is_expected() {
    let told = refusal("rows = 8", "rows = \"many\"");
    assert!(told.starts_with("s.toml:4:8: `rows`: invalid type: string \"many\""), "{told}");
    assert!(told.contains("expected u64"), "{told}");
    let told = refusal("\"cell\"", "\"cel\"");
    assert!(told.starts_with("s.toml:16:12: `strategy`: unknown variant `cel`"), "{told}");
    assert!(told.contains("did you mean `cell`?"), "{told}");
    let told = refusal("provider = {}", "provider = { latency = { law = \"constant\", latency_ms = true } }");
    assert!(told.starts_with("s.toml:11:57: `latency_ms`: invalid type: boolean `true`"), "{told}");
    assert!(told.contains("a number of milliseconds"), "{told}");
    let told = refusal("provider = {}", "provider = { latency = { law = \"konstant\" } }");
    assert!(told.starts_with("s.toml:11:32: `law`: unknown variant `konstant`"), "{told}");
    let told = refusal("submission_limit = 4\n", "");
    assert!(told.contains("missing field `submission_limit`"), "{told}");
    let told = refusal("rows = 8", "rows = ");
    assert!(told.starts_with("s.toml:4:") && told.contains("not TOML"), "{told}");
}

#[test]
fn a_scenario_that_cannot_run_is_refused_at_the_setting_that_keeps_it() {
    for (from, to, place) in [
        ("model = \"m\"", "model = \"n\"", "s.toml:17:9: "),
        ("strategy = \"cell\"", "strategy = \"cell\"\nskip_share = 2.0", "s.toml:17:14: "),
        ("strategy = \"cell\"", "strategy = \"cell\"\nafter = [\"d\"]", "s.toml:17:9: "),
        ("row_group_size = 2", "row_group_size = 0", "s.toml:5:18: "),
        ("rows = 8", "rows = 8\nretry_floor_ms = 0", "s.toml:5:18: "),
        ("provider = {}", "provider = { latency = { law = \"constant\", latency_ms = 1e12 } }", "s.toml:11:12: "),
        ("max_parallel = 4", "max_parallel = 4\nrequest = { decrease_factor = 2.0 }", "s.toml:13:31: "),
        ("strategy = \"cell\"", "strategy = \"cell\"\nholds = { gpu = 1 }", "s.toml:17:9: "),
    ] {
        let told = refusal(from, to);
        assert!(told.starts_with(place), "{to}: {told}");
    }
}

#[test]
fn a_change_is_read_from_a_file_and_refused_at_its_place() {
    let change = |line: &str| format!("rows = 8\n\n[[changes]]\nat_ms = 3\n{line}\n");
    let text =
        SHORTEST.to_string() + "\n[[changes]]\nat_ms = 3\nset = \"slow\"\nmodel = \"m\"\nfactor = 2\nfor_ms = 10\n";
    let read = parse(&SourceText::new("s.toml", text)).unwrap();
    assert_eq!(read.changes.len(), 1);
    assert_eq!(parse(&SourceText::new("s.toml", dump(&read).unwrap())).unwrap(), read);
    let line = SHORTEST.lines().count() + 4;
    for (lines, told) in [
        (
            "set = \"slow\"\nmodel = \"n\"\nfactor = 2\nfor_ms = 1",
            format!("s.toml:{}:9: `changes[0].model` is n", line + 1),
        ),
        (
            "set = \"slow\"\nmodel = \"m\"\nfactor = 0\nfor_ms = 1",
            format!("s.toml:{}:10: `changes[0].factor`", line + 2),
        ),
        ("set = \"slow\"\nmodl = \"m\"", format!("s.toml:{}:1: unknown field `modl`", line + 1)),
        ("set = \"slow\"\nmodel = \"m\"", "missing field `factor`".to_string()),
        (
            "set = \"slow\"\nmodel = \"m\"\nfor_ms = 1\nfactor = \"x\"",
            format!("s.toml:{}:10: `factor`: invalid type: string \"x\"", line + 3),
        ),
        (
            "set = \"request\"\nmodel = \"m\"\nrequest = { decrease_factor = 2.0 }",
            format!("s.toml:{}:31: `changes[0].request.decrease_factor`", line + 2),
        ),
    ] {
        let text = SHORTEST.to_string() + "\n" + change(lines).trim_start_matches("rows = 8\n\n");
        let error = parse(&SourceText::new("s.toml", text)).unwrap_err().to_string();
        assert!(error.contains(&told), "{lines}: {error}");
    }
}

#[test]
fn a_name_that_is_nobodys_is_refused_with_the_nearest_one() {
    let told = find("tidee").unwrap_err().to_string();
    assert!(told.contains("no built-in scenario") && told.contains("did you mean `tide`?"), "{told}");
    assert!(find("nowhere.toml").unwrap_err().to_string().contains("cannot read the file"));
}

fn simulated(args: &SimulateArgs) -> (String, Exit) {
    simulate(args).unwrap_or_else(|error| panic!("{error}"))
}

fn args(scenario: &str) -> SimulateArgs {
    SimulateArgs { scenario: Some(scenario.to_string()), seed: 7, ..SimulateArgs::default() }
}

#[test]
fn a_report_tells_rows_resources_digest_and_laws_and_equal_seeds_give_equal_reports() {
    let (text, exit) = simulated(&args("outage"));
    assert_eq!(exit, Exit::Done);
    for part in ["rows in            1200", "laws         all kept", "calls of shaky", "submission", "digest"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(simulated(&args("outage")).0, text);
    assert_ne!(simulated(&SimulateArgs { seed: 8, ..args("outage") }).0, text);
}

#[test]
fn the_json_holds_the_schema_and_the_figures() {
    let (text, _) = simulated(&SimulateArgs { json: true, ..args("request-pressure/both") });
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["schema"], &json["violation"]), (&SCHEMA.into(), &serde_json::Value::Null));
    assert_eq!(json["lower_bound_ns"], 82_000_000);
    assert_eq!(json["run"]["rows_out"], 32);
    assert_eq!(json["figures"]["tasks"][0]["name"], "submission");
    assert_eq!(json["digest"].as_str().map(str::len), Some(16));
}

#[test]
fn policy_and_limit_of_the_command_line_take_the_place_of_the_scenarios() {
    let digest = |args: &SimulateArgs| {
        let (text, _) = simulated(&SimulateArgs { json: true, ..args.clone() });
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["digest"].clone()
    };
    let plain = digest(&args("tide"));
    assert_ne!(digest(&SimulateArgs { limit: Some(LimitName::Fixed), ..args("tide") }), plain);
    assert_eq!(digest(&SimulateArgs { policy: Some(PolicyName::BoundedBorrow), ..args("tide") }), plain);
    let strict = |policy| digest(&SimulateArgs { policy, ..args("late-peer/bounded") });
    assert_ne!(strict(Some(PolicyName::StrictFair)), strict(None));
    let nothing = simulate(&SimulateArgs { limit: Some(LimitName::Fixed), ..args("fan/in") });
    assert!(nothing.unwrap_err().to_string().contains("has no model"));
}

#[test]
fn the_list_names_every_built_in_scenario() {
    let (text, _) = simulated(&SimulateArgs { list: true, ..SimulateArgs::default() });
    assert!(text.starts_with("tide ") && text.contains("\nvery-many/row-groups "), "{text}");
    assert_eq!(text.lines().count(), builtins().len());
}

#[test]
fn a_trace_is_of_the_run_that_is_reported_and_changes_nothing_of_it() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace.json");
    let traced = simulated(&SimulateArgs { trace: Some(trace.clone()), ..args("outage") });
    assert_eq!(traced, simulated(&args("outage")));
    let text = std::fs::read_to_string(trace).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["traceEvents"].as_array().unwrap().len() > 1_000);
    let nowhere = SimulateArgs { trace: Some(place.path().join("no/such/file")), ..args("outage") };
    assert!(simulate(&nowhere).unwrap_err().to_string().contains("no/such/file"));
}
