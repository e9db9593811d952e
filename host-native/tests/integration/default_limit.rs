//! The default limit over real sockets, against rate limiting that does not depend on the number of calls in
//! flight: a share of calls that is rate limited at any load, and a rate that is enforced for each call while
//! responses are slow.
//!
//! `sim/suite/control/tests_pushback.rs` in the core asserts its throughput there in virtual time, beside
//! other limits and an oracle. Real time differs between machines. Here the default limit and a fixed cap
//! each have a mock provider, a gate and callers, and share the machine until the default has a certain
//! number of answers, however long that takes. The fixed cap must then not have so many more that the default
//! could be pausing for each rate-limited call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration as StdDuration;

use reqwest::StatusCode;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde_json::json;
use tidegate_core::limit::LimitChoice;
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Faults, ProviderSpec, Rate};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::MockServer;
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::middleware::reqwest::AdmissionMiddleware;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::patience::until;

/// The maximum number of calls in flight, and the number of callers.
const CAP: u32 = 64;

/// The seed of the mock provider.
const SEED: u64 = 5;

/// `CAP` callers with a provider of their own. Each calls again at once after an answer, and after its
/// Retry-After if the call was rate limited. Dropping the value stops them.
struct Callers {
    answers: Arc<AtomicU32>,
    _mock: MockServer,
    _tasks: JoinSet<()>,
}

impl Callers {
    async fn start(spec: &ProviderSpec, limits: &Limits) -> Self {
        let mock = MockServer::start(spec, SEED).await.unwrap();
        let (gate, key) = (RequestGate::new().unwrap(), ResourceKey::chat("mock", "m"));
        gate.register(&key, limits).unwrap();
        let admission = AdmissionMiddleware::new(gate, move |_: &reqwest::Request| Call::new(key.clone()));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let client = ClientBuilder::new(http).with(admission).build();
        let answers = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..CAP {
            let (client, url) = (client.clone(), format!("{}/chat/completions", mock.base_url()));
            let answers = Arc::clone(&answers);
            tasks.spawn(async move {
                loop {
                    match call(&client, &url).await {
                        None => drop(answers.fetch_add(1, Ordering::Relaxed)),
                        Some(pause) => sleep(pause).await,
                    }
                }
            });
        }
        Self { answers, _mock: mock, _tasks: tasks }
    }

    fn answers(&self) -> u32 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// Makes one call. Returns `None` if it was answered, or else the wait that the rate-limited response asks
/// for.
async fn call(client: &ClientWithMiddleware, url: &str) -> Option<StdDuration> {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "the lamp failed" }] }).to_string();
    let answer = client.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
    let (status, retry_after) = (answer.status(), answer.headers().get("retry-after").cloned());
    answer.bytes().await.unwrap();
    match status {
        StatusCode::OK => None,
        StatusCode::TOO_MANY_REQUESTS => {
            let secs = retry_after.and_then(|secs| secs.to_str().ok()?.parse().ok()).unwrap_or(0);
            Some(StdDuration::from_secs(secs))
        }
        other => panic!("{other}"),
    }
}

/// Returns the number of answers of a fixed cap when the default has `enough` answers.
async fn answers_of_a_fixed_cap(spec: ProviderSpec, enough: u32) -> u32 {
    let limits = Limits::at_most(CAP);
    assert!(matches!(limits.algorithm, LimitChoice::Tide(_)));
    let fixed = Callers::start(&spec, &limits.clone().with_algorithm(LimitChoice::Fixed { limit: CAP })).await;
    let default = Callers::start(&spec, &limits).await;
    until(async || default.answers(), |answers| *answers >= enough).await;
    let answers = fixed.answers();
    println!("a fixed cap has {answers} answers, the default {}", default.answers());
    answers
}

fn provider(latency_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity: Capacity::Constant { slots: CAP },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    }
}

#[tokio::test]
async fn the_default_does_not_pause_for_each_of_many_random_rate_limits() {
    let faults = Faults { refused_share: 0.3, retry_after: Some(Duration::from_secs(1)), ..Faults::default() };
    let spec = ProviderSpec { faults: Some(faults), ..provider(50) };
    // On an idle machine the default has several times as many answers. On a busy one both get the same share
    // of the processor.
    assert!(answers_of_a_fixed_cap(spec, 500).await <= 3 * 500);
}

#[tokio::test]
async fn the_default_finds_a_rate_of_more_than_one_call_a_second_while_responses_are_slow() {
    let rate = Rate { per_minute: 20 * 60, burst: Some(1), window: None, ..Rate::per_minute(1) };
    let spec = ProviderSpec { requests: Some(rate), ..provider(2_000) };
    // A limit that pauses for each rate-limited call has one answer where a fixed cap has nearly twenty. On
    // an idle machine the default has as many as the cap. On a busy machine calls do not arrive at the pace
    // at which they are sent: there it has one where the cap has three.
    assert!(answers_of_a_fixed_cap(spec, 40).await <= 10 * 40);
}
