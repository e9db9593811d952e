//! One request over HTTP, and what the answer means before anybody has read its body.

use std::time::SystemTime;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Serialize;
use tidegate_core::time::Duration;

use super::answer::{self, CallError};
use super::key::ApiKey;
use super::stated;
use crate::http::read_head;

/// The longest answer body that is read; a longer one is malformed.
pub(super) const MAX_BODY_BYTES: usize = 16 << 20;

/// What is read of the body of an answer that is no success: enough for a message.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Where and how to reach one address.
#[derive(Clone, Debug)]
pub struct HttpEndpoint {
    /// The whole address.
    pub url: Url,
    /// The key, if the provider wants one.
    pub api_key: Option<ApiKey>,
    /// The longest that one call may take, connection and body included.
    pub timeout: Duration,
    /// Never go through a proxy that the environment names: for servers in this very process.
    pub bypass_proxy: bool,
}

/// Posts JSON to one address.
#[derive(Clone, Debug)]
pub struct HttpClient {
    http: reqwest::Client,
    url: Url,
    api_key: Option<ApiKey>,
}

impl HttpClient {
    /// A client with its own connection pool. Fails when TLS cannot be set up.
    pub fn new(endpoint: HttpEndpoint) -> Result<Self, String> {
        // Fails when the process has a TLS provider already, which then is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(endpoint.timeout.into())
            // A redirected POST would be repeated as a GET, and a key would travel on: an address is right or wrong.
            .redirect(reqwest::redirect::Policy::none())
            // A call that is made again is decided on, and counted, by the core.
            .retry(reqwest::retry::never())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        if endpoint.bypass_proxy {
            builder = builder.no_proxy();
        }
        if endpoint.url.scheme() == "http" {
            // Nothing to verify, so a machine without root certificates will do.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| without_address(&error.without_url()))?;
        Ok(Self { http, url: endpoint.url, api_key: endpoint.api_key })
    }

    /// Makes one call, and lets `read` make sense of the body of a success. Dropping the future closes the connection,
    /// which tells the server that nobody waits any more.
    pub async fn post<T>(
        &self,
        body: &impl Serialize,
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let answer = self.attempt(self.http.post(self.url.clone()).json(body)).await;
        answer.and_then(|body| read(&body)).map_err(|error| self.redacted(error))
    }

    /// Finds out whether there is a server that takes the key, with a GET. That the address is only good for something else is no
    /// error.
    pub async fn reach(&self) -> Result<(), CallError> {
        match self.attempt(self.http.get(self.url.clone())).await {
            Ok(_) | Err(CallError::ModelNotFound { .. } | CallError::Rejected { status: 400.., .. }) => Ok(()),
            Err(error) => Err(self.redacted(error)),
        }
    }

    fn redacted(&self, error: CallError) -> CallError {
        match &self.api_key {
            Some(key) => error.map_detail(|detail| key.redact(detail)),
            None => error,
        }
    }

    async fn attempt(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, CallError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.api_key {
            headers.insert(AUTHORIZATION, key.header());
        }
        let response = request.headers(headers).send().await.map_err(transport_error)?;
        let (status, headers) = (response.status(), response.headers().clone());
        stated::keep(read_head(status, &headers, SystemTime::now()).corrections);
        let body = if status.is_success() { read_body(response).await? } else { read_what_comes(response).await };
        answer::refusal(status, &headers, &body, SystemTime::now()).map_or(Ok(body), Err)
    }
}

async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(body_error)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            let detail = format!("it is longer than {MAX_BODY_BYTES} bytes");
            return Err(CallError::Unreadable { what: "usable", detail, usage: None });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The beginning of a body that is only good for a message: what the answer means, its status and headers have said.
async fn read_what_comes(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_REFUSAL_BYTES - body.len())]);
        if body.len() == MAX_REFUSAL_BYTES {
            break;
        }
    }
    body
}

fn transport_error(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    if error.is_timeout() { CallError::Timeout } else { CallError::Connection { detail: without_address(&error) } }
}

/// The answer had begun: the provider has worked on it.
fn body_error(error: reqwest::Error) -> CallError {
    match transport_error(error) {
        CallError::Connection { detail } => CallError::Broken { detail },
        late => late,
    }
}

/// The innermost cause: the outer layers only say that a request was being made, and may repeat the address.
fn without_address(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What a client makes of an answer that is `text` and then the end of the connection, or silence.
    async fn meaning_of(text: String, is_silent_then: bool) -> CallError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(text.as_bytes()).await;
            if is_silent_then {
                std::future::pending::<()>().await;
            }
        });
        let timeout = Duration::from_millis(if is_silent_then { 300 } else { 20_000 });
        let client = HttpClient::new(HttpEndpoint { url, api_key: None, timeout, bypass_proxy: true }).unwrap();
        client.post(&"x", |_| Ok(())).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_refusal_is_known_by_its_status_whatever_becomes_of_its_body() {
        let head = |status: &str| format!("HTTP/1.1 {status}\r\nretry-after: 2\r\ncontent-length: 99000000\r\n\r\n");
        let wait = Some(Duration::from_secs(2));
        let limited = CallError::RateLimited { status: 429, retry_after: wait };
        assert_eq!(meaning_of(head("429 Too Many") + "{\"err", false).await, limited, "broken");
        assert_eq!(meaning_of(head("429 Too Many") + "{\"err", true).await, limited, "late");
        assert_eq!(meaning_of(head("429 Too Many") + &"x".repeat(MAX_BODY_BYTES + 1), false).await, limited, "huge");
        let failed = meaning_of(head("500 Oops") + "{", false).await;
        assert!(matches!(failed, CallError::Server { status: 500, .. }), "{failed}");
        let broken = meaning_of(head("200 OK") + "{", false).await;
        assert!(matches!(broken, CallError::Broken { .. }), "{broken}");
        let empty = meaning_of(String::new(), false).await;
        assert!(matches!(empty, CallError::Connection { .. }), "{empty}");
    }
}
