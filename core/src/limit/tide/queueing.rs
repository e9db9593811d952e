//! Detects queueing from latency, for providers that refuse nothing.
//!
//! ```text
//! baseline   the mean latency of calls that did not queue
//! mean       the mean latency of the current batch
//!
//! mean > tolerance x baseline   1. for one batch, the limit is limit x baseline / mean; this batch updates
//!                                  `baseline`
//!                               2. then the limit is limit x midway x baseline / mean
//!                               (Little's law: limit x baseline / mean calls are in service)
//! mean > midway x baseline      a climb ends
//! mean < low x baseline         the limit may grow: by 1/16, then 1/8, 1/4, 1/2 while this continues
//! ```
//!
//! `midway` is halfway from 1 to the tolerance, and `low` a tenth of the way. A limit below the knee
//! loses throughput; a limit a little above it only adds latency. So a delay of less than 5 ms is always
//! tolerated: the mean is compared with a baseline of at least 5 ms / (tolerance - 1), and the delay is
//! added to this one. Otherwise the time that a computer takes to serve other tasks first would count as
//! a queue where calls take a millisecond. 5 ms is the delay that `CoDel` accepts in each queue (RFC
//! 8289, section 4.2).
//!
//! A batch is a number of calls granted one after another. It is complete when its last call has ended:
//! counting calls as they end would count the short ones first. Means are compared, not the shortest latency
//! as in TCP Vegas, because scattered latencies would look like a queue. The more latencies scatter, the
//! larger the batch. A mean counts as longer only beyond two standard errors.
//!
//! At first `baseline` comes from the few calls sent with at most eight in flight. Later it comes from
//! batches whose mean is not longer, and from occasional batches under four fifths of the limit. Two cuts in
//! a row that do not halve the excess show that there is no queue: the provider became slower, or `baseline`
//! was too low by chance.

use super::CallReport;
use crate::time::Duration;

/// The delay in a queue that is always tolerated, in nanoseconds.
const SHORT_DELAY: f64 = 5_000_000.0;
/// The smallest batch, and the largest unless the limit is greater.
const BATCH: (u32, u32) = (16, 64);
/// Calls in a batch if the standard deviation equals the mean, for a standard error of a twentieth.
const SCATTER: f64 = 400.0;
/// The most calls in flight with which a call counts towards the first baseline.
const LOW: u32 = 8;
/// Calls in the mean before `baseline` is trusted, and the most that it weighs.
const CALIBRATION: f64 = 64.0;
const MEMORY: f64 = 256.0;
/// Batches after which `baseline` is measured again, before it is trusted and afterwards.
const RELEARN_AFTER: (u32, u32) = (4, 48);
/// The part of `baseline` below which a mean shows that the provider became quicker.
const QUICKER: f64 = 0.75;
/// Cuts in a row without effect, after which the cause is not a queue.
const IN_VAIN: u32 = 2;
/// The part of the tolerance up to which the limit may grow.
const GROWS_AT: f64 = 0.1;
/// The least and greatest growth after one batch: 1/16 and 1/2 of the limit.
const SHARES: (u32, u32) = (16, 2);

/// What a batch showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BatchResult {
    /// Calls take no longer than the baseline. The limit may grow by one divided by this.
    NoQueue(u32),
    /// Calls take hardly longer, but long enough that more would queue.
    AtKnee,
    /// Calls take a little longer.
    NearKnee,
    /// Calls take longer than is tolerated.
    Queueing {
        /// The mean, as a multiple of the baseline, if that is not short.
        ratio: f64,
        /// Whether the batch before was not queueing.
        is_first: bool,
    },
    /// Calls take longer at any limit, so there is no queue.
    Slower,
    /// The baseline is due to be measured again.
    BaselineDue,
    /// The baseline has been measured.
    BaselineMeasured,
}

