//! Checks a JSON body, so that every parser reads the same content.
//!
//! Parsers differ on duplicate keys in an object, on keys that are compared case-insensitively, and on text
//! that is not JSON but accepted by some: `NaN`, a byte order mark, trailing text, bytes that are not UTF-8.
//! All of these are rejected. Limits and budgets are chosen by what is parsed here, so a provider must not
//! find another model or another bound in the same bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The keys that select limits. Some parsers, such as Go's, match keys case-insensitively.
const LIMIT_KEYS: [&str; 6] = ["model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"];

/// Keys whose values may be embedded files.
const FILE_KEYS: [&str; 3] = ["url", "image_url", "file_data"];

/// The size of the text of a body, for an estimate of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextCount {
    /// The ASCII bytes of the body, JSON syntax included.
    pub(super) ascii: usize,
    /// All other bytes of strings and keys, and the numbers in lists.
    pub(super) other: usize,
}

/// Checks `body`, which must be an object, and counts its text. Embedded files are not counted. The error
/// message contains the position.
pub(super) fn check(body: &[u8]) -> Result<TextCount, String> {
    let text =
        std::str::from_utf8(body).map_err(|error| format!("it is not UTF-8 from byte {}", error.valid_up_to()))?;
    let mut counts = Counts::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let walker = ValueWalker { counts: &mut counts, depth: 0, may_be_file: false, is_item: false };
    walker.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| error.to_string())?;
    let ascii = body.iter().filter(|byte| byte.is_ascii()).count();
    Ok(TextCount { ascii: ascii.saturating_sub(counts.embedded), other: counts.other })
}

#[derive(Default)]
struct Counts {
    embedded: usize,
    other: usize,
}

/// Visits one value. Its depth is 0 for the body itself.
struct ValueWalker<'a> {
    counts: &'a mut Counts,
    depth: u32,
    may_be_file: bool,
    is_item: bool,
}

impl ValueWalker<'_> {
    /// Counts a number in a list as a token.
    fn number(self) {
        self.counts.other += usize::from(self.is_item);
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for ValueWalker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth == 0 { deserializer.deserialize_map(self) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for ValueWalker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.depth == 0 { "an object" } else { "JSON" })
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.number();
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.number();
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        // Elsewhere the text would be an uncounted prompt.
        if self.may_be_file && is_file(text) {
            self.counts.embedded += text.len();
        } else {
            self.counts.other += text.bytes().filter(|byte| !byte.is_ascii()).count();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        loop {
            let walker = ValueWalker { counts: &mut *self.counts, depth, may_be_file: false, is_item: true };
            if items.next_element_seed(walker)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(Key(key)) = entries.next_key::<Key<'_>>()? {
            if self.depth == 0
                && let Some(name) = LIMIT_KEYS.iter().find(|name| key != **name && fold_case(&key) == fold_case(name))
            {
                return Err(A::Error::custom(format!("the key {} may be read as `{name}`", shown(&key))));
            }
            self.counts.other += key.bytes().filter(|byte| !byte.is_ascii()).count();
            let may_be_file = FILE_KEYS.contains(&&*key);
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format!("the key {} stands twice in one object", shown(&twice))));
            }
            let depth = self.depth + 1;
            entries.next_value_seed(ValueWalker { counts: &mut *self.counts, depth, may_be_file, is_item: false })?;
        }
        Ok(())
    }
}

/// Returns whether a text is a base64 `data:` URL and nothing else.
fn is_file(text: &str) -> bool {
    let Some((head, data)) = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) else {
        return false;
    };
    head.len() <= 100 && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
}

/// Returns a name with Unicode case folding.
fn fold_case(name: &str) -> String {
    name.to_lowercase().to_uppercase()
}

fn shown(key: &str) -> String {
    format!("{:?}", key.chars().take(40).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_json_is_rejected() {
        for (body, why) in [
            (&b"{\"model\":\"a\",\"model\":\"b\"}"[..], "the key \"model\" stands twice"),
            (b"{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "the key \"model\" stands twice"),
            (b"{\"messages\":[{\"role\":\"user\",\"role\":\"system\"}]}", "the key \"role\" stands twice"),
            (b"{\"model\":\"a\",\"Model\":\"b\"}", "the key \"Model\" may be read as `model`"),
            ("{\"max_to\u{212A}ens\":9}".as_bytes(), "may be read as `max_tokens`"),
            (b"{\"x\":NaN}", "expected value"),
            (b"{\"x\":Infinity}", "expected value"),
            (b"{\"x\":1e999}", "number out of range"),
            (b"\xef\xbb\xbf{}", "expected value"),
            (b"{} {}", "trailing characters"),
            (b"{\"x\":\"\xff\"}", "it is not UTF-8 from byte 6"),
            (b"{\"x\":\"\\ud800\"}", "end of hex escape"),
            (b"{\"x\":1,}", "trailing comma"),
            (b"{/**/}", "key must be a string"),
            (b"[]", "expected an object"),
            (b"\"text\"", "expected an object"),
            (b"", "EOF"),
        ] {
            let error = check(body).expect_err(&String::from_utf8_lossy(body));
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        assert!(check(deep.as_bytes()).unwrap_err().contains("recursion limit"));
    }

    #[test]
    fn text_is_counted_in_every_encoding_and_embedded_files_are_not() {
        assert_eq!(check("{\"x\":\"日本\"}".as_bytes()), Ok(TextCount { ascii: 8, other: 6 }));
        let escaped = check(b"{\"x\":\"\\u65e5\\u672c\"}").unwrap();
        assert_eq!(escaped.other, 6, "{escaped:?}");
        assert_eq!(check(b"{\"seed\":1,\"prompt\":[[1,2,3],[4]]}").unwrap().other, 4, "each may be a token");
        let file = format!("data:image/png;base64,{}", "A".repeat(4_000));
        let with = |key: &str, text: &str| check(format!("{{\"{key}\":\"{text}\"}}").as_bytes()).unwrap().ascii;
        assert!(with("url", &file) < 20);
        assert!(with("text", &file) > 4_000, "text that is not a file counts");
        assert!(
            with("url", "data:;base64,and now a long prompt in plain words") > 40,
            "text that is not base64 counts"
        );
    }
}
