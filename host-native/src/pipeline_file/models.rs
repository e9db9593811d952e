//! The tables `[[models]]`: where calls go, how many at once, and how a mock behaves.

use std::num::NonZeroU32;
use std::ops::Range;

use reqwest::Url;
use serde::Deserialize;
use tidegate_core::error::ConfigError;
use tidegate_core::request::AimdConfig;
use tidegate_core::request::limit::{LimitChoice, TideConfig, VegasConfig};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::reader::TableReader;
use super::source::{FileError, SourceText};

/// The provider that is served in this process.
pub(super) const MOCK_PROVIDER: &str = "mock";

/// One `[[models]]` table.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// What columns call it.
    pub name: String,
    /// Who serves it. Admission is per provider and model id.
    pub provider: String,
    /// The model id that is sent.
    pub model: String,
    /// How to reach it.
    pub endpoint: Endpoint,
    /// Calls in flight at most.
    pub max_parallel: NonZeroU32,
    /// The longest one call may take.
    pub timeout: Duration,
    /// How the limit adapts, if AIMD decides it; the cooldowns hold for all.
    pub aimd: AimdConfig,
    /// What decides the limit.
    pub limit: LimitChoice,
    /// Where the table stands.
    pub span: Range<usize>,
}

/// How a model is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Endpoint {
    /// Over the network.
    Remote {
        /// The base address of an OpenAI-compatible API.
        base_url: Url,
        /// The environment variable that holds the key.
        api_key_env: Option<String>,
    },
    /// By a server in this process that behaves like this.
    Mock(MockSpec),
    /// By the mock of an earlier model with the same model id.
    SameMock,
}

/// How a mock provider behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct MockSpec {
    /// Capacity, latency, and what goes wrong.
    pub provider: ProviderSpec,
    /// The seed of its randomness \[0\].
    pub seed: u64,
}

const MODEL_KEYS: &[&str] = &[
    "name",
    "provider",
    "model",
    "base_url",
    "api_key_env",
    "domain",
    "max_parallel",
    "timeout",
    "limit",
    "aimd",
    "mock",
];

pub(super) fn parse(source: &SourceText, root: &TableReader<'_>) -> Result<Vec<ModelSpec>, FileError> {
    let mut models: Vec<ModelSpec> = Vec::new();
    for table in root.tables("models", "[[models]]", MODEL_KEYS)? {
        let model = parse_model(source, &table, &models)?;
        models.push(model);
    }
    Ok(models)
}

fn parse_model(source: &SourceText, table: &TableReader<'_>, earlier: &[ModelSpec]) -> Result<ModelSpec, FileError> {
    let name = table.required::<String>("name")?;
    if earlier.iter().any(|model| model.name == *name.get_ref()) {
        let message = format!("there are two models called `{}`", name.get_ref());
        return Err(source.error(name.span(), message).expected("a name that no other model has"));
    }
    let provider = table.required::<String>("provider")?.into_inner();
    let model = table.or("model", name.get_ref().clone())?;
    if let Some(domain) = table.optional::<String>("domain")?.filter(|domain| domain.get_ref() != "chat") {
        let message = format!("`domain` in [[models]] is the string {:?}", domain.get_ref());
        return Err(source.error(domain.span(), message).expected("\"chat\", the only domain so far"));
    }
    let timeout = table.optional::<Duration>("timeout")?;
    if let Some(zero) = timeout.as_ref().filter(|timeout| timeout.get_ref().is_zero()) {
        return Err(source.error(zero.span(), "`timeout` in [[models]] is no time at all").expected("more than 0"));
    }
    let same = earlier.iter().find(|other| other.provider == provider && other.model == model);
    let endpoint = if provider == MOCK_PROVIDER {
        parse_mock_endpoint(source, table, same)?
    } else {
        parse_remote_endpoint(source, table, same)?
    };
    Ok(ModelSpec {
        endpoint,
        max_parallel: table.required::<NonZeroU32>("max_parallel")?.into_inner(),
        timeout: timeout.map_or(Duration::from_secs(60), Spanned::into_inner),
        aimd: parse_aimd(source, table, same)?,
        limit: parse_limit(source, table)?,
        span: table.span(),
        name: name.into_inner(),
        provider,
        model,
    })
}

