//! One resource and its provider, as the controller keeps them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::cooldown::Cooldown;
use super::keys::{Domain, GroupId, ProviderModelId, ResourceId};
use super::outcome::{Denial, DenialReason};
use crate::budget::{BudgetConfig, Budgets, Usage};
use crate::call::{Completion, Outcome};
use crate::fair_queue::{BlockedSetId, ClassId};
use crate::lease::ReleaseDiagnostics;
use crate::limit::AimdConfig;
use crate::limit::{Aimd, CallReport, LimitAlgorithm, LimitState};
use crate::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct ProviderModel {
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) aliases: Vec<(String, u32)>,
    pub(super) cap: u32,
    pub(super) in_flight: u32,
    pub(super) resources: Vec<ResourceId>,
}

/// Where a resource's waiters stand in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) class: ClassId,
    pub(super) set: BlockedSetId,
    pub(super) group: GroupId,
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) owner: ProviderModelId,
    pub(super) domain: Domain,
    pub(super) place: Place,
    pub(super) in_flight: u32,
    pub(super) waiters: u32,
    /// Those of them whose workers hold nothing.
    pub(super) suspended: u32,
    /// The armed wake-up, if any.
    pub(super) wake_at: Option<Instant>,
    pub(super) last_outcome: Option<Outcome>,
    /// Releases in this resource's name that released nothing.
    pub(super) irregular: ReleaseDiagnostics,
    pub(super) cooldown: Cooldown,
    pub(super) budgets: Budgets,
    /// From when on the budgets suffice for the first waiter, where they alone keep it.
    pub(super) budget_wait: Option<Instant>,
    /// The limit as the events have told it.
    pub(super) told_limit: u32,
    config: AimdConfig,
    algorithm: Box<dyn LimitAlgorithm>,
    /// The algorithm's last word on [`LimitAlgorithm::uses_time`]: `false` is final.
    uses_time: bool,
    /// The limit since the algorithm was last told something, where it does not use the time.
    steady_limit: u32,
    effective_max: u32,
    grants: u64,
    /// The first grant whose length the algorithm is told, where it uses the time.
    timed_from: u64,
}

/// What a lease remembers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) resource: ResourceId,
    limit: u32,
    /// Calls that were out once it was granted.
    in_flight: u32,
    grant: u64,
    since: Since,
    estimate: Usage,
}

/// An instant that may be unknown, in the space of one: leases are copied on the hot path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(Instant);

impl Since {
    /// Further than any clock goes.
    pub(super) const UNKNOWN: Self = Self(Instant::MAX);

    /// This instant, if it was `read`.
    #[inline]
    pub(super) fn at(now: Instant, is_read: bool) -> Self {
        if is_read { Self(now) } else { Self::UNKNOWN }
    }

    pub(super) fn known(self) -> Option<Instant> {
        Some(self.0).filter(|since| *since != Self::UNKNOWN.0)
    }

    /// From then to `now`; zero where it is not known.
    pub(super) fn elapsed(self, now: Instant) -> Duration {
        now - self.0
    }
}

impl Held {
    /// The instant of the grant; `None` where it may have been given without a clock.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since.known()
    }
}

/// What keeps a call from going out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Cooldown,
    Capacity,
    /// Until this instant.
    Budget(Instant),
}

impl Block {
    fn reason(self) -> DenialReason {
        match self {
            Self::Cooldown => DenialReason::Cooldown,
            Self::Capacity => DenialReason::NoCapacity,
            Self::Budget(_) => DenialReason::BudgetExhausted,
        }
    }

    pub(super) fn budget_fits_at(self) -> Option<Instant> {
        match self {
            Self::Budget(at) => Some(at),
            Self::Cooldown | Self::Capacity => None,
        }
    }
}

