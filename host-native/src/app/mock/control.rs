//! What a test looks at and turns while the mock runs: `GET /mock/stats`, and `GET` and `POST /mock/models/{id}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::sim::provider::ProviderSpec;

use super::refusal::Refusal;
use super::served::ModelStats;
use super::server::Service;

/// The figures of a whole mock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MockStats {
    /// HTTP requests of any kind.
    pub requests: u64,
    /// Requests that no provider decided about: malformed, of an unknown model, without the key.
    pub rejected: u64,
    /// The figures of each model.
    pub models: BTreeMap<String, ModelStats>,
}

/// The most slots that can be set.
const MOST_SLOTS: u32 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slots {
    /// `None`: what the schedule says.
    slots: Option<u32>,
}

pub(super) async fn stats(State(service): State<Arc<Service>>) -> Json<MockStats> {
    Json(service.stats())
}

/// The provider of a model, as a scenario file writes it.
pub(super) async fn provider(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    match service.model(&id) {
        Ok(model) => Json(model.spec()).into_response(),
        Err(refusal) => service.reject(refusal),
    }
}

/// `{"slots": 4}` sets the capacity, `{"slots": null}` gives it back to the schedule, and a provider as a scenario file
/// writes it, in JSON, takes the model's place. The answer is the model's figures from now on.
pub(super) async fn change(State(service): State<Arc<Service>>, Path(id): Path<String>, body: Bytes) -> Response {
    match try_change(&service, &id, &body) {
        Ok(stats) => Json(stats).into_response(),
        Err(refusal) => service.reject(refusal),
    }
}

fn try_change(service: &Service, id: &str, body: &[u8]) -> Result<ModelStats, Refusal> {
    if !service.allow_control {
        let message = "control is off; start the mock with --allow-control";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "invalid_request_error", "control_off", message));
    }
    let model = service.model(id)?;
    let unreadable = |error: serde_json::Error| Refusal::invalid(format!("the body cannot be read: {error}"));
    let value: Value = serde_json::from_slice(body).map_err(unreadable)?;
    if value.get("slots").is_some() {
        let Slots { slots } = serde_json::from_value(value).map_err(unreadable)?;
        if let Some(slots) = slots.filter(|slots| *slots > MOST_SLOTS) {
            return Err(Refusal::field("slots", format!("`slots` is {slots}; expected 0 to {MOST_SLOTS}")));
        }
        model.set_slots(slots);
    } else {
        let spec: ProviderSpec = serde_json::from_value(value).map_err(unreadable)?;
        model.replace(&spec).map_err(|error| Refusal::field(&error.field, error.to_string()))?;
    }
    Ok(model.stats())
}
