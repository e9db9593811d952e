//! The wait queue of one provider and model, on top of one fair queue.
//!
//! ```text
//! fairness group (weight, tag)  --+-- FIFO of resource 0    class 0    blocked set 0
//!                                 +-- FIFO of resource 1    class 1    blocked set 1
//!                                 +-- FIFO of resource 0, worker run 7   (yielding waiters: yielding.rs)
//! ```
//!
//! Waiters of one group and resource are served in order of arrival. A group has one share over all resources
//! that it waits for, and a blocked resource delays no waiter of another resource. A request without a group
//! waits in the resource's own group, of weight 1 by default.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::resource::QueuePlacement;
use crate::fair_queue::{BlockedSetId, ClassId, FairQueue, FifoId, QueueGroupId};
use crate::map::Map;
use crate::request::yielding::YieldClass;

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) fair: FairQueue,
    /// The queue groups, by the index of the fairness group. The first request of a group creates its entry.
    groups: Map<u32, QueueGroupId>,
    /// The FIFOs, by the queue group. Most groups have one.
    fifos: Vec<SmallVec<[(QueuePosition, FifoId); 1]>>,
}

/// The key of a FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePosition {
    pub(super) group: QueueGroupId,
    /// The slot of its resource.
    pub(super) slot: u32,
    /// The run of the worker, for a yielding waiter.
    pub(super) run: Option<u32>,
    /// Whether the waiter is undecided. Undecided waiters have separate FIFOs, so that they block no other
    /// waiter of their group and resource.
    pub(super) is_undecided: bool,
}

impl WaitQueue {
    /// Adds a resource and returns its placement.
    pub(super) fn add_resource(&mut self) -> QueuePlacement {
        let own_group = self.add_group();
        let (class, blocked_set) = (self.fair.add_class(), self.fair.add_blocked_set());
        let undecided = (self.fair.add_class(), self.fair.add_blocked_set());
        QueuePlacement { class, blocked_set, undecided, own_group }
    }

    /// Returns the queue group of a fairness group, which is created with this weight if it is new.
    pub(super) fn group(&mut self, index: u32, weight: f64) -> QueueGroupId {
        if let Some(group) = self.groups.get(&index) {
            return *group;
        }
        let group = self.add_group();
        // The weight of a fairness group was validated.
        let _ = self.fair.set_weight(group, weight);
        self.groups.insert(index, group);
        group
    }

    fn add_group(&mut self) -> QueueGroupId {
        self.fifos.push(SmallVec::new());
        self.fair.add_unit_group()
    }

    /// Applies a changed weight, if the fairness group has a queue group here.
    pub(super) fn set_weight(&mut self, index: u32, weight: f64) {
        if let Some(group) = self.groups.get(&index) {
            let _ = self.fair.set_weight(*group, weight);
        }
    }

    /// Returns the FIFO of a position, and creates it for the first waiter. O(resources and runs for which
    /// the group has waited).
    #[inline]
    pub(super) fn fifo(&mut self, position: QueuePosition) -> FifoId {
        let known = &self.fifos[position.group.index()];
        match known.iter().find(|(of, _)| *of == position) {
            Some((_, fifo)) => *fifo,
            None => self.add_fifo(position),
        }
    }

    #[cold]
    fn add_fifo(&mut self, position: QueuePosition) -> FifoId {
        let known = &mut self.fifos[position.group.index()];
        let is_first = known.is_empty();
        let fifo = if is_first { self.fair.first_fifo(position.group) } else { self.fair.add_fifo(position.group) };
        known.push((position, fifo));
        fifo
    }

    /// Returns the queue group of a fairness group, if a request of it was made here.
    pub(super) fn known_group(&self, index: u32) -> Option<QueueGroupId> {
        self.groups.get(&index).copied()
    }

    /// Returns the number of waiters of a group for the resource in `slot`. O(FIFOs of the group).
    pub(super) fn waiting(&self, group: QueueGroupId, slot: u32) -> u32 {
        let of_slot = self.fifos[group.index()].iter().filter(|(position, _)| position.slot == slot);
        of_slot.map(|(_, fifo)| self.fair.fifo_len(*fifo)).sum()
    }

    /// Adds a class and a blocked set for the waiters of one resource that yield equal task resources.
    pub(super) fn add_yield_class(&mut self) -> YieldClass {
        YieldClass { class: self.fair.add_class(), blocked_set: self.fair.add_blocked_set() }
    }

    pub(super) fn class_of(yield_class: Option<YieldClass>, is_undecided: bool, placement: &QueuePlacement) -> ClassId {
        let usual = if is_undecided { placement.undecided.0 } else { placement.class };
        yield_class.map_or(usual, |yielding| yielding.class)
    }

    pub(super) fn unblock(&mut self, set: BlockedSetId) {
        self.fair.unblock(set);
    }
}
