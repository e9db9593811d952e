//! Tests of each kind of provider in virtual time.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::sim::latency::{Latency, Tail};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// One nanosecond before `instant`.
fn just_before(instant: Instant) -> Instant {
    Instant::from_nanos(instant.as_nanos() - 1)
}

fn provider(spec: &ProviderSpec) -> MockProvider {
    MockProvider::new(spec, 7).unwrap()
}

fn with_capacity(capacity: Capacity) -> ProviderSpec {
    ProviderSpec { capacity, ..ProviderSpec::default() }
}

fn cold_server(slots: u32, warm_up: Duration) -> ProviderSpec {
    with_capacity(Capacity::WarmUp { slots, warm_up })
}

fn is_accepted(answer: MockResponse) -> bool {
    matches!(answer, MockResponse::Accept { .. })
}

fn retry_after(answer: MockResponse) -> Option<Duration> {
    match answer {
        MockResponse::Refuse { status: 429, retry_after } => retry_after,
        other => panic!("not refused: {other:?}"),
    }
}

/// Specs of every shape, and one that combines several mechanisms.
fn every_shape() -> Vec<ProviderSpec> {
    let steps = vec![Step { at: ms(1_000), slots: 2 }, Step { at: ms(4_000), slots: 12 }];
    let neighbour = Some(Neighbour { low_share: 0.1, high_share: 0.9, period: ms(700) });
    let outage = Outage { timeouts: ms(800), recovery: ms(2_000), ..Outage::of_errors(ms(1_500), ms(600)) };
    let drift = |from, to, back_and_forth| Capacity::Drift { from, to, over: ms(3_000), back_and_forth };
    let tail = Some(Tail { probability: 0.05, factor: 6.0 });
    let base =
        ProviderSpec { latency: Latency::LogNormal { median: ms(80), sigma: 0.4, tail }, ..ProviderSpec::default() };
    let shaped = |capacity| ProviderSpec { capacity, ..base.clone() };
    vec![
        shaped(Capacity::Constant { slots: 4 }),
        shaped(Capacity::WarmUp { slots: 9, warm_up: ms(5_000) }),
        shaped(Capacity::Steps { slots: 8, steps: steps.clone() }),
        shaped(drift(3, 11, false)),
        shaped(drift(11, 3, true)),
        ProviderSpec { requests: Some(Rate::bursting(300, 3)), ..base.clone() },
        ProviderSpec { tokens: Some(Rate::per_minute(9_000)), ..base.clone() },
        ProviderSpec { overload: Overload::SlowDown { slope: 1.5 }, ..base.clone() },
        ProviderSpec { neighbour, ..base.clone() },
        ProviderSpec { outages: vec![outage], ..base.clone() },
        ProviderSpec {
            neighbour,
            outages: vec![outage],
            requests: Some(Rate::per_minute(600)),
            ..shaped(Capacity::Steps { slots: 8, steps })
        },
    ]
}

/// Drives a provider for six seconds with a call every few milliseconds, each finished when due. Checks the
/// counters after every step and returns all responses.
fn drive(provider: &mut MockProvider, client_seed: u64) -> Vec<(Instant, MockResponse)> {
    let mut client = Rng::new(client_seed);
    let mut now = Instant::ZERO;
    let mut due: Vec<Instant> = Vec::new();
    let mut answers = Vec::new();
    while now < at(6_000) {
        now += Duration::from_micros(1 + client.below(20_000));
        due.sort_unstable();
        while due.first().is_some_and(|&first| first <= now) {
            provider.finish(due.remove(0));
        }
        let answer = provider.arrive(now, client.below(200) as u32);
        if let MockResponse::Accept { finish_at } = answer {
            due.push(finish_at);
        }
        answers.push((now, answer));
        let counters = provider.counters();
        assert_eq!(counters.accepted, counters.finished + u64::from(provider.in_flight()));
        assert_eq!(provider.in_flight() as usize, due.len());
        let Counters { accepted, refused, closed, failed, hung, .. } = counters;
        assert_eq!(accepted + refused + closed + failed + hung, answers.len() as u64);
    }
    answers
}

