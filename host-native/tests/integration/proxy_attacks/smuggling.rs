//! Tests of request smuggling: requests that two parsers delimit differently, so that the second one finds a
//! hidden request.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{CHAT, SHORT, read, send, status, upstream};
use crate::support::world::World;

/// The hidden request: a call that the proxy must admit separately.
const HIDDEN: &str = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                      content-length: 16\r\n\r\n{\"model\":\"echo\"}";

const BODY: &str = "{\"model\":\"echo\"}";

/// Returns the head of a call with these header lines. The lines include their line ends.
fn head(lines: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{lines}\r\n")
}

/// What must happen to the outer request of an attack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outer {
    Refused,
    /// It is served, and every parser finds the same end of it.
    Served,
    /// It is served, but parsers may disagree on its end, so nothing after it is read.
    ServedLast,
}

/// Sends `bytes`, and asserts that at most the outer request reaches the provider, also if the rest comes
/// after the response to it.
async fn attack(what: &str, bytes: String, outer: Outer) {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", SHORT).await;
    let answer = send(&world, &bytes).await;
    let seen = upstream(&world);
    assert!(seen.is_empty() || seen == [format!("POST {CHAT}")], "{what}: {seen:?}");
    assert_eq!(seen.is_empty(), outer == Outer::Refused, "{what}: {answer}");
    match outer {
        Outer::Refused => assert!(matches!(status(&answer), "400" | "408" | "413" | "431"), "{what}: {answer}"),
        Outer::Served => {}
        Outer::ServedLast => {
            let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
            stream.write_all(bytes.strip_suffix(HIDDEN).unwrap_or(&bytes).as_bytes()).await.unwrap();
            let mut answer = Vec::with_capacity(1 << 16);
            while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{what}: no response");
            }
            // The proxy may have closed the connection.
            let _ = stream.write_all(HIDDEN.as_bytes()).await;
            let answer = String::from_utf8_lossy(&answer).to_string() + &read(stream).await;
            assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{what}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
            assert_eq!(upstream(&world), [format!("POST {CHAT}"), format!("POST {CHAT}")], "{what}");
        }
    }
}

#[tokio::test]
async fn a_content_length_with_a_transfer_encoding_smuggles_no_request() {
    let chunked = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let len = chunked.len() + HIDDEN.len();
    let both = format!("content-length: {len}\r\ntransfer-encoding: chunked\r\n");
    attack("CL.TE", format!("{}{chunked}{HIDDEN}", head(&both)), Outer::ServedLast).await;
    let both = format!("transfer-encoding: chunked\r\ncontent-length: {len}\r\n");
    attack("TE.CL, encoding first", format!("{}{chunked}{HIDDEN}", head(&both)), Outer::ServedLast).await;
    let both = "content-length: 4\r\ntransfer-encoding: chunked\r\n";
    attack("TE.CL", format!("{}{chunked}{HIDDEN}", head(both)), Outer::ServedLast).await;
}

#[tokio::test]
async fn two_content_lengths_smuggle_no_request() {
    let len = BODY.len();
    for (what, lines) in [
        ("two", format!("content-length: {len}\r\ncontent-length: 0\r\n")),
        ("two, other order", format!("content-length: 0\r\ncontent-length: {len}\r\n")),
        ("a list", format!("content-length: {len}, 0\r\n")),
        ("a sign", format!("content-length: +{len}\r\n")),
        ("a negative one", "content-length: -1\r\n".to_string()),
        ("hexadecimal", "content-length: 0x10\r\n".to_string()),
        ("huge", "content-length: 99999999999999999999999\r\n".to_string()),
        ("a space before the colon", format!("content-length : {len}\r\n")),
        ("folded", format!("content-length:\r\n {len}\r\n")),
    ] {
        attack(what, format!("{}{BODY}{HIDDEN}", head(&lines)), Outer::Refused).await;
    }
    // The parser takes two equal lengths for one.
    let equal = format!("content-length: {len}\r\ncontent-length: {len}\r\n");
    attack("two equal ones", format!("{}{BODY}{HIDDEN}", head(&equal)), Outer::Served).await;
    // Some parsers read it as octal.
    attack(
        "a leading zero",
        format!("{}{BODY}{HIDDEN}", head(&format!("content-length: 0{len}\r\n"))),
        Outer::ServedLast,
    )
    .await;
}

