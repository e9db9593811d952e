//! Fuzzing of what the proxy reads from clients and providers. The means are those of [`crate::app::fuzz`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use bytes::Bytes;
use eventsource_stream::Eventsource as _;
use futures_util::{FutureExt as _, TryStreamExt as _};
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderName, HeaderValue, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::budget::Usage;

use super::access::AccessPolicy;
use super::config::AccessConfig;
use super::endpoint::BodyKind;
use super::form::Form;
use super::head_scanner::HeadScanner;
use super::headers::{self, Credentials, is_event_stream};
use super::parsed_request::{MediaType, ParsedRequest};
use super::stream_usage::WithoutUsage;
use super::upstream::client_for_tests;
use super::usage::{ResponseKind, UsageReader};
use crate::app::fuzz::{fuzz, header_map, json_tokens};
use crate::app::provider::key::is_name_of_key;

/// How a body is cut: into pieces of these sizes. The first is the whole body.
const CUTS: [usize; 4] = [usize::MAX, 1, 3, 1_000];

static HTTP: LazyLock<Client> = LazyLock::new(client_for_tests);
static ADDRESS: LazyLock<Url> = LazyLock::new(|| "http://127.0.0.1:1/v1".parse().expect("it is an address"));

/// Returns the same value that `read` returns for the body in pieces of every size.
fn same_for_all_cuts<T: PartialEq + std::fmt::Debug>(body: &[u8], read: impl Fn(std::slice::Chunks<'_, u8>) -> T) -> T {
    let mut results = CUTS.map(|size| read(body.chunks(size))).into_iter();
    let first = results.next().expect("there is one");
    results.for_each(|other| assert_eq!(other, first, "{:?}", String::from_utf8_lossy(body)));
    first
}

const EVENTS: &[&str] = &[
    "\n",
    "\n\n",
    "\r\n\r\n",
    "\r",
    "data: ",
    "data:",
    ": idle\n\n",
    "event: x\n",
    "[DONE]",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "null",
    "\"usage\":",
    "\"usage\":{\"completion_tokens\":7}",
    "\"prompt_tokens\":",
    "\"choices\":[]",
    "\"delta\":",
    "\"text\":",
    "\"response\":",
    "-1",
    "18446744073709551615",
    "港",
];

const STREAMS: [&[u8]; 4] = [
    b"data: {\"choices\":[{\"delta\":{\"content\":\"The tide\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
    b"event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"aGVsbG8gd29ybGQ\"}\r\n\r\ndata: {\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\r\n\r\n",
    b": idle\n\ndata: {\"choices\":[{\"text\":\"one two\"}]}\n\ndata: no json\n\nda",
    b"{\"choices\":[{\"message\":{\"content\":\"a \\\"usage\\\": {}\"}}],\"usage\": {\"prompt_tokens\":12,\"completion_tokens\":34}}",
];

#[test]
fn the_usage_of_a_response_is_the_same_however_it_is_cut() {
    fuzz(&STREAMS, EVENTS, |bytes| {
        for kind in [ResponseKind::Stream, ResponseKind::Text, ResponseKind::Other] {
            let used = same_for_all_cuts(bytes, |pieces| {
                let mut reader = UsageReader::new(kind);
                pieces.for_each(|piece| reader.push(piece));
                reader.finish(Usage::tokens(5, 6))
            });
            assert!(used.is_some() || kind != ResponseKind::Stream, "a stream is always charged");
        }
    });
}

/// Returns what is forwarded of a stream, which is the same however it is cut.
fn without_usage(stream: &[u8]) -> Bytes {
    same_for_all_cuts(stream, |pieces| {
        let frames: Vec<_> =
            pieces.map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        let body = WithoutUsage::new(StreamBody::new(futures_util::stream::iter(frames)), true);
        let Ok(body) = body.collect().now_or_never().expect("all pieces are there");
        body.to_bytes()
    })
}

#[test]
fn a_stream_is_forwarded_as_it_is_but_for_its_usage_however_it_is_cut() {
    fuzz(&STREAMS, EVENTS, |bytes| {
        let forwarded = without_usage(bytes);
        let text = String::from_utf8_lossy(bytes);
        if forwarded != bytes {
            assert!(text.contains("usage") && text.contains("choices"), "{text:?}");
        }
        // What is left of an event that is forwarded is all of it: the text is made of the lines of the
        // stream.
        let is_line_end = |byte: &u8| b"\r\n".contains(byte);
        let mut lines = bytes.split_inclusive(is_line_end);
        for line in forwarded.split_inclusive(is_line_end) {
            assert!(lines.any(|sent| sent == line), "{text:?}");
        }
    });
}

/// Returns the data of the events in a stream, as a library for clients reads them.
fn events_of(stream: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(stream).expect("it is text");
    let pieces = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(text)]);
    let events = pieces.eventsource().map_ok(|event| event.data).try_collect().now_or_never();
    events.expect("all pieces are there").expect("it is a stream of events")
}

