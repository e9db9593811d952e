use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::request::testing::{Bench, CHAT};
use crate::request::{AimdConfig, Completion, Request, RequestLease};

const REFUSED: Completion = Completion::rate_limited(None);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A controller under a tide that may let 64 calls out.
fn bench(config: TideConfig) -> Bench {
    let mut bench = Bench::new(64, AimdConfig::default());
    let tide = Tide::new(config).expect("valid settings");
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(tide)).expect("a known resource");
    bench
}

impl Bench {
    /// Lets as many calls out as it may.
    fn fill(&mut self) -> Vec<RequestLease> {
        core::iter::from_fn(|| self.machine.try_acquire(self.now, &Request::new(CHAT)).ok()).collect()
    }

    /// So many round trips of 100 ms with as many calls out as may be.
    fn trips(&mut self, trips: u32) {
        for _ in 0..trips {
            let calls = self.fill();
            self.after(millis(100));
            for call in calls {
                self.end(call, Outcome::Success);
            }
        }
    }

    /// A provider that bears `slots` refuses what is beyond them at once and answers the rest after 100 ms.
    fn trips_against(&mut self, slots: usize, trips: u32) -> usize {
        let mut refused = 0;
        for _ in 0..trips {
            let mut calls = self.fill();
            self.after(millis(5));
            for call in calls.split_off(slots.min(calls.len())) {
                refused += 1;
                self.end(call, REFUSED);
            }
            self.after(millis(95));
            for call in calls {
                self.end(call, Outcome::Success);
            }
        }
        refused
    }
}

#[test]
fn it_doubles_each_round_trip_until_something_is_refused() {
    let mut bench = bench(TideConfig::default());
    for expected in [4, 8, 16, 32, 64, 64] {
        assert_eq!(bench.limit(), expected);
        bench.trips(1);
    }
}

#[test]
fn a_limit_that_nobody_makes_use_of_does_not_grow() {
    let mut bench = bench(TideConfig::default());
    bench.succeed(100);
    assert_eq!(bench.limit(), 4);
}

#[test]
fn a_lone_refusal_says_how_many_are_borne_and_stops_nothing() {
    let mut bench = bench(TideConfig::default());
    bench.trips(2);
    let mut calls = bench.take(13);
    bench.end(calls.pop().unwrap(), REFUSED);
    let state = bench.state();
    assert_eq!((state.current_limit, state.blocked_until, state.rate_limit_ceiling), (12, None, 16));
    bench.end(calls.pop().unwrap(), Outcome::Success);
    assert_eq!(bench.fill().len(), 1, "one came back, one goes out");
}

#[test]
fn the_rest_of_a_cascade_cuts_nothing() {
    let mut bench = bench(TideConfig::default());
    bench.trips(2);
    let calls = bench.take(16);
    for call in calls.into_iter().rev() {
        bench.end(call, REFUSED);
    }
    assert_eq!(bench.limit(), 15);
}

#[test]
fn refusals_with_nothing_let_through_between_them_cut_more_each_time() {
    let mut bench = bench(TideConfig::default());
    bench.trips(3);
    let mut calls = bench.take(32);
    let mut limits = Vec::new();
    while bench.limit() > 2 {
        // The last one out is refused; enough of the others end for another to go.
        bench.after(millis(1));
        bench.end(calls.pop().unwrap(), REFUSED);
        limits.push(bench.limit());
        while calls.len() as u32 >= bench.limit() {
            bench.end(calls.pop().unwrap(), Outcome::ProviderFailure);
        }
        calls.extend(bench.take(1));
    }
    assert_eq!(limits, [31, 29, 25, 17, 11, 7, 4, 2]);
    assert_eq!(bench.state().blocked_until, None, "there was always something to cut");
}

#[test]
fn at_one_call_it_pauses_twice_as_long_each_time() {
    let mut bench = bench(TideConfig { initial_limit: 1, longest_pause: millis(300), ..TideConfig::default() });
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let call = bench.take(1).remove(0);
        bench.end(call, REFUSED);
        let end = bench.state().blocked_until.expect("it pauses");
        pauses.push((end - bench.now).as_nanos() / 1_000_000);
        bench.now = end;
    }
    assert_eq!(pauses, [50, 50, 100, 200, 300]);
}

