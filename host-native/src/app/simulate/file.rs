//! Scenario files: TOML that is read with the place of every mistake, and written so that it is read back equal.

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

/// Reads the scenario at `path`, and makes sure that it can run.
pub fn load(path: &Path) -> Result<Scenario, FileError> {
    parse(&SourceText::read(path)?)
}

/// Reads a scenario, and makes sure that it can run.
pub fn parse(source: &SourceText) -> Result<Scenario, FileError> {
    let root = document(source)?;
    let scenario: Scenario = toml::from_str(source.text()).map_err(|error| misread(source, &root, &error))?;
    World::new(&scenario, 0).map_err(|error| refused(source, &root, &scenario, &error))?;
    Ok(scenario)
}

/// Models, each with the provider behind it.
pub type Providers = Vec<(String, ProviderSpec)>;

/// Reads the models of a scenario, or of a file that has nothing but `[[models]]` with `name` and `provider`.
pub fn parse_providers(source: &SourceText) -> Result<Providers, FileError> {
    let root = document(source)?;
    let is_scenario =
        matches!(root.get_ref(), DeValue::Table(table) if table.keys().any(|key| key.get_ref() != "models"));
    if is_scenario {
        let models = parse(source)?.models;
        return Ok(models.into_iter().map(|model| (model.name, model.provider)).collect());
    }
    let read: ModelsAlone = toml::from_str(source.text()).map_err(|error| misread(source, &root, &error))?;
    for (nth, model) in read.models.iter().enumerate() {
        if read.models[..nth].iter().any(|other| other.name == model.name) {
            let message = format!("there are two models called `{}`", model.name);
            let at = locate(&root, &format!("models[{nth}].name"));
            return Err(source.error(at, message).expected("a name that no other model has"));
        }
        model.provider.validate().map_err(|error| {
            let at = locate(&root, &format!("models[{nth}].provider.{}", error.field));
            source.error(at, format!("`{}` is {}", error.field, error.value)).expected(error.expected)
        })?;
    }
    Ok(read.models.into_iter().map(|model| (model.name, model.provider)).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsAlone {
    models: Vec<ModelAlone>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelAlone {
    name: String,
    #[serde(default)]
    provider: ProviderSpec,
}

fn document(source: &SourceText) -> Result<Spanned<DeValue<'_>>, FileError> {
    let document = DeTable::parse(source.text()).map_err(|error| {
        source.error(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()))
    })?;
    Ok(Spanned::new(0..0, DeValue::Table(document.into_inner())))
}

/// The text of a scenario file.
///
/// A setting that a file cannot express is refused: fractions of a millisecond are exact below 104 days.
pub fn dump(scenario: &Scenario) -> Result<String, Error> {
    let text = toml::to_string(scenario).ok();
    let is_read_back = |text: &String| toml::from_str::<Scenario>(text).is_ok_and(|read| read == *scenario);
    let refused = || Error::Setting(format!("`{}` has a setting that no file can hold", scenario.name));
    text.filter(is_read_back).ok_or_else(refused)
}

/// Says in the words of the other files what serde found: the key, what was expected, and what was perhaps meant.
fn misread(source: &SourceText, root: &Spanned<DeValue<'_>>, error: &toml::de::Error) -> FileError {
    let span = error.span().unwrap_or(0..0);
    let (what, expected) = match error.message().split_once(", expected ") {
        Some((what, expected)) => (what, Some(expected)),
        None => (error.message(), None),
    };
    let span = table_at(root, &span).and_then(|table| place_of(table, what)).unwrap_or(span);
    let key = key_before(source.text(), &span);
    let names_a_key =
        what.starts_with("unknown field") || what.starts_with("missing field") || what.contains("duplicate");
    let what = match key {
        Some(key) if !names_a_key => format!("`{key}`: {what}"),
        _ => what.to_string(),
    };
    let told = source.error(span, &what);
    let Some(expected) = expected else { return told };
    let told = told.expected(expected.replace('`', ""));
    let wrong = what.split('`').filter(|_| what.starts_with("unknown") || what.contains(": unknown")).rev().nth(1);
    match wrong {
        Some(wrong) => told.suggest(wrong, expected.split('`').skip(1).step_by(2)),
        None => told,
    }
}

/// Returns the table that has this span.
fn table_at<'v, 't>(value: &'v Spanned<DeValue<'t>>, span: &Range<usize>) -> Option<&'v Spanned<DeValue<'t>>> {
    // A list of tables has the span of its first one.
    if value.span() == *span && value.get_ref().is_table() {
        return Some(value);
    }
    match value.get_ref() {
        DeValue::Table(table) => table.values().find_map(|value| table_at(value, span)),
        DeValue::Array(items) => items.iter().find_map(|value| table_at(value, span)),
        _ => None,
    }
}

/// Finds the key or value inside `table` that a message is about.
///
/// Serde reads a table whose type depends on one of its keys into a buffer, which keeps no places: the error has the place of
/// the whole table. The message quotes the wrong key or value, and the first of that kind is the one that was read first.
fn place_of(table: &Spanned<DeValue<'_>>, what: &str) -> Option<Range<usize>> {
    let is_meant = |value: &DeValue<'_>| match value {
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
            if is_meant(value.get_ref()) { Some(value.span()) } else { place_of(value, what) }
        }),
        DeValue::Array(items) => items.iter().find_map(|item| place_of(item, what)),
        _ => None,
    }
}

/// The key that stands on the line of `span`, before it.
fn key_before<'t>(text: &'t str, span: &Range<usize>) -> Option<&'t str> {
    let before = text.get(..span.start)?;
    let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
    let (before, _) = line.rsplit_once('=')?;
    let key = before.trim_end().rsplit(['{', ',', ' ', '[']).next()?.trim();
    (!key.is_empty()).then_some(key)
}

/// A scenario that reads well and cannot run: the message of the core, at the place it is about.
fn refused(source: &SourceText, root: &Spanned<DeValue<'_>>, scenario: &Scenario, error: &ScenarioError) -> FileError {
    let column = |name: &str| scenario.columns.iter().rposition(|column| column.name == name);
    let model = |name: &str| scenario.models.iter().position(|model| model.name == name);
    let at = |list: &str, place: Option<usize>, field: &str| match place {
        Some(place) => format!("{list}[{place}].{field}"),
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
            key_of(root, &error.field)
        }
        ScenarioError::Pipeline(PipelineError::Group { column: name, source }) => {
            at("columns", column(name), &source.field)
        }
        ScenarioError::Pipeline(PipelineError::Demand { column: name, .. }) => at("columns", column(name), "holds"),
        _ => String::new(),
    };
    let told = source.error(locate(root, &path), error.to_string());
    match error {
        ScenarioError::UnknownModel { model, .. } | ScenarioError::UnknownHeldModel { model } => {
            told.suggest(model, scenario.models.iter().map(|model| model.name.as_str()))
        }
        _ => told,
    }
}

/// The key under which a file writes a setting: durations end in `_ms` there.
fn key_of(root: &Spanned<DeValue<'_>>, field: &str) -> String {
    let first = field.split('.').next().unwrap_or(field);
    let is_there = |key: &str| matches!(root.get_ref(), DeValue::Table(table) if table.contains_key(key));
    let in_millis = format!("{first}_ms");
    if !is_there(first) && is_there(&in_millis) { in_millis } else { field.to_string() }
}
