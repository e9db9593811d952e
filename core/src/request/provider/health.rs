//! Health of one provider and model: whether it answers at all.
//!
//! An outage is a state of the provider and no fault of the calls that meet it. While a provider is *down*
//! nothing goes out. When its pause is over, exactly one call goes out as a *probe*; any answer to it means
//! that the provider is up.
//!
//! ```text
//!            `failures` in a row                 and no success for `quiet`
//!   healthy ---------------------> suspected ---------------------------> down  (a pause: `first_pause`, doubled up to
//!    ^   ^                             |                                  | ^     `longest_pause`, jittered by a fifth)
//!    |   +------- any answer ----------+                                  v | counted failure
//!    +-------------------- any answer -------------------------------- probing  (one call is out)
//!
//!   any --- the key is refused, the account is empty, the model does not exist, a patience is over ---> unavailable
//! ```
//!
//! *Counted failures* are those of a provider that may be unreachable: a connection that fails, a 5xx that is
//! no rate limit, a timeout, an answer that breaks off. A rate limit and a refusal are answers. A call that
//! ends on the caller's side counts as nothing.
//!
//! A provider that answers nothing but rate limits answers, and stays healthy until `rate_limit_patience` is
//! over. It becomes unavailable at once if it asks for a pause that is as long. Failures between rate limits
//! do not begin the patience anew.
//!
//! An *unavailable* provider rejects every call, until `recheck` is over, or the pause that it asked for.
//! Then one call goes out as a probe.
//!
//! Calls of a *suspected* provider go out a tenth of `quiet` apart: what follows a streak of failures is
//! hardly a success, and without this rule a server that refuses connections at once is called thousands of
//! times until `quiet` is over.
//!
//! Each change to down, healthy or unavailable begins a new *epoch*, and every lease carries the epoch of its
//! grant. What a call of an older epoch meets shows little about the present: its failure is ignored, a
//! refused key or a rate limit too, and its success makes the next probe due at once.
//!
//! # What becomes of a call that failed
//!
//! A failure of a probe, of an older epoch, or of a streak of at least `failures` is *preserved*: the call is
//! made again and nothing is counted against it. That holds too where the streak ended before `quiet` was
//! over: a short outage costs no row either. A failure of a shorter streak is *undecided* until the streak
//! ends. If an answer ends it, the failure stands: it was the call's own. Undecided calls wait for that.
//! Where nothing else is out that could decide it, one of them is made again: 1, 2, 4, ... s after the latest
//! failure; and a minute after it, whatever is out: an answer may take as long as it likes. Where an answer
//! comes while it is out again, its first failure stands, whatever becomes of it.
//!
//! A *poison request* fails whenever it is made. If it is a probe, it keeps a provider down that is up; and
//! several of them make a short outage, again and again. After three failed probes or short outages, of one
//! provider or of several, its failure stands as soon as another call succeeds where it was in one.
//!
//! Where the host makes *health calls*, the smallest there are, the last requests that are left end soon,
//! too, if they are poison: it is a health call that decides undecided calls when nothing else is out, and
//! that is the probe after three others that failed. A success of it says that the outage was none, and the
//! next one begins from scratch.

#[cfg(test)]
mod tests;

use core::hash::Hasher;

use crate::backoff;
use crate::call::Outcome;
use crate::portable_hasher::PortableHasher;
use crate::request::answer::{AfterCall, FailedProbes, Retry};
use crate::request::config::HealthConfig;
use crate::request::keys::ProviderModelId;
use crate::request::provider::serve::Attempt;
use crate::request::snapshot::{HealthState, UnavailableCause};
use crate::time::{Duration, Instant};

/// So many probes of an outage are calls that wait. Where the host makes health calls, these follow.
const PROBES: u32 = 3;

/// After so many longest pauses without a failure, the next outage begins with the first pause again.
const CALM_PAUSES: u64 = 10;

