//! Tests of every kind of column, options, structured output and conditions: whole runs of the program
//! against a local server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::patience::wait_until;
use crate::support::{Scratch, interrupt_twice, serve};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Returns a chat completion with this text and a usage of 100 input and 10 output tokens.
fn completion(text: impl Into<String>) -> Response {
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
    Json(json!({ "choices": [{ "message": { "content": text.into() } }], "usage": usage })).into_response()
}

/// Starts a chat server that answers each request body with `answer`, and returns its base URL.
fn chat(answer: impl Fn(&Value) -> Response + Clone + Send + Sync + 'static) -> String {
    let route = post(move |Json(body): Json<Value>| async move { answer(&body) });
    serve(Router::new().route("/v1/chat/completions", route)) + "/v1"
}

/// Returns a pipeline over `data.csv` with a chat model `m` at `base_url`.
fn pipeline(base_url: &str, rest: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 4\nretries = 1\n\
         [[models]]\nname = \"m\"\nprovider = \"remote\"\nbase_url = \"{base_url}\"\nmax_parallel = 4\n\
         cooldown = \"20ms\"\nprice = {{ input_per_million = 1000, output_per_million = 2000 }}\n{rest}"
    )
}

const GRADE: &str =
    "schema = { type = \"object\", required = [\"score\"], properties = { score = { type = \"integer\" } } }";

#[test]
fn structured_output_is_requested_validated_and_readable_by_field() {
    let scratch = Scratch::new(3);
    let server = chat(|body| {
        let format = &body["response_format"];
        assert_eq!((&format["type"], &format["json_schema"]["name"]), (&json!("json_schema"), &json!("grade")));
        completion("```json\n{\"score\": 4, \"tags\": [\"a\"]}\n```")
    });
    let columns = format!(
        "[[columns]]\nname = \"grade\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n{GRADE}\n\
         [[columns]]\nname = \"double\"\nkind = \"expression\"\noutput = \"number\"\ntemplate = \"{{{{ grade.score * 2 }}}}\"\n"
    );
    scratch.run_pipeline(&pipeline(&server, &columns)).assert(0, &["rows out         3"]);
    assert_eq!(scratch.rows("out")[1]["grade"], json!({"score": 4, "tags": ["a"]}));
    assert_eq!(scratch.rows("out")[1]["double"], json!(8));
}

