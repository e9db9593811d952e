//! Tests of wakers that panic: every other waiter is woken, no queue entry and no lease is lost, and the
//! panic reaches the caller after everything else is done.

// `waker` and `wakes` are used together.
#![allow(clippy::similar_names)]

use std::cell::{Cell, RefCell};
use std::future::{Future, Pending, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use tidegate_core::driver::{self, PipelineRun, RunHandle};
use tidegate_core::gate::{Acquire, Gate, OwnedPermit};
use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, StopReason, Strategy, TaskOutcome};
use tidegate_core::request::{Completion, DenialReason, Outcome, Request};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};

use crate::driver::{Work, chain};
use crate::support::{Runtime, StillHost, TestHost, Wakes, at, gate_of, held, ms, poll};

/// A waker that panics when it is woken, and counts the wakes.
#[derive(Default)]
struct PanickingWaker(AtomicUsize);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        resume_unwind(Box::new("a waker panicked"));
    }
}

/// Returns a waker whose clone panics while the flag is set.
fn panicking_clone(panics: &'static Cell<bool>) -> Waker {
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: `data` is the reference that `panicking_clone` was given, which is static.
        #[allow(unsafe_code)]
        let panics = unsafe { &*data.cast::<Cell<bool>>() };
        if panics.get() {
            resume_unwind(Box::new("a clone panicked"));
        }
        RawWaker::new(data, &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    // SAFETY: `clone` makes wakers of the same kind, the other functions do nothing, and the test has one
    // thread.
    #[allow(unsafe_code)]
    unsafe {
        Waker::from_raw(RawWaker::new(std::ptr::from_ref(panics).cast(), &TABLE))
    }
}

fn panics(code: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(code)).is_err()
}

/// Waiters of one gate, one of which has a waker that panics.
struct Queue<'a> {
    waiters: Vec<(Acquire<'a, StillHost>, Arc<Wakes>)>,
    panics: Arc<PanickingWaker>,
}

impl<'a> Queue<'a> {
    fn new(gate: &'a Gate<StillHost>, request: Request, len: usize, panics_at: usize) -> Self {
        let panics = Arc::<PanickingWaker>::default();
        let waiter = |position| {
            let (mut acquire, wakes) = (gate.acquire(request), Arc::<Wakes>::default());
            let waker = if position == panics_at { Arc::clone(&panics).into() } else { Arc::clone(&wakes).into() };
            assert!(poll(&mut acquire, &waker).is_pending());
            (acquire, wakes)
        };
        Self { waiters: (0..len).map(waiter).collect(), panics }
    }

    /// Returns how often each waiter was woken, including the one with the waker that panics.
    fn woken(&self) -> Vec<usize> {
        let mut woken: Vec<_> = self.waiters.iter().map(|(_, wakes)| wakes.count()).collect();
        let panicked = self.panics.0.load(Ordering::Relaxed);
        if panicked > 0 {
            let position = woken.iter().position(|count| *count == 0).expect("it is among them");
            woken[position] = panicked;
        }
        woken
    }
}

const WAITERS: usize = 40;

fn full_gate(cap: u32) -> (Gate<StillHost>, Request) {
    let (gate, resource) = gate_of(StillHost, cap);
    (gate, Request::new(resource))
}

#[test]
fn a_raised_cap_wakes_every_granted_waiter_whichever_waker_panics() {
    for panics_at in [0, 1, WAITERS - 1] {
        let (gate, request) = full_gate(1);
        let _held = gate.try_acquire(request).unwrap();
        let queue = Queue::new(&gate, request, WAITERS, panics_at);
        let raise = || drop(gate.with(|machine, now| machine.register(now, "provider", "model", "alias", 1_000)));
        assert!(panics(raise));
        let granted = held(&gate).0 - 1;
        assert!(granted > 0);
        let woken = queue.woken();
        assert!(woken.iter().take(granted).all(|count| *count == 1), "{panics_at}: {woken:?}");
        drop(queue);
        assert_eq!(held(&gate), (1, 0));
    }
}

