//! The list of models, of all providers together.

use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::answer::{Refusal, json_answer};
use super::route::Upstream;
use super::{ReplyBody, Shared, headers};

/// A list is a courtesy: a provider that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest list of one provider.
const LONGEST: usize = 4 << 20;

/// The models of every provider, each of them only where calls of it would go. A provider that does not answer is left out.
pub(super) async fn list(shared: &Shared, parts: &Parts) -> Result<Response<ReplyBody>, Refusal> {
    let mut calls = JoinSet::new();
    for (index, upstream) in shared.upstreams.iter().enumerate() {
        let mut sent = parts.headers.clone();
        headers::to_provider(&mut sent, shared.tenants.own_headers(), upstream.authorization.as_ref());
        let Some(url) = upstream.address("models", parts.uri.query()) else { continue };
        let call = upstream.http.get(url).headers(sent).timeout(PATIENCE);
        calls.spawn(async move { (index, models(call).await) });
    }
    let mut lists: Vec<Option<Vec<Value>>> = vec![None; shared.upstreams.len()];
    while let Some(Ok((index, list))) = calls.join_next().await {
        lists[index] = list;
    }
    if lists.iter().all(Option::is_none) {
        let provider = shared.upstreams.first().map(|upstream| upstream.config.name.clone()).unwrap_or_default();
        return Err(Refusal::Unreachable { provider });
    }
    let goes_to = |index: usize, model: &Value| {
        let first = shared.upstreams.iter().position(|upstream| serves(upstream, model));
        first == Some(index)
    };
    let all = lists.into_iter().enumerate();
    let data: Vec<Value> = all
        .flat_map(|(index, list)| list.unwrap_or_default().into_iter().filter(move |model| goes_to(index, model)))
        .collect();
    Ok(json_answer(StatusCode::OK, &json!({ "object": "list", "data": data })))
}

fn serves(upstream: &Upstream, model: &Value) -> bool {
    model["id"].as_str().is_some_and(|id| upstream.serves(id))
}

async fn models(call: reqwest::RequestBuilder) -> Option<Vec<Value>> {
    let mut answer = call.send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.ok()? {
        if body.len() + piece.len() > LONGEST {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    let mut list: Value = serde_json::from_slice(&body).ok()?;
    Some(std::mem::take(list["data"].as_array_mut()?))
}
