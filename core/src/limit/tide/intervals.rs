//! The intervals between calls, and between trials: calls that are sent to learn why one before was refused.

use super::Tide;
use crate::time::Duration;

/// The first wait for a trial, in latencies of a refusal; and the longest, in nanoseconds.
const FIRST_TRIAL: f64 = 4.0;
const LAST_TRIAL: f64 = 4e9;
/// The shortest and the longest time between two calls at the start, in nanoseconds. Refusals take no longer.
const TICKS: (f64, f64) = (1e6, 1e8);
/// Nanoseconds below which calls are not spaced.
const SPACE: f64 = 1e6;

impl Tide {
    /// Returns the first wait for a trial at the same load.
    pub(super) fn first_trial(&self) -> Duration {
        Duration::from_nanos((FIRST_TRIAL * self.watch.refusal()).max(1e6) as u64)
    }

    /// Returns the longest wait for a trial: the mean latency of a call, at most [`LAST_TRIAL`].
    pub(super) fn last_trial(&self) -> Duration {
        let longest = if self.latency > 0.0 { self.latency.min(LAST_TRIAL) } else { LAST_TRIAL };
        Duration::from_nanos(longest as u64)
    }

    /// Returns the time between two steps of a restart, and between calls at the start.
    pub(super) fn tick(&self) -> Duration {
        // Twice the latency of a refusal, but short compared with that of a call.
        let longest = self.latency / 8.0;
        let refusal = self.watch.refusal();
        let tick = if refusal > 0.0 { (2.0 * refusal).min(longest) } else { longest };
        Duration::from_nanos(tick.clamp(TICKS.0, TICKS.1) as u64)
    }

    /// Returns the interval between calls in a climb: half of that at which calls end, as Linux paces TCP in
    /// slow start.
    pub(super) fn space(&self) -> Duration {
        // The first calls to end are the short ones, so the mean latency is too low yet.
        if self.ceiling.next_grant() < 2 * u64::from(self.config.initial_limit) {
            return self.tick();
        }
        // Calls that replace ended ones are sent twice as fast as calls end; added ones, within the time in
        // which a refusal arrives.
        let back = 2.0 * f64::from(self.limit) / self.latency.max(1.0);
        let added = f64::from(self.ceiling.growth(self.limit)) / self.watch.acceptance_delay().as_nanos() as f64;
        let space = 1.0 / (back + added);
        if space < SPACE { Duration::ZERO } else { Duration::from_nanos(space as u64) }
    }
}
