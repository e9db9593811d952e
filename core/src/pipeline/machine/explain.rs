//! Explains why tasks wait and why slots of task resources are free, from the values on which the scheduler
//! decides.

use alloc::vec::Vec;

use super::Pipeline;
use crate::pipeline::Strategy;
use crate::pipeline::explain::{SlotWait, TaskWait};
use crate::pipeline::lifecycle::RunState;
use crate::pipeline::plan::key::{LocalKey, TaskKey};
use crate::pipeline::plan::{ColumnId, MAX_COLUMNS};
use crate::pipeline::row_group::{Frontier, MAX_ROW_GROUP_SIZE, MAX_ROW_GROUPS, RowGroup, RowGroupBlock, TaskState};

/// Explanations.
impl Pipeline {
    /// Returns the number of a task in [events](crate::pipeline::event::Correlation::task) and for
    /// [`Pipeline::why_waiting`]. Returns `None` if the row group, column or row is above the limits of every
    /// run.
    #[must_use]
    pub fn task_number(column: ColumnId, row_group: u32, row: Option<u32>) -> Option<u64> {
        let is_known = row_group < MAX_ROW_GROUPS
            && column.index() < MAX_COLUMNS
            && row.is_none_or(|row| row < MAX_ROW_GROUP_SIZE);
        is_known.then(|| TaskKey { row_group, column, row }.to_bits())
    }

    /// Returns why a task waits. `task` is its number, as in
    /// [events](crate::pipeline::event::Correlation::task).
    ///
    /// Returns `None` if the task runs, is done or dropped, or is not part of the run. A running task whose
    /// worker has yielded counts as waiting. The cost is at most O(rows of the row group + queued tasks +
    /// delayed tasks + workers).
    #[must_use]
    pub fn why_waiting(&self, task: u64) -> Option<TaskWait> {
        let key = TaskKey::from_bits(task);
        let column = self.plan.column(key.column)?;
        if key.row.is_some() != (column.strategy == Strategy::Cell) {
            return None;
        }
        let Some(group) = self.row_groups.get(key.row_group) else {
            let reason = self.row_group_block();
            return self
                .row_groups
                .pending()
                .contains(key.row_group)
                .then(|| self.wait_or_run_state(TaskWait::RowGroup { reason }));
        };
        if key.row.is_some_and(|row| row >= group.span().rows) {
            return None;
        }
        match group.frontier().state(&self.plan, key.local()) {
            TaskState::Done | TaskState::Dropped => None,
            TaskState::Running => {
                self.workers.yielded_worker_of(key, &self.tasks).map(|worker| TaskWait::Yielded { worker })
            }
            TaskState::Queued => Some(self.wait_of_queued(key, task)),
            TaskState::Gathered
            | TaskState::Deferred
            | TaskState::Delayed
            | TaskState::Parked
            | TaskState::Waiting
            | TaskState::Skipping => self.wait_of_unqueued(group, key),
        }
    }

    /// Returns why the tasks of a column wait, with the number of tasks for each reason.
    ///
    /// Only tasks of active row groups without a worker are counted. The reason of the queued tasks comes
    /// first. Tasks that wait for the same reason are counted together, with the details of the first one.
    /// O(rows of the active row groups).
    #[must_use]
    pub fn why_column(&self, column: ColumnId) -> Vec<(TaskWait, u32)> {
        let mut waits: Vec<(TaskWait, u32)> = Vec::new();
        let Some(route) = self.tasks.routes().get(column.index()) else { return waits };
        let queued = self.row_groups.counts().queued()[column.index()];
        if queued > 0 {
            let evaluated = self.tasks.tasks().evaluate(route.group, route.demand);
            waits.push((evaluated.map_or_else(|denial| TaskWait::Denied { denial }, |()| TaskWait::Queue), queued));
        }
        for group in self.row_groups.active().iter() {
            let rows = if self.plan.is_cell(column) { group.span().rows } else { 1 };
            for row in 0..rows {
                let row = self.plan.is_cell(column).then_some(row);
                let key = TaskKey { row_group: group.number(), column, row };
                let Some(wait) = self.wait_of_unqueued(group, key) else { continue };
                match waits.iter_mut().find(|(known, _)| is_same_reason(known, &wait)) {
                    Some((_, count)) => *count += 1,
                    None => waits.push((wait, 1)),
                }
            }
        }
        waits
    }

    /// Returns why a task waits, if it is not queued, running, done or dropped.
    fn wait_of_unqueued(&self, group: &RowGroup, key: TaskKey) -> Option<TaskWait> {
        let wait = match group.frontier().state(&self.plan, (key.column, key.row)) {
            TaskState::Gathered => TaskWait::Batch,
            TaskState::Deferred => TaskWait::Round,
            TaskState::Parked => TaskWait::ProviderUnavailable,
            TaskState::Delayed => {
                let due = self.retries.due_of(key);
                TaskWait::Delayed { until: due.unwrap_or(self.clock.latest()) }
            }
            TaskState::Waiting | TaskState::Skipping => self.wait_of_not_ready(group, key),
            TaskState::Done | TaskState::Dropped | TaskState::Running | TaskState::Queued => return None,
        };
        Some(self.wait_or_run_state(wait))
    }

