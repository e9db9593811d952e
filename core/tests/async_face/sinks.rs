//! Sinks of a run and of a gate: they hear everything, outside any lock, and disturb nothing.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_core::driver::{self, Run};
#[cfg(feature = "std")]
use tidegate_core::observe::SinkStep;
use tidegate_core::observe::{RunAccount, Sink, SinkError, Sinks};
#[cfg(feature = "std")]
use tidegate_core::pipeline::event::Interest;
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
use crate::support::{OnceAtATime, Runtime, TestHost, gate_of, ms};

type Shared<S> = Arc<lock_api::Mutex<OnceAtATime, S>>;

fn shared<S>(sink: S) -> Shared<S> {
    Arc::new(lock_api::Mutex::new(sink))
}

/// Keeps what it hears.
#[derive(Default)]
struct Ears {
    scheduler: Vec<SchedulerEvent>,
    requests: Vec<RequestEvent>,
    finished: u32,
}

impl Sink for Ears {
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

/// Fails at whatever it is given, by a panic at the end of a task.
#[cfg(feature = "std")]
struct Broken;

#[cfg(feature = "std")]
impl Sink for Broken {
    fn wants_scheduler(&self) -> Interest {
        Interest::of(&[SchedulerEventKind::WorkerSpawned, SchedulerEventKind::TaskCompleted])
    }

    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        assert_ne!(event.payload.kind(), SchedulerEventKind::TaskCompleted, "no more");
        Err("not this".into())
    }
}

/// Six rows of one column through a gate of two slots, beside which four may yield; what `sinks` makes of it.
fn ride(sinks: impl FnOnce(&PlanBuilder, &PipelineConfig) -> Sinks) -> RunReport {
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
                let permit = gate.acquire(Request::new(resource)).for_task(task.token).await.expect("the gate is open");
                host.sleep_until(host.now() + ms(10)).await;
                permit.finish(Outcome::Success);
                TaskOutcome::Success
            }
        }))
    };
    let run: Run<TestHost, Work> = driver::run_through(pipeline, work, &gate, &[]).with_sinks(sinks);
    runtime.block_on(run).unwrap()
}

#[test]
fn a_sink_hears_both_streams_whole_and_then_that_it_is_over() {
    let ears = shared(Ears::default());
    let report = ride(|_, _| {
        let mut sinks = Sinks::default();
        sinks.add("ears", Arc::clone(&ears));
        sinks
    });
    assert_eq!((report.stop, report.rows_out), (StopReason::Completed, 6));
    let ears = ears.lock();
    assert!(ears.scheduler.iter().map(|event| event.sequence).eq(0..ears.scheduler.len() as u64));
    assert!(ears.requests.iter().map(|event| event.sequence).eq(0..ears.requests.len() as u64));
    assert_eq!(ears.scheduler.last().map(|event| event.payload.kind()), Some(SchedulerEventKind::JobCompleted));
    let granted = ears.requests.iter().filter(|event| event.payload.kind() == Kind::LeaseAcquired);
    assert_eq!((granted.count(), ears.finished), (6, 1));
}

#[test]
fn an_account_is_a_sink_and_finds_two_slots_busy_all_the_time() {
    let account = |builder: &PlanBuilder, config: &PipelineConfig| {
        shared(RunAccount::new(&builder.clone().build().unwrap(), config))
    };
    let kept = Cell::new(None);
    let report = ride(|builder, config| {
        let account = account(builder, config);
        kept.set(Some(Arc::clone(&account)));
        let mut sinks = Sinks::default();
        sinks.add("account", account);
        sinks
    });
    assert_eq!(report.rows_out, 6);
    let figures = kept.take().unwrap().lock().figures();
    assert_eq!((figures.span_ns, figures.dispatched, figures.missing_events), (30_000_000, 6, 0));
    assert_eq!(figures.tasks[0].busy_slot_ns, 60_000_000, "who waits for a call holds nothing");
    assert!(figures.yields > 0 && figures.request_wait_while_leased_ns == 0);
}

#[cfg(feature = "std")]
#[test]
fn a_sink_that_fails_or_panics_is_counted_told_of_once_for_each_kind_and_disturbs_nobody() {
    let ears = shared(Ears::default());
    let told = shared(Vec::new());
    let report = ride(|_, _| {
        let mut sinks = Sinks::default();
        let told = Arc::clone(&told);
        sinks.report_to(move |failure| {
            told.lock().push(failure.step);
            panic!("whoever is told may fail too: {failure}");
        });
        sinks.add("broken", Broken);
        sinks.add("ears", Arc::clone(&ears));
        sinks
    });
    assert_eq!(report.rows_out, 6);
    assert_eq!(ears.lock().finished, 1);
    let kinds = [SchedulerEventKind::WorkerSpawned, SchedulerEventKind::TaskCompleted];
    assert_eq!(*told.lock(), kinds.map(SinkStep::Scheduler));
}

#[test]
fn a_gate_on_its_own_feeds_whoever_asks() {
    use Kind::{CallCompleted, CallStarted, LeaseAcquired, LeaseReleased, WaitCompleted, WaitStarted};
    let runtime = Runtime::new();
    let (gate, resource) = gate_of(runtime.host(), 1);
    let ears = shared(Ears::default());
    let mut sinks = Sinks::default();
    sinks.add("ears", Arc::clone(&ears));
    gate.with(|machine, now| machine.set_interest(now, sinks.request_interest()));
    gate.try_acquire(Request::new(resource)).unwrap().finish(Outcome::Success);
    gate.feed(&mut sinks);
    let kinds: Vec<_> = ears.lock().requests.iter().map(|event| event.payload.kind()).collect();
    let expected = [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted, CallCompleted, LeaseReleased];
    assert_eq!(kinds, expected);
}
