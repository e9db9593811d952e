//! The tables `[[providers]]`.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::time::Duration as StdDuration;

use http::Method;
use reqwest::{Certificate, Url};
use wildmatch::WildMatch;

use super::raw::{ClientKey, RawPassthrough, RawProvider, RawProviderModel};
use super::{Environment, key_from, patterns};
use crate::app::config::budgets::RawBudgets;
use crate::app::config::document::Document;
use crate::app::config::limit::{LimitKeys, LimitSettings, read_limit};
use crate::app::config::source::FileError;
use crate::app::config::transport::address;
use crate::app::config::transport::{check_plain_http, read_authorities};
use crate::app::config::value::{Checked, Table, Text, WithSpan};
use crate::app::provider::ApiKey;
use crate::gate::Limits;

/// The default of `max_parallel`.
const MAX_PARALLEL: NonZeroU32 = NonZeroU32::new(64).expect("it is not 0");

/// One `[[providers]]` table.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// The name of the provider, also in labels.
    pub name: String,
    /// The base URL of the API.
    pub base_url: Url,
    /// The key that replaces those of the clients.
    pub api_key: Option<ApiKey>,
    /// Whether the keys of clients are forwarded, if there is no `api_key` \[false\].
    pub forwards_client_key: bool,
    /// The certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
    /// Calls that are forwarded besides those of the usual API \[none\].
    pub passthrough: Vec<PassthroughRule>,
    /// Patterns of the models that it serves \[all\].
    pub serves: Vec<WildMatch>,
    /// Pairs of the model id of the client and the model id to send.
    pub rename: Vec<(String, String)>,
    /// Whether the proxy asks for the usage of a stream if the client does not \[true\].
    pub stream_usage: bool,
    /// The read timeout of a call \[10 min\].
    pub timeout: StdDuration,
    /// The connect timeout \[10 s\].
    pub connect_timeout: StdDuration,
    /// The default limits of its models.
    pub limits: Limits,
    /// The maximum number of models and kinds of call that are not in `models` \[64\].
    pub at_most_models: u32,
    /// Models with limits of their own.
    pub models: Vec<ModelConfig>,
}

/// Calls that are forwarded to one provider besides those of the usual API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassthroughRule {
    /// The allowed methods.
    pub methods: Vec<Method>,
    /// The path under `/v1/`. A `*` at the end matches every path with that prefix.
    pub path: String,
}

/// One `[[providers.models]]` table.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The model id as it is sent to the provider.
    pub name: String,
    /// The limits of the model.
    pub limits: Limits,
}

impl ProviderConfig {
    /// Returns a provider that serves every model, with defaults for the rest.
    #[must_use]
    pub fn at(name: &str, base_url: Url) -> Self {
        Self {
            name: name.to_string(),
            base_url,
            api_key: None,
            forwards_client_key: false,
            authorities: None,
            passthrough: Vec::new(),
            serves: vec![WildMatch::new("*")],
            rename: Vec::new(),
            stream_usage: true,
            timeout: StdDuration::from_mins(10),
            connect_timeout: StdDuration::from_secs(10),
            limits: Limits::at_most(MAX_PARALLEL.get()),
            at_most_models: 64,
            models: Vec::new(),
        }
    }
}

