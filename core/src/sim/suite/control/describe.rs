//! The description of a case in words, for reports.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::case::{ControlCase, Tokens};
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Outage, Overload, ProviderSpec, Rate, RetryAfter, Step};
use crate::time::Duration;

/// The highest number of steps that are listed one by one.
const FEW_STEPS: usize = 3;

impl ControlCase {
    /// Returns a description of the provider in a few English sentences.
    #[must_use]
    pub fn description(&self) -> String {
        let provider = &self.provider;
        let mut sentences = [capacity(provider)].to_vec();
        sentences.push(format!("Half of the calls take at most {}{}.", span(self.median()), spread(&provider.latency)));
        sentences.extend(provider.requests.map(|rate| format!("It counts requests: {}.", rate_in_words(rate))));
        sentences
            .extend(provider.tokens.map(|rate| format!("It counts tokens: {}. {}", rate_in_words(rate), self.cost())));
        sentences.extend(provider.surge.map(|surge| {
            let (growth, period) = (surge.growth, span(surge.period));
            format!("It refuses traffic that grows more than {growth} times from one {period} to the next.")
        }));
        sentences.extend(provider.neighbour.map(|neighbour| {
            let [low, high] = [neighbour.low_share, neighbour.high_share].map(percent);
            format!("Another client takes {low} to {high} of it, drawn again every {}.", span(neighbour.period))
        }));
        sentences.extend(provider.outages.iter().map(outage));
        sentences.extend(faults(provider));
        sentences.extend(retry_after(provider));
        sentences.join(" ")
    }

    fn cost(&self) -> String {
        match self.tokens {
            Tokens::Between(low, high) if low == high => format!("A call costs {low}."),
            Tokens::Between(low, high) => format!("A call costs {low} to {high}."),
            Tokens::HeavyTailed { usual, most } => {
                format!("Most calls cost little more than {usual}, a few up to {most}.")
            }
        }
    }
}

fn capacity(provider: &ProviderSpec) -> String {
    let calls = |slots: u32| if slots == 1 { "1 call".to_string() } else { format!("{slots} calls") };
    match (&provider.capacity, provider.overload) {
        (Capacity::Constant { slots }, Overload::SlowDown { .. }) => {
            format!("It refuses no call. Beyond {} at once, all calls take longer.", calls(*slots))
        }
        (Capacity::Constant { slots }, _) => format!("It serves {} at once.", calls(*slots)),
        (Capacity::WarmUp { slots, warm_up }, _) => {
            format!("It serves 1 call at first and {slots} at once after {}.", span(*warm_up))
        }
        (Capacity::Steps { slots, steps }, _) if steps.len() <= FEW_STEPS => {
            let steps: Vec<String> =
                steps.iter().map(|step| format!("{} from {} on", step.slots, span(step.at))).collect();
            format!("It serves {} at once, {}.", calls(*slots), steps.join(", "))
        }
        (Capacity::Steps { slots, steps }, _) => many_steps(*slots, steps),
        (Capacity::Drift { from, to, over, .. }, _) => {
            format!("Its capacity drifts from {} at once to {to} and back, {} each way.", calls(*from), span(*over))
        }
    }
}

/// Describes a square or a smooth wave.
fn many_steps(slots: u32, steps: &[Step]) -> String {
    let all = || steps.iter().map(|step| step.slots);
    let (low, high) = (all().fold(slots, u32::min), all().fold(slots, u32::max));
    let (wave, length) = match steps {
        // A square wave is back at its first value at the second step, so half a period ends at the first
        // step.
        [first, second, ..] if first.slots != slots && second.slots == slots => ("in turns of", first.at),
        // A sine wave starts at its highest value, so half a period ends at the first step to the lowest.
        _ => {
            let half = steps.iter().find(|step| step.slots == low).map_or(Duration::ZERO, |step| step.at);
            ("in waves of", Duration::from_nanos(half.as_nanos() * 2))
        }
    };
    format!("Its capacity changes between {low} and {high} calls at once, {wave} {}.", span(length))
}

