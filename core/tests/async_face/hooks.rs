//! Tests of row-group hooks: the driver calls and awaits them, and handles their failure or loss.

use std::cell::{Cell, RefCell};
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::pipeline::{
    Column, FinishedRowGroup, Hook, HookError, Pipeline, PipelineConfig, PlanBuilder, SeededRowGroup, StopReason,
    Strategy, Task, TaskOutcome,
};
use tidegate_core::runtime::Host;

use crate::driver::ImmediateWork;
use crate::support::{DroppingHost, Runtime, at, ms};

/// A workload with hooks of 50 ms each around tasks that take no time. The pre-batch hook drops row 1.
struct Hooked<H> {
    host: H,
    fails: Option<Hook>,
    pause: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    log: RefCell<Vec<&'static str>>,
    saved: Cell<usize>,
}

impl<H: Host + 'static> Hooked<H> {
    fn new(host: H, fails: Option<Hook>) -> Arc<Self> {
        Arc::new(Self { host, fails, pause: RefCell::default(), log: RefCell::default(), saved: Cell::new(0) })
    }

    fn poll_pause(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pause = self.pause.borrow_mut();
        let sleep = pause.get_or_insert_with(|| Box::pin(self.host.sleep_until(self.host.now() + ms(50))));
        std::task::ready!(sleep.as_mut().poll(context));
        *pause = None;
        Poll::Ready(())
    }

    fn result(&self, hook: Hook) -> Result<(), HookError> {
        if self.fails == Some(hook) { Err("out of order".into()) } else { Ok(()) }
    }
}

impl<H: Host + 'static> Workload for Hooked<H> {
    type Work = Ready<Result<TaskOutcome, FatalError>>;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, _task: Task) -> Self::Work {
        self.log.borrow_mut().push("work");
        ready(Ok(TaskOutcome::Success))
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        self.log.borrow_mut().push("save");
        self.saved.set(group.live.len());
        ready(Ok(()))
    }

    fn poll_pre_batch(&self, _batch: SeededRowGroup, context: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        std::task::ready!(self.poll_pause(context));
        self.log.borrow_mut().push("pre");
        Poll::Ready(self.result(Hook::PreBatch).map(|()| vec![1]))
    }

    fn poll_post_batch(&self, _group: &FinishedRowGroup, context: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        std::task::ready!(self.poll_pause(context));
        self.log.borrow_mut().push("post");
        Poll::Ready(self.result(Hook::PostBatch))
    }
}

/// Returns a pipeline of one cell column over three rows in one group, with both hooks.
fn hooked() -> Pipeline {
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().expect("a valid plan");
    let config = PipelineConfig { rows: 3, pre_batch_hook: true, post_batch_hook: true, ..PipelineConfig::default() };
    Pipeline::new(plan, config).expect("valid settings")
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn hooks_are_awaited_before_the_tasks_and_before_the_checkpoint() {
    let runtime = Runtime::new();
    let work = Hooked::new(runtime.host(), None);
    let report = runtime.block_on(driver::run(runtime.host(), hooked(), Arc::clone(&work))).unwrap();
    assert_eq!(*work.log.borrow(), ["pre", "work", "work", "post", "save"]);
    assert_eq!((report.stop, report.rows_out, report.rows_dropped), (StopReason::Completed, 2, 1));
    assert_eq!((report.ended, work.saved.get()), (at(100), 2));
}

#[test]
fn a_hook_that_fails_stops_the_run_with_its_cause() {
    for (hook, expected) in [(Hook::PreBatch, &["pre"][..]), (Hook::PostBatch, &["pre", "work", "work", "post"])] {
        let runtime = Runtime::new();
        let work = Hooked::new(runtime.host(), Some(hook));
        let report = runtime.block_on(driver::run(runtime.host(), hooked(), Arc::clone(&work))).unwrap();
        assert_eq!(report.stop, StopReason::HookFailed { row_group: 0, hook, why: "out of order".to_string() });
        assert_eq!((work.log.borrow().as_slice(), report.rows_out), (expected, 0));
        assert_eq!(report.rows_dropped + report.rows_unmade, 3);
    }
}

#[test]
fn a_hook_whose_future_the_host_drops_fails() {
    // The host spawns the pre-batch hook, two workers and the post-batch hook, in this order.
    for (spawned_before, lost) in [(0, Hook::PreBatch), (3, Hook::PostBatch)] {
        let runtime = Runtime::new();
        let host = DroppingHost::new(runtime.host(), spawned_before);
        let work = Hooked::new(host.clone(), None);
        let report = runtime.block_on(driver::run(host, hooked(), work)).unwrap();
        let StopReason::HookFailed { hook, why, .. } = report.stop else { panic!("{:?}", report.stop) };
        assert!(hook == lost && why.contains("did not finish"), "{hook}: {why}");
    }
}

#[test]
fn a_cancelled_run_waits_for_the_running_hook() {
    let runtime = Runtime::new();
    let work = Hooked::new(runtime.host(), None);
    let mut run = driver::run(runtime.host(), hooked(), Arc::clone(&work));
    assert!(!poll_once(&mut run));
    runtime.run_until(at(10));
    run.handle().cancel();
    let report = runtime.block_on(run).unwrap();
    assert_eq!((report.stop, report.ended), (StopReason::Cancelled, at(50)));
    assert_eq!(*work.log.borrow(), ["pre"]);
}

#[test]
fn a_running_hook_finishes_after_the_run_is_dropped() {
    let runtime = Runtime::new();
    let work = Hooked::new(runtime.host(), None);
    let mut run = driver::run(runtime.host(), hooked(), Arc::clone(&work));
    let handle = run.handle();
    assert!(!poll_once(&mut run));
    runtime.run_until(at(10));
    drop(run);
    assert!(!handle.progress().finished);
    runtime.run();
    assert_eq!((work.log.borrow().as_slice(), handle.progress().finished), (&["pre"][..], true));
    assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0));
}

#[test]
fn the_default_hooks_of_a_workload_do_nothing() {
    let runtime = Runtime::new();
    let report = runtime.block_on(driver::run(runtime.host(), hooked(), Arc::new(ImmediateWork))).unwrap();
    assert_eq!((report.stop, report.rows_out), (StopReason::Completed, 3));
}
