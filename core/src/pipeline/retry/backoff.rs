//! Decides when a failed task is retried.
//!
//! - After a rate limit or an admission timeout, the task is *delayed*: it is queued again after
//!   `max(retry_floor, retry_after)`, without a limit on the number of retries.
//! - After any other retryable failure, the task is *deferred*: it waits for the next salvage round of its
//!   row group, and until its backoff and `retry_after` are over. It is dropped when its retries are used up.
//!
//! A round begins when no worker has a task of the row group and none is queued. Retries therefore run after
//! the fresh work of their row group. Delayed tasks do not hold up a round. The backoff is 1, 2, 4, ... s, up
//! to a minute. It varies by up to a fifth, so that tasks that failed together are not retried together.

use core::hash::Hasher;

use crate::backoff;
use crate::pipeline::outcome::{DropReason, RetryKind};
use crate::pipeline::plan::key::TaskKey;
use crate::portable_hasher::PortableHasher;
use crate::time::{Duration, Instant};
use crate::timer_queue::TimerQueue;

/// The settings of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// The number of the run. It makes the jitter of two runs differ.
    pub(crate) run: u64,
    pub(crate) retries: u32,
    pub(crate) floor: Duration,
    pub(crate) ceiling: Duration,
}

/// What happens to a task after a failure that is not permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Queue the task again at an instant.
    Delay { until: Instant },
    /// Keep the task for the next salvage round of its row group, and at least until an instant.
    Defer { not_before: Instant },
    /// Drop the row of the task.
    Drop(DropReason),
}

impl RetryPolicy {
    /// Decides what happens after a retryable failure. `retries` is the number of retries that the task has
    /// used.
    pub(crate) fn after_failure(
        self,
        now: Instant,
        task: TaskKey,
        kind: RetryKind,
        retry_after: Option<Duration>,
        retries: u8,
    ) -> RetryDecision {
        let delay = retry_after.unwrap_or(Duration::ZERO).min(self.ceiling);
        if kind.is_preserved() {
            return RetryDecision::Delay { until: now + delay.max(self.floor) };
        }
        self.defer(now + delay.max(self.backoff(task, retries)), DropReason::RetriesExhausted(kind), retries)
    }

    /// Decides what happens to a task whose worker was lost or could not be started.
    pub(crate) fn after_lost_worker(self, now: Instant, retries: u8) -> RetryDecision {
        self.defer(now, DropReason::WorkerLost, retries)
    }

    fn defer(self, not_before: Instant, reason: DropReason, retries: u8) -> RetryDecision {
        if u32::from(retries) < self.retries {
            RetryDecision::Defer { not_before }
        } else {
            RetryDecision::Drop(reason)
        }
    }

    /// Returns the delay before the next retry of a task.
    fn backoff(self, task: TaskKey, retries: u8) -> Duration {
        let mut hash = PortableHasher::default();
        hash.write_u64(self.run);
        hash.write_u64(task.to_bits());
        hash.write_u32(u32::from(retries));
        backoff::before_retry(u32::from(retries), backoff::LONGEST_RETRY, &hash)
    }
}

