//! A gate for calls to rate-limited services, with names for models and tenants.
//!
//! [`RequestGate`] is the core's [`Gate`] on tokio, plus a registry of names. The core identifies resources
//! and fairness groups by number. Here a [`Call`] names the model that it calls (a [`ResourceKey`]: provider,
//! model and domain) and the tenant that it is made for. [`RequestGate::acquire`] waits until the call may
//! start and returns a permit.
//!
//! ```
//! use tidegate_core::request::Outcome;
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let writer = ResourceKey::chat("provider", "writer-large");
//! gate.register(&writer, &Limits::at_most(16))?;
//! gate.register_tenant("batch", 1.0)?;
//! gate.register_tenant("interactive", 4.0)?;
//!
//! let permit = gate.acquire(&Call::new(writer).for_tenant("interactive")).await?;
//! // ... make the call ...
//! permit.finish(Outcome::Success);
//! # Ok(())
//! # }
//! ```
//!
//! Names may come from untrusted input, so the registry is bounded:
//!
//! - A call to an unregistered model is denied, unless [`RequestGate::admit_unregistered`] sets limits for
//!   such models and a maximum for their number.
//! - The first [`MAX_UNREGISTERED_TENANTS`](tidegate_core::request::MAX_UNREGISTERED_TENANTS) unregistered
//!   tenants get a fairness group each. Further ones share the overflow group.

mod call;
mod limits;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::RwLock;
use tidegate_core::error::ConfigError;
use tidegate_core::gate::{Gate, OwnedPermit};
use tidegate_core::request::{
    CallWait, Denial, DenialReason, GroupId, HealthConfig, Request, RequestAdmission, RequestConfig, ResourceId,
    ResourceSnapshot,
};
#[cfg(feature = "share")]
use tidegate_core::share::redis::limit_name;
use tokio::runtime::TryCurrentError;

pub use call::{Call, ResourceKey};
pub use limits::{Limits, default_limit};

use crate::host::TokioHost;
#[cfg(feature = "share")]
use crate::share::{Share, ShareError, ShareStatus};

/// The right to make one call through a [`RequestGate`]: the core's permit, on tokio.
///
/// Release it with [`finish`](tidegate_core::gate::PermitOf::finish) and the outcome of the call. A permit
/// that is dropped instead counts as a call that was cancelled locally.
pub type CallPermit = OwnedPermit<TokioHost>;

/// Returns a seed that differs between processes, so that their probes and retries after a common outage are
/// spread out. It has 32 bits, which keeps it short in logs.
pub(crate) fn random_seed() -> u64 {
    u64::from(RandomState::new().hash_one(()) as u32)
}

