//! The changes of health that the end of a call, the end of the patience or an operator causes.

use super::{CALM_PAUSES, GrantKind, Health, HealthChange, HealthPhase, RateLimits};
use crate::backoff;
use crate::call::Outcome;
use crate::request::snapshot::UnavailableCause;
use crate::time::{Duration, Instant};

impl Health {
    /// Applies the end of a call to the health.
    pub(super) fn apply_outcome(
        &mut self,
        now: Instant,
        grant_kind: GrantKind,
        outcome: Outcome,
        retry_after: Option<Duration>,
        is_health_call: bool,
    ) -> HealthChange {
        let is_too_long = |pause| self.config.rate_limit_patience.is_some_and(|patience| pause >= patience);
        match outcome {
            // Since the grant, the key or the state of the account may have changed.
            _ if grant_kind == GrantKind::OlderEpoch => {}
            _ if let Some(cause) = UnavailableCause::of(outcome) => return self.close(now, cause, None),
            Outcome::RateLimited if retry_after.is_some_and(is_too_long) => {
                return self.close(now, UnavailableCause::RateLimited, retry_after);
            }
            Outcome::RateLimited => {
                self.record_rate_limit(now);
                // While a call is in flight, or no request waits, no timer ends the patience.
                let change = self.end_patience(now, 0);
                if change != HealthChange::None {
                    return change;
                }
            }
            // This is no answer.
            _ if outcome.is_local() || outcome.is_counted_failure() => {}
            _ => self.limited = None,
        }
        match grant_kind {
            GrantKind::Probe if outcome.is_local() => self.make_due(now),
            GrantKind::Probe if outcome.is_counted_failure() => {
                self.probes_failed += 1;
                self.go_down(now, retry_after)
            }
            GrantKind::Probe => self.recover(outcome, is_health_call),
            GrantKind::OlderEpoch if outcome == Outcome::Success && matches!(self.phase, HealthPhase::Down { .. }) => {
                self.make_due(now)
            }
            GrantKind::CurrentEpoch if outcome.is_counted_failure() => self.record_failure(now, retry_after),
            GrantKind::CurrentEpoch if !outcome.is_local() => self.record_answer(outcome),
            GrantKind::OlderEpoch | GrantKind::CurrentEpoch => HealthChange::None,
        }
    }

    /// Records a rate limit. If requests with fallbacks use another provider by now, it was the answer to a
    /// trial call, or to a call from before the last one. Only the former postpones the next trial call.
    fn record_rate_limit(&mut self, now: Instant) {
        let limits = self.limited.unwrap_or(RateLimits { since: now, trials: 0, next_trial_at: None });
        self.limited = Some(limits);
        if self.serves(now) || limits.next_trial_at.is_some_and(|at| now < at) {
            return;
        }
        let pause = backoff::doubled(self.config.first_pause, limits.trials, self.config.longest_pause);
        let next_trial_at = Some(now + backoff::jittered(pause, &self.jitter()));
        self.limited = Some(RateLimits { trials: limits.trials.saturating_add(1), next_trial_at, ..limits });
    }

    /// Records an answer, which ends the streak.
    fn record_answer(&mut self, outcome: Outcome) -> HealthChange {
        let was_suspected = !self.is_healthy();
        let has_streak = self.streak > 0;
        self.streak = 0;
        self.phase = HealthPhase::Healthy;
        if outcome == Outcome::Success {
            self.record_success();
        }
        if was_suspected {
            self.epoch += 1;
            self.recovered_by_success = outcome == Outcome::Success;
            return HealthChange::Cleared;
        }
        self.streaks_ended += u32::from(has_streak);
        if has_streak { HealthChange::StreakEnded } else { HealthChange::None }
    }

    fn record_failure(&mut self, now: Instant, retry_after: Option<Duration>) -> HealthChange {
        if self.has_succeeded {
            self.has_succeeded = false;
            self.quiet_since = Some(now);
        }
        // With few calls, the number of successes may never reach `calm`. An old outage therefore also
        // stops to count after a span of time.
        if now - self.last_failure >= self.calm_span() {
            (self.pauses, self.failing_since) = (0, now);
        }
        self.streak += 1;
        self.last_failure = now;
        if self.streak == 1 && self.pauses == 0 {
            self.failing_since = now;
        }
        if self.streak < self.config.failures {
            return HealthChange::None;
        }
        if self.quiet_since.is_some_and(|since| now - since < self.config.quiet) {
            self.start_suspicion(now);
            return HealthChange::None;
        }
        self.go_down(now, retry_after)
    }

    /// Returns the time without a failure after which the last outage no longer affects the next one.
    fn calm_span(&self) -> Duration {
        Duration::from_nanos(self.config.longest_pause.as_nanos().saturating_mul(CALM_PAUSES))
    }

    fn record_success(&mut self) {
        self.has_succeeded = true;
        self.successes += 1;
        if self.successes >= self.config.calm {
            self.pauses = 0;
        }
    }

    fn go_down(&mut self, now: Instant, retry_after: Option<Duration>) -> HealthChange {
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
            HealthChange::None => HealthChange::Down { since: self.failing_since, probe_at },
            unavailable => unavailable,
        }
    }

    /// Makes the provider unavailable if its patience has ended.
    pub(in crate::request::provider) fn end_patience(&mut self, now: Instant, in_flight: u32) -> HealthChange {
        if self.patience_ends(in_flight).is_none_or(|end| now < end) {
            return HealthChange::None;
        }
        let is_down = matches!(self.phase, HealthPhase::Down { .. });
        self.close(now, if is_down { UnavailableCause::Outage } else { UnavailableCause::RateLimited }, None)
    }

    /// Makes the provider unavailable for `pause`, or else for `recheck`. Changes nothing if it is
    /// unavailable already.
    pub(in crate::request::provider) fn close(
        &mut self,
        now: Instant,
        cause: UnavailableCause,
        pause: Option<Duration>,
    ) -> HealthChange {
        if self.is_unavailable(now) {
            return HealthChange::None;
        }
        self.epoch += 1;
        (self.streak, self.limited) = (0, None);
        let probe_at = pause.or(self.config.recheck).map(|pause| now + pause);
        self.phase = HealthPhase::Unavailable { since: now, cause, probe_at };
        HealthChange::Unavailable { cause, probe_at }
    }

    /// Makes the provider healthy, whatever its state was.
    pub(in crate::request::provider) fn reopen(&mut self) -> HealthChange {
        if self.is_healthy() {
            return HealthChange::None;
        }
        let since = self.failing_since;
        self.epoch += 1;
        (self.streak, self.pauses, self.recovered_by_success, self.limited) = (0, 0, false, None);
        self.probes_failed = 0;
        self.phase = HealthPhase::Healthy;
        HealthChange::Recovered { since }
    }

    fn make_due(&mut self, now: Instant) -> HealthChange {
        self.phase = HealthPhase::Down { probe_at: now };
        HealthChange::ProbeDue
    }

    fn recover(&mut self, outcome: Outcome, is_health_call: bool) -> HealthChange {
        self.epoch += 1;
        self.phase = HealthPhase::Healthy;
        self.recovered_by_success = outcome == Outcome::Success;
        self.successes = u32::from(self.recovered_by_success);
        self.has_succeeded = self.recovered_by_success;
        self.probes_failed = 0;
        if self.recovered_by_success && is_health_call {
            self.pauses = 0;
        }
        HealthChange::Recovered { since: self.failing_since }
    }
}
