//! A run is recorded, one thing in the record is forged, and the law that it breaks is named.

use super::*;
use crate::lease::ReleaseAnswer;
use crate::pipeline::event::{Correlation, Interest, SchedulerEventPayload, StopKind};
use crate::pipeline::{
    Column, DiscardReason, DropReason, Effect, FailureKind, Pipeline, PlanBuilder, RetryKind, Strategy, Task,
    TaskOutcome,
};
use crate::request::event::{Interest as RequestInterest, RequestEventKind, RequestEventPayload};
use crate::request::{Acquire, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestLease};
use crate::task::TaskGroup;
use crate::time::Duration;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

/// One thing that a checker is told.
#[derive(Clone, Debug)]
enum CheckerInput {
    Event(SchedulerEvent),
    Request(RequestEvent),
    PreBatch(Batch),
    PreBatchAnswered(u32, Vec<u32>),
    PostBatch(FinishedRowGroup),
    PostBatchAnswered(u32),
    Checkpoint(FinishedRowGroup),
    CheckpointAnswered(u32),
    Cancel,
}

/// What was told of a run, and what it was a run of.
#[derive(Clone)]
struct Record {
    plan: Plan,
    config: PipelineConfig,
    steps: Vec<CheckerInput>,
    report: RunReport,
    /// The calls that the model bears.
    cap: u32,
}

const RETRY: TaskOutcome = TaskOutcome::Retryable { kind: RetryKind::Timeout, status: None, retry_after: None };

/// A host that writes down all it sees, and does one thing after another.
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
            self.write_down();
            if let Some(effect) = self.pipeline.poll_effect() {
                self.carry_out(effect);
            } else if let Some((task, lease)) = self.working.pop_front() {
                self.now += Duration::from_millis(1);
                let answer = self.admission.release(self.now, lease, &Outcome::Success.into());
                assert_eq!(answer, ReleaseAnswer::Released);
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

    fn write_down(&mut self) {
        while let Some(event) = self.admission.poll_event() {
            self.steps.push(CheckerInput::Request(event));
        }
        while let Some(event) = self.pipeline.poll_event() {
            self.steps.push(CheckerInput::Event(event));
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn(task) => {
                let Acquire::Granted(lease) = self.admission.acquire(self.now, &Request::new(self.resource)) else {
                    panic!("there is room for every worker");
                };
                self.working.push_back((task, lease));
            }
            Effect::PreBatch(batch) => {
                let left_out = if batch.row_group == 1 { [0].into() } else { Vec::new() };
                self.steps.push(CheckerInput::PreBatch(batch));
                self.steps.push(CheckerInput::PreBatchAnswered(batch.row_group, left_out.clone()));
                self.pipeline.pre_batch_finished(self.now, batch.row_group, Ok(left_out));
            }
            Effect::PostBatch(group) => {
                let row_group = group.row_group;
                self.steps.extend([CheckerInput::PostBatch(group), CheckerInput::PostBatchAnswered(row_group)]);
                self.pipeline.post_batch_finished(self.now, row_group, Ok(()));
            }
            Effect::Checkpoint(group) => {
                let row_group = group.row_group;
                self.steps.extend([CheckerInput::Checkpoint(group), CheckerInput::CheckpointAnswered(row_group)]);
                self.pipeline.checkpoint_finished(self.now, row_group, Ok(()));
            }
            Effect::Finished => {}
            other => panic!("{other:?} is no part of this run"),
        }
    }
}

/// One task is tried twice, one fails for good.
fn outcome(task: &Task) -> TaskOutcome {
    match (task.column.index(), task.row_group, task.row, task.attempt) {
        (1, 0, Some(1), 1) => RETRY,
        (1, 1, Some(2), _) => TaskOutcome::Failed(FailureKind::Request),
        _ => TaskOutcome::Success,
    }
}

/// Two row groups of three rows, three columns, both hooks; a row is left out, another fails.
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
    pipeline.set_interest(Interest::ALL);
    let (steps, working) = (Vec::new(), VecDeque::new());
    ScriptedHost { pipeline, admission, resource, now: Instant::ZERO, steps, working }.record(plan, config)
}

