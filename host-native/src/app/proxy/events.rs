//! Splits a stream of server-sent events into its events.
//!
//! A line ends with a carriage return, a line feed, or both. A blank line ends an event. Some providers send
//! one line per event, without blank lines. So a line of data ends an event, too, unless it is empty or the
//! beginning of JSON that further lines may continue. A line with the JSON of a whole event ends the one
//! before it, and a line that is no field of an event is a part of its own.

use serde_json::Value;

/// A part of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventPart<'a> {
    /// An event without the blank line after it.
    Event { bytes: &'a [u8], data: EventData },
    /// A line end after an event: that of a blank line, or a line feed that follows a carriage return.
    LineEnd(&'a [u8]),
    /// A part of an event that is too long to be kept whole.
    OfLong(&'a [u8]),
}

/// The data of an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventData {
    /// There is none, or it is `[DONE]`.
    None,
    Json(Value),
    /// Data that is not JSON.
    Other,
}

/// Collects the bytes of a stream until an event is complete. The parts together are the stream, and the
/// events are the same however it is cut.
#[derive(Debug)]
pub(super) struct EventSplitter {
    /// The bytes of an event that is not complete.
    pending: Vec<u8>,
    /// Where the last line of `pending` begins.
    line_start: usize,
    /// The longest event that is kept whole, in bytes.
    max_bytes: usize,
    is_long: bool,
    /// Whether `pending` has a line of data, which is the beginning of JSON.
    has_data: bool,
    /// Whether the last byte was a carriage return. A line feed after it belongs to the same line end.
    after_return: bool,
    /// The number of complete lines so far. A byte order mark may begin the first one.
    lines: u64,
}

impl EventSplitter {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            pending: Vec::new(),
            line_start: 0,
            max_bytes,
            is_long: false,
            has_data: false,
            after_return: false,
            lines: 0,
        }
    }

    /// Adds the next bytes, and calls `each` with what is complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(EventPart<'_>)) {
        for piece in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            let is_second_half = self.after_return && piece == b"\n";
            self.after_return = piece.ends_with(b"\r");
            if is_second_half && self.pending.is_empty() {
                each(EventPart::LineEnd(piece));
                continue;
            }
            self.pending.extend_from_slice(piece);
            if is_second_half {
                self.line_start = self.pending.len();
                continue;
            }
            let line_end = usize::from(piece.last().is_some_and(|byte| is_line_end(*byte)));
            self.is_long |= self.pending.len() - line_end > self.max_bytes;
            if self.is_long {
                each(EventPart::OfLong(&self.pending));
                self.is_long = line_end == 0;
                self.clear();
            } else if line_end > 0 {
                self.end_line(&mut each);
            }
        }
    }

    /// Ends the event, if the line that is complete does.
    fn end_line(&mut self, each: &mut impl FnMut(EventPart<'_>)) {
        self.lines += 1;
        if self.lines == 1 && self.pending.starts_with(BYTE_ORDER_MARK) {
            each(EventPart::Event { bytes: BYTE_ORDER_MARK, data: EventData::None });
            self.pending.drain(..BYTE_ORDER_MARK.len());
        }
        let line = &self.pending[self.line_start..self.pending.len() - 1];
        if self.has_data && is_whole_event(line) {
            // Whatever the lines before it begin, this one does not continue it.
            let (event, _) = self.pending.split_at(self.line_start);
            each(EventPart::Event { bytes: event, data: EventData::Other });
            self.pending.drain(..self.line_start);
            (self.line_start, self.has_data) = (0, false);
            return self.end_line(each);
        }
        let data = match line {
            [] => {
                let (event, line_end) = self.pending.split_at(self.line_start);
                if !event.is_empty() {
                    each(EventPart::Event { bytes: event, data: data_of(event).unwrap_or(EventData::Other) });
                }
                each(EventPart::LineEnd(line_end));
                return self.clear();
            }
            // A comment between events is not part of one, nor is a line that is no field.
            line if self.line_start == 0 && !FIELDS.iter().any(|field| line.starts_with(field)) => {
                Some(EventData::None)
            }
            line if is_data(line) && !self.has_data => data_of(line),
            _ => {
                self.line_start = self.pending.len();
                return;
            }
        };
        if let Some(data) = data {
            each(EventPart::Event { bytes: &self.pending, data });
            self.clear();
        } else {
            self.has_data = true;
            self.line_start = self.pending.len();
        }
    }

    /// Ends the stream: calls `each` with the bytes after the last event.
    pub(super) fn finish(&mut self, each: impl FnOnce(EventPart<'_>)) {
        if !self.pending.is_empty() {
            let data = data_of(&self.pending).unwrap_or(EventData::Other);
            each(EventPart::Event { bytes: &self.pending, data });
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.pending.clear();
        (self.line_start, self.has_data) = (0, false);
    }

    /// Returns whether no bytes are held.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

const DATA: &[u8] = b"data:";
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn is_line_end(byte: u8) -> bool {
    b"\r\n".contains(&byte)
}

/// Returns whether a line has data.
fn is_data(line: &[u8]) -> bool {
    line.strip_prefix(DATA).is_some_and(|data| !data.trim_ascii().is_empty())
}

/// Returns whether a line has the JSON of an event of any API.
fn is_whole_event(line: &[u8]) -> bool {
    matches!(line.strip_prefix(DATA).map(serde_json::from_slice), Some(Ok(Value::Object(fields)))
        if ["choices", "usage", "type"].iter().any(|key| fields.contains_key(*key)))
}

/// Returns the data of an event: its `data` lines, joined by line feeds. Returns `None` for the beginning of
/// JSON.
fn data_of(event: &[u8]) -> Option<EventData> {
    let lines = event.split(|byte| is_line_end(*byte)).filter_map(|line| line.strip_prefix(DATA));
    let data = lines.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b'\n');
    if data.is_empty() || data == b"[DONE]" {
        return Some(EventData::None);
    }
    match serde_json::from_slice(&data) {
        Ok(value) => Some(EventData::Json(value)),
        Err(error) => (!error.is_eof()).then_some(EventData::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the events with their data, and all bytes, of a stream in these pieces.
    fn split(pieces: &[&[u8]], max_bytes: usize) -> (Vec<(String, EventData)>, Vec<u8>) {
        let mut splitter = EventSplitter::new(max_bytes);
        let (mut events, mut all) = (Vec::new(), Vec::new());
        let mut each = |part: EventPart<'_>| match part {
            EventPart::Event { bytes, data } => {
                events.push((String::from_utf8_lossy(bytes).into_owned(), data));
                all.extend_from_slice(bytes);
            }
            EventPart::LineEnd(bytes) | EventPart::OfLong(bytes) => all.extend_from_slice(bytes),
        };
        for piece in pieces {
            splitter.push(piece, &mut each);
        }
        splitter.finish(each);
        assert!(splitter.is_empty());
        (events, all)
    }

    #[test]
    fn the_events_are_the_same_however_a_stream_is_cut() {
        let text = "data: 1\n\r\n: idle\r\nid: 2\r\ndata: [2,\r\ndata:3]\r\n\r\ndata: too long to be kept as a whole\n\n\
            data: \"港\"\ndata: 4\r\rdata: no JSON\ndata: [DONE]\ndata: [5\n\nevent: x\n\ndata: no end";
        let stream = text.as_bytes();
        let (events, all) = split(&[stream], 30);
        let expected = [
            ("data: 1\n", EventData::Json(json!(1))),
            (": idle\r", EventData::None),
            ("id: 2\r\ndata: [2,\r\ndata:3]\r\n", EventData::Json(json!([2, 3]))),
            ("data: \"港\"\n", EventData::Json(json!("港"))),
            ("data: 4\r", EventData::Json(json!(4))),
            ("data: no JSON\n", EventData::Other),
            ("data: [DONE]\n", EventData::None),
            ("data: [5\n", EventData::Other),
            ("event: x\n", EventData::None),
            ("data: no end", EventData::Other),
        ];
        let expected = expected.map(|(text, data)| (text.to_string(), data));
        assert_eq!((&events[..], &all[..]), (&expected[..], stream));
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(split(&pieces, 30), (events.clone(), stream.to_vec()), "{first} {second}");
            }
        }
    }

    #[test]
    fn an_event_of_one_line_is_complete_without_a_blank_line_and_the_beginning_of_json_is_held() {
        for (line, is_complete) in [
            ("data: {\"a\":1}", true),
            ("data:{\"a\":\"港\"}", true),
            ("data: [DONE]", true),
            ("data:", false),
            ("no field", true),
            ("data: no JSON", true),
            (": idle", true),
            ("data: {\"a\":", false),
            ("event: x", false),
            ("", true),
        ] {
            for line_end in ["\n", "\r", "\r\n"] {
                let mut splitter = EventSplitter::new(100);
                splitter.push(format!("{line}{line_end}").as_bytes(), |_| {});
                assert_eq!(splitter.is_empty(), is_complete, "{line:?} {line_end:?}");
            }
        }
    }

    #[test]
    fn a_line_with_a_whole_event_is_one_whatever_precedes_it() {
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":7}}"#;
        for before in
            ["\u{feff}", "{\"error\":1}\n", "data: {\"choices\":[\n", "data: -\n", "error: x\r\n", "data: [\ndata: 1\n"]
        {
            let stream = format!("{before}{usage}\ndata: [DONE]\n");
            for cut in 0..stream.len() {
                let (events, all) = split(&[&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]], 100);
                assert_eq!(all, stream.as_bytes());
                let found = events
                    .iter()
                    .filter(|(text, data)| *text == format!("{usage}\n") && matches!(data, EventData::Json(_)));
                assert_eq!(found.count(), 1, "{before:?} {cut} {events:?}");
            }
        }
        let (events, _) = split(&[format!("data:\n{usage}\n\n").as_bytes()], 100);
        assert!(events.len() == 1 && matches!(events[0].1, EventData::Json(_)), "{events:?}");
    }

    #[test]
    fn no_more_than_the_longest_event_is_held() {
        for endless in [&b"x"[..], b"\r", b"id: 1\n", b"data: [\n"] {
            let mut splitter = EventSplitter::new(20);
            let mut bytes = 0;
            let mut count = |part: EventPart<'_>| match part {
                EventPart::Event { bytes: part, .. } | EventPart::LineEnd(part) | EventPart::OfLong(part) => {
                    bytes += part.len();
                }
            };
            for _ in 0..1_000 {
                splitter.push(endless, &mut count);
                assert!(splitter.pending.len() <= 21);
            }
            splitter.finish(count);
            assert_eq!(bytes, 1_000 * endless.len());
        }
    }
}