#[test]
fn an_invalid_structured_answer_is_retried_with_the_errors_and_then_dropped() {
    let scratch = Scratch::new(2);
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let server = chat(move |body| {
        seen.fetch_add(1, Ordering::SeqCst);
        let messages = body["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap();
        let is_first_row = messages[0]["content"].as_str().unwrap().contains("entry 0 ");
        match (is_first_row, messages.len()) {
            (true, 1) => completion("{\"score\": \"high\"}"),
            (true, _) => {
                assert!(last.contains("\"high\" is not of type \"integer\" (at /score)"), "{last}");
                completion("{\"score\": 5}")
            }
            (false, _) => completion("I would rather not."),
        }
    });
    let columns = format!("[[columns]]\nname = \"grade\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n{GRADE}\n");
    let ended = scratch.run_pipeline(&pipeline(&server, &columns));
    ended.assert(6, &["the answer does not fit: \"I would rather not.\" is not JSON", "malformed_answer"]);
    assert_eq!(scratch.rows("out")[0]["grade"]["score"], 5);
    assert_eq!(calls.load(Ordering::SeqCst), 2 + 3, "a second try for the first row, two more for the other");
}

#[test]
fn options_and_messages_are_templates() {
    let scratch = Scratch::new(2);
    let server = chat(|body| completion(body.to_string()));
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\noutput = \"json\"\n\
                   messages = [{ role = \"system\", content = \"Be brief.\" }, { role = \"user\", content = \"{{ note }}\" },\n\
                   { role = \"assistant\", content = \"Yes?\" }, { role = \"user\", content = \"Row {{ row }}\" }]\n\
                   temperature = \"{{ row / 2 }}\"\nmax_tokens = \"{{ 10 + row }}\"\ntop_p = 0.5\nseed = 7\n\
                   stop = [\"END {{ id }}\"]\nextra = { top_k = 3, thinking = { \"a/b\" = [\"off\", \"id {{ id }}\"] } }\n";
    scratch.run_pipeline(&pipeline(&server, columns)).assert(0, &[]);
    let body = &scratch.rows("out")[1]["a"];
    assert_eq!(body["messages"][3], json!({"role": "user", "content": "Row 1"}));
    assert_eq!((&body["temperature"], &body["max_tokens"], &body["top_p"]), (&json!(0.5), &json!(11), &json!(0.5)));
    assert_eq!((&body["seed"], &body["stop"], &body["top_k"]), (&json!(7), &json!(["END 1"]), &json!(3)));
    assert_eq!(body["thinking"]["a/b"], json!(["off", "id 1"]));
}

#[test]
fn an_option_that_is_not_a_number_drops_the_row_with_the_reason() {
    let scratch = Scratch::new(1);
    let server = chat(|_| completion("x"));
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\nmax_tokens = \"{{ note }}\"\n";
    let ended = scratch.run_pipeline(&pipeline(&server, columns));
    ended.assert(2, &["`max_tokens` is \"entry 0 of the breakwater log\"; expected a whole number"]);
}

#[test]
fn a_false_condition_makes_no_call_and_gives_null_or_the_default() {
    let scratch = Scratch::new(4);
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let server = chat(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        completion("made")
    });
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"{{ id | int > 1 }}\"\n\
                   [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"a is none\"\notherwise = { no = true }\n\
                   [[columns]]\nname = \"c\"\nkind = \"expression\"\ntemplate = \"{{ a }} {{ b }}\"\n\
                   [[columns]]\nname = \"d\"\nkind = \"expression\"\ntemplate = \"{{ a }}!\"\nskip_with_upstream = true\n\
                   [[columns]]\nname = \"e\"\nkind = \"expression\"\ntemplate = \"{{ d }}\"\n";
    scratch.run_pipeline(&pipeline(&server, columns)).assert(0, &["rows out         4", "skipped"]);
    let rows = scratch.rows("out");
    assert_eq!((&rows[0]["a"], &rows[2]["a"]), (&Value::Null, &json!("made")));
    assert_eq!((&rows[0]["b"], &rows[2]["b"]), (&json!("made"), &json!({"no": true})));
    assert_eq!(rows[0]["c"], "None made");
    assert_eq!((&rows[0]["d"], &rows[2]["d"], &rows[0]["e"]), (&Value::Null, &json!("made!"), &json!("None")));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[test]
fn keys_and_templates_name_columns_in_any_form_of_unicode() {
    let [composed, decomposed] = ["pr\u{e9}nom", "pre\u{301}nom"];
    for (name, written) in [(composed, decomposed), (decomposed, composed)] {
        let scratch = Scratch::new(0);
        scratch.write("data.csv", &format!("{name}\nAda\nBob\nAda!\n"));
        let columns = format!(
            "[[models]]\nname = \"j\"\ncommand = [\"cat\"]\nmax_parallel = 1\n\
             [[columns]]\nname = \"judged\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"{written}\"]\n\
             [[columns]]\nname = \"sub {name}\"\nkind = \"sampler\"\naccept_if = \"{written} != 'Bob'\"\n\
             sampler = {{ law = \"subcategory\", of = \"{written}\", values = {{ Ada = [1], Bob = [2], \"Ada!\" = [3] }} }}\n\
             [[columns]]\nname = \"all\"\nkind = \"expression\"\nstrategy = \"full_column\"\noutput = \"json\"\n\
             template = \"{{{{ rows | map(attribute='sub {written}') | list | tojson }}}}\"\nupstreams = [\"sub {written}\"]\n\
             [run]\nrows = 2\n\
             [output]\nunique = {{ column = \"{written}\", similarity = 0.5 }}\n\
             columns = [{{ name = \"{name}\" }}, {{ name = \"n\", from = \"sub {written}\" }}, {{ name = \"all\" }}, {{ name = \"judged\" }}]\n\
             [output.record]\nwho = \"{{{{ {written} }}}}\"\nn = \"{{{{ n }}}}\"\n"
        );
        scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{columns}"));
        scratch.run(&["check", "p.toml"]).assert(0, &[]);
        scratch.run(&["run", "p.toml", "--out", "out", "--export", "all.jsonl"]).assert(0, &["rows out         2"]);
        let rows = scratch.rows("out");
        let judged = json!({ "column": "judged", "row": 0, "values": { name: "Ada" } });
        assert_eq!((&rows[0][name], &rows[0]["judged"], &rows[0]["n"]), (&json!("Ada"), &judged, &json!(1)));
        assert_eq!(rows[1]["all"], json!([1, 3]));
        let exported = std::fs::read_to_string(scratch.path("all.jsonl")).unwrap();
        assert_eq!(exported, "{\"n\":1,\"who\":\"Ada\"}\n", "`Ada!` is nearly the same");
    }
}

#[test]
fn columns_with_any_name_are_read_by_templates_conditions_records_judges_and_samplers() {
    let scratch = Scratch::new(0);
    scratch.write("data.csv", "full name,prénom,名前,customer-id,2024\nAda L,Zoë,太郎,7,x\nBob M,Eva,花子,8,y\n");
    let columns = "[[columns]]\nname = \"in one\"\nkind = \"expression\"\n\
                   template = \"{{ full_name }}/{{ prénom }}/{{ 名前 }}/{{ customer_id }}/{{ _2024 }}\"\n\
                   [[columns]]\nname = \"last\"\nkind = \"expression\"\n\
                   template = \"{{ in_one }}!\"\nwhen = \"full_name != 'Bob M'\"\n\
                   [[columns]]\nname = \"all\"\nkind = \"expression\"\nstrategy = \"full_column\"\noutput = \"json\"\n\
                   template = \"{{ rows | map(attribute='full name') | list | tojson }}\"\n\
                   [[models]]\nname = \"j\"\ncommand = [\"cat\"]\nmax_parallel = 1\n\
                   [[columns]]\nname = \"judged\"\nkind = \"judge\"\nmodel = \"j\"\noutput = \"json\"\n\
                   input = \"{{ full_name }}\"\ninputs = [\"full name\", \"2024\", \"名前\"]\n\
                   [[columns]]\nname = \"sub\"\nkind = \"sampler\"\n\
                   sampler = { law = \"subcategory\", of = \"full name\", values = { \"Ada L\" = [1], \"Bob M\" = [2] } }\n\
                   [output.record]\nwho = \"{{ full_name }}\"\n\"名\" = \"{{ in_one }}\"\n";
    scratch.write("p.toml", &format!("[seed]\npath = \"data.csv\"\n{columns}"));
    scratch.run(&["run", "p.toml", "--out", "out", "--export", "all.jsonl"]).assert(0, &["rows out         2"]);
    let rows = scratch.rows("out");
    assert_eq!(rows[0]["in one"], "Ada L/Zoë/太郎/7/x");
    assert_eq!((&rows[0]["last"], &rows[1]["last"]), (&json!("Ada L/Zoë/太郎/7/x!"), &Value::Null));
    assert_eq!(rows[1]["all"], json!(["Ada L", "Bob M"]));
    let values = json!({ "full name": "Ada L", "2024": "x", "名前": "太郎" });
    assert_eq!(rows[0]["judged"], json!({ "column": "judged", "row": 0, "input": "Ada L", "values": values }));
    assert_eq!((&rows[0]["sub"], &rows[1]["sub"]), (&json!(1), &json!(2)));
    let exported = std::fs::read_to_string(scratch.path("all.jsonl")).unwrap();
    assert_eq!(exported.lines().next(), Some("{\"who\":\"Ada L\",\"名\":\"Ada L/Zoë/太郎/7/x\"}"));

    let wrong = "[seed]\npath = \"data.csv\"\n[[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"{{ fullname }}\"\n";
    scratch.write("p.toml", wrong);
    let names = "expected one of: full_name, prénom, 名前, customer_id, _2024, a, row";
    scratch.run(&["check", "p.toml"]).assert(2, &["unknown template variable `fullname`", names, "`full_name`"]);
}

#[test]
fn an_embedding_column_gives_a_list_of_numbers_from_an_embedding_model() {
    let scratch = Scratch::new(2);
    let embed = |Json(body): Json<Value>| async move {
        assert_eq!(body["dimensions"], 2);
        let length = body["input"].as_str().unwrap().len();
        Json(json!({ "data": [{ "embedding": [0.25, length] }], "usage": { "prompt_tokens": 9 } }))
    };
    let server = serve(Router::new().route("/v1/embeddings", post(embed))) + "/v1";
    let rest = format!(
        "[[models]]\nname = \"e\"\nprovider = \"remote\"\nbase_url = \"{server}\"\ndomain = \"embedding\"\nmax_parallel = 2\n\
         [[columns]]\nname = \"vector\"\nkind = \"embedding\"\nmodel = \"e\"\ninput = \"{{{{ note }}}}\"\ndimensions = 2\nbatch_size = 1\n\
         [[columns]]\nname = \"first\"\nkind = \"expression\"\noutput = \"json\"\ntemplate = \"{{{{ vector[0] }}}}\"\n"
    );
    scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", &rest)).assert(0, &["remote/e/embedding"]);
    let row = &scratch.rows("out")[0];
    assert_eq!((&row["vector"], &row["first"]), (&json!([0.25, 29]), &json!(0.25)));
}

#[test]
fn samplers_draw_the_same_values_in_every_run_and_for_any_row_range() {
    let scratch = Scratch::new(40);
    let columns = "[[columns]]\nname = \"kind\"\nkind = \"sampler\"\nsampler = { law = \"category\", values = [\"a\", \"b\"] }\n\
                   [[columns]]\nname = \"sub\"\nkind = \"sampler\"\nsampler = { law = \"subcategory\", of = \"kind\", values = { a = [1, 2], b = [3] } }\n\
                   [[columns]]\nname = \"when\"\nkind = \"sampler\"\nsampler = { law = \"datetime\", from = 2024-01-01, to = \"2024-02-01\", unit = \"day\" }\n\
                   [[columns]]\nname = \"id2\"\nkind = \"sampler\"\nsampler = { law = \"uuid\" }\n";
    scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", columns)).assert(0, &["rows out        40"]);
    let all = scratch.rows("out");
    assert!(all.iter().all(|row| (row["kind"] == "b") == (row["sub"] == 3)), "{all:?}");
    assert!(all.iter().all(|row| row["when"].as_str().unwrap().starts_with("2024-01-")));
    scratch
        .run(&["run", "pipeline.toml", "--out", "part", "--rows", "10..30", "--limit", "7"])
        .assert(0, &["rows out         7"]);
    assert_eq!(scratch.rows("part"), all[10..17]);
}

#[test]
fn a_command_judges_its_input_and_its_failure_is_reported() {
    let scratch = Scratch::new(6);
    scratch.write(
        "judge.py",
        "import json, os, sys\nq = json.load(sys.stdin)\n\
         if q['row'] == 2: sys.exit('no opinion')\n\
         if q['row'] == 3 and not os.path.exists('tried'): open('tried', 'w'); sys.exit(75)\n\
         print(json.dumps({'length': len(q['values']['note']), 'asked': q['input']}))\n",
    );
    let rest = "[[models]]\nname = \"j\"\ncommand = [\"python3\", \"judge.py\"]\nmax_parallel = 2\ntimeout = \"30s\"\n\
                [[columns]]\nname = \"verdict\"\nkind = \"judge\"\nmodel = \"j\"\ninput = \"row {{ row }}\"\ninputs = [\"note\"]\n\
                [[columns]]\nname = \"length\"\nkind = \"expression\"\ntemplate = \"{{ verdict.length }}\"\n";
    let ended = scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", rest));
    ended.assert(6, &["the command failed (exit status: 1: no opinion)", "command/j "]);
    let rows = scratch.rows("out");
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0]["verdict"], json!({"length": 29, "asked": "row 0"}));
    assert_eq!(rows[0]["length"], "29");
}

