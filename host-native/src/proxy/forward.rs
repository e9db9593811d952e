//! One request, from its head to the head of its answer.
//!
//! ```text
//! read the body -> whose is it, what for -> wait for a turn -> call -> hand the answer on
//!                                               ^                |
//!                                               +-- too many ----+
//! ```
//!
//! A call that was refused for too many calls waits for another turn; the gate has heard of the refusal by then, and says
//! when that is. Nothing is called again once a byte of an answer was handed on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use tidegate_core::budget::Usage;
use tidegate_core::request::{DenialReason, Outcome};
use tokio::time::{Instant, sleep, timeout};

use super::answer::Refusal;
use super::ask::{Asked, domain};
use super::count::{OneMore, Share};
use super::headers::{self, PROVIDER};
use super::route::{NO_MODEL, Resource, Upstream, leaves_its_base};
use super::tenant::{Group, Level, Tenant};
use super::watch::Watcher;
use super::{ReplyBody, Shared, models};
use crate::client::error_body::ErrorBody;
use crate::gate::Admitted;
use crate::response::{Held, HeldBody, ResponseInfo, of_transport_error, read_head};

/// The longest refusal that is read to its end, so that its connection can be used again.
const REFUSAL_BYTES: usize = 64 << 10;

/// How long that may take.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// The pause before a connection is tried again, twice as long each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

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
    let trip = Trip { shared, upstream, resource, tenant, deadline, estimate, connection_errors: 0, server_errors: 0 };
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
    connection_errors: u32,
    server_errors: u32,
}

/// An answer of a provider, of which the head is there.
type Answer = Response<reqwest::Body>;

/// A call that is out.
struct Call {
    held: Held,
    watcher: Watcher,
}

