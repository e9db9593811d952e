//! Hooks and checkpoints: the answers to what the pipeline hands out.

use alloc::vec::Vec;

use super::{Due, World};
use crate::pipeline::{Batch, FinishedRowGroup, HookError, SaveError};
use crate::sim::check::LifecycleStep;
use crate::sim::scenario::{CallbackSpec, PreBatch};
use crate::time::Duration;

/// How hooks and checkpoints answer.
#[derive(Clone, Copy)]
pub(super) struct Answers {
    pub(super) pre_batch: PreBatch,
    pub(super) post_batch: CallbackSpec,
    pub(super) checkpoint: CallbackSpec,
}

impl World {
    pub(super) fn begin_pre_batch(&mut self, batch: &Batch) {
        self.record(5, u64::from(batch.row_group));
        let Batch { row_group, rows, .. } = *batch;
        self.soon(self.answers.pre_batch.takes, Due::PreBatch { row_group, rows });
    }

    pub(super) fn begin_post_batch(&mut self, group: &FinishedRowGroup) {
        self.record(6, u64::from(group.row_group));
        self.soon(self.answers.post_batch.takes, Due::PostBatch(group.row_group));
    }

    pub(super) fn begin_checkpoint(&mut self, group: &FinishedRowGroup) {
        self.record(2, u64::from(group.row_group));
        self.soon(self.answers.checkpoint.takes, Due::Checkpoint(group.row_group));
    }

    pub(super) fn end_pre_batch(&mut self, row_group: u32, rows: u32) {
        let PreBatch { fails_at, leaves_out_share, .. } = self.answers.pre_batch;
        let answer = if fails_at == Some(row_group) {
            Err(HookError::from("the scenario lets it fail"))
        } else if leaves_out_share > 0.0 {
            Ok(self.draws.left_out(row_group, rows, leaves_out_share))
        } else {
            Ok(Vec::new())
        };
        self.forward_pressure();
        let left_out = answer.as_deref().ok();
        self.report_step(&LifecycleStep::PreBatchAnswered { row_group, left_out });
        self.pipeline.pre_batch_finished(self.now, row_group, answer);
    }

    pub(super) fn end_post_batch(&mut self, row_group: u32) {
        let fails = self.answers.post_batch.fails_at == Some(row_group);
        let answer = if fails { Err(HookError::from("the scenario lets it fail")) } else { Ok(()) };
        self.forward_pressure();
        self.report_step(&LifecycleStep::PostBatchAnswered { row_group, works: !fails });
        self.pipeline.post_batch_finished(self.now, row_group, answer);
    }

    pub(super) fn end_checkpoint(&mut self, row_group: u32) {
        let fails = self.answers.checkpoint.fails_at == Some(row_group);
        let answer = if fails { Err(SaveError::from("the scenario lets it fail")) } else { Ok(()) };
        self.forward_pressure();
        self.report_step(&LifecycleStep::CheckpointAnswered { row_group, works: !fails });
        self.pipeline.checkpoint_finished(self.now, row_group, answer);
    }

    /// Answers at once, or when it is due.
    fn soon(&mut self, takes: Duration, due: Due) {
        if takes.is_zero() { self.happen(due) } else { self.schedule_at(self.now + takes, due) }
    }
}
