//! The last step of every command: queues due tasks, admits row groups, and dispatches tasks.

use alloc::vec::Vec;

use super::Pipeline;
use crate::pipeline::event::SchedulerEventPayload;
use crate::pipeline::lifecycle::StopMode;
use crate::pipeline::outcome::{PipelineEffect, Task, TaskBatch};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::StopReason;
use crate::pipeline::row_group::{Sample, StartedTask};
use crate::task::Dispatched;
use crate::time::Instant;

impl Pipeline {
    /// Queues due tasks, admits row groups and dispatches tasks, unless yielded workers must resume first.
    pub(super) fn pump(&mut self, now: Instant) {
        if !self.workers.defer_dispatch(&self.tasks) {
            self.pump_now(now);
        }
    }

    /// Pumps even if yielded workers wait: see [`Pipeline::pump`].
    pub(super) fn pump_now(&mut self, now: Instant) {
        if self.lifecycle.is_running() {
            self.queue_due(now);
            self.admit();
            self.dispatch();
            if self.row_groups.target().is_adaptive() && self.tick() {
                self.admit();
                self.dispatch();
            }
            if self.emitter.is_on() {
                self.emit_row_group_block(now);
            }
            let Self { retries, row_groups, plan, .. } = self;
            retries.trim(|task| row_groups.is_delayed(plan, task));
        }
        if let Some(cause) = self.tasks.take_policy_panic() {
            self.stop(StopReason::PolicyPanicked { cause }, StopMode::Abort);
        }
        self.conclude(now);
    }

    fn queue_due(&mut self, now: Instant) {
        let mut row_groups_due = Vec::new();
        loop {
            let Self { retries, row_groups, plan, .. } = self;
            let Some(key) = retries.pop_due(now, |task| row_groups.is_delayed(plan, task)) else { break };
            self.ready.push(key.local());
            self.enqueue_ready(key.row_group);
            if row_groups_due.last() != Some(&key.row_group) {
                row_groups_due.push(key.row_group);
            }
        }
        // A due cell of a batched column is only gathered. If its row group has no other work, its batch has
        // nothing to wait for. This is checked after all due cells were gathered.
        for row_group in row_groups_due {
            self.settle(now, row_group);
        }
    }

    fn admit(&mut self) {
        while let Some((row_group, rows)) = self.row_groups.admit_next(&self.plan, &mut self.ready) {
            self.tally.row_group_admitted(rows);
            if self.emitter.is_on() {
                self.emit_admitted(row_group, rows);
            }
            self.enqueue_ready(row_group);
            self.begin_pre_batch(row_group);
        }
        if self.row_groups.request_claim() {
            self.effects.push_back(PipelineEffect::ClaimRowGroup);
        }
    }

    /// Runs one tick of the control loop for row groups. Returns whether its target grew.
    fn tick(&mut self) -> bool {
        let Self { row_groups, tasks, deferral, .. } = self;
        let sample = Sample {
            active: row_groups.active().len() as u32,
            rows: row_groups.rows_in_work(),
            next_rows: row_groups.pending().next_rows().map(u64::from),
            is_deferred: deferral.blocks_row_groups(row_groups.counts()),
            queued: tasks.tasks().queued(),
            worker_cap: tasks.worker_cap(),
            models: tasks.model_loads(),
        };
        let from = row_groups.target().get();
        let grew = row_groups.tick(&sample);
        self.emit_target(from);
        grew
    }

    fn dispatch(&mut self) {
        self.advance_cursors();
        while let Some(Dispatched { task, lease }) = self.tasks.dispatch() {
            let key = TaskKey::from_bits(task);
            let Some(StartedTask { span, attempt }) = self.row_groups.start(&self.plan, key) else {
                debug_assert!(false, "a row group stays while it has queued tasks");
                let _ = self.tasks.release(lease);
                self.emitter.run(self.clock.latest(), SchedulerEventPayload::StaleSelection);
                continue;
            };
            self.tally.tasks_mut(key.column).spawned += 1;
            let id = lease.id();
            let worker = self.workers.start(key, Some(lease));
            if self.emitter.is_on() {
                self.emit_spawned(key, attempt, worker, id);
            }
            let TaskKey { row_group, column, row } = key;
            let (first_row, rows) = (span.first_row, span.rows);
            let token = self.workers.token(worker, column, &self.tasks);
            let task = Task { worker, column, row_group, first_row, rows, row, attempt, token, batch: None };
            match (self.plan.batch_rank(column), row) {
                (Some(_), Some(lead)) => self.spawn_batch(task, key, lead),
                _ => self.effects.push_back(PipelineEffect::Spawn(task)),
            }
        }
        if self.emitter.is_on() {
            self.emit_round();
        }
    }

    /// Spawns the task of the row `lead`, and the gathered tasks of its column that start together with it.
    /// Their workers hold no lease.
    fn spawn_batch(&mut self, task: Task, key: TaskKey, lead: u32) {
        let first = self.effects.len();
        self.effects.push_back(PipelineEffect::Spawn(task));
        let mut size = 1;
        while let Some((key, StartedTask { attempt, .. })) = self.row_groups.start_follower(&self.plan, key, size) {
            size += 1;
            self.tally.tasks_mut(key.column).spawned += 1;
            let worker = self.workers.start(key, None);
            self.emitter.task(self.clock.latest(), key, attempt, SchedulerEventPayload::WorkerSpawned { worker });
            let follower = Task { worker, row: key.row, attempt, token: None, ..task };
            self.effects.push_back(PipelineEffect::Spawn(follower));
        }
        if size > 1 {
            for effect in self.effects.range_mut(first..) {
                if let PipelineEffect::Spawn(task) = effect {
                    task.batch = Some(TaskBatch { lead, size });
                }
            }
        }
    }

    /// Queues the task that has the turn in each ordered column, if it is ready. O(ordered columns) plus one
    /// step for each task that is passed.
    pub(super) fn advance_cursors(&mut self) {
        if !self.lifecycle.is_running() {
            return;
        }
        for at in 0..self.column_cursors.len() {
            let tasks = self.tally.tasks(self.column_cursors.column(at));
            if tasks.spawned > tasks.ended() {
                continue;
            }
            if let Some(key) = self.column_cursors.next_ready(at, &self.plan, &self.row_groups) {
                self.queue_task(self.clock.latest(), key);
            }
        }
    }
}
