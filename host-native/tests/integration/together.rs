//! Tests of one dataset that several processes fill together over a real Redis server, while processes are
//! started, stopped, killed and suspended, and the server loses its data.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::link::Link;
use crate::support::patience::wait_until;
use crate::support::redis_server::RedisServer;
use crate::support::{Scratch, mock_pipeline, remote_pipeline, serve};

/// The rows of the dataset, in row groups of four. The last one has two.
const ROWS: u64 = 42;

/// A provider that answers a call with its prompt: of the rows of the first row group at once, and of all
/// others after a permit of `go`. It rejects every tenth row.
#[derive(Debug)]
struct Provider {
    /// Calls by row.
    calls: Mutex<BTreeMap<u64, usize>>,
    in_flight: AtomicUsize,
    /// The most calls that were in flight at the same time.
    peak: AtomicUsize,
    go: Semaphore,
}

impl Provider {
    fn start() -> (String, Arc<Self>) {
        let provider = Arc::new(Self {
            calls: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            go: Semaphore::new(0),
        });
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&provider));
        (format!("{}/v1", serve(router)), provider)
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().values().sum()
    }

    /// Returns the price of all calls but the rejected ones, which are free.
    fn cost(&self) -> f64 {
        let calls = self.calls.lock().unwrap();
        let answered: usize = calls.iter().filter(|(row, _)| !is_rejected(**row)).map(|(_, calls)| calls).sum();
        answered as f64 * COST
    }

    /// Waits until so many calls were made.
    fn until_calls(&self, calls: usize) {
        wait_until(|| self.calls(), |made| *made == calls);
    }

    /// Answers all calls that wait, and all later ones.
    fn answer_all(&self) {
        self.go.add_permits(100_000);
    }
}

fn is_rejected(row: u64) -> bool {
    row % 10 == 9
}

async fn answer(State(provider): State<Arc<Provider>>, Json(request): Json<Value>) -> Response {
    let prompt = request["messages"][0]["content"].as_str().unwrap().to_string();
    let row: u64 = prompt.split(' ').find_map(|word| word.parse().ok()).unwrap();
    *provider.calls.lock().unwrap().entry(row).or_default() += 1;
    let in_flight = provider.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    provider.peak.fetch_max(in_flight, Ordering::SeqCst);
    if row >= 4 {
        provider.go.acquire().await.unwrap().forget();
    }
    provider.in_flight.fetch_sub(1, Ordering::SeqCst);
    if is_rejected(row) {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": { "message": "too long" } }))).into_response();
    }
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": prompt }, "finish_reason": "stop" });
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100 });
    Json(json!({ "id": "c", "object": "chat.completion", "choices": [choice], "usage": usage })).into_response()
}

/// The price of a call in a world with prices. Its estimate is a little more.
const COST: f64 = 0.1;

/// The arguments of a process that fills the dataset.
const TOGETHER: [&str; 5] = ["run", "p.toml", "--out", "out", "--together"];

/// A dataset, its provider and the server of the processes that fill it.
struct World {
    server: RedisServer,
    provider: Arc<Provider>,
    scratch: Scratch,
}

/// A process that fills the dataset. It is killed on drop.
struct Process(Child);

