//! No task starts before its upstreams are complete; ordered columns run one task at a time, in their order.

use alloc::collections::BTreeMap;
use alloc::format;

use super::books::{Books, Rules, task_of};
use super::{Check, Law, TaskName, Verdict, hold};
use crate::pipeline::ColumnId;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};

/// The lines of the ordered columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    lines: BTreeMap<ColumnId, Line>,
}

/// How far the line of an ordered column is.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    latest: (u32, Option<u32>),
    running: u32,
}

impl Check for Order {
    const LAW: Law = Law::Order;

    fn on_event(&mut self, rules: &Rules, books: &Books, event: &SchedulerEvent) -> Verdict {
        let Some(task) = task_of(event) else { return Ok(()) };
        let is_ordered = rules.plan.column(task.column).is_some_and(|column| column.ordered);
        match event.fact {
            SchedulerFact::WorkerSpawned { .. } => {
                upstreams_first(rules, books, task)?;
                if is_ordered { self.lines.entry(task.column).or_default().start(task) } else { Ok(()) }
            }
            SchedulerFact::TaskCompleted { .. } | SchedulerFact::WorkerSpawnFailed { .. } if is_ordered => {
                let line = self.lines.entry(task.column).or_default();
                line.running = line.running.saturating_sub(1);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Line {
    fn start(&mut self, task: TaskName) -> Verdict {
        let place = (task.row_group, task.row);
        hold(self.running == 0, || "another task of its ordered column is running".into())?;
        hold(self.latest <= place, || format!("its ordered column has come to {:?} before", self.latest))?;
        *self = Self { latest: place, running: 1 };
        Ok(())
    }
}

fn upstreams_first(rules: &Rules, books: &Books, task: TaskName) -> Verdict {
    let plan = &rules.plan;
    let Some(group) = books.group(task.row_group) else { return Err("its row group is not in work".into()) };
    for upstream in plan.upstreams(task.column) {
        let is_met = group.is_met(plan, task.row, *upstream);
        hold(is_met, || format!("its upstream, column {}, is not complete", upstream.index()))?;
    }
    let follows = group.follows(plan, (task.column, task.row));
    hold(!follows, || "it was started where an upstream was skipped, and its column says to follow".into())
}
