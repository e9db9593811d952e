//! From the provider's decision about a call to the HTTP answer: at its time, with its faults.

use std::io;
use std::time::Duration as StdDuration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tidegate_core::runtime::Timer;
use tidegate_core::sim::provider::{Flaw, MockResponse, RateLeft, Rejection};
use tidegate_core::time::{Duration, Instant};

use super::headers::{tell_rates, tell_retry_after};
use super::refusal::Refusal;
use super::served::{Arrival, Served, Slot};
use super::server::Service;
use super::stream::{self as token_stream, Frames};
use crate::app::render::table::format_seconds;

/// What a call is answered if all goes well.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) form: Form,
    /// Tokens of the answer.
    pub(super) tokens: u32,
}

/// The two forms of an answer.
#[derive(Debug)]
pub(super) enum Form {
    /// One JSON body, when all of it is there.
    Whole(Bytes),
    /// Server-sent events, as its tokens come.
    Stream(Frames),
}

/// A body that is no JSON although its headers say so.
const GARBLED: &[u8] = b"{\"id\":\"chatcmpl-mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assis";

/// Answers a call that has arrived, as the provider decided.
///
/// The reply is made only for a call that is served.
pub(super) async fn carry_out(
    service: &Service,
    model: &Served,
    arrival: Arrival,
    reply: impl FnOnce() -> Reply,
) -> Response {
    let Arrival { answer, slot, requests, tokens, by_rate } = arrival;
    let mut response = match (answer, slot) {
        (MockResponse::Accept { finish_at }, Some(slot)) => serve(service, slot, reply(), finish_at).await,
        (MockResponse::Corrupt { flaw, at }, Some(slot)) => {
            service.tell(&model.id, &format!("corrupted: {}", flaw_text(flaw)));
            corrupt(service, slot, reply(), flaw, at).await
        }
        (MockResponse::Refuse { status, retry_after }, _) => {
            let wait = |wait: Duration| format!(", come back in {}", format_seconds(wait.as_secs_f64()));
            let wait = retry_after.map_or_else(String::new, wait);
            let why = if by_rate { "the rate per minute is used up" } else { "too many calls at once" };
            service.tell(&model.id, &format!("{status}: {why}{wait}"));
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            let kind = match requests {
                _ if !by_rate => "concurrency",
                Some(RateLeft { remaining: 0, .. }) => "requests",
                _ => "tokens",
            };
            let message = format!("too many requests: {why} of `{}`{wait}", model.id);
            let mut response = Refusal::new(status, kind, "rate_limit_exceeded", message).into_response();
            tell_retry_after(response.headers_mut(), retry_after);
            response
        }
        (MockResponse::Reject { because }, _) => {
            service.tell(&model.id, &format!("{}: {}", because.status(), because.code()));
            let status = StatusCode::from_u16(because.status()).unwrap_or(StatusCode::FORBIDDEN);
            let (kind, message) = match because {
                Rejection::KeyRejected => ("authentication_error", "the key was revoked".to_owned()),
                Rejection::QuotaExhausted => ("insufficient_quota", "the account has no quota left".to_owned()),
                _ => ("invalid_request_error", format!("the model `{}` does not exist", model.id)),
            };
            Refusal::new(status, kind, because.code(), message).into_response()
        }
        (MockResponse::Fail { status, at }, _) => {
            service.tell(&model.id, &format!("{status}: failed"));
            service.host.sleep_until(at).await;
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Refusal::new(status, "server_error", "server_error", "the mock provider failed").into_response()
        }
        (MockResponse::Hang { until }, _) => {
            service.tell(&model.id, "hangs");
            service.host.sleep_until(until).await;
            let message = "the mock provider did not answer";
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "timeout", message).into_response()
        }
        // A call that is served holds a slot.
        (MockResponse::Accept { .. } | MockResponse::Corrupt { .. }, None) => {
            let message = "a call was served without a slot";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal", message).into_response()
        }
    };
    tell_rates(response.headers_mut(), service.rate_headers, requests, tokens);
    response
}

/// A good answer, whole at `finish_at`.
async fn serve(service: &Service, slot: Slot, reply: Reply, finish_at: Instant) -> Response {
    match reply.form {
        Form::Whole(body) => {
            service.host.sleep_until(finish_at).await;
            // Free before the client can know: its next call must find the slot.
            slot.answered(reply.tokens);
            json_body(Body::from(body))
        }
        Form::Stream(frames) => {
            token_stream::response(service.host.clone(), frames, slot, finish_at, None, reply.tokens)
        }
    }
}

/// An answer that is no use, and ends so at `at`.
async fn corrupt(service: &Service, slot: Slot, reply: Reply, flaw: Flaw, at: Instant) -> Response {
    match reply.form {
        Form::Whole(body) => {
            service.host.sleep_until(at).await;
            corrupted(&body, flaw, slot)
        }
        Form::Stream(frames) => {
            token_stream::response(service.host.clone(), frames, slot, at, Some(flaw), reply.tokens)
        }
    }
}

fn flaw_text(flaw: Flaw) -> &'static str {
    match flaw {
        Flaw::Cut => "the connection breaks in the middle of the answer",
        Flaw::Malformed => "the answer is no JSON",
    }
}

fn json_body(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A whole body that is cut or garbled. The slot is free, as for any answer, before it is sent.
fn corrupted(body: &Bytes, flaw: Flaw, slot: Slot) -> Response {
    drop(slot);
    match flaw {
        Flaw::Malformed => json_body(Body::from(GARBLED)),
        Flaw::Cut => {
            let half = body.slice(..body.len() / 2);
            json_body(Body::from_stream(stream::unfold(Some(half), async |left| match left {
                Some(half) if !half.is_empty() => Some((Ok(half), Some(Bytes::new()))),
                Some(_) => {
                    tokio::time::sleep(FLUSH).await;
                    Some((Err(cut()), None))
                }
                None => None,
            })))
        }
    }
}

/// How long a connection stays open behind the last bytes before it is cut, so that they get out.
pub(super) const FLUSH: StdDuration = StdDuration::from_millis(2);

/// The error at which the server breaks the connection.
pub(super) fn cut() -> io::Error {
    io::Error::other("the provider cuts the connection")
}
