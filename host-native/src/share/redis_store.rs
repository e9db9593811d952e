//! The store on Redis or Valkey.
//!
//! A shared limit has two keys, both hashes. [`FORMAT`] is the version of the messages: processes whose messages
//! differ use different keys, so that none misreads those of another.
//!
//! ```text
//! tgFORMAT:{NAME:provider/model/domain}:state    term, version, decision, snapshot
//! tgFORMAT:{NAME:provider/model/domain}:reports  position, and for each member: "POSITION SEQ REPORT"
//! tgFORMAT:{NAME}:check                          written at the start of a process
//! tgFORMAT:{NAME:rows/JOB}:row_groups            the row groups of a dataset: see the module `row_groups`
//! tgFORMAT:{NAME:rows/JOB}:row_groups:PROCESS    those that a process is about to hand out
//! tgFORMAT:{NAME:rows/JOB}:processes             the processes that fill the dataset
//! ```
//!
//! Whatever a value contains, a leader arises: a damaged term counts as none, a damaged number as 0, and a leader
//! that cannot read the snapshot starts anew.
//!
//! Reports and decisions are complete, so only the newest is kept: a stream of them would be read to its end
//! and trimmed to one entry for each member. Scripts make the steps atomic. Each is sent whole, which costs a few
//! hundred bytes, so that a server that was restarted needs no second round trip. The keys expire a day after
//! the last write.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, cmd};
use serde::Serialize;
use tidegate_core::share::{Decide, Decided, Decision, Lead, MemberReport, Reports, TakeLead, Term};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::server::Server;
use super::store::{Store, StoreError};
use super::{ShareError, ShareSettings, describe_processes};

/// How long one step may take, with the connection if there is none. It is below the time after which a
/// member takes the lead, so that one lost answer does not replace the leader.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the keys are kept after the last write. A limit that was not used for longer is learned again.
pub(super) const KEPT: Duration = Duration::from_hours(24);

/// The version of the messages. It changes with every change of them that an older process cannot read.
pub(super) const FORMAT: u32 = 1;

/// The field of the reports that counts them.
const POSITION: &str = "position";

/// KEYS: check. Fails on a server that cannot be written to.
const CHECK: &str = "return redis.call('SET', KEYS[1], '', 'EX', 60)";

/// How long [`Connection::limits`] may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// How many keys the server looks at in one step of [`Connection::limits`].
const SCANNED: u32 = 1_000;

/// What the server is if it is a node of a cluster.
const CLUSTER: &str = "it is a node of a Redis Cluster, expected a single primary";

/// What the server expects if it ends the connection before it answers.
const ENDED: &str = "it ends the connection; if it expects TLS, the address begins with `rediss://`";

/// What the address lacks for a server or a sentinel with a password.
const NO_PASSWORD: &str = "it requires a password; expected an address such as `redis://user:password@host:port`, and for \
                           sentinels `?sentinel_password=` at its end";

/// What the user lacks that is in the address.
const NO_PERMISSION: &str = "the user in the address may not do this; give it the permissions in docs/sharing.md";

/// What the client lacks to trust the server.
const UNKNOWN_AUTHORITY: &str =
    "no known authority has signed its certificate; `ca_file` in [share] names a private one";

/// What the server lacks to trust the client.
const UNKNOWN_CLIENT: &str =
    "it does not know the authority that has signed the certificate in `client_cert_file` of [share]";

/// What an error at the start means, by a part of its text in lower case.
const MEANINGS: [(&str, &str); 20] = [
    // The key belongs to another node, or to none.
    ("moved:", CLUSTER),
    ("clusterdown", CLUSTER),
    ("readonly", "it is a replica that cannot be written to"),
    ("authenticationfailed", "it rejects the user or the password in the address; check both"),
    ("noauth", NO_PASSWORD),
    ("does not point to a sentinel", "an address is not that of a sentinel, whose port is 26379 if none is given"),
    ("unknown command", "it is no server with scripts; the address of sentinels begins with `redis+sentinel://`"),
    ("noperm", NO_PERMISSION),
    ("the user executing the script can't run", NO_PERMISSION),
    ("err syntax error", "it does not know all commands that are needed; expected version 6.2 or later"),
    ("unknownissuer", UNKNOWN_AUTHORITY),
    // The certificate names a known authority, and another one has signed it.
    ("badsignature", UNKNOWN_AUTHORITY),
    ("not valid for name", "its certificate is for another host; expected an address with a name in the certificate"),
    // A server that waits for the end of a line gets the first message of TLS.
    ("did not answer", "it does not answer; check the host and the port, which must be one for TLS with `rediss://`"),
    ("reset by peer", ENDED),
    ("broken pipe", ENDED),
    (
        "certificaterequired",
        "it requires a certificate of its clients; expected `client_cert_file` and `client_key_file` in [share]",
    ),
    ("keymismatch", "`client_key_file` in [share] is not the key of `client_cert_file`"),
    ("unknownca", UNKNOWN_CLIENT),
    // The authority has the name of one that it knows, and another key.
    ("decrypterror", UNKNOWN_CLIENT),
];

