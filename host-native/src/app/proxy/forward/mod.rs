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

mod attempts;
mod response;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_core::backoff::Backoff;
use tokio::time::{Instant, timeout};

use super::counters::QuotaGuard;
use super::endpoint::{BodyKind, Endpoint};
use super::error::ProxyError;
use super::headers::{self, PROVIDER};
use super::model_names::model_in_query;
use super::parsed_request::{MediaType, ParsedRequest, domain};
use super::tenant::{Level, Tenant};
use super::upstream::{NO_MODEL, Resource, Upstream, keys_in_query};
use super::{ReplyBody, Shared, models, stream_usage};
use attempts::{RoutedRequest, UpstreamRequest};
use response::ResponseFilter;

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
    let has_body = !is_empty && endpoint.body != BodyKind::Empty;
    if let Some(name) = parts.uri.query().filter(|_| has_body).and_then(model_in_query) {
        return Err(ProxyError::ModelInQuery { name });
    }
    let parsed = ParsedRequest::read(if is_empty { MediaType::Empty } else { media }, body).await?;
    let named = parsed.model.as_deref().or(endpoint.model.as_deref());
    // What has no body calls no model.
    if (named.is_some() || endpoint.body != BodyKind::Empty) && !tenant.may_call(named.unwrap_or_default()) {
        return Err(ProxyError::ModelOfOthers { model: named.unwrap_or_default().chars().take(80).collect() });
    }
    let is_served = |upstream: &Upstream| endpoint.is_served_by(upstream, &parts.method, path);
    // A provider may take a model of its own choice for a request without one. That may be one that it does
    // not serve here, or that has limits of its own.
    let takes_unnamed = |upstream: &Upstream| match endpoint.body {
        BodyKind::Empty => true,
        BodyKind::Any => upstream.serves(""),
        _ => upstream.serves("") && upstream.config.models.is_empty(),
    };
    let upstream = route(&shared.upstreams, wanted, named, takes_unnamed, is_served)?;
    let requested = parsed.model.as_deref().unwrap_or(NO_MODEL);
    let sent = upstream.model_to_send(requested).to_string();
    let resource = upstream
        .resource(&shared.gate, &shared.metrics, &sent, &domain(path))
        .ok_or_else(|| ProxyError::UnknownModel { model: requested.chars().take(80).collect() })?;
    context.resource = Some(Arc::clone(&resource));
    let estimate = resource.estimate(parsed.estimate);
    let url = upstream.address(path, parts.uri.query()).ok_or(ProxyError::NoSuchAddress)?;
    let renamed = (sent != requested).then_some(sent.as_str());
    let asks_usage = upstream.config.stream_usage && stream_usage::is_on_demand(path) && parsed.lacks_stream_usage();
    let encoded = parsed.encode(&upstream.http, &url, renamed, asks_usage).await;
    let (content_type, body) = encoded.ok_or(ProxyError::BrokenBody)?;
    let in_query: Vec<String> = keys_in_query(&url).collect();
    let client_keys = headers::keys(&parts.headers).chain(in_query.iter().map(String::as_bytes));
    let redactor = shared.redactor.with_keys(client_keys);
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
        responses: ResponseFilter { upstream, redactor, removes_usage: asks_usage },
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
/// A call without a model goes to the first that takes it.
fn route<'s>(
    upstreams: &'s [Upstream],
    wanted: Option<&[u8]>,
    model: Option<&str>,
    takes_unnamed: impl Fn(&Upstream) -> bool,
    is_served: impl Fn(&Upstream) -> bool,
) -> Result<&'s Upstream, ProxyError> {
    let is_wanted = |upstream: &&Upstream| wanted.is_none_or(|name| upstream.config.name.as_bytes() == name);
    let mut candidates = upstreams.iter().filter(is_wanted).filter(|upstream| is_served(upstream)).peekable();
    if candidates.peek().is_none() {
        return Err(ProxyError::UnknownProvider);
    }
    let serves = |upstream: &&Upstream| match model {
        Some(model) => upstream.serves(model),
        None => takes_unnamed(upstream),
    };
    let unknown = || ProxyError::UnknownModel { model: model.unwrap_or_default().chars().take(80).collect() };
    candidates.find(serves).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use wildmatch::WildMatch;

    use super::*;
    use crate::app::proxy::config::ProviderConfig;

    #[test]
    fn the_first_provider_that_serves_the_model_is_used_unless_the_client_names_one() {
        let upstream = |name: &str, serves: &str| {
            let mut config = ProviderConfig::at(name, "http://127.0.0.1:1/v1".parse().unwrap());
            config.serves = vec![WildMatch::new(serves)];
            Upstream::new(config).unwrap()
        };
        let upstreams = [upstream("a", "gpt-*"), upstream("b", "*-large"), upstream("c", "gpt-*")];
        let routed = |wanted: Option<&str>, model, takes_unnamed| {
            let wanted = wanted.map(str::as_bytes);
            route(&upstreams, wanted, model, |_| takes_unnamed, |_| true).map(|upstream| upstream.config.name.clone())
        };
        let name = |wanted, model| routed(wanted, model, false);
        let unknown = |model: &str| Err(ProxyError::UnknownModel { model: model.to_string() });
        assert_eq!(name(None, Some("gpt-large")).unwrap(), "a");
        assert_eq!(name(None, Some("x-large")).unwrap(), "b");
        assert_eq!(name(Some("c"), Some("gpt-large")).unwrap(), "c");
        assert_eq!(name(Some("c"), Some("x-large")), unknown("x-large"), "c does not serve that model");
        assert_eq!(name(None, Some("other")), unknown("other"));
        assert_eq!(name(Some("d"), None), Err(ProxyError::UnknownProvider));
        assert_eq!((name(None, None), name(Some("c"), None)), (unknown(""), unknown("")), "no provider takes it");
        assert_eq!(routed(None, None, true).unwrap(), "a");
        let none = route(&upstreams, None, Some("gpt-large"), |_| false, |upstream| upstream.config.name == "b");
        assert_eq!(none.unwrap().config.name, "b");
    }
}
