//! What a call used, read from its answer as it goes by.
//!
//! Answers say it in an object `usage`, near the end: of the JSON, or of the last event of a stream. Only the last bytes
//! are kept, so memory is bounded however long the answer is. A stream that says nothing counts a token for each event.

use memchr::memmem;
use serde::Deserialize;
use tidegate_core::budget::Usage;

/// Bytes that are kept of an answer's end.
const TAIL: usize = 8 << 10;

/// Reads the usage from an answer, piece by piece.
#[derive(Debug)]
pub(super) struct UsageReader {
    /// At least the last [`TAIL`] bytes, and at most twice as many.
    tail: Vec<u8>,
    /// Events of a stream so far, with whether the last byte ended a line; `None` for an answer that is no stream.
    events: Option<(u32, bool)>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(alias = "input_tokens", default)]
    prompt_tokens: u32,
    #[serde(alias = "output_tokens", default)]
    completion_tokens: u32,
}

impl UsageReader {
    /// For an answer of server-sent events, or for one of JSON.
    pub(super) fn new(is_stream: bool) -> Self {
        Self { tail: Vec::new(), events: is_stream.then_some((0, true)) }
    }

    /// A piece goes by.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        if let Some((events, at_line_start)) = &mut self.events {
            let inside = memmem::find_iter(piece, b"\ndata:").count();
            let first = usize::from(*at_line_start && piece.starts_with(b"data:"));
            *events = events.saturating_add((inside + first) as u32);
            *at_line_start = piece.last().is_none_or(|byte| *byte == b'\n');
        }
        let kept = &piece[piece.len().saturating_sub(TAIL)..];
        if self.tail.len() + kept.len() > 2 * TAIL {
            let gone = self.tail.len().saturating_sub(TAIL.saturating_sub(kept.len()));
            self.tail.drain(..gone);
        }
        self.tail.extend_from_slice(kept);
    }

    /// What was used; `estimate` is what the request was thought to send. `None` where the answer does not say.
    pub(super) fn read(&self, estimate: Usage) -> Option<Usage> {
        self.said().or_else(|| {
            // One event of a stream ends it and carries no token.
            let (events, _) = self.events?;
            Some(Usage::tokens(estimate.input_tokens, events.saturating_sub(1)))
        })
    }

    fn said(&self) -> Option<Usage> {
        let tail = self.tail.as_slice();
        memmem::rfind_iter(tail, b"\"usage\"").find_map(|at| {
            // Text of an answer that speaks of "usage" has its quotes escaped.
            if at.checked_sub(1).is_some_and(|before| tail[before] == b'\\') {
                return None;
            }
            let value = tail[at + b"\"usage\"".len()..].trim_ascii_start().strip_prefix(b":")?;
            let said = serde_json::Deserializer::from_slice(value).into_iter::<Said>().next()?.ok()?;
            Some(Usage::tokens(said.prompt_tokens, said.completion_tokens))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_stream: bool, pieces: &[&str]) -> Option<Usage> {
        let mut reader = UsageReader::new(is_stream);
        for piece in pieces {
            reader.pass(piece.as_bytes());
        }
        reader.read(Usage::tokens(5, 0))
    }

    #[test]
    fn the_usage_of_an_answer_is_read_however_it_is_cut() {
        let answer = r#"{"choices":[{"message":{"content":"the \"usage\": {\"prompt_tokens\":1}"}}],"usage": {"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,"details":{"x":1}}}"#;
        for cut in 0..answer.len() {
            if answer.is_char_boundary(cut) {
                assert_eq!(read(false, &[&answer[..cut], &answer[cut..]]), Some(Usage::tokens(12, 34)), "{cut}");
            }
        }
        assert_eq!(read(false, &[r#"{"usage":{"input_tokens":3,"output_tokens":4}}"#]), Some(Usage::tokens(3, 4)));
        assert_eq!(read(false, &[r#"{"usage":{"prompt_tokens":9,"total_tokens":9}}"#]), Some(Usage::tokens(9, 0)));
    }

    #[test]
    fn the_last_event_of_a_stream_says_it_and_the_null_before_does_not() {
        let chunk = "data: {\"choices\":[{}],\"usage\":null}\n\n";
        let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
        assert_eq!(read(true, &[chunk, chunk, last, "data: [DONE]\n\n"]), Some(Usage::tokens(7, 2)));
    }

    #[test]
    fn a_stream_that_does_not_say_counts_its_events() {
        let pieces = ["data: {\"a\":1}\n\nda", "ta: {}\n\n", "data: {}\n\ndata: [DONE]\n\n"];
        // One event is cut in two and goes uncounted.
        assert_eq!(read(true, &pieces), Some(Usage::tokens(5, 2)));
        assert_eq!(read(false, &["no json at all"]), None);
    }

    #[test]
    fn memory_is_bounded_and_the_end_is_kept() {
        let mut reader = UsageReader::new(false);
        for _ in 0..1_000 {
            reader.pass(&[b'x'; 1_000]);
            assert!(reader.tail.len() <= 2 * TAIL);
        }
        reader.pass(&vec![b'y'; 100_000]);
        assert!(reader.tail.len() <= 2 * TAIL);
        reader.pass(br#""usage":{"prompt_tokens":1,"completion_tokens":2}"#);
        assert_eq!(reader.read(Usage::default()), Some(Usage::tokens(1, 2)));
    }
}