impl Record {
    /// What a checker says of it.
    fn judge(&self) -> Result<(), Violation> {
        let mut checker = RunChecker::new(&self.plan, &self.config);
        let resource = self.steps.iter().find_map(|step| match step {
            CheckerInput::Request(RequestEvent {
                place: crate::request::event::EventPlace::Resource(resource),
                ..
            }) => Some(*resource),
            _ => None,
        });
        checker.cap_calls(resource.expect("calls were made"), self.cap);
        for step in &self.steps {
            tell(&mut checker, step)?;
        }
        checker.finish(&self.report)
    }

    /// The law that it breaks, once its events are numbered anew.
    fn broken(mut self) -> Law {
        let (mut scheduler, mut request) = (0.., 0..);
        for step in &mut self.steps {
            match step {
                CheckerInput::Event(event) => event.sequence = scheduler.next().unwrap(),
                CheckerInput::Request(event) => event.sequence = request.next().unwrap(),
                _ => {}
            }
        }
        self.broken_as_it_is()
    }

    fn broken_as_it_is(&self) -> Law {
        self.judge().expect_err("the record is forged").law
    }

    /// The place of the first step of which `is_one` holds.
    fn find(&self, is_one: impl Fn(&CheckerInput) -> bool) -> usize {
        self.steps.iter().position(is_one).expect("the record has such a step")
    }

