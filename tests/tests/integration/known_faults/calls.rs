//! Faults around the concrete call: waits, limits, clocks, interruptions.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RetryKind, TaskOutcome};
use tidegate_core::request::{LimitConfig, Outcome, Request, RequestAdmission, ResourceId};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::sim::executor::SimHost;
use tidegate_core::time::{Clock, Instant};
use tidegate_native::blocking::{AcquireBlocking, BlockingError};
use tidegate_native::host::TokioHost;

use super::runs::{Tasks, one_column};
use super::{Runtime, WatchedHost, at, gate_of, held, machine_of, ms, take};

const HOUR: u64 = 3_600_000;

/// Every waiter woke every 50 ms, to look whether there was room.
#[test]
fn no_polling_waits() {
    let runtime = Runtime::new();
    let host = WatchedHost::new(&runtime);
    let (gate, resource) = gate_of(host.clone(), 1);
    let permit = gate.try_acquire(Request::new(resource)).expect("there is room");
    for _ in 0..100 {
        let gate = gate.clone();
        Spawn::spawn(&host, async move {
            let request = Request::new(resource).within(ms(2 * HOUR));
            gate.acquire(request).await.expect("it is in time").finish(Outcome::Success);
        });
    }
    runtime.run_ready();
    assert_eq!((held(&gate), runtime.armed_timers()), ((1, 100), 1), "one timer for a hundred deadlines");
    let before = host.work.get();
    runtime.run_until(at(HOUR));
    assert_eq!(host.work.get(), before, "an hour of waiting: no poll, no look at the clock, no timer");
    permit.finish(Outcome::Success);
    runtime.run_ready();
    assert_eq!((held(&gate), runtime.host().now()), ((0, 0), at(HOUR)));
    let polls = host.work.get().polls - before.polls;
    assert!((100..=102).contains(&polls), "each waiter was woken once, for its grant, and not {polls} polls in all");
}

/// A blocking acquire stopped the event loop that was to make the room it waited for.
#[test]
fn no_blocking_acquire_inside_an_event_loop() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (gate, resource) = gate_of(TokioHost::current().unwrap(), 1);
        let permit = gate.try_acquire(Request::new(resource)).expect("there is room");
        let refused = gate.acquire_blocking(Request::new(resource)).map(drop);
        assert_eq!(refused, Err(BlockingError::InAsyncContext));
        assert_eq!(held(&gate), (1, 0), "it queued nothing either");
        permit.finish(Outcome::Success);
        gate.acquire(Request::new(resource)).await.expect("the loop goes on").finish(Outcome::Success);
    });
}

