//! The state of each task of one row group: which tasks are ready, done or dropped.
//!
//! A task is a *cell*, which is one row of a cell column, or a *whole-group* task, which is any other column.
//! Its *upstreams* are the columns that its column needs, its *downstreams* those that need it.
//!
//! Every task has a counter of its incomplete upstreams. It is ready when the counter is zero, as in Kahn's
//! algorithm (A. B. Kahn, "Topological sorting of large networks", 1962). For a cell, an upstream cell counts
//! in its own row, and a whole-group upstream counts in all rows. A whole-group task waits for each upstream
//! column as a whole: a cell column is complete when each of its rows is done or dropped.
//!
//! ```text
//! open            = tasks neither done nor dropped
//! row_open[r]     = cells of row r that are not done; DROPPED if r is not live
//! column_open[c]  = rows of cell column c that are neither done nor dropped
//! complete        = live rows r with row_open[r] = 0, once all whole-group tasks are done
//! ```
//!
//! Completing a cell costs O(downstreams). Completing a whole-group task costs O(downstreams * rows), once
//! per column. Dropping a row costs O(columns and their downstreams). Each task takes eight bytes, allocated
//! when the row group is admitted.

use alloc::vec::Vec;
use core::ops::Range;

use crate::pipeline::plan::key::LocalKey;
use crate::pipeline::plan::{ColumnId, Plan};

/// The state of a task. It is stored in the frontier and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// An upstream is not complete, or the task is about to be queued, or another task of its ordered column
    /// has the turn.
    Waiting,
    /// An upstream was skipped. The task is skipped as well once all its upstreams are complete.
    Skipping,
    /// The task is ready, and waits for a batch of its column to start: see [`batches`](super::batches).
    Gathered,
    /// The task is in the dispatcher's queue.
    Queued,
    /// A worker has the task.
    Running,
    /// The task waits for the next salvage round of its row group.
    Deferred,
    /// The task waits for an instant.
    Delayed,
    /// The task is left for a resumed run, because its provider is unavailable in this run.
    Parked,
    /// The task was computed or skipped.
    Done,
    /// The row of the task was dropped, or is not to be computed. If a worker still has the task, its outcome
    /// is ignored.
    Dropped,
}

/// One task of an admitted row group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskEntry {
    /// The number of attempts so far.
    pub(crate) attempts: u32,
    /// The number of upstreams that are not complete. The pre-batch hook counts as one more.
    incomplete_upstreams: u16,
    /// The number of salvage rounds used.
    pub(crate) rounds: u8,
    pub(crate) state: TaskState,
}

/// The value in `row_open` of a row that was dropped or is not to be computed.
const DROPPED: u16 = u16::MAX;

/// The tasks of one active row group. See the [module documentation](self) for the counts.
#[derive(Clone, Debug)]
pub(crate) struct Frontier {
    /// The whole-group tasks by rank, then the cells row by row. The rank of a column is its place among the
    /// whole-group columns or among the cell columns.
    entries: Vec<TaskEntry>,
    row_open: Vec<u16>,
    /// By rank of the cell column.
    column_open: Vec<u32>,
    /// The number of whole-group tasks that are not done.
    whole_open: usize,
    /// The number of seeds that are not done.
    seeds_open: usize,
    open: usize,
    /// The number of live rows.
    live: u32,
    complete: u32,
}

