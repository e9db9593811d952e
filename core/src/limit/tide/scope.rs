//! What a Retry-After stops: the whole resource, or only the call that was refused.
//!
//! A rate means all calls by it: nothing passes before its time has come. A provider without a free slot, or
//! with a pool that others use, means the refused call: others are answered as soon as slots are free. Nobody
//! says which, so it is found out from calls that go out *in the shadow* of a refusal, which is until its
//! Retry-After is over:
//!
//! ```text
//! a call in the shadow is let through                        it stops the refused call only
//! one is refused although fewer were out than at first       it stops the resource
//! ```
//!
//! While that is open, a refusal is followed by trials: a call goes out when fewer are out than were borne,
//! and no other until a refusal of it would have come back. If it is refused, the next waits until twice as
//! much time has passed since the first refusal. If [all](TRIES) are refused, the Retry-After is obeyed, and
//! the next trials are after 2, 4, 8, ... more refusals.

use super::super::CallReport;
use crate::time::{Duration, Instant};

/// How far a call that is let through moves the belief: nothing passes where a Retry-After stops the
/// resource.
const PASSED: f64 = 0.3;
/// How far one that is refused moves it: the last trial in a shadow, one before it, and a call that happened
/// to be in a shadow. It may have been refused for itself.
const TRIAL: f64 = 0.15;
const ONE_TRIAL: f64 = 0.07;
const CHANCE: f64 = 0.06;
/// The belief below which a Retry-After stops the call only. Three trials that pass lead from an even chance
/// to below it.
const CALL_ONLY: f64 = 0.25;
/// The belief that is never gone below, so that it can be changed.
const CERTAIN: f64 = 0.02;
/// Trials in a row that are refused before a Retry-After is obeyed: where a share of one half is refused at
/// any load, seven are once in 128 times.
const TRIES: u32 = 7;
/// The most refusals that are obeyed between two trials.
const MOST_OBEYED: u32 = 64;

/// A refusal, and its shadow.
#[derive(Clone, Copy, Debug)]
struct Shadow {
    grant: u64,
    /// The fewest calls that were out with a refused one.
    at_once: u32,
    until: Instant,
    /// When the first refused call went out.
    since: Instant,
}

/// A call that goes out to find out.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The most that may be out with it.
    at_once: u32,
    not_before: Instant,
    /// Those before it that were refused.
    tries: u32,
    /// Its grant, and when it counts as let through.
    sent: Option<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// How likely it seems that calls in a shadow are refused.
    belief: f64,
    shadow: Option<Shadow>,
    trial: Option<Trial>,
    /// Refusals to obey before the next trial, and before the one after it.
    obeyed: u32,
    most_obeyed: u32,
    /// Whether the next trial goes out at half of the Retry-After, and not at once.
    is_half: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self { belief: 0.5, shadow: None, trial: None, obeyed: 0, most_obeyed: 1, is_half: false }
    }
}

/// What a refusal stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stops {
    /// Everything, for so long.
    Resource(Duration),
    /// The refused call only.
    Call,
    /// Nothing yet: a trial finds out.
    Unknown,
}

impl Scope {
    /// What a refusal stops that asked for a pause. `may_try`: whether it is worth finding out.
    pub(super) fn of(&self, now: Instant, call: &CallReport, asked: Duration, may_try: bool) -> Stops {
        if let Some(trial) = self.trial {
            return match trial.sent {
                Some((grant, _)) if call.grant >= grant && self.belief >= CALL_ONLY && trial.tries + 1 >= TRIES => {
                    let promised = self.shadow.map_or(Duration::ZERO, |shadow| shadow.until - now);
                    Stops::Resource(asked.max(promised))
                }
                _ => Stops::Unknown,
            };
        }
        if self.belief < CALL_ONLY {
            Stops::Call
        } else if may_try && self.obeyed == 0 {
            Stops::Unknown
        } else {
            Stops::Resource(asked)
        }
    }

