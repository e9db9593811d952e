//! One active row group: its tasks, its phase, and its dropped rows.

use alloc::vec::Vec;
use core::ops::Range;

use super::batches::{BatchSizes, Batches};
use super::frontier::{Frontier, TaskEntry, TaskState};
use super::pending::Span;
use crate::pipeline::outcome::{DropReason, DroppedRow, FinishedRowGroup};
use crate::pipeline::plan::key::{LocalKey, TaskKey};
use crate::pipeline::plan::{ColumnId, Plan};
use crate::time::Instant;

/// The phase of an active row group. The [parent module](super) has a diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowGroupPhase {
    /// Some of its tasks are not done.
    Computing,
    /// Its pre-batch hook was called and has not ended.
    PreBatch,
    /// All its tasks are done, or the run stops. Its post-batch hook was called and has not ended.
    PostBatch,
    /// Its checkpoint was requested and has not ended.
    Saving,
    /// Its post-batch hook or its checkpoint failed. The row group is kept so that it can be read.
    Unsaved,
}

impl RowGroupPhase {
    /// Returns whether a hook or checkpoint of the row group is in progress in the host, so that the host
    /// reports a result later.
    pub(crate) fn is_in_host(self) -> bool {
        matches!(self, Self::PreBatch | Self::PostBatch | Self::Saving)
    }
}

/// A task that waits for the next salvage round of its row group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    pub(crate) task: LocalKey,
    /// The earliest instant of the retry. It also applies after the round has begun.
    pub(crate) not_before: Instant,
}

/// An active row group.
#[derive(Clone, Debug)]
pub(crate) struct RowGroup {
    span: Span,
    /// The number of rows that this run computes.
    rows_in: u32,
    pub(super) phase: RowGroupPhase,
    /// Whether all columns except the seeds wait for the pre-batch hook.
    awaits_hook: bool,
    frontier: Frontier,
    /// By batched column.
    batches: Vec<Batches>,
    /// The number of tasks in the state [`TaskState::Queued`].
    queued: usize,
    /// The number of workers that have a task of the row group, also a dropped one.
    workers: usize,
    /// The deferred tasks in the order in which they failed. Entries whose task is no longer
    /// [`TaskState::Deferred`] are skipped.
    deferred: Vec<Deferred>,
    /// The dropped rows in the order in which they were dropped.
    dropped: Vec<DroppedRow>,
}

/// Queries.
impl RowGroup {
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn number(&self) -> u32 {
        self.span.row_group
    }

    pub(crate) fn phase(&self) -> RowGroupPhase {
        self.phase
    }

    pub(crate) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Returns whether its pre-batch hook is configured and has not ended.
    pub(crate) fn awaits_hook(&self) -> bool {
        self.awaits_hook
    }

    /// Returns whether its pre-batch hook can be called: its seeds are done, and the hook was not called
    /// before.
    pub(crate) fn is_ready_for_pre_batch(&self) -> bool {
        self.awaits_hook && self.phase == RowGroupPhase::Computing && self.frontier.is_seeded()
    }

    /// Returns whether no worker has a task of the row group and none is queued.
    pub(crate) fn is_quiet(&self) -> bool {
        self.workers == 0 && self.queued == 0
    }

    /// Returns whether all its tasks are done or dropped, and no live row waits for the pre-batch hook.
    pub(crate) fn is_done(&self) -> bool {
        self.frontier.open() == 0 && !(self.awaits_hook && self.frontier.has_live_rows())
    }

    pub(crate) fn key(&self, (column, row): LocalKey) -> TaskKey {
        TaskKey { row_group: self.span.row_group, column, row }
    }

    /// Returns the number of rows that this run computes.
    pub(crate) fn rows_in(&self) -> u32 {
        self.rows_in
    }

    /// Returns the number of dropped rows.
    pub(crate) fn rows_dropped(&self) -> u32 {
        self.dropped.len() as u32
    }

    /// Returns the number of rows that are neither complete nor dropped. They are unmade if the run stops.
    pub(crate) fn rows_unmade(&self) -> u32 {
        self.rows_in - self.rows_dropped() - self.frontier.complete_rows()
    }

    /// Returns the content of a checkpoint: the complete rows, the dropped rows, and the rows that are
    /// incomplete because the run stopped. O(rows).
    pub(crate) fn finished(&self) -> FinishedRowGroup {
        let mut dropped = self.dropped.clone();
        dropped.sort_unstable_by_key(|dropped| dropped.row);
        let rows = (0..self.span.rows).filter(|row| self.frontier.is_live(*row));
        let (live, unmade): (Vec<u32>, Vec<u32>) = rows.partition(|row| self.frontier.is_complete(*row));
        debug_assert_eq!(live.len() + dropped.len() + unmade.len(), self.rows_in as usize);
        let Span { row_group, first_row, rows } = self.span;
        FinishedRowGroup { row_group, first_row, rows, live, dropped, unmade }
    }
}

/// Changes. Only [`RowGroups`](super::RowGroups) calls these methods, because it counts tasks by state.
impl RowGroup {
    /// Creates a row group that is admitted, in which only the rows in `missing` are computed. Tasks without
    /// upstreams are added to `ready`. If `awaits_hook` is true, all tasks except the seeds wait for the
    /// pre-batch hook. `retries` is the number of retries of a task.
    pub(super) fn admit(
        plan: &Plan,
        span: Span,
        missing: impl Iterator<Item = Range<u32>> + Clone,
        awaits_hook: bool,
        retries: u32,
        ready: &mut Vec<LocalKey>,
    ) -> Self {
        let rows_in = missing.clone().map(|rows| rows.end - rows.start).sum();
        let frontier = Frontier::new(plan, span.rows, missing, awaits_hook, ready);
        let batches = plan.batched_columns().iter().map(|column| {
            let (size, splits) = plan.batch_size(*column);
            Batches::new(BatchSizes::new(size, splits, retries))
        });
        let batches = batches.collect();
        let (phase, deferred, dropped) = (RowGroupPhase::Computing, Vec::new(), Vec::new());
        Self { span, rows_in, phase, awaits_hook, frontier, batches, queued: 0, workers: 0, deferred, dropped }
    }

