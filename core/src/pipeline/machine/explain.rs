//! Why not now: what keeps a task, and why slots of the task stage stand empty, read from the same figures that decide.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::outcome::WorkerId;
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, MAX_COLUMNS};
use crate::pipeline::row_group::frontier::{Frontier, Place, Stage};
use crate::pipeline::row_group::target::RowGroupBlock;
use crate::pipeline::row_group::{MAX_ROW_GROUP_SIZE, MAX_ROW_GROUPS, Phase, RowGroup};
use crate::task::Denial;
use crate::time::Instant;

/// The one thing that keeps a task from running.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskWait {
    /// The run has not started.
    NotStarted,
    /// The run is stopping, or over.
    Stopping,
    /// Its row group is not admitted.
    RowGroup {
        /// Why no further one is.
        reason: RowGroupBlock,
    },
    /// Its row group's pre-batch hook is to be answered first.
    PreBatchHook,
    /// An upstream is not complete.
    Upstream {
        /// The first such column.
        column: String,
        /// The first row that lacks it; `None` for a column of whole row groups.
        row: Option<u32>,
    },
    /// Its column keeps an order, and another task has the turn.
    Turn {
        /// That task's row group.
        row_group: u32,
        /// And its row.
        row: Option<u32>,
    },
    /// It failed for now, and waits for its row group's next salvage round.
    Round,
    /// It failed for now, and is tried again at an instant.
    Pause {
        /// Not before this.
        until: Instant,
    },
    /// It is queued, and may not start: see [`Denial`] for the resource, the share or the debt that binds.
    Denied {
        /// By what.
        denial: Denial,
    },
    /// It is queued, and another task of its group is before it.
    Behind {
        /// That task, as in [events](crate::pipeline::event::Correlation::task).
        task: u64,
    },
    /// It is queued and could start: others are first.
    Queue,
    /// It runs, and holds nothing while it waits for a call.
    Yielded {
        /// Its worker.
        worker: WorkerId,
    },
}

impl fmt::Display for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the run has not started"),
            Self::Stopping => f.write_str("the run is stopping"),
            Self::RowGroup { reason } => write!(f, "its row group is not admitted: {reason:?}"),
            Self::PreBatchHook => f.write_str("the pre-batch hook is to be answered first"),
            Self::Upstream { column, row: None } => write!(f, "its upstream `{column}` is not complete"),
            Self::Upstream { column, row: Some(row) } => {
                write!(f, "its upstream `{column}` is not complete in row {row}")
            }
            Self::Turn { row_group, row: None } => write!(f, "it is the turn of row group {row_group}"),
            Self::Turn { row_group, row: Some(row) } => {
                write!(f, "it is the turn of row {row} of row group {row_group}")
            }
            Self::Round => f.write_str("it waits for the next salvage round"),
            Self::Pause { until } => write!(f, "it failed, and is paused until {until}"),
            Self::Denied { denial } => denial.fmt(f),
            Self::Behind { task } => write!(f, "task {task:016x} of its group is before it"),
            Self::Queue => f.write_str("others are first"),
            Self::Yielded { worker } => write!(f, "worker {:x} has yielded and waits for a call", worker.to_bits()),
        }
    }
}

/// The one thing that keeps slots of a resource of the task stage empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SlotWait {
    /// The run has not started, is stopping, or has nothing left to do.
    NotRunning,
    /// A queued task wants the resource, and may not start.
    Denied {
        /// By what.
        denial: Denial,
    },
    /// A queued task wants the resource and could start: others are first.
    Queue,
    /// No worker runs: a row group is with its hook or its checkpoint.
    HandedOut {
        /// The first such row group.
        row_group: u32,
    },
    /// No worker runs: failed tasks are paused.
    Pause {
        /// Until then.
        until: Instant,
    },
    /// No queued task wants it, and no further row group is admitted.
    RowGroups {
        /// Why.
        reason: RowGroupBlock,
    },
    /// The next tasks wait for running ones.
    Upstreams {
        /// How many run.
        running: usize,
    },
}

impl fmt::Display for SlotWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning => f.write_str("the run has nothing to start"),
            Self::Denied { denial } => write!(f, "the next task may not start: {denial}"),
            Self::Queue => f.write_str("others are first"),
            Self::HandedOut { row_group } => write!(f, "row group {row_group} is with its hook or its checkpoint"),
            Self::Pause { until } => write!(f, "failed tasks are paused until {until}"),
            Self::RowGroups { reason } => write!(f, "no further row group is admitted: {reason:?}"),
            Self::Upstreams { running } => write!(f, "the next tasks wait for {running} that run"),
        }
    }
}

