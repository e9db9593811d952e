//! Every example of a pipeline file in the docs is run against the mock.
//!
//! An example that shows only a part of a file is completed by other examples: the dataset is that of the
//! first one of the reference, and a model that is not declared is that of the first example which declares
//! it.

use std::collections::BTreeMap;
use std::path::Path;

use axum::Router;
use axum::routing::{get, post};
use encoding_rs::{Encoding, UTF_8};
use serde_json::Value as Json;
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_native::app::mock::{BatchSettings, MockConfig, MockServer};
use toml::{Table, Value};

use crate::support::authority::Authority;
#[cfg(unix)]
use crate::support::redis_server::RedisServer;
use crate::support::{Scratch, serve};

const NOTES: &str =
    "note,full name\nThe lamp of the pier is out,Ada\nTwo boats were late,Bo\nÉclat on the quay,Émile\n";

/// An example, and where it is in the docs.
struct Example {
    place: String,
    file: Table,
}

impl Example {
    fn models(&self) -> &[Value] {
        self.file.get("models").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// Returns the examples of pipeline files in the pages of `docs`. Fails for TOML of an unknown kind.
fn examples() -> Vec<Example> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages: Vec<_> = std::fs::read_dir(docs).unwrap().map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut examples = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_str().unwrap();
        for (start, fence) in text.match_indices("```toml") {
            let place = format!("{name}:{}", text[..start].lines().count() + 1);
            let block = text[start + fence.len()..].split("```").next().unwrap();
            let file: Table = toml::from_str(block).unwrap_or_else(|error| panic!("{place}: {error}"));
            match file {
                _ if file.contains_key("columns") => examples.push(Example { place, file }),
                // The tests of the proxy, of the mock and of the library read these.
                _ if ["providers", "dependencies"].iter().any(|table| file.contains_key(*table)) => {}
                _ if name == "mock.md" => {}
                _ => panic!("{place}: neither a pipeline with [[columns]], nor a file of the proxy or of a mock"),
            }
        }
    }
    examples
}

/// Returns the names of the models that the columns of `file` call.
fn called_models(file: &Table) -> Vec<String> {
    let columns = file["columns"].as_array().unwrap().iter();
    let names = columns.flat_map(|column| [column.get("model"), column.get("models")]).flatten();
    let names = names.flat_map(|names| names.as_array().cloned().unwrap_or_else(|| vec![names.clone()]));
    names.map(|name| name.as_str().unwrap().to_string()).collect()
}

/// Completes the example to a whole pipeline.
fn complete(example: &Example, base: &Example, known: &BTreeMap<String, Value>) -> Table {
    let mut file = example.file.clone();
    let has_rows = file.get("run").is_some_and(|run| run.get("rows").is_some());
    if !file.contains_key("seed") && !has_rows {
        file.insert("seed".to_string(), base.file["seed"].clone());
    }
    let mut models = example.models().to_vec();
    for name in called_models(&file) {
        if !models.iter().any(|model| model["name"].as_str() == Some(&name)) {
            let model = known.get(&name);
            models.push(model.unwrap_or_else(|| panic!("{}: no model `{name}`", example.place)).clone());
        }
    }
    file.insert("models".to_string(), Value::Array(models));
    file
}

/// The addresses of this machine that stand for those of the examples.
struct Local {
    mock: String,
    /// The mock behind TLS, and the certificate of its authority.
    secure_mock: String,
    authority: String,
    dataset: String,
    secure_dataset: String,
    /// A server that judges.
    judge: String,
}

impl Local {
    /// Returns the address behind TLS if `table` names authorities, after it has written their file; else the
    /// other.
    fn address(&self, table: &Table, [plain, secure]: [&str; 2], scratch: &Scratch) -> Value {
        let Some(name) = table.get("ca_file") else { return plain.into() };
        scratch.write(name.as_str().unwrap(), &self.authority);
        secure.into()
    }
}

