//! The tables `[[models]]`: where calls go, how many at once, what they cost, and how a mock behaves.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;
use tidegate_core::budget::{BudgetConfig, Dimension};
use tidegate_core::limit::LimitChoice;
use tidegate_core::request::AimdConfig;
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::app::config::limit::{COMMON_KEYS, LimitSettings, read_limit};
use crate::app::config::reader::TableReader;
use crate::app::config::source::{FileError, SourceText, config_error};
use crate::app::provider::cost::Price;

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
    /// What it is asked for. Limits and budgets are per provider, model id and domain.
    pub domain: Domain,
    /// How to reach it.
    pub endpoint: Endpoint,
    /// Calls in flight at most.
    pub max_parallel: NonZeroU32,
    /// The longest one call may take.
    pub timeout: Duration,
    /// How the limit adapts, if AIMD decides it; the ramp and the cooldowns hold for all.
    pub aimd: AimdConfig,
    /// What decides the limit.
    pub limit: LimitChoice,
    /// Whether the file says so.
    pub is_limit_given: bool,
    /// How much may go out per minute or day.
    pub budgets: Vec<BudgetConfig>,
    /// What tokens cost, in the file's currency.
    pub price: Option<Price>,
    /// Where the table stands.
    pub span: Range<usize>,
}

impl ModelSpec {
    /// What its resource at the gate is called: `provider/model`, and the domain unless it is chat.
    #[must_use]
    pub fn label(&self) -> String {
        match self.domain {
            Domain::Chat => format!("{}/{}", self.provider, self.model),
            other => format!("{}/{}/{}", self.provider, self.model, other.name()),
        }
    }

    fn limit_settings(&self) -> LimitSettings {
        LimitSettings { choice: self.limit, is_given: self.is_limit_given, aimd: self.aimd.clone() }
    }
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// Chat completions.
    #[default]
    Chat,
    /// Embedding vectors.
    Embedding,
    /// Verdicts of a command or of a server of one's own.
    Judge,
}

impl Domain {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embedding => "embedding",
            Self::Judge => "judge",
        }
    }

    /// What a model of it has in the file.
    pub(super) fn requirement(self) -> &'static str {
        match self {
            Self::Chat => "and a `base_url`",
            Self::Embedding => "and `domain = \"embedding\"`",
            Self::Judge => "and a `command` or a `url`",
        }
    }
}

impl From<Domain> for tidegate_core::request::Domain {
    fn from(domain: Domain) -> Self {
        match domain {
            Domain::Chat => Self::Chat,
            Domain::Embedding => Self::Embedding,
            Domain::Judge => Self::Other(Domain::Judge.name().to_string()),
        }
    }
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
    /// Over the network, at an address of its own that takes the question as it is.
    Http {
        /// The whole address.
        url: Url,
        /// The environment variable that holds the key.
        api_key_env: Option<String>,
    },
    /// By a command that is run for each call.
    Command {
        /// The program and its arguments; at least the program.
        argv: Vec<String>,
        /// Where it runs: the directory of the pipeline file.
        directory: PathBuf,
    },
    /// By a server in this process that behaves like this.
    Mock(Box<MockSpec>),
    /// By the mock of an earlier model with the same model id.
    SameMock,
}

impl Endpoint {
    /// The environment variable that holds its key, if it has one.
    #[must_use]
    pub fn key_variable(&self) -> Option<&str> {
        match self {
            Self::Remote { api_key_env, .. } | Self::Http { api_key_env, .. } => api_key_env.as_deref(),
            Self::Command { .. } | Self::Mock(_) | Self::SameMock => None,
        }
    }
}

/// How a mock provider behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct MockSpec {
    /// Capacity, latency, and what goes wrong.
    pub provider: ProviderSpec,
    /// The seed of its randomness \[0\].
    pub seed: u64,
}

pub(super) const MODEL_KEYS: &[&str] = &[
    "name",
    "provider",
    "model",
    "base_url",
    "url",
    "command",
    "api_key_env",
    "domain",
    "max_parallel",
    "timeout",
    "limit",
    "aimd",
    "cooldown",
    "max_cooldown",
    "ramp",
    "budget",
    "price",
    "mock",
];

