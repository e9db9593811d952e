//! Tests of whole runs of the program against mock providers over real sockets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
#[cfg(unix)]
use std::process::Child;
use std::process::Stdio;

use serde_json::Value;

use crate::support::patience::wait_until;
use crate::support::{self, Ended, Scratch, mock_pipeline};

/// Returns the number of 429s in the provider line of the summary.
fn rate_limited_calls(ended: &Ended) -> u64 {
    let line = ended.stdout.lines().find(|line| line.contains("rate limited (429)")).unwrap();
    let before = line.split(" rate limited").next().unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A mock with four slots after a warm-up of 600 ms, 5 ms a call, and no Retry-After header.
const COLD: &str = "capacity = { shape = \"warm_up\", slots = 4, warm_up_ms = 600 }, \
                    latency = { law = \"constant\", latency_ms = 5 }";

fn run_cold(limit: &str) -> Ended {
    let scratch = Scratch::new(300);
    let ended = scratch.run_pipeline(&mock_pipeline(4, limit, COLD));
    ended.assert(0, &[]);
    assert_eq!(scratch.rows("out").len(), 300, "{}", ended.all());
    ended
}

#[test]
fn without_a_ramp_a_cold_server_answers_many_429s() {
    let ended = run_cold("aimd = { cooldown = \"50ms\" }");
    assert!(rate_limited_calls(&ended) > 0, "{}", ended.all());
}

#[test]
fn with_a_matching_ramp_a_cold_server_answers_no_429() {
    // The ramp is slower than the warm-up, whose clock starts when the first call arrives: on a busy machine
    // much later than that of the ramp.
    for limit in ["ramp = \"3s\"", "aimd = { cooldown = \"50ms\", ramp = \"3s\" }"] {
        let ended = run_cold(limit);
        assert_eq!(rate_limited_calls(&ended), 0, "{limit}: {}", ended.all());
    }
}

#[test]
fn a_ramp_that_is_too_fast_yields_to_the_limit_and_the_run_completes() {
    for limit in ["ramp = \"60ms\"", "aimd = { cooldown = \"50ms\", ramp = \"60ms\" }"] {
        let ended = run_cold(limit);
        assert!(rate_limited_calls(&ended) > 0, "{limit}: {}", ended.all());
    }
}

#[test]
fn the_plan_names_the_algorithm_of_each_limit_and_its_origin() {
    let plan_of = |limit: &str| {
        let scratch = Scratch::new(3);
        let mock = "latency = { law = \"constant\", latency_ms = 1 }";
        scratch.write("p.toml", &mock_pipeline(4, limit, mock));
        let ended = scratch.run(&["run", "p.toml", "--plan", "--quiet"]);
        let plan: Value = serde_json::from_slice(&std::fs::read(scratch.path("out/p/capacity.json")).unwrap()).unwrap();
        let call = &plan["calls"][0];
        (ended.all(), [&call["algorithm"], &call["algorithm_source"]].map(|word| word.as_str().unwrap().to_string()))
    };
    for (limit, name, source) in [
        ("", "tide", "default"),
        ("limit = \"tide\"", "tide", "file"),
        ("limit = \"aimd\"", "aimd", "file"),
        ("aimd = { increase_step = 2 }", "aimd", "file"),
    ] {
        let (shown, written) = plan_of(limit);
        assert!(shown.contains(&format!("by {name} ({source}), cap 4")), "{limit}: {shown}");
        assert_eq!(written, [name, source], "{limit}");
    }
}

#[test]
fn output_rows_are_in_order_with_seed_and_generated_columns() {
    let scratch = Scratch::new(25);
    let mock = "seed = 3, capacity = { shape = \"constant\", slots = 3 }, \
                latency = { law = \"uniform\", low_ms = 1, high_ms = 12 }";
    scratch.run_pipeline(&mock_pipeline(8, "", mock)).assert(0, &["rows out        25", "3 row groups"]);
    let rows = scratch.rows("out");
    assert_eq!(rows.len(), 25);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row["row"], index);
        assert_eq!(row["id"], index.to_string());
        assert_eq!(row["loud"], row["title"].as_str().unwrap().to_uppercase());
    }
    let first = std::fs::read_to_string(scratch.path("out/rows/000000.jsonl")).unwrap();
    assert!(
        first.starts_with("{\"row\":0,\"id\":\"0\",\"note\":\"entry 0 of the breakwater log\",\"title\":"),
        "{first}"
    );
    let manifest = scratch.manifest("out");
    assert_eq!(manifest["columns"], serde_json::json!(["id", "note", "title", "loud"]));
    assert_eq!(manifest["rows_out"], 25);
}

