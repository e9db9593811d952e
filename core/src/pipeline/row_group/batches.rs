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
//!
//! A batch has only cells of one *level*, and `unassigned` and `size` are those of the level. The level is
//! the number of retries that a cell has used. If the column
//! [splits](crate::pipeline::Column::splits_retries) its retries, each level has a smaller size than the one
//! before, down to 1 for the last retry:
//!
//! ```text
//! size of level r = size / 2^(r * shift), at least 1      shift = ceil(log2(size) / retries)
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::frontier::TaskState;

/// The largest batch of a column on each level.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSizes {
    size: u32,
    /// The number of bits by which the size shrinks with each retry.
    shift: u32,
}

impl BatchSizes {
    /// Returns the sizes of a column whose cells have `retries` retries, at most 255. `splits` is
    /// [`Column::splits_retries`](crate::pipeline::Column::splits_retries).
    pub(super) fn new(size: u32, splits: bool, retries: u32) -> Self {
        let bits = u32::BITS - size.saturating_sub(1).leading_zeros();
        let shift = if splits && retries > 0 { bits.div_ceil(retries) } else { 0 };
        Self { size: size.max(1), shift }
    }

    fn of(self, level: usize) -> u32 {
        let bits = level as u32 * self.shift;
        self.size.checked_shr(bits).unwrap_or(0).max(1)
    }

    /// Returns the level of a cell. There are at most 33 levels.
    fn level(self, retries: u8) -> usize {
        let last = if self.shift == 0 { 0 } else { u32::BITS.div_ceil(self.shift) };
        usize::from(retries).min(last as usize)
    }
}

/// The cells of one batched column, counted by state.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    sizes: BatchSizes,
    /// Only those up to the highest one that a cell has reached.
    levels: Vec<Level>,
    delayed: u32,
    deferred: u32,
    /// Running and parked cells.
    busy: u32,
}

/// The gathered and queued cells that have used the same number of retries.
#[derive(Clone, Debug, Default)]
struct Level {
    /// The gathered rows that are meant for a queued lead, in order, so that a batch has neighbouring rows.
    /// Rows whose cell is no longer [`TaskState::Gathered`] are skipped, here and in `rows`.
    assigned: VecDeque<u32>,
    /// The other gathered rows, in order.
    rows: VecDeque<u32>,
    gathered: u32,
    queued: u32,
}

impl Batches {
    pub(super) fn new(sizes: BatchSizes) -> Self {
        Self { sizes, levels: Vec::new(), delayed: 0, deferred: 0, busy: 0 }
    }

    /// Counts a cell that enters a state after it has used `retries` retries.
    pub(super) fn enter(&mut self, row: u32, state: TaskState, retries: u8) {
        if let Some(count) = self.count_of(state, retries) {
            *count += 1;
        }
        if state == TaskState::Gathered {
            self.level_mut(retries).rows.push_back(row);
        }
    }

    /// Counts a cell that leaves a state that it entered with this number of retries.
    pub(super) fn leave(&mut self, state: TaskState, retries: u8) {
        if let Some(count) = self.count_of(state, retries) {
            *count -= 1;
        }
    }

    fn count_of(&mut self, state: TaskState, retries: u8) -> Option<&mut u32> {
        match state {
            TaskState::Gathered => Some(&mut self.level_mut(retries).gathered),
            TaskState::Queued => Some(&mut self.level_mut(retries).queued),
            TaskState::Delayed => Some(&mut self.delayed),
            TaskState::Deferred => Some(&mut self.deferred),
            TaskState::Running | TaskState::Parked => Some(&mut self.busy),
            TaskState::Waiting | TaskState::Skipping | TaskState::Done | TaskState::Dropped => None,
        }
    }

    fn level_mut(&mut self, retries: u8) -> &mut Level {
        let level = self.sizes.level(retries);
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        &mut self.levels[level]
    }

    /// Records that every gathered, queued, deferred or delayed cell is waiting again.
    pub(super) fn discard_waiting(&mut self) {
        *self = Self { busy: self.busy, ..Self::new(self.sizes) };
    }

    /// Removes and returns a gathered row to lead a batch, if a batch is due, and assigns the rows after it
    /// to the batch. The caller queues the row.
    ///
    /// `open` is the number of cells that are neither done nor dropped. If `is_last_work` is true, the row
    /// group has no running or queued task, and a batch is kept only for delayed cells, because they become
    /// ready by themselves. `is_gathered` returns whether the cell of a row is still gathered.
    pub(super) fn take_lead(
        &mut self,
        open: u32,
        is_last_work: bool,
        is_gathered: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let taken: u32 = self.levels.iter().map(|level| level.gathered + level.queued).sum();
        let coming = open - taken - self.deferred - self.busy;
        let is_kept = coming > 0 && !(is_last_work && self.delayed == 0);
        let sizes = self.sizes;
        self.levels.iter_mut().enumerate().find_map(|(at, level)| {
            let size = sizes.of(at);
            let unassigned = level.unassigned(size);
            let is_due = unassigned >= u64::from(size) || (unassigned > 0 && !is_kept);
            is_due.then(|| level.take_lead(size, &is_gathered))?
        })
    }