impl Frontier {
    /// Creates the tasks of a row group of `rows` rows, of which only the rows in `missing` are computed.
    /// Tasks without upstreams are added to `ready`, in topological order and then by row. If `awaits_hook`
    /// is true, all tasks except the seeds also wait for [`Frontier::hook_done`].
    pub(super) fn new(
        plan: &Plan,
        rows: u32,
        missing: impl Iterator<Item = Range<u32>> + Clone,
        awaits_hook: bool,
        ready: &mut Vec<LocalKey>,
    ) -> Self {
        let waits_for_hook = |column: ColumnId| u16::from(awaits_hook && !plan.is_seed(column));
        let (whole, cells) = (plan.whole_columns(), plan.cell_columns());
        let entry = |column: &ColumnId| TaskEntry {
            attempts: 0,
            // The counter does not overflow: a plan has at most 4096 columns.
            incomplete_upstreams: plan.upstreams(*column).len() as u16 + waits_for_hook(*column),
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
        // The rows between the parts of `missing`, and those after the last part, are not computed.
        let mut next = 0;
        for part in missing.chain(core::iter::once(rows..rows)) {
            (next..part.start).for_each(|row| frontier.leave_out(plan, row));
            next = part.end;
        }
        frontier
    }

    /// Excludes a row that is not to be computed. Called before any task is done.
    fn leave_out(&mut self, plan: &Plan, row: u32) {
        for column in plan.cell_columns() {
            self.entry_mut(plan, (*column, Some(row))).state = TaskState::Dropped;
        }
        self.column_open.iter_mut().for_each(|open| *open -= 1);
        self.row_open[row as usize] = DROPPED;
        self.open -= plan.cell_columns().len();
        self.live -= 1;
    }

    /// Returns the number of tasks that are neither done nor dropped.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Returns whether some row is live and every seed is done.
    pub(crate) fn is_seeded(&self) -> bool {
        self.live > 0 && self.seeds_open == 0
    }

    pub(crate) fn has_live_rows(&self) -> bool {
        self.live > 0
    }

    /// Returns the number of live rows for which every task is done.
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

    /// Sets every gathered, queued, deferred or delayed task back to waiting. Calls `changed` with the
    /// previous state and the index of each. Whole-group tasks come first, then the cells row by row.
    pub(super) fn discard_waiting(&mut self, mut changed: impl FnMut(TaskState, usize)) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let is_waiting = matches!(
                entry.state,
                TaskState::Gathered | TaskState::Queued | TaskState::Deferred | TaskState::Delayed
            );
            if is_waiting {
                changed(entry.state, index);
                entry.state = TaskState::Waiting;
            }
        }
    }

    /// Returns whether a task waits for no upstream and is not queued.
    pub(crate) fn is_ready(&self, plan: &Plan, (column, row): LocalKey) -> bool {
        let entry = self.entries[index(plan, column, row)];
        entry.state == TaskState::Waiting && entry.incomplete_upstreams == 0
    }

    /// Returns the number of cells of a cell column that are neither done nor dropped.
    pub(super) fn open_cells(&self, plan: &Plan, column: ColumnId) -> u32 {
        self.column_open[plan.rank(column)]
    }

    /// Returns whether a task is done or dropped.
    pub(crate) fn is_settled(&self, plan: &Plan, task: LocalKey) -> bool {
        matches!(self.state(plan, task), TaskState::Done | TaskState::Dropped)
    }

    /// Returns the first column, in topological order, that is not done for a row.
    pub(crate) fn first_missing(&self, plan: &Plan, row: u32) -> Option<ColumnId> {
        plan.order().iter().copied().find(|column| {
            let row = plan.is_cell(*column).then_some(row);
            self.state(plan, (*column, row)) != TaskState::Done
        })
    }

    /// Marks a task done. `skipped` is true if it was not computed. Tasks whose last upstream this was are
    /// added to `ready`. A second call for the same task has no effect.
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

    /// Counts one row of a cell column that is done or dropped. After the last one, the column is complete
    /// for the group.
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

    /// Counts one complete upstream of a task, and adds the task to `ready` if it was the last. `skipped` is
    /// true if the upstream was skipped.
    fn resolve(&mut self, plan: &Plan, task: LocalKey, skipped: bool, ready: &mut Vec<LocalKey>) {
        let entry = self.entry_mut(plan, task);
        if !matches!(entry.state, TaskState::Waiting | TaskState::Skipping) {
            return;
        }
        if skipped && plan.skips_with_upstream(task.0) {
            entry.state = TaskState::Skipping;
        }
        debug_assert!(entry.incomplete_upstreams > 0, "an upstream completed twice for {task:?}");
        entry.incomplete_upstreams -= 1;
        if entry.incomplete_upstreams == 0 {
            ready.push(task);
        }
    }

    /// Lets the tasks that waited for the pre-batch hook become ready. Tasks without incomplete upstreams are
    /// added to `ready`. Called once, if the frontier awaits the hook. O(tasks).
    pub(super) fn hook_done(&mut self, plan: &Plan, ready: &mut Vec<LocalKey>) {
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

    /// Drops a row. Calls `on_drop` with every task of the row that was not done, and its previous entry. If
    /// this was the last live row, the whole-group tasks are dropped as well. Tasks that waited only for this
    /// row are added to `ready`. Returns whether the row was live. A second call has no effect.
    pub(super) fn drop_row(
        &mut self,
        plan: &Plan,
        row: u32,
        ready: &mut Vec<LocalKey>,
        on_drop: &mut impl FnMut(LocalKey, TaskEntry),
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
            self.drop_whole(plan, on_drop);
        }
        for column in plan.cell_columns() {
            let task = (*column, Some(row));
            if self.drop_task(plan, task, on_drop) {
                self.row_settled(plan, *column, ready);
            }
        }
        true
    }

    /// Drops the whole-group tasks that are not done. The caller then drops every row.
    pub(super) fn drop_whole(&mut self, plan: &Plan, on_drop: &mut impl FnMut(LocalKey, TaskEntry)) {
        for column in plan.whole_columns() {
            self.drop_task(plan, (*column, None), on_drop);
        }
    }

    fn drop_task(&mut self, plan: &Plan, task: LocalKey, on_drop: &mut impl FnMut(LocalKey, TaskEntry)) -> bool {
        let entry = self.entry_mut(plan, task);
        let before = *entry;
        if matches!(before.state, TaskState::Done | TaskState::Dropped) {
            return false;
        }
        entry.state = TaskState::Dropped;
        self.open -= 1;
        on_drop(task, before);
        true
    }
}

/// Returns the index of a task in `entries`.
fn index(plan: &Plan, column: ColumnId, row: Option<u32>) -> usize {
    debug_assert_eq!(plan.is_cell(column), row.is_some());
    let rank = plan.rank(column);
    row.map_or(rank, |row| plan.whole_columns().len() + row as usize * plan.cell_columns().len() + rank)
}
