//! Providers, the models that they serve, and the limits of each model.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::RwLock;
use reqwest::{Client, Url};
use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
use tidegate_core::request::{Domain, ResourceId};

use percent_encoding::percent_decode_str;

use super::config::ProviderConfig;
use super::headers::Credentials;
use super::metrics::{Metrics, ResourceMeters};
use crate::app::provider::address::stay_on_loopback;
use crate::app::provider::key::is_name_of_key;
use crate::gate::{Limits, RequestGate, ResourceKey};
use crate::http::ResponseInfo;

/// The model name of calls without a model.
pub(super) const NO_MODEL: &str = "-";

/// The maximum length of a model id, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// The output that is charged for a chat without a bound whose usage stays unknown, in tokens: more than most
/// answers have.
const UNKNOWN_OUTPUT: u32 = 4_096;

/// The number of call kinds of a configured model that never count towards `at_most_models`.
const MAX_KINDS_PER_CONFIGURED_MODEL: usize = 16;

/// One kind of call of one model: the unit to which limits and budgets apply.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) key: ResourceKey,
    pub(super) id: ResourceId,
    /// The burst of the token budgets, by dimension.
    bursts: Bursts,
    pub(super) meters: ResourceMeters,
}

impl Resource {
    /// Returns the usage to reserve for a call that may use `asked`: at most the burst of each budget.
    /// Without this bound, a client could allow an output that no model produces, and block all others until
    /// its call ends, or for hours if the response does not report its usage.
    pub(super) fn estimate(&self, asked: Usage) -> Usage {
        let Bursts { input, output, total } = self.bursts;
        let sent = asked.input_tokens.min(input).min(total);
        Usage::tokens(sent, asked.output_tokens.min(output).min(total - sent))
    }

    /// Returns the usage to charge for a call that may have an output and does not report it. `reserved` is
    /// what it reserved.
    pub(super) fn unknown_usage(&self, reserved: Usage) -> Usage {
        match self.key.domain {
            Domain::Chat if reserved.output_tokens == 0 => {
                self.estimate(Usage::tokens(reserved.input_tokens, UNKNOWN_OUTPUT))
            }
            _ => reserved,
        }
    }
}

/// The smallest burst of the token budgets of each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bursts {
    input: u32,
    output: u32,
    total: u32,
}

impl Bursts {
    fn of(budgets: &[BudgetConfig]) -> Self {
        let least = |dimension| {
            let bursts = budgets.iter().filter(|budget| budget.dimension == dimension);
            let least = bursts.map(|budget| budget.burst.unwrap_or(budget.limit)).min();
            least.map_or(u32::MAX, |burst| u32::try_from(burst).unwrap_or(u32::MAX))
        };
        Self {
            input: least(Dimension::InputTokens),
            output: least(Dimension::OutputTokens),
            total: least(Dimension::TotalTokens),
        }
    }
}

/// A provider.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) config: ProviderConfig,
    pub(super) http: Client,
    /// The `Authorization` header that replaces the key of the client.
    pub(super) authorization: Option<HeaderValue>,
    resources: RwLock<Resources>,
}

#[derive(Debug, Default)]
struct Resources {
    /// Resources by model; each model has few kinds of call.
    known: BTreeMap<Arc<str>, Vec<Arc<Resource>>>,
    count: u32,
}

impl Upstream {
    pub(super) fn new(config: ProviderConfig) -> Result<Self, String> {
        let authorization = config.api_key.as_ref().map(crate::app::provider::ApiKey::header);
        Ok(Self { http: client(&config)?, authorization, config, resources: RwLock::default() })
    }

    /// Returns whether a `serves` pattern matches `model`.
    pub(super) fn serves(&self, model: &str) -> bool {
        self.config.serves.iter().any(|pattern| pattern.matches(model))
    }

