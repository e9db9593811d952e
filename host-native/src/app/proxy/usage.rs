//! Reads the token usage of a call from its response while it is streamed.
//!
//! Responses report usage in a `usage` object near the end: of the JSON, or of the last event of a stream.
//! Only the last bytes are kept, so memory is bounded for any length of response. If a stream reports no
//! usage, each event counts as one token.

use memchr::memmem;
use serde::Deserialize;
use tidegate_core::budget::Usage;

/// The minimum number of bytes kept from the end of a response.
const TAIL_BYTES: usize = 8 << 10;

/// Extracts the usage from a response, chunk by chunk.
#[derive(Debug)]
pub(super) struct UsageReader {
    /// At least the last [`TAIL_BYTES`] bytes, and at most twice as many.
    tail: Vec<u8>,
    /// The number of events so far, and whether the last byte ended a line. `None` if the response is not a
    /// stream.
    events: Option<(u32, bool)>,
}

#[derive(Deserialize)]
struct UsageField {
    #[serde(alias = "input_tokens", default)]
    prompt_tokens: u32,
    #[serde(alias = "output_tokens", default)]
    completion_tokens: u32,
}

impl UsageReader {
    /// Creates a reader for server-sent events or for JSON.
    pub(super) fn new(is_stream: bool) -> Self {
        Self { tail: Vec::new(), events: is_stream.then_some((0, true)) }
    }

    /// Adds the next chunk of the response.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if let Some((events, at_line_start)) = &mut self.events {
            let inside = memmem::find_iter(piece, b"\ndata:").count();
            let first = usize::from(*at_line_start && piece.starts_with(b"data:"));
            *events = events.saturating_add((inside + first) as u32);
            *at_line_start = piece.last().is_none_or(|byte| *byte == b'\n');
        }
        let kept = &piece[piece.len().saturating_sub(TAIL_BYTES)..];
        if self.tail.len() + kept.len() > 2 * TAIL_BYTES {
            let gone = self.tail.len().saturating_sub(TAIL_BYTES.saturating_sub(kept.len()));
            self.tail.drain(..gone);
        }
        self.tail.extend_from_slice(kept);
    }

    /// Returns the usage. `estimate` contains the input tokens of the request, which a stream without usage
    /// does not report. Returns `None` if the response reports no usage.
    pub(super) fn read(&self, estimate: Usage) -> Option<Usage> {
        self.reported().or_else(|| {
            // The last event of a stream carries no token.
            let (events, _) = self.events?;
            Some(Usage::tokens(estimate.input_tokens, events.saturating_sub(1)))
        })
    }

    fn reported(&self) -> Option<Usage> {
        let tail = self.tail.as_slice();
        memmem::rfind_iter(tail, b"\"usage\"").find_map(|at| {
            // Inside a JSON string the quotes are escaped, so this is content.
            if at.checked_sub(1).is_some_and(|before| tail[before] == b'\\') {
                return None;
            }
            let value = tail[at + b"\"usage\"".len()..].trim_ascii_start().strip_prefix(b":")?;
            let field = serde_json::Deserializer::from_slice(value).into_iter::<UsageField>().next()?.ok()?;
            Some(Usage::tokens(field.prompt_tokens, field.completion_tokens))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_stream: bool, pieces: &[&str]) -> Option<Usage> {
        let mut reader = UsageReader::new(is_stream);
        for piece in pieces {
            reader.push(piece.as_bytes());
        }
        reader.read(Usage::tokens(5, 0))
    }

    #[test]
    fn usage_is_found_wherever_the_response_is_split() {
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
    fn the_last_event_with_usage_counts_and_null_is_ignored() {
        let chunk = "data: {\"choices\":[{}],\"usage\":null}\n\n";
        let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
        assert_eq!(read(true, &[chunk, chunk, last, "data: [DONE]\n\n"]), Some(Usage::tokens(7, 2)));
    }

    #[test]
    fn a_stream_without_usage_counts_its_events() {
        let pieces = ["data: {\"a\":1}\n\nda", "ta: {}\n\n", "data: {}\n\ndata: [DONE]\n\n"];
        // The event that is split between two chunks is not counted.
        assert_eq!(read(true, &pieces), Some(Usage::tokens(5, 2)));
        assert_eq!(read(false, &["no json at all"]), None);
    }

    #[test]
    fn memory_is_bounded_and_the_end_of_the_response_is_kept() {
        let mut reader = UsageReader::new(false);
        for _ in 0..1_000 {
            reader.push(&[b'x'; 1_000]);
            assert!(reader.tail.len() <= 2 * TAIL_BYTES);
        }
        reader.push(&vec![b'y'; 100_000]);
        assert!(reader.tail.len() <= 2 * TAIL_BYTES);
        reader.push(br#""usage":{"prompt_tokens":1,"completion_tokens":2}"#);
        assert_eq!(reader.read(Usage::default()), Some(Usage::tokens(1, 2)));
    }
}
