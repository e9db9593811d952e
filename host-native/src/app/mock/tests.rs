use serde_json::{Value, json};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Faults, Outage, Overload, Rate};
use tidegate_core::time::Duration;

use super::*;
use crate::app::provider::{CallError, ChatClient, ChatEndpoint, ChatRequest};
use crate::patience::until;

fn spec(slots: u32, latency_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity: Capacity::Constant { slots },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(120)) },
        latency: Latency::Constant { latency: Duration::from_millis(latency_ms) },
        ..ProviderSpec::default()
    }
}

fn client(server: &MockServer) -> ChatClient {
    ChatClient::new(ChatEndpoint::local(&server.base_url())).unwrap()
}

fn ask(prompt: &str) -> ChatRequest<'_> {
    ChatRequest { prompt, ..ChatRequest::default() }
}

#[tokio::test]
async fn equal_prompts_get_equal_answers_over_a_real_socket() {
    let server = MockServer::start(&spec(2, 1), 7).await.unwrap();
    let client = client(&server);
    let first = client.complete(ask("the breakwater lamp failed")).await.unwrap();
    assert_eq!(client.complete(ask("the breakwater lamp failed")).await.unwrap(), first);
    assert!(first.contains("breakwater"), "{first}");
    assert_eq!((server.counters().accepted, server.in_flight()), (2, 0));
}

#[tokio::test]
async fn a_call_without_a_free_slot_is_refused_with_the_exact_wait() {
    let server = MockServer::start(&spec(0, 1), 7).await.unwrap();
    let error = client(&server).complete(ask("x")).await.unwrap_err();
    let retry_after = Some(Duration::from_millis(120));
    assert_eq!(error, CallError::RateLimited { status: 429, retry_after });
}

#[tokio::test]
async fn a_slot_is_released_when_its_client_disconnects() {
    let server = MockServer::start(&spec(1, 600_000), 7).await.unwrap();
    let impatient = client(&server);
    let call = tokio::spawn(async move { impatient.complete(ask("x")).await });
    until(async || server.in_flight(), |calls| *calls == 1).await;
    call.abort();
    until(async || server.in_flight(), |calls| *calls == 0).await;
    assert_eq!(server.counters().finished, 1);
}

#[tokio::test]
async fn an_unknown_route_and_an_invalid_body_get_error_responses() {
    let server = MockServer::start(&spec(1, 1), 7).await.unwrap();
    let http = http();
    let not_found = http.post(format!("{}/nowhere", server.base_url())).send().await.unwrap();
    assert_eq!(not_found.status(), 404);
    let url = format!("{}/chat/completions", server.base_url());
    let bad = http.post(&url).header("content-type", "application/json").body("{").send().await.unwrap();
    assert_eq!(bad.status(), 400);
    let body: Value = bad.json().await.unwrap();
    assert!(body["error"]["message"].is_string());
    assert_eq!(server.counters(), Counters::default());
}

#[tokio::test]
async fn a_stopped_mock_accepts_no_connections() {
    let server = MockServer::start(&spec(1, 1), 7).await.unwrap();
    let client = client(&server);
    drop(server);
    // The server task ends when it is next polled, so a call may still succeed.
    let error = loop {
        if let Err(error) = client.complete(ask("x")).await {
            break error;
        }
    };
    assert!(matches!(error, CallError::Connection { .. }), "{error}");
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

async fn serve(config: MockConfig) -> MockServer {
    MockServer::serve(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap()
}

fn one(spec: ProviderSpec) -> MockConfig {
    MockConfig { models: vec![("m".to_string(), spec)], ..MockConfig::default() }
}

fn url(server: &MockServer, path: &str) -> String {
    format!("http://{}{path}", server.address())
}

async fn post(server: &MockServer, path: &str, body: &Value) -> reqwest::Response {
    http().post(url(server, path)).json(body).send().await.unwrap()
}

fn chat(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "the breakwater lamp failed" }] })
}

fn streamed() -> Value {
    let mut body = chat("m");
    body["stream"] = true.into();
    body
}

const CHAT: &str = "/v1/chat/completions";

