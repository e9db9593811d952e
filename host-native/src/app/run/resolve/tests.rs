use std::path::Path;

use super::*;
use crate::app::data::DatasetFormat;

const MODEL: &str =
    "[seed]\npath = \"d.csv\"\n[[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\n";

/// Resolves columns given as `name|key = value|...` against a dataset with the columns `id` and `note`.
fn resolve(columns: &[&str]) -> Result<Job, String> {
    let tables: Vec<String> = columns
        .iter()
        .map(|column| {
            format!(
                "[[columns]]
name = {}
",
                column.replace(
                    '|', "
"
                )
            )
        })
        .collect();
    resolve_text(&format!("{MODEL}{}", tables.concat()))
}

fn resolve_text(text: &str) -> Result<Job, String> {
    let file =
        PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).map_err(|error| error.to_string())?;
    let dataset = Dataset::parse(Path::new("d.csv"), b"id,note\n1,x\n", DatasetFormat::Csv).unwrap();
    let listed = |errors: Vec<FileError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Job::resolve(&file, dataset).map_err(listed)
}

#[test]
fn upstreams_are_the_columns_that_templates_name_and_those_that_are_listed() {
    let job = resolve(&[
        "\"a\"|model = \"m\"|prompt = \"{{ note }} {{ row }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ a }}\"|upstreams = [\"id\"]",
    ])
    .unwrap();
    assert_eq!(job.columns[0].inputs, [Input::RowNumber, Input::Seed(1)]);
    assert_eq!(job.columns[1].inputs, [Input::Generated(0)]);
    assert_eq!(job.output_columns(), ["id", "note", "a", "b"]);
}

#[test]
fn an_unknown_template_variable_is_refused_where_it_stands() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"\"\"|Sum up:|{{ notes }}\"\"\""]).unwrap_err();
    assert!(error.starts_with("p.toml:13:4: unknown template variable `notes`\n  13 | {{ notes }}"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
    let error = resolve(&["\"a\"|strategy = \"full_column\"|model = \"m\"|prompt = \"{{ note }}\""]).unwrap_err();
    assert!(error.contains("expected one of: rows, row_group"), "{error}");
}

#[test]
fn a_template_that_does_not_parse_is_refused_at_its_line() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"\"\"|Sum up:|{{ note }\"\"\""]).unwrap_err();
    assert!(
        error.starts_with("p.toml:13:9: ") && error.contains("this template does not parse: syntax error"),
        "{error}"
    );
}

