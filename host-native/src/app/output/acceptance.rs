//! Jobs that make rows until a number of them are accepted.
//!
//! The rows to keep are the first accepted ones in their order, whatever the order in which row groups end. A
//! job has enough rows once the row groups without gaps from the first one on have them. Rows after the last
//! one to keep are then removed.

use std::collections::BTreeMap;

use super::dropped_file::{DroppedCounts, DroppedLine};
use super::error::{OutputError, io_error, unreadable};
use super::files::{RowFile, calls_name, dropped_name, read_lines, remove_if_exists, rows_name, visit_names};
use super::scan::ScanResult;
use super::{EarlierOutput, OutputDirectory, OutputSpec, write_dropped};
use crate::app::data::row_file::FileRow;

/// How many rows the row groups have that are complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptance {
    /// The number of rows to accept.
    wanted: Option<u64>,
    /// The rows of complete row groups after the first gap.
    later: BTreeMap<u32, u64>,
    /// The row groups before the first gap, and their rows.
    row_groups: u32,
    rows: u64,
    end: Option<End>,
}

/// The end of the rows to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The last row group.
    pub(super) row_group: u32,
    /// The number of its rows to keep.
    rows: u64,
}

/// How far a job is that makes rows until enough are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedRows {
    /// The accepted rows of complete row groups.
    pub accepted: u64,
    /// The rows to accept.
    pub wanted: u64,
}

/// What a job has kept.
#[derive(Clone, Debug)]
pub struct KeptRows {
    /// Its counts.
    pub counts: EarlierOutput,
    /// The rows that are not written, by column and reason.
    pub dropped: DroppedCounts,
}

impl Acceptance {
    pub(super) fn new(wanted: Option<u64>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Returns where the rows to keep end, once there are enough.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the progress, if a number of rows is wanted. O(complete row groups after the first gap).
    fn progress(&self) -> Option<AcceptedRows> {
        let wanted = self.wanted?;
        let accepted = if self.end.is_some() { wanted } else { self.rows + self.later.values().sum::<u64>() };
        Some(AcceptedRows { accepted: accepted.min(wanted), wanted })
    }

    /// Adds a row group without unmade rows, which has `rows` accepted ones.
    pub(super) fn add(&mut self, row_group: u32, rows: u64) {
        let (Some(wanted), None) = (self.wanted, self.end) else { return };
        self.later.insert(row_group, rows);
        while let Some(rows) = self.later.remove(&self.row_groups) {
            if self.rows + rows >= wanted {
                self.end = Some(End { row_group: self.row_groups, rows: wanted - self.rows });
                return;
            }
            self.rows += rows;
            self.row_groups += 1;
        }
    }
}

impl OutputDirectory {
    /// Returns whether the job has all rows that it has to accept.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        self.acceptance.lock().end().is_some()
    }

    /// Returns how many rows are accepted, if the job has to accept a number of them.
    #[must_use]
    pub fn accepted_rows(&self) -> Option<AcceptedRows> {
        self.acceptance.lock().progress()
    }

    /// Removes the rows after the last one to keep, if the job has enough, and returns what is left.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    pub fn remove_surplus(&self, spec: &OutputSpec) -> Result<Option<KeptRows>, OutputError> {
        let Some(end) = self.acceptance.lock().end() else { return Ok(None) };
        let extension = self.layout.format.extension();
        let mut surplus = Vec::new();
        visit_names(&self.rows, |name| {
            if let Some(RowFile::Rows(row_group)) = RowFile::of(name, extension)
                && row_group > end.row_group
            {
                surplus.push(row_group);
            }
            Ok(())
        })
        .map_err(io_error(&self.rows))?;
        for row_group in surplus {
            // Without its rows, a row group is unmade, whatever its list has.
            for name in [rows_name(row_group, extension), dropped_name(row_group), calls_name(row_group)] {
                let path = self.rows.join(name);
                remove_if_exists(&path).map_err(io_error(&path))?;
            }
        }
        self.cut_row_group(end)?;
        let spec = OutputSpec { retry_dropped: None, ..spec.clone() };
        let found = ScanResult::scan(&self.rows, &spec, true)?;
        self.manifest.lock().manifest.done = found.done;
        let kept = KeptRows { counts: found.earlier, dropped: found.dropped };
        *self.kept.lock() = Some(kept.clone());
        Ok(Some(kept))
    }

    /// Removes the rows of the last row group that are not kept.
    fn cut_row_group(&self, end: End) -> Result<(), OutputError> {
        let rows_path = self.rows.join(rows_name(end.row_group, self.layout.format.extension()));
        let stored = self.layout.read(&rows_path).map_err(unreadable(&rows_path))?;
        let kept = usize::try_from(end.rows).unwrap_or(usize::MAX).min(stored.len());
        if kept == stored.len() {
            return Ok(());
        }
        let dropped_path = self.rows.join(dropped_name(end.row_group));
        let mut lines: Vec<DroppedLine> =
            read_lines(&dropped_path).map_err(unreadable(&dropped_path))?.unwrap_or_default();
        lines.extend(stored[kept..].iter().map(|(number, _)| DroppedLine::surplus(*number)));
        lines.sort_unstable_by_key(|line| line.row);
        // A row in both files is complete, so that a crash in between is repaired by the next run.
        write_dropped(&dropped_path, &lines)?;
        let kept = stored.into_iter().take(kept).map(|(_, row)| FileRow::<()>::Stored(row));
        self.write_rows(&rows_path, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_enough_rows_once_the_row_groups_without_gaps_have_them_in_any_order() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut acceptance = Acceptance::new(Some(7));
            for row_group in order {
                assert_eq!(acceptance.end(), None, "{order:?}");
                acceptance.add(row_group, [3, 0, 3, 2][row_group as usize]);
            }
            assert_eq!(acceptance.end(), Some(End { row_group: 3, rows: 1 }), "{order:?}");
        }
    }

    #[test]
    fn accepted_rows_are_those_of_all_complete_row_groups_up_to_the_wanted_number() {
        let mut acceptance = Acceptance::new(Some(7));
        let mut accepted = Vec::new();
        for (row_group, rows) in [(2, 3), (0, 2), (1, 5)] {
            acceptance.add(row_group, rows);
            accepted.extend(acceptance.progress().map(|progress| progress.accepted));
        }
        assert_eq!(accepted, [3, 5, 7]);
        assert_eq!(Acceptance::new(None).progress(), None);
    }

    #[test]
    fn a_row_group_that_ends_later_moves_no_end() {
        let mut acceptance = Acceptance::new(Some(4));
        for (row_group, rows) in [(1, 4), (0, 4), (2, 4)] {
            acceptance.add(row_group, rows);
        }
        assert_eq!(acceptance.end(), Some(End { row_group: 0, rows: 4 }));
    }
}
