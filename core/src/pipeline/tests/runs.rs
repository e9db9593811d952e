//! Runs that complete: order, limits, retries, drops, checkpoints, resume.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::lease::ReleaseResult;
use crate::pipeline::tests::harness::*;
use crate::time::{Duration, Instant};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_cell_runs_once_its_own_row_is_ready_and_a_full_column_once_all_rows_are() {
    let columns =
        [scratch("seed"), cell("a", &["seed"]), cell("b", &["a"]), whole("rank", &["a"]), cell("c", &["rank", "b"])];
    let mut rig = Rig::start(columns, rows(2, 2));
    assert_eq!(rig.running_names(), ["seed:0"]);
    rig.succeed("seed:0");
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1"]);
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["a:0.0", "b:0.1"]);
    rig.succeed("a:0.0");
    assert_eq!(rig.running_names(), ["b:0.1", "b:0.0", "rank:0"]);
    rig.succeed("b:0.0");
    rig.succeed("rank:0");
    assert_eq!(rig.running_names(), ["b:0.1", "c:0.0"]);
    rig.run_well();
    assert_eq!(rig.spawned.len(), 8);
    assert_eq!((rig.report().rows_out, rig.report().is_complete()), (2, true));
}

#[test]
fn cell_and_full_columns_work_without_any_upstream() {
    let mut rig = Rig::start([cell("a", &[]), whole("w", &[])], rows(2, 2));
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1", "w:0"]);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_downstream_of_an_also_filled_column_waits_for_the_generator() {
    let judge = cell("judge", &[]).with_also_fills("score");
    let mut rig = Rig::start([judge, cell("explain", &["score", "judge"])], rows(1, 1));
    assert_eq!(rig.running_names(), ["judge:0.0"]);
    rig.succeed("judge:0.0");
    assert_eq!(rig.running_names(), ["explain:0.0"]);
}

#[test]
fn tasks_without_upstreams_wait_for_a_lease() {
    let config = PipelineConfig { submission_limit: 2, ..rows(3, 3) };
    let mut rig = Rig::start([cell("a", &[])], config);
    assert_eq!((rig.running.len(), rig.pipeline.queued(), rig.pipeline.active_leases()), (2, 1, 2));
    rig.succeed("a:0.0");
    assert_eq!((rig.running.len(), rig.pipeline.queued()), (2, 0));
}

#[test]
fn a_row_group_counts_towards_the_limit_until_it_is_saved() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { row_groups: 2, ..rows(5, 2) });
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1", "a:1.0", "a:1.1"]);
    rig.succeed("a:0.0");
    rig.succeed("a:0.1");
    assert_eq!((rig.saving.as_slice(), rig.running_names().len()), (&[0][..], 2));
    rig.saved(0);
    assert_eq!(rig.running_names(), ["a:1.0", "a:1.1", "a:2.0"]);
    let last = rig.spawned.last().unwrap();
    assert_eq!((last.first_row, last.rows, last.attempt), (4, 1, 1));
    rig.run_well();
}

#[test]
fn a_row_group_is_checkpointed_once_after_all_its_tasks_are_done() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], rows(2, 2));
    rig.succeed("a:0.0");
    rig.succeed("b:0.0");
    rig.end("a:0.1", retry(RetryKind::Timeout));
    assert_eq!(rig.finished, []);
    rig.back_off();
    assert_eq!(rig.running_names(), ["a:0.1"]);
    rig.succeed("a:0.1");
    rig.succeed("b:0.1");
    let whole_group = FinishedRowGroup {
        row_group: 0,
        first_row: 0,
        rows: 2,
        live: [0, 1].into(),
        dropped: Vec::new(),
        unmade: Vec::new(),
    };
    assert_eq!(rig.finished, [whole_group]);
    assert_eq!((rig.ends, rig.pipeline.report()), (0, None));
    rig.saved(0);
    rig.saved(0);
    assert_eq!((rig.finished.len(), rig.ends), (1, 1));
}

#[test]
fn a_retryable_failure_is_retried_once_its_row_group_is_quiet_and_its_backoff_is_over() {
    let mut rig = Rig::start([cell("a", &[])], rows(3, 2));
    rig.end("a:0.0", retry(RetryKind::ServerError));
    assert_eq!(rig.running_names(), ["a:0.1", "a:1.0"]);
    rig.advance(Duration::from_secs(2));
    assert_eq!(rig.running_names(), ["a:0.1", "a:1.0"]);
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["a:1.0", "a:0.0"]);
    rig.end("a:0.0", retry(RetryKind::ServerError));
    assert_eq!(rig.running_names(), ["a:1.0"]);
    rig.back_off();
    assert_eq!(rig.running_names(), ["a:1.0", "a:0.0"]);
    assert_eq!(rig.spawned.last().unwrap().attempt, 3);
}

