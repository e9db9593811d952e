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
//! before its rows, so a group whose rows file exists is finished: whatever moment a run is killed at, what it leaves can
//! be [resumed](Existing::Resume).

mod done;
mod manifest;
mod place;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::observe::CapacityPlan;
use tidegate_core::pipeline::DropReason;

pub use done::DoneRowGroups;
pub use manifest::{Identity, MANIFEST_SCHEMA, Manifest, RunState};
pub use place::FilePlace;

use crate::row_file::Layout;

const MANIFEST: &str = "manifest.json";
const CAPACITY: &str = "capacity.json";
const ROWS: &str = "rows";
const LOCK: &str = ".lock";
const DROPPED_SUFFIX: &str = ".dropped.jsonl";
const ROW_EXTENSIONS: [&str; 3] = ["jsonl", "csv", "parquet"];
const TEMPORARY_SUFFIX: &str = ".tmp";

/// How old the list of finished row groups in the manifest may be when one more is finished.
const UP_TO_DATE: StdDuration = StdDuration::from_secs(1);

/// What to do about output that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and refuse to run.
    Refuse,
    /// Remove it, if a run of this program wrote it.
    Replace,
    /// Keep what is done of it, if it is the same run, and make the rest.
    Resume,
}

/// What earlier runs have left that this one keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Earlier {
    /// Rows written.
    pub rows_out: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Row groups written.
    pub row_groups: u64,
}

