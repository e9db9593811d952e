//! The models of a pipeline, started: mocks served, keys read, every provider registered at one gate.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::error::ConfigError;
use tidegate_core::gate::Gate;
use tidegate_core::replay::{Recorded, Sequence};
use tidegate_core::request::{GroupId, RequestAdmission, RequestConfig, ResourceId};
use tokio::task::JoinSet;

use crate::app::config::pipeline::{Domain, Endpoint, FileError, ModelSpec, PipelineFile};
use crate::app::error::Error;
use crate::app::mock::MockServer;
use crate::app::provider::command::Command;
use crate::app::provider::cost::{Ledger, Price, SharedLedger};
use crate::app::provider::embedding::EmbeddingClient;
use crate::app::provider::http::{HttpClient, HttpEndpoint};
use crate::app::provider::{ApiKey, ChatClient, ChatEndpoint, Client};
use crate::app::run::provider::Provider;
use crate::app::run::resolve::request_resource;
use crate::host::TokioHost;
use crate::observe::jsonl::ResourceName;

/// All models of a run.
#[derive(Debug)]
pub struct Models {
    gate: Gate<TokioHost>,
    providers: Vec<Arc<Provider>>,
    /// By model of the file: its client, and its provider's place in `providers`.
    callers: Vec<(Client, usize)>,
    ledger: Arc<SharedLedger>,
    /// Mocks stop when dropped.
    _mocks: Vec<MockServer>,
    /// Ends with the run.
    _health_calls: JoinSet<()>,
}

/// A resource of the gate that models share.
struct Shared {
    label: String,
    resource: ResourceId,
    price: Option<Price>,
}

impl Models {
    /// Starts what the models of `file` need. Nothing is called yet.
    ///
    /// With a `record`, request admission takes its commands down from the first one on. What calls cost goes into
    /// `ledger`, which may forbid them.
    pub async fn start(
        file: &PipelineFile,
        host: &TokioHost,
        requests: &RequestConfig,
        record: Option<&Sequence>,
        ledger: Ledger,
    ) -> Result<Self, Error> {
        let Clients { clients, mocks } = Clients::start(file).await?;
        let (gate, places, shared) = register(file, host, requests, record)?;
        let clients: Vec<Client> = clients.into_iter().collect::<Result<_, _>>()?;
        let callers: Vec<(Client, usize)> = clients.into_iter().zip(places).collect();
        let ledger = Arc::new(SharedLedger::new(ledger));
        let provider = |shared: Shared| {
            Arc::new(Provider::new(shared.label, gate.clone(), shared.resource, shared.price, Arc::clone(&ledger)))
        };
        let providers: Vec<Arc<Provider>> = shared.into_iter().map(provider).collect();
        let health_calls = make_health_calls(&providers, &callers);
        Ok(Self { gate, providers, callers, ledger, _mocks: mocks, _health_calls: health_calls })
    }

    /// What was spent so far, and whether more may be.
    #[must_use]
    pub fn ledger(&self) -> &SharedLedger {
        &self.ledger
    }

    /// A fairness group of the gate.
    pub fn group(&self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        self.gate.with(|machine, _| machine.group(name, weight))
    }

    /// The provider and client of the model at `index` in the file.
    #[must_use]
    pub fn caller(&self, index: usize) -> (Arc<Provider>, Client) {
        let (client, provider) = &self.callers[index];
        (Arc::clone(&self.providers[*provider]), client.clone())
    }

    /// All providers, in file order of their first models.
    #[must_use]
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    /// The gate that all calls go through.
    #[must_use]
    pub fn gate(&self) -> &Gate<TokioHost> {
        &self.gate
    }

    /// What the resources in events are called.
    #[must_use]
    pub fn resource_names(&self) -> Vec<ResourceName> {
        let name = |provider: &Arc<Provider>| {
            let model = self.gate.with(|machine, _| machine.owner(provider.resource()))?;
            Some(ResourceName { resource: provider.resource(), model, name: provider.label.clone() })
        };
        self.providers.iter().filter_map(name).collect()
    }

    /// The task-stage resources that stand for calls to these models, with what they stand for.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, ResourceId)> {
        let call = |provider: &Arc<Provider>| (request_resource(&provider.label), provider.resource());
        self.providers.iter().map(call).collect()
    }
}

/// Makes the health calls of all providers, each with the client of its first model. A judge is asked for none: it may cost.
fn make_health_calls(providers: &[Arc<Provider>], callers: &[(Client, usize)]) -> JoinSet<()> {
    let mut health_calls = JoinSet::new();
    for (place, provider) in providers.iter().enumerate() {
        let first = callers.iter().find(|(_, of)| *of == place).map(|(client, _)| client);
        if let Some(client @ (Client::Chat(_) | Client::Embedding(_))) = first {
            let (provider, client) = (Arc::clone(provider), client.clone());
            health_calls.spawn(async move { provider.make_health_calls(&client).await });
        }
    }
    health_calls
}

