//! Tests of panics in the code of a workload: the run stops, releases everything, and reports the message.

use std::cell::Cell;
use std::future::{Future, Ready, pending};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::error::ConfigError;
use tidegate_core::lease::ReleaseResult;
use tidegate_core::pipeline::{
    Column, FinishedRowGroup, Hook, HookError, Pipeline, PipelineConfig, PipelineEffect, PlanBuilder, ProviderDegraded,
    RetryKind, RunReport, SeededRowGroup, StopReason, Strategy, Task, TaskOutcome,
};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::sim::executor::Sleep;
use tidegate_core::task::{PolicyDenial, PolicyGrant, PolicyView, TaskGroup, TaskGroupId, TaskPolicy, TaskResourceId};
use tidegate_core::time::{Clock, Instant};

use crate::driver::{Boxed, Ended, ImmediateWork, Work, at_rest, chain, poll_once, sleeper};
use crate::support::{Runtime, TestHost, at, gate_of, held, ms};

/// Panics without a message in the output of the tests.
fn panic_quietly(message: &'static str) -> ! {
    resume_unwind(Box::new(message))
}

/// Returns the column, row group and cause of a fatal stop.
fn fatal(report: &RunReport) -> (&str, u32, &str) {
    let StopReason::Fatal { column, row_group, cause } = &report.stop else { panic!("{:?}", report.stop) };
    (&report.columns[column.index()].name, *row_group, cause)
}

#[test]
fn a_panic_in_a_task_makes_the_run_fatal_with_its_message_and_releases_its_permit() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(runtime.host(), 8);
    let work = {
        let gate = gate.clone();
        Arc::new(Work::new(move |task| {
            let (gate, host) = (gate.clone(), host.clone());
            async move {
                let _permit = gate.acquire(Request::new(resource)).await;
                host.sleep_until(at(4)).await;
                if task.row == Some(2) {
                    panic_quietly("user code panicked");
                }
                pending().await
            }
        }))
    };
    let run = driver::run(runtime.host(), chain(20, 8), Arc::clone(&work));
    let handle = run.handle();
    let report = runtime.block_on(run).unwrap();
    assert_eq!(fatal(&report), ("a", 0, "a task panicked: user code panicked"));
    assert_eq!((report.ended, work.running(), held(&gate)), (at(4), 0, (0, 0)));
    assert_eq!((report.columns[0].tasks.fatal, report.columns[0].tasks.cancelled), (1, 7));
    assert_eq!(handle.progress().running, 0);
}

#[test]
fn a_formatted_panic_message_is_reported_and_a_missing_one_is_replaced() {
    for (payload, expected) in [
        (Rc::new(|| -> Ended { resume_unwind(Box::new(format!("row {}", 7))) }) as Rc<dyn Fn() -> Ended>, "row 7"),
        (Rc::new(|| -> Ended { resume_unwind(Box::new(7_u8)) }), "(the panic has no message)"),
    ] {
        let runtime = Runtime::new();
        let work = Work::fallible(move |_| {
            let payload = Rc::clone(&payload);
            async move { payload() }
        });
        let report = runtime.block_on(driver::run(runtime.host(), chain(1, 1), Arc::new(work))).unwrap();
        assert_eq!(fatal(&report), ("a", 0, format!("a task panicked: {expected}").as_str()));
    }
}

#[test]
fn a_panic_before_the_first_await_is_reported_too() {
    let runtime = Runtime::new();
    let work = Work {
        perform: Box::new(|task| match task.row {
            Some(0) => panic_quietly("no prompt"),
            _ => Box::pin(pending()),
        }),
        ..sleeper(&runtime.host(), 1)
    };
    let work = Arc::new(work);
    let run = driver::run(runtime.host(), chain(4, 2), Arc::clone(&work));
    let handle = run.handle();
    assert_eq!(fatal(&runtime.block_on(run).unwrap()), ("a", 0, "a task panicked: no prompt"));
    runtime.run_ready();
    at_rest(&runtime, &work, &handle);
}

