//! Whose requests these are, and how urgent.
//!
//! A tenant's requests wait in a fairness group of its own for each level of urgency, whose weight is the tenant's times
//! the level's factor. So nobody starves, the least urgent neither; and a tenant that uses several levels at once has
//! the sum of their shares.
//!
//! A key is never kept, only its SHA-256, and a tenant that is known by nothing but its key is called by the first digits
//! of that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;
use tidegate_core::request::{GroupId, MAX_UNREGISTERED_TENANTS};

use super::answer::Refusal;
use super::config::{PriorityConfig, TenantBy, TenantsConfig};
use crate::gate::RequestGate;

/// The tenant of everybody, where tenants are not told apart.
const EVERYBODY: &str = "(everybody)";

/// The tenant of requests that do not say whose they are.
const NOBODY: &str = "(nobody)";

/// The tenant of all that are not known, beyond the number that is told apart.
pub(super) const OVERFLOW: &str = "(overflow)";

/// The longest name that is one, in bytes.
const LONGEST_NAME: usize = 128;

/// How urgent a request is.
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

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    /// Whether the configuration names it, or stands for many: its name may be a label then.
    pub(super) is_label: bool,
    weight: f64,
    groups: [Group; 3],
}

/// The requests of one tenant and level.
#[derive(Debug, Default)]
pub(super) struct Group {
    id: OnceLock<Option<GroupId>>,
    pub(super) waiting: AtomicU32,
    pub(super) in_flight: AtomicU32,
    /// Calls that were let out.
    pub(super) admitted: AtomicU64,
}

impl Tenant {
    fn new(name: &str, weight: f64, is_label: bool) -> Arc<Self> {
        Arc::new(Self { name: name.into(), is_label, weight, groups: Default::default() })
    }

    pub(super) fn group(&self, level: Level) -> &Group {
        &self.groups[level as usize]
    }
}

/// All tenants that were met.
#[derive(Debug)]
pub(super) struct Tenants {
    gate: RequestGate,
    config: TenantsConfig,
    priority: PriorityConfig,
    by_key: BTreeMap<[u8; 32], Arc<Tenant>>,
    overflow: Arc<Tenant>,
    met: RwLock<BTreeMap<Arc<str>, Arc<Tenant>>>,
}

impl Tenants {
    pub(super) fn new(gate: RequestGate, config: TenantsConfig, priority: PriorityConfig) -> Self {
        let overflow = Tenant::new(OVERFLOW, config.default_weight, true);
        let mut met = BTreeMap::new();
        let mut by_key = BTreeMap::new();
        for known in &config.known {
            let tenant = Tenant::new(&known.name, known.weight, true);
            if let Some(key) = known.key {
                by_key.insert(key, Arc::clone(&tenant));
            }
            met.insert(Arc::clone(&tenant.name), tenant);
        }
        Self { gate, config, priority, by_key, overflow, met: RwLock::new(met) }
    }

