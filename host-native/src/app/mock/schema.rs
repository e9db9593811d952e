//! A JSON value that is valid for a JSON schema: a function of the schema and of a seed text alone.
//!
//! Understood are `type` (also a list), `properties`, `required`, `items`, `prefixItems`, `minItems`, `enum`, `const`,
//! `minLength`, `maxLength`, `format` (`date-time`, `date`, `time`, `email`, `uri`, `uuid`), `minimum`, `maximum`, their
//! exclusive forms, `multipleOf`, `anyOf` and `oneOf` (the first that ends), `allOf`, and `$ref` into the same schema. Other
//! keywords, `pattern` among them, are not looked at.

use serde_json::{Map, Number, Value};
use tidegate_core::sim::rng::Rng;

use super::answer::{answer, hash_of};

/// The deepest value.
const MOST_DEPTH: u32 = 48;

/// From this depth on only what is required is made, so that a schema that refers to itself comes to an end.
const SPARSE_DEPTH: u32 = 6;

/// The most values in one answer.
const MOST_VALUES: u32 = 20_000;

/// The most characters in it, those of constants included.
const MOST_CHARS: u64 = 1_000_000;

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaError {
    /// It refers to itself without end.
    #[error("it has no value of fewer than {MOST_DEPTH} levels")]
    TooDeep,
    /// It asks for very many items or characters.
    #[error("it asks for more than {MOST_VALUES} values or {MOST_CHARS} characters")]
    TooLarge,
    /// A reference leads nowhere.
    #[error("a `$ref` leads nowhere")]
    UnknownReference,
    /// It forbids everything.
    #[error("nothing is allowed by it")]
    Nothing,
}

/// A value for `schema`.
pub(super) fn instance(schema: &Value, seed: &str) -> Result<Value, SchemaError> {
    let mut maker = Maker { root: schema, seed, draws: Rng::new(hash_of(seed)), left: MOST_VALUES, chars: MOST_CHARS };
    maker.value(schema, 0)
}

