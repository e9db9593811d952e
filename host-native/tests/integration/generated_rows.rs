//! Tests of pipelines without a dataset, whose rows are made from samplers and prompts.

use serde_json::json;

use crate::support::Scratch;

/// A pipeline of `rows` people with a letter to each, which the mock writes.
fn pipeline(rows: u64) -> String {
    format!(
        r#"
[run]
rows = {rows}
row_group_size = 4

[[models]]
name = "writer"
provider = "mock"
max_parallel = 4
mock = {{ capacity = {{ shape = "constant", slots = 8 }} }}

[[columns]]
name = "who"
kind = "sampler"
sampler = {{ law = "person", locale = "fr_FR", age = [10, 30] }}

[[columns]]
name = "title"
kind = "sampler"

[columns.sampler]
law = "category"
values = ["Madame", "Monsieur"]
cases = [{{ when = "who.age < 18", law = "category", values = ["Cher"] }}]

[[columns]]
name = "letter"
model = "writer"
prompt = "A letter, number {{{{ row }}}}, to {{{{ title }}}} {{{{ who.last_name }}}}"
"#
    )
}

#[test]
fn a_pipeline_without_a_dataset_makes_rows_and_can_be_extended() {
    let scratch = Scratch::new(0);
    scratch.write("p.toml", &pipeline(6));
    scratch.run(&["check", "p.toml"]).assert(0, &["dataset    none: 6 rows are generated"]);
    scratch.run(&["run", "p.toml", "--dry-run"]).assert(0, &["6 rows"]);
    scratch.run(&["run", "p.toml", "--out", "out"]).assert(0, &["rows out         6"]);
    let first = scratch.rows("out");
    for (number, row) in first.iter().enumerate() {
        assert_eq!(row["row"], json!(number));
        let is_minor = row["who"]["age"].as_u64().unwrap() < 18;
        assert_eq!(row["title"] == "Cher", is_minor, "{row}");
        assert!(row["letter"].is_string(), "{row}");
    }

    scratch.write("p.toml", &pipeline(5));
    let shortened = scratch.run(&["run", "p.toml", "--out", "out", "--resume"]);
    shortened.assert(5, &["the job had 6 rows and now has 5"]);

    scratch.write("p.toml", &pipeline(9));
    scratch
        .run(&["run", "p.toml", "--out", "out", "--resume"])
        .assert(0, &["rows in          9", "resumed          6"]);
    assert_eq!(scratch.rows("out")[..6], first, "rows that exist stay as they are");
    assert_eq!(scratch.rows("out").len(), 9);
}

#[test]
fn rows_are_given_by_a_dataset_or_by_their_number() {
    let scratch = Scratch::new(2);
    let text = pipeline(3);
    for (text, parts) in [
        (format!("[seed]\npath = \"data.csv\"\n{text}"), ["`rows` in [run] is given beside [seed]", "--limit N"]),
        (text.replace("rows = 3", ""), ["has no [seed]", "`rows = ` in [run]"]),
        (text.replace("rows = 3", "rows = 0"), ["`rows` in [run] is 0", "from 1 to 1000000000"]),
    ] {
        scratch.write("p.toml", &text);
        scratch.run(&["run", "p.toml", "--out", "out"]).assert(2, &parts);
    }
    scratch.write("p.toml", &pipeline(3));
    scratch.run(&["run", "p.toml", "--out", "out", "--rows", "3..5"]).assert(2, &["there are no such rows", "3"]);
}

#[test]
fn the_output_has_the_listed_columns_and_fields_and_hides_dropped_ones() {
    let scratch = Scratch::new(0);
    let people = pipeline(3);
    let dropped = people.replace("name = \"title\"\n", "name = \"title\"\ndrop = true\n");
    scratch.write("p.toml", &dropped);
    scratch.run(&["run", "p.toml", "--out", "out"]).assert(0, &[]);
    let keys = |directory: &str| {
        let rows = scratch.rows(directory);
        rows[0].as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>()
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    assert_eq!(keys("out"), names(&["row", "who", "letter"]));
    scratch.run(&["run", "p.toml", "--out", "all", "--all-columns"]).assert(0, &[]);
    assert_eq!(keys("all"), names(&["row", "who", "title", "letter"]));

    // One text a row, as for fine-tuning, and a field of an object under another name.
    let chat = r#"
[[columns]]
name = "messages"
kind = "expression"
output = "json"
template = '[{"role": "user", "content": {{ title | tojson }}}, {"role": "assistant", "content": {{ letter | tojson }}}]'

[output]
format = "csv"
columns = [{ name = "messages" }, { name = "age", from = "who.age" }, { name = "shoe_size", from = "who.shoe.size" }]
"#;
    scratch.write("p.toml", &format!("{people}{chat}"));
    scratch.run(&["run", "p.toml", "--out", "chat"]).assert(0, &[]);
    let text = std::fs::read_to_string(scratch.path("chat/rows/000000.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("row,messages,age,shoe_size"));
    let first = lines.next().unwrap();
    assert!(first.contains(r#"""role"":""assistant"""#) && first.ends_with(','), "{first}");
}
