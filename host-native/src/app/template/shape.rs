//! What is known of a value before there is one: from the type of a column, or from the JSON Schema of an answer.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

/// Parts of a schema that are looked at for one field, at most: a schema may refer to itself.
const MAX_PARTS: u32 = 100;

/// What is known of a value.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// Nothing.
    Any,
    /// It has no fields and no elements. What it is, in words.
    Plain(&'static str),
    /// It is a list of such elements.
    List(Rc<Shape<'a>>),
    /// It has these fields and no other.
    Record(Rc<[(&'a str, Shape<'a>)]>),
    /// It fits a part of a JSON Schema.
    Schema {
        /// The whole schema, for references.
        root: &'a Value,
        /// The part.
        part: &'a Value,
    },
}

/// What is known of a field of a value.
#[derive(Clone, Debug)]
pub enum Field<'a> {
    /// It may be there, in this shape.
    Possible(Shape<'a>),
    /// It is never there.
    Impossible {
        /// What the value is, in words.
        value: &'static str,
        /// The fields it may have.
        known: Vec<String>,
    },
}

impl<'a> Shape<'a> {
    /// What is known of the field `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Field<'a> {
        match self {
            Self::Any => Field::Possible(Self::Any),
            Self::Plain(value) => Field::Impossible { value, known: Vec::new() },
            Self::List(_) => Field::Impossible { value: "a list", known: Vec::new() },
            Self::Record(fields) => match fields.iter().find(|(known, _)| *known == name) {
                Some((_, shape)) => Field::Possible(shape.clone()),
                None => Field::Impossible {
                    value: "an object without it",
                    known: fields.iter().map(|(known, _)| (*known).to_string()).collect(),
                },
            },
            Self::Schema { root, part } => field_of_schema(root, part, name, &Cell::new(MAX_PARTS)),
        }
    }

    /// What is known of the elements.
    #[must_use]
    pub fn element(&self) -> Shape<'a> {
        match self {
            Self::List(element) => (**element).clone(),
            Self::Schema { root, part } => {
                let part = resolve(root, part);
                let is_list = part["type"] == "array" && part.get("prefixItems").is_none();
                match part.get("items").filter(|_| is_list) {
                    Some(items) => Self::Schema { root, part: items },
                    None => Self::Any,
                }
            }
            Self::Any | Self::Plain(_) | Self::Record(_) => Self::Any,
        }
    }
}

/// `part` of the schema `root`, or the part that it is a mere reference to.
pub(crate) fn resolve<'a>(root: &'a Value, part: &'a Value) -> &'a Value {
    let mut part = part;
    for _ in 0..MAX_PARTS {
        match referred(root, part) {
            Some(target) => part = target,
            None => break,
        }
    }
    part
}

/// The part of the same schema that `part` refers to.
fn referred<'a>(root: &'a Value, part: &Value) -> Option<&'a Value> {
    root.pointer(part["$ref"].as_str()?.strip_prefix('#')?)
}

/// What all that `part` demands leaves of the field `name`, as far as so many parts say that are `left`.
fn field_of_schema<'a>(root: &'a Value, part: &'a Value, name: &str, left: &Cell<u32>) -> Field<'a> {
    let Some(others) = left.get().checked_sub(1) else { return Field::Possible(Shape::Any) };
    left.set(others);
    let inside = |part: &'a Value| field_of_schema(root, part, name, left);
    let list = |key: &str| part[key].as_array().map_or(&[][..], Vec::as_slice);
    let mut demands = vec![own_field(root, part, name)];
    demands.extend(referred(root, part).map(inside));
    demands.extend(list("allOf").iter().map(inside));
    for key in ["anyOf", "oneOf"] {
        let mut choices: Vec<Field<'a>> = list(key).iter().map(inside).collect();
        if !choices.is_empty() && choices.iter().all(|choice| matches!(choice, Field::Impossible { .. })) {
            demands.push(choices.swap_remove(0));
        }
    }
    if let Some(at) = demands.iter().position(|demand| matches!(demand, Field::Impossible { .. })) {
        return demands.swap_remove(at);
    }
    let known = demands.into_iter().find(|demand| !matches!(demand, Field::Possible(Shape::Any)));
    known.unwrap_or(Field::Possible(Shape::Any))
}

/// What the keywords of `part` itself say about the field `name`.
fn own_field<'a>(root: &'a Value, part: &'a Value, name: &str) -> Field<'a> {
    let never = |value, known| Field::Impossible { value, known };
    let types: Vec<&str> = match &part["type"] {
        Value::String(one) => vec![one],
        Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
        _ => vec!["object"],
    };
    if !types.contains(&"object") {
        return never(in_words(types.first().copied()), Vec::new());
    }
    let properties = part["properties"].as_object();
    if let Some(field) = properties.and_then(|properties| properties.get(name)) {
        return Field::Possible(Shape::Schema { root, part: field });
    }
    if part.get("patternProperties").is_some() {
        return Field::Possible(Shape::Any);
    }
    match &part["additionalProperties"] {
        Value::Bool(false) => {
            let known = properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect();
            never("an object whose schema allows no such field", known)
        }
        others @ Value::Object(_) => Field::Possible(Shape::Schema { root, part: others }),
        _ => Field::Possible(Shape::Any),
    }
}

/// A type of JSON Schema in words.
fn in_words(name: Option<&str>) -> &'static str {
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

    /// The fields that `field` says may be there instead; `None` if it may be there itself.
    fn instead(schema: &Value, path: &[&str]) -> Option<Vec<String>> {
        let mut shape = Shape::Schema { root: schema, part: schema };
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
        assert_eq!(instead(&open, &["b", "c"]), None);
        assert_eq!(instead(&open, &["a", "c"]), Some(vec![]));
        let closed =
            json!({"type": "object", "properties": {"a": {}, "b": {"$ref": "#"}}, "additionalProperties": false});
        assert_eq!(instead(&closed, &["b", "b", "a"]), None);
        assert_eq!(instead(&closed, &["b", "c"]), Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(instead(&json!(true), &["a"]), None);
        assert_eq!(instead(&json!({"type": ["object", "null"]}), &["a"]), None);
        assert_eq!(instead(&json!({"$ref": "#/nowhere"}), &["a"]), None);
    }

    #[test]
    fn of_several_schemas_all_or_one_have_to_allow_a_field() {
        let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
        assert_eq!(instead(&json!({"allOf": [{}, closed]}), &["b"]), Some(vec!["a".to_string()]));
        assert_eq!(instead(&json!({"anyOf": [{}, closed]}), &["b"]), None);
        assert_eq!(instead(&json!({"oneOf": [{"type": "null"}, closed]}), &["b"]), Some(vec![]));
        assert_eq!(instead(&json!({"anyOf": [{"type": "null"}, closed]}), &["a"]), None);
    }

    #[test]
    fn a_schema_that_refers_to_itself_for_ever_says_nothing() {
        for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "allOf": [{"$ref": "#"}]})]
        {
            assert_eq!(instead(&schema, &["a", "b"]), None);
        }
    }

    #[test]
    fn elements_of_a_list_are_as_its_items() {
        let schema = json!({"type": "array", "items": {"type": "object", "additionalProperties": false}});
        let shape = Shape::Schema { root: &schema, part: &schema };
        assert!(matches!(shape.element().field("a"), Field::Impossible { .. }));
        assert!(matches!(shape.field("a"), Field::Impossible { value: "a list", .. }));
    }
}
