//! Deserializes a number that is also the key of a map.
//!
//! A key is text in JSON. The derived code reads it as a number, but not inside of an enum with a tag, whose
//! fields are buffered first.

use core::fmt;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// For a `u64` field: `#[serde(deserialize_with = "crate::number::deserialize")]`. The format must describe
/// itself, as JSON does. Text is read like the key of a map, so `"12"` and `"+12"` are 12, also where the
/// field is no key.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(NumberVisitor)
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, digits: &str) -> Result<u64, E> {
        digits.parse().map_err(|_| E::invalid_value(Unexpected::Str(digits), &self))
    }
}