/// Output that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Something is there already.
    #[error(
        "{} is not empty: choose another directory with --out, go on where an earlier run stopped with --resume, or replace \
         what it wrote with --overwrite",
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
    /// What is there is not a run that can be gone on with.
    #[error("{} holds nothing to resume: {why}", .path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is the matter.
        why: String,
    },
    /// What is there is another run, or this one of another input.
    #[error(
        "{} holds rows of another run: {what} since; put it back to resume, or choose another directory with --out",
        .path.display()
    )]
    AnotherRun {
        /// The directory.
        path: PathBuf,
        /// What is not as it was.
        what: &'static str,
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
    manifest: Mutex<Kept>,
    done: DoneRowGroups,
    earlier: Earlier,
    layout: Layout,
    /// Held, so that a second run refuses; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

/// The manifest as it should stand on disk, and when it last was brought up to date there.
#[derive(Debug)]
struct Kept {
    manifest: Manifest,
    written: StdInstant,
}

impl OutputDirectory {
    /// Makes `root` ready: it is created if need be, locked, empty but for what a resumed run keeps, and `manifest` stands in
    /// it.
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
        let manifest = Mutex::new(Kept { manifest: manifest.clone(), written: StdInstant::now() });
        let (done, earlier) = (DoneRowGroups::default(), Earlier::default());
        let layout = Layout::default();
        let mut output = Self { root: root.to_path_buf(), rows, manifest, done, earlier, layout, _lock: lock };
        // What a run left that was killed before its manifest stood.
        let nothing = found.iter().all(|name| is_temporary(name));
        match existing {
            Existing::Resume if !nothing => output.take_over()?,
            _ if nothing => remove_temporary(root).map_err(in_root)?,
            _ => remove_earlier(root, &found)?,
        }
        // The manifest comes first: whatever else is there is then known as ours.
        output.bring_up_to_date()?;
        fs::create_dir_all(&output.rows).map_err(in_root)?;
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

    /// The row groups that earlier runs have written.
    #[must_use]
    pub fn done(&self) -> &DoneRowGroups {
        &self.done
    }

    /// What those come to.
    #[must_use]
    pub fn earlier(&self) -> Earlier {
        self.earlier
    }

    /// The run is over: says so in the manifest.
    pub fn close(&self, state: RunState) -> Result<(), OutputError> {
        self.manifest.lock().manifest.state = state;
        self.bring_up_to_date()
    }

    fn bring_up_to_date(&self) -> Result<(), OutputError> {
        let mut kept = self.manifest.lock();
        kept.written = StdInstant::now();
        self.write_json(MANIFEST, &kept.manifest)
    }

    /// Keeps what a run has left that was stopped or killed.
    fn take_over(&mut self) -> Result<(), OutputError> {
        let no_run = |why: String| OutputError::NoRun { path: self.root.clone(), why };
        let text = fs::read(self.root.join(MANIFEST))
            .map_err(|error| no_run(format!("{MANIFEST} cannot be read: {error}")))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| no_run(format!("{MANIFEST}: {error}")))?;
        if value.get("schema").and_then(serde_json::Value::as_u64) != Some(u64::from(MANIFEST_SCHEMA)) {
            return Err(no_run(format!("{MANIFEST} is of another version of this program")));
        }
        let before: Manifest = serde_json::from_value(value).map_err(|error| no_run(format!("{MANIFEST}: {error}")))?;
        let kept = self.manifest.get_mut();
        if let Some(what) = kept.manifest.differs_from(&before) {
            return Err(OutputError::AnotherRun { path: self.root.clone(), what });
        }
        let found = found_row_groups(&self.rows, &kept.manifest).map_err(io_error(&self.rows))?;
        let (mut earlier, mut done) = (Earlier::default(), DoneRowGroups::default());
        for row_group in found.iter() {
            let path = self.rows.join(dropped_name(row_group));
            // One that the run stopped in the middle of is made anew.
            let Some(dropped) = count_dropped(&path).map_err(io_error(&path))? else { continue };
            done.insert(row_group);
            earlier.row_groups += 1;
            earlier.rows_dropped += dropped;
            earlier.rows_out += kept.manifest.rows_of(row_group).saturating_sub(dropped);
        }
        let found = done;
        kept.manifest.done = found.clone();
        remove_temporary(&self.root).map_err(io_error(&self.root))?;
        self.remove_unfinished(&found).map_err(io_error(&self.rows))?;
        (self.done, self.earlier) = (found, earlier);
        Ok(())
    }

    /// Removes what belongs to a row group that was never finished: it is made anew.
    fn remove_unfinished(&self, found: &DoneRowGroups) -> io::Result<()> {
        if !self.rows.exists() {
            return Ok(());
        }
        remove_temporary(&self.rows)?;
        let extension = self.manifest.lock().manifest.format.extension();
        for name in entries(&self.rows)? {
            if row_group_of(&name, extension).is_some_and(|row_group| !found.contains(row_group)) {
                // Before what was dropped from it: whatever is left then does not look finished.
                fs::remove_file(self.rows.join(&name))?;
            }
        }
        for name in entries(&self.rows)? {
            if name
                .strip_suffix(DROPPED_SUFFIX)
                .and_then(|number| number.parse().ok())
                .is_some_and(|row_group| !found.contains(row_group))
            {
                fs::remove_file(self.rows.join(name))?;
            }
        }
        Ok(())
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
        self.write_rows(&format!("{index:06}"), &self.layout, rows)?;
        self.note_done(index);
        Ok(())
    }

    fn note_done(&self, index: u32) {
        let mut kept = self.manifest.lock();
        kept.manifest.done.insert(index);
        let is_due = kept.written.elapsed() >= UP_TO_DATE;
        drop(kept);
        if is_due {
            // The row group is on disk, which is what counts. A disk that takes no more will refuse the next one.
            let _ = self.bring_up_to_date();
        }
    }

    fn write_rows<T: Serialize>(
        &self,
        name: &str,
        layout: &Layout,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<(), OutputError> {
        let path = self.rows.join(format!("{name}.{}", layout.format.extension()));
        write_whole(&path, |file| layout.write(rows, file)).map_err(|source| OutputError::Io { path, source })
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    |source| OutputError::Io { path, source }
}

fn dropped_name(row_group: u32) -> String {
    format!("{row_group:06}{DROPPED_SUFFIX}")
}

/// The row groups of this run whose rows are in `rows`.
fn found_row_groups(rows: &Path, manifest: &Manifest) -> io::Result<DoneRowGroups> {
    if !rows.exists() {
        return Ok(DoneRowGroups::default());
    }
    let extension = manifest.format.extension();
    let number = |name: &String| row_group_of(name, extension);
    let is_one = |row_group: &u32| u64::from(*row_group) < manifest.row_groups();
    Ok(entries(rows)?.iter().filter_map(number).filter(is_one).collect())
}

/// The row group whose rows the file of this name holds.
fn row_group_of(name: &str, extension: &str) -> Option<u32> {
    name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok()
}

/// The rows in the file at `path` that were dropped for good, none if there is no such file; `None` if the run stopped before
/// some of them.
fn count_dropped(path: &Path) -> io::Result<Option<u64>> {
    let file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(0)),
        Err(error) => return Err(error),
    };
    let stopped = DropReason::Stopped.to_string();
    let mut count = 0;
    for line in file.lines() {
        let row: serde_json::Value = serde_json::from_str(&line?)?;
        if row.get("reason").and_then(serde_json::Value::as_str) == Some(&stopped) {
            return Ok(None);
        }
        count += 1;
    }
    Ok(Some(count))
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
    // The manifest stays until it is replaced: what is left after an interruption is still known as ours.
    for name in row_files {
        fs::remove_file(rows.join(name)).map_err(in_root)?;
    }
    for name in found.iter().filter(|name| is_temporary(name) || name.as_str() == CAPACITY) {
        fs::remove_file(root.join(name)).map_err(in_root)?;
    }
    Ok(())
}

