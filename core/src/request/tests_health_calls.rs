//! Health calls: what lets a request end that fails whenever it is made, and is the last one left.

use super::event::{EventPlace, RequestEventPayload};
use super::tests_health::Bench;
use super::*;
use crate::time::Duration;
use alloc::vec::Vec;

/// What is to be done at the next instant at which something is due.
struct Due {
    granted: Vec<RequestLease>,
    health_calls: Vec<RequestLease>,
    rejected: Vec<DenialReason>,
}

impl Bench {
    /// A resource for the health calls of the first model.
    fn check(&mut self) -> ResourceId {
        self.machine.resource(self.model, Domain::Healthcheck).expect("a known model")
    }

    fn due(&mut self) -> Due {
        let mut due = Due { granted: Vec::new(), health_calls: Vec::new(), rejected: Vec::new() };
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Granted { lease, .. } => due.granted.push(lease),
                Effect::HealthCall { lease } => due.health_calls.push(lease),
                Effect::Refused { denial, .. } => due.rejected.push(denial.reason),
            }
        }
        due
    }

    fn next_due(&mut self) -> Due {
        let next = self.machine.poll_timeout().expect("something waits for time");
        self.at(next);
        self.due()
    }

    /// Lets the only request that waits fail until it has been a probe three times; it waits then.
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
fn the_last_request_that_always_fails_ends_with_its_failure_once_a_health_call_succeeds() {
    let mut bench = Bench::new();
    bench.poison();
    let check = bench.check();
    assert!(bench.machine.set_health_calls(bench.now, check, true));
    let Due { granted, mut health_calls, rejected } = bench.next_due();
    assert_eq!((granted.len(), health_calls.len(), rejected.len()), (0, 1, 0), "it is no probe any more");
    let lease = health_calls.pop().expect("one");
    assert_eq!(lease.id().item, check.index() as u32);
    bench.end(lease, Outcome::Success);
    assert_eq!(bench.due().rejected, [DenialReason::FailureStands]);
    assert_eq!((bench.health(), bench.machine.waiting()), (HealthState::Healthy, 0));
}

#[test]
fn a_health_call_that_fails_keeps_the_provider_down_and_the_request_waiting() {
    let mut bench = Bench::new();
    bench.poison();
    let check = bench.check();
    bench.machine.set_health_calls(bench.now, check, true);
    for _ in 0..4 {
        let Due { granted, health_calls, rejected } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len(), rejected.len()), (0, 1, 0));
        for lease in health_calls {
            bench.end(lease, Outcome::ConnectionFailed);
        }
        assert!(matches!(bench.health(), HealthState::Down { .. }));
    }
    assert_eq!(bench.machine.waiting(), 1);
}

#[test]
fn three_requests_that_wait_are_probes_and_then_a_health_call_is_whoever_else_waits() {
    let mut bench = Bench::new();
    let check = bench.check();
    bench.machine.set_health_calls(bench.now, check, true);
    bench.take_down();
    for _ in 0..4 {
        bench.wait(bench.chat);
    }
    for _ in 0..3 {
        let Due { mut granted, health_calls, .. } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len()), (1, 0));
        bench.fail_and_wait(granted.pop().expect("one"));
    }
    let Due { granted, mut health_calls, rejected } = bench.next_due();
    assert_eq!((granted.len(), health_calls.len(), rejected.len()), (0, 1, 0));
    bench.end(health_calls.pop().expect("one"), Outcome::Success);
    let Due { granted, rejected, .. } = bench.due();
    assert_eq!(
        (bench.health(), granted.len(), rejected.len()),
        (HealthState::Healthy, 1, 0),
        "nobody was three probes"
    );
}

