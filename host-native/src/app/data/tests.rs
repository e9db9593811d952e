use super::*;
use serde_json::json;

fn csv(text: &str) -> Result<Dataset, String> {
    Dataset::parse(Path::new("d.csv"), text.as_bytes(), DatasetFormat::Csv).map_err(|error| error.to_string())
}

fn jsonl(text: &str) -> Result<Dataset, String> {
    Dataset::parse(Path::new("d.jsonl"), text.as_bytes(), DatasetFormat::Jsonl).map_err(|error| error.to_string())
}

fn row(dataset: &Dataset, row: u64) -> Vec<Value> {
    dataset.read(row..row + 1).unwrap().remove(0).into_vec()
}

#[test]
fn csv_rows_are_strings_under_the_header_also_with_quotes_and_line_breaks() {
    let dataset = csv("\u{feff}id,note\n1,\"a \"\"big\"\"\nboat\"\n2,\n").unwrap();
    assert_eq!(dataset.columns(), ["id", "note"]);
    assert_eq!(row(&dataset, 0), [json!("1"), json!("a \"big\"\nboat")]);
    assert_eq!(row(&dataset, 1), [json!("2"), json!("")]);
}

#[test]
fn a_csv_row_of_another_width_is_refused_with_its_line() {
    assert_eq!(csv("a,b\n1,2\n3\n").unwrap_err(), "d.csv:3: the row has 1 fields; expected 2, as in the header");
}

#[test]
fn a_quote_that_is_never_closed_is_refused_instead_of_swallowing_the_rest() {
    let error = csv("a,b\n1,2\n3,\"open\n4,5\n").unwrap_err();
    assert_eq!(error, "d.csv:3: a quoted field that starts here is never closed");
    csv("a,b\n1,\"x\"\"y\"\n2,5\" pipe\n").expect("quotes inside a field are fine");
}

#[test]
fn a_csv_field_that_is_not_utf8_is_refused_with_its_line() {
    let error = Dataset::parse(Path::new("d.csv"), b"a,b\n1,\xff\n", DatasetFormat::Csv).unwrap_err();
    assert_eq!(error.to_string(), "d.csv:2: field 2 is not valid UTF-8");
}

#[test]
fn jsonl_rows_keep_their_types_and_the_column_order_of_the_first() {
    let dataset = jsonl("{\"z\": 1, \"a\": [true]}\n\n{\"a\": null, \"z\": 2.5}\n").unwrap();
    assert_eq!(dataset.columns(), ["z", "a"]);
    assert_eq!(row(&dataset, 1), [json!(2.5), json!(null)]);
}

#[test]
fn a_malformed_jsonl_row_is_refused_with_its_line() {
    for (text, expected) in [
        ("{\"a\":1}\n{\"a\":", "d.jsonl:2: expected one JSON object: EOF while parsing a value at column 5"),
        ("[1]\n", "d.jsonl:1: expected one JSON object: invalid type: sequence, expected an object at column 0"),
        ("{\"a\":1}\n{\"b\":1}\n", "d.jsonl:2: the row has no `a`, which the first row has (write null for no value)"),
        ("{\"a\":1}\n{\"a\":1,\"b\":1}\n", "d.jsonl:2: the row has `b`, which the first row has not"),
        ("{\"a\":1,\"a\":2}\n", "d.jsonl:1: expected one JSON object: the key `a` is there twice at column 13"),
    ] {
        assert_eq!(jsonl(text).unwrap_err(), expected);
    }
}

#[test]
fn a_dataset_without_rows_is_refused() {
    for error in [csv("a,b\n").unwrap_err(), csv("").unwrap_err()] {
        assert_eq!(error, "d.csv: the dataset is empty: expected at least one row");
    }
    assert_eq!(jsonl("{}\n").unwrap_err(), "d.jsonl: the rows have no columns: expected at least one");
    assert!(jsonl("\n\n").unwrap_err().ends_with("the dataset is empty: expected at least one row"));
}

#[test]
fn a_column_named_twice_or_not_at_all_is_refused() {
    assert_eq!(csv("a,a\n1,2\n").unwrap_err(), "d.csv:1: the column `a` is there twice");
    assert_eq!(csv("a,\n1,2\n").unwrap_err(), "d.csv:1: column 2 has no name");
}

/// The rows of a dataset, read whole and in pieces of another size than the marks are apart.
fn in_pieces(dataset: &Dataset) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let starts: Vec<u64> = (0..dataset.rows()).step_by(45).collect();
    for start in starts.iter().rev() {
        let piece = dataset.read(*start..(start + 45).min(dataset.rows())).unwrap();
        rows.splice(0..0, piece.into_iter().map(<[Value]>::into_vec));
    }
    rows
}

#[test]
fn any_rows_of_a_file_are_read_alone_and_in_any_order() {
    let scratch = tempfile::tempdir().unwrap();
    let (table, lines) = (scratch.path().join("d.csv"), scratch.path().join("d.jsonl"));
    let quoted = |row: u64| format!("{row},\"line {row}\nof \"\"two\"\"\"\r\n");
    std::fs::write(&table, "\u{feff}id,note\n".to_string() + &(0..500).map(quoted).collect::<String>()).unwrap();
    let object = |row: u64| format!("{{\"note\":{row},\"id\":\"{row}\"}}\n\n");
    std::fs::write(&lines, "\u{feff}".to_string() + &(0..500).map(object).collect::<String>()).unwrap();
    let table = Dataset::load(&table, DatasetFormat::Csv).unwrap();
    assert_eq!(table.rows(), 500);
    for (number, row) in in_pieces(&table).into_iter().enumerate() {
        assert_eq!(row, [json!(number.to_string()), json!(format!("line {number}\nof \"two\""))]);
    }
    let lines = Dataset::load(&lines, DatasetFormat::Jsonl).unwrap();
    for (number, row) in in_pieces(&lines).into_iter().enumerate() {
        assert_eq!(row, [json!(number), json!(number.to_string())]);
    }
}

#[test]
fn a_file_that_changes_under_way_is_noticed_and_rows_beyond_the_end_are_none() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d.csv");
    std::fs::write(&path, "a\n1\n2\n").unwrap();
    let dataset = Dataset::load(&path, DatasetFormat::Csv).unwrap();
    assert_eq!(dataset.read(1..9).unwrap_err().message, "there are no rows 1..9: the dataset has 2");
    std::fs::write(&path, "a\n1\n").unwrap();
    assert_eq!(dataset.read(0..1).unwrap_err().message, "the file has changed since the run began");
}

#[test]
fn a_csv_row_that_begins_with_a_byte_order_mark_keeps_it() {
    for end in ["\n", "\r\n", "\r"] {
        let text = format!("a,b{end}\u{feff}1,2{end}\u{feff},{end}");
        let dataset = Dataset::parse(Path::new("d.csv"), text.as_bytes(), DatasetFormat::Csv).unwrap();
        let rows = dataset.read(0..dataset.rows()).unwrap();
        assert_eq!(rows, [["\u{feff}1", "2"], ["\u{feff}", ""]].map(|row| Box::from(row.map(Value::from))), "{end:?}");
    }
}
