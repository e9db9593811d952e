//! Interpretation of HTTP and gRPC responses, and bodies that hold the permit of their call.
//!
//! The rules are in the core, in [`response`]; this module supplies headers, dates and parsed error bodies:
//!
//! - [`read_head`] interprets status and headers, [`read_error_body`] and [`error_in_success`] the body of an
//!   error, and [`read_grpc_status`] the status of a gRPC call.
//! - A call is in flight until its body has ended. [`PermitBody`] wraps the body of a response, also of a
//!   streamed one, and releases the permit at its end or when it is dropped.
//!
//! The module `middleware` does all this by itself. A client without middleware can do it by hand:
//!
//! ```
//! use std::time::SystemTime;
//! use http_body_util::BodyExt;
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//! use tidegate_native::http::{InFlightCall, PermitBody};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let key = ResourceKey::chat("provider", "writer");
//! gate.register(&key, &Limits::at_most(8))?;
//!
//! let mut call = InFlightCall::new(gate.acquire(&Call::new(key.clone())).await?);
//! // The response of the HTTP client:
//! let response = http::Response::new(http_body_util::Full::new(bytes::Bytes::from("an answer")));
//! call.record_response(response.status(), response.headers(), SystemTime::now());
//! let body = PermitBody::new(response.into_body(), call);
//!
//! assert_eq!(gate.snapshot(&key).map(|state| state.in_flight), Some(1));
//! let answer = body.collect().await?.to_bytes();
//! assert_eq!(gate.snapshot(&key).map(|state| state.in_flight), Some(0));
//! # assert_eq!(answer, "an answer");
//! # Ok(())
//! # }
//! ```

pub mod body;
mod error_body;
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
pub(crate) mod peeked_body;
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
pub(crate) mod transport_error;

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue, StatusCode};
use tidegate_core::request::Completion;
use tidegate_core::request::response::{self, Headers};
use tidegate_core::time::Duration;

pub use body::{BodyObserver, InFlightCall, PermitBody};
pub use error_body::{error_in_success, read_error_body};
pub use tidegate_core::request::response::{ErrorBody, ResponseInfo};
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
pub(crate) use transport_error::transport_error_outcome;

/// Interprets the status and headers of a response.
///
/// `now` is the wall-clock time at which the response arrived. Dates in its headers count from its `Date`
/// header, or from `now` if it has none.
#[must_use]
pub fn read_head(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> ResponseInfo {
    ResponseInfo::read(status.as_u16(), &HeaderLookup::new(headers, now))
}

/// Returns how a gRPC call ended, from the headers of a response without a body or from its trailers. Returns
/// `None` if `metadata` has no `grpc-status`.
#[must_use]
pub fn read_grpc_status(metadata: &HeaderMap) -> Option<Completion> {
    // The gRPC headers contain no dates, so the current time is not used.
    response::grpc(&HeaderLookup::new(metadata, SystemTime::UNIX_EPOCH))
}

/// The headers of a response, in the form that the core reads.
pub(crate) struct HeaderLookup<'a> {
    /// The headers that the core may look up. Some 45 names are looked up in each response, which rarely has
    /// any of them.
    known: Vec<(&'a str, &'a HeaderValue)>,
    now: SystemTime,
}

impl<'a> HeaderLookup<'a> {
    pub(crate) fn new(headers: &'a HeaderMap, now: SystemTime) -> Self {
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value));
        Self { known: headers.filter(|(name, _)| response::NAMES.contains(name)).collect(), now }
    }
}

impl Headers for HeaderLookup<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.known.iter().find(|(known, _)| *known == name)?;
        value.to_str().ok()
    }

    fn unix_time(&self, date: &str) -> Option<Duration> {
        let http = httpdate::parse_http_date(date).ok();
        let time = http.or_else(|| Some(date.parse::<jiff::Timestamp>().ok()?.into()))?;
        time.duration_since(SystemTime::UNIX_EPOCH).ok().map(Duration::from)
    }

    fn now(&self) -> Duration {
        self.now.duration_since(SystemTime::UNIX_EPOCH).map_or(Duration::ZERO, Duration::from)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_error_body;
