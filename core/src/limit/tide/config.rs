//! The settings of a tide.

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// Settings of [`Tide`](super::Tide). The defaults are meant to be left alone.
///
/// # Rates
///
/// Nothing has to be set for a provider that counts calls per minute. A bucket is empty whenever it refuses, and its
/// Retry-After says when it holds the next call. So the interval between calls is the time between two such instants, divided by
/// the calls that it let through between them. Whoever knows the rate beforehand is spared these two refusals with a
/// [budget](crate::budget).
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
    /// A try that failed and cost a pause is followed by no other for so many such pauses at most. 1 to 1000; 128.
    pub pauses_between_probes: u32,
    /// What a refusal leaves of the limit while nothing is let through between refusals. In `0.01..=0.99`; 0.7.
    pub decrease_factor: f64,
    /// The longest pause after a refusal that asks for none. 2 s.
    #[cfg_attr(feature = "serde", serde(rename = "longest_pause_ms", with = "crate::millis"))]
    pub longest_pause: Duration,
    /// Where nothing is refused: how many times longer calls may take than alone. 1.05 to 100; 1.3.
    pub latency_tolerance: f64,
}

impl Default for TideConfig {
    fn default() -> Self {
        Self {
            initial_limit: 10,
            probe_after: 16,
            probe_after_most: 240,
            pauses_between_probes: 128,
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
        let pauses = self.pauses_between_probes;
        require((1..=1_000).contains(&pauses), "pauses_between_probes", pauses, "a whole number from 1 to 1000")?;
        let factor = self.decrease_factor;
        require((0.01..=0.99).contains(&factor), "decrease_factor", factor, "a number from 0.01 to 0.99")?;
        require(!self.longest_pause.is_zero(), "longest_pause", self.longest_pause, "longer than zero")?;
        let tolerance = self.latency_tolerance;
        require((1.05..=100.0).contains(&tolerance), "latency_tolerance", tolerance, "a number from 1.05 to 100")
    }
}
