//! The row groups of one dataset, which several processes hand out to each other over Redis or Valkey.
//!
//! They are a stream with one consumer group, whose consumers are the processes. The entry of row group N has
//! the id `N+1-0`. The engine keeps, for each entry that was read and not acknowledged, its consumer and the
//! time since that consumer was last heard of:
//!
//! ```text
//! not read --claim--> held --acknowledge--> done
//!                     held --not refreshed for CLAIM, or released--> claimed by another process
//! ```
//!
//! A process changes an entry only while it is the consumer: a plain `XCLAIM` would take the entry back from
//! the process that has it now, and a plain `XACK` is accepted from any consumer. The stream is never
//! trimmed.
//!
//! A process claims a row group when its run can begin one, and none ahead. So near the end, none waits at a
//! process while others have no work.
//!
//! The files of the job decide what is written, not the stream. It may be lost at any time: the processes
//! then [fill](RowGroupQueue::fill) it again with the row groups that have no files. A row group may
//! therefore be held by two processes, of which one wins when it writes the files.
//!
//! A hash has the names of the processes that have come to this server, each with its cost limit, so that a
//! process notices others that share the files but not the server, or that have another limit.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tidegate_core::share::redis::FORMAT;

use super::redis_store::{Connection, KEPT, meaning, script};
use super::store::StoreError;

/// How long a process holds a row group after it has last refreshed it.
pub(crate) const CLAIM: Duration = Duration::from_secs(30);

/// The most row groups that one step adds. It takes the server one or two hundredths of a second.
const PART: usize = 10_000;

/// How long the server keeps row groups that are not handed out yet after the last part was added.
const PARTS_KEPT: Duration = Duration::from_mins(1);

/// How long other processes wait for one that adds many row groups after it has last added some.
const MARK_KEPT: Duration = Duration::from_secs(5);

/// The idle time of an entry that was released: longer than every claim.
const RELEASED: Duration = Duration::from_hours(1);

/// Returns a script that begins with `is_there`: whether the key is a stream with its consumer group.
macro_rules! on_stream {
    ($code:literal) => {
        concat!(
            "
local key = KEYS[1]
local is_there = redis.call('TYPE', key).ok == 'stream' and #redis.call('XINFO', 'GROUPS', key) == 1
",
            $code
        )
    };
}

