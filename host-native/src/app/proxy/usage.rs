//! Reads the token usage of a call from its response while it is streamed.
//!
//! Responses report usage in a `usage` object: near the end of JSON, or in one of the last events of a
//! stream. Of JSON only the last bytes are kept, and of a stream one event, so memory is bounded for any
//! length of response. The output of a stream that reports no usage is estimated by its text.

use memchr::memmem;
use serde_json::Value;
use tidegate_core::budget::Usage;

use super::events::{EventData, EventPart, EventSplitter};
use crate::app::tokens::MostTokens;

/// The number of bytes at the end of a response in which usage is found. Some repeat texts of the request
/// after it.
const TAIL_BYTES: usize = 64 << 10;

/// The longest event that is parsed, in bytes.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// Keys of an output whose values are not text of the model: sound, images and signatures are in base64.
const NO_TEXT: [&str; 7] = ["data", "encrypted_content", "id", "object", "role", "signature", "type"];

/// Extracts the usage from a response, chunk by chunk.
#[derive(Debug)]
pub(super) struct UsageReader {
    /// At least the last [`TAIL_BYTES`] bytes, and at most twice as many.
    tail: Vec<u8>,
    /// `None` if the response is not a stream.
    stream: Option<(EventSplitter, StreamCounts)>,
}

/// The tokens that a `usage` object reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    input: Option<u32>,
    output: Option<u32>,
}

impl Reported {
    fn of(usage: &Value) -> Self {
        let count = |names: [&str; 2]| {
            let count = names.iter().find_map(|name| usage.get(name)?.as_u64())?;
            Some(u32::try_from(count).unwrap_or(u32::MAX))
        };
        Self { input: count(["prompt_tokens", "input_tokens"]), output: count(["completion_tokens", "output_tokens"]) }
    }

    /// Returns these counts, and for missing ones those of `earlier`.
    fn or(self, earlier: Self) -> Self {
        Self { input: self.input.or(earlier.input), output: self.output.or(earlier.output) }
    }
}

/// What the events of a stream have said so far.
#[derive(Debug, Default)]
struct StreamCounts {
    reported: Reported,
    /// The number of events with data.
    events: usize,
    text: MostTokens,
    /// Whether there was an event too long to be parsed. It may contain the usage.
    has_long_event: bool,
}

impl StreamCounts {
    fn add(&mut self, part: EventPart<'_>) {
        let data = match part {
            EventPart::Event { data, .. } => data,
            EventPart::LineEnd(_) => return,
            EventPart::OfLong(_) => {
                self.has_long_event = true;
                return;
            }
        };
        let event = match data {
            EventData::None => return,
            EventData::Json(event) => event,
            EventData::Other => Value::Null,
        };
        self.events += 1;
        // The Responses API reports the usage of the whole response. The Messages API reports the input at
        // the beginning, with an output that is not the whole.
        let input = Reported { output: None, ..Reported::of(&event["message"]["usage"]) };
        self.reported =
            Reported::of(&event["usage"]).or(Reported::of(&event["response"]["usage"])).or(input).or(self.reported);
        // `response.audio.delta` and `response.output_audio.delta` have sound in base64.
        if !event["type"].as_str().is_some_and(|kind| kind.ends_with("audio.delta")) {
            self.add_text(&event["delta"]);
        }
        for choice in event["choices"].as_array().into_iter().flatten() {
            self.add_text(&choice["delta"]);
            self.add_text(&choice["text"]);
        }
    }

