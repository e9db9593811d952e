//! The tables `[[providers]]`.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration as StdDuration;

use http::Method;
use reqwest::{Certificate, Url};
use tidegate_core::budget::{BudgetConfig, Dimension};
use toml::Spanned;
use toml::de::DeValue;

use super::super::guard::is_loopback;
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
    /// Whether it gets what clients prove themselves with, where it has no key of its own \[no\].
    pub forwards_client_key: bool,
    /// The authorities that may sign its certificate, instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
    /// Calls that are forwarded besides those of the usual API \[none\].
    pub passthrough: Vec<PassthroughRule>,
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

/// Calls that one provider gets besides those of the usual API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassthroughRule {
    /// The methods.
    pub methods: Vec<Method>,
    /// The path under `/v1/`; with a `*` at its end, every path that begins like that.
    pub path: String,
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
            forwards_client_key: false,
            authorities: None,
            passthrough: Vec::new(),
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
    "client_key",
    "allow_plain_http",
    "ca_file",
    "passthrough",
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
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Vec<ProviderConfig>, FileError> {
    let mut providers: Vec<ProviderConfig> = Vec::new();
    for table in root.tables("providers", "[[providers]]", KEYS)? {
        let name = table.required::<String>("name")?;
        if providers.iter().any(|other| other.name == *name.get_ref()) {
            let message = format!("there are two providers called `{}`", name.get_ref());
            return Err(source.error(name.span(), message).expected("a name that no other provider has"));
        }
        providers.push(parse_provider(source, &table, name.into_inner(), directory, environment)?);
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
    directory: &Path,
    environment: Environment<'_>,
) -> Result<ProviderConfig, FileError> {
    let (base_url, url_span) = parse_base_url(source, table)?;
    let defaults = ProviderConfig::at(&name, base_url);
    let api_key =
        table.optional::<String>("api_key_env")?.map(|name| read_key(source, &name, environment)).transpose()?;
    let forwards_client_key = parse_client_key(source, table)?;
    let sends_keys = api_key.is_some() || forwards_client_key;
    if sends_keys && is_plain_and_far(&defaults.base_url) && !table.or("allow_plain_http", false)? {
        let message = format!("keys would go to `{}` unencrypted", defaults.base_url.host_str().unwrap_or_default());
        return Err(source
            .error(url_span, message)
            .expected("an address with https, or of this machine; or `allow_plain_http = true` beside it"));
    }
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
        forwards_client_key,
        authorities: parse_authorities(source, table, directory, &defaults.base_url)?,
        passthrough: parse_passthrough(source, table)?,
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

/// Whether what is sent there can be read on the way.
pub(in crate::app::proxy) fn is_plain_and_far(url: &Url) -> bool {
    url.scheme() == "http" && !url.host_str().is_some_and(is_loopback)
}

fn parse_client_key(source: &SourceText, table: &TableReader<'_>) -> Result<bool, FileError> {
    let Some(given) = table.optional::<String>("client_key")? else { return Ok(false) };
    let refuse = |message: String| source.error(given.span(), message);
    match given.get_ref().as_str() {
        "forward" if table.raw("api_key_env").is_some() => {
            Err(refuse("`client_key` is given beside `api_key_env`, and only one key is sent".to_string())
                .expected("one of the two"))
        }
        "forward" => Ok(true),
        "drop" => Ok(false),
        other => Err(refuse(format!("`client_key` in [[providers]] is the string {other:?}"))
            .expected("\"forward\": the provider gets the keys of the clients; or \"drop\", the default: it gets none")
            .suggest(other, ["forward", "drop"])),
    }
}

fn parse_authorities(
    source: &SourceText,
    table: &TableReader<'_>,
    directory: &Path,
    base_url: &Url,
) -> Result<Option<Vec<Certificate>>, FileError> {
    let Some(file) = table.optional::<String>("ca_file")? else { return Ok(None) };
    let refuse = |message: String| source.error(file.span(), message).expected("a file of certificates in PEM");
    if base_url.scheme() != "https" {
        let message = "`ca_file` is given for an address without https, which has no certificate".to_string();
        return Err(source.error(file.span(), message).expected("an address with https, or no `ca_file`"));
    }
    let path = directory.join(file.get_ref());
    let text = std::fs::read(&path).map_err(|error| refuse(format!("cannot read {}: {error}", path.display())))?;
    match Certificate::from_pem_bundle(&text) {
        Ok(certificates) if !certificates.is_empty() => Ok(Some(certificates)),
        _ => Err(refuse(format!("{} holds no certificate", path.display()))),
    }
}

const PASSTHROUGH: &str = "`passthrough` in [[providers]]";

fn parse_passthrough(source: &SourceText, table: &TableReader<'_>) -> Result<Vec<PassthroughRule>, FileError> {
    let mut rules = Vec::new();
    for rule in table.tables("passthrough", PASSTHROUGH, &["methods", "path"])? {
        let mut methods = Vec::new();
        for method in rule.required::<Vec<Spanned<String>>>("methods")?.into_inner() {
            // TRACE sends back the key that the proxy adds, and CONNECT is for tunnels.
            let is_known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&method.get_ref().as_str());
            match method.get_ref().parse::<Method>() {
                Ok(known) if is_known => methods.push(known),
                _ => {
                    let message = format!("{:?} in {PASSTHROUGH} is no method that can be forwarded", method.get_ref());
                    return Err(source
                        .error(method.span(), message)
                        .expected("\"GET\", \"POST\", \"PUT\", \"PATCH\", \"DELETE\" or \"HEAD\""));
                }
            }
        }
        let path = rule.required::<String>("path")?;
        let is_segment = |segment: &str| {
            let is_letter = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !matches!(segment, "" | "." | "..") && segment.chars().all(is_letter)
        };
        let plain = path.get_ref().strip_prefix('/').map(|path| (path, path.strip_suffix("/*").unwrap_or(path)));
        match plain {
            Some((path, plain)) if plain.split('/').all(is_segment) => {
                rules.push(PassthroughRule { methods, path: path.to_string() });
            }
            _ => {
                let message = format!("{:?} in {PASSTHROUGH} is no path under /v1", path.get_ref());
                return Err(source.error(path.span(), message).expected("such as \"/files\" or \"/files/*\""));
            }
        }
    }
    Ok(rules)
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
