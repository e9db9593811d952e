//! One request, from its head to the head of its answer.
//!
//! ```text
//! read the body -> whose is it, what for -> wait for a turn -> call -> hand the answer on
//!                                               ^                |
//!                                               +-- too many ----+
//! ```
//!
//! A call that was refused for too many calls waits for another turn; the gate has heard of the refusal by then, and says
//! when that is. A call that failed in an outage waits until its provider is back, and one that failed by itself is made again after
//! a pause: both as the core decides, and only where the configuration allows a call to be repeated. Nothing is called again once a
//! byte of an answer was handed on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use tidegate_core::backoff::Backoff;
use tidegate_core::budget::Usage;
use tidegate_core::gate::OwnedPermit;
use tidegate_core::request::{AfterCall, Denial, DenialReason, HealthState, Outcome, Retry};
use tidegate_core::time::Clock as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::answer::Refusal;
use super::ask::{Asked, domain};
use super::count::{OneMore, Share};
use super::headers::{self, PROVIDER};
use super::route::{NO_MODEL, Resource, Upstream, leaves_its_base};
use super::tenant::{Group, Level, Tenant};
use super::watch::Watcher;
use super::{ReplyBody, Shared, models};
use crate::gate::CallPermit;
use crate::host::TokioHost;
use crate::http::peeked_body::PeekedBody;
use crate::http::{InFlightCall, PermitBody, ResponseInfo, read_error_body, read_head, transport_error_outcome};

/// The longest refusal that is read to its end, so that its connection can be used again.
const REFUSAL_BYTES: usize = 64 << 10;

/// How long that may take.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// What became of a request so far.
#[derive(Debug, Default)]
pub(super) struct Journey {
    pub(super) tenant: Option<Arc<Tenant>>,
    pub(super) level: Level,
    pub(super) resource: Option<Arc<Resource>>,
    pub(super) attempts: u32,
    pub(super) waited: Duration,
}

/// Answers a request under `/v1/`; `path` is the rest of its address.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    path: &str,
    journey: &mut Journey,
) -> Result<Response<ReplyBody>, Refusal> {
    if leaves_its_base(path) {
        return Err(Refusal::NoSuchAddress);
    }
    let (parts, body) = request.into_parts();
    let tenant = shared.tenants.of(&parts.headers)?;
    journey.tenant = Some(Arc::clone(&tenant));
    journey.level = shared.tenants.level(&parts.headers);
    let most = shared.queue.deadline;
    let patience = headers::timeout(&parts.headers)?.map_or(most, |asked| asked.min(most));
    let mut held = Share::none(&shared.held_bytes);
    let read = read_body(shared, &parts, body, &mut held);
    let body = timeout(most, read).await.unwrap_or(Err(Refusal::BrokenBody))?;
    let deadline = Instant::now() + patience;
    let wanted = parts.headers.get(PROVIDER).map(HeaderValue::as_bytes);
    if path == "models" && parts.method == http::Method::GET && wanted.is_none() && shared.upstreams.len() > 1 {
        return models::list(shared, &tenant, journey.level).await;
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let asked = Asked::read(content_type, &body)?;
    let upstream = route(&shared.upstreams, wanted, asked.model.as_deref())?;
    let said = asked.model.as_deref().unwrap_or(NO_MODEL);
    let sent = upstream.sent(said);
    let resource = upstream
        .resource(&shared.gate, &shared.metrics, sent, &domain(path))
        .ok_or_else(|| Refusal::UnknownModel { model: said.chars().take(80).collect() })?;
    journey.resource = Some(Arc::clone(&resource));
    let estimate = resource.estimate(asked.estimate);
    let body = if sent == said { body } else { asked.with_model(&body, sent) };
    let seed = shared.birth.wrapping_add(shared.requests.load(Ordering::Relaxed));
    let connection_errors = Backoff::new(shared.retry.connection_errors, seed);
    let server_errors = Backoff::new(shared.retry.server_errors, seed);
    let trip = Trip { shared, upstream, resource, tenant, deadline, estimate, connection_errors, server_errors };
    trip.run(parts, body, path, journey).await
}

/// The whole body, which has to be there before anybody can say what it asks for. It counts in `held` as it comes, so a
/// client that stops half-way holds what it sent and no more.
async fn read_body(shared: &Shared, parts: &Parts, mut body: Incoming, held: &mut Share<'_>) -> Result<Bytes, Refusal> {
    let most = shared.queue.max_body;
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|len| len > u64::from(most)) {
        return Err(Refusal::TooLarge { most });
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::BrokenBody)?.into_data() else { continue };
        if whole.len() + data.len() > most as usize {
            return Err(Refusal::TooLarge { most });
        }
        held.grow(data.len() as u64, shared.queue.max_bytes)
            .map_err(|held| Refusal::TooMuchHeld { held, retry_after: shared.pace.wait_for(shared.waiting()) })?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Who is called: the one asked for by name, or the first that serves the model. Calls that name no model go to the first.
fn route<'s>(upstreams: &'s [Upstream], wanted: Option<&[u8]>, model: Option<&str>) -> Result<&'s Upstream, Refusal> {
    if let Some(wanted) = wanted {
        let named = upstreams.iter().find(|upstream| upstream.config.name.as_bytes() == wanted);
        return named.ok_or(Refusal::UnknownProvider);
    }
    let Some(model) = model else { return upstreams.first().ok_or(Refusal::UnknownProvider) };
    let unknown = || Refusal::UnknownModel { model: model.chars().take(80).collect() };
    upstreams.iter().find(|upstream| upstream.serves(model)).ok_or_else(unknown)
}