#[test]
fn a_shutdown_wakes_every_waiter_whichever_waker_panics() {
    for panics_at in [0, 1, WAITERS - 1] {
        let (gate, request) = full_gate(1);
        let _held = gate.try_acquire(request).unwrap();
        let queue = Queue::new(&gate, request, WAITERS, panics_at);
        assert!(panics(|| gate.shutdown()));
        assert_eq!(queue.woken(), [1; WAITERS]);
        for (mut acquire, _) in queue.waiters {
            let Poll::Ready(Err(denial)) = poll(&mut acquire, Waker::noop()) else { panic!("it was denied") };
            assert_eq!(denial.reason, DenialReason::Shutdown);
        }
    }
}

/// A way to free a slot for the next waiter.
type Release = fn(&Gate<StillHost>, OwnedPermit<StillHost>);

const RELEASES: [(&str, Release); 3] = [
    ("finish", |_, permit| permit.finish(Outcome::Success)),
    ("drop", |_, permit| drop(permit)),
    ("with", |gate, permit| {
        gate.with(|machine, now| machine.register(now, "provider", "model", "alias", 2)).unwrap();
        drop(permit);
    }),
];

#[test]
fn a_waiter_whose_waker_panics_keeps_the_slot_that_it_was_granted() {
    for (name, release) in RELEASES {
        let (gate, request) = full_gate(1);
        let permit = gate.try_acquire_owned(request).unwrap();
        let mut queue = Queue::new(&gate, request, 2, 0);
        assert!(panics(|| release(&gate, permit)), "{name}");
        assert_eq!(queue.panics.0.load(Ordering::Relaxed), 1, "{name}");
        let Poll::Ready(Ok(permit)) = poll(&mut queue.waiters[0].0, Waker::noop()) else { panic!("{name}") };
        permit.finish(Outcome::Success);
        assert_eq!(queue.waiters[1].1.count(), 1, "{name}: the slot passes to the next waiter");
        drop(queue);
        assert_eq!(held(&gate), (0, 0), "{name}");
    }
}

