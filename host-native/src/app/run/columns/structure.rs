//! Answers with a form: JSON in a text, checked against a JSON Schema.

use std::cell::Cell;

use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::app::config::pipeline::structure::{compile_schema, cut};
use crate::app::config::pipeline::{JsonMode, OutputForm};
use crate::app::template::shape::resolve;

/// Of how many complaints a model is told at once.
const MAX_COMPLAINTS: usize = 5;

/// The form that an answer must have, ready to be checked.
#[derive(Debug)]
pub struct StructureFill {
    output: OutputForm,
    schema: Option<(Value, Validator)>,
    mode: JsonMode,
    /// How often a wrong answer is asked for again.
    pub retries: u32,
}

impl StructureFill {
    /// Answers that fit `schema`, if there is one.
    pub fn new(output: OutputForm, schema: Option<&Value>, mode: JsonMode, retries: u32) -> Result<Self, String> {
        let schema = schema.map(|schema| Ok::<_, String>((schema.clone(), compile_schema(schema)?))).transpose()?;
        Ok(Self { output, schema, mode, retries })
    }

    /// What an answer must fit, if anything.
    #[must_use]
    pub fn schema(&self) -> Option<&Value> {
        self.schema.as_ref().map(|(schema, _)| schema)
    }

    /// What the request says about the form, for an answer called `name`.
    #[must_use]
    pub fn response_format(&self, name: &str) -> Option<Value> {
        match (self.mode, &self.schema) {
            (JsonMode::Schema, Some((schema, _))) => Some(json!({
                "type": "json_schema",
                "json_schema": { "name": schema_name(name), "schema": schema },
            })),
            (JsonMode::Object, _) => Some(json!({ "type": "json_object" })),
            (JsonMode::Schema | JsonMode::Prompt, _) => None,
        }
    }

    /// What a message says about the form, where the request does not say it all.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        match (self.mode, &self.schema) {
            (JsonMode::Object | JsonMode::Prompt, Some((schema, _))) => {
                Some(format!("Answer with JSON alone, no other text, that fits this JSON Schema:\n{schema}"))
            }
            _ => None,
        }
    }

    /// The value that `answer` is, or what is wrong with it.
    pub fn read(&self, answer: &str) -> Result<Value, String> {
        let value = read(self.output, strip_fences(answer).to_string())?;
        let Some((_, validator)) = &self.schema else { return Ok(value) };
        let mut complaints = Vec::new();
        for error in validator.iter_errors(&value).take(MAX_COMPLAINTS) {
            let path = error.instance_path().to_string();
            let at = if path.is_empty() { String::new() } else { format!(" (at {path})") };
            complaints.push(format!("{}{at}", cut(&error.to_string())));
        }
        if complaints.is_empty() { Ok(value) } else { Err(complaints.join("; ")) }
    }

    /// A value that has the form as far as its types say: what stands for an answer that nobody has given yet.
    #[must_use]
    pub fn placeholder(&self) -> Value {
        match &self.schema {
            Some((schema, _)) => placeholder(schema, schema, 0, &Cell::new(MAX_PARTS)),
            None if self.output == OutputForm::Number => Value::from(0),
            None => Value::Object(Map::new()),
        }
    }
}

