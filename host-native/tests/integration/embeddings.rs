//! Tests of embeddings in batches: whole runs of the program against a local server.

use std::sync::Arc;

use crate::support::{Scratch, serve};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The number of texts of each call that a server got, in order, without health calls. 0 is a single text
/// that is no list.
type Calls = Arc<Mutex<Vec<usize>>>;

/// Returns the vector that stands for a text: its number in the dataset. A health call has another text.
fn vector(text: &Value) -> Value {
    let number: String = text.as_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    json!([number.parse::<u32>().unwrap_or(0)])
}

/// Returns an item of an answer for each text, in order.
fn items(texts: &[Value]) -> Vec<Value> {
    texts.iter().enumerate().map(|(index, text)| json!({ "index": index, "embedding": vector(text) })).collect()
}

fn answer(items: &[Value]) -> Response {
    Json(json!({ "data": items, "usage": { "prompt_tokens": 7 * items.len() } })).into_response()
}

/// Starts an embedding server that answers each list of texts, or single text, with `answer`. Returns its
/// base URL and its calls.
fn embedder(answer: impl Fn(&[Value]) -> Response + Clone + Send + Sync + 'static) -> (String, Calls) {
    let calls = Calls::default();
    let seen = Arc::clone(&calls);
    let route = post(move |Json(body): Json<Value>| async move {
        let list = body["input"].as_array();
        if list.is_some() || body["input"].as_str().unwrap().starts_with("entry ") {
            seen.lock().push(list.map_or(0, Vec::len));
        }
        answer(list.map_or(std::slice::from_ref(&body["input"]), Vec::as_slice))
    });
    (serve(Router::new().route("/v1/embeddings", route)) + "/v1", calls)
}

/// Returns a pipeline over `data.csv` in row groups of 8, with a column `vector` that calls `server`.
fn pipeline(server: &str, column: &str, rest: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nrow_group_size = 8\nrow_groups = 1\nretries = 1\nshutdown_rate = \"never\"\n\
         [[models]]\nname = \"e\"\nprovider = \"remote\"\nbase_url = \"{server}\"\ndomain = \"embedding\"\nmax_parallel = 1\n\
         cooldown = \"20ms\"\nprice = {{ input_per_million = 1000 }}\n\
         [[columns]]\nname = \"vector\"\nkind = \"embedding\"\nmodel = \"e\"\ninput = \"{{{{ note }}}}\"\n{column}\n{rest}"
    )
}

/// Asserts that every row in `out` has the vector of its own text, and returns the numbers of the rows.
fn rows_with_their_vectors(scratch: &Scratch) -> Vec<u64> {
    let number = |row: &Value| {
        let number = row["row"].as_u64().unwrap();
        assert_eq!(row["vector"], json!([number]), "{row}");
        number
    };
    scratch.rows("out").iter().map(number).collect()
}

#[test]
fn rows_of_a_row_group_are_embedded_in_one_call_up_to_the_batch_size() {
    let (server, calls) = embedder(|texts| answer(&items(texts)));
    let scratch = Scratch::new(13);
    let ended = scratch.run_pipeline(&pipeline(&server, "batch_size = 5", ""));
    // 7 tokens for each of 13 rows.
    ended.assert(0, &["rows out        13", "3 answered", "0.0910"]);
    assert_eq!(rows_with_their_vectors(&scratch), (0..13).collect::<Vec<_>>());
    calls.lock().sort_unstable();
    assert_eq!(*calls.lock(), [3, 5, 5], "two row groups of 8 and 5 rows");
}

#[test]
fn a_batch_size_of_one_sends_each_text_by_itself() {
    let (server, calls) = embedder(|texts| answer(&items(texts)));
    let scratch = Scratch::new(3);
    scratch.run_pipeline(&pipeline(&server, "batch_size = 1", "")).assert(0, &["rows out         3"]);
    assert_eq!((rows_with_their_vectors(&scratch).len(), &calls.lock()[..]), (3, &[0, 0, 0][..]));
}

#[test]
fn an_answer_in_another_order_is_assigned_by_index() {
    let (server, _) = embedder(|texts| {
        let mut items = items(texts);
        items.reverse();
        answer(&items)
    });
    let scratch = Scratch::new(8);
    scratch.run_pipeline(&pipeline(&server, "", "")).assert(0, &["rows out         8"]);
    assert_eq!(rows_with_their_vectors(&scratch).len(), 8);
}

