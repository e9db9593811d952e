//! Forwards one request, from its head to the head of its response.
//!
//! ```text
//! read the body -> tenant, model, limits -> wait for admission -> call -> forward the response
//!                                                ^                 |
//!                                                +-- rate-limited -+
//! ```
//!
//! A rate-limited call waits for admission again. The gate has already processed the rejection and decides
//! when that is. A call that failed during an outage waits until the provider is back. Any other failed call
//! is retried after a backoff. Both need a retry setting that allows it. Nothing is retried once a byte of a
//! response has been forwarded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use reqwest::Url;
use tidegate_core::backoff::Backoff;
use tidegate_core::budget::Usage;
use tidegate_core::gate::OwnedPermit;
use tidegate_core::request::{AfterCall, Denial, DenialReason, HealthState, Outcome, Retry};
use tidegate_core::time::Clock as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::counters::{CountGuard, QuotaGuard};
use super::endpoint::{BodyKind, Endpoint};
use super::error::ProxyError;
use super::headers::{self, Credentials, PROVIDER};
use super::parsed_request::{MediaType, ParsedRequest, domain};
use super::recorder::AttemptRecorder;
use super::redact::{RedactedBody, Redactor};
use super::tenant::{Group, Level, Tenant};
use super::upstream::{NO_MODEL, Resource, Upstream};
use super::{ReplyBody, Shared, models};
use crate::gate::CallPermit;
use crate::host::TokioHost;
use crate::http::peeked_body::PeekedBody;
use crate::http::{InFlightCall, PermitBody, ResponseInfo, read_error_body, read_head, transport_error_outcome};

/// The longest error body, in bytes, that is read to its end so that the connection can be reused.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The time limit for reading such a body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a request that is reported in headers and logs.
#[derive(Debug, Default)]
pub(super) struct RequestContext {
    pub(super) tenant: Option<Arc<Tenant>>,
    pub(super) level: Level,
    pub(super) resource: Option<Arc<Resource>>,
    pub(super) attempts: u32,
    pub(super) waited: Duration,
}

/// Handles a request under `/v1/`. `path` is the rest of its path.
pub(super) async fn handle(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    path: &str,
    context: &mut RequestContext,
) -> Result<Response<ReplyBody>, ProxyError> {
    let endpoint = Endpoint::find(request.method(), path, &shared.upstreams)?;
    let (parts, body) = request.into_parts();
    let media = MediaType::of(endpoint.body, &parts.headers)?;
    let tenant = shared.tenants.of(&parts.headers)?;
    context.tenant = Some(Arc::clone(&tenant));
    context.level = shared.tenants.level(&parts.headers);
    let most = shared.queue.deadline;
    let max_wait = headers::timeout(&parts.headers)?.map_or(most, |asked| asked.min(most));
    let mut held = QuotaGuard::empty(&shared.held_bytes);
    let read = read_body(shared, &parts, body, &mut held);
    let body = timeout(most, read).await.unwrap_or(Err(ProxyError::SlowBody))?;
    let deadline = Instant::now() + max_wait;
    let wanted = parts.headers.get(PROVIDER).map(HeaderValue::as_bytes);
    if path == "models" && parts.method == Method::GET && wanted.is_none() && shared.upstreams.len() > 1 {
        return models::list(shared, &tenant, context.level).await;
    }
    // Clients send a JSON content type even in calls without a body.
    let is_empty = endpoint.body == BodyKind::Any && body.is_empty();
    let parsed = ParsedRequest::read(if is_empty { MediaType::Empty } else { media }, body).await?;
    let named = parsed.model.as_deref().or(endpoint.model.as_deref());
    let is_served = |upstream: &Upstream| endpoint.is_served_by(upstream, &parts.method, path);
    // A request without a model must not reach a provider that is restricted to some models.
    let must_name = endpoint.body != BodyKind::Empty;
    let upstream = route(&shared.upstreams, wanted, named, must_name, is_served)?;
    let requested = parsed.model.as_deref().unwrap_or(NO_MODEL);
    let sent = upstream.model_to_send(requested).to_string();
    let resource = upstream
        .resource(&shared.gate, &shared.metrics, &sent, &domain(path))
        .ok_or_else(|| ProxyError::UnknownModel { model: requested.chars().take(80).collect() })?;
    context.resource = Some(Arc::clone(&resource));
    let estimate = resource.estimate(parsed.estimate);
    let url = upstream.address(path, parts.uri.query()).ok_or(ProxyError::NoSuchAddress)?;
    let renamed = (sent != requested).then_some(sent.as_str());
    let (content_type, body) = parsed.encode(&upstream.http, &url, renamed).await.ok_or(ProxyError::BrokenBody)?;
    let redactor = shared.redactor.with_client(&parts.headers, &url);
    let Parts { method, mut headers, .. } = parts;
    headers::to_provider(&mut headers, shared.tenants.own_headers(), upstream.credentials());
    headers.extend(content_type.map(|content_type| (CONTENT_TYPE, content_type)));
    let sent = UpstreamRequest { method, url, headers, body };
    let seed = shared.start_ms.wrapping_add(shared.requests.load(Ordering::Relaxed));
    let connection_errors = Backoff::new(shared.retry.connection_errors, seed);
    let server_errors = Backoff::new(shared.retry.server_errors, seed);
    let routed = RoutedRequest {
        shared,
        upstream,
        resource,
        tenant,
        deadline,
        estimate,
        redactor,
        connection_errors,
        server_errors,
    };
    routed.run(sent, context).await
}

