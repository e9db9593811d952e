//! One limit for several processes, over Redis or Valkey.
//!
//! Processes that call one provider account share its limits: together they have no more calls in flight than
//! one process would, spend the rate budgets once, and a 429 to one of them slows all down.
//! [`Share::connect`] connects to the store, and [`RequestGate::share`](crate::gate::RequestGate::share)
//! makes the models of a gate share their limits.
//!
//! ```no_run
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//! use tidegate_native::share::{Share, ShareSettings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let share = Share::connect(&ShareSettings::new("redis://127.0.0.1:6379", "acme-prod")).await?;
//! let gate = RequestGate::new()?;
//! gate.share(share)?;
//! let writer = ResourceKey::chat("acme", "writer-large");
//! gate.register(&writer, &Limits::at_most(64))?; // at most 64 calls at once, over all processes
//!
//! let permit = gate.acquire(&Call::new(writer)).await?;
//! // ... make the call ...
//! # permit.finish(tidegate_core::request::Outcome::Success);
//! gate.leave_share().await; // the other processes get its share at once
//! # Ok(())
//! # }
//! ```
//!
//! The processes exchange messages by a few commands to the store ten times a second; a call needs none of
//! them. One of the processes leads: it owns the limit and leases a part of it, a *share*, to each. If it
//! stops, another takes over. [`tidegate_core::share`] describes the protocol and its bounds.
//!
//! All processes with one [name](ShareSettings::name) must register a model with the same limits and budgets.
//! The budgets are one set over all processes: each spends what the leader grants. Rates that a provider
//! states in its headers, and the health of a provider, are not shared.
//!
//! If the store is unreachable for less than five seconds, nothing changes. After that, [`OnLoss`] decides.

#[cfg(feature = "cli")]
mod cost_leases;
mod driver;
#[cfg(all(test, feature = "cli"))]
mod fuzz;
mod redis_store;
#[cfg(feature = "cli")]
mod row_groups;
mod server;
mod store;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::error::ConfigError;
use tidegate_core::gate::Gate;
use tidegate_core::limit::{LimitChoice, LimitConfig};
use tidegate_core::request::ResourceId;
use tidegate_core::share::redis::is_valid_name;
use tidegate_core::share::{MemberState, SessionSettings, ShareConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use tidegate_core::share::OnLoss;

use crate::host::TokioHost;
#[cfg(feature = "cli")]
pub(crate) use cost_leases::CostLeases;
use driver::{Shared, drive};
use redis_store::{Connection, RedisStore};
#[cfg(feature = "cli")]
pub(crate) use row_groups::{CLAIM, Claimed, RowGroupQueue};
use store::Store;
#[cfg(feature = "cli")]
pub(crate) use store::StoreError;

/// How long [`Share::leave`] waits for the last reports.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// With which processes limits are shared, and over which server.
#[derive(Clone)]
pub struct ShareSettings {
    url: String,
    /// The name that all processes use that share limits: 1 to 64 letters, digits and the characters `-`,
    /// `_` and `.`.
    pub name: String,
    /// What this process does when it has lost the others, for example because the store is unreachable.
    pub on_loss: OnLoss,
    authorities: Option<Vec<u8>>,
    /// The certificate of this process and its private key.
    client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl ShareSettings {
    /// Creates settings with the default [`OnLoss`].
    ///
    /// `url` is that of a Redis or Valkey server: `redis://[[user]:password@]host[:port][/database]`, or
    /// `rediss://` for TLS with the certificate authorities of the system. It may contain a password, which
    /// is shown nowhere.
    ///
    /// For a server behind Redis Sentinel, it names the sentinels and the primary:
    /// `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/primary[/database]`, or
    /// `rediss+sentinel://` for TLS to both. The credentials are those for the primary; the parameters
    /// `sentinel_username` and `sentinel_password` are those for the sentinels, such as
    /// `?sentinel_password=secret`. The port of a sentinel is 26379 by default.
    #[must_use]
    pub fn new(url: &str, name: &str) -> Self {
        Self {
            url: url.to_string(),
            name: name.to_string(),
            on_loss: OnLoss::default(),
            authorities: None,
            client_certificate: None,
        }
    }

    /// Returns the settings with this URL.
    #[must_use]
    pub fn with_url(self, url: &str) -> Self {
        Self { url: url.to_string(), ..self }
    }

    /// Returns the settings with `on_loss`.
    #[must_use]
    pub fn with_on_loss(self, on_loss: OnLoss) -> Self {
        Self { on_loss, ..self }
    }

    /// Returns the settings with these certificate authorities, in PEM, instead of those of the system. The
    /// URL must be one with TLS.
    #[must_use]
    pub fn with_authorities(self, pem: &[u8]) -> Self {
        Self { authorities: Some(pem.to_vec()), ..self }
    }

    /// Returns the settings with the certificate of this process and its private key, both in PEM, for a
    /// server that requires one of its clients. Further certificates in `pem` are those of the authorities
    /// between it and one that the server knows. The URL must be one with TLS. The key is shown nowhere.
    #[must_use]
    pub fn with_client_certificate(self, pem: &[u8], key_pem: &[u8]) -> Self {
        Self { client_certificate: Some((pem.to_vec(), key_pem.to_vec())), ..self }
    }
}

/// Leaves out the URL, which may contain a password, and the private key.
impl fmt::Debug for ShareSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, name, on_loss, authorities: _, client_certificate: _ } = self;
        f.debug_struct("ShareSettings").field("name", name).field("on_loss", on_loss).finish_non_exhaustive()
    }
}

