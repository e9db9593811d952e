//! The start-up ramp: a limit that grows linearly with time.
//!
//! ```text
//! limit(elapsed) = from + floor((target - from) x elapsed / span)      0 <= elapsed < span
//!                = target                                              elapsed >= span
//! ```
//!
//! `elapsed` counts from the first acquire attempt. All arithmetic is in integers, so each step happens at an
//! exact nanosecond, which [`Ramp::next_step`] returns.

use super::RampState;
use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ramp {
    pub(super) from: u32,
    pub(super) target: u32,
    pub(super) span: Duration,
    /// `None` until the first acquire attempt.
    pub(super) started: Option<Instant>,
}

impl Ramp {
    /// Returns the limit at `now`, or `None` once the target is reached.
    pub(super) fn limit(&self, now: Instant) -> Option<u32> {
        let Some(started) = self.started else { return Some(self.from) };
        let elapsed = now - started;
        if elapsed >= self.span {
            return None;
        }
        let rise = u128::from(self.target - self.from) * u128::from(elapsed.as_nanos());
        Some(self.from + (rise / u128::from(self.span.as_nanos())) as u32)
    }

    /// Returns the state for a snapshot, or `None` once the target is reached.
    pub(super) fn state(&self, now: Instant) -> Option<RampState> {
        self.limit(now)?;
        Some(RampState { target: self.target, ends: self.started.map(|started| started + self.span) })
    }

    /// Returns when the limit next rises, or `None` if the ramp has not started or has reached its target.
    pub(super) fn next_step(&self, now: Instant) -> Option<Instant> {
        let started = self.started?;
        let reached = self.limit(now)? - self.from;
        let steps = u128::from(self.target - self.from);
        let span = u128::from(self.span.as_nanos());
        // The smallest `elapsed` with floor(steps x elapsed / span) > reached. The last step is at `span`.
        let elapsed = ((u128::from(reached) + 1) * span).div_ceil(steps.max(1)).min(span);
        Some(started + Duration::from_nanos(elapsed as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_happens_exactly_at_the_instant_that_next_step_returned() {
        let start = Instant::from_nanos(17);
        for (target, span) in [(2, 1), (9, 8), (31, 30_000_000_007), (7, 1_000_000_000)] {
            let ramp = Ramp { from: 1, target, span: Duration::from_nanos(span), started: Some(start) };
            let mut now = start;
            let mut limit = 1;
            while let Some(step) = ramp.next_step(now) {
                let before = Instant::from_nanos(step.as_nanos() - 1);
                assert_eq!(ramp.limit(before).unwrap_or(target), limit);
                limit = ramp.limit(step).unwrap_or(target);
                now = step;
            }
            assert_eq!((limit, now - start), (target, Duration::from_nanos(span)));
        }
    }
}
