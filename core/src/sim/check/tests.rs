//! Each test records a run, forges one entry of the record, and checks which law the checker reports.

use super::*;
use crate::lease::ReleaseResult;
use crate::pipeline::event::{Correlation, SchedulerEventPayload, SchedulerInterest, StopKind};
use crate::pipeline::{
    Column, DiscardReason, DropReason, FailureKind, Pipeline, PipelineEffect, PlanBuilder, RetryKind, Strategy, Task,
    TaskOutcome,
};
use crate::request::event::{RequestEventKind, RequestEventPayload, RequestInterest};
use crate::request::{AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestLease};
use crate::task::TaskGroup;
use crate::time::Duration;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

/// One input of a checker.
#[derive(Clone, Debug)]
enum CheckerInput {
    Event(SchedulerEvent),
    Request(RequestEvent),
    PreBatch(SeededRowGroup),
    PreBatchEnded(u32, Vec<u32>),
    PostBatch(FinishedRowGroup),
    PostBatchEnded(u32),
    Checkpoint(FinishedRowGroup),
    CheckpointEnded(u32),
    Cancel,
}

/// All inputs of a checker for one run, with the plan and the settings of the run.
#[derive(Clone)]
struct Record {
    plan: Plan,
    config: PipelineConfig,
    steps: Vec<CheckerInput>,
    report: RunReport,
    /// The cap of the model.
    cap: u32,
}

const RETRY: TaskOutcome = TaskOutcome::Retryable { kind: RetryKind::Timeout, status: None, retry_after: None };

/// A host that records all inputs of a checker and ends one task at a time.
struct ScriptedHost {
    pipeline: Pipeline,
    admission: RequestAdmission,
    resource: ResourceId,
    now: Instant,
    steps: Vec<CheckerInput>,
    working: VecDeque<(Task, RequestLease)>,
}

impl ScriptedHost {
    fn record(mut self, plan: Plan, config: PipelineConfig) -> Record {
        self.pipeline.start(self.now);
        loop {
            self.record_events();
            if let Some(effect) = self.pipeline.poll_effect() {
                self.handle(effect);
            } else if let Some((task, lease)) = self.working.pop_front() {
                self.now += Duration::from_millis(1);
                let answer = self.admission.release(self.now, lease, &Outcome::Success.into());
                assert_eq!(answer, ReleaseResult::Released);
                let _ = self.pipeline.task_finished(self.now, task.worker, outcome(&task));
            } else if let Some(due) = self.pipeline.poll_timeout() {
                self.now = due;
                self.pipeline.handle_timeout(due);
            } else {
                break;
            }
        }
        let report = self.pipeline.report().expect("the run is over").clone();
        Record { plan, config, steps: self.steps, report, cap: 2 }
    }

    fn record_events(&mut self) {
        while let Some(event) = self.admission.poll_event() {
            self.steps.push(CheckerInput::Request(event));
        }
        while let Some(event) = self.pipeline.poll_event() {
            self.steps.push(CheckerInput::Event(event));
        }
    }

    fn handle(&mut self, effect: PipelineEffect) {
        match effect {
            PipelineEffect::Spawn(task) => {
                let AcquireResult::Granted(lease) = self.admission.acquire(self.now, &Request::new(self.resource))
                else {
                    panic!("there is room for every worker");
                };
                self.working.push_back((task, lease));
            }
            PipelineEffect::PreBatch(batch) => {
                let left_out = if batch.row_group == 1 { [0].into() } else { Vec::new() };
                self.steps.push(CheckerInput::PreBatch(batch));
                self.steps.push(CheckerInput::PreBatchEnded(batch.row_group, left_out.clone()));
                self.pipeline.pre_batch_finished(self.now, batch.row_group, Ok(left_out));
            }
            PipelineEffect::PostBatch(group) => {
                let row_group = group.row_group;
                self.steps.extend([CheckerInput::PostBatch(group), CheckerInput::PostBatchEnded(row_group)]);
                self.pipeline.post_batch_finished(self.now, row_group, Ok(()));
            }
            PipelineEffect::Checkpoint(group) => {
                let row_group = group.row_group;
                self.steps.extend([CheckerInput::Checkpoint(group), CheckerInput::CheckpointEnded(row_group)]);
                self.pipeline.checkpoint_finished(self.now, row_group, Ok(()));
            }
            PipelineEffect::Finished => {}
            other => panic!("{other:?} is not expected in this run"),
        }
    }
}

