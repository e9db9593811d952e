//! A mock provider as an HTTP server on a loopback port: real sockets, the usual chat completions format,
//! and the behaviour of [`MockProvider`], which decides about every call.

pub mod answer;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tidegate_core::executor::Timer;
use tidegate_core::sim::provider::{Answer, Counters, MockProvider, ProviderSpec, SpecError};
use tidegate_core::time::{Clock, Duration};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::retry_after::RETRY_AFTER_MS;
use crate::host::TokioHost;

/// A running mock. Dropping it stops the server.
#[derive(Debug)]
pub struct MockServer {
    address: SocketAddr,
    provider: Arc<SharedProvider>,
    server: JoinHandle<()>,
}

/// Why a mock could not start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// Its description is out of range.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No loopback port could be opened.
    #[error("cannot open a loopback port for a mock provider: {0}")]
    Listen(#[from] std::io::Error),
    /// The caller is not inside a tokio runtime.
    #[error("a mock provider needs a tokio runtime")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
}

#[derive(Debug)]
struct SharedProvider {
    host: TokioHost,
    machine: Mutex<MockProvider>,
}

impl MockServer {
    /// Serves what `spec` describes on a free loopback port.
    pub async fn start(spec: &ProviderSpec, seed: u64) -> Result<Self, MockError> {
        let host = TokioHost::current()?;
        let machine = Mutex::new(MockProvider::new(spec, seed)?);
        let provider = Arc::new(SharedProvider { host, machine });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .fallback(|| async { refusal(StatusCode::NOT_FOUND, "not_found", "there is no such address here") })
            .with_state(Arc::clone(&provider));
        let server = tokio::spawn(async move {
            // Serving ends only when this task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, provider, server })
    }

    /// The base address to give a client.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What the provider has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.provider.machine.lock().counters()
    }

    /// Calls that hold a slot now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.provider.machine.lock().in_flight()
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl SharedProvider {
    fn arrive(&self, tokens: u32) -> Answer {
        // The clock is read under the lock, so that the machine sees time in order.
        let mut machine = self.machine.lock();
        machine.arrive(self.host.now(), tokens)
    }
}

/// A slot of the provider; free again when dropped, also because the client hung up.
struct Slot(Arc<SharedProvider>);

impl Drop for Slot {
    fn drop(&mut self) {
        let mut machine = self.0.machine.lock();
        machine.finish(self.0.host.now());
    }
}

#[derive(Deserialize)]
struct ChatBody {
    model: String,
    messages: Vec<ChatMessage>,
    max_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct ChatMessage {
    content: String,
}

async fn chat(State(provider): State<Arc<SharedProvider>>, body: Result<Json<ChatBody>, JsonRejection>) -> Response {
    let Json(body) = match body {
        Ok(body) => body,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, "invalid_request_error", &error.body_text()),
    };
    let prompt = body.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n");
    let text = answer::answer(&prompt, body.max_tokens);
    let tokens = (answer::tokens(&prompt), answer::tokens(&text));
    match provider.arrive(tokens.0.saturating_add(tokens.1)) {
        Answer::Accept { finish_at } => {
            let slot = Slot(Arc::clone(&provider));
            provider.host.sleep_until(finish_at).await;
            // Free before the client can know: its next call must find the slot.
            drop(slot);
            completion(&body.model, &text, tokens)
        }
        Answer::Refuse { status, retry_after } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            with_retry_after(refusal(status, "rate_limit_exceeded", "too many requests"), retry_after)
        }
        Answer::Fail { status, at } => {
            provider.host.sleep_until(at).await;
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            refusal(status, "server_error", "the mock provider has an outage")
        }
        Answer::Hang { until } => {
            provider.host.sleep_until(until).await;
            refusal(StatusCode::GATEWAY_TIMEOUT, "timeout", "the mock provider did not answer")
        }
    }
}

fn completion(model: &str, text: &str, (prompt, completion): (u32, u32)) -> Response {
    Json(json!({
        "id": "chatcmpl-mock",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text },
            "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion),
        },
    }))
    .into_response()
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "error": { "message": message, "type": code, "code": code } }))).into_response()
}

/// Says when to come back: in whole seconds, rounded up, as the standard has it, and exactly in milliseconds.
fn with_retry_after(mut response: Response, wait: Option<Duration>) -> Response {
    if let Some(wait) = wait {
        let nanos = wait.as_nanos();
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(nanos.div_ceil(1_000_000_000)));
        headers.insert(HeaderName::from_static(RETRY_AFTER_MS), HeaderValue::from(nanos.div_ceil(1_000_000)));
    }
    response
}

#[cfg(test)]
mod tests;
