//! The controller of one resource: its adaptive limit, its cooldown and its counts of calls.
//!
//! The controller decides *how many* calls of a resource may be in flight, and when. It does not decide which
//! waiter gets a free slot. So the leader of processes that [share](crate::share) a limit uses the same
//! controller, and gives each process a part of the limit.

use alloc::boxed::Box;

use super::cooldown::Cooldown;
use super::member_state::MemberState;
use super::start_up::StartUp;
use super::{Aimd, CallReport, LimitAlgorithm, LimitChoice, LimitConfig, LimitState};
use crate::call::{Completion, Outcome};
use crate::time::{Duration, Instant};

/// The limit, the cooldown and the counts of calls of one resource.
#[derive(Debug)]
pub(crate) struct Controller {
    config: LimitConfig,
    algorithm: Box<dyn LimitAlgorithm>,
    /// The algorithm as a setting; `None` for a custom algorithm.
    choice: Option<LimitChoice>,
    cooldown: Cooldown,
    effective_max: u32,
    in_flight: u32,
    grants: u64,
    /// The latest result of [`LimitAlgorithm::uses_time`].
    uses_time: bool,
    /// The climb of the limit after an outage, if one is in progress.
    recovery: Option<Recovery>,
    /// The start-up ramp, for an algorithm that has no ramp of its own.
    start_up: Option<StartUp>,
    /// Whether the limit may depend on the time: `uses_time`, or `recovery` or `start_up` is set.
    is_timed: bool,
    /// The limit since the algorithm's last input. Valid only if `is_timed` is `false`.
    steady_limit: u32,
    /// The number of the first grant whose latency is reported to an algorithm that uses the time.
    timed_from: u64,
}

/// The linear climb from 1 to the algorithm's limit after an outage. It protects a provider that is just back
/// from a burst of calls.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    began: Instant,
    /// The length of the climb, above zero.
    span: Duration,
}

impl Recovery {
    fn end(self) -> Instant {
        self.began + self.span
    }

    /// Returns the part of a limit of `full` that is allowed at `now`.
    fn limit(self, now: Instant, full: u32) -> u32 {
        let elapsed = (now - self.began).min(self.span);
        let climbed =
            u128::from(full.saturating_sub(1)) * u128::from(elapsed.as_nanos()) / u128::from(self.span.as_nanos());
        1 + climbed as u32
    }

    /// Returns when a limit of `full` next rises after `now`, or `None` if the climb is complete.
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

/// The state of the controller at the grant of a lease, which is stored with the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    limit: u32,
    /// The calls of the resource in flight after the grant.
    pub(crate) in_flight: u32,
    /// The number of the grant at the resource, counted from 0.
    pub(crate) number: u64,
    since: RecordedInstant,
}

impl Grant {
    /// Returns the calls of the resource in flight after the grant.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns this grant with the number and the instant that another process reported for it, and with as
    /// many calls in flight as follow from all reports, at most the limit.
    pub(crate) fn as_reported(self, number: u64, since: Instant, in_flight: u32) -> Self {
        let in_flight = self.in_flight.max(in_flight.min(self.limit));
        Self { number, since: RecordedInstant::at(since, true), in_flight, ..self }
    }

    /// Returns the instant of the grant, or `None` if the host may not have read its clock for it.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since.known()
    }
}

/// An optional instant in the size of an [`Instant`]. It is compact because leases are copied on the hot
/// path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedInstant(Instant);

impl RecordedInstant {
    /// A value that no clock reaches.
    const UNKNOWN: Self = Self(Instant::MAX);

    /// Returns `now` if the clock was read for it, and an unknown instant otherwise.
    #[inline]
    pub(crate) fn at(now: Instant, is_read: bool) -> Self {
        if is_read { Self(now) } else { Self::UNKNOWN }
    }

    fn known(self) -> Option<Instant> {
        Some(self.0).filter(|since| *since != Self::UNKNOWN.0)
    }

    /// Returns the time from this instant to `now`, or zero if the instant is unknown.
    pub(crate) fn elapsed(self, now: Instant) -> Duration {
        now - self.0
    }
}

