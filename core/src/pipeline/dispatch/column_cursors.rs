//! Decides which task of an ordered column may run next.
//!
//! The tasks of an ordered column form one sequence: by row group, then by row. The first task that is
//! neither done nor dropped has the turn. Only this task is queued. The other tasks stay out of the queue,
//! where they would block other work. The task keeps the turn while it is deferred or delayed, and while a
//! worker still runs it after its row was dropped.
//!
//! Turns cannot deadlock. A task waits only for earlier columns of its row group and for earlier tasks of its
//! column. Both come before it in the order by row group, column and row. Row groups are admitted in order,
//! so the task that has the turn is admitted, or is in the next row group to be admitted.

use alloc::vec::Vec;

use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::row_group::RowGroups;

/// The cursors of all ordered columns.
#[derive(Clone, Debug)]
pub(crate) struct ColumnCursors(Vec<ColumnCursor>);

/// The first task in the sequence of a column that the cursor has not passed.
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

    /// Returns the row group and row that have the turn, or `None` if the column is not ordered.
    pub(crate) fn current_turn(&self, plan: &Plan, column: ColumnId) -> Option<(u32, Option<u32>)> {
        let cursor = self.0.iter().find(|cursor| cursor.column == column)?;
        Some((cursor.row_group, plan.is_cell(column).then_some(cursor.row)))
    }

    /// Returns the number of ordered columns.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the column at this index among the ordered columns.
    pub(crate) fn column(&self, at: usize) -> ColumnId {
        self.0[at].column
    }

    /// Advances past the tasks that are done or dropped. Returns the task that has the turn, if it is ready
    /// and not queued yet. Must be called only while no worker has a task of the column. O(1) plus one step
    /// for each task that is passed.
    pub(crate) fn next_ready(&mut self, at: usize, plan: &Plan, groups: &RowGroups) -> Option<TaskKey> {
        let cursor = &mut self.0[at];
        let column = cursor.column;
        let is_cell = plan.is_cell(column);
        while let Some(group) = groups.active().first_from(cursor.row_group) {
            if group.number() != cursor.row_group {
                // The row groups in between were saved by this run or by an earlier one.
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
