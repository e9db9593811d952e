//! Runs that end before they are complete. Each one releases every lease and accounts for every row.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::pipeline::event::{SchedulerEventKind, SchedulerEventPayload, SchedulerInterest, StopKind};
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

fn stop(rig: &Rig) -> &StopReason {
    &rig.report().stop
}

#[test]
fn cancel_aborts_every_worker_and_waits_for_each() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { submission_limit: 3, ..rows(8, 4) });
    rig.succeed("a:0.0");
    assert!(!rig.pipeline.has_stopped());
    rig.cancel();
    assert!(rig.pipeline.has_stopped(), "its workers have not ended");
    let workers: BTreeSet<WorkerId> = rig.running.iter().map(|task| task.worker).collect();
    assert_eq!((rig.aborted.iter().copied().collect(), rig.pipeline.queued()), (workers, 0));
    rig.cancel();
    assert_eq!((rig.aborted.len(), rig.ends), (3, 0));
    rig.end_all(TaskOutcome::Cancelled);
    assert_eq!((rig.ends, rig.finished.len(), rig.pipeline.has_stopped()), (1, 0, false));
    assert_eq!(*stop(&rig), StopReason::Cancelled);
    let report = rig.report();
    assert_eq!((report.rows_in, report.rows_out, report.rows_dropped, report.rows_unmade), (8, 0, 0, 8));
}

#[test]
fn cancel_does_not_affect_saved_row_groups_or_checkpoints_in_progress() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { row_groups: 2, ..rows(4, 1) });
    rig.succeed("a:0.0");
    rig.saved(0);
    rig.succeed("a:1.0");
    rig.cancel();
    rig.end_all(TaskOutcome::Cancelled);
    assert_eq!(rig.ends, 0, "the checkpoint is in progress");
    rig.saved(1);
    let report = rig.report();
    assert_eq!((report.rows_out, report.rows_unmade, report.rows_not_started), (2, 1, 1));
}

#[test]
fn a_row_group_completed_by_its_last_worker_after_a_cancel_is_saved() {
    let mut rig = Rig::start([cell("a", &[])], rows(1, 1));
    rig.cancel();
    rig.succeed("a:0.0");
    rig.saved(0);
    assert_eq!((rig.report().rows_out, stop(&rig)), (1, &StopReason::Cancelled));
}

#[test]
fn cancel_before_the_start_ends_the_run_at_once() {
    let mut rig = Rig::new([cell("a", &[])], rows(4, 2));
    rig.cancel();
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!((rig.ends, rig.spawned.len(), rig.report().rows_not_started), (1, 0, 4));
}

#[test]
fn wind_down_finishes_the_admitted_row_groups_and_admits_no_other() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], PipelineConfig { row_groups: 2, ..rows(10, 2) });
    rig.succeed("a:0.0");
    rig.wind_down();
    rig.run(|_, task| {
        let first_try = task.row == Some(1) && task.attempt == 1;
        if first_try { retry(RetryKind::Timeout) } else { TaskOutcome::Success }
    });
    let report = rig.report();
    assert_eq!((&report.stop, report.rows_out, report.rows_dropped), (&StopReason::WoundDown, 4, 0));
    assert_eq!((report.rows_not_started, rig.ends), (6, 1));
}

#[test]
fn a_resumed_run_computes_the_row_groups_that_wind_down_left() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { row_groups: 1, ..rows(6, 2) });
    rig.wind_down();
    rig.run(|_, _| TaskOutcome::Success);
    assert_eq!(rig.finished.iter().map(|group| group.row_group).collect::<Vec<_>>(), [0]);
    let mut rest = Rig::start([cell("a", &[])], PipelineConfig { done_row_groups: [0].into(), ..rows(6, 2) });
    rest.run(|_, _| TaskOutcome::Success);
    assert_eq!(rest.finished.iter().map(|group| group.row_group).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rest.report().stop, StopReason::Completed);
}

#[test]
fn wind_down_has_no_effect_if_all_row_groups_are_admitted() {
    let mut rig = Rig::start([cell("a", &[])], rows(4, 2));
    rig.wind_down();
    rig.run(|_, _| TaskOutcome::Success);
    assert_eq!((stop(&rig), rig.report().rows_out), (&StopReason::Completed, 4));
}

#[test]
fn wind_down_before_the_start_ends_the_run_at_once() {
    let mut rig = Rig::new([cell("a", &[])], rows(4, 2));
    rig.wind_down();
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!((rig.ends, rig.spawned.len(), stop(&rig)), (1, 0, &StopReason::WoundDown));
}