/// Why not now.
impl Pipeline {
    /// The number of a task in [events](crate::pipeline::event::Correlation::task) and for [`Pipeline::why_waiting`]; `None` for a row
    /// group, a column or a row that no run can have.
    #[must_use]
    pub fn task_number(column: ColumnId, row_group: u32, row: Option<u32>) -> Option<u64> {
        let is_known = row_group < MAX_ROW_GROUPS
            && column.index() < MAX_COLUMNS
            && row.is_none_or(|row| row < MAX_ROW_GROUP_SIZE);
        is_known.then(|| TaskKey { row_group, column, row }.to_bits())
    }

    /// What keeps a task, named as in [events](crate::pipeline::event::Correlation::task); `None` for one that runs, is made or dropped, or
    /// that the run does not have. Changes nothing. O(row group's rows, queued or paused tasks, workers), whichever applies.
    #[must_use]
    pub fn why_waiting(&self, task: u64) -> Option<TaskWait> {
        let key = TaskKey::from_bits(task);
        let column = self.plan.column(key.column)?;
        if key.row.is_some() != (column.strategy == crate::pipeline::Strategy::Cell) {
            return None;
        }
        let Some(group) = self.groups.get(key.row_group) else {
            let reason = self.row_group_block();
            return self.pending.has(key.row_group).then(|| self.unless_running(TaskWait::RowGroup { reason }));
        };
        if key.row.is_some_and(|row| row >= group.span.rows) {
            return None;
        }
        let place = (key.column, key.row);
        match group.frontier.stage(&self.plan, place) {
            Stage::Done | Stage::Dropped => None,
            Stage::Running => {
                let mut workers = self
                    .workers
                    .iter()
                    .filter(|(_, worker)| worker.key == key && self.dispatcher.is_suspended(&worker.lease));
                workers.next().map(|(key, _)| TaskWait::Yielded { worker: WorkerId(key) })
            }
            Stage::Queued => Some(self.why_queued(key, task)),
            Stage::Deferred | Stage::Delayed | Stage::Waiting | Stage::Skipping => self.why_unqueued(group, key),
        }
    }

    /// What keeps the tasks of a column that have no worker and are in work: each reason with how many tasks it keeps, those that
    /// are queued first. Of tasks that wait for the same, the first is told. Changes nothing. O(rows in work).
    #[must_use]
    pub fn why_column(&self, column: ColumnId) -> Vec<(TaskWait, u32)> {
        let mut waits: Vec<(TaskWait, u32)> = Vec::new();
        let Some(route) = self.routes.get(column.index()) else { return waits };
        let queued = self.tally.queued[column.index()];
        if queued > 0 {
            let judged = self.dispatcher.evaluate(route.group, route.demand);
            waits.push((judged.map_or_else(|denial| TaskWait::Denied { denial }, |()| TaskWait::Queue), queued));
        }
        for group in self.groups.iter() {
            let rows = if self.plan.is_cell(column) { group.span.rows } else { 1 };
            for row in 0..rows {
                let row = self.plan.is_cell(column).then_some(row);
                let key = TaskKey { row_group: group.span.row_group, column, row };
                let Some(wait) = self.why_unqueued(group, key) else { continue };
                match waits.iter_mut().find(|(known, _)| is_alike(known, &wait)) {
                    Some((_, count)) => *count += 1,
                    None => waits.push((wait, 1)),
                }
            }
        }
        waits
    }

    /// What keeps a task that is neither queued, nor with a worker, nor done for.
    fn why_unqueued(&self, group: &RowGroup, key: TaskKey) -> Option<TaskWait> {
        let wait = match group.frontier.stage(&self.plan, (key.column, key.row)) {
            Stage::Deferred => TaskWait::Round,
            Stage::Delayed => {
                let due = self.delays.due_of(key.to_bits());
                TaskWait::Pause { until: due.unwrap_or(self.clock.latest()) }
            }
            Stage::Waiting | Stage::Skipping => self.why_not_ready(group, key),
            Stage::Done | Stage::Dropped | Stage::Running | Stage::Queued => return None,
        };
        Some(self.unless_running(wait))
    }

    /// What keeps the first queued task of a column's fairness group, if one is. O(resources of the demand).
    #[must_use]
    pub fn why_group(&self, column: ColumnId) -> Option<TaskWait> {
        let route = self.routes.get(column.index())?;
        let judged = self.dispatcher.explain_group(route.group)?;
        Some(judged.map_or_else(|denial| TaskWait::Denied { denial }, |()| TaskWait::Queue))
    }

