//! Tests of a job that spans several runs: partial row groups, retried dropped rows, added rows, and the
//! totals of all runs.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::patience::wait_until;
use crate::support::row_provider::{AT_ONCE, Provider, pipeline};
use crate::support::{Scratch, dataset, interrupt_twice};

/// Returns the numbers of all output rows, in file order.
fn numbers(scratch: &Scratch) -> Vec<u64> {
    scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect()
}

fn resume(scratch: &Scratch, more: &[&str]) -> crate::support::Ended {
    scratch.run(&[&["run", "p.toml", "--out", "out", "--resume"], more].concat())
}

#[test]
fn a_run_terminated_within_a_row_group_keeps_complete_rows_and_repeats_no_call() {
    let scratch = Scratch::new(30);
    let provider = Provider::new(10);
    scratch.write("p.toml", &pipeline(&provider, 20));
    let mut run = scratch.command(&["run", "p.toml", "--out", "out", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    wait_until(|| provider.calls(), |calls| *calls == 14);
    assert!(Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap().success());
    let mut line = String::new();
    while !line.contains("terminated: awaiting outstanding calls") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended first");
    }
    provider.go().add_permits(100);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!((run.wait().unwrap().code(), provider.calls()), (Some(130), 14), "{rest}");
    let kept = numbers(&scratch);
    assert!(kept.len() == 14 && kept.is_sorted(), "{kept:?}");
    assert!(scratch.dropped("out").is_empty() && !scratch.unmade("out").is_empty());
    assert_eq!(scratch.manifest("out")["rows_dropped"], 0);
    resume(&scratch, &[]).assert(0, &["resumed         14", "rows out        16", "calls in 2 runs"]);
    provider.assert_called_once(30);
    assert_eq!(numbers(&scratch), (0..30).collect::<Vec<_>>());
    assert_eq!(scratch.unmade("out").len(), 0);
}

#[test]
fn dropped_rows_are_retried_with_the_command_that_the_run_prints() {
    let scratch = Scratch::new(20);
    let provider = Provider::new(AT_ONCE);
    // The last row of one row group and the first of the next.
    provider.reject([9, 10]);
    scratch.write("p.toml", &pipeline(&provider, 10));
    let first = scratch.run(&["run", "p.toml", "--out", "out", "--limit", "19", "--report", "r.html"]);
    first.assert(
        6,
        &["dropped          2", "2   title: request", "for example row 9: the request was refused (HTTP 400)"],
    );
    let command = "tidegate run p.toml --out out --limit 19 --resume --retry-dropped";
    first.assert(6, &[&format!("to retry them: {command}\n")]);
    let report = std::fs::read_to_string(scratch.path("r.html")).unwrap();
    assert!(report.contains(command) && report.contains("<td>request</td>"), "{report}");
    assert_eq!((scratch.dropped("out").len(), provider.calls()), (2, 19));

    resume(&scratch, &["--limit", "19"]).assert(6, &["2 of them by earlier runs"]);
    resume(&scratch, &["--limit", "19", "--retry-dropped", "timeout,connection"]).assert(6, &["dropped          2"]);
    assert_eq!(provider.calls(), 19, "no call is made");
    provider.reject([10]);
    let again = scratch.shell(&command.replacen("tidegate", env!("CARGO_BIN_EXE_tidegate"), 1));
    again.assert(6, &["rows out         1", "dropped          1", "for example row 10"]);
    assert_eq!((provider.calls(), numbers(&scratch).len()), (21, 18));
    provider.reject([]);
    resume(&scratch, &["--limit", "19", "--retry-dropped", "request"])
        .assert(0, &["rows out         1", "calls in 5 runs"]);
    assert_eq!(numbers(&scratch), (0..19).collect::<Vec<_>>());
    assert_eq!((scratch.dropped("out").len(), provider.calls()), (0, 22));
    resume(&scratch, &["--retry-dropped", "weather"])
        .assert(2, &["`weather` is not a drop reason; the reasons are request,"]);
    scratch.run(&["p.toml", "--retry-dropped"]).assert(2, &["--resume"]);
}

#[test]
fn a_job_can_be_extended_to_more_rows_and_to_rows_added_to_the_dataset() {
    let scratch = Scratch::new(9);
    let provider = Provider::new(AT_ONCE);
    scratch.write("p.toml", &pipeline(&provider, 4));
    scratch.run(&["run", "p.toml", "--out", "out", "--limit", "6"]).assert(0, &["rows out         6"]);
    resume(&scratch, &["--limit", "5"]).assert(5, &["the job had 6 rows and now has 5: a job can be extended"]);
    resume(&scratch, &["--rows", "1..9"]).assert(5, &["the first row of the job was 0 and is now 1"]);
    resume(&scratch, &["--limit", "7"]).assert(0, &["resumed          6", "rows out         1"]);
    resume(&scratch, &[]).assert(0, &["rows out         2"]);
    let before = dataset(9);
    scratch.write("data.csv", &dataset(14));
    resume(&scratch, &[]).assert(0, &["resumed          9", "rows out         5"]);
    provider.assert_called_once(14);
    assert_eq!(numbers(&scratch), (0..14).collect::<Vec<_>>());
    for changed in [before.replace("0,entry", "0,Entry"), dataset(13), format!("{}book\n", dataset(14).trim_end())] {
        scratch.write("data.csv", &changed);
        resume(&scratch, &[]).assert(5, &["the dataset has changed since then (it had "]);
    }
    assert_eq!((numbers(&scratch).len(), provider.calls()), (14, 14));
}

#[test]
fn the_cost_limit_covers_all_runs_of_a_job_and_each_run_keeps_its_record() {
    let scratch = Scratch::new(40);
    let provider = Provider::new(AT_ONCE);
    scratch.write("p.toml", &pipeline(&provider, 4).replace("prompt =", "max_tokens = 60\nprompt ="));
    let run = |most: &str, more: &[&str]| {
        let arguments = ["run", "p.toml", "--out", "out", "--max-cost", most, "--report", "r.html"];
        scratch.run(&[&arguments[..], more].concat())
    };
    run("1", &[]).assert(8, &["the next call might pass the cost limit of 1.00 USD"]);
    let (calls, rows) = (provider.calls(), numbers(&scratch).len());
    // Each call reserves more than 0.06 USD before it starts.
    assert!((1..=16).contains(&calls) && rows == calls, "{calls} calls for {rows} rows: none of them is thrown away");
    run("1", &["--resume"]).assert(8, &[]);
    assert!(provider.calls() <= calls + 1, "the job had already reached its limit");
    run("100", &["--resume"]).assert(0, &["4.00 USD", "calls in 3 runs"]);
    provider.assert_called_once(40);
    let manifest = scratch.manifest("out");
    let model = &manifest["totals"]["models"]["remote/m"];
    assert_eq!(
        (&model["calls"], &model["input_tokens"], &model["cost"]),
        (&json!(40), &json!(1_600), &json!("4.000000000000"))
    );
    assert_eq!((&manifest["totals"]["runs"], &manifest["totals"]["spent"]), (&json!(3), &json!("4.000000000000")));
    for kept in ["r.html", "r.1.html", "r.2.html", "out/capacity.json", "out/capacity.1.json", "out/capacity.2.json"] {
        assert!(scratch.path(kept).exists(), "{kept}");
    }
    run("100", &["--overwrite"]).assert(0, &[]);
    assert!(!scratch.path("out/capacity.1.json").exists());
}

/// Returns the bytes of every file below `out`, except the manifest, which a running program updates.
fn files(scratch: &Scratch) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let list = |directory: &std::path::Path| {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut paths = list(&scratch.path("out"));
    paths.extend(list(&scratch.path("out/rows")));
    paths.retain(|path| path.is_file() && !path.to_string_lossy().contains("manifest.json"));
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn a_second_run_on_a_directory_is_rejected_and_changes_nothing_with_any_output_option() {
    let scratch = Scratch::new(30);
    let provider = Provider::new(10);
    scratch.write("p.toml", &pipeline(&provider, 4));
    let arguments = ["run", "p.toml", "--out", "out", "--events", "events.jsonl", "--report", "r.html", "-q"];
    let mut first = scratch.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
    wait_until(|| provider.calls(), |calls| *calls == 14);
    let before = files(&scratch);
    for existing in [None, Some("--overwrite"), Some("--resume")] {
        let arguments: Vec<&str> = arguments.into_iter().chain(existing).collect();
        scratch.run(&arguments).assert(5, &["another run is writing to out"]);
        assert_eq!((files(&scratch), provider.calls()), (before.clone(), 14), "{existing:?}");
    }
    provider.go().add_permits(100);
    assert_eq!(first.wait().unwrap().code(), Some(0));
    provider.assert_called_once(30);
    assert!(scratch.path("r.html").exists() && std::fs::metadata(scratch.path("events.jsonl")).unwrap().len() > 0);
    scratch.run(&arguments).assert(5, &["out is not empty"]);
}

#[test]
fn of_simultaneous_runs_in_one_directory_one_makes_all_rows_and_the_others_are_rejected() {
    let scratch = Scratch::new(8);
    for _ in 0..5 {
        let provider = Provider::new(AT_ONCE);
        scratch.write("p.toml", &pipeline(&provider, 4));
        let arguments = ["run", "p.toml", "--out", "out", "--events", "events.jsonl", "-q"];
        let start = || scratch.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let runs = [(); 4].map(|()| start());
        let ended = runs.map(|run| run.wait_with_output().unwrap());
        let (done, rejected): (Vec<_>, Vec<_>) = ended.iter().partition(|ended| ended.status.code() == Some(0));
        assert_eq!((done.len(), numbers(&scratch).len()), (1, 8));
        for ended in rejected {
            let why = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(5), "{why}");
            assert!(why.contains("another run is writing to out") || why.contains("out is not empty"), "{why}");
        }
        provider.assert_called_once(8);
        let events = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
        assert!(events.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()) && !events.is_empty());
        std::fs::remove_dir_all(scratch.path("out")).unwrap();
        std::fs::remove_file(scratch.path("events.jsonl")).unwrap();
    }
}

