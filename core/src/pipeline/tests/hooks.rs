//! The hooks of a row group: one after its seeds, one before its checkpoint.

use super::*;
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

fn pre_batch(config: PipelineConfig) -> PipelineConfig {
    PipelineConfig { pre_batch_hook: true, ..config }
}

fn post_batch(config: PipelineConfig) -> PipelineConfig {
    PipelineConfig { post_batch_hook: true, ..config }
}

/// Returns the row group and the hook that stopped the run, and the error message.
fn failed_hook(rig: &Rig) -> (u32, Hook, &str) {
    match &rig.report().stop {
        StopReason::HookFailed { row_group, hook, why } => (*row_group, *hook, why),
        other => panic!("no hook failed: {other}"),
    }
}

#[test]
fn the_pre_batch_hook_is_called_after_the_seeds_and_before_all_other_columns() {
    let columns = [
        scratch("seed"),
        whole("more", &["seed"]),
        cell("a", &["seed"]),
        whole("rank", &["a"]),
        cell("b", &[]),
        whole("late", &["rank"]),
    ];
    let mut rig = Rig::start(columns, pre_batch(rows(3, 2)));
    assert_eq!(rig.running_names(), ["seed:0", "seed:1"]);
    rig.succeed("seed:0");
    assert_eq!((rig.running_names(), rig.pre_batch.len()), (["seed:1".into(), "more:0".into()].into(), 0));
    rig.succeed("seed:1");
    rig.succeed("more:1");
    assert_eq!(rig.pre_batch, [SeededRowGroup { row_group: 1, first_row: 2, rows: 1 }]);
    assert_eq!(rig.running_names(), ["more:0"], "row group 1 starts nothing before the hook has ended");
    rig.finish_pre_batch(1, Ok([].into()));
    assert_eq!(rig.running_names(), ["more:0", "a:1.0", "b:1.0"]);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.spawned.len()), (3, 2 + 2 + 3 + 2 + 3 + 2));
}

