//! The row groups of a run: the pending ones, the active ones, and the target number of active ones.

use alloc::vec::Vec;

use super::active::ActiveRowGroups;
use super::counts::StateCounts;
use super::frontier::{TaskEntry, TaskState};
use super::group::{Deferred, RowGroup, RowGroupPhase};
use super::pending::{Pending, Span};
use super::target::{RowGroupTarget, Sample};
use crate::pipeline::outcome::{ClaimedRowGroup, DropReason};
use crate::pipeline::plan::key::{LocalKey, TaskKey};
use crate::pipeline::plan::{ColumnId, Plan};
use crate::time::Instant;

/// The row groups of a run and the states of their tasks.
///
/// The state of a task is stored only in the frontier of its row group. This type makes every change of a
/// state, and updates all counts together with it.
#[derive(Debug)]
pub(crate) struct RowGroups {
    pending: Pending,
    active: ActiveRowGroups,
    target: RowGroupTarget,
    counts: StateCounts,
    /// The number of rows of the active row groups, also of rows that are complete or dropped.
    rows_in_work: u64,
    /// The number of active row groups with a hook or checkpoint in progress.
    in_host: usize,
    /// Whether a pre-batch hook is called for each row group.
    awaits_hook: bool,
    /// The number of retries of a task.
    retries: u32,
}

/// A task that was assigned to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedTask {
    pub(crate) span: Span,
    /// The number of this attempt, from 1.
    pub(crate) attempt: u32,
}

/// The new state of a deferred task after the salvage round of its row group has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundTask {
    Ready(LocalKey),
    /// The task became delayed, because its earliest instant is not reached.
    Delayed(TaskKey, Instant),
}

/// Construction and queries.
impl RowGroups {
    pub(crate) fn new(
        pending: Pending,
        target: RowGroupTarget,
        awaits_hook: bool,
        retries: u32,
        columns: usize,
    ) -> Self {
        let (active, counts) = (ActiveRowGroups::default(), StateCounts::new(columns));
        Self { pending, active, target, counts, rows_in_work: 0, in_host: 0, awaits_hook, retries }
    }

    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    pub(crate) fn active(&self) -> &ActiveRowGroups {
        &self.active
    }

    pub(crate) fn target(&self) -> &RowGroupTarget {
        &self.target
    }

    pub(crate) fn counts(&self) -> &StateCounts {
        &self.counts
    }

    pub(crate) fn rows_in_work(&self) -> u64 {
        self.rows_in_work
    }

    /// Returns the number of row groups with a hook or checkpoint in progress.
    pub(crate) fn in_host(&self) -> usize {
        self.in_host
    }

    /// Returns whether no row group is active or pending.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.active.is_empty() && self.pending.is_empty()
    }

    pub(crate) fn get(&self, row_group: u32) -> Option<&RowGroup> {
        self.active.get(row_group)
    }

    /// Returns an active row group if it is in this phase.
    pub(crate) fn in_phase(&self, row_group: u32, phase: RowGroupPhase) -> Option<&RowGroup> {
        self.active.get(row_group).filter(|group| group.phase() == phase)
    }

    /// Returns the entry of a task, or `None` if its row group is not active.
    pub(crate) fn task(&self, plan: &Plan, key: TaskKey) -> Option<TaskEntry> {
        Some(self.active.get(key.row_group)?.frontier().entry(plan, key.local()))
    }

    /// Returns whether a task is delayed.
    pub(crate) fn is_delayed(&self, plan: &Plan, key: TaskKey) -> bool {
        self.task(plan, key).is_some_and(|entry| entry.state == TaskState::Delayed)
    }

    /// Returns the attempts of a task so far, or 0 if its row group is not active.
    pub(crate) fn attempts(&self, plan: &Plan, key: TaskKey) -> u32 {
        self.task(plan, key).map_or(0, |entry| entry.attempts)
    }
}

/// Admission and removal of row groups.
impl RowGroups {
    /// Admits the next row group if the target has room for it. Its tasks without upstreams are added to
    /// `ready`. Returns its number and the number of its rows to compute. O(tasks of the row group).
    pub(crate) fn admit_next(&mut self, plan: &Plan, ready: &mut Vec<LocalKey>) -> Option<(u32, u32)> {
        let next = u64::from(self.pending.next_rows()?);
        if !self.target.has_room(self.active.len() as u32, self.rows_in_work, next) {
            return None;
        }
        let span = self.pending.take()?;
        self.rows_in_work += u64::from(span.rows);
        let group = RowGroup::admit(plan, span, self.pending.missing_of(span), self.awaits_hook, self.retries, ready);
        let admitted = (group.number(), group.rows_in());
        self.active.insert(group);
        Some(admitted)
    }

