//! What all handles of one gate share: the machine under its lock, and where each waiter finds its answer.
//!
//! Every command takes the same steps: read the clock, take the lock, give the machine the command, store the
//! answers it decided on, collect the wakers of their waiters, release the lock, wake. The clock is the
//! host's code and a waker is anybody's, so neither runs under the lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
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
    Acquire, AfterCall, Completion, Denial, Effect, Outcome, Request, RequestAdmission, RequestLease, Retry,
};
use crate::runtime::Host;
use crate::time::Instant;
use crate::wake_list::WakeList;
use crate::yielding::TaskToken;

pub(crate) struct Shared<H: Host> {
    pub(super) host: H,
    state: Mutex<H::Lock, GateState<H::Lock>>,
}

pub(super) struct GateState<L> {
    pub(super) machine: Recorded<RequestAdmission>,
    runs: Runs<L>,
    waiters: WaiterSlab,
    pub(super) health_calls: PendingHealthCalls,
    timer: TimerSlot,
}

/// The gate's timer, as the commands see it.
#[derive(Default)]
struct TimerSlot {
    /// The instant that it is armed for, or will be once it has been polled.
    armed: Option<Instant>,
    /// Taken to wake the timer, which leaves a new one when it is polled.
    waker: Option<Waker>,
}

/// The lock, held for one command. When it is dropped, it delivers what the command decided: also if the
/// command panics.
struct Command<'a, L: RawMutex> {
    /// `None` only while it is dropped.
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

