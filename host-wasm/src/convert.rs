//! Numbers across the boundary. JavaScript has one number type, and converting silently would wrap, truncate
//! or drop a value that does not fit. These functions reject it, with the value and what was expected.

use tidegate_core::time::Duration;
#[cfg(feature = "engine")]
use tidegate_core::time::Instant;
use wasm_bindgen::prelude::*;

/// The largest whole number that JavaScript represents exactly with all smaller ones.
pub(crate) const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// 2^63 nanoseconds, 292 years: above any span in use, and exact as a double.
const MAX_NANOS: f64 = 9_223_372_036_854_775_808.0;

/// Returns a whole number from 0 to `max`, which must be exact as a double.
pub(crate) fn whole(what: &str, value: f64, max: f64) -> Result<u64, JsError> {
    if value.fract().abs() > 0.0 || !(0.0..=max).contains(&value) {
        let (max, value) = (shown(max), shown(value));
        return Err(JsError::new(&[what, " must be a whole number from 0 to ", &max, ", not ", &value].concat()));
    }
    Ok(value as u64)
}

/// Returns a duration from milliseconds, to the nearest nanosecond.
pub(crate) fn duration(what: &str, millis: f64) -> Result<Duration, JsError> {
    let nanos = millis * 1e6;
    if !(0.0..MAX_NANOS).contains(&nanos) {
        return Err(JsError::new(
            &[what, " must be a number of milliseconds from 0 up, not ", &shown(millis)].concat(),
        ));
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// An instant of virtual time from milliseconds since the start.
#[cfg(feature = "engine")]
pub(crate) fn instant(what: &str, millis: f64) -> Result<Instant, JsError> {
    duration(what, millis).map(|span| Instant::ZERO + span)
}

/// Milliseconds since the clock's origin.
#[cfg(any(feature = "playground", feature = "sim"))]
pub(crate) fn millis(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e6
}

/// Formats a number as JavaScript does. Rust's formatting of floats would add 20 KiB of code.
fn shown(number: f64) -> String {
    js_sys::Number::from(number).to_string_with_radix(10).map_or_else(|_| String::new(), String::from)
}
