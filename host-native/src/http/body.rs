//! The body of an answer, with the slot of its call.

use std::fmt;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Buf;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_core::budget::Usage;
use tidegate_core::request::{AfterCall, Completion, Outcome};

use super::{ResponseInfo, grpc, read_error, read_head};
use crate::gate::Admitted;

/// The most of the body of a refusal that is read.
pub(super) const MOST: usize = 64 << 10;
/// The most pieces of it that are looked at in one frame.
const PIECES: usize = 16;

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
    /// A refusal whose body may say more.
    refused: Option<Box<Refused>>,
}

/// A refusal: its head, and what has passed of its body.
#[derive(Debug)]
struct Refused {
    info: ResponseInfo,
    headers: HeaderMap,
    now: SystemTime,
    read: Vec<u8>,
}

impl Held {
    /// Holds `slot` until an end that nothing is known of yet.
    pub fn new(slot: Admitted) -> Self {
        Self { slot: Some(slot), completion: Outcome::Success.into(), refused: None }
    }

    /// Takes in status and headers of the answer, read at wall-clock time `now`.
    ///
    /// The body of a refusal, a 4xx, may say more: that the account is empty, the key refused, the model unknown. So the slot is kept until
    /// the body has been read or dropped. Only a refusal for too many calls that says when to come back is over with its head.
    pub fn read_head(&mut self, status: StatusCode, headers: &HeaderMap, now: SystemTime) {
        let info = read_head(status, headers, now);
        self.read_part(&info);
        let may_say_more = status.is_client_error() && info.completion.retry_after.is_none();
        if info.is_rate_limited() && !may_say_more {
            self.end();
        } else if status.is_client_error() {
            self.refused = Some(Box::new(Refused { info, headers: headers.clone(), now, read: Vec::new() }));
        }
    }

    /// Takes in a head that was read already, and keeps the slot in any case.
    pub fn read_part(&mut self, head: &ResponseInfo) {
        if let Some(slot) = &self.slot {
            slot.correct(&head.corrections);
        }
        self.completion = head.completion;
    }

    /// A piece of the body of a refusal passes.
    fn see(&mut self, data: &impl Buf) {
        let Some(refused) = &mut self.refused else { return };
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let count = data.chunks_vectored(&mut pieces);
        for piece in &pieces[..count] {
            refused.read.extend_from_slice(piece);
        }
        if refused.read.len() > MOST {
            // No error is as long.
            self.refused = None;
        }
    }

    /// The whole body has passed.
    fn refine(&mut self) {
        if let Some(Refused { mut info, headers, now, read }) = self.refused.take().map(|refused| *refused) {
            read_error(&read, &headers, now).refine(&mut info);
            self.completion = info.completion;
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

    /// The call ended so, and is made again if it failed in an outage: see [`Admitted::finish_call`].
    pub fn finish_call(&mut self, completion: impl Into<Completion>) -> AfterCall {
        self.completion = completion.into();
        self.slot.take().map_or(AfterCall::Final, |slot| slot.finish_call(self.completion))
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

/// Watches an answer go by, and has the last word on how its call ended.
pub trait Observe<D> {
    /// A piece of the body passes.
    fn data(&mut self, data: &D) {
        let _ = data;
    }

    /// The answer has ended, and its call with it: so, unless this says otherwise. Told once; not at all for an answer
    /// that is dropped half-way, and for a refusal, whose call has ended before.
    fn end(&mut self, completion: Completion) -> Completion {
        completion
    }

    /// The answer of a success is dropped half-way, and its call given up: what it has used by then. `None` says that this is
    /// not known, and everything that the call reserved comes back.
    fn give_up(&mut self) -> Option<Usage> {
        None
    }
}

/// Nobody watches.
impl<D> Observe<D> for () {}

pin_project! {
    /// A body that holds the slot of its call until its end: the end of the stream, an error, or its drop.
    ///
    /// Trailers with a `grpc-status` decide how the call ended.
    pub struct HeldBody<B, O = ()>
    where
        B: Body,
        O: Observe<B::Data>,
    {
        #[pin]
        body: B,
        held: Held,
        outcome: fn(&B::Error) -> Outcome,
        observer: O,
    }

    impl<B, O> PinnedDrop for HeldBody<B, O>
    where
        B: Body,
        O: Observe<B::Data>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.held.is_finished() || this.held.completion.outcome != Outcome::Success {
                return;
            }
            if let Some(used) = this.observer.give_up() {
                this.held.end_as(Completion::from(Outcome::LocalCancelled).used(used));
            }
        }
    }
}

impl<B: Body> HeldBody<B> {
    /// Holds `held` for as long as `body` lasts; not at all if it is empty. A body that breaks is a provider failure.
    pub fn new(body: B, held: Held) -> Self {
        Self::with_errors(body, held, |_| Outcome::ProviderFailure)
    }

    /// The same for a body whose errors mean what `outcome` says.
    pub fn with_errors(body: B, held: Held, outcome: fn(&B::Error) -> Outcome) -> Self {
        Self::observed(body, held, outcome, ())
    }
}

impl<B: Body, O: Observe<B::Data>> HeldBody<B, O> {
    /// The same for a body that `observer` watches.
    pub fn observed(body: B, held: Held, outcome: fn(&B::Error) -> Outcome, observer: O) -> Self {
        let mut this = Self { body, held, outcome, observer };
        if this.body.is_end_stream() {
            end(&mut this.held, &mut this.observer);
        }
        this
    }
}

fn end<D>(held: &mut Held, observer: &mut impl Observe<D>) {
    if !held.is_finished() {
        held.refine();
        held.completion = observer.end(held.completion);
        held.end();
    }
}

impl<B: Body, O: Observe<B::Data>> Body for HeldBody<B, O> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            None => end(this.held, this.observer),
            Some(Err(error)) => {
                // Of a refusal it is the head that counts then.
                if this.held.refused.take().is_none() {
                    this.held.expect((this.outcome)(error).into());
                }
                end(this.held, this.observer);
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.held.see(data);
                    this.observer.data(data);
                }
                if let Some(completion) = frame.trailers_ref().and_then(grpc) {
                    this.held.expect(completion);
                }
                // Whoever reads by length does not come back for the end.
                if this.body.is_end_stream() {
                    end(this.held, this.observer);
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

impl<B: Body + fmt::Debug, O: Observe<B::Data>> fmt::Debug for HeldBody<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody").field("body", &self.body).field("held", &self.held).finish_non_exhaustive()
    }
}
