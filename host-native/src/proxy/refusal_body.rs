//! The body of a refusal, which may say more than its head: that the account is empty, that the key is refused, how long to wait.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

/// The most of it that is read before it is handed on.
const MOST: usize = 64 << 10;

/// How long that may take, while the slot of the call is held: as a rule it comes with its head.
const PATIENCE: Duration = Duration::from_millis(250);

/// A body of which the first part was read. As a body it is whole.
pub(super) struct RefusalBody {
    read: BytesMut,
    /// What comes after that; `None`: nothing.
    rest: Option<reqwest::Body>,
    /// How it broke off.
    broken: Option<reqwest::Error>,
}

impl RefusalBody {
    /// Reads what is there soon, and no more than is worth reading.
    pub(super) async fn read(mut body: reqwest::Body) -> Self {
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
    pub(super) fn whole(&self) -> Option<&[u8]> {
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
}
