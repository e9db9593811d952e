//! The state of a gate as numbers. Durations are in milliseconds; NaN is "none".
//!
//! A snapshot: time, sequence, effective maximum, current limit, in flight, active leases, age of the oldest
//! lease, waiters, yielded, remaining cooldown, rate limit ceiling, consecutive rate limits, success
//! streak, last outcome, ramp target, remaining ramp, provider cap, provider in flight, health state, time
//! since the first failure, time to the next probe, cause of unavailability; then for each budget: dimension,
//! limit, available, reserved, window, and 1 if the provider stated it.
//!
//! A wait: its kind, a number of calls, the cause or the limit of a stated rate, the milliseconds until it
//! may end; for a stated rate also its dimension and window.

use tidegate_core::budget::BudgetSource;
use tidegate_core::request::{CallWait, HealthState, ResourceSnapshot};
use tidegate_core::time::{Clock, Duration, Instant};

use super::answer::dimension_number;
use super::{millis, outcome_number};
use crate::host::JsHost;

pub(super) fn of(state: &ResourceSnapshot) -> Vec<f64> {
    let until = |end: Instant| millis(end - state.at);
    let ramp = state.ramp.as_ref();
    let mut numbers = vec![
        millis(state.at - Instant::ZERO),
        state.sequence as f64,
        f64::from(state.effective_max),
        f64::from(state.current_limit),
        f64::from(state.in_flight),
        f64::from(state.active_leases),
        state.oldest_lease.map_or(f64::NAN, |since| millis(state.at - since)),
        f64::from(state.waiters),
        f64::from(state.yielded),
        millis(state.cooldown_remaining),
        f64::from(state.rate_limit_ceiling),
        f64::from(state.consecutive_rate_limits),
        f64::from(state.success_streak),
        state.last_outcome.map_or(f64::NAN, outcome_number),
        ramp.map_or(f64::NAN, |ramp| f64::from(ramp.target)),
        ramp.and_then(|ramp| ramp.ends).map_or(f64::NAN, until),
        f64::from(state.provider_cap),
        f64::from(state.provider_in_flight),
    ];
    numbers.extend(of_health(state));
    for budget in &state.budgets {
        numbers.extend([
            dimension_number(budget.config.dimension),
            budget.limit as f64,
            budget.available as f64,
            budget.reserved as f64,
            millis(budget.config.window),
            f64::from(u8::from(budget.source == BudgetSource::Headers)),
        ]);
    }
    numbers
}

fn of_health(state: &ResourceSnapshot) -> [f64; 4] {
    let (age, until) = (|since: Instant| millis(state.at - since), |at: Instant| millis(at - state.at));
    match state.health {
        HealthState::Healthy => [0.0, f64::NAN, f64::NAN, f64::NAN],
        HealthState::Suspected { since } => [1.0, age(since), f64::NAN, f64::NAN],
        HealthState::Down { since, probe_at } => [2.0, age(since), until(probe_at), f64::NAN],
        HealthState::Probing { since } => [3.0, age(since), f64::NAN, f64::NAN],
        HealthState::Unavailable { since, cause, probe_at } => {
            [4.0, age(since), probe_at.map_or(f64::NAN, until), f64::from(cause as u32)]
        }
    }
}

pub(super) fn of_wait(wait: &CallWait) -> Vec<f64> {
    let now = JsHost.now();
    let until = |end: Instant| millis(end - now);
    if let CallWait::StatedRate { rate, until: end } = *wait {
        return vec![9.0, rate.limit as f64, until(end), dimension_number(rate.dimension), millis(rate.window)];
    }
    let (kind, calls, until_ms) = match *wait {
        CallWait::Cooldown { until: end } => (0.0, f64::NAN, until(end)),
        CallWait::ProviderCap { cap } => (1.0, f64::from(cap), f64::NAN),
        CallWait::Limit { limit, changes_at, .. } => (2.0, f64::from(limit), changes_at.map_or(f64::NAN, until)),
        CallWait::Budget { until: end } => (3.0, f64::NAN, until(end)),
        CallWait::TaskSlots => (4.0, f64::NAN, f64::NAN),
        CallWait::Outage { probe_at, .. } => (6.0, f64::NAN, probe_at.map_or(f64::NAN, until)),
        CallWait::Unavailable { cause, probe_at, .. } => {
            (7.0, f64::from(cause as u32), probe_at.map_or(f64::NAN, until))
        }
        CallWait::Paused => (10.0, f64::NAN, f64::NAN),
        CallWait::Paced { until: end } => (8.0, f64::NAN, until(end)),
        _ => (5.0, f64::NAN, f64::NAN),
    };
    vec![kind, calls, until_ms]
}

pub(super) fn optional(span: Option<Duration>) -> f64 {
    span.map_or(f64::NAN, millis)
}
