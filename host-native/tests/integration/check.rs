//! Tests of `tidegate check`: one small call per model, and a report on each answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::support::{Ended, Scratch, remote_pipeline, serve};

const KEY: &str = "sk-very-secret";

/// Starts a provider that gives every call the same answer. Returns its address and its calls: method, path
/// and body.
fn serve_always(status: u16, body: Value) -> (String, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let status = StatusCode::from_u16(status).unwrap();
    let answer = move |method: Method, uri: Uri, request: String| {
        seen.lock().unwrap().push(format!("{method} {} {request}", uri.path()));
        async move { (status, axum::Json(body)).into_response() }
    };
    (serve(Router::new().fallback(answer)) + "/v1", calls)
}

fn completion() -> Value {
    json!({ "choices": [{ "message": { "role": "assistant", "content": "Hello" }, "finish_reason": "length" }] })
}

/// Runs `tidegate check` on a pipeline with one model at `url`, one column and an API key.
fn check(url: &str) -> Ended {
    let mut scratch = Scratch::new(3);
    scratch.env("TIDEGATE_TEST_KEY", KEY);
    scratch.write("p.toml", &remote_pipeline(url, "api_key_env = \"TIDEGATE_TEST_KEY\"", ""));
    let ended = scratch.run(&["check", "p.toml"]);
    assert!(!ended.all().contains("very-secret"), "{}", ended.all());
    assert!(!scratch.path("out").exists(), "nothing is written");
    ended
}

#[test]
fn a_valid_pipeline_makes_one_small_call_per_model_and_exits_0() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let answer = move |method: Method, uri: Uri, headers: HeaderMap, body: String| {
        let key = headers.get("authorization").map_or("", |key| key.to_str().unwrap());
        seen.lock().unwrap().push(format!("{method} {uri} {key} {body}"));
        async move {
            match uri.path() {
                "/v1/chat/completions" => axum::Json(completion()).into_response(),
                "/v1/embeddings" => axum::Json(json!({ "data": [{ "embedding": [0.5, 1] }] })).into_response(),
                _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            }
        }
    };
    let url = serve(Router::new().fallback(answer));
    let mut scratch = Scratch::new(3);
    scratch.env("TIDEGATE_TEST_KEY", KEY);
    let pipeline = remote_pipeline(&format!("{url}/v1"), "api_key_env = \"TIDEGATE_TEST_KEY\"", "")
        + &format!(
            "[[models]]\nname = \"e\"\nprovider = \"remote\"\nbase_url = \"{url}/v1\"\ndomain = \"embedding\"\nmax_parallel = 1\n\
             [[models]]\nname = \"j\"\nurl = \"{url}/judge?token=very-secret\"\nmax_parallel = 1\n\
             [[models]]\nname = \"k\"\ncommand = [\"sh\", \"-c\", \"touch started\"]\nmax_parallel = 1\n\
             [[models]]\nname = \"mock\"\nprovider = \"mock\"\nmax_parallel = 1\nmock = {{}}\n\
             [[models]]\nname = \"spare\"\nprovider = \"remote\"\nmodel = \"x\"\nbase_url = \"{url}/v1\"\nmax_parallel = 1\n\
             [[columns]]\nname = \"v\"\nkind = \"embedding\"\nmodel = \"e\"\ninput = \"{{{{ note }}}}\"\n\
             [[columns]]\nname = \"a\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"note\"]\n\
             [[columns]]\nname = \"b\"\nkind = \"judge\"\nmodel = \"k\"\ninputs = [\"note\"]\n\
             [[columns]]\nname = \"c\"\nmodel = \"mock\"\nprompt = \"x\"\n"
        );
    scratch.write("p.toml", &pipeline);
    let ended = scratch.run(&["check", "p.toml"]);
    let mut parts = vec!["answered in ", "TIDEGATE_TEST_KEY", "server reached in", "command found; not called"];
    parts.extend(["not called: no column uses it", "data.csv: 3 rows of 2 columns", "served in this process", " free"]);
    ended.assert(0, &parts);
    assert!(!ended.all().contains("very-secret"), "{}", ended.all());
    assert!(!scratch.path("started").exists() && !scratch.path("out").exists());
    let mut calls = calls.lock().unwrap().clone();
    calls.sort();
    assert_eq!(calls.len(), 3, "{calls:#?}");
    assert_eq!(calls[0], "GET /judge?token=very-secret  ");
    assert!(calls[1].starts_with("POST /v1/chat/completions Bearer sk-very-secret "), "{}", calls[1]);
    assert!(calls[1].contains("\"max_tokens\":1") && calls[2].starts_with("POST /v1/embeddings"), "{calls:#?}");

    let ended = scratch.run(&["check", "p.toml", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["kind"], &report["exit"], &report["models"][0]["state"]),
        (&json!("check"), &json!(0), &json!("answered"))
    );
    assert!(!ended.all().contains("very-secret"), "{}", ended.all());
}

#[test]
fn a_model_without_a_key_is_not_called_and_all_other_errors_are_reported() {
    let (url, calls) = serve_always(200, completion());
    let scratch = Scratch::new(3);
    let judge = "[[models]]\nname = \"j\"\ncommand = [\"no-such-judge\"]\nmax_parallel = 1\n\
                 [[columns]]\nname = \"grade\"\nkind = \"judge\"\nmodel = \"j\"\ninput = \"{{ title | nosuch }}\"\n";
    for (variable, part) in
        [("TIDEGATE_TEST_NO_KEY", "`TIDEGATE_TEST_NO_KEY`, which is not set"), ("sk-very-secret", "not the name")]
    {
        let key = format!("api_key_env = \"{variable}\"");
        scratch.write("p.toml", &(remote_pipeline(&url, &key, "") + judge));
        for ended in [scratch.run(&["check", "p.toml"]), scratch.run(&["check", "p.toml", "--json"])] {
            ended.assert(2, &[part, "the command `no-such-judge`", "unknown filter `nosuch`"]);
            assert!(!ended.all().contains("very-secret"), "{}", ended.all());
        }
    }
    scratch.run(&["check", "p.toml"]).assert(2, &["not called: see below"]);
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
}

