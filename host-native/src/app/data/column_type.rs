//! The types of columns. A typed format such as Parquet declares them before it writes the first value.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of the values of a column. Every type also allows null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// Only null.
    #[default]
    Null,
    /// True or false.
    Bool,
    /// Integers that fit in an `i64`.
    Integer,
    /// Floating-point numbers and integers.
    Number,
    /// Strings.
    Text,
    /// Lists of numbers.
    Numbers,
    /// Any JSON value.
    Json,
}

impl ColumnType {
    /// Returns the type of one value.
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

    /// Returns the narrowest type that holds all of `values`.
    #[must_use]
    pub fn of_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        values.into_iter().map(Self::of).fold(Self::Null, Self::unify)
    }

    /// Returns the narrowest type that holds the values of both types.
    #[must_use]
    pub fn unify(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, other) | (other, Self::Null) => other,
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => Self::Number,
            (one, same) if one == same => one,
            _ => Self::Json,
        }
    }

    /// Returns the type of the values that a JSON Schema accepts. Only the keyword `type` is considered.
    #[must_use]
    pub fn from_schema(schema: &Value) -> Self {
        let named = |name: &Value| match name.as_str() {
            Some("boolean") => Self::Bool,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("string") => Self::Text,
            Some("null") => Self::Null,
            _ => Self::Json,
        };
        match &schema["type"] {
            Value::Array(any) if !any.is_empty() => any.iter().map(named).fold(Self::Null, Self::unify),
            one => named(one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_two_types_have_the_narrowest_type_that_holds_both() {
        for (values, expected) in [
            (json!([null, 1, 2]), ColumnType::Integer),
            (json!([1, 2.5, null]), ColumnType::Number),
            (json!([1, "a"]), ColumnType::Json),
            (json!([true, null]), ColumnType::Bool),
            (json!([[1.0]]), ColumnType::Json),
            (json!([u64::MAX]), ColumnType::Number),
            (json!([]), ColumnType::Null),
        ] {
            assert_eq!(ColumnType::of_all(values.as_array().unwrap()), expected, "{values}");
        }
    }

    #[test]
    fn a_schema_gives_the_type_that_it_names_and_json_otherwise() {
        assert_eq!(ColumnType::from_schema(&json!({"type": ["integer", "null"]})), ColumnType::Integer);
        assert_eq!(ColumnType::from_schema(&json!({"type": "object"})), ColumnType::Json);
        assert_eq!(ColumnType::from_schema(&json!({"enum": ["a"]})), ColumnType::Json);
    }
}
