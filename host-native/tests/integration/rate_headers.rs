//! Tests of rates that a provider states in response headers, over real sockets.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, ProviderSpec, Rate};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::{MockConfig, MockServer, RateHeaders};
use tokio::task::JoinSet;

use crate::support::provider::provider;
use crate::support::world::World;
use crate::support::{Scratch, mock_pipeline};

/// Sends one call and then `calls` simultaneous ones through a proxy to a mock that allows 20 calls a second
/// with a burst of 20. Returns the number of rate-limited calls and the `/why` page.
async fn rate_limited_calls(calls: u32, dialect: RateHeaders, extra: &str) -> (u64, Value) {
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
    let mut burst = JoinSet::new();
    for _ in 0..calls {
        burst.spawn(call());
    }
    while let Some(answer) = burst.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), StatusCode::OK);
    }
    let rate_limited_calls = mock.stats().models["m"].counters.refused_by_rate;
    (rate_limited_calls, world.page("/why").await)
}

/// The most calls that may exceed a rate that is known: on a busy machine some are delayed on their way and
/// arrive together with the next.
const MOST_DELAYED: u64 = 5;

#[tokio::test]
async fn a_burst_through_the_proxy_stays_within_the_rate_of_the_first_response_in_every_dialect() {
    for dialect in [RateHeaders::Openai, RateHeaders::Anthropic, RateHeaders::Minute, RateHeaders::Ietf] {
        let (rate_limited_calls, why) = rate_limited_calls(40, dialect, "").await;
        assert!(rate_limited_calls <= MOST_DELAYED, "{dialect:?}: {rate_limited_calls} calls were rate limited");
        let budget = &why["resources"][0]["budgets"][0];
        assert_eq!((&budget["source"], &budget["limit"]), (&"headers".into(), &1_200.into()), "{dialect:?}: {why}");
    }
}

#[tokio::test]
async fn without_rate_limit_headers_a_burst_exceeds_the_rate() {
    for (dialect, extra) in [(RateHeaders::None, ""), (RateHeaders::Openai, "rate_limit_headers = false\n")] {
        // So many that the rate is exceeded also if they take seconds to arrive.
        let (rate_limited_calls, why) = rate_limited_calls(100, dialect, extra).await;
        assert!(rate_limited_calls >= 2 * MOST_DELAYED, "{dialect:?}: {rate_limited_calls} calls were rate limited");
        assert_eq!(why["resources"][0]["budgets"], json!([]));
    }
}

#[test]
fn a_run_stays_within_the_rate_that_its_model_states() {
    let mock = "capacity = { shape = \"constant\", slots = 8 }, latency = { law = \"constant\", latency_ms = 5 }, \
                requests = { per_minute = 1200, burst = 10 }";
    let scratch = Scratch::new(30);
    let ended = scratch.run_pipeline(&mock_pipeline(8, "", mock));
    ended.assert(0, &["rows out        30"]);
    let line = ended.stdout.lines().find(|line| line.contains("rate limited (429)"));
    let rate_limited_calls: u64 =
        line.map_or(0, |line| line.split(" rate limited").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap());
    assert!(rate_limited_calls <= MOST_DELAYED, "{}", ended.all());
}
