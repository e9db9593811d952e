//! Tests of decision logs: a run over real sockets and threads is recorded and replayed.

use std::fs;

use crate::support::{Scratch, mock_pipeline};

/// A provider that rejects some calls, so that the scheduler has decisions to make.
const NARROW: &str =
    "capacity = { shape = \"constant\", slots = 3 }, latency = { law = \"uniform\", low_ms = 1, high_ms = 9 }";

/// Records a run of 40 rows.
fn recorded() -> Scratch {
    let scratch = Scratch::new(40);
    scratch.write("pipeline.toml", &mock_pipeline(8, "cooldown = \"10ms\"", NARROW));
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--record", "log.jsonl"]).assert(0, &["rows out        40"]);
    scratch
}

#[test]
fn a_replay_makes_the_same_decisions_as_the_recorded_run() {
    let scratch = recorded();
    let replayed = scratch.run(&["replay", "log.jsonl"]);
    replayed.assert(0, &["the run: completed; 40 of 40 rows out, 0 dropped", "every decision is the same"]);
    assert_eq!(replayed.stdout, scratch.run(&["replay", "log.jsonl"]).stdout, "two replays print the same");
}

#[test]
fn a_modified_log_is_reported_as_different() {
    let scratch = recorded();
    let log = fs::read_to_string(scratch.path("log.jsonl")).unwrap();
    // Every successful call becomes a rate-limited one.
    let well = "\"outcome\":\"success\",\"retry_after\":null";
    let changed = log.replace(well, "\"outcome\":\"rate_limited\",\"retry_after\":null");
    assert_ne!(log, changed);
    scratch.write("changed.jsonl", &changed);
    scratch.run(&["replay", "changed.jsonl"]).assert(7, &["THE DECISIONS DIFFER"]);
}

#[test]
fn the_log_of_a_killed_run_is_replayed_up_to_its_end() {
    let scratch = recorded();
    let log = fs::read_to_string(scratch.path("log.jsonl")).unwrap();
    scratch.write("cut.jsonl", &log[..log.len() * 2 / 3]);
    scratch.run(&["replay", "cut.jsonl"]).assert(0, &["the log has no end line", "there is nothing to compare"]);
}

#[test]
fn a_file_that_is_not_a_log_is_rejected_with_the_line() {
    let scratch = recorded();
    let log = fs::read_to_string(scratch.path("log.jsonl")).unwrap();
    let mut lines: Vec<&str> = log.lines().collect();
    // The number of another entry, so that the count of entries is right.
    let gap = log.replacen(lines[9], lines[10], 1);
    lines[4] = "{\"n\":3,\"command\":{\"pipeline\":{\"do\":\"strat\"}}}";
    for (name, text, message) in [
        ("empty.jsonl", String::new(), "empty.jsonl:1: this is not a line of a decision log: the log is empty"),
        ("other.jsonl", "{\"x\":1}\n".to_owned(), "other.jsonl:1: this is not a line of a decision log"),
        (
            "headless.jsonl",
            lines[1..].join("\n"),
            "headless.jsonl:1: this is not a line of a decision log: the first line is not a header",
        ),
        ("typo.jsonl", lines.join("\n"), "typo.jsonl:5: this is not a line of a decision log: unknown variant `strat`"),
        ("after.jsonl", format!("{log}{}", lines[1]), "the line before it is the end"),
        ("short.jsonl", log.replacen(lines[9], "", 1).replace("\n\n", "\n"), "short.jsonl:"),
        ("gap.jsonl", gap, "gap.jsonl: entry 8 is missing"),
        ("later.jsonl", log.replacen("\"schema\":4", "\"schema\":9", 1), "later.jsonl: the log has schema 9"),
    ] {
        scratch.write(name, &text);
        scratch.run(&["replay", name]).assert(2, &[message]);
    }
    scratch.run(&["replay", "nowhere.jsonl"]).assert(2, &["nowhere.jsonl: No such file"]);
}

#[test]
fn a_log_that_cannot_be_created_prevents_the_run_and_a_full_disk_does_not_stop_it() {
    let scratch = Scratch::new(4);
    scratch.write("pipeline.toml", &mock_pipeline(8, "cooldown = \"10ms\"", NARROW));
    let refused = scratch.run(&["run", "pipeline.toml", "--out", "out", "--record", "no/such/log.jsonl"]);
    refused.assert(5, &["cannot write to no/such/log.jsonl: No such file"]);
    assert!(!scratch.path("out").exists(), "{}", refused.all());
    if std::path::Path::new("/dev/full").exists() {
        let full = scratch.run(&["run", "pipeline.toml", "--out", "out", "--record", "/dev/full"]);
        full.assert(0, &["rows out         4", "the decision log /dev/full is incomplete: No space left"]);
    }
}

