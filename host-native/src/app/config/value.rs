//! Types of single values in configuration files. Each validates its TOML value and has a description for
//! error messages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{Schema, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use tidegate_core::time::Duration;
use toml::Spanned;

/// A value with its span. Wraps [`Spanned`], so that this crate can implement traits for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent, bound = "T: Deserialize<'de>")]
pub(crate) struct WithSpan<T>(Spanned<T>);

impl<T> WithSpan<T> {
    pub(crate) fn new(span: std::ops::Range<usize>, value: T) -> Self {
        Self(Spanned::new(span, value))
    }

    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.0.span()
    }

    pub(crate) fn get(&self) -> &T {
        self.0.get_ref()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }

    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned::new(self.0.span(), convert(self.0.into_inner()))
    }
}

impl<T> WithSpan<Checked<T>> {
    /// Returns the inner value with its span.
    pub(crate) fn spanned(self) -> Spanned<T> {
        self.map(|Checked(value)| value)
    }
}

/// A value that must be a table. Without this type, serde also accepts an array with the fields in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table<T>(pub(crate) T);

impl<T> Deref for Table<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }

        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

/// A type that is parsed from a string or a number.
pub(crate) trait FromValue: Sized {
    /// A description of the valid values.
    const EXPECTED: &'static str;

    /// Returns the JSON Schema of the valid values.
    fn schema() -> Schema;

    /// Parses a string. Returns `None` if it is not valid.
    fn from_text(_text: &str) -> Option<Self> {
        None
    }

    /// Converts a floating-point number. Returns `None` if it is not valid.
    fn from_float(_number: f64) -> Option<Self> {
        None
    }

    /// Converts a whole number. Returns `None` if it is not valid.
    fn from_integer(number: i128) -> Option<Self> {
        Self::from_float(number as f64)
    }
}

/// A value that is validated during deserialization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Checked<T>(pub(crate) T);

/// A string that is not empty.
pub(crate) type Text = Checked<String>;
/// A duration, written as a number with a unit such as `"1.5s"`.
pub(crate) type DurationText = Checked<Duration>;
/// A finite number.
pub(crate) type Finite = Checked<f64>;

struct ValueVisitor<T>(PhantomData<T>);

impl<T: FromValue> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::from_integer(number.into()).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::from_integer(number.into()).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::from_float(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

impl<'de, T: FromValue> Deserialize<'de> for Checked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor(PhantomData)).map(Self)
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "a string that is not empty";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }

    fn from_text(text: &str) -> Option<Self> {
        (!text.trim().is_empty()).then(|| text.to_string())
    }
}

impl FromValue for f64 {
    const EXPECTED: &'static str = "a finite number";

    fn schema() -> Schema {
        json_schema!({ "type": "number" })
    }

    fn from_float(number: f64) -> Option<Self> {
        number.is_finite().then_some(number)
    }
}

impl FromValue for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }

    fn from_integer(number: i128) -> Option<Self> {
        number.try_into().ok()
    }
}

impl FromValue for u64 {
    const EXPECTED: &'static str = "a whole number, 0 or more";

    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0 })
    }

    fn from_integer(number: i128) -> Option<Self> {
        number.try_into().ok()
    }
}

/// A regular expression for the strings that [`parse_duration`] accepts.
const DURATION: &str = r"^[0-9]+(\.[0-9]*)? *(us|ms|s|m|h)$|^\.[0-9]+ *(us|ms|s|m|h)$";

impl FromValue for Duration {
    const EXPECTED: &'static str = "a duration such as \"250ms\", \"1.5s\", \"10m\" or \"1h\"";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": DURATION })
    }

    fn from_text(text: &str) -> Option<Self> {
        parse_duration(text)
    }
}

/// A duration, or `"never"` for no time limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DurationOrNever(pub(crate) Option<Duration>);

impl FromValue for DurationOrNever {
    const EXPECTED: &'static str = "a duration such as \"10m\", or \"never\"";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": format!("{DURATION}|^never$") })
    }

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "never" => Some(Self(None)),
            span => parse_duration(span).map(|span| Self(Some(span))),
        }
    }
}

/// A fraction above 0 and at most 1, or `"never"` for a threshold that is never reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShareOrNever(pub(crate) Option<f64>);

impl FromValue for ShareOrNever {
    const EXPECTED: &'static str = "a number above 0 and at most 1, or \"never\"";