    /// Returns whether the host must be asked now to claim a row group: see [`Pending::request_claim`].
    pub(crate) fn request_claim(&mut self) -> bool {
        self.pending.request_claim()
    }

    /// Ends the claim in progress: see [`Pending::end_claim`].
    pub(crate) fn end_claim(&mut self, claimed: Option<ClaimedRowGroup>) {
        self.pending.end_claim(claimed);
    }

    /// Admits no further row group. Returns whether any was left.
    pub(crate) fn close(&mut self) -> bool {
        self.pending.close()
    }

    /// Runs one tick of the control loop for the target. Returns whether the target grew.
    pub(crate) fn tick(&mut self, sample: &Sample<'_>) -> bool {
        self.target.tick(sample)
    }

    pub(crate) fn set_phase(&mut self, row_group: u32, phase: RowGroupPhase) {
        let Some(group) = self.active.get_mut(row_group) else { return };
        let before = core::mem::replace(&mut group.phase, phase);
        self.in_host += usize::from(phase.is_in_host());
        self.in_host -= usize::from(before.is_in_host());
    }

    /// Removes a row group that was saved or discarded.
    pub(crate) fn remove(&mut self, row_group: u32) {
        let Some(group) = self.active.get(row_group) else { return };
        self.rows_in_work -= u64::from(group.span().rows);
        self.in_host -= usize::from(group.phase().is_in_host());
        self.active.remove(row_group);
    }
}

/// Changes of task states.
impl RowGroups {
    fn set_state(&mut self, plan: &Plan, key: TaskKey, state: TaskState) -> Option<&mut RowGroup> {
        let group = self.active.get_mut(key.row_group)?;
        let before = group.set_state(plan, key.local(), state);
        self.counts.leave(key.column.index(), before);
        self.counts.enter(key.column.index(), state);
        Some(group)
    }

    /// Marks a task queued. Returns its attempts so far.
    pub(crate) fn queue(&mut self, plan: &Plan, key: TaskKey) -> u32 {
        let group = self.set_state(plan, key, TaskState::Queued);
        group.map_or(0, |group| group.entry_mut(plan, key.local()).attempts)
    }

    /// Marks a task waiting, for its turn in an ordered column or because the run stops.
    pub(crate) fn wait(&mut self, plan: &Plan, key: TaskKey) {
        self.set_state(plan, key, TaskState::Waiting);
    }

    /// Gathers a ready cell of a batched column, until a batch is due.
    pub(crate) fn gather(&mut self, plan: &Plan, key: TaskKey) {
        self.set_state(plan, key, TaskState::Gathered);
    }

    /// Returns a gathered cell to queue as the lead of a batch, if one is due: see [`RowGroup::next_lead`].
    pub(crate) fn next_lead(
        &mut self,
        plan: &Plan,
        row_group: u32,
        column: ColumnId,
        is_last_work: bool,
    ) -> Option<TaskKey> {
        let group = self.active.get_mut(row_group)?;
        let lead = group.next_lead(plan, column, is_last_work)?;
        Some(group.key(lead))
    }

    /// Marks a gathered cell running that starts together with the cell `lead` of the same column, and counts
    /// the attempt. Returns `None` if none is gathered, or if the batch, of `taken` cells, is full.
    pub(crate) fn start_follower(&mut self, plan: &Plan, lead: TaskKey, taken: u32) -> Option<(TaskKey, StartedTask)> {
        let group = self.active.get_mut(lead.row_group)?;
        let key = group.next_follower(plan, lead.local(), taken)?;
        let key = group.key(key);
        self.start(plan, key).map(|started| (key, started))
    }

    /// Marks a task running, and counts the attempt. Returns `None` if the row group is not active.
    pub(crate) fn start(&mut self, plan: &Plan, key: TaskKey) -> Option<StartedTask> {
        let group = self.set_state(plan, key, TaskState::Running)?;
        group.worker_started();
        let entry = group.entry_mut(plan, key.local());
        entry.attempts = entry.attempts.saturating_add(1);
        let attempt = entry.attempts;
        Some(StartedTask { span: group.span(), attempt })
    }

