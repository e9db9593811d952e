//! Streamed answers as server-sent events, which end with `data: [DONE]`.
//!
//! The provider's latency is that of the whole answer. A quarter of it passes before the first token, and the
//! rest is spread evenly over the tokens. The slot is held until the last token, or until the client
//! disconnects.

use std::collections::VecDeque;
use std::io;
use std::time::Duration as StdDuration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tidegate_core::runtime::Timer;
use tidegate_core::sim::provider::Flaw;
use tidegate_core::time::{Clock, Duration, Instant};

use super::model::{Slot, time_until};
use crate::host::TokioHost;

/// The latency divided by this passes before the first token.
const FIRST_TOKEN_DIVISOR: u64 = 4;

/// The most characters of a piece of a streamed text.
const MAX_PIECE_CHARS: usize = 12;

/// Delay between the last bytes and the cut of a connection, so that the bytes are sent.
pub(super) const FLUSH_DELAY: StdDuration = StdDuration::from_millis(2);

/// The events of a streamed answer.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamEvents {
    /// Sent together, when the first token is due.
    pub(super) opening: Vec<Value>,
    /// Events of a token each.
    pub(super) tokens: Vec<Value>,
    /// Sent together with the last token.
    pub(super) closing: Vec<Value>,
}

/// A stream in progress: the events to send, and the slot held meanwhile.
struct EventSender {
    host: TokioHost,
    pending: VecDeque<(Instant, Bytes)>,
    slot: Option<Slot>,
    answered: u32,
    flaw: Option<Flaw>,
}

