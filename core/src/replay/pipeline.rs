//! The commands of a recorded pipeline. [`Pipeline`] describes each command.

use alloc::vec::Vec;

use super::recorded::{Machine, Recorded};
use crate::error::ConfigError;
use crate::event::Correlation;
use crate::id::SlotKey;
use crate::lease::ReleaseResult;
use crate::pipeline::event::{SchedulerEvent, SchedulerInterest};
use crate::pipeline::{
    ClaimedRowGroup, ColumnId, FatalError, HookError, Pipeline, PipelineCommand, PipelineEffect, PolicyChoice,
    SaveError, TaskOutcome, WorkerId,
};
use crate::request::{RequestAdmission, RequestPressure, ResourceId};
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken};

impl Machine for Pipeline {
    type Command = PipelineCommand;

    fn pending_effects(&self) -> usize {
        self.pending_effects()
    }
}

/// Commands.
impl Recorded<Pipeline> {
    /// Records a command and applies it.
    pub fn apply(&mut self, command: &PipelineCommand) {
        self.record(|| command.clone());
        self.machine.apply(command.clone());
    }

    /// Records and calls [`Pipeline::set_request_resources`].
    pub fn set_request_resources(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        self.record(|| {
            let calls = calls.iter().map(|(name, resource)| ((*name).into(), *resource)).collect();
            PipelineCommand::CallThrough { run, calls }
        });
        self.machine.set_request_resources(run, calls);
    }

