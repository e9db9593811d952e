//! Ordered columns.

use super::*;
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

#[test]
fn an_ordered_column_runs_one_row_at_a_time_and_does_not_block_other_columns() {
    let mut rig = Rig::start([cell("a", &[]).ordered(), cell("b", &[])], rows(3, 2));
    assert_eq!(rig.running_names(), ["b:0.0", "b:0.1", "b:1.0", "a:0.0"]);
    rig.succeed("a:0.0");
    assert_eq!(rig.running_names(), ["b:0.0", "b:0.1", "b:1.0", "a:0.1"]);
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["b:0.0", "b:0.1", "b:1.0", "a:1.0"]);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.spawned.len()), (3, 6));
}

#[test]
fn a_ready_task_of_an_ordered_column_waits_for_earlier_rows() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"]).ordered()], rows(4, 2));
    rig.succeed("a:1.0");
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["a:0.0", "a:1.1"]);
    rig.succeed("a:0.0");
    assert_eq!(rig.running_names(), ["a:1.1", "b:0.0"]);
    rig.succeed("b:0.0");
    rig.succeed("b:0.1");
    assert_eq!(rig.running_names(), ["a:1.1", "b:1.0"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 4);
}

#[test]
fn an_ordered_full_column_runs_in_row_group_order_with_a_limit_on_row_groups() {
    let config = PipelineConfig { row_groups: 2, ..rows(10, 2) };
    let mut rig = Rig::start([scratch("seed").ordered(), whole("all", &["seed"]).ordered()], config);
    assert_eq!(rig.running_names(), ["seed:0"]);
    rig.succeed("seed:0");
    assert_eq!(rig.running_names(), ["seed:1", "all:0"]);
    rig.succeed("seed:1");
    assert_eq!(rig.running_names(), ["all:0"], "two row groups are active");
    rig.run_well();
    let order: alloc::vec::Vec<u32> =
        rig.spawned.iter().filter(|task| rig.name(task) == "all").map(|task| task.row_group).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    assert_eq!(rig.report().rows_out, 10);
}

#[test]
fn a_task_that_is_deferred_or_delayed_keeps_the_turn() {
    let mut rig = Rig::start([cell("a", &[]).ordered(), cell("b", &[])], rows(2, 1));
    rig.end("a:0.0", rate_limited(Duration::from_secs(3)));
    assert_eq!(rig.running_names(), ["b:0.0", "b:1.0"]);
    rig.advance(Duration::from_secs(3));
    assert_eq!(rig.running_names(), ["b:0.0", "b:1.0", "a:0.0"]);
    rig.end("a:0.0", retry(RetryKind::Timeout));
    assert_eq!(rig.running_names(), ["b:0.0", "b:1.0"], "its row group has a worker: no salvage round yet");
    rig.succeed("b:0.0");
    rig.back_off();
    assert_eq!(rig.running_names(), ["b:1.0", "a:0.0"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_salvage_round_does_not_wait_for_an_ordered_task_that_depends_on_it() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"]).ordered()], rows(2, 2));
    rig.end("a:0.0", retry(RetryKind::ServerError));
    rig.succeed("a:0.1");
    rig.back_off();
    assert_eq!(rig.running_names(), ["a:0.0"], "b:0.1 waits for b:0.0, which waits for the round");
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_dropped_row_passes_its_turn_to_the_next_row() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[]).ordered()], rows(3, 3));
    rig.end("b:0.0", FAILED);
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1", "a:0.2", "b:0.1"]);
    rig.end("a:0.2", FAILED);
    rig.end("a:0.0", FAILED);
    rig.succeed("b:0.1");
    assert_eq!(rig.running_names(), ["a:0.1"]);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (1, 2));
}

#[test]
fn a_dropped_row_keeps_its_turn_until_its_worker_has_ended() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[]).ordered()], rows(2, 2));
    rig.end("a:0.0", FAILED);
    assert_eq!(rig.running_names(), ["a:0.1", "b:0.0"]);
    rig.succeed("b:0.0");
    assert_eq!(rig.running_names(), ["a:0.1", "b:0.1"]);
    rig.run_well();
    assert_eq!(rig.report().columns[1].tasks.ignored, 1);
}

#[test]
fn a_dropped_row_group_passes_its_turn_to_the_next_one() {
    let columns = [scratch("seed"), cell("a", &["seed"]).ordered()];
    let mut rig = Rig::start(columns, PipelineConfig { row_groups: 2, ..rows(6, 2) });
    rig.succeed("seed:1");
    assert_eq!(rig.running_names(), ["seed:0"]);
    rig.end("seed:0", FAILED);
    assert_eq!(rig.running_names(), ["a:1.0"]);
    rig.saved(0);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (4, 2));
}

#[test]
fn a_resumed_run_keeps_the_order_of_the_row_groups_that_are_left() {
    let config = PipelineConfig { done_row_groups: [0, 2].into(), row_groups: 2, ..rows(10, 2) };
    let mut rig = Rig::start([cell("a", &[]).ordered()], config);
    rig.run_well();
    let order: alloc::vec::Vec<_> = rig.spawned.iter().map(|task| rig.label(task)).collect();
    assert_eq!(order, ["a:1.0", "a:1.1", "a:3.0", "a:3.1", "a:4.0", "a:4.1"]);
}

#[test]
fn a_salvage_round_waits_for_the_ordered_task_that_has_the_turn() {
    let mut rig = Rig::start([cell("a", &[]).ordered(), cell("b", &[])], rows(2, 2));
    rig.end("b:0.0", retry(RetryKind::Timeout));
    rig.succeed("b:0.1");
    rig.succeed("a:0.0");
    assert_eq!(rig.running_names(), ["a:0.1"]);
    rig.succeed("a:0.1");
    rig.back_off();
    assert_eq!(rig.running_names(), ["b:0.0"]);
}
