//! How a run ends.
//!
//! | reason | workers | row groups that are not complete |
//! | --- | --- | --- |
//! | completed | none are left | none are left |
//! | drained | finish | those that were admitted are finished first; no other is |
//! | early shutdown, provider exhausted | finish | their complete rows are saved, the rest dropped |
//! | checkpoint failed, hook failed, stuck | finish | not saved: a resumed run makes them anew |
//! | cancelled, fatal | aborted, and waited for | not saved |
//!
//! A row group that is complete is saved whatever the reason. A later stop can only make the first one stricter; it
//! replaces the reported reason only if it is worse (fatal, then checkpoint or hook failed, then all others, then drained). A hook or a
//! checkpoint that is under way is waited for, whatever the reason; no pre-batch hook is called any more.

use alloc::format;
use alloc::vec::Vec;

use crate::lease::ReleaseAnswer;
use crate::pipeline::event::{SchedulerFact, StopKind};
use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::outcome::{DropReason, Effect, FatalError, WorkerId};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::report::{ColumnReport, RunReport, StopReason};
use crate::pipeline::retry::backoff::Verdict;
use crate::pipeline::row_group::Phase;
use crate::replay::RunCommand;
use crate::time::Instant;

/// How much of what is going on a stop lets finish. Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::pipeline) enum StopMode {
    /// Workers finish; complete rows of partial row groups are saved.
    DrainPartial,
    /// Workers finish; partial row groups are not saved.
    Drain,
    /// Workers are aborted; partial row groups are not saved.
    Abort,
}

impl Pipeline {
    /// A worker met a bug in the host or in user code, a panic say: its lease is back, and the run stops with that cause
    /// in its report. Answers as [`Pipeline::task_finished`] does.
    pub fn task_broke(&mut self, now: Instant, worker: WorkerId, error: FatalError) -> ReleaseAnswer {
        self.recorder.note(self.effects.len(), || RunCommand::TaskBroke { now, worker, cause: error.0.clone() });
        self.end_worker(now, worker, None, |pipeline, now, key| pipeline.absorb_broken(now, key, error))
    }

    fn absorb_broken(&mut self, now: Instant, key: TaskKey, FatalError(cause): FatalError) {
        let (column, row_group) = (key.column, key.row_group);
        let Some(group) = self.groups.get_mut(row_group) else {
            debug_assert!(false, "a row group stays while it has workers");
            return;
        };
        group.running -= 1;
        self.tally.columns[column.index()].fatal += 1;
        self.stop(StopReason::Fatal { column, row_group, cause }, StopMode::Abort);
        // Whatever became of its row, the task is not done.
        self.carry_out(key, Verdict::Defer { not_before: now }, None);
    }

    /// Stops the run, or makes a stop stricter.
    pub(in crate::pipeline) fn stop(&mut self, reason: StopReason, mode: StopMode) {
        if self.teller.is_on() {
            self.tell_why(&reason);
        }
        let before = self.standing_stop();
        let is_first = !matches!(self.state, State::Stopping(_));
        let mode = match self.state {
            State::Finished => return,
            State::Stopping(current) => current.max(mode),
            State::Idle | State::Running => mode,
        };
        self.state = State::Stopping(mode);
        if self.stop_reason.as_ref().is_none_or(|current| severity(&reason) > severity(current)) {
            self.stop_reason = Some(reason);
        }
        let standing = self.standing_stop();
        if let Some((stop, aborts)) = standing.filter(|_| standing != before) {
            self.teller.run(self.clock.latest(), SchedulerFact::JobStopping { stop, aborts });
        }
        if is_first {
            self.discard_waiting();
        }
        if mode == StopMode::Abort {
            self.abort_workers();
        }
    }

    /// The run ends once the row groups in work are finished.
    pub(in crate::pipeline) fn wind_down(&mut self) {
        self.stop_reason = Some(StopReason::Drained);
        let fact = SchedulerFact::JobStopping { stop: StopKind::Drained, aborts: false };
        self.teller.run(self.clock.latest(), fact);
    }

    /// Why the run stops, if it does, and whether that aborts workers.
    fn standing_stop(&self) -> Option<(StopKind, bool)> {
        let reason = self.stop_reason.as_ref()?;
        Some((reason.into(), self.state == State::Stopping(StopMode::Abort)))
    }

    fn discard_waiting(&mut self) {
        self.dispatcher.shutdown();
        let discarded = self.dispatcher.discard_where(|_| true) as u32;
        if discarded > 0 {
            self.teller.run(self.clock.latest(), SchedulerFact::QueueDrained { discarded });
        }
        self.tally.queued.fill(0);
        self.delays.clear();
        for group in self.groups.iter_mut() {
            group.queued = 0;
            group.deferred.clear();
        }
    }

