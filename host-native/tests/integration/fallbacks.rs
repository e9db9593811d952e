//! Tests of columns with several models: which one answers, and where that is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::{Scratch, serve};

/// Starts a server that answers a chat request for each model with `answer`, and returns its base URL.
fn chat(answer: impl Fn(&str, &Value) -> Response + Clone + Send + Sync + 'static) -> String {
    let route = post(move |Json(body): Json<Value>| async move { answer(body["model"].as_str().unwrap(), &body) });
    serve(Router::new().route("/v1/chat/completions", route)) + "/v1"
}

fn completion(message: &Value) -> Response {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
    Json(json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage })).into_response()
}

/// A pipeline whose column `title` asks `large` of one provider, else `small` of another one at `base_url`.
fn pipeline(base_url: &str, column: &str, run: &str) -> String {
    let model = |name: &str, provider: &str, price: u32| {
        format!(
            "[[models]]\nname = \"{name}\"\nprovider = \"{provider}\"\nbase_url = \"{base_url}\"\nmax_parallel = 4\n\
             cooldown = \"20ms\"\nprice = {{ input_per_million = {price} }}\n"
        )
    };
    format!(
        "[seed]\npath = \"data.csv\"\n{}{}[run]\nrow_group_size = 4\n{run}\n\
         [[columns]]\nname = \"title\"\nmodels = [\"large\", \"small\"]\nprompt = \"A title for: {{{{ note }}}}\"\n{column}\n\
         [[columns]]\nname = \"by\"\nkind = \"model\"\nof = \"title\"\n",
        model("large", "first", 1000),
        model("small", "second", 100),
    )
}

