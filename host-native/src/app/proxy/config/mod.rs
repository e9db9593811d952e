//! What a proxy is told: a TOML file, or one address and defaults.
//!
//! ```toml
//! listen = "127.0.0.1:4180"       # where clients call
//! admin_listen = "127.0.0.1:4181" # /healthz, /metrics and /why; default: on `listen` too
//! allowed_hosts = ["llm.example"] # names in `Host` that are served besides `localhost` and the address that was called
//! allowed_origins = ["https://app.example"]   # web pages that may call, with CORS headers; default: those of this machine
//! drain = "30s"                   # how long calls that are out may take to end when the proxy is stopped
//!
//! [[providers]]
//! name = "acme"
//! base_url = "https://host/v1"    # of an OpenAI-compatible API: /v1/PATH goes to BASE_URL/PATH
//! api_key_env = "ACME_KEY"        # the environment variable with the key; or `client_key = "forward"`; default: no key is sent
//! # ca_file = "authority.pem"     # the authorities that may sign its certificate; default: those of the system
//! passthrough = [{ methods = ["GET"], path = "/batches/*" }]   # calls that are forwarded besides those of the usual API
//! serves = ["gpt-*", "o?-mini"]   # models, `*` any text and `?` any character; the first provider that fits; default: all
//! rename = { small = "gpt-4o-mini" }      # the model id to send for one that clients say
//! timeout = "10m"                 # the longest that the provider may be silent in a call
//! connect_timeout = "10s"
//! max_parallel = 64               # calls of one model in flight at most; default: 64
//! limit = "tide"                  # what decides how many are in flight: tide, aimd, vegas or fixed; default: tide
//! cooldown = "1s"                 # as in a pipeline file; `max_cooldown`, `ramp` and, for AIMD, `aimd` too
//! budgets = { requests_per_minute = 500, tokens_per_minute = 200_000 }
//! at_most_models = 64             # models, and kinds of call of each, that are not named below; more are refused
//!
//! [[providers.models]]            # what one model has of its own; the rest is as the provider says
//! name = "gpt-4o"
//! max_parallel = 16               # also `limit`, `aimd`, `budgets`
//!
//! [connections]
//! max_connections = 16_384        # more are answered 503
//! header_timeout = "30s"          # how long one may be idle, and the head of a request may take
//! body_timeout = "30s"            # how long a client may send nothing of its body
//! write_timeout = "2m"            # how long a client may take nothing of its answer
//! max_header_bytes = 32_768       # of a request; more are answered 431
//! max_url_bytes = 8_192           # more are answered 414
//!
//! [tenants]
//! by = "api_key"                  # or "header:x-tenant", or "none"; default: none
//! default_weight = 1.0            # of tenants that are not known
//! require_known = false           # refuse the others
//!
//! [[tenants.known]]
//! name = "people"
//! weight = 4.0                    # its share of whatever is contended, 0.001 to 1000
//! key_env = "PEOPLE_KEY"          # by api_key only: the variable that holds its key; or `key_sha256`, in hexadecimal
//!
//! [queue]
//! max_waiting = 10_000            # requests that wait at most; more are answered 429
//! deadline = "5m"                 # how long a request may wait; a client may ask for less
//! max_body = 33_554_432           # bytes of a request
//! max_bytes = 1_073_741_824       # bytes of all requests whose answers have not begun; more are answered 429
//!
//! [priority]                      # what the weight of a tenant is multiplied with
//! header = "x-tidegate-priority"  # high, normal or low
//! high = 4.0
//! normal = 1.0
//! low = 0.25
//!
//! [retry]
//! max_attempts = 8                # of one request, all reasons together; default: until the deadline
//! connection_errors = 3           # repeats after a connection that could not be made
//! server_errors = 0               # repeats after a 5xx answer; they may be paid for twice
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

