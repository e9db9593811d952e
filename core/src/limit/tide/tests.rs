use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::request::testing::{Bench, CHAT};
use crate::request::{AimdConfig, Completion, Request, RequestLease};

const REFUSED: Completion = Completion::rate_limited(None);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a bench whose limit is a `Tide` of at most 64 concurrent calls.
fn bench(config: TideConfig) -> Bench {
    let mut bench = Bench::new(64, AimdConfig::default());
    let tide = Tide::new(config).expect("valid settings");
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(tide)).expect("a known resource");
    bench
}

/// A mock provider. From the time a call is sent and the accepted calls in flight, it returns the latency of
/// the call, and the Retry-After if it refuses the call.
type Provider<'a> = &'a mut dyn FnMut(Instant, usize) -> (Duration, Option<Option<Duration>>);

impl Bench {
    /// Sends `calls` calls, each as soon as the limit allows.
    fn send(&mut self, calls: usize) -> Vec<RequestLease> {
        let mut out = Vec::new();
        while out.len() < calls {
            match self.machine.try_acquire(self.now, &Request::new(CHAT)) {
                Ok(lease) => out.push(lease),
                Err(_) => self.after(millis(1)),
            }
            assert!(self.now < Instant::from_nanos(3_600_000_000_000), "the limit allows no call for an hour");
        }
        out
    }

    /// Keeps as many calls in flight as the limit allows for `span`. Returns how many were answered and how
    /// many refused.
    fn serve(&mut self, span: Duration, provider: Provider) -> (usize, usize) {
        let end = self.now + span;
        let mut out: Vec<(Instant, RequestLease, Completion)> = Vec::new();
        let (mut answered, mut refused) = (0, 0);
        while self.now < end || !out.is_empty() {
            while self.now < end
                && let Ok(lease) = self.machine.try_acquire(self.now, &Request::new(CHAT))
            {
                let accepted = out.iter().filter(|call| call.2.outcome == Outcome::Success).count();
                let (takes, refusal) = provider(self.now, accepted);
                let completion = refusal.map_or(Completion::from(Outcome::Success), Completion::rate_limited);
                out.push((self.now + takes, lease, completion));
            }
            self.after(millis(1));
            for (_, lease, completion) in out.extract_if(.., |call| call.0 <= self.now).collect::<Vec<_>>() {
                *if completion.outcome == Outcome::Success { &mut answered } else { &mut refused } += 1;
                self.end(lease, completion);
            }
        }
        (answered, refused)
    }

    /// Serves from a provider that answers `slots` calls after 100 ms and refuses more after 5 ms. Returns
    /// the refusals.
    fn serve_slots(&mut self, span: Duration, slots: usize, retry_after: Option<Duration>) -> usize {
        let refused = (millis(5), Some(retry_after));
        self.serve(span, &mut |_, out| if out < slots { (millis(100), None) } else { refused }).1
    }

    /// Serves from a bucket of `burst` nanoseconds, full at first. The n-th call takes 150 ms and costs
    /// `cost(n)`.
    fn serve_bucket(&mut self, span: Duration, burst: u64, cost: impl Fn(u64) -> u64) -> (usize, usize) {
        let (mut level, mut at, mut accepted) = (burst, self.now, 0);
        self.serve(span, &mut |now, _| {
            level = burst.min(level + (now - at).as_nanos());
            at = now;
            match cost(accepted).checked_sub(level) {
                None | Some(0) => {
                    level -= cost(accepted);
                    accepted += 1;
                    (millis(150), None)
                }
                Some(missing) => (millis(5), Some(Some(Duration::from_nanos(missing)))),
            }
        })
    }
}

fn starting_at(initial_limit: u32) -> Bench {
    bench(TideConfig { initial_limit, ..TideConfig::default() })
}

/// Returns a bench on which every Retry-After stops the resource.
fn obeying(initial_limit: u32) -> Bench {
    bench(TideConfig { initial_limit, retry_after: RetryAfterStops::Resource, ..TideConfig::default() })
}

