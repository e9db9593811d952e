//! What the scheduler's report means for a person: why the run ended, what was dropped, and the exit code.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::{DropReason, DroppedCount, FailureKind, RunReport, StopReason, TaskCounts};

use crate::app::config::pipeline::PipelineFile;
use crate::app::error::Exit;
use crate::app::output::{Earlier, JobTotals, ModelTotals, OutputDirectory};
use crate::app::provider::cost::Withheld;
use crate::app::report::summary::{ColumnSummary, Dropped, ProviderSummary, Summary};
use crate::app::run::models::Models;
use crate::app::run::provider::Provider;
use crate::app::run::workload::{DroppedRows, JobWork, Written};

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// The scheduler's report; none when a second interrupt did not wait for it.
    pub report: Option<RunReport>,
    /// Whether a signal asked for the end.
    pub interrupted: bool,
    /// From the first task to the last checkpoint.
    pub wall: StdDuration,
    /// Where the capacity went.
    pub figures: RunFigures,
}

impl Ending {
    /// Whether it stopped because calls could not be made any more.
    fn is_unavailable(&self) -> bool {
        let stop = self.report.as_ref().map(|report| &report.stop);
        matches!(stop, Some(StopReason::ProviderUnavailable { .. }))
    }
}

/// The summary of the run called `name` of the pipeline `file` over `rows_in` rows, written to `output`.
#[must_use]
pub fn summarise(
    name: &str,
    file: &PipelineFile,
    rows_in: u64,
    ending: &Ending,
    models: &Models,
    work: &JobWork,
    output: &OutputDirectory,
) -> Summary {
    let report = ending.report.as_ref();
    let (exit, stopped) = match models.ledger().lock().withheld().filter(|_| ending.is_unavailable()) {
        Some(Withheld::CostLimit(limit)) => {
            (Exit::CostLimit, Some(format!("the next call might pass the cost limit of {limit} {}", file.currency)))
        }
        Some(Withheld::Unwritable(why)) => (Exit::Output, Some(why.clone())),
        None => {
            let unavailable: Vec<String> = models.providers().iter().filter_map(|one| one.unavailable()).collect();
            verdict(ending, output.remaining(), &unavailable.join("; "))
        }
    };
    // From the writer and not from the report, which a second interrupt does not wait for.
    let written = work.written();
    let counts = |column: &str| {
        let found = report.and_then(|report| report.columns.iter().find(|known| known.name == column));
        found.map_or_else(TaskCounts::default, |found| found.tasks)
    };
    let columns = file.columns.iter().map(|column| {
        let name = column.name.get_ref();
        let filled_by = match column.kind.model() {
            Some(model) => file.models[model].name.clone(),
            None => column.kind.name().to_string(),
        };
        let tasks = counts(name);
        ColumnSummary {
            name: name.clone(),
            filled_by,
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
        dropped: dropped(&written, output),
        retryable: report.map_or_else(Vec::new, |report| report.retryable.clone()),
        retry: None,
        row_groups: written.row_groups,
        columns: columns.collect(),
        providers: models.providers().iter().map(provider_summary).collect(),
        spent: has_prices.then(|| (models.ledger().lock().spent(), file.currency.clone())),
        figures: ending.figures.clone(),
        wall: ending.wall,
        comparison: None,
        earlier: output.remaining(),
        job: output.used().plus(&usage(models)),
        output: output.root().to_path_buf(),
        exit,
    }
}

fn provider_summary(provider: &Arc<Provider>) -> ProviderSummary {
    ProviderSummary {
        label: provider.label.clone(),
        calls: provider.calls(),
        cap: provider.snapshot().effective_max,
        usage: provider.usage(),
        tokens: provider.tokens(),
    }
}

/// What a run has used so far.
#[must_use]
pub fn usage(models: &Models) -> JobTotals {
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

/// The dropped rows of the job by column and reason, each with the first row of this run and what happened to
/// it.
fn dropped(written: &Written, output: &OutputDirectory) -> Vec<Dropped> {
    let mut all = written.dropped.clone();
    for (key, rows) in output.dropped() {
        let known: &mut DroppedRows = all.entry(key).or_default();
        known.rows += rows;
    }
    let one = |((column, reason), DroppedRows { rows, example })| Dropped { column, reason, rows, example };
    all.into_iter().map(one).collect()
}

/// The exit code, and why the run stopped if it did not come to its end. `unavailable`: the providers that cannot be used any more,
/// in words.
fn verdict(ending: &Ending, earlier: Earlier, unavailable: &str) -> (Exit, Option<String>) {
    let Some(report) = &ending.report else {
        return (Exit::Interrupted, Some("interrupted twice, without waiting for row groups in work".to_string()));
    };
    let exit = match &report.stop {
        StopReason::Completed if report.rows_dropped + earlier.rows_dropped == 0 => Exit::Done,
        StopReason::Completed if report.rows_out + earlier.rows_out > 0 || report.rows_dropped == 0 => {
            Exit::RowsDropped
        }
        StopReason::Completed | StopReason::EarlyShutdown { .. } => blame(report),
        StopReason::ProviderUnavailable { .. } => Exit::Provider,
        StopReason::Cancelled | StopReason::WoundDown | StopReason::Drained => Exit::Interrupted,
        StopReason::CheckpointFailed { .. } => Exit::Output,
        _ => Exit::Internal,
    };
    let why = match &report.stop {
        StopReason::Completed if report.rows_out + earlier.rows_out > 0 || report.rows_dropped == 0 => None,
        StopReason::Completed => Some("not one row could be finished".to_string()),
        StopReason::Cancelled => Some("interrupted".to_string()),
        StopReason::Drained => Some("terminated; the calls that were out have ended".to_string()),
        StopReason::WoundDown => Some("interrupted; what was in work is finished".to_string()),
        StopReason::Fatal { column, row_group, cause } => {
            let known = report.columns.iter().find(|known| known.column == *column);
            let name = known.map_or("?", |known| &known.name);
            Some(format!("a bug, in column `{name}` of row group {row_group}: {cause}"))
        }
        StopReason::ProviderUnavailable { .. } => {
            Some(format!("{unavailable}. No row is dropped for that: the same command with `--resume` makes the rest"))
        }
        stop => Some(stop.to_string()),
    };
    (exit, why)
}

/// Whose fault it is that rows failed: the pipeline's when it was the templates alone, else a provider's.
fn blame(report: &RunReport) -> Exit {
    let mut failures = report.dropped.iter().peekable();
    let is_template = |count: &DroppedCount| count.reason == DropReason::Failed(FailureKind::Template);
    if failures.peek().is_some() && failures.all(is_template) { Exit::Pipeline } else { Exit::Provider }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::pipeline::{Column, Hook, PlanBuilder, Strategy};
    use tidegate_core::time::Instant;

    fn ending(stop: StopReason, rows_out: u64, dropped: &[(DropReason, u64)]) -> Ending {
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
        Ending { report: Some(report), interrupted: false, wall: StdDuration::ZERO, figures: RunFigures::default() }
    }

    fn exit(stop: StopReason, rows_out: u64, dropped: &[(DropReason, u64)]) -> Exit {
        verdict(&ending(stop, rows_out, dropped)).0
    }

    const REFUSED: DropReason = DropReason::Failed(FailureKind::Request);
    const TEMPLATE: DropReason = DropReason::Failed(FailureKind::Template);

    fn verdict(ending: &Ending) -> (Exit, Option<String>) {
        super::verdict(ending, Earlier::default(), "acme/m cannot be used: no connection")
    }

    #[test]
    fn a_run_to_the_end_is_done_or_dropped_rows_or_finished_nothing() {
        assert_eq!(verdict(&ending(StopReason::Completed, 10, &[])), (Exit::Done, None));
        assert_eq!(verdict(&ending(StopReason::Completed, 9, &[(REFUSED, 1)])), (Exit::RowsDropped, None));
        let (code, why) = verdict(&ending(StopReason::Completed, 0, &[(REFUSED, 10)]));
        assert_eq!((code, why.as_deref()), (Exit::Provider, Some("not one row could be finished")));
    }

    #[test]
    fn failures_of_templates_alone_are_the_pipelines_fault() {
        let stop = StopReason::EarlyShutdown { failures: 10, window: 10 };
        assert_eq!(exit(stop.clone(), 0, &[(TEMPLATE, 5)]), Exit::Pipeline);
        assert_eq!(exit(stop.clone(), 0, &[(TEMPLATE, 5), (REFUSED, 1)]), Exit::Provider);
        assert_eq!(exit(stop, 0, &[]), Exit::Provider);
    }

    #[test]
    fn every_other_stop_has_its_own_exit_code_and_says_why() {
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
            let (exit, why) = verdict(&ending(stop, 1, &[]));
            assert_eq!(exit, code);
            assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{why:?}");
        }
    }

    #[test]
    fn a_second_interrupt_does_not_wait_for_a_report() {
        let ending =
            Ending { report: None, interrupted: true, wall: StdDuration::ZERO, figures: RunFigures::default() };
        assert_eq!(verdict(&ending).0, Exit::Interrupted);
    }
}
