//! A soak test: memory stays flat and every lease is released, in virtual time and in real time.
//!
//! ```sh
//! cargo run --release -p tidegate-native --example soak -- virtual  # 10^7 tasks in the simulator
//! cargo run --release -p tidegate-native --example soak -- real     # 5 minutes, 512 calls in flight
//! cargo run --release -p tidegate-native --example soak -- real 30  # the same for 30 seconds
//! ```
//!
//! It fails if memory grew by more than a tenth after the first tenth of the work, or if a lease, a waiter or
//! a slot of the server is still held at the end.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use tidegate_core::pipeline::{Column, PipelineConfig, RetryKind, StopReason, Strategy, TaskOutcome};
use tidegate_core::request::{Completion, Outcome};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec};
use tidegate_core::sim::scenario::builtin;
use tidegate_core::sim::world::World;
use tidegate_core::time::Duration;
use tidegate_native::app::mock::MockServer;
use tidegate_native::app::provider::{CallError, ChatClient, ChatEndpoint, ChatRequest};
use tidegate_native::gate::{Limits, RequestGate, ResourceKey};
use tidegate_native::pipeline::PipelineRunner;

type BoxError = Box<dyn std::error::Error>;

const TASKS: u64 = 10_000_000;
const IN_FLIGHT: u32 = 512;
const MINUTES: u64 = 5;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["virtual"] => run_in_virtual_time(TASKS),
        ["virtual", tasks] => tasks.parse().map_err(BoxError::from).and_then(run_in_virtual_time),
        ["real"] => run_in_real_time(StdDuration::from_mins(MINUTES)),
        ["real", seconds] => seconds
            .parse()
            .map_err(BoxError::from)
            .and_then(|seconds| run_in_real_time(StdDuration::from_secs(seconds))),
        _ => Err("expected `virtual [TASKS]` or `real [SECONDS]`".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The resident memory of this process, in kB.
#[derive(Default)]
struct Memory {
    /// After the first tenth of the work.
    early: Option<u64>,
    max: u64,
}

impl Memory {
    /// Takes a sample when `done` of `all` units of work are done, and prints it.
    fn sample(&mut self, done: u64, all: u64) -> Result<(), BoxError> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
        let now = line.trim().trim_end_matches(" kB").parse()?;
        self.max = self.max.max(now);
        if done * 10 >= all && self.early.is_none() {
            self.early = Some(now);
        }
        eprint!("\r{:3} %  {now} kB ", done * 100 / all.max(1));
        Ok(std::io::stderr().flush()?)
    }

    /// Fails if memory grew by more than a tenth after the first tenth of the work.
    fn check_growth(&self) -> Result<(), BoxError> {
        let early = self.early.ok_or("the run ended before a sample after a tenth of the work")?;
        println!("  memory: {early} kB after a tenth of the work, {} kB at most", self.max);
        if self.max * 10 > early * 11 { Err("memory grew by more than a tenth".into()) } else { Ok(()) }
    }
}

/// Runs a scenario with many rows in the simulator: retries, rate limits, cooldowns and checkpoints, without
/// sockets.
fn run_in_virtual_time(tasks: u64) -> Result<(), BoxError> {
    let mut scenario = builtin().into_iter().next().ok_or("there is a built-in scenario")?;
    scenario.rows = tasks / scenario.columns.len() as u64;
    let began = StdInstant::now();
    let mut world = World::new(&scenario, 1)?;
    let (mut memory, mut steps) = (Memory::default(), 0_u64);
    while world.step() {
        steps += 1;
        if steps.is_multiple_of(1 << 20) {
            memory.sample(world.sample().rows_done, scenario.rows)?;
        }
    }
    eprintln!();
    let report = world.finished().ok_or("the simulation is stuck")?.clone();
    let wall = began.elapsed();
    println!(
        "{} rows of `{}`, {tasks} tasks: {} of virtual time in {wall:.1?}",
        report.rows_out, scenario.name, report.ended
    );
    println!("  held at the end: {:?}", world.outstanding());
    if world.outstanding() != [0, 0, 0] || report.rows_out + report.rows_dropped != scenario.rows {
        return Err("something was lost".into());
    }
    memory.check_growth()
}

