//! Reports as numbers, in the order in which `pipeline.ts` reads them. Instants and spans are milliseconds; NaN is nothing.

use tidegate_core::pipeline::TaskCounts;
use tidegate_core::pipeline::{
    DiscardReason, DropReason, FailureKind, Hook, Progress, RetryKind, RowGroupBlock, RunReport, StopReason,
};

/// Why a row was given up: the kind in the lower 4 bits, for a failure how it failed in the next.
pub(super) fn drop_code(reason: DropReason) -> u32 {
    match reason {
        DropReason::Failed(kind) => failure_code(kind) << 4,
        DropReason::RetriesExhausted(kind) => 1 | retry_code(kind) << 4,
        DropReason::WorkerLost => 2,
        DropReason::PreBatch => 3,
        _ => 15,
    }
}

/// Why a row group was not saved.
pub(super) fn discard_code(reason: DiscardReason) -> u32 {
    match reason {
        DiscardReason::Stopped => 0,
        DiscardReason::Unsaved => 1,
        DiscardReason::HookFailed => 2,
        _ => 15,
    }
}

pub(super) fn retry_code(kind: RetryKind) -> u32 {
    match kind {
        RetryKind::RateLimited => 0,
        RetryKind::Timeout => 1,
        RetryKind::ServerError => 2,
        RetryKind::Connection => 3,
        RetryKind::AdmissionTimeout => 4,
        RetryKind::UnreadableAnswer => 5,
        _ => 15,
    }
}

pub(super) fn failure_code(kind: FailureKind) -> u32 {
    match kind {
        FailureKind::Request => 0,
        FailureKind::Authentication => 1,
        FailureKind::NotFound => 2,
        FailureKind::MalformedAnswer => 3,
        FailureKind::Template => 4,
        FailureKind::Other => 5,
        FailureKind::TruncatedAnswer => 6,
        FailureKind::ContentFiltered => 7,
        FailureKind::Refused => 8,
        _ => 15,
    }
}

/// Why no further row group is admitted.
pub(super) fn block_code(block: RowGroupBlock) -> u32 {
    match block {
        RowGroupBlock::NoPendingRowGroups => 0,
        RowGroupBlock::MaxAdmittedRows => 1,
        RowGroupBlock::DeferredTasks => 2,
        RowGroupBlock::QueuedTasks => 3,
        RowGroupBlock::NoModelResource => 4,
        RowGroupBlock::ModelSaturated => 5,
        RowGroupBlock::QueuedModelDemand => 6,
        RowGroupBlock::QueuedWork => 7,
        RowGroupBlock::AtCap => 8,
        _ => 15,
    }
}

fn counts(tasks: &TaskCounts) -> [f64; 9] {
    [
        tasks.spawned,
        tasks.succeeded,
        tasks.skipped,
        tasks.retryable,
        tasks.failed,
        tasks.fatal,
        tasks.cancelled,
        tasks.ignored,
        tasks.skipped_with_upstream,
    ]
    .map(|count| count as f64)
}

/// 14 numbers, then 9 for each column.
pub(super) fn progress(progress: &Progress) -> Vec<f64> {
    let mut numbers = vec![
        progress.rows_total as f64,
        progress.rows_done as f64,
        progress.rows_dropped as f64,
        progress.rows_unmade as f64,
        f64::from(progress.row_groups_total),
        f64::from(progress.row_groups_done),
        f64::from(progress.row_groups_active),
        f64::from(progress.row_group_target),
        progress.row_group_block.map_or(f64::NAN, |block| f64::from(block_code(block))),
        progress.running as f64,
        progress.suspended as f64,
        progress.queued as f64,
        progress.delayed as f64,
        f64::from(u8::from(progress.finished)),
    ];
    numbers.extend(progress.columns.iter().flat_map(counts));
    numbers
}

/// Why it ended and two numbers about that; 10 numbers; how many drops, three numbers for each; then 9 for
/// each column.
pub(super) fn report(report: &RunReport) -> Vec<f64> {
    let mut numbers = stop(&report.stop).to_vec();
    numbers.extend([
        report.rows as f64,
        report.rows_resumed as f64,
        report.rows_in as f64,
        report.rows_out as f64,
        report.rows_dropped as f64,
        report.rows_unmade as f64,
        report.rows_not_started as f64,
        f64::from(report.row_groups),
        f64::from(report.row_groups_done),
        report.elapsed().as_nanos() as f64 / 1e6,
        report.dropped.len() as f64,
    ]);
    for dropped in &report.dropped {
        let column = dropped.column.index() as f64;
        numbers.extend([column, f64::from(drop_code(dropped.reason)), dropped.rows as f64]);
    }
    numbers.extend(report.columns.iter().flat_map(|column| counts(&column.tasks)));
    numbers
}

fn stop(reason: &StopReason) -> [f64; 3] {
    match reason {
        StopReason::Completed => [0.0, 0.0, 0.0],
        StopReason::WoundDown => [1.0, 0.0, 0.0],
        StopReason::Cancelled => [2.0, 0.0, 0.0],
        StopReason::EarlyShutdown { failures, window } => [3.0, f64::from(*failures), f64::from(*window)],
        StopReason::CheckpointFailed { row_group, .. } => [5.0, f64::from(*row_group), 0.0],
        StopReason::HookFailed { row_group, hook, .. } => {
            [6.0, f64::from(*row_group), f64::from(u8::from(*hook == Hook::PostBatch))]
        }
        StopReason::Fatal { column, row_group, .. } => [7.0, f64::from(*row_group), column.index() as f64],
        StopReason::ProviderUnavailable { .. } => [9.0, 0.0, 0.0],
        StopReason::Drained => [10.0, 0.0, 0.0],
        _ => [8.0, 0.0, 0.0],
    }
}

/// The words in a reason to stop.
pub(super) fn stop_words(reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::ProviderUnavailable { group } => Some(group.join("/")),
        StopReason::CheckpointFailed { why, .. } | StopReason::HookFailed { why, .. } | StopReason::Stuck { why } => {
            Some(why.clone())
        }
        StopReason::Fatal { cause, .. } | StopReason::PolicyPanicked { cause } => Some(cause.clone()),
        _ => None,
    }
}
