//! Reads the token usage of a call from its response while it is streamed.
//!
//! Responses report usage in a `usage` object: near the end of JSON, or in one of the last events of a
//! stream. The output of a response that reports none is estimated by its text, and so is the text of a
//! stream after its last report. Of a stream one event is kept, and of long JSON only the last bytes, so
//! memory is bounded for any length of response.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;
use serde_json::Value;
use tidegate_core::budget::Usage;

use super::events::{EventData, EventPart, EventSplitter};
use super::headers::is_event_stream;
use crate::app::token_counts::TokenCounts;
use crate::app::tokens::{MostTokens, saturated};

/// The number of bytes at the end of a response in which usage is found. Some repeat texts of the request
/// after it.
const TAIL_BYTES: usize = 64 << 10;

/// The longest JSON that is kept whole, so that its text can be counted, in bytes.
const MAX_JSON_BYTES: usize = 256 << 10;

/// The longest event that is parsed, in bytes.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// The bytes of a text for which one token is charged if the text is not counted: fewer than the letters of a
/// token of any language.
const BYTES_PER_TOKEN: u64 = 3;

/// The keys of JSON under which the output of the model is: of the Responses API, of the Messages API, and of
/// transcriptions. Those of completions and of chats are in `choices`.
const OUTPUTS: [&str; 3] = ["output", "content", "text"];

/// Keys of an output whose values are not text of the model: sound, images and signatures are in base64.
const NO_TEXT: [&str; 7] = ["data", "encrypted_content", "id", "object", "role", "signature", "type"];

/// Keys of an output whose values are all written by the model: the arguments of a tool.
const ARGUMENTS: [&str; 2] = ["input", "arguments"];

/// The kind of a response, which decides how its usage is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// Server-sent events.
    Stream,
    /// JSON or other text.
    Text,
    /// Anything else, such as sound.
    Other,
}

impl ResponseKind {
    /// Returns the kind of a response with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if is_event_stream(headers) {
            return Self::Stream;
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.to_ascii_lowercase();
        if kind.starts_with("text/") || kind.contains("json") { Self::Text } else { Self::Other }
    }
}

/// Extracts the usage from a response, chunk by chunk.
#[derive(Debug)]
pub(super) struct UsageReader {
    /// JSON as a whole if it is no longer than [`MAX_JSON_BYTES`]. Otherwise at least the last [`TAIL_BYTES`]
    /// bytes.
    tail: Vec<u8>,
    /// The length of the response so far, in bytes.
    length: u64,
    /// Whether the response is JSON or other text, and no stream.
    is_text: bool,
    /// `None` if the response is not a stream.
    stream: Option<(EventSplitter, StreamCounts)>,
}

