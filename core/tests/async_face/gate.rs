//! Tests of the gate: which waiter is woken, when, and how slots are released.

use std::cell::RefCell;
use std::future::Future as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tidegate_core::gate::{Gate, Permit};
use tidegate_core::limit::{CallReport, LimitAlgorithm, LimitChoice, LimitConfig};
use tidegate_core::request::event::{RequestEventPayload, RequestInterest};
use tidegate_core::request::{Completion, DenialReason, Outcome, Request, ResourceId};
use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::share::{MemberHandle, MemberId, MemoryStore, Role, Session, SessionSettings, ShareConfig};
use tidegate_core::time::{Clock, Duration, Instant};

use crate::support::{
    DroppingHost, NonReentrantLock, Runtime, StillHost, TestHost, Wakes, at, gate_of, held, last_outcome, ms, poll,
};

fn gate_with(cap: u32) -> (Runtime, TestHost, Gate<TestHost>, ResourceId) {
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resource) = gate_of(host.clone(), cap);
    runtime.run_ready();
    (runtime, host, gate, resource)
}

#[test]
fn a_waiter_is_woken_by_the_release_of_a_slot() {
    let (runtime, host, gate, resource) = gate_with(1);
    let first = gate.try_acquire_owned(Request::new(resource)).unwrap();
    host.spawn({
        let host = host.clone();
        async move {
            host.sleep_until(at(7)).await;
            first.finish(Outcome::Success);
        }
    });
    let permit = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();
    assert_eq!((host.now(), held(&gate)), (at(7), (1, 0)));
    permit.finish(Outcome::Success);
    assert_eq!(held(&gate), (0, 0));
    assert_eq!(last_outcome(&gate, resource), Some(Outcome::Success));
}

/// A fixed limit of one whose grants lapse when a test says so. No call starts then.
struct Lapsing(Arc<AtomicBool>);

impl LimitAlgorithm for Lapsing {
    fn limit(&self, _now: Instant) -> u32 {
        1
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {}

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.opens_at(now)
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.0.load(Ordering::Relaxed).then_some(now + ms(1_000))
    }

    fn may_send(&self, _now: Instant) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}
}