/// Returns the amount that the job in `out` may have spent, read from its file.
fn spent(scratch: &Scratch) -> f64 {
    std::fs::read_to_string(scratch.path("out/spent.txt")).map_or(0.0, |text| text.trim().parse().unwrap())
}

/// Asserts that two amounts are equal up to rounding.
fn assert_amounts(amount: f64, expected: f64) {
    assert!((amount - expected).abs() < 1e-9, "{amount} and not {expected}");
}

/// Starts a run of 40 rows at a provider that answers ten calls and leaves the next four waiting. Returns the
/// run and the estimated cost of a call.
fn start_with_four_calls_in_flight(scratch: &Scratch, provider: &Provider) -> (std::process::Child, f64) {
    scratch.write("p.toml", &pipeline(provider, 4).replace("prompt =", "max_tokens = 60\nprompt ="));
    let run = scratch.command(&["run", "p.toml", "--out", "out", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    // The provider counts the next calls before the run has processed its answers. Ten answers cost 0.1 each,
    // and four calls are in flight.
    wait_until(
        || (provider.calls(), spent(scratch).to_bits()),
        |(calls, spent)| *calls == 14 && (1.2..1.4).contains(&f64::from_bits(*spent)),
    );
    let estimate = (spent(scratch) - 1.0) / 4.0;
    (run, estimate)
}

#[test]
fn calls_in_flight_when_a_run_is_killed_count_against_the_cost_limit_of_the_job() {
    let scratch = Scratch::new(40);
    let provider = Provider::new(10);
    let (mut run, estimate) = start_with_four_calls_in_flight(&scratch, &provider);
    run.kill().unwrap();
    run.wait().unwrap();
    let before = spent(&scratch);
    assert!(estimate > 0.06, "{estimate}: sixty tokens of answer, and the prompt");
    provider.go().add_permits(100);

    let most = (before + estimate / 2.0).to_string();
    resume(&scratch, &["--max-cost", &most]).assert(8, &["the next call might pass the cost limit"]);
    assert_eq!(provider.calls(), 14, "no further call is made");
    let again = scratch.rows("out").len();
    resume(&scratch, &["--max-cost", "100"]).assert(0, &["calls in 3 runs"]);
    assert_eq!(numbers(&scratch), (0..40).collect::<Vec<_>>());
    assert_amounts(spent(&scratch), before + 0.1 * (40 - again) as f64);
    let manifest = scratch.manifest("out");
    assert_amounts(manifest["totals"]["spent"].as_str().unwrap().parse().unwrap(), spent(&scratch));
    scratch.run(&["run", "p.toml", "--out", "out", "--overwrite", "-q"]).assert(0, &[]);
    assert_amounts(spent(&scratch), 4.0);
}

#[test]
fn calls_aborted_by_a_second_interrupt_count_with_their_estimates() {
    let scratch = Scratch::new(40);
    let provider = Provider::new(10);
    let (run, estimate) = start_with_four_calls_in_flight(&scratch, &provider);
    let (code, output) = interrupt_twice(run);
    assert_eq!(code, Some(130), "{output}");
    let manifest = scratch.manifest("out");
    assert_amounts(manifest["totals"]["spent"].as_str().unwrap().parse().unwrap(), 1.0 + 4.0 * estimate);
    assert_amounts(spent(&scratch), 1.0 + 4.0 * estimate);
}

/// Returns the counts of rows and row groups in the manifest.
fn counts(scratch: &Scratch) -> [Value; 4] {
    let manifest = scratch.manifest("out");
    ["rows_out", "rows_dropped", "row_groups", "done"].map(|key| manifest[key].clone())
}

#[test]
fn a_retried_row_group_with_a_worse_result_is_left_unchanged() {
    let scratch = Scratch::new(8);
    let provider = Provider::new(AT_ONCE);
    let whole = "[[columns]]\nname = \"all\"\nkind = \"expression\"\nstrategy = \"full_column\"\n\
                 upstreams = [\"title\"]\ntemplate = \"{{ rows | length }}\"\n";
    // Otherwise the run stops before the result of the second row group is known.
    let text = pipeline(&provider, 4).replace("[run]\n", &format!("{whole}[run]\nshutdown_rate = \"never\"\n"));
    scratch.write("p.toml", &text);
    let longer = ["run", "p.toml", "--out", "out", "--limit"];
    provider.reject([1]);
    scratch.run(&[&longer[..], &["6"]].concat()).assert(6, &["rows out         5"]);
    let (rows, before) = (scratch.rows("out"), counts(&scratch));
    assert_eq!(before, [json!(5), json!(1), json!(2), json!(["0-1"])]);

    // The run stops before it makes a row again, so the counts do not change.
    let limit = ["--limit", "6", "--retry-dropped", "--max-cost", "0.61"];
    resume(&scratch, &limit).assert(8, &["dropped          1", "1 of them by earlier runs"]);
    assert_eq!((scratch.rows("out"), counts(&scratch)), (rows.clone(), before));

    provider.reject([0, 2, 4, 5]);
    let again = resume(&scratch, &["--limit", "8", "--retry-dropped"]);
    again.assert(6, &["row group 0 was made again with 2 rows and has 3 already: the existing rows are kept"]);
    again.assert(6, &["row group 1 was made again with 2 rows and has 2 already: the existing rows are kept"]);
    again.assert(6, &["dropped          1", "not done         2   their row groups were kept unchanged"]);
    assert_eq!((scratch.rows("out"), scratch.unmade("out").len()), (rows, 2));
    assert_eq!(counts(&scratch), [json!(5), json!(1), json!(1), json!(["0"])]);

    provider.reject([4]);
    resume(&scratch, &["--retry-dropped"]).assert(6, &["rows out         7", "dropped          1"]);
    assert_eq!(numbers(&scratch), [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(counts(&scratch), [json!(7), json!(1), json!(2), json!(["0-1"])]);
}
