//! Which tasks of one row group are ready, done or dropped.
//!
//! Every task has a counter of upstreams that are not complete for it; at zero it is ready. For a cell, an
//! upstream cell counts by row, an upstream made for the whole group counts once for all rows. A task for the
//! whole group waits for each upstream column as one: a cell column is complete for the group when each of
//! its rows is done or dropped.
//!
//! ```text
//! open         = tasks neither done nor dropped
//! row_open[r]  = cell tasks of row r that are not done
//! column_open  = rows of a cell column that are neither done nor dropped
//! complete     = live rows r with row_open[r] = 0, once all whole-group tasks are done
//! ```
//!
//! Completing a cell costs O(out-degree); completing a whole-group task O(out-degree * rows), once per
//! column; dropping a row O(columns). Eight bytes per task, allocated when the row group is admitted.

use alloc::vec::Vec;
use core::ops::Range;

use crate::pipeline::plan::key::LocalKey;
use crate::pipeline::plan::{ColumnId, Plan};

/// The state of a task. Kept here and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// An upstream is not complete, or the task is about to be queued, or it is not its turn in an ordered
    /// column.
    Waiting,
    /// An upstream was skipped, and the task will be too, once all of them are complete.
    Skipping,
    /// In the dispatcher's queue.
    Queued,
    /// A worker has it.
    Running,
    /// Kept for the next salvage round of its row group.
    Deferred,
    /// Kept until an instant.
    Delayed,
    /// Kept for another run: its provider cannot be used in this one.
    Parked,
    /// Made, or skipped.
    Done,
    /// Its row was dropped, or is not to be made. A worker that still runs it is answered for, and its
    /// outcome ignored.
    Dropped,
}

/// One task of an admitted row group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskEntry {
    /// Tries so far.
    pub(crate) attempts: u32,
    pending: u16,
    /// Salvage rounds used up.
    pub(crate) rounds: u8,
    pub(crate) state: TaskState,
}

/// In `row_open`: the row was dropped, or is not to be made.
const DROPPED: u16 = u16::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Frontier {
    /// Whole-group tasks by rank, then the cells row by row.
    entries: Vec<TaskEntry>,
    row_open: Vec<u16>,
    column_open: Vec<u32>,
    whole_open: usize,
    /// Seeds that are not done.
    seeds_open: usize,
    open: usize,
    live: u32,
    complete: u32,
}

impl Frontier {
    /// The tasks of a row group of `rows` rows, of which only those in `missing` are to be made; those with
    /// no upstream go to `ready`, in topological and then row order. If `gated`, all but the seeds wait for
    /// [`Frontier::open_gate`] too.
    pub(super) fn new(
        plan: &Plan,
        rows: u32,
        missing: impl Iterator<Item = Range<u32>> + Clone,
        gated: bool,
        ready: &mut Vec<LocalKey>,
    ) -> Self {
        let waits_for_hook = |column: ColumnId| u16::from(gated && !plan.is_seed(column));
        let (whole, cells) = (plan.whole_columns(), plan.cell_columns());
        let entry = |column: &ColumnId| TaskEntry {
            attempts: 0,
            // A plan has at most 4096 columns.
            pending: plan.upstreams(*column).len() as u16 + waits_for_hook(*column),
            rounds: 0,
            state: TaskState::Waiting,
        };
        let mut entries = Vec::with_capacity(whole.len() + cells.len() * rows as usize);
        entries.extend(whole.iter().map(entry));
        for _ in 0..rows {
            entries.extend(cells.iter().map(entry));
        }
        let is_root = |column: &&ColumnId| plan.upstreams(**column).is_empty() && waits_for_hook(**column) == 0;
        for column in plan.order().iter().filter(is_root) {
            if plan.is_cell(*column) {
                ready.extend(missing.clone().flatten().map(|row| (*column, Some(row))));
            } else {
                ready.push((*column, None));
            }
        }
        let mut frontier = Self {
            open: entries.len(),
            entries,
            row_open: alloc::vec![cells.len() as u16; rows as usize],
            column_open: alloc::vec![rows; cells.len()],
            whole_open: whole.len(),
            seeds_open: whole.iter().filter(|column| plan.is_seed(**column)).count(),
            live: rows,
            complete: 0,
        };
        let mut next = 0;
        for part in missing.chain(core::iter::once(rows..rows)) {
            (next..part.start).for_each(|row| frontier.leave_out(plan, row));
            next = part.end;
        }
        frontier
    }

