//! The store of one cost limit of several processes on Redis or Valkey. What each step does is defined by
//! [`CostStore`](tidegate_core::share::CostStore).
//!
//! A hash has all of it:
//!
//! ```text
//! term        "RUN TERM": the start of the server in which the first process joined, and what it drew
//! mark:ID     "RUN MARK": a process that reads the files, the start of the server in which it began, and a
//!             new number for each attempt
//! lease:ID    "SEQ LEASE": the newest request of a process, and its lease
//! ```
//!
//! `RUN` is the `run_id` of the server, which is new at each of its starts, and another one at each replica.
//! A server that was restarted or has replaced another one may lack the last writes, so its hash counts as
//! lost. So does a hash with a damaged value.

use std::num::ParseIntError;
use std::sync::Arc;

use tidegate_core::share::redis::FORMAT;
use tidegate_core::share::{COST_STEPS, CostGrant, CostRequest};

use super::random_number;
use super::redis_store::{Connection, KEPT, meaning, script};
use super::store::StoreError;

/// Returns a script that begins with the start of the server.
macro_rules! on_hash {
    ($code:literal) => {
        concat!(
            "
local key = KEYS[1]
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if not run then return redis.error_reply('ERR INFO has no run_id, so lost data would not be noticed') end
if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
",
            $code
        )
    };
}

/// KEYS: hash. ARGV: process, seconds to keep, mark. Begins to join.
const MARK: &str = on_hash!(
    "
local term = redis.call('HGET', key, 'term')
if term and string.match(term, '^%w+') ~= run then redis.call('DEL', key) end
redis.call('HSET', key, 'mark:' .. ARGV[1], run .. ' ' .. ARGV[3])
redis.call('EXPIRE', key, ARGV[2])"
);

/// KEYS: hash. ARGV: process, seconds to keep, mark, new term, and for each file its process and its amount.
/// Returns the term, or nil if the mark is lost or is not the newest of the process.
const JOIN: &str = on_hash!(
    "
if redis.call('HGET', key, 'mark:' .. ARGV[1]) ~= run .. ' ' .. ARGV[3] then return nil end
redis.call('HDEL', key, 'mark:' .. ARGV[1])
redis.call('HSETNX', key, 'term', run .. ' ' .. ARGV[4])
for i = 5, #ARGV, 2 do redis.call('HSETNX', key, 'lease:' .. ARGV[i], '0 ' .. ARGV[i + 1]) end
redis.call('EXPIRE', key, ARGV[2])
return redis.call('HGET', key, 'term')"
);

/// KEYS: hash. ARGV: process, seconds to keep, term, seq, limit, held, need, wanted, steps. Returns the
/// lease, the step, the sum of all others and whether the need was refused, or nothing if the process must
/// join again.
const REQUEST: &str = on_hash!(
    "
if string.match(ARGV[3], '^%w+') ~= run or redis.call('HGET', key, 'term') ~= ARGV[3] then return {} end
local limit, held, need = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local newest, others = 0, 0
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local of = string.match(all[i], '^lease:(.*)$')
  local seq, lease = string.match(all[i + 1], '^(%d+) (%d+)$')
  if of and not seq then
    redis.call('DEL', key)
    return {}
  elseif of == ARGV[1] then newest = tonumber(seq)
  elseif of then others = others + tonumber(lease) end
end
if newest >= tonumber(ARGV[4]) then return {} end
local free = math.max(math.max(limit - others, 0) - held, 0)
local more, refused = 0, need > free
if not refused then more = math.max(need, math.min(tonumber(ARGV[8]), math.floor(free / ARGV[9]))) end
local lease = string.format('%.0f', held + more)
redis.call('HSET', key, 'lease:' .. ARGV[1], ARGV[4] .. ' ' .. lease)
redis.call('EXPIRE', key, ARGV[2])
local step = string.format('%.0f', math.floor((free - more) / ARGV[9]))
return {lease, step, string.format('%.0f', others), refused and '1' or '0'}"
);

/// The leases of one cost limit, as one process sees them.
#[derive(Clone)]
pub(crate) struct CostLeases {
    connection: Arc<Connection>,
    key: String,
    process: String,
}

impl CostLeases {
    pub(super) fn new(connection: Arc<Connection>, name: &str, job: &str, process: &str) -> Self {
        let key = format!("tg{FORMAT}:{{{name}:rows/{job}}}:cost");
        Self { connection, key, process: process.to_string() }
    }

    /// Marks the store with a number that the process has not used before. The process reads all files then,
    /// and [joins](Self::join).
    pub(crate) async fn mark(&self, mark: u64) -> Result<(), StoreError> {
        let mut step = script(MARK, &[&self.key]);
        step.arg(&self.process).arg(KEPT.as_secs()).arg(mark);
        self.connection.run(&step).await.map_err(meaning)
    }

