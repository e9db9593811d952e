//! What all handles of one gate share: the machine under its lock, and who waits for which answer.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};

use lock_api::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::runs::Runs;
use super::waiter_slab::{Removed, WaiterSlab, WaiterSlot};
use crate::request::event::RequestEvent;
use crate::request::{
    Acquire, Completion, Denial, Effect, Outcome, Request, RequestAdmission, RequestLease, ResourceId, WaiterId,
};
use crate::runtime::Host;
use crate::time::Instant;
use crate::yielding::YieldToken;

/// How many effects are drained under one hold of the lock, and so how many wakers are run after it.
pub(super) const BATCH: usize = 32;

/// The answer to a waiter.
pub(super) type Answer = Result<RequestLease, Denial>;

/// Wakers to run once the lock is open.
type Wakes = SmallVec<[Waker; BATCH]>;

/// The answer to a first question.
pub(super) enum Asked {
    Answered(Answer),
    /// The answer will be put in this seat.
    Waiting(WaiterSlot),
}

/// What a command needs the clock for.
#[derive(Clone, Copy)]
enum Need<'a> {
    /// To let a request in, or to say why not.
    Admit(&'a Request),
    /// The same for that of a worker.
    AdmitTied(&'a Request),
    /// To end a call of this resource otherwise than rate limited.
    End(ResourceId),
}

/// Whether the last command of each kind needed the time, and so the next one probably does. Only guesses, read before
/// the lock is taken: what holds is asked again under the lock.
struct Expectations {
    to_admit: AtomicBool,
    to_end: AtomicBool,
}

/// Notes what a guess should have been. Most guesses are right, and are not written then: others read them.
#[inline]
fn learn(guess: &AtomicBool, guessed: bool, truth: bool) {
    if truth != guessed {
        guess.store(truth, Ordering::Relaxed);
    }
}

pub(crate) struct Shared<H: Host> {
    pub(super) host: H,
    expects_clock: Expectations,
    /// Whether the last who asked had to wait, and so the next one probably has to leave a waker.
    expects_wait: AtomicBool,
    state: Mutex<H::Lock, State<H>>,
}

pub(crate) struct State<H: Host> {
    pub(crate) machine: RequestAdmission,
    pub(crate) runs: Runs<H>,
    waiters: WaiterSlab,
    timer: TimerSlot,
}

/// The gate's timer as the commands see it.
#[derive(Default)]
struct TimerSlot {
    /// For when it is armed, or will be once it has been polled.
    armed: Option<Instant>,
    /// Taken when it is woken: it leaves a new one when it is polled.
    waker: Option<Waker>,
}

impl<H: Host> Shared<H> {
    pub(super) fn new(host: H, machine: RequestAdmission) -> Arc<Self> {
        let state = State { machine, runs: Runs::default(), waiters: WaiterSlab::new(), timer: TimerSlot::default() };
        let expects_clock = Expectations { to_admit: AtomicBool::new(true), to_end: AtomicBool::new(true) };
        Arc::new(Self { host, expects_clock, expects_wait: AtomicBool::new(false), state: Mutex::new(state) })
    }

    /// Gives the machine one command and delivers what follows from it.
    ///
    /// The clock is the host's code and a waker is anybody's: the one is read before the lock is taken, the others run
    /// after it is open again. What `command` returns is dropped by the caller, outside the lock too.
    pub(crate) fn command<R>(&self, command: impl FnOnce(&mut State<H>, Instant) -> R) -> R {
        let now = self.host.now();
        let mut state = self.state.lock();
        let result = command(&mut state, now);
        self.deliver(state, now);
        result
    }

    /// The same for a command that seldom needs the time: without need it is given the latest instant that the machine
    /// knows, and no clock is read. Where the guess was wrong the lock is taken twice, and nothing is decided in between.
    #[inline]
    fn untimed<R>(&self, need: Need<'_>, command: impl FnOnce(&mut State<H>, Instant) -> R) -> R {
        let expected = match need {
            Need::Admit(_) | Need::AdmitTied(_) => &self.expects_clock.to_admit,
            Need::End(_) => &self.expects_clock.to_end,
        };
        let expects = expected.load(Ordering::Relaxed);
        let mut read = expects.then(|| self.host.now());
        let mut state = self.state.lock();
        let needs = state.needs_clock(need);
        learn(expected, expects, needs);
        if needs && read.is_none() {
            drop(state);
            read = Some(self.host.now());
            state = self.state.lock();
        }
        let now = read.unwrap_or_else(|| state.machine.latest());
        let result = command(&mut state, now);
        self.deliver(state, now);
        result
    }

    /// Opens the lock and runs the wakers of those who have an answer. Most commands have no news, and most that have,
    /// have it for one.
    #[inline]
    fn deliver<'a>(&'a self, mut state: MutexGuard<'a, H::Lock, State<H>>, now: Instant) {
        if !state.runs.is_empty() {
            state = self.settle_runs(state, now);
        }
        if let Some(effect) = state.machine.poll_effect() {
            return self.deliver_news(state, now, effect);
        }
        let timer = state.advance_timer();
        drop(state);
        if let Some(timer) = timer {
            timer.wake();
        }
    }

    /// Lets suspended workers resume; opens the lock for a while, to tell the runs whose machines have something for them.
    #[cold]
    fn settle_runs<'a>(
        &'a self,
        mut state: MutexGuard<'a, H::Lock, State<H>>,
        now: Instant,
    ) -> MutexGuard<'a, H::Lock, State<H>> {
        if state.machine.needs_resume() {
            state.serve_runs(now);
        }
        if !state.runs.has_notifications() {
            return state;
        }
        state.runs.resume_dispatch(now);
        let notifications = state.runs.take_notifications();
        drop(state);
        notifications.notify(now);
        self.state.lock()
    }

    #[inline(never)]
    fn deliver_news(&self, mut state: MutexGuard<'_, H::Lock, State<H>>, now: Instant, news: Effect) {
        let first = state.carry_out(now, news);
        if let Some(more) = state.machine.poll_effect() {
            return self.deliver_many(state, now, first, more);
        }
        let timer = state.advance_timer();
        drop(state);
        first.into_iter().chain(timer).for_each(Waker::wake);
    }

    /// The same for news to several: a bounded number of wakers is kept, so the lock may be taken again.
    #[inline(never)]
    fn deliver_many(
        &self,
        mut state: MutexGuard<'_, H::Lock, State<H>>,
        now: Instant,
        first: Option<Waker>,
        second: Effect,
    ) {
        let mut wakes = Wakes::new();
        wakes.extend(first);
        wakes.extend(state.carry_out(now, second));
        let mut more = state.drain(now, &mut wakes);
        drop(state);
        loop {
            wakes.drain(..).for_each(Waker::wake);
            if !more {
                return;
            }
            more = self.state.lock().drain(now, &mut wakes);
        }
    }

    /// Asks for a permit; who has to wait leaves `waker`, and gives back what it holds if it is tied.
    #[inline]
    pub(super) fn ask(&self, request: &Request, tie: Option<&YieldToken>, waker: &Waker) -> Asked {
        let expects = self.expects_wait.load(Ordering::Relaxed);
        let mut left = expects.then(|| waker.clone());
        let need = if tie.is_none() { Need::Admit(request) } else { Need::AdmitTied(request) };
        let asked = self.untimed(need, |state, now| match state.acquire(now, request, tie) {
            Acquire::Granted(lease) => Asked::Answered(Ok(lease)),
            Acquire::Denied(denial) => Asked::Answered(Err(denial)),
            Acquire::Waiting(waiter) => Asked::Waiting(state.waiters.take(waiter, left.take())),
        });
        learn(&self.expects_wait, expects, matches!(asked, Asked::Waiting(_)));
        match asked {
            Asked::Waiting(seat) if !expects => match self.poll_answer(seat, waker) {
                Poll::Ready(answer) => Asked::Answered(answer),
                Poll::Pending => asked,
            },
            _ => asked,
        }
    }

    /// Asks for a permit at once.
    #[inline]
    pub(super) fn try_ask(&self, request: &Request) -> Answer {
        self.untimed(Need::Admit(request), |state, now| state.machine.try_acquire(now, request))
    }

    /// The events that wait to be heard.
    pub(crate) fn take_events(&self, into: &mut Vec<RequestEvent>) {
        let mut state = self.state.lock();
        into.extend(core::iter::from_fn(|| state.machine.poll_event()));
    }

    /// Reads the state without a command.
    pub(super) fn read<R>(&self, read: impl FnOnce(&State<H>) -> R) -> R {
        read(&self.state.lock())
    }

    /// The answer at `seat`, or leaves `waker` to be woken by it.
    pub(super) fn poll_answer(&self, seat: WaiterSlot, waker: &Waker) -> Poll<Answer> {
        // A waiter that was woken finds its answer, at the cost of no waker.
        let found = self.state.lock().waiters.take_answer(seat);
        if let Some(answer) = found {
            return Poll::Ready(answer);
        }
        let waker = waker.clone();
        let (answer, _unlocked) = self.state.lock().waiters.poll(seat, waker);
        answer
    }

    /// Forgets a waiter that nobody waits for any more, and gives back what it was granted, if anything.
    pub(super) fn cancel(&self, seat: WaiterSlot) {
        let _unlocked = self.command(|state, now| match state.waiters.leave(seat) {
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
    }

    #[inline]
    pub(super) fn release(&self, lease: RequestLease, completion: &Completion) {
        // Any other answer is counted by the machine; a clean-up path has no use for it.
        let _ = if completion.outcome == Outcome::RateLimited {
            self.command(|state, now| state.machine.release(now, lease, completion))
        } else {
            let need = Need::End(ResourceId::new(lease.id().controller, lease.id().item));
            self.untimed(need, |state, now| state.machine.release(now, lease, completion))
        };
    }

    /// Runs what is due, and says until when there is nothing to do. `waker` is woken when that becomes sooner.
    pub(super) fn tick(&self, waker: &Waker) -> Option<Instant> {
        self.command(|state, now| state.machine.handle_timeout(now));
        let waker = waker.clone();
        let (next, _unlocked) = self.state.lock().arm(waker);
        next
    }
}

impl<H: Host> Drop for Shared<H> {
    fn drop(&mut self) {
        // The timer sees that the gate is gone, and ends.
        if let Some(waker) = self.state.get_mut().timer.waker.take() {
            waker.wake();
        }
    }
}

impl<H: Host> State<H> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    fn needs_clock(&self, need: Need<'_>) -> bool {
        match need {
            Need::Admit(request) => self.machine.needs_clock_to_admit(request),
            Need::AdmitTied(request) => self.machine.needs_clock_to_admit_yielding(request),
            Need::End(resource) => self.machine.needs_clock(resource),
        }
    }

    fn arm(&mut self, waker: Waker) -> (Option<Instant>, Option<Waker>) {
        self.timer.armed = self.machine.poll_timeout();
        (self.timer.armed, self.timer.waker.replace(waker))
    }

    /// Delivers up to [`BATCH`] effects to their waiters. True when there may be more.
    fn drain(&mut self, now: Instant, wakes: &mut Wakes) -> bool {
        for _ in 0..BATCH {
            let Some(effect) = self.machine.poll_effect() else {
                wakes.extend(self.advance_timer());
                return false;
            };
            wakes.extend(self.carry_out(now, effect));
        }
        true
    }

    #[inline]
    fn carry_out(&mut self, now: Instant, effect: Effect) -> Option<Waker> {
        match effect {
            Effect::Granted { waiter, lease } => self.answer(now, waiter, Ok(lease)),
            Effect::Refused { waiter, denial } => self.answer(now, waiter, Err(denial)),
        }
    }

    #[inline]
    fn answer(&mut self, now: Instant, waiter: WaiterId, answer: Answer) -> Option<Waker> {
        match self.waiters.answer(waiter, answer) {
            Ok(waker) => waker,
            // The waiter was cancelled while its answer was on the way.
            Err(answer) => {
                if let Ok(lease) = answer {
                    self.release_cancelled(now, lease);
                }
                None
            }
        }
    }

    fn release_cancelled(&mut self, now: Instant, lease: RequestLease) {
        let _ = self.machine.release(now, lease, &Outcome::LocalCancelled.into());
        if self.machine.needs_resume() {
            self.serve_runs(now);
        }
    }

    #[inline]
    fn acquire(&mut self, now: Instant, request: &Request, tie: Option<&YieldToken>) -> Acquire {
        match tie {
            None => self.machine.acquire(now, request),
            Some(tie) => self.acquire_yielding(now, request, *tie),
        }
    }

    #[cold]
    fn acquire_yielding(&mut self, now: Instant, request: &Request, tie: YieldToken) -> Acquire {
        self.machine.acquire_yielding(now, request, tie, &mut self.runs)
    }

    /// Lets suspended workers resume whose turn it is, and then the runs start what they left for their sake.
    pub(crate) fn serve_runs(&mut self, now: Instant) {
        self.machine.resume_yielded(now, &mut self.runs);
        self.runs.resume_dispatch(now);
    }

    /// The timer's waker, if it is armed for too late. A timer that fires early is harmless and is left alone.
    fn advance_timer(&mut self) -> Option<Waker> {
        let next = self.machine.poll_timeout()?;
        if self.timer.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.timer.armed = Some(next);
        self.timer.waker.take()
    }
}
