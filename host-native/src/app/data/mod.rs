//! Seed datasets in CSV, JSONL and Parquet, and the files of finished rows.
//!
//! A dataset is checked completely before the first model call, and its rows are read again when they are
//! needed. All rows must have the same columns. A row with other columns is rejected with its file and line:
//! a run that silently skips input is worse than a run that does not start.
//!
//! The check is one pass. It keeps no rows, only the byte offset of every 32nd row of a text format, so a
//! dataset uses memory for the rows in progress only.

pub mod column_type;
mod csv;
pub(crate) mod decimals;
pub(crate) mod decoding;
pub mod digest;
mod files;
mod indexed_text;
mod jsonl;
pub mod near_duplicates;
#[cfg(feature = "parquet")]
mod parquet;
pub mod row_file;
mod shuffled;
pub mod utc;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use encoding_rs::Encoding;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::app::data::column_type::ColumnType;
use crate::app::error::{Error, Exit};
use crate::app::template::normal_form;
use digest::FileDigest;
use indexed_text::{Bytes, IndexedText};

/// The format of a dataset file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetFormat {
    /// Comma-separated values with a header line (RFC 4180), also separated by `;`, tabs or `|`. Every value
    /// is a string.
    Csv,
    /// One JSON object per line. Values keep their JSON type.
    Jsonl,
    /// Parquet. Each value becomes the nearest JSON type.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl DatasetFormat {
    /// The names of the formats in pipeline files.
    pub const NAMES: &[&str] = &[
        "csv",
        "jsonl",
        #[cfg(feature = "parquet")]
        "parquet",
    ];

    /// Returns the name of the format in pipeline files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns whether the format is text, to which rows can be appended.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl)
    }

    /// Returns the format for the extension of `path`, or `None` if it has no known extension.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" | "tsv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            #[cfg(feature = "parquet")]
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// One row: a value for each column.
pub type Row = Box<[Value]>;

/// A dataset with at least one row. One that is read from a file has at least one column.
#[derive(Debug)]
pub struct Dataset {
    columns: Vec<String>,
    column_types: Vec<ColumnType>,
    rows: u64,
    digest: FileDigest,
    source: Source,
}

/// The source from which rows are read after the check.
#[derive(Debug)]
enum Source {
    /// With the separator of its fields.
    Csv(IndexedText, u8),
    Jsonl(IndexedText),
    #[cfg(feature = "parquet")]
    Parquet(parquet::ParquetSource),
    Files(files::Files),
    Shuffled(shuffled::Shuffled),
    /// No file: rows without columns.
    Nothing,
}

impl Dataset {
    /// Creates a dataset of `rows` rows without columns, for a run that generates all of them.
    #[must_use]
    pub fn without_columns(rows: u64) -> Self {
        let digest = FileDigest::of_bytes(b"");
        Self { columns: Vec::new(), column_types: Vec::new(), rows, digest, source: Source::Nothing }
    }

    /// Opens and checks the file at `path`, or all files of `format` in the directory at `path`, or all files
    /// that match the pattern `path`, such as `logs/*.jsonl`. Several files are one dataset, in the order of
    /// their names.
    ///
    /// Reads all of it once; a Parquet file, whose columns are not read in the order of its bytes, once more
    /// for the digest.
    ///
    /// The encoding of a text is that of its byte order mark, else `encoding`, else UTF-8.
    pub fn load(path: &Path, format: DatasetFormat, encoding: Option<&'static Encoding>) -> Result<Self, DatasetError> {
        let files = files::dataset_files(path, format)?;
        let load = |file: &PathBuf| Self::load_file(file, format, encoding);
        let mut datasets = files.iter().map(load).collect::<Result<Vec<_>, DatasetError>>()?;
        if datasets.len() == 1 { Ok(datasets.remove(0)) } else { files::join(datasets) }
    }

    fn load_file(
        path: &Path,
        format: DatasetFormat,
        encoding: Option<&'static Encoding>,
    ) -> Result<Self, DatasetError> {
        #[cfg(feature = "parquet")]
        if format == DatasetFormat::Parquet {
            return parquet::scan(path)?.require_rows(path);
        }
        let bytes = Bytes::open(path).map_err(|error| DatasetError::unreadable(path, &error))?;
        Self::parse_text(path, bytes, format, encoding)
    }

    /// Checks a text dataset in memory, in UTF-8 or with a byte order mark. Error messages call it `path`.
    /// Fails for Parquet, which is read from files only.
    pub fn parse(path: &Path, bytes: &[u8], format: DatasetFormat) -> Result<Self, DatasetError> {
        Self::parse_text(path, Bytes::Memory(Cursor::new(bytes.into())), format, None)
    }

    fn parse_text(
        path: &Path,
        bytes: Bytes,
        format: DatasetFormat,
        encoding: Option<&'static Encoding>,
    ) -> Result<Self, DatasetError> {
        let text = IndexedText::new(path, bytes, encoding)?;
        let dataset = match format {
            DatasetFormat::Csv => csv::scan(path, text)?,
            DatasetFormat::Jsonl => jsonl::scan(path, text)?,
            #[cfg(feature = "parquet")]
            DatasetFormat::Parquet => {
                return Err(DatasetError::new(
                    path,
                    None,
                    "a Parquet dataset must be read from a file, not from memory",
                ));
            }
        };
        dataset.require_rows(path)
    }

