//! The records of items, groups, FIFOs, classes and blocked sets.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use smallvec::SmallVec;

use super::scheduling::{HeapIndices, SchedulingHeap};
use super::{ClassId, FifoId};

/// Marks a member that is in no heap, or a node without a neighbour.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) cost: f64,
    /// One more than the number of the FIFO. It is never 0, so a slab entry needs no more room than the node.
    fifo_and_one: NonZeroU32,
    pub(super) class: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
}

impl Node {
    /// Creates the node of an item that goes to the end of its FIFO, after `previous`.
    pub(super) fn new(id: u64, cost: f64, fifo: FifoId, class: ClassId, previous: u32) -> Self {
        let fifo_and_one = NonZeroU32::MIN.saturating_add(fifo.0);
        Self { id, cost, fifo_and_one, class: class.0, next: NOWHERE, previous }
    }

    /// Returns the number of the FIFO.
    pub(super) fn fifo(&self) -> u32 {
        self.fifo_and_one.get() - 1
    }
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) weight: f64,
    /// The tag after the last service. `None` until the group is first served.
    pub(super) finish: Option<f64>,
    /// The current tag. Meaningful only while the group has items.
    pub(super) tag: f64,
    /// How far below virtual time refunds may have taken the group. 0 if it was never refunded.
    pub(super) lag: f64,
    /// The refunds beyond the share of the group, as of `allowed_seen`.
    pub(super) lead: f64,
    /// The value of `FairQueue::allowed` when `lead` was computed.
    pub(super) allowed_seen: f64,
    /// The number of items queued in all FIFOs of the group.
    pub(super) len: u32,
    /// The FIFOs of the group in order of registration. The first one always exists.
    pub(super) fifos: SmallVec<[u32; 1]>,
    pub(super) demand: SmallVec<[(ClassId, u32); 1]>,
}

impl Group {
    /// Charges a service that began with `tag`. Returns the virtual time after it.
    #[inline]
    pub(super) fn serve(&mut self, tag: f64, cost: f64, virtual_time: f64) -> f64 {
        let start = tag.max(virtual_time - self.lag);
        let virtual_time = virtual_time.max(start);
        self.tag = start + cost / self.weight;
        self.finish = Some(self.tag);
        if self.lag > 0.0 {
            self.lag = self.lag.min((virtual_time - self.tag).max(0.0));
        }
        virtual_time
    }

    /// Returns the lead for a new value of `FairQueue::allowed`.
    #[inline]
    pub(super) fn lead_at(&self, allowed: f64) -> f64 {
        (self.lead - (allowed - self.allowed_seen)).max(0.0)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Fifo {
    pub(super) group: u32,
    pub(super) sequence: u64,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: u32,
    /// The index in the heap of its head's class or of the parked FIFOs. `NOWHERE` while set aside or empty.
    pub(super) heap_index: u32,
    pub(super) is_parked: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    /// The FIFOs whose head is of this class, except those that are parked or set aside.
    pub(super) fifos: SchedulingHeap,
    /// The index in the heap of its blocked set or of the ready classes. `NOWHERE` while `fifos` is empty.
    pub(super) heap_index: u32,
    /// The blocked set that contains the class. `NOWHERE` for none.
    pub(super) blocked_set: u32,
    /// Items queued.
    pub(super) queued: u64,
    /// The number of FIFOs whose head is of this class, including parked ones.
    pub(super) heads: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct BlockedSet {
    pub(super) classes: SchedulingHeap,
    pub(super) open: bool,
}

impl HeapIndices for Vec<Fifo> {
    fn set_heap_index(&mut self, member: u32, heap_index: u32) {
        self[member as usize].heap_index = heap_index;
    }
}

impl HeapIndices for Vec<Class> {
    fn set_heap_index(&mut self, member: u32, heap_index: u32) {
        self[member as usize].heap_index = heap_index;
    }
}
