//! Where queued items are kept, found by their slot, and by their id if they are in the index.
//!
//! A slab of nodes and an index of slots. The index holds no ids of its own, since the nodes have them, and the slab
//! grows by a quarter: an item takes 32 bytes in the slab, at most 40 with its room to grow, and 8 to 13 in the index
//! if it is there.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::records::Node;
use crate::chains::{Chains, hash};

/// The least number of nodes that the slab grows by.
const SMALLEST_GROWTH: usize = 16;

/// The queued items of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    slab: Vec<Node>,
    free: Vec<u32>,
    /// Slots by the id of their node: of all items, or of none.
    index: Chains,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// The slot of an item. O(1).
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.index.find(hash(&id), |slot| self.slab[slot as usize].id == id)
    }

    /// The ids of all items, in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.index.iter().map(|slot| self.slab[slot as usize].id)
    }

    /// Keeps an item in the index and answers its slot, unless one of this id is kept. O(1) amortised.
    pub(super) fn insert(&mut self, node: Node) -> Option<u32> {
        let hash_of_id = hash(&node.id);
        if self.index.find(hash_of_id, |slot| self.slab[slot as usize].id == node.id).is_some() {
            return None;
        }
        let slot = self.add(node);
        let Self { slab, index, .. } = self;
        index.insert(hash_of_id, slot, &|known| hash(&slab[known as usize].id));
        Some(slot)
    }

    /// Keeps an item that only its slot will find, and answers that. O(1) amortised.
    pub(super) fn add(&mut self, node: Node) -> u32 {
        let Self { slab, free, .. } = self;
        let slot = free.pop().unwrap_or(slab.len() as u32);
        if let Some(unused) = slab.get_mut(slot as usize) {
            *unused = node;
        } else {
            if slab.len() == slab.capacity() {
                slab.reserve_exact((slab.len() / 4).max(SMALLEST_GROWTH));
            }
            slab.push(node);
        }
        slot
    }

    /// Forgets the item in a slot. O(1).
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        if self.index.len() > 0 {
            self.index.remove(hash(&self.slab[slot as usize].id), slot);
        }
        self.free.push(slot);
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, slot: u32) -> &Node {
        &self.slab[slot as usize]
    }
}

impl IndexMut<u32> for Nodes {
    fn index_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.slab[slot as usize]
    }
}