/// What the current batch measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BatchPurpose {
    /// The first baseline.
    #[default]
    FirstBaseline,
    /// Whether calls queue.
    Watch,
    /// The effect of a cut.
    CutCheck,
    /// The baseline, again.
    Baseline,
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
    /// The sum of the latencies of answered calls in nanoseconds, and of their squares.
    total: f64,
    squares: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queueing {
    /// The mean latency without a queue, in nanoseconds; 0 if unknown.
    baseline: f64,
    /// Calls in the mean `baseline`.
    weight: f64,
    /// The variance divided by the squared mean.
    scatter: f64,
    purpose: BatchPurpose,
    /// The current batch; of size 0 if there is none.
    batch: Batch,
    /// Cuts in a row without effect.
    vain_cuts: u32,
    /// The mean less the baseline at the last cut, in nanoseconds.
    excess: f64,
    share: u32,
    /// Batches that did not queue.
    unqueued: u32,
    /// Batches since `baseline` was measured.
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

    /// Records the end of a call, and its latency if it was answered. Returns what the batch showed if the
    /// call was the last of it.
    pub(super) fn on_end(
        &mut self,
        call: &CallReport,
        latency: Option<Duration>,
        tolerance: f64,
    ) -> Option<BatchResult> {
        let (batch, grant) = (&mut self.batch, call.grant);
        if grant < batch.first || grant >= batch.first + u64::from(batch.size) {
            return None;
        }
        batch.ended += 1;
        let counts = self.baseline > 0.0 || call.admitted_in_flight <= LOW;
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

    /// Discards the current batch. Its calls were sent under another limit.
    pub(super) fn reset_batch(&mut self) {
        self.batch = Batch::default();
        self.share = SHARES.0;
    }

    fn judge(&mut self, sample: Sample, tolerance: f64) -> BatchResult {
        self.scatter = sample.variance / (sample.mean * sample.mean).max(1.0);
        let purpose = core::mem::replace(&mut self.purpose, BatchPurpose::Watch);
        if purpose == BatchPurpose::Baseline {
            self.learn(sample);
            return BatchResult::BaselineMeasured;
        }
        self.age += 1;
        let is_first = self.calibrate(purpose, sample);
        let baseline = self.baseline.max(SHORT_DELAY / (tolerance - 1.0));
        let ratio = (baseline + sample.mean - self.baseline) / baseline;
        if ratio > tolerance && self.differs(sample) {
            return self.cut(purpose, sample, ratio);
        }
        self.vain_cuts = 0;
        if purpose == BatchPurpose::CutCheck {
            return BatchResult::BaselineMeasured;
        }
        let (soon, late) = RELEARN_AFTER;
        if self.age >= if self.weight < CALIBRATION { soon } else { late } {
            self.age = 0;
            self.purpose = BatchPurpose::Baseline;
            return BatchResult::BaselineDue;
        }
        if is_first {
            self.purpose = BatchPurpose::FirstBaseline;
        }
        if ratio > 1.0 + (tolerance - 1.0) / 2.0 {
            self.share = SHARES.0;
            return BatchResult::NearKnee;
        }
        if ratio > 1.0 + (tolerance - 1.0) * GROWS_AT {
            self.share = SHARES.0;
            return BatchResult::AtKnee;
        }
        let share = self.share.clamp(SHARES.1, SHARES.0);
        self.unqueued += 1;
        if self.unqueued.is_multiple_of(2) {
            self.share = share / 2;
        }
        BatchResult::NoQueue(share)
    }

    /// Adds a batch that did not queue to `baseline`. Returns whether the first baseline is still being
    /// measured.
    fn calibrate(&mut self, purpose: BatchPurpose, sample: Sample) -> bool {
        if self.baseline == 0.0 || sample.mean < self.baseline * QUICKER {
            self.weight = 0.0;
            self.learn(sample);
        }
        let is_first = purpose == BatchPurpose::FirstBaseline && self.weight < CALIBRATION;
        if (purpose == BatchPurpose::CutCheck || is_first) && !self.differs(sample) {
            self.learn(sample);
        }
        is_first
    }

    fn cut(&mut self, purpose: BatchPurpose, sample: Sample, ratio: f64) -> BatchResult {
        self.share = SHARES.0;
        let excess = sample.mean - self.baseline;
        let is_vain = purpose == BatchPurpose::CutCheck && excess * 2.0 > self.excess;
        self.vain_cuts = if is_vain { self.vain_cuts + 1 } else { 0 };
        if self.vain_cuts < IN_VAIN {
            self.excess = excess;
            self.purpose = BatchPurpose::CutCheck;
            return BatchResult::Queueing { ratio, is_first: purpose != BatchPurpose::CutCheck };
        }
        self.vain_cuts = 0;
        self.weight = 0.0;
        self.learn(sample);
        BatchResult::Slower
    }

    /// Adds a batch to the mean of calls that did not queue.
    fn learn(&mut self, sample: Sample) {
        self.weight = (self.weight + sample.calls).min(MEMORY);
        self.baseline += (sample.mean - self.baseline) * sample.calls / self.weight;
    }

    /// Returns whether the mean differs from `baseline` by more than chance explains in 19 of 20 cases.
    fn differs(&self, sample: Sample) -> bool {
        let off = sample.mean - self.baseline;
        off * off > 4.0 * sample.variance * (1.0 / sample.calls + 1.0 / self.weight.max(1.0))
    }
}
