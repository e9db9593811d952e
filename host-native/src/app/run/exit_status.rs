//! Turns the scheduler's report into the summary of a run: the reason why it stopped, the dropped rows, and
//! the exit status.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::{DropReason, DroppedCount, FailureKind, RunReport, StopReason, TaskCounts};

use crate::app::config::pipeline::PipelineFile;
use crate::app::error::Exit;
use crate::app::output::{EarlierOutput, JobTotals, ModelTotals, OutputDirectory, REJECTED, SURPLUS};
use crate::app::provider::cost::LedgerStop;
use crate::app::report::summary::{Acceptance, ColumnSummary, DropSummary, ProviderSummary, ShareSummary, Summary};
use crate::app::run::models::Models;
use crate::app::run::provider::Provider;
use crate::app::run::workload::PipelineWorkload;
use crate::app::run::written_counts::{DroppedRows, WrittenCounts};
use crate::share::{Share, ShareStatus};

/// How a run ended.
#[derive(Debug)]
pub struct RunEnd {
    /// The scheduler's report; `None` if a second signal stopped the run at once.
    pub report: Option<RunReport>,
    /// Time from the start of the run to the last checkpoint.
    pub wall: StdDuration,
    /// The idle time and utilization of the run.
    pub figures: RunFigures,
}

impl RunEnd {
    /// Returns whether the run stopped because a provider became unavailable.
    fn is_unavailable(&self) -> bool {
        let stop = self.report.as_ref().map(|report| &report.stop);
        matches!(stop, Some(StopReason::ProviderUnavailable { .. }))
    }
}

/// Returns the summary of the run of the pipeline `name`, with its `file`, over `rows_in` rows into `output`.
#[must_use]
pub fn summarise(
    name: &str,
    file: &PipelineFile,
    rows_in: u64,
    end: &RunEnd,
    models: &Models,
    work: &PipelineWorkload,
    output: &OutputDirectory,
) -> Summary {
    let report = end.report.as_ref();
    // Counted by the writer, because there is no report after a second signal.
    let written = work.written();
    let (exit, stopped) = match models.ledger().lock().stop_reason().filter(|_| end.is_unavailable()) {
        Some(LedgerStop::CostLimit(limit)) => {
            (Exit::CostLimit, Some(format!("the next call might pass the cost limit of {limit} {}", file.currency)))
        }
        Some(LedgerStop::Unwritable(why)) => (Exit::Output, Some(why.clone())),
        None => {
            let unavailable: Vec<String> = models.providers().iter().filter_map(|one| one.unavailable()).collect();
            let own = work.is_together().then(|| written.counts().0);
            exit_status(end, own, output.remaining(), &unavailable.join("; "))
        }
    };
    let acceptance = acceptance(file, rows_in, &written, output);
    let (exit, stopped) = match &acceptance {
        Some(Acceptance { is_enough: true, .. }) => {
            let has_dropped = written.rows_dropped() + output.remaining().rows_dropped > 0;
            (if has_dropped { Exit::RowsDropped } else { Exit::Done }, None)
        }
        Some(acceptance) if stopped.is_none() => match acceptance.shortage() {
            Some(why) => (Exit::RowsDropped, Some(why)),
            None => (exit, stopped),
        },
        _ => (exit, stopped),
    };
    let counts = |column: &str| {
        let found = report.and_then(|report| report.columns.iter().find(|known| known.name == column));
        found.map_or_else(TaskCounts::default, |found| found.tasks)
    };
    let columns = file.columns.iter().enumerate().map(|(index, column)| {
        let name = column.name.get_ref();
        let models = column.kind.models();
        let filled_by: Vec<&str> = models.iter().map(|model| file.models[*model].name.as_str()).collect();
        let filled_by = if models.is_empty() { column.kind.name().to_string() } else { filled_by.join(", else ") };
        let answers = if models.len() > 1 { work.answers(index) } else { Vec::new() };
        let tasks = counts(name);
        ColumnSummary {
            name: name.clone(),
            filled_by,
            answers,
            succeeded: tasks.succeeded,
            retried: tasks.retryable,
            failed: tasks.failed,
            skipped: tasks.skipped + tasks.skipped_with_upstream,
        }
    });
    let has_prices = file.models.iter().any(|model| model.price.is_some());
    Summary {
        pipeline: name.to_string(),
        stopped,
        rows_in,
        rows_out: written.rows,
        dropped: dropped_rows(&written, output),
        acceptance,
        retryable: report.map_or_else(Vec::new, |report| report.retryable.clone()),
        retry: None,
        row_groups: written.row_groups,
        columns: columns.collect(),
        providers: models.providers().iter().map(provider_summary).collect(),
        spent: has_prices.then(|| (models.ledger().lock().spent(), file.currency.clone())),
        figures: end.figures.clone(),
        wall: end.wall,
        shares: models.share().map_or_else(Vec::new, share_summaries),
        comparison: None,
        earlier: output.remaining(),
        job: output.used().plus(&run_totals(models)),
        output: output.root().to_path_buf(),
        export: None,
        unfinished: Some(written.unfinished).filter(|unfinished| unfinished.rows > 0),
        is_together: work.is_together(),
        exit,
    }
}

