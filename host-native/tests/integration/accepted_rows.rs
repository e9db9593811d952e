//! Tests of columns that accept or reject rows, and of jobs that make rows until enough are accepted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::{Scratch, serve};

/// A provider that writes stories, grades those of even rows with 5 and others with 1, and writes titles.
struct Provider {
    base_url: String,
    titled: Arc<Mutex<BTreeSet<u64>>>,
}

impl Provider {
    fn start() -> Self {
        let titled = Arc::default();
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&titled));
        Self { base_url: serve(router) + "/v1", titled }
    }
}

async fn answer(State(titled): State<Arc<Mutex<BTreeSet<u64>>>>, Json(request): Json<Value>) -> Response {
    let prompt = request["messages"][0]["content"].as_str().unwrap().to_string();
    let row: u64 = prompt.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap_or(0);
    let text = match prompt.split(' ').next() {
        Some("Grade") => json!({ "score": if row.is_multiple_of(2) { 5 } else { 1 } }).to_string(),
        Some("Title") => {
            titled.lock().unwrap().insert(row);
            format!("Title {row}")
        }
        _ => format!("story {row}"),
    };
    // Answers come in another order than their rows.
    tokio::time::sleep(std::time::Duration::from_millis(row * 7 % 5)).await;
    let choice = json!({ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    Json(json!({ "choices": [choice], "usage": { "prompt_tokens": 40, "completion_tokens": 60 } })).into_response()
}

/// A pipeline that accepts `rows` rows of stories with a good grade.
fn pipeline(base_url: &str, run: &str) -> String {
    format!(
        r#"
[run]
{run}
row_group_size = 4

[[models]]
name = "writer"
provider = "acme"
base_url = "{base_url}"
max_parallel = 8

[[columns]]
name = "story"
model = "writer"
prompt = "Tell {{{{ row }}}}"

[[columns]]
name = "grade"
model = "writer"
prompt = "Grade {{{{ story }}}}"
schema = {{ type = "object", properties = {{ score = {{ type = "integer" }} }}, required = ["score"], additionalProperties = false }}
accept_if = "grade.score > 3 and row != 4"

[[columns]]
name = "title"
model = "writer"
prompt = "Title of {{{{ row }}}}"
"#
    )
}

fn numbers(scratch: &Scratch) -> Vec<u64> {
    scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect()
}

/// The first rows that are accepted.
fn accepted(count: usize) -> Vec<u64> {
    (0..).step_by(2).filter(|row| *row != 4).take(count).collect()
}

#[test]
fn a_run_makes_candidates_until_exactly_the_wanted_number_of_rows_is_accepted() {
    let (scratch, provider) = (Scratch::new(0), Provider::start());
    scratch.write("p.toml", &pipeline(&provider.base_url, "rows = 9"));
    scratch
        .run(&["p.toml", "--dry-run"])
        .assert(0, &["of all 90 candidates", "ends once 9 are accepted, at the earliest after 10 %"]);
    scratch.run(&["p.toml", "--out", "out", "--report", "run.html", "--export", "all.jsonl"]).assert(
        0,
        &["9 accepted rows of at most 90", "9 of 20 candidates (45.0 %), 11 rejected by grade", "to all.jsonl"],
    );
    assert_eq!(numbers(&scratch), accepted(9));
    let dropped = scratch.dropped("out");
    assert!(dropped.iter().any(|line| line["row"] == 4 && line["reason"] == "rejected" && line["column"] == "grade"));
    assert!(std::fs::read_to_string(scratch.path("run.html")).unwrap().contains("9 of 20 candidates"));
    assert_eq!(std::fs::read_to_string(scratch.path("all.jsonl")).unwrap().lines().count(), 9);
    let titled = provider.titled.lock().unwrap();
    assert!(titled.iter().all(|row| row.is_multiple_of(2) && *row != 4), "rejected rows need no title: {titled:?}");
}

#[test]
fn the_progress_has_the_accepted_rows() {
    let (scratch, provider) = (Scratch::new(0), Provider::start());
    scratch.write("p.toml", &pipeline(&provider.base_url, "rows = 9"));
    let output = scratch.run(&["p.toml", "--out", "out", "--json"]);
    let lines = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let progress: Vec<Value> = lines.filter(|line| line["kind"] == "progress").collect();
    assert!(!progress.is_empty() && progress.iter().all(|line| line["accepted"]["wanted"] == 9), "{progress:?}");
}

#[test]
fn a_job_that_has_enough_rows_is_done_and_continues_if_more_are_wanted() {
    let (scratch, provider) = (Scratch::new(0), Provider::start());
    for (wanted, calls, planned) in [
        (
            6,
            true,
            "of all 40 candidates, as if none were rejected. The run ends once 6 are accepted, at the earliest after 15 %",
        ),
        (6, false, "of all 0 candidates, as if none were rejected. All rows that are wanted are accepted already"),
        (11, true, "The run ends once 5 are accepted"),
    ] {
        scratch.write("p.toml", &pipeline(&provider.base_url, &format!("rows = {wanted}\nmax_candidates = 40")));
        scratch.run(&["p.toml", "--out", "out", "--resume", "--dry-run"]).assert(0, &[planned]);
        let ended = scratch.run(&["p.toml", "--out", "out", "--resume"]);
        ended.assert(0, &["rejected by grade"]);
        assert_eq!(ended.all().contains("calls            0"), !calls, "{}", ended.all());
        assert_eq!(numbers(&scratch), accepted(wanted), "{wanted}");
    }
}

#[test]
fn a_job_with_accepted_rows_is_not_shortened_and_keeps_them() {
    let (scratch, provider) = (Scratch::new(20), Provider::start());
    // The number of candidates stays the same.
    let text = |run: &str| pipeline(&provider.base_url, &format!("{run}\nmax_candidates = 20"));
    scratch.write("p.toml", &text("rows = 6"));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["accepted         6"]);
    scratch.write("p.toml", &text("rows = 4"));
    let refused = "the job accepted 6 rows and now 4: a job can be extended, not shortened";
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(5, &[refused]);
    assert_eq!(numbers(&scratch), accepted(6));
    let dataset = format!("[seed]\npath = \"data.csv\"\n{}", pipeline(&provider.base_url, ""));
    scratch.write("p.toml", &dataset);
    scratch.run(&["p.toml", "--out", "all"]).assert(0, &["9 of 20 candidates"]);
    scratch.write("p.toml", &dataset.replace("[run]\n", "[run]\nrows = 4\n"));
    let refused = "the job kept all accepted rows and now 4: a job can be extended, not shortened";
    scratch.run(&["p.toml", "--out", "all", "--resume"]).assert(5, &[refused]);
}

#[test]
fn a_run_without_enough_accepted_candidates_says_so() {
    let (scratch, provider) = (Scratch::new(0), Provider::start());
    scratch.write("p.toml", &pipeline(&provider.base_url, "rows = 9\nmax_candidates = 10"));
    scratch.run(&["check", "p.toml"]).assert(0, &["up to 10 rows are generated, until 9 are accepted"]);
    let ended = scratch.run(&["p.toml", "--out", "out", "--export", "all.jsonl"]);
    ended.assert(6, &["4 of 9 rows were accepted", "`max_candidates`", "4 of 10 candidates (40.0 %)"]);
    // The same command with `--resume` has no more candidates.
    assert!(ended.all().contains("is not written, because rows are missing\n"), "{}", ended.all());
    assert_eq!(numbers(&scratch), accepted(4));
    let short = "2 of 9 rows were accepted, and no candidates are left among the selected rows";
    scratch.run(&["p.toml", "--out", "few", "--limit", "5"]).assert(6, &[short]);
    scratch.write("p.toml", &pipeline(&provider.base_url, "rows = 9\nmax_candidates = 60"));
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &["9 of 20 candidates"]);
    assert_eq!(numbers(&scratch), accepted(9));
}

