//! Tests of the driver: a run ends exactly once, at the expected time, and releases all leases and permits.

use std::cell::{Cell, RefCell};
use std::future::{Future, Ready, pending, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::driver::{
    self, Checkpoint, FatalError, HookCall, PipelineRun, RunHandle, SaveError, Worker, Workload,
};
use tidegate_core::gate::{Acquire, Gate, GateTimer, Permit};
use tidegate_core::pipeline::{
    Column, FailureKind, FinishedRowGroup, Pipeline, PipelineConfig, PlanBuilder, RetryKind, StopReason, Strategy,
    Task, TaskOutcome,
};
use tidegate_core::request::{Outcome, Request, ResourceId};
use tidegate_core::runtime::{Host, Timer};
use tidegate_core::time::Clock;

use crate::support::{DroppingHost, Runtime, StillHost, TestHost, at, gate_of, held, ms};

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;
pub(crate) type Ended = Result<TaskOutcome, FatalError>;

/// A workload of two closures, which counts its running tasks.
pub(crate) struct Work {
    pub(crate) perform: Box<dyn Fn(Task) -> Boxed<Ended>>,
    pub(crate) save: Box<dyn Fn() -> Boxed<Result<(), SaveError>>>,
    pub(crate) saved: RefCell<Vec<(u32, usize)>>,
    /// Its reference count is the number of running tasks plus one.
    pub(crate) token: Rc<()>,
    pub(crate) started: Cell<usize>,
}

impl Work {
    pub(crate) fn new<F: Future<Output = TaskOutcome> + 'static>(perform: impl Fn(Task) -> F + 'static) -> Self {
        Self::fallible(move |task| {
            let outcome = perform(task);
            async move { Ok(outcome.await) }
        })
    }

    pub(crate) fn fallible<F: Future<Output = Ended> + 'static>(perform: impl Fn(Task) -> F + 'static) -> Self {
        Self {
            perform: Box::new(move |task| Box::pin(perform(task))),
            save: Box::new(|| Box::pin(async { Ok(()) })),
            saved: RefCell::default(),
            token: Rc::new(()),
            started: Cell::new(0),
        }
    }

    pub(crate) fn saving<F: Future<Output = Result<(), SaveError>> + 'static>(
        self,
        save: impl Fn() -> F + 'static,
    ) -> Self {
        Self { save: Box::new(move || Box::pin(save())), ..self }
    }

    pub(crate) fn running(&self) -> usize {
        Rc::strong_count(&self.token) - 1
    }
}

impl Workload for Work {
    type Work = Boxed<Ended>;
    type Save = Boxed<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        self.started.set(self.started.get() + 1);
        let (perform, token) = ((self.perform)(task), Rc::clone(&self.token));
        Box::pin(async move {
            let outcome = perform.await;
            drop(token);
            outcome
        })
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        self.saved.borrow_mut().push((group.row_group, group.live.len()));
        (self.save)()
    }
}

/// Returns a pipeline of three dependent cell columns, with `rows` rows in one group and at most `workers`
/// tasks at once.
pub(crate) fn chain(rows: u64, workers: u32) -> Pipeline {
    let plan = PlanBuilder::new()
        .column(Column::new("a", Strategy::Cell))
        .column(Column::new("b", Strategy::Cell).with_upstream("a"))
        .column(Column::new("c", Strategy::Cell).with_upstream("b"))
        .build()
        .expect("a valid plan");
    let config = PipelineConfig { rows, submission_limit: workers, ..PipelineConfig::default() };
    Pipeline::new(plan, config).expect("valid settings")
}

pub(crate) fn sleeper<H: Host + 'static>(host: &H, millis: u64) -> Work
where
    H::Sleep: 'static,
{
    let host = host.clone();
    Work::new(move |_| {
        let sleep = host.sleep_until(host.now() + ms(millis));
        async move {
            sleep.await;
            TaskOutcome::Success
        }
    })
}

pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

pub(crate) fn at_rest<H: Host>(runtime: &Runtime, work: &Work, handle: &RunHandle<H>) {
    let progress = handle.progress();
    assert_eq!((progress.running, progress.queued, progress.finished), (0, 0, true));
    assert_eq!((work.running(), runtime.tasks(), runtime.armed_timers()), (0, 0, 0));
}

