//! The future of one permit.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::permit::{GateRef, PermitOf};
use super::waiter_slab::WaiterSlot;
use super::{Gate, shared::Asked};
use crate::request::{Denial, Request};
use crate::yielding::YieldToken;

/// Waits for a permit that borrows the gate. Made by [`Gate::acquire`].
pub type Acquire<'a, H> = AcquireOf<&'a Gate<H>>;

/// Waits for a permit that keeps the gate alive. Made by [`Gate::acquire_owned`].
pub type AcquireOwned<H> = AcquireOf<Gate<H>>;

/// Waits for a permit.
///
/// Nothing happens before the first poll: only then is a place in the queue taken, and only then does the request's
/// timeout begin. Dropping it at any moment is safe: a place in the queue is given up, and a permit that was granted
/// but not yet seen is released as local cancelled.
#[must_use = "a future does nothing until it is polled"]
pub struct AcquireOf<G: GateRef> {
    /// Handed on with the permit; `None` once there is an answer.
    gate: Option<G>,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Asking(Request, Option<YieldToken>),
    Waiting(WaiterSlot),
}

impl<G: GateRef> AcquireOf<G> {
    #[inline]
    pub(super) fn new(gate: G, request: Request) -> Self {
        Self { gate: Some(gate), stage: Stage::Asking(request, None) }
    }

    /// Asks on behalf of a worker whose run calls [through](crate::driver::run_through) this gate: while it waits, the
    /// worker gives back what it holds. `tie` is its task's [`tie`](crate::pipeline::Task::tie); `None` changes nothing.
    #[must_use = "a future does nothing until it is polled"]
    pub fn yielding(mut self, tie: Option<YieldToken>) -> Self {
        if let Stage::Asking(_, known) = &mut self.stage {
            *known = tie;
        }
        self
    }
}

impl<G: GateRef> Future for AcquireOf<G> {
    type Output = Result<PermitOf<G>, Denial>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(gate) = this.gate.take() else { panic!("`Acquire` was polled after it was ready") };
        let shared = &gate.gate().shared;
        // By reference: to copy a request costs more than to look at it.
        let asked = match &this.stage {
            Stage::Asking(request, tie) => shared.ask(request, tie.as_ref(), context.waker()),
            Stage::Waiting(seat) => match shared.poll_answer(*seat, context.waker()) {
                Poll::Ready(answer) => Asked::Answered(answer),
                Poll::Pending => Asked::Waiting(*seat),
            },
        };
        let answer = match asked {
            Asked::Answered(answer) => Poll::Ready(answer),
            Asked::Waiting(seat) => {
                this.stage = Stage::Waiting(seat);
                Poll::Pending
            }
        };
        match answer {
            Poll::Ready(Ok(lease)) => Poll::Ready(Ok(PermitOf::new(gate, lease))),
            Poll::Ready(Err(denial)) => Poll::Ready(Err(denial)),
            Poll::Pending => {
                this.gate = Some(gate);
                Poll::Pending
            }
        }
    }
}

impl<G: GateRef> Drop for AcquireOf<G> {
    #[inline]
    fn drop(&mut self) {
        if let (Some(gate), Stage::Waiting(seat)) = (&self.gate, self.stage) {
            gate.gate().shared.cancel(seat);
        }
    }
}

// Nothing in it is ever pinned, whatever the host's types are.
impl<G: GateRef> Unpin for AcquireOf<G> {}

impl<G: GateRef> fmt::Debug for AcquireOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match (&self.gate, self.stage) {
            (None, _) => "done",
            (_, Stage::Asking(..)) => "asking",
            (_, Stage::Waiting(_)) => "waiting",
        };
        f.debug_struct("Acquire").field("stage", &stage).finish_non_exhaustive()
    }
}
