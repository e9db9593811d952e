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
pub(super) trait Places {
    fn set_place(&mut self, member: u32, place: u32);
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

    pub(super) fn push(&mut self, key: SchedulingKey, member: u32, places: &mut impl Places) {
        self.entries.push((key, member));
        self.sift_up(self.entries.len() - 1, places);
    }

    /// Removes the member at `place`.
    pub(super) fn remove(&mut self, place: u32, places: &mut impl Places) {
        let place = place as usize;
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            self.settle(place, places);
        }
    }

    /// Sets the key of the member at `place`.
    pub(super) fn update(&mut self, place: u32, key: SchedulingKey, places: &mut impl Places) {
        self.entries[place as usize].0 = key;
        // A single member needs no move. This is the most common case.
        if self.entries.len() > 1 {
            self.settle(place as usize, places);
        }
    }

    /// Rewrites every tag and restores the order, which rounding may disturb: members whose tags become equal
    /// are ordered by sequence. O(n).
    pub(super) fn rewrite_tags(&mut self, rewrite: impl Fn(f64) -> f64, places: &mut impl Places) {
        for (key, _) in &mut self.entries {
            key.tag = rewrite(key.tag);
        }
        work::steps(self.entries.len());
        for place in (0..self.entries.len() / 2).rev() {
            self.sift_down(place, places);
        }
    }

    fn settle(&mut self, place: usize, places: &mut impl Places) {
        let risen = self.sift_up(place, places);
        if risen == place {
            self.sift_down(place, places);
        }
    }

    fn sift_up(&mut self, mut place: usize, places: &mut impl Places) -> usize {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if !entry.0.precedes(&self.entries[parent].0) {
                break;
            }
            self.put(place, self.entries[parent], places);
            place = parent;
        }
        self.put(place, entry, places);
        place
    }

    fn sift_down(&mut self, mut place: usize, places: &mut impl Places) {
        let entry = self.entries[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1].0.precedes(&self.entries[child].0) {
                child += 1;
            }
            if !self.entries[child].0.precedes(&entry.0) {
                break;
            }
            self.put(place, self.entries[child], places);
            place = child;
        }
        self.put(place, entry, places);
    }

    fn put(&mut self, place: usize, entry: (SchedulingKey, u32), places: &mut impl Places) {
        work::steps(1);
        self.entries[place] = entry;
        places.set_place(entry.1, place as u32);
    }
}