/// KEYS: row groups. ARGV: consumer, the idle time in ms after which an entry is free, seconds to keep, and
/// the entries that the consumer holds. Returns `ID`, or why there is none.
const CLAIM_NEXT: &str = on_stream!(
    "
if not is_there then return 'empty' end
redis.call('EXPIRE', key, ARGV[3])
local new = redis.call('XREADGROUP', 'GROUP', 'run', ARGV[1], 'COUNT', 1, 'STREAMS', key, '>')
if new then return new[1][2][1][1] end
local own = {}
for i = 4, #ARGV do own[ARGV[i]] = true end
for _, entry in ipairs(redis.call('XPENDING', key, 'run', 'IDLE', ARGV[2], '-', '+', #ARGV)) do
  if entry[2] ~= ARGV[1] or not own[entry[1]] then
    redis.call('XCLAIM', key, 'run', ARGV[1], ARGV[2], entry[1], 'JUSTID')
    return entry[1]
  end
end
if redis.call('XPENDING', key, 'run')[1] > 0 then return 'held' end
return 'empty'"
);

/// KEYS: row groups, the new ones, a mark that a process adds many. ARGV: how many new ones there are,
/// seconds to keep them, seconds to keep them once they are handed out, or 0 if more follow, seconds to keep
/// the mark, and row groups to add. Hands out all of them at once, by a new name of the key. Leaves a stream
/// with entries that are not done as it is. Returns `others` if another process has the mark, and `lost` if
/// the number of new ones is wrong.
const FILL: &str = on_stream!(
    "
local new, mark, last = KEYS[2], KEYS[3], {}
local more_follow = ARGV[3] == '0'
if is_there then
  for at, name in ipairs(redis.call('XINFO', 'STREAM', key)) do last[name] = at end
  local generated = redis.call('XINFO', 'STREAM', key)[last['last-generated-id'] + 1]
  local group = redis.call('XINFO', 'GROUPS', key)[1]
  for at, name in ipairs(group) do last[name] = at end
  if redis.call('XPENDING', key, 'run')[1] > 0 or group[last['last-delivered-id'] + 1] ~= generated then
    redis.call('DEL', new)
    return 'filled'
  end
end
if ARGV[1] == '0' then
  if more_follow and not redis.call('SET', mark, '', 'NX', 'EX', ARGV[4]) then return 'others' end
  redis.call('DEL', new)
  redis.call('XGROUP', 'CREATE', new, 'run', '0', 'MKSTREAM')
elseif redis.call('XLEN', new) ~= tonumber(ARGV[1]) then
  redis.call('DEL', mark)
  return 'lost'
end
for i = 5, #ARGV do
  redis.call('XADD', new, string.format('%d-0', ARGV[i] + 1), 'row_group', ARGV[i])
end
redis.call('EXPIRE', new, ARGV[2])
if more_follow then
  redis.call('SET', mark, '', 'EX', ARGV[4])
  return 'more'
end
redis.call('DEL', mark)
redis.call('RENAME', new, key)
redis.call('EXPIRE', key, ARGV[3])
return 'filled'"
);

/// KEYS: row groups. ARGV: consumer, what to do, the idle time in ms of a released entry, entries. Skips the
/// entries that the consumer does not hold.
const UPDATE_HELD: &str = on_stream!(
    "
if not is_there then return end
for i = 4, #ARGV do
  local entry = redis.call('XPENDING', key, 'run', ARGV[i], ARGV[i], 1)[1]
  if not entry or entry[2] ~= ARGV[1] then
  elseif ARGV[2] == 'acknowledge' then redis.call('XACK', key, 'run', ARGV[i])
  elseif ARGV[2] == 'refresh' then redis.call('XCLAIM', key, 'run', ARGV[1], 0, ARGV[i], 'JUSTID')
  else redis.call('XCLAIM', key, 'run', ARGV[1], 0, ARGV[i], 'IDLE', ARGV[3], 'JUSTID') end
end"
);

/// KEYS: processes. ARGV: process, seconds to keep, its cost limit, other processes. Returns the cost limit
/// of each of them, or nil if it is not known.
const ANNOUNCE: &str = "
local key, known = KEYS[1], {}
if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
redis.call('HSET', key, ARGV[1], ARGV[3])
redis.call('EXPIRE', key, ARGV[2])
for i = 4, #ARGV do table.insert(known, redis.call('HGET', key, ARGV[i])) end
return known";

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// This process holds the row group now.
    RowGroup(u32),
    /// All row groups that are not done are held.
    AllHeld,
    /// The store knows of no row group that is not done. It may have lost them.
    Empty,
}

/// The answer to a part of the row groups to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    /// All are handed out, or those of another process are.
    Filled,
    /// The next part may follow.
    More,
    /// Another process adds them.
    Others,
}

/// What a process does with row groups that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldUpdate {
    Refresh,
    Acknowledge,
    Release,
}

/// The row groups of one job, as one process sees them.
#[derive(Clone)]
pub(crate) struct RowGroupQueue {
    connection: Arc<Connection>,
    key: String,
    /// The key of the names of the processes.
    processes: String,
    process: String,
}

impl RowGroupQueue {
    pub(super) fn new(connection: Arc<Connection>, name: &str, job: &str, process: &str) -> Self {
        let key = |part| format!("tg{FORMAT}:{{{name}:rows/{job}}}:{part}");
        Self { connection, key: key("row_groups"), processes: key("processes"), process: process.to_string() }
    }

