//! Changes during a run, as data.
//!
//! In a file they are a list `[[changes]]` in order of time, such as
//! `{ at_ms = 4000, set = "capacity", model = "m", slots = 0 }`. Changes made while a world runs are recorded
//! in the same form. A scenario that contains them gives the same run again.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::never::SlotsOrSchedule;
use super::{KnownNames, MAX_PARALLEL, with_file_field};
use crate::error::{ConfigError, inside, inside_item, require};
use crate::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use crate::limit::LimitChoice;
use crate::millis::Millis;
use crate::pipeline::PolicyChoice;
use crate::request::LimitConfig;
use crate::sim::latency::{in_millis, require_span};
use crate::sim::provider::require_slots;
use crate::time::Duration;

/// A change at an instant of a run. It happens before all other events of that instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(extend("unevaluatedProperties" = false)))]
pub struct Change {
    /// When the change happens, counted from the start of the run. In files `at_ms`.
    #[serde(rename = "at_ms", with = "Millis")]
    pub at: Duration,
    /// What changes. In files its keys are beside `at_ms`.
    #[serde(flatten)]
    pub what: Intervention,
}

/// What a [`Change`] changes. In files and in JSON the key `set` selects the variant, in snake case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "set", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Intervention {
    /// Overrides the capacity of the model's provider from now on. The schedule and the neighbour no longer
    /// apply. Outages still stop all calls, and calls in flight continue.
    Capacity {
        /// The model.
        model: String,
        /// The capacity, 0 to 1000000. `None` (in files `"schedule"`, or left out) ends the override.
        #[serde(default, with = "SlotsOrSchedule")]
        slots: Option<u32>,
    },
    /// Makes the model's provider refuse every call for some time, as if no slot were free.
    Refuse {
        /// The model.
        model: String,
        /// How long, up to 365 days. In files `for_ms`. 0 ends an earlier intervention of this kind.
        #[serde(rename = "for_ms", with = "Millis")]
        span: Duration,
    },
    /// Multiplies the latency of calls that arrive at the model's provider for some time.
    Slow {
        /// The model.
        model: String,
        /// The factor, 0.001 to 1000.
        factor: f64,
        /// How long, up to 365 days. In files `for_ms`. 0 ends an earlier intervention of this kind.
        #[serde(rename = "for_ms", with = "Millis")]
        span: Duration,
    },
    /// Replaces the algorithm that decides the model's limit. The new algorithm starts without any history.
    Algorithm {
        /// The model.
        model: String,
        /// The new algorithm.
        algorithm: LimitChoice,
    },
    /// Replaces the settings of the model's limit. The present limit is kept as far as the new settings
    /// allow, and `initial_limit` is ignored. If `ramp` changed, a new ramp starts from 1.
    Request {
        /// The model.
        model: String,
        /// All settings.
        request: LimitConfig,
    },
    /// Replaces the task policy. The debts of groups are kept, but at most as much as the group holds.
    Policy {
        /// The new policy.
        policy: PolicyChoice,
    },
    /// Changes the weight of a column's fairness group, from the group's next turn on.
    Weight {
        /// A column of the group.
        column: String,
        /// The weight, 2^-20 to 2^20.
        weight: f64,
    },
    /// Changes the cap of the model. A limit above the new cap falls to it at once, and calls in flight
    /// continue. An AIMD limit that equals the old cap and was never cut rises with it; others climb.
    MaxParallel {
        /// The model.
        model: String,
        /// The cap, 1 to 1000000.
        calls: u32,
    },
}

impl Change {
    /// Returns an error for a value that is out of range or a name that is unknown, with the field's path in
    /// a file.
    pub(in crate::sim) fn validate(&self, known: &KnownNames<'_>) -> Result<(), ConfigError> {
        require_span("at_ms", self.at)?;
        self.what.validate(known)
    }
}

impl Intervention {
    pub(in crate::sim) fn validate(&self, known: &KnownNames<'_>) -> Result<(), ConfigError> {
        if let Some(model) = self.model() {
            require((known.models)(model), "model", model, "a model of the scenario")?;
        }
        match self {
            Self::Capacity { slots, .. } => slots.map_or(Ok(()), |slots| require_slots("slots", slots)),
            Self::Refuse { span, .. } => require_span("for_ms", *span),
            Self::Slow { factor, span, .. } => {
                require((0.001..=1_000.0).contains(factor), "factor", *factor, "a number from 0.001 to 1000")?;
                require_span("for_ms", *span)
            }
            Self::Algorithm { algorithm, .. } => {
                algorithm.make().map(drop).map_err(with_file_field).map_err(inside("algorithm"))
            }
            Self::Request { request, .. } => request.validate().map_err(with_file_field).map_err(inside("request")),
            Self::Policy { policy } => policy.validate(known.resources).map_err(inside("policy")),
            Self::Weight { column, weight } => {
                require((known.columns)(column), "column", column, "a column of the scenario")?;
                let in_range = (MIN_WEIGHT..=MAX_WEIGHT).contains(weight);
                require(in_range, "weight", *weight, "a number from 2^-20 to 2^20")
            }
            Self::MaxParallel { calls, .. } => {
                require((1..=MAX_PARALLEL).contains(calls), "calls", calls, "1 to 1000000")
            }
        }
    }

    /// Returns the name of the model that this intervention changes, if any.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Capacity { model, .. }
            | Self::Refuse { model, .. }
            | Self::Slow { model, .. }
            | Self::Algorithm { model, .. }
            | Self::Request { model, .. }
            | Self::MaxParallel { model, .. } => Some(model),
            Self::Policy { .. } | Self::Weight { .. } => None,
        }
    }
}

/// Returns an error for changes that are out of range or out of order.
pub(super) fn validate_all(changes: &[Change], known: &KnownNames<'_>) -> Result<(), ConfigError> {
    let mut before = Duration::ZERO;
    for (nth, change) in changes.iter().enumerate() {
        let is_sorted = change.at >= before;
        let expected = "a time not before that of the change before it";
        let checked = require(is_sorted, "at_ms", in_millis(change.at), expected).and_then(|()| change.validate(known));
        checked.map_err(inside_item("changes", nth))?;
        before = change.at;
    }
    Ok(())
}
