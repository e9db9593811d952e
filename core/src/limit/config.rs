//! The settings of the limit of a resource: its maximum, its ramp, its cooldowns, and the steps of AIMD.

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// Which rate-limited calls cut the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CutRule {
    /// Calls that were granted after the last cut: one cut per cascade.
    #[default]
    GrantedAfterLastCut,
    /// Calls that were granted under a limit no higher than the present one. This rule is that of the earlier
    /// scheduler whose recorded traces the tests replay. It cuts a second time if a slow call of an old
    /// cascade ends after the limit has recovered.
    AdmittedLimit,
}

/// Which end applies if a cooldown starts while another one runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CooldownRule {
    /// The later end: a new cooldown never shortens the running one.
    #[default]
    Longest,
    /// The end of the new cooldown. This rule is that of the earlier scheduler whose recorded traces the
    /// tests replay.
    Latest,
}

/// The settings of the limit of one resource.
///
/// `max_limit`, the ramp and the cooldowns apply to every algorithm. The rest applies to the default
/// algorithm, AIMD (additive increase, multiplicative decrease). Other algorithms have settings of their own,
/// such as [`TideConfig`](super::TideConfig).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LimitConfig {
    /// The limit to start at, at least 1. Values above the effective maximum count as the maximum. `None`
    /// (the default) starts at the maximum.
    pub initial_limit: Option<u32>,
    /// A maximum in addition to the provider's cap, at least 1. The lower of both applies. `None` (the
    /// default) leaves only the cap.
    pub max_limit: Option<u32>,
    /// The factor of a cut, in `0.01..=0.99`. The new limit is rounded down, and at least 1. Default 0.75.
    pub decrease_factor: f64,
    /// How much an increase adds to the limit, at least 1. Default 1.
    pub increase_step: u32,
    /// The number of successes outside a cooldown that trigger an increase, at least 1. Default 25.
    pub successes_until_increase: u32,
    /// Whether the limit grows only if the calls in flight reached it since its last change. Default off.
    pub grow_on_evidence: bool,
    /// The longest cooldown after a rate-limited call without Retry-After. The cooldown of AIMD always has
    /// this length. Tide measures whether a shorter one is enough. Above zero. Default 2 s.
    #[cfg_attr(feature = "serde", serde(rename = "cooldown_ms", with = "crate::millis::Millis"))]
    pub cooldown: Duration,
    /// The longest cooldown that a single response may cause, at least `cooldown`. Default 10 min.
    #[cfg_attr(feature = "serde", serde(rename = "max_cooldown_ms", with = "crate::millis::Millis"))]
    pub max_cooldown: Duration,
    /// How long the limit of a new resource takes to climb from 1 to its initial limit, or, under an
    /// algorithm other than AIMD, to its maximum. Default zero, which means no ramp.
    #[cfg_attr(feature = "serde", serde(rename = "ramp_ms", with = "crate::millis::Millis"))]
    pub ramp: Duration,
    /// The idle time after which the resource ramps again, from half its limit. `None` (the default) never
    /// ramps again. It has no effect without a `ramp`.
    #[cfg_attr(feature = "serde", serde(rename = "ramp_after_idle_ms", with = "crate::millis::OptionalMillis"))]
    pub ramp_after_idle: Option<Duration>,
    /// Which rate-limited calls cut the limit. Default [`CutRule::GrantedAfterLastCut`].
    pub cut_rule: CutRule,
    /// Which end applies if cooldowns overlap. Default [`CooldownRule::Longest`].
    pub cooldown_rule: CooldownRule,
}

impl Default for LimitConfig {
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

impl LimitConfig {
    /// Returns an error that names the first field whose value is out of range.
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
