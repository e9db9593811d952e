//! Providers that die, come back, or refuse for good, over real sockets: every row is made once, or kept for a resumed run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::support::patience::wait_until;
use crate::support::{Ended, Scratch, remote_pipeline, serve};

const PATH: &str = "/v1/chat/completions";

/// A free port of the loopback interface, at which nothing listens.
fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// `tidegate mock` at one address, which can be killed and started again.
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
        assert!(lines.into_iter().any(|line| line.starts_with("listening on ")), "it listens");
        self.child = Some(child);
    }

    /// Ends it as a crash would: connections are reset.
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

/// Each row of the dataset is in the output once, and none is dropped.
fn assert_all_made(scratch: &Scratch, rows: usize) {
    let mut made: Vec<u64> = scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect();
    made.sort_unstable();
    assert_eq!(made, (0..rows as u64).collect::<Vec<_>>());
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
}

/// Starts a run of `text` that writes its progress as JSON lines, waits until some rows are done, and gives it with what is left to read.
fn start(scratch: &Scratch, text: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    scratch.write("pipeline.toml", text);
    let arguments = ["run", "pipeline.toml", "--out", "out", "--json"];
    let mut run = scratch.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap());
    (run, lines)
}

/// Reads progress until `is_there` holds of a line.
fn read_until(lines: &mut BufReader<std::process::ChildStdout>, is_there: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended first");
        let value: Value = serde_json::from_str(&line).unwrap();
        if is_there(&value) {
            return value;
        }
    }
}

/// Awaits the end of a run, which is near.
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

/// What the summary of a run that printed JSON lines says of the calls to its first provider.
fn calls_of(ended: &Ended) -> Value {
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    summary["providers"][0]["calls"].clone()
}

/// How many calls may fail in an outage that begins with so many calls out: those, the five in a row that take the provider down, those
/// that go out one after the other until nothing has succeeded for a second, and the probes. The pauses between probes are 0.5 s, doubled up
/// to 30 s, and at most a fifth shorter.
fn failures_at_most(out: u64, outage: Duration) -> u64 {
    let pauses = (0..).map(|doubled| Duration::from_millis(500 << doubled.min(6)).min(Duration::from_secs(30)) * 4 / 5);
    let times = pauses.scan(Duration::ZERO, |time, pause| {
        *time += pause;
        Some(*time)
    });
    let probes = times.take_while(|time| *time <= outage).count() as u64;
    out + 5 + 10 + probes
}

/// Runs a pipeline whose provider is killed, and started again after this time.
fn lose_no_row_in_a_kill(pause: Duration) {
    let rows = 1_200;
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
    let calls = calls_of(&ended);
    let [made, failed] = ["made", "failed"].map(|what| calls[what].as_u64().unwrap());
    let health_calls = made - failed - rows as u64;
    assert!(
        health_calls <= 3,
        "each row is made once, and so often somebody asks whether the provider is back: {calls}"
    );
    assert!(failed <= failures_at_most(16, outage), "{calls}");
}

#[test]
fn a_provider_that_is_killed_and_started_again_loses_no_row() {
    lose_no_row_in_a_kill(Duration::from_millis(500));
    lose_no_row_in_a_kill(Duration::from_secs(3));
}

/// Runs a pipeline whose provider answers 503 to everything for this time, after forty good answers.
fn lose_no_row_in_503s(span: Duration) {
    let rows = 200;
    let scratch = Scratch::new(rows);
    let began = Arc::new(OnceLock::<Instant>::new());
    let first = Arc::clone(&began);
    let is_bad = move |call| call >= 40 && first.get_or_init(Instant::now).elapsed() < span;
    let (server, calls) = serve_badly_in_time(is_bad, || {
        std::future::ready((StatusCode::SERVICE_UNAVAILABLE, "overloaded").into_response())
    });
    let (run, mut lines) = start(&scratch, &remote_pipeline(&server, "", ""));
    read_until(&mut lines, |_| began.get().is_some());
    // Nobody reads meanwhile: what it says in a minute is less than a pipe holds.
    std::thread::sleep(span.saturating_sub(began.get().unwrap().elapsed()));
    let ended = wait(run, lines);
    ended.assert(0, &[]);
    assert_all_made(&scratch, rows);
    let (seen, calls) = (calls.load(Ordering::SeqCst) as u64, calls_of(&ended));
    let succeeded = calls["succeeded"].as_u64().unwrap();
    assert!((rows as u64..=rows as u64 + 3).contains(&succeeded), "each row is made once: {calls}");
    assert!(seen <= succeeded + failures_at_most(4, span), "{seen} calls");
}

