//! The state of a gate, as JavaScript reads it: durations are in milliseconds, and what is not known is left out.

use serde::Serialize;
use tidegate_core::budget::{BudgetSource, Dimension};
use tidegate_core::request as core;
use tidegate_core::request::{HealthState, Outcome, UnavailableCause};
use tidegate_core::time::Instant;
use tsify::Tsify;

use super::millis;

/// The state of one rate budget.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetSnapshot {
    #[tsify(type = "BudgetDimension")]
    dimension: Dimension,
    /// The window, in milliseconds.
    window_ms: f64,
    /// The limit in force: the configured one, or a lower one that the provider stated.
    limit: u64,
    /// What may be spent now, rounded down; negative while it is overdrawn.
    available: i64,
    /// The sum of the estimates of calls in flight.
    reserved: u64,
    /// The source of the budget: the settings, or the headers of the provider's responses.
    source: BudgetSource,
}

/// Whether a provider and model responds, in any domain.
///
/// | `state` | meaning |
/// | --- | --- |
/// | `healthy` | It is not known to fail. |
/// | `suspected` | Its latest calls failed, the first of them `failingForMs` ago, and calls start one at a time. |
/// | `down` | It has not responded for `failingForMs`. No call starts before the next probe, in `probeInMs`. |
/// | `probing` | It is down, and one call in flight tests it. |
/// | `unavailable` | Calls have been denied for `forMs`. One call tests it in `probeInMs`, if a test is planned. |
#[derive(Serialize, Tsify)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Health {
    Healthy,
    Suspected {
        failing_for_ms: f64,
    },
    Down {
        failing_for_ms: f64,
        probe_in_ms: f64,
    },
    Probing {
        failing_for_ms: f64,
    },
    Unavailable {
        cause: UnavailableCause,
        for_ms: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_in_ms: Option<f64>,
    },
}

/// A start-up ramp.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ramp {
    /// The limit at its end.
    target: u32,
    /// The remaining time; left out before the first call, which starts the ramp.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<f64>,
}

/// The state of one resource at one instant.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceSnapshot {
    /// When it was read, on the clock of `performance.now()`.
    at_ms: f64,
    /// The number of commands that the gate has processed.
    sequence: u64,
    provider: String,
    model: String,
    domain: String,
    /// The most that the limit can become: the lower of `maxParallel` and `maxLimit`.
    effective_max: u32,
    /// The adaptive limit in force.
    current_limit: u32,
    /// Calls in flight.
    in_flight: u32,
    /// Leases in use. Always equals `inFlight`; a difference is a leak.
    active_leases: u32,
    /// The age of the oldest lease, if there is one and a time was recorded when it was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_lease_age_ms: Option<f64>,
    /// Waiting calls.
    waiters: u32,
    /// Waiting calls whose pipeline worker holds no task resources.
    yielded: u32,
    /// The remaining time of the current cooldown; 0 if there is none.
    cooldown_remaining_ms: f64,
    /// The limit at which the first decrease happened; 0 before any.
    rate_limit_ceiling: u32,
    /// Rate-limited calls since the last success.
    consecutive_rate_limits: u32,
    /// Successes since the limit last changed.
    success_streak: u32,
    /// How the last call ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_outcome: Option<Outcome>,
    /// The start-up ramp in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp: Option<Ramp>,
    /// The cap over all domains of the model.
    provider_cap: u32,
    /// Calls in flight over all domains of the model.
    provider_in_flight: u32,
    /// Whether the provider and model responds.
    health: Health,
    /// The rate budgets, in the order they were given.
    budgets: Vec<BudgetSnapshot>,
}

/// Why the next call of a resource cannot start.
///
/// | `kind` | meaning |
/// | --- | --- |
/// | `cooldown` | A cooldown ends in `endsInMs`: the provider requested it, or rate limited a call without a Retry-After. |
/// | `provider_cap` | The model's `maxParallel` over all domains, `cap`, is reached. |
/// | `limit` | The adaptive limit is reached. It changes in `changesInMs` without a call ending, as in a ramp, if that is known. |
/// | `share` | The part that this process has of a shared limit is reached, or it has none now: `what` in words. Its `ShareState` says more. |
/// | `paced` | The limit spaces calls in time. Fewer calls are in flight than it allows, and the next one starts in `opensInMs`. |
/// | `budget` | A rate budget is spent. It suffices in `fitsInMs`, unless other calls spend it first. |
/// | `shared_budget` | What this process has of a budget that it shares is spent, until the process that leads grants more. If `isKnown` is false, that one has no such budget, so it grants nothing: give all processes the same budgets. |
/// | `stated_rate` | The rate that the provider states in its headers is reached: `limit` of `dimension` in each `windowMs`. The next call starts in `fitsInMs`, unless other calls spend the rate first. |
/// | `outage` | The provider is down. The next probe is in `probeInMs`; left out while a probe is in flight. |
/// | `unavailable` | The provider or model cannot be used. One call tests in `probeInMs` whether it can again, if a test is planned. |
/// | `task_slots` | Its pipeline worker has yielded its task resources and waits to get them back. |
/// | `undecided` | It failed, and other calls will show whether the provider is down. |
/// | `turn` | Another call goes first. |
/// | `paused` | `RequestGate.pause` is in force. |
#[derive(Serialize, Tsify)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum CallWait {
    Cooldown {
        ends_in_ms: f64,
    },
    ProviderCap {
        cap: u32,
    },
    Limit {
        limit: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        changes_in_ms: Option<f64>,
    },
    Share {
        what: String,
    },
    Paced {
        opens_in_ms: f64,
    },
    Budget {
        fits_in_ms: f64,
    },
    SharedBudget {
        is_known: bool,
    },
    StatedRate {
        #[tsify(type = "BudgetDimension")]
        dimension: Dimension,
        limit: u64,
        window_ms: f64,
        fits_in_ms: f64,
    },
    Outage {
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_in_ms: Option<f64>,
    },
    Unavailable {
        cause: UnavailableCause,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_in_ms: Option<f64>,
    },
    TaskSlots,
    Undecided,
    Turn,
    Paused,
}

