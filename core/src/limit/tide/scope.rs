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

use super::super::CallReport;
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

/// A refusal and the time until its Retry-After ends.
#[derive(Clone, Copy, Debug)]
struct RunningRetryAfter {
    grant: u64,
    /// The fewest calls in flight with a refused call.
    in_flight: u32,
    until: Instant,
    /// When the first refused call was sent.
    since: Instant,
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

    pub(super) fn on_grant(&mut self, grant: u64, accepted_at: Instant) {
        if let Some(Trial { sent: sent @ None, .. }) = &mut self.trial {
            *sent = Some((grant, accepted_at));
        }
    }

    /// Ends a trial that was accepted or that expired.
    pub(super) fn advance(&mut self, now: Instant) {
        let Some(trial) = self.trial else { return };
        match trial.sent {
            Some((_, accepted_at)) if now >= accepted_at => {
                self.trial = None;
                self.lower_belief();
                self.most_obeyed = 1;
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
        if self.running.is_some_and(|running| grant > running.grant && sent < running.until) {
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
        self.running = Some(match running {
            Some(running) => RunningRetryAfter {
                in_flight: running.in_flight.min(in_flight),
                until: running.until.max(until),
                ..running
            },
            None => RunningRetryAfter { grant: call.grant, in_flight, until, since: sent },
        });
        if again.is_some() {
            self.trial = again;
            return;
        }
        match stops {
            Stops::Unknown => {
                let in_flight = in_flight.saturating_sub(1).max(1);
                let half = sent + Duration::from_nanos(retry_after.as_nanos() / 2);
                let not_before = if self.is_half { first.max(half) } else { first };
                let trial = self.trial.get_or_insert(Trial { in_flight, not_before, tries: 0, sent: None });
                trial.in_flight = trial.in_flight.min(in_flight);
            }
            Stops::Resource(_) if running.is_none() => self.obeyed = self.obeyed.saturating_sub(1),
            _ => {}
        }
    }
}