struct Maker<'s> {
    root: &'s Value,
    seed: &'s str,
    draws: Rng,
    /// Values that may yet be made.
    left: u32,
    /// Characters that may yet be made.
    chars: u64,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Value, depth: u32) -> Result<Value, SchemaError> {
        if depth >= MOST_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        self.left = self.left.checked_sub(1).ok_or(SchemaError::TooLarge)?;
        let Value::Object(schema) = schema else {
            return if *schema == Value::Bool(false) { Err(SchemaError::Nothing) } else { self.text(&Map::new()) };
        };
        if let Some(value) = schema.get("const") {
            return self.copy(value);
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            let drawn = self.draws.below(values.len() as u64);
            let value = usize::try_from(drawn).ok().and_then(|place| values.get(place));
            return self.copy(value.ok_or(SchemaError::Nothing)?);
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            return self.value(resolve(self.root, reference)?, depth + 1);
        }
        if let Some(Value::Array(all)) = schema.get("allOf") {
            return self.value(&merged(self.root, schema, all)?, depth + 1);
        }
        for several in ["anyOf", "oneOf"] {
            if let Some(Value::Array(schemas)) = schema.get(several) {
                return self.first(schemas, depth);
            }
        }
        match type_of(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => Ok(self.integer(schema)?.into()),
            "number" => self.number(schema),
            "boolean" => Ok(Value::Bool(self.draws.below(2) == 1)),
            "null" => Ok(Value::Null),
            _ => self.text(schema),
        }
    }

    /// The first that comes to an end; in the depth, null if that is among them.
    fn first(&mut self, schemas: &[Value], depth: u32) -> Result<Value, SchemaError> {
        let is_null = |schema: &&Value| schema.get("type").and_then(Value::as_str) == Some("null");
        if depth >= SPARSE_DEPTH && schemas.iter().any(|schema| is_null(&schema)) {
            return Ok(Value::Null);
        }
        let mut last = Err(SchemaError::Nothing);
        for schema in schemas {
            last = self.value(schema, depth + 1);
            if !matches!(last, Err(SchemaError::TooDeep | SchemaError::Nothing)) {
                break;
            }
        }
        last
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: u32) -> Result<Value, SchemaError> {
        let mut made = Map::new();
        let required = |name: &str| match schema.get("required") {
            Some(Value::Array(names)) => names.iter().any(|required| required == name),
            _ => false,
        };
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, of) in properties {
                if depth < SPARSE_DEPTH || required(name) {
                    made.insert(name.clone(), self.value(of, depth + 1)?);
                }
            }
        }
        let free = Value::Bool(true);
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !made.contains_key(name) {
                let of = schema.get("additionalProperties").unwrap_or(&free);
                made.insert(name.to_string(), self.value(of, depth + 1)?);
            }
        }
        Ok(Value::Object(made))
    }

    fn array(&mut self, schema: &Map<String, Value>, depth: u32) -> Result<Value, SchemaError> {
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let fixed = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let least = count("minItems").unwrap_or(0).max(fixed.len() as u64);
        if least > u64::from(MOST_VALUES) {
            return Err(SchemaError::TooLarge);
        }
        // Two items show that it is a list; in the depth, none that need not be.
        let usual = if fixed.is_empty() && depth < SPARSE_DEPTH { least.max(2) } else { least };
        let free = Value::Bool(true);
        let mut items = Vec::new();
        for nth in 0..usual.min(count("maxItems").unwrap_or(u64::MAX)) {
            let of = usize::try_from(nth).ok().and_then(|nth| fixed.get(nth));
            let item = of.unwrap_or_else(|| schema.get("items").unwrap_or(&free));
            items.push(self.value(item, depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn integer(&mut self, schema: &Map<String, Value>) -> Result<i64, SchemaError> {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let above = bound("exclusiveMinimum").map(|bound| bound.floor() as i64).map(|bound| bound.saturating_add(1));
        let below = bound("exclusiveMaximum").map(|bound| bound.ceil() as i64).map(|bound| bound.saturating_sub(1));
        let low = bound("minimum").map(|bound| bound.ceil() as i64).into_iter().chain(above).max();
        let high = bound("maximum").map(|bound| bound.floor() as i64).into_iter().chain(below).min();
        let low = low.unwrap_or_else(|| high.map_or(0, |high| high.min(0)));
        let high = high.unwrap_or_else(|| low.saturating_add(100));
        let step = bound("multipleOf").map_or(1, |step| (step as i64).max(1));
        let first = match low.rem_euclid(step) {
            0 => low,
            over => low.saturating_add(step - over),
        };
        if first > high {
            return Err(SchemaError::Nothing);
        }
        let steps = first.abs_diff(high) / step.unsigned_abs();
        let drawn = i64::try_from(self.draws.below(steps.saturating_add(1))).unwrap_or(i64::MAX);
        Ok(first.saturating_add(drawn.saturating_mul(step)))
    }

    fn number(&mut self, schema: &Map<String, Value>) -> Result<Value, SchemaError> {
        if schema.contains_key("multipleOf") {
            return Ok(self.integer(schema)?.into());
        }
        let bound = |key: &str, exclusive: &str| schema.get(key).or_else(|| schema.get(exclusive))?.as_f64();
        let low = bound("minimum", "exclusiveMinimum");
        let high = bound("maximum", "exclusiveMaximum");
        let low = low.unwrap_or_else(|| high.map_or(0.0, |high| high.min(1.0) - 1.0));
        let high = high.unwrap_or(low + 1.0);
        if low > high {
            return Err(SchemaError::Nothing);
        }
        // Well inside, so that it does not matter whether the bounds belong to it.
        let share = (1.0 + self.draws.below(999) as f64) / 1_000.0;
        let drawn = low + (high - low) * share;
        Ok(Number::from_f64(drawn).map_or_else(|| 0.into(), Value::Number))
    }

    fn text(&mut self, schema: &Map<String, Value>) -> Result<Value, SchemaError> {
        let drawn = self.draws.next_u64();
        let formatted = match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => Some("2026-05-04T06:30:00Z".to_string()),
            Some("date") => Some("2026-05-04".to_string()),
            Some("time") => Some("06:30:00Z".to_string()),
            Some("email") => Some("harbour@example.com".to_string()),
            Some("uri" | "url") => Some("https://example.com/harbour".to_string()),
            Some("uuid") => Some(format!("00000000-0000-4000-8000-{:012x}", drawn & 0xffff_ffff_ffff)),
            _ => None,
        };
        if let Some(text) = formatted {
            return Ok(Value::String(text));
        }
        let length = |key: &str| schema.get(key).and_then(Value::as_u64);
        let (least, most) = (length("minLength").unwrap_or(0), length("maxLength").unwrap_or(MOST_CHARS));
        self.spend(least)?;
        let mut text = answer(&format!("{}\n{drawn:x}\n{}", self.seed, last_line(self.seed)), None);
        while (text.chars().count() as u64) < least {
            let again = text.clone();
            text.push(' ');
            text.push_str(&again);
        }
        Ok(Value::String(text.chars().take(usize::try_from(most).unwrap_or(usize::MAX)).collect()))
    }

    /// A value that the schema itself holds.
    fn copy(&mut self, value: &Value) -> Result<Value, SchemaError> {
        self.spend(value.to_string().len() as u64)?;
        Ok(value.clone())
    }

    fn spend(&mut self, chars: u64) -> Result<(), SchemaError> {
        self.chars = self.chars.checked_sub(chars).ok_or(SchemaError::TooLarge)?;
        Ok(())
    }
}

/// The last line with something on it, cut: what an answer repeats of a prompt.
fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// The type that is made: the one that is named, or the first of several, or the one the other keywords suggest.
fn type_of(schema: &Map<String, Value>) -> &str {
    let named = match schema.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        _ => None,
    };
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    named.unwrap_or_else(|| match () {
        () if has(&["properties", "required", "additionalProperties"]) => "object",
        () if has(&["items", "prefixItems", "minItems"]) => "array",
        () if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) => "number",
        () => "string",
    })
}