/// The retry policy, and the delayed tasks.
///
/// The entry of a task that is dropped while it is delayed stays in the queue. It is recognized as outdated
/// by the state of the task.
#[derive(Clone, Debug)]
pub(crate) struct Retries {
    policy: RetryPolicy,
    /// By instant, and then in the order of insertion.
    delayed: TimerQueue<Delayed>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Delayed {
    sequence: u64,
    task: TaskKey,
}

impl Retries {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, delayed: TimerQueue::default(), sequence: 0 }
    }

    pub(crate) fn policy(&self) -> RetryPolicy {
        self.policy
    }

    /// Delays a task until `due`. `is_delayed` returns whether a task is in the delayed state.
    pub(crate) fn delay(&mut self, due: Instant, task: TaskKey, is_delayed: impl Fn(TaskKey) -> bool) {
        let entry = Delayed { sequence: self.sequence, task };
        self.sequence += 1;
        self.delayed.arm(due, entry, |_, entry| is_delayed(entry.task));
    }

    /// Removes and returns the next task that is due.
    pub(crate) fn pop_due(&mut self, now: Instant, is_delayed: impl Fn(TaskKey) -> bool) -> Option<TaskKey> {
        self.delayed.pop_due(now, |_, entry| is_delayed(entry.task)).map(|(_, entry)| entry.task)
    }

    /// Removes outdated entries at the front. After this, [`Retries::next_due`] is exact.
    pub(crate) fn trim(&mut self, is_delayed: impl Fn(TaskKey) -> bool) {
        self.delayed.trim(|_, entry| is_delayed(entry.task));
    }

    /// Returns when the next task is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.next()
    }

    /// Returns when a delayed task is due. O(delayed tasks).
    pub(crate) fn due_of(&self, task: TaskKey) -> Option<Instant> {
        self.delayed.iter().filter(|(_, entry)| entry.task == task).map(|(due, _)| due).min()
    }

    /// Removes every task, because the run stops.
    pub(crate) fn clear(&mut self) {
        self.delayed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::ColumnId;

    fn policy(retries: u32) -> RetryPolicy {
        RetryPolicy { run: 0, retries, floor: Duration::from_millis(50), ceiling: Duration::from_secs(600) }
    }

    fn task(row: u32) -> TaskKey {
        TaskKey { row_group: 0, column: ColumnId(0), row: Some(row) }
    }

    #[test]
    fn tasks_due_at_one_instant_keep_their_order() {
        let mut retries = Retries::new(policy(2));
        for row in [7, 3, 5] {
            retries.delay(Instant::ZERO, task(row), |_| true);
        }
        let order: [Option<TaskKey>; 4] = core::array::from_fn(|_| retries.pop_due(Instant::ZERO, |_| true));
        assert_eq!(order, [Some(task(7)), Some(task(3)), Some(task(5)), None]);
    }

    #[test]
    fn a_task_dropped_while_delayed_does_not_set_the_next_due_time() {
        let mut retries = Retries::new(policy(2));
        for row in 0..9 {
            retries.delay(Instant::from_nanos(u64::from(row)), task(row), |_| true);
        }
        retries.trim(|task| task.row >= Some(6));
        assert_eq!(retries.next_due(), Some(Instant::from_nanos(6)));
        assert_eq!(retries.due_of(task(8)), Some(Instant::from_nanos(8)));
    }

    #[test]
    fn a_retryable_failure_is_deferred_for_1_2_and_4_seconds_and_then_dropped() {
        let decide = |retries| policy(3).after_failure(Instant::ZERO, task(7), RetryKind::Timeout, None, retries);
        for (retries, millis) in [(0, 1_000), (1, 2_000), (2, 4_000)] {
            let RetryDecision::Defer { not_before } = decide(retries) else { panic!("it has retries left") };
            let delay = not_before - Instant::ZERO;
            assert!((millis * 4 / 5..=millis * 6 / 5).contains(&(delay.as_nanos() / 1_000_000)), "{delay}");
        }
        assert_eq!(decide(3), RetryDecision::Drop(DropReason::RetriesExhausted(RetryKind::Timeout)));
    }

    #[test]
    fn tasks_that_failed_together_are_not_tried_again_together() {
        let defer = |row, run| {
            let policy = RetryPolicy { run, ..policy(3) };
            policy.after_failure(Instant::ZERO, task(row), RetryKind::Timeout, None, 0)
        };
        assert_ne!(defer(1, 0), defer(2, 0));
        assert_ne!(defer(1, 0), defer(1, 1));
        assert_eq!(defer(1, 1), defer(1, 1));
    }

    #[test]
    fn a_delay_requested_by_a_provider_is_limited_to_the_ceiling() {
        let until = |kind, after| policy(0).after_failure(Instant::ZERO, task(7), kind, after, 9);
        let delay = |span| RetryDecision::Delay { until: Instant::ZERO + span };
        assert_eq!(until(RetryKind::RateLimited, Some(Duration::MAX)), delay(Duration::from_secs(600)));
        assert_eq!(until(RetryKind::AdmissionTimeout, None), delay(Duration::from_millis(50)));
    }
}
