//! `tidegate proxy`: an OpenAI-compatible reverse proxy that schedules the requests of programs in any
//! language.
//!
//! Clients change one URL. Their requests wait in one fair queue, by tenant, weight and priority. They are
//! sent under the adaptive limit and the budgets of their provider and model. A request that the provider
//! rejects as rate-limited is retried, as long as no byte of a response has been forwarded. Response bodies
//! are streamed as they arrive. When a client disconnects, its place in the queue or its call is released at
//! once.
//!
//! | module | content |
//! | --- | --- |
//! | [`config`] | the configuration file |
//! | `server`, `connection_limit`, `write_timeout`, `head_scanner` | accepting and closing connections |
//! | `access`, `endpoint` | which hosts, origins and calls are allowed |
//! | `forward` | routing, attempts, responses |
//! | `parsed_request`, `json`, `form`, `headers`, `model_names` | parsing |
//! | `redact` | removes keys from provider responses |
//! | `upstream`, `tenant` | providers with their limits; tenants with their groups |
//! | `recorder`, `usage`, `rate`, `counters` | outcome, token usage, rate and number of calls |
//! | `events`, `stream_usage` | server-sent events; asks for the usage of streams |
//! | `admin`, `metrics`, `models` | responses of the proxy itself |
//! | `error` | error responses |
//!
//! Connections are served by hyper itself, not by axum or the other layers of tower-http. The head scanner
//! reads the bytes of a connection before hyper parses them, and limits on slow clients and the bytes of each
//! body belong to a connection or an attempt, which a router does not see. The paths are few. From tower-http
//! comes only CORS.
//!
//! The core decides which request is sent next, and when. Keys are never written to logs, metrics, pages or
//! errors.

mod access;
mod admin;
pub mod args;
pub mod config;
mod connection_limit;
mod counters;
mod endpoint;
mod error;
mod events;
mod form;
mod forward;
#[cfg(test)]
mod fuzz;
mod head_scanner;
mod headers;
mod json;
mod metrics;
mod model_names;
mod models;
mod parsed_request;
mod program;
mod rate;
mod recorder;
mod server;
mod stream_usage;
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
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tidegate_core::request::{HealthConfig, RequestConfig};
use tokio::sync::watch as signal;
use tokio::time::Instant;

use crate::app::provider::redact::{RedactedBody, Redactor};
use crate::gate::{GateError, RequestGate, random_seed};
use crate::http::PermitBody;
use crate::share::{Share, ShareError};

use access::AccessPolicy;
use config::{ConnectionsConfig, ProxyConfig, QueueConfig, RetryConfig};
use error::ProxyError;
use forward::RequestContext;
use head_scanner::HeadScanner;
use headers::{ATTEMPTS, REQUEST_ID, WAITED};
use metrics::Metrics;
use models::ModelListCache;
use rate::RateEstimator;
use recorder::AttemptRecorder;
use stream_usage::WithoutUsage;
use tenant::Tenants;
use upstream::Upstream;

pub use program::proxy;
pub use server::{Drained, Proxy};

/// The body of a response to a client: a full body of the proxy itself, or the stream of a provider.
type ReplyBody = Either<Full<Bytes>, WithoutUsage<PermitBody<RedactedBody<reqwest::Body>, AttemptRecorder>>>;

/// An error that prevents the proxy from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The gate cannot be created.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The store of shared limits cannot be used.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The HTTP client of a provider cannot be created.
    #[error("cannot call the provider `{provider}`: {why}")]
    Client {
        /// The name of the provider.
        provider: String,
        /// The reason.
        why: String,
    },
}

/// A provider may answer with HTML, such as an error page of a server in front of it. Without this, its
/// scripts would run as a page of the proxy's host, and could use the proxy.
const NO_SCRIPTS: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");

/// The kind of requests that a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerKind {
    Clients,
    Admins,
}

