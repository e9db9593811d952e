//! Which row group is next, and when one is finished.
//!
//! [`Pending`] is a cursor: row groups that are not admitted exist as numbers only. An admitted one is a [`RowGroup`]:
//! its frontier, its counters, and what happened to its rows.

pub(in crate::pipeline) mod admitted;
pub(in crate::pipeline) mod frontier;
pub(in crate::pipeline) mod target;

use alloc::vec::Vec;

use crate::order::sorted;
use crate::pipeline::outcome::{DropReason, DroppedRow, FinishedRowGroup};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::frontier::{Entry, Frontier, Place};
use crate::time::Instant;

/// The largest number of row groups in a run.
pub const MAX_ROW_GROUPS: u32 = 1 << 28;
/// The largest number of rows in a row group: one less than 2^24, as the last value means "the whole group" in a task's
/// id.
pub const MAX_ROW_GROUP_SIZE: u32 = (1 << 24) - 1;
/// The largest number of tasks in a row group. Its frontier takes eight bytes for each.
pub const MAX_ROW_GROUP_TASKS: u64 = 1 << 26;

/// A row group by number and extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) struct Span {
    pub(in crate::pipeline) row_group: u32,
    pub(in crate::pipeline) first_row: u64,
    pub(in crate::pipeline) rows: u32,
}

/// The row groups not yet admitted: a cursor over all of them that steps over the done ones.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Pending {
    rows: u64,
    size: u32,
    total: u32,
    next: u32,
    /// Ascending and distinct.
    done: Vec<u32>,
    /// Entries of `done` below `next`.
    passed: usize,
    /// No more are to be admitted.
    closed: bool,
}

impl Pending {
    /// The caller has checked the bounds: at least one row per group, at most [`MAX_ROW_GROUPS`] groups.
    pub(in crate::pipeline) fn new(rows: u64, size: u32, done: Vec<u32>) -> Self {
        let mut done = sorted(done);
        done.dedup();
        let total = rows.div_ceil(u64::from(size)) as u32;
        let mut pending = Self { rows, size, total, next: 0, done, passed: 0, closed: false };
        pending.pass_done();
        pending
    }

    pub(in crate::pipeline) fn total(&self) -> u32 {
        self.total
    }

    pub(in crate::pipeline) fn is_empty(&self) -> bool {
        self.closed || self.next == self.total
    }

    /// Gives up what is left. Answers whether there was anything.
    pub(in crate::pipeline) fn close(&mut self) -> bool {
        !core::mem::replace(&mut self.closed, true) && self.next < self.total
    }

    /// How many row groups an earlier run has saved.
    pub(in crate::pipeline) fn done_groups(&self) -> u32 {
        self.done.len() as u32
    }

    /// How many rows those have.
    pub(in crate::pipeline) fn done_rows(&self) -> u64 {
        let full = u64::from(self.size) * self.done.len() as u64;
        let last_missing = u64::from(self.size) * u64::from(self.total) - self.rows;
        // Only the last row group can be a smaller one.
        if self.done.last().is_some_and(|last| last + 1 == self.total) { full - last_missing } else { full }
    }

    /// Rows of the next row group.
    pub(in crate::pipeline) fn next_rows(&self) -> Option<u32> {
        (!self.is_empty()).then(|| self.span_of(self.next).rows)
    }

    fn span_of(&self, row_group: u32) -> Span {
        let first_row = u64::from(row_group) * u64::from(self.size);
        let rows = (self.rows - first_row).min(u64::from(self.size)) as u32;
        Span { row_group, first_row, rows }
    }

    /// The next row group, once.
    pub(in crate::pipeline) fn take(&mut self) -> Option<Span> {
        if self.is_empty() {
            return None;
        }
        let span = self.span_of(self.next);
        self.next += 1;
        self.pass_done();
        Some(span)
    }

    /// Whether a row group is still to be admitted.
    pub(in crate::pipeline) fn has(&self, row_group: u32) -> bool {
        !self.closed && (self.next..self.total).contains(&row_group) && self.done.binary_search(&row_group).is_err()
    }

    fn pass_done(&mut self) {
        while self.done.get(self.passed) == Some(&self.next) {
            self.passed += 1;
            self.next += 1;
        }
    }
}

/// How far an admitted row group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum Phase {
    /// Some of it is left to do.
    Open,
    /// Its pre-batch hook was called.
    PreBatch,
    /// Nothing is left to do, and its post-batch hook was called.
    PostBatch,
    /// Handed out for its checkpoint.
    Saving,
    /// Its checkpoint failed; it is kept.
    Unsaved,
}

/// A task that waits for the next salvage round of its row group.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Deferred {
    pub(in crate::pipeline) place: Place,
    /// The provider's own retry-after still holds then.
    pub(in crate::pipeline) not_before: Instant,
}

