//! The proxy file as it is written: what serde reads, before anything is checked that needs more than one
//! key.
//!
//! The comments here are the descriptions of the JSON Schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use http::HeaderName;
use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;

use crate::app::config::budgets::RawBudgets;
use crate::app::config::limit::{LimitKeys, LimitName, RawAimd};
use crate::app::config::value::{At, FromValue, Is, Span, Table, Text};

/// What `tidegate proxy` is told. What a schema cannot say, such as whether a variable is set, the program
/// checks.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["providers"]))]
pub(super) struct RawProxy {
    /// Where clients call. Default: 127.0.0.1:4180
    pub(super) listen: Option<Is<Address>>,
    /// Where /healthz, /metrics and /why are. Default: on `listen` too
    pub(super) admin_listen: Option<Is<Address>>,
    /// Names in `Host`, without a port, that are served besides `localhost` and the address that was called
    #[serde(default)]
    pub(super) allowed_hosts: Vec<At<Text>>,
    /// Web pages that may call, with CORS headers, such as `https://app.example`. Default: those of this
    /// machine, without CORS headers
    #[serde(default)]
    pub(super) allowed_origins: Vec<At<Text>>,
    /// How many connections there may be, and how slow
    pub(super) connections: Option<Table<RawConnections>>,
    /// How long calls that are out may take to end when the proxy is stopped. Default: 30s
    pub(super) drain: Option<Span>,
    /// Keep to the rates that providers state in headers. Default: true
    pub(super) rate_limit_headers: Option<bool>,
    /// Who is called, in the order in which they are asked whether they serve a model
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) providers: Vec<At<Table<RawProvider>>>,
    /// For whom requests are
    pub(super) tenants: Option<Table<RawTenants>>,
    /// How long and how many may wait
    #[serde(default)]
    pub(super) queue: Table<RawQueue>,
    /// What the weight of a tenant is multiplied with
    pub(super) priority: Option<At<Table<RawPriority>>>,
    /// What is tried again
    #[serde(default)]
    pub(super) retry: Table<RawRetry>,
}

