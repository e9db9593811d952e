//! Response bodies that hold the permit of their call until they end.
//!
//! 1. [`InFlightCall`] takes the permit when the call is made.
//! 2. [`InFlightCall::record_response`] records the status and headers of the response.
//! 3. [`PermitBody`] wraps its body and finishes the call when the body ends, fails or is dropped.

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

/// The number of bytes of an error body that are read. A longer body is not interpreted.
pub(super) const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// The number of chunks of one frame that are read. Bytes after them are not interpreted.
const MAX_CHUNKS_PER_FRAME: usize = 16;

/// A call that was sent: its permit, and how the call ends as far as that is known.
///
/// A call that is dropped before it is finished ends with the outcome that was recorded, if that is not a
/// success. Otherwise it counts as cancelled locally.
#[derive(Debug)]
#[must_use = "a call that is dropped counts as cancelled"]
pub struct InFlightCall {
    /// `None` once the call is finished.
    permit: Option<CallPermit>,
    completion: Completion,
    /// A response whose body may refine `completion`.
    error_response: Option<Box<ErrorResponse>>,
}

/// A 4xx response, and the part of its body that was read.
#[derive(Debug)]
struct ErrorResponse {
    info: ResponseInfo,
    headers: HeaderMap,
    now: SystemTime,
    body: Vec<u8>,
}

impl InFlightCall {
    /// Creates a call that holds `permit`. Until something else is recorded, it ends as a success.
    pub fn new(permit: CallPermit) -> Self {
        Self { permit: Some(permit), completion: Outcome::Success.into(), error_response: None }
    }

    /// Records the status and headers of the response, which arrived at wall-clock time `now`.
    ///
    /// A rate-limited response finishes the call at once, so that its cooldown applies before another call
    /// starts. The exception is a 4xx response without a wait: its body may refine the outcome, for example
    /// to an exhausted quota, a rejected key or a missing model. The permit of a 4xx response is therefore
    /// held until its body ends or is dropped.
    pub fn record_response(&mut self, status: StatusCode, headers: &HeaderMap, now: SystemTime) {
        let info = read_head(status, headers, now);
        self.record_info(&info);
        let is_body_needed = status.is_client_error() && info.completion.retry_after.is_none();
        if info.is_rate_limited() && !is_body_needed {
            self.finish();
        } else if status.is_client_error() {
            self.error_response =
                Some(Box::new(ErrorResponse { info, headers: headers.clone(), now, body: Vec::new() }));
        }
    }

    /// Records a response that the caller has interpreted. Never finishes the call.
    pub fn record_info(&mut self, info: &ResponseInfo) {
        if let Some(permit) = &self.permit {
            permit.rate_limit_feedback(&info.corrections);
        }
        self.completion = info.completion;
    }

    fn push_body_data(&mut self, data: &impl Buf) {
        let Some(response) = &mut self.error_response else { return };
        let mut chunks = [IoSlice::new(&[]); MAX_CHUNKS_PER_FRAME];
        let count = data.chunks_vectored(&mut chunks);
        for chunk in &chunks[..count] {
            response.body.extend_from_slice(chunk);
        }
        if response.body.len() > MAX_ERROR_BODY_BYTES {
            self.error_response = None;
        }
    }

    /// Refines the outcome by the error body, which is complete.
    fn apply_error_body(&mut self) {
        if let Some(ErrorResponse { mut info, headers, now, body }) =
            self.error_response.take().map(|response| *response)
        {
            read_error_body(&body, &headers, now).refine(&mut info);
            self.completion = info.completion;
        }
    }

    /// Records that the request is sent. If the call is dropped before its response arrives, it then keeps
    /// `estimate` of its reservation, because the provider may process the request nevertheless.
    pub fn record_sent(&mut self, estimate: Usage) {
        self.completion = Completion::from(Outcome::LocalCancelled).used(estimate);
    }

    /// Returns whether the call is finished, and its permit released.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.permit.is_none()
    }

    /// Finishes the call with the recorded outcome. Does nothing if it is finished already.
    pub fn finish(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.finish(self.completion);
        }
    }

    /// Finishes the call with `completion`. Does nothing if it is finished already.
    pub fn finish_with(&mut self, completion: impl Into<Completion>) {
        self.completion = completion.into();
        self.finish();
    }

    /// Finishes the call with `completion`, and returns whether to repeat it. For a caller that repeats calls
    /// which failed in an outage: see [`finish_call`](tidegate_core::gate::PermitOf::finish_call).
    pub fn finish_call(&mut self, completion: impl Into<Completion>) -> AfterCall {
        self.completion = completion.into();
        self.permit.take().map_or(AfterCall::Final, |permit| permit.finish_call(self.completion))
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        if self.completion.outcome != Outcome::Success {
            self.finish();
        }
        // Otherwise the drop of the permit counts as a local cancellation.
    }
}

