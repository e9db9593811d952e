//! Turns the provider's decision about a call into an HTTP response, with its latency and faults.

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tidegate_core::runtime::Timer;
use tidegate_core::sim::provider::{Flaw, MockResponse, RateLeft, Rejection};
use tidegate_core::time::{Duration, Instant};

use super::error::ApiError;
use super::headers::{RateHeaders, insert_rate_headers, insert_retry_after};
use super::model::{CallDecision, ServedModel, Slot};
use super::reply::{Reply, ReplyBody};
use super::service::Service;
use super::stream::{self as token_stream, FLUSH_DELAY, connection_cut};
use crate::app::render::table::format_seconds;

/// An invalid JSON body.
const MALFORMED_BODY: &[u8] = b"{\"id\":\"chatcmpl-mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assis";

/// Responds to a call as the provider decided. `reply` is called only if the call is served.
pub(super) async fn respond(
    service: &Service,
    model: &ServedModel,
    decision: CallDecision,
    rate_headers: RateHeaders,
    reply: impl FnOnce() -> Reply,
) -> Response {
    let CallDecision { response, slot, requests_left, tokens_left, is_rate_limited } = decision;
    let mut response = match (response, slot) {
        (MockResponse::Accept { finish_at }, Some(slot)) => serve(service, slot, reply(), finish_at).await,
        (MockResponse::Corrupt { flaw, at }, Some(slot)) => {
            service.log_failure(&model.id, &format!("corrupted: {}", describe_flaw(flaw)));
            serve_corrupted(service, slot, reply(), flaw, at).await
        }
        (MockResponse::Refuse { status, retry_after }, _) => {
            let kind = match requests_left {
                _ if !is_rate_limited => "concurrency",
                Some(RateLeft { remaining: 0, .. }) => "requests",
                _ => "tokens",
            };
            refuse(service, model, status, retry_after, kind)
        }
        (MockResponse::Reject { because }, _) => reject(service, model, because),
        (MockResponse::Fail { status, at }, _) => {
            service.log_failure(&model.id, &format!("{status}: failed"));
            service.host.sleep_until(at).await;
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            ApiError::new(status, "server_error", "server_error", "the mock provider failed").into_response()
        }
        (MockResponse::Hang { until }, _) => {
            service.log_failure(&model.id, "hangs");
            service.host.sleep_until(until).await;
            let message = "the mock provider did not answer";
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "timeout", message).into_response()
        }
        // Unreachable: `ServedModel::arrive` gives a slot to every call that is served.
        (MockResponse::Accept { .. } | MockResponse::Corrupt { .. }, None) => {
            let message = "a call was served without a slot";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal", message).into_response()
        }
    };
    insert_rate_headers(response.headers_mut(), rate_headers, requests_left, tokens_left);
    response
}

/// Refuses a call that may be retried. `kind` is the exhausted limit: `concurrency`, `requests` or `tokens`.
fn refuse(
    service: &Service,
    model: &ServedModel,
    status: u16,
    retry_after: Option<Duration>,
    kind: &'static str,
) -> Response {
    let wait = |wait: Duration| format!(", retry after {}", format_seconds(wait.as_secs_f64()));
    let wait = retry_after.map_or_else(String::new, wait);
    let why = if kind == "concurrency" { "too many calls at once" } else { "the rate per minute is used up" };
    service.log_failure(&model.id, &format!("{status}: {why}{wait}"));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let message = format!("too many requests to `{}`: {why}{wait}", model.id);
    let mut response = ApiError::new(status, kind, "rate_limit_exceeded", message).into_response();
    insert_retry_after(response.headers_mut(), retry_after);
    response
}

/// Rejects a call that fails again if it is retried.
fn reject(service: &Service, model: &ServedModel, because: Rejection) -> Response {
    service.log_failure(&model.id, &format!("{}: {}", because.status(), because.code()));
    let status = StatusCode::from_u16(because.status()).unwrap_or(StatusCode::FORBIDDEN);
    let (kind, message) = match because {
        Rejection::KeyRejected => ("authentication_error", "the key was revoked".to_owned()),
        Rejection::QuotaExhausted => ("insufficient_quota", "the account has no quota left".to_owned()),
        _ => ("invalid_request_error", format!("the model `{}` does not exist", model.id)),
    };
    ApiError::new(status, kind, because.code(), message).into_response()
}

/// Sends a complete answer, which ends at `finish_at`.
async fn serve(service: &Service, slot: Slot, reply: Reply, finish_at: Instant) -> Response {
    match reply.body {
        ReplyBody::Complete(body) => {
            service.host.sleep_until(finish_at).await;
            // Released before the client receives the answer, so that its next call finds a free slot.
            slot.answered(reply.tokens);
            json_response(Body::from(body))
        }
        ReplyBody::Stream(events) => {
            token_stream::response(service.host.clone(), events, slot, finish_at, None, reply.tokens)
        }
    }
}

/// Sends a corrupted answer, which ends at `at`.
async fn serve_corrupted(service: &Service, slot: Slot, reply: Reply, flaw: Flaw, at: Instant) -> Response {
    match reply.body {
        ReplyBody::Complete(body) => {
            service.host.sleep_until(at).await;
            corrupted_body(&body, flaw, slot)
        }
        ReplyBody::Stream(events) => {
            token_stream::response(service.host.clone(), events, slot, at, Some(flaw), reply.tokens)
        }
    }
}

fn describe_flaw(flaw: Flaw) -> &'static str {
    match flaw {
        Flaw::Cut => "the connection breaks in the middle of the answer",
        Flaw::Malformed => "the answer is not valid JSON",
    }
}

fn json_response(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a response whose body is cut or malformed. Releases the slot before the body is sent.
fn corrupted_body(body: &Bytes, flaw: Flaw, slot: Slot) -> Response {
    drop(slot);
    match flaw {
        Flaw::Malformed => json_response(Body::from(MALFORMED_BODY)),
        Flaw::Cut => {
            let half = body.slice(..body.len() / 2);
            json_response(Body::from_stream(stream::unfold(Some(half), async |left| match left {
                Some(half) if !half.is_empty() => Some((Ok(half), Some(Bytes::new()))),
                Some(_) => {
                    tokio::time::sleep(FLUSH_DELAY).await;
                    Some((Err(connection_cut()), None))
                }
                None => None,
            })))
        }
    }
}
