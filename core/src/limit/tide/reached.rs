//! A pace that only gets slower, compared with what was reached before.
//!
//! What is let through at a pace is no more than what is sent at it. Where refusals do not come from a rate,
//! each correction makes the pace slower, and nothing makes it fast again. So a pace is given up if it is
//! [much](FAR) slower than
//!
//! - what was let through over [five seconds](SPAN) before, or
//! - the pace that was learned first, if calls are also refused that are out alone (`share`).
//!
//! If that is in vain, the slow pace is learned again. It then replaces what is remembered, so that the next
//! one has to be much slower still.

use crate::time::{Duration, Instant};

/// The time over which calls have to be let through to count as reached. Most bursts are over by then, but not
/// all: the longest of the providers in `docs/control.md` last 6 to 10 s, and then count.
const SPAN: Duration = Duration::from_secs(5);
/// The fewest calls that count: the mean of fewer is luck.
const FEWEST: u64 = 16;
/// How many times slower a pace is that is given up. Costs that differ mildly change a rate by less. Where a few
/// calls cost a hundred times the others, a right pace may be given up, and is learned again.
const FAR: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The present measurement: its first call, and the calls since that were not refused.
    since: Instant,
    calls: u64,
    /// The shortest interval between calls that was reached, in nanoseconds; 0 for none.
    interval: u64,
    /// The interval at which the present pace began, in nanoseconds.
    begun: u64,
}

impl Reached {
    /// A pace begins.
    pub(super) fn on_begin(&mut self, interval: u64) {
        self.begun = interval;
    }

    /// A call goes out.
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

    /// A call was refused.
    pub(super) fn on_refused(&mut self) {
        self.calls = self.calls.saturating_sub(1).max(1);
    }

    /// A pace was corrected to this interval. Returns whether it is to be given up; `is_share`: calls are
    /// refused at any load.
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
