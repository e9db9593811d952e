//! Tests of resumed runs: no row is lost and none is made twice, whenever and however a run ends.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::patience::wait_until;
use crate::support::row_provider::{Provider, pipeline};
use crate::support::{self, Scratch, interrupt, interrupt_twice, mock_pipeline};
use tidegate_core::sim::rng::Rng;

/// A provider that rejects some calls.
const MOCK: &str = "seed = 5, capacity = { shape = \"constant\", slots = 6 }, \
                    latency = { law = \"uniform\", low_ms = 1, high_ms = 6 }, overload = { response = \"refuse\", retry_after_ms = 3 }";

/// Returns a directory with a pipeline of two columns over 96 rows, in row groups of ten.
fn scratch() -> Scratch {
    let scratch = Scratch::new(96);
    scratch.write("p.toml", &mock_pipeline(8, "cooldown = \"3ms\"", MOCK));
    scratch
}

/// Returns the bytes of every row file, and the counts of the manifest.
fn result(scratch: &Scratch, out: &str) -> (BTreeMap<String, Vec<u8>>, Vec<serde_json::Value>) {
    let files = std::fs::read_dir(scratch.path(out).join("rows")).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    });
    let manifest = scratch.manifest(out);
    let keys = ["state", "reason", "rows_out", "rows_dropped", "row_groups", "done"];
    (files.collect(), keys.iter().map(|key| manifest[*key].clone()).collect())
}

fn start(scratch: &Scratch, arguments: &[&str]) -> Child {
    scratch.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills runs at 200 random moments and resumes each time. The output must equal that of an undisturbed run.
///
/// A failure names the seed. Most of a run is waiting, so several lanes run in parallel.
#[test]
fn a_run_killed_at_any_moment_and_resumed_makes_exactly_the_rows_of_an_undisturbed_run() {
    const LANES: u64 = 4;
    const KILLS_PER_LANE: u32 = 50;
    let scratch = scratch();
    let began = Instant::now();
    scratch.run(&["p.toml", "--out", "whole", "-q"]).assert(0, &[]);
    let span = began.elapsed();
    let whole = result(&scratch, "whole");
    assert_eq!(whole.0.len(), 10);

    let lane = &|seed: u64| {
        let mut rng = Rng::new(seed);
        let (mut kills, mut runs) = (0, 0);
        while kills < KILLS_PER_LANE {
            runs += 1;
            let out = format!("out{seed}-{runs}");
            let arguments = ["p.toml", "--out", &out, "--resume", "-q"];
            loop {
                let mut program = start(&scratch, &arguments);
                let moment = Duration::from_nanos(rng.below(span.as_nanos() as u64 * 5 / 4));
                std::thread::sleep(moment);
                program.kill().unwrap();
                let ended = program.wait().unwrap();
                if let Some(code) = ended.code() {
                    assert_eq!(code, 0, "seed {seed}, run {runs}");
                    break;
                }
                kills += 1;
            }
            assert_eq!(result(&scratch, &out), whole, "seed {seed}, run {runs}");
            scratch.run(&arguments).assert(0, &["resumed         96   10 row groups of earlier runs"]);
            assert_eq!(result(&scratch, &out), whole, "seed {seed}, run {runs}, resumed once more");
        }
    };
    std::thread::scope(|threads| {
        for seed in 20_261_121..20_261_121 + LANES {
            threads.spawn(move || lane(seed));
        }
    });
}

#[test]
fn the_first_interrupt_finishes_work_in_progress_and_the_rest_can_be_resumed() {
    let scratch = Scratch::new(96);
    // Up to three of the ten row groups are complete, and the calls of the next ones wait.
    let provider = Provider::new(35);
    scratch.write("p.toml", &pipeline(&provider, 10));
    let mut program = start(&scratch, &["p.toml", "--out", "out", "--json"]);
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    wait_until(|| scratch.path("out/rows/000000.jsonl").exists(), |exists| *exists);
    interrupt(&program);
    assert!(lines.any(|line| line.contains("finishing the row groups in progress")));
    provider.go().add_permits(1_000);
    let printed: String = lines.collect();
    assert_eq!(program.wait().unwrap().code(), Some(130), "{printed}");
    let manifest = scratch.manifest("out");
    let (rows, groups) = (manifest["rows_out"].as_u64().unwrap(), manifest["row_groups"].as_u64().unwrap());
    assert!((1..10).contains(&groups) && manifest["rows_dropped"] == 0, "{manifest}");
    assert_eq!((rows, scratch.rows("out").len() as u64), (groups * 10, rows), "only whole row groups are written");
    assert!(printed.contains("interrupted; row groups in progress are finished"), "{printed}");
    let rest = format!("resumed   {rows:>8}   {groups} row groups of earlier runs, with 0 dropped rows");
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &[&rest]);
    scratch.run(&["p.toml", "--out", "whole", "-q"]).assert(0, &[]);
    assert_eq!(result(&scratch, "out"), result(&scratch, "whole"));
}