fn answered_by(scratch: &Scratch) -> Vec<String> {
    scratch.rows("out").iter().map(|row| row["by"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_model_that_cannot_be_used_is_replaced_by_the_next_in_rows_report_and_events() {
    let scratch = Scratch::new(8);
    let server = chat(|model, _| match model {
        "large" => (StatusCode::UNAUTHORIZED, "no such key").into_response(),
        _ => completion(&json!({ "content": "Fog" })),
    });
    scratch.write("p.toml", &pipeline(&server, "", ""));
    scratch.run(&["p.toml", "--dry-run"]).assert(0, &["large, else small"]);
    let arguments = ["p.toml", "--out", "out", "--events", "events.jsonl", "--report", "run.html"];
    scratch.run(&arguments).assert(
        0,
        &[
            "large, else small",
            "answers of title: 0 by first/large, 8 by second/small",
            "warning: `title` is answered by second/small where it falls back",
            "rows out         8",
        ],
    );
    assert_eq!(answered_by(&scratch), ["second/small"; 8]);
    let page = std::fs::read_to_string(scratch.path("run.html")).unwrap();
    assert!(page.contains("answers of title: 0 by first/large, 8 by second/small"), "{page}");
    scratch.run(&["timeline", "events.jsonl", "--row", "7", "--column", "title"]).assert(0, &["calls second/small"]);
}

#[test]
fn calls_change_over_while_a_provider_is_down() {
    let scratch = Scratch::new(12);
    let server = chat(|model, _| match model {
        "large" => (StatusCode::BAD_GATEWAY, "not now").into_response(),
        _ => completion(&json!({ "content": "Fog" })),
    });
    scratch.write("p.toml", &pipeline(&server, "", ""));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["0 by first/large, 12 by second/small"]);
    assert_eq!(answered_by(&scratch), ["second/small"; 12]);
}

#[test]
fn a_run_stops_if_no_model_can_be_used() {
    let scratch = Scratch::new(4);
    let server = chat(|_, _| (StatusCode::UNAUTHORIZED, "no such key").into_response());
    scratch.write("p.toml", &pipeline(&server, "", ""));
    scratch
        .run(&["p.toml", "--out", "out"])
        .assert(4, &["first/large cannot be used", "second/small cannot be used", "--resume"]);
}

#[test]
fn after_a_failure_that_is_listed_the_next_model_is_asked_for_the_same_row() {
    let scratch = Scratch::new(6);
    let server = chat(|model, body| {
        let is_second = body.to_string().contains("entry 1 ");
        match (model, body.to_string().contains("entry 3 ")) {
            ("large" | "small", true) => completion(&json!({ "content": null, "refusal": "I would rather not." })),
            ("large", false) if is_second => completion(&json!({ "content": null, "refusal": "No." })),
            _ => completion(&json!({ "content": "Fog" })),
        }
    });
    scratch.write("p.toml", &pipeline(&server, "fallback_on = [\"refused\"]", "shutdown_rate = \"never\""));
    scratch
        .run(&["p.toml", "--out", "out"])
        .assert(6, &["answers of title: 4 by first/large, 1 by second/small", "I would rather not."]);
    let rows = scratch.rows("out");
    let by: Vec<_> = rows.iter().map(|row| (row["row"].as_u64().unwrap(), row["by"].as_str().unwrap())).collect();
    assert_eq!(
        by,
        [(0, "first/large"), (1, "second/small"), (2, "first/large"), (4, "first/large"), (5, "first/large")]
    );
    // The price of each call is that of its model: 6 calls of 10 tokens, and 2.
    let cost = scratch.manifest("out")["totals"]["spent"].as_str().unwrap().parse::<f64>().unwrap();
    assert!((cost - (6.0 * 0.01 + 2.0 * 0.001)).abs() < 1e-9, "{cost}");
}

/// The pipeline with an answer of up to `large` tokens of the first model and up to `small` of the second
/// one, each of which costs a thousandth.
fn limited(base_url: &str, column: &str, [large, small]: [u32; 2]) -> String {
    let limit = |limit| format!("output_per_million = 1000 }}\nextra_body = {{ max_completion_tokens = {limit} }}\n");
    pipeline(base_url, column, "shutdown_rate = \"never\"")
        .replace("input_per_million = 1000 }\n", &format!("input_per_million = 1000, {}", limit(large)))
        .replace("input_per_million = 100 }\n", &format!("input_per_million = 100, {}", limit(small)))
}

#[test]
fn the_cost_limit_reserves_what_the_model_that_is_called_may_answer() {
    for (limits, code, part) in [
        ([10, 1_000], 8, "the next call might pass the cost limit of 0.5000 USD"),
        ([100, 10], 0, "answers of title: 0 by first/large, 1 by second/small"),
    ] {
        let scratch = Scratch::new(1);
        let server = chat(|model, _| match model {
            "large" => (StatusCode::UNAUTHORIZED, "no such key").into_response(),
            _ => completion(&json!({ "content": "Fog" })),
        });
        scratch.write("p.toml", &limited(&server, "", limits));
        let ended = scratch.run(&["p.toml", "--out", "out", "--max-cost", "0.5"]);
        ended.assert(code, &[part]);
        // The call of the first one was rejected, and costs nothing.
        assert_eq!(ended.all().contains("rows out         1"), code == 0, "{}", ended.all());
    }
}

#[test]
fn token_budgets_reserve_what_the_model_that_is_called_may_answer() {
    let scratch = Scratch::new(2);
    // Answers of `small` wait until both calls are in flight. If a call reserved the 9000 tokens of `large`,
    // it would overdraw the budget of `small`, and the other call would wait for its end.
    let (both, met) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&met);
    let answer = move |Json(body): Json<Value>| {
        let (both, met) = (Arc::clone(&both), Arc::clone(&counted));
        async move {
            if body["model"] == "large" {
                return (StatusCode::UNAUTHORIZED, "no such key").into_response();
            }
            if tokio::time::timeout(Duration::from_secs(10), both.wait()).await.is_ok() {
                met.fetch_add(1, Ordering::SeqCst);
            }
            completion(&json!({ "content": "Fog" }))
        }
    };
    let server = serve(Router::new().route("/v1/chat/completions", post(answer))) + "/v1";
    let budget = "name = \"small\"\nbudgets = { tokens_per_minute = 400 }\n";
    scratch.write("p.toml", &limited(&server, "", [9_000, 10]).replacen("name = \"small\"\n", budget, 1));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["answers of title: 0 by first/large, 2 by second/small"]);
    assert_eq!(met.load(Ordering::SeqCst), 2);
}