#[test]
fn a_full_server_refuses_and_serves_again_when_a_call_ends() {
    let overload = Overload::Refuse { retry_after: Some(ms(250)) };
    let mut provider = provider(&ProviderSpec { overload, ..with_capacity(Capacity::Constant { slots: 2 }) });
    assert_eq!(provider.arrive(at(0), 10), MockResponse::Accept { finish_at: at(100) });
    assert!(is_accepted(provider.arrive(at(1), 10)));
    assert_eq!(retry_after(provider.arrive(at(2), 10)), Some(ms(250)));
    provider.finish(at(3));
    assert!(is_accepted(provider.arrive(at(3), 10)));
    let Counters { accepted, refused, refused_by_rate, finished, .. } = provider.counters();
    assert_eq!((accepted, refused, refused_by_rate, finished, provider.in_flight()), (3, 1, 0, 1, 2));
}

#[test]
fn a_cold_server_opens_one_slot_at_a_time() {
    let mut provider = provider(&cold_server(5, ms(1_000)));
    assert!(is_accepted(provider.arrive(at(0), 0)));
    for opened in 1..=4 {
        let opens = at(u64::from(opened) * 250);
        assert_eq!(provider.next_change(just_before(opens)), Some(opens));
        assert_eq!(provider.capacity(just_before(opens)), opened);
        assert_eq!(retry_after(provider.arrive(just_before(opens), 0)), None);
        assert_eq!(provider.capacity(opens), opened + 1);
        assert!(is_accepted(provider.arrive(opens, 0)));
    }
    assert_eq!(provider.next_change(at(1_000)), None);
    assert_eq!(provider.capacity(Instant::MAX), 5);
}

#[test]
fn next_change_is_exact_for_a_warm_up_that_does_not_divide_evenly() {
    let mut provider = provider(&cold_server(8, ms(1_000)));
    let _ = provider.arrive(at(0), 0);
    let mut now = at(0);
    for opened in 1..=7 {
        now = provider.next_change(now).unwrap();
        assert_eq!((provider.capacity(just_before(now)), provider.capacity(now)), (opened, opened + 1));
    }
    assert_eq!((now, provider.next_change(now)), (at(1_000), None));
}

#[test]
fn a_cold_server_starts_to_warm_up_at_its_first_request() {
    let mut provider = provider(&cold_server(11, ms(1_000)));
    assert_eq!((provider.capacity(at(60_000)), provider.next_change(at(60_000))), (1, None));
    let _ = provider.arrive(at(60_000), 0);
    assert_eq!((provider.capacity(at(60_000)), provider.next_change(at(60_000))), (1, Some(at(60_100))));
    assert_eq!(provider.capacity(at(60_500)), 6);
}

#[test]
fn a_first_request_that_fails_starts_the_warm_up() {
    let outages = vec![Outage::of_errors(ms(0), ms(400))];
    let mut provider = provider(&ProviderSpec { outages, ..cold_server(11, ms(1_000)) });
    assert!(matches!(provider.arrive(at(0), 0), MockResponse::Fail { .. }));
    assert_eq!(provider.capacity(at(400)), 5);
}

#[test]
fn a_requests_per_minute_bucket_states_the_exact_retry_after() {
    let requests = Some(Rate::bursting(70, 2));
    let mut provider = provider(&ProviderSpec { requests, ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(5), 0)));
    assert!(is_accepted(provider.arrive(at(5), 0)));
    // 1 min / 70 = 857142857.14 ns, rounded up, counted from when the bucket was last full.
    let wait = retry_after(provider.arrive(at(5), 0)).unwrap();
    assert_eq!(wait.as_nanos(), 857_142_858);
    let due = at(5) + wait;
    assert_eq!(retry_after(provider.arrive(just_before(due), 0)), Some(Duration::from_nanos(1)));
    assert!(is_accepted(provider.arrive(due, 0)));
    assert_eq!(provider.counters().refused_by_rate, 2);
}

