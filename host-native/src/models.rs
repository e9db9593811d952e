//! The models of a pipeline, started: mocks served, keys read, every provider registered at one gate.

use std::env;
use std::sync::Arc;

use tidegate_core::error::ConfigError;
use tidegate_core::gate::Gate;
use tidegate_core::replay::Sequence;
use tidegate_core::request::{Domain, GroupId, RequestAdmission, RequestConfig, ResourceId};

use crate::client::{ApiKey, ChatClient, ChatEndpoint};
use crate::error::Error;
use crate::host::TokioHost;
use crate::job::request_resource;
use crate::mock::MockServer;
use crate::pipeline_file::{Endpoint, ModelSpec, PipelineFile};
use crate::provider::Provider;

/// All models of a run.
#[derive(Debug)]
pub struct Models {
    gate: Gate<TokioHost>,
    providers: Vec<Arc<Provider>>,
    /// By model of the file: its client, and its provider's place in `providers`.
    callers: Vec<(ChatClient, usize)>,
    /// Mocks stop when dropped.
    _mocks: Vec<MockServer>,
}

impl Models {
    /// Starts what the models of `file` need. Nothing is called yet.
    ///
    /// With a `record`, request admission takes its commands down from the first one on.
    pub async fn start(file: &PipelineFile, host: &TokioHost, record: Option<&Sequence>) -> Result<Self, Error> {
        let clients = Clients::start(file).await?;
        let refused = |model: &ModelSpec, error: &ConfigError| {
            Error::from(file.source.error(model.span.clone(), format!("the model `{}`: {error}", model.name)))
        };
        let internal = |error: ConfigError| Error::Internal(error.to_string());
        let mut machine = RequestAdmission::new(RequestConfig::default()).map_err(internal)?;
        if let Some(sequence) = record {
            machine.record(sequence);
        }
        let gate = Gate::new(host.clone(), machine);
        let mut resources: Vec<(String, ResourceId)> = Vec::new();
        let mut callers = Vec::with_capacity(file.models.len());
        for (model, client) in file.models.iter().zip(clients.clients) {
            let registered = gate.with(|machine, now| {
                let cap = model.max_parallel.get();
                let id = machine.register(now, &model.provider, &model.model, &model.name, cap)?;
                let resource = machine.resource(id, Domain::Chat);
                let label = format!("{}/{}", model.provider, model.model);
                let known = resources.iter().position(|(known, _)| *known == label);
                if known.is_none() {
                    machine.configure(now, resource, model.aimd.clone())?;
                    if !model.limit.is_aimd() {
                        machine.choose_algorithm(now, resource, model.limit)?;
                    }
                    resources.push((label, resource));
                }
                Ok(known.unwrap_or(resources.len() - 1))
            });
            callers.push((client, registered.map_err(|error| refused(model, &error))?));
        }
        let provider = |(label, resource)| Arc::new(Provider::new(label, gate.clone(), resource));
        let providers = resources.into_iter().map(provider).collect();
        Ok(Self { gate, providers, callers, _mocks: clients.mocks })
    }

    /// A fairness group of the gate.
    pub fn group(&self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        self.gate.with(|machine, _| machine.group(name, weight))
    }

    /// The provider and client of the model at `index` in the file.
    #[must_use]
    pub fn caller(&self, index: usize) -> (Arc<Provider>, ChatClient) {
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

    /// The task-stage resources that stand for calls to these models, with what they stand for.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, ResourceId)> {
        let call = |provider: &Arc<Provider>| (request_resource(&provider.label), provider.resource());
        self.providers.iter().map(call).collect()
    }

    /// The task-stage resources that stand for calls to these models, with their limits: twice the cap, so that a call
    /// stands ready for each slot that comes free.
    #[must_use]
    pub fn task_resources(&self) -> Vec<(String, u32)> {
        let limit = |provider: &Arc<Provider>| provider.snapshot().effective_max.saturating_mul(2);
        self.providers.iter().map(|provider| (request_resource(&provider.label), limit(provider))).collect()
    }
}

/// A client for each model of a file, and the mocks that some of them call.
struct Clients {
    clients: Vec<ChatClient>,
    mocks: Vec<MockServer>,
}

impl Clients {
    async fn start(file: &PipelineFile) -> Result<Self, Error> {
        let mut started = Self { clients: Vec::with_capacity(file.models.len()), mocks: Vec::new() };
        // Mocks by the model ids they serve.
        let mut addresses: Vec<(&str, String)> = Vec::new();
        for model in &file.models {
            let (address, api_key) = match &model.endpoint {
                Endpoint::Remote { base_url, api_key_env } => {
                    (base_url.to_string(), api_key_env.as_deref().map(|name| read_key(file, model, name)).transpose()?)
                }
                Endpoint::Mock(mock) => {
                    let server = MockServer::start(&mock.provider, mock.seed).await?;
                    addresses.push((&model.model, server.base_url()));
                    started.mocks.push(server);
                    (started.mocks[started.mocks.len() - 1].base_url(), None)
                }
                Endpoint::SameMock => {
                    let known = addresses.iter().find(|(served, _)| *served == model.model);
                    (known.map(|(_, address)| address.clone()).unwrap_or_default(), None)
                }
            };
            let base_url = address.parse().map_err(|error| Error::Internal(format!("{address:?}: {error}")))?;
            let endpoint = ChatEndpoint {
                base_url,
                model: model.model.clone(),
                api_key,
                timeout: model.timeout,
                bypass_proxy: !matches!(model.endpoint, Endpoint::Remote { .. }),
            };
            started.clients.push(ChatClient::new(endpoint).map_err(|error| {
                let message = format!("the model `{}`: HTTPS cannot be set up: {error}", model.name);
                file.source.error(model.span.clone(), message)
            })?);
        }
        Ok(started)
    }
}

/// The key in the environment variable `name`. The error names the variable and never its content.
fn read_key(file: &PipelineFile, model: &ModelSpec, name: &str) -> Result<ApiKey, Error> {
    let refuse = |why: &str| {
        let message = format!("the model `{}` takes its key from the environment variable `{name}`, {why}", model.name);
        Error::from(file.source.error(model.span.clone(), message))
    };
    let key = env::var_os(name).ok_or_else(|| refuse("which is not set"))?;
    key.to_str().and_then(ApiKey::new).ok_or_else(|| refuse("which is empty or not usable in an HTTP header"))
}
