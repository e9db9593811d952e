//! The health of one provider and model: whether it responds to calls.
//!
//! An outage is a state of the provider, not of the calls that fail in it. While a provider is *down*, no
//! call is sent. When its pause is over, exactly one call is sent as a *probe*. An *answer* to the probe, see
//! below, means that the provider is up.
//!
//! ```text
//!            `failures` in a row          and no success for `quiet`
//!   healthy ---------------------> suspected ----------------------> down (a pause)
//!    ^   ^                             |                             | ^
//!    |   +------- any answer ----------+                             v | counted failure
//!    +-------------------- any answer ---------------------------- probing (one call is in flight)
//!
//!   any state --- key rejected, quota exhausted, no such model, TLS failed, patience ended ---> unavailable
//! ```
//!
//! A healthy provider goes down directly, without a suspicion, if no call has succeeded for `quiet` when the
//! failures in a row reach `failures`, or if no call ever succeeded.
//!
//! The first pause is `first_pause`. Each further pause is twice as long, up to `longest_pause`. Every pause
//! is jittered by up to a fifth.
//!
//! *Counted failures* are those of a provider that may be unreachable: a failed connection, a 5xx status that
//! is not a rate limit, a timeout, a response that breaks off. Any other response, also a rate limit or a
//! rejection, is an *answer*. A call that ends on the caller's side counts neither as a failure nor as an
//! answer.
//!
//! A provider whose only answers are rate limits stays healthy until `rate_limit_patience` ends. It becomes
//! unavailable at once if its Retry-After is at least that long. Failures between rate limits do not
//! restart the patience. After `fallback_after`, requests with fallbacks make only trial calls to it. The
//! delays between them grow like the pauses of an outage.
//!
//! Calls to an *unavailable* provider are denied until `recheck` or the Retry-After has passed. Then one call
//! is sent as a probe.
//!
//! Calls to a *suspected* provider are sent a tenth of `quiet` apart. After a streak of failures, a success
//! is unlikely. Without this rule, a server that refuses connections at once would be called thousands of
//! times until `quiet` is over.
//!
//! Each change to down, healthy or unavailable starts a new *epoch*, and every lease stores the epoch of its
//! grant. The outcome of a call from an older epoch does not show the present state. Its failure, rejected
//! key or rate limit does not change the health. Its success while the provider is down makes the next probe
//! due at once.
//!
//! # Failed calls
//!
//! A failure is *preserved* if it was that of a probe, of an older epoch, or of a streak of at least
//! `failures`. The call is retried, and the failure is not counted against it. This includes a streak that
//! ends before `quiet` is over, so a short outage loses no work either.
//!
//! A failure of a shorter streak is *undecided* until the streak ends. If an answer ends the streak, the
//! failure *stands*: the call itself caused it. Undecided calls wait for this decision. If no other call is
//! in flight that could decide it, one undecided call is retried 1, 2, 4, ... s after the latest failure.
//! These delays are at most `patience / failures`, so that the failures which show an outage fit into a short
//! patience. A minute after the latest failure, undecided calls are retried in any case, because a response
//! may take arbitrarily long. If an answer ends the streak while an undecided call is in flight again, a
//! second failure of that call is final.
//!
//! A *poison request* fails whenever it is made. As a probe it keeps a provider down that is in fact up, and
//! several poison requests cause short outages again and again. Once a request has failed in three probes or
//! short outages, at one provider or at several, its failure stands as soon as another call succeeds at a
//! provider where it failed in this way.
//!
//! If only poison requests are left, no other call can succeed. A host can therefore make *health calls*: the
//! smallest calls that show whether the provider responds. A health call decides undecided calls when no
//! other call is in flight, and it is the probe after three failed probes. If a health call that is a probe
//! succeeds, the next outage starts with the first pause and its full patience.

#[cfg(test)]
mod tests;
mod transitions;

use core::hash::Hasher;

use crate::backoff;
use crate::call::Outcome;
use crate::portable_hasher::PortableHasher;
use crate::request::config::HealthConfig;
use crate::request::keys::ProviderModelId;
use crate::request::result::{AfterCall, FailedProbes, Retry};
use crate::request::snapshot::{HealthState, UnavailableCause};
use crate::time::{Duration, Instant};

/// The number of failed probes in an outage after which health calls are used as probes, if the host makes
/// them.
const WAITER_PROBES: u32 = 3;

/// The time without a failure after which the next outage starts with the first pause again, in longest
/// pauses.
const CALM_PAUSES: u64 = 10;

/// The number of calls to a suspected provider in each span of `quiet`.
const SUSPECTED_CALLS: u64 = 10;

