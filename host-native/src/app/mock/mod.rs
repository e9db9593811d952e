//! A mock provider as an HTTP server: the OpenAI API over real sockets.
//!
//! A [`MockProvider`](tidegate_core::sim::provider::MockProvider) of the simulator decides when and how each
//! call is answered. The answers themselves are functions of the request. Official OpenAI clients work
//! against the server.
//!
//! [`MockServer::start`] serves one provider under every model name on a free loopback port, for tests and
//! for `provider = "mock"` of `tidegate run`. [`MockServer::serve`] serves several models, each with its own
//! provider, at a given address: `tidegate mock`.
//!
//! | route | response |
//! | --- | --- |
//! | `POST /v1/chat/completions`, `POST /v1/completions` | a completion, whole or streamed |
//! | `POST /v1/responses` | a response of the OpenAI API of that name |
//! | `POST /v1/messages` | a message of the Anthropic API |
//! | `POST /v1/embeddings` | vectors |
//! | `POST /v1/files`, `GET /v1/files/{id}/content` | files of requests and of results |
//! | `POST /v1/batches`, `GET /v1/batches`, `GET /v1/batches/{id}` | batches of chat completions |
//! | `POST /v1/images/generations` | an image of one pixel |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the served models |
//! | `GET /healthz` | 200 while the server listens |
//! | `GET /mock/stats` | [`MockStats`] |
//! | `GET /mock/models/{id}` | the description of a model's provider |
//! | `POST /mock/models/{id}` | changes the provider, if [`MockConfig::allow_control`] is set |
//!
//! | module | contents |
//! | --- | --- |
//! | `server` | routes, authentication, request ids |
//! | `service` | the state that the routes share, and its statistics |
//! | `model` | a provider on the host's clock, the slots that calls hold, and statistics |
//! | `protocol`, `chat`, `conversation`, `embeddings`, `images` | parsing of requests |
//! | `responses`, `messages` | requests and answers of the APIs of these names |
//! | `batches`, `batch_store` | files and batches |
//! | `answer`, `schema`, `shape` | texts, and JSON for a schema, in the shapes of providers |
//! | `format`, `reply`, `respond`, `stream` | responses: bodies, timing, events |
//! | `headers`, `error` | the headers and errors of responses |
//! | `control` | `/mock/stats` and `/mock/models` |
//! | `command`, `args`, `flags` | the command `tidegate mock` |

mod answer;
pub mod args;
mod batch_store;
mod batches;
mod chat;
pub mod command;
mod control;
mod conversation;
mod embeddings;
mod error;
pub mod flags;
mod format;
mod headers;
mod images;
mod messages;
mod model;
mod protocol;
mod reply;
mod respond;
mod responses;
mod schema;
mod server;
mod service;
mod shape;
mod stream;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_time;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::serve::ListenerExt as _;
use tidegate_core::sim::provider::{Counters, ProviderSpec, SpecError};
use tidegate_core::sim::rng::Rng;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::answer::hash_text;
use self::model::ServedModel;
use self::service::Service;
use crate::app::answer_shape::AnswerShapes;
use crate::app::error::{Error, Exit};
use crate::host::TokioHost;

pub use self::batch_store::{BatchSettings, BatchStats, BatchStore};
pub use self::headers::RateHeaders;
pub use self::model::ModelStats;
pub use self::service::MockStats;

/// The configuration of a [`MockServer`].
#[derive(Debug, Default)]
pub struct MockConfig {
    /// Model names, each with the description of its provider. Must not be empty.
    pub models: Vec<(String, ProviderSpec)>,
    /// Whether the first model also serves every unknown model name.
    pub any_model: bool,
    /// The seed of latencies, neighbours and faults. Each model's seed is derived from it and the model's
    /// name.
    pub seed: u64,
    /// The API key that calls of models must have; `None` accepts all calls.
    pub key: Option<MockKey>,
    /// Whether clients may change the providers with `POST /mock/models/{id}`.
    pub allow_control: bool,
    /// The shares of chat calls whose answer is more than a text.
    pub answers: AnswerShapes,
    /// How batches are answered.
    pub batch_settings: BatchSettings,
    /// The files and batches that the server has at its start.
    pub batches: BatchStore,
    /// The names of the rate-limit headers.
    pub rate_headers: RateHeaders,
    /// Called for every request that is not answered successfully.
    pub log: Option<CallLog>,
}

