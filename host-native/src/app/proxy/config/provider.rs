//! The tables `[[providers]]`.

use std::num::NonZeroU32;
use std::time::Duration as StdDuration;

use reqwest::Url;
use tidegate_core::budget::{BudgetConfig, Dimension};
use toml::Spanned;
use toml::de::DeValue;

use super::{Environment, key_from, positive};
use crate::app::config::limit::{LimitSettings, read_limit};
use crate::app::config::pipeline::models::parse_base_url;
use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::config::reader::{FromToml, TableReader};
use crate::app::provider::ApiKey;
use crate::gate::Limits;

/// Calls of one model in flight at most, where nothing is said.
const MAX_PARALLEL: NonZeroU32 = NonZeroU32::new(64).expect("it is not 0");

/// One `[[providers]]` table.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// What it is called in labels.
    pub name: String,
    /// Where it is.
    pub base_url: Url,
    /// The key that takes the place of the clients', if it has one.
    pub api_key: Option<ApiKey>,
    /// Patterns of the models it serves \[all\].
    pub serves: Vec<String>,
    /// Model ids as clients say them, with those to send.
    pub rename: Vec<(String, String)>,
    /// The longest that it may be silent in a call \[10 min\].
    pub timeout: StdDuration,
    /// The longest that a connection may take \[10 s\].
    pub connect_timeout: StdDuration,
    /// What its models get.
    pub limits: Limits,
    /// Models, and kinds of call of each, that are told apart \[64\].
    pub at_most_models: u32,
    /// Models with limits of their own.
    pub models: Vec<ModelConfig>,
}

/// One `[[providers.models]]` table.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The model id, as it is sent.
    pub name: String,
    /// What it gets.
    pub limits: Limits,
}

impl ProviderConfig {
    /// One that serves every model, with defaults for the rest.
    #[must_use]
    pub fn at(name: &str, base_url: Url) -> Self {
        Self {
            name: name.to_string(),
            base_url,
            api_key: None,
            serves: vec!["*".to_string()],
            rename: Vec::new(),
            timeout: StdDuration::from_mins(10),
            connect_timeout: StdDuration::from_secs(10),
            limits: Limits::at_most(MAX_PARALLEL.get()),
            at_most_models: 64,
            models: Vec::new(),
        }
    }
}

const KEYS: &[&str] = &[
    "name",
    "base_url",
    "api_key_env",
    "serves",
    "rename",
    "timeout",
    "connect_timeout",
    "max_parallel",
    "limit",
    "aimd",
    "cooldown",
    "max_cooldown",
    "ramp",
    "budgets",
    "at_most_models",
    "models",
];

const MODEL_KEYS: &[&str] = &["name", "max_parallel", "limit", "aimd", "cooldown", "max_cooldown", "ramp", "budgets"];

const BUDGET_KEYS: &[&str] = &[
    "requests_per_minute",
    "tokens_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "requests_per_day",
    "tokens_per_day",
];

pub(super) fn parse(
    source: &SourceText,
    root: &TableReader<'_>,
    environment: Environment<'_>,
) -> Result<Vec<ProviderConfig>, FileError> {
    let mut providers: Vec<ProviderConfig> = Vec::new();
    for table in root.tables("providers", "[[providers]]", KEYS)? {
        let name = table.required::<String>("name")?;
        if providers.iter().any(|other| other.name == *name.get_ref()) {
            let message = format!("there are two providers called `{}`", name.get_ref());
            return Err(source.error(name.span(), message).expected("a name that no other provider has"));
        }
        providers.push(parse_provider(source, &table, name.into_inner(), environment)?);
    }
    if providers.is_empty() {
        return Err(source
            .error(0..0, "the proxy file has no [[providers]]")
            .expected("[[providers]] with `name = ` and `base_url = `"));
    }
    Ok(providers)
}

