//! What an HTTP or gRPC answer tells the gate, and the slot that its call holds until it has ended.
//!
//! What status and headers mean is decided by [`response`] in the core; [`read_head`] hands it the headers and the date.
//!
//! A call is out until its body has ended. [`HeldBody`] holds the slot so long, streamed answers included, and lets go of
//! it when it is dropped half-way.

pub mod body;
mod error_body;
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
pub(crate) mod refusal_body;

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use tidegate_core::request::Completion;
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
use tidegate_core::request::Outcome;
use tidegate_core::request::response::{self, Headers};
use tidegate_core::time::Duration;

pub use body::{Held, HeldBody, Observe};
pub use error_body::{error_in_success, read_error};
pub use tidegate_core::request::response::{ErrorBody, ResponseInfo};

/// Reads status and headers at wall-clock time `now`.
#[must_use]
pub fn read_head(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> ResponseInfo {
    ResponseInfo::read(status.as_u16(), &Sent { headers, now })
}

/// How a call ended that brought no answer, or an answer that broke off.
#[cfg(any(feature = "cli", feature = "reqwest-middleware"))]
pub(crate) fn of_transport_error(error: &reqwest::Error) -> Outcome {
    if error.is_connect() {
        Outcome::ConnectionFailed
    } else if error.is_timeout() {
        Outcome::ProviderTimeout
    } else {
        Outcome::ProviderFailure
    }
}

/// How a gRPC call ended, by the headers of an answer without a body or by its trailers; `None` if they do not say.
#[must_use]
pub fn grpc(metadata: &HeaderMap) -> Option<Completion> {
    // No gRPC header holds a moment.
    response::grpc(&Sent { headers: metadata, now: SystemTime::UNIX_EPOCH })
}

/// The headers of an answer, as the core looks them up.
pub(crate) struct Sent<'a> {
    headers: &'a HeaderMap,
    now: SystemTime,
}

impl Headers for Sent<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
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
