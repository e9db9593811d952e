//! Generates JSON that fits a simple JSON Schema. The value depends on the schema and on a seed text only.
//!
//! Supported keywords: `type` (the first one of a list), `properties`, `items`, `minItems`, `maxItems`,
//! `enum`, `const`, `minLength`, `maxLength`, `format` (`date-time`, `date`, `email`, `uuid`), `minimum`,
//! `maximum` and their exclusive forms, `anyOf` (the first alternative), and `$ref` into the same document.
//! Every property is generated, required or not. Other keywords are ignored, so the value may violate them.

use serde_json::{Map, Number, Value};
use tidegate_core::sim::rng::Rng;

use super::answer::{answer, hash_text};

/// The most levels of subschemas and references. It bounds the recursion for schemas that refer to
/// themselves.
const MAX_DEPTH: u32 = 32;

/// The most that a schema may require: one for each value, and one for each character of a constant or of a
/// minimum length.
const MAX_SIZE: u64 = 200_000;

/// Items of an array whose schema permits any number.
const DEFAULT_ITEMS: u64 = 2;

/// Why no value was generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaError {
    /// The schema refers to itself, or is nested too deeply.
    #[error("it has more than {MAX_DEPTH} levels, or refers to itself")]
    TooDeep,
    /// The schema requires too many items or characters.
    #[error("it requires more than {MAX_SIZE} values and characters")]
    TooLarge,
    /// A reference points outside the document, or at nothing.
    #[error("a `$ref` points at nothing in the schema")]
    UnknownReference,
    /// The bounds or alternatives permit no value.
    #[error("it permits no value")]
    NoValue,
}

/// Generates a value for `schema`. Equal arguments give equal values.
pub(super) fn generate(schema: &Value, seed: &str) -> Result<Value, SchemaError> {
    let draws = Rng::new(hash_text(seed));
    Generator { root: schema, seed, draws, size_left: MAX_SIZE }.value(schema, 0)
}

struct Generator<'s> {
    root: &'s Value,
    seed: &'s str,
    draws: Rng,
    size_left: u64,
}

