//! What a Retry-After stops, and how calls restart after it.

use super::*;

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
fn no_call_starts_before_a_retry_after_ends_if_it_is_set_to_stop_the_resource() {
    for interval in [20, 100, 400] {
        let mut bench = obeying(10);
        let (mut opens, mut pauses, mut early) = (bench.now, Vec::new(), 0);
        // One call in `interval`, enforced call by call. A refusal arrives after 5 ms.
        let (answered, _) = bench.serve(millis(300_000), &mut |now, _| {
            early += pauses.iter().filter(|(from, until)| *from <= now && now < *until).count();
            if now >= opens {
                opens = now + millis(interval);
                return (millis(150), None);
            }
            let missing = opens - now;
            let arrives = now + millis(5);
            pauses.retain(|(_, until)| now < *until);
            pauses.push((arrives, arrives + missing));
            (millis(5), Some(Some(missing)))
        });
        assert!(early == 0 && answered > 100, "{early} calls of {answered} at one in {interval} ms");
    }
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