/// Returns whether a field of an output has no text of the model. A URL may be a file in base64.
fn is_no_text(key: &str, value: &Value) -> bool {
    NO_TEXT.contains(&key) || key == "url" && value.as_str().is_some_and(|url| url.starts_with("data:"))
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
                let is_image = fields.get("type").is_some_and(|kind| kind == "image_generation_call");
                for (key, value) in fields {
                    let key = key.as_str();
                    if ARGUMENTS.contains(&key) && !value.is_string() {
                        self.0.push(&value.to_string());
                    } else if !(is_no_text(key, value) || is_image && key == "result") {
                        self.add(value);
                    }
                }
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

/// What is known from the events of a stream so far.
#[derive(Debug, Default)]
struct StreamCounts {
    reported: TokenCounts,
    /// The number of events with data.
    events: usize,
    text: OutputText,
    /// The tokens of `text` at the last report of output.
    tokens_at_report: usize,
    /// Whether the last event with data was too long to be parsed. It may contain the usage.
    is_last_long: bool,
    /// Whether the last part was one of a long event.
    is_in_long: bool,
}

impl StreamCounts {
    fn add(&mut self, part: EventPart<'_>) {
        let was_in_long = std::mem::replace(&mut self.is_in_long, matches!(part, EventPart::OfLong(_)));
        let data = match part {
            EventPart::Event { data, .. } => data,
            EventPart::LineEnd(_) => return,
            EventPart::OfLong(_) => {
                self.events += usize::from(!was_in_long);
                self.is_last_long = true;
                return;
            }
        };
        let event = match data {
            EventData::None => return,
            EventData::Json(event) => event,
            EventData::Other => Value::Null,
        };
        self.events += 1;
        self.is_last_long = false;
        // The Responses API reports the usage of the whole response. The Messages API reports the input at
        // the beginning, with an output that is not the whole.
        let input = TokenCounts { output: None, ..TokenCounts::of(&event["message"]["usage"]) };
        let reported = TokenCounts::of(&event["usage"]).max(TokenCounts::of(&event["response"]["usage"]));
        self.reported = self.reported.max(reported).max(input);
        // `response.audio.delta` and `response.output_audio.delta` have sound in base64.
        if !event["type"].as_str().is_some_and(|kind| kind.ends_with("audio.delta")) {
            self.text.add(&event["delta"]);
        }
        self.text.add_choices(&event, ["delta", "text"]);
        if reported.output.is_some() {
            self.tokens_at_report = self.text.0.total();
        }
    }

    /// Returns the output of the stream, if `reported` is what it reports: the count that is reported, and
    /// the tokens that the text after it may have. Without a count above zero it is at least one token per
    /// event.
    fn output_tokens(&self, reported: Option<u32>) -> u32 {
        let tokens = self.text.0.total();
        match reported {
            // Some servers report no output for a stream that has one.
            None | Some(0) => saturated(tokens.max(self.events)),
            Some(reported) => reported.saturating_add(saturated(tokens - self.tokens_at_report)),
        }
    }
}

impl UsageReader {
    /// Creates a reader for a response of this kind.
    pub(super) fn new(kind: ResponseKind) -> Self {
        let splitter = || (EventSplitter::new(MAX_EVENT_BYTES), StreamCounts::default());
        let stream = (kind == ResponseKind::Stream).then(splitter);
        Self { tail: Vec::new(), length: 0, is_text: kind == ResponseKind::Text, stream }
    }

    /// Adds the next chunk of the response.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if let Some((events, counts)) = &mut self.stream {
            events.push(piece, |part| counts.add(part));
        }
        self.length += piece.len() as u64;
        let most = if self.stream.is_some() { 2 * TAIL_BYTES } else { MAX_JSON_BYTES };
        let kept = if self.tail.len() + piece.len() > most {
            let kept = &piece[piece.len().saturating_sub(TAIL_BYTES)..];
            self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES - kept.len()));
            kept
        } else {
            piece
        };
        self.tail.extend_from_slice(kept);
    }

    /// Returns the usage of the response, which has ended here. `estimate` is what the request reserved.
    ///
    /// Returns `None` if the reservation is all that is known: for a response that is neither a stream nor
    /// text, and for one whose output is still to come.
    pub(super) fn finish(&mut self, estimate: Usage) -> Option<Usage> {
        let (reported, output) = if let Some((events, counts)) = &mut self.stream {
            events.finish(|part| counts.add(part));
            let in_long = if counts.is_last_long { in_tail(&self.tail) } else { TokenCounts::default() };
            if in_long.output.is_some() {
                counts.tokens_at_report = counts.text.0.total();
            }
            let reported = counts.reported.max(in_long);
            (reported, counts.output_tokens(reported.output))
        } else if let Some(response) = self.whole_object() {
            if response["status"].as_str().is_some_and(|status| ["queued", "in_progress"].contains(&status)) {
                return None;
            }
            let reported = TokenCounts::of(&response["usage"]);
            (reported, reported.output.filter(|count| *count > 0).unwrap_or_else(|| text_tokens(&response)))
        } else {
            let reported = in_tail(&self.tail);
            if reported.output.is_none() && !self.is_text {
                return None;
            }
            let by_length = u32::try_from(self.length / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
            (reported, reported.output.unwrap_or(by_length.max(estimate.output_tokens)))
        };
        Some(Usage::tokens(reported.input.unwrap_or(estimate.input_tokens), output))
    }

    /// Returns the response if it is a JSON object that was kept whole.
    fn whole_object(&self) -> Option<Value> {
        let is_whole = self.tail.len() as u64 == self.length;
        is_whole.then(|| serde_json::from_slice(&self.tail).ok().filter(Value::is_object))?
    }
}

/// Returns the largest number of tokens that the output in a response may have.
fn text_tokens(response: &Value) -> u32 {
    let mut text = OutputText::default();
    text.add_choices(response, ["message", "text"]);
    for key in OUTPUTS {
        text.add(&response[key]);
    }
    saturated(text.0.total())
}

