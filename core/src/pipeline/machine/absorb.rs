//! Processes the end of a worker: the consequences for its task, its row and its row group.

use super::Pipeline;
use crate::lease::ReleaseResult;
use crate::pipeline::dispatch::EndedWorker;
use crate::pipeline::event::SchedulerEventPayload;
use crate::pipeline::lifecycle::{RunState, StopMode};
use crate::pipeline::outcome::{
    DropReason, FatalError, PipelineEffect, ProviderDegraded, RetryKind, TaskOutcome, WorkerId,
};
use crate::pipeline::plan::ColumnId;
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::StopReason;
use crate::pipeline::retry::RetryDecision;
use crate::pipeline::row_group::TaskState;
use crate::time::Instant;

/// The capacity that the scratch list of ready tasks keeps.
const SCRATCH: usize = 256;

/// Commands.
impl Pipeline {
    /// Reports that a worker ended. Its lease is released.
    ///
    /// A second call for the same worker, or a call for a worker that never started, has no effect. It
    /// returns [`ReleaseResult::Duplicate`] or [`ReleaseResult::UnknownLease`].
    pub fn task_finished(&mut self, now: Instant, worker: WorkerId, outcome: TaskOutcome) -> ReleaseResult {
        let now = self.clock.observe(now);
        let payload = SchedulerEventPayload::TaskCompleted { worker, outcome: Some(outcome) };
        let ended = match self.end_worker(now, worker, payload) {
            Ok(ended) => ended,
            Err(result) => return result,
        };
        self.absorb(now, &ended, outcome);
        self.settle(now, ended.key.row_group);
        self.pump(now);
        ended.result
    }

    /// Reports that a worker met a bug in the host or in user code, such as a panic.
    ///
    /// The lease of the worker is released, and the run stops with this cause in its report. The return value
    /// is as for [`Pipeline::task_finished`].
    pub fn task_panicked(&mut self, now: Instant, worker: WorkerId, error: FatalError) -> ReleaseResult {
        let now = self.clock.observe(now);
        let payload = SchedulerEventPayload::TaskCompleted { worker, outcome: None };
        let ended = match self.end_worker(now, worker, payload) {
            Ok(ended) => ended,
            Err(result) => return result,
        };
        self.absorb_panic(now, ended.key, error);
        self.settle(now, ended.key.row_group);
        self.pump(now);
        ended.result
    }

    /// Reports that a worker could not be started. Call it instead of [`Pipeline::task_finished`] for an
    /// [`PipelineEffect::Spawn`].
    ///
    /// A failed spawn is rolled back: its lease is released, and its attempt is not counted. The task uses
    /// one retry and is tried again once its row group has no running or queued task. It is dropped as
    /// [`WorkerLost`](DropReason::WorkerLost) when no retry is left, so the run ends even if the host can
    /// start no worker at all. A second report for the same worker, or a report for a worker that was never
    /// requested, has no effect. It returns [`ReleaseResult::Duplicate`] or [`ReleaseResult::UnknownLease`].
    pub fn spawn_failed(&mut self, now: Instant, worker: WorkerId) -> ReleaseResult {
        let now = self.clock.observe(now);
        let ended = match self.end_worker(now, worker, SchedulerEventPayload::WorkerSpawnFailed { worker }) {
            Ok(ended) => ended,
            Err(result) => return result,
        };
        self.absorb_failed_spawn(now, ended.key);
        self.settle(now, ended.key.row_group);
        self.pump(now);
        ended.result
    }
}

/// Processing.
impl Pipeline {
    /// Removes a worker and releases its lease. Emits a diagnostic event if there is no such worker.
    fn end_worker(
        &mut self,
        now: Instant,
        worker: WorkerId,
        payload: SchedulerEventPayload,
    ) -> Result<EndedWorker, ReleaseResult> {
        match self.workers.end(worker, &mut self.tasks) {
            Ok(ended) => {
                if self.emitter.is_on() {
                    self.emit_ended(now, ended.key, payload, ended.lease);
                }
                Ok(ended)
            }
            Err(result) => {
                self.emitter.run(now, SchedulerEventPayload::ReleaseDiagnostic { worker, result });
                Err(result)
            }
        }
    }

