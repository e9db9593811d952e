//! The settings of [`Tide`](super::Tide).

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// Settings of [`Tide`](super::Tide). The defaults suit nearly every provider.
///
/// # Rates
///
/// A provider that counts calls per minute needs no setting. Its bucket is empty whenever it refuses. So the
/// interval between calls is the time between two refusals, or between the ends of their Retry-After, divided
/// by the calls accepted between them. A [budget](crate::budget) avoids these refusals if the rate is known
/// beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TideConfig {
    /// The limit at the start. At least 1; default 10.
    pub initial_limit: u32,
    /// Successes at a limit before the first probe of one call more. At least 1; default 16.
    pub probe_after: u32,
    /// The most successes between probes. Each failed probe doubles the wait up to this. At least
    /// `probe_after`; default 240.
    pub probe_after_most: u32,
    /// What a Retry-After stops. Default [`RetryAfterStops::Learned`].
    pub retry_after: RetryAfterStops,
    /// The least part of the limit that a cut leaves, while no call is accepted between refusals. From 0.01
    /// to 0.99; default 0.7.
    pub decrease_factor: f64,
    /// The longest cooldown after a refusal without a Retry-After, or with one that stops the refused call
    /// only. Without a Retry-After, the `cooldown` of the resource applies if it is shorter. Longer than
    /// zero; default 2 s.
    #[cfg_attr(feature = "serde", serde(rename = "longest_pause_ms", with = "crate::millis::Millis"))]
    pub longest_pause: Duration,
    /// The mean latency that is tolerated where nothing is refused, as a multiple of the latency without a
    /// queue. From 1.05 to 100; default 1.3.
    pub latency_tolerance: f64,
}

/// What a Retry-After stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RetryAfterStops {
    /// Whatever the provider's refusals show, see [`Tide`](super::Tide).
    #[default]
    Learned,
    /// The resource: no call is sent before it ends.
    Resource,
    /// The refused call only.
    Call,
}

impl Default for TideConfig {
    fn default() -> Self {
        Self {
            initial_limit: 10,
            probe_after: 16,
            probe_after_most: 240,
            retry_after: RetryAfterStops::Learned,
            decrease_factor: 0.7,
            longest_pause: Duration::from_secs(2),
            latency_tolerance: 1.3,
        }
    }
}

impl TideConfig {
    /// Returns an error that names the first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.initial_limit > 0, "initial_limit", 0, "at least 1")?;
        require(self.probe_after > 0, "probe_after", 0, "at least 1")?;
        let most = self.probe_after_most;
        require(most >= self.probe_after, "probe_after_most", most, "at least `probe_after`")?;
        let factor = self.decrease_factor;
        require((0.01..=0.99).contains(&factor), "decrease_factor", factor, "a number from 0.01 to 0.99")?;
        require(!self.longest_pause.is_zero(), "longest_pause", self.longest_pause, "longer than zero")?;
        let tolerance = self.latency_tolerance;
        require((1.05..=100.0).contains(&tolerance), "latency_tolerance", tolerance, "a number from 1.05 to 100")
    }
}
