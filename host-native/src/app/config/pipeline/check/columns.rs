//! Checks the tables `[[columns]]`: the keys that all kinds share. The keys of each kind are in
//! [`kinds`](super::kinds).

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::pipeline::Strategy;
use toml::Spanned;

use super::kinds;
use crate::app::config::document::Document;
use crate::app::config::pipeline::names::KindName;
use crate::app::config::pipeline::raw::RawColumn;
use crate::app::config::pipeline::spec::{ColumnSpec, ModelSpec, ToolSpec};
use crate::app::config::source::FileError;
use crate::app::config::value::{Json, Table, WithSpan};

/// The keys that every kind has.
const COMMON_KEYS: &[&str] = &[
    "name",
    "kind",
    "strategy",
    "upstreams",
    "weight",
    "when",
    "accept_if",
    "otherwise",
    "skip_with_upstream",
    "drop",
];

/// The keys of the kinds that call a chat model.
const CHAT_KEYS: &[&str] = &[
    "model",
    "models",
    "fallback_on",
    "prompt",
    "system",
    "images",
    "audio",
    "temperature",
    "top_p",
    "max_tokens",
    "retry_max_tokens",
    "keep_truncated",
    "seed",
    "extra",
    "tools",
    "max_turns",
    "answer_tokens",
    "json_mode",
    "schema_retries",
    "batch_size",
];

impl KindName {
    /// Returns the keys of this kind that not every kind has.
    fn keys(self) -> Vec<&'static str> {
        let (common, own): (&[&str], &[&str]) = match self {
            Self::Llm => (CHAT_KEYS, &["messages", "stop", "output", "schema", "schema_file"]),
            Self::Score => (CHAT_KEYS, &["criteria"]),
            Self::Embedding => (&[], &["model", "input", "dimensions", "batch_size"]),
            Self::Image => (&[], &["model", "prompt", "size", "extra", "answer_tokens"]),
            Self::Expression => (&[], &["template", "output"]),
            Self::Sampler => (&[], &["sampler"]),
            Self::Judge => (&[], &["model", "input", "inputs", "output"]),
            Self::Validation => (&[], &["input", "schema", "schema_file", "model", "invalid_exit_codes"]),
            Self::Reasoning | Self::Model => (&[], &["of"]),
        };
        [common, own].concat()
    }
}

/// Validates the columns. Returns an error if there are none.
pub(crate) fn check(
    file: &Document<'_>,
    raw: Vec<WithSpan<Table<RawColumn>>>,
    models: &[ModelSpec],
    tools: &[ToolSpec],
    directory: &Path,
) -> Result<Vec<ColumnSpec>, FileError> {
    if raw.is_empty() {
        return Err(file.error(0..0, "the pipeline file has no [[columns]]").expected("at least one column"));
    }
    raw.into_iter().map(|raw| check_column(file, raw, models, tools, directory)).collect()
}

fn check_column(
    file: &Document<'_>,
    raw: WithSpan<Table<RawColumn>>,
    models: &[ModelSpec],
    tools: &[ToolSpec],
    directory: &Path,
) -> Result<ColumnSpec, FileError> {
    let table = raw.span();
    let Table(mut raw) = raw.into_inner();
    reject_foreign_keys(file, &table, raw.kind)?;
    let strategy = check_strategy(file, &raw)?;
    let (when, otherwise) = check_condition(file, &mut raw)?;
    let accept_if = raw.accept_if.take().map(WithSpan::spanned);
    if let Some(accept_if) = &accept_if
        && strategy != Strategy::Cell
    {
        let message = "`accept_if` in [[columns]] decides about a row, but this column is made for whole row groups";
        return Err(file.error(accept_if.span(), message).expected("`strategy = \"cell\"`, or no `strategy`"));
    }
    let weight = raw.weight.take().map_or_else(|| Spanned::new(raw.name.span(), 1.0), WithSpan::spanned);
    if !(MIN_WEIGHT..=MAX_WEIGHT).contains(weight.get_ref()) {
        return Err(file.wrong(weight.span(), "a number from 2^-20 to 2^20"));
    }
    let upstreams = raw.upstreams.take().map_or_else(Vec::new, WithSpan::into_inner);
    Ok(ColumnSpec {
        name: raw.name.clone().spanned(),
        strategy,
        upstreams: upstreams.into_iter().map(WithSpan::spanned).collect(),
        weight,
        when,
        accept_if,
        otherwise,
        skip_with_upstream: raw.skip_with_upstream.unwrap_or(false),
        is_written: !raw.drop.unwrap_or(false),
        kind: kinds::check(file, &table, raw, models, tools, directory)?,
    })
}

fn check_strategy(file: &Document<'_>, raw: &RawColumn) -> Result<Strategy, FileError> {
    let Some(given) = &raw.strategy else { return Ok(Strategy::Cell) };
    let strategy = Strategy::from(*given.get());
    // Sampler values belong to rows. A value for a whole row group would change with the size of row groups.
    if raw.kind == KindName::Sampler && strategy != Strategy::Cell {
        let error = file.wrong(given.span(), "`strategy = \"cell\"`, or no `strategy`");
        return Err(error.help("a sampler draws for each row"));
    }
    match &raw.upstreams {
        Some(upstreams) if strategy == Strategy::FromScratch => Err(file
            .error(upstreams.span(), "a from_scratch column has nothing upstream")
            .expected("no `upstreams`, or `strategy = \"full_column\"`")),
        _ => Ok(strategy),
    }
}

fn check_condition(file: &Document<'_>, raw: &mut RawColumn) -> Result<(Option<Spanned<String>>, Value), FileError> {
    let can_skip = raw.when.is_some() || raw.skip_with_upstream.is_some();
    match raw.otherwise.take() {
        Some(otherwise) if !can_skip => Err(file
            .error(otherwise.span(), "`otherwise` in [[columns]] has no effect without a condition")
            .expected("`when = ` the condition beside it, or `skip_with_upstream`")),
        otherwise => {
            let otherwise = otherwise.map_or(Value::Null, |otherwise| {
                let Json(value) = otherwise.into_inner();
                value
            });
            Ok((raw.when.take().map(WithSpan::spanned), otherwise))
        }
    }
}

/// Returns an error if the column has a key that its kind does not have.
fn reject_foreign_keys(file: &Document<'_>, table: &Range<usize>, kind: KindName) -> Result<(), FileError> {
    let is_foreign = |key: &&str| !COMMON_KEYS.contains(key) && !kind.keys().contains(key);
    match file.keys(table).into_iter().find(|key| is_foreign(key.get_ref())) {
        Some(key) => Err(file
            .error(key.span(), format!("`{}` is given for a column of kind `{}`", key.get_ref(), kind.name()))
            .expected(format!("besides the common keys only: {}", kind.keys().join(", ")))),
        None => Ok(()),
    }
}