    fn absorb(&mut self, now: Instant, ended: &EndedWorker, outcome: TaskOutcome) {
        let key = ended.key;
        let is_patience_over = self.judge_provider(now, ended, outcome);
        let Some(entry) = self.row_groups.worker_ended(&self.plan, key) else {
            debug_assert!(false, "a row group stays while it has workers");
            return;
        };
        let counts = self.tally.tasks_mut(key.column);
        if entry.state == TaskState::Dropped {
            counts.ignored += 1;
            return;
        }
        match outcome {
            TaskOutcome::Success => {
                counts.succeeded += 1;
                self.row_groups.complete(&self.plan, key, false, &mut self.ready);
                self.record_final(false);
            }
            TaskOutcome::Skipped => {
                counts.skipped += 1;
                self.row_groups.complete(&self.plan, key, true, &mut self.ready);
            }
            TaskOutcome::Failed(kind) => {
                counts.failed += 1;
                self.drop_rows(key, DropReason::Failed(kind));
                self.record_final(true);
            }
            TaskOutcome::Unavailable => {
                counts.retryable += 1;
                self.park(key);
            }
            TaskOutcome::Retryable { .. } if is_patience_over => {
                counts.retryable += 1;
                self.park(key);
            }
            TaskOutcome::Retryable { kind, retry_after, .. } => {
                counts.retryable += 1;
                let decision = self.retries.policy().after_failure(now, key, kind, retry_after, entry.rounds);
                self.keep_or_drop(key, decision, Some(kind));
            }
            TaskOutcome::Cancelled => {
                counts.cancelled += 1;
                let decision = self.after_lost_worker(now, entry.rounds);
                self.keep_or_drop(key, decision, None);
            }
        }
        self.enqueue_ready(key.row_group);
    }

    fn absorb_panic(&mut self, now: Instant, key: TaskKey, FatalError(cause): FatalError) {
        let (column, row_group) = (key.column, key.row_group);
        if self.row_groups.worker_ended(&self.plan, key).is_none() {
            debug_assert!(false, "a row group stays while it has workers");
            return;
        }
        self.tally.tasks_mut(column).fatal += 1;
        self.stop(StopReason::Fatal { column, row_group, cause }, StopMode::Abort);
        // The task is not done, even if its row was dropped.
        self.keep_or_drop(key, RetryDecision::Defer { not_before: now }, None);
    }

    fn absorb_failed_spawn(&mut self, now: Instant, key: TaskKey) {
        self.tally.tasks_mut(key.column).spawned -= 1;
        if let Some(entry) = self.row_groups.worker_ended(&self.plan, key) {
            self.row_groups.undo_attempt(&self.plan, key);
            if entry.state != TaskState::Dropped {
                let decision = self.after_lost_worker(now, entry.rounds);
                self.keep_or_drop(key, decision, None);
            }
        }
        self.enqueue_ready(key.row_group);
    }

    fn after_lost_worker(&self, now: Instant, rounds: u8) -> RetryDecision {
        match self.lifecycle.state() {
            // The stop aborted the worker, so no retry is used.
            RunState::Stopping(_) => RetryDecision::Defer { not_before: now },
            _ => self.retries.policy().after_lost_worker(now, rounds),
        }
    }

    /// Leaves a task for a resumed run. The run still finishes the work that does not need the provider, but
    /// admits no further row group, because none could be completed.
    fn park(&mut self, key: TaskKey) {
        if !self.lifecycle.is_running() {
            return self.row_groups.wait(&self.plan, key);
        }
        self.row_groups.park(&self.plan, key);
        self.row_groups.close();
        let group = &self.plan.columns()[key.column.index()].group.identity;
        self.unavailable.get_or_insert_with(|| group.clone());
    }

    /// Records the outcome for the call target of a column, and warns if the target is degraded. A batch is
    /// one response: that of its lead. Returns whether the patience with the target is over.
    fn judge_provider(&mut self, now: Instant, ended: &EndedWorker, outcome: TaskOutcome) -> bool {
        let column = ended.key.column;
        let target = self.targets.of(column);
        let is_response = ended.lease.is_some();
        if is_response && let Some((retryable, window)) = self.retryable.record(now, target, outcome) {
            self.warn_degraded(now, column, retryable, window);
        }
        self.health.is_patience_over(now, target, outcome)
    }

    /// Warns that the call target of a column is degraded.
    #[cold]
    fn warn_degraded(&mut self, now: Instant, column: ColumnId, retryable: u32, window: u32) {
        let target_index = self.targets.of(column);
        let target = self.targets.get(target_index);
        let failures = self.retryable.counts_of(target_index);
        let (resource_index, resource) = target.resource.clone().unzip();
        let payload = SchedulerEventPayload::ProviderDegraded { resource: resource_index, retryable, window };
        self.emitter.group(now, column, payload);
        for count in &failures {
            self.emitter.group(now, column, SchedulerEventPayload::retryable_failures(resource_index, count));
        }
        let group = target.group.clone();
        self.effects.push_back(PipelineEffect::Warn(ProviderDegraded { resource, group, retryable, window, failures }));
    }

    fn record_final(&mut self, is_failure: bool) {
        if let Some((failures, window)) = self.health.record_final(is_failure) {
            self.stop(StopReason::EarlyShutdown { failures, window }, StopMode::DrainPartial);
        }
    }