/// The health of one provider and model.
#[derive(Clone, Debug)]
pub(super) struct Health {
    config: HealthConfig,
    /// The index of this provider and model.
    provider: u32,
    /// A hash of the names of provider and model, for the jitter.
    name_hash: u64,
    phase: HealthPhase,
    epoch: u32,
    /// The counted failures since the last answer.
    streak: u32,
    /// The number of streaks that an answer has ended. It identifies a streak within its epoch.
    streaks_ended: u32,
    last_failure: Instant,
    /// Since when no call succeeded. It is set at the first failure after a success. `None` if no call ever
    /// succeeded before a failure.
    quiet_since: Option<Instant>,
    /// Whether a call succeeded since `quiet_since` was set. The instant of a success is not recorded,
    /// because hosts need not read the clock for it.
    has_succeeded: bool,
    /// The first failure of the latest outage, or of the first of several outages that follow one another
    /// without calm.
    failing_since: Instant,
    /// The rate limits since the last other answer.
    limited: Option<RateLimits>,
    /// The number of pauses since the last calm.
    pauses: u32,
    /// The number of successes since the last recovery.
    successes: u32,
    /// Whether a success ended the last outage or suspicion. Only a success shows that a poison request is at
    /// fault; another answer does not.
    recovered_by_success: bool,
    /// The failed probes of this outage.
    probes_failed: u32,
    /// The result of the last end of a call for which [`Self::end`] returned `true`.
    last_end: CallEnd,
}

/// Rate limits without another answer in between.
#[derive(Clone, Copy, Debug)]
struct RateLimits {
    since: Instant,
    /// The number of rate-limited calls that postponed the next trial call.
    trials: u32,
    next_trial_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthPhase {
    Healthy,
    /// The next call may start at `next_at`.
    Suspected {
        next_at: Instant,
    },
    /// No call is sent before `probe_at`, and then one call.
    Down {
        probe_at: Instant,
    },
    /// The probe is in flight.
    Probing,
    /// No call is sent before `probe_at`, and then one call. If it is `None`, no call is sent until it is
    /// reopened.
    Unavailable {
        since: Instant,
        cause: UnavailableCause,
        probe_at: Option<Instant>,
    },
}

/// The history of a call. The default is that of a first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct Attempt {
    pub(in crate::request) failed_probes: FailedProbes,
    /// Whether its last failure is undecided.
    pub(in crate::request) is_undecided: bool,
    /// Whether it is a health call of the host.
    pub(in crate::request) is_health_call: bool,
}

/// The state of the health at the grant of a lease, which is stored with the lease. While a probe is in
/// flight, no other lease of its epoch is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct GrantHealth {
    epoch: u32,
    /// The streak in which the call has failed before, if that failure was undecided at the grant.
    undecided_in: Option<u32>,
    failed_probes: FailedProbes,
    is_health_call: bool,
}

/// The consequences of the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) struct CallEnd {
    pub(in crate::request) change: HealthChange,
    pub(in crate::request) after: AfterCall,
    /// Whether the outcome is hidden from the limit algorithm: it is part of an outage, or of a streak that
    /// may become one.
    pub(in crate::request) is_hidden: bool,
}

impl CallEnd {
    /// The outcome is final and changes nothing.
    pub(in crate::request) const PLAIN: Self =
        Self { change: HealthChange::None, after: AfterCall::Final, is_hidden: false };
}

/// A change of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum HealthChange {
    /// No change that affects other calls.
    None,
    /// An answer ended a short streak. The failures in it stand.
    StreakEnded,
    /// An answer ended the suspicion. The failures of the streak are preserved.
    Cleared,
    /// The provider is down, or still down. The next probe is due at `probe_at`.
    Down { since: Instant, probe_at: Instant },
    /// The next probe is due now.
    ProbeDue,
    /// The provider is back. `since` is the first failure of the outage.
    Recovered { since: Instant },
    /// The provider is unavailable.
    Unavailable { cause: UnavailableCause, probe_at: Option<Instant> },
}

/// How a call that has ended was granted, relative to the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantKind {
    Probe,
    /// In the current epoch, and not as a probe.
    CurrentEpoch,
    /// In an older epoch.
    OlderEpoch,
}

/// The status of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum RetryStatus {
    /// The call is retried when it is its turn.
    Preserved,
    /// The call waits until its failure is decided.
    Undecided,
    /// The call itself caused the failure and is not retried.
    RequestAtFault,
}

