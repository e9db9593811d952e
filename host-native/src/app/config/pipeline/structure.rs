//! Structured output: `schema`, `schema_file`, `json_mode`, `schema_retries` of a column of kind `llm`.

use jsonschema::Validator;
use std::path::Path;

use serde_json::Value;
use toml::Spanned;

use super::kinds::{OutputForm, parse_form};
use crate::app::config::reader::TableReader;
use crate::app::config::source::{FileError, SourceText};

/// The form that an answer must have.
#[derive(Clone, Debug)]
pub struct Structure {
    /// What the text becomes.
    pub output: OutputForm,
    /// What the value must fit, with where it stands.
    pub schema: Option<Spanned<Value>>,
    /// How the model is told.
    pub mode: JsonMode,
    /// How often a wrong answer is asked for again \[2\].
    pub retries: u32,
}

/// How a model is told to answer with JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonMode {
    /// The request holds the schema: `response_format` of type `json_schema`.
    Schema,
    /// The request asks for an object: `response_format` of type `json_object`; the schema stands in a message.
    Object,
    /// The schema stands in a message, and nothing else is said.
    Prompt,
}

/// The most retries: each is a call that costs.
const MAX_RETRIES: u32 = 10;

pub(super) fn parse(
    source: &SourceText,
    table: &TableReader<'_>,
    directory: &Path,
) -> Result<Option<Structure>, FileError> {
    const MODES: [(&str, JsonMode); 3] =
        [("schema", JsonMode::Schema), ("object", JsonMode::Object), ("prompt", JsonMode::Prompt)];
    let schema = parse_schema(source, table, directory)?;
    let form = parse_form(table)?;
    let output = match (&schema, form) {
        (Some(_), None | Some(OutputForm::Json)) => OutputForm::Json,
        (Some(_), Some(_)) => return Err(table.refused("output", "\"json\", or no `output`: there is a schema")),
        (None, None | Some(OutputForm::Text)) => {
            for key in ["json_mode", "schema_retries"] {
                if let Some(value) = table.raw(key) {
                    return Err(source
                        .error(value.span(), format!("`{key}` is given for a column whose answer may be any text"))
                        .expected("`schema`, `schema_file` or `output = \"json\"` beside it"));
                }
            }
            return Ok(None);
        }
        (None, Some(form)) => form,
    };
    let default = if schema.is_some() { JsonMode::Schema } else { JsonMode::Prompt };
    let mode = table.choice("json_mode", &MODES, default)?;
    if schema.is_none() && mode == JsonMode::Schema {
        return Err(table.refused("json_mode", "a schema beside \"schema\"; or \"object\" or \"prompt\""));
    }
    let retries = table.optional_within("schema_retries", 0..=MAX_RETRIES, "a whole number from 0 to 10")?.unwrap_or(2);
    Ok(Some(Structure { output, schema, mode, retries }))
}

fn parse_schema(
    source: &SourceText,
    table: &TableReader<'_>,
    directory: &Path,
) -> Result<Option<Spanned<Value>>, FileError> {
    let inline = table.optional::<serde_json::Map<String, Value>>("schema")?;
    let file = table.optional::<String>("schema_file")?;
    let schema = match (inline, file) {
        (Some(_), Some(file)) => {
            return Err(source
                .error(file.span(), "`schema_file` is given beside `schema`, and there can be one schema only")
                .expected("`schema` or `schema_file`"));
        }
        (Some(inline), None) => Spanned::new(inline.span(), Value::Object(inline.into_inner())),
        (None, Some(file)) => {
            let path = super::relative_to(directory, file.get_ref());
            let refuse = |why: String| {
                source.error(file.span(), format!("the schema {}: {why}", path.display())).expected("a JSON Schema")
            };
            let text = std::fs::read(&path).map_err(|error| refuse(format!("cannot read: {error}")))?;
            let value = serde_json::from_slice(&text).map_err(|error| refuse(format!("it is not JSON: {error}")))?;
            Spanned::new(file.span(), value)
        }
        (None, None) => return Ok(None),
    };
    // Compiled once here to be refused here, and again where it is used: a schema is small.
    compile_schema(schema.get_ref()).map_err(|why| {
        source.error(schema.span(), format!("this is not a JSON Schema: {why}")).expected("a JSON Schema")
    })?;
    Ok(Some(schema))
}

/// Compiles `schema`. References to other documents are not followed: nothing is fetched.
pub(crate) fn compile_schema(schema: &Value) -> Result<Validator, String> {
    jsonschema::options().build(schema).map_err(|error| cut(&error.to_string()))
}

/// Characters of a complaint: it may repeat a value of any length.
const MAX_COMPLAINT_CHARS: usize = 300;

/// Returns `text`, shortened if it is long.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_COMPLAINT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_is_none_is_refused_and_nothing_is_fetched() {
        assert!(compile_schema(&json!({ "type": 7 })).is_err());
        assert!(compile_schema(&json!({ "$ref": "https://schemas.test/grade.json" })).is_err());
    }
}