#[test]
fn a_full_column_gives_one_value_to_all_rows_of_its_row_group() {
    let scratch = Scratch::new(7);
    scratch.write(
        "p.toml",
        "[seed]\npath = \"data.csv\"\n\
         [[columns]]\nname = \"short\"\nkind = \"expression\"\ntemplate = \"{{ id }}!\"\n\
         [[columns]]\nname = \"all\"\nkind = \"expression\"\nstrategy = \"full_column\"\nupstreams = [\"short\"]\n\
         template = \"{% for r in rows %}{{ r.short }}{% endfor %} of group {{ row_group }}\"\n\
         [[columns]]\nname = \"made\"\nkind = \"expression\"\nstrategy = \"from_scratch\"\n\
         template = \"{{ rows | length }} rows\"\n\
         [run]\nrow_group_size = 4\n",
    );
    scratch.run(&["p.toml"]).assert(0, &["output in out/p"]);
    let rows = scratch.rows("out/p");
    assert_eq!((&rows[1]["all"], &rows[5]["all"]), (&"0!1!2!3! of group 0".into(), &"4!5!6! of group 1".into()));
    assert_eq!(rows[6]["made"], "3 rows");
}

#[test]
fn the_summary_lists_calls_and_time_of_each_provider() {
    let scratch = Scratch::new(20);
    let mock = "capacity = { shape = \"constant\", slots = 4 }, latency = { law = \"constant\", latency_ms = 20 }";
    let ended = scratch.run_pipeline(&mock_pipeline(4, "", mock));
    ended.assert(0, &["calls           20   20 answered, 0 rate limited (429), 0 failed", "wall time", "utilisation"]);
    let line = ended.stdout.lines().find(|line| line.trim_start().starts_with("mock/m ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[..5], ["mock/m", "20", "0", "0", "4"], "{line}");
}

#[test]
fn the_quiet_option_prints_only_the_summary() {
    let scratch = Scratch::new(3);
    let mock = "latency = { law = \"constant\", latency_ms = 1 }";
    scratch.write("p.toml", &mock_pipeline(4, "", mock));
    let ended = scratch.run(&["run", "p.toml", "--quiet"]);
    ended.assert(0, &["rows out"]);
    assert_eq!(ended.stderr, "");
}

/// Starts a run of 40 s and waits for its first row group of ten rows.
#[cfg(unix)]
fn start_long_run() -> (Scratch, Child) {
    let scratch = Scratch::new(20_000);
    let mock = "capacity = { shape = \"constant\", slots = 10 }, latency = { law = \"constant\", latency_ms = 20 }";
    scratch.write("p.toml", &mock_pipeline(10, "", mock));
    let mut command = scratch.command(&["run", "p.toml", "--out", "out", "-q"]);
    let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| scratch.path("out/rows/000000.jsonl").exists(), |exists| *exists);
    (scratch, program)
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_finished_row_groups_and_exits_130() {
    let (scratch, program) = start_long_run();
    support::interrupt(&program);
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let rows = scratch.rows("out");
    assert!((10..20_000).contains(&rows.len()), "{} rows", rows.len());
}

#[cfg(unix)]
#[test]
fn an_output_error_during_the_run_exits_5_and_loses_no_finished_row_group() {
    let (scratch, program) = start_long_run();
    std::fs::rename(scratch.path("out/rows"), scratch.path("out/moved")).unwrap();
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("could not be saved: cannot write to out/rows/"), "{printed}");
    let first = std::fs::read_to_string(scratch.path("out/moved/000000.jsonl")).unwrap();
    assert_eq!(first.lines().count(), 10);
}

#[test]
fn without_root_certificates_runs_that_need_none_still_work() {
    let mut scratch = Scratch::new(3);
    scratch.env("SSL_CERT_FILE", "/nowhere/certificates.pem");
    scratch.env("SSL_CERT_DIR", "/nowhere");
    scratch.run_pipeline(&mock_pipeline(4, "", "latency = { law = \"constant\", latency_ms = 1 }")).assert(0, &[]);
    let remote = support::remote_pipeline("https://127.0.0.1:9/v1", "", "");
    scratch.write("remote.toml", &remote);
    scratch.run(&["remote.toml"]).assert(2, &["remote.toml:3:1: the model `m`: HTTPS cannot be set up: "]);
}

#[test]
fn the_help_text_names_the_exit_codes_and_the_output() {
    let ended = Scratch::new(1).run(&["--help"]);
    ended.assert(0, &["Exit codes:", "130  interrupted", "--overwrite", "rows/NNNNNN.jsonl"]);
}

#[test]
fn the_events_and_the_capacity_plan_of_a_run_are_written_to_files() {
    let scratch = Scratch::new(12);
    let mock = "capacity = { shape = \"constant\", slots = 3 }, latency = { law = \"constant\", latency_ms = 2 }";
    scratch.write("pipeline.toml", &mock_pipeline(4, "cooldown = \"10ms\"", mock));
    for _ in 0..2 {
        let arguments = ["run", "pipeline.toml", "--out", "out", "--overwrite", "--plan", "--events", "events.jsonl"];
        scratch.run(&arguments).assert(0, &["row_group_size", "mock/m/chat", "lowest of: m 4"]);
    }
    let events = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for stream in ["scheduler", "request"] {
        let of_stream = events.iter().filter(|event| event["stream"] == stream);
        let numbers: Vec<u64> = of_stream.map(|event| event["event"]["sequence"].as_u64().unwrap()).collect();
        assert!(numbers.len() > 12 && numbers.iter().copied().eq(0..numbers.len() as u64), "{stream}: {numbers:?}");
    }
    assert_eq!(events.last().unwrap()["event"]["kind"], "job_completed");
    let text = std::fs::read_to_string(scratch.path("out/capacity.json")).unwrap();
    let capacity: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&capacity["schema"], &capacity["calls"][0]["merge"]), (&1.into(), &"lowest_alias".into()));
    assert_eq!(capacity["calls"][0]["effective_max"], 4);
    let most = capacity["end"]["maxima"]["in_flight"].as_u64().unwrap();
    assert!((1..=4).contains(&most), "{text}");
}

