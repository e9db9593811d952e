//! Instructions per operation of the hot paths, counted by callgrind through `gungraun`.
//!
//! ```text
//! cargo bench -p tidegate-instructions              all paths
//! cargo bench -p tidegate-instructions -- '*gate*'  the paths whose name contains `gate`
//! ```
//!
//! Each benchmark runs [`OPS`] operations; its setup is not counted. The numbers in this file are instructions per
//! operation on x86-64 with the pinned toolchain. A benchmark fails if it takes over 10 % more, and nothing is judged
//! on another architecture. The margin is for the C library, which selects how to copy memory by processor. No path
//! has a thread, a clock or randomised hashing, so two runs on one machine differ by less than one instruction per
//! operation, also on a busy machine.
//!
//! It needs `valgrind` and `gungraun-runner`; `tests/setup` installs both.

#![allow(
    clippy::must_use_candidate,
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    reason = "the macros of gungraun write such items"
)]

#[path = "common/chain.rs"]
mod chain;
#[path = "common/cycle.rs"]
mod cycle;
#[path = "common/parked.rs"]
mod parked;

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use chain::{COLUMNS, chain, run_at_once};
use cycle::Cycle;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use parked::Parked;
use tidegate_core::fair_queue::{BlockedSetId, ClassId, Eligibility, FairQueue, QueueGroupId};
use tidegate_core::gate::Gate;
use tidegate_core::lease::Ledger;
use tidegate_core::pipeline::Pipeline;
use tidegate_core::request::{
    AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect, RequestLease,
};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::task::{BoundedBorrow, BoundedBorrowConfig, StrictFair, TaskPolicy};
use tidegate_core::time::{Clock, Duration, Instant};

/// Operations of a benchmark: more than there are groups, so that each group has a turn.
const OPS: u64 = 12_000;

/// Recorded instructions per cycle with 8, 256 and 10,000 groups.
const FAIR_QUEUE: [u64; 3] = [1_234, 1_517, 1_825];
const STRICT_FAIR: [u64; 3] = [3_427, 3_707, 4_498];
const BOUNDED_BORROW: [u64; 3] = [4_111, 4_390, 5_155];
/// Recorded instructions to hand a slot of a gate to one of 1,000 waiters.
const GATE_HAND_OFF: u64 = 3_477;
/// Recorded instructions to release a call and grant another with 10 and 1,000 waiters.
const HAND_OFF: [u64; 2] = [2_377, 2_377];

/// Whether the cost grows at most as the design allows: 1.5 times from 8 to 256 groups, 2.5 times to 10,000.
const fn grows_slowly(cost: [u64; 3]) -> bool {
    cost[1] * 2 <= cost[0] * 3 && cost[2] * 2 <= cost[0] * 5
}
const _: () = assert!(grows_slowly(FAIR_QUEUE) && grows_slowly(STRICT_FAIR) && grows_slowly(BOUNDED_BORROW));
const _: () = assert!(HAND_OFF[1] * 20 <= HAND_OFF[0] * 21);

/// Fails a benchmark that takes over 10 % more than `recorded` instructions per operation.
fn at_most(recorded: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::with_args(["cache-sim=no"]);
    if cfg!(target_arch = "x86_64") {
        callgrind.hard_limits([(EventKind::Ir, recorded * OPS / 10 * 11)]);
    }
    LibraryBenchmarkConfig::default().tool(callgrind).clone()
}

// ---- request admission ----

fn admission(cap: u32) -> (RequestAdmission, Request) {
    let mut machine = RequestAdmission::new(RequestConfig::default()).expect("the default settings are valid");
    let model = machine.register(Instant::ZERO, "provider", "model", "default", cap).expect("the cap is in range");
    let request = Request::new(machine.resource(model, Domain::Chat).expect("the model is registered"));
    (machine, request)
}

#[library_benchmark(config = at_most(582))]
#[bench::of_32_slots(args = (32), setup = admission)]
fn try_acquire_and_release((mut machine, request): (RequestAdmission, Request)) -> RequestAdmission {
    let mut now = Instant::ZERO;
    for _ in 0..OPS {
        now += Duration::from_nanos(1);
        let lease = machine.try_acquire(now, black_box(&request)).expect("a slot is free");
        let _ = black_box(machine.release(now, lease, &Outcome::Success.into()));
    }
    machine
}

