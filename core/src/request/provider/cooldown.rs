//! The pause a provider asked for.

use crate::call::Outcome;
use crate::limit::{AimdConfig, CooldownRule};
use crate::time::{Duration, Instant};

/// When a resource may be called again, and how often it has refused since the last good news.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cooldown {
    until: Option<Instant>,
    pub(super) consecutive_rate_limits: u32,
}

impl Cooldown {
    /// The end of the cooldown in force at `now`.
    #[inline]
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|end| now < *end)
    }

    /// A call was refused; the resource is to pause for so long, which may be zero.
    pub(super) fn on_refused(&mut self, now: Instant, config: &AimdConfig, pause: Duration) {
        self.consecutive_rate_limits = self.consecutive_rate_limits.saturating_add(1);
        if pause.is_zero() {
            return;
        }
        let end = now + pause.min(config.max_cooldown);
        self.until = Some(match (config.cooldown_rule, self.until) {
            (CooldownRule::Longest, Some(promised)) => promised.max(end),
            _ => end,
        });
    }

    /// A call ended otherwise. `in_flight` counts those that are still out.
    pub(super) fn on_outcome(&mut self, now: Instant, outcome: Outcome, in_flight: u32) {
        match outcome {
            Outcome::Success if self.until(now).is_none() => self.consecutive_rate_limits = 0,
            // What the caller did to itself says nothing about the provider.
            Outcome::LocalCancelled | Outcome::LocalTimeout => {}
            _ if in_flight == 0 => self.consecutive_rate_limits = 0,
            _ => {}
        }
    }
}