/// An admitted row group.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct RowGroup {
    pub(in crate::pipeline) span: Span,
    pub(in crate::pipeline) phase: Phase,
    /// Whether its pre-batch hook is still to be answered.
    pub(in crate::pipeline) gated: bool,
    pub(in crate::pipeline) frontier: Frontier,
    /// Tasks in the dispatcher's queue.
    pub(in crate::pipeline) queued: usize,
    /// Workers, those for dropped rows included.
    pub(in crate::pipeline) running: usize,
    /// In the order they failed; those dropped since are passed over.
    pub(in crate::pipeline) deferred: Vec<Deferred>,
    dropped: Vec<DroppedRow>,
}

impl RowGroup {
    /// Sets up the tasks of a row group; `ready` gets those with no upstream. If `gated`, its pre-batch hook is called
    /// before all but its seeds.
    pub(in crate::pipeline) fn admit(plan: &Plan, span: Span, gated: bool, ready: &mut Vec<Place>) -> Self {
        let frontier = Frontier::new(plan, span.rows, gated, ready);
        let phase = Phase::Open;
        Self { span, phase, gated, frontier, queued: 0, running: 0, deferred: Vec::new(), dropped: Vec::new() }
    }

    /// Whether it has rows that its pre-batch hook has not seen.
    pub(in crate::pipeline) fn awaits_pre_batch(&self) -> bool {
        self.gated && self.frontier.has_live_rows()
    }

    /// Whether no worker has a task of it and none is queued.
    pub(in crate::pipeline) fn is_quiet(&self) -> bool {
        self.running == 0 && self.queued == 0
    }

    pub(in crate::pipeline) fn key(&self, (column, row): Place) -> TaskKey {
        TaskKey { row_group: self.span.row_group, column, row }
    }

    /// Drops the row of a failed cell, or all rows for a task of the whole group. `ready` gets tasks that waited for
    /// nothing else; `gone` each dropped task as it was. Answers how many rows were dropped.
    pub(in crate::pipeline) fn drop_rows(
        &mut self,
        plan: &Plan,
        (column, row): Place,
        reason: DropReason,
        ready: &mut Vec<Place>,
        mut gone: impl FnMut(Place, Entry),
    ) -> u32 {
        let rows = row.map_or(0..self.span.rows, |row| row..row + 1);
        if row.is_none() {
            self.frontier.drop_whole(plan, &mut gone);
        }
        let before = self.dropped.len();
        for row in rows {
            if self.frontier.drop_row(plan, row, ready, &mut gone) {
                self.dropped.push(DroppedRow { row, column, reason });
            }
        }
        (self.dropped.len() - before) as u32
    }

    /// What is saved of the group: its complete rows, and every other one with a reason. O(rows).
    pub(in crate::pipeline) fn finished(&self, plan: &Plan) -> FinishedRowGroup {
        let mut by_row = alloc::vec![None; self.span.rows as usize];
        for dropped in self.dropped.iter().copied().chain(self.unfinished(plan)) {
            by_row[dropped.row as usize] = Some(dropped);
        }
        let dropped: Vec<DroppedRow> = by_row.into_iter().flatten().collect();
        let live: Vec<u32> = (0..self.span.rows).filter(|row| self.frontier.is_complete(*row)).collect();
        debug_assert_eq!(live.len() + dropped.len(), self.span.rows as usize);
        let Span { row_group, first_row, rows } = self.span;
        FinishedRowGroup { row_group, first_row, rows, live, dropped }
    }

    /// The rows that the run's end left incomplete, with the column each one lacks first. None in a group with no open
    /// task.
    pub(in crate::pipeline) fn unfinished(&self, plan: &Plan) -> impl Iterator<Item = DroppedRow> {
        (0..self.span.rows)
            .filter(|row| self.frontier.is_live(*row) && !self.frontier.is_complete(*row))
            .filter_map(|row| Some(stopped(row, self.frontier.first_missing(plan, row)?)))
    }
}

fn stopped(row: u32, column: ColumnId) -> DroppedRow {
    DroppedRow { row, column, reason: DropReason::Stopped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(mut pending: Pending) -> Vec<(u32, u64, u32)> {
        core::iter::from_fn(|| pending.take()).map(|span| (span.row_group, span.first_row, span.rows)).collect()
    }

    #[test]
    fn the_last_row_group_takes_what_is_left() {
        assert_eq!(spans(Pending::new(10, 4, Vec::new())), [(0, 0, 4), (1, 4, 4), (2, 8, 2)]);
        assert_eq!(spans(Pending::new(0, 4, Vec::new())), []);
    }

    #[test]
    fn done_row_groups_are_stepped_over_in_any_order_and_number() {
        let pending = Pending::new(10, 2, [4, 0, 1, 4].into());
        assert_eq!((pending.done_groups(), pending.done_rows()), (3, 6));
        assert_eq!(spans(pending), [(2, 4, 2), (3, 6, 2)]);
        assert_eq!(spans(Pending::new(4, 2, [0, 1].into())), []);
    }

    #[test]
    fn a_smaller_last_row_group_counts_its_own_rows_when_it_is_done() {
        assert_eq!(Pending::new(10, 4, [2].into()).done_rows(), 2);
        assert_eq!(Pending::new(10, 4, [0, 2].into()).done_rows(), 6);
    }
}
