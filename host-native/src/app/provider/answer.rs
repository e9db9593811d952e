//! Classifies the responses of providers.
//!
//! The core classifies error responses by status, headers and body:
//! [`response`](tidegate_core::request::response). This module adds the error messages, and classifies all
//! other results. `yes` means that the number of retries is bounded:
//!
//! | response | classification | retried |
//! | --- | --- | --- |
//! | 200 to 299 with the expected content, such as a chat completion | success | |
//! | 200 to 299 with an error in the body | as for the status in that error | as for that status |
//! | 200 to 299 with another or an empty body | unreadable; costs the reported or estimated usage | yes |
//! | valid form, but without the expected content | malformed; costs the same | no |
//! | complete, but names a file that cannot be downloaded | of its own; costs the same | yes |
//! | answer withheld by a content filter, or refused by the model | of its own; costs the same | no |
//! | incomplete body | broken; costs the estimated usage | yes |
//! | no response within the timeout | timeout; costs the estimated usage | yes |
//! | connection refused or reset, or name not resolved | no connection | yes |
//! | a server whose certificate or kind of TLS is not accepted, or that requires a certificate of its clients | TLS failed | no |
//! | none, because an image or a recording cannot be read | not sent; costs nothing | no |

use std::fmt;
use std::time::SystemTime;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use tidegate_core::budget::Usage;
use tidegate_core::request::Outcome;
use tidegate_core::request::response::{RejectionReason, ResponseInfo};
use tidegate_core::time::Duration;

use super::usage_in_body;
use crate::http::{ErrorBody, error_in_success as read_error_in_success, read_error_body, read_head};

/// The maximum number of characters that are quoted from the message of a provider.
const EXCERPT_CHARS: usize = 160;

