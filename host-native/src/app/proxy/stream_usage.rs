//! Asks providers for the usage of streams, which is not reported by default, and removes the answer for
//! clients that did not ask.
//!
//! `stream_options.include_usage` makes a provider send one more event at the end, with the usage and without
//! choices. A client that does not expect it may fail at the missing choice.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::events::{EventData, EventPart, EventSplitter};

/// The longest event that may be one of usage, in bytes. Longer ones are forwarded as they arrive.
const MAX_EVENT_BYTES: usize = 16 << 10;

/// Returns whether a provider sends the usage of a stream of this call only on demand. `path` is without
/// `/v1/`.
pub(super) fn is_on_demand(path: &str) -> bool {
    ["chat/completions", "completions"].contains(&path)
}

/// Returns whether an event has usage and no choices.
fn is_usage(data: &EventData) -> bool {
    let EventData::Json(event) = data else { return false };
    event["usage"].is_object() && event["choices"].as_array().is_some_and(Vec::is_empty)
}

/// Returns whether a part of a stream has only fields of an event other than its data.
fn is_without_data(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| b"\r\n".contains(byte)).filter(|line| !line.is_empty());
    lines.all(|line| ["event", "id", "retry"].iter().any(|field| line.starts_with(field.as_bytes())))
}

pin_project! {
    /// A body of server-sent events without the event of usage. Each other event is forwarded when it is
    /// complete, also if no blank line follows it.
    pub(super) struct WithoutUsage<B: Body> {
        #[pin]
        body: B,
        // `None`: all is forwarded as it arrives.
        events: Option<EventSplitter>,
        // Whether the last event is removed, and so are the line ends after it.
        is_removed: bool,
        // Whether the last event is not at its end yet: further fields of it may follow, up to a blank line.
        is_open: bool,
        // Whether the last byte was a carriage return.
        after_return: bool,
        has_ended: bool,
        // The error that has ended the body, until it is forwarded after the last bytes.
        error: Option<B::Error>,
    }
}

impl<B: Body> WithoutUsage<B> {
    /// Creates a body without the event of usage if `removes_usage`, and otherwise an unchanged one.
    pub(super) fn new(body: B, removes_usage: bool) -> Self {
        let events = removes_usage.then(|| EventSplitter::new(MAX_EVENT_BYTES));
        Self { body, events, is_removed: false, is_open: false, after_return: false, has_ended: false, error: None }
    }
}

