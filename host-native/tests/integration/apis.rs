//! Tests of models with the Messages API of Anthropic or the Responses API of OpenAI: whole runs against the
//! mock, and against answers as their documentation has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{MockConfig, MockKey, MockServer};

use crate::support::{Scratch, serve};

/// Starts a server that answers requests for messages with `answer`, and returns its base URL.
fn messages(answer: impl Fn(&HeaderMap, &Value) -> Response + Clone + Send + Sync + 'static) -> String {
    let route = post(move |headers: HeaderMap, Json(body): Json<Value>| async move { answer(&headers, &body) });
    serve(Router::new().route("/v1/messages", route)) + "/v1"
}

fn pipeline(base_url: &str, rest: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 4\n\
         [[models]]\nname = \"claude\"\nprovider = \"anthropic\"\napi = \"anthropic\"\nbase_url = \"{base_url}\"\n\
         api_key_env = \"CLAUDE_KEY\"\nmax_parallel = 4\ncooldown = \"20ms\"\n\
         price = {{ input_per_million = 1000, output_per_million = 2000 }}\n{rest}"
    )
}

const TITLE: &str =
    "[[columns]]\nname = \"title\"\nmodel = \"claude\"\nsystem = \"Be brief.\"\nprompt = \"A title for: {{ note }}\"\n";

const GRADE: &str = "[[columns]]\nname = \"grade\"\nmodel = \"claude\"\nprompt = \"{{ note }}\"\n\
    schema = { type = \"object\", required = [\"score\"], properties = { score = { type = \"integer\" } } }\n";

/// An answer as the API sends it.
fn message(content: &Value, stop_reason: &str) -> Response {
    let usage = json!({
        "input_tokens": 30, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 20, "output_tokens": 10,
        "service_tier": "standard",
    });
    let body = json!({
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": "claude",
        "content": content, "stop_reason": stop_reason, "stop_sequence": null, "usage": usage,
    });
    let headers = [
        ("anthropic-ratelimit-requests-limit", "4000"),
        ("anthropic-ratelimit-requests-remaining", "3999"),
        ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:01Z"),
        ("request-id", "req_018EeWyXxfu5pfWkrYcMdjWG"),
    ];
    (headers, Json(body)).into_response()
}

fn error(status: u16, kind: &str, message: &str) -> Response {
    let body = json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_01" });
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

#[test]
fn texts_and_structured_answers_come_from_the_messages_api() {
    let mut scratch = Scratch::new(4);
    scratch.env("CLAUDE_KEY", "sk-ant-secret");
    let server = messages(|headers, body| {
        assert_eq!(headers["x-api-key"], "sk-ant-secret");
        assert_eq!(headers["anthropic-version"], "2023-06-01");
        assert!(headers.get("authorization").is_none());
        if body.get("tools").is_none() {
            assert_eq!((&body["system"], &body["max_tokens"]), (&json!("Be brief."), &json!(4096)));
            assert_eq!(body["messages"].as_array().unwrap().len(), 1);
            return message(&json!([{ "type": "text", "text": "Fog" }]), "end_turn");
        }
        assert_eq!(body["tool_choice"], json!({ "type": "tool", "name": "grade" }));
        assert_eq!(body["tools"][0]["input_schema"]["required"], json!(["score"]));
        let input = json!({ "score": 4 });
        message(&json!([{ "type": "tool_use", "id": "toolu_01", "name": "grade", "input": input }]), "tool_use")
    });
    let ended = scratch.run_pipeline(&pipeline(&server, &format!("{TITLE}{GRADE}")));
    ended.assert(0, &["rows out         4"]);
    assert!(!ended.all().contains("sk-ant-secret"));
    let rows = scratch.rows("out");
    assert_eq!((&rows[3]["title"], &rows[3]["grade"]), (&json!("Fog"), &json!({ "score": 4 })));
    // Tokens that were written to the cache or read from it count as input.
    let used = &scratch.manifest("out")["totals"]["models"]["anthropic/claude"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(800), &json!(80)));
}

