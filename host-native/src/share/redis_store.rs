//! The store on Redis or Valkey. [`tidegate_core::share::redis`] has the keys and commands of a shared limit.
//!
//! There are further keys for a dataset that several processes fill: see the modules `row_groups` and
//! `cost_leases`.
//!
//! ```text
//! tgFORMAT:{NAME:rows/JOB}:row_groups            the row groups of a dataset
//! tgFORMAT:{NAME:rows/JOB}:row_groups:PROCESS    those that a process is about to hand out
//! tgFORMAT:{NAME:rows/JOB}:processes             the processes that fill the dataset
//! tgFORMAT:{NAME:rows/JOB}:cost                  their leases of the cost limit
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, ParsingError, RedisError, Value, cmd};
use tidegate_core::share::redis as codec;
use tidegate_core::share::{Decision, StoreReply, StoreStep};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::server::Server;
use super::store::{Store, StoreError};
use super::{ShareError, ShareSettings};

/// How long one step may take, with the connection if there is none. It is below the time after which a
/// member takes the lead, so that one lost answer does not replace the leader. Unit tests do not need that.
const STEP_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 30 } else { 1 });

/// How long the keys are kept after the last write. A limit that was not used for longer is learned again.
pub(super) const KEPT: Duration = Duration::from_secs(codec::KEPT_SECS);

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
const MEANINGS: [(&str, &str); 21] = [
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
    // Valkey.
    ("acl failure in script", NO_PERMISSION),
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

/// KEYS: state. Returns the newest decision, and the milliseconds until the key expires. All versions of the
/// messages set this time when they write a decision.
const READ: &str = "return {redis.call('HGET', KEYS[1], 'decision'), redis.call('PTTL', KEYS[1])}";

/// What the store has about one shared limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredLimit {
    /// The shared limit: `provider/model/domain`.
    limit: String,
    /// The version of its messages.
    format: u32,
    /// The newest decision; `None` if there is none that can be read.
    decision: Option<Decision>,
    /// The time since a leader wrote it, by the clock of the store.
    age: Duration,
    /// Whether the leases of this decision have lapsed.
    is_old: bool,
}

impl StoredLimit {
    /// Returns whether processes of another version of tidegate share this limit now.
    pub(super) fn is_of_others(&self) -> bool {
        self.format != codec::FORMAT && !self.is_old
    }
}

/// One line for people.
impl fmt::Display for StoredLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, format, decision, age, is_old } = self;
        let age = age.as_secs_f64();
        if *format != codec::FORMAT {
            let processes = if *is_old { "no process now" } else { "processes" };
            return write!(
                f,
                "{limit}: {processes} of another version of tidegate (messages of version {format}, here {}), \
                 newest decision {age:.1} s ago",
                codec::FORMAT
            );
        }
        let Some(decision) = decision else { return write!(f, "{limit}: no decision that can be read") };
        let slots = decision.limit;
        write!(f, "{limit}: {slots} slots, ")?;
        match decision.shares.len() {
            processes if *is_old || processes == 0 => f.write_str("no process now")?,
            processes => {
                let shares: Vec<String> = decision.shares.values().map(|given| given.share.to_string()).collect();
                write!(f, "{}, shares {}", decision.term.describe_processes(processes), shares.join(" + "))?;
            }
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
///
/// It does not use the connection manager of the crate, which connects again to the address that it was
/// created with: behind sentinels, each connection begins with the question for the present primary.
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
        self.run::<()>(&to_cmd(&codec::check(name))).await.map_err(meaning)?;
        // A server that does not permit the command is taken for no node of a cluster.
        let info = self.run(&to_cmd(&codec::cluster_info())).await.map_or_else(|_| Vec::new(), |Texts(info)| info);
        if codec::is_cluster(&info) { Err(StoreError::Failed(CLUSTER.to_string())) } else { Ok(()) }
    }

    /// Returns what the store has about each limit that the processes called `name` share, in the order of
    /// their names. `lease` is how long a decision gives leases.
    pub(super) async fn limits(&self, name: &str, lease: Duration) -> Result<Vec<StoredLimit>, StoreError> {
        let read = async {
            let mut limits = Vec::new();
            for (limit, format, key) in self.limit_keys(name).await? {
                let (decision, expires_ms): (Option<String>, i64) = match self.run(&script(READ, &[&key])).await {
                    // The user of the server may not read it. It is there, and hides no other limit.
                    Err(_) if format != codec::FORMAT => (None, i64::MAX),
                    read => read?,
                };
                let left = Duration::from_millis(u64::try_from(expires_ms).unwrap_or(0));
                let age = KEPT.saturating_sub(left);
                let decision = decision.and_then(|text| serde_json::from_str(&text).ok());
                limits.push(StoredLimit { limit, format, decision, age, is_old: age > lease });
            }
            Ok(limits)
        };
        timeout(LIST_TIMEOUT, read).await.unwrap_or(Err(StoreError::Timeout(LIST_TIMEOUT)))
    }

    /// Returns the limits that the processes called `name` share, with the version of their messages and the
    /// key of the decision.
    async fn limit_keys(&self, name: &str) -> Result<BTreeSet<(String, u32, String)>, StoreError> {
        // A name contains no character with a meaning in a pattern.
        let pattern = codec::state_pattern(name);
        let (mut limits, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let mut step = cmd("SCAN");
            step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCANNED);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.run(&step).await?;
            let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
            limits.extend(keys.filter_map(|key| {
                let (format, limit) = codec::read_state_key(name, key)?;
                Some((limit.to_string(), format, key.to_string()))
            }));
            cursor = next;
            if cursor == 0 {
                return Ok(limits);
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
pub(super) fn script(code: &'static str, keys: &[&str]) -> Cmd {
    to_cmd(&codec::script(code, keys))
}

fn to_cmd(command: &codec::Command) -> Cmd {
    let mut cmd = Cmd::new();
    for part in command {
        cmd.arg(&**part);
    }
    cmd
}

/// A reply as its texts.
struct Texts(codec::Reply);

impl FromRedisValue for Texts {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut texts = Vec::new();
        add_texts(value, &mut texts)?;
        Ok(Self(texts))
    }
}

fn add_texts(value: Value, texts: &mut codec::Reply) -> Result<(), ParsingError> {
    match value {
        Value::Nil => texts.push(None),
        Value::Array(values) => values.into_iter().try_for_each(|value| add_texts(value, texts))?,
        Value::Map(fields) => {
            let values = fields.into_iter().flat_map(|(name, value)| [name, value]);
            values.into_iter().try_for_each(|value| add_texts(value, texts))?;
        }
        // No message has other bytes: what they are read as is damaged as well.
        Value::BulkString(bytes) => texts.push(Some(String::from_utf8_lossy(&bytes).into_owned())),
        value => texts.push(Some(String::from_redis_value(value)?)),
    }
    Ok(())
}

/// The store of one shared limit.
pub(super) struct RedisStore {
    connection: Arc<Connection>,
    pub(super) limit: codec::RedisLimit,
}

impl RedisStore {
    /// Creates the store of the limit `limit` (`provider/model/domain`) that the processes called `name`
    /// share.
    pub(super) fn new(connection: Arc<Connection>, name: &str, limit: &str) -> Self {
        Self { connection, limit: codec::RedisLimit::new(name, limit) }
    }
}

impl Store for RedisStore {
    async fn run(&self, step: StoreStep) -> Result<StoreReply, StoreError> {
        let Texts(reply) = self.connection.run(&to_cmd(&self.limit.command(&step))).await?;
        Ok(self.limit.read_reply(&step, reply)?)
    }
}