impl Health {
    pub(super) fn new(config: HealthConfig, id: ProviderModelId, names: [&str; 2]) -> Self {
        let mut name_hash = PortableHasher::default();
        for name in names {
            name_hash.write(name.as_bytes());
            name_hash.write_u32(name.len() as u32);
        }
        Self {
            config,
            provider: id.index() as u32,
            name_hash: name_hash.finish(),
            phase: HealthPhase::Healthy,
            epoch: 0,
            streak: 0,
            streaks_ended: 0,
            last_failure: Instant::ZERO,
            quiet_since: None,
            has_succeeded: false,
            failing_since: Instant::ZERO,
            limited: None,
            pauses: 0,
            successes: 0,
            recovered_by_success: false,
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

    /// Returns whether a call that starts now is a probe, or a probe is in flight.
    pub(super) fn is_probed(&self) -> bool {
        !matches!(self.phase, HealthPhase::Healthy | HealthPhase::Suspected { .. })
    }

    /// Returns whether the next probe is a health call, if the host makes them.
    pub(super) fn next_probe_is_health_call(&self) -> bool {
        self.is_probed() && self.probes_failed >= WAITER_PROBES
    }

    /// Returns whether calls are denied at `now`.
    pub(super) fn is_unavailable(&self, now: Instant) -> bool {
        matches!(self.phase, HealthPhase::Unavailable { .. }) && self.is_closed(now)
    }

    /// Returns whether no call may start at `now`.
    #[inline]
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        match self.phase {
            HealthPhase::Healthy => false,
            HealthPhase::Suspected { next_at: at } | HealthPhase::Down { probe_at: at } => now < at,
            HealthPhase::Unavailable { probe_at, .. } => probe_at.is_none_or(|at| now < at),
            HealthPhase::Probing => true,
        }
    }

    /// Returns whether undecided calls must wait at `now`, with `in_flight` calls in flight.
    pub(super) fn holds_undecided(&self, now: Instant, in_flight: u32) -> bool {
        self.undecided_open_at(in_flight).is_some_and(|at| now < at)
    }

    /// Returns when calls may start again, or `None` if that does not depend on the time alone.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        match self.phase {
            HealthPhase::Suspected { next_at: at } | HealthPhase::Down { probe_at: at } => Some(at),
            HealthPhase::Unavailable { probe_at, .. } => probe_at,
            HealthPhase::Healthy | HealthPhase::Probing => None,
        }
    }

    /// Returns when undecided calls may start, with `in_flight` calls in flight that could decide them. The
    /// wait for those calls is bounded.
    pub(super) fn undecided_open_at(&self, in_flight: u32) -> Option<Instant> {
        if !self.is_healthy() || self.streak == 0 {
            return None;
        }
        Some(if in_flight == 0 { self.retry_at() } else { self.last_failure + backoff::LONGEST_RETRY })
    }

    /// Returns when the patience ends. The patience with rate limits only ends while no call is in flight,
    /// because a call in flight may still succeed.
    pub(super) fn patience_ends(&self, in_flight: u32) -> Option<Instant> {
        match self.phase {
            HealthPhase::Healthy | HealthPhase::Suspected { .. } if in_flight > 0 => None,
            HealthPhase::Healthy | HealthPhase::Suspected { .. } => {
                Some(self.limited?.since + self.config.rate_limit_patience?)
            }
            HealthPhase::Down { .. } => Some(self.failing_since + self.config.patience?),
            HealthPhase::Probing | HealthPhase::Unavailable { .. } => None,
        }
    }

    /// Returns whether requests with fallbacks use this provider at `now`: it is not down or unavailable, and
    /// has not responded only with rate limits for too long.
    pub(super) fn serves(&self, now: Instant) -> bool {
        !self.is_probed() && self.gives_up_at().is_none_or(|at| now < at)
    }

    /// Returns when requests with fallbacks use another resource, if it responds only with rate limits until
    /// then.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.limited.map(|limits| limits.since + self.config.fallback_after)
    }

    /// Returns when the next trial call may start, if a trial call was rate limited.
    pub(super) fn next_trial_at(&self) -> Option<Instant> {
        self.limited.and_then(|limits| limits.next_trial_at)
    }

    /// Returns how long limits take to climb to their previous values.
    pub(super) fn recovery(&self) -> Duration {
        self.config.recovery
    }

    /// Returns the health for snapshots.
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
        let (shortest, longest) = (backoff::SHORTEST_RETRY, backoff::LONGEST_RETRY);
        // Otherwise a short patience would not end before the failures that show an outage.
        let share = |patience: Duration| Duration::from_nanos(patience.as_nanos() / u64::from(self.config.failures));
        let longest = self.config.patience.map_or(longest, |all| share(all).clamp(shortest, longest));
        self.last_failure + backoff::before_retry(self.streak.saturating_sub(1), longest, &self.jitter())
    }
}

/// Calls.
impl Health {
    /// Records the grant of a call. [`Self::is_closed`] must be `false`.
    #[inline]
    pub(super) fn grant(&mut self, now: Instant, attempt: Attempt) -> GrantHealth {
        match self.phase {
            HealthPhase::Healthy => {}
            HealthPhase::Suspected { .. } => self.start_suspicion(now),
            _ => self.start_probe(now),
        }
        let Attempt { failed_probes, is_undecided, is_health_call } = attempt;
        let undecided_in = is_undecided.then_some(self.streaks_ended);
        GrantHealth { epoch: self.epoch, undecided_in, failed_probes, is_health_call }
    }

