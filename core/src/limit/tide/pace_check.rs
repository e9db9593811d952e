//! Checks whether a pace is really caused by a rate limit.
//!
//! A pace can be learned where there is no rate: from a concurrency limit that is always reached, or from a
//! pool that refuses a share of all calls. The refusals at the pace show the difference:
//!
//! - **A concurrency limit** refuses only when more calls are in flight than usual. A rate refuses at any
//!   load. Two refusals in a row with more calls in flight than the mean plus 1.5 mean deviations end the
//!   pace.
//! - **A share** is refused at any pace. A rate seldom refuses at a pace that was learned from what it
//!   accepted. After six refusals with fewer than 48 calls between two of them, a test sends sixteen calls at
//!   eight times the pace, with no more in flight than were accepted before. A rate refuses seven of eight of
//!   these calls; a pool refuses its usual share. The pace passes if the refused fraction is at least two
//!   thirds of the way from the share to what a rate refuses. Each passed test doubles the refusals needed
//!   for the next. A refusal after as many calls as the one before does not count towards a test: a window of
//!   time accepts the same number again and again, and a pool does not.

use super::inflow::is_near;

/// Calls over which the mean number of calls in flight is taken.
const MEMORY: f64 = 32.0;
/// Mean deviations above the mean that count as more than usual, and the least deviation.
const HIGH: f64 = 1.5;
const LEAST_DEVIATION: f64 = 0.5;
/// Refusals in a row with more than usual in flight that indicate a concurrency limit.
const HIGH_REFUSALS: u32 = 2;
/// With at least this many calls between two refusals, the pace is right: a quickened pace is refused about
/// this often.
const FEW: u64 = 48;
/// Two numbers of calls between refusals that differ by at most this part are the same. From this many calls
/// on, this is hardly chance.
const SAME_PART: u64 = 8;
const LEAST_SAME: u64 = 4;
/// Early refusals before a test. Each passed test doubles the number, this many times at most.
const EARLY_REFUSALS: u32 = 6;
const DOUBLINGS: u32 = 12;
/// Calls in a test, and how many times as fast as the pace they are sent.
const CALLS: u32 = 16;
pub(super) const FASTER: u64 = 8;
/// The refused fraction at which a pace passes a test, from the share of a pool (0) to what a rate refuses
/// (1).
const PASSES_AT: f64 = 2.0 / 3.0;

/// A test: calls that are sent faster than the pace.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// The first grant of the test, once it is sent.
    first: Option<u64>,
    left: u32,
    refused: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PaceCheck {
    /// The mean number of calls in flight, and its mean deviation.
    mean: f64,
    deviation: f64,
    /// Refusals in a row with more than usual in flight.
    high_refusals: u32,
    /// Early refusals, and the calls accepted between them.
    early_refusals: u32,
    calls: u64,
    /// The calls between the last two refusals.
    last_calls: u64,
    test: Option<Test>,
    /// Tests that the pace passed.
    passed: u32,
}

impl PaceCheck {
    /// Resets the state for a new pace.
    pub(super) fn reset(&mut self) {
        *self = Self { mean: self.mean, deviation: self.deviation, passed: self.passed, ..Self::default() };
    }

    /// Records that a call is sent with `in_flight` calls in flight, itself included.
    pub(super) fn on_grant(&mut self, in_flight: u32) {
        let off = f64::from(in_flight) - self.mean;
        self.mean += off / MEMORY;
        self.deviation += (off.abs() - self.deviation) / MEMORY;
    }

    /// Records a refusal at the pace. Returns whether the cause is a concurrency limit.
    pub(super) fn is_concurrency_limit(&mut self, in_flight: u32) -> bool {
        let usual = self.mean + HIGH * self.deviation.max(LEAST_DEVIATION);
        self.high_refusals = if f64::from(in_flight) > usual { self.high_refusals + 1 } else { 0 };
        self.high_refusals >= HIGH_REFUSALS
    }

    /// Records a refusal at the pace, `calls` after the one before. Returns whether a test begins. A refusal
    /// of a pace that was quickened is expected and does not count.
    pub(super) fn on_refused(&mut self, calls: u64, is_quickened: bool) -> bool {
        if calls >= FEW {
            (self.early_refusals, self.calls) = (0, 0);
        }
        let before = core::mem::replace(&mut self.last_calls, calls);
        let is_same = calls >= LEAST_SAME && is_near(before, calls, SAME_PART);
        if calls >= FEW || is_quickened || is_same {
            return false;
        }
        self.early_refusals += 1;
        self.calls += calls;
        let begins = self.early_refusals >= EARLY_REFUSALS << self.passed.min(DOUBLINGS);
        if begins {
            self.test = Some(Test { first: None, left: CALLS, refused: 0 });
        }
        begins
    }

    /// Returns whether a test is running.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Records a grant in a test. Returns `None` if all calls of the test are sent, else whether this is the
    /// last.
    pub(super) fn on_test_grant(&mut self, grant: u64) -> Option<bool> {
        let test = self.test.as_mut().filter(|test| test.left > 0)?;
        test.first.get_or_insert(grant);
        test.left -= 1;
        Some(test.left == 0)
    }

    /// Records a refusal. Returns whether the call belongs to a test.
    pub(super) fn on_test_refused(&mut self, grant: u64) -> bool {
        let test = self.test.as_mut().filter(|test| test.first.is_some_and(|first| grant >= first));
        if let Some(test) = test {
            test.refused += 1;
            return true;
        }
        false
    }

    /// Ends a test. Returns the share of calls that is refused at any pace, or `None` if the pace passed.
    pub(super) fn conclude(&mut self) -> Option<f64> {
        let test = self.test.take()?;
        let early_refusals = f64::from(self.early_refusals);
        let share = early_refusals / (self.calls as f64 + early_refusals);
        (self.early_refusals, self.calls) = (0, 0);
        let rate_refuses = 1.0 - 1.0 / FASTER as f64;
        if f64::from(test.refused) >= f64::from(CALLS) * (share + (rate_refuses - share) * PASSES_AT) {
            self.passed += 1;
            return None;
        }
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_after_different_numbers_of_calls_begin_a_test_and_those_after_equal_numbers_do_not() {
        let mut pool = PaceCheck::default();
        let begins = [20, 9, 31, 4, 26, 13].map(|calls| pool.on_refused(calls, false));
        assert_eq!(begins, [false, false, false, false, false, true]);
        // A window of time that accepts twenty calls, one more or one less.
        let mut window = PaceCheck::default();
        let begins = (0..1_000).filter(|nth| window.on_refused(20 + nth % 2, false)).count();
        assert_eq!(begins, 0);
    }
}
