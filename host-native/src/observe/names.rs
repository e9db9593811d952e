//! The names of event kinds and outcomes in metrics and traces. They are those of the JSON format.

#[cfg(any(feature = "metrics", feature = "tracing"))]
use std::sync::Arc;

use serde::Serialize;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use tidegate_core::event::EventKind;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use tidegate_core::pipeline::TaskOutcome;

/// Returns the names of all event kinds of a stream, by index.
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(crate) fn kind_names<K: EventKind + Serialize>() -> Vec<Arc<str>> {
    K::ALL.iter().map(|kind| Arc::from(variant_name(kind))).collect()
}

/// Returns the serialised name of a variant without fields, or `other` for a variant with fields.
pub(crate) fn variant_name(variant: &impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "other".into(),
    }
}

/// Returns the name of a task outcome. `None` is a task that ended by a bug.
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(crate) fn task_outcome_name(outcome: Option<TaskOutcome>) -> &'static str {
    match outcome {
        Some(TaskOutcome::Success) => "success",
        Some(TaskOutcome::Skipped) => "skipped",
        Some(TaskOutcome::Failed(_)) => "failed",
        Some(TaskOutcome::Retryable { .. }) => "retryable",
        Some(TaskOutcome::Cancelled) => "cancelled",
        Some(TaskOutcome::Unavailable) => "provider_unavailable",
        None => "broken",
    }
}