    /// Records and calls [`Pipeline::start`].
    pub fn start(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Start { now });
        self.machine.start(now);
    }

    /// Records and calls [`Pipeline::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.record(|| PipelineCommand::HandleTimeout { now });
        self.machine.handle_timeout(now);
    }

    /// Records and calls [`Pipeline::task_finished`].
    pub fn task_finished(&mut self, now: Instant, worker: WorkerId, outcome: TaskOutcome) -> ReleaseResult {
        self.record(|| PipelineCommand::TaskFinished { now, worker, outcome });
        self.machine.task_finished(now, worker, outcome)
    }

    /// Records and calls [`Pipeline::task_panicked`].
    pub fn task_panicked(&mut self, now: Instant, worker: WorkerId, error: FatalError) -> ReleaseResult {
        self.record(|| PipelineCommand::TaskPanicked { now, worker, cause: error.0.clone() });
        self.machine.task_panicked(now, worker, error)
    }

    /// Records and calls [`Pipeline::spawn_failed`].
    pub fn spawn_failed(&mut self, now: Instant, worker: WorkerId) -> ReleaseResult {
        self.record(|| PipelineCommand::SpawnFailed { now, worker });
        self.machine.spawn_failed(now, worker)
    }

    /// Records and calls [`Pipeline::pre_batch_finished`].
    pub fn pre_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::PreBatchFinished { now, row_group, result }
        });
        self.machine.pre_batch_finished(now, row_group, result);
    }

    /// Records and calls [`Pipeline::post_batch_finished`].
    pub fn post_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<(), HookError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::PostBatchFinished { now, row_group, result }
        });
        self.machine.post_batch_finished(now, row_group, result);
    }

    /// Records and calls [`Pipeline::checkpoint_finished`].
    pub fn checkpoint_finished(&mut self, now: Instant, row_group: u32, result: Result<(), SaveError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::CheckpointFinished { now, row_group, result }
        });
        self.machine.checkpoint_finished(now, row_group, result);
    }

    /// Records and calls [`Pipeline::row_group_claimed`].
    pub fn row_group_claimed(&mut self, now: Instant, result: Result<Option<ClaimedRowGroup>, HookError>) {
        self.record(|| {
            let missing = match &result {
                Ok(Some(claimed)) => claimed.missing.clone(),
                _ => Vec::new(),
            };
            let result = result.clone().map(|claimed| claimed.map(|claimed| claimed.row_group));
            PipelineCommand::RowGroupClaimed { now, result: result.map_err(|error| error.0), missing }
        });
        self.machine.row_group_claimed(now, result);
    }

    /// Records and calls [`Pipeline::set_request_pressure`].
    pub fn set_request_pressure(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        self.record(|| PipelineCommand::SetRequestPressure { now, resource: resource.into(), pressure });
        self.machine.set_request_pressure(now, resource, pressure);
    }

    /// Calls [`Pipeline::update_pressure`], and records the calls whose pressure changed.
    pub fn update_pressure(&mut self, now: Instant, admission: &RequestAdmission) {
        for call in 0..self.machine.calls_to_sample() {
            let pressure = admission.pressure(now, self.machine.calls()[call].1);
            if self.machine.update_call_pressure(call, pressure) {
                let Self { machine, recorder } = self;
                let resource = &machine.calls()[call].0;
                recorder.record(machine.pending_effects(), || PipelineCommand::UpdatePressure {
                    resource: resource.clone(),
                    pressure,
                });
            }
        }
    }

    /// Settles as [`Pipeline::settle_with`] does, and records the resulting commands.
    pub fn settle_with(&mut self, now: Instant, admission: &mut Recorded<RequestAdmission>) {
        if self.machine.take_stop() {
            admission.deny_stopping(now, self);
        }
        if self.machine.is_waiting_for_yielded() || admission.needs_resume() {
            admission.resume_yielded(now, self);
            self.resume_dispatch(now);
        }
    }

    /// Calls [`Pipeline::take_stop`]. It is not recorded, but the commands that follow from it are.
    pub fn take_stop(&mut self) -> bool {
        self.machine.take_stop()
    }

    /// Records and calls [`Pipeline::resume_dispatch`], unless it would do nothing.
    pub fn resume_dispatch(&mut self, now: Instant) {
        if self.machine.is_waiting_for_yielded() {
            self.record(|| PipelineCommand::ResumeDispatch { now });
            self.machine.resume_dispatch(now);
        }
    }

    /// Calls [`Pipeline::set_policy`], and records it unless it fails.
    pub fn set_policy(&mut self, now: Instant, policy: PolicyChoice) -> Result<(), ConfigError> {
        let command = self.prepare(|| PipelineCommand::SetPolicy { now, policy: policy.clone() });
        let answer = self.machine.set_policy(now, policy);
        self.record_accepted(command, answer)
    }

    /// Calls [`Pipeline::set_weight`], and records it unless it fails.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        let command = self.prepare(|| PipelineCommand::SetWeight { now, column, weight });
        let answer = self.machine.set_weight(now, column, weight);
        self.record_accepted(command, answer)
    }

    /// Records and calls [`Pipeline::drain`].
    pub fn drain(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Drain { now });
        self.machine.drain(now);
    }

    /// Records and calls [`Pipeline::wind_down`].
    pub fn wind_down(&mut self, now: Instant) {
        self.record(|| PipelineCommand::WindDown { now });
        self.machine.wind_down(now);
    }

    /// Records and calls [`Pipeline::cancel`].
    pub fn cancel(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Cancel { now });
        self.machine.cancel(now);
    }
}

/// Effects and events. They are not commands, because polling makes no decision.
impl Recorded<Pipeline> {
    /// Calls [`Pipeline::poll_effect`], and adds the effect to the digest.
    pub fn poll_effect(&mut self) -> Option<PipelineEffect> {
        let effect = self.machine.poll_effect()?;
        self.recorder.add_effect(|digest| digest.pipeline_effect(&effect));
        Some(effect)
    }

    /// Calls [`Pipeline::set_interest`].
    pub fn set_interest(&mut self, interest: SchedulerInterest) {
        self.machine.set_interest(interest);
    }

    /// Calls [`Pipeline::poll_event`].
    pub fn poll_event(&mut self) -> Option<SchedulerEvent> {
        self.machine.poll_event()
    }
}

/// These methods are not recorded, because the commands of request admission that call them are.
impl TaskResources for Recorded<Pipeline> {
    fn yield_resources(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.machine.yield_resources(now, token)
    }

    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.machine.resume(now, token)
    }

    fn can_resume(&self, token: &TaskToken) -> bool {
        self.machine.can_resume(token)
    }

    fn correlation(&self, token: &TaskToken) -> Option<Correlation> {
        self.machine.correlation(token)
    }

    fn is_stopping(&self, run: SlotKey) -> bool {
        self.machine.is_stopping(run)
    }

    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool {
        self.machine.blocks(holder, token)
    }
}
