//! Finds JSON in an answer that has other text around it.

use serde_json::Value;

/// The maximum number of places in an answer where JSON is looked for.
const MAX_CANDIDATES: usize = 64;

/// Returns the objects and lists in `text` that are complete JSON, in order, without those inside others.
///
/// What begins like JSON and is wrong, such as a list with a trailing comma, is skipped whole: a part of it
/// is not what the model meant. So is everything after a value that does not end.
pub(super) fn json_values(text: &str) -> impl Iterator<Item = Value> {
    let mut rest = text;
    let mut found = std::iter::from_fn(move || {
        let start = rest.find(['{', '['])?;
        let candidate = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(candidate).into_iter::<Value>();
        let (value, end) = match values.next() {
            Some(Ok(value)) => (Some(value), values.byte_offset()),
            Some(Err(error)) if !error.is_eof() => {
                (None, end_of_brackets(candidate).unwrap_or(error_offset(&error, candidate)))
            }
            _ => (None, candidate.len()),
        };
        rest = candidate.get(end..).unwrap_or_default();
        Some(value)
    })
    .take(MAX_CANDIDATES);
    std::iter::from_fn(move || found.find_map(|value| value))
}

/// Returns the length of the text up to the bracket that closes the first one. Brackets in strings do not
/// count.
fn end_of_brackets(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the offset at which `error` was found in `text`, at least 1.
fn error_offset(error: &serde_json::Error, text: &str) -> usize {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let mut offset = (lines.map(str::len).sum::<usize>() + error.column()).clamp(1, text.len());
    while !text.is_char_boundary(offset) {
        offset += 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Vec<Value> {
        json_values(text).collect()
    }

    #[test]
    fn json_is_found_after_before_and_between_prose() {
        let value = json!({ "score": 3 });
        for text in [
            "Sure! Here it is:\n\n```json\n{\"score\": 3}\n```\n\nAnything else?",
            "```\n{\"score\": 3}\n```",
            "{\"score\": 3}\n\nI chose 3, since it is plain.",
            "The entry is {short and plain}, so: {\"score\": 3}",
            "Of [a, b] I take b: {\"score\": 3}",
            "He said \"no [way\": {\"score\": 3}",
            "⚓ {⚓ {\"score\": 3}",
        ] {
            assert_eq!(found(text), std::slice::from_ref(&value), "{text}");
        }
        assert_eq!(found("[1] and {\"a\": [2]}"), [json!([1]), json!({ "a": [2] })]);
    }

    #[test]
    fn brackets_in_strings_are_text() {
        let value = json!({ "why": "a } and a \"{\" in [one \\", "score": 3 });
        assert_eq!(found(&format!("So: {value} - done }}")), [value]);
    }

    #[test]
    fn wrong_or_incomplete_json_is_skipped_with_all_that_is_in_it() {
        for text in [
            "{\"scores\": [1, 2],}",
            "{\"scores\": [1, 2, ]}",
            "{scores: [1, 2]}",
            "{'scores': [1, 2]}",
            "{\"scores\": [1, 2], \"why\": \"cut o",
            "{\"scores\": [1, 2], ",
            "[[1, 2], ",
            "no JSON at all",
            "",
        ] {
            assert_eq!(found(text), Vec::<Value>::new(), "{text}");
        }
    }

    #[test]
    fn the_search_ends_after_a_bounded_number_of_places() {
        assert_eq!(found(&"[x] ".repeat(MAX_CANDIDATES)), Vec::<Value>::new());
        assert_eq!(found(&("[x] ".repeat(MAX_CANDIDATES - 1) + "[1]")), [json!([1])]);
        assert_eq!(found(&("[x] ".repeat(MAX_CANDIDATES) + "[1]")), Vec::<Value>::new());
    }
}

/// Fuzzing. The means are those of [`crate::app::fuzz`].
#[cfg(test)]
mod fuzz {
    use super::*;
    use crate::app::fuzz::{fuzz_text, json_tokens};

    #[test]
    fn what_is_found_in_a_text_is_json_of_that_text() {
        let corpus = [
            "Here it is:\n```json\n{\"a\": [1, {\"b\": \"}\"}]}\n```\nDone.",
            "[1, 2, ] and {\"a\": 1} [] {\"b\": \"\\\"\"}",
            "{\"a\": {\"b\": [[[[",
        ];
        fuzz_text(&corpus, &json_tokens(&["\"a\":", "```", "[[[[", "]]]]", "{}", "[]", ", ]"]), |text| {
            let found: Vec<Value> = json_values(text).collect();
            assert!(found.len() <= MAX_CANDIDATES);
            assert!(found.iter().all(|value| value.is_object() || value.is_array()), "{text:?}");
            let only = serde_json::from_str::<Value>(text).ok();
            if let Some(only) = only.filter(|value| value.is_object() || value.is_array()) {
                assert_eq!(found, [only], "{text:?}");
            }
            // Text before the first bracket does not count, and after a complete value the search goes on.
            assert_eq!(json_values(&format!("é \" {text}")).collect::<Vec<_>>(), found, "{text:?}");
            let after: Vec<Value> = json_values(&format!("{{}} {text}")).skip(1).collect();
            assert_eq!(after[..], found[..after.len()], "{text:?}");
        });
    }
}
