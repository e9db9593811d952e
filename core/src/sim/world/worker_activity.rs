//! What each worker is doing and how each provider stands, as often as it changes: for whoever draws a run.

use alloc::vec::Vec;

use super::World;
use super::activity::Worker;
use crate::pipeline::{ColumnId, Task, WorkerId};
use crate::time::Instant;

/// What a worker is doing.
///
/// Exhaustive on purpose: a page must draw each in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerActivity {
    /// Its own work.
    Local,
    /// It waits until its call may go out.
    Waiting,
    /// Its call is out.
    Calling,
}

/// A worker began to do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityChange {
    /// When.
    pub at: Instant,
    /// The worker. Its slot is dense: one that is free is taken again.
    pub worker: WorkerId,
    /// The column it makes and what it does for it from now on; `None`: the worker is gone.
    pub now: Option<(ColumnId, WorkerActivity)>,
}

/// How a provider stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Calls that admission allows at once.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// What it would truly bear.
    pub capacity: u32,
    /// Calls it refused so far.
    pub refused: u64,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
}

/// The moves of the workers in the first slots, until they are taken.
pub(super) struct ActivityChanges {
    slots: u32,
    latest: Vec<ActivityChange>,
}

/// Following a run closely.
impl World {
    /// Keeps the moves of the workers in the first `slots` slots from now on, until [`World::moves`] takes
    /// them. What they are doing now counts as begun now. O(workers).
    pub fn track(&mut self, slots: u32) {
        #[expect(clippy::disallowed_methods, reason = "sorted below")]
        let workers = self.workers.iter();
        let present = workers.filter_map(|(bits, worker)| {
            let (column, doing) = match *worker {
                Worker::Waiting(waiter) => (self.waiting.get(&waiter.to_bits())?.column(), WorkerActivity::Waiting),
                Worker::Busy(key) => self.activities.get(key)?.doing(),
            };
            let worker = WorkerId::from_bits(*bits);
            (worker.key().slot < slots).then_some(ActivityChange { at: self.now, worker, now: Some((column, doing)) })
        });
        let mut latest: Vec<ActivityChange> = present.collect();
        latest.sort_unstable_by_key(|at| at.worker);
        self.moves = Some(ActivityChanges { slots, latest });
    }

    /// The moves since the last call, in their order. None in a world that nobody [follows](World::track).
    pub fn moves(&mut self) -> impl Iterator<Item = ActivityChange> {
        self.moves.iter_mut().flat_map(|moves| moves.latest.drain(..))
    }

    /// How a provider stands, by its place in the scenario. Cheap: to be called after every step.
    #[must_use]
    pub fn level(&self, provider: usize) -> Option<Level> {
        let provider = self.providers.get(provider)?;
        let state = self.admission.stats(self.now, provider.resource)?;
        Some(Level {
            limit: state.limit,
            in_flight: state.in_flight,
            capacity: provider.machine.capacity(self.now),
            refused: provider.machine.counters().refused,
            cooldown_until: self.admission.cooldown_until(self.now, provider.resource),
        })
    }

    /// Takes down what a task's worker does from now on.
    #[inline]
    pub(super) fn moved(&mut self, task: &Task, doing: WorkerActivity) {
        self.moved_to(task.worker, Some((task.column, doing)));
    }

    /// The same; `None`: it is gone.
    #[inline]
    pub(super) fn moved_to(&mut self, worker: WorkerId, now: Option<(ColumnId, WorkerActivity)>) {
        let Some(moves) = &mut self.moves else { return };
        if worker.key().slot < moves.slots {
            moves.latest.push(ActivityChange { at: self.now, worker, now });
        }
    }
}
