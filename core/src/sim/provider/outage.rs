//! Outages: a provider fails calls with 5xx, then leaves them without an answer, then recovers.

use serde::{Deserialize, Serialize};

use super::level::Level;
use crate::error::{ConfigError, inside_item, require};
use crate::millis::Millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The highest number of outages of one provider.
const MAX_OUTAGES: usize = 10_000;

/// An outage in three phases: server errors, then no answers, then a recovery in which the capacity grows
/// linearly from 1. Calls accepted before the outage end normally.
///
/// In a file: `{ starts_at_ms = 30000, errors_ms = 5000, timeouts_ms = 5000, recovery_ms = 10000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// When the outage starts, counted from [`Instant::ZERO`], up to 365 days.
    #[serde(rename = "starts_at_ms", with = "Millis")]
    pub starts_at: Duration,
    /// How long every call fails with `status`, up to 365 days. Default 0. `errors` and `timeouts` must not
    /// both be 0.
    #[serde(rename = "errors_ms", default, with = "Millis")]
    pub errors: Duration,
    /// The HTTP status of these failures, 500 to 599. Default 503.
    #[serde(default = "service_unavailable")]
    pub status: u16,
    /// The latency of such an error response, up to 365 days. Default 20 ms.
    #[serde(rename = "error_latency_ms", default = "default_latency", with = "Millis")]
    pub error_latency: Duration,
    /// How long calls are not answered after the errors, up to 365 days. Default 0.
    #[serde(rename = "timeouts_ms", default, with = "Millis")]
    pub timeouts: Duration,
    /// How long after its arrival the provider closes the connection of an unanswered call, up to 365 days.
    /// Default 60 s.
    #[serde(rename = "hang_ms", default = "one_minute", with = "Millis")]
    pub hang: Duration,
    /// How long the capacity then takes to grow from 1 to the scheduled one, up to 365 days. Default 0, which
    /// is at once.
    #[serde(rename = "recovery_ms", default, with = "Millis")]
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

/// The effect of outages on a provider at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutageEffect {
    /// No outage is in progress.
    Up,
    /// Calls fail.
    Errors { status: u16, latency: Duration },
    /// Calls are not answered.
    Timeouts { hang: Duration },
    /// Calls are served, and the capacity grows back.
    Recovering { since: Instant, over: Duration },
}

impl Outage {
    /// Creates an outage that consists only of errors with the default status.
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

    /// Returns the ends of the errors, the timeouts and the recovery.
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

/// Returns an error for the first outage that is out of range, out of order or overlaps the one before it.
pub(super) fn validate_all(outages: &[Outage]) -> Result<(), ConfigError> {
    require(outages.len() <= MAX_OUTAGES, "outages", outages.len(), "at most 10000 outages")?;
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

/// Returns the effect of the outages at `now`, and when it changes next, if it does. `outages` are in order
/// of time. O(log outages).
pub(super) fn effect_at(outages: &[Outage], now: Instant) -> (OutageEffect, Option<Instant>) {
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
    /// Returns what this effect leaves of the capacity `level` at `now`.
    pub(super) fn applied_to(self, level: Level, now: Instant) -> Level {
        match self {
            Self::Up => level,
            Self::Errors { .. } | Self::Timeouts { .. } => Level::forever(0),
            Self::Recovering { since, over } => {
                let recovered = Level::ramp(level.slots.min(1), level.slots, since, over, now);
                recovered.at_most_until(level.until)
            }
        }
    }
}
