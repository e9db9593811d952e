use std::vec::Vec;

use super::event::{EventScope, MAX_PENDING, RequestEvent, RequestEventKind, RequestEventPayload, RequestInterest};
use super::testing::{Bench, CHAT};
use super::*;
use crate::budget::{BudgetConfig, Dimension, RateLimitFeedback};
use crate::lease::ReleaseResult;
use crate::time::{Duration, Instant};
use RequestEventKind::*;

fn with_events(cap: u32, limit: LimitConfig) -> Bench {
    let mut bench = Bench::new(cap, limit);
    bench.machine.set_interest(bench.now, RequestInterest::ALL);
    bench
}

fn drain(bench: &mut Bench) -> Vec<RequestEvent> {
    core::iter::from_fn(|| bench.machine.poll_event()).collect()
}

fn kinds(bench: &mut Bench) -> Vec<RequestEventKind> {
    drain(bench).iter().map(|event| event.payload.kind()).collect()
}

#[test]
fn an_immediate_grant_emits_a_wait_of_zero() {
    let mut bench = with_events(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    assert_eq!(kinds(&mut bench), [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted]);
    bench.end(lease, Outcome::Success);
    assert_eq!(kinds(&mut bench), [CallCompleted, LeaseReleased]);
    let AcquireResult::Granted(_lease) = bench.machine.acquire(bench.now, &Request::new(CHAT)) else { panic!("room") };
    assert_eq!(kinds(&mut bench), [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted]);
}

#[test]
fn a_wait_emits_events_from_its_start_to_its_grant() {
    let mut bench = with_events(1, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    drain(&mut bench);
    let waiter = bench.wait(Request::new(CHAT));
    assert_eq!(kinds(&mut bench), [QueueFormed, WaitStarted]);
    bench.after(Duration::from_millis(20));
    bench.end(lease, Outcome::Success);
    let events = drain(&mut bench);
    assert_eq!(
        events.iter().map(|event| event.payload.kind()).collect::<Vec<_>>(),
        [CallCompleted, LeaseReleased, WaitCompleted, LeaseAcquired, CallStarted, QueueDrained]
    );
    let span = Duration::from_millis(20);
    assert_eq!(events[2].payload, RequestEventPayload::WaitCompleted { waiter: Some(waiter), waited: span });
    assert_eq!((events[2].at, events[2].scope), (bench.now, EventScope::Resource(CHAT)));
    assert!(events.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
}

#[test]
fn a_wait_that_ends_without_a_grant_emits_the_reason() {
    let mut bench = with_events(1, LimitConfig::default());
    let _lease = bench.take(1);
    let cancelled = bench.wait(Request::new(CHAT));
    bench.wait(Request::new(CHAT).within(Duration::from_secs(1)));
    bench.wait(Request::new(CHAT));
    drain(&mut bench);
    bench.machine.cancel(bench.now, cancelled);
    assert_eq!(kinds(&mut bench), [WaitCancelled]);
    bench.after(Duration::from_secs(1));
    bench.machine.handle_timeout(bench.now);
    assert_eq!(kinds(&mut bench), [WaitTimeout]);
    bench.machine.shutdown(bench.now);
    let events = drain(&mut bench);
    assert!(matches!(events[0].payload, RequestEventPayload::WaitCancelled { reason: DenialReason::Shutdown, .. }));
    assert_eq!(events[1].payload, RequestEventPayload::QueueDrained);
}

#[test]
fn a_rate_limit_emits_the_cut_the_cooldown_its_cap_and_the_end_of_a_ramp() {
    let ramp = Duration::from_secs(10);
    let mut bench = with_events(11, LimitConfig { ramp, ..LimitConfig::default() });
    let lease = bench.take(1).remove(0);
    bench.after(Duration::from_secs(4));
    drain(&mut bench);
    let requested = Duration::from_secs(3_600);
    bench.end(lease, Completion::rate_limited(Some(requested)));
    let applied = Duration::from_secs(600);
    let payloads: Vec<_> = drain(&mut bench).iter().map(|event| event.payload).collect();
    assert_eq!(payloads[0], RequestEventPayload::RampStep { from: 1, to: 5 });
    assert_eq!(payloads[1].kind(), CallCompleted);
    let expected = [
        RequestEventPayload::LimitDecreased { from: 5, to: 3 },
        RequestEventPayload::RateLimited { blocked_until: Some(bench.now + applied), consecutive: 1 },
        RequestEventPayload::CooldownCapped { requested, applied },
        RequestEventPayload::RampAborted { limit: 5 },
    ];
    assert_eq!(payloads[2..6], expected);
    assert_eq!(payloads[6].kind(), LeaseReleased);
}

#[test]
fn recovery_emits_the_soft_ceiling_and_the_full_recovery() {
    let limit = LimitConfig { successes_until_increase: 1, initial_limit: Some(4), ..LimitConfig::default() };
    let mut bench = with_events(6, limit);
    let lease = bench.take(1).remove(0);
    bench.end(lease, Outcome::RateLimited);
    bench.after(Duration::from_secs(2));
    drain(&mut bench);
    bench.succeed(3);
    let increases: Vec<_> = drain(&mut bench).iter().map(|event| event.payload).filter(is_limit_increase).collect();
    let expected = [
        RequestEventPayload::LimitIncreased { from: 3, to: 4 },
        RequestEventPayload::LimitIncreased { from: 4, to: 5 },
        RequestEventPayload::SoftCeilingRecovered { limit: 5 },
        RequestEventPayload::LimitIncreased { from: 5, to: 6 },
        RequestEventPayload::FullyRecovered { limit: 6 },
    ];
    assert_eq!(increases, expected);
}

fn is_limit_increase(payload: &RequestEventPayload) -> bool {
    matches!(payload.kind(), LimitIncreased | SoftCeilingRecovered | FullyRecovered)
}

#[test]
fn ramp_steps_are_emitted_at_the_instants_at_which_they_serve_waiters() {
    let ramp = Duration::from_secs(4);
    let mut bench = with_events(5, LimitConfig { ramp, ..LimitConfig::default() });
    let _lease = bench.take(1);
    let _waiters: Vec<_> = (0..4).map(|_| bench.wait(Request::new(CHAT))).collect();
    drain(&mut bench);
    let mut steps = Vec::new();
    while let Some(at) = bench.machine.poll_timeout() {
        bench.now = at;
        bench.machine.handle_timeout(at);
        let events = drain(&mut bench);
        steps.extend(events.iter().filter(|event| event.payload.kind() == RampStep).map(|event| event.at));
    }
    assert_eq!(steps, [1, 2, 3, 4].map(|at| Instant::ZERO + Duration::from_secs(at)));
}

#[test]
fn registrations_cap_changes_and_corrections_are_emitted() {
    let mut bench = with_events(8, LimitConfig::default());
    let model = bench.machine.register(bench.now, "provider", "model", "second", 5).expect("a valid cap");
    let payloads: Vec<_> = drain(&mut bench).iter().map(|event| (event.scope, event.payload)).collect();
    let whole = EventScope::Model(model);
    assert_eq!(payloads[0], (whole, RequestEventPayload::ResourceRegistered { cap: 5 }));
    assert_eq!(payloads[1], (whole, RequestEventPayload::EffectiveCapChanged { from: Some(8), to: 5 }));
    assert_eq!(payloads[2], (EventScope::Resource(CHAT), RequestEventPayload::LimitDecreased { from: 8, to: 5 }));
    let budget = BudgetConfig::per_minute(Dimension::Requests, 60);
    bench.machine.set_budgets(bench.now, CHAT, &[budget]).expect("a valid budget");
    let correction = RateLimitFeedback { remaining: Some(7), ..RateLimitFeedback::of(Dimension::Requests) };
    bench.machine.correct_budget(bench.now, CHAT, &correction);
    let corrected = RequestEventPayload::BudgetCorrected { dimension: Dimension::Requests, before: 60, after: 7 };
    assert_eq!(drain(&mut bench)[0].payload, corrected);
}

#[test]
fn a_rejected_release_is_emitted_with_its_cause() {
    let mut bench = with_events(1, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    let id = lease.id();
    bench.end(lease, Outcome::Success);
    drain(&mut bench);
    let _ = bench.machine.release(bench.now, RequestLease::from_id(id), &Outcome::Success.into());
    let expected = RequestEventPayload::ReleaseDiagnostic { lease: id, result: ReleaseResult::Duplicate };
    assert_eq!(drain(&mut bench)[0].payload, expected);
}

#[test]
fn only_enabled_kinds_of_events_are_emitted() {
    let mut bench = Bench::new(1, LimitConfig::default());
    bench.succeed(1);
    assert_eq!(drain(&mut bench), []);
    bench.machine.set_interest(bench.now, RequestInterest::of(&[AcquireDenied]));
    let _lease = bench.take(1);
    assert!(bench.machine.try_acquire(bench.now, &Request::new(CHAT)).is_err());
    assert_eq!(kinds(&mut bench), [AcquireDenied]);
}

#[test]
fn events_that_are_not_polled_are_bounded_and_dropped_events_are_counted() {
    let mut bench = Bench::new(1, LimitConfig::default());
    bench.machine.set_interest(bench.now, RequestInterest::of(&[LeaseReleased]));
    for _ in 0..MAX_PENDING + 3 {
        bench.succeed(1);
    }
    assert_eq!(bench.machine.dropped_events(), 3);
    assert_eq!(drain(&mut bench).len(), MAX_PENDING);
}

#[test]
fn every_kind_has_its_own_bit() {
    for (at, kind) in RequestEventKind::ALL.iter().enumerate() {
        let only = RequestInterest::of(&[*kind]);
        let held = RequestEventKind::ALL.iter().filter(|other| only.contains(**other)).count();
        assert_eq!((held, *kind as usize), (1, at));
    }
}
