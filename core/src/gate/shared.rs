//! The data shared by all handles of one gate: the machine and the waiters under one lock.
//!
//! Every command takes the same steps: read the clock, take the lock, pass the command to the machine, store
//! the resulting answers, collect the wakers of their waiters, release the lock, wake. The clock and the
//! wakers are external code, so neither runs under the lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};

use lock_api::{Mutex, MutexGuard, RawMutex};

use super::Gate;
use super::health_calls::PendingHealthCalls;
use super::permit::{Permit, PermitOf};
use super::runs::{RunLock, Runs, YieldingRun};
use super::waiter_slab::{Removed, WaiterOutcome, WaiterSlab, WaiterSlot};
use crate::id::SlotKey;
use crate::panics;
use crate::replay::Recorded;
use crate::request::event::RequestEvent;
use crate::request::{
    AcquireResult, AfterCall, Completion, Denial, Outcome, Request, RequestAdmission, RequestEffect, RequestLease,
    ResourceId, Retry,
};
use crate::runtime::Host;
use crate::time::{Duration, Instant};
use crate::wake_list::WakeList;
use crate::yielding::TaskToken;

pub(crate) struct Shared<H: Host> {
    pub(super) host: H,
    /// Whether a limit counts the time for which the machine was suspended. It is read before the lock is
    /// taken.
    counts_suspended: AtomicBool,
    state: Mutex<H::Lock, GateState<H::Lock>>,
}

pub(super) struct GateState<L> {
    pub(super) machine: Recorded<RequestAdmission>,
    runs: Runs<L>,
    waiters: WaiterSlab,
    pub(super) health_calls: PendingHealthCalls,
    timer: TimerSlot,
}

/// A waiter in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedWaiter {
    pub(super) slot: WaiterSlot,
    /// When the request is denied. `None` if it waits without a timeout.
    pub(super) deadline: Option<Instant>,
}

/// The state of the gate's timer that commands use.
#[derive(Default)]
struct TimerSlot {
    /// The instant that the timer is armed for, or will be once it has been polled.
    armed: Option<Instant>,
    /// Taken to wake the timer. The timer stores a new one when it is polled.
    waker: Option<Waker>,
}

/// The lock, held for one command. Its drop delivers the decisions of the command, even if the command
/// panics.
struct Command<'a, L: RawMutex> {
    /// `None` only during the drop.
    state: Option<MutexGuard<'a, L, GateState<L>>>,
    now: Instant,
}

impl<L: RawMutex> Drop for Command<'_, L> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        // Most commands of a gate without a queue have nothing to deliver.
        let effect = state.machine.poll_effect();
        let timer = state.advance_timer();
        if effect.is_some() || timer.is_some() || !state.runs.is_empty() {
            deliver(state, self.now, effect, timer);
        }
    }
}

/// Stores all answers, releases the lock and wakes: first the timer, then the waiters in the order of their
/// answers.
#[inline(never)]
fn deliver<L: RawMutex>(
    mut state: MutexGuard<'_, L, GateState<L>>,
    now: Instant,
    effect: Option<RequestEffect>,
    timer: Option<Waker>,
) {
    let mut wakes = WakeList::default();
    wakes.push(timer);
    if let Some(effect) = effect {
        wakes.push(state.store(now, effect));
    }
    state.drain(now, &mut wakes);
    drop(state);
    wakes.wake_all();
}

impl<H: Host> Shared<H> {
    pub(super) fn new(host: H, machine: Recorded<RequestAdmission>) -> Arc<Self> {
        let (runs, waiters, timer) = (Runs::new(), WaiterSlab::default(), TimerSlot::default());
        let health_calls = PendingHealthCalls::default();
        let state = Mutex::new(GateState { machine, runs, waiters, health_calls, timer });
        Arc::new(Self { host, counts_suspended: AtomicBool::new(false), state })
    }

    /// Makes each later command that reads the clock read [`Clock::suspended`](crate::time::Clock), too.
    pub(super) fn count_suspended(&self) {
        self.counts_suspended.store(true, Ordering::Relaxed);
    }

    /// Returns the present instant, and for how long the machine was suspended before, as far as a limit
    /// counts it.
    #[inline]
    fn read_clock(&self) -> (Instant, Duration) {
        let now = self.host.now();
        // A lease must not last longer if the machine is suspended between the two readings.
        let counts = self.counts_suspended.load(Ordering::Relaxed);
        (now, if counts { self.host.suspended() } else { Duration::ZERO })
    }