#[test]
fn a_requests_per_minute_bucket_never_lets_more_through_than_rate_and_burst() {
    let requests = Some(Rate::bursting(700, 5));
    let capacity = Capacity::Constant { slots: 1_000 };
    let mut provider = provider(&ProviderSpec { requests, ..with_capacity(capacity) });
    for millis in 0..=60_000 {
        let _ = provider.arrive(at(millis), 0);
    }
    assert_eq!(provider.counters().accepted, 705);
}

#[test]
fn a_tokens_per_minute_bucket_charges_by_the_token() {
    let tokens = Some(Rate::bursting(60_000, 1_000));
    let mut provider = provider(&ProviderSpec { tokens, ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(0), 900)));
    assert!(is_accepted(provider.arrive(at(0), 100)));
    assert_eq!(retry_after(provider.arrive(at(0), 250)), Some(ms(250)));
    assert!(is_accepted(provider.arrive(at(250), 250)));
}

#[test]
fn a_call_larger_than_the_bucket_is_served_from_a_full_bucket_and_leaves_it_in_debt() {
    let tokens = Some(Rate::bursting(60_000, 100));
    let mut provider = provider(&ProviderSpec { tokens, ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(0), 1)));
    assert_eq!(retry_after(provider.arrive(at(0), 5_000)), Some(ms(1)));
    assert!(is_accepted(provider.arrive(at(1), 5_000)));
    assert_eq!(retry_after(provider.arrive(at(1), 1)), Some(ms(4_901)));
}

#[test]
fn retry_after_is_the_longer_wait_of_two_rates_and_a_refusal_charges_neither() {
    let (requests, tokens) = (Some(Rate::bursting(60, 1)), Some(Rate::per_minute(600)));
    let mut provider = provider(&ProviderSpec { requests, tokens, ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(0), 600)));
    assert_eq!(retry_after(provider.arrive(at(0), 5)), Some(ms(1_000)));
    assert_eq!(retry_after(provider.arrive(at(0), 50)), Some(ms(5_000)));
    assert!(is_accepted(provider.arrive(at(5_000), 50)));
}

#[test]
fn a_call_refused_for_lack_of_a_slot_uses_up_no_rate() {
    let requests = Some(Rate::bursting(1, 2));
    let spec = ProviderSpec { requests, ..with_capacity(Capacity::Constant { slots: 1 }) };
    let mut provider = provider(&spec);
    assert!(is_accepted(provider.arrive(at(0), 0)));
    assert_eq!(retry_after(provider.arrive(at(0), 0)), None);
    provider.finish(at(1));
    assert!(is_accepted(provider.arrive(at(1), 0)));
}

#[test]
fn past_the_knee_every_call_takes_longer_and_none_is_refused() {
    let spec = ProviderSpec {
        overload: Overload::SlowDown { slope: 1.0 },
        latency: Latency::Constant { latency: ms(100) },
        ..with_capacity(Capacity::Constant { slots: 4 })
    };
    let mut provider = provider(&spec);
    for in_flight in 1..=12_u64 {
        // At a slope of 1, latency is proportional to the calls in flight: throughput stays at that of the
        // knee.
        let latency = ms(100 * in_flight.max(4) / 4);
        assert_eq!(provider.arrive(at(0), 0), MockResponse::Accept { finish_at: Instant::ZERO + latency });
    }
    assert_eq!((provider.capacity(at(0)), provider.in_flight(), provider.counters().refused), (4, 12, 0));
}

