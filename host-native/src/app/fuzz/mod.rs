//! Fuzzing of every parser that reads input from outside: files of people, datasets, responses, logs.
//!
//! A target starts from a valid document and changes it: a token of the format is inserted, bytes are
//! removed, replaced or copied, the end is cut off. So inputs get past the first check of a parser far more
//! often than random bytes do. Each target states laws besides "does not panic".
//!
//! The targets of the proxy, of shared limits, of the redactor and of JSON in answers are beside their
//! parsers, in modules that are called `fuzz`, too.
//!
//! `cargo test` runs each target for a second. `tests/run fuzz` runs each for a minute, and
//! `BOLERO_RANDOM_TEST_TIME_MS=3600000 cargo test --workspace --all-features --lib fuzz::` for an
//! hour. A failure prints the shrunken changes and `BOLERO_RANDOM_SEED`, which repeats it.

mod data;
mod files;
mod responses;

use std::panic::RefUnwindSafe;

use bolero::TypeGenerator;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Tokens of JSON, with values that are hard to read: numbers out of range, half a surrogate pair.
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    " ",
    "\n",
    "null",
    "true",
    "-0",
    "-1",
    "1e400",
    "9007199254740992",
    "18446744073709551616",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{e9}",
];

/// Returns the tokens of JSON and those of one format that is written in it.
pub(crate) fn json_tokens<'a>(names: &[&'a str]) -> Vec<&'a str> {
    [JSON, names].concat()
}

/// Changes of one input.
const MAX_EDITS: usize = 12;

/// A change of a document. Positions count from 0 and wrap around at its end.
#[derive(Debug, TypeGenerator)]
enum Edit {
    /// Inserts a token of the format.
    Insert { at: u16, token: u8 },
    /// Removes bytes.
    Remove { at: u16, length: u8 },
    /// Replaces a byte.
    Replace { at: u16, byte: u8 },
    /// Inserts a copy of bytes from elsewhere.
    Copy { from: u16, length: u8, at: u16 },
}

impl Edit {
    fn apply(&self, document: &mut Vec<u8>, tokens: &[&str]) {
        let length = document.len();
        let place = |at: u16| usize::from(at) % (length + 1);
        let span = |at: u16, bytes: u8| place(at)..(place(at) + usize::from(bytes)).min(length);
        match *self {
            Self::Insert { at, token } => {
                let token = tokens[usize::from(token) % tokens.len()];
                drop(document.splice(place(at)..place(at), token.bytes()));
            }
            Self::Remove { at, length } => drop(document.drain(span(at, length))),
            Self::Replace { at, byte } => {
                if let Some(changed) = document.get_mut(place(at)) {
                    *changed = byte;
                }
            }
            Self::Copy { from, length, at } => {
                let copy = document[span(from, length)].to_vec();
                drop(document.splice(place(at)..place(at), copy));
            }
        }
    }
}

/// Gives `check` the documents of `corpus`, first unchanged and then with changes from the tokens of their
/// format.
pub(crate) fn fuzz(corpus: &[&[u8]], tokens: &[&str], check: impl Fn(&[u8]) + RefUnwindSafe) {
    for document in corpus {
        check(document);
    }
    bolero::check!().with_type::<(u8, Vec<Edit>, Option<u16>)>().for_each(|(start, edits, cut)| {
        let mut document = corpus[usize::from(*start) % corpus.len()].to_vec();
        edits.iter().take(MAX_EDITS).for_each(|edit| edit.apply(&mut document, tokens));
        if let Some(cut) = cut {
            document.truncate(usize::from(*cut) % (document.len() + 1));
        }
        check(&document);
    });
}

/// Returns the headers in these lines. Lines that are no header are left out.
pub(crate) fn header_map(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
        let value = HeaderValue::from_bytes(value.strip_prefix(b":").unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    headers
}

/// As [`fuzz`], for parsers of text. Documents that are no UTF-8 are repaired.
pub(crate) fn fuzz_text(corpus: &[&str], tokens: &[&str], check: impl Fn(&str) + RefUnwindSafe) {
    let corpus: Vec<&[u8]> = corpus.iter().map(|document| document.as_bytes()).collect();
    fuzz(&corpus, tokens, |bytes| check(&String::from_utf8_lossy(bytes)));
}
