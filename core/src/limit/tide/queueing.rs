//! Queueing, seen by latency, for providers that refuse nothing.
//!
//! ```text
//! alone   the mean latency of calls that did not queue
//! mean    that of the present batch
//!
//! mean > tolerance x alone   the limit becomes limit x alone / mean for a batch, which is added to `alone`, and then
//!                            limit x midway x alone / mean        (Little's law: limit x alone / mean are being served)
//! mean < midway x alone      the limit may grow: by 1/16, then 1/8, 1/4, 1/2 as this goes on
//! ```
//!
//! with `midway` halfway from 1 to the tolerance: below the knee calls are given away, a little past it
//! latency is.
//!
//! A batch is so many calls that were granted one after another, complete only when the last of them has
//! ended: whoever counts calls as they end sees the short ones first. And it is means that are compared, not
//! the shortest latency as in TCP Vegas: latencies that scatter would look like a queue. A batch has the more
//! calls the more they scatter, and a mean counts as longer only beyond two standard errors.
//!
//! At first `alone` comes from the few calls that went out beside no more than eight, then from batches that
//! take no longer, and every now and then from one under four fifths of the limit. Two cuts in a row that do
//! not halve the excess show that nothing queued: the provider has become slower, or `alone` was luck.

use super::CallReport;
use crate::time::Duration;

/// The fewest and, but for a great limit, the most calls in a batch.
const BATCH: (u32, u32) = (16, 64);
/// Calls that a batch needs where the standard deviation is as long as the mean, for a standard error of a
/// twentieth.
const SCATTER: f64 = 400.0;
/// Calls out beside which a call counts as alone, at first.
const LOW: u32 = 8;
/// Calls that `alone` has to be the mean of to be trusted, and the most that it remembers.
const CALIBRATION: f64 = 64.0;
const MEMORY: f64 = 256.0;
/// Batches after which `alone` is measured anew, before it is trusted and afterwards.
const RELEARN_AFTER: (u32, u32) = (4, 48);
/// What part of `alone` a mean must be for the provider to have become quicker.
const QUICKER: f64 = 0.75;
/// Cuts in a row that do not help, after which it was no queue.
const IN_VAIN: u32 = 2;
/// The most by which the limit grows after one batch: one part in so many.
const SHARES: (u32, u32) = (16, 2);

/// What a batch showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// Calls take no longer than alone: the limit may grow by one part in so many.
    Clear(u32),
    /// They take a little longer.
    Filling,
    /// They take longer, too much so.
    Queueing {
        /// This many times longer.
        ratio: f64,
        /// Unlike in the batch before.
        is_first: bool,
    },
    /// They do so however few there are: it is no queue.
    InVain,
    /// It is time to see how long they take alone.
    Relearn,
    /// That has been seen.
    Learned,
}

/// What the present batch is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// To find `alone` at all.
    #[default]
    First,
    /// To watch.
    Steady,
    /// To see what a cut did.
    Drained,
    /// To measure `alone` anew.
    Alone,
}

/// The latencies of a batch, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    calls: f64,
    mean: f64,
    variance: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    first: u64,
    size: u32,
    ended: u32,
    answered: u32,
    /// Of the answered calls' latencies in nanoseconds, and of their squares.
    total: f64,
    squares: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queueing {
    /// In nanoseconds; 0 while it is unknown.
    alone: f64,
    /// Calls that it is the mean of.
    weight: f64,
    /// Variance by squared mean.
    scatter: f64,
    stage: Stage,
    /// The batch under way; its size is 0 where none is.
    batch: Batch,
    /// Cuts in a row that did not help.
    in_vain: u32,
    /// By how much the mean was too long before the last cut, in nanoseconds.
    excess: f64,
    share: u32,
    /// Batches that showed nothing.
    clear: u32,
    /// Batches since `alone` was measured.
    age: u32,
}

impl Queueing {
    pub(super) fn on_grant(&mut self, grant: u64, limit: u32) {
        if self.batch.size == 0 {
            let needed = (self.scatter * SCATTER) as u32;
            let size = limit.saturating_mul(4).max(needed).clamp(BATCH.0, BATCH.1).max(limit);
            self.batch = Batch { first: grant, size, ..Batch::default() };
        }
    }

