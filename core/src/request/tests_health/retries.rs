//! Tests of calls that failed in an outage or in a streak: which are retried, and which failures stand.

use super::*;

#[test]
fn calls_that_failed_in_an_outage_are_retried_when_it_is_over_and_none_is_lost() {
    let mut bench = Bench::new();
    let leases: Vec<_> = (0..CAP).map(|_| bench.try_one(bench.chat).expect("there is room")).collect();
    for lease in leases {
        bench.fail_and_wait(lease);
    }
    assert!(bench.granted().is_empty() && bench.denied().is_empty());
    let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    assert_eq!(bench.finish(probe, Outcome::Success), AfterCall::Final);
    bench.advance_to(probe_at + secs(1));
    let out = bench.granted();
    assert_eq!(out.len(), CAP as usize - 1);
    for lease in out {
        assert_eq!(bench.finish(lease, Outcome::Success), AfterCall::Final);
    }
    assert_eq!(bench.machine.waiting(), 0);
}

#[test]
fn a_failure_stands_once_another_call_succeeds() {
    let mut bench = Bench::new();
    let [poison, good, late] = [(); 3].map(|()| bench.try_one(bench.chat).expect("there is room"));
    let waiter = bench.fail_and_wait(poison);
    assert_eq!(bench.machine.why_waiting(bench.now, waiter), Some(CallWait::Undecided));
    let AfterCall::Retry(retry) = bench.finish(late, Outcome::ProviderFailure) else { panic!("it is undecided") };
    bench.end(good, Outcome::Success);
    assert_eq!(bench.denied(), [(waiter, DenialReason::RequestAtFault)]);
    let answer = bench.machine.retry(bench.now, &Request::new(bench.chat), retry);
    assert_eq!(answer, AcquireResult::Denied(Denial { reason: DenialReason::RequestAtFault, changes_at: None }));
}

#[test]
fn an_undecided_call_does_not_block_other_calls_of_its_resource() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.fail_and_wait(lease);
    for _ in 0..CAP {
        assert!(matches!(bench.machine.acquire(bench.now, &Request::new(bench.chat)), AcquireResult::Granted(_)));
    }
}

#[test]
fn an_undecided_call_waits_at_most_a_minute_for_other_calls_in_flight() {
    let mut bench = Bench::new();
    let [stream, failed] = [(); 2].map(|()| bench.try_one(bench.chat).expect("there is room"));
    bench.fail_and_wait(failed);
    let next = bench.machine.poll_timeout().expect("it is made again");
    assert_eq!(next, bench.now + secs(60));
    bench.advance_to(next);
    assert_eq!(bench.granted().len(), 1);
    bench.end(stream, Outcome::Success);
}

#[test]
fn the_only_call_of_an_idle_provider_is_retried_with_a_doubling_backoff_and_then_as_a_probe() {
    let mut bench = Bench::new();
    let mut lease = bench.try_one(bench.chat).expect("there is room");
    let mut pauses = Vec::new();
    while bench.health() == HealthState::Healthy {
        bench.fail_and_wait(lease);
        let next = bench.machine.poll_timeout().expect("it is made again");
        pauses.push((next - bench.now).as_nanos() / 1_000_000);
        bench.advance_to(next);
        lease = bench.granted().remove(0);
    }
    let about = |millis: u64, expected: u64| (expected * 4 / 5..=expected * 6 / 5).contains(&millis);
    assert!(pauses.len() == 5 && pauses.iter().zip([1_000, 2_000, 4_000, 8_000, 500]).all(|(a, b)| about(*a, b)));
    assert!(matches!(bench.health(), HealthState::Probing { .. }));
    assert_eq!(bench.finish(lease, Outcome::Success), AfterCall::Final);
}

#[test]
fn a_server_that_refuses_connections_at_once_is_called_a_bounded_number_of_times() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::Success);
    let mut out = Vec::new();
    for _ in 0..5_000 {
        if let AcquireResult::Granted(lease) = bench.machine.acquire(bench.now, &Request::new(bench.chat)) {
            out.push(lease);
        }
    }
    let (mut calls, until) = (0, bench.now + secs(60));
    loop {
        for lease in out.drain(..) {
            calls += 1;
            bench.fail_and_wait(lease);
        }
        out = bench.granted();
        if out.is_empty() {
            match bench.machine.poll_timeout().filter(|next| *next < until) {
                Some(next) => bench.advance_to(next),
                None => break,
            }
            out = bench.granted();
        }
    }
    // 8 calls at once, one in each tenth of the first second, and then calls 0.5, 1, 2, 4, 8, 16 and 30 s
    // apart.
    assert!(calls < 30, "{calls} calls");
    assert_eq!(bench.machine.waiting(), 5_000, "all of them wait");
}

#[test]
fn a_poison_request_that_failed_three_probes_is_rejected_once_another_call_succeeds() {
    let mut bench = Bench::new();
    let mut due = bench.take_down();
    bench.advance_to(due);
    let mut poison = bench.try_one(bench.chat).expect("it is due");
    for _ in 0..2 {
        bench.fail_and_wait(poison);
        due = bench.machine.poll_timeout().expect("a probe is due");
        bench.advance_to(due);
        poison = bench.granted().remove(0);
    }
    let poisoned = bench.fail_and_wait(poison);
    let good = bench.wait(bench.embedding);
    loop {
        due = bench.machine.poll_timeout().expect("a probe is due");
        bench.advance_to(due);
        let Some(RequestEffect::Granted { waiter, lease }) = bench.machine.poll_effect() else {
            panic!("a probe is due")
        };
        if waiter == good {
            bench.end(lease, Outcome::Success);
            break;
        }
        bench.fail_and_wait(lease);
    }
    let denied = bench.denied();
    assert!(denied.len() == 1 && denied[0].1 == DenialReason::RequestAtFault, "{denied:?}");
    let _ = poisoned;
    assert_eq!(bench.health(), HealthState::Healthy);
}