#[test]
fn a_knee_of_zero_counts_as_one() {
    let spec = ProviderSpec { overload: Overload::SlowDown { slope: 2.0 }, ..ProviderSpec::default() };
    let mut provider = provider(&spec);
    provider.set_capacity(at(0), 0);
    assert_eq!(provider.arrive(at(0), 0), MockResponse::Accept { finish_at: at(100) });
    assert_eq!(provider.arrive(at(0), 0), MockResponse::Accept { finish_at: at(300) });
}

#[test]
fn a_step_changes_the_capacity_at_its_instant_and_not_before() {
    let steps = vec![Step { at: ms(10), slots: 1 }, Step { at: ms(20), slots: 6 }];
    let mut provider = provider(&with_capacity(Capacity::Steps { slots: 3, steps }));
    for _ in 0..3 {
        assert!(is_accepted(provider.arrive(at(0), 0)));
    }
    assert_eq!((provider.capacity(just_before(at(10))), provider.next_change(at(0))), (3, Some(at(10))));
    assert_eq!((provider.capacity(at(10)), provider.next_change(at(10))), (1, Some(at(20))));
    // The three calls in flight continue. No call is accepted until fewer are in flight than the new
    // capacity.
    provider.finish(at(11));
    assert_eq!((retry_after(provider.arrive(at(11), 0)), provider.in_flight()), (None, 2));
    assert_eq!((provider.capacity(at(20)), provider.next_change(at(20))), (6, None));
}

#[test]
fn a_noisy_neighbour_takes_another_share_within_its_range_in_each_period() {
    let neighbour = Some(Neighbour { low_share: 0.25, high_share: 0.75, period: ms(500) });
    let spec = ProviderSpec { neighbour, ..with_capacity(Capacity::Constant { slots: 100 }) };
    let provider = provider(&spec);
    let left: Vec<u32> = (0..200).map(|period| provider.capacity(at(period * 500))).collect();
    assert!(left.iter().all(|left| (25..=75).contains(left)));
    assert!(left.iter().min().unwrap() < &30 && left.iter().max().unwrap() > &70);
    assert_eq!(provider.next_change(at(750)), Some(at(1_000)));
    assert_eq!(provider.capacity(just_before(at(1_000))), provider.capacity(at(500)));
}

#[test]
fn a_neighbour_that_takes_everything_leaves_nothing() {
    let neighbour = Some(Neighbour { low_share: 1.0, high_share: 1.0, period: ms(500) });
    let mut provider = provider(&ProviderSpec { neighbour, ..ProviderSpec::default() });
    assert_eq!(provider.capacity(at(0)), 0);
    assert_eq!(retry_after(provider.arrive(at(0), 0)), None);
}

#[test]
fn a_drift_moves_slot_by_slot_and_stays_or_turns_back() {
    let drift =
        |back_and_forth| provider(&with_capacity(Capacity::Drift { from: 6, to: 2, over: ms(400), back_and_forth }));
    let (once, repeated) = (drift(false), drift(true));
    let read = |provider: &MockProvider| [0, 99, 100, 399, 400, 499, 500, 800, 900].map(|ms| provider.capacity(at(ms)));
    assert_eq!(read(&once), [6, 6, 5, 3, 2, 2, 2, 2, 2]);
    assert_eq!(read(&repeated), [6, 6, 5, 3, 2, 2, 3, 6, 5]);
    assert_eq!((once.next_change(at(350)), once.next_change(at(400))), (Some(at(400)), None));
    assert_eq!((repeated.next_change(at(350)), repeated.next_change(at(400))), (Some(at(400)), Some(at(500))));
}