#[test]
fn a_salvage_round_waits_for_the_queued_tasks_of_its_row_group() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { submission_limit: 1, ..rows(3, 3) });
    rig.end("a:0.0", retry(RetryKind::ServerError));
    assert_eq!((rig.running_names(), rig.pipeline.queued()), (["a:0.1".to_string()].into(), 1));
    rig.succeed("a:0.1");
    rig.succeed("a:0.2");
    rig.back_off();
    assert_eq!(rig.running_names(), ["a:0.0"]);
}

#[test]
fn a_retryable_failure_is_dropped_when_its_retries_are_used_up() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &["a"])], rows(1, 1));
    for _ in 0..3 {
        rig.end("a:0.0", retry(RetryKind::Connection));
        rig.back_off();
    }
    rig.end("a:0.0", retry(RetryKind::Connection));
    assert_eq!((rig.running_names().len(), rig.spawned.len()), (0, 4));
    rig.saved(0);
    let exhausted = DropReason::RetriesExhausted(RetryKind::Connection);
    assert_eq!(rig.dropped(), [("a".to_string(), exhausted, 1)]);
    assert!(rig.report().is_complete());
}

#[test]
fn a_salvage_round_waits_for_the_providers_retry_after() {
    let mut rig = Rig::start([cell("a", &[])], rows(1, 1));
    rig.end(
        "a:0.0",
        TaskOutcome::Retryable { kind: RetryKind::ServerError, status: None, retry_after: Some(millis(7_000)) },
    );
    assert_eq!((rig.running.len(), rig.pipeline.poll_timeout()), (0, Some(Instant::ZERO + millis(7_000))));
    rig.advance(millis(7_000));
    assert_eq!(rig.running_names(), ["a:0.0"]);
}

#[test]
fn a_rate_limited_task_is_retried_after_the_requested_pause_and_never_dropped() {
    let config = PipelineConfig { retries: 0, rate_limit_patience: None, ..rows(1, 1) };
    let mut rig = Rig::start([cell("a", &[])], config);
    for _ in 0..1_000 {
        rig.end("a:0.0", rate_limited(millis(200)));
        rig.advance(millis(199));
        assert_eq!((rig.running.len(), rig.pipeline.progress().delayed), (0, 1));
        rig.advance(millis(1));
        assert_eq!(rig.running_names(), ["a:0.0"]);
    }
    assert_eq!(rig.spawned.last().unwrap().attempt, 1_001);
    rig.run_well();
    assert_eq!(rig.report().rows_out, 1);
}

#[test]
fn a_preserved_retry_without_a_requested_pause_waits_for_the_floor() {
    let mut rig = Rig::start([cell("a", &[])], rows(2, 2));
    rig.end("a:0.0", retry(RetryKind::AdmissionTimeout));
    rig.end("a:0.1", rate_limited(Duration::ZERO));
    assert_eq!((rig.running.len(), rig.pipeline.poll_timeout()), (0, Some(Instant::ZERO + millis(50))));
    rig.advance(millis(50));
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1"]);
}

#[test]
fn delayed_tasks_do_not_hold_up_the_salvage_round_of_the_others() {
    let mut rig = Rig::start([cell("a", &[])], rows(2, 2));
    rig.end("a:0.0", rate_limited(Duration::from_secs(60)));
    rig.end("a:0.1", retry(RetryKind::Timeout));
    rig.back_off();
    assert_eq!(rig.running_names(), ["a:0.1"]);
}

#[test]
fn a_lost_worker_uses_retries_like_a_retryable_failure() {
    let mut rig = Rig::start([cell("a", &[])], rows(1, 1));
    rig.run(|_, _| TaskOutcome::Cancelled);
    assert_eq!(rig.spawned.len(), 4);
    assert_eq!(rig.dropped(), [("a".to_string(), DropReason::WorkerLost, 1)]);
}

#[test]
fn a_failed_cell_drops_its_row_with_all_its_tasks() {
    let columns = [cell("a", &[]), cell("b", &["a"]), cell("side", &[]), whole("w", &["b"])];
    let mut rig = Rig::start(columns, PipelineConfig { submission_limit: 3, ..rows(2, 2) });
    assert_eq!(rig.running_names(), ["a:0.0", "a:0.1", "side:0.0"]);
    rig.end("a:0.1", FAILED);
    // The queued `side` of the row is discarded. Its `b` never becomes ready. `w` waits for the other row
    // only.
    assert_eq!((rig.running_names().len(), rig.pipeline.queued()), (2, 0));
    rig.succeed("side:0.0");
    rig.succeed("a:0.0");
    rig.succeed("b:0.0");
    assert_eq!(rig.running_names(), ["w:0"]);
    rig.succeed("w:0");
    let a = rig.pipeline.plan().column_id("a").unwrap();
    let dropped = DroppedRow { row: 1, column: a, reason: DropReason::Failed(FailureKind::Request) };
    assert_eq!((&rig.finished[0].live, &rig.finished[0].dropped), (&[0].into(), &[dropped].into()));
    rig.saved(0);
    assert_eq!((rig.report().rows_out, rig.report().rows_dropped), (1, 1));
}

