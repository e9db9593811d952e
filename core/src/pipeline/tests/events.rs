//! The events of a run, by kind.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::error::ConfigError;
use crate::lease::ReleaseResult;
use crate::pipeline::event::{
    Correlation, MAX_PENDING, SchedulerEvent, SchedulerEventKind, SchedulerEventPayload, SchedulerInterest, StopKind,
};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::tests::event_checker::EventTotals;
use crate::pipeline::tests::harness::*;
use crate::request::RequestPressure;
use crate::task::{
    GroupKind, PolicyDenial, PolicyGrant, PolicyView, TaskDenialReason, TaskGroup, TaskGroupId, TaskPolicy,
    TaskResourceId,
};
use crate::time::{Duration, Instant};
use SchedulerEventKind::*;

fn watched(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Rig {
    Rig::start_with(columns, config, SchedulerInterest::ALL)
}

/// Starts a watched run and discards the events of its start.
fn watched_after_start(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Rig {
    let mut rig = watched(columns, config);
    rig.events();
    rig
}

fn kinds(rig: &mut Rig) -> Vec<SchedulerEventKind> {
    rig.events().iter().map(|event| event.payload.kind()).collect()
}

/// Returns the events of this kind since the last call, and discards all others.
fn events_of(rig: &mut Rig, kind: SchedulerEventKind) -> Vec<SchedulerEvent> {
    rig.events().into_iter().filter(|event| event.payload.kind() == kind).collect()
}

fn payloads(rig: &mut Rig, kind: SchedulerEventKind) -> Vec<SchedulerEventPayload> {
    events_of(rig, kind).iter().map(|event| event.payload).collect()
}

/// Returns a column in its own group, whose tasks hold `amount` units of `gpu`.
fn on_gpu(name: &str, amount: u32) -> Column {
    Column::new(name, Strategy::Cell).with_demand("gpu", amount)
}

fn gpus(row_count: u64, limit: u32) -> PipelineConfig {
    PipelineConfig { resources: [("gpu".into(), limit)].into(), ..rows(row_count, row_count as u32) }
}

fn limited_group(name: &str, limit: u32) -> TaskGroup {
    TaskGroup { admitted_limit: Some(limit), ..TaskGroup::local(name) }
}

#[test]
fn a_complete_run_emits_the_events_from_its_start_to_its_end() {
    let mut rig = watched([cell("a", &[])], PipelineConfig { done_row_groups: [1].into(), ..rows(2, 1) });
    let spawned = [DependencyReady, ReadyEnqueued, Selected, TaskLeaseAcquired, WorkerSpawned];
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).collect();
    assert_eq!(emitted[..2], [JobStarted, RowGroupAdmitted]);
    assert_eq!(emitted[2..7], spawned);
    assert_eq!(emitted[7..], [QueueDrained, QueueEmpty, RowGroupAdmissionBlocked]);
    assert_eq!(events[0].payload, SchedulerEventPayload::JobStarted { rows: 2, row_groups: 2, resumed: 1 });
    assert_eq!(events[1].payload, SchedulerEventPayload::RowGroupAdmitted { rows: 1, active: 1 });

    rig.succeed("a:0.0");
    assert_eq!(kinds(&mut rig), [TaskCompleted, TaskLeaseReleased]);
    rig.advance(Duration::from_millis(7));
    rig.saved(0);
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).collect();
    assert_eq!(emitted, [RowGroupCheckpointed, HealthSnapshot, HealthSnapshot, JobCompleted]);
    assert_eq!(events[0].payload, SchedulerEventPayload::RowGroupCheckpointed { rows: 1, unmade: 0 });
    let health = SchedulerEventPayload::HealthSnapshot {
        running: 0,
        queued: 0,
        delayed: 0,
        row_groups_active: 0,
        row_groups_done: 2,
        rows_out: 1,
        rows_dropped: 0,
        rows_unmade: 0,
    };
    assert_eq!((events[1].payload, events[2].payload), (health, health));
    let over =
        SchedulerEventPayload::JobCompleted { stop: StopKind::Completed, rows_out: 1, rows_dropped: 0, rows_unmade: 0 };
    assert_eq!((events[3].payload, events[3].at), (over, Instant::ZERO + Duration::from_millis(7)));
}

