//! Answers and refusals over time.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::time::{Duration, Instant};

/// Answers and refusals by window, from the start of the case. All windows are equally long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Series {
    /// How long a window is, in milliseconds.
    pub window_ms: u64,
    /// Calls that were answered, by window.
    pub answered: Vec<u64>,
    /// Calls that were refused, by window.
    pub refused: Vec<u64>,
}

impl Series {
    /// The window in which a run counts: everything else is a multiple of it.
    pub(super) const TICK: Duration = Duration::from_millis(100);

    /// How many ticks `span` is, rounded up.
    pub(super) fn ticks(span: Duration) -> usize {
        span.as_nanos().div_ceil(Self::TICK.as_nanos()) as usize
    }

    /// A series of ticks in which nothing has happened yet.
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

    /// The same in windows of `window` up to `span`. A last window that would be cut short is left out.
    pub(super) fn coarser(&self, window: Duration, span: Duration) -> Self {
        let ticks = Self::ticks(window);
        let windows = (span.as_nanos() / Self::TICK.as_nanos()) as usize / ticks;
        let sums = |counts: &[u64]| (0..windows).map(|nth| sum(counts, nth * ticks, (nth + 1) * ticks)).collect();
        Self { window_ms: ticks as u64 * self.window_ms, answered: sums(&self.answered), refused: sums(&self.refused) }
    }

    /// Answers in the windows from `from` up to `until`.
    pub(super) fn answered_in(&self, from: usize, until: usize) -> u64 {
        sum(&self.answered, from, until)
    }

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

/// The sum of `counts[from..until]`; what is past the end is zero.
fn sum(counts: &[u64], from: usize, until: usize) -> u64 {
    let until = until.min(counts.len());
    counts.get(from..until).map_or(0, |counts| counts.iter().sum())
}
