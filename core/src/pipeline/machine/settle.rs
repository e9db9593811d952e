//! The steps of a row group without running or queued tasks: its hooks, its salvage rounds and its
//! checkpoint.
//!
//! ```text
//! admitted --seeds done--> pre-batch hook --> the rest --nothing left--> post-batch hook --> checkpoint
//! ```
//!
//! The hooks are called only if they are configured. While a hook is in progress, the row group has no other
//! work, and sets no timer. This also applies to a run that stops.

use alloc::format;
use alloc::vec::Vec;

use super::Pipeline;
use crate::pipeline::lifecycle::{RunState, StopMode};
use crate::pipeline::outcome::{
    ClaimedRowGroup, DiscardReason, DropReason, Hook, HookError, PipelineEffect, SaveError, SeededRowGroup,
};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::StopReason;
use crate::pipeline::row_group::{RoundTask, RowGroup, RowGroupPhase, Span};
use crate::time::Instant;

/// Commands: the results that the host reports.
impl Pipeline {
    /// Reports the result of a [claim](PipelineEffect::ClaimRowGroup): a row group that no other run
    /// computes, in any order, or `None` if none is left for this run. The run stops if the claim failed, or
    /// if the row group does not have the missing rows.
    ///
    /// A row group that cannot be admitted is left out, and another one is claimed: one that is done, that
    /// was claimed before, or that does not exist. The call has no effect if no claim is in progress.
    pub fn row_group_claimed(&mut self, now: Instant, result: Result<Option<ClaimedRowGroup>, HookError>) {
        let now = self.clock.observe(now);
        if !self.row_groups.pending().is_claiming() {
            return;
        }
        match result.and_then(|claimed| self.check_claimed(claimed)) {
            Ok(claimed) => self.row_groups.end_claim(claimed),
            Err(HookError(why)) => {
                self.row_groups.end_claim(None);
                self.stop(StopReason::ClaimFailed { why }, StopMode::DrainPartial);
            }
        }
        self.pump(now);
    }

    /// Reports the result of a pre-batch hook.
    ///
    /// `Ok` contains the rows to leave out, counted from 0 within the row group, in any order. Duplicates are
    /// allowed. The run stops if the hook failed, or if the row group does not have one of these rows. The
    /// call has no effect if the hook of this row group is not in progress.
    pub fn pre_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<Vec<u32>, HookError>) {
        let now = self.clock.observe(now);
        let Some(group) = self.row_groups.in_phase(row_group, RowGroupPhase::PreBatch) else { return };
        let count = group.span().rows;
        self.row_groups.set_phase(row_group, RowGroupPhase::Computing);
        match result.and_then(|rows| check_rows(rows, count)) {
            Ok(rows) => {
                for row in rows {
                    self.leave_out(row_group, row);
                }
                self.row_groups.hook_done(&self.plan, row_group, &mut self.ready);
                self.enqueue_ready(row_group);
            }
            Err(HookError(why)) => {
                let hook = Hook::PreBatch;
                self.stop(StopReason::HookFailed { row_group, hook, why }, StopMode::Drain);
            }
        }
        self.settle(now, row_group);
        self.pump(now);
    }

    /// Reports the result of a post-batch hook. If the hook succeeded, the row group is saved next.
    /// Otherwise the run stops.
    ///
    /// The call has no effect if the hook of this row group is not in progress.
    pub fn post_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<(), HookError>) {
        let now = self.clock.observe(now);
        if self.row_groups.in_phase(row_group, RowGroupPhase::PostBatch).is_none() {
            return;
        }
        match result {
            Ok(()) => self.save(row_group),
            Err(HookError(why)) => {
                let hook = Hook::PostBatch;
                self.stop(StopReason::HookFailed { row_group, hook, why }, StopMode::Drain);
                self.discard(row_group, DiscardReason::HookFailed);
            }
        }
        self.pump(now);
    }

    /// Reports the result of a checkpoint. If the checkpoint succeeded, the row group is removed. Otherwise
    /// the run stops.
    ///
    /// The call has no effect if the checkpoint of this row group is not in progress.
    pub fn checkpoint_finished(&mut self, now: Instant, row_group: u32, result: Result<(), SaveError>) {
        let now = self.clock.observe(now);
        let Some(group) = self.row_groups.in_phase(row_group, RowGroupPhase::Saving) else { return };
        let (complete, unmade) = (group.frontier().complete_rows(), group.rows_unmade());
        match result {
            Ok(()) => {
                self.row_groups.remove(row_group);
                self.tally.row_group_saved(complete, unmade == 0);
                self.tally.leave_unmade(unmade);
                if self.emitter.is_on() {
                    self.emit_saved(now, row_group, complete, unmade);
                }
            }
            Err(SaveError(why)) => {
                self.stop(StopReason::CheckpointFailed { row_group, why }, StopMode::Drain);
                self.discard(row_group, DiscardReason::Unsaved);
            }
        }
        self.pump(now);
    }
}

