//! The workers of a run, from their dispatch until they have ended, and how each is told to stop.

use alloc::vec::Vec;
use core::task::Waker;

use crate::pipeline::WorkerId;

/// What the run knows of one worker.
pub(super) struct WorkerEntry {
    id: WorkerId,
    /// Whether the worker was told to stop.
    pub(super) is_stopped: bool,
    /// Woken when the worker is told to stop.
    pub(super) waker: Option<Waker>,
}

/// An entry for each worker that is under way, by the slot of its id: at most one worker of a slot is live.
#[derive(Default)]
pub(super) struct WorkerTable {
    entries: Vec<Option<WorkerEntry>>,
}

impl WorkerTable {
    /// Adds a worker. O(1) amortised.
    pub(super) fn insert(&mut self, id: WorkerId) {
        let slot = id.key().slot as usize;
        if slot >= self.entries.len() {
            self.entries.resize_with(slot + 1, || None);
        }
        self.entries[slot] = Some(WorkerEntry { id, is_stopped: false, waker: None });
    }

    /// Returns the entry of a worker that has not ended.
    pub(super) fn get_mut(&mut self, id: WorkerId) -> Option<&mut WorkerEntry> {
        self.entries.get_mut(id.key().slot as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    /// Tells a worker to stop. Returns the waker to wake.
    pub(super) fn stop(&mut self, id: WorkerId) -> Option<Waker> {
        let entry = self.get_mut(id)?;
        entry.is_stopped = true;
        entry.waker.take()
    }

    /// Removes a worker that has ended; `None` if it had ended before.
    pub(super) fn remove(&mut self, id: WorkerId) -> Option<WorkerEntry> {
        self.entries.get_mut(id.key().slot as usize)?.take_if(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SlotKey;

    fn worker(slot: u32, generation: u32) -> WorkerId {
        WorkerId::from_bits(SlotKey { slot, generation }.to_bits())
    }

    #[test]
    fn a_worker_is_told_to_stop_through_the_waker_it_left() {
        let mut workers = WorkerTable::default();
        workers.insert(worker(3, 0));
        workers.get_mut(worker(3, 0)).unwrap().waker = Some(Waker::noop().clone());
        assert!(workers.stop(worker(3, 0)).is_some());
        assert!(workers.stop(worker(3, 0)).is_none(), "it is woken once");
        assert!(workers.get_mut(worker(3, 0)).unwrap().is_stopped);
    }

    #[test]
    fn a_worker_that_has_ended_is_unknown_also_when_its_slot_is_reused() {
        let mut workers = WorkerTable::default();
        workers.insert(worker(0, 0));
        assert!(workers.remove(worker(0, 0)).is_some());
        assert!(workers.remove(worker(0, 0)).is_none());
        workers.insert(worker(0, 1));
        assert!(workers.get_mut(worker(0, 0)).is_none());
        assert!(workers.remove(worker(0, 0)).is_none());
        assert!(workers.stop(worker(9, 0)).is_none());
        assert!(workers.remove(worker(0, 1)).is_some());
    }
}
