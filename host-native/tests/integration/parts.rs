//! Tests of shuffled datasets, and of runs of one part of a dataset.

use crate::support::Scratch;
use serde_json::Value;

/// A pipeline over `PATH` in row groups of 4 that makes no call.
fn pipeline(seed: &str) -> String {
    format!(
        "[seed]\n{seed}\n[run]\nrow_group_size = 4\nseed = 7\n\
         [[columns]]\nname = \"text\"\nkind = \"expression\"\ntemplate = \"{{{{ note }}}}!\"\n\
         [[columns]]\nname = \"draw\"\nkind = \"sampler\"\nsampler = {{ law = \"uniform\", low = 0, high = 1 }}\n"
    )
}

const SHUFFLED: &str = "path = \"data.csv\"\nshuffle = true";

fn numbers(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["row"].as_u64().unwrap()).collect()
}

/// Returns the ids of rows in the dataset.
fn ids(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["id"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_shuffled_dataset_is_numbered_in_its_order_which_only_the_seed_changes() {
    let scratch = Scratch::new(30);
    scratch.run_pipeline(&pipeline(SHUFFLED)).assert(0, &["rows out        30"]);
    let all = scratch.rows("out");
    assert_eq!(numbers(&all), (0..30).collect::<Vec<_>>());
    assert_ne!(ids(&all), (0..30).collect::<Vec<_>>());
    let mut sorted = ids(&all);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..30).collect::<Vec<_>>());
    assert!(all.iter().all(|row| row["text"] == format!("{}!", row["note"].as_str().unwrap())));
    scratch.run(&["run", "pipeline.toml", "--out", "some", "--rows", "9..30", "--limit", "6"]).assert(0, &[]);
    assert_eq!(scratch.rows("some"), all[9..15], "the order does not depend on the part that is run");
    scratch.write("other.toml", &pipeline(SHUFFLED).replace("seed = 7", "seed = 8"));
    scratch.run(&["run", "other.toml", "--out", "other"]).assert(0, &[]);
    assert_ne!(ids(&scratch.rows("other")), ids(&all));
}

#[test]
fn a_shuffled_job_is_extended_and_resumed_but_not_with_other_rows() {
    let scratch = Scratch::new(20);
    scratch.write("pipeline.toml", &pipeline(SHUFFLED));
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--limit", "6"]).assert(0, &["rows out         6"]);
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &["6 rows are done already"]);
    scratch.run(&["run", "pipeline.toml", "--out", "whole"]).assert(0, &[]);
    assert_eq!(scratch.rows("out"), scratch.rows("whole"));
    let text = std::fs::read_to_string(scratch.path("data.csv")).unwrap();
    scratch.write("data.csv", &format!("{text}20,one more\n"));
    scratch
        .run(&["run", "pipeline.toml", "--out", "out", "--resume"])
        .assert(5, &["the dataset has changed since then"]);
    scratch.write("data.csv", &text);
    scratch.write("pipeline.toml", &pipeline("path = \"data.csv\""));
    scratch
        .run(&["run", "pipeline.toml", "--out", "out", "--resume"])
        .assert(5, &["`shuffle` in [seed] was true and is now false"]);
}

#[cfg(feature = "parquet")]
#[test]
fn a_shuffled_parquet_file_has_the_order_and_the_types_of_its_rows() {
    let scratch = Scratch::new(30);
    let plain = pipeline("path = \"data.csv\"");
    scratch.run_pipeline(&plain).assert(0, &[]);
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume", "--export", "all.parquet"]).assert(0, &[]);
    let column =
        "[[columns]]\nname = \"copy\"\nkind = \"expression\"\noutput = \"number\"\ntemplate = \"{{ draw }}\"\n";
    let seed = "[seed]\npath = \"all.parquet\"\nshuffle = true\n[run]\nseed = 7\n[output]\nrow_key = \"place\"\n";
    scratch.write("parquet.toml", &format!("{seed}{column}"));
    scratch.run(&["run", "parquet.toml", "--out", "parquet"]).assert(0, &["rows out        30"]);
    scratch.write("csv.toml", &pipeline(SHUFFLED));
    scratch.run(&["run", "csv.toml", "--out", "csv"]).assert(0, &[]);
    let shuffled = scratch.rows("parquet");
    assert_eq!(ids(&shuffled), ids(&scratch.rows("csv")), "the order depends on the number of rows alone");
    assert!(shuffled.iter().all(|row| row["draw"].is_f64() && row["draw"] == row["copy"]), "{shuffled:?}");
}

