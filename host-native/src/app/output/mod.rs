//! The output directory: one rows file per row group, each written atomically.
//!
//! ```text
//! OUT/manifest.json               the definition of the job, its usage, and how its last run ended
//! OUT/spent.txt                   if models have prices: the cost of the job, with that of calls in flight
//! OUT/batches.jsonl               if requests go in batches: the batches at the provider
//! OUT/capacity.json               the limits that applied and their utilisation, once the run has ended
//! OUT/capacity.1.json, ...        the same for earlier runs, oldest first
//! OUT/rows/000000.jsonl           the complete rows of row group 0, in order; also .csv or .parquet
//! OUT/rows/000000.dropped.jsonl   the rows missing from it: dropped, or unmade because a run stopped
//! OUT/rows/000000.calls.jsonl     if the job keeps them: the calls for its rows
//! OUT/processes/...               if several processes fill it: the files of each
//! ```
//!
//! A file is written under a temporary name, synced and renamed, and then its directory is synced. A run that
//! is killed at any moment can be [resumed](ExistingOutput::Resume). The order of the two files of a row
//! group decides what is missing:
//!
//! ```text
//! first write   dropped list, then rows   a list without a rows file is ignored: all its rows are unmade
//! merge         rows, then dropped list   a row in both files is complete, a row in neither is unmade
//! ```
//!
//! If rows do not depend on each other, later rows are merged into the rows file. Otherwise the whole row
//! group is generated again and replaces the file.
//!
//! Several processes may fill one directory: see [`SharedDirectory`].

mod acceptance;
mod batch_journal;
mod calls_file;
mod directory_lock;
mod done_row_groups;
mod dropped_file;
mod earlier_output;
mod error;
mod export;
mod files;
mod images;
mod manifest;
mod output_file;
mod parts;
mod processes;
mod scan;
mod shared;
mod stored_output;
mod surplus;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::observe::CapacityPlan;
use tidegate_core::pipeline::DropReason;

pub use acceptance::AcceptedRows;
pub use batch_journal::{BatchJournal, BatchLine};
pub use calls_file::{CallLine, CallMessage, ModelCallCounts, shown_calls};
pub use directory_lock::DirectoryLock;
pub use done_row_groups::DoneRowGroups;
pub use dropped_file::{DroppedCounts, DroppedLine, REJECTED, SURPLUS, UNMADE};
pub use earlier_output::{RemainingWork, remaining_work};
pub use error::OutputError;
pub use export::{ExportFile, ExportPlan, Exported, LeftOut, MakeRecord, SimilarRows};
pub use files::rotate_file;
pub use manifest::{Identity, JobTotals, MANIFEST_SCHEMA, Manifest, ModelTotals, RunState};
pub use output_file::{OutputFile, open_all};
pub use shared::SharedDirectory;
pub use stored_output::{StoredOutput, StoredRowGroup, dataset_digest};
pub use surplus::KeptRows;

use crate::app::data::row_file::{FileRow, Layout};
use crate::app::provider::cost::{AmountFile, Money};
use acceptance::Acceptance;
use directory_lock::{LockFile, file_names};
use error::{io_error, unreadable};
use files::{
    CAPACITY, MANIFEST, ROWS, SPENT, dropped_name, is_temporary_name, read_lines, remove_if_exists, remove_temporary,
    rows_name, sync_directory, write_atomically, write_json, write_lines,
};
use scan::{ReplaceableCounts, ScanResult, add_counts};

/// How often a running program writes its manifest at most.
const MANIFEST_INTERVAL: StdDuration = StdDuration::from_secs(1);

/// What to do if the output directory is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingOutput {
    /// Fail and change nothing.
    Refuse,
    /// Remove its content, provided that a run of this program wrote all of it.
    Replace,
    /// Keep its rows and generate the missing ones, provided that they belong to the same job.
    Resume,
}

/// What a job writes, and in which form.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// The manifest of the job.
    pub manifest: Manifest,
    /// The format and the columns of the rows files.
    pub layout: Layout,
    /// Whether a row group can be kept in part: its rows do not depend on each other.
    pub keeps_parts: bool,
    /// Rows dropped for these reasons are generated again; an empty list means all reasons, `None` means no
    /// reason.
    pub retry_dropped: Option<Vec<DropReason>>,
    /// The dataset file, if it is a text format, which may have been appended to since an earlier run.
    pub dataset: Option<PathBuf>,
}

/// Counts of the output of earlier runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EarlierOutput {
    /// Rows written.
    pub rows_out: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Rows that a column has rejected, or that were one too many.
    pub rows_rejected: u64,
    /// Row groups without unmade rows.
    pub row_groups: u64,
}