    /// Takes a row out that is not to be made, before anything is.
    fn leave_out(&mut self, plan: &Plan, row: u32) {
        for column in plan.cell_columns() {
            self.entry_mut(plan, (*column, Some(row))).state = TaskState::Dropped;
        }
        self.column_open.iter_mut().for_each(|open| *open -= 1);
        self.row_open[row as usize] = DROPPED;
        self.open -= plan.cell_columns().len();
        self.live -= 1;
    }

    /// Tasks neither done nor dropped.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Whether a row is left, and every seed is done.
    pub(crate) fn is_seeded(&self) -> bool {
        self.live > 0 && self.seeds_open == 0
    }

    pub(crate) fn has_live_rows(&self) -> bool {
        self.live > 0
    }

    /// Live rows for which every task is done.
    pub(crate) fn complete_rows(&self) -> u32 {
        self.complete
    }

    pub(crate) fn is_live(&self, row: u32) -> bool {
        self.row_open[row as usize] != DROPPED
    }

    pub(crate) fn is_complete(&self, row: u32) -> bool {
        self.whole_open == 0 && self.row_open[row as usize] == 0
    }

    pub(super) fn entry_mut(&mut self, plan: &Plan, (column, row): LocalKey) -> &mut TaskEntry {
        let at = index(plan, column, row);
        &mut self.entries[at]
    }

    pub(crate) fn entry(&self, plan: &Plan, (column, row): LocalKey) -> TaskEntry {
        self.entries[index(plan, column, row)]
    }

    pub(crate) fn state(&self, plan: &Plan, task: LocalKey) -> TaskState {
        self.entry(plan, task).state
    }