    fn abort_workers(&mut self) {
        let keys: Vec<_> = self.workers.iter().filter(|(_, worker)| !worker.aborted).map(|(key, _)| key).collect();
        for key in keys {
            if let Some(worker) = self.workers.get_mut(key) {
                worker.aborted = true;
                self.effects.push_back(Effect::Abort(WorkerId(key)));
            }
        }
    }

    /// Ends a row group that is not complete and has no worker left.
    pub(in crate::pipeline) fn settle_stopped(&mut self, row_group: u32, mode: StopMode) {
        let Some(group) = self.groups.get(row_group) else { return };
        let complete = group.frontier.complete_rows();
        if mode == StopMode::DrainPartial && complete > 0 && !group.gated {
            return self.hand_out(row_group);
        }
        let mut rows = complete;
        for row in group.unfinished(&self.plan) {
            self.tally.drop_rows(Some(row.column), row.reason, 1);
            rows += 1;
        }
        self.tally.drop_rows(None, DropReason::Stopped, u64::from(complete));
        self.rows_in_work -= u64::from(group.span.rows);
        self.groups.remove(row_group);
        if self.teller.is_on() {
            self.tell_discarded(row_group, DropReason::Stopped, rows);
        }
    }

    /// Ends the run when nothing is left, or when nothing can move what is left.
    pub(in crate::pipeline) fn conclude(&mut self, now: Instant) {
        let is_still = self.workers.len() == 0 && self.awaited == 0;
        if self.state == State::Running {
            if self.groups.is_empty() && self.pending.is_empty() {
                let reason = self.stop_reason.take().unwrap_or(StopReason::Completed);
                return self.finish(now, reason);
            }
            if is_still && self.delays.len() == 0 {
                let why = self.why_stuck();
                self.stop(StopReason::Stuck { why }, StopMode::Drain);
            }
        }
        if let State::Stopping(_) = self.state {
            self.settle_quiet(now);
            if self.workers.len() == 0 && self.awaited == 0 {
                let reason = self.stop_reason.take().unwrap_or(StopReason::Cancelled);
                self.finish(now, reason);
            }
        }
    }

    fn settle_quiet(&mut self, now: Instant) {
        let open = self.groups.iter().filter(|group| group.phase == Phase::Open && group.is_quiet());
        let quiet: Vec<u32> = open.map(|group| group.span.row_group).collect();
        for row_group in quiet {
            self.settle(now, row_group);
        }
    }

    fn why_stuck(&self) -> alloc::string::String {
        let open: usize = self.groups.iter().map(|group| group.frontier.open()).sum();
        format!(
            "{open} tasks of {} row groups are open, {} of them queued, and no worker, timer, hook or checkpoint is \
             left; dispatcher: {}",
            self.groups.len(),
            self.dispatcher.queued(),
            self.dispatcher.explain(),
        )
    }

    fn finish(&mut self, now: Instant, stop: StopReason) {
        debug_assert_eq!(self.dispatcher.active_leases(), 0, "leases in = leases out");
        debug_assert_eq!(self.dispatcher.queued(), 0, "nothing is queued for nobody");
        let tally = &self.tally;
        debug_assert_eq!(tally.rows_in, tally.rows_out + tally.rows_dropped, "every row is out or dropped");
        debug_assert!(tally.columns.iter().all(|tasks| tasks.spawned == tasks.ended()), "every worker answered once");
        self.report = Some(self.report_at(now, stop));
        self.state = State::Finished;
        if self.teller.is_on() {
            self.tell_finished(now);
        }
        self.effects.push_back(Effect::Finished);
    }

    /// What the run has done by `now`, as if it had stopped then for that reason.
    pub(crate) fn report_at(&self, now: Instant, stop: StopReason) -> RunReport {
        let tally = &self.tally;
        let rows_resumed = self.pending.done_rows();
        let columns = self.plan.order().len();
        let mut reports: Vec<ColumnReport> = Vec::with_capacity(columns);
        for ((column, tasks), id) in self.plan.columns().iter().zip(&tally.columns).zip(0..) {
            let column_id = crate::pipeline::plan::ColumnId(id);
            reports.push(ColumnReport { column: column_id, name: column.name.clone(), tasks: *tasks });
        }
        RunReport {
            stop,
            rows: self.rows(),
            rows_resumed,
            rows_in: tally.rows_in,
            rows_out: tally.rows_out,
            rows_dropped: tally.rows_dropped,
            rows_not_started: self.rows() - rows_resumed - tally.rows_in,
            dropped: tally.dropped(),
            row_groups: self.pending.total(),
            row_groups_done: self.pending.done_groups() + tally.row_groups_saved,
            columns: reports,
            started: self.started,
            ended: now,
        }
    }
}

fn severity(reason: &StopReason) -> u8 {
    match reason {
        StopReason::Fatal { .. } => 3,
        StopReason::CheckpointFailed { .. } | StopReason::HookFailed { .. } => 2,
        StopReason::Drained => 0,
        _ => 1,
    }
}
