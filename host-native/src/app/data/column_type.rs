//! Kinds of values: what a column of a typed format, such as Parquet, can be declared as before its values are there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What all values of a column are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Nothing but null.
    #[default]
    Null,
    /// True or false.
    Bool,
    /// Whole numbers of 64 bits.
    Integer,
    /// Numbers.
    Number,
    /// Texts.
    Text,
    /// Lists of numbers.
    Numbers,
    /// Anything.
    Json,
}

impl ValueKind {
    /// The kind of one value.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Integer,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::Text,
            Value::Array(_) | Value::Object(_) => Self::Json,
        }
    }

    /// The kind of all of `values`.
    #[must_use]
    pub fn of_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        values.into_iter().map(Self::of).fold(Self::Null, Self::or)
    }

    /// The kind of values that are of this kind or of the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, kind) | (kind, Self::Null) => kind,
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => Self::Number,
            (kind, same) if kind == same => kind,
            _ => Self::Json,
        }
    }

    /// The kind of the values that fit a JSON Schema, as far as its `type` says.
    #[must_use]
    pub fn of_schema(schema: &Value) -> Self {
        let named = |name: &Value| match name.as_str() {
            Some("boolean") => Self::Bool,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("string") => Self::Text,
            Some("null") => Self::Null,
            _ => Self::Json,
        };
        match &schema["type"] {
            Value::Array(any) if !any.is_empty() => any.iter().map(named).fold(Self::Null, Self::or),
            one => named(one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_two_kinds_are_of_the_nearest_that_holds_both() {
        for (values, expected) in [
            (json!([null, 1, 2]), ValueKind::Integer),
            (json!([1, 2.5, null]), ValueKind::Number),
            (json!([1, "a"]), ValueKind::Json),
            (json!([true, null]), ValueKind::Bool),
            (json!([[1.0]]), ValueKind::Json),
            (json!([u64::MAX]), ValueKind::Number),
            (json!([]), ValueKind::Null),
        ] {
            assert_eq!(ValueKind::of_all(values.as_array().unwrap()), expected, "{values}");
        }
    }

    #[test]
    fn a_schema_says_a_kind_or_anything() {
        assert_eq!(ValueKind::of_schema(&json!({"type": ["integer", "null"]})), ValueKind::Integer);
        assert_eq!(ValueKind::of_schema(&json!({"type": "object"})), ValueKind::Json);
        assert_eq!(ValueKind::of_schema(&json!({"enum": ["a"]})), ValueKind::Json);
    }
}