fn share_summaries(share: &Share) -> Vec<ShareSummary> {
    let summary = |status: ShareStatus| ShareSummary { limit: status.limit.to_string(), state: status.to_string() };
    share.status().into_iter().map(summary).collect()
}

fn provider_summary(provider: &Arc<Provider>) -> ProviderSummary {
    ProviderSummary {
        label: provider.label.clone(),
        calls: provider.calls(),
        cap: provider.snapshot().effective_max,
        tokens: provider.tokens(),
    }
}

/// Returns what this run has used so far.
#[must_use]
pub fn run_totals(models: &Models) -> JobTotals {
    let mut totals = JobTotals { runs: 1, spent: models.ledger().lock().spent(), ..JobTotals::default() };
    for provider in models.providers() {
        let (calls, tokens) = (provider.calls(), provider.tokens());
        let used = ModelTotals {
            calls: calls.made,
            succeeded: calls.succeeded,
            rate_limited: calls.rate_limited,
            failed: calls.failed,
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            not_counted: tokens.unbilled,
            cost: tokens.cost.unwrap_or_default(),
        };
        let sum = totals.models.entry(provider.label.clone()).or_default();
        *sum = sum.plus(&used);
    }
    totals
}

/// Returns the dropped rows of this and earlier runs by column and reason, each with an example from this
/// run.
fn dropped_rows(written: &WrittenCounts, output: &OutputDirectory) -> Vec<DropSummary> {
    let mut all = written.dropped.clone();
    for (key, rows) in output.dropped().into_iter().filter(|((_, reason), _)| reason != REJECTED && reason != SURPLUS) {
        let known: &mut DroppedRows = all.entry(key).or_default();
        known.rows += rows;
    }
    let one = |((column, reason), DroppedRows { rows, example })| DropSummary { column, reason, rows, example };
    all.into_iter().map(one).collect()
}

/// Returns what the columns with `accept_if` have decided, if there are any.
fn acceptance(
    file: &PipelineFile,
    rows_in: u64,
    written: &WrittenCounts,
    output: &OutputDirectory,
) -> Option<Acceptance> {
    file.columns.iter().find(|column| column.accept_if.is_some())?;
    let mut rejected = written.rejected.clone();
    for ((column, _), rows) in output.dropped().into_iter().filter(|((_, reason), _)| reason == REJECTED) {
        *rejected.entry(column).or_default() += rows;
    }
    let accepted = written.rows + output.remaining().rows_out;
    let is_limited = file.rows.most <= rows_in;
    Some(Acceptance { wanted: file.rows.wanted, is_limited, accepted, rejected, is_enough: output.has_enough() })
}

