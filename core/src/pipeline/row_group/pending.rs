//! A cursor over the row groups that are not admitted yet. Such row groups use no memory.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use crate::pipeline::outcome::ClaimedRowGroup;

/// The largest number of row groups in a run. A task's id has 28 bits for the row group.
pub const MAX_ROW_GROUPS: u32 = 1 << 28;
/// The largest number of rows in a row group. It is 2^24 - 1: a task's id has 24 bits for the row, and uses
/// one value for the whole row group.
pub const MAX_ROW_GROUP_SIZE: u32 = (1 << 24) - 1;
/// The largest number of tasks in a row group. The scheduler uses eight bytes for each task of an active row
/// group, so one row group uses at most 512 MiB.
pub const MAX_ROW_GROUP_TASKS: u64 = 1 << 26;

/// The number and the rows of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The number of the row group, from 0.
    pub(crate) row_group: u32,
    /// The number of its first row in the run, from 0.
    pub(crate) first_row: u64,
    /// The number of its rows.
    pub(crate) rows: u32,
}

/// Returns the row groups that contain a row of `rows`, which must not be empty. `size` is the number of rows
/// in a row group.
pub(crate) fn row_groups_of(rows: &Range<u64>, size: u32) -> RangeInclusive<u32> {
    (rows.start / u64::from(size)) as u32..=((rows.end - 1) / u64::from(size)) as u32
}

/// The row groups that are not admitted yet: a cursor over all row groups that skips the *done* ones, which
/// an earlier run has saved completely, or the row groups that the host claims one by one.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The number of rows of the run.
    rows: u64,
    /// The number of rows in each row group but the last.
    size: u32,
    /// The number of row groups of the run.
    total: u32,
    /// The next row group to admit.
    next: u32,
    /// The done row groups, ascending and distinct.
    done: Vec<u32>,
    /// The number of entries of `done` below `next`.
    done_skipped: usize,
    /// The rows still to compute of row groups that an earlier run has saved in part. The ranges are
    /// ascending, not empty, and do not overlap.
    missing: Vec<Range<u64>>,
    /// The number of rows of those row groups that are not to be computed.
    excluded_rows: u64,
    /// Whether no further row group may be admitted.
    closed: bool,
    /// The claims, if the host chooses the next row group. The cursor is not used then.
    claims: Option<Claims>,
}

/// The row groups that a run has claimed. At most one claim is in progress.
#[derive(Clone, Debug, Default)]
struct Claims {
    state: ClaimState,
    /// The row groups that were claimed, also those that were admitted.
    taken: BTreeSet<u32>,
}

/// The state of the next claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClaimState {
    #[default]
    None,
    /// There is room for a row group, and none was requested from the host yet.
    Due,
    Requested,
    /// The host has claimed this row group, and it is not admitted yet.
    Claimed(u32),
}

impl Pending {
    /// Creates a cursor. The caller has checked the limits: at least one row per group, at most
    /// [`MAX_ROW_GROUPS`] groups.
    pub(crate) fn new(rows: u64, size: u32, mut done: Vec<u32>, missing: Vec<Range<u64>>) -> Self {
        done.sort_unstable();
        done.dedup();
        let total = rows.div_ceil(u64::from(size)) as u32;
        let mut pending = Self {
            rows,
            size,
            total,
            next: 0,
            done,
            done_skipped: 0,
            missing,
            excluded_rows: 0,
            closed: false,
            claims: None,
        };
        pending.excluded_rows = pending.count_excluded();
        pending.skip_done();
        pending
    }

    /// Lets the host choose each row group, instead of the cursor.
    pub(crate) fn with_claims(self) -> Self {
        Self { claims: Some(Claims::default()), ..self }
    }

    /// Counts the rows that are not to be computed, in row groups with missing rows. O(row groups with
    /// missing rows).
    fn count_excluded(&self) -> u64 {
        let parts = self.missing.iter().flat_map(|rows| row_groups_of(rows, self.size)).collect::<BTreeSet<u32>>();
        let rows: u64 = parts.into_iter().map(|row_group| u64::from(self.span_of(row_group).rows)).sum();
        rows - self.missing.iter().map(|rows| rows.end - rows.start).sum::<u64>()
    }