    /// Applies a retry decision: keeps the task for a retry, or drops its row. `failure` is `None` if the
    /// worker was lost.
    fn keep_or_drop(&mut self, key: TaskKey, decision: RetryDecision, failure: Option<RetryKind>) {
        if let RetryDecision::Drop(reason) = decision {
            self.drop_rows(key, reason);
            // A lost worker is not a failure of a provider.
            if failure.is_some() {
                self.record_final(true);
            }
            return;
        }
        let Some(entry) = self.row_groups.task(&self.plan, key) else { return };
        if entry.state == TaskState::Dropped {
            return;
        }
        let is_running = self.lifecycle.is_running();
        if self.emitter.is_on() {
            self.emit_retry_deferred(key, entry, decision, failure);
        }
        match decision {
            // A stopping run retries nothing. The task only has to count as not done.
            _ if !is_running => self.row_groups.wait(&self.plan, key),
            RetryDecision::Delay { until } => {
                self.row_groups.delay(&self.plan, key);
                self.retry_at(until, key);
            }
            RetryDecision::Defer { not_before } => self.row_groups.defer(&self.plan, key, not_before),
            RetryDecision::Drop(_) => {}
        }
    }

    /// Sets the instant at which a delayed task is queued again.
    pub(super) fn retry_at(&mut self, until: Instant, key: TaskKey) {
        let Self { retries, row_groups, plan, .. } = self;
        retries.delay(until, key, |task| row_groups.is_delayed(plan, task));
    }

    /// Drops the row of a cell, or the rows of a whole group, and discards their tasks that wait.
    pub(super) fn drop_rows(&mut self, key: TaskKey, reason: DropReason) {
        let Self { plan, row_groups, tasks, emitter, ready, .. } = self;
        let now = self.clock.latest();
        let mut is_any_queued = false;
        // A stopping run has no queued, deferred or delayed task.
        let rows = row_groups.drop_rows(plan, key, reason, ready, |dropped, entry| {
            emitter.dropped(now, dropped, entry);
            if entry.state == TaskState::Queued {
                tasks.discard(dropped);
                is_any_queued = true;
            }
        });
        self.tally.drop_rows(key.column, reason, u64::from(rows));
        if self.emitter.is_on() {
            self.emit_dropped(key, reason, rows, is_any_queued);
        }
    }

    /// Queues or skips the tasks of a row group that became ready. A stopping run queues none, but still
    /// skips tasks: this may complete a row.
    pub(super) fn enqueue_ready(&mut self, row_group: u32) {
        let (now, is_running) = (self.clock.latest(), self.lifecycle.is_running());
        let mut at = 0;
        // The list grows during the loop, by at most one task for each edge of the plan.
        while let Some((column, row)) = self.ready.get(at).copied() {
            at += 1;
            let key = TaskKey { row_group, column, row };
            let Some(entry) = self.row_groups.task(&self.plan, key) else { break };
            if self.emitter.is_on() && is_running {
                self.emitter.ready(now, key, entry);
            }
            match entry.state {
                TaskState::Done | TaskState::Dropped => {}
                TaskState::Skipping => {
                    self.tally.tasks_mut(column).skipped_with_upstream += 1;
                    self.row_groups.complete(&self.plan, key, true, &mut self.ready);
                }
                _ if !is_running => {}
                // `advance_cursors` queues it when it has the turn.
                _ if self.plan.is_ordered(column) => self.row_groups.wait(&self.plan, key),
                _ if self.plan.batch_rank(column).is_some() => self.row_groups.gather(&self.plan, key),
                _ => self.queue_task(now, key),
            }
        }
        self.ready.clear();
        self.queue_batches(row_group, false);
        // A large row group fills the list once, when it is admitted. Its allocation is not kept for the rest
        // of the run.
        self.ready.shrink_to(SCRATCH);
    }

    /// Queues the batches of a row group that are due. If `is_last_work` is true, the row group has no
    /// running or queued task. O(batched columns) plus one step for each batch.
    pub(super) fn queue_batches(&mut self, row_group: u32, is_last_work: bool) {
        if !self.lifecycle.is_running() {
            return;
        }
        for at in 0..self.plan.batched_columns().len() {
            let column = self.plan.batched_columns()[at];
            while let Some(lead) = self.row_groups.next_lead(&self.plan, row_group, column, is_last_work) {
                self.queue_task(self.clock.latest(), lead);
            }
        }
    }

    pub(super) fn queue_task(&mut self, now: Instant, key: TaskKey) {
        let attempts = self.row_groups.queue(&self.plan, key);
        let queued = self.tasks.enqueue(key);
        self.emitter.task(now, key, attempts, SchedulerEventPayload::ReadyEnqueued { queued });
    }
}
