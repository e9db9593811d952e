//! Tests of how calls through the proxy are charged to budgets.

use reqwest::StatusCode;
use serde_json::json;

use crate::support::provider::provider;
use crate::support::world::World;

#[tokio::test]
async fn budgets_are_settled_with_the_reported_usage() {
    let world = World::new("budgets = { tokens_per_minute = 1000 }", "").await;
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
