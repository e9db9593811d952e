//! Columns that are skipped for a row.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

const SKIPPED: TaskOutcome = TaskOutcome::Skipped;

fn following(name: &str, upstreams: &[&str]) -> Column {
    cell(name, upstreams).skip_with_upstream(true)
}

/// Returns `(skipped, skipped_with_upstream)` of each column.
fn skips(rig: &Rig) -> Vec<(u64, u64)> {
    rig.report().columns.iter().map(|column| (column.tasks.skipped, column.tasks.skipped_with_upstream)).collect()
}

#[test]
fn a_skipped_cell_counts_as_done_and_its_row_can_be_complete() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], rows(2, 2));
    rig.end("a:0.0", SKIPPED);
    assert_eq!(rig.running_names(), ["a:0.1", "b:0.0"], "b runs as if a had been computed");
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (2, 0));
    assert_eq!(skips(&rig), [(1, 0), (0, 0)]);
    assert_eq!(rig.report().columns[0].tasks.succeeded, 1);
}

#[test]
fn skip_with_upstream_skips_a_column_without_a_worker_if_any_upstream_is_skipped() {
    let columns = [cell("a", &[]), cell("b", &[]), following("c", &["a", "b"]), following("d", &["c"])];
    let mut rig = Rig::start(columns, rows(2, 2));
    rig.end("a:0.0", SKIPPED);
    rig.run_well();
    let spawned: Vec<String> = rig.spawned.iter().map(|task| rig.label(task)).collect();
    assert_eq!(spawned, ["a:0.0", "a:0.1", "b:0.0", "b:0.1", "c:0.1", "d:0.1"]);
    assert_eq!(skips(&rig), [(1, 0), (0, 0), (0, 1), (0, 1)]);
    assert_eq!(rig.finished[0].live, [0, 1]);
}

#[test]
fn a_skip_does_not_propagate_through_a_column_that_runs() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"]), following("c", &["b"])], rows(1, 1));
    rig.end("a:0.0", SKIPPED);
    rig.succeed("b:0.0");
    assert_eq!(rig.running_names(), ["c:0.0"]);
}

#[test]
fn a_full_column_is_not_skipped_by_single_rows() {
    let mut rig = Rig::start([cell("a", &[]), whole("rank", &["a"]).skip_with_upstream(true)], rows(2, 2));
    rig.end("a:0.0", SKIPPED);
    rig.end("a:0.1", SKIPPED);
    assert_eq!(rig.running_names(), ["rank:0"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_skipped_full_column_skips_all_rows_of_its_downstreams() {
    let columns = [whole("w", &[]), whole("v", &["w"]).skip_with_upstream(true), following("a", &["v"])];
    let mut rig = Rig::start(columns, rows(3, 3));
    rig.end("w:0", SKIPPED);
    assert_eq!((rig.running.len(), rig.finished[0].live.len()), (0, 3));
    rig.run_well();
    assert_eq!(skips(&rig), [(1, 0), (0, 1), (0, 3)]);
}

#[test]
fn a_row_dropped_while_a_skip_is_pending_stays_dropped() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[]), following("c", &["a", "b"])], rows(1, 1));
    rig.end("a:0.0", SKIPPED);
    rig.end("b:0.0", FAILED);
    rig.run_well();
    assert_eq!(rig.report().rows_dropped, 1);
    assert_eq!(skips(&rig)[2], (0, 0));
}

#[test]
fn a_skip_does_not_count_as_a_response_of_the_provider() {
    let patience = Some(Duration::from_secs(5));
    let config = PipelineConfig { shutdown_window: 2, rate_limit_patience: patience, ..rows(4, 4) };
    let mut rig = Rig::start([cell("a", &[])], config);
    rig.end("a:0.0", FAILED);
    rig.end("a:0.1", SKIPPED);
    assert!(!rig.running.is_empty(), "one final outcome: the window is not full");
    rig.end("a:0.2", rate_limited(Duration::from_secs(5)));
    rig.end("a:0.3", SKIPPED);
    rig.advance(Duration::from_secs(5));
    rig.end("a:0.2", rate_limited(Duration::from_secs(5)));
    rig.run_well();
    let stop = &rig.report().stop;
    assert!(matches!(stop, StopReason::ProviderUnavailable { .. }), "the skip did not reset the patience: {stop}");
}

#[test]
fn a_skipped_task_of_an_ordered_column_passes_its_turn_to_the_next_one() {
    let mut rig = Rig::start([cell("a", &[]), following("b", &["a"]).ordered()], rows(3, 3));
    rig.succeed("a:0.1");
    rig.succeed("a:0.2");
    assert_eq!(rig.running_names(), ["a:0.0"]);
    rig.end("a:0.0", SKIPPED);
    assert_eq!(rig.running_names(), ["b:0.1"]);
    rig.end("b:0.1", SKIPPED);
    assert_eq!(rig.running_names(), ["b:0.2"]);
}

#[test]
fn a_row_that_lacks_only_skipped_columns_is_completed_in_a_stopping_run() {
    let config = PipelineConfig { shutdown_window: 1, ..rows(2, 2) };
    let mut rig = Rig::start([cell("a", &[]), following("b", &["a"])], config);
    rig.end("a:0.1", FAILED);
    rig.end("a:0.0", SKIPPED);
    rig.run_well();
    assert!(matches!(rig.report().stop, StopReason::EarlyShutdown { .. }));
    assert_eq!((rig.finished[0].live.as_slice(), rig.report().rows_out), (&[0][..], 1));
}
