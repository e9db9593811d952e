//! The seed dataset: CSV or JSONL rows, read and checked whole before the first call costs anything.
//!
//! Every row has the same columns. A row that does not is refused with its file and line, because a run that quietly
//! skips input is worse than one that does not start.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How a dataset file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetFormat {
    /// Comma-separated values with a header line (RFC 4180). Every value is a string.
    Csv,
    /// One JSON object a line. Values keep their JSON type.
    Jsonl,
}

impl DatasetFormat {
    /// The format that the extension of `path` names.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        }
    }
}

/// Rows with named columns; at least one of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    columns: Vec<String>,
    rows: Vec<Box<[Value]>>,
}

impl Dataset {
    /// Reads the file at `path`.
    pub fn load(path: &Path, format: DatasetFormat) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(|error| DatasetError::unreadable(path, &error))?;
        Self::parse(path, &bytes, format)
    }

    /// Reads `bytes`, the content of a file called `path` in messages.
    pub fn parse(path: &Path, bytes: &[u8], format: DatasetFormat) -> Result<Self, DatasetError> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let dataset = match format {
            DatasetFormat::Csv => parse_csv(path, bytes)?,
            DatasetFormat::Jsonl => parse_jsonl(path, bytes)?,
        };
        if dataset.rows.is_empty() {
            return Err(DatasetError::new(path, None, "the dataset is empty: expected at least one row"));
        }
        if dataset.columns.is_empty() {
            return Err(DatasetError::new(path, None, "the rows have no columns: expected at least one"));
        }
        Ok(dataset)
    }

    /// Column names in file order.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The rows in file order, each with one value per column.
    #[must_use]
    pub fn rows(&self) -> &[Box<[Value]>] {
        &self.rows
    }
}

/// A dataset that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, when one line is to blame.
    pub line: Option<u64>,
    /// What is wrong with it.
    pub message: String,
}

impl DatasetError {
    /// The file at `path` cannot be read.
    #[must_use]
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self::new(path, None, format!("cannot read: {error}"))
    }

    fn new(path: &Path, line: Option<u64>, message: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, message: message.into() }
    }
}

impl fmt::Display for DatasetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for DatasetError {}

fn parse_csv(path: &Path, bytes: &[u8]) -> Result<Dataset, DatasetError> {
    let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
    let columns: Vec<String> =
        reader.headers().map_err(|error| csv_error(path, &error))?.iter().map(str::to_string).collect();
    check_columns(path, 1, &columns)?;
    let mut rows = Vec::new();
    let mut last_record = (0, 1);
    for record in reader.records() {
        let record = record.map_err(|error| csv_error(path, &error))?;
        if let Some(position) = record.position() {
            last_record = (usize::try_from(position.byte()).unwrap_or(usize::MAX), position.line());
        }
        rows.push(record.iter().map(|field| Value::String(field.to_string())).collect());
    }
    let (start, line) = last_record;
    if ends_inside_quotes(bytes.get(start..).unwrap_or_default()) {
        return Err(DatasetError::new(path, Some(line), "a quoted field that starts here is never closed"));
    }
    Ok(Dataset { columns, rows })
}

fn csv_error(path: &Path, error: &csv::Error) -> DatasetError {
    let line = error.position().map(csv::Position::line);
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the row has {len} fields; expected {expected_len}, as in the header")
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("field {} is not valid UTF-8", err.field() + 1),
        csv::ErrorKind::Io(error) => format!("cannot read: {error}"),
        _ => error.to_string(),
    };
    DatasetError::new(path, line, message)
}

/// Whether CSV text, read from the start of a record, ends within a quoted field. The csv reader accepts that and would
/// swallow everything after a stray quote into one field.
fn ends_inside_quotes(record: &[u8]) -> bool {
    let mut in_quotes = false;
    let mut at_field_start = true;
    for byte in record {
        match byte {
            // A doubled quote closes and opens again: the same state after both.
            b'"' if in_quotes || at_field_start => in_quotes = !in_quotes,
            _ => {}
        }
        // Right after a closing quote another one continues the field.
        at_field_start = !in_quotes && matches!(byte, b',' | b'\n' | b'\r' | b'"');
    }
    in_quotes
}

