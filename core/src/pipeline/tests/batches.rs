//! Batches: ready cells of one column and row group that start together.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

/// Returns the batches that run, each as the label of its lead and the number of its tasks. A task without a
/// batch counts as one task.
fn running_batches(rig: &Rig) -> Vec<(String, u32)> {
    let leading = rig.running.iter().filter(|task| !task.follows());
    leading.map(|task| (rig.label(task), task.batch.map_or(1, |batch| batch.size))).collect()
}

fn of(batches: &[(&str, u32)]) -> Vec<(String, u32)> {
    batches.iter().map(|(label, size)| ((*label).into(), *size)).collect()
}

#[test]
fn ready_cells_of_a_row_group_start_in_full_batches_and_one_with_the_rest() {
    let rig = Rig::start([batched("a", &[], 3)], rows(10, 7));
    assert_eq!(running_batches(&rig), of(&[("a:0.0", 3), ("a:0.3", 3), ("a:0.6", 1), ("a:1.0", 3)]));
    assert_eq!(rig.pipeline.active_leases(), 4, "a batch holds the demand of one task");
    assert!(rig.running.iter().filter(|task| task.follows()).all(|task| task.token.is_none()));
}

#[test]
fn a_batch_waits_for_cells_whose_upstreams_are_not_complete() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 2)], rows(3, 3));
    rig.succeed("up:0.1");
    assert_eq!(rig.running_names(), ["up:0.0", "up:0.2"]);
    rig.succeed("up:0.2");
    assert_eq!(running_batches(&rig), of(&[("up:0.0", 1), ("down:0.1", 2)]));
    rig.succeed("up:0.0");
    assert_eq!(running_batches(&rig), of(&[("down:0.1", 2), ("down:0.0", 1)]), "none is to come");
}

#[test]
fn the_explanation_of_a_gathered_cell_is_its_batch() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 4)], rows(3, 3));
    rig.succeed("up:0.0");
    let waits = rig.pipeline.why_column(ColumnId(1));
    assert!(matches!(waits[..], [(TaskWait::Batch, 1), (TaskWait::Upstream { .. }, 2)]), "{waits:?}");
}

#[test]
fn a_batch_does_not_wait_for_dropped_or_skipped_rows() {
    let down = batched("down", &["up"], 4).skip_with_upstream(true);
    let mut rig = Rig::start([cell("up", &[]), down], rows(4, 4));
    rig.succeed("up:0.0");
    rig.succeed("up:0.3");
    rig.end("up:0.1", FAILED);
    assert_eq!(rig.running_names(), ["up:0.2"]);
    rig.end("up:0.2", TaskOutcome::Skipped);
    assert_eq!(running_batches(&rig), of(&[("down:0.0", 2)]));
}

#[test]
fn each_cell_of_a_batch_has_an_outcome_of_its_own() {
    let mut rig = Rig::start([batched("a", &[], 4)], rows(4, 4));
    rig.end("a:0.0", FAILED);
    rig.succeed("a:0.1");
    rig.end("a:0.2", TaskOutcome::Skipped);
    rig.end("a:0.3", retry(RetryKind::ServerError));
    rig.back_off();
    assert_eq!(running_batches(&rig), of(&[("a:0.3", 1)]), "only the failed one is retried");
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (3, 1));
}

#[test]
fn cells_that_are_retried_are_gathered_again() {
    let mut rig = Rig::start([batched("a", &[], 3)], rows(3, 3));
    rig.end_all(rate_limited(Duration::from_secs(1)));
    while rig.running.is_empty() {
        rig.back_off();
    }
    assert_eq!(running_batches(&rig).iter().map(|(_, size)| *size).collect::<Vec<_>>(), [3]);
    assert!(rig.running.iter().all(|task| task.attempt == 2));
    rig.end_all(retry(RetryKind::ServerError));
    while rig.running.is_empty() {
        rig.back_off();
    }
    let sizes: u32 = running_batches(&rig).iter().map(|(_, size)| *size).sum();
    assert_eq!(sizes as usize, rig.running.len());
    rig.run_well();
    assert_eq!(rig.report().rows_out, 3);
}

/// Runs to the end. A batch with the cell `poison` fails, and every other one succeeds. Returns the sizes of
/// the batches with the cell, and those of the others.
fn run_poisoned(rig: &mut Rig, poison: &str) -> (Vec<u32>, Vec<u32>) {
    let (mut failed, mut others) = (Vec::new(), Vec::new());
    rig.run(|rig, task| {
        let mates = rig.spawned.iter().filter(|mate| (mate.attempt, mate.batch) == (task.attempt, task.batch));
        let is_poisoned = match task.batch {
            Some(_) => mates.clone().any(|mate| rig.label(mate) == poison),
            None => rig.label(task) == poison,
        };
        if !task.follows() {
            let sizes = if is_poisoned { &mut failed } else { &mut others };
            sizes.push(task.batch.map_or(1, |batch| batch.size));
        }
        if is_poisoned { retry(RetryKind::ServerError) } else { TaskOutcome::Success }
    });
    (failed, others)
}

