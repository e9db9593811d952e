//! What there is to read of a queue.

use super::{Candidate, ClassId, FairQueue, GroupId};

/// Facts, kept up to date and read without copying.
impl FairQueue {
    /// Items queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 0
    }

    /// Whether an item with this id is queued.
    #[must_use]
    pub fn contains(&self, item: u64) -> bool {
        self.nodes.find(item).is_some()
    }

    /// The group an item is queued in.
    #[must_use]
    pub fn group_of(&self, item: u64) -> Option<GroupId> {
        self.nodes.find(item).map(|slot| GroupId(self.fifos[self.nodes[slot].fifo() as usize].group))
    }

    /// Items queued in a group.
    #[must_use]
    pub fn group_len(&self, group: GroupId) -> usize {
        self.groups[group.index()].len as usize
    }

    /// Items queued in a group, by class.
    #[must_use]
    pub fn group_demand(&self, group: GroupId) -> &[(ClassId, u32)] {
        &self.groups[group.index()].demand
    }

    /// Items queued of a class.
    #[must_use]
    pub fn class_len(&self, class: ClassId) -> u64 {
        self.classes[class.index()].queued
    }

    /// FIFOs whose head is of a class.
    #[must_use]
    pub fn heads(&self, class: ClassId) -> u32 {
        self.classes[class.index()].heads
    }

    /// The next item of a group: the head of the FIFO whose turn comes first. O(FIFOs of the group).
    #[must_use]
    pub fn first(&self, group: GroupId) -> Option<Candidate> {
        let queued = self.groups[group.index()].fifos.iter().filter(|fifo| self.fifos[**fifo as usize].len > 0);
        queued.min_by_key(|fifo| self.fifos[**fifo as usize].sequence).map(|fifo| self.candidate(*fifo))
    }

    /// The weight of a group.
    #[must_use]
    pub fn weight(&self, group: GroupId) -> f64 {
        self.groups[group.index()].weight
    }

    /// Whether this queue has a group of this number.
    #[must_use]
    pub fn has_group(&self, group: GroupId) -> bool {
        group.index() < self.groups.len()
    }

    /// Groups that were registered.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u32).map(GroupId)
    }

    /// Virtual time since the last rebase.
    #[must_use]
    pub fn virtual_time(&self) -> f64 {
        self.virtual_time
    }
}