#[test]
fn the_outcome_of_a_dropped_row_is_ignored_after_its_lease_is_released() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[]), cell("c", &["b"])], rows(1, 1));
    rig.end("a:0.0", FAILED);
    assert_eq!((rig.finished.len(), rig.pipeline.active_leases()), (0, 1));
    rig.succeed("b:0.0");
    assert_eq!((rig.finished.len(), rig.running.len()), (1, 0));
    rig.saved(0);
    let counts: Vec<_> =
        rig.report().columns.iter().map(|column| (column.tasks.failed, column.tasks.ignored)).collect();
    assert_eq!(counts, [(1, 0), (0, 1), (0, 0)]);
}

#[test]
fn a_delayed_task_of_a_dropped_row_sets_no_timer() {
    let mut rig = Rig::start([cell("a", &[]), cell("b", &[])], rows(1, 1));
    rig.end("a:0.0", rate_limited(Duration::from_secs(1)));
    assert!(rig.pipeline.poll_timeout().is_some());
    rig.end("b:0.0", FAILED);
    assert_eq!((rig.pipeline.poll_timeout(), rig.finished.len()), (None, 1));
}

#[test]
fn a_failed_full_column_drops_its_row_group_and_no_other() {
    let mut rig = Rig::start([whole("w", &[]), cell("a", &[]), cell("b", &["w"])], rows(4, 2));
    rig.end("w:0", FAILED);
    rig.run_well();
    let failed = DropReason::Failed(FailureKind::Request);
    assert_eq!(rig.dropped(), [("w".to_string(), failed, 2)]);
    assert_eq!((rig.report().rows_out, rig.finished.len()), (2, 2));
    let group = rig.finished.iter().find(|group| group.row_group == 0).unwrap();
    assert_eq!((group.live.len(), group.dropped.len()), (0, 2));
}

#[test]
fn a_full_column_does_not_run_for_a_row_group_without_rows() {
    let mut rig = Rig::start([cell("a", &[]), whole("w", &["a"]), whole("v", &["w"])], rows(2, 2));
    rig.end_all(FAILED);
    assert_eq!((rig.running.len(), rig.finished.len()), (0, 1));
    rig.saved(0);
    assert_eq!(rig.report().rows_dropped, 2);
}

#[test]
fn only_row_groups_that_are_not_done_run_and_they_keep_their_numbers() {
    let config = PipelineConfig { done_row_groups: [0, 2].into(), ..rows(7, 2) };
    let mut rig = Rig::start([cell("a", &[])], config);
    assert_eq!(rig.running_names(), ["a:1.0", "a:1.1", "a:3.0"]);
    assert_eq!(rig.spawned.last().unwrap().first_row, 6);
    let progress = rig.pipeline.progress();
    assert_eq!((progress.rows_total, progress.rows_done, progress.row_groups_done), (7, 4, 2));
    rig.run_well();
    let report = rig.report();
    assert_eq!((report.rows_resumed, report.rows_in, report.rows_out, report.row_groups_done), (4, 3, 3, 4));
}

#[test]
fn a_run_with_nothing_left_to_do_completes_at_once() {
    for config in [rows(0, 4), PipelineConfig { done_row_groups: [1, 0].into(), ..rows(5, 4) }] {
        let rig = Rig::start([cell("a", &[])], config);
        assert_eq!((rig.ends, rig.spawned.len()), (1, 0));
        assert!(rig.report().is_complete());
    }
}

#[test]
fn a_million_pending_row_groups_have_no_tasks_before_they_are_admitted() {
    let mut rig = Rig::new([cell("a", &[])], rows(3_000_000, 3));
    assert_eq!(rig.pipeline.progress().row_groups_active, 0);
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!((rig.pipeline.progress().row_groups_active, rig.running.len(), rig.pipeline.queued()), (3, 9, 0));
    assert_eq!(rig.pipeline.progress().row_groups_total, 1_000_000);
}

