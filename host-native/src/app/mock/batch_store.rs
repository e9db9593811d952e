//! The files and batches that a mock has, and the settings of how it answers them.
//!
//! The state of a batch follows from the time since its creation: it is validated for a tenth of
//! [`BatchSettings::delay`], and in progress for the rest.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::sim::rng::Rng;
use tokio::time::Instant;

use super::error::ApiError;

/// How a mock answers batches, and the shares of what goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchSettings {
    /// The time from the creation of a batch to its end.
    pub delay: Duration,
    /// The time from the creation of a batch to the response.
    pub response_delay: Duration,
    /// The share of requests that fail with the status 500.
    pub error: f64,
    /// The share of requests without a result.
    pub missing: f64,
    /// The share of batches whose file is rejected.
    pub fail: f64,
    /// The share of batches that find the queue full.
    pub full: f64,
    /// The share of batches that expire, with a result for every second request.
    pub expire: f64,
    /// The share of questions for a batch that fail with the status 500.
    pub poll_error: f64,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(1),
            response_delay: Duration::ZERO,
            error: 0.0,
            missing: 0.0,
            fail: 0.0,
            full: 0.0,
            expire: 0.0,
            poll_error: 0.0,
        }
    }
}

impl FromStr for BatchSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for setting in text.split(',') {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let millis = || {
                let millis = value.parse().map(Duration::from_millis);
                millis.map_err(|_| format!("`{key}` is {value:?}; expected a whole number of milliseconds"))
            };
            let share = || {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.ok_or_else(|| format!("`{key}` is {value:?}; expected a share from 0 to 1"))
            };
            match key {
                "delay_ms" => settings.delay = millis()?,
                "response_delay_ms" => settings.response_delay = millis()?,
                "error" => settings.error = share()?,
                "missing" => settings.missing = share()?,
                "fail" => settings.fail = share()?,
                "full" => settings.full = share()?,
                "expire" => settings.expire = share()?,
                "poll_error" => settings.poll_error = share()?,
                _ => {
                    return Err(format!(
                        "unknown setting `{key}`; expected delay_ms, response_delay_ms, error, missing, fail, full, \
                         expire or poll_error"
                    ));
                }
            }
        }
        Ok(settings)
    }
}

/// The files and batches of a mock. Clones are the same store, so a server can be started again with what an
/// earlier one had.
#[derive(Clone, Default)]
pub struct BatchStore(pub(super) Arc<Mutex<Stored>>);

impl fmt::Debug for BatchStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStore").finish_non_exhaustive()
    }
}

/// The counts of a [`BatchStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchStats {
    /// Uploaded files.
    pub files: u64,
    /// Batches that were created.
    pub created: u64,
    /// Requests of all batches whose file was accepted.
    pub requests: u64,
    /// Those with a name that an earlier one had.
    pub repeated: u64,
    /// How often the state of a batch was asked for.
    pub polls: u64,
}

/// What a [`BatchStore`] holds.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) files: HashMap<String, Bytes>,
    pub(super) batches: Vec<StoredBatch>,
    /// How often each name of a request was seen.
    pub(super) names: HashMap<String, u64>,
    /// Draws what goes wrong. `None` before the first draw.
    rng: Option<Rng>,
    pub(super) stats: BatchStats,
}

/// A batch with its results.
pub(super) struct StoredBatch {
    pub(super) id: String,
    pub(super) input_file: String,
    pub(super) metadata: Value,
    pub(super) created_at: u64,
    pub(super) created: Instant,
    /// The status at the end.
    pub(super) end: &'static str,
    pub(super) errors: Value,
    pub(super) total: usize,
    /// Requests with an answer, and with an error.
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) output_file: Option<String>,
    pub(super) error_file: Option<String>,
}

impl Stored {
    /// Draws whether something with this share goes wrong.
    pub(super) fn draw(&mut self, share: f64, seed: u64) -> bool {
        self.rng.get_or_insert_with(|| Rng::new(seed)).unit_f64() < share
    }

    pub(super) fn add_file(&mut self, content: Bytes) -> String {
        let id = format!("file-mock-{}", self.files.len());
        self.files.insert(id.clone(), content);
        id
    }

    pub(super) fn batch(&self, id: &str) -> Result<&StoredBatch, ApiError> {
        self.batches.iter().find(|batch| batch.id == id).ok_or_else(|| no_such("batch", id))
    }
}

impl BatchStore {
    pub(super) fn stats(&self) -> BatchStats {
        self.0.lock().stats
    }
}

impl StoredBatch {
    /// Returns the object of the API, for a batch that takes `delay`.
    pub(super) fn object(&self, delay: Duration) -> Value {
        let elapsed = self.created.elapsed();
        let is_over = elapsed >= delay || self.end == "cancelled";
        let status = match elapsed {
            _ if is_over => self.end,
            early if early < delay / 10 => "validating",
            _ => "in_progress",
        };
        let part = if is_over { 1.0 } else { elapsed.as_secs_f64() / delay.as_secs_f64() };
        let so_far = |count: usize| (count as f64 * part) as usize;
        let at_end = |value: Value| if is_over { value } else { Value::Null };
        json!({
            "id": self.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": self.input_file,
            "completion_window": "24h",
            "created_at": self.created_at,
            "status": status,
            "metadata": self.metadata,
            "errors": at_end(self.errors.clone()),
            "output_file_id": at_end(self.output_file.clone().into()),
            "error_file_id": at_end(self.error_file.clone().into()),
            "request_counts": {
                "total": if status == "validating" { 0 } else { self.total },
                "completed": so_far(self.completed),
                "failed": so_far(self.failed),
            },
        })
    }
}

pub(super) fn no_such(what: &str, id: &str) -> ApiError {
    let message = format!("there is no {what} `{id}`");
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_and_invalid_ones_are_rejected_with_what_is_expected() {
        let settings: BatchSettings = "delay_ms=200,error=0.5".parse().unwrap();
        let expected = BatchSettings { delay: Duration::from_millis(200), error: 0.5, ..BatchSettings::default() };
        assert_eq!(settings, expected);
        let error = |text: &str| text.parse::<BatchSettings>().unwrap_err();
        assert!(error("delay=2").starts_with("unknown setting `delay`; expected delay_ms, "));
        assert_eq!(error("error=2"), "`error` is \"2\"; expected a share from 0 to 1");
        assert_eq!(error("delay_ms=soon"), "`delay_ms` is \"soon\"; expected a whole number of milliseconds");
    }
}