/// Who is called
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProvider {
    /// What it is called in labels
    pub(super) name: At<Text>,
    /// The base address of an OpenAI-compatible API: /v1/PATH goes to `BASE_URL/PATH`
    pub(super) base_url: At<Text>,
    /// The environment variable that holds the key. Default: no key is sent, unless `client_key` says so
    pub(super) api_key_env: Option<At<Text>>,
    /// What becomes of the clients' keys: `forward` sends them to this provider. Default: drop
    pub(super) client_key: Option<At<ClientKey>>,
    /// Whether keys may go over plain http to another machine. Default: false
    pub(super) allow_plain_http: Option<bool>,
    /// A file in PEM with the authorities that may sign its certificate. Default: those of the system
    pub(super) ca_file: Option<At<Text>>,
    /// Calls that are forwarded besides those of the usual API. Default: none
    #[serde(default)]
    pub(super) passthrough: Vec<At<Table<RawPassthrough>>>,
    /// Patterns of the models it serves: `*` is any text, `?` any character. Default: all
    pub(super) serves: Option<Vec<Text>>,
    /// The model id to send for one that clients say
    #[serde(default)]
    pub(super) rename: BTreeMap<String, Text>,
    /// The longest that the provider may be silent in a call. Default: 10m
    pub(super) timeout: Option<At<Span>>,
    /// The longest that a connection may take. Default: 10s
    pub(super) connect_timeout: Option<At<Span>>,
    /// Calls of one model in flight at most. Default: 64
    pub(super) max_parallel: Option<NonZeroU32>,
    /// What decides how many calls are in flight, up to `max_parallel`. Default: tide; aimd where there is an
    /// `aimd`
    pub(super) limit: Option<At<LimitName>>,
    /// Settings of AIMD, which they select; not beside another `limit`
    pub(super) aimd: Option<At<Table<RawAimd>>>,
    /// The longest pause after a 429 that does not say how long to wait. Default: 2s
    pub(super) cooldown: Option<At<Span>>,
    /// The longest pause after one 429, whatever it asks for. Default: 10m
    pub(super) max_cooldown: Option<At<Span>>,
    /// How long a cold server is met with fewer calls. Default: no ramp
    pub(super) ramp: Option<At<Span>>,
    /// How much may go out, for each model
    pub(super) budgets: Option<Table<RawBudgets>>,
    /// Models, and kinds of call of each, that are not named in `models`; more are refused. Default: 64
    pub(super) at_most_models: Option<u32>,
    /// What models have of their own; the rest is as the provider says
    #[serde(default)]
    pub(super) models: Vec<At<Table<RawProviderModel>>>,
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

/// What becomes of the keys of clients
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientKey {
    /// The provider gets them.
    Forward,
    /// The provider gets none.
    Drop,
}

/// Calls that are forwarded
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPassthrough {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE` or `HEAD`
    pub(super) methods: Vec<At<Text>>,
    /// The path under /v1, such as `/files`, or `/files/*` for every path that begins like that
    pub(super) path: At<Text>,
}

/// How many connections there may be, and how slow
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConnections {
    /// Connections that are open at most; more are answered 503. Default: 16384
    pub(super) max_connections: Option<NonZeroU32>,
    /// The maximum number of open connections of one client address, or of one IPv6 network of 64 bits; more
    /// are answered 429. Default: three quarters of `max_connections`
    pub(super) max_connections_per_address: Option<NonZeroU32>,
    /// The limit for idle time between two requests, and for receiving a request head. Default: 30s
    pub(super) header_timeout: Option<At<Span>>,
    /// How long a client may send nothing of its body. Default: 30s
    pub(super) body_timeout: Option<At<Span>>,
    /// How long a client may take nothing of its answer. Default: 2m
    pub(super) write_timeout: Option<At<Span>>,
    /// Bytes of the headers of a request; more are answered 431. Default: 32768
    #[schemars(range(max = 1_048_576))]
    pub(super) max_header_bytes: Option<At<NonZeroU32>>,
    /// Bytes of the path and query of a request; more are answered 414. Default: 8192
    #[schemars(range(max = 61_440))]
    pub(super) max_url_bytes: Option<At<NonZeroU32>>,
}

/// What one model has of its own
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProviderModel {
    /// The model id, as it is sent
    pub(super) name: Text,
    /// Calls in flight at most. Default: as the provider says
    pub(super) max_parallel: Option<NonZeroU32>,
    /// What decides how many calls are in flight. Default: as the provider says; aimd where there is an
    /// `aimd`
    pub(super) limit: Option<At<LimitName>>,
    /// Settings of AIMD, which they select; not beside another `limit`
    pub(super) aimd: Option<At<Table<RawAimd>>>,
    /// The longest pause after a 429 that does not say how long to wait. Default: as the provider says
    pub(super) cooldown: Option<At<Span>>,
    /// The longest pause after one 429, whatever it asks for. Default: as the provider says
    pub(super) max_cooldown: Option<At<Span>>,
    /// How long a cold server is met with fewer calls. Default: as the provider says
    pub(super) ramp: Option<At<Span>>,
    /// How much may go out. Default: as the provider says
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

/// How requests tell for whom they are
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenants {
    /// How tenants are told apart: `api_key`, `header:` and the name of a header, or none. Default: none
    #[schemars(extend("pattern" = "^(none|api_key|header:.+)$"))]
    pub(super) by: Option<At<Text>>,
    /// The weight of tenants that are not known. Default: 1
    pub(super) default_weight: Option<Is<Weight>>,
    /// Whether tenants that are not known are refused. Default: false
    pub(super) require_known: Option<bool>,
    /// Tenants with a name and a weight
    #[serde(default)]
    pub(super) known: Vec<At<Table<RawTenant>>>,
}

/// A tenant with a weight of its own
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    /// What it is called; by header, what the header says
    pub(super) name: At<Text>,
    /// Its share of whatever is contended. Default: 1
    pub(super) weight: Option<Is<Weight>>,
    /// By key only: the environment variable that holds its key
    pub(super) key_env: Option<At<Text>>,
    /// By key only: the SHA-256 of its key, in hexadecimal
    pub(super) key_sha256: Option<At<Is<Digest>>>,
}

/// How long and how many may wait
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQueue {
    /// Requests that wait at most; more are answered 429. Default: 10000
    pub(super) max_waiting: Option<u32>,
    /// How long a request may wait; a client may ask for less. Default: 5m
    pub(super) deadline: Option<At<Span>>,
    /// Bytes of a request. Default: 32 MiB
    pub(super) max_body: Option<NonZeroU32>,
    /// Bytes of all requests whose answers have not begun; more are answered 429. Default: 1 GiB
    pub(super) max_bytes: Option<u64>,
}

/// What the weight of a tenant is multiplied with
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPriority {
    /// The header that says `high`, `normal` or `low`. Default: x-tidegate-priority
    pub(super) header: Option<Is<HeaderName>>,
    /// For `high`, at least that for `normal`. Default: 4
    pub(super) high: Option<Is<Weight>>,
    /// For `normal`, at least that for `low`. Default: 1
    pub(super) normal: Option<Is<Weight>>,
    /// For `low`. Default: 0.25
    pub(super) low: Option<Is<Weight>>,
}

/// What is tried again
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetry {
    /// Attempts of one request, all reasons together. Default: until the deadline
    pub(super) max_attempts: Option<NonZeroU32>,
    /// Repeats after a connection that could not be made. Default: 3
    pub(super) connection_errors: Option<u32>,
    /// Repeats after a 5xx answer; they may be paid for twice. Default: 0
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

/// A weight, or a factor of one. Products of two stay within what the gate takes.
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
