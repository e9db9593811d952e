//! Tests of `Gate::run`: when the call is polled, and which outcome the gate records.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::gate::{Classify, Gate};
use tidegate_core::request::{Completion, DenialReason, Outcome, Request, ResourceId};
use tidegate_core::runtime::Timer;
use tidegate_core::time::Clock;

use crate::support::{Runtime, StillHost, TestHost, at, gate_of, held, last_outcome, ms};

fn gate_with(cap: u32) -> (Runtime, TestHost, Gate<TestHost>, ResourceId) {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(host.clone(), cap);
    runtime.run_ready();
    (runtime, host, gate, resource)
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The error of a client.
#[derive(Debug, PartialEq, Eq)]
struct Status(u16);

impl Classify for Status {
    fn completion(&self) -> Completion {
        match self.0 {
            429 => Outcome::RateLimited.into(),
            _ => Outcome::ProviderFailure.into(),
        }
    }
}

#[test]
fn a_call_is_not_polled_before_its_permit_is_granted() {
    let (runtime, host, gate, resource) = gate_with(1);
    let first = gate.try_acquire_owned(Request::new(resource)).unwrap();
    let is_polled = Cell::new(false);
    let run = gate.run(Request::new(resource), async {
        is_polled.set(true);
        host.sleep_until(at(30)).await;
        Ok::<_, Outcome>(host.now())
    });
    let mut run = Box::pin(run);
    assert!(poll_once(run.as_mut()).is_pending());
    assert_eq!((is_polled.get(), held(&gate)), (false, (1, 1)));
    first.finish(Outcome::Success);
    assert!(!is_polled.get());
    assert_eq!(runtime.block_on(run).unwrap(), Ok(Ok(at(30))));
    assert_eq!((held(&gate), last_outcome(&gate, resource)), ((0, 0), Some(Outcome::Success)));
}

#[test]
fn the_gate_records_the_outcome_of_the_result_and_the_caller_gets_the_result() {
    let (runtime, host, gate, resource) = gate_with(4);
    let mut results = Vec::new();
    for (answer, expected) in [
        (Ok("fine"), Outcome::Success),
        (Err(Status(500)), Outcome::ProviderFailure),
        (Err(Status(429)), Outcome::RateLimited),
    ] {
        let answer = runtime.block_on(gate.run(Request::new(resource), async { answer })).unwrap().unwrap();
        results.push((answer, last_outcome(&gate, resource), expected));
    }
    for (answer, outcome, expected) in results {
        assert_eq!(outcome, Some(expected), "{answer:?}");
    }
    assert_eq!(gate.try_acquire(Request::new(resource)).unwrap_err().changes_at, Some(host.now() + ms(2_000)));
}

#[test]
fn a_closure_may_classify_the_result() {
    let (runtime, _host, gate, resource) = gate_with(4);
    let call = gate.run_with(Request::new(resource), async { 429 }, |status| {
        assert_eq!(held(&gate), (1, 0), "the slot is held until the result is classified");
        Completion {
            retry_after: Some(ms(700)),
            ..if *status == 429 { Outcome::RateLimited } else { Outcome::Success }.into()
        }
    });
    assert_eq!(runtime.block_on(call).unwrap(), Ok(429));
    assert_eq!(gate.try_acquire(Request::new(resource)).unwrap_err().changes_at, Some(at(700)));
}

#[test]
fn a_denied_call_is_never_polled() {
    let (runtime, _host, gate, resource) = gate_with(1);
    let _first = gate.try_acquire(Request::new(resource)).unwrap();
    let call = poll_fn(|_| -> Poll<Outcome> { panic!("there is no permit") });
    let denial = runtime.block_on(gate.run(Request::new(resource).within(ms(5)), call)).unwrap().unwrap_err();
    assert_eq!((denial.reason, held(&gate)), (DenialReason::QueueTimeout, (1, 0)));
    let unknown = Request::new(ResourceId::new(0, 9));
    let denial = runtime.block_on(gate.run(unknown, pending::<Outcome>())).unwrap().unwrap_err();
    assert_eq!(denial.reason, DenialReason::Unregistered);
}

/// Records the number of active permits when it is dropped.
struct ReadsPermitsOnDrop<'a>(&'a Gate<TestHost>, Rc<Cell<Option<usize>>>);

impl Drop for ReadsPermitsOnDrop<'_> {
    fn drop(&mut self) {
        self.1.set(Some(held(self.0).0));
    }
}

#[test]
fn a_run_that_is_dropped_drops_its_call_first_and_releases_its_permit_as_cancelled() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let permits_at_drop = Rc::new(Cell::new(None));
    let guard = ReadsPermitsOnDrop(&gate, Rc::clone(&permits_at_drop));
    let mut run = Box::pin(gate.run(Request::new(resource), async move {
        let _guard = guard;
        pending::<Outcome>().await
    }));
    let mut waiting = Box::pin(gate.run(Request::new(resource), pending::<Outcome>()));
    assert!(poll_once(run.as_mut()).is_pending() && poll_once(waiting.as_mut()).is_pending());
    assert_eq!(held(&gate), (1, 1));
    drop(run);
    assert_eq!(permits_at_drop.get(), Some(1), "the slot is held until the call is dropped");
    assert_eq!((held(&gate), last_outcome(&gate, resource)), ((1, 0), Some(Outcome::LocalCancelled)));
    drop(waiting);
    assert_eq!(held(&gate), (0, 0), "an unpolled grant is released, too");
}

#[test]
fn a_call_that_panics_releases_its_permit() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let call = poll_fn(|_| -> Poll<Outcome> { std::panic::resume_unwind(Box::new("user code panicked")) });
    let mut run = Box::pin(gate.run(Request::new(resource), call));
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(run.as_mut()))).is_err());
    drop(run);
    assert_eq!((held(&gate), last_outcome(&gate, resource)), ((0, 0), Some(Outcome::LocalCancelled)));
}

#[test]
fn a_call_may_use_the_gate_it_runs_under() {
    let (runtime, _host, gate, resource) = gate_with(2);
    let nested = gate.run(Request::new(resource), async {
        gate.run(Request::new(resource), async { Outcome::Success }).await.map_or(Outcome::Unexpected, |inner| inner)
    });
    assert_eq!(runtime.block_on(nested).unwrap(), Ok(Outcome::Success));
    assert_eq!(held(&gate), (0, 0));
}

/// Compiles only if the future is `Send`.
fn assert_send<T: Send>(_: &T) {}

#[test]
fn a_run_is_send_if_its_parts_are_send() {
    let (gate, resource) = gate_of(StillHost, 1);
    assert_send(&gate.run(Request::new(resource), async { Outcome::Success }));
    assert_send(&gate.run_with(Request::new(resource), async { 3 }, |_| Outcome::Success.into()));
}
