//! Tests of proxies and runs that share a limit at the same time, while some of these programs are killed.

use std::process::{Child, Stdio};

use serde_json::Value;

use super::LIMIT;
use super::faults::{Load, MODEL, STATE, World, start_with_replica};
use crate::support::link::Link;
use crate::support::patience::until;
use crate::support::redis_server::RedisServer;
use crate::support::{Scratch, interrupt};

/// A process `tidegate run` with the limit of the proxies of a [`World`]. It is killed on drop.
struct RunProcess {
    child: Child,
    scratch: Scratch,
    rows: u64,
}

impl RunProcess {
    /// Starts a run of `rows` rows, each of one call, over a link of its own.
    async fn start(world: &mut World, rows: u64) -> Self {
        let link = Link::open(world.server.port()).await;
        let mut scratch = Scratch::new(usize::try_from(rows).unwrap());
        scratch.env("SHARE_URL", &world.server.url_at(link.port()));
        scratch.write(
            "pipeline.toml",
            &format!(
                "[seed]\npath = \"data.csv\"\n\
                 [share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\non_loss = \"stop\"\n\
                 [[models]]\nname = \"{MODEL}\"\nprovider = \"p\"\nbase_url = \"{}\"\n\
                 max_parallel = {LIMIT}\nlimit = \"fixed\"\n\
                 [[columns]]\nname = \"title\"\nmodel = \"{MODEL}\"\nprompt = \"A title for: {{{{ note }}}}\"\n",
                world.base_url
            ),
        );
        world.links.push(link);
        world.members += 1;
        Self { child: spawn(&scratch, &[]), scratch, rows }
    }

    fn kill(&mut self, world: &mut World) {
        assert!(self.child.try_wait().unwrap().is_none(), "it has rows left");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        world.members -= 1;
    }

    /// Starts it again after it was killed.
    fn resume(&mut self) {
        self.child = spawn(&self.scratch, &["--resume"]);
    }

    /// Waits for its end, and checks that it has written each row once.
    fn check_rows(&mut self) {
        assert!(self.child.wait().unwrap().success());
        let rows = self.written();
        assert!(rows.iter().copied().eq(0..self.rows), "{rows:?}");
    }

    /// Ends it before it has made all rows, and checks that it has written none twice.
    fn check_rows_so_far(&mut self) {
        interrupt(&self.child);
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
        let rows = self.written();
        assert!(!rows.is_empty() && rows.is_sorted_by(|row, next| row < next), "{rows:?}");
    }

    fn written(&self) -> Vec<u64> {
        self.scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect()
    }
}

impl Drop for RunProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(scratch: &Scratch, arguments: &[&str]) -> Child {
    let run = ["run", "pipeline.toml", "--out", "out", "--quiet"];
    scratch.command(&[&run[..], arguments].concat()).stdout(Stdio::null()).spawn().unwrap()
}

/// Waits until the leader has given the whole limit to `members` processes.
async fn until_divided(world: &World, members: usize) {
    let divided = async || {
        let decision = world.value(STATE, "decision");
        let shares = decision["shares"].as_object().into_iter().flatten();
        let shares: Vec<u64> = shares.map(|(_, share)| share["share"].as_u64().unwrap()).collect();
        (shares.len(), shares.iter().sum())
    };
    until(divided, |divided| *divided == (members, u64::from(LIMIT))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_kept_when_a_run_that_leads_is_killed_and_a_replica_that_still_has_it_replaces_the_primary() {
    let (primary, replica, replication) = start_with_replica().await;
    let mut world = World::start_many(2, primary, "stop", "fixed").await;
    // It leads, as the others make calls later.
    let mut leader = RunProcess::start(&mut world, 600).await;
    until(async || world.value(STATE, "decision"), |decision| !decision.is_null()).await;
    let mut other = RunProcess::start(&mut world, 10_000).await;
    let load = Load::start(&world).await;
    until_divided(&world, 4).await;
    // The replica has none of the decisions of the next leader.
    replication.stall();
    leader.kill(&mut world);
    until_divided(&world, 3).await;
    world.until_shared().await;
    world.fail_over(replica, &replication);
    until_divided(&world, 3).await;
    world.until_shared().await;
    load.until_answered(&[0, 1]).await;
    leader.resume();
    load.until_answered(&[0, 1]).await;
    load.stop().await;
    other.check_rows_so_far();
    leader.check_rows();
    world.check_peak();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_leads_gets_the_slots_of_a_run_that_is_killed() {
    let mut world = World::start_many(1, RedisServer::start_with_password(), "stop", "fixed").await;
    let load = Load::start(&world).await;
    let mut run = RunProcess::start(&mut world, 800).await;
    world.until_shared().await;
    until_divided(&world, 2).await;
    run.kill(&mut world);
    let has_all = |share: &Value| share["members"] == 1 && share["share"] == LIMIT;
    until(async || world.proxies[0].share().await, has_all).await;
    load.until_answered(&[0]).await;
    run.resume();
    load.until_answered(&[0]).await;
    load.stop().await;
    run.check_rows();
    world.check_peak();
}
