//! Tests of columns of kind `image`: whole runs of the program against the mock and against servers that
//! fail.

use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{MockConfig, MockKey, MockServer};

use crate::support::{Scratch, serve};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Returns a pipeline over `data.csv` with an image model at `base_url` and a column with these keys.
fn pipeline(base_url: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n[run]\nshutdown_rate = \"never\"\nretries = 1\n\
         [[models]]\nname = \"painter\"\nprovider = \"acme\"\ndomain = \"image\"\nbase_url = \"{base_url}\"\n\
         max_parallel = 2\napi_key_env = \"ACME_KEY\"\n\
         [[columns]]\nname = \"photo\"\nkind = \"image\"\nmodel = \"painter\"\nprompt = \"A photo of: {{{{ note }}}}\"\n{keys}\n"
    )
}

/// Runs the pipeline with images of a server that answers with `answer`. Returns the directory, and the exit
/// code with the output.
fn run(answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> (Scratch, (i32, String)) {
    let mut scratch = Scratch::new(1);
    scratch.env("ACME_KEY", "sk-secret");
    let respond = move |Json(body): Json<Value>| async move { Json(json!({ "data": [answer(&body)] })) };
    let server = serve(Router::new().route("/v1/images/generations", post(respond)));
    let ended = scratch.run_pipeline(&pipeline(&(server + "/v1"), ""));
    let output = (ended.code, ended.all());
    (scratch, output)
}

/// Answers with an image, and reports no tokens.
async fn respond_with_image() -> Json<Value> {
    Json(json!({ "data": [{ "b64_json": STANDARD.encode(PNG) }] }))
}

#[test]
fn images_cost_their_price_also_if_the_provider_reports_no_tokens() {
    let mut scratch = Scratch::new(5);
    scratch.env("ACME_KEY", "sk-secret");
    let server = serve(Router::new().route("/v1/images/generations", post(respond_with_image)));
    let text = pipeline(&(server + "/v1"), "").replace("max_parallel", "price = { per_image = 0.5 }\nmax_parallel");
    let ended = scratch.run_pipeline(&text);
    ended.assert(0, &["rows out         5", "cost          2.50   USD, of which none is estimated"]);
    scratch.run(&["pipeline.toml", "--dry-run"]).assert(0, &["2.50"]);
    scratch.write("limited.toml", &text);
    let limited = scratch.run(&["limited.toml", "--out", "limited", "--max-cost", "1.6"]);
    limited.assert(
        8,
        &["rows out         3", "cost          1.50", "the next call might pass the cost limit of 1.60 USD"],
    );
    scratch.write("unpriced.toml", &text.replace("price = { per_image = 0.5 }\n", ""));
    let unpriced = scratch.run(&["unpriced.toml", "--out", "unpriced", "--max-cost", "1"]);
    unpriced.assert(2, &["the model `painter` has none", "`price = { per_image = 0.04 }`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_names_the_file_of_its_image_whether_the_answer_has_it_or_its_address() {
    for format in ["b64_json", "url"] {
        let mut scratch = Scratch::new(3);
        scratch.env("ACME_KEY", "sk-secret");
        let models = vec![("painter".to_string(), ProviderSpec::default())];
        let key = Some(MockKey("sk-secret".to_string()));
        let mock = MockServer::serve(MockConfig { models, key, ..MockConfig::default() }, ([127, 0, 0, 1], 0).into());
        let mock = mock.await.unwrap();
        let keys = format!(
            "size = \"1024x1024\"\nanswer_tokens = 1000\nextra = {{ response_format = \"{format}\", user = \"row {{{{ row }}}}\" }}"
        );
        let text = pipeline(&mock.base_url(), &keys);
        let run = tokio::task::spawn_blocking(move || {
            let ended = scratch.run_pipeline(&text);
            scratch.run(&["check", "pipeline.toml"]).assert(0, &["acme/painter/image", "reached"]);
            let note = "not included: the tokens of the images that `photo` makes, other than by their `answer_tokens`";
            scratch.run(&["pipeline.toml", "--dry-run"]).assert(0, &["photo", " 3000\n", note]);
            (ended, scratch)
        });
        let (ended, scratch) = run.await.unwrap();
        ended.assert(0, &["rows out         3", "calls            3"]);
        assert_eq!(mock.stats().models["painter"].answered, 3, "{format}");
        for (number, row) in scratch.rows("out").iter().enumerate() {
            let path = row["photo"].as_str().unwrap();
            assert!(
                path.starts_with(&format!("images/photo/{number:06}-"))
                    && path.rsplit_once('.').is_some_and(|(_, end)| end == "png"),
                "{path}"
            );
            assert!(std::fs::read(scratch.path("out").join(path)).unwrap().starts_with(PNG), "{path}");
        }
        let used = &scratch.manifest("out")["totals"]["models"]["acme/painter/image"];
        assert_eq!(used["output_tokens"], json!(3 * 272));
    }
}

#[test]
fn what_is_no_image_drops_its_row_and_an_address_elsewhere_is_not_read() {
    let long = STANDARD.encode([PNG, &vec![0; 20 << 20]].concat());
    for (image, part) in [
        (
            json!({ "b64_json": STANDARD.encode("#!/bin/sh") }),
            "the answer is not an image: it is no PNG, JPEG, GIF or WebP",
        ),
        (json!({ "b64_json": long }), "it is longer than 20971520 bytes"),
        (
            json!({ "url": "http://127.0.0.1:9/a.png" }),
            "its address is neither one with https nor that of the provider",
        ),
        (json!({ "url": "file:///etc/passwd" }), "its address is neither one with https nor that of the provider"),
        (
            json!({ "url": "https://10.0.0.7/a.png" }),
            "its address is in a private network, and not that of the provider",
        ),
        (json!({}), "it has neither `b64_json` nor `url`"),
    ] {
        let (scratch, (code, output)) = run(move |_| image.clone());
        assert!(code == 4 && output.contains(part), "{part}: {output}");
        assert!(output.contains("photo: malformed_answer") && !scratch.path("out/images").exists(), "{output}");
    }
}

#[test]
fn an_image_that_cannot_be_downloaded_is_made_again_and_its_address_gets_no_key() {
    let mut scratch = Scratch::new(1);
    scratch.env("ACME_KEY", "sk-secret");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::clone(&seen);
    let respond = |headers: HeaderMap| async move {
        let url = format!("http://{}/gone.png", headers["host"].to_str().unwrap());
        Json(json!({ "data": [{ "url": url }], "usage": { "input_tokens": 5, "output_tokens": 9 } }))
    };
    let gone = get(move |headers: HeaderMap| async move {
        let mut keys = keys.lock().unwrap();
        keys.push(headers.get("authorization").cloned());
        if keys.len() == 1 { (StatusCode::UNAUTHORIZED, &b"expired"[..]) } else { (StatusCode::OK, PNG) }
    });
    let router = Router::new().route("/v1/images/generations", post(respond)).route("/gone.png", gone);
    let ended = scratch.run_pipeline(&pipeline(&(serve(router) + "/v1"), ""));
    ended.assert(0, &["rows out         1", "calls            2"]);
    assert_eq!(*seen.lock().unwrap(), [None, None], "no address gets the key");
    let used = &scratch.manifest("out")["totals"]["models"]["acme/painter/image"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(10), &json!(18)), "both images are paid for");
}

#[test]
fn a_resumed_job_keeps_its_images_and_makes_those_that_are_missing() {
    let (scratch, (code, output)) = run(|_| json!({ "b64_json": STANDARD.encode(PNG) }));
    assert_eq!(code, 0, "{output}");
    let first = scratch.rows("out")[0]["photo"].clone();
    // As after a crash: a part of a file, a file that no row names, and a row that was not written.
    let images = scratch.path("out/images/photo");
    let incomplete = images.join(".000001-0000000000000000.png.tmp");
    std::fs::write(&incomplete, b"\x89PN").unwrap();
    std::fs::write(images.join("000001-0000000000000000.png"), PNG).unwrap();
    let more = std::fs::read_to_string(scratch.path("data.csv")).unwrap() + "1,fog at dawn\n";
    scratch.write("data.csv", &more);
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &["calls            1"]);
    assert!(!incomplete.exists());
    let rows = scratch.rows("out");
    assert_eq!((rows.len(), &rows[0]["photo"]), (2, &first));
    for row in &rows {
        assert_eq!(std::fs::read(scratch.path("out").join(row["photo"].as_str().unwrap())).unwrap(), PNG);
    }
}

#[test]
fn a_replaced_output_has_none_of_the_earlier_images_and_other_files_are_kept() {
    let (scratch, (code, output)) = run(|_| json!({ "b64_json": STANDARD.encode(PNG) }));
    assert_eq!(code, 0, "{output}");
    let path = scratch.path("out").join(scratch.rows("out")[0]["photo"].as_str().unwrap());
    std::fs::write(path.with_file_name("mine.txt"), "mine").unwrap();
    let overwrite = ["run", "pipeline.toml", "--out", "out", "--overwrite"];
    scratch.run(&overwrite).assert(5, &["images/photo/mine.txt"]);
    std::fs::rename(path.with_file_name("mine.txt"), scratch.path("mine.txt")).unwrap();
    std::fs::write(path.with_file_name("000009-0000000000000000.png"), PNG).unwrap();
    scratch.run(&overwrite).assert(0, &[]);
    assert!(path.exists() && !path.with_file_name("000009-0000000000000000.png").exists());
}

#[test]
fn an_image_that_cannot_be_written_stops_the_run_and_its_row_is_made_later() {
    let (scratch, (code, output)) = run(|_| json!({ "b64_json": STANDARD.encode(PNG) }));
    assert_eq!(code, 0, "{output}");
    let more = std::fs::read_to_string(scratch.path("data.csv")).unwrap() + "1,fog at dawn\n";
    scratch.write("data.csv", &more);
    // No directory can have the name of a file.
    let images = scratch.path("out/images");
    std::fs::rename(&images, scratch.path("kept")).unwrap();
    std::fs::write(&images, "").unwrap();
    let resume = ["run", "pipeline.toml", "--out", "out", "--resume"];
    scratch.run(&resume).assert(5, &["cannot write to out/images/photo: "]);
    assert_eq!(scratch.rows("out").len(), 1);
    std::fs::remove_file(&images).unwrap();
    std::fs::rename(scratch.path("kept"), &images).unwrap();
    scratch.run(&resume).assert(0, &["calls            1"]);
    assert_eq!(scratch.rows("out").len(), 2);
}