/// A dropped call was a provider failure in one place, cancelled in another and unexpected in a third.
#[test]
fn an_interruption_is_local_cancelled_on_every_path() {
    type Interrupted = fn(&Runtime, &Gate<SimHost>, ResourceId);
    let paths: [(&str, Interrupted); 6] = [
        ("a permit that is dropped", |_, gate, resource| drop(gate.try_acquire(Request::new(resource)))),
        ("a call that is dropped half-way", |_, gate, resource| {
            let mut call = Box::pin(gate.run(Request::new(resource), pending::<Outcome>()));
            assert!(poll_once(call.as_mut()).is_pending());
        }),
        ("a grant that its owner never saw", |_, gate, resource| {
            let permit = gate.try_acquire(Request::new(resource)).expect("there is room");
            let mut waiting = Box::pin(gate.acquire(Request::new(resource)));
            assert!(poll_once(waiting.as_mut()).is_pending());
            permit.finish(Outcome::Success);
            assert_eq!(held(gate), (1, 0), "granted, not seen");
        }),
        ("a run that is cancelled", |runtime, gate, resource| {
            let run = driver::run(runtime.host(), one_column(1), Arc::new(calling(gate, resource)));
            let handle = run.handle();
            runtime.host().spawn(async move { drop(run.await) });
            runtime.run_ready();
            assert_eq!(held(gate), (1, 0));
            handle.cancel();
            runtime.run_ready();
        }),
        ("a run that is dropped", |runtime, gate, resource| {
            let mut run = driver::run(runtime.host(), one_column(1), Arc::new(calling(gate, resource)));
            assert!(poll_once(Pin::new(&mut run)).is_pending());
            runtime.run_ready();
            assert_eq!(held(gate), (1, 0));
            drop(run);
            runtime.run_ready();
        }),
        ("a panic in a task that calls", |runtime, gate, resource| {
            let gate = gate.clone();
            let work = Tasks::new(move |_| {
                let gate = gate.clone();
                async move {
                    let _permit = gate.acquire(Request::new(resource)).await;
                    std::panic::resume_unwind(Box::new("user code broke"))
                }
            });
            drop(runtime.block_on(driver::run(runtime.host(), one_column(1), Arc::new(work))));
        }),
    ];
    for (path, interrupt) in paths {
        let runtime = Runtime::new();
        let (gate, resource) = gate_of(runtime.host(), 1);
        interrupt(&runtime, &gate, resource);
        assert_interrupted(path, &gate, resource);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (gate, resource) = gate_of(TokioHost::current().unwrap(), 1);
        let task = tokio::spawn({
            let gate = gate.clone();
            async move { gate.run(Request::new(resource), pending::<Outcome>()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(held(&gate), (1, 0));
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        assert_interrupted("a tokio task that is aborted", &gate, resource);
    });
}

fn assert_interrupted<H: Host>(path: &str, gate: &Gate<H>, resource: ResourceId) {
    let state = gate.snapshot(resource).expect("it is registered");
    let expected = (Some(Outcome::LocalCancelled), 1, 0);
    assert_eq!((state.last_outcome, state.current_limit, state.in_flight), expected, "{path}");
    assert_eq!((held(gate), state.waiters), ((0, 0), 0), "{path}");
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Tasks that take a permit and never end by themselves.
fn calling(gate: &Gate<SimHost>, resource: ResourceId) -> Tasks {
    let gate = gate.clone();
    Tasks::new(move |_| {
        let gate = gate.clone();
        async move {
            let _permit = gate.acquire(Request::new(resource)).await;
            pending().await
        }
    })
}

fn limit(machine: &RequestAdmission, now: Instant, resource: ResourceId) -> u32 {
    machine.snapshot(now, resource).expect("it is registered").current_limit
}

/// The calls of one burst each cut the limit: in a ramp, and for a straggler that came back after the recovery.
#[test]
fn no_second_cut_for_one_cascade() {
    let quick = LimitConfig { successes_until_increase: 1, ..LimitConfig::default() };
    let (mut machine, resource) = machine_of(8, quick.clone());
    let mut burst: Vec<_> = (0..8).map(|_| take(&mut machine, at(0), resource)).collect();
    let straggler = burst.pop().expect("there are eight");
    for lease in burst {
        let _ = machine.release(at(1), lease, &Outcome::RateLimited.into());
    }
    assert_eq!(limit(&machine, at(1), resource), 6);
    for _ in 0..2 {
        let lease = take(&mut machine, at(5_000), resource);
        let _ = machine.release(at(5_001), lease, &Outcome::Success.into());
    }
    assert_eq!(limit(&machine, at(5_001), resource), 8, "it has recovered");
    let _ = machine.release(at(5_002), straggler, &Outcome::RateLimited.into());
    assert_eq!(limit(&machine, at(5_002), resource), 8, "its news is older than the cut");

    let (mut machine, resource) = machine_of(9, LimitConfig { ramp: ms(8_000), ..quick });
    let first = take(&mut machine, at(0), resource);
    let second = take(&mut machine, at(4_000), resource);
    let _ = machine.release(at(4_001), first, &Outcome::RateLimited.into());
    let cut = limit(&machine, at(4_001), resource);
    let _ = machine.release(at(6_000), second, &Outcome::RateLimited.into());
    assert_eq!((cut, limit(&machine, at(6_000), resource)), (3, 3), "the ramp had reached 5");
}

/// A 429 while the ramp stood at 1 or 2 made that the ceiling, and no success ever led past it.
#[test]
fn an_early_429_does_not_pin_recovery_at_2() {
    for refused_at in [0, 2_000] {
        let settings = LimitConfig { ramp: ms(14_000), successes_until_increase: 1, ..LimitConfig::default() };
        let (mut machine, resource) = machine_of(8, settings);
        let first = take(&mut machine, at(0), resource);
        assert!(limit(&machine, at(refused_at), resource) <= 2);
        let _ = machine.release(at(refused_at), first, &Outcome::RateLimited.into());
        for call in 0..7 {
            let now = at(refused_at + 2_000 + call);
            let lease = take(&mut machine, now, resource);
            let _ = machine.release(now, lease, &Outcome::Success.into());
        }
        assert_eq!(limit(&machine, at(refused_at + 2_010), resource), 8, "refused at {refused_at} ms");
    }
}

/// A provider failure during the ramp set the limit back to 1.
#[test]
fn ramp_progress_is_not_lost_by_an_unrelated_failure() {
    for outcome in [
        Outcome::ProviderFailure,
        Outcome::ProviderTimeout,
        Outcome::LocalCancelled,
        Outcome::LocalTimeout,
        Outcome::Unexpected,
    ] {
        let (mut machine, resource) = machine_of(9, LimitConfig { ramp: ms(8_000), ..LimitConfig::default() });
        let lease = take(&mut machine, at(0), resource);
        let _ = machine.release(at(4_000), lease, &outcome.into());
        let progress = [4_000, 5_000, 8_000].map(|millis| limit(&machine, at(millis), resource));
        assert_eq!(progress, [5, 6, 9], "{outcome:?}");
    }
}

/// The clock was read when a wait began, and what came after it was judged by that reading.
#[test]
fn no_clock_reading_is_used_again_after_a_long_wait() {
    let runtime = Runtime::new();
    let (gate, resource) = gate_of(runtime.host(), 1);
    let permit = gate.try_acquire(Request::new(resource)).expect("there is room");
    let waiting = gate.clone();
    runtime.host().spawn(async move {
        let permit = waiting.acquire(Request::new(resource)).await.expect("it has no deadline");
        permit.finish(Outcome::RateLimited);
    });
    runtime.run_until(at(HOUR));
    permit.finish(Outcome::Success);
    runtime.run_ready();
    let state = gate.snapshot(resource).expect("it is registered");
    assert_eq!(state.blocked_until, Some(at(HOUR + 2_000)), "from the refusal on, not from the beginning of the wait");

    let (runtime, begun) = (Runtime::new(), Rc::<RefCell<Vec<Instant>>>::default());
    let (host, log) = (runtime.host(), Rc::clone(&begun));
    let refused = TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: Some(ms(2_000)) };
    let work = Tasks::new(move |task| {
        log.borrow_mut().push(host.now());
        let sleep = host.sleep_until(host.now() + ms(HOUR));
        async move {
            sleep.await;
            Ok(if task.attempt == 1 { refused } else { TaskOutcome::Success })
        }
    });
    let report = runtime.block_on(driver::run(runtime.host(), one_column(1), Arc::new(work))).unwrap();
    assert_eq!(*begun.borrow(), [at(0), at(HOUR + 2_000)], "its pause begins when it was asked for");
    assert_eq!((report.rows_out, report.ended), (1, at(2 * HOUR + 2_000)));
}
