//! Middleware over real sockets: a permit is held exactly as long as its call is in flight.

use std::time::Duration;

use crate::support;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tidegate_core::limit::LimitChoice;
use tidegate_core::request::{DenialReason, HealthState, Outcome, UnavailableCause};
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::middleware::reqwest::AdmissionMiddleware;
use tidegate_native::middleware::tower::{Admission, AdmissionError, AdmissionLayer, FixedCall};
use tokio::time::sleep;
use tower::{Layer, ServiceExt};

/// Returns a gate with one model that allows one call at a time.
fn gate() -> (RequestGate, ResourceKey) {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("server", "model");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    (gate, key)
}

fn server() -> String {
    /// Sends three chunks, with a pause between them.
    async fn stream() -> impl IntoResponse {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        tokio::spawn(async move {
            for _ in 0..3 {
                if sender.send(Ok(Bytes::from_static(b"tide"))).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(60)).await;
            }
        });
        Body::from_stream(Chunks(receiver))
    }
    async fn rate_limited() -> impl IntoResponse {
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "300"), ("retry-after", "1")], "too many")
    }
    async fn slow() -> &'static str {
        sleep(Duration::from_secs(30)).await;
        "late"
    }
    async fn echo(headers: HeaderMap) -> String {
        headers.get("x-word").and_then(|word| word.to_str().ok()).unwrap_or("nothing").to_string()
    }
    async fn rejected(Path(which): Path<String>) -> impl IntoResponse {
        let (_, status, body, _) = REJECTED.iter().find(|(name, ..)| *name == which).expect("a known name");
        (StatusCode::from_u16(*status).unwrap(), [("content-type", "application/json")], *body)
    }
    support::serve(
        Router::new()
            .route("/rejected/{which}", get(rejected))
            .route("/stream", get(stream))
            .route("/rate-limited", get(rate_limited))
            .route("/slow", get(slow))
            .route("/echo", get(echo)),
    )
}

/// Responses after which a provider cannot be used: name, status, body and cause.
const REJECTED: &[(&str, u16, &str, UnavailableCause)] = &[
    (
        "openai-quota",
        429,
        r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        UnavailableCause::QuotaExhausted,
    ),
    (
        "anthropic-funds",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        UnavailableCause::QuotaExhausted,
    ),
    (
        "azure-deployment",
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        UnavailableCause::ModelNotFound,
    ),
    (
        "google-key",
        400,
        r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
        UnavailableCause::KeyRejected,
    ),
];

struct Chunks(tokio::sync::mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl futures_core::Stream for Chunks {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn plain_client() -> reqwest::Client {
    // Fails if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(support::patience::PATIENCE).build().unwrap()
}

fn client(gate: &RequestGate, key: &ResourceKey) -> ClientWithMiddleware {
    ClientBuilder::new(plain_client())
        .with(AdmissionMiddleware::new(gate.clone(), FixedCall(Call::new(key.clone()))))
        .build()
}

type Hyper = Client<HttpConnector, String>;

fn hyper(gate: &RequestGate, key: &ResourceKey) -> Admission<Hyper, FixedCall> {
    AdmissionLayer::new(gate.clone(), FixedCall(Call::new(key.clone())))
        .layer(Client::builder(TokioExecutor::new()).build_http())
}

fn in_flight(gate: &RequestGate, key: &ResourceKey) -> u32 {
    gate.snapshot(key).unwrap().in_flight
}

fn request(address: &str) -> http::Request<String> {
    http::Request::get(address).body(String::new()).unwrap()
}

#[tokio::test]
async fn a_response_keeps_its_url_headers_and_body() {
    let (gate, key) = gate();
    let address = format!("{}/echo", server());
    let response = client(&gate, &key).get(&address).header("x-word", "tide").send().await.unwrap();
    assert_eq!(
        (response.status(), response.url().as_str(), response.content_length()),
        (StatusCode::OK, &*address, Some(4))
    );
    assert!(response.headers().contains_key("content-type") && response.remote_addr().is_some());
    assert_eq!(response.text().await.unwrap(), "tide");
    assert_eq!(in_flight(&gate, &key), 0);
}

#[tokio::test]
async fn a_streamed_response_holds_its_permit_until_the_last_chunk() {
    let (gate, key) = gate();
    let address = format!("{}/stream", server());
    let mut response = client(&gate, &key).get(&address).send().await.unwrap();
    let mut chunks = 0;
    while response.chunk().await.unwrap().is_some() {
        chunks += 1;
        assert_eq!(in_flight(&gate, &key), 1);
    }
    assert_eq!((chunks, in_flight(&gate, &key)), (3, 0));

    let response = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
    assert_eq!(in_flight(&gate, &key), 1);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 12);
    assert_eq!(in_flight(&gate, &key), 0);
}

#[tokio::test]
async fn a_response_that_is_dropped_releases_its_permit_at_once() {
    let (gate, key) = gate();
    let address = format!("{}/stream", server());
    let mut response = client(&gate, &key).get(&address).send().await.unwrap();
    response.chunk().await.unwrap();
    assert_eq!(in_flight(&gate, &key), 1);
    drop(response);
    assert_eq!(in_flight(&gate, &key), 0);

    let response = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
    drop(response);
    assert_eq!(in_flight(&gate, &key), 0);
}

#[tokio::test]
async fn an_aborted_call_releases_its_permit_to_a_waiter() {
    let (gate, key) = gate();
    let base = server();
    let client = client(&gate, &key);
    let slow = tokio::spawn(client.get(format!("{base}/slow")).send());
    while in_flight(&gate, &key) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let next = tokio::spawn(client.get(format!("{base}/echo")).send());
    while gate.snapshot(&key).unwrap().waiters == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    slow.abort();
    let response = next.await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "nothing");
    assert_eq!((in_flight(&gate, &key), gate.snapshot(&key).unwrap().waiters), (0, 0));
}

