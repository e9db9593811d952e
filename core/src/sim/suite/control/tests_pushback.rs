//! Tests with providers whose refusals do not mean that too many calls are in flight: a rate that is enforced
//! call by call, and a share of calls refused at any load. Slots are never the bottleneck here.

use alloc::string::ToString;
use std::println;

use super::*;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Faults, ProviderSpec, Rate};
use crate::time::Duration;

const SEED: u64 = 5;

/// Creates a provider with `slots` slots and a latency of `latency_ms`. The cap equals the slots.
fn case(slots: u32, latency_ms: u64, span: Duration, push_back: impl FnOnce(&mut ProviderSpec)) -> ControlCase {
    let mut provider = ProviderSpec {
        capacity: Capacity::Constant { slots },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    };
    push_back(&mut provider);
    let tokens = Tokens::Between(1, 1);
    ControlCase { name: "pushes back".to_string(), provider, cap: slots, span, tokens, is_stationary: true }
}

/// A rate whose refusals have an exact Retry-After.
#[derive(Clone, Copy, Debug)]
struct RateCase {
    per_minute: u32,
    burst: u32,
    call_secs: u64,
}

/// The goal for tide's goodput under a rate, in permille of the oracle's.
const GOAL: u64 = 950;

const RATES: [RateCase; 6] = [
    RateCase { per_minute: 300, burst: 1, call_secs: 10 },
    RateCase { per_minute: 300, burst: 1, call_secs: 2 },
    RateCase { per_minute: 60, burst: 1, call_secs: 20 },
    RateCase { per_minute: 3_000, burst: 1, call_secs: 1 },
    RateCase { per_minute: 300, burst: 5, call_secs: 10 },
    RateCase { per_minute: 600, burst: 10, call_secs: 30 },
];

/// The slots of the providers. Combinations with too few slots for the rate are left out.
const SLOTS: [u32; 2] = [64, 512];

#[test]
fn tide_uses_nearly_all_of_a_rate_that_is_enforced_call_by_call() {
    let mut short = Vec::new();
    for rate in RATES {
        let RateCase { per_minute, burst, call_secs } = rate;
        let most_in_flight = u64::from(per_minute) * call_secs / 60;
        for slots in SLOTS.into_iter().filter(|slots| u64::from(*slots) > most_in_flight) {
            let latency_ms = call_secs * 1_000;
            let case = case(slots, latency_ms, drawn::span_of(latency_ms), |provider| {
                provider.requests = Some(Rate::bursting(per_minute, burst));
            });
            let oracle = Oracle::of(&case, SEED).expect("a valid case");
            let found = score(&case, &Contender::tide(), &oracle).expect("valid settings");
            println!("{rate:?}, {slots} slots: {found:?}");
            if found.goodput_permille < GOAL {
                short.push((rate, slots, found));
            }
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}

/// Returns the number of answers of tide, AIMD and a fixed limit.
fn answers(case: &ControlCase) -> [u64; 3] {
    let found = [Contender::tide(), Contender::aimd(), Contender::fixed()]
        .map(|contender| drive::run(case, &contender, SEED, 1).expect("valid settings").answered());
    let [tide, aimd, fixed] = found;
    println!("tide {tide}, aimd {aimd}, fixed {fixed} answers");
    found
}

#[test]
fn under_a_rate_enforced_call_by_call_tide_nearly_matches_a_fixed_limit_and_far_exceeds_aimd() {
    let case = case(64, 2_000, Duration::from_secs(20), |provider| provider.requests = Some(Rate::bursting(1_200, 1)));
    let [tide, aimd, fixed] = answers(&case);
    // A fixed limit retries each call after its Retry-After. It gets most of the answers, but 30 refusals for
    // each of them.
    assert!(tide * 10 >= fixed * 9 && tide >= aimd * 4, "tide {tide}, aimd {aimd}, fixed {fixed}");
}

#[test]
fn with_three_of_ten_calls_refused_at_any_load_tide_far_exceeds_limits_that_pause_for_each() {
    let case = case(64, 50, Duration::from_secs(20), |provider| {
        provider.faults =
            Some(Faults { refused_share: 0.3, retry_after: Some(Duration::from_secs(1)), ..Faults::default() });
    });
    let [tide, aimd, fixed] = answers(&case);
    assert!(tide >= fixed * 10 && tide >= aimd * 10, "tide {tide}, aimd {aimd}, fixed {fixed}");
}