    /// Adds the amounts of files that were read after `mark`, each with the name of its process. Returns the
    /// term, or `None` if the store has lost its data since the mark.
    pub(crate) async fn join(&self, mark: u64, files: &[(String, u64)]) -> Result<Option<String>, StoreError> {
        let mut step = script(JOIN, &[&self.key]);
        step.arg(&self.process).arg(KEPT.as_secs()).arg(mark).arg(random_number());
        for (process, amount) in files {
            step.arg(process).arg(amount);
        }
        self.connection.run(&step).await.map_err(meaning)
    }

    /// Decides a request. Returns `None` if the process must join again: the store has lost its data since
    /// the process has joined in `term`.
    pub(crate) async fn request(&self, term: &str, request: &CostRequest) -> Result<Option<CostGrant>, StoreError> {
        let CostRequest { seq, limit, held, need, wanted } = *request;
        let mut step = script(REQUEST, &[&self.key]);
        step.arg(&self.process).arg(KEPT.as_secs()).arg(term).arg(seq);
        step.arg(limit).arg(held).arg(need).arg(wanted).arg(COST_STEPS);
        let answer: Vec<String> = self.connection.run(&step).await.map_err(meaning)?;
        read_grant(&answer).map_err(|_| StoreError::DamagedCost(self.key.clone()))
    }
}

