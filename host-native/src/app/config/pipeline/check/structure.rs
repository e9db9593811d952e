//! Checks the keys of a column about structured output: `schema`, `schema_file`, `json_mode` and
//! `schema_retries`.

use std::path::Path;

use serde_json::Value;
use toml::Spanned;

use crate::app::config::document::Document;
use crate::app::config::json_schema::compile_schema;
use crate::app::config::pipeline::names::{JsonMode, OutputForm};
use crate::app::config::pipeline::raw::RawColumn;
use crate::app::config::pipeline::spec::Structure;
use crate::app::config::source::FileError;
use crate::app::config::value::{JsonTable, WithSpan};

/// The maximum number of retries. Each retry is a call that has a cost.
const MAX_RETRIES: u32 = 10;

pub(super) fn check(
    file: &Document<'_>,
    raw: &mut RawColumn,
    directory: &Path,
) -> Result<Option<Structure>, FileError> {
    let schema = check_schema(file, raw, directory)?;
    let form = raw.output.as_ref().map(|output| *output.get());
    let output = match (&schema, form) {
        (Some(_), None | Some(OutputForm::Json)) => OutputForm::Json,
        (Some(_), Some(_)) => {
            let span = raw.output.as_ref().map_or(0..0, WithSpan::span);
            return Err(file.wrong(span, "\"json\", or no `output`: there is a schema"));
        }
        (None, None | Some(OutputForm::Text)) => {
            let json_mode = ("json_mode", raw.json_mode.as_ref().map(WithSpan::span));
            let retries = ("schema_retries", raw.schema_retries.as_ref().map(WithSpan::span));
            return match [json_mode, retries].into_iter().find_map(|(key, span)| Some((key, span?))) {
                Some((key, span)) => Err(file
                    .error(span, format!("`{key}` applies only to structured answers"))
                    .expected("`schema`, `schema_file` or `output = \"json\"` beside it")),
                None => Ok(None),
            };
        }
        (None, Some(form)) => form,
    };
    let default = if schema.is_some() { JsonMode::Schema } else { JsonMode::Prompt };
    let mode = raw.json_mode.as_ref().map_or(default, |mode| *mode.get());
    if let (None, JsonMode::Schema, Some(given)) = (&schema, mode, &raw.json_mode) {
        return Err(file.wrong(given.span(), "\"object\" or \"prompt\", or a schema beside \"schema\""));
    }
    if let Some(retries) = raw.schema_retries.as_ref().filter(|retries| *retries.get() > MAX_RETRIES) {
        return Err(file.wrong(retries.span(), "a whole number from 0 to 10"));
    }
    let retries = raw.schema_retries.as_ref().map_or(2, |retries| *retries.get());
    Ok(Some(Structure { output, schema, mode, retries }))
}

/// Returns the JSON Schema of `schema` or `schema_file`, if the column has one.
pub(super) fn check_schema(
    file: &Document<'_>,
    raw: &mut RawColumn,
    directory: &Path,
) -> Result<Option<Spanned<Value>>, FileError> {
    let schema = match (raw.schema.take(), &raw.schema_file) {
        (Some(_), Some(path)) => {
            return Err(file
                .error(path.span(), "`schema_file` is given beside `schema`, and there can be one schema only")
                .expected("`schema` or `schema_file`"));
        }
        (Some(inline), None) => inline.map(|JsonTable(table)| Value::Object(table)),
        (None, Some(given)) => {
            let path = super::relative_to(directory, &given.get().0);
            let schema_error = |why: String| {
                file.error(given.span(), format!("the schema {}: {why}", path.display())).expected("a JSON Schema")
            };
            let text = std::fs::read(&path).map_err(|error| schema_error(format!("cannot read: {error}")))?;
            let value =
                serde_json::from_slice(&text).map_err(|error| schema_error(format!("it is not JSON: {error}")))?;
            Spanned::new(given.span(), value)
        }
        (None, None) => return Ok(None),
    };
    // The schema is compiled here to report errors early, and again where it is used. Schemas are small.
    compile_schema(schema.get_ref()).map_err(|why| {
        file.error(schema.span(), format!("this is not a JSON Schema: {why}")).expected("a JSON Schema")
    })?;
    Ok(Some(schema))
}
