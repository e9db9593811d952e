//! The manifest of a run, with hashes of everything that its rows depend on.

use std::collections::{BTreeMap, BTreeSet};

use encoding_rs::UTF_8;
use serde_json::Value;

use crate::app::config::pipeline::{ColumnSpec, DatasetLocation, Endpoint, ModelSpec, PipelineFile, ToolSpec};
use crate::app::data::digest::FileDigest;
use crate::app::error::Error;
use crate::app::output::{DoneRowGroups, Identity, JobTotals, MANIFEST_SCHEMA, Manifest, RunState};
use crate::app::run::models::called_models;
use crate::app::run::request::Partition;
use crate::app::run::resolve::ResolvedPipeline;

/// Returns the manifest of a run that starts now.
pub(super) fn manifest(
    name: &str,
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    partition: Option<Partition>,
) -> Result<Manifest, Error> {
    Ok(Manifest {
        schema: MANIFEST_SCHEMA,
        program: concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_string(),
        pipeline: name.to_string(),
        row_key: resolved.row_key.clone(),
        columns: resolved.output_columns(),
        types: if file.output.format.is_typed() { resolved.output_types() } else { Vec::new() },
        rows_in: resolved.rows.end - resolved.rows.start,
        wanted: file.rows.wanted,
        row_group_size: file.run.row_group_size.get(),
        first_row: resolved.rows.start,
        // With their number, because more rows move the boundaries of the parts.
        partition: partition.map(|partition| format!("{partition} of {} rows", resolved.dataset.rows())),
        format: file.output.format,
        identity: identity(file, resolved)?,
        done: DoneRowGroups::default(),
        exports: BTreeSet::new(),
        totals: JobTotals::default(),
        state: RunState::Running,
    })
}

/// Returns what identifies a model to the rows that it fills: `provider/model`, or a hash of its command or
/// URL, which may hold a secret.
fn model_identity(model: &ModelSpec) -> String {
    let ModelSpec { provider, model: id, endpoint, extras, .. } = model;
    match endpoint {
        Endpoint::Command { argv, .. } => sha256(&format!("{argv:?}")),
        Endpoint::Http { url, .. } => sha256(url.as_str()),
        Endpoint::Remote { .. } | Endpoint::Mock(_) | Endpoint::SameMock if extras.body.is_empty() => {
            format!("{provider}/{id}")
        }
        Endpoint::Remote { .. } | Endpoint::Mock(_) | Endpoint::SameMock => {
            format!("{provider}/{id} with {}", sha256(&Value::from(extras.body.clone()).to_string()))
        }
    }
}

/// Returns what identifies each of these tools to the rows that are filled with it.
fn tool_identities(file: &PipelineFile, tools: &[usize]) -> impl Iterator<Item = String> {
    tools.iter().filter_map(|at| file.tools.get(*at)).map(|ToolSpec { name, description, parameters, argv, .. }| {
        format!("\n{name}\n{description}\n{}\n{argv:?}", parameters.get_ref())
    })
}

/// Returns everything that the rows of a run depend on.
fn identity(file: &PipelineFile, resolved: &ResolvedPipeline) -> Result<Identity, Error> {
    // The order of keys and the layout of the file do not matter.
    let document: toml::Table =
        toml::from_str(file.source.text()).map_err(|error| Error::Internal(error.to_string()))?;
    let tables = document.get("columns").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let column = |(index, (column, table)): (usize, (&ColumnSpec, &toml::Value))| {
        // A schema may be in a file of its own, so the table alone does not identify it.
        let schema = column.kind.schema().map_or(String::new(), |schema| schema.get_ref().to_string());
        let tools: String =
            column.kind.chat().into_iter().flat_map(|call| tool_identities(file, &call.tools)).collect();
        (column.name.get_ref().clone(), sha256(&format!("{index}\n{}\n{schema}{tools}", sorted(table))))
    };
    let columns = file.columns.iter().zip(tables).enumerate().map(column).collect();
    // Only models that columns call.
    let called = called_models(file).into_iter().map(|index| &file.models[index]);
    let models = called.map(|model| (model.name.clone(), model_identity(model))).collect();
    let FileDigest { sha256: dataset, bytes: dataset_bytes } = resolved.dataset.digest().clone();
    let is_shuffled = file.rows.dataset.as_ref().is_some_and(|seed| seed.shuffle);
    let encoding = file.rows.dataset.as_ref().and_then(|seed| seed.encoding);
    let dataset_encoding = encoding.filter(|encoding| *encoding != UTF_8).map(|encoding| encoding.name().to_string());
    let dataset_address = file.rows.dataset.as_ref().and_then(|seed| match &seed.location {
        DatasetLocation::Remote(remote) => Some(remote.shown()),
        DatasetLocation::Local(_) => None,
    });
    Ok(Identity {
        dataset,
        dataset_bytes,
        dataset_encoding,
        dataset_address,
        is_shuffled,
        seed: file.run.seed,
        columns,
        models,
    })
}

/// Returns this value with sorted keys. A feature of `toml` that another crate of the build may turn on keeps
/// the order of the file.
fn sorted(value: &toml::Value) -> toml::Value {
    match value {
        toml::Value::Table(table) => {
            let entries: BTreeMap<_, _> = table.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            toml::Value::Table(entries.into_iter().collect())
        }
        toml::Value::Array(items) => toml::Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn sha256(text: &str) -> String {
    FileDigest::of_bytes(text.as_bytes()).sha256
}
