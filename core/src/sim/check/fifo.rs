//! Tasks that ask for the same in the same fairness group start in the order they came; one that comes again
//! stands at the end.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, TaskName, hold};
use crate::map::Map;
use crate::pipeline::RunReport;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};

/// The lines of tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Fifo {
    /// By column: the number of its line, once it has one.
    lines_of: Vec<Option<usize>>,
    /// The tasks with their tickets; those whose ticket is void have left.
    lines: Vec<VecDeque<(TaskName, u64)>>,
    /// The valid tickets.
    tickets: Map<TaskName, u64>,
    issued: u64,
}

impl Fifo {
    /// The line of a task: the same for columns of one fairness group with one demand.
    fn line(&mut self, rules: &Rules, task: TaskName) -> usize {
        let columns = rules.plan.columns();
        self.lines_of.resize(columns.len(), None);
        let place = task.column.index();
        if let Some(line) = self.lines_of[place] {
            return line;
        }
        let is_alike = |other: usize| {
            let (one, other_group) = (&columns[place].group, &columns[other].group);
            one.kind == other_group.kind
                && one.identity == other_group.identity
                && rules.demands[place] == rules.demands[other]
        };
        let known = (0..columns.len()).filter(|other| is_alike(*other)).find_map(|other| self.lines_of[other]);
        let line = known.unwrap_or_else(|| {
            self.lines.push(VecDeque::new());
            self.lines.len() - 1
        });
        self.lines_of[place] = Some(line);
        line
    }

    /// The first of a line that has not left.
    fn first(&mut self, line: usize) -> Option<TaskName> {
        let Self { lines, tickets, .. } = self;
        let line = &mut lines[line];
        while let Some((task, ticket)) = line.front() {
            if tickets.get(task) == Some(ticket) {
                return Some(*task);
            }
            line.pop_front();
        }
        None
    }
}

impl Check for Fifo {
    const LAW: Law = Law::Fifo;

    fn on_event(&mut self, rules: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        let Some(task) = task_of(event) else {
            if let SchedulerEventPayload::QueueDrained { discarded: 1.. } = event.payload {
                self.tickets.clear();
            }
            return Ok(());
        };
        match event.payload {
            SchedulerEventPayload::ReadyEnqueued { queued } => {
                let line = self.line(rules, task);
                self.issued += 1;
                self.lines[line].push_back((task, self.issued));
                self.tickets.insert(task, self.issued);
                let waiting = self.tickets.len();
                hold(queued as usize == waiting, || format!("{queued} tasks are said to be queued; {waiting} are"))
            }
            SchedulerEventPayload::Selected { .. } => {
                let line = self.line(rules, task);
                let first = self.first(line);
                self.tickets.remove(&task);
                hold(first == Some(task), || match first {
                    Some(first) => format!("{first} came before it"),
                    None => "it was not queued".into(),
                })
            }
            SchedulerEventPayload::Cancelled { queued: true } => {
                let known = self.tickets.remove(&task);
                hold(known.is_some(), || "it was taken out of the queue, and was not in it".into())
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let left = self.tickets.len();
        hold(left == 0, || format!("{left} tasks are still queued at the end"))
    }
}