/// So many calls of a suspected provider go out until `quiet` is over.
const SUSPECTED_CALLS: u64 = 10;

/// The health of one provider and model.
#[derive(Clone, Debug)]
pub(super) struct Health {
    config: HealthConfig,
    /// The index of this provider and model.
    provider: u32,
    /// Identifies it in the jitter.
    place: u64,
    phase: HealthPhase,
    epoch: u32,
    /// Counted failures since the last other answer.
    streak: u32,
    /// Streaks that an answer has ended. Identifies a streak within its epoch.
    streaks_ended: u32,
    last_failure: Instant,
    /// Since when nothing succeeded: not before the first failure of the streak, or `None` if nothing ever
    /// did.
    quiet_since: Option<Instant>,
    /// Whether a call succeeded since `quiet_since` was set. Successes read no clock.
    has_succeeded: bool,
    /// The first failure of the latest outage, or of those that follow one another without calm.
    failing_since: Instant,
    /// The first rate limit since its last other answer.
    limited_since: Option<Instant>,
    /// Pauses since the last calm.
    pauses: u32,
    /// Successes since the provider came back.
    successes: u32,
    /// Whether a success brought it back.
    is_proven: bool,
    /// Probes of this outage that failed.
    probes_failed: u32,
    /// What followed from the last end of a call that was not plain.
    last_end: CallEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthPhase {
    Healthy,
    /// The next call may go out at this instant.
    Suspected {
        next_at: Instant,
    },
    /// Nothing goes out before `probe_at`, and then one call.
    Down {
        probe_at: Instant,
    },
    /// The probe is out.
    Probing,
    /// Nothing goes out before `probe_at`, and then one call; nothing ever if it is `None`.
    Unavailable {
        since: Instant,
        cause: UnavailableCause,
        probe_at: Option<Instant>,
    },
}

/// What a lease remembers of the health at its grant. While a probe is out, no other lease of its epoch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct Mark {
    epoch: u32,
    /// The streak that its call has failed in before, if that was not decided.
    undecided_in: Option<u32>,
    failed_probes: FailedProbes,
    is_health_call: bool,
}

/// What follows from the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) struct CallEnd {
    pub(in crate::request) change: Change,
    pub(in crate::request) after: AfterCall,
    /// Whether its limit algorithm sees nothing of it: it is part of an outage, or of a streak that may
    /// become one.
    pub(in crate::request) is_hidden: bool,
}

impl CallEnd {
    /// Nothing follows: the outcome is the call's own.
    pub(in crate::request) const PLAIN: Self = Self { change: Change::None, after: AfterCall::Final, is_hidden: false };
}

/// What the end of a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum Change {
    /// Nothing that matters to another call.
    None,
    /// An answer ended a short streak: the failures in it stand.
    StreakEnded,
    /// A suspected provider answers: the failures of the streak are preserved.
    Cleared,
    /// The provider is down, or still: its next probe is due then.
    Down { since: Instant, probe_at: Instant },
    /// Its next probe is due now.
    ProbeDue,
    /// The provider is back, which failed first then.
    Recovered { since: Instant },
    /// No call goes out any more.
    Unavailable { cause: UnavailableCause, probe_at: Option<Instant> },
}

/// How a call that has ended was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    /// As the probe.
    AsProbe,
    /// In the present epoch.
    InEpoch,
    /// In an older epoch.
    Before,
}

/// How a call stands that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum RetryStatus {
    /// It is made again when it is its turn.
    Preserved,
    /// It waits until its failure is decided.
    Undecided,
    /// Its failure was its own: it is not made again.
    FailureStands,
}