/// Reads the whole body, which must be complete before it can be parsed. Each chunk is added to `held` as it
/// arrives, so a client that stops half-way holds no more than it has sent.
async fn read_body(
    shared: &Shared,
    parts: &Parts,
    mut body: Incoming,
    held: &mut QuotaGuard<'_>,
) -> Result<Bytes, ProxyError> {
    let most = shared.queue.max_body;
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|len| len > u64::from(most)) {
        return Err(ProxyError::TooLarge { most });
    }
    let mut whole = BytesMut::new();
    let next = shared.connections.body_timeout;
    while let Some(frame) = timeout(next, body.frame()).await.map_err(|_| ProxyError::SlowBody)? {
        let Ok(data) = frame.map_err(|_| ProxyError::BrokenBody)?.into_data() else { continue };
        if whole.len() + data.len() > most as usize {
            return Err(ProxyError::TooLarge { most });
        }
        held.try_grow(data.len() as u64, shared.queue.max_bytes).map_err(|held| ProxyError::TooMuchHeld {
            held,
            retry_after: shared.completion_rate.estimate_wait(shared.waiting()),
        })?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Selects the provider: the requested one, or else the first, among those that serve the call and its model.
/// A call that needs no model goes to the first. A call that must name a model and does not goes to one that
/// serves all models.
fn route<'s>(
    upstreams: &'s [Upstream],
    wanted: Option<&[u8]>,
    model: Option<&str>,
    must_name: bool,
    is_served: impl Fn(&Upstream) -> bool,
) -> Result<&'s Upstream, ProxyError> {
    let is_wanted = |upstream: &&Upstream| wanted.is_none_or(|name| upstream.config.name.as_bytes() == name);
    let mut candidates = upstreams.iter().filter(is_wanted).filter(|upstream| is_served(upstream)).peekable();
    if candidates.peek().is_none() {
        return Err(ProxyError::UnknownProvider);
    }
    let serves = |upstream: &&Upstream| match model {
        Some(model) => upstream.serves(model),
        None => !must_name || upstream.serves(""),
    };
    let unknown = || ProxyError::UnknownModel { model: model.unwrap_or_default().chars().take(80).collect() };
    candidates.find(serves).ok_or_else(unknown)
}

/// The request to the provider. It is copied for each attempt.
struct UpstreamRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

/// A request whose provider, resource and tenant are known. [`RoutedRequest::run`] makes its attempts.
struct RoutedRequest<'a> {
    shared: &'a Arc<Shared>,
    upstream: &'a Upstream,
    resource: Arc<Resource>,
    tenant: Arc<Tenant>,
    deadline: Instant,
    estimate: Usage,
    /// Redacts keys in responses of the provider.
    redactor: Redactor,
    /// Backoff for failed connections, and for 5xx responses.
    connection_errors: Backoff,
    server_errors: Backoff,
}

/// A response of a provider whose head has been received.
type UpstreamResponse = Response<reqwest::Body>;

/// The result for the client.
type ClientResult = Result<Response<ReplyBody>, ProxyError>;

