//! The changes of what each worker does, and the level of each provider, for callers that draw a run.

use alloc::vec::Vec;

use super::World;
use super::activity::{Worker, WorkerActivity};
use crate::pipeline::{ColumnId, Task, WorkerId};
use crate::time::Instant;

/// A change of a worker's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityChange {
    /// The instant of the change.
    pub at: Instant,
    /// The worker. Slots are reused, so their numbers stay small.
    pub worker: WorkerId,
    /// The column of its task and its activity from now on, or `None` if the worker has ended.
    pub now: Option<(ColumnId, WorkerActivity)>,
}

/// The level of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderLevel {
    /// The adaptive limit on concurrent calls.
    pub limit: u32,
    /// Calls in flight.
    pub in_flight: u32,
    /// The calls in flight that the provider has accepted. The others will be refused, or fail.
    pub in_service: u32,
    /// The number of calls that the provider can serve at once now.
    pub capacity: u32,
    /// The number of calls it refused with 429 so far.
    pub refused: u64,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
}

/// The recorded changes that were not taken yet.
pub(super) struct ActivityChanges {
    /// The workers with slots below this number are recorded.
    slots: u32,
    latest: Vec<ActivityChange>,
}

/// Following a run.
impl World {
    /// Starts to record the activity changes of the workers whose slots are below `slots`. They are kept
    /// until [`World::take_activity_changes`] returns them. The present activities are recorded as changes at
    /// this instant. O(workers).
    pub fn track(&mut self, slots: u32) {
        #[expect(clippy::disallowed_methods, reason = "sorted below")]
        let workers = self.workers.iter();
        let present = workers.filter_map(|(bits, worker)| {
            let (column, doing) = match *worker {
                Worker::Waiting(waiter) => (self.waiting.get(&waiter.to_bits())?.column(), WorkerActivity::Waiting),
                Worker::Busy(key) => self.activities.get(key)?.column_and_activity(),
            };
            let worker = WorkerId::from_bits(*bits);
            (worker.key().slot < slots).then_some(ActivityChange { at: self.now, worker, now: Some((column, doing)) })
        });
        let mut latest: Vec<ActivityChange> = present.collect();
        latest.sort_unstable_by_key(|at| at.worker);
        self.activity_changes = Some(ActivityChanges { slots, latest });
    }

    /// Returns the changes since the last call, in order. Empty before [`World::track`] is called.
    pub fn take_activity_changes(&mut self) -> impl Iterator<Item = ActivityChange> {
        self.activity_changes.iter_mut().flat_map(|changes| changes.latest.drain(..))
    }

    /// Returns the level of a provider, by its index in the scenario. It is cheap enough to be called after
    /// every step.
    #[must_use]
    pub fn level(&self, provider: usize) -> Option<ProviderLevel> {
        let provider = self.providers.get(provider)?;
        let state = self.admission.stats(self.now, provider.resource)?;
        Some(ProviderLevel {
            limit: state.limit,
            in_flight: state.in_flight,
            in_service: provider.mock.in_flight(),
            capacity: provider.mock.capacity(self.now),
            refused: provider.mock.counters().refused,
            cooldown_until: self.admission.cooldown_until(self.now, provider.resource),
        })
    }

    /// Records the activity of a task's worker from now on.
    #[inline]
    pub(super) fn record_activity(&mut self, task: &Task, doing: WorkerActivity) {
        self.record_change(task.worker, Some((task.column, doing)));
    }

    /// Records the activity of a worker from now on. `None` means that it has ended.
    #[inline]
    pub(super) fn record_change(&mut self, worker: WorkerId, now: Option<(ColumnId, WorkerActivity)>) {
        let Some(changes) = &mut self.activity_changes else { return };
        if worker.key().slot < changes.slots {
            changes.latest.push(ActivityChange { at: self.now, worker, now });
        }
    }
}