#[test]
fn progress_and_the_summary_can_be_printed_as_json_lines() {
    let scratch = Scratch::new(60);
    let mock = "capacity = { shape = \"constant\", slots = 3 }, latency = { law = \"constant\", latency_ms = 20 }";
    scratch.write("p.toml", &mock_pipeline(6, "cooldown = \"10ms\"", mock));
    let ended = scratch.run(&["p.toml", "--out", "out", "--json"]);
    ended.assert(0, &[]);
    assert_eq!(ended.stderr, "");
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let progress = of_kind("progress");
    assert!(!progress.is_empty(), "{}", ended.all());
    for line in &progress {
        assert_eq!((&line["rows_total"], &line["columns"][0]["name"]), (&60.into(), &"title".into()));
        assert!(line["providers"][0]["limit"].as_u64().is_some_and(|limit| limit <= 6), "{line}");
    }
    let [summary] = of_kind("summary")[..] else { panic!("one summary: {}", ended.all()) };
    assert_eq!((&summary["rows_out"], &summary["exit"], &summary["stopped"]), (&60.into(), &0.into(), &().into()));
    let calls = &summary["figures"]["requests"][0];
    let causes = calls["why_idle"].as_array().unwrap().iter().map(|share| share["slot_ns"].as_u64().unwrap());
    assert_eq!(Some(causes.sum::<u64>()), calls["idle_slot_ns"].as_u64(), "causes sum to the idle time");
}

#[test]
fn the_last_progress_has_the_final_counts_also_of_a_short_run() {
    let scratch = Scratch::new(5);
    scratch.write("p.toml", &mock_pipeline(5, "", "latency = { law = \"constant\", latency_ms = 1 }"));
    let ended = scratch.run(&["p.toml", "--out", "out", "--json"]);
    ended.assert(0, &[]);
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let [.., progress, summary] = &lines[..] else { panic!("{}", ended.all()) };
    assert_eq!((&progress["kind"], &summary["kind"]), (&"progress".into(), &"summary".into()));
    let (column, provider) = (&progress["columns"][0], &progress["providers"][0]);
    let counts = [&progress["rows_done"], &column["done"], &column["in_work"], &provider["answered"]];
    assert_eq!(counts, [5, 5, 0, 5].map(Value::from).each_ref(), "{progress}");
}

#[test]
fn the_summary_breaks_down_idle_time_and_the_report_draws_it() {
    let scratch = Scratch::new(40);
    let mock = "capacity = { shape = \"constant\", slots = 2 }, latency = { law = \"constant\", latency_ms = 10 }";
    scratch.write("p.toml", &mock_pipeline(6, "aimd = { cooldown = \"40ms\" }", mock));
    let ended = scratch.run(&["p.toml", "--out", "out", "--report", "report.html"]);
    ended.assert(0, &["calls of mock/m", "total", "a cooldown is in force", "every idle slot has one cause"]);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    for part in
        ["<h1>p.toml</h1>", "40 of 40 rows written", "aria-label=\"mock/m\"", "Why slots were idle", "Capacity plan"]
    {
        assert!(page.contains(part), "{part:?} is missing");
    }
    for outside in ["http://", "https://", "<script"] {
        assert!(!page.contains(outside), "the page needs {outside:?}");
    }
}

#[test]
fn a_running_job_serves_its_progress_as_metrics() {
    let scratch = Scratch::new(40);
    let mock = "capacity = { shape = \"constant\", slots = 8 }, latency = { law = \"constant\", latency_ms = 600000 }";
    scratch.write("p.toml", &mock_pipeline(3, "limit = \"fixed\"", mock));
    let arguments = ["run", "p.toml", "--out", "out", "--json", "--metrics", "127.0.0.1:0"];
    let mut program = scratch.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once("metrics at http://")?.1.split_once('/')?.0.to_string()));
    let page = || {
        let mut stream = TcpStream::connect(address.as_deref().unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    wait_until(page, |page| {
        let has = |line: &str| page.lines().any(|found| found == line);
        has("tidegate_in_flight{provider=\"mock\",model=\"m\"} 3") && has("tidegate_rows_planned 40")
    });
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn an_address_for_metrics_that_is_taken_stops_the_run_before_it_writes_anything() {
    let scratch = Scratch::new(2);
    scratch.write("p.toml", &mock_pipeline(3, "", ""));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = scratch.run(&["run", "p.toml", "--out", "out", "--metrics", &address]);
    ended.assert(2, &[&format!("--metrics {address}: cannot listen: "), "in use"]);
    assert!(!scratch.path("out").exists());
}
