//! The program `tidegate`.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use tidegate_native::cli::{Cli, Command, RunArgs};
use tidegate_native::error::Exit;
use tidegate_native::progress::Screen;
use tidegate_native::record::replay;
use tidegate_native::run::{RunRequest, run};

/// How long the end waits for file operations that are under way.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> Exit {
    match Cli::parse().into_command() {
        Command::Run(args) => run_pipeline(args),
        Command::Replay { log } => replay_log(&log),
    }
}

fn replay_log(log: &Path) -> Exit {
    match replay(log) {
        Ok(replayed) => {
            let _ = writeln!(std::io::stdout(), "{replayed}");
            if replayed.is_equal() { Exit::Done } else { Exit::Internal }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            Exit::Pipeline
        }
    }
}

fn run_pipeline(args: RunArgs) -> Exit {
    let (out, existing) = args.output();
    let RunArgs { pipeline, record, events, plan, quiet, .. } = args;
    let request = RunRequest { pipeline, out, existing, record, events, plan };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: cannot start the runtime: {error}");
            return Exit::Internal;
        }
    };
    let mut screen = Screen::new(quiet);
    let ended = runtime.block_on(run(&request, &mut screen));
    screen.close();
    runtime.shutdown_timeout(GRACE);
    match ended {
        Ok(summary) => {
            // A reader that went away is no reason to hide how the run ended.
            let _ = writeln!(std::io::stdout(), "{summary}");
            if let Some(why) = &summary.stopped {
                let _ = writeln!(std::io::stderr(), "error: {why}");
            }
            summary.exit
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            error.exit()
        }
    }
}
