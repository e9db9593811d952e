//! Rates per minute: a token bucket with exact integer arithmetic, so that Retry-After is exact to the nanosecond.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, require};
use crate::time::{Duration, Instant};

/// The greatest rate and burst.
const MOST: u32 = 1_000_000_000;

/// What one call (or one token of text) is worth in a bucket. A bucket for `r` a minute gains `r` of these units in a
/// nanosecond, hence `r` calls in a minute, without a fraction anywhere.
const UNIT: i128 = 60_000_000_000;

/// A rate limit: so many per minute, refilled steadily, saved up to a burst.
///
/// In a file: `{ per_minute = 600, burst = 20 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The sustained rate, 1 to 1000000000.
    pub per_minute: u32,
    /// How much may come at once after a quiet time, 1 to 1000000000 \[a minute's worth\]. Full at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl Rate {
    /// `per_minute`, all of which may come at once.
    #[must_use]
    pub fn per_minute(per_minute: u32) -> Self {
        Self { per_minute, burst: None }
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let expected = "a whole number from 1 to 1000000000";
        require((1..=MOST).contains(&self.per_minute), "per_minute", self.per_minute, expected)?;
        self.burst.map_or(Ok(()), |burst| require((1..=MOST).contains(&burst), "burst", burst, expected))
    }
}

/// What a provider would say is left of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLeft {
    /// The sustained rate per minute.
    pub per_minute: u32,
    /// What could come at once now, rounded down; 0 in debt.
    pub remaining: u32,
    /// How long until all of it is back, if nobody came.
    pub full_in: Duration,
}

/// A bucket at work. Between its full mark and `-cost` of the last call; a call that costs more than the whole bucket
/// is let through when the bucket is full and leaves it in debt, so that no call is refused for ever and the sustained
/// rate holds all the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    gain_per_nano: i128,
    full: i128,
    /// The level at `at`.
    level: i128,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: Rate) -> Self {
        let full = i128::from(rate.burst.unwrap_or(rate.per_minute)) * UNIT;
        Self { gain_per_nano: i128::from(rate.per_minute.max(1)), full, level: full, at: Instant::ZERO }
    }

    fn level_at(&self, now: Instant) -> i128 {
        let gained = self.gain_per_nano * i128::from(now.saturating_duration_since(self.at).as_nanos());
        self.full.min(self.level + gained)
    }

    /// How long after `now` a call of `cost` would be let through if nobody else came: zero means now, and not one
    /// nanosecond less would do.
    pub(super) fn wait(&self, now: Instant, cost: u32) -> Duration {
        let missing = self.full.min(i128::from(cost) * UNIT) - self.level_at(now);
        if missing <= 0 {
            return Duration::ZERO;
        }
        let nanos = (missing + self.gain_per_nano - 1) / self.gain_per_nano;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What is left at `now` of this bucket, which was made from `rate`.
    pub(super) fn left(&self, rate: Rate, now: Instant) -> RateLeft {
        let remaining = u32::try_from((self.level_at(now) / UNIT).max(0)).unwrap_or(u32::MAX);
        RateLeft { per_minute: rate.per_minute, remaining, full_in: self.wait(now, u32::MAX) }
    }

    /// Takes `cost` out. Only after [`Bucket::wait`] answered zero for the same `now` and `cost`.
    pub(super) fn take(&mut self, now: Instant, cost: u32) {
        debug_assert!(self.wait(now, cost).is_zero(), "a call must be let through before it is paid for");
        self.level = self.level_at(now) - i128::from(cost) * UNIT;
        self.at = now;
    }
}
