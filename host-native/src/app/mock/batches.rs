//! The files and batches of a mock: `/v1/files` and `/v1/batches`.
//!
//! A batch is answered when it is created. Its state follows from the time since then: it is validated for a
//! tenth of [`BatchSettings::delay`], and in progress for the rest. Results are in another order than their
//! requests, as those of providers may be.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_core::sim::rng::Rng;
use tokio::time::Instant;

use super::chat::{CompletionCall, Protocol};
use super::error::ApiError;
use super::server::{ReadBody, Service, read};
use crate::app::provider::batch::{MAX_FILE_BYTES, MAX_REQUESTS};

/// The largest body of an upload: a file of requests, and the form around it.
pub(super) const MAX_UPLOAD_BYTES: usize = MAX_FILE_BYTES + (1 << 20);

/// The most batches of a page of the list.
const MAX_PAGE: usize = 100;

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
pub struct BatchStore(Arc<Mutex<Stored>>);

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

#[derive(Default)]
struct Stored {
    files: HashMap<String, Bytes>,
    batches: Vec<StoredBatch>,
    /// How often each name of a request was seen.
    names: HashMap<String, u64>,
    /// Draws what goes wrong. `None` before the first draw.
    rng: Option<Rng>,
    stats: BatchStats,
}

struct StoredBatch {
    id: String,
    input_file: String,
    metadata: Value,
    created_at: u64,
    created: Instant,
    /// The status at the end.
    end: &'static str,
    errors: Value,
    total: usize,
    /// Requests with an answer, and with an error.
    completed: usize,
    failed: usize,
    output_file: Option<String>,
    error_file: Option<String>,
}

#[derive(Deserialize)]
struct CreateBody {
    input_file_id: String,
    endpoint: String,
    completion_window: String,
    #[serde(default)]
    metadata: Value,
}

/// A line of a file of requests.
#[derive(Deserialize)]
struct RequestLine {
    custom_id: String,
    method: String,
    url: String,
    body: Value,
}

impl Stored {
    fn draw(&mut self, share: f64, seed: u64) -> bool {
        self.rng.get_or_insert_with(|| Rng::new(seed)).unit_f64() < share
    }

    fn add_file(&mut self, content: Bytes) -> String {
        let id = format!("file-mock-{}", self.files.len());
        self.files.insert(id.clone(), content);
        id
    }