impl Process {
    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }

    /// Waits for its end, and returns its exit code and its summary.
    fn end(mut self) -> (Option<i32>, Value) {
        let output = std::io::read_to_string(self.0.stdout.take().unwrap()).unwrap();
        let code = self.0.wait().unwrap().code();
        let summary = output.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        (code, summary.unwrap_or_else(|| panic!("exit {code:?} without a summary:\n{output}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    /// `limit` is the number of calls at once of all processes together.
    fn new(limit: u32) -> Self {
        let (base_url, provider) = Provider::start();
        let server = RedisServer::start();
        let mut scratch = Scratch::new(usize::try_from(ROWS).unwrap());
        scratch.env("SHARE_URL", &server.url());
        let more = "row_groups = 2\nadaptive_row_groups = false\n[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\n";
        let pipeline = remote_pipeline(&base_url, "limit = \"fixed\"", more);
        scratch.write("p.toml", &pipeline.replace("max_parallel = 4", &format!("max_parallel = {limit}")));
        Self { server, provider, scratch }
    }

    fn start(&self) -> Process {
        self.start_with(&[])
    }

    fn start_with(&self, arguments: &[&str]) -> Process {
        let mut command = self.scratch.command(&[&TOGETHER[..], &["--json"], arguments].concat());
        Process(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Returns a world whose calls have a price.
    fn with_prices(limit: u32) -> Self {
        let world = Self::new(limit);
        let pipeline = fs::read_to_string(world.scratch.path("p.toml")).unwrap();
        let price = "price = { input_per_million = 1000, output_per_million = 1000 }\ncooldown";
        let priced = pipeline.replace("cooldown", price).replace("prompt =", "max_tokens = 100\nprompt =");
        world.scratch.write("p.toml", &priced);
        world
    }

    /// Returns the sum of all leases of the cost limit at the server.
    fn leased(&self) -> f64 {
        let leases = self.server.send(&format!("HGETALL {}", self.key_of("cost"))).unwrap();
        let words: Vec<&str> = leases.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let leases = words.chunks_exact(2).filter(|field| field[0].starts_with("lease:"));
        let leases = leases.map(|field| field[1].split_once(' ').unwrap().1.parse::<u64>().unwrap());
        leases.sum::<u64>() as f64 / 1e6
    }

    /// Returns the path of a file of the only process.
    fn own_file(&self, name: &str) -> PathBuf {
        let processes = fs::read_dir(self.scratch.path("out/processes")).unwrap().map(|entry| entry.unwrap().path());
        let own: Vec<PathBuf> = processes.filter(|path| path.is_dir()).collect();
        assert_eq!(own.len(), 1);
        own[0].join(name)
    }

    /// Returns what the job has spent by its manifest, once a run has gone on with it alone.
    fn spent(&self) -> f64 {
        self.scratch.manifest("out")["totals"]["spent"].as_str().unwrap().parse().unwrap()
    }

    /// Starts the first process, and waits until it has written the first row group and the calls of the next
    /// two wait at the provider.
    fn start_first(&self) -> Process {
        let process = self.start();
        self.provider.until_calls(4 + 8);
        process
    }

    /// Returns the key of the row groups at the server.
    fn key(&self) -> String {
        self.key_of("row_groups")
    }

    fn key_of(&self, part: &str) -> String {
        let answer = self.server.send(&format!("KEYS *:{part}")).unwrap();
        answer.lines().find(|line| line.ends_with(part)).expect(&answer).to_string()
    }

    /// Returns the row groups that processes hold at the server: the id of each entry, and its process.
    /// `filter` is empty, or leaves some of them out.
    fn held(&self, filter: &str) -> Vec<[String; 2]> {
        let pending = self.server.send(&format!("XPENDING {} run {filter} - + 100", self.key())).unwrap();
        let words: Vec<&str> = pending.lines().filter(|line| !line.starts_with(['*', '$', ':', '+'])).collect();
        words.chunks_exact(2).map(|entry| [entry[0].to_string(), entry[1].to_string()]).collect()
    }

    /// Waits until [`Self::held`] returns these entries.
    fn until_held(&self, filter: &str, entries: &[&str]) {
        wait_until(|| self.held(filter), |held| held.iter().map(|[entry, _]| entry).eq(entries));
    }

    /// Lets claims lapse, as if their processes had not been heard of for long.
    fn age(&self, held: &[[String; 2]]) {
        for [entry, process] in held {
            let aged = format!("XCLAIM {} run {process} 0 {entry} IDLE 60000 JUSTID", self.key());
            assert!(self.server.send(&aged).unwrap().contains(entry));
        }
    }

    /// Checks that the files of all row groups are those of one process that has the dataset for itself.
    fn check_files(&self) {
        self.provider.answer_all();
        self.scratch.run(&["run", "p.toml", "--out", "single"]).assert(6, &["rows out"]);
        let [single, together] = ["single", "out"].map(|out| files(&self.scratch.path(out).join("rows")));
        assert_eq!(together, single);
    }

    /// Checks the files, and that they have all rows but the rejected ones.
    fn check_rows(&self) {
        self.check_files();
        let numbers: Vec<u64> = self.scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..ROWS).filter(|row| !is_rejected(*row)).collect::<Vec<_>>());
    }
}

/// Returns the content of all files in a directory, also of hidden ones.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    entries.map(file).collect()
}

/// Returns the rows that a process has written, and those of all others.
fn written(summary: &Value) -> [u64; 2] {
    [&summary["rows_out"], &summary["earlier"]["rows_out"]].map(|rows| rows.as_u64().unwrap())
}

/// The number of rows that are not rejected.
const ROWS_OUT: u64 = ROWS - 4;

#[test]
fn three_processes_write_each_row_once_and_as_one_process_does() {
    let world = World::new(32);
    let processes = [world.start_first(), world.start(), world.start()];
    world.provider.until_calls(4 + 3 * 8);
    let active = world.scratch.run(&["run", "p.toml", "--out", "out", "--resume"]);
    active.assert(5, &["another run is writing to out"]);
    world.provider.answer_all();
    let ended = processes.map(Process::end);
    for (code, summary) in &ended {
        let [own, others] = written(summary);
        assert!(*code == Some(6) && own > 0 && own + others == ROWS_OUT, "exit {code:?}: {summary}");
    }
    assert_eq!(ended.iter().map(|(_, summary)| written(summary)[0]).sum::<u64>(), ROWS_OUT);
    let once: BTreeMap<u64, usize> = (0..ROWS).map(|row| (row, 1)).collect();
    assert_eq!(*world.provider.calls.lock().unwrap(), once, "no call was made twice");
    let manifest = world.scratch.manifest("out");
    assert_eq!((&manifest["state"], &manifest["rows_out"]), (&json!("ended"), &json!(ROWS_OUT)));
    // A process that comes when all is done makes nothing, and one process goes on with the directory.
    let (code, late) = world.start().end();
    assert_eq!((code, written(&late)), (Some(6), [0, ROWS_OUT]));
    let resume = ["run", "p.toml", "--out", "out", "--resume", "--export", "all.jsonl"];
    world.scratch.run(&resume).assert(6, &["resumed         38", "calls in 5 runs", "exported        38"]);
    assert!(!world.scratch.path("out/processes").exists());
    world.check_rows();
}

#[test]
fn the_calls_of_all_processes_together_keep_the_limit() {
    let world = World::new(6);
    let processes = [world.start(), world.start(), world.start()];
    let in_flight = || world.provider.in_flight.load(Ordering::SeqCst);
    wait_until(in_flight, |calls| *calls == 6);
    world.provider.answer_all();
    for (code, summary) in processes.map(Process::end) {
        assert_eq!(code, Some(6), "{summary}");
    }
    assert_eq!(world.provider.peak.load(Ordering::SeqCst), 6);
    world.check_rows();
}

#[test]
fn processes_that_fill_one_dataset_are_recorded_and_replayed() {
    let world = World::new(6);
    let logs = ["first.jsonl", "second.jsonl"];
    let processes = logs.map(|log| world.start_with(&["--record", log]));
    wait_until(|| world.provider.in_flight.load(Ordering::SeqCst), |calls| *calls == 6);
    world.provider.answer_all();
    for (code, summary) in processes.map(Process::end) {
        assert_eq!(code, Some(6), "{summary}");
    }
    for log in logs {
        world.scratch.run(&["replay", log]).assert(0, &["the run: completed", "every decision is the same"]);
    }
    world.check_rows();
}

#[test]
fn a_process_that_is_killed_leaves_its_row_groups_to_one_that_joins_late() {
    let world = World::new(32);
    let killed = world.start_first();
    world.until_held("", &["2-0", "3-0"]);
    let held = world.held("");
    killed.signal("-KILL");
    drop(killed);
    let late = world.start();
    world.provider.until_calls(4 + 8 + 8);
    world.age(&held);
    world.provider.answer_all();
    let (code, summary) = late.end();
    assert_eq!((code, written(&summary)), (Some(6), [ROWS_OUT - 4, 4]), "{summary}");
    world.check_rows();
}

/// Terminates a process that has finished a part of a row group, and lets another one go on. `output` has
/// keys of `[output]`.
fn fill_after_a_terminated_process(output: &str) -> World {
    // So many calls that one row group is complete, and the next one is not.
    let world = World::new(6);
    let pipeline = fs::read_to_string(world.scratch.path("p.toml")).unwrap();
    world.scratch.write("p.toml", &pipeline.replace("[run]\n", &format!("[output]\n{output}\n[run]\n")));
    let mut leaving = world.start();
    world.provider.until_calls(4 + 6);
    leaving.signal("-TERM");
    let mut lines = BufReader::new(leaving.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("terminated: awaiting outstanding calls")));
    world.provider.answer_all();
    let left: Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert_eq!((leaving.0.wait().unwrap().code(), written(&left)), (Some(130), [8, 0]));
    world.until_held("IDLE 3600000", &["3-0"]);
    let (code, summary) = world.start().end();
    // Two row groups, and at least the first row of the third one.
    let [own, earlier] = written(&summary);
    assert!(code == Some(6) && earlier > 8 && own + earlier == ROWS_OUT, "{code:?}: {summary}");
    assert_eq!(left["unfinished"], json!({ "rows": earlier - 8, "row_groups": 1 }), "the summary names what it keeps");
    assert_eq!(world.provider.calls() as u64, ROWS, "no call is made twice");
    world
}

#[test]
fn a_process_that_is_terminated_hands_back_at_once_what_it_has_not_finished_and_its_rows_are_kept() {
    fill_after_a_terminated_process("").check_rows();
}

#[test]
fn the_rows_that_a_process_leaves_are_taken_over_with_their_calls_and_in_other_formats() {
    let outputs = ["calls = true", "format = \"csv\"", "format = \"parquet\""];
    for output in outputs.into_iter().filter(|output| cfg!(feature = "parquet") || !output.contains("parquet")) {
        fill_after_a_terminated_process(output).check_files();
    }
}

#[test]
fn a_process_that_stops_after_a_failed_row_leaves_what_it_has_not_finished_to_one_that_goes_on() {
    // With one call at a time, the second column of rows after the failed one is not made.
    let world = World::new(1);
    let pipeline = fs::read_to_string(world.scratch.path("p.toml")).unwrap();
    let column = "[[columns]]\nname = \"name\"\nmodel = \"m\"\nprompt = \"A name for: {{ title }}\"\n[run]\n";
    let set = |key: &str| world.scratch.write("p.toml", &pipeline.replace("[run]\n", &format!("{column}{key}\n")));
    set("shutdown_window = 1");
    world.provider.answer_all();
    let (code, summary) = world.start().end();
    assert!(code == Some(4) && summary["stopped"].is_string(), "{code:?}: {summary}");
    set("shutdown_rate = \"never\"");
    let (code, summary) = world.start().end();
    let [own, earlier] = written(&summary);
    assert!(code == Some(6) && earlier >= 8 && own + earlier == ROWS_OUT, "{code:?}: {summary}");
    world.check_rows();
}

#[test]
fn rows_that_are_not_accepted_and_near_duplicates_are_those_of_one_process() {
    let world = World::new(6);
    let pipeline = fs::read_to_string(world.scratch.path("p.toml")).unwrap();
    let columns = "accept_if = \"row is not divisibleby 3\"\n\
                   [[columns]]\nname = \"sort\"\nkind = \"expression\"\n\
                   template = \"{{ row % 5 }} {{ row % 5 }} {{ row % 5 }}\"\n\
                   [output]\nunique = { column = \"sort\" }\n[run]\n";
    world.scratch.write("p.toml", &pipeline.replace("[run]\n", columns));
    let processes = [world.start(), world.start(), world.start()];
    wait_until(|| world.provider.in_flight.load(Ordering::SeqCst), |calls| *calls == 6);
    world.provider.answer_all();
    for (code, summary) in processes.map(Process::end) {
        assert_eq!(code, Some(6), "{summary}");
    }
    world.check_files();
    let numbers = world.scratch.rows("out").into_iter().map(|row| row["row"].as_u64().unwrap());
    assert!(numbers.eq((0..ROWS).filter(|row| !is_rejected(*row) && row % 3 != 0)));
    let exported = ["out", "single"].map(|out| {
        let file = format!("{out}.jsonl");
        world.scratch.run(&["run", "p.toml", "--out", out, "--resume", "--export", &file]).assert(6, &["exported"]);
        fs::read_to_string(world.scratch.path(&file)).unwrap()
    });
    assert_eq!(exported[0], exported[1]);
    let exported = exported[0].lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone());
    assert_eq!(exported.collect::<Vec<_>>(), ["1", "2", "4", "5", "8"], "the first ones of each sort");
}

