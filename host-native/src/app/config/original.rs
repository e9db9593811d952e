//! Replacements for the keys of the original system and of earlier versions of tidegate.

use std::fmt;

/// The replacement of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// A key of the same table.
    Key(&'static str),
    /// The duration of this name in the table of a model. A scenario has it in milliseconds, in `request`.
    Duration(&'static str),
    /// A key of another table, or a certain value.
    Elsewhere(&'static str),
    /// No replacement, with the reason.
    Nothing(&'static str),
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "it is called `{key}`"),
            Self::Duration(key) => {
                write!(f, "use instead: `{key}`, a duration such as \"10s\", in the table of the model")
            }
            Self::Elsewhere(what) => write!(f, "use instead: {what}"),
            Self::Nothing(why) => write!(f, "there is no such setting: {why}"),
        }
    }
}

/// Returns the replacement of `key`, if it is a known key of another system.
pub(super) fn replacement(key: &str) -> Option<Replacement> {
    REPLACEMENTS.iter().find(|(name, _)| *name == key).map(|(_, replacement)| *replacement)
}

use Replacement::{Duration, Elsewhere, Key, Nothing};

const REPLACEMENTS: &[(&str, Replacement)] = &[
    // Models.
    ("alias", Key("name")),
    ("endpoint", Key("base_url")),
    ("api_key", Key("api_key_env")),
    ("max_parallel_requests", Key("max_parallel")),
    ("startup_ramp_seconds", Duration("ramp")),
    ("rampup_seconds", Duration("ramp")),
    ("cooldown_seconds", Duration("cooldown")),
    ("multiplicative_decrease_factor", Key("decrease_factor")),
    ("reduce_factor", Key("decrease_factor")),
    ("additive_increase_step", Key("increase_step")),
    ("additive_increase", Key("increase_step")),
    ("success_window", Key("successes_until_increase")),
    ("ceiling_overshoot", Nothing("the limit `tide` finds the capacity itself")),
    ("throttle", Elsewhere("`limit` and `aimd` in the table of the model")),
    ("request_admission", Elsewhere("`limit` and `aimd` in the table of the model")),
    (
        "inference_parameters",
        Elsewhere("`temperature`, `top_p`, `max_tokens` of a column, and `max_parallel` of its model"),
    ),
    ("extra_body", Key("extra")),
    ("budget", Key("budgets")),
    // Columns.
    ("column_type", Key("kind")),
    ("model_alias", Key("model")),
    ("system_prompt", Key("system")),
    ("output_format", Key("schema")),
    ("expr", Key("template")),
    ("dtype", Key("output")),
    ("sampler_type", Elsewhere("`sampler = { law = ... }`")),
    ("params", Elsewhere("`sampler = { law = ... }`")),
    ("max_conversation_restarts", Elsewhere("`schema_retries` in [[columns]]")),
    ("max_conversation_correction_steps", Elsewhere("`schema_retries` in [[columns]]")),
    // Runs.
    ("seed_config", Key("seed")),
    ("model_configs", Key("models")),
    ("column_configs", Key("columns")),
    ("run_config", Key("run")),
    ("buffer_size", Key("row_group_size")),
    ("max_in_flight_tasks", Key("submission_limit")),
    ("salvage_rounds", Key("retries")),
    ("shutdown_error_window", Key("shutdown_window")),
    ("shutdown_error_rate", Key("shutdown_rate")),
    ("disable_early_shutdown", Elsewhere("`shutdown_rate = \"never\"`")),
    (
        "default_queue_wait_timeout_seconds",
        Elsewhere("`rate_limit_patience` in [run], or `deadline` in [queue] of a proxy"),
    ),
    ("non_inference_max_parallel_workers", Nothing("samplers and expressions take no workers")),
];
