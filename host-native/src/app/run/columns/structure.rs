//! Parses answers: as text, number or JSON, checked against a JSON Schema.

use std::cell::Cell;

use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::json_in_text::json_values;
use crate::app::config::json_schema::{compile_schema, cut};
use crate::app::config::pipeline::{JsonMode, OutputForm};
use crate::app::template::shape::resolve_reference;
use crate::app::tokens;

/// The maximum number of schema violations that are listed at once.
const MAX_VIOLATIONS: usize = 5;

/// The required structure of an answer.
#[derive(Debug)]
pub struct AnswerFormat {
    output: OutputForm,
    schema: Option<(Value, Validator)>,
    mode: JsonMode,
    /// The likely number of tokens of the schema, if the request contains it beside the messages.
    pub tokens: u32,
    /// How often the model is asked again after a wrong answer.
    pub retries: u32,
}

impl AnswerFormat {
    /// Creates the structure of answers that fit `schema`, if there is one.
    ///
    /// # Errors
    /// If the schema does not compile.
    pub fn new(output: OutputForm, schema: Option<&Value>, mode: JsonMode, retries: u32) -> Result<Self, String> {
        let schema = schema.map(|schema| Ok::<_, String>((schema.clone(), compile_schema(schema)?))).transpose()?;
        let sent = schema.as_ref().filter(|_| mode == JsonMode::Schema);
        let tokens = sent.map_or(0, |(schema, _)| tokens::likely(&schema.to_string()));
        Ok(Self { output, schema, mode, tokens, retries })
    }

    /// Returns the schema, if there is one.
    #[must_use]
    pub fn schema(&self) -> Option<&Value> {
        self.schema.as_ref().map(|(schema, _)| schema)
    }

    /// Returns the `response_format` of the request, for an answer called `name`.
    #[must_use]
    pub fn response_format(&self, name: &str) -> Option<Value> {
        match (self.mode, &self.schema) {
            (JsonMode::Schema, Some((schema, _))) => Some(json!({
                "type": "json_schema",
                "json_schema": { "name": safe_name(name), "schema": schema },
            })),
            (JsonMode::Object, _) => Some(json!({ "type": "json_object" })),
            (JsonMode::Schema | JsonMode::Prompt, _) => None,
        }
    }

    /// Returns the instruction for the last message, if the request does not contain the whole schema.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        match (self.mode, &self.schema) {
            (JsonMode::Object | JsonMode::Prompt, Some((schema, _))) => {
                Some(format!("Answer with JSON alone, no other text, that fits this JSON Schema:\n{schema}"))
            }
            _ => None,
        }
    }

    /// Parses `answer`. If it is more than JSON, the value is the first object or list in it that is complete
    /// and fits the schema.
    ///
    /// # Errors
    /// A message for the model with the syntax error, or the schema violations of the first value.
    pub fn parse(&self, answer: &str) -> Result<Value, String> {
        let error = match parse_answer(self.output, strip_fences(answer).to_string()) {
            Ok(value) => return self.check(value),
            Err(error) => error,
        };
        if self.output != OutputForm::Json {
            return Err(error);
        }
        let mut first_violation = None;
        for value in json_values(answer) {
            match self.check(value) {
                Ok(value) => return Ok(value),
                Err(violation) => drop(first_violation.get_or_insert(violation)),
            }
        }
        Err(first_violation.unwrap_or(error))
    }

    /// Returns `value` if it fits the schema, else the first violations.
    fn check(&self, value: Value) -> Result<Value, String> {
        let Some((_, validator)) = &self.schema else { return Ok(value) };
        let violations = violations(validator, &value);
        if violations.is_empty() { Ok(value) } else { Err(violations.join("; ")) }
    }

    /// Returns a value with the types of the schema, as a placeholder for an answer.
    #[must_use]
    pub fn placeholder(&self) -> Value {
        match &self.schema {
            Some((schema, _)) => placeholder(schema, schema, 0, &Cell::new(MAX_SUBSCHEMAS)),
            None if self.output == OutputForm::Number => Value::from(0),
            None => Value::Object(Map::new()),
        }
    }
}

/// Returns the first violations of a schema by `value`, each with its place.
pub(super) fn violations(validator: &Validator, value: &Value) -> Vec<String> {
    let violation = |error: jsonschema::ValidationError<'_>| {
        let path = error.instance_path().to_string();
        let at = if path.is_empty() { String::new() } else { format!(" (at {path})") };
        format!("{}{at}", cut(&error.to_string()))
    };
    validator.iter_errors(value).take(MAX_VIOLATIONS).map(violation).collect()
}

