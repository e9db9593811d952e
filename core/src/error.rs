//! The error for a configuration value that is rejected at construction.

use alloc::string::{String, ToString};
use core::fmt;

/// A configuration value that is outside its range. Values are never clamped silently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}; expected {expected}")]
pub struct ConfigError {
    /// The field's path as the caller wrote it, such as `aimd.decrease_factor`.
    pub field: String,
    /// The rejected value.
    pub value: String,
    /// The allowed range, in words.
    pub expected: &'static str,
}

impl ConfigError {
    /// Creates an error for `field`, which holds `value` although `expected` is required.
    pub(crate) fn new(field: &str, value: impl fmt::Display, expected: &'static str) -> Self {
        Self { field: field.to_string(), value: value.to_string(), expected }
    }

    /// Prepends `before` to the field path. Kept out of line because errors are rare.
    #[cfg(feature = "sim")]
    #[cold]
    #[inline(never)]
    fn prefixed(mut self, before: &[&str]) -> Self {
        self.field.insert_str(0, &before.concat());
        self
    }
}

/// Returns an error for `value` unless `holds`.
pub(crate) fn require(
    holds: bool,
    field: &str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::new(field, value, expected)) }
}

/// Returns a function that prefixes the field of an error with `parent.`.
#[cfg(feature = "sim")]
pub(crate) fn inside(parent: &str) -> impl Fn(ConfigError) -> ConfigError + Copy {
    move |error| error.prefixed(&[parent, "."])
}

/// Returns a function that prefixes the field of an error with `list[nth].`.
#[cfg(feature = "sim")]
pub(crate) fn inside_item(list: &str, nth: usize) -> impl Fn(ConfigError) -> ConfigError + Copy {
    move |error| error.prefixed(&[list, "[", &nth.to_string(), "]."])
}
