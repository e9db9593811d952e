//! Settings as JavaScript gives them: their names, and durations in milliseconds.

use std::fmt;
use std::marker::PhantomData;

use js_sys::{JSON, Reflect};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use tidegate_core::time::Duration;
use wasm_bindgen::JsValue;

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
