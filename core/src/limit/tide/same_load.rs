//! Too many, or too soon: what a refusal meant is tried once more at the same load.
//!
//! A provider without a free slot refuses the same number of calls again, whenever it is tried. One that
//! counts calls per minute lets them through a little later. So a refusal with `n` calls out is followed by a
//! trial: once its Retry-After is over, or after a moment that is doubled with each trial in vain, one call
//! goes out as the `n`th.
//!
//! ```text
//! let through    it was too soon: the limit becomes what it was
//! refused        the same later; or, after as long as a call takes, it was too many
//! ```
//!
//! Where it was too many, the next 2, 4, 8, ... refusals are believed without a trial. After one that passed,
//! the next waits as long as it took in all, and has to pass at once. A call counts as let through when a
//! refusal of it would have come back.

use super::pace::Refusal;
use crate::time::{Duration, Instant};

/// The most refusals that are believed between two trials.
const MOST_BELIEVED: u32 = 64;

/// A call that goes out at the load that was refused.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Calls that were out with the refused one, itself included.
    at_once: u32,
    /// When the refused call went out.
    refused: Instant,
    not_before: Instant,
    wait: Duration,
    /// Its grant, and when it counts as let through.
    sent: Option<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SameLoad {
    trial: Option<Trial>,
    /// Refusals to believe before the next trial, and before the one after it.
    believed: u32,
    most_believed: u32,
    /// Trials in a row that passed, and the wait after which the last one did.
    passes: u32,
    passed_after: Option<Duration>,
}

impl SameLoad {
    /// The calls that may be out for the trial's sake, whatever the limit.
    pub(super) fn allowed(&self, now: Instant) -> u32 {
        self.trial.filter(|trial| now >= trial.not_before).map_or(0, |trial| trial.at_once)
    }

    /// When the next call may go out: none beside a trial.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.trial?.sent.map(|(_, passes)| passes)
    }

    /// When something changes by time alone.
    pub(super) fn next_change(&self) -> Option<Instant> {
        let trial = self.trial?;
        Some(trial.sent.map_or(trial.not_before, |(_, passes)| passes))
    }

    /// Trials in a row that passed.
    pub(super) fn passes(&self) -> u32 {
        self.passes
    }

    /// A refusal cut the limit; a trial of it begins after its Retry-After, and after `wait` at least, if it
    /// is worth one. `is_lower`: the limit is too low for that now.
    pub(super) fn on_cut(&mut self, now: Instant, refusal: &Refusal, is_lower: bool, wait: Duration) {
        let Refusal { at_once, sent, asked, .. } = *refusal;
        if is_lower {
            self.trial = None;
        } else if let Some(trial) = &mut self.trial {
            trial.at_once = at_once;
            trial.not_before = trial.not_before.min(now + asked.max(trial.wait));
        } else if self.believed > 0 {
            self.believed -= 1;
        } else {
            let wait = self.passed_after.unwrap_or(wait);
            self.trial = Some(Trial { at_once, refused: sent, not_before: now + asked.max(wait), wait, sent: None });
        }
    }

    /// It is known otherwise.
    pub(super) fn forget(&mut self) {
        self.trial = None;
    }

    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, at_once: u32, passes: Instant) {
        if let Some(trial) = &mut self.trial
            && trial.sent.is_none()
            && now >= trial.not_before
            && at_once >= trial.at_once
        {
            trial.sent = Some((grant, passes));
        }
    }

    /// A call was refused; answers whether it was the trial. `longest`: how long one is worth waiting for.
    pub(super) fn on_refused(&mut self, now: Instant, refusal: &Refusal, longest: Duration) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let Some((grant, _)) = trial.sent.filter(|(grant, _)| refusal.grant <= *grant) else { return false };
        let is_trial = refusal.grant == grant;
        if is_trial {
            trial.refused = refusal.sent;
        }
        // Another one was out with it, but not with the provider: the load was less, so it says nothing.
        trial.sent = None;
        trial.wait = Duration::from_nanos(trial.wait.as_nanos().saturating_mul(2));
        trial.not_before = now + trial.wait;
        if trial.wait > longest || self.passed_after.is_some() {
            self.trial = None;
            self.passes = 0;
            self.passed_after = None;
            self.most_believed = (self.most_believed * 2).clamp(2, MOST_BELIEVED);
            self.believed = self.most_believed;
        }
        is_trial
    }

    /// The load and the last refusal of the trial whose call has been let through by `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<(u32, Instant)> {
        let trial = self.trial?;
        trial.sent.filter(|(_, passes)| now >= *passes)?;
        self.trial = None;
        self.most_believed = 0;
        self.passes += 1;
        // All waits up to the one that passed, together.
        self.passed_after = Some(Duration::from_nanos(trial.wait.as_nanos().saturating_mul(2)));
        Some((trial.at_once, trial.refused))
    }
}
