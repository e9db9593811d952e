//! The one error for configuration that is refused at construction.

use alloc::string::{String, ToString};
use core::fmt;

/// A configuration value that is outside its range. Nothing is ever clamped silently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}; expected {expected}")]
pub struct ConfigError {
    /// The field's path as the caller wrote it, such as `aimd.decrease_factor`.
    pub field: String,
    /// The refused value.
    pub value: String,
    /// The allowed range, in words.
    pub expected: &'static str,
}

impl ConfigError {
    /// An error for `field`, which held `value` although `expected` was asked for.
    pub(crate) fn new(field: &str, value: impl fmt::Display, expected: &'static str) -> Self {
        Self { field: field.to_string(), value: value.to_string(), expected }
    }

    /// The same, with this in front of its field. Out of line: much is checked, and little is ever refused.
    #[cfg(feature = "sim")]
    #[cold]
    #[inline(never)]
    pub(crate) fn inside(mut self, before: &[&str]) -> Self {
        self.field.insert_str(0, &before.concat());
        self
    }
}

/// Refuses `value` unless `holds`.
pub(crate) fn require(
    holds: bool,
    field: &str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::new(field, value, expected)) }
}
