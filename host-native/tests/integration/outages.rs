//! Tests of providers that go down, recover or reject calls permanently, over real sockets: every row is made
//! once, or left for a resumed run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::patience::wait_until;
use crate::support::{Ended, Scratch, remote_pipeline, serve};

const PATH: &str = "/v1/chat/completions";

/// Returns a free port of the loopback interface, on which nothing listens.
fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A `tidegate mock` process with a fixed address, which can be killed and restarted.
struct Mock<'a> {
    scratch: &'a Scratch,
    address: SocketAddr,
    child: Option<Child>,
}

impl<'a> Mock<'a> {
    fn at(scratch: &'a Scratch, address: SocketAddr) -> Self {
        Self { scratch, address, child: None }
    }

    fn start(&mut self) {
        let address = self.address.to_string();
        let arguments = ["mock", "--listen", &address, "--model", "m=slots=64,latency_ms=20", "--any-model"];
        let mut child = self.scratch.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line.starts_with("listening on ")), "the mock listens");
        self.child = Some(child);
    }

    /// Kills the process, so that its connections are reset.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Mock<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

fn base_url(address: SocketAddr) -> String {
    format!("http://{address}/v1")
}

/// Asserts that each row of the dataset is in the output once, and none is dropped.
fn assert_all_made(scratch: &Scratch, rows: usize) {
    let mut made: Vec<u64> = scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect();
    made.sort_unstable();
    assert_eq!(made, (0..rows as u64).collect::<Vec<_>>());
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
}

/// Starts a run of the pipeline `text` that writes its progress as JSON lines. Returns the process and a
/// reader of its output.
fn start(scratch: &Scratch, text: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    scratch.write("pipeline.toml", text);
    let arguments = ["run", "pipeline.toml", "--out", "out", "--json"];
    let mut run = scratch.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap());
    (run, lines)
}

/// Reads progress lines until `is_match` is true for one, and returns that line.
fn read_until(lines: &mut BufReader<std::process::ChildStdout>, is_match: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended first");
        let value: Value = serde_json::from_str(&line).unwrap();
        if is_match(&value) {
            return value;
        }
    }
}

/// Waits for a run that is about to end.
fn wait(mut run: Child, mut lines: BufReader<std::process::ChildStdout>) -> Ended {
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        lines.read_to_string(&mut rest).map(|_| rest)
    });
    wait_until(|| run.try_wait().unwrap(), Option::is_some);
    let stdout = rest.join().unwrap().unwrap();
    Ended { code: run.wait().unwrap().code().unwrap_or(-1), stdout, stderr: String::new() }
}

fn outage_of(value: &Value) -> Option<&str> {
    value["providers"][0]["outage"].as_str()
}

/// Returns the call counts of the first provider from the summary of a run that printed JSON lines.
fn calls_of(ended: &Ended) -> Value {
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    summary["providers"][0]["calls"].clone()
}

/// Returns the maximum number of calls that fail in an outage that begins with `in_flight` calls in flight.
///
/// These are the calls in flight, the five consecutive failures that open the outage, the calls that are sent
/// one after the other until nothing has succeeded for a second, and the probes. There are some ten calls in
/// that second, and up to four times as many if late successes prolong it on a slow machine. The pauses
/// between probes start at 0.5 s and double up to 30 s. Jitter makes each at most a fifth shorter.
fn max_failures(in_flight: u64, outage: Duration) -> u64 {
    let pauses = (0..).map(|doubled| Duration::from_millis(500 << doubled.min(6)).min(Duration::from_secs(30)) * 4 / 5);
    let times = pauses.scan(Duration::ZERO, |time, pause| {
        *time += pause;
        Some(*time)
    });
    let probes = times.take_while(|time| *time <= outage).count() as u64;
    in_flight + 5 + 40 + probes
}

