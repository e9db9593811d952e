//! Tests of fallbacks at the gate: a call uses another provider without any action of its caller.

use std::cell::RefCell;
use std::task::Waker;

use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
use tidegate_core::gate::Gate;
use tidegate_core::request::{DenialReason, Domain, HealthState, Outcome, Request, ResourceId};
use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::time::Clock;

use crate::support::{Runtime, TestHost, at, gate_of, held, ms, poll};

/// Returns a gate over two providers with one slot each, and a request that prefers the first.
fn gate_with_two() -> (Runtime, TestHost, Gate<TestHost>, Request, [ResourceId; 2]) {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, first) = gate_of(host.clone(), 1);
    let (second, fallback) = gate.with(|machine, now| {
        let model = machine.register(now, "other", "model", "default", 1).unwrap();
        let second = machine.resource(model, Domain::Chat).unwrap();
        (second, machine.fallbacks(&[first, second]).unwrap())
    });
    runtime.run_ready();
    (runtime, host, gate, Request::new(first).with_fallbacks(fallback), [first, second])
}

/// Lets calls of a resource fail until its provider is not healthy any more.
fn take_down(gate: &Gate<TestHost>, resource: ResourceId) {
    while gate.snapshot(resource).unwrap().health == HealthState::Healthy {
        gate.try_acquire(Request::new(resource)).unwrap().finish(Outcome::ConnectionFailed);
    }
}

#[test]
fn a_waiter_of_a_provider_that_becomes_unavailable_gets_a_permit_of_the_next() {
    let (_runtime, _host, gate, request, [first, second]) = gate_with_two();
    let out = gate.try_acquire(Request::new(first)).unwrap();
    let mut acquire = gate.acquire(request);
    assert!(poll(&mut acquire, Waker::noop()).is_pending());
    out.finish(Outcome::KeyRejected);
    let permit = match poll(&mut acquire, Waker::noop()) {
        std::task::Poll::Ready(Ok(permit)) => permit,
        other => panic!("the next is free: {other:?}"),
    };
    assert_eq!(permit.resource(), second);
    permit.finish(Outcome::Success);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_waiter_reserves_the_estimate_of_the_provider_that_it_moves_to() {
    let (_runtime, _host, gate, request, [first, second]) = gate_with_two();
    let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 120);
    for resource in [first, second] {
        gate.with(|machine, now| machine.set_budgets(now, resource, &[budget])).unwrap();
    }
    let out = gate.try_acquire(Request::new(first)).unwrap();
    let mut acquire = gate.acquire(request.with_estimates(&[100, 5].map(|tokens| Usage::tokens(tokens, 0))));
    assert!(poll(&mut acquire, Waker::noop()).is_pending());
    out.finish(Outcome::KeyRejected);
    let std::task::Poll::Ready(Ok(_permit)) = poll(&mut acquire, Waker::noop()) else { panic!("the next is free") };
    let reserved = [first, second].map(|resource| gate.snapshot(resource).unwrap().budgets[0].reserved);
    assert_eq!(reserved, [0, 5]);
}

#[test]
fn a_timeout_covers_the_waits_at_all_providers_together() {
    let (runtime, host, gate, request, [first, second]) = gate_with_two();
    let (out, _busy) =
        (gate.try_acquire_owned(Request::new(first)).unwrap(), gate.try_acquire(Request::new(second)).unwrap());
    host.spawn({
        let host = host.clone();
        async move {
            host.sleep_until(at(30)).await;
            out.finish(Outcome::QuotaExhausted);
        }
    });
    let denial = runtime.block_on(gate.acquire(request.within(ms(50)))).unwrap().unwrap_err();
    assert_eq!((denial.reason, host.now()), (DenialReason::QueueTimeout, at(50)));
}

#[test]
fn an_acquire_that_is_dropped_before_it_is_requested_again_leaks_nothing() {
    let (_runtime, _host, gate, request, [first, _]) = gate_with_two();
    let out = gate.try_acquire(Request::new(first)).unwrap();
    let mut acquire = gate.acquire(request);
    assert!(poll(&mut acquire, Waker::noop()).is_pending());
    out.finish(Outcome::KeyRejected);
    drop(acquire);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn run_through_outages_uses_the_next_model_and_returns_to_the_first() {
    let (runtime, host, gate, request, [first, second]) = gate_with_two();
    take_down(&gate, first);
    let called = RefCell::new(Vec::new());
    let call = || {
        gate.run_through_outages(request, None, |resource| {
            called.borrow_mut().push(resource);
            // The second provider does not have the model.
            let outcome = if resource == second { Err(Outcome::ModelNotFound) } else { Ok(()) };
            async move { outcome }
        })
    };
    assert_eq!(runtime.block_on(call()).unwrap(), Ok(Ok(())));
    assert_eq!(*called.borrow(), [second, first]);
    assert!(host.now() >= at(400) && host.now() <= at(600), "the probe was due at {}", host.now());
}

#[test]
fn a_call_without_a_usable_model_is_denied_as_unavailable() {
    let (runtime, _host, gate, request, _) = gate_with_two();
    let mut tries = 0;
    let answer = runtime.block_on(gate.run_through_outages(request, None, |_| {
        tries += 1;
        async { Err::<(), _>(Outcome::KeyRejected) }
    }));
    assert_eq!(answer.unwrap().unwrap_err().reason, DenialReason::Unavailable);
    assert_eq!(tries, 2);
}
