//! The routes of a mock, request ids and the check of API keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::error::ApiError;
use super::headers::RateHeaders;
use super::protocol::Protocol;
use super::respond::respond;
use super::service::{ReadBody, Service, read};
use super::{MockKey, batches, chat, control, embeddings, images, messages, responses};

/// The largest request body in bytes.
const MAX_BYTES: usize = 16 << 20;

pub(super) fn router(service: &Arc<Service>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/v1/responses", post(create_response))
        .route("/v1/messages", post(create_message))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/images/generations", post(create_image))
        .route(images::PATH, get(|| async { ([(header::CONTENT_TYPE, "image/png")], images::pixel()) }))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/files", post(batches::upload).layer(DefaultBodyLimit::max(batches::MAX_UPLOAD_BYTES)))
        .route("/v1/files/{id}/content", get(batches::content))
        .route("/v1/batches", get(batches::list).post(batches::create))
        .route("/v1/batches/{id}", get(batches::batch))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
        .route("/mock/stats", get(control::stats))
        .route("/mock/models/{*id}", get(control::provider).post(control::change))
        .fallback(no_such_address)
        .method_not_allowed_fallback(no_such_method)
        // At every address: without the key, a client learns nothing about the mock.
        .layer(middleware::from_fn_with_state(Arc::clone(service), check_key))
        .layer(middleware::from_fn(messages::format_errors))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(service), number))
        .with_state(Arc::clone(service))
}

async fn chat_completions(State(service): State<Arc<Service>>, body: ReadBody) -> Response {
    complete(&service, Protocol::Chat, body).await
}

async fn completions(State(service): State<Arc<Service>>, body: ReadBody) -> Response {
    complete(&service, Protocol::Text, body).await
}

async fn create_response(State(service): State<Arc<Service>>, body: ReadBody) -> Response {
    match read(body).and_then(|body| responses::chat_request(&body)) {
        Ok(body) => complete(&service, Protocol::Responses, Ok(body)).await,
        Err(refusal) => service.reject(refusal),
    }
}

async fn create_message(State(service): State<Arc<Service>>, headers: HeaderMap, body: ReadBody) -> Response {
    match read(body).and_then(|body| messages::chat_request(&headers, &body)) {
        Ok(body) => complete(&service, Protocol::Messages, Ok(body)).await,
        Err(refusal) => service.reject(refusal),
    }
}

async fn complete(service: &Service, protocol: Protocol, body: ReadBody) -> Response {
    let prepared = read(body).and_then(|body| chat::CompletionCall::parse(protocol, &body));
    let found = prepared.and_then(|prepared| Ok((service.model(&prepared.model)?, prepared)));
    let (model, mut prepared) = match found {
        Ok(found) => found,
        Err(refusal) => return service.reject(refusal),
    };
    if !prepared.give_shape(&service.answers) {
        return service.reject(ApiError::prompt_filter());
    }
    let number = service.completions.fetch_add(1, Ordering::Relaxed);
    let created = now_in_seconds();
    let decision = model.arrive(prepared.tokens.0.saturating_add(prepared.tokens.1));
    let rate_headers = match (protocol, service.rate_headers) {
        (Protocol::Messages, RateHeaders::Openai) => RateHeaders::Anthropic,
        (_, given) => given,
    };
    respond(service, model, decision, rate_headers, || prepared.reply(number, created)).await
}

async fn embeddings(State(service): State<Arc<Service>>, body: ReadBody) -> Response {
    let prepared = read(body).and_then(|body| embeddings::EmbeddingCall::parse(&body));
    let found = prepared.and_then(|prepared| Ok((service.model(&prepared.model)?, prepared)));
    let (model, prepared) = match found {
        Ok(found) => found,
        Err(refusal) => return service.reject(refusal),
    };
    let decision = model.arrive(prepared.tokens);
    respond(&service, model, decision, service.rate_headers, || prepared.reply()).await
}

async fn create_image(State(service): State<Arc<Service>>, headers: HeaderMap, body: ReadBody) -> Response {
    let prepared = read(body).and_then(|body| images::ImageCall::parse(&body));
    let found = prepared.and_then(|prepared| Ok((service.model(&prepared.model)?, prepared)));
    let (model, prepared) = match found {
        Ok(found) => found,
        Err(refusal) => return service.reject(refusal),
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost").to_string();
    let decision = model.arrive(prepared.tokens.0.saturating_add(prepared.tokens.1));
    respond(&service, model, decision, service.rate_headers, || prepared.reply(now_in_seconds(), &host)).await
}

/// Returns the seconds since the Unix epoch.
fn now_in_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn models(State(service): State<Arc<Service>>) -> Json<Value> {
    let data: Vec<Value> = service.models.iter().map(|model| described(&model.id)).collect();
    Json(json!({ "object": "list", "data": data }))
}

async fn model(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Response {
    match service.model(&id) {
        Ok(_) => Json(described(&id)).into_response(),
        Err(refusal) => service.reject(refusal),
    }
}

fn described(id: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": "tidegate" })
}

async fn no_such_address(State(service): State<Arc<Service>>, request: Request) -> Response {
    let message = format!("there is nothing at {}", request.uri().path());
    let (status, kind) = (StatusCode::NOT_FOUND, "invalid_request_error");
    service.reject(ApiError::new(status, kind, "unknown_url", message))
}

async fn no_such_method(State(service): State<Arc<Service>>, request: Request) -> Response {
    let message = format!("{} is not supported at {}", request.method(), request.uri().path());
    let (status, kind) = (StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error");
    service.reject(ApiError::new(status, kind, "method_not_allowed", message))
}

/// Adds `x-request-id` to each response.
async fn number(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let number = service.requests.fetch_add(1, Ordering::Relaxed);
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::try_from(format!("req-mock-{number}")) {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), value);
    }
    response
}

/// Refuses a request without the key, if one is asked for.
async fn check_key(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    // The address of an image needs no key, as with real providers.
    let is_public = request.uri().path() == images::PATH;
    let is_allowed = is_public || service.key.as_ref().is_none_or(|key| key.is_in(request.headers()));
    if is_allowed {
        return next.run(request).await;
    }
    let message = "the API key is missing or wrong";
    let (status, kind) = (StatusCode::UNAUTHORIZED, "invalid_request_error");
    service.reject(ApiError::new(status, kind, "invalid_api_key", message))
}

impl MockKey {
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|given| given.strip_prefix("Bearer "));
        bearer.or(text("x-api-key")) == Some(&self.0)
    }
}