/// An attempt in flight.
struct Attempt {
    in_flight: InFlightCall,
    recorder: AttemptRecorder,
}

/// The result of one attempt.
enum AttemptResult {
    /// The request is finished.
    Done(ClientResult),
    /// The call was rate-limited and waits for admission again.
    RateLimited,
    /// The call failed and may be retried.
    Failed(Failure),
}

/// A failed attempt that may be retried.
struct Failure {
    /// The result for the client if there is no retry.
    reply: ClientResult,
    kind: FailureKind,
    /// The retry during what may be an outage. `None` once the failure is known to be no outage.
    retry: Option<Retry>,
}

impl Failure {
    /// Returns the result of an attempt that failed: a failure to retry, or the final result.
    fn after(reply: ClientResult, kind: FailureKind, after: AfterCall) -> AttemptResult {
        match after {
            AfterCall::Retry(retry) => AttemptResult::Failed(Self { reply, kind, retry: Some(retry) }),
            _ => AttemptResult::Done(reply),
        }
    }
}

#[derive(Clone, Copy)]
enum FailureKind {
    Connection,
    Server,
}

/// The reason why an attempt is not admitted.
enum AdmitError {
    QueueFull { waiting: u32 },
    Denied(Denial),
}

impl RoutedRequest<'_> {
    async fn run(mut self, sent: UpstreamRequest, context: &mut RequestContext) -> ClientResult {
        // The last attempt, if it failed.
        let mut last: Option<Failure> = None;
        loop {
            let retry = last.as_ref().and_then(|failed| failed.retry);
            let slot = match (self.admit(retry, context).await, last.take()) {
                (Ok(slot), _) => slot,
                (Err(AdmitError::Denied(Denial { reason: DenialReason::RequestAtFault, .. })), Some(failed)) => {
                    if !self.back_off(failed.kind, context).await {
                        return failed.reply;
                    }
                    last = Some(Failure { retry: None, ..failed });
                    continue;
                }
                (Err(error), failed) => {
                    // The result of the last attempt says more than a passed deadline.
                    return match (self.error_for(&error, context), failed) {
                        (ProxyError::Deadline { .. }, Some(failed)) => failed.reply,
                        (error, _) => Err(error),
                    };
                }
            };
            context.attempts += 1;
            let mut request = reqwest::Request::new(sent.method.clone(), sent.url.clone());
            *request.headers_mut() = sent.headers.clone();
            if !sent.body.is_empty() {
                *request.body_mut() = Some(sent.body.clone().into());
            }
            match self.attempt(request, slot, context).await {
                AttemptResult::Done(reply) => return reply,
                AttemptResult::RateLimited => {}
                AttemptResult::Failed(failed) => last = Some(failed),
            }
        }
    }

    /// Waits for admission. `retry` describes the failure if the last attempt failed in what may be an
    /// outage.
    async fn admit(&self, retry: Option<Retry>, context: &mut RequestContext) -> Result<CallPermit, AdmitError> {
        let (gate, resource) = (&self.shared.gate, &self.resource);
        let request = tidegate_core::request::Request {
            group: self.shared.tenants.group(&self.tenant, context.level),
            timeout: Some(self.deadline.saturating_duration_since(Instant::now()).into()),
            estimate: self.estimate,
            ..tidegate_core::request::Request::new(resource.id)
        };
        let at_once = if retry.is_none() { gate.core().try_acquire_owned(request).ok() } else { None };
        let permit = match at_once {
            Some(permit) => permit,
            None => self.wait(request, retry, context).await?,
        };
        self.group(context).admitted.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }

    async fn wait(
        &self,
        request: tidegate_core::request::Request,
        retry: Option<Retry>,
        context: &mut RequestContext,
    ) -> Result<OwnedPermit<TokioHost>, AdmitError> {
        // A request that was admitted once is not rejected by the bound of the queue.
        let most = if context.attempts == 0 { self.shared.queue.max_waiting } else { u32::MAX };
        let full = |waiting| AdmitError::QueueFull { waiting };
        let _all = CountGuard::try_new(&self.shared.waiting, most).map_err(full)?;
        let _group = CountGuard::new(&self.group(context).waiting);
        let since = Instant::now();
        let end = self.shared.gate.core().acquire_owned(request).with_retry(retry).await;
        let waited = since.elapsed();
        context.waited += waited;
        if end.is_ok() {
            self.resource.meters.record_wait(waited);
        }
        end.map_err(AdmitError::Denied)
    }

    fn group(&self, context: &RequestContext) -> &Group {
        self.tenant.group(context.level)
    }

    /// Returns the error for a request that was not admitted.
    fn error_for(&self, error: &AdmitError, context: &RequestContext) -> ProxyError {
        let denial = match *error {
            AdmitError::QueueFull { waiting } => {
                return ProxyError::QueueFull {
                    waiting,
                    retry_after: self.shared.completion_rate.estimate_wait(waiting),
                };
            }
            AdmitError::Denied(denial) if denial.reason == DenialReason::Shutdown => return ProxyError::ShuttingDown,
            AdmitError::Denied(denial) if denial.reason == DenialReason::RequestAtFault => {
                return ProxyError::Unreachable { provider: self.upstream.config.name.clone() };
            }
            AdmitError::Denied(denial) => denial,
        };
        let gate = self.shared.gate.core();
        let provider = || self.upstream.config.name.clone();
        let retry_after = denial.changes_at.map(|at| (at - gate.host().now()).into());
        let waited = context.waited;
        let why = || self.shared.why(&self.resource).unwrap_or_else(|| "other requests went first".to_string());
        match gate.snapshot(self.resource.id).map(|state| state.health) {
            Some(HealthState::Unavailable { cause, .. }) if denial.reason == DenialReason::Unavailable => {
                ProxyError::Unavailable { provider: provider(), cause, retry_after }
            }
            Some(HealthState::Down { .. } | HealthState::Probing { .. }) => {
                ProxyError::Outage { provider: provider(), waited, retry_after }
            }
            _ => ProxyError::Deadline { waited, why: why(), attempts: context.attempts },
        }
    }

    /// Sends the request and classifies the result.
    async fn attempt(&self, request: reqwest::Request, slot: CallPermit, context: &RequestContext) -> AttemptResult {
        let (tenant, level) = (&self.tenant, context.level);
        let recorder = AttemptRecorder::new(self.shared, &self.resource, tenant, level, self.estimate, self.upstream);
        let mut attempt = Attempt { in_flight: InFlightCall::new(slot), recorder };
        match self.upstream.http.execute(request).await {
            Ok(response) => {
                let head = read_head(response.status(), response.headers(), SystemTime::now());
                attempt.recorder.record_head(&head, response.headers());
                self.classify(response.into(), self.upstream.with_client_key_outcome(head), attempt, context).await
            }
            Err(error) => {
                let outcome = transport_error_outcome(&error);
                attempt.recorder.record_end(outcome);
                let provider = self.upstream.config.name.clone();
                let reply = Err(if error.is_timeout() {
                    ProxyError::ProviderTimeout { provider }
                } else {
                    ProxyError::Unreachable { provider }
                });
                // After any other error the provider may have processed the request.
                if error.is_connect() && self.shared.retry.connection_errors > 0 && self.may_repeat(context) {
                    return Failure::after(reply, FailureKind::Connection, attempt.in_flight.finish_call(outcome));
                }
                attempt.in_flight.finish_with(outcome);
                AttemptResult::Done(reply)
            }
        }
    }

    async fn classify(
        &self,
        response: UpstreamResponse,
        head: ResponseInfo,
        mut attempt: Attempt,
        context: &RequestContext,
    ) -> AttemptResult {
        let status = response.status();
        attempt.in_flight.record_info(&head);
        if status.is_client_error() || head.is_rate_limited() {
            return self.classify_error(response, head, attempt, context).await;
        }
        if status.is_server_error() && self.shared.retry.server_errors > 0 && self.may_repeat(context) {
            attempt.recorder.record_end(head.completion.outcome);
            let after = attempt.in_flight.finish_call(head.completion);
            let reply = self.buffered_response(response).await;
            return Failure::after(reply, FailureKind::Server, after);
        }
        AttemptResult::Done(self.stream_response(response, attempt))
    }

    /// Returns the error that replaces a 401 or 403 of the provider. The text of the provider may quote part
    /// of a key or contain account details.
    fn replacement_error(&self, status: StatusCode, outcome: Outcome) -> Option<ProxyError> {
        let provider = self.upstream.config.name.clone();
        match (status, self.upstream.credentials()) {
            (StatusCode::UNAUTHORIZED, Credentials::Own(_)) => Some(ProxyError::ProviderKey { provider }),
            (StatusCode::UNAUTHORIZED, Credentials::Forwarded) => Some(ProxyError::ClientKey { provider }),
            (StatusCode::UNAUTHORIZED, Credentials::None) => Some(ProxyError::NoProviderKey { provider }),
            (StatusCode::FORBIDDEN, Credentials::Own(_)) if outcome == Outcome::KeyRejected => {
                Some(ProxyError::ProviderKey { provider })
            }
            (StatusCode::FORBIDDEN, _) => Some(ProxyError::Forbidden { provider }),
            _ => None,
        }
    }

    /// Returns whether a rate-limited call waits for another attempt.
    fn should_wait(&self, head: &ResponseInfo, context: &RequestContext) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let is_too_long = head.completion.retry_after.is_some_and(|asked| Duration::from(asked) > left);
        !is_too_long && self.may_repeat(context)
    }

    /// Classifies a 4xx or rate-limited response. The call ends as soon as the beginning of its body has been
    /// read. A rate-limited call is retried, unless its account has no quota left or the wait exceeds the
    /// deadline.
    async fn classify_error(
        &self,
        response: UpstreamResponse,
        mut head: ResponseInfo,
        mut attempt: Attempt,
        context: &RequestContext,
    ) -> AttemptResult {
        let (parts, body) = response.into_parts();
        let body = PeekedBody::peek(body).await;
        if let Some(whole) = body.complete() {
            read_error_body(whole, &parts.headers, SystemTime::now()).refine(&mut head);
        }
        let head = self.upstream.with_client_key_outcome(head);
        attempt.recorder.record_end(head.completion.outcome);
        attempt.in_flight.finish_with(head.completion);
        if head.is_rate_limited() && self.should_wait(&head, context) {
            return AttemptResult::RateLimited;
        }
        match self.replacement_error(parts.status, head.completion.outcome) {
            Some(error) => AttemptResult::Done(Err(error)),
            None => AttemptResult::Done(
                self.stream_response(Response::from_parts(parts, reqwest::Body::wrap(body)), attempt),
            ),
        }
    }

    /// Buffers a short response. A long or broken one loses its body.
    async fn buffered_response(&self, response: UpstreamResponse) -> ClientResult {
        self.check_response(&response)?;
        let (parts, body) = response.into_parts();
        let mut parts = self.response_head(parts);
        let body = read_short_body(body).await.unwrap_or_else(|| {
            parts.headers.remove(CONTENT_LENGTH);
            Bytes::new()
        });
        Ok(Response::from_parts(parts, Either::Left(Full::new(self.redactor.redacted(body)))))
    }

    fn stream_response(
        &self,
        response: UpstreamResponse,
        Attempt { mut in_flight, recorder }: Attempt,
    ) -> ClientResult {
        if let Err(error) = self.check_response(&response) {
            // The call ends with its head; its usage is unknown.
            in_flight.finish();
            return Err(error);
        }
        let (parts, body) = response.into_parts();
        let body = RedactedBody::new(body, self.redactor.clone());
        let body = PermitBody::with_observer(body, in_flight, transport_error_outcome, recorder);
        Ok(Response::from_parts(self.response_head(parts), Either::Right(body)))
    }

    /// Rejects a compressed response, whose body cannot be searched for keys or usage, and a switch to
    /// another protocol.
    fn check_response(&self, response: &UpstreamResponse) -> Result<(), ProxyError> {
        let provider = || self.upstream.config.name.clone();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ProxyError::Switched { provider: provider() });
        }
        let all_are = |name, plain: &str| response.headers().get_all(name).iter().all(|coding| coding == plain);
        if all_are(CONTENT_ENCODING, "identity") && all_are(TRANSFER_ENCODING, "chunked") {
            return Ok(());
        }
        Err(ProxyError::Encoded { provider: provider() })
    }

    /// Returns the response head for the client.
    fn response_head(&self, parts: http::response::Parts) -> http::response::Parts {
        let (mut head, ()) = Response::new(()).into_parts();
        // Only these two: the reason phrase is text of the provider, too.
        (head.status, head.headers) = (parts.status, parts.headers);
        headers::to_client(&mut head.headers);
        self.redactor.redact_headers(&mut head.headers);
        head
    }

    fn may_repeat(&self, context: &RequestContext) -> bool {
        let most = self.shared.retry.max_attempts;
        most.is_none_or(|most| context.attempts < most.get()) && Instant::now() < self.deadline
    }

    /// Waits for the backoff after a failure. Returns whether to try again.
    async fn back_off(&mut self, kind: FailureKind, context: &RequestContext) -> bool {
        let backoff = match kind {
            FailureKind::Connection => &mut self.connection_errors,
            FailureKind::Server => &mut self.server_errors,
        };
        let now = self.shared.gate.core().host().now();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let pause = backoff.after_failure(now).map(|at| Duration::from(at - now)).filter(|pause| *pause < left);
        match pause.filter(|_| self.may_repeat(context)) {
            Some(pause) => sleep_unless_stopped(pause, self.shared.stop.subscribe()).await,
            None => false,
        }
    }
}

