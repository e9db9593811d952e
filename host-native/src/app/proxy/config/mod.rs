//! What a proxy is told: a TOML file, or one address and defaults.
//!
//! ```toml
//! listen = "127.0.0.1:4180"       # where clients call
//! admin_listen = "127.0.0.1:4181" # /healthz, /metrics and /why; default: on `listen` too
//! drain = "30s"                   # how long calls that are out may take to end when the proxy is stopped
//!
//! [[providers]]
//! name = "acme"
//! base_url = "https://host/v1"    # of an OpenAI-compatible API: /v1/PATH goes to BASE_URL/PATH
//! api_key_env = "ACME_KEY"        # the environment variable with the key; default: each client's own goes through
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

mod provider;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration as StdDuration;

use http::HeaderName;
use reqwest::Url;
use tidegate_core::time::Duration;
use toml::Spanned;
use toml::de::DeTable;

use super::headers::is_credential;
use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::config::reader::{FromToml, TableReader};

pub use provider::{ModelConfig, ProviderConfig};

/// Where a proxy listens unless it is told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4180);

/// Everything that a proxy is told.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Where clients call.
    pub listen: SocketAddr,
    /// Where the admin pages are, if not there.
    pub admin_listen: Option<SocketAddr>,
    /// How long calls that are out may take to end when the proxy is stopped \[30 s\].
    pub drain: StdDuration,
    /// Whether calls are paced to the rates that providers state in headers, where no budget is configured \[yes\].
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

const KEYS: &[&str] =
    &["listen", "admin_listen", "drain", "rate_limit_headers", "providers", "tenants", "queue", "priority", "retry"];

impl ProxyConfig {
    /// One provider at `base_url` that serves every model, and defaults for the rest.
    #[must_use]
    pub fn upstream(base_url: Url) -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            admin_listen: None,
            drain: StdDuration::from_secs(30),
            rate_limit_headers: true,
            providers: vec![ProviderConfig::at("upstream", base_url)],
            tenants: TenantsConfig::default(),
            queue: QueueConfig::default(),
            priority: PriorityConfig::default(),
            retry: RetryConfig::default(),
        }
    }

    /// Reads the file at `path`, with keys from the environment of the process.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::parse(&SourceText::read(path)?, &|name| std::env::var(name).ok())
    }

    /// Parses `source`, with keys from `environment`.
    pub fn parse(source: &SourceText, environment: Environment<'_>) -> Result<Self, FileError> {
        let document = DeTable::parse(source.text()).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            source.error(span, format!("this is not TOML: {}", error.message()))
        })?;
        let root = TableReader::open(source, "the proxy file", KEYS, document.get_ref(), 0..0)?;
        Ok(Self {
            listen: root.or("listen", Address(DEFAULT_LISTEN))?.0,
            admin_listen: root.optional::<Address>("admin_listen")?.map(|address| address.into_inner().0),
            drain: root.or("drain", Duration::from_secs(30))?.into(),
            rate_limit_headers: root.or("rate_limit_headers", true)?,
            providers: provider::parse(source, &root, environment)?,
            tenants: parse_tenants(source, &root, environment)?,
            queue: parse_queue(source, &root)?,
            priority: parse_priority(source, &root)?,
            retry: parse_retry(&root)?,
        })
    }
}

struct Address(SocketAddr);

impl FromToml for Address {
    const EXPECTED: &'static str = "an address and a port such as \"127.0.0.1:4180\"";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok().map(Self)
    }
}

/// A weight, or a factor of one. Products of two stay within what the gate takes.
struct Weight(f64);

impl FromToml for Weight {
    const EXPECTED: &'static str = "a number from 0.001 to 1000";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Self> {
        f64::from_toml(value).filter(|weight| (0.001..=1000.0).contains(weight)).map(Self)
    }
}

impl FromToml for HeaderName {
    const EXPECTED: &'static str = "the name of a header";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

/// A SHA-256 in hexadecimal.
struct Digest([u8; 32]);

impl FromToml for Digest {
    const EXPECTED: &'static str = "64 hexadecimal digits";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Self> {
        let text = value.as_str()?.as_bytes();
        let mut digest = [0; 32];
        if text.len() != 64 {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self(digest))
    }
}

const TENANTS: &str = "[tenants]";
const KNOWN: &str = "[[tenants.known]]";

fn parse_tenants(
    source: &SourceText,
    root: &TableReader<'_>,
    environment: Environment<'_>,
) -> Result<TenantsConfig, FileError> {
    let Some(table) = root.table("tenants", TENANTS, &["by", "default_weight", "require_known", "known"])? else {
        return Ok(TenantsConfig::default());
    };
    let by = match table.optional::<String>("by")? {
        None => TenantBy::Nothing,
        Some(by) => parse_by(source, &by)?,
    };
    let mut known: Vec<KnownTenant> = Vec::new();
    for entry in table.tables("known", KNOWN, &["name", "weight", "key_env", "key_sha256"])? {
        let name = entry.required::<String>("name")?;
        if known.iter().any(|other| other.name == *name.get_ref()) {
            let message = format!("there are two tenants called `{}`", name.get_ref());
            return Err(source.error(name.span(), message).expected("a name that no other tenant has"));
        }
        let key = parse_tenant_key(source, &entry, &by, environment)?;
        let Weight(weight) = entry.or("weight", Weight(1.0))?;
        known.push(KnownTenant { name: name.into_inner(), weight, key });
    }
    let Weight(default_weight) = table.or("default_weight", Weight(1.0))?;
    Ok(TenantsConfig { by, default_weight, require_known: table.or("require_known", false)?, known })
}

