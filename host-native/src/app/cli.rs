//! The command-line arguments of `tidegate`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_core::pipeline::DropReason;

use crate::app::config::share::StoreUrl;
use crate::app::error::Exit;
use crate::app::mock::args::MockArgs;
use crate::app::output::{ExistingOutput, ExportFile};
use crate::app::provider::cost::Money;
use crate::app::proxy::args::ProxyArgs;
use crate::app::run::request::Partition;
use crate::app::simulate::args::{RegressArgs, SimulateArgs};

/// Runs a pipeline of model calls over a dataset, as fast as its providers allow.
#[derive(Clone, Debug, Parser)]
#[command(name = "tidegate", version, args_conflicts_with_subcommands = true, after_help = after_help())]
pub struct Cli {
    /// The subcommand; `run` if it is omitted.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The arguments of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline (the default command; without a pipeline file, the bundled example, which needs no
    /// account)
    #[command(after_help = after_help())]
    Run(RunArgs),
    /// Check that a run can succeed: keys, templates, dataset, disk, and one minimal call to each model
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Print the JSON Schema of a kind of file, for editors
    Schema {
        /// The kind of file
        #[arg(value_name = "FILE", value_enum, default_value_t)]
        of: SchemaOf,
    },
    /// Replay a decision log that `run --record` wrote, and compare every decision
    Replay {
        /// The decision log
        #[arg(value_name = "FILE")]
        log: PathBuf,
    },
    /// Print what happened to one row, task by task, from the events that `run --events` wrote
    Timeline(TimelineArgs),
    /// Show the rows of an output directory with their prompts and answers, and why others are missing
    Inspect(InspectArgs),
    /// Simulate a run in virtual time: the real scheduler with mock providers
    Simulate(SimulateArgs),
    /// Serve mock models over HTTP: an OpenAI-compatible provider with rate limits, for tests and experiments
    #[command(after_help = MOCK_HELP)]
    Mock(MockArgs),
    /// Run a test suite in virtual time: avoidable idle time, and how well limits find the capacity of a
    /// provider
    Regress(RegressArgs),
    /// Serve an OpenAI-compatible API through one gate: a fair queue, adaptive limits, budgets, retries
    #[command(after_help = PROXY_HELP)]
    Proxy(ProxyArgs),
}

/// A kind of file that has a JSON Schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The file of `run` and `check`
    #[default]
    Pipeline,
    /// The file of `proxy`
    Proxy,
    /// Scenario files, the input of `simulate`
    Scenario,
}

/// The arguments of `check`.
#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// The pipeline file; the bundled example if it is omitted
    #[arg(value_name = "PIPELINE.toml")]
    pub pipeline: Option<PathBuf>,
    /// The output directory of the run [default: as for `run`]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The text below the options of `check`.
const CHECK_HELP: &str = "Calls each model that a column uses once, for one token or the embedding of one word. Of judges with a \
    `url`, models of images and those with `mode = \"batch\"`, only the address is called, without a cost. Of judges with a \
    `command`, only the program is looked up. \
    `run --dry-run` checks the same without calls. Exit codes: 0 if everything is fine, otherwise the exit code of a run \
    with the same problem.";

/// The text below the options of `proxy`.
const PROXY_HELP: &str = "Clients call http://ADDRESS/v1 instead of the provider. /healthz, /metrics and /why report the state \
    of the proxy. Ctrl-C waits for the calls in flight; a second Ctrl-C cancels them. Exit codes: 0 stopped normally, \
    2 invalid command line or file, 130 calls were cancelled.";

/// The arguments of `timeline`.
#[derive(Clone, Debug, Args)]
pub struct TimelineArgs {
    /// The event file of a run
    #[arg(value_name = "FILE.jsonl")]
    pub events: PathBuf,
    /// The row number, as in the output
    #[arg(long, value_name = "N")]
    pub row: u64,
    /// Show only the task of this column
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
}

/// The arguments of `inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// The output directory of a run
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Show only this row, with its whole texts
    #[arg(long, value_name = "N")]
    pub row: Option<u64>,
    /// Show at most so many rows [default: 20]
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Show only rows that are missing
    #[arg(long)]
    pub dropped: bool,
    /// Write a page to FILE instead
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The text below the options of `mock`.
const MOCK_HELP: &str = "\
Settings of --model, separated by commas: slots=8, latency_ms=100, retry_after_ms=500, warm_up_ms=20000, \
requests_per_minute=600, tokens_per_minute=90000. Defaults are those of a scenario file: 8 slots, 100 ms, no rates.

