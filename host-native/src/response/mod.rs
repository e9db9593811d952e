//! What an HTTP or gRPC answer tells the gate: how the call ended, when to come back, and what is left of the rates.
//!
//! | answer | outcome |
//! | --- | --- |
//! | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | rate limited |
//! | 408, 504; gRPC `DEADLINE_EXCEEDED` | provider timeout |
//! | other 4xx and 5xx; any other gRPC status but `OK` and `CANCELLED` | provider failure |
//! | gRPC `CANCELLED` | local cancelled |
//! | anything else, once its body has ended | success |
//!
//! Retry-After is read as seconds, as a date, and as `retry-after-ms` ([`retry_after`]); gRPC says it as `grpc-retry-pushback-ms`. A
//! refusal that has none takes the wait from the `x-ratelimit-reset-*` headers of what is used up ([`rate_limits`]).
//!
//! A call is out until its body has ended. [`HeldBody`] holds the slot so long, streamed answers included, and lets go of
//! it when it is dropped half-way.

pub mod body;
pub mod rate_limits;
pub mod retry_after;

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use tidegate_core::request::budget::Correction;
use tidegate_core::request::{Completion, Outcome};
use tidegate_core::time::Duration;

pub use body::{Held, HeldBody, Observe};

/// "Site is overloaded": not registered, but in use.
const OVERLOADED: u16 = 529;

/// What the head of an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// How the call ends, if its body comes through whole.
    pub completion: Completion,
    /// What the provider said about its budgets.
    pub corrections: Vec<Correction>,
}

impl Head {
    /// Reads status and headers at wall-clock time `now`.
    #[must_use]
    pub fn read(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Self {
        let corrections: Vec<_> = rate_limits::rate_limits(headers).collect();
        let completion = grpc(headers).unwrap_or_else(|| {
            let asked = retry_after::retry_after(headers, now);
            match status.as_u16() {
                429 | OVERLOADED => {
                    Completion::rate_limited(asked.or_else(|| rate_limits::wait_of_exhausted(&corrections)))
                }
                503 if asked.is_some() => Completion::rate_limited(asked),
                408 | 504 => Outcome::ProviderTimeout.into(),
                400.. => Outcome::ProviderFailure.into(),
                _ => Outcome::Success.into(),
            }
        });
        Self { completion, corrections }
    }

    /// Whether the provider refused the call for too many calls.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.completion.outcome == Outcome::RateLimited
    }
}

/// How a gRPC call ended, by the headers of an answer without a body or by its trailers; `None` if they do not say.
#[must_use]
pub fn grpc(metadata: &HeaderMap) -> Option<Completion> {
    let number =
        |name| metadata.get(name).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
    let status: i64 = number("grpc-status")?;
    Some(match status {
        0 => Outcome::Success.into(),
        1 => Outcome::LocalCancelled.into(),
        4 => Outcome::ProviderTimeout.into(),
        // A negative pushback means "do not try again", which is not the gate's to decide.
        8 => {
            let pushback = number("grpc-retry-pushback-ms").and_then(|millis| u64::try_from(millis).ok());
            Completion::rate_limited(pushback.map(Duration::from_millis))
        }
        _ => Outcome::ProviderFailure.into(),
    })
}

#[cfg(test)]
mod tests;
