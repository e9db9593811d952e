//! Admission as a `tower` layer, for any service.
//!
//! [`AdmissionLayer`] puts a [`RequestGate`] in front of a service. For each request:
//!
//! 1. A [`CallExtractor`], for example a closure, returns the [`Call`] that the request is: its model and
//!    tenant.
//! 2. The request waits for a permit, and then goes to the service.
//! 3. A [`ResponseClassifier`] derives from the result how the call ended. The default, [`HttpClassifier`],
//!    reads the status and headers of HTTP and gRPC responses. For other services, [`ResultClassifier`] uses
//!    [`Classify`].
//!
//! The permit of an HTTP call is held until the body of its response ends or is dropped: see [`PermitBody`].
//! A rate-limited response with a wait releases it at once. The body of another error response refines the
//! outcome, for example to an exhausted quota, if it is read to its end. Dropping the response future at any
//! moment removes the request from the queue or releases its permit.
//!
//! The layer is always ready. It polls the readiness of the inner service once a request has its permit, so a
//! waiting request reserves nothing in the inner service. Put a retry layer outside of this one, so that each
//! attempt is admitted.
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
//! // Your client. Here a function that returns the body of the request:
//! let client = service_fn(async |request: http::Request<String>| {
//!     Ok::<_, std::io::Error>(http::Response::new(request.into_body()))
//! });
//! let service = ServiceBuilder::new().layer(admission).service(client);
//! let response = service.oneshot(http::Request::new("hello".to_string())).await?;
//! # assert_eq!(response.status(), 200);
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
use std::time::{Duration as StdDuration, SystemTime};

use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_core::gate::{AcquireOwned, Classify};
use tidegate_core::request::{Denial, Outcome, Request};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::gate::{Call, CallPermit, RequestGate};
use crate::host::TokioHost;
use crate::http::{InFlightCall, PermitBody};

/// Determines which call a request is: the model that it calls, and the tenant that it is made for.
///
/// Implemented for closures `Fn(&R) -> Call`, and by [`FixedCall`].
pub trait CallExtractor<R> {
    /// Returns the call that `request` is.
    fn extract(&self, request: &R) -> Call;
}

impl<R, F: Fn(&R) -> Call> CallExtractor<R> for F {
    fn extract(&self, request: &R) -> Call {
        self(request)
    }
}

/// A [`CallExtractor`] that returns the same call for every request.
#[derive(Clone, Debug)]
pub struct FixedCall(pub Call);

impl<R> CallExtractor<R> for FixedCall {
    fn extract(&self, _request: &R) -> Call {
        self.0.clone()
    }
}

/// Determines from the result of a service how the call ended, and releases its permit, at once or later.
pub trait ResponseClassifier<T, E> {
    /// The response of the layered service.
    type Response;

    /// Classifies `result`, and finishes `permit` or moves it into the response.
    ///
    /// A permit that is dropped unfinished counts as a call that was cancelled locally.
    fn classify(&self, result: Result<T, E>, permit: CallPermit) -> Result<Self::Response, E>;
}

/// Classifies HTTP and gRPC responses by status and headers, and wraps their bodies in [`PermitBody`].
///
/// An error of the service is a provider failure. Errors of `reqwest` are classified further, as in the
/// module `reqwest`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpClassifier;

impl<B: Body, E> ResponseClassifier<http::Response<B>, E> for HttpClassifier {
    type Response = http::Response<PermitBody<B>>;

    fn classify(&self, result: Result<http::Response<B>, E>, permit: CallPermit) -> Result<Self::Response, E> {
        match result {
            Ok(response) => {
                let mut call = InFlightCall::new(permit);
                call.record_response(response.status(), response.headers(), SystemTime::now());
                Ok(response.map(|body| PermitBody::new(body, call)))
            }
            Err(error) => {
                permit.finish(Outcome::ProviderFailure);
                Err(error)
            }
        }
    }
}

/// Classifies results by their [`Classify`] implementation, and releases the permit at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultClassifier;

impl<T, E: Classify> ResponseClassifier<T, E> for ResultClassifier {
    type Response = T;

