//! The waiters of one provider and model, in one fair queue.
//!
//! ```text
//! fairness group (weight, tag)  --+-- FIFO of resource 0    class 0    blocked set 0
//!                                 +-- FIFO of resource 1    class 1    blocked set 1
//!                                 +-- FIFO of resource 0, worker run 7   (yielding waiters: yielding.rs)
//! ```
//!
//! Waiters of one group and resource are served in order of arrival. The group's share is one, whatever it
//! waits for, and a blocked resource delays no waiter of another. A request that names no group waits in the
//! resource's own group, of weight 1.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::resource::QueuePlacement;
use crate::fair_queue::{BlockedSetId, ClassId, FairQueue, FifoId, GroupId as QueueGroup};
use crate::map::Map;
use crate::request::yielding::YieldClass;

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) fair: FairQueue,
    /// The queue's groups by the index of the request group. Each is made by the first request that names it
    /// here.
    groups: Map<u32, QueueGroup>,
    /// The FIFOs in use, by the queue's group. Most groups have one.
    fifos: Vec<SmallVec<[(QueuePosition, FifoId); 1]>>,
}

/// Where a waiter is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePosition {
    pub(super) group: QueueGroup,
    /// The slot of its resource.
    pub(super) slot: u32,
    /// The run of a yielding waiter's worker.
    pub(super) run: Option<u32>,
    /// Undecided calls hold up no other of their group and resource.
    pub(super) is_undecided: bool,
}

impl WaitQueue {
    /// The place of one more resource.
    pub(super) fn add_resource(&mut self) -> QueuePlacement {
        let own_group = self.add_group();
        let (class, blocked_set) = (self.fair.add_class(), self.fair.add_blocked_set());
        let undecided = (self.fair.add_class(), self.fair.add_blocked_set());
        QueuePlacement { class, blocked_set, undecided, own_group }
    }

    /// The queue's group of a request group that has this weight now.
    pub(super) fn group(&mut self, index: u32, weight: f64) -> QueueGroup {
        if let Some(group) = self.groups.get(&index) {
            return *group;
        }
        let group = self.add_group();
        // The weight of a request group was validated.
        let _ = self.fair.set_weight(group, weight);
        self.groups.insert(index, group);
        group
    }

    fn add_group(&mut self) -> QueueGroup {
        self.fifos.push(SmallVec::new());
        self.fair.add_unit_group()
    }

    /// Follows a change of weight, if the request group has waited or called here.
    pub(super) fn set_weight(&mut self, index: u32, weight: f64) {
        if let Some(group) = self.groups.get(&index) {
            let _ = self.fair.set_weight(*group, weight);
        }
    }

    /// The FIFO of a line, made by its first waiter. O(resources and runs that the group has waited for).
    #[inline]
    pub(super) fn fifo(&mut self, line: QueuePosition) -> FifoId {
        let known = &self.fifos[line.group.index()];
        match known.iter().find(|(of, _)| *of == line) {
            Some((_, fifo)) => *fifo,
            None => self.add_fifo(line),
        }
    }

    #[cold]
    fn add_fifo(&mut self, line: QueuePosition) -> FifoId {
        let known = &mut self.fifos[line.group.index()];
        let is_first = known.is_empty();
        let fifo = if is_first { self.fair.first_fifo(line.group) } else { self.fair.add_fifo(line.group) };
        known.push((line, fifo));
        fifo
    }

    /// A class and a blocked set for the waiters of one resource that yield equal task resources.
    pub(super) fn add_yield_class(&mut self) -> YieldClass {
        YieldClass { class: self.fair.add_class(), blocked_set: self.fair.add_blocked_set() }
    }

    pub(super) fn class_of(line_class: Option<YieldClass>, is_undecided: bool, place: &QueuePlacement) -> ClassId {
        let usual = if is_undecided { place.undecided.0 } else { place.class };
        line_class.map_or(usual, |yielding| yielding.class)
    }

    pub(super) fn unblock(&mut self, set: BlockedSetId) {
        self.fair.unblock(set);
    }
}