/// The state that all requests share.
struct Shared {
    gate: RequestGate,
    /// With which processes limits are shared, for people.
    sharing: Option<String>,
    upstreams: Vec<Upstream>,
    tenants: Tenants,
    access: AccessPolicy,
    /// Redacts the keys of all providers.
    redactor: Redactor,
    connections: ConnectionsConfig,
    queue: QueueConfig,
    retry: RetryConfig,
    metrics: Metrics,
    completion_rate: RateEstimator,
    models: ModelListCache,
    /// The number of requests in the queue.
    waiting: AtomicU32,
    /// The bytes of all requests whose response has not begun.
    held_bytes: AtomicU64,
    /// Whether the admin pages are served on the client listener.
    has_admin_pages: bool,
    is_verbose: bool,
    /// The start of the process in milliseconds since the Unix epoch: the prefix of generated request ids.
    start_ms: u64,
    requests: AtomicU64,
    /// Becomes true when the proxy shuts down.
    stop: signal::Sender<bool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn new(
        config: ProxyConfig,
        share: Option<Share>,
        sharing: Option<String>,
        is_verbose: bool,
    ) -> Result<Self, StartError> {
        // Each request has its own deadline.
        let health = HealthConfig { patience: None, seed: random_seed(), ..HealthConfig::default() };
        let rate_limit_headers = config.rate_limit_headers;
        let settings = RequestConfig { health: Some(health), rate_limit_headers, ..RequestConfig::default() };
        let gate = RequestGate::with_config(settings)?;
        if let Some(share) = share {
            gate.share(share)?;
        }
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
            sharing,
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

    /// Handles a request that was received at the address `local`: checks it first, then serves it. `heads`
    /// has scanned the bytes of the connection.
    async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        kind: ListenerKind,
        local: SocketAddr,
        heads: &HeadScanner,
    ) -> Response<ReplyBody> {
        // Two parsers may disagree on where such a request ends, so no further request is read from its
        // connection.
        let is_octal = |len: &HeaderValue| len.len() > 1 && len.as_bytes().starts_with(b"0");
        let has_octal = request.headers().get_all(CONTENT_LENGTH).iter().any(is_octal);
        // A chunked body has no length that is known before its end.
        let body_len = request.body().size_hint().exact().filter(|_| !has_octal);
        let (method, headers) = (request.method(), request.headers());
        let (is_preflight, cors) = match self.access.cors(method, headers).await {
            Some((headers, is_preflight)) => (is_preflight, headers),
            None => (false, http::HeaderMap::new()),
        };
        let mut response = match self.check(&request, local) {
            Err(error) => error.response(),
            Ok(()) if is_preflight => Response::new(Either::Left(Full::default())),
            Ok(()) if kind == ListenerKind::Clients => self.serve_client(request).await,
            Ok(()) => {
                let page = admin::handle(self, method, request.uri().path(), headers);
                page.unwrap_or_else(|| ProxyError::NoSuchAddress.response())
            }
        };
        let headers = response.headers_mut();
        headers.extend(cors);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(NO_SCRIPTS);
        if !body_len.is_some_and(|len| heads.end_request(len)) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Rejects requests that are too large, whose body has another transfer encoding than `chunked`, for
    /// another host, or from another site.
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
        // The parser takes any list that ends with `chunked`, and does not decode the others.
        let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
        let is_chunked = encodings.next().is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !is_chunked || encodings.next().is_some() {
            return Err(ProxyError::BadTransferEncoding);
        }
        self.access.check(uri, headers, local)
    }

    /// Serves a request of a client, and logs and counts the response.
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
        let mut response = end.unwrap_or_else(|error| error.response());
        let headers = response.headers_mut();
        headers.entry(REQUEST_ID).or_insert(id);
        headers.insert(WAITED, HeaderValue::from(u64::try_from(context.waited.as_millis()).unwrap_or(u64::MAX)));
        headers.insert(ATTEMPTS, HeaderValue::from(context.attempts));
        let status = response.status().as_u16();
        self.metrics.record_response(context.tenant.as_deref(), status);
        if self.is_verbose {
            log(&method, &path, status, &context, since.elapsed());
        }
        response
    }

    /// Returns the request id of the client, or inserts a new one.
    fn identify(&self, request: &mut Request<Incoming>) -> HeaderValue {
        let new = || {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let text = format!("tg-{:x}-{number:x}", self.start_ms);
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from(number))
        };
        request.headers_mut().entry(REQUEST_ID).or_insert_with(new).clone()
    }
}

/// Writes one line for a response to standard error, without keys and bodies.
fn log(method: &http::Method, path: &str, status: u16, context: &RequestContext, elapsed: Duration) {
    let tenant = context.tenant.as_ref().map_or("-", |tenant| &*tenant.name);
    let resource = context.resource.as_ref().map_or_else(|| "-".to_string(), |resource| resource.key.to_string());
    // A closed standard error must not stop the proxy.
    let _ = writeln!(
        std::io::stderr(),
        "{method} {path} tenant={tenant:?} priority={} to={resource:?} status={status} waited_ms={} attempts={} ms={}",
        context.level.as_str(),
        context.waited.as_millis(),
        context.attempts,
        elapsed.as_millis(),
    );
}
