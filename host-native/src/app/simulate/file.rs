//! Scenario files in TOML: parsing with a position for every error, and writing that parses to an equal
//! scenario.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::Unexpected;
use tidegate_core::pipeline::{PipelineError, PlanError};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::world::World;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::app::config::pipeline::{FileError, SourceText, locate};
use crate::app::error::Error;

/// Reads the scenario file at `path` and checks that it can run.
pub(super) fn load(path: &Path) -> Result<Scenario, FileError> {
    parse(&SourceText::read(path)?)
}

/// Parses a scenario and checks that it can run.
pub(super) fn parse(source: &SourceText) -> Result<Scenario, FileError> {
    let root = parse_document(source)?;
    let scenario: Scenario = toml::from_str(source.text()).map_err(|error| deserialize_error(source, &root, &error))?;
    World::new(&scenario, 0).map_err(|error| validation_error(source, &root, &scenario, &error))?;
    Ok(scenario)
}

/// Model names, each with the description of its mock provider.
pub type ModelProviders = Vec<(String, ProviderSpec)>;

/// Parses the models of a scenario, or of a file that contains nothing but `[[models]]` with `name` and
/// `provider`.
pub fn parse_providers(source: &SourceText) -> Result<ModelProviders, FileError> {
    let root = parse_document(source)?;
    let is_scenario =
        matches!(root.get_ref(), DeValue::Table(table) if table.keys().any(|key| key.get_ref() != "models"));
    if is_scenario {
        let models = parse(source)?.models;
        return Ok(models.into_iter().map(|model| (model.name, model.provider)).collect());
    }
    let file: ModelsOnly = toml::from_str(source.text()).map_err(|error| deserialize_error(source, &root, &error))?;
    for (nth, model) in file.models.iter().enumerate() {
        if file.models[..nth].iter().any(|other| other.name == model.name) {
            let message = format!("there are two models called `{}`", model.name);
            let at = locate(&root, &format!("models[{nth}].name"));
            return Err(source.error(at, message).expected("a name that no other model has"));
        }
        model.provider.validate().map_err(|error| {
            let at = locate(&root, &format!("models[{nth}].provider.{}", error.field));
            source.error(at, format!("`{}` is {}", error.field, error.value)).expected(error.expected)
        })?;
    }
    Ok(file.models.into_iter().map(|model| (model.name, model.provider)).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsOnly {
    models: Vec<ModelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelEntry {
    name: String,
    #[serde(default)]
    provider: ProviderSpec,
}

fn parse_document(source: &SourceText) -> Result<Spanned<DeValue<'_>>, FileError> {
    let document = DeTable::parse(source.text()).map_err(|error| {
        source.error(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()))
    })?;
    Ok(Spanned::new(0..0, DeValue::Table(document.into_inner())))
}

/// Writes a scenario as the text of a file.
///
/// Fails if the text would not parse to an equal scenario: a file holds fractions of a millisecond exactly
/// only for durations below 104 days.
pub(super) fn dump(scenario: &Scenario) -> Result<String, Error> {
    let text = toml::to_string(scenario).ok();
    let parses_back = |text: &String| toml::from_str::<Scenario>(text).is_ok_and(|read| read == *scenario);
    let unsupported = || Error::Setting(format!("`{}` has a setting that a file cannot express", scenario.name));
    text.filter(parses_back).ok_or_else(unsupported)
}

/// Converts an error of serde into one that names the key, its position, what was expected and a suggestion.
fn deserialize_error(source: &SourceText, root: &Spanned<DeValue<'_>>, error: &toml::de::Error) -> FileError {
    let span = error.span().unwrap_or(0..0);
    // For example: "unknown field `rwos`, expected one of `rows`, `models`".
    let (what, expected) = match error.message().split_once(", expected ") {
        Some((what, expected)) => (what, Some(expected)),
        None => (error.message(), None),
    };
    let span = find_table(root, &span).and_then(|table| find_span(table, what)).unwrap_or(span);
    let key = key_before(source.text(), &span);
    let names_a_key =
        what.starts_with("unknown field") || what.starts_with("missing field") || what.contains("duplicate");
    let what = match key {
        Some(key) if !names_a_key => format!("`{key}`: {what}"),
        _ => what.to_string(),
    };
    let error = source.error(span, &what);
    let Some(expected) = expected else { return error };
    let error = error.expected(expected.replace('`', ""));
    // The quoted names of `what` and `expected` are every second part between backquotes.
    let wrong = what.split('`').filter(|_| what.starts_with("unknown") || what.contains(": unknown")).rev().nth(1);
    match wrong {
        Some(wrong) => error.suggest(wrong, expected.split('`').skip(1).step_by(2)),
        None => error,
    }
}

/// Finds the table with this span.
fn find_table<'v, 't>(value: &'v Spanned<DeValue<'t>>, span: &Range<usize>) -> Option<&'v Spanned<DeValue<'t>>> {
    // An array of tables has the span of its first table.
    if value.span() == *span && value.get_ref().is_table() {
        return Some(value);
    }
    match value.get_ref() {
        DeValue::Table(table) => table.values().find_map(|value| find_table(value, span)),
        DeValue::Array(items) => items.iter().find_map(|value| find_table(value, span)),
        _ => None,
    }
}

/// Finds the key or value inside `table` that the message `what` quotes.
///
/// Serde buffers a table whose type depends on one of its keys, and the buffer keeps no spans: the error has
/// the span of the whole table. The message quotes the wrong key or value. The first match is the one that
/// serde read first.
fn find_span(table: &Spanned<DeValue<'_>>, what: &str) -> Option<Range<usize>> {
    let is_quoted = |value: &DeValue<'_>| match value {
        DeValue::String(text) => {
            what.ends_with(&Unexpected::Str(text).to_string()) || what == format!("unknown variant `{text}`")
        }
        DeValue::Integer(number) => what.ends_with(&format!("integer `{number}`")),
        DeValue::Float(number) => {
            number.as_str().parse().is_ok_and(|number| what.ends_with(&Unexpected::Float(number).to_string()))
        }
        DeValue::Boolean(value) => what.ends_with(&Unexpected::Bool(*value).to_string()),
        DeValue::Array(_) => what.ends_with("sequence"),
        DeValue::Table(_) => what.ends_with("map"),
        DeValue::Datetime(_) => false,
    };
    match table.get_ref() {
        DeValue::Table(entries) => entries.iter().find_map(|(key, value)| {
            if what == format!("unknown field `{}`", key.get_ref()) {
                return Some(key.span());
            }
            if is_quoted(value.get_ref()) { Some(value.span()) } else { find_span(value, what) }
        }),
        DeValue::Array(items) => items.iter().find_map(|item| find_span(item, what)),
        _ => None,
    }
}

