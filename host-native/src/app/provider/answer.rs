//! What an HTTP answer means to a client. What status, headers and the body of an error mean is decided by the core, as for every
//! other caller: [`response`](tidegate_core::request::response). Here it gets words, and the answers that are no error are judged:
//!
//! | answer | meaning | retried |
//! | --- | --- | --- |
//! | 200 to 299 with what was asked for, such as a chat completion | success | |
//! | 200 to 299 with an error in it | what the error says | as that |
//! | 200 to 299 with anything else, or nothing | unreadable answer, which still costs what it says or its estimate | yes, a bounded number of times |
//! | an answer of the right form without what was asked for | malformed answer, at the same cost | no |
//! | an answer that breaks off | broken answer, which costs its estimate | yes, a bounded number of times |
//! | no answer in time | timeout, which costs its estimate | yes, a bounded number of times |
//! | refused, reset or unresolved connection | no connection | yes, a bounded number of times |

use std::fmt;
use std::time::SystemTime;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tidegate_core::budget::Usage;
use tidegate_core::request::Outcome;
use tidegate_core::request::response::{Refusal, ResponseInfo};
use tidegate_core::time::Duration;

use super::usage_said;
use crate::http::{ErrorBody, error_in_success as read_error_in_success, read_error_body, read_head};

/// Characters of a provider's own message that are worth repeating.
const EXCERPT_CHARS: usize = 160;

/// A call that brought no answer text. The detail never holds a key: bodies of refused keys are not repeated at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Too many calls; come back after the given time if there is one.
    RateLimited {
        /// The HTTP status.
        status: u16,
        /// How long to stay away.
        retry_after: Option<Duration>,
    },
    /// The server failed.
    Server {
        /// The HTTP status.
        status: u16,
        /// The server's message, cut.
        detail: String,
    },
    /// No whole answer within the model's timeout. The provider may have worked on it all the same.
    Timeout,
    /// The server itself says that it took too long.
    ServerTimeout {
        /// The HTTP status.
        status: u16,
    },
    /// No connection, or one that broke before an answer.
    Connection {
        /// Why, without the address.
        detail: String,
    },
    /// The answer broke off.
    Broken {
        /// Why, without the address.
        detail: String,
    },
    /// The key was refused.
    KeyRejected {
        /// The HTTP status.
        status: u16,
    },
    /// The account is out of funds or of quota.
    QuotaExhausted {
        /// The HTTP status.
        status: u16,
        /// The server's message, cut.
        detail: String,
    },
    /// The model does not exist.
    ModelNotFound {
        /// The HTTP status.
        status: u16,
        /// The server's message, cut.
        detail: String,
    },
    /// This one request was refused.
    Rejected {
        /// The HTTP status.
        status: u16,
        /// Why.
        refusal: Refusal,
        /// The server's message, cut.
        detail: String,
    },
    /// Success by status, but of another form than it should have.
    Unreadable {
        /// What it should have been, such as `a chat completion`.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
        /// The tokens it took, where it said so: they are paid for like those of a good answer.
        usage: Option<Usage>,
    },
    /// Of the right form, but without what was asked for.
    Malformed {
        /// What it should have been, such as `a chat completion`.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
        /// The tokens it took, where it said so: they are paid for like those of a good answer.
        usage: Option<Usage>,
    },
    /// A command failed.
    Command {
        /// Its exit code, and what it said.
        detail: String,
    },
    /// A command failed, and says that it may work later.
    CommandBusy {
        /// Its exit code, and what it said.
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
            Self::Connection { detail } => {
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
            Self::Rejected { status, refusal, detail } => {
                let what = match refusal {
                    Refusal::NotFound => "no such address",
                    Refusal::TooLong => "the request is too long",
                    Refusal::UnsupportedParameter => "the model does not take a parameter",
                    Refusal::Forbidden => "the request is forbidden",
                    _ => "the request was refused",
                };
                write!(f, "{what} (HTTP {status})")?;
                with(f, detail)
            }
            Self::Unreadable { what, detail, .. } | Self::Malformed { what, detail, .. } => {
                write!(f, "the answer is not {what}: {detail}")
            }
            Self::Command { detail } => write!(f, "the command failed ({detail})"),
            Self::CommandBusy { detail } => write!(f, "the command asks to be run again later ({detail})"),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    /// The HTTP status that tells this error, if one does.
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
            | Self::Broken { .. }
            | Self::Unreadable { .. }
            | Self::Malformed { .. }
            | Self::Command { .. }
            | Self::CommandBusy { .. } => None,
        }
    }

    /// The same error with `change` applied to the text that came from outside.
    #[must_use]
    pub(super) fn map_detail(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Server { detail, .. }
            | Self::Connection { detail }
            | Self::Broken { detail }
            | Self::QuotaExhausted { detail, .. }
            | Self::ModelNotFound { detail, .. }
            | Self::Rejected { detail, .. }
            | Self::Unreadable { detail, .. }
            | Self::Malformed { detail, .. }
            | Self::Command { detail }
            | Self::CommandBusy { detail } => *detail = change(detail),
            Self::RateLimited { .. } | Self::Timeout | Self::ServerTimeout { .. } | Self::KeyRejected { .. } => {}
        }
        self
    }
}

/// What an answer means that is no success. `now` is the wall clock, for dates in headers.
#[must_use]
pub fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Option<CallError> {
    if status.is_success() {
        return None;
    }
    Some(explain(read_head(status, headers, now), &read_error_body(body, headers, now)))
}