impl<B: Body<Data = Bytes>> Body for WithoutUsage<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let Some(events) = this.events else { return this.body.poll_frame(context) };
        while !*this.has_ended {
            let mut kept = Vec::new();
            let keep = |part: EventPart<'_>| {
                let bytes = match part {
                    EventPart::Event { bytes, data } => {
                        let is_rest = *this.is_removed && *this.is_open && is_without_data(bytes);
                        *this.is_removed = is_rest || is_usage(&data);
                        *this.is_open = true;
                        bytes
                    }
                    EventPart::OfLong(bytes) => {
                        *this.is_removed = false;
                        bytes
                    }
                    EventPart::LineEnd(bytes) => {
                        // After a carriage return, a line feed is the second half of the line end.
                        *this.is_open &= *this.after_return && bytes == b"\n";
                        bytes
                    }
                };
                *this.after_return = bytes.ends_with(b"\r");
                if !*this.is_removed {
                    kept.extend_from_slice(bytes);
                }
            };
            match ready!(this.body.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => events.push(&data, keep),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end @ (None | Some(Err(_))) => {
                    *this.has_ended = true;
                    *this.error = end.and_then(Result::err);
                    events.finish(keep);
                }
            }
            if !kept.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(kept.into()))));
            }
        }
        Poll::Ready(this.error.take().map(Err))
    }

    fn is_end_stream(&self) -> bool {
        let holds_nothing = || self.error.is_none() && self.events.as_ref().is_none_or(EventSplitter::is_empty);
        holds_nothing() && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.events.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, StreamBody};

    async fn forwarded(pieces: &[&str]) -> String {
        let frames = pieces
            .iter()
            .map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::copy_from_slice(piece.as_bytes()))));
        let body = StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>()));
        let bytes = WithoutUsage::new(body, true).collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_the_event_of_usage_is_removed_however_a_stream_is_cut() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{}\"}}],\"usage\":null}\n\n";
        let filtered = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
        let last = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7}}\n\n";
        let stream = [filtered, text, usage, last, ": idle\n\n", "data: [DONE]\n\n"].concat();
        let expected = stream.replace(usage, "");
        for cut in 0..stream.len() {
            assert_eq!(forwarded(&[&stream[..cut], &stream[cut..]]).await, expected, "{cut}");
        }
        assert_eq!(forwarded(&[text, usage.trim_end()]).await, text);
        // Fields of the removed event may follow its data.
        let json = usage.trim_end();
        for end in ["\n", "\r\n", "\r"] {
            let fields = ["id: 9", "event: x", "retry: 1", "", ""].join(end);
            let stream = format!("{text}{json}{end}{fields}{text}id: 10\n{text}");
            let expected = format!("{text}{text}id: 10\n{text}");
            for cut in 0..stream.len() {
                assert_eq!(forwarded(&[&stream[..cut], &stream[cut..]]).await, expected, "{end:?} {cut}");
            }
        }
        // A line that is no field, and the beginning of JSON that never ends, stay.
        for before in ["\u{feff}", "{\"error\":1}\n", "data: {\"choices\":[\n"] {
            assert_eq!(forwarded(&[before, json, "\n", text]).await, format!("{before}{text}"));
        }
    }

    #[tokio::test]
    async fn usage_is_removed_from_lines_without_blank_lines_and_with_any_line_end() {
        let text = r#"data: {"choices":[{"delta":{"content":"港"}}],"usage":null}"#;
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
        let in_lines = "id: 9|data: {\"choices\":[],|data: \"usage\":{\"prompt_tokens\":7}}||";
        for line_end in ["\n", "\r", "\r\n"] {
            let ended = |text: &str| text.replace('|', line_end);
            for (sent, expected) in [
                (format!("{text}|{text}|{usage}|data: [DONE]|"), format!("{text}|{text}|data: [DONE]|")),
                (format!("{text}||{usage}||data: [DONE]||"), format!("{text}||data: [DONE]||")),
                (format!("{text}||{usage}|"), format!("{text}||")),
                (format!("{text}||{in_lines}: idle||"), format!("{text}||: idle||")),
            ] {
                let (sent, expected) = (ended(&sent), ended(&expected));
                for cut in (0..sent.len()).filter(|cut| sent.is_char_boundary(*cut)) {
                    assert_eq!(forwarded(&[&sent[..cut], &sent[cut..]]).await, expected, "{cut} {sent:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn the_bytes_before_an_error_are_forwarded() {
        let frames = [Ok(Frame::data(Bytes::from_static(b"data: [DONE]\n"))), Err("reset")];
        let mut body = WithoutUsage::new(StreamBody::new(futures_util::stream::iter(frames)), true);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "data: [DONE]\n");
        assert!(!body.is_end_stream());
        assert_eq!(body.frame().await.unwrap().unwrap_err(), "reset");
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }

    #[tokio::test]
    async fn an_event_is_forwarded_as_soon_as_it_is_complete_and_a_long_one_as_it_arrives() {
        let long = format!("data: {}", "x".repeat(MAX_EVENT_BYTES));
        let sent = ["data: 1\n\nda", "ta: 2\n", "data: {\"a\":", "3}\r", "\n\r\n", &long, "\n\n"];
        let frames =
            sent.map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::copy_from_slice(piece.as_bytes()))));
        let mut body = WithoutUsage::new(StreamBody::new(futures_util::stream::iter(frames)), true);
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            received.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(received, ["data: 1\n\n", "data: 2\n", "data: {\"a\":3}\r", "\n\r\n", &long, "\n\n"]);
    }
}
