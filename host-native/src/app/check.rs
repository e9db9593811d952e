//! `tidegate check`: finds out at nearly no cost whether a run can succeed.
//!
//! The checks without a call come first ([`preflight`](crate::app::run::preflight)). Then each model that a
//! column uses is called once ([`probe_model`]), with the same client and key as in a run.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::join_all;
use serde::Serialize;
use tidegate_core::request::UnavailableCause;
use tidegate_core::request::response::RejectionReason;

use crate::app::config::pipeline::{Endpoint, ModelSpec};
use crate::app::error::{Error, Exit};
use crate::app::provider::key::can_be_shown;
use crate::app::provider::probe::probe_model;
use crate::app::provider::{CallError, Client};
use crate::app::render::table::format_bytes;
use crate::app::render::table::{row, write_table};
use crate::app::run::connect_share;
use crate::app::run::estimate::SAMPLE_ROWS;
use crate::app::run::models::{Clients, called_models};
use crate::app::run::preflight::Preflight;
use crate::app::run::provider::remedy;
use crate::app::run::request::RunRequest;

/// The result of the check. Serialized for `--json`, and displayed as text otherwise.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    pipeline: String,
    models: Vec<ModelCheck>,
    dataset: Option<DatasetCheck>,
    output: OutputCheck,
    /// With which processes limits are shared, if they are and the store can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    sharing: Option<String>,
    /// The limits that are shared now, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared_limits: Vec<String>,
    /// Error messages, except those of model calls.
    problems: Vec<String>,
    /// The exit code of a run with the same problems.
    pub exit: Exit,
}

#[derive(Debug, Serialize)]
struct ModelCheck {
    model: String,
    provider: String,
    endpoint: String,
    /// The name of the environment variable that holds the key. The key itself is never shown.
    key_variable: Option<String>,
    #[serde(flatten)]
    state: ModelState,
}

/// The result for one model.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum ModelState {
    /// The model answered.
    Answered { elapsed_ms: u64 },
    /// An HTTP judge, which is not called: its server can be reached.
    Reached { elapsed_ms: u64 },
    /// A command judge, which is not called: its program exists.
    Found,
    /// The key is accepted, but the model is rate limited.
    RateLimited { error: String },
    /// The model cannot be used.
    Failed { error: String, what_to_do: String },
    /// The model was not called because of one of the problems, such as a missing key.
    NotReady,
    /// The model was not called because no column uses it.
    Unused,
}

#[derive(Debug, Serialize)]
struct DatasetCheck {
    /// The file; `None` if all columns are generated.
    path: Option<String>,
    rows: u64,
    /// The number of rows to accept, if `rows` counts candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_rows: Option<u64>,
    columns: usize,
    /// The number of templates in the pipeline file that were rendered.
    templates: usize,
    /// The number of rows for which they were rendered.
    rendered_rows: u64,
}

#[derive(Debug, Serialize)]
struct OutputCheck {
    path: PathBuf,
    free_bytes: Option<u64>,
}

/// Checks everything that a run of `request` needs, and calls each of its models once.
///
/// # Errors
///
/// If the pipeline file cannot be read. All other problems are part of the report.
pub async fn check(request: &RunRequest) -> Result<CheckReport, Error> {
    let mut preflight = Preflight::run(request, &mut |line| drop(writeln!(io::stderr(), "{line}"))).await?;
    let (mut sharing, mut shared_limits) = (None, Vec::new());
    match connect_share(&preflight.file, request).await {
        Ok(None) => {}
        Ok(Some(share)) => {
            sharing = Some(share.to_string());
            shared_limits = share.describe_limits().await;
        }
        Err(error) => preflight.problems.push(error),
    }
    let states = call_models(&preflight).await?;
    let is_failed = |state: &ModelState| matches!(state, ModelState::Failed { .. });
    let call_exit = states.iter().any(is_failed).then_some(Exit::Provider);
    let problem_exits = preflight.problems.iter().map(Error::exit);
    let exit = problem_exits.chain(call_exit).min_by_key(|exit| exit.code()).unwrap_or(Exit::Done);
    let dataset = preflight.resolved.as_ref().map(|resolved| DatasetCheck {
        path: preflight.file.rows.dataset.as_ref().map(|seed| seed.location.to_string()),
        rows: resolved.dataset.rows(),
        accepted_rows: preflight.file.rows.wanted,
        columns: resolved.dataset.columns().len(),
        templates: resolved.template_sources.len(),
        rendered_rows: SAMPLE_ROWS.min(resolved.rows.end - resolved.rows.start),
    });
    let models = preflight.file.models.iter().zip(states).map(|(model, state)| ModelCheck {
        model: model.name.clone(),
        provider: model.label(),
        endpoint: address(&model.endpoint),
        key_variable: model.secret_variables().find(|name| can_be_shown(name)).map(str::to_string),
        state,
    });
    Ok(CheckReport {
        models: models.collect(),
        pipeline: preflight.name,
        dataset,
        output: OutputCheck { path: request.out.clone(), free_bytes: preflight.free_bytes },
        sharing,
        shared_limits,
        problems: preflight.problems.iter().map(ToString::to_string).collect(),
        exit,
    })
}