#[test]
fn a_command_receives_no_key_unless_the_file_names_it() {
    let mut scratch = Scratch::new(1);
    for name in ["ACME_ACCOUNT", "OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "GRADER_KEY", "PLAIN_SETTING"] {
        scratch.env(name, "sk-secret");
    }
    scratch.env("ACME_ACCOUNT", "sk-acme/secret");
    scratch.env("ACME_HEADERS", "{\"authorization\": \"Bearer sk-acme\\/secret\"}");
    scratch.env("DATABASE_URL", "postgresql://app:sk-secret@db.example/notes");
    scratch.env("GITHUB_PAT", "sk-secret");
    scratch.env("SENTRY_DSN", "https://secret@sentry.example/1");
    scratch.write(
        "judge.py",
        "import json, os\nprint(json.dumps(sorted(n for n, v in os.environ.items() if 'secret' in v)))\n",
    );
    let rest = "[[models]]\nname = \"other\"\nprovider = \"remote\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmax_parallel = 1\n\
                api_key_env = \"ACME_ACCOUNT\"\n\
                [[models]]\nname = \"j\"\ncommand = [\"python3\", \"judge.py\"]\nmax_parallel = 2\ntimeout = \"30s\"\n\
                pass_env = [\"GRADER_KEY\"]\n\
                [[columns]]\nname = \"verdict\"\nkind = \"judge\"\nmodel = \"j\"\ninput = \"x\"\n";
    scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", rest)).assert(0, &[]);
    assert_eq!(scratch.rows("out")[0]["verdict"], json!(["GRADER_KEY", "PLAIN_SETTING"]));
}

