//! When a task that failed for now is tried again.
//!
//! | the failure | what happens |
//! | --- | --- |
//! | rate limited, admission timeout | *delayed*: queued again after `max(retry_floor, retry_after)`, as often as it takes |
//! | any other that may pass | *deferred* to the next round of its row group, or dropped when its rounds are used up |
//!
//! A round begins when no worker has a task of the row group and none is queued; delayed tasks do not hold it up.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::pipeline::outcome::{DropReason, RetryKind};
use crate::time::{Duration, Instant};

/// The settings that decide.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Salvage {
    pub(in crate::pipeline) rounds: u32,
    pub(in crate::pipeline) floor: Duration,
    pub(in crate::pipeline) ceiling: Duration,
}

/// What becomes of a task that did not end for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum Verdict {
    Delay { until: Instant },
    Defer { not_before: Instant },
    Drop(DropReason),
}

impl Salvage {
    /// Judges a retryable failure of a task that has used up `rounds` salvage rounds.
    pub(in crate::pipeline) fn judge(
        self,
        now: Instant,
        kind: RetryKind,
        retry_after: Option<Duration>,
        rounds: u8,
    ) -> Verdict {
        let pause = retry_after.unwrap_or(Duration::ZERO).min(self.ceiling);
        if kind.is_preserved() {
            return Verdict::Delay { until: now + pause.max(self.floor) };
        }
        self.defer(now + pause, DropReason::RetriesExhausted(kind), rounds)
    }

    /// Judges a task whose worker was lost.
    pub(in crate::pipeline) fn judge_lost(self, now: Instant, rounds: u8) -> Verdict {
        self.defer(now, DropReason::WorkerLost, rounds)
    }

    fn defer(self, not_before: Instant, reason: DropReason, rounds: u8) -> Verdict {
        if u32::from(rounds) < self.rounds { Verdict::Defer { not_before } } else { Verdict::Drop(reason) }
    }
}

/// The delayed tasks, by the instant each is due and then by the order they came.
///
/// A task whose row is dropped while it waits leaves its entry behind; such entries are swept once they are half of
/// all, so memory is bounded by twice the tasks that wait.
#[derive(Clone, Debug, Default)]
pub(in crate::pipeline) struct Delays {
    heap: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    sequence: u64,
    dead: usize,
}

impl Delays {
    pub(in crate::pipeline) fn len(&self) -> usize {
        self.heap.len() - self.dead
    }

    pub(in crate::pipeline) fn push(&mut self, due: Instant, task: u64) {
        self.heap.push(Reverse((due, self.sequence, task)));
        self.sequence += 1;
    }

    /// The entry of one task is dead: its row was dropped.
    pub(in crate::pipeline) fn bury(&mut self) {
        self.dead += 1;
    }

    /// When a delayed task is due. O(delayed tasks).
    pub(in crate::pipeline) fn due_of(&self, task: u64) -> Option<Instant> {
        self.heap.iter().filter(|Reverse((_, _, other))| *other == task).map(|Reverse((due, ..))| *due).min()
    }

    /// The instant of the first entry. Exact after a [`Delays::sweep`].
    pub(in crate::pipeline) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes a task that is due, in order, if `is_alive`.
    pub(in crate::pipeline) fn pop_due(&mut self, now: Instant, is_alive: impl Fn(u64) -> bool) -> Option<u64> {
        while self.next_due()? <= now {
            let Reverse((_, _, task)) = self.heap.pop()?;
            if is_alive(task) {
                return Some(task);
            }
            self.dead -= 1;
        }
        None
    }

    /// Removes dead entries from the front, and all of them when they are many. O(log n) amortised per dead entry.
    pub(in crate::pipeline) fn sweep(&mut self, is_alive: impl Fn(u64) -> bool) {
        if self.dead * 2 > self.heap.len() {
            self.heap.retain(|Reverse((_, _, task))| is_alive(*task));
            self.dead = 0;
        }
        while self.dead > 0 && self.heap.peek().is_some_and(|Reverse((_, _, task))| !is_alive(*task)) {
            self.heap.pop();
            self.dead -= 1;
        }
    }

    pub(in crate::pipeline) fn clear(&mut self) {
        self.heap.clear();
        self.dead = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_entries_neither_wake_the_machine_nor_pile_up() {
        let mut delays = Delays::default();
        for task in 0..100 {
            delays.push(Instant::from_nanos(task), task);
        }
        let alive = |task: u64| task >= 60;
        for _ in 0..60 {
            delays.bury();
        }
        delays.sweep(alive);
        assert_eq!((delays.len(), delays.heap.len()), (40, 40));
        assert_eq!(delays.next_due(), Some(Instant::from_nanos(60)));
    }

    #[test]
    fn tasks_due_at_one_instant_keep_their_order() {
        let mut delays = Delays::default();
        for task in [7, 3, 5] {
            delays.push(Instant::ZERO, task);
        }
        let order: [Option<u64>; 4] = core::array::from_fn(|_| delays.pop_due(Instant::ZERO, |_| true));
        assert_eq!(order, [Some(7), Some(3), Some(5), None]);
    }

    #[test]
    fn a_provider_cannot_ask_for_a_pause_beyond_the_ceiling() {
        let salvage = Salvage { rounds: 0, floor: Duration::from_millis(50), ceiling: Duration::from_secs(600) };
        let until = |kind, after| salvage.judge(Instant::ZERO, kind, after, 9);
        let delay = |span| Verdict::Delay { until: Instant::ZERO + span };
        assert_eq!(until(RetryKind::RateLimited, Some(Duration::MAX)), delay(Duration::from_secs(600)));
        assert_eq!(until(RetryKind::AdmissionTimeout, None), delay(Duration::from_millis(50)));
    }
}