#[test]
fn a_run_that_is_wound_down_can_be_cancelled_or_fail() {
    let config = PipelineConfig { row_groups: 1, submission_limit: 1, ..rows(4, 2) };
    let mut rig = watching_stops([cell("a", &[])], config.clone());
    rig.wind_down();
    rig.wind_down();
    rig.cancel();
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::WoundDown, false), stopping(StopKind::Cancelled, true)]);
    assert_eq!(rig.pipeline.queued(), 0, "queued tasks are discarded, as by any stop");
    rig.end_all(TaskOutcome::Cancelled);
    assert_eq!(*stop(&rig), StopReason::Cancelled);
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { shutdown_window: 1, ..config });
    rig.wind_down();
    rig.end("a:0.0", FAILED);
    rig.run(|_, _| TaskOutcome::Success);
    assert!(matches!(stop(&rig), StopReason::EarlyShutdown { .. }));
}

#[test]
fn a_drained_run_starts_nothing_and_ends_with_its_last_worker() {
    let config = PipelineConfig { submission_limit: 2, row_groups: 2, ..rows(6, 2) };
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], config);
    rig.end("a:0.0", rate_limited(Duration::from_secs(9)));
    let spawned = rig.spawned.len();
    rig.drain_run();
    assert_eq!((rig.aborted.len(), rig.pipeline.queued(), rig.pipeline.poll_timeout()), (0, 0, None));
    rig.end_all(TaskOutcome::Success);
    assert_eq!((rig.spawned.len(), rig.ends, rig.finished.len()), (spawned, 1, 0));
    let report = rig.report();
    assert_eq!((&report.stop, report.rows_out, report.rows_not_started), (&StopReason::Drained, 0, 2));
    assert_eq!((report.rows_dropped, report.rows_unmade), (0, 4));
}

#[test]
fn a_drained_run_saves_complete_and_dropped_rows_and_a_resumed_run_computes_the_rest() {
    let columns = [scratch("seed"), cell("a", &["seed"]), cell("b", &["a"])];
    let config = PipelineConfig { row_groups: 1, ..rows(6, 4) };
    let mut rig = Rig::start(columns.clone(), config.clone());
    for label in ["seed:0", "a:0.0", "a:0.1", "b:0.0"] {
        rig.succeed(label);
    }
    rig.end("a:0.2", FAILED);
    rig.drain_run();
    rig.end("b:0.1", rate_limited(Duration::from_secs(9)));
    rig.succeed("a:0.3");
    let [group] = &rig.finished[..] else { panic!("{:?}", rig.finished) };
    let dropped: Vec<_> = group.dropped.iter().map(|dropped| dropped.row).collect();
    assert_eq!((&group.live[..], &dropped[..], &group.unmade[..]), (&[0][..], &[2][..], &[1, 3][..]));
    rig.saved(0);
    let report = rig.report();
    assert_eq!((report.rows_out, report.rows_dropped, report.rows_unmade, report.rows_not_started), (1, 1, 2, 2));
    assert_eq!(report.row_groups_done, 0, "a row group that is saved in part is not done");

    // The last row of one row group and the first of the next are both missing.
    let missing_rows = [1..2, 3..4, 4..6].into();
    let mut rest = Rig::start(columns, PipelineConfig { missing_rows, ..config });
    assert_eq!(rest.running_names(), ["seed:0"], "the seed runs again");
    rest.run_well();
    let spawned: Vec<_> = rest.spawned.iter().map(|task| rest.label(task)).collect();
    assert_eq!(spawned[1..5], ["a:0.1", "a:0.3", "b:0.1", "b:0.3"]);
    assert_eq!((&rest.finished[0].live[..], rest.finished[0].rows), (&[1, 3][..], 4));
    let report = rest.report();
    assert_eq!((report.rows_resumed, report.rows_in, report.rows_out, report.row_groups_done), (2, 4, 4, 2));
}

#[test]
fn an_incomplete_row_group_is_not_saved_if_its_rows_depend_on_each_other() {
    let config = PipelineConfig { row_groups: 1, ..rows(2, 2) };
    let mut rig = Rig::start([cell("a", &[]), whole("w", &["a"]), cell("b", &["w"])], config.clone());
    for label in ["a:0.0", "a:0.1", "w:0", "b:0.0"] {
        rig.succeed(label);
    }
    rig.drain_run();
    rig.end("b:0.1", TaskOutcome::Cancelled);
    assert_eq!((rig.finished.len(), rig.report().rows_out, rig.report().rows_unmade), (0, 0, 2));
    let columns = [cell("a", &[]), whole("w", &["a"])];
    let plan = columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build().unwrap();
    let rejection =
        Pipeline::new(plan, PipelineConfig { missing_rows: core::iter::once(0..1).collect(), ..config }).unwrap_err();
    assert!(rejection.to_string().contains("missing_rows"), "{rejection}");
}

