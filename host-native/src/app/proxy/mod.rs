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
//! | `guard`, `endpoint` | who may call, and which calls are forwarded |
//! | `forward`, `ask`, `json`, `form`, `headers` | one request: what it asks for, its turns, what is handed on |
//! | `redact` | keys in what providers say |
//! | `route`, `tenant` | who serves a model and under which limits; whose a request is |
//! | `watch`, `usage`, `pace`, `count` | what is noted of calls: how they end, what they use, how fast, how many there are |
//! | `admin`, `metrics`, `models` | what the proxy answers itself |
//!
//! Which request goes next, and when, is the core's to decide; the proxy asks the gate and obeys. Keys are never
//! written anywhere: not into logs, metrics, pages or errors.

mod access;
mod admin;
pub mod args;
pub mod config;
mod counters;
mod endpoint;
mod error;
mod form;
mod forward;
mod headers;
mod json;
mod metrics;
mod models;
mod parsed_request;
mod program;
mod rate;
mod recorder;
mod redact;
mod server;
mod tenant;
mod upstream;
mod usage;
mod write_timeout;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tidegate_core::request::{HealthConfig, RequestConfig};
use tokio::sync::watch as signal;
use tokio::time::Instant;

use crate::gate::{GateError, RequestGate, random_seed};
use crate::http::PermitBody;

use access::AccessPolicy;
use config::{ConnectionsConfig, ProxyConfig, QueueConfig, RetryConfig};
use error::ProxyError;
use forward::RequestContext;
use headers::{ATTEMPTS, REQUEST_ID, WAITED};
use metrics::Metrics;
use models::ModelListCache;
use rate::RateEstimator;
use recorder::AttemptRecorder;
use redact::{RedactedBody, Redactor};
use tenant::Tenants;
use upstream::Upstream;

pub use program::proxy;
pub use server::{Drained, Proxy};

/// The body of an answer to a client: the proxy's own, or a provider's as it comes.
type ReplyBody = Either<Full<Bytes>, PermitBody<RedactedBody<reqwest::Body>, AttemptRecorder>>;

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
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

const CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// Who calls at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerKind {
    Clients,
    Admins,
}

