//! The output directory: one file of rows per row group, written so that it is there whole or not at all.
//!
//! ```text
//! OUT/manifest.json            what the job is, what it has used, and how its last run ended
//! OUT/spent.txt                what the job has spent, and what calls that are out may cost, if models have prices
//! OUT/capacity.json            the limits that applied, and how far they were used, once a run has ended; capacity.1.json and so on
//!                              are those of earlier runs, in their order
//! OUT/rows/000000.jsonl        the complete rows of row group 0, in order; .csv or .parquet in these formats
//! OUT/rows/000000.dropped.jsonl    the rows that are not in it and why, if there are any: dropped, or unmade because a run stopped
//! ```
//!
//! A file gets a temporary name, is synced, renamed, and its directory synced. Whatever moment a run is
//! killed at, what it leaves can be [resumed](Existing::Resume):
//!
//! ```text
//! first write    the list of dropped rows, then the rows       a list without rows is nothing: all of it is made anew
//! merge          the rows, then the list                       a row in both is made, a row in neither is unmade
//! ```
//!
//! Rows that are made later are merged into the rows file, if rows do not depend on each other; otherwise the
//! row group is made anew, and replaces what is there.

mod claim;
mod done;
mod dropped;
mod error;
mod files;
mod found;
mod manifest;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidegate_core::observe::CapacityPlan;
use tidegate_core::pipeline::DropReason;

pub use claim::Claim;
pub use done::DoneRowGroups;
pub use dropped::{DroppedCounts, DroppedLine, UNMADE};
pub use error::OutputError;
pub use files::keep_earlier;
pub use manifest::{Identity, JobTotals, MANIFEST_SCHEMA, Manifest, ModelTotals, RunState, hash};
pub use place::FilePlace;

use crate::app::data::row_file::{FileRow, Layout};
use crate::app::provider::cost::AmountFile;
use claim::names;
use error::{io_error, unreadable};
use files::{
    CAPACITY, MANIFEST, ROWS, RowFile, SPENT, dropped_name, is_capacity, is_own_name, is_row_file_name, is_temporary,
    remove_temporary, remove_whole, rows_name, sync_directory, visit_names, write_whole,
};
use found::{Found, Replaceable, add_counts};

/// How old what a running program says in its manifest may be.
const UP_TO_DATE: StdDuration = StdDuration::from_secs(1);

/// What to do about output that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and refuse to run.
    Refuse,
    /// Remove it, if a run of this program wrote it.
    Replace,
    /// Keep what is done of it, if it is the same job, and make the rest.
    Resume,
}

/// What a job writes, and how.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// The manifest of the job.
    pub manifest: Manifest,
    /// How rows are written.
    pub layout: Layout,
    /// Whether rows do not depend on the others of their row group, so that some of them can be made later.
    pub keeps_parts: bool,
    /// Makes rows again that were dropped for these reasons; an empty list stands for any.
    pub retry_dropped: Option<Vec<DropReason>>,
    /// The dataset, if it is a text that may have grown at its end.
    pub dataset: Option<PathBuf>,
}

/// What earlier runs have left that this one keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Earlier {
    /// Rows written.
    pub rows_out: u64,
    /// Rows dropped, and not made again.
    pub rows_dropped: u64,
    /// Row groups of which nothing is left to make.
    pub row_groups: u64,
}

/// What became of a row group that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is on disk.
    Written,
    /// Nothing has changed: made anew it has `rows` rows, and there are `before` already.
    KeptEarlier {
        /// Rows that were made.
        rows: u64,
        /// Rows that are there.
        before: u64,
    },
}

impl Earlier {
    fn plus(self, other: Self) -> Self {
        Self {
            rows_out: self.rows_out + other.rows_out,
            rows_dropped: self.rows_dropped + other.rows_dropped,
            row_groups: self.row_groups + other.row_groups,
        }
    }
}

/// An output directory that this run alone writes to.
#[derive(Debug)]
pub struct OutputDirectory {
    root: PathBuf,
    rows: PathBuf,
    layout: Layout,
    keeps_parts: bool,
    manifest: Mutex<Kept>,
    found: Found,
    /// What counts of row groups that this run is to write again, and has not yet.
    replaceable: Mutex<BTreeMap<u32, Replaceable>>,
    /// What earlier runs have used.
    used: JobTotals,
    /// Held, so that a second run refuses.
    _lock: File,
}