#[test]
fn invalid_missing_rows_are_rejected() {
    let rejection = |missing: &[core::ops::Range<u64>]| {
        let plan = PlanBuilder::new().column(cell("a", &[])).build().unwrap();
        let config = PipelineConfig { done_row_groups: [0].into(), missing_rows: missing.into(), ..rows(10, 4) };
        Pipeline::new(plan, config).unwrap_err().to_string()
    };
    let one = |rows: core::ops::Range<u64>| Vec::from([rows]);
    for wrong in [one(5..5), one(9..11), [8..9, 5..6].into(), [5..7, 6..8].into()] {
        assert!(rejection(&wrong).contains("ascending ranges of rows of this run"), "{wrong:?}");
    }
    assert!(rejection(&one(3..5)).contains("not in `done_row_groups`"));
}

#[test]
fn a_run_that_is_wound_down_can_be_drained_and_then_cancelled() {
    let mut rig = watching_stops([cell("a", &[])], PipelineConfig { row_groups: 1, ..rows(4, 2) });
    rig.wind_down();
    rig.drain_run();
    rig.wind_down();
    rig.cancel();
    let stops = [(StopKind::WoundDown, false), (StopKind::Drained, false), (StopKind::Cancelled, true)];
    assert_eq!(stop_events(&mut rig), stops.map(|(stop, aborts)| stopping(stop, aborts)));
    rig.end_all(TaskOutcome::Cancelled);
    assert_eq!(*stop(&rig), StopReason::Cancelled);
}

#[test]
fn cancel_discards_delayed_and_deferred_tasks() {
    let mut rig = Rig::start([cell("a", &[])], rows(3, 3));
    rig.end("a:0.0", rate_limited(Duration::from_secs(9)));
    rig.end("a:0.1", retry(RetryKind::Timeout));
    rig.cancel();
    rig.end("a:0.2", TaskOutcome::Cancelled);
    assert_eq!((rig.ends, rig.report().rows_unmade), (1, 3));
}

#[test]
fn early_shutdown_saves_complete_rows_and_lists_dropped_and_unmade_rows() {
    let config = PipelineConfig { shutdown_window: 4, row_groups: 1, ..rows(20, 10) };
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], config);
    for label in ["a:0.0", "a:0.1", "b:0.0"] {
        rig.succeed(label);
    }
    rig.end("a:0.2", FAILED);
    assert!(rig.running.len() > 1);
    rig.end("a:0.3", FAILED);
    // Running workers may finish. Row 1 becomes complete, row 4 does not.
    assert_eq!((rig.aborted.len(), rig.finished.len()), (0, 0));
    rig.succeed("b:0.1");
    rig.succeed("a:0.4");
    rig.end_all(FAILED);
    assert_eq!(rig.finished[0].live, [0, 1]);
    assert_eq!((rig.finished[0].dropped.len(), &rig.finished[0].unmade[..]), (7, &[4][..]));
    rig.saved(0);
    assert_eq!(*stop(&rig), StopReason::EarlyShutdown { failures: 2, window: 4 });
    let report = rig.report();
    assert_eq!((report.rows_out, report.rows_dropped, report.rows_unmade, report.rows_not_started), (2, 7, 1, 10));
    assert_eq!(rig.dropped(), [("a".to_string(), DropReason::Failed(FailureKind::Request), 7)]);
}

#[test]
fn an_incomplete_row_group_without_complete_or_dropped_rows_is_not_saved() {
    let config = PipelineConfig { shutdown_window: 1, ..rows(4, 2) };
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], config);
    rig.end("a:0.0", FAILED);
    rig.end_all(TaskOutcome::Success);
    assert_eq!(rig.finished.iter().map(|group| group.row_group).collect::<Vec<_>>(), [0]);
    rig.saved(0);
    assert_eq!((rig.ends, rig.report().rows_dropped, rig.report().rows_unmade), (1, 1, 3));
}

