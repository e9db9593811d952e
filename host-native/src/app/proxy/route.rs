//! Who serves a model, and under which limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::RwLock;
use reqwest::{Client, Url};
use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
use tidegate_core::request::{Domain, ResourceId};

use super::ask::decoded;
use super::config::ProviderConfig;
use super::metrics::{Metrics, ResourceMeters};
use crate::gate::{Limits, RequestGate, ResourceKey};
use crate::http::ResponseInfo;

/// The model of calls that name none.
pub(super) const NO_MODEL: &str = "-";

/// The longest model id that is one, in bytes.
const LONGEST_MODEL: usize = 256;

/// Kinds of call of a model that the configuration names, for which there is room whatever else was asked for.
const KINDS_OF_CONFIGURED: usize = 16;

/// One kind of call of one model, and what is known of it.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) key: ResourceKey,
    pub(super) id: ResourceId,
    /// The most that the budgets of one dimension give at once.
    bursts: Bursts,
    pub(super) meters: ResourceMeters,
}

impl Resource {
    /// What a call reserves that may use `asked`: no more than the budgets give at once. A client may allow an answer
    /// that no model gives, and would lock everybody out until its call has ended, or for hours if nothing tells what
    /// it used.
    pub(super) fn estimate(&self, asked: Usage) -> Usage {
        let Bursts { input, output, total } = self.bursts;
        let sent = asked.input_tokens.min(input).min(total);
        Usage::tokens(sent, asked.output_tokens.min(output).min(total - sent))
    }
}

/// The most that token budgets give at once.
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

/// One provider.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) config: ProviderConfig,
    pub(super) http: Client,
    /// What takes the place of the client's key.
    pub(super) authorization: Option<HeaderValue>,
    resources: RwLock<Resources>,
}

#[derive(Debug, Default)]
struct Resources {
    /// By model; few kinds of call each.
    known: BTreeMap<Arc<str>, Vec<Arc<Resource>>>,
    count: u32,
}

impl Upstream {
    pub(super) fn new(config: ProviderConfig) -> Result<Self, String> {
        let authorization = config.api_key.as_ref().map(crate::app::provider::ApiKey::header);
        Ok(Self { http: client(&config)?, authorization, config, resources: RwLock::default() })
    }

    /// Whether a pattern of this provider fits `model`.
    pub(super) fn serves(&self, model: &str) -> bool {
        self.config.serves.iter().any(|pattern| fits(pattern.as_bytes(), model.as_bytes()))
    }

    /// What an answer says about this provider: with a client's own key, what it says about the key is about that client.
    pub(super) fn as_gate_sees(&self, mut head: ResponseInfo) -> ResponseInfo {
        if self.authorization.is_none() {
            head.completion.outcome = head.completion.outcome.of_own_key();
        }
        head
    }

    /// The model id to send for the one that a client said.
    pub(super) fn sent<'m>(&'m self, model: &'m str) -> &'m str {
        let renamed = self.config.rename.iter().find(|(said, _)| said == model);
        renamed.map_or(model, |(_, sent)| sent)
    }

    /// The address of what clients call `/v1/PATH?QUERY`; `None` if that is not under the provider's own.
    pub(super) fn address(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let mut url = self.config.base_url.clone();
        let base = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&format!("{base}{path}"));
        match query {
            Some(query) if self.authorization.is_some() => url.set_query(without_keys(query).as_deref()),
            query => url.set_query(query),
        }
        url.path().starts_with(&base).then_some(url)
    }

    /// The resource of a model and a kind of call, registered on first mention; `None` if that would be one too many.
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
        let mut resources = self.resources.write();
        if let Some(known) = of(&resources) {
            return Some(known);
        }
        // Models of the configuration are served whatever else was asked for, and so are calls that name none.
        let kinds = resources.known.get(model).map_or(0, Vec::len);
        let is_configured = (self.own(model).is_some() || model == NO_MODEL) && kinds < KINDS_OF_CONFIGURED;
        if !is_configured && (resources.count >= self.config.at_most_models || model.len() > LONGEST_MODEL) {
            return None;
        }
        let key = ResourceKey::new(&self.config.name, model, domain.clone());
        let limits = self.own(model).unwrap_or(&self.config.limits);
        let id = gate.register(&key, limits).ok()?;
        let bursts = Bursts::of(&limits.budgets);
        let meters = metrics.meters(&key);
        let resource = Arc::new(Resource { key, id, bursts, meters });
        resources.count += u32::from(!is_configured);
        resources.known.entry(Arc::clone(&resource.key.model)).or_default().push(Arc::clone(&resource));
        Some(resource)
    }

    /// What the configuration says of a model in particular.
    fn own(&self, model: &str) -> Option<&Limits> {
        self.config.models.iter().find(|own| own.name == model).map(|own| &own.limits)
    }

    /// Every resource that was mentioned, by model.
    pub(super) fn resources(&self) -> Vec<Arc<Resource>> {
        self.resources.read().known.values().flatten().cloned().collect()
    }
}

fn client(config: &ProviderConfig) -> Result<Client, String> {
    // Fails when the process has a TLS provider already, which then is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(config.connect_timeout)
        .read_timeout(config.timeout)
        .tcp_nodelay(true)
        // Where a redirect leads is the client's to follow, and a key must not travel on.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    if config.base_url.scheme() == "http" {
        // Nothing to verify, so a machine without root certificates will do.
        builder = builder.tls_certs_only([]);
    }
    if config.base_url.host_str().is_some_and(is_loopback) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        cause.to_string()
    })
}