#[test]
fn an_outage_fails_then_hangs_then_recovers_slot_by_slot() {
    let outage = Outage {
        status: 502,
        timeouts: ms(1_000),
        hang: ms(30_000),
        recovery: ms(700),
        ..Outage::of_errors(ms(1_000), ms(1_000))
    };
    let mut provider = provider(&ProviderSpec { outages: vec![outage], ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(999), 0)));
    assert_eq!(provider.next_change(at(999)), Some(at(1_000)));
    assert_eq!(provider.arrive(at(1_000), 0), MockResponse::Fail { status: 502, at: at(1_020) });
    assert_eq!(provider.arrive(at(2_000), 0), MockResponse::Hang { until: at(32_000) });
    assert_eq!((provider.capacity(at(1_000)), provider.capacity(at(2_999))), (0, 0));
    // The call from before the outage still holds a slot, and only one slot has recovered.
    assert_eq!((provider.capacity(at(3_000)), retry_after(provider.arrive(at(3_000), 0))), (1, None));
    provider.finish(at(3_001));
    assert!(is_accepted(provider.arrive(at(3_001), 0)));
    assert_eq!((provider.capacity(at(3_100)), provider.capacity(at(3_700))), (2, 8));
    let Counters { failed, hung, .. } = provider.counters();
    assert_eq!((failed, hung), (1, 1));
}

#[test]
fn an_override_replaces_the_schedule_until_it_is_cleared() {
    let outages = vec![Outage { recovery: ms(1_000), ..Outage::of_errors(ms(1_000), ms(500)) }];
    let steps = vec![Step { at: ms(100), slots: 4 }];
    let spec = ProviderSpec { outages, ..with_capacity(Capacity::Steps { slots: 8, steps }) };
    let mut provider = provider(&spec);
    provider.set_capacity(at(50), 1);
    assert_eq!((provider.capacity(at(50)), provider.capacity(at(150))), (1, 1));
    assert_eq!(provider.next_change(at(50)), Some(at(1_000)));
    assert!(is_accepted(provider.arrive(at(60), 0)));
    assert_eq!(retry_after(provider.arrive(at(61), 0)), None);
    provider.set_capacity(at(70), 0);
    assert_eq!((provider.capacity(at(70)), provider.in_flight()), (0, 1));
    provider.set_capacity(at(80), 20);
    assert_eq!((provider.capacity(at(1_200)), provider.capacity(at(1_600))), (0, 20));
    provider.clear_override(at(90));
    assert_eq!((provider.capacity(at(90)), provider.capacity(at(150))), (8, 4));
}

#[test]
fn equal_seeds_give_equal_answers() {
    for spec in every_shape() {
        let run = |seed| drive(&mut MockProvider::new(&spec, seed).unwrap(), 1);
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4), "the seed has no effect: {spec:?}");
    }
}

#[test]
fn a_closure_rejects_every_call_with_its_reason_until_it_ends() {
    let closures = vec![
        Closure { starts_at: ms(100), lasts: Some(ms(50)), because: Rejection::KeyRejected },
        Closure { starts_at: ms(200), lasts: None, because: Rejection::QuotaExhausted },
    ];
    let mut provider = provider(&ProviderSpec { closures, ..ProviderSpec::default() });
    assert!(is_accepted(provider.arrive(at(99), 1)));
    assert_eq!((provider.capacity(at(99)), provider.next_change(at(99))), (8, Some(at(100))));
    assert_eq!(provider.arrive(at(100), 1), MockResponse::Reject { because: Rejection::KeyRejected });
    assert_eq!((provider.capacity(at(149)), provider.next_change(at(149))), (0, Some(at(150))));
    assert!(is_accepted(provider.arrive(at(150), 1)));
    let MockResponse::Reject { because } = provider.arrive(at(1_000_000), 1) else { panic!("it is closed for ever") };
    assert_eq!((because.status(), because.code()), (429, "insufficient_quota"));
    assert_eq!((provider.counters().closed, provider.next_change(at(1_000_000))), (2, None));
}

