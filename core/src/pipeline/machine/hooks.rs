//! A row group is given to the host: to its pre-batch hook, to its post-batch hook, and to be saved.
//!
//! ```text
//! admitted --seeds done--> pre-batch hook --> the rest --nothing left--> post-batch hook --> checkpoint
//! ```
//!
//! The hooks are called only if the configuration says so. Whatever was given out is waited for, in a run that stops too;
//! while it is, the row group has no other work, and the machine asks for no wake-up on its account.

use alloc::format;
use alloc::vec::Vec;

use crate::pipeline::machine::stop::StopMode;
use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::outcome::{Batch, DropReason, Effect, Hook, HookError, SaveError};
use crate::pipeline::plan::ColumnId;
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::StopReason;
use crate::pipeline::row_group::{Phase, Span};
use crate::replay::RunCommand;
use crate::time::Instant;

/// Which hooks are called.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Hooks {
    pub(in crate::pipeline) pre_batch: bool,
    pub(in crate::pipeline) post_batch: bool,
}

/// Answers of the host.
impl Pipeline {
    /// A pre-batch hook ended: with the rows to leave out, counted from 0 within the row group, in any order and number;
    /// or it failed, as it did if there is no such row, and the run stops. Any other call changes nothing.
    pub fn pre_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.recorder.note(self.effects.len(), || {
            let result = result.clone().map_err(|error| error.0);
            RunCommand::PreBatchFinished { now, row_group, result }
        });
        let now = self.clock.observe(now);
        let Some(group) = self.groups.get_mut(row_group).filter(|group| group.phase == Phase::PreBatch) else {
            return;
        };
        self.awaited -= 1;
        group.phase = Phase::Open;
        match result.and_then(|rows| within(rows, group.span.rows)) {
            Ok(rows) => {
                for row in rows {
                    self.leave_out(row_group, row);
                }
                self.open_gate(row_group);
            }
            Err(HookError(why)) => {
                let hook = Hook::PreBatch;
                self.stop(StopReason::HookFailed { row_group, hook, why }, StopMode::Drain);
            }
        }
        self.settle(now, row_group);
        self.pump(now);
    }

    /// A post-batch hook ended: its row group is saved next, or the run stops. Any other call changes nothing.
    pub fn post_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<(), HookError>) {
        self.recorder.note(self.effects.len(), || {
            let result = result.clone().map_err(|error| error.0);
            RunCommand::PostBatchFinished { now, row_group, result }
        });
        let now = self.clock.observe(now);
        let Some(group) = self.groups.get(row_group).filter(|group| group.phase == Phase::PostBatch) else { return };
        self.awaited -= 1;
        let complete = group.frontier.complete_rows();
        match result {
            Ok(()) => self.save(row_group),
            Err(HookError(why)) => {
                let hook = Hook::PostBatch;
                self.stop(StopReason::HookFailed { row_group, hook, why }, StopMode::Drain);
                self.keep_unsaved(row_group, DropReason::HookFailed, complete);
            }
        }
        self.pump(now);
    }

    /// A checkpoint ended. Its row group's slot is free, or the run stops. Any other call changes nothing.
    pub fn checkpoint_finished(&mut self, now: Instant, row_group: u32, result: Result<(), SaveError>) {
        self.recorder.note(self.effects.len(), || {
            let result = result.clone().map_err(|error| error.0);
            RunCommand::CheckpointFinished { now, row_group, result }
        });
        let now = self.clock.observe(now);
        let Some(group) = self.groups.get(row_group).filter(|group| group.phase == Phase::Saving) else { return };
        self.awaited -= 1;
        let complete = group.frontier.complete_rows();
        match result {
            Ok(()) => {
                self.rows_in_work -= u64::from(group.span.rows);
                self.groups.remove(row_group);
                self.tally.rows_out += u64::from(complete);
                self.tally.row_groups_saved += 1;
                if self.teller.is_on() {
                    self.tell_saved(now, row_group, complete);
                }
            }
            Err(SaveError(why)) => {
                self.stop(StopReason::CheckpointFailed { row_group, why }, StopMode::Drain);
                self.keep_unsaved(row_group, DropReason::Unsaved, complete);
            }
        }
        self.pump(now);
    }
}

impl Pipeline {
    /// Calls the pre-batch hook of a row group if its seeds are done and it was not called before.
    pub(in crate::pipeline) fn begin_pre_batch(&mut self, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group).filter(|_| self.state == State::Running) else { return };
        if !group.gated || group.phase != Phase::Open || !group.frontier.is_seeded() {
            return;
        }
        group.phase = Phase::PreBatch;
        self.awaited += 1;
        let Span { row_group, first_row, rows } = group.span;
        self.effects.push_back(Effect::PreBatch(Batch { row_group, first_row, rows }));
    }

    /// Drops a row that the pre-batch hook does not want.
    fn leave_out(&mut self, row_group: u32, row: u32) {
        let Some(group) = self.groups.get(row_group) else { return };
        let missing = group.frontier.first_missing(&self.plan, row);
        let column = missing.or(self.plan.order().last().copied()).unwrap_or(ColumnId(0));
        self.drop_rows(TaskKey { row_group, column, row: Some(row) }, DropReason::PreBatch);
    }

    fn open_gate(&mut self, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group) else { return };
        group.gated = false;
        group.frontier.open_gate(&self.plan, &mut self.ready);
        self.enqueue_ready(row_group);
    }

    /// Gives a row group to its post-batch hook, if there is one, and then to be saved; rows that are not complete by now
    /// are dropped.
    pub(in crate::pipeline) fn hand_out(&mut self, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group) else { return };
        for row in group.unfinished(&self.plan) {
            self.tally.drop_rows(Some(row.column), row.reason, 1);
        }
        if !self.hooks.post_batch {
            return self.save(row_group);
        }
        group.phase = Phase::PostBatch;
        self.awaited += 1;
        self.effects.push_back(Effect::PostBatch(group.finished(&self.plan)));
    }

    fn save(&mut self, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group) else { return };
        group.phase = Phase::Saving;
        self.awaited += 1;
        self.effects.push_back(Effect::Checkpoint(group.finished(&self.plan)));
    }

    fn keep_unsaved(&mut self, row_group: u32, reason: DropReason, complete: u32) {
        if let Some(group) = self.groups.get_mut(row_group) {
            group.phase = Phase::Unsaved;
            self.tally.drop_rows(None, reason, u64::from(complete));
        }
        if self.teller.is_on() {
            self.tell_discarded(row_group, reason, complete);
        }
    }
}

/// The rows, if the row group has all of them.
fn within(rows: Vec<u32>, count: u32) -> Result<Vec<u32>, HookError> {
    match rows.iter().find(|row| **row >= count) {
        Some(row) => Err(HookError(format!("it left out row {row}, counted from 0, of a row group of {count} rows"))),
        None => Ok(rows),
    }
}
