//! Tests of models whose requests go in batches: whole runs of the program against a mock.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{BatchSettings, BatchStats, BatchStore, MockConfig, MockServer};

use crate::support::patience::{PATIENCE, wait_until};
use crate::support::redis_server::RedisServer;
use crate::support::{Ended, Scratch};

/// A mock in a thread of its own, which stops when this is dropped.
struct Mock {
    base_url: String,
    server: Option<MockServer>,
    runtime: tokio::runtime::Runtime,
}

impl Mock {
    fn start(settings: &str) -> Self {
        Self::restart(settings, BatchStore::default(), 0)
    }

    /// Starts a mock with the batches of an earlier one, at its port.
    fn restart(settings: &str, batches: BatchStore, port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let config = MockConfig {
            models: vec![("m".to_string(), ProviderSpec::default())],
            seed: 1,
            batch_settings: settings.parse().unwrap(),
            batches,
            ..MockConfig::default()
        };
        let server = runtime.block_on(MockServer::serve(config, ([127, 0, 0, 1], port).into())).unwrap();
        Self { base_url: server.base_url(), server: Some(server), runtime }
    }

    /// Restarts the mock at its port, with the batches of `store`.
    fn restarted(mut self, settings: &str, store: &BatchStore) -> Self {
        let port = self.server.take().unwrap().address().port();
        drop(self);
        Self::restart(settings, store.clone(), port)
    }

    fn batches(&self) -> BatchStats {
        self.server.as_ref().unwrap().stats().batches
    }

    /// Returns the calls of the model that were made without a batch.
    fn calls(&self) -> u64 {
        self.server.as_ref().unwrap().counters().accepted
    }

    /// Sends a request, and returns the status and the body.
    fn send(&self, method: &str, path: &str) -> Value {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("{}{path}", self.base_url);
        let method = method.parse().unwrap();
        let text = self.runtime.block_on(async {
            let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
            http.request(method, url).send().await.unwrap().text().await.unwrap()
        });
        serde_json::from_str(&text).unwrap()
    }
}

/// Of a mock whose batches are not answered before the test has ended.
const ENDLESS: &str = "delay_ms=6000000";

const COLUMN: &str = "[[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"A title for: {{ note }}\"\n";

/// Returns a pipeline over `data.csv` with a column whose requests go to `mock` in batches.
fn pipeline(mock: &Mock, column: &str, run: &str) -> String {
    pipeline_at(&mock.base_url, column, run)
}

fn pipeline_at(base_url: &str, column: &str, run: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nshutdown_rate = \"never\"\n{run}\n\
         [[models]]\nname = \"m\"\nprovider = \"remote\"\nbase_url = \"{base_url}\"\nmode = \"batch\"\nmax_parallel = 2\n\
         cooldown = \"20ms\"\nmax_cooldown = \"20ms\"\nprice = {{ input_per_million = 500, output_per_million = 1000 }}\n\
         {COLUMN}{column}\n"
    )
}

/// The names of the requests that a provider has received.
type Names = Arc<Mutex<Vec<String>>>;

/// Serves a provider with the file `f` of requests and the batch `b` of it. `answer` gives the status and
/// body for the method and path of a request and the names of all requests, or `None` for the usual one.
/// Returns its base URL, and the names.
fn provider(answer: impl Fn(&str, &[String]) -> Option<(u16, String)> + Send + Sync + 'static) -> (String, Names) {
    let (names, answer) = (Names::default(), Arc::new(answer));
    let seen = Arc::clone(&names);
    let router = Router::new().fallback(move |method: Method, uri: Uri, body: String| {
        let path = format!("{method} {}", uri.path());
        let mut names = seen.lock().unwrap();
        if path == "POST /v1/files" {
            let lines = body.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            names.extend(lines.map(|line| line["custom_id"].as_str().unwrap().to_string()));
        }
        let (status, text) = answer(&path, &names).unwrap_or_else(|| match path.as_str() {
            "POST /v1/files" => (200, json!({ "id": "f" }).to_string()),
            "POST /v1/batches" => (200, json!({ "id": "b", "status": "validating" }).to_string()),
            "GET /v1/batches/b" => (200, completed("o").to_string()),
            "GET /v1/files/o/content" => (200, names.iter().map(|name| answered(name)).collect()),
            _ => (404, String::new()),
        });
        async move { (StatusCode::from_u16(status).unwrap(), text) }
    });
    (crate::support::serve(router) + "/v1", names)
}