#[test]
fn a_waker_that_panics_while_a_dropped_permit_unwinds_does_not_abort() {
    let (gate, request) = full_gate(1);
    let permit = gate.try_acquire(request).unwrap();
    let queue = Queue::new(&gate, request, 1, 0);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permit;
        resume_unwind(Box::new("user code panicked"));
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"user code panicked"), "the first panic is propagated");
    assert_eq!(queue.panics.0.load(Ordering::Relaxed), 1);
    drop(queue);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_dropped_acquire_passes_its_unpolled_grant_to_a_waiter_whose_waker_panics() {
    let (gate, request) = full_gate(1);
    let first = gate.try_acquire(request).unwrap();
    let mut unpolled = gate.acquire(request);
    assert!(poll(&mut unpolled, Waker::noop()).is_pending());
    let mut queue = Queue::new(&gate, request, 1, 0);
    first.finish(Outcome::Success);
    assert!(panics(|| drop(unpolled)));
    assert!(matches!(poll(&mut queue.waiters[0].0, Waker::noop()), Poll::Ready(Ok(_))));
    drop(queue);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn effects_are_delivered_although_the_closure_of_with_panics() {
    let (gate, request) = full_gate(1);
    let _held = gate.try_acquire(request).unwrap();
    let queue = Queue::new(&gate, request, 2, 9);
    assert!(panics(|| {
        gate.with(|machine, now| {
            machine.shutdown(now);
            resume_unwind(Box::new("the closure panicked"))
        });
    }));
    assert_eq!(queue.woken(), [1, 1]);
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// A host with a manual clock and a timer that never fires, which keeps spawned futures for the test to poll.
#[derive(Clone, Default)]
struct ManualHost {
    now_ms: Rc<Cell<u64>>,
    spawned: Rc<RefCell<Vec<Job>>>,
}

impl Clock for ManualHost {
    fn now(&self) -> Instant {
        at(self.now_ms.get())
    }
}

impl Timer for ManualHost {
    type Sleep = Pending<()>;

    fn sleep_until(&self, _at: Instant) -> Pending<()> {
        pending()
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for ManualHost {
    fn spawn(&self, future: F) {
        self.spawned.borrow_mut().push(Box::pin(future));
    }
}

impl Host for ManualHost {
    type Lock = <TestHost as Host>::Lock;
}

/// Calls `check` with a full gate of one slot and a waiter whose deadline has passed without a command. The
/// next command denies the waiter, and its waker panics.
fn gate_with_an_overdue_waiter(check: impl FnOnce(&Gate<ManualHost>, Request, OwnedPermit<ManualHost>)) {
    let host = ManualHost::default();
    let (gate, resource) = gate_of(host.clone(), 1);
    let request = Request::new(resource);
    let permit = gate.try_acquire_owned(request).unwrap();
    let panics = Arc::<PanickingWaker>::default();
    let mut overdue = gate.acquire(request.within(ms(5)));
    assert!(poll(&mut overdue, &Arc::clone(&panics).into()).is_pending());
    host.now_ms.set(6);
    check(&gate, request, permit);
    assert_eq!(panics.0.load(Ordering::Relaxed), 1);
    assert!(matches!(poll(&mut overdue, Waker::noop()), Poll::Ready(Err(_))));
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_first_poll_that_wakes_a_panicking_waker_stays_queued() {
    gate_with_an_overdue_waiter(|gate, request, permit| {
        let mut acquire = gate.acquire(request);
        assert!(panics(|| drop(poll(&mut acquire, Waker::noop()))));
        assert_eq!(held(gate), (1, 1), "it is queued");
        permit.finish(Outcome::Success);
        assert!(matches!(poll(&mut acquire, Waker::noop()), Poll::Ready(Ok(_))));
    });
    gate_with_an_overdue_waiter(|gate, request, permit| {
        let mut acquire = gate.acquire(request);
        assert!(panics(|| drop(poll(&mut acquire, Waker::noop()))));
        drop(acquire);
        assert_eq!(held(gate), (1, 0));
        drop(permit);
    });
}

#[test]
fn a_try_acquire_that_wakes_a_panicking_waker_loses_no_lease() {
    gate_with_an_overdue_waiter(|gate, request, permit| {
        let unwound = panics(|| drop(gate.try_acquire(request)));
        assert_eq!(held(gate).0, 1);
        let released = panics(|| drop(permit));
        assert!(unwound != released, "the overdue waiter is denied by one of them");
    });
}

#[test]
fn the_timer_denies_all_overdue_waiters_although_one_waker_panics() {
    for panics_at in 0..3 {
        let runtime = Runtime::new();
        let (gate, resource) = gate_of(runtime.host(), 8);
        runtime.run_ready();
        let request = Request::new(resource);
        let permits: Vec<_> = (0..8).map(|_| gate.try_acquire(request).unwrap()).collect();
        let panics = Arc::<PanickingWaker>::default();
        let mut waiters: Vec<_> =
            (0..3).map(|_| (gate.acquire(request.within(ms(5))), Arc::<Wakes>::default())).collect();
        for (position, (acquire, wakes)) in waiters.iter_mut().enumerate() {
            let waker = if position == panics_at { Waker::from(Arc::clone(&panics)) } else { Arc::clone(wakes).into() };
            assert!(poll(acquire, &waker).is_pending());
        }
        runtime.run_until(at(5));
        assert_eq!(panics.0.load(Ordering::Relaxed), 1);
        assert_eq!(waiters.iter().map(|(_, wakes)| wakes.count()).sum::<usize>(), 2, "{panics_at}");
        for (acquire, _) in &mut waiters {
            assert!(matches!(poll(acquire, Waker::noop()), Poll::Ready(Err(_))));
        }
        // The timer still works for later waiters.
        let late = runtime.block_on(gate.acquire(request.within(ms(7)))).unwrap();
        assert_eq!((late.unwrap_err().reason, runtime.host().now()), (DenialReason::QueueTimeout, at(12)));
        drop(permits);
        assert_eq!(held(&gate), (0, 0));
    }
}

#[test]
fn the_end_of_a_cooldown_grants_to_all_waiters_although_one_waker_panics() {
    for panics_at in 0..2 {
        let runtime = Runtime::new();
        let (gate, resource) = gate_of(runtime.host(), 8);
        let request = Request::new(resource);
        gate.try_acquire(request).unwrap().finish(Completion::rate_limited(Some(ms(100))));
        let panics = Arc::<PanickingWaker>::default();
        let mut waiters: Vec<_> = (0..2).map(|_| (gate.acquire(request), Arc::<Wakes>::default())).collect();
        for (position, (acquire, wakes)) in waiters.iter_mut().enumerate() {
            let waker = if position == panics_at { Waker::from(Arc::clone(&panics)) } else { Arc::clone(wakes).into() };
            assert!(poll(acquire, &waker).is_pending());
        }
        runtime.run_until(at(60_000));
        assert_eq!(panics.0.load(Ordering::Relaxed), 1);
        for (acquire, _) in waiters {
            drop(runtime.block_on(acquire).expect("the timer is alive").expect("it is granted"));
        }
        assert_eq!(held(&gate), (0, 0));
    }
}

#[test]
fn an_acquire_stays_queued_if_the_clone_of_its_waker_panics_in_the_first_poll() {
    let (gate, request) = full_gate(1);
    let first = gate.try_acquire(request).unwrap();
    let does_panic = Box::leak(Box::new(Cell::new(true)));
    let waker = panicking_clone(does_panic);
    let mut acquire = gate.acquire(request);
    assert!(panics(|| drop(poll(&mut acquire, &waker))));
    assert_eq!(held(&gate), (1, 1));
    let mut dropped = gate.acquire(request);
    assert!(panics(|| drop(poll(&mut dropped, &waker))));
    drop(dropped);
    assert_eq!(held(&gate), (1, 1));
    first.finish(Outcome::Success);
    assert!(matches!(poll(&mut acquire, &waker), Poll::Ready(Ok(_))), "a result is taken without a clone");
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_clone_that_panics_in_a_later_poll_keeps_the_previous_waker() {
    let (gate, request) = full_gate(1);
    let first = gate.try_acquire(request).unwrap();
    let waker = panicking_clone(Box::leak(Box::new(Cell::new(true))));
    let (mut acquire, wakes) = (gate.acquire(request), Arc::<Wakes>::default());
    assert!(poll(&mut acquire, &Arc::clone(&wakes).into()).is_pending());
    assert!(panics(|| drop(poll(&mut acquire, &waker))));
    assert_eq!(held(&gate), (1, 1));
    first.finish(Outcome::Success);
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll(&mut acquire, &waker), Poll::Ready(Ok(_))));
    assert_eq!(held(&gate), (0, 0));
}

/// A run that the test polls itself, with the futures that it spawned.
struct ManualRun {
    host: ManualHost,
    run: PipelineRun<ManualHost, Work>,
    handle: RunHandle<ManualHost>,
}

impl ManualRun {
    fn new(pipeline: Pipeline, work: Work) -> Self {
        let host = ManualHost::default();
        let run = driver::run(host.clone(), pipeline, Arc::new(work));
        let handle = run.handle();
        Self { host, run, handle }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<tidegate_core::pipeline::RunReport> {
        Pin::new(&mut self.run).poll(&mut Context::from_waker(waker))
    }

    fn jobs(&self) -> Vec<Job> {
        self.host.spawned.take()
    }
}

fn poll_job(job: &mut Job, waker: &Waker) -> bool {
    job.as_mut().poll(&mut Context::from_waker(waker)).is_ready()
}

#[test]
fn ends_of_workers_hooks_and_checkpoints_are_recorded_although_the_waker_of_the_run_panics() {
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().expect("a valid plan");
    let config = PipelineConfig { rows: 3, pre_batch_hook: true, post_batch_hook: true, ..PipelineConfig::default() };
    let pipeline = Pipeline::new(plan, config).expect("valid settings");
    let mut run = ManualRun::new(pipeline, Work::new(|_| async { TaskOutcome::Success }));
    let waker = Arc::<PanickingWaker>::default();
    let report = loop {
        if let Poll::Ready(report) = run.poll(&Arc::clone(&waker).into()) {
            break report;
        }
        let mut jobs = run.jobs();
        // The first one to end wakes the run, and the panic reaches the host.
        assert!(panics(|| assert!(!poll_job(&mut jobs[0], Waker::noop()), "it panics")));
        for job in &mut jobs {
            assert!(poll_job(job, Waker::noop()), "it ends once");
        }
    };
    assert_eq!((report.stop, report.rows_out), (StopReason::Completed, 3));
    // One wake for each of the pre-batch hook, the workers, the post-batch hook and the checkpoint.
    assert_eq!(waker.0.load(Ordering::Relaxed), 4);
}

#[test]
fn every_worker_is_woken_to_stop_whichever_waker_panics() {
    for panics_at in 0..3 {
        for drops_the_run in [false, true] {
            let mut run = ManualRun::new(chain(3, 3), Work::new(|_| pending()));
            assert!(run.poll(Waker::noop()).is_pending());
            let mut jobs = run.jobs();
            let (panicking, wakes) = (Arc::<PanickingWaker>::default(), Arc::<Wakes>::default());
            for (position, job) in jobs.iter_mut().enumerate() {
                let waker =
                    if position == panics_at { Waker::from(Arc::clone(&panicking)) } else { Arc::clone(&wakes).into() };
                assert!(!poll_job(job, &waker));
            }
            let handle = run.handle.clone();
            if drops_the_run {
                assert!(panics(|| drop(run)));
            } else {
                handle.cancel();
                assert!(panics(|| drop(run.poll(Waker::noop()))));
            }
            assert_eq!((panicking.0.load(Ordering::Relaxed), wakes.count()), (1, 2));
            assert!(jobs.iter_mut().all(|job| poll_job(job, Waker::noop())));
            assert_eq!((handle.progress().running, handle.progress().finished), (0, true));
        }
    }
}

#[test]
fn a_worker_whose_waker_cannot_be_cloned_releases_its_lease() {
    for is_first_poll in [true, false] {
        let mut run = ManualRun::new(chain(1, 1), Work::new(|_| pending()));
        assert!(run.poll(Waker::noop()).is_pending());
        let mut jobs = run.jobs();
        if !is_first_poll {
            assert!(!poll_job(&mut jobs[0], Waker::noop()));
        }
        let waker = panicking_clone(Box::leak(Box::new(Cell::new(true))));
        assert!(poll_job(&mut jobs[0], &waker));
        assert_eq!(run.handle.progress().running, 0);
        let Poll::Ready(report) = run.poll(Waker::noop()) else { panic!("a panic in a task stops the run") };
        let StopReason::Fatal { cause, .. } = report.stop else { panic!("{:?}", report.stop) };
        assert_eq!(cause, "a task panicked: a clone panicked");
    }
}

#[test]
fn a_run_whose_waker_cannot_be_cloned_loses_no_task() {
    for is_first_poll in [true, false] {
        let mut run = ManualRun::new(chain(2, 2), Work::new(|_| async { TaskOutcome::Success }));
        if !is_first_poll {
            assert!(run.poll(Waker::noop()).is_pending());
        }
        let waker = panicking_clone(Box::leak(Box::new(Cell::new(true))));
        assert!(panics(|| drop(run.poll(&waker))));
        let report = loop {
            if let Poll::Ready(report) = run.poll(Waker::noop()) {
                break report;
            }
            assert!(run.jobs().iter_mut().all(|job| poll_job(job, Waker::noop())));
        };
        assert_eq!((report.stop, report.rows_out), (StopReason::Completed, 2));
    }
}
