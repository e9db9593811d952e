//! The future of one permit.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Gate;
use super::permit::{GateRef, PermitOf};
use super::waiter_slab::WaiterSlot;
use crate::request::{Denial, DenialReason, Request, Retry};
use crate::yielding::TaskToken;

/// Waits for a permit that borrows the gate. Made by [`Gate::acquire`].
pub type Acquire<'a, H> = AcquireOf<&'a Gate<H>>;

/// Waits for a permit that keeps the gate alive. Made by [`Gate::acquire_owned`].
pub type AcquireOwned<H> = AcquireOf<Gate<H>>;

/// Waits for a permit.
///
/// Nothing happens before the first poll: only then is a place in the queue taken, and only then does the
/// request's timeout begin. Dropping it at any moment is safe: a place in the queue is given up, and a permit
/// that was granted but not yet seen is released as local cancelled. That holds after a panic in a waker too.
#[must_use = "a future does nothing until it is polled"]
pub struct AcquireOf<G: GateRef> {
    /// Moves into the permit; `None` once there is an answer.
    gate: Option<G>,
    request: Request,
    retry: Option<Retry>,
    token: Option<TaskToken>,
    /// Its place among the waiters, from the first poll that does not find an answer.
    slot: Option<WaiterSlot>,
}

impl<G: GateRef> AcquireOf<G> {
    #[inline]
    pub(super) fn new(gate: G, request: Request) -> Self {
        Self { gate: Some(gate), request, retry: None, token: None, slot: None }
    }

    /// Asks for a call again that failed in an outage: see [`PermitOf::finish_call`]. `None` changes nothing.
    #[must_use = "a future does nothing until it is polled"]
    pub fn with_retry(mut self, retry: Option<Retry>) -> Self {
        self.retry = retry;
        self
    }

    /// Asks on behalf of a worker of a run that calls through this gate: the worker gives back what it holds
    /// while it waits, if its column yields, and is rejected as
    /// [cancelled](crate::request::DenialReason::Cancelled) once its run stops. `token` is the one of its
    /// task; `None` changes nothing. See [`yielding`](crate::yielding).
    #[must_use = "a future does nothing until it is polled"]
    pub fn for_task(mut self, token: Option<TaskToken>) -> Self {
        self.token = token;
        self
    }
}

impl<G: GateRef> Future for AcquireOf<G> {
    type Output = Result<PermitOf<G>, Denial>;

    /// # Panics
    ///
    /// When polled again after it was ready. Also when the waker of another waiter panics that this poll
    /// wakes.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { gate: held_gate, request, retry, token, slot } = &mut *self;
        let Some(gate) = held_gate.as_ref() else { panic!("`Acquire` was polled after it was ready") };
        let gate = gate.gate();
        let mut answer = match *slot {
            None => {
                gate.start_acquire(request, *retry, token.as_ref(), slot, context.waker()).map_ok(PermitOf::into_lease)
            }
            Some(slot) => gate.shared.poll_answer(slot, context.waker()).map_ok(Some),
        };
        while let Poll::Ready(Err(Denial { reason: DenialReason::FallBack, changes_at })) = answer {
            *slot = None;
            answer = gate.ask_again(request, changes_at, *retry, token.as_ref(), slot, context.waker());
        }
        // No foreign code runs from here on, so the lease reaches its permit.
        match (answer, held_gate.take()) {
            (Poll::Ready(Ok(lease)), Some(gate)) => Poll::Ready(Ok(PermitOf::new(gate, lease))),
            (Poll::Ready(Err(denial)), _) => Poll::Ready(Err(denial)),
            (_, gate) => {
                *held_gate = gate;
                Poll::Pending
            }
        }
    }
}

impl<G: GateRef> Drop for AcquireOf<G> {
    #[inline]
    fn drop(&mut self) {
        if let (Some(gate), Some(slot)) = (&self.gate, self.slot) {
            gate.gate().shared.cancel(slot);
        }
    }
}

// Nothing in it is ever pinned, whatever the host's types are.
impl<G: GateRef> Unpin for AcquireOf<G> {}

impl<G: GateRef> fmt::Debug for AcquireOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match (&self.gate, self.slot) {
            (None, _) => "done",
            (_, None) => "new",
            (_, Some(_)) => "waiting",
        };
        f.debug_struct("Acquire").field("stage", &stage).finish_non_exhaustive()
    }
}
