//! Tests of two or four proxies that share a limit while the network between them and the server fails, each
//! over a link of its own, and while the server fails. Requests go to all of them all the time, and the
//! provider counts the calls in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{LEASE, LIMIT, ProxyProcess};
use crate::support::Scratch;
use crate::support::link::Link;
use crate::support::patience::until;
use crate::support::provider::{Seen, provider};
use crate::support::redis_server::RedisServer;

/// The model of the calls, each of which takes 40 ms.
pub(super) const MODEL: &str = "slow-40";
/// The key of its state at the server.
pub(super) const STATE: &str = "tg2:{test:p/slow-40/chat}:state";
/// More than a proxy may call at once without the others, so that a limit holds them back.
const REQUESTS: u32 = 2 * LIMIT;
/// Well below the five seconds of a lease.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// Proxies that share a limit over a server.
pub(super) struct World {
    pub(super) server: RedisServer,
    /// Those of the processes to the server. Empty if they need none.
    pub(super) links: Vec<Link>,
    pub(super) proxies: Vec<ProxyProcess>,
    /// How many processes share the limit once all have made calls.
    pub(super) members: usize,
    /// The address of the provider.
    pub(super) base_url: String,
    pub(super) seen: Arc<Seen>,
}

impl World {
    /// Starts two proxies, each with a link to the server. `on_loss` and `limit` are keys of `[share]` and of
    /// the provider.
    async fn start(server: RedisServer, on_loss: &str, limit: &str) -> Self {
        Self::start_many(2, server, on_loss, limit).await
    }

    /// Like [`World::start`], with `count` proxies.
    pub(super) async fn start_many(count: usize, server: RedisServer, on_loss: &str, limit: &str) -> Self {
        let mut links = Vec::new();
        for _ in 0..count {
            links.push(Link::open(server.port()).await);
        }
        let urls: Vec<String> = links.iter().map(|link| server.url_at(link.port())).collect();
        Self { links, ..Self::start_at(server, &urls, on_loss, limit) }
    }

    /// Starts a proxy for each of these URLs, at which it finds the server.
    pub(super) fn start_at(server: RedisServer, urls: &[String], on_loss: &str, limit: &str) -> Self {
        let (base_url, seen) = provider();
        let mut scratch = Scratch::new(1);
        scratch.write(
            "proxy.toml",
            &format!(
                "listen = \"127.0.0.1:0\"\n[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\non_loss = \"{on_loss}\"\n\
                 [[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\nmax_parallel = {LIMIT}\nlimit = \"{limit}\"\n"
            ),
        );
        let mut start = |url: &str| {
            scratch.env("SHARE_URL", url);
            tokio::task::block_in_place(|| ProxyProcess::start(&scratch))
        };
        let proxies = urls.iter().map(|url| start(url)).collect();
        Self { server, links: Vec::new(), proxies, members: urls.len(), base_url, seen }
    }

    /// Waits until all proxies have a share of the limit of all processes, and know of no error.
    pub(super) async fn until_shared(&self) {
        for proxy in &self.proxies {
            let is_shared = |share: &Value| {
                let has_lease = share["is_recent"] == true && share["is_degraded"] == false;
                has_lease && share["members"] == self.members && share["error"].is_null()
            };
            until(async || proxy.share().await, is_shared).await;
        }
    }

    /// Waits until both proxies have leases of full length after a fault. Those of the first decision count
    /// from reports that may be older than the fault.
    async fn until_renewed(&self) {
        let version = async || self.value(STATE, "decision")["version"].as_u64();
        let first = version().await.unwrap_or_default();
        until(version, |version| version.is_some_and(|version| version > first + 2)).await;
        self.until_shared().await;
    }

    /// Waits until a proxy has no valid share.
    async fn until_degraded(&self, proxy: usize) {
        until(async || self.proxies[proxy].share().await, |share| share["is_degraded"] == true).await;
    }

