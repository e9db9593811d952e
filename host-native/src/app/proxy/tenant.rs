//! Tenants and priority levels of requests.
//!
//! The requests of a tenant wait in one fairness group for each priority level. The weight of a group is the
//! weight of the tenant times the factor of the level. So no level starves. A tenant that uses several levels
//! at once receives the sum of their shares.
//!
//! Only the SHA-256 of a key is stored. A tenant that is known only by its key is named by the first digits
//! of that digest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;
use tidegate_core::request::{GroupId, MAX_UNREGISTERED_TENANTS};
use wildmatch::WildMatch;

use super::config::{PriorityConfig, TenantBy, TenantsConfig, sha256};
use super::error::ProxyError;
use crate::gate::RequestGate;

/// The tenant of all requests if tenants are not distinguished.
const SINGLE_TENANT: &str = "(all)";

/// The tenant of requests that name no tenant.
const ANONYMOUS: &str = "(anonymous)";

/// The shared tenant of unregistered tenants beyond [`MAX_UNREGISTERED_TENANTS`].
pub(super) const OVERFLOW: &str = "(overflow)";

/// The maximum length of a tenant name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The priority level of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Level {
    High,
    #[default]
    Normal,
    Low,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// A tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    /// Whether the name may be a metric label: the tenant is configured, or is one of the tenants of this
    /// module.
    pub(super) is_label: bool,
    weight: f64,
    /// Patterns of the models that it may call.
    models: Vec<WildMatch>,
    groups: [Group; 3],
}

/// The requests of one tenant at one level.
#[derive(Debug, Default)]
pub(super) struct Group {
    id: OnceLock<Option<GroupId>>,
    pub(super) waiting: AtomicU32,
    pub(super) in_flight: AtomicU32,
    /// The number of admitted calls.
    pub(super) admitted: AtomicU64,
}

impl Tenant {
    fn new(name: &str, weight: f64, is_label: bool) -> Arc<Self> {
        Self::with_models(name, weight, is_label, vec![WildMatch::new("*")])
    }

    fn with_models(name: &str, weight: f64, is_label: bool, models: Vec<WildMatch>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), is_label, weight, models, groups: Default::default() })
    }

    /// Returns whether it may call `model`, or make calls without a model if that is empty.
    pub(super) fn may_call(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| pattern.matches(model))
    }

    pub(super) fn group(&self, level: Level) -> &Group {
        &self.groups[level as usize]
    }
}

/// All configured tenants and those seen in requests.
#[derive(Debug)]
pub(super) struct Tenants {
    gate: RequestGate,
    config: TenantsConfig,
    priority: PriorityConfig,
    by_key: BTreeMap<[u8; 32], Arc<Tenant>>,
    overflow: Arc<Tenant>,
    seen: RwLock<BTreeMap<Arc<str>, Arc<Tenant>>>,
}

impl Tenants {
    pub(super) fn new(gate: RequestGate, config: TenantsConfig, priority: PriorityConfig) -> Self {
        let overflow = Tenant::new(OVERFLOW, config.default_weight, true);
        let mut seen = BTreeMap::new();
        let mut by_key = BTreeMap::new();
        for known in &config.known {
            let tenant = Tenant::with_models(&known.name, known.weight, true, known.models.clone());
            if let Some(key) = known.key {
                by_key.insert(key, Arc::clone(&tenant));
            }
            seen.insert(Arc::clone(&tenant.name), tenant);
        }
        Self { gate, config, priority, by_key, overflow, seen: RwLock::new(seen) }
    }