fn header(response: &reqwest::Response, name: &str) -> String {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_string()).unwrap_or_default()
}

#[tokio::test]
async fn a_streamed_answer_equals_the_whole_one_and_ends_with_done() {
    let server = serve(one(spec(2, 20))).await;
    let whole: Value = post(&server, CHAT, &chat("m")).await.json().await.unwrap();
    let response = post(&server, CHAT, &streamed()).await;
    assert_eq!(header(&response, "content-type"), "text/event-stream");
    let text = response.text().await.unwrap();
    let events: Vec<&str> = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let content: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], content);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let stats = server.stats().models["m"];
    assert_eq!(stats.answered_tokens, 2 * whole["usage"]["completion_tokens"].as_u64().unwrap());
}

#[tokio::test]
async fn a_slot_is_released_when_its_client_disconnects_during_a_stream() {
    let server = serve(one(spec(1, 600_000))).await;
    let response = post(&server, CHAT, &streamed()).await;
    assert_eq!((response.status().as_u16(), server.in_flight()), (200, 1));
    assert_eq!(post(&server, CHAT, &chat("m")).await.status(), 429);
    drop(response);
    until(async || server.in_flight(), |calls| *calls == 0).await;
    assert_eq!(server.stats().models["m"].answered_tokens, 0);
}

#[tokio::test]
async fn each_model_has_its_own_provider_and_unknown_models_are_not_found() {
    let models = vec![("a".to_string(), spec(0, 1)), ("b/c".to_string(), spec(4, 1))];
    let server = serve(MockConfig { models, ..MockConfig::default() }).await;
    assert_eq!(post(&server, CHAT, &chat("a")).await.status(), 429);
    assert_eq!(post(&server, CHAT, &chat("b/c")).await.status(), 200);
    let unknown = post(&server, CHAT, &chat("d")).await;
    assert_eq!(unknown.status(), 404);
    let error: Value = unknown.json().await.unwrap();
    assert_eq!(error["error"]["code"], "model_not_found");
    assert!(error["error"]["message"].as_str().unwrap().contains("`a`, `b/c`"), "{error}");
    let list: Value = http().get(url(&server, "/v1/models")).send().await.unwrap().json().await.unwrap();
    assert_eq!(list["data"][1]["id"], "b/c");
    let known: Value = http().get(url(&server, "/v1/models/b/c")).send().await.unwrap().json().await.unwrap();
    assert_eq!(known["id"], "b/c");
    assert_eq!(http().get(url(&server, "/v1/models/d")).send().await.unwrap().status(), 404);
    let stats = server.stats();
    assert_eq!((stats.models["a"].counters.refused, stats.models["b/c"].counters.accepted), (1, 1));
    assert_eq!((stats.requests, stats.rejected), (6, 2));
}

#[tokio::test]
async fn headers_contain_the_rate_limits_and_retry_after() {
    let requests = Some(Rate::bursting(6, 1));
    let server = serve(one(ProviderSpec { requests, ..spec(4, 1) })).await;
    let answered = post(&server, CHAT, &chat("m")).await;
    assert_eq!(answered.status(), 200);
    assert_eq!(header(&answered, "x-ratelimit-limit-requests"), "6");
    assert_eq!(header(&answered, "x-ratelimit-remaining-requests"), "0");
    assert_eq!(header(&answered, "x-ratelimit-reset-requests"), "10s");
    assert_eq!(header(&answered, "x-ratelimit-limit-tokens"), "");
    assert!(header(&answered, "x-request-id").starts_with("req-mock-"));
    let refused = post(&server, CHAT, &chat("m")).await;
    assert_eq!(refused.status(), 429);
    let [seconds, millis] =
        ["retry-after", "retry-after-ms"].map(|name| header(&refused, name).parse::<u64>().unwrap());
    assert!((1..=10_000).contains(&millis) && seconds == millis.div_ceil(1_000), "{seconds} s, {millis} ms");
    let error: Value = refused.json().await.unwrap();
    assert_eq!((&error["error"]["type"], &error["error"]["code"]), (&json!("requests"), &json!("rate_limit_exceeded")));
}

