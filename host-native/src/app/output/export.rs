//! Exports all rows of a job to one file, which is made from the files of its row groups.
//!
//! The file is written under a temporary name, synced, and renamed: it is complete, or as it was before. The
//! rows of one row group are in memory at a time. The manifest lists the digests of all exports, and a file
//! is replaced only if it is one of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::error::{OutputError, io_error, unreadable};
use super::files::{MANIFEST, commit, rows_name, write_temporary};
use super::{DirectoryLock, OutputDirectory};
use crate::app::data::column_type::ColumnType;
use crate::app::data::digest::FileDigest;
use crate::app::data::near_duplicates::{DistinctTexts, NearDuplicate};
use crate::app::data::row_file::{FileRow, Layout, RowFormat};

/// A Parquet row group of an export ends after so many rows.
const GROUP_ROWS: usize = 10_000;

/// A Parquet row group of an export ends after rows files of so many bytes.
const GROUP_BYTES: u64 = 32 << 20;

/// The file that `--export` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    /// The path.
    pub path: PathBuf,
    /// The format, by the extension.
    pub format: RowFormat,
}

impl FromStr for ExportFile {
    type Err = String;

    fn from_str(path: &str) -> Result<Self, String> {
        let extension = Path::new(path).extension().unwrap_or_default().to_ascii_lowercase();
        let format = RowFormat::ALL.iter().find(|format| extension == *format.extension());
        let known =
            || RowFormat::ALL.iter().map(|format| format!(".{}", format.extension())).collect::<Vec<_>>().join(", ");
        let format = format.ok_or_else(|| format!("expected a name that ends in one of: {}", known()))?;
        Ok(Self { path: PathBuf::from(path), format: *format })
    }
}

impl ExportFile {
    /// Checks that the file may be written for the job in the directory of `lock`, and is none of `inputs`.
    /// Changes nothing.
    pub fn check(&self, lock: &DirectoryLock, inputs: &[(&'static str, &Path)]) -> Result<(), OutputError> {
        let is_it = |path: &Path| same_file::is_same_file(&self.path, path).unwrap_or(false);
        if let Some((first, _)) = inputs.iter().find(|(_, path)| is_it(path)) {
            return Err(OutputError::OneFile { first, second: "--export", path: self.path.clone() });
        }
        let directory = fs::canonicalize(self.directory()).map_err(io_error(&self.path))?;
        if directory.starts_with(fs::canonicalize(&lock.root).map_err(io_error(&lock.root))?) {
            return Err(OutputError::Inside { flag: "--export", path: self.path.clone(), root: lock.root.clone() });
        }
        self.check_replaceable(&lock.root, &exports(&lock.root))
    }

    /// Returns the directory of the file.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns an error if there is a file that is not one of `exports`, which the job in `root` has made.
    fn check_replaceable(&self, root: &Path, exports: &BTreeSet<String>) -> Result<(), OutputError> {
        let path = &self.path;
        let is_own = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(io_error(path)(error)),
            // A device or pipe has no content to compare.
            Ok(found) if !found.is_file() => false,
            Ok(_) => {
                let digest = File::open(path).and_then(FileDigest::of).map_err(unreadable(path))?;
                exports.contains(&digest.sha256)
            }
        };
        if is_own { Ok(()) } else { Err(OutputError::NotExported { path: path.clone(), root: root.to_path_buf() }) }
    }
}

/// The part of the manifest that lists exports.
#[derive(Default, Deserialize)]
struct Exports {
    #[serde(default)]
    exports: BTreeSet<String>,
}

/// Returns the digests of the files that were exported from the directory `root`; none without a manifest.
pub(super) fn exports(root: &Path) -> BTreeSet<String> {
    let manifest = fs::read(root.join(MANIFEST)).ok();
    manifest.and_then(|text| serde_json::from_slice::<Exports>(&text).ok()).unwrap_or_default().exports
}

/// What an export consists of.
pub struct ExportPlan<'a> {
    /// The file.
    pub file: &'a ExportFile,
    /// The number of rows of the job, which the rows files must have together.
    pub rows: u64,
    /// Makes a line of JSONL from the values of a row by column; `None` to write the columns of the output.
    pub record: Option<&'a MakeRecord<'a>>,
    /// The column, and the similarity, by which rows that are nearly the same as an earlier one are left out.
    pub unique: Option<(&'a str, f64)>,
    /// Set to stop the export.
    pub is_cancelled: &'a AtomicBool,
}

impl fmt::Debug for ExportPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, rows, unique, .. } = self;
        let mut plan = f.debug_struct("ExportPlan");
        plan.field("file", file).field("rows", rows).field("unique", unique).finish_non_exhaustive()
    }
}