/// Both at once, since they only wait.
#[test]
fn a_provider_that_is_gone_for_half_a_minute_or_answers_503_for_a_minute_loses_no_row_and_is_called_little() {
    std::thread::scope(|threads| {
        threads.spawn(|| lose_no_row_in_a_kill(Duration::from_secs(30)));
        threads.spawn(|| lose_no_row_in_503s(Duration::from_mins(1)));
    });
}

#[test]
fn a_provider_that_is_there_only_later_is_waited_for() {
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
fn a_provider_that_never_comes_ends_the_run_with_the_patience_and_a_resumed_run_makes_every_row() {
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

/// Tells a run to end as an orchestrator does.
fn terminate(run: &Child) {
    assert!(std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_run_that_is_told_to_end_does_not_wait_for_a_provider_that_is_down() {
    let scratch = Scratch::new(60);
    let (run, mut lines) =
        start(&scratch, &remote_pipeline(&base_url(closed_port()), "", "outage_patience = \"never\""));
    read_until(&mut lines, |line| outage_of(line).is_some());
    terminate(&run);
    wait(run, lines).assert(130, &["awaiting outstanding calls", "terminated; outstanding calls have ended"]);
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
}

#[test]
fn a_run_that_is_told_to_end_awaits_the_calls_that_are_out_and_no_pause() {
    let scratch = Scratch::new(60);
    let (server, calls) =
        serve_badly(8..usize::MAX, || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "500")], "slow down"));
    let (run, mut lines) = start(&scratch, &remote_pipeline(&server, "", "row_groups = 1"));
    read_until(&mut lines, |line| {
        let provider = &line["providers"][0];
        provider["cooling_down"] == true && provider["in_flight"] == 0
    });
    let made = calls.load(Ordering::SeqCst);
    terminate(&run);
    wait(run, lines).assert(130, &["terminated"]);
    assert_eq!(calls.load(Ordering::SeqCst), made, "no call begins after that");
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
}

#[test]
fn a_provider_that_wants_to_be_left_alone_for_a_day_ends_the_run_at_once_and_costs_no_row() {
    let scratch = Scratch::new(60);
    let (server, calls) = serve_badly(8..usize::MAX, || {
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "86400")], "come back tomorrow")
    });
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "row_groups = 1"));
    ended.assert(4, &["remote/m cannot be used: rate limited (HTTP 429, come back in ", "--resume"]);
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
    assert!(calls.load(Ordering::SeqCst) <= 12, "only those that were out");
}

#[test]
fn the_patience_with_rate_limits_ends_while_everything_waits_for_a_pause() {
    let scratch = Scratch::new(60);
    let (server, calls) =
        serve_badly(8..usize::MAX, || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3")], "slow down"));
    let run = "row_groups = 1\nrate_limit_patience = \"4s\"";
    scratch.run_pipeline(&remote_pipeline(&server, "", run)).assert(4, &["remote/m cannot be used: rate limited"]);
    assert_eq!((scratch.rows("out").len(), scratch.dropped("out").len()), (8, 0));
    // Four that were out, up to seven that find out whether the pause stops the others, and what could go when it was over.
    let calls = calls.load(Ordering::SeqCst);
    assert!((9..=26).contains(&calls), "{calls} calls");
}

/// A server that answers as `bad` says while its calls are numbered so, and well otherwise. Gives its address and the count of calls.
fn serve_badly<R: IntoResponse + 'static>(
    bad_calls: std::ops::Range<usize>,
    bad: fn() -> R,
) -> (String, Arc<AtomicUsize>) {
    serve_badly_in_time(move |call| bad_calls.contains(&call), move || std::future::ready(bad().into_response()))
}

