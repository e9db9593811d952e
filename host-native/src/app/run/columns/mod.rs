//! Fills cells: one module per kind of column. Each computes a value from the values that its column may
//! read, with or without a call to a model. The gate decides when a call is made.

pub mod batch;
mod chat_batch;
pub mod embedding;
pub(crate) mod error;
pub mod expression;
pub mod image;
mod json_in_text;
pub mod judge;
pub mod llm;
pub mod sampler;
pub mod structure;
pub mod tools;
pub mod validation;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::{FailureKind, Task, TaskOutcome};
use tidegate_core::request::{FallbackId, GroupId};
use tidegate_core::yielding::TaskToken;

use crate::app::output::{CallLine, CallMessage, OutputDirectory, shown_calls};
use crate::app::provider::command::Command;
use crate::app::provider::completion::ChatAnswer;
use crate::app::provider::conversation::Message;
use crate::app::provider::{CallError, CallOutput, Client};
use crate::app::run::batch_jobs::BatchJobs;
use crate::app::run::provider::{CallAdmission, Provider};
use crate::app::template::{Condition, TemplateId, TemplateValue, Templates};

use batch::{Lead, Member};
use embedding::EmbeddingFill;
use error::{FillError, fill_error};
use expression::ExpressionFill;
use image::ImageFill;
use judge::JudgeFill;
use llm::LlmFill;
use sampler::SamplerFill;
use structure::AnswerFormat;
use validation::ValidationFill;

/// A compiled column, ready to fill cells.
#[derive(Debug)]
pub enum Fill {
    /// The answer of a chat model.
    Llm(Box<LlmFill>),
    /// The embedding vector of a text.
    Embedding(EmbeddingFill),
    /// A file with an image.
    Image(Box<ImageFill>),
    /// The rendered text of a template.
    Expression(ExpressionFill),
    /// A random draw from a seed.
    Sampler(SamplerFill),
    /// The answer of a command or server.
    Judge(JudgeFill),
    /// Whether a text is valid.
    Validation(ValidationFill),
    /// What is known about an answer. The task that makes the answer sets it.
    OfAnswer {
        /// The index of the generated column with the answer.
        of: usize,
        /// What of it.
        part: AnswerPart,
    },
}

/// What is known about an answer besides the answer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// The reasoning for it.
    Reasoning,
    /// The provider and model that answered.
    Model,
}

/// The value of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// The value of the cell.
    pub value: Value,
    /// The reasoning of the model for it.
    pub reasoning: Option<String>,
    /// The model that answered, by its place in [`Caller::models`].
    pub model: Option<usize>,
}

impl From<Value> for Filled {
    fn from(value: Value) -> Self {
        Self { value, reasoning: None, model: None }
    }
}

/// How a column calls its models.
#[derive(Debug)]
pub struct Caller {
    /// The models in order of preference, at least one.
    pub models: Vec<CalledModel>,
    /// The fairness group in which calls wait.
    pub group: GroupId,
    /// The batches of the run, if the requests of the column go in batches.
    pub batches: Option<Arc<BatchJobs>>,
    /// The commands of the tools that the models may call.
    pub tools: Vec<Command>,
}

/// A model that a column may call.
#[derive(Debug)]
pub struct CalledModel {
    /// Its provider.
    pub provider: Arc<Provider>,
    /// The client that makes the calls.
    pub client: Client,
    /// The list of this model and those after it, which are called if it cannot be used; `None` for the last
    /// one.
    pub fallbacks: Option<FallbackId>,
}

/// A template that is evaluated to a value.
#[derive(Clone, Debug)]
pub enum ValueTemplate {
    /// The text of a template.
    Text(TemplateId),
    /// The value of an expression, for a template that is nothing else.
    Value(Condition),
}

/// What a fill may read for one task.
#[derive(Clone, Copy, Debug)]
pub struct FillContext<'a> {
    /// The name of the column.
    pub column: &'a str,
    /// The templates of the pipeline.
    pub templates: &'a Templates,
    /// The variables of templates: the values of the row, which are here by their names, too, or `rows` and
    /// `row_group`.
    pub values: &'a TemplateValue,
    /// The number of the row, or of the first row of the row group.
    pub row: u64,
    /// Whether the task is for a whole row group.
    pub is_whole_group: bool,
}

impl FillContext<'_> {
    /// Renders `template`.
    pub fn render(&self, template: &TemplateId) -> Result<String, FillError> {
        let rendered = self.templates.render(template, self.values.clone());
        rendered.map_err(|error| FillError::failed(FailureKind::Template, error.to_string()))
    }

    /// Returns the value of `template`.
    pub fn evaluate(&self, template: &ValueTemplate) -> Result<Value, FillError> {
        match template {
            ValueTemplate::Text(template) => self.render(template).map(Value::String),
            ValueTemplate::Value(expression) => {
                let value = self.templates.value(expression, self.values.clone());
                value.map_err(|error| FillError::failed(FailureKind::Template, error.to_string()))
            }
        }
    }

    /// Returns the value with the name `name`, or of the variable, as JSON; null if there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> Value {
        let value = self.values.get_attr(name).ok().filter(|value| !value.is_undefined());
        value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
    }
}

