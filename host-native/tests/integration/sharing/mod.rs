//! Tests of limits that several proxies and runs share over a real Redis server, under real faults.

mod faults;
mod programs;
mod sentinels;
mod servers;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::support::link::Link;
use crate::support::patience::until;
use crate::support::provider::{Seen, provider};
use crate::support::redis_server::RedisServer;
use crate::support::{Scratch, mock_pipeline};

/// The shared limit of the tests.
const LIMIT: u32 = 8;

/// How long a lease is valid by default.
const LEASE: Duration = Duration::from_secs(5);

/// A process `tidegate proxy`. It is killed on drop.
struct ProxyProcess {
    child: Child,
    address: String,
    /// What it says about sharing at its start.
    sharing: String,
    http: Client,
}

impl ProxyProcess {
    fn start(scratch: &Scratch) -> Self {
        let mut child = scratch.command(&["proxy", "proxy.toml"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().expect("the proxy starts").unwrap();
        let first = line();
        let address = first.strip_prefix("listening on ").and_then(|rest| rest.strip_suffix("/v1")).expect(&first);
        let (address, sharing) = (address.to_string(), line());
        // An error means that another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        Self { child, address, sharing, http }
    }

    /// Sends `count` requests whose calls are held by the provider. Their status codes arrive in `answers`.
    fn send(&self, count: u32, answers: &mut JoinSet<u16>) {
        for _ in 0..count {
            let request = self.http.post(format!("{}/v1/chat/completions", self.address));
            let request = request.json(&json!({ "model": "held", "messages": [] }));
            answers.spawn(async move { request.send().await.map_or(0, |response| response.status().as_u16()) });
        }
    }

    async fn page(&self, path: &str) -> String {
        self.http.get(format!("{}{path}", self.address)).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the state of its share, or null before its first call.
    async fn share(&self) -> Value {
        let page: Value = serde_json::from_str(&self.page("/why").await).unwrap();
        let mut share = page["resources"][0]["share"].clone();
        // The age changes all the time, so a wait for something else would never fail.
        if let Some(age) = share.as_object_mut().and_then(|share| share.remove("age_ms")) {
            share["is_recent"] = age.as_u64().is_some_and(|age| age < 1_000).into();
        }
        share
    }

    /// Waits until it has a valid share of a limit of `members` processes.
    async fn until_members(&self, members: u32) {
        let is_sharing = |share: &Value| share["members"] == members && share["is_degraded"] == false;
        until(async || self.share().await, is_sharing).await;
    }

    /// Waits until it has at most `calls` calls in flight, with those on their way to and from the provider.
    async fn until_at_most(&self, calls: u32) {
        let in_flight = async || {
            let health: Value = serde_json::from_str(&self.page("/healthz").await).unwrap();
            health["in_flight"].as_u64().unwrap()
        };
        until(in_flight, |in_flight| *in_flight <= u64::from(calls)).await;
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two proxies in front of one provider.
struct Proxies {
    server: RedisServer,
    first: ProxyProcess,
    second: ProxyProcess,
    seen: Arc<Seen>,
    scratch: Scratch,
}

impl Proxies {
    /// Starts two proxies and makes one call through each, so that both are members.
    async fn start() -> Self {
        Self::start_with("stop").await
    }

    /// Like [`Proxies::start`], with this `on_loss`.
    async fn start_with(on_loss: &str) -> Self {
        let server = RedisServer::start_with_password();
        let (base_url, seen) = provider();
        let mut scratch = Scratch::new(1);
        scratch.env("SHARE_URL", &server.url());
        servers::write_proxy(&scratch, &base_url, &format!("on_loss = \"{on_loss}\""));
        let (first, second) = (ProxyProcess::start(&scratch), ProxyProcess::start(&scratch));
        let proxies = Self { server, first, second, seen, scratch };
        for proxy in [&proxies.first, &proxies.second] {
            let mut answers = JoinSet::new();
            proxy.send(1, &mut answers);
            proxies.until_in_flight(1).await;
            proxies.release(1);
            assert_eq!(answers.join_all().await, [200]);
        }
        proxies.first.until_members(2).await;
        proxies.second.until_members(2).await;
        proxies
    }

    /// Returns the proxy that leads, and the other.
    async fn by_role(&self) -> [&ProxyProcess; 2] {
        let is_first = self.first.share().await["is_leader"] == true;
        if is_first { [&self.first, &self.second] } else { [&self.second, &self.first] }
    }

    async fn until_in_flight(&self, calls: u32) {
        until(async || self.seen.in_flight(), |seen| *seen == calls).await;
    }

    fn release(&self, calls: u32) {
        self.seen.go.add_permits(calls as usize);
    }

    /// Returns the most calls that were in flight at the same time.
    fn peak(&self) -> u32 {
        self.seen.peak.load(Ordering::SeqCst)
    }

    /// Sends requests to both proxies, and checks that all are answered and that the limit was kept.
    async fn check_limit(&self, proxies: &[&ProxyProcess]) {
        let mut answers = JoinSet::new();
        for proxy in proxies {
            proxy.send(2 * LIMIT, &mut answers);
        }
        self.until_in_flight(LIMIT).await;
        self.release(2 * LIMIT * proxies.len() as u32);
        assert!(answers.join_all().await.iter().all(|status| *status == 200));
        assert_eq!(self.peak(), LIMIT);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_proxies_share_one_limit_and_show_it_without_the_password() {
    let proxies = Proxies::start().await;
    let Proxies { server, first, second, scratch, .. } = &proxies;
    proxies.check_limit(&[first, second]).await;
    let address = format!("redis://127.0.0.1:{}/0", server.port());
    assert_eq!(first.sharing, format!("shares limits as `test` over {address}"));
    // A process that was suspended for a moment may take the lead, and a step may fail.
    let has_one_leader = |shares: &[Value; 2]| {
        let leaders = shares.iter().filter(|share| share["is_leader"] == true).count();
        leaders == 1 && shares.iter().all(|share| share["limit"] == LIMIT && share["error"].is_null())
    };
    until(async || [first.share().await, second.share().await], has_one_leader).await;
    let metrics = first.page("/metrics").await;
    for figure in ["members", "limit", "slots", "is_leader", "degraded", "age_seconds"] {
        assert!(metrics.contains(&format!("tidegate_share_{figure}{{")), "{figure} is missing:\n{metrics}");
    }
    let checked = scratch.run(&["proxy", "proxy.toml", "--check"]);
    checked.assert(0, &["shares limits as `test` over", &address]);
    assert!(!checked.all().contains("pass-word") && !metrics.contains("pass-word"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_shows_the_shared_limits_and_joins_none() {
    let proxies = Proxies::start().await;
    // Other names and other keys at the server are not shown.
    proxies.server.send("SET tg2:{test2:p/held/chat}:state x").unwrap();
    proxies.server.send("HSET tg2:{test2:p/other/chat}:state decision x").unwrap();
    proxies.server.send("HSET tg2:{test:p/broken/chat}:state decision x").unwrap();
    let shown = || {
        let checked = proxies.scratch.run(&["proxy", "proxy.toml", "--check"]);
        checked.assert(0, &["  p/broken/chat: no decision that can be read\n  p/held/chat: 8 slots, "]);
        assert!(!checked.all().contains("other"), "{}", checked.all());
        checked.stdout.lines().last().unwrap().to_string()
    };
    let line = shown();
    assert!(line.starts_with("  p/held/chat: 8 slots, 2 processes, leader "), "{line}");
    assert!(line.contains(", shares ") && line.contains(", newest decision ") && line.ends_with(" s ago"), "{line}");
    // A process that was suspended for a moment may take the lead between two looks.
    let looks = async || {
        let shares = [proxies.first.share().await, proxies.second.share().await];
        let line = shown();
        let leader = line.split_once("leader ").map(|(_, rest)| json!([2, rest[..8]]));
        (leader, shares.map(|share| json!([share["members"], share["leader"]])))
    };
    until(looks, |(leader, shares)| shares.iter().all(|share| Some(share) == leader.as_ref())).await;
    for proxy in [&proxies.first, &proxies.second] {
        proxy.signal("-INT");
    }
    let is_over = || shown().starts_with("  p/held/chat: 8 slots, no process now, newest decision ");
    until(async || is_over(), |is_over| *is_over).await;
}

/// Checks that a proxy gets the whole limit when the other, which leads or does not, is killed.
async fn check_kill(kills_leader: bool) {
    let proxies = Proxies::start().await;
    let [leader, member] = proxies.by_role().await;
    let (killed, other) = if kills_leader { (leader, member) } else { (member, leader) };
    killed.signal("-KILL");
    proxies.check_limit(&[other]).await;
    other.until_members(1).await;
    assert_eq!(other.share().await["is_leader"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_proxy_gets_the_whole_limit_when_the_leader_is_killed() {
    check_kill(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_gets_the_whole_limit_when_the_other_proxy_is_killed() {
    check_kill(false).await;
}

/// Checks that a proxy which was suspended for twice the time of a lease starts no call on its lapsed lease,
/// and none by `on_loss`, since its next share arrives before this applies.
async fn check_suspension(suspends_leader: bool, on_loss: &str) {
    let proxies = Proxies::start_with(on_loss).await;
    let [leader, member] = proxies.by_role().await;
    let (suspended, other) = if suspends_leader { (leader, member) } else { (member, leader) };
    suspended.signal("-STOP");
    let since = Instant::now();
    let mut answers = JoinSet::new();
    other.send(LIMIT, &mut answers);
    // The other gets the whole limit when the lease of the suspended one is reclaimed.
    proxies.until_in_flight(LIMIT).await;
    sleep_until(since + 2 * LEASE).await;
    suspended.send(LIMIT, &mut answers);
    suspended.signal("-CONT");
    suspended.until_members(2).await;
    assert_eq!(proxies.peak(), LIMIT);
    proxies.release(2 * LIMIT);
    assert!(answers.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(proxies.peak(), LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_was_suspended_starts_no_call_on_its_lapsed_lease() {
    check_suspension(false, "alone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_suspended_starts_no_call_on_its_lapsed_lease() {
    check_suspension(true, "share").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_when_the_server_loses_its_data_hangs_or_is_restarted() {
    let mut proxies = Proxies::start().await;
    assert!(proxies.server.send("FLUSHALL").is_some());
    proxies.first.until_members(2).await;
    proxies.second.until_members(2).await;
    proxies.check_limit(&[&proxies.first, &proxies.second]).await;
    proxies.server.signal("STOP");
    until(async || proxies.first.share().await, |share| !share["error"].is_null()).await;
    proxies.server.signal("CONT");
    proxies.first.until_members(2).await;
    proxies.check_limit(&[&proxies.first, &proxies.second]).await;
    proxies.server.stop();
    until(async || proxies.first.share().await, |share| share["is_degraded"] == true).await;
    proxies.server.restart();
    proxies.first.until_members(2).await;
    proxies.second.until_members(2).await;
    proxies.check_limit(&[&proxies.first, &proxies.second]).await;
}

#[tokio::test]
async fn a_proxy_and_a_run_do_not_start_without_the_server_and_name_its_address() {
    let scratch = Scratch::new(1);
    let unreachable = "redis://user:pass-word@127.0.0.1:1";
    let proxy = scratch.run(&["proxy", "--upstream", "http://127.0.0.1:1/v1", "--share", unreachable]);
    let run = scratch.run(&["run", "--share", unreachable]);
    for ended in [proxy, run] {
        assert_ne!(ended.code, 0);
        assert!(ended.stderr.contains("cannot share limits over redis://127.0.0.1:1/0"), "{}", ended.all());
        assert!(!ended.all().contains("pass-word"), "{}", ended.all());
    }
}

/// Returns whether the last decision about a limit says that its process has left.
fn is_left(server: &RedisServer, limit: &str) -> bool {
    let state = |field| server.send(&format!("HGET tg2:{{test:{limit}}}:state {field}")).unwrap();
    state("decision").contains("\"leader_leaves\":true") && state("snapshot").contains("\"members\":{}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_gives_its_share_back_also_after_a_second_interrupt() {
    let server = RedisServer::start();
    let (base_url, seen) = provider();
    let mut scratch = Scratch::new(1);
    scratch.env("SHARE_URL", &server.url());
    servers::write_proxy(&scratch, &base_url, "");
    let mut proxy = ProxyProcess::start(&scratch);
    let mut answers = JoinSet::new();
    proxy.send(1, &mut answers);
    until(async || seen.in_flight(), |calls| *calls == 1).await;
    assert!(!is_left(&server, "p/held/chat"));
    let child = proxy.child.id().to_string();
    let interrupt = async || {
        let _ = Command::new("kill").args(["-INT", &child]).status();
        proxy.child.try_wait().unwrap().is_some()
    };
    until(interrupt, |has_ended| *has_ended).await;
    assert!(is_left(&server, "p/held/chat"));
}

#[tokio::test]
async fn the_address_of_the_command_line_needs_no_variable() {
    let server = RedisServer::start();
    let scratch = Scratch::new(1);
    scratch.write(
        "proxy.toml",
        "[share]\nurl_env = \"UNSET_URL\"\nname = \"test\"\n\
         [[providers]]\nname = \"p\"\nbase_url = \"http://127.0.0.1:1/v1\"\n",
    );
    scratch.run(&["proxy", "proxy.toml", "--check"]).assert(2, &["the environment variable `UNSET_URL` is not set"]);
    let checked = scratch.run(&["proxy", "proxy.toml", "--check", "--share", &server.url()]);
    checked.assert(0, &["shares limits as `test` over"]);
}

#[tokio::test]
async fn a_run_shares_the_limits_of_its_models_and_shows_its_last_share() {
    let server = RedisServer::start();
    let mut scratch = Scratch::new(12);
    scratch.env("SHARE_URL", &server.url());
    let pipeline = "[seed]\npath = \"data.csv\"\n[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\n\
                    [[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 4\nlimit = \"fixed\"\n\
                    mock = { capacity = { shape = \"constant\", slots = 8 } }\n\
                    [[columns]]\nname = \"title\"\nmodel = \"writer\"\nprompt = \"A title for {{ note }}\"\n";
    scratch.write("pipeline.toml", pipeline);
    let sharing = format!("shares limits as `test` over redis://127.0.0.1:{}/0", server.port());
    scratch.run(&["check", "pipeline.toml"]).assert(0, &[&sharing, "no process has shared a limit in the last day"]);
    let last_share = "shared: mock/writer/chat: 4 of 4 slots, 1 process, leader ";
    let run = ["run", "pipeline.toml", "--report", "report.html"];
    scratch.run(&run).assert(0, &[&sharing, last_share, " (this one)"]);
    let report = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(report.contains(last_share), "{report}");
    assert!(is_left(&server, "mock/writer/chat"));
    let limit = "             mock/writer/chat: 4 slots, no process now, newest decision ";
    scratch.run(&["check", "pipeline.toml"]).assert(0, &[&sharing, limit]);
    // A run that ends with an error leaves as well.
    let fails = scratch.run(&["run", "pipeline.toml"]);
    assert_ne!(fails.code, 0);
    assert!(is_left(&server, "mock/writer/chat"), "{}", fails.all());
}

#[test]
fn a_process_says_at_its_start_that_another_version_of_tidegate_shares_limits_under_its_name() {
    let server = RedisServer::start();
    let scratch = Scratch::new(1);
    let pipeline = "[seed]\npath = \"data.csv\"\n[[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 8\n\
                    mock = { capacity = { shape = \"constant\", slots = 8 } }\n\
                    [[columns]]\nname = \"title\"\nmodel = \"writer\"\nprompt = \"A title for {{ note }}\"\n";
    scratch.write("pipeline.toml", pipeline);
    scratch.write("proxy.toml", "[[providers]]\nname = \"p\"\nbase_url = \"http://127.0.0.1:1/v1\"\n");
    let url = server.url();
    // A decision of a version whose messages are not those of this one, and the seconds since it was written.
    let decided = |secs: i64| {
        server.send("HSET tg1:{default:p/m/chat}:state decision x").unwrap();
        server.send(&format!("EXPIRE tg1:{{default:p/m/chat}}:state {}", 24 * 60 * 60 - secs)).unwrap();
    };
    // It stays new, however slow the machine is.
    let new = -600;
    let run = || scratch.run(&["run", "pipeline.toml", "--overwrite", "--share", &url]);
    let warning = "warning: another version of tidegate shares limits under this name, too: 1 now.";
    decided(new);
    run().assert(0, &[warning]);
    let checked = scratch.run(&["proxy", "proxy.toml", "--check", "--share", &url]);
    let limit =
        "  p/m/chat: processes of another version of tidegate (messages of version 1, here 2), newest decision ";
    checked.assert(0, &[limit]);
    // A key that cannot be read, here because it is no hash, hides no other limit.
    server.send("SET tg1:{default:p/odd/chat}:state x EX 86400").unwrap();
    let checked = scratch.run(&["proxy", "proxy.toml", "--check", "--share", &url]);
    checked.assert(0, &[limit, "  p/odd/chat: processes of another version", "  mock/writer/chat: 8 slots"]);
    server.send("DEL tg1:{default:p/odd/chat}:state").unwrap();
    // Of an hour ago: none of those processes is left.
    decided(60 * 60);
    assert!(!run().all().contains("warning"));
    let checked = scratch.run(&["proxy", "proxy.toml", "--check", "--share", &url]);
    checked.assert(0, &["  p/m/chat: no process now of another version of tidegate (messages of version 1, here 2)"]);
    decided(new);
    let arguments = ["proxy", "proxy.toml", "--listen", "127.0.0.1:0", "--share", &url];
    let mut proxy = scratch.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert!(lines[1].starts_with("shares limits as `default` over ") && lines[2].starts_with(warning), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_two_versions_keep_a_limit_each_while_those_of_the_other_one_come_and_go() {
    let server = RedisServer::start_with_password();
    let link = Link::open_to_other_version(server.port()).await;
    let (base_url, seen) = provider();
    let mut scratch = Scratch::new(1);
    servers::write_proxy(&scratch, &base_url, "on_loss = \"stop\"");
    scratch.env("SHARE_URL", &server.url_at(link.port()));
    let second = ProxyProcess::start(&scratch);
    scratch.env("SHARE_URL", &server.url());
    let first = ProxyProcess::start(&scratch);
    let proxies = Proxies { server, first, second, seen, scratch };
    let Proxies { first, second: other, .. } = &proxies;
    let has_all = |share: &Value| {
        let is_alone = share["members"] == 1 && share["share"] == LIMIT && share["is_leader"] == true;
        is_alone && share["is_degraded"] == false && share["error"].is_null()
    };
    let mut answers = JoinSet::new();
    first.send(2 * LIMIT, &mut answers);
    proxies.until_in_flight(LIMIT).await;
    other.send(2 * LIMIT, &mut answers);
    proxies.until_in_flight(2 * LIMIT).await;
    for proxy in [first, other] {
        until(async || proxy.share().await, has_all).await;
    }
    let check = || proxies.scratch.run(&["proxy", "proxy.toml", "--check"]);
    let of_other = "  p/held/chat: processes of another version of tidegate (messages of version 1, here 2), ";
    check().assert(0, &["  p/held/chat: 8 slots, 1 process, leader ", of_other]);
    proxies.release(4 * LIMIT);
    assert!(answers.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(proxies.peak(), 2 * LIMIT);

    other.signal("-KILL");
    let of_other = "  p/held/chat: no process now of another version of tidegate (messages of version 1, here 2), ";
    until(async || check().stdout.contains(of_other), |is_gone| *is_gone).await;
    proxies.seen.peak.store(0, Ordering::SeqCst);
    proxies.check_limit(&[first]).await;
    until(async || first.share().await, has_all).await;
}

#[test]
fn two_runs_that_share_a_limit_are_recorded_and_replayed() {
    let server = RedisServer::start();
    let mut scratch = Scratch::new(60);
    scratch.env("SHARE_URL", &server.url());
    let provider = "capacity = { shape = \"constant\", slots = 3 }, \
                    latency = { law = \"uniform\", low_ms = 50, high_ms = 150 }";
    let share = "[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\n";
    scratch.write("pipeline.toml", &(share.to_string() + &mock_pipeline(8, "", provider)));
    let runs = ["first", "second"].map(|name| {
        let log = format!("{name}.jsonl");
        let arguments = ["run", "pipeline.toml", "--out", name, "--quiet", "--record", &log];
        scratch.command(&arguments).stdout(Stdio::null()).spawn().unwrap()
    });
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    for log in ["first.jsonl", "second.jsonl"] {
        let replayed = ["60 of 60 rows out, 0 dropped", "every decision is the same"];
        scratch.run(&["replay", log]).assert(0, &replayed);
    }
    let logs = ["first.jsonl", "second.jsonl"].map(|log| std::fs::read_to_string(scratch.path(log)).unwrap());
    // The other one may lead for a moment, after this one has left.
    let led = logs.iter().max_by_key(|log| log.matches("\"on_reports\"").count()).unwrap();
    // As if the provider had rejected each call. A single report may have come twice, and count for nothing.
    let change = |line: &str| {
        let rejected = line.replace("\"outcome\":\"success\"", "\"outcome\":\"rate_limited\"");
        if line.contains("\"on_reports\"") { rejected } else { line.to_string() }
    };
    scratch.write("changed.jsonl", &led.lines().map(change).collect::<Vec<_>>().join("\n"));
    scratch.run(&["replay", "changed.jsonl"]).assert(7, &["THE DECISIONS DIFFER"]);
    let [log, _] = logs;
    let decision = "\"on_decision\"";
    let line = log.lines().position(|line| line.contains(decision)).expect("the run has a share") + 1;
    scratch.write("damaged.jsonl", &log.replacen(decision, "\"on_decisions\"", 1));
    let error = format!("damaged.jsonl:{line}: this is not a line of a decision log: unknown variant `on_decisions`");
    scratch.run(&["replay", "damaged.jsonl"]).assert(2, &[&error]);
}
