//! A client for OpenAI-compatible chat endpoints: one attempt per call, no retry of its own.
//!
//! Whether and when to call again is decided by the core; this module only says what an answer meant (see [`answer`]).

pub mod answer;
pub mod key;
pub use crate::response::retry_after;

use std::time::SystemTime;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Serialize;
use tidegate_core::time::Duration;

pub use answer::CallError;
pub use key::ApiKey;

/// The longest answer body that is read; a longer one is malformed.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Where and how to reach one model.
#[derive(Clone, Debug)]
pub struct ChatEndpoint {
    /// The base address, such as `https://host/v1`; `chat/completions` is appended.
    pub base_url: Url,
    /// The model id to send.
    pub model: String,
    /// The key, if the provider wants one.
    pub api_key: Option<ApiKey>,
    /// The longest that one call may take, connection and body included.
    pub timeout: Duration,
    /// Never go through a proxy that the environment names: for servers in this very process.
    pub bypass_proxy: bool,
}

/// Calls one model.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: reqwest::Client,
    url: Url,
    model: String,
    api_key: Option<ApiKey>,
}

/// One chat call: a prompt, and options that are left out of the request when not set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChatRequest<'a> {
    /// The system message.
    pub system: Option<&'a str>,
    /// The user message.
    pub prompt: &'a str,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens the answer may have.
    pub max_tokens: Option<u32>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<BodyMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
}

#[derive(Serialize)]
struct BodyMessage<'a> {
    role: &'static str,
    content: &'a str,
}

impl ChatClient {
    /// A client with its own connection pool. Fails when TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        // Fails when the process has a TLS provider already, which then is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(endpoint.timeout.into())
            // A redirected POST would be repeated as a GET, and a key would travel on: an address is right or wrong.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        if endpoint.bypass_proxy {
            builder = builder.no_proxy();
        }
        if endpoint.base_url.scheme() == "http" {
            // Nothing to verify, so a machine without root certificates will do.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| without_address(&error.without_url()))?;
        let mut url = endpoint.base_url;
        let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self { http, url, model: endpoint.model, api_key: endpoint.api_key })
    }

    /// Makes one call. Dropping the future closes the connection, which tells the server that nobody waits any more.
    pub async fn complete(&self, request: ChatRequest<'_>) -> Result<String, CallError> {
        self.attempt(request).await.map_err(|error| match &self.api_key {
            Some(key) => error.map_detail(|detail| key.redact(detail)),
            None => error,
        })
    }

    async fn attempt(&self, request: ChatRequest<'_>) -> Result<String, CallError> {
        let system = request.system.map(|content| BodyMessage { role: "system", content });
        let user = BodyMessage { role: "user", content: request.prompt };
        let body = Body {
            model: &self.model,
            messages: system.into_iter().chain([user]).collect(),
            temperature: request.temperature,
            max_tokens: request.max_tokens,
        };
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.api_key {
            headers.insert(AUTHORIZATION, key.header());
        }
        let sent = self.http.post(self.url.clone()).headers(headers).json(&body).send().await;
        let response = sent.map_err(transport_error)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_body(response).await?;
        answer::classify(status, &headers, &body, SystemTime::now())
    }
}

async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(transport_error)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(CallError::Malformed { detail: format!("it is longer than {MAX_BODY_BYTES} bytes") });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn transport_error(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    if error.is_timeout() { CallError::Timeout } else { CallError::Connection { detail: without_address(&error) } }
}

/// The innermost cause: the outer layers only say that a request was being made, and may repeat the address.
fn without_address(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
