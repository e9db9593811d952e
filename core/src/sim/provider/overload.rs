//! What a provider does with more calls at once than it has slots for.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, require};
use crate::millis;
use crate::sim::latency::require_span;
use crate::time::Duration;

/// The answer to a call beyond the capacity.
///
/// In a file: `{ response = "refuse", retry_after_ms = 500 }` or `{ response = "slow_down", slope = 1.5 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Overload {
    /// 429.
    Refuse {
        /// What the 429 says about when to come back, if anything, up to 365 days.
        #[serde(rename = "retry_after_ms", default, skip_serializing_if = "Option::is_none", with = "millis::option")]
        retry_after: Option<Duration>,
    },
    /// Nothing is refused: the capacity is a *knee*, past which every call takes longer (a vLLM-like server
    /// that batches and queues). With `n` calls in flight, the new one included, a call takes its base
    /// latency times `1 + slope x (n - knee) / knee`, fixed when it arrives. A knee of 0 counts as 1.
    SlowDown {
        /// How steeply latency grows, 0 to 100 \[1\]. At 1 the throughput stays what it was at the knee
        /// (Little's law); above 1 it falls, as on a server that thrashes; below 1 it still rises.
        #[serde(default = "constant_throughput")]
        slope: f64,
    },
}

/// The slope at which the throughput stays what it was at the knee.
fn constant_throughput() -> f64 {
    1.0
}

impl Default for Overload {
    /// A 429 that does not say when to come back.
    fn default() -> Self {
        Self::Refuse { retry_after: None }
    }
}

/// Whether a call gets a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SlotDecision {
    /// It is served, and takes `slowdown` times its base latency.
    Serve { slowdown: f64 },
    /// It is not.
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

    /// What a 429 says about when to come back.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::Refuse { retry_after } => retry_after,
            Self::SlowDown { .. } => None,
        }
    }

    /// The verdict on one more call beside `in_flight` others, when there are `slots`.
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