fn parse_jsonl(path: &Path, bytes: &[u8]) -> Result<Dataset, DatasetError> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = index as u64 + 1;
        let refuse = |message: String| DatasetError::new(path, Some(number), message);
        let text = std::str::from_utf8(line).map_err(|_| refuse("the line is not valid UTF-8".to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        let OrderedObject(fields) = serde_json::from_str(text)
            .map_err(|error| refuse(format!("expected one JSON object: {}", json_message(&error))))?;
        if rows.is_empty() {
            columns = fields.iter().map(|(name, _)| name.clone()).collect();
            check_columns(path, number, &columns)?;
        }
        rows.push(in_column_order(&columns, fields).map_err(refuse)?);
    }
    Ok(Dataset { columns, rows })
}

/// The message of a JSON error with the column only: the line is always 1 within a line.
fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

/// The values of `fields` in the order of `columns`, which they must match one to one.
fn in_column_order(columns: &[String], mut fields: Vec<(String, Value)>) -> Result<Box<[Value]>, String> {
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(at) = fields.iter().position(|(name, _)| name == column) else {
            return Err(format!("the row has no `{column}`, which the first row has (write null for no value)"));
        };
        values.push(fields.swap_remove(at).1);
    }
    match fields.first() {
        Some((name, _)) => Err(format!("the row has `{name}`, which the first row has not")),
        None => Ok(values.into_boxed_slice()),
    }
}

fn check_columns(path: &Path, line: u64, columns: &[String]) -> Result<(), DatasetError> {
    for (index, column) in columns.iter().enumerate() {
        if column.trim().is_empty() {
            return Err(DatasetError::new(path, Some(line), format!("column {} has no name", index + 1)));
        }
        if columns[..index].contains(column) {
            return Err(DatasetError::new(path, Some(line), format!("the column `{column}` is there twice")));
        }
    }
    Ok(())
}

/// A JSON object whose keys keep their order and occur once.
struct OrderedObject(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for OrderedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = OrderedObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedObject, A::Error> {
                let mut fields: Vec<(String, Value)> = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format_args!("the key `{name}` is there twice")));
                    }
                    fields.push((name, value));
                }
                Ok(OrderedObject(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn csv(text: &str) -> Result<Dataset, String> {
        Dataset::parse(Path::new("d.csv"), text.as_bytes(), DatasetFormat::Csv).map_err(|error| error.to_string())
    }

    fn jsonl(text: &str) -> Result<Dataset, String> {
        Dataset::parse(Path::new("d.jsonl"), text.as_bytes(), DatasetFormat::Jsonl).map_err(|error| error.to_string())
    }

    #[test]
    fn csv_rows_are_strings_under_the_header_also_with_quotes_and_line_breaks() {
        let dataset = csv("\u{feff}id,note\n1,\"a \"\"big\"\"\nboat\"\n2,\n").unwrap();
        assert_eq!(dataset.columns(), ["id", "note"]);
        assert_eq!(dataset.rows()[0].as_ref(), [json!("1"), json!("a \"big\"\nboat")]);
        assert_eq!(dataset.rows()[1].as_ref(), [json!("2"), json!("")]);
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
        assert_eq!(dataset.rows()[1].as_ref(), [json!(2.5), json!(null)]);
    }

    #[test]
    fn a_malformed_jsonl_row_is_refused_with_its_line() {
        for (text, expected) in [
            ("{\"a\":1}\n{\"a\":", "d.jsonl:2: expected one JSON object: EOF while parsing a value at column 5"),
            ("[1]\n", "d.jsonl:1: expected one JSON object: invalid type: sequence, expected an object at column 0"),
            (
                "{\"a\":1}\n{\"b\":1}\n",
                "d.jsonl:2: the row has no `a`, which the first row has (write null for no value)",
            ),
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
}
