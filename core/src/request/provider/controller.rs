//! The controller of one resource: its adaptive limit, its cooldown and its count of grants.
//!
//! Everything that decides *how many* calls of a resource may be out, and from when on, is in this one part.
//! Which waiter gets a free slot is decided elsewhere, so the same controller serves a resource of one
//! process and, with a share of the limit for each, the same resource of many.

use alloc::boxed::Box;

use super::cooldown::Cooldown;
use crate::call::{Completion, Outcome};
use crate::limit::{Aimd, AimdConfig, CallReport, LimitAlgorithm, LimitChoice, LimitState, StartUp};
use crate::time::{Duration, Instant};

#[derive(Debug)]
pub(in crate::request) struct Controller {
    config: AimdConfig,
    algorithm: Box<dyn LimitAlgorithm>,
    /// Which one it is; `None`: one that does not come with the crate.
    choice: Option<LimitChoice>,
    cooldown: Cooldown,
    effective_max: u32,
    in_flight: u32,
    grants: u64,
    /// The algorithm's latest [`LimitAlgorithm::uses_time`]: `false` is final.
    uses_time: bool,
    /// The climb of the limit after an outage.
    recovery: Option<Recovery>,
    /// The start-up ramp of an algorithm that has none of its own.
    start_up: Option<StartUp>,
    /// Whether the limit may depend on the time: because of any of these.
    is_timed: bool,
    /// The limit since the algorithm's last input. Valid where the algorithm does not use the time, and
    /// nothing recovers.
    steady_limit: u32,
    /// The first grant whose latency is reported to the algorithm, where it uses the time.
    timed_from: u64,
}

/// The climb from 1 to the algorithm's limit, after an outage: linear, so that no storm meets a provider that
/// has just come back.
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
    /// Calls of the resource that were out once it was granted.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

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
            start_up: None,
            choice: Some(LimitChoice::Aimd),
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

    /// What decides the limit, as a setting; `None`: an algorithm that does not come with the crate.
    pub(in crate::request) fn choice(&self) -> Option<&LimitChoice> {
        self.choice.as_ref()
    }

    /// Lets AIMD decide, as it begins under these settings. Its ramp is its own.
    fn begin_aimd(&mut self) {
        self.algorithm = Box::new(Aimd::validated(self.config.clone(), self.effective_max));
        (self.choice, self.start_up) = (Some(LimitChoice::Aimd), None);
    }

    /// Starts the limit afresh under these settings.
    pub(in crate::request) fn configure(&mut self, now: Instant, config: AimdConfig, cap: u32) {
        self.effective_max = effective_max(&config, cap);
        self.config = config;
        self.begin_aimd();
        self.cooldown = Cooldown::default();
        self.refresh(now);
    }

    /// Takes other settings, and keeps the limit as far as they allow.
    pub(in crate::request) fn reconfigure(&mut self, now: Instant, config: AimdConfig, cap: u32, lifts: bool) {
        self.algorithm.reconfigure(now, &config);
        if self.choice != Some(LimitChoice::Aimd) && config.ramp != self.config.ramp {
            // As that of AIMD: anew, from 1 to where the limit stands.
            self.start_up = StartUp::new(&config, self.full_limit(now));
        }
        self.config = config;
        self.set_cap(now, cap, lifts);
    }

    /// Lets another algorithm decide from now on. Where it has no ramp of its own, the resource's comes
    /// before it.
    pub(in crate::request) fn set_algorithm(
        &mut self,
        now: Instant,
        algorithm: Option<Box<dyn LimitAlgorithm>>,
        choice: Option<LimitChoice>,
    ) {
        match algorithm {
            Some(mut algorithm) => {
                algorithm.set_max(now, self.effective_max, false);
                (self.algorithm, self.choice) = (algorithm, choice);
                self.start_up = StartUp::new(&self.config, self.ramp_target());
            }
            None => self.begin_aimd(),
        }
        self.refresh(now);
    }

    /// Where a ramp of the whole limit ends.
    fn ramp_target(&self) -> u32 {
        self.choice.map_or(u32::MAX, |choice| choice.most()).min(self.effective_max)
    }

    pub(in crate::request) fn set_cap(&mut self, now: Instant, cap: u32, lifts: bool) {
        self.effective_max = effective_max(&self.config, cap);
        self.algorithm.set_max(now, self.effective_max, lifts);
        let target = self.ramp_target();
        if let Some(start_up) = &mut self.start_up {
            start_up.set_target(target);
        }
        self.refresh(now);
    }

    /// Caches what the algorithm answers after an input.
    fn refresh(&mut self, now: Instant) {
        let uses_time = self.algorithm.uses_time();
        if uses_time && !self.uses_time {
            // The start of the calls that are out is known only if events are on, and events must change
            // nothing.
            self.timed_from = self.grants;
        }
        self.uses_time = uses_time;
        self.recovery = self.recovery.filter(|recovery| now < recovery.end());
        self.start_up = self.start_up.filter(|start_up| !start_up.is_over(now));
        self.is_timed = uses_time || self.recovery.is_some() || self.start_up.is_some();
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
        let full = self.full_limit(now);
        let ramped = self.start_up.and_then(|start_up| start_up.limit(now)).map_or(full, |ramp| ramp.min(full));
        self.recovery.map_or(ramped, |recovery| recovery.limit(now, ramped))
    }

    /// The algorithm's limit, whatever climb holds it down.
    fn full_limit(&self, now: Instant) -> u32 {
        self.algorithm.limit(now).clamp(1, self.effective_max)
    }

    pub(in crate::request) fn limit_state(&self, now: Instant) -> LimitState {
        let state = self.algorithm.state(now);
        let ramp = self.start_up.and_then(|start_up| start_up.state(now));
        LimitState { ramp: state.ramp.or(ramp), ..state }
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
        let step = self.recovery.and_then(|recovery| recovery.next_step(now, self.full_limit(now)));
        let ramp = self.start_up.and_then(|start_up| start_up.next_step(now));
        let change = if self.uses_time { self.algorithm.next_change(now) } else { None };
        step.into_iter().chain(ramp).chain(change).min()
    }

    /// Whether a grant or an end of a call may depend on the time, which is not before `latest`.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        self.uses_time
            || self.cooldown.until(latest).is_some()
            || self.start_up.is_some()
            || self.recovery.is_some_and(|recovery| latest < recovery.end())
    }

    /// Whether the limit lets one more call out at `now`, cooldowns aside.
    #[inline]
    pub(in crate::request) fn has_room(&self, now: Instant) -> bool {
        if self.is_timed { self.has_room_in_time(now) } else { self.in_flight < self.steady_limit }
    }

    fn has_room_in_time(&self, now: Instant) -> bool {
        self.in_flight < self.clamped_limit(now) && self.opens_at(now).is_none()
    }

    /// When the algorithm lets the next call out, if only that keeps it from going out at `now`: fewer are
    /// out than the limit allows.
    pub(in crate::request) fn paced_until(&self, now: Instant) -> Option<Instant> {
        if self.in_flight < self.limit(now) { self.opens_at(now) } else { None }
    }

    /// The instant after `now` before which the algorithm lets no call out.
    fn opens_at(&self, now: Instant) -> Option<Instant> {
        if self.is_timed { self.algorithm.opens_at(now).filter(|at| *at > now) } else { None }
    }
}

