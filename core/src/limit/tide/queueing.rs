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
//! mean < low x baseline         the limit may grow: by 1/16, then 1/8, 1/4, 1/2 while this continues;
//!                               if the first batch of a growth queues, the limit returns to where it was,
//!                               and the next growth waits for twice as many batches
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
//! larger the batch. A mean counts as longer only beyond two standard errors. A batch is not awaited if the
//! mean of its answered calls is twice the baseline already, because the short ones are answered first. The
//! calls in service are then baseline x answers per second (Little's law, too): the queue still grows.
//!
//! At first `baseline` comes from the few calls sent with at most eight in flight. Later it comes from
//! batches whose mean is not longer, and from occasional batches under four fifths of the limit. If the knee
//! is below eight calls, the first ones queued, too. So a limit that stays at 16 or fewer is lowered by a
//! fifth, and again as long as the mean falls by more than half as much: if calls queue, their latency falls
//! as the limit does, and if they do not, it stays.
//!
//! Two cuts in a row that do not halve the excess show that there is no queue: the provider became slower, or
//! `baseline` was too low by chance.

use super::CallReport;
use crate::time::{Duration, Instant};

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
/// Batches after which `baseline` is measured under a lower limit, for the first time and afterwards.
const RELEARN_AFTER: (u32, u32) = (1, 48);
/// The greatest limit that is lowered to measure `baseline` before any call has queued. Above it, the first
/// calls of the climb had fewer than half as many in flight.
pub(super) const MOST_LOWERED: u32 = 2 * LOW;
/// A batch ends early if its mean is this multiple of `baseline`.
const FAR_LONGER: f64 = 2.0;
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
        /// Whether the limit before this batch was one at which calls seemed not to queue.
        is_first: bool,
    },
    /// The limit has grown too far from this one.
    GrowthFailed { from: u32 },
    /// Calls take longer at any limit, so there is no queue.
    Slower,
    /// The baseline is due to be measured again.
    BaselineDue,
    /// The baseline has been measured.
    BaselineMeasured,
    /// Calls took less time under a lower limit, so that they queued before. The limit has to be lower again.
    BaselineShorter,
}

/// What the limit lets a batch conclude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The mean latency that is tolerated, as a multiple of the baseline.
    pub(super) tolerance: f64,
    /// Whether latency may lower the limit.
    pub(super) may_cut: bool,
    /// Whether the limit may be lowered to measure the baseline.
    pub(super) may_lower: bool,
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
    /// If the batch has not been awaited: the limit as a multiple of the calls in service.
    overload: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    first: u64,
    begun: Instant,
    size: u32,
    ended: u32,
    answered: u32,
    /// All calls answered since the batch began, those of other batches included.
    all_answered: u32,
    /// The sum of the latencies of answered calls in nanoseconds, and of their squares.
    total: f64,
    squares: f64,
}

impl Batch {
    fn sample(&self) -> Sample {
        let calls = f64::from(self.answered);
        let mean = self.total / calls;
        Sample { calls, mean, variance: (self.squares / calls - mean * mean).max(0.0), overload: 0.0 }
    }
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
    /// The ratio of mean to baseline at the last cut, less 1.
    excess: f64,
    share: u32,
    /// Batches that did not queue.
    unqueued: u32,
    /// The limit before it last grew, until a batch shows whether calls queue since.
    grown_from: Option<u32>,
    /// Batches without a queue before the limit grows, and how many there have been since it last did.
    patience: u32,
    waited: u32,
    /// Batches since `baseline` was measured.
    age: u32,
    /// Whether `baseline` has been measured under a lower limit, and no shorter.
    is_measured: bool,
    /// The part of the limit that was left to measure `baseline`.
    left: f64,
}

