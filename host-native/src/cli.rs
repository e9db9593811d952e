//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    /// Print the capacity plan before the run: every limit that applies, and where it came from
    #[arg(long)]
    pub plan: bool,
    /// Show no progress, only the summary
    #[arg(long, short)]
    pub quiet: bool,
}

impl Cli {
    /// What to do, whether or not the subcommand was written.
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
            other @ Command::Replay { .. } => panic!("{line}: {other:?}"),
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
    fn the_help_names_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(help.contains(&format!("{:>3}  {}", exit.code(), exit.meaning())), "{help}");
        }
    }
}