#[test]
fn the_second_interrupt_stops_at_once_and_keeps_finished_row_groups() {
    let scratch = Scratch::new(96);
    // The second and later row groups would take minutes.
    let slow = "capacity = { shape = \"constant\", slots = 10 }, latency = { law = \"constant\", latency_ms = 30000 }";
    scratch.write("p.toml", &mock_pipeline(10, "", slow));
    let (code, printed) = interrupt_twice(start(&scratch, &["p.toml", "--out", "out", "--json"]));
    assert_eq!(code, Some(130));
    assert!(
        printed.contains("finishing the row groups in progress") && printed.contains("again to stop at once"),
        "{printed}"
    );
    assert_eq!(scratch.manifest("out")["done"], serde_json::json!([]));
}

#[test]
fn output_of_another_pipeline_is_not_resumed_and_not_changed() {
    let scratch = scratch();
    scratch.run(&["p.toml", "--out", "out", "-q"]).assert(0, &[]);
    let before = result(&scratch, "out");
    let text = mock_pipeline(8, "cooldown = \"3ms\"", MOCK);
    scratch.write("p.toml", &text.replace("A title for", "A line about"));
    scratch
        .run(&["p.toml", "--out", "out", "--resume"])
        .assert(5, &["out holds rows of another job: the column `title` has a different definition than before"]);
    scratch.write("p.toml", &text);
    scratch.write("data.csv", &support::dataset(95));
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(5, &["the dataset has changed since then"]);
    assert_eq!(result(&scratch, "out"), before);
    // Settings that do not affect the rows may change, and so may the order of keys.
    scratch.write("data.csv", &support::dataset(96));
    let other = text.replace("max_parallel = 8", "max_parallel = 3");
    let other = other.replace("name = \"loud\"\nkind = \"expression\"", "kind = \"expression\"\nname = \"loud\"");
    assert!(other.contains("[[columns]]\nkind"));
    scratch.write("p.toml", &other);
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &["resumed         96"]);
}

#[test]
fn dropped_rows_stay_dropped_and_are_counted_in_a_resumed_run() {
    let scratch = Scratch::new(25);
    scratch.write(
        "p.toml",
        "[seed]\npath = \"data.csv\"\n[[columns]]\nname = \"half\"\nkind = \"expression\"\n\
         template = \"{{ 60 // (id | int - 3) }}\"\n[run]\nrow_group_size = 10\n",
    );
    scratch.run(&["p.toml", "--out", "out"]).assert(6, &["dropped          1"]);
    // The output now looks as if the run had been killed before the last row group.
    std::fs::remove_file(scratch.path("out/rows/000002.jsonl")).unwrap();
    let ended = scratch.run(&["p.toml", "--out", "out", "--resume"]);
    ended.assert(6, &["resumed         19   2 row groups of earlier runs, with 1 dropped rows", "rows out         5"]);
    let manifest = scratch.manifest("out");
    assert_eq!((&manifest["rows_out"], &manifest["rows_dropped"]), (&24.into(), &1.into()));
}

#[test]
fn a_full_disk_stops_the_run_cleanly_and_it_can_be_resumed() {
    let scratch = Scratch::new(96);
    scratch.write("p.toml", &mock_pipeline(8, "", MOCK).replace("row_group_size = 10", "row_group_size = 48"));
    scratch.run(&["p.toml", "--out", "whole", "-q"]).assert(0, &[]);
    // The file size limit of 2 to 4 KiB fits the manifest but no row group. A write beyond it is an error.
    assert!(std::fs::metadata(scratch.path("whole/rows/000000.jsonl")).unwrap().len() > 4_096);
    let program = env!("CARGO_BIN_EXE_tidegate");
    let limited = format!("trap '' XFSZ; ulimit -f 4; exec {program} p.toml --out out -q");
    let output = scratch.shell(&limited);
    assert_eq!(output.code, 5, "{}", output.all());
    assert!(
        output.stderr.contains("cannot write to out/rows/") && output.stderr.contains("File too large"),
        "{}",
        output.all()
    );
    assert_eq!(scratch.manifest("out")["row_groups"], 0);
    let left = std::fs::read_dir(scratch.path("out")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "nothing half-written is left");
    scratch.run(&["p.toml", "--out", "out", "--resume", "-q"]).assert(0, &[]);
    assert_eq!(result(&scratch, "out"), result(&scratch, "whole"));
}

