//! Rates that a provider states in headers, over real sockets.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, ProviderSpec, Rate};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::{MockConfig, MockServer, RateHeaders};
use tokio::task::JoinSet;

use crate::proxy::World;
use crate::support::provider::provider;
use crate::support::{Scratch, mock_pipeline};

/// Calls in a crowd, after one that came alone.
const CROWD: usize = 40;

/// Sends a call and then a crowd through a proxy to a mock of 20 calls a second, of which 20 may come at once. Answers how many were
/// refused, and what the proxy shows.
async fn refused(dialect: RateHeaders, extra: &str) -> (u64, Value) {
    let spec = ProviderSpec {
        capacity: Capacity::Constant { slots: 64 },
        latency: Latency::Constant { latency: Duration::from_millis(5) },
        requests: Some(Rate::bursting(1_200, 20)),
        ..ProviderSpec::default()
    };
    let models = vec![("m".to_string(), spec)];
    let mock = MockServer::serve(
        MockConfig { models, rate_headers: dialect, ..MockConfig::default() },
        ([127, 0, 0, 1], 0).into(),
    );
    let mock = mock.await.unwrap();
    let (_, seen) = provider();
    let limits = "max_parallel = 64\nlimit = \"fixed\"";
    let world = World::before(&mock.base_url(), Arc::clone(&seen), limits, extra).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hello" }] });
    let call = || world.chat("m").json(&body).send();
    assert_eq!(call().await.unwrap().status(), StatusCode::OK);
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        crowd.spawn(call());
    }
    while let Some(answer) = crowd.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), StatusCode::OK);
    }
    let refused = mock.stats().models["m"].counters.refused_by_rate;
    (refused, world.page("/why").await)
}

#[tokio::test]
async fn a_crowd_behind_the_proxy_keeps_to_the_rate_that_the_first_answer_stated_in_any_dialect() {
    for dialect in [RateHeaders::Openai, RateHeaders::Anthropic, RateHeaders::Minute, RateHeaders::Ietf] {
        let (refused, why) = refused(dialect, "").await;
        // Two, for calls that the machine holds up on their way.
        assert!(refused <= 2, "{dialect:?}: {refused} were refused");
        let budget = &why["resources"][0]["budgets"][0];
        assert_eq!((&budget["source"], &budget["limit"]), (&"headers".into(), &1_200.into()), "{dialect:?}: {why}");
    }
}

#[tokio::test]
async fn without_headers_and_where_they_are_switched_off_the_crowd_runs_into_the_rate() {
    for (dialect, extra) in [(RateHeaders::None, ""), (RateHeaders::Openai, "rate_limit_headers = false\n")] {
        let (refused, why) = refused(dialect, extra).await;
        assert!(refused >= 10, "{dialect:?}: {refused} were refused");
        assert_eq!(why["resources"][0]["budgets"], json!([]));
    }
}

#[test]
fn a_run_keeps_to_the_rate_that_its_model_states() {
    let mock = "capacity = { shape = \"constant\", slots = 8 }, latency = { law = \"constant\", latency_ms = 5 }, \
                requests = { per_minute = 1200, burst = 10 }";
    let scratch = Scratch::new(30);
    let ended = scratch.run_pipeline(&mock_pipeline(8, "", mock));
    ended.assert(0, &["rows out        30"]);
    let line = ended.stdout.lines().find(|line| line.contains("rate limited (429)"));
    let refused: u64 =
        line.map_or(0, |line| line.split(" rate limited").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap());
    assert!(refused <= 2, "{}", ended.all());
}
