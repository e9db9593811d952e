//! Pauses that double and are jittered, so that what failed together does not come back together.
//!
//! The jitter is a hash and no draw: equal inputs give equal pauses on every machine.

use core::hash::Hasher;

use crate::portable_hasher::PortableHasher;
use crate::time::{Duration, Instant};

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause before a retry, but for the jitter.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Paces the retries of one piece of work that failed by itself: 1, 2, 4, ... s, up to a minute, jittered.
///
/// For callers of a [`Gate`](crate::gate::Gate) that make a call again. A failure in an outage is none of
/// these: see [`AfterCall`](crate::request::AfterCall).
///
/// ```
/// use tidegate_core::backoff::Backoff;
/// use tidegate_core::time::{Duration, Instant};
///
/// let mut backoff = Backoff::new(2, 7);
/// let first = backoff.after_failure(Instant::ZERO).expect("there are two retries");
/// assert!(first >= Instant::ZERO + Duration::from_millis(800) && first <= Instant::ZERO + Duration::from_millis(1_200));
/// assert!(backoff.after_failure(first).is_some() && backoff.after_failure(first).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    retries: u32,
    failures: u32,
    seed: u64,
}

impl Backoff {
    /// Allows so many retries. Equal seeds give equal pauses.
    #[must_use]
    pub const fn new(retries: u32, seed: u64) -> Self {
        Self { retries, failures: 0, seed }
    }

    /// Returns when to try again after one more failure, at `now`; `None` if that was the last try.
    #[must_use = "the failure is counted"]
    pub fn after_failure(&mut self, now: Instant) -> Option<Instant> {
        if self.failures >= self.retries {
            return None;
        }
        let mut hash = PortableHasher::default();
        hash.write_u64(self.seed);
        hash.write_u32(self.failures);
        let pause = before_retry(self.failures, &hash);
        self.failures += 1;
        Some(now + pause)
    }
}

/// The pause after a single failure: 1, 2, 4, ... s, up to a minute, jittered. `failures`: those before it.
pub(crate) fn before_retry(failures: u32, hash: &impl Hasher) -> Duration {
    jittered(doubled(FIRST_RETRY, failures, LONGEST_RETRY), hash)
}

/// `first`, doubled so many times, and at most `longest`.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    Duration::from_nanos(first.as_nanos().saturating_mul(1 << times.min(32)).min(longest.as_nanos()))
}

/// Up to a fifth longer or shorter, as `hash` says.
pub(crate) fn jittered(pause: Duration, hash: &impl Hasher) -> Duration {
    // In thousandths: 800 to 1 200.
    let share = 800 + hash.finish() % 401;
    Duration::from_nanos((u128::from(pause.as_nanos()) * u128::from(share) / 1_000) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest_however_often() {
        let pause = |times| doubled(Duration::from_secs(1), times, Duration::from_secs(60));
        assert_eq!([0, 1, 5, 6, u32::MAX].map(pause), [1, 2, 32, 60, 60].map(Duration::from_secs));
        assert_eq!(doubled(Duration::MAX, 9, Duration::MAX), Duration::MAX);
    }

    #[test]
    fn retries_wait_a_second_then_twice_as_long_each_time_and_a_minute_at_most() {
        let mut backoff = Backoff::new(12, 3);
        for failures in 0..12 {
            let usual = Duration::from_secs([1, 2, 4, 8, 16, 32].get(failures).copied().unwrap_or(60));
            let pause = backoff.after_failure(Instant::ZERO).expect("there are twelve retries") - Instant::ZERO;
            let fifth = usual.as_nanos() / 5;
            assert!(pause.as_nanos().abs_diff(usual.as_nanos()) <= fifth, "{failures}: {pause}");
        }
        assert_eq!(backoff.after_failure(Instant::ZERO), None);
    }

    #[test]
    fn jitter_is_a_fifth_at_most_and_uses_all_of_it() {
        let pauses = (0..10_000_u64).map(|seed| {
            let mut hash = PortableHasher::default();
            hash.write_u64(seed);
            jittered(Duration::from_millis(1_000), &hash)
        });
        let (least, most) =
            pauses.fold((Duration::MAX, Duration::ZERO), |(least, most), it| (least.min(it), most.max(it)));
        assert_eq!((least, most), (Duration::from_millis(800), Duration::from_millis(1_200)));
    }
}
