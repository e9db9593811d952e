//! What a controller shows of itself. Reading changes nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::keys::{Domain, ProviderModelId, ResourceId};
use crate::budget::BudgetSnapshot;
use crate::call::Outcome;
use crate::lease::ReleaseDiagnostics;
use crate::limit::RampState;
use crate::time::{Duration, Instant};

/// Whether a provider and model answers at all.
///
/// An outage is a state of the provider, and no fault of the calls that meet it. So many counted failures in
/// a row (no connection, 5xx, no answer in time, an answer that breaks off) while nothing succeeds take it
/// down. Then nothing goes out for a pause, and after that one call, the probe: any answer to it, a refusal
/// included, means that the provider is back, and limits climb from 1 to what they were. The pause doubles
/// with each probe that fails.
///
/// Exhaustive on purpose: a host that shows the state must have words for every state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", rename_all = "snake_case"))]
pub enum HealthState {
    /// It is not known to fail.
    #[default]
    Healthy,
    /// Its latest calls failed, and others succeeded a moment before: calls go out one by one.
    Suspected {
        /// The first failure.
        since: Instant,
    },
    /// It does not.
    Down {
        /// The first failure of the outage.
        since: Instant,
        /// When the next probe is due.
        probe_at: Instant,
    },
    /// A probe is out.
    Probing {
        /// The first failure of the outage.
        since: Instant,
    },
    /// Calls are rejected.
    Unavailable {
        /// Since when.
        since: Instant,
        /// Why.
        cause: UnavailableCause,
        /// When one call goes out to find out whether it can be used again; `None`: not before it is
        /// [reopened](super::RequestAdmission::reopen).
        probe_at: Option<Instant>,
    },
}

/// Why calls to a provider and model are rejected. Most causes last until a person changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum UnavailableCause {
    /// It was down for longer than the patience lasts.
    Outage,
    /// The key is refused. This concerns every model of the provider.
    KeyRefused,
    /// The account is out of funds or of quota. This concerns every model of the provider.
    QuotaExhausted,
    /// The provider has no such model.
    ModelNotFound,
    /// It answered nothing but rate limits for longer than the patience lasts, or asked to be left alone for
    /// longer.
    RateLimited,
}

impl UnavailableCause {
    /// What an outcome makes of a provider, if it closes it.
    pub(super) const fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::KeyRefused => Some(Self::KeyRefused),
            Outcome::QuotaExhausted => Some(Self::QuotaExhausted),
            Outcome::ModelNotFound => Some(Self::ModelNotFound),
            _ => None,
        }
    }

    /// Whether it concerns all models that the key is used for.
    pub(super) const fn is_of_account(self) -> bool {
        matches!(self, Self::KeyRefused | Self::QuotaExhausted)
    }
}

impl fmt::Display for UnavailableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outage => "it did not answer",
            Self::KeyRefused => "the key is refused",
            Self::QuotaExhausted => "the account is out of funds or quota",
            Self::ModelNotFound => "there is no such model",
            Self::RateLimited => "it answered nothing but rate limits",
        })
    }
}

/// The state of one resource at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceSnapshot {
    /// When it was read.
    pub at: Instant,
    /// Commands the controller had carried out.
    pub sequence: u64,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The domain.
    pub domain: Domain,
    /// The most the limit can become: the lower of the provider's cap and the resource's own maximum.
    pub effective_max: u32,
    /// The adaptive limit in force.
    pub current_limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Leases that are out, as the ledger has them: always `in_flight`, or something leaks.
    pub active_leases: u32,
    /// When the oldest of them was granted, if instants were needed then: one that is far back was probably
    /// lost.
    pub oldest_lease: Option<Instant>,
    /// Releases in this resource's name that released nothing.
    pub irregular_releases: ReleaseDiagnostics,
    /// Calls that wait.
    pub waiters: u32,
    /// Those of them whose workers have given their task resources back while they wait.
    pub suspended: u32,
    /// Whether the provider and model answers, in any domain.
    pub health: HealthState,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// What is left of it.
    pub cooldown_remaining: Duration,
    /// The limit the first cut found too high; 0 before any.
    pub rate_limit_ceiling: u32,
    /// Rate limits since the last good news.
    pub consecutive_rate_limits: u32,
    /// Successes since the last change of limit.
    pub success_streak: u32,
    /// How the last call ended.
    pub last_outcome: Option<Outcome>,
    /// The start-up ramp that runs, if one does.
    pub ramp: Option<RampState>,
    /// The provider's cap over all domains.
    pub provider_cap: u32,
    /// Calls out over all domains.
    pub provider_in_flight: u32,
    /// The resource's budgets, in the order they were given.
    pub budgets: Vec<BudgetSnapshot>,
}

/// The state of one provider and model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProviderModelSnapshot {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The lowest cap of all aliases.
    pub static_cap: u32,
    /// Calls out over all domains.
    pub in_flight: u32,
    /// Leases that are out, as the ledger has them.
    pub active_leases: u32,
    /// Whether it answers.
    pub health: HealthState,
    /// Every alias with the cap it asked for, in order of registration.
    pub aliases: Vec<(String, u32)>,
    /// The limit of each domain that was mentioned.
    pub limits: Vec<(Domain, u32)>,
}

/// The figures of a resource that change with each call, as of one instant. Unlike a [`ResourceSnapshot`],
/// they cost O(1) to read and allocate nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceStats {
    /// Whether the provider and model answers, in any domain.
    pub health: HealthState,
    /// Calls of the provider and model, in any domain, that failed and wait until it shows whether it is
    /// down.
    pub undecided: u32,
    /// The most the limit can become: the lower of the provider's cap and the resource's own maximum.
    pub effective_max: u32,
    /// The limit in force.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that wait.
    pub waiters: u32,
    /// Those of them whose workers have given their task resources back while they wait.
    pub suspended: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// The limit the first cut found too high; 0 before any.
    pub rate_limit_ceiling: u32,
    /// The start-up ramp that runs, if one does.
    pub ramp: Option<RampState>,
}

/// The state of a request resource at which an account of its events begins.
/// [`RequestAdmission::baseline`](super::RequestAdmission::baseline) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ResourceBaseline {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model.
    pub model: ProviderModelId,
    /// What to call it: provider, model and domain.
    pub name: String,
    /// The cap of the provider and model over all domains.
    pub cap: u32,
    /// The most that the resource's own settings allow; `None`: as many as the cap.
    pub clamp: Option<u32>,
    /// The limit in force.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Calls waiting.
    pub waiters: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// Whether the provider and model is down, or cannot be used any more.
    pub is_down: bool,
}