/// Describes how far latencies are from their median.
fn spread(latency: &Latency) -> String {
    match latency {
        Latency::LogNormal { sigma, .. } if *sigma > 0.0 => format!(" (log-normal, sigma {sigma})"),
        _ => String::new(),
    }
}

/// Describes a rate, how it counts, and the Retry-After of its refusals.
fn rate_in_words(rate: Rate) -> String {
    let retry_after = match rate.retry_after {
        RetryAfter::Exact => "has an exact Retry-After",
        RetryAfter::Seconds => "has a Retry-After in whole seconds",
        RetryAfter::Never => "has no Retry-After",
    };
    let how = match (rate.window, rate.burst) {
        (Some(window), _) => format!("in windows of {}", span(window)),
        (None, Some(burst)) => format!("{burst} at once"),
        (None, None) => "all of them at once".to_string(),
    };
    format!("{} a minute, {how}, and a refusal {retry_after}", rate.per_minute)
}

fn outage(outage: &Outage) -> String {
    let Outage { starts_at, errors, timeouts, recovery, .. } = outage;
    let parts = [("fails", errors), ("is silent", timeouts), ("recovers", recovery)];
    let parts = parts.iter().filter(|(_, lasts)| **lasts > Duration::ZERO);
    let parts: Vec<String> = parts.map(|(what, lasts)| format!("{what} for {}", span(**lasts))).collect();
    format!("From {} on it {}.", span(*starts_at), parts.join(", then "))
}

fn faults(provider: &ProviderSpec) -> Option<String> {
    let faults = provider.faults?;
    let parts = [
        ("are refused at any load", faults.refused_share),
        ("fail", faults.error_share),
        ("are never answered", faults.hang_share),
        ("break off", faults.cut_share),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, share)| *share > 0.0)
        .map(|(what, share)| format!("{} {what}", percent(*share)))
        .collect();
    (!parts.is_empty()).then(|| format!("Of all calls {}.", parts.join(", ")))
}

/// Describes the Retry-After of refusals for lack of a slot, at any load, or by the surge limit: of the first
/// of these that has one. Returns `None` if the provider slows down instead, or if none of these has a
/// Retry-After and a rate has a sentence of its own.
fn retry_after(provider: &ProviderSpec) -> Option<String> {
    let for_slots = match provider.overload {
        Overload::Refuse { retry_after } => retry_after,
        Overload::SlowDown { .. } => return None,
    };
    let at_any_load = provider.faults.and_then(|faults| faults.retry_after);
    let for_surge = provider.surge.and_then(|surge| surge.retry_after);
    Some(match for_slots.or(at_any_load).or(for_surge) {
        Some(pause) if provider.requests.or(provider.tokens).is_some() => {
            format!("A refusal for lack of a slot has a Retry-After of {}.", span(pause))
        }
        Some(pause) => format!("A refusal has a Retry-After of {}.", span(pause)),
        None if provider.requests.or(provider.tokens).is_some() => return None,
        None => "A refusal has no Retry-After.".to_string(),
    })
}

/// Formats a share from 0 to 1 in percent, with at most one decimal place.
fn percent(share: f64) -> String {
    let tenths = libm::round(share * 1_000.0) as u64;
    if tenths.is_multiple_of(10) { format!("{} %", tenths / 10) } else { format!("{}.{} %", tenths / 10, tenths % 10) }
}

/// Formats a span in milliseconds, or in seconds with at most one decimal place from one second on.
fn span(span: Duration) -> String {
    let millis = span.as_nanos() / 1_000_000;
    let tenths = (millis + 50) / 100;
    match millis {
        0 if span > Duration::ZERO => span.to_string(),
        0..1_000 => format!("{millis} ms"),
        _ if tenths.is_multiple_of(10) => format!("{} s", tenths / 10),
        _ => format!("{}.{} s", tenths / 10, tenths % 10),
    }
}