impl Queueing {
    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, limit: u32) {
        if self.batch.size == 0 {
            let needed = (self.scatter * SCATTER) as u32;
            let size = limit.saturating_mul(4).max(needed).clamp(BATCH.0, BATCH.1).max(limit);
            self.batch = Batch { first: grant, begun: now, size, ..Batch::default() };
        }
    }

    /// Records the end of a call, and its latency if it was answered. Returns what the batch showed if the
    /// call was the last of it, or if the batch need not be awaited.
    pub(super) fn on_end(
        &mut self,
        now: Instant,
        call: &CallReport,
        latency: Option<Duration>,
        rules: &Rules,
    ) -> Option<BatchResult> {
        let (batch, grant) = (&mut self.batch, call.grant);
        batch.all_answered += u32::from(latency.is_some());
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
        let batch = *batch;
        let is_complete = batch.ended == batch.size;
        let ends = is_complete || (rules.may_cut && self.is_far_longer(&batch, rules.tolerance));
        if !ends {
            return None;
        }
        self.batch = Batch::default();
        if batch.answered == 0 {
            return None;
        }
        let mut sample = batch.sample();
        if !is_complete {
            let span = (now - batch.begun).as_nanos() as f64;
            let in_service = f64::from(batch.all_answered) * self.unqueued_latency(rules.tolerance) / span.max(1.0);
            sample.overload = f64::from(call.admitted_limit) / in_service;
        }
        Some(self.judge(sample, rules))
    }

    /// Records that the limit grew from `limit` because a batch did not queue.
    pub(super) fn on_growth(&mut self, limit: u32) {
        self.grown_from = Some(limit);
        self.waited = 0;
    }

    /// Records that the limit was lowered to measure the baseline. `left` is the part that was left of it.
    pub(super) fn on_lowered(&mut self, left: f64) {
        self.left = left;
        self.grown_from = None;
    }

    /// Discards the current batch. Its calls were sent under another limit.
    pub(super) fn reset_batch(&mut self) {
        self.batch = Batch::default();
        self.share = SHARES.0;
        self.grown_from = None;
        if self.purpose != BatchPurpose::FirstBaseline {
            self.purpose = BatchPurpose::Watch;
        }
    }

    /// Returns the latency without a queue in nanoseconds, not counting a short delay.
    fn unqueued_latency(&self, tolerance: f64) -> f64 {
        self.baseline.max(SHORT_DELAY / (tolerance - 1.0))
    }

    /// Returns a mean as a multiple of the baseline.
    fn ratio(&self, mean: f64, tolerance: f64) -> f64 {
        let baseline = self.unqueued_latency(tolerance);
        (baseline + mean - self.baseline) / baseline
    }

    /// Returns whether the calls of a batch that were answered, the short ones first, show a long queue.
    fn is_far_longer(&self, batch: &Batch, tolerance: f64) -> bool {
        if self.baseline == 0.0 || batch.answered < BATCH.0 {
            return false;
        }
        let sample = batch.sample();
        self.ratio(sample.mean, tolerance) > tolerance.max(FAR_LONGER) && self.differs(sample)
    }

    fn judge(&mut self, sample: Sample, rules: &Rules) -> BatchResult {
        let tolerance = rules.tolerance;
        self.scatter = sample.variance / (sample.mean * sample.mean).max(1.0);
        let purpose = core::mem::replace(&mut self.purpose, BatchPurpose::Watch);
        let mut is_first = false;
        if purpose == BatchPurpose::Baseline {
            if self.ratio(sample.mean, tolerance) < f64::midpoint(1.0, self.left) && self.differs(sample) {
                self.restart_baseline(sample);
                self.purpose = BatchPurpose::Baseline;
                return BatchResult::BaselineShorter;
            }
        } else {
            self.age += 1;
            is_first = self.calibrate(purpose, sample);
        }
        if is_first {
            self.purpose = BatchPurpose::FirstBaseline;
        }
        let ratio = self.ratio(sample.mean, tolerance).max(sample.overload);
        if ratio > tolerance && self.differs(sample) {
            return if rules.may_cut { self.cut(purpose, sample, ratio) } else { BatchResult::NearKnee };
        }
        self.vain_cuts = 0;
        match purpose {
            BatchPurpose::Baseline => {
                self.learn(sample);
                self.is_measured = true;
                return BatchResult::BaselineMeasured;
            }
            BatchPurpose::CutCheck => return BatchResult::BaselineMeasured,
            BatchPurpose::FirstBaseline | BatchPurpose::Watch => {}
        }
        let (soon, late) = RELEARN_AFTER;
        if rules.may_lower && self.age >= if self.is_measured { late } else { soon } {
            self.age = 0;
            self.purpose = BatchPurpose::Baseline;
            return BatchResult::BaselineDue;
        }
        if ratio > 1.0 + (tolerance - 1.0) / 2.0 {
            self.share = SHARES.0;
            return BatchResult::NearKnee;
        }
        if ratio > 1.0 + (tolerance - 1.0) * GROWS_AT {
            self.share = SHARES.0;
            return BatchResult::AtKnee;
        }
        if self.grown_from.take().is_some() {
            self.patience = 0;
        }
        self.waited += 1;
        if self.waited < self.patience {
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
            self.restart_baseline(sample);
        }
        let is_first = purpose == BatchPurpose::FirstBaseline && self.weight < CALIBRATION;
        if (purpose == BatchPurpose::CutCheck || is_first) && !self.differs(sample) {
            self.learn(sample);
        }
        is_first
    }

    fn cut(&mut self, purpose: BatchPurpose, sample: Sample, ratio: f64) -> BatchResult {
        let grown_from = self.grown_from.take();
        self.share = SHARES.0;
        let is_check = purpose == BatchPurpose::CutCheck;
        let excess = ratio - 1.0;
        let is_vain = is_check && excess * 2.0 > self.excess;
        self.vain_cuts = if is_vain { self.vain_cuts + 1 } else { 0 };
        if self.vain_cuts >= IN_VAIN {
            self.vain_cuts = 0;
            self.restart_baseline(sample);
            self.purpose = BatchPurpose::Watch;
            return BatchResult::Slower;
        }
        self.excess = excess;
        self.purpose = BatchPurpose::CutCheck;
        if let Some(from) = grown_from {
            self.patience = (self.patience * 2).max(2);
            self.waited = 0;
            return BatchResult::GrowthFailed { from };
        }
        BatchResult::Queueing { ratio, is_first: !is_check && purpose != BatchPurpose::Baseline }
    }

    /// Replaces `baseline`.
    fn restart_baseline(&mut self, sample: Sample) {
        self.weight = 0.0;
        self.is_measured = false;
        self.learn(sample);
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