#[cfg(unix)]
#[test]
fn a_killed_run_is_resumed_to_the_same_rows() {
    for seed in ["", "[seed]\npath = \"data.csv\"\n"] {
        let (scratch, provider) = (Scratch::new(400), Provider::start());
        scratch.write("p.toml", &format!("{seed}{}", pipeline(&provider.base_url, "rows = 40")));
        let mut run = scratch.command(&["p.toml", "--out", "out"]).spawn().unwrap();
        crate::support::patience::wait_until(|| provider.titled.lock().unwrap().len(), |titles| *titles > 15);
        run.kill().unwrap();
        run.wait().unwrap();
        scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &["40 of 83 candidates"]);
        assert_eq!(numbers(&scratch), accepted(40));
    }
}

#[test]
fn a_run_that_was_killed_before_its_cleanup_is_reported_without_the_rows_that_are_too_many() {
    let (scratch, provider) = (Scratch::new(0), Provider::start());
    scratch.write("p.toml", &pipeline(&provider.base_url, "rows = 9"));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["9 of 20 candidates"]);
    // What such a run leaves: a row group after the last one that is wanted.
    let more = [20, 22].map(|row| json!({ "row": row, "story": "", "grade": { "score": 5 }, "title": "" }).to_string());
    let rejected = [21, 23].map(|row| json!({ "row": row, "column": "grade", "reason": "rejected" }).to_string());
    scratch.write("out/rows/000005.jsonl", &(more.join("\n") + "\n"));
    scratch.write("out/rows/000005.dropped.jsonl", &(rejected.join("\n") + "\n"));
    let ended = scratch.run(&["p.toml", "--out", "out", "--resume", "--json"]);
    ended.assert(0, &["resumed: 9 rows are done already", r#""accepted":9,"rejected":{"grade":11}"#]);
    assert!(!ended.all().contains(r#""rows_out":11"#), "{}", ended.all());
    assert_eq!(numbers(&scratch), accepted(9));
}

#[test]
fn rows_of_a_dataset_can_be_rejected() {
    let (scratch, provider) = (Scratch::new(10), Provider::start());
    let text = format!("[seed]\npath = \"data.csv\"\n{}", pipeline(&provider.base_url, ""));
    scratch.write("p.toml", &text);
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["4 of 10 candidates (40.0 %), 6 rejected by grade"]);
    assert_eq!(numbers(&scratch), accepted(4));
    scratch
        .run(&["p.toml", "--out", "out", "--resume", "--retry-dropped"])
        .assert(0, &["4 of 10 candidates (40.0 %), 6 rejected by grade", "calls            0"]);
}

#[test]
fn exactly_the_wanted_number_of_rows_of_a_dataset_is_accepted_in_its_order() {
    let (scratch, provider) = (Scratch::new(100), Provider::start());
    let text = |seed: &str| format!("[seed]\npath = \"data.csv\"\n{seed}{}", pipeline(&provider.base_url, "rows = 9"));
    scratch.write("p.toml", &text(""));
    scratch.run(&["check", "p.toml"]).assert(0, &["100 rows of 2 columns, of which 9 are to be accepted"]);
    scratch.run(&["p.toml", "--dry-run"]).assert(0, &["of all 100 candidates", "ends once 9 are accepted"]);
    let ended = scratch.run(&["p.toml", "--out", "out", "--export", "all.jsonl"]);
    ended.assert(0, &["9 accepted rows of at most 100", "9 of 20 candidates (45.0 %), 11 rejected by grade"]);
    assert_eq!(numbers(&scratch), accepted(9));
    let notes = scratch.rows("out");
    let notes: Vec<_> = notes.iter().map(|row| row["note"].as_str().unwrap()).collect();
    assert_eq!(notes[..2], ["entry 0 of the breakwater log", "entry 2 of the breakwater log"]);
    assert_eq!(std::fs::read_to_string(scratch.path("all.jsonl")).unwrap().lines().count(), 9);
    // In another order of the dataset, the rows are others.
    scratch.write("p.toml", &text("shuffle = true\n"));
    scratch.run(&["p.toml", "--out", "out", "--overwrite"]).assert(0, &["9 of 20 candidates"]);
    assert_eq!(numbers(&scratch), accepted(9));
    let shuffled = scratch.rows("out");
    assert_ne!(shuffled.iter().map(|row| row["note"].as_str().unwrap()).collect::<Vec<_>>(), notes);
}

#[test]
fn a_dataset_that_ends_before_enough_rows_are_accepted_ends_the_run_and_may_be_appended_to() {
    let (scratch, provider) = (Scratch::new(10), Provider::start());
    let text = |run: &str| format!("[seed]\npath = \"data.csv\"\n{}", pipeline(&provider.base_url, run));
    scratch.write("p.toml", &text("rows = 9\nmax_candidates = 9"));
    let short = "4 of 9 rows were accepted, and no candidates are left; `max_candidates` in [run] allows more";
    scratch.run(&["p.toml", "--out", "out"]).assert(6, &[short, "4 of 9 candidates"]);
    scratch.write("p.toml", &text("rows = 9"));
    let short = "4 of 9 rows were accepted, and no candidates are left among the selected rows";
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(6, &[short, "4 of 10 candidates"]);
    assert_eq!(numbers(&scratch), accepted(4));
    scratch.write("data.csv", &crate::support::dataset(40));
    scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &["9 of 20 candidates"]);
    assert_eq!(numbers(&scratch), accepted(9));
    scratch.write("data.csv", &crate::support::dataset(10));
    let few = "They are fewer than the 11 that are to be accepted";
    scratch.write("p.toml", &text("rows = 11"));
    scratch.run(&["p.toml", "--dry-run"]).assert(0, &[few]);
}

#[test]
fn settings_that_accept_nothing_are_errors_at_their_place() {
    let scratch = Scratch::new(2);
    let whole = pipeline("http://127.0.0.1:9/v1", "rows = 9");
    for (from, to, part) in [
        ("rows = 9", "rows = 9\nmax_candidates = 8", "a whole number from 9, which is `rows`"),
        ("accept_if = \"grade.score > 3 and row != 4\"", "", "candidates"),
        ("grade.score > 3", "grade.scor > 3", "scor"),
        ("grade.score > 3", "grad.score > 3", "did you mean `grade`?"),
        ("accept_if = ", "strategy = \"full_column\"\naccept_if = ", "decides about a row"),
    ] {
        let run = if part == "candidates" {
            whole.replace("rows = 9", "rows = 9\nmax_candidates = 20")
        } else {
            whole.clone()
        };
        scratch.write("p.toml", &run.replace(from, to));
        scratch.run(&["p.toml", "--out", "out"]).assert(2, &["p.toml:", part]);
    }
    let text = whole.replace("accept_if = \"grade.score > 3 and row != 4\"", "");
    scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{text}"));
    let parts = ["`rows` in [run] is given beside [seed]", "a column with `accept_if`", "`--limit N`"];
    scratch.run(&["p.toml", "--out", "out"]).assert(2, &parts);
}

#[test]
fn the_example_of_the_reference_accepts_its_rows_in_the_same_way_each_time() {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find("### Accepting rows").unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let runs = [1, 8].map(|max_parallel| {
        let scratch = Scratch::new(0);
        let model = format!(
            "[[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = {max_parallel}\n\
             mock = {{ capacity = {{ shape = \"constant\", slots = 8 }} }}\n"
        );
        scratch.write("p.toml", &format!("{example}\n{model}"));
        scratch.run(&["p.toml", "--out", "out"]).assert(0, &["accepted        20"]);
        scratch.rows("out")
    });
    assert!(runs[0].iter().all(|row| row["grade"]["score"].as_u64() >= Some(3)));
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0].len(), 20);
}