#[test]
fn a_missing_upstream_is_refused_where_it_is_listed() {
    let error = resolve(&["\"a\"|kind = \"expression\"|template = \"x\"|upstreams = [\"id\", \"nots\"]"]).unwrap_err();
    assert!(error.starts_with("p.toml:12:20: the column `a` has the upstream `nots`, which does not exist"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
}

#[test]
fn a_cycle_is_refused_with_the_columns_in_it() {
    let error = resolve(&[
        "\"a\"|kind = \"expression\"|template = \"{{ b }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ note }}\"|upstreams = [\"a\"]",
    ])
    .unwrap_err();
    assert!(error.contains("these columns wait for each other: "), "{error}");
    assert!(error.contains("a -> b -> a") || error.contains("b -> a -> b"), "{error}");
    let error = resolve(&["\"a\"|kind = \"expression\"|template = \"{{ a }}\""]).unwrap_err();
    assert!(error.contains("these columns wait for each other: a -> a"), "{error}");
}

#[test]
fn a_duplicate_column_is_refused_at_its_second_place() {
    let column = "\"a\"|kind = \"expression\"|template = \"x\"";
    let error = resolve(&[column, column]).unwrap_err();
    assert!(error.starts_with("p.toml:13:8: the column `a` is there already, from an earlier [[columns]]"), "{error}");
    let error = resolve(&["\"note\"|kind = \"expression\"|template = \"x\""]).unwrap_err();
    assert!(error.contains("from the dataset"), "{error}");
}

#[test]
fn a_weight_out_of_range_is_refused_where_it_stands() {
    for weight in ["0", "-1", "1e9"] {
        let error = resolve(&[&format!("\"a\"|model = \"m\"|prompt = \"x\"|weight = {weight}")]).unwrap_err();
        assert!(error.starts_with("p.toml:12:10: `weight` in [[columns]] is "), "{error}");
        assert!(error.contains("expected a number from 2^-20 to 2^20"), "{error}");
    }
}

#[test]
fn a_name_that_the_row_number_has_is_refused_with_the_way_out() {
    let error = resolve(&["\"row\"|model = \"m\"|prompt = \"x\""]).unwrap_err();
    assert!(
        error.starts_with("p.toml:9:8: `row` is the key of the row number") && error.contains("row_key"),
        "{error}"
    );
    let text =
        format!("{MODEL}[[columns]]\nname = \"row\"\nmodel = \"m\"\nprompt = \"x\"\n[output]\nrow_key = \"nr\"\n");
    resolve_text(&text).expect("another key makes room");
}

#[test]
fn columns_that_are_named_outside_of_templates_are_upstreams_too() {
    let job = resolve(&[
        "\"k\"|kind = \"sampler\"|sampler = { law = \"uuid\" }",
        "\"s\"|kind = \"sampler\"|sampler = { law = \"subcategory\", of = \"k\", values = { a = [1] } }",
        "\"c\"|model = \"m\"|prompt = \"x\"|when = \"k != id\"",
    ])
    .unwrap();
    assert_eq!(job.columns[1].inputs, [Input::Generated(0)]);
    assert_eq!(job.columns[2].inputs, [Input::Seed(0), Input::Generated(0)]);
    let error =
        resolve(&["\"s\"|kind = \"sampler\"|sampler = { law = \"subcategory\", of = \"nots\", values = { a = [1] } }"])
            .unwrap_err();
    assert!(error.contains("`of` in [columns.sampler] names `nots`, which does not exist"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
}

#[test]
fn a_condition_that_does_not_parse_or_reads_what_is_not_there_is_refused_where_it_stands() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"x\"|when = \"note >\""]).unwrap_err();
    assert!(error.starts_with("p.toml:12:") && error.contains("this template does not parse"), "{error}");
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"x\"|when = \"{{ notes }}\""]).unwrap_err();
    assert!(error.starts_with("p.toml:12:12: unknown template variable `notes`"), "{error}");
}

#[test]
fn a_part_of_the_rows_is_chosen_or_refused() {
    let mut job = resolve(&["\"a\"|kind = \"expression\"|template = \"x\""]).unwrap();
    assert_eq!(job.rows, 0..1);
    assert_eq!(job.select(Some(0..9), Some(4)).map(|()| job.rows.clone()), Ok(0..1));
    let error = job.select(Some(1..9), None).unwrap_err();
    assert_eq!(error, "there are no such rows: the dataset has 1, counted from 0");
}

#[test]
fn a_column_is_below_its_upstreams_and_theirs_each_once_and_in_order() {
    let job = resolve(&[
        "\"d\"|kind = \"expression\"|template = \"{{ b }} {{ c }}\"|upstreams = [\"a\"]",
        "\"c\"|kind = \"expression\"|template = \"{{ b }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ a }}\"",
        "\"a\"|kind = \"expression\"|template = \"{{ note }}\"",
    ])
    .unwrap();
    assert_eq!((job.above(0), job.above(1), job.above(3)), (vec![3, 2, 1], vec![3, 2], vec![]));
    assert_eq!(job.columns[0].upstreams, [1, 2, 3]);
}

#[cfg(feature = "parquet")]
#[test]
fn row_groups_that_are_done_are_passed_over_where_the_run_has_them() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("r.parquet");
    let columns = vec![("note".to_string(), ValueKind::Integer)];
    let layout = Layout { format: RowFormat::Parquet, columns };
    let mut file = std::fs::File::create(&path).unwrap();
    layout
        .write(
            (0..50).map(|row| crate::app::data::row_file::FileRow::Made(serde_json::json!({ "note": row }))),
            &mut file,
        )
        .unwrap();
    let text = format!("{MODEL}[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n");
    let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap();
    let mut job = Job::resolve(&file, Dataset::load(&path, DatasetFormat::Parquet).unwrap()).unwrap();
    job.select(Some(10..45), None).unwrap();
    job.pass_over([0, 1, 3, 400], 10);
    assert_eq!(job.dataset.passed_over(), [0..30, 40..45]);
}