/// One task needs two attempts, and one fails for good.
fn outcome(task: &Task) -> TaskOutcome {
    match (task.column.index(), task.row_group, task.row, task.attempt) {
        (1, 0, Some(1), 1) => RETRY,
        (1, 1, Some(2), _) => TaskOutcome::Failed(FailureKind::Request),
        _ => TaskOutcome::Success,
    }
}

/// Records a run of two row groups of three rows, three columns and both hooks. One row is left out, another
/// one fails.
fn record() -> Record {
    let cell = |name, upstream| {
        let group = TaskGroup::local("cells");
        Column::new(name, Strategy::Cell).with_group(group).with_upstream(upstream).with_demand("pool", 1)
    };
    let plan = PlanBuilder::new()
        .column(Column::new("seed", Strategy::FromScratch))
        .column(cell("draft", "seed"))
        .column(cell("judge", "draft").ordered())
        .build()
        .unwrap();
    let config = PipelineConfig {
        rows: 6,
        row_group_size: 3,
        row_groups: 2,
        submission_limit: 2,
        resources: [("pool".to_string(), 2)].into(),
        shutdown_rate: None,
        pre_batch_hook: true,
        post_batch_hook: true,
        ..PipelineConfig::default()
    };
    let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
    admission.set_interest(Instant::ZERO, RequestInterest::ALL);
    let model = admission.register(Instant::ZERO, "provider", "model", "alias", 2).unwrap();
    let resource = admission.resource(model, Domain::Chat).expect("a known model");
    let mut pipeline = Pipeline::new(plan.clone(), config.clone()).unwrap();
    pipeline.set_interest(SchedulerInterest::ALL);
    let (steps, working) = (Vec::new(), VecDeque::new());
    ScriptedHost { pipeline, admission, resource, now: Instant::ZERO, steps, working }.record(plan, config)
}

impl Record {
    /// Returns the result of a checker for the record.
    fn check(&self) -> Result<(), Violation> {
        let mut checker = RunChecker::new(&self.plan, &self.config);
        let resource = self.steps.iter().find_map(|step| match step {
            CheckerInput::Request(RequestEvent {
                scope: crate::request::event::EventScope::Resource(resource),
                ..
            }) => Some(*resource),
            _ => None,
        });
        checker.set_call_cap(resource.expect("calls were made"), self.cap);
        for step in &self.steps {
            feed(&mut checker, step)?;
        }
        checker.finish(&self.report)
    }

    /// Renumbers the events, and returns the law that the record breaks.
    fn broken_law(mut self) -> Law {
        let (mut scheduler, mut request) = (0.., 0..);
        for step in &mut self.steps {
            match step {
                CheckerInput::Event(event) => event.sequence = scheduler.next().unwrap(),
                CheckerInput::Request(event) => event.sequence = request.next().unwrap(),
                _ => {}
            }
        }
        self.broken_law_unnumbered()
    }

    fn broken_law_unnumbered(&self) -> Law {
        self.check().expect_err("the record is forged").law
    }

    /// Returns the index of the first step for which `is_one` returns true.
    fn find(&self, is_one: impl Fn(&CheckerInput) -> bool) -> usize {
        self.steps.iter().position(is_one).expect("the record has such a step")
    }

    /// Returns the index of the first event of a task, which is given as column, row group and row.
    fn find_task(
        &self,
        (column, row_group, row): (usize, u32, u32),
        is_one: fn(&SchedulerEventPayload) -> bool,
    ) -> usize {
        self.find(|step| match step {
            CheckerInput::Event(event) => {
                let correlation = event.correlation;
                let place = (correlation.column.map(ColumnId::index), correlation.row_group, correlation.row);
                place == (Some(column), Some(row_group), Some(row)) && is_one(&event.payload)
            }
            _ => false,
        })
    }