impl Trip<'_> {
    async fn run(
        mut self,
        parts: Parts,
        body: Bytes,
        path: &str,
        journey: &mut Journey,
    ) -> Result<Response<ReplyBody>, Refusal> {
        let url = self.upstream.address(path, parts.uri.query()).ok_or(Refusal::NoSuchAddress)?;
        let Parts { method, headers: mut sent, .. } = parts;
        let authorization = self.upstream.authorization.as_ref();
        headers::to_provider(&mut sent, self.shared.tenants.own_headers(), authorization);
        loop {
            let slot = self.admit(journey).await?;
            journey.attempts += 1;
            let mut request = reqwest::Request::new(method.clone(), url.clone());
            *request.headers_mut() = sent.clone();
            if !body.is_empty() {
                *request.body_mut() = Some(body.clone().into());
            }
            let watcher = Watcher::new(self.shared, &self.resource, &self.tenant, journey.level, self.estimate);
            let mut call = Call { held: Held::new(slot), watcher };
            match self.upstream.http.execute(request).await {
                Ok(answer) => {
                    let head = read_head(answer.status(), answer.headers(), SystemTime::now());
                    call.held.read(&head);
                    call.watcher.head(&head, answer.headers());
                    if let Some(answer) = self.judge(answer.into(), &head, call, journey).await? {
                        return Ok(answer);
                    }
                }
                Err(error) => {
                    let outcome = of_transport_error(&error);
                    call.watcher.ended(outcome);
                    call.held.end_as(outcome);
                    drop(call);
                    self.after_error(&error, journey).await?;
                }
            }
        }
    }

    /// Waits for this request's turn.
    async fn admit(&self, journey: &mut Journey) -> Result<Admitted, Refusal> {
        let (gate, resource) = (&self.shared.gate, &self.resource);
        let request = tidegate_core::request::Request {
            resource: resource.id,
            group: self.shared.tenants.group(&self.tenant, journey.level),
            timeout: Some(self.deadline.saturating_duration_since(Instant::now()).into()),
            estimate: self.estimate,
        };
        let slot = match gate.core().try_acquire_owned(request) {
            Ok(permit) => gate.admitted(permit, resource.id),
            Err(denial) if denial.reason == DenialReason::Shutdown => return Err(Refusal::ShuttingDown),
            Err(_) => {
                // A request that had its turn once does not lose its place for the bound.
                let most = if journey.attempts == 0 { self.shared.queue.max_waiting } else { u32::MAX };
                let pace = &self.shared.pace;
                let full = |waiting| Refusal::QueueFull { waiting, retry_after: pace.wait_for(waiting) };
                let _all = OneMore::within(&self.shared.waiting, most).map_err(full)?;
                let _group = OneMore::of(&self.group(journey).waiting);
                let since = Instant::now();
                let end = gate.core().acquire_owned(request).await;
                let waited = since.elapsed();
                journey.waited += waited;
                match end {
                    Ok(permit) => {
                        resource.meters.waited(waited);
                        gate.admitted(permit, resource.id)
                    }
                    Err(denial) if denial.reason == DenialReason::Shutdown => return Err(Refusal::ShuttingDown),
                    Err(_) => return Err(self.too_late(journey)),
                }
            }
        };
        self.group(journey).admitted.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    fn group(&self, journey: &Journey) -> &Group {
        self.tenant.group(journey.level)
    }

    fn too_late(&self, journey: &Journey) -> Refusal {
        let why = self.shared.why(&self.resource).unwrap_or_else(|| "others went first".to_string());
        Refusal::Deadline { waited: journey.waited, why, attempts: journey.attempts }
    }

    /// Hands an answer on; `None` if the call is to be made again.
    async fn judge(
        &mut self,
        answer: Answer,
        head: &ResponseInfo,
        mut call: Call,
        journey: &Journey,
    ) -> Result<Option<Response<ReplyBody>>, Refusal> {
        let status = answer.status();
        if self.upstream.authorization.is_some() && status == StatusCode::UNAUTHORIZED {
            // Its text may hold parts of a key that is none of the client's.
            call.watcher.ended(Outcome::KeyRefused);
            return Err(Refusal::ProviderKey { provider: self.upstream.config.name.clone() });
        }
        if head.is_rate_limited() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let is_too_long = head.completion.retry_after.is_some_and(|asked| Duration::from(asked) > left);
            if is_too_long || !self.may_repeat(journey) {
                return Ok(Some(hand_on(answer, call)));
            }
            drop(call);
            return Ok(refused(answer, head.clone()).await);
        }
        if status.is_server_error() && self.server_errors < self.shared.retry.server_errors && self.may_repeat(journey)
        {
            self.server_errors += 1;
            call.watcher.ended(Outcome::ProviderFailure);
            drop(call);
            read_refusal(answer.into_body()).await;
            return Ok(None);
        }
        Ok(Some(hand_on(answer, call)))
    }

    fn may_repeat(&self, journey: &Journey) -> bool {
        let most = self.shared.retry.max_attempts;
        most.is_none_or(|most| journey.attempts < most.get()) && Instant::now() < self.deadline
    }

    /// Nothing came back. Only a connection that was never made is tried again: of any other the provider may have seen.
    async fn after_error(&mut self, error: &reqwest::Error, journey: &Journey) -> Result<(), Refusal> {
        let provider = self.upstream.config.name.clone();
        if error.is_connect()
            && self.connection_errors < self.shared.retry.connection_errors
            && self.may_repeat(journey)
        {
            let pause = CONNECT_PAUSE * 2_u32.saturating_pow(self.connection_errors.min(8));
            self.connection_errors += 1;
            sleep(pause.min(self.deadline.saturating_duration_since(Instant::now()))).await;
            return Ok(());
        }
        Err(if error.is_timeout() { Refusal::ProviderTimeout { provider } } else { Refusal::Unreachable { provider } })
    }
}

fn hand_on(answer: Answer, Call { held, watcher }: Call) -> Response<ReplyBody> {
    let (mut parts, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut parts.headers);
    Response::from_parts(parts, Either::Right(HeldBody::observed(body, held, of_transport_error, watcher)))
}

/// A refusal for too many calls is to be tried again, unless it is one that no waiting helps against.
async fn refused(answer: Answer, mut info: ResponseInfo) -> Option<Response<ReplyBody>> {
    let (mut parts, body) = answer.into_parts();
    let body = read_refusal(body).await?;
    ErrorBody::read(&body).refine(&mut info);
    if info.is_rate_limited() {
        return None;
    }
    headers::strip_hop_by_hop(&mut parts.headers);
    Some(Response::from_parts(parts, Either::Left(Full::new(body))))
}

/// Reads a refusal to its end if it is short, so that its connection can be used again.
async fn read_refusal(body: reqwest::Body) -> Option<Bytes> {
    let whole = timeout(REFUSAL_PATIENCE, Limited::new(body, REFUSAL_BYTES).collect()).await;
    Some(whole.ok()?.ok()?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::config::ProviderConfig;

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
