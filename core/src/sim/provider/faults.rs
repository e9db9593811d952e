//! Faults of single calls: a share of calls fails, is refused, gets no response, or gets an unusable one.

use serde::{Deserialize, Serialize};

use super::outage::{default_latency, one_minute};
use crate::error::{ConfigError, require};
use crate::millis::{Millis, OptionalMillis};
use crate::sim::latency::require_span;
use crate::sim::rng::Rng;
use crate::time::Duration;

/// Faults of single calls, drawn from the seed.
///
/// Faults affect only calls that would be served otherwise. A call has at most one fault, so the sum of the
/// shares is at most 1.
///
/// In a file: `{ error_share = 0.02, cut_share = 0.01 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The share of calls that fail with `error_status`, 0 to 1. Default 0.
    pub error_share: f64,
    /// The HTTP status of these failures, 500 to 599. Default 500.
    pub error_status: u16,
    /// The latency of such an error response, up to 365 days. Default 20 ms.
    #[serde(rename = "error_latency_ms", with = "Millis")]
    pub error_latency: Duration,
    /// The share of calls that get no response, 0 to 1. Default 0.
    pub hang_share: f64,
    /// How long after its arrival the provider closes the connection of such a call, up to 365 days. Default
    /// 60 s.
    #[serde(rename = "hang_ms", with = "Millis")]
    pub hang: Duration,
    /// The share of calls whose connection breaks in the middle of the response, 0 to 1. Default 0.
    pub cut_share: f64,
    /// The share of calls whose response is complete but cannot be parsed, 0 to 1. Default 0.
    pub malformed_share: f64,
    /// The share of calls that are refused with 429 at any load, 0 to 1. This models a pool that is shared
    /// with other clients. Default 0.
    pub refused_share: f64,
    /// The Retry-After of such a refusal, up to 365 days. Default none.
    #[serde(rename = "retry_after_ms", skip_serializing_if = "Option::is_none", with = "OptionalMillis")]
    pub retry_after: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            error_share: 0.0,
            error_status: 500,
            error_latency: default_latency(),
            hang_share: 0.0,
            hang: one_minute(),
            cut_share: 0.0,
            malformed_share: 0.0,
            refused_share: 0.0,
            retry_after: None,
        }
    }
}

/// What is wrong with the response to an accepted call.
///
/// Exhaustive on purpose: a mock server must carry out every flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The connection breaks in the middle of the response.
    Cut,
    /// The response is complete but cannot be parsed.
    Malformed,
}

/// The fault that one call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Error { status: u16, latency: Duration },
    Hang { after: Duration },
    Refusal { retry_after: Option<Duration> },
    Flaw(Flaw),
}

impl Faults {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let shares = [
            ("error_share", self.error_share),
            ("hang_share", self.hang_share),
            ("cut_share", self.cut_share),
            ("malformed_share", self.malformed_share),
            ("refused_share", self.refused_share),
        ];
        let mut sum = 0.0;
        for (field, share) in shares {
            require((0.0..=1.0).contains(&share), field, share, "a number from 0 to 1")?;
            sum += share;
            require(sum <= 1.0, field, share, "no more than the other shares leave of 1")?;
        }
        let is_5xx = (500..=599).contains(&self.error_status);
        require(is_5xx, "error_status", self.error_status, "a whole number from 500 to 599")?;
        require_span("error_latency_ms", self.error_latency)?;
        require_span("hang_ms", self.hang)?;
        self.retry_after.map_or(Ok(()), |span| require_span("retry_after_ms", span))
    }

    /// Draws the fault of one call. `None` means that it has none. Takes exactly one draw from `draws`.
    pub(super) fn draw(&self, draws: &mut Rng) -> Option<Fault> {
        let mut draw = draws.unit_f64();
        for (share, fault) in [
            (self.error_share, Fault::Error { status: self.error_status, latency: self.error_latency }),
            (self.hang_share, Fault::Hang { after: self.hang }),
            (self.cut_share, Fault::Flaw(Flaw::Cut)),
            (self.malformed_share, Fault::Flaw(Flaw::Malformed)),
            (self.refused_share, Fault::Refusal { retry_after: self.retry_after }),
        ] {
            if draw < share {
                return Some(fault);
            }
            draw -= share;
        }
        None
    }
}
