//! One POST over HTTP, and what the answer means before anybody has read its body.

use std::time::SystemTime;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Serialize;
use tidegate_core::time::Duration;

use super::answer::{self, CallError};
use super::key::ApiKey;

/// The longest answer body that is read; a longer one is malformed.
pub(super) const MAX_BODY_BYTES: usize = 16 << 20;

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
        let answer = self.attempt(body).await.and_then(|body| read(&body));
        answer.map_err(|error| match &self.api_key {
            Some(key) => error.map_detail(|detail| key.redact(detail)),
            None => error,
        })
    }

    async fn attempt(&self, body: &impl Serialize) -> Result<Vec<u8>, CallError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.api_key {
            headers.insert(AUTHORIZATION, key.header());
        }
        let sent = self.http.post(self.url.clone()).headers(headers).json(body).send().await;
        let response = sent.map_err(transport_error)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_body(response).await?;
        match answer::refusal(status, &headers, &body, SystemTime::now()) {
            Some(error) => Err(error),
            None => Ok(body),
        }
    }
}

async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(transport_error)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            let detail = format!("it is longer than {MAX_BODY_BYTES} bytes");
            return Err(CallError::Malformed { what: "usable", detail, usage: None });
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