/// Replaces the addresses and programs of the example by those of this machine, and its keys by others.
fn make_local(file: &mut Table, local: &Local, scratch: &mut Scratch) {
    for model in file["models"].as_array_mut().unwrap() {
        let model = model.as_table_mut().unwrap();
        if let Some(address) = model.get_mut("url") {
            *address = local.judge.as_str().into();
        }
        if model.contains_key("base_url") {
            model["base_url"] = local.address(model, [&local.mock, &local.secure_mock], scratch);
        }
        for name in model.get("pass_env").and_then(Value::as_array).into_iter().flatten() {
            scratch.env(name.as_str().unwrap(), "sk-of-the-examples");
        }
        // It may not be installed.
        if let Some(command) = model.get_mut("command").filter(|command| command[0].as_str() == Some("ruff")) {
            *command = vec!["true"].into();
        }
        if let Some(name) = model.get("api_key_env") {
            scratch.env(name.as_str().unwrap(), "sk-of-the-examples");
        }
        for value in model.get("extra_headers").and_then(Value::as_table).into_iter().flatten() {
            if let Some(name) = value.1.get("env") {
                scratch.env(name.as_str().unwrap(), "sk-of-the-examples");
            }
        }
    }
    let Some(seed) = file.get_mut("seed").and_then(Value::as_table_mut) else { return };
    let path = seed["path"].as_str().unwrap();
    if path.starts_with("http") {
        seed["path"] = local.address(seed, [&local.dataset, &local.secure_dataset], scratch);
    } else {
        let encoding = seed
            .get("encoding")
            .map_or(UTF_8, |label| Encoding::for_label(label.as_str().unwrap().as_bytes()).unwrap());
        for name in dataset_files(path) {
            let path = scratch.path(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, encoding.encode(NOTES).0).unwrap();
        }
    }
}

/// Returns the names of files that a dataset at `path` has: two of them for a pattern or a directory.
fn dataset_files(path: &str) -> Vec<String> {
    let numbered = |pattern: &str| ["1", "2"].map(|number| pattern.replace('*', number)).to_vec();
    match Path::new(path).extension() {
        None => numbered(&format!("{path}/*.csv")),
        Some(_) if path.contains('*') => numbered(path),
        Some(_) => vec![path.to_string()],
    }
}