/// Makes a record from the values of a row.
pub type MakeRecord<'a> = dyn Fn(&Map<String, Value>) -> Result<Value, String> + 'a;

/// A file that was exported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exported {
    /// The path.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The rows that were left out, if rows that are nearly the same as an earlier one are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
}

/// The rows that an export leaves out, because they are nearly the same as an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeftOut {
    /// Their number.
    pub rows: u64,
    /// The first of them.
    pub example: Option<SimilarRows>,
}

/// A row, and an earlier row that it is nearly the same as.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SimilarRows {
    /// The number of the row.
    pub row: u64,
    /// The number of the earlier row.
    pub earlier: u64,
    /// The estimated similarity, from 0 to 1.
    pub similarity: f64,
}

/// Decides about each row of an export, in order, whether it is left out.
struct UniqueRows<'a> {
    column: &'a str,
    texts: DistinctTexts,
    /// The numbers of the rows of `texts`.
    kept: Vec<u64>,
    left_out: LeftOut,
}

impl<'a> UniqueRows<'a> {
    fn new((column, similarity): (&'a str, f64)) -> Self {
        Self { column, texts: DistinctTexts::new(similarity), kept: Vec::new(), left_out: LeftOut::default() }
    }

    /// Returns whether the row is exported. A row without a value in the column always is.
    fn keeps(&mut self, row: u64, values: &Map<String, Value>) -> bool {
        let found = match values.get(self.column) {
            None | Some(Value::Null) => return true,
            Some(Value::String(text)) => self.texts.insert(text),
            Some(value) => self.texts.insert(&value.to_string()),
        };
        let Some(NearDuplicate { of, similarity }) = found else {
            self.kept.push(row);
            return true;
        };
        self.left_out.rows += 1;
        self.left_out.example.get_or_insert(SimilarRows { row, earlier: self.kept[of], similarity });
        false
    }
}

/// A row of the export.
#[derive(Serialize)]
#[serde(untagged)]
enum ExportRow<'a> {
    Record(Value),
    Columns(Columns<'a>),
}

/// The values of a row, in the order of `columns`.
struct Columns<'a> {
    columns: &'a [(String, ColumnType)],
    values: &'a Map<String, Value>,
}

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |name: &String| self.values.get(name).unwrap_or(&Value::Null);
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        self.columns.iter().try_for_each(|(name, _)| map.serialize_entry(name, value(name)))?;
        map.end()
    }
}

