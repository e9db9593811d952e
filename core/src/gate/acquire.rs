//! The future that waits for one permit.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Gate;
use super::permit::{GateRef, PermitOf};
use super::shared::QueuedWaiter;
use crate::request::{Denial, DenialReason, Outcome, Request, Retry};
use crate::yielding::TaskToken;

/// Waits for a permit that borrows the gate. Created by [`Gate::acquire`].
pub type Acquire<'a, H> = AcquireOf<&'a Gate<H>>;

/// Waits for a permit that keeps the gate alive. Created by [`Gate::acquire_owned`].
pub type AcquireOwned<H> = AcquireOf<Gate<H>>;

/// Waits for a permit.
///
/// Nothing happens before the first poll. The first poll takes a place in the queue, and the timeout of the
/// request starts then. Dropping the future at any moment is safe: its place in the queue is removed, and a
/// permit that was granted but not yet returned is released as local cancelled. This also holds after a panic
/// in a waker.
///
/// If the lease of a [shared](crate::share) limit lapses between the grant and the poll, the permit is given
/// back, and the future waits again, until the same deadline.
#[must_use = "a future does nothing until it is polled"]
pub struct AcquireOf<G: GateRef> {
    /// Moved into the permit. `None` once the future is ready.
    gate: Option<G>,
    request: Request,
    retry: Option<Retry>,
    token: Option<TaskToken>,
    /// The waiter, from the first poll that returns pending.
    queued: Option<QueuedWaiter>,
}

impl<G: GateRef> AcquireOf<G> {
    #[inline]
    pub(super) fn new(gate: G, request: Request) -> Self {
        Self { gate: Some(gate), request, retry: None, token: None, queued: None }
    }

    /// Makes this the retry of a call that failed in an outage: see [`PermitOf::finish_call`]. `None` changes
    /// nothing.
    #[must_use = "a future does nothing until it is polled"]
    pub fn with_retry(mut self, retry: Option<Retry>) -> Self {
        self.retry = retry;
        self
    }

    /// Makes the request on behalf of a worker of a run that calls through this gate. `token` is the token of
    /// the worker's task. `None` changes nothing.
    ///
    /// The worker releases its task resources while it waits, if its column yields. The request is denied
    /// as [cancelled](crate::request::DenialReason::Cancelled) once the run stops. See
    /// [`yielding`](crate::yielding).
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
    /// Panics when polled again after it was ready, and when this poll wakes another waiter whose waker
    /// panics.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { gate: held_gate, request, retry, token, queued } = &mut *self;
        let Some(gate) = held_gate.as_ref() else { panic!("`Acquire` was polled after it was ready") };
        let gate = gate.gate();
        let mut outcome = match *queued {
            None => gate
                .start_acquire(request, *retry, token.as_ref(), queued, context.waker())
                .map_ok(PermitOf::into_lease),
            Some(QueuedWaiter { slot, deadline }) => match gate.shared.poll_answer(slot, context.waker()) {
                Poll::Ready(Ok(lease)) if !gate.shared.may_send(lease.resource()) => {
                    // The slot is free already. It must not be used again if a waker panics.
                    *queued = None;
                    gate.shared.release(lease, &Outcome::LocalCancelled.into());
                    gate.acquire_again(request, deadline, *retry, token.as_ref(), queued, context.waker())
                }
                outcome => outcome.map_ok(Some),
            },
        };
        while let Poll::Ready(Err(Denial { reason: DenialReason::UseFallback, changes_at })) = outcome {
            *queued = None;
            outcome = gate.acquire_again(request, changes_at, *retry, token.as_ref(), queued, context.waker());
        }
        // No external code runs from here on, so the lease always reaches its permit.
        match (outcome, held_gate.take()) {
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
        if let (Some(gate), Some(queued)) = (&self.gate, self.queued) {
            gate.gate().shared.cancel(queued.slot);
        }
    }
}

// Nothing in it is pinned, whatever the types of the host are.
impl<G: GateRef> Unpin for AcquireOf<G> {}

impl<G: GateRef> fmt::Debug for AcquireOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (&self.gate, self.queued) {
            (None, _) => "done",
            (_, None) => "new",
            (_, Some(_)) => "waiting",
        };
        f.debug_struct("Acquire").field("state", &state).finish_non_exhaustive()
    }
}
