//! Tests of how calls through the proxy are charged to budgets.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::provider::provider;
use crate::support::world::World;

#[tokio::test]
async fn budgets_are_settled_with_the_reported_usage() {
    let world = World::new("budgets = { tokens_per_day = 1000 }", "").await;
    let answer = world.chat("slow-1").send().await.unwrap();
    drop(answer.bytes().await);
    world.until_counts((0, 0)).await;
    let why = world.page("/why").await;
    let budget = &why["resources"][0]["budgets"][0];
    let available = budget["available"].as_i64().unwrap();
    assert!((900..=905).contains(&available), "{budget}");
    assert_eq!(budget["reserved"], 0);
}

#[tokio::test]
async fn a_stream_dropped_by_its_client_is_charged_for_the_forwarded_part() {
    let world = World::new("budgets = { tokens_per_day = 1000, requests_per_day = 10 }", "").await;
    let mut answer = world.chat("stream-9").send().await.unwrap();
    for _ in 0..3 {
        assert!(answer.chunk().await.unwrap().is_some());
        world.seen.go.add_permits(1);
    }
    drop(answer);
    world.until_counts((0, 0)).await;
    let budgets = &world.page("/why").await["resources"][0]["budgets"];
    let mut left: Vec<_> = budgets.as_array().unwrap().iter().map(|one| one["available"].as_i64().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left[0], 9, "{budgets}");
    assert!((900..999).contains(&left[1]), "{budgets}");
}