    /// Returns every task that is queued, deferred or delayed to waiting. `changed` gets the state before of
    /// each, and its index: tasks of the whole group come first, then the cells row by row.
    pub(super) fn discard_waiting(&mut self, mut changed: impl FnMut(TaskState, usize)) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if matches!(entry.state, TaskState::Queued | TaskState::Deferred | TaskState::Delayed) {
                changed(entry.state, index);
                entry.state = TaskState::Waiting;
            }
        }
    }

    /// Whether a task waits for no upstream and was not queued.
    pub(crate) fn is_ready(&self, plan: &Plan, (column, row): LocalKey) -> bool {
        let entry = self.entries[index(plan, column, row)];
        entry.state == TaskState::Waiting && entry.pending == 0
    }

    /// Whether a task is done or dropped.
    pub(crate) fn is_settled(&self, plan: &Plan, place: LocalKey) -> bool {
        matches!(self.state(plan, place), TaskState::Done | TaskState::Dropped)
    }

    /// The first column, in topological order, that a row still lacks.
    pub(crate) fn first_missing(&self, plan: &Plan, row: u32) -> Option<ColumnId> {
        plan.order().iter().copied().find(|column| {
            let row = plan.is_cell(*column).then_some(row);
            self.state(plan, (*column, row)) != TaskState::Done
        })
    }

    /// Marks a task done, made or `skipped`; tasks that wait for nothing more go to `ready`. A second call
    /// changes nothing.
    pub(super) fn complete(&mut self, plan: &Plan, (column, row): LocalKey, skipped: bool, ready: &mut Vec<LocalKey>) {
        let at = index(plan, column, row);
        if matches!(self.entries[at].state, TaskState::Done | TaskState::Dropped) {
            return;
        }
        self.entries[at].state = TaskState::Done;
        self.open -= 1;
        match row {
            Some(row) => self.cell_done(plan, column, row, skipped, ready),
            None => self.whole_done(plan, column, skipped, ready),
        }
    }

    fn cell_done(&mut self, plan: &Plan, column: ColumnId, row: u32, skipped: bool, ready: &mut Vec<LocalKey>) {
        let row_open = &mut self.row_open[row as usize];
        *row_open -= 1;
        if *row_open == 0 && self.whole_open == 0 {
            self.complete += 1;
        }
        for downstream in plan.downstreams(column) {
            if plan.is_cell(*downstream) {
                self.resolve(plan, (*downstream, Some(row)), skipped, ready);
            }
        }
        self.row_settled(plan, column, ready);
    }

    fn whole_done(&mut self, plan: &Plan, column: ColumnId, skipped: bool, ready: &mut Vec<LocalKey>) {
        self.whole_open -= 1;
        self.seeds_open -= usize::from(plan.is_seed(column));
        if self.whole_open == 0 {
            self.complete = self.row_open.iter().filter(|open| **open == 0).count() as u32;
        }
        for downstream in plan.downstreams(column) {
            if plan.is_cell(*downstream) {
                for row in 0..self.row_open.len() as u32 {
                    self.resolve(plan, (*downstream, Some(row)), skipped, ready);
                }
            } else {
                self.resolve(plan, (*downstream, None), skipped, ready);
            }
        }
    }

    /// One row of a cell column is done or dropped; after the last one, the column is complete for the group.
    fn row_settled(&mut self, plan: &Plan, column: ColumnId, ready: &mut Vec<LocalKey>) {
        let open = &mut self.column_open[plan.rank(column)];
        *open -= 1;
        if *open > 0 {
            return;
        }
        for downstream in plan.downstreams(column) {
            if !plan.is_cell(*downstream) {
                self.resolve(plan, (*downstream, None), false, ready);
            }
        }
    }

    /// One upstream of a task is complete: made, or `skipped`.
    fn resolve(&mut self, plan: &Plan, place: LocalKey, skipped: bool, ready: &mut Vec<LocalKey>) {
        let entry = self.entry_mut(plan, place);
        if !matches!(entry.state, TaskState::Waiting | TaskState::Skipping) {
            return;
        }
        if skipped && plan.skips_with_upstream(place.0) {
            entry.state = TaskState::Skipping;
        }
        debug_assert!(entry.pending > 0, "an upstream completed twice for {place:?}");
        entry.pending -= 1;
        if entry.pending == 0 {
            ready.push(place);
        }
    }

    /// The pre-batch hook is over: tasks that waited for nothing else go to `ready`. Called once, if the
    /// frontier is gated. O(tasks).
    pub(super) fn open_gate(&mut self, plan: &Plan, ready: &mut Vec<LocalKey>) {
        for column in plan.order().iter().filter(|column| !plan.is_seed(**column)) {
            if plan.is_cell(*column) {
                for row in 0..self.row_open.len() as u32 {
                    self.resolve(plan, (*column, Some(row)), false, ready);
                }
            } else {
                self.resolve(plan, (*column, None), false, ready);
            }
        }
    }

    /// Drops a row: every task of it that is not done is reported to `gone` as it was. When it was the last
    /// live one, the whole-group tasks go too. Tasks that waited only for this row go to `ready`. Answers
    /// whether the row was live; a second call changes nothing.
    pub(super) fn drop_row(
        &mut self,
        plan: &Plan,
        row: u32,
        ready: &mut Vec<LocalKey>,
        gone: &mut impl FnMut(LocalKey, TaskEntry),
    ) -> bool {
        if !self.is_live(row) {
            return false;
        }
        if self.is_complete(row) {
            self.complete -= 1;
        }
        self.row_open[row as usize] = DROPPED;
        self.live -= 1;
        if self.live == 0 {
            self.drop_whole(plan, gone);
        }
        for column in plan.cell_columns() {
            let place = (*column, Some(row));
            if self.drop_task(plan, place, gone) {
                self.row_settled(plan, *column, ready);
            }
        }
        true
    }

    /// Drops the tasks for the whole group that are not done. The caller drops every row after it.
    pub(super) fn drop_whole(&mut self, plan: &Plan, gone: &mut impl FnMut(LocalKey, TaskEntry)) {
        for column in plan.whole_columns() {
            self.drop_task(plan, (*column, None), gone);
        }
    }

    fn drop_task(&mut self, plan: &Plan, place: LocalKey, gone: &mut impl FnMut(LocalKey, TaskEntry)) -> bool {
        let entry = self.entry_mut(plan, place);
        let before = *entry;
        if matches!(before.state, TaskState::Done | TaskState::Dropped) {
            return false;
        }
        entry.state = TaskState::Dropped;
        self.open -= 1;
        gone(place, before);
        true
    }
}

/// The entry of a task: whole-group tasks by rank, then the cells row by row.
fn index(plan: &Plan, column: ColumnId, row: Option<u32>) -> usize {
    debug_assert_eq!(plan.is_cell(column), row.is_some());
    let rank = plan.rank(column);
    row.map_or(rank, |row| plan.whole_columns().len() + row as usize * plan.cell_columns().len() + rank)
}
