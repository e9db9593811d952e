//! Tests of images and audio in messages: whole runs of the program.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{MockConfig, MockServer};

use crate::support::{Scratch, serve};

/// Starts a chat server. Returns its base URL and the messages of the requests.
fn chat() -> (String, Arc<Mutex<Vec<Value>>>) {
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let route = post(move |Json(body): Json<Value>| async move {
        seen.lock().unwrap().push(body["messages"].clone());
        Json(json!({ "choices": [{ "message": { "content": "A boat." }, "finish_reason": "stop" }] }))
    });
    (serve(Router::new().route("/v1/chat/completions", route)) + "/v1", requests)
}

/// Returns a scratch directory with photographs and recordings, and a dataset that names some of them.
fn scratch(names: &[Value]) -> Scratch {
    let scratch = Scratch::new(0);
    let lines: Vec<String> = names.iter().map(|photo| json!({ "photo": photo }).to_string() + "\n").collect();
    scratch.write("photos.jsonl", &lines.concat());
    std::fs::create_dir(scratch.path("photos")).unwrap();
    std::fs::write(scratch.path("photos/boat.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    std::fs::write(scratch.path("photos/horn.wav"), b"RIFF\x04\0\0\0WAVEfmt ").unwrap();
    scratch.write("photos/key.png", "-----BEGIN PRIVATE KEY-----");
    scratch
}

/// Returns a pipeline over `photos.jsonl` with a chat model at `base_url` and a column with these keys.
fn pipeline(base_url: &str, model: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"photos.jsonl\"\n[run]\nshutdown_rate = \"never\"\n[output]\ncalls = true\n\
         [[models]]\nname = \"m\"\nprovider = \"acme\"\nbase_url = \"{base_url}\"\nmax_parallel = 2\n{model}\n\
         [[columns]]\nname = \"caption\"\nmodel = \"m\"\n{keys}\n"
    )
}

#[test]
fn each_row_sends_what_its_value_names_before_the_text() {
    let url = "https://photos.test/boat.png";
    let scratch = scratch(&[json!("photos/boat.png"), json!(url), json!(["photos/boat.png", url]), Value::Null]);
    let (server, requests) = chat();
    let keys =
        "system = \"Be brief.\"\nprompt = \"Row {{ row }}\"\nimages = \"{{ photo }}\"\naudio = \"photos/horn.wav\"";
    let text = pipeline(&server, "", keys);
    scratch.run_pipeline(&text).assert(0, &["rows out         4"]);
    let requests = requests.lock().unwrap();
    let content = |row: u32| {
        let about = |messages: &&Value| messages[1].to_string().contains(&format!("Row {row}"));
        requests.iter().find(about).unwrap()[1]["content"].clone()
    };
    let file = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } });
    let address = json!({ "type": "image_url", "image_url": { "url": url } });
    let sound =
        json!({ "type": "input_audio", "input_audio": { "data": "UklGRgQAAABXQVZFZm10IA==", "format": "wav" } });
    let text = |row: u32| json!({ "type": "text", "text": format!("Row {row}") });
    assert_eq!(content(0), json!([file, sound, text(0)]));
    assert_eq!(content(1), json!([address, sound, text(1)]));
    assert_eq!(content(2), json!([file, address, sound, text(2)]));
    assert_eq!(content(3), json!([sound, text(3)]));
    // The system message stays a text, and the calls that are kept have names and no content.
    assert!(requests.iter().all(|messages| messages[0]["content"] == "Be brief."));
    let calls = std::fs::read_to_string(scratch.path("out/rows/000000.calls.jsonl")).unwrap();
    assert!(calls.contains("boat.png") && !calls.contains("iVBOR"), "{calls}");
    scratch.run(&["inspect", "out"]).assert(0, &["media: ", "photos/horn.wav"]);
}

#[test]
fn images_and_recordings_count_in_estimates_and_in_what_a_call_reserves_of_the_cost_limit() {
    let url = "https://photos.test/boat.png";
    let scratch = scratch(&[json!([url, url, url])]);
    let (server, requests) = chat();
    let keys = "prompt = \"Row {{ row }}\"\nimages = \"{{ photo }}\"\naudio = \"photos/horn.wav\"";
    // Four of them, for a thousandth each token, beside some 10 tokens of text and 256 of the answer.
    for (tokens, estimated, code) in [("", 4_000, 8), ("media_tokens = 50\n", 200, 0), ("media_tokens = 0\n", 0, 0)] {
        let model = format!("{tokens}price = {{ input_per_million = 1000, output_per_million = 1000 }}");
        scratch.write("pipeline.toml", &pipeline(&server, &model, keys));
        let dry = scratch.run(&["pipeline.toml", "--dry-run"]);
        dry.assert(0, &["counts as `media_tokens` of its model, else 1000."]);
        let dry = scratch.run(&["pipeline.toml", "--dry-run", "--json"]);
        let plan: Value = serde_json::from_str(&dry.stdout).unwrap();
        let input = plan["models"][0]["input_tokens"].as_u64().unwrap();
        assert!((estimated..estimated + 20).contains(&input), "{tokens}: {input}");
        let run = ["pipeline.toml", "--out", "out", "--overwrite", "--max-cost", "1"];
        scratch.run(&run).assert(code, &["rows out"]);
    }
    assert_eq!(requests.lock().unwrap().len(), 2, "the first call would pass the limit");
    let embedding = "domain = \"embedding\"\nmedia_tokens = 50\n";
    scratch.write("pipeline.toml", &pipeline(&server, embedding, keys));
    scratch.run(&["pipeline.toml", "--out", "out"]).assert(2, &["`media_tokens` only for chat models"]);
}