/// Whether a path has parts that an address would be shortened by, and end up elsewhere. An address takes `\` for `/`, and
/// no call of the API has one; a provider may take `%2f` for it. Nor may a part be empty but the last: many providers look
/// past it, and the call would count as one of another kind.
pub(super) fn leaves_its_base(path: &str) -> bool {
    let plain = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    plain.contains('\\')
        || plain.split('/').any(|part| part == "." || part == "..")
        || plain.starts_with('/')
        || plain.contains("//")
}

/// A query without what a client proves itself with; `None` if that is all there is.
fn without_keys(query: &str) -> Option<String> {
    let is_key = |pair: &&str| {
        let name = decoded(pair.split('=').next().unwrap_or_default());
        ["key", "api-key", "api_key"].iter().any(|key| name.eq_ignore_ascii_case(key))
    };
    let rest: Vec<_> = query.split('&').filter(|pair| !is_key(pair)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether `pattern` fits all of `text`: `*` is any text, `?` any one byte. Linear but for each `*`, which tries again.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The last `*`, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_byte() {
        for (pattern, text) in
            [("*", ""), ("gpt-*", "gpt-4o"), ("*/*-b", "a/b-b-b"), ("o?-mini", "o3-mini"), ("a", "a")]
        {
            assert!(fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("gpt-*", "gpt"), ("o?", "o"), ("*-b", "a-bc"), ("a", "ab")] {
            assert!(!fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn an_address_keeps_its_path_and_query() {
        let config = ProviderConfig::at("p", Url::parse("http://host/api/v1/").unwrap());
        let upstream = Upstream::new(config).unwrap();
        let url = upstream.address("files/a%2Fb", Some("limit=2")).unwrap();
        assert_eq!(url.as_str(), "http://host/api/v1/files/a%2Fb?limit=2");
        assert!(!leaves_its_base("files/a%2Fb.c") && !leaves_its_base("a/...") && !leaves_its_base("a/"));
        assert!(leaves_its_base("/chat/completions") && leaves_its_base("chat//x") && leaves_its_base("%2fchat"));
        assert!(leaves_its_base("../admin") && leaves_its_base("a/%2E./b") && leaves_its_base("."));
    }

    #[test]
    fn a_provider_with_its_own_key_gets_none_in_the_query() {
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        let query = |config: &ProviderConfig, query| {
            let upstream = Upstream::new(config.clone()).unwrap();
            upstream.address("a", Some(query)).unwrap().query().map(str::to_string)
        };
        assert_eq!(query(&config, "key=1&a=2").as_deref(), Some("key=1&a=2"), "it is the client's own");
        config.api_key = Some(crate::app::provider::ApiKey::new("sk-provider").unwrap());
        assert_eq!(query(&config, "a=2%2F3&key=1&Api-Key=1&k%65y=1&keys=4").as_deref(), Some("a=2%2F3&keys=4"));
        assert_eq!(query(&config, "key=1"), None);
    }

    #[test]
    fn no_spelling_of_a_path_leads_out_of_the_base() {
        let upstream = Upstream::new(ProviderConfig::at("p", Url::parse("http://host/api/v1").unwrap())).unwrap();
        for path in ["..\\..\\admin", "a\\..\\..\\..\\admin", "a/%2e%2E\\admin", "a%5c..%5Cadmin", "a/..%2F..%2fadmin"]
        {
            assert!(leaves_its_base(path), "{path}");
        }
        for path in ["..\\..\\admin", "../../admin", "%2e%2e/admin", ".."] {
            assert_eq!(upstream.address(path, None), None, "{path}");
        }
    }

    #[tokio::test]
    async fn a_call_reserves_no_more_than_the_budgets_give_at_once() {
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        config.limits.budgets = vec![
            BudgetConfig::per_day(Dimension::TotalTokens, 100_000),
            BudgetConfig::per_minute(Dimension::TotalTokens, 1_000),
            BudgetConfig::per_minute(Dimension::InputTokens, 900).with_burst(300),
        ];
        let upstream = Upstream::new(config).unwrap();
        let resource =
            upstream.resource(&RequestGate::new().unwrap(), &Metrics::new(), "m", &Domain::Chat).expect("it is new");
        assert_eq!(resource.estimate(Usage::tokens(30, 40)), Usage::tokens(30, 40));
        assert_eq!(resource.estimate(Usage::tokens(u32::MAX, u32::MAX)), Usage::tokens(300, 700));
    }

    #[tokio::test]
    async fn models_get_their_own_limits_or_the_providers_and_are_bounded() {
        let (gate, metrics) = (RequestGate::new().unwrap(), Metrics::new());
        let mut config = ProviderConfig::at("p", Url::parse("http://host/v1").unwrap());
        config.at_most_models = 1;
        config.rename = vec![("small".to_string(), "real".to_string())];
        config.models = vec![super::super::config::ModelConfig { name: "own".to_string(), limits: Limits::at_most(3) }];
        let upstream = Upstream::new(config).unwrap();
        assert_eq!((upstream.sent("small"), upstream.sent("other")), ("real", "other"));
        let cap = |model| {
            let resource = upstream.resource(&gate, &metrics, model, &Domain::Chat)?;
            gate.snapshot(&resource.key).map(|now| now.provider_cap)
        };
        assert_eq!([cap("other"), cap("third"), cap("own"), cap("other")], [Some(64), None, Some(3), Some(64)]);
        let kind = |model, kind: usize| {
            upstream.resource(&gate, &metrics, model, &Domain::Other(format!("kind-{kind}"))).is_some()
        };
        assert!(kind("own", 0) && kind(NO_MODEL, 0) && !kind("other", 0));
        assert_eq!((0..100).filter(|n| kind("own", *n)).count(), KINDS_OF_CONFIGURED - 1);
    }
}
