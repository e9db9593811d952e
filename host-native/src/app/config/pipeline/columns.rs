//! The tables `[[columns]]`: what all kinds share. What each kind takes is in [`kinds`](super::kinds).

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::pipeline::Strategy;
use toml::Spanned;

use super::kinds::{self, ColumnKind, EMBEDDING_KEYS, EXPRESSION_KEYS, JUDGE_KEYS, LLM_KEYS, SAMPLER_KEYS};
use super::models::ModelSpec;
use crate::app::config::reader::TableReader;
use crate::app::config::source::{FileError, SourceText};

/// One `[[columns]]` table.
#[derive(Clone, Debug)]
pub struct ColumnSpec {
    /// The output column.
    pub name: Spanned<String>,
    /// What fills it.
    pub kind: ColumnKind,
    /// How many tasks it takes.
    pub strategy: Strategy,
    /// Columns to wait for besides those that the templates name.
    pub upstreams: Vec<Spanned<String>>,
    /// Its share of a contended model.
    pub weight: Spanned<f64>,
    /// The condition under which it is made.
    pub when: Option<Spanned<String>>,
    /// Its value where it is skipped \[null\].
    pub otherwise: Value,
    /// Whether it is skipped where a column it reads was \[no\].
    pub skip_with_upstream: bool,
}

impl ColumnSpec {
    /// Where the column's name stands.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.name.span()
    }
}

/// Keys of every kind.
const COMMON_KEYS: &[&str] =
    &["name", "kind", "strategy", "upstreams", "weight", "when", "otherwise", "skip_with_upstream"];

/// The keys of all kinds together.
pub(super) const COLUMN_KEYS: &[&str] = &[
    "name",
    "kind",
    "strategy",
    "upstreams",
    "weight",
    "when",
    "otherwise",
    "skip_with_upstream",
    "model",
    "prompt",
    "system",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
    "extra",
    "answer_tokens",
    "output",
    "schema",
    "schema_file",
    "json_mode",
    "schema_retries",
    "input",
    "dimensions",
    "template",
    "sampler",
    "inputs",
];

/// A kind by its name, with the keys that it alone takes, and how they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindName {
    Llm,
    Embedding,
    Expression,
    Sampler,
    Judge,
}

const KINDS: [(&str, KindName); 5] = [
    ("llm", KindName::Llm),
    ("embedding", KindName::Embedding),
    ("expression", KindName::Expression),
    ("sampler", KindName::Sampler),
    ("judge", KindName::Judge),
];

impl KindName {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Llm => LLM_KEYS,
            Self::Embedding => EMBEDDING_KEYS,
            Self::Expression => EXPRESSION_KEYS,
            Self::Sampler => SAMPLER_KEYS,
            Self::Judge => JUDGE_KEYS,
        }
    }
}

pub(super) fn parse(
    source: &SourceText,
    root: &TableReader<'_>,
    models: &[ModelSpec],
    directory: &Path,
) -> Result<Vec<ColumnSpec>, FileError> {
    let tables = root.tables("columns", "[[columns]]", COLUMN_KEYS)?;
    if tables.is_empty() {
        return Err(source.error(0..0, "the pipeline file has no [[columns]]").expected("at least one column"));
    }
    tables.iter().map(|table| parse_column(source, table, models, directory)).collect()
}

