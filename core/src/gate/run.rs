//! The future that makes one call under a permit.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::acquire::Acquire;
use super::permit::Permit;
use crate::request::{Completion, Denial};
use crate::runtime::Host;
use crate::yielding::TaskToken;

/// The classifier of [`Gate::run`](super::Gate::run): [`Classify::completion`](super::Classify) of the call's
/// output.
pub type ByResult<F> = fn(&<F as Future>::Output) -> Completion;

pin_project! {
    /// Waits for a permit, makes the call, and finishes the permit with the outcome. Created by
    /// [`Gate::run`](super::Gate::run) and [`Gate::run_with`](super::Gate::run_with).
    ///
    /// The call is not polled before the permit is granted. Dropping this future at any moment is safe: a
    /// place in the queue is removed, and a running call is dropped before its permit is released as local
    /// cancelled. The permit of a call that panics is released in the same way.
    #[must_use = "a future does nothing until it is polled"]
    pub struct Run<'a, H, F, C>
    where
        H: Host,
    {
        // Fields are dropped in this order, so the call is over before its slot is granted to another caller.
        #[pin]
        call: F,
        permit: Option<Permit<'a, H>>,
        acquire: Acquire<'a, H>,
        // Taken when the call has ended.
        classify: Option<C>,
    }
}

impl<'a, H: Host, F, C> Run<'a, H, F, C> {
    pub(super) fn new(acquire: Acquire<'a, H>, call: F, classify: C) -> Self {
        Self { call, permit: None, acquire, classify: Some(classify) }
    }

    /// Makes the request on behalf of a worker: see [`AcquireOf::for_task`](super::AcquireOf::for_task).
    #[must_use = "a future does nothing until it is polled"]
    pub fn for_task(self, token: Option<TaskToken>) -> Self {
        Self { acquire: self.acquire.for_task(token), ..self }
    }
}

impl<H: Host, F: Future, C: FnOnce(&F::Output) -> Completion> Future for Run<'_, H, F, C> {
    type Output = Result<F::Output, Denial>;

    /// # Panics
    ///
    /// Panics when polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.permit.is_none() {
            match ready!(Pin::new(this.acquire).poll(context)) {
                Ok(permit) => *this.permit = Some(permit),
                Err(denial) => return Poll::Ready(Err(denial)),
            }
        }
        let output = ready!(this.call.poll(context));
        if let (Some(permit), Some(classify)) = (this.permit.take(), this.classify.take()) {
            permit.finish(classify(&output));
        }
        Poll::Ready(Ok(output))
    }
}

impl<H: Host, F, C> fmt::Debug for Run<'_, H, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("acquire", &self.acquire).field("permit", &self.permit).finish_non_exhaustive()
    }
}
