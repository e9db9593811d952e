//! The one error for configuration that is refused at construction.

use alloc::string::{String, ToString};
use core::fmt;

use crate::time::Duration;

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
    pub(crate) fn new(field: &str, value: impl Into<Refused>, expected: &'static str) -> Self {
        Self { field: field.to_string(), value: value.into().0, expected }
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
    value: impl Into<Refused>,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::new(field, value, expected)) }
}

/// A refused value as the error shows it.
///
/// Not `impl Display`, for the sake of `f64`: see [`Decimal`].
pub(crate) struct Refused(String);

macro_rules! show_as_displayed {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Refused {
            fn from(value: $kind) -> Self {
                Self(value.to_string())
            }
        })*
    };
}

show_as_displayed!(i32, u16, u32, u64, usize, &u32, &str, &String, Duration);

impl From<&f64> for Refused {
    fn from(value: &f64) -> Self {
        Self::from(*value)
    }
}

impl From<f64> for Refused {
    fn from(value: f64) -> Self {
        Self(Decimal(value).to_string())
    }
}

/// A number in the fewest digits that give it back, or in ten if those are very many.
///
/// For messages only. The standard formatting of floats is 20 KiB of code, a tenth of the module that a browser loads.
pub(crate) struct Decimal(pub(crate) f64);

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() {
            return formatter.write_str("NaN");
        }
        if self.0 < 0.0 {
            formatter.write_str("-")?;
        }
        let size = self.0.abs();
        // Both are exact: a power of ten up to 10^17, and digits below 2^64 that came out of a float.
        let readable = (0..=17).map(|places| (places, 10_u64.pow(places))).find_map(|(places, scale)| {
            let scaled = size * scale as f64 + 0.5;
            let digits = scaled as u64;
            let is_exact = scaled < u64::MAX as f64 && (digits as f64 / scale as f64).to_bits() == size.to_bits();
            is_exact.then_some((digits / scale, digits % scale, places as usize))
        });
        match readable {
            Some((whole, _, 0)) => write!(formatter, "{whole}"),
            Some((whole, fraction, places)) => write!(formatter, "{whole}.{fraction:0places$}"),
            None if size.is_infinite() => formatter.write_str("inf"),
            None => write_scientific(size, formatter),
        }
    }
}

/// About `size`, which is finite and above 0, as in `1.797693134e308`.
fn write_scientific(size: f64, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut mantissa, mut exponent) = (size, 0);
    while mantissa >= 10.0 {
        (mantissa, exponent) = (mantissa / 10.0, exponent + 1);
    }
    while mantissa < 1.0 {
        (mantissa, exponent) = (mantissa * 10.0, exponent - 1);
    }
    let digits = (mantissa * 1e9) as u64;
    write!(formatter, "{}.{:09}e{exponent}", digits / 1_000_000_000, digits % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: f64) -> String {
        Decimal(value).to_string()
    }

    #[test]
    fn a_refused_number_is_shown_as_it_was_written() {
        for value in [0.0, 1.0, 1.5, -0.25, 0.99, 1e-9, 100.000_1, 0.1 + 0.2, 1.0 + f64::EPSILON, 1e15, 1.0 / 3.0] {
            assert_eq!(shown(value), value.to_string());
        }
        assert_eq!((shown(f64::NAN).as_str(), shown(f64::NEG_INFINITY).as_str()), ("NaN", "-inf"));
    }

    #[test]
    fn a_number_of_very_many_digits_is_shown_by_its_size() {
        assert_eq!(shown(f64::MAX), "1.797693134e308");
        assert_eq!(shown(-3e-200), "-3.000000000e-200");
    }
}
