//! Request events have the correlation of the task attempt that makes the call, as scheduler events do.

use alloc::vec::Vec;

use super::yielding::{BothMachines, slots};
use super::*;
use crate::pipeline::event::{Correlation, SchedulerEventKind};
use crate::request::event::{RequestEvent, RequestEventKind, RequestInterest};
use crate::request::{Completion, Outcome, Request, ResourceId};
use crate::time::Duration;
use RequestEventKind::*;

/// Starts a run of `rows` rows with one column, which calls a model that takes one call at a time.
fn watched(rows: u64) -> BothMachines {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(8, rows));
    both.admission.set_interest(both.now, RequestInterest::ALL);
    both
}

fn requests(both: &mut BothMachines) -> Vec<RequestEvent> {
    core::iter::from_fn(|| both.admission.poll_event()).collect()
}

/// Returns the correlation of one attempt of a row, from the event of its worker's start.
fn attempt_of(both: &BothMachines, row: u32, attempt: u32) -> Correlation {
    let is_attempt = |about: &Correlation| (about.row, about.attempt) == (Some(row), Some(attempt));
    let mut spawned = both.events.iter().filter(|event| event.payload.kind() == SchedulerEventKind::WorkerSpawned);
    spawned.find(|event| is_attempt(&event.correlation)).expect("its worker was started").correlation
}

/// Returns the kinds of the events with the correlation `about`.
fn about(events: &[RequestEvent], about: Correlation) -> Vec<RequestEventKind> {
    let named = events.iter().filter(|event| event.correlation == Some(about));
    named.map(|event| event.payload.kind()).collect()
}

#[test]
fn every_event_of_a_call_has_the_correlation_of_the_attempt_that_made_it() {
    let mut both = watched(2);
    both.request_call("a0");
    both.request_call("a1");
    both.end_call("a0", Completion::rate_limited(Some(Duration::from_secs(1))));
    let outcome = TaskOutcome::Retryable {
        kind: RetryKind::RateLimited,
        status: None,
        retry_after: Some(Duration::from_secs(3)),
    };
    both.end("a0", outcome);
    both.advance(Duration::from_secs(1));
    assert_eq!(both.calling(), ["a1"]);
    both.end_call("a1", Outcome::Success.into());
    both.advance(Duration::from_secs(2));
    both.request_call("a0");
    both.end_call("a0", Outcome::Success.into());

    let events = requests(&mut both);
    let granted = [WaitStarted, WaitCompleted, LeaseAcquired, CallStarted, CallCompleted];
    let [first, second] = [1, 2].map(|attempt| attempt_of(&both, 0, attempt));
    assert_eq!(about(&events, first), [&granted[..], &[RateLimited, LeaseReleased]].concat());
    assert_eq!(
        about(&events, second),
        [&granted[..], &[LeaseReleased]].concat(),
        "each attempt has its own correlation"
    );
    assert_eq!(about(&events, attempt_of(&both, 1, 1)), [&granted[..], &[LeaseReleased]].concat());
    let others = events.iter().filter(|event| event.correlation.is_none()).map(|event| event.payload.kind());
    assert_eq!(others.collect::<Vec<_>>(), [QueueFormed, QueueDrained], "these events are not about one call");
}

#[test]
fn a_wait_that_ends_without_a_call_has_the_correlation_of_its_attempt() {
    let mut both = watched(5);
    both.request_call("a0");
    both.request_call_within("a1", Some(Duration::from_secs(1)));
    both.request_call("a2");
    both.request_call("a3");
    both.advance(Duration::from_secs(1));
    both.end("a2", TaskOutcome::Cancelled);
    both.pipeline.drain(both.now);
    both.advance(Duration::ZERO);
    both.request_call("a4");
    let events = requests(&mut both);
    let kinds = |row| about(&events, attempt_of(&both, row, 1));
    assert_eq!(kinds(1), [WaitStarted, WaitTimeout]);
    assert_eq!(kinds(2), [WaitStarted, WaitCancelled], "withdrawn");
    assert_eq!(kinds(3), [WaitStarted, WaitCancelled], "the run stops");
    assert_eq!(kinds(4), [AcquireDenied], "the stopping run starts no call");
}

#[test]
fn a_call_without_a_task_has_no_correlation_even_while_tasks_make_calls() {
    let mut both = watched(1);
    both.request_call("a0");
    let request = Request::new(ResourceId::new(0, 0)).within(Duration::ZERO);
    let _ = both.admission.try_acquire(both.now, &request);
    let _ = both.admission.acquire(both.now, &request);
    both.end_call("a0", Outcome::Success.into());
    let (events, about) = (requests(&mut both), Some(attempt_of(&both, 0, 1)));
    let (of_task, others): (Vec<&RequestEvent>, Vec<_>) = events.iter().partition(|event| event.correlation == about);
    assert_eq!((of_task.len(), of_task.last().unwrap().payload.kind()), (6, LeaseReleased));
    let others: Vec<_> = others.iter().map(|event| (event.payload.kind(), event.correlation)).collect();
    assert_eq!(
        others,
        [WaitStarted, AcquireDenied, QueueFormed, WaitStarted, WaitTimeout, QueueDrained].map(|kind| (kind, None))
    );
}