    #[cold]
    fn start_probe(&mut self, now: Instant) {
        if let HealthPhase::Unavailable { cause, .. } = self.phase
            && cause != UnavailableCause::Outage
        {
            // The provider responded before it was closed, so an outage that the probe finds is a new one.
            (self.failing_since, self.pauses) = (now, 0);
        }
        self.phase = HealthPhase::Probing;
    }

    /// Starts or continues the suspicion: the next call may start a tenth of `quiet` after `now`.
    fn start_suspicion(&mut self, now: Instant) {
        let apart = Duration::from_nanos(self.config.quiet.as_nanos() / SUSPECTED_CALLS);
        self.phase = HealthPhase::Suspected { next_at: now + apart };
    }

    /// Records the end of a call. `retry_after` is the Retry-After of the response. Returns whether
    /// [`Self::last_end`] describes this call; otherwise its end has no consequences.
    #[inline]
    pub(super) fn end(
        &mut self,
        now: Instant,
        health_at_grant: GrantHealth,
        outcome: Outcome,
        retry_after: Option<Duration>,
    ) -> bool {
        let is_calm = self.is_healthy() && self.pauses == 0 && self.streak == 0 && self.limited.is_none();
        if outcome == Outcome::Success && is_calm {
            self.has_succeeded = true;
            return false;
        }
        self.last_end = self.evaluate(now, health_at_grant, outcome, retry_after);
        true
    }

    /// Returns the result of the last call for which [`Self::end`] returned `true`.
    pub(super) fn last_end(&self) -> CallEnd {
        self.last_end
    }

    #[cold]
    fn evaluate(
        &mut self,
        now: Instant,
        health_at_grant: GrantHealth,
        outcome: Outcome,
        retry_after: Option<Duration>,
    ) -> CallEnd {
        let grant_kind = match self.phase {
            _ if health_at_grant.epoch != self.epoch => GrantKind::OlderEpoch,
            HealthPhase::Probing => GrantKind::Probe,
            _ => GrantKind::CurrentEpoch,
        };
        let is_failure = outcome.is_counted_failure();
        let is_hidden = is_failure && (grant_kind != GrantKind::CurrentEpoch || self.streak > 0);
        let failed_probes = match grant_kind {
            GrantKind::Probe => health_at_grant.failed_probes.plus_one(self.provider),
            _ => health_at_grant.failed_probes,
        };
        let is_fatal = UnavailableCause::of(outcome).is_some();
        let is_rejected = outcome == Outcome::RateLimited || is_fatal;
        let change = self.apply_outcome(now, grant_kind, outcome, retry_after, health_at_grant.is_health_call);
        let is_settled_retry = health_at_grant.epoch == self.epoch
            && health_at_grant.undecided_in.is_some_and(|streak| streak != self.streaks_ended);
        let after = if self.is_unavailable(now) && (is_failure || is_rejected) {
            AfterCall::Unavailable
        } else if is_failure && is_settled_retry {
            AfterCall::Final
        } else if is_failure || is_fatal {
            let streak = self.streaks_ended;
            AfterCall::Retry(Retry { provider: self.provider, epoch: health_at_grant.epoch, streak, failed_probes })
        } else {
            AfterCall::Final
        };
        CallEnd { change, after, is_hidden }
    }

    /// Returns the status of a retry.
    pub(super) fn retry_status(&self, retry: Retry) -> RetryStatus {
        // A failure at another provider or in another epoch is not part of the current streak.
        if retry.provider != self.provider || retry.epoch != self.epoch {
            let is_poison = self.is_poison(retry.failed_probes) && self.is_healthy();
            return if is_poison { RetryStatus::RequestAtFault } else { RetryStatus::Preserved };
        }
        let is_undecided = retry.streak == self.streaks_ended && self.streak > 0;
        if is_undecided { RetryStatus::Undecided } else { RetryStatus::RequestAtFault }
    }

    /// Returns whether a call with these failed probes is a poison request, as shown by a success of another
    /// call at this provider.
    pub(super) fn is_poison(&self, failed_probes: FailedProbes) -> bool {
        self.recovered_by_success && failed_probes.reach_poison_count() && failed_probes.includes(self.provider)
    }

    /// Returns the seed of the jitter. It is the same for equal seeds, providers, epochs and streaks, so that
    /// processes differ but replays do not.
    fn jitter(&self) -> PortableHasher {
        let mut hash = PortableHasher::default();
        hash.write_u64(self.config.seed);
        hash.write_u64(self.name_hash);
        hash.write_u32(self.epoch);
        hash.write_u32(self.streak);
        hash
    }
}
