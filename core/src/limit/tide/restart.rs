//! After a pause: one call, then twice as many each time that a refusal would have come back by.
//!
//! ```text
//! allowed(t) = out + 2^floor((t - end) / tick)        out: calls still out when the pause ended
//! ```
//!
//! A refusal is answered faster than a call is served, so what the provider bears now shows after a few of
//! these ticks, at the price of one or two refusals and not of a whole burst.

use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restart {
    pub(super) end: Instant,
    pub(super) out: u32,
    pub(super) tick: Duration,
}

impl Restart {
    fn ticks(&self, now: Instant) -> u64 {
        (now - self.end).as_nanos() / self.tick.as_nanos().max(1)
    }

    /// How many calls may be out at `now`.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        let ticks = self.ticks(now).min(32);
        u32::try_from(u64::from(self.out) + (1 << ticks)).unwrap_or(u32::MAX)
    }

    /// When that is next more.
    pub(super) fn next_step(&self, now: Instant) -> Instant {
        if now < self.end {
            return self.end;
        }
        let ticks = self.ticks(now) + 1;
        self.end + Duration::from_nanos(self.tick.as_nanos().max(1).saturating_mul(ticks))
    }
}
