//! The columns, and what each kind of them calls.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Map, Value};
use tidegate_core::pipeline::{FailureKind, Strategy};
use toml::Spanned;

use super::sampler::SamplerSpec;
use crate::app::config::pipeline::names::{JsonMode, OutputForm};
use crate::app::config::value::Setting;
use crate::app::provider::conversation::Role;

/// One `[[columns]]` table.
#[derive(Clone, Debug)]
pub struct ColumnSpec {
    /// The name of the output column.
    pub name: Spanned<String>,
    /// The source of its values.
    pub kind: ColumnKind,
    /// Whether there is a task per row or per row group.
    pub strategy: Strategy,
    /// Columns to wait for besides those that the templates read.
    pub upstreams: Vec<Spanned<String>>,
    /// Its weight in fair scheduling when columns compete for a model.
    pub weight: Spanned<f64>,
    /// The condition. Rows for which it is false are skipped.
    pub when: Option<Spanned<String>>,
    /// The condition on a row with the value of this column. Rows for which it is false are rejected.
    pub accept_if: Option<Spanned<String>>,
    /// The value of skipped rows \[null\].
    pub otherwise: Value,
    /// Whether rows are skipped if a column that this one reads was skipped \[no\].
    pub skip_with_upstream: bool,
    /// Whether it is part of the output \[yes\].
    pub is_written: bool,
}

impl ColumnSpec {
    /// Returns the span of the column's name.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.name.span()
    }
}

/// The source of a column's values.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// The answer of a chat model.
    Llm(Box<LlmCall>),
    /// The scores that a chat model gives by criteria: an answer whose form the criteria determine.
    Score(Box<LlmCall>),
    /// The embedding vector of a text.
    Embedding(EmbeddingCall),
    /// A file with an image.
    Image(ImageCall),
    /// The rendered text of a template.
    Expression(Expression),
    /// A seeded random value.
    Sampler(SamplerSpec),
    /// The result of a command or a judge server.
    Judge(JudgeCall),
    /// Whether a text is valid.
    Validation(Validation),
    /// The reasoning for the answer of this column of kind llm or score.
    Reasoning(Spanned<String>),
    /// The model that answered in this column of kind llm or score.
    Model(Spanned<String>),
}

impl ColumnKind {
    /// Returns the index in [`PipelineFile::models`](super::super::PipelineFile::models) of the model that
    /// the column calls; of several, the preferred one.
    #[must_use]
    pub fn model(&self) -> Option<usize> {
        match self {
            Self::Llm(call) | Self::Score(call) => Some(call.model),
            Self::Embedding(call) => Some(call.model),
            Self::Image(call) => Some(call.model),
            Self::Judge(call) => Some(call.model),
            Self::Validation(Validation { check: ValidationCheck::Command { model, .. }, .. }) => Some(*model),
            Self::Validation(_) | Self::Expression(_) | Self::Sampler(_) | Self::Reasoning(_) | Self::Model(_) => None,
        }
    }

    /// Returns the indices of all models that the column may call, in order of preference.
    #[must_use]
    pub fn models(&self) -> Vec<usize> {
        let fallbacks = self.chat().map_or(&[][..], |call| &call.fallbacks);
        self.model().into_iter().chain(fallbacks.iter().copied()).collect()
    }

