//! Reads the token usage of a call from its response while it is streamed.
//!
//! Responses report usage in a `usage` object: near the end of JSON, or in one of the last events of a
//! stream. The output of a response that reports no usage is estimated by its text. Of a stream one event is
//! kept, and of long JSON only the last bytes, so memory is bounded for any length of response.

use memchr::memmem;
use serde_json::Value;
use tidegate_core::budget::Usage;

use super::events::{EventData, EventPart, EventSplitter};
use crate::app::tokens::MostTokens;

/// The number of bytes at the end of a response in which usage is found. Some repeat texts of the request
/// after it.
const TAIL_BYTES: usize = 64 << 10;

/// The longest JSON that is kept whole, so that its text can be counted, in bytes.
const MAX_JSON_BYTES: usize = 256 << 10;

/// The longest event that is parsed, in bytes.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// The keys of JSON under which the output of the model is: of the Responses API, of the Messages API, and of
/// transcriptions. Those of completions and of chats are in `choices`.
const OUTPUTS: [&str; 3] = ["output", "content", "text"];

/// Keys of an output whose values are not text of the model: sound, images and signatures are in base64.
const NO_TEXT: [&str; 7] = ["data", "encrypted_content", "id", "object", "role", "signature", "type"];

/// Extracts the usage from a response, chunk by chunk.
#[derive(Debug)]
pub(super) struct UsageReader {
    /// JSON as a whole if it is no longer than [`MAX_JSON_BYTES`]. Otherwise at least the last [`TAIL_BYTES`]
    /// bytes.
    tail: Vec<u8>,
    /// Whether `tail` is the whole response so far.
    is_whole: bool,
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

/// The largest number of tokens that the text of an output may have.
#[derive(Debug, Default)]
struct OutputText(MostTokens);

impl OutputText {
    /// Adds the texts in a value.
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.0.push(text),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                let texts = fields.iter().filter(|(key, _)| !NO_TEXT.contains(&key.as_str()));
                texts.for_each(|(_, value)| self.add(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds the texts in these fields of each choice.
    fn add_choices(&mut self, response: &Value, fields: [&str; 2]) {
        for choice in response["choices"].as_array().into_iter().flatten() {
            for field in fields {
                self.add(&choice[field]);
            }
        }
    }
}

/// What the events of a stream have said so far.
#[derive(Debug, Default)]
struct StreamCounts {
    reported: Reported,
    /// The number of events with data.
    events: usize,
    text: OutputText,
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
            self.text.add(&event["delta"]);
        }
        self.text.add_choices(&event, ["delta", "text"]);
    }

    /// Returns the largest number of tokens that the text may have, and at least one for each event.
    fn output_tokens(&self) -> u32 {
        saturated(self.text.0.total().max(self.events))
    }
}

impl UsageReader {
    /// Creates a reader for server-sent events or for JSON.
    pub(super) fn new(is_stream: bool) -> Self {
        let stream = is_stream.then(|| (EventSplitter::new(MAX_EVENT_BYTES), StreamCounts::default()));
        Self { tail: Vec::new(), is_whole: true, stream }
    }

    /// Adds the next chunk of the response.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if let Some((events, counts)) = &mut self.stream {
            events.push(piece, |part| counts.add(part));
        }
        let most = if self.stream.is_some() { 2 * TAIL_BYTES } else { MAX_JSON_BYTES };
        let kept = if self.tail.len() + piece.len() > most {
            self.is_whole = false;
            let kept = &piece[piece.len().saturating_sub(TAIL_BYTES)..];
            self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES - kept.len()));
            kept
        } else {
            piece
        };
        self.tail.extend_from_slice(kept);
    }

    /// Returns the usage of the response, which has ended here. `estimate` contains the input tokens of the
    /// request, for a response that does not report them. Returns `None` for a response that is no stream,
    /// reports no usage, and is too long or not a JSON object.
    pub(super) fn finish(&mut self, estimate: Usage) -> Option<Usage> {
        let (reported, output) = match &mut self.stream {
            None => match in_tail(&self.tail) {
                reported if reported != Reported::default() => (reported, 0),
                none => (none, text_tokens(self.is_whole.then_some(&self.tail)?)?),
            },
            Some((events, counts)) => {
                events.finish(|part| counts.add(part));
                let in_long = if counts.has_long_event { in_tail(&self.tail) } else { Reported::default() };
                (in_long.or(counts.reported), counts.output_tokens())
            }
        };
        Some(Usage::tokens(reported.input.unwrap_or(estimate.input_tokens), reported.output.unwrap_or(output)))
    }
}

