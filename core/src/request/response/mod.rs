//! What an HTTP or gRPC answer means for admission: how the call ended, when to try again, what is left of
//! the rate limits.
//!
//! This is the one table of what an answer means; hosts only fetch headers and parse bodies. The head decides
//! first:
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
//! Retry-After is read as seconds, as a date, and as `retry-after-ms`; gRPC says it as
//! `grpc-retry-pushback-ms`. A refusal that has none takes the wait from the `x-ratelimit-reset-*` headers of
//! what is used up:
//!
//! | header | meaning |
//! | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | how much is allowed in a window |
//! | `x-ratelimit-remaining-requests`, `-tokens` | how much of it is left |
//! | `x-ratelimit-reset-requests`, `-tokens` | when all of it is back: `20ms`, `1h2m3.5s`, seconds, or a [moment](reset_after) |
//!
//! The same without a suffix (`x-ratelimit-remaining`, `x-rate-limit-remaining`, `ratelimit-remaining`)
//! speaks of requests. Known, too, are
//!
//! - names with a window: `x-ratelimit-remaining-requests-day`, `-tokens-minute`, and Mistral's
//!   `x-ratelimit-remaining-req-minute`;
//! - Anthropic's: `anthropic-ratelimit-requests-remaining`, `-tokens-`, `-input-tokens-`, `-output-tokens-`;
//! - the IETF's drafts: `ratelimit-limit: 100, 100;w=60`, and the fields `ratelimit` and `ratelimit-policy`
//!   (`policy`).
//!
//! A value that cannot be read is as good as absent.
//!
//! Headers, dates and the wall clock come from the host, behind [`Headers`]. A moment is told by the
//! provider's clock: how far away it is counts from the `Date` of the same answer, and from the host's clock
//! only without one.
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
mod policy;
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
/// The milliseconds form of Retry-After, which some providers send beside the standard header because that
/// counts whole seconds only.
pub const RETRY_AFTER_MS: &str = "retry-after-ms";
const GRPC_STATUS: &str = "grpc-status";
const GRPC_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The headers of one rate, in the order limit, remaining, reset; of each, the first one that is there
/// counts.
struct Family {
    dimension: Dimension,
    /// The window that the names tell.
    window: Option<Duration>,
    names: [&'static [&'static str]; 3],
}

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
const HOUR: Option<Duration> = Some(Duration::from_secs(3_600));
const DAY: Option<Duration> = Some(Duration::from_secs(86_400));