/// Reads the answer to a request. Returns `None` if the process must join again.
pub(super) fn read_grant(answer: &[String]) -> Result<Option<CostGrant>, ParseIntError> {
    let [lease, step, others, refused] = answer else { return Ok(None) };
    let (lease, step, others) = (lease.parse()?, step.parse()?, others.parse()?);
    Ok(Some(CostGrant { lease, step, others, is_refused: refused == "1" }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_core::share::{CostStore, EARLIER_RUNS, MAX_COST};
    use tidegate_core::sim::rng::Rng;

    use super::*;
    use crate::redis_server::RedisServer;
    use crate::share::{Share, ShareSettings};

    const NAMES: [&str; 4] = ["earlier", "a", "b", "c"];

    async fn share(server: &RedisServer) -> Share {
        Share::connect(&ShareSettings::new(&server.url(), "test")).await.unwrap()
    }

    /// Returns the leases of a job as the processes `a`, `b` and `c` see them.
    async fn processes(server: &RedisServer) -> [CostLeases; 3] {
        let share = share(server).await;
        ["a", "b", "c"].map(|process| share.cost_leases("job", process))
    }

    /// Lets a process join with these files, and returns the term.
    async fn join(leases: &CostLeases, files: &[(&str, u64)]) -> String {
        let mark = random_number();
        leases.mark(mark).await.unwrap();
        let files: Vec<(String, u64)> = files.iter().map(|(of, amount)| ((*of).to_string(), *amount)).collect();
        leases.join(mark, &files).await.unwrap().expect("the mark is there")
    }

    fn need(seq: u64, need: u64) -> CostRequest {
        CostRequest { seq, limit: 1_000, held: 0, need, wanted: need }
    }

    #[tokio::test]
    async fn the_scripts_decide_as_the_reference_does() {
        let server = RedisServer::start();
        let leases = processes(&server).await;
        let (mut rng, mut store) = (Rng::new(1), CostStore::default());
        // The terms of the reference, by those of the server.
        let mut terms: BTreeMap<String, u64> = [("unknown 0".to_string(), 0)].into();
        let mut seqs = [0; 3];
        let mut marks = [0; 3];
        for step in 0..2_000 {
            let at = rng.below(3) as usize;
            let of = at as u64 + 1;
            let leases = &leases[at];
            let limit = [MAX_COST, 100_000, 1_000, 7][rng.below(4) as usize];
            match rng.below(40) {
                0 => {
                    server.send("FLUSHALL").unwrap();
                    store = CostStore::default();
                }
                1 => {
                    // A server that was started anew has its old data.
                    let term = format!("HGET {} term", leases.key);
                    if server.send(&term).unwrap().lines().nth(1).is_some_and(|term| term.contains(' ')) {
                        server.send(&format!("HSET {} term \"abc 7\"", leases.key)).unwrap();
                        store = CostStore::default();
                        // The next mark removes what the last start has left.
                        marks[at] += 1;
                        leases.mark(marks[at]).await.unwrap();
                        store.mark(of, marks[at]);
                    }
                }
                2..5 => {
                    marks[at] += 1;
                    leases.mark(marks[at]).await.unwrap();
                    store.mark(of, marks[at]);
                }
                5..10 => {
                    let files = [EARLIER_RUNS, 1, 2, 3].map(|of| (of, rng.below(limit) / 8));
                    let named = files.map(|(of, amount)| (NAMES[of as usize].to_string(), amount));
                    // Some join with an earlier mark.
                    let mark = u64::saturating_sub(marks[at], rng.below(4) / 3);
                    let term = leases.join(mark, &named).await.unwrap();
                    let expected = store.join(of, mark, terms.len() as u64, &files);
                    let next = terms.len() as u64;
                    let term = term.map(|term| *terms.entry(term).or_insert(next));
                    assert_eq!(term, expected, "step {step}");
                }
                _ => {
                    seqs[at] += rng.below(3);
                    let [held, need, wanted] = [0; 3].map(|_| rng.below(2) * rng.below(limit) / 8);
                    let request = CostRequest { seq: seqs[at], limit, held, need, wanted };
                    let (name, term) = terms.iter().nth(rng.below(terms.len() as u64) as usize).unwrap();
                    let newest = terms.iter().max_by_key(|(_, term)| **term).unwrap();
                    let (name, term) = if rng.below(4) == 0 { (name, term) } else { newest };
                    let grant = leases.request(name, &request).await.unwrap();
                    assert_eq!(grant, store.request(of, *term, &request), "step {step}: {request:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_server_without_a_number_for_each_start_is_an_error_in_each_step() {
        let server = RedisServer::start();
        let [leases, ..] = processes(&server).await;
        for code in [MARK, JOIN, REQUEST] {
            let code = code.replace("'INFO', 'server'", "'ECHO', 'no number'").leak();
            let answer: Result<(), _> = leases.connection.run(&script(code, &[&leases.key])).await;
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("INFO has no run_id, so lost data would not be noticed"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_lease_of_a_process_that_died_is_not_given_out_again() {
        let server = RedisServer::start();
        let [dead, other, late] = processes(&server).await;
        let term = join(&dead, &[("earlier", 100)]).await;
        assert_eq!(dead.request(&term, &need(1, 600)).await.unwrap().unwrap().lease, 600);
        assert!(other.request(&term, &need(1, 301)).await.unwrap().unwrap().is_refused);
        assert_eq!(other.request(&term, &need(2, 300)).await.unwrap().unwrap().lease, 300);
        assert_eq!(join(&late, &[("earlier", 100), ("a", 500), ("b", 0)]).await, term);
        assert!(late.request(&term, &need(1, 1)).await.unwrap().unwrap().is_refused);
    }

    #[tokio::test]
    async fn a_server_that_has_lost_its_data_or_was_restarted_grants_nothing_before_the_files_are_read() {
        let server = RedisServer::start();
        let [a, b, _] = processes(&server).await;
        let first = join(&a, &[]).await;
        assert!(b.request(&first, &need(1, 1)).await.unwrap().is_some());
        // The server loses its data while a process reads the files.
        a.mark(1).await.unwrap();
        server.send("FLUSHALL").unwrap();
        assert_eq!(a.join(1, &[]).await.unwrap(), None);
        // An earlier attempt of the process was late.
        a.mark(2).await.unwrap();
        assert_eq!(a.join(1, &[]).await.unwrap(), None);
        assert_eq!(b.request(&first, &need(2, 1)).await.unwrap(), None);
        let second = join(&b, &[("a", 990)]).await;
        assert_ne!(first, second);
        assert_eq!(a.request(&first, &need(9, 500)).await.unwrap(), None, "a request from before the loss");
        assert!(b.request(&second, &need(3, 11)).await.unwrap().unwrap().is_refused);
        // A server that was restarted, or a replica, has another number and may lack the last writes.
        let old = second.replacen(|c: char| c.is_ascii_hexdigit(), "f0", 1);
        server.send(&format!("HSET {} term \"{old}\"", a.key)).unwrap();
        for term in [&old, &second] {
            assert_eq!(a.request(term, &need(10, 1)).await.unwrap(), None);
        }
        let third = join(&a, &[("b", 1_000)]).await;
        assert!(a.request(&third, &need(11, 1)).await.unwrap().unwrap().is_refused);
        // A mark from before the restart is worth nothing.
        a.mark(3).await.unwrap();
        server.send(&format!("HSET {} mark:a \"f0f0 3\"", a.key)).unwrap();
        assert_eq!(a.join(3, &[]).await.unwrap(), None);
        server.send(&format!("HSET {} lease:b much", a.key)).unwrap();
        assert_eq!(a.request(&third, &need(12, 1)).await.unwrap(), None);
        assert_ne!(join(&a, &[]).await, third, "a damaged value counts as lost data");
        server.send(&format!("SET {} x", a.key)).unwrap();
        join(&a, &[]).await;
    }
}
