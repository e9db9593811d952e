//! Learns what a Retry-After stops: the whole resource, or only the refused call.
//!
//! The Retry-After of a rate applies to all calls: none is accepted before it ends. The Retry-After of a
//! provider without a free slot, or of a pool that others use, applies to the refused call: others are
//! accepted as soon as slots are free. Providers do not state which one they mean. It is learned from calls
//! sent while the Retry-After of a refusal runs:
//!
//! ```text
//! a call sent while it runs is accepted                             it stops the refused call only
//! one is refused although fewer were in flight than at the first    it stops the resource
//! ```
//!
//! While this is unknown, a refusal is followed by trials. A trial is a call sent when fewer calls are in
//! flight than were accepted, and no other call is sent until a refusal of it would have arrived. If it is
//! refused, the next trial waits until the time since the first refusal has doubled. If [all](TRIES) are
//! refused, the Retry-After is obeyed, and the next trials follow after 2, 4, 8, ... more refusals.
//!
//! A Retry-After in whole seconds is usually rounded up. So a call that is accepted in its [last
//! second](ROUNDED) shows nothing: the Retry-After may have ended. Nor does a call that was accepted before a
//! later refusal show anything of the Retry-After of that one.

use super::super::CallReport;
use super::inflow::is_rounded;
use crate::time::{Duration, Instant};

/// How far an accepted call moves the belief. Where a Retry-After stops the resource, no call is accepted.
const PASSED: f64 = 0.3;
/// How far a refused call moves the belief: the last trial of a Retry-After, an earlier trial, and any other
/// call sent while it runs. Such a call may have been refused for another reason.
const TRIAL: f64 = 0.15;
const ONE_TRIAL: f64 = 0.07;
const CHANCE: f64 = 0.06;
/// The belief below which a Retry-After stops the call only. Three trials that pass lead from 0.5 to below
/// it.
const CALL_ONLY: f64 = 0.25;
/// The least belief, so that it can still change.
const CERTAIN: f64 = 0.02;
/// Refused trials in a row after which a Retry-After is obeyed. If half of all calls are refused at random,
/// seven trials in a row are refused once in 128 times.
const TRIES: u32 = 7;
/// The most refusals that are obeyed between two trials.
const MOST_OBEYED: u32 = 64;
/// How much earlier than stated a Retry-After in whole seconds may end; half of a shorter one.
const ROUNDED: u64 = 1_000_000_000;

/// Refusals, each while the Retry-After of the one before runs.
#[derive(Clone, Copy, Debug)]
struct RunningRetryAfter {
    /// The grant of the first refused call.
    grant: u64,
    /// The fewest calls in flight with a refused call.
    in_flight: u32,
    until: Instant,
    /// Until when it runs in any case, although it may have been rounded.
    surely_until: Instant,
    /// The grant of the refused call that last moved these two, and the value of `surely_until` before.
    moved_by: u64,
    surely_until_before: Instant,
    /// When the first refused call was sent.
    since: Instant,
}

impl RunningRetryAfter {
    /// Returns whether the Retry-After ran when a call was sent at `sent`.
    fn ran_at(&self, grant: u64, sent: Instant) -> bool {
        let until = if grant > self.moved_by { self.surely_until } else { self.surely_until_before };
        grant > self.grant && sent < until
    }

    /// Returns what runs after another refusal.
    fn followed_by(self, next: &Self) -> Self {
        let in_flight = self.in_flight.min(next.in_flight);
        if next.until <= self.until {
            return Self { in_flight, ..self };
        }
        let surely_until = self.surely_until.max(next.surely_until);
        let (moved_by, surely_until_before) = (next.grant, self.surely_until);
        Self { in_flight, until: next.until, surely_until, moved_by, surely_until_before, ..self }
    }
}

/// A call sent to learn what the Retry-After stops.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The most calls in flight with the trial.
    in_flight: u32,
    not_before: Instant,
    /// The trials before it that were refused.
    tries: u32,
    /// The grant of the trial, and when it counts as accepted.
    sent: Option<(u64, Instant)>,
    /// Whether the Retry-After surely ran when the trial was sent.
    ran: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The estimated probability that calls sent while a Retry-After runs are refused.
    belief: f64,
    running: Option<RunningRetryAfter>,
    trial: Option<Trial>,
    /// Refusals to obey before the next trial, and before the one after it.
    obeyed: u32,
    most_obeyed: u32,
    /// Whether the next trial is sent halfway through the Retry-After instead of at once.
    is_half: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self { belief: 0.5, running: None, trial: None, obeyed: 0, most_obeyed: 1, is_half: false }
    }
}

