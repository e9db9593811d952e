//! Order in little code: every kind of element that is sorted or kept in a tree is compiled once more, and a browser
//! loads it all.
//!
//! The sorts of the standard library are fast and large, 4 KiB for each kind of element. Lists that are short, or sorted
//! once in a run, go through here.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::iter::from_fn;

/// Numbers by keys of three words, in the order of the keys; keys of several parts are put in words so that the order of the
/// words is theirs.
///
/// A B-tree of two levels: runs of entries in one list. Finding is O(log n), adding and taking out O(log n) and the moving of a run's
/// entries, at most 64; one change in 32 moves the list of runs too, 24 bytes for each. The B-tree of the standard
/// library is 14 KiB of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct WordMap {
    /// None of them is empty, unless it is the only one: it is kept for the next entry.
    runs: Vec<Vec<Entry>>,
}

/// What a [`WordMap`] is ordered by.
pub(crate) type Words = [u64; 3];
type Entry = (Words, u64);

/// Entries of a run, at most.
const LONGEST_RUN: usize = 64;

impl WordMap {
    /// Puts a number in place of any that its key had.
    pub(crate) fn insert(&mut self, key: Words, value: u64) {
        let (nth, place) = self.place(key);
        let Some(run) = self.runs.get_mut(nth) else { return self.runs.push(alloc::vec![(key, value)]) };
        match run.get_mut(place).filter(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => run.insert(place, (key, value)),
        }
        if run.len() == LONGEST_RUN {
            let mut second = Vec::with_capacity(LONGEST_RUN);
            second.extend(run.drain(LONGEST_RUN / 2..));
            self.runs.insert(nth + 1, second);
        }
    }

    /// Takes a key out, if it is there.
    pub(crate) fn remove(&mut self, key: Words) {
        let (nth, place) = self.place(key);
        let Some(run) = self.runs.get_mut(nth).filter(|run| run.get(place).is_some_and(|(known, _)| *known == key))
        else {
            return;
        };
        run.remove(place);
        if run.is_empty() && self.runs.len() > 1 {
            self.runs.remove(nth);
        } else if !self.join(nth) && nth > 0 {
            self.join(nth - 1);
        }
    }

    /// Makes one of two runs that are short together, so that there are never many runs of few entries.
    fn join(&mut self, nth: usize) -> bool {
        let Some([first, second]) = self.runs.get_mut(nth..nth + 2) else { return false };
        let are_short = first.len() + second.len() <= LONGEST_RUN / 2;
        if are_short {
            first.append(second);
            self.runs.remove(nth + 1);
        }
        are_short
    }

    /// The entries from `first` on, ascending.
    pub(crate) fn range_from(&self, first: Words) -> impl Iterator<Item = Entry> {
        let (mut nth, mut place) = self.place(first);
        from_fn(move || {
            let run = self.runs.get(nth)?;
            if let Some(entry) = run.get(place) {
                place += 1;
                return Some(*entry);
            }
            nth += 1;
            place = 1;
            self.runs.get(nth)?.first().copied()
        })
    }

    /// The last entry before `end`.
    pub(crate) fn last_before(&self, end: Words) -> Option<Entry> {
        let (nth, place) = self.place(end);
        let before = self.runs.get(nth)?.get(..place)?;
        // All of a run's entries are after those of the run before.
        before.last().or_else(|| self.runs.get(nth.checked_sub(1)?)?.last()).copied()
    }

    /// The run in which a key is or would be, and its place there.
    fn place(&self, key: Words) -> (usize, usize) {
        let begin_after = self.runs.partition_point(|run| run.first().is_none_or(|(first, _)| *first <= key));
        let nth = begin_after.saturating_sub(1);
        (nth, self.runs.get(nth).map_or(0, |run| run.partition_point(|(known, _)| *known < key)))
    }
}

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
    use alloc::collections::BTreeMap;

    use super::*;

    /// A generator of Marsaglia's kind, for this test.
    fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn a_map_of_words_is_at_all_times_what_a_map_of_the_standard_library_is() {
        for seed in 1..=40 {
            let mut draw = draws(seed);
            let (mut map, mut model) = (WordMap::default(), BTreeMap::new());
            // It grows, stays, and shrinks to nothing.
            for step in 0..3_000_u64 {
                let key = [draw(2), draw(3), draw(200)];
                if draw(3_000) > step {
                    map.insert(key, step);
                    model.insert(key, step);
                } else {
                    let key = if draw(2) == 0 { key } else { model.range(key..).next().map_or(key, |(key, _)| *key) };
                    map.remove(key);
                    model.remove(&key);
                }
                let from = [draw(2), draw(4), draw(220)];
                assert_eq!(
                    map.last_before(from),
                    model.range(..from).next_back().map(|(k, v)| (*k, *v)),
                    "seed {seed}"
                );
                assert!(
                    map.range_from(from).take(70).eq(model.range(from..).take(70).map(|(k, v)| (*k, *v))),
                    "seed {seed}"
                );
                let least = usize::from(map.runs.len() > 1);
                assert!(map.runs.iter().all(|run| (least..LONGEST_RUN).contains(&run.len())), "seed {seed}");
                let are_long = |pair: &[Vec<Entry>]| pair[0].len() + pair[1].len() > LONGEST_RUN / 2;
                assert!(map.runs.windows(2).all(are_long), "seed {seed}: two runs are short");
            }
        }
    }

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
