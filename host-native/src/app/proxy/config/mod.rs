//! The configuration of a proxy: a TOML file, or one URL and defaults.
//!
//! ```toml
//! listen = "127.0.0.1:4180"       # the address of the client listener
//! admin_listen = "127.0.0.1:4181" # a separate listener for /healthz, /metrics and /why; default: `listen`
//! allowed_hosts = ["llm.example"] # values of `Host` that are served besides this machine
//! allowed_origins = ["https://app.example"]   # web pages that may call; default: none
//! drain = "30s"                   # how long calls in flight may take to end when the proxy stops
//!
//! [[providers]]
//! name = "acme"
//! base_url = "https://host/v1"    # of an OpenAI-compatible API: /v1/PATH is sent to BASE_URL/PATH
//! api_key_env = "ACME_KEY"        # the variable with the key; or `client_key = "forward"`; default: none
//! # ca_file = "authority.pem"     # certificate authorities to trust; default: those of the system
//! passthrough = [{ methods = ["GET"], path = "/batches/*" }]   # additional calls to forward; default: none
//! serves = ["gpt-*", "o?-mini"]   # patterns of models: `*` any text, `?` one character; default: all
//! rename = { small = "gpt-4o-mini" }      # `small` is sent as `gpt-4o-mini`
//! stream_usage = true             # whether to ask for the usage of a stream if the client does not
//! timeout = "10m"                 # the read timeout of a call
//! connect_timeout = "10s"
//! max_parallel = 64               # the maximum number of calls in flight for each model; default: 64
//! limit = "tide"                  # the algorithm of the limit: tide, aimd, vegas or fixed; default: tide
//! cooldown = "1s"                 # as in a pipeline file; `max_cooldown`, `ramp` and, for AIMD, `aimd` too
//! budgets = { requests_per_minute = 500, tokens_per_minute = 200_000 }
//! at_most_models = 64             # models and kinds of call that are not in `models`; more are rejected
//!
//! [[providers.models]]            # settings of one model; others are inherited from the provider
//! name = "gpt-4o"
//! max_parallel = 16               # also `limit`, `aimd`, `budgets`
//!
//! [connections]
//! max_connections = 16_384        # more are answered 503
//! header_timeout = "30s"          # for idle time between two requests, and for receiving a request head
//! body_timeout = "30s"            # between two chunks of a request body
//! write_timeout = "2m"            # for a write of a response without progress
//! max_header_bytes = 32_768       # of a request; more are answered 431
//! max_url_bytes = 8_192           # more are answered 414
//!
//! [share]                         # other processes that share the limits of the same account
//! url_env = "TIDEGATE_SHARE_URL"  # the variable with the address of a Redis or Valkey server
//! name = "acme-prod"              # the same in all processes that share
//! # ca_file = "authority.pem"     # certificate authorities to trust; default: those of the system
//! # client_cert_file = "c.pem"    # the certificate of the process, if the server requires one
//! # client_key_file = "key.pem"   # its private key
//! on_loss = "share"               # when the others are lost: share, stop or alone
//!
//! [tenants]
//! by = "api_key"                  # or "header:x-tenant", or "none"; default: none
//! default_weight = 1.0            # of tenants that are not configured
//! require_known = true            # whether other tenants are rejected; default: false
//!
//! [[tenants.known]]
//! name = "people"
//! weight = 4.0                    # 0.001 to 1000
//! models = ["*-mini"]             # the models that it may call; needs `require_known`; default: all
//! key_env = "PEOPLE_KEY"          # with api_key only: the variable with its key; or `key_sha256`
//!
//! [queue]
//! max_waiting = 10_000            # the maximum number of waiting requests; more are answered 429
//! deadline = "5m"                 # the maximum wait; a client may request a shorter one
//! max_body = 33_554_432           # the maximum size of a request body, in bytes
//! max_bytes = 1_073_741_824       # of all requests whose response has not begun; more are answered 429
//!
//! [priority]                      # factors of the tenant weight
//! header = "x-tidegate-priority"  # high, normal or low
//! high = 4.0
//! normal = 1.0
//! low = 0.25
//!
//! [retry]
//! max_attempts = 8                # of one request, for all reasons; default: until the deadline
//! connection_errors = 3           # retries after a failed connection
//! server_errors = 0               # retries after a 5xx response, which may be charged twice
//! ```

mod access;
mod provider;
mod raw;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration as StdDuration;

use http::HeaderName;
use reqwest::Url;
use wildmatch::WildMatch;

use crate::app::config::document::Document;
use crate::app::config::schema::schema_text;
use crate::app::config::share::flag_settings;
use crate::app::config::source::{FileError, SourceText};
use crate::app::config::value::{Checked, Table, Text, WithSpan};
use crate::app::provider::key::is_name_of_key;
use crate::share::ShareSettings;