    /// Checks that both proxies have a valid share during this time.
    pub(super) async fn check_shared_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for proxy in &self.proxies {
                let share = proxy.share().await;
                assert_eq!(share["is_degraded"], false, "{share}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the index of the proxy that leads.
    async fn leader(&self) -> usize {
        for (index, proxy) in self.proxies.iter().enumerate() {
            if proxy.share().await["is_leader"] == true {
                return index;
            }
        }
        panic!("no proxy leads");
    }

    /// Waits until each proxy has an equal part of the limit and no more calls in flight than that.
    async fn until_equal(&self) {
        let part = LIMIT / self.proxies.len() as u32;
        for proxy in &self.proxies {
            until(async || proxy.share().await, |share| share["share"] == part).await;
            proxy.until_at_most(part).await;
        }
    }

    /// Ends all faults of the links, and checks that the limit is kept and used once the proxies share it
    /// equally again.
    async fn check_healed(&self, load: Load) {
        self.links.iter().for_each(Link::heal);
        self.until_shared().await;
        // The share of one that comes back rises when another one has given up its own.
        self.until_equal().await;
        self.take_peak();
        let all: Vec<usize> = (0..self.proxies.len()).collect();
        load.until_answered(&all).await;
        until(async || self.seen.peak.load(Ordering::SeqCst), |peak| *peak >= LIMIT).await;
        load.stop().await;
        self.check_peak();
    }

    /// Kills the primary, and makes `replica` the primary, which has followed it over `replication`.
    pub(super) fn fail_over(&mut self, replica: RedisServer, replication: &Link) {
        self.server.stop();
        replication.cut();
        assert!(replica.send("REPLICAOF NO ONE").unwrap().contains("+OK"));
        for link in &self.links {
            link.redirect(replica.port());
        }
        self.server = replica;
    }

    /// Returns the most calls that were in flight at the same time since the last call of this method.
    fn take_peak(&self) -> u32 {
        self.seen.peak.swap(self.seen.in_flight(), Ordering::SeqCst)
    }

    /// Checks that the limit was kept and is used.
    pub(super) fn check_peak(&self) {
        assert_eq!(self.take_peak(), LIMIT);
    }

    /// Returns a JSON value that the leader has written to the server, or null.
    pub(super) fn value(&self, state: &str, field: &str) -> Value {
        let answer = self.server.send(&format!("HGET {state} {field}")).unwrap();
        let json = answer.find('{').zip(answer.rfind('}')).map_or("null", |(from, to)| &answer[from..=to]);
        serde_json::from_str(json).unwrap()
    }
}

/// Requests to all proxies: [`REQUESTS`] wait at each at any time.
pub(super) struct Load {
    /// How many requests each proxy has answered.
    answered: Vec<Arc<AtomicU32>>,
    stops: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Starts the requests, and waits until the limit is shared and used.
    pub(super) async fn start(world: &World) -> Self {
        let answered = world.proxies.iter().map(|_| Arc::default()).collect();
        let mut load = Self { answered, stops: Arc::default(), tasks: JoinSet::new() };
        for (proxy, answered) in world.proxies.iter().zip(&load.answered) {
            let url = format!("{}/v1/chat/completions", proxy.address);
            for _ in 0..REQUESTS {
                let (http, url) = (proxy.http.clone(), url.clone());
                let (answered, stops) = (Arc::clone(answered), Arc::clone(&load.stops));
                load.tasks.spawn(async move {
                    while !stops.load(Ordering::SeqCst) {
                        let request = http.post(&url).json(&json!({ "model": MODEL, "messages": [] }));
                        assert_eq!(request.send().await.unwrap().status(), 200);
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
        let all: Vec<usize> = (0..world.proxies.len()).collect();
        load.until_answered(&all).await;
        world.until_shared().await;
        until(async || world.seen.peak.load(Ordering::SeqCst), |peak| *peak >= LIMIT).await;
        load
    }

    /// Waits until these proxies have answered twice as many requests as can wait at one.
    pub(super) async fn until_answered(&self, proxies: &[usize]) {
        let answered = || proxies.iter().map(|proxy| self.answered[*proxy].load(Ordering::SeqCst)).collect::<Vec<_>>();
        let before = answered();
        // All of them at the same time: a lease does not last for one after the other on a slow machine.
        let is_enough = |(answered, before): (&u32, &u32)| *answered >= before + 2 * REQUESTS;
        until(async || answered(), |answered| answered.iter().zip(&before).all(is_enough)).await;
    }

    /// Ends the requests. Each was answered with 200.
    pub(super) async fn stop(self) {
        self.stops.store(true, Ordering::SeqCst);
        self.tasks.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_or_stalled_network_for_less_than_a_lease_changes_nothing() {
    let world = World::start(RedisServer::start_with_password(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    for fault in [Link::cut, Link::stall, Link::stall_requests, Link::stall_replies] {
        world.until_renewed().await;
        world.links.iter().for_each(fault);
        // At the same time: leases do not last for one after the other on a slow machine.
        tokio::join!(world.check_shared_for(SHORT), load.until_answered(&[0, 1]));
        world.links.iter().for_each(Link::heal);
        world.until_shared().await;
    }
    load.stop().await;
    world.check_peak();
}

/// Checks that no call starts while both proxies have lost the server by `fault`, and that they go on after
/// it.
async fn check_stop(fault: fn(&Link)) {
    let world = World::start(RedisServer::start_with_password(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    world.links.iter().for_each(fault);
    for proxy in [0, 1] {
        world.until_degraded(proxy).await;
    }
    // Calls that were granted before may still be on their way to the provider.
    for proxy in &world.proxies {
        proxy.until_at_most(0).await;
    }
    let calls = world.seen.calls();
    // As long as `on_loss` takes to apply, and longer.
    sleep(Duration::from_secs(6)).await;
    assert_eq!(world.seen.calls(), calls);
    world.links.iter().for_each(Link::heal);
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    world.check_peak();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_starts_after_a_long_cut_with_stop_and_calls_go_on_when_it_is_over() {
    check_stop(Link::cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_starts_after_a_long_stall_with_stop_and_calls_go_on_when_it_is_over() {
    check_stop(Link::stall).await;
}

/// Checks that a leader that has lost the server by `fault` goes on with its part of the limit, and that the
/// other takes the lead and gets the whole limit.
async fn check_share(fault: fn(&Link)) {
    let world = World::start(RedisServer::start_with_password(), "share", "fixed").await;
    let load = Load::start(&world).await;
    world.check_peak();
    let lost = world.leader().await;
    let other = 1 - lost;
    fault(&world.links[lost]);
    world.until_degraded(lost).await;
    let has_all = |share: &Value| share["is_leader"] == true && share["share"] == LIMIT;
    until(async || world.proxies[other].share().await, has_all).await;
    load.until_answered(&[lost, other]).await;
    // The exemption E2: the part of the one that is cut off comes on top of the limit.
    let peak = world.take_peak();
    assert!(peak <= LIMIT + LIMIT / 2, "{peak}");
    world.check_healed(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_for_long_goes_on_with_its_part_and_is_replaced() {
    check_share(Link::cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_network_stalls_for_long_goes_on_with_its_part_and_is_replaced() {
    check_share(Link::stall).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_network_stalls_in_one_direction_goes_on_with_its_part_and_is_replaced() {
    tokio::join!(check_share(Link::stall_requests), check_share(Link::stall_replies));
}

/// Checks that a leader that was suspended for twice the time of a lease, and finds no server then, starts at
/// most `exempt` calls beyond the limit. The other has the whole limit meanwhile.
async fn check_lost_suspension(on_loss: &str, exempt: u32) {
    let world = World::start(RedisServer::start_with_password(), on_loss, "fixed").await;
    let load = Load::start(&world).await;
    let lost = world.leader().await;
    let other = 1 - lost;
    world.proxies[lost].signal("-STOP");
    let since = Instant::now();
    world.links[lost].cut();
    let has_all = |share: &Value| share["is_leader"] == true && share["share"] == LIMIT;
    until(async || world.proxies[other].share().await, has_all).await;
    sleep_until(since + 2 * LEASE).await;
    world.check_peak();
    world.proxies[lost].signal("-CONT");
    load.until_answered(&[lost, other]).await;
    let peak = world.take_peak();
    assert!(peak <= LIMIT + exempt, "{peak}");
    world.check_healed(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_suspended_and_finds_no_server_goes_on_with_its_part_or_alone() {
    // The exemptions E2 and E1.
    tokio::join!(check_lost_suspension("share", LIMIT / 2), check_lost_suspension("alone", LIMIT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_proxies_keep_the_limit_while_two_and_then_all_of_them_are_cut_off() {
    let world = World::start_many(4, RedisServer::start_with_password(), "share", "fixed").await;
    let load = Load::start(&world).await;
    world.check_peak();
    let leader = world.leader().await;
    let [lost, others] = [[0, 1], [2, 3]].map(|offsets| offsets.map(|offset| (leader + offset) % 4));
    for proxy in lost {
        world.links[proxy].cut();
    }
    for proxy in lost {
        world.until_degraded(proxy).await;
    }
    for proxy in others {
        let has_half = |share: &Value| share["members"] == 2 && share["share"] == LIMIT / 2;
        until(async || world.proxies[proxy].share().await, has_half).await;
    }
    load.until_answered(&[0, 1, 2, 3]).await;
    // The exemption E2: the parts of those that are cut off come on top of the limit.
    let peak = world.take_peak();
    assert!(peak <= LIMIT + LIMIT / 2, "{peak}");
    world.links.iter().for_each(Link::heal);
    world.until_shared().await;
    world.until_equal().await;

    world.take_peak();
    world.links.iter().for_each(Link::cut);
    for proxy in 0..4 {
        world.until_degraded(proxy).await;
    }
    load.until_answered(&[0, 1, 2, 3]).await;
    let peak = world.take_peak();
    assert!(peak <= LIMIT, "each goes on with its part, and these are the limit: {peak}");
    world.check_healed(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_slow_in_one_or_both_directions_keeps_the_shares() {
    for delay in [Link::delay, Link::delay_requests, Link::delay_replies] {
        let world = World::start(RedisServer::start_with_password(), "stop", "fixed").await;
        for link in &world.links {
            delay(link, Duration::from_millis(50));
        }
        let load = Load::start(&world).await;
        world.check_shared_for(SHORT).await;
        load.until_answered(&[0, 1]).await;
        world.until_shared().await;
        load.stop().await;
        world.check_peak();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_the_server_that_are_lost_double_nothing() {
    let world = World::start(RedisServer::start(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    for _ in 0..5 {
        world.links.iter().for_each(Link::stall_replies);
        for proxy in &world.proxies {
            until(async || proxy.share().await, |share| !share["error"].is_null()).await;
        }
        world.links.iter().for_each(Link::cut);
        world.links.iter().for_each(Link::heal);
        world.until_shared().await;
    }
    load.stop().await;
    world.check_peak();
    // The leader has counted each call once.
    let ended = async || {
        let members = world.value(STATE, "snapshot")["members"].clone();
        members.as_object().unwrap().values().map(|member| member["ended"].as_u64().unwrap()).sum::<u64>()
    };
    until(ended, |ended| *ended == u64::from(world.seen.calls())).await;
}

/// Returns the limit after one refused call. If `loses_replies`, the reply to the report of it is lost.
async fn limit_after_a_refusal(loses_replies: bool) -> u64 {
    let world = World::start(RedisServer::start(), "stop", "aimd").await;
    let send = async |proxy: usize| {
        let ProxyProcess { address, http, .. } = &world.proxies[proxy];
        let request = http.post(format!("{address}/v1/chat/completions"));
        let request = request.json(&json!({ "model": "refusesnth-3", "messages": [] }));
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    // Both are members before the third call.
    send(0).await;
    send(1).await;
    world.until_shared().await;
    let limit = async || world.value("tg2:{test:p/refusesnth-3/chat}:state", "snapshot")["limit"].as_u64().unwrap();
    let is_reported = async || {
        let reports = world.server.send("HGETALL tg2:{test:p/refusesnth-3/chat}:reports").unwrap();
        reports.contains("rate_limited")
    };
    until(limit, |limit| *limit == u64::from(LIMIT)).await;
    if loses_replies {
        for link in &world.links {
            link.delay_replies(Duration::from_millis(600));
        }
    }
    send(0).await;
    if loses_replies {
        until(is_reported, |is_reported| *is_reported).await;
        world.links.iter().for_each(Link::cut);
        world.links.iter().for_each(Link::heal);
    }
    until(limit, |limit| *limit < u64::from(LIMIT)).await;
    // A report repeats the refusal until it is acknowledged.
    until(is_reported, |is_reported| !is_reported).await;
    limit().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_whose_report_is_repeated_cuts_the_limit_once() {
    let expected = limit_after_a_refusal(false).await;
    assert_eq!(limit_after_a_refusal(true).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_the_scripts_and_a_pause_of_the_server_change_nothing() {
    let world = World::start(RedisServer::start_with_password(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    assert!(world.server.send("SCRIPT FLUSH").unwrap().contains("+OK"));
    world.until_renewed().await;
    // So long that a member takes the lead, and no multiple of the timeout of a step.
    assert!(world.server.send("CLIENT PAUSE 2500 ALL").unwrap().contains("+OK"));
    world.check_shared_for(Duration::from_millis(3_500)).await;
    load.until_answered(&[0, 1]).await;
    world.until_shared().await;
    load.stop().await;
    world.check_peak();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_starts_during_a_long_pause_of_the_server_with_stop_and_calls_go_on_when_it_is_over() {
    let world = World::start(RedisServer::start_with_password(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    // It ends this long after the server has received the command, so not before `end`.
    let pause = 2 * LEASE;
    let end = Instant::now() + pause;
    assert!(world.server.send(&format!("CLIENT PAUSE {} ALL", pause.as_millis())).unwrap().contains("+OK"));
    for proxy in [0, 1] {
        world.until_degraded(proxy).await;
    }
    // Calls that were granted before may still be on their way to the provider.
    for proxy in &world.proxies {
        proxy.until_at_most(0).await;
    }
    let calls = world.seen.calls();
    loop {
        let now = world.seen.calls();
        if Instant::now() >= end {
            break;
        }
        assert_eq!(now, calls);
        sleep(Duration::from_millis(50)).await;
    }
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    world.check_peak();
}

/// Starts a primary and its replica, and the link between them.
pub(super) async fn start_with_replica() -> (RedisServer, RedisServer, Link) {
    let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let replication = Link::open(primary.port()).await;
    let master = replication.port().to_string();
    let replica = tokio::task::block_in_place(|| RedisServer::start_with(&["--replicaof", "127.0.0.1", &master]));
    let is_up = || replica.send("INFO replication").unwrap().contains("master_link_status:up");
    until(async || is_up(), |is_up| *is_up).await;
    (primary, replica, replication)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_when_a_replica_that_lags_behind_replaces_the_primary() {
    let (primary, replica, replication) = start_with_replica().await;
    let mut world = World::start(primary, "stop", "fixed").await;
    let load = Load::start(&world).await;
    replication.stall();
    let version = || world.value(STATE, "decision")["version"].as_u64().unwrap();
    let at_stall = version();
    // The replica lacks these decisions.
    until(async || version(), |version| *version >= at_stall + 20).await;
    world.fail_over(replica, &replication);
    world.check_shared_for(SHORT).await;
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    world.check_peak();
    assert!(world.value(STATE, "decision")["version"].as_u64().unwrap() > at_stall);
}