/// Calls each model that a column uses and that can be called. The models of one provider are called one
/// after the other, and all providers concurrently. Returns the states in file order.
async fn call_models(preflight: &Preflight) -> Result<Vec<ModelState>, Error> {
    let file = &preflight.file;
    let mut states: Vec<ModelState> = file.models.iter().map(|_| ModelState::Unused).collect();
    let mut providers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in called_models(file) {
        states[index] = ModelState::NotReady;
        if preflight.is_callable[index] {
            providers.entry(&file.models[index].provider).or_default().push(index);
        }
    }
    let clients = Clients::start(file).await?;
    let of_provider = async |indexes: Vec<usize>| {
        let mut states = Vec::with_capacity(indexes.len());
        for index in indexes {
            let state = match &clients.clients[index] {
                Ok(client) => call(client, &file.models[index]).await,
                Err(error) => ModelState::Failed {
                    error: error.to_string(),
                    what_to_do: "check the setup of this machine".to_string(),
                },
            };
            states.push((index, state));
        }
        states
    };
    for (index, state) in join_all(providers.into_values().map(of_provider)).await.into_iter().flatten() {
        states[index] = state;
    }
    Ok(states)
}

/// Calls `model` once and measures the time.
async fn call(client: &Client, model: &ModelSpec) -> ModelState {
    let start = Instant::now();
    let result = probe_model(client).await;
    let elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    match (result, client) {
        (Ok(_), Client::Chat(_) | Client::Embedding(_)) => ModelState::Answered { elapsed_ms },
        (Ok(_), Client::Image(_) | Client::Http(_) | Client::Batch(_)) => ModelState::Reached { elapsed_ms },
        (Ok(_), Client::Command(_)) => ModelState::Found,
        (Err(error @ CallError::RateLimited { .. }), _) => ModelState::RateLimited { error: error.to_string() },
        (Err(error), _) => {
            let what_to_do = advice(&error, model.secret_variables().next());
            ModelState::Failed { error: error.to_string(), what_to_do }
        }
    }
}

