//! What a caller asks a gate for: a call, by the names of its model and its tenant.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::budget::Usage;
use tidegate_core::request::Domain;

/// The name of a resource: a model of a provider, and the kind of call. Calls with equal keys share one
/// adaptive limit.
///
/// ```
/// use tidegate_native::gate::ResourceKey;
///
/// let key = ResourceKey::chat("acme", "writer-large");
/// assert_eq!(key.to_string(), "acme/writer-large/chat");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The name of the provider. API keys and quotas are tracked by it: use one name for each account.
    pub provider: Arc<str>,
    /// The model id.
    pub model: Arc<str>,
    /// The kind of call.
    pub domain: Domain,
}

impl ResourceKey {
    /// Creates a key from its parts.
    #[must_use]
    pub fn new(provider: &str, model: &str, domain: Domain) -> Self {
        Self { provider: provider.into(), model: model.into(), domain }
    }

    /// Creates a key for chat calls.
    #[must_use]
    pub fn chat(provider: &str, model: &str) -> Self {
        Self::new(provider, model, Domain::Chat)
    }

    /// Creates a key for embedding calls.
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

/// A call to admit: which model it calls, for which tenant, and how long it may wait.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::budget::Usage;
/// use tidegate_native::gate::{Call, ResourceKey};
///
/// let call = Call::new(ResourceKey::chat("acme", "writer-large"))
///     .for_tenant("interactive")
///     .within(Duration::from_secs(20))
///     .estimated(Usage::tokens(1_200, 300));
/// # assert_eq!(call.tenant.as_deref(), Some("interactive"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The model to call.
    pub key: ResourceKey,
    /// The tenant that the call is made for. `None` means the resource's own fairness group, of weight 1.
    pub tenant: Option<Arc<str>>,
    /// How long the call may wait for its permit. Zero means that it never waits; `None` means the default of
    /// the gate, [`RequestConfig::default_timeout`](tidegate_core::request::RequestConfig::default_timeout).
    pub timeout: Option<Duration>,
    /// The expected usage, which is reserved in the budgets of the model. Zero tokens by default.
    pub estimate: Usage,
}

impl Call {
    /// Creates a call without a tenant, with the default timeout of the gate and without an estimate.
    #[must_use]
    pub fn new(key: ResourceKey) -> Self {
        Self { key, tenant: None, timeout: None, estimate: Usage::default() }
    }

    /// Returns the call with its tenant set to `tenant`.
    #[must_use]
    pub fn for_tenant(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// Returns the call with its timeout set to `timeout`.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Returns the call with its expected usage set to `estimate`.
    #[must_use]
    pub fn estimated(self, estimate: Usage) -> Self {
        Self { estimate, ..self }
    }
}