/// Why a call failed. The details never contain an API key: the bodies of responses to rejected keys are not
/// quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The rate limit of the provider was exceeded.
    RateLimited {
        /// The HTTP status.
        status: u16,
        /// The Retry-After time, if the provider sent one.
        retry_after: Option<Duration>,
    },
    /// The server returned an internal error.
    Server {
        /// The HTTP status.
        status: u16,
        /// The message of the server, truncated.
        detail: String,
    },
    /// No complete response within the timeout of the model. The provider may have processed the request.
    Timeout,
    /// The server returned a timeout, such as 504.
    ServerTimeout {
        /// The HTTP status.
        status: u16,
    },
    /// No connection, or a connection that was closed before a response.
    Connection {
        /// The reason, without the address.
        detail: String,
    },
    /// No connection, because the certificate of the server is not accepted, only one side uses TLS, or the
    /// server requires another version or a certificate of its clients.
    Tls {
        /// The reason, without the address.
        detail: String,
    },
    /// The response was incomplete.
    Broken {
        /// The reason, without the address.
        detail: String,
    },
    /// The API key was rejected.
    KeyRejected {
        /// The HTTP status.
        status: u16,
    },
    /// The account has no funds or no quota left.
    QuotaExhausted {
        /// The HTTP status.
        status: u16,
        /// The message of the server, truncated.
        detail: String,
    },
    /// The model does not exist.
    ModelNotFound {
        /// The HTTP status.
        status: u16,
        /// The message of the server, truncated.
        detail: String,
    },
    /// This request was rejected.
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The reason.
        rejection: RejectionReason,
        /// The message of the server, truncated.
        detail: String,
    },
    /// The status is success, but the body does not have the expected form.
    Unreadable {
        /// The expected content, such as `a chat completion`.
        what: &'static str,
        /// What is wrong.
        detail: String,
        /// The token usage, if the response reported it. It is charged as for a success.
        usage: Option<Usage>,
    },
    /// The response is valid, but does not contain the expected content.
    Malformed {
        /// The expected content, such as `a chat completion`.
        what: &'static str,
        /// What is wrong.
        detail: String,
        /// The token usage, if the response reported it. It is charged as for a success.
        usage: Option<Usage>,
    },
    /// The response is complete, but the file that it names cannot be downloaded. It says nothing about the
    /// provider.
    NotDownloaded {
        /// Why not, without the address.
        detail: String,
        /// The token usage, if the response reported it. It is charged as for a success.
        usage: Option<Usage>,
    },
    /// A content filter of the provider withheld the answer.
    ContentFiltered {
        /// The message of the provider, truncated.
        detail: String,
        /// The token usage, if the response reported it. It is charged as for a success.
        usage: Option<Usage>,
    },
    /// The model refused to answer.
    Refused {
        /// The message of the model, truncated.
        detail: String,
        /// The token usage, if the response reported it. It is charged as for a success.
        usage: Option<Usage>,
    },
    /// The request was not sent, because an image or a recording of it cannot be read.
    NotSent {
        /// The reason, with the path.
        detail: String,
    },
    /// A batch has ended without an answer to this request.
    NotAnswered {
        /// The batch, and how it ended.
        detail: String,
    },
    /// A batch cannot be submitted or collected until a person has acted, as `detail` says.
    BatchBlocked {
        /// What is the matter, and what to do about it.
        detail: String,
    },
    /// A command failed.
    Command {
        /// The exit status, and an excerpt of standard error.
        detail: String,
    },
    /// A command could not be started, or not be waited for.
    CommandNotStarted {
        /// The reason.
        detail: String,
    },
    /// A command failed temporarily.
    CommandBusy {
        /// The exit status, and an excerpt of standard error.
        detail: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |f: &mut fmt::Formatter<'_>, detail: &str| match detail {
            "" => Ok(()),
            detail => write!(f, ": {detail}"),
        };
        match self {
            Self::RateLimited { status, retry_after: None } => write!(f, "rate limited (HTTP {status})"),
            Self::RateLimited { status, retry_after: Some(wait) } => {
                write!(f, "rate limited (HTTP {status}, come back in {wait})")
            }
            Self::Server { status, detail } => {
                write!(f, "the server failed (HTTP {status})")?;
                with(f, detail)
            }
            Self::Timeout => f.write_str("no answer in time"),
            Self::ServerTimeout { status } => write!(f, "no answer in time (HTTP {status})"),
            Self::Connection { detail } | Self::Tls { detail } => {
                f.write_str("no connection")?;
                with(f, detail)
            }
            Self::Broken { detail } => {
                f.write_str("the answer broke off")?;
                with(f, detail)
            }
            Self::KeyRejected { status } => write!(f, "the API key was refused or is missing (HTTP {status})"),
            Self::QuotaExhausted { status, detail } => {
                write!(f, "the account is out of funds or quota (HTTP {status})")?;
                with(f, detail)
            }
            Self::ModelNotFound { status, detail } => {
                write!(f, "no such model (HTTP {status})")?;
                with(f, detail)
            }
            Self::Rejected { status, rejection, detail } => {
                let what = match rejection {
                    RejectionReason::NotFound => "no such address",
                    RejectionReason::TooLong => "the request is too long",
                    RejectionReason::UnsupportedParameter => "the model does not take a parameter",
                    RejectionReason::Forbidden => "the request is forbidden",
                    RejectionReason::ContentFiltered => "a content filter rejected the request",
                    _ => "the request was refused",
                };
                write!(f, "{what} (HTTP {status})")?;
                with(f, detail)
            }
            Self::Unreadable { what, detail, .. } | Self::Malformed { what, detail, .. } => {
                write!(f, "the answer is not {what}: {detail}")
            }
            Self::NotDownloaded { detail, .. } => write!(f, "the file of the answer cannot be downloaded: {detail}"),
            Self::ContentFiltered { detail, .. } => {
                f.write_str("a content filter withheld the answer")?;
                with(f, detail)
            }
            Self::Refused { detail, .. } => {
                f.write_str("the model refused to answer")?;
                with(f, detail)
            }
            Self::NotSent { detail } | Self::NotAnswered { detail } | Self::BatchBlocked { detail } => {
                f.write_str(detail)
            }
            Self::Command { detail } => write!(f, "the command failed ({detail})"),
            Self::CommandNotStarted { detail } => write!(f, "the command cannot be started: {detail}"),
            Self::CommandBusy { detail } => write!(f, "the command asks to be run again later ({detail})"),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    /// Returns the HTTP status of the response, if there was one with an error status.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::RateLimited { status, .. }
            | Self::Server { status, .. }
            | Self::ServerTimeout { status }
            | Self::KeyRejected { status }
            | Self::QuotaExhausted { status, .. }
            | Self::ModelNotFound { status, .. }
            | Self::Rejected { status, .. } => Some(*status),
            Self::Timeout
            | Self::Connection { .. }
            | Self::Tls { .. }
            | Self::Broken { .. }
            | Self::Unreadable { .. }
            | Self::Malformed { .. }
            | Self::NotDownloaded { .. }
            | Self::ContentFiltered { .. }
            | Self::Refused { .. }
            | Self::NotSent { .. }
            | Self::NotAnswered { .. }
            | Self::BatchBlocked { .. }
            | Self::Command { .. }
            | Self::CommandNotStarted { .. }
            | Self::CommandBusy { .. } => None,
        }
    }

    /// Returns whether the response was complete, so that the provider charges for it, and the token usage
    /// that it reported.
    #[must_use]
    pub fn charged_usage(&self) -> (bool, Option<Usage>) {
        match self {
            Self::Unreadable { usage, .. }
            | Self::Malformed { usage, .. }
            | Self::NotDownloaded { usage, .. }
            | Self::ContentFiltered { usage, .. }
            | Self::Refused { usage, .. } => (true, *usage),
            _ => (false, None),
        }
    }

    /// Applies `change` to the text that came from the provider or command.
    #[must_use]
    pub(super) fn map_detail(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Server { detail, .. }
            | Self::Connection { detail }
            | Self::Tls { detail }
            | Self::Broken { detail }
            | Self::QuotaExhausted { detail, .. }
            | Self::ModelNotFound { detail, .. }
            | Self::Rejected { detail, .. }
            | Self::Unreadable { detail, .. }
            | Self::Malformed { detail, .. }
            | Self::NotDownloaded { detail, .. }
            | Self::ContentFiltered { detail, .. }
            | Self::Refused { detail, .. }
            | Self::NotSent { detail }
            | Self::NotAnswered { detail }
            | Self::BatchBlocked { detail }
            | Self::Command { detail }
            | Self::CommandNotStarted { detail }
            | Self::CommandBusy { detail } => *detail = change(detail),
            Self::RateLimited { .. } | Self::Timeout | Self::ServerTimeout { .. } | Self::KeyRejected { .. } => {}
        }
        self
    }
}

