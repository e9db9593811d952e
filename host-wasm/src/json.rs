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

use std::fmt;
use std::marker::PhantomData;

use js_sys::{JSON, Reflect};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_core::time::Duration;
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
    let checked = Closure::<dyn Fn(JsValue, JsValue) -> JsValue>::new(|key: JsValue, value: JsValue| {
        let is_outermost = key.as_string().is_some_and(|key| key.is_empty());
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

/// A value that is read from an object only: `serde` also reads a struct from an array, by position.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                text.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Returns the JSON of the value at a path such as `budgets[0].limit`, if there is one.
pub(crate) fn text_at(value: &JsValue, path: &str) -> Option<String> {
    let mut keys = path.split(['.', '[', ']']).filter(|key| !key.is_empty());
    let found = keys.try_fold(value.clone(), |object, key| Reflect::get(&object, &key.into()).ok())?;
    JSON::stringify(&found).ok()?.as_string()
}

/// The settings of the core that are durations. In JavaScript they are milliseconds, and their names end in `Ms`.
const DURATIONS: [&str; 10] = [
    "cooldown",
    "degraded_pause",
    "longest_pause",
    "max_cooldown",
    "ramp",
    "ramp_after_idle",
    "rate_limit_patience",
    "retry_ceiling",
    "retry_floor",
    "window",
];

/// Returns the name in JavaScript of a setting of the core.
pub(crate) fn js_name(core: &str) -> String {
    let mut parts = core.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    let name = parts.fold(first, |mut name, part| {
        let mut letters = part.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name + letters.as_str()
    });
    if DURATIONS.contains(&core) { name + "Ms" } else { name }
}

/// 285 years: the most that the core can add to an instant is a little more.
const MAX_MILLIS: f64 = 9e12;

/// Reads a duration in milliseconds.
pub(crate) fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let millis = f64::deserialize(from)?;
    if !(0.0..=MAX_MILLIS).contains(&millis) {
        return Err(D::Error::invalid_value(Unexpected::Float(millis), &"a number of milliseconds from 0 to 9e12"));
    }
    Ok(Duration::from_nanos((millis * 1e6).round() as u64))
}

/// Reads a duration in milliseconds, or `null`.
pub(crate) fn millis_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    struct Millis(#[serde(deserialize_with = "millis")] Duration);
    Ok(Option::<Millis>::deserialize(from)?.map(|Millis(span)| span))
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
