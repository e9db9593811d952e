//! Interprets HTTP and gRPC responses for admission: how the call ended, when to retry, and what remains of
//! the provider's rate limits.
//!
//! All rules are in this module; hosts only fetch headers and parse bodies. Status and headers are evaluated
//! first:
//!
//! | response | outcome |
//! | --- | --- |
//! | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | rate limited |
//! | 408, 504; gRPC `DEADLINE_EXCEEDED` | provider timeout |
//! | other 5xx; gRPC `UNAVAILABLE`, `INTERNAL`, `UNKNOWN`, `ABORTED`, `DATA_LOSS` | provider failure |
//! | 401; gRPC `UNAUTHENTICATED` | key rejected ([`Outcome::KeyRejected`]) |
//! | 402 | quota exhausted |
//! | other 4xx; any other gRPC status but `OK` and `CANCELLED` | request rejected |
//! | gRPC `CANCELLED` | local cancelled |
//! | anything else, once the body is complete | success |
//!
//! Providers use one status for very different errors, so the body of an error may refine the outcome: see
//! [`ResponseInfo::refine`] and the rules in [`ErrorDetails`].
//!
//! The wait before a retry is read from `retry-after-ms`, from `Retry-After` (seconds or a date), and for
//! gRPC from `grpc-retry-pushback-ms`. If a rate-limited response has none of them, the wait is taken from
//! the `x-ratelimit-reset-*` headers of the rates that have nothing left:
//!
//! | header | meaning |
//! | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | the amount allowed in a window |
//! | `x-ratelimit-remaining-requests`, `-tokens` | the amount that is left |
//! | `x-ratelimit-reset-requests`, `-tokens` | when the full amount is available again |
//!
//! A reset is a duration (`20ms`, `1h2m3.5s`), a number of seconds, or a point in time: see [`reset_after`].
//!
//! Without a suffix (`x-ratelimit-remaining`, `x-rate-limit-remaining`, `ratelimit-remaining`), a header
//! counts requests. These names are also known:
//!
//! - names with a window: `x-ratelimit-remaining-requests-day`, `-tokens-minute`, and Mistral's
//!   `x-ratelimit-remaining-req-minute`;
//! - Anthropic's: `anthropic-ratelimit-requests-remaining`, `-tokens-`, `-input-tokens-`, `-output-tokens-`;
//! - the IETF drafts: `ratelimit-limit: 100, 100;w=60`, and the fields `ratelimit` and `ratelimit-policy`.
//!
//! A value that cannot be parsed is treated as absent.
//!
//! The host provides headers, date parsing and the wall clock through [`Headers`]. A point in time is
//! relative to the provider's clock: the time until it counts from the `Date` header of the same response, or
//! from the host's clock if that header is missing.
//!
//! ```
//! use tidegate_core::request::Completion;
//! use tidegate_core::request::response::{ResponseInfo, Headers};
//! use tidegate_core::time::Duration;
//!
//! struct Pairs(&'static [(&'static str, &'static str)]);
//!
//! impl Headers for Pairs {
//!     fn get(&self, name: &str) -> Option<&str> {
//!         self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
//!     }
//!
//!     fn unix_time(&self, _date: &str) -> Option<Duration> {
//!         None
//!     }
//!
//!     fn now(&self) -> Duration {
//!         Duration::ZERO
//!     }
//! }
//!
//! let headers = Pairs(&[("retry-after", "2"), ("x-ratelimit-remaining-requests", "0")]);
//! let info = ResponseInfo::read(429, &headers);
//! assert_eq!(info.completion, Completion::rate_limited(Some(Duration::from_secs(2))));
//! assert_eq!(info.corrections[0].remaining, Some(0));
//! ```

mod error;
mod error_body;
mod policy;
mod wait;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_error;

use alloc::vec::Vec;

pub use error::{ErrorDetails, RejectionReason};
pub use error_body::{ErrorBody, JsonValue};
pub use wait::seconds;

