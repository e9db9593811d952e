//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tidegate_core::pipeline::DropReason;

use crate::app::error::Exit;
use crate::app::mock::args::MockArgs;
use crate::app::output::Existing;
use crate::app::provider::cost::Money;
use crate::app::proxy::args::ProxyArgs;
use crate::app::simulate::args::{RegressArgs, SimulateArgs};

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
    /// Find out whether a run could do its work: keys, templates, dataset, disk, and one tiny call to each model
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Print the JSON Schema of pipeline files
    Schema,
    /// Tell new machines what a run recorded with `run --record`, and compare every decision
    Replay {
        /// The decision log
        #[arg(value_name = "FILE")]
        log: PathBuf,
    },
    /// Print what happened to one row, task by task, from the events that `run --events` wrote
    Timeline(TimelineArgs),
    /// Simulate a run in virtual time: the scheduler as it is, against mock providers
    Simulate(SimulateArgs),
    /// Serve mock models over HTTP: an OpenAI-compatible provider that pushes back, for tests and for trying things out
    #[command(after_help = MOCK_HELP)]
    Mock(MockArgs),
    /// Run a suite in virtual time: is capacity ever idle without need, how well do limits find what a provider bears?
    Regress(RegressArgs),
    /// Serve an OpenAI-compatible API through one gate: a fair queue, adaptive limits, budgets, retries
    #[command(after_help = PROXY_HELP)]
    Proxy(ProxyArgs),
}

/// What `check` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// The pipeline file; the bundled example when left out
    #[arg(value_name = "PIPELINE.toml")]
    pub pipeline: Option<PathBuf>,
    /// Where the run would write [default: as `run` has it]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const CHECK_HELP: &str = "Each model that a column calls is called once, for an answer of one token or the vector of one word; judges are \
    not asked. `run --dry-run` checks the same without a call. Exit codes: 0 all is well, or else that of a run that meets the same.";

const PROXY_HELP: &str = "Clients call http://ADDRESS/v1 in the place of the provider. /healthz, /metrics and /why say how \
    it stands. Ctrl-C lets the calls that are out end; a second one cuts them. Exit codes: 0 stopped in good order, \
    2 the command line or the file is wrong, 130 calls were cut.";

/// What `timeline` takes.
#[derive(Clone, Debug, Args)]
pub struct TimelineArgs {
    /// The events of a run
    #[arg(value_name = "FILE.jsonl")]
    pub events: PathBuf,
    /// The row, as the output numbers it
    #[arg(long, value_name = "N")]
    pub row: u64,
    /// Show only this column's task
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
}

/// What stands below the flags of `mock`.
const MOCK_HELP: &str = "\
Settings of --model, with commas between them: slots=8, latency_ms=100, retry_after_ms=500, warm_up_ms=20000, \
requests_per_minute=600, tokens_per_minute=90000. What is left out is as in a scenario file: 8 slots, 100 ms, no rates.

Without a scenario and without --model it serves `mock-chat` and `mock-embedding`, which bear 64 calls at once.

Examples:
  tidegate mock
  tidegate mock outage --listen 127.0.0.1:0
  tidegate mock --model small=slots=4,retry_after_ms=500 --model cold=slots=16,warm_up_ms=20000 --fault cut=0.01

Ctrl-C or a termination signal ends it, with exit code 0.";

/// What `run` takes.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
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
    /// Go on where an earlier run of the same job stopped or was killed, also to more rows; begin if there
    /// was none
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// With --resume: also make rows again that were dropped, for these reasons or for any
    #[arg(long, value_name = "REASON,...", requires = "resume", value_parser = parse_reasons)]
    pub retry_dropped: Option<Option<Reasons>>,
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
    /// Write a report of the run with its charts, as one HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Run for at most the first N rows (of those of --rows)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Run for the rows A up to and without B, counted from 0; either may be left out
    #[arg(long, value_name = "A..B", value_parser = parse_rows)]
    pub rows: Option<RowRange>,
    /// Show what would be run, and what it would take: the plan, capacity, calls, tokens and cost. Calls nobody and writes
    /// nothing
    #[arg(long, conflicts_with_all = ["record", "events", "trace"])]
    pub dry_run: bool,
    /// Stop when the next call might make the run cost more than this, in the currency of the file's prices
    #[arg(long, value_name = "AMOUNT", value_parser = parse_money)]
    pub max_cost: Option<Money>,
    /// Show no progress, only the summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Print progress, messages and the summary as JSON objects, one a line, to standard output
    #[arg(long, conflicts_with_all = ["quiet", "plan"])]
    pub json: bool,
}

/// Why rows were dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons(pub Vec<DropReason>);

fn parse_reasons(text: &str) -> Result<Reasons, String> {
    let reason = |name: &str| {
        let known = || DropReason::ALL.map(DropReason::name).join(", ");
        DropReason::from_name(name)
            .ok_or_else(|| format!("no row is dropped for `{name}`; the reasons are {}", known()))
    };
    text.split(',').map(|name| reason(name.trim())).collect::<Result<_, _>>().map(Reasons)
}

/// Rows of a dataset, from the first up to and without the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first.
    pub start: u64,
    /// After the last.
    pub end: u64,
}

