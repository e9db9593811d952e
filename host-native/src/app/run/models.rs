//! Starts the models of a pipeline: starts mock servers, reads keys, and registers every provider at one
//! gate.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::error::ConfigError;
use tidegate_core::gate::Gate;
use tidegate_core::replay::{Recorded, Sequence};
use tidegate_core::request::{GroupId, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::share::redis::limit_name;
use tidegate_core::time::Duration;
use tokio::task::JoinSet;

use crate::app::config::pipeline::{
    CallMode, Domain, Endpoint, ExtraValue, FileError, ModelSpec, PipelineFile, ToolSpec,
};
use crate::app::error::Error;
use crate::app::mock::MockServer;
use crate::app::provider::batch::BatchClient;
use crate::app::provider::command::Command;
use crate::app::provider::cost::{Ledger, Price, SharedLedger};
use crate::app::provider::embedding::EmbeddingClient;
use crate::app::provider::http::{HttpClient, HttpEndpoint, RequestExtras};
use crate::app::provider::image::ImageClient;
use crate::app::provider::key::{can_be_shown, has_password, is_variable_name, is_variable_of_key};
use crate::app::provider::redact::Redactor;
use crate::app::provider::{ApiKey, ChatClient, ChatEndpoint, Client};
use crate::app::run::columns::CalledModel;
use crate::app::run::provider::Provider;
use crate::app::run::resolve::request_resource;
use crate::host::TokioHost;
use crate::observe::jsonl::ResourceName;
use crate::share::Share;

/// All models of a run.
#[derive(Debug)]
pub struct Models {
    gate: Gate<TokioHost>,
    providers: Vec<Arc<Provider>>,
    /// For each model of the file, its client and the index of its provider in `providers`.
    callers: Vec<(Client, usize)>,
    ledger: Arc<SharedLedger>,
    /// The mock servers stop when dropped.
    _mocks: Vec<MockServer>,
    /// The tasks that make health calls; aborted when dropped.
    _health_calls: JoinSet<()>,
    /// The connection to other processes, if limits are shared.
    share: Option<Arc<Share>>,
}

/// A resource of the gate that several models of the file may share.
struct SharedResource {
    label: String,
    resource: ResourceId,
    price: Option<Price>,
}

impl Models {
    /// Starts mock servers, creates clients and registers all models of `file` at a new gate. Makes no call.
    ///
    /// With `record`, request admission records all its commands. The cost of calls is charged to `ledger`,
    /// which enforces the cost limit. With `share`, other processes share the limits.
    ///
    /// # Errors
    /// If a mock cannot start, or a key, client or limit is invalid.
    pub async fn start(
        file: &PipelineFile,
        host: &TokioHost,
        requests: &RequestConfig,
        record: Option<&Sequence>,
        ledger: Ledger,
        share: Option<Arc<Share>>,
    ) -> Result<Self, Error> {
        let Clients { clients, mocks } = Clients::start(file).await?;
        let (gate, indices, shared) = register(file, host, requests, record)?;
        if let Some(share) = &share {
            share_limits(file, &gate, &indices, &shared, share)?;
        }
        let clients: Vec<Client> = clients.into_iter().collect::<Result<_, _>>()?;
        let callers: Vec<(Client, usize)> = clients.into_iter().zip(indices).collect();
        let ledger = Arc::new(SharedLedger::new(ledger));
        let provider = |shared: SharedResource| {
            Arc::new(Provider::new(shared.label, gate.clone(), shared.resource, shared.price, Arc::clone(&ledger)))
        };
        let providers: Vec<Arc<Provider>> = shared.into_iter().map(provider).collect();
        let health_calls = make_health_calls(&providers, &callers);
        Ok(Self { gate, providers, callers, ledger, _mocks: mocks, _health_calls: health_calls, share })
    }

    /// Returns the ledger of the costs of all calls.
    #[must_use]
    pub fn ledger(&self) -> &SharedLedger {
        &self.ledger
    }

    /// Returns the fairness group of the gate called `name`, and sets its weight, which is in 2^-20..=2^20.
    pub fn group(&self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        self.gate.with(|machine, _| machine.group(name, weight))
    }

    /// Returns the models at these indices of the file, each with those after it as its fallbacks.
    pub fn called(&self, indices: &[usize]) -> Result<Vec<CalledModel>, ConfigError> {
        let resource = |index: &usize| self.providers[self.callers[*index].1].resource();
        let called = |(place, index): (usize, &usize)| {
            let (client, provider) = &self.callers[*index];
            let rest: Vec<ResourceId> = indices[place..].iter().map(resource).collect();
            let fallbacks = (rest.len() > 1).then(|| self.gate.with(|machine, _| machine.fallbacks(&rest)));
            let provider = Arc::clone(&self.providers[*provider]);
            Ok(CalledModel { provider, client: client.clone(), fallbacks: fallbacks.transpose()? })
        };
        indices.iter().enumerate().map(called).collect()
    }

    /// Returns all providers, in file order of their first models.
    #[must_use]
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    /// Returns the gate of all calls.
    #[must_use]
    pub fn gate(&self) -> &Gate<TokioHost> {
        &self.gate
    }

    /// Returns the connection over which limits are shared, if they are.
    #[must_use]
    pub fn share(&self) -> Option<&Share> {
        self.share.as_deref()
    }

    /// Leaves the processes with which limits are shared, if they are.
    pub(super) async fn leave_share(&self) {
        if let Some(share) = self.share() {
            share.leave().await;
        }
    }

    /// Returns the names of the resources in events.
    #[must_use]
    pub fn resource_names(&self) -> Vec<ResourceName> {
        let name = |provider: &Arc<Provider>| {
            let model = self.gate.with(|machine, _| machine.owner(provider.resource()))?;
            Some(ResourceName { resource: provider.resource(), model, name: provider.label.clone() })
        };
        self.providers.iter().filter_map(name).collect()
    }

    /// Returns the task resources that stand for calls to these models, each with its resource at the gate.
    #[must_use]
    pub fn request_resources(&self) -> Vec<(String, ResourceId)> {
        let call = |provider: &Arc<Provider>| (request_resource(&provider.label), provider.resource());
        self.providers.iter().map(call).collect()
    }
}

/// Spawns the health calls of all providers, each with the client of its first model. A judge and a model of
/// images get none: the cost of a call is unknown here, or high.
fn make_health_calls(providers: &[Arc<Provider>], callers: &[(Client, usize)]) -> JoinSet<()> {
    let mut health_calls = JoinSet::new();
    for (index, provider) in providers.iter().enumerate() {
        let first = callers.iter().find(|(_, of)| *of == index).map(|(client, _)| client);
        if let Some(client @ (Client::Chat(_) | Client::Batch(_) | Client::Embedding(_))) = first {
            let (provider, client) = (Arc::clone(provider), client.clone());
            health_calls.spawn(async move { provider.make_health_calls(&client).await });
        }
    }
    health_calls
}

/// Returns the task resources that stand for calls to the models of `file`, each with its limit: twice the
/// cap, so that a task is ready for each slot that is released.
#[must_use]
pub fn task_resources(file: &PipelineFile) -> Vec<(String, u32)> {
    let mut resources: Vec<(String, u32)> = Vec::new();
    for model in &file.models {
        // The tasks of a column hold the resource of its first model, also while another one is called.
        let label = model.label();
        let is_first = |models: &Vec<usize>| models.first().is_some_and(|first| file.models[*first].label() == label);
        let columns = file.columns.iter().map(|column| column.kind.models()).filter(is_first);
        let fallbacks = columns.flatten().map(|index| &file.models[index]).filter(|other| other.label() != label);
        let cap = fallbacks.chain([model]).map(|model| lowest_cap(file, model)).max().unwrap_or(1);
        let resource = (request_resource(&model.label()), cap.saturating_mul(2));
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    resources
}

/// Returns the lowest cap of all models with the provider and model id of `model`, in all domains.
fn lowest_cap(file: &PipelineFile, model: &ModelSpec) -> u32 {
    let same = file.models.iter().filter(|other| other.provider == model.provider && other.model == model.model);
    same.map(|other| other.max_parallel.get()).min().unwrap_or(1)
}

/// Returns the models that columns of `file` call, by index.
#[must_use]
pub fn called_models(file: &PipelineFile) -> BTreeSet<usize> {
    file.columns.iter().flat_map(|column| column.kind.models()).collect()
}

/// Checks that the model at `index` of `file` can be called, as far as this machine can tell: its key is set
/// and its command exists.
pub fn check_model(file: &PipelineFile, index: usize) -> Result<(), FileError> {
    let model = &file.models[index];
    for name in model.secret_variables() {
        read_key(file, model, name)?;
    }
    let Endpoint::Command { argv, directory, pass_env } = &model.endpoint else { return Ok(()) };
    match command(argv, directory, hidden_variables(file, pass_env), model.timeout).find() {
        Ok(_) => Ok(()),
        Err(why) => {
            let program = argv.first().map_or("", String::as_str);
            let message = format!("the model `{}` is the command `{program}`, {why}", model.name);
            Err(file.source.error(model.span.clone(), message).expected("a program that can be run"))
        }
    }
}

/// Returns the commands of the tools at these places in `file`.
#[must_use]
pub fn tool_commands(file: &PipelineFile, tools: &[usize]) -> Vec<Command> {
    tools.iter().filter_map(|at| file.tools.get(*at)).map(|tool| tool_command(file, tool)).collect()
}

fn tool_command(file: &PipelineFile, tool: &ToolSpec) -> Command {
    let ToolSpec { argv, directory, pass_env, timeout, .. } = tool;
    command(argv, directory, hidden_variables(file, pass_env), *timeout)
}

/// Checks that the commands of the tools that columns offer exist. Returns an error for each that does not.
pub fn check_tools(file: &PipelineFile) -> impl Iterator<Item = FileError> {
    let offered: BTreeSet<usize> =
        file.columns.iter().filter_map(|column| column.kind.chat()).flat_map(|call| call.tools.clone()).collect();
    offered.into_iter().filter_map(|at| file.tools.get(at)).filter_map(|tool| {
        let why = tool_command(file, tool).find().err()?;
        let program = tool.argv.first().map_or("", String::as_str);
        let message = format!("the tool `{}` is the command `{program}`, {why}", tool.name);
        Some(file.source.error(tool.span.clone(), message).expected("a program that can be run"))
    })
}

/// Returns a gate with the models of `file` registered and no clients, for a dry run.
pub fn plan_gate(file: &PipelineFile, host: &TokioHost) -> Result<Gate<TokioHost>, Error> {
    register(file, host, &RequestConfig::default(), None).map(|(gate, _, _)| gate)
}

/// A gate, the index of the resource of each model, and the resources.
type Registered = (Gate<TokioHost>, Vec<usize>, Vec<SharedResource>);

/// Returns a gate with the models of `file` registered.
fn register(
    file: &PipelineFile,
    host: &TokioHost,
    requests: &RequestConfig,
    record: Option<&Sequence>,
) -> Result<Registered, Error> {
    let invalid = |model: &ModelSpec, error: &ConfigError| {
        Error::from(file.source.error(model.span.clone(), format!("the model `{}`: {error}", model.name)))
    };
    let internal = |error: ConfigError| Error::Internal(error.to_string());
    let mut machine = Recorded::new(RequestAdmission::new(requests.clone()).map_err(internal)?);
    if let Some(sequence) = record {
        machine.start_recording(sequence);
    }
    let gate = Gate::new(host.clone(), machine);
    let mut shared: Vec<SharedResource> = Vec::new();
    let mut indices = Vec::with_capacity(file.models.len());
    for model in &file.models {
        let index = gate.with(|machine, now| {
            let cap = model.max_parallel.get();
            let id = machine.register(now, &model.provider, &model.model, &model.name, cap)?;
            let resource = machine.resource(id, model.domain.into())?;
            let label = model.label();
            let known = shared.iter().position(|known| known.label == label);
            if known.is_none() {
                machine.configure(now, resource, model.limit_config.clone())?;
                if !model.limit.is_aimd() {
                    machine.choose_algorithm(now, resource, model.limit)?;
                }
                if !model.budgets.is_empty() {
                    machine.set_budgets(now, resource, &model.budgets)?;
                }
                shared.push(SharedResource { label, resource, price: model.price });
            }
            Ok(known.unwrap_or(shared.len() - 1))
        });
        indices.push(index.map_err(|error| invalid(model, &error))?);
    }
    Ok((gate, indices, shared))
}

/// Shares the limit of each resource with other processes.
fn share_limits(
    file: &PipelineFile,
    gate: &Gate<TokioHost>,
    indices: &[usize],
    resources: &[SharedResource],
    share: &Share,
) -> Result<(), Error> {
    for (index, shared) in resources.iter().enumerate() {
        // The first model of a resource has its settings.
        let Some(model) = indices.iter().position(|of| *of == index).map(|at| &file.models[at]) else { continue };
        let limit = limit_name(&model.provider, &model.model, model.domain.name());
        let joined = share.join(gate, shared.resource, &limit, model.limit, &model.limit_config);
        joined
            .map_err(|error| file.source.error(model.span.clone(), format!("the model `{}`: {error}", model.name)))?;
    }
    Ok(())
}

/// The clients of a file's models, and the mock servers that some of them call. The servers stop when this is
/// dropped.
#[derive(Debug)]
pub struct Clients {
    /// For each model of the file, its client. A model that no column calls needs no key.
    pub clients: Vec<Result<Client, Error>>,
    mocks: Vec<MockServer>,
}

impl Clients {
    /// Starts the mock servers and creates the clients. Makes no call.
    pub async fn start(file: &PipelineFile) -> Result<Self, Error> {
        let called = called_models(file);
        let mut started = Self { clients: Vec::with_capacity(file.models.len()), mocks: Vec::new() };
        // By model id.
        let mut addresses: Vec<(&str, String)> = Vec::new();
        for (index, model) in file.models.iter().enumerate() {
            if let Endpoint::Mock(mock) = &model.endpoint {
                let server = MockServer::start_with_answers(&mock.provider, mock.seed, mock.answers.clone()).await?;
                addresses.push((&model.model, server.base_url()));
                started.mocks.push(server);
            }
            let served = addresses.iter().find(|(served, _)| *served == model.model);
            let mock = served.map_or("", |(_, address)| address);
            started.clients.push(client(file, model, called.contains(&index), mock));
        }
        Ok(started)
    }
}

/// Returns the client of `model`. `mock` is the address of its mock server, if it has one.
fn client(file: &PipelineFile, model: &ModelSpec, is_called: bool, mock: &str) -> Result<Client, Error> {
    let key = |name: &Option<String>| match name.as_deref().filter(|_| is_called) {
        Some(name) => read_key(file, model, name).map(Some),
        None => Ok(None),
    };
    match &model.endpoint {
        Endpoint::Remote { base_url, api_key_env } => {
            remote_client(file, model, base_url.as_str(), key(api_key_env)?, request_extras(file, model, is_called)?)
        }
        Endpoint::Mock(_) | Endpoint::SameMock => {
            remote_client(file, model, mock, None, request_extras(file, model, is_called)?)
        }
        Endpoint::Http { url, api_key_env } => {
            let (api_key, authorities) = (key(api_key_env)?, model.authorities.clone());
            let endpoint = HttpEndpoint { url: url.clone(), api_key, authorities, timeout: model.timeout };
            let client = HttpClient::new(endpoint);
            client.map(Client::Http).map_err(|error| https_error(file, model, &error))
        }
        Endpoint::Command { argv, directory, pass_env } => {
            Ok(Client::Command(command(argv, directory, hidden_variables(file, pass_env), model.timeout)))
        }
    }
}

/// Returns the client of a remote endpoint, for the domain and API of the model.
fn remote_client(
    file: &PipelineFile,
    model: &ModelSpec,
    address: &str,
    api_key: Option<ApiKey>,
    extras: RequestExtras,
) -> Result<Client, Error> {
    let endpoint = ChatEndpoint {
        base_url: address.parse().map_err(|error| Error::Internal(format!("{address:?}: {error}")))?,
        model: model.model.clone(),
        api_key,
        authorities: model.authorities.clone(),
        timeout: model.timeout,
    };
    let client = match model.domain {
        Domain::Image => ImageClient::new(endpoint).map(|client| Client::Image(Box::new(client.with_extras(extras)))),
        Domain::Embedding => EmbeddingClient::new(endpoint).map(|client| Client::Embedding(client.with_extras(extras))),
        Domain::Chat | Domain::Judge if model.mode == CallMode::Batch => {
            BatchClient::new(endpoint, extras).map(|client| Client::Batch(Box::new(client)))
        }
        Domain::Chat | Domain::Judge => {
            let client = ChatClient::with_api(endpoint, model.api);
            client.map(|client| Client::Chat(client.with_extras(extras)))
        }
    };
    client.map_err(|error| https_error(file, model, &error))
}

/// Returns what the requests to `model` have besides what the client sets. Values from the environment are
/// left out for a model that is not called.
fn request_extras(file: &PipelineFile, model: &ModelSpec, is_called: bool) -> Result<RequestExtras, Error> {
    let (mut headers, mut query, mut secrets) = (HeaderMap::new(), Vec::new(), Vec::new());
    let mut value = |value: &ExtraValue| match value {
        ExtraValue::Text(text) => Ok(Some((text.clone(), false))),
        ExtraValue::Variable(name) if is_called => {
            let key = read_key(file, model, name)?;
            let text = key.secret().to_string();
            secrets.push(key);
            Ok(Some((text, true)))
        }
        ExtraValue::Variable(_) => Ok::<_, FileError>(None),
    };
    for (name, given) in &model.extras.headers {
        let Some((text, is_secret)) = value(given)? else { continue };
        let invalid = |what: &str| Error::Internal(format!("the header `{name}` of `{}` has {what}", model.name));
        let header = HeaderName::from_str(name).map_err(|_| invalid("an invalid name"))?;
        let mut text = HeaderValue::from_str(&text).map_err(|_| invalid("an invalid value"))?;
        text.set_sensitive(is_secret);
        headers.insert(header, text);
    }
    for (name, given) in &model.extras.query {
        query.extend(value(given)?.map(|(text, _)| (name.clone(), text)));
    }
    Ok(RequestExtras { headers, query, body: model.extras.body.clone(), secrets })
}

fn https_error(file: &PipelineFile, model: &ModelSpec, error: &str) -> Error {
    let message = format!("the model `{}`: HTTPS cannot be set up: {error}", model.name);
    file.source.error(model.span.clone(), message).into()
}

/// Returns the command `argv`. A program with a relative path is resolved against `directory`, in which the
/// command runs; a plain name is looked up in `PATH`.
fn command(argv: &[String], directory: &Path, hidden: Vec<OsString>, timeout: Duration) -> Command {
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
        hidden,
        timeout,
    }
}

/// Returns the environment variables that a command does not get: those with the keys of the file's models,
/// the one with the address in `[share]`, and all whose names are those of keys, unless `pass_env` lists
/// them.
fn hidden_variables(file: &PipelineFile, pass_env: &[String]) -> Vec<OsString> {
    let of_models = |name: &str| file.models.iter().flat_map(ModelSpec::secret_variables).any(|secret| secret == name);
    let of_share = |name: &str| file.share.as_ref().and_then(|share| share.variable()).is_some_and(|of| of == name);
    let is_of_file = |name: &str| of_models(name) || of_share(name);
    let keys: Vec<OsString> =
        env::vars_os().filter(|(name, _)| of_models(&name.to_string_lossy())).map(|(_, key)| key).collect();
    let keys = Redactor::new(keys.iter().map(|key| key.as_encoded_bytes().trim_ascii()));
    let is_hidden = |(name, value): &(OsString, OsString)| {
        let name = name.to_string_lossy();
        let is_of_key = is_of_file(&name)
            || is_variable_of_key(&name)
            || has_password(&value.to_string_lossy())
            || keys.has_key(value.as_encoded_bytes());
        is_of_key && !pass_env.iter().any(|passed| *passed == name)
    };
    env::vars_os().filter(is_hidden).map(|(name, _)| name).collect()
}

/// Reads the key from the environment variable `name`. An error never contains the value.
fn read_key(file: &PipelineFile, model: &ModelSpec, name: &str) -> Result<ApiKey, FileError> {
    let invalid = |why: &str| {
        let message = format!("the model `{}` takes its key from the environment variable `{name}`, {why}", model.name);
        file.source.error(model.span.clone(), message)
    };
    match env::var_os(name) {
        Some(key) => key.to_str().and_then(ApiKey::new).ok_or_else(|| {
            invalid("which is empty or not usable in an HTTP header").expected("the key alone, on one line")
        }),
        // `name` may be a key that was entered by mistake, so the error does not repeat it.
        None if !is_variable_name(name) => {
            let message =
                format!("`api_key_env` of the model `{}` is not the name of an environment variable", model.name);
            Err(file.source.error(model.span.clone(), message).without_excerpt().expected("a name such as ACME_KEY"))
        }
        None if !can_be_shown(name) => {
            let message =
                format!("the model `{}` takes its key from an environment variable that is not set", model.name);
            let expected =
                "the name of a variable that is set, such as ACME_KEY; the name is not shown, as it may be a key";
            Err(file.source.error(model.span.clone(), message).without_excerpt().expected(expected))
        }
        None => {
            let set: Vec<String> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
            let error = invalid("which is not set").expected(format!("`export {name}=...` before the command"));
            Err(error.suggest(name, set.iter().map(String::as_str)))
        }
    }
}