impl Generator<'_> {
    fn value(&mut self, schema: &Value, depth: u32) -> Result<Value, SchemaError> {
        if depth >= MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        self.spend(1)?;
        if let Some(constant) = schema.get("const") {
            return self.constant(constant);
        }
        if let Some(Value::Array(constants)) = schema.get("enum") {
            let drawn = self.draws.below(constants.len() as u64);
            let constant = usize::try_from(drawn).ok().and_then(|drawn| constants.get(drawn));
            return self.constant(constant.ok_or(SchemaError::NoValue)?);
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return self.value(target.ok_or(SchemaError::UnknownReference)?, depth + 1);
        }
        if let Some(Value::Array(alternatives)) = schema.get("anyOf") {
            return self.value(alternatives.first().ok_or(SchemaError::NoValue)?, depth + 1);
        }
        match type_name(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => self.integer(schema),
            "number" => self.number(schema),
            "boolean" => Ok(Value::Bool(self.draws.below(2) == 1)),
            "null" => Ok(Value::Null),
            _ => self.string(schema),
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Result<Value, SchemaError> {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let generated = properties.map(|(name, property)| Ok((name.clone(), self.value(property, depth + 1)?)));
        Ok(Value::Object(generated.collect::<Result<_, _>>()?))
    }

    fn array(&mut self, schema: &Value, depth: u32) -> Result<Value, SchemaError> {
        let count = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        let length = count("minItems").unwrap_or(0).max(DEFAULT_ITEMS).min(count("maxItems").unwrap_or(u64::MAX));
        let any = Value::Object(Map::new());
        let item = schema.get("items").unwrap_or(&any);
        Ok(Value::Array((0..length).map(|_| self.value(item, depth + 1)).collect::<Result<_, _>>()?))
    }

    fn integer(&mut self, schema: &Value) -> Result<Value, SchemaError> {
        let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let above = bound("exclusiveMinimum").map(|bound| (bound.floor() as i64).saturating_add(1));
        let below = bound("exclusiveMaximum").map(|bound| (bound.ceil() as i64).saturating_sub(1));
        let low = bound("minimum").map(|bound| bound.ceil() as i64).into_iter().chain(above).max();
        let high = bound("maximum").map(|bound| bound.floor() as i64).into_iter().chain(below).min();
        let low = low.unwrap_or_else(|| high.map_or(0, |high| high.min(0)));
        let high = high.unwrap_or_else(|| low.saturating_add(100));
        if low > high {
            return Err(SchemaError::NoValue);
        }
        let drawn = self.draws.below(low.abs_diff(high).saturating_add(1));
        Ok(low.saturating_add_unsigned(drawn).into())
    }

    fn number(&mut self, schema: &Value) -> Result<Value, SchemaError> {
        let bound = |keyword: &str, exclusive: &str| schema.get(keyword).or_else(|| schema.get(exclusive))?.as_f64();
        let low = bound("minimum", "exclusiveMinimum");
        let high = bound("maximum", "exclusiveMaximum");
        let low = low.unwrap_or_else(|| high.map_or(0.0, |high| high.min(1.0) - 1.0));
        let high = high.unwrap_or(low + 1.0);
        if low > high {
            return Err(SchemaError::NoValue);
        }
        // Strictly between the bounds, so that exclusive and inclusive bounds need no distinction.
        let share = (1.0 + self.draws.below(999) as f64) / 1_000.0;
        Ok(Number::from_f64(low + (high - low) * share).map_or_else(|| 0.into(), Value::Number))
    }

    fn string(&mut self, schema: &Value) -> Result<Value, SchemaError> {
        let drawn = self.draws.next_u64();
        let formatted = match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => Some("2026-05-04T06:30:00Z".to_string()),
            Some("date") => Some("2026-05-04".to_string()),
            Some("email") => Some("harbour@example.com".to_string()),
            Some("uuid") => Some(format!("00000000-0000-4000-8000-{:012x}", drawn & 0xffff_ffff_ffff)),
            _ => None,
        };
        if let Some(text) = formatted {
            return Ok(Value::String(text));
        }
        let length = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        let (min_length, max_length) = (length("minLength").unwrap_or(0), length("maxLength").unwrap_or(u64::MAX));
        self.spend(min_length)?;
        // An answer repeats the last line of its prompt: the texts of a value share the topic of the seed.
        let topic = self.seed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let sentence = answer(&format!("{}\n{drawn:x}\n{topic}", self.seed), None);
        let mut text = sentence.clone();
        while (text.chars().count() as u64) < min_length {
            text.push(' ');
            text.push_str(&sentence);
        }
        Ok(Value::String(text.chars().take(usize::try_from(max_length).unwrap_or(usize::MAX)).collect()))
    }

    fn constant(&mut self, value: &Value) -> Result<Value, SchemaError> {
        self.spend(value.to_string().len() as u64)?;
        Ok(value.clone())
    }

    /// Reduces the permitted size of what is still to be generated.
    fn spend(&mut self, size: u64) -> Result<(), SchemaError> {
        self.size_left = self.size_left.checked_sub(size).ok_or(SchemaError::TooLarge)?;
        Ok(())
    }
}