#[test]
fn calls_change_over_once_a_model_has_only_limited_for_fallback_after() {
    let scratch = Scratch::new(8);
    let refused = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&refused);
    let server = chat(move |model, _| match model {
        "large" => {
            counted.fetch_add(1, Ordering::SeqCst);
            (StatusCode::TOO_MANY_REQUESTS, "slow down").into_response()
        }
        _ => completion(&json!({ "content": "Fog" })),
    });
    scratch.write("p.toml", &pipeline(&server, "", "fallback_after = \"100ms\""));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["answers of title: 0 by first/large, 8 by second/small"]);
    assert_eq!(answered_by(&scratch), ["second/small"; 8]);
    // About 6 calls are refused in this time. By default, they change over after 30 s and hundreds of calls.
    let refused = refused.load(Ordering::SeqCst);
    assert!((1..100).contains(&refused), "{refused}");
}

#[test]
fn a_truncated_answer_of_another_model_is_asked_for_again_with_more_than_its_own_limit() {
    let refusing = |limit: u32| {
        chat(move |model, body| match model {
            "large" => completion(&json!({ "content": null, "refusal": "No." })),
            _ if body["max_completion_tokens"] == limit => completion(&json!({ "content": "Fog" })),
            _ => {
                let choice = json!({ "message": { "content": "Fo" }, "finish_reason": "length" });
                Json(json!({ "choices": [choice] })).into_response()
            }
        })
    };
    let keys = "fallback_on = [\"refused\"]\nretry_max_tokens = 50";
    let scratch = Scratch::new(2);
    scratch.write("p.toml", &limited(&refusing(50), keys, [9_000, 2]));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["answers of title: 0 by first/large, 2 by second/small"]);
    // The limit of the message is that of the model, too.
    scratch.write("p.toml", &limited(&refusing(0), keys, [2, 9_000]));
    scratch
        .run(&["p.toml", "--out", "other"])
        .assert(4, &["title: truncated_answer", "the answer was cut off at 9000 tokens"]);
}

#[test]
fn models_that_make_no_sense_are_rejected_at_their_place() {
    let scratch = Scratch::new(2);
    let whole = pipeline("http://127.0.0.1:9/v1", "", "");
    for (from, to, part) in [
        ("models = [\"large\", \"small\"]", "models = []", "at least one model"),
        ("models = [\"large\", \"small\"]", "models = [\"large\", \"smal\"]", "did you mean `small`?"),
        ("models = [\"large\", \"small\"]", "models = [\"large\", \"large\"]", "another provider or model id"),
        (
            "models = [\"large\", \"small\"]",
            "models = [\"large\"]\nmodel = \"small\"",
            "`model` in [[columns]] is given beside",
        ),
        (
            "models = [\"large\", \"small\"]",
            "model = \"large\"\nfallback_on = [\"refused\"]",
            "has no effect with one model",
        ),
        ("models = [\"large\", \"small\"]", "models = [\"large\", \"small\"]\nfallback_on = [\"refusal\"]", "refused"),
        ("of = \"title\"", "of = \"titel\"", "did you mean `title`?"),
        ("[run]", "[run]\nfallback_after = \"soon\"", "a duration such as"),
    ] {
        scratch.write("p.toml", &whole.replace(from, to));
        scratch.run(&["p.toml", "--out", "out"]).assert(2, &["p.toml:", part]);
    }
}

#[test]
fn the_example_of_the_reference_is_answered_by_the_first_model() {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find("#### Several models").unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scratch = Scratch::new(3);
    let server = chat(|model, _| match model {
        "large" => (StatusCode::NOT_FOUND, Json(json!({ "error": { "code": "model_not_found" } }))).into_response(),
        _ => completion(&json!({ "content": "Fog" })),
    });
    let local = example.replace("https://api.acme.test/v1", &server).replace("https://api.other.test/v1", &server);
    let local: Vec<&str> = local.lines().filter(|line| !line.starts_with("api_key_env")).collect();
    scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{}", local.join("\n")));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["answers of title: 0 by acme/large, 3 by other/small"]);
    assert_eq!(scratch.rows("out")[0]["answered_by"], "other/small");
}
