//! A queue of entries ordered by instant, in which every machine of the crate keeps its deadlines.
//!
//! Entries are never removed from the middle. An entry becomes *outdated* when its reason is gone before it
//! is due: for example, a waiter with a timeout was granted. The owner decides this, and the queue discards
//! the entry when it reaches the front.
//!
//! ```text
//! arm       pushes; sweeps first once the entries are twice as many as the last sweep left, and at least 64
//! pop_due   removes the first entry that is due and not outdated
//! trim      discards outdated entries from the front, so that `next` is exact
//! ```
//!
//! Memory is bounded: there are at most `max(64, 2 * n)` entries, where `n` is the largest number of
//! current entries at any sweep. Sweeps cost O(1) amortised per armed entry.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::time::Instant;

/// The number of entries below which the queue is never swept.
const MIN_SWEEP: usize = 64;

/// A queue of entries ordered by instant, and then by `T`.
#[derive(Clone, Debug)]
pub(crate) struct TimerQueue<T> {
    heap: BinaryHeap<Reverse<(Instant, T)>>,
    /// The number of entries at which outdated ones are swept.
    sweep_at: usize,
}

impl<T: Ord> Default for TimerQueue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sweep_at: MIN_SWEEP }
    }
}

impl<T: Ord> TimerQueue<T> {
    /// Adds an entry. `is_current` returns whether an entry still matters. O(log n) amortised.
    pub(crate) fn arm(&mut self, at: Instant, item: T, is_current: impl Fn(Instant, &T) -> bool) {
        if self.heap.len() >= self.sweep_at {
            self.heap.retain(|Reverse((at, item))| is_current(*at, item));
            self.sweep_at = (2 * self.heap.len()).max(MIN_SWEEP);
        }
        self.heap.push(Reverse((at, item)));
    }

    /// Removes and returns the first entry that is current and due by `now`. Discards outdated entries
    /// before it.
    pub(crate) fn pop_due(&mut self, now: Instant, is_current: impl Fn(Instant, &T) -> bool) -> Option<(Instant, T)> {
        while self.next()? <= now {
            let Reverse((at, item)) = self.heap.pop()?;
            if is_current(at, &item) {
                return Some((at, item));
            }
        }
        None
    }

    /// Discards outdated entries from the front, after which [`TimerQueue::next`] is exact.
    pub(crate) fn trim(&mut self, is_current: impl Fn(Instant, &T) -> bool) {
        while let Some(Reverse((at, item))) = self.heap.peek() {
            if is_current(*at, item) {
                return;
            }
            self.heap.pop();
        }
    }

    /// Returns the instant of the first entry. It may be too early, because the entry may be outdated,
    /// unless [`TimerQueue::trim`] ran since the last change.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Iterates over all entries with their instants, including outdated ones, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instant, &T)> {
        self.heap.iter().map(|Reverse((at, item))| (*at, item))
    }

    /// Removes every entry.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.sweep_at = MIN_SWEEP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn due_entries_are_popped_by_instant_and_then_by_value() {
        let mut queue = TimerQueue::default();
        for (instant, item) in [(2, 7), (1, 9), (2, 3), (5, 0)] {
            queue.arm(at(instant), item, |_, _| true);
        }
        let mut due = || queue.pop_due(at(4), |_, _| true);
        assert_eq!([due(), due(), due(), due()], [Some((at(1), 9)), Some((at(2), 3)), Some((at(2), 7)), None]);
        assert_eq!(queue.next(), Some(at(5)));
    }

    #[test]
    fn outdated_entries_are_not_popped_and_do_not_set_the_next_instant() {
        let mut queue = TimerQueue::default();
        (0..40).for_each(|item| queue.arm(at(item), item, |_, _| true));
        let is_current = |_, item: &u64| *item % 10 == 9;
        queue.trim(is_current);
        assert_eq!(queue.next(), Some(at(9)));
        assert_eq!(queue.pop_due(at(20), is_current), Some((at(9), 9)));
        assert_eq!(queue.pop_due(at(20), is_current), Some((at(19), 19)));
        assert_eq!(queue.pop_due(at(20), is_current), None);
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_current_entries() {
        let mut queue = TimerQueue::default();
        for item in 0..100_000 {
            // The last hundred entries are current.
            queue.arm(at(1_000_000 - item), item, |_, other| other + 100 >= item);
            assert!(queue.heap.len() <= 202, "{} entries for 100 that matter", queue.heap.len());
        }
        queue.clear();
        assert_eq!((queue.next(), queue.iter().count()), (None, 0));
    }
}