/// Stores all answers, releases the lock and wakes: the timer first, then waiters in the order of their
/// answers.
#[inline(never)]
fn deliver<L: RawMutex>(
    mut state: MutexGuard<'_, L, GateState<L>>,
    now: Instant,
    effect: Option<Effect>,
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
        Arc::new(Self { host, state: Mutex::new(GateState { machine, runs, waiters, health_calls, timer }) })
    }

    /// Gives the machine one command and delivers what follows from it.
    ///
    /// A waker that panics makes this panic after every other waker is woken. `R` is dropped then: a lease in
    /// it must be in a permit. What `command` returns is dropped by the caller, outside the lock.
    #[inline]
    pub(super) fn command<R>(&self, command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R) -> R {
        let now = self.host.now();
        Self::run(self.state.lock(), now, command)
    }

    /// [`Shared::command`] for a command that seldom depends on the time.
    ///
    /// While no deadline, pause or ramp is under way, the machine decides the same at any time. Reading the
    /// clock twice would make an uncontended acquire and finish half as expensive again (see the admission
    /// bench). So the machine is asked first, under the lock. If it needs the time, the lock is released for
    /// the reading, because the clock is the host's code. Otherwise the command gets the latest instant that
    /// the machine knows.
    #[inline]
    fn untimed_command<R>(
        &self,
        needs_clock: impl FnOnce(&RequestAdmission) -> bool,
        command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let now = if needs_clock(&state.machine) {
            drop(state);
            let now = self.host.now();
            state = self.state.lock();
            now
        } else {
            state.machine.latest()
        };
        Self::run(state, now, command)
    }

    #[inline]
    fn run<R>(
        state: MutexGuard<'_, H::Lock, GateState<H::Lock>>,
        now: Instant,
        command: impl FnOnce(&mut GateState<H::Lock>, Instant) -> R,
    ) -> R {
        let mut held = Command { state: Some(state), now };
        let result = held.state.as_mut().map(|state| command(state, now));
        drop(held);
        result.expect("the lock is held until the command is dropped")
    }

    /// Reads the state without a command.
    pub(super) fn read<R>(&self, read: impl FnOnce(&GateState<H::Lock>) -> R) -> R {
        read(&self.state.lock())
    }

    /// Moves the pending events to the end of `into`.
    pub(super) fn take_events(&self, into: &mut Vec<RequestEvent>) {
        let mut state = self.state.lock();
        into.extend(core::iter::from_fn(|| state.machine.poll_event()));
    }

    /// Takes the answer at `slot`, or sets `waker` to be woken by it.
    pub(super) fn poll_answer(&self, slot: WaiterSlot, waker: &Waker) -> Poll<WaiterOutcome> {
        // A waiter that was woken finds its answer without cloning a waker.
        let answer = self.state.lock().waiters.take_answer(slot);
        match answer {
            Some(answer) => Poll::Ready(answer),
            None => self.wait(slot, waker),
        }
    }

    /// The same for a waiter that is new, and so is hardly answered yet.
    fn wait(&self, slot: WaiterSlot, waker: &Waker) -> Poll<WaiterOutcome> {
        // Cloning and dropping a waker may panic. Neither happens under the lock or while an answer is out of
        // its slot.
        let waker = waker.clone();
        let waits = self.state.lock().waiters.set_waker(slot, waker);
        match waits {
            Ok(replaced) => {
                drop(replaced);
                Poll::Pending
            }
            Err(unused) => {
                drop(unused);
                let answer = self.state.lock().waiters.take_answer(slot);
                answer.map_or(Poll::Pending, Poll::Ready)
            }
        }
    }

    /// Removes a waiter that is dropped, and releases the lease that it was granted but has not seen.
    pub(super) fn cancel(&self, slot: WaiterSlot) {
        let unused_waker = self.command(|state, now| match state.waiters.remove(slot) {
            Some(Removed::Waiting(waiter, waker)) => {
                state.machine.cancel(now, waiter);
                waker
            }
            Some(Removed::Answered(Ok(lease))) => {
                state.release_cancelled(now, lease);
                None
            }
            Some(Removed::Answered(Err(_))) | None => None,
        });
        drop(unused_waker);
    }

    #[inline]
    pub(super) fn release(&self, lease: RequestLease, completion: &Completion) {
        let resource = lease.resource();
        let needs_clock = |machine: &RequestAdmission| machine.needs_clock_to_release(resource, completion.outcome);
        // The machine counts a lease that is not live; the caller can do nothing about it.
        let _ = self.untimed_command(needs_clock, |state, now| state.machine.release(now, lease, completion));
    }

    /// Releases a lease for a caller that makes its call again if need be.
    pub(super) fn finish(&self, lease: RequestLease, completion: &Completion) -> AfterCall {
        self.command(|state, now| state.machine.finish(now, lease, completion))
    }

    /// Runs what is due, and returns the next instant at which something is. `waker` is woken if that becomes
    /// sooner.
    ///
    /// A waker of somebody else that panics does not end the timer, which serves all others: the panic is
    /// dropped. Where panics cannot be caught it unwinds to the host, after every other waker is woken.
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
        // The timer sees that the gate is gone, and ends.
        let mut wakes = WakeList::default();
        wakes.push(self.state.get_mut().timer.waker.take());
    }
}

