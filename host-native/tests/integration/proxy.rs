//! Tests of the proxy over real sockets, between clients and a provider that limits its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::patience::{PATIENCE, until};
use crate::support::provider::provider;
use crate::support::world::{World, error_code};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tidegate_native::app::config::pipeline::SourceText;
use tidegate_native::app::proxy::Proxy;
use tidegate_native::app::proxy::config::ProxyConfig;
use tokio::task::JoinSet;

#[tokio::test]
async fn two_hundred_clients_of_a_provider_with_a_capacity_of_eight_see_no_rejection() {
    let world = World::new("max_parallel = 64", "").await;
    let mut clients = JoinSet::new();
    for _ in 0..200 {
        clients.spawn(world.chat("accepts-8").send());
    }
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert!(world.seen.refused.load(Ordering::SeqCst) > 0, "the provider never pushed back");
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn a_rejected_call_is_retried_and_the_client_sees_only_the_final_answer() {
    let world = World::new("cooldown = \"10ms\"", "").await;
    for model in ["refuses-3", "overloaded-3"] {
        world.seen.calls.store(0, Ordering::SeqCst);
        let answer = world.chat(model).send().await.unwrap();
        assert_eq!(
            (answer.status(), &answer.headers()["x-tidegate-attempts"]),
            (StatusCode::OK, &"4".parse().unwrap())
        );
        assert!(answer.text().await.unwrap().contains("at last"));
        assert_eq!(world.seen.calls(), 4);
    }
}

/// AIMD pauses for the whole Retry-After. Tide first tests which calls the pause applies to.
const PAUSES: &str = "max_parallel = 8\nlimit = \"aimd\"";

/// Asserts that all of these requests are answered with 200.
async fn assert_answered(requests: impl IntoIterator<Item = RequestBuilder>) {
    let answers: JoinSet<_> = requests.into_iter().map(RequestBuilder::send).collect();
    assert!(answers.join_all().await.into_iter().all(|answer| answer.unwrap().status() == StatusCode::OK));
}

/// The provider sends a Retry-After for chat calls to one model. The same tenant then calls another model,
/// and another domain of the same model. Those calls are answered during the pause.
#[tokio::test]
async fn a_pause_of_one_model_never_delays_calls_to_an_idle_model_of_the_same_tenant() {
    let world = World::new(PAUSES, "").await;
    let mut paused = JoinSet::new();
    paused.spawn(world.chat("pauses-200000").send());
    world.until_counts((1, 0)).await;
    assert_eq!(world.seen.refused.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        paused.spawn(world.chat("pauses-200000").send());
    }
    world.until_counts((4, 0)).await;
    let embeddings = json!({ "model": "pauses-200000", "input": "text" });
    let embed = || world.http.post(world.url("/v1/embeddings")).json(&embeddings);
    assert_answered((0..6).map(|_| world.chat("slow-50")).chain((0..2).map(|_| embed()))).await;
    world.until_counts((4, 0)).await;
}

#[tokio::test]
async fn paused_calls_are_answered_after_the_pause() {
    let world = World::new(PAUSES, "").await;
    let refused = || world.seen.refused.load(Ordering::SeqCst);
    let start = Instant::now();
    let mut paused = JoinSet::new();
    paused.spawn(world.chat("pauses-1000").send());
    until(async || refused(), |refused| *refused == 1).await;
    for _ in 0..3 {
        paused.spawn(world.chat("pauses-1000").send());
    }
    let answers = paused.join_all().await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().status() == StatusCode::OK));
    assert!(start.elapsed() >= Duration::from_secs(1), "the refused call waits for the end of the pause");
    assert_eq!((refused(), world.seen.calls()), (1, 5));
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_rejection_of_the_provider_is_returned() {
    let world = World::new("", "[retry]\nmax_attempts = 2").await;
    let answer = world.chat("refuses-9").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after-ms"]), (429, &"10".parse().unwrap()));
    assert_eq!((error_code(answer).await.as_str(), world.seen.calls()), ("rate_limit_exceeded", 2));
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn a_permanent_rejection_is_forwarded_and_not_retried() {
    let world = World::new("client_key = \"forward\"", "").await;
    for (model, code) in [("quota", "insufficient_quota"), ("never", "rate_limit_exceeded")] {
        let answer = world.chat(model).header("x-tidegate-timeout", "30s").send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 429);
        assert_eq!(error_code(answer).await, code);
    }
    assert_eq!(world.seen.calls(), 2);
}

