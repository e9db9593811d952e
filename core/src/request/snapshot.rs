//! Snapshots of the state of request admission. Reading them changes nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::keys::{Domain, ProviderModelId, ResourceId};
use crate::budget::BudgetSnapshot;
use crate::call::Outcome;
use crate::lease::ReleaseDiagnostics;
use crate::limit::RampState;
use crate::time::{Duration, Instant};

/// The health of a provider and model: whether it responds to calls.
///
/// An outage is a state of the provider, not of the calls that fail in it. A provider goes down after
/// [`failures`](super::HealthConfig::failures) counted failures in a row while no call succeeds. Counted
/// failures are: no connection, a 5xx status, a timeout, and a response that breaks off. While the provider
/// is down, no call is sent during a pause; then one call is sent as the probe. If the probe gets an answer,
/// which includes a rejection or a rate limit, the provider is up again, and its limits climb from 1 to their
/// previous values. The pause doubles with each failed probe.
///
/// Exhaustive on purpose: a host that displays the state must handle every state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", rename_all = "snake_case"))]
pub enum HealthState {
    /// The provider is not known to fail.
    #[default]
    Healthy,
    /// The latest calls failed, but others succeeded shortly before. Calls are sent a tenth of
    /// [`quiet`](super::HealthConfig::quiet) apart.
    Suspected {
        /// The first of these failures.
        since: Instant,
    },
    /// The provider does not respond.
    Down {
        /// The first failure of the outage.
        since: Instant,
        /// When the next probe is due.
        probe_at: Instant,
    },
    /// A probe is in flight.
    Probing {
        /// The first failure of the outage.
        since: Instant,
    },
    /// The provider is unavailable: calls are denied.
    Unavailable {
        /// When it became unavailable.
        since: Instant,
        /// The cause.
        cause: UnavailableCause,
        /// When the next probe is due. `None` means that no probe is sent until it is
        /// [reopened](super::RequestAdmission::reopen).
        probe_at: Option<Instant>,
    },
}

/// The cause for which all calls to a provider and model are denied. Most causes last until an operator
/// fixes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum UnavailableCause {
    /// It was down for longer than [`patience`](super::HealthConfig::patience).
    Outage,
    /// The API key was rejected. This applies to every model of the provider.
    KeyRejected,
    /// The account has no funds or no quota left. This applies to every model of the provider.
    QuotaExhausted,
    /// The provider has no such model.
    ModelNotFound,
    /// It responded only with rate limits for
    /// [`rate_limit_patience`](super::HealthConfig::rate_limit_patience), or stated a Retry-After of at least
    /// that length.
    RateLimited,
    /// TLS could not be set up: its certificate is not accepted, only one side uses TLS, or it requires
    /// another version or a certificate of its clients.
    TlsFailed,
}

impl UnavailableCause {
    /// Returns the cause for an outcome that makes the provider or model unavailable, and `None` for any
    /// other.
    pub(super) const fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::KeyRejected => Some(Self::KeyRejected),
            Outcome::QuotaExhausted => Some(Self::QuotaExhausted),
            Outcome::ModelNotFound => Some(Self::ModelNotFound),
            Outcome::TlsFailed => Some(Self::TlsFailed),
            _ => None,
        }
    }

    /// Returns whether the cause applies to every model of the provider.
    pub(super) const fn is_of_account(self) -> bool {
        matches!(self, Self::KeyRejected | Self::QuotaExhausted)
    }
}

impl fmt::Display for UnavailableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outage => "it did not respond",
            Self::KeyRejected => "the key is rejected",
            Self::QuotaExhausted => "the account is out of funds or quota",
            Self::ModelNotFound => "there is no such model",
            Self::RateLimited => "it answered nothing but rate limits",
            Self::TlsFailed => "its certificate is not accepted, only one side uses TLS, or it requires another version or a client certificate",
        })
    }
}

