//! Capacity as a step function of time, and the linear ramp that warm-up, drift and recovery share.

use crate::time::{Duration, Instant};

/// A number of slots, and until when it is known not to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) slots: u32,
    /// The next instant at which the slots may change. `None` if time alone never changes them.
    pub(super) until: Option<Instant>,
}

impl Level {
    /// Creates a level that time never changes.
    pub(super) fn forever(slots: u32) -> Self {
        Self { slots, until: None }
    }

    /// Moves the next possible change to `bound` if that is earlier.
    pub(super) fn at_most_until(self, bound: Option<Instant>) -> Self {
        let until = match (self.until, bound) {
            (Some(own), Some(bound)) => Some(own.min(bound)),
            (own, bound) => own.or(bound),
        };
        Self { until, ..self }
    }

    /// Returns the level at `now` of a linear ramp from `from` at `start` to `to` at `start + span`.
    ///
    /// The slots are `from +- floor(|to - from| x elapsed / span)` in exact integer arithmetic, so each slot
    /// opens or closes at an instant of its own. The [start-up ramp](crate::limit::RampState) of a limit uses
    /// the same equation, so a ramp with the same settings follows the capacity exactly.
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
        // Both casts are in range: `moved < distance <= u32::MAX`, and the next step is at `span` or before.
        let next_step = Duration::from_nanos(((moved + 1) * span).div_ceil(distance) as u64);
        let moved = moved as u32;
        let slots = if to > from { from + moved } else { from - moved };
        Self { slots, until: Some(start + next_step).filter(|&at| at > now) }
    }
}