    /// Returns the call of a column with answers of chat models.
    #[must_use]
    pub fn chat(&self) -> Option<&LlmCall> {
        match self {
            Self::Llm(call) | Self::Score(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the JSON Schema that an answer must match, or by which the column checks a value.
    #[must_use]
    pub fn schema(&self) -> Option<&Spanned<Value>> {
        match self {
            Self::Llm(call) | Self::Score(call) => call.structure.as_ref()?.schema.as_ref(),
            Self::Validation(Validation { check: ValidationCheck::Json(schema), .. }) => schema.as_ref(),
            _ => None,
        }
    }

    /// Returns the name of the kind in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Llm(_) => "llm",
            Self::Score(_) => "score",
            Self::Embedding(_) => "embedding",
            Self::Image(_) => "image",
            Self::Expression(_) => "expression",
            Self::Sampler(_) => "sampler",
            Self::Judge(_) => "judge",
            Self::Validation(_) => "validation",
            Self::Reasoning(_) => "reasoning",
            Self::Model(_) => "model",
        }
    }
}

/// The templates and settings of a chat call.
#[derive(Clone, Debug)]
pub struct LlmCall {
    /// The model, by its place in [`PipelineFile::models`](super::super::PipelineFile::models).
    pub model: usize,
    /// The models that are called if that one cannot be used, in order of preference.
    pub fallbacks: Vec<usize>,
    /// The failures after which the next model is asked.
    pub fallback_on: Vec<FailureKind>,
    /// The messages, each with its key in the file.
    pub messages: Vec<MessageSpec>,
    /// The directory that paths of images and recordings are relative to.
    pub directory: PathBuf,
    /// Sampling temperature.
    pub temperature: Option<Setting<f64>>,
    /// The probability mass of nucleus sampling.
    pub top_p: Option<Setting<f64>>,
    /// The maximum number of output tokens.
    pub max_tokens: Option<Setting<u32>>,
    /// The maximum number of output tokens of a second call after a truncated answer.
    pub retry_max_tokens: Option<u32>,
    /// Whether a truncated answer is used like a complete one \[no\].
    pub keep_truncated: bool,
    /// The seed that is sent to the provider.
    pub seed: Option<Setting<u64>>,
    /// Templates of the stop sequences.
    pub stop: Vec<Spanned<String>>,
    /// Further keys of the request body. Strings in it are templates.
    pub extra: Spanned<Map<String, Value>>,
    /// The estimated number of output tokens.
    pub answer_tokens: Option<u32>,
    /// What follows the last message, if the program adds something to it.
    pub instruction: Option<String>,
    /// The required form of the answer. `None` accepts any text.
    pub structure: Option<Structure>,
    /// The largest number of rows in one batch; 1 for a model that is called for each row.
    pub batch_size: u32,
    /// The tools that the model may call, by their places in
    /// [`PipelineFile::tools`](super::super::PipelineFile::tools).
    pub tools: Vec<usize>,
    /// The most answers of the model to one conversation \[8\].
    pub max_turns: u32,
}

/// The template of a message.
#[derive(Clone, Debug)]
pub struct MessageSpec {
    /// The role of the author.
    pub role: Role,
    /// The template of the content.
    pub content: Spanned<String>,
    /// Templates of its images: addresses, data URLs or paths.
    pub images: Vec<Spanned<String>>,
    /// Templates of its recordings: data URLs or paths.
    pub audio: Vec<Spanned<String>>,
    /// The name of the key in error messages, such as `prompt`.
    pub title: String,
}

/// The required form of an answer.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The type that the text is parsed as.
    pub output: OutputForm,
    /// The JSON Schema that the value must match, with its location in the file.
    pub schema: Option<Spanned<Value>>,
    /// How the request asks the model for this form.
    pub mode: JsonMode,
    /// The number of retries after an invalid answer \[2\].
    pub retries: u32,
}

/// An embedding call.
#[derive(Clone, Debug)]
pub struct EmbeddingCall {
    /// The model, by its place in [`PipelineFile::models`](super::super::PipelineFile::models).
    pub model: usize,
    /// The template of the text.
    pub input: Spanned<String>,
    /// The number of dimensions of the vector. `None` uses the model's default.
    pub dimensions: Option<u32>,
    /// The largest number of rows in one call; 1 for a column of whole row groups.
    pub batch_size: u32,
}

/// A request for an image.
#[derive(Clone, Debug)]
pub struct ImageCall {
    /// The model, by its place in [`PipelineFile::models`](super::super::PipelineFile::models).
    pub model: usize,
    /// The template of what the image shows.
    pub prompt: Spanned<String>,
    /// The template of the size. `None` uses the model's default.
    pub size: Option<Spanned<String>>,
    /// The estimated number of output tokens.
    pub answer_tokens: Option<u32>,
    /// Further keys of the request body. Strings in it are templates.
    pub extra: Spanned<Map<String, Value>>,
}

/// A template whose rendered text is the value.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The template.
    pub template: Spanned<String>,
    /// The type that the text is parsed as.
    pub output: OutputForm,
}

/// A question to a command or a judge server.
#[derive(Clone, Debug)]
pub struct JudgeCall {
    /// The model, by its place in [`PipelineFile::models`](super::super::PipelineFile::models).
    pub model: usize,
    /// The template of a text to send.
    pub input: Option<Spanned<String>>,
    /// The columns whose values are sent.
    pub inputs: Vec<Spanned<String>>,
    /// The type that the answer is parsed as.
    pub output: OutputForm,
}

/// The check of a text.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The template of what is checked.
    pub input: Spanned<String>,
    /// How it is checked.
    pub check: ValidationCheck,
}

/// How a text is checked.
#[derive(Clone, Debug)]
pub enum ValidationCheck {
    /// It must be JSON, and match this JSON Schema.
    Json(Option<Spanned<Value>>),
    /// By a command that reads it.
    Command {
        /// The model with the command, by its place in
        /// [`PipelineFile::models`](super::super::PipelineFile::models).
        model: usize,
        /// The exit codes that say that it is invalid \[1\].
        invalid_exit_codes: Vec<u8>,
    },
}