/// Returns the error at a start with what it means, if that is known.
pub(super) fn meaning(error: StoreError) -> StoreError {
    let why = error.to_string();
    let text = why.to_lowercase();
    let meaning = MEANINGS.iter().find(|(part, _)| text.contains(part));
    meaning.map_or(error, |(_, meaning)| StoreError::Failed(format!("{meaning} ({why})")))
}

/// KEYS: reports. ARGV: member, seq, report, seconds to keep.
const REPORT: &str = "
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if (tonumber(string.match(old, '^%d+ (%d+) ')) or 0) < tonumber(ARGV[2]) then
  local last = redis.call('HGET', KEYS[1], 'position') or ''
  if not string.match(last, '^%d+$') or #last > 15 then last = 0 end
  local position = string.format('%.0f', last + 1)
  redis.call('HSET', KEYS[1], 'position', position)
  redis.call('HSET', KEYS[1], ARGV[1], position .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end";

/// Returns the code that reads the present term, or else the first argument. A number of 2^53 or more is damaged.
macro_rules! read_term {
    () => {
        "
local term = redis.call('HGET', KEYS[1], 'term') or ''
local epoch, nonce = string.match(term, '^(%d+) (%d+)$')
if not epoch or tonumber(epoch) >= 2^53 or tonumber(nonce) >= 2^53 then term = ARGV[1] end
"
    };
}

/// KEYS: state, reports. ARGV: term, version, decision, snapshot, position read, seconds to keep, members. Returns
/// the present term, and the version of the newest decision.
const DECIDE: &str = concat!(
    read_term!(),
    "
redis.call('HSET', KEYS[1], 'term', term)
local version = redis.call('HGET', KEYS[1], 'version') or ''
if not string.match(version, '^%d+$') or tonumber(version) > 2^53 - 2^39 then version = '0' end
if term ~= ARGV[1] or tonumber(version) >= tonumber(ARGV[2]) then return {term, version} end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'decision', ARGV[3], 'snapshot', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[6])
local known = {position = true}
for i = 7, #ARGV do known[ARGV[i]] = true end
for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
  local at = not known[id] and string.match(redis.call('HGET', KEYS[2], id), '^%d+')
  if at and tonumber(at) <= tonumber(ARGV[5]) then redis.call('HDEL', KEYS[2], id) end
end
return {term, ARGV[2]}"
);

/// KEYS: state. ARGV: expected term, new term, seconds to keep.
const TAKE_LEAD: &str = concat!(
    read_term!(),
    "
if term == ARGV[1] then term = ARGV[2] end
redis.call('HSET', KEYS[1], 'term', term)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {term, redis.call('HGET', KEYS[1], 'snapshot')}"
);

/// KEYS: state. Returns the newest decision, and the milliseconds until the key expires.
const READ: &str = "return {redis.call('HGET', KEYS[1], 'decision'), redis.call('PTTL', KEYS[1])}";

/// What the store has about one shared limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredLimit {
    /// The shared limit: `provider/model/domain`.
    limit: String,
    /// The newest decision; `None` if there is none that can be read.
    decision: Option<Decision>,
    /// The time since a leader wrote it, by the clock of the store.
    age: Duration,
    /// Whether the leases of this decision have lapsed.
    is_old: bool,
}

/// One line for people.
impl fmt::Display for StoredLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, decision, age, is_old } = self;
        let Some(decision) = decision else { return write!(f, "{limit}: no decision that can be read") };
        let (slots, age) = (decision.limit, age.as_secs_f64());
        write!(f, "{limit}: {slots} slots, ")?;
        match decision.shares.len() {
            processes if *is_old || processes == 0 => f.write_str("no process now")?,
            processes => f.write_str(&describe_processes(processes, decision.term))?,
        }
        write!(f, ", newest decision {age:.1} s ago")
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() { Self::Timeout(STEP_TIMEOUT) } else { Self::Failed(error.to_string()) }
    }
}

/// One connection to a server, for all limits of a process. It is opened again by the next step after a
/// failure.
pub(super) struct Connection {
    settings: AsyncConnectionConfig,
    /// The address without credentials.
    address: String,
    open: Mutex<OpenConnection>,
}

