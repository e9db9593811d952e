//! The pipeline file, the input of `tidegate run`, parsed into validated types.
//!
//! ```toml
//! [seed]                          # the dataset; without one, `rows` in [run] is the number of rows
//! path = "notes.csv"              # relative to this file; CSV, JSONL or Parquet
//!
//! [[models]]
//! name = "writer"                 # the name that columns use
//! provider = "some-provider"      # limits are per provider, model and domain; `mock` runs in this process
//! model = "some-model-id"         # default: the name
//! base_url = "https://host/v1"    # an OpenAI-compatible endpoint; a judge has `url` or `command`
//! api_key_env = "PROVIDER_KEY"    # the environment variable that holds the key; default: no key
//! max_parallel = 16               # maximum calls in flight
//! limit = "tide"                  # the limit algorithm: tide, aimd, vegas or fixed; default: tide
//! budgets = { tokens_per_minute = 100000 }
//! price = { input_per_million = 0.15, output_per_million = 0.6 }
//! query = { "api-version" = "v1" }  # also `extra_headers` and `extra_body`
//!
//! [[columns]]
//! name = "title"                  # the output column
//! kind = "llm"                    # llm, score, embedding, expression, sampler, judge, ...; default: llm
//! model = "writer"
//! prompt = "A title for: {{ note }}"
//! when = "note | length > 3"      # rows where it is false are skipped
//!
//! [run]                           # every key has a default
//! row_group_size = 32             # rows that are written together
//!
//! [output]
//! format = "jsonl"                # or csv or parquet
//! ```
//! `docs/pipeline-file.md` documents the range, default and meaning of every key. [`schema`] returns them for
//! editors.
//!
//! The modules form layers: `names` and `raw` are what is read, `spec` has the checked types, and `check`
//! converts the one to the other.

mod check;
mod names;
mod raw;
mod spec;

use std::path::Path;

pub use crate::app::config::budgets::budget_name;
use crate::app::config::document::Document;
use crate::app::config::schema::schema_text;
use crate::app::config::share::ShareTable;
pub use crate::app::config::source::{FileError, Place, SourceText};
pub use crate::app::config::value::Setting;
use crate::app::config::value::{Json, Table};
use check::{columns, models, settings, tools};
pub use names::{CallMode, Domain, JsonMode, Locale, OutputForm};
use raw::RawPipeline;
pub use spec::{
    ColumnKind, ColumnSpec, DatasetLocation, EmbeddingCall, Endpoint, Expression, ExtraValue, ImageCall, JudgeCall,
    LawSpec, LlmCall, MessageSpec, MockSpec, ModelSpec, OutputColumnSpec, OutputSettings, RemoteFile, RequestExtras,
    RowSource, RunSettings, SamplerSpec, SeedSpec, Structure, ToolSpec, UniqueSpec, Validation, ValidationCheck,
};

/// A parsed pipeline file. References between its parts are resolved; references to the dataset are not.
#[derive(Clone, Debug)]
pub struct PipelineFile {
    /// The text of the file, for errors that are found later.
    pub source: SourceText,
    /// Where rows come from.
    pub rows: RowSource,
    /// The models, in file order.
    pub models: Vec<ModelSpec>,
    /// The tools that columns may offer, in file order.
    pub tools: Vec<ToolSpec>,
    /// The columns, in file order; at least one.
    pub columns: Vec<ColumnSpec>,
    /// The currency of prices.
    pub currency: String,
    /// The settings of the run.
    pub run: RunSettings,
    /// The settings of the output.
    pub output: OutputSettings,
    /// The processes with which limits are shared; `None` if they are not shared.
    pub share: Option<ShareTable>,
}

/// Returns the JSON Schema of pipeline files, for editors.
///
/// Rules that a schema cannot express, such as references between columns, are checked only by the program.
#[must_use]
pub fn schema() -> String {
    schema_text::<RawPipeline>("A pipeline file of tidegate")
}

/// The name of the file in messages.
const TITLE: &str = "the pipeline file";

impl PipelineFile {
    /// Returns a line for each model whose requests have more than what the program sets. Values of
    /// environment variables are left out.
    #[must_use]
    pub fn describe_extras(&self) -> String {
        let models = self.models.iter().filter(|model| model.extras != RequestExtras::default());
        let line = |model: &ModelSpec| format!("requests to `{}` have also: {}\n", model.name, model.extras);
        models.map(line).collect::<Vec<_>>().concat()
    }

    /// Returns whether columns have requests that go in batches.
    #[must_use]
    pub fn has_batches(&self) -> bool {
        self.batch_columns().next().is_some()
    }

    /// Returns a line for each column whose requests go in batches.
    #[must_use]
    pub fn describe_batches(&self) -> String {
        let groups = self.run.row_groups;
        let line = |(name, model, size): (&str, &ModelSpec, u32)| {
            let rows = size.min(self.run.row_group_size.get());
            format!(
                "`{name}` goes to `{}` in batches of up to {rows} rows of a row group, with {groups} row groups at a \
                 time; each may take 24 hours\n",
                model.name
            )
        };
        self.batch_columns().map(line).collect::<Vec<_>>().concat()
    }

    /// Returns the name, the model and the batch size of each column whose requests go in batches.
    fn batch_columns(&self) -> impl Iterator<Item = (&str, &ModelSpec, u32)> {
        self.columns.iter().filter_map(|column| {
            let call = column.kind.chat()?;
            let model = self.models.get(call.model).filter(|model| model.mode == CallMode::Batch)?;
            Some((column.name.get_ref().as_str(), model, call.batch_size))
        })
    }

    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::parse(SourceText::read(path)?, path.parent().unwrap_or(Path::new("")))
    }

    /// Parses `source`. Paths in it are relative to `directory`.
    pub fn parse(source: SourceText, directory: &Path) -> Result<Self, FileError> {
        let text = source.clone();
        let file = Document::parse(&text, TITLE)?;
        let RawPipeline { seed, models, tools, columns, run: Table(mut run), output: Table(output), share } =
            file.read_described()?;
        let (models, currency) = models::check(&file, models, directory)?;
        let tools = tools::check(&file, tools, directory)?;
        let accepts = columns.iter().any(|column| column.get().0.accept_if.is_some());
        let rows = settings::check_rows(&file, seed, &mut run, accepts, directory)?;
        let columns = columns::check(&file, columns, &models, &tools, directory)?;
        Ok(Self {
            rows,
            run: settings::run_settings(run, &columns, &models),
            columns,
            models,
            tools,
            currency,
            output: settings::check_output(&file, output)?,
            share: share.map(|Table(share)| share.check(&file, directory)).transpose()?,
            source,
        })
    }
}

/// Returns the file as JSON, in the form that [`schema`] describes. Dates and times are strings.
pub fn document(source: &SourceText) -> Result<serde_json::Value, FileError> {
    let Json(value) = Document::parse(source, TITLE)?.read()?;
    Ok(value)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_keys;
#[cfg(test)]
mod tests_schema;