#[test]
fn a_permit_that_lapses_before_its_future_is_polled_is_given_back_and_the_caller_waits_until_the_same_deadline() {
    let (runtime, host, gate, resource) = gate_with(1);
    let lapsed = Arc::<AtomicBool>::default();
    gate.with(|machine, now| machine.set_algorithm(now, resource, Box::new(Lapsing(Arc::clone(&lapsed))))).unwrap();
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waits = gate.acquire(Request::new(resource).within(ms(50)));
    let mut other = gate.acquire(Request::new(resource));
    assert!(poll(&mut waits, Waker::noop()).is_pending());
    assert!(poll(&mut other, Waker::noop()).is_pending());
    runtime.block_on(host.sleep_until(at(30))).unwrap();
    first.finish(Outcome::Success);
    lapsed.store(true, Ordering::Relaxed);
    assert!(poll(&mut waits, Waker::noop()).is_pending(), "the permit was granted, and has lapsed");
    assert_eq!(held(&gate), (0, 2), "it is given back");
    lapsed.store(false, Ordering::Relaxed);
    let denial = runtime.block_on(waits).unwrap().unwrap_err();
    assert_eq!((denial.reason, host.now()), (DenialReason::QueueTimeout, at(50)));
    gate.with(|machine, now| machine.refresh_limit(now, resource)).unwrap();
    runtime.block_on(other).unwrap().unwrap().finish(Outcome::Success);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_health_call_that_lapses_before_its_task_runs_is_not_made() {
    let (runtime, host, gate, resource) = gate_with(1);
    let lapsed = Arc::<AtomicBool>::default();
    gate.with(|machine, now| machine.set_algorithm(now, resource, Box::new(Lapsing(Arc::clone(&lapsed))))).unwrap();
    let mut health_calls = gate.health_calls(resource);
    // A request that always fails is the only one, so that health calls are due.
    let failing = gate.clone();
    host.spawn(async move {
        let call = |_| async { Err::<(), _>(Outcome::ConnectionFailed) };
        let _ = failing.run_through_outages(Request::new(resource), None, call).await;
    });
    runtime.block_on(health_calls.next()).unwrap().finish(Outcome::ConnectionFailed);
    lapsed.store(true, Ordering::Relaxed);
    let mut next = std::pin::pin!(health_calls.next());
    let mut context = Context::from_waker(Waker::noop());
    let began = host.now();
    for minute in 1..5 {
        runtime.block_on(host.sleep_until(began + ms(60_000 * minute))).unwrap();
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert_eq!(held(&gate), (0, 1), "only the failing request waits");
    }
    lapsed.store(false, Ordering::Relaxed);
    runtime.block_on(next).unwrap().finish(Outcome::Success);
}

#[test]
fn one_release_wakes_exactly_the_waiter_that_is_granted() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waiters: Vec<_> =
        (0..10).map(|_| (gate.acquire(Request::new(resource)), Arc::<Wakes>::default())).collect();
    for (acquire, wakes) in &mut waiters {
        assert!(poll(acquire, &Waker::from(Arc::clone(wakes))).is_pending());
    }
    first.finish(Outcome::Success);
    let woken: Vec<usize> = waiters.iter().map(|(_, wakes)| wakes.count()).collect();
    assert_eq!(woken, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (acquire, _) in waiters.iter_mut().skip(1) {
        assert!(poll(acquire, Waker::noop()).is_pending(), "the slot belongs to the first waiter");
    }
    assert!(poll(&mut waiters[0].0, Waker::noop()).is_ready());
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let mut acquire = gate.acquire(Request::new(resource));
    assert_eq!(held(&gate), (0, 0));
    let granted = poll(&mut acquire, Waker::noop());
    assert_eq!(held(&gate), (1, 0));
    drop(granted);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn an_acquire_that_is_dropped_while_it_waits_leaves_the_queue() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut dropped = gate.acquire(Request::new(resource));
    let mut next = gate.acquire(Request::new(resource));
    assert!(poll(&mut dropped, Waker::noop()).is_pending());
    assert!(poll(&mut next, Waker::noop()).is_pending());
    drop(dropped);
    assert_eq!(held(&gate), (1, 1));
    drop(first);
    assert!(poll(&mut next, Waker::noop()).is_ready());
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn an_unpolled_grant_passes_to_the_next_waiter_when_its_acquire_is_dropped() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let (mut unpolled, mut next) = (gate.acquire(Request::new(resource)), gate.acquire(Request::new(resource)));
    let wakes = Arc::<Wakes>::default();
    assert!(poll(&mut unpolled, Waker::noop()).is_pending());
    assert!(poll(&mut next, &Waker::from(Arc::clone(&wakes))).is_pending());
    first.finish(Outcome::Success);
    assert_eq!((held(&gate), wakes.count()), ((1, 1), 0), "granted to the first waiter, which was not polled");
    drop(unpolled);
    assert_eq!((held(&gate), wakes.count()), ((1, 0), 1));
    assert_eq!(last_outcome(&gate, resource), Some(Outcome::LocalCancelled));
    let Poll::Ready(Ok(permit)) = poll(&mut next, Waker::noop()) else { panic!("the next waiter is granted") };
    drop(permit);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn an_unpolled_denial_is_dropped_with_its_acquire() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut denied = gate.acquire(Request::new(resource));
    assert!(poll(&mut denied, Waker::noop()).is_pending());
    gate.shutdown();
    drop(denied);
    drop(first);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_permit_that_is_dropped_is_released_as_local_cancelled() {
    let (_runtime, _host, gate, resource) = gate_with(1);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _permit = gate.try_acquire(Request::new(resource)).unwrap();
        std::panic::resume_unwind(Box::new("user code panicked"));
    }));
    assert!(unwound.is_err());
    assert_eq!((held(&gate), last_outcome(&gate, resource)), ((0, 0), Some(Outcome::LocalCancelled)));
}

#[test]
fn one_timer_is_armed_for_any_number_of_waiters() {
    let (runtime, host, gate, resource) = gate_with(1);
    let _first = gate.try_acquire(Request::new(resource)).unwrap();
    let denied = Rc::new(RefCell::new(Vec::new()));
    for waiter in 0..100 {
        let (gate, host_of_task, denied) = (gate.clone(), host.clone(), Rc::clone(&denied));
        host.spawn(async move {
            let denial = gate.acquire(Request::new(resource).within(ms(100 - waiter))).await.unwrap_err();
            denied.borrow_mut().push((waiter, denial.reason, host_of_task.now()));
        });
    }
    runtime.run_ready();
    assert_eq!((runtime.armed_timers(), held(&gate)), (1, (1, 100)));
    runtime.run();
    let expected: Vec<_> =
        (0..100).rev().map(|waiter| (waiter, DenialReason::QueueTimeout, at(100 - waiter))).collect();
    assert_eq!(*denied.borrow(), expected, "each is denied at its own deadline");
    assert_eq!((runtime.armed_timers(), held(&gate)), (0, (1, 0)));
}

