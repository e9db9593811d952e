//! Request events have the correlation of the task attempt that makes the call, as scheduler events do.

use alloc::vec::Vec;

use super::yielding::{BothMachines, slots};
use super::*;
use crate::pipeline::event::{Correlation, SchedulerEventKind};
use crate::request::event::{Interest, RequestEvent, RequestEventKind};
use crate::request::{Completion, Outcome, Request, ResourceId};
use crate::time::Duration;
use RequestEventKind::*;

/// Starts a run of `rows` rows with one column, which calls a model that takes one call at a time.
fn watched(rows: u64) -> BothMachines {
    let mut duo = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(8, rows));
    duo.admission.set_interest(duo.now, Interest::ALL);
    duo
}

fn requests(duo: &mut BothMachines) -> Vec<RequestEvent> {
    core::iter::from_fn(|| duo.admission.poll_event()).collect()
}

/// Returns the correlation of one attempt of a row, from the event of its worker's start.
fn execution(duo: &BothMachines, row: u32, attempt: u32) -> Correlation {
    let is_it = |about: &Correlation| (about.row, about.attempt) == (Some(row), Some(attempt));
    let mut spawned = duo.events.iter().filter(|event| event.payload.kind() == SchedulerEventKind::WorkerSpawned);
    spawned.find(|event| is_it(&event.correlation)).expect("its worker was started").correlation
}

/// Returns the kinds of the events with the correlation `about`.
fn about(events: &[RequestEvent], about: Correlation) -> Vec<RequestEventKind> {
    let named = events.iter().filter(|event| event.correlation == Some(about));
    named.map(|event| event.payload.kind()).collect()
}

#[test]
fn every_event_of_a_call_has_the_correlation_of_the_attempt_that_made_it() {
    let mut duo = watched(2);
    duo.ask("a0");
    duo.ask("a1");
    duo.end_call("a0", Completion::rate_limited(Some(Duration::from_secs(1))));
    let outcome = TaskOutcome::Retryable {
        kind: RetryKind::RateLimited,
        status: None,
        retry_after: Some(Duration::from_secs(3)),
    };
    duo.end("a0", outcome);
    duo.advance(Duration::from_secs(1));
    assert_eq!(duo.calling(), ["a1"]);
    duo.end_call("a1", Outcome::Success.into());
    duo.advance(Duration::from_secs(2));
    duo.ask("a0");
    duo.end_call("a0", Outcome::Success.into());

    let events = requests(&mut duo);
    let granted = [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted, CallCompleted];
    let [first, second] = [1, 2].map(|attempt| execution(&duo, 0, attempt));
    assert_eq!(about(&events, first), [&granted[..], &[RateLimited, LeaseReleased]].concat());
    assert_eq!(about(&events, second), [&granted[..], &[LeaseReleased]].concat(), "another try is another execution");
    assert_eq!(about(&events, execution(&duo, 1, 1)), [&granted[..], &[LeaseReleased]].concat());
    let others = events.iter().filter(|event| event.correlation.is_none()).map(|event| event.payload.kind());
    assert_eq!(others.collect::<Vec<_>>(), [QueueFormed, QueueDrained], "these are of no single call");
}

#[test]
fn a_wait_that_ends_without_a_call_has_the_correlation_of_its_attempt() {
    let mut duo = watched(5);
    duo.ask("a0");
    duo.ask_within("a1", Some(Duration::from_secs(1)));
    duo.ask("a2");
    duo.ask("a3");
    duo.advance(Duration::from_secs(1));
    duo.end("a2", TaskOutcome::Cancelled);
    duo.pipeline.drain(duo.now);
    duo.advance(Duration::ZERO);
    duo.ask("a4");
    let events = requests(&mut duo);
    let kinds = |row| about(&events, execution(&duo, row, 1));
    assert_eq!(kinds(1), [WaitStarted, WaitTimeout]);
    assert_eq!(kinds(2), [WaitStarted, WaitCancelled], "withdrawn");
    assert_eq!(kinds(3), [WaitStarted, WaitCancelled], "the run stops");
    assert_eq!(kinds(4), [AcquireDenied], "the run begins no call any more");
}

#[test]
fn a_call_without_a_task_has_no_correlation_even_while_tasks_make_calls() {
    let mut duo = watched(1);
    duo.ask("a0");
    let request = Request::new(ResourceId::new(0, 0)).within(Duration::ZERO);
    let _ = duo.admission.try_acquire(duo.now, &request);
    let _ = duo.admission.acquire(duo.now, &request);
    duo.end_call("a0", Outcome::Success.into());
    let (events, about) = (requests(&mut duo), Some(execution(&duo, 0, 1)));
    let (its, others): (Vec<&RequestEvent>, Vec<_>) = events.iter().partition(|event| event.correlation == about);
    assert_eq!((its.len(), its.last().unwrap().payload.kind()), (6, LeaseReleased));
    let others: Vec<_> = others.iter().map(|event| (event.payload.kind(), event.correlation)).collect();
    assert_eq!(
        others,
        [WaitStarted, AcquireDenied, QueueFormed, WaitStarted, WaitTimeout, QueueDrained].map(|kind| (kind, None))
    );
}