pub use access::{AccessConfig, ConnectionsConfig};
pub use provider::{ModelConfig, PassthroughRule, ProviderConfig};
use raw::{Address, Digest, RawPriority, RawProxy, RawQueue, RawRetry, RawTenant, RawTenants, Weight};

/// The default address of the client listener.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4180);

/// The configuration of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The address of the client listener.
    pub listen: SocketAddr,
    /// The address of a separate admin listener, if any.
    pub admin_listen: Option<SocketAddr>,
    /// The hosts and origins that are served besides those of this machine.
    pub access: AccessConfig,
    /// The limits and timeouts of connections.
    pub connections: ConnectionsConfig,
    /// How long calls in flight may take to end when the proxy stops \[30 s\].
    pub drain: StdDuration,
    /// Whether calls are paced to the rates that providers state in headers, where no budget is configured
    /// \[true\].
    pub rate_limit_headers: bool,
    /// The processes with which limits are shared \[they are not shared\].
    pub share: Option<ShareSettings>,
    /// The providers. A request goes to the first that serves its model. There is at least one.
    pub providers: Vec<ProviderConfig>,
    /// The tenants.
    pub tenants: TenantsConfig,
    /// The bounds of the queue.
    pub queue: QueueConfig,
    /// The weight factors of the priority levels.
    pub priority: PriorityConfig,
    /// The limits of retries.
    pub retry: RetryConfig,
}

/// How the tenant of a request is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantBy {
    /// All requests belong to one tenant.
    Nothing,
    /// By the bearer key in `Authorization`.
    ApiKey,
    /// By the value of a header.
    Header(HeaderName),
}

/// The table `[tenants]`.
#[derive(Clone, Debug)]
pub struct TenantsConfig {
    /// How tenants are distinguished \[not at all\].
    pub by: TenantBy,
    /// The weight of a tenant that is not configured \[1\].
    pub default_weight: f64,
    /// Whether tenants that are not configured are rejected \[false\].
    pub require_known: bool,
    /// The configured tenants.
    pub known: Vec<KnownTenant>,
}

/// A configured tenant.
#[derive(Clone, Debug)]
pub struct KnownTenant {
    /// The name of the tenant. With [`TenantBy::Header`], the value of the header.
    pub name: String,
    /// The weight of the tenant.
    pub weight: f64,
    /// Patterns of the models that it may call \[all\].
    pub models: Vec<WildMatch>,
    /// The SHA-256 of its key, with [`TenantBy::ApiKey`].
    pub key: Option<[u8; 32]>,
}

/// The table `[queue]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The maximum number of waiting requests \[10000\].
    pub max_waiting: u32,
    /// How long a request may wait, over all its attempts \[5 min\].
    pub deadline: StdDuration,
    /// The maximum size of a request body, in bytes \[32 MiB\].
    pub max_body: u32,
    /// The maximum size of all requests whose response has not begun, in bytes \[1 GiB\].
    pub max_bytes: u64,
}

/// The table `[priority]`: factors of the tenant weight.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityConfig {
    /// The header that contains the level.
    pub header: HeaderName,
    /// The factors of `high`, `normal` and `low` \[4, 1, 0.25\].
    pub factors: [f64; 3],
}

/// The table `[retry]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// The maximum number of attempts of a request, for all reasons. `None`: until the deadline \[None\].
    pub max_attempts: Option<NonZeroU32>,
    /// The number of retries after a failed connection, outages aside. 0 disables retries in outages, too
    /// \[3\].
    pub connection_errors: u32,
    /// The number of retries after a 5xx response, outages aside. 0 disables retries in outages, too \[0\].
    pub server_errors: u32,
}

impl Default for TenantsConfig {
    fn default() -> Self {
        Self { by: TenantBy::Nothing, default_weight: 1.0, require_known: false, known: Vec::new() }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { max_waiting: 10_000, deadline: StdDuration::from_mins(5), max_body: 32 << 20, max_bytes: 1 << 30 }
    }
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self { header: HeaderName::from_static("x-tidegate-priority"), factors: [4.0, 1.0, 0.25] }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_attempts: None, connection_errors: 3, server_errors: 0 }
    }
}

/// A function that returns the value of an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the JSON Schema of the file, for editors. It cannot express every rule: whether a variable is set,
/// for example, is checked only when the file is loaded.
#[must_use]
pub fn schema() -> String {
    schema_text::<RawProxy>("A proxy file of tidegate")
}