#[test]
fn a_judge_server_is_limited_like_any_provider() {
    let scratch = Scratch::new(8);
    let calls = Arc::new(AtomicUsize::new(0));
    let judge = move |Json(body): Json<Value>| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            if call == 0 {
                return (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "20")], "slow down").into_response();
            }
            Json(json!({ "of": body["values"]["id"], "column": body["column"] })).into_response()
        }
    };
    let server = serve(Router::new().route("/judge", post(judge)));
    let rest = format!(
        "[[models]]\nname = \"j\"\nurl = \"{server}/judge?v=1\"\nmax_parallel = 2\n\
         [[columns]]\nname = \"verdict\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"id\"]\n"
    );
    let ended = scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", &rest));
    ended.assert(0, &["1 rate limited (429)", "http/j/judge"]);
    assert_eq!(scratch.rows("out")[7]["verdict"], json!({"of": "7", "column": "verdict"}));
}

#[test]
fn the_cost_limit_stops_the_run_before_it_is_exceeded_and_keeps_finished_row_groups() {
    let scratch = Scratch::new(400);
    let server = chat(|_| completion("x"));
    // A call costs 100 x 0.001 + 10 x 0.002 = 0.12. Its estimate is below that plus 10 output tokens.
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\nmax_tokens = 10\n";
    scratch.write("p.toml", &pipeline(&server, columns));
    let ended = scratch.run(&["run", "p.toml", "--out", "out", "--max-cost", "6"]);
    ended.assert(8, &["error: the next call might pass the cost limit of 6.00 USD", "of which none is estimated"]);
    let rows = scratch.rows("out").len();
    assert!((20..=53).contains(&rows), "{rows} rows for 6.00 at 0.12 each");
    assert_eq!(scratch.manifest("out")["state"], "ended");
    let cost = ended.stdout.lines().find(|line| line.trim_start().starts_with("cost ")).unwrap();
    let spent: f64 = cost.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((5.0..6.5).contains(&spent), "{cost}");
}

