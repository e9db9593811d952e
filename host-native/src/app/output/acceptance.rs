//! Which rows a job keeps that makes rows until a number of them are accepted.
//!
//! The rows to keep are the first accepted ones in their order, whatever the order in which row groups end. A
//! job has enough rows once the row groups without gaps from the first one on have them.

use std::collections::BTreeMap;

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
    pub(super) rows: u64,
}

/// How far a job is that makes rows until enough are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedRows {
    /// The accepted rows of complete row groups.
    pub accepted: u64,
    /// The rows to accept.
    pub wanted: u64,
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
    pub(super) fn progress(&self) -> Option<AcceptedRows> {
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
