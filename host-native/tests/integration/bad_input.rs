//! Tests of invalid input: each kind gives an error with its location and its own exit code, and leaves the
//! output untouched.

use crate::support::{self, Scratch, mock_pipeline};

const MOCK: &str = "capacity = { shape = \"constant\", slots = 4 }, latency = { law = \"constant\", latency_ms = 1 }";

fn valid_pipeline() -> String {
    mock_pipeline(4, "", MOCK)
}

/// Runs the valid pipeline with `from` replaced by `to`, and checks that it is rejected and nothing is
/// written.
fn assert_rejected(code: i32, from: &str, to: &str, parts: &[&str]) {
    let valid_pipeline = valid_pipeline();
    assert!(valid_pipeline.contains(from), "{from:?} is not in the pipeline");
    let scratch = Scratch::new(3);
    scratch.run_pipeline(&valid_pipeline.replacen(from, to, 1)).assert(code, parts);
    assert!(!scratch.path("out").exists(), "a rejected pipeline must not touch the output");
}

fn assert_dataset_rejected(text: &str, parts: &[&str]) {
    let scratch = Scratch::new(0);
    scratch.write("data.csv", text);
    scratch.run_pipeline(&valid_pipeline()).assert(3, parts);
    assert!(!scratch.path("out").exists(), "a rejected dataset must not touch the output");
}

#[test]
fn the_valid_pipeline_runs() {
    let scratch = Scratch::new(3);
    scratch.run_pipeline(&valid_pipeline()).assert(0, &["rows in", "rows out"]);
    assert_eq!(scratch.rows("out").len(), 3);
}

#[test]
fn an_unknown_key_exits_2_with_its_location_and_a_suggestion() {
    let parts = ["pipeline.toml:6:1: unknown key `max_paralel` in [[models]]", "did you mean `max_parallel`?"];
    assert_rejected(2, "max_parallel", "max_paralel", &parts);
}

#[test]
fn a_missing_upstream_column_exits_2_and_names_both_columns() {
    let parts = ["the column `loud` has the upstream `titel`, which does not exist", "did you mean `title`?"];
    assert_rejected(2, "template =", "upstreams = [\"titel\"]\ntemplate =", &parts);
}

#[test]
fn a_cycle_exits_2_and_lists_its_columns() {
    let parts = ["these columns wait for each other: ", "title", "loud"];
    assert_rejected(2, "{{ note }}", "{{ note }} {{ loud }}", &parts);
}

#[test]
fn a_duplicate_column_exits_2_with_its_location() {
    let parts = ["the column `title` exists already, from an earlier [[columns]]"];
    assert_rejected(2, "\"loud\"", "\"title\"", &parts);
    assert_rejected(2, "\"loud\"", "\"note\"", &["the column `note` exists already, from the dataset"]);
}

#[test]
fn an_invalid_weight_exits_2_with_the_value_and_the_valid_range() {
    for weight in ["0", "-2", "1e7"] {
        assert_rejected(
            2,
            "kind =",
            &format!("weight = {weight}\nkind ="),
            &["pipeline.toml:15:10: `weight` in [[columns]] is", "2^-20 to 2^20"],
        );
    }
    assert_rejected(2, "kind =", "weight = \"much\"\nkind =", &["`weight` in [[columns]] is the string \"much\""]);
}

#[test]
fn an_unknown_template_variable_exits_2_with_its_location() {
    let parts = ["pipeline.toml:12:27: unknown template variable `nota`", "did you mean `note`?"];
    assert_rejected(2, "{{ note }}", "{{ nota }}", &parts);
}

#[test]
fn text_that_is_not_toml_exits_2() {
    assert_rejected(2, "[seed]", "[seed", &["pipeline.toml:1:6: this is not TOML"]);
}

#[test]
fn a_missing_pipeline_file_exits_2() {
    let scratch = Scratch::new(1);
    scratch.run(&["run", "nowhere.toml"]).assert(2, &["nowhere.toml: cannot read the file: "]);
    scratch.run(&["--no-such-flag"]).assert(2, &["--no-such-flag", "Usage"]);
}

#[test]
fn a_malformed_dataset_row_exits_3_with_its_file_and_line() {
    assert_dataset_rejected("id,note\n1,a\n2\n", &["data.csv:3: the row has 1 fields; expected 2, as in the header"]);
    let scratch = Scratch::new(0);
    scratch.write("data.jsonl", "{\"id\": 1, \"note\": \"a\"}\n{\"id\": 2, \"note\": \n");
    let pipeline = valid_pipeline().replacen("data.csv", "data.jsonl", 1);
    scratch.run_pipeline(&pipeline).assert(3, &["data.jsonl:2: expected one JSON object"]);
}

