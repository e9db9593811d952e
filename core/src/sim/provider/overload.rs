//! The response of a provider to calls beyond its capacity.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, require};
use crate::millis::OptionalMillis;
use crate::sim::latency::require_span;
use crate::time::Duration;

/// The response to a call beyond the capacity.
///
/// In a file: `{ response = "refuse", retry_after_ms = 500 }` or `{ response = "slow_down", slope = 1.5 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Overload {
    /// The call is refused with 429.
    Refuse {
        /// The Retry-After of the 429, up to 365 days. Default none.
        #[serde(rename = "retry_after_ms", default, skip_serializing_if = "Option::is_none", with = "OptionalMillis")]
        retry_after: Option<Duration>,
    },
    /// No call is refused. The capacity is a *knee*: beyond it, calls take longer, as on a server that
    /// batches and queues (vLLM, for example).
    ///
    /// With `n` calls in flight, the new one included, the latency is the base latency times
    /// `1 + slope x (n - knee) / knee`. It is fixed when the call arrives. A knee of 0 counts as 1.
    SlowDown {
        /// How steeply latency grows, 0 to 100. Default 1. By Little's law, the throughput beyond the knee is
        /// constant at a slope of 1. It falls at a steeper slope, as on a thrashing server, and still rises
        /// at a flatter one.
        #[serde(default = "constant_throughput")]
        slope: f64,
    },
}

/// Returns the slope at which the throughput beyond the knee is constant.
fn constant_throughput() -> f64 {
    1.0
}

impl Default for Overload {
    /// Returns a 429 without Retry-After.
    fn default() -> Self {
        Self::Refuse { retry_after: None }
    }
}

/// The decision whether a call gets a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SlotDecision {
    /// The call is served, and takes `slowdown` times its base latency.
    Serve { slowdown: f64 },
    /// The call is refused.
    Refuse { retry_after: Option<Duration> },
}

impl Overload {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Refuse { retry_after } => retry_after.map_or(Ok(()), |span| require_span("retry_after_ms", span)),
            Self::SlowDown { slope } => {
                require((0.0..=100.0).contains(&slope), "slope", slope, "a number from 0 to 100")
            }
        }
    }

    /// Returns the Retry-After of a 429.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::Refuse { retry_after } => retry_after,
            Self::SlowDown { .. } => None,
        }
    }

    /// Decides on a new call while `in_flight` calls are in flight and the capacity is `slots`.
    pub(super) fn decide(&self, in_flight: u32, slots: u32) -> SlotDecision {
        match *self {
            _ if in_flight < slots => SlotDecision::Serve { slowdown: 1.0 },
            Self::Refuse { retry_after } => SlotDecision::Refuse { retry_after },
            Self::SlowDown { slope } => {
                let knee = f64::from(slots.max(1));
                let excess = f64::from(in_flight) + 1.0 - knee;
                SlotDecision::Serve { slowdown: 1.0 + slope * excess / knee }
            }
        }
    }
}
