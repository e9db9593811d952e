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
//!     .with(AdmissionMiddleware::new(gate, move |_: &reqwest::Request| Call::of(key.clone())))
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

use crate::gate::{Admitted, RequestGate};
use crate::http::refusal_body::RefusalBody;
use crate::http::{Held, HeldBody, of_transport_error, read_error, read_head};
use crate::middleware::tower::{HttpAnswers, KeyExtractor, Settle};

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

impl<K: KeyExtractor<Request>> AdmissionMiddleware<K> {
    /// Admits requests through `gate`, as the calls that `extractor` says they are.
    pub fn new(gate: RequestGate, extractor: K) -> Self {
        Self { gate, extractor: Arc::new(extractor) }
    }
}

#[async_trait::async_trait]
impl<K: KeyExtractor<Request> + Send + Sync + 'static> Middleware for AdmissionMiddleware<K> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response, Error> {
        let call = self.extractor.call(&request);
        let slot = self.gate.acquire(&call).await.map_err(Error::middleware)?;
        let mut held = Held::new(slot);
        match next.run(request, extensions).await {
            Ok(answer) if answer.status().is_client_error() => Ok(read_refusal(answer, held).await),
            Ok(answer) => Ok(hold(answer, held)),
            Err(error) => {
                held.end_as(outcome(&error));
                Err(error)
            }
        }
    }
}

/// For a [`reqwest::Client`] behind the `tower` layer.
impl Settle<Response, reqwest::Error> for HttpAnswers {
    type Response = Response;

    fn settle(&self, result: Result<Response, reqwest::Error>, slot: Admitted) -> Result<Response, reqwest::Error> {
        match result {
            Ok(answer) => Ok(hold(answer, Held::new(slot))),
            Err(error) => {
                slot.finish(of_transport_error(&error));
                Err(error)
            }
        }
    }
}

/// The same answer with a body that holds the slot.
fn hold(answer: Response, mut held: Held) -> Response {
    held.read_head(answer.status(), answer.headers(), SystemTime::now());
    let url = answer.url().clone();
    let (parts, body) = http::Response::from(answer).into_parts();
    put_together(url, parts, reqwest::Body::wrap(HeldBody::with_errors(body, held, of_transport_error)))
}

/// The same refusal, which has given the slot back: the part of its body was read that is there soon, since it may say that the account
/// is empty, the key refused or the model unknown.
async fn read_refusal(answer: Response, mut held: Held) -> Response {
    let (url, now) = (answer.url().clone(), SystemTime::now());
    let (parts, body) = http::Response::from(answer).into_parts();
    let mut info = read_head(parts.status, &parts.headers, now);
    let body = RefusalBody::read(body).await;
    if let Some(whole) = body.whole() {
        read_error(whole, &parts.headers, now).refine(&mut info);
    }
    held.read_part(&info);
    held.end();
    put_together(url, parts, reqwest::Body::wrap(body))
}

fn put_together(url: reqwest::Url, parts: http::response::Parts, body: reqwest::Body) -> Response {
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
        Error::Reqwest(error) => of_transport_error(error),
        Error::Middleware(_) => Outcome::Unexpected,
    }
}
