//! The response to a refusal: which part of the algorithm it concerns, and how long it stops calls.

use super::ceiling::SearchPhase;
use super::inflow::Refusal;
use super::restart::Restart;
use super::scope::Stops;
use super::{CallReport, RetryAfterStops, Tide, scaled_down, sent_at};
use crate::time::{Duration, Instant};

/// Refusals in a row, with nothing accepted between them, after which the provider counts as closed.
pub(super) const CLOSED: u32 = 4;
/// The part of the time since the first of these refusals that the next call waits. With a quarter, ten
/// seconds take 25 calls.
const CLOSED_PART: u64 = 4;
/// Trials at the same load that have to pass in a row before a rate is learned.
const PASSES: u32 = 2;

impl Tide {
    /// Attributes a refusal to the pace, to a share of all calls, to a trial, or to the limit, in this order.
    pub(super) fn on_refused(&mut self, now: Instant, call: &CallReport) {
        if !self.is_within_share() {
            self.storm.on_refused(now);
        }
        self.share.on_refused(call.grant, call.admitted_in_flight, self.ceiling.next_grant());
        self.watch.on_refused(call.grant, call.latency);
        self.unrefused = 0;
        self.is_queueing = false;
        self.queueing.reset_batch();
        let stops = self.stops(now, call);
        // A Retry-After that stops the refused call only does not state when the next call is accepted.
        let may_stop_resource = |retry_after: &Duration| match stops {
            Stops::Call => false,
            Stops::Unknown => !self.pace.is_known() || !self.pace.is_long(*retry_after),
            Stops::Resource(_) => true,
        };
        let retry_after = call.retry_after.filter(may_stop_resource).unwrap_or_default();
        let stated_retry_after = call.retry_after.unwrap_or_default();
        let refusal = Refusal {
            grant: call.grant,
            sent: sent_at(now, call),
            retry_after,
            stated_retry_after,
            in_flight: call.admitted_in_flight,
            is_share: self.share.is_known(),
            may_risk: self.storm.may_risk(now),
        };
        let had_pace = self.pace.is_known();
        let is_by_pace = self.pace.on_refused(now, &refusal);
        // Under a pace that ended, the limit may have grown far beyond the calls in flight.
        let pace_end = (had_pace && !self.pace.is_known()).then_some(now);
        if let Some(end) = self.cooldown_until.take().or(pace_end) {
            self.restart = Some(Restart { end, in_flight: call.in_flight, tick: self.tick() });
        }
        if let Some(share) = self.pace.take_refused_share() {
            self.share.learn(share);
        }
        if let Some(retry_after) = call.retry_after {
            let first = now + self.own_cooldown(now, call);
            self.scope.on_refused(now, call, retry_after, stops, first);
        }
        if is_by_pace {
            // The limit did not cause the refusals, so the cuts are undone.
            self.limit = self.limit.max(self.pace.most_accepted()).min(self.max);
            self.ceiling.close_cascade();
            self.same_load.clear();
        } else if self.is_within_share() {
            self.refusal_streak = 0;
            self.same_load.clear();
            if self.ceiling.phase() == SearchPhase::Hold && self.share.is_far(self.limit) {
                self.ceiling.enter(SearchPhase::Climb { from: self.limit });
            }
        } else if self.same_load.on_refused(now, &refusal, self.last_trial()) {
            self.ceiling.close_cascade();
        } else if self.ceiling.is_after_cut(call.grant) {
            self.on_too_many(now, call);
            if !self.pace.is_known() {
                let is_lower = self.limit + 1 < call.admitted_in_flight;
                self.same_load.on_cut(now, &refusal, is_lower, self.first_trial());
            }
        }
    }

    /// Cuts the limit after a refusal that is not explained otherwise.
    pub(super) fn on_too_many(&mut self, now: Instant, call: &CallReport) {
        self.watch.drop_watched();
        self.ceiling.close_cascade();
        if self.refusal_streak < CLOSED {
            self.cut(call);
        }
        if self.refusal_streak == 0 {
            self.refused_since = now;
        }
        self.refusal_streak = self.refusal_streak.saturating_add(1);
    }

    /// Lowers the limit after a refusal, more with each refusal in the streak.
    pub(super) fn cut(&mut self, call: &CallReport) {
        let limit = self.limit;
        let ceiling = if self.share.is_known() {
            // Any of the calls that are refused at any load may have been the one reported.
            self.share.on_cut(limit, self.ceiling.next_grant());
            limit.saturating_sub((limit / 4).max(1))
        } else {
            call.admitted_in_flight.saturating_sub(1).clamp(1, limit)
        };
        // One less, then two, four, eight while nothing is accepted.
        let less = limit.saturating_sub(1 << self.refusal_streak.min(31));
        let least = scaled_down(limit, self.config.decrease_factor);
        self.limit = ceiling.min(less.max(least)).max(1);
        self.ceiling.on_cut(self.limit, call.admitted_limit, self.refusal_streak > 0);
    }

    /// Undoes a cut, because a call was accepted at the load that was refused: the cause was a rate.
    pub(super) fn on_same_load(&mut self, now: Instant, in_flight: u32, refused: Instant) {
        self.end_refusal_streak();
        self.ceiling.close_cascade();
        self.limit = self.limit.max(in_flight.saturating_add(1)).min(self.max);
        if self.same_load.passes() >= PASSES {
            self.pace.adopt(now, now - refused);
        }
        self.ceiling.enter(SearchPhase::Climb { from: self.limit });
    }

    /// Returns what a refusal stops.
    pub(super) fn stops(&self, now: Instant, call: &CallReport) -> Stops {
        let Some(retry_after) = call.retry_after else { return Stops::Call };
        match self.config.retry_after {
            RetryAfterStops::Learned if self.pace.is_testing() => Stops::Call,
            RetryAfterStops::Learned => self.scope.classify(now, call, retry_after, self.pace.is_long(retry_after)),
            RetryAfterStops::Resource => Stops::Resource(retry_after),
            RetryAfterStops::Call => Stops::Call,
        }
    }

    /// Returns the cooldown after a refusal whose Retry-After does not stop the resource. It is zero while
    /// the limit can be cut.
    pub(super) fn own_cooldown(&self, now: Instant, call: &CallReport) -> Duration {
        if self.storm.stops_all(self.limit) {
            return self.watch.acceptance_delay();
        }
        if !self.ceiling.is_after_cut(call.grant) || self.is_within_share() {
            return Duration::ZERO;
        }
        let nanos = if self.refusal_streak >= CLOSED {
            ((now - self.refused_since).as_nanos() / CLOSED_PART).max(self.first_trial().as_nanos())
        } else if self.limit > 1 {
            0
        } else {
            let base = if self.latency > 0.0 { self.latency / 4.0 } else { 5e7 };
            (base * f64::from(1_u32 << self.refusal_streak.saturating_sub(1).min(16))) as u64
        };
        Duration::from_nanos(nanos).min(self.config.longest_pause)
    }

    /// Returns whether refusals are within the share that is refused at any load.
    pub(super) fn is_within_share(&self) -> bool {
        !self.pace.is_known() && self.share.is_within_share()
    }
}