Without a scenario and without --model it serves `mock-chat` and `mock-embedding`, with 64 slots each.

Examples:
  tidegate mock
  tidegate mock outage --listen 127.0.0.1:0
  tidegate mock --model small=slots=4,retry_after_ms=500 --model cold=slots=16,warm_up_ms=20000 --fault cut=0.01

Ctrl-C or a termination signal stops the server, with exit code 0.";

/// The arguments of `run`.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RunArgs {
    /// The pipeline file; the bundled example if it is omitted
    #[arg(value_name = "PIPELINE.toml")]
    pub pipeline: Option<PathBuf>,
    /// The output directory [default: out/NAME for NAME.toml; out/example for the example, which replaces its
    /// own output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace the output of an earlier run
    #[arg(long)]
    pub overwrite: bool,
    /// Continue an earlier run of the same job that stopped or was killed, also with more rows; start a new
    /// job if there is none
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// With --resume: also retry dropped rows, with these drop reasons or with any
    #[arg(long, value_name = "REASON,...", requires = "resume", value_parser = parse_reasons)]
    pub retry_dropped: Option<Option<Reasons>>,
    /// Record every input of the scheduler in a decision log, for `tidegate replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write every event of the run to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub events: Option<PathBuf>,
    /// Write a trace of the run, for the Perfetto UI or any other viewer of Chrome traces
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Print the capacity plan before the run: every limit that applies, and its source
    #[arg(long)]
    pub plan: bool,
    /// Write a report of the run with charts, as one HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Serve the progress of the run for Prometheus, at `http://ADDRESS/metrics`
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Share the limits of the models with the other runs and proxies that use this Redis server, redis:// or
    /// rediss://, or redis+sentinel:// with the addresses of sentinels [default: as in the file]
    #[arg(long, value_name = "URL", conflicts_with = "dry_run")]
    pub share: Option<StoreUrl>,
    /// Fill the output directory together with the other processes that run the same command, on one machine
    /// or on several that share the directory; they agree over the server of --share. Each row is written
    /// once. Processes may join, stop and be killed at any time
    #[arg(long, conflicts_with_all = ["overwrite", "resume", "export", "dry_run"])]
    pub together: bool,
    /// Write all rows of the job to one file (.jsonl, .csv or .parquet) when they are done; with --resume,
    /// also of a job that is done already
    #[arg(long, value_name = "FILE")]
    pub export: Option<ExportFile>,
    /// Process one of COUNT parts of the dataset, from 1/COUNT to COUNT/COUNT: each machine takes another one
    #[arg(long, value_name = "INDEX/COUNT")]
    pub partition: Option<Partition>,
    /// Process at most the first N rows (of those of --rows and --partition)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Process rows A up to but not including B, counted from 0; either may be omitted
    #[arg(long, value_name = "A..B", value_parser = parse_rows)]
    pub rows: Option<RowRange>,
    /// Write every column, also those with `drop = true`, under its own name
    #[arg(long)]
    pub all_columns: bool,
    /// Show the plan, capacity, calls, tokens and cost of the run, without calling a model and without
    /// writing a file
    #[arg(long, conflicts_with_all = ["record", "events", "trace", "metrics"])]
    pub dry_run: bool,
    /// Stop before the cost of the job, including earlier runs and the other processes with --together, can
    /// exceed this amount, in the currency of the prices in the file
    #[arg(long, value_name = "AMOUNT", value_parser = parse_money)]
    pub max_cost: Option<Money>,
    /// Show no progress, only the summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Show a dashboard on the whole terminal: columns, providers, limits, idle time, cost and messages
    #[arg(long, conflicts_with_all = ["quiet", "json", "plan", "dry_run"])]
    pub tui: bool,
    /// Print progress, messages and the summary as JSON objects to standard output, one per line
    #[arg(long, conflicts_with_all = ["quiet", "plan"])]
    pub json: bool,
}

/// Drop reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons(pub Vec<DropReason>);

