//! What the kinds of columns take, apart from [samplers](super::sampler).

use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::models::{Domain, ModelSpec};
use super::raw::{KindName, RawColumn, RawMessage};
use super::sampler::{self, SamplerSpec};
use super::structure::{self, Structure};
use crate::app::config::document::Document;
use crate::app::config::source::FileError;
use crate::app::config::value::{At, JsonTable, Setting, Table, Text};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputForm {
    /// The text itself.
    #[default]
    Text,
    /// The JSON value that it is.
    Json,
    /// The number that it is.
    Number,
}

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

/// Keys of a request that have a key of their own here, or must not be changed.
const RESERVED: [&str; 10] =
    ["model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed", "response_format", "stream", "n"];

/// The largest vector.
const MAX_DIMENSIONS: u32 = 1 << 20;

/// What the column in `table` takes.
pub(super) fn check(
    file: &Document<'_>,
    table: &Range<usize>,
    raw: RawColumn,
    models: &[ModelSpec],
    directory: &Path,
) -> Result<ColumnKind, FileError> {
    let column = Column { file, table, models, kind: raw.kind };
    Ok(match raw.kind {
        KindName::Llm => ColumnKind::Llm(Box::new(column.llm(raw, directory)?)),
        KindName::Embedding => ColumnKind::Embedding(column.embedding(raw)?),
        KindName::Expression => ColumnKind::Expression(Expression {
            template: column.required("template", "a template", raw.template)?,
            output: raw.output.map_or(OutputForm::Text, At::into_inner),
        }),
        KindName::Sampler => ColumnKind::Sampler(sampler::check(file, table, raw.sampler)?),
        KindName::Judge => ColumnKind::Judge(column.judge(raw)?),
    })
}

/// What a column is read with.
struct Column<'a, 't> {
    file: &'a Document<'t>,
    /// Where the column stands.
    table: &'a Range<usize>,
    models: &'a [ModelSpec],
    kind: KindName,
}

impl Column<'_, '_> {
    fn required(&self, key: &str, what: &str, value: Option<At<Text>>) -> Result<Spanned<String>, FileError> {
        let missing = || self.file.missing(self.table.clone(), key, format!("`{key} = ` {what}"));
        value.map(At::spanned).ok_or_else(missing)
    }

    fn llm(&self, mut raw: RawColumn, directory: &Path) -> Result<LlmCall, FileError> {
        Ok(LlmCall {
            model: self.model(raw.model.take(), Domain::Chat)?,
            structure: structure::check(self.file, &mut raw, directory)?,
            temperature: raw.temperature.take().map(At::setting),
            top_p: raw.top_p.take().map(At::setting),
            max_tokens: raw.max_tokens.take().map(At::setting),
            seed: raw.seed.take().map(At::setting),
            stop: raw.stop.take().map_or_else(Vec::new, At::into_texts),
            extra: self.extra(raw.extra.take())?,
            answer_tokens: raw.answer_tokens,
            messages: self.messages(raw)?,
        })
    }

    /// `prompt` and `system`, or `messages`.
    fn messages(&self, raw: RawColumn) -> Result<Vec<MessageSpec>, FileError> {
        let Some(list) = raw.messages else {
            let named = |role, key: &str, content| MessageSpec { role, content, title: key.to_string() };
            let system = raw.system.map(|content| named(Role::System, "system", content.spanned()));
            let prompt = self.required("prompt", "a template, or `messages`", raw.prompt)?;
            return Ok(system.into_iter().chain([named(Role::User, "prompt", prompt)]).collect());
        };
        for (key, value) in [("prompt", raw.prompt), ("system", raw.system)] {
            if let Some(value) = value {
                let message = format!("`{key}` is given beside `messages`, which are the whole conversation");
                let expected = "`messages` alone, or `prompt` and `system` alone";
                return Err(self.file.error(value.span(), message).expected(expected));
            }
        }
        if list.get().is_empty() {
            return Err(self.file.wrong(list.span(), "at least one message"));
        }
        let message = |(index, message): (usize, At<Table<RawMessage>>)| {
            let Table(RawMessage { role, content }) = message.into_inner();
            MessageSpec { role, content: content.spanned(), title: format!("messages[{index}]") }
        };
        Ok(list.into_inner().into_iter().enumerate().map(message).collect())
    }

    fn extra(&self, extra: Option<At<JsonTable>>) -> Result<Spanned<Map<String, Value>>, FileError> {
        let Some(extra) = extra else { return Ok(Spanned::new(0..0, Map::new())) };
        let extra = extra.map(|JsonTable(table)| table);
        match RESERVED.iter().find(|key| extra.get_ref().contains_key(**key)) {
            Some(key) => Err(self
                .file
                .error(extra.span(), format!("`extra` in [[columns]] has `{key}`, which it cannot set"))
                .expected("keys of the request that the column has no key for")),
            None => Ok(extra),
        }
    }

    fn embedding(&self, raw: RawColumn) -> Result<EmbeddingCall, FileError> {
        let is_wrong = |dimensions: &&At<u32>| !(1..=MAX_DIMENSIONS).contains(dimensions.get());
        if let Some(dimensions) = raw.dimensions.as_ref().filter(is_wrong) {
            return Err(self.file.wrong(dimensions.span(), "a whole number from 1 to 1048576"));
        }
        Ok(EmbeddingCall {
            model: self.model(raw.model, Domain::Embedding)?,
            input: self.required("input", "a template", raw.input)?,
            dimensions: raw.dimensions.map(At::into_inner),
        })
    }

    fn judge(&self, raw: RawColumn) -> Result<JudgeCall, FileError> {
        let inputs: Vec<_> = raw.inputs.into_iter().flatten().map(At::spanned).collect();
        if raw.input.is_none() && inputs.is_empty() {
            return Err(self
                .file
                .error(self.table.clone(), "[[columns]] of kind `judge` has nothing to judge")
                .expected("`input = ` a template, or `inputs = ` the columns to send, or both"));
        }
        Ok(JudgeCall {
            model: self.model(raw.model, Domain::Judge)?,
            input: raw.input.map(At::spanned),
            inputs,
            output: raw.output.map_or(OutputForm::Json, At::into_inner),
        })
    }

    /// The model of the column, which must be of the domain that its kind calls.
    fn model(&self, name: Option<At<Text>>, domain: Domain) -> Result<usize, FileError> {
        let name = self.required("model", "the name of a model", name)?;
        let suitable = || self.models.iter().filter(|model| model.domain == domain).map(|model| model.name.as_str());
        let refuse = |message: String| {
            self.file
                .error(name.span(), message)
                .expected(match suitable().collect::<Vec<_>>().as_slice() {
                    [] => format!("a [[models]] table with this name {}", domain.requirement()),
                    names => format!("one of: {}", names.join(", ")),
                })
                .suggest(name.get_ref(), suitable())
        };
        let at = self.models.iter().position(|model| model.name == *name.get_ref());
        let at = at.ok_or_else(|| refuse(format!("there is no model `{}`", name.get_ref())))?;
        if self.models[at].domain == domain {
            return Ok(at);
        }
        Err(refuse(format!(
            "the model `{}` has the domain `{}`; a column of kind `{}` calls one of the domain `{}`",
            name.get_ref(),
            self.models[at].domain.name(),
            self.kind.name(),
            domain.name()
        )))
    }
}
