//! Raises the number of calls in flight step by step after a cooldown, or after a refusal that ends a pace.
//!
//! ```text
//! allowed(t) = in_flight + 2^floor((t - end) / tick)        in_flight: calls still in flight at `end`
//! ```
//!
//! A refusal arrives sooner than an answer. So the current capacity shows after a few ticks, at the cost of
//! one or two refusals instead of a burst.

use crate::time::{Duration, Instant};

/// A restart. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restart {
    /// The end of the cooldown, or the refusal that ended the pace.
    pub(super) end: Instant,
    /// Calls still in flight at `end`.
    pub(super) in_flight: u32,
    /// The time in which a refusal would have arrived.
    pub(super) tick: Duration,
}

impl Restart {
    fn ticks(&self, now: Instant) -> u64 {
        (now - self.end).as_nanos() / self.tick.as_nanos().max(1)
    }

    /// Returns the most calls that may be in flight at `now`.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        let ticks = self.ticks(now).min(32);
        u32::try_from(u64::from(self.in_flight) + (1 << ticks)).unwrap_or(u32::MAX)
    }

    /// Returns when `allowed` next grows.
    pub(super) fn next_step(&self, now: Instant) -> Instant {
        if now < self.end {
            return self.end;
        }
        let ticks = self.ticks(now) + 1;
        self.end + Duration::from_nanos(self.tick.as_nanos().max(1).saturating_mul(ticks))
    }
}