/// Returns a directory with the files that the examples name.
fn scratch() -> Scratch {
    let mut scratch = Scratch::new(0);
    let cache = scratch.path("cache").display().to_string();
    scratch.env("TIDEGATE_CACHE_DIR", &cache);
    for row in 0..NOTES.lines().count() - 1 {
        scratch.write(&format!("photos/{row}.jpg"), "GIF89a");
        scratch.write(&format!("radio/{row}.wav"), "RIFF\u{4}\0\0\0WAVEfmt ");
    }
    scratch.write("tides.py", "import json, sys\nprint('07:12 on', json.load(sys.stdin)['day'])\n");
    scratch.write("spelling.py", "import os, sys\nsys.exit(0 if os.environ['SPELLING_KEY'] else 4)\n");
    scratch.write("grade.schema.json", r#"{ "type": "object", "properties": { "score": { "type": "integer" } } }"#);
    scratch.write("grade.py", "import json, sys\nprint(json.dumps({'length': len(json.load(sys.stdin)['input'])}))\n");
    scratch
}

#[test]
fn every_example_of_a_pipeline_in_the_docs_runs_against_the_mock() {
    let examples = examples();
    let base = examples.iter().find(|example| example.place.starts_with("pipeline-file.md")).unwrap();
    let mut known = BTreeMap::new();
    for model in examples.iter().flat_map(Example::models) {
        known.entry(model["name"].as_str().unwrap().to_string()).or_insert_with(|| model.clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = MockConfig {
        models: vec![("any".to_string(), ProviderSpec::default())],
        any_model: true,
        batch_settings: "delay_ms=50".parse::<BatchSettings>().unwrap(),
        ..MockConfig::default()
    };
    let mock = runtime.block_on(MockServer::serve(config, ([127, 0, 0, 1], 0).into())).unwrap();
    let authority = Authority::new();
    let port = runtime.block_on(authority.forward("localhost", mock.address()));
    let dataset = serve(Router::new().route("/notes.csv", get(|| async { NOTES })));
    let dataset_address = dataset.strip_prefix("http://").unwrap().parse().unwrap();
    let dataset_port = runtime.block_on(authority.forward("localhost", dataset_address));
    let local = Local {
        mock: mock.base_url(),
        secure_mock: format!("https://localhost:{port}/v1"),
        authority: authority.pem(),
        secure_dataset: format!("https://localhost:{dataset_port}/notes.csv"),
        dataset: dataset + "/notes.csv",
        judge: serve(Router::new().route("/check", post(|| async { r#"{ "language": "en" }"# }))) + "/check",
    };
    let mut faults = Vec::new();
    for example in &examples {
        let mut scratch = scratch();
        let mut file = complete(example, base, &known);
        make_local(&mut file, &local, &mut scratch);
        #[cfg(unix)]
        let _server = file.get("share").map(|share| {
            let server = RedisServer::start();
            scratch.env(share["url_env"].as_str().unwrap(), &server.url());
            server
        });
        #[cfg(not(unix))]
        file.remove("share");
        let text = toml::to_string(&file).unwrap();
        scratch.write("pipeline.toml", &text);
        let planned = scratch.run(&["pipeline.toml", "--dry-run"]);
        let ended = scratch.run_pipeline(&text);
        let is_filtered = file["columns"].as_array().unwrap().iter().any(|column| column.get("accept_if").is_some());
        let has_all_rows = || {
            let manifest = scratch.manifest("out");
            manifest["rows_out"] == manifest["rows_in"]
        };
        let extension = if scratch.manifest("out")["format"] == "csv" { "csv" } else { "jsonl" };
        let export = format!("all.{extension}");
        let exported = scratch.run(&["pipeline.toml", "--out", "out", "--resume", "--export", &export]);
        let is_exported = scratch.path(&export).exists();
        let codes = [&planned, &ended, &exported].map(|ended| ended.code);
        if codes != [0; 3] || !is_exported || !(is_filtered || has_all_rows()) {
            let outputs = [planned, ended, exported].map(|ended| ended.all()).join("\n");
            faults.push(format!("{}:\n{text}\n{outputs}", example.place));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(mock.stats().rejected, 0, "the mock takes every request as it is");
}

/// Keys without an example that runs here, and where they are shown and tested instead.
const SHOWN_ELSEWHERE: [(&str, &str); 7] = [
    (".columns.sampler.when", "a key of `cases`, which has it"),
    (".columns.sampler.cases.", "keys of the sampler itself, which are shown there"),
    (".models.mock.", "keys of a simulated provider, which docs/mock.md shows"),
    (".models.aimd.", "keys of the model itself, which are shown there"),
    (".share.ca_file", "docs/sharing.md and the tests of sharing over TLS"),
    (".share.client_cert_file", "docs/sharing.md and the tests of sharing over TLS"),
    (".share.client_key_file", "docs/sharing.md and the tests of sharing over TLS"),
];

/// Returns the properties that `node` of the schema declares, in any of its alternatives.
fn properties<'a>(schema: &'a Json, node: &'a Json) -> BTreeMap<&'a str, &'a Json> {
    let referred = node.get("$ref").map(|place| {
        let place = place.as_str().unwrap().trim_start_matches('#');
        schema.pointer(place).unwrap()
    });
    let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|key| node.get(key)?.as_array()).flatten();
    let own = node.get("properties").and_then(Json::as_object).into_iter().flatten();
    let mut found: BTreeMap<&str, &Json> = own.map(|(key, value)| (key.as_str(), value)).collect();
    for other in alternatives.chain(referred).chain(node.get("items")) {
        found.extend(properties(schema, other));
    }
    found
}

/// Adds the paths of the keys that `node` declares and no table of `values` has to `unused`.
fn find_unused(schema: &Json, node: &Json, values: &[&Value], path: &str, unused: &mut Vec<String>) {
    for (key, declared) in properties(schema, node) {
        let path = format!("{path}.{key}");
        if SHOWN_ELSEWHERE.iter().any(|(shown, _)| path == *shown || shown.ends_with('.') && path.starts_with(shown)) {
            continue;
        }
        let values = values.iter().filter_map(|value| value.get(key));
        let values: Vec<&Value> =
            values.flat_map(|value| value.as_array().map_or_else(|| vec![value], |all| all.iter().collect())).collect();
        match values[..] {
            [] => unused.push(path),
            _ => find_unused(schema, declared, &values, &path, unused),
        }
    }
}

#[test]
fn every_key_of_a_pipeline_file_is_in_an_example_of_the_docs() {
    let schema: Json = serde_json::from_str(include_str!("../../docs/pipeline.schema.json")).unwrap();
    let files: Vec<Value> = examples().into_iter().map(|example| Value::Table(example.file)).collect();
    let mut unused = Vec::new();
    find_unused(&schema, &schema, &files.iter().collect::<Vec<_>>(), "", &mut unused);
    assert_eq!(unused, Vec::<String>::new());
}

#[test]
fn every_command_of_the_page_about_runs_ends_well() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/running.md");
    let page = std::fs::read_to_string(page).unwrap();
    let pipeline = "[seed]\npath = \"data.csv\"\n\
                    [[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 4\nmock = {}\nprice = { input_per_million = 1 }\n\
                    [[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\n";
    let mut commands = 0;
    for block in page.split("```sh\n").skip(1) {
        let scratch = Scratch::new(24);
        scratch.write("PIPELINE.toml", pipeline);
        let block = block.split("```").next().unwrap();
        if block.contains("inspect OUT") {
            scratch.run(&["PIPELINE.toml", "--out", "OUT"]).assert(0, &[]);
        }
        for line in block.lines().filter(|line| line.starts_with("tidegate ")) {
            // The port may be taken.
            let line = line.replace("127.0.0.1:9464", "127.0.0.1:0");
            let words: Vec<&str> = line.split_whitespace().skip(1).take_while(|word| *word != "#").collect();
            // The tests have no terminal.
            let (code, part) = if words.contains(&"--tui") { (2, "terminal") } else { (0, "") };
            scratch.run(&words).assert(code, &[part]);
            commands += 1;
        }
    }
    assert!(commands > 15, "{commands} commands were found");
}