/// What `text` is as a value.
pub fn read(output: OutputForm, text: String) -> Result<Value, String> {
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

/// A number of type `T` in a template's text, as JSON writes numbers: no `nan`, no `inf`.
pub fn parse_number<T: DeserializeOwned>(key: &str, text: &str, expected: &str) -> Result<T, String> {
    serde_json::from_str(text.trim()).map_err(|_| format!("`{key}` is {}; expected {expected}", excerpt(text)))
}

/// The text inside a Markdown code fence, if `answer` is nothing but one; models like to add them.
fn strip_fences(answer: &str) -> &str {
    let text = answer.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    // The first line is the name of the language, if anything.
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

/// A name that request formats take: letters, digits, `_` and `-`, at most 64.
fn schema_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().map(safe).take(64).collect()
}

/// Deeper than any answer that templates look into; a schema may refer to itself.
const MAX_DEPTH: u32 = 8;

/// Parts of a schema that a stand-in is made of, at most.
const MAX_PARTS: u32 = 1_000;

/// Elements of a list that stands for one, at most.
const MAX_ITEMS: u64 = 8;

/// A value that fits `part` of the schema `root`, as far as its types say, of so many parts at most that are `left`; rather none that is
/// null.
fn placeholder(root: &Value, part: &Value, depth: u32, left: &Cell<u32>) -> Value {
    let Some(others) = left.get().checked_sub(1).filter(|_| depth < MAX_DEPTH) else { return Value::Null };
    left.set(others);
    let inside = |part: &Value| placeholder(root, part, depth + 1, left);
    let part = resolve(root, part);
    let mut given = [part["enum"].get(0), part.get("const"), part.get("default")].into_iter().flatten();
    if let Some(value) = given.find(|value| !value.is_null()) {
        return value.clone();
    }
    let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| part[key].as_array()).flatten();
    let choice = choices.map(inside).find(|value| !value.is_null());
    let types = part["type"].as_array().map_or(std::slice::from_ref(&part["type"]), Vec::as_slice);
    match types.iter().filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("array") => {
            let count = part["minItems"].as_u64().unwrap_or(1).clamp(1, MAX_ITEMS);
            (0..count).map(|_| inside(&part["items"])).collect()
        }
        Some("integer" | "number") => part.get("minimum").cloned().unwrap_or_else(|| 0.into()),
        Some("boolean") => true.into(),
        Some("string") => Value::from("some words"),
        None if part["type"] == "null" => Value::Null,
        kind => match (part["properties"].as_object(), choice) {
            (Some(properties), choice) => {
                let mut fields = match choice {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                fields.extend(properties.iter().map(|(name, part)| (name.clone(), inside(part))));
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

    fn grade() -> StructureFill {
        let schema = json!({
            "type": "object",
            "properties": {
                "score": { "type": "integer", "minimum": 1, "maximum": 5 },
                "why": { "type": "string" },
            },
            "required": ["score", "why"],
        });
        StructureFill::new(OutputForm::Json, Some(&schema), JsonMode::Schema, 2).unwrap()
    }

    #[test]
    fn an_answer_is_json_with_or_without_a_code_fence() {
        let value = json!({"score": 3, "why": "plain"});
        let text = value.to_string();
        for answer in [text.clone(), format!(" {text}\n"), format!("```json\n{text}\n```"), format!("```\n{text}```")] {
            assert_eq!(grade().read(&answer).as_ref(), Ok(&value), "{answer}");
        }
        assert_eq!(grade().read("```{\"score\": 1, \"why\": \"\"}```"), Ok(json!({"score": 1, "why": ""})));
    }

    #[test]
    fn a_wrong_answer_says_what_is_wrong_and_where() {
        let error = grade().read("{\"score\": 9, \"why\": \"x\"}").unwrap_err();
        assert!(error.contains('9') && error.contains("(at /score)"), "{error}");
        let error = grade().read("{\"score\": 2}").unwrap_err();
        assert!(error.contains("\"why\" is a required property"), "{error}");
        let error = grade().read("I think it is 3.").unwrap_err();
        assert!(error.starts_with("\"I think it is 3.\" is not JSON: "), "{error}");
    }

    #[test]
    fn complaints_stay_short_whatever_the_answer() {
        let long = format!("{{\"score\": \"{}\", \"why\": 1}}", "x".repeat(5_000));
        let error = grade().read(&long).unwrap_err();
        assert!(error.chars().count() < 1_000, "{}", error.chars().count());
        assert!(grade().read(&"é".repeat(5_000)).unwrap_err().len() < 400);
    }

    #[test]
    fn a_number_is_read_as_it_is_written() {
        assert_eq!(read(OutputForm::Number, " 42\n".to_string()), Ok(json!(42)));
        assert_eq!(read(OutputForm::Number, "-1.5e3".to_string()), Ok(json!(-1500.0)));
        assert_eq!(read(OutputForm::Number, "four".to_string()), Err("\"four\" is not a number".to_string()));
    }

    #[test]
    fn an_option_is_a_number_as_json_writes_it() {
        assert_eq!(parse_number::<f64>("t", " 0.5 ", "a number"), Ok(0.5));
        assert_eq!(parse_number::<u32>("n", "7", "a number"), Ok(7));
        for wrong in ["nan", "inf", "-1", "7.5", "", "seven"] {
            let error = parse_number::<u32>("n", wrong, "a whole number").unwrap_err();
            assert_eq!(error, format!("`n` is {wrong:?}; expected a whole number"));
        }
        assert!(parse_number::<f64>("t", "nan", "a number").is_err());
    }

    #[test]
    fn the_model_is_told_by_the_request_or_by_a_message() {
        let schema = json!({ "type": "object" });
        let of = |mode| StructureFill::new(OutputForm::Json, Some(&schema), mode, 0).unwrap();
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
        let of = |schema: Value| placeholder(&schema, &schema, 0, &Cell::new(MAX_PARTS));
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
