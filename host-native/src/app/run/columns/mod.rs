//! Fills cells: one module per kind of column. Each computes a value from the values that its column may
//! read, with or without a call to a model. The gate decides when a call is made.

pub mod embedding;
pub mod expression;
mod json_in_text;
pub mod judge;
pub mod llm;
pub mod sampler;
pub mod structure;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::{FailureKind, FatalError, RetryKind, TaskOutcome};
use tidegate_core::request::response::RejectionReason;
use tidegate_core::request::{Denial, DenialReason, GroupId};
use tidegate_core::yielding::TaskToken;

use crate::app::provider::{CallError, CallOutput, Client};
use crate::app::run::provider::{CallAdmission, CallFailure, Provider};
use crate::app::template::{TemplateId, TemplateValue, Templates};

use embedding::EmbeddingFill;
use expression::ExpressionFill;
use judge::JudgeFill;
use llm::LlmFill;
use sampler::SamplerFill;

/// A compiled column, ready to fill cells.
#[derive(Debug)]
pub enum Fill {
    /// The answer of a chat model.
    Llm(Box<LlmFill>),
    /// The embedding vector of a text.
    Embedding(EmbeddingFill),
    /// The rendered text of a template.
    Expression(ExpressionFill),
    /// A random draw from a seed.
    Sampler(SamplerFill),
    /// The answer of a command or server.
    Judge(JudgeFill),
    /// The reasoning for an answer. The task that makes the answer sets it.
    Reasoning {
        /// The index of the generated column with the answer.
        of: usize,
    },
}

/// The value of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// The value of the cell.
    pub value: Value,
    /// The reasoning of the model for it.
    pub reasoning: Option<String>,
}

impl From<Value> for Filled {
    fn from(value: Value) -> Self {
        Self { value, reasoning: None }
    }
}

/// How a column calls its model.
#[derive(Debug)]
pub struct Caller {
    /// The provider that is called.
    pub provider: Arc<Provider>,
    /// The client that makes the calls.
    pub client: Client,
    /// The fairness group in which calls wait.
    pub group: GroupId,
}

/// What a fill may read for one task.
#[derive(Clone, Copy, Debug)]
pub struct FillContext<'a> {
    /// The name of the column.
    pub column: &'a str,
    /// The templates of the pipeline.
    pub templates: &'a Templates,
    /// The variables of templates: the values of the row, or `rows` and `row_group`.
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

    /// Returns the value of the variable `name` as JSON; null if there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> Value {
        let value = self.values.get_attr(name).ok().filter(|value| !value.is_undefined());
        value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
    }
}

/// The reason why a task has no value.
#[derive(Debug)]
pub enum FillError {
    /// The outcome of the task, and the error message.
    Outcome(TaskOutcome, String),
    /// A bug in this program.
    Fatal(FatalError),
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome(_, why) | Self::Fatal(FatalError(why)) => f.write_str(why),
        }
    }
}

impl FillError {
    /// Returns the error of a task that fails permanently.
    pub(crate) fn failed(kind: FailureKind, why: String) -> Self {
        Self::Outcome(TaskOutcome::Failed(kind), why)
    }

    /// Returns the error of a column whose model has no client for its kind. The check of the file prevents
    /// this.
    fn no_client(column: &str) -> Self {
        Self::Fatal(FatalError(format!("the column `{column}` has no model to call")))
    }
}

/// Makes the calls of one task.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls<'a> {
    caller: Option<&'a Caller>,
    token: Option<TaskToken>,
}

impl<'a> ModelCalls<'a> {
    /// Creates the calls of a task through `caller`. With a `token`, the task yields its resources while a
    /// call waits.
    #[must_use]
    pub fn new(caller: Option<&'a Caller>, token: Option<TaskToken>) -> Self {
        Self { caller, token }
    }

    fn client(&self) -> Option<&'a Client> {
        self.caller.map(|caller| &caller.client)
    }

    /// Makes one call, after waiting for a slot.
    async fn call<T, F>(&self, column: &str, estimate: Usage, attempt: impl FnMut() -> F) -> Result<T, FillError>
    where
        F: Future<Output = Result<CallOutput<T>, CallError>>,
    {
        let caller = self.caller.ok_or_else(|| FillError::no_client(column))?;
        let admission = CallAdmission { group: caller.group, token: self.token, estimate };
        caller.provider.call(admission, attempt).await.map_err(fill_error)
    }
}

impl Fill {
    /// Returns the value for `context`, with the reasoning for it.
    pub async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Filled, FillError> {
        let value = match self {
            Self::Llm(fill) => return fill.fill(context, calls).await,
            Self::Embedding(fill) => fill.fill(context, calls).await,
            Self::Expression(fill) => fill.fill(context),
            Self::Sampler(fill) => fill.fill(context),
            Self::Judge(fill) => fill.fill(context, calls).await,
            Self::Reasoning { .. } => Ok(Value::Null),
        };
        value.map(Filled::from)
    }
}

/// Returns the error of a task whose call failed.
fn fill_error(failure: CallFailure) -> FillError {
    match failure {
        CallFailure::NotAdmitted(denial) => denial_error(&denial),
        CallFailure::Unavailable(error) => {
            let why = error.map_or_else(|| "its model is no longer available".to_string(), |error| error.to_string());
            FillError::Outcome(TaskOutcome::Unavailable, why)
        }
        CallFailure::Failed(error) => {
            let retryable = |kind| TaskOutcome::Retryable { kind, status: error.status(), retry_after: None };
            let outcome = match &error {
                // No `retry_after`: the gate keeps the cooldown of its provider. An exhausted quota is no
                // fault of the row.
                CallError::RateLimited { .. } | CallError::QuotaExhausted { .. } => retryable(RetryKind::RateLimited),
                CallError::Server { .. } | CallError::CommandBusy { .. } => retryable(RetryKind::ServerError),
                CallError::Timeout | CallError::ServerTimeout { .. } => retryable(RetryKind::Timeout),
                CallError::Connection { .. } => retryable(RetryKind::Connection),
                CallError::Broken { .. } | CallError::Unreadable { .. } => retryable(RetryKind::UnreadableAnswer),
                CallError::KeyRejected { .. } => TaskOutcome::Failed(FailureKind::Authentication),
                CallError::ModelNotFound { .. } | CallError::Rejected { rejection: RejectionReason::NotFound, .. } => {
                    TaskOutcome::Failed(FailureKind::NotFound)
                }
                CallError::ContentFiltered { .. }
                | CallError::Rejected { rejection: RejectionReason::ContentFiltered, .. } => {
                    TaskOutcome::Failed(FailureKind::ContentFiltered)
                }
                CallError::Rejected { .. } => TaskOutcome::Failed(FailureKind::Request),
                CallError::Refused { .. } => TaskOutcome::Failed(FailureKind::Refused),
                CallError::Malformed { .. } => TaskOutcome::Failed(FailureKind::MalformedAnswer),
                CallError::Command { .. } => TaskOutcome::Failed(FailureKind::Other),
            };
            FillError::Outcome(outcome, error.to_string())
        }
    }
}

fn denial_error(denial: &Denial) -> FillError {
    let why = format!("not admitted: {denial}");
    match denial.reason {
        DenialReason::Shutdown | DenialReason::Cancelled => FillError::Outcome(TaskOutcome::Cancelled, why),
        // Every model is registered before the run starts, so this is a bug.
        DenialReason::Unregistered => FillError::Fatal(FatalError(why)),
        _ => FillError::Outcome(
            TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None },
            why,
        ),
    }
}