/// The state of one resource at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceSnapshot {
    /// The instant of the snapshot.
    pub at: Instant,
    /// The number of commands that were carried out.
    pub sequence: u64,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The domain.
    pub domain: Domain,
    /// The maximum of the limit: the lower of the provider's cap and the resource's own maximum.
    pub effective_max: u32,
    /// The adaptive limit in force.
    pub current_limit: u32,
    /// The calls in flight.
    pub in_flight: u32,
    /// The active leases according to the ledger. A value other than `in_flight` is a defect.
    pub active_leases: u32,
    /// When the oldest active lease was granted, among those whose instant was recorded. A lease that is much
    /// older than a call can take was probably lost.
    pub oldest_lease: Option<Instant>,
    /// Counts of irregular releases of this resource: releases of a lease that was not active.
    pub irregular_releases: ReleaseDiagnostics,
    /// The requests that wait.
    pub waiters: u32,
    /// The waiters whose workers have returned their task resources while they wait.
    pub yielded: u32,
    /// The health of the provider and model, over all domains.
    pub health: HealthState,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// The time that is left of the cooldown.
    pub cooldown_remaining: Duration,
    /// The limit that the first cut found too high; 0 before any cut.
    pub rate_limit_ceiling: u32,
    /// The number of rate limits in a row. It is reset by a success outside a cooldown, and by the end of the
    /// last call in flight unless that call was rate limited, cancelled or timed out locally.
    pub consecutive_rate_limits: u32,
    /// The number of successes counted towards the next increase of the limit.
    pub success_streak: u32,
    /// How the last call ended.
    pub last_outcome: Option<Outcome>,
    /// The start-up ramp, if one is running.
    pub ramp: Option<RampState>,
    /// The provider's cap over all domains.
    pub provider_cap: u32,
    /// The calls in flight over all domains.
    pub provider_in_flight: u32,
    /// The resource's budgets, in the order in which they were set.
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
    /// The calls in flight over all domains.
    pub in_flight: u32,
    /// The active leases according to the ledger.
    pub active_leases: u32,
    /// The health of the provider and model.
    pub health: HealthState,
    /// Every alias with its cap, in order of registration.
    pub aliases: Vec<(String, u32)>,
    /// The limit of each domain that has a resource.
    pub limits: Vec<(Domain, u32)>,
}

/// The figures of a resource that change with each call, at one instant. Unlike a [`ResourceSnapshot`], they
/// cost O(1) to read and allocate nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceStats {
    /// The health of the provider and model, over all domains.
    pub health: HealthState,
    /// The calls of the provider and model, over all domains, that failed and wait until it is decided
    /// whether the provider is down.
    pub undecided: u32,
    /// The maximum of the limit: the lower of the provider's cap and the resource's own maximum.
    pub effective_max: u32,
    /// The limit in force.
    pub limit: u32,
    /// The calls in flight.
    pub in_flight: u32,
    /// The requests that wait.
    pub waiters: u32,
    /// The waiters whose workers have returned their task resources while they wait.
    pub yielded: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// The limit that the first cut found too high; 0 before any cut.
    pub rate_limit_ceiling: u32,
    /// The start-up ramp, if one is running.
    pub ramp: Option<RampState>,
}

/// The state of a resource from which an account of its events starts.
/// [`RequestAdmission::baseline`](super::RequestAdmission::baseline) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ResourceBaseline {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model.
    pub model: ProviderModelId,
    /// The display name: `provider/model/domain`.
    pub name: String,
    /// The cap of the provider and model over all domains.
    pub cap: u32,
    /// The maximum limit of the resource's own settings. `None` means that only the cap applies.
    pub clamp: Option<u32>,
    /// The limit in force.
    pub limit: u32,
    /// The calls in flight.
    pub in_flight: u32,
    /// The requests that wait.
    pub waiters: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// Whether the provider and model is down, probed or unavailable.
    pub is_down: bool,
}
