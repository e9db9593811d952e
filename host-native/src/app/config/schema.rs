//! JSON Schemas of the files for editors, generated from the types that deserialize the files.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::value::{Checked, FromValue, Json, JsonTable, Table, Text, Texts, WithSpan};

/// Returns the JSON Schema of a file that is deserialized as a `T`, as formatted text.
pub(crate) fn schema_text<T: JsonSchema>(title: &str) -> String {
    format!("{:#}\n", schema_of::<T>(title).as_value())
}

/// Returns the JSON Schema of a file that is deserialized as a `T`.
pub(crate) fn schema_of<T: JsonSchema>(title: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let settings = settings.with_transform(RecursiveTransform(remove_null));
    let generator = settings.with_transform(RecursiveTransform(plain_description)).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_string(), title.into());
    schema
}

/// Removes `null` from the schemas of optional keys and from defaults, because TOML has no null value.
fn remove_null(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(default) = schema.get_mut("default") {
        *default = without_null(default.take());
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_string(), only);
        }
    }
    if let Some(Value::Array(either)) = schema.get_mut("anyOf") {
        either.retain(|one| one["type"] != "null");
        if let [Value::Object(only)] = either.as_slice() {
            let mut only = only.clone();
            schema.remove("anyOf");
            only.append(schema);
            *schema = only;
        }
    }
}

/// Removes all keys whose value is null.
pub(crate) fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = map.into_iter().filter(|(_, value)| !value.is_null());
            known.map(|(key, value)| (key, without_null(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        value => value,
    }
}

/// Joins a description of several lines into one line, and replaces links of the documentation by their text.
fn plain_description(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = without_links(&description.replace('\n', " "));
    }
}

/// Replaces each `[text](target)` and ``[`item`]`` by its text.
fn without_links(text: &str) -> String {
    let Some((before, rest)) = text.split_once('[') else { return text.to_string() };
    let Some((link, after)) = rest.split_once(']') else { return text.to_string() };
    let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
    match target {
        Some((_, after)) => format!("{before}{link}{}", without_links(after)),
        None if link.starts_with('`') => format!("{before}{link}{}", without_links(after)),
        None => format!("{before}[{link}]{}", without_links(after)),
    }
}

/// Returns a condition that applies `then` if `key` is `name`, and also if `key` is absent and `name` is the
/// default.
pub(crate) fn where_key_is(key: &str, name: &str, is_default: bool, then: &Value) -> Value {
    let required: &[&str] = if is_default { &[] } else { &[key] };
    let properties = Map::from_iter([(key.to_string(), serde_json::json!({ "const": name }))]);
    serde_json::json!({ "if": { "properties": properties, "required": required }, "then": then })
}

impl<T: JsonSchema> JsonSchema for WithSpan<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }

    fn inline_schema() -> bool {
        true
    }
}

impl<T: JsonSchema> JsonSchema for Table<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }

    fn inline_schema() -> bool {
        true
    }
}

impl<T: FromValue> JsonSchema for Checked<T> {
    fn schema_name() -> Cow<'static, str> {
        T::EXPECTED.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }

    fn inline_schema() -> bool {
        true
    }
}

impl JsonSchema for Json {
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }

    fn inline_schema() -> bool {
        true
    }
}

impl JsonSchema for JsonTable {
    fn schema_name() -> Cow<'static, str> {
        "JsonTable".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }

    fn inline_schema() -> bool {
        true
    }
}

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<Text>(), generator.subschema_for::<Vec<Text>>()] })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// Asserts that `docs/NAME.schema.json` equals `schema`. If the variable `UPDATE_SCHEMA` is set, writes the
/// file first.
#[cfg(test)]
pub(crate) fn assert_stored(name: &str, schema: &str) {
    let path = format!("{}/docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, schema).expect("the schema can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    // The comparison is as JSON values, because the order of keys depends on a feature of `serde_json`.
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    assert!(
        parsed(&stored) == parsed(schema),
        "docs/{name}.schema.json is out of date: set UPDATE_SCHEMA=1 and test again"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_by_their_text() {
        for (text, plain) in [
            ("A [link](super::Target) and [`Item`].", "A link and `Item`."),
            ("[`Item`](crate::Item)", "`Item`"),
            ("a list [1, 2] and [", "a list [1, 2] and ["),
        ] {
            assert_eq!(without_links(text), plain);
        }
    }
}
