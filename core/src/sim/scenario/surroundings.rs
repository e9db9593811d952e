//! The surroundings of a run: hooks, checkpoints, and other clients of the same models.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::require_share;
use crate::error::{ConfigError, require};
use crate::millis::Millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::Duration;

/// The behaviour of a hook or a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CallbackSpec {
    /// How long the callback takes for each row group, up to 365 days. Default 0.
    #[serde(rename = "takes_ms", with = "Millis")]
    pub takes: Duration,
    /// The row group for which the callback fails. Default none.
    pub fails_at: Option<u32>,
}

impl CallbackSpec {
    pub(super) fn validate(self, field: &str) -> Result<(), ConfigError> {
        require_span(field, self.takes)
    }
}

/// The behaviour of the pre-batch hook, which is called after the seed columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PreBatch {
    /// How long the hook takes for each row group, up to 365 days. Default 0.
    #[serde(rename = "takes_ms", with = "Millis")]
    pub takes: Duration,
    /// The row group for which the hook fails. Default none.
    pub fails_at: Option<u32>,
    /// The share of rows that the hook drops, 0 to 1. Which rows is drawn from the run's seed, the row group
    /// and the row. Default 0.
    pub leaves_out_share: f64,
}

impl PreBatch {
    pub(super) fn validate(self) -> Result<(), ConfigError> {
        require_share("pre_batch.leaves_out_share", self.leaves_out_share)?;
        require_span("pre_batch.takes_ms", self.takes)
    }
}

/// A client outside the run that holds request slots of a model for some time.
///
/// Each slot is a normal request to admission: it waits if no slot is free, and it is released as a
/// successful call. No call is sent to the model's provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The model.
    pub model: String,
    /// The number of slots to request, 1 to 10000.
    pub slots: u32,
    /// When the slots are requested, counted from the start of the run. Default 0, which is before the run's
    /// own first call.
    #[serde(default, rename = "from_ms", with = "Millis")]
    pub from: Duration,
    /// When the slots are released, and requests that still wait are cancelled. After `from`, up to 365 days.
    #[serde(rename = "until_ms", with = "Millis")]
    pub until: Duration,
}

impl Holder {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require((1..=10_000).contains(&self.slots), "holders.slots", self.slots, "1 to 10000")?;
        require(self.from < self.until, "holders.until_ms", in_millis(self.until), "a time after `from_ms`")?;
        require_span("holders.until_ms", self.until)
    }
}