    /// Returns the number of rows of the whole run.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of row groups of the whole run.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closed || self.is_at_end()
    }

    /// Returns whether every row group was taken or is done.
    fn is_at_end(&self) -> bool {
        match &self.claims {
            None => self.next == self.total,
            Some(Claims { state: ClaimState::Claimed(_), .. }) => false,
            Some(claims) => claims.taken.len() + self.done.len() == self.total as usize,
        }
    }

    /// Closes the cursor: no further row group is admitted. Returns whether any was left.
    pub(crate) fn close(&mut self) -> bool {
        !core::mem::replace(&mut self.closed, true) && !self.is_at_end()
    }

    /// Returns the number of row groups that an earlier run has saved completely.
    pub(crate) fn done_groups(&self) -> u32 {
        self.done.len() as u32
    }

    /// Returns the number of rows that earlier runs have completed or dropped.
    pub(crate) fn done_rows(&self) -> u64 {
        let full = u64::from(self.size) * self.done.len() as u64;
        let unused = u64::from(self.size) * u64::from(self.total) - self.rows;
        // Only the last row group can be smaller.
        let is_smaller = self.done.last().is_some_and(|last| last + 1 == self.total);
        self.excluded_rows + if is_smaller { full - unused } else { full }
    }

    /// Returns the rows to compute of a row group, counted from 0 within it. The ranges are ascending, do not
    /// overlap, and contain at least one row. O(log ranges).
    pub(crate) fn missing_of(&self, span: Span) -> impl Iterator<Item = Range<u32>> + Clone {
        let (first, end) = (span.first_row, span.first_row + u64::from(span.rows));
        let from = self.missing.partition_point(|rows| rows.end <= first);
        let parts = self.missing[from..].iter().take_while(move |rows| rows.start < end);
        let parts = parts.map(move |rows| (rows.start.max(first) - first) as u32..(rows.end.min(end) - first) as u32);
        // All rows are missing in a row group of which an earlier run has saved nothing.
        let is_whole = self.missing.get(from).is_none_or(|rows| rows.start >= end);
        parts.chain(is_whole.then_some(0..span.rows))
    }

    /// Returns the number of rows of the next row group. Until it is claimed, it counts as a full one.
    pub(crate) fn next_rows(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        Some(match &self.claims {
            None => self.span_of(self.next).rows,
            Some(Claims { state: ClaimState::Claimed(row_group), .. }) => self.span_of(*row_group).rows,
            Some(_) => self.size,
        })
    }

    /// Returns the number of rows of a row group, or 0 if it does not exist.
    pub(crate) fn rows_in(&self, row_group: u32) -> u32 {
        if row_group < self.total { self.span_of(row_group).rows } else { 0 }
    }

    fn span_of(&self, row_group: u32) -> Span {
        let first_row = u64::from(row_group) * u64::from(self.size);
        let rows = (self.rows - first_row).min(u64::from(self.size)) as u32;
        Span { row_group, first_row, rows }
    }

    /// Returns the next row group, and advances. If it must be claimed first, a claim is due instead.
    pub(crate) fn take(&mut self) -> Option<Span> {
        if self.is_empty() {
            return None;
        }
        if let Some(claims) = &mut self.claims {
            let (state, claimed) = match claims.state {
                ClaimState::None => (ClaimState::Due, None),
                ClaimState::Claimed(row_group) => (ClaimState::None, Some(row_group)),
                state => (state, None),
            };
            claims.state = state;
            return claimed.map(|row_group| self.span_of(row_group));
        }
        let span = self.span_of(self.next);
        self.next += 1;
        self.skip_done();
        Some(span)
    }

    /// Returns whether a row group must be requested from the host now. It is in progress from then on.
    pub(crate) fn request_claim(&mut self) -> bool {
        let due = self.claims.as_mut().filter(|claims| claims.state == ClaimState::Due);
        due.map(|claims| claims.state = ClaimState::Requested).is_some()
    }

    /// Returns whether a claim is in progress whose row group is to be admitted.
    pub(crate) fn is_claiming(&self) -> bool {
        !self.closed && self.claims.as_ref().is_some_and(|claims| claims.state == ClaimState::Requested)
    }

    /// Ends the claim in progress. `None` closes the cursor. A row group that cannot be admitted is left out:
    /// one that is done, that was claimed before, or that does not exist.
    pub(crate) fn end_claim(&mut self, claimed: Option<ClaimedRowGroup>) {
        let is_new = claimed.as_ref().is_some_and(|claimed| self.contains(claimed.row_group));
        let Some(claims) = &mut self.claims else { return };
        claims.state = ClaimState::None;
        match claimed {
            None => self.closed = true,
            Some(ClaimedRowGroup { row_group, missing }) if is_new => {
                claims.taken.insert(row_group);
                claims.state = ClaimState::Claimed(row_group);
                self.add_missing(row_group, &missing);
            }
            Some(_) => {}
        }
    }

    /// Limits a claimed row group to these rows, counted from 0 within it. Its other rows are done. An empty
    /// list stands for all rows.
    fn add_missing(&mut self, row_group: u32, missing: &[Range<u32>]) {
        if missing.is_empty() {
            return;
        }
        let Span { first_row, rows, .. } = self.span_of(row_group);
        let at = self.missing.partition_point(|rows| rows.end <= first_row);
        let of_run = |rows: &Range<u32>| first_row + u64::from(rows.start)..first_row + u64::from(rows.end);
        self.missing.splice(at..at, missing.iter().map(of_run));
        let to_compute: u32 = missing.iter().map(|rows| rows.end - rows.start).sum();
        self.excluded_rows += u64::from(rows - to_compute);
    }

    /// Returns whether a row group is still to be admitted.
    pub(crate) fn contains(&self, row_group: u32) -> bool {
        let is_left = match &self.claims {
            None => (self.next..self.total).contains(&row_group),
            Some(claims) => row_group < self.total && !claims.taken.contains(&row_group),
        };
        !self.closed && is_left && self.done.binary_search(&row_group).is_err()
    }

    fn skip_done(&mut self) {
        while self.done.get(self.done_skipped) == Some(&self.next) {
            self.done_skipped += 1;
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(rows: u64, size: u32, done: Vec<u32>) -> Pending {
        Pending::new(rows, size, done, Vec::new())
    }

    fn spans(mut pending: Pending) -> Vec<(u32, u64, u32)> {
        core::iter::from_fn(|| pending.take()).map(|span| (span.row_group, span.first_row, span.rows)).collect()
    }

    #[test]
    fn the_last_row_group_takes_what_is_left() {
        assert_eq!(spans(new(10, 4, Vec::new())), [(0, 0, 4), (1, 4, 4), (2, 8, 2)]);
        assert_eq!(spans(new(0, 4, Vec::new())), []);
    }

    #[test]
    fn done_row_groups_are_skipped_in_any_order_and_with_duplicates() {
        let pending = new(10, 2, [4, 0, 1, 4].into());
        assert_eq!((pending.done_groups(), pending.done_rows()), (3, 6));
        assert_eq!(spans(pending), [(2, 4, 2), (3, 6, 2)]);
        assert_eq!(spans(new(4, 2, [0, 1].into())), []);
    }

    #[test]
    fn a_smaller_last_row_group_counts_its_own_rows_when_it_is_done() {
        assert_eq!(new(10, 4, [2].into()).done_rows(), 2);
        assert_eq!(new(10, 4, [0, 2].into()).done_rows(), 6);
    }

    #[test]
    fn a_claimed_row_group_is_taken_once_and_a_wrong_one_never() {
        let mut pending = new(10, 4, [1].into()).with_claims();
        assert_eq!((pending.take(), pending.request_claim(), pending.request_claim()), (None, true, false));
        for wrong in [1, 3] {
            pending.end_claim(Some(wrong.into()));
            assert_eq!((pending.take(), pending.request_claim()), (None, true), "row group {wrong}");
        }
        pending.end_claim(Some(2.into()));
        assert_eq!((pending.next_rows(), pending.contains(2), pending.contains(0)), (Some(2), false, true));
        assert_eq!(pending.take().map(|span| (span.row_group, span.first_row, span.rows)), Some((2, 8, 2)));
        assert_eq!((pending.take(), pending.request_claim()), (None, true));
        pending.end_claim(Some(2.into()));
        assert_eq!((pending.take(), pending.request_claim(), pending.is_empty()), (None, true, false));
        pending.end_claim(Some(0.into()));
        assert_eq!((pending.is_empty(), pending.take().is_some(), pending.is_empty()), (false, true, true));
    }

    #[test]
    fn a_row_group_that_is_claimed_in_part_contains_only_the_missing_rows() {
        let mut pending = new(10, 4, Vec::new()).with_claims();
        let mut parts = Vec::new();
        let one = |rows: Range<u32>| Vec::from([rows]);
        for (row_group, missing) in [(2, one(1..2)), (0, [0..1, 2..3].into()), (1, Vec::new())] {
            assert_eq!((pending.take(), pending.request_claim()), (None, true));
            pending.end_claim(Some(ClaimedRowGroup { row_group, missing }));
            let span = pending.take().unwrap();
            parts.push((span.row_group, pending.missing_of(span).collect::<Vec<_>>(), pending.done_rows()));
        }
        assert_eq!(parts, [(2, one(1..2), 1), (0, [0..1, 2..3].into(), 3), (1, one(0..4), 3)]);
    }

    #[test]
    fn a_row_group_with_missing_rows_contains_only_those_rows() {
        let mut pending = Pending::new(14, 4, [0].into(), [5..6, 7..9, 12..14].into());
        assert_eq!(pending.done_rows(), 4 + 2 + 3);
        let mut parts = Vec::new();
        while let Some(span) = pending.take() {
            parts.push((span.row_group, pending.missing_of(span).collect::<Vec<_>>()));
        }
        let one = |rows: Range<u32>| Vec::from([rows]);
        assert_eq!(parts, [(1, [1..2, 3..4].into()), (2, one(0..1)), (3, one(0..2))]);
        let mut whole = new(6, 4, Vec::new());
        let spans = core::iter::from_fn(|| whole.take()).collect::<Vec<_>>();
        let parts: Vec<_> = spans.iter().flat_map(|span| whole.missing_of(*span)).collect();
        assert_eq!(parts, [0..4, 0..2]);
    }
}
