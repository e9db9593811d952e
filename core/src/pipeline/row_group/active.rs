//! The admitted row groups in the order of their numbers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::group::RowGroup;

/// Row groups are admitted in the order of their numbers, and end in about that order: a queue that is
/// searched.
///
/// Finding one is O(log admitted); the end of one moves a pointer for each of those between it and the nearer
/// end.
#[derive(Debug, Default)]
pub(crate) struct ActiveRowGroups(VecDeque<Box<RowGroup>>);

impl ActiveRowGroups {
    /// Adds one that comes after all the others.
    pub(super) fn push(&mut self, group: RowGroup) {
        debug_assert!(
            self.0.back().is_none_or(|last| last.number() < group.number()),
            "row groups are admitted in order"
        );
        self.0.push_back(Box::new(group));
    }

    pub(crate) fn get(&self, row_group: u32) -> Option<&RowGroup> {
        self.place(row_group).map(|place| &*self.0[place])
    }

    pub(super) fn get_mut(&mut self, row_group: u32) -> Option<&mut RowGroup> {
        self.place(row_group).map(|place| &mut *self.0[place])
    }

    /// The first one whose number is at least `row_group`.
    pub(crate) fn first_from(&self, row_group: u32) -> Option<&RowGroup> {
        let place = self.0.partition_point(|group| group.number() < row_group);
        self.0.get(place).map(|group| &**group)
    }

    pub(super) fn remove(&mut self, row_group: u32) {
        if let Some(place) = self.place(row_group) {
            self.0.remove(place);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RowGroup> {
        self.0.iter().map(|group| &**group)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RowGroup> {
        self.0.iter_mut().map(|group| &mut **group)
    }

    fn place(&self, row_group: u32) -> Option<usize> {
        self.0.binary_search_by(|group| group.number().cmp(&row_group)).ok()
    }
}