/// The manifest as it should stand on disk, and when it last was brought up to date there.
#[derive(Debug)]
struct Kept {
    manifest: Manifest,
    written: StdInstant,
    /// Whether it has changed since.
    is_stale: bool,
}

impl Kept {
    fn is_due(&self) -> bool {
        self.is_stale && self.written.elapsed() >= UP_TO_DATE
    }
}

/// Setting up.
impl OutputDirectory {
    /// Makes the claimed directory ready: empty but for what a resumed run keeps, and the manifest stands in it.
    pub fn prepare(claim: Claim, spec: &OutputSpec) -> Result<Self, OutputError> {
        let Claim { root, existing, is_new, lock } = claim;
        let root = root.as_path();
        let names = names(root).map_err(io_error(root))?;
        let rows = root.join(ROWS);
        // What a run left that was killed before its manifest stood.
        let nothing = names.iter().all(|name| is_temporary(name));
        let (mut found, mut used) = (Found::default(), JobTotals::default());
        match existing {
            Existing::Resume if !nothing => (found, used) = take_over(root, &rows, spec)?,
            _ if nothing => remove_temporary(root).map_err(io_error(root))?,
            _ => remove_earlier(root, &names)?,
        }
        let mut manifest = Manifest { done: found.done.clone(), totals: used.clone(), ..spec.manifest.clone() };
        manifest.totals.runs += 1;
        let output = Self {
            root: root.to_path_buf(),
            rows,
            layout: spec.layout.clone(),
            keeps_parts: spec.keeps_parts,
            manifest: Mutex::new(Kept { manifest, written: StdInstant::now(), is_stale: true }),
            replaceable: Mutex::new(mem::take(&mut found.replaceable)),
            found,
            used,
            _lock: lock,
        };
        // The manifest comes first: whatever else is there is then known as ours.
        output.bring_up_to_date()?;
        fs::create_dir_all(&output.rows).map_err(io_error(root))?;
        if let (true, Some(parent)) = (is_new, root.parent()) {
            // Best effort: the directory itself is synced, its parent may be one we cannot open.
            let _ = sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
        Ok(output)
    }
}

/// What there is to read.
impl OutputDirectory {
    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The row groups of which earlier runs have left nothing to make.
    #[must_use]
    pub fn done(&self) -> &DoneRowGroups {
        &self.found.done
    }

    /// The rows to make of row groups that earlier runs have written in part, counted from the first row of
    /// the job: ascending ranges, apart from each other. All of a row group that is neither here nor done is
    /// to be made.
    #[must_use]
    pub fn missing(&self) -> &[Range<u64>] {
        &self.found.missing
    }

    /// What earlier runs have left that this one leaves alone.
    #[must_use]
    pub fn earlier(&self) -> Earlier {
        self.found.earlier
    }

    /// What is there now of what earlier runs have left: also what this one was to make again, and has not written.
    #[must_use]
    pub fn remaining(&self) -> Earlier {
        self.replaceable.lock().values().fold(self.found.earlier, |sum, group| sum.plus(group.earlier))
    }

    /// The dropped rows among [`remaining`](Self::remaining).
    #[must_use]
    pub fn dropped(&self) -> DroppedCounts {
        let mut dropped = self.found.dropped.clone();
        self.replaceable.lock().values().for_each(|group| add_counts(&mut dropped, &group.dropped));
        dropped
    }

    /// What earlier runs of the job have used.
    #[must_use]
    pub fn used(&self) -> &JobTotals {
        &self.used
    }
}

/// The manifest and what stands beside it.
impl OutputDirectory {
    /// Keeps in the manifest what this run has used so far; on disk at most about once a second.
    pub fn keep_usage(&self, run: &JobTotals) -> Result<(), OutputError> {
        let mut kept = self.manifest.lock();
        let totals = self.used.plus(run);
        kept.is_stale |= kept.manifest.totals != totals;
        kept.manifest.totals = totals;
        let is_due = kept.is_due();
        drop(kept);
        if is_due { self.bring_up_to_date() } else { Ok(()) }
    }

    /// The file for what the job may have spent by now; it begins with what earlier runs have.
    pub fn amount_file(&self) -> Result<AmountFile, OutputError> {
        let path = self.root.join(SPENT);
        let written = write_whole(&path, |file| AmountFile::write(self.used.spent, file));
        written.and_then(|()| AmountFile::open(&path)).map_err(io_error(&path))
    }

