//! Files of finished rows: JSONL, CSV or Parquet.
//!
//! | format | text | numbers, true and false | null | lists and objects |
//! | --- | --- | --- | --- | --- |
//! | JSONL | as it is | as they are | null | as they are |
//! | CSV | as it is | as JSON writes them | empty, like the empty text | JSON text |
//! | Parquet | UTF-8 | typed, where the whole column has one type | null | vectors as lists of doubles, others as JSON text |
//!
//! The types of Parquet columns follow from the pipeline file and the dataset, so all files of a run have the same. A
//! column that may hold values of several types is JSON text throughout.

//!
//! Rows are read back from such a file so that others can be added to it. What is read is written again as it
//! stood.

#[cfg(feature = "parquet")]
mod parquet;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::app::data::column_type::ValueKind;

/// How finished rows are written: one file per row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowFormat {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// Comma-separated values with a header line.
    Csv,
    /// Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl RowFormat {
    /// Whether a column has one type in all files of a run.
    #[must_use]
    pub const fn is_typed(self) -> bool {
        !matches!(self, Self::Jsonl | Self::Csv)
    }

    /// The extension of its files, without a dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
        }
    }
}

/// How rows are written, and of which columns.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The format.
    pub format: RowFormat,
    /// The columns in order. The first is the row number.
    pub columns: Vec<(String, ValueKind)>,
}

/// A row of a file.
#[derive(Debug)]
pub enum FileRow<T> {
    /// One that was made now.
    Made(T),
    /// One that stands in a file.
    Stored(StoredRow),
}

/// A row as it stands in a file.
#[derive(Debug)]
pub enum StoredRow {
    /// A line of JSONL.
    Line(String),
    /// A record of CSV.
    Record(csv::StringRecord),
    /// The values of a row of Parquet by column; values of any type are JSON text.
    #[cfg(feature = "parquet")]
    Fields(Map<String, Value>),
}

/// Writing.
impl Layout {
    /// Writes `rows` to `file`.
    pub fn write<T: Serialize>(
        &self,
        rows: impl IntoIterator<Item = FileRow<T>>,
        file: &mut (impl Write + Send),
    ) -> io::Result<()> {
        match self.format {
            RowFormat::Jsonl => write_jsonl(rows, file),
            RowFormat::Csv => self.write_csv(rows, file),
            #[cfg(feature = "parquet")]
            RowFormat::Parquet => parquet::write(&self.columns, rows, file),
        }
    }

    fn write_csv<T: Serialize>(
        &self,
        rows: impl IntoIterator<Item = FileRow<T>>,
        file: &mut impl Write,
    ) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(file);
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in rows {
            if let FileRow::Stored(StoredRow::Record(record)) = &row {
                writer.write_record(record)?;
                continue;
            }
            let row = fields(&row)?;
            writer.write_record(self.columns.iter().map(|(name, _)| field_text(row.get(name))))?;
        }
        writer.flush()
    }
}

/// Reading.
impl Layout {
    /// Reads the rows of the file at `path`, each with its number. They are all in memory.
    pub fn read(&self, path: &Path) -> io::Result<Vec<(u64, StoredRow)>> {
        match self.format {
            RowFormat::Jsonl => self.read_jsonl(File::open(path)?),
            RowFormat::Csv => read_csv(File::open(path)?),
            #[cfg(feature = "parquet")]
            RowFormat::Parquet => parquet::read(&self.columns, path),
        }
    }

    fn read_jsonl(&self, file: File) -> io::Result<Vec<(u64, StoredRow)>> {
        let row_key = self.columns.first().map_or("", |(name, _)| name);
        let read = |(at, line): (usize, io::Result<String>)| {
            let line = line?;
            let fields: HashMap<String, &RawValue> =
                serde_json::from_str(&line).map_err(|error| invalid(format!("line {}: {error}", at + 1)))?;
            let number = fields.get(row_key).and_then(|value| value.get().parse().ok());
            let number = number.ok_or_else(|| invalid(format!("line {} has no row number `{row_key}`", at + 1)))?;
            drop(fields);
            Ok((number, StoredRow::Line(line)))
        };
        BufReader::new(file).lines().enumerate().map(read).collect()
    }
}

