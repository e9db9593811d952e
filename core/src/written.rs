//! Choices as files write them: one table whose keys depend on which it is.
//!
//! `#[serde(tag)]` would read such a table into a buffer first, and compile every type in it a second time to be read from
//! there. One struct with all the keys, of which a choice takes its own, costs a tenth of the code, and says where a mistake is.

use alloc::format;
use alloc::string::String;

/// A key that the choice needs.
pub(crate) fn taken<T>(field: &mut Option<T>, key: &str) -> Result<T, String> {
    field.take().ok_or_else(|| missing(key))
}

/// Out of line: it is asked for in many places.
#[cold]
#[inline(never)]
fn missing(key: &str) -> String {
    format!("missing field `{key}`")
}

/// Refuses keys that are left once the choice took its own.
pub(crate) fn nothing_left(left: &[(&str, bool)], choice: &str) -> Result<(), String> {
    match left.iter().find(|(_, is_left)| *is_left) {
        Some((key, _)) => Err(format!("`{key}` does not belong to this {choice}")),
        None => Ok(()),
    }
}