/// The setting `limit` of a table, AIMD if it is not there.
pub(crate) fn parse_limit(source: &SourceText, table: &TableReader<'_>) -> Result<LimitChoice, FileError> {
    const NAMES: [&str; 4] = ["aimd", "vegas", "tide", "fixed"];
    let Some(limit) = table.optional::<String>("limit")? else { return Ok(LimitChoice::default()) };
    match limit.get_ref().as_str() {
        "aimd" => Ok(LimitChoice::Aimd),
        "vegas" => Ok(LimitChoice::Vegas(VegasConfig::default())),
        "tide" => Ok(LimitChoice::Tide(TideConfig::default())),
        // Its cap is `max_parallel`, and the limit is no higher.
        "fixed" => Ok(LimitChoice::Fixed { limit: u32::MAX }),
        other => Err(source
            .error(limit.span(), format!("`limit` in {} is the string {other:?}", table.title()))
            .expected("\"aimd\", \"vegas\", \"tide\" or \"fixed\"")
            .suggest(other, NAMES)),
    }
}

fn parse_remote_endpoint(
    source: &SourceText,
    table: &TableReader<'_>,
    same: Option<&ModelSpec>,
) -> Result<Endpoint, FileError> {
    if let Some(mock) = table.raw("mock") {
        return Err(source
            .error(mock.span(), "`mock` is given for a provider that is not served in this process")
            .expected(format!("`provider = \"{MOCK_PROVIDER}\"`, or no `mock`")));
    }
    let (base_url, span) = parse_base_url(source, table)?;
    match same.map(|same| &same.endpoint) {
        Some(Endpoint::Remote { base_url: other, .. }) if *other != base_url => {
            let message = format!(
                "an earlier model of the same provider and model id is at {other}: one provider has one address"
            );
            return Err(source.error(span, message).expected(ADDRESS));
        }
        _ => {}
    }
    let api_key_env = table.optional::<String>("api_key_env")?.map(Spanned::into_inner);
    Ok(Endpoint::Remote { base_url, api_key_env })
}

/// What a base address has to be.
const ADDRESS: &str = "an address such as \"https://host/v1\", without user name, query or fragment";

/// The setting `base_url` of a table, and where it stands.
pub(crate) fn parse_base_url(source: &SourceText, table: &TableReader<'_>) -> Result<(Url, Range<usize>), FileError> {
    let text = table.required::<String>("base_url")?;
    let title = table.title();
    let refuse = |why: &str| source.error(text.span(), format!("`base_url` in {title} {why}")).expected(ADDRESS);
    let base_url = Url::parse(text.get_ref()).map_err(|error| refuse(&format!("is not an address: {error}")))?;
    if !matches!(base_url.scheme(), "http" | "https") {
        return Err(refuse(&format!("has the scheme `{}`", base_url.scheme())));
    }
    if !base_url.username().is_empty() || base_url.password().is_some() {
        return Err(refuse("holds a user name or password")
            .without_excerpt()
            .expected("keys only in the environment variable that `api_key_env` names"));
    }
    if base_url.query().is_some() || base_url.fragment().is_some() {
        return Err(refuse("has a query or fragment"));
    }
    Ok((base_url, text.span()))
}

fn parse_mock_endpoint(
    source: &SourceText,
    table: &TableReader<'_>,
    same: Option<&ModelSpec>,
) -> Result<Endpoint, FileError> {
    for key in ["base_url", "api_key_env"] {
        if let Some(value) = table.raw(key) {
            return Err(source.error(value.span(), format!("`{key}` is given for a mock, which has none")));
        }
    }
    match (table.raw("mock"), same) {
        (Some(mock), Some(_)) => Err(source
            .error(mock.span(), "an earlier model with the same model id describes this mock already")
            .expected("`mock` in the first of them only")),
        (None, Some(_)) => Ok(Endpoint::SameMock),
        (Some(mock), None) => parse_mock(source, mock).map(Endpoint::Mock),
        (None, None) => Err(source
            .error(table.span(), "[[models]] with `provider = \"mock\"` has no `mock`")
            .expected("a table such as `mock = { capacity = { shape = \"constant\", slots = 8 } }`")),
    }
}

