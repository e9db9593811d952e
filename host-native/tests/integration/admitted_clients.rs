//! Clients behind the gate, over real sockets: a slot is held exactly as long as its call is out.

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
use tidegate_native::middleware::tower::{Admission, AdmissionError, AdmissionLayer, Always};
use tokio::time::sleep;
use tower::{Layer, ServiceExt};

/// A gate with one model of one slot.
fn gate() -> (RequestGate, ResourceKey) {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("server", "model");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    (gate, key)
}

fn server() -> String {
    /// Three chunks, with a pause before each but the first.
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
    async fn refused() -> impl IntoResponse {
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
        let (_, status, body, _) = REJECTED.iter().find(|(name, ..)| *name == which).expect("a known one");
        (StatusCode::from_u16(*status).unwrap(), [("content-type", "application/json")], *body)
    }
    support::serve(
        Router::new()
            .route("/rejected/{which}", get(rejected))
            .route("/stream", get(stream))
            .route("/refused", get(refused))
            .route("/slow", get(slow))
            .route("/echo", get(echo)),
    )
}

/// What providers answer whom no call helps: name, status, body, and what it means.
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
    // Fails when it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(support::patience::PATIENCE).build().unwrap()
}

fn client(gate: &RequestGate, key: &ResourceKey) -> ClientWithMiddleware {
    ClientBuilder::new(plain_client())
        .with(AdmissionMiddleware::new(gate.clone(), Always(Call::of(key.clone()))))
        .build()
}

type Hyper = Client<HttpConnector, String>;

fn hyper(gate: &RequestGate, key: &ResourceKey) -> Admission<Hyper, Always> {
    AdmissionLayer::new(gate.clone(), Always(Call::of(key.clone())))
        .layer(Client::builder(TokioExecutor::new()).build_http())
}

fn out(gate: &RequestGate, key: &ResourceKey) -> u32 {
    gate.snapshot(key).unwrap().in_flight
}

fn request(address: &str) -> http::Request<String> {
    http::Request::get(address).body(String::new()).unwrap()
}

#[tokio::test]
async fn the_answer_is_the_servers_own_with_address_headers_and_body() {
    let (gate, key) = gate();
    let address = format!("{}/echo", server());
    let answer = client(&gate, &key).get(&address).header("x-word", "tide").send().await.unwrap();
    assert_eq!((answer.status(), answer.url().as_str(), answer.content_length()), (StatusCode::OK, &*address, Some(4)));
    assert!(answer.headers().contains_key("content-type") && answer.remote_addr().is_some());
    assert_eq!(answer.text().await.unwrap(), "tide");
    assert_eq!(out(&gate, &key), 0);
}

#[tokio::test]
async fn a_streamed_answer_holds_its_slot_until_its_last_chunk() {
    let (gate, key) = gate();
    let address = format!("{}/stream", server());
    let mut answer = client(&gate, &key).get(&address).send().await.unwrap();
    let mut chunks = 0;
    while answer.chunk().await.unwrap().is_some() {
        chunks += 1;
        assert_eq!(out(&gate, &key), 1);
    }
    assert_eq!((chunks, out(&gate, &key)), (3, 0));

    let answer = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
    assert_eq!(out(&gate, &key), 1);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 12);
    assert_eq!(out(&gate, &key), 0);
}

#[tokio::test]
async fn an_answer_that_is_dropped_half_way_gives_its_slot_back_at_once() {
    let (gate, key) = gate();
    let address = format!("{}/stream", server());
    let mut answer = client(&gate, &key).get(&address).send().await.unwrap();
    answer.chunk().await.unwrap();
    assert_eq!(out(&gate, &key), 1);
    drop(answer);
    assert_eq!(out(&gate, &key), 0);

    let answer = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
    drop(answer);
    assert_eq!(out(&gate, &key), 0);
}

#[tokio::test]
async fn a_call_that_is_given_up_frees_its_slot_for_who_waits() {
    let (gate, key) = gate();
    let base = server();
    let client = client(&gate, &key);
    let slow = tokio::spawn(client.get(format!("{base}/slow")).send());
    while out(&gate, &key) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let next = tokio::spawn(client.get(format!("{base}/echo")).send());
    while gate.snapshot(&key).unwrap().waiters == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    slow.abort();
    let answer = next.await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "nothing");
    assert_eq!((out(&gate, &key), gate.snapshot(&key).unwrap().waiters), (0, 0));
}