impl Resource {
    /// A resource under a provider cap of `cap`, with settings that were validated.
    pub(super) fn new(owner: ProviderModelId, domain: Domain, place: Place, config: AimdConfig, cap: u32) -> Self {
        let effective_max = config.max_limit.map_or(cap, |max| max.min(cap)).max(1);
        let algorithm = Aimd::validated(config.clone(), effective_max);
        // No ramp has begun yet, so any instant will do.
        let limit = algorithm.limit(Instant::ZERO);
        Self {
            owner,
            domain,
            place,
            in_flight: 0,
            waiters: 0,
            suspended: 0,
            wake_at: None,
            last_outcome: None,
            irregular: ReleaseDiagnostics::default(),
            cooldown: Cooldown::default(),
            budgets: Budgets::default(),
            budget_wait: None,
            told_limit: limit,
            steady_limit: limit,
            uses_time: algorithm.uses_time(),
            algorithm: Box::new(algorithm),
            config,
            effective_max,
            grants: 0,
            timed_from: 0,
        }
    }

    pub(super) fn set_budgets(&mut self, now: Instant, budgets: &[BudgetConfig]) {
        self.budgets = Budgets::new(now, budgets, self.grants);
        self.budget_wait = None;
    }

    pub(super) fn config(&self) -> &AimdConfig {
        &self.config
    }

    pub(super) fn effective_max(&self) -> u32 {
        self.effective_max
    }

    /// AIMD under these settings, as it begins.
    pub(super) fn fresh_aimd(&self) -> Box<dyn LimitAlgorithm> {
        Box::new(Aimd::validated(self.config.clone(), self.effective_max))
    }

    /// Starts the limit afresh.
    pub(super) fn configure(&mut self, now: Instant, config: AimdConfig, cap: u32) {
        self.effective_max = config.max_limit.map_or(cap, |max| max.min(cap)).max(1);
        self.config = config;
        self.algorithm = self.fresh_aimd();
        self.cooldown = Cooldown::default();
        self.refresh(now);
    }

    /// Takes other settings, and keeps the limit as far as they allow.
    pub(super) fn reconfigure(&mut self, now: Instant, config: AimdConfig, cap: u32, lifts: bool) {
        self.algorithm.reconfigure(now, &config);
        self.config = config;
        self.set_cap(now, cap, lifts);
    }

    /// Lets another algorithm decide from now on.
    pub(super) fn set_algorithm(&mut self, now: Instant, mut algorithm: Box<dyn LimitAlgorithm>) {
        algorithm.set_max(now, self.effective_max, false);
        self.algorithm = algorithm;
        self.refresh(now);
    }

    pub(super) fn set_cap(&mut self, now: Instant, cap: u32, lifts: bool) {
        self.effective_max = self.config.max_limit.map_or(cap, |max| max.min(cap)).max(1);
        self.algorithm.set_max(now, self.effective_max, lifts);
        self.refresh(now);
    }

    /// The limit in force at `now`.
    #[inline]
    pub(super) fn limit(&self, now: Instant) -> u32 {
        if self.uses_time { self.clamped_limit(now) } else { self.steady_limit }
    }

    fn clamped_limit(&self, now: Instant) -> u32 {
        self.algorithm.limit(now).clamp(1, self.effective_max)
    }

    /// Takes note of what the algorithm says now that it was told something.
    fn refresh(&mut self, now: Instant) {
        let uses_time = self.algorithm.uses_time();
        if uses_time && !self.uses_time {
            // When the calls that are out began is known only if somebody watches, and that must change nothing.
            self.timed_from = self.grants;
        }
        self.uses_time = uses_time;
        self.steady_limit = self.clamped_limit(now);
    }

    pub(super) fn limit_state(&self, now: Instant) -> LimitState {
        self.algorithm.state(now)
    }