/// Reads the stream of a model to its end, and returns it with the tokens that it was charged.
async fn charged_stream(world: &World, model: &str, options: Value) -> (String, i64) {
    let available = async || {
        world.until_counts((0, 0)).await;
        let why = world.page("/why").await;
        let resources = why["resources"].as_array().unwrap().clone();
        let resource = resources.into_iter().find(|one| one["model"] == model);
        resource.map_or(10_000, |one| one["budgets"][0]["available"].as_i64().unwrap())
    };
    let before = available().await;
    let body = json!({ "model": model, "messages": [], "stream": true, "stream_options": options });
    let answer = world.http.post(world.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let text = answer.text().await.unwrap();
    assert!(text.contains("tide") && text.ends_with("data: [DONE]\n\n"), "{text}");
    (text, before - available().await)
}

const PER_DAY: &str = "budgets = { tokens_per_day = 10_000 }";

#[tokio::test]
async fn the_proxy_asks_for_the_usage_of_a_stream_and_only_a_client_that_asked_sees_it() {
    let world = World::new(PER_DAY, "").await;
    for options in [Value::Null, json!({}), json!({ "include_usage": false })] {
        let (text, charged) = charged_stream(&world, "asked-2", options.clone()).await;
        assert_eq!((text.contains("usage"), charged), (false, 100), "{options}: {text}");
    }
    let (text, charged) = charged_stream(&world, "asked-2", json!({ "include_usage": true })).await;
    assert_eq!((text.contains("\"total_tokens\":100"), charged), (true, 100), "{text}");
}

#[tokio::test]
async fn a_stream_without_usage_is_charged_for_its_text_and_not_for_its_events() {
    let world = World::new(PER_DAY, "").await;
    let (_, charged) = charged_stream(&world, "unmetered-500", Value::Null).await;
    // Two tokens for each word, a few for the last space and the request.
    assert!((1_000..1_100).contains(&charged), "{charged}");
}

#[tokio::test]
async fn an_answer_without_usage_is_charged_for_its_text_and_not_for_its_reservation() {
    let world = World::new(PER_DAY, "").await;
    let body = json!({ "model": "uncounted-500", "messages": [], "max_tokens": 8_000 });
    let answer = world.http.post(world.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop(answer.bytes().await);
    world.until_counts((0, 0)).await;
    let budget = world.page("/why").await["resources"][0]["budgets"][0].clone();
    // Two tokens for each word, a few for the last space and the request.
    let available = budget["available"].as_i64().unwrap();
    assert!((8_900..9_000).contains(&available), "{budget}");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_begins_keeps_its_reservation() {
    let world = World::new("budgets = { tokens_per_day = 1000 }", "").await;
    let body = json!({ "model": "held-1", "messages": [], "max_tokens": 600 });
    let call = tokio::spawn(world.http.post(world.url("/v1/chat/completions")).json(&body).send());
    while world.seen.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    world.until_counts((0, 0)).await;
    let budget = world.page("/why").await["resources"][0]["budgets"][0].clone();
    // The provider may process the request nevertheless: else a client that always leaves is never limited.
    assert!((300..=400).contains(&budget["available"].as_i64().unwrap()), "{budget}");
    assert_eq!(budget["reserved"], 0);
}

/// Checks that the calls of a model were charged 4096 tokens of output, and at most 100 of input.
async fn check_charged_as_unknown(world: &World, model: &str) {
    world.until_counts((0, 0)).await;
    let resources = world.page("/why").await["resources"].clone();
    let resource = resources.as_array().unwrap().iter().find(|one| one["model"] == model).unwrap();
    let available = resource["budgets"][0]["available"].as_i64().unwrap();
    assert!((5_800..=5_904).contains(&available), "{resource}");
}

#[tokio::test]
async fn a_chat_without_a_bound_whose_usage_stays_unknown_is_charged_more_than_most_answers_have() {
    let world = World::new(&format!("{PER_DAY}\ntimeout = \"200ms\""), "").await;
    let answer = world.chat("held-2").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    check_charged_as_unknown(&world, "held-2").await;
    let world = World::new(PER_DAY, "").await;
    let answer = world.chat("background").send().await.unwrap();
    assert!(answer.text().await.unwrap().contains("queued"));
    check_charged_as_unknown(&world, "background").await;
    let call = tokio::spawn(world.chat("held-1").send());
    while world.seen.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    check_charged_as_unknown(&world, "held-1").await;
}

#[tokio::test]
async fn a_response_that_the_provider_breaks_off_is_charged_for_what_arrived() {
    let world = World::new(PER_DAY, "").await;
    world.seen.go.add_permits(2);
    let body = json!({ "model": "breaks-3", "messages": [], "max_tokens": 8_000, "stream": true });
    let answer = world.http.post(world.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    assert!(answer.text().await.is_err(), "it ends with an error");
    world.until_counts((0, 0)).await;
    let budget = world.page("/why").await["resources"][0]["budgets"][0].clone();
    assert!((9_900..10_000).contains(&budget["available"].as_i64().unwrap()), "{budget}");
}

#[tokio::test]
async fn reading_a_stored_response_again_is_not_charged_again() {
    let config =
        "budgets = { tokens_per_day = 1000 }\npassthrough = [{ methods = [\"GET\"], path = \"/responses/*\" }]";
    let world = World::new(config, "").await;
    for _ in 0..3 {
        let answer = world.http.get(world.url("/v1/responses/r_1")).send().await.unwrap();
        assert!(answer.text().await.unwrap().contains("\"total_tokens\":100"));
    }
    world.until_counts((0, 0)).await;
    let budget = world.page("/why").await["resources"][0]["budgets"][0].clone();
    assert!((990..=1000).contains(&budget["available"].as_i64().unwrap()), "{budget}");
}

#[tokio::test]
async fn a_provider_is_not_asked_for_the_usage_of_streams_if_the_file_says_so() {
    let world = World::new(&format!("{PER_DAY}\nstream_usage = false"), "").await;
    let body = json!({ "model": "optionless-500", "messages": [], "stream": true });
    let answer = world.http.post(world.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop(answer.bytes().await);
    let other = World::new(PER_DAY, "").await;
    let answer = other.http.post(other.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "it is asked by default");
}

#[tokio::test]
async fn a_rejected_or_undelivered_request_does_not_use_the_budget() {
    let budget = "budgets = { tokens_per_day = 1000 }";
    let forwards = format!("{budget}\nclient_key = \"forward\"");
    let world = World::new(&forwards, "").await;
    let asks = |world: &World, model: &str| {
        let body = json!({ "model": model, "messages": [], "max_tokens": 4_000_000_000_u32 });
        world.http.post(world.url("/v1/chat/completions")).json(&body).send()
    };
    for _ in 0..3 {
        let answer = asks(&world, "key").await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        drop(answer.bytes().await);
    }
    let budgets = async |world: &World| {
        world.until_counts((0, 0)).await;
        world.page("/why").await["resources"][0]["budgets"][0].clone()
    };
    assert_eq!(budgets(&world).await["available"], 1000);

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let down = World::of(&format!("http://{free}/v1"), provider().1, budget, "[retry]\nconnection_errors = 0").await;
    assert_eq!(asks(&down, "slow-1").await.unwrap().status(), StatusCode::BAD_GATEWAY);
    assert_eq!(budgets(&down).await["available"], 1000);
}