#[test]
fn the_parts_of_a_dataset_are_together_what_one_run_makes() {
    let scratch = Scratch::new(30);
    scratch.run_pipeline(&pipeline(SHUFFLED)).assert(0, &[]);
    let mut parts = Vec::new();
    for (part, rows) in [("1/4", 7), ("2/4", 8), ("3/4", 7), ("4/4", 8)] {
        let out = format!("part-{}", &part[..1]);
        let first = ["run", "pipeline.toml", "--out", &out, "--partition", part, "--limit", "3"];
        scratch.run(&first).assert(0, &["rows out         3"]);
        let ended = scratch.run(&["run", "pipeline.toml", "--out", &out, "--partition", part, "--resume"]);
        ended.assert(0, &["3 rows are done already"]);
        let made = scratch.rows(&out);
        assert_eq!(made.len(), rows, "{part}");
        parts.extend(made);
    }
    assert_eq!(parts, scratch.rows("out"));
    scratch.run(&["run", "pipeline.toml", "--out", "some", "--partition", "2/4", "--rows", "10.."]).assert(0, &[]);
    assert_eq!(numbers(&scratch.rows("some")), (10..15).collect::<Vec<_>>());
}

#[test]
fn a_part_is_resumed_only_as_the_same_part_of_the_same_dataset() {
    let scratch = Scratch::new(10);
    scratch.write("pipeline.toml", &pipeline("path = \"data.csv\""));
    let run = |partition: &[&str]| scratch.run(&[&["run", "pipeline.toml", "--out", "out"], partition].concat());
    run(&["--partition", "1/3"]).assert(0, &["rows out         3"]);
    run(&["--resume", "--partition", "1/2"]).assert(5, &["--partition was 1/3 of 10 rows and is now 1/2 of 10 rows"]);
    run(&["--resume"]).assert(5, &["--partition was 1/3 of 10 rows and is now all"]);
    let text = std::fs::read_to_string(scratch.path("data.csv")).unwrap();
    scratch.write("data.csv", &format!("{text}10,one more\n"));
    run(&["--resume", "--partition", "1/3"]).assert(5, &["the dataset has changed since then"]);
}

#[test]
fn a_part_of_rows_without_a_dataset_is_not_resumed_with_another_number_of_rows() {
    let scratch = Scratch::new(0);
    let write = |rows: u32| {
        let column = "[[columns]]\nname = \"n\"\nkind = \"expression\"\ntemplate = \"{{ row }}\"\n";
        scratch.write("pipeline.toml", &format!("[run]\nrows = {rows}\n{column}"));
    };
    let run = |more: &[&str]| scratch.run(&[&["run", "pipeline.toml", "--out", "out"], more].concat());
    write(10);
    run(&["--partition", "1/2"]).assert(0, &["rows out         5"]);
    write(20);
    run(&["--partition", "1/2", "--resume"]).assert(5, &["--partition was 1/2 of 10 rows and is now 1/2 of 20 rows"]);
    assert_eq!(scratch.rows("out").len(), 5);
}

#[test]
fn a_part_that_does_not_exist_or_has_no_rows_is_an_error() {
    let scratch = Scratch::new(3);
    scratch.write("pipeline.toml", &pipeline("path = \"data.csv\""));
    let run = |partition: &[&str]| scratch.run(&[&["run", "pipeline.toml", "--out", "out"], partition].concat());
    run(&["--partition", "5/4"]).assert(2, &["expected a part from 1/4 to 4/4"]);
    run(&["--partition", "1/4"]).assert(2, &["the dataset has 3, counted from 0; the partition 1/4 is the rows 0..0"]);
    run(&["--partition", "2/2", "--rows", "0..1"]).assert(2, &["the partition 2/2 is the rows 1..3"]);
    let accepting = "[run]\nrows = 4\n[[columns]]\nname = \"draw\"\nkind = \"sampler\"\naccept_if = \"draw > 0.5\"\n\
                     sampler = { law = \"uniform\", low = 0, high = 1 }\n";
    scratch.write("accepting.toml", accepting);
    let ended = scratch.run(&["run", "accepting.toml", "--out", "out", "--partition", "1/2"]);
    ended.assert(2, &["--partition 1/2 has no effect on rows that are made until enough are accepted"]);
}