/// The paths below `base_url` to which requests are sent.
const ENDPOINTS: [&str; 7] =
    ["/batches", "/chat/completions", "/embeddings", "/files", "/images/generations", "/messages", "/responses"];

/// Returns the error for a response, or `None` if its status is success. `now` is the wall-clock time, for
/// dates in headers.
#[must_use]
pub fn error_for(status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Option<CallError> {
    if status.is_success() {
        return None;
    }
    let error = to_call_error(read_head(status, headers, now), &read_error_body(body, headers, now));
    Some(match headers.get(LOCATION).and_then(|location| location.to_str().ok()) {
        // Without the query, which may contain secrets.
        Some(location) if status.is_redirection() => {
            let location = excerpt(location.split(['?', '#']).next().unwrap_or_default());
            let base_url =
                ENDPOINTS.iter().find_map(|path| location.strip_suffix(path)).filter(|url| url.contains("://"));
            let advice = match base_url {
                Some(base_url) => format!("set `base_url` to `{base_url}`"),
                None => "set `base_url`, or `url` of a judge, to the final address".to_string(),
            };
            error.map_detail(|_| format!("it redirects to {location}; {advice}"))
        }
        _ => error,
    })
}

/// Returns the error in the body of a response whose status is success, if there is one.
pub(super) fn error_in_success(body: &[u8]) -> Option<CallError> {
    let error = read_error_in_success(body)?;
    Some(to_call_error(read_head(StatusCode::OK, &HeaderMap::new(), SystemTime::UNIX_EPOCH), &error))
}

/// Converts the classification of the core to an error.
fn to_call_error(mut info: ResponseInfo, error: &ErrorBody) -> CallError {
    error.refine(&mut info);
    let (status, detail) = (info.status, excerpt(&error.message));
    match info.completion.outcome {
        Outcome::RateLimited => CallError::RateLimited { status, retry_after: info.completion.retry_after },
        Outcome::ProviderTimeout => CallError::ServerTimeout { status },
        Outcome::ProviderFailure => CallError::Server { status, detail },
        Outcome::KeyRejected => CallError::KeyRejected { status },
        Outcome::QuotaExhausted => CallError::QuotaExhausted { status, detail },
        Outcome::ModelNotFound => CallError::ModelNotFound { status, detail },
        _ => CallError::Rejected { status, rejection: info.rejection.unwrap_or(RejectionReason::Other), detail },
    }
}

/// Returns the error for a response with a success status whose body is not `what`: the error in the body if
/// there is one, [`CallError::Unreadable`] otherwise. The body is not quoted, since it may contain anything.
pub(super) fn unreadable(what: &'static str, error: &serde_json::Error, body: &[u8]) -> CallError {
    if let Some(error) = error_in_success(body) {
        return error;
    }
    let detail = match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ if body.is_empty() => "it is empty".to_string(),
        _ => format!("it is not JSON ({error})"),
    };
    CallError::Unreadable { what, detail, usage: usage_in_body(body) }
}