const FAMILIES: [Family; 10] = [
    Family {
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
    Family {
        dimension: Dimension::Requests,
        window: MINUTE,
        names: [
            &["x-ratelimit-limit-req-minute", "x-ratelimit-limit-requests-minute"],
            &["x-ratelimit-remaining-req-minute", "x-ratelimit-remaining-requests-minute"],
            &["x-ratelimit-reset-req-minute", "x-ratelimit-reset-requests-minute"],
        ],
    },
    Family {
        dimension: Dimension::Requests,
        window: HOUR,
        names: [
            &["x-ratelimit-limit-requests-hour"],
            &["x-ratelimit-remaining-requests-hour"],
            &["x-ratelimit-reset-requests-hour"],
        ],
    },
    Family {
        dimension: Dimension::Requests,
        window: DAY,
        names: [
            &["x-ratelimit-limit-requests-day"],
            &["x-ratelimit-remaining-requests-day"],
            &["x-ratelimit-reset-requests-day"],
        ],
    },
    Family {
        dimension: Dimension::TotalTokens,
        window: None,
        names: [
            &["x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit"],
            &["x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-remaining"],
            &["x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"],
        ],
    },
    Family {
        dimension: Dimension::TotalTokens,
        window: MINUTE,
        names: [
            &["x-ratelimit-limit-tokens-minute"],
            &["x-ratelimit-remaining-tokens-minute"],
            &["x-ratelimit-reset-tokens-minute"],
        ],
    },
    Family {
        dimension: Dimension::TotalTokens,
        window: HOUR,
        names: [
            &["x-ratelimit-limit-tokens-hour"],
            &["x-ratelimit-remaining-tokens-hour"],
            &["x-ratelimit-reset-tokens-hour"],
        ],
    },
    Family {
        dimension: Dimension::TotalTokens,
        window: DAY,
        names: [
            &["x-ratelimit-limit-tokens-day"],
            &["x-ratelimit-remaining-tokens-day"],
            &["x-ratelimit-reset-tokens-day"],
        ],
    },
    Family {
        dimension: Dimension::InputTokens,
        window: None,
        names: [
            &["anthropic-ratelimit-input-tokens-limit"],
            &["anthropic-ratelimit-input-tokens-remaining"],
            &["anthropic-ratelimit-input-tokens-reset"],
        ],
    },
    Family {
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

/// Every header that is ever looked up, for a host that has to fetch them beforehand.
pub const NAMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < OTHER_NAMES.len() {
        names[at] = OTHER_NAMES[at];
        at += 1;
    }
    let (mut family, mut kind, mut nth) = (0, 0, 0);
    while family < FAMILIES.len() {
        let list = FAMILIES[family].names[kind];
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
    while family < FAMILIES.len() {
        let [limit, remaining, reset] = FAMILIES[family].names;
        count += limit.len() + remaining.len() + reset.len();
        family += 1;
    }
    count
};

/// The headers of an answer, and the wall clock they are to be read by.
pub trait Headers {
    /// The value of a header; `None` if it is not there or no text. `name` is in lower case, one of
    /// [`NAMES`].
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

/// How a gRPC call ended, by the headers of an answer without a body or by its trailers; `None` if they do
/// not say.
#[must_use]
pub fn grpc(metadata: &dyn Headers) -> Option<Completion> {
    let number = |name| text(metadata, name)?.parse::<i64>().ok();
    Some(match number(GRPC_STATUS)? {
        0 => Outcome::Success.into(),
        1 => Outcome::LocalCancelled.into(),
        // Invalid argument, not found, already exists, permission denied, failed precondition, out of range,
        // unimplemented.
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

/// The wait that `headers` ask for: `retry-after-ms` if it is there and readable, else `Retry-After` as
/// seconds (fractions are accepted although the standard has none) or as an HTTP date.
///
/// A date that is past asks for no wait. An unreadable value counts as none: the caller's own cooldown then
/// applies.
#[must_use]
pub fn retry_after(headers: &dyn Headers) -> Option<Duration> {
    if let Some(wait) = text(headers, RETRY_AFTER_MS).and_then(wait::millis) {
        return Some(wait);
    }
    let standard = text(headers, RETRY_AFTER)?;
    seconds(standard).or_else(|| Some(until(headers, headers.unix_time(standard)?)))
}

/// What `headers` say of each rate that they name, requests before tokens; nothing of one that no header
/// names.
#[must_use]
pub fn rate_limits(headers: &dyn Headers) -> Vec<Correction> {
    let about = |family: &Family| {
        let [limit, remaining, reset] = family.names.map(|names| names.iter().find_map(|name| text(headers, name)));
        let nothing = Correction { window: family.window, ..Correction::of(family.dimension) };
        let corrections = Correction {
            limit: limit.and_then(policy::first_number),
            remaining: remaining.and_then(policy::first_number),
            reset_after: reset.and_then(|text| reset_after(headers, text)),
            window: family.window.or_else(|| policy::window_of(limit?)),
            ..nothing
        };
        (corrections.limit.is_some() || corrections.remaining.is_some() || corrections.reset_after.is_some())
            .then_some(corrections)
    };
    let named = FAMILIES.iter().filter_map(about);
    named.chain(policy::read(text(headers, policy::STATE), text(headers, policy::POLICY))).collect()
}

/// How long it is until the reset that `text` speaks of: a wait, a date or a Unix time. `headers` are those
/// of the same answer. Zero for a moment that is past; `None` for what cannot be read.
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

/// How long until what is used up is back, of the dimensions that have nothing left: what a refusal without
/// Retry-After asks for.
fn wait_of_exhausted(corrections: &[Correction]) -> Option<Duration> {
    corrections.iter().filter(|one| one.remaining == Some(0)).filter_map(|one| one.reset_after).max()
}

fn text<'a>(headers: &'a dyn Headers, name: &str) -> Option<&'a str> {
    headers.get(name).map(str::trim)
}
