//! What was once reached, against a pace that only gets slower.
//!
//! What is let through at a pace is no more than what was sent at it. So where refusals are no rate's, each
//! correction of the pace may make it slower, and none makes it much quicker. A pace that is
//! [much](FAR) slower than what was once let through over ten seconds is therefore given up. If that is in
//! vain, the memory moves halfway towards the pace, so that the next pace has to be slower still.

use crate::time::{Duration, Instant};

/// How long something has to be let through to count as reached: longer than most bursts last.
const SPAN: Duration = Duration::from_secs(10);
/// The fewest calls that count.
const FEWEST: u64 = 16;
/// How many times slower than what was reached a pace is that is given up.
const FAR: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    since: Instant,
    calls: u64,
    /// The most calls that were out since.
    at_once: u32,
    /// The shortest interval between calls that was reached, in nanoseconds; 0 for none.
    interval: u64,
    /// Calls that were out then.
    best_at_once: u32,
}

impl Reached {
    /// A call goes out with so many, itself included.
    pub(super) fn on_grant(&mut self, now: Instant, at_once: u32) {
        if self.calls == 0 {
            self.since = now;
        }
        self.calls += 1;
        self.at_once = self.at_once.max(at_once);
        let span = now - self.since;
        if span < SPAN || self.calls < FEWEST {
            return;
        }
        let interval = span.as_nanos() / self.calls;
        if self.interval == 0 || interval < self.interval {
            (self.interval, self.best_at_once) = (interval, self.at_once);
        }
        (self.since, self.calls, self.at_once) = (now, 0, 0);
    }

    /// A call was refused.
    pub(super) fn on_refused(&mut self) {
        self.calls = self.calls.saturating_sub(1).max(1);
    }

    /// Whether much more was once reached than at this pace: then how many calls were out.
    pub(super) fn give_up(&mut self, interval: u64) -> Option<u32> {
        if self.interval == 0 || interval < self.interval.saturating_mul(FAR) {
            return None;
        }
        self.interval = self.interval.midpoint(interval);
        Some(self.best_at_once)
    }
}
