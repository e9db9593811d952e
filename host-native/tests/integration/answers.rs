//! Tests of answers that are not what was asked for: whole runs of the program against local servers that
//! answer in the shapes of providers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Scratch, serve};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Returns a completion with this choice, and a usage of 100 input and 10 output tokens.
fn completion(choice: &Value) -> Response {
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 });
    Json(json!({ "choices": [choice], "usage": usage })).into_response()
}

/// Returns a completion with this message, which ended by itself.
fn message(message: &Value) -> Response {
    completion(&json!({ "index": 0, "message": message, "finish_reason": "stop" }))
}

/// Starts a chat server that answers each request body with `answer`. Returns its base URL and the number of
/// its calls.
fn chat(answer: impl Fn(&Value) -> Response + Clone + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let route = post(move |Json(body): Json<Value>| async move {
        seen.fetch_add(1, Ordering::SeqCst);
        answer(&body)
    });
    (serve(Router::new().route("/v1/chat/completions", route)) + "/v1", calls)
}

/// Returns a pipeline over `data.csv` with a chat model `m` at `base_url` and a column `a` with these keys.
fn pipeline(base_url: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 4\nretries = 1\nshutdown_rate = \"never\"\n\
         [[models]]\nname = \"m\"\nprovider = \"remote\"\nbase_url = \"{base_url}\"\nmax_parallel = 4\n\
         price = {{ input_per_million = 1000, output_per_million = 2000 }}\n\
         [[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n{keys}"
    )
}

/// Answers with as many of five words as the limit of the request allows, in `limit_key`.
fn five_words(limit_key: &'static str) -> impl Fn(&Value) -> Response + Clone {
    move |body| {
        let limit = body[limit_key].as_u64().unwrap_or(3) as usize;
        let words = ["The", "pier", "is", "closed", "today"];
        let reason = if limit < words.len() { "length" } else { "stop" };
        let text = words[..limit.min(words.len())].join(" ");
        completion(&json!({ "message": { "content": text }, "finish_reason": reason }))
    }
}

#[test]
fn an_empty_answer_is_asked_for_again_if_the_column_has_a_schema_and_else_drops_its_row() {
    for (keys, rows) in [("output = \"number\"\nschema_retries = 1\n", 1), ("", 0)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let (base_url, _) = chat(move |_| {
            let text = if asked.fetch_add(1, Ordering::SeqCst) == 0 { "" } else { "7" };
            message(&json!({ "content": text }))
        });
        let scratch = Scratch::new(1);
        let ended = scratch.run_pipeline(&pipeline(&base_url, keys));
        assert_eq!(scratch.rows("out").len(), rows, "{}", ended.all());
        assert!(scratch.dropped("out").iter().all(|line| line["reason"] == "malformed_answer"));
    }
}

#[test]
fn a_truncated_answer_is_dropped_with_the_limit_and_costs_what_it_used() {
    let scratch = Scratch::new(3);
    let (server, calls) = chat(five_words("max_tokens"));
    let ended = scratch.run_pipeline(&pipeline(&server, "max_tokens = 2"));
    ended.assert(4, &["truncated_answer", "for example row 0: the answer was cut off at 2 tokens", "0.3600"]);
    assert_eq!(calls.load(Ordering::SeqCst), 3, "it is not retried without a larger limit");
    let unlimited = Scratch::new(1);
    let ended = unlimited.run_pipeline(&pipeline(&server, ""));
    ended.assert(4, &["the answer was cut off at the token limit of the provider"]);
}

