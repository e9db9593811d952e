//! The sort key of the order of service, and a heap that keeps it.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::work;

/// The sort key of a FIFO: the finish tag of its group, with ties broken by activation sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SchedulingKey {
    pub(super) tag: f64,
    pub(super) sequence: u64,
}

impl SchedulingKey {
    /// Compares two keys in a total order. Tags are never NaN, and `total_cmp` does not depend on it.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        self.tag.total_cmp(&other.tag).then(self.sequence.cmp(&other.sequence))
    }

    fn precedes(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Less
    }
}

/// A store for the heap index of each member, so that any member can be moved or removed in O(log n).
pub(super) trait HeapIndices {
    fn set_heap_index(&mut self, member: u32, index: u32);
}

/// A binary min-heap of `(key, member)` that tracks the index of each member. Allocates only past its
/// high-water mark.
#[derive(Clone, Debug, Default)]
pub(super) struct SchedulingHeap {
    entries: Vec<(SchedulingKey, u32)>,
}

impl SchedulingHeap {
    pub(super) fn peek(&self) -> Option<(SchedulingKey, u32)> {
        self.entries.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, key: SchedulingKey, member: u32, indices: &mut impl HeapIndices) {
        self.entries.push((key, member));
        self.sift_up(self.entries.len() - 1, indices);
    }

    /// Removes the member at `index`.
    pub(super) fn remove(&mut self, index: u32, indices: &mut impl HeapIndices) {
        let index = index as usize;
        self.entries.swap_remove(index);
        if index < self.entries.len() {
            self.settle(index, indices);
        }
    }

    /// Sets the key of the member at `index`.
    pub(super) fn update(&mut self, index: u32, key: SchedulingKey, indices: &mut impl HeapIndices) {
        self.entries[index as usize].0 = key;
        // A single member needs no move. This is the most common case.
        if self.entries.len() > 1 {
            self.settle(index as usize, indices);
        }
    }

    /// Rewrites every tag and restores the order, which rounding may disturb: members whose tags become equal
    /// are ordered by sequence. O(n).
    pub(super) fn rewrite_tags(&mut self, rewrite: impl Fn(f64) -> f64, indices: &mut impl HeapIndices) {
        for (key, _) in &mut self.entries {
            key.tag = rewrite(key.tag);
        }
        work::steps(self.entries.len());
        for index in (0..self.entries.len() / 2).rev() {
            self.sift_down(index, indices);
        }
    }

    fn settle(&mut self, index: usize, indices: &mut impl HeapIndices) {
        let risen = self.sift_up(index, indices);
        if risen == index {
            self.sift_down(index, indices);
        }
    }

    fn sift_up(&mut self, mut index: usize, indices: &mut impl HeapIndices) -> usize {
        let entry = self.entries[index];
        while index > 0 {
            let parent = (index - 1) / 2;
            if !entry.0.precedes(&self.entries[parent].0) {
                break;
            }
            self.put(index, self.entries[parent], indices);
            index = parent;
        }
        self.put(index, entry, indices);
        index
    }

    fn sift_down(&mut self, mut index: usize, indices: &mut impl HeapIndices) {
        let entry = self.entries[index];
        loop {
            let mut child = 2 * index + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1].0.precedes(&self.entries[child].0) {
                child += 1;
            }
            if !self.entries[child].0.precedes(&entry.0) {
                break;
            }
            self.put(index, self.entries[child], indices);
            index = child;
        }
        self.put(index, entry, indices);
    }

    fn put(&mut self, index: usize, entry: (SchedulingKey, u32), indices: &mut impl HeapIndices) {
        work::steps(1);
        self.entries[index] = entry;
        indices.set_heap_index(entry.1, index as u32);
    }
}
