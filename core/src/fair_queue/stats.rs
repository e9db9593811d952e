//! Read access to the state of a queue.

use super::{Candidate, ClassId, FairQueue, FifoId, QueueGroupId};

/// Statistics. Each is O(1) unless it states another cost. A group, FIFO or class that is not of this queue
/// panics, except in `has_group`.
impl FairQueue {
    /// Returns the number of queued items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 0
    }

    /// Returns whether an item with this id is queued.
    #[must_use]
    pub fn contains(&self, item: u64) -> bool {
        self.nodes.find(item).is_some()
    }

    /// Returns the group in which an item is queued, or `None` if it is not queued.
    #[must_use]
    pub fn group_of(&self, item: u64) -> Option<QueueGroupId> {
        self.nodes.find(item).map(|slot| QueueGroupId(self.fifos[self.nodes[slot].fifo() as usize].group))
    }

    /// Returns the number of items queued in a group.
    #[must_use]
    pub fn group_len(&self, group: QueueGroupId) -> usize {
        self.groups[group.index()].len as usize
    }

    /// Returns the number of items queued in a FIFO.
    #[must_use]
    pub fn fifo_len(&self, fifo: FifoId) -> u32 {
        self.fifos[fifo.0 as usize].len
    }

    /// Returns the number of items queued in a group, by class.
    #[must_use]
    pub fn group_demand(&self, group: QueueGroupId) -> &[(ClassId, u32)] {
        &self.groups[group.index()].demand
    }

    /// Returns the number of queued items of a class.
    #[must_use]
    pub fn class_len(&self, class: ClassId) -> u64 {
        self.classes[class.index()].queued
    }

    /// Returns the number of FIFOs whose head is of a class.
    #[must_use]
    pub fn heads(&self, class: ClassId) -> u32 {
        self.classes[class.index()].heads
    }

    /// Returns the next item of a group: the head of the FIFO whose turn comes first. O(FIFOs of the group).
    #[must_use]
    pub fn first(&self, group: QueueGroupId) -> Option<Candidate> {
        let queued = self.groups[group.index()].fifos.iter().filter(|fifo| self.fifos[**fifo as usize].len > 0);
        queued.min_by_key(|fifo| self.fifos[**fifo as usize].sequence).map(|fifo| self.candidate(*fifo))
    }

    /// Returns the weight of a group.
    #[must_use]
    pub fn weight(&self, group: QueueGroupId) -> f64 {
        self.groups[group.index()].weight
    }

    /// Returns whether this queue has a group with this number.
    #[must_use]
    pub fn has_group(&self, group: QueueGroupId) -> bool {
        group.index() < self.groups.len()
    }

    /// Iterates over the registered groups.
    pub fn groups(&self) -> impl Iterator<Item = QueueGroupId> + use<> {
        (0..self.groups.len() as u32).map(QueueGroupId)
    }

    /// Returns the virtual time since the tags were last shifted towards 0 (a rebase).
    #[must_use]
    pub fn virtual_time(&self) -> f64 {
        self.virtual_time
    }
}
