//! What the proxy says itself, in the form of the API's errors.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use serde_json::json;

use super::ReplyBody;
use tidegate_core::request::UnavailableCause;
use tidegate_core::request::response::RETRY_AFTER_MS;

/// Why a request gets no answer of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProxyError {
    /// There is no such address here.
    NoSuchAddress,
    /// The request does not say for which host it is, or says it twice.
    BadHost,
    /// It is for a host that is not the proxy.
    ForeignHost { host: String, local: SocketAddr },
    /// It comes from a page of another site.
    ForeignOrigin { origin: String },
    /// The same, and the browser did not say which.
    ForeignSite { site: String },
    /// It is for a call that no provider gets.
    NotServed,
    /// It is for a call that is served, by another method.
    BadMethod { allow: String },
    /// Its path and query are longer than allowed.
    UrlTooLong { most: u32 },
    /// Its headers are.
    HeadersTooLarge { most: u32 },
    /// Its body is of a type that is not read there.
    BadType { found: String, expected: &'static str },
    /// It has a body where there is none.
    UnexpectedBody,
    /// Its body comes too slowly.
    SlowBody,
    /// As many connections are open as may be.
    TooManyConnections,
    /// The request is longer than allowed.
    TooLarge { most: u32 },
    /// Its body did not come through.
    BrokenBody,
    /// Its body is no JSON, or may be read in two ways.
    BadJson { why: String },
    /// Its body is no form, or may be read in two ways.
    BadForm { why: String },
    /// A header of the proxy's own says nonsense.
    BadHeader { name: &'static str, expected: &'static str },
    /// Tenants must be known, and this one is not.
    UnknownTenant,
    /// No provider serves the model, or too many models were asked for.
    UnknownModel { model: String },
    /// No provider has this name.
    UnknownProvider,
    /// As many wait as may.
    QueueFull { waiting: u32, retry_after: Duration },
    /// The requests that are here already are as large as they may be.
    TooMuchHeld { held: u64, retry_after: Duration },
    /// Its deadline passed while it waited.
    Deadline { waited: Duration, why: String, attempts: u32 },
    /// Its deadline passed while its provider was down.
    Outage { provider: String, waited: Duration, retry_after: Option<Duration> },
    /// Its provider or model cannot be used for now.
    Unavailable { provider: String, cause: UnavailableCause, retry_after: Option<Duration> },
    /// The proxy is about to stop.
    ShuttingDown,
    /// The provider could not be reached, or broke off.
    Unreachable { provider: String },
    /// The provider did not answer in time.
    ProviderTimeout { provider: String },
    /// The provider refused the key that the proxy sends.
    ProviderKey { provider: String },
    /// The provider asks for a key, and is sent none.
    NoProviderKey { provider: String },
    /// The provider refused the key of the client.
    ClientKey { provider: String },
    /// The provider does not allow the call.
    Forbidden { provider: String },
    /// The provider's answer is encoded so that it cannot be read.
    Encoded { provider: String },
}