#[test]
fn a_retryable_failure_counts_towards_early_shutdown_only_if_it_drops_its_row() {
    let config = PipelineConfig { shutdown_window: 2, retries: 1, ..rows(8, 8) };
    let mut rig = Rig::start([cell("a", &[])], config.clone());
    let mut attempts = 0;
    rig.run(|_, _| {
        attempts += 1;
        retry(RetryKind::ServerError)
    });
    assert_eq!(*stop(&rig), StopReason::EarlyShutdown { failures: 2, window: 2 });
    assert_eq!((attempts, rig.report().rows_dropped, rig.report().rows_unmade), (10, 2, 6));

    // The first attempts drop no row: one failure of every row does not stop the run.
    let mut rig = Rig::start([cell("a", &[])], config);
    rig.run(|_, task| if task.attempt == 1 { retry(RetryKind::ServerError) } else { TaskOutcome::Success });
    assert_eq!((stop(&rig), rig.report().rows_dropped), (&StopReason::Completed, 0));
}

#[test]
fn early_shutdown_can_be_disabled() {
    let config = PipelineConfig { shutdown_rate: None, ..rows(100, 10) };
    let mut rig = Rig::start([cell("a", &[])], config);
    rig.run(|_, _| FAILED);
    assert_eq!((stop(&rig), rig.report().rows_dropped), (&StopReason::Completed, 100));
}

#[test]
fn a_provider_with_rate_limits_only_drops_no_row_and_other_providers_continue() {
    let config = PipelineConfig { rate_limit_patience: Some(Duration::from_secs(3)), ..rows(2, 2) };
    let model = |name| crate::task::TaskGroup::model(name, "m", 1.0);
    let columns = [
        cell("a", &[]).with_group(model("good")),
        cell("b", &[]).with_group(model("bad")),
        cell("c", &["a"]).with_group(model("good")),
    ];
    let mut rig = Rig::start(columns, config);
    rig.run(
        |rig, task| if rig.name(task) == "b" { rate_limited(Duration::from_secs(1)) } else { TaskOutcome::Success },
    );
    let group = ["bad".to_string(), "m".to_string()].into();
    assert_eq!(*stop(&rig), StopReason::ProviderUnavailable { group });
    assert_eq!((rig.report().rows_dropped, rig.report().rows_unmade), (0, 2));
    assert_eq!(rig.report().columns[2].tasks.succeeded, 2);
}

#[test]
fn two_rate_limits_far_apart_do_not_stop_the_work_of_other_providers() {
    let config = PipelineConfig { retry_ceiling: Duration::from_secs(3_600), ..rows(40, 40) };
    let model = |name| crate::task::TaskGroup::model(name, "m", 1.0);
    let columns = [cell("a", &[]).with_group(model("good")), cell("b", &[]).with_group(model("bad"))];
    let mut rig = Rig::start(columns, config);
    rig.end("b:0.0", rate_limited(Duration::from_secs(3_600)));
    rig.advance(Duration::from_secs(601));
    rig.end("b:0.1", rate_limited(Duration::from_secs(3_600)));
    rig.run(
        |rig, task| if rig.name(task) == "b" { rate_limited(Duration::from_secs(1)) } else { TaskOutcome::Success },
    );
    assert!(matches!(stop(&rig), StopReason::ProviderUnavailable { .. }), "{}", stop(&rig));
    assert_eq!(rig.report().columns[0].tasks.succeeded, 40, "all other work is done");
}

#[test]
fn a_failed_checkpoint_stops_the_run_and_keeps_its_row_group() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { row_groups: 2, ..rows(8, 2) });
    rig.succeed("a:0.0");
    rig.succeed("a:0.1");
    rig.succeed("a:1.0");
    rig.finish_checkpoint(0, Err("disk full".into()));
    assert_eq!((rig.running_names().len(), rig.ends), (1, 0));
    rig.end("a:1.1", FAILED);
    // The other row group is complete, so it is saved as well.
    rig.saved(1);
    let why = "disk full".to_string();
    assert_eq!(*stop(&rig), StopReason::CheckpointFailed { row_group: 0, why });
    assert_eq!((rig.report().rows_out, rig.report().rows_not_started), (1, 4));
    let unsaved: Vec<_> = rig.pipeline.unsaved().map(|group| (group.row_group, group.live)).collect();
    assert_eq!(unsaved, [(0, [0, 1].into())]);
    let failed = DropReason::Failed(FailureKind::Request);
    assert_eq!(rig.dropped(), [("a".to_string(), failed, 1)]);
    assert_eq!(rig.report().rows_unmade, 2);
}

