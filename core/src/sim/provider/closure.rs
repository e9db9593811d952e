//! Closures: times in which a provider rejects every call for a stated reason.

use serde::{Deserialize, Serialize};

use crate::call::Outcome;
use crate::error::{ConfigError, inside_item, require};
use crate::millis::{Millis, OptionalMillis};
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The highest number of closures of one provider.
const MAX_CLOSURES: usize = 10_000;

/// A time in which every call is rejected, because of the key, the account or the model. Calls accepted
/// before it end normally.
///
/// In a file: `{ starts_at_ms = 30000, lasts_ms = 5000, because = "key_rejected" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Closure {
    /// When the closure starts, counted from [`Instant::ZERO`], up to 365 days.
    #[serde(rename = "starts_at_ms", with = "Millis")]
    pub starts_at: Duration,
    /// How long the closure lasts, above 0 and up to 365 days. Default for ever.
    #[serde(rename = "lasts_ms", default, with = "OptionalMillis", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Duration>,
    /// Why calls are rejected.
    pub because: Rejection,
}

/// Why a provider rejects every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rejection {
    /// The key is revoked.
    KeyRejected,
    /// The account is out of funds or quota.
    QuotaExhausted,
    /// The model does not exist.
    ModelNotFound,
}

impl Rejection {
    /// Returns the HTTP status of the response, as in `OpenAI`'s API.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::KeyRejected => 401,
            Self::QuotaExhausted => 429,
            Self::ModelNotFound => 404,
        }
    }

    /// Returns the error code in the body of the response, as in `OpenAI`'s API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::KeyRejected => "invalid_api_key",
            Self::QuotaExhausted => "insufficient_quota",
            Self::ModelNotFound => "model_not_found",
        }
    }

    /// Returns the outcome of such a call for request admission.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::KeyRejected => Outcome::KeyRejected,
            Self::QuotaExhausted => Outcome::QuotaExhausted,
            Self::ModelNotFound => Outcome::ModelNotFound,
        }
    }
}

impl Closure {
    fn start(&self) -> Instant {
        Instant::ZERO + self.starts_at
    }

    fn end(&self) -> Option<Instant> {
        Some(self.start() + self.lasts?)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        require_span("starts_at_ms", self.starts_at)?;
        let Some(lasts) = self.lasts else { return Ok(()) };
        require(!lasts.is_zero(), "lasts_ms", 0, "a duration above 0")?;
        require_span("lasts_ms", lasts)
    }
}

/// Returns an error for the first closure that is out of range, out of order or overlaps the one before it.
pub(super) fn validate_all(closures: &[Closure]) -> Result<(), ConfigError> {
    require(closures.len() <= MAX_CLOSURES, "closures", closures.len(), "at most 10000 closures")?;
    let mut free_from = Some(Instant::ZERO);
    for (nth, closure) in closures.iter().enumerate() {
        let here = inside_item("closures", nth);
        closure.validate().map_err(here)?;
        let is_free = free_from.is_some_and(|end| end <= closure.start());
        let expected = "a time not before the end of the closure before it";
        require(is_free, "starts_at_ms", in_millis(closure.starts_at), expected).map_err(here)?;
        free_from = closure.end();
    }
    Ok(())
}

/// Returns why calls are rejected at `now`, if they are, and when that changes next, if it does. `closures`
/// are in order of time. O(log closures).
pub(super) fn rejection_at(closures: &[Closure], now: Instant) -> (Option<Rejection>, Option<Instant>) {
    let started = closures.partition_point(|closure| closure.start() <= now);
    let next_start = closures.get(started).map(Closure::start);
    match started.checked_sub(1).and_then(|last| closures.get(last)) {
        Some(closure) if closure.end().is_none_or(|end| now < end) => (Some(closure.because), closure.end()),
        _ => (None, next_start),
    }
}
