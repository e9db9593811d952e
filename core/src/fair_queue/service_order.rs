//! The order of service: which FIFO is next, and how FIFOs and classes move between the heaps.
//!
//! ```text
//! ready classes ----+                     class ---- heap of the FIFOs whose head is of this class
//! blocked sets -----+--- heap of classes
//!                        parked FIFOs: a separate heap
//! ```
//!
//! Every heap orders its members by [`SchedulingKey`]. A FIFO with items is in exactly one heap between two
//! calls.

use super::records::{Class, Fifo, NOWHERE};
use super::scheduling::SchedulingKey;
use super::{Candidate, ClassId, FairQueue, QueueGroupId, REBASE_AT, work};

/// The order of service.
impl FairQueue {
    /// Returns the next FIFO and its class among ready classes and unblocked sets.
    #[inline]
    pub(super) fn front(&mut self) -> Option<(u32, u32)> {
        let mut best = self.ready.peek();
        let mut at = 0;
        while at < self.open_sets.len() {
            work::steps(1);
            let set = &mut self.blocked_sets[self.open_sets[at] as usize];
            let Some(entry) = set.classes.peek() else {
                set.open = false;
                self.open_sets.swap_remove(at);
                continue;
            };
            if best.is_none_or(|(key, _)| entry.0.cmp(&key).is_lt()) {
                best = Some(entry);
            }
            at += 1;
        }
        let (_, class) = best?;
        let (_, fifo) = self.classes[class as usize].fifos.peek()?;
        Some((fifo, class))
    }

    pub(super) fn candidate(&self, fifo: u32) -> Candidate {
        let Fifo { group, head, .. } = self.fifos[fifo as usize];
        let node = &self.nodes[head];
        Candidate { item: node.id, group: QueueGroupId(group), class: ClassId(node.class), cost: node.cost }
    }

    fn head_class(&self, fifo: u32) -> u32 {
        self.nodes[self.fifos[fifo as usize].head].class
    }

    /// Returns whether a FIFO stays in the heap of its class when its head is removed. False for a parked
    /// FIFO.
    pub(super) fn stays_in_class(&self, fifo: u32, class: u32) -> bool {
        let entry = &self.fifos[fifo as usize];
        let next = self.nodes[entry.head].next;
        !entry.is_parked && next != NOWHERE && self.nodes[next].class == class
    }

    /// Removes a FIFO from its heap, parked or not, because its head is about to be removed.
    pub(super) fn leave(&mut self, fifo: u32) {
        if !self.unlink_parked(fifo) {
            self.exit(fifo);
        }
    }

    /// Inserts a FIFO that has items into the heap of its head's class.
    pub(super) fn insert(&mut self, fifo: u32) {
        work::steps(1);
        let class = self.head_class(fifo);
        let key = self.key(fifo);
        self.classes[class as usize].fifos.push(key, fifo, &mut self.fifos);
        self.restore_position(class);
    }

    pub(super) fn key(&self, fifo: u32) -> SchedulingKey {
        let Fifo { group, sequence, .. } = self.fifos[fifo as usize];
        SchedulingKey { tag: self.groups[group as usize].tag, sequence }
    }

    /// Moves the FIFOs of a group, except `served`, to the group's current tag. O(FIFOs log groups).
    #[cold]
    pub(super) fn move_fifos(&mut self, group: QueueGroupId, served: Option<u32>) {
        for at in 0..self.groups[group.index()].fifos.len() {
            let fifo = self.groups[group.index()].fifos[at];
            work::steps(1);
            if Some(fifo) == served || self.fifos[fifo as usize].len == 0 {
                continue;
            }
            let (key, heap_index) = (self.key(fifo), self.fifos[fifo as usize].heap_index);
            if self.fifos[fifo as usize].is_parked {
                self.parked.update(heap_index, key, &mut self.fifos);
            } else {
                let class = self.head_class(fifo);
                self.classes[class as usize].fifos.update(heap_index, key, &mut self.fifos);
                self.restore_position(class);
            }
        }
    }

