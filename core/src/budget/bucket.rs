//! A token bucket with integer arithmetic.

use super::BudgetConfig;
use crate::time::{Duration, Instant};

/// A bucket that holds up to `burst` and refills evenly by `limit` in each `window`, without rounding. Credit
/// is counted in units of `1 / window` (nanoseconds), so one nanosecond adds `limit` units.
///
/// Equivalent to the generic cell rate algorithm (ITU-T I.371): the theoretical arrival time of that
/// algorithm is the instant at which this bucket is full.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    limit: u64,
    window: i128,
    burst: u64,
    /// The credit at `at`, in units. Negative while overdrawn.
    credit: i128,
    /// The instant at which `credit` was computed.
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(now: Instant, config: &BudgetConfig) -> Self {
        let window = i128::from(config.window.as_nanos());
        let burst = config.burst.unwrap_or(config.limit);
        Self { limit: config.limit, window, burst, credit: i128::from(burst) * window, at: now }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    fn cap(&self) -> i128 {
        i128::from(self.burst) * self.window
    }

    fn credit(&self, now: Instant) -> i128 {
        // 10^15 x 2^64 is below 2^127.
        let gained = i128::from(self.limit) * i128::from((now - self.at).as_nanos());
        self.credit.saturating_add(gained).min(self.cap())
    }

    fn units(&self, amount: u64) -> i128 {
        i128::from(amount).saturating_mul(self.window)
    }

    pub(crate) fn put(&mut self, now: Instant, credit: i128) {
        self.credit = credit.min(self.cap());
        self.at = self.at.max(now);
    }

    /// Returns the amount that may be spent, rounded down.
    pub(crate) fn available(&self, now: Instant) -> i64 {
        let whole = self.credit(now).div_euclid(self.window);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the earliest instant at which `amount` may be taken. An amount larger than the bucket may be
    /// taken when the bucket is full.
    pub(crate) fn fits_at(&self, now: Instant, amount: u64) -> Instant {
        let missing = self.units(amount).min(self.cap()).saturating_sub(self.credit(now));
        if missing <= 0 {
            return now;
        }
        if self.limit == 0 {
            return Instant::MAX;
        }
        let rate = i128::from(self.limit);
        let wait = missing.saturating_add(rate - 1) / rate;
        now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    pub(crate) fn take(&mut self, now: Instant, amount: u64) {
        let left = self.credit(now).saturating_sub(self.units(amount));
        self.put(now, left);
    }

    pub(crate) fn give(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).saturating_add(self.units(amount));
        self.put(now, credit);
    }

    /// Sets the refill per window and the largest amount that the bucket holds, from now on.
    pub(crate) fn set_limit(&mut self, now: Instant, limit: u64, burst: u64) {
        let credit = self.credit(now);
        (self.limit, self.burst) = (limit, burst);
        self.put(now, credit);
    }

    /// Sets the refill to `amount` per `window` from now on. With an amount of zero nothing refills. `window`
    /// must be above zero.
    pub(crate) fn set_rate(&mut self, now: Instant, amount: u64, window: Duration) {
        let (credit, old) = (self.credit(now), self.window);
        let window = i128::from(window.as_nanos());
        self.limit = amount;
        if window == old {
            return self.put(now, credit);
        }
        // Computed in two parts, so that every product stays as small as one of an amount and a span.
        let (whole, part) = (credit.div_euclid(old), credit.rem_euclid(old));
        self.window = window;
        self.put(now, whole.saturating_mul(window).saturating_add(part * window / old));
    }

    /// Sets the largest amount that the bucket holds, from now on.
    pub(crate) fn set_burst(&mut self, now: Instant, burst: u64) {
        let credit = self.credit(now);
        self.burst = burst;
        self.put(now, credit);
    }

    /// Returns the credit that `span` adds.
    pub(crate) fn gain(&self, span: Duration) -> i128 {
        i128::from(self.limit) * i128::from(span.as_nanos())
    }

    /// Returns the credit of an amount, which may be negative.
    pub(crate) fn units_of(&self, amount: i128) -> i128 {
        amount.saturating_mul(self.window)
    }

    /// Clamps the credit to `low..=high`, where `low <= high`. A credit above `high` by less than an amount
    /// of one is kept, because stated amounts are rounded down.
    pub(crate) fn clamp_credit(&mut self, now: Instant, low: i128, high: i128) {
        let credit = self.credit(now);
        let kept = if credit < high.saturating_add(self.window) { credit.max(low) } else { high };
        self.put(now, kept);
    }

    pub(crate) fn fill(&mut self, now: Instant) {
        let full = self.cap();
        self.put(now, full);
    }

    pub(crate) fn lower_to(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).min(self.units(amount));
        self.put(now, credit);
    }

    pub(crate) fn raise_to(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).max(self.units(amount));
        self.put(now, credit);
    }

    /// Lowers the credit so that the bucket is not full before `span` has passed.
    pub(crate) fn full_not_before(&mut self, now: Instant, span: Duration) {
        let missing = i128::from(self.limit) * i128::from(span.as_nanos());
        // A span longer than a complete refill means only that the bucket is empty.
        let credit = self.credit(now).min((self.cap() - missing).max(0));
        self.put(now, credit);
    }
}
