//! The seed dataset: CSV, JSONL or Parquet rows, checked whole before the first call costs anything, and read again when
//! they are needed.
//!
//! Every row has the same columns. A row that does not is refused with its file and line, because a run that quietly
//! skips input is worse than one that does not start.
//!
//! The check is one pass that keeps no row, only where every 64th begins: a dataset takes memory for the rows in work and
//! not for all of them.

pub mod calendar;
pub mod column_type;
mod csv;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;
pub mod row_file;
mod text;

use std::fmt;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::app::data::column_type::ValueKind;
use crate::app::error::{Error, Exit};
use text::{Bytes, Text};

/// How a dataset file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetFormat {
    /// Comma-separated values with a header line (RFC 4180). Every value is a string.
    Csv,
    /// One JSON object a line. Values keep their JSON type.
    Jsonl,
    /// Parquet. Values become their nearest JSON type.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl DatasetFormat {
    /// The formats by the names that files use.
    pub const NAMES: &[(&str, Self)] = &[
        ("csv", Self::Csv),
        ("jsonl", Self::Jsonl),
        #[cfg(feature = "parquet")]
        ("parquet", Self::Parquet),
    ];

    /// Whether rows are lines of a text, and stand there as they would be written out.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl)
    }

    /// The format that the extension of `path` names.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            #[cfg(feature = "parquet")]
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// A row: one value per column.
pub type Row = Box<[Value]>;

/// Rows with named columns; at least one of each.
#[derive(Debug)]
pub struct Dataset {
    columns: Vec<String>,
    kinds: Vec<ValueKind>,
    rows: u64,
    source: Source,
}

/// Where rows are read again.
#[derive(Debug)]
enum Source {
    Csv(Text),
    Jsonl(Text),
    #[cfg(feature = "parquet")]
    Parquet(parquet::Table),
}

impl Dataset {
    /// Checks the file at `path`, and keeps where its rows are.
    pub fn load(path: &Path, format: DatasetFormat) -> Result<Self, DatasetError> {
        let unreadable = |error| DatasetError::new(path, None, format!("cannot read: {error}"));
        #[cfg(feature = "parquet")]
        if format == DatasetFormat::Parquet {
            return parquet::check(path)?.checked(path);
        }
        let bytes = Bytes::of_file(path).map_err(unreadable)?;
        Self::of_text(path, bytes, format)
    }

    /// Checks `bytes`, the content of a file called `path` in messages.
    pub fn parse(path: &Path, bytes: &[u8], format: DatasetFormat) -> Result<Self, DatasetError> {
        Self::of_text(path, Bytes::Memory(Cursor::new(bytes.into())), format)
    }

    fn of_text(path: &Path, bytes: Bytes, format: DatasetFormat) -> Result<Self, DatasetError> {
        let checked = match format {
            DatasetFormat::Csv => csv::check(path, bytes)?,
            DatasetFormat::Jsonl => jsonl::check(path, bytes)?,
            #[cfg(feature = "parquet")]
            DatasetFormat::Parquet => {
                return Err(DatasetError::new(path, None, "a Parquet dataset is read from a file, not from memory"));
            }
        };
        checked.checked(path)
    }

    fn checked(self, path: &Path) -> Result<Self, DatasetError> {
        if self.rows == 0 {
            return Err(DatasetError::new(path, None, "the dataset is empty: expected at least one row"));
        }
        if self.columns.is_empty() {
            return Err(DatasetError::new(path, None, "the rows have no columns: expected at least one"));
        }
        Ok(self)
    }

    /// Column names in file order.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What the values of each column are.
    #[must_use]
    pub fn kinds(&self) -> &[ValueKind] {
        &self.kinds
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Says that none of `rows` will be asked for. That saves the memory for rows that are passed on the way; they can be
    /// read all the same.
    pub fn pass_over(&mut self, rows: Range<u64>) {
        debug_assert!(rows.end <= self.rows);
        match &mut self.source {
            Source::Csv(_) | Source::Jsonl(_) => {}
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.pass_over(rows),
        }
    }

    /// The rows that are not kept.
    #[cfg(all(test, feature = "parquet"))]
    pub(crate) fn passed_over(&self) -> Vec<Range<u64>> {
        match &self.source {
            Source::Parquet(table) => table.passed_over(),
            _ => Vec::new(),
        }
    }

    /// These rows, in file order, counted from 0. Costs the reading of these rows and of at most 63 before them.
    pub fn read(&self, rows: Range<u64>) -> Result<Vec<Row>, DatasetError> {
        if rows.end > self.rows || rows.start > rows.end {
            let message = format!("there are no rows {}..{}: the dataset has {}", rows.start, rows.end, self.rows);
            return Err(DatasetError::new(self.path(), None, message));
        }
        match &self.source {
            Source::Csv(text) => csv::read(text, rows),
            Source::Jsonl(text) => jsonl::read(text, &self.columns, rows),
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.read(rows),
        }
    }

    fn path(&self) -> &Path {
        match &self.source {
            Source::Csv(text) | Source::Jsonl(text) => &text.path,
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => table.path(),
        }
    }
}

/// A dataset that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, when one line is to blame; of a Parquet file the row.
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

/// All rows of the Parquet file at `path`, none if it has none.
#[cfg(feature = "parquet")]
pub(crate) fn parquet_rows(path: &Path) -> Result<Vec<Row>, DatasetError> {
    let table = parquet::check(path)?;
    table.read(0..table.rows)
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

impl From<DatasetError> for Error {
    fn from(error: DatasetError) -> Self {
        Self::new(Exit::Dataset, error)
    }
}

#[cfg(test)]
mod tests;
