//! Error bodies that are read before the response is passed on.
//!
//! The body of a 4xx response may refine the outcome of its call, for example to an exhausted quota, a
//! rejected key or a wait. The call should end with that outcome, also if its caller never reads the body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::body::MAX_ERROR_BODY_BYTES;

/// How long a peek may take. The permit of the call is held meanwhile. Short bodies usually arrive with the
/// head.
const PEEK_TIMEOUT: Duration = Duration::from_millis(250);

/// A body whose first part was read. It yields the whole body, with that part first.
pub(crate) struct PeekedBody {
    read: BytesMut,
    /// The rest of the body. `None` if it was read to its end or failed.
    rest: Option<reqwest::Body>,
    /// The error that the body failed with.
    error: Option<reqwest::Error>,
}

impl PeekedBody {
    /// Reads `body` until it ends or fails, `PEEK_TIMEOUT` has passed, or `MAX_ERROR_BODY_BYTES` are read.
    pub(crate) async fn peek(mut body: reqwest::Body) -> Self {
        let deadline = Instant::now() + PEEK_TIMEOUT;
        let mut read = BytesMut::new();
        while read.len() < MAX_ERROR_BODY_BYTES {
            match timeout_at(deadline, body.frame()).await {
                Err(_) => break,
                Ok(None) => return Self { read, rest: None, error: None },
                Ok(Some(Err(error))) => return Self { read, rest: None, error: Some(error) },
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        read.extend_from_slice(&data);
                    }
                }
            }
        }
        Self { read, rest: Some(body), error: None }
    }

    /// Returns the whole body, or `None` if it was not read to its end.
    pub(crate) fn complete(&self) -> Option<&[u8]> {
        (self.rest.is_none() && self.error.is_none()).then_some(&self.read)
    }
}

impl Body for PeekedBody {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.read.split().freeze()))));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(context),
            None => Poll::Ready(self.error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.error.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let read = self.read.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + read);
        if let (Some(upper), None) = (rest.upper(), &self.error) {
            hint.set_upper(upper + read);
        }
        hint
    }
}
