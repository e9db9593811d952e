//! Checks that nothing starts after a stop: no row group, no task and no call. After a wind-down, no further
//! row group starts; other work continues.
//!
//! Work in progress ends normally, including the configured hooks. Every stop is emitted, and the end of the
//! run names the latest one.

use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, LifecycleStep, ensure};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::request::event::{RequestEvent, RequestEventPayload};
use crate::time::Instant;

/// Whether the run is stopping, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    /// Why nothing may start any more, as part of the message.
    reason: Option<&'static str>,
    /// The instant of the event that announced it.
    since: Option<Instant>,
    /// Whether every call is made by a task of the run.
    has_no_other_callers: bool,
    /// The latest stop that was emitted.
    emitted: Option<StopKind>,
    is_winding_down: bool,
}

impl Stops {
    pub(super) fn expect_no_other_callers(&mut self) {
        self.has_no_other_callers = true;
    }

    /// Records that nothing may start any more. The first reason is kept.
    fn stop(&mut self, reason: &'static str) {
        self.reason.get_or_insert(reason);
    }

    /// Fails if something starts although the run is stopping.
    fn check_start(&self, started: &dyn core::fmt::Debug) -> CheckResult {
        self.reason.map_or(Ok(()), |reason| Err(format!("{started:?} after {reason}")))
    }
}

impl Check for Stops {
    const LAW: Law = Law::Stops;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match event.payload {
            SchedulerEventPayload::JobStopping { stop, .. } => {
                // A run that is wound down continues with the row groups that it has admitted.
                self.is_winding_down = stop == StopKind::WoundDown;
                if !self.is_winding_down {
                    self.stop("a stop was emitted");
                }
                if self.reason.is_some() {
                    self.since.get_or_insert(event.at);
                }
                self.emitted = Some(stop);
            }
            SchedulerEventPayload::JobCompleted { stop, .. } => {
                let emitted = self.emitted.unwrap_or(StopKind::Completed);
                ensure(stop == emitted, || format!("it ended as {stop:?}, but the emitted stop was {emitted:?}"))?;
            }
            SchedulerEventPayload::EarlyShutdown { .. } => self.stop("an early shutdown"),
            SchedulerEventPayload::HookFailed { .. } => self.stop("a hook failed"),
            SchedulerEventPayload::TaskCompleted { outcome: None, .. } => self.stop("a task panicked"),
            SchedulerEventPayload::QueueDrained { discarded: 1.. } => self.stop("a stop emptied the queue"),
            SchedulerEventPayload::RowGroupAdmitted { .. } if self.is_winding_down => {
                return Err(format!("{:?} although the run is wound down", event.payload.kind()));
            }
            SchedulerEventPayload::RowGroupAdmitted { .. }
            | SchedulerEventPayload::ReadyEnqueued { .. }
            | SchedulerEventPayload::Selected { .. }
            | SchedulerEventPayload::WorkerSpawned { .. } => self.check_start(&event.payload.kind())?,
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        // A call granted at the very instant of the stop may have been granted before it.
        let is_late = self.has_no_other_callers && self.since.is_some_and(|since| since < event.at);
        match event.payload {
            RequestEventPayload::LeaseAcquired { .. } if is_late => self.check_start(&event.payload.kind()),
            _ => Ok(()),
        }
    }

    fn on_lifecycle_step(&mut self, _: &Rules, _: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match what {
            LifecycleStep::Cancel => self.stop("it was cancelled"),
            LifecycleStep::PreBatchEnded { left_out: None, .. }
            | LifecycleStep::PostBatchEnded { succeeded: false, .. } => {
                self.stop("a hook failed");
            }
            LifecycleStep::CheckpointEnded { succeeded: false, .. } => self.stop("a checkpoint failed"),
            _ => {}
        }
        Ok(())
    }
}