/// The error that a body of a success holds, if it holds one.
pub(super) fn error_in_success(body: &[u8]) -> Option<CallError> {
    let said = read_error_in_success(body)?;
    Some(explain(read_head(StatusCode::OK, &HeaderMap::new(), SystemTime::UNIX_EPOCH), &said))
}

/// The words for what the core makes of an answer.
fn explain(mut info: ResponseInfo, said: &ErrorBody) -> CallError {
    said.refine(&mut info);
    let (status, detail) = (info.status, one_line(&said.message));
    match info.completion.outcome {
        Outcome::RateLimited => CallError::RateLimited { status, retry_after: info.completion.retry_after },
        Outcome::ProviderTimeout => CallError::ServerTimeout { status },
        Outcome::ProviderFailure => CallError::Server { status, detail },
        Outcome::KeyRejected => CallError::KeyRejected { status },
        Outcome::QuotaExhausted => CallError::QuotaExhausted { status, detail },
        Outcome::ModelNotFound => CallError::ModelNotFound { status, detail },
        _ => CallError::Rejected { status, refusal: info.refusal.unwrap_or(Refusal::Other), detail },
    }
}

/// A body of a success that has not the form of `what`: the error in it, or a complaint. The body itself is not shown: it may hold
/// anything.
pub(super) fn unreadable(what: &'static str, error: &serde_json::Error, body: &[u8]) -> CallError {
    if let Some(error) = error_in_success(body) {
        return error;
    }
    let detail = match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ if body.is_empty() => "it is empty".to_string(),
        _ => format!("it is not JSON ({error})"),
    };
    CallError::Unreadable { what, detail, usage: usage_said(body) }
}

/// `text` on one line, cut.
pub(super) fn one_line(text: &str) -> String {
    let text = text.trim();
    let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_CHARS).collect();
    if text.chars().count() > EXCERPT_CHARS { one_line + "…" } else { one_line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    fn meaning(status: u16, retry: Option<&str>, body: &str) -> Result<(), CallError> {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        refusal(status, &headers, body.as_bytes(), SystemTime::UNIX_EPOCH).map_or(Ok(()), Err)
    }

    #[test]
    fn a_success_is_left_to_whoever_reads_it() {
        assert_eq!(meaning(200, None, "anything"), Ok(()));
        assert_eq!(meaning(204, None, ""), Ok(()));
    }

    #[test]
    fn a_429_and_a_503_that_says_when_are_rate_limits() {
        let wait = Some(Duration::from_secs(2));
        assert_eq!(meaning(429, Some("2"), ""), Err(CallError::RateLimited { status: 429, retry_after: wait }));
        assert_eq!(meaning(429, None, ""), Err(CallError::RateLimited { status: 429, retry_after: None }));
        assert_eq!(meaning(503, Some("2"), ""), Err(CallError::RateLimited { status: 503, retry_after: wait }));
        assert!(matches!(meaning(503, None, ""), Err(CallError::Server { status: 503, .. })));
    }

    #[test]
    fn every_other_status_has_its_own_meaning() {
        let refused = |status, refusal| Err(CallError::Rejected { status, refusal, detail: String::new() });
        assert_eq!(meaning(401, None, "{}"), Err(CallError::KeyRejected { status: 401 }));
        assert_eq!(meaning(403, None, "{}"), refused(403, Refusal::Forbidden));
        assert_eq!(meaning(404, None, "{}"), refused(404, Refusal::NotFound));
        assert!(matches!(meaning(402, None, "{}"), Err(CallError::QuotaExhausted { status: 402, .. })));
        assert!(matches!(meaning(500, None, "<html>"), Err(CallError::Server { status: 500, .. })));
        assert!(matches!(meaning(400, None, "{}"), Err(CallError::Rejected { status: 400, .. })));
        assert!(matches!(meaning(302, None, ""), Err(CallError::Rejected { status: 302, .. })));
        assert_eq!(meaning(504, None, ""), Err(CallError::ServerTimeout { status: 504 }));
    }

    #[test]
    fn a_success_with_an_error_in_it_is_that_error() {
        let error = |body: &str| error_in_success(body.as_bytes());
        let failed = CallError::Server { status: 502, detail: "Provider returned error".to_string() };
        assert_eq!(error(r#"{"error":{"code":502,"message":"Provider returned error"}}"#), Some(failed));
        let limited = CallError::RateLimited { status: 429, retry_after: None };
        assert_eq!(error(r#"{"error":{"code":429,"message":"slow down"}}"#), Some(limited));
        assert_eq!(error(r#"{"choices":[]}"#), None);
    }

    #[test]
    fn a_refused_keys_body_is_never_repeated() {
        let error = meaning(401, None, r#"{"error":{"message":"Incorrect API key provided: sk-ab**yz"}}"#).unwrap_err();
        assert!(!error.to_string().contains("sk-"), "{error}");
    }

    #[test]
    fn a_servers_message_is_repeated_on_one_line_and_cut() {
        let body = format!(r#"{{"error":{{"message":"first\nsecond {}"}}}}"#, "x".repeat(500));
        let text = meaning(400, None, &body).unwrap_err().to_string();
        assert!(text.starts_with("the request was refused (HTTP 400): first second xxx"), "{text}");
        assert!(text.chars().count() < 240 && text.ends_with('…'), "{text}");
    }
}