/// A task policy that panics in `evaluate` once `allows` tasks run, or when a lease is released.
#[derive(Debug)]
struct PanickingPolicy {
    allows: u32,
    panics_on_release: bool,
}

impl TaskPolicy for PanickingPolicy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        if view.running() >= self.allows {
            panic_quietly("no share for this group");
        }
        Ok(PolicyGrant::unlimited())
    }

    fn repaid(&self, _resource: TaskResourceId, _amount: u32) -> u32 {
        if self.panics_on_release {
            panic_quietly("no debt of this group");
        }
        0
    }
}

/// Runs ten rows of 1 ms under a policy that panics.
fn run_with_policy(policy: PanickingPolicy) -> RunReport {
    let runtime = Runtime::new();
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
    let config = PipelineConfig { rows: 10, submission_limit: 4, ..PipelineConfig::default() };
    let pipeline = Pipeline::with_policy(plan, config, Box::new(policy)).unwrap();
    let work = Arc::new(sleeper(&runtime.host(), 1));
    let run = driver::run(runtime.host(), pipeline, Arc::clone(&work));
    let handle = run.handle();
    let report = runtime.block_on(run).unwrap();
    runtime.run_ready();
    at_rest(&runtime, &work, &handle);
    report
}

#[test]
fn a_panic_in_a_task_policy_stops_the_run_and_is_reported_with_its_message() {
    let report = run_with_policy(PanickingPolicy { allows: 2, panics_on_release: false });
    let cause = "the task policy panicked in `evaluate`: no share for this group".to_string();
    assert_eq!(report.stop.to_string(), cause);
    assert_eq!(report.stop, StopReason::PolicyPanicked { cause });
    assert_eq!((report.ended, report.rows_out), (at(0), 0));
    assert_eq!((report.columns[0].tasks.spawned, report.columns[0].tasks.cancelled), (2, 2));
}

#[test]
fn a_policy_that_panics_at_the_first_evaluation_or_at_a_release_is_reported_too() {
    let report = run_with_policy(PanickingPolicy { allows: 0, panics_on_release: false });
    let cause = "the task policy panicked in `evaluate`: no share for this group".to_string();
    assert_eq!(report.stop, StopReason::PolicyPanicked { cause });

    let report = run_with_policy(PanickingPolicy { allows: 100, panics_on_release: true });
    let cause = "the task policy panicked in `repaid`: no debt of this group".to_string();
    assert_eq!((report.stop, report.ended), (StopReason::PolicyPanicked { cause }, at(1)));
}

/// A task policy that panics when a group of this weight is registered.
#[derive(Debug)]
struct RefusesWeight(f64);

impl TaskPolicy for RefusesWeight {
    fn evaluate(&self, _view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        Ok(PolicyGrant::unlimited())
    }

    fn group_registered(
        &mut self,
        _id: TaskGroupId,
        group: &TaskGroup,
        _find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        if group.weight.total_cmp(&self.0).is_eq() {
            panic_quietly("no settings for this group");
        }
        Ok(())
    }
}

#[test]
fn a_policy_that_panics_when_a_group_is_registered_is_an_error_with_its_message() {
    let start = |refused| {
        let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
        let config = PipelineConfig { rows: 10, ..PipelineConfig::default() };
        Pipeline::with_policy(plan, config, Box::new(RefusesWeight(refused)))
    };
    let cause = "the task policy panicked in `group_registered`: no settings for this group".to_string();
    let text = format!("`policy` is invalid: {cause}; expected no panic");
    assert_eq!(start(1.0).unwrap_err().to_string(), format!("column `a`: {text}"));

    let mut pipeline = start(2.0).unwrap();
    let column = pipeline.plan().column_id("a").unwrap();
    pipeline.start(at(0));
    assert_eq!(pipeline.set_weight(at(0), column, 2.0).unwrap_err().to_string(), text);
    pipeline.handle_timeout(at(1));
    while let Some(effect) = pipeline.poll_effect() {
        if let PipelineEffect::Abort(worker) = effect {
            assert_eq!(pipeline.task_finished(at(1), worker, TaskOutcome::Cancelled), ReleaseResult::Released);
        }
    }
    let stop = pipeline.report().map(|report| report.stop.clone());
    assert_eq!(stop, Some(StopReason::PolicyPanicked { cause }));
}

