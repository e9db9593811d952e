//! Tests of the sinks of a run and of a gate: they receive all events, outside any lock, and their failures
//! affect nothing else.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_core::driver::{self, PipelineRun};
#[cfg(feature = "std")]
use tidegate_core::observe::SinkStep;
use tidegate_core::observe::{RunAccount, Sink, SinkError, Sinks};
#[cfg(feature = "std")]
use tidegate_core::pipeline::event::SchedulerInterest;
use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerEventKind};
use tidegate_core::pipeline::{
    Column, Pipeline, PipelineConfig, PlanBuilder, RunReport, StopReason, Strategy, TaskOutcome,
};
use tidegate_core::request::event::{RequestEvent, RequestEventKind as Kind};
use tidegate_core::request::{Outcome, Request};
use tidegate_core::runtime::Timer;
use tidegate_core::task::TaskGroup;
use tidegate_core::time::Clock;

use crate::driver::Work;
use crate::support::{NonReentrantLock, Runtime, TestHost, gate_of, ms};

type Shared<S> = Arc<lock_api::Mutex<NonReentrantLock, S>>;

fn shared<S>(sink: S) -> Shared<S> {
    Arc::new(lock_api::Mutex::new(sink))
}

/// A sink that keeps all events.
#[derive(Default)]
struct Collector {
    scheduler: Vec<SchedulerEvent>,
    requests: Vec<RequestEvent>,
    finished: u32,
}

impl Sink for Collector {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        assert_eq!(self.finished, 0);
        self.scheduler.push(*event);
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.requests.push(*event);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.finished += 1;
        Ok(())
    }
}

/// A sink that returns an error for every event, and panics at the end of a task.
#[cfg(feature = "std")]
struct FailingSink;

#[cfg(feature = "std")]
impl Sink for FailingSink {
    fn scheduler_interest(&self) -> SchedulerInterest {
        SchedulerInterest::of(&[SchedulerEventKind::WorkerSpawned, SchedulerEventKind::TaskCompleted])
    }

    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        assert_ne!(event.payload.kind(), SchedulerEventKind::TaskCompleted, "no more");
        Err("not this".into())
    }
}

/// Runs six rows of one column through a gate of two slots, with at most four tasks at once and the given
/// sinks.
fn run_with_sinks(sinks: impl FnOnce(&PlanBuilder, &PipelineConfig) -> Sinks) -> RunReport {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(host.clone(), 2);
    let builder = PlanBuilder::new()
        .column(Column::new("a", Strategy::Cell).with_group(TaskGroup::model("provider", "model", 1.0)));
    let config = PipelineConfig { rows: 6, submission_limit: 4, ..PipelineConfig::default() };
    let sinks = sinks(&builder, &config);
    let pipeline = Pipeline::new(builder.build().unwrap(), config).unwrap();
    let work = {
        let (gate, host) = (gate.clone(), host.clone());
        Arc::new(Work::new(move |task| {
            let (gate, host) = (gate.clone(), host.clone());
            async move {
                let permit =
                    gate.acquire(Request::new(resource)).for_task(task.token).await.expect("the permit is granted");
                host.sleep_until(host.now() + ms(10)).await;
                permit.finish(Outcome::Success);
                TaskOutcome::Success
            }
        }))
    };
    let run: PipelineRun<TestHost, Work> = driver::run_through(pipeline, work, &gate, &[]).with_sinks(sinks);
    runtime.block_on(run).unwrap()
}

#[test]
fn a_sink_receives_all_events_of_both_streams_and_then_finish() {
    let collector = shared(Collector::default());
    let report = run_with_sinks(|_, _| {
        let mut sinks = Sinks::default();
        sinks.add("collector", Arc::clone(&collector));
        sinks
    });
    assert_eq!((report.stop, report.rows_out), (StopReason::Completed, 6));
    let collector = collector.lock();
    assert!(collector.scheduler.iter().map(|event| event.sequence).eq(0..collector.scheduler.len() as u64));
    assert!(collector.requests.iter().map(|event| event.sequence).eq(0..collector.requests.len() as u64));
    assert_eq!(collector.scheduler.last().map(|event| event.payload.kind()), Some(SchedulerEventKind::JobCompleted));
    let granted = collector.requests.iter().filter(|event| event.payload.kind() == Kind::LeaseAcquired);
    assert_eq!((granted.count(), collector.finished), (6, 1));
}

#[test]
fn a_run_account_as_a_sink_finds_two_slots_busy_all_the_time() {
    let account = |builder: &PlanBuilder, config: &PipelineConfig| {
        shared(RunAccount::new(&builder.clone().build().unwrap(), config))
    };
    let kept = Cell::new(None);
    let report = run_with_sinks(|builder, config| {
        let account = account(builder, config);
        kept.set(Some(Arc::clone(&account)));
        let mut sinks = Sinks::default();
        sinks.add("account", account);
        sinks
    });
    assert_eq!(report.rows_out, 6);
    let figures = kept.take().unwrap().lock().figures();
    assert_eq!((figures.span_ns, figures.dispatched, figures.missing_events), (30_000_000, 6, 0));
    assert_eq!(figures.tasks[0].busy_slot_ns, 60_000_000, "a task that waits for a call holds no slot");
    assert!(figures.yields > 0 && figures.request_wait_while_leased_ns == 0);
}

#[cfg(feature = "std")]
#[test]
fn a_failing_sink_is_reported_once_for_each_kind_and_affects_nothing_else() {
    let collector = shared(Collector::default());
    let reported = shared(Vec::new());
    let report = run_with_sinks(|_, _| {
        let mut sinks = Sinks::default();
        let reported = Arc::clone(&reported);
        sinks.report_to(move |failure| {
            reported.lock().push(failure.step);
            panic!("the reporter may panic, too: {failure}");
        });
        sinks.add("broken", FailingSink);
        sinks.add("collector", Arc::clone(&collector));
        sinks
    });
    assert_eq!(report.rows_out, 6);
    assert_eq!(collector.lock().finished, 1);
    let kinds = [SchedulerEventKind::WorkerSpawned, SchedulerEventKind::TaskCompleted];
    assert_eq!(*reported.lock(), kinds.map(SinkStep::Scheduler));
}

#[test]
fn a_gate_without_a_run_feeds_its_events_to_sinks() {
    use Kind::{CallCompleted, CallStarted, LeaseAcquired, LeaseReleased, WaitCompleted, WaitStarted};
    let runtime = Runtime::new();
    let (gate, resource) = gate_of(runtime.host(), 1);
    let collector = shared(Collector::default());
    let mut sinks = Sinks::default();
    sinks.add("collector", Arc::clone(&collector));
    gate.with(|machine, now| machine.set_interest(now, sinks.request_interest()));
    gate.try_acquire(Request::new(resource)).unwrap().finish(Outcome::Success);
    gate.feed(&mut sinks);
    let kinds: Vec<_> = collector.lock().requests.iter().map(|event| event.payload.kind()).collect();
    let expected = [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted, CallCompleted, LeaseReleased];
    assert_eq!(kinds, expected);
}
