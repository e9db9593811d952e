//! What the reports share: pages that need nothing from anywhere.

use std::fmt::Write as _;

use maud::Escaper;

/// Text as it may stand in an element or in an attribute between double quotes: escaped by the library that makes the newer pages.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // Writing into a string does not fail.
    let _ = Escaper::new(&mut safe).write_str(text);
    safe
}