    /// Whose a request with these headers is.
    pub(super) fn of(&self, headers: &HeaderMap) -> Result<Arc<Tenant>, Refusal> {
        match &self.config.by {
            TenantBy::Nothing => self.named(EVERYBODY),
            TenantBy::Header(name) => {
                let name = headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
                self.named(name.filter(|name| !name.is_empty()).unwrap_or(NOBODY))
            }
            TenantBy::ApiKey => {
                let Some(key) = bearer(headers) else { return self.named(NOBODY) };
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

    fn named(&self, name: &str) -> Result<Arc<Tenant>, Refusal> {
        if let Some(met) = self.met.read().get(name) {
            return Ok(Arc::clone(met));
        }
        if self.config.require_known {
            return Err(Refusal::UnknownTenant);
        }
        let mut met = self.met.write();
        let strangers = met.len().saturating_sub(self.config.known.len());
        if name.len() > LONGEST_NAME || strangers >= MAX_UNREGISTERED_TENANTS {
            return Ok(Arc::clone(&self.overflow));
        }
        // What is in brackets are names of this module, of which there are few.
        let tenant = Tenant::new(name, self.config.default_weight, matches!(name, EVERYBODY | NOBODY));
        Ok(Arc::clone(met.entry(Arc::clone(&tenant.name)).or_insert(tenant)))
    }

    /// How urgent a request with these headers says it is; normal if it says nothing that is known.
    pub(super) fn level(&self, headers: &HeaderMap) -> Level {
        let said = headers.get(&self.priority.header).and_then(|value| value.to_str().ok()).map(str::trim);
        let named = |said: &str| Level::ALL.into_iter().find(|level| said.eq_ignore_ascii_case(level.as_str()));
        said.and_then(named).unwrap_or_default()
    }

    /// The gate's group of a tenant and level, made on first mention.
    pub(super) fn group(&self, tenant: &Tenant, level: Level) -> Option<GroupId> {
        *tenant.group(level).id.get_or_init(|| {
            // No header can hold a line break, so no two tenants share a name.
            let name = format!("{}\n{}", tenant.name, level.as_str());
            let weight = self.weight(tenant, level);
            self.gate.core().with(|machine, _| machine.group(&name, weight)).ok()
        })
    }

    pub(super) fn weight(&self, tenant: &Tenant, level: Level) -> f64 {
        tenant.weight * self.priority.factors[level as usize]
    }

    /// Headers that speak to the proxy and to nobody else.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &http::HeaderName> {
        let tenant = match &self.config.by {
            TenantBy::Header(name) => Some(name),
            TenantBy::Nothing | TenantBy::ApiKey => None,
        };
        tenant.into_iter().chain([&self.priority.header])
    }

    /// Everybody who was met, by name.
    pub(super) fn met(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.met.read().values().cloned().collect();
        all.push(Arc::clone(&self.overflow));
        all
    }
}

/// The key of `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

/// What is kept of a key.
pub(super) fn sha256(key: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, key);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
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
    async fn a_known_key_has_a_name_and_an_unknown_one_is_called_by_its_digest() {
        let people = KnownTenant { name: "people".to_string(), weight: 4.0, key: Some(sha256(b"sk-people")) };
        let config = TenantsConfig { by: TenantBy::ApiKey, known: vec![people], ..TenantsConfig::default() };
        let tenants = tenants(config);
        let of = |key: &str| tenants.of(&headers("authorization", key)).unwrap().name.to_string();
        assert_eq!(of("Bearer sk-people"), "people");
        assert_eq!(of("bearer  sk-people "), "people");
        let stranger = of("Bearer sk-stranger");
        assert!(stranger.starts_with("key-") && stranger.len() == 12, "{stranger}");
        assert_eq!((of("Basic x"), of("Bearer ")), (NOBODY.to_string(), NOBODY.to_string()));
    }

    #[tokio::test]
    async fn strangers_are_refused_where_tenants_must_be_known_and_bounded_where_not() {
        let by = TenantBy::Header(HeaderName::from_static("x-tenant"));
        let strict = tenants(TenantsConfig { by: by.clone(), require_known: true, ..TenantsConfig::default() });
        assert!(matches!(strict.of(&headers("x-tenant", "anybody")), Err(Refusal::UnknownTenant)));
        let open = tenants(TenantsConfig { by, ..TenantsConfig::default() });
        for n in 0..MAX_UNREGISTERED_TENANTS {
            assert_eq!(*open.of(&headers("x-tenant", &format!("t{n}"))).unwrap().name, *format!("t{n}"));
        }
        assert_eq!(&*open.of(&headers("x-tenant", "one more")).unwrap().name, OVERFLOW);
        assert_eq!(&*open.of(&headers("x-tenant", "t7")).unwrap().name, "t7");
    }

    #[tokio::test]
    async fn a_level_is_a_group_of_its_own_and_normal_unless_it_is_said() {
        let tenants = tenants(TenantsConfig::default());
        let everybody = tenants.of(&HeaderMap::new()).unwrap();
        let level = |said| tenants.level(&headers("x-tidegate-priority", said));
        assert_eq!([level("HIGH"), level("low"), level("urgent")], [Level::High, Level::Low, Level::Normal]);
        let groups = Level::ALL.map(|level| tenants.group(&everybody, level).unwrap());
        assert!(groups[0] != groups[1] && groups[1] != groups[2]);
        assert_eq!(tenants.group(&everybody, Level::High), Some(groups[0]));
    }
}
