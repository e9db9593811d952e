//! The commands of a recorded pipeline. See [`Pipeline`] for what each does.

use alloc::vec::Vec;

use super::recorded::{Machine, Recorded};
use crate::error::ConfigError;
use crate::event::Correlation;
use crate::id::SlotKey;
use crate::lease::ReleaseAnswer;
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::pipeline::{
    ColumnId, Effect, FatalError, HookError, Pipeline, PipelineCommand, PolicyChoice, SaveError, TaskOutcome, WorkerId,
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

    /// [`Pipeline::call_through`]
    pub fn call_through(&mut self, run: SlotKey, calls: &[(&str, ResourceId)]) {
        self.record(|| {
            let calls = calls.iter().map(|(name, resource)| ((*name).into(), *resource)).collect();
            PipelineCommand::CallThrough { run, calls }
        });
        self.machine.call_through(run, calls);
    }

    /// [`Pipeline::start`]
    pub fn start(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Start { now });
        self.machine.start(now);
    }

    /// [`Pipeline::handle_timeout`]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.record(|| PipelineCommand::HandleTimeout { now });
        self.machine.handle_timeout(now);
    }

    /// [`Pipeline::task_finished`]
    pub fn task_finished(&mut self, now: Instant, worker: WorkerId, outcome: TaskOutcome) -> ReleaseAnswer {
        self.record(|| PipelineCommand::TaskFinished { now, worker, outcome });
        self.machine.task_finished(now, worker, outcome)
    }

    /// [`Pipeline::task_panicked`]
    pub fn task_panicked(&mut self, now: Instant, worker: WorkerId, error: FatalError) -> ReleaseAnswer {
        self.record(|| PipelineCommand::TaskPanicked { now, worker, cause: error.0.clone() });
        self.machine.task_panicked(now, worker, error)
    }

    /// [`Pipeline::spawn_failed`]
    pub fn spawn_failed(&mut self, now: Instant, worker: WorkerId) -> ReleaseAnswer {
        self.record(|| PipelineCommand::SpawnFailed { now, worker });
        self.machine.spawn_failed(now, worker)
    }

    /// [`Pipeline::pre_batch_finished`]
    pub fn pre_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::PreBatchFinished { now, row_group, result }
        });
        self.machine.pre_batch_finished(now, row_group, result);
    }

    /// [`Pipeline::post_batch_finished`]
    pub fn post_batch_finished(&mut self, now: Instant, row_group: u32, result: Result<(), HookError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::PostBatchFinished { now, row_group, result }
        });
        self.machine.post_batch_finished(now, row_group, result);
    }

    /// [`Pipeline::checkpoint_finished`]
    pub fn checkpoint_finished(&mut self, now: Instant, row_group: u32, result: Result<(), SaveError>) {
        self.record(|| {
            let result = result.clone().map_err(|error| error.0);
            PipelineCommand::CheckpointFinished { now, row_group, result }
        });
        self.machine.checkpoint_finished(now, row_group, result);
    }

    /// [`Pipeline::set_request_pressure`]
    pub fn set_request_pressure(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        self.record(|| PipelineCommand::SetRequestPressure { now, resource: resource.into(), pressure });
        self.machine.set_request_pressure(now, resource, pressure);
    }

    /// [`Pipeline::update_pressure`]. Records the calls whose pressure changed.
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

    /// [`Pipeline::settle_with`]
    pub fn settle_with(&mut self, now: Instant, admission: &mut Recorded<RequestAdmission>) {
        if self.machine.take_stop() {
            admission.reject_stopping(now, self);
        }
        if self.machine.is_waiting_for_suspended() || admission.needs_resume() {
            admission.resume_yielded(now, self);
            self.resume_dispatch(now);
        }
    }

    /// [`Pipeline::take_stop`]. Not recorded: what follows from it is.
    pub fn take_stop(&mut self) -> bool {
        self.machine.take_stop()
    }

    /// [`Pipeline::resume_dispatch`]. Not recorded if it does nothing.
    pub fn resume_dispatch(&mut self, now: Instant) {
        if self.machine.is_waiting_for_suspended() {
            self.record(|| PipelineCommand::ResumeDispatch { now });
            self.machine.resume_dispatch(now);
        }
    }

    /// [`Pipeline::set_policy`]. Not recorded if it is refused.
    pub fn set_policy(&mut self, now: Instant, policy: PolicyChoice) -> Result<(), ConfigError> {
        let command = self.prepare(|| PipelineCommand::SetPolicy { now, policy: policy.clone() });
        let answer = self.machine.set_policy(now, policy);
        self.record_accepted(command, answer)
    }

    /// [`Pipeline::set_weight`]. Not recorded if it is refused.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        let command = self.prepare(|| PipelineCommand::SetWeight { now, column, weight });
        let answer = self.machine.set_weight(now, column, weight);
        self.record_accepted(command, answer)
    }

    /// [`Pipeline::drain`]
    pub fn drain(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Drain { now });
        self.machine.drain(now);
    }

    /// [`Pipeline::wind_down`]
    pub fn wind_down(&mut self, now: Instant) {
        self.record(|| PipelineCommand::WindDown { now });
        self.machine.wind_down(now);
    }

    /// [`Pipeline::cancel`]
    pub fn cancel(&mut self, now: Instant) {
        self.record(|| PipelineCommand::Cancel { now });
        self.machine.cancel(now);
    }
}

/// Effects and events. They are no commands: polling decides nothing.
impl Recorded<Pipeline> {
    /// [`Pipeline::poll_effect`]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.machine.poll_effect()?;
        self.recorder.polled(|digest| digest.run(&effect));
        Some(effect)
    }

    /// [`Pipeline::set_interest`]
    pub fn set_interest(&mut self, interest: Interest) {
        self.machine.set_interest(interest);
    }

    /// [`Pipeline::poll_event`]
    pub fn poll_event(&mut self) -> Option<SchedulerEvent> {
        self.machine.poll_event()
    }
}

/// Not recorded: the commands of request admission that call it are.
impl TaskResources for Recorded<Pipeline> {
    fn suspend(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.machine.suspend(now, token)
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