#[test]
fn without_a_token_limit_an_answer_is_estimated_as_that_of_any_other_api_and_cut_off_at_the_one_that_is_sent() {
    let mut scratch = Scratch::new(2);
    scratch.env("CLAUDE_KEY", "sk-ant-secret");
    let server = messages(|_, body| {
        assert_eq!(body["max_tokens"], 4096);
        message(&json!([{ "type": "text", "text": "Fo" }]), "max_tokens")
    });
    // 256 tokens of an answer cost 0.512, and 4096 would cost 8.192.
    scratch.write("p.toml", &pipeline(&server, TITLE));
    let dry = scratch.run(&["p.toml", "--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!(plan["models"][0]["output_tokens"], 2 * 256);
    let ended = scratch.run(&["p.toml", "--out", "out", "--max-cost", "2"]);
    ended.assert(4, &["title: truncated_answer", "the answer was cut off at 4096 tokens"]);
}

#[test]
fn an_overloaded_provider_is_waited_for_and_a_refusal_drops_the_row() {
    let mut scratch = Scratch::new(6);
    scratch.env("CLAUDE_KEY", "sk-ant-secret");
    let calls = Arc::new(AtomicUsize::new(0));
    let server = messages(move |_, body| match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => error(529, "overloaded_error", "Overloaded"),
        2 => error(429, "rate_limit_error", "This request would exceed your organization's rate limit"),
        _ if body.to_string().contains("entry 5 ") => message(&json!([]), "refusal"),
        _ if body.to_string().contains("entry 4 ") => message(&json!([{ "type": "text", "text": "Fo" }]), "max_tokens"),
        _ => message(&json!([{ "type": "text", "text": "Fog" }]), "end_turn"),
    });
    let text = pipeline(&server, TITLE).replace("row_group_size = 4", "row_group_size = 4\nshutdown_rate = \"never\"");
    let ended = scratch.run_pipeline(&text);
    ended.assert(6, &["title: refused", "title: truncated_answer", "rows out         4"]);
}

#[test]
fn a_rejected_key_and_an_account_without_credit_stop_the_run_and_the_key_is_not_shown() {
    for (status, kind, text, part) in [
        (401, "authentication_error", "invalid x-api-key sk-ant-secret", "check its key"),
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", "add funds"),
        (404, "not_found_error", "model: claude", "check its `model`"),
    ] {
        let mut scratch = Scratch::new(2);
        scratch.env("CLAUDE_KEY", "sk-ant-secret");
        let server = messages(move |_, _| error(status, kind, text));
        let ended = scratch.run_pipeline(&pipeline(&server, TITLE));
        ended.assert(4, &["anthropic/claude cannot be used", part]);
        assert!(!ended.all().contains("sk-ant-secret"), "{}", ended.all());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_with_a_key_serves_the_messages_api() {
    let mut scratch = Scratch::new(5);
    scratch.env("CLAUDE_KEY", "sk-ant-secret");
    let config = MockConfig {
        models: vec![("claude".to_string(), ProviderSpec::default())],
        key: Some(MockKey("sk-ant-secret".to_string())),
        ..MockConfig::default()
    };
    let mock = MockServer::serve(config, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let text = pipeline(&mock.base_url(), &format!("{TITLE}{GRADE}"));
    let run = tokio::task::spawn_blocking(move || {
        let ended = scratch.run_pipeline(&text);
        scratch.run(&["check", "pipeline.toml"]).assert(0, &["anthropic/claude", "answered in"]);
        (ended, scratch)
    });
    let (ended, scratch) = run.await.unwrap();
    ended.assert(0, &["rows out         5"]);
    assert!(scratch.rows("out").iter().all(|row| row["grade"]["score"].is_i64() && row["title"].is_string()));
    assert_eq!(mock.stats().rejected, 0, "the mock takes every request as it is");
}

/// Runs the example in a section of the reference against a mock that reasons, and returns the rows.
fn run_example(section: &str) -> Vec<Value> {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find(section).unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scratch = Scratch::new(3);
    let mock = "mock = { answers = { reasoning = 1.0 } }";
    let local: Vec<&str> = example
        .lines()
        .filter(|line| !line.starts_with("api_key_env"))
        .map(|line| match line {
            _ if line.starts_with("provider = ") => "provider = \"mock\"",
            _ if line.starts_with("base_url = ") => mock,
            other => other,
        })
        .collect();
    scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{}\n", local.join("\n")));
    scratch.run(&["p.toml", "--dry-run"]).assert(0, &["reasoning"]);
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["rows out         3"]);
    scratch.rows("out")
}

#[test]
fn the_examples_of_the_reference_run_against_the_mock() {
    let rows = run_example("### The Messages API of Anthropic");
    assert!(rows.iter().all(|row| row["tags"].is_array() && row["title"].is_string()), "{rows:?}");
    assert!(rows.iter().all(|row| row["thoughts"].is_string()), "{rows:?}");
    let rows = run_example("### The Responses API of OpenAI");
    assert!(rows.iter().all(|row| row["grade"]["score"].is_i64() && row["thoughts"].is_string()), "{rows:?}");
}

#[test]
fn the_responses_api_is_called_with_the_key_as_a_bearer_and_its_documented_answers_are_read() {
    let mut scratch = Scratch::new(6);
    scratch.env("CLAUDE_KEY", "sk-secret");
    let respond = |headers: HeaderMap, Json(body): Json<Value>| async move {
        assert_eq!(headers["authorization"], "Bearer sk-secret");
        assert_eq!((&body["store"], &body["input"][0]["role"]), (&json!(false), &json!("system")));
        let about = |row: u32| body["input"].to_string().contains(&format!("entry {row} "));
        let part = if about(4) {
            json!({ "type": "refusal", "refusal": "I'm sorry." })
        } else {
            json!({ "type": "output_text", "text": "Fog", "annotations": [] })
        };
        let (status, details) = if about(5) {
            ("incomplete", json!({ "reason": "max_output_tokens" }))
        } else {
            ("completed", Value::Null)
        };
        Json(json!({
            "id": "resp_67ccd2bed1ec8190", "object": "response", "status": status, "error": null,
            "incomplete_details": details, "output": [{ "type": "message", "content": [part] }],
            "usage": { "input_tokens": 36, "input_tokens_details": { "cached_tokens": 12 }, "output_tokens": 4, "total_tokens": 40 },
        }))
    };
    let server = serve(Router::new().route("/v1/responses", post(respond))) + "/v1";
    let text = pipeline(&server, TITLE).replace("api = \"anthropic\"", "api = \"responses\"");
    let text = text.replace("row_group_size = 4", "row_group_size = 4\nshutdown_rate = \"never\"");
    let ended = scratch.run_pipeline(&text);
    ended.assert(6, &["title: refused", "title: truncated_answer", "I'm sorry.", "rows out         4"]);
    let used = &scratch.manifest("out")["totals"]["models"]["anthropic/claude"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(216), &json!(24)));
}

#[test]
fn an_api_that_does_not_fit_is_rejected_at_its_place() {
    let scratch = Scratch::new(2);
    let whole = pipeline("http://127.0.0.1:9/v1", TITLE);
    for (from, to, part) in [
        ("api = \"anthropic\"", "api = \"antropic\"", "anthropic"),
        ("api = \"anthropic\"", "api = \"anthropic\"\ndomain = \"embedding\"", "`api` only for chat models"),
        ("model = \"claude\"", "model = \"claude\"\nseed = 4", "the API of the model `claude` has none"),
    ] {
        scratch.write("p.toml", &whole.replace(from, to));
        scratch.run(&["p.toml", "--out", "out"]).assert(2, &["p.toml:", part]);
    }
}
