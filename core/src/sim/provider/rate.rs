//! Rates per minute: a token bucket with exact integer arithmetic, so that Retry-After is exact to the
//! nanosecond; or a count that begins anew with each window.

use serde::{Deserialize, Serialize};

use crate::budget::{Correction, Dimension};
use crate::error::{ConfigError, require};
use crate::millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The greatest rate and burst.
const MOST: u32 = 1_000_000_000;

/// What one call (or one token of text) is worth in a bucket. A bucket for `r` a minute gains `r` of these
/// units in a nanosecond, hence `r` calls in a minute, without a fraction anywhere.
const UNIT: i128 = 60_000_000_000;

/// A rate limit: so many per minute, refilled steadily and saved up to a burst, or counted in windows.
///
/// In a file: `{ per_minute = 600, burst = 20 }` or
/// `{ per_minute = 600, window_ms = 10000, retry_after = "seconds" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The sustained rate, 1 to 1000000000.
    pub per_minute: u32,
    /// How much may come at once after a quiet time, 1 to 1000000000 \[a minute's worth\]. Full at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Counts in windows of so long in place of a bucket, from [`Instant::ZERO`] on: each lets through its
    /// part of a minute's worth, whenever in it, and no more. Long enough for one, up to 365 days \[none\].
    #[serde(rename = "window_ms", default, skip_serializing_if = "Option::is_none", with = "millis::option")]
    pub window: Option<Duration>,
    /// What a refusal says about when to come back \[exact\].
    #[serde(default, skip_serializing_if = "is_exact")]
    pub retry_after: RetryAfter,
}

/// How exactly a refusal says when to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryAfter {
    /// To the nanosecond.
    #[default]
    Exact,
    /// In whole seconds, rounded up, as the header has it.
    Seconds,
    /// Not at all.
    Never,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_exact(retry_after: &RetryAfter) -> bool {
    *retry_after == RetryAfter::Exact
}

impl RetryAfter {
    /// What a refusal says after which a call is let through in `wait`.
    pub(super) fn stated(self, wait: Duration) -> Option<Duration> {
        match self {
            Self::Exact => Some(wait),
            Self::Seconds => Some(Duration::from_secs(wait.as_nanos().div_ceil(1_000_000_000))),
            Self::Never => None,
        }
    }
}

impl Rate {
    /// `per_minute`, all of which may come at once.
    #[must_use]
    pub fn per_minute(per_minute: u32) -> Self {
        Self { per_minute, burst: None, window: None, retry_after: RetryAfter::Exact }
    }

    /// `per_minute`, of which `burst` may come at once.
    #[must_use]
    pub fn bursting(per_minute: u32, burst: u32) -> Self {
        Self { burst: Some(burst), ..Self::per_minute(per_minute) }
    }

    /// `per_minute`, counted in windows.
    #[must_use]
    pub fn in_windows(per_minute: u32, window: Duration) -> Self {
        Self { window: Some(window), ..Self::per_minute(per_minute) }
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let expected = "a whole number from 1 to 1000000000";
        require((1..=MOST).contains(&self.per_minute), "per_minute", self.per_minute, expected)?;
        self.burst.map_or(Ok(()), |burst| require((1..=MOST).contains(&burst), "burst", burst, expected))?;
        let Some(window) = self.window else { return Ok(()) };
        require_span("window_ms", window)?;
        let has_one = u128::from(self.per_minute) * u128::from(window.as_nanos()) >= UNIT as u128;
        require(has_one, "window_ms", in_millis(window), "a duration in which the rate lets one through")?;
        self.burst.map_or(Ok(()), |burst| require(false, "burst", burst, "no burst, where windows are counted"))
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

impl RateLeft {
    /// The same as the headers of an answer say it.
    #[must_use]
    pub fn stated(self, dimension: Dimension) -> Correction {
        Correction {
            limit: Some(u64::from(self.per_minute)),
            remaining: Some(u64::from(self.remaining)),
            reset_after: Some(self.full_in),
            ..Correction::of(dimension)
        }
    }
}

/// A rate at work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    Bucket(Bucket),
    Windows(Windows),
}

impl Meter {
    /// A full one.
    pub(super) fn new(rate: Rate) -> Self {
        match rate.window {
            None => Self::Bucket(Bucket::new(rate)),
            Some(window) => Self::Windows(Windows::new(rate, window)),
        }
    }

    /// How long after `now` a call of `cost` would be let through if nobody else came: zero means now, and
    /// not one nanosecond less would do.
    pub(super) fn wait(&self, now: Instant, cost: u32) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.wait(now, cost),
            Self::Windows(windows) => windows.wait(now, cost),
        }
    }

    /// Takes `cost` out. Only after [`Meter::wait`] answered zero for the same `now` and `cost`.
    pub(super) fn take(&mut self, now: Instant, cost: u32) {
        debug_assert!(self.wait(now, cost).is_zero(), "a call must be let through before it is paid for");
        match self {
            Self::Bucket(bucket) => bucket.take(now, cost),
            Self::Windows(windows) => windows.take(now, cost),
        }
    }

    /// What is left at `now` of this one, which was made from `rate`.
    pub(super) fn left(&self, rate: Rate, now: Instant) -> RateLeft {
        let (remaining, full_in) = match self {
            Self::Bucket(bucket) => (bucket.level_at(now) / UNIT, bucket.wait(now, u32::MAX)),
            Self::Windows(windows) => (windows.left(now), windows.wait(now, u32::MAX)),
        };
        let remaining = u32::try_from(remaining.max(0)).unwrap_or(u32::MAX);
        RateLeft { per_minute: rate.per_minute, remaining, full_in }
    }
}

/// A bucket. Between its full mark and `-cost` of the last call; a call that costs more than the whole bucket
/// is let through when the bucket is full and leaves it in debt, so that no call is refused for ever and the
/// sustained rate holds all the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    gain_per_nano: i128,
    full: i128,
    /// The level at `at`.
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

    fn take(&mut self, now: Instant, cost: u32) {
        self.level = self.level_at(now) - i128::from(cost) * UNIT;
        self.at = now;
    }
}

/// What a window has let through. A call that costs more than a window has is let through by one in which
/// nothing was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    length: u64,
    /// What each lets through.
    quota: i128,
    /// The window that was last taken from, and how much.
    latest: u64,
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

    fn take(&mut self, now: Instant, cost: u32) {
        self.admitted = self.admitted_at(now) + i128::from(cost);
        self.latest = now.as_nanos() / self.length;
    }
}