/// One slot, its holder, and waiters.
struct Waiting {
    machine: RequestAdmission,
    request: Request,
    held: Option<RequestLease>,
}

impl Waiting {
    fn new(waiters: usize) -> Self {
        let (machine, request) = admission(1);
        let mut waiting = Self { machine, request, held: None };
        for _ in 0..=waiters {
            waiting.held = waiting.acquire(Instant::ZERO).or(waiting.held.take());
        }
        waiting
    }

    fn acquire(&mut self, now: Instant) -> Option<RequestLease> {
        match self.machine.acquire(now, black_box(&self.request)) {
            AcquireResult::Granted(lease) => Some(lease),
            _ => None,
        }
    }
}

#[library_benchmark]
#[bench::among_10(args = (10), setup = Waiting::new, config = at_most(HAND_OFF[0]))]
#[bench::among_1000(args = (1_000), setup = Waiting::new, config = at_most(HAND_OFF[1]))]
fn release_and_grant(mut waiting: Waiting) -> Waiting {
    let mut now = Instant::ZERO;
    for _ in 0..OPS {
        now += Duration::from_nanos(1);
        let lease = waiting.held.take().expect("the slot is held between two hand-offs");
        let _ = waiting.machine.release(now, lease, &Outcome::Success.into());
        let Some(RequestEffect::Granted { lease, .. }) = waiting.machine.poll_effect() else {
            panic!("the oldest waiter is granted")
        };
        waiting.held = Some(lease);
        assert!(waiting.acquire(now).is_none(), "the slot is held");
    }
    waiting
}

// ---- fair queue and dispatcher ----

/// Groups that all wait for one class, of which one item may go at a time.
struct OneClass {
    queue: FairQueue,
    class: ClassId,
    set: BlockedSetId,
}

impl OneClass {
    fn new(groups: u64) -> Self {
        let mut queue = FairQueue::new();
        let (class, set) = (queue.add_class(), queue.add_blocked_set());
        for group in 0..groups {
            let id = queue.add_group(1.0).expect("the weight is in range");
            queue.enqueue(2 * group, id, class, 1.0);
            queue.enqueue(2 * group + 1, id, class, 1.0);
        }
        Self { queue, class, set }
    }
}

// One item goes, the next finds the class blocked, and the first item waits again.
#[library_benchmark]
#[bench::of_8_groups(args = (8), setup = OneClass::new, config = at_most(FAIR_QUEUE[0]))]
#[bench::of_256_groups(args = (256), setup = OneClass::new, config = at_most(FAIR_QUEUE[1]))]
#[bench::of_10000_groups(args = (10_000), setup = OneClass::new, config = at_most(FAIR_QUEUE[2]))]
fn fair_queue_cycle(OneClass { mut queue, class, set }: OneClass) -> FairQueue {
    for _ in 0..OPS {
        queue.unblock(set);
        let selection = queue.select(|_| Eligibility::Accept).expect("a group waits");
        queue.commit(&selection).expect("the queue did not change");
        let blocked = queue.select(|_| Eligibility::ClassBlocked(set));
        assert!(blocked.is_none(), "one item may go at a time");
        let (item, group): (u64, QueueGroupId) = (selection.candidate.item, selection.candidate.group);
        queue.enqueue(black_box(item), group, class, 1.0);
    }
    queue
}

/// 10,000 tasks that wait for four slots.
fn tasks<P: TaskPolicy>(policy: P, groups: usize) -> Cycle<P> {
    Cycle::new(policy, groups, 10_000).expect("the settings are valid")
}

fn strict_fair(groups: usize) -> Cycle<StrictFair> {
    tasks(StrictFair, groups)
}

fn bounded_borrow(groups: usize) -> Cycle<BoundedBorrow> {
    tasks(BoundedBorrow::new(BoundedBorrowConfig::default()).expect("the default settings are valid"), groups)
}