/// Returns the batch `b` with answers in `file`.
fn completed(file: &str) -> Value {
    json!({ "id": "b", "status": "completed", "request_counts": { "completed": 3 }, "output_file_id": file })
}

/// Returns a line of results with an answer that reports no tokens.
fn answered(name: &str) -> String {
    let body = json!({ "choices": [{ "message": { "content": "a title" } }] });
    let line = json!({ "custom_id": name, "response": { "status_code": 200, "body": body } });
    format!("{line}\n")
}

fn resume(scratch: &Scratch) -> Ended {
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"])
}

/// Starts the pipeline, and returns the program with its messages and progress.
fn start(scratch: &Scratch, text: &str) -> (Child, mpsc::Receiver<Value>) {
    scratch.write("pipeline.toml", text);
    let arguments = ["run", "pipeline.toml", "--out", "out", "--json"];
    let mut program = scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = BufReader::new(program.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in out.lines() {
            let Ok(line) = line else { return };
            let _ = sender.send(serde_json::from_str(&line).unwrap_or_default());
        }
    });
    (program, lines)
}

/// Waits for a line of which `is_wanted` returns true.
fn line(lines: &mpsc::Receiver<Value>, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).expect("there is such a line");
        if is_wanted(&line) {
            return line;
        }
    }
}

#[test]
fn a_run_fills_its_rows_by_batches_of_a_row_group_each() {
    let (mock, scratch) = (Mock::start("delay_ms=300"), Scratch::new(25));
    let ended = scratch.run_pipeline(&pipeline(&mock, "batch_size = 10\n", ""));
    ended.assert(0, &["rows out        25"]);
    assert!(scratch.rows("out").iter().all(|row| row["title"].is_string()));
    let stats = mock.batches();
    assert_eq!((stats.created, stats.requests, stats.repeated, mock.calls()), (3, 25, 0, 0));
}

#[test]
fn a_batch_may_have_more_rows_than_tasks_may_be_active() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(300));
    let ended = scratch.run_pipeline(&pipeline(&mock, "", "submission_limit = 8"));
    ended.assert(0, &["rows out       300"]);
    assert_eq!((mock.batches().created, mock.batches().requests), (1, 300));
}

#[test]
fn an_image_is_part_of_a_request_in_a_batch() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(1));
    std::fs::write(scratch.path("boat.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    scratch.run_pipeline(&pipeline(&mock, "images = [\"boat.png\"]\n", "")).assert(0, &["rows out         1"]);
    let file = mock.send("GET", "/batches")["data"][0]["input_file_id"].as_str().unwrap().to_string();
    let request = mock.send("GET", &format!("/files/{file}/content"));
    let parts = &request["body"]["messages"][0]["content"];
    assert!(parts.to_string().contains("data:image/png;base64,iVBORw0KGgo="), "{request}");
}

#[test]
fn answers_are_parsed_as_those_of_calls_and_a_malformed_one_is_corrected_in_the_next_batch() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(6));
    let column = "output = \"number\"\nschema_retries = 1\n";
    let ended = scratch.run_pipeline(&pipeline(&mock, column, ""));
    // The texts of the mock are no numbers.
    ended.assert(4, &["title: malformed_answer"]);
    let stats = mock.batches();
    assert_eq!((stats.created, stats.requests, stats.repeated), (2, 12, 0), "the second request shows the mistake");
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume", "--retry-dropped"]).assert(4, &[]);
    assert_eq!((mock.batches().created, mock.batches().repeated), (4, 12), "a retried row is asked for again");
}

#[test]
fn a_failed_or_missing_line_is_retried_in_another_batch() {
    let (mock, scratch) = (Mock::start("delay_ms=100,error=0.2,missing=0.1,poll_error=0.2"), Scratch::new(40));
    let ended = scratch.run_pipeline(&pipeline(&mock, "", "retries = 20"));
    ended.assert(0, &["rows out        40"]);
    let stats = mock.batches();
    assert!(stats.created > 1 && stats.repeated > 0 && stats.repeated < 40, "{stats:?}");
    assert_eq!(stats.requests, 40 + stats.repeated);
}