/// Checks the providers. There must be at least one.
pub(super) fn check(
    file: &Document<'_>,
    raw: Vec<WithSpan<Table<RawProvider>>>,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Vec<ProviderConfig>, FileError> {
    let mut providers: Vec<ProviderConfig> = Vec::new();
    for table in raw {
        let name = &table.get().name;
        if providers.iter().any(|other| other.name == name.get().0) {
            let message = format!("there are two providers called `{}`", name.get().0);
            return Err(file.error(name.span(), message).expected("a name that no other provider has"));
        }
        providers.push(check_provider(file, table, directory, environment)?);
    }
    if providers.is_empty() {
        return Err(file
            .error(0..0, "the proxy file has no [[providers]]")
            .expected("[[providers]] with `name = ` and `base_url = `"));
    }
    Ok(providers)
}

fn check_provider(
    file: &Document<'_>,
    table: WithSpan<Table<RawProvider>>,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<ProviderConfig, FileError> {
    let span = table.span();
    let Table(raw) = table.into_inner();
    let base_url = address(file, "base_url", Some(&raw.base_url), &span, false)?;
    let defaults = ProviderConfig::at(&raw.name.get().0, base_url);
    let api_key = raw.api_key_env.as_ref().map(|name| read_key(file, name, environment)).transpose()?;
    let forwards_client_key = check_client_key(file, &raw)?;
    if api_key.is_some() || forwards_client_key {
        check_plain_http(file, &defaults.base_url, raw.base_url.span(), raw.allow_plain_http)?;
    }
    let limits =
        check_limits(file, &span, raw.limit_keys(), raw.max_parallel, raw.budgets.as_deref(), &defaults.limits)?;
    let mut models: Vec<ModelConfig> = Vec::new();
    for model in &raw.models {
        let RawProviderModel { name: Checked(name), max_parallel, budgets, .. } = &**model.get();
        let keys = model.get().limit_keys();
        let limits = check_limits(file, &model.span(), keys, *max_parallel, budgets.as_deref(), &limits)?;
        models.push(ModelConfig { name: name.clone(), limits });
    }
    let timeout = file.positive(raw.timeout.as_ref())?;
    let connect_timeout = file.positive(raw.connect_timeout.as_ref())?;
    Ok(ProviderConfig {
        forwards_client_key,
        authorities: read_authorities(file, raw.ca_file.as_ref(), directory, &defaults.base_url)?,
        passthrough: raw
            .passthrough
            .iter()
            .map(|rule| check_passthrough(file, rule.get()))
            .collect::<Result<_, _>>()?,
        api_key,
        serves: raw.serves.map_or(defaults.serves, patterns),
        rename: raw.rename.into_iter().map(|(requested, Checked(sent))| (requested, sent)).collect(),
        stream_usage: raw.stream_usage.unwrap_or(defaults.stream_usage),
        timeout: timeout.map_or(defaults.timeout, StdDuration::from),
        connect_timeout: connect_timeout.map_or(defaults.connect_timeout, StdDuration::from),
        limits,
        at_most_models: raw.at_most_models.unwrap_or(defaults.at_most_models),
        models,
        name: defaults.name,
        base_url: defaults.base_url,
    })
}

fn check_client_key(file: &Document<'_>, raw: &RawProvider) -> Result<bool, FileError> {
    match &raw.client_key {
        Some(given) if *given.get() == ClientKey::Forward && raw.api_key_env.is_some() => Err(file
            .error(given.span(), "`client_key` is given beside `api_key_env`, and only one key is sent")
            .expected("one of the two")),
        Some(given) => Ok(*given.get() == ClientKey::Forward),
        None => Ok(false),
    }
}

fn check_passthrough(file: &Document<'_>, rule: &RawPassthrough) -> Result<PassthroughRule, FileError> {
    const PASSTHROUGH: &str = "`passthrough` in [[providers]]";
    let mut methods = Vec::new();
    for method in &rule.methods {
        // TRACE would return the key that the proxy adds, and CONNECT is for tunnels.
        let text = method.get().0.as_str();
        let is_known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&text);
        match text.parse::<Method>() {
            Ok(known) if is_known => methods.push(known),
            _ => {
                let message = format!("{text:?} in {PASSTHROUGH} is not a method that can be forwarded");
                return Err(file
                    .error(method.span(), message)
                    .expected("\"GET\", \"POST\", \"PUT\", \"PATCH\", \"DELETE\" or \"HEAD\""));
            }
        }
    }
    let path = rule.path.get().0.as_str();
    let is_segment = |segment: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        !matches!(segment, "" | "." | "..") && segment.chars().all(is_letter)
    };
    match path.strip_prefix('/').map(|path| (path, path.strip_suffix("/*").unwrap_or(path))) {
        Some((path, plain)) if plain.split('/').all(is_segment) => {
            Ok(PassthroughRule { methods, path: path.to_string() })
        }
        _ => Err(file
            .error(rule.path.span(), format!("{path:?} in {PASSTHROUGH} is not a path under /v1"))
            .expected("such as \"/files\" or \"/files/*\"")),
    }
}

fn read_key(file: &Document<'_>, name: &WithSpan<Text>, environment: Environment<'_>) -> Result<ApiKey, FileError> {
    ApiKey::new(&key_from(file, name, environment)?).ok_or_else(|| {
        let message =
            format!("the environment variable `{}` holds characters that a header cannot carry", name.get().0);
        file.error(name.span(), message).expected("a key of one line")
    })
}

/// Returns the limits of the table at `table`, with `defaults` for missing keys.
fn check_limits(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: LimitKeys<'_>,
    max_parallel: Option<NonZeroU32>,
    budgets: Option<&RawBudgets>,
    defaults: &Limits,
) -> Result<Limits, FileError> {
    let outer =
        LimitSettings { choice: defaults.algorithm, is_given: false, limit_config: defaults.limit_config.clone() };
    let LimitSettings { choice: algorithm, limit_config, .. } = read_limit(file, table, keys, outer)?;
    Ok(Limits {
        max_parallel: max_parallel.unwrap_or(defaults.max_parallel),
        limit_config,
        algorithm,
        budgets: match budgets {
            Some(budgets) => budgets.check(file)?,
            None => defaults.budgets.clone(),
        },
    })
}