#[test]
fn a_bug_stops_the_run_with_its_cause_and_drops_no_row() {
    let mut rig = Rig::start([cell("a", &[])], rows(4, 2));
    rig.panic_worker("a:1.0", "index out of bounds");
    assert_eq!(rig.aborted.len(), 3);
    rig.end_all(TaskOutcome::Cancelled);
    let column = rig.pipeline.plan().column_id("a").unwrap();
    let cause = "index out of bounds".to_string();
    assert_eq!(*stop(&rig), StopReason::Fatal { column, row_group: 1, cause });
    assert_eq!(stop(&rig).to_string(), "fatal error in column number 0 of row group 1: index out of bounds");
    assert_eq!(rig.report().columns[0].tasks.fatal, 1);
    assert_eq!((rig.report().rows_dropped, rig.report().rows_unmade), (0, 4));
}

#[test]
fn a_more_severe_reason_replaces_the_current_stop_reason() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { shutdown_window: 1, ..rows(3, 3) });
    rig.end("a:0.0", FAILED);
    assert_eq!(rig.aborted.len(), 0);
    rig.panic_worker("a:0.1", "worse");
    assert_eq!(rig.aborted.len(), 1);
    rig.end("a:0.2", TaskOutcome::Cancelled);
    assert!(matches!(stop(&rig), StopReason::Fatal { .. }));
}

#[test]
fn a_bug_in_a_worker_whose_row_is_dropped_still_stops_the_run() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[])], rows(1, 1));
    rig.end("a:0.0", FAILED);
    rig.panic_worker("b:0.0", "a bug");
    rig.saved(0);
    assert!(matches!(stop(&rig), StopReason::Fatal { .. }));
}

#[test]
fn work_that_cannot_continue_is_reported_as_stuck_with_the_reason() {
    let mut rig = Rig::new([cell("a", &[])], rows(2, 2));
    // A host cannot cause this: the machine shuts down its dispatcher only when it stops.
    rig.pipeline.stop_starting();
    rig.pipeline.start(rig.now);
    rig.drain();
    let StopReason::Stuck { why } = stop(&rig) else { panic!("{:?}", rig.report()) };
    assert!(why.contains("2 tasks of 1 row groups are open, 2 of them queued"), "{why}");
    assert!(why.contains("shut"), "{why}");
    assert_eq!(rig.report().rows_unmade, 2);
}

#[test]
fn a_degraded_provider_causes_a_warning_and_the_run_continues() {
    let group = crate::task::TaskGroup::model("provider", "model", 9.0);
    let column = Column::new("a", Strategy::Cell).with_group(group);
    let config = PipelineConfig { degraded_window: 4, submission_limit: 1, ..rows(8, 8) };
    let mut rig = Rig::start([column], config);
    for outcome in [TaskOutcome::Success, retry(RetryKind::AdmissionTimeout), retry(RetryKind::Timeout)] {
        let first = rig.running_names().remove(0);
        rig.end(&first, outcome);
    }
    for outcome in [retry(RetryKind::ServerError), retry(RetryKind::ServerError)] {
        assert_eq!(rig.warnings, [], "an admission timeout is not a response of the provider");
        let first = rig.running_names().remove(0);
        rig.end(&first, outcome);
    }
    let text = rig.warnings[0].to_string();
    let expected =
        "`provider/model` is degraded: 3 of its last 4 answers were failures that may pass: 1 timeout, 2 server error";
    assert_eq!(text, expected);
    rig.run_well();
    assert_eq!((stop(&rig), rig.report().rows_out, rig.warnings.len()), (&StopReason::Completed, 8, 1));
}

/// Returns the enabled events since the last call, each with its row group.
fn stop_events(rig: &mut Rig) -> Vec<(Option<u32>, SchedulerEventPayload)> {
    rig.events().into_iter().map(|event| (event.correlation.row_group, event.payload)).collect()
}

fn watching_stops(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Rig {
    let wanted = [SchedulerEventKind::JobStopping, SchedulerEventKind::RowGroupDiscarded];
    Rig::start_with(columns, config, SchedulerInterest::of(&wanted))
}

fn stopping(stop: StopKind, aborts: bool) -> (Option<u32>, SchedulerEventPayload) {
    (None, SchedulerEventPayload::JobStopping { stop, aborts })
}

fn discarded(row_group: u32, reason: DiscardReason, rows: u32) -> (Option<u32>, SchedulerEventPayload) {
    (Some(row_group), SchedulerEventPayload::RowGroupDiscarded { reason, rows })
}

#[test]
fn a_stop_is_emitted_with_each_discarded_row_group_even_if_nothing_is_queued() {
    let mut rig = watching_stops([cell("a", &[])], PipelineConfig { row_groups: 2, ..rows(4, 2) });
    rig.succeed("a:1.0");
    assert_eq!(rig.pipeline.progress().queued, 0);
    rig.cancel();
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::Cancelled, true)]);
    rig.end_all(TaskOutcome::Cancelled);
    let lost = |row_group| discarded(row_group, DiscardReason::Stopped, 2);
    assert_eq!(stop_events(&mut rig), [lost(0), lost(1)], "a complete row is discarded with its row group");
}

