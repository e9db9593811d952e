//! How many calls may be in flight: the climb, cuts, pauses, probes, and queueing.

use super::*;

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
fn a_response_that_cannot_be_read_lowers_no_limit() {
    let mut bench = starting_at(8);
    for _ in 0..20 {
        let before = bench.limit();
        let calls = bench.send(before as usize);
        bench.after(millis(100));
        for (nth, call) in calls.into_iter().enumerate() {
            bench.end(call, if nth % 10 == 7 { Outcome::ProviderFailure } else { Outcome::Success });
            assert!(bench.limit() >= before, "{before} {}", bench.limit());
        }
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
fn a_call_that_hangs_does_not_stop_all_others() {
    let mut bench = starting_at(4);
    bench.serve_slots(millis(10_000), 1, None);
    assert_eq!(bench.limit(), 1);
    let hung = bench.send(1).remove(0);
    bench.after(millis(450));
    assert_eq!(bench.limit(), 1, "a call takes 100 ms");
    bench.after(millis(100));
    assert_eq!(bench.limit(), 2);
    bench.end(hung, Completion::from(Outcome::ProviderTimeout));
    assert_eq!(bench.limit(), 1);
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
fn where_latency_grows_with_load_the_limit_stays_a_little_above_the_knee() {
    let mut bench = starting_at(10);
    bench.serve(millis(60_000), &mut |_, out| (millis(10 * (out as u64 + 1).max(10)), None));
    assert!((10..=14).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn where_calls_take_milliseconds_a_delay_of_milliseconds_does_not_lower_the_limit() {
    let mut bench = starting_at(10);
    bench.serve(millis(60_000), &mut |_, out| (millis(1 + out as u64 / 16), None));
    assert_eq!(bench.limit(), 64);
}

#[test]
fn where_calls_take_milliseconds_a_longer_queue_holds_the_limit_back() {
    let mut bench = starting_at(10);
    bench.serve(millis(60_000), &mut |_, out| (millis(2 * (out as u64).max(1)), None));
    assert!((4..=24).contains(&bench.limit()), "{}", bench.limit());
}

#[test]
fn a_knee_of_one_call_is_found_although_all_calls_queued_before() {
    // With 2, 3 or 8 calls in flight from the start, the first latencies are those of a queue.
    for max in [2, 3, 8] {
        let mut bench = starting_at_most(max);
        bench.serve(millis(60_000), &mut |_, out| (millis(40 * (out as u64 + 1)), None));
        assert!(bench.limit() <= 2, "from {max}: {}", bench.limit());
    }
}

#[test]
fn where_latency_grows_less_than_throughput_the_limit_is_not_lowered() {
    // Eight calls at once take 1.14 times as long as one, and are seven times as many.
    let mut bench = starting_at_most(8);
    let (answered, _) = bench.serve(millis(60_000), &mut |_, out| (millis(100 + 2 * out as u64), None));
    assert_eq!(bench.limit(), 8);
    assert!(answered >= 4_100, "{answered} of 4,210");
}

#[test]
fn a_growth_past_the_knee_is_undone_and_tried_half_as_often_each_time() {
    let mut bench = starting_at(4);
    let (mut sent, mut sent_above) = (0, Vec::new());
    bench.serve(millis(240_000), &mut |now, out| {
        sent += 1;
        if out >= 4 {
            sent_above.push(now.as_nanos() / 60_000_000_000);
        }
        (millis(40 + 5 * (sent % 5) + 200 * (out as u64).saturating_sub(3)), None)
    });
    let in_minute = |minute| sent_above.iter().filter(|sent| **sent == minute).count();
    let counts = [0, 1, 2, 3].map(in_minute);
    // A batch at five calls sends 18 above the knee. Without the longer waits, each minute has hundreds.
    assert!(counts[1] <= 60 && counts[2] + counts[3] <= 40, "{counts:?}");
}

#[test]
fn a_long_queue_lowers_the_limit_before_the_calls_in_it_are_answered() {
    let mut bench = starting_at(10);
    let (start, mut last) = (bench.now, Duration::ZERO);
    // The limit is 64 after a second, when 64 calls at once take 6.4 s.
    bench.serve(millis(30_000), &mut |now, out| {
        if out >= 32 {
            last = now - start;
        }
        (millis(100 * (out as u64 + 1)), None)
    });
    assert!(last < millis(13_000), "calls were added to the queue after {last:?}");
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
