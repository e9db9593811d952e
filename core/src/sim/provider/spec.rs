//! The spec of a mock provider, as in a scenario file.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Capacity, Closure, Faults, Neighbour, Outage, Overload, Rate, Surge, closure, outage};
use crate::error::{ConfigError, inside};
use crate::sim::latency::Latency;
use crate::time::Duration;

/// The description of a mock provider.
///
/// Each field configures a mechanism of its own. Every field has a default, and unknown fields are an error.
/// In a file:
///
/// ```toml
/// capacity  = { shape = "warm_up", slots = 8, warm_up_ms = 20000 }
/// overload  = { response = "refuse", retry_after_ms = 500 }
/// latency   = { law = "log_normal", median_ms = 400, sigma = 0.35 }
/// requests  = { per_minute = 600, burst = 20 }
/// tokens    = { per_minute = 90000 }
/// states_rates = true
/// surge     = { period_ms = 10000, growth = 1.5, least = 20 }
/// neighbour = { low_share = 0.1, high_share = 0.6, period_ms = 2000 }
/// outages   = [{ starts_at_ms = 30000, errors_ms = 5000, timeouts_ms = 5000, recovery_ms = 10000 }]
/// closures  = [{ starts_at_ms = 90000, lasts_ms = 5000, because = "key_rejected" }]
/// faults    = { error_share = 0.02, hang_share = 0.001, cut_share = 0.01, malformed_share = 0.01 }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSpec {
    /// How many calls the provider can serve at once. Default 8.
    pub capacity: Capacity,
    /// The response to calls beyond the capacity. Default 429 without Retry-After.
    pub overload: Overload,
    /// How long an accepted call takes. Default 100 ms.
    pub latency: Latency,
    /// The limit on calls per minute. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Rate>,
    /// The limit on tokens per minute. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Rate>,
    /// Whether every response states what is left of the rates, as rate-limit headers do. Default no.
    #[serde(skip_serializing_if = "is_off")]
    pub states_rates: bool,
    /// The limit on the growth of traffic. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surge: Option<Surge>,
    /// Another client that takes a varying share of the capacity. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Neighbour>,
    /// The outages, in order of time, at most 10000, without overlap. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// The times in which the provider rejects every call, in order, at most 10000, without overlap. Default
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closures: Vec<Closure>,
    /// The faults of single calls. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_off(states_rates: &bool) -> bool {
    !states_rates
}

impl Default for ProviderSpec {
    fn default() -> Self {
        Self {
            capacity: Capacity::Constant { slots: 8 },
            overload: Overload::default(),
            latency: Latency::Constant { latency: Duration::from_millis(100) },
            requests: None,
            tokens: None,
            states_rates: false,
            surge: None,
            neighbour: None,
            outages: Vec::new(),
            closures: Vec::new(),
            faults: None,
        }
    }
}

impl ProviderSpec {
    /// Returns an error for the first value that is out of range. The error has the field's path in a file,
    /// such as `capacity.steps[2].at_ms`, the value, and what was expected.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.capacity.validate().map_err(inside("capacity"))?;
        self.overload.validate().map_err(inside("overload"))?;
        self.latency.validate().map_err(inside("latency"))?;
        for (field, rate) in [("requests", self.requests), ("tokens", self.tokens)] {
            rate.map_or(Ok(()), |rate| rate.validate()).map_err(inside(field))?;
        }
        self.surge.map_or(Ok(()), |surge| surge.validate()).map_err(inside("surge"))?;
        self.neighbour.map_or(Ok(()), |neighbour| neighbour.validate()).map_err(inside("neighbour"))?;
        self.faults.map_or(Ok(()), |faults| faults.validate()).map_err(inside("faults"))?;
        outage::validate_all(&self.outages)?;
        closure::validate_all(&self.closures)
    }
}
