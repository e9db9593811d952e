//! The state that all handlers of a mock share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::batch_store::{BatchSettings, BatchStats, BatchStore};
use super::error::ApiError;
use super::headers::RateHeaders;
use super::model::{ModelStats, ServedModel};
use super::{CallLog, MockConfig, MockKey};
use crate::app::answer_shape::AnswerShapes;
use crate::host::TokioHost;

/// The state that all handlers share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) host: TokioHost,
    pub(super) models: Vec<Arc<ServedModel>>,
    /// Whether the first model serves unknown model names.
    any_model: bool,
    pub(super) key: Option<MockKey>,
    pub(super) allow_control: bool,
    pub(super) answers: AnswerShapes,
    pub(super) batches: BatchStore,
    pub(super) batch_settings: BatchSettings,
    /// The seed of what goes wrong with batches.
    pub(super) batch_seed: u64,
    pub(super) rate_headers: RateHeaders,
    log: Option<CallLog>,
    pub(super) requests: AtomicU64,
    rejected: AtomicU64,
    /// The number of completions, from which their ids are made.
    pub(super) completions: AtomicU64,
}

/// The statistics of a mock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MockStats {
    /// HTTP requests to any route.
    pub requests: u64,
    /// Requests that no provider decided about: malformed, for an unknown model, or without the API key.
    pub rejected: u64,
    /// The files and batches.
    pub batches: BatchStats,
    /// The statistics of each model by name.
    pub models: BTreeMap<String, ModelStats>,
}

impl Service {
    /// Creates the state with `models`, which are those of `config` and not empty.
    pub(super) fn new(host: TokioHost, models: Vec<Arc<ServedModel>>, config: MockConfig) -> Self {
        let MockConfig { any_model, key, allow_control, answers, rate_headers, log, .. } = config;
        let (batches, batch_settings, batch_seed) = (config.batches, config.batch_settings, config.seed);
        let (requests, rejected, completions) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self {
            host,
            models,
            any_model,
            key,
            allow_control,
            answers,
            batches,
            batch_settings,
            batch_seed,
            rate_headers,
            log,
            requests,
            rejected,
            completions,
        }
    }

    /// Returns the first model.
    pub(super) fn first(&self) -> Option<&ServedModel> {
        self.models.first().map(Arc::as_ref)
    }

    /// Returns the model of that name, or the first one for an unknown name if `any_model` is set.
    pub(super) fn model(&self, id: &str) -> Result<&Arc<ServedModel>, ApiError> {
        let named = self.models.iter().find(|model| model.id == id);
        named.or_else(|| self.models.first().filter(|_| self.any_model)).ok_or_else(|| {
            let known: Vec<String> = self.models.iter().map(|model| format!("`{}`", model.id)).collect();
            let message = format!("the model `{id}` does not exist here; there are {}", known.join(", "));
            let (status, kind) = (StatusCode::NOT_FOUND, "invalid_request_error");
            ApiError::new(status, kind, "model_not_found", message)
        })
    }

    /// Counts a request that no provider decides about, and returns its error response.
    pub(super) fn reject(&self, refusal: ApiError) -> Response {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.log_failure("-", &format!("{}: {}", refusal.status.as_u16(), refusal.message));
        refusal.into_response()
    }

    /// Reports a failed call to the log.
    pub(super) fn log_failure(&self, model: &str, what: &str) {
        if let Some(CallLog(log)) = &self.log {
            log(model, what);
        }
    }

    pub(super) fn stats(&self) -> MockStats {
        MockStats {
            requests: self.requests.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            batches: self.batches.stats(),
            models: self.models.iter().map(|model| (model.id.clone(), model.stats())).collect(),
        }
    }
}

/// The body of a request, or the error of reading it.
pub(super) type ReadBody = Result<Bytes, BytesRejection>;

pub(super) fn read(body: ReadBody) -> Result<Bytes, ApiError> {
    body.map_err(|error| {
        let (kind, code) = ("invalid_request_error", "unreadable_body");
        ApiError::new(error.status(), kind, code, error.body_text())
    })
}
