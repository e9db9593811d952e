//! A parsed TOML file with the location of every key and value, which serde deserializes into types.
//! Every error names the key, its table, the value found and the value expected. All files share the wording.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{DeserializeOwned, Unexpected};
use serde_json::Value;
use tidegate_core::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::original;
use super::schema::schema_of;
use super::source::{FileError, SourceText};
use super::value::{DurationText, WithSpan};
use crate::app::provider::key::is_name_of_key;

/// A parsed file.
pub(crate) struct Document<'t> {
    source: &'t SourceText,
    /// The name of the file in messages, such as "the pipeline file".
    title: &'static str,
    root: Spanned<DeValue<'t>>,
}

/// One step of a path: a key of a table, or an index of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'v> {
    Key(&'v str),
    Index(usize),
}

impl<'t> Document<'t> {
    /// Parses `source`.
    pub(crate) fn parse(source: &'t SourceText, title: &'static str) -> Result<Self, FileError> {
        let table = DeTable::parse(source.text()).map_err(|error| {
            source.error(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()))
        })?;
        // The root gets an empty span, which no other value has.
        Ok(Self { source, title, root: Spanned::new(0..0, DeValue::Table(table.into_inner())) })
    }

    /// Deserializes the whole file.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        self.read_value(self.root.clone())
    }

    /// Deserializes the whole file. The error about a missing key includes its description from the JSON
    /// Schema.
    pub(crate) fn read_described<T: DeserializeOwned + JsonSchema>(&self) -> Result<T, FileError> {
        T::deserialize(ValueDeserializer::from(self.root.clone())).map_err(|error| {
            let file_error = self.deserialize_error(&error, self.root.span());
            match self.description::<T>(&error) {
                Some(description) => file_error.help(description),
                None => file_error,
            }
        })
    }

    /// Returns the schema's description of the key that `error` reports as missing.
    fn description<T: JsonSchema>(&self, error: &toml::de::Error) -> Option<String> {
        let key = error.message().strip_prefix("missing field `")?.strip_suffix('`')?;
        let (path, _) = self.find(&error.span()?)?;
        let schema = schema_of::<T>("");
        let table = path.iter().try_fold(schema.as_value(), |schema, step| match step {
            Step::Key(key) => schema.get("properties")?.get(key),
            Step::Index(_) => schema.get("items"),
        })?;
        let description = table.get("properties")?.get(key)?.get("description")?.as_str()?;
        Some(format!("{key}: {description}"))
    }

    /// Deserializes `value` like [`read_value`](Self::read_value), and rejects an array in place of a table.
    /// Serde accepts one: it takes the items for the fields in order.
    pub(crate) fn read_tables<T: DeserializeOwned + Serialize>(
        &self,
        value: &Spanned<DeValue<'t>>,
    ) -> Result<T, FileError> {
        let read: T = self.read_value(value.clone())?;
        let written = serde_json::to_value(&read).unwrap_or_default();
        match array_for_table(value, &written) {
            Some(array) => Err(self.wrong(array.span(), "a table")),
            None => Ok(read),
        }
    }

    /// Returns the whole file as a value.
    pub(crate) fn root(&self) -> &Spanned<DeValue<'t>> {
        &self.root
    }

    /// Deserializes `value`, which is part of the file or built from parts of it.
    pub(crate) fn read_value<T: DeserializeOwned>(&self, value: Spanned<DeValue<'t>>) -> Result<T, FileError> {
        let span = value.span();
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| self.deserialize_error(&error, span))
    }

    /// Returns an error about the text in `span`.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>) -> FileError {
        self.source.error(span, message)
    }

    /// Returns the error for the value in `span`, which has the right type but is not what is `expected`.
    pub(crate) fn wrong(&self, span: Range<usize>, expected: impl std::fmt::Display) -> FileError {
        match self.find(&span) {
            Some((path, value)) => self.value_error(&path, value.get_ref(), span),
            None => self.source.error(span, "this value is invalid"),
        }
        .expected(expected)
    }

    /// Returns the error for the missing `key` of the table in `span`.
    pub(crate) fn missing(&self, span: Range<usize>, key: &str, expected: impl std::fmt::Display) -> FileError {
        self.source.error(span.clone(), format!("{} has no `{key}`", self.title(span))).expected(expected)
    }

    /// Returns the duration in `value`, or an error if it is zero.
    pub(crate) fn positive(&self, value: Option<&WithSpan<DurationText>>) -> Result<Option<Duration>, FileError> {
        match value {
            Some(value) if value.get().0.is_zero() => Err(self.wrong(value.span(), "a duration of more than 0")),
            value => Ok(value.map(|value| value.get().0)),
        }
    }

    /// Returns the name of the table in `span` for messages, such as `[[models]]`.
    pub(crate) fn title(&self, span: Range<usize>) -> String {
        self.find(&span).map_or_else(|| self.title.to_string(), |(path, _)| self.title_of(&path))
    }

    /// Returns the span of the field at `path`, such as `models[2].name`. If the file omits the field,
    /// returns the span of the longest part of the path that exists.
    pub(crate) fn locate(&self, path: &str) -> Range<usize> {
        locate(&self.root, path).span()
    }

    /// Returns the value at `path`, or at the longest part of the path that exists.
    pub(crate) fn value(&self, path: &str) -> &Spanned<DeValue<'t>> {
        locate(&self.root, path)
    }

    /// Returns whether the root table has `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.root.get_ref().get(key).is_some()
    }

    /// Returns the keys of the table in `span`, in file order.
    pub(crate) fn keys(&self, span: &Range<usize>) -> Vec<Spanned<&str>> {
        let table = self.find(span).and_then(|(_, value)| value.get_ref().as_table());
        let mut keys: Vec<_> = table
            .into_iter()
            .flat_map(|table| table.keys())
            .map(|key| Spanned::new(key.span(), &**key.get_ref()))
            .collect();
        keys.sort_by_key(|key| key.span().start);
        keys
    }

    /// Converts a validation error of the core about the value in `span` into an error at the field that it
    /// names.
    pub(crate) fn config_error(&self, span: &Range<usize>, error: &tidegate_core::error::ConfigError) -> FileError {
        let Some((path, value)) = self.find(span) else { return self.source.error(span.clone(), error.to_string()) };
        let key = path.iter().rev().find_map(Step::key).unwrap_or_default();
        let field = error.field.strip_prefix(key).unwrap_or(&error.field).trim_start_matches('.');
        let message = format!("`{field}` in {} is {}", self.title_of(&path), error.value);
        self.source.error(locate(value, field).span(), message).expected(error.expected)
    }

    /// Returns the innermost value with this span, and the path to it.
    fn find(&self, span: &Range<usize>) -> Option<(Vec<Step<'_>>, &Spanned<DeValue<'t>>)> {
        find(&self.root, &|value| value.span() == *span)
    }

    fn title_of(&self, path: &[Step<'_>]) -> String {
        let keys: Vec<&str> = path.iter().filter_map(Step::key).collect();
        match path.last() {
            None => self.title.to_string(),
            Some(Step::Key(_)) => format!("[{}]", keys.join(".")),
            Some(Step::Index(_)) => format!("[[{}]]", keys.join(".")),
        }
    }

    /// Returns "`KEY` in TABLE" for the value at `path`.
    fn name_of(&self, path: &[Step<'_>]) -> String {
        let Some(at) = path.iter().rposition(|step| step.key().is_some()) else { return self.title.to_string() };
        let indices = path[at + 1..]
            .iter()
            .map(|step| if let Step::Index(at) = step { format!("[{at}]") } else { String::new() });
        let key = path[at].key().unwrap_or_default();
        format!("`{key}{}` in {}", indices.collect::<String>(), self.title_of(&path[..at]))
    }

    fn value_error(&self, path: &[Step<'_>], value: &DeValue<'_>, span: Range<usize>) -> FileError {
        self.source.error(span, format!("{} is {}", self.name_of(path), describe(value)))
    }

    /// Converts an error of serde about a value in `whole` into the wording that all files share.
    fn deserialize_error(&self, error: &toml::de::Error, whole: Range<usize>) -> FileError {
        let span = error.span().unwrap_or(whole);
        let message = error.message();
        let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
        let quoted = what.split('`').nth(1).unwrap_or_default();
        if what.starts_with("unknown field") {
            return self.unknown_key(quoted, span, expected);
        }
        if what.starts_with("missing field") {
            return self.missing(span, quoted, format!("`{quoted} = ` and its value"));
        }
        // An array of tables has the same span as its first table.
        let is_match = |value: &Spanned<DeValue<'_>>| {
            value.span() == span && !(what.ends_with("sequence") && value.get_ref().is_table())
        };
        let Some((path, value)) = find(&self.root, &is_match) else {
            return self.source.error(span, message);
        };
        // Serde buffers a table whose type depends on one of its keys, and the buffer has no spans. The error
        // then has the span of the table. Its message quotes the invalid value, and the first value that
        // matches is the one that serde read first.
        let (inner, value) = find_quoted(value, what).unwrap_or((Vec::new(), value));
        let path: Vec<_> = path.into_iter().chain(inner).collect();
        let file_error = self.value_error(&path, value.get_ref(), value.span());
        if what.starts_with("unknown variant") {
            let names = names_in(expected);
            return file_error.expected(one_of(&names)).suggest(quoted, names);
        }
        if let Some(expected) = message.strip_prefix("expected ") {
            return file_error.expected(expected);
        }
        if expected.is_empty() {
            return self.source.error(value.span(), format!("{}: {message}", self.name_of(&path)));
        }
        file_error.expected(expected_type(expected))
    }

    fn unknown_key(&self, key: &str, span: Range<usize>, expected: &str) -> FileError {
        let has_key_at = |value: &Spanned<DeValue<'_>>| key_in(value.get_ref(), key) == Some(span.clone());
        // The keys of a buffered table have no spans of their own, so the span is that of the table.
        let in_buffer = || {
            let (path, table) = self.find(&span)?;
            let (inner, table) = find(table, &|value| key_in(value.get_ref(), key).is_some())?;
            Some((path.into_iter().chain(inner).collect(), table))
        };
        let parent = find(&self.root, &has_key_at).or_else(in_buffer);
        let (title, span) = match &parent {
            Some((path, table)) => (self.title_of(path), key_in(table.get_ref(), key).unwrap_or(span)),
            None => (self.title.to_string(), span),
        };
        let known = names_in(expected);
        let error = self.source.error(span, format!("unknown key `{key}` in {title}")).expected(one_of(&known));
        // The value may be a secret, which must not be shown and belongs in the environment.
        let error = if is_name_of_key(key) { error.without_excerpt() } else { error };
        let is_model_of_scenario = known.iter().any(|key| ["request", "cooldown_ms"].contains(key));
        let in_scenario = is_model_of_scenario.then(|| original::replacement_in_scenario(key)).flatten();
        match in_scenario.or_else(|| original::replacement(key)) {
            Some(original::Replacement::Key(name)) if known.contains(&name) => error.suggest(name, [name]),
            // Only the keys of scenarios have the unit in their names.
            Some(original::Replacement::Duration(name))
                if known.iter().any(|key| *key == "request" || key.ends_with("_ms")) =>
            {
                error.help(format!("use instead: `{name}_ms`, in milliseconds, in `request` of the model"))
            }
            Some(replacement) => error.help(replacement.to_string()),
            None => error.suggest(key, known),
        }
    }
}

impl Step<'_> {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Index(_) => None,
        }
    }
}

