//! The storage of queued items: a slab, and an index from item ids to slots for the items that are indexed.
//!
//! The index stores only slots, because the nodes contain the ids. An item uses 32 bytes in the slab, or at
//! most 40 including the room to grow by a quarter, and 6 to 12 bytes in the index.

use core::hash::BuildHasher;
use core::ops::{Index, IndexMut};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use slab::Slab;

use super::records::Node;

/// The smallest number of items that the slab grows by.
const SMALLEST_GROWTH: usize = 16;

/// The queued items of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    slab: Slab<Node>,
    /// The slots by the id of their node. Contains all items, or none.
    index: HashTable<u32>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the slot of an indexed item. O(1).
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.index.find(hash_of(id), |slot| self[*slot].id == id).copied()
    }

    /// Iterates over the ids of all items, in slot order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.slab.iter().map(|(_, node)| node.id)
    }

    /// Stores an item with an index entry and returns its slot, or `None` if an item with this id is already
    /// stored. O(1) amortised.
    pub(super) fn insert(&mut self, node: Node) -> Option<u32> {
        if self.find(node.id).is_some() {
            return None;
        }
        let hash = hash_of(node.id);
        let slot = self.add(node);
        let Self { slab, index } = self;
        index.insert_unique(hash, slot, |known| hash_of(slab[*known as usize].id));
        Some(slot)
    }

    /// Stores an item without an index entry and returns its slot. O(1) amortised.
    pub(super) fn add(&mut self, node: Node) -> u32 {
        if self.slab.len() == self.slab.capacity() {
            self.slab.reserve_exact((self.slab.len() / 4).max(SMALLEST_GROWTH));
        }
        self.slab.insert(node) as u32
    }

    /// Removes the item in a slot. O(1).
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let node = self.slab.remove(slot as usize);
        // Without an index, items are found only by their slots.
        if self.index.is_empty() {
            return;
        }
        if let Ok(entry) = self.index.find_entry(hash_of(node.id), |known| *known == slot) {
            entry.remove();
        }
    }
}

fn hash_of(id: u64) -> u64 {
    FxBuildHasher.hash_one(id)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_uses_32_bytes_in_the_slab() {
        // An entry of a slab is a node or a link to the next free entry, as modelled here.
        #[allow(dead_code)]
        enum Entry {
            Vacant(usize),
            Occupied(Node),
        }
        assert_eq!(size_of::<Entry>(), 32);
    }
}
