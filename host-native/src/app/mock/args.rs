//! The command line of `tidegate mock`.

use clap::Args;

use super::RateHeaders;
use super::flags::{FaultFlag, ListenAddress, ModelFlag};

/// The arguments of `tidegate mock`.
#[derive(Clone, Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct MockArgs {
    /// Whose models to serve: a built-in scenario (see --list), or a file of one, or of models alone
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// The same, by name
    #[arg(long = "scenario", value_name = "SCENARIO", conflicts_with = "scenario")]
    pub by_name: Option<String>,
    /// List the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Where to listen; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value_t, value_parser = clap::value_parser!(ListenAddress))]
    pub listen: ListenAddress,
    /// The seed of latencies, neighbours and faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Serve this model too, or instead of the one of that name; settings are those below
    #[arg(long = "model", value_name = "NAME[=SETTINGS]")]
    pub models: Vec<ModelFlag>,
    /// Let this share of every model's calls go wrong: error=0.02, hang=..., cut=..., malformed=... or refused=...
    #[arg(long = "fault", value_name = "KIND=SHARE")]
    pub faults: Vec<FaultFlag>,
    /// Serve every other model name too, by the first model
    #[arg(long)]
    pub any_model: bool,
    /// Answer 401 to calls without this key
    #[arg(long, value_name = "KEY")]
    pub require_key: Option<String>,
    /// Let clients change the providers: POST /mock/models/NAME
    #[arg(long)]
    pub allow_control: bool,
    /// How answers name the rates of a model in headers
    #[arg(long, value_enum, default_value_t)]
    pub rate_headers: RateHeaders,
    /// Tell each call that is refused or goes wrong, a line each on standard error
    #[arg(long, short)]
    pub verbose: bool,
    /// Show no status while it serves, and no table at the end
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
}