/// Calls.
impl Controller {
    #[inline]
    pub(super) fn on_attempt(&mut self, now: Instant) {
        if self.start_up.is_some() {
            self.attempt_ramp(now);
        }
        self.algorithm.on_attempt(now, self.in_flight);
    }

    #[cold]
    fn attempt_ramp(&mut self, now: Instant) {
        let full = self.full_limit(now);
        if let Some(start_up) = &mut self.start_up {
            start_up.on_attempt(now, self.in_flight, full);
        }
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
        if let Some(start_up) = &mut self.start_up {
            start_up.on_grant(now);
        }
        self.grants += 1;
        grant
    }

    /// A call has ended. `is_hidden`: it was part of an outage, of which limits see nothing but that a call
    /// came back.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, grant: &Grant, done: &Completion, is_hidden: bool) {
        self.in_flight -= 1;
        let outcome = if is_hidden { Outcome::LocalCancelled } else { done.outcome };
        if self.recovery.is_some() {
            self.judge_recovery(now, outcome);
        }
        if self.start_up.is_some() {
            self.judge_ramp(now, outcome);
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

    /// A call ended while the limit climbs: after a failure or a refusal it stays where it is, and the
    /// algorithm goes on from there.
    #[cold]
    fn judge_recovery(&mut self, now: Instant, outcome: Outcome) {
        if outcome == Outcome::RateLimited || outcome.is_counted_failure() {
            self.restart_from(now, self.clamped_limit(now));
            self.recovery = None;
        }
        self.refresh(now);
    }

    /// A call ended where there is a ramp: a refusal ends it, and the algorithm goes on from there.
    #[cold]
    fn judge_ramp(&mut self, now: Instant, outcome: Outcome) {
        let Some(start_up) = &mut self.start_up else { return };
        start_up.on_end(now);
        if outcome == Outcome::RateLimited
            && let Some(reached) = start_up.abort(now)
        {
            self.restart_from(now, reached);
        }
        self.refresh(now);
    }

    /// Cuts the algorithm's limit to `reached`, from which it may rise again.
    fn restart_from(&mut self, now: Instant, reached: u32) {
        self.algorithm.set_max(now, reached, false);
        self.algorithm.set_max(now, self.effective_max, false);
    }

    /// Reports the end of a call to an algorithm that uses the time.
    fn end_timed(&mut self, now: Instant, grant: &Grant, outcome: Outcome, asked: Option<Duration>) {
        let latency = if self.uses_time { self.latency(now, grant) } else { Some(Duration::ZERO) };
        // The latency of a call that began before the algorithm is unknown. That it failed is reported all
        // the same.
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
        let pause = pause.unwrap_or(self.config.cooldown);
        // The settings bound what the provider did not ask for.
        let pause = if done.asked().is_some() { pause } else { pause.min(self.config.cooldown) };
        self.cooldown.on_refused(now, &self.config, pause);
        if let Some(until) = self.cooldown.until(now) {
            self.algorithm.on_pause(now, until);
        }
    }
}

/// The lower of the provider's cap and the resource's own maximum, at least 1.
fn effective_max(config: &AimdConfig, cap: u32) -> u32 {
    config.max_limit.map_or(cap, |max| max.min(cap)).max(1)
}
