//! The gate with a book of names: what a service that calls many providers for many people holds on to.
//!
//! [`RequestGate`] is the core's [`Gate`] on tokio. The core speaks of resources and groups by number; here a call says
//! in words what it is for ([`ResourceKey`]: provider, model, domain) and for whom (a tenant), and gets a permit when it is its turn.
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
//! gate.register_tenant("people", 4.0)?;
//!
//! let slot = gate.acquire(&Call::new(writer).for_tenant("people")).await?;
//! // ... make the call ...
//! slot.finish(Outcome::Success);
//! # Ok(())
//! # }
//! ```
//!
//! Names from outside may be anything and any number. Models nobody registered are refused, unless
//! [`admit_unregistered`](RequestGate::admit_unregistered) says what they get and how many there may be; of tenants, the first
//! [`MAX_UNREGISTERED_TENANTS`](tidegate_core::request::MAX_UNREGISTERED_TENANTS) that nobody registered get a group each, and the rest share one.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use parking_lot::RwLock;
use tidegate_core::budget::{BudgetConfig, Usage};
use tidegate_core::error::ConfigError;
use tidegate_core::gate::{Gate, OwnedPermit};
use tidegate_core::limit::{LimitChoice, TideConfig};
use tidegate_core::request::{
    AimdConfig, CallWait, Denial, DenialReason, Domain, GroupId, HealthConfig, Request, RequestAdmission,
    RequestConfig, ResourceId, ResourceSnapshot,
};
use tokio::runtime::TryCurrentError;

use crate::host::TokioHost;

/// What a call is for. Calls of one key share one adaptive limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Who serves it.
    pub provider: Arc<str>,
    /// The model id.
    pub model: Arc<str>,
    /// The kind of call.
    pub domain: Domain,
}

impl ResourceKey {
    /// A model of a provider, called for this kind of work.
    #[must_use]
    pub fn new(provider: &str, model: &str, domain: Domain) -> Self {
        Self { provider: provider.into(), model: model.into(), domain }
    }

    /// A chat model.
    #[must_use]
    pub fn chat(provider: &str, model: &str) -> Self {
        Self::new(provider, model, Domain::Chat)
    }

    /// An embedding model.
    #[must_use]
    pub fn embedding(provider: &str, model: &str) -> Self {
        Self::new(provider, model, Domain::Embedding)
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.provider, self.model, self.domain)
    }
}

/// What decides a limit where nobody says: tide, which does best beside an oracle. It holds for everything in this crate: the gate
/// and its middleware, pipeline files, and the proxy.
#[must_use]
pub fn default_limit() -> LimitChoice {
    LimitChoice::Tide(TideConfig::default())
}

/// What a model may be asked for at once, and per minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Calls in flight at most, all domains of the model together.
    pub max_parallel: NonZeroU32,
    /// The ramp, the cooldowns and `max_limit` hold for every algorithm, the rest for AIMD.
    pub aimd: AimdConfig,
    /// What decides the limit.
    pub algorithm: LimitChoice,
    /// Rates.
    pub budgets: Vec<BudgetConfig>,
}

impl Limits {
    /// At most `max_parallel` calls in flight (0 counts as 1), found by [`default_limit`], and no budgets.
    #[must_use]
    pub fn at_most(max_parallel: u32) -> Self {
        let max_parallel = NonZeroU32::new(max_parallel).unwrap_or(NonZeroU32::MIN);
        Self { max_parallel, aimd: AimdConfig::default(), algorithm: default_limit(), budgets: Vec::new() }
    }

    /// The same with this algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: LimitChoice) -> Self {
        Self { algorithm, ..self }
    }

    /// The same with AIMD, by these settings.
    #[must_use]
    pub fn with_aimd(self, aimd: AimdConfig) -> Self {
        Self { algorithm: LimitChoice::Aimd, aimd, ..self }
    }

    /// The same with this budget too.
    #[must_use]
    pub fn with_budget(mut self, budget: BudgetConfig) -> Self {
        self.budgets.push(budget);
        self
    }
}

