//! Tests that the JSON Schema and the reference agree with the parser.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::*;

fn parsed_schema() -> Value {
    serde_json::from_str(&schema()).expect("the schema is JSON")
}

/// Returns the errors of the schema for a file.
fn schema_errors(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&parsed_schema()).expect("the schema is one");
    let document = document(&SourceText::new("p.toml", text)).expect("the file is TOML");
    validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[cfg(feature = "parquet")]
#[test]
fn the_stored_schema_matches_the_types() {
    crate::app::config::schema::assert_stored("pipeline", &schema());
}

#[test]
fn the_schema_accepts_valid_files_and_rejects_invalid_ones() {
    assert_eq!(schema_errors(include_str!("../../../../example/harbour_log.toml")), Vec::<String>::new());
    assert_eq!(schema_errors(include_str!("../../../../example/harbour_letters.toml")), Vec::<String>::new());
    assert_eq!(schema_errors(include_str!("../../../../example/harbour_verdicts.toml")), Vec::<String>::new());
    assert_eq!(schema_errors(tests::VALID), Vec::<String>::new());
    for (from, to) in [
        ("max_parallel = 4", "max_paralel = 4"),
        ("weight = 0.5", "weight = 0"),
        ("kind = \"expression\"", "kind = \"expresion\""),
        ("template =", "prompt ="),
        ("timeout = \"5s\"", "timeout = \"5 days\""),
        ("row_group_size = 10", "row_group_size = 0"),
        ("slots = 3", "slot = 3"),
        ("seed = 9", "seeds = 9"),
        ("\"constant\"", "\"konstant\""),
    ] {
        assert!(tests::VALID.contains(from), "{from}");
        assert!(!schema_errors(&tests::VALID.replacen(from, to, 1)).is_empty(), "{to}");
    }
}

#[test]
fn the_schema_accepts_a_sampler_for_rows_and_rejects_one_for_row_groups() {
    let file = |strategy: &str| {
        let column = format!("[[columns]]\nname = \"a\"\nkind = \"sampler\"\nstrategy = \"{strategy}\"\n");
        format!("{PRELUDE}{column}sampler = {{ law = \"uuid\" }}\n")
    };
    assert_eq!(schema_errors(&file("cell")), Vec::<String>::new());
    assert!(!schema_errors(&file("full_column")).is_empty() && !schema_errors(&file("from_scratch")).is_empty());
}

/// Completes an example of the reference that is not a whole file.
const PRELUDE: &str = "[seed]\npath = \"notes.csv\"\n";
const MODELS: &str = "[[models]]\nname = \"writer\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n\
                      [[models]]\nname = \"embedder\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n\
                      domain = \"embedding\"\n\
                      [[models]]\nname = \"grader\"\ncommand = [\"true\"]\nmax_parallel = 1\n\
                      [[models]]\nname = \"checker\"\nurl = \"http://h/check\"\nmax_parallel = 1\n";

const REFERENCE: &str = include_str!("../../../../docs/pipeline-file.md");
/// Documents the settings of mock providers.
const MOCK_REFERENCE: &str = include_str!("../../../../docs/mock.md");

/// Returns the examples of the reference, each completed to a whole file.
fn examples() -> Vec<String> {
    let whole = |example: &str| {
        let has_rows = example.contains("[seed]") || example.contains("\nrows = ");
        let prelude = if has_rows { "" } else { PRELUDE };
        let models = if example.contains("[[models]]") { "" } else { MODELS };
        format!("{prelude}{models}{example}")
    };
    let is_read_here = |text: &String| cfg!(feature = "parquet") || !text.contains("\"parquet\"");
    let examples = REFERENCE.split("```toml\n").skip(1).map(|rest| whole(rest.split("```").next().unwrap()));
    examples.filter(is_read_here).collect()
}

#[test]
fn every_example_of_the_reference_is_valid() {
    let examples = examples();
    assert!(examples.len() >= 8);
    let mut kinds = BTreeSet::new();
    for text in examples {
        assert_eq!(schema_errors(&text), Vec::<String>::new(), "{text}");
        // The files that examples name are not here.
        let names_file = |line: &str| ["ca_file", "schema_file", "json_mode"].iter().any(|key| line.starts_with(key));
        let text: String = text.split_inclusive('\n').filter(|line| !names_file(line)).collect();
        let file = PipelineFile::parse(SourceText::new("p.toml", text.clone()), Path::new(""));
        let file = file.unwrap_or_else(|error| panic!("{error}\n{text}"));
        kinds.extend(file.columns.iter().map(|column| column.kind.name()));
        let data = crate::app::data::Dataset::parse(
            Path::new("notes.csv"),
            b"note,full name\nx,y\n",
            crate::app::data::DatasetFormat::Csv,
        );
        crate::app::run::resolve::ResolvedPipeline::resolve(&file, data.unwrap())
            .unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    }
    assert_eq!(kinds.len(), 10, "an example for every kind: {kinds:?}");
}

/// Text fragments that are significant somewhere in a pipeline file.
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
fn no_mutated_file_makes_the_parser_panic() {
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
        resolved += usize::from(crate::app::run::resolve::ResolvedPipeline::resolve(&file, data.unwrap()).is_ok());
    }
    assert!(resolved > 50, "only {resolved} mutated files were valid");
}

/// Returns the keys of all tables of the schema, each with its description.
fn described_keys(schema: &Value) -> Vec<(String, Value)> {
    let own = schema["properties"].as_object().into_iter().flatten();
    let own = own.map(|(key, value)| (key.clone(), value["description"].clone()));
    let below =
        schema.as_object().into_iter().flat_map(|map| map.values()).chain(schema.as_array().into_iter().flatten());
    own.chain(below.flat_map(described_keys)).collect()
}

#[test]
fn the_reference_names_every_key_and_the_schema_describes_it() {
    let keys = described_keys(&parsed_schema());
    assert!(keys.len() > 80, "{}", keys.len());
    for (key, description) in keys.iter().filter(|(_, description)| !description.is_null()) {
        assert!([REFERENCE, MOCK_REFERENCE].iter().any(|page| page.contains(key.as_str())), "{key}");
        assert!(description.as_str().is_some_and(|text| text.len() > 5), "{key}");
    }
}
