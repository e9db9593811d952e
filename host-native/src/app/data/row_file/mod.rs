//! Files of finished rows in JSONL, CSV or Parquet.
//!
//! | format | string | number, boolean | null | array, object |
//! | --- | --- | --- | --- | --- |
//! | JSONL | unchanged | unchanged | null | unchanged |
//! | CSV | unchanged | JSON text | empty field, as for the empty string | JSON text |
//! | Parquet | UTF-8 | typed if the whole column has one type | null | JSON text; embeddings: list of doubles |
//!
//! The types of Parquet columns are derived from the pipeline file and the dataset, so they are the same in
//! all files of a run. A column that may hold values of several types is JSON text in all rows.
//!
//! A resumed run reads the rows of such a file and adds others. Rows that were read are written back
//! unchanged.

#[cfg(feature = "parquet")]
mod parquet;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::app::data::column_type::ColumnType;

/// The format of the files of finished rows. Each row group is one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowFormat {
    /// One JSON object per line.
    #[default]
    Jsonl,
    /// Comma-separated values with a header line.
    Csv,
    /// Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl RowFormat {
    /// All formats.
    pub const ALL: &[Self] = &[
        Self::Jsonl,
        Self::Csv,
        #[cfg(feature = "parquet")]
        Self::Parquet,
    ];

    /// Returns whether each column has a type, which is the same in all files of a run.
    #[must_use]
    pub const fn is_typed(self) -> bool {
        !matches!(self, Self::Jsonl | Self::Csv)
    }

    /// Returns the file extension, without a dot.
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

/// How the pages of Parquet files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// Snappy.
    #[default]
    Snappy,
    /// Zstandard.
    Zstd,
    /// LZ4, in the form that all readers understand.
    Lz4,
    /// gzip.
    Gzip,
    /// No compression.
    None,
}

/// The format and the columns of the files of finished rows.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The format.
    pub format: RowFormat,
    /// The compression of Parquet files that are written.
    pub compression: ParquetCompression,
    /// The names and types of the columns, in order. The first column holds the row number.
    pub columns: Vec<(String, ColumnType)>,
}

/// A row to write.
#[derive(Debug)]
pub enum FileRow<T> {
    /// A row that this run produced.
    New(T),
    /// A row that was read from a file.
    Stored(StoredRow),
}

/// A row in the form in which it was read from a file.
#[derive(Debug)]
pub enum StoredRow {
    /// A line of JSONL.
    Line(String),
    /// A CSV record.
    Record(csv::StringRecord),
    /// The values of a Parquet row by column. Values of [`ColumnType::Json`] are JSON text.
    #[cfg(feature = "parquet")]
    Fields(Map<String, Value>),
}

/// Writing.
impl Layout {
    /// Writes `rows` to `file`. Fails for a [`FileRow::Stored`] of another format.
    pub fn write<T: Serialize>(
        &self,
        rows: impl IntoIterator<Item = FileRow<T>>,
        file: &mut (impl Write + Send),
    ) -> io::Result<()> {
        let mut writer = self.writer(file)?;
        rows.into_iter().try_for_each(|row| writer.write(row))?;
        writer.finish()
    }

    /// Starts a file, to write rows one after the other.
    pub fn writer<W: Write + Send>(&self, file: W) -> io::Result<RowWriter<'_, W>> {
        let form = match self.format {
            RowFormat::Jsonl => FormatWriter::Jsonl(file),
            RowFormat::Csv => {
                let mut writer = csv::Writer::from_writer(file);
                writer.write_record(self.columns.iter().map(|(name, _)| name))?;
                FormatWriter::Csv(Box::new(writer))
            }
            #[cfg(feature = "parquet")]
            RowFormat::Parquet => FormatWriter::Parquet(Box::new(parquet::Writer::new(self, file)?)),
        };
        Ok(RowWriter { columns: &self.columns, form })
    }
}

/// Writes a file row by row.
pub struct RowWriter<'a, W: Write + Send> {
    columns: &'a [(String, ColumnType)],
    form: FormatWriter<W>,
}

impl<W: Write + Send> fmt::Debug for RowWriter<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowWriter").field("columns", &self.columns).finish_non_exhaustive()
    }
}

enum FormatWriter<W: Write + Send> {
    Jsonl(W),
    Csv(Box<csv::Writer<W>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Writer<W>>),
}

impl<W: Write + Send> RowWriter<'_, W> {
    /// Writes a row. Fails for a [`FileRow::Stored`] of another format.
    pub fn write<T: Serialize>(&mut self, row: FileRow<T>) -> io::Result<()> {
        match (&mut self.form, row) {
            (FormatWriter::Jsonl(file), row) => {
                match row {
                    FileRow::New(row) => serde_json::to_writer(&mut *file, &row)?,
                    FileRow::Stored(StoredRow::Line(line)) => file.write_all(line.as_bytes())?,
                    FileRow::Stored(_) => return Err(wrong_format()),
                }
                file.write_all(b"\n")
            }
            (FormatWriter::Csv(writer), FileRow::Stored(StoredRow::Record(record))) => {
                Ok(writer.write_record(&record)?)
            }
            (FormatWriter::Csv(writer), row) => {
                let row = fields(row)?;
                Ok(writer.write_record(self.columns.iter().map(|(name, _)| field_text(row.get(name))))?)
            }
            #[cfg(feature = "parquet")]
            (FormatWriter::Parquet(writer), row) => {
                let is_stored = matches!(row, FileRow::Stored(_));
                writer.push(fields(row)?, is_stored);
                Ok(())
            }
        }
    }

    /// Writes the rows so far, if the format collects rows. A Parquet file has a row group for each call.
    pub fn flush_group(&mut self) -> io::Result<()> {
        match &mut self.form {
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(writer) => writer.write_group(self.columns),
            FormatWriter::Jsonl(_) | FormatWriter::Csv(_) => Ok(()),
        }
    }

    /// Completes the file.
    pub fn finish(self) -> io::Result<()> {
        match self.form {
            FormatWriter::Jsonl(mut file) => file.flush(),
            FormatWriter::Csv(mut writer) => writer.flush(),
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(writer) => writer.finish(self.columns),
        }
    }
}

