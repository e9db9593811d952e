//! Tests of outages: when a provider is down, when it is probed, and how its limit comes back.

use super::*;

#[test]
fn while_a_provider_is_down_no_domain_is_called_and_other_models_are_unaffected() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for resource in [bench.chat, bench.embedding] {
        let denial = bench.try_one(resource).expect_err("the provider is down");
        assert_eq!(denial, Denial { reason: DenialReason::Outage, changes_at: Some(probe_at) });
        bench.wait(resource);
    }
    bench.advance_to(Instant::from_nanos(probe_at.as_nanos() - 1));
    assert!(bench.granted().is_empty());
    assert!(bench.try_one(bench.other).is_ok());
}

#[test]
fn when_the_pause_is_over_exactly_one_waiter_is_granted_as_the_probe() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for _ in 0..6 {
        bench.wait(bench.chat);
        bench.wait(bench.embedding);
    }
    assert_eq!(bench.machine.poll_timeout(), Some(probe_at));
    bench.advance_to(probe_at);
    let probe = bench.granted();
    assert_eq!(probe.len(), 1);
    bench.advance_to(probe_at + secs(3_600));
    assert!(bench.granted().is_empty());
    assert_eq!(bench.try_one(bench.chat).expect_err("a probe is in flight").reason, DenialReason::Outage);
    let why = bench.machine.why_next(bench.now, bench.chat);
    assert!(matches!(why, Some(CallWait::Outage { probe_at: None, .. })), "{why:?}");
}

#[test]
fn a_failed_probe_keeps_the_provider_down_and_the_next_waiter_is_the_next_probe() {
    let mut bench = Bench::new();
    let mut due = bench.take_down();
    let waiters: Vec<_> = (0..3).map(|_| bench.wait(bench.chat)).collect();
    let mut probed = Vec::new();
    for _ in 0..3 {
        bench.advance_to(due);
        let Some(RequestEffect::Granted { waiter, lease }) = bench.machine.poll_effect() else {
            panic!("a probe is due")
        };
        probed.push(waiter);
        bench.end(lease, Outcome::ProviderTimeout);
        let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
        assert!(probe_at > due);
        due = probe_at;
    }
    assert_eq!(probed, waiters);
}

#[test]
fn without_waiters_the_first_request_after_the_pause_is_the_probe() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    assert_eq!(bench.machine.poll_timeout(), None, "no call waits for the end of the pause");
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.embedding).expect("it is due");
    assert!(matches!(bench.health(), HealthState::Probing { .. }));
    bench.end(probe, Outcome::Success);
    assert_eq!(bench.health(), HealthState::Healthy);
}

#[test]
fn after_an_outage_the_limit_climbs_step_by_step() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for _ in 0..20 {
        bench.wait(bench.chat);
    }
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    bench.end(probe, Outcome::Success);
    let mut out = bench.granted().len();
    assert_eq!(out, 1);
    let mut steps = Vec::new();
    while let Some(next) = bench.machine.poll_timeout().filter(|next| *next <= probe_at + secs(1)) {
        bench.advance_to(next);
        out += bench.granted().len();
        steps.push((next - probe_at, out));
    }
    // Seven steps from 1 to 8, evenly over one second.
    assert_eq!(steps.len(), 7);
    for (step, (after, out)) in steps.into_iter().enumerate() {
        assert_eq!(out, step + 2);
        assert_eq!(after, Duration::from_nanos(((step as u64 + 1) * 1_000_000_000).div_ceil(7)));
    }
}

#[test]
fn an_outage_does_not_affect_the_limit() {
    let mut bench = Bench::new();
    let limit = LimitConfig { initial_limit: Some(5), ..LimitConfig::default() };
    bench.machine.configure(bench.now, bench.chat, limit).expect("valid settings");
    let vegas = crate::limit::Vegas::new(crate::limit::VegasConfig::default()).expect("valid settings");
    let vegas = alloc::boxed::Box::new(vegas);
    bench.machine.set_algorithm(bench.now, bench.embedding, vegas).expect("a known resource");
    let before = (bench.limit(bench.chat), bench.limit(bench.embedding));
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.embedding).expect("it is due");
    bench.end(probe, Outcome::ProviderTimeout);
    let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::RequestRejected);
    assert_eq!((bench.limit(bench.chat), bench.limit(bench.embedding)), (1, 1));
    bench.advance_to(probe_at + secs(1));
    assert_eq!((bench.limit(bench.chat), bench.limit(bench.embedding)), before);
}

