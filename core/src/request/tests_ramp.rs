//! Tests of the start-up ramp for algorithms without a ramp of their own, and of the bounds on a custom
//! algorithm.

use std::vec::Vec;

use super::testing::{Bench, CHAT};
use super::*;
use crate::limit::{LimitAlgorithm, LimitChoice, TideConfig};
use crate::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a resource with this limit algorithm and a ramp of eight seconds.
fn ramped(cap: u32, choice: LimitChoice) -> Bench {
    configured(cap, choice, LimitConfig { ramp: Duration::from_secs(8), ..LimitConfig::default() })
}

fn configured(cap: u32, choice: LimitChoice, config: LimitConfig) -> Bench {
    let mut bench = Bench::new(cap, config);
    bench.machine.choose_algorithm(bench.now, CHAT, choice).expect("valid settings");
    bench
}

fn tide(initial_limit: u32) -> LimitChoice {
    LimitChoice::Tide(TideConfig { initial_limit, ..TideConfig::default() })
}

#[test]
fn a_ramp_bounds_a_fixed_limit_from_the_first_call_and_serves_waiters_at_each_step() {
    let mut bench = ramped(64, LimitChoice::Fixed { limit: 5 });
    bench.after(Duration::from_secs(100));
    assert_eq!(bench.state().ramp.map(|ramp| (ramp.target, ramp.ends)), Some((5, None)));
    let first = bench.take(1).remove(0);
    let _waiters: Vec<_> = (0..4).map(|_| bench.wait(Request::new(CHAT))).collect();
    let mut opened = Vec::new();
    while let Some(at) = bench.machine.poll_timeout() {
        bench.now = at;
        bench.machine.handle_timeout(at);
        opened.extend(bench.granted().iter().map(|_| at.as_nanos() / 1_000_000_000));
    }
    assert_eq!(opened, [102, 104, 106, 108]);
    assert_eq!(bench.state().ramp, None);
    bench.end(first, Outcome::Success);
}

#[test]
fn under_a_ramp_tide_has_no_more_calls_in_flight_than_the_ramp_allows() {
    let mut bench = ramped(9, tide(9));
    let mut most = Vec::new();
    let mut out: Vec<(Instant, RequestLease)> = Vec::new();
    for tick in 0..1_000_u64 {
        bench.now = Instant::ZERO + Duration::from_millis(10 * tick);
        let now = bench.now;
        while let Some(at) = out.iter().position(|(ends, _)| *ends <= now) {
            bench.end(out.swap_remove(at).1, Outcome::Success);
        }
        while let Ok(lease) = bench.machine.try_acquire(now, &Request::new(CHAT)) {
            out.push((now + Duration::from_millis(100), lease));
        }
        if tick % 100 == 99 {
            most.push(out.len());
        }
    }
    assert_eq!(most[..7], [1, 2, 3, 4, 5, 6, 7], "a slot a second");
    assert_eq!(most[8..], [9, 9]);
    for (_, lease) in out {
        bench.end(lease, Outcome::Success);
    }
}

#[test]
fn a_rate_limit_ends_the_ramp_and_the_algorithm_continues_from_its_limit() {
    let mut bench = ramped(64, tide(64));
    let first = bench.take(1).remove(0);
    bench.after(SECOND);
    assert_eq!(bench.limit(), 8, "1 + 63 / 8");
    bench.end(first, Outcome::RateLimited);
    assert_eq!(bench.state().ramp, None);
    assert!(bench.limit() <= 8, "{}", bench.limit());
}

#[test]
fn a_provider_failure_does_not_affect_the_ramp_of_any_algorithm() {
    let mut bench = ramped(5, LimitChoice::Fixed { limit: 5 });
    let lease = bench.take(1).remove(0);
    bench.after(Duration::from_secs(4));
    bench.end(lease, Outcome::ProviderFailure);
    assert_eq!(bench.limit(), 3);
    bench.after(Duration::from_secs(4));
    assert_eq!(bench.limit(), 5);
}