    fn classify(&self, result: Result<T, E>, permit: CallPermit) -> Result<T, E> {
        permit.finish(result.as_ref().map(|_| ()).completion());
        result
    }
}

/// A layer that admits requests through a [`RequestGate`]. See the [module documentation](self).
#[derive(Debug)]
pub struct AdmissionLayer<K, S = HttpClassifier> {
    gate: RequestGate,
    extractor: Arc<K>,
    classifier: S,
}

impl<K> AdmissionLayer<K> {
    /// Creates a layer that admits HTTP and gRPC requests through `gate`. `extractor` returns the call of
    /// each request.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor), classifier: HttpClassifier }
    }
}

impl<K, S> AdmissionLayer<K, S> {
    /// Returns the layer with another classifier, for services that are neither HTTP nor gRPC.
    ///
    /// ```
    /// use tidegate_core::gate::Classify;
    /// use tidegate_core::request::{Completion, Outcome};
    /// use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
    /// use tidegate_native::middleware::tower::{AdmissionLayer, FixedCall, ResultClassifier};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// #[derive(Debug)]
    /// struct Busy;
    ///
    /// impl Classify for Busy {
    ///     fn completion(&self) -> Completion {
    ///         Outcome::RateLimited.into()
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gate = RequestGate::new()?;
    /// let search = ResourceKey::new("internal", "search", "search".into());
    /// gate.register(&search, &Limits::at_most(4))?;
    ///
    /// let layer = AdmissionLayer::new(gate, FixedCall(Call::new(search))).with_classifier(ResultClassifier);
    /// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |query: &'static str| {
    ///     if query.is_empty() { Err(Busy) } else { Ok(query.len()) }
    /// }));
    /// assert_eq!(service.oneshot("tide").await.ok(), Some(4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_classifier<T>(self, classifier: T) -> AdmissionLayer<K, T> {
        AdmissionLayer { gate: self.gate, extractor: self.extractor, classifier }
    }
}

impl<K, S: Clone, Inner> Layer<Inner> for AdmissionLayer<K, S> {
    type Service = Admission<Inner, K, S>;

    fn layer(&self, inner: Inner) -> Self::Service {
        let Self { gate, extractor, classifier } = self.clone();
        Admission { inner, gate, extractor, classifier }
    }
}

/// Also for an extractor that cannot be cloned: clones share it.
impl<K, S: Clone> Clone for AdmissionLayer<K, S> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), extractor: Arc::clone(&self.extractor), classifier: self.classifier.clone() }
    }
}

/// A service whose requests are admitted through a gate. Created by [`AdmissionLayer`].
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

/// The error of an [`Admission`] service.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdmissionError<E> {
    /// The gate denied the call. The request was not sent.
    Denied(Denial),
    /// The inner service failed.
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
            Ok(admission) => State::Waiting { acquire: self.gate.core().acquire_owned(admission), admission },
            Err(denial) => State::Denied { denial },
        };
        ResponseFuture {
            state,
            since: Instant::now(),
            request: Some(request),
            inner: self.inner.clone(),
            gate: self.gate.clone(),
            classifier: self.classifier.clone(),
            marker: PhantomData,
        }
    }
}

