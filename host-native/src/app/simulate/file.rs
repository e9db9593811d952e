//! Scenario files in TOML: parsing with a position for every error, and writing that parses to an equal
//! scenario.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_core::pipeline::{PipelineError, PlanError};
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::world::World;

use crate::app::config::document::Document;
use crate::app::config::schema::schema_text;
use crate::app::config::source::{FileError, SourceText};
use crate::app::error::Error;

/// Reads the scenario file at `path` and checks that it can run.
pub(super) fn load(path: &Path) -> Result<Scenario, FileError> {
    parse(&SourceText::read(path)?)
}

/// Parses a scenario and checks that it can run.
pub(crate) fn parse(source: &SourceText) -> Result<Scenario, FileError> {
    read(&Document::parse(source, TITLE)?)
}

/// Deserializes a scenario, without the checks of [`World::new`].
pub(super) fn deserialize(file: &Document<'_>) -> Result<Scenario, FileError> {
    file.read_tables(file.root())
}

fn read(file: &Document<'_>) -> Result<Scenario, FileError> {
    let scenario = deserialize(file)?;
    World::new(&scenario, 0).map_err(|error| validation_error(file, &scenario, &error))?;
    Ok(scenario)
}

/// Returns the JSON Schema of scenario files, for editors.
///
/// Rules that a schema cannot express, such as ranges and references between columns and models, are checked
/// only by the program.
#[must_use]
pub fn schema() -> String {
    schema_text::<Scenario>("A scenario file of tidegate")
}

/// The name of the document in messages.
pub(super) const TITLE: &str = "the scenario";

/// Model names, each with the description of its mock provider.
pub type ModelProviders = Vec<(String, ProviderSpec)>;

/// Parses the models of a scenario, or of a file that contains nothing but `[[models]]` with `name` and
/// `provider`.
pub fn parse_providers(source: &SourceText) -> Result<ModelProviders, FileError> {
    let file = Document::parse(source, TITLE)?;
    if file.keys(&(0..0)).iter().any(|key| *key.get_ref() != "models") {
        let models = read(&file)?.models;
        return Ok(models.into_iter().map(|model| (model.name, model.provider)).collect());
    }
    let ModelsOnly { models } = file.read_tables(file.root())?;
    for (nth, model) in models.iter().enumerate() {
        if models[..nth].iter().any(|other| other.name == model.name) {
            let message = format!("there are two models called `{}`", model.name);
            let at = file.locate(&format!("models[{nth}].name"));
            return Err(file.error(at, message).expected("a name that no other model has"));
        }
        model.provider.validate().map_err(|error| {
            let at = file.locate(&format!("models[{nth}].provider.{}", error.field));
            file.error(at, format!("`{}` is {}", error.field, error.value)).expected(error.expected)
        })?;
    }
    Ok(models.into_iter().map(|model| (model.name, model.provider)).collect())
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ModelsOnly {
    models: Vec<ModelAlone>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ModelAlone {
    name: String,
    #[serde(default)]
    provider: ProviderSpec,
}

/// Writes a scenario as the text of a file.
///
/// Fails if the text would not parse to an equal scenario: a file holds fractions of a millisecond exactly
/// only for durations below 104 days.
pub(crate) fn dump(scenario: &Scenario) -> Result<String, Error> {
    let text = toml::to_string(scenario).ok();
    let is_read_back = |text: &String| toml::from_str::<Scenario>(text).is_ok_and(|read| read == *scenario);
    let refused = || Error::Setting(format!("`{}` has a setting that a file cannot express", scenario.name));
    text.filter(is_read_back).ok_or_else(refused)
}

/// Locates an error of the core about a scenario that parses and cannot run.
fn validation_error(file: &Document<'_>, scenario: &Scenario, error: &ScenarioError) -> FileError {
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
            key_of(file, &error.field)
        }
        ScenarioError::Pipeline(PipelineError::Group { column: name, source }) => {
            at("columns", column(name), &source.field)
        }
        ScenarioError::Pipeline(PipelineError::Demand { column: name, .. }) => at("columns", column(name), "holds"),
        _ => String::new(),
    };
    let located = file.error(file.locate(&path), error.to_string());
    match error {
        ScenarioError::UnknownModel { model, .. } | ScenarioError::UnknownHeldModel { model } => {
            located.suggest(model, scenario.models.iter().map(|model| model.name.as_str()))
        }
        _ => located,
    }
}

/// The key under which a file writes a setting: durations end in `_ms` there.
fn key_of(file: &Document<'_>, field: &str) -> String {
    let first = field.split('.').next().unwrap_or(field);
    let in_millis = format!("{first}_ms");
    if !file.has(first) && file.has(&in_millis) { in_millis } else { field.to_string() }
}
