//! Tests of the `tidegate simulate` and `tidegate regress` commands: output, files and exit codes.

use crate::support::Scratch;

#[test]
fn a_dumped_scenario_runs_like_the_built_in_one() {
    let scratch = Scratch::new(0);
    let dumped = scratch.run(&["simulate", "generate-judge/two-models", "--dump"]);
    dumped.assert(0, &["[[models]]"]);
    scratch.write("mine.toml", &dumped.stdout);
    let own = scratch.run(&["simulate", "mine.toml", "--json", "--seed", "9"]);
    own.assert(0, &["\"schema\": 1"]);
    assert_eq!(own.stdout, scratch.run(&["simulate", "generate-judge/two-models", "--json", "--seed", "9"]).stdout);
}

#[test]
fn a_dump_runs_nothing_so_it_cannot_be_combined_with_output_of_a_run() {
    let scratch = Scratch::new(0);
    for output in [&["--trace", "t.json"][..], &["--json"]] {
        let arguments = [&["simulate", "unknown-limit", "--dump"], output].concat();
        scratch.run(&arguments).assert(2, &["cannot be used with"]);
    }
    assert!(!scratch.path("t.json").exists());
}

#[test]
fn an_invalid_scenario_exits_2_with_the_location_of_the_error() {
    let scratch = Scratch::new(0);
    scratch.write("mine.toml", "name = \"n\"\nrwos = 3\n");
    scratch
        .run(&["simulate", "mine.toml"])
        .assert(2, &["mine.toml:2:1: unknown key `rwos` in the scenario", "did you mean `rows`?"]);
    scratch.run(&["simulate", "outagee"]).assert(2, &["did you mean `outage`?"]);
    scratch.run(&["simulate", "unknown-limit", "--policy", "first_come"]).assert(2, &["strict_fair, bounded_borrow"]);
}

#[test]
fn a_difference_from_the_baseline_is_reported_and_exits_7() {
    let scratch = Scratch::new(0);
    let files = ["--update-baseline", "idle.json", "--report", "idle.html"];
    scratch
        .run(&[&["regress", "--quick"], &files[..]].concat())
        .assert(0, &["adaptive-row-groups/adaptive", " 0 missed"]);
    let again = ["regress", "--quick", "--baseline", "idle.json"];
    scratch.run(&again).assert(0, &["all figures equal the baseline"]);
    let read = |name: &str| std::fs::read_to_string(scratch.path(name)).expect(name);
    assert!(read("idle.html").starts_with("<!DOCTYPE html>"));
    let baseline = read("idle.json").replacen("\"wall_ns\": 1689600000", "\"wall_ns\": 1600000000", 1);
    scratch.write("idle.json", &baseline);
    scratch
        .run(&again)
        .assert(7, &["differences from the baseline: 1", "wall_ns: 1600000000 -> 1689600000  (+5.60 %)"]);
    scratch.write("idle.json", "{}");
    scratch.run(&again).assert(2, &["the baseline idle.json: missing field `schema`"]);
}