/// Reading.
impl Layout {
    /// Reads all rows of the file at `path` into memory, each with its row number.
    pub fn read(&self, path: &Path) -> io::Result<Vec<(u64, StoredRow)>> {
        match self.format {
            RowFormat::Jsonl => self.read_jsonl(File::open(path)?),
            RowFormat::Csv => read_csv(File::open(path)?),
            #[cfg(feature = "parquet")]
            RowFormat::Parquet => parquet::read(&self.columns, path),
        }
    }

    /// Returns the values of a row that was read from a file of this layout, by column. CSV has only texts.
    pub fn values(&self, row: StoredRow) -> io::Result<Map<String, Value>> {
        match row {
            StoredRow::Line(line) => Ok(serde_json::from_str(&line)?),
            StoredRow::Record(record) => {
                let names = self.columns.iter().map(|(name, _)| name.clone());
                Ok(names.zip(record.iter().map(Value::from)).collect())
            }
            #[cfg(feature = "parquet")]
            StoredRow::Fields(mut fields) => {
                for (name, _) in self.columns.iter().filter(|(_, column_type)| *column_type == ColumnType::Json) {
                    if let Some(value @ Value::String(_)) = fields.get_mut(name) {
                        *value = serde_json::from_str(value.as_str().unwrap_or_default())?;
                    }
                }
                Ok(fields)
            }
        }
    }

    fn read_jsonl(&self, file: File) -> io::Result<Vec<(u64, StoredRow)>> {
        let row_key = self.columns.first().map_or("", |(name, _)| name);
        let read = |(at, line): (usize, io::Result<String>)| {
            let line = line?;
            let fields: HashMap<String, &RawValue> =
                serde_json::from_str(&line).map_err(|error| invalid_data(format!("line {}: {error}", at + 1)))?;
            let number = fields.get(row_key).and_then(|value| value.get().parse().ok());
            let number =
                number.ok_or_else(|| invalid_data(format!("line {} has no row number `{row_key}`", at + 1)))?;
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
        let number = number.ok_or_else(|| invalid_data(format!("row {} has no row number", at + 1)))?;
        Ok((number, StoredRow::Record(record)))
    };
    csv::Reader::from_reader(file).into_records().enumerate().map(read).collect()
}

fn wrong_format() -> io::Error {
    invalid_data("a row was read from a file of another format".to_string())
}

fn invalid_data(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Returns the values of a row by column. Fails if the row is not an object.
fn fields<T: Serialize>(row: FileRow<T>) -> io::Result<Map<String, Value>> {
    match row {
        FileRow::New(row) => match serde_json::to_value(row)? {
            Value::Object(fields) => Ok(fields),
            _ => Err(invalid_data("a row is not an object".to_string())),
        },
        #[cfg(feature = "parquet")]
        FileRow::Stored(StoredRow::Fields(fields)) => Ok(fields),
        FileRow::Stored(_) => Err(wrong_format()),
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
    fn csv_has_a_header_and_json_text_for_values_that_are_not_strings() {
        let columns = ["row", "note", "tags"].map(|name| (name.to_string(), ColumnType::Json)).to_vec();
        let layout = Layout { format: RowFormat::Csv, compression: ParquetCompression::default(), columns };
        let rows =
            [json!({"row": 0, "note": "a \"b\",\nc", "tags": ["x", 1]}), json!({"row": 1, "note": null, "tags": true})];
        let mut file = Vec::new();
        layout.write(rows.map(FileRow::New), &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(text, "row,note,tags\n0,\"a \"\"b\"\",\nc\",\"[\"\"x\"\",1]\"\n1,,true\n");
    }

    #[test]
    fn rows_that_are_read_have_their_numbers_and_are_written_back_unchanged() {
        let columns = [
            ("n".to_string(), ColumnType::Integer),
            ("note".to_string(), ColumnType::Text),
            ("any".to_string(), ColumnType::Json),
            ("share".to_string(), ColumnType::Number),
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
            let (name, layout) = (
                format.extension(),
                Layout { format, compression: ParquetCompression::default(), columns: columns.to_vec() },
            );
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join(name);
            layout.write(rows().map(FileRow::New), &mut File::create(&path).unwrap()).unwrap();
            let stored = layout.read(&path).unwrap();
            assert_eq!(stored.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 7], "{name}");
            let mut again = Vec::new();
            let stored = stored.into_iter().map(|(_, row)| FileRow::<Value>::Stored(row));
            layout.write(stored, &mut again).unwrap();
            assert_eq!(again, std::fs::read(&path).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_corrupted_file_is_an_error_with_its_line() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("rows.jsonl");
        let columns = vec![("row".to_string(), ColumnType::Integer)];
        let layout = Layout { format: RowFormat::Jsonl, compression: ParquetCompression::default(), columns };
        for (text, expected) in
            [("{\"row\":1}\n{\"row\"", "line 2: "), ("{\"id\":1}\n", "line 1 has no row number `row`")]
        {
            std::fs::write(&path, text).unwrap();
            let error = layout.read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
