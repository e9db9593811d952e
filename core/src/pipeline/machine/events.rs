//! Emits the events of the machine, in the order in which they happen.

use super::Pipeline;
use crate::lease::LeaseId;
use crate::pipeline::event::{
    QueueState, SchedulerEvent, SchedulerEventKind, SchedulerEventPayload, SchedulerInterest, StopKind,
};
use crate::pipeline::outcome::{DiscardReason, DropReason, RetryKind, WorkerId};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::StopReason;
use crate::pipeline::retry::RetryDecision;
use crate::pipeline::row_group::{RowGroupBlock, TaskEntry};
use crate::task::{Denied, TaskDenialReason};
use crate::time::Instant;

/// Events.
impl Pipeline {
    /// Enables these kinds of events, and disables all others. O(1). Events that are emitted only on a change
    /// are emitted again.
    pub fn set_interest(&mut self, interest: SchedulerInterest) {
        let denials = [SchedulerEventKind::AdmissionDenied, SchedulerEventKind::GroupCapped];
        self.tasks.watch_denials(denials.iter().any(|kind| interest.contains(*kind)));
        let (overrides, skips) = (self.tasks.tasks().liveness_overrides(), self.tasks.tasks().advisory_skips());
        self.emitter.set_interest(interest, overrides, skips);
    }

    /// Returns the next event of an enabled kind.
    pub fn poll_event(&mut self) -> Option<SchedulerEvent> {
        self.emitter.pop()
    }

    /// Returns the number of events that were dropped because the host did not poll them.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.emitter.lost()
    }
}

/// The run and its row groups.
impl Pipeline {
    pub(super) fn emit_started(&mut self, now: Instant) {
        let pending = self.row_groups.pending();
        let (rows, row_groups, resumed) = (pending.rows(), pending.total(), pending.done_groups());
        self.emitter.run(now, SchedulerEventPayload::JobStarted { rows, row_groups, resumed });
    }

    /// Emits the cause of a stop. An early shutdown is not emitted if the run is stopping already.
    #[cold]
    pub(super) fn emit_cause(&mut self, reason: &StopReason) {
        let now = self.clock.latest();
        match *reason {
            StopReason::EarlyShutdown { failures, window } if self.lifecycle.is_running() => {
                self.emitter.run(now, SchedulerEventPayload::EarlyShutdown { failures, window });
            }
            StopReason::HookFailed { row_group, hook, .. } => {
                self.emitter.row_group(now, row_group, SchedulerEventPayload::HookFailed { hook });
            }
            _ => {}
        }
    }

    #[cold]
    pub(super) fn emit_finished(&mut self, now: Instant) {
        self.emit_health(now);
        let (rows_out, rows_dropped) = (self.tally.rows_out(), self.tally.rows_dropped());
        let rows_unmade = self.tally.rows_unmade();
        let Some(report) = self.lifecycle.report() else { return };
        let stop = StopKind::from(&report.stop);
        self.emitter.run(now, SchedulerEventPayload::JobCompleted { stop, rows_out, rows_dropped, rows_unmade });
    }

    /// Emits that the run ends once the admitted row groups are finished.
    pub(super) fn emit_wound_down(&mut self) {
        let payload = SchedulerEventPayload::JobStopping { stop: StopKind::WoundDown, aborts: false };
        self.emitter.run(self.clock.latest(), payload);
    }

    fn emit_health(&mut self, now: Instant) {
        let payload = SchedulerEventPayload::HealthSnapshot {
            running: self.workers.len() as u32,
            queued: self.tasks.tasks().queued() as u32,
            delayed: self.row_groups.counts().delayed() as u32,
            row_groups_active: self.row_groups.active().len() as u32,
            row_groups_done: self.row_groups.pending().done_groups() + self.tally.row_groups_saved(),
            rows_out: self.tally.rows_out(),
            rows_dropped: self.tally.rows_dropped(),
            rows_unmade: self.tally.rows_unmade(),
        };
        self.emitter.run(now, payload);
        if self.emitter.is_on() {
            for count in self.retryable.counts() {
                self.emitter.run(now, SchedulerEventPayload::retryable_failures(None, &count));
            }
        }
    }

