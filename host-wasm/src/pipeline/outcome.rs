//! How a task ended, as a number: 0 success, 1 skipped, 2 cancelled, 3 kept because its provider is
//! unavailable, from 16 a retryable failure, from 32 a final one.

use tidegate_core::pipeline::{FailureKind, RetryKind, TaskOutcome};
use tidegate_core::request::Completion;
use tidegate_core::time::Duration;
use wasm_bindgen::prelude::*;

use crate::gate::outcome_of;

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
        TaskOutcome::Retryable { kind, .. } => FIRST_RETRY + kind as usize,
        TaskOutcome::Failed(kind) => FIRST_FAILURE + kind as usize,
    };
    number as u32
}

/// Returns the outcome of this number. `retry_after_ms` is NaN if the provider asked for no pause, `status`
/// is 0 if there is no HTTP status.
pub(super) fn task_outcome(number: u32, retry_after_ms: f64, status: u16) -> TaskOutcome {
    let kind_from = |first| (number as usize).checked_sub(first);
    match number {
        0 => TaskOutcome::Success,
        1 => TaskOutcome::Skipped,
        2 => TaskOutcome::Cancelled,
        3 => TaskOutcome::Unavailable,
        _ => {
            if let Some(&kind) = kind_from(FIRST_RETRY).and_then(|place| RetryKind::ALL.get(place)) {
                let retry_after =
                    (!retry_after_ms.is_nan()).then(|| Duration::from_nanos((retry_after_ms * 1e6) as u64));
                return TaskOutcome::Retryable { kind, status: (status != 0).then_some(status), retry_after };
            }
            let kind = kind_from(FIRST_FAILURE).and_then(|place| FailureKind::ALL.get(place));
            TaskOutcome::Failed(kind.copied().unwrap_or(FailureKind::Other))
        }
    }
}