use crate::budget::{Dimension, RateLimitFeedback};
use crate::call::{Completion, Outcome};
use crate::time::Duration;

/// The status "site is overloaded". It is not a registered status, but providers use it.
const OVERLOADED: u16 = 529;

const DATE: &str = "date";
const RETRY_AFTER: &str = "retry-after";
/// The name of the millisecond form of Retry-After. Some providers send it in addition to the standard
/// header, which only has whole seconds.
pub const RETRY_AFTER_MS: &str = "retry-after-ms";
const GRPC_STATUS: &str = "grpc-status";
const GRPC_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The header names of one rate. `names` are those of the limit, of the remaining amount and of the reset;
/// the first name of each that is present is used.
struct HeaderFamily {
    dimension: Dimension,
    /// The window that is part of the names.
    window: Option<Duration>,
    names: [&'static [&'static str]; 3],
}

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
const HOUR: Option<Duration> = Some(Duration::from_secs(3_600));
const DAY: Option<Duration> = Some(Duration::from_secs(86_400));

const HEADER_FAMILIES: [HeaderFamily; 10] = [
    HeaderFamily {
        dimension: Dimension::Requests,
        window: None,
        names: [
            &[
                "x-ratelimit-limit-requests",
                "anthropic-ratelimit-requests-limit",
                "x-ratelimit-limit",
                "x-rate-limit-limit",
                "ratelimit-limit",
            ],
            &[
                "x-ratelimit-remaining-requests",
                "anthropic-ratelimit-requests-remaining",
                "x-ratelimit-remaining",
                "x-rate-limit-remaining",
                "ratelimit-remaining",
            ],
            &[
                "x-ratelimit-reset-requests",
                "anthropic-ratelimit-requests-reset",
                "x-ratelimit-reset",
                "x-rate-limit-reset",
                "ratelimit-reset",
            ],
        ],
    },
    HeaderFamily {
        dimension: Dimension::Requests,
        window: MINUTE,
        names: [
            &["x-ratelimit-limit-req-minute", "x-ratelimit-limit-requests-minute"],
            &["x-ratelimit-remaining-req-minute", "x-ratelimit-remaining-requests-minute"],
            &["x-ratelimit-reset-req-minute", "x-ratelimit-reset-requests-minute"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::Requests,
        window: HOUR,
        names: [
            &["x-ratelimit-limit-requests-hour"],
            &["x-ratelimit-remaining-requests-hour"],
            &["x-ratelimit-reset-requests-hour"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::Requests,
        window: DAY,
        names: [
            &["x-ratelimit-limit-requests-day"],
            &["x-ratelimit-remaining-requests-day"],
            &["x-ratelimit-reset-requests-day"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::TotalTokens,
        window: None,
        names: [
            &["x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit"],
            &["x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-remaining"],
            &["x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::TotalTokens,
        window: MINUTE,
        names: [
            &["x-ratelimit-limit-tokens-minute"],
            &["x-ratelimit-remaining-tokens-minute"],
            &["x-ratelimit-reset-tokens-minute"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::TotalTokens,
        window: HOUR,
        names: [
            &["x-ratelimit-limit-tokens-hour"],
            &["x-ratelimit-remaining-tokens-hour"],
            &["x-ratelimit-reset-tokens-hour"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::TotalTokens,
        window: DAY,
        names: [
            &["x-ratelimit-limit-tokens-day"],
            &["x-ratelimit-remaining-tokens-day"],
            &["x-ratelimit-reset-tokens-day"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::InputTokens,
        window: None,
        names: [
            &["anthropic-ratelimit-input-tokens-limit"],
            &["anthropic-ratelimit-input-tokens-remaining"],
            &["anthropic-ratelimit-input-tokens-reset"],
        ],
    },
    HeaderFamily {
        dimension: Dimension::OutputTokens,
        window: None,
        names: [
            &["anthropic-ratelimit-output-tokens-limit"],
            &["anthropic-ratelimit-output-tokens-remaining"],
            &["anthropic-ratelimit-output-tokens-reset"],
        ],
    },
];

const OTHER_NAMES: [&str; 7] =
    [DATE, RETRY_AFTER, RETRY_AFTER_MS, GRPC_STATUS, GRPC_PUSHBACK, policy::STATE, policy::POLICY];

/// The names of all headers that are looked up, for a host that must fetch them in advance.
pub const NAMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < OTHER_NAMES.len() {
        names[at] = OTHER_NAMES[at];
        at += 1;
    }
    let (mut family, mut kind, mut nth) = (0, 0, 0);
    while family < HEADER_FAMILIES.len() {
        let list = HEADER_FAMILIES[family].names[kind];
        names[at] = list[nth];
        (at, nth) = (at + 1, nth + 1);
        if nth == list.len() {
            (kind, nth) = (kind + 1, 0);
        }
        if kind == 3 {
            (family, kind) = (family + 1, 0);
        }
    }
    names
};

const COUNT: usize = {
    let (mut count, mut family) = (OTHER_NAMES.len(), 0);
    while family < HEADER_FAMILIES.len() {
        let [limit, remaining, reset] = HEADER_FAMILIES[family].names;
        count += limit.len() + remaining.len() + reset.len();
        family += 1;
    }
    count
};

/// The headers of a response, and the wall clock to interpret them with.
pub trait Headers {
    /// Returns the value of a header, or `None` if it is absent or not text. `name` is in lower case and one
    /// of [`NAMES`].
    fn get(&self, name: &str) -> Option<&str>;

    /// Returns the Unix time of an HTTP date or an RFC 3339 date, or `None` for any other text and for a date
    /// before 1970.
    fn unix_time(&self, date: &str) -> Option<Duration>;

    /// Returns the current Unix time.
    fn now(&self) -> Duration;
}

/// The interpretation of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseInfo {
    /// The HTTP status.
    pub status: u16,
    /// How the call ended, if its body arrives completely.
    pub completion: Completion,
    /// Why the request was rejected, if the outcome is [`Outcome::RequestRejected`].
    pub rejection: Option<RejectionReason>,
    /// The state of the provider's rate limits according to the headers.
    pub corrections: Vec<RateLimitFeedback>,
}

impl ResponseInfo {
    /// Interprets an HTTP status and headers.
    #[must_use]
    pub fn read(status: u16, headers: &dyn Headers) -> Self {
        let corrections = rate_limits(headers);
        let completion = grpc(headers).unwrap_or_else(|| {
            let mut completion = of_status(status, retry_after(headers));
            if completion.outcome == Outcome::RateLimited && completion.retry_after.is_none() {
                completion.retry_after = wait_of_exhausted(&corrections);
            }
            completion
        });
        Self { status, completion, rejection: RejectionReason::of(status, completion.outcome), corrections }
    }

    /// Returns whether the provider refused the call with a rate limit.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.completion.outcome == Outcome::RateLimited
    }
}

/// Returns how a call with this HTTP status ended.
fn of_status(status: u16, retry_after: Option<Duration>) -> Completion {
    match status {
        429 | OVERLOADED => Completion::rate_limited(retry_after),
        503 if retry_after.is_some() => Completion::rate_limited(retry_after),
        408 | 504 => Outcome::ProviderTimeout.into(),
        401 => Outcome::KeyRejected.into(),
        402 => Outcome::QuotaExhausted.into(),
        400..=499 => Outcome::RequestRejected.into(),
        500.. => Outcome::ProviderFailure.into(),
        _ => Outcome::Success.into(),
    }
}

/// Returns how a gRPC call ended, from the headers of a response without a body or from its trailers. Returns
/// `None` if `metadata` has no `grpc-status`.
#[must_use]
pub fn grpc(metadata: &dyn Headers) -> Option<Completion> {
    let number = |name| text(metadata, name)?.parse::<i64>().ok();
    Some(match number(GRPC_STATUS)? {
        0 => Outcome::Success.into(),
        1 => Outcome::LocalCancelled.into(),
        // Invalid argument, not found, already exists, permission denied, failed precondition, out of range,
        // unimplemented.
        3 | 5 | 6 | 7 | 9 | 11 | 12 => Outcome::RequestRejected.into(),
        4 => Outcome::ProviderTimeout.into(),
        16 => Outcome::KeyRejected.into(),
        // A negative pushback means "do not retry". Whether to retry is the caller's decision, so it is
        // treated as absent.
        8 => {
            let pushback = number(GRPC_PUSHBACK).and_then(|millis| u64::try_from(millis).ok());
            Completion::rate_limited(pushback.map(Duration::from_millis))
        }
        _ => Outcome::ProviderFailure.into(),
    })
}

/// Returns the wait that `headers` state: `retry-after-ms` if it can be parsed, else `Retry-After` as
/// seconds or as a date. Fractions of seconds are accepted although the standard has none.
///
/// A date in the past is a wait of zero. Returns `None` for a value that cannot be parsed; the caller's own
/// cooldown then applies.
#[must_use]
pub fn retry_after(headers: &dyn Headers) -> Option<Duration> {
    if let Some(wait) = text(headers, RETRY_AFTER_MS).and_then(wait::millis) {
        return Some(wait);
    }
    let standard = text(headers, RETRY_AFTER)?;
    seconds(standard).or_else(|| Some(until(headers, headers.unix_time(standard)?)))
}

/// Returns the state of each rate that `headers` contain, requests before tokens, followed by those of the
/// `ratelimit` field.
#[must_use]
pub fn rate_limits(headers: &dyn Headers) -> Vec<RateLimitFeedback> {
    let correction_of = |family: &HeaderFamily| {
        let [limit, remaining, reset] = family.names.map(|names| names.iter().find_map(|name| text(headers, name)));
        let empty = RateLimitFeedback { window: family.window, ..RateLimitFeedback::of(family.dimension) };
        let correction = RateLimitFeedback {
            limit: limit.and_then(policy::first_number),
            remaining: remaining.and_then(policy::first_number),
            reset_after: reset.and_then(|text| reset_after(headers, text)),
            window: family.window.or_else(|| policy::window_of(limit?)),
            ..empty
        };
        (correction.limit.is_some() || correction.remaining.is_some() || correction.reset_after.is_some())
            .then_some(correction)
    };
    let named = HEADER_FAMILIES.iter().filter_map(correction_of);
    named.chain(policy::read(text(headers, policy::STATE), text(headers, policy::POLICY))).collect()
}

/// Returns the time until the reset in `text`: a duration, a date or a Unix time. `headers` are those of the
/// same response. Returns zero for a time in the past, and `None` for text that cannot be parsed.
#[must_use]
pub fn reset_after(headers: &dyn Headers, text: &str) -> Option<Duration> {
    wait::span(text).or_else(|| Some(until(headers, wait::unix_time(text).or_else(|| headers.unix_time(text))?)))
}

/// Returns the time until a Unix time, by the `Date` of `headers`, or by the host's clock if it is missing.
fn until(headers: &dyn Headers, unix_time: Duration) -> Duration {
    let sent = text(headers, DATE).and_then(|date| headers.unix_time(date));
    let now = sent.unwrap_or_else(|| headers.now());
    Duration::from_nanos(unix_time.as_nanos().saturating_sub(now.as_nanos()))
}

/// Returns the longest reset among the rates that have nothing left: the wait after a rate limit without
/// Retry-After.
fn wait_of_exhausted(corrections: &[RateLimitFeedback]) -> Option<Duration> {
    corrections.iter().filter(|one| one.remaining == Some(0)).filter_map(|one| one.reset_after).max()
}

fn text<'a>(headers: &'a dyn Headers, name: &str) -> Option<&'a str> {
    headers.get(name).map(str::trim)
}