    /// Why no further row group is begun, how many are not, and how many of those in work are with a hook or a checkpoint.
    #[must_use]
    pub fn why_row_groups(&self) -> (RowGroupBlock, u32, u32) {
        let waiting = self.pending.total() - self.pending.done_groups() - self.tally.row_groups_saved;
        let handed_out = |phase| matches!(phase, Phase::PreBatch | Phase::PostBatch | Phase::Saving);
        let handed_out = self.groups.iter().filter(|group| handed_out(group.phase)).count();
        let reason = if self.pending.is_empty() { RowGroupBlock::NoPendingRowGroups } else { self.row_group_block() };
        (reason, waiting.saturating_sub(self.groups.len() as u32), handed_out as u32)
    }

    /// Why a resource of the task stage has slots that are not used: 0 is `submission`, then come the configured ones. `None`
    /// if it has none, or if there is no such resource. Changes nothing. O(groups + row groups in work).
    #[must_use]
    pub fn why_idle_now(&self, resource: usize) -> Option<SlotWait> {
        let (name, leased, limit) = self.dispatcher.usage().nth(resource)?;
        if leased >= limit {
            return None;
        }
        if let Some(judged) = self.dispatcher.explain_resource(name) {
            return Some(judged.map_or_else(|denial| SlotWait::Denied { denial }, |()| SlotWait::Queue));
        }
        let running = self.workers.len();
        let handed_out = |phase| matches!(phase, Phase::PreBatch | Phase::PostBatch | Phase::Saving);
        let mut handed_out = self.groups.iter().filter(|group| handed_out(group.phase));
        Some(match (self.state, self.delays.next_due()) {
            (State::Idle | State::Stopping(_) | State::Finished, _) => SlotWait::NotRunning,
            (State::Running, due) => match (running, handed_out.next(), due) {
                (0, Some(group), _) => SlotWait::HandedOut { row_group: group.span.row_group },
                (0, None, Some(until)) => SlotWait::Pause { until },
                _ if !self.pending.is_empty() => SlotWait::RowGroups { reason: self.row_group_block() },
                (0, None, None) => SlotWait::NotRunning,
                _ => SlotWait::Upstreams { running },
            },
        })
    }

    fn unless_running(&self, why: TaskWait) -> TaskWait {
        match self.state {
            State::Idle => TaskWait::NotStarted,
            State::Running => why,
            State::Stopping(_) | State::Finished => TaskWait::Stopping,
        }
    }

    fn row_group_block(&self) -> RowGroupBlock {
        self.target.blocked.unwrap_or(RowGroupBlock::AtCap)
    }

    fn why_queued(&self, key: TaskKey, task: u64) -> TaskWait {
        let route = &self.routes[key.column.index()];
        match self.dispatcher.evaluate(route.group, route.demand) {
            Err(denial) => TaskWait::Denied { denial },
            Ok(()) => match self.dispatcher.head_of(route.group).filter(|head| *head != task) {
                Some(task) => TaskWait::Behind { task },
                None => TaskWait::Queue,
            },
        }
    }

    fn why_not_ready(&self, group: &RowGroup, key: TaskKey) -> TaskWait {
        let upstreams = self.plan.upstreams(key.column).iter();
        for upstream in upstreams {
            if let Some((_, row)) = self.lacks(&group.frontier, *upstream, key.row, group.span.rows) {
                let column = self.plan.columns()[upstream.index()].name.clone();
                return TaskWait::Upstream { column, row };
            }
        }
        match self.turns.holder(&self.plan, key.column) {
            Some((row_group, row)) if group.frontier.is_ready(&self.plan, (key.column, key.row)) => {
                TaskWait::Turn { row_group, row }
            }
            _ => TaskWait::PreBatchHook,
        }
    }

    /// Whether an upstream is not complete for a task of this row, and in which row.
    fn lacks(&self, frontier: &Frontier, upstream: ColumnId, row: Option<u32>, rows: u32) -> Option<Place> {
        let is_open = |row: Option<u32>| !frontier.is_settled(&self.plan, (upstream, row));
        match (self.plan.is_cell(upstream), row) {
            (false, _) => is_open(None).then_some((upstream, None)),
            (true, Some(row)) => is_open(Some(row)).then_some((upstream, Some(row))),
            (true, None) => (0..rows).map(Some).find(|row| is_open(*row)).map(|row| (upstream, row)),
        }
    }
}

/// Whether two tasks wait for the same, as far as a person is concerned.
fn is_alike(one: &TaskWait, other: &TaskWait) -> bool {
    match (one, other) {
        (TaskWait::Upstream { column: one, .. }, TaskWait::Upstream { column: other, .. }) => one == other,
        _ => core::mem::discriminant(one) == core::mem::discriminant(other),
    }
}
