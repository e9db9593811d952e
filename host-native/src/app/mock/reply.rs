//! The answer to a call that is served, before the provider's latency and faults.

use axum::body::Bytes;

use super::stream::StreamEvents;

/// The response of a call without faults.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: ReplyBody,
    /// Tokens of the answer, for the statistics.
    pub(super) tokens: u32,
}

/// The body of a [`Reply`].
#[derive(Debug)]
pub(super) enum ReplyBody {
    /// A JSON body, sent when the answer is complete.
    Complete(Bytes),
    /// Server-sent events, sent token by token.
    Stream(StreamEvents),
}