/// Runs a pipeline whose provider is killed and restarted after `pause`, and asserts that no row is lost.
fn assert_no_row_lost_when_killed(pause: Duration) {
    let rows = 3_000;
    let scratch = Scratch::new(rows);
    let mut mock = Mock::at(&scratch, closed_port());
    mock.start();
    let text =
        remote_pipeline(&base_url(mock.address), "", "row_groups = 8").replace("max_parallel = 4", "max_parallel = 16");
    let (run, mut lines) = start(&scratch, &text);
    read_until(&mut lines, |line| line["rows_done"].as_u64() > Some(20));
    let killed = Instant::now();
    mock.kill();
    read_until(&mut lines, |line| outage_of(line).is_some());
    std::thread::sleep(pause.saturating_sub(killed.elapsed()));
    mock.start();
    let outage = killed.elapsed();
    let ended = wait(run, lines);
    ended.assert(0, &[]);
    assert_all_made(&scratch, rows);
    let failed = assert_made_once(&ended, rows as u64, 0);
    assert!(failed <= max_failures(16, outage), "{failed} calls");
}

#[test]
fn one_unreadable_answer_in_ten_costs_a_call_each_and_no_row_no_capacity_and_no_outage() {
    let scratch = Scratch::new(100);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&seen);
    let answer = move |Json(body): Json<Value>| async move {
        let prompt = body["messages"][0]["content"].as_str().unwrap_or_default().to_string();
        let is_first = !seen.lock().unwrap().contains(&prompt);
        seen.lock().unwrap().push(prompt.clone());
        // The rows 3, 13, 23 and so on.
        if is_first && prompt.contains("3 of the breakwater log") {
            return "<html>busy</html>".into_response();
        }
        Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response()
    };
    let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
    // Tide also lowers the limit if calls get slower, as on a busy machine.
    scratch.write("pipeline.toml", &remote_pipeline(&server, "limit = \"aimd\"", ""));
    let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", "--events", "events.jsonl"]);
    let calls = calls.lock().unwrap();
    ended.assert(0, &["rows out       100", &format!("{} answered", calls.len() - 10), "   10 unreadable answer"]);
    assert_all_made(&scratch, 100);
    // A failure while no other call is in flight is followed by a health call, which is of no row.
    let calls_of_rows = calls.iter().filter(|prompt| prompt.contains("breakwater")).count();
    assert_eq!(calls_of_rows, 110, "each of the ten rows is asked for once more");
    let events = std::fs::read_to_string(scratch.path("events.jsonl")).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    // The first line has names only.
    let kinds: Vec<String> = events.skip(1).map(|event| event["event"]["kind"].as_str().unwrap().to_string()).collect();
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    assert_eq!(count("call_started"), calls.len());
    assert_eq!((count("provider_down"), count("limit_decreased")), (0, 0));
}

#[test]
fn a_provider_that_is_killed_and_restarted_loses_no_row() {
    assert_no_row_lost_when_killed(Duration::from_millis(500));
    assert_no_row_lost_when_killed(Duration::from_secs(3));
}

/// Runs a pipeline whose provider answers 503 to everything for `span`, after forty successful answers, and
/// asserts that no row is lost.
fn assert_no_row_lost_in_503s(span: Duration) {
    let rows = 200;
    let scratch = Scratch::new(rows);
    let began = Arc::new(OnceLock::<Instant>::new());
    let first = Arc::clone(&began);
    let is_bad = move |call| call >= 40 && first.get_or_init(Instant::now).elapsed() < span;
    let (server, calls) = serve_badly_async(is_bad, || {
        std::future::ready((StatusCode::SERVICE_UNAVAILABLE, "overloaded").into_response())
    });
    let (run, mut lines) = start(&scratch, &remote_pipeline(&server, "", ""));
    read_until(&mut lines, |_| began.get().is_some());
    // The output is not read meanwhile. One minute of output fits in the buffer of a pipe.
    std::thread::sleep(span.saturating_sub(began.get().unwrap().elapsed()));
    let ended = wait(run, lines);
    ended.assert(0, &[]);
    assert_all_made(&scratch, rows);
    let (seen, calls) = (calls.load(Ordering::SeqCst) as u64, calls_of(&ended));
    let succeeded = calls["succeeded"].as_u64().unwrap();
    assert!((rows as u64..=rows as u64 + 3).contains(&succeeded), "each row is made once: {calls}");
    assert!(seen <= succeeded + max_failures(4, span), "{seen} calls");
}

