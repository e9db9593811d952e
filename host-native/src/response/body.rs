//! The body of an answer, with the slot of its call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_core::request::{Completion, Outcome};

use super::{Head, grpc};
use crate::gate::Admitted;

/// The slot of a call whose answer is under way.
///
/// Dropped before it is finished, it says what the head said, if that was no success, and else that the caller gave up.
#[derive(Debug)]
#[must_use = "a call that is dropped counts as given up"]
pub struct Held {
    /// Taken by whoever finishes it.
    slot: Option<Admitted>,
    /// How the call ends, as far as it is known.
    completion: Completion,
}

impl Held {
    /// Holds `slot` until an end that nothing is known of yet.
    pub fn new(slot: Admitted) -> Self {
        Self { slot: Some(slot), completion: Outcome::Success.into() }
    }

    /// Takes in the head of the answer. A refusal gives the slot back at once: what it says is known, it holds nothing at
    /// the provider, and whoever waits must hear of it before the next call goes out.
    pub fn read(&mut self, head: &Head) {
        if let Some(slot) = &self.slot {
            slot.correct(&head.corrections);
        }
        self.completion = head.completion;
        if head.is_rate_limited() {
            self.end();
        }
    }

    /// Whether the slot has been given back.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.slot.is_none()
    }

    /// The answer came through whole.
    pub fn end(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.finish(self.completion);
        }
    }

    /// The answer ended otherwise.
    pub fn end_as(&mut self, completion: impl Into<Completion>) {
        self.completion = completion.into();
        self.end();
    }

    /// What else the answer says about its end: a success may turn out to be none.
    pub fn expect(&mut self, completion: Completion) {
        self.completion = completion;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.completion.outcome != Outcome::Success {
            self.end();
        }
        // A slot that is dropped counts as given up.
    }
}

pin_project! {
    /// A body that holds the slot of its call until its end: the end of the stream, an error, or its drop.
    ///
    /// Trailers with a `grpc-status` decide how the call ended.
    pub struct HeldBody<B>
    where
        B: Body,
    {
        #[pin]
        body: B,
        held: Held,
        outcome: fn(&B::Error) -> Outcome,
    }
}

impl<B: Body> HeldBody<B> {
    /// Holds `held` for as long as `body` lasts; not at all if it is empty. A body that breaks is a provider failure.
    pub fn new(body: B, held: Held) -> Self {
        Self::with_errors(body, held, |_| Outcome::ProviderFailure)
    }

    /// The same for a body whose errors mean what `outcome` says.
    pub fn with_errors(body: B, mut held: Held, outcome: fn(&B::Error) -> Outcome) -> Self {
        if body.is_end_stream() {
            held.end();
        }
        Self { body, held, outcome }
    }
}

impl<B: Body> Body for HeldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            None => this.held.end(),
            Some(Err(error)) => this.held.end_as((this.outcome)(error)),
            Some(Ok(frame)) => {
                if let Some(completion) = frame.trailers_ref().and_then(grpc) {
                    this.held.expect(completion);
                }
                // Whoever reads by length does not come back for the end.
                if this.body.is_end_stream() {
                    this.held.end();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body + fmt::Debug> fmt::Debug for HeldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody").field("body", &self.body).field("held", &self.held).finish_non_exhaustive()
    }
}
