//! The settings of the AIMD limit and of cooldowns, checked at construction.

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// Which rate-limited answers cut the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CutRule {
    /// Those of leases granted after the last cut: once per cascade.
    #[default]
    GrantedAfterLastCut,
    /// Those of leases admitted under a limit no higher than the present one. Compatible with the recorded
    /// traces; cuts twice for a straggler after recovery.
    AdmittedLimit,
}

/// Which end of a cooldown holds when another one is announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CooldownRule {
    /// The later: an end once promised is kept.
    #[default]
    Longest,
    /// The one announced last. Compatible with the recorded traces.
    Latest,
}

/// Settings of the additive-increase, multiplicative-decrease limit of one resource.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AimdConfig {
    /// The limit to start at; `None` is the effective maximum. At least 1; more than the maximum is the
    /// maximum.
    pub initial_limit: Option<u32>,
    /// A maximum below the provider's cap; `None` for none. At least 1.
    pub max_limit: Option<u32>,
    /// What a cut multiplies the limit by, rounded down, at least 1. In `0.01..=0.99`; 0.75.
    pub decrease_factor: f64,
    /// What an increase adds. At least 1; 1.
    pub increase_step: u32,
    /// Successes outside a cooldown that earn an increase. At least 1; 25.
    pub successes_until_increase: u32,
    /// No increase while the limit was not reached since it last changed. Off.
    pub grow_on_evidence: bool,
    /// How long a rate limit without Retry-After blocks the resource, at most: AIMD blocks it as long, and
    /// tide finds out how much less will do. 2 s.
    #[cfg_attr(feature = "serde", serde(rename = "cooldown_ms", with = "crate::millis"))]
    pub cooldown: Duration,
    /// The longest a single answer may block the resource. At least `cooldown`; 10 min.
    #[cfg_attr(feature = "serde", serde(rename = "max_cooldown_ms", with = "crate::millis"))]
    pub max_cooldown: Duration,
    /// How long a new resource takes to climb from 1 to its initial limit, or under another algorithm to its
    /// maximum. Zero is off; 0.
    #[cfg_attr(feature = "serde", serde(rename = "ramp_ms", with = "crate::millis"))]
    pub ramp: Duration,
    /// Ramp again, from half the limit, when the resource was idle for longer than this. Off.
    #[cfg_attr(feature = "serde", serde(rename = "ramp_after_idle_ms", with = "crate::millis::option"))]
    pub ramp_after_idle: Option<Duration>,
    /// Which rate limits cut. [`CutRule::GrantedAfterLastCut`].
    pub cut_rule: CutRule,
    /// Which cooldown holds. [`CooldownRule::Longest`].
    pub cooldown_rule: CooldownRule,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self {
            initial_limit: None,
            max_limit: None,
            decrease_factor: 0.75,
            increase_step: 1,
            successes_until_increase: 25,
            grow_on_evidence: false,
            cooldown: Duration::from_secs(2),
            max_cooldown: Duration::from_secs(600),
            ramp: Duration::ZERO,
            ramp_after_idle: None,
            cut_rule: CutRule::default(),
            cooldown_rule: CooldownRule::default(),
        }
    }
}

impl AimdConfig {
    /// Refuses a value out of range, naming its field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, value) in [("initial_limit", self.initial_limit), ("max_limit", self.max_limit)] {
            require(value != Some(0), field, 0, "at least 1")?;
        }
        let factor = self.decrease_factor;
        require((0.01..=0.99).contains(&factor), "decrease_factor", factor, "a number from 0.01 to 0.99")?;
        require(self.increase_step > 0, "increase_step", 0, "at least 1")?;
        require(self.successes_until_increase > 0, "successes_until_increase", 0, "at least 1")?;
        require(!self.cooldown.is_zero(), "cooldown", self.cooldown, "longer than zero")?;
        require(self.max_cooldown >= self.cooldown, "max_cooldown", self.max_cooldown, "at least `cooldown`")
    }
}
