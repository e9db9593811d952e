//! Scans the directory of rows for the output of earlier runs, and finds the missing rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use tidegate_core::pipeline::DropReason;

use super::acceptance::Acceptance;
use super::done_row_groups::DoneRowGroups;
use super::dropped_file::{DroppedCounts, DroppedLine, SURPLUS};
use super::error::{OutputError, io_error, unreadable};
use super::files::{RowFile, dropped_name, is_temporary_name, read_lines, rows_name, visit_names};
use super::manifest::Manifest;
use super::{EarlierOutput, OutputSpec};

/// The output of earlier runs.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    /// Row groups without missing rows.
    pub(super) done: DoneRowGroups,
    /// The missing rows of row groups that are kept in part, counted from the first row of the job.
    pub(super) missing: Vec<Range<u64>>,
    /// Counts of the rows that this run keeps.
    pub(super) earlier: EarlierOutput,
    /// The dropped rows among them.
    pub(super) dropped: DroppedCounts,
    /// The rows of the row groups that are done.
    pub(super) acceptance: Acceptance,
    /// Counts of the rows that this run has to generate again, by row group. They count until the row group
    /// is written.
    pub(super) replaceable: BTreeMap<u32, ReplaceableCounts>,
}

/// What the names in the directory of rows say.
#[derive(Debug, Default)]
pub(super) struct FoundNames {
    /// The row groups with a rows file.
    pub(super) written: DoneRowGroups,
    /// The row groups with a dropped list.
    pub(super) listed: DoneRowGroups,
    temporary: Vec<String>,
}

impl FoundNames {
    /// Reads the names in the directory `rows`. O(row groups).
    pub(super) fn of(rows: &Path, manifest: &Manifest) -> Result<Self, OutputError> {
        let (mut found, extension) = (Self::default(), manifest.format.extension());
        visit_names(rows, |name| {
            match RowFile::of(name, extension) {
                _ if is_temporary_name(name) => found.temporary.push(name.to_string()),
                Some(RowFile::Rows(row_group)) if u64::from(row_group) < manifest.row_group_count() => {
                    found.written.insert(row_group);
                }
                Some(RowFile::Dropped(row_group)) => found.listed.insert(row_group),
                _ => {}
            }
            Ok(())
        })
        .map_err(io_error(rows))?;
        Ok(found)
    }
}

/// What a row group adds to [`ScanResult::earlier`] and [`ScanResult::dropped`] until this run writes it
/// again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReplaceableCounts {
    pub(super) earlier: EarlierOutput,
    pub(super) dropped: DroppedCounts,
}

