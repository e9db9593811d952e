//! The pipeline file: what `tidegate run` is told, parsed into types that cannot be wrong.
//!
//! ```toml
//! [seed]                          # the dataset that the rows start from
//! path = "notes.csv"              # relative to this file; CSV, JSONL or Parquet
//!
//! [[models]]
//! name = "writer"                 # what columns call it
//! provider = "some-provider"      # admission is per provider, model and domain; `mock` is served in this process
//! model = "some-model-id"         # default: the name
//! base_url = "https://host/v1"    # of an OpenAI-compatible endpoint; or `url` or `command` of a judge
//! api_key_env = "PROVIDER_KEY"    # the environment variable that holds the key; default: no key
//! max_parallel = 16               # calls in flight at most
//! limit = "tide"                  # what decides how many are in flight: tide, aimd, vegas or fixed; default: tide
//! budget = { tokens_per_minute = 100000 }
//! price = { input_per_million = 0.15, output_per_million = 0.6 }
//!
//! [[columns]]
//! name = "title"                  # the output column
//! kind = "llm"                    # llm, embedding, expression, sampler or judge; default: llm
//! model = "writer"
//! prompt = "A title for: {{ note }}"
//! when = "note | length > 3"      # no call where it does not hold
//!
//! [run]                           # every key has a default
//! row_group_size = 32             # rows that are written together
//!
//! [output]
//! format = "jsonl"                # or csv or parquet
//! ```
//!
//! `docs/pipeline-file.md` has every key with its range, default and meaning; [`SCHEMA`] has them for editors.

mod columns;
mod kinds;
pub(crate) mod models;
pub(crate) mod sampler;
mod settings;
pub(crate) mod structure;

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

pub use crate::app::config::reader::Setting;
pub(crate) use crate::app::config::source::locate;
pub use crate::app::config::source::{FileError, Place, SourceText};
pub use columns::ColumnSpec;
pub use kinds::{ColumnKind, EmbeddingCall, Expression, JudgeCall, LlmCall, MessageSpec, OutputForm};
pub use models::{Domain, Endpoint, MockSpec, ModelSpec, budget_name};
pub use sampler::SamplerSpec;
pub use settings::{OutputSettings, RunSettings, SeedSpec};
pub use structure::{JsonMode, Structure};

use crate::app::config::reader::{TableReader, to_json};

/// A whole pipeline file. References between its parts are resolved; references to the dataset are not yet.
#[derive(Clone, Debug)]
pub struct PipelineFile {
    /// The text, for errors that are found later.
    pub source: SourceText,
    /// Where the rows come from.
    pub seed: SeedSpec,
    /// The models, in file order.
    pub models: Vec<ModelSpec>,
    /// The columns, in file order; at least one.
    pub columns: Vec<ColumnSpec>,
    /// What prices are in.
    pub currency: String,
    /// How to run.
    pub run: RunSettings,
    /// How to write.
    pub output: OutputSettings,
}

const KEYS: &[&str] = &["seed", "models", "columns", "run", "output"];

/// The JSON Schema of pipeline files, for editors. What it cannot say, such as which columns there are, only the program
/// checks.
pub const SCHEMA: &str = include_str!("../../../../docs/pipeline.schema.json");

impl PipelineFile {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::parse(SourceText::read(path)?, path.parent().unwrap_or(Path::new("")))
    }

    /// Parses `source`; paths in it are relative to `directory`.
    pub fn parse(source: SourceText, directory: &Path) -> Result<Self, FileError> {
        let text = source.clone();
        let document = DeTable::parse(text.text()).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            text.error(span, format!("this is not TOML: {}", error.message()))
        })?;
        let root = TableReader::open(&text, "the pipeline file", KEYS, document.get_ref(), 0..0)?;
        let (models, currency) = models::parse(&text, &root, directory)?;
        let columns = columns::parse(&text, &root, &models, directory)?;
        Ok(Self {
            seed: settings::parse_seed(&text, &root, directory)?,
            run: settings::parse_run(&text, &root)?,
            output: settings::parse_output(&root)?,
            models,
            currency,
            columns,
            source,
        })
    }
}

/// The file as JSON, which is what [`SCHEMA`] describes: dates and times are text.
pub fn document(source: &SourceText) -> Result<serde_json::Value, FileError> {
    let document = DeTable::parse(source.text()).map_err(|error| {
        source.error(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()))
    })?;
    let span = document.span();
    to_json(&DeValue::Table(document.into_inner()))
        .ok_or_else(|| source.error(span, "the file holds a number that JSON cannot hold"))
}

/// `path` as the file at `directory` means it.
fn relative_to(directory: &Path, path: &str) -> PathBuf {
    directory.join(path)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_keys;
#[cfg(test)]
mod tests_schema;