#[test]
fn three_columns_of_twenty_rows_run_to_the_end_in_exactly_the_expected_time() {
    // With ten workers the columns take turns, and the last rows to start leave workers idle for one step.
    for (workers, expected_ms) in [(60, 15), (20, 15), (10, 35), (1, 300)] {
        let runtime = Runtime::new();
        let work = Arc::new(sleeper(&runtime.host(), 5));
        let run = driver::run(runtime.host(), chain(20, workers), Arc::clone(&work));
        let handle = run.handle();
        let report = runtime.block_on(run).unwrap();
        assert_eq!(report.stop, StopReason::Completed);
        assert_eq!((report.rows_out, report.ended), (20, at(expected_ms)), "{workers} workers");
        assert_eq!((work.started.get(), work.saved.borrow().as_slice()), (60, &[(0, 20)][..]));
        runtime.run_ready();
        at_rest(&runtime, &work, &handle);
    }
}

#[test]
fn a_run_does_nothing_before_it_is_polled() {
    let runtime = Runtime::new();
    let work = Arc::new(sleeper(&runtime.host(), 5));
    let run = driver::run(runtime.host(), chain(4, 4), Arc::clone(&work));
    let handle = run.handle();
    runtime.run();
    assert_eq!((work.started.get(), handle.progress().running), (0, 0));
    drop(run);
    assert!(handle.progress().finished);
    assert_eq!(work.started.get(), 0);
}

#[test]
fn tasks_that_call_through_a_gate_share_its_slots() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(host.clone(), 2);
    let work = {
        let gate = gate.clone();
        Arc::new(Work::new(move |_| {
            let (gate, host) = (gate.clone(), host.clone());
            async move {
                let permit = gate.acquire(Request::new(resource)).await.expect("the resource is registered");
                host.sleep_until(host.now() + ms(10)).await;
                permit.finish(Outcome::Success);
                TaskOutcome::Success
            }
        }))
    };
    let report = runtime.block_on(driver::run(runtime.host(), chain(20, 60), Arc::clone(&work))).unwrap();
    // 60 calls of 10 ms, two at a time.
    assert_eq!((report.rows_out, report.ended, held(&gate)), (20, at(300), (0, 0)));
}

#[test]
fn rate_limited_tasks_are_retried_after_their_pause_with_one_timer() {
    let runtime = Runtime::new();
    let pause = TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: Some(ms(200)) };
    let work =
        Arc::new(Work::new(move |task| async move { if task.attempt == 1 { pause } else { TaskOutcome::Success } }));
    let mut run = driver::run(runtime.host(), chain(20, 60), Arc::clone(&work));
    assert!(!poll_once(&mut run));
    runtime.run_ready();
    assert!(!poll_once(&mut run));
    assert_eq!(runtime.armed_timers(), 1, "one sleep, however many tasks are delayed");
    let report = runtime.block_on(run).unwrap();
    assert_eq!((report.rows_out, report.ended), (20, at(600)));
}

#[test]
fn a_waiting_run_does_not_read_the_clock() {
    let runtime = Runtime::new();
    let host = DroppingHost::new(runtime.host(), usize::MAX);
    let work = Arc::new(sleeper(&host, 3_600_000));
    let mut run = driver::run(host.clone(), chain(2, 8), work);
    assert!(!poll_once(&mut run));
    runtime.run_ready();
    let before = host.clock_reads.get();
    runtime.run_until(at(3_599_999));
    assert_eq!(host.clock_reads.get(), before);
}

#[test]
fn a_run_that_is_cancelled_stops_its_workers_and_keeps_what_is_saved() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(runtime.host(), 2);
    let work = Arc::new(holding(&gate, resource));
    let run = driver::run(host.clone(), chain(20, 6), Arc::clone(&work));
    let handle = run.handle();
    let cancel = async {
        host.sleep_until(at(7)).await;
        assert_eq!((handle.progress().running, work.running(), held(&gate)), (6, 6, (2, 4)));
        handle.cancel();
    };
    let (report, ()) = runtime.block_on(join(run, cancel)).unwrap();
    assert_eq!((report.stop, report.rows_out, report.ended), (StopReason::Cancelled, 0, at(7)));
    assert_eq!((work.running(), held(&gate)), (0, (0, 0)), "a run that has ended holds nothing");
    assert!(handle.progress().finished);
}

