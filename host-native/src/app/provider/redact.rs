//! Replaces keys in provider responses with asterisks.
//!
//! Each byte of a key becomes one asterisk, so announced lengths stay correct. In a streamed body, bytes that
//! may begin a key are held back until the next chunk shows whether they do. All other bytes are forwarded at
//! once.
//!
//! A key may be quoted in a URL, in JSON or in HTML, where each of its characters may be escaped or not. So a
//! text is searched up to three times: as it is, and with its escapes replaced by what they stand for. Each
//! search takes time in proportion to the text.

mod escapes;
#[cfg(test)]
mod fuzz;

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem::{self, Finder};
use pin_project_lite::pin_project;

use escapes::{Decoded, MAX_ESCAPE_BYTES, escape_start, may_be_in_escape};

/// The minimum length of a key, in bytes. Shorter texts such as `none` and `ollama` are placeholders that
/// also occur as words in responses.
const MIN_KEY_BYTES: usize = 8;

/// How often a text is decoded. JSON in a string of JSON takes two, and so does an encoded percent sign.
const LEVELS: u32 = 2;

/// Searchers for the keys, as they are and in base64.
#[derive(Debug, Default)]
struct Keys(Vec<Finder<'static>>);

/// Redacts keys: those of the program, and those of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor(Vec<Arc<Keys>>);

impl Redactor {
    /// Creates a redactor for `keys`.
    pub(crate) fn new<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        Self::default().with_keys(keys)
    }

    /// Returns a redactor that also redacts `keys`.
    pub(crate) fn with_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Self {
        Self(self.0.iter().cloned().chain([Arc::new(Keys::new(keys))]).collect())
    }

    fn keys(&self) -> impl Iterator<Item = &Finder<'static>> {
        self.0.iter().flat_map(|keys| &keys.0)
    }

    fn has_keys(&self) -> bool {
        self.keys().next().is_some()
    }

    /// Returns whether `text` contains a key.
    pub(crate) fn has_key(&self, text: &[u8]) -> bool {
        !self.find_keys(text, LEVELS).is_empty()
    }

    /// Returns where the keys in `text` are, also in what its escapes stand for, down to `levels`.
    fn find_keys(&self, text: &[u8], levels: u32) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = self.keys().flat_map(|key| find_all(key, text)).collect();
        if levels > 0
            && self.has_keys()
            && let Some(decoded) = Decoded::new(text)
        {
            let in_escapes = self.find_keys(&decoded.text, levels - 1).into_iter();
            found.extend(in_escapes.map(|key| decoded.source_index(key.start)..decoded.source_index(key.end)));
        }
        found
    }

    /// Replaces every key in `text`.
    pub(crate) fn redact(&self, text: &mut [u8]) {
        for key in self.find_keys(text, LEVELS) {
            text[key].fill(b'*');
        }
    }

    /// Returns `text` with `[key]` in place of every key. An excerpt, which ends with `…`, may end within a
    /// key: what it has of that is removed.
    pub(crate) fn redact_text(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let keys = self.find_keys(bytes, LEVELS).into_iter().map(|key| (key, "[key]"));
        let begun_keys = text.match_indices('…').map(|(end, _)| (end - self.partial_key_len(&bytes[..end])..end, ""));
        let mut hidden: Vec<(Range<usize>, &str)> = keys.chain(begun_keys).collect();
        hidden.sort_unstable_by_key(|(key, _)| (key.start, key.end));
        let (mut shown, mut end) = (Vec::new(), 0);
        for (key, instead) in hidden {
            if key.start >= end {
                shown.extend_from_slice(&bytes[end..key.start]);
                shown.extend_from_slice(instead.as_bytes());
            }
            end = end.max(key.end);
        }
        shown.extend_from_slice(&bytes[end..]);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Returns `bytes` with every key replaced.
    pub(crate) fn redacted(&self, bytes: Bytes) -> Bytes {
        let keys = self.find_keys(&bytes, LEVELS);
        if keys.is_empty() {
            return bytes;
        }
        let mut bytes = BytesMut::from(bytes);
        for key in keys {
            bytes[key].fill(b'*');
        }
        bytes.freeze()
    }

    /// Returns a whole body with every key replaced, also one that it ends within.
    pub(crate) fn redacted_whole(&self, body: Bytes) -> Bytes {
        let begun = self.truncated_key_len(&body);
        let mut shown = BytesMut::from(self.redacted(body));
        let end = shown.len();
        shown[end - begun..].fill(b'*');
        shown.freeze()
    }

    /// Replaces every key in the values of these headers, and removes headers whose name contains a key.
    pub(crate) fn redact_headers(&self, headers: &mut HeaderMap) {
        // Header names are in lower case.
        let contains_key = |name: &[u8]| {
            let name = name.to_ascii_lowercase();
            self.keys().any(|key| memmem::find(&name, &key.needle().to_ascii_lowercase()).is_some())
        };
        let is_of_key = |name: &HeaderName| {
            let name: &[u8] = name.as_ref();
            contains_key(name) || Decoded::new(name).is_some_and(|name| contains_key(&name.text))
        };
        let named: Vec<HeaderName> = headers.keys().filter(|name| is_of_key(name)).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut().filter(|value| self.has_key(value.as_bytes())) {
            let mut text = value.as_bytes().to_vec();
            self.redact(&mut text);
            // Asterisks are valid in header values, so this does not fail.
            *value = HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""));
        }
    }

    /// Returns how many bytes at the end of a text that has ended are the beginning of a key, if they are at
    /// least half of the key.
    ///
    /// A shorter part stays. If it became asterisks, a client that makes a provider quote its guesses would
    /// learn a key one character after the other.
    fn truncated_key_len(&self, text: &[u8]) -> usize {
        self.begun_key_len(text, true, LEVELS)
    }

    /// Returns how many bytes at the end of `text` may be the beginning of a key, together with the rest of
    /// the escape that they begin in: what follows is then decoded as it is in the whole text.
    fn partial_key_len(&self, text: &[u8]) -> usize {
        // A key is no longer than this, so no more is decoded again for each piece of a stream.
        let longest = self.keys().map(|key| key.needle().len()).max().unwrap_or(0);
        let most = longest * MAX_ESCAPE_BYTES.pow(LEVELS);
        let before = &text[..text.len().saturating_sub(most)];
        let text = &text[before.iter().rposition(|byte| !may_be_in_escape(*byte)).map_or(0, |at| at + 1)..];
        match self.begun_key_len(text, false, LEVELS) {
            0 => 0,
            len => text.len() - escape_start(text, text.len() - len, LEVELS),
        }
    }

    /// Returns how many bytes at the end of `text` may be the beginning of a key, also in what its escapes
    /// stand for, down to `levels`. With `is_half`, they are at least half of the key.
    fn begun_key_len(&self, text: &[u8], is_half: bool, levels: u32) -> usize {
        let begun = |key: &Finder<'static>| {
            let key = key.needle();
            let least = if is_half { key.len().div_ceil(2) } else { 1 };
            let most = text.len().min(key.len() - 1);
            (least..=most).rev().find(|len| key.starts_with(&text[text.len() - len..])).unwrap_or(0)
        };
        let plain = self.keys().map(begun).max().unwrap_or(0);
        if levels == 0 || !self.has_keys() {
            return plain;
        }
        let Some(decoded) = Decoded::new(text) else { return plain };
        // What an escape that is not complete stands for is unknown.
        let complete = &decoded.text[..decoded.complete_len];
        let len = self.begun_key_len(complete, is_half, levels - 1);
        if is_half && len == 0 {
            return plain;
        }
        plain.max(text.len() - decoded.source_index(complete.len() - len))
    }
}