/// What all requests share.
struct Shared {
    gate: RequestGate,
    upstreams: Vec<Upstream>,
    tenants: Tenants,
    access: AccessPolicy,
    /// Hides the keys of all providers.
    redactor: Redactor,
    connections: ConnectionsConfig,
    queue: QueueConfig,
    retry: RetryConfig,
    metrics: Metrics,
    completion_rate: RateEstimator,
    models: ModelListCache,
    /// Requests that wait for their turn.
    waiting: AtomicU32,
    /// Bytes of requests whose answers have not begun.
    held_bytes: AtomicU64,
    /// Whether the admin pages are where the clients call.
    has_admin_pages: bool,
    is_verbose: bool,
    /// What the ids of this process begin with.
    start_ms: u64,
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
    fn new(config: ProxyConfig, is_verbose: bool) -> Result<Self, StartError> {
        // Each client has a patience of its own: its deadline.
        let health = HealthConfig { patience: None, seed: random_seed(), ..HealthConfig::default() };
        let rate_limit_headers = config.rate_limit_headers;
        let settings = RequestConfig { health: Some(health), rate_limit_headers, ..RequestConfig::default() };
        let gate = RequestGate::with_config(settings)?;
        let metrics = Metrics::new();
        let mut upstreams = Vec::with_capacity(config.providers.len());
        for provider in config.providers {
            let name = provider.name.clone();
            let upstream = Upstream::new(provider).map_err(|why| StartError::Client { provider: name, why })?;
            upstreams.push(upstream);
        }
        let keys = upstreams.iter().filter_map(|upstream| upstream.config.api_key.as_ref());
        let redactor = Redactor::new(keys.map(|key| key.secret().as_bytes()));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            tenants: Tenants::new(gate.clone(), config.tenants, config.priority),
            gate,
            redactor,
            access: AccessPolicy::new(config.access),
            connections: config.connections,
            upstreams,
            queue: config.queue,
            retry: config.retry,
            metrics,
            completion_rate: RateEstimator::new(),
            models: ModelListCache::default(),
            waiting: AtomicU32::new(0),
            held_bytes: AtomicU64::new(0),
            has_admin_pages: config.admin_listen.is_none(),
            is_verbose,
            start_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(0),
            requests: AtomicU64::new(0),
            stop: signal::Sender::new(false),
        })
    }

    fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Answers a request that came to `local`, once it is known who may have sent it.
    async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        kind: ListenerKind,
        local: SocketAddr,
    ) -> Response<ReplyBody> {
        // Where a body of pieces ends, two readers may see differently, so nothing after it is read as another request.
        let is_last = request.headers().contains_key(TRANSFER_ENCODING);
        let (method, headers) = (request.method(), request.headers());
        let (is_preflight, cors) = match self.access.cors(method, headers).await {
            Some((headers, is_preflight)) => (is_preflight, headers),
            None => (false, http::HeaderMap::new()),
        };
        let mut answer = match self.check(&request, local) {
            Err(refusal) => refusal.response(),
            Ok(()) if is_preflight => Response::new(Either::Left(Full::default())),
            Ok(()) if kind == ListenerKind::Clients => self.serve_client(request).await,
            Ok(()) => {
                let page = admin::handle(self, method, request.uri().path(), headers);
                page.unwrap_or_else(|| ProxyError::NoSuchAddress.response())
            }
        };
        let headers = answer.headers_mut();
        headers.extend(cors);
        headers.insert(CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Refuses what nobody may send.
    fn check(&self, request: &Request<Incoming>, local: SocketAddr) -> Result<(), ProxyError> {
        let ConnectionsConfig { max_header_bytes, max_url_bytes, .. } = self.connections;
        let (uri, headers) = (request.uri(), request.headers());
        if uri.path_and_query().is_some_and(|path| path.as_str().len() > max_url_bytes as usize) {
            return Err(ProxyError::UrlTooLong { most: max_url_bytes });
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > max_header_bytes as usize {
            return Err(ProxyError::HeadersTooLarge { most: max_header_bytes });
        }
        self.access.check(uri, headers, local)
    }

    /// Answers a client.
    async fn serve_client(self: &Arc<Self>, request: Request<Incoming>) -> Response<ReplyBody> {
        let path = request.uri().path().to_string();
        if self.has_admin_pages
            && let Some(page) = admin::handle(self, request.method(), &path, request.headers())
        {
            return page;
        }
        let since = Instant::now();
        let mut request = request;
        let id = self.identify(&mut request);
        let method = request.method().clone();
        let mut context = RequestContext::default();
        let end = match path.strip_prefix("/v1/") {
            Some(path) => forward::handle(self, request, path, &mut context).await,
            None => Err(ProxyError::NoSuchAddress),
        };
        let mut answer = end.unwrap_or_else(|refusal| refusal.response());
        let headers = answer.headers_mut();
        headers.entry(REQUEST_ID).or_insert(id);
        headers.insert(WAITED, HeaderValue::from(u64::try_from(context.waited.as_millis()).unwrap_or(u64::MAX)));
        headers.insert(ATTEMPTS, HeaderValue::from(context.attempts));
        let status = answer.status().as_u16();
        self.metrics.record_response(context.tenant.as_deref(), status);
        if self.is_verbose {
            log(&method, &path, status, &context, since.elapsed());
        }
        answer
    }

    /// The client's id of a request, or a new one.
    fn identify(&self, request: &mut Request<Incoming>) -> HeaderValue {
        let new = || {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let text = format!("tg-{:x}-{number:x}", self.start_ms);
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from(number))
        };
        request.headers_mut().entry(REQUEST_ID).or_insert_with(new).clone()
    }
}

/// One line for each answer: never a key, never a body.
fn log(method: &http::Method, path: &str, status: u16, context: &RequestContext, elapsed: Duration) {
    let tenant = context.tenant.as_ref().map_or("-", |tenant| &*tenant.name);
    let resource = context.resource.as_ref().map_or_else(|| "-".to_string(), |resource| resource.key.to_string());
    // A reader that went away is no reason to serve nobody.
    let _ = writeln!(
        std::io::stderr(),
        "{method} {path} tenant={tenant:?} priority={} to={resource:?} status={status} waited_ms={} attempts={} ms={}",
        context.level.as_str(),
        context.waited.as_millis(),
        context.attempts,
        elapsed.as_millis(),
    );
}