/// A request that knows where it goes.
struct Trip<'a> {
    shared: &'a Arc<Shared>,
    upstream: &'a Upstream,
    resource: Arc<Resource>,
    tenant: Arc<Tenant>,
    deadline: Instant,
    estimate: Usage,
    /// Pace the repeats after connections that could not be made, and after answers of 5xx.
    connection_errors: Backoff,
    server_errors: Backoff,
}

/// An answer of a provider, of which the head is there.
type Answer = Response<reqwest::Body>;

/// What a client gets.
type Reply = Result<Response<ReplyBody>, Refusal>;

/// A call that is out.
struct Call {
    held: InFlightCall,
    watcher: Watcher,
}

/// What became of one attempt.
enum Attempted {
    /// The client gets this.
    Over(Reply),
    /// It was refused for too many calls, and waits for another turn.
    RateLimited,
    /// It failed, and may be made again.
    Failed(Failure, AfterCall),
}

/// A failed attempt that may be made again.
struct Failure {
    /// What the client gets if it is not.
    reply: Reply,
    kind: FailureKind,
}

#[derive(Clone, Copy)]
enum FailureKind {
    Connection,
    Server,
}

/// Why an attempt does not go out.
enum NotAdmitted {
    QueueFull { waiting: u32 },
    Denied(Denial),
}