/// Returns the exit status, and the reason if the run stopped before its end. `unavailable` describes the
/// providers that have become unavailable.
///
/// If several processes fill the output, `own` is what this one has written, and `earlier` has what the
/// others have. The report has also row groups whose rows were discarded, because another process has written
/// them.
fn exit_status(
    end: &RunEnd,
    own: Option<EarlierOutput>,
    earlier: EarlierOutput,
    unavailable: &str,
) -> (Exit, Option<String>) {
    let Some(report) = &end.report else {
        return (Exit::Interrupted, Some("interrupted twice; row groups in progress were not finished".to_string()));
    };
    // With others, the status is that of all, so that it is the same in each process.
    let (made, dropped) = match own {
        Some(own) => (own.rows_out + own.rows_rejected, own.rows_dropped + earlier.rows_dropped),
        None => (report.rows_out, report.rows_dropped),
    };
    let has_rows = made + earlier.rows_out > 0 || dropped == 0;
    let exit = match &report.stop {
        StopReason::Completed if dropped + earlier.rows_dropped == 0 => Exit::Done,
        StopReason::Completed if has_rows => Exit::RowsDropped,
        StopReason::Completed | StopReason::EarlyShutdown { .. } => failure_exit(report),
        StopReason::ProviderUnavailable { .. } => Exit::Provider,
        StopReason::Cancelled | StopReason::WoundDown | StopReason::Drained => Exit::Interrupted,
        StopReason::CheckpointFailed { .. } | StopReason::ClaimFailed { .. } => Exit::Output,
        _ => Exit::Internal,
    };
    let why = match &report.stop {
        StopReason::Completed if has_rows => None,
        StopReason::Completed => Some("no row could be finished".to_string()),
        StopReason::Cancelled => Some("interrupted".to_string()),
        StopReason::Drained => Some("terminated; outstanding calls have ended".to_string()),
        StopReason::WoundDown => Some("interrupted; row groups in progress are finished".to_string()),
        StopReason::Fatal { column, row_group, cause } => {
            let known = report.columns.iter().find(|known| known.column == *column);
            let name = known.map_or("?", |known| &known.name);
            Some(format!("a bug in column `{name}` of row group {row_group}: {cause}"))
        }
        StopReason::ProviderUnavailable { .. } => Some(format!(
            "{unavailable}. No row is dropped for this reason; run the same command with `--resume`, or as it is \
             if it has `--together`, to make the rest"
        )),
        stop => Some(stop.to_string()),
    };
    (exit, why)
}

