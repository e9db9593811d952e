//! A body of JSON, read so that no other reader can find something else in it.
//!
//! Two readers may differ where a key stands twice in an object, where a name is compared without regard to case, and where text is no
//! JSON but some take it: `NaN`, a byte order mark, text after the end, bytes that are not UTF-8. All of these are refused. Limits and
//! budgets are chosen by what is read here, and a provider must not read another model or another bound in the same bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Names that decide about limits. Some readers, such as Go's, take any other case of them for the same.
const LIMIT_KEYS: [&str; 6] = ["model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"];

/// Keys whose values may be whole files.
const FILE_KEYS: [&str; 3] = ["url", "image_url", "file_data"];

/// What is counted of a body for an estimate of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextCount {
    /// Bytes of text that are ASCII, the signs of JSON among them.
    pub(super) ascii: usize,
    /// All other bytes of text.
    pub(super) other: usize,
}

/// Reads all of `body`, an object, and counts its text. Embedded files are not counted. The error says what is wrong, and where.
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

/// Reads one value at a depth.
struct ValueWalker<'a> {
    counts: &'a mut Counts,
    depth: u32,
    may_be_file: bool,
    is_item: bool,
}

impl ValueWalker<'_> {
    /// In a list a number may be a token.
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
        // Only where a file may stand: elsewhere it would be a prompt that nobody counts.
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

/// Whether a text is a file as base64, and nothing else.
fn is_file(text: &str) -> bool {
    let Some((head, data)) = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) else {
        return false;
    };
    head.len() <= 100 && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
}

/// A name without regard to case, as Unicode folds it.
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
    fn json_that_others_might_read_otherwise_is_refused() {
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
    fn text_is_counted_however_it_is_written_and_files_are_not() {
        assert_eq!(check("{\"x\":\"日本\"}".as_bytes()), Ok(TextCount { ascii: 8, other: 6 }));
        let escaped = check(b"{\"x\":\"\\u65e5\\u672c\"}").unwrap();
        assert_eq!(escaped.other, 6, "{escaped:?}");
        assert_eq!(check(b"{\"seed\":1,\"prompt\":[[1,2,3],[4]]}").unwrap().other, 4, "each may be a token");
        let file = format!("data:image/png;base64,{}", "A".repeat(4_000));
        let with = |key: &str, text: &str| check(format!("{{\"{key}\":\"{text}\"}}").as_bytes()).unwrap().ascii;
        assert!(with("url", &file) < 20);
        assert!(with("text", &file) > 4_000, "a prompt is no file");
        assert!(with("url", "data:;base64,and now a long prompt in plain words") > 40, "nor are words");
    }
}
