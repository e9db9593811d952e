//! `tidegate proxy`: an OpenAI-compatible reverse proxy, so that programs in any language go through one gate.
//!
//! Clients change one address. Their requests wait in one fair queue, by tenant, weight and urgency; go out under the
//! adaptive limit and the budgets of their provider and model; and are called again when the provider refuses them for too many
//! calls, before a byte of an answer was handed on. Answers pass through piece by piece as they come. A client that goes away
//! gives up its place in the queue, or its call, at once.
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`config`] | what a proxy is told |
//! | `server`, `stall` | connections, and how they end |
//! | `forward`, `ask`, `headers` | one request: what it asks for, its turns, what is handed on |
//! | `route`, `tenant` | who serves a model and under which limits; whose a request is |
//! | `watch`, `usage`, `pace`, `count` | what is noted of calls: how they end, what they use, how fast, how many there are |
//! | `admin`, `metrics`, `models` | what the proxy answers itself |
//!
//! Which request goes next, and when, is the core's to decide; the proxy asks the gate and obeys. Keys are never
//! written anywhere: not into logs, metrics, pages or errors.

mod admin;
mod answer;
pub mod args;
mod ask;
pub mod config;
mod count;
mod forward;
mod headers;
mod metrics;
mod models;
mod pace;
mod program;
mod route;
mod server;
mod stall;
mod tenant;
mod usage;
mod watch;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tidegate_core::request::{HealthConfig, RequestConfig};
use tokio::sync::watch as signal;
use tokio::time::Instant;

use crate::gate::{GateError, RequestGate, random_seed};
use crate::http::PermitBody;

use config::{ProxyConfig, QueueConfig, RetryConfig};
use forward::Journey;
use headers::{ATTEMPTS, REQUEST_ID, WAITED};
use metrics::Metrics;
use models::KeptList;
use pace::Pace;
use route::Upstream;
use tenant::Tenants;
use watch::Watcher;

pub use program::proxy;
pub use server::{Drained, Proxy};

/// The body of an answer to a client: the proxy's own, or a provider's as it comes.
type ReplyBody = Either<Full<Bytes>, PermitBody<reqwest::Body, Watcher>>;

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A client for a provider cannot be made.
    #[error("cannot call the provider `{provider}`: {why}")]
    Client {
        /// Which.
        provider: String,
        /// Why not.
        why: String,
    },
}

/// What all requests share.
struct Shared {
    gate: RequestGate,
    upstreams: Vec<Upstream>,
    tenants: Tenants,
    queue: QueueConfig,
    retry: RetryConfig,
    metrics: Metrics,
    pace: Pace,
    models: KeptList,
    /// Requests that wait for their turn.
    waiting: AtomicU32,
    /// Bytes of requests whose answers have not begun.
    held_bytes: AtomicU64,
    /// Whether the admin pages are where the clients call.
    has_admin_pages: bool,
    is_verbose: bool,
    /// What the ids of this process begin with.
    birth: u64,
    requests: AtomicU64,
    /// Becomes true when the proxy stops.
    stop: signal::Sender<bool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn new(config: ProxyConfig, is_verbose: bool) -> Result<Self, ProxyError> {
        // Each client has a patience of its own: its deadline.
        let health = HealthConfig { patience: None, seed: random_seed(), ..HealthConfig::default() };
        let rate_limit_headers = config.rate_limit_headers;
        let settings = RequestConfig { health: Some(health), rate_limit_headers, ..RequestConfig::default() };
        let gate = RequestGate::with_config(settings)?;
        let metrics = Metrics::new();
        let mut upstreams = Vec::with_capacity(config.providers.len());
        for provider in config.providers {
            let name = provider.name.clone();
            let upstream = Upstream::new(provider).map_err(|why| ProxyError::Client { provider: name, why })?;
            upstreams.push(upstream);
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            tenants: Tenants::new(gate.clone(), config.tenants, config.priority),
            gate,
            upstreams,
            queue: config.queue,
            retry: config.retry,
            metrics,
            pace: Pace::new(),
            models: KeptList::default(),
            waiting: AtomicU32::new(0),
            held_bytes: AtomicU64::new(0),
            has_admin_pages: config.admin_listen.is_none(),
            is_verbose,
            birth: u64::try_from(since_epoch.as_millis()).unwrap_or(0),
            requests: AtomicU64::new(0),
            stop: signal::Sender::new(false),
        })
    }

    fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Answers a client.
    async fn serve(self: &Arc<Self>, request: Request<Incoming>) -> Response<ReplyBody> {
        let path = request.uri().path().to_string();
        if self.has_admin_pages
            && let Some(page) = admin::answer(self, request.method(), &path, request.headers())
        {
            return page;
        }
        let since = Instant::now();
        let mut request = request;
        let id = self.identify(&mut request);
        let method = request.method().clone();
        let mut journey = Journey::default();
        let end = match path.strip_prefix("/v1/") {
            Some(path) => forward::answer(self, request, path, &mut journey).await,
            None => Err(answer::Refusal::NoSuchAddress),
        };
        let mut answer = end.unwrap_or_else(|refusal| refusal.answer());
        let headers = answer.headers_mut();
        headers.entry(REQUEST_ID).or_insert(id);
        headers.insert(WAITED, HeaderValue::from(u64::try_from(journey.waited.as_millis()).unwrap_or(u64::MAX)));
        headers.insert(ATTEMPTS, HeaderValue::from(journey.attempts));
        let status = answer.status().as_u16();
        self.metrics.answered(journey.tenant.as_deref(), status);
        if self.is_verbose {
            log(&method, &path, status, &journey, since.elapsed());
        }
        answer
    }

    /// The client's id of a request, or a new one.
    fn identify(&self, request: &mut Request<Incoming>) -> HeaderValue {
        let new = || {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let text = format!("tg-{:x}-{number:x}", self.birth);
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from(number))
        };
        request.headers_mut().entry(REQUEST_ID).or_insert_with(new).clone()
    }
}

/// One line for each answer: never a key, never a body.
fn log(method: &http::Method, path: &str, status: u16, journey: &Journey, elapsed: Duration) {
    let tenant = journey.tenant.as_ref().map_or("-", |tenant| &*tenant.name);
    let resource = journey.resource.as_ref().map_or_else(|| "-".to_string(), |resource| resource.key.to_string());
    // A reader that went away is no reason to serve nobody.
    let _ = writeln!(
        std::io::stderr(),
        "{method} {path} tenant={tenant:?} priority={} to={resource:?} status={status} waited_ms={} attempts={} ms={}",
        journey.level.as_str(),
        journey.waited.as_millis(),
        journey.attempts,
        elapsed.as_millis(),
    );
}
