//! The lock and the hosts of these tests.

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

/// A lock for tests of one thread: taking it while it is held is re-entry, and panics instead of waiting for
/// ever.
pub(crate) struct OnceAtATime(AtomicBool);

// SAFETY: `try_lock` hands out the guard only to the caller that turned the flag from false to true, and only
// `unlock` turns it back, with the orderings of a lock; `lock` is `try_lock` or a panic.
#[allow(unsafe_code)]
unsafe impl RawMutex for OnceAtATime {
    #[allow(clippy::declare_interior_mutable_const)] // The trait asks for a constant initial value.
    const INIT: Self = Self(AtomicBool::new(false));
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.try_lock().expect("foreign code ran under the lock")
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

/// A gate with one resource of this cap.
pub(crate) fn gate_of<H: Host + Spawn<GateTimer<H>>>(host: H, cap: u32) -> (Gate<H>, ResourceId) {
    let machine = RequestAdmission::new(RequestConfig::default()).expect("the defaults are valid");
    let gate = Gate::new(host, machine);
    let resource = gate.with(|machine, now| {
        let model = machine.register(now, "provider", "model", "alias", cap).expect("a valid cap");
        machine.resource(model, Domain::Chat).expect("a known model")
    });
    (gate, resource)
}

/// Permits out and waiters, as the machine counts them.
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

/// A host on which time stands still and what is spawned neither runs nor ends. Unlike [`TestHost`] it may be
/// sent to where wakers live.
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
        // To drop it would tell the gate that its timer is lost.
        std::mem::forget(future);
    }
}

impl Host for StillHost {
    type Lock = OnceAtATime;
}

/// A [`TestHost`] that drops some of what it is given to spawn, and counts how often its clock is read.
#[derive(Clone)]
pub(crate) struct CarelessHost {
    pub(crate) inner: TestHost,
    /// How many futures are spawned before one is dropped.
    pub(crate) until_drop: Rc<Cell<usize>>,
    pub(crate) clock_reads: Rc<Cell<usize>>,
}

impl CarelessHost {
    pub(crate) fn new(inner: TestHost, until_drop: usize) -> Self {
        Self { inner, until_drop: Rc::new(Cell::new(until_drop)), clock_reads: Rc::default() }
    }
}

impl Clock for CarelessHost {
    fn now(&self) -> Instant {
        self.clock_reads.set(self.clock_reads.get() + 1);
        self.inner.now()
    }
}

impl Timer for CarelessHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        self.inner.sleep_until(at)
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for CarelessHost {
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

impl Host for CarelessHost {
    type Lock = <TestHost as Host>::Lock;
}

/// How the last call of `resource` ended.
pub(crate) fn last_outcome<H: Host>(gate: &Gate<H>, resource: ResourceId) -> Option<Outcome> {
    gate.snapshot(resource)?.last_outcome
}