/// Returns the completion for the gate, and the outcome of the task.
fn classify(error: Option<&CallError>) -> (Completion, TaskOutcome) {
    let retryable = |kind, retry_after| TaskOutcome::Retryable { kind, status: None, retry_after };
    match error {
        None => (Outcome::Success.into(), TaskOutcome::Success),
        Some(CallError::RateLimited { retry_after, .. }) => {
            (Completion::rate_limited(*retry_after), retryable(RetryKind::RateLimited, *retry_after))
        }
        Some(_) => (Outcome::ProviderFailure.into(), retryable(RetryKind::ServerError, None)),
    }
}

/// Runs a pipeline of two columns for `span` against a server that accepts fewer calls than the cap, then
/// winds it down.
#[tokio::main]
async fn run_in_real_time(span: StdDuration) -> Result<(), BoxError> {
    let spec = ProviderSpec {
        capacity: Capacity::Constant { slots: IN_FLIGHT },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(100)) },
        latency: Latency::Uniform { low: Duration::from_millis(50), high: Duration::from_millis(150) },
        ..ProviderSpec::default()
    };
    let server = MockServer::start(&spec, 1).await?;
    let client = ChatClient::new(ChatEndpoint {
        base_url: server.base_url().parse()?,
        model: "writer".to_string(),
        api_key: None,
        timeout: Duration::from_secs(30),
        authorities: None,
    })?;
    let gate = RequestGate::new()?;
    let key = ResourceKey::chat("mock", "writer");
    gate.register(&key, &Limits::at_most(IN_FLIGHT + IN_FLIGHT / 8))?;

    let config = PipelineConfig {
        rows: u64::from(u32::MAX),
        row_group_size: 256,
        row_groups: 16,
        submission_limit: 4 * IN_FLIGHT,
        ..PipelineConfig::default()
    };
    let mut runner = PipelineRunner::new(config).with_gate(&gate);
    for (name, upstream) in [("title", None), ("line", Some("title"))] {
        let column = Column::new(name, Strategy::Cell);
        let column = upstream.into_iter().fold(column, Column::with_upstream);
        let client = client.clone();
        runner = runner.model_column(column, &key, move |context, call| {
            let client = client.clone();
            async move {
                let permit = match context.acquire(&call).await {
                    Ok(permit) => permit,
                    Err(denied) => return denied.into(),
                };
                let prompt =
                    format!("{name} of row {}", context.task.first_row + u64::from(context.task.row.unwrap_or(0)));
                let result = client.complete(ChatRequest { prompt: &prompt, ..ChatRequest::default() }).await;
                let (completion, outcome) = classify(result.as_ref().err());
                permit.finish(completion);
                Ok(outcome)
            }
        });
    }
    let run = runner.start()?;
    let (handle, run) = (run.handle(), tokio::spawn(run));
    let (began, mut memory, mut max_in_flight) = (StdInstant::now(), Memory::default(), 0);
    let mut interval = tokio::time::interval(StdDuration::from_millis(500));
    while began.elapsed() < span {
        interval.tick().await;
        max_in_flight = max_in_flight.max(server.in_flight());
        memory.sample(began.elapsed().as_millis() as u64, span.as_millis() as u64)?;
    }
    eprintln!();
    handle.wind_down();
    let report = run.await?;
    let counters = server.counters();
    let state = gate.snapshot(&key).ok_or("it was registered")?;
    println!(
        "{} rows in {:.0?}: {} calls answered, {} refused, {max_in_flight} in flight at most",
        report.rows_out,
        began.elapsed(),
        counters.accepted,
        counters.refused
    );
    let leases = gate.core().with(|machine, _| machine.active_leases() + machine.waiting());
    println!(
        "  held at the end: {leases} leases, {} in flight at the gate, {} at the server",
        state.in_flight,
        server.in_flight()
    );
    let all_released = leases == 0 && state.in_flight == 0 && server.in_flight() == 0;
    if !all_released || report.stop != StopReason::WoundDown || report.rows_dropped > 0 {
        return Err(format!("something was lost: {report:?}").into());
    }
    memory.check_growth()
}
