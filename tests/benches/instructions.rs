//! Instructions per operation of the hot paths, counted by valgrind's callgrind: the same figures on a busy machine.
//!
//! ```text
//! cargo bench -p tidegate-instructions                    all paths, beside instructions.json
//! cargo bench -p tidegate-instructions -- gate            those whose name has `gate` in it
//! cargo bench -p tidegate-instructions -- --update        writes what it counts to instructions.json
//! ```
//!
//! Each path runs twice, `N` and `2 N` operations long; the difference divided by `N` leaves its setting up out. The
//! program fails if a path takes over 10 % more than recorded, or if a ratio between two paths is over its bound. The
//! margin is for the C library, which picks how to copy memory by processor. The
//! recorded figures hold for x86-64 and the pinned toolchain; elsewhere only the ratios are judged.
//!
//! Without `--bench`, as in `cargo test --benches`, each path runs a few operations and nothing is counted.
//!
//! It needs `valgrind` (Debian: `apt-get install valgrind`). There is no thread, no clock and no randomised hashing in a
//! path, so two runs differ by less than one instruction per operation.

#[path = "common/chain.rs"]
mod chain;
#[path = "common/cycle.rs"]
mod cycle;
#[path = "common/parked.rs"]
mod parked;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::task::{Context as TaskContext, Poll, Waker};

use anyhow::{Context, Result, bail, ensure};
use chain::{COLUMNS, chain, run_at_once};
use cycle::Cycle;
use parked::Parked;
use tidegate_core::fair_queue::{BlockedSetId, ClassId, Eligibility, FairQueue, GroupId};
use tidegate_core::gate::Gate;
use tidegate_core::lease::Ledger;
use tidegate_core::request::{
    AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect, RequestLease,
};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::task::{BoundedBorrow, BoundedBorrowConfig, StrictFair, TaskPolicy};
use tidegate_core::time::{Clock, Duration, Instant};

/// Operations of the shorter run: more than there are groups, so that each group has had its turn.
const OPS: u64 = 12_000;
/// How much more than recorded a path may take.
const TOLERANCE: f64 = 0.10;

struct HotPath {
    name: &'static str,
    run: fn(u64) -> Result<()>,
}

const PATHS: [HotPath; 16] = [
    HotPath { name: "machine: try_acquire + release", run: uncontended },
    HotPath { name: "machine: release + grant, 10 waiting", run: |ops| hand_off(10, ops) },
    HotPath { name: "machine: release + grant, 1000 waiting", run: |ops| hand_off(1_000, ops) },
    HotPath { name: "fair queue: cycle, 8 groups", run: |ops| Turns::new(8)?.run(ops) },
    HotPath { name: "fair queue: cycle, 256 groups", run: |ops| Turns::new(256)?.run(ops) },
    HotPath { name: "fair queue: cycle, 10^4 groups", run: |ops| Turns::new(10_000)?.run(ops) },
    HotPath { name: "dispatcher: cycle, 8 groups", run: |ops| dispatch(StrictFair, 8, ops) },
    HotPath { name: "dispatcher: bounded cycle, 8 groups", run: |ops| dispatch(bounded()?, 8, ops) },
    HotPath { name: "dispatcher: cycle, 256 groups", run: |ops| dispatch(StrictFair, 256, ops) },
    HotPath { name: "dispatcher: bounded cycle, 256 groups", run: |ops| dispatch(bounded()?, 256, ops) },
    HotPath { name: "dispatcher: cycle, 10^4 groups", run: |ops| dispatch(StrictFair, 10_000, ops) },
    HotPath { name: "dispatcher: bounded cycle, 10^4 groups", run: |ops| dispatch(bounded()?, 10_000, ops) },
    HotPath { name: "pipeline: one task of a 5-column chain", run: pipeline },
    HotPath { name: "ledger: grant + release", run: ledger },
    HotPath { name: "gate: acquire + finish", run: gate },
    HotPath { name: "gate: hand-off to one of 1000 parked", run: gate_hand_off },
];

struct Bound {
    path: &'static str,
    beside: &'static str,
    most: f64,
}

const BOUNDS: [Bound; 7] = [
    Bound {
        path: "machine: release + grant, 1000 waiting",
        beside: "machine: release + grant, 10 waiting",
        most: 1.05,
    },
    Bound { path: "fair queue: cycle, 256 groups", beside: "fair queue: cycle, 8 groups", most: 1.5 },
    Bound { path: "fair queue: cycle, 10^4 groups", beside: "fair queue: cycle, 8 groups", most: 2.5 },
    Bound { path: "dispatcher: cycle, 256 groups", beside: "dispatcher: cycle, 8 groups", most: 1.5 },
    Bound { path: "dispatcher: cycle, 10^4 groups", beside: "dispatcher: cycle, 8 groups", most: 2.5 },
    Bound { path: "dispatcher: bounded cycle, 256 groups", beside: "dispatcher: bounded cycle, 8 groups", most: 1.5 },
    Bound { path: "dispatcher: bounded cycle, 10^4 groups", beside: "dispatcher: bounded cycle, 8 groups", most: 2.5 },
];

