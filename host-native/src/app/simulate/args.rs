//! The command lines of `tidegate simulate` and `tidegate regress`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_core::limit::{LimitChoice, TideConfig, VegasConfig};

/// The arguments of `tidegate simulate`.
#[derive(Clone, Debug, Default, Args)]
pub struct SimulateArgs {
    /// A built-in scenario (see --list), or a scenario file
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// List the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Print the scenario as a file, and do not run it
    #[arg(long, conflicts_with_all = ["json", "trace"])]
    pub dump: bool,
    /// The seed of the run: equal seeds give equal runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// When a fairness group may start more workers than its share [default: the scenario's]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PolicyName>,
    /// The limit algorithm of every model, with its default settings [default: the scenario's]
    #[arg(long, value_name = "ALGORITHM")]
    pub limit: Option<LimitName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a trace of the run, for Perfetto or any viewer of Chrome traces
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
}

/// A task policy, named as in scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum PolicyName {
    /// Only while no other group has a task that could start
    StrictFair,
    /// While no other group demands the same resource; the group pays for it later
    BoundedBorrow,
}

/// A limit algorithm, named as in scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LimitName {
    /// Additive increase, multiplicative decrease: the default of scenario files
    Aimd,
    /// Lowers the limit when the latency shows queueing
    Vegas,
    /// Finds the provider's capacity or rate, and stays at it: the default of `run` and `proxy`
    Tide,
    /// Always the configured cap
    Fixed,
}

impl LimitName {
    /// Returns the algorithm with its default settings.
    #[must_use]
    pub fn with_defaults(self) -> LimitChoice {
        match self {
            Self::Aimd => LimitChoice::Aimd,
            Self::Vegas => LimitChoice::Vegas(VegasConfig::default()),
            Self::Tide => LimitChoice::Tide(TideConfig::default()),
            Self::Fixed => LimitChoice::AT_CAP,
        }
    }
}

/// A suite of simulated scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SuiteName {
    /// Measures whether capacity is ever idle without need, with checks and a baseline
    #[default]
    Idle,
    /// Compares the limit algorithms with an oracle that knows each provider's capacity
    Control,
}

/// The arguments of `tidegate regress`.
#[derive(Clone, Debug, Default, Args)]
pub struct RegressArgs {
    /// The suite to run
    #[arg(long, value_name = "SUITE", default_value = "idle")]
    pub suite: SuiteName,
    /// Run only the quick cases
    #[arg(long)]
    pub quick: bool,
    /// Compare every figure with the baseline in this file, and fail on any difference
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write the figures to this file as the new baseline
    #[arg(long, value_name = "FILE")]
    pub update_baseline: Option<PathBuf>,
    /// Write a report as a single HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Control suite: how many providers to draw from seeds [default: 68]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub drawn: Option<u64>,
    /// Control suite: the first seed [default: 0]
    #[arg(long, value_name = "SEED", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub from: Option<u64>,
}
