//! A long soak: memory stays flat and every lease comes back, in virtual time and in real time.
//!
//! ```sh
//! cargo run --release -p tidegate-native --example soak -- virtual            # 10^7 tasks in the simulated world
//! cargo run --release -p tidegate-native --example soak -- real               # 5 minutes, 512 calls in flight over sockets
//! cargo run --release -p tidegate-native --example soak -- real 30            # the same for 30 seconds
//! ```
//!
//! It ends with an error if memory grew by more than a tenth after the first tenth of the work, or if anything is still held.

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

type Failure = Box<dyn std::error::Error>;

const TASKS: u64 = 10_000_000;
const IN_FLIGHT: u32 = 512;
const MINUTES: u64 = 5;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["virtual"] => in_virtual_time(TASKS),
        ["virtual", tasks] => tasks.parse().map_err(Failure::from).and_then(in_virtual_time),
        ["real"] => in_real_time(StdDuration::from_mins(MINUTES)),
        ["real", seconds] => {
            seconds.parse().map_err(Failure::from).and_then(|seconds| in_real_time(StdDuration::from_secs(seconds)))
        }
        _ => Err("expected `virtual [TASKS]` or `real [SECONDS]`".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Kilobytes in memory, once the first tenth of the work is done and after.
#[derive(Default)]
struct Memory {
    early: Option<u64>,
    most: u64,
}

impl Memory {
    /// Takes a reading when `done` of `all` is done.
    fn look(&mut self, done: u64, all: u64) -> Result<(), Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
        let now = line.trim().trim_end_matches(" kB").parse()?;
        self.most = self.most.max(now);
        if done * 10 >= all && self.early.is_none() {
            self.early = Some(now);
        }
        eprint!("\r{:3} %  {now} kB ", done * 100 / all.max(1));
        Ok(std::io::stderr().flush()?)
    }

    fn verdict(&self) -> Result<(), Failure> {
        let early = self.early.ok_or("it was over before a tenth of the work was seen")?;
        println!("  memory: {early} kB after a tenth of the work, {} kB at most", self.most);
        if self.most * 10 > early * 11 { Err("memory grew by more than a tenth".into()) } else { Ok(()) }
    }
}

/// One scenario over and over rows: retries, refusals, cooldowns, checkpoints, all machines and none of the sockets.
fn in_virtual_time(tasks: u64) -> Result<(), Failure> {
    let mut scenario = builtin().into_iter().next().ok_or("there is a built-in scenario")?;
    scenario.rows = tasks / scenario.columns.len() as u64;
    let began = StdInstant::now();
    let mut world = World::new(&scenario, 1)?;
    let (mut memory, mut steps) = (Memory::default(), 0_u64);
    while world.step() {
        steps += 1;
        if steps.is_multiple_of(1 << 20) {
            memory.look(world.sample().rows_done, scenario.rows)?;
        }
    }
    eprintln!();
    let report = world.finished().ok_or("the world stands still")?.clone();
    let wall = began.elapsed();
    println!(
        "{} rows of `{}`, {tasks} tasks: {} of virtual time in {wall:.1?}",
        report.rows_out, scenario.name, report.ended
    );
    println!("  held at the end: {:?}", world.outstanding());
    if world.outstanding() != [0, 0, 0] || report.rows_out + report.rows_dropped != scenario.rows {
        return Err("something was lost".into());
    }
    memory.verdict()
}

/// What an answer means for the gate, and for the task.
fn judge(error: Option<&CallError>) -> (Completion, TaskOutcome) {
    let again = |kind, retry_after| TaskOutcome::Retryable { kind, status: None, retry_after };
    match error {
        None => (Outcome::Success.into(), TaskOutcome::Success),
        Some(CallError::RateLimited { retry_after, .. }) => {
            (Completion::rate_limited(*retry_after), again(RetryKind::RateLimited, *retry_after))
        }
        Some(_) => (Outcome::ProviderFailure.into(), again(RetryKind::ServerError, None)),
    }
}

/// A pipeline of two columns against a server that bears fewer calls than the cap, for a while, then wound down.
#[tokio::main]
async fn in_real_time(span: StdDuration) -> Result<(), Failure> {
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
        bypass_proxy: true,
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
    let mut runner = PipelineRunner::new(config).through(&gate);
    for (name, upstream) in [("title", None), ("line", Some("title"))] {
        let column = Column::new(name, Strategy::Cell);
        let column = upstream.into_iter().fold(column, Column::with_upstream);
        let client = client.clone();
        runner = runner.calling(column, &key, move |work, call| {
            let client = client.clone();
            async move {
                let slot = match work.acquire(&call).await {
                    Ok(slot) => slot,
                    Err(denied) => return denied.into(),
                };
                let prompt = format!("{name} of row {}", work.task.first_row + u64::from(work.task.row.unwrap_or(0)));
                let answer = client.complete(ChatRequest { prompt: &prompt, ..ChatRequest::default() }).await;
                let (completion, outcome) = judge(answer.as_ref().err());
                slot.finish(completion);
                Ok(outcome)
            }
        });
    }
    let run = runner.start()?;
    let (handle, run) = (run.handle(), tokio::spawn(run));
    let (began, mut memory, mut most) = (StdInstant::now(), Memory::default(), 0);
    let mut look = tokio::time::interval(StdDuration::from_millis(500));
    while began.elapsed() < span {
        look.tick().await;
        most = most.max(server.in_flight());
        memory.look(began.elapsed().as_millis() as u64, span.as_millis() as u64)?;
    }
    eprintln!();
    handle.wind_down();
    let report = run.await?;
    let counters = server.counters();
    let state = gate.snapshot(&key).ok_or("it was registered")?;
    println!(
        "{} rows in {:.0?}: {} calls answered, {} refused, {most} in flight at most",
        report.rows_out,
        began.elapsed(),
        counters.accepted,
        counters.refused
    );
    let leases = gate.core().with(|machine, _| machine.active_leases() + machine.waiting());
    println!("  held at the end: {leases} leases, {} in flight here, {} there", state.in_flight, server.in_flight());
    let all_back = leases == 0 && state.in_flight == 0 && server.in_flight() == 0;
    if !all_back || report.stop != StopReason::WoundDown || report.rows_dropped > 0 {
        return Err(format!("something was lost: {report:?}").into());
    }
    memory.verdict()
}
