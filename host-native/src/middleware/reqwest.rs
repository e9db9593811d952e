//! Admission for `reqwest` clients, as a `reqwest-middleware`.
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
//! let answer = client.get("https://provider.example/v1/models").send().await?;
//! // The slot is held until here.
//! println!("{}", answer.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! A middleware that retries belongs before this one in the chain, so that each attempt is admitted. Status, headers and
//! body are read as by the [`tower`](crate::middleware::tower) layer; besides, a timeout of the client is a provider timeout, and of a refusal
//! the first part of its body is read before it is handed on, for at most 250 ms, so that what it says counts whoever reads it. A call
//! that was not admitted is an [`Error::Middleware`] that holds the [`Denial`](tidegate_core::request::Denial).

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

/// Admits every request of a client.
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
    /// Admits requests through `gate`, as the calls that `extractor` says they are.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor) }
    }
}

#[async_trait::async_trait]
impl<K: CallExtractor<Request> + Send + Sync + 'static> Middleware for AdmissionMiddleware<K> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response, Error> {
        let call = self.extractor.extract(&request);
        let slot = self.gate.acquire(&call).await.map_err(Error::middleware)?;
        let mut held = InFlightCall::new(slot);
        match next.run(request, extensions).await {
            Ok(answer) if answer.status().is_client_error() => Ok(peek_client_error(answer, held).await),
            Ok(answer) => Ok(with_permit_body(answer, held)),
            Err(error) => {
                held.finish_with(outcome(&error));
                Err(error)
            }
        }
    }
}

/// For a [`reqwest::Client`] behind the `tower` layer.
impl ResponseClassifier<Response, reqwest::Error> for HttpClassifier {
    type Response = Response;

    fn classify(&self, result: Result<Response, reqwest::Error>, slot: CallPermit) -> Result<Response, reqwest::Error> {
        match result {
            Ok(answer) => Ok(with_permit_body(answer, InFlightCall::new(slot))),
            Err(error) => {
                slot.finish(transport_error_outcome(&error));
                Err(error)
            }
        }
    }
}

/// The same answer with a body that holds the slot.
fn with_permit_body(answer: Response, mut held: InFlightCall) -> Response {
    held.record_response(answer.status(), answer.headers(), SystemTime::now());
    let url = answer.url().clone();
    let (parts, body) = http::Response::from(answer).into_parts();
    rebuild(url, parts, reqwest::Body::wrap(PermitBody::with_error_outcome(body, held, transport_error_outcome)))
}

/// The same refusal, which has given the slot back: the part of its body was read that is there soon, since it may say that the account
/// is empty, the key rejected or the model unknown.
async fn peek_client_error(answer: Response, mut held: InFlightCall) -> Response {
    let (url, now) = (answer.url().clone(), SystemTime::now());
    let (parts, body) = http::Response::from(answer).into_parts();
    let mut info = read_head(parts.status, &parts.headers, now);
    let body = PeekedBody::peek(body).await;
    if let Some(whole) = body.complete() {
        read_error_body(whole, &parts.headers, now).refine(&mut info);
    }
    held.record_info(&info);
    held.finish();
    rebuild(url, parts, reqwest::Body::wrap(body))
}

fn rebuild(url: reqwest::Url, parts: http::response::Parts, body: reqwest::Body) -> Response {
    // The address is kept apart from the other parts.
    let Ok(mut held) = http::Response::builder().url(url).body(body) else {
        unreachable!("an address is a valid part")
    };
    *held.status_mut() = parts.status;
    *held.version_mut() = parts.version;
    *held.headers_mut() = parts.headers;
    held.extensions_mut().extend(parts.extensions);
    held.into()
}

fn outcome(error: &Error) -> Outcome {
    match error {
        Error::Reqwest(error) if error.is_builder() => Outcome::Unexpected,
        Error::Reqwest(error) => transport_error_outcome(error),
        Error::Middleware(_) => Outcome::Unexpected,
    }
}
