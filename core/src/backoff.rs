//! Retry delays that double after each failure and carry jitter, so that calls which failed together are
//! not retried together.
//!
//! The jitter is a hash of the seed and the failure count, not a random draw: equal inputs give equal
//! delays on every machine.

use core::hash::Hasher;

use crate::call::{Completion, Outcome};
use crate::portable_hasher::PortableHasher;
use crate::time::{Duration, Instant};

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest retry delay before jitter is applied.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The shortest delay before a call is made again, so that a provider is not called in a loop.
pub(crate) const SHORTEST_RETRY: Duration = Duration::from_millis(50);
/// The longest delay that a provider can request for one call.
const LONGEST_REQUESTED: Duration = Duration::from_secs(600);

/// Computes the retry delays of one piece of work: 1, 2, 4, ... seconds, at most one minute. Jitter then
/// lengthens or shortens each delay by up to a fifth, so the longest is 72 s.
///
/// Intended for callers of a [`Gate`](crate::gate::Gate) that repeat a call which failed by itself. Do not
/// use it for failures during a provider outage: see [`AfterCall`](crate::request::AfterCall).
///
/// ```
/// use tidegate_core::backoff::Backoff;
/// use tidegate_core::time::{Duration, Instant};
///
/// let mut backoff = Backoff::new(2, 7);
/// let first = backoff.after_failure(Instant::ZERO).expect("there are two retries");
/// let delay = first - Instant::ZERO;
/// assert!(delay >= Duration::from_millis(800) && delay <= Duration::from_millis(1_200));
/// assert!(backoff.after_failure(first).is_some() && backoff.after_failure(first).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    retries: u32,
    failures: u32,
    seed: u64,
}

impl Backoff {
    /// Creates a backoff that allows `retries` retries. Equal seeds give equal delays.
    #[must_use]
    pub const fn new(retries: u32, seed: u64) -> Self {
        Self { retries, failures: 0, seed }
    }

    /// Counts a failure at `now` and returns the instant of the next try, or `None` if no retry is left.
    #[must_use = "the failure is counted"]
    pub fn after_failure(&mut self, now: Instant) -> Option<Instant> {
        if self.failures >= self.retries {
            return None;
        }
        let mut hash = PortableHasher::default();
        hash.write_u64(self.seed);
        hash.write_u32(self.failures);
        let delay = before_retry(self.failures, LONGEST_RETRY, &hash);
        self.failures += 1;
        Some(now + delay)
    }

    /// Returns when a call that ended with `done` is made again, or `None` if its end is final.
    ///
    /// A provider failure, a provider timeout and a failed connection count as failures: see
    /// [`Self::after_failure`]. If the provider requested a longer delay, that delay applies, up to 10 min. A
    /// rate-limited call was only too early. It is made again after the delay that the provider requested, at
    /// least 50 ms and at most 10 min, and does not count. Every other outcome is final. With no retries at
    /// all, every outcome is final.
    ///
    /// ```
    /// use tidegate_core::backoff::Backoff;
    /// use tidegate_core::request::{Completion, Outcome};
    /// use tidegate_core::time::{Duration, Instant};
    ///
    /// let mut backoff = Backoff::new(1, 7);
    /// let limited = Completion::rate_limited(Some(Duration::from_secs(3)));
    /// assert_eq!(backoff.after_call(Instant::ZERO, &limited), Some(Instant::ZERO + Duration::from_secs(3)));
    /// assert!(backoff.after_call(Instant::ZERO, &Outcome::ProviderFailure.into()).is_some());
    /// assert_eq!(backoff.after_call(Instant::ZERO, &Outcome::ProviderFailure.into()), None);
    /// ```
    #[must_use = "a failure is counted"]
    pub fn after_call(&mut self, now: Instant, done: &Completion) -> Option<Instant> {
        if self.retries == 0 {
            return None;
        }
        let requested = done.retry_after.unwrap_or(Duration::ZERO).min(LONGEST_REQUESTED);
        match done.outcome {
            Outcome::RateLimited => Some(now + requested.max(SHORTEST_RETRY)),
            Outcome::ProviderFailure | Outcome::ProviderTimeout | Outcome::ConnectionFailed => {
                Some(self.after_failure(now)?.max(now + requested))
            }
            _ => None,
        }
    }
}