    /// When capacity next changes by time alone, if that is known.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        self.cooldown
            .until(now)
            .or(self.budget_wait)
            .or_else(|| if self.uses_time { self.algorithm.next_change(now) } else { None })
    }

    #[inline]
    pub(super) fn on_attempt(&mut self, now: Instant) {
        self.algorithm.on_attempt(now, self.in_flight);
    }

    /// One more call is out.
    #[inline]
    pub(super) fn grant(&mut self, now: Instant, resource: ResourceId, estimate: Usage, is_watched: bool) -> Held {
        let since = Since::at(now, self.uses_time || is_watched);
        self.in_flight += 1;
        let in_flight = self.in_flight;
        let held = Held { resource, limit: self.limit(now), in_flight, grant: self.grants, since, estimate };
        self.budgets.reserve(now, estimate);
        self.algorithm.on_grant(now, self.grants, self.in_flight);
        self.grants += 1;
        held
    }

    /// A call has ended.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, held: &Held, done: &Completion) {
        self.in_flight -= 1;
        self.last_outcome = Some(done.outcome);
        if done.outcome == Outcome::RateLimited {
            self.refuse(now, held, done);
        } else {
            self.cooldown.on_outcome(now, done.outcome, self.in_flight);
        }
        self.budgets.settle(now, held.grant, held.estimate, done);
        if self.uses_time {
            self.end_timed(now, held, done.outcome);
        } else {
            let call = self.report(now, held, done.outcome, Duration::ZERO);
            self.algorithm.on_outcome(now, &call);
            self.steady_limit = self.clamped_limit(now);
        }
    }

    /// Tells an algorithm that uses the time how a call ended.
    fn end_timed(&mut self, now: Instant, held: &Held, outcome: Outcome) {
        let latency = self.latency(now, held);
        // How long a call took that began before the algorithm came is unknown; that it was refused is news all the same.
        if latency.is_some() || outcome != Outcome::Success {
            let call = self.report(now, held, outcome, latency.unwrap_or(Duration::ZERO));
            self.algorithm.on_outcome(now, &call);
        }
        self.refresh(now);
    }

    /// From grant to `now`, if the algorithm may know.
    fn latency(&self, now: Instant, held: &Held) -> Option<Duration> {
        held.since().filter(|_| held.grant >= self.timed_from).map(|since| now - since)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is made once for each call that ends, and copied otherwise")]
    fn report(&self, now: Instant, held: &Held, outcome: Outcome, latency: Duration) -> CallReport {
        CallReport {
            outcome,
            grant: held.grant,
            admitted_limit: held.limit,
            admitted_in_flight: held.in_flight,
            latency,
            in_flight: self.in_flight,
            is_cooling_down: self.cooldown.until(now).is_some(),
        }
    }

    /// Pauses after a refusal: as long as it asks, or the algorithm says, or the settings.
    #[cold]
    fn refuse(&mut self, now: Instant, held: &Held, done: &Completion) {
        let asked = done.asked();
        let latency = self.latency(now, held).unwrap_or(Duration::ZERO);
        let pause = asked.or_else(|| self.algorithm.pause(now, &self.report(now, held, done.outcome, latency)));
        self.cooldown.on_refused(now, &self.config, pause.unwrap_or(self.config.cooldown));
        if let Some(until) = self.cooldown.until(now) {
            self.algorithm.on_pause(now, until, asked);
        }
    }

    /// Whether a grant or an end of a call may depend on the time, which is not before `latest`.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        self.uses_time || self.cooldown.until(latest).is_some() || !self.budgets.is_empty()
    }

    /// Whether the algorithm lets one more call out at `now`.
    #[inline]
    pub(super) fn has_room(&self, now: Instant) -> bool {
        if self.uses_time { self.has_room_in_time(now) } else { self.in_flight < self.steady_limit }
    }

    fn has_room_in_time(&self, now: Instant) -> bool {
        self.in_flight < self.clamped_limit(now) && self.algorithm.opens_at(now).is_none_or(|at| at <= now)
    }

    /// Whether neither the limit nor the provider's cap lets one more call out at `now`.
    #[inline]
    pub(super) fn is_full(&self, now: Instant, owner: &ProviderModel) -> bool {
        owner.in_flight >= owner.cap || !self.has_room(now)
    }

    /// The refusal of a call that is blocked so.
    #[cold]
    pub(super) fn denial(&self, now: Instant, block: Block) -> Denial {
        let changes_at = match block {
            Block::Budget(at) => Some(at),
            Block::Cooldown | Block::Capacity => self.next_change(now),
        };
        Denial { reason: block.reason(), changes_at }
    }

    /// What keeps a call of this estimate from going out at `now`.
    #[inline]
    pub(super) fn block(&self, now: Instant, owner: &ProviderModel, estimate: Usage) -> Option<Block> {
        if self.cooldown.until(now).is_some() {
            return Some(Block::Cooldown);
        }
        if self.is_full(now, owner) {
            return Some(Block::Capacity);
        }
        self.budgets.fits_at(now, estimate).map(Block::Budget)
    }
}