    /// Takes note of a call, with its latency if it was answered; tells what the batch showed if it was the
    /// last of it.
    pub(super) fn on_end(&mut self, call: &CallReport, latency: Option<Duration>, tolerance: f64) -> Option<Sight> {
        let (batch, grant) = (&mut self.batch, call.grant);
        if grant < batch.first || grant >= batch.first + u64::from(batch.size) {
            return None;
        }
        batch.ended += 1;
        let counts = self.alone > 0.0 || call.admitted_in_flight <= LOW;
        if let Some(latency) = latency.filter(|_| counts) {
            batch.answered += 1;
            let nanos = latency.as_nanos() as f64;
            batch.total += nanos;
            batch.squares += nanos * nanos;
        }
        if batch.ended < batch.size {
            return None;
        }
        let batch = core::mem::take(batch);
        if batch.answered == 0 {
            return None;
        }
        let calls = f64::from(batch.answered);
        let mean = batch.total / calls;
        let variance = (batch.squares / calls - mean * mean).max(0.0);
        Some(self.judge(Sample { calls, mean, variance }, tolerance))
    }

    /// Starts a batch anew: what is out was let out under another limit.
    pub(super) fn forget_batch(&mut self) {
        self.batch = Batch::default();
        self.share = SHARES.0;
    }

    fn judge(&mut self, sample: Sample, tolerance: f64) -> Sight {
        self.scatter = sample.variance / (sample.mean * sample.mean).max(1.0);
        let stage = core::mem::replace(&mut self.stage, Stage::Steady);
        if stage == Stage::Alone {
            self.learn(sample);
            return Sight::Learned;
        }
        self.age += 1;
        let is_first = self.calibrate(stage, sample);
        let ratio = sample.mean / self.alone;
        if ratio > tolerance && self.is_off(sample) {
            return self.cut(stage, sample, ratio);
        }
        self.in_vain = 0;
        if stage == Stage::Drained {
            return Sight::Learned;
        }
        let (soon, late) = RELEARN_AFTER;
        if self.age >= if self.weight < CALIBRATION { soon } else { late } {
            self.age = 0;
            self.stage = Stage::Alone;
            return Sight::Relearn;
        }
        if is_first {
            self.stage = Stage::First;
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

    /// Adds a batch that should not have queued, and did not, to `alone`; answers whether `alone` is still
    /// being found.
    fn calibrate(&mut self, stage: Stage, sample: Sample) -> bool {
        if self.alone == 0.0 || sample.mean < self.alone * QUICKER {
            self.weight = 0.0;
            self.learn(sample);
        }
        let is_first = stage == Stage::First && self.weight < CALIBRATION;
        if (stage == Stage::Drained || is_first) && !self.is_off(sample) {
            self.learn(sample);
        }
        is_first
    }

    fn cut(&mut self, stage: Stage, sample: Sample, ratio: f64) -> Sight {
        self.share = SHARES.0;
        let excess = sample.mean - self.alone;
        let is_in_vain = stage == Stage::Drained && excess * 2.0 > self.excess;
        self.in_vain = if is_in_vain { self.in_vain + 1 } else { 0 };
        if self.in_vain < IN_VAIN {
            self.excess = excess;
            self.stage = Stage::Drained;
            return Sight::Queueing { ratio, is_first: stage != Stage::Drained };
        }
        self.in_vain = 0;
        self.weight = 0.0;
        self.learn(sample);
        Sight::InVain
    }

    /// Averages over the calls that did not queue.
    fn learn(&mut self, sample: Sample) {
        self.weight = (self.weight + sample.calls).min(MEMORY);
        self.alone += (sample.mean - self.alone) * sample.calls / self.weight;
    }

    /// Whether its mean is further from `alone` than chance puts it one time in twenty.
    fn is_off(&self, sample: Sample) -> bool {
        let off = sample.mean - self.alone;
        off * off > 4.0 * sample.variance * (1.0 / sample.calls + 1.0 / self.weight.max(1.0))
    }
}