    fn schema() -> Schema {
        json_schema!({ "oneOf": [{ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }, { "const": "never" }] })
    }

    fn from_text(text: &str) -> Option<Self> {
        (text == "never").then_some(Self(None))
    }

    fn from_float(share: f64) -> Option<Self> {
        (share > 0.0 && share <= 1.0).then_some(Self(Some(share)))
    }
}

/// A setting of a call: a fixed value, or a template that is rendered for each row.
#[derive(Clone, Debug)]
pub enum Setting<T> {
    /// The same value for all rows.
    Fixed(T),
    /// A template whose text is parsed as the value.
    Template(Spanned<String>),
}

/// A number, or a template whose text is a number.
#[derive(Clone, Debug)]
pub(crate) enum NumberOrTemplate<T> {
    Number(T),
    Template(String),
}

impl<T: FromValue> FromValue for NumberOrTemplate<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn schema() -> Schema {
        json_schema!({ "anyOf": [T::schema(), String::schema()] })
    }

    fn from_text(text: &str) -> Option<Self> {
        String::from_text(text).map(Self::Template)
    }

    fn from_float(number: f64) -> Option<Self> {
        T::from_float(number).map(Self::Number)
    }

    fn from_integer(number: i128) -> Option<Self> {
        T::from_integer(number).map(Self::Number)
    }
}

impl<T> WithSpan<Checked<NumberOrTemplate<T>>> {
    pub(crate) fn setting(self) -> Setting<T> {
        let span = self.span();
        match self.into_inner().0 {
            NumberOrTemplate::Number(number) => Setting::Fixed(number),
            NumberOrTemplate::Template(template) => Setting::Template(Spanned::new(span, template)),
        }
    }
}

/// Any value that JSON can represent. Dates and times become strings.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Json(pub(crate) Value);

/// A table of values that JSON can represent.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "toml::Table")]
pub(crate) struct JsonTable(pub(crate) Map<String, Value>);

impl TryFrom<toml::Value> for Json {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        to_json(value).map(Self).ok_or("expected a value that JSON can represent")
    }
}

impl TryFrom<toml::Table> for JsonTable {
    type Error = &'static str;

    fn try_from(table: toml::Table) -> Result<Self, Self::Error> {
        table_to_json(table).map(Self).ok_or("expected a table of values that JSON can represent")
    }
}

/// Converts `value` to JSON. Returns `None` if it contains an infinity or NaN, which JSON cannot represent.
fn to_json(value: toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::Float(number) => Value::Number(serde_json::Number::from_f64(number)?),
        toml::Value::Datetime(datetime) => Value::String(datetime.to_string()),
        toml::Value::Array(items) => items.into_iter().map(to_json).collect::<Option<_>>()?,
        toml::Value::Table(table) => Value::Object(table_to_json(table)?),
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Boolean(flag) => Value::Bool(flag),
    })
}

fn table_to_json(table: toml::Table) -> Option<Map<String, Value>> {
    table.into_iter().map(|(key, value)| Some((key, to_json(value)?))).collect()
}

/// A string or an array of strings.
#[derive(Clone, Debug)]
pub(crate) struct Texts(pub(crate) Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;

        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or an array of strings, none of them empty")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                let text = String::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))?;
                Ok(Texts(vec![Spanned::new(0..0, text)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element::<WithSpan<Text>>()? {
                    texts.push(text.spanned());
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(TextsVisitor)
    }
}

impl WithSpan<Texts> {
    pub(crate) fn into_texts(self) -> Vec<Spanned<String>> {
        let span = self.span();
        // A single string has the span of the whole value.
        let with_span = |text: Spanned<String>| {
            if text.span() == (0..0) { Spanned::new(span.clone(), text.into_inner()) } else { text }
        };
        self.into_inner().0.into_iter().map(with_span).collect()
    }
}

/// Parses a decimal number with a unit: `us`, `ms`, `s`, `m` or `h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number = number.trim_end();
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_with_a_unit() {
        for (text, millis) in [("250ms", 250), ("1.5s", 1_500), ("2 s", 2_000), ("10m", 600_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for invalid in ["", "5", "s", "-1s", "1e3s", "5 days", "1..2s"] {
            assert_eq!(parse_duration(invalid), None, "{invalid}");
        }
    }
}
