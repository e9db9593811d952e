//! Error bodies that are read before the response is passed on.
//!
//! The body of a 4xx response may refine the outcome of its call, for example to an exhausted quota, a
//! rejected key or a wait. The call should end with that outcome, also if its caller never reads the body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
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
    /// The trailers, if they were read.
    trailers: Option<HeaderMap>,
    /// The rest of the body. `None` if it was read to its end or failed.
    rest: Option<reqwest::Body>,
    /// The error that the body failed with.
    error: Option<reqwest::Error>,
}

impl PeekedBody {
    /// Reads `body` until it ends or fails, `PEEK_TIMEOUT` has passed, or `MAX_ERROR_BODY_BYTES` are read.
    pub(crate) async fn peek(mut body: reqwest::Body) -> Self {
        let deadline = Instant::now() + PEEK_TIMEOUT;
        let mut peeked = Self { read: BytesMut::new(), trailers: None, rest: None, error: None };
        while peeked.read.len() < MAX_ERROR_BODY_BYTES {
            match timeout_at(deadline, body.frame()).await {
                Err(_) => break,
                Ok(None) => return peeked,
                Ok(Some(Err(error))) => return Self { error: Some(error), ..peeked },
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => peeked.read.extend_from_slice(&data),
                    Err(frame) => peeked.trailers = frame.into_trailers().ok(),
                },
            }
        }
        Self { rest: Some(body), ..peeked }
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
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(context),
            None => Poll::Ready(self.error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_drained = self.read.is_empty() && self.trailers.is_none() && self.error.is_none();
        is_drained && self.rest.as_ref().is_none_or(Body::is_end_stream)
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

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;

    async fn peek(frames: Vec<Frame<Bytes>>) -> PeekedBody {
        let frames = frames.into_iter().map(Ok::<_, std::convert::Infallible>);
        PeekedBody::peek(reqwest::Body::wrap(StreamBody::new(futures_util::stream::iter(frames)))).await
    }

    #[tokio::test]
    async fn a_body_that_was_read_to_its_end_keeps_its_trailers() {
        let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), "8".parse().unwrap())]);
        for data in [&b""[..], b"rejected"] {
            let data: Vec<_> = (!data.is_empty()).then(|| Frame::data(Bytes::from_static(data))).into_iter().collect();
            let expected: Vec<u8> = data.iter().flat_map(|frame| frame.data_ref().unwrap().to_vec()).collect();
            let body = peek(data.into_iter().chain([Frame::trailers(trailers.clone())]).collect()).await;
            assert_eq!(body.complete(), Some(&expected[..]));
            assert!(!body.is_end_stream());
            let whole = body.collect().await.unwrap();
            assert_eq!(whole.trailers(), Some(&trailers));
            assert_eq!(whole.to_bytes(), expected);
        }
    }
}