    fn event(&mut self, at: usize) -> &mut SchedulerEvent {
        let CheckerInput::Event(event) = &mut self.steps[at] else { panic!("it is an event") };
        event
    }

    fn without(mut self, at: usize) -> Self {
        self.steps.remove(at);
        self
    }

    /// Inserts a step. An event gets the instant of the event at this index.
    fn with(mut self, at: usize, mut step: CheckerInput) -> Self {
        if let (CheckerInput::Event(event), CheckerInput::Event(there)) = (&mut step, &self.steps[at]) {
            event.at = there.at;
        }
        self.steps.insert(at, step);
        self
    }
}

fn feed(checker: &mut RunChecker, step: &CheckerInput) -> Result<(), Violation> {
    let succeeded = true;
    let lifecycle_step = match step {
        CheckerInput::Event(event) => return checker.on_event(event),
        CheckerInput::Request(event) => return checker.on_request_event(event),
        CheckerInput::PreBatch(batch) => LifecycleStep::PreBatch(batch),
        CheckerInput::PreBatchEnded(row_group, rows) => {
            LifecycleStep::PreBatchEnded { row_group: *row_group, left_out: Some(rows) }
        }
        CheckerInput::PostBatch(group) => LifecycleStep::PostBatch(group),
        CheckerInput::PostBatchEnded(row_group) => LifecycleStep::PostBatchEnded { row_group: *row_group, succeeded },
        CheckerInput::Checkpoint(group) => LifecycleStep::Checkpoint(group),
        CheckerInput::CheckpointEnded(row_group) => LifecycleStep::CheckpointEnded { row_group: *row_group, succeeded },
        CheckerInput::Cancel => LifecycleStep::Cancel,
    };
    checker.on_lifecycle_step(Instant::ZERO, &lifecycle_step)
}

fn spawned(payload: &SchedulerEventPayload) -> bool {
    matches!(payload, SchedulerEventPayload::WorkerSpawned { .. })
}

fn completed(payload: &SchedulerEventPayload) -> bool {
    matches!(payload, SchedulerEventPayload::TaskCompleted { .. })
}

fn enqueued(payload: &SchedulerEventPayload) -> bool {
    matches!(payload, SchedulerEventPayload::ReadyEnqueued { .. })
}

#[test]
fn an_unchanged_record_keeps_every_law() {
    let record = record();
    assert_eq!(record.check(), Ok(()));
    let retried = record.find_task((1, 0, 1), |payload| matches!(payload, SchedulerEventPayload::RetryDeferred { .. }));
    assert!(retried > 0 && record.report.rows_out == 4, "{:?}", record.report);
}

#[test]
fn a_missing_late_or_extra_event_breaks_the_stream() {
    assert_eq!(record().without(7).broken_law_unnumbered(), Law::Stream, "an event is missing");
    let mut old = record();
    let last = old.steps.len() - 1;
    old.event(last).at = Instant::ZERO;
    assert_eq!(old.broken_law(), Law::Stream, "time runs backwards");
    let last = record().steps[last].clone();
    let mut extra = record();
    extra.steps.push(last);
    assert_eq!(extra.broken_law(), Law::Stream, "an event follows the end");
    let end = record().steps.len() - 1;
    assert_eq!(record().without(end).broken_law(), Law::Stream, "the end is missing");
}

#[test]
fn a_task_that_is_repeated_or_skips_an_attempt_breaks_the_law_of_once() {
    let honest = record();
    let (again, end) = (honest.find_task((1, 0, 0), enqueued), honest.find_task((1, 0, 0), completed));
    let again = honest.steps[again].clone();
    assert_eq!(honest.with(end + 1, again).broken_law(), Law::Once, "it is queued after its success");
    let mut jump = record();
    let at = jump.find_task((1, 0, 1), spawned);
    jump.event(at).correlation.attempt = Some(2);
    assert_eq!(jump.broken_law(), Law::Once, "it begins with the second attempt");
    let mut gone = record();
    let at = gone.find(|step| matches!(step, CheckerInput::PreBatchEnded(0, _)));
    gone.steps[at] = CheckerInput::PreBatchEnded(0, [1].into());
    assert_eq!(gone.broken_law(), Law::Once, "its row was left out");
}