/// An API key. Its `Debug` output omits the key.
#[derive(Clone, PartialEq, Eq)]
pub struct MockKey(pub String);

impl fmt::Debug for MockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockKey(..)")
    }
}

/// A callback for failed calls. It receives the model, or `-` if there is none, and a message.
pub type CallListener = dyn Fn(&str, &str) + Send + Sync;

/// A [`CallListener`] that implements `Debug`.
pub struct CallLog(pub Box<CallListener>);

impl fmt::Debug for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallLog(..)")
    }
}

/// A running mock provider. Dropping it stops the server.
#[derive(Debug)]
pub struct MockServer {
    address: SocketAddr,
    service: Arc<Service>,
    server: JoinHandle<()>,
}

/// An error of starting a [`MockServer`].
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The description of a provider is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The configuration has no model.
    #[error("a mock needs at least one model")]
    NoModel,
    /// The address cannot be bound.
    #[error(
        "cannot listen on {address}: {source}\n  expected a free address of this machine; port 0 takes any free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The caller is not in the context of a tokio runtime.
    #[error("a mock provider needs a tokio runtime")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
}

impl From<MockError> for Error {
    fn from(error: MockError) -> Self {
        Self::new(
            match &error {
                MockError::Listen { .. } => Exit::Pipeline,
                _ => Exit::Internal,
            },
            error,
        )
    }
}

impl MockServer {
    /// Starts a server for one provider, under every model name, on a free loopback port.
    pub async fn start(spec: &ProviderSpec, seed: u64) -> Result<Self, MockError> {
        Self::start_with_answers(spec, seed, AnswerShapes::default()).await
    }

    /// Starts a server like [`start`](Self::start), whose chat answers have these shapes.
    pub async fn start_with_answers(spec: &ProviderSpec, seed: u64, answers: AnswerShapes) -> Result<Self, MockError> {
        let host = TokioHost::current()?;
        let models = vec![Arc::new(ServedModel::new("mock", spec, seed, host.clone())?)];
        let config = MockConfig { any_model: true, answers, ..MockConfig::default() };
        Self::listen(Service::new(host, models, config), (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts a server at `address`. Port 0 takes any free port.
    pub async fn serve(config: MockConfig, address: SocketAddr) -> Result<Self, MockError> {
        Self::listen(service(config)?, address).await
    }

    async fn listen(service: Service, address: SocketAddr) -> Result<Self, MockError> {
        let service = Arc::new(service);
        let listen_error = |source| MockError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        // A streamed token is a small write that must not be delayed. Failing to set the option is harmless.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        let router = server::router(&service);
        let server = tokio::spawn(async move {
            // Returns only when the task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, service, server })
    }

    /// Returns the address at which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, which ends in `/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the counters of the first model's provider.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.first().counters
    }

    /// Returns how many calls hold a slot of the first model's provider.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.first().in_flight
    }

    /// Returns all statistics, as `/mock/stats` does.
    #[must_use]
    pub fn stats(&self) -> MockStats {
        self.service.stats()
    }

    fn first(&self) -> ModelStats {
        self.service.first().map_or_else(ModelStats::default, ServedModel::stats)
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Creates the shared state of the request handlers, on the tokio runtime of the caller.
fn service(config: MockConfig) -> Result<Service, MockError> {
    if config.models.is_empty() {
        return Err(MockError::NoModel);
    }
    let host = TokioHost::current()?;
    let seeds = Rng::new(config.seed);
    let served = config.models.iter().map(|(id, spec)| {
        let seed = seeds.fork(hash_text(id)).next_u64();
        Ok(Arc::new(ServedModel::new(id, spec, seed, host.clone())?))
    });
    let models = served.collect::<Result<Vec<_>, MockError>>()?;
    Ok(Service::new(host, models, config))
}