#[tokio::test]
async fn a_5xx_response_is_forwarded_unless_retries_are_configured() {
    let once = World::new("", "").await;
    assert_eq!(once.chat("fails-1").send().await.unwrap().status().as_u16(), 500);
    let again = World::new("", "[retry]\nserver_errors = 1").await;
    assert_eq!(again.chat("fails-1").send().await.unwrap().status().as_u16(), 200);
    assert_eq!((once.seen.calls(), again.seen.calls()), (1, 2));
}

#[tokio::test]
async fn the_first_chunk_of_a_stream_arrives_before_the_last_is_sent() {
    let world = World::new("", "").await;
    let mut answer = world.chat("stream-4").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    for piece in 0..3 {
        let chunk = answer.chunk().await.unwrap().unwrap();
        assert!(std::str::from_utf8(&chunk).unwrap().contains(&format!("\"{piece}\"")));
        assert_eq!(world.counts().await, (0, 1));
        world.seen.go.add_permits(1);
    }
    while answer.chunk().await.unwrap().is_some() {}
    world.until_counts((0, 0)).await;
    let text = world.http.get(world.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let tokens = "tidegate_tokens_total{provider=\"p\",model=\"stream-4\",domain=\"chat\",direction=\"output\"} 4";
    assert!(text.contains(tokens), "{text}");
}

#[tokio::test]
async fn a_broken_stream_is_not_retried() {
    let world = World::new("", "[retry]\nserver_errors = 3").await;
    let mut answer = world.chat("breaks-1").send().await.unwrap();
    assert!(answer.chunk().await.unwrap().is_some());
    assert!(answer.chunk().await.is_err());
    world.until_counts((0, 0)).await;
    assert_eq!(world.seen.calls(), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_releases_its_waiter_call_and_stream_at_once() {
    let world = World::new("max_parallel = 1", "").await;
    let first = tokio::spawn(world.chat("held").send());
    world.until_counts((0, 1)).await;
    let second = tokio::spawn(world.chat("held").send());
    world.until_counts((1, 1)).await;
    second.abort();
    world.until_counts((0, 1)).await;
    first.abort();
    world.until_counts((0, 0)).await;
    until(async || world.seen.in_flight(), |calls| *calls == 0).await;

    let mut answer = world.chat("stream-9").send().await.unwrap();
    assert!(answer.chunk().await.unwrap().is_some());
    assert_eq!(world.counts().await, (0, 1));
    drop(answer);
    world.until_counts((0, 0)).await;
    until(async || world.seen.in_flight(), |calls| *calls == 0).await;
}

/// Returns how many of the first `of` answers each tenant received while all tenants always have requests
/// waiting.
async fn shares(world: &World, header: &'static str, names: [&'static str; 2], of: u32) -> [u32; 2] {
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let mut clients = JoinSet::new();
    for (index, name) in names.into_iter().enumerate() {
        for _ in 0..24 {
            let (request, counts) = (world.chat("slow-4").header(header, name), Arc::clone(&counts));
            clients.spawn(async move {
                loop {
                    let answer = request.try_clone().unwrap().send().await.unwrap();
                    assert_eq!(answer.status(), StatusCode::OK);
                    drop(answer.bytes().await);
                    counts[index].fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    }
    let now = || [counts[0].load(Ordering::SeqCst), counts[1].load(Ordering::SeqCst)];
    until(async || now().iter().sum::<u32>(), |answers| *answers >= of).await;
    now()
}

const FEW: &str = "max_parallel = 4\nlimit = \"fixed\"";

#[tokio::test]
async fn tenants_share_a_contended_model_by_weight() {
    let tenants = "[tenants]\nby = \"header:x-tenant\"\n[[tenants.known]]\nname = \"people\"\nweight = 3";
    let world = World::new(FEW, tenants).await;
    let [people, batch] = shares(&world, "x-tenant", ["people", "batch"], 400).await;
    let share = f64::from(people) / f64::from(people + batch);
    assert!((0.70..0.80).contains(&share), "{people} of {}", people + batch);
}

#[tokio::test]
async fn urgent_requests_get_a_larger_share_and_others_are_not_starved() {
    let world = World::new(FEW, "[priority]\nlow = 0.25\nnormal = 1\nhigh = 1").await;
    let [normal, low] = shares(&world, "x-tidegate-priority", ["normal", "low"], 400).await;
    let share = f64::from(normal) / f64::from(normal + low);
    assert!((0.75..0.85).contains(&share), "{normal} of {}", normal + low);
}

#[tokio::test]
async fn a_request_waits_at_most_as_long_as_its_client_and_the_proxy_allow() {
    // The shorter of the two limits ends the wait. The longer one exceeds the timeout of the test.
    for (proxy, client, least) in [("1h", "50ms", 50), ("300ms", "3600", 300)] {
        let world = World::new("max_parallel = 1", &format!("[queue]\ndeadline = \"{proxy}\"")).await;
        let held = tokio::spawn(world.chat("held").send());
        world.until_counts((0, 1)).await;
        let since = Instant::now();
        let late = world.chat("held").header("x-tidegate-timeout", client).send();
        let answer = tokio::time::timeout(PATIENCE, late).await.expect("it is answered").unwrap();
        assert!(since.elapsed() >= Duration::from_millis(least));
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], "tidegate_deadline");
        assert!(
            body["error"]["message"].as_str().unwrap().contains("the maximum of 1 concurrent calls is reached"),
            "{body}"
        );
        let nonsense = world.chat("held").header("x-tidegate-timeout", "soon").send().await.unwrap();
        assert_eq!(error_code(nonsense).await, "tidegate_bad_header");
        world.seen.go.add_permits(1);
        assert_eq!(held.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn requests_beyond_the_queue_bound_get_a_retry_after() {
    let world = World::new("max_parallel = 1", "[queue]\nmax_waiting = 2").await;
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(world.chat("held").send());
    }
    world.until_counts((2, 1)).await;
    let answer = world.chat("held").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert_eq!(error_code(answer).await, "tidegate_queue_full");
    world.seen.go.add_permits(3);
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_is_rejected_with_or_without_content_length() {
    let world = World::new("", "[queue]\nmax_body = 100").await;
    let long = "x".repeat(101);
    let announced = world.post(long.clone()).send().await.unwrap();
    assert_eq!(announced.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(error_code(announced).await, "tidegate_too_large");
    let pieces = http_body_util::StreamBody::new(Once(Some(long.into())));
    let chunked = world.post(reqwest::Body::wrap(pieces)).send();
    assert_eq!(chunked.await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(world.seen.calls(), 0);
}

#[tokio::test]
async fn waiting_requests_stay_within_the_memory_limit() {
    let world = World::new("max_parallel = 1", "[queue]\nmax_bytes = 100").await;
    let first = tokio::spawn(world.chat("held").send());
    world.until_counts((0, 1)).await;
    let second = tokio::spawn(world.chat("held").send());
    world.until_counts((1, 1)).await;
    let long = "x".repeat(60);
    let refused = world.post(long).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(error_code(refused).await, "tidegate_queue_full");
    world.seen.go.add_permits(2);
    for held in [first, second] {
        assert_eq!(held.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_stalled_upload_counts_with_the_bytes_received_so_far() {
    use tokio::io::AsyncWriteExt as _;
    let world = World::new("", "[queue]\nmax_bytes = 100").await;
    let mut stalled = tokio::net::TcpStream::connect(world.proxy.address()).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 90\r\n\r\n";
    stalled.write_all(format!("{head}{}", "x".repeat(80)).as_bytes()).await.unwrap();
    let status = async || {
        world
            .post(format!("{{\"model\":\"echo\",\"x\":\"{}\"}}", "y".repeat(40)))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    until(async || status().await, |status| *status == 429).await;
    drop(stalled);
    until(async || status().await, |status| *status == 200).await;
}

/// A body of one chunk without a known length.
struct Once(Option<bytes::Bytes>);

impl futures_core::Stream for Once {
    type Item = Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

#[tokio::test]
async fn the_provider_receives_the_original_request_without_hop_by_hop_headers() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"\nrename = { small = \"echo-7\" }", "").await;
    let answer = world
        .http
        .post(world.url("/v1/chat/completions?a=b%2Fc"))
        .header("authorization", "Bearer sk-client")
        .header("connection", "x-secret")
        .header("x-secret", "1")
        .header("x-request-id", "mine")
        .header("accept-encoding", "gzip, br")
        .header("openai-beta", "v2")
        .header("content-type", "application/json")
        .body(r#"{ "model" : "small", "seed": 1.50 }"#)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (&answer.headers()["x-request-id"], &answer.headers()["x-kept"]),
        (&"mine".parse().unwrap(), &"2".parse().unwrap())
    );
    assert!(!answer.headers().contains_key("x-hop"));
    let echo: Value = answer.json().await.unwrap();
    assert_eq!(echo["uri"], "/v1/chat/completions?a=b%2Fc");
    assert_eq!((&echo["body"]["model"], &echo["body"]["seed"]), (&json!("echo-7"), &json!(1.5)));
    let headers = &echo["headers"];
    assert_eq!(headers["openai-beta"], json!("v2"));
    assert_eq!(*world.seen.call_keys.lock().unwrap(), [Some("Bearer sk-provider".to_string())]);
    assert_eq!((&headers["x-request-id"], &headers["x-secret"]), (&json!("mine"), &Value::Null));
    assert_eq!(headers["accept-encoding"], "identity", "answers have to be read");

    let forwarded = World::new("client_key = \"forward\"", "").await;
    let answer = forwarded.chat("echo").header("authorization", "Bearer sk-client").send().await.unwrap();
    assert!(answer.headers()["x-request-id"].to_str().unwrap().starts_with("tg-"));
    assert_eq!(*forwarded.seen.call_keys.lock().unwrap(), [Some("Bearer sk-client".to_string())]);
}

#[tokio::test]
async fn a_rejected_provider_key_is_not_shown_to_clients() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    let answer = world.chat("key").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let text = answer.text().await.unwrap();
    assert!(text.contains("tidegate_provider_key") && !text.contains("sk-"), "{text}");
    let next = world.chat("key").send().await.unwrap();
    assert_eq!((error_code(next).await.as_str(), world.seen.calls()), ("tidegate_unavailable", 1));
    let own = World::new("client_key = \"forward\"", "").await;
    for _ in 0..2 {
        assert_eq!(own.chat("key").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn paths_and_models_without_a_provider_are_rejected() {
    let world = World::new("serves = [\"held\", \"echo-*\"]\nat_most_models = 2", "").await;
    let answer = world.chat("gpt").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(error_code(answer).await, "model_not_found");
    for (model, status) in [("echo-1", 200), ("echo-2", 200), ("echo-1", 200), ("echo-3", 404)] {
        assert_eq!(world.chat(model).send().await.unwrap().status().as_u16(), status, "{model}");
    }
}

#[tokio::test]
async fn no_path_escapes_the_base_url_of_the_provider() {
    let world = World::new("", "").await;
    let get = async |path: &str| {
        raw(&world, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
    };
    assert!(get("/v1/models/b%2fc").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let seen = || world.seen.calls();
    assert_eq!(seen(), 1);
    for path in [
        "/",
        "/v2/chat/completions",
        "/v1",
        "/v1/%2e%2e/admin",
        "/v1/a/../../admin",
        "/v1/..\\admin",
        "/v1/a\\..\\..\\admin",
        "/v1/..%5cadmin",
        "/v1/a/..%2f",
    ] {
        let answer = get(path).await;
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{path}: {answer}");
    }
    assert_eq!(seen(), 1);
}

/// Sends raw bytes and returns the response.
async fn raw(world: &World, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(world.proxy.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn an_unreachable_provider_is_named_without_its_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, seen) = provider();
    let world = World::of(&format!("http://{free}/v1"), seen, "", "[retry]\nmax_attempts = 2").await;
    let answer = world.chat("held").send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["x-tidegate-attempts"]),
        (StatusCode::BAD_GATEWAY, &"2".parse().unwrap())
    );
    let text = answer.text().await.unwrap();
    assert!(text.contains("the provider p could not be reached") && !text.contains("127.0.0.1"), "{text}");
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn a_provider_that_sends_nothing_times_out() {
    let world = World::new("timeout = \"100ms\"", "").await;
    let answer = world.chat("held").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(error_code(answer).await, "tidegate_provider_timeout");
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn the_why_page_shows_what_each_request_waits_for() {
    let world = World::new("max_parallel = 1", "[tenants]\nby = \"header:x-tenant\"").await;
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(world.chat("held").header("x-tenant", "a<b").send());
    }
    world.until_counts((2, 1)).await;
    let why = world.page("/why").await;
    assert_eq!((&why["waiting"], &why["in_flight"]), (&json!(2), &json!(1)));
    assert_eq!(why["resources"][0]["why"], "the maximum of 1 concurrent calls is reached");
    let group = &why["tenants"][0];
    assert_eq!((&group["tenant"], &group["waiting"], &group["in_flight"]), (&json!("a<b"), &json!(2), &json!(1)));
    let text = |kind| world.http.get(world.url("/why")).header("accept", kind).send();
    let html = text("text/html").await.unwrap().text().await.unwrap();
    assert!(html.contains("<td>a&lt;b</td>") && !html.contains("a<b"), "{html}");
    assert!(html.contains("<div>the maximum of 1 concurrent calls is reached</div>"), "{html}");
    let plain = text("text/plain").await.unwrap().text().await.unwrap();
    assert!(
        plain.contains("p/held/chat: 1 in flight of 1 (by tide, at most 1), 2 wait: the maximum of 1 concurrent"),
        "{plain}"
    );
    let metrics = world.http.get(world.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tidegate_waiting{provider=\"p\",model=\"held\",domain=\"chat\"} 2"), "{metrics}");
    assert!(!metrics.contains("a<b"), "a tenant that is not configured is no label: {metrics}");
    until(async || world.seen.calls(), |calls| *calls == 1).await;
}

#[tokio::test]
async fn the_model_list_joins_the_models_of_all_providers() {
    let (other, _) = provider();
    let second = format!("[[providers]]\nname = \"q\"\nbase_url = \"{other}\"");
    let world = World::new("serves = [\"held\"]", &second).await;
    let list = world.page("/v1/models").await;
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["held", "other"]);
    let why = world.page("/why").await;
    assert_eq!(why["resources"].as_array().unwrap().len(), 2, "they went through the gate: {why}");
    let single = World::new("", "").await;
    assert_eq!(single.page("/v1/models").await["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_joined_model_list_sends_no_client_key_to_a_provider_and_is_cached() {
    let (other, keyless) = provider();
    let second = format!("[[providers]]\nname = \"q\"\nbase_url = \"{other}\"");
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", &second).await;
    for _ in 0..3 {
        let list = world.http.get(world.url("/v1/models")).header("authorization", "Bearer sk-client");
        assert_eq!(list.send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(*world.seen.list_keys.lock().unwrap(), [Some("Bearer sk-provider".to_string())]);
    assert_eq!(*keyless.list_keys.lock().unwrap(), [None]);
}

#[tokio::test]
async fn a_proxy_that_shuts_down_finishes_calls_in_flight_and_rejects_waiting_requests() {
    let world = World::new("max_parallel = 1", "").await;
    let out = tokio::spawn(world.chat("held").send());
    world.until_counts((0, 1)).await;
    let waits = tokio::spawn(world.chat("held").send());
    world.until_counts((1, 1)).await;
    let World { proxy, seen, .. } = world;
    let stopped = tokio::spawn(proxy.stop());
    let sent_away = waits.await.unwrap().unwrap();
    assert_eq!(sent_away.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(error_code(sent_away).await, "tidegate_shutting_down");
    assert!(!stopped.is_finished());
    seen.go.add_permits(1);
    let answer = out.await.unwrap().unwrap();
    assert!(answer.text().await.unwrap().contains("held"));
    assert_eq!(stopped.await.unwrap().cut, 0);
}

#[tokio::test]
async fn calls_that_exceed_the_shutdown_timeout_are_aborted_and_counted() {
    let (base_url, seen) = provider();
    let text =
        format!("listen = \"127.0.0.1:0\"\ndrain = \"50ms\"\n[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"");
    let config = ProxyConfig::parse(&SourceText::new("p", text), &|_| None).unwrap();
    let proxy = Proxy::start(config, false).await.unwrap();
    let url = format!("http://{}/v1/chat/completions", proxy.address());
    let http = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let out = tokio::spawn(http.post(url).json(&json!({ "model": "held" })).send());
    until(async || seen.in_flight(), |calls| *calls == 1).await;
    assert_eq!(proxy.stop().await.cut, 1);
    assert!(out.await.unwrap().is_err());
    until(async || seen.in_flight(), |calls| *calls == 0).await;
}
