//! How a run begins and ends.
//!
//! | reason | workers | row groups that are not complete |
//! | --- | --- | --- |
//! | completed | none are left | none are left |
//! | wound down | finish | those that were admitted are finished first; no other is |
//! | drained, early shutdown, provider exhausted or unavailable, stuck | finish | saved in part: complete rows, and which were dropped |
//! | checkpoint failed, hook failed | finish | not saved: a resumed run makes them anew |
//! | cancelled, fatal | aborted, and waited for | not saved |
//!
//! A row group is saved in part only if its rows do not depend on each other:
//! [`Plan::keeps_parts`](crate::pipeline::Plan::keeps_parts). Rows that are not saved and were not dropped
//! are *unmade*: a resumed run makes them.
//!
//! A worker that finishes begins no call any more: its requests are
//! [rejected](crate::request::RequestAdmission::reject_stopping).
//!
//! A row group that is complete is saved whatever the reason. A later stop can only make the first one
//! stricter; it replaces the reported reason only if it is worse (fatal, then checkpoint or hook failed, then
//! all others, then drained, then wound down). A hook or a checkpoint that is under way is waited for,
//! whatever the reason; no pre-batch hook is called any more.

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

/// How much of what is going on a stop lets finish. Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopMode {
    /// Workers finish; partial row groups are saved in part.
    DrainPartial,
    /// Workers finish; partial row groups are not saved.
    Drain,
    /// Workers are aborted; partial row groups are not saved.
    Abort,
}

/// When the run began, whether it stops and why, and its report.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    state: RunState,
    reason: Option<StopReason>,
    started: Instant,
    report: Option<RunReport>,
}

/// What a stop changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// The run was not stopping before.
    pub(crate) is_first: bool,
    /// Workers are aborted.
    pub(crate) aborts: bool,
    /// The reason and whether workers are aborted, if either is new.
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

    /// Begins the run, if it has not begun. Returns whether it did.
    pub(crate) fn start(&mut self, now: Instant) -> bool {
        let is_idle = self.mark_start(now);
        if is_idle {
            self.state = RunState::Running;
        }
        is_idle
    }

    /// Takes `now` for the start of a run that is stopped before it began. Returns whether it had not begun.
    pub(crate) fn mark_start(&mut self, now: Instant) -> bool {
        let is_idle = self.state == RunState::Idle;
        if is_idle {
            self.started = now;
        }
        is_idle
    }

    /// Lets the run end once the row groups in work are finished.
    pub(crate) fn wind_down(&mut self) {
        self.reason = Some(StopReason::WoundDown);
    }

    /// Stops the run, or makes a stop stricter. `None` once the run is over.
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

    /// The reason to report when the run ends now; `default` if none was given.
    pub(crate) fn take_reason(&mut self, default: StopReason) -> StopReason {
        self.reason.take().unwrap_or(default)
    }

    pub(crate) fn finish(&mut self, report: RunReport) {
        self.report = Some(report);
        self.state = RunState::Finished;
    }

    /// Why the run stops, if it does, and whether that aborts workers.
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
    fn only_a_worse_reason_replaces_the_first() {
        let mut lifecycle = running();
        lifecycle.wind_down();
        let _ = lifecycle.stop(unsaved(), StopMode::Drain);
        let _ = lifecycle.stop(StopReason::Cancelled, StopMode::Abort);
        assert_eq!(lifecycle.take_reason(StopReason::Completed), unsaved());
        assert_eq!(lifecycle.take_reason(StopReason::Completed), StopReason::Completed);
    }
}
