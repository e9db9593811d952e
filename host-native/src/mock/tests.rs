use std::time::Duration as StdDuration;

use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Overload};

use super::*;
use crate::client::{CallError, ChatClient, ChatEndpoint, ChatRequest};

fn spec(slots: u32, latency_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity: Capacity::Constant { slots },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(120)) },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    }
}

fn client(server: &MockServer) -> ChatClient {
    ChatClient::new(ChatEndpoint {
        base_url: server.base_url().parse().unwrap(),
        model: "m".to_string(),
        api_key: None,
        timeout: Duration::from_secs(30),
        bypass_proxy: true,
    })
    .unwrap()
}

fn ask(prompt: &str) -> ChatRequest<'_> {
    ChatRequest { prompt, ..ChatRequest::default() }
}

#[tokio::test]
async fn an_answer_over_a_real_socket_is_a_function_of_the_prompt() {
    let server = MockServer::start(&spec(2, 1), 7).await.unwrap();
    let client = client(&server);
    let first = client.complete(ask("the breakwater lamp failed")).await.unwrap();
    assert_eq!(client.complete(ask("the breakwater lamp failed")).await.unwrap(), first);
    assert!(first.contains("breakwater"), "{first}");
    assert_eq!((server.counters().accepted, server.in_flight()), (2, 0));
}

#[tokio::test]
async fn a_call_too_many_is_refused_with_the_exact_wait() {
    let server = MockServer::start(&spec(0, 1), 7).await.unwrap();
    let error = client(&server).complete(ask("x")).await.unwrap_err();
    let retry_after = Some(Duration::from_millis(120));
    assert_eq!(error, CallError::RateLimited { status: 429, retry_after });
}

#[tokio::test]
async fn a_slot_is_free_again_when_its_client_hangs_up() {
    let server = MockServer::start(&spec(1, 600_000), 7).await.unwrap();
    let impatient = client(&server);
    let call = tokio::spawn(async move { impatient.complete(ask("x")).await });
    let busy = |busy: bool| {
        let server = &server;
        async move {
            while (server.in_flight() == 1) != busy {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(StdDuration::from_secs(20), busy(true)).await.expect("the call arrives");
    call.abort();
    tokio::time::timeout(StdDuration::from_secs(20), busy(false)).await.expect("the slot is freed");
    assert_eq!(server.counters().finished, 1);
}

#[tokio::test]
async fn a_wrong_address_or_body_is_answered_as_a_provider_would() {
    let server = MockServer::start(&spec(1, 1), 7).await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let not_found = http.post(format!("{}/completions", server.base_url())).send().await.unwrap();
    assert_eq!(not_found.status(), 404);
    let url = format!("{}/chat/completions", server.base_url());
    let bad = http.post(&url).header("content-type", "application/json").body("{").send().await.unwrap();
    assert_eq!(bad.status(), 400);
    let body: serde_json::Value = bad.json().await.unwrap();
    assert!(body["error"]["message"].is_string());
    assert_eq!(server.counters(), Counters::default());
}

#[tokio::test]
async fn a_stopped_mock_refuses_connections() {
    let server = MockServer::start(&spec(1, 1), 7).await.unwrap();
    let client = client(&server);
    drop(server);
    // The task that serves ends at its next turn, so a call or two may still get through.
    let error = loop {
        if let Err(error) = client.complete(ask("x")).await {
            break error;
        }
    };
    assert!(matches!(error, CallError::Connection { .. }), "{error}");
}
