//! The number of tasks of the active row groups in each state that a decision depends on.

use alloc::vec::Vec;

use super::frontier::TaskState;
use crate::pipeline::plan::ColumnId;

/// Counts of tasks by state. [`RowGroups`](super::RowGroups) updates them with every change of a task state.
#[derive(Clone, Debug)]
pub(crate) struct StateCounts {
    /// By column: tasks in the dispatcher's queue.
    queued: Vec<u32>,
    /// By column: deferred and delayed tasks, which failed and wait to be retried.
    retrying: Vec<u32>,
    /// The delayed tasks of all columns.
    delayed: usize,
}

impl StateCounts {
    pub(super) fn new(columns: usize) -> Self {
        Self { queued: alloc::vec![0; columns], retrying: alloc::vec![0; columns], delayed: 0 }
    }

    pub(super) fn enter(&mut self, column: usize, state: TaskState) {
        match state {
            TaskState::Queued => self.queued[column] += 1,
            TaskState::Deferred => self.retrying[column] += 1,
            TaskState::Delayed => {
                self.retrying[column] += 1;
                self.delayed += 1;
            }
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, column: usize, state: TaskState) {
        match state {
            TaskState::Queued => self.queued[column] -= 1,
            TaskState::Deferred => self.retrying[column] -= 1,
            TaskState::Delayed => {
                self.retrying[column] -= 1;
                self.delayed -= 1;
            }
            _ => {}
        }
    }

    /// Returns the number of queued tasks of each column.
    pub(crate) fn queued(&self) -> &[u32] {
        &self.queued
    }

    /// Returns whether a task of the column is deferred or delayed.
    pub(crate) fn is_retrying(&self, column: ColumnId) -> bool {
        self.retrying[column.index()] > 0
    }

    /// Returns the number of delayed tasks of all columns.
    pub(crate) fn delayed(&self) -> usize {
        self.delayed
    }
}