    /// Returns why the first queued task of a column's fairness group waits, or `None` if the group has no
    /// queued task. O(resources of the demand).
    #[must_use]
    pub fn why_group(&self, column: ColumnId) -> Option<TaskWait> {
        let route = self.tasks.routes().get(column.index())?;
        let evaluated = self.tasks.tasks().why_group_blocked(route.group)?;
        Some(evaluated.map_or_else(|denial| TaskWait::Denied { denial }, |()| TaskWait::Queue))
    }

    /// Returns why no further row group is admitted, the number of row groups not admitted yet, and the
    /// number of admitted ones with a hook or checkpoint in progress.
    #[must_use]
    pub fn why_row_groups(&self) -> (RowGroupBlock, u32, u32) {
        let waiting =
            self.row_groups.pending().total() - self.row_groups.pending().done_groups() - self.tally.row_groups_saved();
        let in_host = self.row_groups.in_host();
        let reason = if self.row_groups.pending().is_empty() {
            RowGroupBlock::NoPendingRowGroups
        } else {
            self.row_group_block()
        };
        (reason, waiting.saturating_sub(self.row_groups.active().len() as u32), in_host as u32)
    }

    /// Returns why a task resource has free slots. `resource` is an index: 0 is `submission`, followed by the
    /// configured ones.
    ///
    /// Returns `None` if the resource has no free slot, or if there is no such resource. O(groups + active
    /// row groups).
    #[must_use]
    pub fn why_idle_now(&self, resource: usize) -> Option<SlotWait> {
        let (name, leased, limit) = self.tasks.tasks().usage().nth(resource)?;
        if leased >= limit {
            return None;
        }
        if let Some(evaluated) = self.tasks.tasks().why_resource_blocked(name) {
            return Some(evaluated.map_or_else(|denial| SlotWait::Denied { denial }, |()| SlotWait::Queue));
        }
        let running = self.workers.len();
        let mut in_host = self.row_groups.active().iter().filter(|group| group.phase().is_in_host());
        Some(match (self.lifecycle.state(), self.retries.next_due()) {
            (RunState::Idle | RunState::Stopping(_) | RunState::Finished, _) => SlotWait::NotRunning,
            (RunState::Running, due) => match (running, in_host.next(), due) {
                (0, Some(group), _) => SlotWait::HookOrCheckpoint { row_group: group.number() },
                (0, None, Some(until)) => SlotWait::Delayed { until },
                _ if !self.row_groups.pending().is_empty() => SlotWait::RowGroups { reason: self.row_group_block() },
                (0, None, None) => SlotWait::NotRunning,
                _ => SlotWait::Upstreams { running },
            },
        })
    }

    /// Returns `wait` while the run is running, and otherwise the state of the run as the reason.
    fn wait_or_run_state(&self, wait: TaskWait) -> TaskWait {
        match self.lifecycle.state() {
            RunState::Idle => TaskWait::NotStarted,
            RunState::Running => wait,
            RunState::Stopping(_) | RunState::Finished => TaskWait::Stopping,
        }
    }

    fn row_group_block(&self) -> RowGroupBlock {
        if self.row_groups.pending().is_claiming() {
            return RowGroupBlock::Claim;
        }
        self.row_groups.target().block().unwrap_or(RowGroupBlock::AtCap)
    }

    fn wait_of_queued(&self, key: TaskKey, task: u64) -> TaskWait {
        let route = self.tasks.route(key.column);
        match self.tasks.tasks().evaluate(route.group, route.demand) {
            Err(denial) => TaskWait::Denied { denial },
            Ok(()) => match self.tasks.tasks().head_of(route.group).filter(|head| *head != task) {
                Some(task) => TaskWait::Behind { task },
                None => TaskWait::Queue,
            },
        }
    }

    fn wait_of_not_ready(&self, group: &RowGroup, key: TaskKey) -> TaskWait {
        let upstreams = self.plan.upstreams(key.column).iter();
        for upstream in upstreams {
            if let Some((_, row)) = self.missing_upstream(group.frontier(), *upstream, key.row, group.span().rows) {
                let column = self.plan.columns()[upstream.index()].name.clone();
                return TaskWait::Upstream { column, row };
            }
        }
        match self.column_cursors.current_turn(&self.plan, key.column) {
            Some((row_group, row)) if group.frontier().is_ready(&self.plan, (key.column, key.row)) => {
                TaskWait::ColumnOrder { row_group, row }
            }
            _ => TaskWait::PreBatchHook,
        }
    }

    /// Returns the first incomplete upstream task of a column, for a task of this row.
    fn missing_upstream(
        &self,
        frontier: &Frontier,
        upstream: ColumnId,
        row: Option<u32>,
        rows: u32,
    ) -> Option<LocalKey> {
        let is_open = |row: Option<u32>| !frontier.is_settled(&self.plan, (upstream, row));
        match (self.plan.is_cell(upstream), row) {
            (false, _) => is_open(None).then_some((upstream, None)),
            (true, Some(row)) => is_open(Some(row)).then_some((upstream, Some(row))),
            (true, None) => (0..rows).map(Some).find(|row| is_open(*row)).map(|row| (upstream, row)),
        }
    }
}

/// Returns whether two reasons are counted together in [`Pipeline::why_column`].
fn is_same_reason(first: &TaskWait, second: &TaskWait) -> bool {
    match (first, second) {
        (TaskWait::Upstream { column: first, .. }, TaskWait::Upstream { column: second, .. }) => first == second,
        _ => core::mem::discriminant(first) == core::mem::discriminant(second),
    }
}