#[test]
fn retries_in_smaller_batches_cost_only_the_cell_that_makes_its_calls_fail() {
    let config = PipelineConfig { retries: 3, shutdown_rate: None, ..rows(32, 32) };
    let mut rig = Rig::start([batched("a", &[], 32).splits_retries()], config.clone());
    let (failed, others) = run_poisoned(&mut rig, "a:0.13");
    assert_eq!(failed, [32, 8, 2, 1]);
    assert_eq!(others.iter().sum::<u32>(), 31);
    assert!(others.iter().all(|size| *size <= 8), "{others:?}");
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (31, 1));
    let mut whole = Rig::start([batched("a", &[], 32)], config);
    run_poisoned(&mut whole, "a:0.13");
    assert_eq!(whole.report().rows_dropped, 32, "without splitting, the others are never apart from it");
}

#[test]
fn a_retried_cell_starts_its_batch_although_others_of_its_column_wait_for_a_later_retry() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 2)], rows(2, 2));
    rig.succeed("up:0.0");
    rig.end("up:0.1", retry(RetryKind::ServerError));
    assert_eq!(running_batches(&rig), of(&[("down:0.0", 1)]));
    rig.end("down:0.0", rate_limited(Duration::from_millis(60)));
    assert!(rig.running.is_empty());
    rig.advance(Duration::from_millis(60));
    assert_eq!(running_batches(&rig), of(&[("down:0.0", 1)]), "nothing else runs, so it has nothing to wait for");
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_batch_is_one_response_of_its_provider() {
    let config = PipelineConfig { degraded_window: 2, shutdown_rate: None, ..rows(8, 8) };
    let mut rig = Rig::start([batched("a", &[], 8)], config);
    rig.end_all(retry(RetryKind::ServerError));
    assert!(rig.warnings.is_empty(), "one response does not fill a window of two");
}

#[test]
fn a_lead_that_is_dropped_while_it_is_queued_is_replaced() {
    // The resource is taken, so the lead of the batch stays queued.
    let other = cell("b", &[]).with_demand("slot", 1);
    let batch = batched("a", &[], 3).with_demand("slot", 1);
    let config = PipelineConfig { resources: [("slot".into(), 1)].into(), ..rows(3, 3) };
    let mut rig = Rig::start([other, batch], config);
    assert_eq!(rig.running_names(), ["b:0.0"]);
    rig.end("b:0.0", FAILED);
    rig.succeed("b:0.1");
    rig.succeed("b:0.2");
    assert_eq!(running_batches(&rig), of(&[("a:0.1", 2)]));
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_batch_starts_although_another_row_waits_for_an_unavailable_provider() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 3)], rows(3, 3));
    rig.succeed("up:0.0");
    rig.end("up:0.1", TaskOutcome::Unavailable);
    assert_eq!(rig.running_names(), ["up:0.2"]);
    rig.succeed("up:0.2");
    assert_eq!(running_batches(&rig), of(&[("down:0.0", 2)]));
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_unmade), (2, 1));
}

#[test]
fn a_batch_goes_before_the_salvage_round_of_its_row_group() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 3)], rows(2, 2));
    rig.succeed("up:0.0");
    rig.end("up:0.1", retry(RetryKind::ServerError));
    assert_eq!(running_batches(&rig), of(&[("down:0.0", 1)]));
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_stopped_run_starts_no_batch_and_saves_its_complete_rows() {
    let mut rig = Rig::start([cell("up", &[]), batched("down", &["up"], 2)], rows(4, 4));
    for row in ["up:0.0", "up:0.1", "up:0.2"] {
        rig.succeed(row);
    }
    rig.drain_run();
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_unmade), (2, 2));
}

#[test]
fn a_follower_whose_worker_cannot_start_is_retried_alone() {
    let mut rig = Rig::start([batched("a", &[], 2)], rows(2, 2));
    rig.fail_spawn("a:0.1");
    rig.succeed("a:0.0");
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn ordered_and_whole_group_columns_are_not_batched() {
    let whole = whole("whole", &["ordered"]).batched(4);
    let mut rig = Rig::start([cell("ordered", &[]).ordered().batched(4), whole], rows(2, 2));
    assert_eq!(rig.running_names(), ["ordered:0.0"]);
    rig.run_well();
    assert!(rig.spawned.iter().all(|task| task.batch.is_none()));
}