#[library_benchmark]
#[bench::of_8_groups(args = (8), setup = strict_fair, config = at_most(STRICT_FAIR[0]))]
#[bench::of_256_groups(args = (256), setup = strict_fair, config = at_most(STRICT_FAIR[1]))]
#[bench::of_10000_groups(args = (10_000), setup = strict_fair, config = at_most(STRICT_FAIR[2]))]
fn strict_fair_cycle(mut cycle: Cycle<StrictFair>) -> Cycle<StrictFair> {
    cycle.run(OPS).expect("the slots are taken between two cycles");
    cycle
}

#[library_benchmark]
#[bench::of_8_groups(args = (8), setup = bounded_borrow, config = at_most(BOUNDED_BORROW[0]))]
#[bench::of_256_groups(args = (256), setup = bounded_borrow, config = at_most(BOUNDED_BORROW[1]))]
#[bench::of_10000_groups(args = (10_000), setup = bounded_borrow, config = at_most(BOUNDED_BORROW[2]))]
fn bounded_borrow_cycle(mut cycle: Cycle<BoundedBorrow>) -> Cycle<BoundedBorrow> {
    cycle.run(OPS).expect("the slots are taken between two cycles");
    cycle
}

// ---- pipeline and ledger ----

fn rows_of_a_chain() -> Pipeline {
    chain(OPS / COLUMNS, 32).expect("the plan is valid")
}

// One task of a chain of five columns from ready to done, with its share of its row group.
#[library_benchmark(config = at_most(4_752))]
#[bench::of_5_columns(setup = rows_of_a_chain)]
fn pipeline_task(pipeline: Pipeline) {
    run_at_once(pipeline).expect("every task succeeds");
}

#[library_benchmark(config = at_most(61))]
#[bench::of_one_item(args = (1), setup = Ledger::new)]
fn ledger_grant_and_release(mut ledger: Ledger<u64>) -> Ledger<u64> {
    for item in 0..OPS {
        let lease = ledger.grant(item as u32, item);
        assert!(ledger.release(black_box(lease)) == Ok(item), "the lease is live");
    }
    ledger
}

// ---- gate ----

/// A host without a runtime: time stands still, and no timer fires.
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
        // A gate treats a dropped timer as the end of its runtime. A timer that is never polled costs nothing.
        std::mem::forget(future);
    }
}

impl Host for Still {
    type Lock = parking_lot::RawMutex;
}

fn gate(cap: u32) -> (Gate<Still>, Request) {
    let (machine, request) = admission(cap);
    (Gate::new(Still, machine), request)
}

#[library_benchmark(config = at_most(1_016))]
#[bench::of_32_slots(args = (32), setup = gate)]
fn gate_acquire_and_finish((gate, request): (Gate<Still>, Request)) -> Gate<Still> {
    let context = &mut TaskContext::from_waker(Waker::noop());
    for _ in 0..OPS {
        let acquire = pin!(gate.acquire(black_box(request)));
        let Poll::Ready(permit) = acquire.poll(context) else { panic!("a slot is free") };
        permit.expect("the gate is not shut down").finish(Outcome::Success);
    }
    gate
}

// A call that ends hands its slot to the oldest of 1,000 waiters, and waits again. Parking the waiters is counted,
// since they borrow the gate; it is under a tenth of the operations.
#[library_benchmark(config = at_most(GATE_HAND_OFF))]
#[bench::among_1000(args = (1), setup = gate)]
fn gate_hand_off((gate, request): (Gate<Still>, Request)) -> Gate<Still> {
    let mut parked = Parked::new(1_000, || gate.acquire(black_box(request)));
    parked.pass_on(OPS, |permit| permit.expect("the gate is not shut down").finish(Outcome::Success));
    drop(parked);
    gate
}

library_benchmark_group!(name = machine, benchmarks = [try_acquire_and_release, release_and_grant]);
library_benchmark_group!(
    name = scheduling,
    benchmarks = [fair_queue_cycle, strict_fair_cycle, bounded_borrow_cycle, pipeline_task, ledger_grant_and_release]
);
library_benchmark_group!(name = gates, benchmarks = [gate_acquire_and_finish, gate_hand_off]);
main!(library_benchmark_groups = [machine, scheduling, gates]);
