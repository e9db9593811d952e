//! Answers that come token by token, as server-sent events: `data: {...}`, an empty line, and `data: [DONE]` at last.
//!
//! The provider's latency is that of the whole answer. A quarter of it passes before the first token, and the rest is
//! spread evenly over the tokens. The slot is held until the last of them, or until the client goes away.

use std::collections::VecDeque;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tidegate_core::runtime::Timer;
use tidegate_core::sim::provider::Flaw;
use tidegate_core::time::{Clock, Duration, Instant};

use super::reply::{FLUSH, cut};
use super::served::{Slot, span};
use crate::host::TokioHost;

/// The part of the latency, one in so many, that passes before the first token.
const FIRST_TOKEN: u64 = 4;

/// A long stretch without a space comes in pieces of so many characters.
const PIECE_CHARS: usize = 12;

/// The events of one answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// Sent with the first token.
    pub(super) opening: Vec<Value>,
    /// One token each.
    pub(super) tokens: Vec<Value>,
    /// Sent with the last token.
    pub(super) closing: Vec<Value>,
}

/// What is yet to be sent, and what is held meanwhile.
struct Sending {
    host: TokioHost,
    left: VecDeque<(Instant, Bytes)>,
    slot: Option<Slot>,
    answered: u32,
    flaw: Option<Flaw>,
}

/// The answer that ends at `end`; with a flaw, in that way.
pub(super) fn response(
    host: TokioHost,
    frames: Frames,
    slot: Slot,
    end: Instant,
    flaw: Option<Flaw>,
    answered: u32,
) -> Response {
    let left = timed(frames, host.now(), span(&host, end), flaw);
    let sending = Sending { host, left, slot: Some(slot), answered, flaw };
    let body = Body::from_stream(stream::unfold(Some(sending), async |sending| {
        let mut sending = sending?;
        match sending.next().await {
            Some(frame) => Some((Ok(frame), Some(sending))),
            None if sending.flaw == Some(Flaw::Cut) => {
                sending.slot = None;
                tokio::time::sleep(FLUSH).await;
                Some((Err(cut()), None))
            }
            None => None,
        }
    }));
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

impl Sending {
    /// The next bytes, when they are due.
    async fn next(&mut self) -> Option<Bytes> {
        let (due, frame) = self.left.pop_front()?;
        self.host.sleep_until(due).await;
        if self.left.is_empty() {
            // Free before the client can know: its next call must find the slot.
            match (self.slot.take(), self.flaw) {
                (Some(slot), None) => slot.answered(self.answered),
                (slot, _) => drop(slot),
            }
        }
        Some(frame)
    }
}

/// When each part is due, of an answer that takes `span` from `start` on.
fn timed(frames: Frames, start: Instant, span: Duration, flaw: Option<Flaw>) -> VecDeque<(Instant, Bytes)> {
    let Frames { opening, mut tokens, mut closing } = frames;
    match flaw {
        None => {}
        Some(Flaw::Cut) => {
            tokens.truncate(tokens.len().div_ceil(2));
            closing.clear();
        }
        Some(Flaw::Malformed) => tokens.truncate(tokens.len() / 2),
    }
    let nanos = span.as_nanos();
    let first = if tokens.is_empty() { nanos } else { nanos / FIRST_TOKEN };
    let mut left = VecDeque::with_capacity(tokens.len() + 2);
    left.push_back((start + Duration::from_nanos(first), opening.iter().flat_map(event).collect::<Bytes>()));
    let count = u128::try_from(tokens.len()).unwrap_or(1).max(1);
    for (token, nth) in tokens.iter().zip(1_u128..) {
        // Below `nanos`, so it fits.
        let since_first = u128::from(nanos - first) * nth / count;
        let due = start + Duration::from_nanos(first + since_first as u64);
        left.push_back((due, event(token).into()));
    }
    let end: Vec<u8> = match flaw {
        None => closing.iter().flat_map(event).chain(*b"data: [DONE]\n\n").collect(),
        Some(Flaw::Malformed) => b"data: {\"choices\":[{\"index\":0,\"del\n\ndata: [DONE]\n\n".to_vec(),
        Some(Flaw::Cut) => Vec::new(),
    };
    match left.back_mut() {
        // One write, so that the last token and the end arrive together.
        Some((_, last)) => *last = [last, end.as_slice()].concat().into(),
        None => left.push_back((start + span, end.into())),
    }
    left
}

fn event(chunk: &Value) -> Vec<u8> {
    format!("data: {chunk}\n\n").into_bytes()
}

/// A text in pieces as a tokenizer might make them; put together they are the text.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for word in text.split_inclusive(' ') {
        let mut piece = String::new();
        for (nth, character) in word.chars().enumerate() {
            if nth > 0 && nth % PIECE_CHARS == 0 {
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

    fn frames(tokens: u64) -> Frames {
        Frames {
            opening: vec![json!("open")],
            tokens: (0..tokens).map(|nth| json!(nth)).collect(),
            closing: vec![json!("close")],
        }
    }

    fn story(tokens: u64, flaw: Option<Flaw>) -> Vec<(u64, String)> {
        let start = Instant::ZERO + Duration::from_secs(1);
        let timed = timed(frames(tokens), start, Duration::from_millis(400), flaw);
        let millis = |at: Instant| at.as_nanos() / 1_000_000;
        timed.iter().map(|(at, bytes)| (millis(*at), String::from_utf8_lossy(bytes).into_owned())).collect()
    }

    #[test]
    fn a_quarter_of_the_latency_passes_before_the_first_token_and_the_rest_over_the_tokens() {
        let done = "data: 2\n\ndata: \"close\"\n\ndata: [DONE]\n\n";
        assert_eq!(
            story(3, None),
            [(1_100, "data: \"open\"\n\n"), (1_200, "data: 0\n\n"), (1_300, "data: 1\n\n"), (1_400, done)]
                .map(|(at, text)| (at, text.to_string()))
        );
    }

    #[test]
    fn an_answer_without_tokens_ends_all_the_same() {
        let told = story(0, None);
        assert_eq!((told.len(), told[0].0), (1, 1_400));
        assert!(told[0].1.ends_with("data: [DONE]\n\n"), "{told:?}");
    }

    #[test]
    fn a_flaw_shows_after_half_of_the_tokens() {
        let cut = story(4, Some(Flaw::Cut));
        assert_eq!(cut.last(), Some(&(1_400, "data: 1\n\n".to_string())));
        let (at, text) = story(4, Some(Flaw::Malformed)).pop().unwrap();
        assert_eq!(at, 1_400);
        assert!(text.starts_with("data: 1\n\ndata: {\"choices\":[{\"index\":0,\"del\n"), "{text}");
    }

    #[test]
    fn pieces_put_together_are_the_text() {
        for text in ["", "one", "a buoy  adrift ", &"längs".repeat(30), "{\"a\":[1,2,3],\"b\":\"the breakwater lamp\"}"]
        {
            assert_eq!(pieces(text).concat(), text);
            assert!(pieces(text).iter().all(|piece| piece.chars().count() <= PIECE_CHARS));
        }
    }
}
