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

use super::{ResponseInfo, read_error_body, read_grpc_status, read_head};
use crate::gate::CallPermit;

/// The most of the body of a refusal that is read.
pub(super) const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// The most pieces of it that are looked at in one frame.
const MAX_CHUNKS_PER_FRAME: usize = 16;

/// The slot of a call whose answer is under way.
///
/// Dropped before it is finished, it says what the head said, if that was no success, and else that the caller gave up.
#[derive(Debug)]
#[must_use = "a call that is dropped counts as given up"]
pub struct InFlightCall {
    /// Taken by whoever finishes it.
    slot: Option<CallPermit>,
    /// How the call ends, as far as it is known.
    completion: Completion,
    /// A refusal whose body may say more.
    error_response: Option<Box<ErrorResponse>>,
}

/// A refusal: its head, and what has passed of its body.
#[derive(Debug)]
struct ErrorResponse {
    info: ResponseInfo,
    headers: HeaderMap,
    now: SystemTime,
    body: Vec<u8>,
}

impl InFlightCall {
    /// Holds `slot` until an end that nothing is known of yet.
    pub fn new(slot: CallPermit) -> Self {
        Self { slot: Some(slot), completion: Outcome::Success.into(), error_response: None }
    }

    /// Takes in status and headers of the answer, read at wall-clock time `now`.
    ///
    /// The body of a refusal, a 4xx, may say more: that the account is empty, the key rejected, the model unknown. So the slot is kept until
    /// the body has been read or dropped. Only a refusal for too many calls that says when to come back is over with its head.
    pub fn record_response(&mut self, status: StatusCode, headers: &HeaderMap, now: SystemTime) {
        let info = read_head(status, headers, now);
        self.record_info(&info);
        let may_say_more = status.is_client_error() && info.completion.retry_after.is_none();
        if info.is_rate_limited() && !may_say_more {
            self.finish();
        } else if status.is_client_error() {
            self.error_response =
                Some(Box::new(ErrorResponse { info, headers: headers.clone(), now, body: Vec::new() }));
        }
    }

    /// Takes in a head that was read already, and keeps the slot in any case.
    pub fn record_info(&mut self, head: &ResponseInfo) {
        if let Some(slot) = &self.slot {
            slot.rate_limit_feedback(&head.corrections);
        }
        self.completion = head.completion;
    }

    /// A piece of the body of a refusal passes.
    fn push_body_data(&mut self, data: &impl Buf) {
        let Some(response) = &mut self.error_response else { return };
        let mut pieces = [IoSlice::new(&[]); MAX_CHUNKS_PER_FRAME];
        let count = data.chunks_vectored(&mut pieces);
        for piece in &pieces[..count] {
            response.body.extend_from_slice(piece);
        }
        if response.body.len() > MAX_ERROR_BODY_BYTES {
            // No error is as long.
            self.error_response = None;
        }
    }

    /// The whole body has passed.
    fn apply_error_body(&mut self) {
        if let Some(ErrorResponse { mut info, headers, now, body }) =
            self.error_response.take().map(|response| *response)
        {
            read_error_body(&body, &headers, now).refine(&mut info);
            self.completion = info.completion;
        }
    }

    /// Whether the slot has been given back.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.slot.is_none()
    }

    /// The answer came through whole.
    pub fn finish(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.finish(self.completion);
        }
    }

    /// The answer ended otherwise.
    pub fn finish_with(&mut self, completion: impl Into<Completion>) {
        self.completion = completion.into();
        self.finish();
    }

    /// The call ended so, and is made again if it failed in an outage: see [`CallPermit::finish_call`].
    pub fn finish_call(&mut self, completion: impl Into<Completion>) -> AfterCall {
        self.completion = completion.into();
        self.slot.take().map_or(AfterCall::Final, |slot| slot.finish_call(self.completion))
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        if self.completion.outcome != Outcome::Success {
            self.finish();
        }
        // A slot that is dropped counts as given up.
    }
}

/// Watches an answer go by, and has the last word on how its call ended.
pub trait BodyObserver<D> {
    /// A piece of the body passes.
    fn on_data(&mut self, data: &D) {
        let _ = data;
    }

    /// The answer has ended, and its call with it: so, unless this says otherwise. Told once; not at all for an answer
    /// that is dropped half-way, and for a refusal, whose call has ended before.
    fn on_end(&mut self, completion: Completion) -> Completion {
        completion
    }

    /// The answer of a success is dropped half-way, and its call given up: what it has used by then. `None` says that this is
    /// not known, and everything that the call reserved comes back.
    fn on_cancel(&mut self) -> Option<Usage> {
        None
    }
}

/// Nobody watches.
impl<D> BodyObserver<D> for () {}

pin_project! {
    /// A body that holds the slot of its call until its end: the end of the stream, an error, or its drop.
    ///
    /// Trailers with a `grpc-status` decide how the call ended.
    pub struct PermitBody<B, O = ()>
    where
        B: Body,
        O: BodyObserver<B::Data>,
    {
        #[pin]
        body: B,
        held: InFlightCall,
        outcome: fn(&B::Error) -> Outcome,
        observer: O,
    }

    impl<B, O> PinnedDrop for PermitBody<B, O>
    where
        B: Body,
        O: BodyObserver<B::Data>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.held.is_finished() || this.held.completion.outcome != Outcome::Success {
                return;
            }
            if let Some(used) = this.observer.on_cancel() {
                this.held.finish_with(Completion::from(Outcome::LocalCancelled).used(used));
            }
        }
    }
}

impl<B: Body> PermitBody<B> {
    /// Holds `held` for as long as `body` lasts; not at all if it is empty. A body that breaks is a provider failure.
    pub fn new(body: B, held: InFlightCall) -> Self {
        Self::with_error_outcome(body, held, |_| Outcome::ProviderFailure)
    }

    /// The same for a body whose errors mean what `outcome` says.
    pub fn with_error_outcome(body: B, held: InFlightCall, outcome: fn(&B::Error) -> Outcome) -> Self {
        Self::with_observer(body, held, outcome, ())
    }
}

impl<B: Body, O: BodyObserver<B::Data>> PermitBody<B, O> {
    /// The same for a body that `observer` watches.
    pub fn with_observer(body: B, held: InFlightCall, outcome: fn(&B::Error) -> Outcome, observer: O) -> Self {
        let mut this = Self { body, held, outcome, observer };
        if this.body.is_end_stream() {
            finish(&mut this.held, &mut this.observer);
        }
        this
    }
}

fn finish<D>(held: &mut InFlightCall, observer: &mut impl BodyObserver<D>) {
    if !held.is_finished() {
        held.apply_error_body();
        held.completion = observer.on_end(held.completion);
        held.finish();
    }
}

impl<B: Body, O: BodyObserver<B::Data>> Body for PermitBody<B, O> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            None => finish(this.held, this.observer),
            Some(Err(error)) => {
                // Of a refusal it is the head that counts then.
                if this.held.error_response.take().is_none() {
                    this.held.completion = (this.outcome)(error).into();
                }
                finish(this.held, this.observer);
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.held.push_body_data(data);
                    this.observer.on_data(data);
                }
                if let Some(completion) = frame.trailers_ref().and_then(read_grpc_status) {
                    this.held.completion = completion;
                }
                // Whoever reads by length does not come back for the end.
                if this.body.is_end_stream() {
                    finish(this.held, this.observer);
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

impl<B: Body + fmt::Debug, O: BodyObserver<B::Data>> fmt::Debug for PermitBody<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitBody").field("body", &self.body).field("held", &self.held).finish_non_exhaustive()
    }
}
