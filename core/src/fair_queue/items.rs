//! Adds items to the FIFOs of their group, and removes them with or without service.
//!
//! A FIFO is a linked list through its nodes, so any item is removed in O(1). The counters of the group and
//! of its classes change together with the list. A FIFO takes part in selection only by its head. It is
//! inserted into a heap when its first item arrives, and again when its head is removed and another item is
//! left. No tag moves here.

use alloc::vec::Vec;

use super::records::{NOWHERE, Node};
use super::{ClassId, FairQueue, FifoId, MAX_WEIGHT, MIN_WEIGHT, QueueGroupId, refund, work};

/// Arrival of items, and removal without service.
impl FairQueue {
    /// Appends an item to its group, unless an item with this id is queued. Returns whether it was appended.
    ///
    /// `cost` is clamped into `MIN_WEIGHT..=MAX_WEIGHT`. O(1) amortised, O(log groups) when it activates the
    /// group.
    pub fn enqueue(&mut self, item: u64, group: QueueGroupId, class: ClassId, cost: f64) -> bool {
        let fifo = self.first_fifo(group);
        let Some(slot) = self.nodes.insert(self.node(item, fifo, class, cost)) else { return false };
        self.link(slot, fifo, class);
        true
    }

    /// Appends an item without an index entry, for a caller that guarantees unique ids and uses this method
    /// for every item. Returns the slot for [`withdraw`](Self::withdraw). Items cannot be found by id.
    #[inline]
    pub(crate) fn append(&mut self, item: u64, fifo: FifoId, class: ClassId, cost: f64) -> u32 {
        let slot = self.nodes.add(self.node(item, fifo, class, cost));
        self.link(slot, fifo, class);
        slot
    }

    /// Removes an item without service. No tag moves. Returns whether the item was queued. O(log groups).
    pub fn discard(&mut self, item: u64) -> bool {
        let Some(slot) = self.nodes.find(item) else { return false };
        self.withdraw(slot);
        true
    }

    /// Removes the item in `slot` without service.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        self.version += 1;
        let fifo = self.nodes[slot].fifo();
        let was_head = self.fifos[fifo as usize].head == slot;
        if was_head {
            self.leave(fifo);
        }
        self.unlink(slot);
        if was_head && self.fifos[fifo as usize].len > 0 {
            self.insert(fifo);
        }
    }

    /// Removes every item for which `is_removed` returns true, without service. Returns the number of removed
    /// items. O(queued).
    pub fn discard_where(&mut self, mut is_removed: impl FnMut(u64) -> bool) -> usize {
        let mut removed: Vec<u64> = self.nodes.ids().filter(|item| is_removed(*item)).collect();
        // Free slots are reused in the order in which they became free.
        removed.sort_unstable();
        for item in &removed {
            self.discard(*item);
        }
        removed.len()
    }
}

/// The linked lists of the FIFOs.
impl FairQueue {
    fn node(&self, item: u64, fifo: FifoId, class: ClassId, cost: f64) -> Node {
        let cost = if cost.is_nan() { 1.0 } else { cost.clamp(MIN_WEIGHT, MAX_WEIGHT) };
        let previous = self.fifos[fifo.0 as usize].tail;
        Node::new(item, cost, fifo, class, previous)
    }

    /// Appends a node to its FIFO and counts it.
    #[inline]
    fn link(&mut self, slot: u32, fifo: FifoId, class: ClassId) {
        self.version += 1;
        self.classes[class.index()].queued += 1;
        let line = &mut self.fifos[fifo.0 as usize];
        line.len += 1;
        let previous = core::mem::replace(&mut line.tail, slot);
        let group = &mut self.groups[line.group as usize];
        if group.len == 0 {
            group.tag = group.finish.unwrap_or(self.virtual_time);
            self.waiting_weight = self.waiting_weight.wrapping_add(refund::units(group.weight));
        }
        group.len += 1;
        // The item, its index entry, its group and its class, then the classes of the group.
        work::steps(4 + group.demand.len());
        match group.demand.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => group.demand.push((class, 1)),
        }
        if previous == NOWHERE {
            line.head = slot;
            line.sequence = self.sequence;
            self.sequence += 1;
            self.classes[class.index()].heads += 1;
            self.insert(fifo.0);
        } else {
            self.nodes[previous].next = slot;
        }
    }

    /// Removes a node from the list of its FIFO, from the counters and from the index.
    #[inline]
    pub(super) fn unlink(&mut self, slot: u32) {
        let ref node @ Node { class, next, previous, .. } = self.nodes[slot];
        let fifo = node.fifo();
        let line = &mut self.fifos[fifo as usize];
        line.len -= 1;
        let group = &mut self.groups[line.group as usize];
        group.len -= 1;
        if group.len == 0 {
            self.waiting_weight = self.waiting_weight.wrapping_sub(refund::units(group.weight));
        }
        work::steps(4 + group.demand.len());
        if let Some(at) = group.demand.iter().position(|(known, _)| known.0 == class) {
            group.demand[at].1 -= 1;
            if group.demand[at].1 == 0 {
                group.demand.remove(at);
            }
        }
        self.classes[class as usize].queued -= 1;
        if next == NOWHERE {
            line.tail = previous;
        } else {
            self.nodes[next].previous = previous;
        }
        if previous == NOWHERE {
            line.head = next;
            self.classes[class as usize].heads -= 1;
            if next != NOWHERE {
                let next_class = self.nodes[next].class;
                self.classes[next_class as usize].heads += 1;
            }
        } else {
            self.nodes[previous].next = next;
        }
        self.nodes.remove(slot);
    }
}
