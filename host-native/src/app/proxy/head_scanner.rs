//! Decides whether a connection can be used for another request.
//!
//! The HTTP parser accepts heads whose lines end with a bare line feed, as RFC 9112 (section 2.2) allows. A
//! server in front of the proxy may see a single line there, and thus another end of the request. The proxy
//! closes the connection after such a request, so that no further request is read from it.
//!
//! It also closes the connection if other bytes than those of the request have arrived before its response. A
//! later head among them would not be scanned, since only the parser knows where a body ends. Servers in
//! front of a proxy wait for the response.

use parking_lot::Mutex;

/// Scans the bytes that a connection receives.
#[derive(Debug, Default)]
pub(super) struct HeadScanner(Mutex<Position>);

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    part: Part,
    has_bare_line_feed: bool,
    /// The number of bytes after the head.
    body_len: u64,
    /// The length of the current line so far, without its end.
    line_len: usize,
    /// Whether the last byte is a carriage return.
    is_return: bool,
}

/// The part of a request to which the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Part {
    /// No line that is not empty was received. The parser skips empty lines before a request line, so they do
    /// not end the head.
    #[default]
    Start,
    Head,
    Body,
}

impl HeadScanner {
    /// Scans received bytes.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut position = self.0.lock();
        for (at, byte) in bytes.iter().enumerate() {
            if position.part == Part::Body {
                position.body_len += (bytes.len() - at) as u64;
                return;
            }
            if *byte == b'\n' {
                let is_empty = position.line_len == usize::from(position.is_return);
                position.has_bare_line_feed |= !position.is_return;
                position.part = match position.part {
                    Part::Start if is_empty => Part::Start,
                    _ if is_empty => Part::Body,
                    _ => Part::Head,
                };
                (position.line_len, position.is_return) = (0, false);
            } else {
                position.is_return = *byte == b'\r';
                position.line_len += 1;
            }
        }
    }

    /// Ends a request with a body of `body_len` bytes, when its response is ready. Returns whether the
    /// connection can be used for another one: exactly this request was received, without a bare line feed in
    /// its head. The next byte is the first one of the next head.
    pub(super) fn end_request(&self, body_len: u64) -> bool {
        let position = std::mem::take(&mut *self.0.lock());
        position.part == Part::Body && position.body_len == body_len && !position.has_bare_line_feed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the connection can be used after a request with a body of `body_len` bytes that
    /// arrives in these pieces.
    fn can_be_used(pieces: &[&str], body_len: u64) -> bool {
        let scanner = HeadScanner::default();
        for piece in pieces {
            scanner.received(piece.as_bytes());
        }
        scanner.end_request(body_len)
    }

    #[test]
    fn a_bare_line_feed_is_found_in_a_head_only() {
        assert!(can_be_used(&["GET / HTTP/1.1\r\nhost: a\r\n\r\n{\n}\n"], 4));
        assert!(can_be_used(&["GET / HTTP/1.1\r", "\nhost: a\r\n\r", "\n", "\n\n"], 2));
        assert!(!can_be_used(&["GET / HTTP/1.1\nhost: a\n\n"], 0));
        assert!(!can_be_used(&["GET / HTTP/1.1\r\nx: y", "\n", "host: a\r\n\r\n"], 0));
        assert!(!can_be_used(&["GET / HTTP/1.1\r\nhost: a\r\n\n"], 0));
    }

    #[test]
    fn empty_lines_before_a_head_do_not_end_it() {
        assert!(!can_be_used(&["\r\nGET / HTTP/1.1\nhost: a\n\n"], 0));
        assert!(!can_be_used(&["\r", "\n\r\n", "GET / HTTP/1.1\r\nx: y\nhost: a\r\n\r\n"], 0));
        assert!(!can_be_used(&["\nGET / HTTP/1.1\r\n\r\n"], 0));
        assert!(can_be_used(&["\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n{\n}\n"], 4));
    }

    #[test]
    fn bytes_after_a_request_or_a_body_that_is_not_complete_end_the_connection() {
        let head = "GET / HTTP/1.1\r\n\r\n";
        assert!(!can_be_used(&[head, "{}GET"], 2) && !can_be_used(&[head, "{"], 2));
        assert!(!can_be_used(&[head, "\r\n"], 0));
    }

    #[test]
    fn the_head_after_a_response_is_scanned_again() {
        let scanner = HeadScanner::default();
        scanner.received(b"POST / HTTP/1.1\r\n\r\n{\n}");
        assert!(scanner.end_request(3));
        scanner.received(b"GET / HTTP/1.1\n\r\n");
        assert!(!scanner.end_request(0));
    }
}
