//! What happens around a run: hooks, checkpoints, and somebody else who calls the same models.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::require_share;
use crate::error::{ConfigError, require};
use crate::millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::Duration;

/// How a hook or a checkpoint answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallbackSpec {
    /// How long it takes for each row group \[0\].
    #[serde(rename = "takes_ms", with = "millis")]
    pub takes: Duration,
    /// The row group for which it fails \[none\].
    pub fails_at: Option<u32>,
}

impl CallbackSpec {
    pub(super) fn validate(self, field: &str) -> Result<(), ConfigError> {
        require_span(field, self.takes)
    }
}

/// How the hook after the seeds answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreBatch {
    /// How long it takes for each row group \[0\].
    #[serde(rename = "takes_ms", with = "millis")]
    pub takes: Duration,
    /// The row group for which it fails \[none\].
    pub fails_at: Option<u32>,
    /// The share of rows that it leaves out, drawn from the run's seed, the row group and the row \[0\].
    pub leaves_out_share: f64,
}

impl PreBatch {
    pub(super) fn validate(self) -> Result<(), ConfigError> {
        require_share("pre_batch.leaves_out_share", self.leaves_out_share)?;
        require_span("pre_batch.takes_ms", self.takes)
    }
}

/// Somebody outside the run who holds request slots of a model for a while.
///
/// Each slot is a request like any other: it waits where there is none, and it is given back as a call that
/// succeeded. The model's provider hears nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The model.
    pub model: String,
    /// Slots it asks for, 1 to 10000.
    pub slots: u32,
    /// When it asks for them.
    #[serde(default, rename = "from_ms", with = "millis")]
    pub from: Duration,
    /// When it gives them back, and stops waiting for more; after `from`.
    #[serde(rename = "until_ms", with = "millis")]
    pub until: Duration,
}

impl Holder {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require((1..=10_000).contains(&self.slots), "holders.slots", self.slots, "1 to 10000")?;
        require(self.from < self.until, "holders.until_ms", in_millis(self.until), "a time after `from_ms`")?;
        require_span("holders.until_ms", self.until)
    }
}
