//! Tests of the host checks: they pass for a correct host, and report the rule that a faulty host violates.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

use futures_timer::Delay;
use lock_api::{GuardSend, RawMutex};
use pollster::block_on;
use tidegate_core::runtime::{
    Host, HostError, HostRule, Spawn, Timer, check_host, check_host_within, check_spawn, check_spawn_within,
    check_threads, check_threads_within, watch_shutdown,
};
use tidegate_core::sim::executor::{Executor, SimHost, Sleep};
use tidegate_core::time::{Clock, Duration, Instant};

/// The fault of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    ClockGoesBack,
    RoundsDown,
    CountsMillisIn32Bits,
    PanicsWhenFar,
    NeverFires,
    PendingWhenPast,
    WakesNoWaker,
    WakesTheFirstWaker,
    PanicsWhenDropped,
    DropCancelsAll,
    DropsWhatItSpawns,
    NeverPolls,
    PollsOnce,
    RunsOneAfterAnother,
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone)]
struct FaultyHost {
    inner: SimHost,
    fault: Fault,
    reads: Rc<Cell<u64>>,
    /// The number of times that all sleeps were cancelled.
    cancelled: Rc<Cell<usize>>,
    /// The futures that one task runs, one after another.
    queue: Rc<RefCell<Vec<Job>>>,
}

struct FaultySleep {
    host: FaultyHost,
    at: Instant,
    inner: Sleep,
    first: Option<Waker>,
    cancelled_before: usize,
}

impl FaultyHost {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

impl Clock for FaultyHost {
    fn now(&self) -> Instant {
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        let goes_back = self.is(Fault::ClockGoesBack) && reads.is_multiple_of(3);
        let base = self.inner.now() + Duration::from_nanos(if self.is(Fault::ClockGoesBack) { 5 } else { 0 });
        Instant::from_nanos(base.as_nanos() - u64::from(goes_back))
    }
}

impl Timer for FaultyHost {
    type Sleep = FaultySleep;

    fn sleep_until(&self, at: Instant) -> FaultySleep {
        const NANOS_PER_MS: u64 = 1_000_000;
        let nanos = at.as_nanos();
        assert!(!self.is(Fault::PanicsWhenFar) || nanos < 1 << 62, "overflow in the timer");
        let inner_at = match self.fault {
            Fault::RoundsDown => nanos / NANOS_PER_MS * NANOS_PER_MS,
            Fault::CountsMillisIn32Bits => u64::from((nanos.div_ceil(NANOS_PER_MS)) as u32) * NANOS_PER_MS,
            Fault::PendingWhenPast if at <= self.inner.now() => nanos + 60_000 * NANOS_PER_MS,
            _ => nanos,
        };
        let inner = self.inner.sleep_until(Instant::from_nanos(inner_at));
        FaultySleep { host: self.clone(), at, inner, first: None, cancelled_before: self.cancelled.get() }
    }
}

impl Future for FaultySleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_cancelled = self.cancelled_before < self.host.cancelled.get();
        if self.host.is(Fault::NeverFires) || is_cancelled {
            return Poll::Pending;
        }
        let waker = self.first.get_or_insert_with(|| context.waker().clone()).clone();
        let waker = match self.host.fault {
            Fault::WakesNoWaker => Waker::noop(),
            Fault::WakesTheFirstWaker => &waker,
            _ => context.waker(),
        };
        Pin::new(&mut self.inner).poll(&mut Context::from_waker(waker))
    }
}