fn read_csv(file: File) -> io::Result<Vec<(u64, StoredRow)>> {
    let read = |(at, record): (usize, csv::Result<csv::StringRecord>)| {
        let record = record?;
        let number = record.get(0).and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| invalid(format!("row {} has no row number", at + 1)))?;
        Ok((number, StoredRow::Record(record)))
    };
    csv::Reader::from_reader(file).into_records().enumerate().map(read).collect()
}

fn of_another_format() -> io::Error {
    invalid("a row is of a file of another format".to_string())
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn write_jsonl<T: Serialize>(rows: impl IntoIterator<Item = FileRow<T>>, file: &mut impl Write) -> io::Result<()> {
    for row in rows {
        match row {
            FileRow::Made(row) => serde_json::to_writer(&mut *file, &row)?,
            FileRow::Stored(StoredRow::Line(line)) => file.write_all(line.as_bytes())?,
            FileRow::Stored(_) => return Err(of_another_format()),
        }
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// The values of a row by column.
fn fields<T: Serialize>(row: &FileRow<T>) -> io::Result<Map<String, Value>> {
    match row {
        FileRow::Made(row) => match serde_json::to_value(row)? {
            Value::Object(fields) => Ok(fields),
            _ => Err(invalid("a row is not an object".to_string())),
        },
        #[cfg(feature = "parquet")]
        FileRow::Stored(StoredRow::Fields(fields)) => Ok(fields.clone()),
        FileRow::Stored(_) => Err(of_another_format()),
    }
}

fn field_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn csv_has_a_header_and_json_where_a_field_is_no_text() {
        let columns = ["row", "note", "tags"].map(|name| (name.to_string(), ValueKind::Json)).to_vec();
        let layout = Layout { format: RowFormat::Csv, columns };
        let rows =
            [json!({"row": 0, "note": "a \"b\",\nc", "tags": ["x", 1]}), json!({"row": 1, "note": null, "tags": true})];
        let mut file = Vec::new();
        layout.write(rows.map(FileRow::Made), &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(text, "row,note,tags\n0,\"a \"\"b\"\",\nc\",\"[\"\"x\"\",1]\"\n1,,true\n");
    }

    #[test]
    fn rows_that_are_read_are_written_again_as_they_stood_and_have_their_numbers() {
        let columns = [
            ("n".to_string(), ValueKind::Integer),
            ("note".to_string(), ValueKind::Text),
            ("any".to_string(), ValueKind::Json),
            ("share".to_string(), ValueKind::Number),
        ];
        let rows = || {
            [
                json!({"n": 3, "note": "a \"b\",\nc", "any": {"z": 0.1, "a": "x"}, "share": 0.1 + 0.2}),
                json!({"n": 7, "note": null, "any": "1", "share": null}),
            ]
        };
        let formats = [
            RowFormat::Jsonl,
            RowFormat::Csv,
            #[cfg(feature = "parquet")]
            RowFormat::Parquet,
        ];
        for format in formats {
            let (name, layout) = (format.extension(), Layout { format, columns: columns.to_vec() });
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join(name);
            layout.write(rows().map(FileRow::Made), &mut File::create(&path).unwrap()).unwrap();
            let stored = layout.read(&path).unwrap();
            assert_eq!(stored.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 7], "{name}");
            let mut again = Vec::new();
            let stored = stored.into_iter().map(|(_, row)| FileRow::<Value>::Stored(row));
            layout.write(stored, &mut again).unwrap();
            assert_eq!(again, std::fs::read(&path).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_damaged_is_an_error_that_says_where() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("rows.jsonl");
        let layout = Layout { format: RowFormat::Jsonl, columns: vec![("row".to_string(), ValueKind::Integer)] };
        for (text, expected) in
            [("{\"row\":1}\n{\"row\"", "line 2: "), ("{\"id\":1}\n", "line 1 has no row number `row`")]
        {
            std::fs::write(&path, text).unwrap();
            let error = layout.read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
