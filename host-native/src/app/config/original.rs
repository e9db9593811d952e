//! Replacements for the keys of the original system and of earlier versions of tidegate, and in a scenario
//! for those of pipeline and proxy files.

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

/// Returns what the model of a scenario has in place of `key`, if it is a key of pipeline and proxy files.
pub(super) fn replacement_in_scenario(key: &str) -> Option<Replacement> {
    IN_SCENARIOS.iter().find(|(name, _)| *name == key).map(|(_, replacement)| *replacement)
}

use Replacement::{Duration, Elsewhere, Key, Nothing};

const IN_SCENARIOS: &[(&str, Replacement)] = &[
    ("limit", Elsewhere("`algorithm`, such as `algorithm = { name = \"tide\" }`")),
    ("aimd", Elsewhere("`request` of the model, with the same settings; its durations end with `_ms`")),
    ("cooldown", Duration("cooldown")),
    ("max_cooldown", Duration("max_cooldown")),
    ("ramp", Duration("ramp")),
    ("budgets", Nothing("a scenario has no budgets; `requests` and `tokens` in `provider` are the rates that refuse")),
];

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
    ("provider_type", Elsewhere("`api` in [[models]]: \"openai\", \"responses\" or \"anthropic\"")),
    ("skip_health_check", Nothing("a run makes no test call before it starts; `tidegate check` does")),
    ("budget", Key("budgets")),
    // Columns.
    ("column_type", Key("kind")),
    ("model_alias", Key("model")),
    ("system_prompt", Key("system")),
    ("output_format", Key("schema")),
    ("expr", Key("template")),
    ("dtype", Key("output")),
    ("multi_modal_context", Elsewhere("`images` and `audio` of the column")),
    ("with_trace", Elsewhere("`calls = true` in [output], for `tidegate inspect`")),
    ("extract_reasoning_content", Elsewhere("a column with `kind = \"reasoning\"`, and `of` this column")),
    ("tool_alias", Elsewhere("`tools`, a list of names of [[tools]]")),
    (
        "code_lang",
        Elsewhere("the language in `prompt`, and a column with `kind = \"validation\"` that checks the code"),
    ),
    ("scores", Elsewhere("`criteria` of a column with `kind = \"score\"`")),
    ("target_columns", Elsewhere("`input` of a column with `kind = \"validation\"`, a template")),
    ("validator_type", Elsewhere(VALIDATOR)),
    ("validator_params", Elsewhere(VALIDATOR)),
    ("conditional_params", Elsewhere("`cases = [{ when = ..., law = ... }]` in `sampler`")),
    (
        "convert_to",
        Elsewhere("`integer` or `decimals` in `sampler`, or `output` of a column with `kind = \"expression\"`"),
    ),
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
    ("async_trace", Elsewhere("`--trace FILE` or `--events FILE` of `tidegate run`")),
    ("display_tui", Elsewhere("`--tui` of `tidegate run`")),
    ("progress_bar", Nothing("a terminal always has it, unless `tidegate run` has `--quiet`")),
    ("progress_interval", Nothing("a pipe has a line every two seconds, and with `--json` two a second")),
    ("preserve_dropped_columns", Elsewhere("`--all-columns` of `tidegate run`, which writes columns with `drop`, too")),
    ("jinja_rendering_engine", Nothing("there is one engine, which bounds the work of a template and runs no Python")),
];

const VALIDATOR: &str = "`schema`, or `model` with a command, of a column with `kind = \"validation\"`";
