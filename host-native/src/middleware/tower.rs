//! Admission as a `tower` layer, for whatever service.
//!
//! [`AdmissionLayer`] puts a [`RequestGate`] before a service. For each request a [`KeyExtractor`] says which resource it
//! calls and for whom; the request waits for its turn, goes to the service, and a [`Settle`] reads the result: the status
//! and headers of HTTP and gRPC by default ([`HttpAnswers`]), or [`Classify`] for services that are neither ([`Classified`]).
//!
//! The slot of an HTTP call is held until the body of its answer ends ([`HeldBody`]), and given back when that is dropped. What the
//! body of an error says, such as that the account is empty, counts if it is read; a 429 that says when to come back is over with its head.
//! Dropping the response future at any moment gives up the place in the queue or the slot.
//!
//! The layer is always ready, and the service below is asked whether it is only once a request has its slot: nothing
//! below is reserved by a request that waits. A retry layer belongs above this one, so that each attempt is admitted.
//!
//! ```
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//! use tidegate_native::middleware::tower::AdmissionLayer;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let key = ResourceKey::chat("provider", "writer");
//! gate.register(&key, &Limits::at_most(8))?;
//!
//! let admission = AdmissionLayer::new(gate, move |request: &http::Request<String>| {
//!     let call = Call::of(key.clone());
//!     match request.headers().get("x-tenant").and_then(|name| name.to_str().ok()) {
//!         Some(tenant) => call.tenant(tenant),
//!         None => call,
//!     }
//! });
//! let service = ServiceBuilder::new().layer(admission).service(service_fn(async |request: http::Request<String>| {
//!     Ok::<_, std::io::Error>(http::Response::new(request.into_body()))
//! }));
//! let answer = service.oneshot(http::Request::new("hello".to_string())).await?;
//! # assert_eq!(answer.status(), 200);
//! # Ok(())
//! # }
//! ```

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_core::gate::{AcquireOwned, Classify};
use tidegate_core::request::{Denial, Outcome, ResourceId};
use tower_layer::Layer;
use tower_service::Service;

use crate::gate::{Admitted, Call, RequestGate};
use crate::host::TokioHost;
use crate::http::{Held, HeldBody};

/// Says what a request calls, and for whom.
pub trait KeyExtractor<R> {
    /// The call that `request` is.
    fn call(&self, request: &R) -> Call;
}

impl<R, F: Fn(&R) -> Call> KeyExtractor<R> for F {
    fn call(&self, request: &R) -> Call {
        self(request)
    }
}

/// Every request is the same call.
#[derive(Clone, Debug)]
pub struct Always(pub Call);

impl<R> KeyExtractor<R> for Always {
    fn call(&self, _request: &R) -> Call {
        self.0.clone()
    }
}

/// Reads from a result how the call ended, and gives its slot back then or later.
pub trait Settle<T, E> {
    /// What the caller gets for the service's response.
    type Response;

    /// Takes charge of `slot`.
    fn settle(&self, result: Result<T, E>, slot: Admitted) -> Result<Self::Response, E>;
}

/// Answers of HTTP and gRPC: read by [`ResponseInfo`](crate::http::ResponseInfo), held by [`HeldBody`]. An error of the service is a provider failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpAnswers;

impl<B: Body, E> Settle<http::Response<B>, E> for HttpAnswers {
    type Response = http::Response<HeldBody<B>>;

    fn settle(&self, result: Result<http::Response<B>, E>, slot: Admitted) -> Result<Self::Response, E> {
        match result {
            Ok(answer) => {
                let mut held = Held::new(slot);
                held.read_head(answer.status(), answer.headers(), SystemTime::now());
                Ok(answer.map(|body| HeldBody::new(body, held)))
            }
            Err(error) => {
                slot.finish(Outcome::ProviderFailure);
                Err(error)
            }
        }
    }
}

/// Results that say themselves how the call ended; the slot is given back at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classified;

impl<T, E: Classify> Settle<T, E> for Classified {
    type Response = T;

    fn settle(&self, result: Result<T, E>, slot: Admitted) -> Result<T, E> {
        slot.finish(result.as_ref().map(|_| ()).completion());
        result
    }
}

/// Puts a gate before a service.
#[derive(Clone, Debug)]
pub struct AdmissionLayer<K, S = HttpAnswers> {
    gate: RequestGate,
    extractor: Arc<K>,
    settle: S,
}

impl<K> AdmissionLayer<K> {
    /// Admits HTTP and gRPC requests through `gate`, as the calls that `extractor` says they are.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor), settle: HttpAnswers }
    }
}

impl<K, S> AdmissionLayer<K, S> {
    /// The same with results read by `settle`.
    pub fn settled_by<T>(self, settle: T) -> AdmissionLayer<K, T> {
        AdmissionLayer { gate: self.gate, extractor: self.extractor, settle }
    }
}