#[test]
fn a_task_before_its_upstream_and_a_swapped_row_break_the_column_order() {
    let mut early = record();
    let at = early.find_task((1, 0, 0), completed);
    let SchedulerEventPayload::TaskCompleted { worker, .. } = early.event(at).payload else { panic!("it ended") };
    early.event(at).payload = SchedulerEventPayload::TaskCompleted { worker, outcome: Some(RETRY) };
    assert_eq!(early.broken_law(), Law::ColumnOrder, "its upstream must be retried");
    let mut swapped = record();
    for step in &mut swapped.steps {
        if let CheckerInput::Event(event) = step
            && (event.correlation.row_group, event.correlation.column.map(ColumnId::index)) == (Some(0), Some(2))
        {
            let row = &mut event.correlation.row;
            *row = row.map(|row| [0, 2, 1][row as usize]);
        }
    }
    assert_eq!(swapped.broken_law(), Law::ColumnOrder, "rows 1 and 2 are swapped");
}

#[test]
fn limits_below_what_the_run_held_break_the_caps() {
    let lower: [fn(&mut PipelineConfig); 3] =
        [|config| config.submission_limit = 1, |config| config.resources[0].1 = 1, |config| config.row_groups = 1];
    for lower in lower {
        let mut record = record();
        lower(&mut record.config);
        assert_eq!(record.broken_law(), Law::Caps);
    }
}

#[test]
fn a_call_above_the_cap_or_limit_and_a_call_without_an_end_break_the_law_of_calls() {
    let narrow = Record { cap: 1, ..record() };
    assert_eq!(narrow.broken_law(), Law::Calls, "the cap is one call");
    let released = |step: &CheckerInput| {
        matches!(
            step,
            CheckerInput::Request(RequestEvent {
                payload: RequestEventPayload::LeaseReleased { in_flight: 0, .. },
                ..
            })
        )
    };
    let last = record().steps.iter().rposition(released).unwrap();
    assert_eq!(record().without(last).broken_law(), Law::Calls, "a call is left at the end");
    let mut beyond = record();
    for step in &mut beyond.steps {
        if let CheckerInput::Request(RequestEvent {
            payload: RequestEventPayload::LeaseAcquired { limit, .. }, ..
        }) = step
        {
            *limit = 1;
        }
    }
    assert_eq!(beyond.broken_law(), Law::Calls, "two calls are in flight under a limit of one");
}

#[test]
fn a_call_that_names_a_task_without_a_worker_is_reported() {
    let mut forged = record();
    let granted = |step: &CheckerInput| matches!(step, CheckerInput::Request(event) if event.payload.kind() == RequestEventKind::LeaseAcquired);
    let at = forged.find(granted);
    let CheckerInput::Request(event) = &mut forged.steps[at] else { panic!("a request") };
    event.correlation = Some(Correlation { task: Some(1 << 40), attempt: Some(1), ..Correlation::default() });
    assert_eq!(forged.broken_law(), Law::Joined);
}