impl Health {
    pub(super) fn new(config: HealthConfig, id: ProviderModelId, names: [&str; 2]) -> Self {
        let mut place = PortableHasher::default();
        for name in names {
            place.write(name.as_bytes());
            place.write_u32(name.len() as u32);
        }
        Self {
            config,
            provider: id.index() as u32,
            place: place.finish(),
            phase: HealthPhase::Healthy,
            epoch: 0,
            streak: 0,
            streaks_ended: 0,
            last_failure: Instant::ZERO,
            quiet_since: None,
            has_succeeded: false,
            failing_since: Instant::ZERO,
            limited_since: None,
            pauses: 0,
            successes: 0,
            is_proven: false,
            probes_failed: 0,
            last_end: CallEnd::PLAIN,
        }
    }
}

/// State.
impl Health {
    #[inline]
    pub(super) fn is_healthy(&self) -> bool {
        self.phase == HealthPhase::Healthy
    }

    /// Whether a call that goes out now is a probe.
    pub(super) fn is_probed(&self) -> bool {
        !matches!(self.phase, HealthPhase::Healthy | HealthPhase::Suspected { .. })
    }

    /// Whether the next probe is a health call, if there are any: so many others have failed.
    pub(super) fn wants_health_call(&self) -> bool {
        self.is_probed() && self.probes_failed >= PROBES
    }

    /// Whether calls are rejected at `now`.
    pub(super) fn is_unavailable(&self, now: Instant) -> bool {
        matches!(self.phase, HealthPhase::Unavailable { .. }) && self.is_closed(now)
    }

    /// Whether nothing may go out at `now`.
    #[inline]
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        match self.phase {
            HealthPhase::Healthy => false,
            HealthPhase::Suspected { next_at: at } | HealthPhase::Down { probe_at: at } => now < at,
            HealthPhase::Unavailable { probe_at, .. } => probe_at.is_none_or(|at| now < at),
            HealthPhase::Probing => true,
        }
    }

    /// Whether undecided calls may not go out at `now`, with so many calls out.
    pub(super) fn holds_undecided(&self, now: Instant, in_flight: u32) -> bool {
        self.undecided_open_at(in_flight).is_some_and(|at| now < at)
    }

    /// When calls may go out again; `None` if that does not depend on the time alone.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        match self.phase {
            HealthPhase::Suspected { next_at: at } | HealthPhase::Down { probe_at: at } => Some(at),
            HealthPhase::Unavailable { probe_at, .. } => probe_at,
            HealthPhase::Healthy | HealthPhase::Probing => None,
        }
    }

    /// When undecided calls may go out, with so many calls out that could decide them: these are not waited
    /// for without end.
    pub(super) fn undecided_open_at(&self, in_flight: u32) -> Option<Instant> {
        if !self.is_healthy() || self.streak == 0 {
            return None;
        }
        Some(if in_flight == 0 { self.retry_at() } else { self.last_failure + backoff::LONGEST_RETRY })
    }

    /// When the patience with it is over. With rate limits that is while nothing is out: a call that is may
    /// yet succeed.
    pub(super) fn patience_ends(&self, in_flight: u32) -> Option<Instant> {
        match self.phase {
            HealthPhase::Healthy | HealthPhase::Suspected { .. } if in_flight > 0 => None,
            HealthPhase::Healthy | HealthPhase::Suspected { .. } => {
                Some(self.limited_since? + self.config.rate_limit_patience?)
            }
            HealthPhase::Down { .. } => Some(self.failing_since + self.config.patience?),
            HealthPhase::Probing | HealthPhase::Unavailable { .. } => None,
        }
    }

    /// Whether calls that have fallbacks go to it at `now`: it is not down, and has not refused for too long.
    pub(super) fn serves(&self, now: Instant) -> bool {
        !self.is_probed() && self.gives_up_at().is_none_or(|at| now < at)
    }

    /// When calls that have fallbacks go elsewhere, if it answers nothing but rate limits until then.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.limited_since.map(|since| since + self.config.fallback_after)
    }

    /// How long limits take to climb to what they were.
    pub(super) fn recovery(&self) -> Duration {
        self.config.recovery
    }

    /// What a snapshot shows.
    pub(super) fn state(&self) -> HealthState {
        let since = self.failing_since;
        match self.phase {
            HealthPhase::Healthy => HealthState::Healthy,
            HealthPhase::Suspected { .. } => HealthState::Suspected { since },
            HealthPhase::Down { probe_at } => HealthState::Down { since, probe_at },
            HealthPhase::Probing => HealthState::Probing { since },
            HealthPhase::Unavailable { since, cause, probe_at } => HealthState::Unavailable { since, cause, probe_at },
        }
    }

    fn retry_at(&self) -> Instant {
        self.last_failure + backoff::before_retry(self.streak.saturating_sub(1), &self.jitter())
    }
}

