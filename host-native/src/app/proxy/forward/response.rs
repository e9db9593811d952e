//! Turns a response of a provider into the response for the client.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use tidegate_core::request::Outcome;
use tokio::time::timeout;

use super::super::ReplyBody;
use super::super::error::ProxyError;
use super::super::headers::{self, Credentials, is_event_stream};
use super::super::recorder::AttemptRecorder;
use super::super::stream_usage::WithoutUsage;
use super::super::upstream::Upstream;
use crate::app::provider::redact::{RedactedBody, Redactor};
use crate::http::{InFlightCall, PermitBody, transport_error_outcome};

/// The longest error body, in bytes, that is read to its end so that the connection can be reused.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The time limit for reading such a body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// A response of a provider whose head has been received.
pub(super) type UpstreamResponse = Response<reqwest::Body>;

/// The result for the client.
pub(super) type ClientResult = Result<Response<ReplyBody>, ProxyError>;

/// Turns the responses to one request into responses for its client.
pub(super) struct ResponseFilter<'a> {
    pub(super) upstream: &'a Upstream,
    /// Redacts keys in responses of the provider.
    pub(super) redactor: Redactor,
    /// Whether the proxy, and not the client, asked for the usage of a stream.
    pub(super) removes_usage: bool,
}

impl ResponseFilter<'_> {
    /// Returns the error that replaces a 401 or 403 of the provider. The text of the provider may quote part
    /// of a key or contain account details.
    pub(super) fn replacement_error(&self, status: StatusCode, outcome: Outcome) -> Option<ProxyError> {
        let provider = self.upstream.config.name.clone();
        match (status, self.upstream.credentials()) {
            (StatusCode::UNAUTHORIZED, Credentials::Own(_)) => Some(ProxyError::ProviderKey { provider }),
            (StatusCode::UNAUTHORIZED, Credentials::Forwarded) => Some(ProxyError::ClientKey { provider }),
            (StatusCode::UNAUTHORIZED, Credentials::None) => Some(ProxyError::NoProviderKey { provider }),
            (StatusCode::FORBIDDEN, Credentials::Own(_)) if outcome == Outcome::KeyRejected => {
                Some(ProxyError::ProviderKey { provider })
            }
            (StatusCode::FORBIDDEN, _) => Some(ProxyError::Forbidden { provider }),
            _ => None,
        }
    }

    /// Buffers a short response. A long or broken one loses its body.
    pub(super) async fn buffered(&self, response: UpstreamResponse) -> ClientResult {
        self.check(&response)?;
        let (parts, body) = response.into_parts();
        let mut parts = self.head(parts);
        let body = read_short_body(body).await.unwrap_or_else(|| {
            parts.headers.remove(CONTENT_LENGTH);
            Bytes::new()
        });
        Ok(Response::from_parts(parts, Either::Left(Full::new(self.redactor.redacted_whole(body)))))
    }

    /// Streams a response. Its call ends with its body.
    pub(super) fn streamed(
        &self,
        response: UpstreamResponse,
        mut in_flight: InFlightCall,
        recorder: AttemptRecorder,
    ) -> ClientResult {
        if let Err(error) = self.check(&response) {
            // The call ends with its head; its usage is unknown.
            in_flight.finish();
            return Err(error);
        }
        let (mut parts, body) = response.into_parts();
        let removes_usage = self.removes_usage && is_event_stream(&parts.headers);
        if removes_usage {
            parts.headers.remove(CONTENT_LENGTH);
        }
        let body = RedactedBody::new(body, self.redactor.clone());
        let body = PermitBody::with_observer(body, in_flight, transport_error_outcome, recorder);
        Ok(Response::from_parts(self.head(parts), Either::Right(WithoutUsage::new(body, removes_usage))))
    }

    /// Rejects a compressed response, whose body cannot be searched for keys or usage, and a switch to
    /// another protocol.
    fn check(&self, response: &UpstreamResponse) -> Result<(), ProxyError> {
        let provider = || self.upstream.config.name.clone();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ProxyError::Switched { provider: provider() });
        }
        let all_are = |name, plain: &str| response.headers().get_all(name).iter().all(|coding| coding == plain);
        if all_are(CONTENT_ENCODING, "identity") && all_are(TRANSFER_ENCODING, "chunked") {
            return Ok(());
        }
        Err(ProxyError::Encoded { provider: provider() })
    }

    /// Returns the response head for the client.
    fn head(&self, parts: http::response::Parts) -> http::response::Parts {
        let (mut head, ()) = Response::new(()).into_parts();
        // Only these two: the reason phrase is text of the provider, too.
        (head.status, head.headers) = (parts.status, parts.headers);
        headers::to_client(&mut head.headers);
        self.redactor.redact_headers(&mut head.headers);
        head
    }
}

/// Reads an error body to its end if it is short, so that the connection can be reused.
async fn read_short_body(body: reqwest::Body) -> Option<Bytes> {
    let whole = timeout(ERROR_BODY_TIMEOUT, Limited::new(body, MAX_ERROR_BODY_BYTES).collect()).await;
    Some(whole.ok()?.ok()?.to_bytes())
}
