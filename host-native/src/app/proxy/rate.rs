//! Estimates the rate at which calls end, to compute Retry-After for a full queue.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The length of one counting window.
const WINDOW: Duration = Duration::from_secs(5);

/// The bounds of the estimated wait.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Counts the calls that ended in the current and the previous window.
#[derive(Debug)]
pub(super) struct RateEstimator(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    since: Instant,
    before: u32,
    now: u32,
}

impl Counts {
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            self.before = if passed < WINDOW * 2 { self.now } else { 0 };
            self.now = 0;
            self.since = now;
        }
    }
}

impl RateEstimator {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Counts { since: Instant::now(), before: 0, now: 0 }))
    }

    /// Records that a call ended.
    pub(super) fn record_completion(&self) {
        let mut counts = self.0.lock();
        counts.advance(Instant::now());
        counts.now = counts.now.saturating_add(1);
    }

    /// Returns how long `waiting` calls take at the current rate, clamped to 1 s to 1 min. Returns the
    /// maximum if no call ended recently.
    pub(super) fn estimate_wait(&self, waiting: u32) -> Duration {
        let now = Instant::now();
        let mut counts = self.0.lock();
        counts.advance(now);
        let ended = counts.before.saturating_add(counts.now);
        let before = if counts.before > 0 { WINDOW } else { Duration::ZERO };
        let span = (before + now.saturating_duration_since(counts.since)).max(MIN_WAIT);
        if ended == 0 {
            return MAX_WAIT;
        }
        span.saturating_mul(waiting).checked_div(ended).unwrap_or(MAX_WAIT).clamp(MIN_WAIT, MAX_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_estimated_wait_follows_the_rate_and_is_clamped() {
        let rate = RateEstimator::new();
        assert_eq!(rate.estimate_wait(3), MAX_WAIT);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(50)).await;
            rate.record_completion();
        }
        let wait = rate.estimate_wait(200);
        assert!((9..=11).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!((rate.estimate_wait(0), rate.estimate_wait(u32::MAX)), (MIN_WAIT, MAX_WAIT));
        tokio::time::advance(WINDOW * 3).await;
        assert_eq!(rate.estimate_wait(1), MAX_WAIT);
    }
}
