//! Distinguishes a concurrency limit from a rate by one more call at the load that was refused.
//!
//! A provider without a free slot refuses the same number of calls again at any time. A provider that counts
//! calls per minute accepts them a little later. So a refusal with `n` calls in flight is followed by a
//! trial: after its Retry-After, or after a wait that doubles with each failed trial, one call is sent as the
//! `n`th.
//!
//! ```text
//! accepted    the call was too early: the limit is restored
//! refused     the trial is repeated later; after the duration of a call, the cause is a concurrency limit
//! ```
//!
//! After a concurrency limit is found, the next 2, 4, 8, ... refusals are attributed to it without a trial.
//! After a trial that passed, the next waits for the total of its waits and has to pass at the first attempt.
//! A call counts as accepted when a refusal of it would have arrived.

use super::inflow::Refusal;
use crate::time::{Duration, Instant};

/// The most refusals between two trials that are attributed to the concurrency limit.
const MOST_SKIPPED: u32 = 64;

/// A call sent at the load that was refused.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Calls in flight when the refused call was sent, itself included.
    in_flight: u32,
    /// When the refused call was sent.
    refused: Instant,
    not_before: Instant,
    wait: Duration,
    /// The grant of the trial, and when it counts as accepted.
    sent: Option<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SameLoad {
    trial: Option<Trial>,
    /// Refusals to skip before the next trial, and before the one after it.
    skipped: u32,
    most_skipped: u32,
    /// Trials in a row that passed, and the wait after which the last one did.
    passes: u32,
    passed_after: Option<Duration>,
}

impl SameLoad {
    /// Returns the most calls that may be in flight for the trial, whatever the limit.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        self.trial.filter(|trial| now >= trial.not_before).map_or(0, |trial| trial.in_flight)
    }

    /// Returns when the next call may be sent. No other call is sent during a trial.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.trial?.sent.map(|(_, accepted_at)| accepted_at)
    }

    /// Returns when the state next changes by time alone.
    pub(super) fn next_change(&self) -> Option<Instant> {
        let trial = self.trial?;
        Some(trial.sent.map_or(trial.not_before, |(_, accepted_at)| accepted_at))
    }

    /// Returns how many trials in a row passed.
    pub(super) fn passes(&self) -> u32 {
        self.passes
    }

    /// Records a refusal that cut the limit. Begins a trial after its Retry-After and at least `wait`, unless
    /// one is skipped. `is_lower` states that the limit is now too low for a trial.
    pub(super) fn on_cut(&mut self, now: Instant, refusal: &Refusal, is_lower: bool, wait: Duration) {
        let Refusal { in_flight, sent, retry_after, .. } = *refusal;
        if is_lower {
            self.trial = None;
        } else if let Some(trial) = &mut self.trial {
            trial.in_flight = in_flight;
            trial.not_before = trial.not_before.min(now + retry_after.max(trial.wait));
        } else if self.skipped > 0 {
            self.skipped -= 1;
        } else {
            let wait = self.passed_after.unwrap_or(wait);
            self.trial =
                Some(Trial { in_flight, refused: sent, not_before: now + retry_after.max(wait), wait, sent: None });
        }
    }

    /// Drops the trial, because the cause of the refusal is known.
    pub(super) fn clear(&mut self) {
        self.trial = None;
    }

    /// Records a grant, which is the trial if one is due and `in_flight` reaches its load.
    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32, accepted_at: Instant) {
        if let Some(trial) = &mut self.trial
            && trial.sent.is_none()
            && now >= trial.not_before
            && in_flight >= trial.in_flight
        {
            trial.sent = Some((grant, accepted_at));
        }
    }

    /// Records a refusal. Returns whether the call was the trial. `longest` is the longest wait for a trial.
    pub(super) fn on_refused(&mut self, now: Instant, refusal: &Refusal, longest: Duration) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let Some((grant, _)) = trial.sent.filter(|(grant, _)| refusal.grant <= *grant) else { return false };
        let is_trial = refusal.grant == grant;
        if is_trial {
            trial.refused = refusal.sent;
        }
        // A trial is also repeated after the refusal of an earlier call, which was counted as in flight: the
        // trial ran at a lower load and shows nothing.
        trial.sent = None;
        trial.wait = Duration::from_nanos(trial.wait.as_nanos().saturating_mul(2));
        trial.not_before = now + trial.wait;
        if trial.wait > longest || self.passed_after.is_some() {
            self.trial = None;
            self.passes = 0;
            self.passed_after = None;
            self.most_skipped = (self.most_skipped * 2).clamp(2, MOST_SKIPPED);
            self.skipped = self.most_skipped;
        }
        is_trial
    }

    /// Returns the load and the last refusal of a trial that passed by `now`, and ends it.
    pub(super) fn take_passed(&mut self, now: Instant) -> Option<(u32, Instant)> {
        let trial = self.trial?;
        trial.sent.filter(|(_, accepted_at)| now >= *accepted_at)?;
        self.trial = None;
        self.most_skipped = 0;
        self.passes += 1;
        // The sum of all waits up to the one that passed.
        self.passed_after = Some(Duration::from_nanos(trial.wait.as_nanos().saturating_mul(2)));
        Some((trial.in_flight, trial.refused))
    }
}