    /// Returns the credentials for forwarded requests.
    pub(super) fn credentials(&self) -> Credentials<'_> {
        match &self.authorization {
            Some(key) => Credentials::Own(key),
            None if self.config.forwards_client_key => Credentials::Forwarded,
            None => Credentials::None,
        }
    }

    /// Returns the credentials for requests of the proxy itself, which never carry the key of a client.
    pub(super) fn own_credentials(&self) -> Credentials<'_> {
        self.authorization.as_ref().map_or(Credentials::None, Credentials::Own)
    }

    /// Adjusts an outcome to the owner of the key: with the key of a client, a rejected key or an empty
    /// account concerns that client only.
    pub(super) fn with_client_key_outcome(&self, mut head: ResponseInfo) -> ResponseInfo {
        if self.config.forwards_client_key {
            head.completion.outcome = head.completion.outcome.of_own_key();
        }
        head
    }

    /// Returns the model id to send for the model id of the client.
    pub(super) fn model_to_send<'m>(&'m self, model: &'m str) -> &'m str {
        let renamed = self.config.rename.iter().find(|(requested, _)| requested == model);
        renamed.map_or(model, |(_, sent)| sent)
    }

    /// Returns the URL for the client path `/v1/PATH?QUERY`, or `None` if it is not below the base URL.
    pub(super) fn address(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let mut url = self.config.base_url.clone();
        let base = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&format!("{base}{path}"));
        match query {
            Some(query) if !self.config.forwards_client_key => url.set_query(strip_keys(query).as_deref()),
            query => url.set_query(query),
        }
        url.path().starts_with(&base).then_some(url)
    }

    /// Returns the resource of a model and a kind of call, and registers it on first use. Returns `None` if
    /// the limit of models is reached.
    pub(super) fn resource(
        &self,
        gate: &RequestGate,
        metrics: &Metrics,
        model: &str,
        domain: &Domain,
    ) -> Option<Arc<Resource>> {
        let of = |known: &Resources| known.known.get(model)?.iter().find(|one| one.key.domain == *domain).cloned();
        if let Some(known) = of(&self.resources.read()) {
            return Some(known);
        }
        if self.differs_in_case(model) {
            return None;
        }
        let mut resources = self.resources.write();
        if let Some(known) = of(&resources) {
            return Some(known);
        }
        // Configured models and calls without a model do not count towards the limit.
        let kinds = resources.known.get(model).map_or(0, Vec::len);
        let is_configured =
            (self.configured_limits(model).is_some() || model == NO_MODEL) && kinds < MAX_KINDS_PER_CONFIGURED_MODEL;
        if !is_configured && (resources.count >= self.config.at_most_models || model.len() > MAX_MODEL_BYTES) {
            return None;
        }
        let key = ResourceKey::new(&self.config.name, model, domain.clone());
        let limits = self.configured_limits(model).unwrap_or(&self.config.limits);
        let id = gate.register(&key, limits).ok()?;
        let bursts = Bursts::of(&limits.budgets);
        let meters = metrics.meters(&key);
        let resource = Arc::new(Resource { key, id, bursts, meters });
        resources.count += u32::from(!is_configured);
        resources.known.entry(Arc::clone(&resource.key.model)).or_default().push(Arc::clone(&resource));
        Some(resource)
    }

    /// Returns the limits from `[[providers.models]]`.
    fn configured_limits(&self, model: &str) -> Option<&Limits> {
        self.config.models.iter().find(|own| own.name == model).map(|own| &own.limits)
    }

    /// Returns whether a name differs from a configured one only in case. A provider might accept both
    /// spellings, and the call would bypass the limits of the configured one.
    fn differs_in_case(&self, model: &str) -> bool {
        let mut names = self.config.models.iter().map(|own| &own.name);
        self.configured_limits(model).is_none() && names.any(|name| name.eq_ignore_ascii_case(model))
    }

    /// Returns all registered resources, by model.
    pub(super) fn resources(&self) -> Vec<Arc<Resource>> {
        self.resources.read().known.values().flatten().cloned().collect()
    }
}

fn client(config: &ProviderConfig) -> Result<Client, String> {
    // An error means that the process already has a TLS provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(config.connect_timeout)
        .read_timeout(config.timeout)
        .tcp_nodelay(true)
        // Redirects are forwarded to the client; following one could send the key elsewhere.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    if let Some(authorities) = &config.authorities {
        builder = builder.tls_certs_only(authorities.iter().cloned());
    }
    if config.base_url.scheme() == "http" {
        // There is no certificate to verify, so a machine without root certificates works, too.
        builder = builder.tls_certs_only([]);
    }
    stay_on_loopback(builder, &config.base_url).build().map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        cause.to_string()
    })
}

/// Returns an HTTP client for tests.
#[cfg(test)]
pub(super) fn client_for_tests() -> Client {
    Upstream::new(ProviderConfig::at("p", "http://127.0.0.1:1/v1".parse().unwrap())).unwrap().http
}

/// Returns the keys in the query of a URL.
pub(super) fn keys_in_query(url: &Url) -> impl Iterator<Item = String> {
    url.query_pairs().filter(|(name, _)| is_name_of_key(name)).map(|(_, key)| key.into_owned())
}

