//! Tests of `tidegate inspect`.

use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::{Scratch, remote_pipeline, serve};

/// A provider that refuses the row with `entry 2`, and answers others with markup.
async fn answer(Json(request): Json<Value>) -> Response {
    let prompt = request["messages"][0]["content"].as_str().unwrap();
    let message = if prompt.contains("entry 2 ") {
        json!({ "content": null, "refusal": "I would rather not." })
    } else {
        json!({ "content": format!("<b>\u{1b}[31m{prompt}</b>") })
    };
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60 });
    Json(json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage })).into_response()
}

/// Runs a pipeline over five rows, of which one is dropped.
fn run(output: &str) -> Scratch {
    let scratch = Scratch::new(5);
    let server = serve(Router::new().route("/v1/chat/completions", post(answer))) + "/v1";
    let text = remote_pipeline(&server, "", "shutdown_rate = \"never\"");
    scratch.write("p.toml", &format!("{text}\n[output]\n{output}\n"));
    scratch.run(&["p.toml", "--out", "out"]).assert(6, &["I would rather not."]);
    scratch
}

#[test]
fn rows_are_shown_with_their_prompts_answers_models_and_tokens_and_drops_with_their_reasons() {
    let scratch = run("calls = true");
    let shown = scratch.run(&["inspect", "out"]);
    shown.assert(
        0,
        &[
            "p.toml: 4 rows; the last run ended: completed",
            "1 missing: refused at ",
            "row 2, missing: refused at ",
            "I would rather not.",
            "1 call of ",
            "40 input and 60 output tokens",
            "    user: ",
            "    answer: <b> [31m",
        ],
    );
    assert!(!shown.all().contains("calls = true"), "they are kept: {}", shown.all());
    assert!(!shown.all().contains('\u{1b}'), "no control characters reach the terminal");
    let one = scratch.run(&["inspect", "out", "--row", "3"]).all();
    assert!(one.contains("row 3\n") && !one.contains("row 4\n"), "{one}");
    let dropped = scratch.run(&["inspect", "out", "--dropped"]).all();
    assert!(dropped.contains("row 2, missing") && !dropped.contains("row 3\n"), "{dropped}");
    let few = scratch.run(&["inspect", "out", "--limit", "2"]).all();
    assert!(few.contains("row 1\n") && !few.contains("row 3\n"), "{few}");
    for name in ["out/manifest.json", "out/rows/000000.jsonl"] {
        scratch.run(&["inspect", "out", "--html", name]).assert(2, &["--html", "out"]);
    }
    scratch.run(&["inspect", "out", "--html", "rows.html"]).assert(0, &["5 rows in rows.html"]);
    let page = std::fs::read_to_string(scratch.path("rows.html")).unwrap();
    assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    assert!(page.contains("1 missing: refused"), "{page}");
}

#[test]
fn without_kept_calls_rows_and_drops_are_shown() {
    for format in ["jsonl", "csv"] {
        let scratch = run(&format!("format = \"{format}\""));
        let shown = scratch.run(&["inspect", "out"]);
        let hint = "prompts and answers are kept if [output] has `calls = true` when rows are made\n";
        shown.assert(0, &["p.toml: 4 rows", "row 0\n", "row 2, missing: refused", hint]);
        assert!(!shown.all().contains("1 call of"), "{}", shown.all());
    }
}

#[test]
fn each_model_is_shown_with_its_calls_and_retries() {
    // The first model refuses row 1, and needs more tokens for row 2.
    let route = post(|Json(body): Json<Value>| async move {
        let text = body["messages"][0]["content"].as_str().unwrap();
        let refusal = (body["model"] == "large" && text == "Row 1").then_some("No.");
        let finish_reason = if text == "Row 2" && body["max_tokens"] == 8 { "length" } else { "stop" };
        let message = json!({ "content": text, "refusal": refusal });
        Json(json!({ "choices": [{ "message": message, "finish_reason": finish_reason }] })).into_response()
    });
    let server = serve(Router::new().route("/v1/chat/completions", route)) + "/v1";
    let model = |name: &str, provider: &str| {
        format!("[[models]]\nname = \"{name}\"\nprovider = \"{provider}\"\nbase_url = \"{server}\"\nmax_parallel = 1\n")
    };
    let scratch = Scratch::new(3);
    let column = "name = \"title\"\nmodels = [\"large\", \"small\"]\nprompt = \"Row {{ row }}\"\n\
                  max_tokens = 8\nretry_max_tokens = 64\nfallback_on = [\"refused\"]\n";
    let models = model("large", "p2") + &model("small", "acme");
    let text = format!("[seed]\npath = \"data.csv\"\n[output]\ncalls = true\n{models}[[columns]]\n{column}");
    scratch.run_pipeline(&text).assert(0, &["rows out         3"]);
    let shown = scratch.run(&["inspect", "out"]).all();
    for part in [
        "  title: 1 call of p2/large\n    user: Row 0\n",
        "  title: 1 call of p2/large, 1 call of acme/small\n    user: Row 1\n",
        "  title: 2 calls of p2/large (1 retry)\n    user: Row 2\n",
    ] {
        assert!(shown.contains(part), "{part:?} is missing:\n{shown}");
    }
}