    fn require_rows(self, path: &Path) -> Result<Self, DatasetError> {
        if self.rows == 0 {
            return Err(DatasetError::new(path, None, "the dataset is empty: expected at least one row"));
        }
        if self.columns.is_empty() {
            return Err(DatasetError::new(path, None, "the rows have no columns: expected at least one"));
        }
        Ok(self)
    }

    /// Returns the column names in file order.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the type of each column, in the order of [`columns`](Self::columns).
    #[must_use]
    pub fn column_types(&self) -> &[ColumnType] {
        &self.column_types
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the digest of the whole file as it was checked.
    #[must_use]
    pub fn digest(&self) -> &FileDigest {
        &self.digest
    }

    /// Hints that `rows` will not be read. A Parquet dataset then does not buffer them when it reads past
    /// them. They can still be read, at the cost of reading the file again from its start.
    pub fn skip_rows(&mut self, rows: Range<u64>) {
        debug_assert!(rows.end <= self.rows);
        match &mut self.source {
            Source::Csv(..) | Source::Jsonl(_) | Source::Shuffled(_) | Source::Nothing => {}
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.skip_rows(rows),
            Source::Files(files) => files.skip_rows(&rows),
        }
    }

    /// Returns the ranges given to [`skip_rows`](Self::skip_rows), merged.
    #[cfg(all(test, feature = "parquet"))]
    pub(crate) fn skipped_rows(&self) -> Vec<Range<u64>> {
        match &self.source {
            Source::Parquet(table) => table.skipped_rows(),
            _ => Vec::new(),
        }
    }

    /// Reads `rows`, counted from 0, in file order.
    ///
    /// CSV and JSONL read these rows and at most 63 before them. Parquet is read from front to back: rows
    /// that are read out of order are buffered, and rows before the buffer cost reading the file again from
    /// its start.
    ///
    /// # Errors
    ///
    /// If `rows` is not a range within the dataset, the file cannot be read, or it has changed since it was
    /// checked.
    pub fn read(&self, rows: Range<u64>) -> Result<Vec<Row>, DatasetError> {
        if rows.end > self.rows || rows.start > rows.end {
            let message = format!("there are no rows {}..{}: the dataset has {}", rows.start, rows.end, self.rows);
            return Err(DatasetError::new(self.path(), None, message));
        }
        match &self.source {
            Source::Csv(text, separator) => csv::read(text, *separator, rows),
            Source::Jsonl(text) => jsonl::read(text, &self.columns, rows),
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.read(rows),
            Source::Files(files) => files.read(&rows),
            Source::Shuffled(shuffled) => shuffled.read(rows),
            Source::Nothing => Ok(rows.map(|_| Row::default()).collect()),
        }
    }

    /// Returns the files that the rows are read from.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        match &self.source {
            Source::Files(files) => files.paths().collect(),
            Source::Shuffled(shuffled) => shuffled.dataset().paths(),
            Source::Nothing => Vec::new(),
            _ => vec![self.path()],
        }
    }

    fn path(&self) -> &Path {
        match &self.source {
            Source::Csv(text, _) | Source::Jsonl(text) => &text.path,
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.path(),
            Source::Files(files) => files.paths().next().unwrap_or(Path::new("")),
            Source::Shuffled(shuffled) => shuffled.dataset().path(),
            Source::Nothing => Path::new(""),
        }
    }
}

/// Why a dataset cannot be used, and where the fault is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetError {
    /// The file.
    pub path: PathBuf,
    /// The line with the fault, from 1; for a Parquet file, the row. `None` if the fault is not in one line.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl DatasetError {
    /// Creates the error for a file that cannot be read.
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

/// Reads all rows of the Parquet file at `path`. Unlike a [`Dataset`], the file may be empty.
#[cfg(feature = "parquet")]
pub(crate) fn parquet_rows(path: &Path) -> Result<Vec<Row>, DatasetError> {
    parquet::read_all(path)
}

/// Fails if a column has no name, or if two columns have the same name, in whatever form of Unicode: a
/// template with that name in a third form could read either.
fn check_columns(path: &Path, line: u64, columns: &[String]) -> Result<(), DatasetError> {
    let mut known = BTreeMap::new();
    for (index, column) in columns.iter().enumerate() {
        if column.trim().is_empty() {
            return Err(DatasetError::new(path, Some(line), format!("column {} has no name", index + 1)));
        }
        if let Some(same) = known.insert(normal_form(column), column) {
            let forms = if same == column { "" } else { ", in two forms of Unicode that look the same" };
            return Err(DatasetError::new(path, Some(line), format!("the column `{column}` occurs twice{forms}")));
        }
    }
    Ok(())
}

impl From<DatasetError> for Error {
    fn from(error: DatasetError) -> Self {
        Self::new(Exit::Dataset, error)
    }
}

#[cfg(test)]
mod tests;
