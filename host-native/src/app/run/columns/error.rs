//! Why a task has no value, and what follows from it.

use std::fmt;

use tidegate_core::pipeline::{FailureKind, FatalError, RetryKind, TaskOutcome};
use tidegate_core::request::response::RejectionReason;
use tidegate_core::request::{Denial, DenialReason};

use crate::app::provider::CallError;
use crate::app::run::provider::CallFailure;

/// The reason why a task has no value.
#[derive(Clone, Debug)]
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
    /// Returns the error of a task whose call ended with `error`.
    pub(crate) fn of(error: CallError) -> Self {
        fill_error(CallFailure::Failed(error))
    }

    /// Returns the error of a task that fails permanently.
    pub(crate) fn failed(kind: FailureKind, why: String) -> Self {
        Self::Outcome(TaskOutcome::Failed(kind), why)
    }

    /// Returns the error of a column whose model has no client for its kind. The check of the file prevents
    /// this.
    pub(super) fn no_client(column: &str) -> Self {
        Self::Fatal(FatalError(format!("the column `{column}` has no model to call")))
    }
}

/// Returns the error of a task whose call failed.
pub(crate) fn fill_error(failure: CallFailure) -> FillError {
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
                CallError::Server { .. } | CallError::CommandBusy { .. } | CallError::CommandNotStarted { .. } => {
                    retryable(RetryKind::ServerError)
                }
                CallError::Timeout | CallError::ServerTimeout { .. } | CallError::NotAnswered { .. } => {
                    retryable(RetryKind::Timeout)
                }
                CallError::Connection { .. } => retryable(RetryKind::Connection),
                CallError::Broken { .. } | CallError::Unreadable { .. } | CallError::NotDownloaded { .. } => {
                    retryable(RetryKind::UnreadableAnswer)
                }
                CallError::KeyRejected { .. } => TaskOutcome::Failed(FailureKind::Authentication),
                CallError::ModelNotFound { .. } | CallError::Rejected { rejection: RejectionReason::NotFound, .. } => {
                    TaskOutcome::Failed(FailureKind::NotFound)
                }
                CallError::ContentFiltered { .. }
                | CallError::Rejected { rejection: RejectionReason::ContentFiltered, .. } => {
                    TaskOutcome::Failed(FailureKind::ContentFiltered)
                }
                CallError::Rejected { .. } => TaskOutcome::Failed(FailureKind::Request),
                CallError::Refused { .. } => TaskOutcome::Failed(FailureKind::Declined),
                CallError::Malformed { .. } => TaskOutcome::Failed(FailureKind::MalformedAnswer),
                CallError::NotSent { .. } => TaskOutcome::Failed(FailureKind::Template),
                // The answer may be in the batch. A server without its certificate is no fault of the row.
                CallError::BatchBlocked { .. } | CallError::Tls { .. } => TaskOutcome::Unavailable,
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
