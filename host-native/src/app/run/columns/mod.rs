//! What fills the columns: one module per kind. Each turns what a task may read into the value of its cell, through a
//! model or without one. When a call goes out is the gate's business.

pub mod embedding;
pub mod expression;
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
use tidegate_core::request::response::Refusal;
use tidegate_core::request::{Denial, DenialReason, GroupId};
use tidegate_core::yielding::TaskToken;

use crate::app::provider::{Answer, CallError, Client};
use crate::app::run::provider::{Admission, CallFailure, Provider};
use crate::app::template::{TemplateId, TemplateValue, Templates};

use embedding::EmbeddingFill;
use expression::ExpressionFill;
use judge::JudgeFill;
use llm::LlmFill;
use sampler::SamplerFill;

/// What fills a column, ready to do so.
#[derive(Debug)]
pub enum Fill {
    /// A chat model's answer.
    Llm(Box<LlmFill>),
    /// The vector of a text.
    Embedding(EmbeddingFill),
    /// The text of a template.
    Expression(ExpressionFill),
    /// A seeded draw.
    Sampler(SamplerFill),
    /// The verdict of a command or a server.
    Judge(JudgeFill),
}

/// How a column calls its model.
#[derive(Debug)]
pub struct Caller {
    /// Whom it calls.
    pub provider: Arc<Provider>,
    /// Through what.
    pub client: Client,
    /// In which fairness group it waits.
    pub group: GroupId,
}

/// What a task of a column may read.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The column.
    pub column: &'a str,
    /// The templates of the pipeline.
    pub templates: &'a Templates,
    /// The values by name: of the row, or `rows` and `row_group`.
    pub values: &'a TemplateValue,
    /// The number of the row, or of the first row of the group.
    pub row: u64,
    /// Whether the task is for a whole row group.
    pub is_whole_group: bool,
}

impl Scene<'_> {
    /// The text of `template`.
    pub fn render(&self, template: &TemplateId) -> Result<String, Unfilled> {
        let rendered = self.templates.render(template, self.values.clone());
        rendered.map_err(|error| Unfilled::failed(FailureKind::Template, error.to_string()))
    }

    /// The value called `name`, as JSON.
    #[must_use]
    pub fn value(&self, name: &str) -> Value {
        let value = self.values.get_attr(name).ok().filter(|value| !value.is_undefined());
        value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
    }
}

/// Why there is no value for a task.
#[derive(Debug)]
pub enum Unfilled {
    /// The outcome, and what happened in words.
    Ended(TaskOutcome, String),
    /// A bug in this program.
    Broke(FatalError),
}

impl fmt::Display for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(_, why) | Self::Broke(FatalError(why)) => f.write_str(why),
        }
    }
}

impl Unfilled {
    /// It will not work.
    pub(crate) fn failed(kind: FailureKind, why: String) -> Self {
        Self::Ended(TaskOutcome::Failed(kind), why)
    }

    /// A column whose model is of another domain than its kind calls: the file was checked for that.
    fn wrong_client(column: &str) -> Self {
        Self::Broke(FatalError(format!("the column `{column}` has no model to call")))
    }
}

/// Who makes the calls of a task.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    caller: Option<&'a Caller>,
    token: Option<TaskToken>,
}

impl<'a> Calls<'a> {
    /// Calls through `caller`, of a worker that holds nothing while it waits if it has a `token`.
    #[must_use]
    pub fn new(caller: Option<&'a Caller>, token: Option<TaskToken>) -> Self {
        Self { caller, token }
    }

    fn client(&self) -> Option<&'a Client> {
        self.caller.map(|caller| &caller.client)
    }

    /// One call, which waits for its turn.
    async fn call<T, F>(&self, column: &str, estimate: Usage, attempt: impl FnMut() -> F) -> Result<T, Unfilled>
    where
        F: Future<Output = Result<Answer<T>, CallError>>,
    {
        let caller = self.caller.ok_or_else(|| Unfilled::wrong_client(column))?;
        let admission = Admission { group: caller.group, token: self.token, estimate };
        caller.provider.call(admission, attempt).await.map_err(explain)
    }
}

impl Fill {
    /// The value for `scene`.
    pub async fn fill(&self, scene: Scene<'_>, calls: Calls<'_>) -> Result<Value, Unfilled> {
        match self {
            Self::Llm(fill) => fill.fill(scene, calls).await,
            Self::Embedding(fill) => fill.fill(scene, calls).await,
            Self::Expression(fill) => fill.fill(scene),
            Self::Sampler(fill) => fill.fill(scene),
            Self::Judge(fill) => fill.fill(scene, calls).await,
        }
    }
}

/// About how many tokens a text has: the usual four characters each.
#[must_use]
pub fn estimate_tokens(text: &str) -> u32 {
    u32::try_from(text.chars().count().div_ceil(4)).unwrap_or(u32::MAX)
}

/// What a call that brought nothing means for its task.
fn explain(failure: CallFailure) -> Unfilled {
    match failure {
        CallFailure::NotAdmitted(denial) => not_admitted(&denial),
        CallFailure::Unavailable(error) => {
            let why = error.map_or_else(|| "its model cannot be used any more".to_string(), |error| error.to_string());
            Unfilled::Ended(TaskOutcome::Unavailable, why)
        }
        CallFailure::Failed(error) => {
            let retryable = |kind| TaskOutcome::Retryable { kind, status: error.status(), retry_after: None };
            let outcome = match &error {
                // The gate knows how long its provider wants to be left alone. No row is to blame for an empty account.
                CallError::RateLimited { .. } | CallError::QuotaExhausted { .. } => retryable(RetryKind::RateLimited),
                CallError::Server { .. } | CallError::CommandBusy { .. } => retryable(RetryKind::ServerError),
                CallError::Timeout | CallError::ServerTimeout { .. } => retryable(RetryKind::Timeout),
                CallError::Connection { .. } => retryable(RetryKind::Connection),
                CallError::Broken { .. } | CallError::Unreadable { .. } => retryable(RetryKind::UnreadableAnswer),
                CallError::KeyRejected { .. } => TaskOutcome::Failed(FailureKind::Authentication),
                CallError::ModelNotFound { .. } | CallError::Rejected { refusal: Refusal::NotFound, .. } => {
                    TaskOutcome::Failed(FailureKind::NotFound)
                }
                CallError::Rejected { .. } => TaskOutcome::Failed(FailureKind::Request),
                CallError::Malformed { .. } => TaskOutcome::Failed(FailureKind::MalformedAnswer),
                CallError::Command { .. } => TaskOutcome::Failed(FailureKind::Other),
            };
            Unfilled::Ended(outcome, error.to_string())
        }
    }
}

fn not_admitted(denial: &Denial) -> Unfilled {
    let why = format!("not admitted: {denial}");
    match denial.reason {
        DenialReason::Shutdown | DenialReason::Cancelled => Unfilled::Ended(TaskOutcome::Cancelled, why),
        // Every model is registered before the run begins.
        DenialReason::Unregistered => Unfilled::Broke(FatalError(why)),
        _ => Unfilled::Ended(
            TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None },
            why,
        ),
    }
}