/// What a refusal stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stops {
    /// Every call of the resource, for this long.
    Resource(Duration),
    /// The refused call only.
    Call,
    /// Unknown: a trial follows.
    Unknown,
}

impl Scope {
    /// Returns what a refusal with a Retry-After stops. `may_try` states whether a trial is worth its cost.
    pub(super) fn classify(&self, now: Instant, call: &CallReport, retry_after: Duration, may_try: bool) -> Stops {
        if let Some(trial) = self.trial {
            return match trial.sent {
                Some((grant, _)) if call.grant >= grant && self.belief >= CALL_ONLY && trial.tries + 1 >= TRIES => {
                    let promised = self.running.map_or(Duration::ZERO, |running| running.until - now);
                    Stops::Resource(retry_after.max(promised))
                }
                _ => Stops::Unknown,
            };
        }
        if self.belief < CALL_ONLY {
            Stops::Call
        } else if may_try && self.obeyed == 0 {
            Stops::Unknown
        } else {
            Stops::Resource(retry_after)
        }
    }

    /// Returns the most calls that may be in flight during a trial.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        self.trial_at(now).map_or(u32::MAX, |trial| trial.in_flight)
    }

    /// Returns when the next call may be sent, during a trial.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.trial_at(now).map(|trial| trial.sent.map_or(trial.not_before, |(_, accepted_at)| accepted_at))
    }

    /// Returns when the current trial ends by time alone.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        let trial = self.trial_at(now)?;
        trial.sent.map(|(_, accepted_at)| accepted_at).or(self.running.map(|running| running.until))
    }

    fn trial_at(&self, now: Instant) -> Option<Trial> {
        let end = |trial: &Trial| {
            trial.sent.map(|(_, accepted_at)| accepted_at).or(self.running.map(|running| running.until))
        };
        self.trial.filter(|trial| end(trial).is_some_and(|end| now < end))
    }

    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, accepted_at: Instant) {
        if let Some(Trial { sent: sent @ None, ran, .. }) = &mut self.trial {
            *sent = Some((grant, accepted_at));
            *ran = self.running.is_some_and(|running| now < running.surely_until);
        }
    }

    /// Ends a trial that was accepted or that expired.
    pub(super) fn advance(&mut self, now: Instant) {
        let Some(trial) = self.trial else { return };
        match trial.sent {
            Some((_, accepted_at)) if now >= accepted_at => {
                self.trial = None;
                if trial.ran {
                    self.lower_belief();
                    self.most_obeyed = 1;
                }
            }
            // The Retry-After ended before a call could be sent.
            None if self.running.is_none_or(|running| now >= running.until) => self.trial = None,
            _ => {}
        }
    }

    /// Lowers the belief, because a call was accepted while a Retry-After ran.
    fn lower_belief(&mut self) {
        self.belief = (self.belief - self.belief * PASSED).max(CERTAIN);
    }

    /// Records that a call sent at `sent` was answered.
    pub(super) fn on_success(&mut self, grant: u64, sent: Instant) {
        if self.running.is_some_and(|running| running.ran_at(grant, sent)) {
            self.lower_belief();
        }
    }

    /// Records a refusal with a Retry-After. `stops` is its classification, and `first` the earliest time of
    /// a trial.
    pub(super) fn on_refused(
        &mut self,
        now: Instant,
        call: &CallReport,
        retry_after: Duration,
        stops: Stops,
        first: Instant,
    ) {
        let sent = super::sent_at(now, call);
        let (in_flight, until) = (call.admitted_in_flight, sent + retry_after);
        let rounded = if is_rounded(retry_after) { ROUNDED.min(retry_after.as_nanos() / 2) } else { 0 };
        let surely_until = Instant::from_nanos(until.as_nanos() - rounded);
        let running = self.running.filter(|running| sent < running.until);
        let mut again = None;
        match self.trial.and_then(|trial| trial.sent.map(|(grant, _)| (trial, grant))) {
            Some((trial, grant)) if call.grant == grant && trial.tries + 1 < TRIES => {
                self.belief += (1.0 - self.belief) * ONE_TRIAL;
                let lasted = now - running.map_or(sent, |running| running.since);
                again =
                    Some(Trial { tries: trial.tries + 1, sent: None, not_before: first.max(now + lasted), ..trial });
            }
            Some((_, grant)) if call.grant == grant => {
                self.trial = None;
                self.is_half = !self.is_half;
                self.belief += (1.0 - self.belief) * TRIAL;
                self.obeyed = self.most_obeyed;
                self.most_obeyed = (self.most_obeyed * 2).min(MOST_OBEYED);
            }
            _ if running.is_some_and(|running| call.grant > running.grant && in_flight + 1 < running.in_flight) => {
                self.belief += (1.0 - self.belief) * CHANCE;
            }
            _ => {}
        }
        let refused = RunningRetryAfter {
            grant: call.grant,
            in_flight,
            until,
            surely_until,
            moved_by: call.grant,
            surely_until_before: surely_until,
            since: sent,
        };
        self.running = Some(running.map_or(refused, |running| running.followed_by(&refused)));
        if again.is_some() {
            self.trial = again;
            return;
        }
        match stops {
            Stops::Unknown => {
                let in_flight = in_flight.saturating_sub(1).max(1);
                let half = sent + Duration::from_nanos(retry_after.as_nanos() / 2);
                let not_before = if self.is_half { first.max(half) } else { first };
                let trial = self.trial.get_or_insert(Trial { in_flight, not_before, tries: 0, sent: None, ran: false });
                trial.in_flight = trial.in_flight.min(in_flight);
            }
            Stops::Resource(_) if running.is_none() => self.obeyed = self.obeyed.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Outcome;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    impl Scope {
        /// Refuses a call, 5 ms after it was sent.
        fn refuse(&mut self, grant: u64, sent: u64, retry_after: u64, stops: Stops) {
            let (now, retry_after) = (at(sent + 5), Duration::from_millis(retry_after));
            let call = CallReport {
                outcome: Outcome::RateLimited,
                grant,
                admitted_limit: 10,
                admitted_in_flight: 10,
                retry_after: Some(retry_after),
                latency: Duration::from_millis(5),
                in_flight: 9,
                is_cooling_down: false,
            };
            self.on_refused(now, &call, retry_after, stops, now);
        }
    }

    #[test]
    fn a_call_that_is_accepted_in_the_last_second_of_a_retry_after_in_seconds_shows_nothing() {
        let resource = Stops::Resource(Duration::from_millis(10_000));
        for (retry_after, sent, shows) in [
            (10_000, 9_100, false),
            (10_000, 8_900, true),
            (10_001, 9_100, true),
            (1_000, 600, false),
            (1_000, 400, true),
        ] {
            let mut scope = Scope::default();
            scope.refuse(0, 0, retry_after, resource);
            scope.on_success(1, at(sent));
            assert_eq!(scope.belief < 0.5, shows, "{sent} ms after a Retry-After of {retry_after} ms");
            let mut scope = Scope::default();
            scope.refuse(0, 0, retry_after, Stops::Unknown);
            scope.on_grant(at(sent), 1, at(sent + 20));
            scope.advance(at(sent + 20));
            assert_eq!((scope.belief < 0.5, scope.trial.is_none()), (shows, true), "a trial");
        }
    }

    #[test]
    fn a_call_that_is_accepted_before_a_later_refusal_shows_nothing_of_its_retry_after() {
        let mut scope = Scope::default();
        let resource = Stops::Resource(Duration::from_millis(10_000));
        // A window of ten seconds: it states nine and a half seconds as ten.
        scope.refuse(0, 500, 10_000, resource);
        scope.refuse(11, 10_400, 10_000, resource);
        (1..=10).for_each(|grant| scope.on_success(grant, at(10_000 + grant)));
        assert!(scope.belief >= 0.5, "{}", scope.belief);
        scope.on_success(12, at(15_000));
        assert!(scope.belief < 0.5, "{}", scope.belief);
    }
}