/// Returns the first [`EXCERPT_CHARS`] characters of `text` on one line.
pub(super) fn excerpt(text: &str) -> String {
    let text = text.trim();
    let excerpt: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_CHARS).collect();
    if text.chars().count() > EXCERPT_CHARS { excerpt + "…" } else { excerpt }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    fn error_of(status: u16, retry: Option<&str>, body: &str) -> Result<(), CallError> {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        error_for(status, &headers, body.as_bytes(), SystemTime::UNIX_EPOCH).map_or(Ok(()), Err)
    }

    #[test]
    fn a_success_status_is_not_an_error() {
        assert_eq!(error_of(200, None, "anything"), Ok(()));
        assert_eq!(error_of(204, None, ""), Ok(()));
    }

    #[test]
    fn status_429_and_503_with_retry_after_are_rate_limits() {
        let wait = Some(Duration::from_secs(2));
        assert_eq!(error_of(429, Some("2"), ""), Err(CallError::RateLimited { status: 429, retry_after: wait }));
        assert_eq!(error_of(429, None, ""), Err(CallError::RateLimited { status: 429, retry_after: None }));
        assert_eq!(error_of(503, Some("2"), ""), Err(CallError::RateLimited { status: 503, retry_after: wait }));
        assert!(matches!(error_of(503, None, ""), Err(CallError::Server { status: 503, .. })));
    }

    #[test]
    fn each_error_status_has_its_own_classification() {
        let rejected = |status, rejection| Err(CallError::Rejected { status, rejection, detail: String::new() });
        assert_eq!(error_of(401, None, "{}"), Err(CallError::KeyRejected { status: 401 }));
        assert_eq!(error_of(403, None, "{}"), rejected(403, RejectionReason::Forbidden));
        assert_eq!(error_of(404, None, "{}"), rejected(404, RejectionReason::NotFound));
        assert!(matches!(error_of(402, None, "{}"), Err(CallError::QuotaExhausted { status: 402, .. })));
        assert!(matches!(error_of(500, None, "<html>"), Err(CallError::Server { status: 500, .. })));
        assert!(matches!(error_of(400, None, "{}"), Err(CallError::Rejected { status: 400, .. })));
        assert!(matches!(error_of(302, None, ""), Err(CallError::Rejected { status: 302, .. })));
        assert_eq!(error_of(504, None, ""), Err(CallError::ServerTimeout { status: 504 }));
    }

    #[test]
    fn a_redirect_names_its_target_without_the_query_and_the_base_url_to_set() {
        for (location, expected) in [
            (
                "https://new.example/v1/chat/completions?key=s3",
                "https://new.example/v1/chat/completions; set `base_url` to `https://new.example/v1`",
            ),
            (
                "https://new.example/login",
                "https://new.example/login; set `base_url`, or `url` of a judge, to the final address",
            ),
            ("/v2/chat/completions", "/v2/chat/completions; set `base_url`, or `url` of a judge, to the final address"),
        ] {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
            let error = error_for(StatusCode::PERMANENT_REDIRECT, &headers, b"moved", SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(error.to_string(), format!("the request was refused (HTTP 308): it redirects to {expected}"));
        }
    }

    #[test]
    fn a_success_status_with_an_error_in_the_body_is_that_error() {
        let error = |body: &str| error_in_success(body.as_bytes());
        let failed = CallError::Server { status: 502, detail: "Provider returned error".to_string() };
        assert_eq!(error(r#"{"error":{"code":502,"message":"Provider returned error"}}"#), Some(failed));
        let limited = CallError::RateLimited { status: 429, retry_after: None };
        assert_eq!(error(r#"{"error":{"code":429,"message":"slow down"}}"#), Some(limited));
        assert_eq!(error(r#"{"choices":[]}"#), None);
    }

    #[test]
    fn the_body_of_a_response_to_a_rejected_key_is_not_quoted() {
        let error =
            error_of(401, None, r#"{"error":{"message":"Incorrect API key provided: sk-ab**yz"}}"#).unwrap_err();
        assert!(!error.to_string().contains("sk-"), "{error}");
    }

    #[test]
    fn the_message_of_a_server_is_quoted_on_one_line_and_truncated() {
        let body = format!(r#"{{"error":{{"message":"first\nsecond {}"}}}}"#, "x".repeat(500));
        let text = error_of(400, None, &body).unwrap_err().to_string();
        assert!(text.starts_with("the request was refused (HTTP 400): first second xxx"), "{text}");
        assert!(text.chars().count() < 240 && text.ends_with('…'), "{text}");
    }
}