#[test]
fn the_correlation_of_a_task_event_names_its_row_group_column_row_group_and_attempt() {
    let group = TaskGroup::model("provider", "scribe", 1.0);
    let columns = [Column::new("a", Strategy::Cell).with_group(group), whole("b", &["a"])];
    let mut rig = watched(columns, PipelineConfig { run: 3, done_row_groups: [0].into(), ..rows(4, 2) });
    let events = rig.events();
    let of_task = |event: &&SchedulerEvent| event.correlation.row == Some(1);
    let emitted: Vec<Correlation> = events.iter().filter(of_task).map(|event| event.correlation).collect();
    let expected = Correlation {
        run: 3,
        row_group: Some(1),
        column: Some(ColumnId(0)),
        row: Some(1),
        strategy: Some(Strategy::Cell),
        group_kind: Some(GroupKind::Model),
        group: emitted[0].group,
        task: Some(TaskKey { row_group: 1, column: ColumnId(0), row: Some(1) }.to_bits()),
        attempt: Some(0),
    };
    let started = Correlation { attempt: Some(1), ..expected };
    assert_eq!(emitted, [expected, expected, started, started, started]);
    assert!(events.iter().all(|event| event.correlation.run == 3));

    rig.run_well();
    let full: Vec<Correlation> = events_of(&mut rig, WorkerSpawned).iter().map(|event| event.correlation).collect();
    assert_eq!((full[0].row, full[0].strategy, full[0].row_group), (None, Some(Strategy::FullColumn), Some(1)));
    assert_ne!(full[0].group, expected.group);
    assert_eq!(expected.group, Some(0x80c0_85cf_d983_ff5b), "equal in every process");
}

#[test]
fn the_events_show_that_no_spawned_worker_ever_waits_for_a_resource() {
    let columns = [on_gpu("a", 2), on_gpu("b", 1).with_upstream("a"), on_gpu("c", 3), cell("d", &["b"])];
    let amounts = [2, 1, 3, 0];
    let config = PipelineConfig { submission_limit: 3, ..gpus(12, 4) };
    let mut rig = watched(columns, config);
    rig.run(|rig, task| {
        if rig.spawned.len() % 5 == 0 && task.attempt == 1 { retry(RetryKind::Timeout) } else { TaskOutcome::Success }
    });
    let (mut leased, mut running, mut gpu, mut most) = (Vec::new(), Vec::new(), 0, 0);
    for event in rig.events() {
        let Some(task) = event.correlation.task else { continue };
        let amount = amounts[event.correlation.column.expect("a task has a column").index()];
        match event.payload {
            SchedulerEventPayload::TaskLeaseAcquired { .. } => {
                leased.push(task);
                gpu += amount;
            }
            SchedulerEventPayload::WorkerSpawned { .. } => {
                assert!(leased.contains(&task), "{event:?} before its lease");
                running.push(task);
            }
            SchedulerEventPayload::TaskCompleted { .. } => running.retain(|other| *other != task),
            SchedulerEventPayload::TaskLeaseReleased { .. } => {
                leased.retain(|other| *other != task);
                gpu -= amount;
            }
            _ => {}
        }
        let waiting = running.iter().filter(|task| !leased.contains(task)).count();
        assert_eq!(waiting, 0, "after {event:?}");
        assert!(leased.len() <= 3 && gpu <= 4);
        most = most.max(leased.len());
    }
    assert_eq!((leased.len(), gpu, most), (0, 0, 3));
}

#[test]
fn a_rate_limited_task_emits_its_pause_and_its_next_attempt() {
    let mut rig = watched_after_start([cell("a", &[])], rows(1, 1));
    rig.end("a:0.0", rate_limited(Duration::from_millis(700)));
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).collect();
    assert_eq!(emitted, [TaskCompleted, TaskLeaseReleased, RetryDeferred]);
    let until = Instant::ZERO + Duration::from_millis(700);
    assert_eq!(
        events[2].payload,
        SchedulerEventPayload::RetryDeferred { failure: Some(RetryKind::RateLimited), until, round: None }
    );
    rig.advance(Duration::from_millis(700));
    let events = rig.events();
    assert_eq!(events[0].payload.kind(), SalvageRedispatched);
    assert_eq!((events[0].correlation.attempt, events[0].at), (Some(1), until));
    assert_eq!(events[4].payload.kind(), WorkerSpawned);
    assert_eq!(events[4].correlation.attempt, Some(2));
}

