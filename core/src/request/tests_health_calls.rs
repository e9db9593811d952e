//! Tests of health calls, which let the last waiting request end if it fails whenever it is made.

use super::event::{EventScope, RequestEventPayload};
use super::tests_health::Bench;
use super::*;
use crate::time::Duration;
use alloc::vec::Vec;

/// The effects at the next instant at which a timer is due.
struct Due {
    granted: Vec<RequestLease>,
    health_calls: Vec<RequestLease>,
    denied: Vec<DenialReason>,
}

impl Bench {
    /// Returns a resource for the health calls of the first model.
    fn healthcheck(&mut self) -> ResourceId {
        self.machine.resource(self.model, Domain::Healthcheck).expect("a known model")
    }

    fn due(&mut self) -> Due {
        let mut due = Due { granted: Vec::new(), health_calls: Vec::new(), denied: Vec::new() };
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                RequestEffect::Granted { lease, .. } => due.granted.push(lease),
                RequestEffect::HealthCall { lease } => due.health_calls.push(lease),
                RequestEffect::Denied { denial, .. } => due.denied.push(denial.reason),
            }
        }
        due
    }

    fn next_due(&mut self) -> Due {
        let next = self.machine.poll_timeout().expect("something waits for time");
        self.advance_to(next);
        self.due()
    }

    /// Makes a single request fail until it has been a probe three times. It waits then.
    fn poison(&mut self) {
        let lease = self.try_one(self.chat).expect("it is healthy");
        self.fail_and_wait(lease);
        let mut probes = 0;
        while probes < 3 {
            let Due { granted, .. } = self.next_due();
            for lease in granted {
                probes += u32::from(matches!(self.health(), HealthState::Probing { .. }));
                self.fail_and_wait(lease);
            }
        }
    }
}

#[test]
fn the_last_poison_request_is_rejected_once_a_health_call_succeeds() {
    let mut bench = Bench::new();
    bench.poison();
    let healthcheck = bench.healthcheck();
    assert!(bench.machine.set_health_calls(bench.now, healthcheck, true));
    let Due { granted, mut health_calls, denied } = bench.next_due();
    assert_eq!((granted.len(), health_calls.len(), denied.len()), (0, 1, 0), "the request is not the probe any more");
    let lease = health_calls.pop().expect("one");
    assert_eq!(lease.id().item, healthcheck.index() as u32);
    bench.end(lease, Outcome::Success);
    assert_eq!(bench.due().denied, [DenialReason::RequestAtFault]);
    assert_eq!((bench.health(), bench.machine.waiting()), (HealthState::Healthy, 0));
}

#[test]
fn a_health_call_that_fails_keeps_the_provider_down_and_the_request_waiting() {
    let mut bench = Bench::new();
    bench.poison();
    let healthcheck = bench.healthcheck();
    bench.machine.set_health_calls(bench.now, healthcheck, true);
    for _ in 0..4 {
        let Due { granted, health_calls, denied } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len(), denied.len()), (0, 1, 0));
        for lease in health_calls {
            bench.end(lease, Outcome::ConnectionFailed);
        }
        assert!(matches!(bench.health(), HealthState::Down { .. }));
    }
    assert_eq!(bench.machine.waiting(), 1);
}

#[test]
fn three_waiters_are_probes_and_the_next_probe_is_a_health_call() {
    let mut bench = Bench::new();
    let healthcheck = bench.healthcheck();
    bench.machine.set_health_calls(bench.now, healthcheck, true);
    bench.take_down();
    for _ in 0..4 {
        bench.wait(bench.chat);
    }
    for _ in 0..3 {
        let Due { mut granted, health_calls, .. } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len()), (1, 0));
        bench.fail_and_wait(granted.pop().expect("one"));
    }
    let Due { granted, mut health_calls, denied } = bench.next_due();
    assert_eq!((granted.len(), health_calls.len(), denied.len()), (0, 1, 0));
    bench.end(health_calls.pop().expect("one"), Outcome::Success);
    let Due { granted, denied, .. } = bench.due();
    assert_eq!(
        (bench.health(), granted.len(), denied.len()),
        (HealthState::Healthy, 1, 0),
        "no request was a probe three times"
    );
}