#[test]
fn a_call_that_waits_while_there_is_room_for_it_is_reported() {
    let Record { plan, config, .. } = record();
    let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
    admission.set_interest(Instant::ZERO, RequestInterest::ALL);
    let model = admission.register(Instant::ZERO, "provider", "model", "alias", 1).unwrap();
    let (mut resources, mut checker) = (Vec::new(), RunChecker::new(&plan, &config));
    for domain in [Domain::Chat, Domain::Embedding] {
        resources.push(admission.resource(model, domain).unwrap());
    }
    let AcquireResult::Granted(_lease) = admission.acquire(Instant::ZERO, &Request::new(resources[0])) else {
        panic!("a slot is free")
    };
    let AcquireResult::Waiting(_) = admission.acquire(Instant::ZERO, &Request::new(resources[1])) else {
        panic!("no slot is free")
    };
    while let Some(event) = admission.poll_event() {
        checker.on_request_event(&event).unwrap();
    }
    let open = ResourceLimits {
        resource: resources[1],
        model,
        cap: 2,
        limit: 1,
        blocked_until: None,
        yielded: 0,
        is_spaced: false,
        is_up: true,
    };
    let other = ResourceLimits { resource: resources[0], ..open };
    let at = Instant::from_nanos(5);
    let mut broken = |limits| checker.on_quiescence(at, &[other, limits]).err().map(|violation| violation.law);
    assert_eq!(broken(open), Some(Law::Room), "none of its calls and one of two of its model are in flight");
    assert_eq!(broken(ResourceLimits { blocked_until: Some(at), ..open }), Some(Law::Room), "the pause is over");
    assert_eq!(broken(ResourceLimits { blocked_until: Some(Instant::from_nanos(6)), ..open }), None);
    assert_eq!(broken(ResourceLimits { cap: 1, ..open }), None, "the other domain uses the slot");
    assert_eq!(broken(ResourceLimits { limit: 0, ..open }), None);
    assert_eq!(broken(ResourceLimits { yielded: 1, ..open }), None, "it needs the resources of its task too");
    assert_eq!(broken(ResourceLimits { is_spaced: true, ..open }), None);
}

#[test]
fn a_worker_without_a_lease_and_a_lease_without_a_release_are_reported() {
    let honest = record();
    let at = honest.find_task((1, 0, 0), |payload| matches!(payload, SchedulerEventPayload::TaskLeaseAcquired { .. }));
    assert_eq!(honest.without(at).broken_law(), Law::Leases, "nothing was leased");
    let honest = record();
    let released = |step: &CheckerInput| {
        matches!(
            step,
            CheckerInput::Event(SchedulerEvent { payload: SchedulerEventPayload::TaskLeaseReleased { .. }, .. })
        )
    };
    let last = honest.steps.iter().rposition(released).unwrap();
    assert_eq!(honest.without(last).broken_law(), Law::Leases, "a lease is left at the end");
    let mut early = record();
    let at = early.find_task((1, 0, 0), completed);
    early.steps.swap(at, at + 1);
    assert_eq!(early.broken_law(), Law::Leases, "the lease was released before the worker ended");
}

#[test]
fn a_task_that_overtakes_another_breaks_first_come_first_served() {
    let mut record = record();
    let (first, second) = (record.find_task((1, 0, 0), enqueued), record.find_task((1, 0, 1), enqueued));
    let correlation = record.event(first).correlation;
    record.event(first).correlation = core::mem::replace(&mut record.event(second).correlation, correlation);
    assert_eq!(record.broken_law(), Law::Fifo);
}

#[test]
fn hooks_that_are_missing_repeated_or_early_are_reported() {
    let answered = |step: &CheckerInput| matches!(step, CheckerInput::PreBatchEnded(0, _));
    let at = record().find(answered);
    assert_eq!(record().without(at).broken_law(), Law::Hooks, "the pre-batch hook never ended");
    let called = record().find(|step| matches!(step, CheckerInput::PreBatch(batch) if batch.row_group == 0));
    let twice = record().steps[called].clone();
    assert_eq!(record().with(called, twice).broken_law(), Law::Hooks, "it is called twice");
    let post = record().find(|step| matches!(step, CheckerInput::PostBatch(_)));
    assert_eq!(record().without(post).without(post).broken_law(), Law::Hooks, "the post-batch hook was left out");
    let spawn = record().find_task((2, 0, 0), spawned);
    let early = record().steps[post].clone();
    assert_eq!(record().with(spawn + 1, early).broken_law(), Law::Hooks, "it is called while a worker runs");
}