impl ProxyError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchAddress | Self::NotServed | Self::UnknownModel { .. } | Self::UnknownProvider => {
                StatusCode::NOT_FOUND
            }
            Self::ForeignHost { .. }
            | Self::ForeignOrigin { .. }
            | Self::ForeignSite { .. }
            | Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::BadMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UrlTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::BadType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::HeadersTooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BadHost
            | Self::BrokenBody
            | Self::UnexpectedBody
            | Self::BadJson { .. }
            | Self::BadForm { .. }
            | Self::BadHeader { .. } => StatusCode::BAD_REQUEST,
            Self::UnknownTenant | Self::ClientKey { .. } => StatusCode::UNAUTHORIZED,
            Self::QueueFull { .. } | Self::TooMuchHeld { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Deadline { .. }
            | Self::Outage { .. }
            | Self::Unavailable { .. }
            | Self::TooManyConnections
            | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable { .. } | Self::ProviderKey { .. } | Self::NoProviderKey { .. } | Self::Encoded { .. } => {
                StatusCode::BAD_GATEWAY
            }
            Self::ProviderTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The `code` of the error, which programs may tell apart.
    fn code(&self) -> &'static str {
        match self {
            Self::NoSuchAddress => "tidegate_no_such_address",
            Self::TooLarge { .. } => "tidegate_too_large",
            Self::BadHost => "tidegate_bad_host",
            Self::ForeignHost { .. } => "tidegate_foreign_host",
            Self::ForeignOrigin { .. } | Self::ForeignSite { .. } => "tidegate_foreign_origin",
            Self::NotServed => "tidegate_not_served",
            Self::BadMethod { .. } => "tidegate_bad_method",
            Self::UrlTooLong { .. } => "tidegate_url_too_long",
            Self::HeadersTooLarge { .. } => "tidegate_headers_too_large",
            Self::BadType { .. } => "tidegate_bad_type",
            Self::UnexpectedBody => "tidegate_unexpected_body",
            Self::SlowBody => "tidegate_slow_body",
            Self::TooManyConnections => "tidegate_too_many_connections",
            Self::BrokenBody => "tidegate_broken_body",
            Self::BadJson { .. } => "tidegate_bad_json",
            Self::BadForm { .. } => "tidegate_bad_form",
            Self::BadHeader { .. } => "tidegate_bad_header",
            Self::UnknownTenant => "tidegate_unknown_tenant",
            Self::UnknownModel { .. } => "model_not_found",
            Self::UnknownProvider => "tidegate_unknown_provider",
            Self::QueueFull { .. } | Self::TooMuchHeld { .. } => "tidegate_queue_full",
            Self::Deadline { .. } => "tidegate_deadline",
            Self::Outage { .. } => "tidegate_outage",
            Self::Unavailable { .. } => "tidegate_unavailable",
            Self::ShuttingDown => "tidegate_shutting_down",
            Self::Unreachable { .. } => "tidegate_provider_unreachable",
            Self::ProviderTimeout { .. } => "tidegate_provider_timeout",
            Self::ProviderKey { .. } | Self::NoProviderKey { .. } => "tidegate_provider_key",
            Self::ClientKey { .. } => "invalid_api_key",
            Self::Forbidden { .. } => "tidegate_forbidden",
            Self::Encoded { .. } => "tidegate_provider_encoding",
        }
    }

    /// The `type` of the error, as the API has it.
    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { retry_after, .. } | Self::TooMuchHeld { retry_after, .. } => Some(*retry_after),
            Self::Outage { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::ShuttingDown | Self::TooManyConnections => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The answer that says so.
    pub(super) fn response(&self) -> Response<ReplyBody> {
        let body = json!({
            "error": { "message": self.to_string(), "type": self.kind(), "param": null, "code": self.code() },
        });
        let mut response = json_response(self.status(), &body);
        if let Self::BadMethod { allow } = self {
            let allow = HeaderValue::from_str(allow).unwrap_or(HeaderValue::from_static(""));
            response.headers_mut().insert(ALLOW, allow);
        }
        if matches!(self, Self::SlowBody | Self::BrokenBody | Self::TooManyConnections) {
            // Where the next request would begin is not known, or there shall be none.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(wait) = self.retry_after() {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            response.headers_mut().insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        response
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchAddress => f.write_str("there is no such address here; the API is under /v1"),
            Self::TooLarge { most } => write!(f, "the request is longer than {most} bytes"),
            Self::BadHost => f.write_str("the request must name the host that it is for in `Host`, exactly once"),
            Self::ForeignHost { host, local } => write!(
                f,
                "the request is for the host `{host}`; expected `localhost` or `{}`; to serve this name too, set \
                 allowed_hosts = [{host:?}] in the file",
                local.ip()
            ),
            Self::ForeignOrigin { origin } => write!(
                f,
                "the request comes from a web page of `{origin}`; expected a program, or a page of this host; to serve that \
                 page too, set allowed_origins = [{origin:?}] in the file"
            ),
            Self::ForeignSite { site } => write!(
                f,
                "the request comes from a web page of another site (Sec-Fetch-Site: {site}); expected a program, or a page \
                 of this host; pages that are to call are listed in `allowed_origins` in the file"
            ),
            Self::NotServed => f.write_str(
                "this call is not forwarded; the calls that are, and how `passthrough` in the file adds others, are in \
                 docs/proxy.md",
            ),
            Self::BadMethod { allow } => write!(f, "this method is not forwarded at this path; expected {allow}"),
            Self::UrlTooLong { most } => write!(f, "the path and query are longer than {most} bytes"),
            Self::HeadersTooLarge { most } => write!(f, "the headers are longer than {most} bytes"),
            Self::BadType { found, expected } => write!(f, "the body has {found}; expected {expected}"),
            Self::UnexpectedBody => f.write_str("there is a body where none, or one with a Content-Type, is expected"),
            Self::SlowBody => f.write_str("the body of the request comes too slowly"),
            Self::TooManyConnections => f.write_str("as many connections are open as may be"),
            Self::BrokenBody => f.write_str("the body of the request did not come through"),
            Self::BadJson { why } => write!(f, "the body is not JSON that everybody reads alike: {why}"),
            Self::BadForm { why } => write!(f, "the body is not a form that everybody reads alike: {why}"),
            Self::BadHeader { name, expected } => write!(f, "the header {name} is not {expected}"),
            Self::UnknownTenant => f.write_str("this proxy does not know whose request this is"),
            Self::UnknownModel { model } => write!(f, "no provider serves the model `{model}` for this"),
            Self::UnknownProvider => {
                f.write_str("there is no provider of the name in x-tidegate-provider, or it does not get this call")
            }
            Self::QueueFull { waiting, .. } => write!(f, "{waiting} requests wait already, and no more may"),
            Self::TooMuchHeld { held, .. } => {
                write!(f, "requests of {held} bytes are held already, and no more may be")
            }
            Self::Deadline { waited, why, attempts } => {
                write!(f, "waited {:.1} s for its turn, and its deadline passed: {why}", waited.as_secs_f64())?;
                match attempts {
                    0 => Ok(()),
                    1 => f.write_str(" (one attempt was refused for too many calls)"),
                    more => write!(f, " ({more} attempts were refused for too many calls)"),
                }
            }
            Self::Outage { provider, waited, .. } => {
                write!(f, "the provider {provider} is down; waited {:.1} s for it to come back", waited.as_secs_f64())
            }
            Self::Unavailable { provider, cause, .. } => {
                write!(f, "the provider {provider} cannot be used for this model: {cause}")
            }
            Self::ShuttingDown => f.write_str("the proxy is about to stop"),
            Self::Unreachable { provider } => write!(f, "the provider {provider} could not be reached, or broke off"),
            Self::ProviderTimeout { provider } => write!(f, "the provider {provider} did not answer in time"),
            Self::ProviderKey { provider } => write!(f, "the provider {provider} refused the proxy's key"),
            Self::NoProviderKey { provider } => write!(
                f,
                "the provider {provider} asks for a key, and the file has neither `api_key_env` nor \
                 `client_key = \"forward\"` for it"
            ),
            Self::ClientKey { provider } => write!(f, "the provider {provider} refused the key of this request"),
            Self::Forbidden { provider } => {
                write!(f, "the provider {provider} does not allow this call (403); its own words are not shown")
            }
            Self::Encoded { provider } => {
                write!(f, "the provider {provider} compressed its answer, which was asked for as it is")
            }
        }
    }
}

/// An answer of JSON.
pub(super) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<ReplyBody> {
    text_response(status, "application/json", body.to_string())
}

/// An answer of text.
pub(super) fn text_response(status: StatusCode, kind: &'static str, body: String) -> Response<ReplyBody> {
    full_response(status, kind, Bytes::from(body))
}

fn full_response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