fn parse_rows(text: &str) -> Result<RowRange, String> {
    let expected = || "expected A..B such as 100..200, 100.. or ..200".to_string();
    let (start, end) = text.split_once("..").ok_or_else(expected)?;
    let number = |part: &str, default| match part.trim() {
        "" => Ok(default),
        part => part.parse().map_err(|_| expected()),
    };
    let (start, end) = (number(start, 0)?, number(end, u64::MAX)?);
    if start < end { Ok(RowRange { start, end }) } else { Err("there are no rows in it".to_string()) }
}

fn parse_money(text: &str) -> Result<Money, String> {
    let amount = text.parse().ok().and_then(Money::new);
    amount.ok_or_else(|| "expected an amount such as 2.50, not below 0".to_string())
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
        let existing = match (self.overwrite, self.resume) {
            (true, _) => Existing::Replace,
            (false, true) => Existing::Resume,
            (false, false) => Existing::Refuse,
        };
        match (&self.out, &self.pipeline) {
            (Some(out), _) => (out.clone(), existing),
            (None, Some(pipeline)) => {
                let name = pipeline.file_stem().map_or_else(|| PathBuf::from("pipeline"), PathBuf::from);
                (PathBuf::from("out").join(name), existing)
            }
            (None, None) if self.resume => (PathBuf::from("out/example"), existing),
            (None, None) => (PathBuf::from("out/example"), Existing::Replace),
        }
    }
}

fn after_help() -> String {
    format!(
        "Pipeline files are described in docs/pipeline-file.md; `tidegate schema` prints their JSON Schema.\n\n\
         How many calls of a model are in flight at once is found by `tide`, up to its `max_parallel`; `limit = \"aimd\"`, `\"vegas\"` or \
         `\"fixed\"` in the file picks another way.\n\n\
         Output: DIR/rows/NNNNNN.jsonl (or .csv, .parquet) holds the finished rows of row group NNNNNN, in order; DIR/manifest.json says \
         what ran, DIR/capacity.json which limits applied and how far they were used. API keys are read from the environment variables that the pipeline file names.\n\n\
         Exit codes:\n{}",
        Exit::table()
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::app::simulate::args::{LimitName, PolicyName};

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
        assert_eq!(parse("tidegate b.toml --resume").output(), (PathBuf::from("out/b"), Existing::Resume));
        assert_eq!(parse("tidegate --resume").output(), (PathBuf::from("out/example"), Existing::Resume));
        assert!(Cli::try_parse_from(["tidegate", "b.toml", "--resume", "--overwrite"]).is_err());
    }

    #[test]
    fn rows_and_amounts_are_read_or_refused() {
        let rows = |text: &str| parse(&format!("tidegate p.toml --rows {text}")).rows;
        assert_eq!(rows("3..9"), Some(RowRange { start: 3, end: 9 }));
        assert_eq!(rows("..9"), Some(RowRange { start: 0, end: 9 }));
        assert_eq!(rows("3.."), Some(RowRange { start: 3, end: u64::MAX }));
        for wrong in ["--rows 9..3", "--rows 3", "--rows a..b", "--limit 0", "--max-cost x", "--max-cost nan"] {
            assert!(Cli::try_parse_from(format!("tidegate p.toml {wrong}").split(' ')).is_err(), "{wrong}");
        }
        assert_eq!(parse("tidegate p.toml --max-cost 1.5").max_cost, Money::new(1.5));
    }

    #[test]
    fn dropped_rows_are_made_again_by_reason_and_only_in_a_resumed_run() {
        let again = |line: &str| parse(line).retry_dropped.map(|reasons| reasons.map(|Reasons(reasons)| reasons));
        assert_eq!(again("tidegate p.toml --resume"), None);
        assert_eq!(again("tidegate p.toml --resume --retry-dropped"), Some(None));
        let two = [DropReason::from_name("timeout").unwrap(), DropReason::from_name("request").unwrap()];
        assert_eq!(again("tidegate p.toml --resume --retry-dropped timeout,request"), Some(Some(two.to_vec())));
        assert!(Cli::try_parse_from(["tidegate", "p.toml", "--retry-dropped"]).is_err());
        let refused =
            Cli::try_parse_from(["tidegate", "p.toml", "--resume", "--retry-dropped", "weather"]).unwrap_err();
        assert!(
            refused.to_string().contains("no row is dropped for `weather`; the reasons are request, "),
            "{refused}"
        );
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
    fn a_mock_takes_a_scenario_either_way_and_models_of_its_own() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(Cli::into_command);
        let Ok(Command::Mock(args)) = parse("tidegate mock outage --model a --model b=slots=3 --fault cut=0.5") else {
            panic!("it is well formed");
        };
        assert_eq!((args.scenario.as_deref(), args.models.len(), args.faults.len()), (Some("outage"), 2, 1));
        assert_eq!(args.listen.to_string(), "127.0.0.1:8080");
        assert!(matches!(parse("tidegate mock --scenario tide"), Ok(Command::Mock(_))));
        for wrong in ["tide --scenario tide", "--model a=slots=many", "--fault cut", "--listen here", "-q -v"] {
            assert!(parse(&format!("tidegate mock {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_names_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(help.contains(&format!("{:>3}  {}", exit.code(), exit.meaning())), "{help}");
        }
    }
}