impl Trip<'_> {
    async fn run(mut self, parts: Parts, body: Bytes, path: &str, journey: &mut Journey) -> Reply {
        let url = self.upstream.address(path, parts.uri.query()).ok_or(Refusal::NoSuchAddress)?;
        let Parts { method, headers: mut sent, .. } = parts;
        let authorization = self.upstream.authorization.as_ref();
        headers::to_provider(&mut sent, self.shared.tenants.own_headers(), authorization);
        let (mut retry, mut failure) = (None, None);
        loop {
            let slot = match self.admit(retry, journey).await {
                Ok(slot) => slot,
                Err(NotAdmitted::Denied(Denial { reason: DenialReason::RequestAtFault, .. })) => {
                    let Some(failed) = failure.take() else { return Err(Refusal::ShuttingDown) };
                    retry = None;
                    match self.pause_after(failed, journey).await {
                        Some(reply) => return reply,
                        None => continue,
                    }
                }
                Err(not_admitted) => {
                    let refusal = self.refusal(&not_admitted, journey);
                    // What its last attempt brought says more than that its time is up.
                    return match (refusal, failure.take()) {
                        (Refusal::Deadline { .. }, Some(failed)) => failed.reply,
                        (refusal, _) => Err(refusal),
                    };
                }
            };
            journey.attempts += 1;
            let mut request = reqwest::Request::new(method.clone(), url.clone());
            *request.headers_mut() = sent.clone();
            if !body.is_empty() {
                *request.body_mut() = Some(body.clone().into());
            }
            match self.attempt(request, slot, journey).await {
                Attempted::Over(reply) => return reply,
                Attempted::RateLimited => retry = None,
                Attempted::Failed(failed, AfterCall::Retry(again)) => (retry, failure) = (Some(again), Some(failed)),
                Attempted::Failed(failed, _) => return failed.reply,
            }
        }
    }

    /// Waits for this request's turn. `retry`: how it failed in what may be an outage.
    async fn admit(&self, retry: Option<Retry>, journey: &mut Journey) -> Result<CallPermit, NotAdmitted> {
        let (gate, resource) = (&self.shared.gate, &self.resource);
        let request = tidegate_core::request::Request {
            group: self.shared.tenants.group(&self.tenant, journey.level),
            timeout: Some(self.deadline.saturating_duration_since(Instant::now()).into()),
            estimate: self.estimate,
            ..tidegate_core::request::Request::new(resource.id)
        };
        let at_once = if retry.is_none() { gate.core().try_acquire_owned(request).ok() } else { None };
        let permit = match at_once {
            Some(permit) => permit,
            None => self.wait(request, retry, journey).await?,
        };
        self.group(journey).admitted.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }

    async fn wait(
        &self,
        request: tidegate_core::request::Request,
        retry: Option<Retry>,
        journey: &mut Journey,
    ) -> Result<OwnedPermit<TokioHost>, NotAdmitted> {
        // A request that had its turn once does not lose its place for the bound.
        let most = if journey.attempts == 0 { self.shared.queue.max_waiting } else { u32::MAX };
        let full = |waiting| NotAdmitted::QueueFull { waiting };
        let _all = OneMore::within(&self.shared.waiting, most).map_err(full)?;
        let _group = OneMore::of(&self.group(journey).waiting);
        let since = Instant::now();
        let end = self.shared.gate.core().acquire_owned(request).with_retry(retry).await;
        let waited = since.elapsed();
        journey.waited += waited;
        if end.is_ok() {
            self.resource.meters.waited(waited);
        }
        end.map_err(NotAdmitted::Denied)
    }

    fn group(&self, journey: &Journey) -> &Group {
        self.tenant.group(journey.level)
    }

    /// What a client gets whose call did not go out.
    fn refusal(&self, not_admitted: &NotAdmitted, journey: &Journey) -> Refusal {
        let denial = match *not_admitted {
            NotAdmitted::QueueFull { waiting } => {
                return Refusal::QueueFull { waiting, retry_after: self.shared.pace.wait_for(waiting) };
            }
            NotAdmitted::Denied(denial) if denial.reason == DenialReason::Shutdown => return Refusal::ShuttingDown,
            NotAdmitted::Denied(denial) => denial,
        };
        let gate = self.shared.gate.core();
        let provider = || self.upstream.config.name.clone();
        let retry_after = denial.changes_at.map(|at| (at - gate.host().now()).into());
        let waited = journey.waited;
        let why = || self.shared.why(&self.resource).unwrap_or_else(|| "others went first".to_string());
        match gate.snapshot(self.resource.id).map(|state| state.health) {
            Some(HealthState::Unavailable { cause, .. }) if denial.reason == DenialReason::Unavailable => {
                Refusal::Unavailable { provider: provider(), cause, retry_after }
            }
            Some(HealthState::Down { .. } | HealthState::Probing { .. }) => {
                Refusal::Outage { provider: provider(), waited, retry_after }
            }
            _ => Refusal::Deadline { waited, why: why(), attempts: journey.attempts },
        }
    }

    /// Makes the call.
    async fn attempt(&self, request: reqwest::Request, slot: CallPermit, journey: &Journey) -> Attempted {
        let (tenant, level) = (&self.tenant, journey.level);
        let watcher = Watcher::new(self.shared, &self.resource, tenant, level, self.estimate, self.upstream);
        let mut call = Call { held: InFlightCall::new(slot), watcher };
        match self.upstream.http.execute(request).await {
            Ok(answer) => {
                let head = read_head(answer.status(), answer.headers(), SystemTime::now());
                call.watcher.head(&head, answer.headers());
                self.judge(answer.into(), self.upstream.as_gate_sees(head), call, journey).await
            }
            Err(error) => {
                let outcome = transport_error_outcome(&error);
                call.watcher.ended(outcome);
                let provider = self.upstream.config.name.clone();
                let reply = Err(if error.is_timeout() {
                    Refusal::ProviderTimeout { provider }
                } else {
                    Refusal::Unreachable { provider }
                });
                // Of any other than a connection that was never made the provider may have seen.
                if error.is_connect() && self.shared.retry.connection_errors > 0 && self.may_repeat(journey) {
                    let failure = Failure { reply, kind: FailureKind::Connection };
                    return Attempted::Failed(failure, call.held.finish_call(outcome));
                }
                call.held.finish_with(outcome);
                Attempted::Over(reply)
            }
        }
    }

    async fn judge(&self, answer: Answer, head: ResponseInfo, mut call: Call, journey: &Journey) -> Attempted {
        let status = answer.status();
        call.held.record_info(&head);
        if self.upstream.authorization.is_some() && status == StatusCode::UNAUTHORIZED {
            // Its text may hold parts of a key that is none of the client's.
            call.watcher.ended(Outcome::KeyRejected);
            let provider = self.upstream.config.name.clone();
            return Attempted::Over(Err(Refusal::ProviderKey { provider }));
        }
        if status.is_client_error() || head.is_rate_limited() {
            return self.judge_refusal(answer, head, call, journey).await;
        }
        if status.is_server_error() && self.shared.retry.server_errors > 0 && self.may_repeat(journey) {
            call.watcher.ended(head.completion.outcome);
            let after = call.held.finish_call(head.completion);
            let reply = Ok(whole(answer).await);
            return Attempted::Failed(Failure { reply, kind: FailureKind::Server }, after);
        }
        Attempted::Over(Ok(hand_on(answer, call)))
    }

    /// Whether a refusal for too many calls is worth waiting for another turn.
    fn may_wait(&self, head: &ResponseInfo, journey: &Journey) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let is_too_long = head.completion.retry_after.is_some_and(|asked| Duration::from(asked) > left);
        !is_too_long && self.may_repeat(journey)
    }

    /// A refusal ends its call at once, as soon as is known what its body says. One for too many calls is tried again, unless no waiting
    /// helps, because the account is empty, or the wait is too long.
    async fn judge_refusal(
        &self,
        answer: Answer,
        mut head: ResponseInfo,
        mut call: Call,
        journey: &Journey,
    ) -> Attempted {
        let (parts, body) = answer.into_parts();
        let body = PeekedBody::peek(body).await;
        if let Some(whole) = body.complete() {
            read_error_body(whole, &parts.headers, SystemTime::now()).refine(&mut head);
        }
        let head = self.upstream.as_gate_sees(head);
        call.watcher.ended(head.completion.outcome);
        call.held.finish_with(head.completion);
        if head.is_rate_limited() && self.may_wait(&head, journey) {
            return Attempted::RateLimited;
        }
        Attempted::Over(Ok(hand_on(Response::from_parts(parts, reqwest::Body::wrap(body)), call)))
    }

    fn may_repeat(&self, journey: &Journey) -> bool {
        let most = self.shared.retry.max_attempts;
        most.is_none_or(|most| journey.attempts < most.get()) && Instant::now() < self.deadline
    }

    /// Waits until a call that failed by itself may be made again. Returns what its client gets if it may not.
    async fn pause_after(&mut self, failed: Failure, journey: &Journey) -> Option<Reply> {
        let backoff = match failed.kind {
            FailureKind::Connection => &mut self.connection_errors,
            FailureKind::Server => &mut self.server_errors,
        };
        let now = self.shared.gate.core().host().now();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let pause = backoff.after_failure(now).map(|at| Duration::from(at - now)).filter(|pause| *pause < left);
        let Some(pause) = pause.filter(|_| self.may_repeat(journey)) else { return Some(failed.reply) };
        if is_over(pause, self.shared.stop.subscribe()).await { None } else { Some(failed.reply) }
    }
}