/// Settings.
impl Controller {
    /// Creates a controller under a provider cap of `cap`. The settings must be valid.
    pub(crate) fn new(config: LimitConfig, cap: u32) -> Self {
        let effective_max = effective_max(&config, cap);
        let algorithm = Aimd::validated(config.clone(), effective_max);
        Self {
            cooldown: Cooldown::default(),
            in_flight: 0,
            // No ramp has started yet, so the limit is the same at any instant.
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

    pub(crate) fn config(&self) -> &LimitConfig {
        &self.config
    }

    /// Returns the algorithm as a setting, or `None` for a custom algorithm.
    pub(crate) fn choice(&self) -> Option<&LimitChoice> {
        self.choice.as_ref()
    }

    /// Installs a new AIMD algorithm with the current settings. AIMD has its own ramp.
    fn install_aimd(&mut self) {
        self.algorithm = Box::new(Aimd::validated(self.config.clone(), self.effective_max));
        (self.choice, self.start_up) = (Some(LimitChoice::Aimd), None);
    }

    /// Sets the limit settings, and restarts the limit from them with AIMD and without a cooldown.
    pub(crate) fn configure(&mut self, now: Instant, config: LimitConfig, cap: u32) {
        self.effective_max = effective_max(&config, cap);
        self.config = config;
        self.install_aimd();
        self.cooldown = Cooldown::default();
        self.refresh(now);
    }

    /// Changes the settings, and keeps the limit as far as they allow.
    pub(crate) fn reconfigure(&mut self, now: Instant, config: LimitConfig, cap: u32, lifts: bool) {
        self.algorithm.reconfigure(now, &config);
        if self.choice != Some(LimitChoice::Aimd) && config.ramp != self.config.ramp {
            // The ramp restarts as that of AIMD does: from 1 to the present limit.
            self.start_up = StartUp::new(&config, self.full_limit(now));
        }
        self.config = config;
        self.set_cap(now, cap, lifts);
    }

    /// Replaces the algorithm; `None` installs AIMD. A ramp in the settings is applied on top of an algorithm
    /// that has no ramp of its own.
    pub(crate) fn set_algorithm(
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
            None => self.install_aimd(),
        }
        self.refresh(now);
    }

    /// Returns the limit at which a ramp of the algorithm ends.
    fn ramp_target(&self) -> u32 {
        self.choice.map_or(u32::MAX, |choice| choice.most()).min(self.effective_max)
    }

    /// Applies a cap of the provider and model. `lifts` is that of [`LimitAlgorithm::set_max`].
    pub(crate) fn set_cap(&mut self, now: Instant, cap: u32, lifts: bool) {
        self.effective_max = effective_max(&self.config, cap);
        self.algorithm.set_max(now, self.effective_max, lifts);
        let target = self.ramp_target();
        if let Some(start_up) = &mut self.start_up {
            start_up.set_target(target);
        }
        self.refresh(now);
    }

    /// Begins a batch of outcomes: see [`LimitAlgorithm::begin_batch`].
    pub(crate) fn begin_batch(&mut self) {
        self.algorithm.begin_batch();
    }

    /// Updates the cached results of the algorithm after an input, or after a change of the algorithm itself.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let uses_time = self.algorithm.uses_time();
        if uses_time && !self.uses_time {
            // The start of the calls in flight is known only if events are enabled, and events must not
            // change decisions. Only later grants are therefore reported with their latency.
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
    pub(crate) fn effective_max(&self) -> u32 {
        self.effective_max
    }

    /// Returns the calls of the resource in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of grants so far.
    pub(crate) fn grants(&self) -> u64 {
        self.grants
    }

    /// Returns the limit in force at `now`.
    #[inline]
    pub(crate) fn limit(&self, now: Instant) -> u32 {
        if self.is_timed { self.clamped_limit(now) } else { self.steady_limit }
    }

    fn clamped_limit(&self, now: Instant) -> u32 {
        let full = self.full_limit(now);
        let ramped = self.start_up.and_then(|start_up| start_up.limit(now)).map_or(full, |ramp| ramp.min(full));
        self.recovery.map_or(ramped, |recovery| recovery.limit(now, ramped))
    }

    /// Returns the limit of the algorithm, without ramp and recovery.
    fn full_limit(&self, now: Instant) -> u32 {
        self.algorithm.limit(now).clamp(1, self.effective_max)
    }

    pub(crate) fn limit_state(&self, now: Instant) -> LimitState {
        let state = self.algorithm.state(now);
        let ramp = self.start_up.and_then(|start_up| start_up.state(now));
        LimitState { ramp: state.ramp.or(ramp), ..state }
    }

    /// Returns the end of the cooldown in force at `now`.
    #[inline]
    pub(crate) fn blocked_until(&self, now: Instant) -> Option<Instant> {
        self.cooldown.until(now)
    }

    pub(crate) fn consecutive_rate_limits(&self) -> u32 {
        self.cooldown.consecutive_rate_limits
    }

    /// Returns when the limit next changes by time alone, if it is known.
    pub(crate) fn next_limit_change(&self, now: Instant) -> Option<Instant> {
        if !self.is_timed {
            return None;
        }
        let step = self.recovery.and_then(|recovery| recovery.next_step(now, self.full_limit(now)));
        let ramp = self.start_up.and_then(|start_up| start_up.next_step(now));
        let change = if self.uses_time { self.algorithm.next_change(now) } else { None };
        step.into_iter().chain(ramp).chain(change).min()
    }

    /// Returns whether a grant or an end of a call may depend on the time, at `latest` or later.
    #[inline]
    pub(crate) fn uses_time(&self, latest: Instant) -> bool {
        self.uses_time
            || self.cooldown.until(latest).is_some()
            || self.start_up.is_some()
            || self.recovery.is_some_and(|recovery| latest < recovery.end())
    }

    /// Returns whether the limit allows one more call at `now`, apart from cooldowns.
    #[inline]
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        if self.is_timed { self.has_room_timed(now) } else { self.in_flight < self.steady_limit }
    }

    fn has_room_timed(&self, now: Instant) -> bool {
        self.in_flight < self.clamped_limit(now) && self.opens_at(now).is_none()
    }

    /// Returns when the algorithm allows the next call, if fewer calls are in flight than the limit allows
    /// and only the algorithm's spacing of calls blocks the next at `now`.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        if self.in_flight < self.limit(now) { self.opens_at(now) } else { None }
    }