#[test]
fn a_retry_after_is_obeyed_to_the_nanosecond_and_then_it_starts_one_by_one() {
    let mut bench = bench(TideConfig::default());
    bench.trips(2);
    let mut calls = bench.take(13);
    bench.after(millis(5));
    bench.end(calls.pop().unwrap(), Completion::rate_limited(Some(millis(700))));
    let end = bench.now + millis(700);
    bench.after(millis(100));
    for call in calls {
        bench.end(call, Outcome::Success);
    }
    bench.now = Instant::from_nanos(end.as_nanos() - 1);
    assert!(bench.fill().is_empty());
    bench.now = end;
    let mut out = bench.fill();
    assert_eq!(out.len(), 1);
    // A refusal took 5 ms: look again after twice that.
    for expected in [2, 4, 8, 12] {
        bench.after(Duration::from_nanos(millis(10).as_nanos() - 1));
        assert!(bench.fill().is_empty());
        bench.after(Duration::from_nanos(1));
        out.extend(bench.fill());
        assert_eq!(out.len(), expected);
    }
}

#[test]
fn waiters_wake_at_the_instant_at_which_the_next_step_opens() {
    let mut bench = bench(TideConfig::default());
    bench.trips(2);
    let call = bench.take(1).remove(0);
    bench.after(millis(5));
    bench.end(call, Completion::rate_limited(Some(millis(700))));
    let end = bench.now + millis(700);
    for _ in 0..3 {
        let _ = bench.wait(Request::new(CHAT));
    }
    assert_eq!(bench.limit(), 1, "one call out was one too many");
    bench.now = bench.machine.poll_timeout().expect("the pause ends");
    assert_eq!(bench.now, end);
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn a_probe_that_fails_is_followed_by_the_next_after_twice_as_many_successes() {
    let mut bench = bench(TideConfig::default());
    bench.trips_against(10, 3);
    let refused: Vec<usize> = (0..8).map(|_| bench.trips_against(10, 16)).collect();
    assert!(refused.iter().rev().take(4).all(|refused| *refused <= 1), "{refused:?}");
    assert_eq!(bench.limit(), 10);
}

#[test]
fn a_ceiling_that_rose_is_found_within_a_few_round_trips_of_the_probe_that_passes() {
    let mut bench = bench(TideConfig::default());
    bench.trips_against(6, 100);
    assert_eq!(bench.limit(), 6);
    bench.trips_against(40, 100);
    assert!((39..=41).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn a_rate_is_learned_from_what_its_bucket_let_through() {
    let mut bench = bench(TideConfig { initial_limit: 1, ..TideConfig::default() });
    // One call each 200 ms; a call takes 50.
    let (mut opens, mut refused, mut answered) = (Instant::ZERO, 0, 0);
    while bench.now < Instant::from_nanos(60_000_000_000) {
        let Ok(call) = bench.machine.try_acquire(bench.now, &Request::new(CHAT)) else {
            bench.after(millis(1));
            continue;
        };
        if bench.now < opens {
            let wait = opens - bench.now;
            refused += 1;
            bench.end(call, Completion::rate_limited(Some(wait)));
        } else {
            opens = bench.now + millis(200);
            answered += 1;
            bench.after(millis(50));
            bench.end(call, Outcome::Success);
        }
    }
    assert!(answered > 270 && refused < 12, "{answered} answered, {refused} refused");
}

#[test]
fn calls_that_take_longer_the_more_of_them_are_out_are_let_out_no_more_than_flow() {
    let mut bench = bench(TideConfig::default());
    for _ in 0..200 {
        let calls = bench.fill();
        let at_once = calls.len() as u64;
        bench.after(millis(100 * at_once.max(10) / 10));
        for call in calls {
            bench.end(call, Outcome::Success);
        }
    }
    assert!((9..=12).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn a_provider_that_bears_the_cap_is_given_the_cap() {
    let mut bench = bench(TideConfig::default());
    bench.trips(200);
    assert_eq!(bench.limit(), 64);
}

#[test]
fn a_value_out_of_range_is_refused_by_name() {
    let standard = TideConfig::default();
    for (config, field) in [
        (TideConfig { initial_limit: 0, ..standard }, "initial_limit"),
        (TideConfig { probe_after: 0, ..standard }, "probe_after"),
        (TideConfig { probe_after_most: 15, ..standard }, "probe_after_most"),
        (TideConfig { pauses_between_probes: 0, ..standard }, "pauses_between_probes"),
        (TideConfig { decrease_factor: 1.0, ..standard }, "decrease_factor"),
        (TideConfig { decrease_factor: f64::NAN, ..standard }, "decrease_factor"),
        (TideConfig { longest_pause: Duration::ZERO, ..standard }, "longest_pause"),
        (TideConfig { latency_tolerance: 1.0, ..standard }, "latency_tolerance"),
    ] {
        assert_eq!(Tide::new(config).unwrap_err().field, field);
    }
}

// ---- laws ----

/// A tide driven by chance, and what it must keep to.
struct Chance {
    state: u64,
    tide: Tide,
    now: Instant,
    max: u32,
    granted: u64,
    out: Vec<CallReport>,
    since: Vec<Instant>,
    blocked_until: Instant,
    /// Grants at the last refusal that lowered the limit.
    cut_at: u64,
}

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's multiplier.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    fn step(&mut self) {
        match self.below(10) {
            0..=4 => self.grant(),
            5..=7 if !self.out.is_empty() => self.end(),
            8 if self.below(50) == 0 => {
                self.max = 1 + self.below(100) as u32;
                self.tide.set_max(self.now, self.max, false);
            }
            _ => self.wait(),
        }
        assert!((1..=self.max).contains(&self.tide.limit(self.now)));
    }

    fn grant(&mut self) {
        self.tide.on_attempt(self.now, self.out.len() as u32);
        let may = self.now >= self.blocked_until && self.tide.opens_at(self.now).is_none();
        let limit = self.tide.limit(self.now);
        if may && (self.out.len() as u32) < limit {
            let admitted_in_flight = self.out.len() as u32 + 1;
            self.out.push(CallReport {
                outcome: Outcome::Success,
                grant: self.granted,
                admitted_limit: limit,
                admitted_in_flight,
                latency: Duration::ZERO,
                in_flight: 0,
                is_cooling_down: false,
            });
            self.since.push(self.now);
            self.tide.on_grant(self.now, self.granted, admitted_in_flight);
            self.granted += 1;
        }
    }

    fn end(&mut self) {
        let which = self.below(self.out.len() as u64) as usize;
        let (mut call, since) = (self.out.swap_remove(which), self.since.swap_remove(which));
        call.latency = self.now - since;
        call.in_flight = self.out.len() as u32;
        call.outcome = match self.below(12) {
            0 | 1 => Outcome::RateLimited,
            2 => Outcome::ProviderTimeout,
            3 => Outcome::LocalCancelled,
            _ => Outcome::Success,
        };
        if call.outcome == Outcome::RateLimited {
            let asked = (self.below(2) == 0).then(|| Duration::from_nanos(1 + self.below(3_000_000_000)));
            let pause = asked.or_else(|| self.tide.pause(self.now, &call)).unwrap();
            self.blocked_until = self.blocked_until.max(self.now + pause);
            if self.blocked_until > self.now {
                self.tide.on_pause(self.now, self.blocked_until, asked);
            }
        }
        call.is_cooling_down = self.blocked_until > self.now;
        let before = self.tide.limit;
        self.tide.on_outcome(self.now, &call);
        let is_refused = call.outcome == Outcome::RateLimited;
        if is_refused && self.tide.limit < before {
            assert!(call.grant >= self.cut_at, "a call of the same cascade cut again");
            self.cut_at = self.granted;
        }
    }

    /// Lets time pass; nothing may change that was not announced.
    fn wait(&mut self) {
        let until = self.now + Duration::from_nanos(1 + self.below(50_000_000));
        let announced = self.tide.next_change(self.now).map_or(until, |at| at.min(until));
        assert!(announced > self.now);
        let answer = |at| (self.tide.limit(at), self.tide.opens_at(at).is_some());
        let before = answer(self.now);
        let last = Instant::from_nanos(announced.as_nanos() - 1).max(self.now);
        let between = Instant::from_nanos(self.now.as_nanos().midpoint(last.as_nanos()));
        assert_eq!([before, before], [answer(between), answer(last)]);
        self.now = announced;
    }
}

#[test]
fn whatever_happens_the_limit_keeps_its_laws() {
    for seed in 0..60 {
        let tide = Tide::new(TideConfig::default()).unwrap();
        let mut chance = Chance {
            state: seed,
            tide,
            now: Instant::ZERO,
            max: 50,
            granted: 0,
            out: Vec::new(),
            since: Vec::new(),
            blocked_until: Instant::ZERO,
            cut_at: 0,
        };
        chance.tide.set_max(Instant::ZERO, 50, false);
        for _ in 0..4_000 {
            chance.step();
        }
    }
}
