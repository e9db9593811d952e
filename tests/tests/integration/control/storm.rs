//! Never storm: whatever the provider, tide has no more calls refused than it takes to find its capacity.

use tidegate_core::sim::suite::control::{CallTimes, Contender, ControlCase, call_times};
use tidegate_core::time::{Duration, Instant};
use tidegate_tests::check::informed::informed;
use tidegate_tests::check::storm::{ALLOWED, worst};

fn call(sent_ms: u64, ended_ms: u64, is_refused: bool) -> CallTimes {
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    CallTimes { sent: at(sent_ms), ended: at(ended_ms), is_refused }
}

#[test]
fn refusals_of_calls_that_were_out_at_the_first_are_a_cascade_and_all_others_count() {
    let cascade = (0..50).map(|nth| call(nth, 100 + nth, true));
    let later = (0..30).map(|nth| call(300 + 300 * nth, 305 + 300 * nth, true));
    let much_later = [call(20_000, 20_005, true)];
    let calls: Vec<CallTimes> = cascade.chain(later).chain(much_later).collect();
    let worst = worst(&calls, 0.0).expect("calls were refused");
    // Which of the cascade comes first makes no difference: the 30 others count.
    assert_eq!((worst.refused - worst.cascade, worst.excess()), (30, 30.0));
}

#[test]
fn a_share_that_is_refused_at_any_load_is_not_held_against_anybody_and_a_run_without_refusals_has_no_worst() {
    let calls: Vec<CallTimes> = (0..1_000).map(|nth| call(nth * 10, nth * 10 + 5, nth % 2 == 0)).collect();
    assert!(worst(&calls, 0.5).expect("calls were refused").excess() < 0.0);
    assert!(worst(&calls, 0.2).expect("calls were refused").excess() > ALLOWED);
    assert_eq!(worst(&[call(0, 5, false)], 0.0), None);
}

#[test]
fn refusals_of_calls_sent_before_a_refusal_arrived_are_one_attempt() {
    let bursts = [0, 100, 200].into_iter().flat_map(|sent| [call(sent, sent + 5, true); 10]);
    let worst = worst(&bursts.collect::<Vec<_>>(), 0.0).expect("calls were refused");
    assert_eq!((worst.refused, worst.cascade, worst.attempts), (30, 10, 3));
}

#[test]
fn what_chance_alone_refuses_a_client_that_knows_the_provider_is_within_the_law() {
    for seed in 0..40 {
        let case = ControlCase::drawn(seed);
        let Some(contender) = informed(&case) else { continue };
        let share = case.provider.faults.map_or(0.0, |faults| faults.refused_share);
        let calls = call_times(&case, &contender, seed).expect("a valid case");
        let excess = worst(&calls, share).map_or(0.0, |worst| worst.excess());
        assert!(excess <= ALLOWED, "{excess}: {}", case.name);
    }
}

/// The providers that are drawn from these seeds.
const SEEDS: std::ops::Range<u64> = 0..100;
/// How many of them may have more refusals in ten seconds than so many, beyond a cascade and the share. The law is none above the first;
/// what tide reaches is 27, 14, 3 and 0.
const BOUNDS: [(f64, usize); 4] = [(ALLOWED, 29), (100.0, 16), (1_000.0, 4), (10_000.0, 0)];

#[test]
fn over_any_ten_seconds_tide_has_no_more_refused_beyond_one_cascade_and_the_share_than_these_bounds_say() {
    let mut found = Vec::new();
    for seed in SEEDS {
        let case = ControlCase::drawn(seed);
        let share = case.provider.faults.map_or(0.0, |faults| faults.refused_share);
        let calls = call_times(&case, &Contender::tide(), seed).expect("a valid case");
        if let Some(worst) = worst(&calls, share).filter(|worst| worst.excess() > ALLOWED) {
            found.push((worst.excess(), case.name, worst));
        }
    }
    for (bound, most) in BOUNDS {
        let above: Vec<_> = found.iter().filter(|found| found.0 > bound).collect();
        assert!(
            above.len() <= most,
            "more than {bound} refusals in ten seconds (each name ends with its seed): {above:#?}"
        );
    }
}