    #[cold]
    pub(super) fn emit_admitted(&mut self, row_group: u32, rows: u32) {
        let payload = SchedulerEventPayload::RowGroupAdmitted { rows, active: self.row_groups.active().len() as u32 };
        self.emitter.row_group(self.clock.latest(), row_group, payload);
    }

    #[cold]
    pub(super) fn emit_saved(&mut self, now: Instant, row_group: u32, rows: u32, unmade: u32) {
        self.emitter.row_group(now, row_group, SchedulerEventPayload::RowGroupCheckpointed { rows, unmade });
        self.emit_health(now);
    }

    #[cold]
    pub(super) fn emit_discarded(&mut self, row_group: u32, reason: DiscardReason, rows: u32) {
        let now = self.clock.latest();
        self.emitter.row_group(now, row_group, SchedulerEventPayload::RowGroupDiscarded { reason, rows });
        self.emit_health(now);
    }

    #[inline]
    pub(super) fn emit_target(&mut self, from: u32) {
        let to = self.row_groups.target().get();
        if from != to {
            self.emitter.run(self.clock.latest(), SchedulerEventPayload::RowGroupTargetChanged { from, to });
        }
    }

    /// Emits why no further row group is admitted, if the reason has changed.
    #[cold]
    pub(super) fn emit_row_group_block(&mut self, now: Instant) {
        let reason = match self.row_groups.target().block() {
            _ if self.row_groups.pending().is_empty() => RowGroupBlock::NoPendingRowGroups,
            _ if self.row_groups.pending().is_claiming() => RowGroupBlock::Claim,
            Some(reason) => reason,
            None if self.row_groups.target().is_adaptive() => return,
            None => RowGroupBlock::AtCap,
        };
        if self.emitter.block_changed(reason) {
            self.emitter.run(now, SchedulerEventPayload::RowGroupAdmissionBlocked { reason });
        }
    }
}

/// Tasks.
impl Pipeline {
    /// Emits that a task was selected and leased, and its worker requested. These are one step.
    #[cold]
    pub(super) fn emit_spawned(&mut self, key: TaskKey, attempt: u32, worker: WorkerId, lease: LeaseId) {
        let now = self.clock.latest();
        self.emit_denials(now);
        let (overrides, skips) = (self.tasks.tasks().liveness_overrides(), self.tasks.tasks().advisory_skips());
        let (is_override, is_skip) = self.emitter.count_exceptions(overrides, skips);
        if is_skip && let Some(skip) = self.tasks.tasks().last_advisory_skip() {
            let (pressure, preferred) = (skip.pressure, skip.preferred);
            self.emit_task(now, skip.skipped, SchedulerEventPayload::PressureAdvisorySkipped { pressure, preferred });
        }
        let active = self.tasks.tasks().active_leases() as u32;
        let queued = self.tasks.tasks().queued() as u32;
        if is_override {
            self.emitter.task(now, key, attempt, SchedulerEventPayload::LivenessOverride);
        }
        self.emitter.task(now, key, attempt, SchedulerEventPayload::Selected { queued });
        self.emitter.task(now, key, attempt, SchedulerEventPayload::TaskLeaseAcquired { lease, active });
        self.emitter.task(now, key, attempt, SchedulerEventPayload::WorkerSpawned { worker });
        if queued == 0 {
            self.emitter.run(now, SchedulerEventPayload::QueueDrained { discarded: 0 });
        }
    }

