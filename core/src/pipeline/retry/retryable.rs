//! Counts retryable failures by kind and HTTP status, and detects degraded providers.
//!
//! *Provider degraded*: among the last `window` responses of a [call target](super::CallTargets), the share
//! of retryable failures (5xx, timeouts, rate limits) reached the rate. At most one warning is emitted per
//! `degraded_pause`. An admission timeout is not a response: it is counted, but not in the window.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outcome::{RetryKind, RetryableCount, TaskOutcome};
use crate::time::{Duration, Instant};

/// The number of pairs of kind and status up to which a new pair gets its own counter. Beyond it, a failure
/// with a new status is counted under its kind without a status.
const MAX_PAIRS: usize = 32;

/// The counters of retryable failures, and the windows that detect degraded providers.
#[derive(Clone, Debug)]
pub(crate) struct RetryableFailures {
    window: usize,
    rate: Option<f64>,
    /// The shortest time between two warnings about one target.
    warning_interval: Duration,
    /// The pairs with their own counters, in order of first occurrence.
    pairs: Vec<Pair>,
    targets: Vec<Target>,
}

/// A kind of failure, and its HTTP status if there was one.
type Pair = (RetryKind, Option<u16>);

/// The counters of one call target.
#[derive(Clone, Debug, Default)]
struct Target {
    /// The latest responses. A retryable failure is the index of its pair; any other response is `None`.
    responses: VecDeque<Option<u8>>,
    /// The number of retryable failures in `responses`.
    retryable: u32,
    /// The number of all failures, by pair.
    totals: Vec<u64>,
    warned: Option<Instant>,
}

impl RetryableFailures {
    /// Creates counters for `targets` call targets. The settings must be valid.
    pub(crate) fn new(config: &PipelineConfig, targets: usize) -> Self {
        Self {
            window: config.degraded_window as usize,
            rate: config.degraded_rate,
            warning_interval: config.degraded_pause,
            pairs: Vec::new(),
            targets: alloc::vec![Target::default(); targets],
        }
    }

    /// Replaces all counters by empty ones, for `targets` call targets.
    pub(crate) fn watch(&mut self, targets: usize) {
        self.targets = alloc::vec![Target::default(); targets];
    }

    /// Records the outcome of a task that calls a target. If a warning is due, returns the number of
    /// retryable failures in the window and the length of the window. O(1).
    pub(crate) fn record(&mut self, now: Instant, target: usize, outcome: TaskOutcome) -> Option<(u32, u32)> {
        let pair = match outcome {
            TaskOutcome::Retryable { kind, status, .. } => Some(self.pair((kind, status))),
            _ => None,
        };
        let target = &mut self.targets[target];
        if let Some(pair) = pair {
            target.count(pair);
        }
        if !is_provider_answer(outcome) {
            return None;
        }
        target.push_response(pair, self.window);
        let is_full = target.responses.len() == self.window;
        let is_bad = is_full && f64::from(target.retryable) >= self.rate? * self.window as f64;
        let may_warn = target.warned.is_none_or(|warned| now - warned >= self.warning_interval);
        if !is_bad || !may_warn {
            return None;
        }
        target.warned = Some(now);
        Some((target.retryable, self.window as u32))
    }

    /// Returns the index of a pair. If there are too many pairs, returns that of the kind without a status.
    fn pair(&mut self, (kind, status): Pair) -> u8 {
        let find = |pairs: &[Pair], status| pairs.iter().position(|pair| *pair == (kind, status));
        let is_full = self.pairs.len() >= MAX_PAIRS;
        let status = if is_full && find(&self.pairs, status).is_none() { None } else { status };
        let at = find(&self.pairs, status).unwrap_or_else(|| {
            self.pairs.push((kind, status));
            self.pairs.len() - 1
        });
        at as u8
    }

    /// Returns the failures of all targets, ascending by kind and status. O(targets x window).
    pub(crate) fn counts(&self) -> Vec<RetryableCount> {
        self.add_up(&self.targets)
    }

    /// Returns the failures of one target, ascending by kind and status. O(window).
    pub(crate) fn counts_of(&self, target: usize) -> Vec<RetryableCount> {
        self.add_up(&self.targets[target..=target])
    }

    fn add_up(&self, targets: &[Target]) -> Vec<RetryableCount> {
        let empty = |&(kind, status): &Pair| RetryableCount { kind, status, recent: 0, total: 0 };
        let mut counts: Vec<RetryableCount> = self.pairs.iter().map(empty).collect();
        for target in targets {
            for (count, total) in counts.iter_mut().zip(&target.totals) {
                count.total += total;
            }
            for pair in target.responses.iter().flatten() {
                counts[usize::from(*pair)].recent += 1;
            }
        }
        counts.retain(|count| count.total > 0);
        counts.sort_unstable_by_key(|count| (count.kind, count.status));
        counts
    }
}