fn main() -> Result<ExitCode> {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument == "--bench");
    if let [flag, name, ops] = arguments.as_slice()
        && flag == "--run"
    {
        let path = PATHS.iter().find(|path| path.name == name).context("no such path")?;
        (path.run)(ops.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.is_empty() {
        // As in `cargo test --benches`: shows only that each path works. What is counted there would be debug code.
        return PATHS.iter().try_for_each(|path| (path.run)(8)).map(|()| ExitCode::SUCCESS);
    }
    let updates = arguments.iter().any(|argument| argument == "--update");
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    let mut counted = BTreeMap::new();
    for path in PATHS.iter().filter(|path| path.name.contains(filter)) {
        counted.insert(path.name.to_owned(), per_operation(path)?);
    }
    ensure!(!counted.is_empty(), "no path has `{filter}` in its name");

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/instructions.json");
    let recorded = read(&file)?;
    let mut over = compare(&counted, &recorded);
    if updates {
        write(&file, recorded, &counted)?;
        over = 0;
    }
    over += judge_ratios(&counted);
    Ok(if over == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// ---- counting ----

fn per_operation(path: &HotPath) -> Result<f64> {
    let (once, twice) = (count(path, OPS)?, count(path, 2 * OPS)?);
    // Tenths are read more easily, and what lies below them is noise of the loop.
    Ok((twice.saturating_sub(once) as f64 / OPS as f64 * 10.0).round() / 10.0)
}

/// Instructions of a process that sets the path up and runs it.
fn count(path: &HotPath, ops: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--run", path.name, &ops.to_string()])
        .output()
        .context("`valgrind` does not start; on Debian, `apt-get install valgrind`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("`{}` failed under valgrind:\n{said}", path.name);
    }
    let collected =
        said.lines().find_map(|line| line.split_once("Collected :")).context("callgrind counted nothing")?;
    collected.1.trim().parse().context("callgrind counted no number")
}

// ---- judging ----

fn read(file: &PathBuf) -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&text).with_context(|| format!("{} is not a map of numbers", file.display()))
}

fn write(file: &PathBuf, mut recorded: BTreeMap<String, f64>, counted: &BTreeMap<String, f64>) -> Result<()> {
    recorded.extend(counted.iter().map(|(name, count)| (name.clone(), *count)));
    recorded.retain(|name, _| PATHS.iter().any(|path| path.name == name));
    std::fs::write(file, serde_json::to_string_pretty(&recorded)? + "\n")?;
    println!("written to {}", file.display());
    Ok(())
}

/// Prints each path beside what is recorded; answers how many take too much.
fn compare(counted: &BTreeMap<String, f64>, recorded: &BTreeMap<String, f64>) -> usize {
    let is_judged = cfg!(target_arch = "x86_64");
    let mut over = 0;
    println!("{:<42} {:>12} {:>10} {:>8}", "instructions per operation", "now", "recorded", "change");
    for (name, now) in counted {
        let Some(before) = recorded.get(name) else {
            println!("{name:<42} {now:>12.1} {:>10} {:>8}", "-", "new");
            over += usize::from(is_judged);
            continue;
        };
        let change = now / before - 1.0;
        let mark = match change {
            _ if !is_judged => "  not judged on this architecture",
            change if change > TOLERANCE => "  over",
            change if change < -TOLERANCE => "  better: record it with --update",
            _ => "",
        };
        over += usize::from(is_judged && change > TOLERANCE);
        println!("{name:<42} {now:>12.1} {before:>10.1} {:>+7.1}%{mark}", change * 100.0);
    }
    over
}

fn judge_ratios(counted: &BTreeMap<String, f64>) -> usize {
    let mut over = 0;
    for Bound { path, beside, most } in &BOUNDS {
        if let (Some(count), Some(base)) = (counted.get(*path), counted.get(*beside)) {
            let ratio = count / base;
            let mark = if ratio > *most { "  over" } else { "" };
            over += usize::from(ratio > *most);
            println!("{path:<42} {ratio:>6.2} x {beside}, at most {most}{mark}");
        }
    }
    over
}

// ---- paths ----

fn admission(cap: u32) -> Result<(RequestAdmission, Request)> {
    let mut machine = RequestAdmission::new(RequestConfig::default())?;
    let model = machine.register(Instant::ZERO, "provider", "model", "default", cap)?;
    let request = Request::new(machine.resource(model, Domain::Chat).expect("a known model"));
    Ok((machine, request))
}

fn uncontended(ops: u64) -> Result<()> {
    let (mut machine, request) = admission(32)?;
    let mut now = Instant::ZERO;
    for _ in 0..ops {
        now += Duration::from_nanos(1);
        let lease = machine.try_acquire(now, black_box(&request))?;
        let _ = black_box(machine.release(now, lease, &Outcome::Success.into()));
    }
    Ok(())
}

/// One slot passed on among waiters; each that had it waits anew.
fn hand_off(waiting: usize, ops: u64) -> Result<()> {
    let (mut machine, request) = admission(1)?;
    let mut now = Instant::ZERO;
    let mut held: Option<RequestLease> = None;
    let wait = |machine: &mut RequestAdmission, now| match machine.acquire(now, black_box(&request)) {
        AcquireResult::Granted(lease) => Some(lease),
        _ => None,
    };
    for _ in 0..=waiting {
        held = wait(&mut machine, now).or(held);
    }
    for _ in 0..ops {
        now += Duration::from_nanos(1);
        let lease = held.take().context("the slot is held")?;
        let _ = machine.release(now, lease, &Outcome::Success.into());
        let Some(RequestEffect::Granted { lease, .. }) = machine.poll_effect() else { bail!("a waiter was woken") };
        held = Some(lease);
        ensure!(wait(&mut machine, now).is_none(), "the slot is held");
    }
    Ok(())
}

/// Groups that all wait for one class of which one may go at a time.
struct Turns {
    queue: FairQueue,
    class: ClassId,
    set: BlockedSetId,
}

impl Turns {
    fn new(groups: u64) -> Result<Self> {
        let mut queue = FairQueue::new();
        let (class, set) = (queue.add_class(), queue.add_blocked_set());
        for group in 0..groups {
            let id = queue.add_group(1.0)?;
            queue.enqueue(2 * group, id, class, 1.0);
            queue.enqueue(2 * group + 1, id, class, 1.0);
        }
        Ok(Self { queue, class, set })
    }

    /// Room for one comes back: one goes, the next is refused, and the item waits anew.
    fn run(&mut self, ops: u64) -> Result<()> {
        for _ in 0..ops {
            self.queue.unblock(self.set);
            let selection = self.queue.select(|_| Eligibility::Accept).context("a group waits")?;
            self.queue.commit(&selection)?;
            let refused = self.queue.select(|_| Eligibility::ClassBlocked(self.set));
            ensure!(refused.is_none(), "there is room for one only");
            let (item, group): (u64, GroupId) = (selection.candidate.item, selection.candidate.group);
            self.queue.enqueue(black_box(item), group, self.class, 1.0);
        }
        Ok(())
    }
}

/// Tasks of so many groups, all waiting for the slots that are cycled.
fn dispatch(policy: impl TaskPolicy, groups: usize, ops: u64) -> Result<()> {
    Cycle::new(policy, groups, 10_000)?.run(ops)
}

fn bounded() -> Result<BoundedBorrow> {
    Ok(BoundedBorrow::new(BoundedBorrowConfig::default())?)
}

/// One task of a chain of columns from ready to done, its share of its row group's life included.
fn pipeline(ops: u64) -> Result<()> {
    run_at_once(chain(ops / COLUMNS, 32)?)
}

fn ledger(ops: u64) -> Result<()> {
    let mut ledger = Ledger::new(1);
    for item in 0..ops {
        let lease = ledger.grant(item as u32, item);
        ensure!(ledger.release(black_box(lease)) == Ok(item), "the lease is live");
    }
    Ok(())
}

/// A host without a runtime: time stands still, no timer fires and nothing runs beside the caller.
#[derive(Clone, Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
}