#[test]
fn the_limit_doubles_each_round_trip_until_a_call_is_refused() {
    let mut bench = starting_at(4);
    for _ in 0..8 {
        let before = bench.limit();
        bench.serve_slots(millis(90), 1_000, None);
        assert!(bench.limit() <= 2 * before, "{before} {}", bench.limit());
    }
    assert_eq!(bench.limit(), 64);
}

#[test]
fn the_first_calls_are_sent_one_each_millisecond() {
    let mut bench = starting_at(10);
    let start = bench.now;
    bench.send(10);
    assert_eq!(bench.now, start + millis(9));
}

#[test]
fn an_unused_limit_does_not_grow() {
    let mut bench = starting_at(4);
    for _ in 0..100 {
        let call = bench.send(1).remove(0);
        bench.end(call, Outcome::Success);
    }
    assert_eq!(bench.limit(), 4);
}

#[test]
fn a_single_refusal_sets_the_limit_one_lower_and_does_not_pause() {
    let mut bench = starting_at(16);
    let mut calls = bench.send(13);
    bench.end(calls.pop().unwrap(), REFUSED);
    let state = bench.state();
    assert_eq!((state.current_limit, state.blocked_until, state.rate_limit_ceiling), (12, None, 16));
    bench.end(calls.pop().unwrap(), Outcome::Success);
    bench.take(1);
    assert_eq!(
        bench.machine.try_acquire(bench.now, &Request::new(CHAT)).ok(),
        None,
        "one call ended, so one is granted"
    );
}

#[test]
fn the_rest_of_a_cascade_cuts_nothing() {
    let mut bench = starting_at(16);
    let mut calls = bench.send(16);
    for call in calls.drain(8..).rev() {
        bench.end(call, REFUSED);
    }
    assert_eq!(bench.limit(), 15);
}

#[test]
fn a_surplus_of_refusals_stops_all_calls_until_refusals_in_flight_have_arrived() {
    let mut bench = starting_at(16);
    let mut calls = bench.send(16);
    bench.after(millis(20));
    for call in calls.drain(4..).rev() {
        bench.end(call, REFUSED);
    }
    let state = bench.state();
    assert!(state.blocked_until.is_some_and(|until| until > bench.now), "{state:?}");
    assert!(bench.machine.try_acquire(bench.now, &Request::new(CHAT)).is_err());
}

#[test]
fn refusals_with_no_call_accepted_between_them_cut_more_each_time_and_the_fifth_pauses_instead() {
    let mut bench = starting_at(32);
    let mut calls = bench.send(32);
    let mut limits = Vec::new();
    for _ in 0..5 {
        // The last call is refused. Enough of the others end for another to be granted.
        bench.after(millis(5));
        bench.end(calls.pop().unwrap(), REFUSED);
        limits.push(bench.limit());
        while calls.len() as u32 >= bench.limit() {
            bench.end(calls.pop().unwrap(), Outcome::ProviderFailure);
        }
        if limits.len() < 5 {
            calls.extend(bench.take(1));
        }
    }
    assert_eq!(limits, [31, 29, 25, 17, 17], "nothing is accepted, so the provider is closed");
    bench.now = bench.state().blocked_until.expect("it waits");
    let call = bench.take(1).remove(0);
    bench.after(millis(100));
    bench.end(call, Outcome::Success);
    bench.serve_slots(millis(1_000), 40, None);
    assert!(bench.limit() >= 31, "the limit is not restored: {}", bench.limit());
}

#[test]
fn a_provider_that_is_closed_is_tried_after_a_quarter_of_the_time_so_far() {
    let mut bench = starting_at(4);
    let mut refused = Vec::new();
    for _ in 0..20 {
        let call = bench.send(1).remove(0);
        bench.after(millis(5));
        refused.push(bench.now);
        bench.end(call, REFUSED);
    }
    let span = |from: usize, to: usize| (refused[to] - refused[from]).as_nanos() as f64;
    for nth in 12..20 {
        let part = span(nth - 1, nth) / span(0, nth - 1);
        assert!((0.2..0.35).contains(&part), "{nth}: {part}");
    }
}