/// The same where `is_bad` says so of a call's number, with bad answers that may take their time.
fn serve_badly_in_time<F, Fut>(
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
                None => axum::Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response(),
            }
        }
    };
    (serve(Router::new().route(PATH, post(answer))) + "/v1", seen)
}

/// Runs 100 rows through a server ten calls of which fail. Each of these is made again, once, and few health calls
/// ask whether the provider is back.
fn assert_ten_failures_cost_no_row((server, calls): (String, Arc<AtomicUsize>), model: &str) {
    let scratch = Scratch::new(100);
    scratch.run_pipeline(&remote_pipeline(&server, model, "")).assert(0, &[]);
    assert_all_made(&scratch, 100);
    let health_calls = calls.load(Ordering::SeqCst) - 110;
    assert!(health_calls <= 3, "{health_calls} health calls");
}

#[test]
fn a_provider_whose_sockets_hang_for_a_while_loses_no_row() {
    assert_ten_failures_cost_no_row(
        serve_badly_in_time(|call| (20..30).contains(&call), std::future::pending),
        "timeout = \"300ms\"",
    );
}

#[test]
fn a_provider_whose_answers_break_off_for_a_while_loses_no_row() {
    let breaks_off = || {
        let pieces = [Ok("{\"choices\": [{"), Err(std::io::Error::other("the connection is gone"))];
        std::future::ready(Body::from_stream(futures_util::stream::iter(pieces)).into_response())
    };
    assert_ten_failures_cost_no_row(serve_badly_in_time(|call| (20..30).contains(&call), breaks_off), "");
}

#[test]
fn an_account_whose_quota_ends_during_the_run_stops_it_with_the_rows_it_has_and_drops_none() {
    let scratch = Scratch::new(100);
    let body = r#"{ "error": { "message": "You exceeded your current quota.", "code": "insufficient_quota" } }"#;
    let (server, calls) = serve_badly_in_time(
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

/// Two columns, of a provider that dies and of one that does not.
#[test]
fn of_two_providers_the_one_that_lives_finishes_what_it_can_and_a_resumed_run_makes_the_rest() {
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
fn a_provider_that_answers_503_for_a_while_is_called_little_and_loses_no_row() {
    let scratch = Scratch::new(200);
    let (server, calls) = serve_badly(40..50, || (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
    // A good answer that comes late, between the first two or three bad ones, makes those failures of their own rows.
    scratch.run_pipeline(&remote_pipeline(&server, "", "")).assert(0, &[]);
    assert_all_made(&scratch, 200);
    // Each failure is a call that is made again, once; a few health calls ask whether the provider is back.
    let health_calls = calls.load(Ordering::SeqCst) - 210;
    assert!(health_calls <= 3, "{health_calls} health calls");
}

#[test]
fn a_provider_that_answers_only_500_is_called_a_few_times_and_not_three_times_for_each_row() {
    let scratch = Scratch::new(400);
    let (server, calls) = serve_badly(0..usize::MAX, || (StatusCode::INTERNAL_SERVER_ERROR, "oops"));
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "outage_patience = \"2s\"\nrow_groups = 100"));
    ended.assert(4, &["remote/m cannot be used: the server failed (HTTP 500)"]);
    assert_eq!(scratch.dropped("out"), Vec::<Value>::new());
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls < 20, "{calls} calls");
}

#[test]
fn a_key_that_is_revoked_during_the_run_stops_it_with_the_rows_it_has_and_drops_none() {
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
fn a_prompt_that_always_fails_is_dropped_alone_wherever_it_stands() {
    for poison in [0, 11, 19] {
        let scratch = Scratch::new(20);
        let answer = move |body: String| async move {
            if body.contains(&format!("entry {poison} ")) {
                return (StatusCode::INTERNAL_SERVER_ERROR, "cannot do that one").into_response();
            }
            axum::Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response()
        };
        let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
        // Where it is the last one left, a call of one token shows that the provider is up.
        let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "retries = 0"));
        ended.assert(6, &["the server failed (HTTP 500)"]);
        let dropped = scratch.dropped("out");
        assert_eq!((dropped.len(), &dropped[0]["row"], scratch.rows("out").len()), (1, &json!(poison), 19));
    }
}