    /// Emits the end of a round of dispatching.
    #[cold]
    pub(super) fn emit_round(&mut self) {
        let now = self.clock.latest();
        self.emit_denials(now);
        self.tasks.end_round();
        let queued = self.tasks.tasks().queued() as u32;
        if queued == 0 {
            if self.emitter.queue_changed(QueueState::Empty) {
                self.emitter.run(now, SchedulerEventPayload::QueueEmpty);
            }
        } else if let Some(Denied { task, reason, resource }) = self.tasks.tasks().first_denial()
            && self.emitter.queue_changed(QueueState::Blocked { reason, resource })
        {
            let resource = resource.map(|resource| resource.0);
            self.emit_task(now, task, SchedulerEventPayload::AdmissionBlocked { reason, resource, queued });
        }
    }

    fn emit_denials(&mut self, now: Instant) {
        let mut denied = self.tasks.take_denials();
        for Denied { task, reason, resource } in denied.drain(..) {
            let resource = resource.map(|resource| resource.0);
            let payload = match reason {
                TaskDenialReason::GroupCap => SchedulerEventPayload::GroupCapped { resource },
                _ => SchedulerEventPayload::AdmissionDenied { reason, resource },
            };
            self.emit_task(now, task, payload);
        }
        self.tasks.return_denials(denied);
    }

    /// Emits that a worker yielded or resumed.
    #[inline]
    pub(super) fn emit_worker(&mut self, now: Instant, key: TaskKey, payload: SchedulerEventPayload) {
        if self.emitter.is_on() {
            let attempt = self.attempts_of(key);
            self.emitter.task(now, key, attempt, payload);
        }
    }

    /// Emits how a worker ended, and that its lease was released if it held one.
    #[cold]
    pub(super) fn emit_ended(
        &mut self,
        now: Instant,
        key: TaskKey,
        payload: SchedulerEventPayload,
        lease: Option<LeaseId>,
    ) {
        let active = self.tasks.tasks().active_leases() as u32;
        let attempt = self.attempts_of(key);
        self.emitter.task(now, key, attempt, payload);
        if let Some(lease) = lease {
            self.emitter.task(now, key, attempt, SchedulerEventPayload::TaskLeaseReleased { lease, active });
        }
    }

    /// Emits that rows were dropped because of a task or a hook.
    #[cold]
    pub(super) fn emit_dropped(&mut self, key: TaskKey, reason: DropReason, rows: u32, from_queue: bool) {
        let now = self.clock.latest();
        if rows > 0 {
            let payload = SchedulerEventPayload::NonRetryableDropped { reason, rows };
            // No task caused the drop if a hook left the rows out.
            if reason == DropReason::PreBatch {
                self.emitter.row(now, key.row_group, key.row, payload);
            } else {
                let attempt = self.attempts_of(key);
                self.emitter.task(now, key, attempt, payload);
            }
        }
        if from_queue && self.tasks.tasks().queued() == 0 {
            self.emitter.run(now, SchedulerEventPayload::QueueDrained { discarded: 0 });
        }
    }

    fn emit_task(&mut self, now: Instant, task: u64, payload: SchedulerEventPayload) {
        let key = TaskKey::from_bits(task);
        let attempt = self.attempts_of(key);
        self.emitter.task(now, key, attempt, payload);
    }

    fn attempts_of(&self, key: TaskKey) -> u32 {
        self.row_groups.attempts(&self.plan, key)
    }

    /// Emits that a task will be retried, or that it is cancelled because the run stops.
    #[cold]
    pub(super) fn emit_retry_deferred(
        &mut self,
        key: TaskKey,
        entry: TaskEntry,
        decision: RetryDecision,
        failure: Option<RetryKind>,
    ) {
        let payload = match decision {
            RetryDecision::Delay { until } if self.lifecycle.is_running() => {
                SchedulerEventPayload::RetryDeferred { failure, until, round: None }
            }
            RetryDecision::Defer { not_before: until } if self.lifecycle.is_running() => {
                SchedulerEventPayload::RetryDeferred { failure, until, round: Some(u32::from(entry.rounds) + 1) }
            }
            _ => SchedulerEventPayload::Cancelled { queued: false },
        };
        self.emitter.task(self.clock.latest(), key, entry.attempts, payload);
    }
}