/// Returns a streamed response that ends at `end`. A flaw cuts it, or makes its last event invalid.
pub(super) fn response(
    host: TokioHost,
    events: StreamEvents,
    slot: Slot,
    end: Instant,
    flaw: Option<Flaw>,
    answered: u32,
) -> Response {
    let pending = schedule_events(events, host.now(), time_until(&host, end), flaw);
    let sender = EventSender { host, pending, slot: Some(slot), answered, flaw };
    let body = Body::from_stream(stream::unfold(Some(sender), async |sender| {
        let mut sender = sender?;
        match sender.next().await {
            Some(frame) => Some((Ok(frame), Some(sender))),
            None if sender.flaw == Some(Flaw::Cut) => {
                sender.slot = None;
                tokio::time::sleep(FLUSH_DELAY).await;
                Some((Err(connection_cut()), None))
            }
            None => None,
        }
    }));
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

impl EventSender {
    /// Waits until the next event is due and returns its bytes. Returns `None` after the last one.
    async fn next(&mut self) -> Option<Bytes> {
        let (due, frame) = self.pending.pop_front()?;
        self.host.sleep_until(due).await;
        if self.pending.is_empty() {
            // Released before the client receives the end, so that its next call finds a free slot.
            match (self.slot.take(), self.flaw) {
                (Some(slot), None) => slot.answered(self.answered),
                (slot, _) => drop(slot),
            }
        }
        Some(frame)
    }
}

/// Returns the bytes of the events of an answer that takes `span` from `start`, each with its due time.
fn schedule_events(
    events: StreamEvents,
    start: Instant,
    span: Duration,
    flaw: Option<Flaw>,
) -> VecDeque<(Instant, Bytes)> {
    let StreamEvents { opening, mut tokens, mut closing } = events;
    match flaw {
        None => {}
        Some(Flaw::Cut) => {
            tokens.truncate(tokens.len().div_ceil(2));
            closing.clear();
        }
        Some(Flaw::Malformed) => tokens.truncate(tokens.len() / 2),
    }
    let nanos = span.as_nanos();
    let first = if tokens.is_empty() { nanos } else { nanos / FIRST_TOKEN_DIVISOR };
    let mut scheduled = VecDeque::with_capacity(tokens.len() + 2);
    scheduled
        .push_back((start + Duration::from_nanos(first), opening.iter().flat_map(encode_event).collect::<Bytes>()));
    let count = u128::try_from(tokens.len()).unwrap_or(1).max(1);
    for (token, nth) in tokens.iter().zip(1_u128..) {
        // At most `nanos`, so the conversion is lossless.
        let since_first = u128::from(nanos - first) * nth / count;
        let due = start + Duration::from_nanos(first + since_first as u64);
        scheduled.push_back((due, encode_event(token).into()));
    }
    let end: Vec<u8> = match flaw {
        None => closing.iter().flat_map(encode_event).chain(*b"data: [DONE]\n\n").collect(),
        Some(Flaw::Malformed) => b"data: {\"choices\":[{\"index\":0,\"del\n\ndata: [DONE]\n\n".to_vec(),
        Some(Flaw::Cut) => Vec::new(),
    };
    // One write, so that the last token and the end of the stream arrive together.
    if let Some((_, last)) = scheduled.back_mut() {
        *last = [last, end.as_slice()].concat().into();
    }
    scheduled
}

fn encode_event(chunk: &Value) -> Vec<u8> {
    format!("data: {chunk}\n\n").into_bytes()
}

/// Returns the error of a body that makes the server close the connection.
pub(super) fn connection_cut() -> io::Error {
    io::Error::other("the provider cuts the connection")
}

/// Splits a text into pieces like tokens: words, of at most [`MAX_PIECE_CHARS`] characters. They concatenate
/// to the text.
pub(super) fn split_pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for word in text.split_inclusive(' ') {
        let mut piece = String::new();
        for (nth, character) in word.chars().enumerate() {
            if nth > 0 && nth % MAX_PIECE_CHARS == 0 {
                pieces.push(std::mem::take(&mut piece));
            }
            piece.push(character);
        }
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn events(tokens: u64) -> StreamEvents {
        StreamEvents {
            opening: vec![json!("open")],
            tokens: (0..tokens).map(|nth| json!(nth)).collect(),
            closing: vec![json!("close")],
        }
    }

    fn scheduled(tokens: u64, flaw: Option<Flaw>) -> Vec<(u64, String)> {
        let start = Instant::ZERO + Duration::from_secs(1);
        let schedule_events = schedule_events(events(tokens), start, Duration::from_millis(400), flaw);
        let millis = |at: Instant| at.as_nanos() / 1_000_000;
        schedule_events.iter().map(|(at, bytes)| (millis(*at), String::from_utf8_lossy(bytes).into_owned())).collect()
    }

    #[test]
    fn a_quarter_of_the_latency_passes_before_the_first_token_and_the_rest_over_the_tokens() {
        let done = "data: 2\n\ndata: \"close\"\n\ndata: [DONE]\n\n";
        assert_eq!(
            scheduled(3, None),
            [(1_100, "data: \"open\"\n\n"), (1_200, "data: 0\n\n"), (1_300, "data: 1\n\n"), (1_400, done)]
                .map(|(at, text)| (at, text.to_string()))
        );
    }

    #[test]
    fn an_answer_without_tokens_ends_after_its_latency() {
        let events = scheduled(0, None);
        assert_eq!((events.len(), events[0].0), (1, 1_400));
        assert!(events[0].1.ends_with("data: [DONE]\n\n"), "{events:?}");
    }

    #[test]
    fn a_flaw_occurs_after_half_of_the_tokens() {
        let cut = scheduled(4, Some(Flaw::Cut));
        assert_eq!(cut.last(), Some(&(1_400, "data: 1\n\n".to_string())));
        let (at, text) = scheduled(4, Some(Flaw::Malformed)).pop().unwrap();
        assert_eq!(at, 1_400);
        assert!(text.starts_with("data: 1\n\ndata: {\"choices\":[{\"index\":0,\"del\n"), "{text}");
    }

    #[test]
    fn pieces_concatenate_to_the_text() {
        for text in ["", "one", "a buoy  adrift ", &"längs".repeat(30), "{\"a\":[1,2,3],\"b\":\"the breakwater lamp\"}"]
        {
            assert_eq!(split_pieces(text).concat(), text);
            assert!(split_pieces(text).iter().all(|piece| piece.chars().count() <= MAX_PIECE_CHARS));
        }
    }
}