/// The reason why a gate could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The caller does not run inside a tokio runtime.
    #[error("a gate needs a tokio runtime: {0}")]
    NoRuntime(#[from] TryCurrentError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Admits calls by name. See the [module documentation](self).
///
/// Clones are handles to the same gate.
#[derive(Clone)]
pub struct RequestGate {
    gate: Gate<TokioHost>,
    registry: Arc<RwLock<Registry>>,
}

#[derive(Default)]
struct Registry {
    resources: HashMap<ResourceKey, ResourceId>,
    /// The tenants that have a group of their own. Bounded, because the number of groups is.
    tenants: HashMap<Arc<str>, GroupId>,
    #[cfg(feature = "share")]
    share: Option<Arc<Share>>,
    /// The limits of unregistered models, and how many more of them may be registered.
    unregistered: Option<(Limits, usize)>,
}

/// Creation.
impl RequestGate {
    /// Creates a gate on the current tokio runtime, with default settings and a random seed. Nothing is
    /// registered.
    ///
    /// # Errors
    ///
    /// [`GateError::NoRuntime`] outside a tokio runtime.
    pub fn new() -> Result<Self, GateError> {
        let health = HealthConfig { seed: random_seed(), ..HealthConfig::default() };
        Self::with_config(RequestConfig { health: Some(health), ..RequestConfig::default() })
    }

    /// Creates a gate on the current tokio runtime with the given settings. Nothing is registered.
    ///
    /// Give each process its own [`HealthConfig::seed`], so that many processes do not probe a provider at
    /// the same instant after an outage.
    ///
    /// # Errors
    ///
    /// [`GateError::NoRuntime`] outside a tokio runtime, [`GateError::Config`] if a setting is out of range.
    pub fn with_config(config: RequestConfig) -> Result<Self, GateError> {
        let host = TokioHost::current()?;
        Ok(Self::from_gate(Gate::new(host, RequestAdmission::new(config)?)))
    }

    /// Creates an empty registry of names in front of an existing gate.
    ///
    /// Resources and tenants that were registered with `gate` directly have no name here.
    #[must_use]
    pub fn from_gate(gate: Gate<TokioHost>) -> Self {
        Self { gate, registry: Arc::default() }
    }
}

/// Registration.
impl RequestGate {
    /// Registers a model with its limits, and returns its resource.
    ///
    /// If `key` is registered already, its limits are replaced and its adaptive limit restarts. Calls in
    /// flight and waiting calls stay as they are. A limit that is [shared](crate::share) does not restart:
    /// only its maximum and its budgets change.
    ///
    /// # Errors
    ///
    /// A setting of `limits` is out of range, the gate has too many models, or the model is shared with
    /// another algorithm. Nothing changes then.
    pub fn register(&self, key: &ResourceKey, limits: &Limits) -> Result<ResourceId, ConfigError> {
        let mut registry = self.registry.write();
        self.register_locked(&mut registry, key, limits)
    }

    fn register_locked(
        &self,
        registry: &mut Registry,
        key: &ResourceKey,
        limits: &Limits,
    ) -> Result<ResourceId, ConfigError> {
        limits.validate()?;
        #[cfg(feature = "share")]
        let is_shared = match &registry.share {
            Some(share) => share.keeps(&key.to_string(), limits.algorithm, &limits.limit_config)?,
            None => false,
        };
        #[cfg(not(feature = "share"))]
        let is_shared = false;
        let resource = self.gate.with(|machine, now| {
            let cap = limits.max_parallel.get();
            let model = machine.register(now, &key.provider, &key.model, "default", cap)?;
            let resource = machine.resource(model, key.domain.clone())?;
            if !is_shared {
                machine.configure(now, resource, limits.limit_config.clone())?;
            }
            if !is_shared && !limits.algorithm.is_aimd() {
                machine.choose_algorithm(now, resource, limits.algorithm)?;
            }
            machine.set_budgets(now, resource, &limits.budgets)?;
            Ok(resource)
        })?;
        #[cfg(feature = "share")]
        if let Some(share) = registry.share.as_ref().filter(|_| !is_shared) {
            let limit = limit_name(&key.provider, &key.model, key.domain.as_str());
            share.join(&self.gate, resource, &limit, limits.algorithm, &limits.limit_config)?;
        }
        registry.resources.insert(key.clone(), resource);
        Ok(resource)
    }

    /// Admits calls to unregistered models. Each such model is registered with `limits` at its first call.
    ///
    /// At most `max_resources` models are registered this way; calls to further ones are denied as
    /// [`Unregistered`](DenialReason::Unregistered). Calling this again replaces the limits for later models
    /// and restarts the count.
    pub fn admit_unregistered(&self, limits: Limits, max_resources: usize) {
        self.registry.write().unregistered = Some((limits, max_resources));
    }

    /// Registers a tenant with its weight, or changes the weight of a known tenant.
    ///
    /// Tenants whose calls wait for the same model share it in proportion to their weights. `weight` is in
    /// 2^-20..=2^20; an unregistered tenant has weight 1.
    ///
    /// # Errors
    ///
    /// `weight` is out of range, or the gate has too many groups.
    pub fn register_tenant(&self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        let mut registry = self.registry.write();
        let group = self.gate.with(|machine, _| machine.group(name, weight))?;
        registry.tenants.insert(name.into(), group);
        Ok(group)
    }
}

/// Limits that several processes share.
#[cfg(feature = "share")]
impl RequestGate {
    /// Shares the limit of each model that is registered from now on with other processes. See
    /// [`share`](crate::share).
    ///
    /// # Errors
    ///
    /// [`ShareError::AlreadyShared`] if it was called before.
    pub fn share(&self, share: Share) -> Result<(), ShareError> {
        let mut registry = self.registry.write();
        if registry.share.is_some() {
            return Err(ShareError::AlreadyShared);
        }
        registry.share = Some(Arc::new(share));
        Ok(())
    }

    /// Returns the state of the shared limit of a model, or `None` if its limit is not shared.
    #[must_use]
    pub fn share_status(&self, key: &ResourceKey) -> Option<ShareStatus> {
        self.registry.read().share.as_ref()?.status_of(&key.to_string())
    }

    /// Leaves the shared limits, if there are any: no more calls start, and the other processes get the
    /// shares of this one at once. Call it when the calls have ended. It takes at most two seconds.
    pub async fn leave_share(&self) {
        let share = self.registry.read().share.clone();
        if let Some(share) = share {
            share.leave().await;
        }
    }
}

/// Admission.
impl RequestGate {
    /// Waits until `call` may start, and returns its permit.
    ///
    /// Waiting calls to one model are granted fairly among tenants, in proportion to their weights. Dropping
    /// the future at any moment leaks nothing.
    ///
    /// # Errors
    ///
    /// The gate denies the call: it waited longer than its timeout, the model is unregistered or unavailable,
    /// or the gate is shut down. See [`DenialReason`].
    pub async fn acquire(&self, call: &Call) -> Result<CallPermit, Denial> {
        let request = self.request(call)?;
        self.gate.acquire_owned(request).await
    }

    /// Returns a permit if `call` may start now. Never overtakes a waiting call to the same provider and
    /// model.
    ///
    /// # Errors
    ///
    /// The gate denies the call, as for [`acquire`](Self::acquire), or it would have to wait.
    /// [`Denial::changes_at`] is the next instant at which another attempt makes sense, if it is known.
    pub fn try_acquire(&self, call: &Call) -> Result<CallPermit, Denial> {
        let request = self.request(call)?;
        self.gate.try_acquire_owned(request)
    }

    /// Converts `call` to a request of the core: resolves its names to ids.
    ///
    /// Use it to call methods of the core's gate ([`core`](Self::core)) for a named call, such as
    /// [`Gate::run_through_outages`]. Registers a model or tenant that is seen for the first time, within the
    /// bounds of the [module documentation](self).
    ///
    /// # Errors
    ///
    /// [`DenialReason::Unregistered`] if the model is unregistered and may not be added.
    pub fn request(&self, call: &Call) -> Result<Request, Denial> {
        let (resource, group) = self.resolve(call)?;
        let timeout = call.timeout.map(Into::into);
        Ok(Request { group, timeout, estimate: call.estimate, ..Request::new(resource) })
    }

    fn resolve(&self, call: &Call) -> Result<(ResourceId, Option<GroupId>), Denial> {
        let (resource, known_group) = {
            let registry = self.registry.read();
            let group = call.tenant.as_ref().and_then(|tenant| registry.tenants.get(tenant));
            (registry.resources.get(&call.key).copied(), group.copied())
        };
        let resource = match resource {
            Some(known) => known,
            None => self.register_on_first_use(&call.key)?,
        };
        let group = match (known_group, &call.tenant) {
            (None, Some(tenant)) => Some(self.group_of_new_tenant(tenant)?),
            (known, _) => known,
        };
        Ok((resource, group))
    }

    fn register_on_first_use(&self, key: &ResourceKey) -> Result<ResourceId, Denial> {
        let mut registry = self.registry.write();
        // Another thread may have registered it meanwhile.
        if let Some(known) = registry.resources.get(key) {
            return Ok(*known);
        }
        let limits = match &registry.unregistered {
            Some((limits, left)) if *left > 0 => limits.clone(),
            _ => return Err(UNREGISTERED),
        };
        let resource = self.register_locked(&mut registry, key, &limits).map_err(|_| UNREGISTERED)?;
        if let Some((_, left)) = &mut registry.unregistered {
            *left -= 1;
        }
        Ok(resource)
    }

    /// Returns the group of a tenant that the registry does not contain. The core returns one group for one
    /// name, also to threads that ask at the same time. The overflow group is not stored, so that the
    /// registry stays bounded, and calls of its tenants do not block others.
    fn group_of_new_tenant(&self, tenant: &Arc<str>) -> Result<GroupId, Denial> {
        let found = self.gate.with(|machine, _| {
            let group = machine.group_of_tenant(tenant)?;
            Ok::<_, ConfigError>((group, machine.is_shared_group(group)))
        });
        let (group, is_shared) = found.map_err(|_| UNREGISTERED)?;
        if !is_shared {
            self.registry.write().tenants.insert(Arc::clone(tenant), group);
        }
        Ok(group)
    }
}

/// Queries.
impl RequestGate {
    /// Returns the resource of `key`, or `None` if it is not registered.
    #[must_use]
    pub fn resource(&self, key: &ResourceKey) -> Option<ResourceId> {
        self.registry.read().resources.get(key).copied()
    }

    /// Returns every registered model with its resource, sorted by name.
    #[must_use]
    pub fn resources(&self) -> Vec<(ResourceKey, ResourceId)> {
        let mut known: Vec<_> = self.registry.read().resources.iter().map(|(key, id)| (key.clone(), *id)).collect();
        known.sort_unstable();
        known
    }

    /// Returns the state of a model: its limit, calls in flight, waiters, budgets and health. `None` if `key`
    /// is not registered.
    #[must_use]
    pub fn snapshot(&self, key: &ResourceKey) -> Option<ResourceSnapshot> {
        self.gate.snapshot(self.resource(key)?)
    }

    /// Returns why a model has unused slots, or `None` if it has none or is not registered. Cost is linear in
    /// the number of its waiters.
    #[must_use]
    pub fn why_idle(&self, key: &ResourceKey) -> Option<CallWait> {
        let resource = self.resource(key)?;
        self.gate.with(|machine, now| machine.why_idle_now(now, resource))
    }

    /// Returns the core's gate, for everything that this type does not cover.
    #[must_use]
    pub fn core(&self) -> &Gate<TokioHost> {
        &self.gate
    }
}

const UNREGISTERED: Denial = Denial { reason: DenialReason::Unregistered, changes_at: None };

impl fmt::Debug for RequestGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestGate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