    /// Runs one command on the machine and delivers the resulting answers.
    ///
    /// If a waker panics, this method panics after every other waker is woken. `R` is dropped then, so a
    /// lease in it must be in a permit. The result of `command` is dropped by the caller, outside the lock.
    #[inline]
    pub(super) fn command<R>(&self, command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R) -> R {
        let clock = self.read_clock();
        Self::run(self.state.lock(), clock, command)
    }

    /// Runs a command like [`Shared::command`], for one that seldom depends on the time.
    ///
    /// While no deadline, cooldown, outage or ramp is active, the machine decides the same at any time. Two
    /// clock readings would make an uncontended acquire and finish half as expensive again (see the admission
    /// bench). This method therefore first checks, under the lock, whether the machine needs the time. If so,
    /// it releases the lock for the reading, because the clock is external code. Otherwise the command gets
    /// the latest instant that was passed to the machine. A shared limit always needs the time.
    #[inline]
    fn untimed_command<R>(
        &self,
        needs_clock: impl FnOnce(&RequestAdmission) -> bool,
        command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let clock = if needs_clock(&state.machine) {
            drop(state);
            let clock = self.read_clock();
            state = self.state.lock();
            clock
        } else {
            (state.machine.latest(), Duration::ZERO)
        };
        Self::run(state, clock, command)
    }

    #[inline]
    fn run<R>(
        mut state: MutexGuard<'_, H::Lock, GateState<H::Lock>>,
        (now, suspended): (Instant, Duration),
        command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R,
    ) -> R {
        // It never falls, so zero has no effect.
        state.machine.set_suspended(suspended);
        let mut held = Command { state: Some(state), now };
        let result = held.state.as_mut().map(|state| command(state, now));
        drop(held);
        result.expect("the lock is held until the command is dropped")
    }

    /// Reads the state without a command.
    pub(super) fn read<R>(&self, read: impl FnOnce(&GateState<H::Lock>) -> R) -> R {
        read(&self.state.lock())
    }

    /// Reads the machine as it is now, without a command.
    pub(super) fn read_now<R>(&self, read: impl FnOnce(&RequestAdmission, Instant) -> R) -> R {
        let (now, suspended) = self.read_clock();
        let mut state = self.state.lock();
        state.machine.set_suspended(suspended);
        read(&state.machine, now)
    }

    /// Moves the pending events to the end of `into`.
    pub(super) fn take_events(&self, into: &mut Vec<RequestEvent>) {
        let mut state = self.state.lock();
        into.extend(core::iter::from_fn(|| state.machine.poll_event()));
    }

    /// Takes the outcome at `slot`, or sets `waker` to be woken by it.
    pub(super) fn poll_answer(&self, slot: WaiterSlot, waker: &Waker) -> Poll<WaiterOutcome> {
        // A waiter that was woken finds its outcome without cloning a waker.
        let outcome = self.state.lock().waiters.take_outcome(slot);
        match outcome {
            Some(outcome) => Poll::Ready(outcome),
            None => self.wait(slot, waker),
        }
    }

    /// Sets `waker` to be woken by the outcome at `slot`. For a new waiter, which rarely has an outcome yet.
    fn wait(&self, slot: WaiterSlot, waker: &Waker) -> Poll<WaiterOutcome> {
        // Cloning and dropping a waker may panic. Neither happens under the lock, or while an outcome is
        // outside its slot.
        let waker = waker.clone();
        let waits = self.state.lock().waiters.set_waker(slot, waker);
        match waits {
            Ok(replaced) => {
                drop(replaced);
                Poll::Pending
            }
            Err(unused) => {
                drop(unused);
                let outcome = self.state.lock().waiters.take_outcome(slot);
                outcome.map_or(Poll::Pending, Poll::Ready)
            }
        }
    }

    /// Returns whether a call of a resource that was granted may be sent now.
    pub(super) fn may_send(&self, resource: ResourceId) -> bool {
        // Only a limit that uses the time can lapse.
        if !self.read(|state| state.machine.needs_clock(resource)) {
            return true;
        }
        self.read_now(|machine, now| machine.may_send(now, resource))
    }

    /// Removes a dropped waiter. Releases the lease if one was granted but not taken.
    pub(super) fn cancel(&self, slot: WaiterSlot) {
        let unused_waker = self.command(|state, now| match state.waiters.remove(slot) {
            Some(Removed::Waiting(waiter, waker)) => {
                state.machine.cancel(now, waiter);
                waker
            }
            Some(Removed::Decided(Ok(lease))) => {
                state.release_cancelled(now, lease);
                None
            }
            Some(Removed::Decided(Err(_))) | None => None,
        });
        drop(unused_waker);
    }