#[test]
fn a_client_reads_all_events_of_a_stream_but_those_of_usage_whatever_their_order_and_line_ends() {
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
    let events = [
        format!("data: {USAGE}"),
        format!("event: usage\ndata:{USAGE}\nid: 1"),
        r#"data: {"choices":[{"delta":{"content":"港"}}],"usage":null}"#.to_string(),
        "event: x\nid: 2\ndata: {\ndata: }".to_string(),
        ": idle".to_string(),
        "data: no JSON".to_string(),
        "data: [DONE]".to_string(),
    ];
    for order in 0..events.len().pow(4) {
        let chosen = (0..4).map(|at| &events[order / events.len().pow(at) % events.len()]);
        let stream: String = chosen.flat_map(|event| [event.as_str(), "\n\n"]).collect();
        for line_end in ["\n", "\r\n", "\r"] {
            // The library waits for the byte after a carriage return.
            let stream = stream.replace('\n', line_end) + ": end\n";
            let mut expected = events_of(stream.as_bytes());
            expected.retain(|event| event != USAGE);
            assert_eq!(events_of(&without_usage(stream.as_bytes())), expected, "{stream:?}");
        }
    }
}

#[test]
fn no_credential_and_no_header_of_the_connection_passes_whatever_headers_a_client_sends() {
    let corpus: [&[u8]; 3] = [
        b"host: localhost:4180\ncontent-type: application/json\nconnection: keep-alive, x-hop\nx-hop: 1\nauthorization: Bearer client\n",
        b"host: evil.example\norigin: https://evil.example\nsec-fetch-site: cross-site\ncookie: a=b\ncontent-type: multipart/form-data; boundary=x\n",
        b"host: [::1]:4180\nx-tidegate-timeout: 1.5s\nx-api-key: client\ntransfer-encoding: chunked\nx-auth-token: client\ncontent-encoding: gzip\n",
    ];
    let tokens = [
        "\n",
        ": ",
        ":",
        "host: ",
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "localhost.",
        ".localhost",
        "origin: null\n",
        "http://",
        "connection: ",
        "close, ",
        "te",
        "upgrade: h2c\n",
        "x-api-key: k\n",
        "key",
        "token",
        "secret",
        "cookie",
        "@",
        ".",
        "9e9s",
        "-1",
        "content-type: ",
        "application/json",
        "; charset=utf-8",
        "boundary=",
        "\"",
        ",",
        "sec-fetch-site: same-origin\n",
    ];
    let own = HeaderValue::from_static("Bearer operator");
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4180);
    let uri = Uri::from_static("/v1/chat/completions");
    fuzz(&corpus, &tokens, |bytes| {
        let sent = header_map(bytes);
        let policy = AccessPolicy::new(AccessConfig::default());
        if policy.check(&uri, &sent, local).is_ok() {
            let host =
                sent.get(HOST).and_then(|host| host.to_str().ok()).expect("a host that is served").to_ascii_lowercase();
            let name = host
                .rsplit_once(':')
                .map_or(host.as_str(), |(name, port)| if port.contains(']') { &host } else { name });
            let name = name.trim_matches(['[', ']']);
            let is_local = |ip: IpAddr| ip.to_canonical().is_loopback();
            let plain = name.trim_end_matches('.');
            let is_own = plain == "localhost" || plain.ends_with(".localhost") || name.parse().is_ok_and(is_local);
            assert!(is_own, "{host}");
            if let Some(origin) = sent.get(ORIGIN) {
                assert!(origin.to_str().is_ok_and(|origin| origin.to_ascii_lowercase().contains(name)), "{origin:?}");
            }
        }
        drop(headers::timeout(&sent));
        drop(
            [BodyKind::Json, BodyKind::Form, BodyKind::JsonOrForm, BodyKind::Any]
                .map(|kind| MediaType::of(kind, &sent)),
        );
        let _ = is_event_stream(&sent);
        for credentials in [Credentials::Own(&own), Credentials::None] {
            let mut passed = sent.clone();
            headers::to_provider(&mut passed, std::iter::empty(), credentials);
            let keys: Vec<_> = passed.iter().filter(|(name, _)| is_name_of_key(name.as_str())).collect();
            match credentials {
                Credentials::Own(key) => assert_eq!(keys, [(&AUTHORIZATION, key)]),
                _ => assert!(keys.is_empty(), "{keys:?}"),
            }
            let named = sent.get_all("connection").iter().filter_map(|value| value.to_str().ok());
            let named =
                named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse::<HeaderName>().ok());
            // The proxy sets these itself.
            let named = named.filter(|name| !["authorization", "accept-encoding", "via"].contains(&name.as_str()));
            for name in named.chain(["transfer-encoding", "upgrade", "te", "host"].map(HeaderName::from_static)) {
                assert!(!passed.contains_key(&name), "{name}");
            }
        }
        let mut passed = sent.clone();
        headers::to_client(&mut passed);
        assert!(!passed.contains_key("set-cookie") && !passed.contains_key("transfer-encoding"));
    });
}