impl Drop for FaultySleep {
    fn drop(&mut self) {
        if self.host.is(Fault::DropCancelsAll) && self.host.now() < self.at {
            self.host.cancelled.set(self.host.cancelled.get() + 1);
        }
        let is_armed = self.first.is_some() && self.host.now() < self.at;
        assert!(!(self.host.is(Fault::PanicsWhenDropped) && is_armed), "dropped while it was armed");
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for FaultyHost {
    fn spawn(&self, future: F) {
        match self.fault {
            Fault::DropsWhatItSpawns => drop(future),
            Fault::NeverPolls => std::mem::forget(future),
            Fault::PollsOnce => {
                let mut future = Box::pin(future);
                let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                std::mem::forget(future);
            }
            Fault::RunsOneAfterAnother => {
                self.queue.borrow_mut().push(Box::pin(future));
                if self.queue.borrow().len() == 1 {
                    let queue = Rc::clone(&self.queue);
                    self.inner.spawn(async move {
                        loop {
                            let next = queue.borrow_mut().pop();
                            let Some(next) = next else { return };
                            next.await;
                        }
                    });
                }
            }
            _ => self.inner.spawn(future),
        }
    }
}

impl Host for FaultyHost {
    type Lock = <SimHost as Host>::Lock;
}

fn with_host(fault: Fault, check: impl AsyncFn(FaultyHost, Sleep) -> Result<(), HostError>) -> HostError {
    let executor = Executor::new();
    let inner = executor.host();
    let limit = inner.sleep_until(Instant::ZERO + Duration::from_secs(3_600));
    let host = FaultyHost { inner, fault, reads: Rc::default(), cancelled: Rc::default(), queue: Rc::default() };
    let checked = executor.block_on(check(host, limit)).expect("the time limit ends the check");
    checked.expect_err("the fault is found")
}

/// Returns the error that the check of clock, timer and lock finds in a host with this fault.
fn check_faulty(fault: Fault) -> HostError {
    with_host(fault, async |host, limit| check_host_within(host, limit).await)
}

/// Returns the error that the check of the spawner finds in a host with this fault.
fn check_faulty_spawn(fault: Fault) -> HostError {
    with_host(fault, async |host, limit| check_spawn_within(host, limit).await)
}

#[test]
fn a_correct_host_passes() {
    let executor = Executor::new();
    assert_eq!(executor.block_on(check_host(executor.host())), Ok(Ok(())));
    assert_eq!(executor.block_on(check_spawn(executor.host())), Ok(Ok(())));
}

#[test]
fn a_clock_that_goes_backwards_is_found() {
    assert_eq!(check_faulty(Fault::ClockGoesBack).rule, HostRule::ClockNeverGoesBack);
}

#[test]
fn a_timer_that_fires_early_is_found() {
    let error = check_faulty(Fault::RoundsDown);
    assert_eq!(error.rule, HostRule::SleepNeverEndsEarly);
    let text =
        "a sleep of 1ns: it ended at 0ns, expected no end before 1ns (the rule: a sleep never ends before its instant)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_timer_that_overflows_is_found() {
    let error = check_faulty(Fault::CountsMillisIn32Bits);
    assert_eq!(error.rule, HostRule::FarSleepStaysPending, "{error}");
}

#[test]
fn a_timer_that_panics_on_a_far_instant_is_found_with_its_message() {
    let error = check_faulty(Fault::PanicsWhenFar);
    assert_eq!((error.rule, error.found.as_str()), (HostRule::HostNeverPanics, "it panicked: overflow in the timer"));
    assert_eq!(error.step, "a sleep until 9223372036854775807ns");
}

#[test]
fn a_timer_that_never_fires_is_found_at_the_time_limit() {
    assert_eq!(check_faulty(Fault::NeverFires).rule, HostRule::PastSleepEndsAtOnce);
}

#[test]
fn a_sleep_that_stays_pending_after_its_instant_is_found() {
    let error = check_faulty(Fault::PendingWhenPast);
    assert_eq!(error.rule, HostRule::PastSleepEndsAtOnce, "{error}");
}

#[test]
fn a_sleep_that_wakes_nothing_or_only_its_first_waker_is_found() {
    let error = check_faulty(Fault::WakesNoWaker);
    assert_eq!((error.rule, error.step.as_str()), (HostRule::SleepEnds, "a sleep of 1ns"));
    let error = check_faulty(Fault::WakesTheFirstWaker);
    assert_eq!(error.rule, HostRule::SleepEnds);
    assert_eq!(error.step, "a sleep of 2ms that is polled with one waker, then with another");
}

#[test]
fn a_drop_that_panics_or_cancels_other_sleeps_is_found() {
    assert_eq!(check_faulty(Fault::PanicsWhenDropped).rule, HostRule::HostNeverPanics);
    assert_eq!(check_faulty(Fault::DropCancelsAll).rule, HostRule::DroppedSleepIsHarmless);
}

#[test]
fn a_spawner_that_drops_a_future_unrun_is_found() {
    let error = check_faulty_spawn(Fault::DropsWhatItSpawns);
    assert_eq!(error.rule, HostRule::SpawnedFutureIsKept);
    assert_eq!(error.found, "one was dropped after 0 polls, 0 polls in all");
}

#[test]
fn a_spawner_that_does_not_complete_its_futures_is_found() {
    for (fault, found) in [
        (Fault::NeverPolls, "0 had begun and 0 had ended, 0 polls in all, when the limit was over"),
        (Fault::PollsOnce, "3 had begun and 0 had ended, 3 polls in all, when the limit was over"),
        (Fault::RunsOneAfterAnother, "1 had begun and 0 had ended, 1 polls in all, when the limit was over"),
    ] {
        let error = check_faulty_spawn(fault);
        assert_eq!((error.rule, error.found.as_str()), (HostRule::SpawnedFutureRuns, found), "{fault:?}");
    }
}

#[test]
fn a_runtime_that_keeps_its_futures_after_shutdown_is_found() {
    let executor = Executor::new();
    let watch = watch_shutdown(&executor.host()).expect("nothing panics");
    assert_eq!(watch.check().map_err(|error| error.rule), Err(HostRule::ShutdownDropsFutures));
    drop(executor);
    assert_eq!(watch.check(), Ok(()));

    let executor = Executor::new();
    let host = FaultyHost {
        inner: executor.host(),
        fault: Fault::NeverPolls,
        reads: Rc::default(),
        cancelled: Rc::default(),
        queue: Rc::default(),
    };
    let watch = watch_shutdown(&host).expect("nothing panics");
    drop((host, executor));
    assert_eq!(watch.check().map_err(|error| error.rule), Err(HostRule::ShutdownDropsFutures));
}

/// A host for several threads, whose lock is a parameter.
struct ThreadHost<L> {
    origin: std::time::Instant,
    lock: PhantomData<fn() -> L>,
}

impl<L> ThreadHost<L> {
    fn new() -> Self {
        Self { origin: std::time::Instant::now(), lock: PhantomData }
    }
}

impl<L> Clone for ThreadHost<L> {
    fn clone(&self) -> Self {
        Self { origin: self.origin, lock: PhantomData }
    }
}

impl<L> Clock for ThreadHost<L> {
    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed().into()
    }
}

impl<L> Timer for ThreadHost<L> {
    type Sleep = Delay;