/// The task-stage resources that stand for calls to the models of `file`, with their limits: twice the cap, so that a
/// call stands ready for each slot that comes free.
#[must_use]
pub fn task_resources(file: &PipelineFile) -> Vec<(String, u32)> {
    let mut resources: Vec<(String, u32)> = Vec::new();
    for model in &file.models {
        let cap = lowest_cap(file, model);
        let resource = (request_resource(&model.label()), cap.saturating_mul(2));
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    resources
}

/// The cap of a provider and model id: the lowest of all models that share them, over all domains.
fn lowest_cap(file: &PipelineFile, model: &ModelSpec) -> u32 {
    let same = file.models.iter().filter(|other| other.provider == model.provider && other.model == model.model);
    same.map(|other| other.max_parallel.get()).min().unwrap_or(1)
}

/// The models that columns of `file` call, by their places in it.
#[must_use]
pub fn called(file: &PipelineFile) -> BTreeSet<usize> {
    file.columns.iter().filter_map(|column| column.kind.model()).collect()
}

/// What keeps the model at `place` of `file` from being called, as far as this machine can say: a key that is not there, a command that
/// is not there.
pub fn check(file: &PipelineFile, place: usize) -> Result<(), FileError> {
    let model = &file.models[place];
    if let Some(name) = model.endpoint.key_variable() {
        read_key(file, model, name)?;
    }
    let Endpoint::Command { argv, directory } = &model.endpoint else { return Ok(()) };
    match command(argv, directory, model).find() {
        Ok(_) => Ok(()),
        Err(why) => {
            let program = argv.first().map_or("", String::as_str);
            let message = format!("the model `{}` is the command `{program}`, {why}", model.name);
            Err(file.source.error(model.span.clone(), message).expected("a program that can be run"))
        }
    }
}

/// A gate that knows the models of `file`, and nothing behind it: for a plan of a run that makes no call.
pub fn plan_gate(file: &PipelineFile, host: &TokioHost) -> Result<Gate<TokioHost>, Error> {
    register(file, host, &RequestConfig::default(), None).map(|(gate, _, _)| gate)
}

/// A gate; by model the place of its resource; and the resources.
type Registered = (Gate<TokioHost>, Vec<usize>, Vec<Shared>);

/// A gate that knows the models of `file`.
fn register(
    file: &PipelineFile,
    host: &TokioHost,
    requests: &RequestConfig,
    record: Option<&Sequence>,
) -> Result<Registered, Error> {
    let refused = |model: &ModelSpec, error: &ConfigError| {
        Error::from(file.source.error(model.span.clone(), format!("the model `{}`: {error}", model.name)))
    };
    let internal = |error: ConfigError| Error::Internal(error.to_string());
    let mut machine = Recorded::new(RequestAdmission::new(requests.clone()).map_err(internal)?);
    if let Some(sequence) = record {
        machine.start_recording(sequence);
    }
    let gate = Gate::new(host.clone(), machine);
    let mut shared: Vec<Shared> = Vec::new();
    let mut places = Vec::with_capacity(file.models.len());
    for model in &file.models {
        let place = gate.with(|machine, now| {
            let cap = model.max_parallel.get();
            let id = machine.register(now, &model.provider, &model.model, &model.name, cap)?;
            let resource = machine.resource(id, model.domain.into())?;
            let label = model.label();
            let known = shared.iter().position(|known| known.label == label);
            if known.is_none() {
                machine.configure(now, resource, model.aimd.clone())?;
                if !model.limit.is_aimd() {
                    machine.choose_algorithm(now, resource, model.limit)?;
                }
                if !model.budgets.is_empty() {
                    machine.set_budgets(now, resource, &model.budgets)?;
                }
                shared.push(Shared { label, resource, price: model.price });
            }
            Ok(known.unwrap_or(shared.len() - 1))
        });
        places.push(place.map_err(|error| refused(model, &error))?);
    }
    Ok((gate, places, shared))
}

/// A client for each model of a file, and the mocks that some of them call, which stop when dropped.
#[derive(Debug)]
pub struct Clients {
    /// By model of the file. One that no column calls has no key.
    pub clients: Vec<Result<Client, Error>>,
    mocks: Vec<MockServer>,
}

impl Clients {
    /// Starts the mocks, and makes the clients. Nothing is called yet.
    pub async fn start(file: &PipelineFile) -> Result<Self, Error> {
        let called = called(file);
        let mut started = Self { clients: Vec::with_capacity(file.models.len()), mocks: Vec::new() };
        // Mocks by the model ids they serve.
        let mut addresses: Vec<(&str, String)> = Vec::new();
        for (place, model) in file.models.iter().enumerate() {
            if let Endpoint::Mock(mock) = &model.endpoint {
                let server = MockServer::start(&mock.provider, mock.seed).await?;
                addresses.push((&model.model, server.base_url()));
                started.mocks.push(server);
            }
            let served = addresses.iter().find(|(served, _)| *served == model.model);
            let mock = served.map_or("", |(_, address)| address);
            started.clients.push(client(file, model, called.contains(&place), mock));
        }
        Ok(started)
    }
}

/// The client of `model`, whose mock, if it is one, is served at `mock`. A model that is not called needs no key.
fn client(file: &PipelineFile, model: &ModelSpec, is_called: bool, mock: &str) -> Result<Client, Error> {
    let key = |name: &Option<String>| match name.as_deref().filter(|_| is_called) {
        Some(name) => read_key(file, model, name).map(Some),
        None => Ok(None),
    };
    match &model.endpoint {
        Endpoint::Remote { base_url, api_key_env } => remote_client(file, model, base_url.as_str(), key(api_key_env)?),
        Endpoint::Mock(_) | Endpoint::SameMock => remote_client(file, model, mock, None),
        Endpoint::Http { url, api_key_env } => {
            let (url, api_key, timeout) = (url.clone(), key(api_key_env)?, model.timeout);
            let client = HttpClient::new(HttpEndpoint { url, api_key, timeout, bypass_proxy: false });
            client.map(Client::Http).map_err(|error| no_https(file, model, &error))
        }
        Endpoint::Command { argv, directory } => Ok(Client::Command(command(argv, directory, model))),
    }
}

/// A client of an OpenAI-compatible endpoint, for what the model is asked for.
fn remote_client(
    file: &PipelineFile,
    model: &ModelSpec,
    address: &str,
    api_key: Option<ApiKey>,
) -> Result<Client, Error> {
    let endpoint = ChatEndpoint {
        base_url: address.parse().map_err(|error| Error::Internal(format!("{address:?}: {error}")))?,
        model: model.model.clone(),
        api_key,
        timeout: model.timeout,
        bypass_proxy: !matches!(model.endpoint, Endpoint::Remote { .. }),
    };
    let client = match model.domain {
        Domain::Embedding => EmbeddingClient::new(endpoint).map(Client::Embedding),
        Domain::Chat | Domain::Judge => ChatClient::new(endpoint).map(Client::Chat),
    };
    client.map_err(|error| no_https(file, model, &error))
}

fn no_https(file: &PipelineFile, model: &ModelSpec, error: &str) -> Error {
    let message = format!("the model `{}`: HTTPS cannot be set up: {error}", model.name);
    file.source.error(model.span.clone(), message).into()
}

/// The command `argv`. A program that is named by a relative path is meant from `directory`, where the command runs; one
/// that is a mere name is looked up in `PATH`.
fn command(argv: &[String], directory: &Path, model: &ModelSpec) -> Command {
    let (program, arguments) = argv.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let program = Path::new(program);
    let is_path = program.components().count() > 1 || program.starts_with(".");
    let resolve = |program: &Path| {
        let joined = directory.join(program);
        std::path::absolute(&joined).unwrap_or(joined)
    };
    Command {
        program: if is_path { resolve(program) } else { program.to_path_buf() },
        arguments: arguments.to_vec(),
        directory: directory.to_path_buf(),
        timeout: model.timeout,
    }
}

/// The key in the environment variable `name`. The error names the variable and never its content.
fn read_key(file: &PipelineFile, model: &ModelSpec, name: &str) -> Result<ApiKey, FileError> {
    let refuse = |why: &str| {
        let message = format!("the model `{}` takes its key from the environment variable `{name}`, {why}", model.name);
        file.source.error(model.span.clone(), message)
    };
    match env::var_os(name) {
        Some(key) => key.to_str().and_then(ApiKey::new).ok_or_else(|| {
            refuse("which is empty or not usable in an HTTP header").expected("the key alone, on one line")
        }),
        // It may be the key itself.
        None if !is_variable_name(name) => {
            let message =
                format!("`api_key_env` of the model `{}` is not the name of an environment variable", model.name);
            Err(file.source.error(model.span.clone(), message).without_excerpt().expected("a name such as ACME_KEY"))
        }
        None => {
            let set: Vec<String> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
            let refusal = refuse("which is not set").expected(format!("`export {name}=...` before the command"));
            Err(refusal.suggest(name, set.iter().map(String::as_str)))
        }
    }
}

/// Whether environment variables are called like that. What is not may be a key in the wrong place.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_letter) && !name.starts_with(|c: char| c.is_ascii_digit())
}