/// Returns the last usage in the end of a response.
fn in_tail(tail: &[u8]) -> TokenCounts {
    // No more than this, so that nothing depends on how the response was cut.
    let tail = &tail[tail.len().saturating_sub(TAIL_BYTES)..];
    let found = memmem::rfind_iter(tail, b"\"usage\"").find_map(|at| {
        // Inside a JSON string the quotes are escaped, so this is content.
        if at.checked_sub(1).is_some_and(|before| tail[before] == b'\\') {
            return None;
        }
        let value = tail[at + b"\"usage\"".len()..].trim_ascii_start().strip_prefix(b":")?;
        let usage = serde_json::Deserializer::from_slice(value).into_iter::<Value>().next()?.ok()?;
        Some(TokenCounts::of(&usage)).filter(|reported| *reported != TokenCounts::default())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_stream: bool, pieces: &[&str]) -> Option<Usage> {
        read_as(if is_stream { ResponseKind::Stream } else { ResponseKind::Text }, pieces)
    }

    fn read_as(kind: ResponseKind, pieces: &[&str]) -> Option<Usage> {
        let mut reader = UsageReader::new(kind);
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
    }

    #[test]
    fn text_that_is_no_json_object_is_charged_for_its_length_and_other_responses_keep_their_reservation() {
        for (text, output) in [
            ("no json at all", 4),
            ("", 0),
            (r#"["tide"]"#, 2),
            (r#"{"choices":[{"message":{"content":"it was cut o"#, 15),
            ("{\"text\":\"one\"}\n{\"text\":\"two\"}\n", 10),
        ] {
            assert_eq!(read(false, &[text]), Some(Usage::tokens(5, output)), "{text}");
            assert_eq!(read_as(ResponseKind::Other, &[text]), None, "{text}");
        }
        let mut reader = UsageReader::new(ResponseKind::Text);
        reader.push(b"1\n00:00:01,000 --> 00:00:02,000\ntide\n");
        assert_eq!(reader.finish(Usage::tokens(5, 100)), Some(Usage::tokens(5, 100)), "at least the reservation");
    }

    #[test]
    fn a_response_in_the_background_keeps_its_reservation() {
        for status in ["queued", "in_progress"] {
            let response = format!(r#"{{"status":"{status}","output":[],"usage":null}}"#);
            assert_eq!(read(false, &[&response]), None);
        }
        assert_eq!(read(false, &[r#"{"status":"completed","output":[]}"#]), Some(Usage::tokens(5, 0)));
    }

    #[test]
    fn a_report_that_is_not_whole_does_not_make_the_output_free() {
        let text = r#""choices":[{"message":{"content":"0123456789"}}]"#;
        for (usage, expected) in [
            (r#"{"prompt_tokens":9}"#, Usage::tokens(9, 10)),
            (r#"{"prompt_tokens":9,"completion_tokens":0}"#, Usage::tokens(9, 10)),
            (r#"{"prompt_tokens":9,"completion_tokens":34.0}"#, Usage::tokens(9, 34)),
            (r#"{"prompt_tokens":"9","completion_tokens":"34"}"#, Usage::tokens(9, 34)),
            (r#"{"prompt_tokens":9,"total_tokens":43}"#, Usage::tokens(9, 34)),
            (r#"{"input_tokens":3,"cache_creation_input_tokens":100,"output_tokens":4}"#, Usage::tokens(103, 4)),
            (r#"{"completion_tokens":-1}"#, Usage::tokens(5, 10)),
            (r#"{"completion_tokens":1e300}"#, Usage::tokens(5, u32::MAX)),
            ("null", Usage::tokens(5, 10)),
        ] {
            let echoed = r#""tools":[{"usage":{"input_tokens":0,"output_tokens":0}}]"#;
            for response in [format!("{{{text},\"usage\":{usage},{echoed}}}"), format!("{{\"usage\":{usage},{text}}}")]
            {
                assert_eq!(read(false, &[&response]), Some(expected), "{response}");
            }
        }
    }

    #[test]
    fn the_arguments_of_a_tool_are_text_and_an_image_is_none() {
        let call = r#"{"content":[{"type":"tool_use","input":{"data":"0123456789","n":12}}]}"#;
        assert!(read(false, &[call]).is_some_and(|used| used.output_tokens > 12));
        for image in [
            r#"{"output":[{"type":"image_generation_call","result":"UklGRiQAAABXQVZFZm10"}]}"#,
            r#"{"choices":[{"message":{"images":[{"image_url":{"url":"data:image/png;base64,UklGRiQAAAB"}}]}}]}"#,
        ] {
            assert_eq!(read(false, &[image]), Some(Usage::tokens(5, 0)));
        }
    }

    #[test]
    fn the_text_after_the_last_report_of_a_stream_is_charged_too() {
        let first = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":0}}\n\n";
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"0123456789\"}}]}\n\n";
        let report = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\n";
        assert_eq!(read(true, &[first, text, text]), Some(Usage::tokens(7, 20)));
        assert_eq!(read(true, &[first, text, text, report]), Some(Usage::tokens(7, 3)));
        assert_eq!(read(true, &[text, report, text]), Some(Usage::tokens(5, 13)));
        assert_eq!(read(true, &[text, report, first]), Some(Usage::tokens(7, 3)), "a later count may be lower");
        let long = format!(
            "data: {{\"response\":{{\"tools\":\"{}\",\"usage\":{{\"output_tokens\":0}}}}}}\n\n",
            "x".repeat(MAX_EVENT_BYTES)
        );
        assert_eq!(read(true, &[&long, text]), Some(Usage::tokens(5, 10)));
        assert_eq!(read(true, &[&long]), Some(Usage::tokens(5, 1)), "a long event is one, too");
    }

    #[test]
    fn json_that_is_too_long_to_be_kept_and_reports_no_usage_is_charged_for_its_length() {
        let answer = |len: usize| format!("{{\"text\":\"{}\"}}", "港".repeat(len / 3));
        let short = answer(MAX_JSON_BYTES - 20);
        assert!(read(false, &[&short]).is_some_and(|used| used.output_tokens as usize > MAX_JSON_BYTES - 30));
        let long = answer(MAX_JSON_BYTES);
        let used = Some(Usage::tokens(5, (long.len() / 3) as u32));
        assert_eq!(read(false, &[&long]), used);
        let cut = long.len() - 30;
        assert_eq!(read(false, &[&long[..cut - cut % 3], &long[cut - cut % 3..]]), used);
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
        let mut reader = UsageReader::new(ResponseKind::Text);
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
