//! Tests of the explanations: the reason why a call waits is always the one that blocks it.

use std::boxed::Box;
use std::string::ToString;
use std::vec::Vec;

use super::event::{RequestEventKind, RequestEventPayload, RequestInterest};
use super::testing::*;
use super::*;
use crate::budget::{BudgetConfig, Dimension, Usage};
use crate::limit::{CallReport, LimitAlgorithm, Tide, TideConfig};
use crate::time::{Duration, Instant};

#[test]
fn why_waiting_returns_the_cap_the_limit_or_the_cooldown() {
    let mut bench = Bench::new(2, LimitConfig { initial_limit: Some(1), ..LimitConfig::default() });
    assert_eq!(bench.machine.why_idle_now(bench.now, CHAT), Some(CallWait::NoRequests));
    let first = bench.take(1).remove(0);
    let waiter = bench.wait(Request::new(CHAT));
    let limit = CallWait::Limit { limit: 1, in_flight: 1, changes_at: None };
    assert_eq!(bench.machine.why_waiting(bench.now, waiter), Some(limit));
    assert_eq!(bench.machine.why_idle_now(bench.now, CHAT), Some(limit));
    let until = bench.now + Duration::from_secs(2);
    bench.end(first, Outcome::RateLimited);
    let why = bench.machine.why_waiting(bench.now, waiter).expect("it waits");
    assert_eq!(why, CallWait::Cooldown { until });
    assert_eq!(why.to_string(), "a cooldown is in force until 2.000s");

    let mut full = Bench::new(1, LimitConfig::default());
    let _lease = full.take(1);
    let waiter = full.wait(Request::new(CHAT));
    assert_eq!(full.machine.why_waiting(full.now, waiter), Some(CallWait::ProviderCap { cap: 1 }));
    assert_eq!(full.machine.why_idle_now(full.now, CHAT), None, "no slot is free");
    full.machine.cancel(full.now, waiter);
    assert_eq!(full.machine.why_waiting(full.now, waiter), None, "it no longer waits");
}

#[test]
fn a_paused_model_grants_nothing_and_serves_its_waiters_in_order_once_it_is_resumed() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let model = bench.machine.owner(CHAT).expect("it was registered");
    let held = bench.take(1).remove(0);
    assert!(bench.machine.set_paused(bench.now, model, true));
    assert!(!bench.machine.set_paused(bench.now, model, true), "it was paused before");
    let denial = bench.machine.try_acquire(bench.now, &Request::new(CHAT)).expect_err("it is paused");
    assert_eq!(denial, Denial { reason: DenialReason::Paused, changes_at: None });
    let waiters = [bench.wait(Request::new(CHAT)), bench.wait(Request::new(CHAT))];
    bench.end(held, Outcome::Success);
    assert_eq!(bench.granted().len(), 0, "a slot that comes back stays free");
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(CallWait::Paused));
    assert_eq!(bench.machine.pressure(bench.now, CHAT), Some(RequestPressure::Paused));
    bench.machine.register(bench.now, "provider", "model", "default", 1).expect("a valid cap");
    assert_eq!(bench.granted().len(), 0, "a new cap does not resume it");
    let late = bench.wait(Request { timeout: Some(Duration::from_secs(1)), ..Request::new(CHAT) });
    bench.after(Duration::from_secs(2));
    bench.machine.handle_timeout(bench.now);
    let denied =
        RequestEffect::Denied { waiter: late, denial: Denial { reason: DenialReason::QueueTimeout, changes_at: None } };
    assert_eq!(bench.machine.poll_effect(), Some(denied), "deadlines run on");
    assert!(bench.machine.set_paused(bench.now, model, false));
    let granted = bench.granted();
    assert_eq!(granted.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(), waiters[..1]);
    for (_, lease) in granted {
        bench.end(lease, Outcome::Success);
    }
    assert_eq!(bench.granted().len(), 1);
    let elsewhere = ProviderModelId::new(9, 0);
    assert!(!bench.machine.set_paused(bench.now, elsewhere, true), "it is not of this controller");
}

#[test]
fn why_next_returns_the_reason_of_the_first_waiter_or_none() {
    let mut bench = Bench::new(2, LimitConfig { initial_limit: Some(1), ..LimitConfig::default() });
    assert_eq!(bench.machine.why_next(bench.now, CHAT), None, "it could start");
    let first = bench.take(1).remove(0);
    let limit = CallWait::Limit { limit: 1, in_flight: 1, changes_at: None };
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(limit), "although no request waits");
    bench.wait(Request::new(CHAT));
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(limit));
    let until = bench.now + Duration::from_secs(2);
    bench.end(first, Outcome::RateLimited);
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(CallWait::Cooldown { until }));
    assert_eq!(bench.machine.why_next(bench.now, ResourceId::new(0, 9)), None);
}

