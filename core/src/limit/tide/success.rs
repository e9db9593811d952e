//! The response to answers, accepted calls, and measured latencies.

use super::ceiling::SearchPhase;
use super::queueing::{BatchResult, MOST_LOWERED, Rules};
use super::refusal::CLOSED;
use super::watch::Watched;
use super::{CallReport, Tide, follow, scaled_down, sent_at};
use crate::time::Instant;

/// Successes since the last refusal, in longest waits for a probe, after which latency is used again.
const WAITS_OF_TRUST: u32 = 8;
/// The part of the limit by which it is lowered to measure the baseline of latency.
const LOWERED_BY: u32 = 5;

impl Tide {
    /// Records an answer, and moves the search for the ceiling on.
    pub(super) fn on_success(&mut self, now: Instant, call: &CallReport) {
        follow(&mut self.latency, call.latency);
        self.storm.on_success();
        self.scope.on_success(call.grant, sent_at(now, call));
        if let Some(watched) = self.watch.on_success(call.grant) {
            self.on_accepted(&watched);
        }
        if self.ceiling.is_after_cut(call.grant) {
            self.end_refusal_streak();
            self.unrefused = self.unrefused.saturating_add(1);
        }
        if self.is_queueing {
            return;
        }
        let is_of_phase = self.ceiling.is_of_phase(call.grant);
        if is_of_phase {
            self.ceiling.on_success_of_phase(call.admitted_in_flight);
        }
        match self.ceiling.phase() {
            SearchPhase::Climb { .. } => {
                if self.share.is_known() && !self.share.is_far(self.limit) {
                    self.ceiling.enter(SearchPhase::Hold);
                } else if is_of_phase && self.limit < self.most_of_climb() {
                    self.limit = self.limit.saturating_add(1).min(self.max);
                }
            }
            SearchPhase::Hold => {
                let is_due = self.ceiling.on_held_success(&self.config, self.limit);
                if is_due && self.storm.may_risk(now) && call.admitted_in_flight >= self.limit && self.limit < self.max
                {
                    let floor = self.limit;
                    self.limit += 1;
                    self.ceiling.enter(SearchPhase::Probe { floor });
                }
            }
            SearchPhase::Probe { floor } => {
                if is_of_phase && call.admitted_in_flight > floor {
                    self.ceiling.enter(SearchPhase::Climb { from: floor });
                }
            }
        }
    }

    /// Records that a call was accepted.
    pub(super) fn on_accepted(&mut self, call: &Watched) {
        self.pace.on_accepted(call.grant, call.in_flight, call.since);
        if self.ceiling.is_after_cut(call.grant) {
            self.end_refusal_streak();
        }
        if self.ceiling.is_climbing()
            && self.ceiling.is_of_phase(call.grant)
            && (!self.share.is_known() || self.share.is_far(self.limit))
            && call.in_flight >= self.limit - self.limit / 4
            && !self.is_queueing
        {
            self.limit = self
                .limit
                .saturating_add(self.ceiling.growth(self.limit))
                .min(self.most_of_climb())
                .max(self.limit)
                .min(self.max);
        }
        if let SearchPhase::Probe { floor } = self.ceiling.phase()
            && self.ceiling.is_of_phase(call.grant)
            && call.in_flight > floor
        {
            self.ceiling.enter(SearchPhase::Climb { from: floor });
        }
        if self.pace.is_known() && call.in_flight >= self.limit {
            self.limit = self.limit.saturating_add(1).min(self.max);
        }
    }

    /// Ends a streak of refusals, because a call granted after the last cut was accepted. If the provider was
    /// closed, the limit climbs.
    pub(super) fn end_refusal_streak(&mut self) {
        if core::mem::take(&mut self.refusal_streak) >= CLOSED {
            self.ceiling.enter(SearchPhase::Climb { from: self.limit });
        }
    }

    /// Returns what a batch of latencies may conclude. Latency changes the limit only where nothing has been
    /// refused for long.
    pub(super) fn batch_rules(&self) -> Rules {
        let may_cut = self.unrefused >= self.config.probe_after_most.saturating_mul(WAITS_OF_TRUST);
        let stays = self.limit == self.max || !self.ceiling.is_climbing();
        let may_lower = may_cut && (self.is_queueing || (stays && self.limit <= MOST_LOWERED));
        Rules { tolerance: self.config.latency_tolerance, may_cut, may_lower }
    }

    /// Changes the limit after a batch of latencies.
    pub(super) fn on_batch(&mut self, result: BatchResult, in_flight: u32) {
        match result {
            BatchResult::NoQueue(share) if self.is_queueing && in_flight >= self.limit => {
                self.queueing.on_growth(self.limit);
                self.limit = self.limit.saturating_add((self.limit / share).max(1)).min(self.max);
            }
            BatchResult::BaselineDue => {
                self.was_queueing = core::mem::replace(&mut self.is_queueing, true);
                self.lower_to_measure();
            }
            BatchResult::BaselineShorter => {
                self.was_queueing = true;
                self.ceiling.enter(SearchPhase::Hold);
                self.lower_to_measure();
            }
            BatchResult::BaselineMeasured if self.is_queueing => {
                self.limit = self.limit_after_measuring.min(self.max);
                self.is_queueing = self.was_queueing;
            }
            BatchResult::AtKnee | BatchResult::NoQueue(_) | BatchResult::BaselineMeasured => {}
            BatchResult::NearKnee => {
                if self.ceiling.phase() != SearchPhase::Hold {
                    self.ceiling.enter(SearchPhase::Hold);
                }
            }
            BatchResult::Slower => self.limit = self.limit_before_cuts.min(self.max),
            BatchResult::GrowthFailed { from } => {
                self.limit_before_cuts = self.limit;
                self.limit = from.min(self.limit);
                self.limit_after_measuring = self.limit;
            }
            BatchResult::Queueing { ratio, is_first } => {
                if is_first {
                    self.limit_before_cuts = self.limit;
                }
                let midway = 1.0 + (self.config.latency_tolerance - 1.0) / 2.0;
                self.limit_after_measuring = scaled_down(self.limit, (midway / ratio).min(1.0));
                self.limit = scaled_down(self.limit, 1.0 / ratio);
                self.ceiling.close_cascade();
                self.is_queueing = true;
                self.was_queueing = true;
                self.ceiling.enter(SearchPhase::Hold);
            }
        }
    }

    /// Lowers the limit for a batch that measures the baseline of latency.
    fn lower_to_measure(&mut self) {
        let before = self.limit;
        self.limit_after_measuring = before;
        self.limit_before_cuts = before;
        self.limit = (before - before.div_ceil(LOWERED_BY)).max(1);
        self.queueing.on_lowered(f64::from(self.limit) / f64::from(before));
    }
}
