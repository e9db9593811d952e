//! What is known of a value before a run: from the type of its column, or from the JSON Schema of an answer.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::is_same_name;

/// The maximum number of subschemas that are visited for one field: a schema may refer to itself.
const MAX_SUBSCHEMAS: u32 = 100;

/// What is known of a value.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// Nothing is known.
    Any,
    /// A value without fields and elements, with its name in messages.
    Scalar(&'static str),
    /// A list, with the shape of its elements.
    List(Rc<Shape<'a>>),
    /// An object with exactly these fields, whose names may be written in any form of Unicode.
    Object(Rc<[(&'a str, Shape<'a>)]>),
    /// A value that fits a subschema of a JSON Schema.
    Schema {
        /// The whole schema, which references are resolved against.
        root: &'a Value,
        /// The subschema.
        schema: &'a Value,
    },
}

/// What is known of a field of a value.
#[derive(Clone, Debug)]
pub enum Field<'a> {
    /// The field may exist and has this shape.
    Possible(Shape<'a>),
    /// The field cannot exist.
    Impossible {
        /// The name of the value's type in messages.
        value: &'static str,
        /// The fields that the value may have.
        known: Vec<String>,
    },
}

impl<'a> Shape<'a> {
    /// Returns what is known of the field `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Field<'a> {
        match self {
            Self::Any => Field::Possible(Self::Any),
            Self::Scalar(value) => Field::Impossible { value, known: Vec::new() },
            Self::List(_) => Field::Impossible { value: "a list", known: Vec::new() },
            Self::Object(fields) => match fields.iter().find(|(known, _)| is_same_name(known, name)) {
                Some((_, shape)) => Field::Possible(shape.clone()),
                None => Field::Impossible {
                    value: "an object without it",
                    known: fields.iter().map(|(known, _)| (*known).to_string()).collect(),
                },
            },
            Self::Schema { root, schema } => field_in_schema(root, schema, name, &Cell::new(MAX_SUBSCHEMAS)),
        }
    }

    /// Returns the shape of the elements.
    #[must_use]
    pub fn element(&self) -> Shape<'a> {
        match self {
            Self::List(element) => (**element).clone(),
            Self::Schema { root, schema } => {
                let schema = resolve_reference(root, schema);
                let is_list = schema["type"] == "array" && schema.get("prefixItems").is_none();
                match schema.get("items").filter(|_| is_list) {
                    Some(items) => Self::Schema { root, schema: items },
                    None => Self::Any,
                }
            }
            Self::Any | Self::Scalar(_) | Self::Object(_) => Self::Any,
        }
    }
}

/// Returns the subschema `schema` of `root`, or the one that it refers to.
pub(crate) fn resolve_reference<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_SUBSCHEMAS {
        match reference_target(root, schema) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Returns the subschema that `schema` refers to.
fn reference_target<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    root.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
}

/// Returns what `schema` says of the field `name`, together with the subschemas of its `$ref`, `allOf`,
/// `anyOf` and `oneOf`.
///
/// The field is impossible if any of these rules it out; `anyOf` and `oneOf` do so if all of their
/// alternatives do. `left` counts down the subschemas that may still be visited.
fn field_in_schema<'a>(root: &'a Value, schema: &'a Value, name: &str, left: &Cell<u32>) -> Field<'a> {
    let Some(remaining) = left.get().checked_sub(1) else { return Field::Possible(Shape::Any) };
    left.set(remaining);
    let visit = |schema: &'a Value| field_in_schema(root, schema, name, left);
    let list = |key: &str| schema[key].as_array().map_or(&[][..], Vec::as_slice);
    let mut constraints = vec![keyword_field(root, schema, name)];
    constraints.extend(reference_target(root, schema).map(visit));
    constraints.extend(list("allOf").iter().map(visit));
    for key in ["anyOf", "oneOf"] {
        let mut alternatives: Vec<Field<'a>> = list(key).iter().map(visit).collect();
        if !alternatives.is_empty()
            && alternatives.iter().all(|alternative| matches!(alternative, Field::Impossible { .. }))
        {
            constraints.push(alternatives.swap_remove(0));
        }
    }
    if let Some(at) = constraints.iter().position(|constraint| matches!(constraint, Field::Impossible { .. })) {
        return constraints.swap_remove(at);
    }
    let known = constraints.into_iter().find(|constraint| !matches!(constraint, Field::Possible(Shape::Any)));
    known.unwrap_or(Field::Possible(Shape::Any))
}