#[tokio::test]
async fn a_refusal_names_the_exhausted_limit() {
    let tokens = Some(Rate::bursting(60, 1));
    for (spec, kind) in [(spec(0, 1), "concurrency"), (ProviderSpec { tokens, ..spec(4, 1) }, "tokens")] {
        let server = serve(one(spec)).await;
        let _ = post(&server, CHAT, &chat("m")).await;
        let error: Value = post(&server, CHAT, &chat("m")).await.json().await.unwrap();
        assert_eq!(error["error"]["type"], kind);
    }
}

async fn outcome_of(faults: Faults, body: &Value) -> (u16, Result<String, reqwest::Error>, MockServer) {
    let server = serve(one(ProviderSpec { faults: Some(faults), ..spec(4, 20) })).await;
    let response = post(&server, CHAT, body).await;
    (response.status().as_u16(), response.text().await, server)
}

#[tokio::test]
async fn a_cut_closes_the_connection_during_a_body_and_during_a_stream() {
    for body in [chat("m"), streamed()] {
        let (code, text, server) = outcome_of(Faults { cut_share: 1.0, ..Faults::default() }, &body).await;
        assert_eq!(code, 200);
        assert!(text.is_err(), "{text:?}");
        let stats = server.stats().models["m"];
        assert_eq!((stats.counters.corrupted, stats.in_flight, stats.answered_tokens), (1, 0, 0));
    }
}

#[tokio::test]
async fn a_malformed_answer_is_sent_completely_and_is_not_valid_json() {
    let faults = Faults { malformed_share: 1.0, ..Faults::default() };
    let (status, text, _) = outcome_of(faults, &chat("m")).await;
    assert_eq!(status, 200);
    assert!(serde_json::from_str::<Value>(&text.unwrap()).is_err());
    let (_, text, _) = outcome_of(faults, &streamed()).await;
    let text = text.unwrap();
    let unreadable = |event: &&str| serde_json::from_str::<Value>(event.trim_start_matches("data: ")).is_err();
    assert_eq!(text.split_terminator("\n\n").filter(unreadable).count(), 2, "the last event and [DONE]: {text}");
}

#[tokio::test]
async fn an_outage_fails_calls_and_a_hang_leaves_them_unanswered() {
    let outage = Outage { status: 502, ..Outage::of_errors(Duration::ZERO, Duration::from_secs(60)) };
    let server = serve(one(ProviderSpec { outages: vec![outage], ..spec(4, 1) })).await;
    assert_eq!(post(&server, CHAT, &chat("m")).await.status(), 502);
    let faults = Some(Faults { hang_share: 1.0, ..Faults::default() });
    let server = serve(one(ProviderSpec { faults, ..spec(4, 1) })).await;
    let call = tokio::spawn(http().post(url(&server, CHAT)).json(&chat("m")).send());
    until(async || server.counters().hung, |hung| *hung == 1).await;
    assert!(!call.is_finished() && server.in_flight() == 0);
    call.abort();
}