    fn add_text(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text.push(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_text(item)),
            Value::Object(fields) => {
                let texts = fields.iter().filter(|(key, _)| !NO_TEXT.contains(&key.as_str()));
                texts.for_each(|(_, value)| self.add_text(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the largest number of tokens that the text may have, and at least one for each event.
    fn output_tokens(&self) -> u32 {
        u32::try_from(self.text.total().max(self.events)).unwrap_or(u32::MAX)
    }
}

impl UsageReader {
    /// Creates a reader for server-sent events or for JSON.
    pub(super) fn new(is_stream: bool) -> Self {
        let stream = is_stream.then(|| (EventSplitter::new(MAX_EVENT_BYTES), StreamCounts::default()));
        Self { tail: Vec::new(), stream }
    }

    /// Adds the next chunk of the response.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if let Some((events, counts)) = &mut self.stream {
            events.push(piece, |part| counts.add(part));
        }
        let kept = &piece[piece.len().saturating_sub(TAIL_BYTES)..];
        if self.tail.len() + kept.len() > 2 * TAIL_BYTES {
            let gone = self.tail.len().saturating_sub(TAIL_BYTES.saturating_sub(kept.len()));
            self.tail.drain(..gone);
        }
        self.tail.extend_from_slice(kept);
    }

    /// Returns the usage of the response, which has ended here. `estimate` contains the input tokens of the
    /// request, for a response that does not report them. Returns `None` if a response that is no stream
    /// reports no usage.
    pub(super) fn finish(&mut self, estimate: Usage) -> Option<Usage> {
        let (reported, output) = match &mut self.stream {
            None => {
                let reported = Some(in_tail(&self.tail)).filter(|reported| *reported != Reported::default())?;
                (reported, 0)
            }
            Some((events, counts)) => {
                events.finish(|part| counts.add(part));
                let in_long = if counts.has_long_event { in_tail(&self.tail) } else { Reported::default() };
                (in_long.or(counts.reported), counts.output_tokens())
            }
        };
        Some(Usage::tokens(reported.input.unwrap_or(estimate.input_tokens), reported.output.unwrap_or(output)))
    }
}

/// Returns the last usage in the end of a response.
fn in_tail(tail: &[u8]) -> Reported {
    // No more than this, so that nothing depends on how the response was cut.
    let tail = &tail[tail.len().saturating_sub(TAIL_BYTES)..];
    let found = memmem::rfind_iter(tail, b"\"usage\"").find_map(|at| {
        // Inside a JSON string the quotes are escaped, so this is content.
        if at.checked_sub(1).is_some_and(|before| tail[before] == b'\\') {
            return None;
        }
        let value = tail[at + b"\"usage\"".len()..].trim_ascii_start().strip_prefix(b":")?;
        let usage = serde_json::Deserializer::from_slice(value).into_iter::<Value>().next()?.ok()?;
        Some(Reported::of(&usage)).filter(|reported| *reported != Reported::default())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_stream: bool, pieces: &[&str]) -> Option<Usage> {
        let mut reader = UsageReader::new(is_stream);
        for piece in pieces {
            reader.push(piece.as_bytes());
        }
        reader.finish(Usage::tokens(5, 0))
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
        let both = r#"{"usage":{"prompt_tokens":3,"input_tokens":3,"completion_tokens":4,"output_tokens":4}}"#;
        assert_eq!(read(false, &[both]), Some(Usage::tokens(3, 4)));
        for none in ["no json at all", r#"{"usage":{}}"#, r#"{"usage":null}"#] {
            assert_eq!(read(false, &[none]), None, "{none}");
        }
    }

    #[test]
    fn usage_is_found_before_a_long_text_of_the_request() {
        let metadata = "é".repeat(20_000);
        let usage = r#""usage":{"input_tokens":3,"output_tokens":4}"#;
        assert_eq!(read(false, &[&format!("{{{usage},\"metadata\":\"{metadata}\"}}")]), Some(Usage::tokens(3, 4)));
        let long = "x".repeat(MAX_EVENT_BYTES);
        let event = format!("data: {{\"response\":{{\"output\":\"{long}\",{usage},\"metadata\":\"{metadata}\"}}}}\n\n");
        assert_eq!(read(true, &["data: {\"delta\":\"a b\"}\n\n", &event]), Some(Usage::tokens(3, 4)));
    }

    #[test]
    fn the_last_usage_of_a_stream_counts_and_null_is_ignored() {
        let chunk = "data: {\"choices\":[{}],\"usage\":null}\n\n";
        let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
        assert_eq!(read(true, &[chunk, chunk, last, "data: [DONE]\n\n"]), Some(Usage::tokens(7, 2)));
        let response = "data: {\"response\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":3}}}\n\n";
        assert_eq!(read(true, &[response]), Some(Usage::tokens(8, 3)));
        let start = "data: {\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
        let text = "data: {\"delta\":{\"type\":\"text_delta\",\"text\":\"one two\"}}\n\n";
        let end = "data: {\"delta\":{},\"usage\":{\"output_tokens\":4}}\n\n";
        assert_eq!(read(true, &[start, text, end]), Some(Usage::tokens(9, 4)));
        assert_eq!(read(true, &[start, text]), Some(Usage::tokens(9, 2)), "it was cut off");
    }

