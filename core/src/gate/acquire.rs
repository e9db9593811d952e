//! The future of one permit.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Permit;
use super::shared::Shared;
use crate::executor::Host;
use crate::request::{Acquire as Admission, Denial, Request, WaiterId};

/// Waits for a permit. Made by [`Gate::acquire`](super::Gate::acquire).
///
/// Nothing happens before the first poll: only then is a place in the queue taken, and only then does the request's
/// timeout begin. Dropping it at any moment is safe: a place in the queue is given up, and a permit that was granted
/// but not yet seen is released as local cancelled.
#[must_use = "a future does nothing until it is polled"]
pub struct Acquire<H: Host> {
    stage: Stage<H>,
}

enum Stage<H: Host> {
    Asking(Arc<Shared<H>>, Request),
    Waiting(Arc<Shared<H>>, WaiterId),
    Done,
}

impl<H: Host> Acquire<H> {
    pub(super) fn new(shared: Arc<Shared<H>>, request: Request) -> Self {
        Self { stage: Stage::Asking(shared, request) }
    }

    /// Asks once. An immediate answer costs one hold of the lock and no waker.
    fn ask(&mut self) -> Option<Result<Permit<H>, Denial>> {
        let (shared, request) = match core::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Asking(shared, request) => (shared, request),
            later => {
                self.stage = later;
                return None;
            }
        };
        let admission = shared.command(|state, now| {
            let admission = state.machine.acquire(now, &request);
            if let Admission::Waiting(waiter) = admission {
                state.expect_answer(waiter);
            }
            admission
        });
        match admission {
            Admission::Granted(lease) => Some(Ok(Permit::new(shared, lease))),
            Admission::Denied(denial) => Some(Err(denial)),
            Admission::Waiting(waiter) => {
                self.stage = Stage::Waiting(shared, waiter);
                None
            }
        }
    }
}

impl<H: Host> Future for Acquire<H> {
    type Output = Result<Permit<H>, Denial>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Who has only just asked has no answer yet.
        let may_be_answered = !matches!(self.stage, Stage::Asking(..));
        if let Some(answer) = self.ask() {
            return Poll::Ready(answer);
        }
        let Stage::Waiting(shared, waiter) = &self.stage else { panic!("`Acquire` was polled after it was ready") };
        let taken = if may_be_answered { shared.take_answer(*waiter) } else { None };
        let answer = match taken {
            Some(answer) => answer,
            None => core::task::ready!(shared.poll_answer(*waiter, context.waker())),
        };
        match core::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Waiting(shared, _) => Poll::Ready(answer.map(|lease| Permit::new(shared, lease))),
            Stage::Asking(..) | Stage::Done => Poll::Pending,
        }
    }
}

impl<H: Host> Drop for Acquire<H> {
    fn drop(&mut self) {
        if let Stage::Waiting(shared, waiter) = &self.stage {
            shared.cancel(*waiter);
        }
    }
}

// Nothing in it is ever pinned, whatever the host's types are.
impl<H: Host> Unpin for Acquire<H> {}

impl<H: Host> fmt::Debug for Acquire<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Asking(..) => "asking",
            Stage::Waiting(..) => "waiting",
            Stage::Done => "done",
        };
        f.debug_struct("Acquire").field("stage", &stage).finish_non_exhaustive()
    }
}