#[test]
fn unfinished_rows_of_a_stopped_run_are_made_when_it_is_resumed() {
    // The server goes down permanently after its first answers, so the run stops within its row group.
    let scratch = Scratch::new(40);
    let flaky = "[seed]\npath = \"data.csv\"\n\
                 [[models]]\nname = \"j\"\ncommand = [\"sh\", \"judge.sh\"]\nmax_parallel = 2\n\
                 [[columns]]\nname = \"v\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"id\"]\n\
                 [run]\nrow_group_size = 40\nretries = 0\n";
    scratch.write("p.toml", flaky);
    scratch.write("judge.sh", "echo x >> calls; [ \"$(wc -l < calls)\" -le 12 ] || exit 1; cat > /dev/null; echo 1\n");
    let ended = scratch.run(&["p.toml", "--out", "out", "-q"]);
    assert_eq!(ended.code, 4, "{}", ended.all());
    let before = scratch.rows("out").len();
    assert!((1..40).contains(&before), "a part of a row group is kept: {before} rows");
    scratch.write("judge.sh", "cat > /dev/null; echo 1\n");
    let ended = scratch.run(&["p.toml", "--out", "out", "--resume", "-q", "--retry-dropped"]);
    ended.assert(0, &[]);
    let rows = scratch.rows("out");
    let numbers: Vec<u64> = rows.iter().map(|row| row["row"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    assert_eq!(scratch.dropped("out").len(), 0);
}

#[test]
fn a_changed_judge_prevents_resuming_and_a_changed_unused_model_does_not() {
    let scratch = Scratch::new(4);
    let judge = "[[models]]\nname = \"j\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; echo 1\"]\nmax_parallel = 2\n";
    let rest = "[[columns]]\nname = \"v\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"id\"]\n";
    let seed = "[seed]\npath = \"data.csv\"\n";
    scratch.write("p.toml", &format!("{seed}{judge}{rest}"));
    scratch.run(&["p.toml", "--out", "out", "-q"]).assert(0, &[]);
    let unused = "[[models]]\nname = \"u\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\n";
    scratch.write("p.toml", &format!("{seed}{unused}{judge}{rest}"));
    scratch.run(&["p.toml", "--out", "out", "--resume", "-q"]).assert(0, &[]);
    scratch.write("p.toml", &format!("{seed}{}{rest}", judge.replace("echo 1", "echo 2")));
    scratch
        .run(&["p.toml", "--out", "out", "--resume"])
        .assert(5, &["the model `j` has a different command or address than before"]);
}

#[test]
fn an_unwritable_output_is_detected_before_earlier_output_is_replaced() {
    let scratch = scratch();
    scratch.run(&["p.toml", "--out", "out", "-q"]).assert(0, &[]);
    let before = result(&scratch, "out");
    for file in ["--events", "--trace", "--record", "--report"] {
        let arguments = ["p.toml", "--out", "out", "--overwrite", "-q", file, "/nowhere/file"];
        scratch.run(&arguments).assert(5, &["cannot write to /nowhere/file: "]);
        assert_eq!(result(&scratch, "out"), before, "{file}");
    }
    let arguments = ["p.toml", "--out", "taken", "--events", "new.jsonl"];
    scratch.write("taken/of-another-program", "");
    scratch.run(&arguments).assert(5, &["is not empty"]);
    assert!(!scratch.path("new.jsonl").exists(), "a run that did not start leaves no file");
}

#[test]
fn resuming_a_complete_run_with_dropped_rows_changes_nothing() {
    let scratch = Scratch::new(3);
    // The template depends on answers, so the checks before the run cannot find its failure.
    let column = "[[columns]]\nname = \"v\"\nkind = \"expression\"\ntemplate = \"{{ title // 0 }}\"\n";
    scratch.write("p.toml", &(mock_pipeline(8, "", MOCK) + column));
    scratch.run(&["p.toml", "--out", "out"]).assert(2, &["no row could be finished"]);
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(6, &["with 3 dropped rows"]);
}

#[test]
fn an_unwritable_target_is_rejected_before_any_call() {
    let scratch = scratch();
    scratch.run(&["p.toml", "--out", "/proc/tidegate", "-q"]).assert(5, &["cannot write to /proc/tidegate: "]);
}

#[test]
fn a_run_can_be_resumed_in_every_format_and_for_a_row_range() {
    for (format, extension) in [("jsonl", "jsonl"), ("csv", "csv"), ("parquet", "parquet")] {
        let scratch = scratch();
        let text = mock_pipeline(8, "cooldown = \"3ms\"", MOCK);
        scratch.write("p.toml", &format!("{text}\n[output]\nformat = \"{format}\"\n"));
        let part = ["p.toml", "--rows", "15..80", "-q", "--out"];
        scratch.run(&[&part[..], &["whole"]].concat()).assert(0, &[]);
        scratch.run(&[&part[..], &["out"]].concat()).assert(0, &[]);
        for gone in ["000001", "000005"] {
            std::fs::remove_file(scratch.path(&format!("out/rows/{gone}.{extension}"))).unwrap();
        }
        scratch
            .run(&[&part[..], &["out", "--resume"]].concat())
            .assert(0, &["resumed         45", "rows out        20"]);
        assert_eq!(result(&scratch, "out"), result(&scratch, "whole"), "{format}");
        scratch
            .run(&["p.toml", "--rows", "15..79", "-q", "--out", "out", "--resume"])
            .assert(5, &["the job had 65 rows and now has 64"]);
    }
}