#[test]
fn a_long_outage_loses_no_row_and_makes_few_calls() {
    // Both scenarios mostly wait, so they run in parallel.
    std::thread::scope(|threads| {
        threads.spawn(|| assert_no_row_lost_when_killed(Duration::from_secs(30)));
        threads.spawn(|| assert_no_row_lost_in_503s(Duration::from_mins(1)));
    });
}

#[test]
fn a_run_waits_for_a_provider_that_starts_later() {
    let scratch = Scratch::new(60);
    let mut mock = Mock::at(&scratch, closed_port());
    let (run, mut lines) = start(&scratch, &remote_pipeline(&base_url(mock.address), "", ""));
    let down = read_until(&mut lines, |line| outage_of(line).is_some_and(|text| text.contains("next probe in")));
    assert!(outage_of(&down).unwrap().starts_with("down for "), "{down}");
    mock.start();
    wait(run, lines).assert(0, &[]);
    assert_all_made(&scratch, 60);
}

#[test]
fn a_provider_that_never_starts_ends_the_run_after_outage_patience_and_a_resumed_run_makes_every_row() {
    let scratch = Scratch::new(60);
    let mut mock = Mock::at(&scratch, closed_port());
    let text = remote_pipeline(&base_url(mock.address), "", "outage_patience = \"1s\"");
    let ended = scratch.run_pipeline(&text);
    ended.assert(
        4,
        &["remote/m cannot be used: no connection", "refused", "outage_patience", "No row is dropped", "--resume"],
    );
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
    mock.start();
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &[]);
    assert_all_made(&scratch, 60);
}

/// Sends `SIGTERM` to a run, as an orchestrator does.
fn terminate(run: &Child) {
    assert!(std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_terminated_run_does_not_wait_for_a_provider_that_is_down() {
    let scratch = Scratch::new(60);
    let (run, mut lines) =
        start(&scratch, &remote_pipeline(&base_url(closed_port()), "", "outage_patience = \"never\""));
    read_until(&mut lines, |line| outage_of(line).is_some());
    terminate(&run);
    wait(run, lines).assert(130, &["awaiting outstanding calls", "terminated; outstanding calls have ended"]);
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
}

#[test]
fn a_terminated_run_waits_for_calls_in_flight_but_not_for_a_pause() {
    let scratch = Scratch::new(60);
    let (server, calls) =
        serve_badly(8..usize::MAX, || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "500")], "slow down"));
    let (run, mut lines) = start(&scratch, &remote_pipeline(&server, "", "row_groups = 1"));
    read_until(&mut lines, |line| {
        let provider = &line["providers"][0];
        provider["rate_limited"].as_u64() >= Some(4) && provider["in_flight"] == 0
    });
    terminate(&run);
    read_until(&mut lines, |line| {
        line["text"].as_str().is_some_and(|text| text.contains("awaiting outstanding calls"))
    });
    let made = calls.load(Ordering::SeqCst);
    wait(run, lines).assert(130, &["terminated"]);
    // The limit algorithm tests with single calls whether the pause applies to all. One may have just begun.
    assert!(calls.load(Ordering::SeqCst) <= made + 1, "no call begins after that");
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
}

#[test]
fn a_retry_after_of_a_day_ends_the_run_at_once_and_loses_no_row() {
    let scratch = Scratch::new(60);
    let (server, calls) = serve_badly(8..usize::MAX, || {
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "86400")], "come back tomorrow")
    });
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "row_groups = 1"));
    ended.assert(4, &["remote/m cannot be used: rate limited (HTTP 429, come back in ", "--resume"]);
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
    assert!(calls.load(Ordering::SeqCst) <= 12, "only the calls in flight");
}