#[test]
fn a_bare_line_feed_in_a_head_is_found_however_the_head_is_cut() {
    let corpus: [&[u8]; 3] = [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n\r\n{\n}\n",
        b"GET / HTTP/1.1\nhost: a\r\n\r\n\n",
        b"\r\n\r\nGET / HTTP/1.1\nhost: a\r\n\r\n\n",
    ];
    fuzz(&corpus, &["\n", "\r\n", "\r", "\r\n\r\n", "\n\n", "x: y"], |bytes| {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let is_empty = |line: &&[u8]| [&b"\n"[..], b"\r\n"].contains(line);
        let before = lines.iter().take_while(|line| is_empty(line)).count();
        let end = lines[before..].iter().position(is_empty).map(|at| before + at + 1);
        let (head, body) = lines.split_at(end.unwrap_or(lines.len()));
        let is_bare = |line: &&[u8]| line.ends_with(b"\n") && !line.ends_with(b"\r\n");
        let body_len = body.concat().len() as u64;
        let can_be_used = end.is_some() && !head.iter().any(is_bare);
        for (len, expected) in [(body_len, can_be_used), (body_len + 1, false)] {
            let found = same_for_all_cuts(bytes, |pieces| {
                let scanner = HeadScanner::default();
                pieces.for_each(|piece| scanner.received(piece));
                scanner.end_request(len)
            });
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    });
}

/// The keys that select limits, as a parser reads them that rejects a key that occurs twice.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only whether they can be read counts")]
struct EachOnce {
    model: Option<Value>,
    max_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
    n: Option<Value>,
    stream: Option<Value>,
    stream_options: Option<Value>,
}

#[test]
fn a_json_body_is_refused_or_has_one_meaning_and_is_sent_with_only_the_expected_changes() {
    let corpus: [&[u8]; 3] = [
        br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"n":2,"stream":true}"#,
        br#"{"stream" : true , "stream_options":{"include_usage":false,"x":[1.50]},"input":"\u6e2f","model":"a\/b"}"#,
        br#"{"model":"m","prompt":["a",[1,2]],"stream":true,"stream_options":null,"max_output_tokens":1e3}"#,
    ];
    let tokens = json_tokens(&[
        "NaN",
        "\"model\":",
        "\"Model\":",
        "\"models\":[]",
        "\"mod\\u0065l\":\"x\",",
        "\"stream\":true,",
        "\"stream_options\":{},",
        "\"include_usage\":true",
        "\u{feff}",
        "港",
        "\"max_tokens\":9,",
    ]);
    fuzz(&corpus, &tokens, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let parsed = ParsedRequest::read(MediaType::Json, Bytes::copy_from_slice(bytes));
        let Ok(parsed) = parsed.now_or_never().expect("nothing is waited for") else { return };
        let given: Value = serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        assert!(serde_json::from_slice::<EachOnce>(bytes).is_ok(), "{text:?}");
        assert_eq!(parsed.model.as_deref(), given["model"].as_str(), "{text:?}");
        let (model, lacks_usage) = (parsed.model.clone(), parsed.lacks_stream_usage());
        for asks_usage in [false, true] {
            let sent = parsed.clone().encode(&HTTP, &ADDRESS, Some("other"), asks_usage).now_or_never();
            let (_, sent) = sent.expect("nothing is waited for").expect("it can be encoded");
            let sent: Value = serde_json::from_slice(&sent).unwrap_or_else(|error| panic!("{error}: {text:?}"));
            let mut expected = given.clone();
            if model.is_some() {
                expected["model"] = "other".into();
            }
            if asks_usage && lacks_usage {
                if !expected["stream_options"].is_object() {
                    expected["stream_options"] = json!({});
                }
                expected["stream_options"]["include_usage"] = true.into();
            }
            assert_eq!(sent, expected, "{text:?}");
        }
    });
}

#[test]
fn a_form_is_refused_or_sent_with_the_same_fields_but_for_its_model() {
    let corpus: [&[u8]; 2] = [
        b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--b--\r\n",
        b"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n\xe6\xb8\xaf\r\n--b--",
    ];
    let tokens = [
        "--b",
        "--b--",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\"",
        "\\\"",
        ";",
        "Content-Disposition: form-data; name=\"model\"",
        "name=\"Model\"",
        "name=\"models[]\"",
        "filename=\"x\"",
        "filename*=utf-8''x",
        "Content-Transfer-Encoding: base64",
        "Content-Type: text/plain",
        "%22",
        "\0",
        "é",
        "model",
        " ",
    ];
    let read = |boundary: &str, bytes: Bytes| {
        Form::read(boundary.to_string(), bytes).now_or_never().expect("the whole form is there")
    };
    fuzz(&corpus, &tokens, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(form) = read("b", Bytes::copy_from_slice(bytes)) else { return };
        let sent = form.encode(&HTTP, &ADDRESS, Some("other")).now_or_never().expect("the whole form is there");
        // A content type that is none cannot be sent.
        let Some((kind, sent)) = sent else { return };
        let boundary = multer::parse_boundary(kind.to_str().expect("it is text")).expect("it has a boundary");
        let sent = read(&boundary, sent).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        assert_eq!(sent.model(), form.model().map(|_| "other"), "{text:?}");
        assert_eq!(sent.without_model(), form.without_model(), "{text:?}");
    });
}