#[test]
fn an_outage_that_a_health_call_ended_makes_the_next_one_no_longer() {
    let mut bench = Bench::new();
    bench.poison();
    let check = bench.check();
    bench.machine.set_health_calls(bench.now, check, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::Success);
    bench.due();
    let begins = bench.now;
    for _ in 0..5 {
        let lease = bench.try_one(bench.chat).expect("it is healthy");
        bench.end(lease, Outcome::ConnectionFailed);
        bench.at(bench.now + Duration::from_millis(300));
    }
    bench.now = begins + Duration::from_millis(1_200);
    let HealthState::Down { since, probe_at } = bench.health() else { panic!("it is down") };
    assert_eq!(since, begins, "its patience begins anew, too");
    let pause = probe_at - bench.now;
    assert!(pause <= Duration::from_millis(600), "the first pause, and a fifth of it: {pause}");
}

#[test]
fn a_health_call_decides_whose_fault_a_failure_was_when_nothing_else_is_out() {
    for (outcome, expected) in [(Outcome::Success, 1), (Outcome::RateLimited, 1), (Outcome::ProviderFailure, 0)] {
        let mut bench = Bench::new();
        let check = bench.check();
        bench.machine.set_health_calls(bench.now, check, true);
        let lease = bench.try_one(bench.chat).expect("it is healthy");
        bench.fail_and_wait(lease);
        let Due { granted, mut health_calls, rejected } = bench.next_due();
        assert_eq!((granted.len(), health_calls.len(), rejected.len()), (0, 1, 0), "not the call itself");
        bench.end(health_calls.pop().expect("one"), outcome);
        let Due { granted, rejected, .. } = bench.due();
        assert_eq!((granted.len(), rejected.len()), (0, expected), "{outcome:?}");
        assert!(rejected.iter().all(|reason| *reason == DenialReason::FailureStands));
    }
}

#[test]
fn a_health_call_that_is_cancelled_is_due_again_and_none_is_asked_for_where_the_host_makes_none() {
    let mut bench = Bench::new();
    bench.poison();
    let check = bench.check();
    bench.machine.set_health_calls(bench.now, check, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::LocalCancelled);
    let Due { mut health_calls, .. } = bench.due();
    assert_eq!(health_calls.len(), 1);
    bench.machine.set_health_calls(bench.now, check, false);
    bench.end(health_calls.pop().expect("one"), Outcome::LocalCancelled);
    let Due { granted, health_calls, .. } = bench.due();
    assert_eq!((granted.len(), health_calls.len()), (1, 0), "it is a probe again");
    assert!(!bench.machine.set_health_calls(bench.now, ResourceId::new(7, 0), true), "it is of another controller");
}

#[test]
fn a_host_that_begins_to_make_health_calls_while_one_is_due_is_asked_at_once() {
    let mut bench = Bench::new();
    let check = bench.check();
    bench.poison();
    let due = bench.machine.poll_timeout().expect("the probe");
    bench.machine.set_interest(bench.now, event::Interest::ALL);
    bench.now = due;
    bench.machine.set_health_calls(due, check, true);
    let Due { granted, health_calls, .. } = bench.due();
    assert_eq!((granted.len(), health_calls.len()), (0, 1));
    let probed = RequestEventPayload::ProviderProbed { lease: health_calls[0].id() };
    let events = core::iter::from_fn(|| bench.machine.poll_event());
    let place = EventPlace::Model(bench.model);
    assert_eq!(events.filter(|event| event.payload == probed && event.place == place).count(), 1);
}

#[test]
fn a_rate_limit_of_a_health_call_proves_nothing_about_the_request_that_waits() {
    let mut bench = Bench::new();
    bench.poison();
    let check = bench.check();
    bench.machine.set_health_calls(bench.now, check, true);
    let Due { mut health_calls, .. } = bench.next_due();
    bench.end(health_calls.pop().expect("one"), Outcome::RateLimited);
    let Due { granted, rejected, .. } = bench.due();
    assert_eq!((bench.health(), granted.len(), rejected.len()), (HealthState::Healthy, 1, 0), "it is asked again");
}