/// One line for people.
impl fmt::Display for EarlierOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows_out, rows_dropped, rows_rejected, row_groups: _ } = self;
        write!(f, "resumed: {rows_out} rows are done already, and {rows_dropped} stay dropped")?;
        if *rows_rejected > 0 { write!(f, " and {rows_rejected} rejected") } else { Ok(()) }
    }
}

/// The result of writing a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The row group is on disk.
    Written,
    /// The files on disk are unchanged, because the new row group does not have more rows.
    KeptEarlier {
        /// Rows in the new row group.
        rows: u64,
        /// Rows on disk.
        before: u64,
    },
}

impl EarlierOutput {
    fn plus(self, other: Self) -> Self {
        Self {
            rows_out: self.rows_out + other.rows_out,
            rows_dropped: self.rows_dropped + other.rows_dropped,
            rows_rejected: self.rows_rejected + other.rows_rejected,
            row_groups: self.row_groups + other.row_groups,
        }
    }

    fn at_most(self, most: Self) -> Self {
        Self {
            rows_out: self.rows_out.min(most.rows_out),
            rows_dropped: self.rows_dropped.min(most.rows_dropped),
            rows_rejected: self.rows_rejected.min(most.rows_rejected),
            row_groups: self.row_groups.min(most.row_groups),
        }
    }
}

/// An output directory that is locked by this run.
#[derive(Debug)]
pub struct OutputDirectory {
    root: PathBuf,
    rows: PathBuf,
    layout: Layout,
    keeps_parts: bool,
    manifest: Mutex<CachedManifest>,
    found: ScanResult,
    acceptance: Mutex<Acceptance>,
    /// What is on disk, once rows after the last one to keep were removed.
    kept: Mutex<Option<KeptRows>>,
    /// Counts of the row groups that this run has to write again and has not written yet.
    replaceable: Mutex<BTreeMap<u32, ReplaceableCounts>>,
    /// Counts of the row groups that other processes have written meanwhile.
    others: Mutex<ReplaceableCounts>,
    /// The usage of earlier runs.
    used: JobTotals,
    /// Makes a second run on the same directory fail for as long as it is held.
    _lock: LockFile,
}

/// The current manifest, which is newer than the one on disk if it is stale.
#[derive(Debug)]
struct CachedManifest {
    manifest: Manifest,
    written_at: StdInstant,
    /// Whether the manifest has changed since it was last written.
    is_stale: bool,
}

impl CachedManifest {
    fn is_due(&self) -> bool {
        self.is_stale && self.written_at.elapsed() >= MANIFEST_INTERVAL
    }
}

/// Preparation.
impl OutputDirectory {
    /// Prepares a locked directory: removes everything that the run does not keep, and writes the manifest.
    ///
    /// # Errors
    ///
    /// If the directory holds files of another program or another job, or a file cannot be read or written.
    pub fn prepare(directory: DirectoryLock, spec: &OutputSpec) -> Result<Self, OutputError> {
        let DirectoryLock { root, existing, is_new, lock } = directory;
        let root = root.as_path();
        let names = file_names(root).map_err(io_error(root))?;
        let rows = root.join(ROWS);
        // A run that was killed before it wrote its manifest leaves only temporary files.
        let is_unused = names.iter().all(|name| is_temporary_name(name));
        let acceptance = Acceptance::new(spec.manifest.wanted);
        let (mut found, mut used) = (ScanResult { acceptance, ..ScanResult::default() }, JobTotals::default());
        // Those of an earlier job, too: the new one may replace its export.
        let exports = export::exports(root);
        match existing {
            ExistingOutput::Resume if !is_unused => (found, used) = earlier_output::resume(root, &rows, spec)?,
            _ if is_unused => remove_temporary(root).map_err(io_error(root))?,
            _ => earlier_output::remove(root, &names)?,
        }
        let (done, totals) = (found.done.clone(), used.clone());
        let mut manifest = Manifest { done, exports, totals, ..spec.manifest.clone() };
        manifest.totals.runs += 1;
        let output = Self {
            root: root.to_path_buf(),
            rows,
            layout: spec.layout.clone(),
            keeps_parts: spec.keeps_parts,
            manifest: Mutex::new(CachedManifest { manifest, written_at: StdInstant::now(), is_stale: true }),
            acceptance: Mutex::new(mem::take(&mut found.acceptance)),
            kept: Mutex::default(),
            replaceable: Mutex::new(mem::take(&mut found.replaceable)),
            others: Mutex::default(),
            found,
            used,
            _lock: lock,
        };
        // The manifest comes first: it marks the directory as written by this program.
        output.write_manifest()?;
        // Their usage is in the manifest now. If this is interrupted, it counts twice, which is better than
        // never.
        processes::remove_processes(root).map_err(io_error(root))?;
        fs::create_dir_all(&output.rows).map_err(io_error(root))?;
        if let (true, Some(parent)) = (is_new, root.parent()) {
            // Best effort: the directory itself is synced, and its parent may not be readable.
            let _ = sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
        // A run that was killed may have left more rows than are wanted.
        output.remove_surplus(spec)?;
        Ok(output)
    }
}

/// What earlier runs left.
impl OutputDirectory {
    /// Returns the path of the directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the row groups for which this run has nothing to do.
    #[must_use]
    pub fn done(&self) -> &DoneRowGroups {
        &self.found.done
    }