#[tokio::test]
async fn a_rate_limited_response_delays_the_next_call_even_if_its_body_is_not_read() {
    let (gate, key) = gate();
    // Tide first learns whether a Retry-After applies to the whole resource; AIMD assumes it.
    gate.register(&key, &Limits::at_most(1).with_algorithm(LimitChoice::Aimd)).unwrap();
    let base = server();
    let start = gate.snapshot(&key).unwrap().at;
    let response = hyper(&gate, &key).oneshot(request(&format!("{base}/rate-limited"))).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let state = gate.snapshot(&key).unwrap();
    assert_eq!(state.in_flight, 0);
    let (until, wait) = (state.blocked_until.unwrap(), tidegate_core::time::Duration::from_millis(300));
    assert!(start + wait <= until && until <= state.at + wait, "{until:?}");
    drop(response);
    let response = client(&gate, &key).get(format!("{base}/echo")).send().await.unwrap();
    assert!(response.status().is_success() && gate.snapshot(&key).unwrap().at >= until);
}

fn cause(gate: &RequestGate, key: &ResourceKey) -> Option<UnavailableCause> {
    match gate.snapshot(key).unwrap().health {
        HealthState::Unavailable { cause, .. } => Some(cause),
        _ => None,
    }
}

#[tokio::test]
async fn reqwest_middleware_reads_an_error_body_and_returns_it_whole() {
    let base = server();
    for (name, status, body, expected) in REJECTED {
        let address = format!("{base}/rejected/{name}");
        let (gate, key) = gate();
        let response = client(&gate, &key).get(&address).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.content_length()),
            (*status, Some(body.len() as u64)),
            "{name}"
        );
        assert_eq!(
            (cause(&gate, &key), in_flight(&gate, &key)),
            (Some(*expected), 0),
            "{name}, before the caller reads the body"
        );
        assert_eq!(response.text().await.unwrap(), *body);
        let denied = client(&gate, &key).get(&address).send().await.unwrap_err();
        assert!(denied.to_string().contains("cannot be used"), "{denied}");
    }
}

#[tokio::test]
async fn the_tower_layer_applies_an_error_body_once_it_is_read() {
    let base = server();
    for (name, status, body, expected) in REJECTED {
        let address = format!("{base}/rejected/{name}");
        let (gate, key) = gate();
        let response = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
        assert_eq!((response.status().as_u16(), in_flight(&gate, &key)), (*status, 1), "{name}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), *body);
        assert_eq!((cause(&gate, &key), in_flight(&gate, &key)), (Some(*expected), 0), "{name}");
    }
    let (gate, key) = gate();
    drop(hyper(&gate, &key).oneshot(request(&format!("{base}/rejected/openai-quota"))).await.unwrap());
    let state = gate.snapshot(&key).unwrap();
    assert_eq!((state.last_outcome, cause(&gate, &key)), (Some(Outcome::RateLimited), None), "the body was not read");
}

#[tokio::test]
async fn a_call_that_is_not_admitted_in_time_is_denied_with_the_reason() {
    let (gate, key) = gate();
    let _permit = gate.acquire(&Call::new(key.clone())).await.unwrap();
    let call = Call::new(key).within(Duration::from_millis(20));
    let service =
        AdmissionLayer::new(gate, FixedCall(call)).layer(Client::builder(TokioExecutor::new()).build_http::<String>());
    let error = service.oneshot(request("http://127.0.0.1:9/never")).await.unwrap_err();
    assert!(matches!(&error, AdmissionError::Denied(denial) if denial.reason == DenialReason::QueueTimeout));
    assert!(error.to_string().starts_with("not admitted: the deadline passed while waiting"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_a_failure_and_loses_no_permit() {
    let (gate, key) = gate();
    let dead = "http://127.0.0.1:9/";
    let last = || gate.snapshot(&key).unwrap().last_outcome;
    let error = client(&gate, &key).get(dead).send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(last(), Some(Outcome::ConnectionFailed));
    let error = hyper(&gate, &key).oneshot(request(dead)).await.unwrap_err();
    assert!(matches!(error, AdmissionError::Service(_)));
    assert_eq!(last(), Some(Outcome::ProviderFailure), "the layer does not classify errors of hyper");
    let layered = AdmissionLayer::new(gate.clone(), FixedCall(Call::new(key.clone()))).layer(plain_client());
    let error = layered.oneshot(reqwest::Request::new(Method::GET, dead.parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, AdmissionError::Service(_)));
    assert_eq!(last(), Some(Outcome::ConnectionFailed));
    assert_eq!(in_flight(&gate, &key), 0);
}
