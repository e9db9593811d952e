//! Counts the rows that a run has written, dropped and rejected.

use std::collections::BTreeMap;

use tidegate_core::pipeline::FinishedRowGroup;

use crate::app::output::{DroppedCounts, DroppedLine, EarlierOutput, KeptRows, REJECTED};
use crate::app::report::summary::UnfinishedRows;

/// What this run has written so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenCounts {
    /// Complete rows.
    pub rows: u64,
    /// Dropped rows by column and reason.
    pub dropped: BTreeMap<(String, String), DroppedRows>,
    /// Rejected rows by column.
    pub rejected: BTreeMap<String, u64>,
    /// Row groups without missing rows.
    pub row_groups: u64,
    /// What is kept of row groups with missing rows for other processes. It is in no other count.
    pub unfinished: UnfinishedRows,
}

/// The rows that were dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// Their number.
    pub rows: u64,
    /// The number and error of the first row with a known error.
    pub example: Option<(u64, String)>,
}

impl WrittenCounts {
    /// Reduces the counts to what is left in the output of this run, after rows were removed from it.
    pub(super) fn limit_to(&mut self, left: &KeptRows, earlier: EarlierOutput, earlier_dropped: &DroppedCounts) {
        let now = |column: &str, reason: &str| {
            let key = (column.to_string(), reason.to_string());
            let count = |counts: &DroppedCounts| counts.get(&key).copied().unwrap_or_default();
            count(&left.dropped).saturating_sub(count(earlier_dropped))
        };
        self.rows = left.counts.rows_out.saturating_sub(earlier.rows_out);
        self.row_groups = left.counts.row_groups.saturating_sub(earlier.row_groups);
        self.rejected.iter_mut().for_each(|(column, rows)| *rows = now(column, REJECTED));
        self.dropped.iter_mut().for_each(|((column, reason), dropped)| dropped.rows = now(column, reason));
        self.dropped.retain(|_, dropped| dropped.rows > 0);
    }

    /// Returns the number of rows and row groups, and of the dropped and rejected rows by column and reason.
    pub(super) fn counts(&self) -> (EarlierOutput, DroppedCounts) {
        let rejected = self.rejected.iter().map(|(column, rows)| ((column.clone(), REJECTED.to_string()), *rows));
        let dropped = self.dropped.iter().map(|(key, dropped)| (key.clone(), dropped.rows));
        let counts = EarlierOutput {
            rows_out: self.rows,
            rows_dropped: self.rows_dropped(),
            rows_rejected: self.rejected.values().sum(),
            row_groups: self.row_groups,
        };
        (counts, dropped.chain(rejected).collect())
    }

    /// Returns the number of rows that were dropped for any reason.
    #[must_use]
    pub fn rows_dropped(&self) -> u64 {
        self.dropped.values().map(|dropped| dropped.rows).sum()
    }

    /// Counts a row group with missing rows that other processes go on with.
    pub(super) fn add_unfinished(&mut self, group: &FinishedRowGroup, dropped_lines: &[DroppedLine]) {
        let rejected = dropped_lines.iter().filter(|line| line.is_rejected()).count();
        let rows = group.live.len() as u64 - rejected as u64;
        self.unfinished.rows += rows;
        self.unfinished.row_groups += u64::from(rows > 0);
    }

    pub(super) fn add(&mut self, group: &FinishedRowGroup, dropped_lines: &[DroppedLine]) {
        self.rows += group.live.len() as u64;
        self.row_groups += u64::from(group.unmade.is_empty());
        for line in dropped_lines.iter().filter(|line| line.is_rejected()) {
            self.rows -= 1;
            *self.rejected.entry(line.column.clone().unwrap_or_default()).or_default() += 1;
        }
        for line in dropped_lines.iter().filter(|line| !line.is_unmade() && !line.is_rejected()) {
            let entry = self.dropped.entry(line.key()).or_default();
            entry.rows += 1;
            if let Some(detail) = &line.detail
                && entry.example.as_ref().is_none_or(|(first, _)| line.row < *first)
            {
                entry.example = Some((line.row, detail.clone()));
            }
        }
    }
}