use super::headers::is_credential;
use crate::app::config::document::Document;
use crate::app::config::schema::schema_text;
use crate::app::config::source::{FileError, SourceText};
use crate::app::config::value::{At, Is, Table, Text};

pub use access::{AccessConfig, ConnectionsConfig};
pub(super) use provider::is_plain_and_far;
pub use provider::{ModelConfig, PassthroughRule, ProviderConfig};
use raw::{Address, Digest, RawPriority, RawProxy, RawQueue, RawRetry, RawTenant, RawTenants, Weight};

/// Where a proxy listens unless it is told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4180);

/// Everything that a proxy is told.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Where clients call.
    pub listen: SocketAddr,
    /// Where the admin pages are, if not there.
    pub admin_listen: Option<SocketAddr>,
    /// Which hosts and origins are served besides those of this machine.
    pub access: AccessConfig,
    /// How many connections there may be, and how slow.
    pub connections: ConnectionsConfig,
    /// How long calls that are out may take to end when the proxy is stopped \[30 s\].
    pub drain: StdDuration,
    /// Whether calls are paced to the rates that providers state in headers, where no budget is configured
    /// \[yes\].
    pub rate_limit_headers: bool,
    /// Who is called, in the order in which they are asked whether they serve a model; at least one.
    pub providers: Vec<ProviderConfig>,
    /// For whom.
    pub tenants: TenantsConfig,
    /// How long and how many may wait.
    pub queue: QueueConfig,
    /// What urgency is worth.
    pub priority: PriorityConfig,
    /// What is tried again.
    pub retry: RetryConfig,
}

/// How requests tell for whom they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantBy {
    /// They do not: all are one tenant.
    Nothing,
    /// By the key in `Authorization`.
    ApiKey,
    /// By a header.
    Header(HeaderName),
}

/// The table `[tenants]`.
#[derive(Clone, Debug)]
pub struct TenantsConfig {
    /// How they are told apart \[not at all\].
    pub by: TenantBy,
    /// The weight of a tenant that is not known \[1\].
    pub default_weight: f64,
    /// Whether tenants that are not known are refused \[no\].
    pub require_known: bool,
    /// Those with a name and a weight.
    pub known: Vec<KnownTenant>,
}

/// A tenant with a weight of its own.
#[derive(Clone, Debug)]
pub struct KnownTenant {
    /// What it is called; by header, what the header says.
    pub name: String,
    /// Its share.
    pub weight: f64,
    /// The SHA-256 of its key, if tenants are told apart by key.
    pub key: Option<[u8; 32]>,
}

/// The table `[queue]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Requests that wait at most \[10000\].
    pub max_waiting: u32,
    /// How long one may wait for its turn, all its attempts together \[5 min\].
    pub deadline: StdDuration,
    /// Bytes of a request at most \[32 MiB\].
    pub max_body: u32,
    /// Bytes of all requests that wait or are being sent \[1 GiB\].
    pub max_bytes: u64,
}

/// The table `[priority]`: what the weight of a tenant is multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityConfig {
    /// The header that says which.
    pub header: HeaderName,
    /// For `high`, `normal` and `low` \[4, 1, 0.25\].
    pub factors: [f64; 3],
}

/// The table `[retry]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Attempts of one request, all reasons together; none is no bound but the deadline \[none\].
    pub max_attempts: Option<NonZeroU32>,
    /// Repeats after a connection that could not be made, outages aside; 0 is none in an outage either \[3\].
    pub connection_errors: u32,
    /// Repeats after an answer of 5xx, outages aside; 0 is none in an outage either \[0\].
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

/// Looks a name up in the environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the JSON Schema of the file, for editors. What it cannot say, such as whether a variable is set,
/// only the program checks.
#[must_use]
pub fn schema() -> String {
    schema_text::<RawProxy>("A proxy file of tidegate")
}