#[test]
fn dropping_the_run_releases_every_lease_and_permit() {
    for run_for in [None, Some(0), Some(3)] {
        let runtime = Runtime::new();
        let (gate, resource) = gate_of(runtime.host(), 2);
        let work = Arc::new(holding(&gate, resource));
        let mut run = driver::run(runtime.host(), chain(20, 6), Arc::clone(&work));
        let handle = run.handle();
        assert!(!poll_once(&mut run));
        if let Some(millis) = run_for {
            runtime.run_until(at(millis));
            assert_eq!((work.running(), held(&gate)), (6, (2, 4)));
        }
        drop(run);
        runtime.run();
        assert_eq!((handle.progress().running, handle.progress().finished), (0, true), "{run_for:?}");
        assert_eq!((work.running(), held(&gate)), (0, (0, 0)), "{run_for:?}");
        assert_eq!(runtime.tasks(), 1, "the gate's timer");
    }
}

#[test]
fn shutting_down_the_runtime_releases_every_lease_and_permit() {
    let runtime = Runtime::new();
    let (gate, resource) = gate_of(runtime.host(), 2);
    let work = Arc::new(holding(&gate, resource));
    let mut run = driver::run(runtime.host(), chain(20, 6), Arc::clone(&work));
    let handle = run.handle();
    assert!(!poll_once(&mut run));
    runtime.run_ready();
    drop(runtime);
    assert_eq!((work.running(), held(&gate), handle.progress().running), (0, (0, 0), 0));
    assert!(poll_once(&mut run), "lost workers make the run fatal, so it ends");
}

#[test]
fn a_worker_that_the_host_drops_makes_the_run_fatal() {
    for spawned_before in [0, 3, 19] {
        let runtime = Runtime::new();
        let host = DroppingHost::new(runtime.host(), spawned_before);
        let work = Arc::new(sleeper(&host, 5));
        let run = driver::run(host, chain(20, 8), Arc::clone(&work));
        let handle = run.handle();
        let report = runtime.block_on(run).unwrap();
        let StopReason::Fatal { cause, .. } = report.stop else { panic!("{:?}", report.stop) };
        assert!(cause.contains("dropped before it ended"), "{cause}");
        runtime.run_ready();
        at_rest(&runtime, &work, &handle);
    }
}

#[test]
fn a_checkpoint_that_fails_or_is_lost_stops_the_run_with_its_cause() {
    let runtime = Runtime::new();
    let full = sleeper(&runtime.host(), 1).saving(|| async { Err(SaveError("disk full".to_string())) });
    let report = runtime.block_on(driver::run(runtime.host(), chain(4, 8), Arc::new(full))).unwrap();
    assert_eq!(report.stop, StopReason::CheckpointFailed { row_group: 0, why: "disk full".to_string() });

    // The host spawns twelve workers, and then the checkpoint.
    let runtime = Runtime::new();
    let host = DroppingHost::new(runtime.host(), 12);
    let work = Arc::new(sleeper(&host, 1));
    let report = runtime.block_on(driver::run(host, chain(4, 8), work)).unwrap();
    let StopReason::CheckpointFailed { why, .. } = report.stop else { panic!("{:?}", report.stop) };
    assert!(why.contains("did not finish"), "{why}");
}

#[test]
fn a_running_checkpoint_finishes_after_the_run_is_dropped() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let finished = Rc::new(Cell::new(false));
    let work = {
        let finished = Rc::clone(&finished);
        Arc::new(sleeper(&runtime.host(), 1).saving(move || {
            let (sleep, finished) = (host.sleep_until(host.now() + ms(50)), Rc::clone(&finished));
            async move {
                sleep.await;
                finished.set(true);
                Ok(())
            }
        }))
    };
    let mut run = Some(driver::run(runtime.host(), chain(4, 8), Arc::clone(&work)));
    let handle = run.as_ref().expect("it was made").handle();
    while work.saved.borrow().is_empty() {
        assert!(!poll_once(run.as_mut().expect("not dropped yet")));
        runtime.run_until(runtime.host().now() + ms(1));
    }
    run = None;
    assert!(run.is_none() && !handle.progress().finished);
    runtime.run();
    assert!(finished.get());
    at_rest(&runtime, &work, &handle);
}

