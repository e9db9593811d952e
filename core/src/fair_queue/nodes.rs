//! Where queued items are kept, found by their id.
//!
//! A slab of nodes and an index of slots. The index holds no ids of its own, since the nodes have them, and the slab
//! grows by a quarter: an item takes 32 bytes in the slab, at most 40 with its room to grow, and 6 to 12 in the index.

use alloc::vec::Vec;
use core::hash::Hasher;
use core::ops::{Index, IndexMut};

use hashbrown::HashTable;

use super::records::Node;
use crate::handle::FixedHasher;

/// The least number of nodes that the slab grows by.
const SMALLEST_GROWTH: usize = 16;

/// The queued items of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    slab: Vec<Node>,
    free: Vec<u32>,
    /// Slots by the id of their node.
    index: HashTable<u32>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The slot of an item. O(1).
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.index.find(hash(id), |slot| self.slab[*slot as usize].id == id).copied()
    }

    /// The ids of all items, in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.index.iter().map(|slot| self.slab[*slot as usize].id)
    }

    /// Keeps an item that is not kept yet; answers its slot. O(1) amortised.
    pub(super) fn insert(&mut self, node: Node) -> u32 {
        let hash_of_node = hash(node.id);
        let slot = if let Some(slot) = self.free.pop() {
            self.slab[slot as usize] = node;
            slot
        } else {
            if self.slab.len() == self.slab.capacity() {
                self.slab.reserve_exact((self.slab.len() / 4).max(SMALLEST_GROWTH));
            }
            self.slab.push(node);
            (self.slab.len() - 1) as u32
        };
        let Self { slab, index, .. } = self;
        index.insert_unique(hash_of_node, slot, |slot| hash(slab[*slot as usize].id));
        slot
    }

    /// Forgets the item in a slot. O(1).
    pub(super) fn remove(&mut self, slot: u32) {
        let id = self.slab[slot as usize].id;
        if let Ok(entry) = self.index.find_entry(hash(id), |known| *known == slot) {
            entry.remove();
            self.free.push(slot);
        }
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

fn hash(id: u64) -> u64 {
    let mut hasher = FixedHasher::default();
    hasher.write_u64(id);
    hasher.finish()
}
