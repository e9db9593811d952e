//! Rates per minute, as a token bucket or as a count per fixed window.
//!
//! All arithmetic is in integers, so Retry-After is exact to the nanosecond.

use serde::{Deserialize, Serialize};

use crate::budget::{Dimension, RateLimitFeedback};
use crate::error::{ConfigError, require};
use crate::millis::OptionalMillis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The highest rate and burst.
const MAX_RATE: u32 = 1_000_000_000;

/// The number of units that one call or one token costs: the nanoseconds of a minute. A rate of `r` per
/// minute then refills `r` units per nanosecond, so every level is an integer.
const UNIT: i128 = 60_000_000_000;

/// A limit per minute: a bucket that refills steadily, up to a burst, or a count per fixed window.
///
/// In a file: `{ per_minute = 600, burst = 20 }` or
/// `{ per_minute = 600, window_ms = 10000, retry_after = "seconds" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The sustained rate, 1 to 1000000000.
    pub per_minute: u32,
    /// The size of the bucket, 1 to 1000000000: how much is let through at once after a quiet time. The
    /// bucket is full at the start. Default `per_minute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// The length of the windows, if the rate counts in fixed windows instead of a bucket. Default no
    /// windows.
    ///
    /// Windows start at [`Instant::ZERO`] and follow each other. Each lets through its share of `per_minute`,
    /// at any time within it. A window must be long enough for one call or token, and at most 365 days. There
    /// is no `burst` then.
    #[serde(rename = "window_ms", default, skip_serializing_if = "Option::is_none", with = "OptionalMillis")]
    pub window: Option<Duration>,
    /// The precision of Retry-After in a refusal. Default exact.
    #[serde(default, skip_serializing_if = "is_exact")]
    pub retry_after: RetryAfter,
}

/// The precision of Retry-After in a refusal by a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryAfter {
    /// Exact to the nanosecond.
    #[default]
    Exact,
    /// Whole seconds, rounded up, as in the HTTP header.
    Seconds,
    /// No Retry-After.
    Never,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_exact(retry_after: &RetryAfter) -> bool {
    *retry_after == RetryAfter::Exact
}

impl RetryAfter {
    /// Returns the Retry-After of a refusal if the call would be let through after `wait`.
    pub(super) fn stated(self, wait: Duration) -> Option<Duration> {
        match self {
            Self::Exact => Some(wait),
            Self::Seconds => Some(Duration::from_secs(wait.as_nanos().div_ceil(1_000_000_000))),
            Self::Never => None,
        }
    }
}

impl Rate {
    /// Creates a rate of `per_minute` per minute as a bucket, with a burst of the same size.
    #[must_use]
    pub fn per_minute(per_minute: u32) -> Self {
        Self { per_minute, burst: None, window: None, retry_after: RetryAfter::Exact }
    }

    /// Creates a rate of `per_minute` per minute as a bucket, with a burst of `burst`.
    #[must_use]
    pub fn bursting(per_minute: u32, burst: u32) -> Self {
        Self { burst: Some(burst), ..Self::per_minute(per_minute) }
    }

    /// Creates a rate of `per_minute` per minute that counts in fixed windows.
    #[must_use]
    pub fn in_windows(per_minute: u32, window: Duration) -> Self {
        Self { window: Some(window), ..Self::per_minute(per_minute) }
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let expected = "a whole number from 1 to 1000000000";
        require((1..=MAX_RATE).contains(&self.per_minute), "per_minute", self.per_minute, expected)?;
        self.burst.map_or(Ok(()), |burst| require((1..=MAX_RATE).contains(&burst), "burst", burst, expected))?;
        let Some(window) = self.window else { return Ok(()) };
        require_span("window_ms", window)?;
        let has_one = u128::from(self.per_minute) * u128::from(window.as_nanos()) >= UNIT as u128;
        require(has_one, "window_ms", in_millis(window), "a duration in which the rate lets one through")?;
        self.burst.map_or(Ok(()), |burst| require(false, "burst", burst, "no burst, where windows are counted"))
    }
}

/// What is left of a rate, as a provider states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLeft {
    /// The sustained rate per minute.
    pub per_minute: u32,
    /// How much is let through at once now, rounded down. 0 while the bucket is in debt.
    pub remaining: u32,
    /// How long until the rate is full again, if no call arrives.
    pub full_in: Duration,
}

impl RateLeft {
    /// Converts to the rate-limit headers of a response.
    #[must_use]
    pub fn stated(self, dimension: Dimension) -> RateLimitFeedback {
        RateLimitFeedback {
            limit: Some(u64::from(self.per_minute)),
            remaining: Some(u64::from(self.remaining)),
            reset_after: Some(self.full_in),
            ..RateLimitFeedback::of(dimension)
        }
    }
}

