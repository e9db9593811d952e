//! Detects request heads whose lines end with a bare line feed.
//!
//! The HTTP parser accepts them, as RFC 9112 (section 2.2) allows. A server in front of the proxy may see a
//! single line there, and thus another end of the request. The proxy closes the connection after such a
//! request, so that no further request is read from it.
//!
//! A head is scanned from the first byte after a response. Later requests that a client sends before that
//! response are not scanned. Servers in front of a proxy wait for the response.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Scans the bytes that a connection receives.
#[derive(Debug, Default)]
pub(super) struct HeadScanner {
    has_bare_line_feed: AtomicBool,
    position: Mutex<Position>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Whether a line that is not empty was received. The parser skips empty lines before a request line, so
    /// they do not end the head.
    has_text: bool,
    /// Whether the head has ended, so that a body follows.
    is_body: bool,
    /// The length of the current line so far, without its end.
    line_len: usize,
    /// Whether the last byte is a carriage return.
    is_return: bool,
}

impl HeadScanner {
    /// Returns whether a head had a bare line feed since the last call.
    pub(super) fn take_bare_line_feed(&self) -> bool {
        self.has_bare_line_feed.swap(false, Ordering::Relaxed)
    }

    /// Scans received bytes.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut position = self.position.lock();
        for byte in bytes {
            if position.is_body {
                return;
            }
            if *byte == b'\n' {
                if !position.is_return {
                    self.has_bare_line_feed.store(true, Ordering::Relaxed);
                }
                let is_empty = position.line_len == usize::from(position.is_return);
                let has_text = position.has_text || !is_empty;
                *position = Position { has_text, is_body: has_text && is_empty, ..Position::default() };
            } else {
                position.is_return = *byte == b'\r';
                position.line_len += 1;
            }
        }
    }

    /// Records that the connection sent bytes. The next bytes that it receives may be a head.
    pub(super) fn sent(&self) {
        *self.position.lock() = Position::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a bare line feed was found in a head that arrives in these pieces.
    fn scan(pieces: &[&str]) -> bool {
        let scanner = HeadScanner::default();
        for piece in pieces {
            scanner.received(piece.as_bytes());
        }
        scanner.take_bare_line_feed()
    }

    #[test]
    fn a_bare_line_feed_is_found_in_a_head_only() {
        assert!(!scan(&["GET / HTTP/1.1\r\nhost: a\r\n\r\n{\n}\n"]));
        assert!(!scan(&["GET / HTTP/1.1\r", "\nhost: a\r\n\r", "\n", "\n\n"]));
        assert!(scan(&["GET / HTTP/1.1\nhost: a\n\n"]));
        assert!(scan(&["GET / HTTP/1.1\r\nx: y", "\n", "host: a\r\n\r\n"]));
        assert!(scan(&["GET / HTTP/1.1\r\nhost: a\r\n\n"]));
    }

    #[test]
    fn empty_lines_before_a_head_do_not_end_it() {
        assert!(scan(&["\r\nGET / HTTP/1.1\nhost: a\n\n"]));
        assert!(scan(&["\r", "\n\r\n", "GET / HTTP/1.1\r\nx: y\nhost: a\r\n\r\n"]));
        assert!(scan(&["\nGET / HTTP/1.1\r\n\r\n"]));
        assert!(!scan(&["\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n{\n}\n"]));
    }

    #[test]
    fn the_head_after_a_response_is_scanned_again() {
        let scanner = HeadScanner::default();
        scanner.received(b"POST / HTTP/1.1\r\n\r\n{\n}");
        assert!(!scanner.take_bare_line_feed());
        scanner.sent();
        scanner.received(b"GET / HTTP/1.1\n\r\n");
        assert!(scanner.take_bare_line_feed() && !scanner.take_bare_line_feed());
    }
}