impl<K, S: Clone, Inner> Layer<Inner> for AdmissionLayer<K, S> {
    type Service = Admission<Inner, K, S>;

    fn layer(&self, inner: Inner) -> Self::Service {
        let Self { gate, extractor, settle } = self.clone_parts();
        Admission { inner, gate, extractor, settle }
    }
}

impl<K, S: Clone> AdmissionLayer<K, S> {
    /// A clone that asks nothing of the extractor.
    fn clone_parts(&self) -> Self {
        Self { gate: self.gate.clone(), extractor: Arc::clone(&self.extractor), settle: self.settle.clone() }
    }
}

/// A service behind a gate. Made by [`AdmissionLayer`].
#[derive(Debug)]
pub struct Admission<Inner, K, S = HttpAnswers> {
    inner: Inner,
    gate: RequestGate,
    extractor: Arc<K>,
    settle: S,
}

impl<Inner: Clone, K, S: Clone> Clone for Admission<Inner, K, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: self.gate.clone(),
            extractor: Arc::clone(&self.extractor),
            settle: self.settle.clone(),
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub enum AdmissionError<E> {
    /// The request was never let out.
    NotAdmitted(Denial),
    /// The service failed.
    Service(E),
}

impl<E: fmt::Display> fmt::Display for AdmissionError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted(denial) => write!(f, "not admitted: {denial}"),
            Self::Service(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for AdmissionError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotAdmitted(denial) => Some(denial),
            Self::Service(error) => error.source(),
        }
    }
}

impl<R, Inner, K, S> Service<R> for Admission<Inner, K, S>
where
    Inner: Service<R> + Clone,
    K: KeyExtractor<R>,
    S: Settle<Inner::Response, Inner::Error> + Clone,
{
    type Response = S::Response;
    type Error = AdmissionError<Inner::Error>;
    type Future = ResponseFuture<Inner, R, S>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let stage = match self.gate.request(&self.extractor.call(&request)) {
            Ok(call) => Stage::Waiting { acquire: self.gate.core().acquire_owned(call), resource: call.resource },
            Err(denial) => Stage::Refused { denial },
        };
        ResponseFuture {
            stage,
            request: Some(request),
            inner: self.inner.clone(),
            gate: self.gate.clone(),
            settle: self.settle.clone(),
            marker: PhantomData,
        }
    }
}

pin_project! {
    /// The response of an [`Admission`].
    pub struct ResponseFuture<Inner, R, S>
    where
        Inner: Service<R>,
    {
        // Before the slot: the call is over before its slot is another's.
        #[pin]
        stage: Stage<Inner::Future>,
        // Taken when the call begins.
        request: Option<R>,
        inner: Inner,
        gate: RequestGate,
        settle: S,
        marker: PhantomData<fn(R)>,
    }
}

pin_project! {
    #[project = StageNow]
    enum Stage<F> {
        Refused { denial: Denial },
        Waiting { acquire: AcquireOwned<TokioHost>, resource: ResourceId },
        // Has a slot; the service may not be ready yet.
        Admitted { slot: Option<Admitted> },
        Calling {
            #[pin]
            call: F,
            slot: Option<Admitted>,
        },
    }
}

impl<Inner, R, S> Future for ResponseFuture<Inner, R, S>
where
    Inner: Service<R>,
    S: Settle<Inner::Response, Inner::Error>,
{
    type Output = Result<S::Response, AdmissionError<Inner::Error>>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageNow::Refused { denial } => return Poll::Ready(Err(AdmissionError::NotAdmitted(*denial))),
                StageNow::Waiting { acquire, resource } => match ready!(Pin::new(acquire).poll(context)) {
                    Ok(permit) => Stage::Admitted { slot: Some(Admitted::new(permit, *resource)) },
                    Err(denial) => return Poll::Ready(Err(AdmissionError::NotAdmitted(denial))),
                },
                StageNow::Admitted { slot } => match ready!(this.inner.poll_ready(context)) {
                    Ok(()) => {
                        let Some(request) = this.request.take() else { panic!("polled after it was ready") };
                        Stage::Calling { call: this.inner.call(request), slot: slot.take() }
                    }
                    Err(error) => {
                        // The call was never made.
                        drop(slot.take());
                        return Poll::Ready(Err(AdmissionError::Service(error)));
                    }
                },
                StageNow::Calling { call, slot } => {
                    let result = ready!(call.poll(context));
                    let Some(slot) = slot.take() else { panic!("polled after it was ready") };
                    return Poll::Ready(this.settle.settle(result, slot).map_err(AdmissionError::Service));
                }
            };
            this.stage.set(next);
        }
    }
}

impl<Inner: Service<R>, R, S> fmt::Debug for ResponseFuture<Inner, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
