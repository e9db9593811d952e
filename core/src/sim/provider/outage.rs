//! Outages: a provider answers 5xx, then nothing at all, then recovers.

use serde::{Deserialize, Serialize};

use super::level::Level;
use super::spec::inside_item;
use crate::error::{ConfigError, require};
use crate::millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The most outages one provider may have.
const MOST_OUTAGES: usize = 10_000;

/// One outage: `errors` of server errors, then `timeouts` of silence, then `recovery` in which the capacity
/// comes back linearly from 1. Calls that were accepted before it end as promised.
///
/// In a file: `{ starts_at_ms = 30000, errors_ms = 5000, timeouts_ms = 5000, recovery_ms = 10000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// When it starts, counted from [`Instant::ZERO`].
    #[serde(rename = "starts_at_ms", with = "millis")]
    pub starts_at: Duration,
    /// How long every call fails with `status`. May be 0, but not together with `timeouts`.
    #[serde(rename = "errors_ms", default, with = "millis")]
    pub errors: Duration,
    /// The HTTP status of those failures, 500 to 599 \[503\].
    #[serde(default = "service_unavailable")]
    pub status: u16,
    /// How long such a failure takes to be answered \[20 ms\].
    #[serde(rename = "error_latency_ms", default = "default_latency", with = "millis")]
    pub error_latency: Duration,
    /// How long, after the errors, calls are not answered at all.
    #[serde(rename = "timeouts_ms", default, with = "millis")]
    pub timeouts: Duration,
    /// When the provider hangs up on a call it never answered, after its arrival \[60 s\].
    #[serde(rename = "hang_ms", default = "one_minute", with = "millis")]
    pub hang: Duration,
    /// How long the capacity then takes to grow back from 1 to what the schedule says \[0: at once\].
    #[serde(rename = "recovery_ms", default, with = "millis")]
    pub recovery: Duration,
}

fn service_unavailable() -> u16 {
    503
}

pub(super) fn default_latency() -> Duration {
    Duration::from_millis(20)
}

pub(super) fn one_minute() -> Duration {
    Duration::from_secs(60)
}

/// What an outage makes of the provider at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutageEffect {
    /// No outage is on.
    Up,
    /// Calls fail.
    Errors { status: u16, latency: Duration },
    /// Calls are not answered.
    Timeouts { hang: Duration },
    /// Calls are served; the capacity is on its way back.
    Recovering { since: Instant, over: Duration },
}

impl Outage {
    /// An outage that only fails calls, with the default status: the common case in a test.
    #[must_use]
    pub fn of_errors(starts_at: Duration, errors: Duration) -> Self {
        Self {
            starts_at,
            errors,
            status: service_unavailable(),
            error_latency: default_latency(),
            timeouts: Duration::ZERO,
            hang: one_minute(),
            recovery: Duration::ZERO,
        }
    }

    fn start(&self) -> Instant {
        Instant::ZERO + self.starts_at
    }

    /// The ends of the errors, of the timeouts and of the recovery.
    fn ends(&self) -> [Instant; 3] {
        let errors = self.start() + self.errors;
        let timeouts = errors + self.timeouts;
        [errors, timeouts, timeouts + self.recovery]
    }

    fn validate(&self) -> Result<(), ConfigError> {
        for (field, span) in [
            ("starts_at_ms", self.starts_at),
            ("errors_ms", self.errors),
            ("error_latency_ms", self.error_latency),
            ("timeouts_ms", self.timeouts),
            ("hang_ms", self.hang),
            ("recovery_ms", self.recovery),
        ] {
            require_span(field, span)?;
        }
        let lasts = !(self.errors.is_zero() && self.timeouts.is_zero());
        require(lasts, "errors_ms", 0, "a duration above 0, or timeouts_ms above 0")?;
        require((500..=599).contains(&self.status), "status", self.status, "a whole number from 500 to 599")
    }
}

/// Refuses outages that are out of range, out of order or overlapping.
pub(super) fn validate_all(outages: &[Outage]) -> Result<(), ConfigError> {
    require(outages.len() <= MOST_OUTAGES, "outages", outages.len(), "at most 10000 outages")?;
    let mut free_from = Instant::ZERO;
    for (nth, outage) in outages.iter().enumerate() {
        let here = inside_item("outages", nth);
        outage.validate().map_err(here)?;
        let expected = "a time not before the end of the outage before it, recovery included";
        require(outage.start() >= free_from, "starts_at_ms", in_millis(outage.starts_at), expected).map_err(here)?;
        free_from = outage.ends()[2];
    }
    Ok(())
}

/// The phase at `now`, and until when it lasts. `outages` are in order. O(log outages).
pub(super) fn phase(outages: &[Outage], now: Instant) -> (OutageEffect, Option<Instant>) {
    let started = outages.partition_point(|outage| outage.start() <= now);
    let next_start = outages.get(started).map(Outage::start);
    let Some(outage) = started.checked_sub(1).and_then(|last| outages.get(last)) else {
        return (OutageEffect::Up, next_start);
    };
    let [errors_end, timeouts_end, recovery_end] = outage.ends();
    if now < errors_end {
        (OutageEffect::Errors { status: outage.status, latency: outage.error_latency }, Some(errors_end))
    } else if now < timeouts_end {
        (OutageEffect::Timeouts { hang: outage.hang }, Some(timeouts_end))
    } else if now < recovery_end {
        (OutageEffect::Recovering { since: timeouts_end, over: outage.recovery }, Some(recovery_end))
    } else {
        (OutageEffect::Up, next_start)
    }
}

impl OutageEffect {
    /// What is left of `level` in this phase.
    pub(super) fn limits(self, level: Level, now: Instant) -> Level {
        match self {
            Self::Up => level,
            Self::Errors { .. } | Self::Timeouts { .. } => Level::forever(0),
            Self::Recovering { since, over } => {
                let back = Level::ramp(level.slots.min(1), level.slots, since, over, now);
                back.at_most_until(level.until)
            }
        }
    }
}