#[tokio::test]
async fn a_refusal_stops_the_next_call_until_the_server_said_though_nobody_read_its_body() {
    let (gate, key) = gate();
    // Tide finds out first whether a Retry-After stops the resource; AIMD takes that for granted.
    gate.register(&key, &Limits::at_most(1).found_by(LimitChoice::Aimd)).unwrap();
    let base = server();
    let asked = gate.snapshot(&key).unwrap().at;
    let answer = hyper(&gate, &key).oneshot(request(&format!("{base}/refused"))).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let state = gate.snapshot(&key).unwrap();
    assert_eq!(state.in_flight, 0);
    let (until, wait) = (state.blocked_until.unwrap(), tidegate_core::time::Duration::from_millis(300));
    assert!(asked + wait <= until && until <= state.at + wait, "{until:?}");
    drop(answer);
    let answer = client(&gate, &key).get(format!("{base}/echo")).send().await.unwrap();
    assert!(answer.status().is_success() && gate.snapshot(&key).unwrap().at >= until);
}

fn cause(gate: &RequestGate, key: &ResourceKey) -> Option<UnavailableCause> {
    match gate.snapshot(key).unwrap().health {
        HealthState::Unavailable { cause, .. } => Some(cause),
        _ => None,
    }
}

#[tokio::test]
async fn what_the_body_of_a_refusal_says_closes_the_model_and_the_caller_gets_it_whole() {
    let base = server();
    for (name, status, body, expected) in REJECTED {
        let address = format!("{base}/rejected/{name}");
        let (gate, key) = gate();
        let answer = client(&gate, &key).get(&address).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.content_length()), (*status, Some(body.len() as u64)), "{name}");
        assert_eq!((cause(&gate, &key), out(&gate, &key)), (Some(*expected), 0), "{name}, before its body is read");
        assert_eq!(answer.text().await.unwrap(), *body);
        let denied = client(&gate, &key).get(&address).send().await.unwrap_err();
        assert!(denied.to_string().contains("cannot be used"), "{denied}");
    }
}

#[tokio::test]
async fn behind_the_layer_what_a_refusal_says_counts_once_it_has_been_read() {
    let base = server();
    for (name, status, body, expected) in REJECTED {
        let address = format!("{base}/rejected/{name}");
        let (gate, key) = gate();
        let answer = hyper(&gate, &key).oneshot(request(&address)).await.unwrap();
        assert_eq!((answer.status().as_u16(), out(&gate, &key)), (*status, 1), "{name}");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), *body);
        assert_eq!((cause(&gate, &key), out(&gate, &key)), (Some(*expected), 0), "{name}");
    }
    let (gate, key) = gate();
    drop(hyper(&gate, &key).oneshot(request(&format!("{base}/rejected/openai-quota"))).await.unwrap());
    let state = gate.snapshot(&key).unwrap();
    assert_eq!((state.last_outcome, cause(&gate, &key)), (Some(Outcome::RateLimited), None), "nobody read it");
}

#[tokio::test]
async fn a_call_that_is_not_admitted_in_time_says_why() {
    let (gate, key) = gate();
    let _taken = gate.acquire(&Call::of(key.clone())).await.unwrap();
    let call = Call::of(key).within(Duration::from_millis(20));
    let service =
        AdmissionLayer::new(gate, Always(call)).layer(Client::builder(TokioExecutor::new()).build_http::<String>());
    let error = service.oneshot(request("http://127.0.0.1:9/never")).await.unwrap_err();
    assert!(matches!(&error, AdmissionError::NotAdmitted(denial) if denial.reason == DenialReason::QueueTimeout));
    assert!(error.to_string().starts_with("not admitted: the deadline passed while waiting"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failure_and_no_slot_is_lost() {
    let (gate, key) = gate();
    let dead = "http://127.0.0.1:9/";
    let last = || gate.snapshot(&key).unwrap().last_outcome;
    let error = client(&gate, &key).get(dead).send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(last(), Some(Outcome::ConnectionFailed));
    let error = hyper(&gate, &key).oneshot(request(dead)).await.unwrap_err();
    assert!(matches!(error, AdmissionError::Service(_)));
    assert_eq!(last(), Some(Outcome::ProviderFailure), "the layer knows nothing of hyper's errors");
    let layered = AdmissionLayer::new(gate.clone(), Always(Call::of(key.clone()))).layer(plain_client());
    let error = layered.oneshot(reqwest::Request::new(Method::GET, dead.parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, AdmissionError::Service(_)));
    assert_eq!(last(), Some(Outcome::ConnectionFailed));
    assert_eq!(out(&gate, &key), 0);
}
