//! Error responses of the proxy, in the error format of the OpenAI API.

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

/// The reason why the proxy itself answers a request with an error.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProxyError {
    /// The path is not served.
    NoSuchAddress,
    /// The `Host` header is missing, repeated or invalid.
    BadHost,
    /// The body has a transfer encoding other than `chunked`.
    BadTransferEncoding,
    /// The host is not one that the proxy serves.
    ForeignHost { host: String, local: SocketAddr },
    /// The `Origin` header names another site.
    ForeignOrigin { origin: String },
    /// The `Sec-Fetch-Site` header says that the request comes from another site.
    ForeignSite { site: String },
    /// The path is not in the list of forwarded calls.
    NotServed,
    /// The path is forwarded, but not with this method.
    BadMethod { allow: String },
    /// The path and query are too long.
    UrlTooLong { most: u32 },
    /// The headers are too long.
    HeadersTooLarge { most: u32 },
    /// The body has an unsupported media type or encoding.
    BadType { found: String, expected: &'static str },
    /// The request has a body where none is expected.
    UnexpectedBody,
    /// The body was not received in time.
    SlowBody,
    /// The limit of open connections is reached.
    TooManyConnections,
    /// The limit of open connections of one client address is reached.
    TooManyOfAddress { most: u32 },
    /// The body is too long.
    TooLarge { most: u32 },
    /// The body could not be read to its end.
    BrokenBody,
    /// The body is not JSON, or is ambiguous.
    BadJson { why: String },
    /// The body has a list of more models.
    SeveralModels { name: &'static str },
    /// The query may select another model than the body.
    ModelInQuery { name: &'static str },
    /// The body is not a multipart form, or is ambiguous.
    BadForm { why: String },
    /// An `x-tidegate-*` header has an invalid value.
    BadHeader { name: &'static str, expected: &'static str },
    /// The tenant is not configured, and `require_known` is set.
    UnknownTenant,
    /// No provider serves the model, or its limit of models is reached.
    UnknownModel { model: String },
    /// The tenant may not call the model.
    ModelOfOthers { model: String },
    /// No provider that serves the call has the requested name.
    UnknownProvider,
    /// The queue is full.
    QueueFull { waiting: u32, retry_after: Duration },
    /// The requests in memory reach the limit of bytes.
    TooMuchHeld { held: u64, retry_after: Duration },
    /// The deadline passed in the queue.
    Deadline { waited: Duration, why: String, attempts: u32 },
    /// The deadline passed while the provider was down.
    Outage { provider: String, waited: Duration, retry_after: Option<Duration> },
    /// The provider or model is currently unavailable.
    Unavailable { provider: String, cause: UnavailableCause, retry_after: Option<Duration> },
    /// The proxy is shutting down.
    ShuttingDown,
    /// The provider could not be reached, or closed the connection early.
    Unreachable { provider: String },
    /// The provider did not answer in time.
    ProviderTimeout { provider: String },
    /// The provider rejected the key of the proxy.
    ProviderKey { provider: String },
    /// The provider requires a key, and none is configured.
    NoProviderKey { provider: String },
    /// The provider rejected the key of the client.
    ClientKey { provider: String },
    /// The provider answered 403.
    Forbidden { provider: String },
    /// The response of the provider is compressed, although `identity` was requested.
    Encoded { provider: String },
    /// The provider switched to another protocol, although no upgrade was requested.
    Switched { provider: String },
}

impl ProxyError {
    /// Returns the status code of the response.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchAddress | Self::NotServed | Self::UnknownModel { .. } | Self::UnknownProvider => {
                StatusCode::NOT_FOUND
            }
            Self::ForeignHost { .. }
            | Self::ForeignOrigin { .. }
            | Self::ForeignSite { .. }
            | Self::ModelOfOthers { .. }
            | Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::BadMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UrlTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::BadType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::HeadersTooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BadHost
            | Self::BadTransferEncoding
            | Self::BrokenBody
            | Self::UnexpectedBody
            | Self::BadJson { .. }
            | Self::SeveralModels { .. }
            | Self::ModelInQuery { .. }
            | Self::BadForm { .. }
            | Self::BadHeader { .. } => StatusCode::BAD_REQUEST,
            Self::UnknownTenant | Self::ClientKey { .. } => StatusCode::UNAUTHORIZED,
            Self::QueueFull { .. } | Self::TooMuchHeld { .. } | Self::TooManyOfAddress { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Deadline { .. }
            | Self::Outage { .. }
            | Self::Unavailable { .. }
            | Self::TooManyConnections
            | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable { .. }
            | Self::ProviderKey { .. }
            | Self::NoProviderKey { .. }
            | Self::Encoded { .. }
            | Self::Switched { .. } => StatusCode::BAD_GATEWAY,
            Self::ProviderTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Returns the `code` of the error, which is stable.
    fn code(&self) -> &'static str {
        match self {
            Self::NoSuchAddress => "tidegate_no_such_address",
            Self::TooLarge { .. } => "tidegate_too_large",
            Self::BadHost => "tidegate_bad_host",
            Self::BadTransferEncoding => "tidegate_bad_transfer_encoding",
            Self::ForeignHost { .. } => "tidegate_foreign_host",
            Self::ForeignOrigin { .. } | Self::ForeignSite { .. } => "tidegate_foreign_origin",
            Self::NotServed => "tidegate_not_served",
            Self::BadMethod { .. } => "tidegate_bad_method",
            Self::UrlTooLong { .. } => "tidegate_url_too_long",
            Self::HeadersTooLarge { .. } => "tidegate_headers_too_large",
            Self::BadType { .. } => "tidegate_bad_type",
            Self::UnexpectedBody => "tidegate_unexpected_body",
            Self::SlowBody => "tidegate_slow_body",
            Self::TooManyConnections | Self::TooManyOfAddress { .. } => "tidegate_too_many_connections",
            Self::BrokenBody => "tidegate_broken_body",
            Self::BadJson { .. } => "tidegate_bad_json",
            Self::SeveralModels { .. } | Self::ModelInQuery { .. } => "tidegate_several_models",
            Self::BadForm { .. } => "tidegate_bad_form",
            Self::BadHeader { .. } => "tidegate_bad_header",
            Self::UnknownTenant => "tidegate_unknown_tenant",
            Self::UnknownModel { .. } => "model_not_found",
            Self::ModelOfOthers { .. } => "tidegate_model_of_others",
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
            Self::Switched { .. } => "tidegate_provider_protocol",
        }
    }

    /// Returns the `type` of the error as in the OpenAI API.
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
            Self::ShuttingDown | Self::TooManyConnections | Self::TooManyOfAddress { .. } => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }

    /// Returns the error as a response.
    pub(super) fn response(&self) -> Response<ReplyBody> {
        let body = json!({
            "error": { "message": self.to_string(), "type": self.kind(), "param": null, "code": self.code() },
        });
        let mut response = json_response(self.status(), &body);
        if let Self::BadMethod { allow } = self {
            let allow = HeaderValue::from_str(allow).unwrap_or(HeaderValue::from_static(""));
            response.headers_mut().insert(ALLOW, allow);
        }
        let is_rejected = matches!(self, Self::TooManyConnections | Self::TooManyOfAddress { .. });
        if is_rejected || matches!(self, Self::SlowBody | Self::BrokenBody) {
            // The start of the next request is unknown, or the connection is to be closed anyway.
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
            Self::NoSuchAddress => f.write_str("this path is not served; the API is under /v1"),
            Self::TooLarge { most } => write!(f, "the request is longer than {most} bytes"),
            Self::BadHost => f.write_str("the request must have exactly one valid `Host` header"),
            Self::BadTransferEncoding => f.write_str("the request has a transfer encoding that is not `chunked` alone"),
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
            Self::BadMethod { allow } => write!(f, "this method is not served at this path; expected {allow}"),
            Self::UrlTooLong { most } => write!(f, "the path and query are longer than {most} bytes"),
            Self::HeadersTooLarge { most } => write!(f, "the headers are longer than {most} bytes"),
            Self::BadType { found, expected } => write!(f, "the body has {found}; expected {expected}"),
            Self::UnexpectedBody => f.write_str("this call takes no body, or its body needs a Content-Type"),
            Self::SlowBody => f.write_str("the body of the request was not received in time"),
            Self::TooManyConnections => f.write_str("the limit of open connections is reached"),
            Self::TooManyOfAddress { most } => {
                write!(f, "the limit of {most} open connections of one client address is reached")
            }
            Self::BrokenBody => f.write_str("the body of the request could not be read to its end"),
            Self::SeveralModels { name } => write!(
                f,
                "`{name}` lists more models, which would be called outside of their limits; expected one model, in `model`"
            ),
            Self::ModelInQuery { name } => {
                write!(f, "the query has `{name}`, which may select another model; expected one model, in the body")
            }
            Self::BadJson { why } => write!(f, "the body is not unambiguous JSON: {why}"),
            Self::BadForm { why } => write!(f, "the body is not an unambiguous form: {why}"),
            Self::BadHeader { name, expected } => write!(f, "the header {name} is not {expected}"),
            Self::UnknownTenant => f.write_str("the tenant of this request is not configured"),
            Self::UnknownModel { model } if model.is_empty() => f.write_str(
                "the request names no model, and no provider serves this call for every model; expected `model`",
            ),
            Self::UnknownModel { model } => write!(f, "no provider serves the model `{model}` for this call"),
            Self::ModelOfOthers { model } if model.is_empty() => {
                f.write_str("the request names no model, and this tenant may call some models only; expected `model`")
            }
            Self::ModelOfOthers { model } => write!(f, "this tenant may not call the model `{model}`"),
            Self::UnknownProvider => {
                f.write_str("no provider has the name in x-tidegate-provider, or it does not serve this call")
            }
            Self::QueueFull { waiting, .. } => write!(f, "the queue is full: {waiting} requests are waiting"),
            Self::TooMuchHeld { held, .. } => {
                write!(f, "the queue is full: its requests hold {held} bytes")
            }
            Self::Deadline { waited, why, attempts } => {
                write!(f, "the deadline passed after {:.1} s in the queue: {why}", waited.as_secs_f64())?;
                match attempts {
                    0 => Ok(()),
                    1 => f.write_str(" (one attempt was rate-limited)"),
                    more => write!(f, " ({more} attempts were rate-limited)"),
                }
            }
            Self::Outage { provider, waited, .. } => {
                write!(f, "the provider {provider} is down; waited {:.1} s for it to come back", waited.as_secs_f64())
            }
            Self::Unavailable { provider, cause, .. } => {
                write!(f, "the provider {provider} cannot be used for this model: {cause}")
            }
            Self::ShuttingDown => f.write_str("the proxy is shutting down"),
            Self::Unreachable { provider } => {
                write!(f, "the provider {provider} could not be reached, or closed the connection early")
            }
            Self::ProviderTimeout { provider } => write!(f, "the provider {provider} did not answer in time"),
            Self::ProviderKey { provider } => write!(f, "the provider {provider} rejected the proxy's key"),
            Self::NoProviderKey { provider } => write!(
                f,
                "the provider {provider} requires a key, and the file has neither `api_key_env` nor \
                 `client_key = \"forward\"` for it"
            ),
            Self::ClientKey { provider } => write!(f, "the provider {provider} rejected the key of this request"),
            Self::Forbidden { provider } => {
                write!(f, "the provider {provider} does not allow this call (403); its message is not shown")
            }
            Self::Switched { provider } => {
                write!(f, "the provider {provider} switched to another protocol (101), which was not requested")
            }
            Self::Encoded { provider } => {
                write!(f, "the provider {provider} compressed its response, although `identity` was requested")
            }
        }
    }
}

/// Returns a JSON response.
pub(super) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<ReplyBody> {
    text_response(status, "application/json", body.to_string())
}

/// Returns a text response with the content type `kind`.
pub(super) fn text_response(status: StatusCode, kind: &'static str, body: String) -> Response<ReplyBody> {
    full_response(status, kind, Bytes::from(body))
}

/// Returns a response with the content type `kind`.
pub(super) fn full_response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