impl ProxyConfig {
    /// One provider at `base_url` that serves every model and gets the keys of the clients, and defaults for the
    /// rest.
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
            providers: vec![provider],
            tenants: TenantsConfig::default(),
            queue: QueueConfig::default(),
            priority: PriorityConfig::default(),
            retry: RetryConfig::default(),
        }
    }

    /// Reads the file at `path`, with keys from the environment of the process.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse_in(directory, &SourceText::read(path)?, &|name| std::env::var(name).ok())
    }

    /// Parses `source`, with keys from `environment`. Files that it names are in the working directory.
    pub fn parse(source: &SourceText, environment: Environment<'_>) -> Result<Self, FileError> {
        Self::parse_in(Path::new(""), source, environment)
    }

    fn parse_in(directory: &Path, source: &SourceText, environment: Environment<'_>) -> Result<Self, FileError> {
        let file = Document::parse(source, "the proxy file")?;
        let raw: RawProxy = file.read_described()?;
        let Table(queue) = raw.queue;
        let Table(retry) = raw.retry;
        Ok(Self {
            listen: raw.listen.map_or(DEFAULT_LISTEN, |Is(Address(address))| address),
            admin_listen: raw.admin_listen.map(|Is(Address(address))| address),
            access: access::check_access(&file, raw.allowed_hosts, raw.allowed_origins)?,
            connections: match raw.connections {
                Some(Table(connections)) => access::check_connections(&file, &connections)?,
                None => ConnectionsConfig::default(),
            },
            drain: raw.drain.map_or(StdDuration::from_secs(30), |Is(span)| span.into()),
            rate_limit_headers: raw.rate_limit_headers.unwrap_or(true),
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

fn weight(given: Option<Is<Weight>>, default: f64) -> f64 {
    given.map_or(default, |Is(Weight(weight))| weight)
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
        let Table(RawTenant { name, weight: given, .. }) = entry.into_inner();
        known.push(KnownTenant { name: name.into_inner().0, weight: weight(given, 1.0), key });
    }
    let default_weight = weight(raw.default_weight, 1.0);
    Ok(TenantsConfig { by, default_weight, require_known: raw.require_known.unwrap_or(false), known })
}

fn check_by(file: &Document<'_>, by: &At<Text>) -> Result<TenantBy, FileError> {
    let Is(text) = by.get();
    match tenant_by(text) {
        // What a header says is the name of a tenant, and names are shown.
        Some(TenantBy::Header(name)) if is_credential(&name) => Err(file
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
    entry: &At<Table<RawTenant>>,
    by: &TenantBy,
    environment: Environment<'_>,
) -> Result<Option<[u8; 32]>, FileError> {
    let RawTenant { key_env, key_sha256, .. } = &**entry.get();
    if *by != TenantBy::ApiKey {
        let given = key_env.as_ref().map(At::span).or(key_sha256.as_ref().map(At::span));
        return match given {
            Some(span) => Err(file
                .error(span, "a key is given in [[tenants.known]], but tenants are not told apart by key")
                .expected("`by = \"api_key\"` in [tenants], or no key")),
            None => Ok(None),
        };
    }
    match (key_env, key_sha256) {
        (Some(name), None) => key_from(file, name, environment).map(|key| Some(super::tenant::sha256(key.as_bytes()))),
        (None, Some(digest)) => {
            let Is(Digest(digest)) = digest.get();
            Ok(Some(*digest))
        }
        (None, None) | (Some(_), Some(_)) => Err(file
            .error(entry.span(), "[[tenants.known]] says its key not once")
            .expected("either `key_env`, the variable that holds it, or `key_sha256`")),
    }
}

/// The value of the environment variable that `name` names.
fn key_from(file: &Document<'_>, name: &At<Text>, environment: Environment<'_>) -> Result<String, FileError> {
    let Is(variable) = name.get();
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

fn check_priority(file: &Document<'_>, raw: At<Table<RawPriority>>) -> Result<PriorityConfig, FileError> {
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
    Ok(PriorityConfig { header: header.map_or(defaults.header, |Is(name)| name), factors })
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
