//! A proxy in the test process, in front of the test provider.

use std::sync::Arc;

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tidegate_native::app::config::pipeline::SourceText;
use tidegate_native::app::proxy::Proxy;
use tidegate_native::app::proxy::config::ProxyConfig;

use super::patience::until;
use super::provider::{Seen, provider};

/// A proxy, the state of its provider, and a client.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) seen: Arc<Seen>,
    pub(crate) http: Client,
}

impl World {
    pub(crate) async fn new(provider_extra: &str, extra: &str) -> Self {
        let (base_url, seen) = provider();
        Self::of(&base_url, seen, provider_extra, extra).await
    }

    pub(crate) async fn of(base_url: &str, seen: Arc<Seen>, provider_extra: &str, extra: &str) -> Self {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\n{provider_extra}\n{extra}"
        );
        Self::start(text, seen).await
    }

    pub(crate) async fn start(text: String, seen: Arc<Seen>) -> Self {
        let key = |name: &str| (name == "PROVIDER_KEY").then(|| "sk-provider".to_string());
        let config = ProxyConfig::parse(&SourceText::new("proxy.toml", text), &key).unwrap();
        let proxy = Proxy::start(config, false).await.unwrap();
        let http = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        Self { proxy, seen, http }
    }

    /// Starts a proxy whose file has the top-level keys `top`.
    pub(crate) async fn before(base_url: &str, seen: Arc<Seen>, provider_extra: &str, top: &str) -> Self {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n{top}[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\n{provider_extra}"
        );
        Self::start(text, seen).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.address())
    }

    pub(crate) fn chat(&self, model: &str) -> RequestBuilder {
        self.http.post(self.url("/v1/chat/completions")).json(&json!({ "model": model, "messages": [] }))
    }

    /// Returns a chat request with a raw body and the content type of JSON.
    pub(crate) fn post(&self, body: impl Into<reqwest::Body>) -> RequestBuilder {
        let request = self.http.post(self.url("/v1/chat/completions"));
        request.header("content-type", "application/json").body(body)
    }

    pub(crate) async fn page(&self, path: &str) -> Value {
        self.http.get(self.url(path)).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn counts(&self) -> (u64, u64) {
        let health = self.page("/healthz").await;
        (health["waiting"].as_u64().unwrap(), health["in_flight"].as_u64().unwrap())
    }

    /// Waits until the numbers of waiting requests and of calls in flight equal `expected`.
    pub(crate) async fn until_counts(&self, expected: (u64, u64)) {
        until(async || self.counts().await, |counts| *counts == expected).await;
    }
}

pub(crate) async fn error_code(answer: Response) -> String {
    let body: Value = answer.json().await.unwrap();
    assert!(body["error"]["message"].is_string() && body["error"]["type"].is_string(), "{body}");
    body["error"]["code"].as_str().unwrap().to_string()
}