#[test]
fn the_hook_of_a_row_group_without_seeds_is_called_at_admission() {
    let mut rig = Rig::start([cell("a", &[])], pre_batch(PipelineConfig { row_groups: 2, ..rows(5, 2) }));
    assert_eq!((rig.pre_batch.len(), rig.running.len()), (2, 0));
    rig.finish_pre_batch(1, Ok([].into()));
    assert_eq!(rig.running_names(), ["a:1.0", "a:1.1"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 5);
}

#[test]
fn rows_left_out_by_the_pre_batch_hook_are_dropped_and_not_computed() {
    let columns = [scratch("seed"), cell("a", &["seed"]), whole("rank", &["a"])];
    let mut rig = Rig::start(columns, pre_batch(rows(4, 4)));
    rig.succeed("seed:0");
    rig.finish_pre_batch(0, Ok([3, 1, 3].into()));
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.2"]);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().is_complete()), (2, true));
    assert_eq!(rig.finished[0].live, [0, 2]);
    assert_eq!(rig.dropped(), [("a".into(), DropReason::PreBatch, 2)]);
}

#[test]
fn a_row_group_whose_rows_are_all_left_out_is_checkpointed_at_once() {
    let columns = [scratch("seed"), cell("a", &["seed"]), whole("rank", &["a"])];
    let mut rig = Rig::start(columns, pre_batch(rows(2, 2)));
    rig.succeed("seed:0");
    rig.finish_pre_batch(0, Ok([0, 1].into()));
    assert_eq!((rig.running.len(), rig.saving.as_slice()), (0, &[0][..]));
    rig.run_well();
    assert_eq!((rig.report().rows_dropped, rig.report().is_complete()), (2, true));
}

#[test]
fn the_pre_batch_hook_is_called_for_row_groups_with_seeds_only() {
    let mut rig = Rig::start([scratch("seed")], pre_batch(rows(3, 3)));
    rig.succeed("seed:0");
    assert_eq!((rig.finished.len(), rig.pre_batch.len()), (0, 1));
    rig.finish_pre_batch(0, Ok([1].into()));
    assert_eq!(rig.finished[0].live, [0, 2]);
    rig.run_well();
    assert_eq!(rig.dropped(), [("seed".into(), DropReason::PreBatch, 1)]);
}

#[test]
fn a_stopping_run_does_not_save_rows_before_their_pre_batch_hook() {
    let config = PipelineConfig { shutdown_window: 1, ..pre_batch(rows(4, 2)) };
    let mut rig = Rig::start([scratch("seed")], config);
    rig.end("seed:0", FAILED);
    rig.succeed("seed:1");
    rig.run_well();
    assert_eq!((rig.pre_batch.len(), rig.report().rows_dropped, rig.report().rows_unmade), (0, 2, 2));
}

#[test]
fn a_row_group_whose_seed_failed_has_no_pre_batch_hook() {
    let mut rig = Rig::start([scratch("seed"), cell("a", &["seed"])], pre_batch(post_batch(rows(2, 2))));
    rig.end("seed:0", FAILED);
    assert_eq!((rig.pre_batch.len(), rig.post_batch.len()), (0, 1));
    rig.run_well();
    assert!(rig.report().is_complete());
}

#[test]
fn no_hook_is_called_for_row_groups_that_an_earlier_run_saved() {
    let config = PipelineConfig { done_row_groups: [0].into(), ..pre_batch(post_batch(rows(4, 2))) };
    let mut rig = Rig::start([cell("a", &[])], config);
    assert_eq!(rig.pre_batch, [SeededRowGroup { row_group: 1, first_row: 2, rows: 2 }]);
    rig.run_well();
    assert_eq!(rig.report().rows_resumed, 2);
}

#[test]
fn a_pre_batch_hook_that_fails_stops_the_run_with_its_cause() {
    let mut rig = Rig::start([scratch("seed"), cell("a", &["seed"])], pre_batch(rows(4, 2)));
    rig.succeed("seed:0");
    rig.finish_pre_batch(0, Err("no such file".into()));
    assert_eq!((rig.running_names(), rig.ends), (["seed:1".into()].into(), 0), "workers finish");
    rig.succeed("seed:1");
    assert_eq!(failed_hook(&rig), (0, Hook::PreBatch, "no such file"));
    assert_eq!((rig.finished.len(), rig.report().rows_dropped, rig.report().rows_unmade), (0, 0, 4));
}

#[test]
fn a_hook_that_leaves_out_an_unknown_row_stops_the_run() {
    let mut rig = Rig::start([cell("a", &[])], pre_batch(rows(2, 2)));
    rig.finish_pre_batch(0, Ok([0, 2].into()));
    let (_, _, why) = failed_hook(&rig);
    assert!(why.contains("row 2") && why.contains("2 rows"), "{why}");
}

#[test]
fn the_post_batch_hook_is_called_before_the_checkpoint() {
    let mut rig = Rig::start([cell("a", &[])], post_batch(PipelineConfig { row_groups: 1, ..rows(4, 2) }));
    rig.end("a:0.0", FAILED);
    rig.succeed("a:0.1");
    assert_eq!((rig.saving.len(), rig.running.len()), (0, 0));
    let before = rig.post_batch[0].clone();
    rig.finish_post_batch(0, Ok(()));
    assert_eq!((&rig.finished[0], rig.running.len()), (&before, 0), "row group 0 counts until it is saved");
    rig.saved(0);
    assert_eq!(rig.running_names(), ["a:1.0", "a:1.1"]);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().is_complete()), (3, true));
}

