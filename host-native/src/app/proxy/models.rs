//! The list of models, of all providers together.
//!
//! Each provider is asked through the gate, like for any call, and with its own key or none: what a client proves itself
//! with is for one provider, and a list of all would hand it to the others. So the list is the same for everybody, and is
//! kept for a while.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tidegate_core::budget::Usage;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::{Refusal, json_answer};
use super::ask::domain;
use super::route::{NO_MODEL, Upstream};
use super::tenant::{Level, Tenant};
use super::watch::Watcher;
use super::{ReplyBody, Shared, headers};
use crate::http::{InFlightCall, PermitBody, read_head, transport_error_outcome};

/// A list is a courtesy: a provider that takes longer for its turn, or for its answer, is left out.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest list of one provider.
const LONGEST: usize = 4 << 20;

/// How long a list is kept, and one that lacks a provider.
const FRESH: Duration = Duration::from_mins(1);
const FRESH_IF_INCOMPLETE: Duration = Duration::from_secs(5);

/// The list that was made last. Whoever asks while one is made waits for it.
#[derive(Debug, Default)]
pub(super) struct KeptList(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    until: Instant,
    /// None if no provider answered.
    list: Option<Value>,
}

/// The models of every provider, each of them only where calls of it would go. A provider that does not answer is left out.
pub(super) async fn list(
    shared: &Arc<Shared>,
    tenant: &Arc<Tenant>,
    level: Level,
) -> Result<Response<ReplyBody>, Refusal> {
    let mut last = shared.models.0.lock().await;
    let kept = match last.take().filter(|kept| Instant::now() < kept.until) {
        Some(kept) => kept,
        None => ask_all(shared, tenant, level).await,
    };
    let answer = kept.list.as_ref().map(|list| json_answer(StatusCode::OK, list));
    *last = Some(kept);
    answer.ok_or_else(|| {
        let provider = shared.upstreams.first().map(|upstream| upstream.config.name.clone()).unwrap_or_default();
        Refusal::Unreachable { provider }
    })
}

async fn ask_all(shared: &Arc<Shared>, tenant: &Arc<Tenant>, level: Level) -> Kept {
    let mut calls = JoinSet::new();
    for index in 0..shared.upstreams.len() {
        let (shared, tenant) = (Arc::clone(shared), Arc::clone(tenant));
        calls.spawn(async move { (index, models(&shared, &shared.upstreams[index], &tenant, level).await) });
    }
    let mut lists: Vec<Option<Vec<Value>>> = vec![None; shared.upstreams.len()];
    while let Some(Ok((index, list))) = calls.join_next().await {
        lists[index] = list;
    }
    let fresh = if lists.iter().all(Option::is_some) { FRESH } else { FRESH_IF_INCOMPLETE };
    let until = Instant::now() + fresh;
    if lists.iter().all(Option::is_none) {
        return Kept { until, list: None };
    }
    let goes_to = |index: usize, model: &Value| {
        let first = shared.upstreams.iter().position(|upstream| serves(upstream, model));
        first == Some(index)
    };
    let all = lists.into_iter().enumerate();
    let data: Vec<Value> = all
        .flat_map(|(index, list)| list.unwrap_or_default().into_iter().filter(move |model| goes_to(index, model)))
        .collect();
    Kept { until, list: Some(json!({ "object": "list", "data": data })) }
}

fn serves(upstream: &Upstream, model: &Value) -> bool {
    model["id"].as_str().is_some_and(|id| upstream.serves(id))
}

/// The models of one provider, once it is its turn.
async fn models(shared: &Arc<Shared>, upstream: &Upstream, tenant: &Arc<Tenant>, level: Level) -> Option<Vec<Value>> {
    let url = upstream.address("models", None)?;
    let resource = upstream.resource(&shared.gate, &shared.metrics, NO_MODEL, &domain("models"))?;
    let request = tidegate_core::request::Request {
        group: shared.tenants.group(tenant, level),
        timeout: Some(PATIENCE.into()),
        ..tidegate_core::request::Request::new(resource.id)
    };
    let permit = shared.gate.core().acquire_owned(request).await.ok()?;
    let mut slot = InFlightCall::new(permit);
    let mut watcher = Watcher::new(shared, &resource, tenant, level, Usage::default(), upstream);
    let mut sent = HeaderMap::new();
    sent.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers::to_provider(&mut sent, std::iter::empty(), upstream.authorization.as_ref());
    let answer = match upstream.http.get(url).headers(sent).timeout(PATIENCE).send().await {
        Ok(answer) => answer,
        Err(error) => {
            let outcome = transport_error_outcome(&error);
            watcher.ended(outcome);
            slot.finish_with(outcome);
            return None;
        }
    };
    // Where clients have keys of their own, it is asked for with none at all.
    let head = upstream.as_gate_sees(read_head(answer.status(), answer.headers(), SystemTime::now()));
    slot.record_info(&head);
    if head.is_rate_limited() {
        slot.finish();
    }
    watcher.head(&head, answer.headers());
    if !answer.status().is_success() {
        watcher.ended(head.completion.outcome);
        return None;
    }
    let body = Response::from(answer).into_body();
    let whole = Limited::new(PermitBody::with_observer(body, slot, transport_error_outcome, watcher), LONGEST)
        .collect()
        .await
        .ok()?;
    let mut list: Value = serde_json::from_slice(&whole.to_bytes()).ok()?;
    Some(std::mem::take(list["data"].as_array_mut()?))
}