    /// Tries all commands on row groups of this process alone.
    ///
    /// # Errors
    ///
    /// The server does not know a command or does not permit it, or cannot be reached.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let trial = Self { key: format!("{}:trial:{}", self.key, self.process), ..self.clone() };
        let checked = async {
            trial.fill(&[0..=0]).await?;
            // The first takes the row group, and the second looks for one that was left.
            trial.claim([]).await?;
            trial.claim([]).await?;
            trial.refresh([0]).await?;
            trial.acknowledge(0).await?;
            self.connection.run(cmd("DEL").arg(&trial.key)).await
        };
        checked.await.map_err(meaning)
    }

    /// Makes this process known at the server, with the text `max_cost` of its cost limit. Returns the text
    /// of each of the processes `others`. `None` is one that is not known: it uses another server, or has not
    /// announced itself since the server has lost its data.
    pub(crate) async fn announce(&self, max_cost: &str, others: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        let mut step = script(ANNOUNCE, &[&self.processes]);
        step.arg(&self.process).arg(KEPT.as_secs()).arg(max_cost).arg(others);
        self.connection.run(&step).await
    }

    /// Claims a row group: the first that no process has claimed, or else one whose process has released it
    /// or has not refreshed it for [`CLAIM`]. `held` are the row groups that this process works on.
    pub(crate) async fn claim(&self, held: impl IntoIterator<Item = u32>) -> Result<Claimed, StoreError> {
        let mut step = script(CLAIM_NEXT, &[&self.key]);
        step.arg(&self.process).arg(millis(CLAIM)).arg(KEPT.as_secs());
        for row_group in held {
            step.arg(id(row_group));
        }
        let answer: String = self.connection.run(&step).await?;
        read_claimed(&answer).ok_or_else(|| StoreError::DamagedRowGroup(format!("`{}`, entry `{answer}`", self.key)))
    }

    /// Hands out the row groups in `missing`, ascending and disjoint, unless there are some that are not
    /// done. Returns `false` if another process is about to do so.
    ///
    /// They are added in [parts](PART) under a key of this process, and handed out together with the last
    /// part. The server serves other clients between two parts. If this process is killed meanwhile, they
    /// [expire](PARTS_KEPT).
    pub(crate) async fn fill(&self, missing: &[RangeInclusive<u32>]) -> Result<bool, StoreError> {
        let mut row_groups = missing.iter().cloned().flatten().peekable();
        let mut there = 0;
        while row_groups.peek().is_some() {
            let part: Vec<u32> = row_groups.by_ref().take(PART).collect();
            match self.add(there, &part, row_groups.peek().is_none()).await? {
                Added::Filled => break,
                Added::Others => return Ok(false),
                Added::More => there += part.len(),
            }
        }
        Ok(true)
    }

    /// Adds row groups to the `there` ones that this process has added, and hands out all if these are the
    /// last.
    async fn add(&self, there: usize, part: &[u32], is_last: bool) -> Result<Added, StoreError> {
        let [new, mark] = [&self.process, "added"].map(|part| format!("{}:{part}", self.key));
        let kept = if is_last { KEPT.as_secs() } else { 0 };
        let mut step = script(FILL, &[&self.key, &new, &mark]);
        step.arg(there).arg(PARTS_KEPT.as_secs()).arg(kept).arg(MARK_KEPT.as_secs()).arg(part);
        let answer: String = self.connection.run(&step).await?;
        match answer.as_str() {
            "filled" => Ok(Added::Filled),
            "more" => Ok(Added::More),
            "others" => Ok(Added::Others),
            _ => Err(StoreError::Failed("it has lost row groups before they were handed out".to_string())),
        }
    }

    /// Keeps row groups from being claimed by another process.
    pub(crate) async fn refresh(&self, held: impl IntoIterator<Item = u32>) -> Result<(), StoreError> {
        self.update_held(HeldUpdate::Refresh, held).await
    }

    /// Marks a row group as done.
    pub(crate) async fn acknowledge(&self, row_group: u32) -> Result<(), StoreError> {
        self.update_held(HeldUpdate::Acknowledge, [row_group]).await
    }

    /// Lets other processes claim row groups at once.
    pub(crate) async fn release(&self, held: impl IntoIterator<Item = u32>) -> Result<(), StoreError> {
        self.update_held(HeldUpdate::Release, held).await
    }

    async fn update_held(&self, update: HeldUpdate, held: impl IntoIterator<Item = u32>) -> Result<(), StoreError> {
        let update = match update {
            HeldUpdate::Refresh => "refresh",
            HeldUpdate::Acknowledge => "acknowledge",
            HeldUpdate::Release => "release",
        };
        let mut step = script(UPDATE_HELD, &[&self.key]);
        step.arg(&self.process).arg(update).arg(millis(RELEASED));
        for row_group in held {
            step.arg(id(row_group));
        }
        self.connection.run(&step).await
    }
}

fn millis(time: Duration) -> u64 {
    time.as_secs() * 1_000
}

