//! Reads the output of a run, without changing it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::calls_file::CallLine;
use super::dropped_file::DroppedLine;
use super::error::{OutputError, io_error, unreadable};
use super::files::{MANIFEST, ROWS, RowFile, calls_name, dropped_name, read_lines, rows_name, visit_names};
use super::manifest::{MANIFEST_SCHEMA, Manifest};
use crate::app::data::column_type::ColumnType;
use crate::app::data::row_file::{Layout, ParquetCompression};

/// The output of a run.
#[derive(Clone, Debug)]
pub struct StoredOutput {
    /// The manifest.
    pub manifest: Manifest,
    rows: PathBuf,
    layout: Layout,
}

/// What is stored of a row group.
#[derive(Clone, Debug)]
pub struct StoredRowGroup {
    /// The complete rows, each with its number and its values by column.
    pub rows: Vec<(u64, Map<String, Value>)>,
    /// The rows that are missing.
    pub dropped: Vec<DroppedLine>,
    /// The calls for the rows, if the job keeps them.
    pub calls: Vec<CallLine>,
}

/// Reads the manifest in `root`. The error is the reason why it cannot be used.
pub(super) fn read_manifest(root: &Path) -> Result<Manifest, String> {
    let text = fs::read(root.join(MANIFEST)).map_err(|error| format!("{MANIFEST} cannot be read: {error}"))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| format!("{MANIFEST}: {error}"))?;
    if value.get("schema").and_then(Value::as_u64) != Some(u64::from(MANIFEST_SCHEMA)) {
        return Err(format!("{MANIFEST} was written by another version of this program"));
    }
    serde_json::from_value(value).map_err(|error| format!("{MANIFEST}: {error}"))
}

/// Returns the SHA-256 of the dataset of the job in the directory `root`, if it holds one.
#[must_use]
pub fn dataset_digest(root: &Path) -> Option<String> {
    read_manifest(root).ok().map(|manifest| manifest.identity.dataset)
}

impl StoredOutput {
    /// Opens the output directory `root`.
    ///
    /// # Errors
    ///
    /// If it is no output directory of this version.
    pub fn open(root: &Path) -> Result<Self, OutputError> {
        let manifest = read_manifest(root).map_err(|why| OutputError::NoOutput { path: root.to_path_buf(), why })?;
        let types = manifest.types.iter().copied().chain(std::iter::repeat(ColumnType::default()));
        let others = manifest.columns.iter().cloned().zip(types);
        let columns = [(manifest.row_key.clone(), ColumnType::Integer)].into_iter().chain(others).collect();
        let layout = Layout { format: manifest.format, compression: ParquetCompression::default(), columns };
        Ok(Self { rows: root.join(ROWS), layout, manifest })
    }

    /// Returns the row groups that are stored, in ascending order.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn row_groups(&self) -> Result<BTreeSet<u32>, OutputError> {
        let mut row_groups = BTreeSet::new();
        visit_names(&self.rows, |name| {
            if let Some(RowFile::Rows(row_group)) = RowFile::of(name, self.layout.format.extension()) {
                row_groups.insert(row_group);
            }
            Ok(())
        })
        .map_err(io_error(&self.rows))?;
        Ok(row_groups)
    }

    /// Reads a row group.
    ///
    /// # Errors
    ///
    /// If one of its files cannot be read.
    pub fn read(&self, row_group: u32) -> Result<StoredRowGroup, OutputError> {
        let path = self.rows.join(rows_name(row_group, self.layout.format.extension()));
        let stored = self.layout.read(&path).map_err(unreadable(&path))?;
        let values = stored.into_iter().map(|(number, row)| Ok((number, self.layout.values(row)?)));
        let rows = values.collect::<std::io::Result<_>>().map_err(unreadable(&path))?;
        let path = self.rows.join(dropped_name(row_group));
        let dropped = read_lines(&path).map_err(unreadable(&path))?.unwrap_or_default();
        let path = self.rows.join(calls_name(row_group));
        let calls = read_lines(&path).map_err(unreadable(&path))?.unwrap_or_default();
        Ok(StoredRowGroup { rows, dropped, calls })
    }
}