#[test]
fn why_next_uses_the_first_to_arrive_of_waiters_that_arrived_at_one_instant() {
    let mut bench = Bench::new(8, LimitConfig::default());
    let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 6_000);
    bench.machine.set_budgets(bench.now, CHAT, &[budget]).expect("a valid budget");
    let of = |tokens| Request::new(CHAT).estimated(Usage::tokens(tokens, 0));
    let _lease = bench.machine.try_acquire(bench.now, &of(6_000)).expect("the budget is whole");
    let left = bench.wait(of(2_000));
    bench.wait(of(4_000));
    bench.machine.cancel(bench.now, left);
    bench.wait(of(1_000));
    let until = bench.now + Duration::from_secs(40);
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(CallWait::Budget { until }));
}

/// An algorithm that allows one call per second.
struct Spaced(Instant);

impl LimitAlgorithm for Spaced {
    fn limit(&self, _now: Instant) -> u32 {
        2
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.opens_at(now)
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        Some(self.0).filter(|at| *at > now)
    }

    fn on_grant(&mut self, now: Instant, _grant: u64, _in_flight: u32) {
        self.0 = now + Duration::from_secs(1);
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {}

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}
}

#[test]
fn a_call_is_paced_while_fewer_calls_are_in_flight_than_the_limit_allows() {
    let mut bench = Bench::new(8, LimitConfig::default());
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(Spaced(Instant::ZERO))).expect("a known resource");
    let first = bench.take(1).remove(0);
    let waiter = bench.wait(Request::new(CHAT));
    let paced = CallWait::Paced { until: bench.now + Duration::from_secs(1) };
    assert_eq!(bench.machine.why_waiting(bench.now, waiter), Some(paced));
    bench.end(first, Outcome::Success);
    let why = bench.machine.why_next(bench.now, CHAT).expect("it waits");
    assert_eq!((why, bench.state().in_flight), (paced, 0));
    assert_eq!(why.to_string(), "calls are spaced in time, and the next goes out at 1.000s");
    let _leases: Vec<_> = (0..2)
        .flat_map(|_| {
            bench.wait(Request::new(CHAT));
            bench.after(Duration::from_secs(1));
            bench.machine.handle_timeout(bench.now);
            bench.granted()
        })
        .collect();
    let changes_at = Some(bench.now + Duration::from_secs(1));
    let limit = CallWait::Limit { limit: 2, in_flight: 2, changes_at };
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(limit));
    assert!(limit.to_string().starts_with("the adaptive limit of 2 is reached with 2 in flight; it changes at"));
}

fn try_one(bench: &mut Bench) -> Result<RequestLease, Denial> {
    bench.machine.try_acquire(bench.now, &Request::new(CHAT))
}

#[test]
fn try_acquire_is_denied_as_paced_below_the_limit_and_as_no_capacity_at_the_limit() {
    let mut bench = Bench::new(8, LimitConfig::default());
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(Spaced(Instant::ZERO))).expect("a known resource");
    bench.machine.set_interest(bench.now, RequestInterest::of(&[RequestEventKind::AcquireDenied]));
    let pressure = |bench: &Bench| bench.machine.pressure(bench.now, CHAT);
    let first = bench.take(1).remove(0);
    let opens_at = bench.now + Duration::from_secs(1);
    bench.after(Duration::from_millis(999));
    let denial = try_one(&mut bench).expect_err("it is a millisecond too early");
    assert_eq!(denial, Denial { reason: DenialReason::Paced, changes_at: Some(opens_at) });
    assert_eq!(denial.to_string(), "calls are spaced in time (next change at 1.000s)");
    let event = bench.machine.poll_event().expect("events of denials are enabled");
    let payload = RequestEventPayload::AcquireDenied { reason: DenialReason::Paced, changes_at: Some(opens_at) };
    assert_eq!((event.at, event.payload), (bench.now, payload));
    assert_eq!(pressure(&bench), Some(RequestPressure::Paced));

    bench.after(Duration::from_millis(1));
    assert_eq!(pressure(&bench), None);
    let second = bench.take(1).remove(0);
    assert_eq!(try_one(&mut bench).expect_err("both slots are used").reason, DenialReason::NoCapacity);
    assert_eq!(pressure(&bench), Some(RequestPressure::LimitReached), "although calls are spaced, too");
    bench.end(first, Outcome::Success);
    assert_eq!(try_one(&mut bench).expect_err("it is too early").reason, DenialReason::Paced);
    bench.wait(Request::new(CHAT));
    assert_eq!(pressure(&bench), Some(RequestPressure::Waiters), "whatever blocks the waiter");
    bench.end(second, Outcome::Success);
}