#[test]
fn a_row_whose_line_failed_after_the_last_retry_is_asked_for_again_with_retry_dropped() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(40));
    let mock = Mock::restart("delay_ms=100,error=0.3,missing=0.2", store.clone(), 0);
    scratch.run_pipeline(&pipeline(&mock, "", "retries = 0")).assert(6, &[]);
    let dropped = scratch.dropped("out").len() as u64;
    let mock = mock.restarted("delay_ms=100", &store);
    let again = scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume", "--retry-dropped"]);
    again.assert(0, &[]);
    assert_eq!(scratch.rows("out").len(), 40);
    assert_eq!((mock.batches().created, mock.batches().repeated), (2, dropped));
}

#[test]
fn an_expired_batch_keeps_its_answers_and_its_other_requests_are_in_the_next_one() {
    let (mock, scratch) = (Mock::start("delay_ms=100,expire=1"), Scratch::new(8));
    let ended = scratch.run_pipeline(&pipeline(&mock, "", "retries = 20"));
    ended.assert(0, &["rows out         8"]);
    // 8, 4, 2, 1.
    assert_eq!((mock.batches().created, mock.batches().requests), (4, 15));
}

#[test]
fn the_requests_of_a_batch_that_is_declared_void_are_submitted_again_but_not_those_that_a_later_one_has_answered() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(8));
    let mock = Mock::restart("delay_ms=100,expire=1", store.clone(), 0);
    scratch.run_pipeline(&pipeline(&mock, "", "retries = 20")).assert(0, &[]);
    std::fs::remove_dir_all(scratch.path("out").join("rows")).unwrap();
    let journal = scratch.path("out").join("batches.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text + "{\"kind\":\"void\",\"file\":\"file-mock-0\"}").unwrap();
    let mock = mock.restarted("delay_ms=100", &store);
    resume(&scratch).assert(0, &["rows out         8"]);
    // 8, 4, 2, 1, and the 4 that the first one had answered.
    assert_eq!((mock.batches().created, mock.batches().requests), (5, 19));
}

#[test]
fn a_file_that_the_provider_rejects_drops_its_rows_with_the_message_of_the_provider() {
    let (mock, scratch) = (Mock::start("delay_ms=100,fail=1"), Scratch::new(3));
    let ended = scratch.run_pipeline(&pipeline(&mock, "", ""));
    ended
        .assert(4, &["title: request", "the provider rejected the batch batch_mock_0: the file is not valid (line 1)"]);
    assert_eq!(mock.batches().created, 1);
}

#[test]
fn a_file_that_finds_the_queue_of_the_provider_full_is_submitted_again_later() {
    let (mock, scratch) = (Mock::start("delay_ms=100,full=0.5"), Scratch::new(20));
    let ended = scratch.run_pipeline(&pipeline(&mock, "batch_size = 5\n", "retries = 0"));
    ended.assert(0, &["rows out        20"]);
    let stats = mock.batches();
    assert!(stats.created > 4 && stats.files == 4, "no file is sent twice: {stats:?}");
    assert_eq!((stats.requests, stats.repeated), (20, 0));
}

#[cfg(unix)]
#[test]
fn a_run_that_is_killed_finds_its_batch_again_and_no_request_is_sent_twice() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(12));
    let mock = Mock::restart(ENDLESS, store.clone(), 0);
    let (mut run, lines) = start(&scratch, &pipeline(&mock, "", ""));
    let progress = line(&lines, |line| line["providers"][0]["batches"].is_string());
    let batches = progress["providers"][0]["batches"].as_str().unwrap();
    assert!(batches.starts_with("batch ") && batches.ends_with(" of 12"), "{batches}");
    run.kill().unwrap();
    run.wait().unwrap();
    let mock = mock.restarted("delay_ms=100", &store);
    resume(&scratch).assert(0, &["rows out        12"]);
    let stats = mock.batches();
    assert_eq!((stats.created, stats.requests, stats.repeated), (1, 12, 0));
    let totals = scratch.manifest("out")["totals"].clone();
    assert_eq!(totals["spent"], totals["models"]["remote/m"]["cost"], "the estimate is replaced: {totals}");
}