#[test]
fn the_responses_of_every_shape_are_bit_identical_on_every_target() {
    let mut digest = 0_u64;
    let mut add = |word: u64| digest = digest.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word;
    for spec in every_shape() {
        for (now, answer) in drive(&mut provider(&spec), 1) {
            add(now.as_nanos());
            match answer {
                MockResponse::Accept { finish_at: at } | MockResponse::Corrupt { at, .. } => add(at.as_nanos()),
                MockResponse::Refuse { retry_after, .. } => add(retry_after.map_or(1, Duration::as_nanos)),
                MockResponse::Reject { because } => add(u64::from(because.status())),
                MockResponse::Fail { status, at } => add(at.as_nanos() ^ u64::from(status)),
                MockResponse::Hang { until } => add(until.as_nanos()),
            }
        }
    }
    assert_eq!(digest, KNOWN_ANSWERS);
}

/// Changes only if the behaviour of a provider, its randomness or the pinned `libm` changes.
const KNOWN_ANSWERS: u64 = 8_673_338_816_571_242_781;

#[test]
fn the_neighbour_does_not_depend_on_the_calls_that_arrive() {
    let spec = every_shape().pop().unwrap();
    let (mut busy, quiet) = (provider(&spec), provider(&spec));
    drive(&mut busy, 1);
    for second in 6..60 {
        assert_eq!(busy.capacity(at(second * 1_000)), quiet.capacity(at(second * 1_000)));
    }
}

#[test]
fn the_capacity_is_constant_up_to_its_next_change() {
    for spec in every_shape() {
        let mut provider = provider(&spec);
        let _ = provider.arrive(at(10), 0);
        let mut now = at(10);
        while let Some(next) = provider.next_change(now).filter(|&next| next < at(8_000)) {
            assert!(next > now);
            let middle = Instant::from_nanos(now.as_nanos().midpoint(next.as_nanos()));
            for inside in [middle, just_before(next)] {
                assert_eq!(provider.capacity(inside), provider.capacity(now), "{spec:?}");
            }
            now = next;
        }
    }
}

#[test]
fn reading_the_capacity_changes_nothing() {
    for spec in every_shape() {
        let (mut read, mut unread) = (provider(&spec), provider(&spec));
        for millis in 0..6_000 {
            let _ = (read.capacity(at(millis)), read.next_change(at(6_000 - millis)));
        }
        assert_eq!(drive(&mut read, 2), drive(&mut unread, 2));
    }
}

#[test]
fn time_that_runs_backwards_is_clamped_and_counted() {
    let mut provider = provider(&cold_server(5, ms(1_000)));
    let _ = provider.arrive(at(0), 0);
    provider.finish(at(500));
    assert_eq!(provider.arrive(at(200), 0), MockResponse::Accept { finish_at: at(600) });
    assert_eq!(provider.capacity(at(0)), 3);
    assert_eq!(provider.counters().clock_regressions, 1);
}

#[test]
fn a_finish_without_a_call_is_counted_and_changes_nothing() {
    let mut provider = provider(&with_capacity(Capacity::Constant { slots: 1 }));
    provider.finish(at(0));
    assert!(is_accepted(provider.arrive(at(0), 0)));
    assert_eq!(retry_after(provider.arrive(at(0), 0)), None);
    assert_eq!((provider.counters().unmatched_finishes, provider.in_flight()), (1, 1));
}

#[test]
fn the_latest_instant_and_the_largest_calls_do_not_panic() {
    let extreme = ProviderSpec {
        capacity: Capacity::Drift { from: 0, to: 1_000_000, over: Duration::from_nanos(1), back_and_forth: true },
        overload: Overload::SlowDown { slope: 100.0 },
        neighbour: Some(Neighbour { low_share: 0.0, high_share: 1.0, period: Duration::from_nanos(1) }),
        tokens: Some(Rate::bursting(1, 1_000_000_000)),
        ..ProviderSpec::default()
    };
    for spec in every_shape().into_iter().chain([extreme]) {
        let mut provider = provider(&spec);
        for now in [Instant::ZERO, at(1), Instant::MAX, Instant::ZERO, Instant::MAX] {
            for tokens in [0, 1, u32::MAX, u32::MAX] {
                let _ = provider.arrive(now, tokens);
            }
            provider.finish(now);
            provider.set_capacity(now, u32::MAX);
            let _ = provider.arrive(now, 1);
            provider.clear_override(now);
            let _ = (provider.capacity(now), provider.next_change(now));
        }
        assert_eq!(provider.next_change(Instant::MAX), None);
    }
}

