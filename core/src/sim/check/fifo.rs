//! Checks that tasks of one fairness group with equal demands start in the order in which they were queued.
//! A task that is queued again goes to the end.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, TaskName, ensure};
use crate::map::Map;
use crate::pipeline::RunReport;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};

/// The queues of tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Fifo {
    /// By column: the index of its queue, if it has one yet.
    queue_of_column: Vec<Option<usize>>,
    /// The tasks of each queue, each with the ticket that it got when it was queued. A task whose ticket is
    /// no longer valid has left the queue; it is removed when it reaches the front.
    queues: Vec<VecDeque<(TaskName, u64)>>,
    /// The valid ticket of each queued task.
    tickets: Map<TaskName, u64>,
    /// The number of tickets issued so far. It is also the latest ticket.
    issued: u64,
}

impl Fifo {
    /// Returns the queue of a task. Columns of one fairness group with equal demands share a queue.
    fn queue(&mut self, rules: &Rules, task: TaskName) -> usize {
        let columns = rules.plan.columns();
        self.queue_of_column.resize(columns.len(), None);
        let column = task.column.index();
        if let Some(queue) = self.queue_of_column[column] {
            return queue;
        }
        let is_alike = |other: usize| {
            let (one, other_group) = (&columns[column].group, &columns[other].group);
            one.kind == other_group.kind
                && one.identity == other_group.identity
                && rules.demands[column] == rules.demands[other]
        };
        let known = (0..columns.len()).filter(|other| is_alike(*other)).find_map(|other| self.queue_of_column[other]);
        let queue = known.unwrap_or_else(|| {
            self.queues.push(VecDeque::new());
            self.queues.len() - 1
        });
        self.queue_of_column[column] = Some(queue);
        queue
    }

    /// Returns the first task of a queue that has not left it.
    fn first(&mut self, queue: usize) -> Option<TaskName> {
        let Self { queues, tickets, .. } = self;
        let queue = &mut queues[queue];
        while let Some((task, ticket)) = queue.front() {
            if tickets.get(task) == Some(ticket) {
                return Some(*task);
            }
            queue.pop_front();
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
                let queue = self.queue(rules, task);
                self.issued += 1;
                self.queues[queue].push_back((task, self.issued));
                self.tickets.insert(task, self.issued);
                let waiting = self.tickets.len();
                ensure(queued as usize == waiting, || {
                    format!("the event counts {queued} queued tasks instead of {waiting}")
                })
            }
            SchedulerEventPayload::Selected { .. } => {
                let queue = self.queue(rules, task);
                let first = self.first(queue);
                self.tickets.remove(&task);
                ensure(first == Some(task), || match first {
                    Some(first) => format!("{first} was queued before it"),
                    None => "it was not queued".into(),
                })
            }
            SchedulerEventPayload::Cancelled { queued: true } => {
                let known = self.tickets.remove(&task);
                ensure(known.is_some(), || "it was removed from the queue without being queued".into())
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let left = self.tickets.len();
        ensure(left == 0, || format!("{left} tasks are still queued at the end"))
    }
}