#[cfg(unix)]
#[test]
fn a_batch_whose_creation_was_not_answered_before_the_run_died_is_found_in_the_list() {
    let (mock, scratch) = (Mock::start("delay_ms=100,response_delay_ms=600000"), Scratch::new(5));
    let (mut run, _lines) = start(&scratch, &pipeline(&mock, "", ""));
    wait_until(|| mock.batches().created, |created| *created == 1);
    run.kill().unwrap();
    run.wait().unwrap();
    resume(&scratch).assert(0, &["rows out         5"]);
    let stats = mock.batches();
    assert_eq!((stats.created, stats.requests, stats.repeated), (1, 5, 0));
}

#[test]
fn a_batch_that_was_never_created_is_submitted_again() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(5));
    scratch.run_pipeline(&pipeline(&mock, "", "")).assert(0, &[]);
    // As a run leaves it that dies before the provider gets the request: of the file there is no batch.
    let journal = scratch.path("out").join("batches.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let submitted = text.lines().next().unwrap().replace("file-mock-0", "file-gone");
    std::fs::remove_dir_all(scratch.path("out").join("rows")).unwrap();
    // The line before it was cut off.
    std::fs::write(&journal, format!("{}\n{{\"kind\":\"crea", with_time(&submitted, 1))).unwrap();
    resume(&scratch).assert(0, &["rows out         5"]);
    assert_eq!((mock.batches().created, mock.batches().repeated), (2, 5));
    assert!(std::fs::read_to_string(&journal).unwrap().contains("{\"kind\":\"void\",\"file\":\"file-gone\"}"));
}

#[test]
fn rows_of_a_lost_batch_that_are_in_two_batches_by_now_are_all_submitted_again() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(10));
    scratch.run_pipeline(&pipeline(&mock, "batch_size = 5\n", "row_group_size = 10")).assert(0, &[]);
    let journal = scratch.path("out").join("batches.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let submitted: Vec<Value> = lines.filter(|line| line["kind"] == "submitted").collect();
    // One batch of a file that the provider does not have.
    let requests: Vec<Value> = submitted.iter().flat_map(|line| line["requests"].as_array().unwrap().clone()).collect();
    let mut line = submitted[0].clone();
    (line["file"], line["at"], line["requests"]) = ("file-gone".into(), 1.into(), requests.into());
    std::fs::remove_dir_all(scratch.path("out").join("rows")).unwrap();
    std::fs::write(&journal, format!("{line}\n")).unwrap();
    resume(&scratch).assert(0, &["rows out        10"]);
    assert_eq!((mock.batches().created, mock.batches().repeated), (4, 10));
}

