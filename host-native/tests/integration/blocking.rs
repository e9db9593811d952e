//! Blocking acquires: where they wait, and where they return an error.

use std::time::Duration as StdDuration;

use tidegate_core::gate::Gate;
use tidegate_core::request::{DenialReason, Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::time::Duration;
use tidegate_native::blocking::{AcquireBlocking, BlockingError};
use tidegate_native::host::TokioHost;
use tokio::runtime::{Builder, Runtime};
use tokio::task::coop::unconstrained;
use tokio::task::{LocalSet, block_in_place, spawn_blocking};

/// Returns a gate on `runtime` that allows one call at a time.
fn gate_on(runtime: &Runtime) -> (Gate<TokioHost>, Request) {
    let _inside = runtime.enter();
    let machine = RequestAdmission::new(RequestConfig::default()).unwrap();
    let gate = Gate::new(TokioHost::current().unwrap(), machine);
    let resource = gate.with(|machine, now| {
        let model = machine.register(now, "provider", "model", "alias", 1).unwrap();
        machine.resource(model, Domain::Chat).expect("a known model")
    });
    (gate, Request::new(resource))
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// Returns whether a blocking acquire fails here. A permit is available, so only the context decides.
fn is_rejected(gate: &Gate<TokioHost>, request: Request) -> bool {
    match gate.acquire_blocking(request) {
        Ok(permit) => {
            permit.finish(Outcome::Success);
            false
        }
        Err(error) => {
            assert_eq!(error, BlockingError::InAsyncContext);
            true
        }
    }
}

#[test]
fn it_fails_in_tasks_and_in_block_on_of_both_runtime_flavours() {
    for runtime in [one_thread(), many_threads()] {
        let (gate, request) = gate_on(&runtime);
        assert!(runtime.block_on(async { is_rejected(&gate, request) }), "block_on");
        assert!(runtime.handle().block_on(async { is_rejected(&gate, request) }), "Handle::block_on");
        let task = runtime.spawn({
            let gate = gate.clone();
            async move { is_rejected(&gate, request) && is_rejected(&gate, request) }
        });
        assert!(runtime.block_on(task).unwrap(), "a task");
        let free = runtime.spawn({
            let gate = gate.clone();
            unconstrained(async move { is_rejected(&gate, request) })
        });
        assert!(runtime.block_on(free).unwrap(), "a task without a budget");
        assert!(LocalSet::new().block_on(&one_thread(), async { is_rejected(&gate, request) }), "a LocalSet");
    }
}

#[test]
fn it_fails_in_a_task_without_remaining_budget_and_leaves_a_budget_unchanged() {
    let runtime = many_threads();
    let (gate, request) = gate_on(&runtime);
    runtime.block_on(async {
        // One of 128 steps is left after this. A check that consumed a step would use it up.
        for _ in 0..127 {
            tokio::task::coop::consume_budget().await;
        }
        assert!(is_rejected(&gate, request) && tokio::task::coop::has_budget_remaining());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(step) = tokio::task::coop::poll_proceed(&mut context) {
            step.made_progress();
        }
        assert!(!tokio::task::coop::has_budget_remaining() && is_rejected(&gate, request));
    });
}

#[test]
fn it_waits_on_plain_threads_and_where_tokio_allows_blocking() {
    for runtime in [one_thread(), many_threads()] {
        let (gate, request) = gate_on(&runtime);
        assert!(!is_rejected(&gate, request), "a plain thread");
        let inside = runtime.enter();
        assert!(!is_rejected(&gate, request), "a thread that has entered a runtime but drives no task");
        drop(inside);
        let blocking = {
            let gate = gate.clone();
            runtime.block_on(async move { spawn_blocking(move || is_rejected(&gate, request)).await })
        };
        assert!(!blocking.unwrap(), "spawn_blocking");
    }
    let runtime = many_threads();
    let (gate, request) = gate_on(&runtime);
    assert!(!runtime.block_on(async { block_in_place(|| is_rejected(&gate, request)) }), "block_in_place");
    let task = runtime.spawn(async move { block_in_place(|| is_rejected(&gate, request)) });
    assert!(!runtime.block_on(task).unwrap(), "block_in_place in a task");
}

#[test]
fn a_release_wakes_the_parked_thread() {
    let runtime = many_threads();
    let (gate, request) = gate_on(&runtime);
    let held = gate.acquire_blocking(request).unwrap();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| gate.acquire_owned_blocking(request).map(|permit| permit.finish(Outcome::Success)));
        while gate.with(|machine, _| machine.waiting()) == 0 {
            std::thread::yield_now();
        }
        // A spurious unpark does not end the wait.
        waiting.thread().unpark();
        assert_eq!(gate.with(|machine, _| (machine.active_leases(), machine.waiting())), (1, 1));
        held.finish(Outcome::Success);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(gate.with(|machine, _| machine.active_leases()), 0);
}

#[test]
fn a_deadline_and_a_shutdown_end_the_wait() {
    let runtime = many_threads();
    let (gate, request) = gate_on(&runtime);
    let _held = gate.acquire_blocking(request).unwrap();
    let brief = request.within(Duration::from_millis(5));
    let Err(BlockingError::Denied(denial)) = gate.acquire_blocking(brief) else { panic!("the only permit is held") };
    assert_eq!(denial.reason, DenialReason::QueueTimeout);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.acquire_blocking(request).map(drop));
        while gate.with(|machine, _| machine.waiting()) == 0 {
            std::thread::yield_now();
        }
        runtime.shutdown_timeout(StdDuration::from_secs(10));
        let Err(BlockingError::Denied(denial)) = waiting.join().unwrap() else { panic!("the gate is shut down") };
        assert_eq!(denial.reason, DenialReason::Shutdown);
    });
}

#[test]
fn a_resource_that_was_never_registered_is_denied_at_once() {
    let runtime = one_thread();
    let (gate, _) = gate_on(&runtime);
    let unknown = Request::new(ResourceId::new(0, 7));
    let Err(BlockingError::Denied(denial)) = gate.acquire_blocking(unknown) else {
        panic!("the resource is not registered")
    };
    assert_eq!(denial.reason, DenialReason::Unregistered);
}

#[test]
fn the_error_in_an_async_context_says_what_to_do_instead() {
    let text = BlockingError::InAsyncContext.to_string();
    assert!(text.contains("acquire(request).await") && text.contains("spawn_blocking"), "{text}");
}