/// Returns the delay before a retry: 1, 2, 4, ... seconds, at most `longest`, with jitter. `failures` is the
/// number of earlier failures.
pub(crate) fn before_retry(failures: u32, longest: Duration, hash: &impl Hasher) -> Duration {
    jittered(doubled(FIRST_RETRY, failures, longest), hash)
}

/// Returns `first` doubled `times` times, at most `longest`.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    Duration::from_nanos(first.as_nanos().saturating_mul(1 << times.min(32)).min(longest.as_nanos()))
}

/// Lengthens or shortens `delay` by up to a fifth, as chosen by `hash`.
pub(crate) fn jittered(delay: Duration, hash: &impl Hasher) -> Duration {
    // In thousandths, from 800 to 1 200.
    let share = 800 + hash.finish() % 401;
    Duration::from_nanos((u128::from(delay.as_nanos()) * u128::from(share) / 1_000) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_the_longest_and_never_overflows() {
        let delay = |times| doubled(Duration::from_secs(1), times, Duration::from_secs(60));
        assert_eq!([0, 1, 5, 6, u32::MAX].map(delay), [1, 2, 32, 60, 60].map(Duration::from_secs));
        assert_eq!(doubled(Duration::MAX, 9, Duration::MAX), Duration::MAX);
    }

    #[test]
    fn retries_wait_one_second_then_twice_as_long_each_time_up_to_a_minute() {
        let mut backoff = Backoff::new(12, 3);
        for failures in 0..12 {
            let usual = Duration::from_secs([1, 2, 4, 8, 16, 32].get(failures).copied().unwrap_or(60));
            let delay = backoff.after_failure(Instant::ZERO).expect("there are twelve retries") - Instant::ZERO;
            let fifth = usual.as_nanos() / 5;
            assert!(delay.as_nanos().abs_diff(usual.as_nanos()) <= fifth, "{failures}: {delay}");
        }
        assert_eq!(backoff.after_failure(Instant::ZERO), None);
    }

    #[test]
    fn a_rate_limited_call_is_made_again_after_its_delay_and_uses_up_no_retry() {
        let mut backoff = Backoff::new(1, 3);
        let after = |backoff: &mut Backoff, retry_after| {
            backoff.after_call(Instant::ZERO, &Completion::rate_limited(retry_after))
        };
        for _ in 0..3 {
            assert_eq!(after(&mut backoff, None), Some(Instant::ZERO + SHORTEST_RETRY));
        }
        assert_eq!(after(&mut backoff, Some(Duration::MAX)), Some(Instant::ZERO + LONGEST_REQUESTED));
        assert!(backoff.after_call(Instant::ZERO, &Outcome::ProviderTimeout.into()).is_some());
        assert_eq!(backoff.after_call(Instant::ZERO, &Outcome::ConnectionFailed.into()), None);
        assert_eq!(after(&mut Backoff::new(0, 3), None), None, "nothing is made again without retries");
    }

    #[test]
    fn an_end_that_is_no_failure_of_the_provider_is_final() {
        for outcome in Outcome::ALL {
            let is_final = Backoff::new(9, 3).after_call(Instant::ZERO, &outcome.into()).is_none();
            let may_pass =
                [Outcome::RateLimited, Outcome::ProviderFailure, Outcome::ProviderTimeout, Outcome::ConnectionFailed];
            assert_eq!(is_final, !may_pass.contains(&outcome), "{outcome:?}");
        }
    }

    #[test]
    fn jitter_is_at_most_a_fifth_and_covers_the_whole_range() {
        let delays = (0..10_000_u64).map(|seed| {
            let mut hash = PortableHasher::default();
            hash.write_u64(seed);
            jittered(Duration::from_millis(1_000), &hash)
        });
        let (least, most) =
            delays.fold((Duration::MAX, Duration::ZERO), |(least, most), it| (least.min(it), most.max(it)));
        assert_eq!((least, most), (Duration::from_millis(800), Duration::from_millis(1_200)));
    }
}