fn parse_mock(source: &SourceText, value: &Spanned<DeValue<'_>>) -> Result<MockSpec, FileError> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(source.error(value.span(), "`mock` in [[models]] is not a table").expected("a table"));
    };
    let mut seed = 0;
    let mut rest = DeTable::new();
    for (key, field) in table {
        if key.get_ref() == "seed" {
            let number = ValueDeserializer::from(field.clone());
            seed = u64::deserialize(number).map_err(|error| toml_error(source, &error, field.span()))?;
        } else {
            rest.insert(key.clone(), field.clone());
        }
    }
    let provider = ValueDeserializer::from(Spanned::new(value.span(), DeValue::Table(rest)));
    let provider = ProviderSpec::deserialize(provider).map_err(|error| toml_error(source, &error, value.span()))?;
    provider.validate().map_err(|error| config_error(source, "[[models]]", "mock", &error, value))?;
    Ok(MockSpec { provider, seed })
}

fn toml_error(source: &SourceText, error: &toml::de::Error, span: Range<usize>) -> FileError {
    source.error(error.span().unwrap_or(span), format!("`mock` in [[models]]: {}", error.message()))
}

/// The keys of a table of AIMD settings.
const AIMD_KEYS: &[&str] = &[
    "initial_limit",
    "max_limit",
    "decrease_factor",
    "increase_step",
    "successes_until_increase",
    "cooldown",
    "max_cooldown",
    "ramp",
];

fn parse_aimd(source: &SourceText, model: &TableReader<'_>, same: Option<&ModelSpec>) -> Result<AimdConfig, FileError> {
    if let (Some(same), Some(again)) = (same, model.raw("aimd")) {
        let message = format!("`{}` is the same provider and model id, and one limit adapts for both", same.name);
        return Err(source.error(again.span(), message).expected("`aimd` in the first of them only"));
    }
    read_aimd(source, model, "[models.aimd]", same.map_or_else(AimdConfig::default, |same| same.aimd.clone()))
}

/// The table `aimd` of a table, called `title`; what it leaves out is as in `aimd`.
pub(crate) fn read_aimd(
    source: &SourceText,
    owner: &TableReader<'_>,
    title: &'static str,
    mut aimd: AimdConfig,
) -> Result<AimdConfig, FileError> {
    let Some(table) = owner.table("aimd", title, AIMD_KEYS)? else { return Ok(aimd) };
    aimd.initial_limit = table.optional("initial_limit")?.map(Spanned::into_inner).or(aimd.initial_limit);
    aimd.max_limit = table.optional("max_limit")?.map(Spanned::into_inner).or(aimd.max_limit);
    aimd.decrease_factor = table.or("decrease_factor", aimd.decrease_factor)?;
    aimd.increase_step = table.or("increase_step", aimd.increase_step)?;
    aimd.successes_until_increase = table.or("successes_until_increase", aimd.successes_until_increase)?;
    aimd.cooldown = table.or("cooldown", aimd.cooldown)?;
    aimd.max_cooldown = table.or("max_cooldown", aimd.max_cooldown)?;
    aimd.ramp = table.or("ramp", aimd.ramp)?;
    if let (Err(error), Some(value)) = (aimd.validate(), owner.raw("aimd")) {
        return Err(config_error(source, owner.title(), "aimd", &error, value));
    }
    Ok(aimd)
}

/// The core's refusal of a value inside `value`, which stands under `key`, at the field it names.
fn config_error(
    source: &SourceText,
    title: &str,
    key: &str,
    error: &ConfigError,
    value: &Spanned<DeValue<'_>>,
) -> FileError {
    let path = error.field.strip_prefix(key).unwrap_or(&error.field).trim_start_matches('.');
    source.error(locate(value, path), format!("`{key}.{path}` in {title} is {}", error.value)).expected(error.expected)
}

/// Where the field at `path`, such as `capacity.steps[2].at_ms`, stands inside `value`; the nearest part of the path
/// that is there, when the rest is a default.
pub(crate) fn locate(value: &Spanned<DeValue<'_>>, path: &str) -> Range<usize> {
    let mut found = value;
    for step in path.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        let next = match found.get_ref() {
            DeValue::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            DeValue::Table(table) => table.get(step),
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found.span()
}