/// Sleeps for `pause`. Returns false if the proxy stopped meanwhile.
async fn sleep_unless_stopped(pause: Duration, mut stop: watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = sleep(pause) => true,
        _ = stop.wait_for(|stops| *stops) => false,
    }
}

/// Reads an error body to its end if it is short, so that the connection can be reused.
async fn read_short_body(body: reqwest::Body) -> Option<Bytes> {
    let whole = timeout(ERROR_BODY_TIMEOUT, Limited::new(body, MAX_ERROR_BODY_BYTES).collect()).await;
    Some(whole.ok()?.ok()?.to_bytes())
}

#[cfg(test)]
mod tests {
    use wildmatch::WildMatch;

    use super::*;
    use crate::app::proxy::config::ProviderConfig;

    #[tokio::test(start_paused = true)]
    async fn shutdown_interrupts_the_backoff_before_a_retry() {
        let (stop, stopped) = watch::channel(false);
        let since = Instant::now();
        assert!(sleep_unless_stopped(Duration::from_secs(4), stopped.clone()).await);
        assert_eq!(since.elapsed(), Duration::from_secs(4));
        let waits = tokio::spawn(sleep_unless_stopped(Duration::from_mins(1), stopped.clone()));
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        assert!(!waits.await.unwrap() && !sleep_unless_stopped(Duration::from_mins(1), stopped).await);
        assert_eq!(since.elapsed(), Duration::from_secs(5));
    }