#[test]
fn a_truncated_answer_is_asked_for_once_more_with_the_larger_limit() {
    for (key, keys) in [
        ("max_tokens", "max_tokens = 2\nretry_max_tokens = 9"),
        ("max_tokens", "retry_max_tokens = 9"),
        ("max_tokens", "max_tokens = \"{{ 2 }}\"\nretry_max_tokens = 9"),
        ("max_completion_tokens", "extra = { max_completion_tokens = 2 }\nretry_max_tokens = 9"),
    ] {
        let scratch = Scratch::new(2);
        let (server, calls) = chat(five_words(key));
        scratch.run_pipeline(&pipeline(&server, keys)).assert(0, &["rows out         2"]);
        assert_eq!(scratch.rows("out")[1]["a"], "The pier is closed today", "{keys}");
        assert_eq!(calls.load(Ordering::SeqCst), 4, "{keys}");
    }
    let scratch = Scratch::new(2);
    let (server, calls) = chat(five_words("max_completion_tokens"));
    let named = "provider = \"remote\"\nextra_body = { max_completion_tokens = 2 }";
    let pipeline_of_model = pipeline(&server, "retry_max_tokens = 9").replacen("provider = \"remote\"", named, 1);
    scratch.run_pipeline(&pipeline_of_model).assert(0, &["rows out         2"]);
    assert_eq!(scratch.rows("out")[1]["a"], "The pier is closed today");
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    let scratch = Scratch::new(1);
    let (server, calls) = chat(five_words("max_tokens"));
    let ended = scratch.run_pipeline(&pipeline(&server, "max_tokens = 2\nretry_max_tokens = 4"));
    ended.assert(4, &["the answer was cut off at 4 tokens"]);
    assert_eq!(calls.load(Ordering::SeqCst), 2, "once");
}

#[test]
fn a_truncated_answer_can_be_kept() {
    let scratch = Scratch::new(1);
    let (server, _) = chat(five_words("max_tokens"));
    scratch.run_pipeline(&pipeline(&server, "max_tokens = 2\nkeep_truncated = true")).assert(0, &[]);
    assert_eq!(scratch.rows("out")[0]["a"], "The pier");
}

#[test]
fn a_filtered_answer_and_a_refused_one_are_dropped_for_their_own_reasons_without_a_retry() {
    let azure = json!({ "error": { "message": "The response was filtered due to the prompt.", "type": null,
        "param": "prompt", "code": "content_filter", "status": 400,
        "innererror": { "code": "ResponsibleAIPolicyViolation" } } });
    let scratch = Scratch::new(4);
    let (server, calls) = chat(move |body| {
        let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
        match () {
            () if prompt.contains("entry 0 ") => {
                completion(&json!({ "message": { "content": "The" }, "finish_reason": "content_filter" }))
            }
            () if prompt.contains("entry 1 ") => (StatusCode::BAD_REQUEST, Json(azure.clone())).into_response(),
            () if prompt.contains("entry 2 ") => message(&json!({ "content": null, "refusal": "I will not." })),
            () => message(&json!({ "content": "fine", "refusal": null })),
        }
    });
    let ended = scratch.run_pipeline(&pipeline(&server, ""));
    let filtered = "for example row 0: a content filter withheld the answer";
    ended.assert(6, &["content_filtered", filtered, "for example row 2: the model refused to answer: I will not."]);
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    assert_eq!(scratch.rows("out").len(), 1);
    let reasons: Vec<Value> = scratch.dropped("out").iter().map(|line| line["reason"].clone()).collect();
    assert_eq!(reasons, ["content_filtered", "content_filtered", "refused"]);
    let detail = scratch.dropped("out")[1]["detail"].to_string();
    assert!(detail.contains("a content filter rejected the request (HTTP 400): The response was filtered"), "{detail}");
}

#[test]
fn an_answer_that_the_provider_broke_off_is_retried() {
    let scratch = Scratch::new(2);
    let calls = AtomicUsize::new(0);
    let calls = Arc::new(calls);
    let (server, _) = chat(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => completion(&json!({ "message": { "content": "The" }, "finish_reason": "insufficient_system_resource" })),
        _ => message(&json!({ "content": "fine" })),
    });
    scratch.run_pipeline(&pipeline(&server, "")).assert(0, &[]);
    assert!(scratch.rows("out").iter().all(|row| row["a"] == "fine"));
}

