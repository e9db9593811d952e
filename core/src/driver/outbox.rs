//! The actions that a run performs after one drain of its machine.

use alloc::sync::Arc;

use super::shared::Shared;
use super::state::{Action, ActionIter, Actions, PendingHook};
use super::{Checkpoint, HookCall, Worker, Workload};
use crate::panics;
use crate::pipeline::{FinishedRowGroup, Task};
use crate::runtime::{Host, Spawn};

/// The actions of a run, performed in order.
///
/// If spawning panics, dropping the outbox creates and drops the remaining jobs, so that each reports to the
/// machine that it was lost.
pub(super) struct Outbox<'a, H, W>
where
    H: Host,
    W: Workload,
{
    shared: &'a Arc<Shared<H>>,
    workload: &'a Arc<W>,
    actions: ActionIter,
}

impl<'a, H, W> Outbox<'a, H, W>
where
    H: Host,
    W: Workload,
{
    pub(super) fn new(shared: &'a Arc<Shared<H>>, workload: &'a Arc<W>, actions: Actions) -> Self {
        Self { shared, workload, actions: actions.into_iter() }
    }

    fn worker(&self, task: Task) -> Worker<H, W> {
        Worker::of_task(Arc::clone(self.shared), Arc::clone(self.workload), task)
    }

    fn hook(&self, pending: PendingHook) -> HookCall<H, W> {
        HookCall::of_hook(Arc::clone(self.shared), Arc::clone(self.workload), pending)
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Checkpoint<H, W> {
        Checkpoint::of_group(Arc::clone(self.shared), Arc::clone(self.workload), group)
    }

    /// Performs the actions: spawns the jobs on the host, and passes warnings to the workload.
    pub(super) fn run_actions(&mut self)
    where
        H: Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    {
        let host = &self.shared.host;
        while let Some(action) = self.actions.next() {
            match action {
                Action::Spawn(task) => Spawn::<Worker<H, W>>::spawn(host, self.worker(task)),
                // A panic in this callback has no effect, because the callback only observes.
                Action::Warn(warning) => drop(panics::catch("", || self.workload.warn(&warning))),
                Action::Hook(pending) => Spawn::<HookCall<H, W>>::spawn(host, self.hook(pending)),
                Action::Save(group) => Spawn::<Checkpoint<H, W>>::spawn(host, self.checkpoint(group)),
            }
        }
    }
}

impl<H, W> Drop for Outbox<'_, H, W>
where
    H: Host,
    W: Workload,
{
    fn drop(&mut self) {
        while let Some(action) = self.actions.next() {
            match action {
                Action::Spawn(task) => drop(self.worker(task)),
                Action::Hook(pending) => drop(self.hook(pending)),
                Action::Save(group) => drop(self.checkpoint(group)),
                Action::Warn(_) => {}
            }
        }
    }
}
