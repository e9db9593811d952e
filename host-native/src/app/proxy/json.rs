//! Checks a JSON body, so that every parser reads the same content.
//!
//! Parsers differ on duplicate keys in an object, on keys that are compared case-insensitively, and on text
//! that is not JSON but accepted by some: `NaN`, a byte order mark, trailing text, bytes that are not UTF-8.
//! All of these are rejected. Limits and budgets are chosen by what is parsed here, so a provider must not
//! find another model or another bound in the same bytes.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::model_names::MODEL_LISTS;
use crate::app::tokens;

/// The keys that select limits, besides [`MODEL_LISTS`]. Some parsers, such as Go's, match keys
/// case-insensitively.
const LIMIT_KEYS: [&str; 6] = ["model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"];

/// Keys whose values may be embedded files.
const FILE_KEYS: [&str; 3] = ["url", "image_url", "file_data"];

/// Checks `body`, which must be an object, and returns the estimated number of tokens of its text. Embedded
/// files are not counted. The error message contains the position.
pub(super) fn check(body: &[u8]) -> Result<usize, String> {
    let text =
        std::str::from_utf8(body).map_err(|error| format!("it is not UTF-8 from byte {}", error.valid_up_to()))?;
    let mut counts = Counts::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let walker = ValueWalker { counts: &mut counts, depth: 0, context: Context::Text };
    walker.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| error.to_string())?;
    // Also at least one token for each four bytes: a number may have any number of digits.
    let ascii = body.iter().filter(|byte| byte.is_ascii()).count();
    Ok(counts.tokens.max(ascii.saturating_sub(counts.embedded).div_ceil(4)))
}

#[derive(Default)]
struct Counts {
    /// The bytes of embedded files.
    embedded: usize,
    tokens: usize,
}

/// What a value may be, by the keys above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Text,
    /// The list of a prompt, whose numbers are tokens.
    Prompt,
    /// An embedded file, as a `data:` URL.
    FileUrl,
    /// The object of an audio input, whose `data` is an embedded file.
    Audio,
    /// An embedded file in base64.
    FileData,
}

impl Context {
    /// Returns the context of the value of `key` in an object with this context.
    fn of(self, key: &str, depth: u32) -> Self {
        match key {
            "prompt" | "input" if depth == 0 => Self::Prompt,
            "input_audio" => Self::Audio,
            "data" if self == Self::Audio => Self::FileData,
            key if FILE_KEYS.contains(&key) => Self::FileUrl,
            _ => Self::Text,
        }
    }
}

/// Visits one value. Its depth is 0 for the body itself.
struct ValueWalker<'a> {
    counts: &'a mut Counts,
    depth: u32,
    context: Context,
}

impl ValueWalker<'_> {
    /// Counts a number. In a prompt it is a token; elsewhere each of its digits may be one.
    fn number(self, number: &impl ToString) {
        self.counts.tokens += if self.context == Context::Prompt { 1 } else { 1 + number.to_string().len() };
    }
}

/// A key of an object.
#[derive(PartialEq, Eq, Hash, Deserialize)]
pub(super) struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Key<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

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
        self.counts.tokens += 1;
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(&number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(&number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(&number);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.counts.tokens += 1;
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        // Elsewhere the text would be an uncounted prompt.
        let is_file = match self.context {
            Context::FileUrl => is_file_url(text),
            Context::FileData => is_base64(text),
            _ => false,
        };
        if is_file {
            self.counts.embedded += text.len();
        } else {
            self.counts.tokens += 1 + tokens::most(text);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        let context = if self.context == Context::Prompt { Context::Prompt } else { Context::Text };
        while items.next_element_seed(ValueWalker { counts: &mut *self.counts, depth, context })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(Key(key)) = entries.next_key::<Key<'_>>()? {
            if self.depth == 0
                && let Some(name) = LIMIT_KEYS
                    .iter()
                    .chain(&MODEL_LISTS)
                    .find(|name| key != **name && fold_case(&key) == fold_case(name))
            {
                return Err(A::Error::custom(format!("the key {} may be read as `{name}`", shown(&key))));
            }
            self.counts.tokens += 1 + tokens::most(&key);
            let context = self.context.of(&key, self.depth);
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format!("the key {} occurs twice in one object", shown(&twice))));
            }
            let depth = self.depth + 1;
            entries.next_value_seed(ValueWalker { counts: &mut *self.counts, depth, context })?;
        }
        Ok(())
    }
}

/// Returns whether a text is a base64 `data:` URL and nothing else.
fn is_file_url(text: &str) -> bool {
    let parts = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    parts.is_some_and(|(head, data)| head.len() <= 100 && is_base64(data))
}

fn is_base64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
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
            (&b"{\"model\":\"a\",\"model\":\"b\"}"[..], "the key \"model\" occurs twice"),
            (b"{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "the key \"model\" occurs twice"),
            (b"{\"messages\":[{\"role\":\"user\",\"role\":\"system\"}]}", "the key \"role\" occurs twice"),
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

    /// Returns the tokens of a body with this text instead of an empty one.
    fn tokens_of(key: &str, text: &str) -> usize {
        let with = |text: &str| check(serde_json::json!({ key: text }).to_string().as_bytes()).unwrap();
        with(text) - with("")
    }

    #[test]
    fn text_is_counted_in_every_encoding_and_embedded_files_are_not() {
        assert_eq!(tokens_of("x", "\u{65e5}\u{672c}"), 6);
        assert_eq!(check(b"{\"x\":\"\\u65e5\\u672c\"}"), check("{\"x\":\"\u{65e5}\u{672c}\"}".as_bytes()));
        let data = "A".repeat(4_000);
        let file = format!("data:image/png;base64,{data}");
        assert_eq!(tokens_of("url", &file), 0);
        assert!(tokens_of("text", &file) >= 4_000, "text that is not a file counts");
        let words = "data:;base64,and now a long prompt in plain words";
        assert!(tokens_of("url", words) > 10, "text that is not base64 counts");
        let audio = |key: &str| check(format!("{{\"{key}\":{{\"data\":\"{data}\"}}}}").as_bytes()).unwrap();
        assert!(audio("input_audio") < 20 && audio("message") >= 4_000);
    }

    #[test]
    fn each_number_of_a_prompt_is_a_token_and_each_digit_elsewhere() {
        let tokens = |body: &str| check(body.as_bytes()).unwrap();
        assert_eq!(tokens("{\"prompt\":[[12345,2,3],[4]]}"), 3 + 4);
        assert!(tokens("{\"enum\":[1234567890,1234567890]}") >= 20);
        let digits = "1".repeat(400);
        assert!(tokens(&format!("{{\"x\":0.{digits}}}")) >= 100);
    }
}