impl ProxyConfig {
    /// Returns a configuration with one provider at `base_url`, which serves every model and receives the
    /// keys of the clients, and defaults for the rest.
    #[must_use]
    pub fn upstream(base_url: Url) -> Self {
        let provider = ProviderConfig { forwards_client_key: true, ..ProviderConfig::at("upstream", base_url) };
        Self {
            listen: DEFAULT_LISTEN,
            admin_listen: None,
            access: AccessConfig::default(),
            connections: ConnectionsConfig::default(),
            drain: StdDuration::from_secs(30),
            rate_limit_headers: true,
            share: None,
            providers: vec![provider],
            tenants: TenantsConfig::default(),
            queue: QueueConfig::default(),
            priority: PriorityConfig::default(),
            retry: RetryConfig::default(),
        }
    }

    /// Reads the file at `path`. Keys are taken from the process environment. With `share_url`, limits are
    /// shared over that address, and the variable of `[share]` is not read.
    pub fn load(path: &Path, share_url: Option<&str>) -> Result<Self, FileError> {
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse_in(directory, &SourceText::read(path)?, share_url, &|name| std::env::var(name).ok())
    }

    /// Parses `source`, with keys from `environment`. Paths in it are relative to the working directory.
    pub fn parse(source: &SourceText, environment: Environment<'_>) -> Result<Self, FileError> {
        Self::parse_in(Path::new(""), source, None, environment)
    }

    fn parse_in(
        directory: &Path,
        source: &SourceText,
        share_url: Option<&str>,
        environment: Environment<'_>,
    ) -> Result<Self, FileError> {
        let file = Document::parse(source, "the proxy file")?;
        let raw: RawProxy = file.read_described()?;
        let Table(queue) = raw.queue;
        let Table(retry) = raw.retry;
        Ok(Self {
            listen: raw.listen.map_or(DEFAULT_LISTEN, |Checked(Address(address))| address),
            admin_listen: raw.admin_listen.map(|Checked(Address(address))| address),
            access: access::check_access(&file, raw.allowed_hosts, raw.allowed_origins)?,
            connections: match raw.connections {
                Some(Table(connections)) => access::check_connections(&file, &connections)?,
                None => ConnectionsConfig::default(),
            },
            drain: raw.drain.map_or(StdDuration::from_secs(30), |Checked(span)| span.into()),
            rate_limit_headers: raw.rate_limit_headers.unwrap_or(true),
            share: match (raw.share, share_url) {
                (None, url) => url.map(flag_settings),
                (Some(Table(share)), Some(url)) => Some(share.check(&file, directory)?.settings_at(url)),
                (Some(Table(share)), None) => Some(share.check(&file, directory)?.settings(source, environment)?),
            },
            providers: provider::check(&file, raw.providers, directory, environment)?,
            tenants: match raw.tenants {
                Some(Table(tenants)) => check_tenants(&file, tenants, environment)?,
                None => TenantsConfig::default(),
            },
            queue: check_queue(&file, &queue)?,
            priority: match raw.priority {
                Some(priority) => check_priority(&file, priority)?,
                None => PriorityConfig::default(),
            },
            retry: retry.into(),
        })
    }
}

/// Compiles patterns of models.
fn patterns(given: Vec<Text>) -> Vec<WildMatch> {
    given.into_iter().map(|Checked(pattern)| WildMatch::new(&pattern)).collect()
}

fn weight(given: Option<Checked<Weight>>, default: f64) -> f64 {
    given.map_or(default, |Checked(Weight(weight))| weight)
}

fn check_tenants(
    file: &Document<'_>,
    raw: RawTenants,
    environment: Environment<'_>,
) -> Result<TenantsConfig, FileError> {
    let by = match &raw.by {
        None => TenantBy::Nothing,
        Some(by) => check_by(file, by)?,
    };
    let mut known: Vec<KnownTenant> = Vec::new();
    for entry in raw.known {
        let RawTenant { name, .. } = &**entry.get();
        if known.iter().any(|other| other.name == name.get().0) {
            let message = format!("there are two tenants called `{}`", name.get().0);
            return Err(file.error(name.span(), message).expected("a name that no other tenant has"));
        }
        let key = check_tenant_key(file, &entry, &by, environment)?;
        if entry.get().models.is_some() && raw.require_known != Some(true) {
            let message = "`models` is given, and any client may call all models as a tenant that is not configured";
            return Err(file.error(entry.span(), message).expected("`require_known = true` in [tenants]"));
        }
        let Table(RawTenant { name, weight: given, models, .. }) = entry.into_inner();
        let models = models.map_or_else(|| vec![WildMatch::new("*")], patterns);
        known.push(KnownTenant { name: name.into_inner().0, weight: weight(given, 1.0), models, key });
    }
    let default_weight = weight(raw.default_weight, 1.0);
    Ok(TenantsConfig { by, default_weight, require_known: raw.require_known.unwrap_or(false), known })
}