#[test]
fn a_later_waiter_with_an_earlier_deadline_is_denied_on_time() {
    let (runtime, host, gate, resource) = gate_with(1);
    let _first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut patient = gate.acquire(Request::new(resource).within(ms(1_000)));
    assert!(poll(&mut patient, Waker::noop()).is_pending());
    runtime.run_ready();
    let hasty = runtime.block_on(gate.acquire(Request::new(resource).within(ms(3)))).unwrap();
    assert_eq!((hasty.unwrap_err().reason, host.now()), (DenialReason::QueueTimeout, at(3)));
    assert_eq!(held(&gate), (1, 1));
}

#[test]
fn a_request_with_a_timeout_of_zero_never_waits() {
    let (runtime, host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let without_wait = Request::new(resource).within(Duration::ZERO);
    let denial = runtime.block_on(gate.acquire(without_wait)).unwrap().unwrap_err();
    assert_eq!((denial.reason, host.now()), (DenialReason::QueueTimeout, at(0)));
    drop(first);
    assert!(runtime.block_on(gate.acquire(without_wait)).unwrap().is_ok());
}

#[test]
fn the_end_of_a_cooldown_wakes_a_waiter_at_its_instant() {
    let (runtime, host, gate, resource) = gate_with(4);
    let permit = gate.try_acquire(Request::new(resource)).unwrap();
    permit.finish(Completion::rate_limited(Some(ms(3_000))));
    let denial = gate.try_acquire(Request::new(resource)).unwrap_err();
    assert_eq!((denial.reason, denial.changes_at), (DenialReason::Cooldown, Some(at(3_000))));
    let permit: Permit<_> = runtime.block_on(gate.acquire(Request::new(resource))).unwrap().unwrap();
    assert_eq!(host.now(), at(3_000));
    permit.finish(Outcome::Success);
}

#[test]
fn a_raised_cap_wakes_the_waiters_that_are_granted() {
    let (runtime, _host, gate, resource) = gate_with(1);
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waiting = gate.acquire(Request::new(resource));
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    gate.with(|machine, now| machine.register(now, "provider", "model", "alias", 2)).unwrap();
    let second = runtime.block_on(waiting).unwrap().unwrap();
    assert_eq!(held(&gate), (2, 0));
    drop((first, second));
}

#[test]
fn shutdown_denies_all_waiters_and_leaves_permits_valid() {
    let (runtime, _host, gate, resource) = gate_with(1);
    let permit = gate.try_acquire(Request::new(resource)).unwrap();
    // The waiters do not fit in one batch of wakers.
    let mut waiters: Vec<_> =
        (0..100).map(|_| (gate.acquire(Request::new(resource)), Arc::<Wakes>::default())).collect();
    for (acquire, wakes) in &mut waiters {
        assert!(poll(acquire, &Waker::from(Arc::clone(wakes))).is_pending());
    }
    gate.shutdown();
    for (acquire, wakes) in waiters {
        assert_eq!(wakes.count(), 1);
        assert_eq!(runtime.block_on(acquire).unwrap().unwrap_err().reason, DenialReason::Shutdown);
    }
    assert_eq!(gate.try_acquire(Request::new(resource)).unwrap_err().reason, DenialReason::Shutdown);
    assert_eq!(held(&gate), (1, 0));
    permit.finish(Outcome::Success);
    assert_eq!((held(&gate), last_outcome(&gate, resource)), ((0, 0), Some(Outcome::Success)));
}

#[test]
fn the_timer_task_ends_with_the_last_handle_permit_and_acquire() {
    let (runtime, _host, gate, resource) = gate_with(1);
    let permit = gate.try_acquire_owned(Request::new(resource)).unwrap();
    let mut acquire = gate.acquire_owned(Request::new(resource).within(ms(60_000)));
    assert!(poll(&mut acquire, Waker::noop()).is_pending());
    drop(gate);
    runtime.run_ready();
    assert_eq!((runtime.tasks(), runtime.armed_timers()), (1, 1));
    drop(acquire);
    runtime.run_ready();
    assert_eq!(runtime.tasks(), 1, "the permit still needs its gate");
    drop(permit);
    runtime.run_ready();
    assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0));
}