/// Returns the exit status of failed rows: the pipeline's if all failed in templates, else the provider's.
fn failure_exit(report: &RunReport) -> Exit {
    let mut failures = report.dropped.iter().peekable();
    let is_template = |count: &DroppedCount| count.reason == DropReason::Failed(FailureKind::Template);
    if failures.peek().is_some() && failures.all(is_template) { Exit::Pipeline } else { Exit::Provider }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::pipeline::{Column, Hook, PlanBuilder, Strategy};
    use tidegate_core::time::Instant;

    fn ending(stop: StopReason, rows_out: u64, dropped: &[(DropReason, u64)]) -> RunEnd {
        let rows_dropped = dropped.iter().map(|(_, rows)| rows).sum();
        let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
        let column = plan.column_id("a").unwrap();
        let dropped = dropped.iter().map(|&(reason, rows)| DroppedCount { column, reason, rows }).collect();
        let report = RunReport {
            stop,
            rows: 10,
            rows_resumed: 0,
            rows_in: rows_out + rows_dropped,
            rows_out,
            rows_dropped,
            rows_unmade: 0,
            rows_not_started: 10 - rows_out - rows_dropped,
            dropped,
            retryable: Vec::new(),
            row_groups: 2,
            row_groups_done: 1,
            columns: Vec::new(),
            started: Instant::ZERO,
            ended: Instant::ZERO,
        };
        RunEnd { report: Some(report), wall: StdDuration::ZERO, figures: RunFigures::default() }
    }

    fn exit(stop: StopReason, rows_out: u64, dropped: &[(DropReason, u64)]) -> Exit {
        exit_status(&ending(stop, rows_out, dropped)).0
    }

    const REFUSED: DropReason = DropReason::Failed(FailureKind::Request);
    const TEMPLATE: DropReason = DropReason::Failed(FailureKind::Template);

    fn exit_status(end: &RunEnd) -> (Exit, Option<String>) {
        super::exit_status(end, None, EarlierOutput::default(), "acme/m cannot be used: no connection")
    }

    #[test]
    fn a_completed_run_is_done_or_has_dropped_rows_or_has_finished_none() {
        assert_eq!(exit_status(&ending(StopReason::Completed, 10, &[])), (Exit::Done, None));
        assert_eq!(exit_status(&ending(StopReason::Completed, 9, &[(REFUSED, 1)])), (Exit::RowsDropped, None));
        let (code, why) = exit_status(&ending(StopReason::Completed, 0, &[(REFUSED, 10)]));
        assert_eq!((code, why.as_deref()), (Exit::Provider, Some("no row could be finished")));
    }

    #[test]
    fn of_processes_that_fill_a_dataset_together_each_counts_the_dropped_rows_that_were_written() {
        let end = ending(StopReason::Completed, 3, &[(REFUSED, 1)]);
        let exit = |own: [u64; 2], others: [u64; 2]| {
            let [own, others] = [own, others].map(|[rows_out, rows_dropped]| EarlierOutput {
                rows_out,
                rows_dropped,
                ..EarlierOutput::default()
            });
            super::exit_status(&end, Some(own), others, "").0
        };
        assert_eq!(exit([3, 1], [6, 0]), Exit::RowsDropped);
        assert_eq!(exit([0, 0], [10, 0]), Exit::Done, "another process has made the row that this one has dropped");
        assert_eq!(exit([4, 0], [5, 1]), Exit::RowsDropped);
        assert_eq!(exit([0, 4], [0, 6]), Exit::Provider, "no row could be finished");
        assert_eq!(exit([0, 0], [0, 10]), Exit::Provider, "the same in a process that has written nothing");
    }

    #[test]
    fn rows_that_failed_only_in_templates_give_the_exit_status_of_the_pipeline() {
        let stop = StopReason::EarlyShutdown { failures: 10, window: 10 };
        assert_eq!(exit(stop.clone(), 0, &[(TEMPLATE, 5)]), Exit::Pipeline);
        assert_eq!(exit(stop.clone(), 0, &[(TEMPLATE, 5), (REFUSED, 1)]), Exit::Provider);
        assert_eq!(exit(stop, 0, &[]), Exit::Provider);
    }

    #[test]
    fn every_other_stop_reason_has_its_exit_status_and_a_message() {
        for (stop, code, part) in [
            (
                StopReason::ProviderUnavailable { group: Vec::new() },
                Exit::Provider,
                "acme/m cannot be used: no connection",
            ),
            (StopReason::CheckpointFailed { row_group: 3, why: "disk full".to_string() }, Exit::Output, "disk full"),
            (StopReason::Cancelled, Exit::Interrupted, "interrupted"),
            (StopReason::Stuck { why: "x".to_string() }, Exit::Internal, "stuck"),
            (
                StopReason::HookFailed { row_group: 1, hook: Hook::PostBatch, why: "no schema".to_string() },
                Exit::Internal,
                "post-batch hook of row group 1 failed: no schema",
            ),
        ] {
            let (exit, why) = exit_status(&ending(stop, 1, &[]));
            assert_eq!(exit, code);
            assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{why:?}");
        }
    }

    #[test]
    fn a_run_without_a_report_was_interrupted() {
        let end = RunEnd { report: None, wall: StdDuration::ZERO, figures: RunFigures::default() };
        assert_eq!(exit_status(&end).0, Exit::Interrupted);
    }
}