    /// Counts the end of a worker. Returns the current entry of its task.
    pub(crate) fn worker_ended(&mut self, plan: &Plan, key: TaskKey) -> Option<TaskEntry> {
        let group = self.active.get_mut(key.row_group)?;
        group.worker_ended();
        Some(*group.entry_mut(plan, key.local()))
    }

    /// Undoes the count of an attempt whose worker could not be started.
    pub(crate) fn undo_attempt(&mut self, plan: &Plan, key: TaskKey) {
        if let Some(group) = self.active.get_mut(key.row_group) {
            let entry = group.entry_mut(plan, key.local());
            entry.attempts = entry.attempts.saturating_sub(1);
        }
    }

    /// Marks a task done. Tasks whose last upstream this was are added to `ready`.
    pub(crate) fn complete(&mut self, plan: &Plan, key: TaskKey, is_skipped: bool, ready: &mut Vec<LocalKey>) {
        if let Some(group) = self.active.get_mut(key.row_group) {
            group.complete(plan, key.local(), is_skipped, ready);
        }
    }

    /// Records that the pre-batch hook has ended. Tasks that waited only for the hook are added to `ready`.
    pub(crate) fn hook_done(&mut self, plan: &Plan, row_group: u32, ready: &mut Vec<LocalKey>) {
        if let Some(group) = self.active.get_mut(row_group) {
            group.hook_done(plan, ready);
        }
    }

    /// Marks a task parked, which leaves it for a resumed run.
    pub(crate) fn park(&mut self, plan: &Plan, key: TaskKey) {
        self.set_state(plan, key, TaskState::Parked);
    }

    /// Marks a task delayed until an instant.
    pub(crate) fn delay(&mut self, plan: &Plan, key: TaskKey) {
        self.set_state(plan, key, TaskState::Delayed);
    }

    /// Marks a task deferred until the next salvage round of its row group.
    pub(crate) fn defer(&mut self, plan: &Plan, key: TaskKey, not_before: Instant) {
        if let Some(group) = self.set_state(plan, key, TaskState::Deferred) {
            group.defer(Deferred { task: key.local(), not_before });
        }
    }

    /// Begins a salvage round. Every deferred task uses one of its rounds, and is then ready or delayed. The
    /// caller queues the ready ones, and sets a timer for the delayed ones.
    pub(crate) fn begin_salvage_round(&mut self, plan: &Plan, row_group: u32, now: Instant) -> Vec<RoundTask> {
        let Some(group) = self.active.get_mut(row_group) else { return Vec::new() };
        let mut tasks = Vec::new();
        for Deferred { task, not_before } in group.take_deferred() {
            let entry = group.entry_mut(plan, task);
            if entry.state != TaskState::Deferred {
                continue;
            }
            entry.rounds += 1;
            tasks.push(if not_before <= now {
                RoundTask::Ready(task)
            } else {
                RoundTask::Delayed(group.key(task), not_before)
            });
        }
        for task in &tasks {
            if let RoundTask::Delayed(key, _) = task {
                self.delay(plan, *key);
            }
        }
        tasks
    }

    /// Sets every gathered, queued, deferred or delayed task back to waiting, because the run stops. O(tasks
    /// of the active row groups).
    pub(crate) fn discard_waiting(&mut self, plan: &Plan) {
        let Self { active, counts, .. } = self;
        let whole = plan.whole_columns();
        let cells = plan.cell_columns();
        for group in active.iter_mut() {
            group.discard_waiting(|state, index| {
                let column = match index.checked_sub(whole.len()) {
                    None => whole[index],
                    Some(cell) => cells[cell % cells.len()],
                };
                counts.leave(column.index(), state);
            });
        }
    }