struct OpenConnection {
    server: Server,
    connection: Option<MultiplexedConnection>,
    /// How many connections were opened.
    opened: u64,
}

impl Connection {
    /// Connects to the server, and checks that it runs scripts and can be written to.
    pub(super) async fn open(settings: &ShareSettings) -> Result<Self, ShareError> {
        let (server, address) = Server::new(settings)?;
        let name = &settings.name;
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(STEP_TIMEOUT))
            .set_response_timeout(Some(STEP_TIMEOUT));
        let open = Mutex::new(OpenConnection { server, connection: None, opened: 0 });
        let connection = Self { settings, address, open };
        match connection.check(name).await {
            Ok(()) => Ok(connection),
            Err(why) => Err(ShareError::Unreachable { address: connection.address, why: why.to_string() }),
        }
    }

    async fn check(&self, name: &str) -> Result<(), StoreError> {
        let check = script(CHECK, &[&format!("tg{FORMAT}:{{{name}}}:check")]);
        self.run::<()>(&check).await.map_err(meaning)?;
        // A node of a cluster has some of the keys only. A server that does not permit the command is taken for none.
        let mut info = cmd("INFO");
        info.arg("cluster");
        let info: String = self.run(&info).await.unwrap_or_default();
        if info.contains("cluster_enabled:1") { Err(StoreError::Failed(CLUSTER.to_string())) } else { Ok(()) }
    }

    /// Returns what the store has about each limit that the processes called `name` share, in the order of their
    /// names. `lease` is how long a decision gives leases.
    pub(super) async fn limits(&self, name: &str, lease: Duration) -> Result<Vec<StoredLimit>, StoreError> {
        let read = async {
            let mut limits = Vec::new();
            for limit in self.limit_names(name).await? {
                let (decision, expires_ms): (Option<String>, i64) =
                    self.run(&script(READ, &[&state_key(name, &limit)])).await?;
                let left = Duration::from_millis(u64::try_from(expires_ms).unwrap_or(0));
                let age = KEPT.saturating_sub(left);
                let decision = decision.and_then(|text| serde_json::from_str(&text).ok());
                limits.push(StoredLimit { limit, decision, age, is_old: age > lease });
            }
            Ok(limits)
        };
        timeout(LIST_TIMEOUT, read).await.unwrap_or(Err(StoreError::Timeout(LIST_TIMEOUT)))
    }

    /// Returns the names of the limits that the processes called `name` share.
    async fn limit_names(&self, name: &str) -> Result<BTreeSet<String>, StoreError> {
        let pattern = state_key(name, "*");
        // A name contains no character with a meaning in a pattern.
        let (prefix, suffix) = pattern.split_once('*').unwrap_or_default();
        let (mut names, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let mut step = cmd("SCAN");
            step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCANNED);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.run(&step).await?;
            let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
            let limits = keys.filter_map(|key| key.strip_prefix(prefix)?.strip_suffix(suffix));
            names.extend(limits.map(ToString::to_string));
            cursor = next;
            if cursor == 0 {
                return Ok(names);
            }
        }
    }

    /// Returns the address without credentials.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Runs one step within [`STEP_TIMEOUT`].
    ///
    /// After an error, the next step opens a new connection: a cut network reports no error, and after a
    /// failover the address may name another server.
    pub(super) async fn run<T: FromRedisValue>(&self, step: &Cmd) -> Result<T, StoreError> {
        let mut used = 0;
        let end = timeout(STEP_TIMEOUT, async {
            let mut connection = self.connection(&mut used).await?;
            Ok(step.query_async(&mut connection).await?)
        });
        let error = match end.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => StoreError::Timeout(STEP_TIMEOUT),
        };
        // If another step holds the lock, it opens a new connection, or the next error drops this one.
        if let Ok(mut open) = self.open.try_lock()
            && open.opened == used
        {
            open.connection = None;
        }
        Err(error)
    }

    /// Returns the open connection, and opens one if there is none. Stores its number in `used`.
    async fn connection(&self, used: &mut u64) -> Result<MultiplexedConnection, StoreError> {
        let mut open = self.open.lock().await;
        let connection = if let Some(connection) = &open.connection {
            connection.clone()
        } else {
            let new = open.server.connect(&self.settings).await?;
            open.connection = Some(new.clone());
            open.opened += 1;
            new
        };
        *used = open.opened;
        Ok(connection)
    }
}

/// Returns the command that runs a script on these keys. Arguments are added to it.
pub(super) fn script(code: &str, keys: &[&str]) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(code).arg(keys.len()).arg(keys);
    command
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    // A message is made of numbers, lists and maps with numbers as keys.
    serde_json::to_string(value).map_err(|error| StoreError::Failed(error.to_string()))
}

