//! The program `tidegate`.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Parser;
use mimalloc::MiMalloc;
use tidegate_native::app::check::check;
use tidegate_native::app::cli::{CheckArgs, Cli, Command, InspectArgs, Reasons, RunArgs, SchemaOf, TimelineArgs};
use tidegate_native::app::config::pipeline;
use tidegate_native::app::error::{Error, Exit};
use tidegate_native::app::inspect::{InspectRequest, inspect};
use tidegate_native::app::mock::args::MockArgs;
use tidegate_native::app::mock::command::serve_until_interrupted;
use tidegate_native::app::proxy::args::ProxyArgs;
use tidegate_native::app::proxy::config as proxy_config;
use tidegate_native::app::proxy::proxy;
use tidegate_native::app::replay::replay_log;
use tidegate_native::app::report::dashboard::Dashboard;
use tidegate_native::app::report::progress::{ProgressReporter, json_line};
use tidegate_native::app::run::dry_run;
use tidegate_native::app::run::request::RunRequest;
use tidegate_native::app::run::run;
use tidegate_native::app::simulate::regress::regress;
use tidegate_native::app::simulate::{self, simulate};
use tidegate_native::app::task_timeline::{TimelineRequest, timeline};

/// A call allocates on one thread and frees on another, for which the allocator of glibc takes locks.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long the program waits for pending file operations before it exits.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> Exit {
    match Cli::parse().into_command() {
        Command::Run(args) => run_pipeline(args),
        Command::Check(args) => check_pipeline(args),
        Command::Schema { of } => {
            let schema = match of {
                SchemaOf::Pipeline => pipeline::schema(),
                SchemaOf::Proxy => proxy_config::schema(),
                SchemaOf::Scenario => simulate::schema(),
            };
            report_result(Ok((schema, Exit::Done)))
        }
        Command::Replay { log } => report_result(replay_log(&log)),
        Command::Timeline(TimelineArgs { events, row, column }) => {
            report_result(timeline(&TimelineRequest { events, row, column }))
        }
        Command::Inspect(InspectArgs { out, row, limit, dropped, html }) => {
            report_result(inspect(&InspectRequest { out, row, limit, dropped, html }))
        }
        Command::Simulate(args) => report_result(simulate(&args)),
        Command::Mock(args) => serve_mock(&args),
        Command::Regress(args) => report_result(regress(&args)),
        Command::Proxy(args) => serve_proxy(&args),
    }
}

/// Prints the result of a command and returns its exit code.
fn report_result(result: Result<(String, Exit), Error>) -> Exit {
    match result {
        Ok((text, exit)) => {
            // A closed pipe must not change the exit code.
            let _ = std::io::stdout().write_all(text.as_bytes());
            exit
        }
        Err(error) => {
            print_error(&error);
            error.exit()
        }
    }
}

/// Prints `error`, with colours if a person sees it and has not asked for none.
fn print_error(error: &Error) {
    let mut stderr = std::io::stderr();
    let is_plain = !stderr.is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let _ = if is_plain { writeln!(stderr, "error: {error}") } else { writeln!(stderr, "error: {error:#}") };
}

fn serve_mock(args: &MockArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let result = runtime.block_on(serve_until_interrupted(args));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    report_result(result)
}

fn serve_proxy(args: &ProxyArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let result = runtime.block_on(proxy(args));
    // The proxy has waited for its calls already, so the remaining tasks are cancelled.
    runtime.shutdown_background();
    report_result(result.map(|exit| (String::new(), exit)))
}

/// Starts a multi-threaded runtime. Prints the error if that fails.
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
    let result = runtime.block_on(check(&request));
    runtime.shutdown_background();
    match result {
        Ok(report) if json => {
            json_line("check", &report);
            report.exit
        }
        result => report_result(result.map(|report| (report.to_string(), report.exit))),
    }
}

/// Converts the arguments of `run`.
fn request(args: RunArgs) -> RunRequest {
    let (out, existing) = args.output();
    let RunArgs {
        pipeline,
        record,
        events,
        trace,
        plan,
        limit,
        rows,
        partition,
        all_columns,
        max_cost,
        report,
        export,
        metrics,
        share,
        together,
        ..
    } = args;
    let retry_dropped = args.retry_dropped.map(|reasons| reasons.map_or_else(Vec::new, |Reasons(reasons)| reasons));
    let rows = rows.map(|rows| rows.start..rows.end);
    RunRequest {
        pipeline,
        out,
        existing,
        retry_dropped,
        record,
        events,
        trace,
        plan,
        rows,
        partition,
        limit,
        all_columns,
        max_cost,
        report,
        metrics,
        share,
        together,
        export,
    }
}

fn run_pipeline(args: RunArgs) -> Exit {
    let RunArgs { dry_run, quiet, json, tui, .. } = args;
    let request = request(args);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    if dry_run {
        return match runtime.block_on(dry_run::dry_run(&request)) {
            Ok(plan) if json => {
                json_line("dry_run", &plan);
                Exit::Done
            }
            result => report_result(result.map(|plan| (plan.to_string(), Exit::Done))),
        };
    }
    let mut reporter = match tui.then(Dashboard::open).transpose() {
        Ok(Some(dashboard)) => ProgressReporter::Dashboard(Box::new(dashboard)),
        Ok(None) => ProgressReporter::new(quiet, json),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: --tui: {error}");
            return Exit::Pipeline;
        }
    };
    let result = runtime.block_on(run(&request, &mut reporter));
    reporter.close();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match result {
        Ok(summary) => {
            // A closed pipe must not change the exit code.
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
            print_error(&error);
            error.exit()
        }
    }
}
