//! The JSON Schema and the reference say what the reader reads.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::*;

/// Every table that the reader opens: where the schema has it, and its keys.
fn tables() -> Vec<(&'static str, &'static [&'static str])> {
    vec![
        ("", KEYS),
        ("/properties/seed", settings::SEED_KEYS),
        ("/properties/models/items", models::MODEL_KEYS),
        ("/properties/models/items/properties/aimd", crate::app::config::limit::AIMD_KEYS),
        ("/properties/models/items/properties/budget", models::BUDGET_KEYS),
        ("/properties/models/items/properties/price", models::PRICE_KEYS),
        ("/properties/columns/items", columns::COLUMN_KEYS),
        ("/properties/columns/items/properties/messages/items", kinds::MESSAGE_KEYS),
        ("/properties/columns/items/properties/sampler", sampler::SAMPLER_TABLE_KEYS),
        ("/properties/run", settings::RUN_KEYS),
        ("/properties/output", settings::OUTPUT_KEYS),
    ]
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

/// What the schema has against a file.
fn complaints(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
    let document = document(&SourceText::new("p.toml", text)).expect("the file is TOML");
    validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn the_schema_has_every_key_that_the_reader_knows_and_no_other() {
    let schema = schema();
    for (pointer, keys) in tables() {
        let table = schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is not in the schema"));
        let described: BTreeSet<&str> = table["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(described, keys.iter().copied().collect(), "{pointer}");
        assert_eq!(table["additionalProperties"], false, "{pointer}");
        for (key, value) in table["properties"].as_object().unwrap() {
            assert!(value["description"].as_str().is_some_and(|text| text.len() > 5), "{pointer}/{key}");
        }
    }
}

#[test]
fn the_schema_takes_good_files_and_refuses_bad_ones() {
    assert_eq!(complaints(include_str!("../../../../example/harbour_log.toml")), Vec::<String>::new());
    assert_eq!(complaints(include_str!("../../../../example/harbour_letters.toml")), Vec::<String>::new());
    assert_eq!(complaints(tests::GOOD), Vec::<String>::new());
    for (from, to) in [
        ("max_parallel = 4", "max_paralel = 4"),
        ("weight = 0.5", "weight = 0"),
        ("kind = \"expression\"", "kind = \"expresion\""),
        ("template =", "prompt ="),
        ("timeout = \"5s\"", "timeout = \"5 days\""),
        ("row_group_size = 10", "row_group_size = 0"),
    ] {
        assert!(tests::GOOD.contains(from), "{from}");
        assert!(!complaints(&tests::GOOD.replacen(from, to, 1)).is_empty(), "{to}");
    }
}

#[test]
fn the_schema_takes_a_sampler_for_rows_and_refuses_one_for_row_groups() {
    let file = |strategy: &str| {
        let column = format!("[[columns]]\nname = \"a\"\nkind = \"sampler\"\nstrategy = \"{strategy}\"\n");
        format!("{PRELUDE}{column}sampler = {{ law = \"uuid\" }}\n")
    };
    assert_eq!(complaints(&file("cell")), Vec::<String>::new());
    assert!(!complaints(&file("full_column")).is_empty() && !complaints(&file("from_scratch")).is_empty());
}

/// What stands around an example of the reference that is not a whole file.
const PRELUDE: &str = "[seed]\npath = \"notes.csv\"\n";
const MODELS: &str = "[[models]]\nname = \"writer\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n\
                      [[models]]\nname = \"embedder\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n\
                      domain = \"embedding\"\n\
                      [[models]]\nname = \"grader\"\ncommand = [\"true\"]\nmax_parallel = 1\n";

const REFERENCE: &str = include_str!("../../../../docs/pipeline-file.md");

/// The examples of the reference, each as a whole file.
fn examples() -> Vec<String> {
    let whole = |example: &str| {
        let prelude = if example.contains("[seed]") { "" } else { PRELUDE };
        let models = if example.contains("[[models]]") { "" } else { MODELS };
        format!("{prelude}{models}{example}")
    };
    let is_read_here = |text: &String| cfg!(feature = "parquet") || !text.contains("\"parquet\"");
    let examples = REFERENCE.split("```toml\n").skip(1).map(|rest| whole(rest.split("```").next().unwrap()));
    examples.filter(is_read_here).collect()
}

#[test]
fn every_example_of_the_reference_is_a_good_file() {
    let examples = examples();
    assert!(examples.len() >= 8);
    let mut kinds = BTreeSet::new();
    for text in examples {
        assert_eq!(complaints(&text), Vec::<String>::new(), "{text}");
        let file = PipelineFile::parse(SourceText::new("p.toml", text.clone()), Path::new(""));
        let file = file.unwrap_or_else(|error| panic!("{error}\n{text}"));
        kinds.extend(file.columns.iter().map(|column| column.kind.name()));
        let data = crate::app::data::Dataset::parse(
            Path::new("notes.csv"),
            b"note\nx\n",
            crate::app::data::DatasetFormat::Csv,
        );
        crate::app::run::resolve::Job::resolve(&file, data.unwrap())
            .unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    }
    assert_eq!(kinds.len(), 5, "an example for every kind: {kinds:?}");
}

/// Text that means something somewhere in a pipeline file.
const FRAGMENTS: [&str; 22] = [
    "",
    "0",
    "-1",
    "1e999",
    "18446744073709551616",
    "nan",
    "\"\"",
    "\"é\"",
    "{{",
    "}}",
    "{% if",
    "[[columns]]\n",
    "[]",
    "{}",
    "true",
    "1979-05-27",
    "\n",
    "name = \"a\"\n",
    "schema = { \"$ref\" = \"#\" }\n",
    "when = \"{{ (\"\n",
    "law = \"normal\"",
    "\"\"\"",
];

#[test]
fn no_text_makes_the_reader_panic() {
    let mut rng = tidegate_core::sim::rng::Rng::new(1);
    let examples = examples();
    let mut resolved = 0;
    for round in 0..4_000 {
        let mut text = examples[round % examples.len()].clone();
        for _ in 0..=rng.below(2) {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let from = places[rng.below(places.len() as u64) as usize];
            let length = rng.below(12) as usize;
            let to = text[from..].char_indices().nth(length).map_or(text.len(), |(at, _)| from + at);
            text.replace_range(from..to, FRAGMENTS[rng.below(FRAGMENTS.len() as u64) as usize]);
        }
        let Ok(file) = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")) else { continue };
        let data =
            crate::app::data::Dataset::parse(Path::new("d.csv"), b"note\nx\n", crate::app::data::DatasetFormat::Csv);
        resolved += usize::from(crate::app::run::resolve::Job::resolve(&file, data.unwrap()).is_ok());
    }
    assert!(resolved > 50, "{resolved} files were good in spite of it");
}

#[test]
fn the_reference_names_every_key() {
    for (pointer, keys) in tables() {
        for key in keys {
            assert!(REFERENCE.contains(key), "{pointer}/{key}");
        }
    }
}