#[test]
fn a_value_out_of_range_is_rejected_with_its_path() {
    let base = ProviderSpec::default;
    let steps = |second| vec![Step { at: ms(5), slots: 1 }, second];
    let stepping = |second| with_capacity(Capacity::Steps { slots: 1, steps: steps(second) });
    let drift = Capacity::Drift { from: 1, to: 2, over: Duration::ZERO, back_and_forth: false };
    let neighbour = |low_share, high_share, period| Some(Neighbour { low_share, high_share, period });
    let outage = Outage::of_errors(ms(10), ms(10));
    let nothing = Outage { errors: Duration::ZERO, ..outage };
    let closure = Closure { starts_at: ms(10), lasts: Some(ms(10)), because: Rejection::KeyRejected };
    let closed_at_once = Closure { lasts: Some(ms(0)), ..closure };
    let for_ever = Closure { lasts: None, ..closure };
    let latency = Latency::LogNormal { median: ms(1), sigma: 9.0, tail: None };
    for (refused, field) in [
        (with_capacity(Capacity::Constant { slots: 1_000_001 }), "capacity.slots"),
        (cold_server(0, ms(1)), "capacity.slots"),
        (cold_server(1, Duration::MAX), "capacity.warm_up_ms"),
        (stepping(Step { at: ms(5), slots: 2 }), "capacity.steps[1].at_ms"),
        (stepping(Step { at: ms(6), slots: u32::MAX }), "capacity.steps[1].slots"),
        (with_capacity(drift), "capacity.over_ms"),
        (ProviderSpec { overload: Overload::SlowDown { slope: f64::NAN }, ..base() }, "overload.slope"),
        (ProviderSpec { latency, ..base() }, "latency.sigma"),
        (ProviderSpec { requests: Some(Rate::per_minute(0)), ..base() }, "requests.per_minute"),
        (ProviderSpec { tokens: Some(Rate::bursting(1, 0)), ..base() }, "tokens.burst"),
        (ProviderSpec { neighbour: neighbour(0.5, 0.4, ms(1)), ..base() }, "neighbour.low_share"),
        (ProviderSpec { neighbour: neighbour(0.5, 1.4, ms(1)), ..base() }, "neighbour.high_share"),
        (ProviderSpec { neighbour: neighbour(0.5, 0.5, ms(0)), ..base() }, "neighbour.period_ms"),
        (ProviderSpec { outages: vec![nothing], ..base() }, "outages[0].errors_ms"),
        (ProviderSpec { outages: vec![Outage { status: 429, ..outage }], ..base() }, "outages[0].status"),
        (ProviderSpec { outages: vec![outage, outage], ..base() }, "outages[1].starts_at_ms"),
        (ProviderSpec { closures: vec![closed_at_once], ..base() }, "closures[0].lasts_ms"),
        (ProviderSpec { closures: vec![closure, closure], ..base() }, "closures[1].starts_at_ms"),
        (ProviderSpec { closures: vec![for_ever, closure], ..base() }, "closures[1].starts_at_ms"),
    ] {
        assert_eq!(MockProvider::new(&refused, 1).unwrap_err().field, field);
    }
    let error = cold_server(0, ms(1)).validate().unwrap_err();
    assert_eq!(error.to_string(), "`capacity.slots` is 0; expected a whole number from 1 to 1000000");
    assert_eq!(base().validate(), Ok(()));
}

#[test]
fn a_provider_may_move_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<MockProvider>();
}
