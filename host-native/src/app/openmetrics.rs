//! Pages of metrics in the text format of Prometheus.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::share::MemberState;

/// The content type of a page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a page says, with status 500, if it cannot be encoded.
pub(super) const CANNOT_ENCODE: &str = "the metrics cannot be encoded\n";

/// Returns the page with all metrics of `registry`.
pub(super) fn page(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// The gauges of limits that several processes share. `L` names a limit.
pub(super) struct ShareGauges<L> {
    members: Family<L, Gauge>,
    slots: Family<L, Gauge>,
    limit: Family<L, Gauge>,
    is_leader: Family<L, Gauge>,
    degraded: Family<L, Gauge>,
    age: Family<L, Gauge<f64, AtomicU64>>,
}

impl<L: Clone + fmt::Debug + Hash + Eq + EncodeLabelSet + Send + Sync + 'static> ShareGauges<L> {
    /// Creates the gauges as part of `registry`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, about: &str| {
            let family = Family::<L, Gauge>::default();
            registry.register(name, about, family.clone());
            family
        };
        let members = gauge("share_members", "Processes that share the limit");
        let slots = gauge("share_slots", "Calls that this process may have in flight now");
        let limit = gauge("share_limit", "The limit of all processes together");
        let is_leader = gauge("share_is_leader", "Whether this process leads: 0 or 1");
        let degraded = gauge("share_degraded", "Whether this process has no valid share of the limit: 0 or 1");
        let age = Family::<L, Gauge<f64, AtomicU64>>::default();
        let about = "The time since the last decision about the shared limit";
        registry.register_with_unit("share_age", about, Unit::Seconds, age.clone());
        Self { members, slots, limit, is_leader, degraded, age }
    }

    /// Sets the gauges of one limit.
    pub(super) fn set(&self, labels: &L, state: &MemberState) {
        let set = |family: &Family<L, Gauge>, value: u32| {
            family.get_or_create(labels).set(i64::from(value));
        };
        set(&self.members, state.members);
        set(&self.slots, state.room);
        set(&self.limit, state.limit);
        set(&self.is_leader, u32::from(state.is_leader));
        set(&self.degraded, u32::from(!state.has_lease));
        if let Some(age) = state.age {
            self.age.get_or_create(labels).set(age.as_secs_f64());
        }
    }
}