/// Settling.
impl Pipeline {
    /// Starts the next step of a row group that has no running or queued task.
    pub(super) fn settle(&mut self, now: Instant, row_group: u32) {
        // A task that has the turn in its ordered column must be queued before the row group counts as quiet.
        self.advance_cursors();
        self.begin_pre_batch(row_group);
        if !self.is_quiet(row_group) {
            return;
        }
        // A batch that waits for cells which cannot become ready now is work as well.
        self.queue_batches(row_group, true);
        if !self.is_quiet(row_group) {
            return;
        }
        let is_done = self.row_groups.get(row_group).is_some_and(RowGroup::is_done);
        match self.lifecycle.state() {
            _ if is_done => self.start_checkpoint(row_group),
            RunState::Stopping(mode) => self.settle_stopped(row_group, mode),
            _ => self.begin_salvage_round(now, row_group),
        }
    }

    /// Calls the pre-batch hook of a row group if its seeds are done and the hook was not called before.
    pub(super) fn begin_pre_batch(&mut self, row_group: u32) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        if !self.lifecycle.is_running() || !group.is_ready_for_pre_batch() {
            return;
        }
        let Span { row_group, first_row, rows } = group.span();
        self.row_groups.set_phase(row_group, RowGroupPhase::PreBatch);
        self.effects.push_back(PipelineEffect::PreBatch(SeededRowGroup { row_group, first_row, rows }));
    }

    /// Returns whether a row group is in the phase *computing* and has no running or queued task.
    fn is_quiet(&self, row_group: u32) -> bool {
        self.row_groups.in_phase(row_group, RowGroupPhase::Computing).is_some_and(RowGroup::is_quiet)
    }

    /// Drops a row that the pre-batch hook left out.
    fn leave_out(&mut self, row_group: u32, row: u32) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        let missing = group.frontier().first_missing(&self.plan, row);
        let Some(column) = missing.or(self.plan.order().last().copied()) else { return };
        self.drop_rows(TaskKey { row_group, column, row: Some(row) }, DropReason::PreBatch);
    }

    fn begin_salvage_round(&mut self, now: Instant, row_group: u32) {
        for task in self.row_groups.begin_salvage_round(&self.plan, row_group, now) {
            match task {
                RoundTask::Ready(task) => self.ready.push(task),
                RoundTask::Delayed(key, until) => self.retry_at(until, key),
            }
        }
        self.enqueue_ready(row_group);
    }

    /// Starts the post-batch hook of a row group, or its checkpoint if there is no hook. Rows that are not
    /// complete at this time are unmade.
    fn start_checkpoint(&mut self, row_group: u32) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        if !self.has_post_batch_hook {
            return self.save(row_group);
        }
        self.effects.push_back(PipelineEffect::PostBatch(group.finished()));
        self.row_groups.set_phase(row_group, RowGroupPhase::PostBatch);
    }

    fn save(&mut self, row_group: u32) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        self.effects.push_back(PipelineEffect::Checkpoint(group.finished()));
        self.row_groups.set_phase(row_group, RowGroupPhase::Saving);
    }

    /// Ends a row group that is not saved. If its hook or checkpoint failed, it is kept so that it can be
    /// read.
    fn discard(&mut self, row_group: u32, reason: DiscardReason) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        let rows = group.rows_in() - group.rows_dropped();
        self.tally.leave_unmade(rows);
        match reason {
            DiscardReason::Stopped => self.row_groups.remove(row_group),
            DiscardReason::Unsaved | DiscardReason::HookFailed => {
                self.row_groups.set_phase(row_group, RowGroupPhase::Unsaved);
            }
        }
        if self.emitter.is_on() {
            self.emit_discarded(row_group, reason, rows);
        }
    }

    /// Ends a row group that is not complete and has no worker left, in a stopping run.
    fn settle_stopped(&mut self, row_group: u32, mode: StopMode) {
        let Some(group) = self.row_groups.get(row_group) else { return };
        // Dropped rows are saved too: a resumed run does not try them again.
        let has_rows_to_save = group.frontier().complete_rows() + group.rows_dropped() > 0;
        let is_kept = mode == StopMode::DrainPartial && self.plan.keeps_parts() && !group.awaits_hook();
        if is_kept && has_rows_to_save {
            return self.start_checkpoint(row_group);
        }
        self.discard(row_group, DiscardReason::Stopped);
    }
}

impl Pipeline {
    /// Returns the claimed row group, or an error if not all of its missing rows can be computed.
    fn check_claimed(&self, claimed: Option<ClaimedRowGroup>) -> Result<Option<ClaimedRowGroup>, HookError> {
        let Some(ClaimedRowGroup { row_group, missing }) = &claimed else { return Ok(None) };
        let count = self.row_groups.pending().rows_in(*row_group);
        let mut free = 0;
        let is_valid = missing.iter().all(|rows| {
            let is_next = rows.start >= free && !rows.is_empty() && rows.end <= count;
            free = rows.end;
            is_next
        });
        let is_left_out = !self.row_groups.pending().contains(*row_group);
        if missing.is_empty() || is_left_out || is_valid && self.plan.keeps_parts() {
            return Ok(claimed);
        }
        let why = format!("row group {row_group} of {count} rows cannot be computed in the parts {missing:?}");
        Err(HookError(why))
    }
}

/// Returns the rows, or an error if the row group does not have all of them.
fn check_rows(rows: Vec<u32>, count: u32) -> Result<Vec<u32>, HookError> {
    match rows.iter().find(|row| **row >= count) {
        Some(row) => Err(HookError(format!("it left out row {row}, counted from 0, of a row group of {count} rows"))),
        None => Ok(rows),
    }
}