#[test]
fn a_retryable_failure_emits_its_salvage_round_and_a_drop_after_the_last_one() {
    let mut rig = watched_after_start([cell("a", &[])], rows(1, 1));
    for round in [1, 2, 3] {
        let failed = rig.now;
        rig.end("a:0.0", retry(RetryKind::Timeout));
        let emitted = payloads(&mut rig, RetryDeferred);
        let [SchedulerEventPayload::RetryDeferred { failure, until, round: emitted }] = emitted[..] else {
            panic!("{emitted:?}")
        };
        assert_eq!((failure, emitted, until > failed), (Some(RetryKind::Timeout), Some(round), true));
        rig.back_off();
        assert_eq!(rig.now, until);
    }
    rig.end("a:0.0", retry(RetryKind::Timeout));
    let reason = DropReason::RetriesExhausted(RetryKind::Timeout);
    assert_eq!(
        payloads(&mut rig, NonRetryableDropped),
        [SchedulerEventPayload::NonRetryableDropped { reason, rows: 1 }]
    );
}

#[test]
fn queued_tasks_of_a_dropped_row_are_emitted_as_cancelled() {
    let config = PipelineConfig { submission_limit: 1, ..rows(2, 2) };
    let mut rig = watched_after_start([cell("a", &[]), cell("b", &[])], config);
    assert_eq!((rig.running_names(), rig.pipeline.queued()), (["a:0.0".into()].into(), 3));
    rig.end("a:0.0", FAILED);
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).collect();
    assert_eq!(emitted[..4], [TaskCompleted, TaskLeaseReleased, Cancelled, NonRetryableDropped]);
    assert_eq!(events[2].payload, SchedulerEventPayload::Cancelled { queued: true });
    assert_eq!((events[2].correlation.column, events[2].correlation.row), (Some(ColumnId(1)), Some(0)));
    let reason = DropReason::Failed(FailureKind::Request);
    assert_eq!(events[3].payload, SchedulerEventPayload::NonRetryableDropped { reason, rows: 1 });
    assert_eq!(events[3].correlation.column, Some(ColumnId(0)));
}

#[test]
fn a_stop_emits_the_discarded_tasks_and_the_end_of_each_worker() {
    let mut rig = watched_after_start([cell("a", &[])], PipelineConfig { submission_limit: 1, ..rows(5, 5) });
    rig.cancel();
    let stopping = SchedulerEventPayload::JobStopping { stop: StopKind::Cancelled, aborts: true };
    let emitted: Vec<_> = rig.events().iter().map(|event| event.payload).collect();
    assert_eq!(emitted, [stopping, SchedulerEventPayload::QueueDrained { discarded: 4 }]);
    rig.end("a:0.0", TaskOutcome::Cancelled);
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).collect();
    let ended = [TaskCompleted, TaskLeaseReleased, Cancelled];
    assert_eq!(emitted, [&ended[..], &[RowGroupDiscarded, HealthSnapshot, HealthSnapshot, JobCompleted]].concat());
    assert_eq!(events[2].payload, SchedulerEventPayload::Cancelled { queued: false });
    assert_eq!(events[3].payload, SchedulerEventPayload::RowGroupDiscarded { reason: DiscardReason::Stopped, rows: 5 });
    assert_eq!(events[3].correlation.row_group, Some(0));
    let over =
        SchedulerEventPayload::JobCompleted { stop: StopKind::Cancelled, rows_out: 0, rows_dropped: 0, rows_unmade: 5 };
    assert_eq!(events[6].payload, over);
}

#[test]
fn a_run_cancelled_before_its_start_emits_a_start_and_an_end() {
    let mut rig = Rig::new([cell("a", &[])], rows(1, 1));
    rig.pipeline.set_interest(SchedulerInterest::ALL);
    rig.cancel();
    assert_eq!(kinds(&mut rig), [JobStarted, JobStopping, HealthSnapshot, JobCompleted]);
}

