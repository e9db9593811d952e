//! The full cycle of a dispatcher, and groups to run it with.

use std::collections::VecDeque;
use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use tidegate_core::task::{DemandId, Dispatcher, TaskConfig, TaskGroup, TaskGroupId, TaskLease, TaskPolicy};

/// Groups that all wait for the slots of one resource, and the tasks that hold them.
pub(crate) struct Cycle<P> {
    tasks: Dispatcher<P>,
    groups: Vec<TaskGroupId>,
    demand: DemandId,
    /// The oldest first.
    running: VecDeque<(u64, TaskLease)>,
}

impl<P: TaskPolicy> Cycle<P> {
    const SLOTS: u32 = 4;

    /// Groups without a task.
    pub(crate) fn empty(policy: P, groups: usize) -> Result<Self> {
        let resources = vec![("calls".to_owned(), Self::SLOTS)];
        let mut tasks = Dispatcher::with_policy(TaskConfig { resources, ..TaskConfig::default() }, policy)?;
        let groups = (0..groups)
            .map(|group| tasks.group(&TaskGroup::model("provider", &group.to_string(), 1.0)))
            .collect::<Result<Vec<_>, _>>()?;
        let demand = tasks.demand(&[("calls", 1)])?;
        Ok(Self { tasks, groups, demand, running: VecDeque::with_capacity(2 * Self::SLOTS as usize) })
    }

    /// The same with `queued` tasks, dealt out to the groups in turns, and all slots taken.
    pub(crate) fn new(policy: P, groups: usize, queued: u64) -> Result<Self> {
        let mut cycle = Self::empty(policy, groups)?;
        cycle.fill(queued)?;
        cycle.dispatch();
        Ok(cycle)
    }

    pub(crate) fn fill(&mut self, queued: u64) -> Result<()> {
        (0..queued).try_for_each(|task| self.enqueue(task))
    }

    fn enqueue(&mut self, task: u64) -> Result<()> {
        let group = self.groups[task as usize % self.groups.len()];
        ensure!(self.tasks.enqueue(black_box(task), group, self.demand), "a task is queued anew only after it ran");
        Ok(())
    }

    /// Starts what may start, as a driver does: until nothing more may.
    fn dispatch(&mut self) {
        while let Some(started) = self.tasks.dispatch() {
            self.running.push_back((started.task, started.lease));
        }
    }

    /// So many cycles: the oldest task gives its slot back, what may start starts, and the task is queued anew.
    pub(crate) fn run(&mut self, ops: u64) -> Result<()> {
        for _ in 0..ops {
            let (task, lease) = self.running.pop_front().context("the slots are taken between two cycles")?;
            let _ = self.tasks.release(lease);
            self.dispatch();
            self.enqueue(task)?;
        }
        Ok(())
    }
}
