//! Admission for `reqwest` clients, as a middleware of `reqwest-middleware`.
//!
//! ```no_run
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//! use tidegate_native::middleware::reqwest::AdmissionMiddleware;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let key = ResourceKey::chat("provider", "writer");
//! gate.register(&key, &Limits::at_most(8))?;
//!
//! let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
//!     .with(AdmissionMiddleware::new(gate, move |_: &reqwest::Request| Call::new(key.clone())))
//!     .build();
//! let response = client.get("https://provider.example/v1/models").send().await?;
//! // The permit is held until the body is read.
//! println!("{}", response.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! Responses are classified as by the [`tower`](crate::middleware::tower) layer, with two differences:
//!
//! - The error of a call that brought no response is classified further: a timeout of the client is a
//!   provider timeout, and a connection that cannot be made is a failed connection, or an error of TLS if
//!   each retry would repeat it, such as that of a certificate that is not accepted or of a server without
//!   TLS. A request that cannot be built, or that another middleware fails, is unexpected and does not count
//!   against the provider.
//! - The body of a 4xx response is read before the response is returned, for at most 250 ms and 64 KiB, so
//!   that it refines the outcome even if the caller never reads it. The caller still gets the whole body.
//!
//! A denied call is an [`Error::Middleware`] that contains the [`Denial`](tidegate_core::request::Denial).
//! Add a middleware that retries before this one, so that each attempt is admitted.

use std::sync::Arc;
use std::time::SystemTime;

use http::Extensions;
use reqwest::{Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next};
use tidegate_core::request::Outcome;

use crate::gate::{CallPermit, RequestGate};
use crate::http::peeked_body::PeekedBody;
use crate::http::{InFlightCall, PermitBody, read_error_body, read_head, transport_error_outcome};
use crate::middleware::tower::{CallExtractor, HttpClassifier, ResponseClassifier};

/// A middleware that admits the requests of a client through a [`RequestGate`]. See the
/// [module documentation](self).
#[derive(Debug)]
pub struct AdmissionMiddleware<K> {
    gate: RequestGate,
    extractor: Arc<K>,
}

impl<K> Clone for AdmissionMiddleware<K> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), extractor: Arc::clone(&self.extractor) }
    }
}

impl<K: CallExtractor<Request>> AdmissionMiddleware<K> {
    /// Creates a middleware that admits requests through `gate`. `extractor` returns the call of each
    /// request.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor) }
    }
}

#[async_trait::async_trait]
impl<K: CallExtractor<Request> + Send + Sync + 'static> Middleware for AdmissionMiddleware<K> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response, Error> {
        let permit = self.gate.acquire(&self.extractor.extract(&request)).await.map_err(Error::middleware)?;
        let mut call = InFlightCall::new(permit);
        match next.run(request, extensions).await {
            Ok(response) if response.status().is_client_error() => Ok(finish_client_error(response, call).await),
            Ok(response) => Ok(with_permit_body(response, call)),
            Err(error) => {
                call.finish_with(error_outcome(&error));
                Err(error)
            }
        }
    }
}

/// For a [`reqwest::Client`] inside the `tower` layer.
impl ResponseClassifier<Response, reqwest::Error> for HttpClassifier {
    type Response = Response;

    fn classify(
        &self,
        result: Result<Response, reqwest::Error>,
        permit: CallPermit,
    ) -> Result<Response, reqwest::Error> {
        match result {
            Ok(response) => Ok(with_permit_body(response, InFlightCall::new(permit))),
            Err(error) => {
                permit.finish(transport_error_outcome(&error));
                Err(error)
            }
        }
    }
}

/// Returns the response with a body that holds the permit.
fn with_permit_body(response: Response, mut call: InFlightCall) -> Response {
    call.record_response(response.status(), response.headers(), SystemTime::now());
    let url = response.url().clone();
    let (parts, body) = http::Response::from(response).into_parts();
    rebuild(url, parts, reqwest::Body::wrap(PermitBody::with_error_outcome(body, call, transport_error_outcome)))
}

/// Finishes the call of a 4xx response by its head and the first part of its body, and returns the response
/// with its whole body.
async fn finish_client_error(response: Response, mut call: InFlightCall) -> Response {
    let (url, now) = (response.url().clone(), SystemTime::now());
    let (parts, body) = http::Response::from(response).into_parts();
    let mut info = read_head(parts.status, &parts.headers, now);
    let body = PeekedBody::peek(body).await;
    if let Some(whole) = body.complete() {
        read_error_body(whole, &parts.headers, now).refine(&mut info);
    }
    call.record_info(&info);
    call.finish();
    rebuild(url, parts, reqwest::Body::wrap(body))
}

fn rebuild(url: reqwest::Url, parts: http::response::Parts, body: reqwest::Body) -> Response {
    // `reqwest` keeps the URL in an extension that only its own builder can set.
    let Ok(mut response) = http::Response::builder().url(url).body(body) else {
        unreachable!("a URL is a valid part of a response")
    };
    *response.status_mut() = parts.status;
    *response.version_mut() = parts.version;
    *response.headers_mut() = parts.headers;
    response.extensions_mut().extend(parts.extensions);
    response.into()
}

fn error_outcome(error: &Error) -> Outcome {
    match error {
        Error::Reqwest(error) if error.is_builder() => Outcome::Unexpected,
        Error::Reqwest(error) => transport_error_outcome(error),
        Error::Middleware(_) => Outcome::Unexpected,
    }
}
