//! A token bucket in integers.

use super::BudgetConfig;
use crate::time::{Duration, Instant};

/// Holds up to `burst` and gains `limit` in each `window`, evenly, without rounding: credit is counted in
/// units of `1 / window` (nanoseconds), so that one nanosecond brings `limit` of them.
///
/// Equivalent to the generic cell rate algorithm (ITU-T I.371): its theoretical arrival time is the instant
/// at which this bucket is full.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: u64,
    window: i128,
    burst: u64,
    /// Negative while overdrawn.
    credit: i128,
    /// When `credit` was right.
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(now: Instant, config: &BudgetConfig) -> Self {
        let window = i128::from(config.window.as_nanos());
        let burst = config.burst.unwrap_or(config.limit);
        Self { limit: config.limit, window, burst, credit: i128::from(burst) * window, at: now }
    }

    pub(super) fn limit(&self) -> u64 {
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

    pub(super) fn put(&mut self, now: Instant, credit: i128) {
        self.credit = credit.min(self.cap());
        self.at = self.at.max(now);
    }

    /// What may be spent, rounded down.
    pub(super) fn available(&self, now: Instant) -> i64 {
        let whole = self.credit(now).div_euclid(self.window);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// From when on `amount` may be taken. More than the bucket can hold may be taken when it is full.
    pub(super) fn fits_at(&self, now: Instant, amount: u64) -> Instant {
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

    pub(super) fn take(&mut self, now: Instant, amount: u64) {
        let left = self.credit(now).saturating_sub(self.units(amount));
        self.put(now, left);
    }

    pub(super) fn give(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).saturating_add(self.units(amount));
        self.put(now, credit);
    }

    /// Refills by `limit` in each window from now on, and holds `burst`.
    pub(super) fn set_limit(&mut self, now: Instant, limit: u64, burst: u64) {
        let credit = self.credit(now);
        (self.limit, self.burst) = (limit, burst);
        self.put(now, credit);
    }

    /// Refills by `amount` in each `window` from now on; by nothing, where that is zero. `window` is above
    /// zero.
    pub(super) fn set_rate(&mut self, now: Instant, amount: u64, window: Duration) {
        let (credit, old) = (self.credit(now), self.window);
        let window = i128::from(window.as_nanos());
        self.limit = amount;
        if window == old {
            return self.put(now, credit);
        }
        // In two parts, so that no product is larger than one of an amount and a span.
        let (whole, part) = (credit.div_euclid(old), credit.rem_euclid(old));
        self.window = window;
        self.put(now, whole.saturating_mul(window).saturating_add(part * window / old));
    }

    /// Holds at most `burst` from now on.
    pub(super) fn set_burst(&mut self, now: Instant, burst: u64) {
        let credit = self.credit(now);
        self.burst = burst;
        self.put(now, credit);
    }

    /// Credit for what comes back in `span`.
    pub(super) fn gain(&self, span: Duration) -> i128 {
        i128::from(self.limit) * i128::from(span.as_nanos())
    }

    /// Credit for an amount, which may be owed.
    pub(super) fn units_of(&self, amount: i128) -> i128 {
        amount.saturating_mul(self.window)
    }

    /// Moves the credit between these two, of which the first is not the larger. Less than one above is not
    /// moved: what was stated was rounded down.
    pub(super) fn keep_between(&mut self, now: Instant, low: i128, high: i128) {
        let credit = self.credit(now);
        let kept = if credit < high.saturating_add(self.window) { credit.max(low) } else { high };
        self.put(now, kept);
    }

    pub(super) fn fill(&mut self, now: Instant) {
        let full = self.cap();
        self.put(now, full);
    }

    pub(super) fn lower_to(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).min(self.units(amount));
        self.put(now, credit);
    }

    pub(super) fn raise_to(&mut self, now: Instant, amount: u64) {
        let credit = self.credit(now).max(self.units(amount));
        self.put(now, credit);
    }

    /// Lowers the credit so that the bucket is not full before `span` has passed.
    pub(super) fn full_not_before(&mut self, now: Instant, span: Duration) {
        let missing = i128::from(self.limit) * i128::from(span.as_nanos());
        // A wait longer than from empty to full says no more than "empty".
        let credit = self.credit(now).min((self.cap() - missing).max(0));
        self.put(now, credit);
    }
}