/// Parses `text` as a value of the form `output`.
pub fn parse_answer(output: OutputForm, text: String) -> Result<Value, String> {
    match output {
        OutputForm::Text => Ok(Value::String(text)),
        OutputForm::Json => {
            serde_json::from_str(text.trim()).map_err(|error| format!("{} is not JSON: {error}", excerpt(&text)))
        }
        OutputForm::Number => {
            let number = serde_json::from_str::<Value>(text.trim().trim_start_matches('+')).ok();
            number.filter(Value::is_number).ok_or_else(|| format!("{} is not a number", excerpt(&text)))
        }
    }
}

/// Parses a number of type `T` from the text of a template, in JSON notation: no `nan` and no `inf`.
pub fn parse_number<T: DeserializeOwned>(key: &str, text: &str, expected: &str) -> Result<T, String> {
    serde_json::from_str(text.trim()).map_err(|_| format!("`{key}` is {}; expected {expected}", excerpt(text)))
}

/// Returns the content of a Markdown code fence if `answer` is nothing else, as models often add one.
fn strip_fences(answer: &str) -> &str {
    let text = answer.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    // The first line may be the name of a language.
    match inner.split_once('\n') {
        Some((language, body)) if language.trim().chars().all(char::is_alphanumeric) => body.trim(),
        _ => inner.trim(),
    }
}

fn excerpt(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// Returns a name of a schema or tool that providers accept: letters, digits, `_` and `-`, 1 to 64.
pub(super) fn safe_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(safe).take(64).collect();
    if name.is_empty() { "_".to_string() } else { name }
}

/// The maximum depth of a placeholder: a schema may refer to itself.
const MAX_DEPTH: u32 = 8;

/// The maximum number of subschemas that a placeholder is made from.
const MAX_SUBSCHEMAS: u32 = 1_000;

/// The maximum number of elements of a placeholder list.
const MAX_ITEMS: u64 = 8;