/// Calls.
impl Health {
    /// One more call is out. It was not [closed](Self::is_closed).
    #[inline]
    pub(super) fn grant(&mut self, now: Instant, attempt: Attempt) -> Mark {
        match self.phase {
            HealthPhase::Healthy => {}
            HealthPhase::Suspected { .. } => self.suspect(now),
            _ => self.probe(now),
        }
        let Attempt { failed_probes, is_undecided, is_health_call } = attempt;
        let undecided_in = is_undecided.then_some(self.streaks_ended);
        Mark { epoch: self.epoch, undecided_in, failed_probes, is_health_call }
    }

    #[cold]
    fn probe(&mut self, now: Instant) {
        if let HealthPhase::Unavailable { cause, .. } = self.phase
            && cause != UnavailableCause::Outage
        {
            // It answered: an outage that the probe meets is a new one.
            (self.failing_since, self.pauses) = (now, 0);
        }
        self.phase = HealthPhase::Probing;
    }

    /// The next call goes out a while after `now`.
    fn suspect(&mut self, now: Instant) {
        let apart = Duration::from_nanos(self.config.quiet.as_nanos() / SUSPECTED_CALLS);
        self.phase = HealthPhase::Suspected { next_at: now + apart };
    }

    /// A call has ended. `retry_after`: the pause that its provider asked for. Returns whether something
    /// follows: [`Self::last_end`].
    #[inline]
    pub(super) fn end(&mut self, now: Instant, mark: Mark, outcome: Outcome, retry_after: Option<Duration>) -> bool {
        let is_calm = self.is_healthy() && self.pauses == 0 && self.streak == 0 && self.limited_since.is_none();
        if outcome == Outcome::Success && is_calm {
            self.has_succeeded = true;
            return false;
        }
        self.last_end = self.judge(now, mark, outcome, retry_after);
        true
    }

    /// What followed from the last call for whose end [`Self::end`] was true.
    pub(super) fn last_end(&self) -> CallEnd {
        self.last_end
    }

    #[cold]
    fn judge(&mut self, now: Instant, mark: Mark, outcome: Outcome, retry_after: Option<Duration>) -> CallEnd {
        let granted = match self.phase {
            _ if mark.epoch != self.epoch => Granted::Before,
            HealthPhase::Probing => Granted::AsProbe,
            _ => Granted::InEpoch,
        };
        let is_failure = outcome.is_counted_failure();
        let is_hidden = is_failure && (granted != Granted::InEpoch || self.streak > 0);
        let failed_probes = match granted {
            Granted::AsProbe => mark.failed_probes.and_one(self.provider),
            _ => mark.failed_probes,
        };
        let is_fatal = UnavailableCause::of(outcome).is_some();
        let is_refused = outcome == Outcome::RateLimited || is_fatal;
        let change = self.change(now, granted, outcome, retry_after, mark.is_health_call);
        let had_failed =
            mark.epoch == self.epoch && mark.undecided_in.is_some_and(|streak| streak != self.streaks_ended);
        let after = if self.is_unavailable(now) && (is_failure || is_refused) {
            AfterCall::Unavailable
        } else if is_failure && had_failed {
            AfterCall::Final
        } else if is_failure || is_fatal {
            let streak = self.streaks_ended;
            AfterCall::Retry(Retry { provider: self.provider, epoch: mark.epoch, streak, failed_probes })
        } else {
            AfterCall::Final
        };
        CallEnd { change, after, is_hidden }
    }

