//! The combined list of models of all providers.
//!
//! Each provider is called through the gate like for any request, with its own key or none. Credentials of
//! clients are not forwarded: they belong to one provider, and the combined list would send them to all. So
//! the list is the same for all clients and is cached.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tidegate_core::budget::Usage;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::{ProxyError, full_response};
use super::parsed_request::domain;
use super::recorder::AttemptRecorder;
use super::tenant::{Level, Tenant};
use super::upstream::{NO_MODEL, Upstream};
use super::{ReplyBody, Shared, headers};
use crate::http::{InFlightCall, PermitBody, read_head, transport_error_outcome};

/// The time limit for admission, and for the response. A provider that exceeds it is omitted.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of the list of one provider, in bytes.
const MAX_LIST_BYTES: usize = 4 << 20;

/// How long a complete list is cached, and one that lacks a provider.
const COMPLETE_TTL: Duration = Duration::from_mins(1);
const INCOMPLETE_TTL: Duration = Duration::from_secs(5);

/// The list that was fetched last. Concurrent requests wait for the same fetch.
#[derive(Debug, Default)]
pub(super) struct ModelListCache(Mutex<Option<CachedList>>);

#[derive(Debug)]
struct CachedList {
    until: Instant,
    /// The list as JSON; `None` if no provider answered.
    list: Option<Bytes>,
}

/// Returns the models of all providers. A model is listed only for the provider to which its calls are
/// routed. A provider that does not answer is omitted.
pub(super) async fn list(
    shared: &Arc<Shared>,
    tenant: &Arc<Tenant>,
    level: Level,
) -> Result<Response<ReplyBody>, ProxyError> {
    let mut last = shared.models.0.lock().await;
    let cached = match last.take().filter(|cached| Instant::now() < cached.until) {
        Some(cached) => cached,
        None => fetch_all(shared, tenant, level).await,
    };
    let response = cached.list.clone().map(|list| full_response(StatusCode::OK, "application/json", list));
    *last = Some(cached);
    response.ok_or_else(|| {
        let provider = shared.upstreams.first().map(|upstream| upstream.config.name.clone()).unwrap_or_default();
        ProxyError::Unreachable { provider }
    })
}

async fn fetch_all(shared: &Arc<Shared>, tenant: &Arc<Tenant>, level: Level) -> CachedList {
    let mut calls = JoinSet::new();
    for index in 0..shared.upstreams.len() {
        let (shared, tenant) = (Arc::clone(shared), Arc::clone(tenant));
        calls.spawn(async move { (index, fetch_models(&shared, &shared.upstreams[index], &tenant, level).await) });
    }
    let mut lists: Vec<Option<Vec<Value>>> = vec![None; shared.upstreams.len()];
    while let Some(Ok((index, list))) = calls.join_next().await {
        lists[index] = list;
    }
    let ttl = if lists.iter().all(Option::is_some) { COMPLETE_TTL } else { INCOMPLETE_TTL };
    let until = Instant::now() + ttl;
    if lists.iter().all(Option::is_none) {
        return CachedList { until, list: None };
    }
    let goes_to = |index: usize, model: &Value| {
        let first = shared.upstreams.iter().position(|upstream| serves(upstream, model));
        first == Some(index)
    };
    let all = lists.into_iter().enumerate();
    let data: Vec<Value> = all
        .flat_map(|(index, list)| list.unwrap_or_default().into_iter().filter(move |model| goes_to(index, model)))
        .collect();
    let list = Bytes::from(json!({ "object": "list", "data": data }).to_string());
    // Not before: a key that a provider writes with escapes is found only in what is sent.
    CachedList { until, list: Some(shared.redactor.redacted(list)) }
}

fn serves(upstream: &Upstream, model: &Value) -> bool {
    model["id"].as_str().is_some_and(|id| upstream.serves(id))
}

/// Fetches the models of one provider after admission.
async fn fetch_models(
    shared: &Arc<Shared>,
    upstream: &Upstream,
    tenant: &Arc<Tenant>,
    level: Level,
) -> Option<Vec<Value>> {
    let url = upstream.address("models", None)?;
    let resource = upstream.resource(&shared.gate, &shared.metrics, NO_MODEL, &domain("models"))?;
    let request = tidegate_core::request::Request {
        group: shared.tenants.group(tenant, level),
        timeout: Some(PROVIDER_TIMEOUT.into()),
        ..tidegate_core::request::Request::new(resource.id)
    };
    let permit = shared.gate.core().acquire_owned(request).await.ok()?;
    let mut slot = InFlightCall::new(permit);
    let none = Usage::default();
    let mut recorder = AttemptRecorder::new(shared, &resource, tenant, level, none, none, upstream);
    let mut sent = HeaderMap::new();
    sent.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers::to_provider(&mut sent, std::iter::empty(), upstream.own_credentials());
    let response = match upstream.http.get(url).headers(sent).timeout(PROVIDER_TIMEOUT).send().await {
        Ok(response) => response,
        Err(error) => {
            let outcome = transport_error_outcome(&error);
            recorder.record_end(outcome);
            slot.finish_with(outcome);
            return None;
        }
    };
    // Without a key of its own, the provider is called with none.
    let head = upstream.with_client_key_outcome(read_head(response.status(), response.headers(), SystemTime::now()));
    slot.record_info(&head);
    if head.is_rate_limited() {
        slot.finish();
    }
    recorder.record_head(&head, response.headers());
    if !response.status().is_success() {
        recorder.record_end(head.completion.outcome);
        return None;
    }
    let body = Response::from(response).into_body();
    let body = PermitBody::with_observer(body, slot, transport_error_outcome, recorder);
    let whole = Limited::new(body, MAX_LIST_BYTES).collect().await.ok()?;
    let mut list: Value = serde_json::from_slice(&whole.to_bytes()).ok()?;
    Some(std::mem::take(list["data"].as_array_mut()?))
}
