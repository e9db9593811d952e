//! Objects across the boundary: as JSON text, by `serde_json`, which JavaScript reads and writes itself.
//!
//! | in Rust | in JavaScript |
//! | --- | --- |
//! | `u64`, `u128` | a number: exact up to 2^53, rounded to 16 digits above |
//! | a map | a plain object |
//! | `None` | `null`; on the way in, a field that is `undefined` is absent |
//!
//! `serde-wasm-bindgen` reads objects without the text, but it ignores the unknown fields of a struct, and a
//! `u128` becomes a `BigInt`.

use core::cell::Cell;

use js_sys::JSON;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::*;

/// Returns the compact JSON text of a value.
pub(crate) fn to_text<T: Serialize>(value: &T) -> Result<String, JsError> {
    Ok(serde_json::to_string(value)?)
}

/// Returns a value as a plain object.
pub(crate) fn to_js<T: Serialize>(value: &T) -> Result<JsValue, JsError> {
    JSON::parse(&to_text(value)?).map_err(|_| JsError::new("a value has no JSON"))
}

/// Reads a plain object. `what` names it in the error for another value, such as a function. Other errors
/// begin with the path of the field: `models[0].max_parallel: invalid type: string "many", expected a whole
/// number from 0 to 4294967295`.
pub(crate) fn from_js<T: DeserializeOwned>(what: &str, value: &JsValue) -> Result<T, JsError> {
    read(what, value).map_err(|message| JsError::new(&message))
}

/// Does the same, and returns the message of an error.
pub(crate) fn read<T: DeserializeOwned>(what: &str, value: &JsValue) -> Result<T, String> {
    // What JSON lacks becomes a text, which no setting of its kind can be: JSON would convert a number that is not
    // finite to `null`, leave out functions and symbols, and fail at a `BigInt` without naming its field.
    let is_outermost = Cell::new(true);
    let checked = Closure::<dyn Fn(JsValue, JsValue) -> JsValue>::new(move |_key: JsValue, value: JsValue| {
        let is_outermost = is_outermost.replace(false);
        match value.as_f64() {
            Some(number) if !number.is_finite() => number.to_string().into(),
            None if is_outermost => value,
            None if value.is_function() => "a function".into(),
            None if value.is_symbol() => "a symbol".into(),
            None if value.is_bigint() => "a BigInt".into(),
            _ => value,
        }
    });
    let text = JSON::stringify_with_replacer(value, checked.as_ref()).ok().and_then(|text| text.as_string());
    let text = text.ok_or_else(|| format!("{what} must be a plain object"))?;
    let mut json = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut json)
        .map_err(|error| at_path(&error.path().to_string(), &message(error.inner())))
}

/// Returns the message without line and column, which refer to a text that JavaScript generated.
pub(crate) fn message(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    in_words(message.strip_suffix(&place).unwrap_or(&message))
}

/// Returns a message of `serde` with the number types of Rust in words.
pub(crate) fn in_words(message: &str) -> String {
    let Some((what, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let expected = match expected {
        "u32" | "usize" => "a whole number from 0 to 4294967295",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "u64" => "a whole number from 0 up",
        "f64" => "a number",
        other => other,
    };
    format!("{what}, expected {expected}")
}

/// Prefixes a message with the path of its field. `.` is the outermost value.
pub(crate) fn at_path(path: &str, message: &str) -> String {
    if path == "." { message.to_owned() } else { format!("{path}: {message}") }
}