impl Target {
    fn count(&mut self, pair: u8) {
        let at = usize::from(pair);
        self.totals.resize(self.totals.len().max(at + 1), 0);
        self.totals[at] += 1;
    }

    /// Adds one response to the window.
    fn push_response(&mut self, pair: Option<u8>, window: usize) {
        if self.responses.len() == window && self.responses.pop_front().flatten().is_some() {
            self.retryable -= 1;
        }
        self.responses.push_back(pair);
        self.retryable += u32::from(pair.is_some());
    }
}

/// Returns whether an outcome is a response of the provider, in contrast to a local outcome.
pub(super) fn is_provider_answer(outcome: TaskOutcome) -> bool {
    !matches!(
        outcome,
        TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, .. }
            | TaskOutcome::Unavailable
            | TaskOutcome::Cancelled
            | TaskOutcome::Skipped
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(window: u32, interval_secs: u64, targets: usize) -> RetryableFailures {
        let interval = Duration::from_secs(interval_secs);
        let config = PipelineConfig { degraded_window: window, degraded_pause: interval, ..PipelineConfig::default() };
        RetryableFailures::new(&config, targets)
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn failure(kind: RetryKind, status: Option<u16>) -> TaskOutcome {
        TaskOutcome::Retryable { kind, status, retry_after: None }
    }

    const BAD: TaskOutcome = TaskOutcome::Retryable { kind: RetryKind::ServerError, status: None, retry_after: None };

    #[test]
    fn a_degraded_provider_causes_one_warning_per_interval() {
        let mut watch = watch(4, 60, 2);
        let first: [_; 4] =
            core::array::from_fn(|n| watch.record(at(0), 0, if n % 2 == 0 { BAD } else { TaskOutcome::Success }));
        assert_eq!(first, [None, None, None, Some((2, 4))], "only a full window is judged");
        assert_eq!(watch.record(at(59), 0, BAD), None);
        assert_eq!(watch.record(at(60), 0, BAD), Some((3, 4)));
        assert_eq!(watch.record(at(60), 1, BAD), None, "another target has responses of its own");
        let better: [_; 4] = core::array::from_fn(|_| watch.record(at(500), 0, TaskOutcome::Success));
        assert_eq!(better, [Some((2, 4)), None, None, None]);
    }

    #[test]
    fn failures_are_counted_by_kind_and_status_in_the_window_and_in_total() {
        let mut watch = watch(2, 60, 2);
        for status in [500, 503, 500] {
            watch.record(at(0), 0, failure(RetryKind::ServerError, Some(status)));
        }
        watch.record(at(0), 1, failure(RetryKind::RateLimited, Some(429)));
        watch.record(at(0), 1, failure(RetryKind::AdmissionTimeout, None));
        let figures = |counts: Vec<RetryableCount>| -> Vec<_> {
            counts.iter().map(|count| (count.kind, count.status, count.recent, count.total)).collect()
        };
        assert_eq!(
            figures(watch.counts()),
            [
                (RetryKind::RateLimited, Some(429), 1, 1),
                (RetryKind::ServerError, Some(500), 1, 2),
                (RetryKind::ServerError, Some(503), 1, 1),
                (RetryKind::AdmissionTimeout, None, 0, 1),
            ]
        );
        let of_first = figures(watch.counts_of(0));
        let expected = [(RetryKind::ServerError, Some(500), 1, 2), (RetryKind::ServerError, Some(503), 1, 1)];
        assert_eq!(of_first, expected);
    }

    #[test]
    fn memory_is_bounded_when_a_provider_returns_many_different_statuses() {
        let mut watch = watch(3, 60, 1);
        for status in 0..5_000 {
            watch.record(at(0), 0, failure(RetryKind::ServerError, Some(status)));
        }
        let counts = watch.counts();
        assert!(counts.len() <= MAX_PAIRS + 1, "{}", counts.len());
        assert_eq!(counts.iter().map(|count| count.total).sum::<u64>(), 5_000);
        assert_eq!(counts.iter().map(|count| count.recent).sum::<u32>(), 3);
    }

    #[test]
    fn without_a_rate_failures_are_counted_and_no_warning_is_emitted() {
        let config = PipelineConfig { degraded_window: 1, degraded_rate: None, ..PipelineConfig::default() };
        let mut watch = RetryableFailures::new(&config, 1);
        assert_eq!(watch.record(at(0), 0, BAD), None);
        assert_eq!((watch.counts()[0].recent, watch.counts()[0].total), (1, 1));
    }
}
