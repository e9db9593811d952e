//! A provider for runs that counts the calls of each row, and holds or rejects calls as a test needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{remote_pipeline, serve};

/// A provider that counts the calls of each row. A test controls which calls wait and which fail.
pub(crate) struct Provider {
    base_url: String,
    state: Arc<ProviderState>,
}

struct ProviderState {
    /// Calls by row.
    calls: Mutex<BTreeMap<u64, usize>>,
    /// Rows whose calls are rejected.
    rejected: Mutex<BTreeSet<u64>>,
    /// The number of calls that are answered at once. Later calls wait for `go`.
    at_once: usize,
    go: Semaphore,
}

impl Provider {
    /// Starts a provider that answers the first `at_once` calls immediately, and each later call after a
    /// permit of `go`.
    pub(crate) fn new(at_once: usize) -> Self {
        let (calls, rejected) = (Mutex::default(), Mutex::default());
        let state = Arc::new(ProviderState { calls, rejected, at_once, go: Semaphore::new(0) });
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&state));
        Self { base_url: format!("{}/v1", serve(router)), state }
    }

    pub(crate) fn reject(&self, rows: impl IntoIterator<Item = u64>) {
        *self.state.rejected.lock().unwrap() = rows.into_iter().collect();
    }

    /// Returns the permits of calls that are not answered at once.
    pub(crate) fn go(&self) -> &Semaphore {
        &self.state.go
    }

    pub(crate) fn calls(&self) -> usize {
        self.state.calls.lock().unwrap().values().sum()
    }

    /// Asserts that each of the first `rows` rows was requested exactly once, and no other row was.
    pub(crate) fn assert_called_once(&self, rows: u64) {
        assert_eq!(*self.state.calls.lock().unwrap(), (0..rows).map(|row| (row, 1)).collect());
    }
}

async fn answer(State(state): State<Arc<ProviderState>>, Json(request): Json<Value>) -> Response {
    let prompt = request["messages"][0]["content"].as_str().unwrap().to_string();
    let row: u64 = prompt.split(' ').find_map(|word| word.parse().ok()).unwrap();
    let before: usize = {
        let mut calls = state.calls.lock().unwrap();
        *calls.entry(row).or_default() += 1;
        calls.values().sum()
    };
    if before > state.at_once {
        state.go.acquire().await.unwrap().forget();
    }
    if state.rejected.lock().unwrap().contains(&row) {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": { "message": "too long" } }))).into_response();
    }
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": prompt }, "finish_reason": "stop" });
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100 });
    Json(json!({ "id": "c", "object": "chat.completion", "choices": [choice], "usage": usage })).into_response()
}

/// The number of calls that are answered at once if no call waits.
pub(crate) const AT_ONCE: usize = usize::MAX;

/// Returns a pipeline with row groups of `size` rows, which run one after the other. A call costs 0.1.
pub(crate) fn pipeline(provider: &Provider, size: u32) -> String {
    let price = "price = { input_per_million = 1000, output_per_million = 1000 }";
    remote_pipeline(&provider.base_url, price, "").replace("row_group_size = 4", &format!("row_group_size = {size}"))
}