fn parse_reasons(text: &str) -> Result<Reasons, String> {
    let reason = |name: &str| {
        let known = || DropReason::ALL.map(DropReason::name).join(", ");
        DropReason::from_name(name).ok_or_else(|| format!("`{name}` is not a drop reason; the reasons are {}", known()))
    };
    text.split(',').map(|name| reason(name.trim())).collect::<Result<_, _>>().map(Reasons)
}

/// A range of dataset rows, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first row.
    pub start: u64,
    /// The row after the last; `u64::MAX` if there is no upper bound.
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
    if start < end { Ok(RowRange { start, end }) } else { Err("the range is empty".to_string()) }
}

fn parse_money(text: &str) -> Result<Money, String> {
    let amount = text.parse().ok().and_then(Money::new);
    amount.ok_or_else(|| "expected an amount of at least 0, such as 2.50".to_string())
}

impl Cli {
    /// Returns the subcommand; `run` if none was given.
    #[must_use]
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Run(self.run))
    }
}

impl RunArgs {
    /// Returns the output directory, and what to do if it is not empty.
    ///
    /// The example without `--out` replaces its own output, so it can be run repeatedly.
    #[must_use]
    pub fn output(&self) -> (PathBuf, ExistingOutput) {
        let existing = match (self.overwrite, self.resume || self.together) {
            (true, _) => ExistingOutput::Replace,
            (false, true) => ExistingOutput::Resume,
            (false, false) => ExistingOutput::Refuse,
        };
        match (&self.out, &self.pipeline) {
            (Some(out), _) => (out.clone(), existing),
            (None, Some(pipeline)) => {
                let name = pipeline.file_stem().map_or_else(|| PathBuf::from("pipeline"), PathBuf::from);
                (PathBuf::from("out").join(name), existing)
            }
            (None, None) if self.resume || self.together => (PathBuf::from("out/example"), existing),
            (None, None) => (PathBuf::from("out/example"), ExistingOutput::Replace),
        }
    }
}

