//! What the kinds of columns take, apart from [samplers](super::sampler).

use std::path::Path;

use serde_json::{Map, Value};
use toml::Spanned;

use super::models::{Domain, ModelSpec};
use super::sampler::SamplerSpec;
use super::structure::{self, Structure};
use crate::app::config::reader::{Setting, TableReader};
use crate::app::config::source::{FileError, SourceText};
use crate::app::provider::chat::Role;

/// What fills a column.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// A chat model's answer.
    Llm(Box<LlmCall>),
    /// The vector of a text.
    Embedding(EmbeddingCall),
    /// The text of a template.
    Expression(Expression),
    /// A seeded draw.
    Sampler(SamplerSpec),
    /// The verdict of a command, or of a server of one's own.
    Judge(JudgeCall),
}

impl ColumnKind {
    /// The model it calls, by its place in [`PipelineFile::models`](super::PipelineFile::models).
    #[must_use]
    pub fn model(&self) -> Option<usize> {
        match self {
            Self::Llm(call) => Some(call.model),
            Self::Embedding(call) => Some(call.model),
            Self::Judge(call) => Some(call.model),
            Self::Expression(_) | Self::Sampler(_) => None,
        }
    }

    /// What the summary says of a column without a model.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Llm(_) => "llm",
            Self::Embedding(_) => "embedding",
            Self::Expression(_) => "expression",
            Self::Sampler(_) => "sampler",
            Self::Judge(_) => "judge",
        }
    }
}

/// What a text becomes as a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputForm {
    /// The text itself.
    #[default]
    Text,
    /// The JSON value that it is.
    Json,
    /// The number that it is.
    Number,
}

const FORMS: [(&str, OutputForm); 3] =
    [("text", OutputForm::Text), ("json", OutputForm::Json), ("number", OutputForm::Number)];

/// A chat call, as templates.
#[derive(Clone, Debug)]
pub struct LlmCall {
    /// The model, by its place in [`PipelineFile::models`](super::PipelineFile::models).
    pub model: usize,
    /// The messages, each with the key it stands under.
    pub messages: Vec<MessageSpec>,
    /// Sampling temperature.
    pub temperature: Option<Setting<f64>>,
    /// The share of likelihood that is sampled from.
    pub top_p: Option<Setting<f64>>,
    /// The most tokens of an answer.
    pub max_tokens: Option<Setting<u32>>,
    /// The provider's seed.
    pub seed: Option<Setting<u64>>,
    /// Texts that end an answer, as templates.
    pub stop: Vec<Spanned<String>>,
    /// What else goes into the request; texts in it are templates.
    pub extra: Spanned<Map<String, Value>>,
    /// The tokens that an answer is estimated at.
    pub answer_tokens: Option<u32>,
    /// The form of the answer; none: any text.
    pub structure: Option<Structure>,
}

/// A message as a template.
#[derive(Clone, Debug)]
pub struct MessageSpec {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: Spanned<String>,
    /// What it is called in messages, such as `prompt`.
    pub title: String,
}

/// An embedding call.
#[derive(Clone, Debug)]
pub struct EmbeddingCall {
    /// The model, by its place in [`PipelineFile::models`](super::PipelineFile::models).
    pub model: usize,
    /// The template of the text.
    pub input: Spanned<String>,
    /// Dimensions of the vector; none: as many as the model gives.
    pub dimensions: Option<u32>,
}

/// A template whose text is the value.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The template.
    pub template: Spanned<String>,
    /// What its text becomes.
    pub output: OutputForm,
}

/// A question to a command or a server of one's own.
#[derive(Clone, Debug)]
pub struct JudgeCall {
    /// The model, by its place in [`PipelineFile::models`](super::PipelineFile::models).
    pub model: usize,
    /// The template of a text that goes along.
    pub input: Option<Spanned<String>>,
    /// The columns whose values go along.
    pub inputs: Vec<Spanned<String>>,
    /// What the answer becomes.
    pub output: OutputForm,
}

pub(super) const LLM_KEYS: &[&str] = &[
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
];
pub(super) const EMBEDDING_KEYS: &[&str] = &["model", "input", "dimensions"];
pub(super) const EXPRESSION_KEYS: &[&str] = &["template", "output"];
pub(super) const SAMPLER_KEYS: &[&str] = &["sampler"];
pub(super) const JUDGE_KEYS: &[&str] = &["model", "input", "inputs", "output"];
pub(super) const MESSAGE_KEYS: &[&str] = &["role", "content"];

/// Keys of a request that have a key of their own here, or must not be changed.
const RESERVED: [&str; 10] =
    ["model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed", "response_format", "stream", "n"];

pub(super) fn parse_llm(
    source: &SourceText,
    table: &TableReader<'_>,
    models: &[ModelSpec],
    directory: &Path,
) -> Result<LlmCall, FileError> {
    Ok(LlmCall {
        model: parse_model(source, table, models, "llm", Domain::Chat)?,
        messages: parse_messages(source, table)?,
        temperature: table.setting("temperature")?,
        top_p: table.setting("top_p")?,
        max_tokens: table.setting("max_tokens")?,
        seed: table.setting("seed")?,
        stop: parse_stop(table)?,
        extra: parse_extra(source, table)?,
        answer_tokens: table.optional("answer_tokens")?.map(Spanned::into_inner),
        structure: structure::parse(source, table, directory)?,
    })
}

