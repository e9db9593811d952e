//! What all handles of one gate share: the machine under its lock, and who waits for which answer.

use alloc::sync::Arc;
use core::task::{Poll, Waker};

use lock_api::Mutex;
use smallvec::SmallVec;

use crate::executor::Host;
use crate::handle::FixedMap;
use crate::request::{Completion, Denial, DenialReason, Effect, Outcome, RequestAdmission, RequestLease, WaiterId};
use crate::time::Instant;

/// How many effects are drained under one hold of the lock, and so how many wakers are run after it.
pub(super) const BATCH: usize = 32;

/// The answer to a waiter.
pub(super) type Answer = Result<RequestLease, Denial>;

/// Wakers to run once the lock is open.
type Wakes = SmallVec<[Waker; BATCH]>;

pub(super) struct Shared<H: Host> {
    pub(super) host: H,
    state: Mutex<H::Lock, State>,
}

pub(super) struct State {
    pub(super) machine: RequestAdmission,
    waiters: FixedMap<WaiterId, Seat>,
    timer: TimerSeat,
}

/// Where one waiter's answer arrives.
enum Seat {
    /// Not answered. No waker yet only between the command and the end of the same poll.
    Waiting(Option<Waker>),
    Answered(Answer),
}

/// The gate's timer as the commands see it.
#[derive(Default)]
struct TimerSeat {
    /// For when it is armed, or will be once it has been polled.
    armed: Option<Instant>,
    /// Taken when it is woken: it leaves a new one when it is polled.
    waker: Option<Waker>,
}

impl<H: Host> Shared<H> {
    pub(super) fn new(host: H, machine: RequestAdmission) -> Arc<Self> {
        let state = State { machine, waiters: FixedMap::default(), timer: TimerSeat::default() };
        Arc::new(Self { host, state: Mutex::new(state) })
    }

    /// Gives the machine one command and delivers what follows from it.
    ///
    /// The clock is the host's code and a waker is anybody's: the one is read before the lock is taken, the others run
    /// after it is open again. What `command` returns is dropped by the caller, outside the lock too.
    pub(super) fn command<R>(&self, command: impl FnOnce(&mut State, Instant) -> R) -> R {
        let now = self.host.now();
        let mut wakes = Wakes::new();
        let (result, mut more) = {
            let mut state = self.state.lock();
            let result = command(&mut state, now);
            (result, state.drain(now, &mut wakes))
        };
        while more || !wakes.is_empty() {
            wakes.drain(..).for_each(Waker::wake);
            if more {
                more = self.state.lock().drain(now, &mut wakes);
            }
        }
        result
    }

    /// Reads the state without a command.
    pub(super) fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.lock())
    }

    /// The answer to `waiter`, if it is there. A waiter that was woken finds it, at the cost of no waker.
    pub(super) fn take_answer(&self, waiter: WaiterId) -> Option<Answer> {
        self.state.lock().take_answer(waiter)
    }

    /// The answer to `waiter`, or leaves `waker` to be woken by it.
    pub(super) fn poll_answer(&self, waiter: WaiterId, waker: &Waker) -> Poll<Answer> {
        let waker = waker.clone();
        let (answer, _unlocked) = self.state.lock().poll_answer(waiter, waker);
        answer
    }

    /// Forgets a waiter that nobody waits for any more, and gives back what it was granted, if anything.
    pub(super) fn cancel(&self, waiter: WaiterId) {
        let _unlocked = self.command(|state, now| {
            let seat = state.waiters.remove(&waiter);
            match seat {
                Some(Seat::Waiting(waker)) => {
                    state.machine.cancel(now, waiter);
                    waker
                }
                Some(Seat::Answered(Ok(lease))) => {
                    state.release_cancelled(now, lease);
                    None
                }
                Some(Seat::Answered(Err(_))) | None => None,
            }
        });
    }

    pub(super) fn release(&self, lease: RequestLease, completion: &Completion) {
        // Any other answer is counted by the machine; a clean-up path has no use for it.
        let _ = self.command(|state, now| state.machine.release(now, lease, completion));
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

impl State {
    /// Makes a place for the answer to `waiter`. To be called in the same command that made the waiter.
    pub(super) fn expect_answer(&mut self, waiter: WaiterId) {
        self.waiters.insert(waiter, Seat::Waiting(None));
    }

    fn take_answer(&mut self, waiter: WaiterId) -> Option<Answer> {
        let waits = matches!(self.waiters.get(&waiter), Some(Seat::Waiting(_)));
        (!waits).then(|| self.leave(waiter))
    }

    /// Also returns a waker to drop once the lock is open.
    fn poll_answer(&mut self, waiter: WaiterId, waker: Waker) -> (Poll<Answer>, Option<Waker>) {
        match self.waiters.get_mut(&waiter) {
            Some(Seat::Waiting(kept)) => (Poll::Pending, kept.replace(waker)),
            _ => (Poll::Ready(self.leave(waiter)), Some(waker)),
        }
    }

    fn leave(&mut self, waiter: WaiterId) -> Answer {
        match self.waiters.remove(&waiter) {
            Some(Seat::Answered(answer)) => answer,
            // A seat is only ever removed by the one future that made it; without it there is nothing to wait for.
            _ => Err(Denial { reason: DenialReason::Cancelled, changes_at: None }),
        }
    }

    fn arm(&mut self, waker: Waker) -> (Option<Instant>, Option<Waker>) {
        self.timer.armed = self.machine.poll_timeout();
        (self.timer.armed, self.timer.waker.replace(waker))
    }

    /// Puts up to [`BATCH`] effects in their seats. True when there may be more.
    fn drain(&mut self, now: Instant, wakes: &mut Wakes) -> bool {
        for _ in 0..BATCH {
            match self.machine.poll_effect() {
                Some(Effect::Granted { waiter, lease }) => wakes.extend(self.answer(now, waiter, Ok(lease))),
                Some(Effect::Refused { waiter, denial }) => wakes.extend(self.answer(now, waiter, Err(denial))),
                None => {
                    wakes.extend(self.hasten_timer());
                    return false;
                }
            }
        }
        true
    }

    fn answer(&mut self, now: Instant, waiter: WaiterId, answer: Answer) -> Option<Waker> {
        if let Some(seat) = self.waiters.get_mut(&waiter) {
            return match core::mem::replace(seat, Seat::Answered(answer)) {
                Seat::Waiting(waker) => waker,
                Seat::Answered(_) => None,
            };
        }
        // The waiter was cancelled while its answer was on the way.
        if let Ok(lease) = answer {
            self.release_cancelled(now, lease);
        }
        None
    }

    fn release_cancelled(&mut self, now: Instant, lease: RequestLease) {
        let _ = self.machine.release(now, lease, &Outcome::LocalCancelled.into());
    }

    /// The timer's waker, if it is armed for too late. A timer that fires early is harmless and is left alone.
    fn hasten_timer(&mut self) -> Option<Waker> {
        let next = self.machine.poll_timeout()?;
        if self.timer.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.timer.armed = Some(next);
        self.timer.waker.take()
    }
}