#[test]
fn reasoning_is_kept_in_its_column_and_is_no_part_of_the_answer() {
    let scratch = Scratch::new(4);
    let (server, _) = chat(|body| {
        let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
        match () {
            () if prompt.contains("entry 0 ") => message(&json!({ "content": "Yes.", "reasoning_content": "See 0." })),
            () if prompt.contains("entry 1 ") => message(&json!({ "content": "<think>\nSee 1.\n</think>\n\nYes." })),
            () => message(&json!({ "content": "Yes.", "reasoning": null })),
        }
    });
    let columns = "when = \"row < 3\"\notherwise = \"-\"\n\
                   [[columns]]\nname = \"why\"\nkind = \"reasoning\"\nof = \"a\"\n\
                   [[columns]]\nname = \"skipped\"\nkind = \"reasoning\"\nof = \"a\"\nskip_with_upstream = true\n\
                   otherwise = \"none\"\n\
                   [[columns]]\nname = \"all\"\nkind = \"expression\"\ntemplate = \"{{ a }} {{ why or 0 }}\"\n";
    scratch.run_pipeline(&pipeline(&server, columns)).assert(0, &["rows out         4"]);
    let rows = scratch.rows("out");
    let column = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("a"), ["Yes.", "Yes.", "Yes.", "-"]);
    assert_eq!(column("why"), [json!("See 0."), json!("See 1."), Value::Null, Value::Null]);
    assert_eq!(column("skipped"), [json!("See 0."), json!("See 1."), Value::Null, json!("none")]);
    assert_eq!(column("all"), ["Yes. See 0.", "Yes. See 1.", "Yes. 0", "- 0"]);
    let wrong = pipeline(&server, "[[columns]]\nname = \"why\"\nkind = \"reasoning\"\nof = \"note\"\n");
    scratch.run_pipeline(&wrong).assert(2, &["`of` in [[columns]] names `note`", "expected one of: a"]);
}

#[test]
fn the_reasoning_of_a_row_group_is_kept_in_all_its_rows() {
    let scratch = Scratch::new(3);
    let (server, _) = chat(|_| message(&json!({ "content": "Yes.", "reasoning": "See all." })));
    let file = pipeline(&server, "strategy = \"full_column\"").replace("{{ note }}", "{{ rows | length }}");
    let column = "[[columns]]\nname = \"why\"\nkind = \"reasoning\"\nof = \"a\"\nstrategy = \"full_column\"\n";
    scratch.run_pipeline(&format!("{file}\n{column}")).assert(0, &[]);
    assert!(scratch.rows("out").iter().all(|row| row["a"] == "Yes." && row["why"] == "See all."));
}

#[test]
fn each_shape_of_the_mock_is_understood() {
    for (shape, reason) in [
        ("truncated", "truncated_answer"),
        ("content_filter", "content_filtered"),
        ("prompt_filter", "content_filtered"),
        ("refusal", "refused"),
        ("open_think_block", "truncated_answer"),
    ] {
        let scratch = Scratch::new(3);
        let ended = scratch.run_pipeline(&mock(shape, ""));
        ended.assert(4, &[reason, "no row could be finished"]);
        assert!(scratch.dropped("out").iter().all(|line| line["reason"] == reason), "{shape}");
    }
    let thinking = "[[columns]]\nname = \"why\"\nkind = \"reasoning\"\nof = \"a\"\n";
    for shape in ["reasoning_content", "reasoning", "think_block"] {
        let scratch = Scratch::new(2);
        scratch.run_pipeline(&mock(shape, thinking)).assert(0, &[]);
        for row in scratch.rows("out") {
            assert!(row["why"].as_str().unwrap().starts_with("The prompt asks"), "{row}");
            assert!(!row["a"].as_str().unwrap().contains("The prompt asks"), "{row}");
        }
    }
    let schema = "schema = { type = \"object\", required = [\"n\"], properties = { n = { type = \"integer\" } } }\n\
                  schema_retries = 0\n";
    for shape in ["fenced_json", "json_in_prose"] {
        let scratch = Scratch::new(2);
        scratch.run_pipeline(&mock(shape, schema)).assert(0, &[]);
        assert!(scratch.rows("out").iter().all(|row| row["a"]["n"].is_i64()), "{shape}");
    }
}