/// Returns what the keywords `type`, `properties`, `patternProperties` and `additionalProperties` of `schema`
/// say of the field `name`.
fn keyword_field<'a>(root: &'a Value, schema: &'a Value, name: &str) -> Field<'a> {
    let impossible = |value, known| Field::Impossible { value, known };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
        _ => vec!["object"],
    };
    if !types.contains(&"object") {
        return impossible(type_name(types.first().copied()), Vec::new());
    }
    let properties = schema["properties"].as_object();
    if let Some(field) = properties.and_then(|properties| properties.get(name)) {
        return Field::Possible(Shape::Schema { root, schema: field });
    }
    if schema.get("patternProperties").is_some() {
        return Field::Possible(Shape::Any);
    }
    match &schema["additionalProperties"] {
        Value::Bool(false) => {
            let known = properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect();
            impossible("an object whose schema allows no such field", known)
        }
        additional @ Value::Object(_) => Field::Possible(Shape::Schema { root, schema: additional }),
        _ => Field::Possible(Shape::Any),
    }
}

/// Returns the name of a JSON Schema type in messages.
fn type_name(name: Option<&str>) -> &'static str {
    match name {
        Some("string") => "a text",
        Some("integer" | "number") => "a number",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the fields that may exist instead of the last one of `path`; `None` if it may exist itself.
    fn possible_fields(schema: &Value, path: &[&str]) -> Option<Vec<String>> {
        let mut shape = Shape::Schema { root: schema, schema };
        for name in path {
            match shape.field(name) {
                Field::Possible(of_field) => shape = of_field,
                Field::Impossible { known, .. } => return Some(known),
            }
        }
        None
    }

    #[test]
    fn a_field_is_impossible_only_if_the_schema_rules_it_out() {
        let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(possible_fields(&open, &["b", "c"]), None);
        assert_eq!(possible_fields(&open, &["a", "c"]), Some(vec![]));
        let closed =
            json!({"type": "object", "properties": {"a": {}, "b": {"$ref": "#"}}, "additionalProperties": false});
        assert_eq!(possible_fields(&closed, &["b", "b", "a"]), None);
        assert_eq!(possible_fields(&closed, &["b", "c"]), Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(possible_fields(&json!(true), &["a"]), None);
        assert_eq!(possible_fields(&json!({"type": ["object", "null"]}), &["a"]), None);
        assert_eq!(possible_fields(&json!({"$ref": "#/nowhere"}), &["a"]), None);
    }

    #[test]
    fn all_of_requires_every_schema_to_allow_a_field_and_any_of_requires_one() {
        let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
        assert_eq!(possible_fields(&json!({"allOf": [{}, closed]}), &["b"]), Some(vec!["a".to_string()]));
        assert_eq!(possible_fields(&json!({"anyOf": [{}, closed]}), &["b"]), None);
        assert_eq!(possible_fields(&json!({"oneOf": [{"type": "null"}, closed]}), &["b"]), Some(vec![]));
        assert_eq!(possible_fields(&json!({"anyOf": [{"type": "null"}, closed]}), &["a"]), None);
    }

    #[test]
    fn a_schema_with_endless_references_allows_every_field() {
        for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "allOf": [{"$ref": "#"}]})]
        {
            assert_eq!(possible_fields(&schema, &["a", "b"]), None);
        }
    }

    #[test]
    fn the_elements_of_a_list_have_the_shape_of_its_items() {
        let schema = json!({"type": "array", "items": {"type": "object", "additionalProperties": false}});
        let shape = Shape::Schema { root: &schema, schema: &schema };
        assert!(matches!(shape.element().field("a"), Field::Impossible { .. }));
        assert!(matches!(shape.field("a"), Field::Impossible { value: "a list", .. }));
    }
}
