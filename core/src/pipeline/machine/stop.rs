//! How the run stops and ends. The rules are in [`lifecycle`](crate::pipeline::lifecycle).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Pipeline;
use crate::pipeline::event::SchedulerEventPayload;
use crate::pipeline::lifecycle::{RunState, StopMode};
use crate::pipeline::outcome::PipelineEffect;
use crate::pipeline::plan::ColumnId;
use crate::pipeline::report::{ColumnReport, RunReport, StopReason};
use crate::pipeline::row_group::{RowGroup, RowGroupPhase};
use crate::time::Instant;

impl Pipeline {
    /// Stops the run, or makes a stop stricter.
    pub(super) fn stop(&mut self, reason: StopReason, mode: StopMode) {
        if self.emitter.is_on() {
            self.emit_cause(&reason);
        }
        let Some(stopped) = self.lifecycle.stop(reason, mode) else { return };
        if let Some((stop, aborts)) = stopped.change {
            self.emitter.run(self.clock.latest(), SchedulerEventPayload::JobStopping { stop, aborts });
        }
        if stopped.is_first {
            if !stopped.aborts {
                self.workers.mark_stopping();
            }
            self.discard_waiting();
        }
        if stopped.aborts {
            self.effects.extend(self.workers.abort_all().into_iter().map(PipelineEffect::Abort));
        }
    }

    fn discard_waiting(&mut self) {
        let discarded = self.tasks.shut_down();
        if discarded > 0 {
            self.emitter.run(self.clock.latest(), SchedulerEventPayload::QueueDrained { discarded });
        }
        self.retries.clear();
        self.row_groups.discard_waiting(&self.plan);
    }

    /// Ends the run if nothing is left, and stops it if the remaining work cannot continue.
    pub(super) fn conclude(&mut self, now: Instant) {
        if self.lifecycle.is_running() {
            if self.row_groups.is_exhausted() {
                match self.unavailable.take() {
                    // A parked task has closed the run to further row groups, and no admitted one is left.
                    Some(group) if self.rows_not_started() > 0 => {
                        self.stop(StopReason::ProviderUnavailable { group }, StopMode::DrainPartial);
                    }
                    _ => {
                        let reason = self.lifecycle.take_reason(StopReason::Completed);
                        return self.finish(now, reason);
                    }
                }
            } else if self.is_idle()
                && self.row_groups.counts().delayed() == 0
                && !self.row_groups.pending().is_claiming()
            {
                let reason = match self.unavailable.take() {
                    Some(group) => StopReason::ProviderUnavailable { group },
                    None => StopReason::Stuck { why: self.why_stuck() },
                };
                self.stop(reason, StopMode::DrainPartial);
            }
        }
        if let RunState::Stopping(_) = self.lifecycle.state() {
            self.settle_quiet(now);
            if self.is_idle() {
                let reason = self.lifecycle.take_reason(StopReason::Cancelled);
                self.finish(now, reason);
            }
        }
    }

    /// Returns the number of rows in row groups that were not admitted.
    fn rows_not_started(&self) -> u64 {
        let pending = self.row_groups.pending();
        pending.rows() - pending.done_rows() - self.tally.rows_in()
    }

    /// Returns whether no worker, hook or checkpoint is in progress.
    fn is_idle(&self) -> bool {
        self.workers.len() == 0 && self.row_groups.in_host() == 0
    }

    fn settle_quiet(&mut self, now: Instant) {
        let groups = self.row_groups.active().iter();
        let computing = groups.filter(|group| group.phase() == RowGroupPhase::Computing && group.is_quiet());
        let quiet: Vec<u32> = computing.map(RowGroup::number).collect();
        for row_group in quiet {
            self.settle(now, row_group);
        }
    }

    fn why_stuck(&self) -> String {
        let groups = self.row_groups.active();
        let open: usize = groups.iter().map(|group| group.frontier().open()).sum();
        let tasks = self.tasks.tasks();
        format!(
            "{open} tasks of {} row groups are open, {} of them queued, and no worker, timer, hook or checkpoint is \
             left; dispatcher: {}",
            groups.len(),
            tasks.queued(),
            tasks.why_blocked(),
        )
    }

    fn finish(&mut self, now: Instant, stop: StopReason) {
        debug_assert_eq!(self.tasks.tasks().active_leases(), 0, "every lease is released");
        debug_assert_eq!(self.tasks.tasks().queued(), 0, "no task is queued when no row group is active");
        self.tally.check();
        self.lifecycle.finish(self.report_at(now, stop));
        if self.emitter.is_on() {
            self.emit_finished(now);
        }
        self.effects.push_back(PipelineEffect::Finished);
    }

    /// Returns a report of the run up to `now`, with the given stop reason.
    pub(crate) fn report_at(&self, now: Instant, stop: StopReason) -> RunReport {
        let (tally, pending) = (&self.tally, self.row_groups.pending());
        let columns = self.plan.columns().iter().zip((0..).map(ColumnId));
        let columns =
            columns.map(|(column, id)| ColumnReport { column: id, name: column.name.clone(), tasks: *tally.tasks(id) });
        RunReport {
            stop,
            rows: pending.rows(),
            rows_resumed: pending.done_rows(),
            rows_in: tally.rows_in(),
            rows_out: tally.rows_out(),
            rows_dropped: tally.rows_dropped(),
            rows_unmade: tally.rows_unmade(),
            rows_not_started: self.rows_not_started(),
            dropped: tally.dropped().to_vec(),
            retryable: self.retryable.counts(),
            row_groups: pending.total(),
            row_groups_done: pending.done_groups() + tally.row_groups_saved(),
            columns: columns.collect(),
            started: self.lifecycle.started(),
            ended: now,
        }
    }
}
