//! The lock, the hosts and common helpers of these tests.

use std::cell::Cell;
use std::future::{Future, Pending, pending};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use lock_api::{GuardNoSend, RawMutex};
use tidegate_core::gate::{AcquireOf, Gate, GateRef, GateTimer, PermitOf};
use tidegate_core::request::{Denial, Domain, Outcome, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::sim::executor::{Executor, SimHost, Sleep};
use tidegate_core::time::{Clock, Duration, Instant};

/// A lock for single-threaded tests. Taking it while it is held panics, because it would wait forever.
pub(crate) struct NonReentrantLock(AtomicBool);

// SAFETY: `try_lock` hands out the guard only to the caller that turned the flag from false to true, and only
// `unlock` turns it back, with the orderings of a lock; `lock` is `try_lock` or a panic.
#[allow(unsafe_code)]
unsafe impl RawMutex for NonReentrantLock {
    #[allow(clippy::declare_interior_mutable_const)] // The trait asks for a constant initial value.
    const INIT: Self = Self(AtomicBool::new(false));
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.try_lock().expect("host code or user code ran under the lock")
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        (!self.0.swap(true, Ordering::Acquire)).then_some(GuardNoSend::new())
    }

    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.0.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) type Runtime = Executor;
pub(crate) type TestHost = SimHost;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// Returns a gate with one resource of this cap.
pub(crate) fn gate_of<H: Host + Spawn<GateTimer<H>>>(host: H, cap: u32) -> (Gate<H>, ResourceId) {
    let machine = RequestAdmission::new(RequestConfig::default()).expect("the defaults are valid");
    let gate = Gate::new(host, machine);
    let resource = gate.with(|machine, now| {
        let model = machine.register(now, "provider", "model", "alias", cap).expect("a valid cap");
        machine.resource(model, Domain::Chat).expect("a known model")
    });
    (gate, resource)
}

/// Returns the numbers of active permits and of waiters.
pub(crate) fn held<H: Host>(gate: &Gate<H>) -> (usize, usize) {
    gate.with(|machine, _| (machine.active_leases(), machine.waiting()))
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn poll<G: GateRef>(acquire: &mut AcquireOf<G>, waker: &Waker) -> Poll<Result<PermitOf<G>, Denial>> {
    std::pin::Pin::new(acquire).poll(&mut Context::from_waker(waker))
}

/// A host whose time stands still and whose spawned futures never run. Unlike [`TestHost`] it is `Send` and
/// `Sync`, so that wakers can hold it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StillHost;

impl Clock for StillHost {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
}

impl Timer for StillHost {
    type Sleep = Pending<()>;

    fn sleep_until(&self, _at: Instant) -> Pending<()> {
        pending()
    }
}

impl<F: Future<Output = ()>> Spawn<F> for StillHost {
    fn spawn(&self, future: F) {
        // If the future were dropped, the gate would treat its timer as lost.
        std::mem::forget(future);
    }
}

impl Host for StillHost {
    type Lock = NonReentrantLock;
}

/// A [`TestHost`] that drops one of the futures that it should spawn, and counts how often its clock is read.
#[derive(Clone)]
pub(crate) struct DroppingHost {
    pub(crate) inner: TestHost,
    /// The number of futures that are spawned before one is dropped.
    pub(crate) until_drop: Rc<Cell<usize>>,
    pub(crate) clock_reads: Rc<Cell<usize>>,
}

impl DroppingHost {
    pub(crate) fn new(inner: TestHost, until_drop: usize) -> Self {
        Self { inner, until_drop: Rc::new(Cell::new(until_drop)), clock_reads: Rc::default() }
    }
}

impl Clock for DroppingHost {
    fn now(&self) -> Instant {
        self.clock_reads.set(self.clock_reads.get() + 1);
        self.inner.now()
    }
}

impl Timer for DroppingHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        self.inner.sleep_until(at)
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for DroppingHost {
    fn spawn(&self, future: F) {
        let left = self.until_drop.get();
        self.until_drop.set(left.wrapping_sub(1));
        if left == 0 {
            drop(future);
        } else {
            self.inner.spawn(future);
        }
    }
}

impl Host for DroppingHost {
    type Lock = <TestHost as Host>::Lock;
}

/// Returns how the last call of `resource` ended.
pub(crate) fn last_outcome<H: Host>(gate: &Gate<H>, resource: ResourceId) -> Option<Outcome> {
    gate.snapshot(resource)?.last_outcome
}
