//! Queueing, seen by latency, for providers that refuse nothing.
//!
//! ```text
//! alone   the mean latency of a window of calls that did not queue
//! mean    that of the present window
//!
//! mean > tolerance x alone    the limit becomes limit x alone / mean      (Little's law: that many are being served)
//! mean < midway               the limit may grow
//! ```
//!
//! Means of windows, and not the shortest latency as in TCP Vegas: latencies that scatter would look like a queue.

use crate::time::Duration;

/// The fewest calls in a window.
const FEWEST: u32 = 16;

/// What a window showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// Calls take no longer than alone.
    Clear,
    /// They take a little longer.
    Filling,
    /// They take this many times longer, which is too much.
    Queueing(f64),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queueing {
    /// In nanoseconds; 0 while it is unknown.
    alone: f64,
    calls: u32,
    total: f64,
    /// Cuts in a row that did not help.
    in_vain: u32,
}

impl Queueing {
    /// Takes note of a call; answers what the window showed, if it was the last of it.
    pub(super) fn on_success(&mut self, latency: Duration, limit: u32, tolerance: f64) -> Option<Sight> {
        self.calls += 1;
        self.total += latency.as_nanos() as f64;
        if self.calls < limit.max(FEWEST) {
            return None;
        }
        let mean = self.total / f64::from(self.calls);
        self.forget_window();
        if self.alone == 0.0 {
            self.alone = mean;
        }
        if mean < self.alone {
            self.alone += (mean - self.alone) / 4.0;
        }
        let ratio = if self.alone > 0.0 { mean / self.alone } else { 1.0 };
        if ratio > tolerance {
            self.in_vain += 1;
            if self.in_vain > 4 {
                // Fewer calls did not make them faster: the provider has become slower.
                self.alone = mean;
                self.in_vain = 0;
                return Some(Sight::Clear);
            }
            return Some(Sight::Queueing(ratio));
        }
        self.in_vain = 0;
        Some(if ratio > (1.0 + tolerance) / 2.0 { Sight::Filling } else { Sight::Clear })
    }

    /// Starts the window anew: what is out was let out under another limit.
    pub(super) fn forget_window(&mut self) {
        (self.calls, self.total) = (0, 0.0);
    }
}
