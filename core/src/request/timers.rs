//! The instants a controller waits for, behind the one deadline it tells its host.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::id::SlotKey;
use crate::time::Instant;

/// What falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A waiter's deadline.
    Deadline(SlotKey),
    /// A change by time alone at a provider and model that has waiters: a cooldown ends, a ramp steps, a budget refills.
    Wake(u32),
}

/// A heap whose outdated entries are dropped when they surface, and swept when they outnumber the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    /// Adds an instant. `live` bounds the entries that still matter; `is_current` says which do.
    pub(super) fn arm(&mut self, at: Instant, timer: Timer, live: usize, is_current: impl Fn(Instant, Timer) -> bool) {
        if self.heap.len() > 2 * live + 64 {
            self.heap.retain(|Reverse((at, timer))| is_current(*at, *timer));
        }
        self.heap.push(Reverse((at, timer)));
    }

    /// Takes out the next entry that is due, outdated or not.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Drops outdated entries until the first one counts, so that [`Timers::next`] can be read without effort.
    pub(super) fn trim(&mut self, is_current: impl Fn(Instant, Timer) -> bool) {
        while let Some(Reverse((at, timer))) = self.heap.peek() {
            if is_current(*at, *timer) {
                break;
            }
            self.heap.pop();
        }
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