    /// Sets the state of a task. Returns the previous state.
    pub(super) fn set_state(&mut self, plan: &Plan, task: LocalKey, state: TaskState) -> TaskState {
        let entry = self.frontier.entry_mut(plan, task);
        let (before, rounds) = (core::mem::replace(&mut entry.state, state), entry.rounds);
        self.queued += usize::from(state == TaskState::Queued);
        self.queued -= usize::from(before == TaskState::Queued);
        if let (Some(rank), Some(row)) = (plan.batch_rank(task.0), task.1) {
            self.batches[rank].leave(before, rounds);
            self.batches[rank].enter(row, state, rounds);
        }
        before
    }

    /// Returns a gathered cell of the batched column `column` to queue as the lead of a batch, if a batch is
    /// due. The caller queues it. If `is_last_work` is true, the row group has no running or queued task, and
    /// a batch is not kept for cells that wait for such a task.
    pub(super) fn next_lead(&mut self, plan: &Plan, column: ColumnId, is_last_work: bool) -> Option<LocalKey> {
        let Self { frontier, batches, .. } = self;
        let open = frontier.open_cells(plan, column);
        let is_gathered = |row| frontier.state(plan, (column, Some(row))) == TaskState::Gathered;
        Some((column, Some(batches[plan.batch_rank(column)?].take_lead(open, is_last_work, is_gathered)?)))
    }

    /// Returns a gathered cell to start together with the cell `lead` in a batch that has `taken` cells, if
    /// it has room. The caller starts it.
    pub(super) fn next_follower(&mut self, plan: &Plan, lead: LocalKey, taken: u32) -> Option<LocalKey> {
        let Self { frontier, batches, .. } = self;
        let (column, retries) = (lead.0, frontier.entry(plan, lead).rounds);
        let is_gathered = |row| frontier.state(plan, (column, Some(row))) == TaskState::Gathered;
        let row = batches[plan.batch_rank(column)?].take_follower(retries, taken, is_gathered)?;
        Some((column, Some(row)))
    }

    pub(super) fn entry_mut(&mut self, plan: &Plan, task: LocalKey) -> &mut TaskEntry {
        self.frontier.entry_mut(plan, task)
    }

    pub(super) fn worker_started(&mut self) {
        self.workers += 1;
    }

    pub(super) fn worker_ended(&mut self) {
        debug_assert!(self.workers > 0, "a worker ends once");
        self.workers -= 1;
    }

    /// Marks a task done. Tasks whose last upstream this was are added to `ready`.
    pub(super) fn complete(&mut self, plan: &Plan, task: LocalKey, is_skipped: bool, ready: &mut Vec<LocalKey>) {
        if let Some(rank) = plan.batch_rank(task.0)
            && !self.frontier.is_settled(plan, task)
        {
            let entry = self.frontier.entry(plan, task);
            self.batches[rank].leave(entry.state, entry.rounds);
        }
        self.frontier.complete(plan, task, is_skipped, ready);
    }

    pub(super) fn hook_done(&mut self, plan: &Plan, ready: &mut Vec<LocalKey>) {
        self.awaits_hook = false;
        self.frontier.hook_done(plan, ready);
    }

    pub(super) fn defer(&mut self, deferred: Deferred) {
        self.deferred.push(deferred);
    }

    pub(super) fn take_deferred(&mut self) -> Vec<Deferred> {
        core::mem::take(&mut self.deferred)
    }

    /// Sets every gathered, queued, deferred or delayed task back to waiting, because the run stops. Calls
    /// `changed` with the previous state and the index of each. O(tasks).
    pub(super) fn discard_waiting(&mut self, changed: impl FnMut(TaskState, usize)) {
        self.queued = 0;
        self.deferred.clear();
        self.batches.iter_mut().for_each(Batches::discard_waiting);
        self.frontier.discard_waiting(changed);
    }

    /// Drops the row of a failed cell, or all rows if the task is for the whole group. Tasks that waited only
    /// for these rows are added to `ready`. Calls `on_drop` with each dropped task and its previous entry.
    /// Returns the number of dropped rows.
    pub(super) fn drop_rows(
        &mut self,
        plan: &Plan,
        (column, row): LocalKey,
        reason: DropReason,
        ready: &mut Vec<LocalKey>,
        mut on_drop: impl FnMut(LocalKey, TaskEntry),
    ) -> u32 {
        let Self { frontier, batches, dropped, queued, span, .. } = self;
        let mut on_drop = |task: LocalKey, entry: TaskEntry| {
            *queued -= usize::from(entry.state == TaskState::Queued);
            if let Some(rank) = plan.batch_rank(task.0) {
                batches[rank].leave(entry.state, entry.rounds);
            }
            on_drop(task, entry);
        };
        let rows = row.map_or(0..span.rows, |row| row..row + 1);
        if row.is_none() {
            frontier.drop_whole(plan, &mut on_drop);
        }
        let before = dropped.len();
        for row in rows {
            if frontier.drop_row(plan, row, ready, &mut on_drop) {
                dropped.push(DroppedRow { row, column, reason });
            }
        }
        (dropped.len() - before) as u32
    }
}