#[test]
fn a_log_contains_no_prompt_answer_or_row_value() {
    let scratch = recorded();
    let log = fs::read_to_string(scratch.path("log.jsonl")).unwrap();
    let title = scratch.rows("out")[0]["title"].as_str().unwrap().to_owned();
    for secret in ["breakwater", "A title for", &title] {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
}

#[test]
fn the_logs_that_the_wasm_tests_replay_are_replayed_here_too() {
    for name in ["decision_log", "shared_decision_log", "leader_decision_log"] {
        let log = format!("{}/tests/data/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        Scratch::new(1).run(&["replay", &log]).assert(0, &["every decision is the same"]);
    }
}

#[cfg(unix)]
#[test]
fn an_output_inside_of_the_output_directory_is_rejected_under_any_spelling() {
    let scratch = Scratch::new(4);
    scratch.write("p.toml", &mock_pipeline(8, "", NARROW));
    let refused = |arguments: &[&str]| {
        let ended = scratch.run(&[&["run", "p.toml", "--out", "out"], arguments].concat());
        let (flag, path) = (arguments[arguments.len() - 2], arguments[arguments.len() - 1]);
        let message =
            format!("{flag} names {path}, which is inside of the output directory out; expected a file outside");
        assert!(ended.code == 2 && ended.stderr.contains(&message), "{arguments:?}: {}", ended.stderr);
    };
    refused(&["--events", "out/events.jsonl"]);
    assert!(!scratch.path("out").exists(), "a run that did not start leaves no directory");
    scratch.run(&["run", "p.toml", "--out", "out"]).assert(0, &[]);
    let manifest = fs::read_to_string(scratch.path("out/manifest.json")).unwrap();
    std::os::unix::fs::symlink(scratch.path("out"), scratch.path("alias")).unwrap();
    std::os::unix::fs::symlink(scratch.path("out/manifest.json"), scratch.path("link.json")).unwrap();
    for existing in ["--overwrite", "--resume"] {
        for flag in ["--record", "--events", "--trace", "--report"] {
            for path in ["out/manifest.json", "out/../out/new.json", "alias/new.json", "link.json"] {
                refused(&[existing, flag, path]);
            }
        }
    }
    assert_eq!(fs::read_to_string(scratch.path("out/manifest.json")).unwrap(), manifest);
    assert!(!scratch.path("out/new.json").exists(), "no file is left behind");
}

#[cfg(unix)]
#[test]
fn two_outputs_to_the_same_file_are_rejected_under_any_spelling() {
    let scratch = Scratch::new(4);
    scratch.write("pipeline.toml", &mock_pipeline(8, "", NARROW));
    scratch.write("there.jsonl", "kept");
    std::os::unix::fs::symlink(scratch.path("there.jsonl"), scratch.path("link.jsonl")).unwrap();
    std::os::unix::fs::symlink(scratch.path("new.jsonl"), scratch.path("dangling.jsonl")).unwrap();
    fs::hard_link(scratch.path("there.jsonl"), scratch.path("hard.jsonl")).unwrap();
    for (first, second) in [
        ("new.jsonl", "new.jsonl"),
        ("new.jsonl", "./new.jsonl"),
        ("new.jsonl", "dangling.jsonl"),
        ("there.jsonl", "link.jsonl"),
        ("there.jsonl", "hard.jsonl"),
        ("link.jsonl", "hard.jsonl"),
    ] {
        for (one, other) in
            [("--record", "--events"), ("--events", "--trace"), ("--record", "--report"), ("--trace", "--report")]
        {
            let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", one, first, other, second]);
            let message = format!("{one} and {other} name one file, {second}; expected a file for each of them");
            assert!(ended.code == 2 && ended.stderr.contains(&message), "{}", ended.stderr);
        }
    }
    for input in ["pipeline.toml", "data.csv"] {
        let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", "--events", input]);
        assert!(ended.code == 2 && ended.stderr.contains("and --events name one file"), "{}", ended.stderr);
        assert!(!fs::read_to_string(scratch.path(input)).unwrap().is_empty());
    }
    let regress = scratch.run(&["regress", "--quick", "--update-baseline", "new.jsonl", "--report", "./new.jsonl"]);
    assert!(regress.code == 2 && regress.stderr.contains("--update-baseline and --report name one file"));
    let regress = scratch.run(&["regress", "--quick", "--baseline", "there.jsonl", "--report", "hard.jsonl"]);
    assert!(regress.code == 2 && regress.stderr.contains("--baseline and --report name one file"));
    let simulate = scratch.run(&["simulate", "there.jsonl", "--trace", "link.jsonl"]);
    assert_eq!(simulate.code, 2);
    scratch.write("s.toml", &scratch.run(&["simulate", "outage", "--dump"]).stdout);
    let simulate = scratch.run(&["simulate", "s.toml", "--trace", "./s.toml"]);
    assert!(
        simulate.code == 2 && simulate.stderr.contains("SCENARIO and --trace name one file"),
        "{}",
        simulate.stderr
    );
    assert!(!fs::read_to_string(scratch.path("s.toml")).unwrap().is_empty());
    assert_eq!(fs::read_to_string(scratch.path("there.jsonl")).unwrap(), "kept");
    assert!(!scratch.path("out").exists() && !scratch.path("new.jsonl").exists(), "no file is left behind");
    scratch
        .run(&["run", "pipeline.toml", "--out", "out", "--record", "/dev/null", "--events", "/dev/null"])
        .assert(0, &[]);
}
