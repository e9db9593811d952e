//! Tests of limits that are shared over a server behind Redis Sentinel: real sentinels watch a primary and
//! its replica.

use std::sync::Arc;

use super::faults::{Load, SHORT, STATE, World};
use super::servers::{CERTIFICATES, TlsServer, check_rejected, scratch_with, write_certificates, write_proxy};
use crate::support::authority::Authority;
use crate::support::patience::{until, wait_until};
use crate::support::redis_server::RedisServer;

/// An address at which nothing answers.
const NOWHERE: &str = "http://127.0.0.1:1/v1";

/// One sentinel of a primary called `main`, with the directory of its settings, which it writes.
struct Sentinel {
    server: RedisServer,
    _files: tempfile::TempDir,
}

impl Sentinel {
    /// Starts a sentinel of the primary at `port`. `settings` are lines of its file.
    fn start(port: u16, quorum: usize, settings: &str, keys: &[&str]) -> Self {
        let (path, files) = write_settings(port, quorum, settings);
        let arguments: Vec<_> = [&*path, "--sentinel"].iter().chain(keys).copied().collect();
        Self { server: RedisServer::start_with(&arguments), _files: files }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    fn url(&self) -> String {
        format!("redis+sentinel://{}/main", self.address())
    }
}

/// Writes the file of a sentinel. Returns its path and directory.
fn write_settings(port: u16, quorum: usize, settings: &str) -> (String, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("sentinel.conf");
    std::fs::write(&path, format!("sentinel monitor main 127.0.0.1 {port} {quorum}\n{settings}\n")).unwrap();
    (path.display().to_string(), files)
}

/// A primary and its replica with the password `pass-word`, and three sentinels with another one.
struct Watched {
    primary: RedisServer,
    replica: RedisServer,
    sentinels: Vec<Sentinel>,
    hosts: String,
    url: String,
}

impl Watched {
    fn start() -> Self {
        let password = ["--requirepass", "pass-word", "--masterauth", "pass-word"];
        let primary = RedisServer::start_with(&[&password[..], &["--repl-diskless-sync-delay", "0"]].concat());
        let port = primary.port();
        let replica =
            RedisServer::start_with(&[&password[..], &["--replicaof", "127.0.0.1", &port.to_string()]].concat());
        let settings = "sentinel auth-pass main pass-word\nsentinel sentinel-pass sentinel-word\n\
                        sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 4000";
        let sentinel = |_| Sentinel::start(port, 2, settings, &["--requirepass", "sentinel-word"]);
        let sentinels: Vec<_> = (0..3).map(sentinel).collect();
        until_replicates(&replica);
        let is_ready =
            |sentinel: &Sentinel| sentinel.server.send("INFO sentinel").unwrap().contains("slaves=1,sentinels=3");
        wait_until(|| sentinels.iter().all(is_ready), |is_ready| *is_ready);
        let hosts = sentinels.iter().map(Sentinel::address).collect::<Vec<_>>().join(",");
        let url = format!("redis+sentinel://:pass-word@{hosts}/main/2?sentinel_password=sentinel-word");
        Self { primary, replica, sentinels, hosts, url }
    }
}

fn until_replicates(replica: &RedisServer) {
    wait_until(|| replica.send("INFO replication").unwrap().contains("master_link_status:up"), |is_up| *is_up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_when_the_primary_is_killed_and_one_sentinel_hangs() {
    let Watched { primary, replica, sentinels, hosts, url } = Watched::start();
    let mut world = World::start_at(primary, &[url.clone(), url.clone()], "stop", "fixed");
    let sharing = format!("shares limits as `test` over redis+sentinel://{hosts}/main/2");
    assert_eq!(world.proxies[0].sharing, sharing);

    let load = Load::start(&world).await;
    // As on a machine with the primary and a sentinel that loses its network.
    sentinels[0].server.signal("STOP");
    world.server.stop();
    let names_replica = || {
        let named = sentinels[1].server.send("SENTINEL GET-MASTER-ADDR-BY-NAME main").unwrap();
        named.contains(&replica.port().to_string())
    };
    until(async || names_replica(), |names_replica| *names_replica).await;
    world.server = replica;
    let has_decisions = || world.server.send(&format!("SELECT 2\r\nHGET {STATE} decision")).unwrap();
    let before = has_decisions();
    until(async || has_decisions(), |now| *now != before).await;
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    world.check_peak();

    let mut scratch = scratch_with(NOWHERE, "");
    scratch.env("SHARE_URL", &url);
    let checked = scratch.run(&["proxy", "proxy.toml", "--check"]);
    checked.assert(0, &[&sharing, "  p/slow-40/chat: 8 slots, 2 processes, leader "]);
    assert!(!checked.all().contains("-word"), "{}", checked.all());
    sentinels[0].server.signal("CONT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_changes_when_a_sentinel_and_the_replica_are_killed() {
    let Watched { primary, mut replica, mut sentinels, url, .. } = Watched::start();
    let world = World::start_at(primary, &[url.clone(), url], "stop", "fixed");
    let load = Load::start(&world).await;
    sentinels[0].server.stop();
    replica.stop();
    // The processes open new connections, so they ask the sentinels that are left for the primary.
    let killed = world.server.send("CLIENT KILL TYPE normal").unwrap();
    assert!(!killed.contains(":0") && !killed.contains("-ERR"), "{killed}");
    tokio::join!(world.check_shared_for(SHORT), load.until_answered(&[0, 1]));
    world.until_shared().await;
    load.stop().await;
    world.check_peak();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_demoted_gets_no_more_writes() {
    let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    until_replicates(&replica);
    let sentinel = Sentinel::start(primary.port(), 1, "", &[]);
    wait_until(|| sentinel.server.send("INFO sentinel").unwrap().contains("slaves=1"), |is_ready| *is_ready);
    let mut world = World::start_at(primary, &[sentinel.url(), sentinel.url()], "stop", "fixed");
    let load = Load::start(&world).await;
    // The first writes reach a replica up to a second after it has begun to follow.
    let replicated = || replica.send(&format!("HGET {STATE} decision")).unwrap_or_default();
    until(async || replicated(), |decision| decision.contains('{')).await;
    // The primary stays alive, and its connections open: only its answers show that it is none any more.
    sentinel.server.send("SENTINEL REMOVE main").unwrap();
    assert!(replica.send("REPLICAOF NO ONE").unwrap().contains("+OK"));
    assert!(world.server.send(&format!("REPLICAOF 127.0.0.1 {}", replica.port())).unwrap().contains("+OK"));
    let monitor = format!("SENTINEL MONITOR main 127.0.0.1 {} 1", replica.port());
    assert!(sentinel.server.send(&monitor).unwrap().contains("+OK"));
    let demoted = std::mem::replace(&mut world.server, replica);
    let version = world.value(STATE, "decision")["version"].as_u64().unwrap();
    until(async || world.value(STATE, "decision")["version"].as_u64(), |now| *now > Some(version)).await;
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    world.check_peak();
    assert!(demoted.send("INFO replication").unwrap().contains("role:slave"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_primary_with_tls_get_the_certificate_of_the_settings() {
    let authority = Arc::new(Authority::new());
    let start = |keys: &[&str]| TlsServer::start_for("127.0.0.1", Arc::clone(&authority), keys);
    let primary = start(&[]);
    let (path, _files) = write_settings(primary.port, 1, "");
    let sentinel = start(&[&path, "--sentinel", "--tls-replication", "yes"]);
    let url = format!("rediss+sentinel://127.0.0.1:{}/main", sentinel.port);
    let mut scratch = scratch_with(NOWHERE, "ca_file = \"authority.pem\"");
    write_certificates(&scratch, &authority);
    check_rejected(&mut scratch, &url, "it requires a certificate of its clients");
    write_proxy(&scratch, NOWHERE, CERTIFICATES);
    let sharing = format!("shares limits as `test` over {url}/0");
    scratch.run(&["proxy", "proxy.toml", "--check"]).assert(0, &[&sharing]);
    let plain = url.replacen("rediss", "redis", 1);
    check_rejected(&mut scratch, &plain, "which has no TLS: expected an address with `rediss://`");
}

#[test]
fn runs_alone_and_together_share_limits_over_sentinels() {
    let primary = RedisServer::start();
    let sentinel = Sentinel::start(primary.port(), 1, "", &[]);
    let scratch = crate::support::Scratch::new(12);
    let pipeline = "[seed]\npath = \"data.csv\"\n\
                    [[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 4\nmock = {}\n\
                    [[columns]]\nname = \"title\"\nmodel = \"writer\"\nprompt = \"A title for {{ note }}\"\n";
    scratch.write("pipeline.toml", pipeline);
    let (url, sharing) = (sentinel.url(), format!("shares limits as `default` over {}/0", sentinel.url()));
    scratch.run(&["run", "pipeline.toml", "--share", &url]).assert(0, &[&sharing, "shared: mock/writer/chat: 4 of 4 "]);
    let together = ["run", "pipeline.toml", "--share", &url, "--together", "--out", "together"];
    scratch.run(&together).assert(0, &[&sharing]);
}

#[test]
fn sentinels_that_name_no_primary_are_errors_that_say_what_to_do() {
    let primary = RedisServer::start();
    let sentinel = Sentinel::start(primary.port(), 1, "", &[]);
    let at = sentinel.address();
    let mut scratch = scratch_with(NOWHERE, "");
    let unknown = "they monitor none of this name that is up and is no replica; expected a name in `sentinel monitor`";
    check_rejected(&mut scratch, &format!("redis+sentinel://user:pass-word@{at}/other"), unknown);
    check_rejected(&mut scratch, &format!("redis+sentinel://127.0.0.1:1,{at}/other"), unknown);
    let refused = "over redis+sentinel://127.0.0.1:1,127.0.0.1:2/main/0: the sentinels name no primary that can be \
                   reached: Connection refused";
    check_rejected(&mut scratch, "redis+sentinel://:pass-word@127.0.0.1:1,127.0.0.1:2/main", refused);
    let not_one = "an address is not that of a sentinel, whose port is 26379 if none is given";
    check_rejected(&mut scratch, &format!("redis+sentinel://127.0.0.1:{}/main", primary.port()), not_one);
    let begins = "the address of sentinels begins with `redis+sentinel://`";
    check_rejected(&mut scratch, &format!("redis://{at}"), begins);
    let with_password = Sentinel::start(primary.port(), 1, "", &["--requirepass", "pass-word"]);
    check_rejected(&mut scratch, &with_password.url(), "for sentinels `?sentinel_password=` at its end");
    // A sentinel that hangs hides nothing that another one says.
    with_password.server.signal("STOP");
    check_rejected(&mut scratch, &with_password.url(), "it does not answer; check the host and the port");
    let both = format!("redis+sentinel://{},{at}/other", with_password.address());
    check_rejected(&mut scratch, &both, unknown);
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", "1"]);
    let of_replica = Sentinel::start(replica.port(), 1, "sentinel down-after-milliseconds main 600000", &[]);
    check_rejected(&mut scratch, &of_replica.url(), unknown);
    with_password.server.signal("CONT");
}
