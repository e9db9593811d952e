//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_core::request::limit::{LimitChoice, TideConfig, VegasConfig};

use crate::error::Exit;
use crate::output::Existing;

/// Runs a pipeline of model calls over a dataset, as fast as its providers can bear and no faster.
#[derive(Clone, Debug, Parser)]
#[command(name = "tidegate", version, args_conflicts_with_subcommands = true, after_help = after_help())]
pub struct Cli {
    /// What to do; `run` when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What `run` takes.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline (the default; without a pipeline file: the bundled example, which needs no account)
    #[command(after_help = after_help())]
    Run(RunArgs),
    /// Tell new machines what a run recorded with `run --record`, and compare every decision
    Replay {
        /// The decision log
        #[arg(value_name = "FILE")]
        log: PathBuf,
    },
    /// Simulate a run in virtual time: the scheduler as it is, against mock providers
    Simulate(SimulateArgs),
    /// Run a suite in virtual time: is capacity ever idle without need, how well do limits find what a provider bears?
    Regress(RegressArgs),
    /// Serve an OpenAI-compatible API through one gate: a fair queue, adaptive limits, budgets, retries
    #[command(after_help = PROXY_HELP)]
    Proxy(ProxyArgs),
}

/// What `proxy` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct ProxyArgs {
    /// The proxy file: providers, limits, tenants
    #[arg(value_name = "CONFIG.toml", required_unless_present = "upstream")]
    pub config: Option<PathBuf>,
    /// Call this one provider, with defaults for everything and the clients' own keys
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub upstream: Option<String>,
    /// Where to listen [default: what the file says, or 127.0.0.1:4180]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Read the file and the keys it names, say what they come to, and serve nothing
    #[arg(long)]
    pub check: bool,
    /// Write a line for each answer to the standard error; never a key, never a body
    #[arg(long, short)]
    pub verbose: bool,
}

const PROXY_HELP: &str = "Clients call http://ADDRESS/v1 in the place of the provider. /healthz, /metrics and /why say how \
    it stands. Ctrl-C lets the calls that are out end; a second one cuts them. Exit codes: 0 stopped in good order, \
    2 the command line or the file is wrong, 130 calls were cut.";

/// What `simulate` takes.
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
    /// Additive increase, multiplicative decrease
    Aimd,
    /// Watches for queueing
    Vegas,
    /// Remembers where the ceiling was
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
    /// How well do limit algorithms find what a provider bears? A table beside an oracle
    Control,
}

/// What `regress` takes.
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
}

/// What `run` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// The pipeline file; the bundled example when left out
    #[arg(value_name = "PIPELINE.toml")]
    pub pipeline: Option<PathBuf>,
    /// Where to write [default: out/NAME for NAME.toml; out/example for the example, which replaces its own output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace what an earlier run wrote to the output directory
    #[arg(long)]
    pub overwrite: bool,
    /// Write every command of the scheduler to a decision log, for `tidegate replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write every event of the run to this file, one JSON object a line
    #[arg(long, value_name = "FILE.jsonl")]
    pub events: Option<PathBuf>,
    /// Write a trace of the run, for the Perfetto UI or any viewer of Chrome traces
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Print the capacity plan before the run: every limit that applies, and where it came from
    #[arg(long)]
    pub plan: bool,
    /// Show no progress, only the summary
    #[arg(long, short)]
    pub quiet: bool,
}

impl Cli {
    /// What to do: `run` if no subcommand was written.
    #[must_use]
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Run(self.run))
    }
}

impl RunArgs {
    /// Where to write, and what to do about what is there.
    ///
    /// The example without `--out` may be run again and again: it replaces its own output in its own place.
    #[must_use]
    pub fn output(&self) -> (PathBuf, Existing) {
        let existing = if self.overwrite { Existing::Replace } else { Existing::Refuse };
        match (&self.out, &self.pipeline) {
            (Some(out), _) => (out.clone(), existing),
            (None, Some(pipeline)) => {
                let name = pipeline.file_stem().map_or_else(|| PathBuf::from("pipeline"), PathBuf::from);
                (PathBuf::from("out").join(name), existing)
            }
            (None, None) => (PathBuf::from("out/example"), Existing::Replace),
        }
    }
}

fn after_help() -> String {
    format!(
        "Output: DIR/rows/NNNNNN.jsonl holds the finished rows of row group NNNNNN, in order; DIR/manifest.json says \
         what ran, DIR/capacity.json which limits applied and how far they were used. API keys are read from the environment variables that the pipeline file names.\n\n\
         Exit codes:\n{}",
        Exit::table()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> RunArgs {
        match Cli::try_parse_from(line.split(' ')).expect(line).into_command() {
            Command::Run(args) => args,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_subcommand_means_run_and_no_pipeline_means_the_example() {
        assert_eq!(parse("tidegate").output(), (PathBuf::from("out/example"), Existing::Replace));
        assert_eq!(parse("tidegate run").output(), (PathBuf::from("out/example"), Existing::Replace));
        let args = parse("tidegate --out x");
        assert_eq!((args.pipeline.clone(), args.output()), (None, (PathBuf::from("x"), Existing::Refuse)));
    }

    #[test]
    fn a_pipeline_names_its_own_output_and_is_not_replaced_unasked() {
        assert_eq!(parse("tidegate run a/b.toml").output(), (PathBuf::from("out/b"), Existing::Refuse));
        assert_eq!(parse("tidegate b.toml --overwrite").output(), (PathBuf::from("out/b"), Existing::Replace));
    }

    #[test]
    fn a_simulation_needs_a_scenario_unless_they_are_listed() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(Cli::into_command);
        assert!(parse("tidegate simulate").is_err());
        assert!(matches!(parse("tidegate simulate --list"), Ok(Command::Simulate(_))));
        let Ok(Command::Simulate(args)) = parse("tidegate simulate tide --policy strict_fair --limit fixed") else {
            panic!("it is well formed");
        };
        assert_eq!((args.seed, args.policy, args.limit), (1, Some(PolicyName::StrictFair), Some(LimitName::Fixed)));
        assert!(parse("tidegate simulate tide --limit guess").is_err());
    }

    #[test]
    fn the_help_names_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(help.contains(&format!("{:>3}  {}", exit.code(), exit.meaning())), "{help}");
        }
    }
}