/// Returns all places of `key` in `text`, also those that overlap: redacting one of them must not hide that
/// the other is there.
fn find_all<'t>(key: &'t Finder<'static>, text: &'t [u8]) -> impl Iterator<Item = Range<usize>> + 't {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + key.find(&text[from..])?;
        from = start + 1;
        Some(start..start + key.needle().len())
    })
}

impl Keys {
    fn new<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for key in keys.filter(|key| key.len() >= MIN_KEY_BYTES) {
            all.push(key.to_vec());
            all.extend(in_base64(key));
        }
        all.sort_unstable();
        all.dedup();
        Self(all.iter().map(|key| Finder::new(key).into_owned()).collect())
    }
}

/// Returns how a key appears within base64, as in a quoted `Authorization: Basic`. It depends on how many
/// bytes precede the key. The characters that also encode neighbouring bytes are left out.
fn in_base64(key: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let engines = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD];
    let all = engines.into_iter().flat_map(|engine| (0..3).map(move |before| (engine, before)));
    all.map(|(engine, before)| {
        let text = engine.encode([&[0; 2][..before], key].concat()).into_bytes();
        let whole = (before + key.len()) / 3 * 4;
        text[(before * 8).div_ceil(6)..whole].to_vec()
    })
    .filter(|text| text.len() >= MIN_KEY_BYTES)
}

