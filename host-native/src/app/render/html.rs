//! Escaping of text in HTML that is written as strings.

use std::fmt::Write as _;

use maud::Escaper;

/// Escapes text for an element, or for an attribute value in double quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // Writing to a string never fails.
    let _ = Escaper::new(&mut safe).write_str(text);
    safe
}