#[test]
fn a_ramp_that_is_set_or_changed_later_restarts_for_any_algorithm() {
    let mut bench = configured(5, LimitChoice::Fixed { limit: 5 }, LimitConfig::default());
    bench.succeed(1);
    assert_eq!(bench.limit(), 5);
    let ramp = |secs| LimitConfig { ramp: Duration::from_secs(secs), ..LimitConfig::default() };
    bench.machine.reconfigure(bench.now, CHAT, ramp(4)).expect("valid settings");
    assert_eq!(bench.limit(), 1);
    bench.succeed(1);
    bench.after(Duration::from_secs(2));
    assert_eq!(bench.limit(), 3);
    bench.machine.reconfigure(bench.now, CHAT, ramp(0)).expect("valid settings");
    assert_eq!((bench.limit(), bench.state().ramp), (5, None));
}

#[test]
fn an_idle_resource_ramps_again_from_half_its_limit_under_any_algorithm() {
    let (ramp, ramp_after_idle) = (Duration::from_secs(4), Some(Duration::from_secs(60)));
    let config = LimitConfig { ramp, ramp_after_idle, ..LimitConfig::default() };
    let mut bench = configured(8, LimitChoice::Fixed { limit: 8 }, config);
    bench.succeed(1);
    bench.after(Duration::from_secs(30));
    bench.succeed(1);
    assert_eq!(bench.limit(), 8);
    bench.after(Duration::from_secs(61));
    bench.succeed(1);
    assert_eq!(bench.limit(), 4);
    bench.after(Duration::from_secs(2));
    assert_eq!(bench.limit(), 6);
}

#[test]
fn a_ramp_follows_the_cap() {
    let mut bench = ramped(9, LimitChoice::Fixed { limit: 9 });
    bench.succeed(1);
    bench.machine.register(bench.now, "provider", "model", "default", 3).expect("a valid cap");
    bench.after(Duration::from_secs(4));
    assert_eq!((bench.limit(), bench.state().ramp.map(|ramp| ramp.target)), (2, Some(3)));
}

#[test]
fn aimd_uses_only_its_own_ramp() {
    let mut bench = ramped(5, LimitChoice::Aimd);
    bench.succeed(1);
    bench.after(Duration::from_secs(4));
    assert_eq!(bench.state().ramp.map(|ramp| ramp.target), Some(5));
    let lease = bench.take(1).remove(0);
    bench.end(lease, Outcome::RateLimited);
    assert_eq!((bench.limit(), bench.state().ramp), (2, None), "a quarter less than the 3 of the ramp");
}

/// An algorithm with a pause of ten seconds after every rate limit.
struct LongPause;

impl LimitAlgorithm for LongPause {
    fn limit(&self, _now: Instant) -> u32 {
        4
    }

    fn on_outcome(&mut self, _now: Instant, _call: &crate::limit::CallReport) {}

    fn cooldown(&self, _now: Instant, _call: &crate::limit::CallReport) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}
}

#[test]
fn a_pause_without_retry_after_is_bounded_by_the_configured_cooldown() {
    let mut bench = Bench::new(4, LimitConfig { cooldown: SECOND, ..LimitConfig::default() });
    bench.machine.set_algorithm(bench.now, CHAT, alloc::boxed::Box::new(LongPause)).expect("a known resource");
    let mut leases = bench.take(2);
    bench.end(leases.remove(0), Outcome::RateLimited);
    assert_eq!(bench.state().cooldown_remaining, SECOND);
    let asked = Completion { retry_after: Some(Duration::from_secs(3)), ..Outcome::RateLimited.into() };
    bench.end(leases.remove(0), asked);
    assert_eq!(
        bench.state().cooldown_remaining,
        Duration::from_secs(10),
        "the algorithm may pause longer than the Retry-After"
    );
}

#[test]
fn limit_choice_returns_the_algorithm_of_a_resource() {
    let mut bench = Bench::new(4, LimitConfig::default());
    let choice = |bench: &Bench| bench.machine.limit_choice(CHAT).map(|choice| choice.name());
    assert_eq!(choice(&bench), Some("aimd"));
    bench.machine.choose_algorithm(bench.now, CHAT, tide(4)).expect("valid settings");
    assert_eq!(choice(&bench), Some("tide"));
    bench.machine.set_algorithm(bench.now, CHAT, alloc::boxed::Box::new(LongPause)).expect("a known resource");
    assert_eq!(choice(&bench), None);
    bench.machine.configure(bench.now, CHAT, LimitConfig::default()).expect("valid settings");
    assert_eq!(choice(&bench), Some("aimd"));
}