/// The models, and the currency of their prices.
pub(super) fn parse(
    source: &SourceText,
    root: &TableReader<'_>,
    directory: &Path,
) -> Result<(Vec<ModelSpec>, String), FileError> {
    let mut models: Vec<ModelSpec> = Vec::new();
    let mut currency = None;
    for table in root.tables("models", "[[models]]", MODEL_KEYS)? {
        let model = parse_model(source, &table, &models, directory, &mut currency)?;
        models.push(model);
    }
    Ok((models, currency.unwrap_or_else(|| DEFAULT_CURRENCY.to_string())))
}

fn parse_model(
    source: &SourceText,
    table: &TableReader<'_>,
    earlier: &[ModelSpec],
    directory: &Path,
    currency: &mut Option<String>,
) -> Result<ModelSpec, FileError> {
    let name = table.required::<String>("name")?;
    if earlier.iter().any(|model| model.name == *name.get_ref()) {
        let message = format!("there are two models called `{}`", name.get_ref());
        return Err(source.error(name.span(), message).expected("a name that no other model has"));
    }
    let judge = ["command", "url"].into_iter().find(|key| table.raw(key).is_some());
    let provider = match judge {
        Some("command") => table.or("provider", "command".to_string())?,
        Some(_) => table.or("provider", "http".to_string())?,
        None => table.required::<String>("provider")?.into_inner(),
    };
    let model = table.or("model", name.get_ref().clone())?;
    let domain = parse_domain(table, judge.is_some())?;
    let timeout = table.optional::<Duration>("timeout")?;
    if let Some(zero) = timeout.as_ref().filter(|timeout| timeout.get_ref().is_zero()) {
        return Err(source.error(zero.span(), "`timeout` in [[models]] is no time at all").expected("more than 0"));
    }
    let same = earlier.iter().find(|other| other.provider == provider && other.model == model);
    let endpoint = match judge {
        Some(_) => parse_judge_endpoint(source, table, directory)?,
        None if provider == MOCK_PROVIDER => parse_mock_endpoint(source, table, same)?,
        None => parse_remote_endpoint(source, table, same)?,
    };
    // What is configured for a resource of the gate is configured once.
    let same = same.filter(|same| same.domain == domain);
    let LimitSettings { choice, is_given, aimd } = parse_limit(source, table, same)?;
    Ok(ModelSpec {
        endpoint,
        max_parallel: table.required::<NonZeroU32>("max_parallel")?.into_inner(),
        timeout: timeout.map_or(Duration::from_secs(60), Spanned::into_inner),
        aimd,
        limit: choice,
        is_limit_given: is_given,
        budgets: parse_budgets(source, table, same)?,
        price: parse_price(source, table, same, currency)?,
        span: table.span(),
        name: name.into_inner(),
        provider,
        model,
        domain,
    })
}

fn parse_domain(table: &TableReader<'_>, is_judge: bool) -> Result<Domain, FileError> {
    const DOMAINS: [(&str, Domain); 2] = [("chat", Domain::Chat), ("embedding", Domain::Embedding)];
    const JUDGES: [(&str, Domain); 1] = [("judge", Domain::Judge)];
    if is_judge {
        table.choice("domain", &JUDGES, Domain::Judge)
    } else {
        table.choice("domain", &DOMAINS, Domain::Chat)
    }
}

