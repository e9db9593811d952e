//! What a controller shows of itself. Reading changes nothing.

use alloc::string::String;
use alloc::vec::Vec;

use super::keys::{Domain, ProviderModelId, ResourceId};
use crate::budget::BudgetSnapshot;
use crate::call::Outcome;
use crate::lease::ReleaseDiagnostics;
use crate::limit::RampState;
use crate::time::{Duration, Instant};

/// The state of one resource at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    /// When the oldest of them was granted, if instants were needed then: one that is far back was probably lost.
    pub oldest_lease: Option<Instant>,
    /// Releases in this resource's name that released nothing.
    pub irregular_releases: ReleaseDiagnostics,
    /// Calls that wait.
    pub waiters: u32,
    /// Those of them whose workers have given their task resources back while they wait.
    pub suspended: u32,
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
    /// Every alias with the cap it asked for, in order of registration.
    pub aliases: Vec<(String, u32)>,
    /// The limit of each domain that was mentioned.
    pub limits: Vec<(Domain, u32)>,
}

/// What changes of a resource while it is used, as of one instant: what a snapshot has that costs nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceGauges {
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

/// How loaded one resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLoad {
    /// The adaptive limit in force.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that wait.
    pub waiters: u32,
}

/// A request resource as it stands when an account is told of it: what the stream takes for granted.
/// [`RequestAdmission::standing`](super::RequestAdmission::standing) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CallStanding {
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
}
