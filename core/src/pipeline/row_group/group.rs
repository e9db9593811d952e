//! One admitted row group: its tasks, its phase, and what happened to its rows.

use alloc::vec::Vec;
use core::ops::Range;

use super::frontier::{Frontier, TaskEntry, TaskState};
use super::pending::Span;
use crate::pipeline::outcome::{DropReason, DroppedRow, FinishedRowGroup};
use crate::pipeline::plan::Plan;
use crate::pipeline::plan::key::{LocalKey, TaskKey};
use crate::time::Instant;

/// How far an admitted row group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowGroupPhase {
    /// Some of its tasks are not done.
    Open,
    /// Its pre-batch hook was called and has not answered.
    PreBatch,
    /// All its tasks are done. Its post-batch hook was called and has not answered.
    PostBatch,
    /// Its checkpoint was requested and has not answered.
    Saving,
    /// Its checkpoint failed. It is kept.
    Unsaved,
}

impl RowGroupPhase {
    /// Whether the host has the row group, in a hook or a checkpoint, and its answer is awaited.
    pub(crate) fn is_handed_out(self) -> bool {
        matches!(self, Self::PreBatch | Self::PostBatch | Self::Saving)
    }
}

/// A task that waits for the next salvage round of its row group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    pub(crate) task: LocalKey,
    /// The provider's own retry-after, which holds in that round too.
    pub(crate) not_before: Instant,
}

/// An admitted row group.
#[derive(Clone, Debug)]
pub(crate) struct RowGroup {
    span: Span,
    /// Rows of the group that are to be made.
    rows_in: u32,
    pub(super) phase: RowGroupPhase,
    is_gated: bool,
    frontier: Frontier,
    /// Tasks in the state [`TaskState::Queued`].
    queued: usize,
    workers: usize,
    /// In the order they failed. Those that are no longer [`TaskState::Deferred`] are passed over.
    deferred: Vec<Deferred>,
    dropped: Vec<DroppedRow>,
}

/// What there is to read.
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

    /// Whether its pre-batch hook has not answered yet.
    pub(crate) fn is_gated(&self) -> bool {
        self.is_gated
    }

    /// Whether its pre-batch hook can be called: its seeds are done, and the hook was not called before.
    pub(crate) fn is_ready_for_pre_batch(&self) -> bool {
        self.is_gated && self.phase == RowGroupPhase::Open && self.frontier.is_seeded()
    }

    /// Whether no worker has a task of it and none is queued.
    pub(crate) fn is_quiet(&self) -> bool {
        self.workers == 0 && self.queued == 0
    }

    /// Whether all its tasks are done or dropped, and no row waits for the pre-batch hook.
    pub(crate) fn is_done(&self) -> bool {
        self.frontier.open() == 0 && !(self.is_gated && self.frontier.has_live_rows())
    }

    pub(crate) fn key(&self, (column, row): LocalKey) -> TaskKey {
        TaskKey { row_group: self.span.row_group, column, row }
    }

    /// The rows that the run is to make of it.
    pub(crate) fn rows_in(&self) -> u32 {
        self.rows_in
    }

    /// Rows that were dropped.
    pub(crate) fn rows_dropped(&self) -> u32 {
        self.dropped.len() as u32
    }

    /// Rows that are neither complete nor dropped.
    pub(crate) fn rows_unmade(&self) -> u32 {
        self.rows_in - self.rows_dropped() - self.frontier.complete_rows()
    }

    /// What is saved of the group: its complete rows, those that were dropped, and those that the end of the
    /// run left incomplete. O(rows).
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

/// Changes. Only [`RowGroups`](super::RowGroups) makes them, since it counts tasks by state.
impl RowGroup {
    /// Sets up the tasks of a row group, of whose rows only those in `missing` are to be made; `ready` gets
    /// those with no upstream. If `is_gated`, all but its seeds wait for its pre-batch hook.
    pub(super) fn admit(
        plan: &Plan,
        span: Span,
        missing: impl Iterator<Item = Range<u32>> + Clone,
        is_gated: bool,
        ready: &mut Vec<LocalKey>,
    ) -> Self {
        let rows_in = missing.clone().map(|rows| rows.end - rows.start).sum();
        let frontier = Frontier::new(plan, span.rows, missing, is_gated, ready);
        let (phase, deferred, dropped) = (RowGroupPhase::Open, Vec::new(), Vec::new());
        Self { span, rows_in, phase, is_gated, frontier, queued: 0, workers: 0, deferred, dropped }
    }

    /// Puts a task into another state. Returns the state before.
    pub(super) fn set_state(&mut self, plan: &Plan, task: LocalKey, state: TaskState) -> TaskState {
        let entry = self.frontier.entry_mut(plan, task);
        let before = core::mem::replace(&mut entry.state, state);
        self.queued += usize::from(state == TaskState::Queued);
        self.queued -= usize::from(before == TaskState::Queued);
        before
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

    /// Marks a task done; `ready` gets the tasks that waited for nothing else.
    pub(super) fn complete(&mut self, plan: &Plan, task: LocalKey, is_skipped: bool, ready: &mut Vec<LocalKey>) {
        self.frontier.complete(plan, task, is_skipped, ready);
    }

    pub(super) fn open_gate(&mut self, plan: &Plan, ready: &mut Vec<LocalKey>) {
        self.is_gated = false;
        self.frontier.open_gate(plan, ready);
    }

    pub(super) fn defer(&mut self, deferred: Deferred) {
        self.deferred.push(deferred);
    }

    pub(super) fn take_deferred(&mut self) -> Vec<Deferred> {
        core::mem::take(&mut self.deferred)
    }

    /// Returns every task that is queued, deferred or delayed to waiting: the run stops. `changed` gets each
    /// with the state before. O(tasks).
    pub(super) fn discard_waiting(&mut self, changed: impl FnMut(TaskState, usize)) {
        self.queued = 0;
        self.deferred.clear();
        self.frontier.discard_waiting(changed);
    }

    /// Drops the row of a failed cell, or all rows for a task of the whole group. `ready` gets tasks that
    /// waited for nothing else, and `gone` each dropped task as it was. Returns how many rows were dropped.
    pub(super) fn drop_rows(
        &mut self,
        plan: &Plan,
        (column, row): LocalKey,
        reason: DropReason,
        ready: &mut Vec<LocalKey>,
        mut gone: impl FnMut(LocalKey, TaskEntry),
    ) -> u32 {
        let Self { frontier, dropped, queued, span, .. } = self;
        let mut gone = |task, entry: TaskEntry| {
            *queued -= usize::from(entry.state == TaskState::Queued);
            gone(task, entry);
        };
        let rows = row.map_or(0..span.rows, |row| row..row + 1);
        if row.is_none() {
            frontier.drop_whole(plan, &mut gone);
        }
        let before = dropped.len();
        for row in rows {
            if frontier.drop_row(plan, row, ready, &mut gone) {
                dropped.push(DroppedRow { row, column, reason });
            }
        }
        (dropped.len() - before) as u32
    }
}