/// Returns the `type` of a schema. The default is `object` with `properties`, and `string` otherwise.
fn type_name(schema: &Value) -> &str {
    let named = match schema.get("type") {
        Some(Value::Array(names)) => names.first(),
        other => other,
    };
    let default = if schema.get("properties").is_some() { "object" } else { "string" };
    named.and_then(Value::as_str).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn generate_ok(schema: &Value) -> Value {
        generate(schema, "a buoy adrift").unwrap_or_else(|error| panic!("{schema}: {error}"))
    }

    #[test]
    fn every_property_is_generated_within_its_bounds() {
        let value = generate_ok(&json!({
            "$defs": { "place": { "properties": { "x": { "type": "integer", "minimum": 7 } } } },
            "type": "object",
            "properties": {
                "title": { "type": "string", "minLength": 80, "maxLength": 90 },
                "severity": { "type": "string", "enum": ["low", "high"] },
                "berths": { "type": "array", "items": { "type": "integer", "minimum": 3, "maximum": 5 }, "minItems": 4 },
                "single": { "type": "array", "maxItems": 1 },
                "depth": { "type": "number", "exclusiveMinimum": 2, "maximum": 2.5 },
                "count": { "type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 4 },
                "open": { "type": "boolean" },
                "nothing": { "type": ["null", "string"] },
                "kind": { "const": "buoy" },
                "when": { "type": "string", "format": "date" },
                "at": { "$ref": "#/$defs/place" },
                "maybe": { "anyOf": [{ "$ref": "#/$defs/place" }, { "type": "null" }] },
            },
        }));
        let title_length = value["title"].as_str().unwrap().chars().count();
        assert!((80..=90).contains(&title_length), "{title_length}");
        assert!(["low", "high"].contains(&value["severity"].as_str().unwrap()));
        let berths = value["berths"].as_array().unwrap();
        assert!(berths.len() == 4 && berths.iter().all(|berth| (3..=5).contains(&berth.as_i64().unwrap())), "{value}");
        assert_eq!(value["single"].as_array().unwrap().len(), 1);
        let depth = value["depth"].as_f64().unwrap();
        assert!(depth > 2.0 && depth <= 2.5, "{depth}");
        assert_eq!(value["count"], 3);
        assert!(value["open"].is_boolean() && value["nothing"].is_null() && value["kind"] == "buoy");
        assert_eq!(value["when"], "2026-05-04");
        assert!(value["at"]["x"].as_i64().unwrap() >= 7 && value["maybe"]["x"].is_i64());
    }

    #[test]
    fn equal_seeds_give_equal_values_and_different_seeds_mostly_different_ones() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } });
        let with_seed = |seed: &str| generate(&schema, seed).unwrap().to_string();
        let all: std::collections::BTreeSet<String> = (0..50).map(|n| with_seed(&format!("berth {n}"))).collect();
        assert_eq!(with_seed("berth 7"), with_seed("berth 7"));
        assert!(all.len() > 40, "{}", all.len());
    }

    #[test]
    fn an_unsatisfiable_recursive_or_huge_schema_is_rejected() {
        let mut nested = json!({ "type": "integer" });
        for _ in 0..8 {
            nested = json!({ "type": "array", "items": nested, "minItems": 1_000 });
        }
        for (schema, error) in [
            (json!({ "enum": [] }), SchemaError::NoValue),
            (json!({ "anyOf": [] }), SchemaError::NoValue),
            (json!({ "type": "integer", "minimum": 5, "maximum": 4 }), SchemaError::NoValue),
            (json!({ "$ref": "#/nowhere" }), SchemaError::UnknownReference),
            (json!({ "$ref": "https://example.com/s.json" }), SchemaError::UnknownReference),
            (json!({ "properties": { "next": { "$ref": "#" } } }), SchemaError::TooDeep),
            (
                json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 1_000_000_000 }),
                SchemaError::TooLarge,
            ),
            (json!({ "type": "string", "minLength": 1_000_000_000 }), SchemaError::TooLarge),
            (nested, SchemaError::TooLarge),
        ] {
            assert_eq!(generate(&schema, "x"), Err(error), "{schema}");
        }
    }

    #[test]
    fn extreme_bounds_do_not_overflow() {
        assert!(generate_ok(&json!({ "type": "integer", "minimum": -1e300, "maximum": 1e300 })).is_i64());
        assert!(generate_ok(&json!({ "type": "number", "minimum": -1e308, "maximum": 1e308 })).is_number());
    }
}