#[test]
fn a_stop_is_emitted_again_only_if_it_becomes_stricter_or_more_severe() {
    let config = PipelineConfig { shutdown_window: 1, row_groups: 3, ..rows(6, 2) };
    let mut rig = watching_stops([cell("a", &[])], config);
    rig.end("a:0.0", FAILED);
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::EarlyShutdown, false)]);
    rig.end("a:0.1", FAILED);
    assert_eq!(stop_events(&mut rig), [], "the run is stopping already");
    rig.finish_checkpoint(0, Err("disk full".into()));
    let unsaved = discarded(0, DiscardReason::Unsaved, 0);
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::CheckpointFailed, false), unsaved]);
    rig.cancel();
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::CheckpointFailed, true)]);
    rig.panic_worker("a:1.0", "worse");
    assert_eq!(stop_events(&mut rig), [stopping(StopKind::Fatal, true)]);
    rig.end_all(TaskOutcome::Cancelled);
    assert_eq!(stop_events(&mut rig).len(), 2);
}

#[test]
fn a_complete_run_emits_no_stop_and_no_discarded_row_group() {
    let mut rig = watching_stops([cell("a", &[])], rows(4, 2));
    rig.run_well();
    assert_eq!(stop_events(&mut rig), []);
}

fn is_unavailable(rig: &Rig) -> bool {
    *stop(rig) == StopReason::ProviderUnavailable { group: alloc::vec!["all".to_string()] }
}

#[test]
fn a_run_with_an_unavailable_provider_finishes_other_work_and_then_stops() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], PipelineConfig { row_groups: 2, ..rows(10, 2) });
    for label in ["a:0.0", "a:0.1", "a:1.0"] {
        rig.succeed(label);
    }
    rig.end("a:1.1", TaskOutcome::Unavailable);
    rig.succeed("b:0.0");
    rig.end("b:0.1", retry(RetryKind::Timeout));
    rig.succeed("b:1.0");
    rig.back_off();
    rig.succeed("b:0.1");
    assert_eq!(rig.ends, 0);
    rig.saved(0);
    assert_eq!((&rig.finished[1].live[..], &rig.finished[1].unmade[..]), (&[0][..], &[1][..]));
    rig.saved(1);
    assert!(is_unavailable(&rig), "{:?}", stop(&rig));
    let report = rig.report();
    assert_eq!((report.rows_out, report.rows_dropped, report.rows_unmade, report.rows_not_started), (3, 0, 1, 6));
}

#[test]
fn a_run_whose_parked_rows_are_dropped_is_incomplete_if_rows_are_not_started() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[])], PipelineConfig { row_groups: 1, ..rows(4, 1) });
    rig.end("a:0.0", TaskOutcome::Unavailable);
    rig.end("b:0.0", FAILED);
    rig.run_well();
    assert!(is_unavailable(&rig), "{}", stop(&rig));
    assert_eq!((rig.report().rows_dropped, rig.report().rows_not_started), (1, 3));
}

#[test]
fn an_unavailable_provider_counts_as_no_failure_and_uses_no_retry() {
    let shutdown = PipelineConfig { shutdown_window: 2, submission_limit: 2, ..rows(4, 4) };
    let mut rig = Rig::start([cell("a", &[])], shutdown);
    rig.end_all(TaskOutcome::Unavailable);
    rig.end_all(TaskOutcome::Unavailable);
    assert!(is_unavailable(&rig), "{:?}", stop(&rig));
    assert_eq!((rig.spawned.len(), rig.report().columns[0].tasks.retryable), (4, 4));
}

#[test]
fn a_parked_task_of_an_ordered_column_is_not_retried() {
    let mut rig = Rig::start([cell("a", &[]).ordered()], rows(3, 3));
    rig.end("a:0.0", TaskOutcome::Unavailable);
    assert!(is_unavailable(&rig), "{:?}", stop(&rig));
    assert_eq!(rig.spawned.len(), 1);
}