/// Removes credentials from a query. Returns `None` if nothing is left.
fn strip_keys(query: &str) -> Option<String> {
    let is_name = |part: &str| {
        is_name_of_key(&percent_decode_str(part.split('=').next().unwrap_or_default()).decode_utf8_lossy())
    };
    // Some servers separate parameters by semicolons.
    let is_key = |pair: &&str| pair.split(';').any(is_name);
    let rest: Vec<_> = query.split('&').filter(|pair| !is_key(pair)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

#[cfg(test)]
mod tests {
    use wildmatch::WildMatch;

    use super::*;

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        let is_match = |pattern: &str, model: &str| WildMatch::new(pattern).matches(model);
        for (pattern, model) in
            [("*", ""), ("gpt-*", "gpt-4o"), ("*/*-b", "a/b-b-b"), ("o?-mini", "o3-mini"), ("?", "é"), ("a", "a")]
        {
            assert!(is_match(pattern, model), "{pattern} {model}");
        }
        for (pattern, model) in [("", "a"), ("gpt-*", "gpt"), ("o?", "o"), ("*-b", "a-bc"), ("a", "ab"), ("a", "A")] {
            assert!(!is_match(pattern, model), "{pattern} {model}");
        }
    }

    #[test]
    fn the_provider_url_keeps_path_and_query() {
        let config = ProviderConfig::at("p", Url::parse("http://host/api/v1/").unwrap());
        let upstream = Upstream::new(config).unwrap();
        let url = upstream.address("files/a%2Fb", Some("limit=2")).unwrap();
        assert_eq!(url.as_str(), "http://host/api/v1/files/a%2Fb?limit=2");
    }

    #[test]
    fn keys_in_the_query_are_removed_unless_client_keys_are_forwarded() {
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        let query = |config: &ProviderConfig, query| {
            let upstream = Upstream::new(config.clone()).unwrap();
            upstream.address("a", Some(query)).unwrap().query().map(str::to_string)
        };
        config.forwards_client_key = true;
        assert_eq!(query(&config, "key=1&a=2").as_deref(), Some("key=1&a=2"), "client keys are forwarded");
        config.forwards_client_key = false;
        assert_eq!(
            query(&config, "a=2%2F3&key=1&Api-Key=1&k%65y=1&page_token=4").as_deref(),
            Some("a=2%2F3&page_token=4")
        );
        for query_of_key in [
            "api_token=1",
            "access_key=1",
            "secret=1",
            "password=1",
            "client_secret=1",
            "clientSecret=1",
            "auth[token]=1",
        ] {
            assert_eq!(query(&config, query_of_key), None, "{query_of_key}");
        }
        assert_eq!(query(&config, "key=1"), None);
    }

    #[test]
    fn no_spelling_of_a_path_escapes_the_base_url() {
        let upstream = Upstream::new(ProviderConfig::at("p", Url::parse("http://host/api/v1").unwrap())).unwrap();
        for path in ["..\\..\\admin", "../../admin", "%2e%2e/admin", ".."] {
            assert_eq!(upstream.address(path, None), None, "{path}");
        }
    }

    #[tokio::test]
    async fn a_call_reserves_at_most_the_burst_of_its_budgets() {
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        config.limits.budgets = vec![
            BudgetConfig::per_day(Dimension::TotalTokens, 100_000),
            BudgetConfig::per_minute(Dimension::TotalTokens, 1_000),
            BudgetConfig::per_minute(Dimension::InputTokens, 900).with_burst(300),
        ];
        let upstream = Upstream::new(config).unwrap();
        let resource = upstream
            .resource(&RequestGate::new().unwrap(), &Metrics::new(), "m", &Domain::Chat)
            .expect("it is below the limit of models");
        assert_eq!(resource.estimate(Usage::tokens(30, 40)), Usage::tokens(30, 40));
        assert_eq!(resource.estimate(Usage::tokens(u32::MAX, u32::MAX)), Usage::tokens(300, 700));
    }

    #[tokio::test]
    async fn models_use_their_own_limits_or_those_of_the_provider_and_are_bounded() {
        let (gate, metrics) = (RequestGate::new().unwrap(), Metrics::new());
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        config.at_most_models = 1;
        config.rename = vec![("small".to_string(), "real".to_string())];
        config.models = vec![super::super::config::ModelConfig { name: "own".to_string(), limits: Limits::at_most(3) }];
        let upstream = Upstream::new(config).unwrap();
        assert_eq!((upstream.model_to_send("small"), upstream.model_to_send("other")), ("real", "other"));
        let cap = |model| {
            let resource = upstream.resource(&gate, &metrics, model, &Domain::Chat)?;
            gate.snapshot(&resource.key).map(|now| now.provider_cap)
        };
        assert_eq!([cap("other"), cap("third"), cap("own"), cap("other")], [Some(64), None, Some(3), Some(64)]);
        assert_eq!(cap("OWN"), None, "it would bypass the limits of the configured spelling");
        let kind = |model, kind: usize| {
            upstream.resource(&gate, &metrics, model, &Domain::Other(format!("kind-{kind}"))).is_some()
        };
        assert!(kind("own", 0) && kind(NO_MODEL, 0) && !kind("other", 0));
        assert_eq!((0..100).filter(|n| kind("own", *n)).count(), MAX_KINDS_PER_CONFIGURED_MODEL - 1);
    }
}