/// The reason why limits cannot be shared. It contains no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The URL cannot be parsed.
    #[error(
        "the address of the store is not valid: expected `redis://host:port`, `redis://user:password@host:port/database`, \
         or `redis+sentinel://host:port,host:port/primary` with the sentinels of a primary; for TLS, `rediss` in place of \
         `redis`"
    )]
    Url,
    /// There is no URL.
    #[error("the address of the store is missing: expected `url_env` in [share], or --share URL")]
    NoUrl,
    /// The name is not valid.
    #[error("the name `{0}` is not valid: expected 1 to 64 letters, digits and the characters `-`, `_` and `.`")]
    Name(String),
    /// The gate shares its limits already.
    #[error("the gate shares its limits already, and can do so once")]
    AlreadyShared,
    /// There are certificates for an address without TLS.
    #[error(
        "certificates are given for {address}, which has no TLS: expected an address with `rediss://` or \
         `rediss+sentinel://`, or neither `ca_file` nor `client_cert_file` in [share]"
    )]
    NoTls {
        /// The address without credentials.
        address: String,
    },
    /// The certificate authorities cannot be read.
    #[error("the certificate authorities cannot be read: expected certificates in PEM")]
    Authorities,
    /// The certificate of the process or its key cannot be read.
    #[error("the client certificate cannot be read: expected a certificate and its private key, both in PEM")]
    ClientCertificate,
    /// The server cannot be reached, or rejects commands.
    #[error("cannot share limits over {address}: {why}")]
    Unreachable {
        /// The address without credentials.
        address: String,
        /// The reason.
        why: String,
    },
}

/// The state of one shared limit, to show.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShareStatus {
    /// The shared limit: `provider/model/domain`.
    pub limit: Arc<str>,
    /// The algorithm of the limit.
    pub algorithm: LimitChoice,
    /// The share of this process.
    pub member: MemberState,
    /// The error of a step at the store that has not succeeded since. `None` if there is none.
    pub error: Option<String>,
}

impl ShareStatus {
    /// Returns the number of the leader, eight hexadecimal digits that are the same in all processes; `None`
    /// before the first decision of a leader.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        self.member.leader()
    }
}

/// One line for people.
impl fmt::Display for ShareStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.member.fmt(f)?;
        self.error.as_ref().map_or(Ok(()), |error| write!(f, "; the store: {error}"))
    }
}