#[test]
fn after_a_health_call_ends_an_outage_the_next_one_starts_with_the_first_pause() {
    let mut bench = Bench::new();
    bench.poison();
    let healthcheck = bench.healthcheck();
    bench.machine.set_health_calls(bench.now, healthcheck, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::Success);
    bench.due();
    let begins = bench.now;
    for _ in 0..5 {
        let lease = bench.try_one(bench.chat).expect("it is healthy");
        bench.end(lease, Outcome::ConnectionFailed);
        bench.advance_to(bench.now + Duration::from_millis(300));
    }
    bench.now = begins + Duration::from_millis(1_200);
    let HealthState::Down { since, probe_at } = bench.health() else { panic!("it is down") };
    assert_eq!(since, begins, "its patience restarts, too");
    let pause = probe_at - bench.now;
    assert!(pause <= Duration::from_millis(600), "the first pause, and a fifth of it: {pause}");
}

#[test]
fn a_health_call_decides_an_undecided_failure_when_no_other_call_is_in_flight() {
    for (outcome, expected) in [(Outcome::Success, 1), (Outcome::RateLimited, 1), (Outcome::ProviderFailure, 0)] {
        let mut bench = Bench::new();
        let healthcheck = bench.healthcheck();
        bench.machine.set_health_calls(bench.now, healthcheck, true);
        let lease = bench.try_one(bench.chat).expect("it is healthy");
        bench.fail_and_wait(lease);
        let Due { granted, mut health_calls, denied } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len(), denied.len()), (0, 1, 0), "not the call itself");
        bench.end(health_calls.pop().expect("one"), outcome);
        let Due { granted, denied, .. } = bench.due();
        assert_eq!((granted.len(), denied.len()), (0, expected), "{outcome:?}");
        assert!(denied.iter().all(|reason| *reason == DenialReason::RequestAtFault));
    }
}

#[test]
fn a_cancelled_health_call_is_due_again_unless_health_calls_were_disabled() {
    let mut bench = Bench::new();
    bench.poison();
    let healthcheck = bench.healthcheck();
    bench.machine.set_health_calls(bench.now, healthcheck, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::LocalCancelled);
    let Due { mut health_calls, .. } = bench.due();
    assert_eq!(health_calls.len(), 1);
    bench.machine.set_health_calls(bench.now, healthcheck, false);
    bench.end(health_calls.pop().expect("one"), Outcome::LocalCancelled);
    let Due { granted, health_calls, .. } = bench.due();
    assert_eq!((granted.len(), health_calls.len()), (1, 0), "it is a probe again");
    assert!(!bench.machine.set_health_calls(bench.now, ResourceId::new(7, 0), true), "it is of another controller");
}

#[test]
fn enabling_health_calls_while_one_is_due_emits_it_at_once() {
    let mut bench = Bench::new();
    let healthcheck = bench.healthcheck();
    bench.poison();
    let due = bench.machine.poll_timeout().expect("the probe");
    bench.machine.set_interest(bench.now, event::RequestInterest::ALL);
    bench.now = due;
    bench.machine.set_health_calls(due, healthcheck, true);
    let Due { granted, health_calls, .. } = bench.due();
    assert_eq!((granted.len(), health_calls.len()), (0, 1));
    let probed = RequestEventPayload::ProviderProbed { lease: health_calls[0].id() };
    let events = core::iter::from_fn(|| bench.machine.poll_event());
    let place = EventScope::Model(bench.model);
    assert_eq!(events.filter(|event| event.payload == probed && event.scope == place).count(), 1);
}

#[test]
fn a_rate_limited_health_call_does_not_reject_the_waiting_request() {
    let mut bench = Bench::new();
    bench.poison();
    let healthcheck = bench.healthcheck();
    bench.machine.set_health_calls(bench.now, healthcheck, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::RateLimited);
    let Due { granted, denied, .. } = bench.due();
    assert_eq!(
        (bench.health(), granted.len(), denied.len()),
        (HealthState::Healthy, 1, 0),
        "the request is granted again"
    );
}
