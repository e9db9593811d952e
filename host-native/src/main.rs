//! The program `tidegate`.

use std::io::Write as _;
use std::time::Duration;

use clap::Parser;
use tidegate_native::app::check::check;
use tidegate_native::app::cli::{CheckArgs, Cli, Command, Reasons, RunArgs, TimelineArgs};
use tidegate_native::app::config::pipeline;
use tidegate_native::app::error::{Error, Exit};
use tidegate_native::app::mock::args::MockArgs;
use tidegate_native::app::mock::command::serve_until_interrupted;
use tidegate_native::app::proxy::args::ProxyArgs;
use tidegate_native::app::proxy::proxy;
use tidegate_native::app::replay::replay_log;
use tidegate_native::app::report::progress::{Screen, json_line};
use tidegate_native::app::run::dry_run;
use tidegate_native::app::run::request::RunRequest;
use tidegate_native::app::run::run;
use tidegate_native::app::simulate::regress::regress;
use tidegate_native::app::simulate::simulate;
use tidegate_native::app::task_timeline::{TimelineRequest, timeline};

/// How long the end waits for file operations that are under way.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> Exit {
    match Cli::parse().into_command() {
        Command::Run(args) => run_pipeline(args),
        Command::Check(args) => check_pipeline(args),
        Command::Schema => ended(Ok((pipeline::SCHEMA.to_string(), Exit::Done))),
        Command::Replay { log } => ended(replay_log(&log)),
        Command::Timeline(TimelineArgs { events, row, column }) => {
            ended(timeline(&TimelineRequest { events, row, column }))
        }
        Command::Simulate(args) => ended(simulate(&args)),
        Command::Mock(args) => serve_mock(&args),
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

fn serve_mock(args: &MockArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let end = runtime.block_on(serve_until_interrupted(args));
    runtime.shutdown_timeout(GRACE);
    ended(end)
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

fn check_pipeline(args: CheckArgs) -> Exit {
    let CheckArgs { pipeline, out, json } = args;
    let request = request(RunArgs { pipeline, out, ..RunArgs::default() });
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let end = runtime.block_on(check(&request));
    runtime.shutdown_background();
    match end {
        Ok(report) if json => {
            json_line("check", &report);
            report.exit
        }
        end => ended(end.map(|report| (report.to_string(), report.exit))),
    }
}

/// What a run is asked for.
fn request(args: RunArgs) -> RunRequest {
    let (out, existing) = args.output();
    let RunArgs { pipeline, record, events, trace, plan, limit, rows, max_cost, report, .. } = args;
    let retry_dropped = args.retry_dropped.map(|reasons| reasons.map_or_else(Vec::new, |Reasons(reasons)| reasons));
    let rows = rows.map(|rows| rows.start..rows.end);
    RunRequest { pipeline, out, existing, retry_dropped, record, events, trace, plan, rows, limit, max_cost, report }
}

fn run_pipeline(args: RunArgs) -> Exit {
    let RunArgs { dry_run, quiet, json, .. } = args;
    let request = request(args);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    if dry_run {
        return ended(
            runtime.block_on(async { dry_run::dry_run(&request) }).map(|plan| (plan.to_string(), Exit::Done)),
        );
    }
    let mut screen = Screen::new(quiet, json);
    let ended = runtime.block_on(run(&request, &mut screen));
    screen.close();
    runtime.shutdown_timeout(GRACE);
    match ended {
        Ok(summary) => {
            // A reader that went away is no reason to hide how the run ended.
            if json {
                json_line("summary", &summary);
            } else {
                let _ = writeln!(std::io::stdout(), "{summary}");
            }
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