#[test]
fn a_failed_spawn_is_rolled_back_and_retried_in_a_salvage_round() {
    let mut rig = watched_after_start([cell("a", &[])], PipelineConfig { submission_limit: 1, ..rows(2, 2) });
    rig.fail_spawn("a:0.0");
    let events = rig.events();
    let emitted: Vec<_> = events.iter().map(|event| event.payload.kind()).take(3).collect();
    assert_eq!(emitted, [WorkerSpawnFailed, TaskLeaseReleased, RetryDeferred]);
    assert_eq!(
        events[2].payload,
        SchedulerEventPayload::RetryDeferred { failure: None, until: Instant::ZERO, round: Some(1) }
    );
    assert_eq!(rig.running_names(), ["a:0.1"], "the other row runs before the retry");
    assert_eq!(rig.pipeline.progress().columns[0].spawned, 1);
    rig.succeed("a:0.1");
    assert_eq!(rig.running_names(), ["a:0.0"]);
    assert_eq!(rig.spawned.last().map(|task| task.attempt), Some(1), "an attempt that was not started is not counted");
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().columns[0].tasks.spawned), (2, 2));
}

#[test]
fn a_run_ends_after_finitely_many_spawns_if_the_host_can_start_no_worker() {
    let mut rig = watched_after_start([cell("a", &[])], rows(2, 2));
    while let Some(label) = rig.running_names().first() {
        rig.fail_spawn(label);
    }
    assert_eq!(events_of(&mut rig, WorkerSpawnFailed).len(), 8, "one attempt and three retries for each row");
    rig.saved(0);
    assert_eq!(rig.dropped(), [("a".into(), DropReason::WorkerLost, 2)]);
    assert_eq!(rig.report().columns[0].tasks, TaskCounts::default());
}

#[test]
fn a_report_for_a_worker_that_does_not_run_emits_a_diagnostic_and_has_no_effect() {
    let mut rig = watched_after_start([cell("a", &[])], rows(1, 1));
    let worker = rig.running[0].worker;
    rig.succeed("a:0.0");
    rig.events();
    assert_eq!(rig.pipeline.task_finished(rig.now, worker, TaskOutcome::Success), ReleaseResult::Duplicate);
    assert_eq!(rig.pipeline.spawn_failed(rig.now, worker), ReleaseResult::Duplicate);
    let unknown = WorkerId::from_bits(77);
    assert_eq!(rig.pipeline.spawn_failed(rig.now, unknown), ReleaseResult::UnknownLease);
    let emitted = |worker, result| SchedulerEventPayload::ReleaseDiagnostic { worker, result };
    let twice = emitted(worker, ReleaseResult::Duplicate);
    let events: Vec<_> = rig.events().iter().map(|event| event.payload).collect();
    assert_eq!(events, [twice, twice, emitted(unknown, ReleaseResult::UnknownLease)]);
}

#[test]
fn blocked_queued_tasks_are_emitted_once_with_the_limiting_resource() {
    let mut rig = watched([on_gpu("a", 1)], PipelineConfig { submission_limit: 9, ..gpus(6, 2) });
    let blocked = |queued| SchedulerEventPayload::AdmissionBlocked {
        reason: TaskDenialReason::NoCapacity,
        resource: Some(1),
        queued,
    };
    assert_eq!(payloads(&mut rig, AdmissionBlocked), [blocked(4)]);
    for label in ["a:0.0", "a:0.1", "a:0.2"] {
        rig.succeed(label);
        assert_eq!(payloads(&mut rig, AdmissionBlocked), [], "the reason has not changed");
    }
    rig.succeed("a:0.3");
    assert_eq!(kinds(&mut rig)[2..], [Selected, TaskLeaseAcquired, WorkerSpawned, QueueDrained, QueueEmpty]);
}

#[test]
fn a_round_emits_at_most_one_denial_per_group() {
    let columns = ["a", "b", "c"].map(|name| on_gpu(name, if name == "c" { 2 } else { 1 }));
    let mut rig = watched(columns, gpus(8, 2));
    let denied = events_of(&mut rig, AdmissionDenied);
    let short = SchedulerEventPayload::AdmissionDenied { reason: TaskDenialReason::NoCapacity, resource: Some(1) };
    assert!(denied.iter().all(|event| event.payload == short), "{denied:?}");
    let groups: alloc::collections::BTreeSet<_> = denied.iter().map(|event| event.correlation.group).collect();
    assert_eq!(groups.len(), denied.len());
    assert!(!denied.is_empty());
    while let Some(label) = rig.running_names().first() {
        rig.succeed(label);
        let denied = events_of(&mut rig, AdmissionDenied);
        let groups: alloc::collections::BTreeSet<_> = denied.iter().map(|event| event.correlation.group).collect();
        assert_eq!(groups.len(), denied.len(), "{denied:?}");
    }
}

