//! Tests of columns of kind `score`, by which a chat model scores rows: whole runs of the program.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::{Scratch, serve};

/// Starts a chat server that answers each request body with the text that `answer` returns. Returns its base
/// URL and the requests.
fn chat(answer: impl Fn(&Value) -> String + Clone + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<Value>>>) {
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let route = post(move |Json(body): Json<Value>| async move {
        let text = answer(&body);
        seen.lock().unwrap().push(body);
        let choice = json!({ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
        Json(json!({ "choices": [choice], "usage": { "prompt_tokens": 40, "completion_tokens": 60 } }))
    });
    (serve(Router::new().route("/v1/chat/completions", route)) + "/v1", requests)
}

/// A pipeline that scores the notes of `data.csv`, with more keys of the column in `keys`.
fn pipeline(base_url: &str, keys: &str) -> String {
    format!(
        r#"
[seed]
path = "data.csv"

[[models]]
name = "m"
provider = "acme"
base_url = "{base_url}"
max_parallel = 4

[[columns]]
name = "grade"
kind = "score"
model = "m"
prompt = "A note: {{{{ note }}}}"
{keys}

[columns.criteria.tone]
description = "How does it sound?"
options = {{ formal = "as in a letter", plain = "as in a log" }}

[columns.criteria.length]
description = "Is it short?"
options = {{ 5 = "it is short", 1 = "it is long" }}

[run]
shutdown_rate = "never"
"#
    )
}

/// Returns an answer with these scores.
fn scores(tone: &str, length: &Value) -> String {
    let score = |score: Value| json!({ "score": score, "reasoning": "So it seems." });
    json!({ "tone": score(tone.into()), "length": score(length.clone()) }).to_string()
}

/// Returns whether a request is about this row, as opposed to a longer number that begins like it.
fn is_about(body: &Value, row: u32) -> bool {
    body["messages"].to_string().contains(&format!("entry {row} "))
}

#[test]
fn scores_are_checked_asked_for_again_and_usable_in_conditions_templates_and_the_output() {
    let scratch = Scratch::new(6);
    let (server, requests) = chat(|body| match () {
        // Outside of its scale at first.
        () if is_about(body, 2) && !body.to_string().contains("That does not fit") => scores("plain", &json!(3)),
        () if is_about(body, 2) => format!("```json\n{}\n```", scores("plain", &json!(5))),
        // A label instead of a number, always.
        () if is_about(body, 3) => scores("plain", &json!("5")),
        () if is_about(body, 4) => scores("plain", &json!(1)),
        () => scores("formal", &json!(5)),
    });
    let more = "accept_if = \"grade.length.score == 5\"\nsystem = \"Be strict.\"\nschema_retries = 1\n";
    let text = pipeline(&server, more)
        + "[[columns]]\nname = \"sum\"\nkind = \"expression\"\noutput = \"number\"\n\
           template = \"{{ grade.length.score + 1 }}\"\n\
           [output]\ncolumns = [{ name = \"tone\", from = \"grade.tone.score\" }, { name = \"sum\" }, \
           { name = \"why\", from = \"grade.tone.reasoning\" }]\n";
    scratch.run_pipeline(&text).assert(6, &["malformed_answer", "/length/score", "rejected by grade"]);
    let rows = scratch.rows("out");
    assert_eq!(rows.iter().map(|row| row["row"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 5]);
    assert_eq!(rows[2], json!({ "row": 2, "tone": "plain", "sum": 6, "why": "So it seems." }));
    assert_eq!(rows[0]["tone"], "formal");
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 8, "two rows are asked for twice");
    let request = requests.iter().find(|body| is_about(body, 0)).unwrap();
    assert_eq!(request["messages"][0], json!({ "role": "system", "content": "Be strict." }));
    let prompt = request["messages"][1]["content"].as_str().unwrap();
    assert!(prompt.starts_with("A note: entry 0 of the breakwater log\n\nScore this by each"), "{prompt}");
    assert!(prompt.ends_with("length: Is it short?\n- 1: it is long\n- 5: it is short"), "{prompt}");
    let schema = &request["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["properties"]["length"]["properties"]["score"], json!({ "type": "integer", "enum": [1, 5] }));
}

#[test]
fn a_misspelt_criterion_or_field_is_found_before_the_run() {
    let scratch = Scratch::new(1);
    for (condition, place, hint) in [
        ("grade.lenght.score > 1", "lenght", "did you mean `length`?"),
        ("grade.length.scores > 1", "scores", "did you mean `score`?"),
    ] {
        let text = pipeline("http://127.0.0.1:9/v1", &format!("accept_if = \"{condition}\""));
        scratch.run_pipeline(&text).assert(2, &["pipeline.toml:", place, hint]);
    }
}

#[test]
fn without_a_response_format_the_prompt_has_the_schema_after_the_criteria() {
    let scratch = Scratch::new(1);
    let (server, requests) = chat(|_| scores("plain", &json!(5)));
    scratch.run_pipeline(&pipeline(&server, "json_mode = \"prompt\"")).assert(0, &["rows out         1"]);
    let requests = requests.lock().unwrap();
    let prompt = requests[0]["messages"][0]["content"].as_str().unwrap();
    let place = |part: &str| prompt.find(part).unwrap_or_else(|| panic!("{part}: {prompt}"));
    assert!(place("it is short") < place("fits this JSON Schema"));
    assert_eq!(requests[0]["response_format"], Value::Null);
}

#[test]
fn columns_of_kind_model_and_reasoning_read_a_score() {
    let scratch = Scratch::new(2);
    let (server, _) = chat(|_| format!("<think>Hm.</think>{}", scores("plain", &json!(5))));
    let more = "[[columns]]\nname = \"by\"\nkind = \"model\"\nof = \"grade\"\n\
                [[columns]]\nname = \"thoughts\"\nkind = \"reasoning\"\nof = \"grade\"\n";
    scratch.run_pipeline(&(pipeline(&server, "") + more)).assert(0, &[]);
    assert!(scratch.rows("out").iter().all(|row| row["by"] == "acme/m" && row["thoughts"] == "Hm."));
}

#[test]
fn the_example_of_the_reference_scores_rows_of_the_mock() {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find("### Kind `score`").unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let model = "[[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 8\nmock = {}\n";
    let scratch = Scratch::new(40);
    scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{model}{example}"));
    scratch.run(&["p.toml", "--dry-run"]).assert(0, &["grade", "score", "`grade` accepts or rejects rows"]);
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &["rejected by grade"]);
    let rows = scratch.rows("out");
    assert!(!rows.is_empty() && rows.len() < 40);
    assert!(rows.iter().all(|row| row["accuracy"].as_u64() >= Some(3) && row["why"].is_string()), "{rows:?}");
}