fn parse_provider(
    source: &SourceText,
    table: &TableReader<'_>,
    name: String,
    environment: Environment<'_>,
) -> Result<ProviderConfig, FileError> {
    let (base_url, _) = parse_base_url(source, table)?;
    let defaults = ProviderConfig::at(&name, base_url);
    let api_key =
        table.optional::<String>("api_key_env")?.map(|name| read_key(source, &name, environment)).transpose()?;
    let serves = match table.optional::<Vec<Spanned<String>>>("serves")? {
        Some(patterns) => patterns.into_inner().into_iter().map(Spanned::into_inner).collect(),
        None => defaults.serves,
    };
    let limits = parse_limits(source, table, ["[providers.aimd]", "[providers.budgets]"], &defaults.limits)?;
    let mut models: Vec<ModelConfig> = Vec::new();
    for model in table.tables("models", "[[providers.models]]", MODEL_KEYS)? {
        let name = model.required::<String>("name")?.into_inner();
        let titles = ["[providers.models.aimd]", "[providers.models.budgets]"];
        models.push(ModelConfig { name, limits: parse_limits(source, &model, titles, &limits)? });
    }
    Ok(ProviderConfig {
        api_key,
        serves,
        rename: parse_rename(source, table)?,
        timeout: positive(source, table, "timeout")?.unwrap_or(defaults.timeout),
        connect_timeout: positive(source, table, "connect_timeout")?.unwrap_or(defaults.connect_timeout),
        limits,
        at_most_models: table.or("at_most_models", defaults.at_most_models)?,
        models,
        name,
        base_url: defaults.base_url,
    })
}

fn read_key(source: &SourceText, name: &Spanned<String>, environment: Environment<'_>) -> Result<ApiKey, FileError> {
    ApiKey::new(&key_from(source, name, environment)?).ok_or_else(|| {
        let message = format!("the environment variable `{}` holds what no header can carry", name.get_ref());
        source.error(name.span(), message).expected("a key of one line")
    })
}

fn parse_rename(source: &SourceText, table: &TableReader<'_>) -> Result<Vec<(String, String)>, FileError> {
    let Some(value) = table.raw("rename") else { return Ok(Vec::new()) };
    let refuse = |span, what: &str| Err(source.error(span, what).expected("a table of model ids, as said and as sent"));
    let DeValue::Table(names) = value.get_ref() else {
        return refuse(value.span(), "`rename` in [[providers]] is not a table");
    };
    let mut renamed = Vec::with_capacity(names.len());
    for (said, sent) in names {
        match String::from_toml(sent.get_ref()) {
            Some(sent) => renamed.push((said.get_ref().to_string(), sent)),
            None => return refuse(sent.span(), "`rename` in [[providers]] holds what is no string"),
        }
    }
    Ok(renamed)
}

/// Limits as `table` has them, and as `defaults` are where it says nothing.
fn parse_limits(
    source: &SourceText,
    table: &TableReader<'_>,
    [aimd, budgets]: [&'static str; 2],
    defaults: &Limits,
) -> Result<Limits, FileError> {
    let outer = LimitSettings { choice: defaults.algorithm, is_given: false, aimd: defaults.aimd.clone() };
    let LimitSettings { choice: algorithm, aimd: settings, .. } = read_limit(source, table, aimd, outer)?;
    Ok(Limits {
        max_parallel: table.or("max_parallel", defaults.max_parallel)?,
        aimd: settings,
        algorithm,
        budgets: parse_budgets(source, table, budgets)?.unwrap_or_else(|| defaults.budgets.clone()),
    })
}

fn parse_budgets(
    source: &SourceText,
    owner: &TableReader<'_>,
    title: &'static str,
) -> Result<Option<Vec<BudgetConfig>>, FileError> {
    let Some(table) = owner.table("budgets", title, BUDGET_KEYS)? else { return Ok(None) };
    let mut budgets = Vec::new();
    for (key, dimension, per) in [
        ("requests_per_minute", Dimension::Requests, BudgetConfig::per_minute as fn(_, _) -> _),
        ("tokens_per_minute", Dimension::TotalTokens, BudgetConfig::per_minute),
        ("input_tokens_per_minute", Dimension::InputTokens, BudgetConfig::per_minute),
        ("output_tokens_per_minute", Dimension::OutputTokens, BudgetConfig::per_minute),
        ("requests_per_day", Dimension::Requests, BudgetConfig::per_day),
        ("tokens_per_day", Dimension::TotalTokens, BudgetConfig::per_day),
    ] {
        let Some(limit) = table.optional::<u64>(key)? else { continue };
        let budget: BudgetConfig = per(dimension, *limit.get_ref());
        budget.validate().map_err(|error| {
            source.error(limit.span(), format!("`{key}` in {title} is {}", error.value)).expected(error.expected)
        })?;
        budgets.push(budget);
    }
    Ok(Some(budgets))
}
