//! The tables `[[tools]]`: commands that the models of columns may call.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_core::time::Duration;
use toml::Spanned;

use super::raw::RawTool;
use super::structure::compile_schema;
use crate::app::config::document::Document;
use crate::app::config::source::FileError;
use crate::app::config::value::{Checked, JsonTable, Table, Text, WithSpan};

/// One `[[tools]]` table.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The name, for columns and models.
    pub name: String,
    /// What the tool does, for models.
    pub description: String,
    /// The JSON Schema of its arguments, which are an object.
    pub parameters: Spanned<Value>,
    /// The program and its arguments. There is at least the program.
    pub argv: Vec<String>,
    /// The working directory: the directory of the pipeline file.
    pub directory: PathBuf,
    /// Environment variables with keys that the command may read. All other key variables are removed.
    pub pass_env: Vec<String>,
    /// The timeout of one call \[60 seconds\].
    pub timeout: Duration,
    /// The span of the table.
    pub span: Range<usize>,
}

/// The longest name that all APIs accept.
const MAX_NAME_CHARS: usize = 64;

/// Validates the tools.
pub(super) fn check(
    file: &Document<'_>,
    raw: Vec<WithSpan<Table<RawTool>>>,
    directory: &Path,
) -> Result<Vec<ToolSpec>, FileError> {
    let mut tools: Vec<ToolSpec> = Vec::new();
    for raw in raw {
        let span = raw.span();
        let Table(RawTool { name, description, parameters, command, pass_env, timeout }) = raw.into_inner();
        check_name(file, &tools, &name)?;
        if command.get().is_empty() {
            let expected = "the program and its arguments, such as [\"python3\", \"lookup.py\"]";
            return Err(file.wrong(command.span(), expected));
        }
        let strings = |texts: Vec<Text>| texts.into_iter().map(|Checked(text)| text).collect();
        tools.push(ToolSpec {
            name: name.into_inner().0,
            description: description.0,
            parameters: check_parameters(file, &span, parameters)?,
            argv: strings(command.into_inner()),
            directory: directory.to_path_buf(),
            pass_env: strings(pass_env.unwrap_or_default()),
            timeout: file.positive(timeout.as_ref())?.unwrap_or(Duration::from_secs(60)),
            span,
        });
    }
    Ok(tools)
}

fn check_name(file: &Document<'_>, earlier: &[ToolSpec], name: &WithSpan<Text>) -> Result<(), FileError> {
    let Checked(text) = name.get();
    if earlier.iter().any(|tool| tool.name == *text) {
        let message = format!("there are two tools called `{text}`");
        return Err(file.error(name.span(), message).expected("a name that no other tool has"));
    }
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.len() > MAX_NAME_CHARS || !text.chars().all(is_valid) {
        return Err(file.wrong(name.span(), "up to 64 letters, digits, `_` and `-`, as in `find_tide`"));
    }
    Ok(())
}

/// Returns the schema of the arguments, which must accept objects only.
fn check_parameters(
    file: &Document<'_>,
    table: &Range<usize>,
    parameters: Option<WithSpan<JsonTable>>,
) -> Result<Spanned<Value>, FileError> {
    let Some(parameters) = parameters else {
        return Ok(Spanned::new(table.clone(), json!({ "type": "object", "properties": {} })));
    };
    let schema = parameters.map(|JsonTable(table)| Value::Object(table));
    if schema.get_ref().get("type") != Some(&json!("object")) {
        let message = "the arguments of a tool are an object, but `parameters` in [[tools]] does not say so";
        return Err(file.error(schema.span(), message).expected("a JSON Schema with `type = \"object\"`"));
    }
    compile_schema(schema.get_ref()).map_err(|why| {
        file.error(schema.span(), format!("this is not a JSON Schema: {why}")).expected("a JSON Schema")
    })?;
    Ok(schema)
}
