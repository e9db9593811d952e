//! The cooldown of a resource after rate limits.

use super::{CooldownRule, LimitConfig};
use crate::call::Outcome;
use crate::time::{Duration, Instant};

/// The end of the cooldown, and the number of rate limits in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cooldown {
    until: Option<Instant>,
    pub(super) consecutive_rate_limits: u32,
}

impl Cooldown {
    /// Returns the end of the cooldown in force at `now`.
    #[inline]
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|end| now < *end)
    }

    /// Records a rate limit and starts a cooldown of `length`, at most `max_cooldown`. A `length` of zero
    /// starts none.
    pub(super) fn on_rate_limited(&mut self, now: Instant, config: &LimitConfig, length: Duration) {
        self.consecutive_rate_limits = self.consecutive_rate_limits.saturating_add(1);
        if length.is_zero() {
            return;
        }
        let end = now + length.min(config.max_cooldown);
        self.until = Some(match (config.cooldown_rule, self.until) {
            (CooldownRule::Longest, Some(current)) => current.max(end),
            _ => end,
        });
    }

    /// Records any other end of a call. `in_flight` is the number of calls still in flight.
    pub(super) fn on_outcome(&mut self, now: Instant, outcome: Outcome, in_flight: u32) {
        match outcome {
            Outcome::Success if self.until(now).is_none() => self.consecutive_rate_limits = 0,
            // A local cancellation or timeout gives no information about the provider.
            Outcome::LocalCancelled | Outcome::LocalTimeout => {}
            _ if in_flight == 0 => self.consecutive_rate_limits = 0,
            _ => {}
        }
    }
}