#[test]
fn a_text_that_the_provider_rejects_drops_its_own_row_alone() {
    let (server, calls) = embedder(|texts| {
        if texts.iter().any(|text| text.as_str().unwrap().starts_with("entry 5 ")) {
            let error = json!({ "error": { "message": "input 5 is too long" } });
            return (StatusCode::BAD_REQUEST, Json(error)).into_response();
        }
        answer(&items(texts))
    });
    let scratch = Scratch::new(8);
    scratch.run_pipeline(&pipeline(&server, "", "")).assert(6, &["rows out         7", "input 5 is too long"]);
    assert_eq!(rows_with_their_vectors(&scratch), [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(*calls.lock(), [8, 4, 4, 2, 0, 0, 2], "each rejected call is made again for its halves");
}

#[test]
fn if_every_text_is_rejected_each_is_in_one_call_alone_and_few_calls_have_several() {
    let (server, calls) = embedder(|_| StatusCode::BAD_REQUEST.into_response());
    let scratch = Scratch::new(64);
    let text = pipeline(&server, "batch_size = 64", "").replace("row_group_size = 8", "row_group_size = 64");
    scratch.run_pipeline(&text).assert(4, &["rows out         0"]);
    let calls = calls.lock();
    assert_eq!(calls[..6], [64, 32, 16, 8, 4, 2]);
    assert_eq!((calls[6..].iter().sum::<usize>(), calls.len()), (0, 6 + 64));
}

#[test]
fn texts_after_two_rejected_ones_are_in_calls_together_once_one_of_them_is_not_rejected() {
    let is_rejected =
        |text: &Value| ["entry 2 ", "entry 3 "].iter().any(|start| text.as_str().unwrap().starts_with(start));
    let (server, calls) = embedder(move |texts| {
        if texts.iter().any(is_rejected) { StatusCode::BAD_REQUEST.into_response() } else { answer(&items(texts)) }
    });
    let scratch = Scratch::new(16);
    let text = pipeline(&server, "batch_size = 16", "").replace("row_group_size = 8", "row_group_size = 16");
    scratch.run_pipeline(&text).assert(6, &["rows out        14"]);
    assert_eq!(rows_with_their_vectors(&scratch).len(), 14);
    // After 2 and 3, the call of 4 to 7 is not made, but those of 4, of 5, and of 6 and 7.
    assert_eq!(*calls.lock(), [16, 8, 4, 2, 2, 0, 0, 0, 0, 2, 8]);
}

#[test]
fn an_answer_without_a_vector_for_each_text_is_retried_for_fewer_texts_and_counted_as_a_failure() {
    // A server that only reads the first text.
    let (server, calls) = embedder(|texts| answer(&items(&texts[..1])));
    let scratch = Scratch::new(8);
    let ended = scratch.run_pipeline(&pipeline(&server, "", ""));
    ended.assert(0, &["rows out         8", "unreadable answer"]);
    assert_eq!(rows_with_their_vectors(&scratch).len(), 8);
    assert_eq!(*calls.lock(), [8, 0, 0, 0, 0, 0, 0, 0, 0], "the retry is the last one");
    let (server, _) = embedder(|_| answer(&[]));
    let scratch = Scratch::new(2);
    scratch.run_pipeline(&pipeline(&server, "", "")).assert(4, &["rows out         0", "it has no data"]);
}

#[test]
fn a_text_for_which_the_server_fails_drops_its_own_row_alone() {
    let (server, calls) = embedder(|texts| {
        if texts.iter().any(|text| text.as_str().unwrap().starts_with("entry 5 ")) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        answer(&items(texts))
    });
    let scratch = Scratch::new(8);
    let text = pipeline(&server, "batch_size = 8", "").replace("retries = 1", "retries = 2");
    scratch.run_pipeline(&text).assert(6, &["rows out         7"]);
    assert_eq!(rows_with_their_vectors(&scratch), [0, 1, 2, 3, 4, 6, 7]);
    let mut sizes = calls.lock().clone();
    sizes.sort_unstable();
    assert_eq!(sizes.iter().rev().take(5).collect::<Vec<_>>(), [&8, &2, &2, &2, &2], "8, then 2, then 1");
    assert!(sizes.iter().filter(|size| **size == 0).count() >= 2, "{sizes:?}");
}

#[test]
fn rows_whose_call_failed_once_are_all_retried() {
    let failed = Arc::new(Mutex::new(false));
    let (server, calls) = embedder(move |texts| {
        if !std::mem::replace(&mut *failed.lock(), true) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        answer(&items(texts))
    });
    let scratch = Scratch::new(6);
    let text = pipeline(&server, "", "").replace("retries = 1", "retries = 3");
    scratch.run_pipeline(&text).assert(0, &["rows out         6"]);
    assert_eq!(rows_with_their_vectors(&scratch).len(), 6);
    assert!(calls.lock().len() > 1);
}

#[test]
fn skipped_rejected_and_failing_rows_are_in_no_call() {
    let (server, calls) = embedder(|texts| answer(&items(texts)));
    let scratch = Scratch::new(8);
    let first = "[[columns]]\nname = \"kept\"\nkind = \"expression\"\ntemplate = \"{{ id }}\"\naccept_if = \"id | int != 2\"\n\
                 [[columns]]\nname = \"part\"\nkind = \"expression\"\ntemplate = \"{{ 6 // (id | int - 3) }}\"\n";
    let column =
        "when = \"id | int != 4\"\nupstreams = [\"kept\", \"part\"]\naccept_if = \"vector is none or vector[0] != 6\"";
    scratch.run_pipeline(&pipeline(&server, column, first)).assert(6, &["rows out         5"]);
    let rows: Vec<u64> = scratch.rows("out").iter().map(|row| row["row"].as_u64().unwrap()).collect();
    assert_eq!((rows, &calls.lock()[..]), (vec![0, 1, 4, 5, 7], &[5][..]));
}

#[test]
fn a_resumed_run_embeds_the_missing_rows_alone() {
    let is_down = Arc::new(Mutex::new(true));
    let down = Arc::clone(&is_down);
    let (server, calls) = embedder(move |texts| {
        let is_rejected = *down.lock() && texts.iter().any(|text| text.as_str().unwrap().starts_with("entry 3 "));
        if is_rejected { StatusCode::BAD_REQUEST.into_response() } else { answer(&items(texts)) }
    });
    let scratch = Scratch::new(8);
    scratch.run_pipeline(&pipeline(&server, "", "")).assert(6, &["rows out         7"]);
    *is_down.lock() = false;
    calls.lock().clear();
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume", "--retry-dropped"]).assert(0, &["rows out"]);
    assert_eq!((rows_with_their_vectors(&scratch).len(), &calls.lock()[..]), (8, &[0][..]));
}

#[test]
fn a_dry_run_counts_the_calls_of_batches() {
    let scratch = Scratch::new(13);
    scratch.write("pipeline.toml", &pipeline("http://127.0.0.1:9/v1", "batch_size = 5", ""));
    let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", "--dry-run"]);
    let line = ended.stdout.lines().find(|line| line.trim_start().starts_with("vector")).unwrap();
    let figures: Vec<&str> = line.split_whitespace().rev().take(4).collect();
    assert_eq!((ended.code, figures[2], figures[3]), (0, "3", "13"), "{}", ended.all());
}

#[test]
fn a_mock_embeds_batches() {
    let scratch = Scratch::new(20);
    let text = "[seed]\npath = \"data.csv\"\n[[models]]\nname = \"e\"\nprovider = \"mock\"\ndomain = \"embedding\"\nmax_parallel = 2\n\
                mock = {}\n[[columns]]\nname = \"vector\"\nkind = \"embedding\"\nmodel = \"e\"\ninput = \"{{ note }}\"\ndimensions = 4\n";
    scratch.run_pipeline(text).assert(0, &["rows out        20", "calls            1"]);
}

#[test]
fn a_batch_size_out_of_range_or_for_whole_row_groups_is_an_error() {
    let scratch = Scratch::new(1);
    for (column, error) in [
        ("batch_size = 0", "`batch_size` in [[columns]] is 0"),
        ("batch_size = 2049", "`batch_size` in [[columns]] is 2049"),
        (
            "batch_size = 2\nstrategy = \"full_column\"",
            "`batch_size` in [[columns]] is for columns with a vector for each row",
        ),
    ] {
        scratch.run_pipeline(&pipeline("http://127.0.0.1:9/v1", column, "")).assert(2, &[error]);
    }
}
