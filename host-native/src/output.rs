//! The output directory: one file per finished row group, written so that it is there whole or not at all.
//!
//! ```text
//! OUT/manifest.json            what the run was, and how it ended
//! OUT/capacity.json            the limits that applied, and how far they were used, once it has ended
//! OUT/rows/000000.jsonl        the complete rows of row group 0, in order; .csv or .parquet in these formats
//! OUT/rows/000000.dropped.jsonl    the rows that were dropped from it and why, if there are any
//! ```
//!
//! A file gets a temporary name, is synced, renamed, and its directory synced. The dropped rows of a group are written
//! before its rows, so a group whose rows file exists is finished.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_core::observe::CapacityPlan;

use crate::pipeline_file::RowFormat;
use crate::row_file::Layout;

/// The version of the manifest's form.
pub const MANIFEST_SCHEMA: u32 = 1;

const MANIFEST: &str = "manifest.json";
const CAPACITY: &str = "capacity.json";
const ROWS: &str = "rows";
const LOCK: &str = ".lock";
const ROW_EXTENSIONS: [&str; 3] = ["jsonl", "csv", "parquet"];
const TEMPORARY_SUFFIX: &str = ".tmp";

/// What to do about output that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and refuse to run.
    Refuse,
    /// Remove it, if a run of this program wrote it.
    Replace,
}

/// What `manifest.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it, such as `tidegate 0.1.0`.
    pub program: String,
    /// The pipeline file as it was named.
    pub pipeline: String,
    /// The key of the row number.
    pub row_key: String,
    /// The columns of every output row after the row number, in order.
    pub columns: Vec<String>,
    /// Rows of the dataset.
    pub rows_in: u64,
    /// Rows per row group; the last may have fewer.
    pub row_group_size: u32,
    /// How rows are written.
    #[serde(default)]
    pub format: RowFormat,
    /// How far the run came.
    #[serde(flatten)]
    pub state: RunState,
}

/// How far a run came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// It runs, or it was killed: the row groups that are there are whole.
    Running,
    /// It ended.
    Ended {
        /// Why, such as `completed`.
        reason: String,
        /// Rows written.
        rows_out: u64,
        /// Rows dropped.
        rows_dropped: u64,
        /// Row groups written.
        row_groups: u64,
    },
}

/// Output that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Something is there already.
    #[error(
        "{} is not empty: choose another directory with --out, or replace what an earlier run wrote with --overwrite",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// What is there was not written by this program, so it is not removed.
    #[error("{} holds files that no run of tidegate wrote ({found}), so --overwrite does not remove them", .path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// Another run writes there.
    #[error("another run is writing to {}", .0.display())]
    InUse(PathBuf),
    /// It cannot be written.
    #[error("cannot write to {}: {source}", .path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// An output directory that this run alone writes to.
#[derive(Debug)]
pub struct OutputDirectory {
    root: PathBuf,
    rows: PathBuf,
    layout: Layout,
    /// Held, so that a second run refuses; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl OutputDirectory {
    /// Makes `root` ready: it is created if need be, locked, and empty, and `manifest` stands in it.
    pub fn prepare(root: &Path, existing: Existing, manifest: &Manifest) -> Result<Self, OutputError> {
        let rows = root.join(ROWS);
        let in_root = |source| OutputError::Io { path: root.to_path_buf(), source };
        let is_new = !root.exists();
        fs::create_dir_all(root).map_err(in_root)?;
        let found = entries(root).map_err(in_root)?;
        if let (Existing::Refuse, [_, ..]) = (existing, found.as_slice()) {
            return Err(OutputError::NotEmpty(root.to_path_buf()));
        }
        let lock = lock(root)?;
        remove_earlier(root, &found)?;
        fs::create_dir_all(&rows).map_err(in_root)?;
        let output = Self { root: root.to_path_buf(), rows, layout: Layout::default(), _lock: lock };
        output.write_manifest(manifest)?;
        if let (true, Some(parent)) = (is_new, root.parent()) {
            // Best effort: the directory itself is synced, its parent may be one we cannot open.
            let _ = sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
        Ok(output)
    }

    /// The same directory with rows written like this \[as JSONL\].
    #[must_use]
    pub fn with_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Replaces the manifest.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), OutputError> {
        self.write_json(MANIFEST, manifest)
    }

    /// Writes the capacity values of the run.
    pub fn write_capacity(&self, capacity: &CapacityPlan) -> Result<(), OutputError> {
        self.write_json(CAPACITY, capacity)
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), OutputError> {
        let path = self.root.join(name);
        write_whole(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, value)?;
            file.write_all(b"\n")
        })
        .map_err(|source| OutputError::Io { path, source })
    }

    /// Writes row group `index`: its complete rows, and what was dropped from it.
    pub fn write_row_group<R: Serialize, D: Serialize>(
        &self,
        index: u32,
        rows: impl IntoIterator<Item = R>,
        dropped: &[D],
    ) -> Result<(), OutputError> {
        if !dropped.is_empty() {
            self.write_rows(&format!("{index:06}.dropped"), &Layout::default(), dropped)?;
        }
        self.write_rows(&format!("{index:06}"), &self.layout, rows)
    }

    fn write_rows<T: Serialize>(
        &self,
        name: &str,
        layout: &Layout,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<(), OutputError> {
        let path = self.rows.join(format!("{name}.{}", layout.extension()));
        write_whole(&path, |file| layout.write(rows, file)).map_err(|source| OutputError::Io { path, source })
    }
}

/// Names in `directory`, apart from the lock.
fn entries(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !matches!(name, Ok(name) if name == LOCK)).collect()
}

