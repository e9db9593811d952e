//! The active row groups, ascending by number.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::group::RowGroup;

/// The active row groups in a sorted queue.
///
/// Row groups are admitted in ascending order, unless the host claims them, and end in about that order. A
/// lookup costs O(log active). A removal moves one pointer for each row group between it and the nearer end.
#[derive(Debug, Default)]
pub(crate) struct ActiveRowGroups(VecDeque<Box<RowGroup>>);

impl ActiveRowGroups {
    /// Adds a row group that is not active.
    pub(super) fn insert(&mut self, group: RowGroup) {
        let index = self.0.partition_point(|known| known.number() < group.number());
        debug_assert!(self.get(group.number()).is_none(), "a row group is admitted once");
        self.0.insert(index, Box::new(group));
    }

    pub(crate) fn get(&self, row_group: u32) -> Option<&RowGroup> {
        self.index(row_group).map(|index| &*self.0[index])
    }

    pub(super) fn get_mut(&mut self, row_group: u32) -> Option<&mut RowGroup> {
        self.index(row_group).map(|index| &mut *self.0[index])
    }

    /// Returns the first row group whose number is at least `row_group`.
    pub(crate) fn first_from(&self, row_group: u32) -> Option<&RowGroup> {
        let index = self.0.partition_point(|group| group.number() < row_group);
        self.0.get(index).map(|group| &**group)
    }

    pub(super) fn remove(&mut self, row_group: u32) {
        if let Some(index) = self.index(row_group) {
            self.0.remove(index);
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

    fn index(&self, row_group: u32) -> Option<usize> {
        self.0.binary_search_by(|group| group.number().cmp(&row_group)).ok()
    }
}