/// Returns the key before `span` on its line.
fn key_before<'t>(text: &'t str, span: &Range<usize>) -> Option<&'t str> {
    let before = text.get(..span.start)?;
    let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
    let (before, _) = line.rsplit_once('=')?;
    let key = before.trim_end().rsplit(['{', ',', ' ', '[']).next()?.trim();
    (!key.is_empty()).then_some(key)
}

/// Locates an error of the core about a scenario that parses and cannot run.
fn validation_error(
    source: &SourceText,
    root: &Spanned<DeValue<'_>>,
    scenario: &Scenario,
    error: &ScenarioError,
) -> FileError {
    let column = |name: &str| scenario.columns.iter().rposition(|column| column.name == name);
    let model = |name: &str| scenario.models.iter().position(|model| model.name == name);
    let at = |list: &str, index: Option<usize>, field: &str| match index {
        Some(index) => format!("{list}[{index}].{field}"),
        None => list.to_string(),
    };
    let path = match error {
        ScenarioError::Provider { model: name, .. } => at("models", model(name), "provider"),
        ScenarioError::Model { model: name, error } => at("models", model(name), &format!("request.{}", error.field)),
        ScenarioError::Column { column: name, error } => at("columns", column(name), &error.field),
        ScenarioError::UnknownModel { column: name, .. } => at("columns", column(name), "model"),
        ScenarioError::UnknownHeldModel { model } => {
            at("holders", scenario.holders.iter().position(|holder| holder.model == *model), "model")
        }
        ScenarioError::Plan(PlanError::UnknownUpstream { column: name, .. }) => at("columns", column(name), "after"),
        ScenarioError::Plan(PlanError::DuplicateColumn { name }) => at("columns", column(name), "name"),
        ScenarioError::Plan(_) => "columns".to_string(),
        ScenarioError::Pipeline(PipelineError::Config(error)) | ScenarioError::Config(error) => {
            file_key(root, &error.field)
        }
        ScenarioError::Pipeline(PipelineError::Group { column: name, source }) => {
            at("columns", column(name), &source.field)
        }
        ScenarioError::Pipeline(PipelineError::Demand { column: name, .. }) => at("columns", column(name), "holds"),
        _ => String::new(),
    };
    let located = source.error(locate(root, &path), error.to_string());
    match error {
        ScenarioError::UnknownModel { model, .. } | ScenarioError::UnknownHeldModel { model } => {
            located.suggest(model, scenario.models.iter().map(|model| model.name.as_str()))
        }
        _ => located,
    }
}

/// Returns the key of a setting in a file, where durations end in `_ms`.
fn file_key(root: &Spanned<DeValue<'_>>, field: &str) -> String {
    let first = field.split('.').next().unwrap_or(field);
    let has_key = |key: &str| matches!(root.get_ref(), DeValue::Table(table) if table.contains_key(key));
    let in_millis = format!("{first}_ms");
    if !has_key(first) && has_key(&in_millis) { in_millis } else { field.to_string() }
}