fn after_help() -> String {
    format!(
        "Pipeline files are described in docs/pipeline-file.md; `tidegate schema` prints their JSON Schema.\n\n\
         The algorithm `tide` finds how many calls of a model can be in flight at once, up to `max_parallel`; `limit = \"aimd\"`, \
         `\"vegas\"` or `\"fixed\"` in the file selects another algorithm.\n\n\
         Output: DIR/rows/NNNNNN.jsonl (or .csv, .parquet) holds the finished rows of row group NNNNNN, in order; DIR/manifest.json \
         describes the job, and DIR/capacity.json the limits that applied and their utilisation. API keys are read from the environment \
         variables that the pipeline file names.\n\n\
         Exit codes:\n{}",
        Exit::table()
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::app::data::row_file::RowFormat;
    use crate::app::simulate::args::{LimitName, PolicyName};

    fn parse(line: &str) -> RunArgs {
        match Cli::try_parse_from(line.split(' ')).expect(line).into_command() {
            Command::Run(args) => args,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn the_address_of_a_store_is_not_shown() {
        for command in ["run", "proxy proxy.toml"] {
            let line = format!("tidegate {command} --share redis://:pass-word@host");
            let cli = Cli::try_parse_from(line.split(' ')).expect(&line);
            let text = format!("{cli:?}");
            assert!(text.contains("(hidden)") && !text.contains("pass-word"), "{text}");
        }
    }

    #[test]
    fn the_command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_default_command_is_run_and_the_default_pipeline_is_the_example() {
        assert_eq!(parse("tidegate").output(), (PathBuf::from("out/example"), ExistingOutput::Replace));
        assert_eq!(parse("tidegate run").output(), (PathBuf::from("out/example"), ExistingOutput::Replace));
        let args = parse("tidegate --out x");
        assert_eq!((args.pipeline.clone(), args.output()), (None, (PathBuf::from("x"), ExistingOutput::Refuse)));
    }

    #[test]
    fn the_output_is_named_after_the_pipeline_and_is_replaced_only_on_request() {
        assert_eq!(parse("tidegate run a/b.toml").output(), (PathBuf::from("out/b"), ExistingOutput::Refuse));
        assert_eq!(parse("tidegate b.toml --overwrite").output(), (PathBuf::from("out/b"), ExistingOutput::Replace));
        assert_eq!(parse("tidegate b.toml --resume").output(), (PathBuf::from("out/b"), ExistingOutput::Resume));
        assert_eq!(parse("tidegate --resume").output(), (PathBuf::from("out/example"), ExistingOutput::Resume));
        assert!(Cli::try_parse_from(["tidegate", "b.toml", "--resume", "--overwrite"]).is_err());
    }

    #[test]
    fn processes_that_run_together_keep_what_is_there_and_do_nothing_that_needs_the_directory_alone() {
        assert_eq!(parse("tidegate b.toml --together").output(), (PathBuf::from("out/b"), ExistingOutput::Resume));
        assert_eq!(parse("tidegate --together").output(), (PathBuf::from("out/example"), ExistingOutput::Resume));
        for other in ["--overwrite", "--resume", "--export data.csv", "--dry-run"] {
            let line = format!("tidegate b.toml --together {other}");
            let refused = Cli::try_parse_from(line.split(' ')).expect_err(&line).to_string();
            assert!(refused.contains("cannot be used with"), "{refused}");
        }
    }

    #[test]
    fn row_ranges_and_amounts_are_parsed_or_rejected() {
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
    fn dropped_rows_are_retried_by_reason_and_only_with_resume() {
        let again = |line: &str| parse(line).retry_dropped.map(|reasons| reasons.map(|Reasons(reasons)| reasons));
        assert_eq!(again("tidegate p.toml --resume"), None);
        assert_eq!(again("tidegate p.toml --resume --retry-dropped"), Some(None));
        let two = [DropReason::from_name("timeout").unwrap(), DropReason::from_name("request").unwrap()];
        assert_eq!(again("tidegate p.toml --resume --retry-dropped timeout,request"), Some(Some(two.to_vec())));
        assert!(Cli::try_parse_from(["tidegate", "p.toml", "--retry-dropped"]).is_err());
        let refused =
            Cli::try_parse_from(["tidegate", "p.toml", "--resume", "--retry-dropped", "weather"]).unwrap_err();
        assert!(refused.to_string().contains("`weather` is not a drop reason; the reasons are request, "), "{refused}");
    }

    #[test]
    fn the_extension_of_an_export_names_its_format() {
        let export = parse("tidegate p.toml --export data.JSONL").export.unwrap();
        assert_eq!((export.path, export.format), (PathBuf::from("data.JSONL"), RowFormat::Jsonl));
        for wrong in ["data", "data.xlsx", ".csv", ""] {
            let error = Cli::try_parse_from(["tidegate", "p.toml", "--export", wrong]).unwrap_err().to_string();
            assert!(error.contains("expected a name that ends in one of: .jsonl, .csv"), "{error}");
        }
    }

    #[test]
    fn simulate_needs_a_scenario_except_with_list() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(Cli::into_command);
        assert!(parse("tidegate simulate").is_err());
        assert!(matches!(parse("tidegate simulate --list"), Ok(Command::Simulate(_))));
        let Ok(Command::Simulate(args)) = parse("tidegate simulate tide --policy strict_fair --limit fixed") else {
            panic!("the command line is valid");
        };
        assert_eq!((args.seed, args.policy, args.limit), (1, Some(PolicyName::StrictFair), Some(LimitName::Fixed)));
        assert!(parse("tidegate simulate tide --limit guess").is_err());
    }

    #[test]
    fn mock_accepts_a_scenario_as_argument_or_option_and_model_settings() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(Cli::into_command);
        let Ok(Command::Mock(args)) = parse("tidegate mock outage --model a --model b=slots=3 --fault cut=0.5") else {
            panic!("the command line is valid");
        };
        assert_eq!((args.scenario.as_deref(), args.models.len(), args.faults.len()), (Some("outage"), 2, 1));
        assert_eq!(args.listen.to_string(), "127.0.0.1:8080");
        assert!(matches!(parse("tidegate mock --scenario tide"), Ok(Command::Mock(_))));
        for wrong in ["tide --scenario tide", "--model a=slots=many", "--fault cut", "--listen here", "-q -v"] {
            assert!(parse(&format!("tidegate mock {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_lists_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(help.contains(&format!("{:>3}  {}", exit.code(), exit.meaning())), "{help}");
        }
    }
}
