//! The batches of one batched column in one row group: which ready cells start together.
//!
//! A ready cell is *gathered* until its batch is due. A batch is then queued by one task, its *lead*, which
//! takes gathered cells along when it is dispatched. Cells that become ready while a lead is queued still
//! fill its batch.
//!
//! ```text
//! coming     = open - gathered - queued - deferred - busy     cells that may become ready by themselves
//! unassigned = gathered - queued * (size - 1)                 cells for which no lead is queued
//! due        = unassigned >= size, or unassigned > 0 and coming = 0
//! ```
//!
//! `open` is the number of cells that are neither done nor dropped. A deferred cell is not waited for: it
//! becomes ready only after the row group has no running or queued task.

use alloc::collections::VecDeque;

use super::frontier::TaskState;

/// The cells of one batched column, counted by state.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    /// The gathered rows that are meant for a queued lead, in order, so that a batch has neighbouring rows.
    /// Rows whose cell is no longer [`TaskState::Gathered`] are skipped, here and in `rows`.
    assigned: VecDeque<u32>,
    /// The other gathered rows, in order.
    rows: VecDeque<u32>,
    gathered: u32,
    queued: u32,
    delayed: u32,
    deferred: u32,
    /// Running and parked cells.
    busy: u32,
}

impl Batches {
    pub(super) fn enter(&mut self, row: u32, state: TaskState) {
        if state == TaskState::Gathered {
            self.rows.push_back(row);
        }
        if let Some(count) = self.count_of(state) {
            *count += 1;
        }
    }

    pub(super) fn leave(&mut self, state: TaskState) {
        if let Some(count) = self.count_of(state) {
            *count -= 1;
        }
    }

    fn count_of(&mut self, state: TaskState) -> Option<&mut u32> {
        match state {
            TaskState::Gathered => Some(&mut self.gathered),
            TaskState::Queued => Some(&mut self.queued),
            TaskState::Delayed => Some(&mut self.delayed),
            TaskState::Deferred => Some(&mut self.deferred),
            TaskState::Running | TaskState::Parked => Some(&mut self.busy),
            TaskState::Waiting | TaskState::Skipping | TaskState::Done | TaskState::Dropped => None,
        }
    }

    /// Records that every gathered, queued, deferred or delayed cell is waiting again.
    pub(super) fn discard_waiting(&mut self) {
        *self = Self { busy: self.busy, ..Self::default() };
    }

    /// Returns whether a lead must be queued. `open` is the number of cells that are neither done nor
    /// dropped.
    pub(super) fn is_due(&self, size: u32, open: u32) -> bool {
        let coming = open - self.gathered - self.queued - self.deferred - self.busy;
        let unassigned = self.unassigned(size);
        unassigned >= u64::from(size) || (unassigned > 0 && coming == 0)
    }

    /// Returns whether cells are gathered that would wait for longer than their row group has work. A cell
    /// that is delayed becomes ready by itself, and is worth waiting for.
    pub(super) fn is_overdue(&self, size: u32) -> bool {
        self.unassigned(size) > 0 && self.delayed == 0
    }

    fn unassigned(&self, size: u32) -> u64 {
        u64::from(self.gathered).saturating_sub(u64::from(self.queued) * u64::from(size - 1))
    }

    /// Removes and returns a gathered row to lead a batch, and assigns the rows after it to the batch.
    /// `is_gathered` returns whether the cell of a row is still gathered.
    pub(super) fn take_lead(&mut self, size: u32, is_gathered: impl Fn(u32) -> bool) -> Option<u32> {
        let lead = pop(&mut self.rows, &is_gathered).or_else(|| pop(&mut self.assigned, &is_gathered));
        for _ in 1..size {
            let Some(row) = pop(&mut self.rows, &is_gathered) else { break };
            self.assigned.push_back(row);
        }
        lead
    }

    /// Removes and returns a gathered row to follow a lead. `is_gathered` is as above.
    pub(super) fn take_follower(&mut self, is_gathered: impl Fn(u32) -> bool) -> Option<u32> {
        pop(&mut self.assigned, &is_gathered).or_else(|| pop(&mut self.rows, &is_gathered))
    }
}

/// Removes rows up to the first one whose cell is still gathered, and returns that one.
fn pop(rows: &mut VecDeque<u32>, is_gathered: impl Fn(u32) -> bool) -> Option<u32> {
    loop {
        let row = rows.pop_front()?;
        if is_gathered(row) {
            return Some(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(rows: u32) -> Batches {
        let mut batches = Batches::default();
        (0..rows).for_each(|row| batches.enter(row, TaskState::Gathered));
        batches
    }

    #[test]
    fn a_batch_is_due_when_it_is_full_or_no_cell_is_to_come() {
        let batches = gathered(3);
        assert!(batches.is_due(3, 9) && !batches.is_due(4, 9) && batches.is_due(4, 3));
        assert!(!gathered(0).is_due(4, 0));
    }

    #[test]
    fn a_queued_lead_has_room_for_cells_that_become_ready_later() {
        let mut batches = gathered(1);
        batches.leave(TaskState::Gathered);
        batches.enter(0, TaskState::Queued);
        batches.enter(1, TaskState::Gathered);
        assert!(!batches.is_due(2, 2), "the lead takes it along");
        batches.enter(2, TaskState::Gathered);
        assert!(batches.is_due(2, 3) && !batches.is_due(2, 4));
    }

    #[test]
    fn a_delayed_cell_is_waited_for_and_a_deferred_one_is_not() {
        let mut batches = gathered(1);
        batches.enter(1, TaskState::Delayed);
        assert!(!batches.is_due(4, 2) && !batches.is_overdue(4));
        batches.leave(TaskState::Delayed);
        batches.enter(1, TaskState::Deferred);
        assert!(batches.is_due(4, 2) && batches.is_overdue(4));
    }
}
