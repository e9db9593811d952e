//! Tests of the timing of answers in virtual time, with the router and without a socket.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Faults, Outage, Overload, ProviderSpec};
use tidegate_core::time::Duration;
use tokio::time::Instant;
use tower_service::Service as _;

use super::server::router;
use super::service::Service;
use super::{MockConfig, service};
use std::sync::Arc;

/// A mock whose router is called directly.
struct DirectMock {
    service: Arc<Service>,
    router: Router,
    start: Instant,
}

impl DirectMock {
    fn new(spec: ProviderSpec) -> Self {
        let config = MockConfig { models: vec![("m".to_string(), spec)], ..MockConfig::default() };
        let service = Arc::new(service(config).unwrap());
        Self { router: router(&service), service, start: Instant::now() }
    }

    async fn post(&self, path: &str, body: Value) -> Response<Body> {
        let request = Request::post(path).body(Body::from(body.to_string())).unwrap();
        self.router.clone().call(request).await.unwrap()
    }

    async fn chat(&self, stream: bool) -> Response<Body> {
        let messages = json!([{ "role": "user", "content": "the breakwater lamp failed" }]);
        self.post("/v1/chat/completions", json!({ "model": "m", "stream": stream, "messages": messages })).await
    }

    /// Returns the milliseconds since the mock was created.
    fn now(&self) -> u128 {
        self.start.elapsed().as_millis()
    }

    fn in_flight(&self) -> u32 {
        self.service.first().unwrap().stats().in_flight
    }
}

fn spec(slots: u32, latency_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity: Capacity::Constant { slots },
        overload: Overload::Refuse { retry_after: None },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    }
}

/// Returns the parts of a body, each with the time in milliseconds at which it arrived.
async fn parts(mock: &DirectMock, response: Response<Body>) -> Vec<(u128, Result<Bytes, axum::Error>)> {
    let mut stream = response.into_body().into_data_stream();
    let mut parts = Vec::new();
    while let Some(part) = stream.next().await {
        parts.push((mock.now(), part));
    }
    parts
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_is_sent_and_its_slot_released_after_the_latency() {
    let mock = DirectMock::new(spec(1, 400));
    assert_eq!(mock.chat(false).await.status(), StatusCode::OK);
    assert_eq!((mock.now(), mock.in_flight()), (400, 0));
    assert_eq!(mock.post("/v1/embeddings", json!({ "model": "m", "input": "x" })).await.status(), StatusCode::OK);
    assert_eq!(mock.now(), 800);
}

#[tokio::test(start_paused = true)]
async fn a_stream_starts_after_a_quarter_of_the_latency_and_ends_after_the_whole() {
    let mock = DirectMock::new(spec(1, 400));
    let response = mock.chat(true).await;
    assert_eq!((mock.now(), mock.in_flight()), (0, 1));
    let times: Vec<u128> = parts(&mock, response).await.into_iter().map(|(at, _)| at).collect();
    assert_eq!((times.first(), times.last()), (Some(&100), Some(&400)));
    assert!(times.len() > 6 && times.is_sorted(), "{times:?}");
    assert_eq!(mock.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_releases_its_slot() {
    let mock = DirectMock::new(spec(1, 400));
    let response = mock.chat(true).await;
    assert_eq!(mock.chat(true).await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(response);
    assert_eq!(mock.in_flight(), 0);
    assert_eq!(mock.chat(true).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_cut_happens_after_half_of_the_latency_and_releases_the_slot() {
    for stream in [false, true] {
        let faults = Some(Faults { cut_share: 1.0, ..Faults::default() });
        let mock = DirectMock::new(ProviderSpec { faults, ..spec(1, 400) });
        let response = mock.chat(stream).await;
        let parts = parts(&mock, response).await;
        let (at, end) = parts.last().unwrap();
        assert!((200..210).contains(at) && end.is_err(), "{parts:?}");
        assert!(parts[..parts.len() - 1].iter().all(|(_, part)| part.is_ok()));
        assert_eq!(mock.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_have_a_latency_and_a_hang_ends_in_a_gateway_timeout() {
    let outage =
        Outage { timeouts: Duration::from_secs(1), ..Outage::of_errors(Duration::ZERO, Duration::from_secs(1)) };
    let mock = DirectMock::new(ProviderSpec { outages: vec![outage], ..spec(1, 400) });
    assert_eq!((mock.chat(true).await.status(), mock.now()), (StatusCode::SERVICE_UNAVAILABLE, 20));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!((mock.chat(false).await.status(), mock.now()), (StatusCode::GATEWAY_TIMEOUT, 61_020));
    assert_eq!(mock.chat(false).await.status(), StatusCode::OK);
}
