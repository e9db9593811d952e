//! When the run should stop by itself, or go on without a provider.
//!
//! *Early shutdown*: over the last `window` final outcomes (successes, and failures that drop a row), the
//! share of failures reached the rate. *Patience*: every answer of what a column [calls](super::CallTargets)
//! since its last other answer was a rate limit, for as long as patience lasts. Its tasks are then kept for
//! another run, as those of a provider that cannot be used.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::retryable::is_provider_answer;
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outcome::{RetryKind, TaskOutcome};
use crate::time::{Duration, Instant};

/// Watches the outcomes of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    failures: FailureWindow,
    patience: Patience,
}

impl Health {
    /// `targets`: how many things columns call. The settings were validated.
    pub(crate) fn new(config: &PipelineConfig, targets: usize) -> Self {
        Self {
            failures: FailureWindow::new(config.shutdown_window, config.shutdown_rate),
            patience: Patience::new(config.rate_limit_patience, targets),
        }
    }

    /// Watches so many targets from now on, of which nothing is known yet.
    pub(crate) fn watch(&mut self, targets: usize) {
        self.patience = Patience::new(self.patience.limit, targets);
    }

    /// Records a final outcome. Returns the failures in the window and its length if they are too many. O(1).
    pub(crate) fn record_final(&mut self, is_failure: bool) -> Option<(u32, u32)> {
        self.failures.observe(is_failure).map(|failures| (failures, self.failures.window as u32))
    }

    /// Records how a task that calls a target ended. Returns whether the patience with that is over: it has
    /// answered nothing but rate limits for too long.
    pub(crate) fn is_patience_over(&mut self, now: Instant, target: usize, outcome: TaskOutcome) -> bool {
        if let TaskOutcome::Retryable { kind: RetryKind::RateLimited, .. } = outcome {
            return self.patience.rate_limited(now, target);
        }
        if is_provider_answer(outcome) {
            self.patience.answered(target);
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

    /// Takes one final outcome in; answers the failures in the window when they are too many. O(1).
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

/// Since when each target has answered nothing but rate limits.
#[derive(Clone, Debug)]
struct Patience {
    limit: Option<Duration>,
    limited_since: Vec<Option<Instant>>,
}

impl Patience {
    fn new(limit: Option<Duration>, targets: usize) -> Self {
        Self { limit, limited_since: alloc::vec![None; targets] }
    }

    /// A target answered with a rate limit. Returns whether it has done so for too long.
    fn rate_limited(&mut self, now: Instant, target: usize) -> bool {
        let since = *self.limited_since[target].get_or_insert(now);
        self.limit.is_some_and(|limit| now - since >= limit)
    }

    /// A target answered with anything else.
    fn answered(&mut self, target: usize) {
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
    fn patience_begins_anew_with_every_other_answer() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut patience = Patience::new(Some(Duration::from_secs(5)), 2);
        assert!(!patience.rate_limited(at(0), 0) && !patience.rate_limited(at(4), 0));
        patience.answered(0);
        assert!(!patience.rate_limited(at(5), 0) && !patience.rate_limited(at(5), 1));
        assert!(patience.rate_limited(at(10), 0));
    }
}