#[test]
fn the_example_pipeline_can_be_checked_without_an_account() {
    let scratch = Scratch::new(0);
    scratch.run(&["check"]).assert(0, &["answered in ", "served in this process"]);
    assert!(!scratch.path("out").exists());
}

#[test]
fn a_rejected_key_exits_4_and_names_the_variable() {
    let (url, calls) =
        serve_always(401, json!({ "error": { "message": format!("Incorrect API key provided: {KEY}") } }));
    check(&url)
        .assert(4, &["FAILED: the API key was refused or is missing (HTTP 401); check the key in `TIDEGATE_TEST_KEY`"]);
    assert_eq!(calls.lock().unwrap().len(), 1, "and no call is repeated");
}

#[test]
fn a_judge_that_rejects_the_get_request_is_reached_unless_the_key_is_not_allowed() {
    for (status, code, part) in [
        (200, 0, "server reached in "),
        (404, 0, "server reached in "),
        (405, 0, "server reached in "),
        (401, 4, "the API key was refused or is missing (HTTP 401)"),
        (403, 4, "the request is forbidden (HTTP 403): Not for [key].; check the permissions of the key"),
    ] {
        let (url, _) = serve_always(status, json!({ "error": { "message": format!("Not for {KEY}.") } }));
        let mut scratch = Scratch::new(1);
        scratch.env("TIDEGATE_TEST_KEY", KEY);
        scratch.write(
            "p.toml",
            &format!(
                "[seed]\npath = \"data.csv\"\n[[models]]\nname = \"j\"\nurl = \"{url}/judge\"\nmax_parallel = 1\n\
                 api_key_env = \"TIDEGATE_TEST_KEY\"\n\
                 [[columns]]\nname = \"a\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"note\"]\n"
            ),
        );
        let ended = scratch.run(&["check", "p.toml"]);
        ended.assert(code, &[part]);
        assert!(!ended.all().contains("very-secret"), "{}", ended.all());
    }
}

#[test]
fn an_exhausted_quota_exits_4_with_the_providers_message_and_without_the_key() {
    let body = json!({ "error": { "message": format!("No funds for {KEY}."), "code": "insufficient_quota" } });
    let (url, calls) = serve_always(429, body);
    check(&url).assert(4, &["out of funds or quota (HTTP 429): No funds for [key].; add funds, or raise the quota"]);
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[test]
fn an_unknown_model_and_an_unreachable_host_exit_4() {
    let missing = json!({ "error": { "message": "The model `m` does not exist", "code": "model_not_found" } });
    check(&serve_always(404, missing).0)
        .assert(4, &["no such model (HTTP 404): The model `m` does not exist; check its `model`"]);
    check("http://127.0.0.1:9/v1")
        .assert(4, &["FAILED: no connection", "check the address, and that the server is running"]);
}

#[test]
fn a_redirect_ends_with_what_to_set() {
    for (location, part) in [
        (
            Some("https://new.example/v1/chat/completions"),
            "set `base_url` to `https://new.example/v1`; check `base_url`",
        ),
        (None, "the request was refused (HTTP 308); check `base_url`"),
    ] {
        let answer = move || async move {
            let headers: HeaderMap = location.map(|to| (LOCATION, HeaderValue::from_static(to))).into_iter().collect();
            (StatusCode::PERMANENT_REDIRECT, headers)
        };
        let ended = check(&(serve(Router::new().fallback(answer)) + "/v1"));
        ended.assert(4, &[part]);
        assert!(!ended.all().contains("which parameters"), "{}", ended.all());
    }
}

#[test]
fn a_rate_limit_proves_that_the_key_is_accepted_and_exits_0() {
    let (url, calls) = serve_always(429, json!({ "error": { "message": "slow down" } }));
    check(&url).assert(0, &["usable, but rate limited now: rate limited (HTTP 429)"]);
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[test]
fn a_response_that_ends_while_the_model_still_reasons_counts_as_an_answer() {
    let body = json!({ "choices": [{ "message": { "content": null }, "finish_reason": "length" }] });
    check(&serve_always(200, body).0).assert(0, &["answered in "]);
    let body =
        json!({ "error": { "message": "Unsupported parameter: 'max_tokens'.", "code": "unsupported_parameter" } });
    check(&serve_always(400, body).0).assert(0, &["answered in "]);
}

#[test]
fn a_model_that_hangs_times_out_without_delaying_other_providers() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let never = move || {
        seen.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    };
    let hanging = serve(Router::new().fallback(never)) + "/v1";
    let (good, _) = serve_always(200, completion());
    let scratch = Scratch::new(1);
    let other = format!("[[models]]\nname = \"n\"\nprovider = \"other\"\nbase_url = \"{good}\"\nmax_parallel = 1\n");
    let column = "[[columns]]\nname = \"b\"\nmodel = \"n\"\nprompt = \"x\"\n";
    scratch.write("p.toml", &(remote_pipeline(&hanging, "timeout = \"200ms\"", "") + &other + column));
    scratch.run(&["check", "p.toml"]).assert(4, &["FAILED: no answer in time", "answered in "]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