    #[test]
    fn the_usage_of_a_stream_without_blank_lines_counts_and_else_its_text() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"tide\"}}]}\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n";
        assert_eq!(read(true, &[text, text, text, usage, "data: [DONE]\n"]), Some(Usage::tokens(7, 2)));
        assert_eq!(read(true, &[text, text, text, "data: [DONE]\n"]), Some(Usage::tokens(5, 4)));
    }

    #[test]
    fn usage_in_the_text_or_in_what_a_stream_repeats_of_the_request_is_none() {
        let text = r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"completion_tokens\":0}"}}]}"#;
        let repeated = r#"data: {"response":{"tools":[{"usage":{"input_tokens":0,"output_tokens":0}}]}}"#;
        for event in [text, repeated] {
            let used = read(true, &[event, "\n\n"]).unwrap();
            assert!(used.input_tokens == 5 && used.output_tokens > 0, "{used:?}");
        }
    }

    #[test]
    fn a_stream_without_usage_is_charged_for_its_text_and_at_least_one_token_per_event() {
        let chat = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
        let one = chat("0123456789").repeat(3);
        assert_eq!(read(true, &[&one, "data: [DONE]\n\n"]), Some(Usage::tokens(5, 30)));
        let words = [chat("har"), chat("bour and"), chat(" tide")].concat();
        assert_eq!(read(true, &[&words]), Some(Usage::tokens(5, 3 + 1 + 2)));
        let call = r#"data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"id":"call_0123456789","type":"function","function":{"name":"high_water","arguments":"{}"}}]}}]}"#;
        assert_eq!(read(true, &[call]), Some(Usage::tokens(5, 2 + 1 + 2 + 2)));
        let others = ["data: {\"choices\":[{\"text\":\"tide\"}]}\n\n", "data: {\"delta\":\" tide\"}\n\n", ": idle\n\n"];
        assert_eq!(read(true, &others), Some(Usage::tokens(5, 4)));
        assert_eq!(read(true, &["data: no json\r\n\r\ndata: {}\r\n\r\n"]), Some(Usage::tokens(5, 2)));
        // Of sound, the words count and not the base64.
        let sound =
            r#"data: {"choices":[{"delta":{"audio":{"id":"a","data":"UklGRiQAAABXQVZFZm10","transcript":"tide"}}}]}"#;
        assert_eq!(read(true, &[sound]), read(true, &[&chat("tide")]));
        let sound = r#"data: {"type":"response.output_audio.delta","delta":"UklGRiQAAABXQVZFZm10"}"#;
        assert_eq!(read(true, &[sound]), Some(Usage::tokens(5, 1)));
    }

    #[test]
    fn a_stream_is_charged_the_same_however_it_is_cut() {
        let stream =
            "data: {\"delta\":\"港 aGVsbG8\"}\r\n\r\ndata: {\"delta\":\"gd29y\"}\n\n: idle\n\ndata: {\"a\":1}\n\nda";
        let whole = read(true, &[stream]);
        for cut in (0..stream.len()).filter(|cut| stream.is_char_boundary(*cut)) {
            assert_eq!(read(true, &[&stream[..cut], &stream[cut..]]), whole, "{cut}");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_end_of_the_response_is_kept() {
        let mut reader = UsageReader::new(false);
        for _ in 0..1_000 {
            reader.push(&[b'x'; 1_000]);
            assert!(reader.tail.len() <= 2 * TAIL_BYTES);
        }
        reader.push(&vec![b'y'; 1_000_000]);
        assert!(reader.tail.len() <= 2 * TAIL_BYTES);
        reader.push(br#""usage":{"prompt_tokens":1,"completion_tokens":2}"#);
        assert_eq!(reader.finish(Usage::default()), Some(Usage::tokens(1, 2)));
    }
}