fn check_by(file: &Document<'_>, by: &WithSpan<Text>) -> Result<TenantBy, FileError> {
    let Checked(text) = by.get();
    match tenant_by(text) {
        // Tenant names are shown on admin pages and in logs, so the header must not contain a key.
        Some(TenantBy::Header(name)) if is_name_of_key(name.as_str()) => Err(file
            .error(by.span(), format!("the header `{name}` holds a key, and the names of tenants are shown"))
            .expected("\"api_key\", which shows no key, or a header that holds none")),
        Some(by) => Ok(by),
        None => Err(file
            .wrong(by.span(), "\"none\", \"api_key\", or \"header:\" and the name of a header")
            .suggest(text, ["none", "api_key", "header:x-tenant"])),
    }
}

fn tenant_by(text: &str) -> Option<TenantBy> {
    match text {
        "none" => Some(TenantBy::Nothing),
        "api_key" => Some(TenantBy::ApiKey),
        other => other.strip_prefix("header:")?.parse().ok().map(TenantBy::Header),
    }
}

fn check_tenant_key(
    file: &Document<'_>,
    entry: &WithSpan<Table<RawTenant>>,
    by: &TenantBy,
    environment: Environment<'_>,
) -> Result<Option<[u8; 32]>, FileError> {
    let RawTenant { key_env, key_sha256, .. } = &**entry.get();
    if *by != TenantBy::ApiKey {
        let given = key_env.as_ref().map(WithSpan::span).or(key_sha256.as_ref().map(WithSpan::span));
        return match given {
            Some(span) => Err(file
                .error(span, "a key is given in [[tenants.known]], but tenants are not identified by key")
                .expected("`by = \"api_key\"` in [tenants], or no key")),
            None => Ok(None),
        };
    }
    match (key_env, key_sha256) {
        (Some(name), None) => key_from(file, name, environment).map(|key| Some(sha256(key.as_bytes()))),
        (None, Some(digest)) => {
            let Checked(Digest(digest)) = digest.get();
            Ok(Some(*digest))
        }
        (None, None) | (Some(_), Some(_)) => Err(file
            .error(entry.span(), "[[tenants.known]] must have exactly one key")
            .expected("either `key_env`, the variable that holds it, or `key_sha256`")),
    }
}

/// Returns the SHA-256 of a key.
pub(super) fn sha256(key: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, key);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Returns the value of the environment variable `name`.
fn key_from(file: &Document<'_>, name: &WithSpan<Text>, environment: Environment<'_>) -> Result<String, FileError> {
    let Checked(variable) = name.get();
    let value = environment(variable).map(|value| value.trim().to_string()).filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        file.error(name.span(), format!("the environment variable `{variable}` is not set"))
            .expected("a variable that holds a key")
    })
}

fn check_queue(file: &Document<'_>, raw: &RawQueue) -> Result<QueueConfig, FileError> {
    let defaults = QueueConfig::default();
    Ok(QueueConfig {
        max_waiting: raw.max_waiting.unwrap_or(defaults.max_waiting),
        deadline: file.positive(raw.deadline.as_ref())?.map_or(defaults.deadline, StdDuration::from),
        max_body: raw.max_body.map_or(defaults.max_body, NonZeroU32::get),
        max_bytes: raw.max_bytes.unwrap_or(defaults.max_bytes),
    })
}

fn check_priority(file: &Document<'_>, raw: WithSpan<Table<RawPriority>>) -> Result<PriorityConfig, FileError> {
    let defaults = PriorityConfig::default();
    let table = raw.span();
    let Table(RawPriority { header, high, normal, low }) = raw.into_inner();
    let [of_high, of_normal, of_low] = defaults.factors;
    let factors = [weight(high, of_high), weight(normal, of_normal), weight(low, of_low)];
    if !factors.is_sorted_by(|a, b| a >= b) {
        return Err(file
            .error(table, "the factors in [priority] are out of order")
            .expected("`high` at least `normal`, and `normal` at least `low`"));
    }
    Ok(PriorityConfig { header: header.map_or(defaults.header, |Checked(name)| name), factors })
}

impl From<RawRetry> for RetryConfig {
    fn from(raw: RawRetry) -> Self {
        let defaults = Self::default();
        Self {
            max_attempts: raw.max_attempts,
            connection_errors: raw.connection_errors.unwrap_or(defaults.connection_errors),
            server_errors: raw.server_errors.unwrap_or(defaults.server_errors),
        }
    }
}

#[cfg(test)]
mod tests;
