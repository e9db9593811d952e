//! Tests with a clock that jumps a day ahead and back, as [`Clock`] documents.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use tidegate_core::budget::{Dimension, RateLimitFeedback};
use tidegate_core::gate::Gate;
use tidegate_core::request::{Completion, DenialReason, Outcome, Request, ResourceId};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::sim::executor::Sleep;
use tidegate_core::time::{Clock, Duration, Instant};

use crate::support::{Runtime, TestHost, at, gate_of, held, ms};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A host whose clock is that of the runtime plus an offset that the tests set.
#[derive(Clone)]
struct JumpingHost {
    inner: TestHost,
    ahead: Rc<Cell<Duration>>,
}

impl JumpingHost {
    fn new(runtime: &Runtime) -> Self {
        Self { inner: runtime.host(), ahead: Rc::default() }
    }

    fn jump(&self, ahead: Duration) {
        self.ahead.set(ahead);
    }
}

impl Clock for JumpingHost {
    fn now(&self) -> Instant {
        self.inner.now() + self.ahead.get()
    }
}

impl Timer for JumpingHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Sleep {
        // The instant is relative to the clock with its current offset.
        self.inner.sleep_until(Instant::ZERO + (at - (Instant::ZERO + self.ahead.get())))
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for JumpingHost {
    fn spawn(&self, future: F) {
        self.inner.spawn(future);
    }
}

impl Host for JumpingHost {
    type Lock = <TestHost as Host>::Lock;
}

/// Sends the gate a command that only updates its time.
fn read_clock(gate: &Gate<JumpingHost>, resource: ResourceId) {
    assert!(!gate.with(|machine, now| machine.correct_budget(
        now,
        resource,
        &RateLimitFeedback::of(Dimension::Requests)
    )));
}

/// Returns how often the gate's clock went backwards so far.
fn regressions(gate: &Gate<JumpingHost>, resource: ResourceId) -> u64 {
    read_clock(gate, resource);
    gate.with(|machine, _| machine.clock_regressions())
}

#[test]
fn a_cooldown_that_starts_while_the_clock_is_a_day_ahead_lasts_a_day_longer() {
    let runtime = Runtime::new();
    let host = JumpingHost::new(&runtime);
    let (gate, resource) = gate_of(host.clone(), 1);

    host.jump(DAY);
    let permit = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();
    permit.finish(Completion::rate_limited(Some(ms(2_000))));
    host.jump(Duration::ZERO);
    assert_eq!(regressions(&gate, resource), 1);

    let permit = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();
    assert_eq!(runtime.host().now(), Instant::ZERO + DAY + ms(2_000));
    permit.finish(Outcome::Success);

    // The clock has caught up, so a cooldown has its normal length again.
    let before = runtime.host().now();
    let permit = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();
    permit.finish(Completion::rate_limited(Some(ms(2_000))));
    drop(runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap());
    assert_eq!(runtime.host().now(), before + ms(2_000));
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn requests_that_depend_on_no_timer_are_served_after_a_clock_jump() {
    let runtime = Runtime::new();
    let host = JumpingHost::new(&runtime);
    let (gate, resource) = gate_of(host.clone(), 1);

    host.jump(DAY);
    read_clock(&gate, resource);
    runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap().finish(Outcome::Success);
    host.jump(Duration::ZERO);

    let permit = runtime.block_on(gate.acquire_owned(Request::new(resource))).unwrap().unwrap();
    let (releasing, sleep) = (Rc::new(Cell::new(Some(permit))), runtime.host().sleep_until(at(5)));
    let released = Rc::clone(&releasing);
    runtime.host().spawn(async move {
        sleep.await;
        released.take().expect("it is released once").finish(Outcome::Success);
    });
    runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap().finish(Outcome::Success);
    assert_eq!(runtime.host().now(), at(5));
}

#[test]
fn a_clock_jump_over_the_deadline_of_a_waiter_rejects_it_at_the_next_command() {
    let runtime = Runtime::new();
    let host = JumpingHost::new(&runtime);
    let (gate, resource) = gate_of(host.clone(), 1);
    let permit = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();

    let waiting = gate.acquire_owned(Request::new(resource).within(ms(60_000)));
    let denied = Rc::new(Cell::new(None));
    let answer = Rc::clone(&denied);
    runtime.host().spawn(async move { answer.set(waiting.await.err().map(|denial| denial.reason)) });
    runtime.run_ready();
    assert_eq!(held(&gate), (1, 1));

    host.jump(DAY);
    gate.with(|machine, now| machine.set_budgets(now, resource, &[])).unwrap();
    runtime.run_ready();
    assert_eq!(denied.take(), Some(DenialReason::QueueTimeout));
    permit.finish(Outcome::Success);
    assert_eq!(held(&gate), (0, 0));
}
