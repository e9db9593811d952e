//! Answers and refusals over time, counted in windows.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::time::{Duration, Instant};

/// The number of answers and refusals per window, from the start of the case. All windows are equally long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Series {
    /// The length of a window, in milliseconds.
    pub window_ms: u64,
    /// The number of calls answered, per window. Windows after the last entry have none.
    pub answered: Vec<u64>,
    /// The number of calls refused, per window. Windows after the last entry have none.
    pub refused: Vec<u64>,
}

impl Series {
    /// A tick: the window in which a run is counted. All other windows are multiples of it.
    pub(super) const TICK: Duration = Duration::from_millis(100);

    /// Returns the number of ticks in `span`, rounded up.
    pub(super) fn ticks(span: Duration) -> usize {
        span.as_nanos().div_ceil(Self::TICK.as_nanos()) as usize
    }

    /// Creates an empty series of ticks.
    pub(super) fn new() -> Self {
        Self { window_ms: Self::TICK.as_nanos() / 1_000_000, answered: Vec::new(), refused: Vec::new() }
    }

    /// Counts an answer in the window of `now`.
    pub(super) fn answer(&mut self, now: Instant) {
        let window = self.window_of(now);
        count(&mut self.answered, window);
    }

    /// Counts a refusal in the window of `now`.
    pub(super) fn refuse(&mut self, now: Instant) {
        let window = self.window_of(now);
        count(&mut self.refused, window);
    }

    /// Returns this series in windows of `window`, rounded up to ticks, up to `span`. An incomplete last
    /// window is left out.
    pub(super) fn coarser(&self, window: Duration, span: Duration) -> Self {
        let ticks = Self::ticks(window);
        let windows = (span.as_nanos() / Self::TICK.as_nanos()) as usize / ticks;
        let sums = |counts: &[u64]| (0..windows).map(|nth| sum(counts, nth * ticks, (nth + 1) * ticks)).collect();
        Self { window_ms: ticks as u64 * self.window_ms, answered: sums(&self.answered), refused: sums(&self.refused) }
    }

    /// Returns the number of answers in the windows `from..until`, counted from 0.
    pub(super) fn answered_in(&self, from: usize, until: usize) -> u64 {
        sum(&self.answered, from, until)
    }

    /// Returns the number of the window that contains `now`.
    fn window_of(&self, now: Instant) -> usize {
        (now.as_nanos() / 1_000_000 / self.window_ms) as usize
    }
}

fn count(counts: &mut Vec<u64>, window: usize) {
    if counts.len() <= window {
        counts.resize(window + 1, 0);
    }
    counts[window] += 1;
}

/// Returns the sum of `counts[from..until]`. Counts past the end are zero.
fn sum(counts: &[u64], from: usize, until: usize) -> u64 {
    let until = until.min(counts.len());
    counts.get(from..until).map_or(0, |counts| counts.iter().sum())
}
