//! Checks that nothing starts after a stop: no row group, no task and no call. After a wind-down no row
//! group starts.
//!
//! Work in progress ends normally, including the configured hooks. A stop is emitted before the end of the
//! run, with the same reason.

use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, LifecycleStep, hold};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::request::event::{RequestEvent, RequestEventPayload};
use crate::time::Instant;

/// Whether the run is stopping, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    because: Option<&'static str>,
    /// The first instant at which the run was stopping.
    since: Option<Instant>,
    /// Whether all calls are made by the run.
    calls_alone: bool,
    emitted: Option<StopKind>,
    winds_down: bool,
}

impl Stops {
    pub(super) fn call_alone(&mut self) {
        self.calls_alone = true;
    }

    fn stop(&mut self, because: &'static str) {
        self.because.get_or_insert(because);
    }

    fn refuse(&self, what: &dyn core::fmt::Debug) -> CheckResult {
        self.because.map_or(Ok(()), |because| Err(format!("{what:?} after {because}")))
    }
}

impl Check for Stops {
    const LAW: Law = Law::Stops;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match event.payload {
            SchedulerEventPayload::JobStopping { stop, .. } => {
                // A run that is wound down continues with the row groups that it has admitted.
                self.winds_down = stop == StopKind::WoundDown;
                if !self.winds_down {
                    self.stop("a stop was emitted");
                }
                if self.because.is_some() {
                    self.since.get_or_insert(event.at);
                }
                self.emitted = Some(stop);
            }
            SchedulerEventPayload::JobCompleted { stop, .. } => {
                let emitted = self.emitted.unwrap_or(StopKind::Completed);
                hold(stop == emitted, || format!("it ended as {stop:?}, but the emitted stop was {emitted:?}"))?;
            }
            SchedulerEventPayload::EarlyShutdown { .. } => self.stop("an early shutdown"),
            SchedulerEventPayload::HookFailed { .. } => self.stop("a hook failed"),
            SchedulerEventPayload::TaskCompleted { outcome: None, .. } => self.stop("a task panicked"),
            SchedulerEventPayload::QueueDrained { discarded: 1.. } => self.stop("a stop emptied the queue"),
            SchedulerEventPayload::RowGroupAdmitted { .. } if self.winds_down => {
                return Err(format!("{:?} although the run is wound down", event.payload.kind()));
            }
            SchedulerEventPayload::RowGroupAdmitted { .. }
            | SchedulerEventPayload::ReadyEnqueued { .. }
            | SchedulerEventPayload::Selected { .. }
            | SchedulerEventPayload::WorkerSpawned { .. } => self.refuse(&event.payload.kind())?,
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        let is_late = self.calls_alone && self.since.is_some_and(|since| since < event.at);
        match event.payload {
            RequestEventPayload::LeaseAcquired { .. } if is_late => self.refuse(&event.payload.kind()),
            _ => Ok(()),
        }
    }

    fn on_lifecycle_step(&mut self, _: &Rules, _: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match what {
            LifecycleStep::Cancel => self.stop("it was cancelled"),
            LifecycleStep::PreBatchAnswered { left_out: None, .. }
            | LifecycleStep::PostBatchAnswered { works: false, .. } => {
                self.stop("a hook failed");
            }
            LifecycleStep::CheckpointAnswered { works: false, .. } => self.stop("a checkpoint failed"),
            _ => {}
        }
        Ok(())
    }
}
