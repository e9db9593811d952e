//! The routes of files and batches: `/v1/files` and `/v1/batches`.
//!
//! A batch is answered when it is created. Results are in another order than their requests, as those of
//! providers may be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::batch_store::{Stored, StoredBatch, no_such};
use super::chat::CompletionCall;
use super::error::ApiError;
use super::protocol::Protocol;
use super::service::{ReadBody, Service, read};
use crate::app::provider::batch::{MAX_FILE_BYTES, MAX_REQUESTS};

/// The largest body of an upload: a file of requests, and the form around it.
pub(super) const MAX_UPLOAD_BYTES: usize = MAX_FILE_BYTES + (1 << 20);

/// The most batches of a page of the list.
const MAX_PAGE: usize = 100;

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