/// Reads the answer to a claim. Returns `None` for a damaged one.
pub(super) fn read_claimed(answer: &str) -> Option<Claimed> {
    match answer {
        "held" => Some(Claimed::AllHeld),
        "empty" => Some(Claimed::Empty),
        entry => row_group(entry).map(Claimed::RowGroup),
    }
}

/// Returns the id of the entry of a row group. An id is above 0.
pub(super) fn id(row_group: u32) -> String {
    format!("{}-0", u64::from(row_group) + 1)
}

fn row_group(id: &str) -> Option<u32> {
    id.strip_suffix("-0")?.parse::<u32>().ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_server::RedisServer;
    use crate::share::{Share, ShareSettings};

    /// Returns the row groups of a job as the processes `a` and `b` see them.
    async fn processes(server: &RedisServer) -> [RowGroupQueue; 2] {
        let share = Share::connect(&ShareSettings::new(&server.url(), "test")).await.unwrap();
        ["a", "b"].map(|process| share.row_groups("job", process))
    }

    /// Lets time pass for the claim of a row group, whose process is not heard of meanwhile.
    fn age(server: &RedisServer, queue: &RowGroupQueue, row_group: u32) {
        let RowGroupQueue { key, process, .. } = queue;
        let idle = millis(CLAIM) + 1;
        let aged = format!("XCLAIM {key} run {process} 0 {} IDLE {idle} JUSTID", id(row_group));
        assert!(server.send(&aged).unwrap().contains(&id(row_group)));
    }

    async fn claim(queue: &RowGroupQueue, held: &[u32]) -> Claimed {
        queue.claim(held.iter().copied()).await.unwrap()
    }

    #[tokio::test]
    async fn each_row_group_is_handed_out_once_until_all_are_done() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        assert_eq!(claim(&a, &[]).await, Claimed::Empty);
        a.fill(&[2..=3, 7..=7]).await.unwrap();
        b.fill(&[0..=9]).await.unwrap();
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(2), "the second filling changed nothing");
        assert_eq!(claim(&b, &[]).await, Claimed::RowGroup(3));
        a.fill(&[0..=9]).await.unwrap();
        assert_eq!(claim(&a, &[2]).await, Claimed::RowGroup(7));
        assert_eq!((claim(&a, &[2, 7]).await, claim(&b, &[3]).await), (Claimed::AllHeld, Claimed::AllHeld));
        for (queue, row_group) in [(&a, 2), (&b, 3), (&a, 7)] {
            b.fill(&[0..=9]).await.unwrap();
            assert_eq!(claim(&b, &[3]).await, Claimed::AllHeld);
            queue.acknowledge(row_group).await.unwrap();
        }
        assert_eq!(claim(&b, &[]).await, Claimed::Empty);
        b.fill(&[1..=1]).await.unwrap();
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(1), "its files were lost");
    }

    #[tokio::test]
    async fn a_process_is_known_at_its_server_from_when_it_announces_itself_until_the_server_loses_its_data() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        let others = ["a", "b", "c"].map(str::to_string);
        for loss in ["FLUSHALL".to_string(), format!("SET {} 1", a.processes)] {
            let known = |limits: [Option<&str>; 3]| limits.map(|limit| limit.map(str::to_string)).to_vec();
            assert_eq!(a.announce("1.5", &others).await.unwrap(), known([Some("1.5"), None, None]), "{loss}");
            assert_eq!(b.announce("", &others).await.unwrap(), known([Some("1.5"), Some(""), None]));
            server.send(&loss).unwrap();
        }
        assert_eq!(b.announce("", &others[..1]).await.unwrap(), [None]);
    }

    #[tokio::test]
    async fn many_row_groups_are_added_in_parts_and_handed_out_together() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        let (first, last) = (0..PART as u32, PART as u32..PART as u32 + 5);
        let [first, last] = [first, last].map(Vec::from_iter);
        assert_eq!(a.add(0, &first, false).await, Ok(Added::More));
        assert_eq!(claim(&b, &[]).await, Claimed::Empty, "not before the last part");
        assert_eq!(b.fill(&[0..=PART as u32]).await, Ok(false), "one process adds many");
        let expires = server.send(&format!("TTL {}:a", a.key)).unwrap();
        let expires: u64 = expires.lines().find_map(|line| line.strip_prefix(':')).unwrap().parse().unwrap();
        assert!(expires <= PARTS_KEPT.as_secs(), "what is left of a process that was killed expires");
        assert_eq!(b.fill(&[1..=1]).await, Ok(true), "a few take no time");
        assert_eq!(a.add(PART, &last, true).await, Ok(Added::Filled));
        assert_eq!((claim(&a, &[]).await, claim(&a, &[1]).await), (Claimed::RowGroup(1), Claimed::AllHeld));

        // The parts of an earlier attempt do not count.
        server.send("FLUSHALL").unwrap();
        assert_eq!(a.add(0, &first[..9], false).await, Ok(Added::More));
        assert!(a.add(PART, &last, true).await.is_err());
        assert_eq!(claim(&a, &[]).await, Claimed::Empty);

        server.send("CONFIG RESETSTAT").unwrap();
        a.fill(&[3..=PART as u32, PART as u32 + 2..=2 * PART as u32 + 9]).await.unwrap();
        let calls = server.send("INFO commandstats").unwrap();
        assert!(calls.contains("cmdstat_eval:calls=3,"), "{calls}");
        assert!(calls.contains(&format!("cmdstat_xadd:calls={},", 2 * PART + 6)), "{calls}");
        assert!(server.send("DBSIZE").unwrap().contains(":1\r"), "no part is left under another name");
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(3));
    }

    #[tokio::test]
    async fn a_claim_that_is_not_refreshed_lapses_and_is_not_taken_back() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        a.fill(&[0..=1]).await.unwrap();
        assert_eq!((claim(&a, &[]).await, claim(&a, &[0]).await), (Claimed::RowGroup(0), Claimed::RowGroup(1)));
        age(&server, &a, 0);
        a.refresh([0]).await.unwrap();
        assert_eq!(claim(&b, &[]).await, Claimed::AllHeld, "it was refreshed in time");
        age(&server, &a, 0);
        assert_eq!(claim(&a, &[0, 1]).await, Claimed::AllHeld, "a process does not claim what it works on");
        assert_eq!(claim(&b, &[]).await, Claimed::RowGroup(0));
        for _ in 0..2 {
            a.refresh([0]).await.unwrap();
            a.release([0]).await.unwrap();
            a.acknowledge(0).await.unwrap();
        }
        assert_eq!(claim(&a, &[1]).await, Claimed::AllHeld, "it belongs to the other process");
        age(&server, &b, 0);
        assert_eq!(claim(&a, &[1]).await, Claimed::RowGroup(0), "it was not acknowledged");
    }

    #[tokio::test]
    async fn a_released_row_group_is_claimed_at_once() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        a.fill(&[0..=0]).await.unwrap();
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(0));
        b.release([0]).await.unwrap();
        assert_eq!(claim(&b, &[]).await, Claimed::AllHeld, "another process cannot release it");
        a.release([0]).await.unwrap();
        assert_eq!(claim(&b, &[]).await, Claimed::RowGroup(0));
    }

    #[tokio::test]
    async fn a_claim_whose_answer_was_lost_is_found_again_by_its_process() {
        let server = RedisServer::start();
        let [a, _] = processes(&server).await;
        a.fill(&[0..=0]).await.unwrap();
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(0));
        assert_eq!(claim(&a, &[]).await, Claimed::AllHeld);
        age(&server, &a, 0);
        assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(0));
    }

    #[tokio::test]
    async fn row_groups_that_the_server_has_lost_or_damaged_are_handed_out_again() {
        let server = RedisServer::start();
        let [a, b] = processes(&server).await;
        let key = &a.key;
        for loss in ["FLUSHALL".to_string(), format!("SET {key} 1"), format!("XGROUP DESTROY {key} run")] {
            a.fill(&[4..=5]).await.unwrap();
            assert_eq!(claim(&a, &[]).await, Claimed::RowGroup(4));
            server.send(&loss).unwrap();
            a.refresh([4]).await.unwrap();
            a.acknowledge(4).await.unwrap();
            assert_eq!(claim(&b, &[]).await, Claimed::Empty, "{loss}");
            b.fill(&[4..=5]).await.unwrap();
            assert_eq!((claim(&b, &[]).await, claim(&a, &[]).await), (Claimed::RowGroup(4), Claimed::RowGroup(5)));
            server.send("FLUSHALL").unwrap();
        }
    }
}
