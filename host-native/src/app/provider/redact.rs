//! Replaces keys in provider responses with asterisks.
//!
//! Each byte of a key becomes one asterisk, so announced lengths stay correct. In a streamed body, bytes that
//! may begin a key are held back until the next chunk shows whether they do. All other bytes are forwarded at
//! once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem::{self, Finder};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pin_project_lite::pin_project;

/// The minimum length of a key, in bytes. Shorter texts such as `none` and `ollama` are placeholders that
/// also occur as words in responses.
const MIN_KEY_BYTES: usize = 8;

/// Searchers for every spelling of the keys, longest first.
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

    fn has_key(&self, text: &[u8]) -> bool {
        self.keys().any(|key| key.find(text).is_some())
    }

    /// Replaces every key in `text`.
    pub(crate) fn redact(&self, text: &mut [u8]) {
        for key in self.keys() {
            let len = key.needle().len();
            let mut from = 0;
            while let Some(at) = key.find(&text[from..]) {
                text[from + at..from + at + len].fill(b'*');
                from += at + len;
            }
        }
    }

    /// Returns `text` with `[key]` in place of every key. An excerpt, which ends with `…`, may end within a
    /// key: what it has of that is removed.
    pub(crate) fn redact_text(&self, text: &str) -> String {
        let needles = self.keys().filter_map(|key| std::str::from_utf8(key.needle()).ok());
        let text = needles.fold(text.to_string(), |text, key| text.replace(key, "[key]"));
        let mut parts: Vec<&str> = text.split('…').collect();
        let last = parts.len() - 1;
        for part in &mut parts[..last] {
            *part = part.get(..part.len() - self.partial_key_len(part.as_bytes())).unwrap_or_default();
        }
        parts.join("…")
    }

    /// Returns `bytes` with every key replaced.
    pub(crate) fn redacted(&self, bytes: Bytes) -> Bytes {
        if !self.has_key(&bytes) {
            return bytes;
        }
        let mut bytes = BytesMut::from(bytes);
        self.redact(&mut bytes);
        bytes.freeze()
    }

    /// Returns a whole body with every key replaced, also one that it ends within.
    pub(crate) fn redacted_whole(&self, body: Bytes) -> Bytes {
        let mut body = BytesMut::from(self.redacted(body));
        self.redact_end(&mut body);
        body.freeze()
    }

    /// Replaces every key in the values of these headers, and removes headers whose name contains a key.
    pub(crate) fn redact_headers(&self, headers: &mut HeaderMap) {
        // Header names are in lower case.
        let has_key = |name: &HeaderName| {
            self.keys().any(|key| memmem::find(name.as_ref(), &key.needle().to_ascii_lowercase()).is_some())
        };
        let named: Vec<HeaderName> = headers.keys().filter(|name| has_key(name)).cloned().collect();
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

    /// Replaces the end of a text that ends within a key, if it has at least half of the key.
    ///
    /// A shorter part stays. If it became asterisks, a client that makes a provider quote its guesses would
    /// learn a key one character after the other.
    pub(crate) fn redact_end(&self, text: &mut [u8]) {
        let end = text.len();
        let begun = self.partial_key_len(text);
        let text = &mut text[end - begun..];
        let is_half = |key: &[u8]| 2 * text.len() >= key.len() && key.starts_with(text);
        if begun > 0 && self.keys().any(|key| is_half(key.needle())) {
            text.fill(b'*');
        }
    }

    /// Returns how many bytes at the end of `text` may be the beginning of a key.
    fn partial_key_len(&self, text: &[u8]) -> usize {
        let begun = |key: &Finder<'static>| {
            let most = text.len().min(key.needle().len() - 1);
            (1..=most).rev().find(|len| key.needle().starts_with(&text[text.len() - len..])).unwrap_or(0)
        };
        self.keys().map(begun).max().unwrap_or(0)
    }
}

impl Keys {
    /// Returns searchers for every spelling of `keys` that a server may quote.
    fn new<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for key in keys.filter(|key| key.len() >= MIN_KEY_BYTES) {
            all.push(key.to_vec());
            all.extend(in_base64(key));
            if let Ok(text) = std::str::from_utf8(key) {
                let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let as_query = encoded.replace("%2D", "-").replace("%2E", ".").replace("%5F", "_").replace("%7E", "~");
                let lower = [lowercase_escapes(&as_query), lowercase_escapes(&encoded)];
                let in_json = serde_json::Value::from(text).to_string();
                let in_json = in_json[1..in_json.len() - 1].to_string();
                let spellings = [text.replace('/', "\\/"), in_json, as_query, encoded].into_iter().chain(lower);
                all.extend(spellings.map(String::into_bytes));
            }
        }
        all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
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

/// Returns a text with percent escapes in lower case: `%2f` instead of `%2F`.
fn lowercase_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let mut lower = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        lower.extend(["%", &digits.to_ascii_lowercase(), rest]);
    }
    lower
}

pin_project! {
    /// A body in which keys are replaced by asterisks.
    pub(crate) struct RedactedBody<B: Body> {
        #[pin]
        body: B,
        redactor: Redactor,
        // Bytes that may be the beginning of a key.
        pending: BytesMut,
        has_ended: bool,
        // The error that has ended the body, until it is forwarded after the last bytes.
        error: Option<B::Error>,
    }
}

impl<B: Body> RedactedBody<B> {
    pub(crate) fn new(body: B, redactor: Redactor) -> Self {
        Self { body, redactor, pending: BytesMut::new(), has_ended: false, error: None }
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
                    let mut rest = this.pending.split();
                    if rest.is_empty() {
                        continue;
                    }
                    this.redactor.redact_end(&mut rest);
                    return Poll::Ready(Some(Ok(Frame::data(rest.freeze()))));
                }
            };
            let mut data = if this.pending.is_empty() {
                this.redactor.redacted(data)
            } else {
                this.pending.extend_from_slice(&data);
                this.redactor.redact(&mut this.pending[..]);
                this.pending.split().freeze()
            };
            let begun = this.redactor.partial_key_len(&data);
            this.pending.extend_from_slice(&data.split_off(data.len() - begun));
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && (self.has_ended || (self.pending.is_empty() && self.body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, pending) = (self.body.size_hint(), self.pending.len() as u64);
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

    fn redactor() -> Redactor {
        Redactor::new([KEY.as_bytes()].into_iter())
    }

    async fn pieces(pieces: Vec<String>) -> Vec<String> {
        let frames = pieces.into_iter().map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(piece))));
        let mut body = RedactedBody::new(StreamBody::new(futures_util::stream::iter(frames)), redactor());
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
        for quoted in [
            KEY.to_string(),
            KEY.replace('/', "\\/"),
            "sk-provider%2Fsecret%2B1".to_string(),
            "sk-provider%2fsecret%2b1".to_string(),
        ] {
            let mut text = format!("<{quoted}>").into_bytes();
            redactor().redact(&mut text);
            assert_eq!(text, format!("<{}>", "*".repeat(quoted.len())).into_bytes());
        }
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