#[test]
fn a_process_that_is_interrupted_while_it_waits_for_the_row_groups_of_others_ends_as_one_that_was_interrupted() {
    let world = World::new(32);
    let three_groups = ["--limit", "12"];
    let first = world.start_with(&three_groups);
    world.provider.until_calls(12);
    let waiting = world.start_with(&three_groups);
    let processes = format!("HLEN {}", world.key_of("processes"));
    wait_until(|| world.server.send(&processes).unwrap(), |count| count.contains(":2"));
    // The first process asks for nothing while it makes two row groups.
    world.server.send("CONFIG RESETSTAT").unwrap();
    let calls = || world.server.send("INFO commandstats").unwrap().contains("cmdstat_xreadgroup");
    wait_until(calls, |has_asked| *has_asked);
    waiting.signal("-INT");
    let (code, summary) = waiting.end();
    assert_eq!((code, written(&summary)), (Some(130), [0, 4]), "{summary}");
    world.provider.answer_all();
    let (code, summary) = first.end();
    assert_eq!((code, written(&summary)), (Some(6), [11, 0]), "{summary}");
}

#[test]
fn processes_go_on_when_the_server_loses_its_data() {
    let world = World::new(32);
    let processes = [world.start_first(), world.start()];
    world.provider.until_calls(4 + 2 * 8);
    world.server.send("FLUSHALL").unwrap();
    world.provider.answer_all();
    for (code, summary) in processes.map(Process::end) {
        let [own, others] = written(&summary);
        assert!(code == Some(6) && own + others == ROWS_OUT, "exit {code:?}: {summary}");
    }
    world.check_rows();
}

