//! Tests with providers that state their rates in headers.

use alloc::string::ToString;

use super::figures::permille;
use super::*;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, ProviderSpec, Rate, RetryAfter};
use crate::time::Duration;

/// Creates a case of ten minutes with a provider of 64 slots and these rates.
fn case(requests: Rate, tokens: Option<Rate>, median_ms: u64, cost: Tokens) -> ControlCase {
    let in_seconds = |rate: Rate| Rate { retry_after: RetryAfter::Seconds, ..rate };
    let provider = ProviderSpec {
        capacity: Capacity::Constant { slots: 64 },
        latency: Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None },
        requests: Some(in_seconds(requests)),
        tokens: tokens.map(in_seconds),
        states_rates: true,
        ..ProviderSpec::default()
    };
    let span = Duration::from_secs(600);
    ControlCase { name: "stated".to_string(), provider, cap: 64, span, tokens: cost, is_stationary: true }
}

/// Returns tide's goodput in permille of the oracle's, and the number of calls refused because of a rate.
fn measure_tide(case: &ControlCase) -> (u64, u64) {
    let oracle = Oracle::of(case, 5).expect("a valid case");
    let run = drive::run(case, &Contender::tide(), 5, 1).expect("a valid case");
    (permille(run.answered(), oracle.answered()), run.refused_by_rate)
}

fn without_headers(mut case: ControlCase) -> ControlCase {
    case.provider.states_rates = false;
    case
}

#[test]
fn a_stated_rate_is_fully_used_without_a_refusal() {
    let minute = Duration::from_secs(60);
    for rate in [Rate::per_minute(300), Rate::bursting(300, 20), Rate::in_windows(300, minute)] {
        for median_ms in [300, 2_000] {
            let case = case(rate, None, median_ms, Tokens::Between(200, 200));
            let (goodput, refused) = measure_tide(&case);
            assert_eq!((goodput >= 980, refused), (true, 0), "{goodput} of {rate:?} at {median_ms} ms");
            assert!(
                measure_tide(&without_headers(case)).1 > 0,
                "calls are refused if the provider does not state its rate"
            );
        }
    }
}

#[test]
fn slots_requests_and_tokens_are_respected_together() {
    let (requests, tokens) = (Rate::bursting(1_200, 40), Rate::bursting(240_000, 8_000));
    // The bottleneck is the tokens, the requests, or the slots.
    for (tokens, median_ms, slots_limit) in [
        (Rate::bursting(120_000, 4_000), 300, false),
        (Rate::bursting(480_000, 16_000), 300, false),
        (tokens, 2_000, false),
        (tokens, 6_000, true),
    ] {
        let (goodput, refused) = measure_tide(&case(requests, Some(tokens), median_ms, Tokens::Between(200, 200)));
        // If the slots are the bottleneck, their number has to be found, which takes a few round trips.
        let least = if slots_limit { 940 } else { 980 };
        assert_eq!((goodput >= least, refused), (true, 0), "{goodput} of {tokens:?} at {median_ms} ms");
    }
}

#[test]
fn calls_of_unknown_cost_are_refused_for_tokens_less_often_than_without_headers() {
    let (requests, tokens) = (Rate::bursting(1_200, 40), Rate::bursting(120_000, 4_000));
    let case = case(requests, Some(tokens), 300, Tokens::Between(100, 300));
    let (goodput, refused) = measure_tide(&case);
    let (_, refused_without) = measure_tide(&without_headers(case));
    assert!(goodput >= 980 && refused < refused_without, "{goodput}, {refused} of {refused_without}");
}

#[test]
fn after_the_first_calls_exceed_a_burst_few_more_are_refused() {
    for (per_minute, burst) in [(60, 1), (300, 1), (300, 5)] {
        let (goodput, refused) =
            measure_tide(&case(Rate::bursting(per_minute, burst), None, 2_000, Tokens::Between(1, 1)));
        assert!(goodput >= 980 && refused <= 10, "{goodput}, {refused} at a burst of {burst}");
    }
}
