//! The controller of one resource: its adaptive limit, its cooldown and its count of grants.
//!
//! Everything that decides *how many* calls of a resource may be out, and from when on, is in this one part. Which waiter
//! gets a free slot is decided elsewhere, so the same controller serves a resource of one process and, with a share of
//! the limit for each, the same resource of many.

use alloc::boxed::Box;

use super::cooldown::Cooldown;
use crate::call::{Completion, Outcome};
use crate::limit::{Aimd, AimdConfig, CallReport, LimitAlgorithm, LimitState};
use crate::time::{Duration, Instant};

#[derive(Debug)]
pub(in crate::request) struct Controller {
    config: AimdConfig,
    algorithm: Box<dyn LimitAlgorithm>,
    cooldown: Cooldown,
    effective_max: u32,
    in_flight: u32,
    grants: u64,
    /// The algorithm's latest [`LimitAlgorithm::uses_time`]: `false` is final.
    uses_time: bool,
    /// The climb of the limit after an outage.
    recovery: Option<Recovery>,
    /// Whether the limit may depend on the time: because of either of these.
    is_timed: bool,
    /// The limit since the algorithm's last input. Valid where the algorithm does not use the time, and nothing recovers.
    steady_limit: u32,
    /// The first grant whose latency is reported to the algorithm, where it uses the time.
    timed_from: u64,
}

/// The climb from 1 to the algorithm's limit, after an outage: linear, so that no storm meets a provider that has just come back.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    began: Instant,
    /// Above zero.
    span: Duration,
}

impl Recovery {
    fn end(self) -> Instant {
        self.began + self.span
    }

    /// The most that a limit of `full` may be at `now`.
    fn limit(self, now: Instant, full: u32) -> u32 {
        let elapsed = (now - self.began).min(self.span);
        let climbed =
            u128::from(full.saturating_sub(1)) * u128::from(elapsed.as_nanos()) / u128::from(self.span.as_nanos());
        1 + climbed as u32
    }

    /// When a limit of `full` next rises after `now`; `None` if it is there.
    fn next_step(self, now: Instant, full: u32) -> Option<Instant> {
        let steps = full.saturating_sub(1);
        let next = self.limit(now, full);
        if now >= self.end() || next > steps {
            return None;
        }
        let nanos = (u128::from(next) * u128::from(self.span.as_nanos())).div_ceil(u128::from(steps));
        Some(self.began + Duration::from_nanos(nanos as u64))
    }
}

/// What a lease remembers of the controller at its grant.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Grant {
    limit: u32,
    /// Calls that were out once it was granted.
    pub(super) in_flight: u32,
    /// Its number among all grants of the resource, from 0.
    pub(in crate::request) number: u64,
    since: Since,
}

impl Grant {
    /// The instant of the grant; `None` where it may have been given without a clock.
    pub(in crate::request) fn since(&self) -> Option<Instant> {
        self.since.known()
    }
}

/// An instant that may be unknown, in the space of one: leases are copied on the hot path.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Since(Instant);

impl Since {
    /// Further than any clock goes.
    const UNKNOWN: Self = Self(Instant::MAX);

    /// This instant, if it was `read`.
    #[inline]
    pub(in crate::request) fn at(now: Instant, is_read: bool) -> Self {
        if is_read { Self(now) } else { Self::UNKNOWN }
    }

    fn known(self) -> Option<Instant> {
        Some(self.0).filter(|since| *since != Self::UNKNOWN.0)
    }

    /// From then to `now`; zero where it is not known.
    pub(in crate::request) fn elapsed(self, now: Instant) -> Duration {
        now - self.0
    }
}

/// Settings.
impl Controller {
    /// A controller under a provider cap of `cap`, with settings that were validated.
    pub(super) fn new(config: AimdConfig, cap: u32) -> Self {
        let effective_max = effective_max(&config, cap);
        let algorithm = Aimd::validated(config.clone(), effective_max);
        Self {
            cooldown: Cooldown::default(),
            in_flight: 0,
            // No ramp has begun yet, so any instant will do.
            steady_limit: algorithm.limit(Instant::ZERO),
            uses_time: algorithm.uses_time(),
            is_timed: algorithm.uses_time(),
            recovery: None,
            algorithm: Box::new(algorithm),
            config,
            effective_max,
            grants: 0,
            timed_from: 0,
        }
    }

    pub(in crate::request) fn config(&self) -> &AimdConfig {
        &self.config
    }

