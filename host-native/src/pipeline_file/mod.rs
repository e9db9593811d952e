//! The pipeline file: what `tidegate run` is told, parsed into types that cannot be wrong.
//!
//! ```toml
//! [seed]                          # the dataset that the rows start from
//! path = "notes.csv"              # relative to this file
//! format = "csv"                  # csv or jsonl; default: by the file's extension
//!
//! [[models]]
//! name = "writer"                 # what columns call it
//! provider = "some-provider"      # admission is per provider and model; `mock` is served in this process
//! model = "some-model-id"         # default: the name
//! base_url = "https://host/v1"    # of an OpenAI-compatible endpoint; not for `mock`
//! api_key_env = "PROVIDER_KEY"    # the environment variable that holds the key; default: no key
//! domain = "chat"                 # default: chat, the only domain so far
//! max_parallel = 16               # calls in flight at most
//! timeout = "60s"                 # per call, body included; default: 60s
//! limit = "aimd"                  # what decides how many are in flight: aimd, vegas, tide or fixed
//! aimd = { ramp = "3s" }          # initial_limit, max_limit, decrease_factor, increase_step,
//!                                 # successes_until_increase, cooldown, max_cooldown, ramp
//! mock = { capacity = { shape = "constant", slots = 8 } }     # how a `mock` provider behaves, and its `seed`
//!
//! [[columns]]
//! name = "title"                  # the output column
//! kind = "llm"                    # llm (a model's answer) or expression (the template's text); default: llm
//! model = "writer"                # llm only
//! prompt = "A title for: {{ note }}"      # llm only; `system`, `temperature` and `max_tokens` go along
//! template = "{{ title | upper }}"        # expression only
//! strategy = "cell"               # cell (a task per row), full_column (a task per row group, one value for all
//!                                 # its rows) or from_scratch (the same, with nothing upstream); default: cell
//! upstreams = ["note"]            # columns to wait for besides those that the templates name
//! weight = 1.0                    # its share of a contended model, 2^-20 to 2^20; default: 1
//!
//! [run]                           # every key has a default
//! row_group_size = 32             # rows that are written together
//! row_groups = 3                  # row groups in work at once
//! adaptive_row_groups = false     # let a control loop choose how many, up to `row_groups`
//! policy = "bounded_borrow"       # when a column may start more than its share; or strict_fair
//! pressure_advisory = true        # start tasks that could call at once before those that would wait
//! yield_while_waiting = true      # a task that waits for its model gives its worker slot back
//! submission_limit = 1024         # tasks in work at once
//! salvage_rounds = 2              # retries of a failed call; rate limits never count
//! shutdown_window = 10            # stop when of this many last outcomes ...
//! shutdown_rate = 0.5             # ... this share failed for good
//! rate_limit_patience = "10m"     # stop when a model answered nothing but rate limits for so long
//!
//! [output]
//! row_key = "row"                 # the key, and template variable, of the row number
//! ```
//!
//! A template may name any seed column, any generated column, and the row number; each generated column it names is an
//! upstream. `upstreams` adds to those, for order alone. Templates of full-column and from-scratch columns see `rows`
//! and `row_group` instead, so a full-column column lists every upstream itself.

mod columns;
pub(crate) mod models;
pub(crate) mod reader;
mod settings;
mod source;

use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use columns::{ColumnKind, ColumnSpec, LlmCall};
pub(crate) use models::locate;
pub use models::{Endpoint, MockSpec, ModelSpec};
pub use settings::{OutputSettings, RunSettings, SeedSpec};
pub use source::{FileError, Place, SourceText};

use reader::TableReader;

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
    /// How to run.
    pub run: RunSettings,
    /// How to write.
    pub output: OutputSettings,
}

const KEYS: &[&str] = &["seed", "models", "columns", "run", "output"];

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
        let models = models::parse(&text, &root)?;
        let columns = columns::parse(&text, &root, &models)?;
        Ok(Self {
            seed: settings::parse_seed(&text, &root, directory)?,
            run: settings::parse_run(&text, &root)?,
            output: settings::parse_output(&root)?,
            models,
            columns,
            source,
        })
    }
}

/// `path` as the file at `directory` means it.
fn relative_to(directory: &Path, path: &str) -> PathBuf {
    directory.join(path)
}

#[cfg(test)]
mod tests;
