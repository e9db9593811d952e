//! A provider that refuses traffic which rises too fast, however little it is.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, require};
use crate::millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The greatest number of calls in a period.
const MOST: u32 = 1_000_000_000;

/// In each period, counted from [`Instant::ZERO`], `least` calls are let through, or `growth` times as many
/// as in the one before, if that is more.
///
/// In a file: `{ period_ms = 10000, growth = 1.5, least = 20, retry_after_ms = 1000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surge {
    /// How long a period is, more than 0 and up to 365 days.
    #[serde(rename = "period_ms", with = "millis")]
    pub period: Duration,
    /// How many times as many calls a period may bring as the one before, 1 to 100.
    pub growth: f64,
    /// How many any period may bring, 1 to 1000000000.
    pub least: u32,
    /// What a refusal says about when to come back, if anything, up to 365 days.
    #[serde(rename = "retry_after_ms", default, skip_serializing_if = "Option::is_none", with = "millis::option")]
    pub retry_after: Option<Duration>,
}

impl Surge {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require(!self.period.is_zero(), "period_ms", in_millis(self.period), "a duration above 0")?;
        require_span("period_ms", self.period)?;
        require((1.0..=100.0).contains(&self.growth), "growth", self.growth, "a number from 1 to 100")?;
        require((1..=MOST).contains(&self.least), "least", self.least, "a whole number from 1 to 1000000000")?;
        self.retry_after.map_or(Ok(()), |span| require_span("retry_after_ms", span))
    }
}

/// A guard against surges at work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guard {
    /// The period of the latest call, how many it has let through, and how many the one before.
    period: u64,
    admitted: u64,
    before: u64,
}

impl Guard {
    /// How many the period of `now` has let through, and how many it may.
    fn period_use(&self, surge: &Surge, now: Instant) -> (u64, u64) {
        let (admitted, before) = match now.as_nanos() / surge.period.as_nanos().max(1) - self.period {
            0 => (self.admitted, self.before),
            1 => (0, self.admitted),
            _ => (0, 0),
        };
        (admitted, ((before as f64 * surge.growth) as u64).max(u64::from(surge.least)))
    }

    /// How long after `now` a call would be let through if nobody else came.
    pub(super) fn wait(&self, surge: &Surge, now: Instant) -> Duration {
        let (admitted, most) = self.period_use(surge, now);
        let period = surge.period.as_nanos().max(1);
        if admitted < most { Duration::ZERO } else { Duration::from_nanos(period - now.as_nanos() % period) }
    }

    /// Lets a call through.
    pub(super) fn take(&mut self, surge: &Surge, now: Instant) {
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
