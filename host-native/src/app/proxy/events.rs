//! Splits a stream of server-sent events into its events.
//!
//! An event ends with a blank line. Lines end with a line feed, which a carriage return may precede.

/// The bytes of one event, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPart<'a> {
    /// A whole event, with its blank line. Only the last one of a stream may lack that.
    Whole(&'a [u8]),
    /// A part of an event that is too long to be kept whole.
    OfLong(&'a [u8]),
}

/// Collects the bytes of a stream until an event is complete. The parts together are the stream, and the
/// whole events are the same however it is cut.
#[derive(Debug)]
pub(super) struct EventSplitter {
    /// The bytes of an event that is not complete.
    pending: Vec<u8>,
    /// The longest event that is kept whole, in bytes, without its blank line.
    max_bytes: usize,
    is_long: bool,
    /// Whether the current line has no bytes but carriage returns so far.
    is_line_blank: bool,
}

impl EventSplitter {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { pending: Vec::new(), max_bytes, is_long: false, is_line_blank: true }
    }

    /// Adds the next bytes, and calls `each` with what is complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(EventPart<'_>)) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(line);
            let is_blank = self.is_line_blank && line.iter().all(|byte| b"\r\n".contains(byte));
            let has_line_end = line.ends_with(b"\n");
            self.is_line_blank = is_blank || has_line_end;
            // A blank line has a line feed, and at most one carriage return that means something.
            let blank_line = if is_blank { 2 } else { 0 };
            self.is_long |= self.pending.len() > self.max_bytes + blank_line;
            let is_end = is_blank && has_line_end;
            if self.is_long {
                each(EventPart::OfLong(&self.pending));
                self.pending.clear();
            } else if is_end {
                each(EventPart::Whole(&self.pending));
                self.pending.clear();
            }
            self.is_long &= !is_end;
        }
    }

    /// Ends the stream: calls `each` with the bytes after the last blank line.
    pub(super) fn finish(&mut self, each: impl FnOnce(EventPart<'_>)) {
        if !self.pending.is_empty() {
            each(EventPart::Whole(&self.pending));
            self.pending.clear();
        }
    }

    /// Returns whether no bytes are held.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

/// Returns the data of an event: its `data` lines, joined by line feeds.
pub(super) fn event_data(event: &[u8]) -> Vec<u8> {
    let lines = event.split(|byte| *byte == b'\n');
    let data = lines.filter_map(|line| line.strip_prefix(b"data:")).map(<[u8]>::trim_ascii);
    data.collect::<Vec<_>>().join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the whole events, and all bytes, of a stream in these pieces.
    fn split(pieces: &[&[u8]], max_bytes: usize) -> (Vec<String>, Vec<u8>) {
        let mut splitter = EventSplitter::new(max_bytes);
        let (mut whole, mut all) = (Vec::new(), Vec::new());
        let mut each = |part: EventPart<'_>| match part {
            EventPart::Whole(bytes) => {
                whole.push(String::from_utf8_lossy(bytes).into_owned());
                all.extend_from_slice(bytes);
            }
            EventPart::OfLong(bytes) => all.extend_from_slice(bytes),
        };
        for piece in pieces {
            splitter.push(piece, &mut each);
        }
        splitter.finish(each);
        assert!(splitter.is_empty());
        (whole, all)
    }

    #[test]
    fn the_events_are_the_same_however_a_stream_is_cut() {
        let stream = b"data: 1\n\r\n: idle\r\ndata: 2\r\n\r\ndata: too long to be kept\n\ndata: 3\n\ndata: no end";
        let (whole, _) = split(&[stream], 20);
        assert_eq!(whole, ["data: 1\n\r\n", ": idle\r\ndata: 2\r\n\r\n", "data: 3\n\n", "data: no end"]);
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(split(&pieces, 20), (whole.clone(), stream.to_vec()), "{first} {second}");
            }
        }
    }

    #[test]
    fn carriage_returns_without_end_are_not_kept() {
        let mut splitter = EventSplitter::new(20);
        let mut bytes = 0;
        for _ in 0..1_000 {
            splitter.push(b"\r", |part| match part {
                EventPart::OfLong(part) => bytes += part.len(),
                EventPart::Whole(event) => panic!("there is no event: {event:?}"),
            });
            assert!(splitter.pending.len() <= 22);
        }
        splitter.finish(|part| match part {
            EventPart::Whole(rest) | EventPart::OfLong(rest) => bytes += rest.len(),
        });
        assert_eq!(bytes, 1_000);
    }

    #[test]
    fn the_data_of_an_event_may_have_several_lines() {
        assert_eq!(event_data(b"event: x\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n"), b"{\"a\":\n1}");
        assert_eq!(event_data(b": idle\n\n"), b"");
    }
}
