//! What an HTTP answer means to a client. Which refusals are rate limits and timeouts is decided by the core, as for every
//! other caller ([`read_head`]); here the rest is told apart, by status and body.
//!
//! | answer | meaning | retried |
//! | --- | --- | --- |
//! | 200 to 299 with what was asked for, such as a chat completion | success | |
//! | 200 to 299 with anything else | malformed answer, which still costs what it says or its estimate | no |
//! | 429, 529 | rate limited | yes, never given up |
//! | 503 with a Retry-After that can be read | rate limited: the server says when to come back | yes, never given up |
//! | other 5xx | server failure | yes, a bounded number of times |
//! | no answer in time, 408, 504 | timeout, of which the first costs its estimate | yes, a bounded number of times |
//! | refused, reset or unresolved connection | no connection | yes, a bounded number of times |
//! | 401, 403 | key refused | no |
//! | 404 | no such URL or model | no |
//! | any other status | request refused | no |

use std::fmt;
use std::time::SystemTime;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tidegate_core::budget::Usage;
use tidegate_core::request::Outcome;
use tidegate_core::time::Duration;

use crate::response::read_head;

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
    /// No connection, or one that broke.
    Connection {
        /// Why, without the address.
        detail: String,
    },
    /// The key was refused.
    Authentication {
        /// The HTTP status.
        status: u16,
    },
    /// The address or the model does not exist.
    NotFound {
        /// The server's message, cut.
        detail: String,
    },
    /// The request was refused for another reason.
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's message, cut.
        detail: String,
    },
    /// Success by status, but not what was asked for.
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
            Self::Authentication { status } => write!(f, "the API key was refused or is missing (HTTP {status})"),
            Self::NotFound { detail } => {
                f.write_str("no such model or address (HTTP 404)")?;
                with(f, detail)
            }
            Self::Rejected { status, detail } => {
                write!(f, "the request was refused (HTTP {status})")?;
                with(f, detail)
            }
            Self::Malformed { what, detail, .. } => write!(f, "the answer is not {what}: {detail}"),
            Self::Command { detail } => write!(f, "the command failed ({detail})"),
            Self::CommandBusy { detail } => write!(f, "the command asks to be run again later ({detail})"),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    /// The same error with `change` applied to the text that came from outside.
    #[must_use]
    pub(super) fn map_detail(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Server { detail, .. }
            | Self::Connection { detail }
            | Self::NotFound { detail }
            | Self::Rejected { detail, .. }
            | Self::Malformed { detail, .. }
            | Self::Command { detail }
            | Self::CommandBusy { detail } => *detail = change(detail),
            Self::RateLimited { .. } | Self::Timeout | Self::ServerTimeout { .. } | Self::Authentication { .. } => {}
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
    let code = status.as_u16();
    let said = read_head(status, headers, now).completion;
    Some(match status {
        _ if said.outcome == Outcome::RateLimited => {
            CallError::RateLimited { status: code, retry_after: said.retry_after }
        }
        _ if said.outcome == Outcome::ProviderTimeout => CallError::ServerTimeout { status: code },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CallError::Authentication { status: code },
        StatusCode::NOT_FOUND => CallError::NotFound { detail: server_message(body) },
        status if status.is_server_error() => CallError::Server { status: code, detail: server_message(body) },
        _ => CallError::Rejected { status: code, detail: server_message(body) },
    })
}

/// Says whether a body is no JSON at all or JSON of another shape. The body itself is not shown: it may hold anything.
pub(super) fn json_complaint(error: &serde_json::Error, body: &[u8]) -> String {
    match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ if body.is_empty() => "it is empty".to_string(),
        _ => format!("it is not JSON ({error})"),
    }
}

/// `text` on one line, cut.
pub(super) fn one_line(text: &str) -> String {
    let text = text.trim();
    let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_CHARS).collect();
    if text.chars().count() > EXCERPT_CHARS { one_line + "…" } else { one_line }
}

/// The message of an error body in the form most providers share, cut; empty for any other body.
fn server_message(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return String::new() };
    let error = &value["error"];
    let text = error["message"].as_str().or(error.as_str()).or(value["message"].as_str()).unwrap_or_default();
    one_line(text)
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
        assert_eq!(meaning(401, None, "{}"), Err(CallError::Authentication { status: 401 }));
        assert_eq!(meaning(403, None, "{}"), Err(CallError::Authentication { status: 403 }));
        assert!(matches!(meaning(404, None, "{}"), Err(CallError::NotFound { .. })));
        assert!(matches!(meaning(500, None, "<html>"), Err(CallError::Server { status: 500, .. })));
        assert!(matches!(meaning(400, None, "{}"), Err(CallError::Rejected { status: 400, .. })));
        assert!(matches!(meaning(302, None, ""), Err(CallError::Rejected { status: 302, .. })));
        assert_eq!(meaning(504, None, ""), Err(CallError::ServerTimeout { status: 504 }));
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