#[test]
fn a_gate_that_lost_its_timer_denies_its_waiters() {
    let (runtime, host, gate, resource) = gate_with(1);
    let permit = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waiting = gate.acquire(Request::new(resource));
    let wakes = Arc::<Wakes>::default();
    assert!(poll(&mut waiting, &Waker::from(Arc::clone(&wakes))).is_pending());
    drop((runtime, host));
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(Err(denial)) = poll(&mut waiting, Waker::noop()) else { panic!("it must not wait forever") };
    assert_eq!(denial.reason, DenialReason::Shutdown);
    permit.finish(Outcome::Success);

    let runtime = Runtime::new();
    let (gate, resource) = gate_of(DroppingHost::new(runtime.host(), 0), 1);
    assert_eq!(gate.try_acquire(Request::new(resource)).unwrap_err().reason, DenialReason::Shutdown);
}

#[test]
fn a_waiting_gate_does_not_read_the_clock_before_its_next_deadline() {
    let runtime = Runtime::new();
    let host = DroppingHost::new(runtime.host(), usize::MAX);
    let (gate, resource) = gate_of(host.clone(), 1);
    let _first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waiting = gate.acquire(Request::new(resource).within(ms(3_600_000)));
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    runtime.run_ready();
    let before = host.clock_reads.get();
    runtime.run_until(at(3_599_999));
    assert_eq!(host.clock_reads.get(), before);
}

#[test]
fn the_clock_is_not_read_while_nothing_depends_on_the_time() {
    let runtime = Runtime::new();
    let host = DroppingHost::new(runtime.host(), usize::MAX);
    let (gate, resource) = gate_of(host.clone(), 2);
    let reads = || host.clock_reads.replace(0);
    runtime.run_ready();
    let take = || gate.try_acquire(Request::new(resource)).unwrap();
    take().finish(Outcome::Success);
    reads();
    for outcome in [Outcome::Success, Outcome::LocalCancelled, Outcome::Unexpected] {
        take().finish(outcome);
    }
    assert_eq!(reads(), 0);
    take().finish(Outcome::ProviderFailure);
    assert_eq!(reads(), 1, "it may be the first failure of an outage");
    take().finish(Outcome::Success);
    reads();
    // A timeout starts with the request, and a cooldown with the rate limit.
    let (first, second) =
        (runtime.block_on(gate.acquire(Request::new(resource).within(ms(9)))).unwrap().unwrap(), take());
    assert_eq!(reads(), 1, "only the first has a timeout");
    let mut waiting = gate.acquire(Request::new(resource));
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    assert_eq!(reads(), 0, "no event needs the length of the wait");
    first.finish(Outcome::Success);
    assert_eq!(reads(), 0, "there is no deadline, so it does not matter when the waiter is served");
    runtime.run_until(at(40));
    reads();
    second.finish(Outcome::RateLimited);
    assert_eq!((reads(), gate.snapshot(resource).unwrap().blocked_until), (1, Some(at(2_040))));
    runtime.run_until(at(2_039));
    assert_eq!(gate.try_acquire(Request::new(resource)).unwrap_err().reason, DenialReason::Cooldown);
    runtime.run_until(at(2_040));
    drop(waiting);
    drop(take());
}