    /// Returns the tenant of a request with these headers.
    pub(super) fn of(&self, headers: &HeaderMap) -> Result<Arc<Tenant>, ProxyError> {
        match &self.config.by {
            TenantBy::Nothing => self.named(SINGLE_TENANT),
            TenantBy::Header(name) => {
                let name = headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
                self.named(name.filter(|name| !name.is_empty()).unwrap_or(ANONYMOUS))
            }
            TenantBy::ApiKey => {
                let Some(key) = bearer(headers) else { return self.named(ANONYMOUS) };
                let digest = sha256(key);
                match self.by_key.get(&digest) {
                    Some(known) => Ok(Arc::clone(known)),
                    None => {
                        self.named(&format!("key-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]))
                    }
                }
            }
        }
    }

    fn named(&self, name: &str) -> Result<Arc<Tenant>, ProxyError> {
        let is_overflow = |seen: &BTreeMap<_, _>| {
            let unregistered = seen.len().saturating_sub(self.config.known.len());
            name.len() > MAX_NAME_BYTES || unregistered >= MAX_UNREGISTERED_TENANTS
        };
        {
            let seen = self.seen.read();
            if let Some(seen) = seen.get(name) {
                return Ok(Arc::clone(seen));
            }
            if self.config.require_known {
                return Err(ProxyError::UnknownTenant);
            }
            if is_overflow(&seen) {
                return Ok(Arc::clone(&self.overflow));
            }
        }
        let mut seen = self.seen.write();
        // Other requests may have added tenants meanwhile, also this one.
        if !seen.contains_key(name) && is_overflow(&seen) {
            return Ok(Arc::clone(&self.overflow));
        }
        // The names in brackets are the few tenants of this module.
        let tenant = Tenant::new(name, self.config.default_weight, matches!(name, SINGLE_TENANT | ANONYMOUS));
        Ok(Arc::clone(seen.entry(Arc::clone(&tenant.name)).or_insert(tenant)))
    }

    /// Returns the level of a request with these headers: normal if the header is missing or unknown.
    pub(super) fn level(&self, headers: &HeaderMap) -> Level {
        let value = headers.get(&self.priority.header).and_then(|value| value.to_str().ok()).map(str::trim);
        let named = |value: &str| Level::ALL.into_iter().find(|level| value.eq_ignore_ascii_case(level.as_str()));
        value.and_then(named).unwrap_or_default()
    }

    /// Returns the fairness group of a tenant and level, and creates it on first use.
    pub(super) fn group(&self, tenant: &Tenant, level: Level) -> Option<GroupId> {
        *tenant.group(level).id.get_or_init(|| {
            // A header value contains no line break, so no two groups share a name.
            let name = format!("{}\n{}", tenant.name, level.as_str());
            let weight = self.weight(tenant, level);
            self.gate.core().with(|machine, _| machine.group(&name, weight)).ok()
        })
    }

    pub(super) fn weight(&self, tenant: &Tenant, level: Level) -> f64 {
        tenant.weight * self.priority.factors[level as usize]
    }

    /// Returns the headers that are addressed to the proxy only.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &http::HeaderName> {
        let tenant = match &self.config.by {
            TenantBy::Header(name) => Some(name),
            TenantBy::Nothing | TenantBy::ApiKey => None,
        };
        tenant.into_iter().chain([&self.priority.header])
    }

    /// Returns all tenants, by name.
    pub(super) fn seen(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.seen.read().values().cloned().collect();
        all.push(Arc::clone(&self.overflow));
        all
    }
}

/// Returns the key of `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::proxy::config::KnownTenant;
    use http::{HeaderName, HeaderValue};

    fn tenants(config: TenantsConfig) -> Tenants {
        Tenants::new(RequestGate::new().unwrap(), config, PriorityConfig::default())
    }

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[tokio::test]
    async fn a_configured_key_maps_to_its_tenant_and_another_key_is_named_by_its_digest() {
        let people = KnownTenant {
            name: "people".to_string(),
            weight: 4.0,
            models: Vec::new(),
            key: Some(sha256(b"sk-people")),
        };
        let config = TenantsConfig { by: TenantBy::ApiKey, known: vec![people], ..TenantsConfig::default() };
        let tenants = tenants(config);
        let of = |key: &str| tenants.of(&headers("authorization", key)).unwrap().name.to_string();
        assert_eq!(of("Bearer sk-people"), "people");
        assert_eq!(of("bearer  sk-people "), "people");
        let unregistered = of("Bearer sk-unregistered");
        assert!(unregistered.starts_with("key-") && unregistered.len() == 12, "{unregistered}");
        assert_eq!((of("Basic x"), of("Bearer ")), (ANONYMOUS.to_string(), ANONYMOUS.to_string()));
    }

    #[tokio::test]
    async fn unregistered_tenants_are_rejected_if_required_and_bounded_otherwise() {
        let by = TenantBy::Header(HeaderName::from_static("x-tenant"));
        let strict = tenants(TenantsConfig { by: by.clone(), require_known: true, ..TenantsConfig::default() });
        assert!(matches!(strict.of(&headers("x-tenant", "unregistered")), Err(ProxyError::UnknownTenant)));
        let open = tenants(TenantsConfig { by, ..TenantsConfig::default() });
        for n in 0..MAX_UNREGISTERED_TENANTS {
            assert_eq!(*open.of(&headers("x-tenant", &format!("t{n}"))).unwrap().name, *format!("t{n}"));
        }
        assert_eq!(&*open.of(&headers("x-tenant", "one more")).unwrap().name, OVERFLOW);
        assert_eq!(&*open.of(&headers("x-tenant", "t7")).unwrap().name, "t7");
        // A request that needed the tenants for itself would wait for this reader.
        let reader = open.seen.read();
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let open = &open;
            scope.spawn(move || sender.send(open.of(&headers("x-tenant", "another")).unwrap().name.to_string()));
            let name = receiver.recv_timeout(std::time::Duration::from_mins(1));
            drop(reader);
            assert_eq!(name.as_deref(), Ok(OVERFLOW));
        });
    }

    #[tokio::test]
    async fn each_level_has_its_own_group_and_the_default_level_is_normal() {
        let tenants = tenants(TenantsConfig::default());
        let tenant = tenants.of(&HeaderMap::new()).unwrap();
        let level = |value| tenants.level(&headers("x-tidegate-priority", value));
        assert_eq!([level("HIGH"), level("low"), level("urgent")], [Level::High, Level::Low, Level::Normal]);
        let groups = Level::ALL.map(|level| tenants.group(&tenant, level).unwrap());
        assert!(groups[0] != groups[1] && groups[1] != groups[2]);
        assert_eq!(tenants.group(&tenant, Level::High), Some(groups[0]));
    }
}
