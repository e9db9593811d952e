//! Tests of columns whose model calls tools: whole runs of the program with commands, against the mock and
//! against models that behave badly.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{MockConfig, MockServer};

use crate::support::{Scratch, serve};

/// A tool that writes the arguments that it gets.
const ECHO: &str = "[[tools]]\nname = \"echo\"\ndescription = \"Repeats a text\"\ncommand = [\"cat\"]\n\
    parameters = { type = \"object\", properties = { text = { type = \"string\" } }, required = [\"text\"] }\n";

/// Returns a pipeline over `data.csv` with a model at `base_url`, `tools`, and a column with these keys.
fn pipeline(base_url: &str, model: &str, tools: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nshutdown_rate = \"never\"\n[output]\ncalls = true\n\
         [[models]]\nname = \"m\"\nprovider = \"acme\"\nbase_url = \"{base_url}\"\nmax_parallel = 1\n\
         price = {{ input_per_million = 1000, output_per_million = 1000 }}\n{model}\n{tools}\n\
         [[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"A title for: {{{{ note }}}}\"\n{keys}\n"
    )
}

/// Starts a chat server whose answers are the messages that `answer` returns for the number of results in a
/// request. Returns its base URL and the bodies of the requests.
fn chat(answer: impl Fn(usize) -> Value + Clone + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<Value>>>) {
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let route = post(move |Json(body): Json<Value>| async move {
        let messages = body["messages"].as_array().unwrap();
        let message = answer(messages.iter().filter(|message| message["role"] == "tool").count());
        let reason = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
        seen.lock().unwrap().push(body);
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
        Json(json!({ "choices": [{ "message": message, "finish_reason": reason }], "usage": usage }))
    });
    (serve(Router::new().route("/v1/chat/completions", route)) + "/v1", requests)
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

fn calls(calls: &[Value]) -> Value {
    json!({ "role": "assistant", "content": null, "tool_calls": calls })
}

/// Returns the results in the last of the requests, with the ids of their calls.
fn results(requests: &Mutex<Vec<Value>>) -> Vec<(String, String)> {
    let requests = requests.lock().unwrap();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| (text(&message["tool_call_id"]), text(&message["content"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_every_api_calls_a_tool_and_answers_with_its_result() {
    for (api, is_structured) in [("openai", false), ("responses", false), ("anthropic", false)].into_iter().chain([
        ("openai", true),
        ("responses", true),
        ("anthropic", true),
    ]) {
        let scratch = Scratch::new(3);
        let models = vec![("m".to_string(), ProviderSpec::default())];
        let mock = MockServer::serve(MockConfig { models, ..MockConfig::default() }, ([127, 0, 0, 1], 0).into());
        let mock = mock.await.unwrap();
        let structure = if is_structured {
            "schema = { type = \"object\", properties = { score = { type = \"integer\" } }, required = [\"score\"] }"
        } else {
            ""
        };
        let command = "command = [\"sh\", \"-c\", \"echo called >> calls.txt; printf 'the depth is 4 m'\"]";
        let tools = ECHO.replace("command = [\"cat\"]", command);
        let keys = format!("tools = [\"echo\"]\n{structure}");
        let text = pipeline(&mock.base_url(), &format!("api = \"{api}\""), &tools, &keys);
        let (ended, scratch) =
            tokio::task::spawn_blocking(move || (scratch.run_pipeline(&text), scratch)).await.unwrap();
        ended.assert(0, &["rows out         3"]);
        assert_eq!(mock.stats().rejected, 0, "{api}: the mock takes every request as it is");
        assert_eq!(mock.counters().accepted, 6, "{api}: two calls for each row");
        assert_eq!(std::fs::read_to_string(scratch.path("calls.txt")).unwrap(), "called\n".repeat(3), "{api}");
        for row in scratch.rows("out") {
            if is_structured {
                assert!(row["title"]["score"].is_i64(), "{api}: {row}");
            } else {
                assert!(row["title"].as_str().unwrap().starts_with("the depth is 4 m\n"), "{api}: {row}");
            }
        }
        let shown = scratch.run(&["inspect", "out", "--row", "1"]);
        shown.assert(
            0,
            &["2 calls of acme/m", "    calls: echo {\"text\":", "    result: the depth is 4 m", "    answer: "],
        );
    }
}

#[test]
fn several_calls_are_answered_in_order_and_every_call_of_the_model_counts() {
    let scratch = Scratch::new(1);
    let (server, requests) = chat(|results| match results {
        0 => calls(&[call("a", "echo", "{\"text\": \"one\"}"), call("b", "echo", "{\"text\":\"two\"}")]),
        2 => {
            let mut message = calls(&[call("c", "echo", "{\"text\":\"three\"}")]);
            message["reasoning_content"] = "I look once more.".into();
            message
        }
        _ => json!({ "content": "done" }),
    });
    let text = pipeline(&server, "", ECHO, "tools = [\"echo\"]\nextra = { tool_choice = \"required\" }");
    scratch.run_pipeline(&text).assert(0, &["rows out         1", "calls            3"]);
    let found = results(&requests);
    let expected = [("a", "{\"text\":\"one\"}"), ("b", "{\"text\":\"two\"}"), ("c", "{\"text\":\"three\"}")];
    assert_eq!(found, expected.map(|(id, text)| (id.to_string(), text.to_string())));
    let requests = requests.lock().unwrap();
    let function = &requests[0]["tools"][0]["function"];
    assert_eq!((&function["name"], &function["parameters"]["required"]), (&json!("echo"), &json!(["text"])));
    assert_eq!(requests[2]["tools"], requests[0]["tools"]);
    let choices: Vec<_> = requests.iter().map(|request| request.get("tool_choice").cloned()).collect();
    assert_eq!(choices, [Some(json!("required")), None, None]);
    let sent = &requests[2]["messages"];
    assert_eq!((&sent[1]["content"], sent[1]["tool_calls"].as_array().unwrap().len()), (&Value::Null, 2));
    assert_eq!(sent[4]["reasoning_content"], "I look once more.");
    assert_eq!(scratch.rows("out")[0]["title"], "done");
    let used = &scratch.manifest("out")["totals"]["models"]["acme/m"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(30), &json!(15)));
}

#[test]
fn the_reasoning_for_an_answer_is_that_of_all_turns() {
    let scratch = Scratch::new(1);
    let (server, _) = chat(|results| match results {
        0 => {
            let mut message = calls(&[call("a", "echo", "{\"text\": \"one\"}")]);
            message["reasoning_content"] = "I look.".into();
            message
        }
        1 => calls(&[call("b", "echo", "{\"text\": \"two\"}")]),
        _ => json!({ "content": "done", "reasoning_content": "I have seen both." }),
    });
    let why = "[[columns]]\nname = \"why\"\nkind = \"reasoning\"\nof = \"title\"";
    let text = pipeline(&server, "", ECHO, &format!("tools = [\"echo\"]\n{why}"));
    scratch.run_pipeline(&text).assert(0, &["rows out         1"]);
    let row = &scratch.rows("out")[0];
    assert_eq!((&row["title"], &row["why"]), (&json!("done"), &json!("I look.\n\nI have seen both.")));
}

#[test]
fn what_a_model_does_wrong_is_a_result_that_it_sees() {
    let scratch = Scratch::new(1);
    let huge = format!("{{\"text\":\"{}\"}}", "x".repeat(70_000));
    let answers = [
        call("1", "drop_tables; rm -rf", "{}"),
        call("1", "echo", "{\"text\": $(touch stolen)"),
        call("", "echo", "{\"text\": 7}"),
        call("2", "echo", "[1]"),
        call("3", "echo", &huge),
        call("4", "fail", ""),
        call("5", "echo", "{\"text\":\"$(touch stolen) `touch stolen`; touch stolen\"}"),
        call("6", "long", "{}"),
    ];
    let all = calls(&answers);
    let (server, requests) = chat(move |results| if results == 0 { all.clone() } else { json!({ "content": "done" }) });
    let fail = "[[tools]]\nname = \"fail\"\ndescription = \"Fails\"\ncommand = [\"sh\", \"-c\", \"echo no tide >&2; exit 3\"]\n\
                [[tools]]\nname = \"long\"\ndescription = \"Long\"\ncommand = [\"sh\", \"-c\", \"head -c 70000 /dev/zero | tr '\\\\0' x\"]\n";
    let text = pipeline(&server, "", &format!("{ECHO}{fail}"), "tools = [\"echo\", \"fail\", \"long\"]");
    scratch.run_pipeline(&text).assert(0, &["rows out         1"]);
    assert!(!scratch.path("stolen").exists());
    let found = results(&requests);
    let ids: std::collections::BTreeSet<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids.len(), answers.len(), "{ids:?}");
    for ((_, text), part) in found.iter().zip([
        "error: there is no tool `drop_tables; rm -rf`; expected one of: echo, fail, long",
        "error: the arguments are not JSON: ",
        "error: the arguments do not fit: 7 is not of type \"string\" (at /text)",
        "error: the arguments are [1]; expected a JSON object",
        "error: the arguments have 70011 bytes; expected at most 65536",
        "error: the command failed (exit status: 3: no tide)",
        "{\"text\":\"$(touch stolen) `touch stolen`; touch stolen\"}",
        "error: the answer is not usable: it is longer than 65536 bytes",
    ]) {
        assert!(text.starts_with(part), "{part}: {text}");
    }
    // What is sent back is valid, whatever the model wrote.
    let requests = requests.lock().unwrap();
    for sent in requests[1]["messages"][1]["tool_calls"].as_array().unwrap() {
        let (name, arguments) = (sent["function"]["name"].as_str().unwrap(), &sent["function"]["arguments"]);
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{name}");
        assert!(serde_json::from_str::<Value>(arguments.as_str().unwrap()).unwrap().is_object(), "{arguments}");
    }
}

#[test]
fn a_model_that_calls_tools_for_ever_or_too_many_drops_its_row_and_another_model_may_answer() {
    let scratch = Scratch::new(1);
    let (endless, requests) = chat(|_| calls(&[call("a", "echo", "{\"text\":\"again\"}")]));
    let text = pipeline(&endless, "", ECHO, "tools = [\"echo\"]\nmax_turns = 3");
    let why = "the model calls `echo` in the last of 3 answers (`max_turns`)";
    // No row could be finished.
    scratch.run_pipeline(&text).assert(4, &["title: malformed_answer", why]);
    assert_eq!(requests.lock().unwrap().len(), 3);
    let ids: Vec<String> = results(&requests).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["a", "call00002"], "an id that an earlier answer has is replaced");
    scratch.run(&["inspect", "out", "--row", "0"]).assert(0, &["3 calls of", "    calls: echo {\"text\":\"again\"}"]);

    let (other, _) = chat(|_| json!({ "content": "done" }));
    let fallback =
        format!("[[models]]\nname = \"other\"\nprovider = \"other\"\nbase_url = \"{other}\"\nmax_parallel = 1\n{ECHO}");
    let text = pipeline(&endless, "", &fallback, "tools = [\"echo\"]\nfallback_on = [\"malformed_answer\"]");
    let text = text.replace("name = \"title\"\nmodel = \"m\"", "name = \"title\"\nmodels = [\"m\", \"other\"]");
    std::fs::remove_dir_all(scratch.path("out")).unwrap();
    scratch.run_pipeline(&text).assert(0, &["rows out         1"]);
    assert_eq!(scratch.rows("out")[0]["title"], "done");

    let many = calls(&vec![call("a", "echo", "{}"); 17]);
    let (server, _) = chat(move |_| many.clone());
    std::fs::remove_dir_all(scratch.path("out")).unwrap();
    let text = pipeline(&server, "", ECHO, "tools = [\"echo\"]");
    scratch.run_pipeline(&text).assert(4, &["the answer has 17 calls of tools; expected at most 16"]);

    let mut long = calls(&[call("a", "echo", "{\"text\":\"again\"}")]);
    long["content"] = "x".repeat(5 << 20).into();
    let (server, _) = chat(move |_| long.clone());
    std::fs::remove_dir_all(scratch.path("out")).unwrap();
    let text = pipeline(&server, "", ECHO, "tools = [\"echo\"]").replace("calls = true", "calls = false");
    scratch.run_pipeline(&text).assert(4, &["and their results, are longer than 4194304 bytes"]);
}

#[test]
fn commands_get_no_keys_run_in_the_directory_of_the_file_and_hold_no_slot_of_the_model() {
    let mut scratch = Scratch::new(2);
    scratch.env("ACME_KEY", "sk-secret");
    scratch.env("TIDE_TOKEN", "tide-secret");
    // The commands of the two rows wait for each other, and the model has one slot.
    let script =
        "touch $$.here; while [ $(ls *.here | wc -l) -lt 2 ]; do sleep 0.05; done; echo \"<$ACME_KEY|$TIDE_TOKEN>\"";
    let tool = format!(
        "[[tools]]\nname = \"env\"\ndescription = \"Waits\"\ncommand = ['sh', '-c', '{script}']\npass_env = [\"TIDE_TOKEN\"]\n"
    );
    let (server, requests) = chat(|results| match results {
        0 => calls(&[call("a", "env", "{}")]),
        _ => json!({ "content": "done" }),
    });
    let text = pipeline(&server, "api_key_env = \"ACME_KEY\"", &tool, "tools = [\"env\"]");
    let ended = scratch.run_pipeline(&text);
    ended.assert(0, &["rows out         2"]);
    assert_eq!(results(&requests)[0].1, "<|tide-secret>");
    assert!(!ended.all().contains("secret"), "{}", ended.all());
}

#[test]
fn a_tool_whose_program_is_missing_or_whose_arguments_changed_is_found_before_the_run() {
    let scratch = Scratch::new(1);
    let (server, _) = chat(|_| json!({ "content": "done" }));
    let missing = ECHO.replace("\"cat\"", "\"no-such-program-anywhere\"");
    let text = pipeline(&server, "", &missing, "tools = [\"echo\"]");
    let why = "the tool `echo` is the command `no-such-program-anywhere`, which is in no directory of PATH";
    scratch.run_pipeline(&text).assert(2, &["pipeline.toml:", why]);
    // A tool that no column offers is not started.
    scratch.run_pipeline(&pipeline(&server, "", &missing, "")).assert(0, &[]);
    std::fs::remove_dir_all(scratch.path("out")).unwrap();
    let text = pipeline(&server, "", ECHO, "tools = [\"echo\"]");
    scratch.run_pipeline(&text).assert(0, &[]);
    scratch
        .run(&["pipeline.toml", "--dry-run"])
        .assert(0, &["not included: calls of `title` after those of tools, at most "]);
    scratch.write("pipeline.toml", &text.replace("Repeats a text", "Repeats"));
    let changed = scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]);
    assert_ne!(changed.code, 0, "{}", changed.all());
    assert!(changed.all().contains("title"), "{}", changed.all());
}
