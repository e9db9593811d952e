//! `tidegate check`: whether a run could do its work, found out for next to nothing. First all that can be known without a call
//! ([`preflight`](crate::app::run::preflight)); then the smallest call to each model that a column calls, through the client and with the key of
//! a run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::join_all;
use serde::Serialize;
use tidegate_core::request::UnavailableCause;
use tidegate_core::request::response::Refusal;

use crate::app::config::pipeline::{Endpoint, ModelSpec};
use crate::app::error::{Error, Exit};
use crate::app::provider::probe::smallest_call;
use crate::app::provider::{CallError, Client};
use crate::app::render::table::{row, write_table};
use crate::app::run::estimate::SAMPLE_ROWS;
use crate::app::run::models::{Clients, called, is_variable_name};
use crate::app::run::preflight::{Preflight, bytes};
use crate::app::run::provider::what_to_do;
use crate::app::run::request::RunRequest;

/// What was found out, to be printed.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    pipeline: String,
    models: Vec<ModelCheck>,
    dataset: Option<DatasetCheck>,
    output: OutputCheck,
    /// What is wrong, apart from what models answered.
    problems: Vec<String>,
    /// The exit code: that of a run that meets the same.
    pub exit: Exit,
}

#[derive(Debug, Serialize)]
struct ModelCheck {
    model: String,
    provider: String,
    endpoint: String,
    /// The environment variable of the key; never the key.
    key_variable: Option<String>,
    #[serde(flatten)]
    state: ModelState,
}

/// What became of a model's call.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum ModelState {
    /// It answered.
    Answered { elapsed_ms: u64 },
    /// A judge that is not asked: its server is there.
    Reached { elapsed_ms: u64 },
    /// A judge that is not asked: its command is there.
    Found,
    /// It takes the key, and takes no call now.
    RateLimited { error: String },
    /// It cannot be used.
    Failed { error: String, what_to_do: String },
    /// Something on this machine is wrong with it; it is among the problems.
    NotReady,
    /// No column calls it.
    Unused,
}

#[derive(Debug, Serialize)]
struct DatasetCheck {
    path: PathBuf,
    rows: u64,
    columns: usize,
    /// Templates of the pipeline file that were rendered, and for how many rows.
    templates: usize,
    rendered_rows: u64,
}

#[derive(Debug, Serialize)]
struct OutputCheck {
    path: PathBuf,
    free_bytes: Option<u64>,
}

/// Looks at all that a run of `request` would need, and calls each of its models once. The error is a pipeline file that cannot be read.
pub async fn check(request: &RunRequest) -> Result<CheckReport, Error> {
    let found = Preflight::of(request)?;
    let states = call_models(&found).await?;
    let is_failed = |state: &ModelState| matches!(state, ModelState::Failed { .. });
    let of_calls = states.iter().any(is_failed).then_some(Exit::Provider);
    let of_problems = found.problems.iter().map(Error::exit);
    let exit = of_problems.chain(of_calls).min_by_key(|exit| exit.code()).unwrap_or(Exit::Done);
    let dataset = found.job.as_ref().map(|job| DatasetCheck {
        path: found.file.seed.path.clone(),
        rows: job.dataset.rows(),
        columns: job.dataset.columns().len(),
        templates: job.texts.len(),
        rendered_rows: SAMPLE_ROWS.min(job.rows.end - job.rows.start),
    });
    let models = found.file.models.iter().zip(states).map(|(model, state)| ModelCheck {
        model: model.name.clone(),
        provider: model.label(),
        endpoint: address(&model.endpoint),
        key_variable: model.endpoint.key_variable().filter(|name| is_variable_name(name)).map(str::to_string),
        state,
    });
    Ok(CheckReport {
        models: models.collect(),
        pipeline: found.name,
        dataset,
        output: OutputCheck { path: request.out.clone(), free_bytes: found.free },
        problems: found.problems.iter().map(ToString::to_string).collect(),
        exit,
    })
}