#[test]
fn at_a_limit_of_one_each_pause_is_longer_than_the_one_before() {
    let mut bench = bench(TideConfig { initial_limit: 1, longest_pause: millis(300), ..TideConfig::default() });
    let mut pauses = Vec::new();
    for _ in 0..16 {
        let call = bench.send(1).remove(0);
        bench.after(millis(5));
        bench.end(call, REFUSED);
        let end = bench.state().blocked_until.expect("it pauses");
        pauses.push((end - bench.now).as_nanos() / 1_000_000);
        bench.now = end;
    }
    assert!(pauses.is_sorted() && pauses[0] == 50 && pauses[15] == 300, "{pauses:?}");
}

#[test]
fn a_retry_after_that_stops_the_resource_is_obeyed_exactly_and_then_calls_restart_step_by_step() {
    let mut bench = obeying(16);
    let first = bench.send(1).remove(0);
    bench.after(millis(100));
    bench.end(first, Outcome::Success);
    let mut calls = bench.send(13);
    bench.after(millis(5));
    bench.end(calls.pop().unwrap(), Completion::rate_limited(Some(millis(700))));
    let end = bench.now + millis(700);
    bench.after(millis(100));
    for call in calls {
        bench.end(call, Outcome::Success);
    }
    bench.now = Instant::from_nanos(end.as_nanos() - 1);
    assert!(bench.machine.try_acquire(bench.now, &Request::new(CHAT)).is_err());
    bench.now = end;
    let mut out = bench.take(1);
    // A refusal took 5 ms, so a step takes 10.
    for expected in [2, 4, 8, 13] {
        bench.after(Duration::from_nanos(millis(10).as_nanos() - 1));
        assert!(bench.machine.try_acquire(bench.now, &Request::new(CHAT)).is_err());
        bench.after(Duration::from_nanos(1));
        while let Ok(lease) = bench.machine.try_acquire(bench.now, &Request::new(CHAT)) {
            out.push(lease);
        }
        assert_eq!(out.len(), expected);
    }
}