/// Observes the body of a response, and decides how its call ends. All methods have a default.
pub trait BodyObserver<D> {
    /// Observes a data frame of the body.
    fn on_data(&mut self, data: &D) {
        let _ = data;
    }

    /// Returns how the call ends, now that its body has ended or failed. The default is `completion`.
    ///
    /// Called at most once. It is not called for a body that is dropped before its end, nor for a call that
    /// was finished before its body, such as a rate-limited one.
    fn on_end(&mut self, completion: Completion) -> Completion {
        completion
    }

    /// Returns the usage of a successful call whose body is dropped before its end. The call is then charged
    /// for this usage. The default, `None`, means that the usage is unknown: everything that the call
    /// reserved in its budgets is returned to them.
    fn on_cancel(&mut self) -> Option<Usage> {
        None
    }
}

/// Observes nothing.
impl<D> BodyObserver<D> for () {}

pin_project! {
    /// A body that holds the permit of its call until the stream ends, fails or is dropped.
    ///
    /// Trailers with a `grpc-status` decide how the call ended. The body of an error refines the outcome if
    /// it is read to its end: see [`InFlightCall::record_response`].
    pub struct PermitBody<B, O = ()>
    where
        B: Body,
        O: BodyObserver<B::Data>,
    {
        #[pin]
        body: B,
        call: InFlightCall,
        error_outcome: fn(&B::Error) -> Outcome,
        observer: O,
    }

    impl<B, O> PinnedDrop for PermitBody<B, O>
    where
        B: Body,
        O: BodyObserver<B::Data>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.call.is_finished() || this.call.completion.outcome != Outcome::Success {
                return;
            }
            if let Some(used) = this.observer.on_cancel() {
                this.call.finish_with(Completion::from(Outcome::LocalCancelled).used(used));
            }
        }
    }
}

impl<B: Body> PermitBody<B> {
    /// Creates a body that holds the permit of `call`. An error of `body` is a provider failure.
    ///
    /// The call is finished at once if `body` is already at its end.
    pub fn new(body: B, call: InFlightCall) -> Self {
        Self::with_error_outcome(body, call, |_| Outcome::ProviderFailure)
    }

    /// Creates a body whose errors have the outcome that `error_outcome` returns.
    pub fn with_error_outcome(body: B, call: InFlightCall, error_outcome: fn(&B::Error) -> Outcome) -> Self {
        Self::with_observer(body, call, error_outcome, ())
    }
}

impl<B: Body, O: BodyObserver<B::Data>> PermitBody<B, O> {
    /// Creates a body that `observer` observes, and whose errors have the outcome that `error_outcome`
    /// returns.
    pub fn with_observer(body: B, call: InFlightCall, error_outcome: fn(&B::Error) -> Outcome, observer: O) -> Self {
        let mut this = Self { body, call, error_outcome, observer };
        if this.body.is_end_stream() {
            finish(&mut this.call, &mut this.observer);
        }
        this
    }
}

fn finish<D>(call: &mut InFlightCall, observer: &mut impl BodyObserver<D>) {
    if !call.is_finished() {
        call.apply_error_body();
        call.completion = observer.on_end(call.completion);
        call.finish();
    }
}

impl<B: Body, O: BodyObserver<B::Data>> Body for PermitBody<B, O> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            None => finish(this.call, this.observer),
            Some(Err(error)) => {
                // An error response keeps the outcome of its head, which is known, when its body fails.
                if this.call.error_response.take().is_none() {
                    this.call.completion = (this.error_outcome)(error).into();
                }
                finish(this.call, this.observer);
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.call.push_body_data(data);
                    this.observer.on_data(data);
                }
                if let Some(completion) = frame.trailers_ref().and_then(read_grpc_status) {
                    this.call.completion = completion;
                }
                // A reader that counts bytes does not poll again after the last frame.
                if this.body.is_end_stream() {
                    finish(this.call, this.observer);
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
        f.debug_struct("PermitBody").field("body", &self.body).field("call", &self.call).finish_non_exhaustive()
    }
}