    #[inline]
    pub(super) fn release(&self, lease: RequestLease, completion: &Completion) {
        let resource = lease.resource();
        let needs_clock = |machine: &RequestAdmission| machine.needs_clock_to_release(resource, completion.outcome);
        // The machine counts a release of a lease that is not live. The caller cannot react to it.
        let _ = self.untimed_command(needs_clock, |state, now| state.machine.release(now, lease, completion));
    }

    /// Releases a lease for a caller that may repeat its call.
    pub(super) fn finish(&self, lease: RequestLease, completion: &Completion) -> AfterCall {
        self.command(|state, now| state.machine.finish(now, lease, completion))
    }

    /// Runs everything that is due, and returns the next instant at which something is. `waker` is woken if
    /// that instant becomes earlier.
    ///
    /// A panicking waker of another task must not end the timer, which serves all waiters, so the panic is
    /// dropped. Where panics cannot be caught, it unwinds to the host after every other waker is woken.
    pub(super) fn tick(&self, waker: &Waker) -> Option<Instant> {
        let waker = waker.clone();
        let (mut next, mut replaced) = (None, None);
        let delivered = panics::catch("a waker panicked", || {
            self.command(|state, now| {
                state.machine.handle_timeout(now);
                next = state.machine.poll_timeout();
                state.timer.armed = next;
                replaced = state.timer.waker.replace(waker);
            });
        });
        drop((delivered, replaced));
        next
    }
}

impl<H: Host> Drop for Shared<H> {
    fn drop(&mut self) {
        // The timer finds that the gate is gone, and ends.
        let mut wakes = WakeList::default();
        wakes.push(self.state.get_mut().timer.waker.take());
    }
}

/// Requests for a permit.
impl<H: Host> Gate<H> {
    /// Requests a permit. The result is pending if a waiter was queued. It is then stored in `queued`
    /// before any external code runs, so a panic does not lose it.
    #[inline]
    pub(super) fn start_acquire(
        &self,
        request: &Request,
        retry: Option<Retry>,
        token: Option<&TaskToken>,
        queued: &mut Option<QueuedWaiter>,
        waker: &Waker,
    ) -> Poll<Result<Permit<'_, H>, Denial>> {
        let needs_clock = |machine: &RequestAdmission| match token {
            _ if retry.is_some() => true,
            None => machine.needs_clock_to_admit(request),
            Some(_) => machine.needs_clock_to_admit_yielding(request),
        };
        let outcome =
            self.shared.untimed_command(needs_clock, |state, now| match state.acquire(now, request, retry, token) {
                AcquireResult::Granted(lease) => Some(Ok(PermitOf::new(self, Some(lease)))),
                AcquireResult::Denied(denial) => Some(Err(denial)),
                AcquireResult::Waiting(waiter) => {
                    let deadline = state.machine.deadline(now, request);
                    *queued = Some(QueuedWaiter { slot: state.waiters.insert(waiter), deadline });
                    None
                }
            });
        match (outcome, *queued) {
            (Some(outcome), _) => Poll::Ready(outcome),
            (None, Some(QueuedWaiter { slot, .. })) => {
                self.shared.wait(slot, waker).map_ok(|lease| PermitOf::new(self, Some(lease)))
            }
            (None, None) => Poll::Pending,
        }
    }

    /// Repeats a request within the time left until its deadline.
    #[cold]
    pub(super) fn acquire_again(
        &self,
        request: &mut Request,
        deadline: Option<Instant>,
        retry: Option<Retry>,
        token: Option<&TaskToken>,
        queued: &mut Option<QueuedWaiter>,
        waker: &Waker,
    ) -> Poll<Result<Option<RequestLease>, Denial>> {
        request.timeout = deadline.map(|end| end.saturating_duration_since(self.shared.host.now()));
        self.start_acquire(request, retry, token, queued, waker).map_ok(PermitOf::into_lease)
    }

    /// Requests a permit without waiting.
    #[inline]
    pub(super) fn try_acquire_permit(&self, request: &Request) -> Result<Permit<'_, H>, Denial> {
        let needs_clock = |machine: &RequestAdmission| machine.needs_clock_to_admit(request);
        self.shared.untimed_command(needs_clock, |state, now| {
            state.machine.try_acquire(now, request).map(|lease| PermitOf::new(self, Some(lease)))
        })
    }
}

