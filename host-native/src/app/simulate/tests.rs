use tidegate_core::limit::{LimitChoice, VegasConfig};
use tidegate_core::pipeline::AdaptiveRowGroups;
use tidegate_core::sim::report::SCHEMA;
use tidegate_core::sim::scenario::{Holder, PreBatch, ScenarioColumn};
use tidegate_core::time::Duration;

use super::args::LimitName;
use super::file::parse;
use super::*;
use crate::app::config::pipeline::SourceText;

/// A scenario file without any setting that has a default.
const MINIMAL_SCENARIO: &str = r#"name = "n"
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

fn parse_error(from: &str, to: &str) -> String {
    assert!(MINIMAL_SCENARIO.contains(from), "{from:?} is not in the file");
    let text = MINIMAL_SCENARIO.replacen(from, to, 1);
    parse(&SourceText::new("s.toml", text)).expect_err(to).to_string()
}

#[test]
fn every_built_in_scenario_is_dumped_and_parsed_back_equal() {
    for scenario in builtin_scenarios() {
        let text = dump(&scenario).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        let read = parse(&SourceText::new(&scenario.name, text)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, scenario);
    }
}

#[test]
fn settings_of_every_kind_are_dumped_and_parsed_back_equal() {
    let mut full = parse(&SourceText::new("s.toml", MINIMAL_SCENARIO)).unwrap();
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
fn disabled_settings_are_dumped_as_never_and_parsed_back() {
    let off = parse(&SourceText::new("s.toml", MINIMAL_SCENARIO)).unwrap();
    let off = Scenario { shutdown_rate: None, rate_limit_patience: None, degraded_rate: None, ..off };
    let text = dump(&off).unwrap();
    for line in ["shutdown_rate = \"never\"", "rate_limit_patience_ms = \"never\"", "degraded_rate = \"never\""] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert_eq!(parse(&SourceText::new("s.toml", text)).unwrap(), off);
    let error = parse_error("rows = 8", "rows = 8\nshutdown_rate = \"nevr\"");
    assert!(error.contains("a number, or \"never\""), "{error}");
}

#[test]
fn dumping_a_setting_that_a_file_cannot_express_fails() {
    let cancel_at = Some(Duration::from_nanos((1 << 60) + 1));
    let late = Scenario { cancel_at, ..builtin_scenarios().swap_remove(0) };
    assert!(dump(&late).unwrap_err().to_string().contains("a file cannot express"));
}

#[test]
fn an_unknown_key_is_rejected_with_its_position_and_the_nearest_known_key() {
    let error = parse_error("max_parallel", "max_paralel");
    assert!(error.starts_with("s.toml:12:1: unknown key `max_paralel` in [[models]]"), "{error}");
    assert!(error.contains("did you mean `max_parallel`?"), "{error}");
    let error = parse_error("rows = 8", "rows = 8\nseed = 3");
    assert!(error.starts_with("s.toml:5:1: unknown key `seed` in the scenario"), "{error}");
}

#[test]
fn a_duration_of_the_original_system_is_rejected_with_the_key_of_a_scenario() {
    for (from, to, help) in [
        ("rows = 8", "rows = 8\nstartup_ramp_seconds = 3", "`ramp_ms`, in milliseconds, in `request` of the model"),
        ("name = \"m\"", "name = \"m\"\ncooldown_seconds = 3", "`cooldown_ms`, in milliseconds, in `request`"),
        ("provider = {}", "provider = {}\nrequest = { rampup_seconds = 3 }", "`ramp_ms`, in milliseconds"),
        ("name = \"c\"", "name = \"c\"\ncooldown_seconds = 3", "`cooldown_ms`, in milliseconds"),
    ] {
        let error = parse_error(from, to);
        assert!(error.contains("unknown key `") && error.contains(&format!("help: use instead: {help}")), "{error}");
    }
}

#[test]
fn a_key_of_pipeline_files_is_rejected_with_the_key_of_a_scenario() {
    for (line, help) in [
        ("limit = \"tide\"", "use instead: `algorithm`, such as `algorithm = { name = \"tide\" }`"),
        ("aimd = {}", "use instead: `request` of the model"),
        ("cooldown = \"2s\"", "use instead: `cooldown_ms`, in milliseconds, in `request` of the model"),
        ("max_cooldown = \"2s\"", "use instead: `max_cooldown_ms`, in milliseconds, in `request` of the model"),
        ("ramp = \"2s\"", "use instead: `ramp_ms`, in milliseconds, in `request` of the model"),
        ("budgets = {}", "there is no such setting: a scenario has no budgets"),
        ("request = { cooldown = \"2s\" }", "use instead: `cooldown_ms`, in milliseconds"),
    ] {
        let error = parse_error("provider = {}", &format!("provider = {{}}\n{line}"));
        assert!(error.contains("unknown key `") && error.contains(&format!("help: {help}")), "{error}");
    }
}

#[test]
fn an_array_in_place_of_a_table_is_rejected_with_its_position() {
    let error = parse_error("provider = {}", "provider = { faults = [0.5] }");
    let expected = "s.toml:11:23: `faults` in [models.provider] is an array of 1 item";
    assert!(error.starts_with(expected) && error.contains("expected a table"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_rejected_with_its_key_and_the_expected_type() {
    let error = parse_error("rows = 8", "rows = \"many\"");
    assert!(error.starts_with("s.toml:4:8: `rows` in the scenario is the string \"many\""), "{error}");
    assert!(error.contains("expected a whole number, 0 or more"), "{error}");
    let error = parse_error("\"cell\"", "\"cel\"");
    assert!(error.starts_with("s.toml:16:12: `strategy` in [[columns]] is the string \"cel\""), "{error}");
    assert!(error.contains("did you mean `cell`?"), "{error}");
    let error = parse_error("provider = {}", "provider = { latency = { law = \"constant\", latency_ms = true } }");
    assert!(error.starts_with("s.toml:11:57: `latency_ms` in [models.provider.latency] is true"), "{error}");
    assert!(error.contains("a number of milliseconds"), "{error}");
    let error = parse_error("provider = {}", "provider = { latency = { law = \"konstant\" } }");
    assert!(
        error.starts_with("s.toml:11:32: `law` in [models.provider.latency] is the string \"konstant\""),
        "{error}"
    );
    let error = parse_error("submission_limit = 4\n", "");
    assert!(error.contains("the scenario has no `submission_limit`"), "{error}");
    let error = parse_error("rows = 8", "rows = ");
    assert!(error.starts_with("s.toml:4:") && error.contains("not TOML"), "{error}");
}

#[test]
fn a_scenario_that_cannot_run_is_rejected_at_the_setting_that_prevents_it() {
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
        let error = parse_error(from, to);
        assert!(error.starts_with(place), "{to}: {error}");
    }
}

#[test]
fn changes_are_parsed_and_invalid_changes_are_rejected_at_their_position() {
    let change = |line: &str| format!("rows = 8\n\n[[changes]]\nat_ms = 3\n{line}\n");
    let text = MINIMAL_SCENARIO.to_string()
        + "\n[[changes]]\nat_ms = 3\nset = \"slow\"\nmodel = \"m\"\nfactor = 2\nfor_ms = 10\n";
    let read = parse(&SourceText::new("s.toml", text)).unwrap();
    assert_eq!(read.changes.len(), 1);
    assert_eq!(parse(&SourceText::new("s.toml", dump(&read).unwrap())).unwrap(), read);
    let line = MINIMAL_SCENARIO.lines().count() + 4;
    for (lines, expected) in [
        (
            "set = \"slow\"\nmodel = \"n\"\nfactor = 2\nfor_ms = 1",
            format!("s.toml:{}:9: `changes[0].model` is n", line + 1),
        ),
        (
            "set = \"slow\"\nmodel = \"m\"\nfactor = 0\nfor_ms = 1",
            format!("s.toml:{}:10: `changes[0].factor`", line + 2),
        ),
        ("set = \"slow\"\nmodl = \"m\"", format!("s.toml:{}:1: unknown key `modl` in [[changes]]", line + 1)),
        ("set = \"slow\"\nmodel = \"m\"", "[[changes]] has no `factor`".to_string()),
        (
            "set = \"slow\"\nmodel = \"m\"\nfor_ms = 1\nfactor = \"x\"",
            format!("s.toml:{}:10: `factor` in [[changes]] is the string \"x\"", line + 3),
        ),
        (
            "set = \"request\"\nmodel = \"m\"\nrequest = { decrease_factor = 2.0 }",
            format!("s.toml:{}:31: `changes[0].request.decrease_factor`", line + 2),
        ),
    ] {
        let text = MINIMAL_SCENARIO.to_string() + "\n" + change(lines).trim_start_matches("rows = 8\n\n");
        let error = parse(&SourceText::new("s.toml", text)).unwrap_err().to_string();
        assert!(error.contains(&expected), "{lines}: {error}");
    }
}

#[test]
fn an_unknown_scenario_name_is_rejected_with_the_nearest_name() {
    let error = find_scenario("outagee").unwrap_err().to_string();
    assert!(error.contains("no built-in scenario") && error.contains("did you mean `outage`?"), "{error}");
    assert!(find_scenario("nowhere.toml").unwrap_err().to_string().contains("cannot read the file"));
}

fn simulate_ok(args: &SimulateArgs) -> (String, Exit) {
    simulate(args).unwrap_or_else(|error| panic!("{error}"))
}

fn args(scenario: &str) -> SimulateArgs {
    SimulateArgs { scenario: Some(scenario.to_string()), seed: 7, ..SimulateArgs::default() }
}

#[test]
fn a_report_contains_rows_resources_digest_and_laws_and_is_equal_for_equal_seeds() {
    let (text, exit) = simulate_ok(&args("outage"));
    assert_eq!(exit, Exit::Done);
    for part in ["rows in            1200", "laws         all kept", "calls of shaky", "submission", "digest"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(simulate_ok(&args("outage")).0, text);
    assert_ne!(simulate_ok(&SimulateArgs { seed: 8, ..args("outage") }).0, text);
}

#[test]
fn the_json_report_contains_its_schema_version_and_the_figures() {
    let (text, _) = simulate_ok(&SimulateArgs { json: true, ..args("request-pressure/both") });
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["schema"], &json["violation"]), (&SCHEMA.into(), &serde_json::Value::Null));
    assert_eq!(json["lower_bound_ns"], 82_000_000);
    assert_eq!(json["run"]["rows_out"], 32);
    assert_eq!(json["figures"]["tasks"][0]["name"], "submission");
    assert_eq!(json["digest"].as_str().map(str::len), Some(16));
}

#[test]
fn policy_and_limit_of_the_command_line_replace_those_of_the_scenario() {
    let digest = |args: &SimulateArgs| {
        let (text, _) = simulate_ok(&SimulateArgs { json: true, ..args.clone() });
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["digest"].clone()
    };
    let plain = digest(&args("unknown-limit"));
    assert_ne!(digest(&SimulateArgs { limit: Some(LimitName::Fixed), ..args("unknown-limit") }), plain);
    assert_eq!(digest(&SimulateArgs { policy: Some(PolicyName::BoundedBorrow), ..args("unknown-limit") }), plain);
    let strict = |policy| digest(&SimulateArgs { policy, ..args("late-peer/bounded") });
    assert_ne!(strict(Some(PolicyName::StrictFair)), strict(None));
    let without_models = simulate(&SimulateArgs { limit: Some(LimitName::Fixed), ..args("fan/in") });
    assert!(without_models.unwrap_err().to_string().contains("has no model"));
}

#[test]
fn the_list_contains_every_built_in_scenario() {
    let (text, _) = simulate_ok(&SimulateArgs { list: true, ..SimulateArgs::default() });
    assert!(text.starts_with("unknown-limit ") && text.contains("\nvery-many/row-groups "), "{text}");
    assert_eq!(text.lines().count(), builtin_scenarios().len());
}

#[test]
fn writing_a_trace_does_not_change_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.json");
    let traced = simulate_ok(&SimulateArgs { trace: Some(trace.clone()), ..args("outage") });
    assert_eq!(traced, simulate_ok(&args("outage")));
    let text = std::fs::read_to_string(trace).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["traceEvents"].as_array().unwrap().len() > 1_000);
    let unwritable = SimulateArgs { trace: Some(directory.path().join("no/such/file")), ..args("outage") };
    assert!(simulate(&unwritable).unwrap_err().to_string().contains("no/such/file"));
}