/// The state of a rate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    Bucket(Bucket),
    Windows(Windows),
}

impl Meter {
    /// Creates a meter with the whole rate available.
    pub(super) fn new(rate: Rate) -> Self {
        match rate.window {
            None => Self::Bucket(Bucket::new(rate)),
            Some(window) => Self::Windows(Windows::new(rate, window)),
        }
    }

    /// Returns how long after `now` a call of `cost` would be let through, if no other call arrives. Zero
    /// means now. The result is exact: one nanosecond earlier the call would be refused.
    pub(super) fn wait(&self, now: Instant, cost: u32) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.wait(now, cost),
            Self::Windows(windows) => windows.wait(now, cost),
        }
    }

    /// Charges a call of `cost`. [`Meter::wait`] must be zero for the same `now` and `cost`.
    pub(super) fn charge(&mut self, now: Instant, cost: u32) {
        debug_assert!(self.wait(now, cost).is_zero(), "only a call that is let through is charged");
        match self {
            Self::Bucket(bucket) => bucket.charge(now, cost),
            Self::Windows(windows) => windows.charge(now, cost),
        }
    }

    /// Returns what is left at `now`. `rate` is the rate that the meter was created from.
    pub(super) fn left(&self, rate: Rate, now: Instant) -> RateLeft {
        let (remaining, full_in) = match self {
            Self::Bucket(bucket) => (bucket.level_at(now) / UNIT, bucket.wait(now, u32::MAX)),
            Self::Windows(windows) => (windows.left(now), windows.wait(now, u32::MAX)),
        };
        let remaining = u32::try_from(remaining.max(0)).unwrap_or(u32::MAX);
        RateLeft { per_minute: rate.per_minute, remaining, full_in }
    }
}

/// A token bucket.
///
/// A call that costs more than the whole bucket is let through when the bucket is full, and leaves it in
/// debt. So no call is refused for ever, and the sustained rate still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Units that are refilled per nanosecond.
    gain_per_nano: i128,
    /// The level of a full bucket, in units.
    full: i128,
    /// The level at `at`, in units. It is negative while the bucket is in debt.
    level: i128,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        let full = i128::from(rate.burst.unwrap_or(rate.per_minute)) * UNIT;
        Self { gain_per_nano: i128::from(rate.per_minute.max(1)), full, level: full, at: Instant::ZERO }
    }

    fn level_at(&self, now: Instant) -> i128 {
        let gained = self.gain_per_nano * i128::from(now.saturating_duration_since(self.at).as_nanos());
        self.full.min(self.level + gained)
    }

    fn wait(&self, now: Instant, cost: u32) -> Duration {
        let missing = self.full.min(i128::from(cost) * UNIT) - self.level_at(now);
        if missing <= 0 {
            return Duration::ZERO;
        }
        let nanos = (missing + self.gain_per_nano - 1) / self.gain_per_nano;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn charge(&mut self, now: Instant, cost: u32) {
        self.level = self.level_at(now) - i128::from(cost) * UNIT;
        self.at = now;
    }
}

/// A count per fixed window. A call that costs more than a whole window is let through if nothing else was
/// let through in its window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// The length of a window, in nanoseconds.
    length: u64,
    /// How many calls or tokens each window lets through.
    quota: i128,
    /// The number of the window of the last admitted call.
    latest: u64,
    /// How many calls or tokens that window has let through.
    admitted: i128,
}

impl Windows {
    fn new(rate: Rate, window: Duration) -> Self {
        let length = window.as_nanos().max(1);
        let quota = i128::from(rate.per_minute) * i128::from(length) / UNIT;
        Self { length, quota, latest: 0, admitted: 0 }
    }

    fn admitted_at(&self, now: Instant) -> i128 {
        if now.as_nanos() / self.length == self.latest { self.admitted } else { 0 }
    }

    fn left(&self, now: Instant) -> i128 {
        self.quota - self.admitted_at(now)
    }

    fn wait(&self, now: Instant, cost: u32) -> Duration {
        let admitted = self.admitted_at(now);
        if admitted == 0 || admitted + i128::from(cost) <= self.quota {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.length - now.as_nanos() % self.length)
    }

    fn charge(&mut self, now: Instant, cost: u32) {
        self.admitted = self.admitted_at(now) + i128::from(cost);
        self.latest = now.as_nanos() / self.length;
    }
}