#[test]
fn an_empty_or_missing_dataset_exits_3() {
    assert_dataset_rejected("id,note\n", &["data.csv: the dataset is empty"]);
    assert_dataset_rejected("", &["data.csv: the dataset is empty"]);
    assert_rejected(3, "data.csv", "nowhere.csv", &["nowhere.csv: cannot read: "]);
}

#[test]
fn existing_output_exits_5_and_is_kept_unless_it_may_be_replaced() {
    let scratch = Scratch::new(3);
    scratch.run_pipeline(&valid_pipeline()).assert(0, &[]);
    let before = std::fs::read(scratch.path("out/rows/000000.jsonl")).unwrap();
    scratch.run_pipeline(&valid_pipeline()).assert(5, &["out is not empty", "--overwrite"]);
    assert_eq!(std::fs::read(scratch.path("out/rows/000000.jsonl")).unwrap(), before);
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--overwrite"]).assert(0, &[]);
    assert_eq!(std::fs::read(scratch.path("out/rows/000000.jsonl")).unwrap(), before, "answers depend on prompts only");
}

#[test]
fn an_unwritable_output_directory_exits_5() {
    let scratch = Scratch::new(1);
    scratch.write("pipeline.toml", &valid_pipeline());
    scratch.write("file", "");
    scratch.run(&["run", "pipeline.toml", "--out", "file/out"]).assert(5, &["cannot write to file/out"]);
}

#[test]
fn an_unset_key_variable_exits_2_with_its_name() {
    let scratch = Scratch::new(1);
    let pipeline = support::remote_pipeline("http://127.0.0.1:9/v1", "api_key_env = \"TIDEGATE_TEST_NO_KEY\"", "");
    scratch.run_pipeline(&pipeline).assert(2, &["environment variable `TIDEGATE_TEST_NO_KEY`, which is not set"]);
}

#[test]
fn a_row_range_outside_the_dataset_exits_2_and_changes_nothing() {
    let scratch = Scratch::new(3);
    scratch.write("p.toml", &valid_pipeline());
    let parts = ["there are no such rows: the dataset has 3, counted from 0"];
    scratch.run(&["run", "p.toml", "--rows", "3..9"]).assert(2, &parts);
    scratch.run(&["run", "p.toml", "--dry-run", "--rows", "3.."]).assert(2, &parts);
    let large = valid_pipeline().replacen("row_group_size = 10", "row_group_size = 4294967295", 1);
    scratch.write("large.toml", &large);
    scratch.run(&["run", "large.toml", "--dry-run"]).assert(2, &["row_group_size"]);
    scratch.run(&["run", "p.toml", "--rows", "9..3"]).assert(2, &["the range is empty"]);
    scratch.run(&["run", "p.toml", "--limit", "0"]).assert(2, &["--limit"]);
    scratch.run(&["run", "p.toml", "--dry-run", "--record", "x"]).assert(2, &["cannot be used with"]);
    assert!(!scratch.path("out").exists());
}

#[cfg(feature = "parquet")]
#[test]
fn a_dataset_that_is_not_valid_parquet_exits_3() {
    let scratch = Scratch::new(0);
    scratch.write("data.parquet", "id,note\n1,a\n");
    let pipeline = valid_pipeline().replacen("data.csv", "data.parquet", 1);
    scratch.run_pipeline(&pipeline).assert(3, &["data.parquet: this is not a Parquet file: "]);
}

#[test]
fn an_invalid_schema_and_a_model_of_the_wrong_domain_exit_2_with_their_location() {
    let parts = ["pipeline.toml:13:10: this is not a JSON Schema", "expected a JSON Schema"];
    assert_rejected(2, "[[columns]]\nname = \"loud\"", "schema = { type = 7 }\n[[columns]]\nname = \"loud\"", &parts);
    let parts =
        ["the model `m` has the domain `chat`; a column of kind `embedding` calls one of the domain `embedding`"];
    let embedding = "kind = \"embedding\"\ninput = \"x\"";
    assert_rejected(2, "prompt = \"A title for: {{ note }}\"", embedding, &parts);
}

#[test]
fn the_json_schema_of_each_file_format_is_printed() {
    for (arguments, title) in [
        (["schema"].as_slice(), "A pipeline file of tidegate"),
        (&["schema", "pipeline"], "A pipeline file of tidegate"),
        (&["schema", "proxy"], "A proxy file of tidegate"),
        (&["schema", "scenario"], "A scenario file of tidegate"),
    ] {
        let ended = Scratch::new(0).run(arguments);
        ended.assert(0, &["https://json-schema.org/draft/2020-12/schema"]);
        let schema: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
        assert_eq!(schema["title"], title);
    }
}