    /// Returns the missing rows of partially written row groups, as ascending disjoint ranges, counted from
    /// the first row of the job. A row group that is neither in these ranges nor in [`done`](Self::done) is
    /// missing completely.
    #[must_use]
    pub fn missing(&self) -> &[Range<u64>] {
        &self.found.missing
    }

    /// Returns the counts of the earlier output that this run keeps.
    #[must_use]
    pub fn earlier(&self) -> EarlierOutput {
        self.limited(self.found.earlier)
    }

    /// Returns `counts` without rows that were removed since.
    fn limited(&self, counts: EarlierOutput) -> EarlierOutput {
        self.kept.lock().as_ref().map_or(counts, |kept| counts.at_most(kept.counts))
    }

    /// Returns the counts of the earlier output that is on disk now: [`earlier`](Self::earlier), the rows
    /// that this run has to generate again but has not replaced yet, and those of other processes. Once rows
    /// were removed that are not wanted, the rest counts as earlier output first, and then as that of this
    /// run.
    #[must_use]
    pub fn remaining(&self) -> EarlierOutput {
        let known = self.found.earlier.plus(self.others.lock().earlier);
        self.limited(self.replaceable.lock().values().fold(known, |sum, group| sum.plus(group.earlier)))
    }

    /// Returns the dropped rows of [`remaining`](Self::remaining) by column and reason.
    #[must_use]
    pub fn dropped(&self) -> DroppedCounts {
        let mut dropped = self.found.dropped.clone();
        add_counts(&mut dropped, &self.others.lock().dropped);
        self.replaceable.lock().values().for_each(|group| add_counts(&mut dropped, &group.dropped));
        if let Some(kept) = &*self.kept.lock() {
            dropped.retain(|key, rows| {
                *rows = kept.dropped.get(key).copied().unwrap_or_default().min(*rows);
                *rows > 0
            });
        }
        dropped
    }

    /// Returns the usage of earlier runs of the job.
    #[must_use]
    pub fn used(&self) -> &JobTotals {
        &self.used
    }

    /// Moves `amount` from what earlier runs have spent to this run, which has reserved it.
    pub fn reserve(&mut self, amount: Money) {
        self.used.spent = self.used.spent.saturating_sub(amount);
    }
}

/// The manifest and the other files in the directory.
impl OutputDirectory {
    /// Updates the usage of this run in the manifest, and writes the manifest if that was not done in the
    /// last second.
    pub fn record_usage(&self, run: &JobTotals) -> Result<(), OutputError> {
        let mut cached = self.manifest.lock();
        let totals = self.used.plus(run);
        cached.is_stale |= cached.manifest.totals != totals;
        cached.manifest.totals = totals;
        let is_due = cached.is_due();
        drop(cached);
        if is_due { self.write_manifest() } else { Ok(()) }
    }

    /// Creates the file for what the job may have spent, with the amount that earlier runs have spent.
    pub fn create_amount_file(&self) -> Result<AmountFile, OutputError> {
        let path = self.root.join(SPENT);
        let written = write_atomically(&path, |file| AmountFile::write(self.used.spent, file));
        written.and_then(|()| AmountFile::open(&path)).map_err(io_error(&path))
    }

    /// Writes the final state and usage of the run to the manifest.
    pub fn close(&self, state: RunState, run: &JobTotals) -> Result<(), OutputError> {
        let mut cached = self.manifest.lock();
        cached.manifest.state = state;
        cached.manifest.totals = self.used.plus(run);
        for (index, group) in &*self.replaceable.lock() {
            if group.earlier.row_groups > 0 {
                cached.manifest.done.insert(*index);
            }
        }
        drop(cached);
        self.write_manifest()
    }