#[test]
fn a_failed_row_is_dropped_and_no_other_row() {
    let runtime = Runtime::new();
    let work = Arc::new(Work::new(|task| async move {
        if task.row == Some(3) { TaskOutcome::Failed(FailureKind::MalformedAnswer) } else { TaskOutcome::Success }
    }));
    let report = runtime.block_on(driver::run(runtime.host(), chain(20, 8), Arc::clone(&work))).unwrap();
    assert_eq!((report.stop, report.rows_out, report.rows_dropped), (StopReason::Completed, 19, 1));
    assert_eq!(*work.saved.borrow(), [(0, 19)]);
}

/// Reads the progress of its run and cancels it when it is dropped.
struct ReadsRunOnDrop(Rc<RefCell<Option<RunHandle<TestHost>>>>);

impl Drop for ReadsRunOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = &*self.0.borrow() {
            assert_eq!(handle.progress().rows_total, 20);
            handle.cancel();
        }
    }
}

#[test]
fn user_code_may_call_back_into_its_run_also_while_it_is_dropped() {
    for drop_the_run in [false, true] {
        let runtime = Runtime::new();
        let host = runtime.host();
        let handle = Rc::new(RefCell::new(None));
        let work = {
            let handle = Rc::clone(&handle);
            Arc::new(Work::new(move |_| {
                let (guard, sleep) = (ReadsRunOnDrop(Rc::clone(&handle)), host.sleep_until(host.now() + ms(5)));
                async move {
                    let _guard = guard;
                    sleep.await;
                    TaskOutcome::Success
                }
            }))
        };
        let mut run = driver::run(runtime.host(), chain(20, 4), Arc::clone(&work));
        *handle.borrow_mut() = Some(run.handle());
        assert!(!poll_once(&mut run));
        runtime.run_ready();
        if drop_the_run {
            drop(run);
            runtime.run();
        } else {
            assert_eq!(runtime.block_on(run).unwrap().stop, StopReason::Cancelled);
        }
        let last = handle.take().expect("it was put there");
        runtime.run_ready();
        assert_eq!((last.progress().finished, last.progress().running, work.running()), (true, 0, 0));
    }
}

/// A workload that completes everything at once and has the default hooks.
pub(crate) struct ImmediateWork;

impl Workload for ImmediateWork {
    type Work = Ready<Ended>;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, _task: Task) -> Self::Work {
        ready(Ok(TaskOutcome::Success))
    }

    fn checkpoint(&self, _group: FinishedRowGroup) -> Self::Save {
        ready(Ok(()))
    }
}

#[test]
fn on_a_multithreaded_host_the_types_of_a_run_are_send() {
    fn assert_send<T: Send>() {}
    assert_send::<PipelineRun<StillHost, ImmediateWork>>();
    assert_send::<RunHandle<StillHost>>();
    assert_send::<Worker<StillHost, ImmediateWork>>();
    assert_send::<Checkpoint<StillHost, ImmediateWork>>();
    assert_send::<HookCall<StillHost, ImmediateWork>>();
    assert_send::<Gate<StillHost>>();
    assert_send::<Acquire<StillHost>>();
    assert_send::<Permit<StillHost>>();
    assert_send::<GateTimer<StillHost>>();
}

/// Returns a workload whose tasks take a permit and never end.
fn holding<H: Host + 'static>(gate: &Gate<H>, resource: ResourceId) -> Work {
    let gate = gate.clone();
    Work::new(move |_| {
        let gate = gate.clone();
        async move {
            let _permit = gate.acquire(Request::new(resource)).await;
            pending().await
        }
    })
}

async fn join<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    let (mut left, mut right) = (None, None);
    std::future::poll_fn(|context| {
        if left.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(context)
        {
            left = Some(output);
        }
        if right.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            right = Some(output);
        }
        match (left.is_some(), right.is_some()) {
            (true, true) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    (left.take().expect("it is ready"), right.take().expect("it is ready"))
}