#[test]
fn a_post_batch_hook_that_fails_stops_the_run_and_keeps_its_row_group() {
    let mut rig = Rig::start([cell("a", &[])], post_batch(rows(4, 2)));
    rig.end_all(TaskOutcome::Success);
    rig.finish_post_batch(1, Err("cannot score".into()));
    assert_eq!(rig.ends, 0, "the run waits for row group 0");
    rig.finish_post_batch(0, Ok(()));
    rig.saved(0);
    assert_eq!(failed_hook(&rig), (1, Hook::PostBatch, "cannot score"));
    assert_eq!((rig.report().rows_dropped, rig.report().rows_unmade), (0, 2));
    assert_eq!(rig.pipeline.unsaved().map(|group| group.row_group).collect::<alloc::vec::Vec<_>>(), [1]);
}

#[test]
fn a_long_hook_sets_no_timer_and_does_not_count_as_stuck() {
    let mut rig = Rig::start([cell("a", &[])], pre_batch(post_batch(rows(1, 1))));
    let rest = |rig: &mut Rig| {
        for _ in 0..3 {
            assert_eq!(rig.pipeline.poll_timeout(), None);
            rig.advance(Duration::from_secs(3600));
            assert_eq!((rig.pre_batch.len() + rig.post_batch.len(), rig.ends), (1, 0));
        }
    };
    rest(&mut rig);
    rig.finish_pre_batch(0, Ok([].into()));
    rig.succeed("a:0.0");
    rest(&mut rig);
    rig.run_well();
    assert!(rig.report().is_complete());
}

#[test]
fn a_cancelled_run_waits_for_hooks_in_progress_and_calls_no_further_pre_batch_hook() {
    let columns = [scratch("seed"), cell("a", &["seed"])];
    let mut rig = Rig::start(columns, pre_batch(post_batch(rows(6, 2))));
    rig.succeed("seed:0");
    rig.succeed("seed:1");
    rig.finish_pre_batch(1, Ok([0].into()));
    rig.succeed("a:1.1");
    assert_eq!((rig.pre_batch.len(), rig.post_batch.len(), rig.running_names()), (1, 1, ["seed:2".into()].into()));
    rig.cancel();
    rig.succeed("seed:2");
    assert_eq!((rig.pre_batch.len(), rig.ends), (1, 0));
    rig.finish_pre_batch(0, Ok([1].into()));
    assert_eq!((rig.running.len(), rig.ends), (0, 0));
    rig.finish_post_batch(1, Ok(()));
    assert_eq!(rig.saving, [1], "complete row groups are saved after a cancel");
    rig.saved(1);
    assert_eq!((&rig.report().stop, rig.report().rows_out), (&StopReason::Cancelled, 1));
}

#[test]
fn a_result_for_a_hook_or_checkpoint_that_is_not_in_progress_has_no_effect() {
    let mut rig = Rig::start([cell("a", &[])], pre_batch(post_batch(rows(2, 2))));
    rig.finish_post_batch(0, Err("early".into()));
    rig.finish_pre_batch(7, Err("foreign".into()));
    rig.finish_pre_batch(0, Ok([].into()));
    rig.finish_pre_batch(0, Err("twice".into()));
    rig.finish_checkpoint(0, Err("early".into()));
    rig.end_all(TaskOutcome::Success);
    rig.finish_checkpoint(0, Err("before its hook".into()));
    rig.finish_post_batch(0, Ok(()));
    rig.finish_post_batch(0, Err("twice".into()));
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().is_complete()), (2, true));
}

#[test]
fn an_ordered_column_keeps_its_order_across_hooks_and_rows_that_are_left_out() {
    let config = pre_batch(PipelineConfig { row_groups: 2, ..rows(6, 2) });
    let mut rig = Rig::start([cell("a", &[]).ordered()], config);
    rig.finish_pre_batch(1, Ok([].into()));
    assert_eq!(rig.running.len(), 0, "row group 0 has the turn");
    rig.finish_pre_batch(0, Ok([0].into()));
    assert_eq!(rig.running_names(), ["a:0.1"]);
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["a:1.0"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 5);
}