/// Returns a value with the types of the subschema `schema` of `root`, null only if nothing else is possible.
/// `left` counts down the subschemas that may still be visited.
fn placeholder(root: &Value, schema: &Value, depth: u32, left: &Cell<u32>) -> Value {
    let Some(remaining) = left.get().checked_sub(1).filter(|_| depth < MAX_DEPTH) else { return Value::Null };
    left.set(remaining);
    let visit = |schema: &Value| placeholder(root, schema, depth + 1, left);
    let schema = resolve_reference(root, schema);
    let mut given = [schema["enum"].get(0), schema.get("const"), schema.get("default")].into_iter().flatten();
    if let Some(value) = given.find(|value| !value.is_null()) {
        return value.clone();
    }
    let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let choice = choices.map(visit).find(|value| !value.is_null());
    let types = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    match types.iter().filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(1).clamp(1, MAX_ITEMS);
            (0..count).map(|_| visit(&schema["items"])).collect()
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 0.into()),
        Some("boolean") => true.into(),
        Some("string") => Value::from("some words"),
        None if schema["type"] == "null" => Value::Null,
        kind => match (schema["properties"].as_object(), choice) {
            (Some(properties), choice) => {
                let mut fields = match choice {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                fields.extend(properties.iter().map(|(name, schema)| (name.clone(), visit(schema))));
                Value::Object(fields)
            }
            (None, Some(choice)) => choice,
            (None, None) if kind.is_some() => Value::Object(Map::new()),
            (None, None) => Value::from("some words"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade() -> AnswerFormat {
        let schema = json!({
            "type": "object",
            "properties": {
                "score": { "type": "integer", "minimum": 1, "maximum": 5 },
                "why": { "type": "string" },
            },
            "required": ["score", "why"],
        });
        AnswerFormat::new(OutputForm::Json, Some(&schema), JsonMode::Schema, 2).unwrap()
    }

    #[test]
    fn an_answer_may_be_in_a_code_fence() {
        let value = json!({"score": 3, "why": "plain"});
        let text = value.to_string();
        for answer in [text.clone(), format!(" {text}\n"), format!("```json\n{text}\n```"), format!("```\n{text}```")] {
            assert_eq!(grade().parse(&answer).as_ref(), Ok(&value), "{answer}");
        }
        assert_eq!(grade().parse("```{\"score\": 1, \"why\": \"\"}```"), Ok(json!({"score": 1, "why": ""})));
    }

    #[test]
    fn the_first_json_in_an_answer_that_fits_is_its_value() {
        let value = json!({"score": 3, "why": "plain {so}"});
        for answer in [
            format!("Here is the grade:\n\n```json\n{value}\n```\n\nShall I grade another?"),
            format!("{value}\nIt is plain."),
            format!("For example {{\"score\": 9}} would be too much. Mine: {value}"),
            format!("See [1]. {value} {{\"score\": 4, \"why\": \"\"}}"),
        ] {
            assert_eq!(grade().parse(&answer).as_ref(), Ok(&value), "{answer}");
        }
        let error = grade().parse("It is {\"score\": 9, \"why\": \"\"} or [5].").unwrap_err();
        assert!(error.contains("(at /score)"), "{error}");
        let error = grade().parse("```json\n{\"score\": 3, \"why\": \"\",}\n```").unwrap_err();
        assert!(error.contains("is not JSON: trailing comma"), "{error}");
        let number = AnswerFormat::new(OutputForm::Number, None, JsonMode::Prompt, 0).unwrap();
        assert!(number.parse("It is [3].").is_err());
    }

    #[test]
    fn the_error_of_a_wrong_answer_names_the_violation_and_its_path() {
        let error = grade().parse("{\"score\": 9, \"why\": \"x\"}").unwrap_err();
        assert!(error.contains('9') && error.contains("(at /score)"), "{error}");
        let error = grade().parse("{\"score\": 2}").unwrap_err();
        assert!(error.contains("\"why\" is a required property"), "{error}");
        let error = grade().parse("I think it is 3.").unwrap_err();
        assert!(error.starts_with("\"I think it is 3.\" is not JSON: "), "{error}");
    }

    #[test]
    fn errors_stay_short_for_long_answers() {
        let long = format!("{{\"score\": \"{}\", \"why\": 1}}", "x".repeat(5_000));
        let error = grade().parse(&long).unwrap_err();
        assert!(error.chars().count() < 1_000, "{}", error.chars().count());
        assert!(grade().parse(&"é".repeat(5_000)).unwrap_err().len() < 400);
    }

    #[test]
    fn a_number_is_parsed_without_loss() {
        assert_eq!(parse_answer(OutputForm::Number, " 42\n".to_string()), Ok(json!(42)));
        assert_eq!(parse_answer(OutputForm::Number, "-1.5e3".to_string()), Ok(json!(-1500.0)));
        assert_eq!(parse_answer(OutputForm::Number, "four".to_string()), Err("\"four\" is not a number".to_string()));
    }

    #[test]
    fn an_option_is_a_number_in_json_notation() {
        assert_eq!(parse_number::<f64>("t", " 0.5 ", "a number"), Ok(0.5));
        assert_eq!(parse_number::<u32>("n", "7", "a number"), Ok(7));
        for wrong in ["nan", "inf", "-1", "7.5", "", "seven"] {
            let error = parse_number::<u32>("n", wrong, "a whole number").unwrap_err();
            assert_eq!(error, format!("`n` is {wrong:?}; expected a whole number"));
        }
        assert!(parse_number::<f64>("t", "nan", "a number").is_err());
    }

    #[test]
    fn the_schema_is_in_the_request_or_in_a_message() {
        let schema = json!({ "type": "object" });
        let of = |mode| AnswerFormat::new(OutputForm::Json, Some(&schema), mode, 0).unwrap();
        let format = of(JsonMode::Schema).response_format("my grade").unwrap();
        assert_eq!(format["json_schema"], json!({"name": "my_grade", "schema": {"type": "object"}}));
        assert_eq!(of(JsonMode::Schema).instruction(), None);
        assert_eq!(of(JsonMode::Object).response_format("g"), Some(json!({"type": "json_object"})));
        assert!(of(JsonMode::Object).instruction().unwrap().contains("{\"type\":\"object\"}"));
        assert_eq!(of(JsonMode::Prompt).response_format("g"), None);
    }

    #[test]
    fn a_placeholder_has_the_types_of_the_schema() {
        assert_eq!(grade().placeholder(), json!({"score": 1, "why": "some words"}));
        let of = |schema: Value| placeholder(&schema, &schema, 0, &Cell::new(MAX_SUBSCHEMAS));
        assert!(
            of(json!({ "type": "object", "properties": { "a": { "$ref": "#" }, "b": { "$ref": "#" } } })).is_object()
        );
        let person = json!({
            "$defs": { "name": { "type": "object", "properties": { "first": { "type": "string" } } } },
            "properties": {
                "name": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/name" }], "default": null },
                "ages": { "type": ["null", "array"], "items": { "type": "number" }, "minItems": 2 },
            },
        });
        assert_eq!(of(person), json!({"name": {"first": "some words"}, "ages": [0, 0]}));
        assert_eq!(of(json!({})), json!("some words"));
    }
}