    /// The place of the first event of a task, given as column, row group and row.
    fn find_task(
        &self,
        (column, row_group, row): (usize, u32, u32),
        is_one: fn(&SchedulerEventPayload) -> bool,
    ) -> usize {
        self.find(|step| match step {
            CheckerInput::Event(event) => {
                let about = event.correlation;
                let place = (about.column.map(ColumnId::index), about.row_group, about.row);
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

    /// The same with one more step, an event at the instant of the one that stood there.
    fn with(mut self, at: usize, mut step: CheckerInput) -> Self {
        if let (CheckerInput::Event(event), CheckerInput::Event(there)) = (&mut step, &self.steps[at]) {
            event.at = there.at;
        }
        self.steps.insert(at, step);
        self
    }
}

fn tell(checker: &mut RunChecker, step: &CheckerInput) -> Result<(), Violation> {
    let works = true;
    let handover = match step {
        CheckerInput::Event(event) => return checker.on_event(event),
        CheckerInput::Request(event) => return checker.on_request_event(event),
        CheckerInput::PreBatch(batch) => LifecycleStep::PreBatch(batch),
        CheckerInput::PreBatchAnswered(row_group, rows) => {
            LifecycleStep::PreBatchAnswered { row_group: *row_group, left_out: Some(rows) }
        }
        CheckerInput::PostBatch(group) => LifecycleStep::PostBatch(group),
        CheckerInput::PostBatchAnswered(row_group) => LifecycleStep::PostBatchAnswered { row_group: *row_group, works },
        CheckerInput::Checkpoint(group) => LifecycleStep::Checkpoint(group),
        CheckerInput::CheckpointAnswered(row_group) => {
            LifecycleStep::CheckpointAnswered { row_group: *row_group, works }
        }
        CheckerInput::Cancel => LifecycleStep::Cancel,
    };
    checker.on_lifecycle_step(Instant::ZERO, &handover)
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
fn a_run_as_it_was_keeps_every_law() {
    let record = record();
    assert_eq!(record.judge(), Ok(()));
    let retried = record.find_task((1, 0, 1), |payload| matches!(payload, SchedulerEventPayload::RetryDeferred { .. }));
    assert!(retried > 0 && record.report.rows_out == 4, "{:?}", record.report);
}

#[test]
fn a_missing_late_or_extra_event_breaks_the_stream() {
    assert_eq!(record().without(7).broken_as_it_is(), Law::Stream, "an event is missing");
    let mut old = record();
    let last = old.steps.len() - 1;
    old.event(last).at = Instant::ZERO;
    assert_eq!(old.broken(), Law::Stream, "time runs backwards");
    let last = record().steps[last].clone();
    let mut extra = record();
    extra.steps.push(last);
    assert_eq!(extra.broken(), Law::Stream, "something comes after the end");
    let end = record().steps.len() - 1;
    assert_eq!(record().without(end).broken(), Law::Stream, "the end is missing");
}

#[test]
fn a_task_that_is_made_again_or_skips_a_try_is_not_made_once() {
    let honest = record();
    let (again, end) = (honest.find_task((1, 0, 0), enqueued), honest.find_task((1, 0, 0), completed));
    let again = honest.steps[again].clone();
    assert_eq!(honest.with(end + 1, again).broken(), Law::Once, "it is queued after its success");
    let mut jump = record();
    let at = jump.find_task((1, 0, 1), spawned);
    jump.event(at).correlation.attempt = Some(2);
    assert_eq!(jump.broken(), Law::Once, "it begins with the second try");
    let mut gone = record();
    let at = gone.find(|step| matches!(step, CheckerInput::PreBatchAnswered(0, _)));
    gone.steps[at] = CheckerInput::PreBatchAnswered(0, [1].into());
    assert_eq!(gone.broken(), Law::Once, "its row was left out");
}

#[test]
fn a_task_before_its_upstream_and_a_turn_that_is_taken_break_the_order() {
    let mut early = record();
    let at = early.find_task((1, 0, 0), completed);
    let SchedulerEventPayload::TaskCompleted { worker, .. } = early.event(at).payload else { panic!("it ended") };
    early.event(at).payload = SchedulerEventPayload::TaskCompleted { worker, outcome: Some(RETRY) };
    assert_eq!(early.broken(), Law::ColumnOrder, "its upstream has to be tried again");
    let mut swapped = record();
    for step in &mut swapped.steps {
        if let CheckerInput::Event(event) = step
            && (event.correlation.row_group, event.correlation.column.map(ColumnId::index)) == (Some(0), Some(2))
        {
            let row = &mut event.correlation.row;
            *row = row.map(|row| [0, 2, 1][row as usize]);
        }
    }
    assert_eq!(swapped.broken(), Law::ColumnOrder, "rows 1 and 2 change places");
}

#[test]
fn limits_that_are_lower_than_what_the_run_held_are_broken_caps() {
    let lower: [fn(&mut PipelineConfig); 3] =
        [|config| config.submission_limit = 1, |config| config.resources[0].1 = 1, |config| config.row_groups = 1];
    for lower in lower {
        let mut record = record();
        lower(&mut record.config);
        assert_eq!(record.broken(), Law::Caps);
    }
}

#[test]
fn a_call_too_many_and_one_that_is_left_out_are_broken_calls() {
    let narrow = Record { cap: 1, ..record() };
    assert_eq!(narrow.broken(), Law::Calls, "the model bears one call");
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
    assert_eq!(record().without(last).broken(), Law::Calls, "a call is left at the end");
    let mut beyond = record();
    for step in &mut beyond.steps {
        if let CheckerInput::Request(RequestEvent {
            payload: RequestEventPayload::LeaseAcquired { limit, .. }, ..
        }) = step
        {
            *limit = 1;
        }
    }
    assert_eq!(beyond.broken(), Law::Calls, "two calls are out under a limit of one");
}

#[test]
fn a_call_that_names_no_worker_s_task_is_found() {
    let mut forged = record();
    let granted = |step: &CheckerInput| matches!(step, CheckerInput::Request(event) if event.payload.kind() == RequestEventKind::LeaseAcquired);
    let at = forged.find(granted);
    let CheckerInput::Request(event) = &mut forged.steps[at] else { panic!("a request") };
    event.correlation = Some(Correlation { task: Some(1 << 40), attempt: Some(1), ..Correlation::default() });
    assert_eq!(forged.broken(), Law::Joined);
}

#[test]
fn a_call_that_waits_while_there_is_room_for_it_is_found() {
    let Record { plan, config, .. } = record();
    let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
    admission.set_interest(Instant::ZERO, RequestInterest::ALL);
    let model = admission.register(Instant::ZERO, "provider", "model", "alias", 1).unwrap();
    let (mut resources, mut checker) = (Vec::new(), RunChecker::new(&plan, &config));
    for domain in [Domain::Chat, Domain::Embedding] {
        resources.push(admission.resource(model, domain).unwrap());
    }
    let Acquire::Granted(_out) = admission.acquire(Instant::ZERO, &Request::new(resources[0])) else {
        panic!("it is free")
    };
    let Acquire::Waiting(_) = admission.acquire(Instant::ZERO, &Request::new(resources[1])) else {
        panic!("it is not")
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
        suspended: 0,
        is_spaced: false,
        is_up: true,
    };
    let other = ResourceLimits { resource: resources[0], ..open };
    let at = Instant::from_nanos(5);
    let mut broken = |limits| checker.on_quiescence(at, &[other, limits]).err().map(|violation| violation.law);
    assert_eq!(broken(open), Some(Law::Room), "none of its calls is out, and one of two of its model");
    assert_eq!(broken(ResourceLimits { blocked_until: Some(at), ..open }), Some(Law::Room), "the pause is over");
    assert_eq!(broken(ResourceLimits { blocked_until: Some(Instant::from_nanos(6)), ..open }), None);
    assert_eq!(broken(ResourceLimits { cap: 1, ..open }), None, "the other domain has the slot");
    assert_eq!(broken(ResourceLimits { limit: 0, ..open }), None);
    assert_eq!(broken(ResourceLimits { suspended: 1, ..open }), None, "it needs the resources of its task too");
    assert_eq!(broken(ResourceLimits { is_spaced: true, ..open }), None);
}

#[test]
fn a_worker_without_a_lease_and_a_lease_without_a_return_are_found() {
    let honest = record();
    let at = honest.find_task((1, 0, 0), |payload| matches!(payload, SchedulerEventPayload::TaskLeaseAcquired { .. }));
    assert_eq!(honest.without(at).broken(), Law::Leases, "nothing was leased");
    let honest = record();
    let released = |step: &CheckerInput| {
        matches!(
            step,
            CheckerInput::Event(SchedulerEvent { payload: SchedulerEventPayload::TaskLeaseReleased { .. }, .. })
        )
    };
    let last = honest.steps.iter().rposition(released).unwrap();
    assert_eq!(honest.without(last).broken(), Law::Leases, "a lease is left at the end");
    let mut early = record();
    let at = early.find_task((1, 0, 0), completed);
    early.steps.swap(at, at + 1);
    assert_eq!(early.broken(), Law::Leases, "the lease came back before the worker ended");
}

#[test]
fn a_task_that_overtakes_another_breaks_first_come_first_served() {
    let mut record = record();
    let (first, second) = (record.find_task((1, 0, 0), enqueued), record.find_task((1, 0, 1), enqueued));
    let about = record.event(first).correlation;
    record.event(first).correlation = core::mem::replace(&mut record.event(second).correlation, about);
    assert_eq!(record.broken(), Law::Fifo);
}

#[test]
fn hooks_that_are_left_out_doubled_or_late_are_found() {
    let answered = |step: &CheckerInput| matches!(step, CheckerInput::PreBatchAnswered(0, _));
    let at = record().find(answered);
    assert_eq!(record().without(at).broken(), Law::Hooks, "the pre-batch hook never answered");
    let called = record().find(|step| matches!(step, CheckerInput::PreBatch(batch) if batch.row_group == 0));
    let twice = record().steps[called].clone();
    assert_eq!(record().with(called, twice).broken(), Law::Hooks, "it is called twice");
    let post = record().find(|step| matches!(step, CheckerInput::PostBatch(_)));
    assert_eq!(record().without(post).without(post).broken(), Law::Hooks, "the post-batch hook was left out");
    let spawn = record().find_task((2, 0, 0), spawned);
    let early = record().steps[post].clone();
    assert_eq!(record().with(spawn + 1, early).broken(), Law::Hooks, "it is called while a worker is left");
}

#[test]
fn a_checkpoint_that_is_doubled_incomplete_or_alters_the_rows_is_found() {
    let at = record().find(|step| matches!(step, CheckerInput::Checkpoint(group) if group.row_group == 0));
    let twice = record().steps[at].clone();
    assert_eq!(record().with(at, twice).broken(), Law::Checkpoints, "it is handed out twice");

    let mut unmade = record();
    let judged = unmade.find_task((2, 0, 2), completed);
    let SchedulerEventPayload::TaskCompleted { worker, .. } = unmade.event(judged).payload else { panic!("it ended") };
    unmade.event(judged).payload = SchedulerEventPayload::TaskCompleted { worker, outcome: Some(RETRY) };
    assert_eq!(unmade.broken(), Law::Checkpoints, "a row lacks a column");

    let forge = |change: fn(&mut FinishedRowGroup)| {
        let mut record = record();
        let at = record.find(|step| matches!(step, CheckerInput::Checkpoint(group) if group.row_group == 1));
        let CheckerInput::Checkpoint(group) = &mut record.steps[at] else { panic!("it is a checkpoint") };
        change(group);
        record.broken()
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
fn rows_that_are_lost_or_dropped_without_a_reason_are_found() {
    let mut lost = record();
    let end = lost.steps.len() - 1;
    let SchedulerEventPayload::JobCompleted { stop, rows_out, rows_dropped, rows_unmade } = lost.event(end).payload
    else {
        panic!("the end")
    };
    lost.event(end).payload =
        SchedulerEventPayload::JobCompleted { stop, rows_out: rows_out - 1, rows_dropped, rows_unmade };
    assert_eq!(lost.broken(), Law::Rows, "a saved row is not counted");
    let mut silent = record();
    silent.report.dropped.retain(|count| count.reason != DropReason::PreBatch);
    assert_eq!(silent.broken(), Law::Rows, "a row was dropped without a reason");
}

#[test]
fn whatever_starts_after_a_stop_is_found() {
    let before = record().find_task((1, 0, 0), spawned);
    assert_eq!(record().with(before, CheckerInput::Cancel).broken(), Law::Stops);
    let mut shut = record().steps[before].clone();
    if let CheckerInput::Event(event) = &mut shut {
        event.payload = SchedulerEventPayload::EarlyShutdown { failures: 1, window: 1 };
    }
    assert_eq!(record().with(before, shut).broken(), Law::Stops);
}

#[test]
fn a_row_group_that_leaves_twice_or_never_is_found() {
    let saved = |step: &CheckerInput| matches!(step, CheckerInput::Event(event) if matches!(event.payload, SchedulerEventPayload::RowGroupCheckpointed { .. }));
    let at = record().find(saved);
    let mut discarded = record().steps[at].clone();
    if let CheckerInput::Event(event) = &mut discarded {
        event.payload = SchedulerEventPayload::RowGroupDiscarded { reason: DiscardReason::Unsaved, rows: 1 };
    }
    assert_eq!(record().with(at, discarded).broken(), Law::Checkpoints, "it is discarded and then saved");
    assert_eq!(record().without(at).broken(), Law::Checkpoints, "it never leaves");
}

#[test]
fn an_end_for_a_reason_that_was_never_told_is_found() {
    let mut record = record();
    let end = record.steps.len() - 1;
    let SchedulerEventPayload::JobCompleted { stop, .. } = &mut record.event(end).payload else { panic!("the end") };
    *stop = StopKind::Cancelled;
    assert_eq!(record.broken(), Law::Stops);
}

#[test]
fn a_violation_says_which_law_when_and_by_which_task() {
    let mut record = record();
    let at = record.find_task((1, 0, 1), spawned);
    record.event(at).correlation.attempt = Some(9);
    let message = record.judge().unwrap_err().to_string();
    assert_eq!(
        message,
        "at 2.000ms, law Once broken by column 1 of row group 0, row 1: try 9 came where try 1 was due"
    );
}