#[tokio::test]
async fn a_key_is_asked_for_at_every_address() {
    let server = serve(MockConfig { key: Some(MockKey("tide".to_string())), ..one(spec(4, 1)) }).await;
    let call = |key: Option<&'static str>| {
        let request = http().post(url(&server, CHAT)).json(&chat("m"));
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        async { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!((call(Some("tide")).await, call(Some("ebb")).await, call(None).await), (200, 401, 401));
    let paths =
        ["/healthz", "/mock/stats", "/mock/models/m", "/v1/models", "/v1/models/m", "/v1/files", "/", "/nowhere"];
    for path in paths {
        assert_eq!(http().get(url(&server, path)).send().await.unwrap().status(), 401, "{path}");
        assert_eq!(http().delete(url(&server, path)).send().await.unwrap().status(), 401, "{path}");
    }
    let with_key = async |path| http().get(url(&server, path)).bearer_auth("tide").send().await.unwrap();
    assert_eq!(with_key("/healthz").await.status(), 200);
    let stats: Value = with_key("/mock/stats").await.json().await.unwrap();
    let rejected = 2 + 2 * paths.len();
    assert_eq!((&stats["models"]["m"]["accepted"], &stats["rejected"]), (&json!(1), &json!(rejected)));
    assert!(!format!("{:?}", server.service).contains("tide\""), "the key is never shown");
}

#[tokio::test]
async fn a_provider_can_be_changed_while_it_serves_if_control_is_allowed() {
    let server = serve(one(spec(4, 1))).await;
    assert_eq!(post(&server, "/mock/models/m", &json!({ "slots": 0 })).await.status(), 403);
    let server = serve(MockConfig { allow_control: true, ..one(spec(4, 1)) }).await;
    let change = |body: Value| {
        let server = &server;
        async move { post(server, "/mock/models/m", &body).await.status().as_u16() }
    };
    let call = || async { post(&server, CHAT, &chat("m")).await.status().as_u16() };
    assert_eq!((change(json!({ "slots": 0 })).await, call().await), (200, 429));
    let stats: Value = post(&server, "/mock/models/m", &json!({ "slots": 3 })).await.json().await.unwrap();
    assert_eq!((&stats["capacity"], &stats["refused"]), (&json!(3), &json!(1)));
    let spec: Value = http().get(url(&server, "/mock/models/m")).send().await.unwrap().json().await.unwrap();
    assert_eq!(spec["capacity"]["slots"], 4, "an override does not change the description");
    assert_eq!((change(json!({ "slots": null })).await, call().await), (200, 200));
    let broken = json!({ "faults": { "error_share": 1.0, "error_status": 529 } });
    assert_eq!((change(broken).await, call().await), (200, 529));
    for wrong in [json!({ "slots": -1 }), json!({ "slots": 1, "more": 2 }), json!({ "faults": { "cut_share": 2 } })] {
        assert_eq!(change(wrong).await, 400);
    }
    assert_eq!(post(&server, "/mock/models/x", &json!({ "slots": 1 })).await.status(), 404);
    let stats = server.stats().models["m"];
    assert_eq!((stats.counters.accepted, stats.counters.refused, stats.counters.failed), (1, 1, 1));
}

#[tokio::test]
async fn embeddings_and_text_completions_use_slots_and_tokens_like_chat() {
    let tokens = Some(Rate::per_minute(60_000));
    let server = serve(one(ProviderSpec { tokens, ..spec(4, 1) })).await;
    let response = post(&server, "/v1/embeddings", &json!({ "model": "m", "input": "a buoy adrift" })).await;
    assert_eq!(header(&response, "x-ratelimit-remaining-tokens"), "59996");
    let response = post(&server, "/v1/completions", &json!({ "model": "m", "prompt": "a buoy adrift" })).await;
    let completion: Value = response.json().await.unwrap();
    assert_eq!(completion["object"], "text_completion");
    assert_eq!(server.counters().accepted, 2);
}

#[tokio::test]
async fn hundreds_of_concurrent_clients_are_answered_and_every_slot_is_released() {
    let server = serve(one(spec(1_000, 600_000))).await;
    let http = http();
    let calls: Vec<_> = (0..300)
        .map(|nth| {
            let body = if nth % 2 == 0 { chat("m") } else { streamed() };
            let request = http.post(url(&server, CHAT)).json(&body).send();
            tokio::spawn(async { request.await.unwrap().text().await.unwrap().len() })
        })
        .collect();
    until(async || server.in_flight(), |calls| *calls == 300).await;
    tokio::time::pause();
    for call in calls {
        assert!(call.await.unwrap() > 100);
    }
    let stats = server.stats().models["m"];
    assert_eq!((stats.counters.accepted, stats.counters.finished, stats.in_flight), (300, 300, 0));
    assert_eq!(stats.most_in_flight, 300);
}

#[tokio::test]
async fn an_address_in_use_and_a_mock_without_models_are_errors() {
    let server = serve(one(spec(1, 1))).await;
    let error = MockServer::serve(one(spec(1, 1)), server.address()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {}: ", server.address())), "{error}");
    let empty = MockServer::serve(MockConfig::default(), (Ipv4Addr::LOCALHOST, 0).into()).await;
    assert!(matches!(empty, Err(MockError::NoModel)));
}