impl ResourceSnapshot {
    pub(super) fn of(from: core::ResourceSnapshot) -> Self {
        let (age, until) = (|since: Instant| millis(from.at - since), |end: Instant| millis(end - from.at));
        Self {
            at_ms: millis(from.at - Instant::ZERO),
            sequence: from.sequence,
            effective_max: from.effective_max,
            current_limit: from.current_limit,
            in_flight: from.in_flight,
            active_leases: from.active_leases,
            oldest_lease_age_ms: from.oldest_lease.map(age),
            waiters: from.waiters,
            yielded: from.yielded,
            cooldown_remaining_ms: millis(from.cooldown_remaining),
            rate_limit_ceiling: from.rate_limit_ceiling,
            consecutive_rate_limits: from.consecutive_rate_limits,
            success_streak: from.success_streak,
            last_outcome: from.last_outcome,
            ramp: from.ramp.map(|ramp| Ramp { target: ramp.target, remaining_ms: ramp.ends.map(until) }),
            provider_cap: from.provider_cap,
            provider_in_flight: from.provider_in_flight,
            health: Health::of(from.health, from.at),
            budgets: from.budgets.iter().map(BudgetSnapshot::of).collect(),
            provider: from.provider,
            model: from.model,
            domain: from.domain.to_string(),
        }
    }
}

impl BudgetSnapshot {
    fn of(from: &tidegate_core::budget::BudgetSnapshot) -> Self {
        Self {
            dimension: from.config.dimension,
            window_ms: millis(from.config.window),
            limit: from.limit,
            available: from.available,
            reserved: from.reserved,
            source: from.source,
        }
    }
}

impl Health {
    fn of(from: HealthState, now: Instant) -> Self {
        let (age, until) = (|since: Instant| millis(now - since), |at: Instant| millis(at - now));
        match from {
            HealthState::Healthy => Self::Healthy,
            HealthState::Suspected { since } => Self::Suspected { failing_for_ms: age(since) },
            HealthState::Down { since, probe_at } => {
                Self::Down { failing_for_ms: age(since), probe_in_ms: until(probe_at) }
            }
            HealthState::Probing { since } => Self::Probing { failing_for_ms: age(since) },
            HealthState::Unavailable { since, cause, probe_at } => {
                Self::Unavailable { cause, for_ms: age(since), probe_in_ms: probe_at.map(until) }
            }
        }
    }
}

impl CallWait {
    pub(super) fn of(from: &core::CallWait, now: Instant) -> Self {
        let until = |end: Instant| millis(end - now);
        match *from {
            core::CallWait::Cooldown { until: end } => Self::Cooldown { ends_in_ms: until(end) },
            core::CallWait::ProviderCap { cap } => Self::ProviderCap { cap },
            core::CallWait::Limit { limit, changes_at, .. } => {
                Self::Limit { limit, changes_in_ms: changes_at.map(until) }
            }
            core::CallWait::Share { member, in_flight } => Self::Share { what: member.describe_block(in_flight) },
            core::CallWait::Paced { until: end } => Self::Paced { opens_in_ms: until(end) },
            core::CallWait::Budget { until: end } => Self::Budget { fits_in_ms: until(end) },
            core::CallWait::SharedBudget { is_known } => Self::SharedBudget { is_known },
            core::CallWait::StatedRate { rate, until: end } => Self::StatedRate {
                dimension: rate.dimension,
                limit: rate.limit,
                window_ms: millis(rate.window),
                fits_in_ms: until(end),
            },
            core::CallWait::Outage { probe_at, .. } => Self::Outage { probe_in_ms: probe_at.map(until) },
            core::CallWait::Unavailable { cause, probe_at, .. } => {
                Self::Unavailable { cause, probe_in_ms: probe_at.map(until) }
            }
            core::CallWait::TaskSlots => Self::TaskSlots,
            core::CallWait::Undecided => Self::Undecided,
            core::CallWait::Paused => Self::Paused,
            _ => Self::Turn,
        }
    }
}