    #[test]
    fn the_first_provider_that_serves_the_model_is_used_unless_the_client_names_one() {
        let upstream = |name: &str, serves: &str| {
            let mut config = ProviderConfig::at(name, "http://127.0.0.1:1/v1".parse().unwrap());
            config.serves = vec![WildMatch::new(serves)];
            Upstream::new(config).unwrap()
        };
        let upstreams = [upstream("a", "gpt-*"), upstream("b", "*-large"), upstream("c", "gpt-*")];
        let routed = |wanted: Option<&str>, model, must_name| {
            let wanted = wanted.map(str::as_bytes);
            route(&upstreams, wanted, model, must_name, |_| true).map(|upstream| upstream.config.name.clone())
        };
        let name = |wanted, model| routed(wanted, model, true);
        let unknown = |model: &str| Err(ProxyError::UnknownModel { model: model.to_string() });
        assert_eq!(name(None, Some("gpt-large")).unwrap(), "a");
        assert_eq!(name(None, Some("x-large")).unwrap(), "b");
        assert_eq!(name(Some("c"), Some("gpt-large")).unwrap(), "c");
        assert_eq!(name(Some("c"), Some("x-large")), unknown("x-large"), "c does not serve that model");
        assert_eq!(name(None, Some("other")), unknown("other"));
        assert_eq!(name(Some("d"), None), Err(ProxyError::UnknownProvider));
        assert_eq!(
            (name(None, None), name(Some("c"), None)),
            (unknown(""), unknown("")),
            "each provider is restricted to some models"
        );
        assert_eq!(routed(None, None, false).unwrap(), "a");
        let none = route(&upstreams, None, Some("gpt-large"), true, |upstream| upstream.config.name == "b");
        assert_eq!(none.unwrap().config.name, "b");
    }
}
