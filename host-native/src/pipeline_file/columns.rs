//! The tables `[[columns]]`.

use std::ops::Range;

use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::pipeline::Strategy;
use toml::Spanned;

use super::models::ModelSpec;
use super::reader::TableReader;
use super::source::{FileError, SourceText};

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
}

/// What fills a column.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// A model's answer.
    Llm(LlmCall),
    /// The text of a template.
    Expression {
        /// The template.
        template: Spanned<String>,
    },
}

/// A chat call, as templates.
#[derive(Clone, Debug)]
pub struct LlmCall {
    /// The model, by its place in [`PipelineFile::models`](super::PipelineFile::models).
    pub model: usize,
    /// The template of the user message.
    pub prompt: Spanned<String>,
    /// The template of the system message.
    pub system: Option<Spanned<String>>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens of an answer.
    pub max_tokens: Option<u32>,
}

impl ColumnSpec {
    /// The templates, each with the key it stands under.
    pub fn templates(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        let (first, second) = match &self.kind {
            ColumnKind::Llm(call) => (("prompt", &call.prompt), call.system.as_ref().map(|system| ("system", system))),
            ColumnKind::Expression { template } => (("template", template), None),
        };
        std::iter::once(first).chain(second)
    }

    /// Where the column's name stands.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.name.span()
    }
}

const COLUMN_KEYS: &[&str] = &[
    "name",
    "kind",
    "strategy",
    "model",
    "prompt",
    "system",
    "temperature",
    "max_tokens",
    "template",
    "upstreams",
    "weight",
];

/// Keys that mean nothing to the other kind.
const LLM_ONLY: &[&str] = &["model", "prompt", "system", "temperature", "max_tokens"];
const EXPRESSION_ONLY: &[&str] = &["template"];

pub(super) fn parse(
    source: &SourceText,
    root: &TableReader<'_>,
    models: &[ModelSpec],
) -> Result<Vec<ColumnSpec>, FileError> {
    let tables = root.tables("columns", "[[columns]]", COLUMN_KEYS)?;
    if tables.is_empty() {
        return Err(source.error(0..0, "the pipeline file has no [[columns]]").expected("at least one column"));
    }
    tables.iter().map(|table| parse_column(source, table, models)).collect()
}

fn parse_column(source: &SourceText, table: &TableReader<'_>, models: &[ModelSpec]) -> Result<ColumnSpec, FileError> {
    let kind = word(source, table, "kind", &[("llm", true), ("expression", false)], true)?;
    let refuse_keys = |keys: &[&'static str], kind: &str| match keys.iter().find_map(|key| Some((key, table.raw(key)?)))
    {
        Some((key, value)) => {
            Err(source.error(value.span(), format!("`{key}` is given for a column of kind `{kind}`")))
        }
        None => Ok(()),
    };
    let kind = if kind {
        refuse_keys(EXPRESSION_ONLY, "llm")?;
        ColumnKind::Llm(parse_call(source, table, models)?)
    } else {
        refuse_keys(LLM_ONLY, "expression")?;
        ColumnKind::Expression { template: table.required("template")? }
    };
    let strategies =
        [("cell", Strategy::Cell), ("full_column", Strategy::FullColumn), ("from_scratch", Strategy::FromScratch)];
    let strategy = word(source, table, "strategy", &strategies, Strategy::Cell)?;
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
    let upstreams = upstreams.map_or_else(Vec::new, Spanned::into_inner);
    Ok(ColumnSpec { name, kind, strategy, upstreams, weight })
}

fn parse_call(source: &SourceText, table: &TableReader<'_>, models: &[ModelSpec]) -> Result<LlmCall, FileError> {
    let name = table.required::<String>("model")?;
    let names = || models.iter().map(|model| model.name.as_str());
    let model = names().position(|model| model == name.get_ref()).ok_or_else(|| {
        source
            .error(name.span(), format!("there is no model `{}`", name.get_ref()))
            .expected(match models {
                [] => "a [[models]] table with this name".to_string(),
                _ => format!("one of: {}", names().collect::<Vec<_>>().join(", ")),
            })
            .suggest(name.get_ref(), names())
    })?;
    Ok(LlmCall {
        model,
        prompt: table.required("prompt")?,
        system: table.optional("system")?,
        temperature: table.optional("temperature")?.map(Spanned::into_inner),
        max_tokens: table.optional("max_tokens")?.map(Spanned::into_inner),
    })
}

/// The meaning of the word under `key`, which must be one of `words`.
fn word<T: Copy>(
    source: &SourceText,
    table: &TableReader<'_>,
    key: &'static str,
    words: &[(&'static str, T)],
    default: T,
) -> Result<T, FileError> {
    let Some(given) = table.optional::<String>(key)? else { return Ok(default) };
    if let Some((_, meaning)) = words.iter().find(|(word, _)| word == given.get_ref()) {
        return Ok(*meaning);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(source
        .error(given.span(), format!("`{key}` in [[columns]] is the string {:?}", given.get_ref()))
        .expected(format!("one of: {}", known.join(", ")))
        .suggest(given.get_ref(), known))
}