fn parse_by(source: &SourceText, by: &Spanned<String>) -> Result<TenantBy, FileError> {
    match tenant_by(by.get_ref()) {
        // What a header says is the name of a tenant, and names are shown.
        Some(TenantBy::Header(name)) if is_credential(&name) => Err(source
            .error(by.span(), format!("the header `{name}` holds a key, and the names of tenants are shown"))
            .expected("\"api_key\", which shows no key, or a header that holds none")),
        Some(by) => Ok(by),
        None => Err(source
            .error(by.span(), format!("`by` in {TENANTS} is the string {:?}", by.get_ref()))
            .expected("\"none\", \"api_key\", or \"header:\" and the name of a header")
            .suggest(by.get_ref(), ["none", "api_key", "header:x-tenant"])),
    }
}

fn tenant_by(text: &str) -> Option<TenantBy> {
    match text {
        "none" => Some(TenantBy::Nothing),
        "api_key" => Some(TenantBy::ApiKey),
        other => other.strip_prefix("header:")?.parse().ok().map(TenantBy::Header),
    }
}

fn parse_tenant_key(
    source: &SourceText,
    entry: &TableReader<'_>,
    by: &TenantBy,
    environment: Environment<'_>,
) -> Result<Option<[u8; 32]>, FileError> {
    let (env, sha256) = (entry.optional::<String>("key_env")?, entry.optional::<Digest>("key_sha256")?);
    if *by != TenantBy::ApiKey {
        let given = env.as_ref().map(Spanned::span).or(sha256.as_ref().map(Spanned::span));
        return match given {
            Some(span) => Err(source
                .error(span, format!("a key is given in {KNOWN}, but tenants are not told apart by key"))
                .expected("`by = \"api_key\"` in [tenants], or no key")),
            None => Ok(None),
        };
    }
    match (env, sha256) {
        (Some(env), None) => key_from(source, &env, environment).map(|key| Some(super::tenant::sha256(key.as_bytes()))),
        (None, Some(digest)) => Ok(Some(digest.into_inner().0)),
        (None, None) | (Some(_), Some(_)) => Err(source
            .error(entry.span(), format!("{KNOWN} says its key not once"))
            .expected("either `key_env`, the variable that holds it, or `key_sha256`")),
    }
}

/// The value of the environment variable that `name` names.
fn key_from(source: &SourceText, name: &Spanned<String>, environment: Environment<'_>) -> Result<String, FileError> {
    let value = environment(name.get_ref()).map(|value| value.trim().to_string()).filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        source
            .error(name.span(), format!("the environment variable `{}` is not set", name.get_ref()))
            .expected("a variable that holds a key")
    })
}

fn parse_queue(source: &SourceText, root: &TableReader<'_>) -> Result<QueueConfig, FileError> {
    let defaults = QueueConfig::default();
    let Some(table) = root.table("queue", "[queue]", &["max_waiting", "deadline", "max_body", "max_bytes"])? else {
        return Ok(defaults);
    };
    let deadline = positive(source, &table, "deadline")?;
    Ok(QueueConfig {
        max_waiting: table.or("max_waiting", defaults.max_waiting)?,
        deadline: deadline.unwrap_or(defaults.deadline),
        max_body: table.optional::<NonZeroU32>("max_body")?.map_or(defaults.max_body, |most| most.get_ref().get()),
        max_bytes: table.or("max_bytes", defaults.max_bytes)?,
    })
}

fn parse_priority(source: &SourceText, root: &TableReader<'_>) -> Result<PriorityConfig, FileError> {
    let defaults = PriorityConfig::default();
    let Some(table) = root.table("priority", "[priority]", &["header", "high", "normal", "low"])? else {
        return Ok(defaults);
    };
    let [high, normal, low] = defaults.factors;
    let factors =
        [table.or("high", Weight(high))?.0, table.or("normal", Weight(normal))?.0, table.or("low", Weight(low))?.0];
    if !factors.is_sorted_by(|a, b| a >= b) {
        return Err(source
            .error(table.span(), "the factors in [priority] are out of order")
            .expected("`high` at least `normal`, and `normal` at least `low`"));
    }
    Ok(PriorityConfig { header: table.or("header", defaults.header)?, factors })
}

fn parse_retry(root: &TableReader<'_>) -> Result<RetryConfig, FileError> {
    let defaults = RetryConfig::default();
    let Some(table) = root.table("retry", "[retry]", &["max_attempts", "connection_errors", "server_errors"])? else {
        return Ok(defaults);
    };
    Ok(RetryConfig {
        max_attempts: table.optional("max_attempts")?.map(Spanned::into_inner),
        connection_errors: table.or("connection_errors", defaults.connection_errors)?,
        server_errors: table.or("server_errors", defaults.server_errors)?,
    })
}

/// A duration that is more than none.
fn positive(source: &SourceText, table: &TableReader<'_>, key: &'static str) -> Result<Option<StdDuration>, FileError> {
    let Some(span) = table.optional::<Duration>(key)? else { return Ok(None) };
    if span.get_ref().is_zero() {
        let message = format!("`{key}` in {} is no time at all", table.title());
        return Err(source.error(span.span(), message).expected("more than 0"));
    }
    Ok(Some(span.into_inner().into()))
}

#[cfg(test)]
mod tests;
