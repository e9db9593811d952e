//! Checks that no task starts before its upstreams are complete, and that an ordered column runs one task at
//! a time, in order.

use alloc::collections::BTreeMap;
use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, TaskName, ensure};
use crate::pipeline::ColumnId;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};

/// The progress of the ordered columns.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnOrder {
    columns: BTreeMap<ColumnId, ColumnProgress>,
}

/// The row group and row of the latest started task of an ordered column, and how many of its tasks run.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnProgress {
    latest: (u32, Option<u32>),
    running: u32,
}

impl Check for ColumnOrder {
    const LAW: Law = Law::ColumnOrder;

    fn on_event(&mut self, rules: &Rules, open: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        let Some(task) = task_of(event) else { return Ok(()) };
        let is_ordered = rules.plan.column(task.column).is_some_and(|column| column.ordered);
        match event.payload {
            SchedulerEventPayload::WorkerSpawned { .. } => {
                check_upstreams(rules, open, task)?;
                if is_ordered { self.columns.entry(task.column).or_default().start(task) } else { Ok(()) }
            }
            SchedulerEventPayload::TaskCompleted { .. } | SchedulerEventPayload::WorkerSpawnFailed { .. }
                if is_ordered =>
            {
                let progress = self.columns.entry(task.column).or_default();
                progress.running = progress.running.saturating_sub(1);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl ColumnProgress {
    fn start(&mut self, task: TaskName) -> CheckResult {
        let position = (task.row_group, task.row);
        ensure(self.running == 0, || "another task of its ordered column is running".into())?;
        ensure(self.latest <= position, || format!("its ordered column has already reached {:?}", self.latest))?;
        *self = Self { latest: position, running: 1 };
        Ok(())
    }
}

fn check_upstreams(rules: &Rules, open: &OpenRowGroups, task: TaskName) -> CheckResult {
    let plan = &rules.plan;
    let Some(group) = open.group(task.row_group) else { return Err("its row group is not in progress".into()) };
    for upstream in plan.upstreams(task.column) {
        let is_met = group.is_met(plan, task.row, *upstream);
        ensure(is_met, || format!("its upstream, column {}, is not complete", upstream.index()))?;
    }
    let is_skipped = group.is_skipped_with_upstream(plan, (task.column, task.row));
    ensure(!is_skipped, || {
        "it was started although its upstream was skipped and its column skips with upstreams".into()
    })
}
