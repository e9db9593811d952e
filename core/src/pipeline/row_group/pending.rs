//! Which row group is admitted next: a cursor, so that row groups that are not admitted cost no memory.

use alloc::vec::Vec;

/// The largest number of row groups in a run.
pub const MAX_ROW_GROUPS: u32 = 1 << 28;
/// The largest number of rows in a row group: one less than 2^24, as the last value means "the whole group"
/// in a task's id.
pub const MAX_ROW_GROUP_SIZE: u32 = (1 << 24) - 1;
/// The largest number of tasks in a row group. Its frontier takes eight bytes for each.
pub const MAX_ROW_GROUP_TASKS: u64 = 1 << 26;

/// A row group by number and extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) row_group: u32,
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
}

/// The row groups not yet admitted: a cursor over all of them that steps over the done ones.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
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
    pub(crate) fn new(rows: u64, size: u32, mut done: Vec<u32>) -> Self {
        done.sort_unstable();
        done.dedup();
        let total = rows.div_ceil(u64::from(size)) as u32;
        let mut pending = Self { rows, size, total, next: 0, done, passed: 0, closed: false };
        pending.pass_done();
        pending
    }

    /// Rows of the whole run.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closed || self.next == self.total
    }

    /// Gives up what is left. Answers whether there was anything.
    pub(crate) fn close(&mut self) -> bool {
        !core::mem::replace(&mut self.closed, true) && self.next < self.total
    }

    /// How many row groups an earlier run has saved.
    pub(crate) fn done_groups(&self) -> u32 {
        self.done.len() as u32
    }

    /// How many rows those have.
    pub(crate) fn done_rows(&self) -> u64 {
        let full = u64::from(self.size) * self.done.len() as u64;
        let last_missing = u64::from(self.size) * u64::from(self.total) - self.rows;
        // Only the last row group can be a smaller one.
        if self.done.last().is_some_and(|last| last + 1 == self.total) { full - last_missing } else { full }
    }

    /// Rows of the next row group.
    pub(crate) fn next_rows(&self) -> Option<u32> {
        (!self.is_empty()).then(|| self.span_of(self.next).rows)
    }

    fn span_of(&self, row_group: u32) -> Span {
        let first_row = u64::from(row_group) * u64::from(self.size);
        let rows = (self.rows - first_row).min(u64::from(self.size)) as u32;
        Span { row_group, first_row, rows }
    }

    /// The next row group, once.
    pub(crate) fn take(&mut self) -> Option<Span> {
        if self.is_empty() {
            return None;
        }
        let span = self.span_of(self.next);
        self.next += 1;
        self.pass_done();
        Some(span)
    }

    /// Whether a row group is still to be admitted.
    pub(crate) fn has(&self, row_group: u32) -> bool {
        !self.closed && (self.next..self.total).contains(&row_group) && self.done.binary_search(&row_group).is_err()
    }

    fn pass_done(&mut self) {
        while self.done.get(self.passed) == Some(&self.next) {
            self.passed += 1;
            self.next += 1;
        }
    }
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