/// Asking for a permit.
impl<H: Host> Gate<H> {
    /// Asks for a permit. The answer is pending when a waiter was queued: its slot is in `slot` before any
    /// foreign code runs, so that a panic does not lose its place.
    #[inline]
    pub(super) fn start_acquire(
        &self,
        request: &Request,
        retry: Option<Retry>,
        token: Option<&TaskToken>,
        slot: &mut Option<WaiterSlot>,
        waker: &Waker,
    ) -> Poll<Result<Permit<'_, H>, Denial>> {
        let needs_clock = |machine: &RequestAdmission| match token {
            _ if retry.is_some() => true,
            None => machine.needs_clock_to_admit(request),
            Some(_) => machine.needs_clock_to_admit_yielding(request),
        };
        let answer =
            self.shared.untimed_command(needs_clock, |state, now| match state.acquire(now, request, retry, token) {
                Acquire::Granted(lease) => Some(Ok(PermitOf::new(self, Some(lease)))),
                Acquire::Denied(denial) => Some(Err(denial)),
                Acquire::Waiting(waiter) => {
                    *slot = Some(state.waiters.insert(waiter));
                    None
                }
            });
        match (answer, *slot) {
            (Some(answer), _) => Poll::Ready(answer),
            (None, Some(slot)) => self.shared.wait(slot, waker).map_ok(|lease| PermitOf::new(self, Some(lease))),
            (None, None) => Poll::Pending,
        }
    }

    /// Asks again for a request of which another fallback is to be called, within what is left until its
    /// deadline.
    #[cold]
    pub(super) fn ask_again(
        &self,
        request: &mut Request,
        deadline: Option<Instant>,
        retry: Option<Retry>,
        token: Option<&TaskToken>,
        slot: &mut Option<WaiterSlot>,
        waker: &Waker,
    ) -> Poll<Result<Option<RequestLease>, Denial>> {
        request.timeout = deadline.map(|end| end.saturating_duration_since(self.shared.host.now()));
        self.start_acquire(request, retry, token, slot, waker).map_ok(PermitOf::into_lease)
    }

    /// Asks for a permit at once or not at all.
    #[inline]
    pub(super) fn try_acquire_permit(&self, request: &Request) -> Result<Permit<'_, H>, Denial> {
        let needs_clock = |machine: &RequestAdmission| machine.needs_clock_to_admit(request);
        self.shared.untimed_command(needs_clock, |state, now| {
            state.machine.try_acquire(now, request).map(|lease| PermitOf::new(self, Some(lease)))
        })
    }
}

/// For runs that call through this gate.
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

    /// Gives a run one command, in one step with what this gate decides because of it. `command` runs under
    /// both locks.
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
                state.machine.reject_stopping(now, &mut state.runs);
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
    /// Stores the answers of all pending effects. Adds the wakers of their waiters, of runs that changed, and
    /// of the timer if it is armed for too late.
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

    /// Lets suspended workers resume whose turn it is, then lets the runs that changed dispatch again.
    #[cold]
    fn settle_runs(&mut self, now: Instant, wakes: &mut WakeList) {
        if self.machine.needs_resume() {
            self.machine.resume_yielded(now, &mut self.runs);
        }
        self.runs.notify_changed(now, wakes);
    }

    /// Arms the timer for the next deadline if it is armed for later or not at all, and returns its waker
    /// then. A timer that fires early is harmless and is left alone.
    #[inline]
    fn advance_timer(&mut self) -> Option<Waker> {
        let next = self.machine.poll_timeout()?;
        if self.timer.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.timer.armed = Some(next);
        self.timer.waker.take()
    }

    /// Stores the answer of one waiter, and returns the waker to wake.
    #[inline]
    fn store(&mut self, now: Instant, effect: Effect) -> Option<Waker> {
        let (waiter, answer) = match effect {
            Effect::Granted { waiter, lease } => (waiter, Ok(lease)),
            Effect::Refused { waiter, denial } => (waiter, Err(denial)),
            Effect::HealthCall { lease } => return self.health_calls.push(lease),
        };
        match self.waiters.answer(waiter, answer) {
            Ok(waker) => waker,
            // A waiter that was queued past the gate, by a command of `Gate::with`.
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
    fn acquire(&mut self, now: Instant, request: &Request, retry: Option<Retry>, token: Option<&TaskToken>) -> Acquire {
        match (retry, token) {
            (None, None) => self.machine.acquire(now, request),
            (Some(retry), None) => self.machine.retry(now, request, retry),
            (retry, Some(token)) => self.acquire_yielding(now, request, retry, *token),
        }
    }

    #[cold]
    fn acquire_yielding(&mut self, now: Instant, request: &Request, retry: Option<Retry>, token: TaskToken) -> Acquire {
        match retry {
            None => self.machine.acquire_yielding(now, request, token, &mut self.runs),
            Some(retry) => self.machine.retry_yielding(now, request, retry, token, &mut self.runs),
        }
    }
}