#[test]
fn rate_limit_patience_can_expire_while_all_calls_wait_for_a_pause() {
    let scratch = Scratch::new(60);
    let (server, calls) =
        serve_badly(8..usize::MAX, || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3")], "slow down"));
    let run = "row_groups = 1\nrate_limit_patience = \"4s\"";
    scratch.run_pipeline(&remote_pipeline(&server, "", run)).assert(4, &["remote/m cannot be used: rate limited"]);
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
    // Eight calls succeed, and four were in flight. Others test whether the pause applies to the whole
    // resource. Each comes a quarter later at least, so that from a millisecond to four seconds there are at
    // most 38.
    let calls = calls.load(Ordering::SeqCst);
    assert!((9..=50).contains(&calls), "{calls} calls");
}

/// Starts a server that answers the calls numbered `bad_calls` with `bad`, and all others successfully.
/// Returns its address and its call counter.
fn serve_badly<R: IntoResponse + 'static>(
    bad_calls: std::ops::Range<usize>,
    bad: fn() -> R,
) -> (String, Arc<AtomicUsize>) {
    serve_badly_async(move |call| bad_calls.contains(&call), move || std::future::ready(bad().into_response()))
}

/// Like [`serve_badly`], with a predicate on the call number and asynchronous bad answers.
fn serve_badly_async<F, Fut>(
    is_bad: impl Fn(usize) -> bool + Send + Sync + 'static,
    bad: F,
) -> (String, Arc<AtomicUsize>)
where
    F: Fn() -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, is_bad) = (Arc::clone(&calls), Arc::new(is_bad));
    let answer = move || {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        let bad = is_bad(call).then(&bad);
        async move {
            match bad {
                Some(bad) => bad.await,
                None => Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response(),
            }
        }
    };
    (serve(Router::new().route(PATH, post(answer))) + "/v1", seen)
}

/// Asserts that each of `rows` rows was made once, with at least `failures` failed calls, and that few health
/// calls probed the provider. Returns the number of failed calls.
fn assert_made_once(ended: &Ended, rows: u64, failures: u64) -> u64 {
    let calls = calls_of(ended);
    let [made, failed] = ["made", "failed"].map(|what| calls[what].as_u64().unwrap());
    assert!(failed >= failures && made - failed - rows <= 3, "{calls}");
    failed
}

/// Runs 100 rows against a server that fails ten calls. More may fail on a busy machine.
fn assert_ten_failures_lose_no_row((server, calls): (String, Arc<AtomicUsize>), model: &str) {
    let scratch = Scratch::new(100);
    let (run, lines) = start(&scratch, &remote_pipeline(&server, model, ""));
    let ended = wait(run, lines);
    ended.assert(0, &[]);
    assert_all_made(&scratch, 100);
    let failed = assert_made_once(&ended, 100, 10);
    let calls = calls.load(Ordering::SeqCst) as u64;
    assert!((110..=100 + failed + 3).contains(&calls), "{calls} calls at the server, {failed} failed");
}

#[test]
fn temporarily_hanging_sockets_lose_no_row() {
    assert_ten_failures_lose_no_row(
        serve_badly_async(|call| (20..30).contains(&call), std::future::pending),
        "timeout = \"1s\"",
    );
}

#[test]
fn temporarily_truncated_answers_lose_no_row() {
    let breaks_off = || {
        let pieces = [Ok("{\"choices\": [{"), Err(std::io::Error::other("the connection is gone"))];
        std::future::ready(Body::from_stream(futures_util::stream::iter(pieces)).into_response())
    };
    assert_ten_failures_lose_no_row(serve_badly_async(|call| (20..30).contains(&call), breaks_off), "");
}

#[test]
fn a_quota_exhausted_during_the_run_stops_it_keeps_finished_rows_and_drops_none() {
    let scratch = Scratch::new(100);
    let body = r#"{ "error": { "message": "You exceeded your current quota.", "code": "insufficient_quota" } }"#;
    let (server, calls) = serve_badly_async(
        |call| call >= 30,
        move || std::future::ready((StatusCode::TOO_MANY_REQUESTS, body).into_response()),
    );
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", ""));
    ended
        .assert(4, &["remote/m cannot be used: ", "You exceeded your current quota.", "add funds, or raise the quota"]);
    assert_eq!(scratch.dropped("out").iter().filter(|row| row["reason"] != "unmade").count(), 0);
    assert!((4..=30).contains(&scratch.rows("out").len()));
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls <= 30 + 4, "{calls} calls: those that were out, and none after");
}