pin_project! {
    /// The response future of an [`Admission`] service.
    pub struct ResponseFuture<Inner, R, S>
    where
        Inner: Service<R>,
    {
        #[pin]
        state: State<Inner::Future>,
        // When the request began to wait.
        since: Instant,
        // `None` once the call has started.
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
        Waiting { acquire: AcquireOwned<TokioHost>, admission: Request },
        // Has its permit, and waits until the inner service is ready.
        Admitted { permit: Option<CallPermit>, admission: Request },
        // Fields drop in order: a dropped call ends before its permit is released.
        Calling {
            #[pin]
            call: F,
            permit: Option<CallPermit>,
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
    /// Panics if it is polled again after it returned a result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Denied { denial } => return Poll::Ready(Err(AdmissionError::Denied(*denial))),
                StateProj::Waiting { acquire, admission } => match ready!(Pin::new(acquire).poll(context)) {
                    Ok(permit) => State::Admitted { permit: Some(permit), admission: *admission },
                    Err(denial) => return Poll::Ready(Err(AdmissionError::Denied(denial))),
                },
                StateProj::Admitted { permit, admission } => match ready!(this.inner.poll_ready(context)) {
                    // The lease of a shared limit can lapse while the inner service is not ready.
                    Ok(()) if permit.as_ref().is_some_and(|permit| !permit.may_send()) => {
                        drop(permit.take());
                        let timeout = this.gate.core().with(|machine, _| machine.timeout(admission));
                        let mut again = *admission;
                        // The deadline stays the same.
                        again.timeout =
                            timeout.map(|whole| StdDuration::from(whole).saturating_sub(this.since.elapsed()).into());
                        State::Waiting { acquire: this.gate.core().acquire_owned(again), admission: *admission }
                    }
                    Ok(()) => {
                        let Some(request) = this.request.take() else {
                            panic!("`ResponseFuture` was polled after it was ready")
                        };
                        State::Calling { call: this.inner.call(request), permit: permit.take() }
                    }
                    Err(error) => {
                        // No call was made: the permit is dropped, which counts as cancelled.
                        drop(permit.take());
                        return Poll::Ready(Err(AdmissionError::Service(error)));
                    }
                },
                StateProj::Calling { call, permit } => {
                    let result = ready!(call.poll(context));
                    let Some(permit) = permit.take() else { panic!("`ResponseFuture` was polled after it was ready") };
                    return Poll::Ready(this.classifier.classify(result, permit).map_err(AdmissionError::Service));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tidegate_core::limit::{CallReport, LimitAlgorithm};
    use tidegate_core::time::{Duration, Instant as CoreInstant};
    use tower::ServiceExt;

    use super::*;
    use crate::gate::{Limits, ResourceKey};

    /// A limit of one call. Once its lease has lapsed, no call starts.
    #[derive(Debug)]
    struct Leased(Arc<AtomicBool>);

    impl LimitAlgorithm for Leased {
        fn limit(&self, _now: CoreInstant) -> u32 {
            1
        }

        fn on_outcome(&mut self, _now: CoreInstant, _call: &CallReport) {}

        fn opens_at(&self, now: CoreInstant) -> Option<CoreInstant> {
            (!self.may_send(now)).then(|| now + Duration::from_secs(3_600))
        }

        fn may_send(&self, _now: CoreInstant) -> bool {
            !self.0.load(Ordering::Relaxed)
        }

        fn set_max(&mut self, _now: CoreInstant, _max: u32, _lifts: bool) {}
    }

    /// A service that is ready from an instant on.
    #[derive(Clone)]
    struct ReadyAt(Instant);

    impl Service<()> for ReadyAt {
        type Response = http::Response<String>;
        type Error = std::io::Error;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            if Instant::now() >= self.0 {
                return Poll::Ready(Ok(()));
            }
            let (ready_at, waker) = (self.0, context.waker().clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(ready_at).await;
                waker.wake();
            });
            Poll::Pending
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::ready(Ok(http::Response::default()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_lease_lapses_waits_again_until_the_same_deadline() {
        let (gate, key) = (RequestGate::new().unwrap(), ResourceKey::chat("provider", "writer"));
        let resource = gate.register(&key, &Limits::at_most(1)).unwrap();
        let has_lapsed = Arc::new(AtomicBool::new(false));
        let leased = Box::new(Leased(Arc::clone(&has_lapsed)));
        gate.core().with(|machine, now| machine.set_algorithm(now, resource, leased)).unwrap();
        let began = Instant::now();
        let call = FixedCall(Call::new(key).within(StdDuration::from_secs(5)));
        let service = AdmissionLayer::new(gate, call).layer(ReadyAt(began + StdDuration::from_secs(3)));
        let answer = tokio::spawn(service.oneshot(()));
        tokio::time::sleep(StdDuration::from_secs(1)).await;
        has_lapsed.store(true, Ordering::Relaxed);
        let error = answer.await.unwrap().err().unwrap();
        assert!(matches!(error, AdmissionError::Denied(_)), "{error}");
        assert_eq!(began.elapsed().as_secs(), 5, "in virtual time");
    }
}