/// What `#/...` stands for.
fn resolve<'s>(root: &'s Value, reference: &str) -> Result<&'s Value, SchemaError> {
    let path = reference.strip_prefix('#').ok_or(SchemaError::UnknownReference)?;
    root.pointer(path).ok_or(SchemaError::UnknownReference)
}

/// `schema` and everything in its `allOf` as one: later keywords win, properties and required names add up.
fn merged(root: &Value, schema: &Map<String, Value>, all: &[Value]) -> Result<Value, SchemaError> {
    let mut sum = schema.clone();
    sum.remove("allOf");
    for part in all {
        let part = match part.get("$ref").and_then(Value::as_str) {
            Some(reference) => resolve(root, reference)?,
            None => part,
        };
        for (key, value) in part.as_object().into_iter().flatten() {
            match (sum.get_mut(key), value) {
                (Some(Value::Object(known)), Value::Object(more)) => {
                    known.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
                (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                    known.extend(more.iter().cloned());
                }
                _ => {
                    sum.insert(key.clone(), value.clone());
                }
            }
        }
    }
    Ok(Value::Object(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn make(schema: &Value) -> Value {
        instance(schema, "a buoy adrift").unwrap_or_else(|error| panic!("{schema}: {error}"))
    }

    #[test]
    fn every_property_is_made_and_has_its_type() {
        let made = make(&json!({
            "type": "object",
            "properties": {
                "title": { "type": "string", "minLength": 80, "maxLength": 90 },
                "severity": { "type": "string", "enum": ["low", "high"] },
                "berths": { "type": "array", "items": { "type": "integer", "minimum": 3, "maximum": 5 }, "minItems": 4 },
                "depth": { "type": "number", "exclusiveMinimum": 2, "maximum": 2.5 },
                "open": { "type": "boolean" },
                "nothing": { "type": "null" },
                "kind": { "const": "buoy" },
                "when": { "type": "string", "format": "date" },
            },
            "required": ["title", "extra"],
            "additionalProperties": { "type": "integer", "multipleOf": 7, "minimum": 1 },
        }));
        let title = made["title"].as_str().unwrap().chars().count();
        assert!((80..=90).contains(&title), "{title}");
        assert!(["low", "high"].contains(&made["severity"].as_str().unwrap()));
        let berths = made["berths"].as_array().unwrap();
        assert!(berths.len() == 4 && berths.iter().all(|berth| (3..=5).contains(&berth.as_i64().unwrap())), "{made}");
        let depth = made["depth"].as_f64().unwrap();
        assert!(depth > 2.0 && depth <= 2.5, "{depth}");
        assert!(made["open"].is_boolean() && made["nothing"].is_null() && made["kind"] == "buoy");
        assert_eq!(made["when"], "2026-05-04");
        assert_eq!(made["extra"].as_i64().unwrap() % 7, 0);
    }

    #[test]
    fn equal_prompts_give_equal_values_and_others_mostly_do_not() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } });
        let of = |seed: &str| instance(&schema, seed).unwrap().to_string();
        let all: std::collections::BTreeSet<String> = (0..50).map(|n| of(&format!("berth {n}"))).collect();
        assert_eq!(of("berth 7"), of("berth 7"));
        assert!(all.len() > 40, "{}", all.len());
    }

    #[test]
    fn references_choices_and_sums_are_followed() {
        let made = make(&json!({
            "$defs": { "place": { "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] } },
            "type": "object",
            "properties": {
                "at": { "$ref": "#/$defs/place" },
                "maybe": { "anyOf": [{ "$ref": "#/$defs/place" }, { "type": "null" }] },
                "both": { "allOf": [{ "$ref": "#/$defs/place" }, { "properties": { "y": { "type": "boolean" } } }] },
                "either": { "oneOf": [false, { "type": "string" }] },
                "pair": { "type": "array", "prefixItems": [{ "type": "integer" }, { "type": "string" }] },
            },
        }));
        assert!(made["at"]["x"].is_i64() && made["maybe"]["x"].is_i64());
        assert!(made["both"]["x"].is_i64() && made["both"]["y"].is_boolean());
        assert!(made["either"].is_string());
        assert!(made["pair"][0].is_i64() && made["pair"][1].is_string());
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end_if_it_can() {
        let tree = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "left": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] },
                "more": { "type": "array", "items": { "$ref": "#" } },
            },
            "required": ["name", "left", "more"],
        });
        assert!(make(&tree)["name"].is_string());
        let endless = json!({ "type": "object", "properties": { "next": { "$ref": "#" } }, "required": ["next"] });
        assert_eq!(instance(&endless, "x"), Err(SchemaError::TooDeep));
    }

    #[test]
    fn what_cannot_be_met_is_refused_and_nothing_is_too_large_to_be_asked() {
        for (schema, error) in [
            (json!(false), SchemaError::Nothing),
            (json!({ "enum": [] }), SchemaError::Nothing),
            (json!({ "type": "integer", "minimum": 5, "maximum": 4 }), SchemaError::Nothing),
            (json!({ "$ref": "#/nowhere" }), SchemaError::UnknownReference),
            (json!({ "$ref": "https://example.com/s.json" }), SchemaError::UnknownReference),
            (json!({ "type": "array", "minItems": 1_000_000_000 }), SchemaError::TooLarge),
            (json!({ "type": "string", "minLength": 1_000_000_000 }), SchemaError::TooLarge),
        ] {
            assert_eq!(instance(&schema, "x"), Err(error), "{schema}");
        }
        let mut bomb = json!({ "type": "integer" });
        for _ in 0..8 {
            bomb = json!({ "type": "array", "items": bomb, "minItems": 1_000 });
        }
        assert_eq!(instance(&bomb, "x"), Err(SchemaError::TooLarge));
        let extremes = json!({ "type": "integer", "minimum": -1e300, "maximum": 1e300, "multipleOf": 1e300 });
        let _ = instance(&extremes, "x");
        assert!(make(&json!({ "type": "number", "minimum": -1e308, "maximum": 1e308 })).is_number());
    }
}
