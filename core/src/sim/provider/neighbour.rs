//! The noisy neighbour: another client that uses a varying share of the provider's capacity.

use serde::{Deserialize, Serialize};

use super::level::Level;
use crate::error::{ConfigError, require};
use crate::millis::Millis;
use crate::sim::latency::{in_millis, require_span};
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

/// Another client that takes a share of the capacity, drawn again for every period.
///
/// The share of a period is a function of the seed and the period's number alone. It does not depend on the
/// calls that arrive.
///
/// In a file: `{ low_share = 0.1, high_share = 0.6, period_ms = 2000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// The lowest share, from 0 to `high_share`.
    pub low_share: f64,
    /// The highest share, at most 1.
    pub high_share: f64,
    /// The length of a period, above 0 and up to 365 days. Periods start at [`Instant::ZERO`].
    #[serde(rename = "period_ms", with = "Millis")]
    pub period: Duration,
}

impl Neighbour {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let is_share = (0.0..=1.0).contains(&self.high_share);
        require(is_share, "high_share", self.high_share, "a number from 0 to 1")?;
        let is_ordered = (0.0..=self.high_share).contains(&self.low_share);
        require(is_ordered, "low_share", self.low_share, "a number from 0 to high_share")?;
        require(!self.period.is_zero(), "period_ms", in_millis(self.period), "a duration above 0")?;
        require_span("period_ms", self.period)
    }

    /// Returns what the neighbour leaves of `level` at `now`. `stream` is the neighbour's own random stream.
    /// It is only forked, so the result depends on the seed and the period alone.
    pub(super) fn remainder_of(&self, level: Level, now: Instant, stream: &Rng) -> Level {
        let period_ns = self.period.as_nanos().max(1);
        let period = now.as_nanos() / period_ns;
        let share = self.low_share + (self.high_share - self.low_share) * stream.fork(period).unit_f64();
        let taken = libm::round(f64::from(level.slots) * share) as u32;
        let slots = level.slots.saturating_sub(taken);
        let period_end = Instant::from_nanos(period * period_ns) + self.period;
        Level { slots, ..level }.at_most_until(Some(period_end).filter(|&end| end > now))
    }
}