/// Commands of runs that call through this gate.
impl<H: Host> Gate<H> {
    /// Adds a run whose workers may yield at this gate.
    pub(crate) fn register_run(&self, run: Arc<RunLock<H::Lock>>) -> SlotKey {
        self.shared.command(|state, _| state.runs.register(run))
    }

    /// Removes a run. None of its workers may be waiting.
    pub(crate) fn unregister_run(&self, key: SlotKey) {
        let run = self.shared.command(|state, _| state.runs.unregister(key));
        drop(run);
    }

    /// Runs one command on a run, in one step with the decisions of this gate because of it. `command` runs
    /// under both locks.
    pub(crate) fn command_run<R, S: YieldingRun>(
        &self,
        run: &Mutex<H::Lock, S>,
        command: impl FnOnce(&mut S, &RequestAdmission, Instant) -> R,
    ) -> R {
        self.shared.command(|state, now| {
            let mut run_state = run.lock();
            let result = command(&mut run_state, &state.machine, now);
            let stops = run_state.take_stop();
            let has_postponed_dispatch = run_state.has_postponed_dispatch();
            drop(run_state);
            if stops {
                state.machine.deny_stopping(now, &mut state.runs);
            }
            if has_postponed_dispatch {
                state.machine.resume_yielded(now, &mut state.runs);
                run.lock().resume_dispatch(now);
            }
            result
        })
    }

    /// Moves the pending events of the gate to the end of `into`.
    pub(crate) fn take_events(&self, into: &mut Vec<RequestEvent>) {
        self.shared.take_events(into);
    }
}

impl<L: RawMutex> GateState<L> {
    /// Stores the answers of all pending effects. Collects the wakers of their waiters, of changed runs, and
    /// of the timer if it is armed too late.
    fn drain(&mut self, now: Instant, wakes: &mut WakeList) {
        loop {
            if !self.runs.is_empty() {
                self.settle_runs(now, wakes);
            }
            let Some(effect) = self.machine.poll_effect() else { break };
            wakes.push(self.store(now, effect));
        }
        wakes.push(self.advance_timer());
    }

    /// Resumes the yielded workers that are next, then lets the changed runs dispatch again.
    #[cold]
    fn settle_runs(&mut self, now: Instant, wakes: &mut WakeList) {
        if self.machine.needs_resume() {
            self.machine.resume_yielded(now, &mut self.runs);
        }
        self.runs.notify_changed(now, wakes);
    }

    /// Arms the timer for the next deadline if it is armed later or not at all, and then returns its waker. A
    /// timer that fires early is harmless and stays as it is.
    #[inline]
    fn advance_timer(&mut self) -> Option<Waker> {
        let next = self.machine.poll_timeout()?;
        if self.timer.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.timer.armed = Some(next);
        self.timer.waker.take()
    }

    /// Stores the outcome of one waiter, and returns the waker to wake.
    #[inline]
    fn store(&mut self, now: Instant, effect: RequestEffect) -> Option<Waker> {
        let (waiter, outcome) = match effect {
            RequestEffect::Granted { waiter, lease } => (waiter, Ok(lease)),
            RequestEffect::Denied { waiter, denial } => (waiter, Err(denial)),
            RequestEffect::HealthCall { lease } => return self.health_calls.push(lease),
        };
        match self.waiters.decide(waiter, outcome) {
            Ok(waker) => waker,
            // The waiter was queued by a command of `Gate::with`, so the gate has no slot for it.
            Err(Ok(lease)) => {
                self.release_cancelled(now, lease);
                None
            }
            Err(Err(_)) => None,
        }
    }

    pub(super) fn release_cancelled(&mut self, now: Instant, lease: RequestLease) {
        let _ = self.machine.release(now, lease, &Outcome::LocalCancelled.into());
    }

    #[inline]
    fn acquire(
        &mut self,
        now: Instant,
        request: &Request,
        retry: Option<Retry>,
        token: Option<&TaskToken>,
    ) -> AcquireResult {
        match (retry, token) {
            (None, None) => self.machine.acquire(now, request),
            (Some(retry), None) => self.machine.retry(now, request, retry),
            (retry, Some(token)) => self.acquire_yielding(now, request, retry, *token),
        }
    }

    #[cold]
    fn acquire_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        retry: Option<Retry>,
        token: TaskToken,
    ) -> AcquireResult {
        match retry {
            None => self.machine.acquire_yielding(now, request, token, &mut self.runs),
            Some(retry) => self.machine.retry_yielding(now, request, retry, token, &mut self.runs),
        }
    }
}