#[test]
fn a_provider_that_rejects_requests_about_a_batch_stops_the_run_and_drops_no_row() {
    let scratch = Scratch::new(3);
    let run = Arc::new(AtomicU32::new(0));
    let now = Arc::clone(&run);
    let (base_url, names) = provider(move |path, _| {
        let rejected = Some((403, json!({ "error": { "message": "not from there" } }).to_string()));
        match (path, now.load(Ordering::SeqCst)) {
            ("GET /v1/batches/b", 0) | ("GET /v1/files/o/content", 1) => rejected,
            _ => None,
        }
    });
    let said = ["the batch b cannot be collected", "not from there", "{\"kind\":\"void\",\"file\":\"f\"}"];
    scratch.run_pipeline(&pipeline_at(&base_url, "", "")).assert(4, &said);
    run.store(1, Ordering::SeqCst);
    resume(&scratch).assert(4, &said);
    assert!(scratch.dropped("out").is_empty());
    // An editor may leave out the end of the last line.
    let journal = scratch.path("out").join("batches.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.contains("created") && !text.contains("discarded"), "{text}");
    std::fs::write(&journal, text.trim_end()).unwrap();
    run.store(2, Ordering::SeqCst);
    resume(&scratch).assert(0, &["rows out         3"]);
    assert_eq!(names.lock().unwrap().len(), 3, "no request is sent twice");
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
}

#[test]
fn a_file_that_is_processed_and_results_that_are_named_late_are_waited_for() {
    let scratch = Scratch::new(3);
    let (files, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    let (base_url, names) = provider(move |path, _| {
        let file = |status: &str| Some((200, json!({ "id": "f", "status": status }).to_string()));
        match path {
            "POST /v1/files" => file("pending"),
            "GET /v1/files/f" if files.fetch_add(1, Ordering::SeqCst) == 0 => file("pending"),
            "GET /v1/files/f" => file("processed"),
            "POST /v1/batches" if files.load(Ordering::SeqCst) < 2 => Some((400, String::new())),
            "GET /v1/batches/b" if looks.fetch_add(1, Ordering::SeqCst) == 0 => Some((200, completed("").to_string())),
            _ => None,
        }
    });
    scratch.run_pipeline(&pipeline_at(&base_url, "", "")).assert(0, &["rows out         3"]);
    assert_eq!(names.lock().unwrap().len(), 3);
}

#[test]
fn a_batch_that_the_list_does_not_show_yet_is_looked_for_again_and_not_created_twice() {
    let scratch = Scratch::new(3);
    let (created, looks) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (creations, lists) = (Arc::clone(&created), Arc::clone(&looks));
    let (base_url, names) = provider(move |path, _| match path {
        // The provider has created the batch, and its answer is lost.
        "POST /v1/batches" => {
            created.fetch_add(1, Ordering::SeqCst);
            Some((502, String::new()))
        }
        "GET /v1/batches" => {
            let mut batch = completed("o");
            batch["input_file_id"] = "f".into();
            let batches = if looks.fetch_add(1, Ordering::SeqCst) == 0 { json!([]) } else { json!([batch]) };
            Some((200, json!({ "data": batches }).to_string()))
        }
        _ => None,
    });
    scratch.run_pipeline(&pipeline_at(&base_url, "", "")).assert(0, &["rows out         3"]);
    assert_eq!((creations.load(Ordering::SeqCst), lists.load(Ordering::SeqCst)), (1, 2));
    assert_eq!(names.lock().unwrap().len(), 3, "no request is sent twice");
}

/// The batches of a provider, each with its requests and how often its state was asked for.
#[derive(Default)]
struct Opened {
    files: Vec<String>,
    /// The place of the file of each batch, and the looks at the batch.
    batches: Vec<(usize, u32)>,
    /// The most batches that were in progress at the same time.
    peak: usize,
}

/// Serves a provider whose batches end at the second look at them. Returns its base URL and its batches.
fn counting_provider() -> (String, Arc<Mutex<Opened>>) {
    let opened = Arc::new(Mutex::new(Opened::default()));
    let state = Arc::clone(&opened);
    let router = Router::new().fallback(move |method: Method, uri: Uri, body: String| {
        let mut opened = state.lock().unwrap();
        let number = |text: &str| text.rsplit(['-', '/']).find_map(|part| part.parse::<usize>().ok()).unwrap();
        let path = format!("{method} {}", uri.path());
        let text = match path.as_str() {
            "POST /v1/files" => {
                opened.files.push(body);
                json!({ "id": format!("f-{}", opened.files.len() - 1) }).to_string()
            }
            "POST /v1/batches" => {
                let body: Value = serde_json::from_str(&body).unwrap();
                opened.batches.push((number(body["input_file_id"].as_str().unwrap()), 0));
                let open = opened.batches.iter().filter(|(_, looks)| *looks < 2).count();
                opened.peak = opened.peak.max(open);
                json!({ "id": format!("b-{}", opened.batches.len() - 1), "status": "validating" }).to_string()
            }
            batch if batch.starts_with("GET /v1/batches/") => {
                let (file, looks) = &mut opened.batches[number(batch)];
                *looks += 1;
                let mut state = completed(&format!("f-{file}"));
                state["status"] = if *looks < 2 { "in_progress" } else { "completed" }.into();
                state.to_string()
            }
            content => {
                let requests = opened.files[number(content.trim_end_matches("/content"))].lines();
                let requests = requests.filter_map(|line| serde_json::from_str::<Value>(line).ok());
                requests.map(|request| answered(request["custom_id"].as_str().unwrap())).collect()
            }
        };
        async move { text }
    });
    (crate::support::serve(router) + "/v1", opened)
}

#[test]
fn runs_share_the_limit_of_batches_in_progress() {
    let server = RedisServer::start();
    let (base_url, opened) = counting_provider();
    let mut scratch = Scratch::new(12);
    scratch.env("SHARE_URL", &server.url());
    let share = "[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\non_loss = \"stop\"\n";
    // Each run alone would have two batches in progress.
    let text = pipeline_at(&base_url, "batch_size = 3\n", "row_group_size = 3") + share;
    scratch.write("p.toml", &text.replacen("cooldown =", "limit = \"fixed\"\ncooldown =", 1));
    let start = |out: &str| {
        let mut command = scratch.command(&["run", "p.toml", "--out", out, "--quiet"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs = ["a", "b"].map(|out| (out, start(out)));
    for (out, run) in runs {
        let ended = run.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let rows = scratch.rows(out);
        assert!(rows.len() == 12 && rows.iter().all(|row| row["title"] == "a title"), "{rows:?}");
    }
    let opened = opened.lock().unwrap();
    assert_eq!((opened.files.len(), opened.batches.len()), (8, 8), "nothing is submitted twice");
    assert!(opened.peak <= 2, "{} batches were in progress", opened.peak);
}

#[test]
fn results_are_read_line_by_line_and_an_answer_without_tokens_costs_its_estimate() {
    let mut scratch = Scratch::new(3);
    scratch.env("KEY", "s3cret-key");
    let (base_url, _) = provider(|path, names| {
        let [first, second, third] = names else { return None };
        let body = json!({ "error": { "message": "the key s3cret-key is out of funds" } });
        let failed = json!({ "custom_id": third, "response": { "status_code": 402, "body": body } }).to_string();
        let other = answered(first).replace("a title", "another");
        let lines = [answered(first), "cut off\n".to_string(), other, answered("foreign"), answered(second), failed];
        (path == "GET /v1/files/o/content").then(|| (200, lines.concat()))
    });
    let text = pipeline_at(&base_url, "", "retries = 0");
    scratch.run_pipeline(&text.replace("mode =", "api_key_env = \"KEY\"\nmode =")).assert(6, &["dropped          1"]);
    assert!(scratch.rows("out").iter().all(|row| row["title"] == "a title"));
    let detail = scratch.dropped("out")[0]["detail"].as_str().unwrap().to_string();
    assert!(detail.contains("the key [key] is out of funds"), "{detail}");
    let totals = scratch.manifest("out")["totals"].clone();
    assert_eq!(totals["models"]["remote/m"]["not_counted"], 2, "{totals}");
    assert!(totals["spent"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{totals}");
}

/// Sets the time of a line of the journal.
fn with_time(line: &str, at: u64) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["at"] = at.into();
    line.to_string()
}

#[test]
fn if_the_provider_does_not_list_its_batches_the_run_stops_with_what_to_do() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(5));
    let text = pipeline(&mock, "", "");
    scratch.run_pipeline(&text).assert(0, &[]);
    std::fs::remove_dir_all(scratch.path("out").join("rows")).unwrap();
    let journal = scratch.path("out").join("batches.jsonl");
    let submitted = std::fs::read_to_string(&journal).unwrap().lines().next().unwrap().to_string();
    std::fs::write(&journal, submitted + "\n").unwrap();
    // Of this one, every address is 404.
    let other = crate::support::serve(Router::new());
    scratch.write("pipeline.toml", &text.replace(&mock.base_url, &format!("{other}/v1")));
    let said = "it is not known whether a batch of the file file-mock-0 was created";
    resume(&scratch).assert(4, &[said, "add {\"kind\":\"created\",\"file\":\"file-mock-0\",", "--resume"]);
    assert!(scratch.dropped("out").is_empty());
}

#[test]
fn a_batch_that_the_provider_has_lost_stops_the_run_with_what_to_do_and_drops_no_row() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(5));
    let text = pipeline(&mock, "", "");
    scratch.run_pipeline(&text).assert(0, &[]);
    std::fs::remove_dir_all(scratch.path("out").join("rows")).unwrap();
    let mock = mock.restarted("delay_ms=100", &BatchStore::default());
    let lost = resume(&scratch);
    lost.assert(4, &["does not know the batch batch_mock_0", "remove the line with batch_mock_0", "--resume"]);
    assert!(scratch.dropped("out").is_empty() && mock.batches().created == 0);
    let journal = scratch.path("out").join("batches.jsonl");
    let lines = std::fs::read_to_string(&journal).unwrap();
    let kept: String = lines.split_inclusive('\n').filter(|line| !line.contains("batch_mock_0")).collect();
    std::fs::write(&journal, kept.replace("\"at\":", "\"at\":0,\"then\":")).unwrap();
    resume(&scratch).assert(0, &["rows out         5"]);
    assert_eq!(mock.batches().created, 1);
}

#[test]
fn a_provider_that_restarts_and_keeps_its_batches_is_waited_for() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(5));
    let mock = Mock::restart(ENDLESS, store.clone(), 0);
    let (mut run, lines) = start(&scratch, &pipeline(&mock, "", ""));
    line(&lines, |line| line["providers"][0]["batches"].is_string());
    let mock = mock.restarted("delay_ms=100", &store);
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!((mock.batches().created, mock.batches().repeated, scratch.rows("out").len()), (1, 0, 5));
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_the_batch_at_the_provider_and_a_resumed_run_collects_it() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(5));
    let mock = Mock::restart(ENDLESS, store.clone(), 0);
    let (mut run, lines) = start(&scratch, &pipeline(&mock, "", ""));
    line(&lines, |line| line["providers"][0]["batches"].is_string());
    crate::support::interrupt(&run);
    let said = line(&lines, |line| line["kind"] == "message" && line["text"].as_str().unwrap().contains("interrupted"));
    assert!(said["text"].as_str().unwrap().contains("`--resume` collects them"), "{said}");
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let end = line(&lines, |line| line["kind"] == "summary");
    assert!(end["stopped"].as_str().unwrap().contains("1 batch goes on at the provider"), "{end}");
    assert!(scratch.dropped("out").is_empty());
    let mock = mock.restarted("delay_ms=100", &store);
    resume(&scratch).assert(0, &["rows out         5"]);
    assert_eq!((mock.batches().created, mock.batches().requests), (1, 5));
}

