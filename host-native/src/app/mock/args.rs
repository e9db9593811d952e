//! The command line of `tidegate mock`.

use clap::Args;

use super::flags::{FaultFlag, ListenAddress, ModelFlag};
use super::{BatchSettings, RateHeaders};
use crate::app::answer_shape::AnswersFlag;

/// The arguments of `tidegate mock`.
#[derive(Clone, Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct MockArgs {
    /// Serve the models of a built-in scenario (see --list), of a scenario file, or of a file with models
    /// only
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// The same as a flag
    #[arg(long = "scenario", value_name = "SCENARIO", conflicts_with = "scenario")]
    pub by_name: Option<String>,
    /// List the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Listen at this address; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value_t, value_parser = clap::value_parser!(ListenAddress))]
    pub listen: ListenAddress,
    /// The seed of latencies, neighbours and faults: equal seeds give equal draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Add this model, or replace the model of that name
    #[arg(long = "model", value_name = "NAME[=SETTINGS]")]
    pub models: Vec<ModelFlag>,
    /// Make this share of all calls fail: error=0.02, hang=..., cut=..., malformed=... or refused=...
    #[arg(long = "fault", value_name = "KIND=SHARE")]
    pub faults: Vec<FaultFlag>,
    /// Answer this share of chat calls in a shape that providers have: refusal=0.01, reasoning=...
    #[arg(long = "answers", value_name = "SHAPE=SHARE")]
    pub answers: Vec<AnswersFlag>,
    /// Answer batches after a time, and with shares of faults: `delay_ms=5000,error=0.02`
    #[arg(long, value_name = "SETTINGS")]
    pub batches: Option<BatchSettings>,
    /// Serve all other model names with the first model
    #[arg(long)]
    pub any_model: bool,
    /// Answer 401 to calls without this key
    #[arg(long, value_name = "KEY")]
    pub require_key: Option<String>,
    /// Allow clients to change the providers: POST /mock/models/NAME
    #[arg(long)]
    pub allow_control: bool,
    /// The names of the rate-limit headers of responses
    #[arg(long, value_enum, default_value_t)]
    pub rate_headers: RateHeaders,
    /// Write a line to standard error for each call that fails or is refused
    #[arg(long, short)]
    pub verbose: bool,
    /// Show no status line and no table at the end
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
}