pin_project! {
    /// A body in which keys are replaced by asterisks.
    pub(crate) struct RedactedBody<B: Body> {
        #[pin]
        body: B,
        redactor: Redactor,
        pending: Pending,
        has_ended: bool,
        // The error that has ended the body, until it is forwarded after the last bytes.
        error: Option<B::Error>,
    }
}

/// The end of what has arrived of a body, which may be the beginning of a key.
#[derive(Debug, Default)]
struct Pending {
    /// The bytes as they arrived. A key may begin in another one, so keys are searched here.
    received: BytesMut,
    /// The same bytes as they will be forwarded, with asterisks in place of keys.
    shown: BytesMut,
}

impl Pending {
    /// Adds a piece of the body, and returns what may be forwarded.
    fn add(&mut self, piece: Bytes, redactor: &Redactor) -> Bytes {
        let (received, shown) = if self.received.is_empty() {
            (piece.clone(), redactor.redacted(piece))
        } else {
            self.received.extend_from_slice(&piece);
            self.shown.extend_from_slice(&piece);
            for key in redactor.find_keys(&self.received, LEVELS) {
                self.shown[key].fill(b'*');
            }
            (self.received.split().freeze(), self.shown.split().freeze())
        };
        let forwarded = received.len() - redactor.partial_key_len(&received);
        self.received.extend_from_slice(&received[forwarded..]);
        self.shown.extend_from_slice(&shown[forwarded..]);
        shown.slice(..forwarded)
    }

    /// Returns the rest, because the body has ended.
    fn end(&mut self, redactor: &Redactor) -> Bytes {
        let begun = redactor.truncated_key_len(&self.received.split());
        let mut shown = self.shown.split();
        let end = shown.len();
        shown[end - begun..].fill(b'*');
        shown.freeze()
    }
}

impl<B: Body> RedactedBody<B> {
    pub(crate) fn new(body: B, redactor: Redactor) -> Self {
        Self { body, redactor, pending: Pending::default(), has_ended: false, error: None }
    }
}

