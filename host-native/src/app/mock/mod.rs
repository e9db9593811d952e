//! A mock provider as an HTTP server: real sockets, the OpenAI API, and the behaviour of
//! [`MockProvider`](tidegate_core::sim::provider::MockProvider), which decides about every call.
//!
//! [`MockServer::start`] serves one provider under every model name, on a free loopback port: what a test wants, and
//! `tidegate run` for `provider = "mock"`. [`MockServer::serve`] serves several models, each by a provider of its own, on
//! an address of the caller's: `tidegate mock`. Official OpenAI clients work against either.
//!
//! | address | what it does |
//! | --- | --- |
//! | `POST /v1/chat/completions`, `POST /v1/completions` | answers, whole or token by token |
//! | `POST /v1/embeddings` | vectors |
//! | `GET /v1/models`, `GET /v1/models/{id}` | what is served |
//! | `GET /healthz` | 200 once it listens |
//! | `GET /mock/stats` | [`MockStats`] |
//! | `GET /mock/models/{id}` | the provider behind a model |
//! | `POST /mock/models/{id}` | changes it now, if that is allowed |
//!
//! | file | what it is about |
//! | --- | --- |
//! | `served` | a provider on the host's clock, and the slots that calls hold of it |
//! | `server` | addresses, keys, numbers |
//! | `chat`, `format`, `embeddings` | what is asked, and what is answered |
//! | `answer`, `schema` | what a mock says: text, or JSON for a schema |
//! | `reply`, `stream`, `headers`, `refusal` | how it is said |
//! | `control` | what tests look at and turn |
//! | `command`, `flags` | `tidegate mock`, and what its flags say |

pub mod answer;
pub mod args;
mod chat;
pub mod command;
mod control;
mod embeddings;
pub mod flags;
mod format;
mod headers;
mod refusal;
mod reply;
mod schema;
mod served;
mod server;
mod stream;

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

use self::answer::hash_of;
use self::served::Served;
use self::server::Service;
use crate::app::error::{Error, Exit};
use crate::host::TokioHost;

pub use self::control::MockStats;
pub use self::headers::RateHeaders;
pub use self::served::ModelStats;

/// What a mock serves, and how.
#[derive(Debug, Default)]
pub struct MockConfig {
    /// Model names, each with the provider behind it. At least one.
    pub models: Vec<(String, ProviderSpec)>,
    /// Whether the first model also serves every name that is not here.
    pub any_model: bool,
    /// The seed of everything that is left to chance; each model's is drawn from it and the model's name.
    pub seed: u64,
    /// The key that calls have to bring.
    pub key: Option<MockKey>,
    /// Whether clients may change the providers.
    pub allow_control: bool,
    /// How rates are named in headers.
    pub rate_headers: RateHeaders,
    /// Hears about every call that brings no good answer: the model, or `-`, and what happened.
    pub log: Option<Log>,
}

/// A key that calls have to bring, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct MockKey(pub String);

impl fmt::Debug for MockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockKey(..)")
    }
}

/// Takes the name of a model, or `-`, and what happened.
pub type Listener = dyn Fn(&str, &str) + Send + Sync;

/// Somebody who is told.
pub struct Log(pub Box<Listener>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log(..)")
    }
}

/// A running mock. Dropping it stops the server.
#[derive(Debug)]
pub struct MockServer {
    address: SocketAddr,
    service: Arc<Service>,
    server: JoinHandle<()>,
}

/// Why a mock could not start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// A provider's description is out of range.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// There is nothing to serve.
    #[error("a mock needs at least one model")]
    NoModel,
    /// The address could not be opened.
    #[error(
        "cannot listen on {address}: {source}\n  expected an address of this machine that nobody else uses; port 0 takes any free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The caller is not inside a tokio runtime.
    #[error("a mock provider needs a tokio runtime")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
}

impl MockServer {
    /// Serves what `spec` describes on a free loopback port, under every model name.
    pub async fn start(spec: &ProviderSpec, seed: u64) -> Result<Self, MockError> {
        let host = TokioHost::current()?;
        let models = vec![Arc::new(Served::new("mock", spec, seed, host.clone())?)];
        let config = MockConfig { any_model: true, ..MockConfig::default() };
        Self::listen(Service::new(host, models, config), (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Serves what `config` says at `address`; port 0 is any free port.
    pub async fn serve(config: MockConfig, address: SocketAddr) -> Result<Self, MockError> {
        Self::listen(service(config)?, address).await
    }

    async fn listen(service: Service, address: SocketAddr) -> Result<Self, MockError> {
        let service = Arc::new(service);
        let refused = |source| MockError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        // Tokens come in small writes, which must not wait for each other. A socket without the option works all the same.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        let router = server::router(&service);
        let server = tokio::spawn(async move {
            // Serving ends only when this task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, service, server })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address to give a client.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What the first provider has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.first().counters
    }

    /// Calls that hold a slot of the first provider now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.first().in_flight
    }

    /// The figures of everything, as `/mock/stats` tells them.
    #[must_use]
    pub fn stats(&self) -> MockStats {
        self.service.stats()
    }

    fn first(&self) -> ModelStats {
        self.service.first().map_or_else(ModelStats::default, Served::stats)
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What is to be served, on the runtime of the caller.
fn service(config: MockConfig) -> Result<Service, MockError> {
    if config.models.is_empty() {
        return Err(MockError::NoModel);
    }
    let host = TokioHost::current()?;
    let chance = Rng::new(config.seed);
    let served = config.models.iter().map(|(id, spec)| {
        let seed = chance.fork(hash_of(id)).next_u64();
        Ok(Arc::new(Served::new(id, spec, seed, host.clone())?))
    });
    let models = served.collect::<Result<Vec<_>, MockError>>()?;
    Ok(Service::new(host, models, config))
}