#[test]
fn a_repeated_or_incomplete_checkpoint_and_one_with_altered_rows_are_reported() {
    let at = record().find(|step| matches!(step, CheckerInput::Checkpoint(group) if group.row_group == 0));
    let twice = record().steps[at].clone();
    assert_eq!(record().with(at, twice).broken_law(), Law::Checkpoints, "its checkpoint is requested twice");

    let mut unmade = record();
    let judged = unmade.find_task((2, 0, 2), completed);
    let SchedulerEventPayload::TaskCompleted { worker, .. } = unmade.event(judged).payload else { panic!("it ended") };
    unmade.event(judged).payload = SchedulerEventPayload::TaskCompleted { worker, outcome: Some(RETRY) };
    assert_eq!(unmade.broken_law(), Law::Checkpoints, "a row lacks a column");

    let forge = |change: fn(&mut FinishedRowGroup)| {
        let mut record = record();
        let at = record.find(|step| matches!(step, CheckerInput::Checkpoint(group) if group.row_group == 1));
        let CheckerInput::Checkpoint(group) = &mut record.steps[at] else { panic!("it is a checkpoint") };
        change(group);
        record.broken_law()
    };
    assert_eq!(forge(|group| group.live.clear()), Law::Checkpoints, "rows are in neither list");
    assert_eq!(forge(|group| group.rows = 4), Law::Checkpoints, "it has another size");
    let revive = |group: &mut FinishedRowGroup| {
        let revived = group.dropped.pop().expect("two rows were dropped");
        group.live.push(revived.row);
    };
    assert_eq!(forge(revive), Law::Checkpoints, "a dropped row is saved");
    let leave = |group: &mut FinishedRowGroup| group.unmade.extend(group.live.pop());
    assert_eq!(forge(leave), Law::Checkpoints, "a complete row is left unmade");
}

#[test]
fn rows_that_are_lost_or_dropped_without_a_reason_are_reported() {
    let mut lost = record();
    let end = lost.steps.len() - 1;
    let SchedulerEventPayload::JobCompleted { stop, rows_out, rows_dropped, rows_unmade } = lost.event(end).payload
    else {
        panic!("the end")
    };
    lost.event(end).payload =
        SchedulerEventPayload::JobCompleted { stop, rows_out: rows_out - 1, rows_dropped, rows_unmade };
    assert_eq!(lost.broken_law(), Law::Rows, "a saved row is not counted");
    let mut silent = record();
    silent.report.dropped.retain(|count| count.reason != DropReason::PreBatch);
    assert_eq!(silent.broken_law(), Law::Rows, "a row was dropped without a reason");
}

#[test]
fn a_start_after_a_stop_is_reported() {
    let before = record().find_task((1, 0, 0), spawned);
    assert_eq!(record().with(before, CheckerInput::Cancel).broken_law(), Law::Stops);
    let mut shut = record().steps[before].clone();
    if let CheckerInput::Event(event) = &mut shut {
        event.payload = SchedulerEventPayload::EarlyShutdown { failures: 1, window: 1 };
    }
    assert_eq!(record().with(before, shut).broken_law(), Law::Stops);
}

#[test]
fn a_row_group_that_ends_twice_or_never_is_reported() {
    let saved = |step: &CheckerInput| matches!(step, CheckerInput::Event(event) if matches!(event.payload, SchedulerEventPayload::RowGroupCheckpointed { .. }));
    let at = record().find(saved);
    let mut discarded = record().steps[at].clone();
    if let CheckerInput::Event(event) = &mut discarded {
        event.payload = SchedulerEventPayload::RowGroupDiscarded { reason: DiscardReason::Unsaved, rows: 1 };
    }
    assert_eq!(record().with(at, discarded).broken_law(), Law::Checkpoints, "it is discarded and then saved");
    assert_eq!(record().without(at).broken_law(), Law::Checkpoints, "it never ends");
}

#[test]
fn an_end_with_another_reason_than_the_emitted_stop_is_reported() {
    let mut record = record();
    let end = record.steps.len() - 1;
    let SchedulerEventPayload::JobCompleted { stop, .. } = &mut record.event(end).payload else { panic!("the end") };
    *stop = StopKind::Cancelled;
    assert_eq!(record.broken_law(), Law::Stops);
}

#[test]
fn a_violation_names_the_law_the_instant_and_the_task() {
    let mut record = record();
    let at = record.find_task((1, 0, 1), spawned);
    record.event(at).correlation.attempt = Some(9);
    let message = record.check().unwrap_err().to_string();
    assert_eq!(
        message,
        "at 2.000ms, law Once broken by column 1 of row group 0, row 1: attempt 9 came instead of attempt 1"
    );
}