/// A policy that denies one group, and gives no condition after which it would allow it.
#[derive(Debug, Default)]
struct AlwaysDenies(Option<TaskGroupId>);

impl TaskPolicy for AlwaysDenies {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        if self.0 == Some(view.group()) { Err(TaskDenialReason::Policy.into()) } else { Ok(PolicyGrant::unlimited()) }
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        _find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        if group.identity == ["never"] {
            self.0 = Some(id);
        }
        Ok(())
    }
}

#[test]
fn a_group_that_is_evaluated_repeatedly_in_a_round_emits_one_denial() {
    let columns = [Column::new("never", Strategy::Cell), Column::new("other", Strategy::Cell)];
    let mut rig = Rig::new(columns, rows(3, 3));
    let plan = rig.pipeline.plan().clone();
    rig.pipeline = Pipeline::with_policy(plan, rows(3, 3), Box::new(AlwaysDenies::default())).expect("valid settings");
    rig.pipeline.set_interest(SchedulerInterest::ALL);
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!(rig.running.len(), 3, "the group is evaluated before each of them, and after");
    let denied = SchedulerEventPayload::AdmissionDenied { reason: TaskDenialReason::Policy, resource: None };
    assert_eq!(payloads(&mut rig, AdmissionDenied), [denied]);
    rig.succeed("other:0.0");
    assert_eq!(payloads(&mut rig, AdmissionDenied), [denied], "another round");
}

#[test]
fn a_group_at_its_limit_while_another_could_start_emits_group_capped() {
    let limited = |name| on_gpu(name, 1).with_group(limited_group(name, 1));
    let config = PipelineConfig { policy: PolicyChoice::StrictFair, ..gpus(3, 4) };
    let mut rig = watched([limited("a"), limited("b")], config);
    assert_eq!(rig.running_names(), ["a:0.0", "b:0.0"]);
    let events = rig.events();
    let capped: Vec<_> = events.iter().filter(|event| event.payload.kind() == GroupCapped).collect();
    // 0 is `submission`, 1 is the first configured resource.
    assert!(
        capped.iter().all(|event| event.payload == SchedulerEventPayload::GroupCapped { resource: Some(1) }),
        "{capped:?}"
    );
    let rows: Vec<_> = capped.iter().map(|event| (event.correlation.column, event.correlation.row)).collect();
    assert_eq!(rows, [(Some(ColumnId(0)), Some(1)), (Some(ColumnId(1)), Some(1))]);
    let blocked = events.iter().find(|event| event.payload.kind() == AdmissionBlocked).expect("two wait");
    let reason = TaskDenialReason::GroupCap;
    assert_eq!(blocked.payload, SchedulerEventPayload::AdmissionBlocked { reason, resource: Some(1), queued: 4 });
}

#[test]
fn a_task_that_starts_against_the_policy_emits_a_liveness_override() {
    let greedy = |name| on_gpu(name, 5).with_group(limited_group(name, 100));
    // Five of eight units are more than half, so the policy alone would start neither group.
    let mut rig = watched([greedy("a"), greedy("b")], gpus(1, 8));
    let events = rig.events();
    let at =
        events.iter().position(|event| event.payload.kind() == LivenessOverride).expect("nothing else could start");
    assert_eq!(events[at + 1].payload.kind(), Selected);
    assert_eq!(events[at].correlation, Correlation { attempt: Some(1), ..events[at + 1].correlation });
    let capped = events[..at].iter().filter(|event| event.payload.kind() == GroupCapped).count();
    assert_eq!(capped, 2, "both were denied before");
    rig.run_well();
    assert_eq!(events_of(&mut rig, LivenessOverride).len(), 0, "the second one is alone");
}

#[test]
fn a_task_passed_over_because_of_request_pressure_is_emitted_with_the_preferred_task() {
    let model = |name: &str| {
        let group = TaskGroup::model("provider", name, 1.0);
        Column::new(name, Strategy::Cell).with_group(group).with_demand(name, 1)
    };
    let resources = [("busy".into(), 9), ("open".into(), 9)].into();
    let config = PipelineConfig { submission_limit: 1, resources, ..rows(2, 2) };
    let mut rig = Rig::new([model("busy"), model("open")], config);
    rig.pipeline.set_interest(SchedulerInterest::of(&[PressureAdvisorySkipped]));
    rig.pipeline.set_request_pressure(rig.now, "open", None);
    rig.pipeline.set_request_pressure(rig.now, "busy", Some(RequestPressure::CoolingDown));
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!(rig.running_names(), ["open:0.0"]);
    let events = rig.events();
    let preferred = TaskKey { row_group: 0, column: ColumnId(1), row: Some(0) }.to_bits();
    let pressure = RequestPressure::CoolingDown;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].payload, SchedulerEventPayload::PressureAdvisorySkipped { pressure, preferred });
    assert_eq!((events[0].correlation.column, events[0].correlation.row), (Some(ColumnId(0)), Some(0)));
}