    /// Drops the row of a cell, or every row if the task is for a whole row group. Tasks that waited only for
    /// these rows are added to `ready`. Calls `on_drop` with each dropped task and its previous entry.
    /// Returns the number of dropped rows.
    pub(crate) fn drop_rows(
        &mut self,
        plan: &Plan,
        key: TaskKey,
        reason: DropReason,
        ready: &mut Vec<LocalKey>,
        mut on_drop: impl FnMut(TaskKey, TaskEntry),
    ) -> u32 {
        let Self { active, counts, .. } = self;
        let Some(group) = active.get_mut(key.row_group) else { return 0 };
        group.drop_rows(plan, key.local(), reason, ready, |(column, row), entry| {
            counts.leave(column.index(), entry.state);
            on_drop(TaskKey { column, row, ..key }, entry);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Column, ColumnId, PlanBuilder, Strategy};

    /// Returns two cell columns without upstreams, in one admitted row group of three rows.
    fn admitted() -> (Plan, RowGroups, Vec<TaskKey>) {
        let columns = [Column::new("a", Strategy::Cell), Column::new("b", Strategy::Cell)];
        let plan = columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build().unwrap();
        let pending = Pending::new(3, 3, Vec::new(), Vec::new());
        let mut groups = RowGroups::new(pending, RowGroupTarget::new(None, 1, 3), false, 3, 2);
        let mut ready = Vec::new();
        assert_eq!(groups.admit_next(&plan, &mut ready), Some((0, 3)));
        let keys = ready.iter().map(|(column, row)| TaskKey { row_group: 0, column: *column, row: *row }).collect();
        (plan, groups, keys)
    }

    fn counted(groups: &RowGroups) -> ([u32; 2], [bool; 2], usize) {
        let counts = groups.counts();
        let retrying = [0, 1].map(|column| counts.is_retrying(ColumnId(column)));
        ([counts.queued()[0], counts.queued()[1]], retrying, counts.delayed())
    }

    #[test]
    fn the_counts_follow_the_state_of_each_task() {
        let (plan, mut groups, keys) = admitted();
        for key in &keys {
            let _ = groups.queue(&plan, *key);
        }
        assert_eq!(counted(&groups), ([3, 3], [false, false], 0));
        assert_eq!(groups.start(&plan, keys[0]).map(|started| started.attempt), Some(1));
        groups.worker_ended(&plan, keys[0]);
        groups.delay(&plan, keys[0]);
        assert_eq!(counted(&groups), ([2, 3], [true, false], 1));
        // The row of the delayed task also contains a queued cell.
        let mut dropped = Vec::new();
        let reason = DropReason::WorkerLost;
        let rows =
            groups.drop_rows(&plan, keys[0], reason, &mut Vec::new(), |key, entry| dropped.push((key, entry.state)));
        assert_eq!((rows, dropped), (1, [(keys[0], TaskState::Delayed), (keys[3], TaskState::Queued)].into()));
        assert_eq!(counted(&groups), ([2, 2], [false, false], 0));
        groups.discard_waiting(&plan);
        assert_eq!(counted(&groups), ([0, 0], [false, false], 0));
        assert!(groups.get(0).unwrap().is_quiet());
    }

    #[test]
    fn a_deferred_task_waits_for_its_round_and_then_for_its_retry_after() {
        let (plan, mut groups, keys) = admitted();
        let later = Instant::from_nanos(9);
        for (key, not_before) in [(keys[0], Instant::ZERO), (keys[1], later)] {
            groups.queue(&plan, key);
            groups.start(&plan, key);
            groups.worker_ended(&plan, key);
            groups.defer(&plan, key, not_before);
        }
        let round = groups.begin_salvage_round(&plan, 0, Instant::ZERO);
        assert_eq!(round, [RoundTask::Ready(keys[0].local()), RoundTask::Delayed(keys[1], later)]);
        assert_eq!(groups.counts().delayed(), 1);
        assert_eq!(groups.task(&plan, keys[1]).map(|entry| entry.rounds), Some(1));
    }

    #[test]
    fn a_row_group_in_a_hook_or_checkpoint_is_counted_until_it_is_removed() {
        let (_, mut groups, _) = admitted();
        groups.set_phase(0, RowGroupPhase::PostBatch);
        groups.set_phase(0, RowGroupPhase::Saving);
        assert_eq!((groups.in_host(), groups.rows_in_work()), (1, 3));
        groups.remove(0);
        assert_eq!((groups.in_host(), groups.rows_in_work(), groups.is_exhausted()), (0, 0, true));
    }

    #[test]
    fn a_queued_task_takes_at_most_64_bytes() {
        let bytes = size_of::<TaskEntry>() + crate::fair_queue::ITEM_BYTES;
        assert!(bytes <= 64, "{bytes} bytes");
    }
}