/// Starts two processes that find the server over links, and lets them finish their row groups while the
/// links have this fault. It is over when all these row groups are written.
async fn check_fault(fault: fn(&Link), ends: impl FnOnce(&mut World)) {
    let mut world = World::new(32);
    let links = [Link::open(world.server.port()).await, Link::open(world.server.port()).await];
    let processes = links.each_ref().map(|link| world.start_with(&["--share", &world.server.url_at(link.port())]));
    world.provider.until_calls(4 + 2 * 8);
    links.iter().for_each(fault);
    world.provider.answer_all();
    let row_files = || fs::read_dir(world.scratch.path("out/rows")).unwrap().count();
    wait_until(row_files, |files| *files >= 5);
    ends(&mut world);
    // What is lost on the way is not known to the processes: they ask again.
    links.iter().for_each(Link::cut);
    links.iter().for_each(Link::heal);
    for (code, summary) in processes.map(Process::end) {
        let [own, others] = written(&summary);
        assert!(code == Some(6) && own + others == ROWS_OUT, "exit {code:?}: {summary}");
    }
    world.check_rows();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_cut_off_from_the_server_write_each_row_once() {
    check_fault(Link::cut, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_lose_the_replies_of_the_server_write_each_row_once() {
    check_fault(Link::stall_replies, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_go_on_when_the_server_is_restarted_without_its_data() {
    check_fault(Link::cut, |world| {
        world.server.stop();
        world.server.restart();
    })
    .await;
}

#[test]
fn a_process_with_another_server_database_or_name_is_refused_while_the_dataset_is_filled() {
    let world = World::new(32);
    let first = world.start_first();
    let processes = || fs::read_dir(world.scratch.path("out/processes")).unwrap().map(|entry| entry.unwrap().path());
    let before: BTreeSet<_> = processes().collect();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let ended = world.scratch.run(&[&TOGETHER[..], arguments].concat());
        ended.assert(5, parts);
        assert_eq!(processes().collect::<BTreeSet<_>>(), before, "it leaves nothing");
    };
    let other = RedisServer::start_with_password();
    let unknown = format!("is not known at redis://127.0.0.1:{}/0: expected the same server", other.port());
    refused(&["--share", &other.url()], &["out/processes/", &unknown]);
    refused(&["--share", &format!("{}/1", world.server.url())], &["is not known at", "/1: expected the same server"]);
    let pipeline = fs::read_to_string(world.scratch.path("p.toml")).unwrap();
    world.scratch.write("p.toml", &pipeline.replace("name = \"test\"", "name = \"other\""));
    refused(&[], &["under the name `test` in [share], and the name is now `other`"]);
    world.scratch.write("p.toml", &pipeline);
    world.server.send("FLUSHALL").unwrap();
    let second = world.start();
    world.provider.answer_all();
    for (code, summary) in [first, second].map(Process::end) {
        let [own, others] = written(&summary);
        assert!(code == Some(6) && own + others == ROWS_OUT, "exit {code:?}: {summary}");
    }
    world.check_rows();
}

#[test]
fn a_process_that_was_suspended_for_longer_than_its_claim_writes_no_row_twice() {
    let world = World::new(32);
    let mut suspended = world.start_first();
    let held = world.held("");
    suspended.signal("-STOP");
    world.age(&held);
    let other = world.start();
    world.provider.until_calls(4 + 8 + 8);
    world.provider.answer_all();
    let (code, summary) = other.end();
    assert_eq!((code, written(&summary)), (Some(6), [ROWS_OUT - 4, 4]), "{summary}");
    suspended.signal("-CONT");
    let lines = BufReader::new(suspended.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<String> = lines.collect();
    let lost = lines.iter().filter(|line| line.contains("was made by another process, too"));
    assert_eq!(lost.count(), 2, "{lines:?}");
    let summary = lines.last().and_then(|line| serde_json::from_str(line).ok()).unwrap();
    assert_eq!((suspended.0.wait().unwrap().code(), written(&summary)), (Some(6), [4, ROWS_OUT - 4]));
    world.check_rows();
}

#[test]
fn a_process_that_cannot_write_its_row_groups_leaves_them_to_another_one() {
    let world = World::new(32);
    let mut first = world.start_first();
    // Nothing can be written there any more, as on a disk that is full.
    let (rows, kept) = (world.own_file("rows"), world.own_file("kept"));
    fs::rename(&rows, &kept).unwrap();
    fs::write(&rows, "").unwrap();
    world.provider.answer_all();
    assert_eq!(first.0.wait().unwrap().code(), Some(5));
    fs::remove_file(&rows).unwrap();
    fs::rename(&kept, &rows).unwrap();
    let (code, summary) = world.start().end();
    assert_eq!((code, written(&summary)), (Some(6), [ROWS_OUT - 4, 4]), "{summary}");
    world.check_rows();
}

#[test]
fn a_user_of_the_server_needs_the_documented_permissions_and_is_refused_without_them() {
    let mut world = World::new(8);
    let page = include_str!("../../docs/sharing.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER tidegate ")).unwrap();
    let more = page.lines().find(|line| line.contains("`tidegate run --together`, it needs these, too")).unwrap();
    let more = more.rsplit('`').nth(1).unwrap();
    assert!(world.server.send(rule).unwrap().contains("+OK"));
    world.scratch.env("SHARE_URL", &format!("redis://tidegate:password@127.0.0.1:{}", world.server.port()));
    let refused = "the user in the address may not do this";
    world.scratch.run(&TOGETHER).assert(2, &[refused]);
    assert!(!world.scratch.path("out").exists());
    assert!(world.server.send(&format!("ACL SETUSER tidegate {more}")).unwrap().contains("+OK"));
    world.provider.answer_all();
    world.scratch.run(&TOGETHER).assert(6, &["rows out"]);
    world.check_rows();
}

#[test]
fn what_several_processes_cannot_do_together_is_refused_before_the_output_is_changed() {
    let scratch = Scratch::new(3);
    let share = ["--share", "redis://127.0.0.1:1"];
    let refused = |pipeline: &str, arguments: &[&str], parts: &[&str]| {
        scratch.write("p.toml", pipeline);
        let ended = scratch.run(&[&["run", "p.toml", "--out", "out", "--together"], arguments].concat());
        ended.assert(2, parts);
        assert!(!scratch.path("out").exists());
    };
    let plain = mock_pipeline(4, "", "capacity = { shape = \"constant\", slots = 8 }");
    refused(&plain, &[], &["--together needs a server", "--share URL"]);
    let batch = remote_pipeline("http://127.0.0.1:1/v1", "mode = \"batch\"", "");
    refused(&batch, &share, &["--together cannot be used with", "`mode = \"batch\"`"]);
    let image = plain
        .replace("prompt = ", "kind = \"image\"\nprompt = ")
        .replace("max_parallel", "domain = \"image\"\nmax_parallel");
    refused(&image, &share, &["--together cannot be used with the column `title` of the kind `image`"]);
    let wanted = plain.replace("[seed]\npath = \"data.csv\"\n", "").replace("{{ note }}", "x");
    let wanted = wanted.replace("row_group_size = 10\n", "rows = 5\nrow_group_size = 10\n");
    let wanted =
        wanted.replace("[[columns]]\nname = \"loud\"\n", "[[columns]]\nname = \"loud\"\naccept_if = \"loud\"\n");
    refused(&wanted, &share, &["--together cannot be used with `accept_if` and `rows`"]);
}

#[test]
fn processes_with_a_cost_limit_spend_it_together_and_end_as_one_process_does() {
    let world = World::with_prices(32);
    world.provider.answer_all();
    for (code, summary) in [(); 3].map(|()| world.start_with(&["--max-cost", "2"])).map(Process::end) {
        let why = summary["stopped"].as_str().unwrap_or_default();
        assert!(code == Some(8) && why == "the next call might pass the cost limit of 2.00 USD", "{code:?}: {summary}");
    }
    let cost = world.provider.cost();
    assert!((1.2..=2.0).contains(&cost), "{cost}: nearly all is spent, and not more");
    assert_amounts(world.leased(), cost);
    // A later run counts what all processes have spent.
    let resume = ["run", "p.toml", "--out", "out", "--resume", "--max-cost"];
    world.scratch.run(&[&resume[..], &["2"]].concat()).assert(8, &["the next call might pass the cost limit"]);
    assert!(world.provider.cost() <= 2.0);
    assert_amounts(world.spent(), world.provider.cost());
    world.scratch.run(&[&resume[..], &["100"]].concat()).assert(6, &["calls in 5 runs"]);
    assert_amounts(world.spent(), world.provider.cost());
    assert_eq!(world.provider.calls() as u64, ROWS, "what was paid for is not made again");
    world.check_rows();
}

#[test]
fn what_a_killed_process_has_leased_is_not_spent_by_others_until_one_run_goes_on_alone() {
    let world = World::with_prices(32);
    let limit = ["--max-cost", "2.5"];
    let killed = world.start_with(&limit);
    world.provider.until_calls(4 + 8);
    killed.signal("-KILL");
    drop(killed);
    let leased = world.leased();
    assert!(leased > 1.2, "{leased}: twelve calls");
    world.provider.answer_all();
    let others = [world.start_with(&limit), world.start_with(&limit)];
    for (code, summary) in others.map(Process::end) {
        assert_eq!(code, Some(8), "{summary}");
    }
    let cost = world.provider.cost();
    assert!((1.8..=2.5).contains(&cost), "{cost}");
    assert!(world.leased() >= leased && world.leased() <= 2.5, "{}", world.leased());
    // The amount of the killed process that was neither spent nor in flight is there again.
    let resume = ["run", "p.toml", "--out", "out", "--resume", "--max-cost", "2.5"];
    world.scratch.run(&resume).assert(8, &["the next call might pass the cost limit"]);
    assert!(world.provider.cost() <= 2.5 && world.spent() <= 2.5);
}

#[test]
fn processes_keep_the_cost_limit_when_the_server_loses_its_data() {
    let world = World::with_prices(32);
    let start = || world.start_with(&["--max-cost", "3"]);
    let first = start();
    world.provider.until_calls(4 + 8);
    let second = start();
    world.provider.until_calls(4 + 8 + 8);
    for loss in ["FLUSHALL", "FLUSHALL"] {
        world.server.send(loss).unwrap();
        // They join again, and count what is in the files.
        wait_until(|| world.server.send("KEYS *:cost").unwrap(), |keys| keys.contains(":cost"));
        wait_until(|| world.leased(), |leased| *leased > 2.0);
    }
    world.provider.answer_all();
    let third = start();
    for (code, summary) in [first, second, third].map(Process::end) {
        assert_eq!(code, Some(8), "{summary}");
    }
    let cost = world.provider.cost();
    assert!((2.0..=3.0).contains(&cost), "{cost}");
    assert_amounts(world.leased(), cost);
}

#[test]
fn a_process_gives_back_at_its_end_what_it_has_not_spent_and_shows_what_all_have() {
    let world = World::with_prices(32);
    world.provider.answer_all();
    let processes = [world.start_with(&["--max-cost", "100"]), world.start_with(&["--max-cost", "100"])];
    for (code, summary) in processes.map(Process::end) {
        assert_eq!(code, Some(6), "{summary}");
    }
    assert_amounts(world.leased(), world.provider.cost());
    // The dataset is complete, so this one makes no call.
    let (code, summary) = world.start_with(&["--max-cost", "7"]).end();
    assert_eq!(code, Some(6), "another limit is possible once none fills the dataset: {summary}");
    assert_amounts(summary["job"]["spent"].as_str().unwrap().parse().unwrap(), world.provider.cost());
    assert_eq!((&summary["job"]["runs"], written(&summary)[0]), (&json!(3), 0));
}

#[test]
fn processes_with_different_cost_limits_are_refused_while_the_dataset_is_filled() {
    let world = World::with_prices(32);
    let first = world.start_with(&["--max-cost", "5"]);
    world.provider.until_calls(4 + 8);
    let refused = |arguments: &[&str], is: &str| {
        let ended = world.scratch.run(&[&TOGETHER[..], arguments].concat());
        ended.assert(5, &["is filled by processes with --max-cost 5, and this one has ", is]);
    };
    refused(&["--max-cost", "6.5"], "--max-cost 6.5: expected the same limit");
    refused(&[], "no --max-cost: expected the same limit");
    let second = world.start_with(&["--max-cost", "5.00"]);
    world.provider.answer_all();
    for (code, summary) in [first, second].map(Process::end) {
        assert_eq!(code, Some(6), "{summary}");
    }
    world.check_rows();
}

#[test]
fn a_process_whose_server_is_gone_spends_what_it_has_leased_and_ends_at_a_signal() {
    // A sixteenth of what is free is less than a call.
    let mut world = World::with_prices(5);
    let mut process = world.start_with(&["--max-cost", "1.2"]);
    world.provider.until_calls(4 + 5);
    world.server.stop();
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("no part of --max-cost can be leased, and it is tried again")));
    let amount = |name| fs::read_to_string(world.own_file(name)).unwrap().trim().parse::<f64>().unwrap();
    let leased = amount("leased.txt");
    world.provider.answer_all();
    // The calls for the other three rows of the two row groups cost more than what is leased.
    wait_until(|| amount("spent.txt"), |spent| (spent - world.provider.cost()).abs() < 1e-9);
    process.signal("-TERM");
    assert_eq!((lines.count() > 0, process.0.wait().unwrap().code()), (true, Some(130)));
    let cost = world.provider.cost();
    assert!(cost <= leased && leased < 11.0 * COST, "{cost} of {leased}, and not of all rows but the rejected one");
}

#[test]
fn a_file_of_another_process_that_cannot_be_read_is_a_warning_at_the_end() {
    let world = World::new(32);
    let mut process = world.start_first();
    let other = world.scratch.path("out/processes/0000000000000009");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("manifest.json"), "{").unwrap();
    world.provider.answer_all();
    let output = std::io::read_to_string(process.0.stdout.take().unwrap()).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(6), "{output}");
    assert!(output.contains("warning: the usage of the job is that of this process: "), "{output}");
    world.check_rows();
}

#[test]
fn a_process_that_cannot_read_the_amounts_of_others_names_the_file_and_fills_nothing() {
    let world = World::with_prices(32);
    let first = world.start_with(&["--max-cost", "5"]);
    world.provider.until_calls(4 + 8);
    let other = world.scratch.path("out/processes/0000000000000009");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("leased.txt"), "").unwrap();
    world.scratch.run(&[&TOGETHER[..], &["--max-cost", "5"]].concat()).assert(5, &["0000000000000009/leased.txt"]);
    // The server loses its data, so the first process cannot go on either.
    world.server.send("FLUSHALL").unwrap();
    world.provider.answer_all();
    let (code, summary) = first.end();
    let why = summary["stopped"].as_str().unwrap_or_default();
    assert!(code == Some(5) && why.contains("0000000000000009/leased.txt"), "{code:?}: {summary}");
}

/// Asserts that two amounts are equal up to rounding.
fn assert_amounts(amount: f64, expected: f64) {
    assert!((amount - expected).abs() < 1e-4, "{amount} and not {expected}");
}