impl OutputDirectory {
    /// Writes all rows of the job to one file. All row groups must be complete, apart from dropped rows.
    ///
    /// # Errors
    ///
    /// If the file exists and is no export of this directory, a record cannot be made, or a file cannot be
    /// read or written. A file that exists is then unchanged.
    pub fn export(&self, plan: &ExportPlan<'_>) -> Result<Exported, OutputError> {
        let path = &plan.file.path;
        // A link is followed, not replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let (mut rows, mut read_error) = (0, None);
        let mut unique = plan.unique.map(UniqueRows::new);
        let written = write_temporary(&target, |file| {
            let layout = Layout {
                format: plan.file.format,
                compression: self.layout.compression,
                columns: self.layout.columns[1..].to_vec(),
            };
            let mut writer = layout.writer(file)?;
            let result = self.each_row_group(plan, |stored, is_end_of_group| {
                for (number, values) in stored {
                    if unique.as_mut().is_some_and(|unique| !unique.keeps(*number, values)) {
                        continue;
                    }
                    let row = match plan.record {
                        Some(record) => {
                            let failed = |why| OutputError::Record { path: path.clone(), row: *number, why };
                            ExportRow::Record(record(values).map_err(failed)?)
                        }
                        None => ExportRow::Columns(Columns { columns: &layout.columns, values }),
                    };
                    writer.write(FileRow::New(row)).map_err(io_error(path))?;
                    rows += 1;
                }
                if is_end_of_group { writer.flush_group().map_err(io_error(path)) } else { Ok(()) }
            });
            result.map_err(|error| {
                read_error = Some(error);
                io::Error::other("the rows cannot be exported")
            })?;
            writer.finish()
        });
        let temporary = written.map_err(|error| read_error.unwrap_or_else(|| io_error(path)(error)))?;
        let exported = self.replace_export(plan, &temporary, &target, rows, unique.map(|unique| unique.left_out));
        if exported.is_err() {
            // What is left of a failed export is of no use.
            let _ = fs::remove_file(&temporary);
        }
        exported
    }

    /// Moves the complete file `temporary` to `target`.
    fn replace_export(
        &self,
        plan: &ExportPlan<'_>,
        temporary: &Path,
        target: &Path,
        rows: u64,
        left_out: Option<LeftOut>,
    ) -> Result<Exported, OutputError> {
        let path = &plan.file.path;
        let found = rows + left_out.as_ref().map_or(0, |left_out| left_out.rows);
        if found != plan.rows {
            return Err(OutputError::RowsMissing { root: self.root.clone(), expected: plan.rows, found });
        }
        let FileDigest { sha256, bytes } = File::open(temporary).and_then(FileDigest::of).map_err(io_error(path))?;
        let mut cached = self.manifest.lock();
        plan.file.check_replaceable(&self.root, &cached.manifest.exports)?;
        // The digest is on disk before the file: a crash in between must not make the file a foreign one.
        cached.manifest.exports.insert(sha256);
        drop(cached);
        self.write_manifest()?;
        commit(temporary, target).map_err(io_error(path))?;
        Ok(Exported { path: path.clone(), rows, bytes, left_out })
    }

    /// Calls `visit` with the numbers and values of the rows of each row group, and whether a row group of
    /// the export ends after them.
    fn each_row_group(
        &self,
        plan: &ExportPlan<'_>,
        mut visit: impl FnMut(&[(u64, Map<String, Value>)], bool) -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        let row_groups = u32::try_from(self.manifest.lock().manifest.row_group_count()).unwrap_or(u32::MAX);
        let row_groups = self.acceptance.lock().end().map_or(row_groups, |end| end.row_group + 1);
        let (mut rows, mut bytes) = (0, 0);
        for row_group in 0..row_groups {
            if plan.is_cancelled.load(Ordering::Relaxed) {
                return Err(OutputError::ExportInterrupted { path: plan.file.path.clone() });
            }
            let path = self.rows.join(rows_name(row_group, self.layout.format.extension()));
            let stored = self.layout.read(&path).map_err(unreadable(&path))?.into_iter();
            let values = stored.map(|(number, row)| Ok((number, self.layout.values(row)?)));
            let values = values.collect::<io::Result<Vec<_>>>().map_err(unreadable(&path))?;
            rows += values.len();
            bytes += fs::metadata(&path).map_or(0, |file| file.len());
            let is_end_of_group = rows >= GROUP_ROWS || bytes >= GROUP_BYTES;
            visit(&values, is_end_of_group)?;
            if is_end_of_group {
                (rows, bytes) = (0, 0);
            }
        }
        Ok(())
    }
}