impl<B: Body<Data = Bytes>> Body for RedactedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        loop {
            if *this.has_ended {
                return Poll::Ready(this.error.take().map(Err));
            }
            let data = match ready!(this.body.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    // Trailers belong to the connection to the provider and are dropped.
                    Err(_) => continue,
                },
                end @ (None | Some(Err(_))) => {
                    *this.has_ended = true;
                    *this.error = end.and_then(Result::err);
                    let rest = this.pending.end(this.redactor);
                    if rest.is_empty() {
                        continue;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
            };
            let data = this.pending.add(data, this.redactor);
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && (self.has_ended || (self.pending.shown.is_empty() && self.body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, pending) = (self.body.size_hint(), self.pending.shown.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + pending);
        if let Some(most) = inner.upper() {
            hint.set_upper(most + pending);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, StreamBody};

    const KEY: &str = "sk-provider/secret+1";

    /// Spellings of the characters of [`KEY`] that some encoding escapes. The last ones are escaped twice.
    const SLASHES: [&str; 10] =
        ["/", "\\/", "%2F", "%2f", "\\u002F", "\\u002f", "&#47;", "&#x2F;", "%252F", "\\\\u002f"];
    const PLUSES: [&str; 10] =
        ["+", "%2B", "%2b", "\\u002B", "\\u002b", "\\x2b", "&#43;", "&#x002b;", "&plus;", "&amp;#43;"];

    fn redactor() -> Redactor {
        Redactor::new([KEY.as_bytes()].into_iter())
    }

    async fn pieces(pieces: Vec<String>) -> Vec<String> {
        pieces_by(redactor(), pieces).await
    }

    async fn pieces_by(redactor: Redactor, pieces: Vec<String>) -> Vec<String> {
        let frames = pieces.into_iter().map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(piece))));
        let mut body = RedactedBody::new(StreamBody::new(futures_util::stream::iter(frames)), redactor);
        let mut out = Vec::new();
        while let Some(frame) = body.frame().await {
            out.push(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap());
        }
        out
    }

    #[tokio::test]
    async fn a_key_is_redacted_wherever_a_stream_is_split() {
        let text = format!("data: bad key {KEY}, and sk-prov again {KEY}{KEY}\n\n");
        let expected = text.replace(KEY, &"*".repeat(KEY.len()));
        for first in 0..text.len() {
            for second in [first + 1, first + 7, text.len()] {
                let second = second.min(text.len());
                let cut = [&text[..first], &text[first..second], &text[second..]].map(str::to_string).to_vec();
                assert_eq!(pieces(cut).await.concat(), expected, "{first} {second}");
            }
        }
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(pieces(bytes).await.concat(), expected);
    }

    #[tokio::test]
    async fn an_escaped_key_is_redacted_wherever_a_stream_is_split() {
        for (slash, plus) in SLASHES.into_iter().zip(PLUSES) {
            let quoted = format!("sk-provider{slash}secret{plus}1");
            let text = format!("data: bad key {quoted}, and %2 \\n {quoted}\n\n");
            let expected = text.replace(&quoted, &"*".repeat(quoted.len()));
            for at in 0..text.len() {
                let cut = [&text[..at], &text[at..]].map(str::to_string).to_vec();
                assert_eq!(pieces(cut).await.concat(), expected, "{at}");
            }
            let bytes: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(pieces(bytes).await.concat(), expected);
        }
        for (shown, hidden) in [(9, 0), (0, 12), (0, 19)] {
            let sent = format!("key {}", &"sk-provider/secret+1"[..shown + hidden].replace('/', "%2F"));
            let hidden = if hidden > 0 { sent.len() - 4 } else { 0 };
            let expected = format!("{}{}", &sent[..sent.len() - hidden], "*".repeat(hidden));
            assert_eq!(pieces(vec![sent]).await.concat(), expected);
        }
    }

    /// A client chooses its key, so it may send the first characters of the provider's.
    #[tokio::test]
    async fn a_key_that_begins_with_another_or_contains_one_is_redacted_wherever_a_stream_is_split() {
        for other in ["sk-provi", "sk-provider/secret+", "provider", "secret+1", "ider/secret+1, and", KEY] {
            let redactor = redactor().with_keys([other.as_bytes()].into_iter());
            let text = format!("bad key {KEY}, and {KEY}{KEY}. {}", &KEY[..12]);
            for at in 0..text.len() {
                let cut = [&text[..at], &text[at..]].map(str::to_string).to_vec();
                let shown = pieces_by(redactor.clone(), cut).await.concat();
                assert_eq!(shown, String::from_utf8_lossy(&redactor.redacted_whole(text.clone().into())), "{at}");
                let is_hidden = !["sk-prov", "vider", "secret"].iter().any(|part| shown.contains(part));
                assert!(is_hidden, "{other}: {shown}");
            }
            for cut in other.len().min(8)..KEY.len() {
                let shown = redactor.redact_text(&format!("bad key {}… (HTTP 400)", &KEY[..cut]));
                let rest = shown.strip_prefix("bad key ").and_then(|rest| rest.strip_suffix("… (HTTP 400)"));
                assert!(matches!(rest, Some("" | "[key]")), "{other}: {shown}");
            }
        }
        let repeated = Redactor::new([&b"ab/ab/ab"[..]].into_iter());
        for at in 0..13 {
            let cut = ["1 ab/ab/ab/ab/"[..at].to_string(), "1 ab/ab/ab/ab/"[at..].to_string()].to_vec();
            assert_eq!(pieces_by(repeated.clone(), cut).await.concat(), "1 ************");
        }
    }

    #[tokio::test]
    async fn what_follows_an_escape_is_decoded_the_same_wherever_a_stream_is_split() {
        // The key in base64 begins with two hexadecimal digits, which a percent sign makes an escape.
        let slashes = "\\".repeat(9_001);
        for text in ["%25c2stcHJvdmlkZXIvc2Vjc%25", "%c2stcHJvdmlkZXIv%63", &format!("{slashes}u0073k-provider/sec")] {
            let whole = pieces(vec![text.to_string()]).await.concat();
            let bytes: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(pieces(bytes).await.concat(), whole);
            for at in (0..text.len()).rev().take(40) {
                let cut = [&text[..at], &text[at..]].map(str::to_string).to_vec();
                assert_eq!(pieces(cut).await.concat(), whole, "{at}");
            }
        }
    }

    #[tokio::test]
    async fn an_escape_that_is_not_complete_is_held_back_until_it_is_known() {
        let sent = ["1 &", "amp; 2 %", "41 ", "\\", "n"].map(str::to_string).to_vec();
        assert_eq!(pieces(sent).await, ["1 ", "&amp; 2 ", "%41 ", "\\n"]);
        assert_eq!(pieces(vec!["100 %".to_string()]).await.concat(), "100 %");
    }

    #[tokio::test]
    async fn other_bytes_are_forwarded_at_once_and_a_truncated_key_is_redacted() {
        let sent = ["data: 1\n\n", "data: s", "ea\n\n"].map(str::to_string).to_vec();
        assert_eq!(pieces(sent).await, ["data: 1\n\n", "data: ", "sea\n\n"]);
        for (shown, hidden) in [(9, 0), (0, 10), (0, 19)] {
            let sent = format!("key {}", &KEY[..shown + hidden]);
            let expected = format!("key {}{}", &KEY[..shown], "*".repeat(hidden));
            assert_eq!(pieces(vec![sent]).await.concat(), expected, "of {} bytes", KEY.len());
        }
        assert_eq!(pieces(vec!["gulls".to_string()]).await.concat(), "gulls");
    }

    #[test]
    fn every_usual_spelling_of_a_key_is_redacted_and_placeholders_are_not() {
        for slash in SLASHES {
            for plus in PLUSES {
                for hyphen in ["-", "%2D", "\\u002d", "&#45;"] {
                    let quoted = format!("sk{hyphen}provider{slash}secret{plus}1");
                    let mut text = format!("% &<{quoted}> \\").into_bytes();
                    redactor().redact(&mut text);
                    let text = String::from_utf8(text).unwrap();
                    assert_eq!(text, format!("% &<{}> \\", "*".repeat(quoted.len())), "{quoted}");
                }
            }
        }
        let whole = KEY.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        assert_eq!(redactor().redact_text(&format!("bad {whole}, {KEY}{KEY}")), "bad [key], [key][key]");
        for before in ["", "a", "ab", "Bearer ", "user:"] {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let mut quoted = engine.encode(format!("{before}{KEY}, and more")).into_bytes();
                redactor().redact(&mut quoted);
                let visible =
                    quoted.split(|byte| *byte == b'*').flat_map(|part| engine.decode(part).unwrap_or_default());
                let visible = String::from_utf8_lossy(&visible.collect::<Vec<u8>>()).into_owned();
                let is_hidden = !visible.contains(&KEY[1..KEY.len() - 1]) && quoted.contains(&b'*');
                assert!(is_hidden, "{before}: {}", String::from_utf8_lossy(&quoted));
            }
        }
        let placeholder = Redactor::new([&b"none"[..]].into_iter());
        assert_eq!(placeholder.redacted(Bytes::from_static(b"none")), "none");
    }

    #[test]
    fn an_excerpt_that_ends_within_a_key_shows_nothing_of_the_key() {
        let redact = |text: &str| redactor().redact_text(text);
        assert_eq!(redact(&format!("bad key {KEY}, and {KEY}")), "bad key [key], and [key]");
        for spelling in [KEY, "sk-provider\\/secret+1", "sk-provider%2fsecret%2b1", "c2stcHJvdmlkZXIvc2VjcmV0KzE"] {
            for cut in 1..20 {
                assert_eq!(redact(&format!("bad key {}… (HTTP 400)", &spelling[..cut])), "bad key … (HTTP 400)");
            }
        }
        assert_eq!(redact("dear…"), "dear…");
    }

    #[test]
    fn client_keys_are_redacted_in_headers() {
        let mut headers = HeaderMap::from_iter([(
            http::header::LOCATION,
            HeaderValue::from_static("/?key=sk-client-1&k=sk-in-query"),
        )]);
        redactor().with_keys([&b"sk-client-1"[..], b"sk-in-query"].into_iter()).redact_headers(&mut headers);
        assert_eq!(headers["location"], "/?key=***********&k=***********");
        let key = Redactor::new([&b"sk-Provider-1"[..]].into_iter());
        let mut headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-sk-provider-1"), HeaderValue::from_static("1")),
            (HeaderName::from_static("x-kept"), HeaderValue::from_static("2")),
        ]);
        key.redact_headers(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-kept"]);
    }
}