/// Returns the largest number of tokens that the output in a response may have, or `None` if that is not a
/// JSON object.
fn text_tokens(response: &[u8]) -> Option<u32> {
    let response: Value = serde_json::from_slice(response).ok().filter(Value::is_object)?;
    let mut text = OutputText::default();
    text.add_choices(&response, ["message", "text"]);
    for key in OUTPUTS {
        text.add(&response[key]);
    }
    Some(saturated(text.0.total()))
}

fn saturated(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
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
    }

    #[test]
    fn json_without_usage_is_charged_for_the_text_of_its_output() {
        for (answer, output) in [
            (
                r#"{"id":"c","object":"x","choices":[{"message":{"role":"assistant","content":"harbour and tide"},"finish_reason":"stop"}]}"#,
                3 + 1 + 2,
            ),
            (r#"{"choices":[{"message":{"content":"tide."}},{"message":{"content":"0123"}}]}"#, 2 + 1 + 4),
            (
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"high","arguments":"{}"}}]}}]}"#,
                2 + 2,
            ),
            (r#"{"choices":[{"text":"tide"}],"model":"a-long-name"}"#, 2),
            (
                r#"{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"tide"}]}]}"#,
                2,
            ),
            (r#"{"role":"assistant","content":[{"type":"text","text":"tide"}]}"#, 2),
            (r#"{"text":"tide"}"#, 2),
            (r#"{"data":[{"embedding":[0.1,0.2]}],"usage":null}"#, 0),
            (r#"{"usage":{}}"#, 0),
        ] {
            for cut in 0..answer.len() {
                let used = read(false, &[&answer[..cut], &answer[cut..]]);
                assert_eq!(used, Some(Usage::tokens(5, output)), "{cut} {answer}");
            }
        }
        for none in ["no json at all", "", "[]", "\"tide\"", r#"{"choices":[{"message":{"content":"it was cut o"#] {
            assert_eq!(read(false, &[none]), None, "{none}");
        }
    }

    #[test]
    fn json_that_is_too_long_to_be_kept_and_reports_no_usage_keeps_its_reservation() {
        let answer = |len: usize| format!("{{\"text\":\"{}\"}}", "港".repeat(len / 3));
        let short = answer(MAX_JSON_BYTES - 20);
        assert!(read(false, &[&short]).is_some_and(|used| used.output_tokens as usize > MAX_JSON_BYTES - 30));
        let long = answer(MAX_JSON_BYTES);
        assert_eq!(read(false, &[&long]), None);
        let cut = long.len() - 30;
        assert_eq!(read(false, &[&long[..cut - cut % 3], &long[cut - cut % 3..]]), None);
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
    fn the_last_usage_of_a_stream_that_reports_it_in_each_event_counts_also_if_it_is_cut_off() {
        let event = |text: &str, output: u32| {
            let usage =
                format!("{{\"prompt_tokens\":7,\"completion_tokens\":{output},\"total_tokens\":{}}}", 7 + output);
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":{usage}}}\n\n")
        };
        let events = [event("", 0), event("harbour", 1), event(" and", 2), event(" tide", 3)];
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4}}\n\n";
        assert_eq!(read(true, &[&events[..], &[last, "data: [DONE]\n\n"]].concat()), Some(Usage::tokens(7, 4)));
        assert_eq!(read(true, &events), Some(Usage::tokens(7, 3)));
        assert_eq!(read(true, &events[..2]), Some(Usage::tokens(7, 1)));
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
            assert!(reader.tail.len() <= MAX_JSON_BYTES);
        }
        reader.push(&vec![b'y'; 1_000_000]);
        assert!(reader.tail.len() <= MAX_JSON_BYTES);
        reader.push(br#""usage":{"prompt_tokens":1,"completion_tokens":2}"#);
        assert_eq!(reader.finish(Usage::default()), Some(Usage::tokens(1, 2)));
    }
}
