//! Every recorded trace that is kept here agrees with the real machines.

use std::fs;
use std::path::Path;

use tidegate_tests::conform::replay;

/// Replays the traces of a component; answers how many there were.
fn traces_of(component: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(component);
    let files = fs::read_dir(&folder).expect("the traces are part of the project");
    let mut seen = 0;
    for file in files {
        let path = file.expect("a readable folder").path();
        let text = fs::read_to_string(&path).expect("a readable trace");
        let outcome = replay(&text).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert_eq!(outcome.difference, None, "{}", path.display());
        if component == "request_admission" {
            assert_eq!(outcome.other_events, Vec::<String>::new(), "{}", path.display());
        }
        assert!(outcome.compared > 0, "{} compared nothing", path.display());
        seen += 1;
    }
    seen
}

#[test]
fn recorded_request_admission_is_reproduced_to_the_grant() {
    assert_eq!(traces_of("request_admission"), 32);
}

#[test]
fn recorded_fair_queueing_is_reproduced_to_the_turn() {
    assert_eq!(traces_of("fair_task_queue"), 25);
}

#[test]
fn recorded_task_admission_is_reproduced_to_the_lease_and_the_debt() {
    assert_eq!(traces_of("task_admission"), 27);
}

#[test]
fn a_trace_that_contradicts_the_machine_is_reported_with_both_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/request_admission");
    let text = fs::read_to_string(folder.join("hand_r01_default_success_and_single_429.json")).expect("a trace");
    let forged = text.replacen("\"in_flight\":1", "\"in_flight\":2", 1);
    assert_ne!(text, forged);
    let difference = replay(&forged).expect("still a trace").difference.expect("a difference");
    assert!(difference.contains("recorded 2, got 1"), "{difference}");
}
