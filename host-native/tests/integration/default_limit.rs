//! The default limit over real sockets, where another one is far from what a fixed cap reaches: refusals that have nothing to do with load,
//! and a rate that is enforced call by call under long answers.
//!
//! Each limit has a mock provider, a gate and callers of its own, and all run at the same time for some seconds. What is asserted is a
//! ratio between them.

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
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::mock::MockServer;
use tidegate_native::reqwest::AdmissionMiddleware;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Calls that may be in flight, and callers.
const CAP: u32 = 64;

/// The seed of the mock's refusals.
const SEED: u64 = 5;
/// What part of the answers of a fixed cap the default reaches at least where a rate is enforced call by call: it has to find the rate
/// first, in the time of a few long answers.
const FAIR_PART: f64 = 0.5;

/// Answers and refusals of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    answers: u32,
    refusals: u32,
}

/// What `CAP` callers get out of a provider for so long: each calls again at once after an answer, and after a refusal when its Retry-After
/// is over.
async fn reached(spec: &ProviderSpec, seed: u64, limits: Limits, span: StdDuration) -> Reached {
    let mock = MockServer::start(spec, seed).await.unwrap();
    let (gate, key) = (RequestGate::new().unwrap(), ResourceKey::chat("mock", "m"));
    gate.register(&key, &limits).unwrap();
    let admission = AdmissionMiddleware::new(gate, move |_: &reqwest::Request| Call::of(key.clone()));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let client = ClientBuilder::new(http).with(admission).build();
    let (answers, refusals) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CAP {
        let (client, url) = (client.clone(), format!("{}/chat/completions", mock.base_url()));
        let (answers, refusals) = (Arc::clone(&answers), Arc::clone(&refusals));
        callers.spawn(async move {
            loop {
                match call(&client, &url).await {
                    None => answers.fetch_add(1, Ordering::Relaxed),
                    Some(pause) => {
                        let before = refusals.fetch_add(1, Ordering::Relaxed);
                        sleep(pause).await;
                        before
                    }
                };
            }
        });
    }
    sleep_until(Instant::now() + span).await;
    Reached { answers: answers.load(Ordering::Relaxed), refusals: refusals.load(Ordering::Relaxed) }
}

/// Calls once. `None`: it was answered; else how long the refusal asks to wait.
async fn call(client: &ClientWithMiddleware, url: &str) -> Option<StdDuration> {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "the lamp failed" }] }).to_string();
    let answer = client.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
    let (status, asked) = (answer.status(), answer.headers().get("retry-after").cloned());
    answer.bytes().await.unwrap();
    match status {
        StatusCode::OK => None,
        StatusCode::TOO_MANY_REQUESTS => {
            let secs = asked.and_then(|secs| secs.to_str().ok()?.parse().ok()).unwrap_or(0);
            Some(StdDuration::from_secs(secs))
        }
        other => panic!("{other}"),
    }
}

/// What a fixed cap, AIMD and the default reach of the same provider.
async fn compared(spec: ProviderSpec, span: StdDuration) -> [Reached; 3] {
    let default = Limits::at_most(CAP);
    assert!(matches!(default.algorithm, LimitChoice::Tide(_)));
    let of = |limits| reached(&spec, SEED, limits, span);
    let fixed = default.clone().found_by(LimitChoice::Fixed { limit: CAP });
    let aimd = default.clone().found_by(LimitChoice::Aimd);
    let (fixed, aimd, default) = tokio::join!(of(fixed), of(aimd), of(default));
    println!("fixed {fixed:?}, aimd {aimd:?}, default {default:?} in {span:?}");
    [fixed, aimd, default]
}

fn provider(latency_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity: Capacity::Constant { slots: CAP },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    }
}

#[tokio::test]
async fn where_three_calls_of_ten_are_refused_at_any_load_the_default_reaches_what_a_fixed_cap_reaches() {
    let faults = Faults { refused_share: 0.3, retry_after: Some(Duration::from_secs(1)), ..Faults::default() };
    let spec = ProviderSpec { faults: Some(faults), ..provider(50) };
    let [fixed, aimd, default] = compared(spec, StdDuration::from_secs(20)).await;
    let figures = format!("fixed {fixed:?}, aimd {aimd:?}, default {default:?}");
    assert!(default.answers >= fixed.answers, "{figures}");
    assert!(default.answers >= aimd.answers, "{figures}");
}

#[tokio::test]
async fn where_a_rate_is_enforced_call_by_call_under_long_answers_the_default_reaches_half_of_what_a_fixed_cap_reaches()
{
    let rate = Rate { per_minute: 20 * 60, burst: Some(1), window: None, ..Rate::per_minute(1) };
    let spec = ProviderSpec { requests: Some(rate), ..provider(2_000) };
    let [fixed, aimd, default] = compared(spec, StdDuration::from_secs(20)).await;
    let figures = format!("fixed {fixed:?}, aimd {aimd:?}, default {default:?}");
    assert!(f64::from(default.answers) >= FAIR_PART * f64::from(fixed.answers), "{figures}");
    assert!(default.answers >= aimd.answers, "{figures}");
}