/// Returns what the user can do about a failed call.
fn advice(error: &CallError, key_variable: Option<&str>) -> String {
    match error {
        CallError::KeyRejected { .. } => match key_variable {
            Some(name) => format!("check the key in `{name}`"),
            None => "set a key with `api_key_env`".to_string(),
        },
        CallError::QuotaExhausted { .. } => remedy(UnavailableCause::QuotaExhausted).to_string(),
        CallError::ModelNotFound { .. } => remedy(UnavailableCause::ModelNotFound).to_string(),
        CallError::RateLimited { .. } => remedy(UnavailableCause::RateLimited).to_string(),
        CallError::Connection { .. } => "check the address, and that the server is running".to_string(),
        CallError::Tls { .. } => remedy(UnavailableCause::TlsFailed).to_string(),
        CallError::Timeout => "check the address, or increase `timeout`".to_string(),
        CallError::Server { .. }
        | CallError::ServerTimeout { .. }
        | CallError::Broken { .. }
        | CallError::NotDownloaded { .. }
        | CallError::CommandBusy { .. } => remedy(UnavailableCause::Outage).to_string(),
        CallError::Rejected { rejection: RejectionReason::Forbidden, .. } => {
            "check the permissions of the key".to_string()
        }
        CallError::Rejected { status: 300..400, .. }
        | CallError::Rejected { rejection: RejectionReason::NotFound, .. } => "check `base_url`".to_string(),
        CallError::ContentFiltered { .. }
        | CallError::Refused { .. }
        | CallError::Rejected { rejection: RejectionReason::ContentFiltered, .. } => {
            "check the content filter of the model".to_string()
        }
        CallError::Rejected { .. } => "check which parameters the model accepts".to_string(),
        CallError::Unreadable { .. } | CallError::Malformed { .. } => {
            "check that `base_url` is the address of an OpenAI-compatible API".to_string()
        }
        CallError::NotSent { .. } => "check the file".to_string(),
        CallError::NotAnswered { .. } | CallError::BatchBlocked { .. } => {
            "read the message of the provider".to_string()
        }
        CallError::Command { .. } | CallError::CommandNotStarted { .. } => "check `command`".to_string(),
    }
}

/// Returns the address of a model without the parts that may contain secrets: the query of a URL, and the
/// arguments of a command.
fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Remote { base_url, .. } => base_url.to_string(),
        Endpoint::Http { url, .. } => {
            let mut url = url.clone();
            url.set_query(None);
            url.to_string()
        }
        Endpoint::Command { argv, .. } => argv.first().cloned().unwrap_or_default(),
        Endpoint::Mock(_) | Endpoint::SameMock => "served in this process".to_string(),
    }
}

impl fmt::Display for ModelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { elapsed_ms } => write!(f, "answered in {elapsed_ms} ms"),
            Self::Reached { elapsed_ms } => write!(f, "server reached in {elapsed_ms} ms; not called"),
            Self::Found => f.write_str("command found; not called"),
            Self::RateLimited { error } => write!(f, "usable, but rate limited now: {error}"),
            Self::Failed { error, what_to_do } => write!(f, "FAILED: {error}; {what_to_do}"),
            Self::NotReady => f.write_str("not called: see below"),
            Self::Unused => f.write_str("not called: no column uses it"),
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.pipeline)?;
        writeln!(f)?;
        let mut table = vec![row(["model", "provider", "endpoint", "key", "result"])];
        for model in &self.models {
            let key = model.key_variable.clone().unwrap_or_else(|| "-".to_string());
            table.push(vec![
                model.model.clone(),
                model.provider.clone(),
                model.endpoint.clone(),
                key,
                model.state.to_string(),
            ]);
        }
        if !self.models.is_empty() {
            write_table(f, &table, 5)?;
            writeln!(f)?;
        }
        if let Some(dataset) = &self.dataset {
            let DatasetCheck { path, rows, accepted_rows, columns, templates, rendered_rows } = dataset;
            match (path, accepted_rows) {
                (Some(path), None) => writeln!(f, "  dataset    {path}: {rows} rows of {columns} columns")?,
                (Some(path), Some(accepted)) => writeln!(
                    f,
                    "  dataset    {path}: {rows} rows of {columns} columns, of which {accepted} are to be accepted"
                )?,
                (None, None) => writeln!(f, "  dataset    none: {rows} rows are generated")?,
                (None, Some(accepted)) => {
                    writeln!(f, "  dataset    none: up to {rows} rows are generated, until {accepted} are accepted")?;
                }
            }
            writeln!(f, "  templates  {templates}, rendered for the first {rendered_rows} rows")?;
        }
        write!(f, "  output     {}", self.output.path.display())?;
        match self.output.free_bytes {
            Some(free) => writeln!(f, ": {} free", format_bytes(free))?,
            None => writeln!(f)?,
        }
        if let Some(sharing) = &self.sharing {
            writeln!(f, "  sharing    {sharing}")?;
        }
        for limit in &self.shared_limits {
            writeln!(f, "             {limit}")?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}\n"))
    }
}