    /// How a call stands that is made again.
    pub(super) fn retry_status(&self, retry: Retry) -> RetryStatus {
        // How it failed elsewhere decides nothing here.
        if retry.provider != self.provider || retry.epoch != self.epoch {
            let is_charged = self.charges(retry.failed_probes) && self.is_healthy();
            return if is_charged { RetryStatus::FailureStands } else { RetryStatus::Preserved };
        }
        let is_undecided = retry.streak == self.streaks_ended && self.streak > 0;
        if is_undecided { RetryStatus::Undecided } else { RetryStatus::FailureStands }
    }

    /// Whether the failure of a call that was these probes stands, now that the provider is back.
    pub(super) fn charges(&self, failed_probes: FailedProbes) -> bool {
        self.is_proven && failed_probes.are_many() && failed_probes.include(self.provider)
    }

    /// What the end of a call changes.
    fn change(
        &mut self,
        now: Instant,
        granted: Granted,
        outcome: Outcome,
        retry_after: Option<Duration>,
        is_health_call: bool,
    ) -> Change {
        let is_too_long = |pause| self.config.rate_limit_patience.is_some_and(|patience| pause >= patience);
        match outcome {
            // Since its grant a person may have changed the key, or the provider its mind.
            _ if granted == Granted::Before => {}
            _ if let Some(cause) = UnavailableCause::of(outcome) => return self.close(now, cause, None),
            Outcome::RateLimited if retry_after.is_some_and(is_too_long) => {
                return self.close(now, UnavailableCause::RateLimited, retry_after);
            }
            Outcome::RateLimited => {
                self.limited_since.get_or_insert(now);
                // While a call is out, or nothing waits, no timer ends the patience.
                let change = self.end_patience(now, 0);
                if change != Change::None {
                    return change;
                }
            }
            // Nothing was answered.
            _ if outcome.is_local() || outcome.is_counted_failure() => {}
            _ => self.limited_since = None,
        }
        match granted {
            Granted::AsProbe if outcome.is_local() => self.make_due(now),
            Granted::AsProbe if outcome.is_counted_failure() => {
                self.probes_failed += 1;
                self.go_down(now, retry_after)
            }
            Granted::AsProbe => self.recover(outcome, is_health_call),
            Granted::Before if outcome == Outcome::Success && matches!(self.phase, HealthPhase::Down { .. }) => {
                self.make_due(now)
            }
            Granted::InEpoch if outcome.is_counted_failure() => self.fail(now, retry_after),
            Granted::InEpoch if !outcome.is_local() => self.answer(outcome),
            Granted::Before | Granted::InEpoch => Change::None,
        }
    }

    /// An answer ends the streak.
    fn answer(&mut self, outcome: Outcome) -> Change {
        let was_suspected = !self.is_healthy();
        let has_streak = self.streak > 0;
        self.streak = 0;
        self.phase = HealthPhase::Healthy;
        if outcome == Outcome::Success {
            self.succeed();
        }
        if was_suspected {
            self.epoch += 1;
            self.is_proven = outcome == Outcome::Success;
            return Change::Cleared;
        }
        self.streaks_ended += u32::from(has_streak);
        if has_streak { Change::StreakEnded } else { Change::None }
    }

    fn fail(&mut self, now: Instant, retry_after: Option<Duration>) -> Change {
        if self.has_succeeded {
            self.has_succeeded = false;
            self.quiet_since = Some(now);
        }
        // Few calls make no calm by their number: an outage of yesterday says nothing of this one.
        if now - self.last_failure >= self.calm_span() {
            (self.pauses, self.failing_since) = (0, now);
        }
        self.streak += 1;
        self.last_failure = now;
        if self.streak == 1 && self.pauses == 0 {
            self.failing_since = now;
        }
        if self.streak < self.config.failures {
            return Change::None;
        }
        if self.quiet_since.is_some_and(|since| now - since < self.config.quiet) {
            self.suspect(now);
            return Change::None;
        }
        self.go_down(now, retry_after)
    }

