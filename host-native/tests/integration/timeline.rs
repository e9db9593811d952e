//! Tests of `tidegate timeline`: the history of one row, from the events of a run with rate limits and
//! failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};

use crate::support::{Scratch, remote_pipeline, serve};

/// Starts a provider that answers the first call for row 1 with a 429, the second with a 500, and all other
/// calls successfully.
fn provider() -> String {
    let calls = Arc::new(AtomicUsize::new(0));
    let answer = move |body: String| {
        let calls = Arc::clone(&calls);
        async move {
            let call = if body.contains("entry 1 ") { calls.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
            match call {
                0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "30")], "slow down").into_response(),
                1 => (StatusCode::INTERNAL_SERVER_ERROR, "no").into_response(),
                _ => axum::Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response(),
            }
        }
    };
    format!("{}/v1", serve(Router::new().route("/v1/chat/completions", post(answer))))
}

/// Runs three rows and writes the events to `events.jsonl`.
fn run_with_events() -> Scratch {
    let scratch = Scratch::new(3);
    // With one call at a time, a success separates two failures, so the provider is never considered down.
    let text = remote_pipeline(&provider(), "limit = \"aimd\"", "").replace("max_parallel = 4", "max_parallel = 1");
    scratch.write("pipeline.toml", &text);
    scratch.run(&["pipeline.toml", "--out", "out", "--events", "events.jsonl"]).assert(0, &[]);
    scratch
}

/// Asserts that `parts` occur in `text` in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing, or too early, in:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_timeline_of_a_row_shows_its_task_its_calls_and_their_retries() {
    let scratch = run_with_events();
    let ended = scratch.run(&["timeline", "events.jsonl", "--row", "1", "--column", "title"]);
    ended.assert(0, &["row 1, row 1 of row group 0\n\ntitle\n"]);
    let steps = [
        "ready",
        "queued",
        "admitted: attempt 1",
        "calls remote/m",
        "the call ended after ",
        ": rate limited",
        "remote/m accepts no calls until ",
        "attempt 1 ended: rate limited",
        "deferred, to be retried not before ",
        ": rate limited",
        "its backoff has ended",
        "queued",
        "admitted: attempt 2",
        "calls remote/m",
        ": provider failure",
        "calls remote/m",
        ": success",
        " ended: done",
    ];
    assert_in_order(&ended.stdout, &steps);
    let other = scratch.run(&["timeline", "events.jsonl", "--row", "2"]);
    other.assert(0, &["attempt 1 ended: done"]);
    assert_eq!(other.stdout.matches("calls remote/m").count(), 1, "only the row's own calls are shown");
}

#[test]
fn every_event_of_a_call_names_an_execution_that_the_scheduler_started() {
    let scratch = run_with_events();
    let text = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["names"]["columns"].as_array().unwrap().last(), Some(&json!("title")));
    let of = |stream: &str, kind: &str| {
        let wanted = lines.iter().filter(|line| line["stream"] == stream && line["event"]["kind"] == kind);
        wanted.map(|line| line["event"]["correlation"].clone()).collect::<Vec<Value>>()
    };
    // The result of the failed call is decided by a health call, which belongs to no row.
    let is_of_a_row = |call: &Value| !call.is_null();
    let started = of("scheduler", "worker_spawned");
    for kind in ["call_started", "call_completed", "lease_released", "rate_limited"] {
        let mut calls = of("request", kind);
        calls.retain(is_of_a_row);
        assert!(!calls.is_empty() && calls.iter().all(|call| started.contains(call)), "{kind}: {calls:?}");
    }
    let (of_rows, health_calls): (Vec<Value>, Vec<Value>) =
        of("request", "call_started").into_iter().partition(is_of_a_row);
    assert_eq!((of_rows.len(), health_calls.len()), (5, 1));
}

#[test]
fn a_timeline_finds_a_column_whose_name_is_written_in_another_form_of_unicode() {
    let scratch = run_with_events();
    let text = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
    scratch.write("accents.jsonl", &text.replace("\"title\"", "\"titl\u{e9}\""));
    let column = ["timeline", "accents.jsonl", "--row", "1", "--column", "title\u{301}"];
    scratch.run(&column).assert(0, &[" ended: done"]);
}

#[test]
fn a_timeline_that_cannot_be_printed_reports_the_reason() {
    let scratch = run_with_events();
    let assert_rejected = |arguments: &[&str], why: &str| scratch.run(arguments).assert(2, &[why]);
    assert_rejected(&["timeline", "nowhere.jsonl", "--row", "1"], "nowhere.jsonl: No such file");
    assert_rejected(
        &["timeline", "data.csv", "--row", "1"],
        "data.csv:1: this is not a file that `tidegate run --events` wrote",
    );
    assert_rejected(&["timeline", "events.jsonl", "--row", "3"], "events.jsonl: there are no events of row 3");
    let column = ["timeline", "events.jsonl", "--row", "1", "--column", "tilte"];
    assert_rejected(&column, "no column is called `tilte`; the run has ");
    let mut text = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
    text.truncate(text.len() - 9);
    scratch.write("killed.jsonl", &text);
    scratch.run(&["timeline", "killed.jsonl", "--row", "1"]).assert(0, &[" ended: done"]);
    scratch.write("broken.jsonl", &text.replacen("\"stream\":\"request\"", "\"stream\":", 1));
    assert_rejected(
        &["timeline", "broken.jsonl", "--row", "1"],
        "this is not a line of a file that `tidegate run --events` wrote",
    );
}
