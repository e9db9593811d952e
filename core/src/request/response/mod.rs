//! What an HTTP or gRPC answer means for admission: how the call ended, when to try again, what is left of the rate limits.
//!
//! This is the one table of what an answer means; hosts only fetch headers and parse bodies. The head decides first:
//!
//! | answer | outcome |
//! | --- | --- |
//! | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | rate limited |
//! | 408, 504; gRPC `DEADLINE_EXCEEDED` | provider timeout |
//! | other 5xx; gRPC `UNAVAILABLE`, `INTERNAL`, `UNKNOWN`, `ABORTED`, `DATA_LOSS` | provider failure |
//! | 401; gRPC `UNAUTHENTICATED` | key refused |
//! | 402 | quota exhausted |
//! | other 4xx; any other gRPC status but `OK` and `CANCELLED` | request refused |
//! | gRPC `CANCELLED` | local cancelled |
//! | anything else, once its body has ended | success |
//!
//! The body of an error may say more, since providers put very different things under one status:
//! [`ResponseInfo::refine`] and the table in [`ErrorDetails`].
//!
//! Retry-After is read as seconds, as a date, and as `retry-after-ms`; gRPC says it as `grpc-retry-pushback-ms`. A
//! refusal that has none takes the wait from the `x-ratelimit-reset-*` headers of what is used up:
//!
//! | header | meaning |
//! | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | how much is allowed in a window |
//! | `x-ratelimit-remaining-requests`, `-tokens` | how much of it is left |
//! | `x-ratelimit-reset-requests`, `-tokens` | when all of it is back: `20ms`, `1h2m3.5s`, seconds, or a [moment](reset_after) |
//!
//! The same without a suffix (`x-ratelimit-remaining`) speaks of requests. Mistral's names (`x-ratelimit-remaining-req-minute`) and
//! Anthropic's (`anthropic-ratelimit-requests-remaining`) are known, too. A value that cannot be read is as good as absent.
//!
//! Headers, dates and the wall clock come from the host, behind [`Headers`]. A moment is told by the provider's clock: how far away it is
//! counts from the `Date` of the same answer, and from the host's clock only without one.
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
//! let head = ResponseInfo::read(429, &Pairs(&[("retry-after", "2"), ("x-ratelimit-remaining-requests", "0")]));
//! assert_eq!(head.completion, Completion::rate_limited(Some(Duration::from_secs(2))));
//! assert_eq!(head.corrections[0].remaining, Some(0));
//! ```

mod error;
mod error_body;
mod wait;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_error;

use alloc::vec::Vec;

pub use error::{ErrorDetails, Refusal};
pub use error_body::{ErrorBody, JsonValue};
pub use wait::seconds;

use crate::budget::{Correction, Dimension};
use crate::call::{Completion, Outcome};
use crate::time::Duration;

/// "Site is overloaded": not registered, but in use.
const OVERLOADED: u16 = 529;

const DATE: &str = "date";
const RETRY_AFTER: &str = "retry-after";
/// The milliseconds form of Retry-After, which some providers send beside the standard header because that counts whole
/// seconds only.
pub const RETRY_AFTER_MS: &str = "retry-after-ms";
const GRPC_STATUS: &str = "grpc-status";
const GRPC_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The headers of each dimension, in the order limit, remaining, reset; the first one that is there counts.
const REQUESTS: [&[&str]; 3] = [
    &[
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-req-minute",
        "anthropic-ratelimit-requests-limit",
        "x-ratelimit-limit",
    ],
    &[
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-req-minute",
        "anthropic-ratelimit-requests-remaining",
        "x-ratelimit-remaining",
    ],
    &["x-ratelimit-reset-requests", "anthropic-ratelimit-requests-reset", "x-ratelimit-reset"],
];
const TOKENS: [&[&str]; 3] = [
    &["x-ratelimit-limit-tokens", "x-ratelimit-limit-tokens-minute", "anthropic-ratelimit-tokens-limit"],
    &["x-ratelimit-remaining-tokens", "x-ratelimit-remaining-tokens-minute", "anthropic-ratelimit-tokens-remaining"],
    &["x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"],
];

/// Every header that is ever looked up, for a host that has to fetch them beforehand.
pub const NAMES: [&str; 24] = [
    DATE,
    RETRY_AFTER,
    RETRY_AFTER_MS,
    GRPC_STATUS,
    GRPC_PUSHBACK,
    REQUESTS[0][0],
    REQUESTS[0][1],
    REQUESTS[0][2],
    REQUESTS[0][3],
    REQUESTS[1][0],
    REQUESTS[1][1],
    REQUESTS[1][2],
    REQUESTS[1][3],
    REQUESTS[2][0],
    REQUESTS[2][1],
    REQUESTS[2][2],
    TOKENS[0][0],
    TOKENS[0][1],
    TOKENS[0][2],
    TOKENS[1][0],
    TOKENS[1][1],
    TOKENS[1][2],
    TOKENS[2][0],
    TOKENS[2][1],
];

/// The headers of an answer, and the wall clock they are to be read by.
pub trait Headers {
    /// The value of a header; `None` if it is not there or no text. `name` is in lower case, one of [`NAMES`].
    fn get(&self, name: &str) -> Option<&str>;