fn lock(root: &Path) -> Result<File, OutputError> {
    let path = root.join(LOCK);
    let io_error = |source| OutputError::Io { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(OutputError::InUse(root.to_path_buf())),
        Err(fs::TryLockError::Error(source)) => Err(io_error(source)),
    }
}

/// Removes what an earlier run wrote, after making sure that there is nothing else.
fn remove_earlier(root: &Path, found: &[String]) -> Result<(), OutputError> {
    let in_root = |source| OutputError::Io { path: root.to_path_buf(), source };
    let foreign = |found: &str| OutputError::NotOurs { path: root.to_path_buf(), found: found.to_string() };
    if found.is_empty() {
        return Ok(());
    }
    if let Some(name) =
        found.iter().find(|name| ![MANIFEST, CAPACITY, ROWS].contains(&name.as_str()) && !is_temporary(name))
    {
        return Err(foreign(name));
    }
    let manifest = fs::read(root.join(MANIFEST)).ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
    if !manifest.is_some_and(|manifest| manifest.program.starts_with("tidegate ")) {
        return Err(foreign(&found[0]));
    }
    let rows = root.join(ROWS);
    let row_files = if rows.exists() { entries(&rows).map_err(in_root)? } else { Vec::new() };
    let is_row_file = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_digit())
            && name.rsplit_once('.').is_some_and(|(_, extension)| ROW_EXTENSIONS.contains(&extension))
    };
    if let Some(name) = row_files.iter().find(|name| !is_row_file(name) && !is_temporary(name)) {
        return Err(foreign(&format!("{ROWS}/{name}")));
    }
    // The manifest goes last: what is left after an interruption is still known as ours.
    for name in row_files {
        fs::remove_file(rows.join(name)).map_err(in_root)?;
    }
    for name in found.iter().filter(|name| is_temporary(name) || name.as_str() == CAPACITY) {
        fs::remove_file(root.join(name)).map_err(in_root)?;
    }
    fs::remove_file(root.join(MANIFEST)).map_err(in_root)
}

fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX)
}

/// Writes a file so that `path` holds either what it held before or all of the new content.
fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}{TEMPORARY_SUFFIX}"));
    let written = File::create(&temporary).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        // A full disk should not also keep the half of a file that nobody can use.
        let _ = fs::remove_file(&temporary);
    }
    renamed?;
    path.parent().map_or(Ok(()), sync_directory)
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Elsewhere a directory cannot be opened as a file; a rename there is as durable as the system makes it.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Manifest {
        Manifest {
            schema: MANIFEST_SCHEMA,
            program: "tidegate 0.0.0".to_string(),
            pipeline: "p.toml".to_string(),
            row_key: "row".to_string(),
            columns: vec!["a".to_string()],
            rows_in: 2,
            row_group_size: 2,
            format: RowFormat::Jsonl,
            state: RunState::Running,
        }
    }

    fn prepare(root: &Path, existing: Existing) -> Result<OutputDirectory, String> {
        OutputDirectory::prepare(root, existing, &manifest()).map_err(|error| error.to_string())
    }

    #[test]
    fn row_groups_are_lines_in_order_and_no_temporary_file_is_left() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("deep/out");
        let output = prepare(&root, Existing::Refuse).unwrap();
        output.write_row_group(7, [json!({"row": 14}), json!({"row": 15})], &[json!({"row": 13})]).unwrap();
        assert_eq!(fs::read_to_string(root.join("rows/000007.jsonl")).unwrap(), "{\"row\":14}\n{\"row\":15}\n");
        assert_eq!(fs::read_to_string(root.join("rows/000007.dropped.jsonl")).unwrap(), "{\"row\":13}\n");
        assert_eq!(entries(&root.join(ROWS)).unwrap().len(), 2);
    }

    #[test]
    fn earlier_output_is_refused_or_replaced_as_asked() {
        let scratch = tempfile::tempdir().unwrap();
        let first = prepare(scratch.path(), Existing::Refuse).unwrap();
        first.write_row_group(0, [json!(1)], &[json!(2)]).unwrap();
        drop(first);
        let refused = prepare(scratch.path(), Existing::Refuse).unwrap_err();
        assert!(refused.contains("is not empty") && refused.contains("--overwrite"), "{refused}");
        assert!(scratch.path().join("rows/000000.jsonl").exists());
        prepare(scratch.path(), Existing::Replace).unwrap();
        assert_eq!(entries(&scratch.path().join(ROWS)).unwrap().len(), 0);
    }

    #[test]
    fn files_of_somebody_else_are_never_removed() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("thesis.txt"), "years of work").unwrap();
        let refused = prepare(scratch.path(), Existing::Replace).unwrap_err();
        assert!(refused.contains("thesis.txt"), "{refused}");
        assert!(scratch.path().join("thesis.txt").exists());
        let other = tempfile::tempdir().unwrap();
        drop(prepare(other.path(), Existing::Refuse).unwrap());
        fs::write(other.path().join("rows/notes.md"), "mine").unwrap();
        assert!(prepare(other.path(), Existing::Replace).unwrap_err().contains("rows/notes.md"));
    }

    #[test]
    fn two_runs_on_one_directory_refuse() {
        let scratch = tempfile::tempdir().unwrap();
        let _first = prepare(scratch.path(), Existing::Refuse).unwrap();
        assert!(prepare(scratch.path(), Existing::Replace).unwrap_err().contains("another run"));
    }

    #[test]
    fn a_place_that_cannot_be_a_directory_is_a_clear_error() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(prepare(&file.join("out"), Existing::Refuse).unwrap_err().starts_with("cannot write to "));
    }
}
