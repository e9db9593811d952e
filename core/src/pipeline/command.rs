//! The commands of a pipeline as values, which can be recorded and applied again.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::{
    ClaimedRowGroup, ColumnId, FatalError, HookError, Pipeline, PolicyChoice, SaveError, TaskOutcome, WorkerId,
};
use crate::id::SlotKey;
use crate::request::{RequestPressure, ResourceId};
use crate::time::Instant;

/// A command of a [`Pipeline`]. Each variant is one method, with the arguments of that method.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", tag = "do"))]
#[expect(missing_docs, reason = "each variant has the arguments of one documented method")]
#[non_exhaustive]
pub enum PipelineCommand {
    /// The call of [`Pipeline::set_request_resources`].
    CallThrough {
        run: SlotKey,
        calls: Vec<(String, ResourceId)>,
    },
    Start {
        now: Instant,
    },
    HandleTimeout {
        now: Instant,
    },
    TaskFinished {
        now: Instant,
        worker: WorkerId,
        outcome: TaskOutcome,
    },
    TaskPanicked {
        now: Instant,
        worker: WorkerId,
        cause: String,
    },
    SpawnFailed {
        now: Instant,
        worker: WorkerId,
    },
    /// The result has the rows to leave out, or the error message.
    PreBatchFinished {
        now: Instant,
        row_group: u32,
        result: Result<Vec<u32>, String>,
    },
    PostBatchFinished {
        now: Instant,
        row_group: u32,
        result: Result<(), String>,
    },
    CheckpointFinished {
        now: Instant,
        row_group: u32,
        result: Result<(), String>,
    },
    /// The result has the row group, if there is one, or the error message, and `missing` the rows of the row
    /// group to compute.
    RowGroupClaimed {
        now: Instant,
        result: Result<Option<u32>, String>,
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
        missing: Vec<Range<u32>>,
    },
    /// The pressure on one call changed: see [`Pipeline::update_pressure`].
    UpdatePressure {
        resource: String,
        #[cfg_attr(feature = "serde", serde(default))]
        pressure: Option<RequestPressure>,
    },
    SetRequestPressure {
        now: Instant,
        resource: String,
        #[cfg_attr(feature = "serde", serde(default))]
        pressure: Option<RequestPressure>,
    },
    ResumeDispatch {
        now: Instant,
    },
    SetPolicy {
        now: Instant,
        policy: PolicyChoice,
    },
    SetWeight {
        now: Instant,
        column: ColumnId,
        weight: f64,
    },
    WindDown {
        now: Instant,
    },
    Drain {
        now: Instant,
    },
    Cancel {
        now: Instant,
    },
}

impl Pipeline {
    /// Applies a command by calling its method. The return value of the method is discarded.
    pub fn apply(&mut self, command: PipelineCommand) {
        match command {
            PipelineCommand::CallThrough { run, calls } => {
                let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
                self.set_request_resources(run, &calls);
            }
            PipelineCommand::Start { now } => self.start(now),
            PipelineCommand::HandleTimeout { now } => self.handle_timeout(now),
            PipelineCommand::TaskFinished { now, worker, outcome } => drop(self.task_finished(now, worker, outcome)),
            PipelineCommand::TaskPanicked { now, worker, cause } => {
                let _ = self.task_panicked(now, worker, FatalError(cause));
            }
            PipelineCommand::SpawnFailed { now, worker } => drop(self.spawn_failed(now, worker)),
            PipelineCommand::PreBatchFinished { now, row_group, result } => {
                self.pre_batch_finished(now, row_group, result.map_err(HookError));
            }
            PipelineCommand::PostBatchFinished { now, row_group, result } => {
                self.post_batch_finished(now, row_group, result.map_err(HookError));
            }
            PipelineCommand::CheckpointFinished { now, row_group, result } => {
                self.checkpoint_finished(now, row_group, result.map_err(SaveError));
            }
            PipelineCommand::RowGroupClaimed { now, result, missing } => {
                let claimed =
                    |row_group: Option<u32>| row_group.map(|row_group| ClaimedRowGroup { row_group, missing });
                self.row_group_claimed(now, result.map(claimed).map_err(HookError));
            }
            PipelineCommand::UpdatePressure { resource, pressure } => {
                let call = self.calls().iter().position(|(name, _)| *name == resource);
                call.map(|call| self.update_call_pressure(call, pressure));
            }
            PipelineCommand::SetRequestPressure { now, resource, pressure } => {
                self.set_request_pressure(now, &resource, pressure);
            }
            PipelineCommand::ResumeDispatch { now } => self.resume_dispatch(now),
            // A caller of `Recorded::apply` may have recorded a rejected command. It is rejected here too.
            PipelineCommand::SetPolicy { now, policy } => drop(self.set_policy(now, policy)),
            PipelineCommand::SetWeight { now, column, weight } => drop(self.set_weight(now, column, weight)),
            PipelineCommand::WindDown { now } => self.wind_down(now),
            PipelineCommand::Drain { now } => self.drain(now),
            PipelineCommand::Cancel { now } => self.cancel(now),
        }
    }
}
