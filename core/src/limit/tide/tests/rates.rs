//! Rates and shares: paces are learned, kept and given up.

use super::*;

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
fn the_first_two_refusals_at_an_adopted_pace_wait_no_longer_however_old_the_clock_is() {
    let wait_at = |start: Instant| {
        let mut tide = Tide::new(TideConfig::default()).expect("valid settings");
        tide.set_interval(start, millis(20));
        let mut now = start;
        for grant in 0..2 {
            now += millis(100);
            tide.on_grant(now, grant, 1);
            now += millis(5);
            let refused = CallReport {
                outcome: Outcome::RateLimited,
                grant,
                admitted_limit: 8,
                admitted_in_flight: 1,
                retry_after: None,
                latency: millis(5),
                in_flight: 0,
                is_cooling_down: false,
            };
            tide.on_outcome(now, &refused);
        }
        tide.opens_at(now).map(|at| at - now)
    };
    assert_eq!(wait_at(Instant::from_nanos(500_000_000_000_000)), wait_at(Instant::from_nanos(1_000_000_000)));
}

#[test]
fn a_thousand_calls_that_start_before_they_are_due_delay_the_next_one_by_few_intervals() {
    let mut tide = Tide::new(TideConfig::default()).expect("valid settings");
    let now = Instant::from_nanos(1_000_000_000);
    tide.set_interval(now, millis(20));
    for grant in 0..1_000 {
        tide.on_grant(now, grant, 1);
    }
    let opens_at = tide.opens_at(now).expect("there is a pace");
    assert!(opens_at - now <= millis(200), "{}", opens_at - now);
}