    /// AIMD under these settings, as it begins.
    pub(in crate::request) fn fresh_aimd(&self) -> Box<dyn LimitAlgorithm> {
        Box::new(Aimd::validated(self.config.clone(), self.effective_max))
    }

    /// Starts the limit afresh under these settings.
    pub(in crate::request) fn configure(&mut self, now: Instant, config: AimdConfig, cap: u32) {
        self.effective_max = effective_max(&config, cap);
        self.config = config;
        self.algorithm = self.fresh_aimd();
        self.cooldown = Cooldown::default();
        self.refresh(now);
    }

    /// Takes other settings, and keeps the limit as far as they allow.
    pub(in crate::request) fn reconfigure(&mut self, now: Instant, config: AimdConfig, cap: u32, lifts: bool) {
        self.algorithm.reconfigure(now, &config);
        self.config = config;
        self.set_cap(now, cap, lifts);
    }

    /// Lets another algorithm decide from now on.
    pub(in crate::request) fn set_algorithm(&mut self, now: Instant, mut algorithm: Box<dyn LimitAlgorithm>) {
        algorithm.set_max(now, self.effective_max, false);
        self.algorithm = algorithm;
        self.refresh(now);
    }

    pub(in crate::request) fn set_cap(&mut self, now: Instant, cap: u32, lifts: bool) {
        self.effective_max = effective_max(&self.config, cap);
        self.algorithm.set_max(now, self.effective_max, lifts);
        self.refresh(now);
    }

    /// Caches what the algorithm answers after an input.
    fn refresh(&mut self, now: Instant) {
        let uses_time = self.algorithm.uses_time();
        if uses_time && !self.uses_time {
            // The start of the calls that are out is known only if events are on, and events must change nothing.
            self.timed_from = self.grants;
        }
        self.uses_time = uses_time;
        self.recovery = self.recovery.filter(|recovery| now < recovery.end());
        self.is_timed = uses_time || self.recovery.is_some();
        self.steady_limit = self.clamped_limit(now);
    }
}

/// State.
impl Controller {
    pub(in crate::request) fn effective_max(&self) -> u32 {
        self.effective_max
    }

    /// Calls of the resource that are out.
    pub(in crate::request) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Grants so far.
    pub(super) fn grants(&self) -> u64 {
        self.grants
    }

    /// The limit in force at `now`.
    #[inline]
    pub(in crate::request) fn limit(&self, now: Instant) -> u32 {
        if self.is_timed { self.clamped_limit(now) } else { self.steady_limit }
    }

    fn clamped_limit(&self, now: Instant) -> u32 {
        let full = self.algorithm.limit(now).clamp(1, self.effective_max);
        self.recovery.map_or(full, |recovery| recovery.limit(now, full))
    }

    pub(in crate::request) fn limit_state(&self, now: Instant) -> LimitState {
        self.algorithm.state(now)
    }

    /// The end of the cooldown in force at `now`.
    #[inline]
    pub(in crate::request) fn blocked_until(&self, now: Instant) -> Option<Instant> {
        self.cooldown.until(now)
    }

    pub(in crate::request) fn consecutive_rate_limits(&self) -> u32 {
        self.cooldown.consecutive_rate_limits
    }

    /// When the limit next changes by time alone, if that is known.
    pub(super) fn next_limit_change(&self, now: Instant) -> Option<Instant> {
        if !self.is_timed {
            return None;
        }
        let full = || self.algorithm.limit(now).clamp(1, self.effective_max);
        let step = self.recovery.and_then(|recovery| recovery.next_step(now, full()));
        let change = if self.uses_time { self.algorithm.next_change(now) } else { None };
        step.into_iter().chain(change).min()
    }

    /// Whether a grant or an end of a call may depend on the time, which is not before `latest`.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        self.uses_time
            || self.cooldown.until(latest).is_some()
            || self.recovery.is_some_and(|recovery| latest < recovery.end())
    }

    /// Whether the limit lets one more call out at `now`, cooldowns aside.
    #[inline]
    pub(in crate::request) fn has_room(&self, now: Instant) -> bool {
        if self.is_timed { self.has_room_in_time(now) } else { self.in_flight < self.steady_limit }
    }

    fn has_room_in_time(&self, now: Instant) -> bool {
        self.in_flight < self.clamped_limit(now) && self.algorithm.opens_at(now).is_none_or(|at| at <= now)
    }
}

/// Calls.
impl Controller {
    #[inline]
    pub(super) fn on_attempt(&mut self, now: Instant) {
        self.algorithm.on_attempt(now, self.in_flight);
    }

    /// An instant has come at which the limit was to change.
    pub(super) fn on_time(&mut self, now: Instant) {
        self.algorithm.on_time(now);
    }

