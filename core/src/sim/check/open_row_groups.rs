//! The state that the checks of all laws share: the rules of the run, and the row groups in progress.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{LifecycleStep, TaskName};
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{ColumnId, PipelineConfig, Plan, Strategy, TaskOutcome};

/// The plan and the settings, with values computed from them.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) plan: Plan,
    pub(super) config: PipelineConfig,
    /// By column: the index and amount of each resource that a task needs. Index 0 is `submission`.
    pub(super) demands: Vec<Vec<(usize, u32)>>,
    /// By column: whether it is a *seed*, which is filled before the pre-batch hook. A column is a seed if
    /// neither it nor any column that it depends on is filled cell by cell.
    pub(super) seeds: Vec<bool>,
}

impl Rules {
    pub(super) fn of(plan: &Plan, config: &PipelineConfig) -> Self {
        let names = || core::iter::once("submission").chain(config.resources.iter().map(|(name, _)| name.as_str()));
        let demands = plan.columns().iter().map(|column| {
            let mut amounts = alloc::vec![0; config.resources.len() + 1];
            for (resource, amount) in &column.demand {
                if let Some(index) = names().position(|name| name == resource) {
                    amounts[index] += amount;
                }
            }
            amounts[0] = amounts[0].max(1);
            amounts.into_iter().enumerate().filter(|(_, amount)| *amount > 0).collect()
        });
        let demands = demands.collect();
        let mut seeds = alloc::vec![false; plan.columns().len()];
        for column in plan.order() {
            let is_whole = plan.columns()[column.index()].strategy != Strategy::Cell;
            seeds[column.index()] = is_whole && plan.upstreams(*column).iter().all(|up| seeds[up.index()]);
        }
        Self { plan: plan.clone(), config: config.clone(), demands, seeds }
    }

    pub(super) fn is_cell(&self, column: ColumnId) -> bool {
        self.plan.columns()[column.index()].strategy == Strategy::Cell
    }

    /// Returns the rows of a row group, or 0 if the run does not have it.
    pub(super) fn rows_of(&self, row_group: u32) -> u32 {
        let size = u64::from(self.config.row_group_size);
        let before = u64::from(row_group) * size;
        self.config.rows.saturating_sub(before).min(size) as u32
    }

    /// Returns the rows of a row group that an earlier run completed or dropped, if this run completes the
    /// rest.
    pub(super) fn kept_rows(&self, row_group: u32) -> BTreeSet<u32> {
        let first = u64::from(row_group) * u64::from(self.config.row_group_size);
        let is_missing =
            |row: &u32| self.config.missing_rows.iter().any(|rows| rows.contains(&(first + u64::from(*row))));
        let (missing, kept): (BTreeSet<u32>, BTreeSet<u32>) = (0..self.rows_of(row_group)).partition(is_missing);
        if missing.is_empty() { BTreeSet::new() } else { kept }
    }
}

/// A task of a row group: its column, and its row or `None` if it fills the whole row group.
pub(super) type TaskInRowGroup = (ColumnId, Option<u32>);

/// How a task was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Made,
    Skipped,
}

/// The state of one row group in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRowGroup {
    pub(super) rows: u32,
    done: Map<TaskInRowGroup, Done>,
    /// Rows that this run does not complete: it dropped them, or an earlier run completed or dropped them.
    pub(super) excluded: BTreeSet<u32>,
    /// The number of workers.
    pub(super) running: u32,
    /// The number of queued tasks.
    pub(super) queued: u32,
}

impl OpenRowGroup {
    /// Returns whether a task succeeded, was skipped, or is skipped with an upstream.
    pub(super) fn is_done(&self, plan: &Plan, task: TaskInRowGroup) -> bool {
        self.done.contains_key(&task) || self.is_skipped_with_upstream(plan, task)
    }

    /// Returns whether a task is skipped with an upstream instead of being run: its column skips with
    /// upstreams, all upstreams are complete, and one of them was skipped. O(columns that it depends on).
    pub(super) fn is_skipped_with_upstream(&self, plan: &Plan, (column, row): TaskInRowGroup) -> bool {
        if !plan.columns()[column.index()].skips_with_upstream {
            return false;
        }
        let upstreams = || plan.upstreams(column).iter().filter_map(|upstream| needed(plan, row, *upstream));
        let is_skipped =
            |task| self.done.get(&task) == Some(&Done::Skipped) || self.is_skipped_with_upstream(plan, task);
        upstreams().any(is_skipped) && plan.upstreams(column).iter().all(|upstream| self.is_met(plan, row, *upstream))
    }