impl Timer for Still {
    type Sleep = std::future::Pending<()>;

    fn sleep_until(&self, _: Instant) -> Self::Sleep {
        std::future::pending()
    }
}

impl<F> Spawn<F> for Still {
    fn spawn(&self, future: F) {
        // The gate takes a dropped timer for the end of its runtime; one that is never polled costs nothing.
        std::mem::forget(future);
    }
}

impl Host for Still {
    type Lock = parking_lot::RawMutex;
}

fn gate(ops: u64) -> Result<()> {
    let (machine, request) = admission(32)?;
    let gate = Gate::new(Still, machine);
    let context = &mut TaskContext::from_waker(Waker::noop());
    for _ in 0..ops {
        let acquire = pin!(gate.acquire(black_box(request)));
        let Poll::Ready(permit) = acquire.poll(context) else { bail!("there is room") };
        permit?.finish(Outcome::Success);
    }
    Ok(())
}

/// A call that ends hands its slot to the oldest of those that wait, and waits anew.
fn gate_hand_off(ops: u64) -> Result<()> {
    let (machine, request) = admission(1)?;
    let gate = Gate::new(Still, machine);
    let mut parked = Parked::new(1_000, || gate.acquire(black_box(request)));
    parked.pass_on(ops, |permit| permit.expect("the gate is not shut down").finish(Outcome::Success));
    Ok(())
}
