//! The command lines of `tidegate simulate` and `tidegate regress`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_core::limit::{LimitChoice, TideConfig, VegasConfig};

/// The arguments of `tidegate simulate`.
#[derive(Clone, Debug, Default, Args)]
pub struct SimulateArgs {
    /// A built-in scenario (see --list), or a file of one
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// List the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Write the scenario as a file to standard output, and run nothing
    #[arg(long, conflicts_with = "json")]
    pub dump: bool,
    /// The seed: equal seeds give equal runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// When a fairness group may start more workers than its share [default: what the scenario says]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PolicyName>,
    /// What decides how many calls of each model may be out [default: what the scenario says]
    #[arg(long, value_name = "ALGORITHM")]
    pub limit: Option<LimitName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a trace of the run, for the Perfetto UI or any viewer of Chrome traces
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
}

/// A task policy, by the name that files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum PolicyName {
    /// Only while nobody else could start
    StrictFair,
    /// While nobody else wants the same, and as a debt
    BoundedBorrow,
}

/// A limit algorithm, by the name that files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LimitName {
    /// Additive increase, multiplicative decrease: what a scenario has unless it says otherwise
    Aimd,
    /// Watches for queueing
    Vegas,
    /// Finds the ceiling or the rate, and holds it: the default of `run` and `proxy`
    Tide,
    /// The cap, always
    Fixed,
}

impl LimitName {
    /// The algorithm with its default settings, for a model of this cap.
    #[must_use]
    pub fn with_defaults(self, cap: u32) -> LimitChoice {
        match self {
            Self::Aimd => LimitChoice::Aimd,
            Self::Vegas => LimitChoice::Vegas(VegasConfig::default()),
            Self::Tide => LimitChoice::Tide(TideConfig::default()),
            Self::Fixed => LimitChoice::Fixed { limit: cap },
        }
    }
}

/// A suite of the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SuiteName {
    /// Is capacity ever idle without need? Figures, checks, baseline and report
    #[default]
    Idle,
    /// How well do limit algorithms find what a provider bears? Tables and a page beside an oracle
    Control,
}

/// The arguments of `tidegate regress`.
#[derive(Clone, Debug, Default, Args)]
pub struct RegressArgs {
    /// Which suite
    #[arg(long, value_name = "SUITE", default_value = "idle")]
    pub suite: SuiteName,
    /// Run the quick set only
    #[arg(long)]
    pub quick: bool,
    /// Compare every figure with those in this file; any difference fails
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write the figures to this file, to be the next baseline
    #[arg(long, value_name = "FILE")]
    pub update_baseline: Option<PathBuf>,
    /// Write a report of one HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// The control suite: how many providers to draw from seeds [default: 68]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub drawn: Option<u64>,
    /// The control suite: the first seed [default: 0]
    #[arg(long, value_name = "SEED", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub from: Option<u64>,
}
