//! Tests of rates in windows, surge limits, refusals at any load, and Retry-After.

use alloc::vec::Vec;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// A provider with more slots than any test needs.
fn wide(spec: ProviderSpec) -> MockProvider {
    let capacity = Capacity::Constant { slots: 100_000 };
    MockProvider::new(&ProviderSpec { capacity, ..spec }, 7).unwrap()
}

fn counting(requests: Rate) -> MockProvider {
    wide(ProviderSpec { requests: Some(requests), ..ProviderSpec::default() })
}

/// Sends calls at one instant until one is refused. Returns how many were let through, and the Retry-After of
/// the refusal.
fn burst(provider: &mut MockProvider, now: Instant) -> (u32, Option<Duration>) {
    let mut count = 0;
    loop {
        match provider.arrive(now, 1) {
            MockResponse::Accept { .. } => count += 1,
            MockResponse::Refuse { retry_after, .. } => return (count, retry_after),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_window_lets_its_quota_through_at_any_time_within_it_and_no_more() {
    let mut provider = counting(Rate::in_windows(600, ms(10_000)));
    assert_eq!(burst(&mut provider, at(9_999)), (100, Some(ms(1))));
    assert_eq!(burst(&mut provider, at(10_000)), (100, Some(ms(10_000))));
    assert_eq!(provider.opens_at(at(10_001), 1), Some(at(20_000)));
    assert_eq!(burst(&mut provider, at(55_000)), (100, Some(ms(5_000))), "unused quota is not carried over");
    let left = provider.requests_left(at(55_000)).unwrap();
    assert_eq!((left.per_minute, left.remaining, left.full_in), (600, 0, ms(5_000)));
    assert_eq!(provider.opens_at(at(60_000), 1), None);
}

#[test]
fn a_call_that_costs_more_than_a_window_is_let_through_alone() {
    let tokens = Some(Rate::in_windows(60_000, ms(1_000)));
    let mut provider = wide(ProviderSpec { tokens, ..ProviderSpec::default() });
    assert!(matches!(provider.arrive(at(0), 1), MockResponse::Accept { .. }));
    assert_eq!(provider.arrive(at(1), 5_000), MockResponse::Refuse { status: 429, retry_after: Some(ms(999)) });
    assert!(matches!(provider.arrive(at(1_000), 5_000), MockResponse::Accept { .. }));
    assert_eq!(burst(&mut provider, at(1_000)).0, 0);
}

#[test]
fn the_retry_after_of_a_rate_is_exact_or_in_whole_seconds_or_absent() {
    for (retry_after, expected) in
        [(RetryAfter::Exact, Some(ms(1_500))), (RetryAfter::Seconds, Some(ms(2_000))), (RetryAfter::Never, None)]
    {
        let mut provider = counting(Rate { retry_after, ..Rate::bursting(40, 1) });
        assert_eq!(burst(&mut provider, at(0)), (1, expected));
        assert_eq!(provider.opens_at(at(0), 1), Some(at(1_500)), "whatever the Retry-After");
    }
}

#[test]
fn traffic_may_grow_by_the_factor_each_period_and_falls_back_to_the_least() {
    let surge = Surge { period: ms(1_000), growth: 2.0, least: 5, retry_after: Some(ms(70)) };
    let mut provider = wide(ProviderSpec { surge: Some(surge), ..ProviderSpec::default() });
    let counts: Vec<u32> = [100, 1_900, 2_000, 3_000, 9_000, 10_500].map(|now| burst(&mut provider, at(now)).0).into();
    assert_eq!(counts, [5, 10, 20, 40, 5, 10]);
    assert_eq!(burst(&mut provider, at(10_600)), (0, Some(ms(70))));
    assert_eq!(provider.opens_at(at(10_600), 1), Some(at(11_000)));
    assert_eq!(provider.counters().refused, provider.counters().refused_by_rate);
}

#[test]
fn the_refused_share_applies_at_any_load() {
    let faults = Faults { refused_share: 0.3, retry_after: Some(ms(900)), ..Faults::default() };
    let mut provider = wide(ProviderSpec { faults: Some(faults), ..ProviderSpec::default() });
    for now in 0..10_000 {
        match provider.arrive(at(now * 1_000), 1) {
            MockResponse::Accept { .. } => provider.finish(at(now * 1_000 + 500)),
            answer => assert_eq!(answer, MockResponse::Refuse { status: 429, retry_after: Some(ms(900)) }),
        }
    }
    let Counters { refused, refused_by_rate, .. } = provider.counters();
    assert!((2_900..3_100).contains(&refused) && refused_by_rate == 0, "{refused}");
}

#[test]
fn a_value_out_of_range_is_rejected_with_its_path() {
    let rate = |rate| ProviderSpec { requests: Some(rate), ..ProviderSpec::default() };
    let surge = |surge| ProviderSpec { surge: Some(surge), ..ProviderSpec::default() };
    let usual = Surge { period: ms(1_000), growth: 2.0, least: 5, retry_after: None };
    for (refused, field) in [
        (rate(Rate::in_windows(60, ms(999))), "requests.window_ms"),
        (rate(Rate::in_windows(60, Duration::MAX)), "requests.window_ms"),
        (rate(Rate { burst: Some(1), ..Rate::in_windows(60, ms(1_000)) }), "requests.burst"),
        (surge(Surge { period: ms(0), ..usual }), "surge.period_ms"),
        (surge(Surge { growth: 0.5, ..usual }), "surge.growth"),
        (surge(Surge { least: 0, ..usual }), "surge.least"),
        (surge(Surge { retry_after: Some(Duration::MAX), ..usual }), "surge.retry_after_ms"),
    ] {
        assert_eq!(refused.validate().unwrap_err().field, field);
    }
    assert_eq!(surge(usual).validate(), rate(Rate::in_windows(60, ms(1_000))).validate());
}
