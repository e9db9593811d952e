//! The proxy file as serde reads it, before the checks that need more than one key.
//!
//! The comments on types and fields are the descriptions in the JSON Schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use http::HeaderName;
use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;

use crate::app::config::budgets::RawBudgets;
use crate::app::config::limit::{LimitKeys, LimitName, RawAimd};
use crate::app::config::share::RawShare;
use crate::app::config::value::{Checked, DurationText, FromValue, Table, Text, WithSpan};

/// The configuration of `tidegate proxy`. The program also checks rules that a schema cannot express, such as
/// whether a variable is set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["providers"]))]
pub(super) struct RawProxy {
    /// The address of the client listener. Default: 127.0.0.1:4180
    pub(super) listen: Option<Checked<Address>>,
    /// The address of a separate listener for /healthz, /metrics and /why. Default: `listen`
    pub(super) admin_listen: Option<Checked<Address>>,
    /// Values of `Host`, without a port, that are served besides `localhost` and the called address
    #[serde(default)]
    pub(super) allowed_hosts: Vec<WithSpan<Text>>,
    /// Origins of web pages that may call, such as `https://app.example`. They get CORS headers. Default:
    /// none but the origin of the proxy itself
    #[serde(default)]
    pub(super) allowed_origins: Vec<WithSpan<Text>>,
    /// The limits of connections
    pub(super) connections: Option<Table<RawConnections>>,
    /// How long calls in flight may take to end when the proxy stops. Default: 30s
    pub(super) drain: Option<DurationText>,
    /// Whether calls keep to the rates that providers state in headers. Default: true
    pub(super) rate_limit_headers: Option<bool>,
    /// The processes with which limits are shared. Default: they are not shared
    pub(super) share: Option<Table<RawShare>>,
    /// The providers. A request goes to the first one that serves its model
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) providers: Vec<WithSpan<Table<RawProvider>>>,
    /// How the tenants of requests are identified, and their weights
    pub(super) tenants: Option<Table<RawTenants>>,
    /// The limits of the queue
    #[serde(default)]
    pub(super) queue: Table<RawQueue>,
    /// Factors of the weight of a tenant, by priority
    pub(super) priority: Option<WithSpan<Table<RawPriority>>>,
    /// The limits of retries
    #[serde(default)]
    pub(super) retry: Table<RawRetry>,
}

/// A provider
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProvider {
    /// The name of the provider, also in labels and for `x-tidegate-provider`
    pub(super) name: WithSpan<Text>,
    /// The base URL of an OpenAI-compatible API: /v1/PATH is sent to `BASE_URL/PATH`
    pub(super) base_url: WithSpan<Text>,
    /// The environment variable that contains the key. Default: no key of the proxy
    pub(super) api_key_env: Option<WithSpan<Text>>,
    /// Whether the keys of clients are sent to this provider: `forward` or `drop`. Default: drop
    pub(super) client_key: Option<WithSpan<ClientKey>>,
    /// Whether keys may be sent over plain http to another machine. Default: false
    pub(super) allow_plain_http: Option<bool>,
    /// A PEM file with the certificate authorities to trust. Default: those of the system
    pub(super) ca_file: Option<WithSpan<Text>>,
    /// Calls that are forwarded besides those of the usual API. Default: none
    #[serde(default)]
    pub(super) passthrough: Vec<WithSpan<Table<RawPassthrough>>>,
    /// Patterns of the models that it serves: `*` matches any text, `?` one character. Default: all
    pub(super) serves: Option<Vec<Text>>,
    /// The model ids to send for ids that clients use
    #[serde(default)]
    pub(super) rename: BTreeMap<String, Text>,
    /// Whether the proxy asks for the usage of a stream if the client does not:
    /// `stream_options.include_usage`. Default: true
    pub(super) stream_usage: Option<bool>,
    /// The read timeout of a call. Default: 10m
    pub(super) timeout: Option<WithSpan<DurationText>>,
    /// The connect timeout. Default: 10s
    pub(super) connect_timeout: Option<WithSpan<DurationText>>,
    /// The maximum number of calls in flight for each model. Default: 64
    pub(super) max_parallel: Option<NonZeroU32>,
    /// The algorithm that limits the calls in flight, up to `max_parallel`. Default: tide, or aimd if `aimd`
    /// is given
    pub(super) limit: Option<WithSpan<LimitName>>,
    /// Settings of AIMD. They select it, and are rejected beside another `limit`
    pub(super) aimd: Option<WithSpan<Table<RawAimd>>>,
    /// The longest pause after a 429 without Retry-After. Default: 2s
    pub(super) cooldown: Option<WithSpan<DurationText>>,
    /// The longest pause after a 429, also if its Retry-After is longer. Default: 10m
    pub(super) max_cooldown: Option<WithSpan<DurationText>>,
    /// How long the limit rises after the first call, for servers that start slowly. Default: no ramp
    pub(super) ramp: Option<WithSpan<DurationText>>,
    /// Rate budgets of each model
    pub(super) budgets: Option<Table<RawBudgets>>,
    /// The maximum number of models and kinds of call that are not in `models`; more are answered 404.
    /// Default: 64
    pub(super) at_most_models: Option<u32>,
    /// Settings of single models; the others are those of the provider
    #[serde(default)]
    pub(super) models: Vec<WithSpan<Table<RawProviderModel>>>,
}