/// Calls each model that is called by a column and can be: those of one provider one after the other, and all providers at once.
async fn call_models(found: &Preflight) -> Result<Vec<ModelState>, Error> {
    let file = &found.file;
    let mut states: Vec<ModelState> = file.models.iter().map(|_| ModelState::Unused).collect();
    let mut providers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in called(file) {
        states[place] = ModelState::NotReady;
        if found.is_callable[place] {
            providers.entry(&file.models[place].provider).or_default().push(place);
        }
    }
    let clients = Clients::start(file).await?;
    let of_provider = async |places: Vec<usize>| {
        let mut states = Vec::with_capacity(places.len());
        for place in places {
            let state = match &clients.clients[place] {
                Ok(client) => call(client, &file.models[place]).await,
                Err(error) => ModelState::Failed {
                    error: error.to_string(),
                    what_to_do: "see what is wrong with this machine".to_string(),
                },
            };
            states.push((place, state));
        }
        states
    };
    for (place, state) in join_all(providers.into_values().map(of_provider)).await.into_iter().flatten() {
        states[place] = state;
    }
    Ok(states)
}

/// Calls `model` once.
async fn call(client: &Client, model: &ModelSpec) -> ModelState {
    let began = Instant::now();
    let answer = smallest_call(client).await;
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match (answer, client) {
        (Ok(_), Client::Chat(_) | Client::Embedding(_)) => ModelState::Answered { elapsed_ms },
        (Ok(_), Client::Http(_)) => ModelState::Reached { elapsed_ms },
        (Ok(_), Client::Command(_)) => ModelState::Found,
        (Err(error @ CallError::RateLimited { .. }), _) => ModelState::RateLimited { error: error.to_string() },
        (Err(error), _) => {
            let what_to_do = advice(&error, model.endpoint.key_variable());
            ModelState::Failed { error: error.to_string(), what_to_do }
        }
    }
}

/// What a person can do about a call that failed.
fn advice(error: &CallError, key_variable: Option<&str>) -> String {
    match error {
        CallError::KeyRejected { .. } => match key_variable {
            Some(name) => format!("check the key in `{name}`"),
            None => "it needs a key: see `api_key_env`".to_string(),
        },
        CallError::QuotaExhausted { .. } => what_to_do(UnavailableCause::QuotaExhausted).to_string(),
        CallError::ModelNotFound { .. } => what_to_do(UnavailableCause::ModelNotFound).to_string(),
        CallError::RateLimited { .. } => what_to_do(UnavailableCause::RateLimited).to_string(),
        CallError::Connection { .. } => "check its address, and that its server is up".to_string(),
        CallError::Timeout => "check its address, or see `timeout`".to_string(),
        CallError::Server { .. }
        | CallError::ServerTimeout { .. }
        | CallError::Broken { .. }
        | CallError::CommandBusy { .. } => what_to_do(UnavailableCause::Outage).to_string(),
        CallError::Rejected { refusal: Refusal::Forbidden, .. } => "see what its key may do".to_string(),
        CallError::Rejected { refusal: Refusal::NotFound, .. } => "check its `base_url`".to_string(),
        CallError::Rejected { .. } => "see what the model takes".to_string(),
        CallError::Unreadable { .. } | CallError::Malformed { .. } => {
            "check that its `base_url` is that of an OpenAI-compatible API".to_string()
        }
        CallError::Command { .. } => "check its `command`".to_string(),
    }
}

/// Where calls go, without what may be a secret: a query, the arguments of a command.
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
            Self::Reached { elapsed_ms } => write!(f, "its server answered in {elapsed_ms} ms; it was not asked"),
            Self::Found => f.write_str("the command is there; it was not asked"),
            Self::RateLimited { error } => write!(f, "can be used, and takes no call now: {error}"),
            Self::Failed { error, what_to_do } => write!(f, "FAILED: {error}; {what_to_do}"),
            Self::NotReady => f.write_str("not called: see below"),
            Self::Unused => f.write_str("not called: no column calls it"),
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.pipeline)?;
        writeln!(f)?;
        let mut table = vec![row(["model", "provider", "endpoint", "key", "result"])];
        for one in &self.models {
            let key = one.key_variable.clone().unwrap_or_else(|| "-".to_string());
            table.push(vec![one.model.clone(), one.provider.clone(), one.endpoint.clone(), key, one.state.to_string()]);
        }
        if !self.models.is_empty() {
            write_table(f, &table, 5)?;
            writeln!(f)?;
        }
        if let Some(dataset) = &self.dataset {
            let DatasetCheck { path, rows, columns, templates, rendered_rows } = dataset;
            writeln!(f, "  dataset    {}: {rows} rows of {columns} columns", path.display())?;
            writeln!(f, "  templates  {templates}, rendered for the first {rendered_rows} rows")?;
        }
        write!(f, "  output     {}", self.output.path.display())?;
        match self.output.free_bytes {
            Some(free) => writeln!(f, ": {} free", bytes(free))?,
            None => writeln!(f)?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}\n"))
    }
}