#[test]
fn a_wait_is_timed_if_events_are_enabled_when_it_starts() {
    let runtime = Runtime::new();
    let host = DroppingHost::new(runtime.host(), usize::MAX);
    let (gate, resource) = gate_of(host.clone(), 1);
    let held = gate.try_acquire(Request::new(resource)).unwrap();
    runtime.run_until(at(3_600_000));
    let (mut before, mut after) = (gate.acquire(Request::new(resource)), gate.acquire(Request::new(resource)));
    assert!(poll(&mut before, Waker::noop()).is_pending());
    gate.with(|machine, now| machine.set_interest(now, RequestInterest::ALL));
    host.clock_reads.set(0);
    assert!(poll(&mut after, Waker::noop()).is_pending());
    assert_eq!(host.clock_reads.get(), 1);
    runtime.run_until(at(3_600_040));
    held.finish(Outcome::Success);
    let Poll::Ready(Ok(permit)) = poll(&mut before, Waker::noop()) else { panic!("it is granted") };
    permit.finish(Outcome::Success);
    let waits = gate.with(|machine, _| {
        core::iter::from_fn(|| machine.poll_event())
            .filter_map(|event| match event.payload {
                RequestEventPayload::WaitCompleted { waited, .. } => Some(waited),
                _ => None,
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(waits, [ms(0), ms(40)], "the length of the first wait is unknown");
}

#[test]
fn no_latency_is_reported_for_a_grant_that_read_no_clock() {
    let (runtime, _host, gate, resource) = gate_with(4);
    let take = || gate.try_acquire(Request::new(resource)).unwrap();
    drop((take(), take()));
    let before = take();
    runtime.run_until(at(5_000));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let algorithm = Box::new(LatencyRecorder(Arc::clone(&reports)));
    gate.with(|machine, now| machine.set_algorithm(now, resource, algorithm)).unwrap();
    let after = take();
    runtime.run_until(at(5_030));
    before.finish(Outcome::Success);
    after.finish(Outcome::Success);
    assert_eq!(*reports.lock().unwrap(), [ms(30)]);
}

/// A fixed limit that records the reported latencies.
#[derive(Debug)]
struct LatencyRecorder(Arc<Mutex<Vec<Duration>>>);

impl LimitAlgorithm for LatencyRecorder {
    fn limit(&self, _now: Instant) -> u32 {
        4
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        self.0.lock().unwrap().push(call.latency);
    }

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}
}

/// A waker that acquires and releases a permit when it is woken, and reads the state of the gate when it is
/// dropped.
struct ReentrantWaker {
    gate: Gate<StillHost>,
    resource: ResourceId,
    granted: Mutex<Vec<bool>>,
}

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        let permit = self.gate.try_acquire(Request::new(self.resource));
        self.granted.lock().unwrap().push(permit.is_ok());
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        assert_eq!(self.gate.snapshot(self.resource).map(|state| state.effective_max), Some(1));
    }
}

#[test]
fn a_waker_may_call_back_into_the_gate_when_it_is_woken_and_when_it_is_dropped() {
    let (gate, resource) = gate_of(StillHost, 1);
    let reentrant_waker = || Arc::new(ReentrantWaker { gate: gate.clone(), resource, granted: Mutex::default() });
    let first = gate.try_acquire(Request::new(resource)).unwrap();
    let mut waiting = gate.acquire(Request::new(resource));
    // A waker is replaced by a poll, woken by a release, dropped by a cancel, or dropped by a poll that is
    // ready. Each of these runs the code of the waker.
    assert!(poll(&mut waiting, &Waker::from(reentrant_waker())).is_pending());
    let woken = reentrant_waker();
    assert!(poll(&mut waiting, &Waker::from(Arc::clone(&woken))).is_pending());
    drop(first);
    assert_eq!(*woken.granted.lock().unwrap(), [false], "the slot is held by the waiter, and the gate can be called");
    let mut cancelled = gate.acquire(Request::new(resource));
    assert!(poll(&mut cancelled, &Waker::from(reentrant_waker())).is_pending());
    drop(cancelled);
    let Poll::Ready(Ok(permit)) = poll(&mut waiting, &Waker::from(reentrant_waker())) else { panic!("it was granted") };
    drop(permit);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn a_member_that_a_user_installs_counts_the_time_for_which_the_machine_was_suspended_if_the_gate_is_asked_to() {
    for counts in [false, true] {
        let (runtime, host, gate, resource) = gate_with(4);
        let choice = LimitChoice::Fixed { limit: 4 };
        let settings = SessionSettings { share: ShareConfig::default(), choice, limit: LimitConfig::default() };
        if counts {
            gate.count_suspended();
        }
        let member = settings.member(host.now(), MemberId(1), 4, 1).unwrap();
        let member = MemberHandle::<NonReentrantLock>::new(member);
        gate.with(|machine, now| machine.set_algorithm(now, resource, Box::new(member.clone())).unwrap());
        let (mut session, mut store) = (Session::new(member, settings), MemoryStore::default());
        for _ in 0..200 {
            runtime.run_until(host.now() + ms(5));
            let demand = gate.with(|machine, _| machine.demand(resource));
            session.handle_timeout(host.now(), &demand, 4);
            for role in Role::ALL {
                while let Some(step) = session.poll_step(role) {
                    session.on_reply(host.now(), role, Ok(store.run(step)));
                }
            }
            gate.with(|machine, now| machine.refresh_limit(now, resource).unwrap());
        }
        let permit = gate.try_acquire(Request::new(resource)).expect("it has a share");
        assert!(permit.may_send());
        host.suspend(ms(6_000));
        assert_eq!(permit.may_send(), !counts);
    }
}
