//! Gives up a pace that is far slower than the rate reached before it.
//!
//! A provider accepts no more calls than the pace sends. Where the refusals are not caused by a rate, each
//! correction makes the pace slower, and nothing makes it faster again. So a corrected pace is given up if it
//! is [three times](FAR) slower than
//!
//! - the rate accepted over [five seconds](SPAN) before, or
//! - the pace when it was first learned, if the provider also refuses a share of all calls (`share`).
//!
//! If the slow pace is learned again, it replaces the rate of the first rule, so that the next pace has to be
//! three times slower still.

use crate::time::{Duration, Instant};

/// The time over which calls are measured. Most bursts are over by then, but not all: the longest among the
/// providers of `docs/control.md` last 6 to 10 s, and count as a rate that was reached.
const SPAN: Duration = Duration::from_secs(5);
/// The fewest calls in a measurement. The mean of fewer varies too much.
const FEWEST: u64 = 16;
/// How many times slower a pace is that is given up. Costs that differ mildly change a rate by less. Where a
/// few calls cost a hundred times the others, a correct pace can be given up, and is learned again.
const FAR: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The current measurement: its first grant, and the calls since that were not refused.
    since: Instant,
    calls: u64,
    /// The shortest interval between calls that was reached, in nanoseconds; 0 if unknown.
    interval: u64,
    /// The interval at which the current pace began, in nanoseconds.
    begun: u64,
}

impl Reached {
    /// Records the first interval of a new pace.
    pub(super) fn on_begin(&mut self, interval: u64) {
        self.begun = interval;
    }

    /// Records a grant.
    pub(super) fn on_grant(&mut self, now: Instant) {
        if self.calls == 0 {
            self.since = now;
        }
        self.calls += 1;
        let span = now - self.since;
        if span < SPAN || self.calls < FEWEST {
            return;
        }
        let interval = span.as_nanos() / self.calls;
        self.interval = if self.interval == 0 { interval } else { self.interval.min(interval) };
        self.calls = 0;
    }

    /// Records a refusal.
    pub(super) fn on_refused(&mut self) {
        self.calls = self.calls.saturating_sub(1).max(1);
    }

    /// Returns whether a pace that was corrected to `interval` is given up. `is_share` states that the
    /// provider refuses a share of all calls.
    pub(super) fn gives_up(&mut self, interval: u64, is_share: bool) -> bool {
        let is_far = |from: u64| from > 0 && interval >= from.saturating_mul(FAR);
        if is_share && is_far(self.begun) {
            return true;
        }
        let gives_up = is_far(self.interval);
        if gives_up {
            self.interval = interval;
        }
        gives_up
    }
}