#[test]
fn try_acquire_at_a_cap_or_in_a_cooldown_is_not_denied_as_paced() {
    let mut bench = Bench::new(1, LimitConfig::default());
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(Spaced(Instant::ZERO))).expect("a known resource");
    let first = bench.take(1).remove(0);
    assert_eq!(try_one(&mut bench).expect_err("the cap is reached").reason, DenialReason::NoCapacity);
    assert_eq!(bench.machine.pressure(bench.now, CHAT), Some(RequestPressure::CapReached));
    let until = bench.now + Duration::from_secs(2);
    bench.end(first, Outcome::RateLimited);
    let denial = try_one(&mut bench).expect_err("a cooldown is in force");
    assert_eq!(denial, Denial { reason: DenialReason::Cooldown, changes_at: Some(until) });
    assert_eq!(bench.machine.pressure(bench.now, CHAT), Some(RequestPressure::CoolingDown));
}

/// Compares the reason of the first waiter with the state of the resource at every step of a run. The
/// provider admits one call per `interval_ms` and rate limits all others, with this Retry-After. Returns how
/// often the reason was a cooldown, pacing or the limit.
fn reasons_under_rate_limits(bench: &mut Bench, interval_ms: u64, retry_after: Option<Duration>) -> [u32; 3] {
    let mut out: Vec<(Instant, RequestLease, Completion)> = Vec::new();
    let (mut counts, mut next) = ([0; 3], Instant::ZERO);
    let mut idle = 100;
    for _ in 0..30_000 {
        bench.machine.handle_timeout(bench.now);
        let mut granted: Vec<RequestLease> = bench.granted().into_iter().map(|(_, lease)| lease).collect();
        for _ in 0..core::mem::take(&mut idle) {
            match bench.machine.acquire(bench.now, &Request::new(CHAT)) {
                AcquireResult::Granted(lease) => granted.push(lease),
                AcquireResult::Waiting(_) => {}
                AcquireResult::Denied(denial) => panic!("{denial}"),
            }
        }
        for lease in granted {
            let is_answered = bench.now >= next;
            if is_answered {
                next = bench.now + Duration::from_millis(interval_ms);
            }
            let takes = Duration::from_millis(if is_answered { 300 } else { 5 });
            let done = if is_answered { Outcome::Success.into() } else { Completion::rate_limited(retry_after) };
            out.push((bench.now + takes, lease, done));
        }
        for (_, lease, done) in out.extract_if(.., |call| call.0 <= bench.now).collect::<Vec<_>>() {
            bench.end(lease, done);
            idle += 1;
        }
        let state = bench.state();
        match bench.machine.why_next(bench.now, CHAT) {
            Some(CallWait::Cooldown { until }) => {
                assert_eq!(state.blocked_until, Some(until));
                counts[0] += 1;
            }
            Some(CallWait::Paced { until }) => {
                assert!(until > bench.now && state.in_flight < state.current_limit, "{state:?}");
                counts[1] += 1;
            }
            Some(CallWait::Limit { limit, in_flight, .. }) => {
                assert_eq!((limit, in_flight), (state.current_limit, state.in_flight));
                assert!(in_flight >= limit, "{state:?}");
                counts[2] += 1;
            }
            Some(CallWait::ProviderCap { cap }) => assert_eq!(state.in_flight, cap),
            Some(CallWait::Turn) | None => {}
            other => panic!("{other:?}"),
        }
        bench.after(Duration::from_millis(1));
    }
    counts
}

#[test]
fn after_rate_limits_the_reason_matches_the_state_and_is_never_a_limit_that_is_not_reached() {
    let mut paced_by_tide = 0;
    for retry_after in [None, Some(Duration::from_millis(700))] {
        let mut aimd = Bench::new(64, LimitConfig::default());
        let [cooldown, paced, _] = reasons_under_rate_limits(&mut aimd, 200, retry_after);
        assert!(cooldown > 1_000 && paced == 0, "{cooldown} {paced}");
        let mut tide = Bench::new(64, LimitConfig::default());
        let algorithm = Tide::new(TideConfig::default()).expect("valid settings");
        tide.machine.set_algorithm(tide.now, CHAT, Box::new(algorithm)).expect("a known resource");
        let [_, paced, _] = reasons_under_rate_limits(&mut tide, 200, retry_after);
        paced_by_tide += paced;
    }
    assert!(paced_by_tide > 0, "tide paces calls after rate limits");
}