    /// Returns the time between two calls at the rate that the algorithm has learned.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.algorithm.interval()
    }

    /// Returns what this process has of a shared limit, if it is one.
    pub(crate) fn member_state(&self, now: Instant) -> Option<MemberState> {
        self.algorithm.member_state(now)
    }

    /// Returns the limit of the algorithm as it states it, which may be 0.
    pub(crate) fn room(&self, now: Instant) -> u32 {
        self.algorithm.limit(now)
    }

    pub(crate) fn algorithm_mut(&mut self) -> &mut (dyn LimitAlgorithm + 'static) {
        &mut *self.algorithm
    }

    /// Sets the time for which the clock of the host has stopped in all.
    pub(crate) fn set_suspended(&mut self, suspended: Duration) {
        self.algorithm.set_suspended(suspended);
    }

    /// Continues at a rate that another process has learned.
    pub(crate) fn set_interval(&mut self, now: Instant, interval: Duration) {
        self.algorithm.set_interval(now, interval);
    }

    /// Returns the instant before which the algorithm allows no call, if it is after `now`, however many
    /// calls are in flight.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        if self.is_timed { self.algorithm.opens_at(now).filter(|at| *at > now) } else { None }
    }

    /// Returns whether the algorithm allows that a granted call is sent at `now`.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.algorithm.may_send(now)
    }
}

/// Calls.
impl Controller {
    #[inline]
    pub(crate) fn on_attempt(&mut self, now: Instant) {
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

    /// Notifies the algorithm of an instant at which the limit may change.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.algorithm.on_time(now);
    }

    /// Records the grant of a call.
    #[inline]
    pub(crate) fn grant(&mut self, now: Instant, needs_clock: bool) -> Grant {
        let since = RecordedInstant::at(now, self.uses_time || needs_clock);
        self.in_flight += 1;
        let grant = Grant { limit: self.limit(now), in_flight: self.in_flight, number: self.grants, since };
        self.algorithm.on_grant(now, self.grants, self.in_flight);
        if let Some(start_up) = &mut self.start_up {
            start_up.on_grant(now);
        }
        self.grants += 1;
        grant
    }

    /// Counts a call that started before the cut at grant number `cut`, but is known only now. The algorithm
    /// has separated the calls before and after the cut, so it does not learn from this start.
    pub(crate) fn grant_before_cut(&mut self, now: Instant, cut: u64) -> Grant {
        self.in_flight += 1;
        let since = RecordedInstant::at(now, true);
        Grant { limit: self.limit(now), in_flight: self.in_flight, number: cut.saturating_sub(1), since }
    }