#[test]
fn waiters_wake_at_the_instant_at_which_the_next_step_opens() {
    let mut bench = obeying(16);
    let call = bench.take(1).remove(0);
    bench.after(millis(5));
    bench.end(call, Completion::rate_limited(Some(millis(700))));
    let end = bench.now + millis(700);
    for _ in 0..3 {
        let _ = bench.wait(Request::new(CHAT));
    }
    assert_eq!(bench.limit(), 1, "one call in flight was refused");
    bench.now = bench.machine.poll_timeout().expect("the pause ends");
    assert_eq!(bench.now, end);
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn probes_become_rarer_the_longer_a_limit_holds() {
    let mut bench = starting_at(10);
    let refused: Vec<usize> = (0..6).map(|_| bench.serve_slots(millis(60_000), 10, None)).collect();
    // Each minute has 6,000 calls.
    assert!(refused[0] <= 90 && refused[1..].iter().all(|refused| *refused <= 45), "{refused:?}");
    assert!((10..=11).contains(&bench.limit()));
}

#[test]
fn a_ceiling_that_rose_is_reached_within_a_few_round_trips_of_the_probe_that_passes() {
    let mut bench = starting_at(4);
    bench.serve_slots(millis(10_000), 6, None);
    assert_eq!(bench.limit(), 6);
    bench.serve_slots(millis(10_000), 40, None);
    assert!((39..=41).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn a_few_refusals_give_a_rate_and_few_follow() {
    let mut bench = obeying(10);
    // A burst of ten, and one call each 500 ms.
    let (answered, refused) = bench.serve_bucket(millis(60_000), 5_000_000_000, |_| 500_000_000);
    assert!(answered >= 129 && refused <= 8, "{answered} answered, {refused} refused");
}

#[test]
fn calls_that_cost_differently_are_paced_by_their_mean_cost() {
    let mut bench = starting_at(10);
    // A call costs 40 to 160 ms, 100 on average. The burst is twenty calls.
    let cost = |nth: u64| 40_000_000 * (1 + nth.wrapping_mul(2_654_435_761) % 1_000 * 3 / 1_000) + 20_000_000;
    let (answered, refused) = bench.serve_bucket(millis(120_000), 2_000_000_000, cost);
    assert!(answered >= 1_200 && refused <= 100, "{answered} answered, {refused} refused");
}

#[test]
fn where_a_share_of_calls_is_refused_at_any_pace_the_pace_is_given_up() {
    let mut bench = starting_at(10);
    let mut sent = 0_u64;
    let mut pool = |_: Instant, _: usize| {
        sent += 1;
        let is_refused = sent.wrapping_mul(2_654_435_761) / 1_000 % 10 < 3;
        if is_refused { (millis(5), Some(Some(millis(700)))) } else { (millis(100), None) }
    };
    bench.serve(millis(600_000), &mut pool);
    let (answered, _) = bench.serve(millis(300_000), &mut pool);
    assert!(answered >= 300, "the slow pace still binds: {answered} answered");
}

#[test]
fn the_limit_reaches_the_ceiling_although_a_share_is_refused_at_any_load() {
    let mut bench = starting_at(10);
    let mut sent = 0_u64;
    // The provider accepts twenty concurrent calls and refuses three of ten at any load.
    let mut pool = |_: Instant, out: usize| {
        sent += 1;
        let is_drawn = sent.wrapping_mul(2_654_435_761) / 1_000 % 10 < 3;
        if is_drawn || out >= 20 { (millis(5), Some(None)) } else { (millis(100), None) }
    };
    bench.serve(millis(30_000), &mut pool);
    let (answered, refused) = bench.serve(millis(60_000), &mut pool);
    let share = refused * 100 / (answered + refused);
    assert!(answered >= 8_000 && share <= 60, "{answered} answered of 12,000, {share} of 100 refused");
}

#[test]
fn a_provider_that_refuses_nearly_every_call_is_sent_few_calls() {
    let mut bench = starting_at(10);
    let mut sent = 0_u64;
    let mut nearly = |_: Instant, _: usize| {
        sent += 1;
        if sent.wrapping_mul(2_654_435_761) / 1_000 % 10 < 9 { (millis(5), Some(None)) } else { (millis(100), None) }
    };
    bench.serve(millis(30_000), &mut nearly);
    let (_, refused) = bench.serve(millis(60_000), &mut nearly);
    assert!(refused <= 60 * 20, "{refused} refused in a minute");
}

#[test]
fn a_retry_after_of_a_provider_without_a_free_slot_stops_only_the_refused_call() {
    let mut bench = starting_at(10);
    let asked = Some(Some(millis(5_000)));
    let mut slots = |_: Instant, out: usize| if out < 20 { (millis(100), None) } else { (millis(5), asked) };
    bench.serve(millis(20_000), &mut slots);
    let (answered, refused) = bench.serve(millis(60_000), &mut slots);
    assert!(answered >= 11_700 && refused <= 120, "{answered} answered of 12,000, {refused} refused");
}

#[test]
fn a_retry_after_before_which_no_call_is_accepted_is_obeyed_except_for_few_trials() {
    let mut bench = starting_at(10);
    let mut opens = Instant::ZERO;
    let mut taken = 0;
    // The provider accepts fifty calls, and then none for three seconds.
    let (_, refused) = bench.serve(millis(300_000), &mut |now, _| {
        if now < opens {
            return (millis(5), Some(Some(opens - now)));
        }
        taken += 1;
        if taken % 50 == 0 {
            opens = now + millis(3_000);
        }
        (millis(100), None)
    });
    assert!(refused <= 300, "{refused} refused");
}

#[test]
fn what_a_retry_after_stops_can_be_set() {
    for (retry_after, is_stopped) in [(RetryAfterStops::Resource, true), (RetryAfterStops::Call, false)] {
        let mut bench = bench(TideConfig { retry_after, ..TideConfig::default() });
        let mut calls = bench.send(8);
        bench.after(millis(5));
        bench.end(calls.pop().unwrap(), Completion::rate_limited(Some(millis(700))));
        assert_eq!(bench.state().blocked_until.is_some(), is_stopped, "{retry_after:?}");
    }
}

#[test]
fn a_rate_with_small_bursts_is_learned_under_long_calls_with_and_without_retry_after() {
    for says in [true, false] {
        let mut bench = starting_at(10);
        let mut next = Instant::ZERO;
        // One call each 400 ms, of 10 s each: twenty-five are in flight.
        let mut bucket = |now: Instant, _: usize| {
            if now < next {
                return (millis(5), Some(says.then(|| next - now)));
            }
            next = now + millis(400);
            (millis(10_000), None)
        };
        bench.serve(millis(100_000), &mut bucket);
        let (answered, refused) = bench.serve(millis(200_000), &mut bucket);
        assert!(answered >= 400 && refused <= 50, "{says}: {answered} answered of 500, {refused} refused");
    }
}

#[test]
fn traffic_that_may_not_rise_fast_rises_as_soon_as_it_may() {
    let mut bench = starting_at(10);
    let (mut period, mut taken, mut most) = (0, 0_u64, 40_u64);
    let mut guard = |now: Instant, out: usize| {
        let current = now.as_nanos() / 2_000_000_000;
        if current != period {
            (period, most, taken) = (current, (taken * 3 / 2).max(40), 0);
        }
        if out >= 40 || taken >= most {
            return (millis(5), Some(None));
        }
        taken += 1;
        (millis(100), None)
    };
    bench.serve(millis(60_000), &mut guard);
    let (answered, refused) = bench.serve(millis(60_000), &mut guard);
    assert!(answered >= 23_000 && refused <= 2_600, "{answered} answered of 24,000, {refused} refused");
}

/// Returns a bucket that holds one call and gains one each `interval`. Calls take 100 ms.
fn slow_bucket(interval: Duration) -> impl FnMut(Instant, usize) -> (Duration, Option<Option<Duration>>) {
    let mut next = Instant::ZERO;
    move |now, _| {
        if now < next {
            return (millis(5), Some(Some(next - now)));
        }
        next = now + interval;
        (millis(100), None)
    }
}

#[test]
fn a_pace_far_slower_than_the_rate_reached_before_is_given_up() {
    let mut bench = starting_at(10);
    let mut fast = |_: Instant, _: usize| (millis(100), None);
    bench.serve(millis(20_000), &mut fast);
    bench.serve(millis(10_000), &mut slow_bucket(millis(400)));
    let (answered, _) = bench.serve(millis(10_000), &mut fast);
    assert!(answered >= 4_000, "the slow pace still binds: {answered} answered of 6,400");
}

#[test]
fn a_slow_pace_that_is_learned_again_is_kept() {
    let mut bench = starting_at(10);
    bench.serve(millis(20_000), &mut |_, _| (millis(100), None));
    let mut slow = slow_bucket(millis(400));
    bench.serve(millis(60_000), &mut slow);
    let (answered, refused) = bench.serve(millis(120_000), &mut slow);
    assert!(answered >= 295 && refused <= 8, "{answered} answered of 300, {refused} refused");
}

#[test]
fn a_pace_is_kept_where_costs_differ_mildly() {
    let mut bench = starting_at(10);
    let cost = |nth: u64| 60_000_000 + 80_000_000 * (nth.wrapping_mul(2_654_435_761) % 1_000) / 1_000;
    bench.serve_bucket(millis(60_000), 2_000_000_000, cost);
    let (answered, refused) = bench.serve_bucket(millis(120_000), 2_000_000_000, cost);
    assert!(answered >= 1_190 && refused <= 100, "{answered} answered of 1,200, {refused} refused");
}

#[test]
fn the_limit_climbs_after_a_provider_was_closed() {
    let mut bench = starting_at(10);
    bench.serve_slots(millis(20_000), 6, None);
    bench.serve(millis(5_000), &mut |_, _| (millis(5), Some(None)));
    assert_eq!(bench.limit(), 1, "four cuts");
    // The next call is sent after up to 1.25 s. Without a climb, the limit is 2 then.
    bench.serve_slots(millis(1_500), 40, None);
    assert!(bench.limit() >= 20, "{}", bench.limit());
}

#[test]
fn a_provider_that_always_states_the_same_retry_after_has_slots_and_no_rate() {
    let mut bench = starting_at(10);
    bench.serve_slots(millis(60_000), 12, Some(millis(500)));
    let refused = bench.serve_slots(millis(60_000), 5, Some(millis(500)));
    assert!(bench.limit() <= 6 && refused > 2, "{} {refused}", bench.limit());
    let (answered, _) = bench.serve(millis(10_000), &mut |_, _| (millis(100), None));
    assert!(answered > 1_000, "calls are paced: {answered} answered");
}

#[test]
fn where_latency_grows_with_load_the_limit_stays_a_little_above_the_knee() {
    let mut bench = starting_at(10);
    bench.serve(millis(60_000), &mut |_, out| (millis(10 * (out as u64 + 1).max(10)), None));
    assert!((10..=14).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn a_provider_that_became_slower_does_not_count_as_queueing() {
    let mut bench = starting_at(10);
    bench.serve(millis(60_000), &mut |_, _| (millis(100), None));
    bench.serve(millis(60_000), &mut |_, _| (millis(200), None));
    assert_eq!(bench.limit(), 64);
}

#[test]
fn the_limit_reaches_its_maximum_if_the_provider_accepts_it() {
    let mut bench = starting_at(10);
    bench.serve_slots(millis(20_000), 1_000, None);
    assert_eq!(bench.limit(), 64);
}

#[test]
fn a_setting_out_of_range_returns_an_error_that_names_it() {
    let standard = TideConfig::default();
    for (config, field) in [
        (TideConfig { initial_limit: 0, ..standard }, "initial_limit"),
        (TideConfig { probe_after: 0, ..standard }, "probe_after"),
        (TideConfig { probe_after_most: 15, ..standard }, "probe_after_most"),
        (TideConfig { decrease_factor: 1.0, ..standard }, "decrease_factor"),
        (TideConfig { decrease_factor: f64::NAN, ..standard }, "decrease_factor"),
        (TideConfig { longest_pause: Duration::ZERO, ..standard }, "longest_pause"),
        (TideConfig { latency_tolerance: 1.0, ..standard }, "latency_tolerance"),
    ] {
        assert_eq!(Tide::new(config).unwrap_err().field, field);
    }
}

// ---- laws ----

/// A `Tide` driven by random calls, with checks of its laws.
struct Chance {
    state: u64,
    tide: Tide,
    now: Instant,
    max: u32,
    granted: u64,
    out: Vec<CallReport>,
    since: Vec<Instant>,
    blocked_until: Instant,
    /// The next grant at the last refusal that lowered the limit.
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
                retry_after: None,
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
            call.retry_after = asked;
            let pause = self.tide.pause(self.now, &call).unwrap();
            self.blocked_until = self.blocked_until.max(self.now + pause);
            if self.blocked_until > self.now {
                self.tide.on_pause(self.now, self.blocked_until);
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

    /// Advances time, and checks that nothing changes before `next_change`.
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
fn the_limit_keeps_its_laws_under_random_calls() {
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