fn remove_temporary(directory: &Path) -> io::Result<()> {
    for name in entries(directory)?.iter().filter(|name| is_temporary(name)) {
        fs::remove_file(directory.join(name))?;
    }
    Ok(())
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
    use crate::pipeline_file::RowFormat;
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
            first_row: 0,
            format: RowFormat::Jsonl,
            identity: Identity::of(&b"rows"[..], "columns", "models").unwrap(),
            done: DoneRowGroups::default(),
            state: RunState::Running,
        }
    }

    /// Seven rows in four row groups.
    fn four_groups() -> Manifest {
        Manifest { rows_in: 7, ..manifest() }
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
    fn a_resumed_run_keeps_what_is_finished_and_removes_what_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let rows = scratch.path().join(ROWS);
        let first = OutputDirectory::prepare(scratch.path(), Existing::Resume, &four_groups()).unwrap();
        assert_eq!((first.done().len(), first.earlier()), (0, Earlier::default()));
        first.write_row_group(0, [json!(0), json!(1)], &[] as &[u8]).unwrap();
        first.write_row_group(2, [json!(4)], &[json!(5)]).unwrap();
        drop(first);
        // Killed in the middle of row group 3, between its dropped rows and its rows; and of a manifest.
        fs::write(rows.join("000003.dropped.jsonl"), "6\n").unwrap();
        fs::write(rows.join(".000003.jsonl.tmp"), "half a").unwrap();
        fs::write(scratch.path().join(".manifest.json.tmp"), "{").unwrap();
        let again = OutputDirectory::prepare(scratch.path(), Existing::Resume, &four_groups()).unwrap();
        assert_eq!(again.done().iter().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(again.earlier(), Earlier { rows_out: 3, rows_dropped: 1, row_groups: 2 });
        let mut left = entries(&rows).unwrap();
        left.sort();
        assert_eq!(left, ["000000.jsonl", "000002.dropped.jsonl", "000002.jsonl"]);
        assert_eq!(entries(scratch.path()).unwrap().len(), 2);
        let manifest: Manifest = serde_json::from_slice(&fs::read(scratch.path().join(MANIFEST)).unwrap()).unwrap();
        assert_eq!((manifest.done, manifest.state), (again.done().clone(), RunState::Running));
    }

    #[test]
    fn another_run_is_not_resumed_and_loses_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        drop(prepare(scratch.path(), Existing::Resume).unwrap());
        let refused =
            OutputDirectory::prepare(scratch.path(), Existing::Resume, &four_groups()).unwrap_err().to_string();
        assert!(refused.contains("the rows asked for have changed since"), "{refused}");
        fs::write(scratch.path().join(MANIFEST), r#"{"schema":1}"#).unwrap();
        let refused = prepare(scratch.path(), Existing::Resume).unwrap_err();
        assert!(
            refused.ends_with("holds nothing to resume: manifest.json is of another version of this program"),
            "{refused}"
        );
        fs::write(scratch.path().join(MANIFEST), "{").unwrap();
        assert!(prepare(scratch.path(), Existing::Resume).unwrap_err().contains("holds nothing to resume"));
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("thesis.txt"), "years of work").unwrap();
        assert!(prepare(other.path(), Existing::Resume).unwrap_err().contains("manifest.json cannot be read"));
    }

    #[test]
    fn a_run_that_was_killed_before_its_manifest_stood_is_as_good_as_none() {
        for existing in [Existing::Resume, Existing::Replace] {
            let scratch = tempfile::tempdir().unwrap();
            fs::write(scratch.path().join(".manifest.json.tmp"), "{").unwrap();
            drop(prepare(scratch.path(), existing).unwrap());
            assert_eq!(entries(scratch.path()).unwrap().len(), 2, "the manifest and the folder of rows");
        }
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