impl ScanResult {
    /// Scans the directory `rows`, and removes temporary files and dropped lists without a rows file.
    ///
    /// Reads the files of row groups that have a dropped list, and only the names of the others. O(row
    /// groups), plus the rows that are read.
    ///
    /// Rows that were one too many are unmade, unless `keeps_surplus`.
    pub(super) fn scan(rows: &Path, spec: &OutputSpec, keeps_surplus: bool) -> Result<Self, OutputError> {
        let FoundNames { written, listed, temporary } = FoundNames::of(rows, &spec.manifest)?;
        // The dropped list is written before the rows file. Without a rows file the whole row group is
        // unmade.
        let unusable = listed.iter().filter(|row_group| !written.contains(*row_group)).map(dropped_name);
        for name in temporary.into_iter().chain(unusable) {
            let path = rows.join(name);
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        Self::read(rows, spec, &written, &listed, keeps_surplus)
    }

    /// Does the same as [`scan`](Self::scan) while other processes write row groups, and changes nothing.
    pub(super) fn read_shared(rows: &Path, spec: &OutputSpec) -> Result<Self, OutputError> {
        let FoundNames { written, .. } = FoundNames::of(rows, &spec.manifest)?;
        // Looked for second, since the list of a row group is there before its rows.
        let FoundNames { listed, .. } = FoundNames::of(rows, &spec.manifest)?;
        Self::read(rows, spec, &written, &listed, true)
    }

    /// Reads what the directory `rows` has of one row group, and changes nothing. Its list may be missing: a
    /// row in neither file is unmade.
    pub(super) fn read_one(rows: &Path, spec: &OutputSpec, row_group: u32) -> Result<Self, OutputError> {
        let mut found = Self { acceptance: Acceptance::new(spec.manifest.wanted), ..Self::default() };
        if rows.join(rows_name(row_group, spec.manifest.format.extension())).exists() {
            found.add_partial(rows, spec, row_group, true)?;
        }
        Ok(found)
    }

    /// Does the same as [`scan`](Self::scan) for a job that had the rows of `before` and may be extended, and
    /// changes nothing.
    pub(super) fn read_extended(
        rows: &Path,
        spec: &OutputSpec,
        before: &Manifest,
        keeps_surplus: bool,
    ) -> Result<Self, OutputError> {
        let FoundNames { written, mut listed, .. } = FoundNames::of(rows, &spec.manifest)?;
        if let Some(last) = before.last_row_group()
            && spec.manifest.rows_in_group(last) > before.rows_in_group(last)
        {
            // It has no list of its new rows yet.
            listed.insert(last);
        }
        Self::read(rows, spec, &written, &listed, keeps_surplus)
    }

    fn read(
        rows: &Path,
        spec: &OutputSpec,
        written: &DoneRowGroups,
        listed: &DoneRowGroups,
        keeps_surplus: bool,
    ) -> Result<Self, OutputError> {
        let manifest = &spec.manifest;
        let mut found = Self { acceptance: Acceptance::new(spec.manifest.wanted), ..Self::default() };
        for row_group in written.iter() {
            if listed.contains(row_group) {
                found.add_partial(rows, spec, row_group, keeps_surplus)?;
            } else {
                found.add_complete(manifest, row_group);
            }
        }
        Ok(found)
    }

    fn add_complete(&mut self, manifest: &Manifest, row_group: u32) {
        self.done.insert(row_group);
        self.earlier.row_groups += 1;
        self.earlier.rows_out += manifest.rows_in_group(row_group);
        self.acceptance.add(row_group, manifest.rows_in_group(row_group));
    }

    /// Adds a row group with a dropped list. A row in both files is complete, a row in neither is unmade.
    fn add_partial(
        &mut self,
        rows: &Path,
        spec: &OutputSpec,
        row_group: u32,
        keeps_surplus: bool,
    ) -> Result<(), OutputError> {
        let manifest = &spec.manifest;
        let path = rows.join(rows_name(row_group, manifest.format.extension()));
        let stored = spec.layout.read(&path).map_err(unreadable(&path))?;
        let complete: BTreeSet<u64> = stored.into_iter().map(|(row, _)| row).collect();
        let path = rows.join(dropped_name(row_group));
        let lines: Vec<DroppedLine> = read_lines(&path).map_err(unreadable(&path))?.unwrap_or_default();
        let dropped: BTreeMap<u64, _> = lines.into_iter().map(|line| (line.row, line)).collect();
        let first = u64::from(row_group) * u64::from(manifest.row_group_size);
        let (mut kept, mut missing) = (ReplaceableCounts::default(), Vec::new());
        let (mut retried, mut has_unmade) = (ReplaceableCounts::default(), false);
        for row in first..first + manifest.rows_in_group(row_group) {
            let number = manifest.first_row + row;
            let is_unmade = |line: &DroppedLine| line.is_unmade() || line.reason == SURPLUS && !keeps_surplus;
            let line = dropped.get(&number).filter(|line| !is_unmade(line));
            match line {
                _ if complete.contains(&number) => kept.earlier.rows_out += 1,
                Some(line) if line.is_rejected() || !spec.retries(&line.reason) => kept.add_dropped(line),
                _ => {
                    add_row(&mut missing, row);
                    line.map_or_else(|| has_unmade = true, |line| retried.add_dropped(line));
                }
            }
        }
        if missing.is_empty() {
            self.done.insert(row_group);
            self.acceptance.add(row_group, kept.earlier.rows_out);
            kept.earlier.row_groups = 1;
        } else {
            retried.earlier.row_groups = u64::from(!has_unmade);
            if !spec.keeps_parts {
                // The whole row group is generated again. Its rows count until they are replaced.
                retried.add(&kept);
                kept = ReplaceableCounts::default();
                missing.clear();
            }
            self.replaceable.insert(row_group, retried);
        }
        self.missing.append(&mut missing);
        self.earlier = self.earlier.plus(kept.earlier);
        add_counts(&mut self.dropped, &kept.dropped);
        Ok(())
    }
}

impl ReplaceableCounts {
    fn add_dropped(&mut self, line: &DroppedLine) {
        let rows = if line.is_rejected() { &mut self.earlier.rows_rejected } else { &mut self.earlier.rows_dropped };
        *rows += 1;
        *self.dropped.entry(line.key()).or_default() += 1;
    }

    fn add(&mut self, other: &Self) {
        self.earlier = self.earlier.plus(other.earlier);
        add_counts(&mut self.dropped, &other.dropped);
    }
}

pub(super) fn add_counts(counts: &mut DroppedCounts, more: &DroppedCounts) {
    for (key, rows) in more {
        *counts.entry(key.clone()).or_default() += rows;
    }
}

impl OutputSpec {
    /// Returns whether rows that were dropped for the reason of this name are generated again.
    fn retries(&self, reason: &str) -> bool {
        let is_listed =
            |reasons: &Vec<DropReason>| reasons.is_empty() || reasons.iter().any(|known| known.name() == reason);
        self.retry_dropped.as_ref().is_some_and(is_listed)
    }
}

fn add_row(ranges: &mut Vec<Range<u64>>, row: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == row => last.end += 1,
        _ => ranges.push(row..row + 1),
    }
}