/// Waits so long. Returns whether nobody stopped the proxy meanwhile.
async fn is_over(pause: Duration, mut stop: watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = sleep(pause) => true,
        _ = stop.wait_for(|stops| *stops) => false,
    }
}

/// A short answer as a whole. One that is long, or does not come through, loses its body.
async fn whole(answer: Answer) -> Response<ReplyBody> {
    let (mut parts, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut parts.headers);
    let body = read_refusal(body).await.unwrap_or_else(|| {
        parts.headers.remove(CONTENT_LENGTH);
        Bytes::new()
    });
    Response::from_parts(parts, Either::Left(Full::new(body)))
}

fn hand_on(answer: Answer, Call { held, watcher }: Call) -> Response<ReplyBody> {
    let (mut parts, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut parts.headers);
    Response::from_parts(parts, Either::Right(PermitBody::with_observer(body, held, transport_error_outcome, watcher)))
}

/// Reads a refusal to its end if it is short, so that its connection can be used again.
async fn read_refusal(body: reqwest::Body) -> Option<Bytes> {
    let whole = timeout(REFUSAL_PATIENCE, Limited::new(body, REFUSAL_BYTES).collect()).await;
    Some(whole.ok()?.ok()?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::proxy::config::ProviderConfig;

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_stops_waits_for_no_pause_before_a_repeat() {
        let (stop, stopped) = watch::channel(false);
        let since = Instant::now();
        assert!(is_over(Duration::from_secs(4), stopped.clone()).await);
        assert_eq!(since.elapsed(), Duration::from_secs(4));
        let waits = tokio::spawn(is_over(Duration::from_mins(1), stopped.clone()));
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        assert!(!waits.await.unwrap() && !is_over(Duration::from_mins(1), stopped).await);
        assert_eq!(since.elapsed(), Duration::from_secs(5));
    }

    #[test]
    fn the_first_provider_that_serves_a_model_is_called_unless_another_is_named() {
        let upstream = |name: &str, serves: &str| {
            let mut config = ProviderConfig::at(name, "http://127.0.0.1:1/v1".parse().unwrap());
            config.serves = vec![serves.to_string()];
            Upstream::new(config).unwrap()
        };
        let upstreams = [upstream("a", "gpt-*"), upstream("b", "*-large"), upstream("c", "gpt-*")];
        let name = |wanted: Option<&str>, model| {
            route(&upstreams, wanted.map(str::as_bytes), model).map(|upstream| upstream.config.name.clone())
        };
        assert_eq!(name(None, Some("gpt-large")).unwrap(), "a");
        assert_eq!(name(None, Some("x-large")).unwrap(), "b");
        assert_eq!(name(Some("c"), Some("x-large")).unwrap(), "c");
        assert_eq!(name(None, None).unwrap(), "a");
        assert_eq!(name(None, Some("other")), Err(Refusal::UnknownModel { model: "other".to_string() }));
        assert_eq!(name(Some("d"), None), Err(Refusal::UnknownProvider));
    }
}