/// Returns a pipeline over `data.csv` with a mock that gives all its answers this shape.
fn mock(shape: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nshutdown_rate = \"never\"\n\
         [[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 4\n\
         mock = {{ answers = {{ {shape} = 1.0 }}, latency = {{ law = \"constant\", latency_ms = 1 }} }}\n\
         [[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n{keys}"
    )
}

#[test]
fn the_verdicts_example_drops_only_what_is_refused_or_filtered() {
    let scratch = Scratch::new(0);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/example/harbour_verdicts.toml");
    scratch.run(&["run", example, "--dry-run"]).assert(0, &["thoughts", "reasoning"]);
    let ended = scratch.run(&["run", example, "--out", "out"]);
    ended.assert(6, &["refused", "content_filtered"]);
    let reasons = scratch.dropped("out").into_iter().map(|line| line["reason"].as_str().unwrap().to_string());
    assert_eq!(reasons.collect::<BTreeSet<_>>(), ["content_filtered", "refused"].map(String::from).into());
    let rows = scratch.rows("out");
    assert!(
        rows.iter().all(|row| row["verdict"]["urgent"].is_boolean() && row["sentence"].as_str().unwrap().len() > 16)
    );
    assert!(rows.iter().any(|row| row["thoughts"].is_string()) && rows.iter().any(|row| row["thoughts"].is_null()));
}

#[test]
fn extra_headers_parameters_and_keys_are_sent_and_secrets_among_them_are_shown_nowhere() {
    let mut scratch = Scratch::new(1);
    scratch.env("TIDEGATE_TEST_AZURE_KEY", "tide-very-secret");
    let answer = |headers: HeaderMap, uri: Uri, Json(body): Json<Value>| async move {
        assert_eq!(headers["api-key"], "tide-very-secret");
        assert!(!headers.contains_key("authorization"));
        assert_eq!(uri.query(), Some("api-version=2024-10-21&sig=tide-very-secret"));
        let content =
            json!({ "team": headers["x-team"].to_str().unwrap(), "effort": body["effort"], "k": body["top_k"] });
        if body["messages"][0]["content"] == "fail" {
            let message = format!("bad key {}", headers["api-key"].to_str().unwrap());
            return (StatusCode::BAD_REQUEST, Json(json!({ "error": { "message": message } }))).into_response();
        }
        message(&json!({ "content": content.to_string() }))
    };
    let server = serve(Router::new().route("/openai/deployments/d/chat/completions", post(answer)));
    let extras = "extra_headers = { X-Team = \"harbour\", api-key = { env = \"TIDEGATE_TEST_AZURE_KEY\" } }\n\
                  query = { api-version = \"2024-10-21\", sig = { env = \"TIDEGATE_TEST_AZURE_KEY\" } }\n\
                  extra_body = { effort = \"low\", top_k = 9 }\nprice =";
    let file = pipeline(&format!("{server}/openai/deployments/d"), "output = \"json\"\nextra = { top_k = 3 }");
    let file = file.replace("price =", extras);
    scratch.run_pipeline(&file).assert(0, &[]);
    assert_eq!(scratch.rows("out")[0]["a"], json!({ "team": "harbour", "effort": "low", "k": 3 }));
    for arguments in [&["run", "pipeline.toml", "--out", "b", "--plan"][..], &["run", "pipeline.toml", "--dry-run"]] {
        let planned = scratch.run(arguments);
        let header = "header x-team: harbour, header api-key: (from TIDEGATE_TEST_AZURE_KEY)";
        planned.assert(0, &["requests to `m` have also: ", header, "query api-version=2024-10-21, query sig=(from"]);
        assert!(!planned.all().contains("tide-very-secret"), "{}", planned.all());
    }
    scratch.write("pipeline.toml", &file.replace("{{ note }}", "fail"));
    let refused = scratch.run(&["run", "pipeline.toml", "--out", "c"]);
    refused.assert(4, &["the request was refused (HTTP 400): bad key [key]"]);
    let unset = Scratch::new(1);
    unset.run_pipeline(&file).assert(2, &["the environment variable `TIDEGATE_TEST_AZURE_KEY`, which is not set"]);
}