    /// The run is over, and has used this: says so in the manifest.
    pub fn close(&self, state: RunState, run: &JobTotals) -> Result<(), OutputError> {
        let mut kept = self.manifest.lock();
        kept.manifest.state = state;
        kept.manifest.totals = self.used.plus(run);
        for (index, group) in &*self.replaceable.lock() {
            if group.earlier.row_groups > 0 {
                kept.manifest.done.insert(*index);
            }
        }
        drop(kept);
        self.bring_up_to_date()
    }

    /// Writes the capacity values of the run beside those of earlier ones.
    pub fn write_capacity(&self, capacity: &CapacityPlan) -> Result<(), OutputError> {
        let path = self.root.join(CAPACITY);
        keep_earlier(&path).map_err(io_error(&path))?;
        self.write_json(CAPACITY, capacity)
    }

    fn bring_up_to_date(&self) -> Result<(), OutputError> {
        let mut kept = self.manifest.lock();
        (kept.written, kept.is_stale) = (StdInstant::now(), false);
        self.write_json(MANIFEST, &kept.manifest)
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), OutputError> {
        let path = self.root.join(name);
        write_whole(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, value)?;
            file.write_all(b"\n")
        })
        .map_err(io_error(&path))
    }
}

/// Row groups.
impl OutputDirectory {
    /// Writes what a run has made of row group `index`: complete rows with their numbers, ascending, and what
    /// became of the others. If it was written in part before, it is merged with that. Where rows depend on each other it replaces
    /// that, if it has more rows: no run leaves fewer than it found.
    pub fn write_row_group<R: Serialize>(
        &self,
        index: u32,
        rows: impl IntoIterator<Item = (u64, R)>,
        lost: &[DroppedLine],
    ) -> Result<Stored, OutputError> {
        let rows_path = self.rows.join(rows_name(index, self.layout.format.extension()));
        let lost_path = self.rows.join(dropped_name(index));
        let made: Vec<_> = rows.into_iter().map(|(number, row)| (number, FileRow::Made(row))).collect();
        let is_done = if rows_path.exists() {
            let mut merged = BTreeMap::new();
            let mut lines = BTreeMap::new();
            if self.keeps_parts {
                let stored = self.layout.read(&rows_path).map_err(unreadable(&rows_path))?;
                merged.extend(stored.into_iter().map(|(number, row)| (number, FileRow::Stored(row))));
                let before = dropped::read(&lost_path).map_err(unreadable(&lost_path))?;
                lines.extend(before.unwrap_or_default().into_iter().map(|line| (line.row, line)));
            } else {
                let before = self.replaceable.lock().get(&index).map_or(0, |group| group.earlier.rows_out);
                let rows = made.len() as u64;
                if before > 0 && rows <= before {
                    return Ok(Stored::KeptEarlier { rows, before });
                }
            }
            for (number, row) in made {
                merged.entry(number).or_insert(row);
            }
            lines.extend(lost.iter().map(|line| (line.row, line.clone())));
            lines.retain(|row, _| !merged.contains_key(row));
            self.write_rows(&rows_path, merged.into_values())?;
            if lines.is_empty() {
                remove_whole(&lost_path).map_err(io_error(&lost_path))?;
            } else {
                write_lost(&lost_path, lines.values())?;
            }
            !lines.values().any(DroppedLine::is_unmade)
        } else {
            if !lost.is_empty() {
                write_lost(&lost_path, lost)?;
            }
            self.write_rows(&rows_path, made.into_iter().map(|(_, row)| row))?;
            !lost.iter().any(DroppedLine::is_unmade)
        };
        self.replaceable.lock().remove(&index);
        if is_done {
            self.note_done(index);
        }
        Ok(Stored::Written)
    }

    fn note_done(&self, index: u32) {
        let mut kept = self.manifest.lock();
        kept.manifest.done.insert(index);
        kept.is_stale = true;
        let is_due = kept.is_due();
        drop(kept);
        if is_due {
            // The row group is on disk, which is what counts. A disk that takes no more will refuse the next one.
            let _ = self.bring_up_to_date();
        }
    }

    fn write_rows<R: Serialize>(
        &self,
        path: &Path,
        rows: impl IntoIterator<Item = FileRow<R>>,
    ) -> Result<(), OutputError> {
        write_whole(path, |file| self.layout.write(rows, file)).map_err(io_error(path))
    }
}

fn write_lost<'a>(path: &Path, lines: impl IntoIterator<Item = &'a DroppedLine>) -> Result<(), OutputError> {
    write_whole(path, |file| dropped::write(lines, file)).map_err(io_error(path))
}