    fn batch(&self, id: &str) -> Result<&StoredBatch, ApiError> {
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
    fn object(&self, delay: Duration) -> Value {
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

fn no_such(what: &str, id: &str) -> ApiError {
    let message = format!("there is no {what} `{id}`");
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
}

/// Responds with a JSON object, or counts the error.
fn answer(service: &Service, result: Result<Value, ApiError>) -> Response {
    result.map_or_else(|error| service.reject(error), |object| Json(object).into_response())
}

pub(super) async fn upload(State(service): State<Arc<Service>>, headers: HeaderMap, body: ReadBody) -> Response {
    let file = match read(body) {
        Ok(body) => read_form(&headers, body).await,
        Err(error) => Err(error),
    };
    let stored = file.map(|file| {
        let mut store = service.batches.0.lock();
        store.stats.files += 1;
        let (bytes, id) = (file.len(), store.add_file(file));
        json!({ "id": id, "object": "file", "bytes": bytes, "purpose": "batch", "filename": "requests.jsonl" })
    });
    answer(&service, stored)
}

/// Returns the file of a form for a file of requests.
async fn read_form(headers: &HeaderMap, body: Bytes) -> Result<Bytes, ApiError> {
    let invalid = |error: multer::Error| ApiError::invalid(format!("the form cannot be read: {error}"));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(invalid)?;
    let body = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    let mut form = multer::Multipart::new(body, boundary);
    let (mut file, mut purpose) = (None, None);
    while let Some(field) = form.next_field().await.map_err(invalid)? {
        match field.name() {
            Some("file") => file = Some(field.bytes().await.map_err(invalid)?),
            Some("purpose") => purpose = Some(field.text().await.map_err(invalid)?),
            _ => {}
        }
    }
    if purpose.as_deref() != Some("batch") {
        return Err(ApiError::field("purpose", "`purpose` is missing or unknown; expected `batch`"));
    }
    file.ok_or_else(|| ApiError::field("file", "`file` is missing"))
}

pub(super) async fn content(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    let file = service.batches.0.lock().files.get(&id).cloned();
    file.map_or_else(|| service.reject(no_such("file", &id)), IntoResponse::into_response)
}

pub(super) async fn create(State(service): State<Arc<Service>>, body: ReadBody) -> Response {
    let created = read(body).and_then(|body| create_batch(&service, &body));
    if created.is_ok() {
        tokio::time::sleep(service.batch_settings.response_delay).await;
    }
    answer(&service, created)
}

fn create_batch(service: &Service, body: &[u8]) -> Result<Value, ApiError> {
    let body: CreateBody =
        serde_json::from_slice(body).map_err(|error| ApiError::invalid(format!("the body cannot be read: {error}")))?;
    if body.endpoint != "/v1/chat/completions" {
        return Err(ApiError::field("endpoint", "expected `/v1/chat/completions`"));
    }
    if body.completion_window != "24h" {
        return Err(ApiError::field("completion_window", "expected `24h`"));
    }
    let mut store = service.batches.0.lock();
    let file = store.files.get(&body.input_file_id).cloned();
    let file = file.ok_or_else(|| no_such("file", &body.input_file_id))?;
    let settings = &service.batch_settings;
    let checked = if store.draw(settings.fail, service.batch_seed) {
        Err(rejected(1, "the file"))
    } else if store.draw(settings.full, service.batch_seed) {
        let message = "the limit of tokens in the queue is reached";
        Err(json!({ "code": "token_limit_exceeded", "line": null, "param": null, "message": message }))
    } else {
        read_requests(&file)
    };
    let is_expired = store.draw(settings.expire, service.batch_seed);
    let mut batch = StoredBatch {
        id: format!("batch_mock_{}", store.batches.len()),
        input_file: body.input_file_id,
        metadata: body.metadata,
        created_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        created: Instant::now(),
        end: if is_expired { "expired" } else { "completed" },
        errors: Value::Null,
        total: 0,
        completed: 0,
        failed: 0,
        output_file: None,
        error_file: None,
    };
    match checked {
        Err(error) => (batch.end, batch.errors) = ("failed", json!({ "object": "list", "data": [error] })),
        Ok(requests) => answer_requests(service, &mut store, &mut batch, &requests, is_expired),
    }
    store.stats.created += 1;
    let object = batch.object(settings.delay);
    store.batches.push(batch);
    Ok(object)
}

/// Returns an error in a line of a file of requests.
fn rejected(line: usize, what: &str) -> Value {
    json!({ "code": "invalid_request", "line": line, "param": null, "message": format!("{what} is not valid") })
}

/// Reads a file of requests, or returns its first error.
fn read_requests(file: &[u8]) -> Result<Vec<RequestLine>, Value> {
    let mut requests: Vec<RequestLine> = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (index, line) in file.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let request: RequestLine = serde_json::from_slice(line).map_err(|_| rejected(index + 1, "this line"))?;
        if request.method != "POST" || request.url != "/v1/chat/completions" {
            return Err(rejected(index + 1, "`method` or `url`"));
        }
        if !names.insert(request.custom_id.clone()) {
            return Err(rejected(index + 1, "a second request with this `custom_id`"));
        }
        requests.push(request);
    }
    match requests.len() {
        0 => Err(rejected(1, "an empty file")),
        count if count > MAX_REQUESTS as usize => Err(rejected(count, "so many requests")),
        _ => Ok(requests),
    }
}

/// Answers the requests of a batch, from the last one to the first.
fn answer_requests(
    service: &Service,
    store: &mut Stored,
    batch: &mut StoredBatch,
    requests: &[RequestLine],
    is_expired: bool,
) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let settings = &service.batch_settings;
    for (index, request) in requests.iter().enumerate().rev() {
        store.stats.requests += 1;
        let seen = store.names.entry(request.custom_id.clone()).or_default();
        *seen += 1;
        store.stats.repeated += u64::from(*seen > 1);
        if store.draw(settings.missing, service.batch_seed) {
            continue;
        }
        let is_late = is_expired && index % 2 == 1;
        let (status, body, error) = if is_late {
            let message = "this request could not be made in time";
            (None, Value::Null, json!({ "code": "batch_expired", "message": message }))
        } else if store.draw(settings.error, service.batch_seed) {
            let error = ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "server_error",
                "server_error",
                "the mock provider failed",
            );
            (Some(500), error.body(), Value::Null)
        } else {
            match answer_request(service, &request.body) {
                Ok(body) => (Some(200), body, Value::Null),
                Err(error) => (Some(error.status.as_u16()), error.body(), Value::Null),
            }
        };
        let response = status.map(|status| json!({ "status_code": status, "request_id": "req-mock", "body": body }));
        let id = format!("batch_req_{index}");
        let line = json!({ "id": id, "custom_id": request.custom_id, "response": response, "error": error });
        let (file, count) =
            if status == Some(200) { (&mut output, &mut batch.completed) } else { (&mut errors, &mut batch.failed) };
        *count += 1;
        file.extend_from_slice(line.to_string().as_bytes());
        file.push(b'\n');
    }
    batch.total = requests.len();
    let mut add = |content: Vec<u8>| (!content.is_empty()).then(|| store.add_file(content.into()));
    (batch.output_file, batch.error_file) = (add(output), add(errors));
}