/// A command or an address that takes questions as they are.
fn parse_judge_endpoint(source: &SourceText, table: &TableReader<'_>, directory: &Path) -> Result<Endpoint, FileError> {
    let foreign = |key: &'static str, of: &str| match table.raw(key) {
        Some(value) => Err(source
            .error(value.span(), format!("`{key}` is given beside `{of}`, which says all about where calls go"))
            .expected(format!("`{of}` alone"))),
        None => Ok(()),
    };
    let Some(argv) = table.optional::<Vec<Spanned<String>>>("command")? else {
        ["base_url", "mock"].into_iter().try_for_each(|key| foreign(key, "url"))?;
        let url = parse_address(source, table, "url", true)?;
        let api_key_env = table.optional::<String>("api_key_env")?.map(Spanned::into_inner);
        return Ok(Endpoint::Http { url, api_key_env });
    };
    ["base_url", "url", "mock", "api_key_env"].into_iter().try_for_each(|key| foreign(key, "command"))?;
    if argv.get_ref().is_empty() {
        return Err(table.refused("command", "the program and its arguments, such as [\"python3\", \"judge.py\"]"));
    }
    let argv = argv.into_inner().into_iter().map(Spanned::into_inner).collect();
    Ok(Endpoint::Command { argv, directory: directory.to_path_buf() })
}

pub(super) const PRICE_KEYS: &[&str] = &["input_per_million", "output_per_million", "currency"];

/// What prices are in when the file does not say.
const DEFAULT_CURRENCY: &str = "USD";

fn parse_price(
    source: &SourceText,
    model: &TableReader<'_>,
    same: Option<&ModelSpec>,
    currency: &mut Option<String>,
) -> Result<Option<Price>, FileError> {
    let Some(table) = model.table("price", "[models.price]", PRICE_KEYS)? else {
        return Ok(same.and_then(|same| same.price));
    };
    if let Some(same) = same {
        let message = format!("`{}` is the same provider and model id, and has one price", same.name);
        return Err(source.error(table.span(), message).expected("`price` in the first of them only"));
    }
    let this = table.optional::<String>("currency")?;
    let name = this.as_ref().map_or(DEFAULT_CURRENCY, |this| this.get_ref());
    match currency {
        Some(known) if known != name => {
            let at = this.as_ref().map_or(table.span(), Spanned::span);
            let message = format!("this price is in {name}, and an earlier one in {known}");
            return Err(source.error(at, message).expected("one currency for all prices of the file"));
        }
        _ => *currency = Some(name.to_string()),
    }
    let input = table.required::<f64>("input_per_million")?.into_inner();
    let output = table.or("output_per_million", 0.0)?;
    let key = if Price::per_million(input, 0.0).is_none() { "input_per_million" } else { "output_per_million" };
    let price = Price::per_million(input, output);
    price.map(Some).ok_or_else(|| table.refused(key, "a number from 0 to 1000000: the price of a million tokens"))
}

type MakeBudget = fn(Dimension, u64) -> BudgetConfig;

/// The budgets by their keys.
const BUDGETS: [(&str, MakeBudget, Dimension); 7] = [
    ("requests_per_minute", BudgetConfig::per_minute, Dimension::Requests),
    ("requests_per_day", BudgetConfig::per_day, Dimension::Requests),
    ("tokens_per_minute", BudgetConfig::per_minute, Dimension::TotalTokens),
    ("tokens_per_day", BudgetConfig::per_day, Dimension::TotalTokens),
    ("input_tokens_per_minute", BudgetConfig::per_minute, Dimension::InputTokens),
    ("output_tokens_per_minute", BudgetConfig::per_minute, Dimension::OutputTokens),
    ("input_tokens_per_day", BudgetConfig::per_day, Dimension::InputTokens),
];

/// The key that a budget of a pipeline file stands under.
#[must_use]
pub fn budget_name(budget: &BudgetConfig) -> &'static str {
    let is_it = |(_, make, dimension): &&(&str, MakeBudget, Dimension)| {
        let other = make(*dimension, budget.limit);
        (other.dimension, other.window) == (budget.dimension, budget.window)
    };
    BUDGETS.iter().find(is_it).map_or("budget", |(key, _, _)| key)
}

pub(super) const BUDGET_KEYS: &[&str] = &[
    "requests_per_minute",
    "requests_per_day",
    "tokens_per_minute",
    "tokens_per_day",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "input_tokens_per_day",
];