/// `prompt` and `system`, or `messages`.
fn parse_messages(source: &SourceText, table: &TableReader<'_>) -> Result<Vec<MessageSpec>, FileError> {
    const ROLES: [(&str, Role); 3] = [("system", Role::System), ("user", Role::User), ("assistant", Role::Assistant)];
    let Some(list) = table.raw("messages") else {
        let named = |role, key: &str, content| MessageSpec { role, content, title: key.to_string() };
        let system = table.optional("system")?.map(|content| named(Role::System, "system", content));
        let prompt = named(Role::User, "prompt", table.required("prompt")?);
        return Ok(system.into_iter().chain([prompt]).collect());
    };
    for key in ["prompt", "system"] {
        if let Some(value) = table.raw(key) {
            return Err(source
                .error(value.span(), format!("`{key}` is given beside `messages`, which are the whole conversation"))
                .expected("`messages` alone, or `prompt` and `system` alone"));
        }
    }
    let tables = table.tables("messages", "[[columns.messages]]", MESSAGE_KEYS)?;
    if tables.is_empty() {
        return Err(source.error(list.span(), "`messages` in [[columns]] are none").expected("at least one message"));
    }
    let message = |(index, table): (usize, &TableReader<'_>)| {
        if table.raw("role").is_none() {
            return Err(table.refused("role", "`role = ` \"system\", \"user\" or \"assistant\""));
        }
        let role = table.choice("role", &ROLES, Role::User)?;
        Ok(MessageSpec { role, content: table.required("content")?, title: format!("messages[{index}]") })
    };
    tables.iter().enumerate().map(message).collect()
}

fn parse_stop(table: &TableReader<'_>) -> Result<Vec<Spanned<String>>, FileError> {
    match table.raw("stop") {
        Some(value) if value.get_ref().is_str() => Ok(table.optional("stop")?.into_iter().collect()),
        _ => Ok(table.optional("stop")?.map_or_else(Vec::new, Spanned::into_inner)),
    }
}

fn parse_extra(source: &SourceText, table: &TableReader<'_>) -> Result<Spanned<Map<String, Value>>, FileError> {
    let Some(extra) = table.optional::<Map<String, Value>>("extra")? else { return Ok(Spanned::new(0..0, Map::new())) };
    match RESERVED.iter().find(|key| extra.get_ref().contains_key(**key)) {
        Some(key) => Err(source
            .error(extra.span(), format!("`extra` in [[columns]] has `{key}`, which it cannot set"))
            .expected("keys of the request that the column has no key for")),
        None => Ok(extra),
    }
}

pub(super) fn parse_embedding(
    source: &SourceText,
    table: &TableReader<'_>,
    models: &[ModelSpec],
) -> Result<EmbeddingCall, FileError> {
    Ok(EmbeddingCall {
        model: parse_model(source, table, models, "embedding", Domain::Embedding)?,
        input: table.required("input")?,
        dimensions: table.optional_within("dimensions", 1..=1 << 20, "a whole number from 1 to 1048576")?,
    })
}

pub(super) fn parse_expression(table: &TableReader<'_>) -> Result<Expression, FileError> {
    let output = table.choice("output", &FORMS, OutputForm::Text)?;
    Ok(Expression { template: table.required("template")?, output })
}

pub(super) fn parse_judge(
    source: &SourceText,
    table: &TableReader<'_>,
    models: &[ModelSpec],
) -> Result<JudgeCall, FileError> {
    let input = table.optional::<String>("input")?;
    let inputs: Vec<Spanned<String>> = table.optional("inputs")?.map_or_else(Vec::new, Spanned::into_inner);
    if input.is_none() && inputs.is_empty() {
        return Err(source
            .error(table.span(), "[[columns]] of kind `judge` has nothing to judge")
            .expected("`input = ` a template, or `inputs = ` the columns to send, or both"));
    }
    Ok(JudgeCall {
        model: parse_model(source, table, models, "judge", Domain::Judge)?,
        input,
        inputs,
        output: table.choice("output", &FORMS, OutputForm::Json)?,
    })
}

/// The model of a column, which must be of the domain that its kind calls.
fn parse_model(
    source: &SourceText,
    table: &TableReader<'_>,
    models: &[ModelSpec],
    kind: &str,
    domain: Domain,
) -> Result<usize, FileError> {
    let name = table.required::<String>("model")?;
    let suitable = || models.iter().filter(|model| model.domain == domain).map(|model| model.name.as_str());
    let refuse = |message: String| {
        source
            .error(name.span(), message)
            .expected(match suitable().collect::<Vec<_>>().as_slice() {
                [] => format!("a [[models]] table with this name {}", domain.requirement()),
                names => format!("one of: {}", names.join(", ")),
            })
            .suggest(name.get_ref(), suitable())
    };
    let at = models.iter().position(|model| model.name == *name.get_ref());
    let at = at.ok_or_else(|| refuse(format!("there is no model `{}`", name.get_ref())))?;
    if models[at].domain != domain {
        let is = models[at].domain.name();
        return Err(refuse(format!(
            "the model `{}` has the domain `{is}`; a column of kind `{kind}` calls one of the domain `{}`",
            name.get_ref(),
            domain.name()
        )));
    }
    Ok(at)
}

/// The form of an llm column's answer, if the file says one.
pub(super) fn parse_form(table: &TableReader<'_>) -> Result<Option<OutputForm>, FileError> {
    match table.raw("output") {
        Some(_) => table.choice("output", &FORMS, OutputForm::Text).map(Some),
        None => Ok(None),
    }
}