    /// Returns whether an upstream is complete for a task of this row, or of the whole row group.
    pub(super) fn is_met(&self, plan: &Plan, row: Option<u32>, upstream: ColumnId) -> bool {
        match needed(plan, row, upstream) {
            Some(task) => self.is_done(plan, task),
            None => (0..self.rows).all(|row| self.excluded.contains(&row) || self.is_done(plan, (upstream, Some(row)))),
        }
    }

    /// Returns whether a task of this row may run: the row is not excluded. A task of the whole row group may
    /// run while any row is left.
    pub(super) fn is_live(&self, row: Option<u32>) -> bool {
        match row {
            Some(row) => !self.excluded.contains(&row),
            None => (self.excluded.len() as u64) < u64::from(self.rows),
        }
    }
}

/// Returns the one task of an upstream that a task of this row needs, or `None` if it needs the cells of all
/// rows.
fn needed(plan: &Plan, row: Option<u32>, upstream: ColumnId) -> Option<TaskInRowGroup> {
    let is_cell = plan.columns()[upstream.index()].strategy == Strategy::Cell;
    match row {
        _ if !is_cell => Some((upstream, None)),
        Some(row) => Some((upstream, Some(row))),
        None => None,
    }
}

/// The row groups in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRowGroups {
    pub(super) groups: BTreeMap<u32, OpenRowGroup>,
}

/// Returns the task of an event, if the event is about one.
pub(super) fn task_of(event: &SchedulerEvent) -> Option<TaskName> {
    let correlation = event.correlation;
    Some(TaskName { row_group: correlation.row_group?, column: correlation.column?, row: correlation.row })
}

impl OpenRowGroups {
    pub(super) fn group(&self, row_group: u32) -> Option<&OpenRowGroup> {
        self.groups.get(&row_group)
    }

    pub(super) fn on_event(&mut self, rules: &Rules, event: &SchedulerEvent) {
        let Some(row_group) = event.correlation.row_group else {
            if let SchedulerEventPayload::QueueDrained { discarded: 1.. } = event.payload {
                self.groups.values_mut().for_each(|group| group.queued = 0);
            }
            return;
        };
        match event.payload {
            SchedulerEventPayload::RowGroupAdmitted { .. } => {
                let (rows, excluded) = (rules.rows_of(row_group), rules.kept_rows(row_group));
                self.groups.insert(row_group, OpenRowGroup { rows, excluded, ..OpenRowGroup::default() });
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                self.groups.remove(&row_group);
            }
            payload => {
                if let (Some(group), Some(task)) = (self.groups.get_mut(&row_group), task_of(event)) {
                    group.on_task(task, payload);
                }
            }
        }
    }

    pub(super) fn on_lifecycle_step(&mut self, step: &LifecycleStep<'_>) {
        if let LifecycleStep::PreBatchEnded { row_group, left_out: Some(rows) } = step
            && let Some(group) = self.groups.get_mut(row_group)
        {
            group.excluded.extend(rows.iter().copied().filter(|row| *row < group.rows));
        }
    }
}

impl OpenRowGroup {
    fn on_task(&mut self, TaskName { column, row, .. }: TaskName, payload: SchedulerEventPayload) {
        match payload {
            SchedulerEventPayload::ReadyEnqueued { .. } => self.queued += 1,
            SchedulerEventPayload::Selected { .. } | SchedulerEventPayload::Cancelled { queued: true } => {
                self.queued = self.queued.saturating_sub(1);
            }
            SchedulerEventPayload::WorkerSpawned { .. } => self.running += 1,
            SchedulerEventPayload::WorkerSpawnFailed { .. } => self.running = self.running.saturating_sub(1),
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                self.running = self.running.saturating_sub(1);
                match outcome {
                    Some(TaskOutcome::Success) => drop(self.done.insert((column, row), Done::Made)),
                    Some(TaskOutcome::Skipped) => drop(self.done.insert((column, row), Done::Skipped)),
                    _ => {}
                }
            }
            SchedulerEventPayload::NonRetryableDropped { .. } => match row {
                Some(row) => drop(self.excluded.insert(row)),
                None => self.excluded.extend(0..self.rows),
            },
            _ => {}
        }
    }
}
