//! Emits the events of a run, each with its correlation.

use alloc::vec::Vec;
use core::hash::Hasher;

use super::{Correlation, EventLog, SchedulerEvent, SchedulerEventPayload, SchedulerInterest};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan, Strategy};
use crate::pipeline::row_group::{RowGroupBlock, TaskEntry, TaskState};
use crate::portable_hasher::PortableHasher;
use crate::task::{GroupKind, TaskDenialReason, TaskGroup, TaskResourceId};
use crate::time::Instant;

/// Emits the events of a run.
#[derive(Clone, Debug)]
pub(crate) struct EventEmitter {
    run: u32,
    log: EventLog,
    /// By column.
    columns: Vec<Label>,
    last: LastEmitted,
}

/// The part of a correlation that is equal for all tasks of a column.
#[derive(Clone, Copy, Debug)]
struct Label {
    strategy: Strategy,
    group_kind: GroupKind,
    group: u64,
}

/// The last emitted values of events that are emitted only on a change.
#[derive(Clone, Copy, Debug, Default)]
struct LastEmitted {
    queue: Option<QueueState>,
    block: Option<RowGroupBlock>,
    overrides: u64,
    skips: u64,
}

/// The state of the queue at the end of a round of dispatching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    Empty,
    Blocked { reason: TaskDenialReason, resource: Option<TaskResourceId> },
}

impl EventEmitter {
    pub(crate) fn new(run: u32, plan: &Plan) -> Self {
        let columns = plan.columns().iter().map(|column| Label {
            strategy: column.strategy,
            group_kind: column.group.kind,
            group: hash_of(&column.group),
        });
        let columns = columns.collect();
        Self { run, log: EventLog::default(), columns, last: LastEmitted::default() }
    }

    /// Returns whether any kind of event is enabled. If none is, this branch is the only cost of an event.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.log.is_on()
    }

    /// Enables these kinds of events and disables all others. Events that are emitted only on a change are
    /// emitted again. `overrides` and `skips` are the current counts of liveness overrides and advisory
    /// skips.
    pub(crate) fn set_interest(&mut self, interest: SchedulerInterest, overrides: u64, skips: u64) {
        self.last = LastEmitted { overrides, skips, ..LastEmitted::default() };
        self.log.set_interest(interest);
    }

    pub(crate) fn pop(&mut self) -> Option<SchedulerEvent> {
        self.log.pop()
    }

    /// Returns the number of events that were lost because the host did not poll them.
    pub(crate) fn lost(&self) -> u64 {
        self.log.dropped()
    }

    /// Returns whether the counts of liveness overrides and of advisory skips have changed since the last
    /// call.
    pub(crate) fn count_exceptions(&mut self, overrides: u64, skips: u64) -> (bool, bool) {
        let before = self.last;
        self.last = LastEmitted { overrides, skips, ..before };
        (before.overrides != overrides, before.skips != skips)
    }

    /// Returns whether the state of the queue differs from the last round.
    pub(crate) fn queue_changed(&mut self, state: QueueState) -> bool {
        self.last.queue.replace(state) != Some(state)
    }

    /// Returns whether the reason for which no further row group is admitted has changed.
    pub(crate) fn block_changed(&mut self, reason: RowGroupBlock) -> bool {
        self.last.block.replace(reason) != Some(reason)
    }

    /// Emits an event about the whole run.
    #[inline]
    pub(crate) fn run(&mut self, at: Instant, payload: SchedulerEventPayload) {
        if self.is_on() {
            self.push(at, Correlation { run: self.run, ..Correlation::default() }, payload);
        }
    }

    /// Emits an event about a row group.
    #[inline]
    pub(crate) fn row_group(&mut self, at: Instant, row_group: u32, payload: SchedulerEventPayload) {
        self.row(at, row_group, None, payload);
    }

    /// Emits an event about a row or a row group that no task caused.
    #[inline]
    pub(crate) fn row(&mut self, at: Instant, row_group: u32, row: Option<u32>, payload: SchedulerEventPayload) {
        if self.is_on() {
            let row_group = Some(row_group);
            self.push(at, Correlation { run: self.run, row_group, row, ..Correlation::default() }, payload);
        }
    }

    /// Emits an event about the fairness group of a column.
    #[inline]
    pub(crate) fn group(&mut self, at: Instant, column: ColumnId, payload: SchedulerEventPayload) {
        if self.is_on() {
            let Label { group_kind, group, .. } = self.columns[column.index()];
            let (group_kind, group) = (Some(group_kind), Some(group));
            self.push(at, Correlation { run: self.run, group_kind, group, ..Correlation::default() }, payload);
        }
    }

    /// Emits that a task is ready: it is about to be queued, or waits for its turn.
    #[cold]
    pub(crate) fn ready(&mut self, at: Instant, key: TaskKey, entry: TaskEntry) {
        match entry.state {
            TaskState::Waiting => self.task(at, key, entry.attempts, SchedulerEventPayload::DependencyReady),
            TaskState::Deferred | TaskState::Delayed => {
                self.task(at, key, entry.attempts, SchedulerEventPayload::SalvageRedispatched);
            }
            _ => {}
        }
    }

    /// Emits that a task was dropped with its row, unless a worker has it.
    #[inline]
    pub(crate) fn dropped(&mut self, at: Instant, key: TaskKey, entry: TaskEntry) {
        if self.is_on() && matches!(entry.state, TaskState::Queued | TaskState::Deferred | TaskState::Delayed) {
            let queued = entry.state == TaskState::Queued;
            self.task(at, key, entry.attempts, SchedulerEventPayload::Cancelled { queued });
        }
    }

    /// Emits an event about one attempt of a task.
    #[inline]
    pub(crate) fn task(&mut self, at: Instant, key: TaskKey, attempt: u32, payload: SchedulerEventPayload) {
        if self.is_on() {
            self.push_task(at, key, attempt, payload);
        }
    }

    #[cold]
    fn push_task(&mut self, at: Instant, key: TaskKey, attempt: u32, payload: SchedulerEventPayload) {
        self.push(at, self.correlation(key, attempt), payload);
    }

    /// Returns the correlation of one attempt of a task.
    pub(crate) fn correlation(&self, key: TaskKey, attempt: u32) -> Correlation {
        let Label { strategy, group_kind, group } = self.columns[key.column.index()];
        Correlation {
            run: self.run,
            row_group: Some(key.row_group),
            column: Some(key.column),
            row: key.row,
            strategy: Some(strategy),
            group_kind: Some(group_kind),
            group: Some(group),
            task: Some(key.to_bits()),
            attempt: Some(attempt),
        }
    }

    #[cold]
    fn push(&mut self, at: Instant, correlation: Correlation, payload: SchedulerEventPayload) {
        self.log.record(payload.kind(), |sequence| SchedulerEvent { sequence, at, correlation, payload });
    }
}

/// Returns a hash of the group that is equal on every target and in every process.
fn hash_of(group: &TaskGroup) -> u64 {
    let mut hasher = PortableHasher::default();
    hasher.write_u32(group.kind as u32);
    for part in &group.identity {
        hasher.write(part.as_bytes());
        hasher.write_u64(part.len() as u64);
    }
    hasher.finish()
}
