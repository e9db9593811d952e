//! What scheduling costs: the dispatcher by queue length and groups, whole runs on tokio, whole runs in virtual time.
//!
//! ```text
//! cargo bench -p tidegate-tests --bench pipeline                  all of it
//! cargo bench -p tidegate-tests --bench pipeline -- dispatch      the rows whose name has "dispatch" in it
//! ```
//!
//! Rows with a peer take turns with it, batch by batch in one process, so that whatever else the machine does falls on
//! both. Figures are medians. Nothing is asserted: a figure that misses its target is marked.
//!
//! Without `--bench`, as in `cargo test --benches`, everything runs once and small, which shows only that it works.

#[path = "common/chain.rs"]
mod chain;
#[path = "common/cycle.rs"]
mod cycle;
#[path = "common/measure.rs"]
mod measure;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant as WallInstant};

use anyhow::{Result, ensure};
use chain::{COLUMNS, chain, run_at_once};
use cycle::Cycle;
use measure::{Bench, Row, median, time};
use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::pipeline::{FinishedRowGroup, Strategy, Task, TaskOutcome};
use tidegate_core::sim::scenario::{Scenario, ScenarioColumn};
use tidegate_core::sim::world::World;
use tidegate_core::task::{BoundedBorrow, BoundedBorrowConfig, StrictFair, TaskPolicy};
use tidegate_native::host::TokioHost;
use tidegate_tests::live_bytes::{LiveBytes, live_bytes};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: LiveBytes = LiveBytes;

fn main() -> Result<()> {
    let bench = Bench::from_args();
    matrix(&bench)?;
    bench.header();
    many_groups(&bench)?;
    end_to_end(&bench)?;
    virtual_time(&bench)
}

fn bounded() -> Result<BoundedBorrow> {
    Ok(BoundedBorrow::new(BoundedBorrowConfig::default())?)
}

// ---- the dispatcher ----

/// What the system whose behaviour was recorded takes for a cycle, in microseconds: the least and the most over 1 to
/// 256 groups. It was measured elsewhere, so it stands beside the table and not in it.
const RECORDED_CYCLE_US: [(&str, u32, u32); 2] = [("strict fair", 47, 789), ("bounded borrow", 91, 3_082)];

fn matrix(bench: &Bench) -> Result<()> {
    if !bench.picks("matrix") {
        return Ok(());
    }
    println!(
        "{:<46} {:>9} {:>8} {:>10} {:>12} {:>12}",
        "matrix: policy", "queued", "groups", "cycle ns", "enqueue ns", "bytes/task"
    );
    let sizes: &[u64] = if bench.is_real { &[1_000, 10_000, 100_000] } else { &[1_000] };
    for queued in sizes {
        for groups in [1, 8, 64, 256] {
            matrix_row(bench, "strict fair", *queued, groups, || Ok(StrictFair))?;
            matrix_row(bench, "bounded borrow", *queued, groups, bounded)?;
        }
    }
    for (policy, least, most) in RECORDED_CYCLE_US {
        println!("the recorded system's cycle, {policy}: {least} to {most} us from 1 to 256 groups");
    }
    println!();
    Ok(())
}

fn matrix_row<P: TaskPolicy>(
    bench: &Bench,
    name: &str,
    queued: u64,
    groups: usize,
    policy: impl Fn() -> Result<P>,
) -> Result<()> {
    const CYCLES: u64 = 20_000;
    let batches = if bench.is_real { 11 } else { 1 };
    let mut fills = Vec::with_capacity(batches);
    let mut bytes = 0;
    for _ in 0..batches {
        let mut cycle = Cycle::empty(policy()?, groups)?;
        let before = live_bytes();
        let start = WallInstant::now();
        cycle.fill(queued)?;
        fills.push(start.elapsed());
        bytes = live_bytes() - before;
    }
    let mut cycle = Cycle::new(policy()?, groups, queued)?;
    let mut run = |ops| cycle.run(ops).expect("a cycle finds its slots taken");
    let cycles = (0..batches).map(|_| time(&mut run, CYCLES)).collect();
    let cycle_ns = median(cycles).as_nanos() as f64 / CYCLES as f64;
    let enqueue_ns = median(fills).as_nanos() as f64 / queued as f64;
    let bytes = bytes as f64 / queued as f64;
    println!("matrix: {name:<38} {queued:>9} {groups:>8} {cycle_ns:>10.1} {enqueue_ns:>12.1} {bytes:>12.1}");
    Ok(())
}

/// Cycles of a resource that every group waits for, beside the same with few groups.
fn many_groups(bench: &Bench) -> Result<()> {
    compare_groups(bench, "dispatch + release, 256 groups, strict", 256, 1.5, || Ok(StrictFair))?;
    compare_groups(bench, "dispatch + release, 10^4 groups, strict", 10_000, 2.5, || Ok(StrictFair))?;
    compare_groups(bench, "dispatch + release, 256 groups, bounded", 256, 1.5, bounded)?;
    compare_groups(bench, "dispatch + release, 10^4 groups, bounded", 10_000, 2.5, bounded)
}