#[test]
fn progress_counts_complete_rows_before_they_are_saved() {
    let mut rig = Rig::start([cell("a", &[]), whole("w", &[])], rows(2, 2));
    rig.succeed("a:0.0");
    assert_eq!(rig.pipeline.progress().rows_done, 0);
    rig.succeed("w:0");
    assert_eq!(rig.pipeline.progress().rows_done, 1);
    rig.succeed("a:0.1");
    let progress = rig.pipeline.progress();
    assert_eq!((progress.rows_done, progress.row_groups_done, progress.row_groups_active), (2, 0, 1));
    rig.saved(0);
    assert_eq!((rig.pipeline.progress().rows_done, rig.pipeline.progress().row_groups_done), (2, 1));
}

#[test]
fn early_late_duplicate_and_unknown_calls_have_no_effect() {
    let mut rig = Rig::start([cell("a", &[])], rows(1, 1));
    let worker = rig.running[0].worker;
    rig.pipeline.start(rig.now);
    rig.pipeline.handle_timeout(rig.now);
    rig.pipeline.checkpoint_finished(rig.now, 0, Ok(()));
    rig.pipeline.checkpoint_finished(rig.now, 9, Ok(()));
    let foreign = WorkerId::from_bits(worker.to_bits() + 99);
    let answer = rig.pipeline.task_panicked(rig.now, foreign, "not mine".into());
    assert_eq!(answer, ReleaseResult::UnknownLease);
    rig.drain();
    assert_eq!((rig.running.len(), rig.ends), (1, 0));
    rig.succeed("a:0.0");
    let answer = rig.pipeline.task_panicked(rig.now, worker, "too late".into());
    assert_eq!(answer, ReleaseResult::Duplicate);
    rig.saved(0);
    rig.cancel();
    assert_eq!(rig.ends, 1);
    assert!(rig.report().is_complete());
}

#[test]
fn time_that_runs_backwards_is_clamped_and_counted() {
    let mut rig = Rig::start([cell("a", &[])], rows(1, 1));
    rig.advance(millis(100));
    rig.now = Instant::ZERO;
    rig.end("a:0.0", rate_limited(millis(60)));
    assert_eq!(rig.pipeline.poll_timeout(), Some(Instant::ZERO + millis(160)));
    assert_eq!(rig.pipeline.clock_regressions(), 1);
}

#[test]
fn a_pipeline_can_move_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Pipeline>();
}

#[test]
fn tasks_whose_call_would_wait_do_not_occupy_the_slots_of_another_provider() {
    let model = |name: &str| {
        let resource = std::format!("request:{name}");
        let group = crate::task::TaskGroup::model("p", name, 9.0);
        Column::new(name, Strategy::Cell).with_group(group).with_demand(&resource, 1)
    };
    let resources = ["request:a", "request:z"].map(|name| (name.into(), 9)).into();
    let config = PipelineConfig { submission_limit: 2, resources, ..rows(4, 4) };
    let mut rig = Rig::new([model("a"), model("z")], config);
    rig.pipeline.set_request_pressure(rig.now, "request:z", None);
    rig.pipeline.set_request_pressure(rig.now, "request:a", Some(crate::request::RequestPressure::CoolingDown));
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!(rig.running_names(), ["z:0.0", "z:0.1"]);
    rig.succeed("z:0.0");
    rig.pipeline.set_request_pressure(rig.now, "request:a", None);
    rig.succeed("z:0.1");
    assert_eq!(rig.running_names(), ["z:0.2", "a:0.0"]);
    rig.run_well();
}

#[test]
fn the_task_policy_is_chosen_by_a_setting_or_supplied_by_the_caller() {
    #[derive(Debug)]
    struct TwoModels;
    impl crate::task::TaskPolicy for TwoModels {
        fn evaluate(
            &self,
            view: &crate::task::PolicyView<'_>,
        ) -> Result<crate::task::PolicyGrant, crate::task::PolicyDenial> {
            if view.running() < 2 {
                return Ok(crate::task::PolicyGrant::unlimited());
            }
            Err(crate::task::TaskDenialReason::Policy.into())
        }
    }
    let column = || Column::new("a", Strategy::Cell).with_group(crate::task::TaskGroup::model("p", "m", 4.0));
    let config = || PipelineConfig { submission_limit: 8, ..rows(16, 16) };
    let strict = PipelineConfig { policy: PolicyChoice::StrictFair, ..config() };
    // A group without competition uses all slots under either policy: under `StrictFair` because no other
    // group competes, under bounded borrowing as a debt.
    for config in [strict, config()] {
        assert_eq!(Rig::start([column()], config).running.len(), 8);
    }
    let plan = PlanBuilder::new().column(column()).build().expect("a valid plan");
    let mut own = Pipeline::with_policy(plan, config(), std::boxed::Box::new(TwoModels)).expect("valid settings");
    own.start(Instant::ZERO);
    assert_eq!((own.active_leases(), own.queued()), (2, 14));
}
