//! Columns of kind `validation`: whether a text is valid, by a JSON Schema or by a command of the user.
//!
//! The value is an object, with the errors of an invalid text:
//!
//! ```json
//! {"valid": false, "errors": ["9 is greater than the maximum of 5 (at /score)"]}
//! ```

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};
use tidegate_core::budget::Usage;

use super::error::FillError;
use super::structure::violations;
use super::{FillContext, ModelCalls, ValueTemplate};
use crate::app::config::json_schema::cut;
use crate::app::provider::Client;

/// The maximum number of lines of a command that become errors.
const MAX_ERRORS: usize = 20;

/// A compiled validation column.
#[derive(Debug)]
pub struct ValidationFill {
    /// What is checked.
    pub input: ValueTemplate,
    /// How it is checked.
    pub check: Check,
}

/// How a value is checked.
#[derive(Debug)]
pub enum Check {
    /// It must be JSON, and match the schema.
    Json(Option<Validator>),
    /// By a command that reads it.
    Command {
        /// The index of the model in the pipeline file.
        model: usize,
        /// The exit codes that say that the text is invalid.
        invalid_exit_codes: Vec<u8>,
    },
}

/// The JSON Schema of the values.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": { "valid": { "type": "boolean" }, "errors": { "type": "array", "items": { "type": "string" } } },
        "required": ["valid", "errors"],
        "additionalProperties": false,
    })
});

/// Returns the value for a text with these errors.
fn result(errors: &[String]) -> Value {
    json!({ "valid": errors.is_empty(), "errors": errors })
}

impl ValidationFill {
    /// Returns the value if no command is needed; `None` otherwise.
    pub fn check_here(&self, context: FillContext<'_>) -> Result<Option<Value>, FillError> {
        let input = context.evaluate(&self.input)?;
        let Check::Json(validator) = &self.check else { return Ok(None) };
        let value = match input {
            Value::String(text) => match serde_json::from_str(text.trim()) {
                Ok(value) => value,
                Err(error) => return Ok(Some(result(&[format!("it is not JSON: {error}")]))),
            },
            value => value,
        };
        let errors = validator.as_ref().map_or_else(Vec::new, |validator| violations(validator, &value));
        Ok(Some(result(&errors)))
    }

    /// Returns a value of a valid text, as a placeholder.
    #[must_use]
    pub fn placeholder() -> Value {
        result(&[])
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Value, FillError> {
        let Check::Command { invalid_exit_codes, .. } = &self.check else {
            return Ok(self.check_here(context)?.unwrap_or_default());
        };
        let Some(Client::Command(command)) = calls.client() else { return Err(FillError::no_client(context.column)) };
        let text = match context.evaluate(&self.input)? {
            Value::String(text) => text,
            value => value.to_string(),
        };
        let check = || command.check(text.as_bytes(), invalid_exit_codes);
        let shown = |written: &Option<String>| match written {
            Some(written) => format!("invalid: {}", errors_in(written).join("\n")),
            None => "valid".to_string(),
        };
        let written = calls.call_with(context.column, Usage::default(), &text, shown, check).await?;
        Ok(result(&written.map_or_else(Vec::new, |written| errors_in(&written))))
    }
}

/// Returns the lines that a command has written about an invalid text, at least one.
fn errors_in(written: &str) -> Vec<String> {
    let lines = written.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let errors: Vec<String> = lines.take(MAX_ERRORS).map(cut).collect();
    if errors.is_empty() { vec!["the command gives no reason".to_string()] } else { errors }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::template::{Serde, TemplateValue, Templates};

    /// Returns the result for `answer` by the template `input`.
    fn check(input: &str, schema: Option<&Value>, answer: &Value) -> Value {
        let mut templates = Templates::new();
        let input = match templates.braced_expression(input) {
            Ok(expression) => ValueTemplate::Value(expression),
            Err(_) => ValueTemplate::Text(templates.add("i".to_string(), input).unwrap()),
        };
        let validator = schema.map(|schema| jsonschema::validator_for(schema).unwrap());
        let values = json!({ "answer": answer });
        let values = TemplateValue::from(Serde(&values));
        let context =
            FillContext { column: "c", templates: &templates, values: &values, row: 0, is_whole_group: false };
        ValidationFill { input, check: Check::Json(validator) }.check_here(context).unwrap().unwrap()
    }

    #[test]
    fn a_text_is_parsed_and_any_other_value_is_checked_as_it_is() {
        let schema =
            json!({ "type": "object", "properties": { "n": { "maximum": 5 }, "s": { "type": ["string", "null"] } } });
        let valid = json!({ "valid": true, "errors": [] });
        for answer in [json!({ "n": 5, "s": null }), json!({ "s": "it's \"so\"" }), json!(" {\"n\": 5}\n")] {
            assert_eq!(check("{{ answer }}", Some(&schema), &answer), valid, "{answer}");
        }
        assert_eq!(check("{\"n\": {{ answer }}}", Some(&schema), &json!(5)), valid);
        let invalid = check("{{ answer }}", Some(&schema), &json!({ "n": 9, "s": 1 }));
        assert_eq!(invalid["valid"], false);
        assert!(invalid["errors"][0].as_str().unwrap().contains("(at /n)"), "{invalid}");
        assert_eq!(invalid["errors"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn without_a_schema_any_json_is_valid() {
        assert_eq!(check("{{ answer }}", None, &json!("[1, null]"))["valid"], true);
        let invalid = check("{{ answer }}", None, &json!("[1, "));
        assert!(invalid["errors"][0].as_str().unwrap().starts_with("it is not JSON: EOF"), "{invalid}");
    }

    #[test]
    fn a_result_fits_its_schema() {
        let validator = jsonschema::validator_for(&SCHEMA).unwrap();
        for errors in [vec![], vec!["x".to_string()]] {
            assert!(validator.is_valid(&result(&errors)));
        }
    }

    #[test]
    fn the_lines_of_a_command_are_bounded_and_never_none() {
        assert_eq!(errors_in("a.py:1: E1  \n\n  2 errors\n"), ["a.py:1: E1", "  2 errors"]);
        assert_eq!(errors_in(" \n"), ["the command gives no reason"]);
        assert_eq!(errors_in(&"x\n".repeat(100)).len(), MAX_ERRORS);
        assert!(errors_in(&"x".repeat(100_000))[0].len() < 1_000);
    }
}