/// Takes over what runs have left that were stopped or killed: what stays of it, and what they used.
fn take_over(root: &Path, rows: &Path, spec: &OutputSpec) -> Result<(Found, JobTotals), OutputError> {
    let no_run = |why: String| OutputError::NoRun { path: root.to_path_buf(), why };
    let text = fs::read(root.join(MANIFEST)).map_err(|error| no_run(format!("{MANIFEST} cannot be read: {error}")))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| no_run(format!("{MANIFEST}: {error}")))?;
    if value.get("schema").and_then(serde_json::Value::as_u64) != Some(u64::from(MANIFEST_SCHEMA)) {
        return Err(no_run(format!("{MANIFEST} is of another version of this program")));
    }
    let before: Manifest = serde_json::from_value(value).map_err(|error| no_run(format!("{MANIFEST}: {error}")))?;
    if let Some(what) = spec.manifest.differs_from(&before, spec.dataset.as_deref()).map_err(io_error(root))? {
        return Err(OutputError::AnotherRun { path: root.to_path_buf(), what });
    }
    extend_last(rows, spec, &before)?;
    remove_temporary(root).map_err(io_error(root))?;
    let path = root.join(SPENT);
    let stored = AmountFile::read(&path).map_err(unreadable(&path))?.unwrap_or_default();
    // A run that was killed had no time to say in the manifest what it had out.
    let totals = JobTotals { spent: before.totals.spent.max(stored), ..before.totals };
    Ok((Found::look(rows, spec)?, totals))
}

/// A job that is extended may have more rows in what was its last row group: those are unmade. They are
/// listed before the manifest says that they are asked for.
fn extend_last(rows: &Path, spec: &OutputSpec, before: &Manifest) -> Result<(), OutputError> {
    let (old, new) = (before, &spec.manifest);
    let Some(last) = old.row_groups().checked_sub(1).and_then(|last| u32::try_from(last).ok()) else { return Ok(()) };
    let (had, has) = (old.rows_of(last), new.rows_of(last));
    if has <= had || !rows.join(rows_name(last, new.format.extension())).exists() {
        return Ok(());
    }
    let path = rows.join(dropped_name(last));
    let mut lines = dropped::read(&path).map_err(unreadable(&path))?.unwrap_or_default();
    let first = new.first_row + u64::from(last) * u64::from(new.row_group_size);
    lines.retain(|line| line.row < first + had);
    lines.extend((first + had..first + has).map(DroppedLine::unmade));
    write_lost(&path, &lines)
}

/// What every version of the manifest has.
#[derive(Deserialize)]
struct Author {
    program: String,
}

/// Removes what an earlier run wrote, after making sure that there is nothing else.
fn remove_earlier(root: &Path, found: &[String]) -> Result<(), OutputError> {
    let foreign = |found: &str| OutputError::NotOurs { path: root.to_path_buf(), found: found.to_string() };
    if found.is_empty() {
        return Ok(());
    }
    if let Some(name) = found.iter().find(|name| !is_own_name(name)) {
        return Err(foreign(name));
    }
    let author = fs::read(root.join(MANIFEST)).ok().and_then(|text| serde_json::from_slice::<Author>(&text).ok());
    if !author.is_some_and(|author| author.program.starts_with("tidegate ")) {
        return Err(foreign(&found[0]));
    }
    let rows = root.join(ROWS);
    let mut stranger = None;
    visit_names(&rows, |name| {
        if !is_row_file_name(name) {
            stranger = Some(format!("{ROWS}/{name}"));
        }
        Ok(())
    })
    .map_err(io_error(&rows))?;
    if let Some(stranger) = stranger {
        return Err(foreign(&stranger));
    }
    // The manifest stays until it is replaced: what is left after an interruption is still known as ours. The lists of dropped rows go
    // last: rows without their list would be taken for whole.
    let is_list = |name: &str| matches!(RowFile::of(name, ""), Some(RowFile::Dropped(_)));
    let remove = |name: &str| fs::remove_file(rows.join(name));
    visit_names(&rows, |name| if is_list(name) { Ok(()) } else { remove(name) }).map_err(io_error(&rows))?;
    if rows.exists() {
        sync_directory(&rows).map_err(io_error(&rows))?;
    }
    visit_names(&rows, remove).map_err(io_error(&rows))?;
    for name in found.iter().filter(|name| is_temporary(name) || is_capacity(name) || *name == SPENT) {
        fs::remove_file(root.join(name)).map_err(io_error(root))?;
    }
    Ok(())
}