/// A connection to the store, and the limits of this process that are shared over it.
///
/// If it is dropped without [`Share::leave`], the other processes treat this one as killed: they get its
/// share after five seconds.
pub struct Share {
    connection: Arc<Connection>,
    name: String,
    config: ShareConfig,
    limits: Mutex<Vec<SharedLimit>>,
    leaves: watch::Sender<bool>,
}

/// One limit that is shared. Its task ends when this is dropped.
struct SharedLimit {
    name: Arc<str>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for SharedLimit {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SharedLimit {
    fn status(&self) -> ShareStatus {
        let Self { name, shared, task: _ } = self;
        let (limit, algorithm) = (Arc::clone(name), shared.algorithm());
        ShareStatus { limit, algorithm, member: shared.state(), error: shared.error() }
    }
}

impl Share {
    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// The URL, the name or the authorities are not valid, or the server cannot be reached within a second.
    pub async fn connect(settings: &ShareSettings) -> Result<Self, ShareError> {
        let ShareSettings { url, name, on_loss, .. } = settings;
        check_name(name)?;
        if url.is_empty() {
            return Err(ShareError::NoUrl);
        }
        let connection = Arc::new(Connection::open(settings).await?);
        let config = ShareConfig { on_loss: *on_loss, ..ShareConfig::default() };
        let (limits, leaves) = (Mutex::default(), watch::Sender::new(false));
        Ok(Self { connection, name: name.clone(), config, limits, leaves })
    }

    /// Shares the limit of a resource from now on. `limit` is its name, which is the same in all processes:
    /// `provider/model/domain`. `choice` and `limit_config` are the settings of the limit.
    ///
    /// No call starts until the first share arrives, which takes about 0.2 seconds, or up to two seconds if
    /// the leader has just stopped. If the limit was shared already, it is shared anew.
    ///
    /// # Errors
    ///
    /// A setting is out of range, or `resource` is not one of the gate's.
    pub fn join(
        &self,
        gate: &Gate<TokioHost>,
        resource: ResourceId,
        limit: &str,
        choice: LimitChoice,
        limit_config: &LimitConfig,
    ) -> Result<(), ConfigError> {
        let store = RedisStore::new(Arc::clone(&self.connection), &self.name, limit);
        let settings = SessionSettings { share: self.config, choice, limit: limit_config.clone() };
        let shared = share_limit(gate, resource, limit, settings, store, self.leaves.subscribe())?;
        let mut limits = self.limits.lock();
        limits.retain(|known| *known.name != *limit);
        limits.push(shared);
        Ok(())
    }

    /// Checks that the server can hand out row groups.
    ///
    /// # Errors
    ///
    /// [`ShareError::Unreachable`] with what the server lacks.
    #[cfg(feature = "cli")]
    pub(crate) async fn check_row_groups(&self) -> Result<(), ShareError> {
        let checked = self.row_groups("check", &format!("{:x}", random_number())).check().await;
        let address = || self.connection.address().to_string();
        checked.map_err(|why| ShareError::Unreachable { address: address(), why: why.to_string() })
    }

    /// Returns the row groups that the processes of the job `job` hand out to each other. `process` is the
    /// name of this process. Both contain no space.
    #[cfg(feature = "cli")]
    pub(crate) fn row_groups(&self, job: &str, process: &str) -> RowGroupQueue {
        RowGroupQueue::new(Arc::clone(&self.connection), &self.name, job, process)
    }

    /// Returns the leases of the cost limit of the job `job`, as the process `process` sees them.
    #[cfg(feature = "cli")]
    pub(crate) fn cost_leases(&self, job: &str, process: &str) -> CostLeases {
        CostLeases::new(Arc::clone(&self.connection), &self.name, job, process)
    }

    /// Returns the state of every shared limit, in the order in which they were first shared.
    #[must_use]
    pub fn status(&self) -> Vec<ShareStatus> {
        self.limits.lock().iter().map(SharedLimit::status).collect()
    }

    /// Returns the state of the limit `limit`, or `None` if it is not shared.
    #[must_use]
    pub fn status_of(&self, limit: &str) -> Option<ShareStatus> {
        self.limits.lock().iter().find(|known| *known.name == *limit).map(SharedLimit::status)
    }

    /// Describes the limits that processes share under the name now, one line for each, or one line if there
    /// are none or the store does not list them. This process joins none of them. It takes at most five
    /// seconds: the store looks at all its keys.
    pub async fn describe_limits(&self) -> Vec<String> {
        match self.connection.limits(&self.name, self.config.ttl.into()).await {
            Ok(limits) if limits.is_empty() => vec!["no process has shared a limit in the last day".to_string()],
            Ok(limits) => limits.iter().map(ToString::to_string).collect(),
            Err(error) => vec![format!("the shared limits cannot be listed: {error}")],
        }
    }

    /// Describes with which processes limits are shared, for people. A second line warns if processes of
    /// another version of tidegate share limits under the name now, whose messages this one cannot read: each
    /// version has limits of its own. It takes at most five seconds: the store looks at all its keys.
    pub async fn describe(&self) -> String {
        let limits = self.connection.limits(&self.name, self.config.ttl.into()).await.unwrap_or_default();
        match limits.iter().filter(|limit| limit.is_of_others()).count() {
            0 => self.to_string(),
            others => format!(
                "{self}\nwarning: another version of tidegate shares limits under this name, too: {others} now. Each version \
                 has limits of its own, so more calls can be in flight than one limit allows"
            ),
        }
    }

    /// Returns whether the limit `limit` is shared. A shared limit keeps its algorithm and settings.
    ///
    /// # Errors
    ///
    /// It is shared, and `choice` or `limit_config` differ from its settings.
    pub(crate) fn keeps(
        &self,
        limit: &str,
        choice: LimitChoice,
        limit_config: &LimitConfig,
    ) -> Result<bool, ConfigError> {
        let limits = self.limits.lock();
        let Some(known) = limits.iter().find(|known| *known.name == *limit) else { return Ok(false) };
        let expected = "the same as before: the algorithm of a shared limit and its settings cannot change";
        let error = || ConfigError { field: "limit".to_string(), value: choice.name().to_string(), expected };
        if known.shared.is_shared_with(choice, limit_config) { Ok(true) } else { Err(error()) }
    }

    /// Returns the name under which limits are shared.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the server, without credentials.
    #[must_use]
    pub fn address(&self) -> &str {
        self.connection.address()
    }

    /// Leaves: no more calls start, and the other processes get the shares of this one at once.
    ///
    /// Call it when the calls have ended, since it waits for them. It takes at most two seconds.
    pub async fn leave(&self) {
        self.leaves.send_replace(true);
        let limits = std::mem::take(&mut *self.limits.lock());
        let _ = timeout(LEAVE_TIMEOUT, async {
            for mut limit in limits {
                let _ = (&mut limit.task).await;
            }
        })
        .await;
    }
}

/// One line for people.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shares limits as `{}` over {}", self.name, self.address())
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, connection, .. } = self;
        f.debug_struct("Share").field("name", name).field("address", &connection.address()).finish_non_exhaustive()
    }
}

/// Checks a [name](ShareSettings::name).
pub(crate) fn check_name(name: &str) -> Result<(), ShareError> {
    if is_valid_name(name) { Ok(()) } else { Err(ShareError::Name(name.to_string())) }
}

/// Makes the limit of a resource a share, and spawns the task that drives it.
fn share_limit(
    gate: &Gate<TokioHost>,
    resource: ResourceId,
    name: &str,
    settings: SessionSettings,
    store: impl Store,
    leaves: watch::Receiver<bool>,
) -> Result<SharedLimit, ConfigError> {
    let host = gate.host().clone();
    let shared = Arc::new(Shared::install(gate, resource, settings, random_number)?);
    let task = host.spawn_task(drive(Arc::clone(&shared), host.clone(), store, leaves));
    Ok(SharedLimit { name: name.into(), shared, task })
}

/// Returns a number below 2^53 that differs between processes, and between calls.
fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id()) >> 11
}
