//! Hooks and checkpoints: how long each takes, and its result.

use alloc::vec::Vec;

use super::{DigestEntry, Due, World};
use crate::pipeline::{FinishedRowGroup, HookError, SaveError, SeededRowGroup};
use crate::sim::check::LifecycleStep;
use crate::sim::scenario::{CallbackSpec, PreBatch};
use crate::time::Duration;

/// The behaviour of the hooks and checkpoints, from the scenario.
#[derive(Clone, Copy)]
pub(super) struct CallbackBehaviour {
    pub(super) pre_batch: PreBatch,
    pub(super) post_batch: CallbackSpec,
    pub(super) checkpoint: CallbackSpec,
}

impl World {
    pub(super) fn begin_pre_batch(&mut self, group: &SeededRowGroup) {
        self.add_to_digest(DigestEntry::PreBatchStarted, u64::from(group.row_group));
        let SeededRowGroup { row_group, rows, .. } = *group;
        self.process_after(self.callbacks.pre_batch.takes, Due::PreBatch { row_group, rows });
    }

    pub(super) fn begin_post_batch(&mut self, group: &FinishedRowGroup) {
        self.add_to_digest(DigestEntry::PostBatchStarted, u64::from(group.row_group));
        self.process_after(self.callbacks.post_batch.takes, Due::PostBatch(group.row_group));
    }

    pub(super) fn begin_checkpoint(&mut self, group: &FinishedRowGroup) {
        self.add_to_digest(DigestEntry::CheckpointStarted, u64::from(group.row_group));
        self.process_after(self.callbacks.checkpoint.takes, Due::Checkpoint(group.row_group));
    }

    pub(super) fn end_pre_batch(&mut self, row_group: u32, rows: u32) {
        let PreBatch { fails_at, leaves_out_share, .. } = self.callbacks.pre_batch;
        let result = if fails_at == Some(row_group) {
            Err(HookError::from("the scenario lets it fail"))
        } else if leaves_out_share > 0.0 {
            Ok(self.draws.left_out(row_group, rows, leaves_out_share))
        } else {
            Ok(Vec::new())
        };
        self.forward_pressure();
        let left_out = result.as_deref().ok();
        self.report_step(&LifecycleStep::PreBatchEnded { row_group, left_out });
        self.pipeline.pre_batch_finished(self.now, row_group, result);
    }

    pub(super) fn end_post_batch(&mut self, row_group: u32) {
        let fails = self.callbacks.post_batch.fails_at == Some(row_group);
        let result = if fails { Err(HookError::from("the scenario lets it fail")) } else { Ok(()) };
        self.forward_pressure();
        self.report_step(&LifecycleStep::PostBatchEnded { row_group, succeeded: !fails });
        self.pipeline.post_batch_finished(self.now, row_group, result);
    }

    pub(super) fn end_checkpoint(&mut self, row_group: u32) {
        let fails = self.callbacks.checkpoint.fails_at == Some(row_group);
        let result = if fails { Err(SaveError::from("the scenario lets it fail")) } else { Ok(()) };
        self.forward_pressure();
        self.report_step(&LifecycleStep::CheckpointEnded { row_group, succeeded: !fails });
        self.pipeline.checkpoint_finished(self.now, row_group, result);
    }

    /// Processes `due` at once if `takes` is zero, and schedules it otherwise.
    fn process_after(&mut self, takes: Duration, due: Due) {
        if takes.is_zero() { self.process(due) } else { self.schedule_at(self.now + takes, due) }
    }
}