#[cfg(unix)]
#[test]
fn the_requests_of_a_batch_that_was_cancelled_at_the_provider_are_not_sent_again() {
    let (store, scratch) = (BatchStore::default(), Scratch::new(3));
    let mock = Mock::restart(ENDLESS, store.clone(), 0);
    let (mut run, lines) = start(&scratch, &pipeline(&mock, "", ""));
    line(&lines, |line| line["providers"][0]["batches"].is_string());
    assert_eq!(mock.send("POST", "/batches/batch_mock_0/cancel")["status"], "cancelled");
    assert_eq!(run.wait().unwrap().code(), Some(4));
    assert_eq!((scratch.dropped("out").len(), mock.batches().created), (3, 1));
    assert!(scratch.dropped("out")[0]["detail"].as_str().unwrap().contains("was cancelled at the provider"));
    let mock = mock.restarted("delay_ms=100", &store);
    resume(&scratch).assert(6, &["dropped          3"]);
    let again = scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume", "--retry-dropped"]);
    again.assert(0, &["rows out         3"]);
    assert_eq!(mock.batches().created, 2);
}

#[cfg(unix)]
#[test]
fn a_run_that_stops_because_rows_fail_does_not_wait_for_its_other_batches() {
    let (mock, scratch) = (Mock::start(ENDLESS), Scratch::new(20));
    let text = pipeline(&mock, "batch_size = 10\n", "").replace("shutdown_rate = \"never\"", "");
    let (mut run, lines) = start(&scratch, &text);
    wait_until(|| mock.batches().created, |created| *created == 2);
    // The second one of them may not be known to the run yet.
    line(&lines, |line| line["providers"][0]["batches"].as_str().is_some_and(|text| text.starts_with("2 batches")));
    mock.send("POST", "/batches/batch_mock_0/cancel");
    assert_eq!(run.wait().unwrap().code(), Some(4));
    let end = line(&lines, |line| line["kind"] == "summary");
    assert!(end["stopped"].as_str().unwrap().contains("1 batch goes on at the provider"), "{end}");
}

