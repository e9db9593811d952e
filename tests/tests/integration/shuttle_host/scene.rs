//! A gate of one resource, those who use it, and what must hold when they are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::{future::Future, pin::Pin};

use shuttle::future::block_on;
use tidegate_core::gate::{AcquireOf, AcquireOwned, Gate, GateRef, OwnedPermit, PermitOf};
use tidegate_core::lease::ReleaseDiagnostics;
use tidegate_core::request::{Completion, Denial, Domain, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::time::Duration;

use super::{ScheduledBool, ShuttleHost, choose, in_order};

/// Clones are the same scene.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) host: ShuttleHost,
    pub(crate) gate: Gate<ShuttleHost>,
    resource: ResourceId,
    cap: usize,
    /// Calls that are out, counted apart from the gate.
    calls: Arc<AtomicUsize>,
}

impl Scene {
    pub(crate) fn new(cap: u32) -> Self {
        in_order(|| Self::new_in_order(cap))
    }

    fn new_in_order(cap: u32) -> Self {
        let host = ShuttleHost::new();
        let machine = RequestAdmission::new(RequestConfig::default()).expect("the defaults are valid");
        let gate = Gate::new(host.clone(), machine);
        host.settle();
        let resource = gate.with(|machine, now| {
            let model = machine.register(now, "provider", "model", "alias", cap).expect("a valid cap");
            machine.resource(model, Domain::Chat).expect("a known model")
        });
        Self { host, gate, resource, cap: cap as usize, calls: Arc::default() }
    }

    pub(crate) fn request(&self) -> Request {
        Request::new(self.resource)
    }

    pub(crate) fn hold(&self) -> OwnedPermit<ShuttleHost> {
        self.gate.try_acquire_owned(self.request()).expect("there is room")
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.gate.snapshot(self.resource).expect("it was registered").in_flight
    }

    /// Waits for a permit for as long as it takes, makes the call and gives the permit back.
    pub(crate) fn call(&self, request: Request, completion: impl Into<Completion>) -> Result<(), Denial> {
        let permit = block_on(self.gate.acquire_owned(request))?;
        self.use_up(permit, completion);
        Ok(())
    }

    /// Makes the call that `permit` allows.
    pub(crate) fn use_up(&self, permit: OwnedPermit<ShuttleHost>, completion: impl Into<Completion>) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(calls <= self.cap, "{calls} calls are out where {} are allowed", self.cap);
        shuttle::thread::yield_now();
        // Before the permit goes back, for at that moment it may be another's.
        self.calls.fetch_sub(1, Ordering::SeqCst);
        permit.finish(completion);
    }

    /// Asks once and goes away, whatever the answer.
    pub(crate) fn ask_and_leave(&self, request: Request) {
        let wakes = Waker::from(Arc::<Wakes>::default());
        let mut acquire = self.gate.acquire(request);
        drop(poll(&mut acquire, &wakes));
        shuttle::thread::yield_now();
    }

    /// To be called when all threads are joined: every permit is back, once, nobody waits, and the timer ends with the
    /// last handle. A thread that is never woken does not get this far: shuttle reports it as a deadlock.
    pub(crate) fn close(self) {
        in_order(|| self.close_in_order());
    }

    fn close_in_order(self) {
        let Self { host, gate, calls, .. } = self;
        host.settle();
        let (leases, waiters, irregular) =
            gate.with(|machine, _| (machine.active_leases(), machine.waiting(), machine.release_diagnostics()));
        assert_eq!(leases, 0, "active leases are left");
        assert_eq!(waiters, 0, "waiters are left");
        assert_eq!(irregular, ReleaseDiagnostics::default(), "a permit was not returned exactly once");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "calls are left");
        drop(gate);
        assert_eq!(host.join_task(), 0, "sleeps are left");
    }
}

/// A waiter in the queue, polled by hand.
pub(crate) struct Waiter {
    acquire: AcquireOwned<ShuttleHost>,
    wakes: Arc<Wakes>,
}

impl Waiter {
    pub(crate) fn queue(scene: &Scene, request: Request) -> Self {
        let (mut acquire, wakes) = (scene.gate.acquire_owned(request), Arc::<Wakes>::default());
        assert!(poll(&mut acquire, &Waker::from(Arc::clone(&wakes))).is_pending(), "the gate is full");
        Self { acquire, wakes }
    }

    /// The answer, which must be there and must have been announced by one wake.
    pub(crate) fn answer(mut self) -> Result<OwnedPermit<ShuttleHost>, Denial> {
        assert_eq!(self.wakes.0.load(Ordering::SeqCst), 1, "a waiter is woken once, when its answer is there");
        let Poll::Ready(answer) = poll(&mut self.acquire, Waker::noop()) else { panic!("woken without an answer") };
        answer
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn rate_limited(retry_after_ms: u64) -> Completion {
    Completion::rate_limited(Some(ms(retry_after_ms)))
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize, ScheduledBool);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        choose(&self.1);
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<G: GateRef>(acquire: &mut AcquireOf<G>, waker: &Waker) -> Poll<Result<PermitOf<G>, Denial>> {
    Pin::new(acquire).poll(&mut Context::from_waker(waker))
}