#[test]
fn what_cannot_be_inspected_is_an_error() {
    let scratch = run("");
    scratch
        .run(&["inspect", "elsewhere"])
        .assert(5, &["elsewhere is not the output directory of a run: manifest.json"]);
    scratch.run(&["inspect", "out", "--row", "9"]).assert(2, &["out has no row 9; the job has the rows 0 to 4"]);
    scratch.run(&["inspect", "out", "--html", "no/such/place.html"]).assert(5, &["cannot write to no/such/place.html"]);
}

#[test]
fn calls_of_embeddings_images_and_commands_are_shown_in_the_terminal_and_on_the_page() {
    let scratch = Scratch::new(3);
    let columns = [
        ("together", "kind = \"embedding\"\nmodel = \"embedder\"\ndimensions = 4\ninput = \"for all: {{ note }}\""),
        (
            "alone",
            "kind = \"embedding\"\nmodel = \"embedder\"\ndimensions = 4\ninput = \"alone: {{ note }}\"\nbatch_size = 1",
        ),
        ("cover", "kind = \"image\"\nmodel = \"painter\"\nprompt = \"A woodcut: {{ note }}\""),
        ("verdict", "kind = \"judge\"\nmodel = \"echo\"\ninput = \"Row {{ row }}\""),
        ("lint", "kind = \"validation\"\nmodel = \"linter\"\ninput = \"{{ note }}\""),
    ];
    let columns = columns.map(|(name, keys)| format!("[[columns]]\nname = \"{name}\"\n{keys}\n")).concat();
    let models = "[[models]]\nname = \"embedder\"\nprovider = \"mock\"\ndomain = \"embedding\"\nmax_parallel = 2\nmock = {}\n\
                  [[models]]\nname = \"painter\"\nprovider = \"mock\"\ndomain = \"image\"\nmax_parallel = 2\nmock = {}\n\
                  [[models]]\nname = \"echo\"\ncommand = [\"cat\"]\nmax_parallel = 2\n\
                  [[models]]\nname = \"linter\"\nmax_parallel = 2\n\
                  command = [\"sh\", \"-c\", \"if grep -q 'entry 1'; then echo too dull; exit 1; fi\"]\n";
    let text = format!("[seed]\npath = \"data.csv\"\n[output]\ncalls = true\n{models}{columns}");
    scratch.run_pipeline(&text).assert(0, &["rows out         3"]);
    let shown = scratch.run(&["inspect", "out", "--row", "1"]).all();
    for part in [
        "  together: 1 call of mock/embedder/embedding, together with other rows\n    input: for all: entry 1 of",
        "    answer: a vector of 4 numbers\n",
        "  alone: 1 call of mock/embedder/embedding, ",
        " input and 0 output tokens\n    input: alone: entry 1 of",
        "  cover: 1 call of mock/painter/image, ",
        "    input: A woodcut: entry 1 of the breakwater log\n    answer: an image of ",
        "  verdict: 1 call of command/echo\n    input: {\"column\":\"verdict\",\"input\":\"Row 1\",\"row\":1}\n",
        "    answer: {\"column\":\"verdict\",\"input\":\"Row 1\",\"row\":1}\n",
        "  lint: 1 call of command/linter",
        "    input: entry 1 of the breakwater log\n    answer: invalid: too dull\n",
    ] {
        assert!(shown.contains(part), "{part:?} is missing:\n{shown}");
    }
    assert!(scratch.run(&["inspect", "out", "--row", "2"]).all().contains("    answer: valid\n"));
    scratch.run(&["inspect", "out", "--html", "rows.html"]).assert(0, &["3 rows in rows.html"]);
    let page = std::fs::read_to_string(scratch.path("rows.html")).unwrap();
    for part in ["together with other rows", "A woodcut: entry 2", "invalid: too dull", "a vector of "] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
}

#[test]
fn the_calls_of_a_column_for_whole_row_groups_are_shown_with_the_first_row_of_each() {
    let scratch = Scratch::new(6);
    let text = "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 3\n[output]\ncalls = true\n\
                [[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\n\
                [[columns]]\nname = \"overview\"\nmodel = \"m\"\nstrategy = \"full_column\"\n\
                prompt = \"All of part {{ row_group }}\"\n";
    scratch.run_pipeline(text).assert(0, &["rows out         6"]);
    let asked = |part: u64| format!("    user: All of part {part}\n");
    let shown = scratch.run(&["inspect", "out"]).all();
    let places = ["row 0\n", &asked(0), "row 1\n", "row 3\n", &asked(1), "row 4\n"].map(|text| shown.find(text));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {shown}");
    assert_eq!(shown.matches("1 call of mock/m for the whole row group, ").count(), 2, "{shown}");
    let one = scratch.run(&["inspect", "out", "--row", "4"]).all();
    assert!(one.contains(&asked(1)) && !one.contains(&asked(0)), "{one}");
}
