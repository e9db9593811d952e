//! When the run should stop by itself.
//!
//! *Early shutdown*: over the last `window` final outcomes (successes and failures for good), the share of
//! failures reached the rate. *Provider exhausted*: every answer of a fairness group since its last other
//! answer was a rate limit, for as long as patience lasts. *Provider degraded*: a warning, and no more: of
//! the last `window` answers of a fairness group, the share that may pass (5xx, timeouts, rate limits)
//! reached the rate; at most one in each pause.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outcome::{RetryKind, TaskOutcome};
use crate::time::{Duration, Instant};

/// Watches the outcomes of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    failures: FailureWindow,
    patience: Patience,
    degraded: DegradedWatch,
}

impl Health {
    /// `groups`: distinct fairness groups. The settings were validated.
    pub(crate) fn new(config: &PipelineConfig, groups: usize) -> Self {
        Self {
            failures: FailureWindow::new(config.shutdown_window, config.shutdown_rate),
            patience: Patience::new(config.rate_limit_patience, groups),
            degraded: DegradedWatch::new(config.degraded_window, config.degraded_rate, config.degraded_pause, groups),
        }
    }

    /// Records a final outcome. Returns the failures in the window and its length if they are too many. O(1).
    pub(crate) fn record_final(&mut self, is_failure: bool) -> Option<(u32, u32)> {
        self.failures.observe(is_failure).map(|failures| (failures, self.failures.window as u32))
    }

    /// Records how a task of a fairness group ended. Returns the retryable outcomes in the window and its
    /// length if it is time for a warning. O(1).
    pub(crate) fn record_outcome(&mut self, now: Instant, group: usize, outcome: TaskOutcome) -> Option<(u32, u32)> {
        let is_retryable = match outcome {
            _ if !is_provider_answer(outcome) => return None,
            TaskOutcome::Retryable { .. } => true,
            _ => false,
        };
        let retryable = self.degraded.observe(now, group, is_retryable)?;
        Some((retryable, self.degraded.window as u32))
    }

    /// Records how a task of a fairness group ended. Returns for how long the group has been answered nothing
    /// but rate limits, if that is too long.
    pub(crate) fn exhausted_for(&mut self, now: Instant, group: usize, outcome: TaskOutcome) -> Option<Duration> {
        if let TaskOutcome::Retryable { kind: RetryKind::RateLimited, .. } = outcome {
            return self.patience.rate_limited(now, group);
        }
        if is_provider_answer(outcome) {
            self.patience.answered(group);
        }
        None
    }
}

/// Whether an outcome comes from the provider, and not from this side.
fn is_provider_answer(outcome: TaskOutcome) -> bool {
    !matches!(
        outcome,
        TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, .. }
            | TaskOutcome::Unavailable
            | TaskOutcome::Cancelled
            | TaskOutcome::Skipped
    )
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

/// Since when each fairness group has been answered nothing but rate limits.
#[derive(Clone, Debug)]
struct Patience {
    limit: Option<Duration>,
    limited_since: Vec<Option<Instant>>,
}

impl Patience {
    fn new(limit: Option<Duration>, groups: usize) -> Self {
        Self { limit, limited_since: alloc::vec![None; groups] }
    }

    /// A group was answered with a rate limit; answers for how long by now, when that is too long.
    fn rate_limited(&mut self, now: Instant, group: usize) -> Option<Duration> {
        let since = *self.limited_since[group].get_or_insert(now);
        let waited = now - since;
        (waited >= self.limit?).then_some(waited)
    }

    /// A group was answered with anything else.
    fn answered(&mut self, group: usize) {
        self.limited_since[group] = None;
    }
}

/// How many of a fairness group's last answers were failures that may pass.
#[derive(Clone, Debug)]
struct DegradedWatch {
    window: usize,
    rate: Option<f64>,
    pause: Duration,
    groups: Vec<Recent>,
}

/// The last answers of one group.
#[derive(Clone, Debug, Default)]
struct Recent {
    answers: VecDeque<bool>,
    retryable: u32,
    warned: Option<Instant>,
}

impl DegradedWatch {
    fn new(window: u32, rate: Option<f64>, pause: Duration, groups: usize) -> Self {
        Self { window: window as usize, rate, pause, groups: alloc::vec![Recent::default(); groups] }
    }

    /// Takes one answer in; answers how many of the window were retryable when it is time for a warning.
    /// O(1).
    fn observe(&mut self, now: Instant, group: usize, is_retryable: bool) -> Option<u32> {
        let rate = self.rate?;
        let recent = &mut self.groups[group];
        if recent.answers.len() == self.window && recent.answers.pop_front() == Some(true) {
            recent.retryable -= 1;
        }
        recent.answers.push_back(is_retryable);
        recent.retryable += u32::from(is_retryable);
        let is_bad = recent.answers.len() == self.window && f64::from(recent.retryable) >= rate * self.window as f64;
        let is_quiet = recent.warned.is_none_or(|warned| now - warned >= self.pause);
        if !is_bad || !is_quiet {
            return None;
        }
        recent.warned = Some(now);
        Some(recent.retryable)
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
    fn a_provider_that_mostly_fails_is_warned_of_once_in_each_pause() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut watch = DegradedWatch::new(4, Some(0.5), Duration::from_secs(60), 2);
        let first: [Option<u32>; 4] = core::array::from_fn(|n| watch.observe(at(0), 0, n % 2 == 0));
        assert_eq!(first, [None, None, None, Some(2)], "only a full window is judged");
        assert_eq!(watch.observe(at(59), 0, true), None);
        assert_eq!(watch.observe(at(60), 0, true), Some(3));
        assert_eq!(watch.observe(at(60), 1, true), None, "another provider has answers of its own");
        let better: [Option<u32>; 4] = core::array::from_fn(|_| watch.observe(at(500), 0, false));
        assert_eq!(better, [Some(2), None, None, None]);
    }

    #[test]
    fn patience_begins_anew_with_every_other_answer() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut patience = Patience::new(Some(Duration::from_secs(5)), 2);
        assert_eq!(patience.rate_limited(at(0), 0), None);
        assert_eq!(patience.rate_limited(at(4), 0), None);
        patience.answered(0);
        assert_eq!(patience.rate_limited(at(5), 0), None);
        assert_eq!(patience.rate_limited(at(5), 1), None);
        assert_eq!(patience.rate_limited(at(10), 0), Some(Duration::from_secs(5)));
    }
}