    /// Records the end of a call. If `is_hidden` is true, the call counts as cancelled locally, so that its
    /// outcome does not affect the limit: it was part of an outage, or gives no information about this limit.
    #[inline]
    pub(crate) fn end(&mut self, now: Instant, grant: &Grant, done: &Completion, is_hidden: bool) {
        self.in_flight -= 1;
        let outcome = if is_hidden { Outcome::LocalCancelled } else { done.outcome };
        if self.recovery.is_some() {
            self.update_recovery(now, outcome);
        }
        if self.start_up.is_some() {
            self.update_ramp(now, outcome);
        }
        if outcome == Outcome::RateLimited {
            self.rate_limited(now, grant, done);
        } else {
            self.cooldown.on_outcome(now, outcome, self.in_flight);
        }
        if self.is_timed {
            self.end_timed(now, grant, outcome, done.positive_retry_after());
        } else {
            let call = self.report(now, grant, outcome, done.positive_retry_after(), Duration::ZERO);
            self.algorithm.on_outcome(now, &call);
            self.steady_limit = self.clamped_limit(now);
        }
    }

    /// Starts the climb of the limit after an outage.
    pub(crate) fn begin_recovery(&mut self, now: Instant, span: Duration) {
        self.recovery = (!span.is_zero()).then_some(Recovery { began: now, span });
        self.refresh(now);
    }

    /// Handles the end of a call during the climb. A failure or a rate limit ends the climb: the algorithm
    /// continues from the limit that was reached.
    #[cold]
    fn update_recovery(&mut self, now: Instant, outcome: Outcome) {
        if outcome == Outcome::RateLimited || outcome.is_counted_failure() {
            self.restart_from(now, self.clamped_limit(now));
            self.recovery = None;
        }
        self.refresh(now);
    }

    /// Handles the end of a call during a ramp. A rate limit ends the ramp: the algorithm continues from the
    /// limit that was reached.
    #[cold]
    fn update_ramp(&mut self, now: Instant, outcome: Outcome) {
        let Some(start_up) = &mut self.start_up else { return };
        start_up.on_end(now);
        if outcome == Outcome::RateLimited
            && let Some(reached) = start_up.abort(now)
        {
            self.restart_from(now, reached);
        }
        self.refresh(now);
    }

    /// Cuts the algorithm's limit to `reached`. It may rise from there.
    fn restart_from(&mut self, now: Instant, reached: u32) {
        self.algorithm.set_max(now, reached, false);
        self.algorithm.set_max(now, self.effective_max, false);
    }

    /// Reports the end of a call to the algorithm when the limit may depend on the time.
    fn end_timed(&mut self, now: Instant, grant: &Grant, outcome: Outcome, retry_after: Option<Duration>) {
        let latency = if self.uses_time { self.latency(now, grant) } else { Some(Duration::ZERO) };
        // The latency of a call that started before the algorithm is unknown. A success without a latency is
        // not reported; every other outcome is.
        if latency.is_some() || outcome != Outcome::Success {
            let call = self.report(now, grant, outcome, retry_after, latency.unwrap_or(Duration::ZERO));
            self.algorithm.on_outcome(now, &call);
        }
        self.refresh(now);
    }

    /// Returns the time from the grant to `now`, if the algorithm may use it.
    fn latency(&self, now: Instant, grant: &Grant) -> Option<Duration> {
        grant.since().filter(|_| grant.number >= self.timed_from).map(|since| now - since)
    }

    /// Returns whether the algorithm uses the time and the clock was read for this grant.
    pub(crate) fn is_timed_since(&self, grant: &Grant) -> bool {
        self.uses_time && grant.number >= self.timed_from
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is built once for each call that ends, and would be copied otherwise")]
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

    /// Starts the cooldown after a rate limit, unless its length is zero. The length is that of the
    /// algorithm, or else of the settings.
    #[cold]
    fn rate_limited(&mut self, now: Instant, grant: &Grant, done: &Completion) {
        let latency = self.latency(now, grant).unwrap_or(Duration::ZERO);
        let cooldown =
            self.algorithm.cooldown(now, &self.report(now, grant, done.outcome, done.positive_retry_after(), latency));
        let cooldown = cooldown.unwrap_or(self.config.cooldown);
        // A cooldown without a Retry-After is never longer than the configured one.
        let has_retry_after = done.positive_retry_after().is_some();
        let cooldown = if has_retry_after { cooldown } else { cooldown.min(self.config.cooldown) };
        self.cooldown.on_rate_limited(now, &self.config, cooldown);
        if let Some(until) = self.cooldown.until(now) {
            self.algorithm.on_cooldown(now, until);
        }
    }
}

/// Returns the lower of the provider's cap and the resource's own maximum, at least 1.
fn effective_max(config: &LimitConfig, cap: u32) -> u32 {
    config.max_limit.map_or(cap, |max| max.min(cap)).max(1)
}