pub(super) fn term_text(term: Term) -> String {
    format!("{} {}", term.epoch, term.nonce)
}

/// Returns a key of the limit `limit` that the processes called `name` share.
fn limit_key(name: &str, limit: &str, part: &str) -> String {
    format!("tg{FORMAT}:{{{name}:{limit}}}:{part}")
}

fn state_key(name: &str, limit: &str) -> String {
    limit_key(name, limit, "state")
}

/// The store of one shared limit.
pub(super) struct RedisStore {
    connection: Arc<Connection>,
    pub(super) state: String,
    pub(super) reports: String,
}

impl RedisStore {
    /// Creates the store of the limit `limit` (`provider/model/domain`) that the processes called `name`
    /// share.
    pub(super) fn new(connection: Arc<Connection>, name: &str, limit: &str) -> Self {
        let (state, reports) = (state_key(name, limit), limit_key(name, limit, "reports"));
        Self { connection, state, reports }
    }

    fn damaged(key: &str, field: &str) -> StoreError {
        StoreError::Damaged(format!("`{key}`, field `{field}`"))
    }

    fn read_term(&self, text: &str) -> Result<Term, StoreError> {
        read_term(text).ok_or_else(|| Self::damaged(&self.state, "term"))
    }
}

/// Reads the reports that were written after the position `since`.
pub(super) fn read_reports(mut fields: HashMap<String, String>, since: u64) -> Reports {
    // A position that cannot be read is 0, as in the script: the next report sets it.
    let next = fields.remove(POSITION).and_then(|text| text.parse().ok()).unwrap_or(0);
    let since = if since > next { 0 } else { since };
    // A report that cannot be read, for example of a later version of tidegate, is left out: the others
    // must not stop. Its member gets no share.
    let read = |text: &String| {
        let (position, rest) = text.split_once(' ')?;
        let (_, report) = rest.split_once(' ')?;
        (position.parse::<u64>().ok()? > since).then(|| serde_json::from_str(report).ok())?
    };
    Reports { reports: fields.values().filter_map(read).collect(), next }
}

/// Reads a term. Returns `None` for a damaged one: a number of 2^53 or more is, too.
pub(super) fn read_term(text: &str) -> Option<Term> {
    let number = |text: &str| text.parse().ok().filter(|number| *number < 1_u64 << 53);
    let (epoch, nonce) = text.split_once(' ')?;
    Some(Term { epoch: number(epoch)?, nonce: number(nonce)? })
}

impl Store for RedisStore {
    async fn report(&self, report: MemberReport) -> Result<(), StoreError> {
        let mut step = script(REPORT, &[&self.reports]);
        step.arg(report.member.0).arg(report.seq).arg(json(&report)?).arg(KEPT.as_secs());
        self.connection.run(&step).await
    }

    async fn reports_since(&self, since: u64) -> Result<Reports, StoreError> {
        let mut step = cmd("HGETALL");
        step.arg(&self.reports);
        Ok(read_reports(self.connection.run(&step).await?, since))
    }

    async fn decide(&self, decide: Decide, read: u64) -> Result<Decided, StoreError> {
        let Decide { decision, snapshot } = &decide;
        let mut step = script(DECIDE, &[&self.state, &self.reports]);
        step.arg(term_text(decision.term)).arg(decision.version).arg(json(decision)?).arg(json(snapshot)?);
        step.arg(read).arg(KEPT.as_secs());
        for member in snapshot.members.keys() {
            step.arg(member.0);
        }
        let (term, version): (String, u64) = self.connection.run(&step).await?;
        Ok(Decided { term: self.read_term(&term)?, version })
    }

    async fn take_lead(&self, request: TakeLead) -> Result<Lead, StoreError> {
        let mut step = script(TAKE_LEAD, &[&self.state]);
        step.arg(term_text(request.expected)).arg(term_text(request.term)).arg(KEPT.as_secs());
        let (term, snapshot): (String, Option<String>) = self.connection.run(&step).await?;
        let (is_there, snapshot) = (snapshot.is_some(), snapshot.and_then(|text| serde_json::from_str(&text).ok()));
        Ok(Lead { term: self.read_term(&term)?, is_damaged: is_there && snapshot.is_none(), snapshot })
    }

    async fn decisions_since(&self, term: Term, version: u64) -> Result<Option<Decision>, StoreError> {
        let mut step = cmd("HGET");
        step.arg(&self.state).arg("decision");
        let text: Option<String> = self.connection.run(&step).await?;
        let newest: Option<Decision> = text
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|_| Self::damaged(&self.state, "decision"))?;
        Ok(newest.filter(|newest| (newest.term, newest.version) != (term, version)))
    }
}
