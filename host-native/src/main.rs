//! The program `tidegate`.

use std::io::Write as _;
use std::time::Duration;

use clap::Parser;
use tidegate_native::cli::{Cli, Command, ProxyArgs, RunArgs};
use tidegate_native::error::{Error, Exit};
use tidegate_native::progress::Screen;
use tidegate_native::proxy::proxy;
use tidegate_native::record::replay_log;
use tidegate_native::regress::regress;
use tidegate_native::run::{RunRequest, run};
use tidegate_native::simulate::simulate;

/// How long the end waits for file operations that are under way.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> Exit {
    match Cli::parse().into_command() {
        Command::Run(args) => run_pipeline(args),
        Command::Replay { log } => ended(replay_log(&log)),
        Command::Simulate(args) => ended(simulate(&args)),
        Command::Regress(args) => ended(regress(&args)),
        Command::Proxy(args) => serve_proxy(&args),
    }
}

/// Prints what a command without a runtime came to.
fn ended(end: Result<(String, Exit), Error>) -> Exit {
    match end {
        Ok((text, exit)) => {
            // A reader that went away is no reason to hide how it ended.
            let _ = std::io::stdout().write_all(text.as_bytes());
            exit
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            error.exit()
        }
    }
}

fn serve_proxy(args: &ProxyArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let end = runtime.block_on(proxy(args));
    // What was not done within the proxy's own bound is cut.
    runtime.shutdown_background();
    ended(end.map(|exit| (String::new(), exit)))
}

fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        let _ = writeln!(std::io::stderr(), "error: cannot start the runtime: {error}");
        Exit::Internal
    })
}

fn run_pipeline(args: RunArgs) -> Exit {
    let (out, existing) = args.output();
    let RunArgs { pipeline, record, events, trace, plan, quiet, .. } = args;
    let request = RunRequest { pipeline, out, existing, record, events, trace, plan };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
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
