//! The manifest of a run, with hashes of everything that its rows depend on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use serde_json::Value;

use crate::app::config::pipeline::{ColumnKind, Endpoint, ModelSpec, PipelineFile};
use crate::app::data::DatasetError;
use crate::app::error::Error;
use crate::app::example;
use crate::app::output::{DoneRowGroups, Identity, JobTotals, MANIFEST_SCHEMA, Manifest, RunState, sha256_hex};
use crate::app::run::models::called_models;
use crate::app::run::resolve::ResolvedPipeline;

/// Returns the manifest of a run that starts now.
pub(super) fn manifest(
    name: &str,
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    is_example: bool,
) -> Result<Manifest, Error> {
    Ok(Manifest {
        schema: MANIFEST_SCHEMA,
        program: concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_string(),
        pipeline: name.to_string(),
        row_key: resolved.row_key.clone(),
        columns: resolved.output_columns(),
        types: if file.output.format.is_typed() { resolved.output_types() } else { Vec::new() },
        rows_in: resolved.rows.end - resolved.rows.start,
        row_group_size: file.run.row_group_size.get(),
        first_row: resolved.rows.start,
        format: file.output.format,
        identity: identity(file, is_example)?,
        done: DoneRowGroups::default(),
        totals: JobTotals::default(),
        state: RunState::Running,
    })
}

/// Returns what identifies a model to the rows that it fills: `provider/model`, or a hash of its command or
/// URL, which may hold a secret.
fn model_identity(model: &ModelSpec) -> io::Result<String> {
    let ModelSpec { provider, model: id, endpoint, extras, .. } = model;
    let hashed = |text: String| sha256_hex(text.as_bytes()).map(|(hash, _)| hash);
    match endpoint {
        Endpoint::Command { argv, .. } => hashed(format!("{argv:?}")),
        Endpoint::Http { url, .. } => hashed(url.to_string()),
        Endpoint::Remote { .. } | Endpoint::Mock(_) | Endpoint::SameMock if extras.body.is_empty() => {
            Ok(format!("{provider}/{id}"))
        }
        Endpoint::Remote { .. } | Endpoint::Mock(_) | Endpoint::SameMock => {
            Ok(format!("{provider}/{id} with {}", hashed(Value::from(extras.body.clone()).to_string())?))
        }
    }
}

/// Returns hashes of everything that the rows of a run depend on.
fn identity(file: &PipelineFile, is_example: bool) -> Result<Identity, Error> {
    // A sorted table, so that the order of keys and the layout of the file do not matter.
    let document: toml::Table =
        toml::from_str(file.source.text()).map_err(|error| Error::Internal(error.to_string()))?;
    let tables = document.get("columns").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let unreadable = |error: io::Error| Error::from(DatasetError::unreadable(&file.seed.path, &error));
    let mut columns = BTreeMap::new();
    for (index, (column, table)) in file.columns.iter().zip(tables).enumerate() {
        // A schema may be in a file of its own, so the table alone does not identify it.
        let schema = match &column.kind {
            ColumnKind::Llm(call) => call.structure.as_ref().and_then(|structure| structure.schema.as_ref()),
            _ => None,
        };
        let schema = schema.map_or(String::new(), |schema| schema.get_ref().to_string());
        let (hash, _) = sha256_hex(format!("{index}\n{table}\n{schema}").as_bytes()).map_err(unreadable)?;
        columns.insert(column.name.get_ref().clone(), hash);
    }
    // Only models that columns call.
    let models =
        called_models(file).into_iter().map(|at| Ok((file.models[at].name.clone(), model_identity(&file.models[at])?)));
    let models = models.collect::<io::Result<_>>().map_err(unreadable)?;
    let hashed = if is_example {
        sha256_hex(example::dataset_bytes())
    } else {
        sha256_hex(File::open(&file.seed.path).map_err(unreadable)?)
    };
    let (dataset, dataset_bytes) = hashed.map_err(unreadable)?;
    Ok(Identity { dataset, dataset_bytes, seed: file.run.seed, columns, models })
}
