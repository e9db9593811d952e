//! The adaptive limit of one resource: additive increase, multiplicative decrease, cooldown, ramp.
//!
//! ```text
//!             success x 25                     rate limited
//!   limit ---------------------> limit + 1     limit ---------------------> max(1, floor(limit x 0.75))
//!           (outside a cooldown)                        once per cascade, and blocked for the cooldown
//! ```
//!
//! AIMD after Chiu and Jain (1989). A *cascade* is the burst of calls that was out when the provider began to refuse:
//! each cut starts a new *epoch*, and only a lease granted in the present epoch can cut again.

use crate::time::Instant;

use super::config::{AimdConfig, CooldownRule, CutRule};
use super::outcome::{Completion, Outcome};
use super::ramp::Ramp;

/// What a lease remembers of the limit it was admitted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) limit: u32,
    pub(super) epoch: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Aimd {
    config: AimdConfig,
    effective_max: u32,
    /// The limit while no ramp runs.
    limit: u32,
    ramp: Option<Ramp>,
    /// Cuts so far.
    epoch: u64,
    blocked_until: Option<Instant>,
    last_active: Instant,
    pub(super) rate_limit_ceiling: u32,
    pub(super) consecutive_rate_limits: u32,
    pub(super) success_streak: u32,
    pub(super) last_outcome: Option<Outcome>,
}

impl Aimd {
    /// A limit under a provider cap of `cap`, with settings that were validated.
    pub(super) fn new(config: AimdConfig, cap: u32) -> Self {
        let effective_max = config.max_limit.map_or(cap, |max| max.min(cap)).max(1);
        let target = config.initial_limit.unwrap_or(effective_max).clamp(1, effective_max);
        let ramp = (!config.ramp.is_zero() && target > 1).then_some(Ramp {
            from: 1,
            target,
            span: config.ramp,
            started: None,
        });
        Self {
            config,
            effective_max,
            limit: target,
            ramp,
            epoch: 0,
            blocked_until: None,
            last_active: Instant::ZERO,
            rate_limit_ceiling: 0,
            consecutive_rate_limits: 0,
            success_streak: 0,
            last_outcome: None,
        }
    }

    pub(super) fn config(&self) -> &AimdConfig {
        &self.config
    }

    pub(super) fn effective_max(&self) -> u32 {
        self.effective_max
    }

    /// The limit in force at `now`. Reading it changes nothing.
    pub(super) fn current(&self, now: Instant) -> u32 {
        self.ramp.and_then(|ramp| ramp.limit(now)).unwrap_or(self.limit)
    }

    pub(super) fn is_ramping(&self, now: Instant) -> bool {
        self.ramp.is_some_and(|ramp| ramp.limit(now).is_some())
    }

    /// The end of the cooldown in force at `now`.
    pub(super) fn blocked_until(&self, now: Instant) -> Option<Instant> {
        self.blocked_until.filter(|end| now < *end)
    }

    /// When this limit next changes by time alone.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        self.blocked_until(now).or_else(|| self.ramp.and_then(|ramp| ramp.next_step(now)))
    }

    pub(super) fn admit(&mut self, now: Instant) -> Admitted {
        self.last_active = now;
        Admitted { limit: self.current(now), epoch: self.epoch }
    }

    /// A caller wants in: starts a ramp that waits for it, or a new one after a long idle time.
    pub(super) fn on_attempt(&mut self, now: Instant, in_flight: u32) {
        if let Some(ramp) = &mut self.ramp {
            ramp.started.get_or_insert(now);
        }
        self.settle(now);
        let Some(idle) = self.config.ramp_after_idle else { return };
        // A resource that was never used is ramped by its first ramp.
        let was_idle = in_flight == 0 && self.last_outcome.is_some() && now - self.last_active > idle;
        if was_idle && self.ramp.is_none() && self.limit > 1 && !self.config.ramp.is_zero() {
            let from = (self.limit / 2).max(1);
            self.ramp = Some(Ramp { from, target: self.limit, span: self.config.ramp, started: Some(now) });
        }
        self.last_active = now;
    }

    /// Takes note of how a call ended. `in_flight` counts the calls that are still out.
    pub(super) fn on_outcome(&mut self, now: Instant, admitted: Admitted, done: &Completion, in_flight: u32) {
        self.settle(now);
        self.last_active = now;
        self.last_outcome = Some(done.outcome);
        match done.outcome {
            Outcome::RateLimited => self.on_rate_limited(now, admitted, done),
            Outcome::Success => self.on_success(now),
            _ => {}
        }
        let says_nothing =
            matches!(done.outcome, Outcome::RateLimited | Outcome::LocalCancelled | Outcome::LocalTimeout);
        if in_flight == 0 && !says_nothing {
            self.consecutive_rate_limits = 0;
        }
    }

    fn on_rate_limited(&mut self, now: Instant, admitted: Admitted, done: &Completion) {
        let limit = self.current(now);
        self.ramp = None;
        self.limit = limit;
        self.success_streak = 0;
        self.consecutive_rate_limits = self.consecutive_rate_limits.saturating_add(1);
        let asked = done.retry_after.filter(|wait| !wait.is_zero()).unwrap_or(self.config.cooldown);
        let end = now + asked.min(self.config.max_cooldown);
        self.blocked_until = Some(match (self.config.cooldown_rule, self.blocked_until) {
            (CooldownRule::Longest, Some(promised)) => promised.max(end),
            _ => end,
        });
        let cuts = match self.config.cut_rule {
            CutRule::GrantedAfterLastCut => admitted.epoch == self.epoch,
            CutRule::AdmittedLimit => limit >= admitted.limit,
        };
        if cuts {
            self.epoch += 1;
            // A limit is at most 2^32, so the product is exact enough to floor and the cast in range.
            self.limit = ((f64::from(limit) * self.config.decrease_factor) as u32).max(1);
            if self.rate_limit_ceiling == 0 {
                self.rate_limit_ceiling = admitted.limit;
            }
        }
    }

    fn on_success(&mut self, now: Instant) {
        if self.blocked_until(now).is_some() {
            return;
        }
        self.consecutive_rate_limits = 0;
        if self.ramp.is_some() {
            return;
        }
        self.success_streak += 1;
        if self.success_streak >= self.config.successes_until_increase {
            self.success_streak = 0;
            self.limit = self.limit.saturating_add(self.config.increase_step).min(self.effective_max);
        }
    }

    /// The provider's cap changed. `lifts` lets a limit that stood at its old maximum and was never cut follow it up.
    pub(super) fn set_cap(&mut self, now: Instant, cap: u32, lifts: bool) {
        self.settle(now);
        let old_max = self.effective_max;
        self.effective_max = self.config.max_limit.map_or(cap, |max| max.min(cap)).max(1);
        if lifts && self.epoch == 0 && self.limit == old_max {
            self.limit = self.effective_max;
        }
        self.limit = self.limit.min(self.effective_max);
        if let Some(ramp) = &mut self.ramp {
            ramp.target = self.limit.max(ramp.from);
        }
    }

    /// Forgets a ramp that has reached its target.
    fn settle(&mut self, now: Instant) {
        if self.ramp.is_some_and(|ramp| ramp.limit(now).is_none()) {
            self.ramp = None;
        }
    }
}
