//! Whose turn it is in a column that keeps an order.
//!
//! The tasks of an ordered column form one line: by row group, then by row. The first task that is neither
//! done nor dropped has the turn. Only that task is queued; the others stay out of the queue, where they
//! block nothing. The task keeps the turn while it is deferred or delayed, and while a worker still runs it
//! after its row was dropped.
//!
//! No two columns can wait for each other's turn: a task waits for the same row group's earlier columns and
//! for its own column's earlier tasks, both of which come before it in the order by row group, column and
//! row. Row groups are admitted in their order, so the task that has the turn was admitted, or is the next to
//! be.

use alloc::vec::Vec;

use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::RowGroups;

/// The turns of all ordered columns.
#[derive(Clone, Debug)]
pub(crate) struct ColumnCursors(Vec<ColumnCursor>);

/// The first task of a column's line that was not passed yet.
#[derive(Clone, Copy, Debug)]
struct ColumnCursor {
    column: ColumnId,
    row_group: u32,
    row: u32,
}

impl ColumnCursors {
    pub(crate) fn new(plan: &Plan) -> Self {
        let ordered = plan.order().iter().copied().filter(|column| plan.is_ordered(*column));
        Self(ordered.map(|column| ColumnCursor { column, row_group: 0, row: 0 }).collect())
    }

    /// The row group and row that has the turn; `None` for a column without an order.
    pub(crate) fn holder(&self, plan: &Plan, column: ColumnId) -> Option<(u32, Option<u32>)> {
        let cursor = self.0.iter().find(|cursor| cursor.column == column)?;
        Some((cursor.row_group, plan.is_cell(column).then_some(cursor.row)))
    }

    /// Ordered columns.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The column at this place among the ordered ones.
    pub(crate) fn column(&self, at: usize) -> ColumnId {
        self.0[at].column
    }

    /// Passes the tasks that are done or dropped. Returns the task that has the turn, if it is ready and not
    /// queued yet. Call it while no worker has a task of the column. O(1), and once for each task that is
    /// passed.
    pub(crate) fn next_ready(&mut self, at: usize, plan: &Plan, groups: &RowGroups) -> Option<TaskKey> {
        let cursor = &mut self.0[at];
        let column = cursor.column;
        let is_cell = plan.is_cell(column);
        while let Some(group) = groups.active().first_from(cursor.row_group) {
            if group.number() != cursor.row_group {
                // Those in between were saved, by this run or by an earlier one.
                (cursor.row_group, cursor.row) = (group.number(), 0);
            }
            let tasks = if is_cell { group.span().rows } else { 1 };
            let task = |row: u32| (column, is_cell.then_some(row));
            while cursor.row < tasks && group.frontier().is_settled(plan, task(cursor.row)) {
                cursor.row += 1;
            }
            if cursor.row < tasks {
                let task = task(cursor.row);
                return group.frontier().is_ready(plan, task).then(|| group.key(task));
            }
            (cursor.row_group, cursor.row) = (cursor.row_group + 1, 0);
        }
        None
    }
}