    /// The Unix time of an HTTP date or an RFC 3339 date; `None` for what is neither, or before 1970.
    fn unix_time(&self, date: &str) -> Option<Duration>;

    /// The Unix time now.
    fn now(&self) -> Duration;
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseInfo {
    /// The HTTP status.
    pub status: u16,
    /// How the call ends, if its body comes through whole.
    pub completion: Completion,
    /// Why a request was refused, where its outcome is [`Outcome::RequestRefused`].
    pub refusal: Option<Refusal>,
    /// What the provider said about its budgets.
    pub corrections: Vec<Correction>,
}

impl ResponseInfo {
    /// Reads an HTTP status and headers.
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
        Self { status, completion, refusal: Refusal::of(status, completion.outcome), corrections }
    }

    /// Whether the provider refused the call for too many calls.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.completion.outcome == Outcome::RateLimited
    }
}

/// How a call of this HTTP status ended. `asked`: its Retry-After.
fn of_status(status: u16, asked: Option<Duration>) -> Completion {
    match status {
        429 | OVERLOADED => Completion::rate_limited(asked),
        503 if asked.is_some() => Completion::rate_limited(asked),
        408 | 504 => Outcome::ProviderTimeout.into(),
        401 => Outcome::KeyRefused.into(),
        402 => Outcome::QuotaExhausted.into(),
        400..=499 => Outcome::RequestRefused.into(),
        500.. => Outcome::ProviderFailure.into(),
        _ => Outcome::Success.into(),
    }
}

/// How a gRPC call ended, by the headers of an answer without a body or by its trailers; `None` if they do not say.
#[must_use]
pub fn grpc(metadata: &dyn Headers) -> Option<Completion> {
    let number = |name| text(metadata, name)?.parse::<i64>().ok();
    Some(match number(GRPC_STATUS)? {
        0 => Outcome::Success.into(),
        1 => Outcome::LocalCancelled.into(),
        // Invalid argument, not found, already exists, permission denied, failed precondition, out of range, unimplemented.
        3 | 5 | 6 | 7 | 9 | 11 | 12 => Outcome::RequestRefused.into(),
        4 => Outcome::ProviderTimeout.into(),
        16 => Outcome::KeyRefused.into(),
        // A negative pushback means "do not try again", which is not the gate's to decide.
        8 => {
            let pushback = number(GRPC_PUSHBACK).and_then(|millis| u64::try_from(millis).ok());
            Completion::rate_limited(pushback.map(Duration::from_millis))
        }
        _ => Outcome::ProviderFailure.into(),
    })
}

/// The wait that `headers` ask for: `retry-after-ms` if it is there and readable, else `Retry-After` as seconds (fractions are
/// accepted although the standard has none) or as an HTTP date.
///
/// A date that is past asks for no wait. An unreadable value counts as none: the caller's own cooldown then applies.
#[must_use]
pub fn retry_after(headers: &dyn Headers) -> Option<Duration> {
    if let Some(wait) = text(headers, RETRY_AFTER_MS).and_then(wait::millis) {
        return Some(wait);
    }
    let standard = text(headers, RETRY_AFTER)?;
    seconds(standard).or_else(|| Some(until(headers, headers.unix_time(standard)?)))
}

/// What `headers` say about requests and about tokens; nothing for a dimension that no header names.
#[must_use]
pub fn rate_limits(headers: &dyn Headers) -> Vec<Correction> {
    let about = |dimension, names: [&[&str]; 3]| {
        let [limit, remaining, reset] = names.map(|names| names.iter().find_map(|name| text(headers, name)));
        let said = Correction {
            limit: limit.and_then(|text| text.parse().ok()),
            remaining: remaining.and_then(|text| text.parse().ok()),
            reset_after: reset.and_then(|text| reset_after(headers, text)),
            ..Correction::of(dimension)
        };
        (said != Correction::of(dimension)).then_some(said)
    };
    [about(Dimension::Requests, REQUESTS), about(Dimension::TotalTokens, TOKENS)].into_iter().flatten().collect()
}

/// How long it is until the reset that `text` speaks of: a wait, a date or a Unix time. `headers` are those of the same answer. Zero for
/// a moment that is past; `None` for what cannot be read.
#[must_use]
pub fn reset_after(headers: &dyn Headers, text: &str) -> Option<Duration> {
    wait::span(text).or_else(|| Some(until(headers, wait::unix_time(text).or_else(|| headers.unix_time(text))?)))
}

/// How long it is until a Unix time, by the clock of whoever sent `headers`.
fn until(headers: &dyn Headers, moment: Duration) -> Duration {
    let sent = text(headers, DATE).and_then(|date| headers.unix_time(date));
    let now = sent.unwrap_or_else(|| headers.now());
    Duration::from_nanos(moment.as_nanos().saturating_sub(now.as_nanos()))
}

/// How long until what is used up is back, of the dimensions that have nothing left: what a refusal without Retry-After asks for.
fn wait_of_exhausted(said: &[Correction]) -> Option<Duration> {
    said.iter().filter(|one| one.remaining == Some(0)).filter_map(|one| one.reset_after).max()
}

fn text<'a>(headers: &'a dyn Headers, name: &str) -> Option<&'a str> {
    headers.get(name).map(str::trim)
}