#[test]
fn a_cost_limit_requires_a_price_for_each_model_that_is_called() {
    let scratch = Scratch::new(1);
    let priced = pipeline("http://127.0.0.1:9/v1", "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n");
    let price = "price = { input_per_million = 1000, output_per_million = 2000 }\n";
    scratch.write("p.toml", &priced.replace(price, ""));
    let ended = scratch.run(&["run", "p.toml", "--max-cost", "1"]);
    ended.assert(2, &["p.toml:6:1: --max-cost needs a price, and the model `m` has none"]);
}

#[test]
fn a_token_budget_is_charged_with_the_reported_usage() {
    let scratch = Scratch::new(300);
    let server = chat(|_| completion("x"));
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\nmax_tokens = 10\n";
    let budget = "budgets = { tokens_per_minute = 30000, requests_per_minute = 100000 }\n[[columns]]";
    scratch.write("p.toml", &pipeline(&server, &columns.replacen("[[columns]]", budget, 1)));
    // 273 calls of 110 tokens empty the bucket. The tokens of the other calls refill at 500 a second.
    let began = std::time::Instant::now();
    scratch.run(&["run", "p.toml", "--out", "out"]).assert(0, &["rows out       300"]);
    assert!(began.elapsed() > std::time::Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_dry_run_shows_the_plan_with_calls_tokens_and_cost_and_changes_nothing() {
    let mut scratch = Scratch::new(240);
    scratch.env("TIDEGATE_TEST_KEY", "sk-1");
    let columns = "api_key_env = \"TIDEGATE_TEST_KEY\"\n\
                   [[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\nanswer_tokens = 100\n\
                   [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a }}\"\nwhen = \"a == 'x'\"\nmax_tokens = 20\n";
    scratch.write("p.toml", &pipeline("http://127.0.0.1:9/v1", columns));
    let before = std::fs::read_dir(scratch.path(".")).unwrap().count();
    let text = std::fs::read_to_string(scratch.path("p.toml")).unwrap();
    let budget = "budgets = { tokens_per_minute = 30000 }\n[[columns]]\nname = \"a\"";
    scratch.write("p.toml", &text.replacen("[[columns]]\nname = \"a\"", budget, 1));
    let ended = scratch.run(&["run", "p.toml", "--dry-run", "--max-cost", "10", "--limit", "200"]);
    ended.assert(
        0,
        &[
            "a dry run; nothing is called or written",
            "rows  200 of 240, in 50 row groups of at most 4",
            "<= 200",
            "more than the limit of 10.00",
            "first 100 rows, at four characters a token",
            "remote/m/chat",
            "budget:remote/m:tokens_per_minute",
            "max_cost_micro_USD",
        ],
    );
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), before);
    let planned = scratch.run(&["run", "p.toml", "--dry-run", "--json", "--max-cost", "10", "--limit", "200"]);
    planned.assert(0, &[]);
    let plan: Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!((&plan["kind"], &plan["rows"], &plan["row_groups"]), (&json!("dry_run"), &json!(200), &json!(50)));
    let column = &plan["columns"][1];
    assert_eq!((&column["name"], &column["reads"], &column["models"]), (&json!("b"), &json!(["a"]), &json!(["m"])));
    assert_eq!((&column["calls"], &column["is_upper_bound"]), (&json!(200), &json!(true)));
    assert_eq!((&plan["models"][0]["calls"], &plan["max_cost"]), (&json!(400), &json!("10.000000000000")));
    let cost = |of: &Value| of["cost"].as_str().unwrap().parse::<f64>().unwrap();
    assert!(cost(&plan) > 10.0 && cost(&plan) >= cost(&plan["models"][0]), "{plan}");
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), before);
}

