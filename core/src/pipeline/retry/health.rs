//! Decides when the run stops by itself, or continues without a provider.
//!
//! *Early shutdown*: the share of failures among the last `window` final outcomes reached the rate. Final
//! outcomes are successes, and failures that drop a row.
//!
//! *Patience*: a [call target](super::CallTargets) has responded with rate limits only, for the configured
//! time since its first rate limit. Its tasks are then left for a resumed run, like those of an unavailable
//! provider.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::retryable::is_provider_answer;
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outcome::{RetryKind, TaskOutcome};
use crate::time::{Duration, Instant};

/// Tracks the outcomes of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    failures: FailureWindow,
    patience: Patience,
}

impl Health {
    /// Creates trackers for `targets` call targets. The settings must be valid.
    pub(crate) fn new(config: &PipelineConfig, targets: usize) -> Self {
        Self {
            failures: FailureWindow::new(config.shutdown_window, config.shutdown_rate),
            patience: Patience::new(config.rate_limit_patience, targets),
        }
    }

    /// Replaces the trackers of call targets by empty ones, for `targets` call targets.
    pub(crate) fn watch(&mut self, targets: usize) {
        self.patience = Patience::new(self.patience.limit, targets);
    }

    /// Records a final outcome. Returns the failures in the window and its length if there are too many.
    /// O(1).
    pub(crate) fn record_final(&mut self, is_failure: bool) -> Option<(u32, u32)> {
        self.failures.observe(is_failure).map(|failures| (failures, self.failures.window as u32))
    }

    /// Records the outcome of a task that calls a target. Returns whether the patience with the target is
    /// over: it has responded with rate limits only for too long.
    pub(crate) fn is_patience_over(&mut self, now: Instant, target: usize, outcome: TaskOutcome) -> bool {
        if let TaskOutcome::Retryable { kind: RetryKind::RateLimited, .. } = outcome {
            return self.patience.record_rate_limit(now, target);
        }
        if is_provider_answer(outcome) {
            self.patience.record_other_response(target);
        }
        false
    }
}

/// A sliding window over final outcomes.
#[derive(Clone, Debug)]
struct FailureWindow {
    window: usize,
    rate: Option<f64>,
    failed: VecDeque<bool>,
    failures: u32,
}

impl FailureWindow {
    fn new(window: u32, rate: Option<f64>) -> Self {
        Self { window: window as usize, rate, failed: VecDeque::new(), failures: 0 }
    }

    /// Adds one final outcome. Returns the number of failures in the window if there are too many. O(1).
    fn observe(&mut self, failed: bool) -> Option<u32> {
        let rate = self.rate?;
        if self.failed.len() == self.window && self.failed.pop_front() == Some(true) {
            self.failures -= 1;
        }
        self.failed.push_back(failed);
        self.failures += u32::from(failed);
        let full = self.failed.len() == self.window;
        (full && f64::from(self.failures) >= rate * self.window as f64).then_some(self.failures)
    }
}

/// For each target, the time since which it has responded with rate limits only.
#[derive(Clone, Debug)]
struct Patience {
    limit: Option<Duration>,
    limited_since: Vec<Option<Instant>>,
}

impl Patience {
    fn new(limit: Option<Duration>, targets: usize) -> Self {
        Self { limit, limited_since: alloc::vec![None; targets] }
    }

    /// Records a rate limit. Returns whether the target has responded with rate limits only for too long.
    fn record_rate_limit(&mut self, now: Instant, target: usize) -> bool {
        let since = *self.limited_since[target].get_or_insert(now);
        self.limit.is_some_and(|limit| now - since >= limit)
    }

    /// Records any other response.
    fn record_other_response(&mut self, target: usize) {
        self.limited_since[target] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_window_is_judged_and_old_outcomes_leave_it() {
        let mut window = FailureWindow::new(4, Some(0.5));
        for failed in [true, true, false] {
            assert_eq!(window.observe(failed), None);
        }
        assert_eq!(window.observe(false), Some(2));
        assert_eq!(window.observe(false), None);
        assert_eq!(window.observe(true), None);
        assert_eq!(window.observe(true), Some(2));
    }

    #[test]
    fn a_response_that_is_not_a_rate_limit_resets_the_patience() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut patience = Patience::new(Some(Duration::from_secs(5)), 2);
        assert!(!patience.record_rate_limit(at(0), 0) && !patience.record_rate_limit(at(4), 0));
        patience.record_other_response(0);
        assert!(!patience.record_rate_limit(at(5), 0) && !patience.record_rate_limit(at(5), 1));
        assert!(patience.record_rate_limit(at(10), 0));
    }
}