impl RawProvider {
    pub(super) fn limit_keys(&self) -> LimitKeys<'_> {
        LimitKeys {
            limit: self.limit.as_ref(),
            aimd: self.aimd.as_ref(),
            cooldown: self.cooldown.as_ref(),
            max_cooldown: self.max_cooldown.as_ref(),
            ramp: self.ramp.as_ref(),
        }
    }
}

/// Whether the keys of clients are forwarded
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientKey {
    /// They are sent to the provider.
    Forward,
    /// They are not sent.
    Drop,
}

/// Calls that are forwarded in addition
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPassthrough {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE` or `HEAD`
    pub(super) methods: Vec<WithSpan<Text>>,
    /// The path under /v1, such as `/files`, or `/files/*` for every path below it
    pub(super) path: WithSpan<Text>,
}

/// The limits of connections
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConnections {
    /// The maximum number of open connections; more are answered 503. Default: 16384
    pub(super) max_connections: Option<NonZeroU32>,
    /// The maximum number of open connections of one client address, or of one IPv6 network of 64 bits; more
    /// are answered 429. Default: three quarters of `max_connections`
    pub(super) max_connections_per_address: Option<NonZeroU32>,
    /// The limit for idle time between two requests, and for receiving a request head. Default: 30s
    pub(super) header_timeout: Option<WithSpan<DurationText>>,
    /// The limit between two chunks of a request body. Default: 30s
    pub(super) body_timeout: Option<WithSpan<DurationText>>,
    /// The limit for a write of a response without progress. Default: 2m
    pub(super) write_timeout: Option<WithSpan<DurationText>>,
    /// The maximum size of the headers of a request, in bytes; more are answered 431. Default: 32768
    #[schemars(range(max = 1_048_576))]
    pub(super) max_header_bytes: Option<WithSpan<NonZeroU32>>,
    /// The maximum size of path and query, in bytes; more are answered 414. Default: 8192
    #[schemars(range(max = 61_440))]
    pub(super) max_url_bytes: Option<WithSpan<NonZeroU32>>,
}

/// The settings of one model
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProviderModel {
    /// The model id as it is sent to the provider
    pub(super) name: Text,
    /// The maximum number of calls in flight. Default: that of the provider
    pub(super) max_parallel: Option<NonZeroU32>,
    /// The algorithm that limits the calls in flight. Default: that of the provider, or aimd if `aimd` is
    /// given
    pub(super) limit: Option<WithSpan<LimitName>>,
    /// Settings of AIMD. They select it, and are rejected beside another `limit`
    pub(super) aimd: Option<WithSpan<Table<RawAimd>>>,
    /// The longest pause after a 429 without Retry-After. Default: that of the provider
    pub(super) cooldown: Option<WithSpan<DurationText>>,
    /// The longest pause after a 429, also if its Retry-After is longer. Default: that of the provider
    pub(super) max_cooldown: Option<WithSpan<DurationText>>,
    /// How long the limit rises after the first call, for servers that start slowly. Default: that of the
    /// provider
    pub(super) ramp: Option<WithSpan<DurationText>>,
    /// Rate budgets. Default: those of the provider
    pub(super) budgets: Option<Table<RawBudgets>>,
}

impl RawProviderModel {
    pub(super) fn limit_keys(&self) -> LimitKeys<'_> {
        LimitKeys {
            limit: self.limit.as_ref(),
            aimd: self.aimd.as_ref(),
            cooldown: self.cooldown.as_ref(),
            max_cooldown: self.max_cooldown.as_ref(),
            ramp: self.ramp.as_ref(),
        }
    }
}

/// How the tenants of requests are identified, and their weights
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenants {
    /// How tenants are identified: `none`, `api_key`, or `header:` and the name of a header. Default: none
    #[schemars(extend("pattern" = "^(none|api_key|header:.+)$"))]
    pub(super) by: Option<WithSpan<Text>>,
    /// The weight of tenants that are not configured. Default: 1
    pub(super) default_weight: Option<Checked<Weight>>,
    /// Whether tenants that are not configured are answered 401. Default: false
    pub(super) require_known: Option<bool>,
    /// The configured tenants
    #[serde(default)]
    pub(super) known: Vec<WithSpan<Table<RawTenant>>>,
}

/// A configured tenant
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    /// The name of the tenant. With `header:NAME`, the value of that header
    pub(super) name: WithSpan<Text>,
    /// The weight of the tenant: its share relative to others. Default: 1
    pub(super) weight: Option<Checked<Weight>>,
    /// Patterns of the models that the tenant may call: `*` matches any text, `?` one character. Default: all
    pub(super) models: Option<Vec<Text>>,
    /// With `api_key` only: the environment variable that contains its key
    pub(super) key_env: Option<WithSpan<Text>>,
    /// With `api_key` only: the SHA-256 of its key, in hexadecimal
    pub(super) key_sha256: Option<WithSpan<Checked<Digest>>>,
}

/// The limits of the queue
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQueue {
    /// The maximum number of waiting requests; more are answered 429. Default: 10000
    pub(super) max_waiting: Option<u32>,
    /// How long a request may wait, over all its attempts; a client may request less. Default: 5m
    pub(super) deadline: Option<WithSpan<DurationText>>,
    /// The maximum size of a request body, in bytes; longer ones are answered 413. Default: 33554432
    pub(super) max_body: Option<NonZeroU32>,
    /// The maximum size of all requests whose response has not begun, in bytes; more are answered 429.
    /// Default: 1073741824
    pub(super) max_bytes: Option<u64>,
}

/// Factors of the weight of a tenant, by priority
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPriority {
    /// The header that contains `high`, `normal` or `low`. Default: x-tidegate-priority
    pub(super) header: Option<Checked<HeaderName>>,
    /// The factor of `high`, at least that of `normal`. Default: 4
    pub(super) high: Option<Checked<Weight>>,
    /// The factor of `normal`, at least that of `low`. Default: 1
    pub(super) normal: Option<Checked<Weight>>,
    /// The factor of `low`. Default: 0.25
    pub(super) low: Option<Checked<Weight>>,
}

/// The limits of retries
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetry {
    /// The maximum number of attempts of one request, for all reasons. Default: until the deadline
    pub(super) max_attempts: Option<NonZeroU32>,
    /// The maximum number of retries after a failed connection, outages aside; 0 disables them in outages,
    /// too. Default: 3
    pub(super) connection_errors: Option<u32>,
    /// The same after a 5xx response; the provider may charge each attempt. Default: 0
    pub(super) server_errors: Option<u32>,
}

/// An address and a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub(super) SocketAddr);

impl FromValue for Address {
    const EXPECTED: &'static str = "an address and a port such as \"127.0.0.1:4180\"";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": ":[0-9]+$" })
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

/// A weight, or a factor of one. The product of two is within the range of the gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight(pub(super) f64);

impl FromValue for Weight {
    const EXPECTED: &'static str = "a number from 0.001 to 1000";

    fn schema() -> Schema {
        json_schema!({ "type": "number", "minimum": 0.001, "maximum": 1000 })
    }

    fn from_float(weight: f64) -> Option<Self> {
        (0.001..=1000.0).contains(&weight).then_some(Self(weight))
    }
}

impl FromValue for HeaderName {
    const EXPECTED: &'static str = "the name of a header";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A SHA-256 in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest(pub(super) [u8; 32]);

impl FromValue for Digest {
    const EXPECTED: &'static str = "64 hexadecimal digits";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" })
    }

    fn from_text(text: &str) -> Option<Self> {
        let text = text.as_bytes();
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
