//! How a task ended, as a number: 0 success, 1 skipped, 2 cancelled, 3 kept because its provider is
//! unavailable, from 16 a retryable failure, from 32 a final one.

use tidegate_core::pipeline::{FailureKind, RetryKind, TaskOutcome};
use tidegate_core::request::Completion;
use tidegate_core::time::Duration;
use wasm_bindgen::prelude::*;

use crate::gate::outcome_of;

/// The retryable and the final failures, by the number of an outcome.
const RETRIES: [RetryKind; 6] = [
    RetryKind::RateLimited,
    RetryKind::Timeout,
    RetryKind::ServerError,
    RetryKind::Connection,
    RetryKind::AdmissionTimeout,
    RetryKind::UnreadableAnswer,
];
const FAILURES: [FailureKind; 9] = [
    FailureKind::Request,
    FailureKind::Authentication,
    FailureKind::NotFound,
    FailureKind::MalformedAnswer,
    FailureKind::Template,
    FailureKind::Other,
    FailureKind::TruncatedAnswer,
    FailureKind::ContentFiltered,
    FailureKind::Declined,
];
const FIRST_RETRY: usize = 16;
const FIRST_FAILURE: usize = 32;

/// Returns what the end of a call means for the task that it was made for, as the number that
/// [`PipelineRun::finish`] takes. `outcome` is that of the call.
///
/// [`PipelineRun::finish`]: super::PipelineRun::finish
#[wasm_bindgen(js_name = outcomeOfCall)]
#[must_use]
pub fn outcome_of_call(outcome: u32) -> u32 {
    let number = match TaskOutcome::from(Completion::new(outcome_of(outcome))) {
        TaskOutcome::Success => 0,
        TaskOutcome::Skipped => 1,
        TaskOutcome::Cancelled => 2,
        TaskOutcome::Unavailable => 3,
        TaskOutcome::Retryable { kind, .. } => FIRST_RETRY + place(&RETRIES, &kind),
        TaskOutcome::Failed(kind) => FIRST_FAILURE + place(&FAILURES, &kind),
    };
    number as u32
}

/// Returns the outcome of this number. `retry_after_ms` is NaN if the provider asked for no pause, `status`
/// is 0 if there is no HTTP status.
pub(super) fn task_outcome(number: u32, retry_after_ms: f64, status: u16) -> TaskOutcome {
    match number {
        0 => TaskOutcome::Success,
        1 => TaskOutcome::Skipped,
        2 => TaskOutcome::Cancelled,
        3 => TaskOutcome::Unavailable,
        16..=21 => TaskOutcome::Retryable {
            kind: RETRIES[number as usize - FIRST_RETRY],
            status: (status != 0).then_some(status),
            retry_after: (!retry_after_ms.is_nan()).then(|| Duration::from_nanos((retry_after_ms * 1e6) as u64)),
        },
        _ => {
            let kind = (number as usize).checked_sub(FIRST_FAILURE).and_then(|place| FAILURES.get(place));
            TaskOutcome::Failed(kind.copied().unwrap_or(FailureKind::Other))
        }
    }
}

/// Returns the place of `one`, or the last place for a kind of a later version.
fn place<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|other| other == one).unwrap_or(all.len() - 1)
}
