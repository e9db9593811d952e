//! The AIMD limit: additive increase, multiplicative decrease, with a start-up ramp.
//!
//! ```text
//!             success x 25                     rate limited
//!   limit ---------------------> limit + 1     limit ---------------------> max(1, floor(limit x 0.75))
//!           (outside a cooldown)                        once per cascade
//! ```
//!
//! The algorithm is that of Chiu and Jain (1989). The numbers are the defaults of [`LimitConfig`].
//!
//! A *cascade* is the group of calls that were in flight when the provider began to answer 429. A cascade
//! cuts the limit once: only a call granted after the last cut can cut it again.

use super::config::{CutRule, LimitConfig};
use super::ramp::Ramp;
use super::{CallReport, Cascade, LimitAlgorithm, LimitState, scaled_down};
use crate::call::Outcome;
use crate::error::ConfigError;
use crate::time::Instant;

/// The default limit algorithm. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Aimd {
    config: LimitConfig,
    max: u32,
    /// The limit while no ramp runs.
    limit: u32,
    ramp: Option<Ramp>,
    cascade: Cascade,
    last_active: Instant,
    was_used: bool,
    /// Whether the calls in flight reached the limit since it last changed.
    was_reached: bool,
    rate_limit_ceiling: u32,
    success_streak: u32,
}

impl Aimd {
    /// Creates a limit of at most `max`, where 0 counts as 1. Returns an error if a setting is out of range.
    pub fn new(config: LimitConfig, max: u32) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::validated(config, max.max(1)))
    }

    pub(crate) fn validated(config: LimitConfig, max: u32) -> Self {
        let target = config.initial_limit.unwrap_or(max).clamp(1, max);
        let ramp = (!config.ramp.is_zero() && target > 1).then_some(Ramp {
            from: 1,
            target,
            span: config.ramp,
            started: None,
        });
        Self {
            config,
            max,
            limit: target,
            ramp,
            cascade: Cascade::default(),
            last_active: Instant::ZERO,
            was_used: false,
            was_reached: false,
            rate_limit_ceiling: 0,
            success_streak: 0,
        }
    }

    fn on_rate_limited(&mut self, now: Instant, call: &CallReport) {
        let limit = self.limit(now);
        self.ramp = None;
        self.limit = limit;
        self.success_streak = 0;
        let cuts = match self.config.cut_rule {
            CutRule::GrantedAfterLastCut => self.cascade.was_granted_after_cut(call),
            CutRule::AdmittedLimit => limit >= call.admitted_limit,
        };
        if cuts {
            self.cascade.cut();
            self.limit = scaled_down(limit, self.config.decrease_factor);
            self.was_reached = false;
            if self.rate_limit_ceiling == 0 {
                self.rate_limit_ceiling = call.admitted_limit;
            }
        }
    }

    fn on_success(&mut self) {
        if self.ramp.is_some() {
            return;
        }
        self.success_streak += 1;
        if self.success_streak < self.config.successes_until_increase {
            return;
        }
        self.success_streak = 0;
        if self.was_reached || !self.config.grow_on_evidence {
            self.limit = self.limit.saturating_add(self.config.increase_step).min(self.max);
            self.was_reached = false;
        }
    }

    /// Removes a ramp that has reached its target.
    fn end_finished_ramp(&mut self, now: Instant) {
        if self.ramp.is_some_and(|ramp| ramp.limit(now).is_none()) {
            self.ramp = None;
        }
    }
}

impl LimitAlgorithm for Aimd {
    fn limit(&self, now: Instant) -> u32 {
        self.ramp.and_then(|ramp| ramp.limit(now)).unwrap_or(self.limit)
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.ramp.and_then(|ramp| ramp.next_step(now))
    }

    /// Starts the ramp at the first attempt, or another ramp after a long idle time.
    fn on_attempt(&mut self, now: Instant, in_flight: u32) {
        if let Some(ramp) = &mut self.ramp {
            ramp.started.get_or_insert(now);
        }
        self.end_finished_ramp(now);
        let Some(idle) = self.config.ramp_after_idle else { return };
        // An idle time before the first call does not count: the first ramp covers it.
        let was_idle = in_flight == 0 && self.was_used && now - self.last_active > idle;
        if was_idle && self.ramp.is_none() && self.limit > 1 && !self.config.ramp.is_zero() {
            let from = (self.limit / 2).max(1);
            self.ramp = Some(Ramp { from, target: self.limit, span: self.config.ramp, started: Some(now) });
        }
        self.last_active = now;
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.cascade.on_grant(grant);
        self.last_active = now;
        self.was_reached |= in_flight >= self.limit;
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.end_finished_ramp(now);
        self.last_active = now;
        self.was_used = true;
        match call.outcome {
            Outcome::RateLimited => self.on_rate_limited(now, call),
            Outcome::Success if !call.is_cooling_down => self.on_success(),
            _ => {}
        }
    }

    fn set_max(&mut self, now: Instant, max: u32, lifts: bool) {
        self.end_finished_ramp(now);
        let was_at_max = self.limit == self.max;
        self.max = max;
        if lifts && self.cascade.cuts == 0 && was_at_max {
            self.limit = max;
        }
        self.limit = self.limit.min(max);
        if let Some(ramp) = &mut self.ramp {
            ramp.target = self.limit.max(ramp.from);
        }
    }

    /// Replaces the settings. If `ramp` changed, a new ramp starts, from 1 to the present limit.
    fn reconfigure(&mut self, now: Instant, config: &LimitConfig) {
        self.end_finished_ramp(now);
        if config.ramp != self.config.ramp {
            let (target, span) = (self.limit, config.ramp);
            let runs = !span.is_zero() && target > 1;
            self.ramp = runs.then_some(Ramp { from: 1, target, span, started: None });
        }
        self.config = config.clone();
    }

    /// Returns whether a ramp is running or may start again: only ramps depend on time.
    fn uses_time(&self) -> bool {
        self.ramp.is_some() || self.config.ramp_after_idle.is_some()
    }

    fn state(&self, now: Instant) -> LimitState {
        LimitState {
            ramp: self.ramp.and_then(|ramp| ramp.state(now)),
            rate_limit_ceiling: self.rate_limit_ceiling,
            success_streak: self.success_streak,
        }
    }
}