#[test]
fn a_failure_while_limits_climb_ends_the_climb_at_the_current_limit() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::Success);
    bench.advance_to(probe_at + Duration::from_millis(600));
    assert_eq!(bench.limit(bench.chat), 5);
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::ProviderFailure);
    bench.advance_to(probe_at + secs(60));
    assert_eq!(bench.limit(bench.chat), 5, "from there its algorithm decides");
}

#[test]
fn the_deadline_of_a_waiter_applies_during_an_outage() {
    let mut bench = Bench::new();
    bench.take_down();
    let timeout = Some(Duration::from_millis(50));
    let answer = bench.machine.acquire(bench.now, &Request { timeout, ..Request::new(bench.chat) });
    assert!(matches!(answer, AcquireResult::Waiting(_)));
    let end = bench.now + Duration::from_millis(50);
    assert_eq!(bench.machine.poll_timeout(), Some(end));
    bench.advance_to(end);
    let Some(RequestEffect::Denied { denial, .. }) = bench.machine.poll_effect() else {
        panic!("the deadline has passed")
    };
    assert_eq!(denial.reason, DenialReason::QueueTimeout);
}

#[test]
fn a_success_of_a_call_from_before_the_outage_makes_the_probe_due_at_once() {
    let mut bench = Bench::new();
    let early = bench.try_one(bench.embedding).expect("it is healthy");
    bench.take_down();
    bench.wait(bench.chat);
    bench.end(early, Outcome::Success);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn a_cancelled_probe_is_followed_by_the_next_probe_at_once() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    bench.wait(bench.chat);
    bench.wait(bench.chat);
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    bench.end(probe, Outcome::LocalCancelled);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn an_outage_emits_events_when_it_starts_when_it_is_probed_and_when_it_ends() {
    let mut bench = Bench::new();
    bench.machine.set_interest(bench.now, event::RequestInterest::ALL);
    let began = bench.now;
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    let lease = probe.id();
    bench.end(probe, Outcome::Success);
    let events = core::iter::from_fn(|| bench.machine.poll_event());
    let emitted: Vec<_> =
        events.filter(|event| event.scope == EventScope::Model(bench.model)).map(|event| event.payload).collect();
    let expected = [
        RequestEventPayload::ProviderDown { since: began, probe_at },
        RequestEventPayload::ProviderProbed { lease },
        RequestEventPayload::ProviderRecovered { since: began, full_at: bench.now + Duration::from_secs(1) },
    ];
    assert_eq!(emitted, expected);
}

#[test]
fn the_clock_is_needed_while_a_provider_is_down_and_while_it_recovers() {
    let mut bench = Bench::new();
    assert!(!bench.machine.needs_clock(bench.chat));
    let probe_at = bench.take_down();
    assert!(bench.machine.needs_clock(bench.chat));
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::Success);
    assert!(bench.machine.needs_clock(bench.chat));
    bench.advance_to(probe_at + secs(2));
    let lease = bench.try_one(bench.chat).expect("it is healthy");
    bench.end(lease, Outcome::Success);
    assert!(!bench.machine.needs_clock(bench.chat));
}

#[test]
fn invalid_health_settings_are_rejected_with_the_name_of_the_field() {
    let refused = |health| {
        let config = RequestConfig { health: Some(health), ..RequestConfig::default() };
        RequestAdmission::new(config).expect_err("out of range").field
    };
    assert_eq!(refused(HealthConfig { failures: 0, ..HealthConfig::default() }), "failures");
    assert_eq!(refused(HealthConfig { first_pause: Duration::ZERO, ..HealthConfig::default() }), "first_pause");
    assert_eq!(refused(HealthConfig { longest_pause: Duration::ZERO, ..HealthConfig::default() }), "longest_pause");
    assert_eq!(refused(HealthConfig { calm: 0, ..HealthConfig::default() }), "calm");
}