#[test]
fn a_dry_run_of_a_job_to_resume_is_for_the_rows_that_are_missing() {
    let scratch = Scratch::new(10);
    let text = "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 4\n[[models]]\nname = \"m\"\nprovider = \"mock\"\n\
                max_parallel = 4\nmock = {}\nprice = { input_per_million = 1000, output_per_million = 1000 }\n\
                [[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\nanswer_tokens = 100\n\
                [[columns]]\nname = \"b\"\nkind = \"expression\"\nstrategy = \"full_column\"\ntemplate = \"{{ rows | length }}\"\n";
    // A column for row groups, so that the whole last one is made again.
    let of_rows = &text[..text.rfind("[[columns]]").unwrap()];
    for (columns, left, kept) in [(of_rows, 4, 6), (text, 6, 4)] {
        scratch.write("p.toml", columns);
        let dry = |limit: &[&str]| {
            let planned =
                scratch.run(&[&["p.toml", "--out", "out", "--dry-run", "--resume", "--json"], limit].concat());
            planned.assert(0, &[]);
            serde_json::from_str::<Value>(&planned.stdout).unwrap()
        };
        assert!(dry(&[]).get("earlier").is_none() && dry(&[])["rows"] == 10, "there is no job yet");
        scratch.run(&["p.toml", "--out", "out", "--limit", "6"]).assert(0, &[]);
        let files = |path: &str| std::fs::read_dir(scratch.path(path)).unwrap().count();
        let before = (scratch.manifest("out"), files("out"), files("out/rows"));
        assert_eq!(dry(&["--limit", "6"])["rows"], 0);
        let plan = dry(&[]);
        assert_eq!(
            (&plan["earlier"]["rows_out"], &plan["rows"], &plan["row_groups"]),
            (&json!(kept), &json!(left), &json!(2))
        );
        assert_eq!((&plan["columns"][0]["tasks"], &plan["columns"][0]["calls"]), (&json!(left), &json!(left)));
        assert!(plan["spent"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{plan}");
        let shown = scratch.run(&["p.toml", "--out", "out", "--dry-run", "--resume", "--max-cost", "0.1"]);
        let resumed = format!("resumed: {kept} rows are done already, and 0 stay dropped");
        shown.assert(0, &[&resumed, &format!("rows  {left} of 10, in 2 row groups"), "of earlier runs, "]);
        assert_eq!((scratch.manifest("out"), files("out"), files("out/rows")), before, "nothing is changed");
        scratch.run(&["p.toml", "--out", "out", "--resume"]).assert(0, &[]);
        assert_eq!(dry(&[])["rows"], 0);
        scratch.write("p.toml", &columns.replace("{{ note }}", "{{ note }}!"));
        let refused = "the column `a` has a different definition than before";
        scratch.run(&["p.toml", "--out", "out", "--dry-run", "--resume"]).assert(5, &[refused]);
        std::fs::remove_dir_all(scratch.path("out")).unwrap();
    }
}

#[cfg(feature = "parquet")]
#[test]
fn csv_and_parquet_output_can_be_read_back_as_input() {
    let scratch = Scratch::new(9);
    let columns = "[[columns]]\nname = \"n\"\nkind = \"sampler\"\nsampler = { law = \"uniform\", low = 1, high = 6, integer = true }\n\
                   [[columns]]\nname = \"parts\"\nkind = \"expression\"\noutput = \"json\"\ntemplate = \"{{ note | split(' ') | tojson }}\"\n";
    let text = pipeline("http://127.0.0.1:9/v1", columns);
    scratch.run_pipeline(&text).assert(0, &[]);
    let rows = scratch.rows("out");
    for format in ["csv", "parquet"] {
        scratch.write("p.toml", &format!("{text}[output]\nformat = \"{format}\"\n"));
        scratch.run(&["run", "p.toml", "--out", format]).assert(0, &["rows out         9"]);
        assert_eq!(scratch.manifest(format)["format"], format);
        let again = format!(
            "[seed]\npath = \"{format}/rows/000001.{format}\"\n[output]\nrow_key = \"again\"\n\
             [[columns]]\nname = \"x\"\nkind = \"expression\"\noutput = \"json\"\ntemplate = \"{{{{ parts }}}}\"\n"
        );
        scratch.write("again.toml", &again);
        let out = format!("again-{format}");
        scratch.run(&["run", "again.toml", "--out", &out]).assert(0, &["rows out         4"]);
        let row = &scratch.rows(&out)[0];
        assert_eq!((&row["note"], &row["x"]), (&rows[4]["note"], &rows[4]["parts"]), "{format}");
        assert_eq!(row["n"], if format == "csv" { rows[4]["n"].to_string().into() } else { rows[4]["n"].clone() });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_leaves_no_command_running() {
    let scratch = Scratch::new(4);
    let rest = "[[models]]\nname = \"j\"\ncommand = [\"sh\", \"-c\", \"echo $$ >> pids; sleep 600 & wait\"]\nmax_parallel = 2\n\
                timeout = \"1h\"\n[[columns]]\nname = \"v\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"id\"]\n";
    scratch.write("p.toml", &pipeline("http://127.0.0.1:9/v1", rest));
    let program = scratch.command(&["run", "p.toml", "--json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pids = || std::fs::read_to_string(scratch.path("pids")).unwrap_or_default();
    wait_until(pids, |pids| pids.lines().count() >= 2);
    // The first interrupt waits for running commands, the second does not.
    assert_eq!(interrupt_twice(program).0, Some(130));
    for group in pids().lines() {
        wait_until(|| is_alive(group), |is_alive| !is_alive);
    }
}

/// Returns whether a process of `group` runs. A zombie process does not count.
#[cfg(target_os = "linux")]
fn is_alive(group: &str) -> bool {
    let stats = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(2) == Some(&group) && !matches!(fields.first(), Some(&("Z" | "X")))
    })
}

#[test]
fn a_dataset_that_changes_during_the_run_drops_the_rows_with_the_reason() {
    let scratch = Scratch::new(12);
    let path = scratch.path("data.csv");
    let server = chat(move |_| {
        std::fs::write(&path, "id,note\n1,another\n").unwrap();
        completion("x")
    });
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\n";
    let text = pipeline(&server, columns).replace("retries = 1", "row_groups = 1\nretries = 0");
    scratch.run_pipeline(&text).assert(6, &["data.csv: the file has changed since the run began"]);
    assert_eq!(scratch.rows("out").len(), 4);
}

#[cfg(feature = "parquet")]
#[test]
fn the_letters_example_runs_and_costs_at_most_the_estimate_of_the_dry_run() {
    let scratch = Scratch::new(0);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/example/harbour_letters.toml");
    let cost = |ended: &crate::support::Ended, at: usize| {
        let line = ended.stdout.lines().find(|line| line.trim_start().starts_with("cost ")).unwrap();
        line.split_whitespace().nth(at).unwrap().parse::<f64>().unwrap()
    };
    let planned = scratch.run(&["run", example, "--dry-run"]);
    planned.assert(0, &["tone", "sender", "USD"]);
    let ended = scratch.run(&["run", example, "--out", "out", "--max-cost", "1"]);
    ended.assert(0, &["rows out       240", "skipped"]);
    assert!(cost(&ended, 1) > 0.0 && cost(&ended, 1) <= cost(&planned, 2), "{}", ended.all());
    assert!(scratch.path("out/rows/000005.parquet").exists());
}

#[test]
fn a_full_column_sees_the_rows_that_none_of_its_upstreams_dropped() {
    let scratch = Scratch::new(4);
    // `half` fails for row 1, and is skipped for row 3 as `sum` is.
    let columns = "[[columns]]\nname = \"sum\"\nkind = \"expression\"\ntemplate = \"{{ id }}\"\nwhen = \"row < 3\"\n\
                   [[columns]]\nname = \"half\"\nkind = \"expression\"\noutput = \"number\"\notherwise = \"none\"\n\
                   template = \"{{ 'x' if sum == '1' else sum }}\"\nskip_with_upstream = true\n\
                   [[columns]]\nname = \"near\"\nkind = \"expression\"\nstrategy = \"full_column\"\nupstreams = [\"half\"]\n\
                   template = \"{% for r in rows %}{{ r.row }}:{{ r.half }} {% endfor %}\"\n\
                   [[columns]]\nname = \"far\"\nkind = \"expression\"\nstrategy = \"full_column\"\nupstreams = [\"near\"]\n\
                   template = \"{% for r in rows %}{{ r.row }} {% endfor %}\"\n";
    let file = pipeline("http://127.0.0.1:9/v1", columns);
    scratch.run_pipeline(&file).assert(6, &["rows out         3"]);
    let rows = scratch.rows("out");
    assert_eq!((&rows[0]["near"], &rows[0]["far"]), (&json!("0:0 2:2 3:none "), &json!("0 2 3 ")));
}

#[test]
fn an_answer_without_text_is_charged() {
    let scratch = Scratch::new(1);
    let server = chat(|_| {
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
        let choice = json!({ "message": { "content": null }, "finish_reason": "stop" });
        Json(json!({ "choices": [choice], "usage": usage })).into_response()
    });
    let columns = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n";
    let ended = scratch.run_pipeline(&pipeline(&server, columns));
    ended.assert(4, &["it has no text (finish_reason stop)", "cost        0.1200", "of which none is estimated"]);
}
