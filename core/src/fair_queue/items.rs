//! Items join the line of their group, and leave it with or without service.
//!
//! A group is a list through its nodes, so an item goes from any place in it in O(1). What is counted of a
//! group, by class and in all, moves with its list. A group takes part in selection by its head alone: it is
//! put in turn when its first item comes, and put in turn anew when its head goes and another is left. No tag
//! moves here.

use alloc::vec::Vec;

use super::records::{NOWHERE, Node};
use super::{ClassId, FairQueue, FifoId, GroupId, MAX_WEIGHT, MIN_WEIGHT, refund, work};

/// Items that come, and items that go without service.
impl FairQueue {
    /// Appends an item to its group, unless an item with this id is queued; answers whether it was accepted.
    ///
    /// `cost` is clamped into `MIN_WEIGHT..=MAX_WEIGHT`. O(1) amortised, O(log groups) when it activates the
    /// group.
    pub fn enqueue(&mut self, item: u64, group: GroupId, class: ClassId, cost: f64) -> bool {
        let fifo = self.first_fifo(group);
        let Some(slot) = self.nodes.insert(self.node(item, fifo, class, cost)) else { return false };
        self.queue_up(slot, fifo, class);
        true
    }

    /// The same for one who sees to it that no two items have the same id, and does so for every item.
    /// Answers what to [withdraw](Self::withdraw) it by: no item is found by its id.
    #[inline]
    pub(crate) fn append(&mut self, item: u64, fifo: FifoId, class: ClassId, cost: f64) -> u32 {
        let slot = self.nodes.add(self.node(item, fifo, class, cost));
        self.queue_up(slot, fifo, class);
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

    /// Removes every item that `unwanted` names, without service; answers how many. O(queued).
    pub fn discard_where(&mut self, mut unwanted: impl FnMut(u64) -> bool) -> usize {
        let mut doomed: Vec<u64> = self.nodes.ids().filter(|item| unwanted(*item)).collect();
        // Free slots are reused in the order in which they became free.
        doomed.sort_unstable();
        for item in &doomed {
            self.discard(*item);
        }
        doomed.len()
    }
}

/// The line of a group.
impl FairQueue {
    fn node(&self, item: u64, fifo: FifoId, class: ClassId, cost: f64) -> Node {
        let cost = if cost.is_nan() { 1.0 } else { cost.clamp(MIN_WEIGHT, MAX_WEIGHT) };
        let previous = self.fifos[fifo.0 as usize].tail;
        Node::new(item, cost, fifo, class, previous)
    }

    /// Appends a node to its group.
    #[inline]
    fn queue_up(&mut self, slot: u32, fifo: FifoId, class: ClassId) {
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
        // The item, its index entry, its group and its class; then the group's classes.
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

    /// Removes a node from its FIFO's list, its counters and the index.
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
                let heir = self.nodes[next].class;
                self.classes[heir as usize].heads += 1;
            }
        } else {
            self.nodes[previous].next = next;
        }
        self.nodes.remove(slot);
    }
}