    /// One more call is out.
    #[inline]
    pub(super) fn grant(&mut self, now: Instant, is_watched: bool) -> Grant {
        let since = Since::at(now, self.uses_time || is_watched);
        self.in_flight += 1;
        let grant = Grant { limit: self.limit(now), in_flight: self.in_flight, number: self.grants, since };
        self.algorithm.on_grant(now, self.grants, self.in_flight);
        self.grants += 1;
        grant
    }

    /// A call has ended. `is_hidden`: it was part of an outage, of which limits see nothing but that a call came back.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, grant: &Grant, done: &Completion, is_hidden: bool) {
        self.in_flight -= 1;
        let outcome = if is_hidden { Outcome::LocalCancelled } else { done.outcome };
        if self.recovery.is_some() {
            self.judge_recovery(now, outcome);
        }
        if outcome == Outcome::RateLimited {
            self.rate_limited(now, grant, done);
        } else {
            self.cooldown.on_outcome(now, outcome, self.in_flight);
        }
        if self.is_timed {
            self.end_timed(now, grant, outcome, done.asked());
        } else {
            let call = self.report(now, grant, outcome, done.asked(), Duration::ZERO);
            self.algorithm.on_outcome(now, &call);
            self.steady_limit = self.clamped_limit(now);
        }
    }

    /// The provider is back: the limit climbs to what it was.
    pub(super) fn begin_recovery(&mut self, now: Instant, span: Duration) {
        self.recovery = (!span.is_zero()).then_some(Recovery { began: now, span });
        self.refresh(now);
    }

    /// A call ended while the limit climbs: after a failure or a refusal it stays where it is, and the algorithm goes on from there.
    #[cold]
    fn judge_recovery(&mut self, now: Instant, outcome: Outcome) {
        if outcome == Outcome::RateLimited || outcome.is_counted_failure() {
            let reached = self.clamped_limit(now);
            self.algorithm.set_max(now, reached, false);
            self.algorithm.set_max(now, self.effective_max, false);
            self.recovery = None;
        }
        self.refresh(now);
    }

    /// Reports the end of a call to an algorithm that uses the time.
    fn end_timed(&mut self, now: Instant, grant: &Grant, outcome: Outcome, asked: Option<Duration>) {
        let latency = if self.uses_time { self.latency(now, grant) } else { Some(Duration::ZERO) };
        // The latency of a call that began before the algorithm is unknown. That it failed is reported all the same.
        if latency.is_some() || outcome != Outcome::Success {
            let call = self.report(now, grant, outcome, asked, latency.unwrap_or(Duration::ZERO));
            self.algorithm.on_outcome(now, &call);
        }
        self.refresh(now);
    }

    /// From grant to `now`, if the algorithm may use it.
    fn latency(&self, now: Instant, grant: &Grant) -> Option<Duration> {
        grant.since().filter(|_| grant.number >= self.timed_from).map(|since| now - since)
    }

    /// Whether a clock is read for the algorithm, and was when this was granted.
    pub(super) fn is_timed_since(&self, grant: &Grant) -> bool {
        self.uses_time && grant.number >= self.timed_from
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is made once for each call that ends, and copied otherwise")]
    fn report(
        &self,
        now: Instant,
        grant: &Grant,
        outcome: Outcome,
        retry_after: Option<Duration>,
        latency: Duration,
    ) -> CallReport {
        CallReport {
            outcome,
            grant: grant.number,
            admitted_limit: grant.limit,
            admitted_in_flight: grant.in_flight,
            retry_after,
            latency,
            in_flight: self.in_flight,
            is_cooling_down: self.cooldown.until(now).is_some(),
        }
    }

    /// Begins the pause after a rate limit: as long as the algorithm says, or the settings.
    #[cold]
    fn rate_limited(&mut self, now: Instant, grant: &Grant, done: &Completion) {
        let latency = self.latency(now, grant).unwrap_or(Duration::ZERO);
        let pause = self.algorithm.pause(now, &self.report(now, grant, done.outcome, done.asked(), latency));
        self.cooldown.on_refused(now, &self.config, pause.unwrap_or(self.config.cooldown));
        if let Some(until) = self.cooldown.until(now) {
            self.algorithm.on_pause(now, until);
        }
    }
}

/// The lower of the provider's cap and the resource's own maximum, at least 1.
fn effective_max(config: &AimdConfig, cap: u32) -> u32 {
    config.max_limit.map_or(cap, |max| max.min(cap)).max(1)
}
