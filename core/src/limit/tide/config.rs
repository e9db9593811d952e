//! The settings of a tide.

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// Settings of [`Tide`](super::Tide). The defaults are meant to be left alone.
///
/// # Rates
///
/// Nothing has to be set for a provider that counts calls per minute. A bucket is empty whenever it refuses.
/// So the interval between calls is the time between two refusals, or between the ends of their Retry-After,
/// divided by the calls that were let through between them. Whoever knows the rate beforehand is spared these
/// refusals with a [budget](crate::budget).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TideConfig {
    /// The limit to start climbing from. At least 1; 10.
    pub initial_limit: u32,
    /// Successes at a limit after which one more is tried, if the last try found more room. At least 1; 16.
    pub probe_after: u32,
    /// The same after many tries in vain: each doubles the wait, up to this. At least `probe_after`; 240.
    pub probe_after_most: u32,
    /// What a Retry-After stops. [`RetryAfterStops::Learned`].
    pub retry_after: RetryAfterStops,
    /// What a refusal leaves of the limit while nothing is let through between refusals. In `0.01..=0.99`;
    /// 0.7.
    pub decrease_factor: f64,
    /// The longest pause after a refusal that asks for none. 2 s.
    #[cfg_attr(feature = "serde", serde(rename = "longest_pause_ms", with = "crate::millis"))]
    pub longest_pause: Duration,
    /// Where nothing is refused: how many times longer calls may take than alone. 1.05 to 100; 1.3.
    pub latency_tolerance: f64,
}

/// What a Retry-After stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RetryAfterStops {
    /// Whatever the provider's refusals show: calls that go out before it is over are refused, or are not.
    #[default]
    Learned,
    /// The resource: nothing goes out before it is over.
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
    /// Refuses a value out of range, naming its field.
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