/// Makes the calls of one task.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls<'a> {
    caller: Option<&'a Caller>,
    token: Option<TaskToken>,
    /// Whether an earlier attempt of the task has failed.
    is_repeated: bool,
    /// What is kept of the calls, if the job keeps it.
    kept: Option<&'a Mutex<CallLine>>,
    /// The batch whose lead makes the call for this task, too.
    batch: Option<&'a Member>,
    /// Where files are written.
    output: Option<&'a Arc<OutputDirectory>>,
    /// Set once the run makes no further calls.
    is_stopping: Option<&'a AtomicBool>,
}

impl<'a> ModelCalls<'a> {
    /// Creates the calls of `task` through `caller`. If it has a token, it yields its resources while a call
    /// waits.
    #[must_use]
    pub fn new(caller: Option<&'a Caller>, task: &Task) -> Self {
        let is_repeated = task.attempt > 1;
        Self { caller, token: task.token, is_repeated, kept: None, batch: None, output: None, is_stopping: None }
    }

    /// Keeps the calls in `kept`.
    #[must_use]
    pub fn keeping(self, kept: Option<&'a Mutex<CallLine>>) -> Self {
        Self { kept, ..self }
    }

    /// Writes files to `output`.
    #[must_use]
    pub fn writing_to(self, output: &'a Arc<OutputDirectory>) -> Self {
        Self { output: Some(output), ..self }
    }

    /// Starts no command of a tool once `is_stopping` is set.
    #[must_use]
    pub fn until(self, is_stopping: &'a AtomicBool) -> Self {
        Self { is_stopping: Some(is_stopping), ..self }
    }

    /// Lets the lead of `batch` make the call.
    #[must_use]
    pub fn in_batch(self, batch: Option<&'a Member>) -> Self {
        Self { batch, ..self }
    }

    /// Keeps a call of the model at the place `at`.
    fn keep(&self, at: usize, messages: &[Message], answer: &Result<CallOutput<ChatAnswer>, CallError>) {
        let Some(mut line) = self.kept.map(Mutex::lock) else { return };
        self.count(&mut line, at, answer, |answer| answer.text.clone());
        line.messages = messages.iter().map(CallMessage::from).collect();
        let turn = answer.as_ref().ok().and_then(|answer| answer.value.turn.as_ref());
        line.tool_calls = shown_calls(turn);
    }

    /// Counts a call of the model at the place `at`, and keeps what it has answered.
    fn count<T>(
        &self,
        line: &mut CallLine,
        at: usize,
        answer: &Result<CallOutput<T>, CallError>,
        shown: impl FnOnce(&T) -> String,
    ) {
        line.count_call(self.models().nth(at).map_or("", |model| &model.provider.label));
        let usage = match answer {
            Ok(answer) => {
                (line.answer, line.error) = (Some(shown(&answer.value)), None);
                answer.usage
            }
            Err(error) => {
                (line.answer, line.error) = (None, Some(error.to_string()));
                error.charged_usage().1
            }
        };
        let Usage { input_tokens, output_tokens, .. } = usage.unwrap_or_default();
        line.input_tokens += u64::from(input_tokens);
        line.output_tokens += u64::from(output_tokens);
    }

    /// Keeps the part of this task, `input`, in a call for several rows, whose tokens are not those of one
    /// row.
    fn keep_part(&self, input: &str, answer: &Result<String, FillError>) {
        let (answer, error) = match answer {
            Ok(answer) => (Some(answer.clone()), None),
            Err(error @ FillError::Outcome(TaskOutcome::Failed(_) | TaskOutcome::Retryable { .. }, _)) => {
                (None, Some(error.to_string()))
            }
            // No call was made.
            Err(_) => return,
        };
        let Some(mut line) = self.kept.map(Mutex::lock) else { return };
        line.count_call(self.model().map_or("", |model| &model.provider.label));
        line.is_part = true;
        line.input = Some(input.to_string());
        (line.answer, line.error) = (answer, error);
    }

    fn models(&self) -> impl Iterator<Item = &'a CalledModel> + use<'a> {
        self.caller.into_iter().flat_map(|caller| &caller.models)
    }

    fn clients(&self) -> impl Iterator<Item = &'a Client> + use<'a> {
        self.models().map(|model| &model.client)
    }

