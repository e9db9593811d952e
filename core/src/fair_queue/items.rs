//! Items join the line of their group, and leave it with or without service.
//!
//! A group is a list through its nodes, so an item goes from any place in it in O(1). What is counted of a group, by
//! class and in all, moves with its list. A group takes part in selection by its head alone: it is put in turn when its
//! first item comes, and put in turn anew when its head goes and another is left. No tag moves here.

use alloc::vec::Vec;

use super::records::{NOWHERE, Node};
use super::{ClassId, FairQueue, GroupId, MAX_WEIGHT, MIN_WEIGHT, work};
use crate::order::sorted;

/// Items that come, and items that go without service.
impl FairQueue {
    /// Appends an item to its group, unless an item with this id is queued; answers whether it was accepted.
    ///
    /// `cost` is clamped into `MIN_WEIGHT..=MAX_WEIGHT`. O(1) amortised, O(log groups) when it activates the group.
    pub fn enqueue(&mut self, item: u64, group: GroupId, class: ClassId, cost: f64) -> bool {
        let Some(slot) = self.nodes.insert(self.node(item, group, class, cost)) else { return false };
        self.queue_up(slot, group, class);
        true
    }

    /// The same for one who sees to it that no two items have the same id, and does so for every item. Answers what to
    /// [withdraw](Self::withdraw) it by: no item is found by its id.
    #[inline]
    pub(crate) fn append(&mut self, item: u64, group: GroupId, class: ClassId, cost: f64) -> u32 {
        let slot = self.nodes.add(self.node(item, group, class, cost));
        self.queue_up(slot, group, class);
        slot
    }

    /// Removes an item without service; no tag moves. Answers whether it was queued. O(log groups).
    pub fn discard(&mut self, item: u64) -> bool {
        let Some(slot) = self.nodes.find(item) else { return false };
        self.withdraw(slot);
        true
    }

    /// The same for an item that is queued in `slot`.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        self.version += 1;
        let group = self.nodes[slot].group;
        let was_head = self.groups[group as usize].head == slot;
        if was_head {
            self.leave(group);
        }
        self.unlink(slot);
        if was_head && self.groups[group as usize].len > 0 {
            self.insert(group);
        }
    }

    /// Removes every item that `unwanted` names, without service; answers how many. O(queued).
    pub fn discard_where(&mut self, mut unwanted: impl FnMut(u64) -> bool) -> usize {
        let doomed: Vec<u64> = self.nodes.ids().filter(|item| unwanted(*item)).collect();
        // The order of a map decides nothing: tags do not move, but free slots are reused in this order.
        let doomed = sorted(doomed);
        for item in &doomed {
            self.discard(*item);
        }
        doomed.len()
    }
}

/// The line of a group.
impl FairQueue {
    fn node(&self, item: u64, group: GroupId, class: ClassId, cost: f64) -> Node {
        let cost = if cost.is_nan() { 1.0 } else { cost.clamp(MIN_WEIGHT, MAX_WEIGHT) };
        let previous = self.groups[group.index()].tail;
        Node { id: item, cost, group: group.0, class: class.0, next: NOWHERE, previous }
    }

    /// Appends a node to its group.
    #[inline]
    fn queue_up(&mut self, slot: u32, group: GroupId, class: ClassId) {
        self.version += 1;
        self.classes[class.index()].queued += 1;
        let entry = &mut self.groups[group.index()];
        entry.len += 1;
        let previous = core::mem::replace(&mut entry.tail, slot);
        // The item, its index entry, its group and its class; then the group's classes.
        work::steps(4 + entry.demand.len());
        match entry.demand.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => entry.demand.push((class, 1)),
        }
        if previous == NOWHERE {
            entry.head = slot;
            entry.tag = entry.finish.unwrap_or(self.virtual_time);
            entry.sequence = self.sequence;
            self.sequence += 1;
            self.classes[class.index()].heads += 1;
            self.insert(group.0);
        } else {
            self.nodes[previous].next = slot;
        }
    }

    /// Removes a node from its group's list, its counters and the index.
    #[inline]
    pub(super) fn unlink(&mut self, slot: u32) {
        let Node { group, class, next, previous, .. } = self.nodes[slot];
        let entry = &mut self.groups[group as usize];
        entry.len -= 1;
        work::steps(4 + entry.demand.len());
        if let Some(at) = entry.demand.iter().position(|(known, _)| known.0 == class) {
            entry.demand[at].1 -= 1;
            if entry.demand[at].1 == 0 {
                entry.demand.remove(at);
            }
        }
        self.classes[class as usize].queued -= 1;
        if next == NOWHERE {
            entry.tail = previous;
        } else {
            self.nodes[next].previous = previous;
        }
        if previous == NOWHERE {
            entry.head = next;
            self.classes[class as usize].heads -= 1;
            if next != NOWHERE {
                let heir = self.nodes[next].class;
                self.classes[heir as usize].heads += 1;
            }
        } else {
            self.nodes[previous].next = next;
        }
        self.nodes.remove(slot);
    }
}