    /// Writes the capacity plan of the run. The plans of earlier runs are kept under numbered names.
    pub fn write_capacity(&self, capacity: &CapacityPlan) -> Result<(), OutputError> {
        let path = self.root.join(CAPACITY);
        rotate_file(&path).map_err(io_error(&path))?;
        self.write_json(CAPACITY, capacity)
    }

    fn write_manifest(&self) -> Result<(), OutputError> {
        let mut cached = self.manifest.lock();
        // A failed write is repeated, but not before the interval has passed.
        (cached.written_at, cached.is_stale) = (StdInstant::now(), true);
        self.write_json(MANIFEST, &cached.manifest)?;
        cached.is_stale = false;
        Ok(())
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), OutputError> {
        let path = self.root.join(name);
        write_atomically(&path, |file| write_json(value, file)).map_err(io_error(&path))
    }
}

/// Writing row groups.
impl OutputDirectory {
    /// Writes row group `index`: its complete `rows` with their ascending row numbers, and the `dropped`
    /// rows.
    ///
    /// If an earlier run has written a part of the row group, the rows are merged. Where rows depend on each
    /// other, the new rows replace the earlier ones only if there are more of them, so a run never reduces
    /// the number of rows.
    pub fn write_row_group<R: Serialize>(
        &self,
        index: u32,
        rows: impl IntoIterator<Item = (u64, R)>,
        dropped: &[DroppedLine],
    ) -> Result<WriteOutcome, OutputError> {
        let rows_path = self.rows.join(rows_name(index, self.layout.format.extension()));
        let dropped_path = self.rows.join(dropped_name(index));
        let new_rows: Vec<_> = rows.into_iter().map(|(number, row)| (number, FileRow::New(row))).collect();
        let mut accepted = new_rows.len() as u64;
        let is_done = if rows_path.exists() {
            let mut merged = BTreeMap::new();
            let mut lines = BTreeMap::new();
            if self.keeps_parts {
                let stored = self.layout.read(&rows_path).map_err(unreadable(&rows_path))?;
                merged.extend(stored.into_iter().map(|(number, row)| (number, FileRow::Stored(row))));
                let before: Option<Vec<DroppedLine>> = read_lines(&dropped_path).map_err(unreadable(&dropped_path))?;
                lines.extend(before.unwrap_or_default().into_iter().map(|line| (line.row, line)));
            } else {
                let before = self.replaceable.lock().get(&index).map_or(0, |group| group.earlier.rows_out);
                let rows = new_rows.len() as u64;
                if before > 0 && rows <= before {
                    self.acceptance.lock().add(index, before);
                    return Ok(WriteOutcome::KeptEarlier { rows, before });
                }
            }
            // A row that is on disk already is kept.
            for (number, row) in new_rows {
                merged.entry(number).or_insert(row);
            }
            lines.extend(dropped.iter().map(|line| (line.row, line.clone())));
            lines.retain(|row, _| !merged.contains_key(row));
            accepted = merged.len() as u64;
            // The rows file comes before the dropped list here, and after it below: see the module docs.
            self.write_rows(&rows_path, merged.into_values())?;
            if lines.is_empty() {
                remove_if_exists(&dropped_path).map_err(io_error(&dropped_path))?;
            } else {
                write_dropped(&dropped_path, lines.values())?;
            }
            !lines.values().any(DroppedLine::is_unmade)
        } else {
            if !dropped.is_empty() {
                write_dropped(&dropped_path, dropped)?;
            }
            self.write_rows(&rows_path, new_rows.into_iter().map(|(_, row)| row))?;
            !dropped.iter().any(DroppedLine::is_unmade)
        };
        self.replaceable.lock().remove(&index);
        if is_done {
            self.acceptance.lock().add(index, accepted);
            self.mark_done(index);
        }
        Ok(WriteOutcome::Written)
    }

    /// Adds a row group to the manifest, and writes the manifest if that was not done in the last second.
    fn mark_done(&self, index: u32) {
        let mut cached = self.manifest.lock();
        cached.manifest.done.insert(index);
        cached.is_stale = true;
        let is_due = cached.is_due();
        drop(cached);
        if is_due {
            // The rows files decide what is done, not the manifest. If the disk is full, the next row group
            // fails.
            let _ = self.write_manifest();
        }
    }

    fn write_rows<R: Serialize>(
        &self,
        path: &Path,
        rows: impl IntoIterator<Item = FileRow<R>>,
    ) -> Result<(), OutputError> {
        write_atomically(path, |file| self.layout.write(rows, file)).map_err(io_error(path))
    }
}

fn write_dropped<'a>(path: &Path, lines: impl IntoIterator<Item = &'a DroppedLine>) -> Result<(), OutputError> {
    write_atomically(path, |file| write_lines(lines, file)).map_err(io_error(path))
}
