//! What earlier runs have left in the folder of rows, and what of it is still to be made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use tidegate_core::pipeline::DropReason;

use super::done::DoneRowGroups;
use super::dropped::{self, DroppedCounts, DroppedLine};
use super::error::{OutputError, io_error, unreadable};
use super::files::{RowFile, dropped_name, is_temporary, rows_name, visit_names};
use super::manifest::Manifest;
use super::{Earlier, OutputSpec};

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Row groups of which no row is to be made.
    pub(super) done: DoneRowGroups,
    /// The rows to make of row groups that stay as they are, counted from the first row of the job.
    pub(super) missing: Vec<Range<u64>>,
    /// What stays.
    pub(super) earlier: Earlier,
    /// The dropped rows among it.
    pub(super) dropped: DroppedCounts,
    /// What counts of row groups that are to be written again, for as long as they are not.
    pub(super) replaceable: BTreeMap<u32, Replaceable>,
}

/// What a row group adds to [`Found::earlier`] and [`Found::dropped`] until it is written again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replaceable {
    pub(super) earlier: Earlier,
    pub(super) dropped: DroppedCounts,
}

impl Found {
    /// Looks through `rows`, and removes what belongs to a row group whose rows were never written. Only row
    /// groups that have a list of dropped rows are read. O(row groups), and rows of those.
    pub(super) fn look(rows: &Path, spec: &OutputSpec) -> Result<Self, OutputError> {
        let manifest = &spec.manifest;
        let extension = manifest.format.extension();
        let (mut written, mut listed) = (DoneRowGroups::default(), DoneRowGroups::default());
        let mut unusable = Vec::new();
        visit_names(rows, |name| {
            match RowFile::of(name, extension) {
                _ if is_temporary(name) => unusable.push(name.to_string()),
                Some(RowFile::Rows(row_group)) if u64::from(row_group) < manifest.row_groups() => {
                    written.insert(row_group);
                }
                Some(RowFile::Dropped(row_group)) => listed.insert(row_group),
                _ => {}
            }
            Ok(())
        })
        .map_err(io_error(rows))?;
        // A list is written before the first rows of its row group: without them, all of it is made anew.
        unusable.extend(listed.iter().filter(|row_group| !written.contains(*row_group)).map(dropped_name));
        for name in unusable {
            let path = rows.join(name);
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        let mut found = Self::default();
        for row_group in written.iter() {
            if listed.contains(row_group) {
                found.take_part(rows, spec, row_group)?;
            } else {
                found.take_whole(manifest, row_group);
            }
        }
        Ok(found)
    }

    fn take_whole(&mut self, manifest: &Manifest, row_group: u32) {
        self.done.insert(row_group);
        self.earlier.row_groups += 1;
        self.earlier.rows_out += manifest.rows_of(row_group);
    }

    /// A row in both files is made; one in neither is unmade.
    fn take_part(&mut self, rows: &Path, spec: &OutputSpec, row_group: u32) -> Result<(), OutputError> {
        let manifest = &spec.manifest;
        let path = rows.join(rows_name(row_group, manifest.format.extension()));
        let stored = spec.layout.read(&path).map_err(unreadable(&path))?;
        let made: BTreeSet<u64> = stored.into_iter().map(|(row, _)| row).collect();
        let path = rows.join(dropped_name(row_group));
        let lines = dropped::read(&path).map_err(unreadable(&path))?.unwrap_or_default();
        let lost: BTreeMap<u64, _> = lines.into_iter().map(|line| (line.row, line)).collect();
        let first = u64::from(row_group) * u64::from(manifest.row_group_size);
        let (mut stays, mut missing) = (Replaceable::default(), Vec::new());
        let (mut retried, mut has_unmade) = (Replaceable::default(), false);
        for row in first..first + manifest.rows_of(row_group) {
            let number = manifest.first_row + row;
            let line = lost.get(&number).filter(|line| !line.is_unmade());
            match line {
                _ if made.contains(&number) => stays.earlier.rows_out += 1,
                Some(line) if !spec.retries(&line.reason) => stays.add_dropped(line),
                _ => {
                    add_row(&mut missing, row);
                    line.map_or_else(|| has_unmade = true, |line| retried.add_dropped(line));
                }
            }
        }
        if missing.is_empty() {
            self.done.insert(row_group);
            stays.earlier.row_groups = 1;
        } else {
            retried.earlier.row_groups = u64::from(!has_unmade);
            if !spec.keeps_parts {
                // All of it is made anew. What is there stays until that is done.
                retried.add(&stays);
                stays = Replaceable::default();
                missing.clear();
            }
            self.replaceable.insert(row_group, retried);
        }
        self.missing.append(&mut missing);
        self.earlier = self.earlier.plus(stays.earlier);
        add_counts(&mut self.dropped, &stays.dropped);
        Ok(())
    }
}

impl Replaceable {
    fn add_dropped(&mut self, line: &DroppedLine) {
        self.earlier.rows_dropped += 1;
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
    /// Whether rows that were dropped for the reason of this name are made again.
    fn retries(&self, reason: &str) -> bool {
        let is_meant =
            |reasons: &Vec<DropReason>| reasons.is_empty() || reasons.iter().any(|known| known.name() == reason);
        self.retry_dropped.as_ref().is_some_and(is_meant)
    }
}

fn add_row(ranges: &mut Vec<Range<u64>>, row: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == row => last.end += 1,
        _ => ranges.push(row..row + 1),
    }
}
