//! Checks that rows in = rows out + rows dropped + rows unmade, and that each dropped row has a counted
//! reason.
//!
//! Only a run that stops leaves rows unmade. A row is dropped only when the pre-batch hook leaves it out, or
//! when one of its tasks ends, failed or lost. A stop drops no row, and neither does an unavailable
//! provider.

use alloc::collections::BTreeSet;
use alloc::format;

use super::joined::{Execution, execution};
use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, LifecycleStep, ensure};
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::pipeline::{DropReason, RunReport, StopReason, TaskOutcome};

/// The counts of rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    /// Rows of the admitted row groups, without those that an earlier run completed or dropped.
    rows_in: u64,
    /// Rows of the checkpoints that succeeded.
    rows_out: u64,
    /// Rows that events reported as unmade.
    rows_unmade: u64,
    /// Rows that events reported as dropped.
    rows_dropped: u64,
    /// The execution that ended last, if it failed, was lost, or could not be started.
    failed: Option<Execution>,
    /// By row group at its checkpoint: the number of its rows to be saved.
    at_checkpoint: Map<u32, u64>,
}

impl Balance {
    fn balance(&self, rows_out: u64, rows_dropped: u64, rows_unmade: u64) -> CheckResult {
        let Self { rows_in, rows_out: saved, rows_unmade: unmade, rows_dropped: dropped, .. } = *self;
        ensure(rows_dropped == dropped, || format!("{rows_dropped} dropped rows are counted instead of {dropped}"))?;
        ensure(rows_out == saved, || format!("{rows_out} saved rows are counted instead of {saved}"))?;
        ensure(rows_unmade == unmade, || format!("{rows_unmade} unmade rows are counted instead of {unmade}"))?;
        ensure(rows_in == rows_out + rows_dropped + rows_unmade, || {
            format!("{rows_in} rows in, but {rows_out} rows out, {rows_dropped} dropped and {rows_unmade} unmade")
        })
    }
}

impl Check for Balance {
    const LAW: Law = Law::Rows;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match event.payload {
            SchedulerEventPayload::RowGroupAdmitted { rows, .. } => self.rows_in += u64::from(rows),
            SchedulerEventPayload::RowGroupCheckpointed { unmade: rows, .. }
            | SchedulerEventPayload::RowGroupDiscarded { rows, .. } => {
                self.rows_unmade += u64::from(rows);
            }
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                let has_failed = matches!(
                    outcome,
                    Some(TaskOutcome::Failed(_) | TaskOutcome::Retryable { .. } | TaskOutcome::Cancelled)
                );
                self.failed = has_failed.then(|| execution(&event.correlation));
            }
            SchedulerEventPayload::WorkerSpawnFailed { .. } => self.failed = Some(execution(&event.correlation)),
            SchedulerEventPayload::NonRetryableDropped { reason, rows } => {
                self.rows_dropped += u64::from(rows);
                let is_due = reason == DropReason::PreBatch || self.failed == Some(execution(&event.correlation));
                ensure(is_due, || format!("{rows} rows are dropped ({reason:?}), but none of their tasks failed"))?;
            }
            SchedulerEventPayload::JobCompleted { stop, rows_out, rows_dropped, rows_unmade } => {
                self.balance(rows_out, rows_dropped, rows_unmade)?;
                let stopped = !matches!(stop, StopKind::Completed | StopKind::WoundDown);
                ensure(stopped || rows_unmade == 0, || format!("{rows_unmade} rows are unmade without a stop"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_lifecycle_step(&mut self, _: &Rules, _: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match *what {
            LifecycleStep::Checkpoint(group) => {
                self.at_checkpoint.insert(group.row_group, group.live.len() as u64);
            }
            LifecycleStep::CheckpointEnded { row_group, succeeded } => {
                let rows = self.at_checkpoint.remove(&row_group).unwrap_or(0);
                self.rows_out += if succeeded { rows } else { 0 };
            }
            _ => {}
        }
        Ok(())
    }

    fn on_end(&mut self, rules: &Rules, report: &RunReport) -> CheckResult {
        self.balance(report.rows_out, report.rows_dropped, report.rows_unmade)?;
        let is_over = report.stop != StopReason::Completed || report.rows_not_started == 0;
        ensure(is_over, || format!("the run is completed, but {} rows are not started", report.rows_not_started))?;
        let reasons: u64 = report.dropped.iter().map(|count| count.rows).sum();
        let dropped = report.rows_dropped;
        ensure(reasons == dropped, || {
            format!("{dropped} rows were dropped, but the counted reasons sum to {reasons}")
        })?;
        let config = &rules.config;
        let done = config.done_row_groups.iter().copied().collect::<BTreeSet<u32>>();
        let resumed: u64 = done.into_iter().map(|row_group| u64::from(rules.rows_of(row_group))).sum();
        let size = u64::from(config.row_group_size);
        let partial = config.missing_rows.iter().flat_map(|rows| rows.start / size..=(rows.end - 1) / size);
        let partial: BTreeSet<u64> = partial.collect();
        let kept: usize = partial.into_iter().map(|row_group| rules.kept_rows(row_group as u32).len()).sum();
        let resumed = resumed + kept as u64;
        let all = resumed + self.rows_in + report.rows_not_started;
        let rows = rules.config.rows;
        ensure(all == rows, || format!("the run has {rows} rows, but {all} are accounted for"))
    }
}
