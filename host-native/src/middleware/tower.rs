//! Admission as a `tower` layer, for whatever service.
//!
//! [`AdmissionLayer`] puts a [`RequestGate`] before a service. For each request a [`CallExtractor`] says which resource it
//! calls and for whom; the request waits for its turn, goes to the service, and a [`ResponseClassifier`] reads the result: the status
//! and headers of HTTP and gRPC by default ([`HttpClassifier`]), or [`Classify`] for services that are neither ([`ResultClassifier`]).
//!
//! The slot of an HTTP call is held until the body of its answer ends ([`PermitBody`]), and given back when that is dropped. What the
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
//!     let call = Call::new(key.clone());
//!     match request.headers().get("x-tenant").and_then(|name| name.to_str().ok()) {
//!         Some(tenant) => call.for_tenant(tenant),
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
use tidegate_core::request::{Denial, Outcome};
use tower_layer::Layer;
use tower_service::Service;

use crate::gate::{Call, CallPermit, RequestGate};
use crate::host::TokioHost;
use crate::http::{InFlightCall, PermitBody};

/// Says what a request calls, and for whom.
pub trait CallExtractor<R> {
    /// The call that `request` is.
    fn extract(&self, request: &R) -> Call;
}

impl<R, F: Fn(&R) -> Call> CallExtractor<R> for F {
    fn extract(&self, request: &R) -> Call {
        self(request)
    }
}

/// Every request is the same call.
#[derive(Clone, Debug)]
pub struct FixedCall(pub Call);

impl<R> CallExtractor<R> for FixedCall {
    fn extract(&self, _request: &R) -> Call {
        self.0.clone()
    }
}

/// Reads from a result how the call ended, and gives its slot back then or later.
pub trait ResponseClassifier<T, E> {
    /// What the caller gets for the service's response.
    type Response;

    /// Takes charge of `slot`.
    fn classify(&self, result: Result<T, E>, slot: CallPermit) -> Result<Self::Response, E>;
}

/// Answers of HTTP and gRPC: read by [`ResponseInfo`](crate::http::ResponseInfo), held by [`PermitBody`]. An error of the service is a provider failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpClassifier;

impl<B: Body, E> ResponseClassifier<http::Response<B>, E> for HttpClassifier {
    type Response = http::Response<PermitBody<B>>;