    /// The most that may be out while a trial is under way.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        self.trial_at(now).map_or(u32::MAX, |trial| trial.at_once)
    }

    /// When the next call may go out, while a trial is under way.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.trial_at(now).map(|trial| trial.sent.map_or(trial.not_before, |(_, passes)| passes))
    }

    /// When the trial that is under way ends by time alone.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        let trial = self.trial_at(now)?;
        trial.sent.map(|(_, passes)| passes).or(self.shadow.map(|shadow| shadow.until))
    }

    fn trial_at(&self, now: Instant) -> Option<Trial> {
        let end = |trial: &Trial| trial.sent.map(|(_, passes)| passes).or(self.shadow.map(|shadow| shadow.until));
        self.trial.filter(|trial| end(trial).is_some_and(|end| now < end))
    }

    pub(super) fn on_grant(&mut self, grant: u64, passes: Instant) {
        if let Some(Trial { sent: sent @ None, .. }) = &mut self.trial {
            *sent = Some((grant, passes));
        }
    }

    /// Ends a trial whose call was let through, or that came to nothing.
    pub(super) fn settle(&mut self, now: Instant) {
        let Some(trial) = self.trial else { return };
        match trial.sent {
            Some((_, passes)) if now >= passes => {
                self.trial = None;
                self.believe_less();
                self.most_obeyed = 1;
            }
            // The Retry-After was over before a call could go out.
            None if self.shadow.is_none_or(|shadow| now >= shadow.until) => self.trial = None,
            _ => {}
        }
    }

    /// A call in the shadow was let through.
    fn believe_less(&mut self) {
        self.belief = (self.belief - self.belief * PASSED).max(CERTAIN);
    }

    /// A call was answered that had gone out at `sent`.
    pub(super) fn on_success(&mut self, grant: u64, sent: Instant) {
        if self.shadow.is_some_and(|shadow| grant > shadow.grant && sent < shadow.until) {
            self.believe_less();
        }
    }

    /// A call was refused that asked for a pause; `stops` is what it was taken for, and `first` when a trial
    /// may go out.
    pub(super) fn on_refused(
        &mut self,
        now: Instant,
        call: &CallReport,
        asked: Duration,
        stops: Stops,
        first: Instant,
    ) {
        let sent = super::sent_at(now, call);
        let (at_once, until) = (call.admitted_in_flight, sent + asked);
        let shadow = self.shadow.filter(|shadow| sent < shadow.until);
        let mut again = None;
        match self.trial.and_then(|trial| trial.sent.map(|(grant, _)| (trial, grant))) {
            Some((trial, grant)) if call.grant == grant && trial.tries + 1 < TRIES => {
                self.belief += (1.0 - self.belief) * ONE_TRIAL;
                let lasted = now - shadow.map_or(sent, |shadow| shadow.since);
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
            _ if shadow.is_some_and(|shadow| call.grant > shadow.grant && at_once + 1 < shadow.at_once) => {
                self.belief += (1.0 - self.belief) * CHANCE;
            }
            _ => {}
        }
        self.shadow = Some(match shadow {
            Some(shadow) => Shadow { at_once: shadow.at_once.min(at_once), until: shadow.until.max(until), ..shadow },
            None => Shadow { grant: call.grant, at_once, until, since: sent },
        });
        if again.is_some() {
            self.trial = again;
            return;
        }
        match stops {
            Stops::Unknown => {
                let at_once = at_once.saturating_sub(1).max(1);
                let half = sent + Duration::from_nanos(asked.as_nanos() / 2);
                let not_before = if self.is_half { first.max(half) } else { first };
                let trial = self.trial.get_or_insert(Trial { at_once, not_before, tries: 0, sent: None });
                trial.at_once = trial.at_once.min(at_once);
            }
            Stops::Resource(_) if shadow.is_none() => self.obeyed = self.obeyed.saturating_sub(1),
            _ => {}
        }
    }
}
