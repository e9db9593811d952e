//! The life cycle of a run: how it begins, stops and ends.
//!
//! | reason | workers | row groups that are not complete |
//! | --- | --- | --- |
//! | completed | none are left | none are left |
//! | wound down | finish | admitted row groups are finished; no other one is admitted |
//! | drained, early shutdown, provider unavailable, claim failed, stuck | finish | saved in part |
//! | checkpoint failed, hook failed | finish | not saved: a resumed run computes them again |
//! | cancelled, fatal, policy panicked | aborted; the run waits for their end | not saved |
//!
//! A row group saved in part contains its complete rows and the list of its dropped rows. This is possible
//! only if rows do not depend on each other ([`Plan::keeps_parts`](crate::pipeline::Plan::keeps_parts)), and
//! if the pre-batch hook of the row group, if configured, has ended. Rows that are neither saved nor dropped
//! are *unmade*: a resumed run computes them.
//!
//! A worker that finishes during a stop cannot start a call: its requests are
//! [denied](crate::request::RequestAdmission::deny_stopping).
//!
//! A complete row group is saved for every stop reason. A later stop can only make the current one stricter.
//! It replaces the reported reason only if it is more severe. From most to least severe: fatal and policy
//! panicked, checkpoint or hook failed, all others, drained, wound down. For every reason, the run waits for
//! hooks and checkpoints that are in progress, and calls no further pre-batch hook.

use super::event::StopKind;
use super::report::{RunReport, StopReason};
use crate::time::Instant;

/// The state of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Idle,
    Running,
    Stopping(StopMode),
    Finished,
}

/// What a stop does with the work in progress. Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopMode {
    /// Workers finish; incomplete row groups are saved in part.
    DrainPartial,
    /// Workers finish; incomplete row groups are not saved.
    Drain,
    /// Workers are aborted; incomplete row groups are not saved.
    Abort,
}

/// When the run began, whether and why it stops, and its report.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    state: RunState,
    reason: Option<StopReason>,
    started: Instant,
    report: Option<RunReport>,
}

/// What a call of [`Lifecycle::stop`] changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// Whether the run was not stopping before.
    pub(crate) is_first: bool,
    /// Whether workers are aborted.
    pub(crate) aborts: bool,
    /// The reason, and whether workers are aborted, if either changed.
    pub(crate) change: Option<(StopKind, bool)>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self { state: RunState::Idle, reason: None, started: Instant::ZERO, report: None }
    }

    pub(crate) fn state(&self) -> RunState {
        self.state
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == RunState::Running
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state == RunState::Finished
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn report(&self) -> Option<&RunReport> {
        self.report.as_ref()
    }

    /// Starts the run. Returns false if it has started already.
    pub(crate) fn start(&mut self, now: Instant) -> bool {
        let is_idle = self.mark_start(now);
        if is_idle {
            self.state = RunState::Running;
        }
        is_idle
    }

    /// Sets the start time of a run that is stopped before it starts. Returns false if the run has started
    /// already.
    pub(crate) fn mark_start(&mut self, now: Instant) -> bool {
        let is_idle = self.state == RunState::Idle;
        if is_idle {
            self.started = now;
        }
        is_idle
    }

    /// Lets the run end once the admitted row groups are finished.
    pub(crate) fn wind_down(&mut self) {
        self.reason = Some(StopReason::WoundDown);
    }

    /// Stops the run, or makes a stop stricter. Returns `None` if the run has ended.
    pub(crate) fn stop(&mut self, reason: StopReason, mode: StopMode) -> Option<Stopped> {
        let before = self.announced_stop();
        let (is_first, mode) = match self.state {
            RunState::Finished => return None,
            RunState::Stopping(current) => (false, current.max(mode)),
            RunState::Idle | RunState::Running => (true, mode),
        };
        self.state = RunState::Stopping(mode);
        if self.reason.as_ref().is_none_or(|current| severity(&reason) > severity(current)) {
            self.reason = Some(reason);
        }
        let change = self.announced_stop().filter(|stop| before != Some(*stop));
        Some(Stopped { is_first, aborts: mode == StopMode::Abort, change })
    }

    /// Takes the reason to report when the run ends now, or `default` if no reason was set.
    pub(crate) fn take_reason(&mut self, default: StopReason) -> StopReason {
        self.reason.take().unwrap_or(default)
    }

    pub(crate) fn finish(&mut self, report: RunReport) {
        self.report = Some(report);
        self.state = RunState::Finished;
    }

    /// Returns why the run stops, and whether it aborts workers, if it stops.
    fn announced_stop(&self) -> Option<(StopKind, bool)> {
        let reason = self.reason.as_ref()?;
        Some((reason.into(), self.state == RunState::Stopping(StopMode::Abort)))
    }
}

fn severity(reason: &StopReason) -> u8 {
    match reason {
        StopReason::Fatal { .. } | StopReason::PolicyPanicked { .. } => 4,
        StopReason::CheckpointFailed { .. } | StopReason::HookFailed { .. } => 3,
        StopReason::Drained => 1,
        StopReason::WoundDown => 0,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Lifecycle {
        let mut lifecycle = Lifecycle::new();
        assert!(lifecycle.start(Instant::ZERO) && !lifecycle.start(Instant::from_nanos(5)));
        lifecycle
    }

    fn unsaved() -> StopReason {
        StopReason::CheckpointFailed { row_group: 0, why: "disk full".into() }
    }

    #[test]
    fn a_later_stop_is_stricter_or_changes_nothing() {
        let mut lifecycle = running();
        let first = lifecycle.stop(StopReason::Cancelled, StopMode::Abort);
        let change = Some((StopKind::Cancelled, true));
        assert_eq!(first, Some(Stopped { is_first: true, aborts: true, change }));
        let second = lifecycle.stop(StopReason::EarlyShutdown { failures: 1, window: 1 }, StopMode::DrainPartial);
        assert_eq!(second, Some(Stopped { is_first: false, aborts: true, change: None }));
    }

    #[test]
    fn only_a_more_severe_reason_replaces_the_first() {
        let mut lifecycle = running();
        lifecycle.wind_down();
        let _ = lifecycle.stop(unsaved(), StopMode::Drain);
        let _ = lifecycle.stop(StopReason::Cancelled, StopMode::Abort);
        assert_eq!(lifecycle.take_reason(StopReason::Completed), unsaved());
        assert_eq!(lifecycle.take_reason(StopReason::Completed), StopReason::Completed);
    }
}
