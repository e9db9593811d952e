//! Checks the tables `[[tools]]`, and the keys of columns about them.

use std::ops::{Range, RangeInclusive};
use std::path::Path;

use serde_json::{Value, json};
use tidegate_core::time::Duration;
use toml::Spanned;

use crate::app::config::document::Document;
use crate::app::config::json_schema::compile_schema;
use crate::app::config::pipeline::raw::{RawColumn, RawTool};
use crate::app::config::pipeline::spec::{ModelSpec, ToolSpec};
use crate::app::config::source::FileError;
use crate::app::config::value::{Checked, JsonTable, Table, Text, WithSpan};

/// The longest name that all APIs accept.
const MAX_NAME_CHARS: usize = 64;

/// The answers of a model to one conversation if the file does not set `max_turns`.
const DEFAULT_MAX_TURNS: u32 = 8;

/// The range of `max_turns`: a call of a tool and the answer after it, to many calls, each with a cost.
const MAX_TURNS: RangeInclusive<u32> = 2..=100;

/// Validates the tools.
pub(crate) fn check(
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

/// Returns the places in `tools` of those that the models of a column, `called`, may call.
pub(super) fn of_column(
    file: &Document<'_>,
    raw: &RawColumn,
    tools: &[ToolSpec],
    called: &[&ModelSpec],
) -> Result<Vec<usize>, FileError> {
    let Some(names) = &raw.tools else {
        return match &raw.max_turns {
            Some(turns) => Err(file
                .error(turns.span(), "`max_turns` in [[columns]] has no effect without tools")
                .expected("`tools = ` the names of tools beside it")),
            None => Ok(Vec::new()),
        };
    };
    if names.get().is_empty() {
        return Err(file.wrong(names.span(), "at least one tool"));
    }
    if let Some(turns) = raw.max_turns.as_ref().filter(|turns| !MAX_TURNS.contains(turns.get())) {
        return Err(file.wrong(turns.span(), "a whole number from 2 to 100"));
    }
    if let Some(extra) = raw.extra.as_ref().filter(|extra| extra.get().0.contains_key("tools")) {
        let message = "`extra` in [[columns]] has `tools` beside the key `tools` of the column";
        return Err(file.error(extra.span(), message).expected("one of them"));
    }
    if let Some(model) = called.iter().find(|model| model.extras.body.contains_key("tool_choice")) {
        let message =
            format!("`extra_body` of the model `{}` has `tool_choice`, which all its requests have", model.name);
        let expected = "`extra = { tool_choice = ... }` in [[columns]], which only the first request has";
        return Err(file.error(names.span(), message).expected(expected));
    }
    let mut found = Vec::new();
    for name in names.get() {
        let Checked(text) = name.get();
        let at = tools.iter().position(|tool| tool.name == *text).ok_or_else(|| {
            let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let error = file.error(name.span(), format!("there is no tool `{text}`"));
            if known.is_empty() {
                return error.expected("a [[tools]] table with this name");
            }
            error.expected(format!("one of: {}", known.join(", "))).suggest(text, known)
        })?;
        if found.contains(&at) {
            let message = format!("`tools` in [[columns]] has `{text}` twice");
            return Err(file.error(name.span(), message).expected("each tool once"));
        }
        found.push(at);
    }
    Ok(found)
}

/// Returns the most answers of the model to one conversation.
pub(super) fn max_turns(raw: &RawColumn) -> u32 {
    raw.max_turns.as_ref().map_or(DEFAULT_MAX_TURNS, |turns| *turns.get())
}