#[tokio::test]
async fn no_spelling_of_a_transfer_encoding_smuggles_a_request() {
    let chunked = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    for (what, line) in [
        ("unknown", "transfer-encoding: xchunked\r\n"),
        ("not last", "transfer-encoding: chunked, identity\r\n"),
        ("a space before the colon", "transfer-encoding : chunked\r\n"),
        ("a vertical tab", "transfer-encoding: \x0bchunked\r\n"),
        ("folded", "transfer-encoding:\r\n chunked\r\n"),
        ("folded name", "x: y\r\n transfer-encoding: chunked\r\n"),
        ("a null", "transfer-encoding: chunked\0\r\n"),
        ("twice", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        ("twice in a list", "transfer-encoding: chunked, chunked\r\n"),
        ("after another", "transfer-encoding: identity, chunked\r\n"),
        ("compressed", "transfer-encoding: gzip, chunked\r\n"),
        ("after an unknown one", "transfer-encoding: xx, chunked\r\n"),
        ("after an empty one", "transfer-encoding: , chunked\r\n"),
        ("in another line", "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n"),
    ] {
        attack(what, format!("{}{chunked}{HIDDEN}", head(line)), Outer::Refused).await;
    }
    for (what, line) in [
        ("upper case", "Transfer-Encoding: CHUNKED\r\n"),
        ("a tab", "transfer-encoding:\tchunked\r\n"),
        ("spaces", "transfer-encoding:  chunked  \r\n"),
    ] {
        attack(what, format!("{}{chunked}{HIDDEN}", head(line)), Outer::ServedLast).await;
    }
}

#[tokio::test]
async fn no_chunk_size_smuggles_a_request() {
    for (what, chunks) in [
        ("negative", format!("-1\r\n{BODY}\r\n0\r\n\r\n")),
        ("a sign", format!("+10\r\n{BODY}\r\n0\r\n\r\n")),
        ("0x", format!("0x10\r\n{BODY}\r\n0\r\n\r\n")),
        ("too large for 64 bits", format!("10000000000000010\r\n{BODY}\r\n0\r\n\r\n")),
        ("longer than it says", format!("2\r\n{BODY}\r\n0\r\n\r\n")),
        ("empty", format!("\r\n{BODY}\r\n0\r\n\r\n")),
        ("no number", format!("zz\r\n{BODY}\r\n0\r\n\r\n")),
        ("cut off", format!("ff\r\n{BODY}")),
    ] {
        attack(what, format!("{}{chunks}{HIDDEN}", head("transfer-encoding: chunked\r\n")), Outer::Refused).await;
    }
    for (what, chunks) in [
        ("an extension", format!("10;a=b\r\n{BODY}\r\n0\r\n\r\n")),
        ("trailers", format!("10\r\n{BODY}\r\n0\r\ncontent-length: 5\r\nhost: evil.example\r\n\r\n")),
    ] {
        attack(what, format!("{}{chunks}{HIDDEN}", head("transfer-encoding: chunked\r\n")), Outer::ServedLast).await;
    }
}

#[tokio::test]
async fn no_line_ending_smuggles_a_request() {
    let len = BODY.len();
    let call =
        format!("POST {CHAT} HTTP/1.1\nhost: localhost\ncontent-type: application/json\ncontent-length: {len}\n\n");
    attack("bare line feeds", format!("{call}{BODY}"), Outer::ServedLast).await;
    let lines = format!("x: y\ntransfer-encoding: chunked\r\ncontent-length: {len}\r\n");
    let world = World::new("", SHORT).await;
    send(&world, format!("{}{BODY}{HIDDEN}", head(&lines))).await;
    assert!(upstream(&world).is_empty(), "a line feed ends a line: {:?}", upstream(&world));
    // The second server would not see this length, and would take the body for the next request.
    let lines = format!("x: y\ncontent-length: {len}\r\n");
    attack("a line feed before a length", format!("{}{BODY}{HIDDEN}", head(&lines)), Outer::ServedLast).await;
    attack("a line feed at the end", format!("{call}{BODY}{HIDDEN}"), Outer::ServedLast).await;
    // The parser skips empty lines before a request line.
    attack("an empty line first", format!("\r\n{call}{BODY}{HIDDEN}"), Outer::ServedLast).await;
    attack("two empty lines first", format!("\r\n\r\n{}{BODY}{HIDDEN}", head(&lines)), Outer::ServedLast).await;
    for (what, lines) in [
        ("a bare return in a value", format!("x: y\rcontent-length: 0\r\ncontent-length: {len}\r\n")),
        ("a folded line", format!("x: y\r\n z\r\ncontent-length: {len}\r\n")),
        ("a null in a value", format!("x: \0\r\ncontent-length: {len}\r\n")),
        ("no colon", format!("content-length {len}\r\n")),
    ] {
        attack(what, format!("{}{BODY}", head(&lines)), Outer::Refused).await;
    }
}

#[tokio::test]
async fn an_absolute_target_is_forwarded_to_the_provider_only() {
    let len = BODY.len();
    let rest = format!("content-type: application/json\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{BODY}");
    let world = World::new("", SHORT).await;
    let own = format!("POST http://localhost{CHAT} HTTP/1.1\r\nhost: localhost\r\n{rest}");
    assert_eq!(status(&send(&world, own).await), "200");
    for (target, host) in [
        (format!("http://evil.example{CHAT}"), "evil.example"),
        (format!("http://evil.example{CHAT}"), "localhost"),
        (format!("http://localhost{CHAT}"), "evil.example"),
        (format!("http://localhost@evil.example{CHAT}"), "localhost"),
        ("*".to_string(), "localhost"),
        (format!("localhost{CHAT}"), "localhost"),
    ] {
        let answer = send(&world, format!("POST {target} HTTP/1.1\r\nhost: {host}\r\n{rest}")).await;
        assert!(matches!(status(&answer), "400" | "403" | "404"), "{target} {host}: {answer}");
    }
    assert_eq!(upstream(&world), [format!("POST {CHAT}")]);
}

#[tokio::test]
async fn a_request_that_arrives_before_the_response_to_another_is_not_served() {
    let len = BODY.len();
    let world = World::new("", SHORT).await;
    let first = format!("{}{BODY}", head(&format!("content-length: {len}\r\n")));
    let answer = send(&world, format!("{first}{HIDDEN}")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert_eq!(upstream(&world), [format!("POST {CHAT}")]);
    // The first body has the empty line and the length that would end the second head.
    let body = "{\"model\":\"echo\"\r\n\r\n}";
    let first = format!("{}{body}", head(&format!("content-length: {}\r\n", body.len())));
    let second = HIDDEN.replace("host: localhost\r\n", "host: localhost\nx: y\r\n");
    send(&world, format!("{first}{second}{HIDDEN}")).await;
    assert_eq!(upstream(&world).len(), 2, "{:?}", upstream(&world));
    // The unread body of a rejected request is not parsed as the next request.
    let refused =
        format!("POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{HIDDEN}", HIDDEN.len());
    send(&world, refused).await;
    assert_eq!(upstream(&world).len(), 2);
    // Requests that wait for the response are served on one connection.
    let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
    let call = format!("{}{BODY}", head(&format!("content-length: {len}\r\n")));
    for _ in 0..2 {
        stream.write_all(call.as_bytes()).await.unwrap();
        // So large that no read ends within the answer.
        let mut answer = Vec::with_capacity(1 << 16);
        while !answer.ends_with(b"}")
            && !answer.ends_with(b"0\r\n\r\n")
            && stream.read_buf(&mut answer).await.unwrap() > 0
        {}
        assert_eq!(status(&String::from_utf8_lossy(&answer)), "200");
    }
    assert_eq!(upstream(&world).len(), 4);
}

#[tokio::test]
async fn no_other_protocol_or_version_smuggles_a_request() {
    let world = World::new("", SHORT).await;
    let len = format!("content-length: {}\r\n", BODY.len());
    let upgrade = format!("{len}connection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n");
    for (what, bytes) in [
        ("an upgrade to HTTP/2", format!("{}{BODY}", head(&format!("{upgrade}upgrade: h2c\r\n")))),
        ("an upgrade to WebSocket", format!("{}{BODY}", head(&format!("{upgrade}upgrade: websocket\r\n")))),
        ("a body that is announced", format!("{}{BODY}", head(&format!("{len}expect: 100-continue\r\n")))),
        ("HTTP/1.0", format!("{}{BODY}", head(&len).replace("HTTP/1.1", "HTTP/1.0"))),
    ] {
        let before = upstream(&world).len();
        let answer = send(&world, format!("{bytes}{HIDDEN}")).await;
        assert_eq!(answer.matches("200 OK").count(), 1, "{what}: {answer}");
        assert!(!answer.contains("101 Switching Protocols"), "{what}: {answer}");
        assert_eq!(upstream(&world).len(), before + 1, "{what}");
    }
    for (what, start) in [
        ("the start of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_string()),
        ("HTTP/0.9", format!("POST {CHAT}\r\n\r\n")),
        ("HTTP/1.2", format!("{}{BODY}", head(&len).replace("HTTP/1.1", "HTTP/1.2"))),
        ("a tunnel", "CONNECT localhost:443 HTTP/1.1\r\nhost: localhost:443\r\n\r\n".to_string()),
    ] {
        let before = upstream(&world).len();
        let answer = send(&world, format!("{start}{HIDDEN}")).await;
        assert!(!answer.contains("200 "), "{what}: {answer}");
        assert_eq!(upstream(&world).len(), before, "{what}: {answer}");
    }
}