    /// Returns the commands of the tools of the column, in the order of the file.
    fn tools(&self) -> &'a [Command] {
        self.caller.map_or(&[], |caller| &caller.tools)
    }

    /// Returns whether the run makes no further calls.
    fn is_stopping(&self) -> bool {
        self.is_stopping.is_some_and(|is_stopping| is_stopping.load(Ordering::Relaxed))
    }

    /// Returns the model of a column that calls one.
    fn model(&self) -> Option<&'a CalledModel> {
        self.models().next()
    }

    /// Returns the client of a column that calls one model.
    fn client(&self) -> Option<&'a Client> {
        self.clients().next()
    }

    /// Returns the admission of a call in this fairness group.
    fn admission<'e>(
        &self,
        group: GroupId,
        fallbacks: Option<FallbackId>,
        estimates: &'e [Usage],
    ) -> CallAdmission<'e> {
        CallAdmission { group, fallbacks, is_repeated: self.is_repeated, token: self.token, estimates }
    }

    /// Makes one call of the first model, after waiting for a slot.
    async fn call<T, F>(&self, column: &str, estimate: Usage, mut attempt: impl FnMut() -> F) -> Result<T, FillError>
    where
        F: Future<Output = Result<CallOutput<T>, CallError>>,
    {
        let answer = self.call_usable(column, 0, &[estimate], |_| attempt()).await;
        answer.map(|(_, value)| value).map_err(|(_, error)| error)
    }

    /// Makes one call like [`call`](Self::call) with the text `input`, and keeps it. `shown` returns the text
    /// of an answer.
    pub(super) async fn call_with<T, F>(
        &self,
        column: &str,
        estimate: Usage,
        input: &str,
        shown: impl Fn(&T) -> String,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, FillError>
    where
        F: Future<Output = Result<CallOutput<T>, CallError>>,
    {
        let keep = |answer: &Result<CallOutput<T>, CallError>| {
            if let Some(mut line) = self.kept.map(Mutex::lock) {
                line.input = Some(input.to_string());
                self.count(&mut line, 0, answer, &shown);
            }
        };
        self.call(column, estimate, || attempt().inspect(&keep)).await
    }

    /// Makes one call, after waiting for a slot: of the first model that can be used among those from the
    /// place `from` on. `estimates` has the estimated tokens of a call of each model; models beyond it are
    /// not called. `attempt` receives the place of the model. Returns it with the answer or error.
    async fn call_usable<T, F>(
        &self,
        column: &str,
        from: usize,
        estimates: &[Usage],
        attempt: impl FnMut(usize) -> F,
    ) -> Result<(usize, T), (usize, FillError)>
    where
        F: Future<Output = Result<CallOutput<T>, CallError>>,
    {
        let models = self.caller.map_or(&[][..], |caller| &caller.models);
        let (Some(caller), Some(first)) = (self.caller, models.get(from)) else {
            return Err((from, FillError::no_client(column)));
        };
        let providers: Vec<&Provider> = models.iter().zip(estimates).map(|(model, _)| &*model.provider).collect();
        let fallbacks = first.fallbacks.filter(|_| from + 1 < providers.len());
        let admission = self.admission(caller.group, fallbacks, estimates);
        let answer = Provider::call_usable(&providers, from, admission, attempt).await;
        answer.map_err(|(at, failure)| (at, fill_error(failure)))
    }
}

impl Fill {
    /// Returns the JSON Schema of the values, if they have one.
    #[must_use]
    pub fn schema(&self) -> Option<&Value> {
        match self {
            Self::Llm(fill) => fill.structure.as_ref().and_then(AnswerFormat::schema),
            Self::Validation(_) => Some(&validation::SCHEMA),
            _ => None,
        }
    }

    /// Returns the largest number of rows of a row group that one call fills.
    #[must_use]
    pub fn batch_size(&self) -> u32 {
        match self {
            Self::Embedding(fill) => fill.batch_size,
            Self::Llm(fill) => fill.batch_size,
            _ => 1,
        }
    }

    /// Returns the value for `context`, with the reasoning for it.
    pub async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Filled, FillError> {
        let value = match self {
            Self::Llm(fill) => return fill.fill(context, calls).await,
            Self::Embedding(fill) => fill.fill(context, calls).await,
            // On the heap: it is larger than those of other kinds.
            Self::Image(fill) => Box::pin(fill.fill(context, calls)).await,
            Self::Expression(fill) => fill.fill(context),
            Self::Sampler(fill) => fill.fill(context),
            Self::Judge(fill) => fill.fill(context, calls).await,
            Self::Validation(fill) => fill.fill(context, calls).await,
            Self::OfAnswer { .. } => Ok(Value::Null),
        };
        value.map(Filled::from)
    }

    /// Makes the calls for a batch of cells of `column`, and replies to its members.
    pub async fn fill_batch(&self, column: &str, lead: &Lead, calls: ModelCalls<'_>) {
        match self {
            Self::Embedding(fill) => fill.fill_batch(column, lead, calls).await,
            Self::Llm(_) => chat_batch::fill_batch(lead, calls).await,
            // No other column is batched.
            _ => {}
        }
    }
}

/// Returns the further keys of a request for `context`. `templates` are the strings in `extra` that are
/// templates, by JSON pointer.
fn render_extra(
    context: FillContext<'_>,
    extra: &Map<String, Value>,
    templates: &[(String, TemplateId)],
) -> Result<Map<String, Value>, FillError> {
    let mut extra = Value::Object(extra.clone());
    for (pointer, template) in templates {
        if let Some(text) = extra.pointer_mut(pointer) {
            *text = Value::String(context.render(template)?);
        }
    }
    Ok(match extra {
        Value::Object(extra) => extra,
        _ => Map::new(),
    })
}