fn compare_groups<P: TaskPolicy>(
    bench: &Bench,
    name: &'static str,
    groups: usize,
    target: f64,
    policy: impl Fn() -> Result<P>,
) -> Result<()> {
    const QUEUED: u64 = 10_000;
    let row = Row { name, peer: "itself at 8 groups", target: Some(target) };
    let (mut many, mut few) = (Cycle::new(policy()?, groups, QUEUED)?, Cycle::new(policy()?, 8, QUEUED)?);
    let run = |cycle: &mut Cycle<P>, ops| cycle.run(ops).expect("a cycle finds its slots taken");
    bench.compare(&row, |ops| run(&mut many, ops), |ops| run(&mut few, ops));
    Ok(())
}

// ---- whole runs ----

/// Workers at once.
const CAP: u32 = 32;
/// How long a cell takes.
const NAP: Duration = Duration::from_millis(5);

/// Rows of a chain of columns that sleep, beside tasks for each row that take a permit for each cell and sleep.
fn end_to_end(bench: &Bench) -> Result<()> {
    let rows = if bench.is_real { 1_000 } else { 40 };
    let peer = "bare loop, tokio Semaphore";
    let target = Some(1.02);
    let name = "1000 rows x 5 columns of 5 ms, 1 thread";
    against_bare_loop(bench, &Row { name, peer, target }, &Builder::new_current_thread().enable_time().build()?, rows);
    let name = "1000 rows x 5 columns of 5 ms, 2 threads";
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    against_bare_loop(bench, &Row { name, peer, target }, &runtime, rows);
    Ok(())
}

fn against_bare_loop(bench: &Bench, row: &Row, runtime: &Runtime, rows: u64) {
    const BATCHES: usize = 7;
    bench.compare_batches(
        row,
        BATCHES,
        COLUMNS * rows,
        |_| runtime.block_on(napping_run(rows)).expect("every row is made"),
        |_| runtime.block_on(bare_loop(rows)),
    );
}

/// Tasks that sleep, and checkpoints that keep nothing.
struct Napping;

impl Workload for Napping {
    type Work = Pin<Box<dyn Future<Output = Result<TaskOutcome, FatalError>> + Send>>;
    type Save = std::future::Ready<Result<(), SaveError>>;

    fn work(&self, _: Task) -> Self::Work {
        Box::pin(async {
            tokio::time::sleep(NAP).await;
            Ok(TaskOutcome::Success)
        })
    }

    fn checkpoint(&self, _: FinishedRowGroup) -> Self::Save {
        std::future::ready(Ok(()))
    }
}

async fn napping_run(rows: u64) -> Result<()> {
    let host = TokioHost::current()?;
    // As the bare loop, in a task of its own: what drives a run is then scheduled as its workers are.
    let report = tokio::spawn(driver::run(host, chain(rows, CAP)?, Arc::new(Napping))).await?;
    ensure!(report.rows_out == rows, "{report:?}");
    Ok(())
}

async fn bare_loop(rows: u64) {
    let semaphore = Arc::new(Semaphore::new(CAP as usize));
    let rows: Vec<_> = (0..rows)
        .map(|_| {
            let semaphore = Arc::clone(&semaphore);
            tokio::spawn(async move {
                for _ in 0..COLUMNS {
                    let permit = semaphore.acquire().await.expect("the semaphore is not closed");
                    tokio::time::sleep(NAP).await;
                    drop(permit);
                }
            })
        })
        .collect();
    for row in rows {
        row.await.expect("no row panics");
    }
}

/// Columns that cost nothing: what is left is the scheduling.
fn virtual_time(bench: &Bench) -> Result<()> {
    let rows = if bench.is_real { 40_000 } else { 400 };
    println!("\n{:<46} {:<34} {:>12} {:>12}", "tasks of no duration", "", "tasks/s", "at least");
    tasks_per_second(bench, "virtual time: pipeline machine, 32 workers", rows, || run_at_once(chain(rows, CAP)?))?;
    tasks_per_second(bench, "virtual time: simulated world, 32 workers", rows, || {
        let mut world = World::new(&scenario(rows), 1)?;
        while world.step() {}
        let report = world.finished().map(|report| report.rows_out);
        ensure!(report == Some(rows), "{report:?}");
        Ok(())
    })
}

fn tasks_per_second(bench: &Bench, name: &str, rows: u64, run: impl Fn() -> Result<()>) -> Result<()> {
    const LEAST: f64 = 1e6;
    if !bench.picks(name) {
        return Ok(());
    }
    let mut taken = Vec::new();
    for _ in 0..if bench.is_real { 15 } else { 1 } {
        let start = WallInstant::now();
        run()?;
        taken.push(start.elapsed());
    }
    let rate = (COLUMNS * rows) as f64 / median(taken).as_secs_f64();
    let mark = if rate < LEAST { "  under" } else { "" };
    println!("{name:<46} {:<34} {rate:>12.0} {LEAST:>12.0}{mark}", "");
    Ok(())
}

fn scenario(rows: u64) -> Scenario {
    let name = |number: u64| number.to_string();
    let columns = (0..COLUMNS).map(|number| ScenarioColumn {
        after: (number > 0).then(|| name(number - 1)).into_iter().collect(),
        ..ScenarioColumn::new(&name(number), Strategy::Cell)
    });
    Scenario { rows, submission_limit: CAP, columns: columns.collect(), ..Scenario::default() }
}