    fn sleep_until(&self, at: Instant) -> Delay {
        Delay::new((at - self.now()).into())
    }
}

impl<L: RawMutex + 'static> Host for ThreadHost<L> {
    type Lock = L;
}

/// A lock that is acquired although it is held, or one that stays locked.
struct FaultyLock<const STAYS_LOCKED: bool>(AtomicBool);

// SAFETY: it is unsound on purpose. What it guards here is used by one thread, or has no data.
#[allow(unsafe_code)]
unsafe impl<const STAYS_LOCKED: bool> RawMutex for FaultyLock<STAYS_LOCKED> {
    #[allow(clippy::declare_interior_mutable_const)] // The trait asks for a constant initial value.
    const INIT: Self = Self(AtomicBool::new(false));
    type Guard = GuardSend;

    fn lock(&self) -> GuardSend {
        self.0.store(true, Ordering::SeqCst);
        GuardSend::new()
    }

    fn try_lock(&self) -> Option<GuardSend> {
        (!STAYS_LOCKED || !self.0.swap(true, Ordering::SeqCst)).then_some(GuardSend::new())
    }

    unsafe fn unlock(&self, _guard: GuardSend) {}

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_correct_host_for_several_threads_passes() {
    assert_eq!(block_on(check_threads(ThreadHost::<parking_lot::RawMutex>::new())), Ok(()));
}

#[test]
fn a_lock_that_does_not_exclude_is_found_on_one_thread_and_between_threads() {
    let of_one = |error: HostError| (error.rule, error.found);
    let twice = Err((HostRule::LockExcludes, "it was acquired twice".to_owned()));
    assert_eq!(block_on(check_host(ThreadHost::<FaultyLock<false>>::new())).map_err(of_one), twice);
    assert_eq!(block_on(check_threads(ThreadHost::<FaultyLock<false>>::new())).map_err(of_one), twice);
    let locked = Err((HostRule::LockExcludes, "it stayed locked".to_owned()));
    assert_eq!(block_on(check_host(ThreadHost::<FaultyLock<true>>::new())).map_err(of_one), locked);
    assert_eq!(block_on(check_threads(ThreadHost::<FaultyLock<true>>::new())).map_err(of_one), locked);
}

/// Sends the number of the thread that wakes it.
struct SendsThread(Sender<ThreadId>);

impl Wake for SendsThread {
    fn wake(self: Arc<Self>) {
        // Fails only if the executor has ended.
        let _ = self.0.send(thread::current().id());
    }
}

/// An executor that ignores wakes from other threads. It polls the future once more after the first of them,
/// with `is_over` set: the limit of a check ends then.
fn block_on_deaf(future: impl Future<Output = Result<(), HostError>>, is_over: &Cell<bool>) -> Result<(), HostError> {
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(SendsThread(sender)));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        if woken.recv().expect("the waker lives as long as this") != thread::current().id() {
            is_over.set(true);
        }
    }
}

#[test]
fn an_executor_that_ignores_wakes_from_other_threads_is_found() {
    let is_over = Cell::new(false);
    let limit = poll_fn(|_| if is_over.get() { Poll::Ready(()) } else { Poll::Pending });
    let host = ThreadHost::<parking_lot::RawMutex>::new();
    let error = block_on_deaf(check_threads_within(host, limit), &is_over).expect_err("the fault is found");
    assert_eq!(error.rule, HostRule::WakesFromOtherThreads);
    assert_eq!(error.step, "a thread wakes the task that awaits the check after 2ms");
}