/// Panics when it is dropped, unless the thread is panicking already.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_quietly("it was still in use");
        }
    }
}

/// A workload whose task holds a [`PanicsOnDrop`] and ends at once or never.
struct PanicsOnDropWork {
    ends: bool,
}

impl Workload for PanicsOnDropWork {
    type Work = Boxed<Ended>;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, _task: Task) -> Self::Work {
        let (guard, ends) = (PanicsOnDrop, self.ends);
        Box::pin(std::future::poll_fn(move |_| {
            let _ = &guard;
            if ends { Poll::Ready(Ok(TaskOutcome::Success)) } else { Poll::Pending }
        }))
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        ImmediateWork.checkpoint(group)
    }
}

#[test]
fn a_panic_in_the_drop_of_a_task_is_reported_when_it_ends_and_when_it_is_cancelled() {
    for ends in [true, false] {
        let runtime = Runtime::new();
        let mut run = driver::run(runtime.host(), chain(1, 1), Arc::new(PanicsOnDropWork { ends }));
        assert!(!poll_once(&mut run));
        runtime.run_ready();
        if !ends {
            run.handle().cancel();
        }
        let report = runtime.block_on(run).unwrap();
        assert_eq!(fatal(&report).2, "a task panicked when it was dropped: it was still in use");
    }
}

#[test]
fn an_error_of_a_task_is_the_cause_in_the_report() {
    let runtime = Runtime::new();
    let work = Arc::new(Work::fallible(|task| async move {
        if task.row == Some(1) { Err("the column has no model".into()) } else { Ok(TaskOutcome::Success) }
    }));
    let run = driver::run(runtime.host(), chain(3, 1), Arc::clone(&work));
    let handle = run.handle();
    let report = runtime.block_on(run).unwrap();
    assert_eq!(fatal(&report), ("a", 0, "the column has no model"));
    runtime.run_ready();
    at_rest(&runtime, &work, &handle);
}

#[test]
fn workers_that_a_host_drops_while_the_run_is_being_cancelled_leave_it_cancelled() {
    let runtime = Runtime::new();
    let work = Arc::new(sleeper(&runtime.host(), 50));
    let mut run = driver::run(runtime.host(), chain(2, 2), work);
    let handle = run.handle();
    assert!(!poll_once(&mut run));
    runtime.run_ready();
    handle.cancel();
    drop(runtime);
    let Poll::Ready(report) = std::pin::Pin::new(&mut run).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it has ended")
    };
    assert_eq!(report.stop, StopReason::Cancelled);
    assert_eq!((handle.progress().running, handle.progress().finished), (0, true));
}

#[test]
fn a_panic_in_a_checkpoint_stops_the_run_with_its_message() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let work = sleeper(&runtime.host(), 1).saving(move || {
        let sleep = host.sleep_until(host.now() + ms(5));
        async move {
            sleep.await;
            panic_quietly("no such table")
        }
    });
    let report = runtime.block_on(driver::run(runtime.host(), chain(4, 8), Arc::new(work))).unwrap();
    let why = "saving panicked: no such table".to_string();
    assert_eq!((report.stop, report.ended), (StopReason::CheckpointFailed { row_group: 0, why }, at(8)));

    let begins = Work { save: Box::new(|| panic_quietly("no directory")), ..sleeper(&runtime.host(), 1) };
    let report = runtime.block_on(driver::run(runtime.host(), chain(4, 8), Arc::new(begins))).unwrap();
    let why = "saving panicked: no directory".to_string();
    assert_eq!(report.stop, StopReason::CheckpointFailed { row_group: 0, why });
}