/// Answers one request, as `POST /v1/chat/completions` would.
fn answer_request(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let mut call = CompletionCall::parse(Protocol::Chat, body.to_string().as_bytes())?;
    service.model(&call.model)?;
    if !call.give_shape(&service.answers) {
        return Err(ApiError::prompt_filter());
    }
    let number = service.completions.fetch_add(1, Ordering::Relaxed);
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(call.whole(number, created))
}

pub(super) async fn batch(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    let state = {
        let mut store = service.batches.0.lock();
        store.stats.polls += 1;
        if store.draw(service.batch_settings.poll_error, service.batch_seed) {
            let (status, kind) = (StatusCode::INTERNAL_SERVER_ERROR, "server_error");
            Err(ApiError::new(status, kind, "server_error", "the mock provider failed"))
        } else {
            store.batch(&id).map(|batch| batch.object(service.batch_settings.delay))
        }
    };
    answer(&service, state)
}

pub(super) async fn list(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Json<Value> {
    let query = query.unwrap_or_default();
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(20).clamp(1, MAX_PAGE);
    let store = service.batches.0.lock();
    let newest_first = store.batches.iter().rev();
    let rest: Vec<&StoredBatch> = match value("after") {
        None => newest_first.collect(),
        Some(after) => newest_first.skip_while(|batch| batch.id != after).skip(1).collect(),
    };
    let page: Vec<Value> = rest.iter().take(limit).map(|batch| batch.object(service.batch_settings.delay)).collect();
    let end = |object: Option<&Value>| object.map_or(Value::Null, |object| object["id"].clone());
    Json(json!({
        "object": "list",
        "first_id": end(page.first()),
        "last_id": end(page.last()),
        "has_more": rest.len() > page.len(),
        "data": page,
    }))
}

pub(super) async fn cancel(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    let cancelled = {
        let mut store = service.batches.0.lock();
        let delay = service.batch_settings.delay;
        match store.batches.iter_mut().find(|batch| batch.id == id) {
            None => Err(no_such("batch", &id)),
            Some(batch) => {
                if batch.created.elapsed() < delay {
                    (batch.end, batch.completed, batch.failed) = ("cancelled", 0, 0);
                    (batch.output_file, batch.error_file) = (None, None);
                }
                Ok(batch.object(delay))
            }
        }
    };
    answer(&service, cancelled)
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
