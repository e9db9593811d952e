//! Queueing, seen by latency, for providers that refuse nothing.
//!
//! ```text
//! alone   the mean latency of a batch of calls that did not queue
//! mean    that of the present batch
//!
//! mean > tolerance x alone        the limit becomes limit x alone / mean      (Little's law: that many are being served)
//! mean < midway                   the limit may grow: by 1/16, then 1/8, 1/4, 1/2 as this goes on
//! ```
//!
//! A batch is so many calls that were granted one after another, complete only when the last of them has ended: whoever
//! counts calls as they end sees the short ones first. And it is means that are compared, not the shortest latency as in
//! TCP Vegas: latencies that scatter would look like a queue.

use crate::time::Duration;

/// The fewest and, but for a great limit, the most calls in a batch.
const BATCH: (u32, u32) = (16, 64);
/// Batches after which `alone` is measured anew, under half the limit.
const RELEARN_AFTER: u32 = 48;
/// The most by which the limit grows after one batch: one part in so many.
const SHARES: (u32, u32) = (16, 2);

/// What a batch showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// Calls take no longer than alone: the limit may grow by one part in so many.
    Clear(u32),
    /// They take a little longer.
    Filling,
    /// They take this many times longer, which is too much.
    Queueing(f64),
    /// It is time to see how long they take alone.
    Relearn,
    /// That has been seen.
    Learned,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    first: u64,
    size: u32,
    ended: u32,
    answered: u32,
    /// In nanoseconds.
    total: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queueing {
    /// In nanoseconds; 0 while it is unknown.
    alone: f64,
    /// The batch under way; its size is 0 where none is.
    batch: Batch,
    /// Cuts in a row that did not help.
    in_vain: u32,
    share: u32,
    /// Batches that showed nothing.
    clear: u32,
    /// Whether the limit was cut before this batch.
    is_drained: bool,
    /// Batches since `alone` was measured.
    age: u32,
    is_learning: bool,
}

impl Queueing {
    pub(super) fn on_grant(&mut self, grant: u64, limit: u32) {
        if self.batch.size == 0 {
            let size = limit.saturating_mul(4).clamp(BATCH.0, BATCH.1).max(limit);
            self.batch = Batch { first: grant, size, ..Batch::default() };
        }
    }

    /// Takes note of a call, with its latency if it was answered; tells what the batch showed if it was the last of it.
    pub(super) fn on_end(&mut self, grant: u64, latency: Option<Duration>, tolerance: f64) -> Option<Sight> {
        let batch = &mut self.batch;
        if grant < batch.first || grant >= batch.first + u64::from(batch.size) {
            return None;
        }
        batch.ended += 1;
        if let Some(latency) = latency {
            batch.answered += 1;
            batch.total += latency.as_nanos() as f64;
        }
        if batch.ended < batch.size {
            return None;
        }
        let batch = core::mem::take(batch);
        (batch.answered > 0).then(|| self.judge(batch.total / f64::from(batch.answered), tolerance))
    }

    /// Starts a batch anew: what is out was let out under another limit.
    pub(super) fn forget_batch(&mut self) {
        self.batch = Batch::default();
        self.share = SHARES.0;
    }

    fn judge(&mut self, mean: f64, tolerance: f64) -> Sight {
        if self.is_learning {
            self.is_learning = false;
            self.alone += (mean - self.alone) / 2.0;
            return Sight::Learned;
        }
        if self.alone == 0.0 {
            self.alone = mean;
        }
        // After a cut nothing should queue, so that mean counts whichever way it lies.
        if mean < self.alone || core::mem::take(&mut self.is_drained) {
            self.alone += (mean - self.alone) / 8.0;
        }
        self.age += 1;
        let ratio = if self.alone > 0.0 { mean / self.alone } else { 1.0 };
        if ratio > tolerance {
            self.in_vain += 1;
            self.share = SHARES.0;
            if self.in_vain <= 4 {
                self.is_drained = true;
                return Sight::Queueing(ratio);
            }
            // Fewer calls did not make them faster: the provider has become slower.
            self.in_vain = 0;
            self.alone = mean;
        }
        self.in_vain = 0;
        if self.age >= RELEARN_AFTER {
            self.age = 0;
            self.is_learning = true;
            return Sight::Relearn;
        }
        if ratio > 1.0 + (tolerance - 1.0) / 2.0 {
            self.share = SHARES.0;
            return Sight::Filling;
        }
        let share = self.share.clamp(SHARES.1, SHARES.0);
        self.clear += 1;
        if self.clear.is_multiple_of(2) {
            self.share = share / 2;
        }
        Sight::Clear(share)
    }
}
