//! What the proxy says itself, in the form of the API's errors.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use serde_json::json;

use super::ReplyBody;
use tidegate_core::request::UnavailableCause;
use tidegate_core::request::response::RETRY_AFTER_MS;

/// Why a request gets no answer of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refusal {
    /// There is no such address here.
    NoSuchAddress,
    /// The request is longer than allowed.
    TooLarge { most: u32 },
    /// Its body did not come through.
    BrokenBody,
    /// Its body is no JSON, or may be read in two ways.
    BadJson,
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
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchAddress | Self::UnknownModel { .. } | Self::UnknownProvider => StatusCode::NOT_FOUND,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BrokenBody | Self::BadJson | Self::BadHeader { .. } => StatusCode::BAD_REQUEST,
            Self::UnknownTenant => StatusCode::UNAUTHORIZED,
            Self::QueueFull { .. } | Self::TooMuchHeld { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Deadline { .. } | Self::Outage { .. } | Self::Unavailable { .. } | Self::ShuttingDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unreachable { .. } | Self::ProviderKey { .. } => StatusCode::BAD_GATEWAY,
            Self::ProviderTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The `code` of the error, which programs may tell apart.
    fn code(&self) -> &'static str {
        match self {
            Self::NoSuchAddress => "tidegate_no_such_address",
            Self::TooLarge { .. } => "tidegate_too_large",
            Self::BrokenBody => "tidegate_broken_body",
            Self::BadJson => "tidegate_bad_json",
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
            Self::ProviderKey { .. } => "tidegate_provider_key",
        }
    }

    /// The `type` of the error, as the API has it.
    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { retry_after, .. } | Self::TooMuchHeld { retry_after, .. } => Some(*retry_after),
            Self::Outage { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::ShuttingDown => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The answer that says so.
    pub(super) fn answer(&self) -> Response<ReplyBody> {
        let body = json!({
            "error": { "message": self.to_string(), "type": self.kind(), "param": null, "code": self.code() },
        });
        let mut answer = json_answer(self.status(), &body);
        if let Some(wait) = self.retry_after() {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            answer.headers_mut().insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        answer
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchAddress => f.write_str("there is no such address here; the API is under /v1"),
            Self::TooLarge { most } => write!(f, "the request is longer than {most} bytes"),
            Self::BrokenBody => f.write_str("the body of the request did not come through"),
            Self::BadJson => f.write_str("the body is no JSON, or says one thing twice"),
            Self::BadHeader { name, expected } => write!(f, "the header {name} is not {expected}"),
            Self::UnknownTenant => f.write_str("this proxy does not know whose request this is"),
            Self::UnknownModel { model } => write!(f, "no provider serves the model `{model}` for this"),
            Self::UnknownProvider => f.write_str("there is no provider of the name in x-tidegate-provider"),
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
        }
    }
}

/// An answer of JSON.
pub(super) fn json_answer(status: StatusCode, body: &serde_json::Value) -> Response<ReplyBody> {
    text_answer(status, "application/json", body.to_string())
}

/// An answer of text.
pub(super) fn text_answer(status: StatusCode, kind: &'static str, body: String) -> Response<ReplyBody> {
    full_answer(status, kind, Bytes::from(body))
}

fn full_answer(status: StatusCode, kind: &'static str, body: Bytes) -> Response<ReplyBody> {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
