//! The metrics of `/metrics`, in the text format of Prometheus.
//!
//! Label values are bounded: providers and models by the configuration, tenants to the configured ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::budget::Usage;
use tidegate_core::request::{Outcome, ResourceSnapshot};
use tidegate_core::share::MemberState;

use super::tenant::{OVERFLOW, Tenant};
use crate::app::openmetrics::{self, ShareGauges};
use crate::gate::ResourceKey;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    provider: Arc<str>,
    model: Arc<str>,
    domain: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    provider: Arc<str>,
    model: Arc<str>,
    domain: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    provider: Arc<str>,
    model: Arc<str>,
    domain: String,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    tenant: Arc<str>,
    code: u16,
}

struct Gauges {
    limit: Family<ResourceLabels, Gauge>,
    in_flight: Family<ResourceLabels, Gauge>,
    waiting: Family<ResourceLabels, Gauge>,
    shares: ShareGauges<ResourceLabels>,
}

/// All metrics of a proxy.
pub(super) struct Metrics {
    registry: Registry,
    answers: Family<AnswerLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    waits: Family<ResourceLabels, Histogram, fn() -> Histogram>,
    gauges: Gauges,
    overflow: Arc<str>,
}

/// The metrics of one resource, looked up once.
#[derive(Clone, Debug)]
pub(super) struct ResourceMeters {
    /// Indexed in the order of [`Outcome::ALL`].
    attempts: [Counter; Outcome::ALL.len()],
    tokens: [Counter; 2],
    waits: Histogram,
}

impl ResourceMeters {
    /// Records the outcome of an attempt.
    pub(super) fn record_attempt(&self, outcome: Outcome) {
        self.attempts[outcome as usize].inc();
    }

    /// Records the token usage of a call.
    pub(super) fn record_usage(&self, usage: Usage) {
        self.tokens[0].inc_by(u64::from(usage.input_tokens));
        self.tokens[1].inc_by(u64::from(usage.output_tokens));
    }

    /// Records how long a call waited until it was admitted.
    pub(super) fn record_wait(&self, span: Duration) {
        self.waits.observe(span.as_secs_f64());
    }
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("tidegate");
        let answers = Family::<AnswerLabels, Counter>::default();
        registry.register("answers", "Responses to clients, by tenant and status code", answers.clone());
        let attempts = Family::<AttemptLabels, Counter>::default();
        registry.register("attempts", "Calls to a provider, by outcome", attempts.clone());
        let tokens = Family::<TokenLabels, Counter>::default();
        registry.register("tokens", "Tokens used, as reported in responses", tokens.clone());
        let waits = Family::new_with_constructor(wait_buckets as fn() -> Histogram);
        registry.register_with_unit("wait", "How long calls waited for admission", Unit::Seconds, waits.clone());
        let mut gauge = |name: &str, about: &str| {
            let family = Family::<ResourceLabels, Gauge>::default();
            registry.register(name, about, family.clone());
            family
        };
        let limit = gauge("limit", "The adaptive limit of calls in flight");
        let in_flight = gauge("in_flight", "Calls in flight");
        let waiting = gauge("waiting", "Calls that wait for admission");
        let gauges = Gauges { limit, in_flight, waiting, shares: ShareGauges::register(&mut registry) };
        Self { registry, answers, attempts, tokens, waits, gauges, overflow: OVERFLOW.into() }
    }

    /// Returns the metrics of one resource.
    pub(super) fn meters(&self, key: &ResourceKey) -> ResourceMeters {
        let labels = labels(key);
        let ResourceLabels { provider, model, domain } = labels.clone();
        let attempt = |outcome| AttemptLabels {
            provider: Arc::clone(&provider),
            model: Arc::clone(&model),
            domain: domain.clone(),
            outcome,
        };
        let direction = |direction| TokenLabels {
            provider: Arc::clone(&provider),
            model: Arc::clone(&model),
            domain: domain.clone(),
            direction,
        };
        ResourceMeters {
            attempts: Outcome::ALL.map(|outcome| self.attempts.get_or_create_owned(&attempt(outcome.name()))),
            tokens: ["input", "output"].map(|name| self.tokens.get_or_create_owned(&direction(name))),
            waits: self.waits.get_or_create_owned(&labels),
        }
    }

    /// Records a response to a client. `tenant` is `None` if the tenant of the request is unknown.
    pub(super) fn record_response(&self, tenant: Option<&Tenant>, code: u16) {
        let tenant = tenant.filter(|tenant| tenant.is_label).map_or(&self.overflow, |tenant| &tenant.name);
        self.answers.get_or_create(&AnswerLabels { tenant: Arc::clone(tenant), code }).inc();
    }

    /// Encodes all metrics, after setting the gauges of `resources` and of the shared limits among them to
    /// their current values.
    pub(super) fn text(
        &self,
        resources: &[(ResourceKey, ResourceSnapshot)],
        shares: &[(ResourceKey, MemberState)],
    ) -> Result<String, fmt::Error> {
        for (key, now) in shares {
            self.gauges.shares.set(&labels(key), now);
        }
        for (key, now) in resources {
            let labels = labels(key);
            self.gauges.limit.get_or_create(&labels).set(i64::from(now.current_limit));
            self.gauges.in_flight.get_or_create(&labels).set(i64::from(now.in_flight));
            self.gauges.waiting.get_or_create(&labels).set(i64::from(now.waiters));
        }
        openmetrics::page(&self.registry)
    }
}

fn labels(key: &ResourceKey) -> ResourceLabels {
    ResourceLabels {
        provider: Arc::clone(&key.provider),
        model: Arc::clone(&key.model),
        domain: key.domain.as_str().to_string(),
    }
}

/// Creates buckets from 1 ms to 262 s.
fn wait_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}
