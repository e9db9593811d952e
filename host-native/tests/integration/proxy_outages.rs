//! Tests of the proxy with a provider that is down, recovers or rejects the account, over real sockets.

use reqwest::StatusCode;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::authority::Authority;
use crate::support::patience::until;
use crate::support::provider::{provider, provider_at};
use crate::support::world::{World, error_code};

/// Starts a proxy for an address on which nothing listens.
async fn before_nothing(extra: &str) -> (World, std::net::SocketAddr) {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, seen) = provider();
    (World::of(&format!("http://{address}/v1"), seen, "max_parallel = 4", extra).await, address)
}

fn attempts(answer: &reqwest::Response) -> u32 {
    answer.headers()["x-tidegate-attempts"].to_str().unwrap().parse().unwrap()
}

async fn why(world: &World) -> String {
    let page: Value = world.page("/why").await;
    page["resources"][0]["why"].as_str().unwrap_or_default().to_string()
}

#[tokio::test]
async fn requests_wait_while_their_provider_is_down_and_are_answered_when_it_recovers() {
    let (world, address) = before_nothing("").await;
    let mut clients = JoinSet::new();
    for _ in 0..50 {
        clients.spawn(world.chat("slow-1").send());
    }
    until(async || why(&world).await, |why| why.starts_with("the provider is down")).await;
    let seen = provider_at(address);
    let mut made = 0;
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        made += attempts(&answer);
    }
    assert_eq!(seen.calls(), 50, "none is made twice");
    assert!(made - 50 < 20, "{made} attempts: the provider was left alone while it was down");
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn a_request_that_times_out_during_an_outage_gets_a_retry_after() {
    let (world, _) = before_nothing("").await;
    // Requests without a deadline of their own, from which the outage is known.
    let _patient: JoinSet<_> = (0..8).map(|_| world.chat("slow-1").send()).collect();
    until(async || why(&world).await, |why| why.starts_with("the provider is down")).await;
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        clients.spawn(world.chat("slow-1").header("x-tidegate-timeout", "1500ms").send());
    }
    let mut with_retry_after = 0;
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        with_retry_after += u32::from(answer.headers().contains_key("retry-after"));
        assert_eq!(error_code(answer).await, "tidegate_outage");
    }
    assert!(with_retry_after > 0, "at most one of them was out as the probe");
}

#[tokio::test]
async fn without_retries_a_lost_connection_is_reported_to_the_client_at_once() {
    let (world, _) = before_nothing("[retry]\nconnection_errors = 0").await;
    let answer = world.chat("slow-1").send().await.unwrap();
    assert_eq!((answer.status(), attempts(&answer)), (StatusCode::BAD_GATEWAY, 1));
    assert_eq!(error_code(answer).await, "tidegate_provider_unreachable");
}

#[tokio::test]
async fn the_body_of_a_rejection_is_evaluated_even_if_no_request_waits() {
    for (model, status, code) in [
        ("quotalong", StatusCode::TOO_MANY_REQUESTS, "insufficient_quota"),
        ("missing", StatusCode::NOT_FOUND, "model_not_found"),
    ] {
        let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
        let first = world.chat(model).send().await.unwrap();
        assert_eq!((first.status(), error_code(first).await.as_str()), (status, code));
        let next = world.chat(model).send().await.unwrap();
        assert_eq!(next.status(), StatusCode::SERVICE_UNAVAILABLE, "{model}");
        assert_eq!((error_code(next).await.as_str(), world.seen.calls()), ("tidegate_unavailable", 1));
    }
}

#[tokio::test]
async fn a_provider_whose_certificate_is_not_accepted_is_unavailable_for_at_most_a_minute() {
    let port = Authority::new().serve("localhost", "{}").await;
    let (_, seen) = provider();
    let world = World::of(&format!("https://localhost:{port}/v1"), seen, "max_parallel = 4", "").await;
    for _ in 0..2 {
        let answer = world.chat("slow-1").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], "tidegate_unavailable");
        assert!(body["error"]["message"].as_str().unwrap().contains("its certificate is not accepted"), "{body}");
    }
}

#[tokio::test]
async fn a_slow_rejection_holds_no_slot_and_is_forwarded_completely() {
    let world = World::new("", "").await;
    let answer = world.chat("trickle").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    world.until_counts((0, 0)).await;
    assert_eq!(world.seen.in_flight(), 1, "the provider has not said all of it");
    world.seen.go.add_permits(1);
    assert_eq!(error_code(answer).await, "rate_limit_exceeded");
}

#[tokio::test]
async fn an_exhausted_account_is_not_called_again_and_an_exhausted_client_key_affects_only_that_client() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    let first = world.chat("quota").send().await.unwrap();
    assert_eq!(first.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(error_code(first).await, "insufficient_quota");
    for model in ["quota", "slow-1"] {
        let next = world.chat(model).send().await.unwrap();
        assert_eq!(next.status(), StatusCode::SERVICE_UNAVAILABLE, "{model} is of the same account");
        let seconds: u64 = next.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
        assert_eq!(error_code(next).await, "tidegate_unavailable");
    }
    assert_eq!(world.seen.calls(), 1);

    let own = World::new("client_key = \"forward\"", "").await;
    for calls in 1..=2 {
        let answer = own.chat("quota").header("authorization", "Bearer sk-client").send().await.unwrap();
        assert_eq!((error_code(answer).await.as_str(), own.seen.calls()), ("insufficient_quota", calls));
    }
}

#[tokio::test]
async fn a_request_that_was_rate_limited_last_gets_no_error_of_an_earlier_attempt() {
    let world = World::new("cooldown = \"1m\"", "[retry]\nserver_errors = 3").await;
    let request = world.chat("failsfirst").header("x-tidegate-timeout", "10s");
    let answer = request.send().await.unwrap();
    assert!(attempts(&answer) > 1);
    assert_eq!(error_code(answer).await, "tidegate_deadline");
}