#[test]
fn the_row_group_target_and_the_block_reason_are_emitted_when_they_change() {
    let model = Column::new("a", Strategy::Cell).with_group(TaskGroup::model("p", "m", 1.0)).with_demand("gpu", 1);
    let adaptive = Some(AdaptiveRowGroups::default());
    let config = PipelineConfig { row_group_size: 1, row_groups: 9, adaptive, ..gpus(6, 2) };
    let mut rig = watched([model], config);
    let events = rig.events();
    let changed: Vec<_> = events.iter().filter(|event| event.payload.kind() == RowGroupTargetChanged).collect();
    assert_eq!(changed[0].payload, SchedulerEventPayload::RowGroupTargetChanged { from: 1, to: 2 });
    let mut last = None;
    for _ in 0..6 {
        let label = rig.running_names().remove(0);
        rig.succeed(&label);
        rig.saved(rig.saving[0]);
        for payload in payloads(&mut rig, RowGroupAdmissionBlocked) {
            assert_ne!(last.replace(payload), Some(payload));
        }
    }
    let reason = RowGroupBlock::NoPendingRowGroups;
    assert_eq!(last, Some(SchedulerEventPayload::RowGroupAdmissionBlocked { reason }));
}

#[test]
fn a_fixed_number_of_row_groups_emits_the_cap_once() {
    let mut rig = watched([cell("a", &[])], PipelineConfig { row_groups: 1, ..rows(3, 1) });
    let blocked = |reason| SchedulerEventPayload::RowGroupAdmissionBlocked { reason };
    assert_eq!(payloads(&mut rig, RowGroupAdmissionBlocked), [blocked(RowGroupBlock::AtCap)]);
    rig.run_well();
    assert_eq!(payloads(&mut rig, RowGroupAdmissionBlocked), [blocked(RowGroupBlock::NoPendingRowGroups)]);
}

#[test]
fn a_failed_hook_is_emitted_with_its_row_group() {
    let mut rig = watched_after_start(
        [scratch("seed"), cell("a", &["seed"])],
        PipelineConfig { pre_batch_hook: true, ..rows(1, 1) },
    );
    rig.succeed("seed:0");
    rig.finish_pre_batch(0, Err("bad".into()));
    let failed = events_of(&mut rig, HookFailed);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].payload, SchedulerEventPayload::HookFailed { hook: Hook::PreBatch });
    assert_eq!(failed[0].correlation, Correlation { row_group: Some(0), ..Correlation::default() });
}

#[test]
fn a_row_left_out_by_a_hook_is_emitted_without_a_task() {
    let mut rig = watched_after_start(
        [scratch("seed"), cell("a", &["seed"])],
        PipelineConfig { pre_batch_hook: true, ..rows(2, 2) },
    );
    rig.succeed("seed:0");
    rig.finish_pre_batch(0, Ok([1].into()));
    let dropped = events_of(&mut rig, NonRetryableDropped);
    assert_eq!(
        dropped[0].payload,
        SchedulerEventPayload::NonRetryableDropped { reason: DropReason::PreBatch, rows: 1 }
    );
    assert_eq!(dropped[0].correlation, Correlation { row_group: Some(0), row: Some(1), ..Correlation::default() });
}

#[test]
fn an_early_shutdown_is_emitted_once() {
    let mut rig = watched_after_start([cell("a", &[])], PipelineConfig { shutdown_window: 2, ..rows(4, 4) });
    rig.end_all(FAILED);
    assert_eq!(payloads(&mut rig, EarlyShutdown), [SchedulerEventPayload::EarlyShutdown { failures: 2, window: 2 }]);
}

