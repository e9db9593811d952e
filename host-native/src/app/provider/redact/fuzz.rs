//! Fuzzing of the redactor. The means are those of [`crate::app::fuzz`].

use std::convert::Infallible;

use futures_util::{FutureExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};

use super::*;
use crate::app::fuzz::fuzz;

const KEY: &str = "sk-provider/secret+1";

/// Keys that the first one begins with, contains, and ends with: a client chooses its key.
const OTHER_KEYS: [&str; 3] = ["sk-provi", "vider/se", "secret+1, and"];

/// How a body is cut: into pieces of these sizes. The first is the whole body.
const CUTS: [usize; 6] = [usize::MAX, 1, 2, 3, 7, 40];

/// Returns the body as it is forwarded if it arrives in these pieces.
fn forwarded(redactor: &Redactor, pieces: &[&[u8]]) -> Vec<u8> {
    let frames = pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))));
    let body = RedactedBody::new(StreamBody::new(stream::iter(frames)), redactor.clone());
    let collected = body.collect().now_or_never().expect("it waits for nothing");
    collected.unwrap_or_else(|never| match never {}).to_bytes().to_vec()
}

/// Returns whether `text` has the key as it is, or after up to two decodings of a URL.
fn has_key_in_url(text: &[u8]) -> bool {
    let once: Vec<u8> = percent_encoding::percent_decode(text).collect();
    let twice: Vec<u8> = percent_encoding::percent_decode(&once).collect();
    [text, &once, &twice].into_iter().any(|text| memmem::find(text, KEY.as_bytes()).is_some())
}

#[test]
fn no_key_is_left_in_a_body_however_it_is_cut() {
    let one = Redactor::new([KEY.as_bytes()].into_iter());
    let several = one.with_keys(OTHER_KEYS.iter().map(|key| key.as_bytes()));
    let corpus: [&[u8]; 7] = [
        b"data: bad key sk-provider/secret+1, and sk-prov again sk-provider/secret+1sk-provider/secret+1\n\n",
        b"/?key=sk-provider%2Fsecret%2b1&again=sk%2Dprovider%252Fsecret%252B1",
        br#"{"message":"no account for sk-provider\/secret\u002b1 or sk-provider\\u002fsecret\\x2b1"}"#,
        b"<p>sk&#45;provider&sol;secret&plus;1 &amp; sk-provider&#x2F;secret&amp;#43;1</p>",
        b"Basic c2stcHJvdmlkZXIvc2VjcmV0KzE= dXNlcjpzay1wcm92aWRlci9zZWNyZXQrMQ==",
        b"it ends within sk-provider/sec",
        b"sk-provider%2Fsecret&plu",
    ];
    let tokens = [
        KEY,
        "sk-prov",
        "sk-provider",
        "secret+1",
        "/",
        "\\/",
        "%2F",
        "\\u002f",
        "&sol;",
        "&#47;",
        "+",
        "%2B",
        "\\x2b",
        "&plus;",
        "&#x2b;",
        "%",
        "%25",
        "\\",
        "\\\\",
        "\\u005c",
        "&",
        "&amp;",
        "&#38;",
        "&#",
        ";",
        "c2stcHJv",
        "*",
        "\u{e9}",
        "…",
    ];
    fuzz(&corpus, &tokens, |bytes| [&one, &several].into_iter().for_each(|redactor| check(redactor, bytes)));
}

fn check(redactor: &Redactor, bytes: &[u8]) {
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    let whole = forwarded(redactor, &[bytes]);
    assert_eq!(whole.len(), bytes.len(), "{:?}", shown());
    assert!(!redactor.has_key(&whole) && !has_key_in_url(&whole), "{:?}", shown());
    let changed = whole.iter().zip(bytes).filter(|(after, before)| after != before);
    assert!(changed.into_iter().all(|(after, _)| *after == b'*'), "{:?}", shown());
    for size in CUTS {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let cut = forwarded(redactor, &pieces);
        assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&whole), "{size}: {:?}", shown());
    }
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 4) {
        let (before, after) = bytes.split_at(at);
        let cut = forwarded(redactor, &[before, after]);
        assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&whole), "{at}: {:?}", shown());
    }
    assert_eq!(redactor.redacted_whole(Bytes::copy_from_slice(bytes)), whole, "{:?}", shown());
    let text = redactor.redact_text(&shown());
    assert!(!redactor.has_key(text.as_bytes()) && !has_key_in_url(text.as_bytes()), "{text:?}: {:?}", shown());
}
