//! The surge limit: a provider refuses traffic that grows too fast, even far below its capacity.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, require};
use crate::millis::{Millis, OptionalMillis};
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The highest number of calls in a period.
const MAX_CALLS: u32 = 1_000_000_000;

/// A limit on the growth of traffic.
///
/// Periods start at [`Instant::ZERO`] and follow each other. Each period lets through `growth` times as many
/// calls as the previous period let through, but at least `least` calls.
///
/// In a file: `{ period_ms = 10000, growth = 1.5, least = 20, retry_after_ms = 1000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Surge {
    /// The length of a period, above 0 and up to 365 days.
    #[serde(rename = "period_ms", with = "Millis")]
    pub period: Duration,
    /// The highest ratio of the calls of a period to those of the previous period, 1 to 100.
    pub growth: f64,
    /// The number of calls that every period lets through, 1 to 1000000000.
    pub least: u32,
    /// The Retry-After of a refusal, up to 365 days. Default none.
    #[serde(rename = "retry_after_ms", default, skip_serializing_if = "Option::is_none", with = "OptionalMillis")]
    pub retry_after: Option<Duration>,
}

impl Surge {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require(!self.period.is_zero(), "period_ms", in_millis(self.period), "a duration above 0")?;
        require_span("period_ms", self.period)?;
        require((1.0..=100.0).contains(&self.growth), "growth", self.growth, "a number from 1 to 100")?;
        require((1..=MAX_CALLS).contains(&self.least), "least", self.least, "a whole number from 1 to 1000000000")?;
        self.retry_after.map_or(Ok(()), |span| require_span("retry_after_ms", span))
    }
}

/// The state of a [`Surge`] limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SurgeLimit {
    /// The number of the period of the latest admitted call.
    period: u64,
    /// How many calls that period has let through.
    admitted: u64,
    /// How many calls the period before it has let through.
    before: u64,
}

impl SurgeLimit {
    /// Returns how many calls the period of `now` has let through so far, and how many it may let through.
    fn use_and_quota(&self, surge: &Surge, now: Instant) -> (u64, u64) {
        let (admitted, before) = match now.as_nanos() / surge.period.as_nanos().max(1) - self.period {
            0 => (self.admitted, self.before),
            1 => (0, self.admitted),
            _ => (0, 0),
        };
        (admitted, ((before as f64 * surge.growth) as u64).max(u64::from(surge.least)))
    }

    /// Returns how long after `now` a call would be let through, if no other call arrives.
    pub(super) fn wait(&self, surge: &Surge, now: Instant) -> Duration {
        let (admitted, most) = self.use_and_quota(surge, now);
        let period = surge.period.as_nanos().max(1);
        if admitted < most { Duration::ZERO } else { Duration::from_nanos(period - now.as_nanos() % period) }
    }

    /// Counts an admitted call.
    pub(super) fn admit(&mut self, surge: &Surge, now: Instant) {
        let period = now.as_nanos() / surge.period.as_nanos().max(1);
        self.before = match period - self.period {
            0 => self.before,
            1 => self.admitted,
            _ => 0,
        };
        self.admitted = if period == self.period { self.admitted + 1 } else { 1 };
        self.period = period;
    }
}