    /// How long nothing must fail for the last outage to be over and done with.
    fn calm_span(&self) -> Duration {
        Duration::from_nanos(self.config.longest_pause.as_nanos().saturating_mul(CALM_PAUSES))
    }

    fn succeed(&mut self) {
        self.has_succeeded = true;
        self.successes += 1;
        if self.successes >= self.config.calm {
            self.pauses = 0;
        }
    }

    fn go_down(&mut self, now: Instant, retry_after: Option<Duration>) -> Change {
        let config = self.config;
        self.last_failure = now;
        self.epoch += 1;
        self.streak = 0;
        let pause = backoff::doubled(config.first_pause, self.pauses, config.longest_pause);
        let pause = backoff::jittered(pause, &self.jitter());
        let pause = pause.max(retry_after.unwrap_or(Duration::ZERO).min(config.longest_pause));
        self.pauses = self.pauses.saturating_add(1);
        let probe_at = now + pause;
        self.phase = HealthPhase::Down { probe_at };
        match self.end_patience(now, 0) {
            Change::None => Change::Down { since: self.failing_since, probe_at },
            lost => lost,
        }
    }

    /// Closes a provider with which the patience is over.
    pub(super) fn end_patience(&mut self, now: Instant, in_flight: u32) -> Change {
        if self.patience_ends(in_flight).is_none_or(|end| now < end) {
            return Change::None;
        }
        let is_down = matches!(self.phase, HealthPhase::Down { .. });
        self.close(now, if is_down { UnavailableCause::Outage } else { UnavailableCause::RateLimited }, None)
    }

    /// Rejects calls for `pause`, or else for `recheck`. Changes nothing for a provider that does so already.
    pub(super) fn close(&mut self, now: Instant, cause: UnavailableCause, pause: Option<Duration>) -> Change {
        if self.is_unavailable(now) {
            return Change::None;
        }
        self.epoch += 1;
        (self.streak, self.limited_since) = (0, None);
        let probe_at = pause.or(self.config.recheck).map(|pause| now + pause);
        self.phase = HealthPhase::Unavailable { since: now, cause, probe_at };
        Change::Unavailable { cause, probe_at }
    }

    /// Lets calls go out again, whatever kept them.
    pub(super) fn reopen(&mut self) -> Change {
        if self.is_healthy() {
            return Change::None;
        }
        let since = self.failing_since;
        self.epoch += 1;
        (self.streak, self.pauses, self.is_proven, self.limited_since) = (0, 0, false, None);
        self.probes_failed = 0;
        self.phase = HealthPhase::Healthy;
        Change::Recovered { since }
    }

    fn make_due(&mut self, now: Instant) -> Change {
        self.phase = HealthPhase::Down { probe_at: now };
        Change::ProbeDue
    }

    fn recover(&mut self, outcome: Outcome, is_health_call: bool) -> Change {
        self.epoch += 1;
        self.phase = HealthPhase::Healthy;
        self.is_proven = outcome == Outcome::Success;
        self.successes = u32::from(self.is_proven);
        self.has_succeeded = self.is_proven;
        self.probes_failed = 0;
        if self.is_proven && is_health_call {
            self.pauses = 0;
        }
        Change::Recovered { since: self.failing_since }
    }

    /// What the jitter is made from: the same for equal seeds, providers, epochs and streaks, so that
    /// processes differ and replays do not.
    fn jitter(&self) -> PortableHasher {
        let mut hash = PortableHasher::default();
        hash.write_u64(self.config.seed);
        hash.write_u64(self.place);
        hash.write_u32(self.epoch);
        hash.write_u32(self.streak);
        hash
    }
}