#[test]
fn a_file_that_is_missing_or_no_image_drops_its_row_with_its_path_and_is_not_sent() {
    let scratch = scratch(&[json!("photos/boat.png"), json!("photos/gull.png"), json!("photos/key.png"), json!(7)]);
    let (server, requests) = chat();
    let text = pipeline(&server, "", "prompt = \"A caption.\"\nimages = [\"{{ photo }}\"]");
    scratch.run_pipeline(&text).assert(6, &["photos/gull.png: No such file"]);
    assert_eq!(requests.lock().unwrap().len(), 1);
    let dropped = scratch.dropped("out");
    let expected = [
        "gull.png: No such file",
        "key.png is application/x-x509-ca-cert; expected an image",
        "`images[0]`: 7 is neither a text",
    ];
    for (line, part) in dropped.iter().zip(expected) {
        assert_eq!(line["reason"], "template");
        assert!(line["detail"].as_str().unwrap().contains(part), "{line}");
    }
    assert_eq!(dropped.len(), 3);
    // What fails for all rows is found before the run.
    scratch.write("pipeline.toml", &text.replace("{{ photo }}", "nowhere/{{ row }}.png"));
    scratch.run(&["pipeline.toml", "--out", "other"]).assert(2, &["nowhere/0.png"]);
}

#[test]
fn a_file_is_read_when_its_call_is_made_and_not_while_its_row_waits() {
    let scratch = scratch(&[json!("photos/boat.png"), json!("photos/gull.png")]);
    std::fs::write(scratch.path("photos/gull.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let photos = ["boat", "gull"].map(|name| scratch.path(&format!("photos/{name}.png")));
    // The only slot is taken by one row until its answer, so the other one waits.
    let route = post(move |Json(_): Json<Value>| async move {
        let _ = photos.each_ref().map(std::fs::remove_file);
        Json(json!({ "choices": [{ "message": { "content": "A boat." }, "finish_reason": "stop" }] }))
    });
    let server = serve(Router::new().route("/v1/chat/completions", route)) + "/v1";
    let text = pipeline(&server, "", "prompt = \"A caption.\"\nimages = \"{{ photo }}\"");
    let text = text.replace("max_parallel = 2", "max_parallel = 1");
    let ended = scratch.run_pipeline(&text);
    ended.assert(6, &["rows out         1", "calls            1", ".png: No such file"]);
    assert_eq!(scratch.dropped("out")[0]["reason"], "template");
}

#[test]
fn a_dataset_cannot_name_files_elsewhere_nor_more_than_a_call_may_have() {
    let many: Vec<String> = (0..101).map(|number| format!("https://photos.test/{number}.png")).collect();
    let scratch = scratch(&[json!("../photos/boat.png"), json!(many), json!("photos/boat.png")]);
    std::fs::create_dir(scratch.path("job")).unwrap();
    std::fs::rename(scratch.path("photos.jsonl"), scratch.path("job/photos.jsonl")).unwrap();
    std::fs::create_dir(scratch.path("job/photos")).unwrap();
    std::fs::copy(scratch.path("photos/boat.png"), scratch.path("job/photos/boat.png")).unwrap();
    let (server, requests) = chat();
    let text = pipeline(&server, "", "prompt = \"A caption.\"\nimages = \"{{ photo }}\"");
    scratch.write("job/pipeline.toml", &text);
    scratch.run(&["job/pipeline.toml", "--out", "out"]).assert(6, &["rows out         1"]);
    assert_eq!(requests.lock().unwrap().len(), 1);
    let details: Vec<String> = scratch.dropped("out").iter().map(|line| line["detail"].to_string()).collect();
    assert!(details[0].contains("boat.png is elsewhere; expected one in the directory"), "{details:?}");
    assert!(details[1].contains("it has more than 100 images and recordings"), "{details:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mock_takes_the_images_of_every_api_as_they_are_and_counts_them() {
    for (api, audio) in [("openai", "audio = \"photos/horn.wav\"\n"), ("responses", ""), ("anthropic", "")] {
        let scratch = scratch(&[json!("photos/boat.png"), json!("https://photos.test/boat.png")]);
        let models = vec![("m".to_string(), ProviderSpec::default())];
        let config = MockConfig { models, ..MockConfig::default() };
        let mock = MockServer::serve(config, ([127, 0, 0, 1], 0).into()).await.unwrap();
        let keys = format!("prompt = \"One two three\"\nimages = \"{{{{ photo }}}}\"\n{audio}");
        let model = format!("api = \"{api}\"");
        let text = pipeline(&mock.base_url(), &model, &keys);
        let (ended, scratch) =
            tokio::task::spawn_blocking(move || (scratch.run_pipeline(&text), scratch)).await.unwrap();
        ended.assert(0, &["rows out         2"]);
        assert_eq!(mock.stats().rejected, 0, "{api}");
        let calls = std::fs::read_to_string(scratch.path("out/rows/000000.calls.jsonl")).unwrap();
        let tokens: Vec<u64> = calls
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["input_tokens"].as_u64().unwrap())
            .collect();
        let expected = 4 + 85 + if audio.is_empty() { 0 } else { 100 };
        assert_eq!(tokens, [expected, expected], "{api}");
    }
}