fn parse_budgets(
    source: &SourceText,
    model: &TableReader<'_>,
    same: Option<&ModelSpec>,
) -> Result<Vec<BudgetConfig>, FileError> {
    let Some(table) = model.table("budget", "[models.budget]", BUDGET_KEYS)? else {
        return Ok(same.map_or_else(Vec::new, |same| same.budgets.clone()));
    };
    if let Some(same) = same {
        let message = format!("`{}` is the same provider and model id, and shares one budget", same.name);
        return Err(source.error(table.span(), message).expected("`budget` in the first of them only"));
    }
    let mut budgets = Vec::new();
    for (key, make, dimension) in BUDGETS {
        if let Some(limit) = table.optional::<u64>(key)? {
            let budget = make(dimension, limit.into_inner());
            budget.validate().map_err(|_| table.refused(key, "a whole number from 1 to 10^15"))?;
            budgets.push(budget);
        }
    }
    Ok(budgets)
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
    let base_url = parse_address(source, table, "base_url", false)?;
    match same.map(|same| &same.endpoint) {
        Some(Endpoint::Remote { base_url: other, .. }) if *other != base_url => {
            return Err(table.about(
                "base_url",
                format!(
                    "an earlier model of the same provider and model id is at {other}: one provider has one address"
                ),
            ));
        }
        _ => {}
    }
    let api_key_env = table.optional::<String>("api_key_env")?.map(Spanned::into_inner);
    Ok(Endpoint::Remote { base_url, api_key_env })
}

/// An address under `key`, without user name, password or fragment, and without a query unless it may have one.
fn parse_address(
    source: &SourceText,
    table: &TableReader<'_>,
    key: &'static str,
    with_query: bool,
) -> Result<Url, FileError> {
    let (text, title) = (table.required::<String>(key)?, table.title());
    let expected = if with_query {
        "an address such as \"https://host/judge\", without user name or fragment"
    } else {
        "an address such as \"https://host/v1\", without user name, query or fragment"
    };
    let refuse = |why: String| source.error(text.span(), why).expected(expected);
    let url =
        Url::parse(text.get_ref()).map_err(|error| refuse(format!("`{key}` in {title} is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse(format!("`{key}` in {title} has the scheme `{}`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(source
            .error(text.span(), format!("`{key}` in {title} holds a user name or password"))
            .without_excerpt()
            .expected("keys only in the environment variable that `api_key_env` names"));
    }
    if (url.query().is_some() && !with_query) || url.fragment().is_some() {
        return Err(refuse(format!("`{key}` in {title} has a query or fragment")));
    }
    Ok(url)
}

/// The setting `base_url` of a table, and where it stands.
pub(crate) fn parse_base_url(source: &SourceText, table: &TableReader<'_>) -> Result<(Url, Range<usize>), FileError> {
    let url = parse_address(source, table, "base_url", false)?;
    Ok((url, table.raw("base_url").map_or_else(|| table.span(), Spanned::span)))
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
        (Some(mock), None) => parse_mock(source, mock).map(|mock| Endpoint::Mock(Box::new(mock))),
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

/// What decides the limit of a model. One provider, model id and domain has one limit, which its first model describes.
fn parse_limit(
    source: &SourceText,
    model: &TableReader<'_>,
    same: Option<&ModelSpec>,
) -> Result<LimitSettings, FileError> {
    let Some(same) = same else { return read_limit(source, model, "[models.aimd]", LimitSettings::default()) };
    let again = ["aimd"].into_iter().chain(COMMON_KEYS).find_map(|key| Some((key, model.raw(key)?)));
    let settings = same.limit_settings();
    let read = match again {
        Some(_) => settings.clone(),
        None => read_limit(source, model, "[models.aimd]", settings.clone())?,
    };
    let other = (read.choice != settings.choice).then(|| model.raw("limit")).flatten();
    match again.or(other.map(|limit| ("limit", limit))) {
        Some((key, again)) => {
            let message = format!("`{}` is the same provider and model id, and one limit holds for both", same.name);
            Err(source.error(again.span(), message).expected(format!("`{key}` in the first of them only")))
        }
        None => Ok(settings),
    }
}
