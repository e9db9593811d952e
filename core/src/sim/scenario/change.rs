//! Changes in the midst of a run: what a person does to a world, as data.
//!
//! A file writes them as `[[changes]]`, in order of time:
//! `{ at_ms = 4000, set = "capacity", model = "m", slots = 0 }`. What is changed while a world runs becomes
//! the same data, so that a run with it written in is the same run.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::never::slots;
use super::{KnownNames, MOST_PARALLEL};
use crate::error::{ConfigError, require};
use crate::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use crate::limit::LimitChoice;
use crate::millis;
use crate::pipeline::PolicyChoice;
use crate::request::AimdConfig;
use crate::sim::latency::{in_millis, require_span};
use crate::sim::provider::{inside, inside_item, require_slots, with_file_path};
use crate::time::Duration;

/// Something that is changed at an instant of a run. It comes before everything else of that instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When, counted from the start: in files `at_ms`.
    #[serde(rename = "at_ms", with = "millis")]
    pub at: Duration,
    /// What: in files the keys beside it.
    #[serde(flatten)]
    pub what: Intervention,
}

/// What is changed. In files and in JSON the key `set` names it, in snake case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "set", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Intervention {
    /// The provider bears `slots` calls from now on, whatever its schedule and its neighbour say. An outage
    /// still stops everything, and calls that are out stay.
    Capacity {
        /// The model.
        model: String,
        /// 0 to 1000000; `None`, in files `"schedule"` or left out: as scheduled again.
        #[serde(default, with = "slots")]
        slots: Option<u32>,
    },
    /// The provider refuses every call for a while, as it refuses those for which it has no slot.
    Refuse {
        /// The model.
        model: String,
        /// For how long: in files `for_ms`. 0 ends what is left of an earlier one.
        #[serde(rename = "for_ms", with = "millis")]
        span: Duration,
    },
    /// The provider takes longer for a while: calls that begin in it take `factor` times as long.
    Slow {
        /// The model.
        model: String,
        /// 0.001 to 1000.
        factor: f64,
        /// For how long: in files `for_ms`. 0 ends what is left of an earlier one.
        #[serde(rename = "for_ms", with = "millis")]
        span: Duration,
    },
    /// Another algorithm decides the model's limit from now on. It starts afresh.
    Algorithm {
        /// The model.
        model: String,
        /// Which.
        algorithm: LimitChoice,
    },
    /// Other settings of the model's limit. As far as they allow, the limit stays where it is, whatever the
    /// initial limit says; a ramp that changed begins anew, from 1.
    Request {
        /// The model.
        model: String,
        /// All of them.
        request: AimdConfig,
    },
    /// Another task policy decides from now on. What groups owe stays, as far as they hold as much.
    Policy {
        /// Which.
        policy: PolicyChoice,
    },
    /// The fairness group of a column weighs so much from its next turn on.
    Weight {
        /// A column of the group.
        column: String,
        /// 2^-20 to 2^20.
        weight: f64,
    },
    /// The model is registered with another cap. The limit falls with it at once, calls that are out stay,
    /// and a limit that stood at the old cap follows it up.
    MaxParallel {
        /// The model.
        model: String,
        /// 1 to 1000000.
        calls: u32,
    },
}

impl Change {
    /// Refuses what is out of range or is not there. The error names the field as a file writes it.
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
                algorithm.make().map(drop).map_err(with_file_path).map_err(inside("algorithm"))
            }
            Self::Request { request, .. } => request.validate().map_err(with_file_path).map_err(inside("request")),
            Self::Policy { policy } => policy.validate(known.resources).map_err(inside("policy")),
            Self::Weight { column, weight } => {
                require((known.columns)(column), "column", column, "a column of the scenario")?;
                let in_range = (MIN_WEIGHT..=MAX_WEIGHT).contains(weight);
                require(in_range, "weight", *weight, "a number from 2^-20 to 2^20")
            }
            Self::MaxParallel { calls, .. } => {
                require((1..=MOST_PARALLEL).contains(calls), "calls", calls, "1 to 1000000")
            }
        }
    }

    /// The model that it is about, if it is about one.
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

/// Refuses changes that are out of range or out of order.
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