    /// Removes and returns a gathered row for a batch of `taken` cells, if the batch has room. `retries` is
    /// the number of retries that its lead has used. `is_gathered` is as above.
    pub(super) fn take_follower(&mut self, retries: u8, taken: u32, is_gathered: impl Fn(u32) -> bool) -> Option<u32> {
        let has_room = taken < self.sizes.of(self.sizes.level(retries));
        has_room.then(|| self.level_mut(retries).take_follower(&is_gathered))?
    }
}

impl Level {
    fn unassigned(&self, size: u32) -> u64 {
        u64::from(self.gathered).saturating_sub(u64::from(self.queued) * u64::from(size - 1))
    }

    fn take_lead(&mut self, size: u32, is_gathered: &impl Fn(u32) -> bool) -> Option<u32> {
        let lead = pop(&mut self.rows, is_gathered).or_else(|| pop(&mut self.assigned, is_gathered));
        for _ in 1..size {
            let Some(row) = pop(&mut self.rows, is_gathered) else { break };
            self.assigned.push_back(row);
        }
        lead
    }

    fn take_follower(&mut self, is_gathered: &impl Fn(u32) -> bool) -> Option<u32> {
        pop(&mut self.assigned, is_gathered).or_else(|| pop(&mut self.rows, is_gathered))
    }
}

/// Removes rows up to the first one whose cell is still gathered, and returns that one.
fn pop(rows: &mut VecDeque<u32>, is_gathered: &impl Fn(u32) -> bool) -> Option<u32> {
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

    fn gathered(size: u32, rows: u32) -> Batches {
        let mut batches = Batches::new(BatchSizes::new(size, false, 3));
        (0..rows).for_each(|row| batches.enter(row, TaskState::Gathered, 0));
        batches
    }

    fn is_due(batches: &Batches, open: u32, is_last_work: bool) -> bool {
        batches.clone().take_lead(open, is_last_work, |_| true).is_some()
    }

    #[test]
    fn a_batch_is_due_when_it_is_full_or_no_cell_is_to_come() {
        assert!(is_due(&gathered(3, 3), 9, false));
        assert!(!is_due(&gathered(4, 3), 9, false) && is_due(&gathered(4, 3), 3, false));
        assert!(!is_due(&gathered(4, 0), 0, false));
    }

    #[test]
    fn a_queued_lead_has_room_for_cells_that_become_ready_later() {
        let mut batches = gathered(2, 1);
        batches.leave(TaskState::Gathered, 0);
        batches.enter(0, TaskState::Queued, 0);
        batches.enter(1, TaskState::Gathered, 0);
        assert!(!is_due(&batches, 2, false), "the lead takes it along");
        batches.enter(2, TaskState::Gathered, 0);
        assert!(is_due(&batches, 3, false) && !is_due(&batches, 4, false));
    }

    #[test]
    fn a_delayed_cell_is_waited_for_and_a_deferred_one_is_not() {
        let mut batches = gathered(4, 1);
        batches.enter(1, TaskState::Delayed, 0);
        assert!(!is_due(&batches, 2, false) && !is_due(&batches, 2, true));
        batches.leave(TaskState::Delayed, 0);
        batches.enter(1, TaskState::Deferred, 0);
        assert!(is_due(&batches, 2, false) && is_due(&batches, 2, true));
    }

    #[test]
    fn the_sizes_shrink_with_each_retry_to_one_for_the_last() {
        let sizes = |size, retries| {
            let sizes = BatchSizes::new(size, true, retries);
            (0..=retries as u8).map(|retry| sizes.of(sizes.level(retry))).collect::<Vec<_>>()
        };
        assert_eq!(sizes(32, 3), [32, 8, 2, 1]);
        assert_eq!(sizes(2048, 3), [2048, 128, 8, 1]);
        assert_eq!(sizes(5, 2), [5, 1, 1]);
        assert_eq!(sizes(7, 1), [7, 1]);
        assert_eq!(sizes(7, 0), [7], "there is no retry");
        assert!(sizes(u32::MAX, 255).ends_with(&[1, 1]));
        assert!((0..=255).all(|retry| BatchSizes::new(u32::MAX, true, 255).level(retry) <= 32));
    }

    #[test]
    fn a_cell_starts_alone_in_its_last_retry_and_joins_no_batch_of_others() {
        let mut batches = Batches::new(BatchSizes::new(4, true, 1));
        batches.enter(0, TaskState::Gathered, 0);
        batches.enter(1, TaskState::Gathered, 1);
        batches.enter(2, TaskState::Gathered, 1);
        assert_eq!(batches.take_lead(9, false, |_| true), Some(1), "it is to start alone");
        assert_eq!(batches.take_follower(1, 1, |_| true), None);
        assert_eq!(batches.take_follower(0, 1, |_| true), Some(0));
    }
}