/// A workload that panics in one of its hooks, or in `warn`, and counts the calls of them.
struct Panicking {
    hook: Option<Hook>,
    calls: Cell<u32>,
}

impl Panicking {
    fn call(&self, hook: Option<Hook>) {
        self.calls.set(self.calls.get() + 1);
        if self.hook == hook {
            panic_quietly("not my row");
        }
    }
}

impl Workload for Panicking {
    type Work = Ready<Result<TaskOutcome, FatalError>>;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        // Every first attempt fails, so that the run emits a warning.
        let again = TaskOutcome::Retryable { kind: RetryKind::ServerError, status: None, retry_after: None };
        std::future::ready(Ok(if task.attempt == 1 { again } else { TaskOutcome::Success }))
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        ImmediateWork.checkpoint(group)
    }

    fn poll_pre_batch(&self, _batch: SeededRowGroup, _: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        self.call(Some(Hook::PreBatch));
        Poll::Ready(Ok(Vec::new()))
    }

    fn poll_post_batch(&self, _group: &FinishedRowGroup, _: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        self.call(Some(Hook::PostBatch));
        Poll::Ready(Ok(()))
    }

    fn warn(&self, _warning: &ProviderDegraded) {
        self.call(None);
    }
}

fn run_panicking(hook: Option<Hook>) -> (RunReport, u32) {
    let runtime = Runtime::new();
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().expect("a valid plan");
    let config = PipelineConfig {
        rows: 4,
        degraded_window: 2,
        pre_batch_hook: true,
        post_batch_hook: true,
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::new(plan, config).expect("valid settings");
    let work = Arc::new(Panicking { hook, calls: Cell::new(0) });
    let report = runtime.block_on(driver::run(runtime.host(), pipeline, Arc::clone(&work))).unwrap();
    (report, work.calls.get())
}

#[test]
fn a_panic_in_a_hook_stops_the_run_with_its_message_and_the_hook_is_not_called_again() {
    for hook in [Hook::PreBatch, Hook::PostBatch] {
        let (report, _) = run_panicking(Some(hook));
        let why = "the hook panicked: not my row".to_string();
        assert_eq!(report.stop, StopReason::HookFailed { row_group: 0, hook, why });
    }
}

#[test]
fn a_panic_in_warn_affects_nothing() {
    let (report, calls) = run_panicking(None);
    assert_eq!((report.stop, report.rows_out, calls), (StopReason::Completed, 4, 3));
}

/// A host that panics in `spawn` after `left` futures.
#[derive(Clone)]
struct PanickingHost {
    inner: TestHost,
    left: Rc<Cell<usize>>,
}

impl Clock for PanickingHost {
    fn now(&self) -> Instant {
        self.inner.now()
    }
}

impl Timer for PanickingHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        self.inner.sleep_until(at)
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for PanickingHost {
    fn spawn(&self, future: F) {
        let Some(left) = self.left.get().checked_sub(1) else { panic_quietly("no more") };
        self.left.set(left);
        self.inner.spawn(future);
    }
}

impl Host for PanickingHost {
    type Lock = <TestHost as Host>::Lock;
}

#[test]
fn a_host_that_panics_in_spawn_loses_no_other_worker() {
    for left in 0..8 {
        let runtime = Runtime::new();
        let host = PanickingHost { inner: runtime.host(), left: Rc::new(Cell::new(left)) };
        let work = Arc::new(Work::new(|_| pending()));
        let mut run = Box::pin(driver::run(host, chain(20, 8), Arc::clone(&work)));
        let handle = run.handle();
        let context = &mut Context::from_waker(Waker::noop());
        let poll = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.as_mut().poll(context).is_ready()));
        assert!(poll.is_err(), "the panic reaches the caller that polls the run");
        assert_eq!(handle.progress().running, left, "workers that were never spawned are not counted as running");
        drop(run);
        runtime.run();
        assert_eq!((handle.progress().running, work.running()), (0, 0));
        assert!(handle.progress().finished);
    }
}
