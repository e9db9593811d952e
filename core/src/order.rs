//! Order in little code: every kind of element that is sorted or kept in a tree is compiled once more, and a browser
//! loads it all.
//!
//! The sorts of the standard library are fast and large, 4 KiB for each kind of element. Lists that are short, or sorted
//! once in a run, go through here.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;

/// The one B-tree of the machines. Each further pair of key and value types would be 8 KiB of code once more; keys of
/// several parts are put in words so that the order of the words is theirs.
pub(crate) type WordTree = BTreeMap<[u64; 3], u64>;

/// The items in ascending order, in place. O(n log n); equal ones in any order.
pub(crate) fn sorted<T: Ord>(items: Vec<T>) -> Vec<T> {
    BinaryHeap::from(items).into_sorted_vec()
}

/// Adds an item to a list that is ascending and distinct, unless it is there. O(n).
pub(crate) fn insert_distinct<T: Ord>(items: &mut Vec<T>, item: T) {
    if let Err(place) = items.binary_search(&item) {
        items.insert(place, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_ascending_order() {
        assert_eq!(sorted(alloc::vec![5, 1, 4, 1, 9, 0]), [0, 1, 1, 4, 5, 9]);
        assert!(sorted(Vec::<u32>::new()).is_empty());
    }

    #[test]
    fn an_item_is_kept_once() {
        let mut items = Vec::new();
        for item in [3, 1, 2, 3, 1] {
            insert_distinct(&mut items, item);
        }
        assert_eq!(items, [1, 2, 3]);
    }
}
