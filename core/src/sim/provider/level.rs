//! Capacity as a step function of time, and the ramp that warm-up, drift and recovery share.

use crate::time::{Duration, Instant};

/// How many slots there are, and until when that is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) slots: u32,
    /// Nothing changes before this; `None`: nothing is going to change by time alone.
    pub(super) until: Option<Instant>,
}

impl Level {
    /// `slots`, for good.
    pub(super) fn forever(slots: u32) -> Self {
        Self { slots, until: None }
    }

    /// The same slots, certain for no longer than `bound`.
    pub(super) fn at_most_until(self, bound: Option<Instant>) -> Self {
        let until = match (self.until, bound) {
            (Some(own), Some(bound)) => Some(own.min(bound)),
            (own, bound) => own.or(bound),
        };
        Self { until, ..self }
    }

    /// The level at `now` of a linear way from `from` at `start` to `to` at `start + span`.
    ///
    /// `slots = from +- floor(|to - from| x elapsed / span)`, exact in integers, so each single slot opens or
    /// closes at an instant of its own. The same equation as the limiter's start-up ramp, so that a matching
    /// ramp matches.
    pub(super) fn ramp(from: u32, to: u32, start: Instant, span: Duration, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(start);
        if elapsed >= span {
            return Self::forever(to);
        }
        let distance = u128::from(from.abs_diff(to));
        if distance == 0 {
            return Self::forever(to);
        }
        let (span, elapsed) = (u128::from(span.as_nanos()), u128::from(elapsed.as_nanos()));
        let moved = distance * elapsed / span;
        // Both fit: `moved < distance <= u32::MAX`, and the next step falls at `span` or before.
        let next_step = Duration::from_nanos(((moved + 1) * span).div_ceil(distance) as u64);
        let moved = moved as u32;
        let slots = if to > from { from + moved } else { from - moved };
        Self { slots, until: Some(start + next_step).filter(|&at| at > now) }
    }
}