fn parse_column(
    source: &SourceText,
    table: &TableReader<'_>,
    models: &[ModelSpec],
    directory: &Path,
) -> Result<ColumnSpec, FileError> {
    let kind = table.choice("kind", &KINDS, KindName::Llm)?;
    refuse_other_keys(source, table, kind)?;
    let kind = match kind {
        KindName::Llm => ColumnKind::Llm(Box::new(kinds::parse_llm(source, table, models, directory)?)),
        KindName::Embedding => ColumnKind::Embedding(kinds::parse_embedding(source, table, models)?),
        KindName::Expression => ColumnKind::Expression(kinds::parse_expression(table)?),
        KindName::Sampler => ColumnKind::Sampler(super::sampler::parse(source, table)?),
        KindName::Judge => ColumnKind::Judge(kinds::parse_judge(source, table, models)?),
    };
    let strategies =
        [("cell", Strategy::Cell), ("full_column", Strategy::FullColumn), ("from_scratch", Strategy::FromScratch)];
    let strategy = table.choice("strategy", &strategies, Strategy::Cell)?;
    refuse_group_sampler(source, table, &kind, strategy)?;
    let upstreams: Option<Spanned<Vec<Spanned<String>>>> = table.optional("upstreams")?;
    if let (Strategy::FromScratch, Some(upstreams)) = (strategy, &upstreams) {
        let message = "a from_scratch column has nothing upstream";
        return Err(source
            .error(upstreams.span(), message)
            .expected("no `upstreams`, or `strategy = \"full_column\"`"));
    }
    let name = table.required::<String>("name")?;
    let weight = table.optional::<f64>("weight")?.unwrap_or_else(|| Spanned::new(name.span(), 1.0));
    if !(MIN_WEIGHT..=MAX_WEIGHT).contains(weight.get_ref()) {
        let message = format!("`weight` in [[columns]] is {}", weight.get_ref());
        return Err(source.error(weight.span(), message).expected("a number from 2^-20 to 2^20"));
    }
    let (when, otherwise) = parse_condition(source, table)?;
    let skip_with_upstream = table.or("skip_with_upstream", false)?;
    let upstreams = upstreams.map_or_else(Vec::new, Spanned::into_inner);
    Ok(ColumnSpec { name, kind, strategy, upstreams, weight, when, otherwise, skip_with_upstream })
}

/// A draw belongs to a row: one for a whole row group would change with the size of row groups.
fn refuse_group_sampler(
    source: &SourceText,
    table: &TableReader<'_>,
    kind: &ColumnKind,
    strategy: Strategy,
) -> Result<(), FileError> {
    match (kind, table.raw("strategy")) {
        (ColumnKind::Sampler(_), Some(given)) if strategy != Strategy::Cell => {
            let name = given.get_ref().as_str().unwrap_or_default();
            let message = format!("`strategy` in [[columns]] is {name:?}, and a sampler draws for each row");
            Err(source.error(given.span(), message).expected("`strategy = \"cell\"`, or no `strategy`"))
        }
        _ => Ok(()),
    }
}

fn parse_condition(
    source: &SourceText,
    table: &TableReader<'_>,
) -> Result<(Option<Spanned<String>>, Value), FileError> {
    let when = table.optional::<String>("when")?;
    let otherwise = table.optional::<Value>("otherwise")?;
    let can_skip = when.is_some() || table.raw("skip_with_upstream").is_some();
    match (can_skip, otherwise) {
        (false, Some(otherwise)) => Err(source
            .error(otherwise.span(), "`otherwise` in [[columns]] says what there is where a condition does not hold")
            .expected("`when = ` the condition beside it, or `skip_with_upstream`")),
        (_, otherwise) => Ok((when, otherwise.map_or(Value::Null, Spanned::into_inner))),
    }
}

/// Refuses a key that means nothing to columns of this kind.
fn refuse_other_keys(source: &SourceText, table: &TableReader<'_>, kind: KindName) -> Result<(), FileError> {
    let is_foreign = |key: &&&str| !COMMON_KEYS.contains(key) && !kind.keys().contains(key);
    match COLUMN_KEYS.iter().filter(is_foreign).find_map(|key| Some((key, table.raw(key)?))) {
        Some((key, value)) => Err(source
            .error(value.span(), format!("`{key}` is given for a column of kind `{}`", kind.name()))
            .expected(format!("of the keys that not every kind has only: {}", kind.keys().join(", ")))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_all_kinds_are_those_of_each_together() {
        let kinds = KINDS.iter().flat_map(|(_, kind)| kind.keys());
        let mut all: Vec<&str> = COMMON_KEYS.iter().chain(kinds).copied().collect();
        let mut known = COLUMN_KEYS.to_vec();
        for list in [&mut all, &mut known] {
            list.sort_unstable();
            list.dedup();
        }
        assert_eq!(all, known);
        assert_eq!(known.len(), COLUMN_KEYS.len(), "a key is there twice");
    }
}
