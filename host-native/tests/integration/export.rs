//! Tests of `--export`: all rows of a job in one file.

use std::path::Path;

use crate::support::Scratch;
use serde_json::{Value, json};
#[cfg(feature = "parquet")]
use tidegate_native::app::data::{Dataset, DatasetFormat};

/// A pipeline that needs no model: `rows` people, with `output` as the keys of its output.
fn people(rows: u64, output: &str) -> String {
    format!(
        "[run]\nrows = {rows}\nrow_group_size = 4\n\
         [[columns]]\nname = \"who\"\nkind = \"sampler\"\nsampler = {{ law = \"person\" }}\n\
         [[columns]]\nname = \"share\"\nkind = \"sampler\"\nsampler = {{ law = \"uniform\", low = 0, high = 1 }}\n\
         [[columns]]\nname = \"line\"\nkind = \"expression\"\ntemplate = 'A \"line\", of {{{{ who.name }}}}'\n\
         [output]\n{output}\n"
    )
}

const LISTED: &str =
    "columns = [{ name = \"age\", from = \"who.age\" }, { name = \"line\" }, { name = \"share\" }, { name = \"who\" }]";

fn jsonl(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_export_has_the_listed_columns_of_every_row_in_order() {
    let scratch = Scratch::new(0);
    scratch.write("p.toml", &people(10, LISTED));
    scratch
        .run(&["p.toml", "--out", "out", "--export", "data.jsonl"])
        .assert(0, &["exported        10   to data.jsonl"]);
    let mut rows = scratch.rows("out");
    for row in &mut rows {
        row.as_object_mut().unwrap().remove("row").unwrap();
    }
    let exported = jsonl(&scratch.path("data.jsonl"));
    assert_eq!(exported, rows);
    let text = std::fs::read_to_string(scratch.path("data.jsonl")).unwrap();
    let order = ["{\"age\":", ",\"line\":", ",\"share\":", ",\"who\":"].map(|key| text.find(key).unwrap());
    assert!(order.is_sorted(), "the order of the list: {text}");

    // A finished job is exported by a later run, in another format.
    scratch.run(&["p.toml", "--out", "out", "--resume", "--export", "table.csv"]).assert(0, &["exported        10"]);
    let text = std::fs::read_to_string(scratch.path("table.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), ["age", "line", "share", "who"]);
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 10);
    assert_eq!(records[9][1], exported[9]["line"].as_str().unwrap().to_string());
    assert_eq!(records[9][3], exported[9]["who"].to_string());
}

#[cfg(feature = "parquet")]
#[test]
fn rows_in_any_format_with_types_are_exported_to_any_format_without_a_change() {
    let scratch = Scratch::new(0);
    for format in ["jsonl", "parquet"] {
        scratch.write("p.toml", &people(10, &format!("{LISTED}\nformat = \"{format}\"")));
        for export in ["jsonl", "parquet", "csv"] {
            let name = format!("{format}.{export}");
            scratch.run(&["p.toml", "--out", format, "--resume", "--export", &name]).assert(0, &["exported        10"]);
        }
        let data = Dataset::load(&scratch.path(&format!("{format}.parquet")), DatasetFormat::Parquet, None).unwrap();
        assert_eq!(data.columns(), ["age", "line", "share", "who"]);
        let rows = jsonl(&scratch.path(&format!("{format}.jsonl")));
        for (row, exported) in data.read(0..10).unwrap().iter().zip(&rows) {
            assert_eq!((&row[1], &row[2]), (&exported["line"], &exported["share"]));
            assert_eq!(row[3], exported["who"].to_string(), "JSON text");
        }
    }
    for export in ["jsonl", "parquet", "csv"] {
        let read = |format: &str| std::fs::read(scratch.path(&format!("{format}.{export}"))).unwrap();
        assert_eq!(read("jsonl"), read("parquet"), "{export}");
    }
}

#[test]
fn a_record_gives_each_line_its_form_and_keeps_types() {
    let scratch = Scratch::new(0);
    let record = format!(
        "{LISTED}\n\n[output.record]\nid = \"{{{{ row }}}}\"\nkind = \"chat\"\nperson = \"{{{{ who }}}}\"\n\
         messages = [{{ role = \"user\", content = \"Who is {{{{ age + 1 }}}} next year?\" }}, \
         {{ role = \"assistant\", content = \"{{{{ line }}}}\" }}]\n"
    );
    scratch.write("p.toml", &people(5, &record));
    let arguments = ["p.toml", "--out", "out", "--export", "chat.jsonl"];
    scratch
        .run(&[&arguments[..], &["--dry-run"]].concat())
        .assert(0, &["export  chat.jsonl, with the keys id, kind, messages, person"]);
    assert!(!scratch.path("chat.jsonl").exists());
    scratch.run(&arguments).assert(0, &["exported         5   to chat.jsonl"]);
    let (lines, rows) = (jsonl(&scratch.path("chat.jsonl")), scratch.rows("out"));
    for (number, (line, row)) in lines.iter().zip(&rows).enumerate() {
        let next = row["age"].as_u64().unwrap() + 1;
        let messages = json!([
            { "role": "user", "content": format!("Who is {next} next year?") },
            { "role": "assistant", "content": row["line"] },
        ]);
        assert_eq!(line, &json!({ "id": number, "kind": "chat", "person": row["who"], "messages": messages }));
    }
    // Other formats have the columns.
    scratch.run(&["p.toml", "--out", "out", "--resume", "--export", "chat.csv"]).assert(0, &[]);
    assert!(std::fs::read_to_string(scratch.path("chat.csv")).unwrap().starts_with("age,line,share,who\n"));
    // Every column under its own name, and so no record of the others.
    scratch
        .run(&["p.toml", "--out", "all", "--all-columns", "--export", "all.jsonl"])
        .assert(0, &["exported         5   to all.jsonl"]);
    assert_eq!(jsonl(&scratch.path("all.jsonl"))[0].as_object().unwrap().len(), 3);
}

#[test]
fn a_record_that_is_wrong_is_an_error_with_its_place_and_one_that_fails_names_the_row() {
    let scratch = Scratch::new(0);
    for (record, part) in [
        ("record = { a = \"{{ who }}\" }", "the output has no column `who`"),
        ("record = { a = \"{{ ag }}\" }", "did you mean `age`?"),
        ("record = { a = \"{{ age | bogus }}\" }", "bogus"),
        ("record = { a = \"x {{ age\" }", "`record` in [output] does not parse"),
        ("record = {}", "at least one key"),
    ] {
        scratch.write("p.toml", &people(5, &format!("columns = [{{ name = \"age\", from = \"who.age\" }}]\n{record}")));
        scratch.run(&["p.toml", "--out", "out"]).assert(2, &["p.toml:", part]);
    }
    scratch.write("p.toml", &people(5, "record = { a = \"{{ who.shoe }}\" }"));
    let ended = scratch.run(&["p.toml", "--out", "out", "--export", "a.jsonl"]);
    ended.assert(2, &["a.jsonl was not written: `record` in [output] fails for row 0", "`who.shoe` is undefined"]);
    assert!(!scratch.path("a.jsonl").exists() && !scratch.path(".a.jsonl.tmp").exists());
    assert_eq!(scratch.rows("out").len(), 5, "the rows stay");
}

/// A dataset of two stories, a copy of each with few changes, and rows without a story.
const STORIES: &str = r#"{"story": "Fog came in at dawn, and the keeper lit the lamp before the first boat left the harbour."}
{"story": "A gull stole the keeper's bread while he was mending the long net on the pier."}
{"story": "fog came in at dawn and the keeper lit the lamp, before the first boat left the quay"}
{"story": null}
{"story": "The harbour was closed."}
{"story": null}
{"story": "A gull stole the keeper's bread while he was mending the long net on the pier!"}
"#;

#[test]
fn an_export_leaves_out_rows_that_are_nearly_the_same_as_an_earlier_row_in_any_order_of_the_run() {
    let scratch = Scratch::new(0);
    scratch.write("stories.jsonl", STORIES);
    let file = |unique: &str| {
        format!(
            "[seed]\npath = \"stories.jsonl\"\n[run]\nrow_group_size = 2\n[[columns]]\nname = \"n\"\nkind = \"expression\"\n\
                 template = \"{{{{ row }}}}\"\n[output]\n{unique}\n"
        )
    };
    let numbers = |path: &str| {
        jsonl(&scratch.path(path)).iter().map(|row| row["n"].as_str().unwrap().to_string()).collect::<Vec<_>>().concat()
    };
    scratch.write("p.toml", &file("unique = { column = \"story\" }"));
    let arguments = ["p.toml", "--out", "out", "--export", "a.jsonl"];
    scratch
        .run(&[&arguments[..], &["--dry-run"]].concat())
        .assert(0, &["without rows whose `story` has a similarity of 0.8 with an earlier one"]);
    let ended = scratch.run(&arguments);
    ended.assert(0, &["exported         5   to a.jsonl", "left out         2   nearly the same as an earlier row"]);
    ended.assert(0, &["such as row 2: ", "% like row 0"]);
    assert_eq!(numbers("a.jsonl"), "01345");
    assert_eq!(scratch.rows("out").len(), 7, "the rows stay");
    // The rows of the first row group are made last.
    scratch.run(&["p.toml", "--out", "late"]).assert(0, &[]);
    std::fs::remove_file(scratch.path("late/rows/000000.jsonl")).unwrap();
    scratch
        .run(&["p.toml", "--out", "late", "--resume", "--export", "b.jsonl", "--json"])
        .assert(0, &["\"left_out\":{"]);
    assert_eq!(numbers("b.jsonl"), "01345");
    // The same rows again, with another bound.
    scratch.write("p.toml", &file("unique = { column = \"story\", similarity = 1 }"));
    scratch.run(&["p.toml", "--out", "out", "--resume", "--export", "c.jsonl"]).assert(0, &["left out         1"]);
    assert_eq!(numbers("c.jsonl"), "012345");
    scratch.write("p.toml", &file("columns = [{ name = \"n\" }]\nunique = { column = \"story\" }"));
    let no_column = "`column` in [output.unique] is no column of the output: `story`";
    scratch.run(&arguments).assert(2, &["p.toml:", no_column, "expected one of: n"]);
    scratch.run(&["p.toml", "--out", "all", "--all-columns", "--export", "d.jsonl"]).assert(0, &["exported         7"]);
}

#[test]
fn only_an_export_of_the_same_directory_is_replaced() {
    let scratch = Scratch::new(0);
    scratch.write("p.toml", &people(5, ""));
    scratch.write("data.csv", "mine");
    let run = |how: &str, file: &str| scratch.run(&["p.toml", "--out", "out", how, "--export", file]);
    run("--resume", "data.csv")
        .assert(5, &["data.csv exists, and is not as it was exported from out", "remove the file"]);
    assert_eq!(std::fs::read_to_string(scratch.path("data.csv")).unwrap(), "mine");
    assert!(!scratch.path("out").exists(), "found before the run starts");
    std::fs::remove_file(scratch.path("data.csv")).unwrap();
    run("--resume", "data.csv").assert(0, &["exported         5"]);
    // An extended job, and a new one in the same directory.
    scratch.write("p.toml", &people(7, ""));
    run("--resume", "data.csv").assert(0, &["exported         7"]);
    scratch.write("p.toml", &people(3, ""));
    run("--overwrite", "data.csv").assert(0, &["exported         3"]);
    // Another directory, and a file that was changed by hand.
    let other = scratch.run(&["p.toml", "--out", "other", "--export", "data.csv"]);
    other.assert(5, &["is not as it was exported from other"]);
    std::fs::write(scratch.path("data.csv"), "changed").unwrap();
    run("--resume", "data.csv").assert(5, &["is not as it was exported from out"]);
}

#[test]
fn an_export_that_cannot_be_is_an_error_before_the_run() {
    let scratch = Scratch::new(3);
    scratch.write("p.toml", &people(5, "format = \"csv\""));
    let run = |arguments: &[&str]| scratch.run(&[&["p.toml", "--out", "out"], arguments].concat());
    run(&["--export", "a.jsonl"]).assert(2, &["rows in CSV have no types", "ends in .csv"]);
    run(&["--export", "none/a.csv"]).assert(5, &["cannot write to none/a.csv: No such file"]);
    run(&["--export", "a.txt"]).assert(2, &["expected a name that ends in one of: .jsonl, .csv"]);
    run(&["--export", "a.csv", "--report", "a.csv"]).assert(2, &["--export and --report name one file"]);
    run(&["--export", "out/a.csv"]).assert(5, &["cannot write to out/a.csv"]);
    std::fs::create_dir(scratch.path("out")).unwrap();
    run(&["--export", "out/a.csv"]).assert(2, &["inside of the output directory out"]);
    scratch.write(
        "p.toml",
        "[seed]\npath = \"data.csv\"\n[[columns]]\nname = \"x\"\nkind = \"expression\"\ntemplate = \"x\"\n",
    );
    run(&["--export", "data.csv"]).assert(2, &["the dataset and --export name one file"]);
    assert!(!scratch.path("a.csv").exists());
}

#[test]
fn the_export_of_an_unfinished_job_waits_until_its_rows_are_done() {
    let scratch = Scratch::new(8);
    let judge = "[seed]\npath = \"data.csv\"\n\
                 [[models]]\nname = \"j\"\ncommand = [\"sh\", \"judge.sh\"]\nmax_parallel = 1\n\
                 [[columns]]\nname = \"v\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"id\"]\n\
                 [run]\nrow_group_size = 4\nretries = 0\nshutdown_window = 2\n";
    scratch.write("p.toml", judge);
    scratch.write("judge.sh", "grep -q '\"row\":[67],' && exit 1; echo 1\n");
    let ended = scratch.run(&["p.toml", "--out", "out", "--export", "data.jsonl"]);
    ended.assert(4, &["data.jsonl is not written, because rows are missing; --resume makes and exports them"]);
    assert!(!scratch.path("data.jsonl").exists());
    // Dropped rows are no part of it.
    scratch.write("p.toml", &judge.replace("shutdown_window = 2", "shutdown_rate = \"never\""));
    scratch.write("judge.sh", "grep -q '\"row\":7,' && exit 1; echo 1\n");
    scratch
        .run(&["p.toml", "--out", "out", "--resume", "--retry-dropped", "--export", "data.jsonl"])
        .assert(6, &["exported         7   to data.jsonl", "--export data.jsonl --resume --retry-dropped"]);
    assert_eq!(jsonl(&scratch.path("data.jsonl")).len(), 7);
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_former_export_and_nothing_half_written() {
    let scratch = Scratch::new(0);
    // Row groups of less than 4 KiB, which is at most what a file may have under the limit below.
    scratch.write("p.toml", &people(96, ""));
    scratch.run(&["p.toml", "--out", "out", "-q"]).assert(0, &[]);
    let program = env!("CARGO_BIN_EXE_tidegate");
    let limited = format!("trap '' XFSZ; ulimit -f 4; exec {program} p.toml --out out --resume --export data.jsonl -q");
    let ended = scratch.shell(&limited);
    ended.assert(5, &["cannot write to data.jsonl: File too large"]);
    assert!(!scratch.path("data.jsonl").exists() && !scratch.path(".data.jsonl.tmp").exists());
    scratch.run(&["p.toml", "--out", "out", "--resume", "--export", "data.jsonl", "-q"]).assert(0, &[]);
    let whole = std::fs::read(scratch.path("data.jsonl")).unwrap();
    scratch.shell(&limited).assert(5, &["cannot write to data.jsonl: File too large"]);
    assert_eq!(std::fs::read(scratch.path("data.jsonl")).unwrap(), whole);
    assert!(!scratch.path(".data.jsonl.tmp").exists());
}

#[test]
fn rows_files_that_are_gone_are_no_smaller_export() {
    let scratch = Scratch::new(0);
    scratch.write("p.toml", &people(9, ""));
    scratch.run(&["p.toml", "--out", "out"]).assert(0, &[]);
    let path = scratch.path("out/rows/000001.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let two: String = text.split_inclusive('\n').take(2).collect();
    std::fs::write(&path, two).unwrap();
    let ended = scratch.run(&["p.toml", "--out", "out", "--resume", "--export", "data.jsonl"]);
    ended.assert(5, &["out has 7 rows, but 9 were written: its files have changed"]);
    assert!(!scratch.path("data.jsonl").exists());
}

#[test]
fn the_example_of_the_reference_exports_conversations() {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find("### A record for each line of an export").unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scratch = Scratch::new(0);
    scratch.write("notes.csv", "note\nFog at the pier\nTwo boats \"late\"\n");
    let model = "[[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 2\n\
                 mock = { capacity = { shape = \"constant\", slots = 2 } }\n";
    scratch.write("p.toml", &format!("[seed]\npath = \"notes.csv\"\n{model}{example}"));
    scratch.run(&["run", "p.toml", "--out", "out", "--export", "chat.jsonl"]).assert(0, &["exported         2"]);
    let lines = jsonl(&scratch.path("chat.jsonl"));
    assert_eq!(lines[1]["messages"][0], json!({ "role": "user", "content": "Two boats \"late\"" }));
    assert_eq!(lines[1]["messages"][1]["role"], "assistant");
    assert!(lines[1]["score"].is_u64(), "{}", lines[1]);
}