    fn classify(&self, result: Result<http::Response<B>, E>, slot: CallPermit) -> Result<Self::Response, E> {
        match result {
            Ok(answer) => {
                let mut held = InFlightCall::new(slot);
                held.record_response(answer.status(), answer.headers(), SystemTime::now());
                Ok(answer.map(|body| PermitBody::new(body, held)))
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
pub struct ResultClassifier;

impl<T, E: Classify> ResponseClassifier<T, E> for ResultClassifier {
    type Response = T;

    fn classify(&self, result: Result<T, E>, slot: CallPermit) -> Result<T, E> {
        slot.finish(result.as_ref().map(|_| ()).completion());
        result
    }
}

/// Puts a gate before a service.
#[derive(Clone, Debug)]
pub struct AdmissionLayer<K, S = HttpClassifier> {
    gate: RequestGate,
    extractor: Arc<K>,
    classifier: S,
}

impl<K> AdmissionLayer<K> {
    /// Admits HTTP and gRPC requests through `gate`, as the calls that `extractor` says they are.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor), classifier: HttpClassifier }
    }
}

impl<K, S> AdmissionLayer<K, S> {
    /// The same with results read by `classifier`.
    pub fn with_classifier<T>(self, classifier: T) -> AdmissionLayer<K, T> {
        AdmissionLayer { gate: self.gate, extractor: self.extractor, classifier }
    }
}

impl<K, S: Clone, Inner> Layer<Inner> for AdmissionLayer<K, S> {
    type Service = Admission<Inner, K, S>;

    fn layer(&self, inner: Inner) -> Self::Service {
        let Self { gate, extractor, classifier } = self.clone_parts();
        Admission { inner, gate, extractor, classifier }
    }
}

impl<K, S: Clone> AdmissionLayer<K, S> {
    /// A clone that asks nothing of the extractor.
    fn clone_parts(&self) -> Self {
        Self { gate: self.gate.clone(), extractor: Arc::clone(&self.extractor), classifier: self.classifier.clone() }
    }
}

/// A service behind a gate. Made by [`AdmissionLayer`].
#[derive(Debug)]
pub struct Admission<Inner, K, S = HttpClassifier> {
    inner: Inner,
    gate: RequestGate,
    extractor: Arc<K>,
    classifier: S,
}

impl<Inner: Clone, K, S: Clone> Clone for Admission<Inner, K, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: self.gate.clone(),
            extractor: Arc::clone(&self.extractor),
            classifier: self.classifier.clone(),
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub enum AdmissionError<E> {
    /// The request was never let out.
    Denied(Denial),
    /// The service failed.
    Service(E),
}

impl<E: fmt::Display> fmt::Display for AdmissionError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => write!(f, "not admitted: {denial}"),
            Self::Service(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for AdmissionError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Denied(denial) => Some(denial),
            Self::Service(error) => error.source(),
        }
    }
}

impl<R, Inner, K, S> Service<R> for Admission<Inner, K, S>
where
    Inner: Service<R> + Clone,
    K: CallExtractor<R>,
    S: ResponseClassifier<Inner::Response, Inner::Error> + Clone,
{
    type Response = S::Response;
    type Error = AdmissionError<Inner::Error>;
    type Future = ResponseFuture<Inner, R, S>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let state = match self.gate.request(&self.extractor.extract(&request)) {
            Ok(call) => State::Waiting { acquire: self.gate.core().acquire_owned(call) },
            Err(denial) => State::Denied { denial },
        };
        ResponseFuture {
            state,
            request: Some(request),
            inner: self.inner.clone(),
            gate: self.gate.clone(),
            classifier: self.classifier.clone(),
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
        state: State<Inner::Future>,
        // Taken when the call begins.
        request: Option<R>,
        inner: Inner,
        gate: RequestGate,
        classifier: S,
        marker: PhantomData<fn(R)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Denied { denial: Denial },
        Waiting { acquire: AcquireOwned<TokioHost> },
        // Has a slot; the service may not be ready yet.
        Admitted { slot: Option<CallPermit> },
        Calling {
            #[pin]
            call: F,
            slot: Option<CallPermit>,
        },
    }
}

impl<Inner, R, S> Future for ResponseFuture<Inner, R, S>
where
    Inner: Service<R>,
    S: ResponseClassifier<Inner::Response, Inner::Error>,
{
    type Output = Result<S::Response, AdmissionError<Inner::Error>>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Denied { denial } => return Poll::Ready(Err(AdmissionError::Denied(*denial))),
                StateProj::Waiting { acquire } => match ready!(Pin::new(acquire).poll(context)) {
                    Ok(permit) => State::Admitted { slot: Some(permit) },
                    Err(denial) => return Poll::Ready(Err(AdmissionError::Denied(denial))),
                },
                StateProj::Admitted { slot } => match ready!(this.inner.poll_ready(context)) {
                    Ok(()) => {
                        let Some(request) = this.request.take() else { panic!("polled after it was ready") };
                        State::Calling { call: this.inner.call(request), slot: slot.take() }
                    }
                    Err(error) => {
                        // The call was never made.
                        drop(slot.take());
                        return Poll::Ready(Err(AdmissionError::Service(error)));
                    }
                },
                StateProj::Calling { call, slot } => {
                    let result = ready!(call.poll(context));
                    let Some(slot) = slot.take() else { panic!("polled after it was ready") };
                    return Poll::Ready(this.classifier.classify(result, slot).map_err(AdmissionError::Service));
                }
            };
            this.state.set(next);
        }
    }
}

impl<Inner: Service<R>, R, S> fmt::Debug for ResponseFuture<Inner, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
