//! The faults that systems of this kind are known to have had. Each has one test here, named for it, that fails when it
//! comes back; the line above a test says what went wrong elsewhere.

// A run takes its workload in an `Arc`; on these hosts there is one thread.
#![allow(clippy::arc_with_non_send_sync)]

mod calls;
mod events;
mod input;
mod runs;
mod tasks;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use tidegate_core::gate::{Gate, GateTimer};
use tidegate_core::request::{
    AcquireResult, Domain, LimitConfig, Request, RequestAdmission, RequestConfig, RequestLease, ResourceId,
};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::sim::executor::{Executor, SimHost, Sleep};
use tidegate_core::time::{Clock, Duration, Instant};

type Runtime = Executor;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// A machine with one resource of this cap.
fn machine_of(cap: u32, limit: LimitConfig) -> (RequestAdmission, ResourceId) {
    let config = RequestConfig { limit, ..RequestConfig::default() };
    let mut machine = RequestAdmission::new(config).expect("valid settings");
    let model = machine.register(Instant::ZERO, "provider", "model", "alias", cap).expect("a valid cap");
    let resource = machine.resource(model, Domain::Chat).expect("a known model");
    (machine, resource)
}

/// A gate with one resource of this cap.
fn gate_of<H: Host + Spawn<GateTimer<H>>>(host: H, cap: u32) -> (Gate<H>, ResourceId) {
    let (machine, resource) = machine_of(cap, LimitConfig::default());
    (Gate::new(host, machine), resource)
}

/// Permits out and waiters.
fn held<H: Host>(gate: &Gate<H>) -> (usize, usize) {
    gate.with(|machine, _| (machine.active_leases(), machine.waiting()))
}

fn take(machine: &mut RequestAdmission, now: Instant, resource: ResourceId) -> RequestLease {
    let AcquireResult::Granted(lease) = machine.acquire(now, &Request::new(resource)) else { panic!("there is room") };
    lease
}

/// What a watched host has been asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    polls: usize,
    clock_reads: usize,
    timers: usize,
}

/// A host in virtual time that counts what it is asked for, and drops one of the futures it is given to spawn.
#[derive(Clone)]
struct WatchedHost {
    inner: SimHost,
    work: Rc<Cell<Work>>,
    spawned: Rc<Cell<usize>>,
    /// Which of them it drops at once, counted from 0.
    drops: Option<usize>,
}

impl WatchedHost {
    fn new(runtime: &Runtime) -> Self {
        Self { inner: runtime.host(), work: Rc::default(), spawned: Rc::default(), drops: None }
    }

    fn count(&self, what: impl FnOnce(&mut Work)) {
        let mut work = self.work.get();
        what(&mut work);
        self.work.set(work);
    }

    /// Counts the polls of `future`.
    fn watch<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let host = self.clone();
        async move {
            let mut future = pin!(future);
            poll_fn(|context| {
                host.count(|work| work.polls += 1);
                assert!(host.work.get().polls < 100_000, "a loop spins");
                future.as_mut().poll(context)
            })
            .await
        }
    }
}

impl Clock for WatchedHost {
    fn now(&self) -> Instant {
        self.count(|work| work.clock_reads += 1);
        self.inner.now()
    }
}

impl Timer for WatchedHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        self.count(|work| work.timers += 1);
        self.inner.sleep_until(at)
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for WatchedHost {
    fn spawn(&self, future: F) {
        let number = self.spawned.replace(self.spawned.get() + 1);
        if self.drops == Some(number) {
            drop(future);
        } else {
            self.inner.spawn(self.watch(future));
        }
    }
}

impl Host for WatchedHost {
    type Lock = <SimHost as Host>::Lock;
}