    /// Removes a FIFO from the heap of its head's class.
    pub(super) fn exit(&mut self, fifo: u32) {
        work::steps(1);
        let class = self.head_class(fifo);
        let heap_index = core::mem::replace(&mut self.fifos[fifo as usize].heap_index, NOWHERE);
        self.classes[class as usize].fifos.remove(heap_index, &mut self.fifos);
        self.restore_position(class);
    }

    pub(super) fn unlink_parked(&mut self, fifo: u32) -> bool {
        work::steps(1);
        let entry = &mut self.fifos[fifo as usize];
        if !core::mem::take(&mut entry.is_parked) {
            return false;
        }
        let heap_index = core::mem::replace(&mut entry.heap_index, NOWHERE);
        self.parked.remove(heap_index, &mut self.fifos);
        true
    }

    /// Moves a blocked class to `set` and closes the set, because the blocked class shows that the other
    /// members are blocked too.
    #[inline]
    pub(super) fn park_class(&mut self, class: u32, set: u32) {
        if self.classes[class as usize].blocked_set != set {
            self.clear_position(class);
            self.classes[class as usize].blocked_set = set;
            self.restore_position(class);
        }
        if core::mem::replace(&mut self.blocked_sets[set as usize].open, false) {
            work::steps(self.open_sets.len());
            if let Some(at) = self.open_sets.iter().position(|open| *open == set) {
                self.open_sets.swap_remove(at);
            }
        }
    }

    /// Updates the position of a class among its peers to match its first FIFO.
    pub(super) fn restore_position(&mut self, class: u32) {
        work::steps(1);
        let Class { ref fifos, heap_index, blocked_set: set, .. } = self.classes[class as usize];
        let Some((key, _)) = fifos.peek() else {
            self.clear_position(class);
            self.classes[class as usize].blocked_set = NOWHERE;
            return;
        };
        let heap = if set == NOWHERE { &mut self.ready } else { &mut self.blocked_sets[set as usize].classes };
        if heap_index == NOWHERE {
            heap.push(key, class, &mut self.classes);
        } else {
            heap.update(heap_index, key, &mut self.classes);
        }
    }

    pub(super) fn clear_position(&mut self, class: u32) {
        work::steps(1);
        let entry = &mut self.classes[class as usize];
        let heap_index = core::mem::replace(&mut entry.heap_index, NOWHERE);
        if heap_index == NOWHERE {
            return;
        }
        let heap = if entry.blocked_set == NOWHERE {
            &mut self.ready
        } else {
            &mut self.blocked_sets[entry.blocked_set as usize].classes
        };
        heap.remove(heap_index, &mut self.classes);
    }

    /// Moves the origin of virtual time, so that tags keep their precision. O(groups), once per 2^20 of
    /// virtual time.
    pub(super) fn rebase(&mut self) {
        // A multiple of 2^20 is subtracted exactly from every tag at or above it.
        let base = REBASE_AT * ((self.virtual_time / REBASE_AT) as u64 as f64);
        // A tag far in the past only means "first". The bound keeps the subtraction meaningful forever.
        let shift = |tag: f64| (tag - base).max(-4.0 * REBASE_AT);
        self.virtual_time = shift(self.virtual_time);
        work::steps(self.groups.len());
        for group in &mut self.groups {
            group.tag = shift(group.tag);
            group.finish = group.finish.map(shift);
        }
        for at in 0..self.classes.len() {
            let mut heap = core::mem::take(&mut self.classes[at].fifos);
            heap.rewrite_tags(shift, &mut self.fifos);
            self.classes[at].fifos = heap;
        }
        self.parked.rewrite_tags(shift, &mut self.fifos);
        self.ready.rewrite_tags(shift, &mut self.classes);
        for set in &mut self.blocked_sets {
            set.classes.rewrite_tags(shift, &mut self.classes);
        }
    }
}
