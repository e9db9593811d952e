//! Statistics and control of a running mock: `GET /mock/stats`, and `GET` and `POST /mock/models/{id}`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tidegate_core::sim::provider::ProviderSpec;

use super::error::ApiError;
use super::model::ModelStats;
use super::service::{MockStats, Service};

/// The most slots of an override.
const MAX_SLOTS: u32 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotsOverride {
    /// `None` removes the override: the capacity follows the provider's schedule again.
    slots: Option<u32>,
}

pub(super) async fn stats(State(service): State<Arc<Service>>) -> Json<MockStats> {
    Json(service.stats())
}

/// Returns the description of a model's provider, as in a scenario file.
pub(super) async fn provider(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    match service.model(&id) {
        Ok(model) => Json(model.spec()).into_response(),
        Err(error) => service.reject(error),
    }
}

/// Changes the provider of a model, and returns the model's statistics.
///
/// `{"slots": 4}` overrides the capacity, `{"slots": null}` removes the override, and any other object is the
/// JSON of a provider in a scenario file, which replaces the present one.
pub(super) async fn change(State(service): State<Arc<Service>>, Path(id): Path<String>, body: Bytes) -> Response {
    match try_change(&service, &id, &body) {
        Ok(stats) => Json(stats).into_response(),
        Err(error) => service.reject(error),
    }
}

fn try_change(service: &Service, id: &str, body: &[u8]) -> Result<ModelStats, ApiError> {
    if !service.allow_control {
        let message = "control is disabled; start the mock with --allow-control";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "invalid_request_error", "control_off", message));
    }
    let model = service.model(id)?;
    let invalid_body = |error: serde_json::Error| ApiError::invalid(format!("the body cannot be read: {error}"));
    let value: Value = serde_json::from_slice(body).map_err(invalid_body)?;
    if value.get("slots").is_some() {
        let SlotsOverride { slots } = serde_json::from_value(value).map_err(invalid_body)?;
        if let Some(slots) = slots.filter(|slots| *slots > MAX_SLOTS) {
            return Err(ApiError::field("slots", format!("`slots` is {slots}; expected 0 to {MAX_SLOTS}")));
        }
        model.override_slots(slots);
    } else {
        let spec: ProviderSpec = serde_json::from_value(value).map_err(invalid_body)?;
        model.replace(&spec).map_err(|error| ApiError::field(&error.field, error.to_string()))?;
    }
    Ok(model.stats())
}