type Found<'v, 't> = (Vec<Step<'v>>, &'v Spanned<DeValue<'t>>);

/// Returns the first value inside `value` for which `is_match` is true, and the path to it. Nested values
/// come before the values that contain them.
fn find<'v, 't>(
    value: &'v Spanned<DeValue<'t>>,
    is_match: &dyn Fn(&Spanned<DeValue<'t>>) -> bool,
) -> Option<Found<'v, 't>> {
    let below = children(value.get_ref()).find_map(|(step, child)| {
        let (mut path, found) = find(child, is_match)?;
        path.insert(0, step);
        Some((path, found))
    });
    below.or_else(|| is_match(value).then(|| (Vec::new(), value)))
}

fn children<'v, 't>(value: &'v DeValue<'t>) -> Box<dyn Iterator<Item = (Step<'v>, &'v Spanned<DeValue<'t>>)> + 'v> {
    match value {
        DeValue::Table(table) => Box::new(table.iter().map(|(key, value)| (Step::Key(key.get_ref()), value))),
        DeValue::Array(items) => Box::new(items.iter().enumerate().map(|(at, item)| (Step::Index(at), item))),
        _ => Box::new(std::iter::empty()),
    }
}

/// Returns the value inside `table` that the message of serde quotes.
fn find_quoted<'v, 't>(table: &'v Spanned<DeValue<'t>>, what: &str) -> Option<Found<'v, 't>> {
    let is_quoted = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => {
            what.ends_with(&Unexpected::Str(text).to_string()) || what == format!("unknown variant `{text}`")
        }
        DeValue::Integer(number) => what.ends_with(&format!("integer `{number}`")),
        DeValue::Float(number) => {
            number.as_str().parse().is_ok_and(|number| what.ends_with(&Unexpected::Float(number).to_string()))
        }
        DeValue::Boolean(value) => what.ends_with(&Unexpected::Bool(*value).to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => false,
    };
    if table.get_ref().is_table() { find(table, &is_quoted) } else { None }
}

fn key_in(table: &DeValue<'_>, key: &str) -> Option<Range<usize>> {
    let (key, _) = table.as_table()?.get_key_value(key)?;
    Some(key.span())
}

/// Returns the value at `path`, such as `capacity.steps[2].at_ms`, inside `value`, or at the longest part of
/// the path that exists.
fn locate<'v, 't>(value: &'v Spanned<DeValue<'t>>, path: &str) -> &'v Spanned<DeValue<'t>> {
    let mut found = value;
    for step in path.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        let next = match found.get_ref() {
            DeValue::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            DeValue::Table(table) => table.get(step),
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

/// Returns the first array in `value` that was read as a table: where `written`, the value that was read, has
/// an object.
fn array_for_table<'v, 't>(value: &'v Spanned<DeValue<'t>>, written: &Value) -> Option<&'v Spanned<DeValue<'t>>> {
    match (value.get_ref(), written) {
        (DeValue::Array(_), Value::Object(_)) => Some(value),
        (DeValue::Array(items), Value::Array(written)) => {
            items.iter().zip(written).find_map(|(item, written)| array_for_table(item, written))
        }
        (DeValue::Table(table), Value::Object(written)) => {
            table.iter().find_map(|(key, value)| array_for_table(value, written.get(&**key.get_ref())?))
        }
        _ => None,
    }
}

/// Returns a description of the value for messages. Long strings are shortened.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 40 => {
            format!("the string \"{}…\"", text.chars().take(40).collect::<String>())
        }
        DeValue::String(text) => format!("the string {text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date or time".to_string(),
        DeValue::Array(items) => format!("an array of {} items", items.len()),
        DeValue::Table(_) => "a table".to_string(),
    }
}

/// Returns the names in a list of serde such as "one of `a`, `b`".
fn names_in(expected: &str) -> Vec<&str> {
    expected.split('`').skip(1).step_by(2).collect()
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "no key".to_string(),
        names => format!("one of: {}", names.join(", ")),
    }
}

/// Returns a plain description for serde's name of a type.
fn expected_type(expected: &str) -> &str {
    match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "u64" => "a whole number, 0 or more",
        "i64" | "integer" => "a whole number of 64 bits",
        "f64" => "a finite number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "a table",
        "string or table" => "a string",
        table if table.starts_with("struct ") => "a table",
        other => other,
    }
}