#[test]
fn a_degraded_provider_is_emitted_with_its_group() {
    let config = PipelineConfig { degraded_window: 2, ..rows(2, 2) };
    let mut rig = watched([cell("a", &[])], config);
    let group = events_of(&mut rig, WorkerSpawned)[0].correlation.group;
    rig.end("a:0.0", retry(RetryKind::ServerError));
    rig.end("a:0.1", retry(RetryKind::ServerError));
    let emitted = events_of(&mut rig, ProviderDegraded);
    assert_eq!(emitted[0].payload, SchedulerEventPayload::ProviderDegraded { resource: None, retryable: 2, window: 2 });
    let group_kind = Some(GroupKind::Local);
    assert_eq!(emitted[0].correlation, Correlation { group_kind, group, ..Correlation::default() });
    assert_eq!(rig.warnings.len(), emitted.len());
}

#[test]
fn the_state_computed_from_events_agrees_with_the_run_at_every_step() {
    let columns = [scratch("seed"), on_gpu("a", 1).with_upstream("seed"), on_gpu("b", 2).with_upstream("a")];
    let mut rig = watched(columns, PipelineConfig { row_group_size: 4, shutdown_rate: None, ..gpus(12, 3) });
    let mut totals = EventTotals::default();
    totals.check(&mut rig);
    for turn in 0.. {
        if let Some(row_group) = rig.saving.first().copied() {
            rig.saved(row_group);
        } else if let Some(label) = rig.running_names().pop() {
            match turn % 5 {
                0 => rig.end(&label, retry(RetryKind::Timeout)),
                1 if turn % 2 == 0 => rig.end(&label, FAILED),
                2 if turn % 4 == 0 => rig.fail_spawn(&label),
                _ => rig.succeed(&label),
            }
        } else if let Some(due) = rig.pipeline.poll_timeout() {
            rig.advance(due - rig.now);
        }
        totals.check(&mut rig);
        if rig.ends > 0 {
            break;
        }
    }
    assert_eq!(totals.queued, 0);
    assert!(rig.report().is_complete());
}

#[test]
fn only_enabled_events_are_emitted_and_numbered_without_gaps() {
    let all = watched([cell("a", &[])], rows(3, 3)).events();
    let wanted = [Selected, WorkerSpawned];
    let some = Rig::start_with([cell("a", &[])], rows(3, 3), SchedulerInterest::of(&wanted)).events();
    let expected: Vec<_> =
        all.iter().filter(|event| wanted.contains(&event.payload.kind())).map(|event| event.payload).collect();
    assert_eq!(some.iter().map(|event| event.payload).collect::<Vec<_>>(), expected);
    assert!(some.iter().zip(0..).all(|(event, number)| event.sequence == number));
    assert_eq!(Rig::start([cell("a", &[])], rows(3, 3)).events(), []);
}

#[test]
fn events_can_be_enabled_and_disabled_during_a_run() {
    let mut rig = Rig::start([cell("a", &[])], PipelineConfig { submission_limit: 1, ..rows(3, 3) });
    rig.pipeline.set_interest(SchedulerInterest::ALL);
    rig.succeed("a:0.0");
    let emitted = kinds(&mut rig);
    assert_eq!(emitted[..5], [TaskCompleted, TaskLeaseReleased, Selected, TaskLeaseAcquired, WorkerSpawned]);
    assert!(emitted.contains(&AdmissionBlocked), "emitted again");
    rig.pipeline.set_interest(SchedulerInterest::NONE);
    rig.run_well();
    assert_eq!(rig.events(), []);
}

#[test]
fn events_that_are_not_polled_are_bounded_and_dropped_ones_are_counted() {
    let row_count = MAX_PENDING as u64 + 3;
    let config = PipelineConfig { row_group_size: 1 << 17, ..rows(row_count, 1) };
    let mut rig = Rig::start_with([cell("a", &[])], config, SchedulerInterest::of(&[DependencyReady]));
    assert_eq!(rig.pipeline.dropped_events(), 3);
    assert_eq!(rig.events().len(), MAX_PENDING);
}

#[test]
fn every_kind_has_its_own_bit() {
    for (at, kind) in SchedulerEventKind::ALL.iter().enumerate() {
        let only = SchedulerInterest::of(&[*kind]);
        let held = SchedulerEventKind::ALL.iter().filter(|other| only.contains(**other)).count();
        assert_eq!((held, *kind as usize), (1, at));
    }
    assert_eq!(SchedulerEventKind::ALL.len(), 36);
}
