//! The body of a refusal, which may say more than its head: that the account is empty, that the key is refused, how long to wait.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::body::MOST;

/// How long that may take, while the slot of the call is held: as a rule it comes with its head.
const PATIENCE: Duration = Duration::from_millis(250);

/// A body of which the first part was read. As a body it is whole.
pub(crate) struct RefusalBody {
    read: BytesMut,
    /// What comes after that; `None`: nothing.
    rest: Option<reqwest::Body>,
    /// How it broke off.
    broken: Option<reqwest::Error>,
}

impl RefusalBody {
    /// Reads what is there soon, and no more than is worth reading.
    pub(crate) async fn read(mut body: reqwest::Body) -> Self {
        let until = Instant::now() + PATIENCE;
        let mut read = BytesMut::new();
        while read.len() < MOST {
            match timeout_at(until, body.frame()).await {
                Err(_) => break,
                Ok(None) => return Self { read, rest: None, broken: None },
                Ok(Some(Err(error))) => return Self { read, rest: None, broken: Some(error) },
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        read.extend_from_slice(&data);
                    }
                }
            }
        }
        Self { read, rest: Some(body), broken: None }
    }

    /// What was read, if that is all.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        (self.rest.is_none() && self.broken.is_none()).then_some(&self.read)
    }
}

impl Body for RefusalBody {
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
            None => Poll::Ready(self.broken.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.broken.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let read = self.read.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + read);
        if let (Some(most), None) = (rest.upper(), &self.broken) {
            hint.set_upper(most + read);
        }
        hint
    }
}