/// One call that wants to go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What for.
    pub key: ResourceKey,
    /// For whom; `None` is the resource's own group, of weight 1.
    pub tenant: Option<Arc<str>>,
    /// How long it may wait: zero is "now or not at all", `None` the gate's default.
    pub timeout: Option<StdDuration>,
    /// What it is expected to use, to be reserved in the budgets.
    pub estimate: Usage,
}

impl Call {
    /// A call of nobody in particular, with the gate's default timeout and no estimate.
    #[must_use]
    pub fn new(key: ResourceKey) -> Self {
        Self { key, tenant: None, timeout: None, estimate: Usage::default() }
    }

    /// The same call for `tenant`.
    #[must_use]
    pub fn for_tenant(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The same call, waiting at most `timeout`.
    #[must_use]
    pub fn within(self, timeout: StdDuration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The same call, expected to use this much.
    #[must_use]
    pub fn estimated(self, estimate: Usage) -> Self {
        Self { estimate, ..self }
    }
}

/// A number that differs from process to process: those that met one outage together are not to come back together. Few enough digits
/// for a log that others read.
pub(crate) fn random_seed() -> u64 {
    u64::from(RandomState::new().hash_one(()) as u32)
}

/// Why there is no gate.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The caller is not inside a tokio runtime.
    #[error("a gate needs a tokio runtime: {0}")]
    NoRuntime(#[from] TryCurrentError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The core's gate on tokio, with a book of names. Clones are the same gate.
#[derive(Clone)]
pub struct RequestGate {
    gate: Gate<TokioHost>,
    registry: Arc<RwLock<Registry>>,
}

#[derive(Default)]
struct Registry {
    resources: HashMap<ResourceKey, ResourceId>,
    /// Those that have a group to themselves: as bounded as the groups.
    tenants: HashMap<Arc<str>, GroupId>,
    /// What models get that nobody registered, and how many more there may be.
    unregistered: Option<(Limits, usize)>,
}

impl RequestGate {
    /// A gate on the runtime that the caller runs in, with default settings and nothing registered.
    pub fn new() -> Result<Self, GateError> {
        let health = HealthConfig { seed: random_seed(), ..HealthConfig::default() };
        Self::with_config(RequestConfig { health: Some(health), ..RequestConfig::default() })
    }

    /// The same with these settings. A `seed` of the process's own keeps many of them from coming back together after an outage.
    pub fn with_config(config: RequestConfig) -> Result<Self, GateError> {
        let host = TokioHost::current()?;
        Ok(Self::from_gate(Gate::new(host, RequestAdmission::new(config)?)))
    }

    /// A book of names for a gate that is there already, with nothing in it.
    #[must_use]
    pub fn from_gate(gate: Gate<TokioHost>) -> Self {
        Self { gate, registry: Arc::default() }
    }

    /// Registers what `key` names, or changes its limits: the limit then starts afresh.
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
        let resource = self.gate.with(|machine, now| {
            limits.aimd.validate()?;
            let cap = limits.max_parallel.get();
            let model = machine.register(now, &key.provider, &key.model, "default", cap)?;
            let resource = machine.resource(model, key.domain.clone())?;
            machine.configure(now, resource, limits.aimd.clone())?;
            if !limits.algorithm.is_aimd() {
                machine.choose_algorithm(now, resource, limits.algorithm)?;
            }
            machine.set_budgets(now, resource, &limits.budgets)?;
            Ok(resource)
        })?;
        registry.resources.insert(key.clone(), resource);
        Ok(resource)
    }

    /// Gives models that nobody registered these limits when they are first called for, `max_resources` of them; later ones are
    /// refused. Without this call, every such model is.
    pub fn admit_unregistered(&self, limits: Limits, max_resources: usize) {
        self.registry.write().unregistered = Some((limits, max_resources));
    }

    /// Gives a tenant this share of whatever is contended, beside the others. `weight` lies in 2^-20..=2^20.
    pub fn register_tenant(&self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        let mut registry = self.registry.write();
        let group = self.gate.with(|machine, _| machine.group(name, weight))?;
        registry.tenants.insert(name.into(), group);
        Ok(group)
    }

    /// The resource that `key` names; `None` if it was neither registered nor called for.
    #[must_use]
    pub fn resource(&self, key: &ResourceKey) -> Option<ResourceId> {
        self.registry.read().resources.get(key).copied()
    }

    /// The core's form of `call`, with every name looked up.
    pub fn request(&self, call: &Call) -> Result<Request, Denial> {
        let (resource, group) = self.resolve(call)?;
        let timeout = call.timeout.map(Into::into);
        Ok(Request { group, timeout, estimate: call.estimate, ..Request::new(resource) })
    }

    fn resolve(&self, call: &Call) -> Result<(ResourceId, Option<GroupId>), Denial> {
        {
            let registry = self.registry.read();
            let group = call.tenant.as_ref().map(|tenant| registry.tenants.get(tenant).copied());
            if let (Some(resource), None | Some(Some(_))) = (registry.resources.get(&call.key), group) {
                return Ok((*resource, group.flatten()));
            }
        }
        let mut registry = self.registry.write();
        let resource = match registry.resources.get(&call.key) {
            Some(known) => *known,
            None => self.register_on_first_use(&mut registry, &call.key)?,
        };
        let group = call.tenant.as_ref().map(|tenant| self.unregistered_group(&mut registry, tenant)).transpose()?;
        Ok((resource, group))
    }

    fn register_on_first_use(&self, registry: &mut Registry, key: &ResourceKey) -> Result<ResourceId, Denial> {
        let refused = Denial { reason: DenialReason::Unregistered, changes_at: None };
        let Some((limits, left)) = &mut registry.unregistered else { return Err(refused) };
        *left = left.checked_sub(1).ok_or(refused)?;
        let limits = limits.clone();
        self.register_locked(registry, key, &limits).map_err(|_| refused)
    }

    /// The group of a tenant that nobody registered.
    fn unregistered_group(&self, registry: &mut Registry, tenant: &Arc<str>) -> Result<GroupId, Denial> {
        if let Some(known) = registry.tenants.get(tenant) {
            return Ok(*known);
        }
        let found = self.gate.with(|machine, _| {
            let group = machine.group_of_tenant(tenant)?;
            Ok::<_, ConfigError>((group, machine.is_shared_group(group)))
        });
        let (group, is_shared) = found.map_err(|_| Denial { reason: DenialReason::Unregistered, changes_at: None })?;
        if !is_shared {
            registry.tenants.insert(Arc::clone(tenant), group);
        }
        Ok(group)
    }

    /// A slot for `call`, as soon as it is its turn. Dropping the future at any moment leaks nothing.
    pub async fn acquire(&self, call: &Call) -> Result<CallPermit, Denial> {
        let request = self.request(call)?;
        self.gate.acquire_owned(request).await
    }

    /// A slot at once or not at all. Never overtakes a waiter of the same provider and model.
    pub fn try_acquire(&self, call: &Call) -> Result<CallPermit, Denial> {
        let request = self.request(call)?;
        self.gate.try_acquire_owned(request)
    }

    /// Every resource that was registered or called for, by name.
    #[must_use]
    pub fn resources(&self) -> Vec<(ResourceKey, ResourceId)> {
        let mut known: Vec<_> = self.registry.read().resources.iter().map(|(key, id)| (key.clone(), *id)).collect();
        known.sort_unstable();
        known
    }

    /// Where `key` stands; `None` if it was neither registered nor called for.
    #[must_use]
    pub fn snapshot(&self, key: &ResourceKey) -> Option<ResourceSnapshot> {
        self.gate.snapshot(self.resource(key)?)
    }

    /// Why `key` has slots that are not used; `None` if it has none, or was never mentioned.
    #[must_use]
    pub fn why_idle(&self, key: &ResourceKey) -> Option<CallWait> {
        let resource = self.resource(key)?;
        self.gate.with(|machine, now| machine.why_idle_now(now, resource))
    }

    /// The core's gate, for everything else.
    #[must_use]
    pub fn core(&self) -> &Gate<TokioHost> {
        &self.gate
    }
}

impl fmt::Debug for RequestGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestGate").finish_non_exhaustive()
    }
}

/// The right to make one call through a [`RequestGate`]: the core's permit, on tokio.
pub type CallPermit = OwnedPermit<TokioHost>;

#[cfg(test)]
mod tests;
