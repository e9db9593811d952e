//! Tests of the faults of single calls, and of what is left of the rates.

use alloc::vec::Vec;

use super::*;
use crate::sim::latency::Latency;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn provider(spec: &ProviderSpec) -> MockProvider {
    MockProvider::new(spec, 7).unwrap()
}

fn faulty(faults: Faults) -> ProviderSpec {
    let latency = Latency::LogNormal { median: ms(100), sigma: 0.3, tail: None };
    ProviderSpec { faults: Some(faults), latency, ..ProviderSpec::default() }
}

/// Makes calls one after another. Each ends before the next one starts.
fn calls(provider: &mut MockProvider, count: u64) -> Vec<MockResponse> {
    let call = |nth| {
        let answer = provider.arrive(at(nth), 10);
        if matches!(answer, MockResponse::Accept { .. } | MockResponse::Corrupt { .. }) {
            provider.finish(at(nth));
        }
        answer
    };
    (0..count).map(call).collect()
}

#[test]
fn each_fault_affects_its_share_of_the_calls() {
    let faults =
        Faults { error_share: 0.1, hang_share: 0.2, cut_share: 0.3, malformed_share: 0.15, ..Faults::default() };
    let mut provider = provider(&faulty(faults));
    let answers = calls(&mut provider, 10_000);
    let share = |is: fn(&MockResponse) -> bool| answers.iter().filter(|answer| is(answer)).count().div_ceil(100);
    assert!((9..=11).contains(&share(|answer| matches!(answer, MockResponse::Fail { status: 500, .. }))));
    assert!((19..=21).contains(&share(|answer| matches!(answer, MockResponse::Hang { .. }))));
    assert!((29..=31).contains(&share(|answer| matches!(answer, MockResponse::Corrupt { flaw: Flaw::Cut, .. }))));
    assert!((14..=16).contains(&share(|answer| matches!(answer, MockResponse::Corrupt { flaw: Flaw::Malformed, .. }))));
    let Counters { accepted, corrupted, failed, hung, finished, .. } = provider.counters();
    assert_eq!((accepted + failed + hung, finished), (10_000, accepted));
    assert!((4_300..4_700).contains(&corrupted), "{corrupted}");
}

#[test]
fn a_fault_with_a_share_of_one_affects_every_call() {
    let all = |faults: Faults| provider(&faulty(faults)).arrive(at(0), 1);
    let broken = all(Faults { error_share: 1.0, error_status: 502, ..Faults::default() });
    assert_eq!(broken, MockResponse::Fail { status: 502, at: at(20) });
    assert_eq!(
        all(Faults { hang_share: 1.0, hang: ms(900), ..Faults::default() }),
        MockResponse::Hang { until: at(900) }
    );
    assert!(matches!(all(Faults::default()), MockResponse::Accept { .. }));
}

#[test]
fn a_cut_answer_ends_halfway_and_a_malformed_one_at_the_usual_time() {
    let of = |faults: Option<Faults>| {
        let spec = ProviderSpec { faults, ..ProviderSpec::default() };
        provider(&spec).arrive(at(0), 1)
    };
    let cut = Faults { cut_share: 1.0, ..Faults::default() };
    let malformed = Faults { malformed_share: 1.0, ..Faults::default() };
    assert_eq!(of(None), MockResponse::Accept { finish_at: at(100) });
    assert_eq!(of(Some(cut)), MockResponse::Corrupt { flaw: Flaw::Cut, at: at(50) });
    assert_eq!(of(Some(malformed)), MockResponse::Corrupt { flaw: Flaw::Malformed, at: at(100) });
}

#[test]
fn faults_do_not_change_latencies() {
    let clean = ProviderSpec { faults: None, ..faulty(Faults::default()) };
    let never = faulty(Faults::default());
    assert_eq!(calls(&mut provider(&clean), 500), calls(&mut provider(&never), 500));
    let mut draws = Rng::new(3);
    let first = provider(&clean).arrive_drawing(at(0), 1, &mut draws);
    assert_eq!(provider(&never).arrive_drawing(at(0), 1, &mut Rng::new(3)), first);
}

#[test]
fn a_call_that_fails_uses_up_neither_slot_nor_rate() {
    let requests = Some(Rate::bursting(1, 1));
    let faults = Faults { error_share: 1.0, ..Faults::default() };
    let mut provider = provider(&ProviderSpec { requests, ..faulty(faults) });
    for nth in 0..20 {
        assert!(matches!(provider.arrive(at(nth), 1), MockResponse::Fail { .. }));
    }
    assert_eq!((provider.in_flight(), provider.requests_left(at(20)).map(|left| left.remaining)), (0, Some(1)));
}

#[test]
fn what_is_left_of_each_rate_is_reported_and_reading_it_changes_nothing() {
    let requests = Some(Rate::bursting(60, 3));
    let tokens = Some(Rate::per_minute(600));
    let mut provider = provider(&ProviderSpec { requests, tokens, ..ProviderSpec::default() });
    let rest = |left: Option<RateLeft>| left.map(|left| (left.per_minute, left.remaining, left.full_in));
    assert_eq!(rest(provider.requests_left(at(0))), Some((60, 3, Duration::ZERO)));
    let _ = provider.arrive(at(0), 700);
    assert_eq!(rest(provider.requests_left(at(0))), Some((60, 2, ms(1_000))));
    // The debt is 100 tokens, and 10 tokens come back per second.
    assert_eq!(rest(provider.tokens_left(at(0))), Some((600, 0, ms(70_000))));
    assert_eq!(rest(provider.tokens_left(at(11_000))), Some((600, 10, ms(59_000))));
    assert_eq!(rest(provider.requests_left(at(999))), Some((60, 2, ms(1))));
    assert_eq!(MockProvider::new(&ProviderSpec::default(), 1).unwrap().tokens_left(at(0)), None);
}

#[test]
fn faults_out_of_range_are_rejected_with_their_path() {
    for (faults, field) in [
        (Faults { error_share: 1.1, ..Faults::default() }, "faults.error_share"),
        (Faults { hang_share: f64::NAN, ..Faults::default() }, "faults.hang_share"),
        (Faults { cut_share: 0.6, malformed_share: 0.6, ..Faults::default() }, "faults.malformed_share"),
        (Faults { error_status: 429, ..Faults::default() }, "faults.error_status"),
        (Faults { hang: Duration::MAX, ..Faults::default() }, "faults.hang_ms"),
    ] {
        assert_eq!(faulty(faults).validate().unwrap_err().field, field);
    }
}