#[test]
fn a_single_row_is_a_batch_of_its_own() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(1));
    scratch.run_pipeline(&pipeline(&mock, "", "")).assert(0, &["rows out         1"]);
    assert_eq!((mock.batches().created, mock.calls()), (1, 0));
}

#[test]
fn the_cost_limit_holds_before_a_batch_is_submitted() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(5));
    scratch.write("pipeline.toml", &pipeline(&mock, "", ""));
    let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", "--max-cost", "0.5"]);
    ended.assert(8, &["the next call might pass the cost limit of 0.5000 USD"]);
    assert_eq!((mock.batches().created, scratch.dropped("out").len()), (0, 0));
}

#[test]
fn a_dry_run_and_a_plan_say_that_requests_go_in_batches_and_a_check_does_not_call_the_model() {
    let (mock, scratch) = (Mock::start("delay_ms=100"), Scratch::new(5));
    scratch.write("pipeline.toml", &pipeline(&mock, "batch_size = 4", ""));
    let said = "`title` goes to `m` in batches of up to 4 rows of a row group";
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--dry-run"]).assert(0, &[said]);
    let json = scratch.run(&["run", "pipeline.toml", "--out", "out", "--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(plan["requests"][0].as_str().is_some_and(|line| line.contains(said)), "{plan}");
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--plan"]).assert(0, &[said]);
    scratch.run(&["check", "pipeline.toml"]).assert(0, &["server reached in"]);
    assert_eq!(mock.calls(), 0);
}

#[test]
fn what_cannot_go_in_batches_is_an_error_with_what_was_expected() {
    let scratch = Scratch::new(1);
    let file = |model: &str, column: &str| {
        let text = format!(
            "[seed]\npath = \"data.csv\"\n\
             [[models]]\nname = \"m\"\nprovider = \"p\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmax_parallel = 1\n{model}\n\
             [[models]]\nname = \"n\"\nprovider = \"p\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmax_parallel = 1\n\
             [[columns]]\nname = \"title\"\nprompt = \"x\"\n{column}\n"
        );
        scratch.write("p.toml", &text);
        scratch.run(&["run", "p.toml", "--out", "out", "--dry-run"])
    };
    let (batch, one) = ("mode = \"batch\"", "model = \"m\"");
    file("mode = \"batches\"", one).assert(2, &["expected one of: call, batch"]);
    file(&format!("{batch}\napi = \"anthropic\""), one)
        .assert(2, &["another API", "a chat model with `api = \"openai\"`"]);
    file(&format!("{batch}\ndomain = \"embedding\""), "model = \"n\"").assert(2, &["the domain `embedding`"]);
    file(&format!("{batch}\nbudgets = {{ requests_per_minute = 1 }}"), one).assert(2, &["no `budgets` beside"]);
    file(batch, "models = [\"n\", \"m\"]")
        .assert(2, &["`models` in [[columns]] has `m`, whose requests go in batches"]);
    file(batch, "model = \"m\"\nstrategy = \"full_column\"")
        .assert(2, &["go in batches of rows", "`strategy = \"cell\"`"]);
    file(batch, "model = \"m\"\ntools = [\"tide_table\"]").assert(2, &["`tools` in [[columns]]", "`mode = \"call\"`"]);
    file(batch, "model = \"m\"\nbatch_size = 50001").assert(2, &["a whole number from 1 to 50000"]);
    file(batch, "model = \"n\"\nbatch_size = 5").assert(2, &["has no effect", "a model with `mode = \"batch\"`"]);
    file(&format!("{batch}\nmodel = \"n\""), one).assert(2, &["has another `mode`"]);
}

#[test]
fn settings_of_the_mock_are_flags_of_the_command() {
    let scratch = Scratch::new(1);
    scratch.run(&["mock", "--batches", "delay=5"]).assert(2, &["unknown setting `delay`; expected delay_ms"]);
    assert_eq!("delay_ms=1000".parse(), Ok(BatchSettings::default()));
}