#[test]
fn when_one_of_two_providers_is_lost_the_other_finishes_its_work_and_a_resumed_run_makes_the_rest() {
    let scratch = Scratch::new(100);
    let (lives, calls) = serve_badly(0..0, || StatusCode::OK);
    let mut dies = Mock::at(&scratch, closed_port());
    let second = format!(
        "[[models]]\nname = \"n\"\nprovider = \"second\"\nbase_url = \"{}\"\nmax_parallel = 4\n\
         [[columns]]\nname = \"summary\"\nmodel = \"n\"\nprompt = \"A summary of: {{{{ note }}}}\"\n",
        base_url(dies.address)
    );
    let text = remote_pipeline(&lives, "", "outage_patience = \"2s\"\nrow_groups = 100") + &second;
    scratch.run_pipeline(&text).assert(4, &["second/n cannot be used: no connection", "No row is dropped"]);
    assert_eq!(calls.load(Ordering::SeqCst), 100, "the column of the other provider is made for every row");
    assert!(scratch.dropped("out").iter().all(|row| row["reason"] == "unmade"));
    dies.start();
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &[]);
    assert_all_made(&scratch, 100);
}

#[test]
fn temporary_503s_cause_few_calls_and_lose_no_row() {
    let scratch = Scratch::new(200);
    let (server, calls) = serve_badly(40..50, || (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
    // A success that arrives late, between the first two or three failures, makes those count as failures of
    // their rows.
    scratch.run_pipeline(&remote_pipeline(&server, "", "")).assert(0, &[]);
    assert_all_made(&scratch, 200);
    // Each failed call is repeated once, and a few health calls probe the provider.
    let health_calls = calls.load(Ordering::SeqCst) - 210;
    assert!(health_calls <= 3, "{health_calls} health calls");
}

#[test]
fn a_provider_that_answers_only_500_is_called_a_few_times_and_not_for_each_row() {
    let scratch = Scratch::new(400);
    let (server, calls) = serve_badly(0..usize::MAX, || (StatusCode::INTERNAL_SERVER_ERROR, "oops"));
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "outage_patience = \"2s\"\nrow_groups = 100"));
    ended.assert(4, &["remote/m cannot be used: the server failed (HTTP 500)"]);
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls < 20, "{calls} calls");
}

#[test]
fn a_key_revoked_during_the_run_stops_it_keeps_finished_rows_and_drops_none() {
    let scratch = Scratch::new(100);
    let (server, calls) = serve_badly(30..usize::MAX, || (StatusCode::UNAUTHORIZED, "{}"));
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", ""));
    ended.assert(4, &["remote/m cannot be used: the API key was refused or is missing (HTTP 401)", "check its key"]);
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
    let made = scratch.rows("out").len();
    assert!((4..=30).contains(&made), "{made} rows of finished row groups");
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls <= 30 + 4, "{calls} calls: those that were out, and none after");
}

#[test]
fn a_prompt_that_always_fails_is_the_only_row_dropped_at_any_position() {
    for poison in [0, 11, 19] {
        let scratch = Scratch::new(20);
        let answer = move |body: String| async move {
            if body.contains(&format!("entry {poison} ")) {
                return (StatusCode::INTERNAL_SERVER_ERROR, "cannot do that one").into_response();
            }
            Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response()
        };
        let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
        // If it is the last row left, a health call of one token shows that the provider is up.
        let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "retries = 0"));
        ended.assert(6, &["the server failed (HTTP 500)"]);
        let dropped = scratch.dropped("out");
        assert_eq!((dropped.len(), &dropped[0]["row"], scratch.rows("out").len()), (1, &json!(poison), 19));
    }
}
